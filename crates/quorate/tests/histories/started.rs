//! A cluster of real processes whose nodes a test kills, pauses and restarts.

use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::recorder::Recorder;
use super::support::{Client, Cluster, free_ports, is_running, quorate, signal, try_http, until};

/// A cluster in a folder that is deleted with it.
pub(crate) struct Started {
    pub(crate) cluster: Cluster,
    _folder: tempfile::TempDir,
    nodes: u16,
}

impl Started {
    pub(crate) fn new(nodes: u16, keyspaces: &[&str]) -> Started {
        Started::spaced(nodes, nodes, keyspaces)
    }

    /// Starts a cluster, with room between the ports for nodes that join, up to number `last`.
    pub(crate) fn spaced(nodes: u16, last: u16, keyspaces: &[&str]) -> Started {
        let folder = tempfile::tempdir().unwrap();
        let base = free_ports(3 * last);
        let (cluster, _) = Cluster::start_spaced(&folder.path().join("data"), base, nodes, last, keyspaces);
        Started { cluster, _folder: folder, nodes }
    }

    pub(crate) fn record(&self, clients: u64, keys: &[&str]) -> Recorder {
        let ports: Vec<u16> = (0..self.nodes).map(|node| self.cluster.base + node).collect();
        Recorder::start(&ports, clients, keys)
    }

    /// `kill -9`.
    pub(crate) fn kill(&self, node: u16) {
        self.kill_all(&[node]);
    }

    /// `kill -9` of several nodes, as simultaneously as possible.
    pub(crate) fn kill_all(&self, nodes: &[u16]) {
        let processes: Vec<u32> = nodes.iter().map(|node| self.cluster.process(*node)).collect();
        processes.iter().for_each(|process| signal(*process, Signal::KILL));
        until("they are dead", || !processes.iter().any(|process| is_running(*process)));
    }

    /// SIGTERM, as an operator or an orchestrator stops a node; returns when its process has ended.
    pub(crate) fn stop(&self, node: u16) {
        let process = self.cluster.process(node);
        signal(process, Signal::TERM);
        until("it has ended", || !is_running(process));
    }

    /// Restarts a killed node, as an operator does.
    pub(crate) fn spawn(&self, node: u16) -> Restarted {
        let config = self.cluster.node(node).join("quorate.toml");
        let log = self.cluster.node(node).join("quorate.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = quorate();
        command.arg("server").arg("--config").arg(config).stdout(Stdio::null()).stderr(log);
        Restarted(command.spawn().unwrap())
    }

    /// As [`Started::spawn`], and waits until the node serves every keyspace.
    pub(crate) fn start_again(&self, node: u16) -> Restarted {
        let restarted = self.spawn(node);
        until("the node is ready again", || self.is_ready(node));
        restarted
    }

    /// Whether a node serves every keyspace.
    pub(crate) fn is_ready(&self, node: u16) -> bool {
        self.try_http(node, "GET /health?all HTTP/1.1", "").is_some_and(|(status, _)| status == 200)
    }

    /// Sends an HTTP request to a node that may not answer; returns the status and the JSON.
    pub(crate) fn try_http(&self, node: u16, head: &str, body: &str) -> Option<(u16, Value)> {
        let (status, body) = try_http(self.cluster.http_port(node), head, body)?;
        Some((status, serde_json::from_str(&body).ok()?))
    }

    pub(crate) fn health(&self, node: u16) -> Value {
        self.try_http(node, "GET /health HTTP/1.1", "").unwrap_or_default().1
    }

    /// Returns the first group of a keyspace, as a node describes it.
    pub(crate) fn group(&self, asked: u16, prefix: &str) -> Value {
        let described = self.try_http(asked, "GET /keyspaces HTTP/1.1", "").unwrap_or_default().1;
        let mut keyspaces = described.as_array().into_iter().flatten();
        keyspaces
            .find(|keyspace| keyspace["prefix"] == prefix)
            .map_or(Value::Null, |it| it["groups"][0].clone())
    }

    /// Returns the leader of a keyspace once a majority reports the same one.
    pub(crate) fn leader(&self, prefix: &str) -> u16 {
        let mut leader = 0;
        until("all nodes know the leader", || {
            let leaders: Vec<u64> = (1..=self.nodes)
                .map(|node| self.group(node, prefix)["leader"].as_u64().unwrap_or(0))
                .collect();
            leader = leaders[0] as u16;
            leader != 0 && leaders.iter().all(|it| *it == leaders[0])
        });
        leader
    }

    /// Returns the first line of the reply to an inline command.
    pub(crate) fn ask(&self, node: u16, command: &str) -> String {
        let mut client: Client = self.cluster.client(node);
        client.ask(command)
    }

    pub(crate) fn log(&self, node: u16) -> String {
        std::fs::read_to_string(self.cluster.node(node).join("quorate.log")).unwrap_or_default()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in 1..=self.nodes {
                let log = self.log(node);
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("node {node}:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
            }
        }
    }
}

/// A node that the test started itself. It ends with the test.
pub(crate) struct Restarted(pub(crate) Child);

impl Drop for Restarted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
