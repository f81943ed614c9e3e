//! Large values as fragments: what a node does as the coordinator of its clients' commands.
//!
//! The node that a client is connected to cuts its large values, sends the fragments to the members, and has a small
//! command ordered when enough of them are durable (`dispersal`). A command or reply that lacks a value calls
//! [`Coding::look_up`], which finds it in `cache` or fetches its fragments (`fetching`). The keyspace fixes into how
//! many parts a value is cut, or the number is predicted (`choice`, `logged`) from measurements (`estimates`). The
//! node also maintains its own replicas: it rebuilds fragments that they lack (`rebuilding`) and gives up values that
//! will never be stored (`upkeep`). What the replicas keep, and their messages about it, is in [`protocol::coded`].

mod choice;
mod dispersal;
mod estimates;
mod fetching;
mod logged;
mod rebuilding;
mod traces;
mod upkeep;

use crate::collections::cache::Cache;
use crate::collections::slab::{Handle, Slab};
use crate::context::{Call, Context};
use crate::messages::envelope::Envelope;
use choice::Choice;
use dispersal::Dispersal;
use fetching::Fetch;
use info::facts::{ChoiceFacts, CodingCounters, StoringTimes};
use kv::{Reference, SharedBytes, ValueId};
use logged::Logged;
use protocol::coded::Message;
use protocol::{NodeId, Result as Outcome};
use rebuilding::{Rebuilding, Window};
use std::collections::BTreeMap;
use traces::Traces;
use wire::frame;

/// Bytes of whole values that a node keeps for later readers.
const CACHE_BYTES: usize = 64 << 20;

/// How many bytes of pieces a turn makes and sends, plus the rest of the last piece. They are copied several times,
/// which takes a millisecond for each megabyte, and everything else has to wait.
const TURN_BYTES: usize = 256 << 10;

/// While the output to a peer holds this much, more pieces for it wait: other messages to the peer must not wait
/// long.
const PEER_OUTPUT_BYTES: usize = 1 << 20;

/// How many bytes of pieces may be in transit to one member, or not yet on its disk, when one more is sent: other
/// nodes' writes to that disk, and messages to that member, wait behind them. Two pieces keep the link and the disk
/// of a near member busy.
const UNDER_WAY_BYTES: usize = 256 << 10;
/// For a distant link, as many bytes as the link holds are added, up to this: nothing waits behind those.
const IN_TRANSIT_BYTES_MAX: usize = 4 << 20;

/// An operation that takes several turns.
#[derive(Debug)]
enum Operation {
    /// A value is being dispersed into its group.
    Disperse(Dispersal),
    /// A value goes through the log, and its time is measured.
    Log(Logged),
    /// A replica here lacks its fragment.
    Rebuild(Rebuilding),
}

/// A node's operations on large values, and the values that it keeps.
#[derive(Debug)]
pub(crate) struct Coding {
    /// Whether a keyspace wants its large values coded, or did.
    is_on: bool,
    /// A number that no other incarnation of any node has.
    life: u64,
    /// The number of the last value that was named in this incarnation.
    counter: u64,
    operations: Slab<Operation>,
    /// Values that are being dispersed.
    dispersals: BTreeMap<ValueId, Handle>,
    /// The bytes of all values that are being dispersed.
    dispersing_bytes: usize,
    /// The value whose pieces were sent last: the next turn begins with the value after it.
    pumped: Option<ValueId>,
    /// Values that are being fetched.
    fetches: BTreeMap<ValueId, Fetch>,
    cache: Cache<ValueId, SharedBytes>,
    choice: Choice,
    traces: Traces,
    window: Window,
    /// Buffer for pieces that are not contiguous in their values.
    piece: Vec<u8>,
    /// Whether values were already cut in this turn.
    is_pumped: bool,
    /// Nodes that did not keep a fragment in time, and until when they are not relied on.
    silent: BTreeMap<NodeId, u64>,
    /// When the next operation is due.
    wakeup_us: u64,
    upkeep_us: u64,
    counters: CodingCounters,
}

impl Coding {
    /// `life` must be different at each start of each node.
    pub(crate) fn new(life: u64) -> Coding {
        Coding {
            is_on: false,
            life,
            counter: 0,
            operations: Slab::default(),
            dispersals: BTreeMap::new(),
            dispersing_bytes: 0,
            pumped: None,
            fetches: BTreeMap::new(),
            cache: Cache::new(CACHE_BYTES),
            choice: Choice::default(),
            traces: Traces::default(),
            window: Window::default(),
            piece: Vec::new(),
            is_pumped: false,
            silent: BTreeMap::new(),
            wakeup_us: u64::MAX,
            upkeep_us: 0,
            counters: CodingCounters::default(),
        }
    }

    /// Turns coding on: a keyspace wants its large values coded.
    pub(crate) fn begin(&mut self, now_us: u64) {
        self.is_on = true;
        self.wakeup_us = now_us;
    }

    /// Whether a keyspace wants its large values coded, or did.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// When, on the monotonic clock, the next operation is due.
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.wakeup_us
    }

    /// The link to a node is a new one: measurements of the former one do not hold for it.
    pub(crate) fn link_changed(&mut self, node: NodeId) {
        self.choice.estimates.forget(node);
    }

    /// Returns the measurements, and how many values were stored in each way.
    pub(crate) fn choice_summary(&self) -> ChoiceFacts {
        self.choice.summary()
    }

    /// The steps of the values stored last, with their times, the oldest first.
    pub(crate) fn traces(&self) -> Vec<StoringTimes> {
        self.traces.ended()
    }

    pub(crate) fn counters(&self) -> CodingCounters {
        self.counters
    }

    /// The number of cached whole values, and their bytes.
    pub(crate) fn cached(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.bytes())
    }

    fn wake_at(&mut self, at_us: u64) {
        self.wakeup_us = self.wakeup_us.min(at_us);
    }
}

