//! The HTTP requests and their answers.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | this list |
//! | `POST /put {"key","value","ttl_ms"?,"fence"?}` | `{"key","version"}`; 409 if the fence's token is not the newest |
//! | `GET /get/{key}` | `{"key","value","version","expires_at_ms"?}` |
//! | `DELETE /{key}` | `{"key","deleted"}` |
//! | `GET /health` | the node's state; 503 until it is ready; `?all`, `?keyspace=`: what it serves |
//! | `GET /metrics` | Prometheus text |
//! | `GET /status` | see [`super::status`] |
//! | `POST /command`, `POST /may` | see [`super::commands`] |
//! | `/changes/{prefix}` | see [`super::changes`] |
//! | `/keyspaces` | see [`super::keyspaces`] |
//! | `/locks/{name}`, `/sessions/{key}` | see [`super::locks`] |
//! | `POST /replicate {"key","value","version"}` | `{"key","applied","version"}`; needs the cluster's secret |
//!
//! Keys in paths are percent-encoded; slashes need not be, except in the key of a `DELETE` that begins with `keyspaces/`,
//! `locks/` or `sessions/`: unencoded, that is the path of a keyspace, a lock or a session. Bytes that are not UTF-8 travel
//! as base64, in a field whose name ends in `_base64`.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::{Method, Request, StatusCode};
use kv::Reply;
use kv::codec::Reader;
use node::{Credentials, NotKnown};
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use wire::resp::ArgumentsBuffer;

use super::access::{Access, name_in, require_json};
use super::answer::{Answer, Refusal, only, unexpected, write_json};
use super::fields::{bytes_of, database_of, key_of, named, prefix_of, put_named, tracing_of};
use super::{Stage, StageOf};
use super::{health, page};
use crate::answers::NodeReply;
use crate::bridge::{Asker, Call, Caller, How, LogInError};
use crate::config::Config;

/// How much longer HTTP waits for an answer than the node waits before it gives up.
const GRACE: Duration = Duration::from_secs(1);

/// The code of a call without an answer.
const NO_ANSWER: &str = "UNKNOWN";

/// The maximum number of bytes of a body besides the value.
const BODY_BYTES_BEYOND_VALUE: usize = 256 << 10;

/// The unit in which memory for bodies is allotted.
const BODY_UNIT_BYTES: u64 = 4 << 10;

/// Answers requests of one caller.
pub(super) struct Routes {
    shared: Arc<Shared>,
    asker: Asker,
}

