//! A node loses its disk and is admitted again: how long until it holds its part of all values, and how many bytes that
//! moves.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::measure::field;
use super::network::{Ledger, Shaped};
use crate::harness::{Arena, Arm, Figures, Point};
use crate::load::{self, KeyChoice, Mix, Operation, Options, Outcome, Sizes, Stop};
use crate::systems::{ask, http_get};

/// The node that is lost, numbered from 0, and its number in the cluster.
const LOST: usize = 4;
const LOST_ID: u16 = 5;

/// How many values there are.
const VALUES: u64 = 400;
const VALUES_QUICK: u64 = 40;

/// The values written during a rebuild, over and over.
const BESIDE_BYTES: usize = 100_000;
const BESIDE_KEYS: u64 = 8;

const REPLACED_WITHIN: Duration = Duration::from_secs(30);
const REBUILT_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) fn measure(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    let (bytes, mbit): (usize, u64) = (point.number("bytes")?, point.number("mbit")?);
    let parts = super::parts_of(&arm.name);
    let values = arena.scale().pick(VALUES_QUICK, VALUES);
    let (addresses, key_prefix) = (arena.system()?.resp(), arena.new_keys());
    // Earlier values would have to be rebuilt, too.
    ask(addresses[0], &["FLUSHALL"])?;
    let options = Options {
        addresses: vec![addresses[0]],
        connections: 1,
        mix: Mix::only(Operation::Set),
        keys: values,
        key_choice: KeyChoice::Sequential,
        key_prefix,
        value_bytes: Sizes::fixed(bytes),
        warmup: Duration::ZERO,
        stop: Stop::Count(values),
        load: false,
        reply_timeout: Duration::from_secs(60),
        ..Options::default()
    };
    let written = load::run(&options, |_| ())?;
    ensure!(written.failures() + written.unknown() == 0, "the values were not written");

    let rebuilt = lose(arena, mbit)?;
    let shaped = rebuilt.shaped;
    let before = Ledger::look(arena)?;
    while !has_all(arena, values, parts)? {
        ensure!(
            rebuilt.begun.elapsed() < REBUILT_WITHIN,
            "the new node does not get everything that it should hold"
        );
        std::thread::sleep(LOOK_EVERY);
    }
    let took = rebuilt.begun.elapsed();
    let moved = Ledger::look(arena)?.since(&before);
    drop(shaped);
    let total = values as f64 * bytes as f64;
    let received = moved.received_by(LOST_ID);
    let mut figures = Figures::from([
        ("rebuild_ms", took.as_secs_f64() * 1e3),
        ("rebuild_per_value", received / total),
        ("rebuild_of_link", 100.0 * received * 8.0 / (mbit as f64 * 1e6) / took.as_secs_f64()),
    ]);
    beside(arm, arena, (mbit, took), &mut figures)?;
    Ok(figures)
}

/// A node that has lost everything and was admitted again.
struct Lost {
    shaped: Shaped,
    begun: Instant,
}

/// A node loses its disk and is admitted again, on links of `mbit` Mbit/s.
fn lose(arena: &mut Arena<'_>, mbit: u64) -> Result<Lost> {
    let system = arena.system()?;
    let address = system.resp()[0];
    system.kill(LOST);
    let folder = system.nodes().nth(LOST).context("there is no fifth node")?.folder.clone();
    fs::remove_dir_all(folder.join("storage")).context("cannot remove the lost node's storage")?;
    let shaped = Shaped::by(arena, mbit)?;
    arena.system()?.restart(LOST)?;
    let lost = arena.system()?.http()[LOST];
    replace(address, lost)?;
    Ok(Lost { shaped, begun: Instant::now() })
}

