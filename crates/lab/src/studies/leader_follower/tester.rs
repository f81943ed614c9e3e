//! The study's own load tester, following its code (experiments/load_test.py, lines 36 to 101).
//!
//! Each client is a loop. A request of `write-heavy` is a PUT; one of `mixed` is a PUT or a GET, at even odds; one of
//! `read-heavy` is a PUT and then a GET of the same key. PUTs go to the leader, GETs to any node, drawn for each (line
//! 29). Keys are drawn from a thousand, and none is written beforehand. The throughput is the number of requests,
//! including failed ones, divided by the total time (line 98).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::Figures;
use crate::systems::Connection;

/// The timeout of the tester's clients.
const TIMEOUT: Duration = Duration::from_secs(2);

const KEYS: u64 = 1000;
const VALUES: u64 = 1000;

/// The tester's workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Mixed,
    ReadHeavy,
    WriteHeavy,
}

impl Mode {
    /// All workloads, with the names of their points.
    pub(super) const ALL: [(&'static str, Mode); 3] = [
        ("tester: mixed", Mode::Mixed),
        ("tester: read-heavy", Mode::ReadHeavy),
        ("tester: write-heavy", Mode::WriteHeavy),
    ];

    pub(super) fn find(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, mode)| mode)
    }
}

/// A client's counts.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Requests as the tester counts them.
    requests: u64,
    /// Answered PUTs and GETs, each counted as one.
    operations: u64,
    puts: u64,
    /// The duration of each request in milliseconds.
    latencies_ms: Vec<f64>,
}

/// Runs the tester for `length`. The first node is the leader.
///
/// # Errors
/// A node cannot be reached, or none answers.
pub(super) fn measure(
    nodes: &[SocketAddr],
    mode: Mode,
    clients: u64,
    length: Duration,
    seed: u64,
    prefix: &str,
) -> Result<Figures> {
    let begun = Instant::now();
    let counts = std::thread::scope(|scope| {
        let client =
            |number| scope.spawn(move || client(nodes, mode, begun + length, (seed, number), prefix));
        let clients: Vec<_> = (0..clients).map(client).collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, Result<Counts>>| {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        clients.into_iter().map(join).collect::<Result<Vec<Counts>>>()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>() as f64 / seconds;
    ensure!(sum(|counts| counts.operations) > 0.0, "no node has answered");
    let mut latencies_ms: Vec<f64> = counts.iter().flat_map(|counts| counts.latencies_ms.clone()).collect();
    latencies_ms.sort_by(f64::total_cmp);
    // As in the tester (lines 92 to 95).
    let at = |share: f64| latencies_ms[(share * latencies_ms.len() as f64) as usize];
    Ok(Figures::from([
        ("request_mean_ms", latencies_ms.iter().sum::<f64>() / latencies_ms.len() as f64),
        ("request_p50_ms", at(0.5)),
        ("request_p95_ms", at(0.95)),
        ("request_p99_ms", at(0.99)),
        ("requests_per_s", sum(|counts| counts.requests)),
        ("operations_per_s", sum(|counts| counts.operations)),
        ("puts_per_s", sum(|counts| counts.puts)),
    ]))
}

fn client(
    nodes: &[SocketAddr],
    mode: Mode,
    until: Instant,
    (seed, number): (u64, u64),
    prefix: &str,
) -> Result<Counts> {
    let connect = |address: &SocketAddr| Connection::open(*address, TIMEOUT);
    let mut connections = nodes.iter().map(connect).collect::<std::io::Result<Vec<_>>>()?;
    let mut state = (seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |most: u64| {
        // Marsaglia, "Xorshift RNGs" (2003): good enough to spread keys.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    let mut counts = Counts::default();
    while Instant::now() < until {
        let (key, value) = (format!("{prefix}key{}", draw(KEYS)), format!("value{}", draw(VALUES)));
        let (puts, gets) = match mode {
            Mode::WriteHeavy => (true, false),
            Mode::ReadHeavy => (true, true),
            Mode::Mixed => {
                let puts = draw(2) == 0;
                (puts, !puts)
            }
        };
        let sent = Instant::now();
        if puts {
            let json = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
            let leader = connections.first_mut().context("there is no node")?;
            leader.request("POST", "/put", Some(&json)).context("a PUT at the leader")?;
        }
        if gets {
            let node = draw(connections.len() as u64) as usize;
            // That there is no such key is an answer, too.
            connections[node].request("GET", &format!("/get/{key}"), None).context("a GET")?;
        }
        counts.latencies_ms.push(sent.elapsed().as_secs_f64() * 1000.0);
        counts.requests += 1;
        counts.operations += u64::from(puts) + u64::from(gets);
        counts.puts += u64::from(puts);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A node with the same answer to every request.
    fn node() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
                        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn requests_are_counted_as_the_tester_counts_them() {
        let nodes = [node(), node()];
        let per_request = |mode| {
            let figures = measure(&nodes, mode, 2, Duration::from_millis(50), 1, "k").unwrap();
            let requests = figures["requests_per_s"];
            (figures["operations_per_s"] / requests, figures["puts_per_s"] / requests)
        };
        let is_near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        let (operations, puts) = per_request(Mode::ReadHeavy);
        assert!(is_near(operations, 2.0) && is_near(puts, 1.0), "{operations} {puts}");
        let (operations, puts) = per_request(Mode::WriteHeavy);
        assert!(is_near(operations, 1.0) && is_near(puts, 1.0), "{operations} {puts}");
        let (operations, puts) = per_request(Mode::Mixed);
        assert!(is_near(operations, 1.0) && (0.2..0.8).contains(&puts), "{operations} {puts}");
    }
}
