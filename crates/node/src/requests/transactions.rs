//! `MULTI`, `EXEC`, `WATCH` and similar commands: the requests that a client queues become one command for one group.
//!
//! A request after `MULTI` is parsed at once, and a command on data becomes part of a [`kv::Draft`]. `EXEC` sends all
//! of it to the group as one [`kv::Transaction`]: one record, one reply, forwarded like any other command, and if its
//! outcome is unknown, the client gets `UNKNOWN`. A command that the node answers itself, such as `PING`, is carried
//! out once the group has answered, and its reply takes its place among the others.
//!
//! `WATCH` reads the versions of keys from the group, as its leader knows them; they are sent with the transaction
//! and are compared where it takes effect (see [`kv::Watched`]). No further request is taken from the client until
//! they have arrived, so everything that it reads is at least as new. For the same reason, a client gets no stale
//! reads while it watches a key.

use crate::connections;
use crate::context::Context;
use crate::context::memory::OUT_OF_MEMORY;
use crate::context::routing::Sent;
use crate::parameters::request_bytes_max;
use crate::requests::databases;
use crate::requests::scripting::{NO_LEASE, Scripting};
use crate::session::{ClientId, Gathered, ITEM_BYTES, Item, Pending};
use crate::two_phase::merging::Work;
use crate::two_phase::plan::Whole;
use crate::waits;
use cluster::control::Feature;
use commands::users::{Denial, Place, User};
use commands::{CommandError, Found, Handler, NodeCommand, NodeRequest, ScriptCommand, TransactionCommand};
use kv::codec::{Reader, Writer};
use kv::limits::TRANSACTION_COMMANDS_MAX;
use kv::{Command, Draft, List, Reply, ReplyBuffer, ScriptOptions};
use protocol::Result as Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::resp::reply::element_end;
use wire::resp::{Arguments, ArgumentsBuffer};

/// The maximum number of keys that a client may watch at a time.
const WATCHED_KEYS_MAX: usize = 10_000;

/// The maximum total length of watched keys, in bytes.
const WATCHED_BYTES_MAX: usize = 4 << 20;

/// The answer to `EXEC` with arguments, which discards the transaction.
pub(crate) const EXEC_HAS_ARGUMENTS: &str =
    "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";

const NOT_ALLOWED: &str = "ERR Command not allowed inside a transaction";

const NO_MOVE: &str = "ERR MOVE is not allowed inside a transaction, which stays in one database: move the key before MULTI or after \
     EXEC";

/// The reply of a command that the node would have answered itself, in a transaction with too many of them.
const LEFT_OUT: &str = "ERR the commands of the transaction that the node answers take too long, or hold too many bytes; this \
    command was left out";

/// The consequence of a command on a transaction, if its client has no answer yet.
pub(crate) enum Then<'s> {
    /// A group is asked for the versions of keys.
    Watch(Sent<'s>),
    /// A transaction is sent to its group.
    Send(Execution),
    /// A transaction of several groups is carried out by all of them, if it can be.
    Spread(Result<Work, Whole>, Pending),
    /// Items of a transaction that needs no group are carried out.
    Answer(Vec<Item>),
}

/// A transaction on its way to its group.
pub(crate) struct Execution {
    draft: Draft,
    group: u16,
    /// Whether it watches keys, so that a stale answer would be wrong.
    is_watching: bool,
}

impl Execution {
    /// The command for the group: the only command of a transaction that watches nothing, or else the whole
    /// transaction.
    pub(crate) fn sent(&self) -> Sent<'_> {
        let whole = self.draft.transaction();
        let single = whole.commands().next().filter(|_| whole.len() == 1 && !self.is_watching);
        let command = single.unwrap_or(Command::Transaction(whole));
        Sent { is_fresh: self.is_watching, ..Sent::new(self.group, command) }
    }
}

/// What is done after an outcome from which the reply has to be made.
pub(crate) enum Ended<'r> {
    /// The outcome's reply is the client's.
    Same,
    /// This reply is the client's.
    Reply(ReplyBuffer),
    /// The client gets an error.
    Error(String),
    /// The answer to `EXEC` is put together from these items and the group's replies.
    Exec(Vec<Item>, &'r [u8]),
    /// This group has further keys to watch.
    Watch(u16, Pending),
}

