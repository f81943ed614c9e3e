//! Loads over the wire, with no, one and three replicas.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{ACKS_ALL, ACKS_NONE, READS_EVERYWHERE, REDIS_WAIT, REDIS_WAIT_EACH, WORKLOADS};
use crate::harness::{Arena, Arm, Figures, Point};
use crate::load::{self, Mix, Options, Sizes, Stop, Wait};
use crate::systems::{Running, ask};

const CLIENTS: usize = 50;
const KEYS: u64 = 10_000;
const KEYS_QUICK: u64 = 2_000;
const VALUE_BYTES: usize = 64;

/// How long replicas may take to be attached or detached.
const ATTACHED_WITHIN: Duration = Duration::from_secs(20);

/// The time limit of WAIT, in milliseconds.
const WAIT_TIMEOUT_MS: u32 = 5_000;

pub(super) fn measure(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    let replicas: u16 = point.number("replicas")?;
    let prefix = attach(arm, replicas, arena)?;
    let workload = WORKLOADS.iter().find(|(name, ..)| *name == point.get("workload"));
    let Some((workload, get, set)) = workload.copied() else { bail!("no such workload") };
    let nodes = arena.system()?.resp();
    let awaits = [REDIS_WAIT, REDIS_WAIT_EACH].contains(&arm.name.as_str());
    let wait = awaits.then_some(Wait { replicas: u32::from(replicas), timeout_ms: WAIT_TIMEOUT_MS });
    let options = Options {
        addresses: vec![nodes[0]],
        connections: CLIENTS,
        pipeline: point.number("pipeline")?,
        mix: Mix { get, set, ..Mix::default() },
        keys: arena.scale().pick(KEYS_QUICK, KEYS),
        key_prefix: format!("{prefix}{}", arena.new_keys()),
        value_bytes: Sizes::fixed(VALUE_BYTES),
        warmup: arena.scale().pick(Duration::from_millis(50), Duration::from_millis(500)),
        stop: Stop::Duration(arena.scale().pick(Duration::from_millis(400), Duration::from_secs(3))),
        seed: u64::from(arena.repeat()),
        wait,
        wait_once: arm.name == REDIS_WAIT,
        ..Options::default()
    };
    if workload != READS_EVERYWHERE {
        return Ok(arena.drive(&options)?.figures());
    }
    // Keys are written to the leader; replicas that may be behind are read once they have them, and every value is
    // checked. The check of a history would report reads that are as old as this keyspace allows.
    let first = Options { mix: Mix { get: 1, ..Mix::default() }, stop: Stop::Count(1), ..options.clone() };
    load::run(&first, |_| ())?;
    let readers: Vec<SocketAddr> = nodes.into_iter().take(1 + usize::from(replicas)).collect();
    until_all_have(&readers, &format!("{}{:012}", options.key_prefix, options.keys - 1))?;
    let options = Options { addresses: readers, load: false, ..options };
    Ok(arena.drive_unrecorded(&options)?.figures())
}

/// Gives the leader `replicas` replicas; returns the key prefix that selects them.
pub(super) fn attach(arm: &Arm, replicas: u16, arena: &mut Arena<'_>) -> Result<String> {
    let system = arena.system()?;
    let nodes = system.resp();
    let acks = match arm.name.as_str() {
        ACKS_NONE => Some("none"),
        ACKS_ALL => Some("all"),
        _ => None,
    };
    let Some(acks) = acks else {
        attach_redis(system, usize::from(replicas))?;
        return Ok(String::new());
    };
    // A keyspace for each number of replicas; the cluster keeps those of earlier points.
    let prefix = format!("r{replicas}:");
    let size = format!("replicas={}", replicas + 1);
    let acks = format!("acks={acks}");
    let settings = ["replication=leader-follower", &acks, "reads=any", "leader=1", &size];
    let words: Vec<&str> = ["KEYSPACE", "CREATE", &prefix].into_iter().chain(settings).collect();
    if !ask(nodes[0], &["KEYSPACE", "LIST"])?.lines().any(|line| line == prefix) {
        ask(nodes[0], &words)?;
        system.wait_until_ready()?;
    }
    Ok(prefix)
}

/// Attaches and detaches Redis's replicas one by one. Without replicas, waits until the master writes no backlog.
pub(super) fn attach_redis(system: &Running<'_>, replicas: usize) -> Result<()> {
    let master = system.resp()[0];
    for (number, replica) in system.nodes().enumerate().skip(1) {
        let address = replica.resp.context("a replica has no address")?;
        let is_attached = ask(address, &["INFO", "replication"])?.contains("role:slave");
        if is_attached && number > replicas {
            ask(address, &["REPLICAOF", "NO", "ONE"])?;
        } else if !is_attached && number <= replicas {
            // The same address as at its start, which may be a relay's.
            let words = replica.arguments.iter().skip_while(|word| *word != "--replicaof").skip(1).take(2);
            let words: Vec<&str> = ["REPLICAOF"].into_iter().chain(words.map(String::as_str)).collect();
            ask(address, &words)?;
        }
    }
    let until = Instant::now() + ATTACHED_WITHIN;
    loop {
        let info = ask(master, &["INFO", "replication"])?;
        let online = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
        let is_idle = replicas > 0 || info.contains("repl_backlog_active:0");
        if online.count() == replicas && info.contains(&format!("connected_slaves:{replicas}\r")) && is_idle {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("the master does not get {replicas} replicas: {info}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until all nodes have a key.
fn until_all_have(nodes: &[SocketAddr], key: &str) -> Result<()> {
    let until = Instant::now() + ATTACHED_WITHIN;
    while !nodes.iter().all(|node| ask(*node, &["EXISTS", key]).is_ok_and(|answer| answer == "1")) {
        if Instant::now() > until {
            bail!("not all nodes have {key}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
