//! How much is done at a time.

/// How much is done at a time. The simulator has smaller ones, so that it meets with little data what else needs much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The buffer that everything is read into. Large enough for a deep pipeline, small enough to stay in the cache.
    pub buffer_bytes: usize,
    /// Most bytes that one client's input may take of a turn, so that nobody waits long for his own.
    pub client_bytes_max: usize,
    /// When so much has been read from clients in a turn, the others' input is the next turn's: followers are busy with what
    /// this turn ordered meanwhile, instead of waiting for all of it. As much as some hundred small requests.
    pub input_bytes_max: u64,
    /// Most bytes of large values that are written to one client in a turn, about.
    pub output_bytes_max: usize,
    /// Most bytes read from one peer in a turn, about.
    pub peer_bytes_max: usize,
    /// A buffer with so much is lent to the node, which may keep a large value in it.
    pub lent_bytes_min: usize,
}

impl Default for Sizes {
    /// Those of the server.
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
