//! Channels: messages from clients to the clients that are subscribed at that moment, on any node.
//!
//! A message is not data: it is in no keyspace, no log and no snapshot, and reaches each listener at most once. The
//! node whose client publishes it delivers it to its own listeners and sends it to every node that it has a link to; these
//! deliver it to theirs. So nothing has to be agreed on, and no node needs to know the listeners of another one.
//!
//! What a *script* publishes takes effect when the script does. The messages come with the reply of its record
//! ([`kv::ReplyBuffer::announce`]). The replica that has the client's request and answers it publishes them, as if a client
//! of its node had. Followers and replicas that replay their logs have no client to answer and send nothing, nor does a new
//! leader that finds the record. So a message is sent once, however many replicas there are. It is lost if the answering
//! leader dies at that moment, as in Redis. (If every replica delivered it to its own clients, it would arrive later, since
//! followers learn last what is committed, and after a change of leader some clients would get it twice.)
//!
//! `commands` has the clients' commands, `counts` counts the listeners of all nodes, and this file has the subscriptions.

mod commands;
mod counts;

use crate::context::Context;
use crate::context::work::TURN_NS;
use crate::messages::envelope::Envelope;
use crate::session::{ClientId, Listening, Subscriptions};
use kv::glob::Pattern;
use kv::{Announcement, Reply, ReplyBuffer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most channels and patterns that one client may subscribe to.
const SUBSCRIPTIONS_MAX: usize = 10_000;

/// The most patterns of all clients of a node together, and their bytes: each published message is matched against each
/// of them, which takes 5 to 20 ms with this many for the longest name of a channel.
const PATTERNS_MAX: usize = 10_000;
const PATTERNS_BYTES_MAX: usize = 1 << 20;

/// Where memory is bounded, patterns may use at most one part in this many of it. A parsed pattern takes up to 32 times
/// its length.
const PATTERNS_PART_OF_MEMORY: u64 = 256;

/// Roughly how long it takes to deliver a message to one listener, in nanoseconds.
const LISTENER_NS: u64 = 200;

/// Roughly how long it takes to parse one byte of a pattern, in nanoseconds.
const PATTERN_BYTE_NS: u64 = 50;

/// A peer whose output holds more bytes than this gets no messages, so that it does not hold up publishers.
const PEER_OUTPUT_BYTES_MAX: usize = 16 << 20;

/// The most bytes of messages from peers that wait for a later turn; further ones are dropped.
const PUT_OFF_BYTES_MAX: usize = 16 << 20;

/// The subscriptions of this node's clients.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    listeners: [BTreeMap<Vec<u8>, Listeners>; Listening::COUNT],
    /// The bytes of all patterns.
    pattern_bytes: usize,
    questions: counts::Questions,
    /// Messages from peers that wait for the next turn.
    put_off: VecDeque<PutOff>,
    put_off_bytes: usize,
    /// The time that this turn has spent on messages from peers, in nanoseconds.
    from_peers_ns: u64,
}

/// A message from a peer for which its turn had no time left.
#[derive(Debug)]
struct PutOff {
    is_sharded: bool,
    channel: Vec<u8>,
    message: Vec<u8>,
}

impl PutOff {
    fn bytes(&self) -> usize {
        size_of::<PutOff>() + self.channel.len() + self.message.len()
    }
}

/// The listeners of one channel, or of one pattern.
#[derive(Debug)]
struct Listeners {
    clients: BTreeSet<ClientId>,
    /// The parsed pattern; `None` for a channel.
    pattern: Option<Pattern>,
}

impl Channels {
    fn of(&self, how: Listening) -> &BTreeMap<Vec<u8>, Listeners> {
        &self.listeners[how as usize]
    }

