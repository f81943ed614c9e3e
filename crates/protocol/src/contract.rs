//! The replica contract: one door in, one way out.
//!
//! [`Replica::step`] takes one [`Input`] and appends what follows from it to [`Effects`]. It never blocks,
//! fails, sleeps, reads a clock, opens or spawns anything. The same inputs give the same effects, byte for
//! byte. What a peer, a client or a clock does is an operating error and becomes an outcome or a trace
//! event; a broken invariant is a bug and panics.

use crate::coded::Fragments;
use crate::registers::{Loss, Replacement};
use crate::status::Status;
use kv::codec::Malformed;
use kv::locks::Word;
use kv::table::Spilled;
use kv::{Command, RecordName, Reference, Reply, ReplyBuffer, Table, UnixMs, Version, WaiterId, Watch};
use std::ops::Range;
use std::sync::Arc;

/// A node's number, from 1.
pub type NodeId = u16;

/// Stands for the leader where none is known: whoever was to be asked is not there yet.
pub const NOBODY: NodeId = 0;

/// The time, read once per turn by whoever drives the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on a monotonic clock. Timeouts and leases are measured on this one.
    pub monotonic_us: u64,
    /// Milliseconds since the Unix epoch. Expiry is measured on this one. It may be set back or forth.
    pub unix_ms: UnixMs,
}

/// The times of records run at most this far ahead of what a majority of the cluster's wall clocks shows. Round trips of up to
/// a second between nodes, which stay usable, make for half of it. It is far longer than clocks under NTP are apart, and
/// shorter than any lifetime that a user could tell from a longer one by hand.
pub const CLOCK_BOUND_MS: u64 = 1000;

/// Time does not go back by as little as this: it stands still.
const STEP_BACK_MS: u64 = CLOCK_BOUND_MS / 4;

/// The time to use behind `last`. Where clocks are a little apart time stands still rather than going back. But nothing rests on
/// its never going back, and `last` may have come of a clock that was wrong: what is far ahead is left behind.
#[inline]
pub fn not_before(time: UnixMs, last: UnixMs) -> UnixMs {
    if last.saturating_sub(time) <= STEP_BACK_MS { time.max(last) } else { time }
}

impl Now {
    /// The wall clock's time behind a record of another time: see [`not_before`].
    #[inline]
    pub fn unix_ms_behind(&self, last: UnixMs) -> UnixMs {
        not_before(self.unix_ms, last)
    }

    /// Whole milliseconds since an earlier moment of the monotonic clock.
    pub fn ms_since(&self, earlier_us: u64) -> u64 {
        self.monotonic_us.saturating_sub(earlier_us) / 1000
    }
}

/// Names a request: who asked, and which of its requests. Whoever steps the replica chooses both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Who asked.
    pub client: u64,
    /// Which of its requests, in the order they were asked.
    pub sequence: u64,
}

/// What a client asks of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// Run a command on the group's table.
    Command(Command<'a>),
    /// Answer, as an integer, how many replicas besides the leader hold everything up to `offset`, once
    /// they are at least `count` or the request's deadline has passed (`WAIT`).
    Wait {
        /// The write to wait for. [`Version::MAX`] stands for the newest one when the request arrives.
        offset: Version,
        /// How many replicas to wait for.
        count: u32,
    },
}

