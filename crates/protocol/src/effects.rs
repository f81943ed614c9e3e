//! What goes into a replica and what comes out of it, in the same form for all protocols: inputs, outcomes, effects.

use kv::locks::LockNotification;
use kv::{BLOCKED, Command, Reply, ReplyBuffer, UnixMs, Version, WaiterId};
use std::ops::Range;
use std::sync::Arc;

/// A node's number, from 1.
pub type NodeId = u16;

/// Used in place of a leader while none is known.
pub const NOBODY: NodeId = 0;

/// The time, read once per turn by the replica's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on a monotonic clock, by which timeouts and leases are measured.
    pub monotonic_us: u64,
    /// Milliseconds since the Unix epoch, by which expiry is measured. The clock may be set backward or forward.
    pub unix_ms: UnixMs,
}

/// Timestamps of records run at most this far ahead of the wall clocks of a majority of the cluster. Half of it allows for
/// round trips of up to a second between nodes, which must stay usable. It is far more than clocks under NTP differ, and too
/// short for a user to notice in the lifetime of a key.
pub const CLOCK_BOUND_MS: u64 = 1000;

/// A step back of at most this much makes time stand still instead of going back.
const STEP_BACK_MS: u64 = CLOCK_BOUND_MS / 4;

/// Returns the time to use after `last`. If clocks differ a little, time stands still instead of going back. Nothing
/// relies on this, and `last` may come from a wrong clock, so a `last` that is far ahead is ignored.
#[inline]
pub fn not_before(time: UnixMs, last: UnixMs) -> UnixMs {
    if last.saturating_sub(time) <= STEP_BACK_MS { time.max(last) } else { time }
}

impl Now {
    /// The wall clock's time, adjusted to follow a record of time `last`: see [`not_before`].
    #[inline]
    pub fn unix_ms_behind(&self, last: UnixMs) -> UnixMs {
        not_before(self.unix_ms, last)
    }

    /// Returns when something that recurs every `period_us` is due next: at the first multiple of the period that is at least
    /// three quarters of a period away. So whatever recurs on a node with the same period does so in the same turn, and its
    /// messages leave in the same write.
    ///
    /// # Panics
    ///
    /// Panics if the period is zero.
    #[inline]
    pub fn next_beat_us(&self, period_us: u64) -> u64 {
        assert!(period_us > 0, "something that recurs has a period");
        (self.monotonic_us + period_us * 3 / 4).div_ceil(period_us) * period_us
    }

    /// Returns the whole milliseconds since an earlier moment of the monotonic clock.
    pub fn ms_since(&self, earlier_us: u64) -> u64 {
        self.monotonic_us.saturating_sub(earlier_us) / 1000
    }
}

/// Identifies a request. The replica's driver chooses both numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// The client that sent it.
    pub client: u64,
    /// The request's number among this client's, in the order they were sent.
    pub sequence: u64,
}

/// A client's request to a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// Execute a command on the group's table. Borrowed, because commands are large and should not be copied.
    Command(&'a Command<'a>),
    /// Reply, as an integer, how many replicas besides the leader hold everything up to `offset`, once there are at least
    /// `count` or the request's deadline has passed (`WAIT`).
    Wait {
        /// The write to wait for. [`Version::MAX`] means the newest one when the request arrives.
        offset: Version,
        /// How many replicas to wait for.
        count: u32,
    },
}

impl<'a> Request<'a> {
    /// The command, if it is a write.
    #[inline]
    pub fn write(&self) -> Option<&'a Command<'a>> {
        match self {
            Request::Command(command) if command.is_write() => Some(command),
            _ => None,
        }
    }
}

/// A client's request, with all that a replica needs to know of it.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// Identifies the request's outcome.
    pub ticket: Ticket,
    /// The request.
    pub request: &'a Request<'a>,
    /// True when earlier requests of the same client have no outcome yet: this one takes effect after them.
    pub follows: bool,
    /// The newest write that this client has seen acknowledged here: a stale read must not be older.
    pub seen: Version,
    /// The moment on the monotonic clock by which the client must have its outcome.
    pub deadline_us: u64,
    /// Only this replica's current leadership may order it. If that ends first, the sender must send it again.
    pub fenced: bool,
}

