//! Commands of the Redis protocol over HTTP: what the page needs besides `/status`, and commands that have no path of
//! their own.
//!
//! | request | answer |
//! |---|---|
//! | `POST /command {"command": [word, ...]}` | `{"reply": ...}`; an error reply is an error |
//! | `POST /may {"commands": [[word, ...], ...]}` | `{"user", "may": [bool, ...]}`: what the user may do; nothing is done |
//!
//! Both need the header `X-Quorate`, with any value, besides all other checks against pages of other sites: for another
//! site, a browser sends such a header only after asking this node, which refuses.
//!
//! Each command has a session of its own, which ends with its reply, so commands about a connection are refused.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use commands::{ChannelCommand, ClientCommand, Flag, Handler, KeyspaceCommand, NodeCommand};
use hyper::body::Incoming;
use hyper::header::HeaderName;
use hyper::{HeaderMap, Request, StatusCode};
use kv::Reply;
use kv::codec::Reader;
use serde::Deserialize;
use serde_json::{Value, json};
use wire::resp::{Arguments, ArgumentsBuffer};

use super::answer::{Answer, Refusal};
use super::fields::{bytes_of, named};
use super::routes::{Routes, next, unexpected};

/// The header that shows that the request is intended, and not sent by a page of another site.
const MEANT: HeaderName = HeaderName::from_static("x-quorate");

/// The maximum number of commands in one `POST /may`.
const ASKED_RIGHTS_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    command: Vec<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rights {
    commands: Vec<Vec<Word>>,
}

/// A word of a command: text, a number, or bytes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Number(i64),
    Bytes { word_base64: String },
}

impl Routes {
    /// Handles `POST /command`.
    pub(super) async fn run(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        require_meant(request.headers())?;
        let (Command { command }, _permit) = self.body(request).await?;
        let words = words(command)?;
        words.as_arguments().iter().try_for_each(|word| self.check_length(word))?;
        refuse_connected(words.as_arguments())?;
        let reply = self.command_alone(words).await?;
        let mut reader = Reader::new(&reply);
        let value = value(&mut reader)?;
        Ok(Answer::json(StatusCode::OK, &json!({ "reply": value })))
    }

    /// Handles `POST /may`.
    pub(super) async fn may(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        require_meant(request.headers())?;
        let (Rights { commands }, _permit) = self.body(request).await?;
        if commands.len() > ASKED_RIGHTS_MAX {
            return Err(Refusal::bad_request(format!("at most {ASKED_RIGHTS_MAX} commands at once")));
        }
        let (user, mut may) = (self.user_name(), Vec::new());
        for command in commands {
            let mut question: ArgumentsBuffer = [&b"ACL"[..], b"DRYRUN", &user].into_iter().collect();
            words(command)?.as_arguments().iter().for_each(|word| question.push(word));
            // Runs as the node itself, since the user need not have the right to ask.
            let reply = self.as_node().command(question).await?;
            may.push(matches!(Reply::first(&reply), Reply::Ok));
        }
        let mut fields = named("user", &user);
        fields.insert("may".into(), may.into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
    }
}

fn require_meant(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(MEANT) {
        return Ok(());
    }
    let error = "this needs the header X-Quorate, with anything in it (curl -H 'X-Quorate: 1')";
    Err(Refusal::new(StatusCode::FORBIDDEN, "ORIGIN", error))
}

fn words(words: Vec<Word>) -> Result<ArgumentsBuffer, Refusal> {
    let mut buffer = ArgumentsBuffer::new();
    for word in words {
        buffer.push(&match word {
            Word::Text(text) => text.into_bytes(),
            Word::Number(number) => number.to_string().into_bytes(),
            Word::Bytes { word_base64 } => bytes_of("word", None, Some(word_base64))?,
        });
    }
    match buffer.as_arguments().is_empty() {
        true => Err(Refusal::bad_request("\"command\" has no words")),
        false => Ok(buffer),
    }
}

/// Refuses unknown commands, commands that wait, that are about the connection, or that have more than one reply or none.
fn refuse_connected(arguments: Arguments<'_>) -> Result<(), Refusal> {
    // The node also accepts commands from parts of the server that are not for users.
    let found =
        commands::find(arguments).map_err(|error| Refusal::from_node(error.to_string().as_bytes()))?;
    let is_of_connection = match found.spec.handler {
        Handler::Node(command) => matches!(
            command,
            NodeCommand::Auth
                | NodeCommand::Hello
                | NodeCommand::Quit
                | NodeCommand::Reset
                | NodeCommand::Monitor
                | NodeCommand::Transaction(_)
                | NodeCommand::ReplicaConfiguration
                | NodeCommand::ReplicaSync
                | NodeCommand::Wait
                | NodeCommand::Channel(ChannelCommand::Subscribe(_) | ChannelCommand::Unsubscribe(_))
                | NodeCommand::Keyspace(
                    KeyspaceCommand::Watch | KeyspaceCommand::Unwatch | KeyspaceCommand::Copy
                )
                | NodeCommand::Client(
                    ClientCommand::Reply | ClientCommand::Tracking | ClientCommand::Caching
                )
        ),
        _ => false,
    };
    if !is_of_connection && !found.spec.flags.has(Flag::Blocking) {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "'{}' waits, or belongs to a connection: use the port for Redis clients",
        found.spec.name
    )))
}

