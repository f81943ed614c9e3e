//! Lua's patterns, matched in counted steps.
//!
//! The time of Lua's own matcher can grow with any power of the text's length, and its stack with the pattern's length: a
//! script of one line could block or crash every replica. This matcher accepts the same patterns as Lua 5.1 and returns
//! the same results, but counts each step, and refuses a pattern that needs too deep a stack, as later versions of Lua
//! do.

/// Why a match was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The pattern is invalid, with Lua's error text.
    Malformed(&'static str),
    /// The run has reached a limit.
    Limit,
}

/// What a pattern has captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// From the first position to the second.
    Text(usize, usize),
    /// A position, counted from 1.
    Position(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Unfinished,
    Position,
    Length(usize),
}

/// The most captures, as in Lua.
const CAPTURES_MAX: usize = 32;

/// The greatest depth of the stack, as in later versions of Lua.
const DEPTH_MAX: usize = 200;

const ESCAPE: u8 = b'%';

/// Matches one pattern in one text. `charge` gets the number of steps, and returns false when there were too many.
pub(super) struct Matcher<'m> {
    text: &'m [u8],
    pattern: &'m [u8],
    captures: Vec<(usize, Extent)>,
    depth: usize,
    charge: &'m dyn Fn(usize) -> bool,
}

type Matched = Result<Option<usize>, Trouble>;

