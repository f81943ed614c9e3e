//! Databases: what `SELECT` chooses, how they come into being, and `MOVE` and `COPY`, which take a key from
//! one to another.
//!
//! A database is a keyspace, so it is replicated by groups of its own, and no record changes two of them. `MOVE` is
//! several requests of the client's node: it copies the key, and removes the original if that has not changed since.
//! If it has, the node takes the copy back and starts again.
//!
//! ```text
//!         group of the source                 group of the target
//!   Look  WATCH key ---------> its version
//!   Read  PEXPIRETIME, DUMP -> the copy
//!   Store                                     RESTORE key ---------> stored, or BUSYKEY: the answer is 0
//!   Take  DEL key if it has that version ---> removed: the answer is 1
//!   LookBack, only if it had another one      WATCH key -----------> its version
//!   TakeBack                                  DEL key if it is the copy's ---> and again from the beginning
//! ```
//!
//! So the key is always in at least one database, and a change that was acknowledged is never lost. For a moment it
//! is in both, and stays in both if the node dies in that moment or an outcome is not known: the client gets
//! `UNKNOWN`, as with `MIGRATE` between two servers of Redis.
//!
//! `COPY … DB` is `Read` and `Store` alone. The copy is what the key held at one moment of the command, and is there
//! from a later one on: a write to the original between the two may be answered before the copy, which lacks it,
//! appears.

use crate::context::{Call, Context};
use crate::session::ClientId;
use crate::session::origin::{Asked, Origin};
use cluster::control::{ChangeError, Feature, Refusal};
use cluster::keyspace::{Keyspace, prefix_of_database};
use commands::{DATABASES, Found, Handler, NodeCommand, ScriptCommand, TransactionCommand};
use kv::codec::Reader;
use kv::command::ExpiryUnit;
use kv::{Command, Deadline, Draft, List, Reply, ReplyBuffer, RestoreOptions, Version, Watched};
use protocol::{Request, Result as Outcome, Ticket};
use std::collections::BTreeMap;
use wire::resp::Arguments;

/// How many times a key is copied if others keep changing it.
const ATTEMPTS: u32 = 8;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const OUT_OF_RANGE: &str = "ERR DB index is out of range";

/// `SELECT`.
pub(crate) fn select(cx: &mut Context, client: ClientId, number: &[u8]) {
    let Some(session) = cx.clients.sessions.get(client) else { return };
    let chosen = match named(cx, number) {
        Ok(number) if number != session.database && session.is_watching() => {
            Err("ERR the watched keys are of another database: UNWATCH them before SELECT".to_owned())
        }
        named => named,
    };
    match chosen {
        Ok(number) => {
            if let Some(session) = cx.clients.sessions.get_mut(client) {
                session.database = number;
            }
            cx.answer(client, ReplyBuffer::ok);
        }
        Err(error) => cx.answer(client, |replies| replies.error(&error)),
    }
}

/// The number of a database, which need not exist: its first use creates it ([`Creations`]).
///
/// # Errors
/// The error for the client: it is no number, or there can be no such database.
pub(crate) fn named(cx: &Context, number: &[u8]) -> Result<u8, String> {
    let number = kv::number::parse_integer(number).ok_or(NOT_AN_INTEGER)?;
    let number = u8::try_from(number).ok().filter(|number| *number < DATABASES).ok_or(OUT_OF_RANGE)?;
    if !cx.groups.router().database(number).exists() {
        cx.map.require(Feature::Databases).map_err(|why| format!("{OUT_OF_RANGE}: {why}"))?;
    }
    Ok(number)
}

/// The number of a database that exists.
///
/// # Errors
/// The error for the client: there is no such database.
pub(crate) fn existing(cx: &Context, number: u8) -> Result<u8, String> {
    match cx.groups.router().database(number).exists() {
        true => Ok(number),
        false => Err(format!(
            "ERR database {number} does not exist yet: it is created by its first use after SELECT"
        )),
    }
}

/// A database that a command needs and that does not exist: its client's, or the target of `MOVE`. `None` where databases
/// cannot be created: then the command is refused in its place.
pub(crate) fn missing(cx: &Context, found: Found, arguments: Arguments<'_>, selected: u8) -> Option<u8> {
    let needs_own = match found.spec.handler {
        Handler::Data(_) => true,
        Handler::Node(NodeCommand::Transaction(command)) => {
            !matches!(command, TransactionCommand::Discard | TransactionCommand::Unwatch)
        }
        Handler::Node(
            NodeCommand::Move
            | NodeCommand::Script(ScriptCommand::Run(_))
            | NodeCommand::Lock(_)
            | NodeCommand::ObjectRefCount
            | NodeCommand::ClusterScan
            | NodeCommand::DebugObject,
        ) => true,
        Handler::Node(_) | Handler::Container => false,
    };
    let moves = matches!(found.spec.handler, Handler::Node(NodeCommand::Move));
    let target = if moves { arguments.get(2).and_then(|number| named(cx, number).ok()) } else { None };
    let needed = needs_own.then_some(selected).into_iter().chain(target);
    needed.into_iter().find(|number| !cx.groups.router().database(*number).exists())
}

