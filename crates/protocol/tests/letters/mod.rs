//! Messages under way in a world of replicas.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use protocol::contract::NodeId;

/// A message under way. What it says, each protocol's world knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub from: NodeId,
    pub to: NodeId,
    pub bytes: Vec<u8>,
    /// Kept back by the script until it is released.
    pub held: bool,
}

impl Letter {
    /// The link that it takes: its two ends in ascending order.
    pub fn ends(&self) -> (NodeId, NodeId) {
        (self.from.min(self.to), self.from.max(self.to))
    }
}
