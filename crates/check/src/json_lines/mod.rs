//! Histories as files: one operation per line, a JSON object. docs/reference/histories.md shows a line of each kind.
//!
//! A byte string is a JSON string where it is UTF-8, otherwise an object `{"base64": "..."}`. A file may be
//! compressed with gzip.

mod locks;

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, BufWriter, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};

use crate::history::{Action, Answer, History, Operation, OperationId, Outcome, Value};
use crate::history::{Fence, LockAction};

/// The maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 64 << 20;

/// The first byte of a file compressed with gzip; no line of JSON begins with it.
const GZIP: u8 = 0x1f;

/// The maximum number of operations of a history: they are numbered with 32 bits.
const OPERATIONS_MAX: usize = u32::MAX as usize;

/// Why a history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input could not be read.
    #[error("line {line}: {source}")]
    Io {
        /// The line that was being read, counted from 1.
        line: usize,
        /// The underlying error.
        source: io::Error,
    },
    /// A line is not an operation.
    #[error("line {line}: {reason}")]
    Line {
        /// The line's number, counted from 1.
        line: usize,
        /// Why it is not an operation.
        reason: String,
    },
}

/// A byte string in JSON.
pub(crate) struct Bytes<'a>(pub(crate) Cow<'a, [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Bytes<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
                formatter.write_str("a string or {\"base64\": \"...\"}")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Bytes<'de>, E> {
                Ok(Bytes(Cow::Borrowed(text.as_bytes())))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes<'de>, E> {
                Ok(Bytes(Cow::Owned(text.as_bytes().to_vec())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes<'de>, A::Error> {
                let entry = map.next_entry::<Cow<str>, Cow<str>>()?;
                let Some((_, text)) = entry.filter(|(field, _)| field == "base64") else {
                    return Err(de::Error::custom("bytes are a string or {\"base64\": \"...\"}"));
                };
                let bytes = BASE64.decode(text.as_bytes()).map_err(de::Error::custom)?;
                match map.next_key::<Cow<str>>()? {
                    None => Ok(Bytes(Cow::Owned(bytes))),
                    Some(_) => Err(de::Error::custom("{\"base64\": \"...\"} has one field")),
                }
            }
        }
        deserializer.deserialize_any(BytesVisitor)
    }
}

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &BASE64.encode(&self.0))?;
                map.end()
            }
        }
    }
}

/// Distinguishes a field that is null from one that is absent.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// One line. The operation's name and outcome determine its fields.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
struct Line<'a> {
    client: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<Bytes<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    lock: Option<Bytes<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    owner: Option<Bytes<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    session: Option<Bytes<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<bool>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    token: Option<Option<u64>>,
    #[serde(borrow, default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    expected: Option<Option<Bytes<'a>>>,
    #[serde(borrow, default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    value: Option<Option<Bytes<'a>>>,
    #[serde(borrow, default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    before: Option<Option<Bytes<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fenced: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    start: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
}

/// The content of a line.
struct Parsed {
    operation: Operation,
    fence: Option<Fence>,
    queued: Option<u64>,
}

/// Takes a field out of the line, or fails if it is absent. Fields that are left over in the end are errors.
fn take<T>(field: &mut Option<T>, name: &str, operation: &str) -> Result<T, String> {
    field.take().ok_or_else(|| format!("'{operation}' needs the field \"{name}\""))
}

/// Calls `take` with each line of a file that is not blank. The file may be compressed with gzip.
///
/// # Errors
/// [`ReadError`], with the line that could not be read, or why `take` does not want it.
pub(crate) fn for_each_line(
    mut input: impl BufRead,
    take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), ReadError> {
    let begin = input.fill_buf().map_err(|source| ReadError::Io { line: 1, source })?;
    match begin.first() {
        Some(&GZIP) => for_each_plain(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input)), take),
        _ => for_each_plain(input, take),
    }
}

