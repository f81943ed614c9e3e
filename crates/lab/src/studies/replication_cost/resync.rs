//! How long a replica takes to have what its leader has: from nothing, and after it was cut off.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::wire::attach_redis;
use super::{NODES, REDIS};
use crate::harness::{Arena, Arm, Figures};
use crate::load::{self, Mix, Options, Sizes, Stop};
use crate::network::Gate;
use crate::systems::ask;

const VALUE_BYTES: usize = 1_024;

/// The replica that is measured: the second node. In the relay's words, which count from 1, node 2.
const REPLICA: usize = 1;

/// How long a resync may take.
const RESYNCED_WITHIN: Duration = Duration::from_secs(120);

/// How often the replica is asked.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// A replica that remembers nothing starts.
pub(super) fn full(arm: &Arm, kib: u64, arena: &mut Arena<'_>) -> Result<Figures> {
    let nodes = ready(arm, arena)?;
    // The data of earlier points must not be copied, too.
    ask(nodes[0], &["FLUSHALL"])?;
    write(kib, nodes[0], arena)?;
    until_equal(&nodes)?;
    let before = counts(nodes[0])?;
    let system = arena.system()?;
    system.kill(REPLICA);
    system.restart(REPLICA)?;
    let start = Instant::now();
    until_equal(&nodes)?;
    told(start.elapsed(), before, counts(nodes[0])?)
}

/// A replica is cut off from its leader, misses writes, and is let in again.
pub(super) fn partial(arm: &Arm, kib: u64, arena: &mut Arena<'_>) -> Result<Figures> {
    let nodes = ready(arm, arena)?;
    until_equal(&nodes)?;
    let relay = arena.system()?.system().relay().context("there is no relay to cut the link")?;
    let gate = |gate| relay.set_gate(2, 1, gate);
    let before = counts(nodes[0])?;
    gate(Gate::Reject)?;
    let written = write(kib, nodes[0], arena);
    let healed_at = Instant::now();
    gate(Gate::Open)?;
    written?;
    until_equal(&nodes)?;
    told(healed_at.elapsed(), before, counts(nodes[0])?)
}

fn told(took: Duration, before: (f64, f64), after: (f64, f64)) -> Result<Figures> {
    Ok(Figures::from([
        ("resync_ms", took.as_secs_f64() * 1e3),
        ("full_resyncs", after.0 - before.0),
        ("partial_resyncs", after.1 - before.1),
    ]))
}

/// All nodes are there and attached, whatever earlier points did to them.
fn ready(arm: &Arm, arena: &mut Arena<'_>) -> Result<Vec<SocketAddr>> {
    if arm.name == REDIS {
        attach_redis(arena.system()?, NODES - 1)?;
    }
    let system = arena.system()?;
    system.wait_until_ready()?;
    Ok(system.resp())
}

/// Writes so much to the leader.
fn write(kib: u64, leader: SocketAddr, arena: &mut Arena<'_>) -> Result<()> {
    if kib == 0 {
        return Ok(());
    }
    let options = Options {
        addresses: vec![leader],
        connections: 4,
        mix: Mix { get: 1, ..Mix::default() },
        keys: kib,
        key_prefix: arena.new_keys(),
        value_bytes: Sizes::fixed(VALUE_BYTES),
        warmup: Duration::ZERO,
        // What counts is the loading of keys before it.
        stop: Stop::Count(4),
        ..Options::default()
    };
    let report = load::run(&options, |_| ())?;
    ensure!(report.failures() + report.unknown() == 0, "the leader did not take the writes");
    Ok(())
}

/// Waits until the replica has everything that the leader has at this moment.
fn until_equal(nodes: &[SocketAddr]) -> Result<()> {
    let leader = ask(nodes[0], &["INFO", "replication"])?;
    let offset = field(&leader, "master_repl_offset").context("the leader tells no offset")?;
    let until = Instant::now() + RESYNCED_WITHIN;
    loop {
        // While it starts, nobody answers.
        let info = ask(nodes[REPLICA], &["INFO", "replication"]).unwrap_or_default();
        let is_up = info.contains("master_link_status:up") && info.contains("master_sync_in_progress:0");
        if is_up && field(&info, "slave_repl_offset").is_some_and(|applied| applied >= offset) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("the replica does not get to {offset}: {info}");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Full and partial resyncs that the leader has counted.
fn counts(leader: SocketAddr) -> Result<(f64, f64)> {
    let info = ask(leader, &["INFO", "stats"])?;
    let count = |name: &str| field(&info, name).with_context(|| format!("the leader does not tell {name}"));
    Ok((count("sync_full")?, count("sync_partial_ok")?))
}

fn field(info: &str, name: &str) -> Option<f64> {
    let mut pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(field, _)| *field == name)?.1.trim().parse().ok()
}
