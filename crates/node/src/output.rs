//! The output that waits to be written to a client.

use kv::SharedBytes;
use std::collections::VecDeque;

/// Bytes of large values that are moved into an output at a time.
pub(crate) const OUTPUT_CHUNK_BYTES: usize = 256 << 10;

/// The output that waits to be written to a client.
#[derive(Debug, Default)]
pub struct Output {
    /// The bytes, in order. The caller removes what it writes.
    pub bytes: Vec<u8>,
    /// Whether to close the connection once everything is written.
    pub close: bool,
    /// What comes after `bytes`: large values, each with the bytes that follow it. They are written without a copy,
    /// or moved into `bytes` chunk by chunk for a caller that takes only those.
    later: VecDeque<(SharedBytes, Vec<u8>)>,
}

impl Output {
    /// Returns what is next: `bytes`, and after them a large value and the bytes after it, up to the limit for one
    /// write.
    pub fn parts(&mut self) -> (&mut Vec<u8>, Option<[&[u8]; 2]>) {
        let behind = self.later.front().map(|(value, behind)| match value.len() <= OUTPUT_CHUNK_BYTES {
            true => [&value[..], behind],
            false => [&value[..OUTPUT_CHUNK_BYTES], &[]],
        });
        (&mut self.bytes, behind)
    }

    /// Notes that `count` bytes of what comes after `bytes` were written without a copy.
    pub fn written_behind(&mut self, count: usize) {
        let Some((value, behind)) = self.later.front_mut() else { return };
        let of_value = count.min(value.len());
        *value = value.part(of_value, value.len());
        if value.is_empty() {
            behind.drain(..(count - of_value).min(behind.len()));
            self.bytes.append(behind);
            self.later.pop_front();
        }
    }

    /// Whether everything is written and the connection should be closed.
    pub fn is_over(&self) -> bool {
        self.close && self.is_written()
    }

    /// Whether there is nothing to write.
    pub fn is_written(&self) -> bool {
        self.bytes.is_empty() && self.later.is_empty()
    }

    /// Moves some of `later` into `bytes`, if little is left there.
    pub(crate) fn filled(&mut self) -> &mut Output {
        while self.bytes.len() < OUTPUT_CHUNK_BYTES
            && let Some((value, behind)) = self.later.front_mut()
        {
            let end = value.len().min(OUTPUT_CHUNK_BYTES);
            self.bytes.extend_from_slice(&value[..end]);
            *value = value.part(end, value.len());
            if value.is_empty() {
                self.bytes.append(behind);
                self.later.pop_front();
            }
        }
        self
    }

    /// The place for the next reply.
    #[inline]
    pub fn end(&mut self) -> &mut Vec<u8> {
        match self.later.back_mut() {
            None => &mut self.bytes,
            Some((_, behind)) => behind,
        }
    }

    /// Its approximate memory, in bytes. Shared values count by their share.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        if self.later.is_empty() {
            return self.bytes.capacity();
        }
        let later = self.later.iter().map(|(value, behind)| value.share_bytes() + behind.capacity());
        self.bytes.capacity() + later.sum::<usize>()
    }

    /// How many bytes are left. Called before each request.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.later.is_empty() {
            return self.bytes.len();
        }
        let later = self.later.iter().map(|(value, behind)| value.len() + behind.len());
        self.bytes.len() + later.sum::<usize>()
    }

    /// Appends a byte string, which is the same in both versions of RESP, to be written without a copy.
    pub(crate) fn push_value(&mut self, value: SharedBytes) {
        let head = format!("${}\r\n", value.len());
        self.end().extend_from_slice(head.as_bytes());
        self.later.push_back((value, b"\r\n".to_vec()));
    }
}
