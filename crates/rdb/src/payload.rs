//! What `DUMP` returns: the number of a type, a value, the version of the format in two bytes, and a checksum. Also
//! what `FUNCTION DUMP` returns: libraries instead of the value.

use crate::crc::Crc;
use crate::source::{Fault, Source};
use crate::value::Form;
use crate::weigh::{self, Weight};
use crate::write::put_text;
use crate::write::tag::LIBRARY;

/// The version in which values are written: Redis 7.0's.
pub const VERSION: u16 = 10;

/// The version in which hashes with deadlines of fields are written: Redis 7.4's.
pub const VERSION_WITH_DEADLINES: u16 = 12;

/// The versions that are read: Redis's, and Valkey's own.
const READ: [std::ops::RangeInclusive<u16>; 2] = [1..=16, 80..=81];

/// The bytes after the value.
pub const FOOTER_BYTES: usize = 10;

/// Why a payload is refused before its value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is too short, its version is unknown, or its checksum is wrong.
    Footer,
    /// Its type has this number, which is unknown.
    Type(u8),
}

/// Checks a payload. Returns the form of its value, and a source to read the value from.
///
/// # Errors
/// [`Refusal`] if its value cannot be read.
pub fn open(payload: &[u8]) -> Result<(Form, Source<&[u8]>), Refusal> {
    let (value, version) = checked(payload)?;
    let (tag, value) = value.split_first().ok_or(Refusal::Footer)?;
    let form = Form::of(*tag, version.into()).ok_or(Refusal::Type(*tag))?;
    Ok((form, Source::new(value, 1)))
}

/// The size of a payload's value, by the lengths in it: nothing is expanded, and the checksum is not compared. `None` if
/// it holds no value that can be read.
pub fn weigh(payload: &[u8]) -> Option<Weight> {
    let (tag, value) = content(payload)?;
    let version = payload.get(payload.len() - FOOTER_BYTES..)?.first_chunk::<2>()?;
    let form = Form::of(tag, u16::from_le_bytes(*version).into())?;
    weigh::weigh(form, &mut Source::new(value, 1)).ok()
}

/// Returns the texts of the libraries in a payload of `FUNCTION DUMP`; compressed ones are expanded. See
/// [`library_bytes`].
///
/// # Errors
/// [`Refusal`] if it contains anything else.
pub fn libraries(payload: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut texts = Vec::new();
    for_each_library(payload, |source| {
        let mut text = Vec::new();
        source.text(&mut text)?;
        texts.push(text);
        Ok(())
    })?;
    Ok(texts)
}

/// How many bytes [`libraries`] would return, by the lengths in the payload: nothing is expanded.
///
/// # Errors
/// [`Refusal`] if it contains anything else.
pub fn library_bytes(payload: &[u8]) -> Result<u64, Refusal> {
    let mut bytes = 0_u64;
    for_each_library(payload, |source| {
        bytes = bytes.saturating_add(source.skip_text()?);
        Ok(())
    })?;
    Ok(bytes)
}

fn for_each_library(
    payload: &[u8],
    mut take: impl FnMut(&mut Source<&[u8]>) -> Result<(), Fault>,
) -> Result<(), Refusal> {
    let (value, _) = checked(payload)?;
    let mut source = Source::new(value, 0);
    while source.at() < value.len() as u64 {
        let tag = source.byte().map_err(|_| Refusal::Footer)?;
        if tag != LIBRARY {
            return Err(Refusal::Type(tag));
        }
        take(&mut source).map_err(|_| Refusal::Footer)?;
    }
    Ok(())
}

/// Appends the text of a library. [`close`] follows the last one.
pub fn put_library(text: &[u8], out: &mut Vec<u8>) {
    out.push(LIBRARY);
    put_text(text, out);
}

