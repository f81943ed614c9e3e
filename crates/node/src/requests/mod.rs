//! A client's request on its way: whether it may run, and what it needs of which groups.

pub(crate) mod completing;
pub(crate) mod databases;
pub(crate) mod gather;
pub(crate) mod long;
pub(crate) mod long_reads;
pub(crate) mod scripting;
pub(crate) mod transactions;
mod unfinished;

use crate::connections::http::{HttpGuard, is_http};
use crate::connections::{self, monitor};
use crate::context::Context;
use crate::context::routing::{CROSSSLOT, Sent};
use crate::groups::Group;
use crate::session::gates::{Gate, Gates};
use crate::session::{ClientId, Pending, Session, Standing};
use crate::waits;
use cluster::control::ChangeError;
use cluster::setting::Setting as _;
use commands::{CommandError, Found, Handler, NodeCommand, ScriptCommand, TransactionCommand};
use databases::Creations;
use gather::Combine;
use kv::glob::beginning;
use kv::limits::KEY_BYTES_MAX;
use kv::table::scan_group;
use kv::{Command, ReplyBuffer};
use protocol::leader_follower::Durability;
use scripting::Scripting;
use std::collections::VecDeque;
use transactions::EXEC_HAS_ARGUMENTS;
use wire::resp::{Arguments, ArgumentsBuffer};

const NOAUTH: &str = "NOAUTH Authentication required.";

/// What is done with a request.
pub(crate) enum Admitted {
    /// Nothing, for now: it was refused, or is held.
    Not,
    /// It is this command, to be carried out, of a client that has selected this database.
    Command(Found, u8),
    /// It is this command, which is queued after `MULTI`.
    Queued(Found),
    /// It comes from a part of the server: see [`internal`].
    Internal,
}

/// Determines which command a request is, checks that its client may give it, and counts it.
#[inline]
pub(crate) fn admit(
    cx: &mut Context,
    (http_guard, held): (&mut HttpGuard, &mut HeldRequests),
    scripts: &mut Scripting,
    client: ClientId,
    arguments: Arguments<'_>,
) -> Admitted {
    let Some(session) = cx.clients.sessions.get_mut(client) else { return Admitted::Not };
    if arguments.is_empty() || session.is_closing() {
        return Admitted::Not;
    }
    session.take_request(arguments.extent(), cx.now.monotonic_us);
    cx.counters.commands += 1;
    if session.is_internal() && arguments[0].starts_with(b"QUORATE.") {
        return match may_send_internal(cx, client, arguments) {
            true => Admitted::Internal,
            false => Admitted::Not,
        };
    }
    let found = match commands::find(arguments) {
        Ok(found) => found,
        Err(_) if is_http(&arguments[0]) => {
            http_guard.refuse(cx, client);
            return Admitted::Not;
        }
        Err(error) => {
            refuse_unknown(cx, client, arguments, &error);
            return Admitted::Not;
        }
    };
    // A refused command is not a call, and has no time.
    session.set_command(None);
    let mut gates = cx.gates & OF_COMPONENTS | session.gates();
    if let Handler::Node(command) = found.spec.handler {
        let runs_script = matches!(command, NodeCommand::Script(_));
        gates.set(Gate::Functions, runs_script && !cx.admission.has_lease(cx.now.monotonic_us));
        if command == NodeCommand::Move {
            gates.set(Gate::Database, true);
        }
    }
    if !gates.are_open()
        && (Admission { cx: &mut *cx, held, scripts, client, found, arguments }).is_stopped(gates)
    {
        return Admitted::Not;
    }
    let Some(session) = cx.clients.sessions.get_mut(client) else { return Admitted::Not };
    session.set_command(Some(found.number));
    cx.clients.statistics.called(found.number);
    match session.is_gathering() && !ends_or_escapes_a_transaction(found.spec.handler) {
        true => Admitted::Queued(found),
        false => Admitted::Command(found, session.database),
    }
}

/// A command before it is taken.
struct Admission<'c> {
    cx: &'c mut Context,
    held: &'c mut HeldRequests,
    scripts: &'c mut Scripting,
    client: ClientId,
    found: Found,
    arguments: Arguments<'c>,
}

