//! Beginning: when a control node may take part in the control group for the first time.
//!
//! A voter must not forget what it promised. A node whose storage is empty may be new, or it may have lost what it
//! held. The map shows which, but it is held by the very group that the node wants to enter. So:
//!
//! * A new cluster begins when all of its control nodes have been started: each asks the others (`Hello`), and takes
//!   part when each of them either has not taken part itself, or took part knowing the storage that this node has
//!   now. It keeps their answers as a record, durable before its first vote. If a node had taken part and lost its
//!   storage, all that took part know it by another storage, so it is never admitted in this way.
//! * In an existing cluster, a node takes part when a committed map names it among the control group's members with
//!   the storage that it has now: it is new in the cluster, or it was replaced, and was made a member after that.
//! * A node that finds the record of having begun continues as the voter that it was.

use super::Effects;
use super::map::{CONTROL_GROUP, ClusterMap};
use super::message::Message;
use super::record::put_begun;
use protocol::{NodeId, Now};
use std::collections::BTreeMap;

/// Whether this node takes part in the control group, and what it needs to know before it may.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// The control nodes' storages when this node began to take part.
    begun: Option<BTreeMap<NodeId, u64>>,
    /// The others' answers, until this node takes part.
    heard: BTreeMap<NodeId, Heard>,
    asks_at_us: u64,
    times_asked: u32,
    /// The nodes that were missing at the last report.
    reported: Vec<NodeId>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    identity: u64,
    has_begun: bool,
    knows: u64,
}

impl Beginning {
    pub(super) fn restore(&mut self, identities: BTreeMap<NodeId, u64>) {
        self.begun = Some(identities);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// The control nodes' storages when this node began.
    pub(super) fn identities(&self) -> Option<&BTreeMap<NodeId, u64>> {
        self.begun.as_ref()
    }

    /// Asks the other control nodes of a cluster that has no map yet.
    pub(super) fn ask(
        &mut self,
        now: Now,
        (id, identity): (NodeId, u64),
        map: &ClusterMap,
        out: &mut Effects,
    ) {
        const ASK_US: u64 = 50_000;
        if now.monotonic_us < self.asks_at_us {
            return;
        }
        self.asks_at_us = now.monotonic_us + ASK_US;
        self.times_asked += 1;
        let hello = Message::Hello { identity, has_begun: false, knows: 0, is_question: true };
        out.send(others(map, id), &hello);
    }

    /// When this node asks next.
    pub(super) fn wakeup_us(&self) -> u64 {
        if self.has_begun() { u64::MAX } else { self.asks_at_us }
    }

    /// Takes a control node's `Hello`.
    pub(super) fn hello(
        &mut self,
        from: NodeId,
        (identity, has_begun, knows): (u64, bool, u64),
        own_identity: u64,
        is_question: bool,
        out: &mut Effects,
    ) {
        if !self.has_begun() {
            self.heard.insert(from, Heard { identity, has_begun, knows });
        }
        if is_question {
            let knows = self.begun.as_ref().and_then(|known| known.get(&from)).copied().unwrap_or(0);
            let has_begun = self.has_begun();
            out.send(
                [from],
                &Message::Hello { identity: own_identity, has_begun, knows, is_question: false },
            );
        }
    }

    /// Takes part from now on, if all control nodes of a new cluster confirm that this node has not taken part before.
    pub(super) fn begin_new_cluster(
        &mut self,
        (id, identity): (NodeId, u64),
        map: &ClusterMap,
        out: &mut Effects,
    ) -> bool {
        let agrees = |node: &NodeId| {
            let heard = self.heard.get(node);
            heard.is_some_and(|heard| !heard.has_begun || heard.knows == identity)
        };
        let missing: Vec<NodeId> = others(map, id).filter(|node| !agrees(node)).collect();
        if !missing.is_empty() {
            const PATIENCE: u32 = 10;
            if missing != self.reported && self.times_asked > PATIENCE {
                self.reported = missing.clone();
                out.events.push(super::Event::WaitsFor { nodes: missing });
            }
            return false;
        }
        let heard = others(map, id).filter_map(|node| Some((node, self.heard.get(&node)?.identity)));
        let identities = heard.chain([(id, identity)]).collect();
        self.begin(identities, out);
        true
    }

    /// Takes part from now on, because a committed map names this node.
    pub(super) fn begin_as_member(&mut self, map: &ClusterMap, out: &mut Effects) {
        let members = map.groups.get(&CONTROL_GROUP).map(|group| group.members.clone()).unwrap_or_default();
        let identity = |node: NodeId| Some((node, map.nodes.get(&node)?.start.identity));
        self.begin(members.into_iter().filter_map(identity).collect(), out);
    }

    fn begin(&mut self, identities: BTreeMap<NodeId, u64>, out: &mut Effects) {
        out.record(|bytes| put_begun(bytes, &identities));
        self.heard.clear();
        self.begun = Some(identities);
    }
}

/// The control group's other members.
fn others(map: &ClusterMap, id: NodeId) -> impl Iterator<Item = NodeId> {
    let members = map.groups.get(&CONTROL_GROUP).map(|group| group.members.as_slice()).unwrap_or_default();
    members.iter().copied().filter(move |member| *member != id)
}
