//! What can be asked over HTTP, and how each is answered.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | this list |
//! | `POST /put {"key","value","ttl_ms"?}` | `{"key","version"}` |
//! | `GET /get/{key}` | `{"key","value","version","expires_at_ms"?}` |
//! | `DELETE /{key}` | `{"key","deleted"}` |
//! | `GET /health` | the node's state; 503 until it is ready |
//! | `GET /metrics` | Prometheus text |
//! | `POST /replicate {"key","value","version"}` | `{"key","applied","version"}`; needs the cluster's secret |
//!
//! Keys in paths are percent-encoded; slashes need not be. What is not UTF-8 travels as base64 in a field whose
//! name ends in `_base64` instead.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use hyper::{HeaderMap, Method, Request, StatusCode};
use kv::Reply;
use kv::codec::Reader;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use wire::handshake::secret_matches;
use wire::resp::ArgumentsBuffer;

use super::answer::{Answer, Refusal};
use crate::bridge::{Call, Caller};
use crate::config::Config;

/// How much longer HTTP waits for an answer than the node takes to give up.
const GRACE: Duration = Duration::from_secs(1);

/// What a body holds beside the value.
const BODY_BYTES_BEYOND_VALUE: usize = 256 << 10;

/// Everything that answering needs.
pub(super) struct Routes {
    caller: Caller,
    secret: String,
    password: Option<String>,
    value_bytes_max: usize,
    answer_timeout: Duration,
    body_timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    ttl_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replicate {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    version: u64,
}

impl Routes {
    pub(super) fn new(config: &Config, caller: Caller) -> Routes {
        let limits = &config.limits;
        Routes {
            caller,
            secret: config.secret.clone(),
            password: config.password.clone(),
            value_bytes_max: limits.value_bytes_max,
            answer_timeout: Duration::from_millis(limits.command_timeout_ms) + GRACE,
            body_timeout: Duration::from_millis(limits.request_timeout_ms),
        }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        same_origin(request.headers())?;
        let path = request.uri().path().to_owned();
        match path.as_str() {
            // Whoever balances load asks this one, and has no password.
            "/health" if request.method() != Method::DELETE => {
                only(request.method(), &[Method::GET, Method::HEAD], "GET")?;
                self.health().await
            }
            "/replicate" if request.method() != Method::DELETE => {
                only(request.method(), &[Method::POST], "POST")?;
                self.require_secret(request.headers())?;
                self.replicate(request).await
            }
            _ => {
                self.require_password(request.headers())?;
                self.answer_client(&path, request).await
            }
        }
    }

    async fn answer_client(&self, path: &str, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (method, query) = (request.method(), request.uri().query());
        match path {
            "/" => {
                only(method, &[Method::GET, Method::HEAD], "GET")?;
                Ok(index())
            }
            // Every path but the root is a key to delete, also one that has another meaning.
            _ if method == Method::DELETE => self.delete(key_of(&path[1..], query)?).await,
            "/put" => {
                only(method, &[Method::POST], "POST, DELETE")?;
                self.put(request).await
            }
            "/metrics" => {
                only(method, &[Method::GET, Method::HEAD], "GET, DELETE")?;
                let text = self.ask(Call::Metrics).await?;
                Ok(Answer::metrics(text))
            }
            _ => match path.strip_prefix("/get/") {
                Some(key) => {
                    only(method, &[Method::GET, Method::HEAD], "GET, DELETE")?;
                    self.get(key_of(key, query)?).await
                }
                None => Err(Refusal::new(
                    StatusCode::NOT_FOUND,
                    "NOTFOUND",
                    "no such path; GET / lists what there is",
                )),
            },
        }
    }

    async fn put(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let put: Put = self.body(request).await?;
        let key = bytes_of("key", put.key, put.key_base64)?;
        let value = bytes_of("value", put.value, put.value_base64)?;
        self.check_length(&value)?;
        let mut arguments: ArgumentsBuffer = [&b"QUORATE.PUT"[..], &key, &value].into_iter().collect();
        if let Some(ttl_ms) = put.ttl_ms {
            arguments.push(b"PX");
            arguments.push(ttl_ms.to_string().as_bytes());
        }
        let reply = self.command(arguments).await?;
        let mut told = named("key", &key);
        told.insert("version".into(), integer(&mut Reader::new(&reply))?.into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(told)))
    }