/// Whether a command that meets a closed gate is not taken now: it was answered, or is held.
type Stops = fn(&mut Admission<'_>) -> bool;

/// The gates before a command is taken, in their order, each with what a command does that meets it closed. A client learns
/// nothing of what it may not see: rights come first. What is held is not shown to monitors before it is taken.
const GATES: [(Gate, Stops); 7] = [
    (Gate::Rights, |it| it.lacks_rights()),
    (Gate::Listening, |it| it.disturbs_listening()),
    (Gate::Divided, |it| it.waits_behind_transactions()),
    (Gate::Database, |it| it.lacks_database()),
    (Gate::Pause, |it| it.is_paused()),
    (Gate::Functions, |it| it.comes_too_early()),
    (Gate::Monitors, |it| it.is_shown()),
];

/// The gates of [`GATES`] that components close for all commands.
const OF_COMPONENTS: Gates = Gates::of(&[Gate::Divided, Gate::Pause, Gate::Monitors]);

impl Admission<'_> {
    #[inline(never)]
    fn is_stopped(&mut self, gates: Gates) -> bool {
        GATES.iter().any(|(gate, stops)| gates.has(*gate) && stops(self))
    }

    fn lacks_rights(&mut self) -> bool {
        let Admission { cx, client, found, arguments, .. } = self;
        let Some(session) = cx.clients.sessions.get(*client) else { return true };
        if found.spec.flags.has(commands::Flag::NoAuth) {
            return false;
        }
        let Some(user) = session.user() else { return self.refuse(NOAUTH) };
        let Err(denial) = user.check(*found, *arguments, session.database) else { return false };
        connections::refuse(cx, *client, *found, *arguments, denial);
        true
    }

    fn disturbs_listening(&mut self) -> bool {
        let Some(session) = self.cx.clients.sessions.get_mut(self.client) else { return true };
        if let Some(text) = session.refuses_while_listening(self.found.spec) {
            return self.refuse(&text);
        }
        // What a transaction or a script publishes comes behind its own reply, as in Redis since 7.2.
        if let Handler::Node(
            NodeCommand::Transaction(TransactionCommand::Exec) | NodeCommand::Script(ScriptCommand::Run(_)),
        ) = self.found.spec.handler
        {
            session.hold_messages();
        }
        false
    }

    /// Whether the command waits until its client's transactions over several groups are over. Those of the same kind join them.
    fn waits_behind_transactions(&mut self) -> bool {
        let Some(session) = self.cx.clients.sessions.get(self.client) else { return true };
        if !session.divides || session.is_internal() || self.joins(session) {
            return false;
        }
        if let Some(session) = self.cx.clients.sessions.get_mut(self.client) {
            session.hold_back(self.arguments);
        }
        // It is counted when it is taken.
        self.cx.counters.commands -= 1;
        true
    }

    /// Whether the command is a request over several groups, or a step towards one that is answered at once.
    fn joins(&self, session: &Session) -> bool {
        let Admission { cx, client, found, arguments, .. } = self;
        let is_spread = |command: &Command<'_>| {
            let mut has_key = false;
            command.for_each_key(|_| has_key = true);
            has_key && cx.group_of(*client, command).is_none()
        };
        if session.is_gathering() && !ends_or_escapes_a_transaction(found.spec.handler) {
            return true;
        }
        match found.spec.handler {
            Handler::Node(NodeCommand::Transaction(TransactionCommand::Multi)) => true,
            Handler::Node(NodeCommand::Transaction(TransactionCommand::Exec)) => {
                let gathered = session.transaction.as_ref().filter(|gathered| gathered.is_open);
                gathered.is_some_and(|it| is_spread(&Command::Transaction(it.draft.transaction())))
            }
            Handler::Data(parse) if found.spec.wait.is_none() => {
                let (mut scratch, context) = (Vec::new(), cx.parsed_with(session.database));
                parse(*arguments, &mut scratch, &context).is_ok_and(|command| is_spread(&command))
            }
            _ => false,
        }
    }

    /// Whether the command waits for its database, which its first use creates.
    fn lacks_database(&mut self) -> bool {
        let Admission { cx, held, client, found, arguments, .. } = self;
        let selected = cx.clients.sessions.get(*client).map_or(0, |session| session.database);
        let Some(number) = databases::missing(cx, *found, *arguments, selected) else {
            return false;
        };
        if held.hold(cx, *client, *arguments, Awaited::Database(number)) {
            return true;
        }
        let error = held.creations.error(number);
        self.refuse(&error)
    }

    /// Rejects the command with an error.
    fn refuse(&mut self, error: &str) -> bool {
        self.cx.clients.statistics.rejected(self.found.number);
        self.cx.answer(self.client, |replies| replies.error(error));
        true
    }

    /// Whether a pause holds the command.
    fn is_paused(&mut self) -> bool {
        let Admission { cx, held, scripts, client, found, arguments } = self;
        let is_writing_script = match found.spec.handler {
            Handler::Node(NodeCommand::Script(ScriptCommand::Run(how))) => {
                scripts.may_write(cx, how, &arguments[1])
            }
            _ => false,
        };
        connections::pause::concerns(cx, *client, *found, is_writing_script)
            && held.hold(cx, *client, *arguments, Awaited::EndOfPause)
    }

    /// Whether the command waits until this node knows the newest functions.
    fn comes_too_early(&mut self) -> bool {
        let Admission { cx, held, scripts, client, found, arguments } = self;
        scripts.calls_too_early(cx, *found) && held.hold(cx, *client, *arguments, Awaited::Functions)
    }

    fn is_shown(&mut self) -> bool {
        monitor::show(self.cx, self.client, self.found, self.arguments);
        false
    }
}