impl<'m> Matcher<'m> {
    /// Takes a pattern without its `^`. As in Lua 5.1, it ends at a zero byte.
    pub(super) fn new(text: &'m [u8], pattern: &'m [u8], charge: &'m dyn Fn(usize) -> bool) -> Matcher<'m> {
        let pattern = pattern.split(|byte| *byte == 0).next().unwrap_or_default();
        Matcher { text, pattern, captures: Vec::new(), depth: 0, charge }
    }

    /// Matches at a position. Returns where the match ends.
    pub(super) fn at(&mut self, start: usize) -> Matched {
        self.captures.clear();
        self.depth = 0;
        self.go(start, 0)
    }

    /// Finds the first match from a position on, or only there. Returns where it begins and ends.
    pub(super) fn from(
        &mut self,
        start: usize,
        is_anchored: bool,
    ) -> Result<Option<(usize, usize)>, Trouble> {
        let last = if is_anchored { start } else { self.text.len() };
        for start in start..=last {
            if let Some(end) = self.at(start)? {
                return Ok(Some((start, end)));
            }
        }
        Ok(None)
    }

    /// Returns a capture of the last match. If the pattern has none, the first capture is the whole match.
    pub(super) fn capture(&self, number: usize, matched: (usize, usize)) -> Result<Capture, Trouble> {
        match self.captures.get(number) {
            Some((start, Extent::Length(length))) => Ok(Capture::Text(*start, start + length)),
            Some((start, Extent::Position)) => Ok(Capture::Position(start + 1)),
            Some((_, Extent::Unfinished)) => Err(Trouble::Malformed("unfinished capture")),
            None if number == 0 => Ok(Capture::Text(matched.0, matched.1)),
            None => Err(Trouble::Malformed("invalid capture index")),
        }
    }

    /// The number of captures of the last match; 1, the whole match, if the pattern has none.
    pub(super) fn captures(&self) -> usize {
        self.captures.len().max(1)
    }

    /// Whether the pattern of the last match has captures.
    pub(super) fn has_captures(&self) -> bool {
        !self.captures.is_empty()
    }

    fn go(&mut self, text: usize, pattern: usize) -> Matched {
        if self.depth == DEPTH_MAX {
            return Err(Trouble::Malformed("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.run(text, pattern);
        self.depth -= 1;
        matched
    }

    fn run(&mut self, mut text: usize, mut pattern: usize) -> Matched {
        loop {
            self.step(1)?;
            let Some(&byte) = self.pattern.get(pattern) else { return Ok(Some(text)) };
            let next = self.pattern.get(pattern + 1).copied();
            match (byte, next) {
                (b'(', Some(b')')) => return self.open(text, pattern + 2, Extent::Position),
                (b'(', _) => return self.open(text, pattern + 1, Extent::Unfinished),
                (b')', _) => return self.close(text, pattern + 1),
                (b'$', None) => return Ok((text == self.text.len()).then_some(text)),
                (ESCAPE, Some(b'b')) => {
                    let Some(end) = self.balanced(text, pattern + 2)? else { return Ok(None) };
                    (text, pattern) = (end, pattern + 4);
                }
                (ESCAPE, Some(b'f')) => {
                    pattern += 2;
                    if self.pattern.get(pattern) != Some(&b'[') {
                        return Err(Trouble::Malformed("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(pattern)?;
                    let before = if text == 0 { 0 } else { self.text[text - 1] };
                    let after = self.text.get(text).copied().unwrap_or(0);
                    if self.in_set(before, pattern, end - 1) || !self.in_set(after, pattern, end - 1) {
                        return Ok(None);
                    }
                    pattern = end;
                }
                (ESCAPE, Some(digit @ b'0'..=b'9')) => {
                    let Some(end) = self.again(text, digit)? else { return Ok(None) };
                    (text, pattern) = (end, pattern + 2);
                }
                _ => {
                    let end = self.class_end(pattern)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.is_single(text, pattern, end)
                                && let Some(matched) = self.go(text + 1, end + 1)?
                            {
                                return Ok(Some(matched));
                            }
                            pattern = end + 1;
                        }
                        Some(b'*') => return self.most(text, pattern, end, 0),
                        Some(b'+') => return self.most(text, pattern, end, 1),
                        Some(b'-') => return self.fewest(text, pattern, end),
                        _ if self.is_single(text, pattern, end) => (text, pattern) = (text + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn step(&self, steps: usize) -> Result<(), Trouble> {
        if (self.charge)(steps) { Ok(()) } else { Err(Trouble::Limit) }
    }

    fn open(&mut self, text: usize, pattern: usize, extent: Extent) -> Matched {
        if self.captures.len() == CAPTURES_MAX {
            return Err(Trouble::Malformed("too many captures"));
        }
        self.captures.push((text, extent));
        let count = self.captures.len();
        let matched = self.go(text, pattern)?;
        if matched.is_none() {
            self.captures.truncate(count - 1);
        }
        Ok(matched)
    }

    fn close(&mut self, text: usize, pattern: usize) -> Matched {
        let open = self.captures.iter().rposition(|(_, extent)| *extent == Extent::Unfinished);
        let Some(open) = open else { return Err(Trouble::Malformed("invalid pattern capture")) };
        self.captures[open].1 = Extent::Length(text - self.captures[open].0);
        let matched = self.go(text, pattern)?;
        if matched.is_none() {
            self.captures[open].1 = Extent::Unfinished;
        }
        Ok(matched)
    }

    /// Matches the text of an earlier capture again (`%1`).
    fn again(&self, text: usize, digit: u8) -> Matched {
        let number = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let Some((start, Extent::Length(length))) = self.captures.get(number).copied() else {
            return match self.captures.get(number) {
                // Lua gives a position capture a length that no text has, so it never matches.
                Some((_, Extent::Position)) => Ok(None),
                _ => Err(Trouble::Malformed("invalid capture index")),
            };
        };
        self.step(length)?;
        let held = &self.text[start..start + length];
        Ok(self.text[text..].starts_with(held).then_some(text + length))
    }

    /// `%bxy`: from an x to its matching y.
    fn balanced(&self, text: usize, pattern: usize) -> Matched {
        let (Some(&open), Some(&close)) = (self.pattern.get(pattern), self.pattern.get(pattern + 1)) else {
            return Err(Trouble::Malformed("unbalanced pattern"));
        };
        if self.text.get(text) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (place, byte) in self.text.iter().enumerate().skip(text + 1) {
            self.step(1)?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(place + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Matches as many repetitions as possible, at least `least`, and then the rest of the pattern. While the rest does not
    /// match, tries again with one repetition fewer.
    fn most(&mut self, text: usize, pattern: usize, end: usize, least: usize) -> Matched {
        let mut count = 0;
        while self.is_single(text + count, pattern, end) {
            self.step(1)?;
            count += 1;
        }
        while count >= least {
            if let Some(matched) = self.go(text + count, end + 1)? {
                return Ok(Some(matched));
            }
            if count == 0 {
                break;
            }
            count -= 1;
        }
        Ok(None)
    }

    fn fewest(&mut self, mut text: usize, pattern: usize, end: usize) -> Matched {
        loop {
            if let Some(matched) = self.go(text, end + 1)? {
                return Ok(Some(matched));
            }
            if !self.is_single(text, pattern, end) {
                return Ok(None);
            }
            text += 1;
        }
    }

    /// The end of the single-character class that begins at `start` in the pattern.
    fn class_end(&self, start: usize) -> Result<usize, Trouble> {
        let at = |place: usize| self.pattern.get(place).copied();
        match at(start) {
            Some(ESCAPE) if at(start + 1).is_none() => {
                Err(Trouble::Malformed("malformed pattern (ends with '%')"))
            }
            Some(ESCAPE) => Ok(start + 2),
            Some(b'[') => {
                let mut place = start + 1;
                if at(place) == Some(b'^') {
                    place += 1;
                }
                // A closing bracket that comes first belongs to the set.
                loop {
                    let Some(byte) = at(place) else {
                        return Err(Trouble::Malformed("malformed pattern (missing ']')"));
                    };
                    self.step(1)?;
                    place += if byte == ESCAPE && at(place + 1).is_some() { 2 } else { 1 };
                    if at(place) == Some(b']') {
                        return Ok(place + 1);
                    }
                }
            }
            _ => Ok(start + 1),
        }
    }

    fn is_single(&self, text: usize, pattern: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(text) else { return false };
        match self.pattern[pattern] {
            b'.' => true,
            ESCAPE => in_class(byte, self.pattern[pattern + 1]),
            b'[' => self.in_set(byte, pattern, end - 1),
            literal => literal == byte,
        }
    }

    /// Whether a byte is in the set between two brackets.
    fn in_set(&self, byte: u8, open: usize, close: usize) -> bool {
        let pattern = self.pattern;
        let mut place = open + 1;
        let is_in = pattern[place] != b'^';
        if !is_in {
            place += 1;
        }
        while place < close {
            if pattern[place] == ESCAPE {
                place += 1;
                if in_class(byte, pattern[place]) {
                    return is_in;
                }
            } else if pattern.get(place + 1) == Some(&b'-') && place + 2 < close {
                if (pattern[place]..=pattern[place + 2]).contains(&byte) {
                    return is_in;
                }
                place += 2;
            } else if pattern[place] == byte {
                return is_in;
            }
            place += 1;
        }
        !is_in
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}
