//! Experiments on the paper's three properties: mutual exclusion when a holder is paused or cut off, freedom from
//! deadlock when it dies, and whether a majority continues without a node.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::load::{Load, addresses};
use super::rows;
use super::sides::Recipe;
use super::workers::{Job, Worker, now_ns};
use crate::harness::{Figures, Spread};
use crate::network::{Gate, Relay, Route};
use crate::systems::{FakedClock, Running};

/// How long the next client may take to get the lock of a dead holder.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(60);

/// How long the first client may take, which has no competition.
const FIRST_WITHIN: Duration = Duration::from_secs(5);

/// How long a waiting client may take to be notified of a release.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(10);

/// How long the next client has waited when the holder is killed.
const WAITED: Duration = Duration::from_millis(300);

/// The lease of a lock whose nodes are restarted, the longest that ZooKeeper grants; and how long another client then
/// tries to get it.
const RESTART_LEASE_MS: u64 = 20_000;
const RESTART_TRY: Duration = Duration::from_secs(2);

/// How far a clock jumps, in seconds: ahead by more than a lease lasts, or back.
const AHEAD: i64 = 60;
const BACK: i64 = -6;

/// The number of the holder among the relay's nodes.
const HOLDER: u16 = 100;

/// What happens to the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is paused until another client holds the lock, and then continues as if nothing had happened.
    Paused,
    /// It is cut off from the lock service but not from the resource that the lock guards.
    CutOff,
    /// It is killed.
    Killed,
}

/// The setting of the trials.
pub(super) struct Trials<'t> {
    pub(super) recipe: &'t Recipe,
    pub(super) folder: &'t Path,
    /// The prefix of the names of locks and keys.
    pub(super) keys: String,
    pub(super) count: usize,
}

/// The results of all trials of one fate.
#[derive(Default)]
struct Found {
    /// Accepted writes of a holder whose lock another client had, to a resource that knows nothing of locks.
    stale: u32,
    /// The same to a resource that checks the grant.
    stale_guarded: u32,
    /// How many times the next client had not got the lock in the end.
    never_granted: u32,
    /// Milliseconds from the fate to the next grant.
    takeovers: Vec<f64>,
    /// Milliseconds from the holder's request to the next grant.
    leases: Vec<f64>,
}

/// Each fate with the names of its measures: accepted writes of a stale holder, the same where they are guarded, and
/// how long the next client waited.
const FATES: [(Fate, &str, &str, &str, &str); 3] = [
    (Fate::Paused, "stale_paused", "guarded_paused", "takeover_paused_ms", "takeover_paused_max_ms"),
    (Fate::CutOff, "stale_cut_off", "guarded_cut_off", "takeover_cut_off_ms", "takeover_cut_off_max_ms"),
    (Fate::Killed, "", "", "takeover_killed_ms", "takeover_killed_max_ms"),
];

impl Trials<'_> {
    /// Makes the trials one after another. Within a trial the fates run concurrently, each with its own lock: most of
    /// the time all of them wait for leases to end.
    pub(super) fn run(&self, running: &Running<'_>) -> Result<Figures> {
        let mut found = FATES.map(|_| Found::default());
        for number in 0..self.count {
            let mut pairs = Vec::new();
            for (fate, ..) in FATES {
                pairs.push(Pair::start(self, running, fate, number)?);
            }
            for pair in &mut pairs {
                pair.begin()?;
            }
            std::thread::sleep(WAITED);
            for pair in &mut pairs {
                pair.strike()?;
            }
            for (pair, found) in pairs.iter_mut().zip(&mut found) {
                pair.end(found).with_context(|| format!("{:?}", pair.fate))?;
            }
        }
        let mut figures =
            Figures::from([("trials", self.count as f64), ("lease_ms", self.recipe.ttl_ms_least as f64)]);
        for ((fate, stale, guarded, takeover, takeover_max), found) in FATES.into_iter().zip(&mut found) {
            if let Some(spread) = Spread::of(std::mem::take(&mut found.takeovers)) {
                figures.extend([(takeover, spread.median), (takeover_max, spread.max)]);
            }
            if fate != Fate::Killed {
                figures.insert(stale, f64::from(found.stale));
                if self.recipe.is_guarded {
                    figures.insert(guarded, f64::from(found.stale_guarded));
                }
            }
        }
        figures
            .insert("never_granted", f64::from(found.iter().map(|found| found.never_granted).sum::<u32>()));
        let leases = found.iter().flat_map(|found| &found.leases).copied();
        if let Some(least) = leases.min_by(f64::total_cmp).filter(|_| self.recipe.lease_begins_with_grant) {
            figures.insert("lease_min_ms", least);
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
            rows: PathBuf::new(),
        }
    }
}