/// What goes into a replica.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, Message> {
    /// A client's request. Borrowed: all that is known of it is not copied at each step of its way.
    Request(&'a Submission<'a>),
    /// A message from a peer, parsed and checked.
    Message {
        /// The sender.
        from: NodeId,
        /// The message.
        message: Message,
    },
    /// Time has passed.
    Tick,
    /// The link to a peer came up or went down. Only a hint, which may be wrong.
    Link {
        /// The peer.
        peer: NodeId,
        /// Whether the link is up.
        up: bool,
    },
    /// The replica's records up to this number are as durable as the keyspace's `durability` requires. Records are
    /// numbered from 1 in each incarnation.
    Durable {
        /// The last durable record.
        record: u64,
    },
    /// The group has a new epoch, leader or membership.
    Configure(&'a Configuration),
    /// The control group will appoint no other leader of any group that this node leads before this moment of the
    /// monotonic clock. Only grows.
    Lease {
        /// The moment from which a leader must no longer serve.
        until_us: u64,
    },
    /// The turn ends: everything gathered is sent as one batch.
    Flush,
    /// This replica is being removed, and this is its last input. Every request ends now: as unknown if it may have taken
    /// effect or still may, else refused or handed on. Of the effects, only outcomes and handed-on commands count.
    Retire,
}

impl<'a, M> Input<'a, M> {
    /// Returns the same input with its message, if any, converted by `make`.
    ///
    /// # Errors
    /// Those of `make`.
    #[inline]
    pub fn with_message<N, E>(
        self,
        make: impl FnOnce(M) -> std::result::Result<N, E>,
    ) -> std::result::Result<Input<'a, N>, E> {
        Ok(match self {
            Input::Request(submission) => Input::Request(submission),
            Input::Message { from, message } => Input::Message { from, message: make(message)? },
            Input::Tick => Input::Tick,
            Input::Link { peer, up } => Input::Link { peer, up },
            Input::Durable { record } => Input::Durable { record },
            Input::Configure(configuration) => Input::Configure(configuration),
            Input::Lease { until_us } => Input::Lease { until_us },
            Input::Flush => Input::Flush,
            Input::Retire => Input::Retire,
        })
    }
}

/// The members of a group, as in the cluster map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The number of the leadership. Never reused for another leadership, and only grows.
    pub epoch: u64,
    /// The leader in this epoch.
    pub leader: NodeId,
    /// All replicas of the group, including the leader, in ascending order.
    pub members: Vec<NodeId>,
    /// The replicas that hold every acknowledged write (`acks = all` waits for these), including the leader.
    pub in_sync: Vec<NodeId>,
    /// Registers: an operator has given up what this replica has forgotten from its earlier incarnations and has not
    /// recovered.
    pub is_given_up: bool,
}

/// The outcome of a request, without its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// It took effect and has a reply.
    Done {
        /// The version of the key that was read or written, 0 where there is none.
        version: Version,
        /// For a write, its place in the group's history; 0 for a read.
        offset: Version,
    },
    /// Nothing happened; the reply is an error with the reason.
    Refused,
    /// Nothing happened here; the client must send the request to node `to`.
    Redirect {
        /// The leader as far as this replica knows, else [`NOBODY`].
        to: NodeId,
    },
    /// It may have taken effect or may still do so; the reply is an error that states this.
    Unknown,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The request.
    pub ticket: Ticket,
    /// Its outcome.
    pub result: Result,
    /// The range of its reply in [`Effects::replies`]; empty for a redirect.
    pub reply: Range<usize>,
}

/// A command that a replica has held and now hands on: nothing happened, and the request must be sent to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOn {
    /// The request, which has no outcome yet.
    pub ticket: Ticket,
    /// The leader as far as this replica knows, else [`NOBODY`].
    pub to: NodeId,
    /// The moment by which the client must have its outcome.
    pub deadline_us: u64,
    /// The range of the encoded command in [`Effects::bytes`].
    pub command: Range<usize>,
}

