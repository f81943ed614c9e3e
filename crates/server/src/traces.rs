//! Sends spans to a collector: OTLP over HTTP, with bodies in JSON
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>), in a thread of its own.
//!
//! The worker hands spans over and never waits. Spans that the collector does not accept are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use node::{NodeId, Span, SpanKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::thread;

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The maximum number of batches that wait for the thread.
const BATCHES: usize = 1024;

/// Spans are collected until there are this many, or for this long.
const SPANS_AT_ONCE: usize = 512;
const GATHERED_FOR: Duration = Duration::from_millis(500);

/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait after a failure before trying again. Spans that end in the meantime wait in the channel, as far
/// as they fit.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the last spans may take when the node stops.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// Where traces of sampled commands go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSettings {
    /// The collector, as in `http://127.0.0.1:4318`; `/v1/traces` is added to it.
    pub endpoint: String,
    /// Which share of clients' commands is traced, from 0 to 1.
    #[serde(default = "usual_share")]
    pub sample: f64,
}

fn usual_share() -> f64 {
    0.001
}

/// A collector's address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Collector {
    host: String,
    port: u16,
    path: String,
}

impl TraceSettings {
    /// Checks whether the settings can be used.
    ///
    /// # Errors
    /// A sentence that says which setting cannot be used.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            (0.0..=1.0).contains(&self.sample),
            "traces: sample = {}: it is a share of clients' commands, from 0 to 1",
            self.sample
        );
        self.collector().map(drop)
    }

    fn collector(&self) -> Result<Collector> {
        let endpoint = &self.endpoint;
        let uri: Uri =
            endpoint.parse().with_context(|| format!("traces: endpoint: {endpoint} is not an address"))?;
        ensure!(
            uri.scheme_str() == Some("http"),
            "traces: endpoint: {endpoint} does not begin with http://. Spans are sent without TLS: to a collector beside the \
             node, which may pass them on"
        );
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.with_context(|| format!("traces: endpoint: {endpoint} names no host"))?;
        let path = format!("{}/v1/traces", uri.path().trim_end_matches('/'));
        Ok(Collector { host: host.to_owned(), port: uri.port_u16().unwrap_or(PORT), path })
    }
}

/// Counters of spans.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Spans that the collector has accepted.
    pub(crate) sent: AtomicU64,
    /// Spans that it has not.
    pub(crate) dropped: AtomicU64,
}

/// The thread that sends spans.
pub(crate) struct Exporter {
    sender: mpsc::Sender<Vec<Span>>,
    pub(crate) counters: Arc<Counters>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts the thread, if the configuration asks for traces.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub(crate) fn start(
        settings: Option<&TraceSettings>,
        cluster: &str,
        node: NodeId,
    ) -> Result<Option<Exporter>> {
        let Some(settings) = settings else { return Ok(None) };
        let (collector, resource) = (settings.collector()?, resource(cluster, node));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.context("cannot make a runtime for traces")?;
        let (sender, receiver) = mpsc::channel(BATCHES);
        let counters = Arc::new(Counters::default());
        let sending = send_all(receiver, collector, resource, Arc::clone(&counters));
        let thread = thread::start("traces", move || runtime.block_on(sending));
        let thread = thread.context("cannot start a thread for traces")?;
        tracing::info!("traces: {} of clients' commands, to {}", settings.sample, settings.endpoint);
        Ok(Some(Exporter { sender, counters, thread }))
    }

