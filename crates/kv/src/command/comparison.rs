//! Conditions on a value, for `SET … IFEQ` and similar options.
//!
//! A digest is the 64 bits of XXH3, as in Redis 8.4: a client that holds a large value sends 16 characters instead.

use super::declaration::Part;
use crate::codec::{Malformed, Reader, Writer};
use crate::digest::digest_of;

/// Number of hexadecimal digits of a digest, as clients write it.
pub const DIGEST_HEX_BYTES: usize = 16;

/// A condition on the current value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison<'a> {
    /// The value equals this one (`IFEQ`). False for a key that does not exist.
    Equal(&'a [u8]),
    /// The value differs from this one (`IFNE`). True for a key that does not exist.
    NotEqual(&'a [u8]),
    /// The value's digest equals this one (`IFDEQ`). False for a key that does not exist.
    DigestEqual(u64),
    /// The value's digest differs from this one (`IFDNE`). True for a key that does not exist.
    DigestNotEqual(u64),
    /// `IFDNE` with what is no digest, which Redis sees only when it compares. True for a key that does not exist, otherwise an
    /// error. Known from level 2 on.
    NoDigest,
}

const EQUAL: u8 = 0;
const NOT_EQUAL: u8 = 1;
const DIGEST_EQUAL: u8 = 2;
const DIGEST_NOT_EQUAL: u8 = 3;
const NO_DIGEST: u8 = 4;

impl<'a> Comparison<'a> {
    /// Whether it holds for a value, or for a key that does not exist.
    pub fn holds(&self, value: Option<&[u8]>) -> bool {
        match *self {
            Comparison::Equal(other) => value == Some(other),
            Comparison::NotEqual(other) => value != Some(other),
            Comparison::DigestEqual(digest) => value.map(digest_of) == Some(digest),
            Comparison::DigestNotEqual(digest) => value.map(digest_of) != Some(digest),
            Comparison::NoDigest => value.is_none(),
        }
    }

    /// Bytes of the value to compare with.
    pub(super) fn payload_bytes(&self) -> usize {
        match self {
            Comparison::Equal(value) | Comparison::NotEqual(value) => value.len(),
            Comparison::DigestEqual(_) | Comparison::DigestNotEqual(_) | Comparison::NoDigest => 0,
        }
    }

    /// Parses a digest as a client writes it, in upper or lower case.
    pub fn digest_from_hex(text: &[u8]) -> Option<u64> {
        let is_digest = text.len() == DIGEST_HEX_BYTES && text.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(text).ok().filter(|_| is_digest)?;
        u64::from_str_radix(text, 16).ok()
    }
}

impl<'a> Part<'a> for Comparison<'a> {
    fn put(self, out: &mut Vec<u8>) {
        match self {
            Comparison::Equal(value) => {
                out.put_u8(EQUAL);
                out.put_bytes(value);
            }
            Comparison::NotEqual(value) => {
                out.put_u8(NOT_EQUAL);
                out.put_bytes(value);
            }
            Comparison::DigestEqual(digest) => {
                out.put_u8(DIGEST_EQUAL);
                out.put_u64(digest);
            }
            Comparison::DigestNotEqual(digest) => {
                out.put_u8(DIGEST_NOT_EQUAL);
                out.put_u64(digest);
            }
            Comparison::NoDigest => out.put_u8(NO_DIGEST),
        }
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            EQUAL => Comparison::Equal(reader.bytes()?),
            NOT_EQUAL => Comparison::NotEqual(reader.bytes()?),
            DIGEST_EQUAL => Comparison::DigestEqual(reader.u64()?),
            DIGEST_NOT_EQUAL => Comparison::DigestNotEqual(reader.u64()?),
            NO_DIGEST => Comparison::NoDigest,
            _ => return Err(Malformed("unknown comparison")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_same_as_in_redis() {
        assert_eq!(digest_of(b"Hello world"), 0xb6ac_b9d8_4a38_ff74, "the example of Redis's documentation");
        assert_eq!(Comparison::digest_from_hex(b"B6acb9d84a38ff74"), Some(0xb6ac_b9d8_4a38_ff74));
        for text in ["b6acb9d84a38ff7", "b6acb9d84a38ff741", "+6acb9d84a38ff74", ""] {
            assert_eq!(Comparison::digest_from_hex(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_missing_key_equals_nothing() {
        let comparisons = |other: &'static [u8]| {
            use Comparison::*;
            [Equal(other), NotEqual(other), DigestEqual(digest_of(other)), DigestNotEqual(digest_of(other))]
        };
        assert_eq!(comparisons(b"v").map(|is| is.holds(Some(b"v"))), [true, false, true, false]);
        assert_eq!(comparisons(b"v").map(|is| is.holds(Some(b"w"))), [false, true, false, true]);
        assert_eq!(comparisons(b"").map(|is| is.holds(None)), [false, true, false, true]);
    }
}
