//! Large values as fragments: what a node does as the coordinator of its clients' commands.
//!
//! Whatever node a client is connected to cuts its large values, spreads the fragments and has a small command ordered
//! when enough of them are kept (`dispersal`); and puts values in the place of references in what a group answers
//! (`finishing`), for which it fetches fragments (`fetching`) or has the value at hand (`cache`). Into how many parts a value
//! is cut the keyspace says, or what is predicted (`choice`, `logged`) from what was measured (`estimates`). Beside that it keeps this
//! node's own replicas in order: it rebuilds what they lack (`rebuilding`) and has given up what nobody will ask for
//! (`upkeep`). What the
//! replicas keep, and what is said about it, is in [`protocol::coded`].

mod choice;
mod dispersal;
mod estimates;
mod fetching;
mod finishing;
mod logged;
mod metrics;
mod rebuilding;
mod traces;
mod upkeep;

use crate::cache::Cache;
use crate::envelope::Envelope;
use crate::node::Node;
use crate::slab::{Handle, Slab};
use choice::Choice;
pub(crate) use choice::ChoiceTold;
use dispersal::Dispersal;
pub(crate) use estimates::PeerTold;
use fetching::Fetch;
use finishing::Finishing;
use kv::SharedBytes;
use kv::ValueId;
use kv::codec::Malformed;
use logged::Logged;
use protocol::coded::{Message, Refusal};
use protocol::{NodeId, Result as Outcome};
use rebuilding::{Rebuilding, Window};
use std::collections::BTreeMap;
pub(crate) use traces::Trace;
use traces::Traces;
use wire::frame;

/// Bytes of whole values that a node keeps for those who ask next.
const CACHE_BYTES: usize = 64 << 20;

/// A turn makes and sends so many bytes of pieces, and the rest of the last one: they are copied several times, which takes
/// a millisecond for each megabyte, and others wait for it.
const TURN_BYTES: usize = 256 << 10;

/// More pieces for a peer wait until so much of what it is owed has left: what else is said to it must not wait long.
const PEER_OUTPUT_BYTES: usize = 1 << 20;

/// Bytes of pieces that may be on their way to one member, or not yet on its disk, when one more leaves: what others write
/// there, and say to it, waits behind them. Two pieces keep the link and the disk of a near member busy.
const UNDER_WAY_BYTES: usize = 256 << 10;
/// What a distant link holds comes on top, up to this: nobody waits behind it.
const IN_TRANSIT_BYTES_MAX: usize = 4 << 20;

/// What a keyspace wants done with large values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodingSettings {
    /// Into how many parts a value is cut, if enough nodes answer.
    pub(crate) parts: Parts,
    /// The shortest value that is, in bytes.
    pub(crate) threshold: usize,
}

/// Into how many parts a keyspace wants its large values cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Always so many.
    Fixed(u8),
    /// As is predicted to be the fastest, for each value.
    Adaptive,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CodingCounters {
    pub(crate) values_coded: u64,
    /// Of those the ones that are whole copies, because too few nodes answered for more.
    pub(crate) values_copied: u64,
    /// Attempts that were given up for one with fewer parts.
    pub(crate) fallbacks: u64,
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
    /// Pieces that were not what they should have been.
    pub(crate) damaged_pieces: u64,
    /// Fragments of this node that were rebuilt, and their bytes.
    pub(crate) rebuilt: u64,
    pub(crate) rebuilt_bytes: u64,
}

/// Something that takes several turns.
#[derive(Debug)]
enum Operation {
    /// A value is on its way into the group.
    Disperse(Dispersal),
    /// A value goes through the log, which is timed.
    Log(Logged),
    /// A reply lacks values, or a write needs them.
    Finish(Finishing),
    /// A replica here lacks its fragment.
    Rebuild(Rebuilding),
}

/// What a node has under way, and at hand, of large values.
#[derive(Debug)]
pub(crate) struct Coding {
    /// A keyspace wants its large values coded, or did.
    pub(crate) is_on: bool,
    /// Names this life of this node among all.
    life: u64,
    /// The last value that was named in it.
    counter: u64,
    operations: Slab<Operation>,
    /// Values that are being dispersed.
    dispersals: BTreeMap<ValueId, Handle>,
    /// Bytes of these.
    dispersing_bytes: usize,
    /// The one of which pieces were sent last: the next turn begins with the one behind it.
    pumped: Option<ValueId>,
    /// Values that are being fetched.
    fetches: BTreeMap<ValueId, Fetch>,
    cache: Cache<ValueId, SharedBytes>,
    choice: Choice,
    traces: Traces,
    window: Window,
    /// Where pieces are made that do not stand in their values.
    piece: Vec<u8>,
    /// Values were cut in this turn already.
    is_pumped: bool,
    /// Nodes that did not keep a fragment in time, and until when nobody counts on them.
    silent: BTreeMap<NodeId, u64>,
    /// When the next thing is due.
    wakeup_us: u64,
    upkeep_us: u64,
    pub(crate) counters: CodingCounters,
}

impl Coding {
    /// `life` is different at each start of each node.
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

    /// A keyspace wants its large values coded.
    pub(crate) fn begin(&mut self, now_us: u64) {
        self.is_on = true;
        self.wakeup_us = now_us;
    }