    /// Adds a client's subscription. Returns how much memory it takes besides the name.
    fn add(&mut self, how: Listening, name: &[u8], client: ClientId) -> usize {
        let is_pattern = how == Listening::Pattern;
        let listeners = self.listeners[how as usize].entry(name.to_vec()).or_insert_with(|| {
            self.pattern_bytes += if is_pattern { name.len() } else { 0 };
            Listeners { clients: BTreeSet::new(), pattern: is_pattern.then(|| Pattern::new(name)) }
        });
        listeners.clients.insert(client);
        listeners.memory_bytes()
    }

    /// Removes a client's subscription. Returns how much memory it took besides the name.
    fn remove(&mut self, how: Listening, name: &[u8], client: ClientId) -> usize {
        let channels = &mut self.listeners[how as usize];
        let Some(listeners) = channels.get_mut(name) else { return 0 };
        let bytes = listeners.memory_bytes();
        listeners.clients.remove(&client);
        if listeners.clients.is_empty() {
            self.pattern_bytes -= if listeners.pattern.is_some() { name.len() } else { 0 };
            channels.remove(name);
        }
        bytes
    }

    /// The number of patterns there would be with these, and their bytes.
    fn patterns_with<'a>(&self, more: impl Iterator<Item = &'a [u8]>) -> (usize, usize) {
        let patterns = self.of(Listening::Pattern);
        let new: BTreeSet<&[u8]> = more.filter(|name| !patterns.contains_key(*name)).collect();
        let bytes: usize = new.iter().map(|name| name.len()).sum();
        (patterns.len() + new.len(), self.pattern_bytes + bytes)
    }

    /// Whether messages from peers wait for the next turn.
    pub(crate) fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Checks that sums are those of what is there. O(channels, and messages that are put off).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self) {
        let put_off: usize = self.put_off.iter().map(PutOff::bytes).sum();
        assert_eq!(self.put_off_bytes, put_off, "messages from peers that wait for the next turn");
        assert!(put_off <= PUT_OFF_BYTES_MAX, "more messages wait than may");
        let patterns: usize = self.of(Listening::Pattern).keys().map(Vec::len).sum();
        assert_eq!(self.pattern_bytes, patterns, "all patterns");
        let mut all = self.listeners.iter().flat_map(BTreeMap::values);
        assert!(all.all(|listeners| !listeners.clients.is_empty()), "a channel without listeners is none");
    }

    /// Removes the subscriptions of a disconnected client.
    pub(crate) fn forget(&mut self, client: ClientId, subscriptions: &Subscriptions) {
        for how in [Listening::Channel, Listening::Pattern, Listening::Shard] {
            subscriptions.of(how).iter().for_each(|name| _ = self.remove(how, name, client));
        }
    }

    /// The number of channels with listeners here.
    pub(crate) fn channel_count(&self) -> usize {
        self.of(Listening::Channel).len()
    }

    /// The number of patterns with listeners here.
    pub(crate) fn pattern_count(&self) -> usize {
        self.of(Listening::Pattern).len()
    }

    /// The number of channels of shards with listeners here.
    pub(crate) fn shard_channel_count(&self) -> usize {
        self.of(Listening::Shard).len()
    }
}

impl Listeners {
    fn memory_bytes(&self) -> usize {
        self.pattern.as_ref().map_or(0, Pattern::memory_bytes)
    }
}

impl Channels {
    /// Sends a message to all listeners, here and on the nodes with a link. Returns the number of listeners here.
    pub(crate) fn publish(
        &mut self,
        cx: &mut Context,
        is_sharded: bool,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let envelope = Envelope::Published { is_sharded, channel, message };
        for (_, peer) in cx.peers.up_mut() {
            match peer.output_bytes() > PEER_OUTPUT_BYTES_MAX {
                true => cx.counters.messages_dropped += 1,
                false => peer.send(&envelope),
            }
        }
        self.deliver(cx, is_sharded, channel, message)
    }

    /// Publishes the messages of a record whose client waits for the reply.
    pub(crate) fn publish_announced(&mut self, cx: &mut Context, replies: &mut ReplyBuffer) {
        for announcement in replies.take_announcements() {
            self.publish_announcement(cx, &announcement);
        }
    }