/// A message or a record: a range of [`Effects::bytes`], followed by bytes that the replica keeps anyway, so that long
/// values are not copied for each receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The range in [`Effects::bytes`].
    pub bytes: Range<usize>,
    /// The bytes that follow, if any.
    pub behind: Option<Arc<Vec<u8>>>,
}

impl Encoded {
    /// Returns its two parts in order, given [`Effects::bytes`].
    pub fn parts<'a>(&'a self, bytes: &'a [u8]) -> [&'a [u8]; 2] {
        [&bytes[self.bytes.clone()], self.behind.as_ref().map_or(&[], |behind| behind.as_slice())]
    }
}

impl From<Range<usize>> for Encoded {
    fn from(bytes: Range<usize>) -> Encoded {
        Encoded { bytes, behind: None }
    }
}

/// A message to a peer. Several may share the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver.
    pub to: NodeId,
    /// The encoded message.
    pub bytes: Encoded,
    /// The record that must be durable before the message leaves. 0: it leaves at once.
    pub after_record: u64,
    /// Which part of that node gets it.
    pub recipient: Recipient,
}

/// The part of the receiving node that gets a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipient {
    /// The group's replica.
    #[default]
    Replica,
    /// The coordinator of an erasure-coded value: see [`crate::coded`]. It may be this node.
    Coordinator,
}

/// A change worth reporting. Golden scripts, the log and the simulator share these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The replica took a role in an epoch.
    Role {
        /// `leader`, `follower` or `recovering`.
        role: &'static str,
        /// The epoch.
        epoch: u64,
        /// The last position it holds.
        offset: Version,
    },
    /// Everything up to this offset is committed and applied.
    Committed {
        /// The offset.
        offset: Version,
    },
    /// A follower is brought up to date from the backlog.
    PartialResync {
        /// The follower.
        follower: NodeId,
        /// The last offset that it had.
        after: Version,
    },
    /// A snapshot transfer begins.
    TransferBegun {
        /// The receiver.
        to: NodeId,
        /// The snapshot's offset; 0 among registers.
        offset: Version,
        /// Why a whole snapshot is needed.
        why: &'static str,
    },
    /// A complete snapshot was installed.
    Installed {
        /// Its offset.
        offset: Version,
        /// How many keys it held.
        keys: u64,
    },
    /// Records that a deposed leader had sent, and that were never acknowledged to a client, were cut off.
    Truncated {
        /// The last offset kept.
        after: Version,
        /// How many were cut.
        records: u64,
    },
    /// Writes that this replica acknowledged as leader were given up by a later leader (`acks = none`).
    LostWrites {
        /// The epoch in which it led.
        epoch: u64,
        /// How many.
        records: u64,
    },
    /// The leader gained or lost its lease from the control group.
    Leased {
        /// Whether it has one now.
        leased: bool,
    },
    /// A follower is streaming, or has become silent.
    Follower {
        /// The follower.
        follower: NodeId,
        /// Whether it is streaming.
        live: bool,
    },
    /// A peer knows a higher epoch than this replica's, so it needs a new one before it may lead.
    EpochPassed {
        /// The higher epoch.
        epoch: u64,
    },
    /// A peer sent something impossible, or a snapshot that cannot be read.
    Rejected {
        /// The peer.
        peer: NodeId,
        /// What was wrong.
        why: &'static str,
    },
    /// A snapshot transfer was abandoned.
    TransferAbandoned {
        /// The receiver.
        to: NodeId,
        /// Why.
        why: &'static str,
    },
    /// Registers: the replica has started without its memory, and answers nothing until it has recovered it.
    Refilling {
        /// Its new incarnation.
        incarnation: u16,
    },
    /// Registers: the replica again holds everything that it ever acknowledged.
    Refilled {
        /// Its incarnation.
        incarnation: u16,
        /// How many keys it holds.
        keys: u64,
    },
    /// Registers: the replica found everything that it ever acknowledged in its records, and continues from there.
    Resumed {
        /// Its new incarnation.
        incarnation: u16,
        /// How many keys it holds.
        keys: u64,
    },
    /// Registers: no member held anything, so the group begins.
    Begun {
        /// The replica's incarnation.
        incarnation: u16,
    },
    /// Registers: a majority has lost its memory. What it acknowledged cannot be known, so the group stops serving.
    MemoryLost {
        /// The members that lost their memory.
        members: Vec<NodeId>,
    },
    /// Registers: an operator has given up what this replica has forgotten.
    GivenUp {
        /// Its incarnation.
        incarnation: u16,
    },
    /// Registers: all members forgot tombstones that are no longer needed.
    TombstonesCollected {
        /// How many.
        tombstones: u64,
    },
}

