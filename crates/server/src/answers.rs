//! The memory that answers over HTTP take: a reply, from when the node hands it out, and what is sent of it, until the
//! connection has taken it.
//!
//! A large reply stays with its client in the node, which counts it, until there is room. So answers together take as much as
//! they may, and what is handed out in one turn.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mio::Waker;

/// The memory of all answers.
pub(crate) struct AnswerMemory {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Wakes the worker when there is room again.
    waker: Arc<Waker>,
}

impl AnswerMemory {
    pub(crate) fn new(bytes_max: usize, waker: Arc<Waker>) -> Arc<AnswerMemory> {
        Arc::new(AnswerMemory { bytes: AtomicUsize::new(0), bytes_max, waker })
    }

    /// Whether answers may take more. The longest answer alone may take more than there is.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Acquire) < self.bytes_max
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
        Ok(CountedBytes { bytes: answer, _held: Some(self.held) })
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
    _held: Option<HeldBytes>,
}

impl From<Vec<u8>> for CountedBytes {
    fn from(bytes: Vec<u8>) -> CountedBytes {
        CountedBytes { bytes, _held: None }
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
}