    /// Hands spans to the thread.
    pub(crate) fn send(&self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        if self.sender.try_send(spans).is_err() {
            self.counters.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Stops the thread: spans that have not been sent get a moment.
    pub(crate) fn stop(self) {
        drop(self.sender);
        let _ = self.thread.join();
    }
}

async fn send_all(
    mut receiver: mpsc::Receiver<Vec<Span>>,
    collector: Collector,
    resource: Value,
    counters: Arc<Counters>,
) {
    let (mut connection, mut is_silent) = (None, false);
    while let Some(mut spans) = receiver.recv().await {
        let is_over = gather(&mut receiver, &mut spans).await;
        let count = spans.len() as u64;
        let body = Bytes::from(body(&resource, &spans).to_string());
        let patience = if is_over { LAST_SPANS } else { PATIENCE };
        let sent = timeout(patience, send(&mut connection, &collector, body)).await;
        match sent.unwrap_or_else(|_| Err(anyhow::anyhow!("it does not answer"))) {
            Ok(()) => {
                counters.sent.fetch_add(count, Ordering::Relaxed);
                is_silent = false;
            }
            Err(why) => {
                connection = None;
                counters.dropped.fetch_add(count, Ordering::Relaxed);
                // Logged once, until the collector has accepted spans again.
                if !std::mem::replace(&mut is_silent, true) {
                    let Collector { host, port, path } = &collector;
                    tracing::warn!(
                        "traces: the collector at http://{host}:{port}{path} takes no spans: {why:#}"
                    );
                }
                if is_over {
                    return;
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// Adds the spans that arrive within a moment. Returns whether no more will come.
async fn gather(receiver: &mut mpsc::Receiver<Vec<Span>>, spans: &mut Vec<Span>) -> bool {
    let more = async {
        while spans.len() < SPANS_AT_ONCE {
            match receiver.recv().await {
                Some(more) => spans.extend(more),
                None => return true,
            }
        }
        false
    };
    timeout(GATHERED_FOR, more).await.unwrap_or(false)
}

/// Sends one body, over the existing connection or a new one.
async fn send(
    connection: &mut Option<SendRequest<Full<Bytes>>>,
    collector: &Collector,
    body: Bytes,
) -> Result<()> {
    let Collector { host, port, path } = collector;
    if connection.as_ref().is_none_or(SendRequest::is_closed) {
        let socket = TcpStream::connect((host.trim_matches(['[', ']']), *port)).await?;
        let (sender, driving) = handshake(TokioIo::new(socket)).await?;
        tokio::spawn(driving);
        *connection = Some(sender);
    }
    let sender = connection.as_mut().context("a connection was just made")?;
    sender.ready().await?;
    let request = Request::post(path.as_str())
        .header(HOST, format!("{host}:{port}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let text = answer.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "it answers {status}: {}", String::from_utf8_lossy(&text));
    Ok(())
}

/// What all spans of this process have in common.
fn resource(cluster: &str, node: NodeId) -> Value {
    json!({ "attributes": [
        text("service.name", "quorate"),
        text("service.version", wire::release::BUILD),
        text("service.instance.id", &format!("{cluster}-{node}")),
        text("quorate.cluster", cluster),
        number("quorate.node", node.into()),
    ]})
}

fn body(resource: &Value, spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(written).collect();
    let scope = json!({ "name": "quorate", "version": wire::release::BUILD });
    json!({ "resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }]})
}

fn written(span: &Span) -> Value {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let is_command = span.parent.is_none();
    let mut attributes = Vec::new();
    if is_command {
        attributes.push(text("db.system.name", "redis"));
        attributes.push(text("db.operation.name", &span.name.to_uppercase()));
    }
    if !span.group.is_empty() {
        attributes.push(text("quorate.group", &span.group));
    }
    if let Some(peer) = span.peer {
        attributes.push(number("quorate.peer", peer.into()));
    }
    let name = if is_command { span.name.to_uppercase() } else { span.name.to_owned() };
    let mut written = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": format!("{:016x}", span.context.span),
        "name": name,
        "kind": kind,
        // In JSON, numbers of 64 bits are strings.
        "startTimeUnixNano": (span.begin_us * 1000).to_string(),
        "endTimeUnixNano": (span.end_us * 1000).to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        written["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(error) = &span.error {
        written["status"] = json!({ "code": 2, "message": error });
    }
    written
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::SpanContext;

    fn settings(endpoint: &str) -> TraceSettings {
        TraceSettings { endpoint: endpoint.into(), sample: 1.0 }
    }

    #[test]
    fn an_endpoint_has_the_usual_port_and_path_unless_it_names_others() {
        let collector = |endpoint: &str| {
            let Collector { host, port, path } = settings(endpoint).collector().unwrap();
            format!("{host} {port} {path}")
        };
        assert_eq!(collector("http://otel"), "otel 4318 /v1/traces");
        assert_eq!(collector("http://127.0.0.1:99/a/"), "127.0.0.1 99 /a/v1/traces");
        assert_eq!(collector("http://[::1]:4318"), "[::1] 4318 /v1/traces");
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        for (endpoint, why) in [
            ("https://otel:4318", "does not begin with http://"),
            ("otel:4318", "does not begin with http://"),
            ("", "is not an address"),
        ] {
            let error = format!("{:#}", settings(endpoint).check().unwrap_err());
            assert!(error.contains(why), "{error}");
        }
        for sample in [-0.1, 1.5, f64::NAN] {
            let settings = TraceSettings { sample, ..settings("http://otel") };
            assert!(settings.check().is_err());
        }
    }

    #[test]
    fn a_span_is_written_in_the_protocols_format() {
        let span = Span {
            context: SpanContext { trace: 0xab, span: 0xcd },
            parent: None,
            kind: SpanKind::Server,
            name: "set",
            begin_us: 1_700_000_000_000_001,
            end_us: 1_700_000_000_000_251,
            group: "cache:".into(),
            peer: None,
            error: Some("ERR no".into()),
        };
        let written = written(&span);
        assert_eq!(written["traceId"], "000000000000000000000000000000ab");
        assert_eq!(written["spanId"], "00000000000000cd");
        assert_eq!((&written["name"], &written["kind"]), (&json!("SET"), &json!(2)));
        assert_eq!(written["startTimeUnixNano"], "1700000000000001000");
        assert_eq!(written["endTimeUnixNano"], "1700000000000251000");
        assert_eq!(written["status"], json!({ "code": 2, "message": "ERR no" }));
        assert_eq!(written.get("parentSpanId"), None);
    }
}