/// A leader's request to the control group. The leader repeats it periodically until its configuration grants it, or has
/// another epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Make these replicas, including the leader, the in-sync set of its epoch.
    InSync {
        /// The epoch.
        epoch: u64,
        /// The replicas, in ascending order.
        in_sync: Vec<NodeId>,
    },
    /// The leader answers nothing more in its epoch: begin the next one, with another leader if possible.
    Resign {
        /// The epoch.
        epoch: u64,
        /// The member that holds everything.
        to: NodeId,
    },
}

/// A notice to coordinators of requests that wait for locks. A lost notice does no lasting harm: the coordinator sends
/// its request again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An applied record concerns a waiting request.
    LockNotified {
        /// The request; its node coordinates it.
        waiter: WaiterId,
        /// The lock; empty if it waits for elements.
        name: Box<[u8]>,
        /// What the record means for the request.
        notification: LockNotification,
        /// The record's place in the group's history: the lock's new holder must not read anything older.
        offset: Version,
    },
    /// A snapshot of the table was installed. Notices of the records that it replaces were never sent to requests of this
    /// node.
    Skipped,
}

/// Many waiting reads may become answerable at once, and a request of a few bytes may read megabytes. When a step's
/// replies grow too large ([`ReplyBuffer::is_over_full`]), the remaining reads wait for the next step, or are refused if
/// their place in the order is in this one.
pub(crate) const TOO_MUCH_AT_ONCE: &str =
    "TRYAGAIN OVERLOADED too many bytes are to be read behind one write; nothing was done, ask again";

/// The error with which a removed replica refuses requests that have not happened.
pub(crate) const RETIRED: &str = "TRYAGAIN this node's replica was taken away; nothing was done, ask again";

/// The output of a replica, in order, in buffers that are reused.
#[derive(Debug, Default)]
pub struct Effects {
    /// Ends of requests.
    pub outcomes: Vec<Outcome>,
    /// The replies of the outcomes.
    pub replies: ReplyBuffer,
    /// Messages to peers.
    pub messages: Vec<Outgoing>,
    /// Records for the node's log, numbered in order through the incarnation. After a restart the replica is first given all
    /// of them.
    pub records: Vec<Encoded>,
    /// Commands to be sent to other nodes.
    pub handed_on: Vec<HandedOn>,
    /// The bytes of messages, records and commands.
    pub bytes: Vec<u8>,
    /// Requests to the control group.
    pub control_requests: Vec<ControlRequest>,
    /// Notices to coordinators of waiting requests.
    pub notices: Vec<Notice>,
    /// Changes worth reporting.
    pub trace: Vec<Trace>,
    /// Bytes of history and snapshots that the node's replicas have sent in this turn to peers that lack them. From a
    /// limit on, replicas leave the rest for the next turn, so that a peer that returns makes no turn long. The replicas'
    /// driver carries the count from one replica to the next; where it does not, each step is a turn of its own.
    pub history_bytes: usize,
}

