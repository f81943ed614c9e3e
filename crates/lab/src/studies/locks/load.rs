//! Contenders in a closed loop, in one or more processes, and their cost to the nodes.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::rows::{self, Try};
use super::sides::{self, Recipe};
use super::workers::{Job, Worker, now_ns};
use crate::network::{Node, Route};
use crate::systems::{Running, Usage};

/// The time between the notification of all processes and their common start.
const START_AFTER: Duration = Duration::from_millis(100);

/// How long processes may take to end: those that wait for a lock end their wait by themselves.
const END_WITHIN: Duration = Duration::from_secs(90);

/// The number of the clients among the relay's nodes.
const CLIENTS: Node = 200;

/// The parameters of a load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Contenders, distributed evenly over the processes.
    pub(super) contenders: usize,
    pub(super) processes: usize,
    /// Whether all contend for one lock, or each has its own.
    pub(super) is_same_key: bool,
    /// The prefix of the locks' names.
    pub(super) keys: String,
    pub(super) ttl_ms: u64,
    /// How long a lock is held; 0 for the paper's short computation.
    pub(super) hold_ms: f64,
    /// How long a contender pauses before its next request.
    pub(super) think_ms: f64,
    pub(super) warmup: Duration,
    pub(super) measured: Duration,
}

/// The result of a load.
pub(super) struct Loaded {
    pub(super) tries: Vec<Try>,
    /// The measured period: from the end of the warm-up to the end, on the clock of the tries.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Processor time of all nodes in that period, if the system reports it.
    pub(super) cpu_s: Option<f64>,
}

/// The nodes' addresses for the process with this number, the leader's first: each process begins with another node,
/// unless the recipe asks all of them anyway. Where the nodes are in zones, so are the clients.
pub(super) fn addresses(running: &Running<'_>, recipe: &Recipe, number: usize) -> Result<Vec<String>> {
    let system = running.system();
    let plans: Vec<_> = running.nodes().cloned().collect();
    let addresses: Option<Vec<String>> =
        plans.iter().map(|plan| system.client_address(plan).map(|address| address.to_string())).collect();
    let mut addresses = addresses.context("a node has no address for clients")?;
    if let Some(relay) = system.relay() {
        for (number, address) in (1..).zip(&mut addresses) {
            let target = address.parse().with_context(|| format!("'{address}' is not an address"))?;
            let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            *address = relay.add_route(Route { from: CLIENTS, to: number, listen, target })?.to_string();
            relay.set_link(CLIENTS, number, sides::between_zones())?;
            relay.set_link(number, CLIENTS, sides::between_zones())?;
        }
    }
    if !recipe.asks_all {
        let first = system.leader(&plans).unwrap_or(0) + number;
        let nodes = addresses.len().max(1);
        addresses.rotate_left(first % nodes);
    }
    Ok(addresses)
}

impl Load {
    /// The name of a contender's lock.
    pub(super) fn name_of(&self, contender: u64) -> String {
        if self.is_same_key { self.keys.clone() } else { format!("{}{contender}", self.keys) }
    }

    fn jobs(&self, running: &Running<'_>, recipe: &Recipe, folder: &Path) -> Result<Vec<Job>> {
        let job = |process: usize| {
            let numbers = (process as u64..self.contenders as u64).step_by(self.processes);
            let nodes = addresses(running, recipe, process)?;
            Ok(Job {
                recipe: recipe.name,
                lock_nodes: nodes.clone(),
                resource_nodes: nodes,
                ttl_ms: self.ttl_ms,
                contenders: numbers.map(|number| (number, self.name_of(number))).collect(),
                hold_ms: self.hold_ms,
                think_ms: self.think_ms,
                seconds: (self.warmup + self.measured).as_secs_f64(),
                rows: folder.join(format!("rows-{process}")),
            })
        };
        (0..self.processes).map(job).collect()
    }

    /// Runs the load. Once the warm-up is over `meanwhile` may act on the nodes.
    pub(super) fn run(
        &self,
        running: &mut Running<'_>,
        recipe: &Recipe,
        folder: &Path,
        meanwhile: impl FnOnce(&mut Running<'_>) -> Result<()>,
    ) -> Result<Loaded> {
        let jobs = self.jobs(running, recipe, folder)?;
        let children = running.children();
        let start = |(number, job)| Worker::start(children, folder, "load", number, job);
        let mut workers = jobs.iter().enumerate().map(start).collect::<Result<Vec<Worker<'_>>>>()?;
        for worker in &workers {
            worker.wait_until_ready()?;
        }
        let begin = now_ns() + START_AFTER.as_nanos() as u64;
        for worker in &mut workers {
            worker.send(&format!("go {begin}"))?;
        }
        std::thread::sleep(START_AFTER + self.warmup);
        let used_before = used(running);
        let cpu_from = now_ns();
        meanwhile(running)?;
        // Read before the end, after which clients that still wait would no longer be measured.
        let from = begin + self.warmup.as_nanos() as u64;
        let to = from + self.measured.as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(to.saturating_sub(now_ns())));
        let cpu_s = used(running).zip(used_before).map(|(after, before)| after - before);
        let share = (to - from) as f64 / (now_ns().saturating_sub(cpu_from)).max(1) as f64;
        for worker in &workers {
            let line = worker.line(END_WITHIN)?;
            if line != "done" {
                bail!("a process of clients says '{line}' instead of being done");
            }
        }
        let mut tries = Vec::new();
        for job in &jobs {
            tries.extend(rows::read(&job.rows)?);
            // Two minutes of five processes are tens of megabytes.
            std::fs::remove_file(&job.rows)?;
        }
        Ok(Loaded { tries, from, to, cpu_s: cpu_s.map(|cpu_s| cpu_s * share) })
    }
}

/// Processor time of all nodes so far; `None` when one is gone.
fn used(running: &Running<'_>) -> Option<f64> {
    let nodes = running.nodes().len();
    (0..nodes).map(|node| Some(Usage::of(running.process(node)?)?.cpu_s)).sum()
}