/// Takes a command on a transaction.
pub(crate) fn command<'s>(
    cx: &mut Context,
    client: ClientId,
    command: TransactionCommand,
    arguments: Arguments<'_>,
    scratch: &'s mut Vec<u8>,
) -> Option<Then<'s>> {
    let session = cx.clients.sessions.get_mut(client)?;
    let is_open = session.is_gathering();
    let refusal = match command {
        TransactionCommand::Multi if is_open => "ERR MULTI calls can not be nested",
        TransactionCommand::Watch if is_open => "ERR WATCH inside MULTI is not allowed",
        TransactionCommand::Exec if !is_open => "ERR EXEC without MULTI",
        TransactionCommand::Discard if !is_open => "ERR DISCARD without MULTI",
        TransactionCommand::Multi => {
            let user = session.user().cloned();
            let gathered = session.transaction.get_or_insert_default();
            (gathered.is_open, gathered.user) = (true, user);
            cx.answer(client, ReplyBuffer::ok);
            return None;
        }
        TransactionCommand::Discard | TransactionCommand::Unwatch => {
            session.end_transaction();
            cx.answer(client, ReplyBuffer::ok);
            return None;
        }
        TransactionCommand::Watch => {
            let (group, keys) = watch(cx, client, arguments, scratch)?;
            return Some(Then::Watch(Sent::new(group, Command::Watch { keys })));
        }
        TransactionCommand::Exec => return exec(cx, client),
    };
    cx.answer(client, |replies| replies.error(refusal));
    None
}

fn exec<'s>(cx: &mut Context, client: ClientId) -> Option<Then<'s>> {
    let session = cx.clients.sessions.get_mut(client)?;
    let has_versions = !session.is_awaiting_versions();
    let gathered = *session.end_transaction()?;
    let (now, database) = (session.user().cloned(), session.database);
    if !gathered.is_broken
        && let Some(user) = now.filter(|user| !gathered.user.as_ref().is_some_and(|it| Rc::ptr_eq(it, user)))
        && let Some(number) = denied(&user, &gathered, database)
    {
        refuse_queued(cx, client, &user, number);
        return None;
    }
    let Gathered { is_broken, is_lost, draft, items, origins, watched, .. } = gathered;
    if is_broken {
        let error = "EXECABORT Transaction discarded because of previous errors.";
        cx.answer(client, |replies| replies.error(error));
        return None;
    }
    let is_watching = draft.watched_len() > 0;
    let transaction = draft.transaction();
    let whole = Command::Transaction(transaction);
    // Scripts may have no keys.
    let group = if has_key(&whole) {
        cx.group_of(client, &whole)
    } else {
        Some(cx.database_of(client).default_group())
    };
    let database = cx.database_of(client);
    let work = group.is_none().then(|| {
        let watched_in = |group| origins.get(&group).copied().unwrap_or(0);
        Work::of_transaction(&transaction, |key| database.group_of(key), watched_in)
    });
    // The keys may have moved to another group since, which does not know their versions.
    let has_moved = watched.iter().any(|(key, watched_in)| database.group_of(key) != *watched_in);
    // Look at this first: what cannot be divided can never succeed, while an abort makes the client try again.
    let can_succeed = !matches!(work, Some(Err(_)));
    if can_succeed && (is_lost || !has_versions || has_moved) {
        cx.answer(client, |replies| replies.push(Reply::NullArray));
        return None;
    }
    let group = match (work, group) {
        (Some(work), _) => return Some(Then::Spread(work, Pending::Exec { items, alone: false })),
        (None, Some(group)) => group,
        (None, None) => unreachable!("what has no group is divided"),
    };
    if draft.is_empty() && !is_watching {
        return Some(Then::Answer(items));
    }
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        let alone = transaction.len() == 1 && !is_watching;
        session.expect(Pending::Exec { items, alone });
    }
    Some(Then::Send(Execution { draft, group, is_watching }))
}

/// The leader measures the time limit of a `WAIT` by its own clock. By the clock of this node it may end this much too early.
const CLOCKS_DIFFER_US: u64 = 5000;

