//! What a test or a simulator may look at from outside. Nothing here changes anything.

use crate::envelope::Envelope;
use crate::node::Node;

/// The group, by its place among the keyspaces of [`Node::configuration`], and the message of a frame's payload, if it is a message between replicas. Other payloads carry
/// requests and outcomes of clients: these rely on the order and on the end of their link.
pub fn replica_message(payload: &[u8]) -> Option<(usize, &[u8])> {
    match Envelope::decode(payload) {
        Ok(Envelope::Group { group, message }) => Some((usize::from(group).checked_sub(1)?, message)),
        _ => None,
    }
}

impl Node {
    /// For each keyspace, in the order of [`Node::configuration`], a fingerprint of what this node's replica holds;
    /// `None` where it has none. O(keys).
    pub fn digests(&self) -> Vec<Option<u64>> {
        let digest = |replica: &crate::replica::Replica| replica.table().digest();
        self.groups.iter().map(|(_, group)| group.replica.as_ref().map(digest)).collect()
    }
}
