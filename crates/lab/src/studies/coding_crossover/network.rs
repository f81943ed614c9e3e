//! The links between the nodes: slowed down for a measurement, drained after it, and their traffic measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::NODES;
use crate::harness::{Arena, Figures};
use crate::network::{Bandwidth, Interface, Link, Node, Relay};
use crate::systems::http_get;

/// In this time each node sends one round of heartbeats and renews its lease once.
const WINDOW: Duration = Duration::from_millis(400);

/// All idle nodes together send less than this, in bytes per second.
const QUIET_BYTES_PER_S: f64 = 100_000.0;

/// A shorter window, before a measurement: all heartbeats may fall into it.
const GLANCE: Duration = Duration::from_millis(100);
const GLANCE_BYTES_PER_S: f64 = 500_000.0;

/// How long to wait for the nodes to become quiet.
const QUIET_WITHIN: Duration = Duration::from_secs(30);

/// The relay between the nodes, with limited links.
pub(super) struct Shaped {
    relay: Arc<Relay>,
    begun: Instant,
}

impl Shaped {
    /// Waits until nothing is in flight, then limits each node's interface to `mbit` Mbit/s, in each direction.
    pub(super) fn by(arena: &mut Arena<'_>, mbit: u64) -> Result<Shaped> {
        let relay = arena.system()?.system().relay().context("there is no relay to shape the links")?;
        let mut shaped = Shaped { relay, begun: Instant::now() };
        shaped.empty(GLANCE, GLANCE_BYTES_PER_S)?;
        shaped.set(Some(Bandwidth::megabits(mbit)))?;
        shaped.begun = Instant::now();
        Ok(shaped)
    }

    /// Delays every message between nodes from now on, until the limits are removed.
    pub(super) fn delay(&self, delay: Duration) -> Result<()> {
        for (from, to) in pairs() {
            self.relay.set_link(from, to, Link { delay, ..Link::default() })?;
        }
        Ok(())
    }