/// Creates databases: the first command that needs one creates it, with the settings of database 0. A node that does not know
/// a database yet never answers for it, as if it were empty: its clients wait until the node has learned of it.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    /// When the creation is requested again, for each database.
    again_us: [u64; DATABASES as usize],
    /// The error for requests whose database was not created when that was requested last; empty: no reason is known.
    refusals: [String; DATABASES as usize],
}

impl Creations {
    /// A database exists: if it is dropped, its next use creates it at once.
    pub(crate) fn end(&mut self, number: u8) {
        self.again_us[usize::from(number)] = 0;
        self.refusals[usize::from(number)].clear();
    }

    /// Notes why a database was not created. Returns whether it will not be created by waiting longer.
    pub(crate) fn refuse(&mut self, number: u8, why: &ChangeError) -> bool {
        let (error, is_final) = match why {
            ChangeError::Refused { why: why @ Refusal::Other(_), .. } => {
                (format!("ERR database {number} cannot be created: {why}. Nothing was done"), true)
            }
            // This node's map is about to have the database, or the level that it needs.
            ChangeError::Refused { why, .. } => (not_created(number, &why.to_string()), false),
            ChangeError::Unknown { seconds } => {
                let why = format!("the control group, which creates it, did not answer within {seconds} s");
                (not_created(number, &why), false)
            }
        };
        self.refusals[usize::from(number)] = error;
        is_final
    }

    /// The error for a request whose database was not created.
    pub(crate) fn error(&self, number: u8) -> String {
        match self.refusals[usize::from(number)].as_str() {
            "" => not_created(number, "the control group, which creates it, has not answered yet"),
            error => error.to_owned(),
        }
    }

    /// Requests the creation of a database, unless that was done lately.
    pub(crate) fn request(&mut self, cx: &mut Context, number: u8) {
        const AGAIN_US: u64 = 500_000;
        let again_us = &mut self.again_us[usize::from(number)];
        if cx.now.monotonic_us < *again_us {
            return;
        }
        *again_us = cx.now.monotonic_us + AGAIN_US;
        let Some(first) = cx.map.keyspaces.get("") else { return };
        let keyspace = Keyspace { prefix: prefix_of_database(number), ..first.keyspace.clone() };
        cx.call(Call::CreateDatabase { number, keyspace: Box::new(keyspace) });
    }
}

fn not_created(number: u8, why: &str) -> String {
    format!(
        "CLUSTERDOWN NOLEADER database {number} does not exist yet, and was not created in time: {why}; nothing was done, try \
         again"
    )
}

/// The keys that are being moved from one database to another.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    under_way: BTreeMap<u64, Move>,
    /// The number of the newest move.
    latest: u64,
}

#[derive(Debug)]
struct Move {
    /// The client's request.
    ticket: Ticket,
    from: u16,
    to: u16,
    key: Vec<u8>,
    /// Of `COPY`, which leaves the original.
    copy: Option<Copied>,
    attempts: u32,
    stage: Stage,
    /// The key as it was in the group of the source: the leadership that reported it, its version, and the highest
    /// version there.
    seen: (u64, Version, Version),
    /// The version of the copy.
    copied: Version,
    /// The error with which the removal of the original was refused. `None`: the original had changed.
    refusal: Option<String>,
}

#[derive(Debug)]
struct Copied {
    key: Vec<u8>,
    /// Whether it replaces an existing key.
    replaces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Look,
    Read,
    Store,
    Take,
    LookBack,
    TakeBack,
}

/// The next step.
enum Next {
    Stage(Stage),
    /// The copy is stored by this command, in the encoded form.
    Store(Vec<u8>),
    Answer(i64),
    Error(Outcome, String),
}

impl Moves {
    /// `MOVE`.
    pub(crate) fn begin(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let key = &arguments[1];
        let groups =
            named(cx, &arguments[2]).and_then(|target| route(cx, client, "MOVE", (key, key), target));
        self.start(cx, client, groups, key, None);
    }

