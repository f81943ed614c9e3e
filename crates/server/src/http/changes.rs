//! The changes of a keyspace as server-sent events: what `KEYSPACE WATCH` sends over RESP, with JSON.
//!
//! | request | answer |
//! |---|---|
//! | `GET /changes/{prefix}?from={version}` | events, until the client disconnects or the keyspace is dropped |
//!
//! The id of each event is the version after which the stream continues. Browsers and libraries send it back as
//! `Last-Event-ID` when they reconnect. `/changes/` alone is the default keyspace.
//!
//! The next changes are requested from the node as fast as the client reads them; when there are none, again after a
//! pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, StatusCode};
use kv::Reply;
use kv::codec::Reader;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use wire::resp::ArgumentsBuffer;

use super::answer::{Answer, Refusal, only, unexpected};
use super::fields::{named, prefix_of};
use super::routes::{Routes, next};

/// How long to wait before the next request to a node that had no new changes.
const PAUSE: Duration = Duration::from_millis(20);

/// After this long without events a comment is sent, so that proxies in between see a live connection.
const SILENCE: Duration = Duration::from_secs(15);

/// The maximum number of the node's answers that wait for the client.
const WAITING_MAX: usize = 2;

impl Routes {
    /// Handles requests for the changes of a keyspace. Errors before the first event are ordinary answers.
    pub(super) async fn changes(
        self: &Arc<Self>,
        encoded: &str,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        only(request.method(), &[Method::GET], "GET, DELETE")?;
        let prefix = prefix_of(encoded, None)?;
        let last = request.headers().get("last-event-id").map(|value| value.as_bytes().to_vec());
        let from = match (last, request.uri().query()) {
            (Some(last), _) => Some(last),
            (None, None) => None,
            (None, Some(query)) => Some(
                query
                    .strip_prefix("from=")
                    .map(|from| from.as_bytes().to_vec())
                    .ok_or_else(|| Refusal::bad_request("this path takes from=version, and nothing else"))?,
            ),
        };
        let reply = self.command(command(&prefix, from.as_deref())).await?;
        let (mut version, records) = taken(&reply)?;
        let begin = match &from {
            // The starting position, for a client that did not give one.
            None => event("position", &version, &json!({ "version": version })),
            Some(_) => String::new(),
        };
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let routes = Arc::clone(self);
        tokio::spawn(async move {
            let mut text = begin + &records;
            let mut spoken = Instant::now();
            loop {
                let is_idle = text.is_empty();
                if is_idle && spoken.elapsed() >= SILENCE {
                    text = ":\n\n".into();
                }
                if !text.is_empty() {
                    spoken = Instant::now();
                    if sender.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
                        return;
                    }
                }
                if is_idle {
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => {}
                        () = sender.closed() => return,
                    }
                }
                match routes.command(command(&prefix, Some(version.as_bytes()))).await {
                    Ok(reply) => match taken(&reply) {
                        Ok((until, records)) => (version, text) = (until, records),
                        Err(_) => return,
                    },
                    // This may be temporary: a group without a leader, say.
                    Err(refusal) if refusal.status() == StatusCode::SERVICE_UNAVAILABLE => {}
                    Err(refusal) => {
                        let (code, error) = refusal.words();
                        let ended = event("ended", &version, &json!({ "code": code, "error": error }));
                        let _ = sender.send(Bytes::from(ended)).await;
                        return;
                    }
                }
            }
        });
        Ok(Answer::events(receiver))
    }
}

/// `KEYSPACE CHANGES prefix FROM version`
fn command(prefix: &str, from: Option<&[u8]>) -> ArgumentsBuffer {
    let words = [&b"KEYSPACE"[..], b"CHANGES", prefix.as_bytes()];
    words.into_iter().chain(from.into_iter().flat_map(|from| [&b"FROM"[..], from])).collect()
}

fn event(name: &str, version: &str, data: &Value) -> String {
    format!("id: {version}\nevent: {name}\ndata: {data}\n\n")
}

/// Returns the version up to which a reply has all changes, and the changes as events.
fn taken(reply: &[u8]) -> Result<(String, String), Refusal> {
    let mut reader = Reader::new(reply);
    let text = |reader: &mut Reader<'_>| match next(reader)? {
        Reply::Bulk(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(unexpected()),
    };
    let count = |reader: &mut Reader<'_>| match next(reader)? {
        Reply::Array(count) => Ok(count),
        _ => Err(unexpected()),
    };
    count(&mut reader)?;
    let until = text(&mut reader)?;
    let mut events = String::new();
    for _ in 0..count(&mut reader)? {
        let parts = count(&mut reader)?;
        let version = text(&mut reader)?;
        let mut changes = Vec::new();
        for _ in 0..count(&mut reader)? {
            count(&mut reader)?;
            let Reply::Bulk(key) = next(&mut reader)? else { return Err(unexpected()) };
            let mut change = named("key", key);
            change.insert("event".into(), text(&mut reader)?.into());
            changes.push(Value::Object(change));
        }
        let mut effects = Vec::new();
        for _ in 0..count(&mut reader)? {
            let mut words = Vec::new();
            for _ in 0..count(&mut reader)? {
                let Reply::Bulk(word) = next(&mut reader)? else { return Err(unexpected()) };
                words.push(match std::str::from_utf8(word) {
                    Ok(word) => word.into(),
                    Err(_) => Value::Object(named("word", word)),
                });
            }
            effects.push(Value::Array(words));
        }
        let mut data = json!({ "version": version, "events": changes, "effects": effects });
        if parts > 3 {
            let groups = count(&mut reader)?.saturating_sub(1);
            let id = text(&mut reader)?;
            let group = |_| match next(&mut reader)? {
                Reply::Integer(group) => Ok(group),
                _ => Err(unexpected()),
            };
            let groups = (0..groups).map(group).collect::<Result<Vec<_>, Refusal>>()?;
            data["transaction"] = json!({ "id": id, "groups": groups });
        }
        events += &event("change", &version, &data);
    }
    Ok((until, events))
}
