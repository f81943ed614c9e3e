//! Clients that are read together, before any of their requests is carried out.
//!
//! What their requests need is then loaded from memory all at once, as it is for the requests of one pipeline
//! ([`crate::look_ahead`]), and the clock is read once for all of them.

use std::ops::Range;

use crate::look_ahead::LookAhead;
use node::ClientId;
use wire::resp::{Progress, ProtocolError};

/// The outcome of parsing a connection's first request.
pub(super) type Parsed = Result<Progress, ProtocolError>;

/// A client that has been read, and whose input has not been given to the node yet.
pub(super) struct Member {
    pub(super) id: ClientId,
    /// Where its input is in the round's buffer. Not empty.
    pub(super) bytes: Range<usize>,
    /// Its first request.
    pub(super) first: Parsed,
}

impl Member {
    /// Whether it has sent exactly one request.
    fn is_one_request(&self) -> bool {
        self.first == Ok(Progress::Complete { consumed: self.bytes.len() })
    }
}

#[derive(Default)]
pub(super) struct Round {
    /// No other part of the driver writes to it.
    pub(super) buffer: Vec<u8>,
    /// In the order in which they were read: their input lies in the buffer in this order.
    pub(super) members: Vec<Member>,
}

impl Round {
    /// As many as one look-ahead can serve.
    const MEMBERS_MAX: usize = LookAhead::REQUESTS + 1;

    /// A round reads few bytes, so that those of the first client are still in the processor's cache when the last one has
    /// been read.
    const PART_FILLED_MAX: usize = 8;

    /// Makes the buffer at least this large.
    pub(super) fn make_room(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
    }

    /// The number of bytes of the buffer in use: the rest is room for the input of another client.
    pub(super) fn filled(&self) -> usize {
        self.members.last().map_or(0, |last| last.bytes.end)
    }

    /// Adds a client whose input has been read into the free part of the buffer.
    pub(super) fn add(&mut self, id: ClientId, bytes: Range<usize>, first: Parsed) {
        assert!(!bytes.is_empty(), "a client is in the round because it has sent something");
        assert_eq!(bytes.start, self.filled(), "input is read behind that of others");
        self.members.push(Member { id, bytes, first });
    }

    /// Whether it is time to serve its members. A client with a pipeline is looked ahead into by itself, and uses the
    /// processor's cache better alone.
    pub(super) fn is_full(&self) -> bool {
        let Some(last) = self.members.last() else { return false };
        !last.is_one_request()
            || self.members.len() == Round::MEMBERS_MAX
            || last.bytes.end > self.buffer.len() / Round::PART_FILLED_MAX
    }
}
