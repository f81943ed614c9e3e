//! Positions: up to where the nodes' logs are known to be durable. They show when a disk was put back to an earlier
//! state.
//!
//! A copy of a disk that was made while the process ran is opened in the next incarnation: judged by incarnations
//! alone it looks like an ordinary restart. But positions of a log only grow, over restarts too, and what a sync has
//! covered survives every crash. So each renewal carries the position up to which the sender's log is durable, and
//! control nodes remember it for the start that was admitted last. A later start reports where it *found* the end of
//! its log. If that is before the remembered position, the disk is an older one, whatever its incarnation is.
//!
//! * **What a start appends before its admission proves nothing.** A voter of the control group records what it
//!   accepts at once, so an older disk could grow beyond what it lacks and look complete after one more restart. So
//!   of consecutive starts that were not admitted, the first one's end counts. It is kept as the first record of such
//!   a start: nothing else of that start can precede it. After admission, the node reports nothing beyond that end as
//!   durable before the record that ends this phase is durable itself. Otherwise a start that loses that record would
//!   find less than it had itself reported.
//! * **The map holds the end that the start admitted last had found**, and so every control node knows it. What is
//!   remembered here counts only for that start. When the map has a later start, which found no less or was admitted
//!   as new after `CLUSTER REPLACE`, the positions remembered for the earlier one are no longer needed, or no longer
//!   true.
//! * **Control nodes keep what they remember**, and send it to each other, once a second and when a link breaks. All
//!   of them may lose their power together; and one that was cut off from a node, and so received none of its
//!   renewals, may come to lead.
//! * **A control leader admits no node, itself included, before a majority has reported what they remember** since it
//!   started. The leader's own disk may be the older one, and nothing on it shows that.
//!
//! What became durable after the last renewal that arrived, at most 80 ms before the death, is not known here.
//! `docs/design/control.md` lists what else is not detected.

use super::map::{ClusterMap, Start};
use super::message::{put_start, take_start};
use kv::codec::{Malformed, Reader, Writer};
use protocol::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// How often what is remembered is written to the log.
const KEEP_US: u64 = 1_000_000;

/// The first byte of the written positions. It distinguishes them from a map.
const KEPT: u8 = 1;

/// What is known of this node's log, and what was reported of others'.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// This node's number.
    own: NodeId,
    /// Where the log ended when it was first opened since this node was last admitted. None: this node is admitted.
    found: Option<u64>,
    /// Up to where this node's log is durable, as reported to others.
    durable: u64,
    /// For each node, the start that was admitted last, and up to where its log was durable.
    heard: BTreeMap<NodeId, (Start, u64)>,
    /// The control nodes that have reported, since this start, which positions they know.
    reported_by: BTreeSet<NodeId>,
    /// Whether a position was reported that is not written yet.
    is_news: bool,
    keep_at_us: u64,
}

impl Positions {
    pub(super) fn new(own: NodeId) -> Positions {
        Positions { own, ..Positions::default() }
    }

    // This node.

    /// The log was opened and ends at `end`. Returns the end that counts, and whether it must be written before
    /// anything else.
    pub(super) fn open(&mut self, end: u64) -> (u64, bool) {
        let is_first = self.found.is_none();
        let found = *self.found.get_or_insert(end);
        self.durable = found;
        (found, is_first)
    }

    /// This start was admitted.
    pub(super) fn admit(&mut self) {
        self.found = None;
    }

    /// This node's log is durable up to `position`.
    pub(super) fn note_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    // Others.

    /// A node's log is durable up to `durable`, as reported by the node itself or by another control node. Ignored
    /// unless this start was admitted: nothing relies on other starts.
    pub(super) fn hear(&mut self, map: &ClusterMap, node: NodeId, start: Start, durable: u64) {
        if map.nodes.get(&node).is_none_or(|known| known.start != start) {
            return;
        }
        let (of, most) = self.heard.entry(node).or_insert((start, 0));
        // A node need not keep its own position in its own log: both are lost together.
        self.is_news |= node != self.own && (*of != start || *most < durable);
        *most = if *of == start { durable.max(*most) } else { durable };
        *of = start;
    }