/// What goes into a replica.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, Message> {
    /// A client's request.
    Request {
        /// Under which its outcome is told.
        ticket: Ticket,
        /// What is asked.
        request: Request<'a>,
        /// True when earlier requests of the same client have no outcome yet: this one takes effect after them.
        follows: bool,
        /// The newest write that this client has seen acknowledged here: a stale read must not be older.
        seen: Version,
        /// When, on the monotonic clock, the client must have its outcome.
        deadline_us: u64,
        /// Only the leadership that this replica has now may order it: if that ends before, whoever asks is to ask again.
        fenced: bool,
    },
    /// A message from a peer, parsed and checked.
    Message {
        /// Who sent it.
        from: NodeId,
        /// The message.
        message: Message,
    },
    /// Time has passed.
    Tick,
    /// The link to a peer came up or went down. A hint, never a truth.
    Link {
        /// The peer.
        peer: NodeId,
        /// Up or down.
        up: bool,
    },
    /// The replica's records up to this number are as durable as the keyspace promises. The first record of a
    /// life is number 1.
    Durable {
        /// The number.
        record: u64,
    },
    /// The group has a new epoch, leader or membership.
    Configure(&'a Configuration),
    /// The control group will appoint no other leader of any group that this node leads before this moment of the
    /// monotonic clock. Only grows.
    Lease {
        /// The moment. A leader serves nobody from then on.
        until_us: u64,
    },
    /// The turn ends: everything gathered leaves as one batch.
    Flush,
    /// This replica is taken away: whatever was asked of it ends now, as unknown where it may have taken effect or still may,
    /// else refused or handed on. The last input. Only outcomes and what is handed on count of what it leaves.
    Retire,
}

impl<'a, M> Input<'a, M> {
    /// The same input with its message, if it is one, made into another.
    ///
    /// # Errors
    /// That of `make`.
    #[inline]
    pub fn with_message<N, E>(
        self,
        make: impl FnOnce(M) -> std::result::Result<N, E>,
    ) -> std::result::Result<Input<'a, N>, E> {
        Ok(match self {
            Input::Request { ticket, request, follows, seen, deadline_us, fenced } => {
                Input::Request { ticket, request, follows, seen, deadline_us, fenced }
            }
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

/// Who makes up a group, as the cluster map says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Which leadership this is. Never used twice for different leaderships, and only grows.
    pub epoch: u64,
    /// The leader in this epoch.
    pub leader: NodeId,
    /// All replicas of the group, the leader among them, in ascending order.
    pub members: Vec<NodeId>,
    /// The replicas that hold every acknowledged write (`acks = all` waits for these), the leader among them.
    pub in_sync: Vec<NodeId>,
    /// Registers: an operator has given up what this replica has forgotten of its earlier lives, if it has not got it back.
    pub is_given_up: bool,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// It took effect, with the reply told.
    Done {
        /// The version of the key that was read or written, 0 where there is none.
        version: Version,
        /// For a write: its place in the group's history. 0 for a read.
        offset: Version,
    },
    /// Nothing happened; the reply is an error that says why.
    Refused,
    /// Nothing happened here; ask that node.
    Redirect {
        /// The leader as far as this replica knows, or [`NOBODY`].
        to: NodeId,
    },
    /// It may have taken effect or may still do so; the reply is an error that says so.
    Unknown,
}

/// A request's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which request.
    pub ticket: Ticket,
    /// What came of it.
    pub result: Result,
    /// Its reply's place in [`Effects::replies`]; empty for a redirect.
    pub reply: Range<usize>,
}

/// A command that a replica has kept for a while and hands on: nothing happened, and another node is the one to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOn {
    /// Under which it was asked. It has no outcome yet.
    pub ticket: Ticket,
    /// The leader as far as this replica knows, or [`NOBODY`].
    pub to: NodeId,
    /// When the client must have its outcome.
    pub deadline_us: u64,
    /// The encoded command's place in [`Effects::bytes`].
    pub command: Range<usize>,
}

/// A message or a record: the bytes at a place in [`Effects::bytes`], and behind them those that the replica keeps anyway.
/// So what is long is not copied for each who gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The place.
    pub bytes: Range<usize>,
    /// What stands behind, if anything.
    pub behind: Option<Arc<Vec<u8>>>,
}

impl Encoded {
    /// Its two parts, one behind the other, given [`Effects::bytes`].
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
    /// It must not leave before this record is durable. 0: it leaves at once.
    pub after_record: u64,
    /// Whom it is for there.
    pub recipient: Recipient,
}

