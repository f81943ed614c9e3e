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

use std::cell::RefCell;
use std::collections::BTreeMap;

use commands::{ChannelCommand, ClientCommand, Flag, Handler, KeyspaceCommand, NodeCommand};
use hyper::body::Incoming;
use hyper::header::HeaderName;
use hyper::{HeaderMap, Request, StatusCode};
use kv::Reply;
use kv::codec::Reader;
use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use wire::resp::{Arguments, ArgumentsBuffer};

use super::answer::{Answer, Refusal, write_json};
use super::fields::{Base64, bytes_of, named};
use super::routes::Routes;

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
        Answer::of_reply(reply, |reply, out| write_json(&InJson::new(reply).within("reply"), out))
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

/// A reply as JSON: byte strings as text, or as `{"base64"}` if they are not valid text; maps as lists of pairs. It is written as
/// it is read, once.
struct InJson<'r>(RefCell<Reader<'r>>);

impl<'r> InJson<'r> {
    fn new(reply: &'r [u8]) -> InJson<'r> {
        InJson(RefCell::new(Reader::new(reply)))
    }

    /// The reply as the only field of an object.
    fn within(self, name: &'static str) -> BTreeMap<&'static str, InJson<'r>> {
        BTreeMap::from([(name, self)])
    }
}

impl Serialize for InJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reply = Reply::decode(&mut self.0.borrow_mut()).map_err(S::Error::custom)?;
        match reply {
            Reply::Ok => serializer.serialize_str("OK"),
            Reply::Null | Reply::NullArray => serializer.serialize_unit(),
            Reply::Integer(number) => serializer.serialize_i64(number),
            Reply::Double(number) | Reply::Decimal(number) => match number.is_finite() {
                true => serializer.serialize_f64(number),
                false => serializer.collect_str(&number),
            },
            Reply::Boolean(is_true) => serializer.serialize_bool(is_true),
            Reply::Bulk(bytes) | Reply::Status(bytes) | Reply::Text(bytes) | Reply::BigNumber(bytes) => {
                match std::str::from_utf8(bytes) {
                    Ok(text) => serializer.serialize_str(text),
                    Err(_) => field("base64", &Base64(bytes), serializer),
                }
            }
            Reply::Error(bytes) => field("error", &String::from_utf8_lossy(bytes), serializer),
            Reply::Array(count) | Reply::Set(count) | Reply::Pairs(count) | Reply::Entries(count) => {
                serializer.collect_seq((0..count).map(|_| self))
            }
            Reply::Pair | Reply::Entry => serializer.collect_seq([self, self]),
            Reply::Map(count) => serializer.collect_seq((0..count).map(|_| [self, self])),
            Reply::Push(_)
            | Reply::Unresolved(_)
            | Reply::Needs(_)
            | Reply::Reads(_)
            | Reply::Reference(_)
            | Reply::Lent(_) => Err(S::Error::custom("a reply that is not for clients")),
        }
    }
}

/// Writes an object of one field.
fn field<S: Serializer>(
    name: &'static str,
    value: &impl Serialize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map([(name, value)])
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
        let mut converted = Vec::new();
        write_json(&InJson::new(replies.as_bytes()).within("reply"), &mut converted).unwrap();
        let expected = r#"{"reply":["OK",null,-7,{"base64":"/w=="},[["field",[]]]]}"#;
        assert_eq!(String::from_utf8(converted).unwrap(), expected);
        assert!(
            write_json(&InJson::new(&replies.as_bytes()[..20]), &mut Vec::new()).is_err(),
            "half a reply"
        );
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
