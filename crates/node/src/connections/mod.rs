//! `CLIENT`, `CONFIG`, `SLOWLOG`, `LATENCY`, `MONITOR`, `SELECT`, `DEBUG` and similar commands, by which a client looks at
//! and sets properties of connections and of the node.

mod acl;
mod authentication;
mod commands;
mod filter;
pub(crate) mod guard;
pub(crate) mod http;
pub(crate) mod monitor;
pub(crate) mod pause;
mod server;
mod slow;

use crate::context::{Call, Confirmation, Context};
use crate::session::{ClientId, Pending, Replies, Session, client_number};
use ::commands::{CommandError, ConfigCommand, introspection};
pub(crate) use acl::{acl, denies, follow_users, note_denial, note_denied_script, refuse};
use cluster::configuration::DebugCommand;
use cluster::control::Change;
use cluster::words::is_printable;
pub(crate) use commands::carry_out;
use filter::Filter;
use kv::limits::KEY_BYTES_MAX;
use kv::{Command, Draft, Reply, ReplyBuffer};
use server::{memory, server};
pub(crate) use slow::hot_keys;
use slow::{latency, slowlog};
use std::time::Duration;
use wire::resp::Arguments;

/// The approximate time to look at one client, and to describe one.
const LOOKED_AT_NS: u64 = 50;
const LISTED_NS: u64 = 1000;

/// The longest that `DEBUG SLEEP` may make its client wait.
const DEBUG_SLEEP_MAX: Duration = Duration::from_secs(60);

const SYNTAX: &str = "ERR syntax error";

/// The longest name of a client, of its library or of the library's version, in bytes.
pub(crate) const CLIENT_NAME_BYTES_MAX: usize = 1024;
pub(crate) const NAME_TOO_LONG: &str = "ERR Client names and attributes cannot be longer than 1024 bytes.";

/// The client with a number, if there is one.
pub(crate) fn client_with_number(cx: &mut Context, number: u64) -> Option<ClientId> {
    cx.spend(cx.clients.sessions.len() as u64 * LOOKED_AT_NS);
    cx.clients.sessions.iter().map(|(id, _)| id).find(|id| client_number(*id) == number)
}

fn id(cx: &mut Context, client: ClientId) {
    cx.answer(client, |replies| replies.integer(client_number(client) as i64));
}

/// Appends the line of a client. `asker` is the client that requested it.
fn describe(cx: &Context, client: ClientId, asker: ClientId, arguments: Arguments<'_>, out: &mut String) {
    let Some(session) = cx.clients.sessions.get(client) else { return };
    let is_monitor = cx.clients.monitors.contains(&client);
    session.describe(cx.now.monotonic_us, is_monitor, (client == asker).then_some(arguments), out);
}

fn info(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
    let mut text = String::new();
    describe(cx, client, client, arguments, &mut text);
    cx.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
}

/// Reads the conditions of `CLIENT LIST` or `CLIENT KILL`.
fn filter(cx: &Context, client: ClientId, words: Arguments<'_>, spares: bool) -> Result<Filter, String> {
    Filter::parse(words, client_number(client), spares, |name| cx.access.users().find(name).is_some())
}

fn list(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
    cx.spend(cx.clients.sessions.len() as u64 * LISTED_NS);
    let filter = match filter(cx, client, arguments.skip(2), false) {
        Ok(filter) => filter,
        Err(error) => return cx.answer(client, |replies| replies.error(&error)),
    };
    let mut text = String::new();
    for id in clients_that_fit(cx, &filter) {
        describe(cx, id, client, arguments, &mut text);
    }
    cx.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
}

fn clients_that_fit(cx: &Context, filter: &Filter) -> Vec<ClientId> {
    let is_monitor = |id: ClientId| cx.clients.monitors.contains(&id);
    clients_that(cx, |session| filter.fits(session, is_monitor(session.id()), cx.now.monotonic_us))
}

fn set_name(cx: &mut Context, client: ClientId, name: &[u8]) {
    if name.len() > CLIENT_NAME_BYTES_MAX {
        return cx.answer(client, |replies| replies.error(NAME_TOO_LONG));
    }
    if !is_printable(name) {
        let error = "ERR Client names cannot contain spaces, newlines or special characters.";
        return cx.answer(client, |replies| replies.error(error));
    }
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        session.set_name(name);
    }
    cx.answer(client, ReplyBuffer::ok);
}