impl Effects {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.replies.is_empty() && self.are_only_outcomes()
    }

    /// Whether there are none but outcomes with their replies: usually a request is answered at once.
    #[inline]
    fn are_only_outcomes(&self) -> bool {
        let others = self.messages.len()
            | self.records.len()
            | self.bytes.len()
            | self.handed_on.len()
            | self.control_requests.len()
            | self.notices.len()
            | self.trace.len();
        others == 0
    }

    /// Clears everything but keeps the buffers' capacity.
    #[inline]
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.replies.clear();
        self.history_bytes = 0;
        if !self.are_only_outcomes() {
            self.clear_others();
        }
    }

    fn clear_others(&mut self) {
        const RETAINED_BYTES_MAX: usize = 4 << 20;
        self.messages.clear();
        self.records.clear();
        self.bytes.clear();
        if self.bytes.capacity() > RETAINED_BYTES_MAX {
            self.bytes.shrink_to(RETAINED_BYTES_MAX);
        }
        self.handed_on.clear();
        self.control_requests.clear();
        self.notices.clear();
        self.trace.clear();
    }

    /// Clears everything except outcomes and handed-on commands.
    pub fn keep_ends(&mut self) {
        self.messages.clear();
        self.records.clear();
        self.control_requests.clear();
        self.notices.clear();
    }

    /// Ends a request whose reply was just written at `start` of the replies. It was refused if a key is locked that it concerns
    /// ([`BLOCKED`]).
    #[inline]
    pub fn done(&mut self, ticket: Ticket, start: usize, version: Version, offset: Version) {
        let reply = start..self.replies.len();
        let result = if version == BLOCKED { Result::Refused } else { Result::Done { version, offset } };
        self.outcomes.push(Outcome { ticket, result, reply });
    }

    /// Ends a request with an error: nothing happened.
    pub fn refuse(&mut self, ticket: Ticket, error: &str) {
        self.end_with_error(ticket, Result::Refused, error);
    }

    /// Ends a request with an error: it may have taken effect.
    pub fn unknown(&mut self, ticket: Ticket, error: &str) {
        self.end_with_error(ticket, Result::Unknown, error);
    }

    fn end_with_error(&mut self, ticket: Ticket, result: Result, error: &str) {
        let start = self.replies.len();
        self.replies.push(Reply::Error(error.as_bytes()));
        self.outcomes.push(Outcome { ticket, result, reply: start..self.replies.len() });
    }

    /// Ends a transaction whose watched keys have changed, or may have: nothing happened.
    pub fn abort(&mut self, ticket: Ticket) {
        let start = self.replies.len();
        self.replies.push(Reply::NullArray);
        self.done(ticket, start, 0, 0);
    }

    /// Ends a request here: the client must send it to another node.
    pub fn redirect(&mut self, ticket: Ticket, to: NodeId) {
        let end = self.replies.len();
        self.outcomes.push(Outcome { ticket, result: Result::Redirect { to }, reply: end..end });
    }

    /// Hands an encoded command on to another node.
    pub fn hand_on(&mut self, ticket: Ticket, to: NodeId, deadline_us: u64, command: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(command);
        self.handed_on.push(HandedOn { ticket, to, deadline_us, command: start..self.bytes.len() });
    }

    /// Encodes a message once and sends it to every receiver.
    pub fn send(&mut self, to: impl IntoIterator<Item = NodeId>, encode: impl FnOnce(&mut Vec<u8>)) {
        self.send_after(0, to, encode);
    }

    /// Encodes a message once and sends it to every receiver, but not before a record is durable.
    pub fn send_after(
        &mut self,
        after_record: u64,
        to: impl IntoIterator<Item = NodeId>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let bytes = self.encode(|out| {
            encode(out);
            None
        });
        let recipient = Recipient::Replica;
        let message = |to| Outgoing { to, bytes: bytes.clone(), after_record, recipient };
        self.messages.extend(to.into_iter().map(message));
    }

    /// Encodes a record for the node's log.
    pub fn record(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let record = self.encode(|out| {
            encode(out);
            None
        });
        self.records.push(record);
    }

    /// Takes the bytes that `encode` appends, and those that it returns to follow them.
    pub fn encode(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Option<Arc<Vec<u8>>>) -> Encoded {
        let start = self.bytes.len();
        let behind = encode(&mut self.bytes);
        Encoded { bytes: start..self.bytes.len(), behind }
    }
}

/// The progress of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// One more record was written, and there are more.
    More,
    /// That was the last record.
    Whole,
    /// The state was replaced by another replica's, so the records written of this checkpoint are useless.
    Abandoned,
}
