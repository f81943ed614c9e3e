//! How commands, replies, outcomes and changes are shown in a transcript.

use super::{Letter, Protocol};
use kv::codec::Reader;
use kv::locks::LockNotification;
use kv::{Command, Deadline, Expiry, Hold, List, LockCommand, Reply};
use protocol::Request;
use protocol::contract::{ControlRequest, NodeId, Notice, Result, Trace};

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a text that is shown only if a flag is set.
pub(crate) fn flag(is_set: bool, text: &'static str) -> &'static str {
    if is_set { text } else { "" }
}

/// Shows the counts that are not 0.
pub(crate) fn counts(counted: &[(u64, &str)]) -> String {
    counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}")).collect()
}

pub(crate) fn nodes(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(",")
}

/// Shows a request in a few words.
pub(crate) fn question(request: &Request<'_>) -> String {
    match request {
        Request::Command(asked) => command(asked),
        Request::Wait { count, .. } => format!("wait {count}"),
    }
}

pub(crate) fn command(command: &Command<'_>) -> String {
    let list = |keys: &List<'_>| keys.iter().map(text).collect::<Vec<_>>().join(" ");
    match command {
        Command::Get { key } => format!("get {}", text(key)),
        Command::MultiGet { keys } => format!("mget {}", list(keys)),
        Command::Exists { keys } => format!("exists {}", list(keys)),
        Command::Delete { keys } => format!("del {}", list(keys)),
        Command::Set { key, value, expiry: Expiry::Set(Deadline::In(ms)), .. } => {
            format!("set {} {} for {ms} ms", text(key), text(value))
        }
        Command::Set { key, value, .. } => format!("set {} {}", text(key), text(value)),
        Command::TimeToLive { key, .. } => format!("pttl {}", text(key)),
        Command::IncrementBy { key, .. } => format!("incr {}", text(key)),
        Command::Keys { .. } => "keys".into(),
        Command::Clear {} => "flushall".into(),
        Command::Purge { until } => format!("purge until {until}"),
        Command::Evict { key, version } => format!("evict {} at {version}", key.escape_ascii()),
        Command::Lock(command) => lock(command),
        Command::Fenced(fenced) => {
            let inner = fenced.command().map_or(String::new(), |inner| self::command(&inner));
            format!("{inner} with token {} of {}", fenced.token, text(fenced.name))
        }
        _ => format!("{command:?}"),
    }
}

fn lock(command: &LockCommand<'_>) -> String {
    match *command {
        LockCommand::Acquire { name, owner, hold: Hold::Lease(ms), waiter } => {
            let waits = waiter.map_or(String::new(), |it| format!(", waits as {} of {}", it.number, it.node));
            format!("lock {} for {} and {ms} ms{waits}", text(name), text(owner))
        }
        LockCommand::Renew { name, token, lease_ms } => {
            format!("renew {} of {token} for {lease_ms} ms", text(name))
        }
        LockCommand::Release { name, token } => format!("unlock {} of {token}", text(name)),
        LockCommand::Describe { name } => format!("info {}", text(name)),
        LockCommand::Expire { name, token, number } => {
            format!("lease {number} of {} of {token} is over", text(name))
        }
        LockCommand::DropWaiters { node, .. } => format!("nobody waits at node {node}"),
        _ => format!("{command:?}"),
    }
}

/// Shows commands, one after the other.
pub(crate) fn commands(encoded: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(encoded);
    let mut shown = Vec::new();
    while let Ok(one) = Command::decode(&mut reader) {
        shown.push(command(&one));
    }
    shown
}

pub(crate) fn letter<P: Protocol>(letter: &Letter) -> String {
    format!("{} → {} {}", letter.from, letter.to, P::show_message(&letter.message::<P>()))
}

/// The elements of a reply, its head included.
pub(crate) fn elements(encoded: &[u8]) -> Vec<Reply<'_>> {
    let mut reader = Reader::new(encoded);
    std::iter::from_fn(|| Reply::decode(&mut reader).ok()).collect()
}

