//! The identity of a log: whose log a file belongs to.

/// The identity of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's number.
    pub cluster: u64,
    /// The node's number, from 1.
    pub node: u16,
    /// The number of the node's worker.
    pub worker: u16,
    /// The log's own number, drawn at random when the folder was new. It is mixed into every checksum, so that no
    /// client's value and no file of an earlier log of this node can look like a batch of this log.
    pub log: u64,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Identity { cluster, node, worker, log } = self;
        write!(out, "worker {worker} of node {node} in cluster {cluster:016x} (log {log:016x})")
    }
}
