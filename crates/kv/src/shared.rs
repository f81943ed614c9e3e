//! Shared bytes: a large value is copied as rarely as possible, since a copy of many megabytes takes longer than any other
//! client should wait.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// A part of an immutable, shared buffer.
#[derive(Clone, Debug, Default)]
pub struct SharedBytes {
    buffer: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl SharedBytes {
    /// The given part of a buffer, clamped to its length.
    pub fn of(buffer: &Arc<Vec<u8>>, range: Range<usize>) -> SharedBytes {
        let end = range.end.min(buffer.len());
        SharedBytes { buffer: Arc::clone(buffer), range: range.start.min(end)..end }
    }

    /// Returns the part of a buffer that is this slice, if the slice lies in the buffer and is most of it: a small part
    /// would keep the whole buffer from being freed.
    pub fn within(buffer: &Arc<Vec<u8>>, slice: &[u8]) -> Option<SharedBytes> {
        let start = (slice.as_ptr() as usize).checked_sub(buffer.as_ptr() as usize)?;
        let range = start..start.checked_add(slice.len())?;
        let is_most = range.end <= buffer.len() && 2 * slice.len() >= buffer.len();
        is_most.then(|| SharedBytes { buffer: Arc::clone(buffer), range })
    }

    /// These bytes divided by the number of holders of the buffer, so that all holders together count its memory once.
    pub fn share_bytes(&self) -> usize {
        self.len() / Arc::strong_count(&self.buffer).max(1)
    }

    /// The part of these bytes from `start` to `end`, clamped to their length.
    pub fn part(&self, start: usize, end: usize) -> SharedBytes {
        let (end, start) = (end.min(self.len()), start.min(end));
        let range = self.range.start + start..self.range.start + end;
        SharedBytes { buffer: Arc::clone(&self.buffer), range }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> SharedBytes {
        SharedBytes::from(Arc::new(bytes))
    }
}

impl From<Arc<Vec<u8>>> for SharedBytes {
    fn from(buffer: Arc<Vec<u8>>) -> SharedBytes {
        let range = 0..buffer.len();
        SharedBytes { buffer, range }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &SharedBytes) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_buffer_is_shared_in_place() {
        let buffer = Arc::new(b"head of a value\r\n".to_vec());
        let shared = SharedBytes::within(&buffer, &buffer[5..15]).expect("the slice is most of the buffer");
        assert_eq!((&*shared, shared.as_ptr()), (&b"of a value"[..], buffer[5..].as_ptr()));
        assert_eq!(&*shared.part(3, 4), b"a");
        assert_eq!(&*shared.part(8, 100), b"ue");
        assert!(
            SharedBytes::within(&buffer, &buffer[..4]).is_none(),
            "the rest of the buffer would be kept alive"
        );
        assert!(
            SharedBytes::within(&buffer, b"head of a value\r\n").is_none(),
            "the slice is not in the buffer"
        );
    }
}
