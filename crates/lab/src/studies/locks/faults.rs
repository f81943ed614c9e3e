//! The paper's three properties, by experiment: exclusion when a holder is paused or cut off, freedom from deadlock when it
//! dies, and whether a majority goes on without a node.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::load::{Load, addresses};
use super::rows;
use super::sides::Recipe;
use super::workers::{Job, Worker, now_ns};
use crate::harness::Figures;
use crate::network::{Gate, Relay, Route};
use crate::systems::Running;

/// How long the next one may take to get the lock of a holder that is gone.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(60);

/// How long the next one has waited when the holder is killed.
const WAITED: Duration = Duration::from_millis(300);

/// The number of the holder among the relay's nodes.
const HOLDER: u16 = 100;

/// What happens to the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stands still until another one holds the lock, and then goes on as if nothing had been.
    Paused,
    /// It is cut off from the lock service and not from what the lock guards.
    CutOff,
    /// It is killed.
    Killed,
}

/// Where trials are made.
pub(super) struct Trials<'t> {
    pub(super) recipe: &'t Recipe,
    pub(super) folder: &'t Path,
    /// What the names of locks and keys begin with.
    pub(super) keys: String,
    pub(super) count: usize,
}

/// What trials found.
#[derive(Default)]
struct Found {
    /// Writes that were accepted from a holder whose lock another one had, to a resource that knows nothing of locks.
    stale: u32,
    /// The same to a resource that looks at the grant.
    stale_guarded: u32,
    /// Milliseconds from the fate to the next grant.
    takeovers: Vec<f64>,
    /// Milliseconds from the first grant to the next one.
    leases: Vec<f64>,
}

impl Trials<'_> {
    /// Makes the trials, one after the other.
    pub(super) fn run(&self, running: &Running<'_>, fate: Fate) -> Result<Figures> {
        let mut found = Found::default();
        for number in 0..self.count {
            self.one(running, fate, number, &mut found)?;
        }
        found.takeovers.sort_by(f64::total_cmp);
        let middle = found.takeovers[found.takeovers.len() / 2];
        let last = found.takeovers.last().copied().unwrap_or(middle);
        let mut figures = Figures::from([
            ("trials", self.count as f64),
            ("takeover_ms", middle),
            ("takeover_max_ms", last),
            ("lease_ms", self.recipe.ttl_ms_least as f64),
            ("lease_min_ms", found.leases.iter().copied().fold(f64::INFINITY, f64::min)),
        ]);
        if fate != Fate::Killed {
            figures.insert("stale", f64::from(found.stale));
            if self.recipe.is_guarded {
                figures.insert("stale_guarded", f64::from(found.stale_guarded));
            }
        }
        Ok(figures)
    }

    fn job(&self, lock_nodes: Vec<String>, resource_nodes: Vec<String>) -> Job {
        Job {
            recipe: self.recipe.name,
            lock_nodes,
            resource_nodes,
            ttl_ms: self.recipe.ttl_ms_least,
            contenders: Vec::new(),
            hold_ms: 0.0,
            think_ms: 0.0,
            seconds: 0.0,
            rows: Default::default(),
        }
    }

    fn one(&self, running: &Running<'_>, fate: Fate, number: usize, found: &mut Found) -> Result<()> {
        let nodes = addresses(running, self.recipe, 0)?;
        let relay = match fate {
            Fate::CutOff => Some(Cut::new(&nodes)?),
            Fate::Paused | Fate::Killed => None,
        };
        let through = relay.as_ref().map_or(nodes.clone(), |cut| cut.addresses.clone());
        let start = |name: usize, job: &Job| {
            let worker = Worker::start(running.children(), self.folder, "holder", name, job)?;
            worker.wait_until_ready()?;
            anyhow::Ok(worker)
        };
        let mut holder = start(100, &self.job(through, nodes.clone()))?;
        let mut next = start(101, &self.job(nodes.clone(), nodes))?;
        let name = format!("{}{number}", self.keys);
        let acquire = json!({"do": "acquire", "name": name, "within_s": TAKEOVER_WITHIN.as_secs()});
        let write = |who: &str| json!({"do": "write", "key": format!("{name}-plain"), "value": who});
        let guarded =
            |who: &str| json!({"do": "guarded write", "key": format!("{name}-guarded"), "value": who});

        let first_at = holder.ask(&acquire)?.done().context("the first acquire")?;
        holder.ask(&write("first"))?.done().context("the holder's write")?;
        if self.recipe.is_guarded {
            holder.ask(&guarded("first"))?.done().context("the holder's guarded write")?;
        }
        next.order(&acquire)?;
        std::thread::sleep(WAITED);
        let fate_at = now_ns();
        match fate {
            Fate::Paused => holder.pause(),
            Fate::Killed => holder.kill(),
            Fate::CutOff => relay.as_ref().context("there is no relay")?.close()?,
        }
        let second_at = next.answer(TAKEOVER_WITHIN)?.done().context("the next one does not get the lock")?;
        found.takeovers.push(second_at.saturating_sub(fate_at) as f64 / 1e6);
        found.leases.push(second_at.saturating_sub(first_at) as f64 / 1e6);
        next.ask(&write("second"))?.done().context("the next one's write")?;
        if self.recipe.is_guarded {
            next.ask(&guarded("second"))?.done().context("the next one's guarded write")?;
        }
        if fate != Fate::Killed {
            // It goes on where it stood: it holds the lock, as far as it knows.
            holder.resume();
            found.stale += u32::from(holder.ask(&write("first again"))?.done().is_ok());
            if self.recipe.is_guarded {
                found.stale_guarded += u32::from(holder.ask(&guarded("first again"))?.done().is_ok());
            }
        }
        next.ask(&json!({"do": "release"}))?.done().context("the release")?;
        Ok(())
    }
}