    async fn get(&self, key: Vec<u8>) -> Result<Answer, Refusal> {
        let reply = self.command([&b"QUORATE.FETCH"[..], &key].into_iter().collect()).await?;
        let mut reader = Reader::new(&reply);
        match next(&mut reader)? {
            Reply::Array(3) => {}
            Reply::Null | Reply::NullArray => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, "NOTFOUND", "no such key"));
            }
            _ => return Err(unexpected()),
        }
        let Reply::Bulk(value) = next(&mut reader)? else { return Err(unexpected()) };
        let mut told = named("key", &key);
        told.append(&mut named("value", value));
        told.insert("version".into(), integer(&mut reader)?.into());
        match next(&mut reader)? {
            Reply::Integer(deadline) => drop(told.insert("expires_at_ms".into(), deadline.into())),
            Reply::Null => {}
            _ => return Err(unexpected()),
        }
        Ok(Answer::json(StatusCode::OK, &Value::Object(told)))
    }

    async fn delete(&self, key: Vec<u8>) -> Result<Answer, Refusal> {
        let reply = self.command([&b"DEL"[..], &key].into_iter().collect()).await?;
        let mut told = named("key", &key);
        told.insert("deleted".into(), (integer(&mut Reader::new(&reply))? > 0).into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(told)))
    }

    async fn replicate(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let record: Replicate = self.body(request).await?;
        let key = bytes_of("key", record.key, record.key_base64)?;
        let value = bytes_of("value", record.value, record.value_base64)?;
        self.check_length(&value)?;
        let version = record.version.to_string();
        let arguments = [&b"QUORATE.REPLICATE"[..], &key, &value, version.as_bytes()];
        let reply = self.command(arguments.into_iter().collect()).await?;
        let mut reader = Reader::new(&reply);
        let Reply::Array(2) = next(&mut reader)? else { return Err(unexpected()) };
        let mut told = named("key", &key);
        told.insert("applied".into(), (integer(&mut reader)? > 0).into());
        told.insert("version".into(), integer(&mut reader)?.into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(told)))
    }

    async fn health(&self) -> Result<Answer, Refusal> {
        let health = self.ask(Call::Health).await?;
        let is_ready = health.get("ready") == Some(&Value::Bool(true));
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Ok(Answer::json(status, &health))
    }

    /// Runs a command. Its answer is not an error.
    async fn command(&self, arguments: ArgumentsBuffer) -> Result<Vec<u8>, Refusal> {
        let reply = self.ask(|sender| Call::Command(arguments, sender)).await?;
        match Reply::first(&reply) {
            Reply::Error(text) => Err(Refusal::from_node(text)),
            _ => Ok(reply),
        }
    }

    /// Hands a call to the worker and waits for what it says.
    async fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Result<T, Refusal> {
        let (sender, receiver) = oneshot::channel();
        if !self.caller.call(call(sender)) {
            let error = "too many calls are waiting; nothing was done";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", error));
        }
        match tokio::time::timeout(self.answer_timeout, receiver).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => {
                let error =
                    "the node gave no answer in time; the command may have taken effect or may still do so";
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "UNKNOWN", error))
            }
        }
    }

    async fn body<T: DeserializeOwned>(&self, request: Request<Incoming>) -> Result<T, Refusal> {
        // Base64 takes a third more than the value; escapes in JSON may take as much again.
        let bytes_max = self.value_bytes_max * 2 + BODY_BYTES_BEYOND_VALUE;
        let collected = Limited::new(request.into_body(), bytes_max).collect();
        let body = match tokio::time::timeout(self.body_timeout, collected).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(Refusal::too_large("body", bytes_max));
            }
            Ok(Err(error)) => {
                return Err(Refusal::bad_request(format!("the body did not arrive whole: {error}")));
            }
            Err(_) => {
                let error = "the body took too long to arrive";
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", error));
            }
        };
        serde_json::from_slice(&body)
            .map_err(|error| Refusal::bad_request(format!("the body is not as expected: {error}")))
    }

    fn check_length(&self, value: &[u8]) -> Result<(), Refusal> {
        if value.len() > self.value_bytes_max {
            return Err(Refusal::too_large("value", self.value_bytes_max));
        }
        Ok(())
    }

    fn require_secret(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match credentials(headers) {
            Some(given) if secret_matches(&given, self.secret.as_bytes()) => Ok(()),
            Some(_) => Err(Refusal::unauthorized("that is not the cluster's secret")),
            None => Err(Refusal::unauthorized("this needs Authorization: Bearer with the cluster's secret")),
        }
    }

    fn require_password(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(password) = &self.password else { return Ok(()) };
        match credentials(headers) {
            Some(given) if secret_matches(&given, password.as_bytes()) => Ok(()),
            Some(_) => Err(Refusal::unauthorized("that is not the password")),
            None => {
                Err(Refusal::unauthorized("this needs Authorization: Bearer with the password, or Basic"))
            }
        }
    }
}

