//! The driver's counters. The node has its own.

/// Plain numbers: only one thread uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes read from clients.
    pub client_bytes_in: u64,
    /// Bytes written to clients.
    pub client_bytes_out: u64,
    /// Clients closed because a request took too long to arrive.
    pub clients_too_slow: u64,
    /// Clients closed because they were idle for too long.
    pub clients_idle: u64,
    /// Clients closed because incomplete requests took too much memory.
    pub clients_too_large: u64,
    /// Bytes read from peers.
    pub peer_bytes_in: u64,
    /// Bytes written to peers.
    pub peer_bytes_out: u64,
}
