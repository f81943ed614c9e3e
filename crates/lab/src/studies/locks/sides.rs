//! The arms: systems, each with the recipe that the paper used and with the best that it offers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::paper::{self, Column};
use super::workers::LockClients;
use crate::harness::Plan;
use crate::network::{Link, Relay};
use crate::report::Colour;
use crate::systems::{
    Consul, Etcd, FakedClock, Missing, NodePlan, Quorate, Redlock, Relayed, System, ZooKeeper,
};

/// Nodes of each system, as in the paper.
pub(super) const NODES: usize = 3;

/// How clients take a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    /// Its name in `worker.py`.
    pub(super) name: &'static str,
    /// Whether each acquire asks all nodes; otherwise it asks one node, which differs between processes.
    pub(super) asks_all: bool,
    /// Whether it, or its system, can refuse a write of a holder whose lock is over.
    pub(super) is_guarded: bool,
    /// Whether the lease begins with the grant, rather than with the last renewal.
    pub(super) lease_begins_with_grant: bool,
    /// The shortest lease that the system grants, in milliseconds; 2 s where it grants shorter ones.
    pub(super) ttl_ms_least: u64,
}

/// The purpose of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Measured everywhere; its grants are on the disk.
    Synced,
    /// Nothing is synced to disk: measured without faults, and when its nodes are restarted.
    Unsynced,
    /// Messages between nodes, and between nodes and clients, take as long as between the paper's zones.
    Zones,
    /// Its servers' clocks can be set; nothing else is tried.
    Clocks,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) colour: Colour,
    pub(super) recipe: Recipe,
    /// The paper's figures, if the paper measured this.
    pub(super) column: Option<Column>,
    /// Determines the points at which it is measured.
    pub(super) kind: Kind,
    pub(super) differs: &'static str,
    pub(super) system: fn(&Plan) -> Box<dyn System>,
}

/// The arms' names, for claims and figures.
pub(super) const QUORATE: &str = "Quorate LOCK";
pub(super) const QUORATE_REDLOCK: &str = "Quorate, redlock-py";
pub(super) const ETCD_PAPER: &str = "etcd, python-etcd3";
pub(super) const ETCD_BEST: &str = "etcd, v3lock";
pub(super) const KAZOO: &str = "ZooKeeper, kazoo";
pub(super) const CONSUL_PAPER: &str = "Consul, consul-lock";
pub(super) const CONSUL_BEST: &str = "Consul, session";
pub(super) const REDIS_PAPER: &str = "Redis, redlock-py";
pub(super) const REDIS_BEST: &str = "Redis, Redlock with jitter";
pub(super) const QUORATE_UNSYNCED: &str = "Quorate LOCK, not synced";
pub(super) const ETCD_PAPER_UNSYNCED: &str = "etcd, python-etcd3, not synced";
pub(super) const KAZOO_UNSYNCED: &str = "ZooKeeper, kazoo, not synced";
pub(super) const REDIS_PAPER_UNSYNCED: &str = "Redis, redlock-py, not synced";
pub(super) const QUORATE_ZONES: &str = "Quorate LOCK, zones";
pub(super) const ETCD_ZONES: &str = "etcd, python-etcd3, zones";
pub(super) const KAZOO_ZONES: &str = "ZooKeeper, kazoo, zones";
pub(super) const REDIS_ZONES: &str = "Redis, redlock-py, not synced, zones";
pub(super) const REDIS_CLOCKS: &str = "Redis, redlock-py, clocks that jump";
pub(super) const REDIS_BEST_UNSYNCED: &str = "Redis, Redlock with jitter, not synced";

const fn recipe(name: &'static str) -> Recipe {
    Recipe { name, asks_all: false, is_guarded: false, lease_begins_with_grant: true, ttl_ms_least: 2_000 }
}

const LOCK: Recipe = Recipe { is_guarded: true, ..recipe("quorate-lock") };
const V3LOCK: Recipe = Recipe { is_guarded: true, lease_begins_with_grant: false, ..recipe("etcd-v3lock") };
const KAZOO_LOCK: Recipe = Recipe { is_guarded: true, lease_begins_with_grant: false, ..recipe("kazoo") };
/// Consul's sessions last at least 10 s.
const CONSUL_LOCK: Recipe =
    Recipe { lease_begins_with_grant: false, ttl_ms_least: 10_000, ..recipe("consul-lock") };