fn for_each_plain(
    mut input: impl BufRead,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), ReadError> {
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let mut limited = io::Read::take(&mut input, LINE_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut bytes).map_err(|source| ReadError::Io { line, source })?;
        if read == 0 {
            break;
        }
        let failed = |reason: String| ReadError::Line { line, reason };
        if read == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            return Err(failed(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        if !bytes.iter().all(u8::is_ascii_whitespace) {
            take(&bytes).map_err(failed)?;
        }
    }
    Ok(())
}

impl History {
    /// Adds the operations of a file, whether it is compressed or not.
    pub fn read(&mut self, input: impl BufRead) -> Result<(), ReadError> {
        for_each_line(input, |bytes| {
            if self.operations().len() >= OPERATIONS_MAX {
                return Err(format!("a history has at most {OPERATIONS_MAX} operations"));
            }
            let parsed: Line = serde_json::from_slice(bytes).map_err(|error| plain(&error))?;
            let Parsed { operation, fence, queued } = self.operation_of(parsed)?;
            let id = self.push(operation);
            fence.into_iter().for_each(|fence| self.set_fence(id, fence));
            queued.into_iter().for_each(|at| self.set_queued(id, at));
            Ok(())
        })
    }

    /// Writes all operations, one per line.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        for id in self.ids() {
            serde_json::to_writer(&mut output, &self.line_of(id))?;
            output.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Writes all operations, compressed with gzip on the way: the memory used does not grow with the history.
    pub fn write_compressed(&self, output: impl Write) -> io::Result<()> {
        // The compressor is faster with a few large pieces than with many small ones.
        let mut lines = BufWriter::with_capacity(1 << 16, GzEncoder::new(output, Compression::fast()));
        self.write(&mut lines)?;
        lines.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?.flush()
    }

    /// Returns one operation as a JSON object.
    pub fn json(&self, id: OperationId) -> serde_json::Value {
        // Only numbers, strings and names of fields: JSON can hold them all.
        serde_json::to_value(self.line_of(id)).unwrap_or_default()
    }

    fn operation_of(&mut self, mut line: Line) -> Result<Parsed, String> {
        let name = &*std::mem::take(&mut line.operation);
        let is_ok = match &*line.outcome {
            "ok" => true,
            "failed" | "unknown" => false,
            other => {
                return Err(format!("the outcome is \"ok\", \"failed\" or \"unknown\", not \"{other}\""));
            }
        };
        let stored = |history: &mut History, line: &mut Line| -> Result<Value, String> {
            let value = take(&mut line.value, "value", name)?;
            let value = value.ok_or_else(|| format!("'{name}' stores a value, which is not null"))?;
            Ok(history.value(&value.0))
        };
        let asked = locks::action(self, name, &mut line)?;
        let action = match name {
            _ if let Some((action, _)) = asked => Action::Lock(action),
            "get" => Action::Get,
            "set" => Action::Set(stored(self, &mut line)?),
            "delete" => Action::Delete,
            "increment" => Action::Increment(take(&mut line.delta, "delta", name)?),
            "set-if-absent" => Action::SetIfAbsent(stored(self, &mut line)?),
            "get-and-set" => Action::GetAndSet(stored(self, &mut line)?),
            "compare-and-set" => {
                let expected = take(&mut line.expected, "expected", name)?;
                let expected = expected.map(|value| self.value(&value.0));
                Action::CompareAndSet { expected, value: stored(self, &mut line)? }
            }
            other => return Err(format!("there is no operation \"{other}\"")),
        };
        let outcome = match (is_ok, action) {
            (false, _) if line.outcome == "failed" => Outcome::Failed,
            (false, _) => Outcome::Unknown,
            (true, Action::Get | Action::GetAndSet(_)) => {
                let (field, of) = match action {
                    Action::Get => (&mut line.value, "value"),
                    _ => (&mut line.before, "before"),
                };
                let value = take(field, of, name)?;
                Outcome::Ok(Answer::Value(value.map(|value| self.value(&value.0))))
            }
            (true, Action::Lock(action)) => Outcome::Ok(locks::answer(self, action, &mut line)?),
            (true, Action::Set(_)) => Outcome::Ok(Answer::Done),
            (true, Action::Delete) => Outcome::Ok(line.applied.take().map_or(Answer::Done, Answer::Applied)),
            (true, Action::Increment(_)) => Outcome::Ok(Answer::Sum(take(&mut line.sum, "sum", name)?)),
            (true, Action::SetIfAbsent(_) | Action::CompareAndSet { .. }) => {
                Outcome::Ok(Answer::Applied(take(&mut line.applied, "applied", name)?))
            }
        };
        let fence = match action.stores() {
            Some(_) => locks::fence(self, name, &mut line)?,
            None => None,
        };
        let queued = line.queued.take_if(|_| matches!(action, Action::Lock(LockAction::Acquire { .. })));
        if is_ok && line.end.is_none() {
            return Err("what is \"ok\" has an \"end\"".to_owned());
        }
        if line.end.is_some_and(|end| end < line.start) {
            return Err("the end is before the start".to_owned());
        }
        // The value of a read that was refused or never answered may be null.
        let values = [("value", &line.value), ("before", &line.before), ("expected", &line.expected)];
        let left =
            values.iter().find(|(_, value)| value.as_ref().is_some_and(|value| is_ok || value.is_some()));
        let left = left.map(|(field, _)| *field);
        let left = left.or(line.delta.map(|_| "delta")).or(line.sum.map(|_| "sum"));
        // The token of an acquire that was refused or never answered may be null.
        let token = line.token.filter(|token| is_ok || token.is_some());
        let others = [
            ("applied", line.applied.is_some()),
            ("lock", line.lock.is_some()),
            ("owner", line.owner.is_some()),
            ("session", line.session.is_some()),
            ("lease_ms", line.lease_ms.is_some()),
            ("wait", line.wait.is_some()),
            ("token", token.is_some()),
            ("fenced", line.fenced.is_some()),
            ("queued", line.queued.is_some()),
            ("key", line.key.is_some() && asked.is_some()),
        ];
        let left = left.or(others.iter().find(|(_, is_left)| *is_left).map(|(field, _)| *field));
        if let Some(field) = left {
            return Err(format!("'{name}' with the outcome \"{}\" has no field \"{field}\"", line.outcome));
        }
        let (client, node, start, end, version) =
            (line.client, line.node, line.start, line.end, line.version);
        let key = match asked {
            Some((_, key)) => key,
            None => self.key(&take(&mut line.key, "key", name)?.0),
        };
        let operation = Operation { client, node, key, action, start, end, outcome, version };
        Ok(Parsed { operation, fence, queued })
    }

    fn line_of(&self, id: OperationId) -> Line<'_> {
        let operation = self.operation(id);
        let bytes = |value: Value| Bytes(Cow::Borrowed(self.value_bytes(value)));
        let mut line = Line {
            client: operation.client,
            node: operation.node,
            operation: operation.action.name().into(),
            key: Some(Bytes(Cow::Borrowed(self.key_bytes(operation.key)))),
            lock: None,
            owner: None,
            session: None,
            lease_ms: None,
            wait: None,
            token: None,
            expected: None,
            value: operation.action.stores().map(|value| Some(bytes(value))),
            before: None,
            delta: None,
            sum: None,
            applied: None,
            fenced: None,
            version: operation.version,
            start: operation.start,
            queued: None,
            end: operation.end,
            outcome: match operation.outcome {
                Outcome::Ok(_) => "ok".into(),
                Outcome::Failed => "failed".into(),
                Outcome::Unknown => "unknown".into(),
            },
        };
        match operation.action {
            Action::Increment(delta) => line.delta = Some(delta),
            Action::CompareAndSet { expected, .. } => line.expected = Some(expected.map(bytes)),
            _ => {}
        }
        match (operation.action, operation.outcome) {
            (Action::Get, Outcome::Ok(Answer::Value(value))) => line.value = Some(value.map(bytes)),
            (_, Outcome::Ok(Answer::Value(value))) => line.before = Some(value.map(bytes)),
            (_, Outcome::Ok(Answer::Applied(applied))) => line.applied = Some(applied),
            (_, Outcome::Ok(Answer::Sum(sum))) => line.sum = Some(sum),
            _ => {}
        }
        locks::write(self, id, &mut line);
        line
    }
}

