//! Rest: a group in which nothing happens sends nothing, and wants no tick.
//!
//! Heartbeats have one purpose: that whoever is gone is missed. When nothing else happens in a group, that its members' *nodes*
//! are there is enough, and nodes tell each other that once for all of their groups. So a replica that has seen some rounds in
//! which nothing but heartbeats came and went lets them be, while its node reaches those of the others. What a protocol
//! calls calm, and what wakes it, is said with the protocol; what they share is here.
//!
//! Nothing of any protocol's safety rests on this: a replica that rests too long costs time, as one does whose heartbeats are
//! late.

use crate::contract::NodeId;
use kv::{Table, UnixMs};
use std::collections::BTreeSet;

/// So many rounds must have been calm before the first is left out.
pub(crate) const CALM_ROUNDS: u32 = 5;

/// Whether a replica rests.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The peers whose nodes this node reaches. None: it does not say, and so the replica never rests.
    reached: Option<BTreeSet<NodeId>>,
    calm_rounds: u32,
    since_us: Option<u64>,
}

impl Rest {
    /// What [`set_reached`](crate::Replica::set_reached) tells. True when that is news.
    pub(crate) fn set_reached(&mut self, peer: NodeId, is_reached: bool) -> bool {
        let reached = self.reached.get_or_insert_default();
        if is_reached { reached.insert(peer) } else { reached.remove(&peer) }
    }

    /// Whether the node says whom it reaches.
    pub(crate) fn is_told(&self) -> bool {
        self.reached.is_some()
    }

    /// Whether a peer's node is reached.
    pub(crate) fn reaches(&self, peer: NodeId) -> bool {
        self.reached.as_ref().is_some_and(|reached| reached.contains(&peer))
    }

    /// Since when the replica rests.
    #[inline]
    pub(crate) fn since_us(&self) -> Option<u64> {
        self.since_us
    }

    /// True while it rests.
    #[inline]
    pub(crate) fn is_resting(&self) -> bool {
        self.since_us.is_some()
    }

    /// A round is over, in which nothing happened, or something did. True when there were enough of the former.
    pub(crate) fn note_round(&mut self, was_calm: bool) -> bool {
        self.calm_rounds = if was_calm { self.calm_rounds.saturating_add(1) } else { 0 };
        self.is_due()
    }

    /// There were enough calm rounds.
    pub(crate) fn is_due(&self) -> bool {
        self.calm_rounds >= CALM_ROUNDS
    }

    /// It rests from now on.
    pub(crate) fn begin(&mut self, now_us: u64) {
        assert!(self.is_due(), "it rests before it was calm for long enough");
        self.since_us = Some(now_us);
    }

    /// Something happens. True when that ends its rest.
    #[inline]
    pub(crate) fn end(&mut self) -> bool {
        self.calm_rounds = 0;
        self.since_us.take().is_some()
    }
}

/// Whether nothing in a table comes to its end by itself, and nothing is left to do in it.
pub(crate) fn is_still(table: &Table) -> bool {
    let locks = table.locks();
    table.purge_until(UnixMs::MAX, 1).is_none()
        && (locks.len(), locks.waiters(), locks.sessions()) == (0, 0, 0)
        && table.is_tidy()
}
