//! The texts of scripts by their digests, for `EVALSHA`.
//!
//! Each node has its own cache. A script that is run by its digest is forwarded and recorded with its text, so nothing that
//! is replicated depends on a node's cache.

use sha1::Digest as _;
use std::collections::BTreeMap;
use std::fmt;

/// The most bytes of texts that a node remembers.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// The memory of a remembered text, besides its bytes.
const ITEM_BYTES: usize = 200;

/// The SHA-1 of a text. Not for security: a client that knows it knows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 20]);

/// The digest of a text.
pub fn digest_of(text: &[u8]) -> Digest {
    Digest(sha1::Sha1::digest(text).into())
}

impl Digest {
    /// Parses 40 hexadecimal digits of either case.
    pub fn parse(text: &[u8]) -> Option<Digest> {
        let mut bytes = [0; 20];
        let (pairs, []) = text.as_chunks::<2>() else { return None };
        if pairs.len() != bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(Digest(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

#[derive(Debug)]
struct Item {
    text: Box<[u8]>,
    used: u64,
}

/// Remembers the texts that were used last.
#[derive(Debug, Default)]
pub struct Cache {
    items: BTreeMap<Digest, Item>,
    /// The digests in the order of their last use.
    order: BTreeMap<u64, Digest>,
    uses: u64,
    bytes: usize,
}

impl Cache {
    /// Returns the text with this digest, and counts that as a use.
    pub fn find(&mut self, digest: Digest) -> Option<&[u8]> {
        let item = self.items.get_mut(&digest)?;
        self.uses += 1;
        self.order.remove(&item.used);
        self.order.insert(self.uses, digest);
        item.used = self.uses;
        Some(&item.text)
    }

    /// Whether the text with this digest is here. Does not count as a use.
    pub fn has(&self, digest: Digest) -> bool {
        self.items.contains_key(&digest)
    }

    /// Remembers a text, and forgets the least recently used ones if there are too many.
    pub fn remember(&mut self, text: &[u8]) -> Digest {
        let digest = digest_of(text);
        if self.find(digest).is_some() {
            return digest;
        }
        self.uses += 1;
        self.order.insert(self.uses, digest);
        self.items.insert(digest, Item { text: text.into(), used: self.uses });
        self.bytes += text.len() + ITEM_BYTES;
        while self.bytes > CACHE_BYTES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            let gone = self.items.remove(&oldest).map_or(0, |item| item.text.len() + ITEM_BYTES);
            self.bytes -= gone;
        }
        digest
    }

    /// Forgets all texts.
    pub fn clear(&mut self) {
        *self = Cache::default();
    }

    /// Returns the number of texts, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        (self.items.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_parsed_in_either_case() {
        let digest = digest_of(b"return 1");
        assert_eq!(digest.to_string(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(Digest::parse(digest.to_string().as_bytes()), Some(digest));
        assert_eq!(Digest::parse(digest.to_string().to_uppercase().as_bytes()), Some(digest));
        for not in [&b""[..], b"ff", &[b'g'; 40], &[b'f'; 42], &[b'f'; 41]] {
            assert_eq!(Digest::parse(not), None);
        }
    }

    #[test]
    fn the_least_recently_used_text_is_forgotten_first() {
        let text = |number: u8| vec![number; CACHE_BYTES_MAX / 4];
        let mut cache = Cache::default();
        let digests: Vec<Digest> = (0..3).map(|number| cache.remember(&text(number))).collect();
        assert_eq!(cache.find(digests[0]), Some(&text(0)[..]));
        let newest = cache.remember(&text(3));
        assert!(!cache.has(digests[1]), "it was used before the others");
        assert!(cache.has(digests[0]) && cache.has(digests[2]) && cache.has(newest));
        cache.clear();
        assert!(!cache.has(newest));
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn a_text_is_remembered_once() {
        let mut cache = Cache::default();
        assert_eq!(cache.remember(b"return 1"), cache.remember(b"return 1"));
        assert_eq!(cache.size(), (1, 8 + ITEM_BYTES));
    }
}
