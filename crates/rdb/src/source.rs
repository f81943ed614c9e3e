//! Reading lengths and strings from a payload or a file.

use crate::crc::Crc;
use crate::lzf;
use std::io::{self, Read};

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {why}")]
pub struct Damaged {
    /// The place, in bytes from the beginning.
    pub at: u64,
    /// What is wrong.
    pub why: &'static str,
}

/// Why reading ended.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The bytes are damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The value is longer than [`Source::keep`] allows.
    #[error("the value is longer than what is kept of one")]
    TooLong,
}

/// Bytes of the longest integer that has a form of its own, as text.
const INTEGER_TEXT_BYTES: u64 = 11;

/// The most memory allocated at once for bytes that may not arrive.
const TAKEN_AT_ONCE: u64 = 1 << 16;

/// Reads from bytes or from a file.
#[derive(Debug)]
pub struct Source<R> {
    inner: R,
    at: u64,
    crc: Option<Crc>,
    /// Bytes to be read again, from an index on.
    again: (Vec<u8>, usize),
    kept: Option<Kept>,
    /// How many more bytes compressed strings may expand to.
    expands_max: u64,
    /// While a value is read to its end although it is damaged within: what was found.
    noted: Option<Noted>,
    packed: Vec<u8>,
}

/// What was read since [`Source::keep`].
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    most: usize,
    start: (u64, Option<Crc>),
}

/// The first damage within a value, and the first number of entries that was wrong.
#[derive(Debug, Default)]
struct Noted {
    damaged: Option<Damaged>,
    miscounted: Option<Damaged>,
}

/// A length, or the number of a special form of a string.
enum Length {
    Plain(u64),
    Special(u8),
}

impl<R: Read> Source<R> {
    /// Reads from `inner`, whose first byte is counted as byte `at`.
    pub fn new(inner: R, at: u64) -> Source<R> {
        Source {
            inner,
            at,
            crc: None,
            again: (Vec::new(), 0),
            kept: None,
            expands_max: u64::MAX,
            noted: None,
            packed: Vec::new(),
        }
    }

    /// Limits the total bytes to which compressed strings may expand.
    pub fn limit_expansion(&mut self, bytes: u64) {
        self.expands_max = bytes;
    }

    /// Begins a checksum of all that is read from here on.
    pub fn begin_checksum(&mut self) {
        self.crc = Some(Crc::default());
    }

    /// The checksum since [`Source::begin_checksum`].
    pub fn checksum(&self) -> u64 {
        self.crc.map_or(0, Crc::value)
    }

    /// The place, in bytes.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns the underlying reader.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// Keeps the bytes read from here on, until [`Source::kept`] or [`Source::rewind`]. Beyond `most` bytes, reading
    /// fails with [`Fault::TooLong`].
    pub fn keep(&mut self, most: usize) {
        self.kept = Some(Kept { bytes: Vec::new(), most, start: (self.at, self.crc) });
    }

    /// Returns the bytes read since [`Source::keep`], and stops keeping them.
    pub fn kept(&mut self) -> Vec<u8> {
        self.kept.take().map(|kept| kept.bytes).unwrap_or_default()
    }

    /// Returns to the place where [`Source::keep`] was called.
    pub fn rewind(&mut self) {
        let Some(Kept { mut bytes, start, .. }) = self.kept.take() else { return };
        (self.at, self.crc) = start;
        bytes.extend_from_slice(&self.again.0[self.again.1..]);
        self.again = (bytes, 0);
    }

    /// From here on, damage that does not hide where a value ends is noted, and is no error.
    pub(crate) fn begin_noting(&mut self) {
        self.noted = Some(Noted::default());
    }

    /// Ends that, and returns the first damage, and the first number of entries that was wrong.
    pub(crate) fn end_noting(&mut self) -> (Option<Damaged>, Option<Damaged>) {
        let Noted { damaged, miscounted } = self.noted.take().unwrap_or_default();
        (damaged, miscounted)
    }

    /// Whether no damage was noted.
    pub(crate) fn is_sound(&self) -> bool {
        self.noted.as_ref().is_none_or(|noted| noted.damaged.is_none())
    }

    /// Notes damage within a value.
    ///
    /// # Errors
    /// The damage, if none is to be noted.
    pub(crate) fn note(&mut self, damaged: Damaged) -> Result<(), Fault> {
        let noted = self.noted.as_mut().ok_or(Fault::Damaged(damaged))?;
        noted.damaged.get_or_insert(damaged);
        Ok(())
    }

    /// Notes a number of entries, or a last id, that is wrong.
    ///
    /// # Errors
    /// It, if none is to be noted.
    pub(crate) fn note_count(&mut self, damaged: Damaged) -> Result<(), Fault> {
        let noted = self.noted.as_mut().ok_or(Fault::Damaged(damaged))?;
        noted.miscounted.get_or_insert(damaged);
        Ok(())
    }

    pub(crate) fn damaged(&self, why: &'static str) -> Fault {
        Fault::Damaged(Damaged { at: self.at, why })
    }

    /// Notes bytes that were read.
    fn count(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
        if let Some(crc) = &mut self.crc {
            crc.add(bytes);
        }
        if let Some(kept) = &mut self.kept {
            kept.bytes.extend_from_slice(bytes);
        }
    }

