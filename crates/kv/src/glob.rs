//! Glob patterns as Redis matches them: `KEYS`, `SCAN … MATCH`, `PSUBSCRIBE`.
//!
//! `*` matches any bytes, `?` one byte, `[a-z]` and `[^a-z]` one byte inside or outside a class, and `\` takes the next
//! byte literally. An unclosed class extends to the end of the pattern.
//!
//! A pattern is parsed once and then matched in time linear in the text, whatever the pattern. Its elements are the
//! states of an automaton (bit-parallel simulation after Baeza-Yates and Gonnet, "A New Approach to Text Searching",
//! CACM 1992): bit `s` is set when the text so far matches the first `s` elements; each byte moves every bit whose
//! element it matches, and a bit followed by a star also stays. So a text of n bytes costs n steps of one word for each
//! 64 elements.

/// Longest pattern that a client may send, in bytes. At this length each text byte costs at most 16 steps, some 5 ns.
pub const PATTERN_BYTES_MAX: usize = 1 << 10;

const WORD_BITS: usize = u64::BITS as usize;

/// The bytes with which every text begins that matches a pattern.
pub fn beginning(pattern: &[u8]) -> Vec<u8> {
    let (mut beginning, mut rest) = (Vec::new(), pattern);
    loop {
        rest = match rest {
            [] | [b'*' | b'?' | b'[', ..] | [b'\\'] => return beginning,
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
                beginning.push(*byte);
                rest
            }
        };
    }
}

/// A parsed pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Number of elements other than stars; there is one more state.
    elements: usize,
    /// Words in one set of states.
    words: usize,
    /// The class of each byte: bytes of one class match the same elements. Class 0 is that of bytes that no element
    /// names.
    classes: Box<[u8; 256]>,
    /// For each class, the states whose element its bytes match.
    matching: Vec<u64>,
    /// States followed by a star.
    staying: Vec<u64>,
    has_star: bool,
}

/// The bytes that an element matches.
struct ByteSet([u64; 4]);

impl ByteSet {
    fn none() -> ByteSet {
        ByteSet([0; 4])
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte) / WORD_BITS] |= 1 << (usize::from(byte) % WORD_BITS);
    }

    fn bytes(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let next = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
            let first = Some(*bits).filter(|bits| *bits != 0);
            std::iter::successors(first, next)
                .map(move |bits| word * WORD_BITS + bits.trailing_zeros() as usize)
        })
    }
}

impl Pattern {
    /// Parses a pattern.
    pub fn new(pattern: &[u8]) -> Pattern {
        let (mut sets, mut stars) = (Vec::new(), Vec::new());
        let mut rest = pattern;
        while let Some(first) = rest.first() {
            if *first == b'*' {
                stars.push(sets.len());
                rest = &rest[1..];
            } else {
                let (set, length) = element(rest);
                sets.push(set);
                rest = &rest[length..];
            }
        }
        let words = sets.len() / WORD_BITS + 1;
        let has_star = !stars.is_empty();
        let mut staying = vec![0; words];
        stars.into_iter().for_each(|state| staying[state / WORD_BITS] |= 1 << (state % WORD_BITS));

        let mut of_bytes = vec![0; 256 * words];
        for (state, set) in sets.iter().enumerate() {
            for byte in set.bytes() {
                of_bytes[byte * words + state / WORD_BITS] |= 1 << (state % WORD_BITS);
            }
        }
        let mut classes = Box::new([0; 256]);
        let (mut matching, mut sums): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for (byte, states) in of_bytes.chunks_exact(words).enumerate() {
            // Compare this sum first: it alone distinguishes most bytes.
            let sum =
                states.iter().fold(0, |sum: u64, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut known = matching.chunks_exact(words).zip(&sums);
            let class = known.position(|(class, other)| *other == sum && class == states);
            let class = class.unwrap_or_else(|| {
                matching.extend_from_slice(states);
                sums.push(sum);
                sums.len() - 1
            });
            // There are no more classes than bytes.
            classes[byte] = class as u8;
        }
        Pattern { elements: sets.len(), words, classes, matching, staying, has_star }
    }

    /// The memory that it occupies, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Pattern>() + 256 + (self.matching.len() + self.staying.len()) * size_of::<u64>()
    }

    /// An upper estimate of the nanoseconds it takes to match a text of this length: measured, not derived.
    pub fn match_ns(&self, text_bytes: usize) -> u64 {
        const FETCH_NS: u64 = 200;
        let is_matched = text_bytes >= self.elements && (self.has_star || text_bytes == self.elements);
        let byte_tenths_ns = 15 + 3 * self.words as u64;
        if is_matched { FETCH_NS + text_bytes as u64 * byte_tenths_ns / 10 } else { FETCH_NS / 10 }
    }

