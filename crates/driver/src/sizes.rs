//! How much is done at a time.

/// How much is done at a time. The simulator uses smaller sizes, to reach with little data what otherwise takes much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Size of the buffer that everything is read into. Large enough for a deep pipeline, small enough to stay in the cache.
    pub buffer_bytes: usize,
    /// Most bytes read from one client in a turn, so that the others do not wait long.
    pub client_bytes_max: usize,
    /// When this much has been read from clients in a turn, the others wait for the next turn. That lets
    /// followers begin with what this turn ordered instead of waiting for all of it. About some hundred small requests.
    pub input_bytes_max: u64,
    /// Approximately the most bytes of large values written to one client in a turn.
    pub output_bytes_max: usize,
    /// Approximately the most bytes read from one peer in a turn.
    pub peer_bytes_max: usize,
    /// A buffer that holds at least this much is lent to the node, which may keep a large value in it.
    pub lent_bytes_min: usize,
}

impl Sizes {
    /// # Panics
    /// If a turn could do nothing of something, and so wait forever.
    pub(crate) fn check(&self) {
        assert!(self.buffer_bytes > 0, "nothing would be read");
        assert!(self.client_bytes_max > 0 && self.input_bytes_max > 0, "nothing would be read from clients");
        assert!(self.output_bytes_max > 0, "no large value would be written");
        assert!(self.peer_bytes_max > 0, "nothing would be read from peers");
    }
}

impl Default for Sizes {
    /// The server's sizes.
    fn default() -> Sizes {
        Sizes {
            buffer_bytes: 64 << 10,
            client_bytes_max: 256 << 10,
            input_bytes_max: 96 << 10,
            output_bytes_max: 512 << 10,
            peer_bytes_max: 256 << 10,
            lent_bytes_min: 1 << 20,
        }
    }
}