/// Whether the client for whom a part of the server acts may do what it requests. If not, the client is answered
/// here.
fn may_send_internal(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> bool {
    let Some(session) = cx.clients.sessions.get(client) else { return false };
    if session.standing() == Standing::Free {
        return true;
    }
    let database = session.database;
    let Some(user) = session.user().cloned() else {
        cx.answer(client, |replies| replies.error(NOAUTH));
        return false;
    };
    // The key has the same place as in the clients' command.
    let like: &[u8] = match &arguments[0] {
        b"QUORATE.FETCH" => b"get",
        b"QUORATE.PUT" => b"set",
        _ => return true, // Only a part of the server that knows the cluster's secret sends those.
    };
    let found = commands::found_by_full_name(like);
    let denial = found.map(|found| (found, user.check(found, arguments, database)));
    match denial {
        Some((found, Err(denial))) => {
            connections::refuse(cx, client, found, arguments, denial);
            false
        }
        _ => true,
    }
}

/// Refuses a request that is no command, or that has too few or too many arguments.
#[cold]
fn refuse_unknown(cx: &mut Context, client: ClientId, arguments: Arguments<'_>, error: &CommandError) {
    let Some(session) = cx.clients.sessions.get_mut(client) else { return };
    session.set_command(None);
    let is_exec = matches!(error, CommandError::WrongArity("exec"));
    match is_exec {
        true => drop(session.end_transaction()),
        false => session.break_transaction(),
    }
    if let Ok(named) = commands::named(arguments) {
        cx.clients.statistics.rejected(named.number);
    }
    let text = match is_exec {
        true => EXEC_HAS_ARGUMENTS.to_owned(),
        false => error.to_string(),
    };
    cx.answer(client, |replies| replies.error(&text));
}

/// What a held request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// That `CLIENT PAUSE` is over.
    EndOfPause,
    /// That this node is sure to know the newest functions.
    Functions,
    /// That this database exists.
    Database(u8),
}

/// A request that waits, with its client's session.
#[derive(Clone, Copy, Debug)]
struct HeldRequest {
    client: ClientId,
    awaited: Awaited,
    /// When the request has waited long enough: it is taken in any case.
    gives_up_us: u64,
}