/// A holder, and a client that waits for its lock.
struct Pair<'a> {
    fate: Fate,
    name: String,
    is_guarded: bool,
    holder: Worker<'a>,
    next: Worker<'a>,
    cut: Option<Cut>,
    /// When the holder sent its request: its lease begins no sooner.
    asked_at: u64,
    fate_at: u64,
}

impl<'a> Pair<'a> {
    fn start(trials: &Trials<'_>, running: &Running<'a>, fate: Fate, number: usize) -> Result<Pair<'a>> {
        let nodes = addresses(running, trials.recipe, 0)?;
        let cut = match fate {
            Fate::CutOff => Some(Cut::new(&nodes)?),
            Fate::Paused | Fate::Killed => None,
        };
        let through = cut.as_ref().map_or(nodes.clone(), |cut| cut.addresses.clone());
        let start = |log: usize, lock_nodes: Vec<String>| {
            let job = trials.job(lock_nodes, nodes.clone());
            Worker::start(running.children(), trials.folder, "holder", log, &job)
        };
        let (holder, next) = (start(100, through)?, start(101, nodes.clone())?);
        let name = format!("{}{fate:?}-{number}", trials.keys);
        let is_guarded = trials.recipe.is_guarded;
        Ok(Pair { fate, name, is_guarded, holder, next, cut, asked_at: 0, fate_at: 0 })
    }

    fn acquire(&self, within: Duration) -> serde_json::Value {
        json!({"do": "acquire", "name": self.name, "within_s": within.as_secs()})
    }

    /// Writes to the resource that knows nothing of locks and to the guarded one; returns whether each write was
    /// accepted.
    fn write(worker: &mut Worker<'_>, name: &str, is_guarded: bool, who: &str) -> Result<(bool, bool)> {
        let write = json!({"do": "write", "key": format!("{name}-plain"), "value": who});
        let is_accepted = worker.ask(&write)?.done().is_ok();
        if !is_guarded {
            return Ok((is_accepted, true));
        }
        let write = json!({"do": "guarded write", "key": format!("{name}-guarded"), "value": who});
        Ok((is_accepted, worker.ask(&write)?.done().is_ok()))
    }

    /// The holder takes the lock and writes, and the next client begins to wait.
    fn begin(&mut self) -> Result<()> {
        self.holder.wait_until_ready()?;
        self.next.wait_until_ready()?;
        let acquire = self.acquire(FIRST_WITHIN);
        self.asked_at = now_ns();
        self.holder.ask(&acquire)?.done().context("the first acquire")?;
        let accepted = Pair::write(&mut self.holder, &self.name, self.is_guarded, "first")?;
        ensure!(accepted == (true, true), "the holder's writes are refused");
        self.next.order(&self.acquire(TAKEOVER_WITHIN))
    }

    /// Carries out the holder's fate.
    fn strike(&mut self) -> Result<()> {
        self.fate_at = now_ns();
        match (self.fate, &self.cut) {
            (Fate::Paused, _) => self.holder.pause(),
            (Fate::Killed, _) => self.holder.kill(),
            (Fate::CutOff, Some(cut)) => cut.close()?,
            (Fate::CutOff, None) => bail!("there is no relay to cut"),
        }
        Ok(())
    }

    /// The next client gets the lock and writes; then the holder continues where it stopped, and writes too.
    fn end(&mut self, found: &mut Found) -> Result<()> {
        let Ok(second_at) = self.next.answer(TAKEOVER_WITHIN)?.done() else {
            found.never_granted += 1;
            return Ok(());
        };
        found.takeovers.push(second_at.saturating_sub(self.fate_at) as f64 / 1e6);
        found.leases.push(second_at.saturating_sub(self.asked_at) as f64 / 1e6);
        let accepted = Pair::write(&mut self.next, &self.name, self.is_guarded, "second")?;
        ensure!(accepted == (true, true), "the next one's writes are refused");
        if self.fate != Fate::Killed {
            // It holds the lock, as far as it knows.
            self.holder.resume();
            let (plain, guarded) = Pair::write(&mut self.holder, &self.name, self.is_guarded, "first again")?;
            found.stale += u32::from(plain);
            found.stale_guarded += u32::from(guarded && self.is_guarded);
        }
        self.next.ask(&json!({"do": "release"}))?.done().context("the release")?;
        Ok(())
    }
}

