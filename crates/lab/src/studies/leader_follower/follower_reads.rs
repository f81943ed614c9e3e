//! A follower's answer right after the leader has acknowledged a write.
//!
//! One client writes at the leader, and as soon as the answer arrives reads the same key from a follower, repeatedly
//! until it sees the write. Both connections are already open: only the read itself gives a follower time.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::harness::Figures;
use crate::load::Wait;
use crate::systems::Connection;

/// The time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long the follower is polled for a write.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// Writes and reads `times` times. Measures the share of first reads that miss the write, and the time until it was
/// seen.
pub(super) fn measure(
    is_http: bool,
    [leader, follower]: [SocketAddr; 2],
    wait: Option<Wait>,
    prefix: &str,
    times: u32,
) -> Result<Figures> {
    let mut leader = Client::connect(is_http, leader, TIMEOUT).context("the leader")?;
    let mut follower = Client::connect(is_http, follower, TIMEOUT).context("the follower")?;
    let mut stale = 0;
    let mut lags_ms = Vec::new();
    for number in 0..times {
        let (key, value) = (format!("{prefix}{number}"), format!("value-{number}"));
        leader.put(&key, &value).context("a write at the leader")?;
        if let Some(wait) = wait {
            leader.wait(wait).context("WAIT at the leader")?;
        }
        let acknowledged = Instant::now();
        let mut is_first = true;
        while !follower.has(&key, &value).context("a read at the follower")? {
            stale += u32::from(is_first);
            is_first = false;
            if acknowledged.elapsed() > SEEN_WITHIN {
                break;
            }
        }
        lags_ms.push(acknowledged.elapsed().as_secs_f64() * 1000.0);
    }
    lags_ms.sort_by(f64::total_cmp);
    let at = |share: f64| lags_ms[((lags_ms.len() - 1) as f64 * share).round() as usize];
    Ok(Figures::from([
        ("stale_pct", f64::from(stale) * 100.0 / f64::from(times)),
        ("seen_p50_ms", at(0.5)),
        ("seen_p95_ms", at(0.95)),
    ]))
}

/// A client of one node, over the protocol that the arm is measured with.
pub(super) struct Client {
    is_http: bool,
    connection: Connection,
}

impl Client {
    /// Connects; `timeout` is the time limit for each answer.
    pub(super) fn connect(is_http: bool, address: SocketAddr, timeout: Duration) -> io::Result<Client> {
        Ok(Client { is_http, connection: Connection::open(address, timeout)? })
    }

    /// Writes, and waits for the acknowledgement.
    pub(super) fn put(&mut self, key: &str, value: &str) -> io::Result<()> {
        let (is_done, answer) = if self.is_http {
            let json = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
            let (status, body) = self.connection.request("POST", "/put", Some(&json))?;
            (status == 200, body)
        } else {
            let answer = self.connection.ask(&["SET", key, value])?;
            (answer == "OK", answer)
        };
        if is_done { Ok(()) } else { Err(io::Error::other(answer)) }
    }

    /// Waits until replicas have acknowledged the writes.
    fn wait(&mut self, wait: Wait) -> io::Result<()> {
        let answer =
            self.connection.ask(&["WAIT", &wait.replicas.to_string(), &wait.timeout_ms.to_string()])?;
        let count: Option<u32> = answer.parse().ok();
        if count.is_some_and(|count| count >= wait.replicas) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{answer} of {} replicas have it", wait.replicas)))
        }
    }

    /// Whether a key has this value.
    pub(super) fn has(&mut self, key: &str, value: &str) -> io::Result<bool> {
        if !self.is_http {
            return Ok(self.connection.ask(&["GET", key])? == value);
        }
        let (status, body) = self.connection.request("GET", &format!("/get/{key}"), None)?;
        match status {
            404 => Ok(false),
            200 => Ok(body.contains(&format!("\"{value}\""))),
            _ => Err(io::Error::other(body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that answers one request after another with `answers`, and then ends.
    fn answers(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 1024];
            for answer in answers {
                // Requests are short, and each follows the previous answer: one read takes one.
                if stream.read(&mut buffer).unwrap() == 0 {
                    return;
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_read_that_misses_the_write_is_stale_and_is_repeated() {
        let leader = answers(&["+OK\r\n", "+OK\r\n"]);
        let follower = answers(&["$-1\r\n", "$7\r\nvalue-0\r\n", "$7\r\nvalue-1\r\n"]);
        let figures = measure(false, [leader, follower], None, "k", 2).unwrap();
        assert_eq!(figures["stale_pct"], 50.0);
    }

    #[test]
    fn over_http_a_missing_key_is_stale() {
        let leader = answers(&["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]);
        let follower = answers(&[
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone",
            "HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n{\"value\":\"value-0\"}",
        ]);
        let figures = measure(true, [leader, follower], None, "k", 1).unwrap();
        assert_eq!(figures["stale_pct"], 100.0);
    }

    #[test]
    fn a_write_that_is_refused_is_no_measurement() {
        let leader = answers(&["-CLUSTERDOWN no\r\n"]);
        let follower = answers(&[]);
        let error = measure(false, [leader, follower], None, "k", 1).unwrap_err();
        assert!(format!("{error:#}").contains("CLUSTERDOWN"), "{error:#}");
    }
}
