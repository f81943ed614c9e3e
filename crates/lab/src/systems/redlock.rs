//! Redlock's nodes: Redis servers that know nothing of each other.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};

use super::{Flavour, Missing, NodePlan, Redis, System, ask, find_program, free_ports};
use crate::network::Relay;

/// Standalone servers; a client contacts each of them.
#[derive(Clone, Debug)]
pub struct Redlock {
    nodes: usize,
    syncs: bool,
}

impl Redlock {
    /// Creates `nodes` servers, each of which syncs its append-only file before it answers.
    pub fn new(nodes: usize) -> Redlock {
        Redlock { nodes, syncs: true }
    }

    /// Returns the servers with everything in memory, as in Redlock's documentation.
    pub fn without_sync(self) -> Redlock {
        Redlock { syncs: false, ..self }
    }
}

impl System for Redlock {
    fn name(&self) -> String {
        "Redis".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        Redis::new(Flavour::Redis, 0, 0).version()
    }

    fn acknowledges(&self) -> String {
        format!("{} of {} servers that know nothing of each other have it", self.nodes / 2 + 1, self.nodes)
    }

    fn durability(&self) -> String {
        if self.syncs { "on the disk (appendfsync always)" } else { "memory" }.to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let program = find_program("redis-server").context("there is no redis-server")?;
        let mut plans = Vec::new();
        for (index, port) in free_ports(self.nodes)?.into_iter().enumerate() {
            let node = folder.join(format!("node-{}", index + 1));
            fs::create_dir_all(&node).with_context(|| format!("cannot make {}", node.display()))?;
            let port_text = port.to_string();
            let mut words = vec!["--port", &port_text, "--bind", "127.0.0.1", "--save", ""];
            match self.syncs {
                true => words.extend(["--appendonly", "yes", "--appendfsync", "always"]),
                false => words.extend(["--appendonly", "no"]),
            }
            plans.push(NodePlan {
                program: program.clone(),
                arguments: words.into_iter().map(str::to_owned).collect(),
                environment: Vec::new(),
                folder: node,
                resp: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
                http: None,
            });
        }
        Ok(plans)
    }

    /// The nodes do not talk to each other at all.
    fn reroute(&self, _nodes: &mut [NodePlan], _relay: &Relay) -> Result<()> {
        Ok(())
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        nodes.iter().filter_map(|node| node.resp).all(|address| ask(address, &["PING"]).is_ok())
    }
}
