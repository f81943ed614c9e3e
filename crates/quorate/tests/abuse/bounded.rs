//! Clusters of real processes, each with a memory bound.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{Client, configuration, free_ports, http, signal, try_http, until};

/// A node's memory bound.
pub(crate) const NODE_BYTES: u64 = 400 << 20;

/// How long a write and a read may take once an attack is over.
const PROMPT: Duration = Duration::from_secs(1);

/// Returns `short`, or `long` if the long form was requested.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    match std::env::var_os("QUORATE_ABUSE") {
        Some(form) if form == "long" => long,
        _ => short,
    }
}

/// A control group that holds one process. It is removed when dropped.
struct Cage {
    folder: PathBuf,
}

impl Cage {
    /// Returns `None` if this machine does not let a test make one.
    fn new(bytes: u64) -> Option<Cage> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("quorate-abuse-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let versions = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        for (root, limit) in versions {
            let folder = Path::new(root).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let cage = Cage { folder };
            if cage.folder.join(limit).exists()
                && fs::write(cage.folder.join(limit), bytes.to_string()).is_ok()
            {
                return Some(cage);
            }
        }
        None
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

struct Node {
    child: Child,
    /// Declared after the process, so that the control group is empty when it is dropped.
    _cage: Option<Cage>,
}

/// A cluster. It ends with the test.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    folder: TempDir,
    base: u16,
}

impl Cluster {
    /// Starts a cluster of `nodes`, with these tables added to each configuration, and waits until it serves.
    pub(crate) fn start(nodes: u16, tables: &str) -> Cluster {
        Cluster::start_limited(nodes, tables, None)
    }

    /// As [`Cluster::start`], with a hard limit on each process's file descriptors.
    pub(crate) fn start_limited(nodes: u16, tables: &str, descriptors: Option<u32>) -> Cluster {
        Cluster::start_edited(free_ports(3 * nodes), nodes, tables, |text, _| text, descriptors)
    }

    /// As [`Cluster::start_limited`], with a function that edits each node's configuration, and with given ports:
    /// three for each node, the client port first.
    pub(crate) fn start_edited(
        base: u16,
        nodes: u16,
        tables: &str,
        edit: impl Fn(String, u16) -> String,
        descriptors: Option<u32>,
    ) -> Cluster {
        let mut cluster = Cluster { nodes: Vec::new(), folder: tempfile::tempdir().unwrap(), base };
        for id in 1..=nodes {
            let folder = cluster.folder(id);
            fs::create_dir(&folder).unwrap();
            let text =
                configuration(base, nodes, "", tables).replace("node = 1\n", &format!("node = {id}\n"));
            fs::write(folder.join("quorate.toml"), edit(text, id)).unwrap();
            let node = cluster.spawn(id, descriptors);
            cluster.nodes.push(node);
        }
        (1..=nodes).for_each(|id| cluster.wait_until_ready(id));
        cluster
    }

