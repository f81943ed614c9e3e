//! The clients' commands `SUBSCRIBE`, `PUBLISH` and related ones.

use super::counts::COUNTED_CHANNELS_MAX;
use super::{
    Channels, PATTERN_BYTE_NS, PATTERNS_BYTES_MAX, PATTERNS_MAX, PATTERNS_PART_OF_MEMORY, SUBSCRIPTIONS_MAX,
};
use crate::context::Context;
use crate::session::{ClientId, Listening, Session, SessionReply};
use commands::{ChannelCommand, CommandError, CommandSpec, Handler, NodeCommand};
use kv::glob::{PATTERN_BYTES_MAX, Pattern};
use kv::limits::CHANNEL_BYTES_MAX;
use kv::{Reply, ReplyBuffer};
use protocol::Result as Outcome;
use wire::resp::{Arguments, Protocol};

/// Roughly how long it takes to list a channel.
const LISTED_NS: u64 = 100;

impl Session {
    /// The error if this command is refused while the client has subscriptions: in RESP2 its reply could be taken for a
    /// message.
    pub(crate) fn refuses_while_listening(&self, spec: &CommandSpec) -> Option<String> {
        use NodeCommand::{Channel, Ping, Quit, Reset};
        let may_pass = matches!(
            spec.handler,
            Handler::Node(
                Ping | Quit | Reset | Channel(ChannelCommand::Subscribe(_) | ChannelCommand::Unsubscribe(_))
            )
        );
        (self.is_listening_in_resp2() && !may_pass).then(|| {
            let name = spec.name;
            format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
                 in this context"
            )
        })
    }

    /// Whether this is a RESP2 client with subscriptions, whose `PING` is answered like a message.
    pub(crate) fn is_listening_in_resp2(&self) -> bool {
        self.subscriptions.is_some() && self.protocol() == Protocol::Resp2
    }
}

impl Channels {
    pub(crate) fn command(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        command: ChannelCommand,
        arguments: Arguments<'_>,
    ) {
        match command {
            ChannelCommand::Subscribe(how) => self.subscribe(cx, client, how, arguments),
            ChannelCommand::Unsubscribe(how) => self.unsubscribe(cx, client, how, arguments),
            ChannelCommand::Publish { is_sharded } => {
                let channel = &arguments[1];
                if channel.len() > CHANNEL_BYTES_MAX {
                    return refuse_name(cx, client, channel);
                }
                self.publish_for(cx, client, is_sharded, channel, &arguments[2]);
            }
            ChannelCommand::Names(how) => {
                let pattern = match arguments.get(2) {
                    Some(pattern) if pattern.len() > PATTERN_BYTES_MAX => {
                        return refuse_pattern(cx, client, pattern);
                    }
                    pattern => pattern.map(Pattern::new),
                };
                // Few names are near the greatest length.
                let match_ns = pattern.as_ref().map_or(0, |pattern| pattern.match_ns(CHANNEL_BYTES_MAX / 16));
                let read_ns = arguments.get(2).map_or(0, <[u8]>::len) as u64 * PATTERN_BYTE_NS;
                cx.spend(read_ns + self.of(how).len() as u64 * (LISTED_NS + match_ns));
                let names = self.of(how).keys();
                let names = names.filter(|name| pattern.as_ref().is_none_or(|pattern| pattern.matches(name)));
                let names: Vec<Vec<u8>> = names.cloned().collect();
                cx.answer(client, |replies| {
                    replies.array(names.len());
                    names.iter().for_each(|name| replies.bulk(name));
                });
            }
            ChannelCommand::Counts(how) => {
                let names = arguments.skip(2);
                if names.len() > COUNTED_CHANNELS_MAX {
                    let text = format!(
                        "ERR a request counts the listeners of at most {COUNTED_CHANNELS_MAX} channels"
                    );
                    return cx.answer(client, |replies| replies.error(&text));
                }
                if let Some(name) = names.iter().find(|name| name.len() > CHANNEL_BYTES_MAX) {
                    return refuse_name(cx, client, name);
                }
                self.count(cx, client, how, names.iter());
            }
            ChannelCommand::PatternCount => {
                let count = self.pattern_count();
                cx.answer(client, |replies| replies.integer(count as i64));
            }
        }
    }

    /// Publishes a client's message. If the client listens itself, it gets the reply before the message.
    fn publish_for(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        is_sharded: bool,
        channel: &[u8],
        message: &[u8],
    ) {
        let listens = cx.clients.sessions.get(client).is_some_and(|session| session.subscriptions.is_some());
        if !listens || cx.clients.is_capturing() {
            let count = self.publish(cx, is_sharded, channel, message);
            return cx.answer(client, |replies| replies.integer(count as i64));
        }
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        session.hold_messages();
        let ticket = session.begin(false);
        let mut replies = ReplyBuffer::new();
        replies.integer(self.publish(cx, is_sharded, channel, message) as i64);
        let done = Outcome::Done { version: 0, offset: 0 };
        cx.complete_session(client, ticket.sequence, 0, done, SessionReply::Encoded(replies.as_bytes()));
    }