    /// When, on the monotonic clock, something is due.
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.wakeup_us
    }

    /// The link to a node is another one: what was measured of the one before says nothing of it.
    pub(crate) fn link_changed(&mut self, node: NodeId) {
        self.choice.estimates.forget(node);
    }

    /// What was measured, and how many values were stored how for that.
    pub(crate) fn choice_told(&self) -> ChoiceTold {
        self.choice.tell()
    }

    /// Where the time of the last values went that were stored, the oldest first.
    pub(crate) fn traces(&self) -> Vec<Trace> {
        self.traces.ended()
    }

    /// Whole values that are at hand, and their bytes.
    pub(crate) fn cached(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.bytes())
    }

    fn wake_at(&mut self, at_us: u64) {
        self.wakeup_us = self.wakeup_us.min(at_us);
    }
}

impl Node {
    // What others say.

    /// A message about fragments came from a node, or from this one.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub(crate) fn fragment_message(
        &mut self,
        group: u16,
        from: NodeId,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        self.take_fragment_message(group, from, Message::decode(bytes)?);
        Ok(())
    }

    fn take_fragment_message(&mut self, group: u16, from: NodeId, message: Message<'_>) {
        match message {
            // What cannot be written would wait in memory.
            Message::Keep(piece) if self.room.is_short() => {
                let refused = Message::Refused { id: piece.reference.id, why: Refusal::NoRoom };
                self.send_fragment_message(group, from, &refused);
            }
            message @ (Message::Keep(_) | Message::Forget { .. }) => {
                if matches!(message, Message::Keep(_)) && from != self.configuration.node {
                    self.coding.window.others_sent(from, self.now.monotonic_us);
                }
                let replica = self.groups.get_mut(group).and_then(|group| group.replica.as_mut());
                if let Some(fragments) = replica.and_then(|replica| replica.fragments_mut()) {
                    fragments.about_fragments(self.now, from, message, &mut self.effects);
                    self.settle(group);
                } else if let Message::Keep(piece) = message {
                    // The coordinator need not wait for it.
                    let refused = Message::Refused { id: piece.reference.id, why: Refusal::NoMember };
                    self.send_fragment_message(group, from, &refused);
                }
            }
            Message::Kept { id, membership, members } => self.fragment_kept(from, id, (membership, members)),
            Message::Taken { id, stripe } => self.piece_taken(from, id, stripe),
            Message::Refused { id, why } => self.fragment_refused(from, id, why),
            Message::Fetch { id, stripe, count } => self.send_pieces(group, from, id, (stripe, count)),
            Message::Fetched(piece) => self.piece_fetched(from, &piece),
            Message::Missing { id } => self.fragment_missing(from, id),
            Message::Probe { at_us } => {
                self.send_fragment_message(group, from, &Message::Echo { at_us });
            }
            Message::Echo { at_us } => {
                let now_us = self.now.monotonic_us;
                self.coding.choice.estimates.answered(from, now_us.saturating_sub(at_us), now_us);
            }
            Message::Lacks { membership, holds_beginning, values } => {
                if let Some(group) = self.groups.get_mut(group) {
                    group.lacking.insert(from, (membership, holds_beginning && values == 0));
                }
            }
        }
    }

    /// Says something about fragments to a node, or to this one. False if it cannot be reached.
    pub(crate) fn send_fragment_message(&mut self, group: u16, to: NodeId, message: &Message<'_>) -> bool {
        if to == self.configuration.node {
            self.take_fragment_message(group, to, *message);
            return true;
        }
        self.append_to_peer(to, |out| {
            Envelope::Fragments { group, message: &[] }.encode(out);
            message.encode(out);
        })
    }

    pub(crate) fn send_fragment_bytes(&mut self, group: u16, to: NodeId, message: &[u8]) -> bool {
        if to == self.configuration.node {
            let read = self.fragment_message(group, to, message);
            debug_assert_eq!(read, Ok(()), "this node writes what can be read");
            return true;
        }
        self.append_to_peer(to, |out| Envelope::Fragments { group, message }.encode(out))
    }

    /// Writes a frame to a node, if that can be reached.
    fn append_to_peer(&mut self, to: NodeId, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let peer = self.peers.get_mut(usize::from(to).wrapping_sub(1));
        let Some(peer) = peer.filter(|peer| peer.up) else { return false };
        frame::append(&mut peer.output, write);
        true
    }

    // What a group answers.

    /// A group has answered a step of an operation.
    pub(crate) fn operation_answered(&mut self, handle: Handle, step: u64, result: Outcome, reply: &[u8]) {
        match self.coding.operations.get(handle) {
            Some(Operation::Disperse(_)) => self.dispersal_answered(handle, result, reply),
            Some(Operation::Log(_)) => self.logged_answered(handle, result, reply),
            Some(Operation::Finish(_)) => self.finishing_answered(handle, step, result, reply),
            // Nobody waits for the outcome of upkeep.
            Some(Operation::Rebuild(_)) | None => {}
        }
    }

    // Time.

    /// Time has passed: what took too long is tried otherwise, or given up.
    pub(crate) fn coding_tick(&mut self) {
        if self.coding.wakeup_us > self.now.monotonic_us {
            return;
        }
        self.coding.wakeup_us = u64::MAX;
        self.dispersals_due();
        self.fetches_due();
        self.finishings_due();
        self.coding_upkeep();
    }

    /// The turn ends: what there is to send is sent, as far as there is room.
    pub(crate) fn coding_pump(&mut self) {
        if !self.coding.is_on || std::mem::take(&mut self.coding.is_pumped) {
            return;
        }
        self.coding.choice.forget_cut();
        self.coding.traces.forget_cut();
        let mut budget = TURN_BYTES;
        self.pump_dispersals(&mut budget);
        self.pump_rebuilding(&mut budget);
    }
}
