//! Answers to HTTP clients: JSON, for errors too.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// A successful response.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: Vec<u8>,
    allow: Option<&'static str>,
}

/// An error response: `{"error": what happened, "code": a word to match on}`.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: String,
    error: String,
    allow: Option<&'static str>,
}

impl Answer {
    /// Creates a JSON response.
    pub(super) fn json(status: StatusCode, value: &Value) -> Answer {
        let body = value.to_string().into_bytes();
        Answer { status, content_type: "application/json", body, allow: None }
    }

    /// Creates a response of Prometheus text.
    pub(super) fn metrics(text: String) -> Answer {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        Answer { status: StatusCode::OK, content_type, body: text.into_bytes(), allow: None }
    }
}

impl Refusal {
    /// Creates an error with this status and code.
    pub(super) fn new(status: StatusCode, code: &str, error: impl Into<String>) -> Refusal {
        Refusal { status, code: code.to_owned(), error: error.into(), allow: None }
    }

    /// The request makes no sense.
    pub(super) fn bad_request(error: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "BADREQUEST", error)
    }

    /// The caller has not authenticated.
    pub(super) fn unauthorized(error: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "NOAUTH", error)
    }

    /// The path takes other methods.
    pub(super) fn method(allow: &'static str) -> Refusal {
        let error = format!("this path takes {allow}");
        Refusal { allow: Some(allow), ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD", error) }
    }

    /// What the caller sent is larger than allowed.
    pub(super) fn too_large(what: &str, bytes_max: usize) -> Refusal {
        let error = format!("the {what} is longer than {bytes_max} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", error)
    }

    /// Creates the refusal for an error of the node. The error's first word is its code.
    pub(super) fn from_node(text: &[u8]) -> Refusal {
        let text = String::from_utf8_lossy(text);
        let (code, error) = text.split_once(' ').unwrap_or((&text, &text));
        let status = match code {
            // The node could do it, but not now, or does not know the outcome.
            "NOREPLICAS" | "UNKNOWN" | "LOADING" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" | "OOM"
            | "NOSPACE" | "QUARANTINED" => StatusCode::SERVICE_UNAVAILABLE,
            "LOCKED" => StatusCode::LOCKED,
            "NOSESSION" => StatusCode::GONE,
            "FENCED" => StatusCode::CONFLICT,
            "NOAUTH" | "WRONGPASS" => StatusCode::UNAUTHORIZED,
            "NOPERM" => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal::new(status, code, error)
    }
}

impl Refusal {
    /// Gives the outcome of a change of keyspaces the most specific status.
    pub(super) fn of_keyspace(self) -> Refusal {
        let (status, code) = match self.error.as_str() {
            error if error.starts_with("there is no keyspace") => (StatusCode::NOT_FOUND, "NOTFOUND"),
            error if error.contains("it is there already") => (StatusCode::CONFLICT, "EXISTS"),
            _ => return self,
        };
        Refusal { status, code: code.to_owned(), ..self }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        let told = json!({ "error": refusal.error, "code": refusal.code });
        Answer { allow: refusal.allow, ..Answer::json(refusal.status, &told) }
    }
}

impl From<Answer> for Response<Full<Bytes>> {
    fn from(answer: Answer) -> Self {
        let mut response = Response::new(Full::new(Bytes::from(answer.body)));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
        if let Some(allow) = answer.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if answer.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer, Basic realm=\"quorate\""));
        }
        response
    }
}
