//! What must hold for any input over HTTP: every input gets an HTTP response, no response reports an internal error of the
//! node, and the node keeps running. A test draws inputs at random; the fuzz target, which calls the same body, searches
//! for them.

#[allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]
#[path = "../../../node/tests/fuzz/bodies.rs"]
mod bodies;

use std::net::Ipv4Addr;
use std::sync::Arc;

use bodies::{Choices, Host};
use mio::Poll;
use node::ClientKind;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::routes::Routes;
use super::{StageOf, serve_stream};
use crate::bridge::{Bridge, Call, bridge, log_in};
use crate::config::Config;
use crate::worker;

const CONFIG: &str = r#"
node = 1
cluster = "fuzzed"
secret = "0123456789abcdef0123456789abcdef"

[[nodes]]
id = 1
host = "127.0.0.1"
client_port = 7001
http_port = 8001
peer_port = 9001
"#;

/// The maximum number of turns of a command, at 5 ms each.
const TURNS: usize = 2000;

/// How often the other tasks run before a client stops sending: by then it has its answers.
const YIELDS: usize = 2000;

const METHODS: [&str; 10] =
    ["GET", "POST", "DELETE", "PATCH", "HEAD", "PUT", "OPTIONS", "CONNECT", "get", "PRI"];

const PATHS: [&str; 36] = [
    "/",
    "put",
    "get/",
    "health",
    "metrics",
    "keyspaces",
    "/c:",
    "locks/",
    "/renew",
    "sessions/",
    "replicate",
    "status",
    "command",
    "may",
    "page/page.js",
    "k",
    "c:k",
    "a:k",
    "b:k",
    "f:k",
    "%",
    "%2F",
    "%00",
    "%ff",
    "%zz",
    "?",
    "token=",
    "session=",
    "7",
    "-1",
    "&",
    "..",
    "*",
    "http://localhost/",
    "x:",
    "\u{fc}",
];

const HEADERS: [&str; 22] = [
    "Host: localhost:8001",
    "Host: evil.example",
    "Host:",
    "Content-Type: application/json",
    "Content-Type: text/plain",
    "Origin: http://localhost:8001",
    "Origin: http://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Authorization: Bearer 0123456789abcdef0123456789abcdef",
    "Authorization: Basic dXNlcjpwYXNz",
    "Authorization: Basic !",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Content-Length: 7",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Expect: 100-continue",
    "Connection: close",
    "Connection: upgrade",
    "Upgrade: websocket",
    "X-Quorate: 1",
    "Accept: text/html",
];

const FIELDS: [&str; 47] = [
    "\"key\":\"k\"",
    "\"key\":\"c:k\"",
    "\"key\":\"\\ud800\"",
    "\"key_base64\":\"/w==\"",
    "\"key_base64\":\"?\"",
    "\"value\":\"v\"",
    "\"value\":\"\"",
    "\"value\":7",
    "\"value_base64\":\"AAEC\"",
    "\"ttl_ms\":1000",
    "\"ttl_ms\":0",
    "\"ttl_ms\":18446744073709551615",
    "\"ttl_ms\":-1",
    "\"ttl_ms\":1e400",
    "\"fence\":{\"lock\":\"l\",\"token\":1}",
    "\"fence\":{}",
    "\"version\":1",
    "\"version\":18446744073709551615",
    "\"owner\":\"o\"",
    "\"owner_base64\":\"/w==\"",
    "\"session\":\"s\"",
    "\"session\":null",
    "\"wait_ms\":10",
    "\"wait_ms\":18446744073709551615",
    "\"token\":1",
    "\"prefix\":\"x:\"",
    "\"prefix\":\"\"",
    "\"prefix\":\"a\\nb\"",
    "\"replication\":\"abd\"",
    "\"replication\":\"consensus\"",
    "\"replication\":[]",
    "\"shards\":3",
    "\"shards\":4096",
    "\"durability\":\"fsync\"",
    "\"acks\":\"all\"",
    "\"acks\":1",
    "\"reads\":\"any\"",
    "\"nothing\":{\"of\":[1,2,{\"this\":null}]}",
    "\"command\":[\"GET\",\"k\"]",
    "\"command\":[\"KEYSPACE\",\"CREATE\",\"c:\"]",
    "\"command\":[\"QUORATE.REPLICATE\",\"k\",\"v\",7]",
    "\"command\":[\"COMMAND\",\"DOCS\"]",
    "\"command\":[{\"word_base64\":\"/w==\"}]",
    "\"commands\":[[\"GET\",\"k\"],[\"DEL\"]]",
    "\"commands\":[[]]",
    "\"key\"",
    "",
];

/// Sends a client's bytes: random ones, or requests that are nearly valid.
pub(crate) fn over_http(data: &[u8]) {
    let mut choices = Choices(data);
    let sent = match choices.byte() % 8 {
        0 => choices.bytes(data.len()).to_vec(),
        _ => requests(&mut choices),
    };
    let mut host = Host::start();
    let answered = exchange(&sent, &mut host);
    assert_http(&answered, &sent);
    (0..20).for_each(|_| host.turn());
    host.look();
}