/// The reply of `CLUSTERSCAN`, from that of `SCAN`.
fn with_cluster_cursor(reply: &[u8]) -> Option<ReplyBuffer> {
    let mut elements = Reader::new(reply);
    let (head, cursor) = (Reply::decode(&mut elements).ok()?, Reply::decode(&mut elements).ok()?);
    let (Reply::Array(2), Reply::Bulk(cursor)) = (head, cursor) else { return None };
    let mut replies = ReplyBuffer::new();
    replies.array(2);
    replies.bulk(&commands::cluster_cursor(cursor));
    replies.extend_encoded(elements.rest());
    Some(replies)
}

/// The number of the first queued command that its client's user may not give any more, since the rights have
/// changed. Only keys are still known, so each counts as read, and where the command writes, as written too.
fn denied(user: &User, gathered: &Gathered, database: u8) -> Option<usize> {
    if user.is_free() {
        return None;
    }
    let transaction = gathered.draft.transaction();
    let mut commands = transaction.commands();
    let may = |(item, number): (&Item, usize)| match item {
        Item::Data => commands.next().is_some_and(|command| {
            let (mut may, writes) = (user.may_call_in(database, number), command.is_write());
            command.for_each_key(|key| may &= user.may_call_on(database, number, key, writes));
            may
        }),
        Item::Answered(_) => user.may_call_in(database, number),
        Item::Node(arguments) => {
            let arguments = arguments.as_arguments();
            commands::find(arguments).is_ok_and(|found| user.check(found, arguments, database).is_ok())
        }
    };
    let numbers = gathered.numbers.iter().map(|number| usize::from(*number));
    let mut items = gathered.items.iter().zip(numbers.clone());
    let mut may = may;
    items.position(|item| !may(item)).and_then(|place| numbers.clone().nth(place))
}

/// Refuses a whole transaction: it is carried out in one step, or not at all.
fn refuse_queued(cx: &mut Context, client: ClientId, user: &User, number: usize) {
    let name = commands::by_number(number).map_or("", |spec| spec.name);
    let error = format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. Nothing was \
         executed: '{name}' is no longer allowed"
    );
    if let Some(spec) = commands::by_number(number) {
        let found = Found { spec, number };
        let none = ArgumentsBuffer::new();
        let place = (user, Place::Transaction);
        connections::note_denial(cx, client, place, found, none.as_arguments(), Denial::Command);
    }
    cx.answer(client, |replies| replies.error(&error));
}

/// Queues a request after `MULTI`, and answers it.
pub(crate) fn queue(
    cx: &mut Context,
    scripts: &mut Scripting,
    client: ClientId,
    found: Found,
    arguments: Arguments<'_>,
    scratch: &mut Vec<u8>,
) {
    let queued = gather(cx, scripts, client, found, arguments, scratch);
    let Some(session) = cx.clients.sessions.get_mut(client) else { return };
    match queued {
        Ok(()) => cx.answer(client, |replies| replies.push(Reply::Status(b"QUEUED"))),
        Err(error) => {
            session.break_transaction();
            cx.answer(client, |replies| replies.error(&error));
        }
    }
}

