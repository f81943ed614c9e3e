//! Systems under test: what is started, when it is ready, where it listens, and what it costs.
//!
//! A system is some processes on this machine. [`System`] says which ones and how to tell that they serve;
//! [`Running`] starts, kills, pauses, restarts and stops them, the same way for all. Whoever adds a system writes one
//! implementation of [`System`] and nothing else.

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
    /// What people call it.
    fn name(&self) -> String;

    /// The version that is installed.
    ///
    /// # Errors
    /// It is not installed: how to come by it.
    fn version(&self) -> Result<String, Missing>;

    /// When a write is acknowledged, in a few words; the report shows it.
    fn acknowledges(&self) -> String;

    /// What an acknowledged write outlives, in a few words; the report shows it.
    fn durability(&self) -> String;

    /// Prepares an empty folder and says which processes to start.
    ///
    /// # Errors
    /// The folder cannot be written, or no port can be had.
    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>>;

    /// Whether all nodes serve and have found each other. Asked again and again until it is so.
    fn is_ready(&self, nodes: &[NodePlan]) -> bool;

    /// The bytes that a node has sent to other nodes so far, where it tells.
    fn peer_bytes_sent(&self, _node: &NodePlan) -> Option<u64> {
        None
    }

    /// Where clients of the system's own protocol connect.
    fn client_address(&self, node: &NodePlan) -> Option<SocketAddr> {
        node.resp.or(node.http)
    }

    /// Which node leads at this moment, where there is such a node and the system tells.
    fn leader(&self, _nodes: &[NodePlan]) -> Option<usize> {
        None
    }

    /// Changes a plan so that nodes, numbered from 1, reach each other through a relay. See [`Relayed`].
    ///
    /// # Errors
    /// Its nodes cannot be told to.
    fn reroute(&self, _nodes: &mut [NodePlan], _relay: &Relay) -> Result<()> {
        anyhow::bail!("{} cannot be told to use a relay", self.name())
    }

    /// The relay between the nodes, where there is one.
    fn relay(&self) -> Option<Arc<Relay>> {
        None
    }
}

/// One process of a system.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables of its environment beside those that are inherited.
    pub environment: Vec<(String, String)>,
    /// Its folder: it runs there, and its output goes to `log` there.
    pub folder: PathBuf,
    /// Where it speaks the Redis protocol.
    pub resp: Option<SocketAddr>,
    /// Where it speaks HTTP.
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

/// A word as a shell would need it.
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
    /// What is not there.
    pub what: String,
    /// The command that installs it.
    pub install: String,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}; install it with: {}", self.what, self.install)
    }
}

/// A way through a relay from one node to another one's address; tells the port to dial.
fn route(relay: &Relay, from: usize, to: usize, target: SocketAddr) -> Result<u16> {
    let (from, to) = (Node::try_from(from)?, Node::try_from(to)?);
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(relay.add_route(Route { from, to, listen, target })?.port())
}

/// The file of a program, looked for as a shell does.
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
