//! Numbers for byte strings.
//!
//! A history repeats its keys and values often, and a search compares values all the time. Each different byte string
//! is therefore stored once, in one arena, and represented by a number.

use hashbrown::HashTable;
use rapidhash::v3::rapidhash_v3;

/// Byte strings, numbered from 0 in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner {
    bytes: Vec<u8>,
    /// Where each byte string ends in `bytes`; it begins where the previous one ends.
    ends: Vec<usize>,
    /// For membership only: the order of this table is never used.
    numbers: HashTable<u32>,
}

impl Interner {
    /// Returns the number of `item`, which is new if `item` is.
    pub(crate) fn intern(&mut self, item: &[u8]) -> u32 {
        let Interner { bytes, ends, numbers } = self;
        let found = numbers.find(rapidhash_v3(item), |number| slice(bytes, ends, *number) == item);
        if let Some(number) = found {
            return *number;
        }
        let number = ends.len() as u32;
        bytes.extend_from_slice(item);
        ends.push(bytes.len());
        numbers.insert_unique(rapidhash_v3(item), number, |number| rapidhash_v3(slice(bytes, ends, *number)));
        number
    }

    /// Returns the byte string with this number, which must be from this interner.
    pub(crate) fn get(&self, number: u32) -> &[u8] {
        slice(&self.bytes, &self.ends, number)
    }

    /// Returns the number of different byte strings.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &bytes[start..ends[number]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_get_the_same_number() {
        let mut interner = Interner::default();
        let items: Vec<Vec<u8>> = (0..1000).map(|i: u32| i.to_string().into_bytes()).collect();
        let first: Vec<u32> = items.iter().map(|item| interner.intern(item)).collect();
        let again: Vec<u32> = items.iter().map(|item| interner.intern(item)).collect();
        assert_eq!(first, again);
        assert_eq!(first, (0..1000).collect::<Vec<_>>());
        assert_eq!(interner.intern(b""), 1000, "the empty string is a string");
        assert!(items.iter().zip(&first).all(|(item, number)| interner.get(*number) == item));
        assert_eq!(interner.len(), 1001);
    }
}
