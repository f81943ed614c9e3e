//! Consul: servers that decide by Raft and sync their log to disk.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Missing, NodePlan, System, find_program, free_ports, http_get};

const PROGRAM: &str = "consul";

/// The number of ports of a node: HTTP, Raft, and gossip within a site and between sites.
const PORTS: usize = 3;

/// A cluster of Consul servers.
#[derive(Clone, Debug)]
pub struct Consul {
    nodes: usize,
}

impl Consul {
    /// Creates a cluster of `nodes` servers.
    pub fn new(nodes: usize) -> Consul {
        Consul { nodes }
    }
}

impl System for Consul {
    fn name(&self) -> String {
        "Consul".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        let missing = || {
            Missing {
            what: format!("there is no {PROGRAM} on the PATH"),
            install: "the archive of https://developer.hashicorp.com/consul/install, unpacked into a folder of the \
                      PATH"
                .to_owned(),
        }
        };
        let program = find_program(PROGRAM).ok_or_else(missing)?;
        let output = Command::new(program).arg("version").output().map_err(|_| missing())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("Consul v"));
        version.map(str::to_owned).ok_or_else(missing)
    }

    fn acknowledges(&self) -> String {
        format!("{} of {} servers have it (Raft)", self.nodes / 2 + 1, self.nodes)
    }

    fn durability(&self) -> String {
        "on the disk (fsync)".to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let ports = free_ports(PORTS * self.nodes)?;
        let program = find_program(PROGRAM).with_context(|| format!("there is no {PROGRAM}"))?;
        let mut plans = Vec::new();
        for (index, own) in ports.chunks_exact(PORTS).enumerate() {
            let node = folder.join(format!("node-{}", index + 1));
            fs::create_dir_all(&node).with_context(|| format!("cannot make {}", node.display()))?;
            let [http, server, serf] = [own[0], own[1], own[2]];
            let others = ports.chunks_exact(PORTS).map(|ports| format!("127.0.0.1:{}", ports[2]));
            let others: Vec<String> = others.collect();
            // With several servers on one machine, each needs its own ports; optional ones are off. Gossip between
            // sites is off, too: there are no other sites.
            let configuration = serde_json::json!({
                "server": true,
                "bootstrap_expect": self.nodes,
                "node_name": format!("node-{}", index + 1),
                "data_dir": "data",
                "bind_addr": "127.0.0.1",
                "client_addr": "127.0.0.1",
                "ports": {"http": http, "server": server, "serf_lan": serf, "serf_wan": -1, "dns": -1, "grpc": -1,
                          "grpc_tls": -1},
                "retry_join": others,
                "retry_interval": "1s",
                "disable_update_check": true,
                "log_level": "WARN",
                // The recommended setting for production; the default, for small machines, waits five times as
                // long.
                "performance": {"raft_multiplier": 1},
                "limits": {"http_max_conns_per_client": 10_000},
                "leave_on_terminate": false,
            });
            let file = node.join("consul.json");
            fs::write(&file, serde_json::to_string_pretty(&configuration)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            plans.push(NodePlan {
                program: program.clone(),
                arguments: ["agent", "-config-file", "consul.json"].map(str::to_owned).to_vec(),
                environment: Vec::new(),
                folder: node,
                resp: None,
                http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, http))),
            });
        }
        Ok(plans)
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        let has_leader = |node: &NodePlan| {
            let leader = node.http.and_then(|address| http_get(address, "/v1/status/leader").ok());
            leader.is_some_and(|(status, text)| status == 200 && text.trim().len() > 2)
        };
        let peers = |node: &NodePlan| {
            let peers = node.http.and_then(|address| http_get(address, "/v1/status/peers").ok());
            peers.map_or(0, |(_, text)| text.matches("127.0.0.1").count())
        };
        nodes.iter().all(has_leader) && nodes.iter().all(|node| peers(node) == self.nodes)
    }

    fn leader(&self, nodes: &[NodePlan]) -> Option<usize> {
        let mut answers = nodes.iter().filter_map(|node| http_get(node.http?, "/v1/status/leader").ok());
        let leader = answers.find(|(status, _)| *status == 200)?.1;
        let port: u64 = leader.trim().trim_matches('"').rsplit_once(':')?.1.parse().ok()?;
        nodes.iter().position(|node| {
            let text = fs::read_to_string(node.folder.join("consul.json")).unwrap_or_default();
            let own: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            own["ports"]["server"].as_u64() == Some(port)
        })
    }
}