/// A relay between the holder and the nodes that can be cut.
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
            let target: SocketAddr =
                address.parse().with_context(|| format!("'{address}' is not an address"))?;
            let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            addresses.push(relay.add_route(Route { from: HOLDER, to: number, listen, target })?.to_string());
        }
        Ok(Cut { relay, nodes: u16::try_from(nodes.len())?, addresses })
    }

    /// Silently drops everything in both directions.
    fn close(&self) -> Result<()> {
        for node in 1..=self.nodes {
            self.relay.set_gate(HOLDER, node, Gate::Drop)?;
            self.relay.set_gate(node, HOLDER, Gate::Drop)?;
        }
        Ok(())
    }
}

/// Whether a client that waits at a node is still notified of a release after many have waited there and given up: one
/// client holds a lock, another at the same node waits for it, the first releases it.
pub(super) fn waits_after_contention(
    running: &Running<'_>,
    recipe: &Recipe,
    folder: &Path,
    keys: &str,
) -> Result<Figures> {
    let nodes = if recipe.asks_all { 1 } else { running.nodes().len() };
    let (mut told_ms, mut never_told) = (Vec::new(), 0);
    for node in 0..nodes {
        let addresses = addresses(running, recipe, node)?;
        let trials = Trials { recipe, folder, keys: keys.to_owned(), count: 1 };
        // No lease runs out in this time, which would hide a missing notification.
        let job = Job {
            ttl_ms: 2 * TAKEOVER_WITHIN.as_millis() as u64,
            ..trials.job(addresses.clone(), addresses)
        };
        let start = |log: usize| Worker::start(running.children(), folder, "holder", log, &job);
        let (mut holder, mut next) = (start(200 + 2 * node)?, start(201 + 2 * node)?);
        holder.wait_until_ready()?;
        next.wait_until_ready()?;
        let acquire = |within: Duration| json!({"do": "acquire", "name": format!("{keys}{node}"), "within_s": within.as_secs()});
        holder.ask(&acquire(FIRST_WITHIN))?.done().context("the first acquire")?;
        next.order(&acquire(NOTIFIED_WITHIN))?;
        std::thread::sleep(WAITED);
        let released_at = now_ns();
        holder.ask(&json!({"do": "release"}))?.done().context("the release")?;
        match next.answer(NOTIFIED_WITHIN)?.done() {
            Ok(at) => told_ms.push(at.saturating_sub(released_at) as f64 / 1e6),
            Err(_) => never_told += 1,
        }
    }
    let mut figures = Figures::from([("never_told", f64::from(never_told))]);
    figures.extend(Spread::of(told_ms).map(|spread| ("told_max_ms", spread.max)));
    Ok(figures)
}

/// Whether a lock still belongs to its holder after every node was killed and restarted, one after another, with the
/// content of its folder: there is a majority at any moment.
pub(super) fn restart_nodes(
    running: &mut Running<'_>,
    recipe: &Recipe,
    folder: &Path,
    keys: &str,
    count: usize,
) -> Result<Figures> {
    let mut two_holders = 0;
    for number in 0..count {
        let name = format!("{keys}restarted-{number}");
        let held = Held::take(running, recipe, folder, &name, RESTART_LEASE_MS)?;
        let nodes = running.nodes().len();
        for node in 0..nodes {
            running.kill(node);
            running.restart(node)?;
            running.wait_until_ready()?;
        }
        two_holders += u32::from(held.is_granted_to_another(running)?);
    }
    Ok(Figures::from([("restarts", count as f64), ("two_holders_restarted", f64::from(two_holders))]))
}

