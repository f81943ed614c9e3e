//! A cluster of real processes: started on free ports, killed or paused on request, and stopped at the end of the
//! test.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use redis::{Connection, Value};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The longest wait. A test that waits longer fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// The longest lifetime of a cluster. Its nodes are then killed, so that a client that waits for a reply fails.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 60);

/// How long to wait for a node that may be paused.
const IF_IT_RUNS: Duration = Duration::from_secs(1);

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let by = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < by, "waited {} s in vain: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A node's process.
enum Process {
    /// A child of `quorate cluster`.
    OfCluster(u32),
    /// Restarted by the test.
    Own(Child),
    Dead,
}

/// A running `quorate cluster`.
pub(crate) struct Cluster {
    launcher: Child,
    /// Kept open, so that lines that the cluster prints later have a reader.
    _output: BufReader<ChildStdout>,
    folder: TempDir,
    base: u16,
    nodes: u16,
    processes: Vec<Process>,
    /// Dropped with the cluster, which ends the thread that watches it.
    _watch: Sender<()>,
}

impl Cluster {
    /// Starts a cluster with these keyspaces, as on the command line, and waits until it is ready.
    pub(crate) fn start(nodes: u16, keyspaces: &[&str]) -> Cluster {
        Cluster::start_with(nodes, keyspaces, "")
    }

    /// As [`Cluster::start`], with these lines in each configuration's `[limits]`.
    pub(crate) fn start_with(nodes: u16, keyspaces: &[&str], limits: &str) -> Cluster {
        Cluster::start_by(nodes, keyspaces, limits, false)
    }

    /// As [`Cluster::start`], with ports that speak TLS.
    pub(crate) fn start_sealed(nodes: u16, keyspaces: &[&str]) -> Cluster {
        Cluster::start_by(nodes, keyspaces, "", true)
    }

    fn start_by(nodes: u16, keyspaces: &[&str], limits: &str, is_sealed: bool) -> Cluster {
        let folder = memory_folder();
        for _ in 0..20 {
            let base = free_ports(if is_sealed { 5 } else { 3 } * nodes);
            if let Some((launcher, output)) = launch(&folder, base, nodes, keyspaces, is_sealed) {
                let processes =
                    (1..=nodes).map(|id| Process::OfCluster(process_in(folder.path(), id))).collect();
                let _watch = watch(folder.path().to_owned(), nodes);
                let mut cluster =
                    Cluster { launcher, _output: output, folder, base, nodes, processes, _watch };
                if !limits.is_empty() {
                    (1..=nodes).for_each(|id| cluster.limit(id, limits));
                }
                return cluster;
            }
            // Another process has taken a port. The folder remembers the ports, so start with a new one.
            fs::remove_dir_all(folder.path()).unwrap();
            fs::create_dir(folder.path()).unwrap();
        }
        panic!("no cluster could be started");
    }

    /// Restarts a node with other limits.
    fn limit(&mut self, id: u16, limits: &str) {
        let file = self.node_folder(id).join("quorate.toml");
        let mut table: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
        let changes: toml::Table = limits.parse().unwrap();
        table["limits"].as_table_mut().unwrap().extend(changes);
        fs::write(&file, table.to_string()).unwrap();
        self.kill(id);
        self.restart(id);
        self.wait_until_ready(id);
    }

    // Addresses.

    pub(crate) fn client_port(&self, id: u16) -> u16 {
        self.base + id - 1
    }

    pub(crate) fn http_port(&self, id: u16) -> u16 {
        self.base + self.nodes + id - 1
    }

    pub(crate) fn peer_port(&self, id: u16) -> u16 {
        self.base + 2 * self.nodes + id - 1
    }

    pub(crate) fn tls_port(&self, id: u16) -> u16 {
        self.base + 3 * self.nodes + id - 1
    }

    /// The file with the certificate of the cluster's authority.
    pub(crate) fn authority(&self) -> String {
        self.folder.path().join("certs/authority.crt").to_str().unwrap().to_owned()
    }

    fn node_folder(&self, id: u16) -> PathBuf {
        self.folder.path().join(format!("node-{id}"))
    }

    /// Returns a value of a node's configuration file.
    pub(crate) fn configured(&self, id: u16, name: &str) -> String {
        let text = fs::read_to_string(self.node_folder(id).join("quorate.toml")).unwrap();
        text.parse::<toml::Table>().unwrap()[name].as_str().unwrap().to_owned()
    }

    // Clients.

    /// Connects a client of the `redis` crate with RESP2.
    pub(crate) fn client(&self, id: u16) -> Connection {
        self.client_with(id, "")
    }

    /// Connects a client of the `redis` crate with RESP3.
    pub(crate) fn client3(&self, id: u16) -> Connection {
        self.client_with(id, "?protocol=resp3")
    }

    fn client_with(&self, id: u16, query: &str) -> Connection {
        let client =
            redis::Client::open(format!("redis://127.0.0.1:{}/{query}", self.client_port(id))).unwrap();
        client.get_connection_with_timeout(PATIENCE).unwrap()
    }

