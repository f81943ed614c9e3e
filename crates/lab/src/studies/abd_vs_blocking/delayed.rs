//! A cluster whose nodes are far from each other: between them lies the lab's relay, which holds everything up.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::network::{Link, Relay, Route};
use crate::systems::{Missing, NodePlan, Quorate, System};

/// The relay draws nothing here: a delay without jitter is the same each time.
const RELAY_SEED: u64 = 1;

/// Quorate with a delay on each link between two nodes. Clients are as near as ever.
pub(super) struct Delayed {
    quorate: Quorate,
    /// One way.
    delay: Duration,
    /// That of the last start.
    relay: Mutex<Option<Relay>>,
}

impl Delayed {
    pub(super) fn new(quorate: Quorate, delay: Duration) -> Delayed {
        Delayed { quorate, delay, relay: Mutex::new(None) }
    }

    /// Opens a route for each connection between nodes, and tells each node where it is to dial.
    fn shape(&self, plans: &[NodePlan]) -> Result<Relay> {
        let ports = peer_ports(&plans[0].folder)?;
        ensure!(ports.len() == plans.len(), "{} nodes have {} peer ports", plans.len(), ports.len());
        let relay = Relay::start(RELAY_SEED).context("cannot start a relay")?;
        let link = Link { delay: self.delay, ..Link::default() };
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        for (index, plan) in plans.iter().enumerate() {
            let mut dial = String::new();
            // Of two nodes the one with the higher id dials.
            for (other, port) in ports.iter().enumerate().take(index) {
                let (from, to) = (index as u16 + 1, other as u16 + 1);
                relay.set_link(from, to, link)?;
                relay.set_link(to, from, link)?;
                let route = Route { from, to, listen: local(0), target: local(*port) };
                let listen = relay.add_route(route)?;
                writeln!(
                    dial,
                    "\n[[dial]]\nnode = {}\nhost = \"{}\"\nport = {}",
                    other + 1,
                    listen.ip(),
                    listen.port()
                )?;
            }
            append(&plan.folder.join("quorate.toml"), &dial)?;
        }
        Ok(relay)
    }
}

/// The peer ports of all nodes, in their order, from the configuration of one.
fn peer_ports(folder: &Path) -> Result<Vec<u16>> {
    let file = folder.join("quorate.toml");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let ports = text.lines().filter_map(|line| line.strip_prefix("peer_port = "));
    ports.map(|port| port.parse().with_context(|| format!("'{port}' is no port"))).collect()
}

fn append(file: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;

    let append = || File::options().append(true).open(file)?.write_all(text.as_bytes());
    append().with_context(|| format!("cannot write {}", file.display()))
}

impl System for Delayed {
    fn name(&self) -> String {
        self.quorate.name()
    }

    fn version(&self) -> Result<String, Missing> {
        self.quorate.version()
    }

    fn acknowledges(&self) -> String {
        self.quorate.acknowledges()
    }

    fn durability(&self) -> String {
        self.quorate.durability()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let plans = self.quorate.plan(folder)?;
        let relay = self.shape(&plans)?;
        *self.relay.lock().unwrap_or_else(PoisonError::into_inner) = Some(relay);
        Ok(plans)
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        self.quorate.is_ready(nodes)
    }

    fn peer_bytes_sent(&self, node: &NodePlan) -> Option<u64> {
        self.quorate.peer_bytes_sent(node)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn every_node_dials_those_before_it_through_the_relay() {
        let folder = tempfile::tempdir().unwrap();
        let quorate = Quorate::new(&PathBuf::from("quorate"), 3, "replication=abd");
        let system = Delayed::new(quorate, Duration::from_millis(1));
        let plans = system.plan(folder.path()).unwrap();
        let dials = |index: usize| {
            let text = fs::read_to_string(plans[index].folder.join("quorate.toml")).unwrap();
            let ports = peer_ports(&plans[index].folder).unwrap();
            let dialled = text.split("[[dial]]").skip(1).map(|section| {
                let value = |name: &str| {
                    section.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u16>().unwrap()
                };
                assert!(!ports.contains(&value("port = ")), "the relay's port, not the node's");
                value("node = ")
            });
            dialled.collect::<Vec<_>>()
        };
        assert_eq!([dials(0), dials(1), dials(2)], [vec![], vec![1], vec![1, 2]]);
    }
}