/// Reads a reply as JSON: byte strings as text, or as `{"base64"}` if they are not valid text; maps as lists of
/// pairs.
fn value(reader: &mut Reader<'_>) -> Result<Value, Refusal> {
    Ok(match next(reader)? {
        Reply::Ok => "OK".into(),
        Reply::Null | Reply::NullArray => Value::Null,
        Reply::Integer(number) => number.into(),
        Reply::Double(number) | Reply::Decimal(number) => match number.is_finite() {
            true => number.into(),
            false => number.to_string().into(),
        },
        Reply::Boolean(is_true) => is_true.into(),
        Reply::Bulk(bytes) | Reply::Status(bytes) | Reply::Text(bytes) | Reply::BigNumber(bytes) => {
            text(bytes)
        }
        Reply::Error(bytes) => json!({ "error": String::from_utf8_lossy(bytes) }),
        Reply::Array(count) | Reply::Set(count) => elements(count, reader)?,
        Reply::Map(count) => pairs(count, reader)?,
        Reply::Pairs(count) | Reply::Entries(count) => elements(count, reader)?,
        Reply::Pair | Reply::Entry => elements(2, reader)?,
        Reply::Push(_)
        | Reply::Unresolved(_)
        | Reply::Needs(_)
        | Reply::Reads(_)
        | Reply::Reference(_)
        | Reply::Lent(_) => return Err(unexpected()),
    })
}

fn elements(count: u32, reader: &mut Reader<'_>) -> Result<Value, Refusal> {
    Ok(Value::Array((0..count).map(|_| value(reader)).collect::<Result<_, _>>()?))
}

fn pairs(count: u32, reader: &mut Reader<'_>) -> Result<Value, Refusal> {
    Ok(Value::Array((0..count).map(|_| elements(2, reader)).collect::<Result<_, _>>()?))
}

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_become_json() {
        let mut replies = kv::ReplyBuffer::new();
        replies.array(5);
        replies.ok();
        replies.null();
        replies.integer(-7);
        replies.bulk(b"\xff");
        replies.map(1);
        replies.bulk(b"field");
        replies.array(0);
        let converted = value(&mut Reader::new(replies.as_bytes())).unwrap();
        assert_eq!(converted, json!(["OK", null, -7, { "base64": "/w==" }, [["field", []]]]));
    }

    #[test]
    fn commands_of_a_connection_or_of_the_server_are_refused() {
        let check = |line: &str| {
            let words: ArgumentsBuffer = line.split(' ').map(str::as_bytes).collect();
            refuse_connected(words.as_arguments()).is_ok()
        };
        for line in ["GET k", "SCAN 0", "SLOWLOG GET", "KEYSPACE CREATE x:", "CLUSTER ASK 2 INFO"] {
            assert!(check(line), "{line}");
        }
        for line in [
            "MULTI",
            "BLPOP l 0",
            "SUBSCRIBE c",
            "MONITOR",
            "AUTH p",
            "KEYSPACE WATCH x:",
            "KEYSPACE COPY x: 0",
            "CLIENT REPLY OFF",
            "WAIT 1 0",
            "PSYNC ? -1",
            "LOCK l o PX 10",
            "NOSUCH",
            "GET",
            "QUORATE.REPLICATE k v 7",
            "QUORATE.PUT k v",
        ] {
            assert!(!check(line), "{line}");
        }
    }

    #[test]
    fn words_are_text_numbers_or_bytes() {
        let read = |text: &str| {
            let Command { command } = serde_json::from_str(text).unwrap();
            words(command).map(|words| words.as_arguments().iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let read_words = read(r#"{"command":["SET","k",7,{"word_base64":"/w=="}]}"#).unwrap();
        assert_eq!(read_words, [&b"SET"[..], b"k", b"7", b"\xff"]);
        assert!(read(r#"{"command":[]}"#).is_err());
    }
}