    /// Opens a bare connection to a node's client port.
    pub(crate) fn raw(&self, id: u16) -> TcpStream {
        connect(self.client_port(id))
    }

    /// Sends one HTTP request. Returns its status, and the JSON or text of its body.
    pub(crate) fn http(&self, id: u16, head: &str, body: &str) -> (u16, serde_json::Value) {
        http(self.http_port(id), head, body)
    }

    // The state of nodes.

    pub(crate) fn health(&self, id: u16) -> serde_json::Value {
        self.http(id, "GET /health HTTP/1.1", "").1
    }

    /// Returns the state of the default keyspace on a node.
    pub(crate) fn default_keyspace(&self, id: u16) -> serde_json::Value {
        let health = self.health(id);
        let keyspaces = health["keyspaces"].as_array().unwrap();
        keyspaces.iter().find(|keyspace| keyspace["prefix"] == "").unwrap().clone()
    }

    /// Returns the leader of the default keyspace, as the leader itself reports.
    pub(crate) fn leader(&self) -> u16 {
        let mut leader = None;
        until("somebody leads", || {
            leader = (1..=self.nodes).find(|id| {
                let answer = try_http(self.http_port(*id), "GET /health HTTP/1.1", "", IF_IT_RUNS);
                answer.is_some_and(|(_, health)| {
                    let mut keyspaces = health["keyspaces"].as_array().into_iter().flatten();
                    keyspaces.any(|it| it["prefix"] == "" && it["role"] == "leader" && it["writable"] == true)
                })
            });
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Returns the state of a follower of the default keyspace as the leader sees it.
    pub(crate) fn follower_state(&self, id: u16) -> String {
        let keyspace = self.default_keyspace(self.leader());
        let mut followers = keyspace["followers"].as_array().into_iter().flatten();
        let follower = followers.find(|follower| follower["node"] == id);
        follower.map_or("none", |follower| follower["state"].as_str().unwrap()).to_owned()
    }

    /// Returns the in-sync set of the default keyspace as a node knows it.
    pub(crate) fn in_sync(&self, id: u16) -> serde_json::Value {
        self.http(id, "GET /keyspaces HTTP/1.1", "").1[0]["groups"][0]["in_sync"].clone()
    }

    /// Returns a counter of the default keyspace, summed over all nodes.
    pub(crate) fn counters(&self, name: &str) -> u64 {
        (1..=self.nodes).map(|id| self.counter(id, name)).sum()
    }

    /// Returns a counter of the default keyspace on a node.
    pub(crate) fn counter(&self, id: u16, name: &str) -> u64 {
        let (_, text) = self.http(id, "GET /metrics HTTP/1.1", "");
        let prefix = format!("quorate_keyspace_{name}{{keyspace=\"default\"}} ");
        let text = text.as_str().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    pub(crate) fn wait_until_ready(&self, id: u16) {
        until("the node is ready", || {
            let answer = try_http(self.http_port(id), "GET /health?all HTTP/1.1", "", IF_IT_RUNS);
            answer.is_some_and(|(status, _)| status == 200)
        });
    }

    /// Waits until every node has applied everything that the leader has in the default keyspace.
    pub(crate) fn wait_until_equal(&self) {
        until("the followers have everything", || {
            let leader = self.default_keyspace(self.leader());
            leader["offset"] == leader["applied"]
                && (1..=self.nodes).all(|id| {
                    let replica = self.default_keyspace(id);
                    replica["ready"] == true
                        && replica["lag"] == 0
                        && replica["applied"] == leader["applied"]
                        && replica["epoch"] == leader["epoch"]
                })
        });
    }

    /// Returns the resident memory of a node's process, in bytes.
    pub(crate) fn resident_bytes(&self, id: u16) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process(id))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    // Faults of nodes.

    pub(crate) fn process(&self, id: u16) -> u32 {
        match &self.processes[id as usize - 1] {
            Process::OfCluster(process) => *process,
            Process::Own(child) => child.id(),
            Process::Dead => panic!("node {id} does not run"),
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, id: u16) {
        let file = self.node_folder(id).join("quorate.pid");
        let written: u32 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        assert_eq!(written, self.process(id), "the pid file names the process that runs");
        signal(written, Signal::KILL);
        if let Process::Own(mut child) =
            std::mem::replace(&mut self.processes[id as usize - 1], Process::Dead)
        {
            child.wait().unwrap();
        }
        until("the process ends", || !is_running(written));
    }

    /// Restarts a killed node, as its operator would.
    pub(crate) fn restart(&mut self, id: u16) {
        assert!(matches!(self.processes[id as usize - 1], Process::Dead), "node {id} still runs");
        let log = fs::OpenOptions::new().append(true).open(self.node_folder(id).join("quorate.log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.arg("server").arg("--config").arg(self.node_folder(id).join("quorate.toml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.processes[id as usize - 1] = Process::Own(child);
    }

    /// `kill -STOP`: the process is paused, its connections stay open.
    pub(crate) fn pause(&self, id: u16) {
        signal(self.process(id), Signal::STOP);
    }

    /// `kill -CONT`.
    pub(crate) fn go_on(&self, id: u16) {
        signal(self.process(id), Signal::CONT);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for id in 1..=self.nodes {
                let log = fs::read_to_string(self.node_folder(id).join("quorate.log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!(
                    "the end of node {id}'s log:\n{}",
                    lines[lines.len().saturating_sub(15)..].join("\n")
                );
            }
        }
        // The launcher first, which restarts nothing; then its nodes, including paused ones.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        for process in &mut self.processes {
            match process {
                Process::OfCluster(process) if is_running(*process) => {
                    let _ = kill_process(Pid::from_raw(*process as i32).unwrap(), Signal::KILL);
                }
                Process::Own(child) => {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                _ => {}
            }
        }
    }
}

/// Returns a folder in memory if there is one: each start of a node syncs a file, and on a busy disk that can take
/// seconds.
fn memory_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Starts `quorate cluster` and waits until it is ready. Returns `None` if a port was taken.
fn launch(
    folder: &TempDir,
    base: u16,
    nodes: u16,
    keyspaces: &[&str],
    is_sealed: bool,
) -> Option<(Child, BufReader<ChildStdout>)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.arg("cluster").arg("--dir").arg(folder.path()).arg("--nodes").arg(nodes.to_string());
    for (name, base) in
        [("--client-port", base), ("--http-port", base + nodes), ("--peer-port", base + 2 * nodes)]
    {
        command.arg(name).arg(base.to_string());
    }
    if is_sealed {
        command.arg("--tls");
        for (name, base) in [("--tls-client-port", base + 3 * nodes), ("--tls-http-port", base + 4 * nodes)] {
            command.arg(name).arg(base.to_string());
        }
    }
    keyspaces.iter().for_each(|keyspace| _ = command.arg("--keyspace").arg(keyspace));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while output.read_line(&mut line).unwrap() > 0 {
        if line.trim_end() == "ready" {
            return Some((child, output));
        }
        line.clear();
    }
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    child.wait().unwrap();
    assert!(error.contains("in use"), "the cluster does not start: {error}");
    None
}

/// Kills a cluster's nodes when it has run too long.
///
/// The clients' sockets have no timeout of their own: a read with a timeout ends with EINTR when this process is
/// frozen and resumed, as a whole test machine may be, and the `redis` crate then discards the reply.
fn watch(folder: PathBuf, nodes: u16) -> Sender<()> {
    let (alive, ended) = mpsc::channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(LONGEST_LIFE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a cluster has lived for {} s, and its nodes are killed", LONGEST_LIFE.as_secs());
            for process in (1..=nodes).map(|id| process_in(&folder, id)).filter(|it| is_running(*it)) {
                signal(process, Signal::KILL);
            }
        }
    });
    alive
}

fn process_in(folder: &Path, id: u16) -> u32 {
    let file = folder.join(format!("node-{id}/quorate.pid"));
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// Whether a process runs: it has not ended, and is not merely waiting for its parent. The last of its threads, which
/// may not be the first one, releases its files and ports.
fn is_running(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let status = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    })
}

/// Returns the first of `count` consecutive free ports. They are below the range from which the system assigns ports
/// to clients, so that no client's port is in the way of a restarting node.
pub(crate) fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(count, Ordering::Relaxed);
        let base = 10_000 + (std::process::id() as u16).wrapping_mul(131).wrapping_add(step) % 20_000;
        let ports = base..base + count;
        let taken: Vec<_> =
            ports.map_while(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()).collect();
        if taken.len() == usize::from(count) {
            return base;
        }
    }
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends one HTTP request over a separate connection. `head` is the first line and further headers.
pub(crate) fn http(port: u16, head: &str, body: &str) -> (u16, serde_json::Value) {
    try_http(port, head, body, PATIENCE).unwrap_or_else(|| panic!("no answer to {head}"))
}

fn try_http(port: u16, head: &str, body: &str, patience: Duration) -> Option<(u16, serde_json::Value)> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    let length = body.len();
    let request = format!(
        "{head}\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    // A server that refuses the body may close before it has received all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or_else(|_| body.into())))
}

/// Runs a command, written as words, and returns the reply as a text: `OK`, `7`, `"text"`, `nil`, `-ERR ...`,
/// `[1, "a"]`.
pub(crate) fn ask(connection: &mut Connection, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(if word == "''" { "" } else { word }));
    match command.query::<Value>(connection) {
        Ok(value) => as_text(&value),
        Err(error) => error_text(&error),
    }
}

/// Returns an error reply as the server sent it.
pub(crate) fn error_text(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), detail) => format!("-{code} {}", detail.unwrap_or_default()),
        (None, _) => panic!("not an error of the server: {error}"),
    }
}

/// Returns an error's code, which clients match on.
pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, redis::RedisError>) -> String {
    outcome.expect_err("an error").code().expect("an error of the server").to_owned()
}

pub(crate) fn as_text(value: &Value) -> String {
    let text = |bytes: &[u8]| format!("\"{}\"", bytes.escape_ascii());
    match value {
        Value::Nil => "nil".into(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => text(bytes),
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(as_text).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Okay => "OK".into(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text: words, .. } => text(words.as_bytes()),
        other => format!("{other:?}"),
    }
}