    fn check_room(&self, count: u64) -> Result<(), Fault> {
        match &self.kept {
            Some(kept) if kept.bytes.len() as u64 + count > kept.most as u64 => Err(Fault::TooLong),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), Fault> {
        self.check_room(out.len() as u64)?;
        let again = &self.again.0[self.again.1..];
        let from_again = again.len().min(out.len());
        let (first, rest) = out.split_at_mut(from_again);
        first.copy_from_slice(&again[..from_again]);
        self.again.1 += from_again;
        if let Err(error) = self.inner.read_exact(rest) {
            return Err(match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damaged("the bytes end early"),
                _ => Fault::Read(error),
            });
        }
        self.count(out);
        Ok(())
    }

    /// Reads `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.array::<1>()?[0])
    }

    /// Appends `count` bytes to `out`. Allocates no memory for bytes that do not arrive.
    pub fn bytes(&mut self, count: u64, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.check_room(count)?;
        let mut left = count;
        while left > 0 {
            let (start, step) = (out.len(), left.min(TAKEN_AT_ONCE));
            out.resize(start + step as usize, 0);
            self.fill(&mut out[start..])?;
            left -= step;
        }
        Ok(())
    }

    fn any_length(&mut self) -> Result<Length, Fault> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Plain(first.into()),
            1 => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Length::Plain(u32::from_be_bytes(self.array()?).into()),
            2 if first == 0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            3 => Length::Special(first & 0x3f),
            _ => return Err(self.damaged("a length that is none")),
        })
    }

    /// Reads a length, or another number.
    pub fn length(&mut self) -> Result<u64, Fault> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(self.damaged("a string where a length should be")),
        }
    }

    /// Reads a string into `out`, which is cleared first.
    pub fn text(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        out.clear();
        let integer = match self.any_length()? {
            Length::Plain(length) => return self.bytes(length, out),
            Length::Special(0) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Special(1) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Special(2) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Special(3) => return self.expanded(out),
            Length::Special(_) => return Err(self.damaged("a string in an unknown form")),
        };
        out.extend_from_slice(crate::packed::decimal(integer, &mut [0; 20]));
        Ok(())
    }

    fn expanded(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let (packed_bytes, length) = (self.length()?, self.length()?);
        let left = self.expands_max.checked_sub(length);
        self.expands_max = left.ok_or_else(|| self.damaged("a compressed string that is too long"))?;
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        self.bytes(packed_bytes, &mut packed)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let is_whole = lzf::expand(&packed, length, out);
        self.packed = packed;
        match is_whole {
            true => Ok(()),
            false => self.note(Damaged { at: self.at, why: "a compressed string that is damaged" }),
        }
    }
}

impl Source<&[u8]> {
    /// Skips a string, and returns its length. A compressed one is not expanded.
    pub(crate) fn skip_text(&mut self) -> Result<u64, Fault> {
        let (kept, length) = match self.any_length()? {
            Length::Plain(length) => (length, length),
            Length::Special(form @ 0..=2) => (1 << form, INTEGER_TEXT_BYTES),
            Length::Special(3) => (self.length()?, self.length()?),
            Length::Special(_) => return Err(self.damaged("a string in an unknown form")),
        };
        self.skip(kept)?;
        Ok(length)
    }

    /// Skips bytes.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), Fault> {
        let rest = usize::try_from(count).ok().and_then(|count| self.inner.get(count..));
        self.inner = rest.ok_or_else(|| self.damaged("the bytes end early"))?;
        self.at += count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        let (mut source, mut found) = (Source::new(bytes, 0), Vec::new());
        while source.at() < bytes.len() as u64 {
            let mut text = Vec::new();
            source.text(&mut text)?;
            found.push(text);
        }
        Ok(found)
    }

    #[test]
    fn strings_have_several_forms() {
        let long = [&b"\x41\x00"[..], &[b'l'; 256]].concat();
        let bytes = [b"\x02hi\xc0\xff\xc1\x00\x80\xc2\xff\xff\xff\x7f\xc3\x02\x01\x00z", &long[..]].concat();
        let expected: [&[u8]; 6] = [b"hi", b"-1", b"-32768", b"2147483647", b"z", &[b'l'; 256]];
        assert_eq!(texts(&bytes).unwrap(), expected);
    }

    #[test]
    fn a_length_causes_no_allocation_before_its_bytes_arrive() {
        let Err(Fault::Damaged(damaged)) = texts(b"\x81\x7f\xff\xff\xff\xff\xff\xff\xffabc") else {
            panic!()
        };
        assert_eq!(damaged, Damaged { at: 9, why: "the bytes end early" });
        let bytes = [&b"\xc3\x02\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00z"[..]].concat();
        assert!(texts(&bytes).is_err());
    }

    #[test]
    fn kept_bytes_are_read_again() {
        let mut source = Source::new(&b"\x01a\x01b\x01c"[..], 0);
        source.begin_checksum();
        let mut text = Vec::new();
        source.keep(4);
        source.text(&mut text).unwrap();
        source.text(&mut text).unwrap();
        assert!(matches!(source.text(&mut text), Err(Fault::TooLong)));
        source.rewind();
        assert_eq!(source.at(), 0);
        for name in [b"a", b"b", b"c"] {
            source.text(&mut text).unwrap();
            assert_eq!(text, name);
        }
        assert_eq!(source.checksum(), Crc::of(b"\x01a\x01b\x01c"));
    }
}
