//! Lists of byte strings: the arguments of commands on several keys.

use crate::codec::{Malformed, Reader, Writer};

/// Consecutive byte strings, each with its length: the keys of an `MGET`, the pairs of an `MSET`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct List<'a> {
    encoded: &'a [u8],
    count: u32,
}

impl std::fmt::Debug for List<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter().map(|item| item.escape_ascii().to_string())).finish()
    }
}

impl<'a> List<'a> {
    /// Builds a list in `scratch`, which is cleared first.
    pub fn build<'i>(scratch: &'a mut Vec<u8>, items: impl IntoIterator<Item = &'i [u8]>) -> List<'a> {
        scratch.clear();
        let mut count = 0;
        for item in items {
            scratch.put_bytes(item);
            count += 1;
        }
        List { encoded: scratch, count }
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<List<'a>, Malformed> {
        let count = reader.u32()?;
        let encoded = reader.bytes()?;
        if reader.is_checked() {
            return Ok(List { encoded, count });
        }
        let mut items = Reader::new(encoded);
        for _ in 0..count {
            items.bytes()?;
        }
        if !items.is_empty() {
            return Err(Malformed("a list holds more than it says"));
        }
        Ok(List { encoded, count })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.count);
        out.put_bytes(self.encoded);
    }

    /// All items, each with its length: see [`List::of_encoded`].
    pub(crate) fn encoded(&self) -> &'a [u8] {
        self.encoded
    }

    /// The first `count` items of those that [`List::encoded`] has returned, or that follow in it.
    pub(crate) fn of_encoded(encoded: &'a [u8], count: usize) -> List<'a> {
        let mut reader = Reader::new(encoded);
        let taken = (0..count).map_while(|_| reader.bytes().ok()).count();
        List { encoded: &encoded[..encoded.len() - reader.rest().len()], count: taken as u32 }
    }

    /// The bytes that an item takes in [`List::encoded`].
    pub(crate) fn length_of(item: &[u8]) -> usize {
        size_of::<u32>() + item.len()
    }

    /// Bytes of all items with their lengths.
    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// The first item; empty if there is none.
    pub(crate) fn first(&self) -> &'a [u8] {
        self.iter().next().unwrap_or_default()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let mut reader = Reader::new(self.encoded);
        std::iter::from_fn(move || reader.bytes().ok())
    }

    /// The items in pairs: keys with their values. An odd item at the end is ignored.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let mut reader = Reader::new(self.encoded);
        std::iter::from_fn(move || Some((reader.bytes().ok()?, reader.bytes().ok()?)))
    }
}
