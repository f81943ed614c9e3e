//! Answers to HTTP clients: JSON, for errors too.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};

use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::answers::{CountedBytes, HeldBytes, NodeReply};

/// What the browser may load and run for the page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// A body that is sent event by event.
#[derive(Debug)]
pub(super) struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A successful response.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: CountedBytes,
    /// Sent instead of the body.
    events: Option<Events>,
    allow: Option<&'static str>,
    /// For a file of the page: what the browser must refuse in it.
    policy: Option<HeaderValue>,
}

/// Counts what is written.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// [`unexpected`] if the value reports that it is not what it should be.
pub(super) fn write_json(value: &impl Serialize, out: &mut dyn io::Write) -> Result<(), Refusal> {
    serde_json::to_writer(out, value).map_err(|_| unexpected())
}

pub(super) fn unexpected() -> Refusal {
    let error = "the node's answer is not of the expected kind; the command may have taken effect";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", error)
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
        Answer::of_json(status, value.to_string().into_bytes().into())
    }

    fn of_json(status: StatusCode, body: CountedBytes) -> Answer {
        Answer { status, content_type: "application/json", body, events: None, allow: None, policy: None }
    }

    /// Creates a JSON response of a reply, which may be long. `write` writes the JSON of the reply: once to count its bytes, and
    /// once to memory that has just so many.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn of_reply(
        reply: NodeReply,
        write: impl Fn(&[u8], &mut dyn io::Write) -> Result<(), Refusal>,
    ) -> Result<Answer, Refusal> {
        let size = |reply: &[u8]| {
            let mut count = Count(0);
            write(reply, &mut count).map(|()| count.0)
        };
        let body = reply.into_answer(size, |reply, bytes| {
            let mut body = Vec::with_capacity(bytes);
            write(reply, &mut body).map(|()| body)
        })?;
        Ok(Answer::of_json(StatusCode::OK, body))
    }

    /// Creates a response of server-sent events. It ends when the channel closes.
    pub(super) fn events(events: mpsc::Receiver<Bytes>) -> Answer {
        let (status, content_type) = (StatusCode::OK, "text/event-stream");
        let events = Some(Events(events));
        Answer { status, content_type, body: Vec::new().into(), events, allow: None, policy: None }
    }

    /// Whether the response lasts as long as the connection.
    pub(super) fn goes_on(&self) -> bool {
        self.events.is_some()
    }

    /// What shows whether the body is still to be sent, if its memory is counted and is more than so many bytes.
    pub(super) fn held(&self, bytes: usize) -> Option<Weak<HeldBytes>> {
        self.body.held().filter(|_| self.body.as_ref().len() > bytes)
    }

    /// Creates a response of Prometheus text.
    pub(super) fn metrics(text: String) -> Answer {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        let (status, body) = (StatusCode::OK, text.into_bytes().into());
        Answer { status, content_type, body, events: None, allow: None, policy: None }
    }

    /// Creates a response with a file of the page.
    pub(super) fn file(content_type: &'static str, body: &'static [u8]) -> Answer {
        let (status, body, policy) = (StatusCode::OK, body.to_vec().into(), Some(POLICY));
        Answer { status, content_type, body, events: None, allow: None, policy }
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

    /// The path does not accept this method.
    pub(super) fn method(allow: &'static str) -> Refusal {
        let error = format!("this path takes {allow}");
        Refusal { allow: Some(allow), ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD", error) }
    }

    /// What the caller sent is larger than allowed.
    pub(super) fn too_large(what: &str, bytes_max: usize) -> Refusal {
        let error = format!("the {what} is longer than {bytes_max} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", error)
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Its code and its message.
    pub(super) fn words(&self) -> (&str, &str) {
        (&self.code, &self.error)
    }

    /// Creates the refusal for an error of the node. The error's first word is its code.
    pub(super) fn from_node(text: &[u8]) -> Refusal {
        let text = String::from_utf8_lossy(text);
        let (code, error) = text.split_once(' ').unwrap_or((&text, &text));
        let status = match code {
            // The node could do it at another time, or does not know the outcome.
            "NOREPLICAS" | "UNKNOWN" | "LOADING" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" | "OOM"
            | "NOSPACE" | "QUARANTINED" => StatusCode::SERVICE_UNAVAILABLE,
            "LOCKED" => StatusCode::LOCKED,
            "NOSESSION" | "BEHIND" => StatusCode::GONE,
            "FENCED" | "EXISTS" => StatusCode::CONFLICT,
            "NOTFOUND" => StatusCode::NOT_FOUND,
            "NOAUTH" | "WRONGPASS" => StatusCode::UNAUTHORIZED,
            "NOPERM" => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal::new(status, code, error)
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        let body = json!({ "error": refusal.error, "code": refusal.code });
        Answer { allow: refusal.allow, ..Answer::json(refusal.status, &body) }
    }
}

impl From<Answer> for Response<Either<Full<Bytes>, Events>> {
    fn from(answer: Answer) -> Self {
        let goes_on = answer.goes_on();
        let body = match answer.events {
            Some(events) => Either::Right(events),
            None => Either::Left(Full::new(Bytes::from_owner(answer.body))),
        };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        if goes_on {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(policy) = answer.policy {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
            headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
            headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            // Another version of the program has another page.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        if let Some(allow) = answer.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if answer.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer, Basic realm=\"quorate\""));
        }
        response
    }
}

/// Refuses all methods but these.
pub(super) fn only(method: &Method, allowed: &[Method], names: &'static str) -> Result<(), Refusal> {
    if allowed.contains(method) { Ok(()) } else { Err(Refusal::method(names)) }
}
