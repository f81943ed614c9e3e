//! Keys and values as HTTP carries them: percent-encoded in paths, as text or base64 in JSON.

use base64::Engine;
use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use commands::DATABASES;
use hyper::HeaderMap;
use node::{SpanContext, Tracing};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::answer::Refusal;

/// Returns the key that a path names.
pub(super) fn key_of(encoded: &str, query: Option<&str>) -> Result<Vec<u8>, Refusal> {
    if encoded.is_empty() {
        return Err(Refusal::bad_request("the path names no key"));
    }
    match database_of(query)? {
        Some(_) => name_of(encoded, None),
        None => name_of(encoded, query),
    }
}

/// Returns the number of the database that a query names.
pub(super) fn database_of(query: Option<&str>) -> Result<Option<u8>, Refusal> {
    let Some(number) = query.and_then(|query| query.strip_prefix("database=")) else { return Ok(None) };
    let number = number.parse().ok().filter(|number| *number < DATABASES);
    number
        .map(Some)
        .ok_or_else(|| Refusal::bad_request(format!("database={{N}}: a number from 0 to {}", DATABASES - 1)))
}

/// Returns what the header `traceparent` contains: whether the sender traces the request, and within which of its
/// spans (<https://www.w3.org/TR/trace-context/#traceparent-header>). An unreadable header is ignored.
pub(super) fn tracing_of(headers: &HeaderMap) -> Tracing {
    headers.get("traceparent").and_then(|text| tracing_said(text.to_str().ok()?)).unwrap_or_default()
}

fn tracing_said(text: &str) -> Option<Tracing> {
    let number = |digits: &str, length: usize| {
        let are_valid =
            digits.len() == length && digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        are_valid.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
    };
    let mut parts = text.split('-');
    let (version, trace) = (number(parts.next()?, 2)?, number(parts.next()?, 32)?);
    let (span, flags) = (number(parts.next()?, 16)? as u64, number(parts.next()?, 2)?);
    // Later versions may have more fields after these four; version 255 is invalid.
    let is_read = version < 255 && (version > 0 || parts.next().is_none()) && trace != 0 && span != 0;
    let tracing = match flags & 1 {
        0 => Tracing::Never,
        _ => Tracing::Within(SpanContext { trace, span }),
    };
    is_read.then_some(tracing)
}

/// Returns the lock that a path names.
pub(super) fn lock_of(encoded: &str) -> Result<Vec<u8>, Refusal> {
    if encoded.is_empty() {
        return Err(Refusal::bad_request("the path names no lock"));
    }
    name_of(encoded, None)
}

/// Returns the prefix of the keyspace that a path names. Empty means the default one.
pub(super) fn prefix_of(encoded: &str, query: Option<&str>) -> Result<String, Refusal> {
    String::from_utf8(name_of(encoded, query)?)
        .map_err(|_| Refusal::bad_request("the prefix of a keyspace must be text"))
}

fn name_of(encoded: &str, query: Option<&str>) -> Result<Vec<u8>, Refusal> {
    if query.is_some() {
        return Err(Refusal::bad_request(
            "this path takes no query; a question mark in a key is written %3F",
        ));
    }
    percent_decoded(encoded.as_bytes()).ok_or_else(|| {
        Refusal::bad_request(
            "a percent sign in a key is written %25; any other must be followed by two hex digits",
        )
    })
}

fn percent_decoded(encoded: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    loop {
        rest = match rest {
            [] => return Some(decoded),
            [b'%', high, low, rest @ ..] => {
                decoded.push(digit(high)? << 4 | digit(low)?);
                rest
            }
            [b'%', ..] => return None,
            [byte, rest @ ..] => {
                decoded.push(*byte);
                rest
            }
        };
    }
}

/// Returns a field of a body, given either as text or as base64.
pub(super) fn bytes_of(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Refusal> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => BASE64_STANDARD
            .decode(base64)
            .map_err(|error| Refusal::bad_request(format!("\"{name}_base64\" is not base64: {error}"))),
        (None, None) => Err(Refusal::bad_request(format!("the body has no \"{name}\""))),
        (Some(_), Some(_)) => {
            Err(Refusal::bad_request(format!("the body has both \"{name}\" and \"{name}_base64\"")))
        }
    }
}

/// Returns bytes as a field: as text if they are valid text.
pub(super) fn named(name: &str, bytes: &[u8]) -> Map<String, Value> {
    let (name, value) = match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), text.to_owned()),
        Err(_) => (format!("{name}_base64"), BASE64_STANDARD.encode(bytes)),
    };
    Map::from_iter([(name, Value::String(value))])
}

/// Writes bytes as a field, like [`named`].
pub(super) fn put_named<M: SerializeMap>(name: &str, bytes: &[u8], fields: &mut M) -> Result<(), M::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => fields.serialize_entry(name, text),
        Err(_) => fields.serialize_entry(&format!("{name}_base64"), &Base64(bytes)),
    }
}

/// Bytes that are written as base64.
pub(super) struct Base64<'b>(pub(super) &'b [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &BASE64_STANDARD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_paths_are_decoded_to_any_bytes() {
        let key = |path| key_of(path, None).unwrap();
        assert_eq!(key("plain"), b"plain");
        assert_eq!(key("a/b%2Fc+d"), b"a/b/c+d");
        assert_eq!(key("%00%ff%C3%BC"), b"\x00\xff\xc3\xbc");
        for wrong in ["", "%", "%f", "%zz", "a%"] {
            assert!(key_of(wrong, None).is_err(), "{wrong}");
        }
        assert!(key_of("a", Some("b")).is_err());
    }

    #[test]
    fn a_query_may_name_a_database() {
        assert_eq!(database_of(None).unwrap(), None);
        assert_eq!(database_of(Some("database=15")).unwrap(), Some(15));
        assert_eq!(key_of("a", Some("database=3")).unwrap(), b"a");
        for wrong in ["database=16", "database=", "database=a", "database=3&a"] {
            assert!(database_of(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_sender_may_name_the_span_that_its_request_belongs_to() {
        let (trace, span) = (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7);
        let within = Some(Tracing::Within(SpanContext { trace, span }));
        let of_text = |text: &str| {
            tracing_said(&text.replace("IDS", "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"))
        };
        assert_eq!(of_text("00-IDS-01"), within);
        assert_eq!(of_text("00-IDS-00"), Some(Tracing::Never));
        assert_eq!(of_text("cc-IDS-01-what-the-future-brings"), within);
        for wrong in ["00-IDS-01-x", "ff-IDS-01", "00-IDS", "00-IDS-1", "0-IDS-01", "", "00-IDS-0G"] {
            assert_eq!(of_text(wrong), None, "{wrong}");
        }
        assert_eq!(of_text("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"), None, "capitals");
        assert_eq!(of_text(&format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32))), None, "no trace");
    }

    #[test]
    fn bytes_that_are_not_text_travel_as_base64() {
        assert_eq!(named("value", b"text")["value"], "text");
        assert_eq!(named("value", b"\xff")["value_base64"], "/w==");
        assert_eq!(bytes_of("value", None, Some("/w==".into())).unwrap(), b"\xff");
        assert!(bytes_of("value", None, Some("?".into())).is_err());
        assert!(bytes_of("value", None, None).is_err());
        assert!(bytes_of("value", Some("a".into()), Some("YQ==".into())).is_err());
    }
}