/// Takes the outcome of a request whose reply has to be made from it.
pub(crate) fn end<'r>(
    cx: &mut Context,
    client: ClientId,
    pending: Pending,
    group: u16,
    (result, reply): (Outcome, &'r [u8]),
) -> Ended<'r> {
    let Outcome::Done { version, .. } = result else {
        // The keys are not watched, and the client may not have seen that when it sends EXEC.
        if let Pending::Watch { generation, .. } = pending
            && let Some(gathered) = gathered(cx, client, generation)
        {
            gathered.is_lost = true;
        }
        return match pending {
            Pending::Exec { .. } if is_out_of_memory(reply) => {
                Ended::Error(format!("EXECABORT Transaction discarded because of: {OUT_OF_MEMORY}"))
            }
            _ => Ended::Same,
        };
    };
    match pending {
        Pending::Watch { generation, keys, mut others } => {
            if let Some(gathered) = gathered(cx, client, generation)
                && !gathered.take_versions((group, version), &keys, reply)
            {
                gathered.is_lost = true;
            }
            match others.pop() {
                Some((group, keys)) => Ended::Watch(group, Pending::Watch { generation, keys, others }),
                None => {
                    let mut replies = ReplyBuffer::new();
                    replies.ok();
                    Ended::Reply(replies)
                }
            }
        }
        Pending::Instead(instead) => {
            let is_there = !matches!(Reply::first(reply), Reply::Null | Reply::Error(_));
            if !is_there {
                return Ended::Same;
            }
            let mut replies = ReplyBuffer::new();
            replies.extend_encoded(&instead);
            Ended::Reply(replies)
        }
        Pending::Durable { committed_until_us } => match Reply::first(reply) {
            Reply::Integer(replicas) => {
                let is_local = cx.now.monotonic_us.saturating_add(CLOCKS_DIFFER_US) < committed_until_us;
                let mut replies = ReplyBuffer::new();
                replies.array(2);
                replies.integer(i64::from(is_local));
                replies.integer(replicas);
                Ended::Reply(replies)
            }
            _ => Ended::Same,
        },
        Pending::ClusterScan => with_cluster_cursor(reply).map_or(Ended::Same, Ended::Reply),
        Pending::Described => described(reply).map_or(Ended::Same, Ended::Reply),
        Pending::Copy(..) => unreachable!("a copy has no reply that is made here"),
        Pending::Exec { items, alone: true } => Ended::Exec(items, reply),
        // All elements are the group's: its reply is the client's.
        Pending::Exec { items, alone: false } if items.iter().all(|item| matches!(item, Item::Data)) => {
            Ended::Same
        }
        Pending::Exec { items, alone: false } => {
            let mut elements = Reader::new(reply);
            match Reply::decode(&mut elements) {
                Ok(Reply::Array(_)) => Ended::Exec(items, elements.rest()),
                _ => Ended::Same,
            }
        }
    }
}

/// What a client has queued, if that is still the same transaction.
fn gathered(cx: &mut Context, client: ClientId, generation: u64) -> Option<&mut Gathered> {
    let session = cx.clients.sessions.get_mut(client).filter(|session| session.generation() == generation)?;
    session.transaction.as_deref_mut()
}

/// The answer to `DEBUG OBJECT`, from its two reads. Values have neither an address nor a count of references here.
fn described(replies: &[u8]) -> Option<ReplyBuffer> {
    let mut elements = Reader::new(replies);
    if !matches!(Reply::decode(&mut elements), Ok(Reply::Array(2))) {
        return None;
    }
    let mut out = ReplyBuffer::new();
    match (Reply::decode(&mut elements), Reply::decode(&mut elements)) {
        (Ok(Reply::Bulk(encoding)), Ok(Reply::Bulk(dump))) => {
            let encoding = String::from_utf8_lossy(encoding);
            let length = dump.len();
            let text = format!(
                "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{length} lru:0 lru_seconds_idle:0"
            );
            out.push(Reply::Status(text.as_bytes()));
        }
        (Ok(Reply::Error(text)), _) | (_, Ok(Reply::Error(text))) => out.push(Reply::Error(text)),
        _ => out.error("ERR no such key"),
    }
    Some(out)
}

/// Whether a group had no room for a transaction.
fn is_out_of_memory(reply: &[u8]) -> bool {
    matches!(Reply::first(reply), Reply::Error(error) if error == OUT_OF_MEMORY.as_bytes())
}

/// The answer to `EXEC`, made from the replies of the group and of the node.
pub(crate) struct Answer<'a> {
    items: &'a [Item],
    /// The group's replies that are not taken yet, one after the other.
    elements: &'a [u8],
    replies: ReplyBuffer,
    /// Where the first element begins.
    head: usize,
    /// How many elements there are beyond one for each item.
    further: usize,
    count: usize,
    /// The bytes of the node's replies, and the most that they may have: the group has bounded its own.
    of_node_bytes: usize,
    of_node_bytes_max: usize,
}