/// Returns the parser's message, with the column only: the line that it reports is always 1.
pub(crate) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let Some((reason, _)) = text.rsplit_once(" at line ") else { return text };
    format!("{reason} (column {})", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"client":1,"operation":"get","key":"a","value":"v","start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"get","key":"a","value":null,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"get","key":"a","start":10,"outcome":"unknown"}
{"client":1,"node":3,"operation":"set","key":"a","value":"v","version":7,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"set","key":"a","value":"v","start":10,"end":20,"outcome":"failed"}
{"client":1,"operation":"set","key":{"base64":"AP8="},"value":{"base64":"/w=="},"start":10,"outcome":"unknown"}
{"client":1,"operation":"delete","key":"a","start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"delete","key":"a","applied":true,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"increment","key":"a","delta":-2,"sum":5,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"set-if-absent","key":"a","value":"v","applied":false,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"get-and-set","key":"a","value":"v","before":null,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"compare-and-set","key":"a","expected":"u","value":"v","applied":true,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"compare-and-set","key":"a","expected":null,"value":"v","start":10,"outcome":"unknown"}
{"client":1,"operation":"set","key":"a","lock":"l","token":7,"value":"v","start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"set","key":"a","lock":"l","token":6,"value":"v","fenced":true,"start":10,"end":20,"outcome":"failed"}
{"client":1,"operation":"acquire","lock":"l","owner":"me","lease_ms":500,"token":7,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"acquire","lock":"l","owner":"me","lease_ms":500,"token":null,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"acquire","lock":"l","owner":"me","session":"0-5","wait":true,"token":7,"start":10,"queued":15,"end":20,"outcome":"ok"}
{"client":1,"operation":"acquire","lock":"l","owner":"me","lease_ms":500,"start":10,"outcome":"unknown"}
{"client":1,"operation":"renew","lock":"l","lease_ms":500,"token":7,"applied":false,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"release","lock":"l","token":7,"applied":true,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"open-session","session":"0-5","lease_ms":500,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"open-session","lease_ms":500,"start":10,"outcome":"unknown"}
{"client":1,"operation":"renew-session","session":"0-5","applied":true,"start":10,"end":20,"outcome":"ok"}
{"client":1,"operation":"close-session","session":"0-5","start":10,"outcome":"unknown"}
"#;

    #[test]
    fn lines_are_written_as_they_were_read() {
        let mut history = History::new();
        history.read(LINES.as_bytes()).unwrap();
        assert_eq!(history.operations().len(), 25);
        let mut written = Vec::new();
        history.write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), LINES);
        assert_eq!(history.key_bytes(history.operations()[5].key), [0, 255]);
    }

    #[test]
    fn a_compressed_history_is_smaller_and_reads_as_the_plain_one() {
        let mut history = History::new();
        for _ in 0..100 {
            history.read(LINES.as_bytes()).unwrap();
        }
        let mut compressed = Vec::new();
        history.write_compressed(&mut compressed).unwrap();
        assert!(compressed.len() * 10 < LINES.len() * 100, "{} bytes", compressed.len());
        let (mut again, mut written) = (History::new(), Vec::new());
        again.read(&compressed[..]).unwrap();
        again.write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), LINES.repeat(100));
        // A truncated file is an error, not a shorter history.
        let half = &compressed[..compressed.len() / 2];
        assert!(matches!(History::new().read(half), Err(ReadError::Io { .. })));
    }

    #[test]
    fn a_bad_line_is_reported_with_its_number_and_a_reason() {
        let good =
            r#"{"client":1,"operation":"get","key":"a","value":"v","start":10,"end":20,"outcome":"ok"}"#;
        let cases = [
            ("x", "line 3: expected value (column 1)"),
            (r#"{"client":1}"#, "line 3: missing field `operation` (column 12)"),
            (&good.replace("\"get\"", "\"fetch\""), "line 3: there is no operation \"fetch\""),
            (
                &good.replace("\"ok\"", "\"fine\""),
                "the outcome is \"ok\", \"failed\" or \"unknown\", not \"fine\"",
            ),
            (&good.replace("\"value\":\"v\",", ""), "'get' needs the field \"value\""),
            (&good.replace("\"end\":20", "\"end\":9"), "the end is before the start"),
            (&good.replace("\"end\":20,", ""), "what is \"ok\" has an \"end\""),
            (&good.replace("\"end\"", "\"applied\":true,\"end\""), "has no field \"applied\""),
            (&good.replace("\"end\"", "\"finish\":1,\"end\""), "unknown field `finish`"),
            (&good.replace("\"v\"", "{\"base64\":\"?\"}"), "Invalid"),
            (&good.replace("\"v\"", "{\"hex\":\"00\"}"), "bytes are a string or"),
            (&good.replace("\"v\"", "7"), "expected a string or {\"base64\": \"...\"}"),
            (&good.replace("10", "-10"), "invalid value: integer `-10`"),
            (&good.replace("\"end\"", "\"lease_ms\":1,\"end\""), "has no field \"lease_ms\""),
            (&good.replace("\"key\":\"a\",", ""), "'get' needs the field \"key\""),
            (
                &good.replace("get", "acquire").replace("\"value\":\"v\"", "\"owner\":\"o\""),
                "'acquire' needs one of the fields \"lease_ms\" and \"session\"",
            ),
            (&good.replace("get", "set").replace("\"v\"", "null"), "'set' stores a value, which is not null"),
        ];
        for (line, reason) in cases {
            let text = format!("{good}\n\n{line}\n");
            let error = History::new().read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("line 3: ") && error.contains(reason), "{line}: {error}");
        }
    }
}
