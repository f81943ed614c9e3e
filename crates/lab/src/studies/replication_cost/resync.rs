//! How long a replica takes to catch up with its leader: from nothing, and after it was cut off.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::wire::attach_redis;
use super::{NODES, REDIS_RESYNC};
use crate::harness::{Arena, Arm, Figures};
use crate::load::{self, Mix, Options, Sizes, Stop};
use crate::network::Gate;
use crate::systems::ask;

const VALUE_BYTES: usize = 1_024;

/// The measured replica: the second node. In the relay, which counts from 1, it is node 2.
const REPLICA: usize = 1;

/// The backlog for a full resync: less than what is written before it; and for a partial one: more than is missed.
const BACKLOG_BYTES_FULL: u64 = 1 << 20;
const BACKLOG_BYTES_PARTIAL: u64 = 128 << 20;
const FILLER_KIB: u64 = 4 << 10;

/// How long a resync may take.
const RESYNCED_WITHIN: Duration = Duration::from_secs(120);

/// How often the replica is polled.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// A replica starts without memory.
pub(super) fn full(arm: &Arm, kib: u64, arena: &mut Arena<'_>) -> Result<Figures> {
    let nodes = ready(arm, arena)?;
    // The whole history must not fit into the leader's backlog: a replica without memory could be sent that instead of
    // a snapshot transfer. Nor may the data of earlier points be transferred.
    set_backlog(arm, &nodes, BACKLOG_BYTES_FULL)?;
    write(FILLER_KIB, nodes[0], arena)?;
    ask(nodes[0], &["FLUSHALL"])?;
    write(kib, nodes[0], arena)?;
    until_equal(&nodes)?;
    let before = counts(nodes[0])?;
    let system = arena.system()?;
    system.kill(REPLICA);
    system.restart(REPLICA)?;
    let start = Instant::now();
    until_equal(&nodes)?;
    figures_of(start.elapsed(), before, counts(nodes[0])?)
}

/// A replica is cut off from its leader, misses writes, and is connected again.
pub(super) fn partial(arm: &Arm, kib: u64, arena: &mut Arena<'_>) -> Result<Figures> {
    let nodes = ready(arm, arena)?;
    set_backlog(arm, &nodes, BACKLOG_BYTES_PARTIAL)?;
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
    figures_of(healed_at.elapsed(), before, counts(nodes[0])?)
}

fn figures_of(took: Duration, before: (f64, f64), after: (f64, f64)) -> Result<Figures> {
    Ok(Figures::from([
        ("resync_ms", took.as_secs_f64() * 1e3),
        ("full_resyncs", after.0 - before.0),
        ("partial_resyncs", after.1 - before.1),
    ]))
}

/// Sets how much history the leader keeps for replicas that return.
fn set_backlog(arm: &Arm, nodes: &[SocketAddr], bytes: u64) -> Result<()> {
    let bytes = bytes.to_string();
    if arm.name == REDIS_RESYNC {
        ask(nodes[0], &["CONFIG", "SET", "repl-backlog-size", &bytes])?;
    } else {
        ask(nodes[0], &["KEYSPACE", "SET", "", &format!("backlog_bytes={bytes}")])?;
    }
    Ok(())
}

/// Makes sure that all nodes run and are attached, whatever earlier points did to them.
fn ready(arm: &Arm, arena: &mut Arena<'_>) -> Result<Vec<SocketAddr>> {
    if arm.name == REDIS_RESYNC {
        attach_redis(arena.system()?, NODES - 1)?;
    }
    let system = arena.system()?;
    system.wait_until_ready()?;
    Ok(system.resp())
}

/// Writes `kib` KiB to the leader.
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
    let offset = field(&leader, "master_repl_offset").context("the leader reports no offset")?;
    let until = Instant::now() + RESYNCED_WITHIN;
    loop {
        // While it starts, it does not answer.
        let info = ask(nodes[REPLICA], &["INFO", "replication"]).unwrap_or_default();
        let is_up = info.contains("master_link_status:up") && info.contains("master_sync_in_progress:0");
        if is_up && field(&info, "slave_repl_offset").is_some_and(|applied| applied >= offset) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("the replica does not reach {offset}: {info}");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The numbers of full and partial resyncs that the leader has counted.
fn counts(leader: SocketAddr) -> Result<(f64, f64)> {
    let info = ask(leader, &["INFO", "stats"])?;
    let count = |name: &str| field(&info, name).with_context(|| format!("the leader does not report {name}"));
    Ok((count("sync_full")?, count("sync_partial_ok")?))
}

fn field(info: &str, name: &str) -> Option<f64> {
    let mut pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(field, _)| *field == name)?.1.trim().parse().ok()
}
