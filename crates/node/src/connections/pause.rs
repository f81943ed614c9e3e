//! `CLIENT PAUSE`: requests of this node's clients are held for a while (`requests::HeldRequests`). Everything else
//! continues: requests that were taken before are answered, keys expire, and other nodes' requests are executed.

use crate::context::Context;
use crate::context::pause::Pause;
use crate::session::ClientId;
use crate::session::gates::Gate;
use commands::{ChannelCommand, ClientCommand, Flag, Found, Handler, NodeCommand, ScriptCommand};
use kv::ReplyBuffer;
use wire::resp::Arguments;

/// Whether the pause holds a request.
#[cold]
pub(crate) fn concerns(cx: &Context, client: ClientId, found: Found, is_writing_script: bool) -> bool {
    let pause = cx.clients.pause;
    let Some(session) = cx.clients.sessions.get(client) else { return false };
    match found.spec.handler {
        // Requests over HTTP are not paused. UNPAUSE works even while everything is paused; in Redis it does not.
        _ if session.is_internal() => false,
        Handler::Node(NodeCommand::Client(ClientCommand::Pause | ClientCommand::Unpause)) => false,
        _ if pause.holds_all() => true,
        // Queued commands take effect with EXEC.
        Handler::Node(NodeCommand::Transaction(_)) => {
            found.spec.name == "exec" && session.has_queued_writes()
        }
        _ if session.is_gathering() => false,
        Handler::Node(NodeCommand::Channel(ChannelCommand::Publish { .. })) => true,
        Handler::Node(NodeCommand::Script(ScriptCommand::Run(_))) => is_writing_script,
        // PFCOUNT writes in Redis, and only reads here; tools expect it to wait.
        _ => found.spec.flags.has(Flag::Write) || found.spec.name == "pfcount",
    }
}

/// Ends the pause if its time is over.
pub(crate) fn tick(cx: &mut Context) {
    if cx.clients.pause.due_us() <= cx.now.monotonic_us {
        cx.clients.pause = Pause::default();
        cx.gates.set(Gate::Pause, false);
    }
}

/// `CLIENT PAUSE`.
pub(super) fn pause(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
    let holds_all = match arguments.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"all") if arguments.len() <= 4 => true,
        Some(b"write") if arguments.len() == 4 => false,
        _ => {
            let error = "ERR CLIENT PAUSE mode must be WRITE or ALL";
            return cx.answer(client, |replies| replies.error(error));
        }
    };
    let now_us = cx.now.monotonic_us;
    let refusal = match kv::number::parse_integer(&arguments[2]) {
        None => "ERR timeout is not an integer or out of range",
        Some(timeout_ms) if timeout_ms < 0 => "ERR timeout is negative",
        Some(timeout_ms) => {
            let until_us = now_us.saturating_add((timeout_ms as u64).saturating_mul(1000));
            cx.clients.pause.begin(until_us, holds_all);
            cx.gates.set(Gate::Pause, cx.clients.pause.is_on());
            return cx.answer(client, ReplyBuffer::ok);
        }
    };
    cx.answer(client, |replies| replies.error(refusal));
}

/// `CLIENT UNPAUSE`: held requests are taken in the next turn.
pub(super) fn unpause(cx: &mut Context, client: ClientId) {
    cx.clients.pause.end_at(cx.now.monotonic_us);
    cx.answer(client, ReplyBuffer::ok);
}