/// A relay between the holder and the nodes, that can be cut.
struct Cut {
    relay: Relay,
    nodes: u16,
    addresses: Vec<String>,
}

impl Cut {
    fn new(nodes: &[String]) -> Result<Cut> {
        let relay = Relay::start(1)?;
        let mut addresses = Vec::new();
        for (number, address) in (1..).zip(nodes) {
            let target: SocketAddr = address.parse().with_context(|| format!("'{address}' is no address"))?;
            let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            addresses.push(relay.add_route(Route { from: HOLDER, to: number, listen, target })?.to_string());
        }
        Ok(Cut { relay, nodes: u16::try_from(nodes.len())?, addresses })
    }

    /// Nothing is carried any more, either way, and nobody is told.
    fn close(&self) -> Result<()> {
        for node in 1..=self.nodes {
            self.relay.set_gate(HOLDER, node, Gate::Drop)?;
            self.relay.set_gate(node, HOLDER, Gate::Drop)?;
        }
        Ok(())
    }
}

/// A node is killed while contenders acquire, each its own lock, through one node each.
pub(super) fn kill_node(
    running: &mut Running<'_>,
    recipe: &Recipe,
    folder: &Path,
    which: &str,
    load: &Load,
) -> Result<Figures> {
    let plans: Vec<_> = running.nodes().cloned().collect();
    let leader = running.system().leader(&plans);
    let node = match (which, leader) {
        ("leader", Some(leader)) => leader,
        ("follower", Some(leader)) => (leader + 1) % plans.len(),
        (_, None) => 0,
        (other, _) => bail!("there is no such node as a {other}"),
    };
    let mut killed_at = 0;
    let loaded = load.run(running, recipe, folder, |running| {
        killed_at = now_ns();
        running.kill(node);
        Ok(())
    });
    running.restart(node)?;
    running.wait_until_ready()?;
    let loaded = loaded?;
    ensure!(!loaded.tries.is_empty(), "nobody tried to acquire");
    let contenders: Vec<u64> = (0..load.contenders as u64).collect();
    let (gap_ms, stuck) = rows::gaps(&loaded.tries, &contenders, killed_at);
    let mut figures = rows::figures(&loaded.tries, load.contenders, false, killed_at, loaded.to);
    figures.extend(gap_ms.map(|gap_ms| ("gap_ms", gap_ms)));
    figures.insert("stuck", stuck as f64);
    Ok(figures)
}