/// Requests that wait before they are taken, in the order in which they came: for the end of a pause; calls of functions
/// until this node is sure to know the newest ones, which it is not while the control group gets another leader; and requests
/// whose database is being created. But for those in a pause, each waits for as long as a command may wait for the leader
/// of its group.
///
/// A held request stays with its session, which takes no more input until then. It is taken as if it had just arrived.
#[derive(Debug, Default)]
pub(crate) struct HeldRequests {
    held: VecDeque<HeldRequest>,
    creations: Creations,
    /// A request that has waited long enough is being taken.
    gives_up: bool,
}

impl HeldRequests {
    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether a request waits, or was refused, since this database does not exist: its first use creates it.
    pub(crate) fn awaits_database(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        arguments: Arguments<'_>,
        number: u8,
    ) -> bool {
        let exists = cx.groups.router().database(number).exists();
        if !exists && !self.hold(cx, client, arguments, Awaited::Database(number)) {
            let error = self.creations.error(number);
            cx.answer(client, |replies| replies.error(&error));
        }
        !exists
    }

    /// Holds a request, and returns whether it did.
    #[cold]
    fn hold(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        arguments: Arguments<'_>,
        awaited: Awaited,
    ) -> bool {
        let is_paused = awaited == Awaited::EndOfPause;
        let sessions = &mut cx.clients.sessions;
        let Some(session) = sessions.get_mut(client).filter(|_| is_paused || !self.gives_up) else {
            return false;
        };
        let (now_us, patience_us) = (cx.now.monotonic_us, cx.configuration.command_timeout_ms * 1000);
        let gives_up_us = if is_paused { u64::MAX } else { session.waits_since_us(now_us) + patience_us };
        if session.is_internal() || gives_up_us <= now_us {
            return false;
        }
        session.hold_back(arguments);
        if self.held.len() >= sessions.len() {
            // Clients have left, and a pause may be long.
            self.held.retain(|held| sessions.get(held.client).is_some());
        }
        self.held.push_back(HeldRequest { client, awaited, gives_up_us });
        true
    }

    /// The next request that may be taken, or has waited long enough. Call [`HeldRequests::end`] after it was taken.
    pub(crate) fn next(
        &mut self,
        cx: &mut Context,
        scripts: &mut Scripting,
    ) -> Option<(ClientId, Box<ArgumentsBuffer>)> {
        let knows_functions = scripts.knows_functions(cx);
        loop {
            let is_there = |cx: &Context, held: &HeldRequest| match held.awaited {
                Awaited::EndOfPause => !cx.clients.pause.is_on(),
                Awaited::Functions => knows_functions,
                Awaited::Database(number) => cx.groups.router().database(number).exists(),
            };
            let now_us = cx.now.monotonic_us;
            let is_due = |held: &HeldRequest| is_there(cx, held) || now_us >= held.gives_up_us;
            let Some(held) = self.held.iter().position(is_due).and_then(|place| self.held.remove(place))
            else {
                self.request_databases(cx);
                return None;
            };
            let gives_up = !is_there(cx, &held);
            if let (Awaited::Database(number), false) = (held.awaited, gives_up) {
                self.creations.end(number);
            }
            let Some(session) = cx.clients.sessions.get_mut(held.client) else { continue };
            let Some(request) = session.take_held_back() else { continue };
            if gives_up {
                session.note_failure(now_us);
            }
            self.gives_up = gives_up;
            return Some((held.client, request));
        }
    }

    /// Requests the creation of the databases that are awaited. A request may be lost with a leader of the control group.
    fn request_databases(&mut self, cx: &mut Context) {
        for held in &self.held {
            if let Awaited::Database(number) = held.awaited {
                self.creations.request(cx, number);
            }
        }
    }

    /// Notes why a database was not created. If waiting does not help, the requests that wait for it are answered.
    pub(crate) fn refuse_database(&mut self, number: u8, why: &ChangeError) {
        if self.creations.refuse(number, why) {
            let awaits = |held: &&mut HeldRequest| held.awaited == Awaited::Database(number);
            self.held.iter_mut().filter(awaits).for_each(|held| held.gives_up_us = 0);
        }
    }

    /// Ends the taking of a held request.
    pub(crate) fn end(&mut self) {
        self.gives_up = false;
    }
}

