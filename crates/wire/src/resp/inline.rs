//! Inline requests: a line of words, as a user types them into a terminal.
//!
//! The rules for quotes are those of Redis: `"..."` with escapes, `'...'` with `\'` only; a quote may open in the
//! middle of a word, and a closing quote must end its word. Unlike Redis, which treats the line as a C string, a zero
//! byte is an ordinary byte.

use super::arguments::ArgumentsBuffer;

/// The line has an open quote, or a closing quote in the middle of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// Appends the words of `line`, without its line end, to `words`.
pub(super) fn split(line: &[u8], words: &mut ArgumentsBuffer) -> Result<(), Unbalanced> {
    let mut rest = without_leading_space(line);
    while !rest.is_empty() {
        let mut outcome = Ok(rest);
        words.push_with(|word| outcome = take_word(rest, word));
        rest = without_leading_space(outcome?);
    }
    Ok(())
}

/// Appends the first word of `rest`, unquoted, to `word` and returns the rest after it.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        match rest {
            // Not every byte that separates words ends one: Redis omits vertical tab and form feed here.
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok(rest),
            [b'"', quoted @ ..] => return take_double_quoted(quoted, word),
            [b'\'', quoted @ ..] => return take_single_quoted(quoted, word),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'"', after @ ..] => return end_of_word(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hexadecimal(*high) << 4 | hexadecimal(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        };
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'\'', after @ ..] => return end_of_word(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        };
    }
}

/// A closing quote must be followed by white space or by nothing.
fn end_of_word(after: &[u8]) -> Result<&[u8], Unbalanced> {
    match after.first() {
        Some(byte) if !is_space(*byte) => Err(Unbalanced),
        _ => Ok(after),
    }
}

/// White space by the rules of C's `isspace`: Rust's omits the vertical tab.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// The value of a hexadecimal digit.
fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

fn without_leading_space(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| is_space(**byte)).count();
    &bytes[blanks..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_words(line: &[u8], expected: &[&[u8]]) {
        let mut words = ArgumentsBuffer::new();
        assert_eq!(split(line, &mut words), Ok(()), "{}", line.escape_ascii());
        assert_eq!(words.as_arguments().iter().collect::<Vec<_>>(), expected, "{}", line.escape_ascii());
    }

    #[track_caller]
    fn assert_unbalanced(line: &[u8]) {
        assert_eq!(split(line, &mut ArgumentsBuffer::new()), Err(Unbalanced), "{}", line.escape_ascii());
    }

    #[test]
    fn words_are_separated_by_any_white_space() {
        assert_words(b"", &[]);
        assert_words(b" \t\x0b\x0c\r ", &[]);
        assert_words(b"  SET\tkey   value ", &[b"SET", b"key", b"value"]);
    }

    #[test]
    fn vertical_tab_and_form_feed_separate_words_but_do_not_end_one() {
        assert_words(b"a \x0bb", &[b"a", b"b"]);
        assert_words(b"a\x0bb\x0cc", &[b"a\x0bb\x0cc"]);
    }

    #[test]
    fn double_quotes_keep_white_space_and_know_escapes() {
        assert_words(br#"SET "a key" "\n\r\t\b\a""#, &[b"SET", b"a key", b"\n\r\t\x08\x07"]);
        assert_words(br#""\x00\xFf\x7e""#, &[b"\x00\xff\x7e"]);
        assert_words(br#""\"\\\q'""#, &[br#""\q'"#]);
    }

    #[test]
    fn an_incomplete_hexadecimal_escape_is_the_letter_x() {
        assert_words(br#""\xg0" "\x1""#, &[b"xg0", b"x1"]);
    }

    #[test]
    fn single_quotes_know_only_their_own_escape() {
        assert_words(br#"'it\'s' '\n"'"#, &[b"it's", br#"\n""#]);
    }

    #[test]
    fn empty_quotes_are_an_empty_word() {
        assert_words(br#"SET key "" ''"#, &[b"SET", b"key", b"", b""]);
    }

    #[test]
    fn a_quote_may_open_inside_a_word() {
        assert_words(br#"a"b c" d'e'"#, &[b"ab c", b"de"]);
    }

    #[test]
    fn a_zero_byte_is_part_of_its_word() {
        assert_words(b"a\0b 'c\0'", &[b"a\0b", b"c\0"]);
    }

    #[test]
    fn a_quote_that_is_never_closed_or_closes_inside_a_word_is_unbalanced() {
        assert_unbalanced(br#"SET "key"#);
        assert_unbalanced(br#"SET 'key"#);
        assert_unbalanced(br#""a\"#);
        assert_unbalanced(br#""a\""#);
        assert_unbalanced(br#""a"b"#);
        assert_unbalanced(br#"'a'b"#);
        assert_unbalanced(br#"set """test-key""" test-value"#);
    }
}
