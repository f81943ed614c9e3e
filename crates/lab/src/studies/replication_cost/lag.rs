//! A replica's lag: from the acknowledgement of a write until the replica answers with it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::wire::attach;
use crate::harness::{Arena, Arm, Figures, Point};
use crate::load::{Arrivals, Mix, Options, Pace, Sizes, Stop};
use crate::systems::Connection;

const CLIENTS: usize = 50;
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 64;

/// The pause between two probes, so that they do not become the load.
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

/// Repeatedly writes a number to the leader and polls the replica until it has it. In microseconds.
fn probe(leader: SocketAddr, replica: SocketAddr, key: &str, is_over: &AtomicBool) -> Result<Histogram<u64>> {
    let mut leader = Connection::open(leader, TIMEOUT).context("the leader")?;
    let mut replica = Connection::open(replica, TIMEOUT).context("the replica")?;
    let mut lags = Histogram::new(3)?;
    for number in 1u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let text = number.to_string();
        leader.ask(&["SET", key, &text]).context("the leader did not take a probe")?;
        let acknowledged_at = Instant::now();
        while number_of(&replica.ask(&["GET", key]).context("the replica does not answer a probe")?)? < number
        {
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

/// The number that a replica has, 0 before the first.
fn number_of(answer: &str) -> Result<u64> {
    match answer {
        "" => Ok(0),
        text => text.parse().with_context(|| format!("a probe is '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server with the same answer to everything.
    fn answers(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.read(&mut [0; 1024]).is_ok_and(|bytes| bytes > 0) {
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_replica_that_refuses_is_reported_at_once() {
        let (leader, replica) = (answers("+OK\r\n"), answers("-MASTERDOWN no link\r\n"));
        let began = Instant::now();
        let error = probe(leader, replica, "k", &AtomicBool::new(false)).unwrap_err();
        assert!(format!("{error:#}").contains("MASTERDOWN"), "{error:#}");
        assert!(began.elapsed() < TIMEOUT);
    }
}
