//! Requests are copies of templates with the key's digits overwritten: nothing is formatted or allocated per
//! request.

/// Bytes up to and including a key's digits, and the bytes after them.
pub(crate) struct Template {
    bytes: Vec<u8>,
    digits_end: usize,
}

impl Template {
    pub(crate) fn new(head: &str, digits: usize, tail: &str) -> Self {
        let head = format!("{head}{:0digits$}", 0);
        Self { digits_end: head.len(), bytes: format!("{head}{tail}").into_bytes() }
    }

    /// The number of bytes that it appends.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn append(&self, key: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let mut rest = key;
        // The template's digits are zeros: only the others are written.
        for digit in out[start..start + self.digits_end].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// Appends a number in decimal.
pub(crate) fn append_number(number: usize, out: &mut Vec<u8>) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [b'0'; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_key_fits_its_digits() {
        let mut out = Vec::new();
        let template = Template::new("$21\r\nk", 20, "\r\n");
        template.append(u64::MAX, &mut out);
        assert_eq!(out, b"$21\r\nk18446744073709551615\r\n");
        assert_eq!(template.len(), out.len());
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 9, 10, 1234, usize::MAX] {
            let mut out = Vec::new();
            append_number(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