/// What the caller says to know: the token of `Bearer`, the password of `Basic`.
fn credentials(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, given) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(given.trim().as_bytes().to_vec());
    }
    let pair = BASE64_STANDARD.decode(given.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Refuses what a page of another site sends through somebody's browser, which reaches what only he can reach.
fn same_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let from = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    if from.is_some() && from == host {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::FORBIDDEN, "ORIGIN", "pages of other sites may not use this"))
}

fn only(method: &Method, allowed: &[Method], told: &'static str) -> Result<(), Refusal> {
    if allowed.contains(method) { Ok(()) } else { Err(Refusal::method(told)) }
}

fn index() -> Answer {
    let endpoints = json!({
        "POST /put": "{\"key\", \"value\", \"ttl_ms\"?} stores a value",
        "GET /get/{key}": "reads a value",
        "DELETE /{key}": "removes a key",
        "GET /health": "the state of this node; 503 until it is ready",
        "GET /metrics": "counters for Prometheus",
        "POST /replicate": "{\"key\", \"value\", \"version\"} stores a value if its version is newer",
    });
    Answer::json(StatusCode::OK, &json!({ "name": "quorate", "endpoints": endpoints }))
}

/// The key that a path names.
fn key_of(encoded: &str, query: Option<&str>) -> Result<Vec<u8>, Refusal> {
    if query.is_some() {
        return Err(Refusal::bad_request(
            "this path takes no query; a question mark in a key is written %3F",
        ));
    }
    if encoded.is_empty() {
        return Err(Refusal::bad_request("the path names no key"));
    }
    percent_decoded(encoded.as_bytes()).ok_or_else(|| {
        Refusal::bad_request("a percent sign in a key is written %25; others begin two hex digits")
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

/// A field of a body that is given either as text or as base64.
fn bytes_of(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Refusal> {
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

/// Bytes as a field: as text if they are text.
fn named(name: &str, bytes: &[u8]) -> Map<String, Value> {
    let (name, value) = match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), text.to_owned()),
        Err(_) => (format!("{name}_base64"), BASE64_STANDARD.encode(bytes)),
    };
    Map::from_iter([(name, Value::String(value))])
}

fn next<'a>(reader: &mut Reader<'a>) -> Result<Reply<'a>, Refusal> {
    Reply::decode(reader).map_err(|_| unexpected())
}

fn integer(reader: &mut Reader<'_>) -> Result<i64, Refusal> {
    match next(reader)? {
        Reply::Integer(value) => Ok(value),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> Refusal {
    let error = "the node's answer is not of the expected kind; the command may have taken effect";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", error)
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
    fn credentials_are_taken_from_both_schemes() {
        let given = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            credentials(&headers)
        };
        assert_eq!(given("Bearer word").as_deref(), Some(&b"word"[..]));
        assert_eq!(given("bearer  word ").as_deref(), Some(&b"word"[..]));
        assert_eq!(given("Basic dXNlcjpwYTpzcw==").as_deref(), Some(&b"pa:ss"[..]));
        for wrong in ["word", "Basic !!", "Basic dXNlcg==", "Digest dXNlcjpwYTpzcw=="] {
            assert_eq!(given(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_turned_away() {
        let check = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:8000".parse().unwrap());
            headers.insert(ORIGIN, origin.parse().unwrap());
            same_origin(&headers).is_ok()
        };
        assert!(check("http://127.0.0.1:8000"));
        assert!(!check("http://example.org") && !check("null"));
        assert!(same_origin(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn what_is_no_text_travels_as_base64() {
        assert_eq!(named("value", b"text")["value"], "text");
        assert_eq!(named("value", b"\xff")["value_base64"], "/w==");
        assert_eq!(bytes_of("value", None, Some("/w==".into())).unwrap(), b"\xff");
        assert!(bytes_of("value", None, Some("?".into())).is_err());
        assert!(bytes_of("value", None, None).is_err());
        assert!(bytes_of("value", Some("a".into()), Some("YQ==".into())).is_err());
    }
}
