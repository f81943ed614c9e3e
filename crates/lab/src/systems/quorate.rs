//! Quorate itself: N nodes of this very program with one keyspace for all keys.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Missing, NodePlan, System, free_ports, http_get, route};
use crate::network::Relay;

/// A cluster of Quorate.
#[derive(Clone, Debug)]
pub struct Quorate {
    program: PathBuf,
    nodes: usize,
    settings: Vec<(String, String)>,
    acknowledges: Option<String>,
    limits: Vec<(String, u64)>,
}

impl Quorate {
    /// Creates a cluster of `nodes` nodes of a program; all keys are in one keyspace with these settings, such as
    /// `replication=leader-follower acks=all`. Settings and values are as in docs/reference/configuration.md.
    pub fn new(program: &Path, nodes: usize, settings: &str) -> Quorate {
        let pairs = settings.split_whitespace().filter_map(|pair| pair.split_once('='));
        let settings = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Quorate { program: program.to_owned(), nodes, settings, acknowledges: None, limits: Vec::new() }
    }

    /// Returns the cluster with a description of when writes are acknowledged, for studies whose points have their
    /// own keyspaces.
    #[must_use]
    pub fn acknowledging(self, words: &str) -> Quorate {
        Quorate { acknowledges: Some(words.to_owned()), ..self }
    }

    /// Returns the cluster with limits other than the defaults, as in docs/reference/configuration.md.
    #[must_use]
    pub fn with_limits(mut self, limits: &[(&str, u64)]) -> Quorate {
        self.limits.extend(limits.iter().map(|(name, value)| ((*name).to_owned(), *value)));
        self
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(setting, _)| setting == name).map(|(_, value)| value.as_str())
    }

    fn replication(&self) -> &str {
        self.setting("replication").unwrap_or("consensus")
    }

    /// The configuration file of one node, as in docs/reference/configuration.md.
    fn configuration(&self, id: usize, ports: &[[u16; 3]], secret: &str) -> String {
        let mut text = format!(
            "node = {id}\ncluster = \"lab\"\nsecret = \"{secret}\"\ndata = \".\"\nbind = \"127.0.0.1\"\n"
        );
        if !self.limits.is_empty() {
            text.push_str("\n[limits]\n");
        }
        for (name, value) in &self.limits {
            text.push_str(&format!("{name} = {value}\n"));
        }
        text.push_str("\n[[keyspace]]\nprefix = \"\"\n");
        for (name, value) in &self.settings {
            match value.parse::<u64>() {
                // These are words even where they look like numbers.
                Ok(number) if !["acks", "coding"].contains(&name.as_str()) => {
                    writeln!(text, "{name} = {number}")
                }
                _ => writeln!(text, "{name} = \"{value}\""),
            }
            .unwrap_or_default();
        }
        for (index, [client, http, peer]) in ports.iter().enumerate() {
            let id = index + 1;
            text.push_str(&format!(
                "\n[[nodes]]\nid = {id}\nhost = \"127.0.0.1\"\nclient_port = {client}\nhttp_port = {http}\n\
                 peer_port = {peer}\n"
            ));
        }
        text
    }
}

impl System for Quorate {
    fn name(&self) -> String {
        "Quorate".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        let output = Command::new(&self.program).arg("--version").output();
        let text = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
        match text.trim().strip_prefix("quorate ") {
            Some(version) => Ok(version.to_owned()),
            None => Err(Missing {
                what: format!("{} is not Quorate", self.program.display()),
                install: "cargo build --release".to_owned(),
            }),
        }
    }

    fn acknowledges(&self) -> String {
        if let Some(words) = &self.acknowledges {
            return words.clone();
        }
        let majority = self.nodes / 2 + 1;
        match (self.replication(), self.setting("acks")) {
            ("leader-follower", Some("none") | None) => "the leader has it".to_owned(),
            ("leader-follower", Some("all")) => {
                format!("all in-sync replicas have it ({} of {})", self.nodes, self.nodes)
            }
            ("leader-follower", Some("majority")) => format!("{majority} of {} replicas have it", self.nodes),
            ("leader-follower", Some(acks)) => format!("the leader and {acks} more have it"),
            _ => format!("{majority} of {} replicas have it", self.nodes),
        }
    }

