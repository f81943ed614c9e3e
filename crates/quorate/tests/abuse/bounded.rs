//! Clusters of real processes, each with a bound on its memory.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::support::{Client, configuration, free_ports, http, until};

/// What a node may have of memory.
pub(crate) const NODE_BYTES: u64 = 400 << 20;

/// `short`, or `long` when the long form was asked for.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    match std::env::var_os("QUORATE_ABUSE") {
        Some(form) if form == "long" => long,
        _ => short,
    }
}

/// A control group that holds one process. Gone with it.
struct Cage {
    folder: PathBuf,
}

impl Cage {
    /// `None` where this machine does not let a test make one.
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
    /// Behind the process, so that it is empty when it goes.
    _cage: Option<Cage>,
}

/// A cluster. Ends with the test.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    folder: TempDir,
    base: u16,
}

impl Cluster {
    /// Starts so many nodes, with these tables added to the configuration of each, and waits until they serve.
    pub(crate) fn start(nodes: u16, tables: &str) -> Cluster {
        Cluster::start_limited(nodes, tables, None)
    }

    /// As [`Cluster::start`], with a hard limit on each process's file descriptors.
    pub(crate) fn start_limited(nodes: u16, tables: &str, descriptors: Option<u32>) -> Cluster {
        let base = free_ports(3 * nodes);
        let mut cluster = Cluster { nodes: Vec::new(), folder: tempfile::tempdir().unwrap(), base };
        for id in 1..=nodes {
            let folder = cluster.folder(id);
            fs::create_dir(&folder).unwrap();
            let text =
                configuration(base, nodes, "", tables).replace("node = 1\n", &format!("node = {id}\n"));
            fs::write(folder.join("quorate.toml"), text).unwrap();
            let log = fs::File::create(folder.join("log")).unwrap();
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
            cluster.nodes.push(Node { child: command.spawn().unwrap(), _cage: cage });
        }
        for id in 1..=nodes {
            until("a node listens", || {
                TcpStream::connect((Ipv4Addr::LOCALHOST, cluster.http_port(id))).is_ok()
            });
            until("a node is ready", || http(cluster.http_port(id), "GET /health HTTP/1.1", "").0 == 200);
        }
        cluster
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

    /// The most memory that a node has ever had resident; 0 where the system does not tell.
    pub(crate) fn peak_bytes(&self, id: u16) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process(id))).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    }

    pub(crate) fn log(&self, id: u16) -> String {
        fs::read_to_string(self.folder(id).join("log")).unwrap_or_default()
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, id: u16, name: &str) -> u64 {
        let (_, text) = http(self.http_port(id), "GET /metrics HTTP/1.1", "");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    /// Asserts that every node is the process that was started and has stayed within its bound.
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

    /// Asserts that the cluster has outlived an attack: [`Cluster::assert_alive`], and every node serves what takes no
    /// more memory than there was.
    #[track_caller]
    pub(crate) fn assert_serves(&mut self) {
        self.assert_alive();
        for id in 1..=self.nodes.len() as u16 {
            until("a node is ready again", || http(self.http_port(id), "GET /health HTTP/1.1", "").0 == 200);
            until("a node serves again", || self.client(id).ask("DEL abuse:nothing") == ":0");
        }
        self.assert_alive();
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
