//! Quiescence: a group in which nothing happens sends nothing, and needs no tick.
//!
//! Heartbeats serve one purpose: to notice that a member is dead. When nothing else happens in a group, it is enough that
//! its members' *nodes* are alive, and nodes report that to each other once for all of their groups. So after some rounds
//! with nothing but heartbeats a replica stops sending them, as long as its node reaches the other members' nodes. Each
//! protocol defines what counts as a calm round and what ends the quiescence; the shared part is here.
//!
//! No protocol's safety depends on this: a replica that stays quiescent too long costs time, like one whose heartbeats are
//! late.

use crate::effects::{NodeId, Now};
use kv::Table;
use std::collections::BTreeSet;

/// The number of calm rounds before the first heartbeat is skipped.
pub(crate) const CALM_ROUNDS: u32 = 5;

/// Whether a replica is quiescent.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The peers whose nodes this node reaches. `None`: the node does not report it, so the replica never becomes quiescent.
    reached: Option<BTreeSet<NodeId>>,
    calm_rounds: u32,
    since_us: Option<u64>,
}

impl Rest {
    /// Takes the report of [`set_reached`](crate::Replica::set_reached). True when that is a change.
    pub(crate) fn set_reached(&mut self, peer: NodeId, is_reached: bool) -> bool {
        let reached = self.reached.get_or_insert_default();
        if is_reached { reached.insert(peer) } else { reached.remove(&peer) }
    }

    /// Whether the node reports which peers it reaches.
    pub(crate) fn is_told(&self) -> bool {
        self.reached.is_some()
    }

    /// Whether a peer's node can be reached.
    pub(crate) fn reaches(&self, peer: NodeId) -> bool {
        self.reached.as_ref().is_some_and(|reached| reached.contains(&peer))
    }

    /// Since when the replica has been quiescent.
    #[inline]
    pub(crate) fn since_us(&self) -> Option<u64> {
        self.since_us
    }

    #[inline]
    pub(crate) fn is_resting(&self) -> bool {
        self.since_us.is_some()
    }

    /// Notes the end of a round, calm or not. True when there were enough calm ones.
    pub(crate) fn note_round(&mut self, was_calm: bool) -> bool {
        self.calm_rounds = if was_calm { self.calm_rounds.saturating_add(1) } else { 0 };
        self.is_due()
    }

    /// Whether there were enough calm rounds.
    pub(crate) fn is_due(&self) -> bool {
        self.calm_rounds >= CALM_ROUNDS
    }

    /// Becomes quiescent.
    pub(crate) fn begin(&mut self, now_us: u64) {
        assert!(self.is_due(), "it rests before it was calm for long enough");
        self.since_us = Some(now_us);
    }

    /// Something happened. True when that ends the quiescence.
    #[inline]
    pub(crate) fn end(&mut self) -> bool {
        self.calm_rounds = 0;
        self.since_us.take().is_some()
    }
}

/// Whether a table has no deadlines, locks, sessions or waiting requests. Memory that is still to be freed does not count,
/// because it concerns this node alone: see [`tidied_us`].
pub(crate) fn is_still(table: &Table) -> bool {
    let locks = table.locks();
    table.has_no_deadlines()
        && (locks.len(), locks.waiters(), locks.sessions()) == (0, 0, 0)
        && table.queues().is_still()
}

/// How many keys or nodes are freed per tick after all were removed at once: about a millisecond of work.
pub(crate) const TIDIED_KEYS: usize = 10_000;

/// How long after a tick that has not freed all memory the next one comes: two million keys are freed in a second, and
/// clients have most of the time.
const TIDY_US: u64 = 4_000;

/// When a table needs a tick that frees memory: never if there is none to free. A quiescent replica needs it too, because
/// the end of a checkpoint leaves memory that the checkpoint had kept.
pub(crate) fn tidied_us(table: &Table, now: Now) -> u64 {
    if table.is_tidy() { u64::MAX } else { now.monotonic_us + TIDY_US }
}
