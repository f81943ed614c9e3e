//! Glob patterns as Redis matches them: `KEYS`, `SCAN … MATCH`.
//!
//! `*` stands for any bytes, `?` for one, `[a-z]` and `[^a-z]` for one inside or outside a class, and `\`
//! takes the next byte literally. An unclosed class reaches to the end of the pattern.

/// True when the whole of `text` matches `pattern`.
///
/// Takes at most `pattern.len() * text.len()` steps: after a mismatch only the last `*` seen is extended,
/// because whatever an earlier one could take over, the last one can take as well.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    // Where the last star stands, and up to where in the text it reaches.
    let mut star: Option<(usize, usize)> = None;
    while position < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, position));
            at += 1;
            continue;
        }
        if at < pattern.len() {
            let (matched, length) = match_one(&pattern[at..], text[position]);
            if matched {
                at += length;
                position += 1;
                continue;
            }
        }
        let Some((star_at, reach)) = star else {
            return false;
        };
        star = Some((star_at, reach + 1));
        at = star_at + 1;
        position = reach + 1;
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Whether the first element of `pattern` (not empty, not a star) matches `byte`, and how long that element is.
fn match_one(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [b'?', ..] => (true, 1),
        [b'[', ..] => match_class(pattern, byte),
        [b'\\', literal, ..] => (*literal == byte, 2),
        _ => (pattern[0] == byte, 1),
    }
}

fn match_class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = if negated { 2 } else { 1 };
    let mut found = false;
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                found |= (*first.min(last)..=*first.max(last)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_what_redis_matches() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("**", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "hllo", true),
            ("h*llo", "heeeello", true),
            ("h*llo", "heeeell", false),
            ("*llo*", "hello world", true),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c*", "xxcxxbxxaxx", false),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("[a-]", "-", false),
            ("[a-]", "^", true),
            ("[\\]]", "]", true),
            ("[\\-x]", "-", true),
            ("[a", "a", true),
            ("[abc", "b", true),
            ("[", "[", false),
            ("[^", "x", true),
            ("[]", "]", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("a\\", "a\\", true),
            ("a?", "a", false),
            ("a*?", "a", false),
            ("a*?", "ab", true),
            ("user:[0-9][0-9]*", "user:42:name", true),
            ("user:[0-9][0-9]*", "user:4x:name", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), *expected, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_match_too() {
        assert!(matches(b"\xff*[\x80-\x90]", b"\xff\0\0\x85"));
        assert!(!matches(b"\xff*[\x80-\x90]", b"\xff\0\0\x95"));
    }

    #[test]
    fn many_stars_stay_cheap() {
        let pattern = b"a*".repeat(40);
        let text = b"a".repeat(20_000);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }
}
