//! etcd: a cluster that decides by Raft and syncs its log to disk.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Missing, NodePlan, System, find_program, free_ports, http_get, route};
use crate::network::Relay;

const PROGRAM: &str = "etcd";

const NO_SYNC: &str = "--unsafe-no-fsync";

/// A cluster of etcd.
#[derive(Clone, Debug)]
pub struct Etcd {
    nodes: usize,
    syncs: bool,
}

impl Etcd {
    /// Creates a cluster of `nodes` nodes.
    pub fn new(nodes: usize) -> Etcd {
        Etcd { nodes, syncs: true }
    }

    /// Returns the cluster without `fsync` of log and data, which etcd supports from 3.5 on.
    pub fn without_sync(self) -> Etcd {
        Etcd { syncs: false, ..self }
    }
}

impl System for Etcd {
    fn name(&self) -> String {
        "etcd".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        let missing = || Missing {
            what: format!("there is no {PROGRAM} on the PATH"),
            install: "apt-get install etcd-server".to_owned(),
        };
        let program = find_program(PROGRAM).ok_or_else(missing)?;
        let output = Command::new(&program).arg("--version").output().map_err(|_| missing())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        let version = version.map(str::to_owned).ok_or_else(missing)?;
        if !self.syncs && !has_option(&program, NO_SYNC) {
            return Err(Missing {
                what: format!("etcd {version} has no {NO_SYNC}"),
                install: "a release from 3.5 on, from github.com/etcd-io/etcd, first on the PATH".to_owned(),
            });
        }
        Ok(version)
    }

    fn acknowledges(&self) -> String {
        format!("{} of {} nodes have it (Raft)", self.nodes / 2 + 1, self.nodes)
    }

    fn durability(&self) -> String {
        if self.syncs { "on the disk (fsync)" } else { "in the system's file cache" }.to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let ports = free_ports(2 * self.nodes)?;
        let program = find_program(PROGRAM).with_context(|| format!("there is no {PROGRAM}"))?;
        let peer = |index: usize| format!("http://127.0.0.1:{}", ports[2 * index + 1]);
        let cluster: Vec<String> =
            (0..self.nodes).map(|index| format!("node-{}={}", index + 1, peer(index))).collect();
        let cluster = cluster.join(",");
        let mut plans = Vec::new();
        for index in 0..self.nodes {
            let name = format!("node-{}", index + 1);
            let node = folder.join(&name);
            fs::create_dir_all(&node).with_context(|| format!("cannot make {}", node.display()))?;
            let (port, peer) = (ports[2 * index], peer(index));
            let client = format!("http://127.0.0.1:{port}");
            let words = [
                ["--name", &name],
                ["--data-dir", "data"],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &cluster],
                ["--initial-cluster-state", "new"],
                ["--logger", "zap"],
                ["--log-level", "warn"],
            ];
            let words = words.into_iter().flatten().chain((!self.syncs).then_some(NO_SYNC));
            plans.push(NodePlan {
                program: program.clone(),
                arguments: words.map(str::to_owned).collect(),
                environment: Vec::new(),
                folder: node,
                resp: None,
                http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            });
        }
        Ok(plans)
    }

    /// All nodes reach a node at the one address that it advertises, which is the relay's: an etcd cluster has a single
    /// list of its members.
    fn reroute(&self, nodes: &mut [NodePlan], relay: &Relay) -> Result<()> {
        let others = nodes.len() + 1;
        let value = |node: &NodePlan, name: &str| {
            let at = node.arguments.iter().position(|word| word == name);
            at.map(|at| node.arguments[at + 1].clone()).with_context(|| format!("etcd has no {name}"))
        };
        let mut moved = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let listens = value(node, "--listen-peer-urls")?;
            let target = listens.trim_start_matches("http://").parse()?;
            moved.push((listens, format!("http://127.0.0.1:{}", route(relay, others, index + 1, target)?)));
        }
        for node in nodes {
            for name in ["--initial-advertise-peer-urls", "--initial-cluster"] {
                let text = moved.iter().fold(value(node, name)?, |text, (from, to)| text.replace(from, to));
                let at = node.arguments.iter().position(|word| word == name);
                node.arguments[at.unwrap_or(0) + 1] = text;
            }
        }
        Ok(())
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        let mut addresses = nodes.iter().filter_map(|node| node.http);
        addresses.all(|address| http_get(address, "/health").is_ok_and(|(status, _)| status == 200))
    }

    fn leader(&self, nodes: &[NodePlan]) -> Option<usize> {
        nodes.iter().position(|node| {
            let metrics = node.http.and_then(|address| http_get(address, "/metrics").ok());
            metrics.is_some_and(|(_, text)| text.lines().any(|line| line == "etcd_server_is_leader 1"))
        })
    }
}

/// Whether a program's help mentions an option.
fn has_option(program: &Path, option: &str) -> bool {
    let Ok(output) = Command::new(program).arg("--help").output() else { return false };
    [output.stdout, output.stderr].iter().any(|text| String::from_utf8_lossy(text).contains(option))
}
