//! Checks whether a node serves commands: its health is good, and it answers a PING.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::nodes::Node;

/// How long a node may take for each step of an answer.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Longest line of an answer to a command, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 10;

/// Longest answer over HTTP, in bytes. A node with many shards sends a long one.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Returns None if the node serves commands, and otherwise what it answered instead.
pub(super) fn what_lacks(node: &Node) -> Option<String> {
    match http_get(node, "/health?all") {
        Ok((200, _)) => {}
        Ok((status, body)) => {
            return Some(format!("GET /health?all at {}: {status}{}", node.at(node.ports.http), why(&body)));
        }
        Err(error) => return Some(format!("GET /health?all at {}: {error}", node.at(node.ports.http))),
    }
    match ping(node) {
        Ok(answer) if answer == "+PONG" => None,
        Ok(answer) => Some(format!("PING at {}: {answer:?}", node.at(node.ports.client))),
        Err(error) => Some(format!("PING at {}: {error}", node.at(node.ports.client))),
    }
}

/// Returns a node's answer to `GET /health`.
pub(super) fn health(node: &Node) -> Option<Value> {
    serde_json::from_str(&http_get(node, "/health").ok()?.1).ok()
}

/// Returns a node's metrics as text.
pub(super) fn metrics(node: &Node) -> Option<String> {
    http_get(node, "/metrics").ok().filter(|(status, _)| *status == 200).map(|(_, text)| text)
}

/// Returns which keyspaces are not ready, and why, as far as the answer includes it.
fn why(body: &str) -> String {
    let health: Value = serde_json::from_str(body).unwrap_or_default();
    let keyspaces = health["keyspaces"].as_array().into_iter().flatten();
    let unready: Vec<String> = keyspaces
        .filter(|keyspace| keyspace["ready"] == false)
        .map(|keyspace| {
            let prefix = keyspace["prefix"].as_str().unwrap_or_default();
            let explanation = keyspace["explanation"].as_str().unwrap_or("it is not ready");
            format!("keyspace '{}': {explanation}", if prefix.is_empty() { "default" } else { prefix })
        })
        .collect();
    if unready.is_empty() { String::new() } else { format!(" ({})", unready.join("; ")) }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Returns the node's answer to a PING, or to AUTH if the password is refused.
fn ping(node: &Node) -> io::Result<String> {
    let mut stream = BufReader::new(connect(node.at(node.ports.client))?);
    let mut ask = |words: &[&str]| -> io::Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        (&mut stream).take(LINE_BYTES_MAX).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    if let Some(password) = &node.password {
        let answer = ask(&["AUTH", password])?;
        if answer != "+OK" {
            return Ok(answer);
        }
    }
    ask(&["PING"])
}

/// Returns the status and the body of an answer over HTTP.
fn http_get(node: &Node, path: &str) -> io::Result<(u16, String)> {
    let address = node.at(node.ports.http);
    let mut stream = connect(address)?;
    let authorization = match &node.password {
        Some(password) => format!("Authorization: Bearer {password}\r\n"),
        None => String::new(),
    };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let parsed = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        Some((status, body.to_owned()))
    });
    parsed.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}