    fn spawn(&self, id: u16, descriptors: Option<u32>) -> Node {
        let folder = self.folder(id);
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
        let cage = Cage::new(NODE_BYTES);
        let mut script = String::new();
        if let Some(cage) = &cage {
            let _ = write!(script, "echo $$ > {}/cgroup.procs && ", cage.folder.display());
        }
        if let Some(count) = descriptors {
            let _ = write!(script, "ulimit -n {count} && ");
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{script}exec \"$0\" \"$@\""));
        command.arg(env!("CARGO_BIN_EXE_quorate")).arg("server");
        command.arg("--config").arg(folder.join("quorate.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Node { child: command.spawn().unwrap(), _cage: cage }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, id: u16) {
        let child = &mut self.nodes[usize::from(id) - 1].child;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// `kill`: stops the node in an orderly way.
    pub(crate) fn stop(&mut self, id: u16) {
        signal(self.process(id), Signal::TERM);
        assert!(self.nodes[usize::from(id) - 1].child.wait().unwrap().success());
    }

    /// Restarts a killed node, and does not wait for it.
    pub(crate) fn restart(&mut self, id: u16) {
        self.nodes[usize::from(id) - 1] = self.spawn(id, None);
    }

    /// Whether the most recently started process is running.
    pub(crate) fn runs(&mut self, id: u16) -> bool {
        self.nodes[usize::from(id) - 1].child.try_wait().unwrap().is_none()
    }

    pub(crate) fn wait_until_ready(&self, id: u16) {
        let health = || try_http(self.http_port(id), "GET /health?all HTTP/1.1", "");
        until("a node is ready", || health().is_some_and(|(status, _)| status == 200));
    }

    pub(crate) fn client(&self, id: u16) -> Client {
        Client::connect(self.client_port(id))
    }

    pub(crate) fn client_port(&self, id: u16) -> u16 {
        self.base + 3 * (id - 1)
    }

    pub(crate) fn http_port(&self, id: u16) -> u16 {
        self.client_port(id) + 1
    }

    pub(crate) fn peer_port(&self, id: u16) -> u16 {
        self.client_port(id) + 2
    }

    pub(crate) fn folder(&self, id: u16) -> PathBuf {
        self.folder.path().join(format!("node-{id}"))
    }

    pub(crate) fn process(&self, id: u16) -> u32 {
        self.nodes[usize::from(id) - 1].child.id()
    }

    /// Returns the most memory that a node has ever had resident; 0 if the system does not report it.
    pub(crate) fn peak_bytes(&self, id: u16) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process(id))).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    }

    pub(crate) fn log(&self, id: u16) -> String {
        fs::read_to_string(self.folder(id).join("log")).unwrap_or_default()
    }

    /// Returns the value of a metric without labels.
    pub(crate) fn metric(&self, id: u16, name: &str) -> u64 {
        let (_, text) = http(self.http_port(id), "GET /metrics HTTP/1.1", "");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    /// Asserts that every node's process is still the one that was started, and has stayed within its bound.
    #[track_caller]
    pub(crate) fn assert_alive(&mut self) {
        for index in 0..self.nodes.len() {
            let id = index as u16 + 1;
            let ended = self.nodes[index].child.try_wait().unwrap();
            assert!(ended.is_none(), "node {id} has ended ({ended:?}):\n{}", self.log(id));
            let peak = self.peak_bytes(id);
            assert!(peak <= NODE_BYTES, "node {id} had {} MiB resident", peak >> 20);
        }
    }

    /// Asserts that the cluster has survived an attack: [`Cluster::assert_alive`], and every node serves requests
    /// that need no additional memory.
    #[track_caller]
    pub(crate) fn assert_serves(&mut self) {
        self.assert_alive();
        for id in 1..=self.nodes.len() as u16 {
            self.wait_until_ready(id);
            until("a node serves again", || self.client(id).ask("DEL abuse:nothing") == ":0");
        }
        self.assert_alive();
    }
}

impl Cluster {
    /// Does the same as [`Cluster::assert_serves`], and asserts that every node executes a write and a read within a
    /// second.
    #[track_caller]
    pub(crate) fn assert_takes_writes(&mut self) {
        self.assert_serves();
        for id in 1..=self.nodes.len() as u16 {
            let is_prompt = || {
                let begun = Instant::now();
                let mut client = self.client(id);
                let set = client.ask("SET abuse:last value");
                let length = client.ask("STRLEN abuse:last");
                (set.as_str(), length.as_str()) == ("+OK", ":5") && begun.elapsed() < PROMPT
            };
            until("a node serves within a second", is_prompt);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
        if std::thread::panicking() {
            for id in 1..=self.nodes.len() as u16 {
                eprintln!("node {id}, at most {} MiB:\n{}", self.peak_bytes(id) >> 20, self.log(id));
            }
        }
    }
}
