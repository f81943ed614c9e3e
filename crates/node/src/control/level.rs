//! The cluster's level: the release whose messages, records and settings the cluster as a whole may use. The map holds it.
//!
//! Every start of a node registers the releases that its program understands. The control leader raises the level when
//! every node in the map, also one that is down, has last been started with a program that knows the next one. The level
//! never falls. So until it rises, any node may go back to the program that it had; and from then on a program that does
//! not know it is refused: by itself when it reads its folder, and by the control leader when it asks for admission.
//!
//! `docs/design/releases.md` says why nothing of a newer level can reach a program that does not know it.

use super::map::ClusterMap;
use super::refusal::{Refusal, refuse};
use protocol::NodeId;
use wire::release::Release;

impl ClusterMap {
    /// The highest level that every node's program knows, as far as it has started.
    pub fn attainable_level(&self) -> Release {
        let newest = self.nodes.values().map(|node| node.releases.newest).min().unwrap_or(0);
        newest.max(self.level)
    }

    /// The nodes whose programs do not know a level. What runs on a node that has not started yet is not known.
    pub fn nodes_below(&self, level: Release) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.releases.newest < level).map(|(id, _)| *id).collect()
    }

    pub(super) fn raise_level(&mut self, level: Release) -> Result<(), Refusal> {
        let below = self.nodes_below(level);
        if level > self.level && !below.is_empty() {
            refuse!("the cluster cannot be at level {level}: the programs of nodes {below:?} do not know it");
        }
        self.level = self.level.max(level);
        Ok(())
    }
}