impl<'a> Answer<'a> {
    /// Begins the answer to these items. `elements`: the group's replies. The node's replies may have about
    /// `of_node_bytes_max` bytes.
    pub(crate) fn new(items: &'a [Item], elements: &'a [u8], of_node_bytes_max: usize) -> Answer<'a> {
        let mut replies = ReplyBuffer::new();
        replies.array(items.len());
        let (head, count) = (replies.len(), items.len());
        Answer { items, elements, replies, head, further: 0, count, of_node_bytes: 0, of_node_bytes_max }
    }

    /// Whether the node's replies have as many bytes as they may.
    pub(crate) fn is_full(&self) -> bool {
        self.of_node_bytes >= self.of_node_bytes_max
    }

    /// Leaves out the command that the node would have to carry out.
    pub(crate) fn leave_out(&mut self) {
        self.replies.error(LEFT_OUT);
    }

    /// Takes the group's replies up to the next command that the node has to carry out. Its reply is passed to
    /// [`Answer::take`].
    pub(crate) fn next_of_node(&mut self) -> Option<NodeRequest<'a>> {
        while let Some((item, rest)) = self.items.split_first() {
            self.items = rest;
            match item {
                Item::Answered(reply) => self.replies.extend_encoded(reply),
                Item::Data => {
                    // A peer's reply was checked to be whole when it arrived.
                    let (element, rest) = self.elements.split_at(element_end(self.elements).unwrap_or(0));
                    self.replies.extend_encoded(element);
                    self.elements = rest;
                }
                Item::Node(arguments) => {
                    let arguments = arguments.as_arguments();
                    if let Ok(found) = commands::find(arguments)
                        && let Handler::Node(command) = found.spec.handler
                    {
                        return Some(NodeRequest { command, found, arguments });
                    }
                    self.replies.error(NOT_ALLOWED);
                }
            }
        }
        None
    }

    /// Takes the node's reply. Each confirmation of `SUBSCRIBE` and similar commands is an element, so there may be
    /// several.
    pub(crate) fn take(&mut self, answered: &ReplyBuffer) {
        self.of_node_bytes += answered.len();
        match count_of(answered.as_bytes()) {
            0 => self.replies.error(NOT_ALLOWED),
            elements => {
                self.further += elements - 1;
                self.replies.extend_encoded(answered.as_bytes());
            }
        }
    }

    /// The whole answer.
    pub(crate) fn end(mut self) -> ReplyBuffer {
        if self.further > 0 {
            let elements = self.replies.as_bytes()[self.head..].to_vec();
            self.replies.clear();
            self.replies.array(self.count + self.further);
            self.replies.extend_encoded(&elements);
        }
        self.replies
    }
}

/// The number of replies in these bytes.
fn count_of(mut replies: &[u8]) -> usize {
    let mut count = 0;
    while !replies.is_empty() {
        replies = &replies[element_end(replies).unwrap_or(replies.len())..];
        count += 1;
    }
    count
}

/// Has a client watch keys. Returns the group that is asked for their versions, and the keys whose versions are
/// wanted, unless the answer is known.
fn watch<'s>(
    cx: &mut Context,
    client: ClientId,
    arguments: Arguments<'_>,
    scratch: &'s mut Vec<u8>,
) -> Option<(u16, List<'s>)> {
    let session = cx.clients.sessions.get_mut(client)?;
    let gathered = session.transaction.get_or_insert_default();
    let mut all = Vec::new();
    let keys = match commands::all_keys(arguments, &mut all) {
        Ok(keys) => keys,
        Err(error) => {
            cx.answer(client, |replies| replies.error(&error.to_string()));
            return None;
        }
    };
    let new: BTreeSet<&[u8]> = keys.iter().filter(|key| !gathered.watched.contains_key(*key)).collect();
    let new_bytes: usize = new.iter().map(|key| key.len()).sum();
    let refusal = if gathered.watched.len() + new.len() > WATCHED_KEYS_MAX {
        Some(format!("ERR more than {WATCHED_KEYS_MAX} keys would be watched"))
    } else if gathered.watched_bytes + new_bytes > WATCHED_BYTES_MAX {
        Some(format!("ERR the watched keys would have more than {WATCHED_BYTES_MAX} bytes"))
    } else {
        None
    };
    if let Some(error) = refusal {
        cx.answer(client, |replies| replies.error(&error));
        return None;
    }
    if new.is_empty() {
        cx.answer(client, ReplyBuffer::ok);
        return None;
    }
    let database = cx.database_of(client);
    let mut groups: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    new.iter().for_each(|key| groups.entry(database.group_of(key)).or_default().put_bytes(key));
    let (group, kept) = groups.pop_first().expect("a key is new");
    let keys = watched_keys(&kept, scratch);
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        let (generation, others) = (session.generation(), groups.into_iter().collect());
        session.expect(Pending::Watch { generation, keys: kept, others });
    }
    Some((group, keys))
}