    /// How long the limits have been in effect.
    pub(super) fn since(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Removes the limits and lets bytes in flight arrive. Returns what idle nodes send.
    pub(super) fn drain(&self) -> Result<Idle> {
        self.empty(WINDOW, QUIET_BYTES_PER_S)
    }

    fn set(&self, bandwidth: Option<Bandwidth>) -> Result<()> {
        for node in 1..=NODES as Node {
            self.relay.set_interface(node, Interface { up: bandwidth, down: bandwidth })?;
        }
        if bandwidth.is_none() {
            self.delay(Duration::ZERO)?;
        }
        Ok(())
    }

    /// Removes the limits and waits until less than `bytes_per_s_max` is sent in a window of time.
    fn empty(&self, window: Duration, bytes_per_s_max: f64) -> Result<Idle> {
        self.set(None)?;
        let by = Instant::now() + QUIET_WITHIN;
        let mut before = carried(&self.relay)?;
        loop {
            let opened = Instant::now();
            std::thread::sleep(window);
            let after = carried(&self.relay)?;
            let seconds = opened.elapsed().as_secs_f64();
            let rate = |(link, bytes): (&(Node, Node), &u64)| {
                (*link, (bytes - before.get(link).copied().unwrap_or(0)) as f64 / seconds)
            };
            let rates: BTreeMap<(Node, Node), f64> = after.iter().map(rate).collect();
            if rates.values().sum::<f64>() < bytes_per_s_max {
                return Ok(Idle { rates });
            }
            ensure!(Instant::now() < by, "the nodes keep sending although no client asks for anything");
            before = after;
        }
    }
}

impl Drop for Shaped {
    fn drop(&mut self) {
        // If the relay has ended, there is nothing to undo.
        let _ = self.set(None);
    }
}

fn pairs() -> impl Iterator<Item = (Node, Node)> {
    let nodes = 1..=NODES as Node;
    nodes
        .clone()
        .flat_map(move |from| nodes.clone().map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
}

fn carried(relay: &Relay) -> Result<BTreeMap<(Node, Node), u64>> {
    Ok(relay.traffic()?.into_iter().map(|link| ((link.from, link.to), link.traffic.bytes)).collect())
}

/// What idle nodes send over each link, in bytes per second.
pub(super) struct Idle {
    rates: BTreeMap<(Node, Node), f64>,
}

/// The bytes carried by the links, and the size of the logs.
pub(super) struct Ledger {
    links: BTreeMap<(Node, Node), f64>,
    /// Of all nodes; `None` when one does not report it.
    log_bytes: Option<f64>,
}

impl Ledger {
    /// Reads the current values.
    pub(super) fn look(arena: &mut Arena<'_>) -> Result<Ledger> {
        let system = arena.system()?;
        let relay = system.system().relay().context("there is no relay to ask")?;
        let links = carried(&relay)?.into_iter().map(|(link, bytes)| (link, bytes as f64)).collect();
        let log_bytes = system.http().into_iter().map(|address| {
            let (_, health) = http_get(address, "/health").ok()?;
            serde_json::from_str::<serde_json::Value>(&health).ok()?["journal_bytes"].as_f64()
        });
        Ok(Ledger { links, log_bytes: log_bytes.sum() })
    }

    /// The growth since `before`.
    pub(super) fn since(&self, before: &Ledger) -> Ledger {
        let more = |(link, bytes): (&(Node, Node), &f64)| {
            (*link, bytes - before.links.get(link).copied().unwrap_or(0.0))
        };
        let log_bytes = self.log_bytes.zip(before.log_bytes).map(|(now, before)| now - before);
        Ledger { links: self.links.iter().map(more).collect(), log_bytes }
    }

    /// Subtracts what idle nodes would have sent in that time.
    pub(super) fn without(mut self, idle: &Idle, elapsed: Duration) -> Ledger {
        for (link, bytes) in &mut self.links {
            let rate = idle.rates.get(link).copied().unwrap_or(0.0);
            *bytes = (*bytes - rate * elapsed.as_secs_f64()).max(0.0);
        }
        self
    }

    /// The bytes sent by the busiest node.
    pub(super) fn sent_most(&self) -> f64 {
        let mut sent = BTreeMap::<Node, f64>::new();
        for ((from, _), bytes) in &self.links {
            *sent.entry(*from).or_default() += bytes;
        }
        sent.into_values().fold(0.0, f64::max)
    }

    /// The bytes received by a node.
    pub(super) fn received_by(&self, node: Node) -> f64 {
        self.links.iter().filter(|((_, to), _)| *to == node).map(|(_, bytes)| bytes).sum()
    }

    /// Adds the figures per byte of the values that were written or read.
    pub(super) fn add_figures(&self, figures: &mut Figures, value_bytes: u64) {
        let per_value = |bytes: f64| bytes / value_bytes as f64;
        figures.insert("wire_per_value", per_value(self.links.values().sum()));
        figures.insert("sent_per_value", per_value(self.sent_most()));
        // A log that was truncated in between gives no figure.
        if let Some(bytes) = self.log_bytes.filter(|bytes| *bytes >= 0.0) {
            figures.insert("log_per_value", per_value(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(links: &[(Node, Node, f64)]) -> Ledger {
        let links = links.iter().map(|(from, to, bytes)| ((*from, *to), *bytes)).collect();
        Ledger { links, log_bytes: Some(1000.0) }
    }

    #[test]
    fn carried_bytes_are_reported_without_those_of_idle_nodes() {
        let before = ledger(&[(1, 2, 100.0)]);
        let after = ledger(&[(1, 2, 700.0), (1, 3, 500.0), (2, 1, 40.0)]);
        let rates = [((1, 2), 50.0), ((2, 1), 50.0)].into_iter().collect();
        let moved = after.since(&before).without(&Idle { rates }, Duration::from_secs(2));
        assert_eq!((moved.sent_most(), moved.received_by(3)), (1000.0, 500.0));
        assert_eq!(moved.received_by(1), 0.0, "less than nothing is nothing");
        let mut figures = Figures::new();
        moved.add_figures(&mut figures, 500);
        assert_eq!((figures["wire_per_value"], figures["log_per_value"]), (2.0, 0.0));
    }
}
