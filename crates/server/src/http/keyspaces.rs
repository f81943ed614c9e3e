//! Keyspaces over HTTP: what `KEYSPACE` does over RESP, with JSON.
//!
//! | request | answer |
//! |---|---|
//! | `GET /keyspaces` | a list: every setting, and `groups` with id, shard, slots, members, leader, epoch, in_sync |
//! | `POST /keyspaces {"prefix", setting: value, ...}` | 201 and the new keyspace as in the list |
//! | `PATCH /keyspaces/{prefix} {setting: value, ...}` | the keyspace with these settings |
//! | `DELETE /keyspaces/{prefix}` | `{"prefix","dropped":true}` |
//!
//! The answer is sent when the control group has decided and this node knows the result. `/keyspaces/` alone is the
//! default keyspace.

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};
use wire::resp::ArgumentsBuffer;

use super::answer::{Answer, Refusal, only};
use super::routes::Routes;
use crate::bridge::Call;

impl Routes {
    /// Handles requests about all keyspaces.
    pub(super) async fn keyspaces(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        if request.method() != Method::POST {
            return Ok(Answer::json(StatusCode::OK, &self.ask(Call::Keyspaces).await?));
        }
        let (mut settings, _permit): (Map<String, Value>, _) = self.body(request).await?;
        let Some(Value::String(prefix)) = settings.remove("prefix") else {
            return Err(Refusal::bad_request(
                "the body needs a \"prefix\", which is a string; \"\" means the default keyspace",
            ));
        };
        self.command(command("CREATE", &prefix, &settings)?).await?;
        Ok(Answer::json(StatusCode::CREATED, &self.described(&prefix).await?))
    }

    /// Handles requests about one keyspace.
    pub(super) async fn keyspace(
        &self,
        prefix: String,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        only(request.method(), &[Method::PATCH, Method::DELETE], "PATCH, DELETE")?;
        if request.method() == Method::DELETE {
            self.command(command("DROP", &prefix, &Map::new())?).await?;
            return Ok(Answer::json(StatusCode::OK, &json!({ "prefix": prefix, "dropped": true })));
        }
        let (settings, _permit): (Map<String, Value>, _) = self.body(request).await?;
        self.command(command("SET", &prefix, &settings)?).await?;
        Ok(Answer::json(StatusCode::OK, &self.described(&prefix).await?))
    }

    /// Returns a keyspace as in the list.
    async fn described(&self, prefix: &str) -> Result<Value, Refusal> {
        let mut all = self.ask(Call::Keyspaces).await?;
        let found = all
            .as_array_mut()
            .and_then(|all| all.iter_mut().find(|keyspace| keyspace["prefix"] == prefix).map(Value::take));
        found.ok_or_else(|| {
            let error = "the change was made, but the keyspace has been dropped since";
            Refusal::new(StatusCode::NOT_FOUND, "NOTFOUND", error)
        })
    }
}

/// `KEYSPACE verb prefix setting=value ...`
fn command(verb: &str, prefix: &str, settings: &Map<String, Value>) -> Result<ArgumentsBuffer, Refusal> {
    let mut arguments: ArgumentsBuffer =
        [&b"KEYSPACE"[..], verb.as_bytes(), prefix.as_bytes()].into_iter().collect();
    for (name, value) in settings {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => {
                return Err(Refusal::bad_request(format!("setting \"{name}\" must be a string or a number")));
            }
        };
        arguments.push(format!("{name}={value}").as_bytes());
    }
    if verb == "SET" && settings.is_empty() {
        return Err(Refusal::bad_request("the body names no setting to change"));
    }
    Ok(arguments)
}
