//! How much of a client's input is taken before its requests have outcomes and its replies are read.

use super::Session;

/// The maximum number of requests of one client that may wait for their outcomes.
pub(super) const PENDING_MAX: usize = 10_000;

/// The initial limit, before the size of this client's replies is known. Each reply raises it by one, so it
/// doubles with each round of replies.
pub(super) const PENDING_FIRST: usize = 256;

/// The lowest limit, however large the replies are, so that large ones still come in batches.
const PENDING_MIN: usize = 16;

/// The most bytes that the replies of a client's waiting requests may have, estimated from its latest
/// replies. The reply of a waiting request cannot be refused when it comes: without this limit, ten thousand
/// small GETs of large values, an everyday load, bring gigabytes to a node that cannot know whether the
/// client reads any of it. The limit does not stop a hostile client: one that requests large values after
/// thousands of small replies gets one window of them.
const PENDING_BYTES: usize = 8 << 20;

/// The most bytes of one client's requests that may wait for their outcomes, though a single request may have
/// more. This slows down several clients that never stop writing: with twice as much, three of them reached
/// the limit of what may wait for a group, and were refused.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// The most work of one client's long requests that may wait for outcomes before no more are taken, in
/// nanoseconds: other clients are served in between.
const WAITING_NS_MAX: u64 = 5_000_000;

/// The most bytes of replies that may wait for one client before its next requests are read.
const OUTPUT_BYTES_SOFT: usize = 1 << 20;

impl Session {
    /// Whether more of the client's input may be read.
    #[inline(always)]
    pub(crate) fn wants_input(&self) -> bool {
        !self.closing
            && self.slots.len() < self.pending_max()
            && self.output_bytes() < OUTPUT_BYTES_SOFT
            && self.waiting_bytes < WAITING_BYTES_MAX
            && self.waiting_ns < WAITING_NS_MAX
            && !self.is_awaiting_versions()
            && self.wait.is_none()
            && self.held_back.is_none()
            && self.first >= self.gate
    }

    /// Whether requests have no outcome yet, or replies wait for those.
    pub(crate) fn has_requests(&self) -> bool {
        !self.slots.is_empty()
    }

    #[inline]
    fn pending_max(&self) -> usize {
        if self.reply_bytes <= PENDING_BYTES / PENDING_MAX {
            self.window
        } else {
            self.window.min((PENDING_BYTES / self.reply_bytes).max(PENDING_MIN))
        }
    }

    /// Stops input after the request that begins next, until that request has its reply.
    pub(crate) fn close_gate(&mut self) {
        self.gate = self.first + self.slots.len() as u64 + 1;
    }

    /// Stops input until the requests that have begun have their replies.
    pub(crate) fn close_gate_now(&mut self) {
        self.gate = self.first + self.slots.len() as u64;
    }

    /// Notes when the input had arrived that is taken from now on; `None`: it has just arrived.
    pub(crate) fn resume_input(&mut self, arrived_us: Option<u64>) {
        self.arrived_us = arrived_us;
    }

    /// When the input that is being taken had arrived.
    pub(crate) fn arrived_us(&self, now_us: u64) -> u64 {
        self.arrived_us.unwrap_or(now_us)
    }

    /// Notes that a request could not be carried out, or not for certain.
    #[cold]
    pub(crate) fn note_failure(&mut self, now_us: u64) {
        self.failed_us = now_us;
    }

    /// Since when the request that is being taken has waited for what it cannot have now: since it arrived, if an
    /// earlier one of its client has waited in vain meanwhile. All of a pipeline are then refused together. A client whose
    /// requests are only slow has the usual time for each of them.
    pub(crate) fn waits_since_us(&self, now_us: u64) -> u64 {
        self.arrived_us.filter(|arrived_us| self.failed_us > *arrived_us).unwrap_or(now_us)
    }

    /// The bytes of requests without an outcome that the node has counted, and those that there are, which it
    /// counts now.
    #[inline]
    pub(crate) fn count_bytes(&mut self) -> (usize, usize) {
        (std::mem::replace(&mut self.counted_bytes, self.waiting_bytes), self.waiting_bytes)
    }

    /// The bytes of requests without an outcome that the node has counted.
    pub(crate) fn counted_bytes(&self) -> usize {
        self.counted_bytes
    }

    /// The work of requests without an outcome that the node has counted, and that which there is, which it
    /// counts now, in nanoseconds. `None`: it is the same.
    #[inline]
    pub(crate) fn count_work(&mut self) -> Option<(u64, u64)> {
        (self.waiting_ns != self.counted_ns)
            .then(|| (std::mem::replace(&mut self.counted_ns, self.waiting_ns), self.waiting_ns))
    }

    /// The work of requests without an outcome that the node has counted, in nanoseconds.
    pub(crate) fn counted_ns(&self) -> u64 {
        self.counted_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{ClientId, ClientKind, SessionReply};
    use kv::ReplyBuffer;

    /// Begins requests until the session wants no more, and returns how many.
    fn fill(session: &mut Session) -> usize {
        let before = session.slots.len();
        while session.wants_input() {
            session.begin(false);
        }
        session.slots.len() - before
    }

    /// Answers all waiting requests, and takes the replies like a client that reads them.
    fn answer_all(session: &mut Session, bytes: usize) {
        let mut reply = ReplyBuffer::default();
        reply.bulk(&vec![b'v'; bytes]);
        for _ in 0..session.slots.len() {
            session.complete(session.first, None, SessionReply::Encoded(reply.as_bytes()));
            session.output.bytes.clear();
        }
    }

    #[test]
    fn more_requests_may_wait_if_their_replies_are_small() {
        let id = ClientId::from_bits(0);
        let kind = ClientKind::Internal;
        let mut session = Session::new(id, kind, None, 0);
        let mut rounds = Vec::new();
        for bytes in [10, 10, 10, 100_000, 100_000, 10_000_000, 10_000_000] {
            rounds.push(fill(&mut session));
            answer_all(&mut session, bytes);
        }
        assert_eq!(
            rounds,
            [256, 512, 1024, 2048, 83, 83, PENDING_MIN],
            "it doubles, until replies are large"
        );
        for _ in 0..200 {
            fill(&mut session);
            answer_all(&mut session, 10);
        }
        assert_eq!(fill(&mut session), PENDING_MAX, "large replies of long ago do not count");
    }
}
