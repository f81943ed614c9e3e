//! `CLIENT PAUSE`: requests of this node's clients that are held back for a while.
//!
//! A held request stays with its session, which takes no more input until the pause is over; then it is taken as if it
//! had just arrived. Nothing else stands still: requests that were taken before have their outcomes, keys expire, and
//! other nodes' requests are carried out.

use crate::command::{ChannelCommand, ClientCommand, Flag, Found, Handler, NodeCommand, ScriptCommand};
use crate::context::Context;
use crate::context::pause::Pause;
use crate::session::{ClientId, Item, Session};
use kv::{Command, ReplyBuffer};
use wire::resp::{Arguments, ArgumentsBuffer};

/// Holds a request back if there is a pause for it, and returns whether it did.
#[cold]
pub(crate) fn hold_back(
    cx: &mut Context,
    client: ClientId,
    found: Found,
    arguments: Arguments<'_>,
    is_writing_script: bool,
) -> bool {
    let pause = cx.pause;
    let Some(session) = cx.clients.sessions.get_mut(client) else { return false };
    let is_held = match found.spec.handler {
        // Requests over HTTP are not paused. UNPAUSE works even while everything is paused; in Redis it does not.
        _ if session.is_internal() => false,
        Handler::Node(NodeCommand::Client(ClientCommand::Pause | ClientCommand::Unpause)) => false,
        _ if pause.holds_all => true,
        // What is queued takes effect with EXEC.
        Handler::Node(NodeCommand::Transaction(_)) => {
            found.spec.name == "exec" && session.has_queued_writes()
        }
        _ if session.is_gathering() => false,
        Handler::Node(NodeCommand::Channel(ChannelCommand::Publish { .. })) => true,
        Handler::Node(NodeCommand::Script(ScriptCommand::Run(_))) => is_writing_script,
        // It writes in Redis, and only reads here; tools expect it to wait.
        _ => found.spec.flags.has(Flag::Write) || found.spec.name == "pfcount",
    };
    if is_held {
        session.hold_back(arguments);
    }
    is_held
}

impl Session {
    /// Keeps a request that is to be taken later, as if it arrived then.
    pub(crate) fn hold_back(&mut self, arguments: Arguments<'_>) {
        let mut held = ArgumentsBuffer::new();
        arguments.iter().for_each(|argument| held.push(argument));
        self.requests -= 1;
        self.held_back = Some(Box::new(held));
    }
}

impl Session {
    /// Whether a command that it has queued since `MULTI` may write, or publish.
    fn has_queued_writes(&self) -> bool {
        let Some(gathered) = &self.transaction else { return false };
        let publishes = |item: &Item| match item {
            Item::Node(arguments) => {
                let name = arguments.as_arguments().get(0).unwrap_or_default();
                [&b"publish"[..], b"spublish"].iter().any(|publish| name.eq_ignore_ascii_case(publish))
            }
            _ => false,
        };
        Command::Transaction(gathered.draft.transaction()).is_write() || gathered.items.iter().any(publishes)
    }
}

/// Ends a pause that is over. Returns the clients whose requests it has held back, the longest connected first.
pub(crate) fn end(cx: &mut Context) -> Vec<ClientId> {
    if cx.pause.due_us() > cx.now.monotonic_us {
        return Vec::new();
    }
    cx.pause = Pause::default();
    let sessions = cx.clients.sessions.iter();
    let mut held: Vec<(u64, ClientId)> = sessions
        .filter(|(_, session)| session.held_back.is_some())
        .map(|(id, session)| (session.arrival, id))
        .collect();
    held.sort_unstable();
    held.into_iter().map(|(_, client)| client).collect()
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
            // A second pause makes the first one longer or stricter, never the reverse.
            let pause = &mut cx.pause;
            pause.until_us =
                pause.until_us.max(now_us.saturating_add((timeout_ms as u64).saturating_mul(1000)));
            pause.holds_all |= holds_all;
            return cx.answer(client, ReplyBuffer::ok);
        }
    };
    cx.answer(client, |replies| replies.error(refusal));
}

/// `CLIENT UNPAUSE`: what is held back is taken with the next turn.
pub(super) fn unpause(cx: &mut Context, client: ClientId) {
    if cx.pause.is_on() {
        cx.pause.until_us = cx.now.monotonic_us;
    }
    cx.answer(client, ReplyBuffer::ok);
}
