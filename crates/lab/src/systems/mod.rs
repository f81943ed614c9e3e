//! Systems under test: which processes are started, when they are ready, where they listen, and what they cost.
//!
//! A system is a set of processes on this machine. [`System`] defines the processes and how to tell that they serve;
//! [`Running`] starts, kills, pauses, restarts and stops them, the same way for all. To add a system, implement
//! [`System`] and nothing else.

mod children;
mod consul;
mod etcd;
mod faked_clock;
mod paper_store;
mod ports;
mod probe;
mod python;
mod quorate;
mod redis;
mod redlock;
mod relayed;
mod running;
mod usage;
mod zookeeper;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use crate::network::{Node, Relay, Route};

pub use children::{Children, hold};
pub use consul::Consul;
pub use etcd::Etcd;
pub use faked_clock::FakedClock;
pub use paper_store::PaperStore;
pub use ports::free_ports;
pub use probe::{Connection, ask, http_get};
pub use python::PythonEnvironment;
pub use quorate::Quorate;
pub use redis::{Flavour, Redis};
pub use redlock::Redlock;
pub use relayed::Relayed;
pub use running::Running;
pub use usage::{Meter, NodeUsage, Usage};
pub use zookeeper::ZooKeeper;

/// A system that is to be measured.
pub trait System: Send + Sync {
    /// The name shown to people.
    fn name(&self) -> String;

    /// The installed version.
    ///
    /// # Errors
    /// The system is not installed: how to install it.
    fn version(&self) -> Result<String, Missing>;

    /// When a write is acknowledged, in a few words; shown in the report.
    fn acknowledges(&self) -> String;

    /// What an acknowledged write survives, in a few words; shown in the report.
    fn durability(&self) -> String;

    /// Prepares an empty folder and returns the processes to start.
    ///
    /// # Errors
    /// The folder cannot be written, or no port is available.
    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>>;

    /// Whether all nodes serve and have found each other. Polled until it returns true.
    fn is_ready(&self, nodes: &[NodePlan]) -> bool;

    /// The bytes that a node has sent to other nodes so far, if it reports them.
    fn peer_bytes_sent(&self, _node: &NodePlan) -> Option<u64> {
        None
    }

    /// The address at which clients of the system's own protocol connect.
    fn client_address(&self, node: &NodePlan) -> Option<SocketAddr> {
        node.resp.or(node.http)
    }

    /// The current leader, if the system has one and reports it.
    fn leader(&self, _nodes: &[NodePlan]) -> Option<usize> {
        None
    }

    /// Changes a plan so that nodes, numbered from 1, reach each other through a relay. See [`Relayed`].
    ///
    /// # Errors
    /// Its nodes cannot be configured that way.
    fn reroute(&self, _nodes: &mut [NodePlan], _relay: &Relay) -> Result<()> {
        anyhow::bail!("{} cannot be configured to use a relay", self.name())
    }

    /// The relay between the nodes, if there is one.
    fn relay(&self) -> Option<Arc<Relay>> {
        None
    }
}

/// One process of a system.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// The program's path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment variables in addition to the inherited ones.
    pub environment: Vec<(String, String)>,
    /// Its folder: the process runs there, and writes its output to `log` there.
    pub folder: PathBuf,
    /// The address where it speaks the Redis protocol, if it does.
    pub resp: Option<SocketAddr>,
    /// The address where it speaks HTTP, if it does.
    pub http: Option<SocketAddr>,
}

impl NodePlan {
    /// The command line, for people.
    pub fn command(&self) -> String {
        let mut words: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        words.push(quoted(&self.program.to_string_lossy()));
        words.extend(self.arguments.iter().map(|argument| quoted(argument)));
        words.join(" ")
    }
}

/// A word, quoted for a shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A system that is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// The command that installs it.
    pub install: String,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}; install it with: {}", self.what, self.install)
    }
}

/// Opens a route through a relay from one node to another's address; returns the port to dial.
fn route(relay: &Relay, from: usize, to: usize, target: SocketAddr) -> Result<u16> {
    let (from, to) = (Node::try_from(from)?, Node::try_from(to)?);
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(relay.add_route(Route { from, to, listen, target })?.port())
}

/// The path of a program, searched for as a shell does.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let plan = NodePlan {
            program: "/usr/bin/redis-server".into(),
            arguments: vec!["--save".into(), String::new(), "it's".into()],
            environment: vec![("PEERS".into(), "a b".into())],
            folder: "/".into(),
            resp: None,
            http: None,
        };
        assert_eq!(plan.command(), "PEERS='a b' /usr/bin/redis-server --save '' 'it'\\''s'");
    }

    #[test]
    fn a_missing_system_says_how_to_install_it() {
        let missing = Missing { what: "no redis-server".into(), install: "apt-get install redis".into() };
        assert_eq!(missing.to_string(), "no redis-server; install it with: apt-get install redis");
    }
}
