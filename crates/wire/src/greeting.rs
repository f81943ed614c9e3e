//! Frames for handshake messages. After the handshake, [`crate::frame`] applies.
//!
//! ```text
//! length of the payload: u32 | CRC-32 of the length's bytes and the payload: u32 | payload
//! ```
//!
//! Both numbers are little-endian. The checksum covers the length too, so that a run of zero bytes, as a file or a
//! faulty network may produce, is not a valid empty message. It detects accidents, not attacks. This format never
//! changes, so that nodes of different releases can read each other's version.

use crate::frame::append_framed;
pub use crate::frame::{FrameError, Next};

/// Length of the header before each payload, in bytes.
pub const HEADER_BYTES: usize = 8;

/// Appends one frame to `out`, whose payload is what `write` appends. `write` must not change the existing bytes.
///
/// # Panics
/// When the payload exceeds 4 GiB, or `write` removed bytes. Every message is limited far below that.
pub fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    append_framed(out, write, |header: &mut [u8; HEADER_BYTES], length, payload| {
        header[..4].copy_from_slice(&length);
        header[4..].copy_from_slice(&checksum(length, payload).to_le_bytes());
    });
}

/// Takes the first frame off `bytes`. A payload over `payload_bytes_max` is refused before it has arrived.
///
/// # Errors
/// [`FrameError`] if the frame is too long or damaged.
pub fn next(bytes: &[u8], payload_bytes_max: usize) -> Result<Next<'_>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(Next::Incomplete { needed: HEADER_BYTES - bytes.len() });
    };
    let [l0, l1, l2, l3, c0, c1, c2, c3] = *header;
    let length_bytes = [l0, l1, l2, l3];
    let length = u32::from_le_bytes(length_bytes) as usize;
    if length > payload_bytes_max {
        return Err(FrameError::TooLong { bytes: length, bytes_max: payload_bytes_max });
    }
    let Some(payload) = rest.get(..length) else {
        return Ok(Next::Incomplete { needed: length - rest.len() });
    };
    let expected = u32::from_le_bytes([c0, c1, c2, c3]);
    let actual = checksum(length_bytes, payload);
    if actual != expected {
        return Err(FrameError::Damaged { bytes: length, expected, actual });
    }
    let consumed = HEADER_BYTES + length;
    assert!(payload.len() == length && consumed <= bytes.len(), "a frame ends beyond what has arrived");
    Ok(Next::Frame { payload, consumed })
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(&mut bytes, |out| out.extend_from_slice(payload));
        bytes
    }

    #[test]
    fn frames_are_delimited() {
        crate::frame::tests::check_frames(framed, next, HEADER_BYTES);
    }

    #[test]
    fn any_changed_bit_is_found() {
        let bytes = framed(b"payload");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // A changed length may also ask for more bytes than were given, or exceed the limit.
            assert!(!matches!(next(&damaged, 1 << 20), Ok(Next::Frame { .. })), "bit {bit}");
        }
    }

    #[test]
    fn zero_bytes_are_not_a_frame() {
        assert!(matches!(next(&[0; 64], 1024), Err(FrameError::Damaged { bytes: 0, .. })));
    }

    #[test]
    fn the_format_is_fixed() {
        assert_eq!(framed(b"quorate"), b"\x07\0\0\0\x3b\xe3\x86\xb6quorate");
    }
}