impl Deref for Routes {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What all answers need, for any caller.
pub(super) struct Shared {
    caller: Caller,
    access: Access,
    secret: String,
    value_bytes_max: usize,
    answer_timeout: Duration,
    body_timeout: Duration,
    /// The memory that all bodies being read or processed may use together, in units.
    body_units: Semaphore,
    body_units_max: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    ttl_ms: Option<u64>,
    fence: Option<Fence>,
}

/// The lock that guards a write, and the writer's token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fence {
    lock: Option<String>,
    lock_base64: Option<String>,
    token: u64,
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
        let body_units_max = (limits.http_bytes_max as u64 / BODY_UNIT_BYTES).max(1);
        let shared = Shared {
            caller,
            access: Access::new(config),
            secret: config.secret.clone(),
            value_bytes_max: limits.value_bytes_max,
            answer_timeout: Duration::from_millis(limits.command_timeout_ms) + GRACE,
            body_timeout: Duration::from_millis(limits.request_timeout_ms),
            body_units: Semaphore::new(body_units_max as usize),
            body_units_max,
        };
        Routes { shared: Arc::new(shared), asker: Asker::default() }
    }

    /// Answers one request, from a client at this address.
    pub(super) async fn answer(
        self: &Arc<Self>,
        from: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        self.access.check_host(&request)?;
        let path = request.uri().path().to_owned();
        if let Some(file) = page::file(&path, request.method(), request.headers()) {
            return file;
        }
        self.access.check_site(request.headers())?;
        match path.as_str() {
            // Load balancers request this, and have no password.
            "/health" if request.method() != Method::DELETE => {
                only(request.method(), &[Method::GET, Method::HEAD], "GET, DELETE")?;
                self.health(request.uri().query()).await
            }
            "/replicate" if request.method() != Method::DELETE => {
                only(request.method(), &[Method::POST], "POST, DELETE")?;
                self.access.require_secret(from, request.headers(), &self.secret)?;
                self.replicate(request).await
            }
            _ => {
                let user = self.user(from, &path, &request).await?;
                let database = database_of(request.uri().query())?.unwrap_or(0);
                let tracing = tracing_of(request.headers());
                let asker = Asker { whom: Some(Arc::new((user, from))), database, tracing };
                let routes = Routes { shared: Arc::clone(&self.shared), asker };
                Arc::new(routes).answer_client(&path, request).await
            }
        }
    }

    /// Authenticates the caller. Paths that are answered without a command of the node are checked against the user's
    /// rights here.
    async fn user(&self, from: IpAddr, path: &str, request: &Request<Incoming>) -> Result<Vec<u8>, Refusal> {
        let reads = request.method() != Method::DELETE;
        let wants: Option<&[&[u8]]> = match path {
            "/metrics" if reads => Some(&[b"INFO"]),
            "/keyspaces" if reads && request.method() != Method::POST => Some(&[b"KEYSPACE", b"LIST"]),
            _ => None,
        };
        let wants = wants.map(|words| words.iter().copied().collect());
        let credentials = self.access.credentials_of(from, request.headers())?;
        let shows_some = !matches!(credentials, Credentials::Nothing);
        let name = name_in(&credentials).to_vec();
        let answer = self.ask(|sender| Call::LogIn(credentials, wants, sender)).await?;
        if shows_some {
            self.access.check_guesses(from, &name)?;
        }
        match answer {
            Ok(user) => {
                if shows_some {
                    self.access.logged_in(from, &name);
                }
                Ok(user)
            }
            Err(LogInError::Denied(error)) => Err(Refusal::from_node(error.as_bytes())),
            Err(LogInError::NotKnown(NotKnown::Nothing)) => Err(Refusal::unauthorized(
                "this needs Authorization: Basic with a user's name and password, or Bearer with a password",
            )),
            Err(LogInError::NotKnown(NotKnown::Wrong)) => {
                // Delays only this answer.
                tokio::time::sleep(self.access.failed(from, &name)).await;
                Err(Refusal::unauthorized("wrong password, or the user is disabled"))
            }
        }
    }

    async fn answer_client(
        self: &Arc<Self>,
        path: &str,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let (method, query) = (request.method(), request.uri().query());
        if let Some(encoded) = path.strip_prefix("/keyspaces/") {
            let prefix = prefix_of(encoded, query)?;
            return self.keyspace(prefix, request).await;
        }
        if let Some(encoded) = path.strip_prefix("/changes/")
            && method != Method::DELETE
        {
            return self.changes(encoded, request).await;
        }
        if let Some(encoded) = path.strip_prefix("/locks/") {
            return self.lock(encoded, request).await;
        }
        if let Some(encoded) = path.strip_prefix("/sessions/") {
            return self.session(encoded, request).await;
        }
        match path {
            "/" => {
                only(method, &[Method::GET, Method::HEAD], "GET")?;
                Ok(index())
            }
            // For DELETE, every path except the root is a key, even one that has another meaning for other methods.
            _ if method == Method::DELETE => {
                self.delete(key_of(path.strip_prefix('/').unwrap_or_default(), query)?).await
            }
            "/put" => {
                only(method, &[Method::POST], "POST, DELETE")?;
                self.put(request).await
            }
            "/keyspaces" => {
                only(method, &[Method::GET, Method::HEAD, Method::POST], "GET, POST, DELETE")?;
                self.keyspaces(request).await
            }
            "/status" => {
                only(method, &[Method::GET, Method::HEAD], "GET, DELETE")?;
                self.status().await
            }
            "/command" => {
                only(method, &[Method::POST], "POST, DELETE")?;
                self.run(request).await
            }
            "/may" => {
                only(method, &[Method::POST], "POST, DELETE")?;
                self.may(request).await
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
        let (put, _permit): (Put, _) = self.body(request).await?;
        let key = bytes_of("key", put.key, put.key_base64)?;
        let value = bytes_of("value", put.value, put.value_base64)?;
        self.check_length(&value)?;
        let mut arguments: ArgumentsBuffer = [&b"QUORATE.PUT"[..], &key, &value].into_iter().collect();
        if let Some(ttl_ms) = put.ttl_ms {
            arguments.push(b"PX");
            arguments.push(ttl_ms.to_string().as_bytes());
        }
        if let Some(Fence { lock, lock_base64, token }) = put.fence {
            arguments.push(b"FENCE");
            arguments.push(&bytes_of("lock", lock, lock_base64)?);
            arguments.push(token.to_string().as_bytes());
        }
        let reply = self.command(arguments).await?;
        let mut fields = named("key", &key);
        fields.insert("version".into(), integer(&mut Reader::new(&reply))?.into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
    }

    async fn get(&self, key: Vec<u8>) -> Result<Answer, Refusal> {
        let fetch = [&b"QUORATE.FETCH"[..], &key].into_iter().collect();
        let reply = self.run_for(Duration::ZERO, fetch, How::WithRoom).await?;
        Answer::of_reply(reply, |reply, out| write_json(&Fetched::read(&key, reply)?, out))
    }

    async fn delete(&self, key: Vec<u8>) -> Result<Answer, Refusal> {
        let reply = self.command([&b"DEL"[..], &key].into_iter().collect()).await?;
        let mut fields = named("key", &key);
        fields.insert("deleted".into(), (integer(&mut Reader::new(&reply))? > 0).into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
    }

    async fn replicate(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (record, _permit): (Replicate, _) = self.body(request).await?;
        let key = bytes_of("key", record.key, record.key_base64)?;
        let value = bytes_of("value", record.value, record.value_base64)?;
        self.check_length(&value)?;
        let version = record.version.to_string();
        let arguments = [&b"QUORATE.REPLICATE"[..], &key, &value, version.as_bytes()];
        let reply = self.command(arguments.into_iter().collect()).await?;
        let mut reader = Reader::new(&reply);
        let Reply::Array(2) = next(&mut reader)? else { return Err(unexpected()) };
        let mut fields = named("key", &key);
        fields.insert("applied".into(), (integer(&mut reader)? > 0).into());
        fields.insert("version".into(), integer(&mut reader)?.into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
    }

    async fn health(&self, query: Option<&str>) -> Result<Answer, Refusal> {
        let mut health = self.ask(Call::Health).await?;
        health::narrow(&mut health, &health::Question::parse(query)?)?;
        let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Ok(Answer::json(status, &serde_json::to_value(health).map_err(|_| unexpected())?))
    }

    /// Runs a command. An error reply becomes a [`Refusal`].
    pub(super) async fn command(&self, arguments: ArgumentsBuffer) -> Result<NodeReply, Refusal> {
        self.run_for(Duration::ZERO, arguments, How::Usual).await
    }

    async fn run_for(
        &self,
        longer: Duration,
        arguments: ArgumentsBuffer,
        how: How,
    ) -> Result<NodeReply, Refusal> {
        // Dropped with this future when the connection ends.
        let mut guard = AbandonOnDrop(Some(&self.caller));
        let asker = self.asker.clone();
        let asked = self.ask_for(longer, |sender| Call::Command { asker, arguments, how, sender }).await;
        let reply = match asked {
            // It waits for room, or for a reply that does: it only reads.
            Err(late) if how == How::WithRoom && late.words().0 == NO_ANSWER => {
                let error = "long answers to other clients take all the memory that there is for them; nothing was done, try again";
                return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "TRYAGAIN", error));
            }
            asked => asked?,
        };
        guard.0 = None;
        match Reply::first(&reply) {
            Reply::Error(text) => Err(Refusal::from_node(text)),
            _ => Ok(reply),
        }
    }

    /// Runs a command in a session of its own, which ends with it, or when the client disconnects.
    pub(super) async fn command_alone(&self, arguments: ArgumentsBuffer) -> Result<NodeReply, Refusal> {
        self.run_for(Duration::ZERO, arguments, How::Alone).await
    }

    /// The caller's user name.
    pub(super) fn user_name(&self) -> Vec<u8> {
        self.asker.whom.as_ref().map(|whom| whom.0.clone()).unwrap_or_default()
    }

    /// The same routes for this node itself, which may do everything.
    pub(super) fn as_node(&self) -> Routes {
        Routes { shared: Arc::clone(&self.shared), asker: Asker::default() }
    }

    /// Runs a command that may wait up to `wait` for its answer. The wait ends if the client disconnects.
    pub(super) async fn waiting_command(
        &self,
        arguments: ArgumentsBuffer,
        wait: Duration,
    ) -> Result<NodeReply, Refusal> {
        self.run_for(wait, arguments, How::Usual).await
    }

    /// Sends a call to the worker and waits for its answer.
    pub(super) async fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Result<T, Refusal> {
        self.ask_for(Duration::ZERO, call).await
    }

    /// Like [`Routes::ask`], for calls that may take `longer`.
    async fn ask_for<T>(
        &self,
        longer: Duration,
        call: impl FnOnce(oneshot::Sender<T>) -> Call,
    ) -> Result<T, Refusal> {
        let (sender, receiver) = oneshot::channel();
        if !self.caller.call(call(sender)) {
            let error = "too many calls are waiting; nothing was done";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", error));
        }
        match tokio::time::timeout(self.answer_timeout + longer, receiver).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => {
                let error =
                    "the node gave no answer in time; the command may have taken effect or may still do so";
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, NO_ANSWER, error))
            }
        }
    }

    /// Reads a body. Keep the returned permit until the body's contents are no longer needed.
    pub(super) async fn body<T: DeserializeOwned>(
        &self,
        request: Request<Incoming>,
    ) -> Result<(T, SemaphorePermit<'_>), Refusal> {
        require_json(request.headers())?;
        // Base64 needs a third more than the value; escapes in JSON may need as much again.
        let bytes_max = self.value_bytes_max * 2 + BODY_BYTES_BEYOND_VALUE;
        let announced = request.body().size_hint().upper().unwrap_or(bytes_max as u64);
        if announced > bytes_max as u64 {
            return Err(Refusal::too_large("body", bytes_max));
        }
        let units = announced.div_ceil(BODY_UNIT_BYTES).min(self.body_units_max);
        let stage = request.extensions().get::<StageOf>().cloned().unwrap_or_default();
        stage.set(Stage::Arriving);
        let arrival = async {
            let permit = self.body_units.acquire_many(units as u32).await;
            (permit, Limited::new(request.into_body(), bytes_max).collect().await)
        };
        let (permit, body) = match tokio::time::timeout(self.body_timeout, arrival).await {
            Ok((Ok(permit), Ok(body))) => {
                stage.set(Stage::Busy);
                (permit, body.to_bytes())
            }
            Ok((_, Err(error))) if error.is::<LengthLimitError>() => {
                return Err(Refusal::too_large("body", bytes_max));
            }
            Ok((_, Err(error))) => {
                return Err(Refusal::bad_request(format!("the body did not arrive completely: {error}")));
            }
            Ok((Err(_), _)) | Err(_) => {
                let error = "the body took too long to arrive, or too many others are arriving";
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", error));
            }
        };
        let content = serde_json::from_slice(&body);
        let content =
            content.map_err(|error| Refusal::bad_request(format!("the body is not valid: {error}")))?;
        Ok((content, permit))
    }

    pub(super) fn check_length(&self, value: &[u8]) -> Result<(), Refusal> {
        if value.len() > self.value_bytes_max {
            return Err(Refusal::too_large("value", self.value_bytes_max));
        }
        Ok(())
    }
}