/// Whether a lock still belongs to its holder after the clocks of a majority of the servers were set ahead; or how long
/// it takes until the next client has the lock of a dead holder, after they were set back.
pub(super) fn clocks_jump(
    running: &mut Running<'_>,
    recipe: &Recipe,
    folder: &Path,
    keys: &str,
    clocks: &str,
) -> Result<Figures> {
    let (seconds, lease_ms) = match clocks {
        "ahead" => (AHEAD, RESTART_LEASE_MS),
        "back" => (BACK, recipe.ttl_ms_least),
        other => bail!("clocks cannot jump {other}"),
    };
    let name = format!("{keys}{clocks}");
    let held = Held::take(running, recipe, folder, &name, lease_ms)?;
    let nodes: Vec<_> = running.nodes().cloned().collect();
    for node in &nodes[..nodes.len() / 2 + 1] {
        FakedClock::set(node, seconds)?;
    }
    let mut figures = Figures::from([("jumps", 1.0), ("lease_ms", lease_ms as f64)]);
    if clocks == "ahead" {
        let is_granted = held.is_granted_to_another(running)?;
        figures.insert("two_holders_jumped", f64::from(u8::from(is_granted)));
    } else {
        let asked_at = held.asked_at;
        let granted_at = held.granted_to_another_at(running, TAKEOVER_WITHIN)?;
        let granted_at = granted_at.context("no client got the lock of a dead holder")?;
        figures.insert("takeover_jumped_ms", granted_at.saturating_sub(asked_at) as f64 / 1e6);
    }
    for node in &nodes {
        FakedClock::set(node, 0)?;
    }
    Ok(figures)
}

/// A lock that one client holds and does not release.
struct Held<'t, 'a> {
    trials: Trials<'t>,
    job: Job,
    name: &'t str,
    asked_at: u64,
    /// Kept alive: it renews what its recipe renews.
    _holder: Worker<'a>,
}

impl<'t, 'a> Held<'t, 'a> {
    fn take(
        running: &Running<'a>,
        recipe: &'t Recipe,
        folder: &'t Path,
        name: &'t str,
        lease_ms: u64,
    ) -> Result<Held<'t, 'a>> {
        let nodes = addresses(running, recipe, 0)?;
        let trials = Trials { recipe, folder, keys: String::new(), count: 1 };
        let job = Job { ttl_ms: lease_ms, ..trials.job(nodes.clone(), nodes) };
        let mut holder = Worker::start(running.children(), folder, "holder", 300, &job)?;
        holder.wait_until_ready()?;
        let asked_at = now_ns();
        let acquire = json!({"do": "acquire", "name": name, "within_s": FIRST_WITHIN.as_secs()});
        holder.ask(&acquire)?.done().context("the first acquire")?;
        Ok(Held { trials, job, name, asked_at, _holder: holder })
    }

    /// When another client got the lock, if it did.
    fn granted_to_another_at(&self, running: &Running<'a>, within: Duration) -> Result<Option<u64>> {
        // Reconnects: another node may lead now.
        let nodes = addresses(running, self.trials.recipe, 0)?;
        let job = Job { lock_nodes: nodes.clone(), resource_nodes: nodes, ..self.job.clone() };
        let mut next = Worker::start(running.children(), self.trials.folder, "holder", 301, &job)?;
        next.wait_until_ready()?;
        next.order(&json!({"do": "acquire", "name": self.name, "within_s": within.as_secs()}))?;
        Ok(next.answer(within)?.done().ok())
    }

    /// Whether another client gets it before this lease is over.
    fn is_granted_to_another(&self, running: &Running<'a>) -> Result<bool> {
        let granted_at = self.granted_to_another_at(running, RESTART_TRY)?;
        let lasted_ms = granted_at.unwrap_or_else(now_ns).saturating_sub(self.asked_at) / 1_000_000;
        ensure!(
            lasted_ms < self.job.ttl_ms,
            "the lease of {} ms was over before the trial was ({lasted_ms} ms): the machine is too slow",
            self.job.ttl_ms
        );
        Ok(granted_at.is_some())
    }
}

/// Kills a node while contenders acquire, each its own lock, through one node each.
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
        (other, _) => bail!("there is no node '{other}'"),
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
    ensure!(!loaded.tries.is_empty(), "no client tried to acquire");
    let contenders: Vec<u64> = (0..load.contenders as u64).collect();
    let (gap_ms, stuck) = rows::gaps(&loaded.tries, &contenders, killed_at, loaded.to);
    let mut figures = rows::figures(&loaded.tries, load.contenders, false, killed_at, loaded.to);
    figures.extend(gap_ms.map(|gap_ms| ("gap_ms", gap_ms)));
    figures.insert("stuck", stuck as f64);
    Ok(figures)
}
