//! How far a replica is behind: from the acknowledgement of a write until the replica answers with it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::wire::attach;
use crate::harness::{Arena, Arm, Figures, Point};
use crate::load::{Arrivals, Mix, Options, Pace, Sizes, Stop};

const CLIENTS: usize = 50;
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 64;

/// Between two probes, so that they do not become the load.
const PROBE_EVERY: Duration = Duration::from_millis(1);

const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn measure(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    let prefix = attach(arm, point.number("replicas")?, arena)?;
    let nodes = arena.system()?.resp();
    let probe_key = format!("{prefix}probe-{}", arena.new_keys());
    let options = Options {
        addresses: vec![nodes[0]],
        connections: CLIENTS,
        mix: Mix { set: 1, ..Mix::default() },
        pace: Pace::Open { per_second: point.number("rate")?, arrivals: Arrivals::Poisson },
        keys: KEYS,
        key_prefix: format!("{prefix}{}", arena.new_keys()),
        value_bytes: Sizes::fixed(VALUE_BYTES),
        warmup: Duration::from_millis(100),
        stop: Stop::Duration(arena.scale().pick(Duration::from_secs(1), Duration::from_secs(10))),
        seed: u64::from(arena.repeat()),
        ..Options::default()
    };
    let is_over = AtomicBool::new(false);
    let (driven, lags) = std::thread::scope(|scope| {
        let probing = scope.spawn(|| probe(nodes[0], nodes[1], &probe_key, &is_over));
        let driven = arena.drive(&options);
        is_over.store(true, Ordering::Relaxed);
        (driven, probing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut figures, lags) = (driven?.figures(), lags?);
    ensure!(!lags.is_empty(), "no lag was measured");
    let ms = |us: u64| us as f64 / 1e3;
    figures.extend([
        ("lag_p50_ms", ms(lags.value_at_quantile(0.50))),
        ("lag_p95_ms", ms(lags.value_at_quantile(0.95))),
        ("lag_p99_ms", ms(lags.value_at_quantile(0.99))),
        ("lag_max_ms", ms(lags.max())),
        ("lag_probes", lags.len() as f64),
    ]);
    Ok(figures)
}

/// Writes a number to the leader and asks the replica until it has it, again and again. In microseconds.
fn probe(leader: SocketAddr, replica: SocketAddr, key: &str, is_over: &AtomicBool) -> Result<Histogram<u64>> {
    let (mut leader, mut replica) = (Client::new(leader)?, Client::new(replica)?);
    let mut lags = Histogram::new(3)?;
    for number in 1u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let text = number.to_string();
        let answer = leader.ask(&["SET", key, &text])?;
        ensure!(answer == "OK", "the leader did not take a probe: {answer}");
        let acknowledged_at = Instant::now();
        while replica.ask(&["GET", key])?.parse::<u64>().unwrap_or(0) < number {
            ensure!(
                acknowledged_at.elapsed() < TIMEOUT,
                "a replica does not get what its leader has acknowledged"
            );
        }
        lags.saturating_record(acknowledged_at.elapsed().as_micros() as u64);
        std::thread::sleep(PROBE_EVERY);
    }
    Ok(lags)
}

/// A connection that asks one thing at a time.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn new(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// A status or a bulk string as text; empty if there is none.
    fn ask(&mut self, words: &[&str]) -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let (kind, rest) = line.trim_end().split_at_checked(1).context("the server has hung up")?;
        match kind {
            "$" if rest == "-1" => Ok(String::new()),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(String::from_utf8(bytes)?)
            }
            _ => Ok(rest.to_owned()),
        }
    }
}
