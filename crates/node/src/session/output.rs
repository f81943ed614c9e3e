//! The output that waits to be written to a client.

use kv::codec::Reader;
use kv::{Reply, SharedBytes};
use std::collections::VecDeque;
use wire::resp::reply::{Protocol, write_element};

/// Bytes of large values that are moved into an output at a time.
pub(crate) const OUTPUT_CHUNK_BYTES: usize = 256 << 10;

/// Bytes of a long reply that are translated at a time.
const TRANSLATED_BYTES: usize = 64 << 10;

/// A part of the output that is not copied, or not yet.
#[derive(Debug)]
enum Part {
    /// A large value, in whole or the rest of it.
    Value(SharedBytes),
    /// The rest of a long reply, which is translated as the client takes it.
    Encoded(SharedBytes, Protocol),
}

impl Part {
    fn bytes(&self) -> &SharedBytes {
        let (Part::Value(bytes) | Part::Encoded(bytes, _)) = self;
        bytes
    }
}

/// The output that waits to be written to a client.
#[derive(Debug, Default)]
pub struct Output {
    /// The bytes, in order. The caller removes what it writes.
    pub bytes: Vec<u8>,
    /// Whether to close the connection once everything is written.
    pub close: bool,
    /// What comes after `bytes`: large values and long replies, each with the bytes that follow it. Values are written without
    /// a copy, or moved into `bytes` chunk by chunk for a caller that takes only those.
    later: VecDeque<(Part, Vec<u8>)>,
    /// How many bytes were written so far.
    written_bytes: u64,
}

impl Output {
    /// Returns what is next: `bytes`, and after them a large value and the bytes after it, up to the limit for one
    /// write.
    pub fn parts(&mut self) -> (&mut Vec<u8>, Option<[&[u8]; 2]>) {
        if self.bytes.is_empty() {
            self.translate();
        }
        let behind = match self.later.front() {
            Some((Part::Value(value), behind)) if value.len() <= OUTPUT_CHUNK_BYTES => {
                Some([&value[..], behind])
            }
            Some((Part::Value(value), _)) => Some([&value[..OUTPUT_CHUNK_BYTES], &[]]),
            Some((Part::Encoded(..), _)) | None => None,
        };
        (&mut self.bytes, behind)
    }

    /// Translates some of the long reply that is next, if one is.
    fn translate(&mut self) {
        while self.bytes.len() < TRANSLATED_BYTES
            && let Some((Part::Encoded(encoded, protocol), behind)) = self.later.front_mut()
        {
            let protocol = *protocol;
            let mut reader = Reader::new(encoded);
            let mut large = None;
            while self.bytes.len() < TRANSLATED_BYTES
                && let Ok(element) = Reply::decode(&mut reader)
            {
                match element {
                    Reply::Bulk(value) if value.len() >= OUTPUT_CHUNK_BYTES => {
                        large = Some(value.len());
                        break;
                    }
                    element => write_element(element, protocol, &mut self.bytes),
                }
            }
            let end = encoded.len() - reader.rest().len();
            let rest = encoded.part(end, encoded.len());
            if let Some(length) = large {
                let value = encoded.part(end - length, end);
                let behind = std::mem::take(behind);
                self.later.pop_front();
                self.later.push_front((Part::Encoded(rest, protocol), behind));
                self.bytes.extend_from_slice(format!("${length}\r\n").as_bytes());
                self.later.push_front((Part::Value(value), b"\r\n".to_vec()));
            } else if rest.is_empty() || self.bytes.len() < TRANSLATED_BYTES {
                debug_assert!(
                    rest.is_empty(),
                    "the node wrote this reply, or checked it when a peer sent it"
                );
                self.bytes.append(behind);
                self.later.pop_front();
            } else {
                *encoded = rest;
            }
        }
    }

    /// Notes that this many bytes were written, whatever they were.
    #[inline]
    pub fn note_written(&mut self, bytes: usize) {
        self.written_bytes += bytes as u64;
    }

    /// How many bytes were written so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Notes that `count` bytes of what comes after `bytes` were written without a copy.
    pub fn written_behind(&mut self, count: usize) {
        let Some((Part::Value(value), behind)) = self.later.front_mut() else { return };
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
        while self.bytes.len() < OUTPUT_CHUNK_BYTES && !self.later.is_empty() {
            self.translate();
            let Some((Part::Value(value), behind)) = self.later.front_mut() else {
                match self.bytes.len() < TRANSLATED_BYTES {
                    true => continue,
                    false => break,
                }
            };
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
        let later = self.later.iter().map(|(part, behind)| part.bytes().share_bytes() + behind.capacity());
        self.bytes.capacity() + later.sum::<usize>()
    }

    /// How many bytes are left, a long reply counted as it is encoded. Called before each request.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.later.is_empty() {
            return self.bytes.len();
        }
        let later = self.later.iter().map(|(part, behind)| part.bytes().len() + behind.len());
        self.bytes.len() + later.sum::<usize>()
    }

    /// Appends a byte string, which is the same in both versions of RESP, to be written without a copy.
    pub(crate) fn push_value(&mut self, value: SharedBytes) {
        let head = format!("${}\r\n", value.len());
        self.end().extend_from_slice(head.as_bytes());
        self.later.push_back((Part::Value(value), b"\r\n".to_vec()));
    }

    /// Appends a long reply, to be translated in steps. Large values in it are not copied.
    pub(crate) fn push_encoded(&mut self, reply: SharedBytes, protocol: Protocol) {
        self.later.push_back((Part::Encoded(reply, protocol), Vec::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::ReplyBuffer;
    use wire::resp::reply::write_reply;

    /// Reads all output like a socket that takes `at_a_time` bytes at a time.
    fn read_in_parts(output: &mut Output, at_a_time: usize) -> Vec<u8> {
        let mut read = Vec::new();
        while !output.is_written() {
            let (bytes, behind) = output.parts();
            let of_bytes = at_a_time.min(bytes.len());
            read.extend(bytes.drain(..of_bytes));
            let rest = behind.unwrap_or_default().concat();
            let of_rest = (at_a_time - of_bytes).min(rest.len());
            read.extend_from_slice(&rest[..of_rest]);
            output.written_behind(of_rest);
        }
        read
    }

    #[test]
    fn a_long_reply_is_translated_as_its_client_takes_it() {
        let mut reply = ReplyBuffer::default();
        reply.push(Reply::Pairs(100_000));
        for number in 0..100_000 {
            reply.push(Reply::Pair);
            reply.bulk(format!("member-{number}").as_bytes());
            reply.push(Reply::Double(f64::from(number) / 3.0));
        }
        let encoded = SharedBytes::from(reply.as_bytes().to_vec());
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut expected = Vec::new();
            write_reply(&encoded, protocol, &mut expected).expect("a whole reply");
            expected.extend_from_slice(b"+OK\r\n");
            for at_a_time in [100_000, 300_000, usize::MAX] {
                let mut output = Output::default();
                output.push_encoded(encoded.clone(), protocol);
                output.end().extend_from_slice(b"+OK\r\n");
                assert!(output.bytes.is_empty() && output.len() == encoded.len() + 5);
                assert!(output.parts().0.len() < 2 * TRANSLATED_BYTES, "only the beginning of it");
                assert!(read_in_parts(&mut output, at_a_time) == expected, "{at_a_time} bytes at a time");
            }
        }
    }
}