/// The groups that a command on data is sent to.
pub(crate) enum Route<'a> {
    /// One group, with the command unchanged.
    Group(u16),
    /// One group, with the command in this form.
    Completed(u16, Command<'a>),
    /// These groups, whose replies become one, with the command in this form, if it is given.
    Several(Vec<u16>, Combine, Option<Command<'a>>),
    /// Several groups, each of which carries out a part of it in one transaction, if it can be divided.
    Divided,
    /// None: the error is the answer.
    Refused(String),
    /// None: a scan is over.
    Scanned,
}

/// Finds the group of a command's keys, or all groups for a command on all keys.
#[inline(always)]
pub(crate) fn route<'a>(
    cx: &mut Context,
    client: ClientId,
    found: Found,
    command: &Command<'a>,
) -> Route<'a> {
    if let Some(text) = refuses_fence(cx, client, command) {
        return Route::Refused(text);
    }
    if let [only] = cx.groups.ids() {
        let only = *only;
        return match *command {
            Command::RandomKey { .. } => Route::Completed(only, Command::RandomKey { draw: cx.draw() }),
            Command::Scan { position, count, pattern, kind, .. } => {
                let command = Command::Scan { position, count, pattern, kind, group: only, next: 0 };
                Route::Completed(only, command)
            }
            Command::Clear {} => {
                cx.audit(client, "removes all keys of all keyspaces");
                Route::Group(only)
            }
            _ => Route::Group(only),
        };
    }
    route_among_groups(cx, client, found, command)
}

/// As [`route`], on a node that has several groups. Out of line, so that finding the only group stays short.
#[inline(never)]
fn route_among_groups<'a>(
    cx: &mut Context,
    client: ClientId,
    found: Found,
    command: &Command<'a>,
) -> Route<'a> {
    let with = |cx: &Context, start: &[u8]| -> Vec<u16> {
        let mut groups: Vec<u16> = cx.database_of(client).groups_of_beginning(start).collect();
        groups.sort_unstable();
        groups
    };
    match *command {
        Command::Size {} => Route::Several(with(cx, b""), Combine::Sum, None),
        Command::Clear {} => {
            let is_everywhere = found.spec.name == "flushall";
            let number = cx.clients.sessions.get(client).map_or(0, |session| session.database);
            // Refuse before any other keyspace is emptied.
            let refusal = cx.groups.iter().find_map(|(_, Group { keyspace, .. })| {
                let is_one = is_everywhere || keyspace.database() == number;
                keyspace.refuses_clear().filter(|_| is_one)
            });
            if let Some(text) = refusal {
                return Route::Refused(text);
            }
            if is_everywhere {
                cx.audit(client, "removes all keys of all keyspaces");
                return Route::Several(cx.groups.ids().to_vec(), Combine::AllOk, None);
            }
            cx.audit(client, &format!("removes all keys of database {number}"));
            Route::Several(with(cx, b""), Combine::AllOk, None)
        }
        Command::Keys { pattern } => {
            Route::Several(with(cx, &beginning(pattern)), Combine::Concatenate, None)
        }
        Command::RandomKey { .. } => {
            let (combine, draw) = (Combine::AnyOf(cx.draw()), cx.draw());
            Route::Several(with(cx, b""), combine, Some(Command::RandomKey { draw }))
        }
        Command::Scan { position, count, pattern, kind, .. } => {
            let at = scan_group(position);
            let (database, start) = (cx.database_of(client), pattern.map(beginning).unwrap_or_default());
            // The scan's group may have been the last one, and no longer exist.
            let Some(group) = cx.groups.from(at, database, &start) else { return Route::Scanned };
            let position = if group == at { position } else { u64::from(group) };
            let next = cx.groups.from(group + 1, database, &start).unwrap_or(0);
            let command = Command::Scan { position, count, pattern, kind, group, next };
            Route::Several(vec![group], Combine::Only, Some(command))
        }
        _ => match cx.group_of(client, command) {
            Some(group) => Route::Group(group),
            None => Route::Divided,
        },
    }
}