pub(crate) fn reply(encoded: &[u8]) -> String {
    match elements(encoded).as_slice() {
        [Reply::Array(_), elements @ ..] => elements.iter().map(element).collect::<Vec<_>>().join(", "),
        [Reply::Map(_), fields @ ..] => {
            let bare = |reply: &Reply<'_>| match reply {
                Reply::Bulk(bytes) => text(bytes),
                Reply::Null => "none".into(),
                other => element(other),
            };
            let fields = fields.chunks(2);
            fields
                .map(|field| field.iter().map(bare).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
                .join(", ")
        }
        elements => elements.iter().map(element).collect(),
    }
}

fn element(reply: &Reply<'_>) -> String {
    match *reply {
        Reply::Ok => "OK".into(),
        Reply::Status(status) => text(status),
        Reply::Null => "nothing".into(),
        Reply::Integer(integer) => integer.to_string(),
        Reply::Bulk(bytes) => format!("\"{}\"", text(bytes)),
        Reply::Error(bytes) => text(bytes),
        other => format!("{other:?}"),
    }
}

pub(crate) fn outcome<P: Protocol>(result: &Result, encoded: &[u8]) -> String {
    match result {
        Result::Done { version, offset } => format!("{}{}", reply(encoded), P::show_done(*version, *offset)),
        Result::Refused => format!("[refused] {}", reply(encoded)),
        Result::Unknown => format!("[unknown] {}", reply(encoded)),
        Result::Redirect { to } => format!("[redirect to {to}]"),
    }
}

pub(crate) fn trace(trace: &Trace) -> String {
    match trace {
        Trace::Role { role, epoch, offset } => {
            format!("becomes {role} in epoch {epoch}, holds up to {offset}")
        }
        Trace::Committed { offset } => format!("committed up to {offset}"),
        Trace::PartialResync { follower, after } => format!("partial resync of {follower} after {after}"),
        Trace::TransferBegun { to, offset, why } => {
            format!("sends {to} a snapshot at {offset}: {why}")
        }
        Trace::Installed { offset, keys } => format!("installed a snapshot of {keys} keys at {offset}"),
        Trace::Truncated { after, records } => format!("cut off {records} records after {after}"),
        Trace::LostWrites { epoch, records } => {
            format!("{records} acknowledged writes of epoch {epoch} were lost")
        }
        Trace::Leased { leased } => if *leased { "has a lease" } else { "has no lease" }.into(),
        Trace::Follower { follower, live } => {
            format!("follower {follower} {}", if *live { "is live" } else { "is silent" })
        }
        Trace::EpochPassed { epoch } => format!("its epoch has passed, {epoch} is the newest"),
        Trace::Rejected { peer, why } => format!("rejected what {peer} sent: {why}"),
        Trace::TransferAbandoned { to, why } => format!("gave up the transfer to {to}: {why}"),
        Trace::Refilling { incarnation } => format!("starts empty in life {incarnation}"),
        Trace::Resumed { incarnation, keys } => {
            format!("goes on in life {incarnation}, with the {keys} keys that it had recorded")
        }
        Trace::Refilled { incarnation, keys } => {
            format!("is refilled with {keys} keys and ready in life {incarnation}")
        }
        Trace::Begun { incarnation } => format!("begins with nothing in life {incarnation}"),
        Trace::MemoryLost { members } => format!("stands still: {members:?} have lost their memory"),
        Trace::GivenUp { incarnation } => format!("gives up what it had before life {incarnation}"),
        Trace::TombstonesCollected { tombstones } => format!("{tombstones} tombstones are collected"),
    }
}

pub(crate) fn request(request: &ControlRequest) -> String {
    match request {
        ControlRequest::Resign { epoch, to } => format!("Resign epoch {epoch} to {to}"),
        ControlRequest::InSync { epoch, in_sync } => {
            format!("asks in epoch {epoch} for in sync {}", nodes(in_sync))
        }
    }
}

/// Shows the notice that a waiting request gets.
pub(crate) fn notice(notice: &Notice) -> String {
    let Notice::LockNotified { waiter, name, notification, offset } = notice else {
        return format!("{notice:?}");
    };
    let notification = match notification {
        LockNotification::Granted(token) => format!("granted {} with token {token}", text(name)),
        LockNotification::SessionOver => "its session is over".into(),
        LockNotification::Superseded => "its owner asked again".into(),
        LockNotification::Dropped => "given up".into(),
        LockNotification::Served => "served".into(),
    };
    format!("tells {} of node {}: {notification} [offset {offset}]", waiter.number, waiter.node)
}
