//! What is to be written to a client.

use kv::SharedBytes;
use std::collections::VecDeque;

/// Bytes of large values that are put into an output at a time.
pub(crate) const OUTPUT_CHUNK_BYTES: usize = 256 << 10;

/// What is to be written to a client.
#[derive(Debug, Default)]
pub struct Output {
    /// The bytes, in order. Whoever writes them takes them away.
    pub bytes: Vec<u8>,
    /// Close the connection once they are written.
    pub close: bool,
    /// What comes behind them: large values, each with what follows it. They are written from where they are, or get into `bytes`
    /// chunk by chunk when somebody asks for those alone.
    later: VecDeque<(SharedBytes, Vec<u8>)>,
}

impl Output {
    /// What is next: bytes, and behind them a large value and what follows it, as far as an output goes at a time.
    pub fn parts(&mut self) -> (&mut Vec<u8>, Option<[&[u8]; 2]>) {
        let behind = self.later.front().map(|(value, behind)| match value.len() <= OUTPUT_CHUNK_BYTES {
            true => [&value[..], behind],
            false => [&value[..OUTPUT_CHUNK_BYTES], &[]],
        });
        (&mut self.bytes, behind)
    }

    /// So much of what is behind `bytes` was written from where it is.
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

    /// True when everything is written and the connection is to be closed.
    pub fn is_over(&self) -> bool {
        self.close && self.is_written()
    }

    /// True when there is nothing to write.
    pub fn is_written(&self) -> bool {
        self.bytes.is_empty() && self.later.is_empty()
    }

    /// The same with some of what comes later, if little is left before it.
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

    /// Where the next reply goes.
    #[inline]
    pub fn end(&mut self) -> &mut Vec<u8> {
        match self.later.back_mut() {
            None => &mut self.bytes,
            Some((_, behind)) => behind,
        }
    }

    /// About how much memory it takes: of values that are shared with others, its share.
    pub(crate) fn memory_bytes(&self) -> usize {
        let later = self.later.iter().map(|(value, behind)| value.share_bytes() + behind.capacity());
        self.bytes.capacity() + later.sum::<usize>()
    }

    pub(crate) fn len(&self) -> usize {
        let later = self.later.iter().map(|(value, behind)| value.len() + behind.len());
        self.bytes.len() + later.sum::<usize>()
    }

    /// A byte string as RESP has it, whichever version, which is written from where it is.
    pub(crate) fn push_value(&mut self, value: SharedBytes) {
        let head = format!("${}\r\n", value.len());
        self.end().extend_from_slice(head.as_bytes());
        self.later.push_back((value, b"\r\n".to_vec()));
    }
}
