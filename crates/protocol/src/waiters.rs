//! Requests that wait at other nodes, for a lock or for elements of a list: which of these nodes are dead, and which
//! nodes are notified.
//!
//! A dead node answers none of its clients. The leader orders that their requests wait no longer, so that no request
//! behind them waits for a lock or element that no client will use ([`kv::LockCommand::DropWaiters`]).

use crate::effects::{Effects, NodeId, Notice, Now};
use kv::locks::{LockEvent, LockNotification};
use kv::{Command, LockCommand, Padded, Table, Version, WaiterId};
use std::collections::{BTreeMap, BTreeSet};

/// A node whose link is down for this long counts as dead for its waiting clients. No client loses its place in the queue
/// because a link breaks for a moment.
const GONE_MS: u64 = 1000;

/// The nodes that are dead, as the leader of a group sees it.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Nodes whose link is up; and since when the links of others have been down.
    linked: BTreeSet<NodeId>,
    unlinked: BTreeMap<NodeId, u64>,
    /// When this leadership began.
    leads_since_us: u64,
}

impl Reach {
    /// A link came up or went down.
    pub(crate) fn link(&mut self, now: Now, peer: NodeId, up: bool) {
        if up {
            self.linked.insert(peer);
            self.unlinked.remove(&peer);
        } else {
            self.linked.remove(&peer);
            self.unlinked.entry(peer).or_insert(now.monotonic_us);
        }
    }

    /// This replica begins to lead.
    pub(crate) fn begin(&mut self, now: Now) {
        self.leads_since_us = now.monotonic_us;
    }

    pub(crate) fn is_gone(&self, now: Now, node: NodeId) -> bool {
        // A node that was never linked counts as unlinked since this replica began to lead.
        let since_us = self.unlinked.get(&node).copied().unwrap_or_default().max(self.leads_since_us);
        !self.linked.contains(&node) && now.ms_since(since_us) >= GONE_MS
    }

    /// Returns the commands to be ordered about dead nodes whose clients wait. `own` is the leader's node.
    pub(crate) fn to_drop<'r>(
        &'r self,
        now: Now,
        own: NodeId,
        table: &Table,
    ) -> impl Iterator<Item = Command<'static>> + use<'r> {
        let nodes: BTreeSet<NodeId> = match (table.locks().waiters(), table.queues().is_still()) {
            (0, true) => BTreeSet::new(),
            _ => table.locks().coordinators().into_iter().chain(table.queues().coordinators()).collect(),
        };
        let gone = nodes.into_iter().filter(move |node| *node != own && self.is_gone(now, *node));
        gone.map(|node| Command::Lock(LockCommand::DropWaiters { node, spared: Padded(None) }))
    }
}

/// Notifies coordinators of changes to waiting requests. The leader notifies all coordinators, the other replicas the one
/// on their own node, which is notified in this way even if the leader's message is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notifier {
    pub(crate) node: NodeId,
    pub(crate) is_leader: bool,
}

impl Notifier {
    pub(crate) fn notify(
        self,
        waiter: WaiterId,
        name: Box<[u8]>,
        notification: LockNotification,
        offset: Version,
        effects: &mut Effects,
    ) {
        if waiter.node == self.node || self.is_leader {
            effects.notices.push(Notice::LockNotified { waiter, name, notification, offset });
        }
    }

    /// Notifies of the effects of applied records, where locks have no leases.
    #[inline]
    pub(crate) fn follow(self, table: &mut Table, offset: Version, effects: &mut Effects) {
        if let Some(events) = table.take_lock_events() {
            self.follow_events(events, offset, effects);
        }
    }

    #[cold]
    fn follow_events(self, events: Vec<LockEvent>, offset: Version, effects: &mut Effects) {
        for event in events {
            if let LockEvent::Notified { waiter, name, notification } = event {
                self.notify(waiter, name, notification, offset, effects);
            }
        }
    }

    /// Notifies the coordinators of all requests for elements again: an earlier leader's notices may be lost. Its last
    /// records may be lost too, and then a request that was withdrawn or settled is present again, and its coordinator
    /// ends it.
    pub(crate) fn revisit(self, table: &Table, offset: Version, effects: &mut Effects) {
        for waiter in table.queues().all() {
            self.notify(waiter, Box::default(), LockNotification::Served, offset, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(ms: u64) -> Now {
        Now { monotonic_us: ms * 1000, unix_ms: 0 }
    }

    #[test]
    fn a_node_is_dead_when_its_link_has_been_down_for_long() {
        let mut reach = Reach::default();
        reach.link(now(1), 2, true);
        reach.link(now(500), 2, false);
        reach.link(now(900), 2, false);
        assert!(!reach.is_gone(now(1499), 2) && reach.is_gone(now(1500), 2));
        reach.link(now(1500), 2, true);
        assert!(!reach.is_gone(now(9000), 2));
    }
}