/// Why a fenced write is refused, if the keyspace of its lock has no locks.
#[inline(always)]
fn refuses_fence(cx: &Context, client: ClientId, command: &Command<'_>) -> Option<String> {
    match command {
        Command::Fenced(fenced) => {
            waits::refusal(&cx.groups, "SET FENCE", cx.database_of(client).group_of(fenced.name))
        }
        _ => None,
    }
}

/// `OBJECT REFCOUNT`: the group is only asked whether there is a value.
pub(crate) fn reference_count<'a>(cx: &mut Context, client: ClientId, key: &'a [u8]) -> Option<Command<'a>> {
    if key.len() > KEY_BYTES_MAX {
        let text = CommandError::KeyTooLong(key.len()).to_string();
        cx.answer(client, |replies| replies.error(&text));
        return None;
    }
    let mut instead = ReplyBuffer::new();
    instead.integer(1);
    cx.clients.sessions.get_mut(client)?.expect(Pending::Instead(instead.take()));
    Some(Command::Encoding { key, limits: cx.parameters.encodings() })
}

/// The arguments of `WAIT`.
pub(crate) struct WaitAsked {
    /// The groups in which the client has written.
    pub(crate) groups: Vec<u16>,
    /// How many replicas are awaited, and how long.
    pub(crate) count: u32,
    pub(crate) deadline_us: u64,
    /// Whether writes of the client are under way, so that it waits for the newest write of a group.
    pub(crate) is_waiting: bool,
}

/// `WAIT`: what to ask of groups so that the client gets the true number of replicas that hold everything that it has
/// written.
pub(crate) fn wait(cx: &mut Context, client: ClientId, replicas: &[u8], timeout: &[u8]) -> Option<WaitAsked> {
    let integer = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok());
    let refusal = match (integer(replicas), integer(timeout)) {
        (_, Some(timeout)) if timeout < 0 => "ERR timeout is negative",
        (_, None) => "ERR timeout is not an integer or out of range",
        (None, _) => "ERR value is not an integer or out of range",
        (Some(replicas), Some(timeout)) => {
            let deadline_us = match timeout as u64 {
                0 => u64::MAX,
                timeout => cx.now.monotonic_us.saturating_add(timeout.saturating_mul(1000)),
            };
            let count = replicas.clamp(0, u32::MAX as i64) as u32;
            let session = cx.clients.sessions.get(client)?;
            let is_waiting = session.is_waiting();
            let mut groups: Vec<u16> = session.written().filter(|id| cx.groups.get(*id).is_some()).collect();
            if groups.is_empty() {
                groups.push(cx.database_of(client).default_group());
            }
            return Some(WaitAsked { groups, count, deadline_us, is_waiting });
        }
    };
    cx.answer(client, |replies| replies.error(refusal));
    None
}

/// `WAITAOF`: a `WAIT` in keyspaces whose replicas acknowledge what is on their disks. A write is committed when its leader's
/// disk has it, too.
pub(crate) fn wait_durable(
    cx: &mut Context,
    client: ClientId,
    arguments: Arguments<'_>,
) -> Option<WaitAsked> {
    let number = |place: usize| kv::number::parse_integer(&arguments[place]);
    let refusal = match (number(1), number(2)) {
        (Some(0 | 1), Some(0..)) => None,
        (Some(0 | 1), Some(_)) => Some("ERR value is out of range, must be positive".to_owned()),
        (Some(_), Some(_)) => Some("ERR value is out of range, value must between 0 and 1".into()),
        _ => Some("ERR value is not an integer or out of range".into()),
    };
    if let Some(text) = refusal {
        cx.answer(client, |replies| replies.error(&text));
        return None;
    }
    let asked = wait(cx, client, &arguments[2], &arguments[3])?;
    let keyspaces = asked.groups.iter().map(|group| &cx.groups[*group].keyspace);
    let unsynced = keyspaces.clone().find(|it| it.has_leader() && it.durability() != Durability::Fsync);
    // Redisson asks for nothing: it wants to know what there is, and takes no error.
    if unsynced.is_some() && (number(1), number(2)) == (Some(0), Some(0)) {
        cx.answer(client, |replies| {
            replies.array(2);
            replies.integer(0);
            replies.integer(0);
        });
        return None;
    }
    if let Some(keyspace) = unsynced {
        let (name, durability) = (keyspace.name(), keyspace.durability());
        let durability = durability.text();
        let text = format!(
            "ERR WAITAOF is for keyspaces with durability = \"fsync\", and '{name}' has \"{durability}\": it is not known what of it \
             is synced. WAIT counts the replicas that hold the writes"
        );
        cx.answer(client, |replies| replies.error(&text));
        return None;
    }
    Some(asked)
}

