//! What happened in a run: always a fingerprint, and readable lines on demand.

use crate::events::Place;
use std::fmt::Arguments;

/// One line of a run's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Microseconds since the run began.
    pub at_us: u64,
    /// What happened.
    pub text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ms, us) = (self.at_us / 1000, self.at_us % 1000);
        write!(formatter, "{ms:>7}.{us:03} {}", self.text)
    }
}

/// The trace of a run. Lines cost far more than the run itself, so a search collects none.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    digest: u64,
    lines: Option<Vec<Line>>,
}

impl Trace {
    pub(crate) fn new(traced: bool) -> Trace {
        Trace { digest: 0x7175_6f72_6174_6521, lines: traced.then(Vec::new) }
    }

    /// Mixes an event into the fingerprint.
    #[inline]
    pub(crate) fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Adds a line, if lines are requested. Call it as `trace.tell(now, format_args!(...))`, so that nothing is
    /// formatted otherwise.
    #[inline]
    pub(crate) fn tell(&mut self, at_us: u64, text: Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(Line { at_us, text: text.to_string() });
        }
    }

    pub(crate) fn finish(self) -> (u64, Vec<Line>) {
        (self.digest, self.lines.unwrap_or_default())
    }
}

/// Returns a node's id as users see it.
pub(crate) fn id(place: Place) -> u16 {
    u16::from(place) + 1
}

/// Whether the bytes look like the keys and values of the simulator's clients.
fn is_word(bytes: &[u8]) -> bool {
    const LENGTH_MAX: usize = 16;
    !bytes.is_empty() && bytes.len() <= LENGTH_MAX && bytes.iter().all(u8::is_ascii_graphic)
}

/// Shortens the debug text of a message between replicas to fit a line: byte strings that are not words are replaced
/// by their length.
pub(crate) fn shorten(debug: &str) -> String {
    const LENGTH_MAX: usize = 200;
    let mut short = String::new();
    let mut rest = debug;
    while let Some(open) = rest.find('[') {
        let Some(close) = rest[open..].find(']').map(|close| open + close) else { break };
        let inside = &rest[open + 1..close];
        let is_bytes = inside.bytes().all(|byte| byte.is_ascii_digit() || byte == b',' || byte == b' ');
        short.push_str(&rest[..open]);
        match is_bytes {
            true => {
                let bytes: Vec<u8> =
                    inside.split(',').filter_map(|number| number.trim().parse().ok()).collect();
                match std::str::from_utf8(&bytes) {
                    Ok(word) if is_word(&bytes) => short.push_str(word),
                    _ => short.push_str(&format!("{} bytes", bytes.len())),
                }
            }
            false => short.push_str(&rest[open..=close]),
        }
        rest = &rest[close + 1..];
    }
    short.push_str(rest);
    if let Some((end, _)) = short.char_indices().nth(LENGTH_MAX) {
        short.truncate(end);
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_strings_are_shown_as_words_or_by_their_length() {
        assert_eq!(shorten("Query { key: [107, 48] }"), "Query { key: k0 }");
        assert_eq!(
            shorten("Append { epoch: 1, records: [1, 22, 3] }"),
            "Append { epoch: 1, records: 3 bytes }"
        );
        assert_eq!(shorten("None { a: [] } [x]"), "None { a: 0 bytes } [x]");
    }

    #[test]
    fn different_events_have_different_fingerprints() {
        let digest = |story: &[u64]| {
            let mut trace = Trace::new(false);
            story.iter().for_each(|what| trace.note(*what));
            trace.finish().0
        };
        assert_eq!(digest(&[1, 2, 3]), digest(&[1, 2, 3]));
        assert_ne!(digest(&[1, 2, 3]), digest(&[2, 1, 3]));
        assert_ne!(digest(&[0]), digest(&[0, 0]));
    }
}