    /// `COPY` to another database than the client's, which exists.
    pub(crate) fn copy(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        (from, to): (&[u8], &[u8]),
        target: u8,
        replaces: bool,
    ) {
        let groups = route(cx, client, "COPY … DB", (from, to), target);
        self.start(cx, client, groups, from, Some(Copied { key: to.to_vec(), replaces }));
    }

    fn start(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        groups: Result<(u16, u16), String>,
        key: &[u8],
        copy: Option<Copied>,
    ) {
        let (from, to) = match groups {
            Ok(groups) => groups,
            Err(error) => return cx.answer(client, |replies| replies.error(&error)),
        };
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        // The client's next request sees the key where it is then.
        session.close_gate();
        let follows = session.is_waiting();
        session.wrote(from);
        session.wrote(to);
        let ticket = session.begin(false);
        self.latest += 1;
        let stage = if copy.is_some() { Stage::Read } else { Stage::Look };
        let (attempts, key, seen, copied) = (0, key.to_vec(), (0, 0, 0), 0);
        let begun = Move { ticket, from, to, key, copy, attempts, stage, seen, copied, refusal: None };
        begun.ask(cx, self.latest, follows);
        self.under_way.insert(self.latest, begun);
    }

    /// Takes the answer to a move's latest question.
    pub(crate) fn answered(&mut self, cx: &mut Context, number: u64, result: Outcome, reply: &[u8]) {
        let Some(it) = self.under_way.get_mut(&number) else { return };
        if let (Outcome::Done { offset, .. }, Origin::Session(client)) = (result, Origin::of(it.ticket))
            && let Some(session) = cx.clients.sessions.get_mut(client)
        {
            session.saw(it.group(), offset);
        }
        let (result, text) = match it.next(result, reply) {
            Next::Stage(stage) => {
                it.stage = stage;
                return it.ask(cx, number, true);
            }
            Next::Store(bytes) => {
                it.stage = Stage::Store;
                let command = Command::decode(&mut Reader::new(&bytes)).expect("it was encoded here");
                return it.submit(cx, number, true, &command);
            }
            Next::Answer(answer) => {
                let mut replies = ReplyBuffer::new();
                replies.integer(answer);
                let (ticket, group) = (it.ticket, it.from);
                self.under_way.remove(&number);
                let done = Outcome::Done { version: 0, offset: 0 };
                return cx.complete_with(ticket, group, done, replies);
            }
            Next::Error(result, text) => (result, text),
        };
        let (ticket, group) = (it.ticket, it.from);
        self.under_way.remove(&number);
        cx.complete_with_error(ticket, group, result, &text);
    }
}

/// The groups of a key in the client's database and of one in another database.
fn route(
    cx: &Context,
    client: ClientId,
    command: &str,
    (key, other): (&[u8], &[u8]),
    target: u8,
) -> Result<(u16, u16), String> {
    if let Some(key) = [key, other].into_iter().find(|key| key.len() > kv::limits::KEY_BYTES_MAX) {
        return Err(commands::CommandError::KeyTooLong(key.len()).to_string());
    }
    let from = cx.database_of(client).group_of(key);
    let to = cx.groups.router().database(target).group_of(other);
    if from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    for group in [from, to] {
        let keyspace = &cx.groups[group].keyspace;
        let name = keyspace.name();
        if !keyspace.has_leader() {
            return Err(format!("ERR {command} is for keyspaces with a leader, and '{name}' has registers"));
        }
        if keyspace.coding().is_some() {
            return Err(format!("ERR {command} is for values that are whole, and '{name}' keeps fragments"));
        }
    }
    Ok((from, to))
}

impl Move {
    /// The group that is asked at this stage.
    fn group(&self) -> u16 {
        match self.stage {
            Stage::Look | Stage::Read | Stage::Take => self.from,
            Stage::Store | Stage::LookBack | Stage::TakeBack => self.to,
        }
    }

