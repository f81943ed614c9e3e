//! Frames for handshake messages. After the handshake, [`crate::frame`] applies.
//!
//! ```text
//! length of the payload: u32 | CRC-32 of the length's bytes and the payload: u32 | payload
//! ```
//!
//! Both numbers are little-endian. The checksum covers the length too, so that a run of zero bytes, as a file or a
//! faulty network may produce, is not a valid empty message. It detects accidents, not attacks. This format never
//! changes, so that nodes of different releases can read each other's version.

/// Length of the header before each payload, in bytes.
pub const HEADER_BYTES: usize = 8;

/// Appends one frame to `out`, whose payload is what `write` appends. `write` must not change the existing bytes.
///
/// # Panics
/// When the payload exceeds 4 GiB, or `write` removed bytes. Every message is limited far below that.
pub fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let (header, payload) = out[start..].split_at_mut(HEADER_BYTES);
    let Ok(length) = u32::try_from(payload.len()) else {
        panic!("a frame of {} bytes", payload.len());
    };
    assert!(*header == [0; HEADER_BYTES], "a payload was written over its header");
    let length = length.to_le_bytes();
    header[..4].copy_from_slice(&length);
    header[4..].copy_from_slice(&checksum(length, payload).to_le_bytes());
}

/// The result of [`next`]: what the received bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole frame.
    Frame {
        /// The bytes that the sender wrote.
        payload: &'a [u8],
        /// The frame's length in bytes: the next one begins there.
        consumed: usize,
    },
    /// The beginning of a frame.
    Incomplete {
        /// At least this many more bytes belong to it. Exact once the header has arrived, and then within the limit.
        needed: usize,
    },
}

/// The bytes are not a valid frame. Where the next one would begin is unknown: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The payload is longer than the receiver accepts.
    #[error("a frame announces {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// The announced length, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The bytes differ from those that were sent.
    #[error(
        "a frame of {bytes} bytes is damaged: its checksum is {expected:08x}, its bytes give {actual:08x}"
    )]
    Damaged {
        /// Length of the payload, in bytes.
        bytes: usize,
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the received bytes.
        actual: u32,
    },
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
    fn frames_come_out_in_the_order_in_which_they_went_in() {
        let mut bytes = framed(b"first");
        append(&mut bytes, |_| {});
        append(&mut bytes, |out| out.extend_from_slice(b"third"));

        let mut rest = &bytes[..];
        for expected in [&b"first"[..], b"", b"third"] {
            let Ok(Next::Frame { payload, consumed }) = next(rest, 5) else { panic!("no frame in {rest:?}") };
            assert_eq!(payload, expected);
            rest = &rest[consumed..];
        }
        assert_eq!(next(rest, 5), Ok(Next::Incomplete { needed: HEADER_BYTES }));
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_asks_for_the_rest() {
        let bytes = framed(b"payload");
        for end in 0..bytes.len() {
            let Ok(Next::Incomplete { needed }) = next(&bytes[..end], 7) else { panic!("cut at {end}") };
            let missing = if end < HEADER_BYTES { HEADER_BYTES - end } else { bytes.len() - end };
            assert_eq!(needed, missing, "cut at {end}");
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_by_its_header_alone() {
        let bytes = framed(b"payload");
        assert_eq!(next(&bytes[..HEADER_BYTES], 6), Err(FrameError::TooLong { bytes: 7, bytes_max: 6 }));
        let error = next(&bytes, 6).unwrap_err().to_string();
        assert_eq!(error, "a frame announces 7 bytes; at most 6 are allowed");
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
    fn zero_bytes_are_no_frame() {
        assert!(matches!(next(&[0; 64], 1024), Err(FrameError::Damaged { bytes: 0, .. })));
    }

    #[test]
    fn the_format_is_fixed() {
        assert_eq!(framed(b"quorate"), b"\x07\0\0\0\x3b\xe3\x86\xb6quorate");
    }
}
