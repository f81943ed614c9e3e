//! The lease under which this node leads its groups: the node renews it at all control nodes, and the control leader
//! grants it. See the parent module for what it means.

use super::message::Message;
use super::{Control, Effects, Options};
use commands::statistics::Latencies;
use protocol::{NodeId, Now};
use std::collections::VecDeque;

/// The lease under which this node leads its groups.
#[derive(Debug, Default)]
pub(super) struct NodeLease {
    pub(super) until_us: u64,
    pub(super) renew_at_us: u64,
    sequence: u64,
    /// The newest renewal that was answered.
    answered: u64,
    /// The last renewals that were sent, with their times.
    sent: VecDeque<(u64, u64)>,
    pub(super) times: LeaseTimes,
}

/// How long renewals take, and how long the node was without a lease.
#[derive(Debug, Default)]
pub struct LeaseTimes {
    /// From each renewal that has made the lease longer to its answer.
    pub renewals: Latencies,
    /// From the end of a lease to the next one.
    pub waits: Latencies,
}

impl Control {
    /// Renews this node's lease.
    pub(super) fn renew(&mut self, now: Now, out: &mut Effects) {
        if now.monotonic_us < self.lease.renew_at_us {
            return;
        }
        let Options { id, start, timing, releases, .. } = &self.options;
        const REMEMBERED: usize = 16;
        self.lease.renew_at_us = now.next_beat_us(timing.renew_ms * 1000);
        self.lease.sequence += 1;
        let sequence = self.lease.sequence;
        self.lease.sent.push_back((sequence, now.monotonic_us));
        if self.lease.sent.len() > REMEMBERED {
            self.lease.sent.pop_front();
        }
        let map_version = self.map.version;
        let answered = self.lease.answered;
        self.leading.hear(now, timing, *id, (*start, *releases), (sequence, map_version, answered));
        // A node without a lease may not know the control nodes, as a new node without a map: it asks all nodes.
        let lasted_us = self.lease.until_us + timing.node_lease_ms * 1000;
        let is_known = lasted_us > now.monotonic_us;
        let all_nodes = || self.map.nodes.keys().copied().collect();
        let asked: Vec<NodeId> = if is_known { self.control_nodes().to_vec() } else { all_nodes() };
        let others = asked.into_iter().filter(|node| node != id);
        let (start, releases, durable) = (*start, *releases, self.positions.durable());
        out.send(others, &Message::Renew { start, sequence, map_version, answered, durable, releases });
    }

    pub(super) fn renewed(
        &mut self,
        now: Now,
        (sequence, map_version): (u64, u64),
        lasts_us: u64,
        out: &mut Effects,
    ) {
        let sent = self.lease.sent.iter().find(|(number, _)| *number == sequence);
        if sent.is_some() {
            self.lease.answered = self.lease.answered.max(sequence);
        }
        let Some((_, sent_us)) = sent.filter(|_| self.map.version >= map_version && self.is_admitted())
        else {
            return;
        };
        let until_us = sent_us + lasts_us.min(self.options.timing.node_lease_ms * 1000);
        if until_us > self.lease.until_us {
            self.lease.times.renewals.record(now.monotonic_us.saturating_sub(*sent_us));
            let ended_us = std::mem::replace(&mut self.lease.until_us, until_us);
            // The first lease was not waited for: there was nothing to lead.
            if ended_us > 0 && now.monotonic_us > ended_us {
                self.lease.times.waits.record(now.monotonic_us - ended_us);
            }
            out.lease_until_us = Some(until_us);
        }
    }
}
