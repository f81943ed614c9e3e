//! Frames: how the messages of peers are delimited on a link.
//!
//! ```text
//! length of the payload: u32 | tag of the length: 5 bytes | payload | tag of the payload: 16 bytes
//! ```
//!
//! The length is little-endian. The sender's code leaves the tags zero. [`crate::seal`] fills them in on the way to a
//! socket and checks them on the way from one, so nothing above the socket handles keys.

/// Length of the header before each payload, in bytes.
pub const HEADER_BYTES: usize = LENGTH_BYTES + LENGTH_TAG_BYTES;

/// Length of the tag after each payload, in bytes.
pub const TAG_BYTES: usize = 16;

pub(crate) const LENGTH_BYTES: usize = 4;
pub(crate) const LENGTH_TAG_BYTES: usize = 5;

/// Appends one frame to `out`, whose payload is what `write` appends. `write` must not change the existing bytes.
///
/// # Panics
/// When the payload exceeds 4 GiB, or `write` removed bytes. Every message is limited far below that.
pub fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    append_framed(out, write, |header: &mut [u8; HEADER_BYTES], length, _| {
        header[..LENGTH_BYTES].copy_from_slice(&length);
    });
    out.extend_from_slice(&[0; TAG_BYTES]);
}

/// Appends a header and what `write` appends. `head` gets the header (zero until then), the encoded length of the
/// payload, and the payload.
#[inline]
pub(crate) fn append_framed<const HEADER: usize>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
    head: impl FnOnce(&mut [u8; HEADER], [u8; LENGTH_BYTES], &[u8]),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let Some((header, payload)) = out[start..].split_first_chunk_mut() else {
        panic!("a payload was written over its header");
    };
    let Ok(length) = u32::try_from(payload.len()) else {
        panic!("a frame of {} bytes", payload.len());
    };
    assert!(*header == [0; HEADER], "a payload was written over its header");
    head(header, length.to_le_bytes(), payload);
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
    /// The frame is not the one that the peer sent at this position.
    #[error(
        "frame {sequence} is not the one that the peer sent in this place: it was changed, repeated, left out or moved \
         on the way"
    )]
    Forged {
        /// The number of frames before it on this connection.
        sequence: u64,
    },
    /// The bytes differ from those that were sent. For frames with a checksum: see [`crate::greeting`].
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
    /// A frame that was not sealed has a tag.
    #[error("a frame of {bytes} bytes has a tag, where none was expected")]
    Sealed {
        /// Length of the payload, in bytes.
        bytes: usize,
    },
}

/// Takes the first frame off bytes that were not sealed. A payload over `payload_bytes_max` is refused.
///
/// # Errors
/// [`FrameError`] if the frame is too long or sealed.
pub fn next(bytes: &[u8], payload_bytes_max: usize) -> Result<Next<'_>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk() else {
        return Ok(Next::Incomplete { needed: HEADER_BYTES - bytes.len() });
    };
    let Header { length, length_tag } = Header::of(header);
    let length = length as usize;
    if length > payload_bytes_max {
        return Err(FrameError::TooLong { bytes: length, bytes_max: payload_bytes_max });
    }
    let Some((payload, tag)) = rest.get(..length + TAG_BYTES).map(|rest| rest.split_at(length)) else {
        return Ok(Next::Incomplete { needed: length + TAG_BYTES - rest.len() });
    };
    if length_tag != [0; LENGTH_TAG_BYTES] || tag != [0; TAG_BYTES] {
        return Err(FrameError::Sealed { bytes: length });
    }
    let consumed = HEADER_BYTES + length + TAG_BYTES;
    assert!(payload.len() == length && consumed <= bytes.len(), "a frame ends beyond what has arrived");
    Ok(Next::Frame { payload, consumed })
}

/// The header before a payload.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) length: u32,
    pub(crate) length_tag: [u8; LENGTH_TAG_BYTES],
}

impl Header {
    pub(crate) fn of(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [a, b, c, d, length_tag @ ..] = *bytes;
        Header { length: u32::from_le_bytes([a, b, c, d]), length_tag }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(&mut bytes, |out| out.extend_from_slice(payload));
        bytes
    }

    /// Checks the properties of all frames, whatever is in their headers.
    pub(crate) fn check_frames(
        framed: fn(&[u8]) -> Vec<u8>,
        next: for<'a> fn(&'a [u8], usize) -> Result<Next<'a>, FrameError>,
        header_bytes: usize,
    ) {
        // The frames are read in the order in which they were written.
        let bytes = [framed(b"first"), framed(b""), framed(b"third")].concat();
        let mut rest = &bytes[..];
        for expected in [&b"first"[..], b"", b"third"] {
            let Ok(Next::Frame { payload, consumed }) = next(rest, 5) else { panic!("no frame in {rest:?}") };
            assert_eq!(payload, expected);
            rest = &rest[consumed..];
        }
        assert_eq!(next(rest, 5), Ok(Next::Incomplete { needed: header_bytes }));

        // A frame that is cut anywhere needs the rest.
        let bytes = framed(b"payload");
        for end in 0..bytes.len() {
            let Ok(Next::Incomplete { needed }) = next(&bytes[..end], 7) else { panic!("cut at {end}") };
            let missing = if end < header_bytes { header_bytes - end } else { bytes.len() - end };
            assert_eq!(needed, missing, "cut at {end}");
        }

        // A frame over the limit is refused by its header alone.
        assert_eq!(next(&bytes[..header_bytes], 6), Err(FrameError::TooLong { bytes: 7, bytes_max: 6 }));
        let error = next(&bytes, 6).unwrap_err().to_string();
        assert_eq!(error, "a frame announces 7 bytes; at most 6 are allowed");
    }

    #[test]
    fn frames_are_delimited() {
        check_frames(framed, next, HEADER_BYTES);
        // After other frames, and empty.
        let mut bytes = framed(b"first");
        append(&mut bytes, |_| {});
        assert_eq!(bytes, [framed(b"first"), framed(b"")].concat());
    }

    #[test]
    fn the_format_is_fixed() {
        assert_eq!(framed(b"quorate"), [&b"\x07\0\0\0"[..], &[0; 5], b"quorate", &[0; 16]].concat());
    }
}
