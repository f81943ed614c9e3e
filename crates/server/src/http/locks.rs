//! Locks over HTTP: what `LOCK` and related commands do over RESP, with JSON.
//!
//! | request | answer |
//! |---|---|
//! | `POST /locks/{name} {"owner", "ttl_ms" or "session", "wait_ms"?}` | `{"name","owner","granted","token"}`, token null if not |
//! | `POST /locks/{name}/renew {"token","ttl_ms"}` | `{"name","token","renewed"}` |
//! | `DELETE /locks/{name}?token=T` | `{"name","token","released"}` |
//! | `GET /locks/{name}` | `{"name","owner","token","lease_ms","left_ms","waiters","session"}`; 404 when it is free |
//! | `POST /sessions/{key} {"ttl_ms"}` | `{"key","session"}` |
//! | `POST /sessions/{key}/renew {"session"}` | `{"key","session","renewed"}` |
//! | `DELETE /sessions/{key}?session=S` | `{"key","session","closed"}` |
//!
//! If a client closes its connection while it waits, the wait ends. In a name or key that ends with `/renew`, write that
//! slash as `%2F`.

use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use kv::Reply;
use kv::codec::Reader;
use serde::Deserialize;
use serde_json::{Map, Value};
use wire::resp::ArgumentsBuffer;