/// Takes a command that only parts of the server may send, for a client: HTTP uses them. Returns the command for its
/// group, unless it is refused.
pub(crate) fn internal<'a>(
    cx: &mut Context,
    client: ClientId,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Option<Sent<'a>> {
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        // It does not count as a command of the table, or as the session's previous one.
        session.set_internal_command(if arguments.get(0) == Some(b"QUORATE.FETCH") { "GET" } else { "SET" });
    }
    match internal_command(cx, client, arguments, scratch) {
        Ok(sent) => Some(sent),
        Err(error) => {
            cx.answer(client, |replies| replies.error(&error));
            None
        }
    }
}

fn internal_command<'a>(
    cx: &Context,
    client: ClientId,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<Sent<'a>, String> {
    let value_bytes_max = cx.parameters.value_bytes_max();
    // These must outlive the borrow of `arguments` here.
    let argument = |place| arguments.get(place).unwrap_or_default();
    let command = match (argument(0), arguments.len()) {
        (b"QUORATE.FETCH", 2) => Command::Fetch { key: argument(1) },
        // `SET` with all of its options, answered with the version.
        (b"QUORATE.PUT", 3..) => {
            let database = cx.clients.sessions.get(client).map_or(0, |session| session.database);
            let context = commands::Context { stream_node_entries: 0, ..cx.parsed_with(database) };
            let command = commands::set(arguments, scratch, &context).map_err(|error| error.to_string())?;
            if let Some(text) = refuses_fence(cx, client, &command) {
                return Err(text);
            }
            let group = cx.group_of(client, &command).ok_or(CROSSSLOT)?;
            return Ok(Sent { wants_version: true, ..Sent::new(group, command) });
        }
        (b"QUORATE.REPLICATE", 4) => {
            let number = std::str::from_utf8(argument(3)).ok().and_then(|text| text.parse().ok());
            let version = number
                .filter(|version| (1..=kv::table::REPLICATED_VERSION_MAX).contains(version))
                .ok_or("ERR a version is a number from 1 to 2^62")?;
            Command::Replicate { key: argument(1), value: argument(2), version }
        }
        _ => return Err("ERR unknown internal command".to_owned()),
    };
    if arguments[1].len() > KEY_BYTES_MAX {
        return Err(CommandError::KeyTooLong(arguments[1].len()).to_string());
    }
    if let Some(value) = arguments.get(2).filter(|value| value.len() > value_bytes_max) {
        return Err(CommandError::ValueTooLong { bytes: value.len(), most: value_bytes_max }.to_string());
    }
    let group = cx.group_of(client, &command).unwrap_or_else(|| cx.database_of(client).default_group());
    Ok(Sent::new(group, command))
}

/// Whether a command is carried out at once, even after `MULTI`.
fn ends_or_escapes_a_transaction(handler: Handler) -> bool {
    use commands::TransactionCommand::{Discard, Exec, Multi, Watch};
    matches!(
        handler,
        Handler::Node(
            NodeCommand::Quit | NodeCommand::Reset | NodeCommand::Transaction(Multi | Exec | Discard | Watch)
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client without rights learns nothing of the state of others; and what is held is not shown before it is taken.
    #[test]
    fn the_gates_before_a_command_stand_in_this_order() {
        use Gate::*;
        assert_eq!(
            GATES.map(|(gate, _)| gate),
            [Rights, Listening, Divided, Database, Pause, Functions, Monitors]
        );
    }
}