    /// Whether the whole of `text` matches. Takes at most `text.len()` steps, each of one word per 64 elements.
    pub fn matches(&self, text: &[u8]) -> bool {
        // Each element takes one byte, and only stars take more.
        if text.len() < self.elements || text.len() > self.elements && !self.has_star {
            return false;
        }
        if self.words == 1 {
            return self.matches_in_a_word(text);
        }
        let mut states = vec![0; self.words];
        states[0] = 1;
        let (last_word, last_bit) = (self.elements / WORD_BITS, self.elements % WORD_BITS);
        for byte in text {
            let class = usize::from(self.classes[usize::from(*byte)]) * self.words;
            let matching = &self.matching[class..class + self.words];
            let mut carry = 0;
            let mut any = 0;
            for ((states, matching), staying) in states.iter_mut().zip(matching).zip(&self.staying) {
                let moved = *states & matching;
                *states = moved << 1 | carry | *states & staying;
                carry = moved >> (WORD_BITS - 1);
                any |= *states;
            }
            if any == 0 {
                return false;
            }
        }
        states[last_word] >> last_bit & 1 == 1
    }

    fn matches_in_a_word(&self, text: &[u8]) -> bool {
        let (mut states, staying) = (1_u64, self.staying[0]);
        for byte in text {
            let matching = self.matching[usize::from(self.classes[usize::from(*byte)])];
            states = (states & matching) << 1 | states & staying;
            if states == 0 {
                return false;
            }
            // Once the last element is matched and a star follows, the rest of the text does not matter.
            if states & staying & 1 << self.elements != 0 {
                return true;
            }
        }
        states >> self.elements & 1 == 1
    }
}

/// Parses the first element of `pattern`, which is not empty and does not begin with a star. Returns the bytes that the
/// element matches, and its length.
fn element(pattern: &[u8]) -> (ByteSet, usize) {
    let mut set = ByteSet::none();
    let length = match pattern {
        [b'?', ..] => {
            set.0 = [u64::MAX; 4];
            1
        }
        [b'[', ..] => class(pattern, &mut set),
        [b'\\', literal, ..] => {
            set.add(*literal);
            2
        }
        _ => {
            set.add(pattern[0]);
            1
        }
    };
    (set, length)
}

fn class(pattern: &[u8], set: &mut ByteSet) -> usize {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = if is_negated { 2 } else { 1 };
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b'\\', literal, ..] => {
                set.add(*literal);
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                (*first.min(last)..=*first.max(last)).for_each(|byte| set.add(byte));
                at += 3;
            }
            [literal, ..] => {
                set.add(*literal);
                at += 1;
            }
        }
    }
    if is_negated {
        set.0.iter_mut().for_each(|word| *word = !*word);
    }
    at
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Pattern, beginning, reference};

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Pattern::new(pattern).matches(text)
    }

    proptest! {
        #[test]
        fn the_automaton_agrees_with_the_rules(
            pattern in proptest::collection::vec(prop::sample::select(&b"ab*?[]^-\\c"[..]), 0..14),
            text in proptest::collection::vec(prop::sample::select(&b"abc]-^\\"[..]), 0..10),
        ) {
            reference::agrees(&pattern, &text, matches);
            // The same with states that take several words.
            let prefix = b"a".repeat(100);
            reference::agrees(&[&prefix[..], &pattern].concat(), &[&prefix[..], &text].concat(), matches);
        }

        #[test]
        fn what_matches_begins_as_the_pattern_does(
            pattern in proptest::collection::vec(prop::sample::select(&b"ab*?[]\\"[..]), 0..6),
            text in proptest::collection::vec(prop::sample::select(&b"ab*[\\"[..]), 0..6),
        ) {
            prop_assert!(!matches(&pattern, &text) || text.starts_with(&beginning(&pattern)));
        }

        #[test]
        fn the_automaton_agrees_with_the_rules_on_any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            reference::any_bytes(&data, matches);
        }
    }

    #[test]
    fn a_pattern_says_how_its_texts_begin() {
        let cases =
            [("cart:*", "cart:"), ("c\\*t?", "c*t"), ("[ab]c", ""), ("abc", "abc"), ("a\\", "a"), ("", "")];
        for (pattern, expected) in cases {
            assert_eq!(beginning(pattern.as_bytes()), expected.as_bytes(), "{pattern}");
        }
    }

    #[test]
    fn patterns_match_as_in_redis() {
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
    fn patterns_match_bytes_that_are_not_text() {
        assert!(matches(b"\xff*[\x80-\x90]", b"\xff\0\0\x85"));
        assert!(!matches(b"\xff*[\x80-\x90]", b"\xff\0\0\x95"));
    }

    #[test]
    fn many_stars_stay_cheap() {
        let pattern = b"a*".repeat(40);
        let text = b"a".repeat(20_000);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }

    /// With backtracking each of these takes from ten seconds to minutes.
    #[test]
    fn no_pattern_is_expensive_on_a_long_text() {
        let text = b"x".repeat(crate::limits::KEY_BYTES_MAX);
        let class = [&b"*["[..], &b"x".repeat(super::PATTERN_BYTES_MAX - 4), b"]b"].concat();
        let literal = [&b"*"[..], &b"x".repeat(super::PATTERN_BYTES_MAX - 2), b"b"].concat();
        let stars = [b"*x".repeat(super::PATTERN_BYTES_MAX / 2 - 1), b"b".to_vec()].concat();
        for pattern in [class, literal, stars] {
            let pattern = Pattern::new(&pattern);
            assert!((0..3).all(|_| !pattern.matches(&text)));
        }
    }
}