const CONSUL_SESSION: Recipe = Recipe { is_guarded: true, ttl_ms_least: 10_000, ..recipe("consul-session") };
const REDLOCK_PY: Recipe = Recipe { asks_all: true, ..recipe("redlock-py") };
const REDLOCK_JITTER: Recipe = Recipe { asks_all: true, ..recipe("redlock-jitter") };

/// Everything that is compared.
pub(super) static ALL: &[Side] = &[
    Side {
        name: QUORATE,
        colour: Colour::CONSENSUS,
        recipe: LOCK,
        column: None,
        kind: Kind::Synced,
        differs: "",
        system: |plan| quorate(plan, "fsync"),
    },
    Side {
        name: QUORATE_REDLOCK,
        colour: Colour::CONSENSUS.lighter(40).dashed(),
        recipe: recipe("redlock-py-one-node"),
        column: None,
        kind: Kind::Synced,
        differs: "",
        system: |plan| quorate(plan, "fsync"),
    },
    Side {
        name: ETCD_PAPER,
        colour: Colour::ETCD.lighter(35).dashed(),
        recipe: recipe("python-etcd3"),
        column: Some(paper::ETCD),
        kind: Kind::Synced,
        differs: "",
        system: |_| Box::new(Etcd::new(NODES)),
    },
    Side {
        name: ETCD_BEST,
        colour: Colour::ETCD,
        recipe: V3LOCK,
        column: None,
        kind: Kind::Synced,
        differs: "",
        system: |_| Box::new(Etcd::new(NODES)),
    },
    Side {
        name: KAZOO,
        colour: Colour::ZOOKEEPER,
        recipe: KAZOO_LOCK,
        column: Some(paper::ZOOKEEPER),
        kind: Kind::Synced,
        differs: "",
        system: |_| Box::new(ZooKeeper::new(NODES)),
    },
    Side {
        name: CONSUL_PAPER,
        colour: Colour::CONSUL.lighter(35).dashed(),
        recipe: CONSUL_LOCK,
        column: Some(paper::CONSUL),
        kind: Kind::Synced,
        differs: "",
        system: |_| Box::new(Consul::new(NODES)),
    },
    Side {
        name: CONSUL_BEST,
        colour: Colour::CONSUL,
        recipe: CONSUL_SESSION,
        column: None,
        kind: Kind::Synced,
        differs: "",
        system: |_| Box::new(Consul::new(NODES)),
    },
    Side {
        name: REDIS_PAPER,
        colour: Colour::REDIS.dashed(),
        recipe: REDLOCK_PY,
        column: Some(paper::REDIS),
        kind: Kind::Synced,
        differs: "its servers agree on nothing: what a restarted one has lost, nobody brings back",
        system: |_| Box::new(Redlock::new(NODES)),
    },
    Side {
        name: REDIS_BEST,
        colour: Colour::REDIS_ONE,
        recipe: REDLOCK_JITTER,
        column: None,
        kind: Kind::Synced,
        differs: "its servers agree on nothing: what a restarted one has lost, nobody brings back",
        system: |_| Box::new(Redlock::new(NODES)),
    },
    Side {
        name: QUORATE_UNSYNCED,
        colour: Colour::CONSENSUS.lighter(20),
        recipe: LOCK,
        column: None,
        kind: Kind::Unsynced,
        differs: UNSYNCED,
        system: |plan| quorate(plan, "os"),
    },
    Side {
        name: ETCD_PAPER_UNSYNCED,
        colour: Colour::ETCD.lighter(55).dashed(),
        recipe: recipe("python-etcd3"),
        column: Some(paper::ETCD),
        kind: Kind::Unsynced,
        differs: UNSYNCED,
        system: |_| Box::new(Etcd::new(NODES).without_sync()),
    },
    Side {
        name: KAZOO_UNSYNCED,
        colour: Colour::ZOOKEEPER.lighter(30),
        recipe: KAZOO_LOCK,
        column: None,
        kind: Kind::Unsynced,
        differs: UNSYNCED,
        system: |_| Box::new(ZooKeeper::new(NODES).without_sync()),
    },
    Side {
        name: REDIS_PAPER_UNSYNCED,
        colour: Colour::REDIS.lighter(40).dashed(),
        recipe: REDLOCK_PY,
        column: Some(paper::REDIS),
        kind: Kind::Unsynced,
        differs: IN_MEMORY,
        system: |_| Box::new(Redlock::new(NODES).without_sync()),
    },
    Side {
        name: REDIS_BEST_UNSYNCED,
        colour: Colour::REDIS_ONE.lighter(40),
        recipe: REDLOCK_JITTER,
        column: None,
        kind: Kind::Unsynced,
        differs: IN_MEMORY,
        system: |_| Box::new(Redlock::new(NODES).without_sync()),
    },
    Side {
        name: REDIS_CLOCKS,
        colour: Colour::REDIS.lighter(60).dashed(),
        recipe: REDLOCK_PY,
        column: None,
        kind: Kind::Clocks,
        differs: "its servers read a clock that the lab sets (libfaketime)",
        system: |_| Box::new(FakedClock::new(Box::new(Redlock::new(NODES)))),
    },
    Side {
        name: QUORATE_ZONES,
        colour: Colour::CONSENSUS,
        recipe: LOCK,
        column: None,
        kind: Kind::Zones,
        differs: ZONES,
        system: |plan| zones(quorate(plan, "fsync")),
    },
    Side {
        name: ETCD_ZONES,
        colour: Colour::ETCD,
        recipe: recipe("python-etcd3"),
        column: Some(paper::ETCD),
        kind: Kind::Zones,
        differs: ZONES,
        system: |_| zones(Box::new(Etcd::new(NODES))),
    },
    Side {
        name: KAZOO_ZONES,
        colour: Colour::ZOOKEEPER,
        recipe: KAZOO_LOCK,
        column: Some(paper::ZOOKEEPER),
        kind: Kind::Zones,
        differs: ZONES,
        system: |_| zones(Box::new(ZooKeeper::new(NODES))),
    },
    Side {
        name: REDIS_ZONES,
        colour: Colour::REDIS,
        recipe: REDLOCK_PY,
        column: Some(paper::REDIS),
        kind: Kind::Zones,
        differs: ZONES,
        system: |_| zones(Box::new(Redlock::new(NODES).without_sync())),
    },
];