    fn durability(&self) -> String {
        let is_consensus = self.replication() == "consensus";
        match self.setting("durability") {
            Some("os") => "in the system's file cache",
            Some("fsync") => "on the disk (fsync)",
            None if is_consensus => "on the disk (fsync)",
            _ => "memory",
        }
        .to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let ports = free_ports(3 * self.nodes)?;
        let ports: Vec<[u16; 3]> =
            ports.chunks_exact(3).map(|three| [three[0], three[1], three[2]]).collect();
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut plans = Vec::new();
        for id in 1..=self.nodes {
            let node = folder.join(format!("node-{id}"));
            fs::create_dir_all(&node).with_context(|| format!("cannot make {}", node.display()))?;
            let file = node.join("quorate.toml");
            fs::write(&file, self.configuration(id, &ports, &secret))
                .with_context(|| format!("cannot write {}", file.display()))?;
            let [client, http, _] = ports[id - 1];
            plans.push(NodePlan {
                program: self.program.clone(),
                arguments: vec!["server".into(), "--config".into(), file.to_string_lossy().into_owned()],
                environment: Vec::new(),
                folder: node,
                resp: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, client))),
                http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, http))),
            });
        }
        Ok(plans)
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        let mut addresses = nodes.iter().filter_map(|node| node.http);
        addresses.all(|address| matches!(http_get(address, "/health?all"), Ok((200, _))))
    }

    /// The leader that the settings name, which leads unless it was down for a time.
    fn leader(&self, nodes: &[NodePlan]) -> Option<usize> {
        let number: usize = self.setting("leader")?.parse().ok()?;
        number.checked_sub(1).filter(|index| *index < nodes.len())
    }

    /// Of two nodes, the one with the higher number dials.
    fn reroute(&self, nodes: &mut [NodePlan], relay: &Relay) -> Result<()> {
        for from in 2..=nodes.len() {
            let file = nodes[from - 1].folder.join("quorate.toml");
            let mut text = fs::read_to_string(&file)?;
            let peers: Vec<u16> = text
                .lines()
                .filter_map(|line| line.strip_prefix("peer_port = ").and_then(|port| port.parse().ok()))
                .collect();
            for to in 1..from {
                let target =
                    peers.get(to - 1).with_context(|| format!("{} has no node {to}", file.display()))?;
                let port = route(relay, from, to, SocketAddr::from((Ipv4Addr::LOCALHOST, *target)))?;
                text.push_str(&format!("\n[[dial]]\nnode = {to}\nhost = \"127.0.0.1\"\nport = {port}\n"));
            }
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    fn peer_bytes_sent(&self, node: &NodePlan) -> Option<u64> {
        let (_, metrics) = http_get(node.http?, "/metrics").ok()?;
        let line = metrics.lines().find(|line| line.starts_with("quorate_peer_bytes_out_total "))?;
        line.split(' ').nth(1)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_a_keyspace_for_all_keys() {
        let system =
            Quorate::new(Path::new("quorate"), 1, "replication=leader-follower acks=1 backlog_bytes=5")
                .with_limits(&[("patience", 2)]);
        let text = system.configuration(1, &[[7, 8, 9]], "s");
        let keyspace = "prefix = \"\"\nreplication = \"leader-follower\"\nacks = \"1\"\nbacklog_bytes = 5\n";
        assert!(text.contains(keyspace), "{text}");
        assert!(text.contains("\n[limits]\npatience = 2\n"), "{text}");
        assert!(text.contains("client_port = 7\nhttp_port = 8\npeer_port = 9\n"), "{text}");
    }

    #[test]
    fn the_promise_is_written_in_words() {
        let words = |settings| {
            let system = Quorate::new(Path::new("quorate"), 3, settings);
            (system.acknowledges(), system.durability())
        };
        let (acknowledges, durability) = words("replication=consensus");
        assert_eq!(
            (acknowledges.as_str(), durability.as_str()),
            ("2 of 3 replicas have it", "on the disk (fsync)")
        );
        let (acknowledges, durability) = words("replication=leader-follower acks=none");
        assert_eq!((acknowledges.as_str(), durability.as_str()), ("the leader has it", "memory"));
    }
}
