//! Redis and Valkey: one master and its replicas, nothing on disk.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Missing, NodePlan, System, ask, find_program, free_ports, route};
use crate::network::Relay;

/// The server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `redis-server`.
    Redis,
    /// `valkey-server`.
    Valkey,
}

impl Flavour {
    fn program(self) -> &'static str {
        match self {
            Flavour::Redis => "redis-server",
            Flavour::Valkey => "valkey-server",
        }
    }
}

/// A master and its replicas. The first node is the master.
#[derive(Clone, Debug)]
pub struct Redis {
    flavour: Flavour,
    replicas: usize,
    wait: usize,
    arguments: Vec<String>,
    acknowledges: Option<String>,
}

impl Redis {
    /// Creates a master with `replicas` replicas, of which a client awaits `wait` with WAIT (the load generator
    /// sends it: this is only its description).
    pub fn new(flavour: Flavour, replicas: usize, wait: usize) -> Redis {
        Redis { flavour, replicas, wait, arguments: Vec::new(), acknowledges: None }
    }

    /// Returns the system with a description of when writes are acknowledged, for studies that decide that
    /// themselves.
    #[must_use]
    pub fn acknowledging(self, words: &str) -> Redis {
        Redis { acknowledges: Some(words.to_owned()), ..self }
    }

    /// Returns the system with additional arguments for every server.
    pub fn with(mut self, arguments: &[&str]) -> Redis {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }
}

impl System for Redis {
    fn name(&self) -> String {
        match self.flavour {
            Flavour::Redis => "Redis",
            Flavour::Valkey => "Valkey",
        }
        .to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        let name = self.flavour.program();
        let missing = || Missing {
            what: format!("there is no {name} on the PATH"),
            install: format!("apt-get install {name}"),
        };
        let program = find_program(name).ok_or_else(missing)?;
        let output = Command::new(program).arg("--version").output().map_err(|_| missing())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
        version.map(str::to_owned).ok_or_else(missing)
    }

    fn acknowledges(&self) -> String {
        if let Some(words) = &self.acknowledges {
            return words.clone();
        }
        match self.wait {
            0 => "the master has it".to_owned(),
            wait => format!("the master and {wait} more have it (WAIT {wait})"),
        }
    }

    fn durability(&self) -> String {
        let has = |word: &str| self.arguments.iter().any(|argument| argument == word);
        match (has("--appendonly"), has("always")) {
            (true, true) => "on the master's disk (fsync)",
            (true, false) => "append-only file, synced once a second",
            (false, _) => "memory",
        }
        .to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let ports = free_ports(1 + self.replicas)?;
        let name = self.flavour.program();
        let program = find_program(name).with_context(|| format!("there is no {name}"))?;
        let mut plans = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let node = folder.join(format!("node-{}", index + 1));
            fs::create_dir_all(&node).with_context(|| format!("cannot make {}", node.display()))?;
            let port_text = port.to_string();
            let mut words = vec!["--port", &port_text, "--bind", "127.0.0.1", "--save", ""];
            if !self.arguments.iter().any(|argument| argument == "--appendonly") {
                words.extend(["--appendonly", "no"]);
            }
            // The master does not wait for more replicas to ask before it sends a snapshot.
            words.extend(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
            let mut arguments: Vec<String> = words.into_iter().map(str::to_owned).collect();
            if index > 0 {
                arguments.extend(["--replicaof".to_owned(), "127.0.0.1".to_owned(), ports[0].to_string()]);
            }
            arguments.extend(self.arguments.iter().cloned());
            plans.push(NodePlan {
                program: program.clone(),
                arguments,
                environment: Vec::new(),
                folder: node,
                resp: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))),
                http: None,
            });
        }
        Ok(plans)
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        let mut addresses = nodes.iter().filter_map(|node| node.resp);
        let Some(master) = addresses.next() else { return false };
        let is_up = |address| ask(address, &["INFO", "replication"]).ok();
        let Some(info) = is_up(master) else { return false };
        let online = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
        online.count() == self.replicas
            && addresses
                .all(|replica| is_up(replica).is_some_and(|info| info.contains("master_link_status:up")))
    }

    fn reroute(&self, nodes: &mut [NodePlan], relay: &Relay) -> Result<()> {
        let Some((master, replicas)) = nodes.split_first_mut() else { return Ok(()) };
        let target = master.resp.context("the master has no address")?;
        for (index, replica) in replicas.iter_mut().enumerate() {
            let port = route(relay, index + 2, 1, target)?;
            let words = &mut replica.arguments;
            let at = words.iter().position(|word| word == "--replicaof").context("it is not a replica")?;
            words[at + 2] = port.to_string();
        }
        Ok(())
    }

    fn peer_bytes_sent(&self, node: &NodePlan) -> Option<u64> {
        let info = ask(node.resp?, &["INFO", "stats"]).ok()?;
        info.lines().find_map(|line| line.strip_prefix("total_net_repl_output_bytes:"))?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_reach_their_master_through_the_relay_and_the_master_dials_no_node() {
        let node = |arguments: &[&str]| NodePlan {
            program: "redis-server".into(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            environment: Vec::new(),
            folder: "/".into(),
            resp: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 6379))),
            http: None,
        };
        let mut nodes =
            [node(&["--port", "6379"]), node(&["--replicaof", "127.0.0.1", "6379", "--save", ""])];
        let relay = Relay::start(1).unwrap();
        Redis::new(Flavour::Redis, 1, 0).reroute(&mut nodes, &relay).unwrap();
        assert_eq!(nodes[0].arguments, ["--port", "6379"]);
        assert_eq!(nodes[1].arguments[..2], ["--replicaof", "127.0.0.1"]);
        assert!(nodes[1].arguments[2].parse::<u16>().is_ok_and(|port| port != 6379));
        assert_eq!(nodes[1].arguments[3..], ["--save", ""]);
    }
}
