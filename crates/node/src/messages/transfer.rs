//! Bytes that are sent in parts, of which a few are under way at a time: long commands to their groups, and long
//! replies to other nodes.

use kv::SharedBytes;

/// Bytes that are sent in parts.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The bytes that were written for this, and the bytes after them. A value is not copied: that would take longer
    /// than a turn may.
    head: SharedBytes,
    bytes: SharedBytes,
    /// How many bytes were sent, and how many the receiver is known to have.
    sent: usize,
    arrived: usize,
}

impl Transfer {
    pub(crate) fn new(head: Vec<u8>, bytes: SharedBytes) -> Transfer {
        Transfer { head: head.into(), bytes, sent: 0, arrived: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.bytes.len()
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    pub(crate) fn arrived(&self) -> usize {
        self.arrived
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.sent == self.len()
    }

    pub(crate) fn has_arrived(&self) -> bool {
        self.arrived == self.len()
    }

    /// Takes the next part: where it begins, and its bytes.
    pub(crate) fn next_part(&mut self, bytes_max: usize) -> (usize, SharedBytes) {
        let begin = self.sent;
        self.sent = self.len().min(begin + bytes_max);
        (begin, self.part(begin, self.sent))
    }

    fn part(&self, begin: usize, end: usize) -> SharedBytes {
        let head_bytes = self.head.len();
        match (begin.checked_sub(head_bytes), end.checked_sub(head_bytes)) {
            (Some(begin), Some(end)) => self.bytes.part(begin, end),
            (None, Some(end)) => [&self.head[begin..], &self.bytes[..end]].concat().into(),
            (_, None) => self.head.part(begin, end),
        }
    }

    /// All bytes. O(bytes).
    pub(crate) fn whole(&self) -> Vec<u8> {
        [&*self.head, &*self.bytes].concat()
    }

    /// Notes how many bytes the receiver has: fewer than before, if it has lost some.
    pub(crate) fn has(&mut self, arrived: usize) {
        self.arrived = arrived.min(self.len());
    }

    /// Goes back to the first byte that the receiver does not have.
    pub(crate) fn go_back(&mut self) {
        self.sent = self.arrived;
    }
}

/// The bytes that are under way: sent, and not known to have arrived.
#[derive(Debug, Default)]
pub(crate) struct Window {
    under_way: usize,
}

impl Window {
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.under_way += bytes;
    }

    /// # Panics
    /// When more has arrived than was sent.
    pub(crate) fn arrived(&mut self, bytes: usize) {
        self.under_way = self.under_way.checked_sub(bytes).expect("what arrives was sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_the_head_of_the_bytes_or_of_both() {
        let bytes = SharedBytes::from(b"value".to_vec());
        for length in 1..=9 {
            let (mut transfer, mut whole) = (Transfer::new(b"head".to_vec(), bytes.clone()), Vec::new());
            while !transfer.is_sent() {
                let (begin, part) = transfer.next_part(length);
                assert_eq!((begin, part.is_empty()), (whole.len(), false));
                whole.extend_from_slice(&part);
            }
            assert_eq!(whole, b"headvalue", "in parts of {length}");
        }
        let mut transfer = Transfer::new(b"head".to_vec(), bytes.clone());
        transfer.next_part(4);
        assert_eq!(transfer.next_part(5).1.as_ptr(), bytes.as_ptr(), "it is not copied");
        transfer.has(6);
        transfer.go_back();
        assert_eq!(transfer.next_part(9), (6, SharedBytes::from(b"lue".to_vec())));
        assert!(transfer.is_sent() && !transfer.has_arrived());
    }
}
