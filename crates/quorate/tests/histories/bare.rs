//! Three nodes with the test's own configurations, started without `quorate cluster`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::started::Restarted;
use super::support::{configuration, free_ports, quorate, signal, try_http, until};
use rustix::process::Signal;

/// Nodes that end with the test, as does their folder.
pub(crate) struct Bare {
    folder: tempfile::TempDir,
    base: u16,
    nodes: Vec<(u16, Restarted)>,
}

impl Bare {
    /// Writes the files of three nodes, with these tables added and each text changed by `edit`. Starts none of them.
    pub(crate) fn new(tables: &str, edit: impl Fn(String, u16) -> String) -> Bare {
        let (folder, base) = (tempfile::tempdir().unwrap(), free_ports(9));
        let bare = Bare { folder, base, nodes: Vec::new() };
        for node in 1..=3 {
            let config = configuration(base, 3, "", tables);
            let config = config.replace("node = 1\n", &format!("node = {node}\n"));
            fs::create_dir(bare.node(node)).unwrap();
            fs::write(bare.node(node).join("quorate.toml"), edit(config, node)).unwrap();
        }
        bare
    }

    /// Starts a node.
    pub(crate) fn start(&mut self, node: u16) {
        let mut command = quorate();
        command.arg("server").arg("--config").arg(self.node(node).join("quorate.toml"));
        self.start_by(node, command);
    }

    /// Starts a node with a command that also does other things.
    pub(crate) fn start_by(&mut self, node: u16, mut command: Command) {
        let log = fs::File::create(self.node(node).join("quorate.log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.nodes.push((node, Restarted(command.spawn().unwrap())));
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, node: u16) {
        self.nodes.retain(|(other, _)| *other != node);
    }

    /// `kill -9` of all nodes, as simultaneously as possible.
    pub(crate) fn kill_all(&mut self) {
        self.nodes.iter().for_each(|(_, process)| signal(process.0.id(), Signal::KILL));
        self.nodes.clear();
    }

    pub(crate) fn process(&self, node: u16) -> u32 {
        let found = self.nodes.iter().find(|(other, _)| *other == node);
        found.map(|(_, process)| process.0.id()).expect("the node runs")
    }

    pub(crate) fn wait_until_ready(&self, nodes: &[u16]) {
        until("they are ready", || nodes.iter().all(|node| self.health(*node).0 == 200));
    }

    /// Returns the status and body of `GET /health?all`; status 0 if the node does not answer.
    pub(crate) fn health(&self, node: u16) -> (u16, String) {
        try_http(self.client_port(node) + 1, "GET /health?all HTTP/1.1", "").unwrap_or_default()
    }

    pub(crate) fn client_port(&self, node: u16) -> u16 {
        self.base + 3 * (node - 1)
    }

    pub(crate) fn node(&self, node: u16) -> PathBuf {
        let folder: &Path = self.folder.path();
        folder.join(format!("node-{node}"))
    }

    pub(crate) fn log(&self, node: u16) -> String {
        fs::read_to_string(self.node(node).join("quorate.log")).unwrap_or_default()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in 1..=3 {
                let log = self.log(node);
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("node {node}:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
            }
        }
    }
}