use super::answer::{Answer, Refusal, only, unexpected};
use super::fields::{bytes_of, key_of, lock_of, named};
use super::routes::{Routes, integer, next};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Acquire {
    owner: Option<String>,
    owner_base64: Option<String>,
    ttl_ms: Option<u64>,
    session: Option<String>,
    wait_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renew {
    token: u64,
    ttl_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    ttl_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keep {
    session: String,
}

impl Routes {
    /// Handles requests about one lock.
    pub(super) async fn lock(&self, encoded: &str, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let query = request.uri().query().map(str::to_owned);
        let method = request.method().clone();
        if query.is_some() && method != Method::DELETE {
            return Err(Refusal::bad_request("this path takes no query"));
        }
        if let Some(encoded) = encoded.strip_suffix("/renew")
            && method == Method::POST
        {
            return self.renew(lock_of(encoded)?, request).await;
        }
        only(&method, &[Method::GET, Method::HEAD, Method::POST, Method::DELETE], "GET, POST, DELETE")?;
        let name = lock_of(encoded)?;
        match method {
            Method::POST => self.acquire(name, request).await,
            Method::DELETE => {
                let token = query.as_deref().and_then(|query| query.strip_prefix("token="));
                let token =
                    token.ok_or_else(|| Refusal::bad_request("the query must be token= and a number"))?;
                self.release(name, token).await
            }
            _ => self.describe(name).await,
        }
    }

    async fn acquire(&self, name: Vec<u8>, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (acquire, permit): (Acquire, _) = self.body(request).await?;
        let owner = bytes_of("owner", acquire.owner, acquire.owner_base64)?;
        let mut arguments: ArgumentsBuffer = [&b"LOCK"[..], &name, &owner].into_iter().collect();
        match (acquire.ttl_ms, acquire.session) {
            (Some(ttl_ms), None) => {
                arguments.push(b"PX");
                arguments.push(ttl_ms.to_string().as_bytes());
            }
            (None, Some(session)) => {
                arguments.push(b"SESSION");
                arguments.push(session.as_bytes());
            }
            _ => return Err(Refusal::bad_request("the body needs either \"ttl_ms\" or \"session\"")),
        }
        let wait_ms = acquire.wait_ms.unwrap_or(0).min(kv::locks::LEASE_MS_MAX + 1);
        arguments.push(b"WAIT");
        arguments.push(wait_ms.to_string().as_bytes());
        drop(permit); // A wait may be long, and does not need the memory of its body.
        let reply = self.waiting_command(arguments, Duration::from_millis(wait_ms)).await?;
        let token = match Reply::first(&reply) {
            Reply::Integer(token) => Value::from(token),
            Reply::Null => Value::Null,
            _ => return Err(unexpected()),
        };
        let mut fields = named("name", &name);
        fields.append(&mut named("owner", &owner));
        fields.insert("granted".into(), token.is_number().into());
        fields.insert("token".into(), token);
        Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
    }

    async fn renew(&self, name: Vec<u8>, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (Renew { token, ttl_ms }, _permit) = self.body(request).await?;
        let (token_text, ttl_ms) = (token.to_string(), ttl_ms.to_string());
        let arguments = [&b"LOCK.RENEW"[..], &name, token_text.as_bytes(), b"PX", ttl_ms.as_bytes()];
        let reply = self.command(arguments.into_iter().collect()).await?;
        answer(&name, token, "renewed", &reply)
    }

    async fn release(&self, name: Vec<u8>, token: &str) -> Result<Answer, Refusal> {
        let reply = self.command([&b"UNLOCK"[..], &name, token.as_bytes()].into_iter().collect()).await?;
        // The node has parsed it as a number.
        answer(&name, token.parse().unwrap_or(0), "released", &reply)
    }

    /// Handles requests about the sessions of one key's group.
    pub(super) async fn session(&self, encoded: &str, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let query = request.uri().query().map(str::to_owned);
        let method = request.method().clone();
        if query.is_some() && method != Method::DELETE {
            return Err(Refusal::bad_request("this path takes no query"));
        }
        only(&method, &[Method::POST, Method::DELETE], "POST, DELETE")?;
        if method == Method::DELETE {
            let session = query.as_deref().and_then(|query| query.strip_prefix("session="));
            let session =
                session.ok_or_else(|| Refusal::bad_request("the query must be session= and its id"))?;
            return self.change_session("CLOSE", key_of(encoded, None)?, session, "closed").await;
        }
        if let Some(encoded) = encoded.strip_suffix("/renew") {
            let key = key_of(encoded, None)?;
            let (Keep { session }, _permit) = self.body(request).await?;
            return self.change_session("RENEW", key, &session, "renewed").await;
        }
        let key = key_of(encoded, None)?;
        let (Open { ttl_ms }, _permit) = self.body(request).await?;
        let ttl_ms = ttl_ms.to_string();
        let arguments = [&b"LOCK.SESSION"[..], b"OPEN", &key, b"PX", ttl_ms.as_bytes()];
        let reply = self.command(arguments.into_iter().collect()).await?;
        let Reply::Bulk(session) = Reply::first(&reply) else { return Err(unexpected()) };
        let mut fields = named("key", &key);
        fields.append(&mut named("session", session));
        Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
    }

    async fn change_session(
        &self,
        verb: &str,
        key: Vec<u8>,
        session: &str,
        what: &str,
    ) -> Result<Answer, Refusal> {
        let arguments = [&b"LOCK.SESSION"[..], verb.as_bytes(), &key, session.as_bytes()];
        let reply = self.command(arguments.into_iter().collect()).await?;
        let Reply::Integer(count) = Reply::first(&reply) else { return Err(unexpected()) };
        let mut fields = named("key", &key);
        fields.append(&mut named("session", session.as_bytes()));
        fields.insert(what.into(), (count > 0).into());
        Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
    }

    async fn describe(&self, name: Vec<u8>) -> Result<Answer, Refusal> {
        let reply = self.command([&b"LOCK.INFO"[..], &name].into_iter().collect()).await?;
        let mut reader = Reader::new(&reply);
        let fields = match next(&mut reader)? {
            Reply::Map(fields) => fields,
            Reply::Null => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, "NOTFOUND", "nobody holds the lock"));
            }
            _ => return Err(unexpected()),
        };
        let mut state: Map<String, Value> = named("name", &name);
        for _ in 0..fields {
            let Reply::Bulk(field) = next(&mut reader)? else { return Err(unexpected()) };
            let field = String::from_utf8_lossy(field).replace('-', "_");
            match next(&mut reader)? {
                Reply::Bulk(text) => state.append(&mut named(&field, text)),
                Reply::Integer(value) => drop(state.insert(field, value.into())),
                Reply::Null => drop(state.insert(field, Value::Null)),
                _ => return Err(unexpected()),
            }
        }
        Ok(Answer::json(StatusCode::OK, &Value::Object(state)))
    }
}

/// The answer to a request with a token: whether the token was right.
fn answer(name: &[u8], token: u64, what: &str, reply: &[u8]) -> Result<Answer, Refusal> {
    let mut fields = named("name", name);
    fields.insert("token".into(), token.into());
    fields.insert(what.into(), (integer(&mut Reader::new(reply))? > 0).into());
    Ok(Answer::json(StatusCode::OK, &Value::Object(fields)))
}