/// Whom a message is for at its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipient {
    /// The group's replica.
    #[default]
    Replica,
    /// Whoever coordinates an erasure-coded value: see [`crate::coded`]. It may be this node.
    Coordinator,
}

/// A change worth telling: golden scripts, the log and the simulator share these.
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
    /// A follower got or sends what it lacks out of the backlog.
    PartialResync {
        /// The follower.
        follower: NodeId,
        /// The last offset that it had.
        after: Version,
    },
    /// A follower gets a whole snapshot.
    FullResync {
        /// The follower.
        follower: NodeId,
        /// The snapshot's offset.
        offset: Version,
        /// Why a partial resync would not do.
        why: &'static str,
    },
    /// A snapshot was installed whole.
    Installed {
        /// Its offset.
        offset: Version,
        /// How many keys it held.
        keys: u64,
    },
    /// Records that a deposed leader had spread, and that nobody was promised, were cut off.
    Truncated {
        /// The last offset kept.
        after: Version,
        /// How many were cut.
        records: u64,
    },
    /// Writes that this replica acknowledged when it led were given up by a later leader (`acks = none`).
    LostWrites {
        /// The epoch in which it led.
        epoch: u64,
        /// How many.
        records: u64,
    },
    /// The leader has got a lease of the control group, or has none any more.
    Leased {
        /// Whether it has one.
        leased: bool,
    },
    /// A follower is heard and streams, or fell silent.
    Follower {
        /// The follower.
        follower: NodeId,
        /// Live or silent.
        live: bool,
    },
    /// A peer knows of a higher epoch than this replica's: it needs a new one before it may lead.
    EpochPassed {
        /// The higher epoch.
        epoch: u64,
    },
    /// A peer sent what its own state makes impossible, or a snapshot that cannot be read.
    Rejected {
        /// The peer.
        peer: NodeId,
        /// What was wrong.
        why: &'static str,
    },
    /// A snapshot transfer was given up.
    ResyncAbandoned {
        /// The follower.
        follower: NodeId,
        /// Why.
        why: &'static str,
    },
    /// Registers: the replica has started without its memory, and answers nobody before it has copied it.
    Refilling {
        /// Its new life.
        incarnation: u16,
    },
    /// Registers: it holds again all that it ever acknowledged.
    Refilled {
        /// Its life.
        incarnation: u16,
        /// How many keys it holds.
        keys: u64,
    },
    /// Registers: the replica found in its records all that it ever acknowledged, and goes on with it.
    Resumed {
        /// Its new life.
        incarnation: u16,
        /// How many keys it holds.
        keys: u64,
    },
    /// Registers: nobody held anything, so the group begins.
    Begun {
        /// The replica's life.
        incarnation: u16,
    },
    /// Registers: a majority has lost its memory. Nobody can know what it acknowledged, so the group stands still.
    MemoryLost {
        /// The members that have lost theirs.
        members: Vec<NodeId>,
    },
    /// Registers: an operator has given up what this replica has forgotten.
    GivenUp {
        /// Its life.
        incarnation: u16,
    },
    /// Registers: a member without its memory gets a copy.
    RefillServed {
        /// The member.
        to: NodeId,
    },
    /// Registers: tombstones that can be of no use any more were forgotten by all.
    TombstonesCollected {
        /// How many.
        tombstones: u64,
    },
}

/// What a leader asks of the control group. It asks again now and then until its configuration says so, or has another
/// epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// That these replicas, the leader among them, be the in-sync set of its epoch.
    InSync {
        /// The epoch.
        epoch: u64,
        /// The replicas, in ascending order.
        in_sync: Vec<NodeId>,
    },
}

/// What whoever coordinates requests that wait for locks is to know. None of it is lost for good if it does not get there:
/// the coordinator asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A record that is applied says something to a request that waits.
    Told {
        /// The request: its node coordinates it.
        waiter: WaiterId,
        /// The lock.
        name: Box<[u8]>,
        /// What it is told.
        word: Word,
        /// Where in the group's history that is: who holds the lock now must not read what is older.
        offset: Version,
    },
    /// A copy of the table was installed: what the records that it stands for have said to this node was not told.
    Skipped,
}