/// Keys that are kept each with its length.
pub(crate) fn watched_keys<'s>(kept: &[u8], scratch: &'s mut Vec<u8>) -> List<'s> {
    let mut reader = Reader::new(kept);
    List::build(scratch, std::iter::from_fn(|| reader.bytes().ok()))
}

/// Queues a request of a client after `MULTI`.
///
/// # Errors
/// The error that the client gets: its transaction is broken.
fn gather(
    cx: &mut Context,
    scripts: &mut Scripting,
    client: ClientId,
    found: Found,
    arguments: Arguments<'_>,
    scratch: &mut Vec<u8>,
) -> Result<(), String> {
    if found.spec.flags.has(commands::Flag::NoMulti) {
        let is_move = matches!(found.spec.handler, Handler::Node(NodeCommand::Move));
        return Err(if is_move { NO_MOVE.into() } else { NOT_ALLOWED.into() });
    }
    // It may succeed later, so nothing of the transaction is done.
    if scripts.calls_too_early(cx, found) {
        return Err(NO_LEASE.into());
    }
    let number = cx.clients.sessions.get(client).map_or(0, |session| session.database);
    let context = cx.parsed_with(number);
    let only_group = cx.groups.router().database(number).only_group();
    // An argument that is no number is an error at its place in the answer.
    let goes_elsewhere = matches!(found.spec.handler, Handler::Node(NodeCommand::Select))
        && databases::named(cx, &arguments[1]).is_ok_and(|named| named != number);
    let draw = cx.draw();
    let knows_answers = cx.map.has(Feature::Answers);
    let mut script_bytes = Vec::new();
    let script = match found.spec.handler {
        Handler::Node(NodeCommand::Script(ScriptCommand::Run(how))) => {
            Some(scripts.script_of(cx, client, how, arguments, true, &mut script_bytes))
        }
        _ => None,
    };
    let Some(session) = cx.clients.sessions.get_mut(client) else { return Ok(()) };
    let tells_reads = session.tracking.is_some();
    let Some(gathered) = &mut session.transaction else { return Ok(()) };
    if gathered.items.len() >= TRANSACTION_COMMANDS_MAX {
        return Err(format!("ERR a transaction holds at most {TRANSACTION_COMMANDS_MAX} commands"));
    }
    let argument_bytes: usize = arguments.iter().map(<[u8]>::len).sum();
    let bytes_max = request_bytes_max(context.value_bytes_max);
    if gathered.bytes() + argument_bytes + ITEM_BYTES > bytes_max {
        return Err(format!("ERR the transaction would take more than {bytes_max} bytes"));
    }
    let answered = |write: &dyn Fn(&mut ReplyBuffer)| {
        let mut reply = ReplyBuffer::new();
        write(&mut reply);
        Item::Answered(reply.as_bytes().to_vec())
    };
    let mut clears = false;
    let item = match found.spec.handler {
        Handler::Node(NodeCommand::Script(ScriptCommand::Run(_))) => match script {
            Some(Ok(script)) => {
                let options = ScriptOptions { tells_reads, ..script.options() };
                if !gathered.draft.push(&Command::Script(script.with_options(options))) {
                    return Err(NOT_ALLOWED.into());
                }
                Item::Data
            }
            Some(Err(error)) => answered(&|reply| reply.push(Reply::Error(&error))),
            None => return Err(NOT_ALLOWED.into()),
        },
        Handler::Node(NodeCommand::ObjectRefCount) if knows_answers => {
            match commands::reference_count(arguments, scratch) {
                Err(error) => answered(&|reply| reply.error(&error.to_string())),
                Ok(command) if gathered.draft.push(&command) => Item::Data,
                Ok(_) => return Err(NOT_ALLOWED.into()),
            }
        }
        Handler::Container => return Err(CommandError::WrongArity(found.spec.name).to_string()),
        Handler::Node(NodeCommand::Transaction(_)) => answered(&ReplyBuffer::ok), // UNWATCH.
        Handler::Node(NodeCommand::Select) if goes_elsewhere => {
            return Err("ERR a transaction is of one database: SELECT it before MULTI".into());
        }
        Handler::Node(_) => {
            let mut kept = ArgumentsBuffer::new();
            arguments.iter().for_each(|argument| kept.push(argument));
            Item::Node(Box::new(kept))
        }
        // As in Redis, an error in the arguments is reported at its place in the answer, and does not stop the other
        // commands.
        Handler::Data(parse) => match match parse(arguments, scratch, &context) {
            Ok(command) => Ok(command),
            Err(error) => {
                error.foreseen(arguments, scratch).filter(|_| knows_answers).ok_or_else(|| error.to_string())
            }
        } {
            Err(error) => answered(&|reply| reply.error(&error)),
            Ok(command) => {
                clears |= matches!(command, Command::Clear {});
                let command = match (command, only_group) {
                    (Command::RandomKey { .. }, Some(_)) => Command::RandomKey { draw },
                    (Command::Scan { position, count, pattern, kind, .. }, Some(group)) => {
                        Command::Scan { position, count, pattern, kind, group, next: 0 }
                    }
                    (command, _) => command,
                };
                if let Command::Fenced(fenced) = command {
                    let group = cx.groups.router().database(number).group_of(fenced.name);
                    if let Some(refusal) = waits::refusal(&cx.groups, "SET FENCE", group) {
                        return Err(refusal);
                    }
                }
                let clears_others = found.spec.name == "flushall" && cx.groups.ids().len() > 1;
                if !has_key(&command) && (only_group.is_none() || clears_others) {
                    let name = found.spec.name.to_uppercase();
                    return Err(format!(
                        "CROSSSLOT {name} concerns all keyspaces, which no transaction can change or read in one step"
                    ));
                }
                let mut group = only_group;
                command.for_each_key(|key| {
                    group = group.or_else(|| Some(cx.groups.router().database(number).group_of(key)))
                });
                if group.is_some_and(|group| cx.groups[group].is_too_full_for(&command)) {
                    return Err(OUT_OF_MEMORY.into());
                }
                if !gathered.draft.push(&command) {
                    return Err(NOT_ALLOWED.into());
                }
                Item::Data
            }
        },
    };
    gathered.item_bytes += match &item {
        Item::Data => 0,
        Item::Answered(reply) => reply.len(),
        Item::Node(_) => argument_bytes,
    };
    gathered.items.push(item);
    gathered.numbers.push(found.number as u16);
    if clears {
        cx.audit(client, "queues the removal of all keys of all keyspaces");
    }
    Ok(())
}