    fn subscribe(&mut self, cx: &mut Context, client: ClientId, how: Listening, arguments: Arguments<'_>) {
        let longer_than = |bytes_max| arguments.iter().skip(1).find(move |name| name.len() > bytes_max);
        match how {
            Listening::Pattern => {
                if let Some(pattern) = longer_than(PATTERN_BYTES_MAX) {
                    return refuse_pattern(cx, client, pattern);
                }
            }
            Listening::Channel | Listening::Shard => {
                if let Some(name) = longer_than(CHANNEL_BYTES_MAX) {
                    return refuse_name(cx, client, name);
                }
            }
        }
        if how == Listening::Pattern {
            let bytes: usize = arguments.iter().skip(1).map(<[u8]>::len).sum();
            cx.spend(bytes as u64 * PATTERN_BYTE_NS);
            let (count, bytes) = self.patterns_with(arguments.iter().skip(1));
            let bytes_max = match cx.memory.is_bounded() {
                true => PATTERNS_BYTES_MAX.min((cx.memory.bytes_max() / PATTERNS_PART_OF_MEMORY) as usize),
                false => PATTERNS_BYTES_MAX,
            };
            if count > PATTERNS_MAX || bytes > bytes_max {
                let text = format!(
                    "ERR the clients of a node may listen to at most {PATTERNS_MAX} patterns of {bytes_max} bytes together, and \
                     these would make {count} of {bytes} bytes"
                );
                return cx.answer(client, |replies| replies.error(&text));
            }
        }
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        if session.is_internal() {
            return cx.answer(client, |replies| replies.error("ERR only connections of RESP can listen"));
        }
        let held = session.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.count());
        if held + arguments.len() - 1 > SUBSCRIPTIONS_MAX {
            let text =
                format!("ERR a client may listen to at most {SUBSCRIPTIONS_MAX} channels and patterns");
            return cx.answer(client, |replies| replies.error(&text));
        }
        session.hold_messages();
        let mut replies = ReplyBuffer::new();
        for name in arguments.iter().skip(1) {
            let subscriptions = session.subscriptions.get_or_insert_default();
            if subscriptions.names[how as usize].insert(name.to_vec()) {
                subscriptions.bytes += name.len();
                subscriptions.patterns_bytes += self.add(how, name, client);
            }
            confirm(how.words().0, Some(name), session.subscribed_with(how), &mut replies);
        }
        cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
    }

    fn unsubscribe(&mut self, cx: &mut Context, client: ClientId, how: Listening, arguments: Arguments<'_>) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let named: Vec<Vec<u8>> = match arguments.len() {
            1 => session.subscriptions.iter().flat_map(|held| held.of(how)).cloned().collect(),
            _ => arguments.iter().skip(1).map(<[u8]>::to_vec).collect(),
        };
        let mut replies = ReplyBuffer::new();
        for name in &named {
            if let Some(subscriptions) = &mut session.subscriptions
                && subscriptions.names[how as usize].remove(name)
            {
                subscriptions.bytes -= name.len();
                subscriptions.patterns_bytes -= self.remove(how, name, client);
            }
            confirm(how.words().1, Some(name), session.subscribed_with(how), &mut replies);
        }
        if named.is_empty() {
            confirm(how.words().1, None, session.subscribed_with(how), &mut replies);
        }
        session.subscriptions.take_if(|subscriptions| subscriptions.count() == 0);
        cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
    }

    /// Ends a client's subscriptions, on `RESET` or when it is disconnected.
    pub(crate) fn end_subscriptions(&mut self, cx: &mut Context, client: ClientId) {
        let held = cx.clients.sessions.get_mut(client).and_then(|session| session.subscriptions.take());
        if let Some(subscriptions) = held {
            self.forget(client, &subscriptions);
        }
    }
}

fn confirm(word: &[u8], name: Option<&[u8]>, count: usize, out: &mut ReplyBuffer) {
    out.push(Reply::Push(3));
    out.bulk(word);
    match name {
        Some(name) => out.bulk(name),
        None => out.null(),
    }
    out.integer(count as i64);
}

fn refuse_name(cx: &mut Context, client: ClientId, name: &[u8]) {
    let text = CommandError::ChannelTooLong(name.len()).to_string();
    cx.answer(client, |replies| replies.error(&text));
}

fn refuse_pattern(cx: &mut Context, client: ClientId, pattern: &[u8]) {
    let text = CommandError::PatternTooLong(pattern.len()).to_string();
    cx.answer(client, |replies| replies.error(&text));
}