    /// Publishes a message of a script that was carried out.
    pub(crate) fn publish_announcement(&mut self, cx: &mut Context, announcement: &Announcement) {
        self.publish(cx, announcement.is_sharded, &announcement.channel, &announcement.message);
    }

    /// Takes a message from a peer for this node's listeners. A few bytes can cause the matching of many patterns, and a
    /// frame full of such messages would take minutes. So once this turn's share of time is used up, messages wait for the
    /// next turn, after those that wait already.
    pub(crate) fn hear(&mut self, cx: &mut Context, is_sharded: bool, channel: &[u8], message: &[u8]) {
        if self.from_peers_ns < TURN_NS && self.put_off.is_empty() {
            self.deliver_from_peer(cx, is_sharded, channel, message);
            return;
        }
        let put_off = PutOff { is_sharded, channel: channel.to_vec(), message: message.to_vec() };
        if self.put_off_bytes + put_off.bytes() > PUT_OFF_BYTES_MAX {
            cx.counters.messages_dropped += 1;
            return;
        }
        self.put_off_bytes += put_off.bytes();
        self.put_off.push_back(put_off);
    }

    /// At the beginning of a turn, delivers messages that were put off, until the turn's share of time is used up.
    pub(crate) fn deliver_put_off(&mut self, cx: &mut Context) {
        self.from_peers_ns = 0;
        while self.from_peers_ns < TURN_NS
            && let Some(put_off) = self.put_off.pop_front()
        {
            self.put_off_bytes -= put_off.bytes();
            self.deliver_from_peer(cx, put_off.is_sharded, &put_off.channel, &put_off.message);
        }
    }

    /// Delivers a message from a peer. Messages from peers have their own share of a turn's time, so that clients keep theirs.
    fn deliver_from_peer(&mut self, cx: &mut Context, is_sharded: bool, channel: &[u8], message: &[u8]) {
        let before_ns = cx.work.spent_ns();
        self.deliver(cx, is_sharded, channel, message);
        let spent_ns = cx.work.take_spent_since(before_ns);
        self.from_peers_ns = self.from_peers_ns.saturating_add(spent_ns);
    }

    /// Delivers a message to this node's listeners, and returns how many there are.
    fn deliver(&self, cx: &mut Context, is_sharded: bool, channel: &[u8], message: &[u8]) -> usize {
        let how = if is_sharded { Listening::Shard } else { Listening::Channel };
        let mut receivers = Vec::new();
        if let Some(listeners) = self.of(how).get(channel) {
            receivers.push((
                formatted(how, None, channel, message),
                listeners.clients.iter().copied().collect::<Vec<_>>(),
            ));
        }
        if !is_sharded {
            let mut matched_ns = 0;
            for (name, listeners) in self.of(Listening::Pattern) {
                let Some(pattern) = &listeners.pattern else { continue };
                matched_ns += pattern.match_ns(channel.len());
                if pattern.matches(channel) {
                    let formatted = formatted(Listening::Pattern, Some(name), channel, message);
                    receivers.push((formatted, listeners.clients.iter().copied().collect()));
                }
            }
            cx.spend(matched_ns);
        }
        let mut count = 0;
        for (formatted, clients) in receivers {
            count += clients.len();
            cx.spend(clients.len() as u64 * LISTENER_NS);
            clients.into_iter().for_each(|client| cx.push(client, formatted.as_bytes()));
        }
        count
    }
}

/// Formats a message for its listeners.
fn formatted(how: Listening, pattern: Option<&[u8]>, channel: &[u8], message: &[u8]) -> ReplyBuffer {
    let mut out = ReplyBuffer::new();
    out.push(Reply::Push(3 + u32::from(pattern.is_some())));
    out.bulk(how.message());
    if let Some(pattern) = pattern {
        out.bulk(pattern);
    }
    out.bulk(channel);
    out.bulk(message);
    out
}