/// The bytes before the footer of a payload, and its version.
fn checked(payload: &[u8]) -> Result<(&[u8], u16), Refusal> {
    let (head, crc) = payload.split_last_chunk::<8>().ok_or(Refusal::Footer)?;
    let (value, version) = head.split_last_chunk::<2>().ok_or(Refusal::Footer)?;
    let (version, crc) = (u16::from_le_bytes(*version), u64::from_le_bytes(*crc));
    // A checksum of zero means that there is none.
    if !READ.iter().any(|range| range.contains(&version)) || crc != 0 && crc != Crc::of(head) {
        return Err(Refusal::Footer);
    }
    Ok((value, version))
}

/// The number of a payload's type, and its value, without the footer.
pub fn content(payload: &[u8]) -> Option<(u8, &[u8])> {
    let (tag, rest) = payload.split_first()?;
    Some((*tag, rest.get(..rest.len().checked_sub(FOOTER_BYTES)?)?))
}

/// Appends the footer of a payload that begins, with the number of its type, at `start`.
pub fn close(version: u16, start: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&version.to_le_bytes());
    let crc = Crc::of(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(content: &[u8]) -> Vec<u8> {
        let mut payload = content.to_vec();
        close(VERSION, 0, &mut payload);
        payload
    }

    #[test]
    fn libraries_read_back_and_anything_else_is_refused() {
        let texts = [&b"#!lua name=a\nreturn 1"[..], &[b'x'; 20_000], b"17"];
        let mut content = Vec::new();
        texts.iter().for_each(|text| put_library(text, &mut content));
        assert_eq!(libraries(&payload(&content)), Ok(texts.map(<[u8]>::to_vec).into()));
        assert_eq!(libraries(&payload(b"")), Ok(Vec::new()));
        for length in 1..content.len() {
            let cut = libraries(&payload(&content[..length]));
            assert!(cut == Err(Refusal::Footer) || cut.is_ok_and(|texts| texts.len() < 3), "{length}");
        }
        assert_eq!(libraries(&payload(b"\x00\x01a")), Err(Refusal::Type(0)));
        assert_eq!(libraries(b"bad_payload"), Err(Refusal::Footer));
        assert_eq!(libraries(b""), Err(Refusal::Footer));
    }

    /// As Redis 7.0.15 returns it to `FUNCTION DUMP`.
    #[test]
    fn a_payload_of_redis_is_read_and_written() {
        let text = b"#!lua name=t\nredis.register_function(\"f\", function() return 1 end)";
        let head = [&[0xf5, 0x40, 0x42][..], text].concat();
        let of_redis = [&head[..], &[0x0a, 0, 0x70, 0x08, 0x79, 0xe7, 0xd5, 0x3d, 0x83, 0x9b]].concat();
        let mut content = Vec::new();
        put_library(text, &mut content);
        assert_eq!(payload(&content), of_redis);
        assert_eq!(libraries(&of_redis), Ok(vec![text.to_vec()]));
    }

    #[test]
    fn libraries_are_weighed_without_expanding_them() {
        // 265 bytes in five.
        let mut content = vec![LIBRARY, 0xc3, 5, 0x41, 0x09, 0, b'z', 0xe0, 0xff, 0];
        put_library(b"#!lua name=a", &mut content);
        assert_eq!(library_bytes(&payload(&content)), Ok(265 + 12));
        let texts = libraries(&payload(&content)).unwrap();
        assert_eq!(texts, [vec![b'z'; 265], b"#!lua name=a".to_vec()]);
        // One that says that it has a petabyte.
        content.extend_from_slice(&[LIBRARY, 0xc3, 2, 0x81]);
        content.extend_from_slice(&(1_u64 << 50).to_be_bytes());
        content.extend_from_slice(b"\x00z");
        assert_eq!(library_bytes(&payload(&content)), Ok(265 + 12 + (1 << 50)));
        assert_eq!(library_bytes(&payload(b"\x00\x01a")), Err(Refusal::Type(0)));
        assert_eq!(library_bytes(&payload(&content[..content.len() - 1])), Err(Refusal::Footer));
    }
}