impl Coding {
    /// Returns a value that is in memory. Otherwise fetches it, and has the node take the result
    /// ([`Call::TakeValue`]).
    pub(crate) fn look_up(
        &mut self,
        cx: &mut Context,
        group: u16,
        reference: Reference,
    ) -> Option<SharedBytes> {
        let value = self.cache.get(reference.id);
        match value {
            Some(_) => self.counters.cache_hits += 1,
            None => {
                self.counters.cache_misses += 1;
                self.fetch(cx, group, reference, true);
            }
        }
        value
    }

    // Messages.

    /// Notes that a node has sent this one a piece of a new value.
    pub(crate) fn note_sent(&mut self, cx: &Context, from: NodeId) {
        if from != cx.configuration.node {
            self.window.others_sent(from, cx.now.monotonic_us);
        }
    }

    /// Takes a message for the coordinator of a value, from a node, which may be this one.
    pub(crate) fn take(&mut self, cx: &mut Context, group: u16, from: NodeId, message: Message<'_>) {
        match message {
            Message::Keep(_) | Message::Forget { .. } => unreachable!("it is for a replica"),
            Message::Kept { id, membership, members } => {
                self.fragment_kept(cx, from, id, (membership, members))
            }
            Message::Taken { id, stripe } => self.piece_taken(from, id, stripe),
            Message::Refused { id, why } => self.fragment_refused(cx, from, id, why),
            Message::Fetch { id, stripe, count } => self.send_pieces(cx, group, from, id, (stripe, count)),
            Message::Fetched(piece) => self.piece_fetched(cx, from, &piece),
            Message::Missing { id } => self.fragment_missing(cx, from, id),
            Message::Probe { at_us } => {
                self.send(cx, group, from, &Message::Echo { at_us });
            }
            Message::Echo { at_us } => {
                let now_us = cx.now.monotonic_us;
                self.choice.estimates.answered(from, now_us.saturating_sub(at_us), now_us);
            }
            Message::Lacks { membership, holds_beginning, values } => {
                if let Some(group) = cx.groups.get_mut(group) {
                    group.lacking.insert(from, (membership, holds_beginning && values == 0));
                }
            }
        }
    }

    /// Sends a message about fragments to a node, which may be this one. Returns false if the node cannot be reached.
    pub(crate) fn send(&mut self, cx: &mut Context, group: u16, to: NodeId, message: &Message<'_>) -> bool {
        if to == cx.configuration.node {
            cx.call(match message {
                Message::Keep(piece) => Call::KeepPiece { group, piece: (*piece).into() },
                message => {
                    let mut encoded = Vec::new();
                    message.encode(&mut encoded);
                    Call::Fragments { group, message: encoded }
                }
            });
            return true;
        }
        append_to_peer(cx, to, |out| {
            Envelope::Fragments { group, message: &[] }.encode(out);
            message.encode(out);
        })
    }

    // Answers of groups.

    /// Takes a group's answer to a step of an operation.
    pub(crate) fn operation_answered(
        &mut self,
        cx: &mut Context,
        handle: Handle,
        result: Outcome,
        reply: &[u8],
    ) {
        match self.operations.get(handle) {
            Some(Operation::Disperse(_)) => self.dispersal_answered(cx, handle, result, reply),
            Some(Operation::Log(_)) => self.logged_answered(cx, handle, result, reply),
            // The outcome of upkeep does not matter.
            Some(Operation::Rebuild(_)) | None => {}
        }
    }

    // Time.

    /// Retries overdue operations in another way, or gives them up.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        if self.wakeup_us > cx.now.monotonic_us {
            return;
        }
        self.wakeup_us = u64::MAX;
        self.dispersals_due(cx);
        self.fetches_due(cx);
        self.coding_upkeep(cx);
    }

    /// At the end of the turn, sends what is ready, as far as there is room.
    pub(crate) fn flush(&mut self, cx: &mut Context) {
        if !self.is_on || std::mem::take(&mut self.is_pumped) {
            return;
        }
        self.choice.forget_cut();
        self.traces.forget_cut();
        let mut budget = TURN_BYTES;
        self.pump_dispersals(cx, &mut budget);
        self.pump_rebuilding(cx, &mut budget);
    }
}

/// Sends an encoded message about fragments to the coordinator at a node, which may be this one.
pub(crate) fn send_encoded(cx: &mut Context, group: u16, to: NodeId, message: &[u8]) {
    if to == cx.configuration.node {
        return cx.call(Call::Fragments { group, message: message.to_vec() });
    }
    append_to_peer(cx, to, |out| Envelope::Fragments { group, message }.encode(out));
}

/// Writes a frame to a node, if that can be reached.
fn append_to_peer(cx: &mut Context, to: NodeId, write: impl FnOnce(&mut Vec<u8>)) -> bool {
    let Some(peer) = cx.peers.get_mut(to).filter(|peer| peer.is_up()) else { return false };
    frame::append(peer.output(), write);
    true
}
