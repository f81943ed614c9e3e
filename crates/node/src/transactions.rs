//! `MULTI`, `EXEC`, `WATCH` and their kin: what a client queues becomes one command for one group.
//!
//! A request after `MULTI` is parsed at once, and a command on data becomes part of a [`kv::Draft`]. `EXEC` sends all of it
//! to the group as one [`kv::Transaction`]: one record, one reply, forwarded like any other command, and if its outcome
//! is unknown, the client gets `UNKNOWN`. A command that the node answers itself, such as `PING`, is carried out once
//! the group has answered, and its reply takes its place among the others.
//!
//! `WATCH` reads the versions of keys from the group, as its leader knows them; they travel with the transaction and
//! are compared where it takes effect (see [`kv::Watched`]). Nothing more is taken from the client until they have
//! arrived, so whatever it reads is at least as new. For the same reason, a client gets no stale reads while it watches
//! a key.

use crate::command::{self, CommandError, Found, Handler, NodeCommand, ScriptCommand};
use crate::context::Context;
use crate::context::memory::OUT_OF_MEMORY;
use crate::parameters::request_bytes_max;
use crate::scripts;
use crate::session::{ClientId, ITEM_BYTES, Item, Pending};
use crate::waits;
use kv::codec::Writer;
use kv::limits::TRANSACTION_COMMANDS_MAX;
use kv::{Command, List, Reply, ReplyBuffer, ScriptOptions};
use std::collections::BTreeSet;
use wire::resp::{Arguments, ArgumentsBuffer};

/// The maximum number of keys that a client may watch at a time.
const WATCHED_KEYS_MAX: usize = 10_000;

/// The maximum total length of these keys, in bytes.
const WATCHED_BYTES_MAX: usize = 4 << 20;

/// The error for keys of several groups, which cannot be handled in one step.
pub(crate) const CROSSSLOT: &str =
    "CROSSSLOT Keys in request don't hash to the same slot (they are in several keyspaces)";

/// The answer to `EXEC` with arguments, which discards the transaction.
pub(crate) const EXEC_HAS_ARGUMENTS: &str =
    "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";

pub(crate) const NOT_ALLOWED: &str = "ERR Command not allowed inside a transaction";

/// Has a client watch keys. Returns the group that is asked for their versions, and the keys whose versions are
/// wanted, unless the answer is known.
pub(crate) fn watch<'s>(
    cx: &mut Context,
    client: ClientId,
    arguments: Arguments<'_>,
    scratch: &'s mut Vec<u8>,
) -> Option<(u16, List<'s>)> {
    let session = cx.clients.sessions.get_mut(client)?;
    let gathered = session.transaction.get_or_insert_default();
    let mut all = Vec::new();
    let keys = match command::all_keys(arguments, &mut all) {
        Ok(keys) => keys,
        Err(error) => {
            cx.answer(client, |replies| replies.error(&error.to_string()));
            return None;
        }
    };
    let new: BTreeSet<&[u8]> = keys.iter().filter(|key| !gathered.watched.contains(*key)).collect();
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
    let keys = List::build(scratch, new);
    let Some(group) = cx.group_of(&Command::Watch { keys }) else {
        cx.answer(client, |replies| replies.error(CROSSSLOT));
        return None;
    };
    let mut kept = Vec::new();
    keys.iter().for_each(|key| kept.put_bytes(key));
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        let generation = session.generation;
        session.expect(Pending::Watch { generation, keys: kept });
    }
    Some((group, keys))
}

/// Queues a request of a client after `MULTI`.
///
/// # Errors
/// The error that the client gets: its transaction is broken.
pub(crate) fn gather(
    cx: &mut Context,
    scripts: &mut scripts::Cache,
    client: ClientId,
    found: Found,
    arguments: Arguments<'_>,
    scratch: &mut Vec<u8>,
) -> Result<(), String> {
    if found.spec.flags.has(command::Flag::NoMulti) {
        return Err(NOT_ALLOWED.into());
    }
    let value_bytes_max = cx.parameters.value_bytes_max();
    let stream_node_entries = cx.parameters.stream_node_entries();
    let encodings = cx.parameters.encodings();
    let context =
        command::Context { now_ms: cx.now.unix_ms, value_bytes_max, stream_node_entries, encodings };
    let only_group = match cx.groups.ids() {
        [only] => Some(*only),
        _ => None,
    };
    let draw = cx.draw();
    let mut script_bytes = Vec::new();
    let script = match found.spec.handler {
        Handler::Node(NodeCommand::Script(ScriptCommand::Run(how))) => {
            Some(scripts.script_of(cx, how, arguments, true, &mut script_bytes))
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
    let bytes_max = request_bytes_max(value_bytes_max);
    if gathered.bytes() + argument_bytes + ITEM_BYTES > bytes_max {
        return Err(format!("ERR the transaction would take more than {bytes_max} bytes"));
    }
    let answered = |write: &dyn Fn(&mut ReplyBuffer)| {
        let mut reply = ReplyBuffer::new();
        write(&mut reply);
        Item::Answered(reply.as_bytes().to_vec())
    };
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
        Handler::Container => return Err(CommandError::WrongArity(found.spec.name).to_string()),
        Handler::Node(NodeCommand::Transaction(_)) => answered(&ReplyBuffer::ok), // UNWATCH.
        Handler::Node(_) => {
            let mut kept = ArgumentsBuffer::new();
            arguments.iter().for_each(|argument| kept.push(argument));
            Item::Node(Box::new(kept))
        }
        // As in Redis, an error in the arguments is reported in its place, and does not stop the others.
        Handler::Data(parse) => match parse(arguments, scratch, &context) {
            Err(error) => answered(&|reply| reply.error(&error.to_string())),
            Ok(command) => {
                let command = match (command, only_group) {
                    (Command::RandomKey { .. }, Some(_)) => Command::RandomKey { draw },
                    (Command::Scan { position, count, pattern, kind, .. }, Some(group)) => {
                        Command::Scan { position, count, pattern, kind, group, next: 0 }
                    }
                    (command, _) => command,
                };
                if let Command::Fenced(fenced) = command {
                    let group = cx.router.group_of(fenced.name);
                    if let Some(refusal) = waits::refusal(&cx.groups, "SET FENCE", group) {
                        return Err(refusal);
                    }
                }
                if only_group.is_none() && !has_key(&command) {
                    let name = found.spec.name.to_uppercase();
                    return Err(format!(
                        "CROSSSLOT {name} concerns all keyspaces, which no transaction can change or read in one step"
                    ));
                }
                let mut group = only_group;
                command.for_each_key(|key| group = group.or_else(|| Some(cx.router.group_of(key))));
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
    Ok(())
}

pub(crate) fn has_key(command: &Command<'_>) -> bool {
    let mut has_key = false;
    command.for_each_key(|_| has_key = true);
    has_key
}