fn get_name(cx: &mut Context, client: ClientId) {
    let name = cx.clients.sessions.get(client).map(|session| session.name().to_vec()).unwrap_or_default();
    cx.answer(client, |replies| if name.is_empty() { replies.null() } else { replies.bulk(&name) });
}

fn set_info(cx: &mut Context, client: ClientId, attribute: &[u8], value: &[u8]) {
    if value.len() > CLIENT_NAME_BYTES_MAX || attribute.len() > CLIENT_NAME_BYTES_MAX {
        return cx.answer(client, |replies| replies.error(NAME_TOO_LONG));
    }
    let attribute = attribute.to_ascii_lowercase();
    let Some(session) = cx.clients.sessions.get_mut(client) else { return };
    let Some(place) = session.attribute_mut(&attribute) else {
        let error = format!("ERR Unrecognized option '{}'", attribute.escape_ascii());
        return cx.answer(client, |replies| replies.error(&error));
    };
    if is_printable(value) {
        *place = value.to_vec();
        return cx.answer(client, ReplyBuffer::ok);
    }
    let attribute = String::from_utf8_lossy(&attribute).into_owned();
    let error = format!("ERR {attribute} cannot contain spaces, newlines or special characters.");
    cx.answer(client, |replies| replies.error(&error));
}

/// `CLIENT NO-EVICT` and `CLIENT NO-TOUCH`: kept for `CLIENT INFO`; nothing is evicted or touched here.
fn switch(cx: &mut Context, client: ClientId, word: &[u8], set: impl Fn(&mut Session, bool)) {
    let on = match word.to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return cx.answer(client, |replies| replies.error(SYNTAX)),
    };
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        set(session, on);
    }
    cx.answer(client, ReplyBuffer::ok);
}

/// `CLIENT CAPA`: kept for `CLIENT INFO`. Redirections are errors that every client understands, whatever it can do.
fn set_capabilities(cx: &mut Context, client: ClientId, words: Arguments<'_>) {
    if words.iter().any(|word| word.eq_ignore_ascii_case(b"redirect"))
        && let Some(session) = cx.clients.sessions.get_mut(client)
    {
        session.understands_redirections();
    }
    cx.answer(client, ReplyBuffer::ok);
}

/// `CLIENT IMPORT-SOURCE`: only `OFF` is accepted.
fn import_source(cx: &mut Context, client: ClientId, word: &[u8]) {
    cx.answer(client, |replies| match word.to_ascii_lowercase().as_slice() {
        b"off" => replies.ok(),
        b"on" => replies.error(
            "ERR CLIENT IMPORT-SOURCE ON is refused: there is no import mode, in which expired keys would stay. To take over the \
             keys of another server, run quorate import",
        ),
        _ => replies.error(SYNTAX),
    });
}

/// `CLIENT REPLY`: only `ON` gets a reply.
fn choose_replies(cx: &mut Context, client: ClientId, word: &[u8]) {
    let replies = match word.to_ascii_lowercase().as_slice() {
        b"on" => Replies::All,
        b"off" => Replies::None,
        b"skip" => Replies::AllButNext,
        _ => return cx.answer(client, |replies| replies.error(SYNTAX)),
    };
    let Some(session) = cx.clients.sessions.get_mut(client) else { return };
    if session.choose_replies(replies) {
        cx.answer(client, ReplyBuffer::ok);
    }
}

fn kill(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
    cx.spend(cx.clients.sessions.len() as u64 * LOOKED_AT_NS);
    if arguments.len() == 3 {
        // The old form names one address, and its reply is an error if there is no such client.
        let address = String::from_utf8_lossy(&arguments[2]).into_owned();
        let victims = clients_that(cx, |session| session.address() == address);
        if victims.is_empty() {
            return cx.answer(client, |replies| replies.error("ERR No such client"));
        }
        cx.answer(client, ReplyBuffer::ok);
        return kill_all(cx, client, victims);
    }
    let filter = match filter(cx, client, arguments.skip(2), true) {
        Ok(filter) => filter,
        Err(error) => return cx.answer(client, |replies| replies.error(&error)),
    };
    let victims = clients_that_fit(cx, &filter);
    cx.answer(client, |replies| replies.integer(victims.len() as i64));
    kill_all(cx, client, victims);
}