fn requests(choices: &mut Choices<'_>) -> Vec<u8> {
    const REQUESTS_MAX: usize = 8;
    let mut sent = Vec::new();
    for _ in 0..REQUESTS_MAX {
        if choices.is_used_up() {
            break;
        }
        let mut path = String::from("/");
        for _ in 0..1 + choices.byte() % 4 {
            path += PATHS[choices.byte() % PATHS.len()];
        }
        let fields: Vec<&str> =
            (0..choices.byte() % 5).map(|_| FIELDS[choices.byte() % FIELDS.len()]).collect();
        let body = if fields.is_empty() { String::new() } else { format!("{{{}}}", fields.join(",")) };
        let mut head = format!("{} {path} HTTP/1.1\r\n", METHODS[choices.byte() % METHODS.len()]);
        // Most are valid.
        if choices.byte() >= 64 {
            head += "Host: localhost:8001\r\n";
            if !body.is_empty() {
                head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
            }
        }
        for _ in 0..choices.byte() % 3 {
            head += HEADERS[choices.byte() % HEADERS.len()];
            head += "\r\n";
        }
        sent.extend_from_slice(format!("{head}\r\n{body}").as_bytes());
    }
    sent
}

/// Sends bytes over one connection, and returns the response.
fn exchange(sent: &[u8], host: &mut Host) -> Vec<u8> {
    let config = Config::parse(CONFIG).expect("it is one");
    let poll = Poll::new().expect("the system has one more");
    let (caller, mut calls) = bridge(worker::waker(&poll).expect("the first of this poll"), 1 << 20);
    let routes = Arc::new(Routes::new(&config, caller));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("it needs nothing").block_on(async {
        let (client, server) = tokio::io::duplex(4096);
        let (mut reading, mut writing) = tokio::io::split(client);
        let serving = serve_stream(server, Ipv4Addr::LOCALHOST.into(), routes, StageOf::default());
        let asking = async {
            // A closed connection accepts no more.
            let _ = writing.write_all(sent).await;
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
            let _ = writing.shutdown().await;
        };
        let mut answered = Vec::new();
        let reads = reading.read_to_end(&mut answered);
        tokio::select! {
            _ = async { tokio::join!(serving, asking, reads) } => {}
            () = answer_calls(&mut calls, host) => {}
        }
        answered
    })
}

async fn answer_calls(calls: &mut Bridge, host: &mut Host) {
    loop {
        while let Some(call) = calls.next_call() {
            match call {
                Call::LogIn(credentials, wants, sender) => {
                    _ = sender.send(log_in(&credentials, wants.as_ref(), &host.node));
                }
                Call::Command { asker, arguments, sender, .. } => {
                    let Some(client) = host.node.connect(ClientKind::Internal) else { continue };
                    host.node.request_for(client, asker.of_node(), arguments.as_arguments());
                    let reply = (0..TURNS).find_map(|_| {
                        host.turn();
                        host.take_output(client).filter(|reply| !reply.is_empty())
                    });
                    host.node.disconnect(client);
                    // If there was no answer, dropping the sender shows the caller that the node gave up.
                    let _ = reply.map(|reply| sender.send(calls.counted(reply)));
                }
                Call::Abandoned => {}
                Call::Health(sender) => {
                    _ = sender.send(host.node.health());
                }
                Call::Keyspaces(sender) => {
                    _ = sender.send(serde_json::to_value(host.node.keyspaces()).unwrap_or_default());
                }
                Call::Metrics(sender) => {
                    let mut text = String::new();
                    host.node.metrics(&mut text);
                    _ = sender.send(text);
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Asserts that `answered` consists of whole responses, one after the other.
fn assert_http(answered: &[u8], sent: &[u8]) {
    let shown = || format!("{} is answered by {}", sent.escape_ascii(), answered.escape_ascii());
    let mut rest = answered;
    while !rest.is_empty() {
        let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let Some(end) = end else { panic!("half a head: {}", shown()) };
        let Ok(head) = std::str::from_utf8(&rest[..end]) else {
            panic!("a head that is no text: {}", shown())
        };
        rest = &rest[end + 4..];
        let mut lines = head.split("\r\n");
        let status: Option<u16> = lines.next().and_then(|line| {
            let line = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?;
            line.get(..3)?.parse().ok()
        });
        let Some(status) = status else { panic!("no status: {}", shown()) };
        assert_ne!(status, 500, "{}", shown());
        let header = |name: &str| {
            let mut lines = lines.clone();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        // The answer to HEAD is the head alone.
        let length = header("content-length").map_or(0, |length| length.parse().expect("a number"));
        if length == 0 || rest.is_empty() || rest.starts_with(b"HTTP/1.") {
            continue;
        }
        let Some((body, behind)) = rest.split_at_checked(length) else { panic!("half a body: {}", shown()) };
        rest = behind;
        if header("content-type") == Some("application/json") {
            let Ok(answer) = serde_json::from_slice::<Value>(body) else { panic!("no JSON: {}", shown()) };
            let explains = answer["error"].is_string() && answer["code"].is_string();
            assert!(status < 400 || explains || answer.get("ready").is_some(), "no reason: {}", shown());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_input_over_http_gets_an_http_response() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as u8
        };
        for length in 0..200 {
            let data: Vec<u8> = (0..length).map(|_| next()).collect();
            over_http(&data);
        }
    }

    #[test]
    fn valid_requests_succeed() {
        let mut host = Host::start();
        let body = r#"{"key":"k","value":"v"}"#;
        let sent = format!(
            "POST /put HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}\
             GET /get/k HTTP/1.1\r\nHost: localhost\r\n\r\n",
            body.len()
        );
        let answered = exchange(sent.as_bytes(), &mut host);
        assert_http(&answered, sent.as_bytes());
        let text = String::from_utf8_lossy(&answered).into_owned();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
        assert!(text.ends_with(r#""value":"v","version":1}"#), "{text}");
    }
}
