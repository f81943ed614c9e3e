//! Strings that were compressed with LZF.

/// Appends the expansion of `packed`, which must have exactly `length` bytes; returns whether it has.
///
/// A compressed string may claim a far greater length than it has, so memory is allocated as bytes are produced.
pub(crate) fn expand(packed: &[u8], length: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut rest = packed;
    while let Some((&control, behind)) = rest.split_first() {
        rest = behind;
        if control < 32 {
            let Some((run, behind)) = rest.split_at_checked(usize::from(control) + 1) else { return false };
            out.extend_from_slice(run);
            rest = behind;
        } else {
            let mut count = usize::from(control >> 5);
            if count == 7 {
                let Some((&more, behind)) = rest.split_first() else { return false };
                count += usize::from(more);
                rest = behind;
            }
            let Some((&low, behind)) = rest.split_first() else { return false };
            rest = behind;
            let back = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
            let Some(from) = (out.len() - start).checked_sub(back) else { return false };
            // The run may overlap the bytes that it appends.
            for at in start + from..start + from + count + 2 {
                let byte = out[at];
                out.push(byte);
            }
        }
        if out.len() - start > length {
            return false;
        }
    }
    out.len() - start == length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_repeat_what_came_before() {
        let mut out = b"x".to_vec();
        // Two bytes as they are, then four and then ten from two back.
        assert!(expand(b"\x01ab\x40\x01\xe0\x01\x01", 16, &mut out));
        assert_eq!(out, b"xabababababababab");
    }

    #[test]
    fn bytes_that_are_no_compressed_string_are_refused() {
        for (packed, length) in [
            (&b"\x01a"[..], 2),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\x20", 4),
            (b"\x00a\xe0", 4),
            (b"\x00a", 2),
            (b"\x01ab", 1),
        ] {
            assert!(!expand(packed, length, &mut Vec::new()), "{}", packed.escape_ascii());
        }
    }
}