/// `CLIENT UNBLOCK`. Returns the wait that is to end, and whether with an error.
pub(crate) fn unblock(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Option<(u64, bool)> {
    let found = to_unblock(cx, arguments);
    cx.answer(client, |replies| match found {
        Ok(wait) => replies.integer(i64::from(wait.is_some())),
        Err(error) => replies.error(error),
    });
    found.ok().flatten()
}

fn to_unblock(cx: &Context, arguments: Arguments<'_>) -> Result<Option<(u64, bool)>, &'static str> {
    let with_error = match arguments.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"timeout") => false,
        Some(b"error") => true,
        Some(_) => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
    };
    let number = arguments.get(2).and_then(kv::number::parse_integer);
    let number = number.ok_or("ERR value is not an integer or out of range")?;
    let is_named =
        |session: &&Session| !session.is_internal() && i64::try_from(session.number()) == Ok(number);
    let named = cx.clients.sessions.iter().map(|(_, session)| session).find(is_named);
    Ok(named.and_then(|session| session.wait).map(|wait| (wait, with_error)))
}

fn clients_that(cx: &Context, fits: impl Fn(&Session) -> bool) -> Vec<ClientId> {
    let sessions = cx.clients.sessions.iter().filter(|(_, session)| !session.is_internal() && fits(session));
    sessions.map(|(id, _)| id).collect()
}

/// Ends sessions. A client that kills itself still reads its answer.
fn kill_all(cx: &mut Context, killer: ClientId, victims: Vec<ClientId>) {
    for victim in victims {
        if victim == killer {
            cx.clients.close_after_replies(victim);
        } else {
            cx.kill(victim);
        }
    }
}

const NO_DEBUG: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
     it from a local connection, otherwise you need to set this option in the configuration file (enable_debug_command), \
     and then restart the server.";

fn debug_protocol(cx: &mut Context, client: ClientId, kind: &[u8]) {
    match may_debug(cx, client) {
        true => cx.answer(client, |replies| introspection::example(kind, replies)),
        false => cx.answer(client, |replies| replies.error(NO_DEBUG)),
    }
}

/// `DEBUG SET-ACTIVE-EXPIRE`: of the groups that have a replica here, as long as this node leads them.
fn debug_expire(cx: &mut Context, client: ClientId, whether: &[u8]) {
    if !may_debug(cx, client) {
        return cx.answer(client, |replies| replies.error(NO_DEBUG));
    }
    let is_kept = whether == b"0";
    for place in 0.. {
        let Some(id) = cx.groups.id_at(place) else { break };
        if let Some(replica) = cx.groups.get_mut(id).and_then(|group| group.replica.as_mut()) {
            replica.keep_expired(is_kept);
        }
    }
    cx.answer(client, ReplyBuffer::ok);
}

/// `DEBUG RELOAD`: the replicas here write their keys as into a checkpoint, and read them back. Registers keep theirs.
fn debug_reload(cx: &mut Context, client: ClientId) {
    if !may_debug(cx, client) {
        return cx.answer(client, |replies| replies.error(NO_DEBUG));
    }
    let mut outcome = Ok(());
    for place in 0.. {
        let Some(id) = cx.groups.id_at(place) else { break };
        let replica = cx.groups.get_mut(id).and_then(|group| group.replica.as_mut());
        if let Some(table) = replica.and_then(|replica| replica.dumped()) {
            outcome = outcome.and(table.reload());
        }
    }
    cx.answer(client, |replies| match outcome {
        Ok(()) => replies.ok(),
        Err(why) => replies.error(&format!("ERR Error trying to load what was written: {why}")),
    });
}

/// `DEBUG PAUSE-CRON` and others: there is nothing to do.
fn debug_nothing(cx: &mut Context, client: ClientId) {
    match may_debug(cx, client) {
        true => cx.answer(client, ReplyBuffer::ok),
        false => cx.answer(client, |replies| replies.error(NO_DEBUG)),
    }
}