/// What `GET /get/{key}` returns, within the reply.
struct Fetched<'r> {
    key: &'r [u8],
    value: &'r [u8],
    version: i64,
    expires_at_ms: Option<i64>,
}

impl<'r> Fetched<'r> {
    fn read(key: &'r [u8], reply: &'r [u8]) -> Result<Fetched<'r>, Refusal> {
        let mut reader = Reader::new(reply);
        match next(&mut reader)? {
            Reply::Array(3) => {}
            Reply::Null | Reply::NullArray => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, "NOTFOUND", "no such key"));
            }
            _ => return Err(unexpected()),
        }
        let Reply::Bulk(value) = next(&mut reader)? else { return Err(unexpected()) };
        let version = integer(&mut reader)?;
        let expires_at_ms = match next(&mut reader)? {
            Reply::Integer(deadline) => Some(deadline),
            Reply::Null => None,
            _ => return Err(unexpected()),
        };
        Ok(Fetched { key, value, version, expires_at_ms })
    }
}

impl Serialize for Fetched<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        if let Some(at_ms) = self.expires_at_ms {
            fields.serialize_entry("expires_at_ms", &at_ms)?;
        }
        put_named("key", self.key, &mut fields)?;
        put_named("value", self.value, &mut fields)?;
        fields.serialize_entry("version", &self.version)?;
        fields.end()
    }
}