/// Reads that waited may be answered many at a time, by a few bytes each what was asked for megabytes. When the replies of a
/// step are too much ([`ReplyBuffer::is_over_full`]), the rest waits for the next one, or is refused if its place is here.
pub(crate) const TOO_MUCH_AT_ONCE: &str =
    "TRYAGAIN OVERLOADED too many bytes are to be read behind one write; nothing was done, ask again";

/// Why a replica that was taken away refuses what it had not done.
pub(crate) const RETIRED: &str = "TRYAGAIN this node's replica was taken away; nothing was done, ask again";

/// What comes out of a replica, in order, in buffers that are reused.
#[derive(Debug, Default)]
pub struct Effects {
    /// Ends of requests.
    pub outcomes: Vec<Outcome>,
    /// Their replies.
    pub replies: ReplyBuffer,
    /// Messages to peers.
    pub messages: Vec<Outgoing>,
    /// Records for the node's log: numbered in order through the replica's life. A replica that starts again is given all
    /// of them first.
    pub records: Vec<Encoded>,
    /// Commands that others are to be asked.
    pub handed_on: Vec<HandedOn>,
    /// The bytes of messages, records and commands.
    pub bytes: Vec<u8>,
    /// What is asked of the control group.
    pub wishes: Vec<Wish>,
    /// What coordinators of waiting requests are to know.
    pub notices: Vec<Notice>,
    /// Changes worth telling.
    pub trace: Vec<Trace>,
}

impl Effects {
    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.replies.clear();
        self.messages.clear();
        self.records.clear();
        self.bytes.clear();
        const RETAINED_BYTES_MAX: usize = 4 << 20;
        if self.bytes.capacity() > RETAINED_BYTES_MAX {
            self.bytes.shrink_to(RETAINED_BYTES_MAX);
        }
        self.handed_on.clear();
        self.wishes.clear();
        self.notices.clear();
        self.trace.clear();
    }

    /// Forgets all but the ends of requests, and what is handed on.
    pub fn keep_ends(&mut self) {
        self.messages.clear();
        self.records.clear();
        self.wishes.clear();
        self.notices.clear();
    }

    /// Ends a request whose reply has just been written behind position `start` of the replies.
    #[inline]
    pub fn done(&mut self, ticket: Ticket, start: usize, version: Version, offset: Version) {
        let reply = start..self.replies.len();
        self.outcomes.push(Outcome { ticket, result: Result::Done { version, offset }, reply });
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

    /// Ends a transaction whose watched keys are not as they were, or not known to be: nothing happened.
    pub fn abort(&mut self, ticket: Ticket) {
        let start = self.replies.len();
        self.replies.push(Reply::NullArray);
        self.done(ticket, start, 0, 0);
    }

    /// Ends a request here: another node is the one to ask.
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

    /// Takes what `encode` appends, and the bytes that it says stand behind that.
    pub fn encode(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Option<Arc<Vec<u8>>>) -> Encoded {
        let start = self.bytes.len();
        let behind = encode(&mut self.bytes);
        Encoded { bytes: start..self.bytes.len(), behind }
    }
}

/// How a checkpoint goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// One more record of it is written; more are to come.
    More,
    /// That was the last record.
    Whole,
    /// The state was replaced by another replica's: what was written of the checkpoint is of no use.
    Abandoned,
}