fn has_key(command: &Command<'_>) -> bool {
    let mut has_key = false;
    command.for_each_key(|_| has_key = true);
    has_key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(replies: &[Reply<'_>]) -> ReplyBuffer {
        let mut buffer = ReplyBuffer::new();
        replies.iter().for_each(|reply| buffer.push(*reply));
        buffer
    }

    #[test]
    fn the_answer_to_exec_has_all_replies_in_their_order() {
        use Reply::{Array, Error, Integer, Ok};
        let mut asked = ArgumentsBuffer::new();
        asked.push(b"PING");
        let refused = encoded(&[Error(b"ERR refused")]);
        let items = [
            Item::Data,
            Item::Node(Box::new(asked)),
            Item::Answered(refused.as_bytes().to_vec()),
            Item::Data,
        ];
        let of_group = encoded(&[Integer(1), Array(1), Integer(2)]);
        let answered = |replies: &[Reply<'_>]| {
            let mut answer = Answer::new(&items, of_group.as_bytes(), usize::MAX);
            let of_node = answer.next_of_node().expect("a command of the node");
            assert_eq!(of_node.command, NodeCommand::Ping);
            answer.take(&encoded(replies));
            assert!(answer.next_of_node().is_none());
            answer.end()
        };
        let rest = [Error(b"ERR refused"), Array(1), Integer(2)];
        let expected = |count, of_node: &[Reply<'_>]| {
            encoded(&[&[Array(count), Integer(1)], of_node, &rest[..]].concat())
        };
        assert_eq!(answered(&[Ok]), expected(4, &[Ok]));
        assert_eq!(answered(&[Ok, Integer(7)]), expected(5, &[Ok, Integer(7)]), "each is an element");
        assert_eq!(answered(&[]), expected(4, &[Error(NOT_ALLOWED.as_bytes())]));
    }
}