/// `DEBUG ERROR`.
fn debug_error(cx: &mut Context, client: ClientId, text: &[u8]) {
    match may_debug(cx, client) {
        true => {
            let text = ::commands::printable(text);
            cx.answer(client, |replies| replies.error(&text));
        }
        false => cx.answer(client, |replies| replies.error(NO_DEBUG)),
    }
}

/// `DEBUG OBJECT`: reads how Redis would store the value, and the value as `DUMP` returns it, for its length.
pub(crate) fn debug_object(cx: &mut Context, client: ClientId, key: &[u8]) -> Option<Draft> {
    let refusal = match key.len() {
        _ if !may_debug(cx, client) => Some(NO_DEBUG.to_owned()),
        length if length > KEY_BYTES_MAX => Some(CommandError::KeyTooLong(length).to_string()),
        _ => None,
    };
    if let Some(text) = refusal {
        cx.answer(client, |replies| replies.error(&text));
        return None;
    }
    let mut draft = Draft::default();
    let limits = cx.parameters.encodings();
    let both = [Command::Encoding { key, limits }, Command::Dump { key }];
    both.iter().for_each(|command| assert!(draft.push(command), "reads can be in a transaction"));
    cx.clients.sessions.get_mut(client)?.expect(Pending::Described);
    Some(draft)
}

/// `DEBUG SLEEP`: delays the reply to this client only, while the node goes on.
fn debug_sleep(cx: &mut Context, client: ClientId, seconds: &[u8]) {
    if !may_debug(cx, client) {
        return cx.answer(client, |replies| replies.error(NO_DEBUG));
    }
    let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(after) if after <= DEBUG_SLEEP_MAX => cx.answer_later(client, after, ReplyBuffer::ok),
        Some(_) => {
            let error = format!("ERR DEBUG SLEEP takes {} seconds at most", DEBUG_SLEEP_MAX.as_secs());
            cx.answer(client, |replies| replies.error(&error));
        }
        None => cx.answer(client, |replies| replies.error("ERR value is not a valid float")),
    }
}

fn may_debug(cx: &Context, client: ClientId) -> bool {
    match cx.configuration.enable_debug_command {
        DebugCommand::No => false,
        DebugCommand::Yes => true,
        DebugCommand::Local => {
            let address = cx.clients.sessions.get(client).and_then(Session::ip_address);
            address.is_some_and(|address| address.to_canonical().is_loopback())
        }
    }
}

/// `RESET`, as far as it concerns only the connection.
pub(crate) fn reset(cx: &mut Context, client: ClientId) {
    monitor::end(cx, client);
    let user = cx.clients.sessions.get(client).and_then(|session| cx.first_user(session.kind()));
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        session.reset(user);
    }
    cx.answer(client, |replies| replies.push(Reply::Status(b"RESET")));
}

pub(crate) fn config(cx: &mut Context, client: ClientId, command: ConfigCommand, arguments: Arguments<'_>) {
    match command {
        ConfigCommand::Get => {
            let mut replies = ReplyBuffer::new();
            cx.parameters.get(arguments, &mut replies);
            cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
        }
        ConfigCommand::Set => {
            let outcome = cx.parameters.set(arguments);
            let default = cx.map.keyspaces.get("").map(|entry| entry.keyspace.clone());
            let settings = default.map(|default| cx.parameters.take_changed(&default)).unwrap_or_default();
            if outcome.is_ok() && !settings.is_empty() {
                if let Some(error) = acl::refuses_cluster_change(cx, client) {
                    return cx.answer(client, |replies| replies.error(&error));
                }
                let change = Change::SetKeyspace { prefix: String::new(), settings };
                return cx.call(Call::Change {
                    client: Some((client, Confirmation::Ok)),
                    change: Box::new(change),
                });
            }
            cx.answer(client, |replies| match outcome {
                Ok(()) => replies.ok(),
                Err(error) => replies.error(&error.to_string()),
            });
        }
        ConfigCommand::Rewrite => cx.answer(client, |replies| {
            replies.error(
                "ERR CONFIG REWRITE is refused: a node does not change its configuration file. What CONFIG SET has set on this \
                 node holds until it ends; to keep it, put it into the file",
            );
        }),
        ConfigCommand::ResetStat => {
            cx.clients.statistics.reset();
            cx.counters = Default::default();
            cx.counted_before = cx.groups.statistics();
            cx.answer(client, ReplyBuffer::ok);
        }
    }
}