/// One group's state machine on one node: all that a node may ask of a replica, whatever its protocol.
///
/// Beside [`Replica::step`] there are questions about its state, and things that its node tells it outside of steps. What
/// only some protocols have is a question with an answer for the others ([`Replica::fragments`] and
/// [`Replica::spilled_values`] are whole capabilities).
///
/// A replica whose keyspace outlives crashes tells records ([`Effects::records`]). A node keeps, for each replica, its
/// newest whole checkpoint and the records made after it began. When it starts, it gives the replica all of these, in
/// order ([`Replica::replay`]), then its configuration. To make a new checkpoint it calls [`Replica::begin_checkpoint`]
/// behind a flush and [`Replica::checkpoint_record`] until there is nothing more to write, beside the work; when all
/// that is durable, the records that were made before, and the checkpoint before, are of no use any more.
pub trait Replica {
    /// What this protocol's replicas say to each other.
    type Message<'a>
    where
        Self: Sized;

    /// Parses and checks a peer's message. O(its bytes).
    ///
    /// # Errors
    /// [`Malformed`] when it is none of this protocol.
    fn decode(message: &[u8]) -> std::result::Result<Self::Message<'_>, Malformed>
    where
        Self: Sized;

    /// Takes one input and appends what follows from it to `effects`.
    fn step(&mut self, now: Now, input: Input<'_, Self::Message<'_>>, effects: &mut Effects)
    where
        Self: Sized;

    // Time.

    /// When, on the monotonic clock, the replica wants its next [`Input::Tick`].
    fn wakeup_us(&self, now: Now) -> u64;

    /// The node watches its peers by itself, and says whether this one is reached: nothing is if it was not said. To be told
    /// each time that it changes, and each time that a link came up.
    fn set_reached(&mut self, now: Now, peer: NodeId, is_reached: bool);

    /// True while nothing happens in its group: it wants neither tick nor flush before it is given something.
    fn is_resting(&self) -> bool;

    /// Looks whether what the protocol's proof rests on holds here, as far as one replica can see it. To be asked between
    /// two steps, by tests and simulations: it takes time in what the replica holds. What costs next to nothing a replica
    /// looks at by itself in each step.
    ///
    /// # Panics
    /// When an invariant is broken.
    fn check_invariants(&self, now: Now);

    /// As [`Input::Lease`], for a replica at rest, in which nobody waits for that.
    fn extend_lease(&mut self, _until_us: u64) {}

    // State.

    /// The keys and values that are applied here. What a group's promise is of those, its protocol says.
    fn table(&self) -> &Table;

    /// Bytes of all that it keeps: an estimate.
    fn memory_bytes(&self) -> usize {
        self.table().memory_bytes()
    }

    /// How it stands, in words that all protocols share. O(members), with registers O(members and locks).
    fn summary(&self, now: Now) -> Status;

    // Leadership. Nobody leads registers.

    /// True when this replica leads its group, as far as it knows.
    fn is_leader(&self) -> bool {
        false
    }

    /// Who leads, where the members elect one: as far as that is settled, and this replica knows.
    fn led_by(&self, _now: Now) -> Option<NodeId> {
        None
    }

    /// Which leadership this replica has, as a number that no other leadership of this replica has: if it has one that
    /// requests can be meant for.
    fn leads_in(&self) -> Option<u64> {
        None
    }

    /// Whom this replica follows, in which leadership, and how far its log has come in that: what that leader is asked now it
    /// orders there or behind, if at all.
    fn follows_in(&self) -> Option<(NodeId, u64, u64)> {
        None
    }

    /// Whether nothing that a leader was asked takes effect any more: in the leadership in which this replica followed it,
    /// when its log had come so far. `None`: that is not known yet.
    fn is_void(&self, _leader: NodeId, _position: u64) -> Option<bool> {
        Some(false)
    }

    /// At a leader of members that vote, in the membership of that number: who takes part in it and holds all that is
    /// committed, in ascending order.
    fn voters_of(&self, _now: Now, _membership: u64) -> Option<Vec<NodeId>> {
        None
    }

    /// Why it does not lead yet, though it was appointed: it gets together what was written before.
    fn recovers(&self, _now: Now) -> Option<String> {
        None
    }