/// Notifies the worker, if dropped before it is disarmed, that an answer is no longer awaited.
struct AbandonOnDrop<'c>(Option<&'c Caller>);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(caller) = self.0 {
            // If too many calls wait, the abandoned wait ends by its own timeout.
            caller.call(Call::Abandoned);
        }
    }
}

fn index() -> Answer {
    let endpoints = json!({
        "POST /put": "{\"key\", \"value\", \"ttl_ms\"?, \"fence\": {\"lock\", \"token\"}?} stores a value",
        "GET /get/{key}": "reads a value",
        "DELETE /{key}": "removes a key",
        "GET /keyspaces": "the keyspaces, their settings, and where their replicas are",
        "POST /keyspaces": "{\"prefix\", setting: value, ...} makes a keyspace",
        "PATCH /keyspaces/{prefix}": "{setting: value, ...} changes settings of a keyspace",
        "DELETE /keyspaces/{prefix}": "drops a keyspace and all its keys",
        "GET /changes/{prefix}?from=": "every change of a keyspace after a version, as server-sent events",
        "GET /status": "the state of the whole cluster, and what to do",
        "POST /command": "{\"command\": [word, ...]} runs a command of the Redis protocol",
        "POST /may": "{\"commands\": [[word, ...], ...]} returns which of these the user may run",
        "GET /health": "the state of this node; 503 until it is ready for clients",
        "GET /health?all": "the same; 503 while it does not serve every keyspace",
        "GET /health?keyspace=": "the same of one keyspace; 503 while this node does not serve it",
        "GET /metrics": "counters for Prometheus",
        "POST /locks/{name}": "{\"owner\", \"ttl_ms\" or \"session\", \"wait_ms\"?} acquires a lock and its \
         fencing token",
        "POST /locks/{name}/renew": "{\"token\", \"ttl_ms\"} renews the lease of a lock",
        "DELETE /locks/{name}?token=": "releases a lock",
        "GET /locks/{name}": "who holds a lock, and for how long",
        "POST /sessions/{key}": "{\"ttl_ms\"} opens a session, which can hold the locks of this key's group",
        "POST /sessions/{key}/renew": "{\"session\"} renews a session, which keeps all its locks",
        "DELETE /sessions/{key}?session=": "ends a session and releases its locks",
        "POST /replicate": "{\"key\", \"value\", \"version\"} stores a value if its version is newer",
    });
    Answer::json(StatusCode::OK, &json!({ "name": "quorate", "endpoints": endpoints }))
}

pub(super) fn next<'a>(reader: &mut Reader<'a>) -> Result<Reply<'a>, Refusal> {
    Reply::decode(reader).map_err(|_| unexpected())
}

pub(super) fn integer(reader: &mut Reader<'_>) -> Result<i64, Refusal> {
    match next(reader)? {
        Reply::Integer(value) => Ok(value),
        _ => Err(unexpected()),
    }
}