/// Writes while nothing is rebuilt, and again while the node is: how much longer the slowest writes take. The second
/// load runs for as long as the rebuild alone took, so that all of its writes are concurrent with a rebuild.
fn beside(
    arm: &Arm,
    arena: &mut Arena<'_>,
    (mbit, took): (u64, Duration),
    figures: &mut Figures,
) -> Result<()> {
    let duration = took.max(Duration::from_millis(500));
    let write = |arena: &mut Arena<'_>, duration| -> Result<(f64, u64)> {
        let (addresses, key_prefix) = (arena.system()?.resp(), arena.new_keys());
        let options = Options {
            addresses: vec![addresses[0]],
            connections: 1,
            mix: Mix::only(Operation::Set),
            keys: BESIDE_KEYS,
            key_choice: KeyChoice::Sequential,
            key_prefix,
            value_bytes: Sizes::fixed(BESIDE_BYTES),
            warmup: Duration::ZERO,
            stop: Stop::Duration(duration),
            load: false,
            reply_timeout: Duration::from_secs(60),
            ..Options::default()
        };
        let report = load::run(&options, |_| ())?;
        let latencies = report.latencies(Operation::Set, Outcome::Ok).context("nothing was written")?;
        Ok((latencies.value_at_quantile(0.99) as f64 / 1e3, latencies.len()))
    };
    let shaped = Shaped::by(arena, mbit)?;
    let (alone_ms, alone) = write(arena, duration.max(Duration::from_secs(1)))?;
    drop(shaped);
    let lost = lose(arena, mbit)?;
    if super::parts_of(&arm.name) > 1 {
        // Members change first, which delays writes whatever is rebuilt.
        while !is_rebuilding(arena)? {
            ensure!(lost.begun.elapsed() < REBUILT_WITHIN, "the new node does not begin to rebuild");
            std::thread::sleep(LOOK_EVERY / 4);
        }
    }
    let (beside_ms, beside) = write(arena, duration)?;
    drop(lost.shaped);
    figures.insert("alone_p99_ms", alone_ms);
    figures.insert("beside_p99_ms", beside_ms);
    figures.insert("beside_over_alone", beside_ms / alone_ms);
    figures.insert("beside_writes", alone.min(beside) as f64);
    Ok(())
}

/// Whether the new node knows what it lacks.
fn is_rebuilding(arena: &mut Arena<'_>) -> Result<bool> {
    let resp = arena.system()?.resp();
    let Ok(info) = ask(resp[LOST], &["INFO", "coding"]) else { return Ok(false) };
    Ok(field(&info, "coded_fragments_lacking").is_some_and(|lacking| lacking > 0.0))
}

/// Admits the lost node as a new one. This is refused while its former incarnation may still be alive.
fn replace(address: SocketAddr, lost: SocketAddr) -> Result<()> {
    let until = Instant::now() + REPLACED_WITHIN;
    let is_refused = || {
        let health = http_get(lost, "/health");
        health.is_ok_and(|(_, health)| health.contains("CLUSTER REPLACE"))
    };
    while !is_refused() {
        ensure!(Instant::now() < until, "the node that lost its storage is not refused");
        std::thread::sleep(LOOK_EVERY);
    }
    loop {
        match ask(address, &["CLUSTER", "REPLACE", &LOST_ID.to_string()]) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => bail!("the lost node is not replaced: {error}"),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// Whether the new node holds its copy, or its fragment, of every value.
fn has_all(arena: &mut Arena<'_>, values: u64, parts: usize) -> Result<bool> {
    let system = arena.system()?;
    let (http, resp) = (system.http(), system.resp());
    // While it starts, it does not answer.
    let Ok((_, health)) = http_get(http[LOST], "/health") else { return Ok(false) };
    let health: serde_json::Value = serde_json::from_str(&health).unwrap_or_default();
    let keyspace = &health["keyspaces"][0];
    let is_member = keyspace["role"] == "follower" && keyspace["ready"] == true;
    if !is_member || parts == 1 {
        return Ok(is_member && keyspace["applied"].as_u64().is_some_and(|applied| applied > 0));
    }
    let Ok(info) = ask(resp[LOST], &["INFO", "all"]) else { return Ok(false) };
    let held = field(&info, "coded_fragments").unwrap_or(0.0);
    Ok(held >= values as f64 && field(&info, "coded_fragments_lacking") == Some(0.0))
}