    /// Whether one of its messages must not wait behind longer ones, and may leave before them.
    fn is_urgent(&self, _message: &[u8]) -> bool {
        false
    }

    // What its node tells it.

    /// This replica is made together with its group, and none of the group was ever started before: empty as it is, it
    /// holds all that it ever acknowledged. To be told before the first configuration.
    fn begin_with_group(&mut self) {}

    /// Its node was replaced: what it recorded before that does not count. To be told before it is told who its group is.
    /// Only registers keep their place in the group then; others leave it and enter it again.
    fn replaced(&mut self, _replacement: &Replacement) {}

    /// Whether the log has room for what other members send. Registers pass over what it has no room for; what a leader
    /// orders cannot be passed over.
    fn set_room(&mut self, _has_room: bool) {}

    /// What its group has lost, if it stands still for it: registers only.
    fn loss(&self, _now: Now) -> Option<Loss> {
        None
    }

    /// See [`Table::set_watch`]. To be told before anything else. Registers hold values and carry nothing out.
    fn set_watch(&mut self, _group: u16, _watch: &'static dyn Watch) {}

    /// See [`Table::skip`]. To be told on all replicas before any of them comes to one of these.
    fn skip(&mut self, _records: &[RecordName]) {}

    /// Applies what comes before this record, and nothing else until it is told otherwise.
    fn stand_before(&mut self, _record: Option<Version>) {}

    // Values that are not in the table.

    /// The fragments that it keeps, where it can keep any.
    fn fragments(&self) -> Option<&dyn Fragments> {
        None
    }

    /// As [`Replica::fragments`], to change them.
    fn fragments_mut(&mut self) -> Option<&mut dyn Fragments> {
        None
    }

    /// What it has to do with values on the disk, where it can have any.
    fn spilled_values(&self) -> Option<&dyn SpilledValues> {
        None
    }

    /// As [`Replica::spilled_values`], to change it.
    fn spilled_values_mut(&mut self) -> Option<&mut dyn SpilledValues> {
        None
    }

    // Records.

    /// Takes one record that an earlier life made, or that a checkpoint holds. Only before the replica is configured.
    ///
    /// # Errors
    /// [`Malformed`] when it is no record: the node must not start with it.
    fn replay(&mut self, _now: Now, _record: &[u8]) -> std::result::Result<(), Malformed> {
        Err(Malformed("a replica that keeps no records is given one"))
    }

    /// Begins a checkpoint, right behind a flush: it will stand for all records made until now. A checkpoint under way
    /// is abandoned. False when there can be none at this moment.
    fn begin_checkpoint(&mut self) -> bool {
        false
    }

    /// Appends the next record of the checkpoint, a chunk of about so many bytes.
    fn checkpoint_record(&mut self, _bytes_max: usize, _record: &mut Vec<u8>) -> Progress {
        Progress::Abandoned
    }

    /// Gives up the checkpoint under way, if there is one.
    fn abandon_checkpoint(&mut self) {}
}

/// What a replica has to do with values that its node keeps on the disk (`storage = "disk"`).
pub trait SpilledValues {
    /// What has happened to spilled values, here and in a copy that is being received, since this was asked last.
    fn take_spilled(&mut self) -> Option<Spilled>;

    /// Whether this replica, or a copy that it receives, refers to a spilled value.
    fn refers_to(&self, reference: &Reference) -> bool;

    /// Every spilled value to which this replica, or a copy that it receives, refers. O(values).
    fn spilled(&self) -> Vec<Reference>;

    /// Whether it sends copies: they may refer to values that the table has released.
    fn sends_copies(&self) -> bool;

    /// Values that copies wait for, and that were not asked for: [`SpilledValues::take_value`] is to be told what comes of
    /// it.
    fn wanted_values(&mut self) -> Vec<Reference>;

    /// A value that was asked for is here, or cannot be had.
    fn take_value(&mut self, now: Now, reference: Reference, value: Option<&[u8]>, effects: &mut Effects);
}
