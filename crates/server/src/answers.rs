//! The memory that answers over HTTP take: a reply, from when the node hands it out, and what is sent of it, until the
//! connection has taken it.
//!
//! A large reply stays with its client in the node, which counts it, until there is room. So answers together take as much as
//! they may, and what is handed out in one turn.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use mio::Waker;

/// The memory of all answers.
pub(crate) struct AnswerMemory {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Whether something waits for room.
    is_awaited: AtomicBool,
    /// Wakes the worker when there is room again.
    waker: Arc<Waker>,
}

impl AnswerMemory {
    pub(crate) fn new(bytes_max: usize, waker: Arc<Waker>) -> Arc<AnswerMemory> {
        let (bytes, is_awaited) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(AnswerMemory { bytes, bytes_max, is_awaited, waker })
    }

    /// Whether answers may take more. The longest answer alone may take more than there is.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Acquire) < self.bytes_max
    }

    /// How many bytes answers may take together.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Notes whether something waits for room.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    /// Counts so many bytes until they are dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        HeldBytes { memory: Arc::clone(self), bytes }
    }
}

/// Bytes that are counted.
pub(crate) struct HeldBytes {
    memory: Arc<AnswerMemory>,
    bytes: usize,
}

impl HeldBytes {
    /// Whether something waits for room in the memory where they are counted.
    pub(crate) fn is_awaited(&self) -> bool {
        self.memory.is_awaited.load(Ordering::Relaxed)
    }

    /// Counts so many bytes instead.
    pub(crate) fn resize(&mut self, bytes: usize) {
        *self = self.memory.hold(bytes);
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let HeldBytes { memory, bytes } = self;
        let before = memory.bytes.fetch_sub(*bytes, Ordering::AcqRel);
        assert!(before >= *bytes, "what is released was counted");
        if before >= memory.bytes_max && before - *bytes < memory.bytes_max {
            // Waking fails only when the worker has ended, and then no call waits for room.
            let _ = memory.waker.wake();
        }
    }
}

/// A reply of the node, counted.
pub(crate) struct NodeReply {
    bytes: Vec<u8>,
    held: HeldBytes,
}

impl NodeReply {
    pub(crate) fn new(bytes: Vec<u8>, memory: &Arc<AnswerMemory>) -> NodeReply {
        let held = memory.hold(bytes.len());
        NodeReply { bytes, held }
    }

    /// Makes the answer from the reply: `size` returns how long it will be, and `write` makes it. Both are counted while both
    /// are there, and then the answer alone.
    ///
    /// # Errors
    /// That of `size` or `write`.
    pub(crate) fn into_answer<E>(
        mut self,
        size: impl FnOnce(&[u8]) -> Result<usize, E>,
        write: impl FnOnce(&[u8], usize) -> Result<Vec<u8>, E>,
    ) -> Result<CountedBytes, E> {
        let bytes = size(&self.bytes)?;
        self.held.resize(self.bytes.len() + bytes);
        let answer = write(&self.bytes, bytes)?;
        drop(self.bytes);
        self.held.resize(answer.len());
        Ok(CountedBytes { bytes: answer, held: Some(Arc::new(self.held)) })
    }
}

impl Deref for NodeReply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of an answer, counted if they are made of a reply.
pub(crate) struct CountedBytes {
    bytes: Vec<u8>,
    held: Option<Arc<HeldBytes>>,
}

impl CountedBytes {
    /// What shows whether they are still there, if they are counted.
    pub(crate) fn held(&self) -> Option<Weak<HeldBytes>> {
        self.held.as_ref().map(Arc::downgrade)
    }
}

impl From<Vec<u8>> for CountedBytes {
    fn from(bytes: Vec<u8>) -> CountedBytes {
        CountedBytes { bytes, held: None }
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for CountedBytes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_and_its_answer_are_counted_until_the_answer_is_dropped() {
        let poll = mio::Poll::new().unwrap();
        let memory = AnswerMemory::new(100, Arc::new(Waker::new(poll.registry(), mio::Token(0)).unwrap()));
        let reply = NodeReply::new(vec![7; 60], &memory);
        assert!(memory.has_room());
        let answer = reply.into_answer(
            |reply| Ok::<_, ()>(reply.len() * 2),
            |reply, bytes| {
                assert!(!memory.has_room(), "both are there");
                assert_eq!((reply.len(), bytes), (60, 120));
                Ok(vec![b'a'; bytes])
            },
        );
        let answer = answer.unwrap();
        assert!(!memory.has_room(), "a longer one than there is room for");
        assert_eq!(memory.bytes.load(Ordering::Acquire), 120);
        drop(answer);
        assert!(memory.has_room());
        assert_eq!(memory.bytes.load(Ordering::Acquire), 0);
    }

    /// Whoever waits for room looks again only when the worker is woken.
    #[test]
    fn the_worker_is_woken_whenever_there_is_room_again() {
        let (mut poll, mut events) = (mio::Poll::new().unwrap(), mio::Events::with_capacity(4));
        let memory = AnswerMemory::new(100, Arc::new(Waker::new(poll.registry(), mio::Token(0)).unwrap()));
        let mut is_woken = || {
            poll.poll(&mut events, Some(std::time::Duration::ZERO)).unwrap();
            !events.is_empty()
        };
        let held: Vec<_> = [60, 60, 60].map(|bytes| memory.hold(bytes)).into();
        for (place, one) in held.into_iter().enumerate() {
            let had_room = memory.has_room();
            drop(one);
            assert_eq!(is_woken(), !had_room && memory.has_room(), "after {place} before it");
        }
        let mut one = memory.hold(60);
        one.resize(120);
        assert!(!memory.has_room() && !is_woken());
        one.resize(80);
        assert!(memory.has_room() && is_woken(), "an answer is shorter than its reply");
    }
}