    /// Takes another control node's report of the positions that it knows.
    ///
    /// # Errors
    /// [`Malformed`] when no control node can have sent it.
    pub(super) fn take_report(
        &mut self,
        map: &ClusterMap,
        by: NodeId,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        for (node, start, durable) in take_heard(bytes)? {
            self.hear(map, node, start, durable);
        }
        self.reported_by.insert(by);
        Ok(())
    }

    /// Whether a majority of these control nodes has reported the positions that they know.
    pub(super) fn are_reported(&self, control_nodes: &[NodeId]) -> bool {
        let has_reported = |node: &&NodeId| **node == self.own || self.reported_by.contains(*node);
        control_nodes.iter().filter(has_reported).count() > control_nodes.len() / 2
    }

    /// Up to where a node's log was durable, as far as is known here.
    pub(super) fn known(&self, map: &ClusterMap, node: NodeId) -> u64 {
        let Some(known) = map.nodes.get(&node) else { return 0 };
        let heard = self.heard.get(&node).filter(|(start, _)| *start == known.start);
        heard.map_or(known.start.found, |(_, durable)| known.start.found.max(*durable))
    }

    /// Checks whether a node may be admitted with this start.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub(super) fn check(&self, map: &ClusterMap, node: NodeId, start: Start) -> Result<(), String> {
        map.check_start(node, start, self.known(map, node))
    }

    // Keeping positions for the next start.

    /// A link broke: the last positions that came over it should be written at once.
    pub(super) fn hurry(&mut self) {
        self.keep_at_us = 0;
    }

    /// Whether it is time to write the known positions.
    pub(super) fn is_due(&self, now_us: u64) -> bool {
        self.is_news && now_us >= self.keep_at_us
    }

    /// Appends what must be kept for the next start, replacing what was kept before.
    pub(super) fn keep(&mut self, now_us: u64, map: &ClusterMap, out: &mut Vec<u8>) {
        self.heard.retain(|node, _| map.nodes.contains_key(node));
        (self.is_news, self.keep_at_us) = (false, now_us + KEEP_US);
        out.put_u8(KEPT);
        out.put_bool(self.found.is_some());
        out.put_u64(self.found.unwrap_or_default());
        self.put_heard(out);
    }

    /// Each node's start that was admitted last, and up to where its log was durable, as far as is known here.
    pub(super) fn heard(&self) -> impl Iterator<Item = (NodeId, Start, u64)> {
        self.heard.iter().map(|(node, (start, durable))| (*node, *start, *durable))
    }

    /// Appends the known positions.
    pub(super) fn put_heard(&self, out: &mut Vec<u8>) {
        for (node, (start, durable)) in &self.heard {
            out.put_u16(*node);
            put_start(out, *start);
            out.put_u64(*durable);
        }
    }

    /// Restores what an earlier start has kept.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are something else.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != KEPT {
            return Err(Malformed("unknown kind of positions"));
        }
        let (is_out, found) = (reader.bool()?, reader.u64()?);
        self.found = is_out.then_some(found);
        let heard = take_heard(reader.rest())?.into_iter();
        self.heard = heard.map(|(node, start, durable)| (node, (start, durable))).collect();
        Ok(())
    }
}

/// Whether these bytes are positions rather than a map.
pub fn is_positions(bytes: &[u8]) -> bool {
    bytes.first() == Some(&KEPT)
}

/// Reads the output of [`Positions::put_heard`].
fn take_heard(bytes: &[u8]) -> Result<Vec<(NodeId, Start, u64)>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut heard = Vec::new();
    while !reader.is_empty() {
        heard.push((reader.u16()?, take_start(&mut reader)?, reader.u64()?));
    }
    Ok(heard)
}
