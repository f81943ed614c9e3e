//! Text from outside that is written into a line: of the log, `INFO`, `CLUSTER NODES`, `CLIENT LIST`, the metrics.
//!
//! A client that can end a line can also forge one. Text that can be refused on arrival is refused: names of clients,
//! hosts of nodes, prefixes of keyspaces. Text that cannot be refused, or was accepted by an earlier release, is
//! escaped when it is written.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The longest name of a host in bytes, as in DNS.
pub const HOST_BYTES_MAX: usize = 253;

/// Whether a character ends a line, or moves what follows, on some terminal or in some program that reads lines.
fn is_unseen(c: char) -> bool {
    // Besides control characters: separators of lines and paragraphs, and characters that change the direction of
    // writing.
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text in one line: what would end the line is escaped as in Rust.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if is_unseen(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    Cow::Owned(line)
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// An error of the TOML reader in the words of those who write files and settings, in one line.
pub fn of_toml(message: &str) -> String {
    let message = message.trim().replace('\n', " ");
    let bare = |text: &str| text.replace('`', "");
    if let Some((name, known)) =
        message.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", expected "))
    {
        let known = known.strip_prefix("one of ").unwrap_or(known);
        return format!("there is no setting '{}'; there are {}", bare(name), bare(known));
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("the setting '{}' is missing", bare(name));
    }
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        let found = ["string ", "integer ", "floating point ", "boolean "]
            .iter()
            .find_map(|kind| found.strip_prefix(kind))
            .unwrap_or(found);
        let expected = match expected {
            "u16" => "a whole number from 0 to 65535",
            "u8" => "a whole number from 0 to 255",
            "u32" | "u64" | "usize" => "a whole number, without quotation marks",
            "a boolean" => "true or false, without quotation marks",
            "a string" => "a text in quotation marks",
            "a sequence" => "a list, as in [\"a\", \"b\"]",
            other => other,
        };
        return format!("it must be {expected}, and is {}", bare(found));
    }
    if message.starts_with("string values must be quoted") {
        return "a text needs quotation marks around it".into();
    }
    message
}

/// The text as the value of one field: it neither ends the line nor looks like another field of it.
pub fn field(text: &str) -> String {
    text.chars().map(|c| if is_unseen(c) || matches!(c, ',' | '=' | '#') { '_' } else { c }).collect()
}

/// The text as one word of a line whose fields are separated by spaces.
pub fn word(text: &str) -> String {
    text.chars().map(|c| if is_unseen(c) || c.is_whitespace() { '_' } else { c }).collect()
}

/// The text as the value of a label of a metric, quotes not included.
pub fn label(text: &str) -> String {
    let mut label = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => label.push_str("\\n"),
            '\\' | '"' => label.extend(['\\', c]),
            c if is_unseen(c) => {
                // Writing to a string does not fail. A label has only three escapes.
                let _ = write!(label, "\\\\u{{{:x}}}", u32::from(c));
            }
            c => label.push(c),
        }
    }
    label
}

/// Whether Redis accepts the text as a client's name: visible ASCII, without spaces.
pub fn is_printable(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Whether the text is one word, in any language.
pub(crate) fn is_word(text: &str) -> bool {
    !text.contains(|c| is_unseen(c) || c.is_whitespace())
}

/// Checks that a text can be the name or the address of a host.
///
/// # Errors
/// A sentence that describes what it may be.
pub fn check_host(host: &str) -> Result<(), String> {
    if host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_letter);
    // A name may end with a dot: then it is fully qualified.
    let name = host.strip_suffix('.').unwrap_or(host);
    if host.len() <= HOST_BYTES_MAX && name.split('.').all(is_label) {
        return Ok(());
    }
    const SHOWN_CHARS_MAX: usize = 64;
    let shown: String = host.chars().take(SHOWN_CHARS_MAX).collect();
    let shown = one_line(&shown);
    Err(format!(
        "'{shown}' is neither the name of a host nor its address: a name has letters, digits, '-', '_' and points, \
         {HOST_BYTES_MAX} bytes at most"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "a\nb\r\u{7f}\0 ,=#\"\\\u{85}\u{2028}\u{202e}ü";

    #[test]
    fn errors_of_toml_are_in_words_of_people() {
        let error = |text: &str| {
            let read = toml::from_str::<crate::keyspace::Keyspace>(text);
            of_toml(read.expect_err(text).message())
        };
        let known = error("shard = 3");
        assert!(
            known.starts_with("there is no setting 'shard'; there are prefix, replication, acks"),
            "{known}"
        );
        assert_eq!(error("shards = \"a\""), "it must be a whole number from 0 to 65535, and is \"a\"");
        assert_eq!(error("shards = 70000"), "it must be a whole number from 0 to 65535, and is 70000");
        assert_eq!(error("prefix = 3"), "it must be a text in quotation marks, and is 3");
        assert_eq!(
            error("backlog_bytes = true"),
            "it must be a whole number, without quotation marks, and is true"
        );
        assert_eq!(error("prefix = cart"), "a text needs quotation marks around it");
        assert_eq!(of_toml("missing field `secret`"), "the setting 'secret' is missing");
    }

    #[test]
    fn a_text_in_a_line_does_not_end_the_line() {
        assert_eq!(
            one_line("plain, with spaces = \"and\" \\ quotes"),
            "plain, with spaces = \"and\" \\ quotes"
        );
        assert_eq!(one_line(NASTY), "a\\nb\\r\\u{7f}\\u{0} ,=#\"\\\\u{85}\\u{2028}\\u{202e}ü");
        assert_eq!(field(NASTY), "a_b____ ___\"\\___ü".replacen("____ ___", "___ ___", 1));
        assert_eq!(word("a b\nc\td"), "a_b_c_d");
        assert_eq!(label("a\n\"\\\r"), "a\\n\\\"\\\\\\\\u{d}");
        for text in [one_line(NASTY).into_owned(), field(NASTY), word(NASTY), label(NASTY)] {
            assert!(!text.contains(is_unseen), "{text:?}");
        }
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        let longest = format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61));
        let name =
            ["localhost", "node-1.example.org", "node_1", "10.0.0.7", "::1", "fe80::1", "example.org.", "7"];
        for host in name.into_iter().chain([longest.as_str()]) {
            assert_eq!(check_host(host), Ok(()), "{host}");
        }
        let too_long = format!("{longest}d");
        let label = "a".repeat(64);
        let others = ["", ".", "a..b", "a b", "a\nb", "a:1", "a@b", "a,b", "[::1]", "a/b", "ü", "a\0"];
        for host in others.into_iter().chain([too_long.as_str(), label.as_str()]) {
            let why = check_host(host).unwrap_err();
            assert!(!why.contains(is_unseen) && why.len() < 400, "{why}");
        }
    }
}
