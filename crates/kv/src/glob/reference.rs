//! Redis's rules for patterns applied literally, one element after the other, and a property that holds for any pattern and
//! text. The fuzz target includes this very file.

/// For each suffix of the pattern and of the text, whether the one matches the other, if known.
struct Known {
    matches: Vec<Option<bool>>,
    text_bytes: usize,
}

/// Whether a pattern matches a text, by the rules. Takes time at most proportional to the product of their squared lengths.
fn by_the_rules(pattern: &[u8], text: &[u8], known: &mut Known) -> bool {
    let place = pattern.len() * (known.text_bytes + 1) + text.len();
    if let Some(matches) = known.matches[place] {
        return matches;
    }
    let matches = match (pattern.first(), text) {
        (None, _) => text.is_empty(),
        (Some(b'*'), _) => {
            (0..=text.len()).any(|skipped| by_the_rules(&pattern[1..], &text[skipped..], known))
        }
        (Some(_), []) => false,
        (Some(b'?'), [_, rest @ ..]) => by_the_rules(&pattern[1..], rest, known),
        (Some(b'['), [byte, rest @ ..]) => {
            let is_negated = pattern.get(1) == Some(&b'^');
            let mut at = 1 + usize::from(is_negated);
            let mut found = false;
            while at < pattern.len() && pattern[at] != b']' {
                if pattern[at] == b'\\' && at + 1 < pattern.len() {
                    found |= pattern[at + 1] == *byte;
                    at += 2;
                } else if at + 2 < pattern.len() && pattern[at + 1] == b'-' {
                    let (low, high) = (pattern[at].min(pattern[at + 2]), pattern[at].max(pattern[at + 2]));
                    found |= (low..=high).contains(byte);
                    at += 3;
                } else {
                    found |= pattern[at] == *byte;
                    at += 1;
                }
            }
            found != is_negated && by_the_rules(&pattern[(at + 1).min(pattern.len())..], rest, known)
        }
        (Some(b'\\'), [byte, rest @ ..]) if pattern.len() > 1 => {
            pattern[1] == *byte && by_the_rules(&pattern[2..], rest, known)
        }
        (Some(literal), [byte, rest @ ..]) => literal == byte && by_the_rules(&pattern[1..], rest, known),
    };
    known.matches[place] = Some(matches);
    matches
}

/// Asserts that a matcher agrees with the rules.
pub(crate) fn agrees(pattern: &[u8], text: &[u8], matches: impl Fn(&[u8], &[u8]) -> bool) {
    let places = (pattern.len() + 1) * (text.len() + 1);
    let mut known = Known { matches: vec![None; places], text_bytes: text.len() };
    let expected = by_the_rules(pattern, text, &mut known);
    let shown = || format!("{} on {}", pattern.escape_ascii(), text.escape_ascii());
    assert_eq!(matches(pattern, text), expected, "{}", shown());
}

/// Like [`agrees`], for arbitrary bytes, the first of which determines where the pattern ends.
pub(crate) fn any_bytes(data: &[u8], matches: impl Fn(&[u8], &[u8]) -> bool) {
    const TEXT_BYTES_MAX: usize = 256;
    let Some((end, data)) = data.split_first() else { return };
    let (pattern, text) = data.split_at(usize::from(*end).min(data.len()));
    agrees(pattern, &text[..text.len().min(TEXT_BYTES_MAX)], matches);
}
