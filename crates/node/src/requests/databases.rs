//! Databases: what `SELECT` chooses, how they come into being, and `MOVE` and `COPY`, which take a key from one to another.
//!
//! A database is a keyspace, with groups of its own. So `MOVE` and `COPY … DB` are transactions over two groups, whose values move
//! (`two_phase/evaluation`).

use crate::context::{Call, Context};
use crate::session::ClientId;
use crate::two_phase::evaluation::{Evaluation, ToDatabase};
use crate::two_phase::merging::Work;
use cluster::control::{ChangeError, Feature, Refusal};
use cluster::keyspace::{Keyspace, prefix_of_database};
use commands::{CommandError, DATABASES, Found, Handler, NodeCommand, ScriptCommand, TransactionCommand};
use kv::ReplyBuffer;
use kv::limits::KEY_BYTES_MAX;
use wire::resp::Arguments;

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

/// A key on its way to another database, by `MOVE` or by `COPY … DB`.
///
/// # Errors
/// The error for the client: a key is too long, or the databases are one, or one of them does not exist.
pub(crate) fn to_database(
    cx: &Context,
    client: ClientId,
    (from, to): (&[u8], &[u8]),
    number: u8,
    what: ToDatabase,
) -> Result<Work, String> {
    if let Some(key) = [from, to].into_iter().find(|key| key.len() > KEY_BYTES_MAX) {
        return Err(CommandError::KeyTooLong(key.len()).to_string());
    }
    if number == cx.selected(client) {
        return Err("ERR source and destination objects are the same".into());
    }
    // Otherwise both names could lead to one group.
    existing(cx, cx.selected(client))?;
    existing(cx, number)?;
    let group = cx.database_of(client).group_of(from);
    let other = cx.groups.router().database(number).group_of(to);
    Ok(Work::Evaluation(Box::new(Evaluation::to_database((group, from), (other, to), what))))
}

/// `MOVE`.
///
/// # Errors
/// As for [`to_database`].
pub(crate) fn moved(cx: &Context, client: ClientId, arguments: Arguments<'_>) -> Result<Work, String> {
    let key = &arguments[1];
    to_database(cx, client, (key, key), named(cx, &arguments[2])?, ToDatabase::Moved)
}