    fn submit(&self, cx: &mut Context, number: u64, follows: bool, command: &Command<'_>) {
        let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        let (ticket, seen) = (Origin::Move.ticket(number), Version::MAX);
        let asked = Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 };
        cx.submit(self.group(), asked, &Request::Command(command));
    }

    /// Asks this stage's question.
    fn ask(&self, cx: &mut Context, number: u64, follows: bool) {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, std::iter::once(self.key.as_slice()));
        let mut draft = Draft::default();
        let is_pushed = match self.stage {
            Stage::Look | Stage::LookBack => {
                return self.submit(cx, number, follows, &Command::Watch { keys });
            }
            Stage::Read => {
                let unit = ExpiryUnit::UnixMilliseconds;
                draft.push(&Command::TimeToLive { key: &self.key, unit })
                    && draft.push(&Command::Dump { key: &self.key })
            }
            Stage::Take | Stage::TakeBack => {
                let (leadership, version, floor) = self.seen;
                draft.watch(leadership, Watched { key: &self.key, version, floor });
                draft.push(&Command::Delete { keys })
            }
            Stage::Store => unreachable!("the copy is stored by the command that was made of it"),
        };
        assert!(is_pushed, "a transaction may hold these commands");
        self.submit(cx, number, follows, &Command::Transaction(draft.transaction()));
    }

    /// The next step after an answer.
    fn next(&mut self, result: Outcome, reply: &[u8]) -> Next {
        let Outcome::Done { version, .. } = result else { return self.after_failure(result, reply) };
        let mut elements = Reader::new(reply);
        let mut element = || Reply::decode(&mut elements).ok();
        match (self.stage, element()) {
            (_, Some(Reply::Error(error))) if error.starts_with(b"BUSYKEY") && self.stage == Stage::Store => {
                Next::Answer(0)
            }
            (Stage::Look | Stage::LookBack, Some(Reply::Array(_))) => {
                let (floor, found) = (element(), element());
                let (Some(Reply::Integer(floor)), Some(Reply::Integer(found))) = (floor, found) else {
                    return self.after_failure(Outcome::Refused, reply);
                };
                self.seen = (version, found as Version, floor as Version);
                match self.stage {
                    Stage::Look if found == 0 => Next::Answer(0),
                    Stage::Look => Next::Stage(Stage::Read),
                    // The copy's deadline is over, or another client has removed it.
                    _ if found == 0 => self.again(),
                    _ if found as Version == self.copied => Next::Stage(Stage::TakeBack),
                    _ => Next::Error(Outcome::Unknown, self.in_both("was changed in both databases")),
                }
            }
            (Stage::Read, Some(Reply::Array(_))) => {
                let (expiry, payload) = (element(), element());
                let (Some(Reply::Integer(expiry)), Some(Reply::Bulk(payload))) = (expiry, payload) else {
                    return Next::Answer(0); // The key no longer exists.
                };
                let deadline = (expiry >= 0).then_some(Deadline::At(expiry));
                let (key, replaces) = match &self.copy {
                    Some(copy) => (copy.key.as_slice(), copy.replaces),
                    None => (self.key.as_slice(), false),
                };
                let options = RestoreOptions { replaces, ..RestoreOptions::default() };
                let mut bytes = Vec::new();
                Command::Restore { key, payload, deadline, options }.encode(&mut bytes);
                Next::Store(bytes)
            }
            (Stage::Store, Some(Reply::Ok)) if self.copy.is_some() => Next::Answer(1),
            (Stage::Store, Some(Reply::Ok)) => {
                self.copied = version;
                Next::Stage(Stage::Take)
            }
            (Stage::Take, Some(Reply::Array(_))) => Next::Answer(1),
            // The original has changed since it was copied.
            (Stage::Take, Some(Reply::NullArray)) => {
                self.refusal = None;
                Next::Stage(Stage::LookBack)
            }
            (Stage::TakeBack, Some(Reply::Array(_) | Reply::NullArray)) => self.again(),
            _ => self.after_failure(Outcome::Refused, reply),
        }
    }

    fn again(&mut self) -> Next {
        self.attempts += 1;
        match self.attempts < ATTEMPTS {
            true => Next::Stage(Stage::Look),
            false => {
                let changed =
                    || "TRYAGAIN the key was changed each time it was copied; it was not moved".into();
                Next::Error(Outcome::Refused, self.refusal.take().unwrap_or_else(changed))
            }
        }
    }

    fn in_both(&self, why: &str) -> String {
        let key = String::from_utf8_lossy(&self.key);
        format!("UNKNOWN the key '{}' may be in both databases: it {why}", cluster::words::one_line(&key))
    }

    /// The next step after an answer by which a step was not taken, or may not have been.
    fn after_failure(&mut self, result: Outcome, reply: &[u8]) -> Next {
        let text = match Reply::first(reply) {
            Reply::Error(error) => String::from_utf8_lossy(error).into_owned(),
            _ => "ERR a group has answered something else than it was asked".into(),
        };
        match self.stage {
            Stage::Look | Stage::Read => Next::Error(Outcome::Refused, text),
            Stage::Store if result != Outcome::Unknown => Next::Error(Outcome::Refused, text),
            // The original is unchanged.
            Stage::Take if result != Outcome::Unknown => {
                self.refusal = Some(text);
                Next::Stage(Stage::LookBack)
            }
            _ if self.copy.is_some() => Next::Error(Outcome::Unknown, text),
            _ => Next::Error(Outcome::Unknown, self.in_both(&format!("was not moved wholly ({text})"))),
        }
    }
}