/// The link between two zones: the paper has "sub-milliseconds" between its own.
pub(super) fn between_zones() -> Link {
    Link { delay: Duration::from_micros(250), ..Link::default() }
}

const ZONES: &str = "every message takes 0.25 ms more, between nodes and between them and clients";

fn zones(system: Box<dyn System>) -> Box<dyn System> {
    Box::new(Relayed::new(system, 1).with_link(between_zones()))
}

const UNSYNCED: &str = "durability: a power failure may take what was granted";
const IN_MEMORY: &str = "durability: a server that restarts has forgotten every lock";

fn quorate(plan: &Plan, durability: &str) -> Box<dyn System> {
    let settings = format!("replication=consensus durability={durability} leader=1");
    Box::new(Quorate::new(&plan.quorate, NODES, &settings))
}

/// The arm with this name.
pub(super) fn find(name: &str) -> Option<&'static Side> {
    ALL.iter().find(|side| side.name == name)
}

/// A system together with the clients that it is measured with: it is installed when both are.
pub(super) struct WithClients {
    pub(super) inner: Box<dyn System>,
    pub(super) clients: LockClients,
}

impl System for WithClients {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn version(&self) -> Result<String, Missing> {
        let version = self.inner.version()?;
        let clients = self.clients.version()?;
        Ok(format!("{version} ({clients})"))
    }

    fn acknowledges(&self) -> String {
        self.inner.acknowledges()
    }

    fn durability(&self) -> String {
        self.inner.durability()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        self.inner.plan(folder)
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

    fn reroute(&self, nodes: &mut [NodePlan], relay: &Relay) -> Result<()> {
        self.inner.reroute(nodes, relay)
    }

    fn relay(&self) -> Option<Arc<Relay>> {
        self.inner.relay()
    }
}
