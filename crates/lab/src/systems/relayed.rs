//! A system whose nodes reach each other through the lab's relay, so that a study can shape and cut their links.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::{Missing, NodePlan, System};
use crate::network::{Link, Relay};

/// Another system, with a relay between its nodes. Clients reach the nodes directly.
pub struct Relayed {
    inner: Box<dyn System>,
    seed: u64,
    link: Link,
    relay: Mutex<Option<Arc<Relay>>>,
}

impl Relayed {
    /// Puts a relay with a seed between the nodes of a system. Its links carry as fast as they can until they
    /// are changed through [`System::relay`]; the relay's nodes are numbered from 1.
    pub fn new(inner: Box<dyn System>, seed: u64) -> Relayed {
        Relayed { inner, seed, link: Link::default(), relay: Mutex::new(None) }
    }

    /// Returns the system with every link between two nodes set to `link` from the start.
    #[must_use]
    pub fn with_link(self, link: Link) -> Relayed {
        Relayed { link, ..self }
    }
}

impl System for Relayed {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn version(&self) -> Result<String, Missing> {
        self.inner.version()
    }

    fn acknowledges(&self) -> String {
        self.inner.acknowledges()
    }

    fn durability(&self) -> String {
        self.inner.durability()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let mut plans = self.inner.plan(folder)?;
        let relay = Relay::start(self.seed)?;
        self.inner.reroute(&mut plans, &relay)?;
        for link in relay.traffic()? {
            relay.set_link(link.from, link.to, self.link)?;
        }
        *self.relay.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(relay));
        Ok(plans)
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        self.inner.is_ready(nodes)
    }

    fn peer_bytes_sent(&self, node: &NodePlan) -> Option<u64> {
        self.inner.peer_bytes_sent(node)
    }

    fn client_address(&self, node: &NodePlan) -> Option<SocketAddr> {
        self.inner.client_address(node)
    }

    fn leader(&self, nodes: &[NodePlan]) -> Option<usize> {
        self.inner.leader(nodes)
    }

    fn relay(&self) -> Option<Arc<Relay>> {
        self.relay.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::systems::Quorate;

    #[test]
    fn links_have_their_settings_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let quorate = Quorate::new(Path::new("quorate"), 2, "replication=abd");
        let link = Link { delay: Duration::from_millis(30), ..Link::default() };
        let system = Relayed::new(Box::new(quorate), 1).with_link(link);
        let nodes = system.plan(folder.path()).unwrap();
        // The second node's configuration: where the first one listens, and where it is dialled.
        let text = fs::read_to_string(nodes[1].folder.join("quorate.toml")).unwrap();
        let port = |name: &str| -> u16 {
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port("peer_port = "))).unwrap();
        let mut dialling = TcpStream::connect((Ipv4Addr::LOCALHOST, port("port = "))).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut dialling, &mut accepted];
            let sent_at = Instant::now();
            ends[from].write_all(b"x").unwrap();
            ends[to].read_exact(&mut [0]).unwrap();
            assert!(sent_at.elapsed() >= link.delay, "{:?} one way", sent_at.elapsed());
        }
    }

    #[test]
    fn each_node_of_quorate_dials_those_before_it_through_the_relay() {
        let folder = tempfile::tempdir().unwrap();
        let system =
            Relayed::new(Box::new(Quorate::new(Path::new("quorate"), 3, "replication=consensus")), 1);
        let plans = system.plan(folder.path()).unwrap();
        let dialled: Vec<usize> = plans
            .iter()
            .map(|plan| {
                fs::read_to_string(plan.folder.join("quorate.toml")).unwrap().matches("[[dial]]").count()
            })
            .collect();
        assert_eq!(dialled, [0, 1, 2]);
        let relay = system.relay().unwrap();
        let links: Vec<(u16, u16)> = relay.traffic().unwrap().iter().map(|it| (it.from, it.to)).collect();
        assert_eq!(links, [(2, 1), (1, 2), (3, 1), (1, 3), (3, 2), (2, 3)]);
    }
}
