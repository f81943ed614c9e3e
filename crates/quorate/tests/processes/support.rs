//! Starts nodes and clusters, talks to them, and waits for events.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The longest wait. A test that waits longer fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let by = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < by, "waited {} s in vain: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the first of `count` consecutive free ports, below the range from which the system assigns ports to
/// clients.
pub(crate) fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(count, Ordering::Relaxed);
        let base = 10_000 + (std::process::id() as u16).wrapping_mul(97).wrapping_add(step) % 20_000;
        let taken: Vec<_> = (base..base + count)
            .map_while(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
            .collect();
        if taken.len() == usize::from(count) {
            return base;
        }
    }
}

pub(crate) fn quorate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.stdin(Stdio::null());
    command
}

pub(crate) fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// Whether a process runs: it has not ended, and is not merely waiting for its parent.
pub(crate) fn is_running(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// The only node of a cluster. It ends with the test.
pub(crate) struct Server {
    child: Child,
    folder: TempDir,
    pub(crate) client_port: u16,
    pub(crate) http_port: u16,
    pub(crate) peer_port: u16,
}

impl Server {
    /// Starts a node with these lines added to its configuration: top-level ones, then tables.
    pub(crate) fn start(top: &str, tables: &str) -> Server {
        let base = free_ports(3);
        Server::start_node(1, 1, base, &configuration(base, 1, top, tables))
    }

    /// Starts a node with this configuration, whose first port is given.
    pub(crate) fn start_at(base: u16, config: &str) -> Server {
        Server::start_node(1, 1, base, config)
    }

    /// Starts one node of a cluster of two. The other one is not running.
    pub(crate) fn start_one_of_two(id: u16, base: u16) -> Server {
        Server::start_one_of_two_at("127.0.0.1", id, base)
    }

    /// As [`Server::start_one_of_two`], on a host with this name.
    pub(crate) fn start_one_of_two_at(host: &str, id: u16, base: u16) -> Server {
        let config = configuration(base, 2, "", "").replace("node = 1\n", &format!("node = {id}\n"));
        let config = config.replace("host = \"127.0.0.1\"", &format!("host = \"{host}\""));
        Server::start_node(id, 2, base, &config)
    }

    /// Starts one node of a cluster with this configuration. `base` is the first port of node 1.
    pub(crate) fn start_node(id: u16, nodes: u16, base: u16, config: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let base = base + 3 * (id - 1);
        let file = folder.path().join("quorate.toml");
        fs::write(&file, config).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = quorate();
        command.arg("server").arg("--config").arg(&file).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let server = Server { child, folder, client_port: base, http_port: base + 1, peer_port: base + 2 };
        until("the node listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, base + 1)).is_ok());
        if nodes == 1 {
            until("the node is ready", || server.http("GET /health HTTP/1.1", "").0 == 200);
        }
        server
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Connects a Redis client.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.client_port)
    }

    /// Sends one HTTP request. Returns its status and body.
    pub(crate) fn http(&self, head: &str, body: &str) -> (u16, String) {
        http(self.http_port, head, body)
    }

    /// As [`Server::http`], with the body parsed as JSON.
    pub(crate) fn json(&self, head: &str, body: &str) -> (u16, serde_json::Value) {
        let (status, body) = self.http(head, body);
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// Returns the value of a metric. Its labels, if it has any, are part of the name.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.http("GET /metrics HTTP/1.1", "");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    /// Stops the node in an orderly way and returns its exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        signal(self.child.id(), Signal::TERM);
        wait(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}", self.log());
        }
    }
}

pub(crate) fn configuration(base: u16, nodes: u16, top: &str, tables: &str) -> String {
    let mut text = format!("node = 1\ncluster = \"test\"\nsecret = \"{SECRET}\"\n{top}\n{tables}\n");
    for id in 1..=nodes {
        let first = base + 3 * (id - 1);
        let (http, peer) = (first + 1, first + 2);
        text.push_str(&format!(
            "[[nodes]]\nid = {id}\nhost = \"127.0.0.1\"\nclient_port = {first}\nhttp_port = {http}\npeer_port = {peer}\n"
        ));
    }
    text
}

/// Waits for a process to end and returns its exit code.
pub(crate) fn wait(child: &mut Child) -> i32 {
    let mut status = None;
    until("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code().unwrap_or(-1)
}

/// Sends one HTTP request over a separate connection. `head` is the first line and further headers; the body is JSON
/// unless they say otherwise.
pub(crate) fn http(port: u16, head: &str, body: &str) -> (u16, String) {
    try_http(port, head, body).unwrap_or_else(|| panic!("no answer to {head}"))
}

/// As [`http`], for a node that may not be running, or may end during the request.
pub(crate) fn try_http(port: u16, head: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    let host = if head.contains("\r\nHost:") { "" } else { "Host: 127.0.0.1\r\n" };
    let kind = if head.contains("\r\nContent-Type:") { "" } else { "Content-Type: application/json\r\n" };
    let request =
        format!("{head}\r\n{host}{kind}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    // A server that refuses the body may close before it has received all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A connection on which bytes are sent and lines awaited.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        Client::of(connect(port))
    }

    pub(crate) fn of(stream: TcpStream) -> Client {
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Returns the next line without its end; empty at the end of the stream.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).unwrap();
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Reads exactly `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Returns everything until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset closes the connection, too.
        let _ = self.reader.read_to_end(&mut rest);
        rest
    }

    /// Sends an inline request and returns the first line of its reply.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n"));
        self.line()
    }
}

/// Encodes an array of bulk strings.
pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A `quorate cluster`. It ends with the test.
pub(crate) struct Cluster {
    child: Child,
    output: BufReader<ChildStdout>,
    pub(crate) folder: PathBuf,
    pub(crate) base: u16,
    /// The distance between the first ports of clients, HTTP and peers.
    stride: u16,
}

impl Cluster {
    /// Starts a cluster and waits until it reports that it is ready. Returns its output until then.
    pub(crate) fn start(folder: &Path, base: u16, nodes: u16) -> (Cluster, Vec<String>) {
        Cluster::start_with(folder, base, nodes, &[])
    }

    /// As [`Cluster::start`], with keyspaces.
    pub(crate) fn start_with(
        folder: &Path,
        base: u16,
        nodes: u16,
        keyspaces: &[&str],
    ) -> (Cluster, Vec<String>) {
        Cluster::start_spaced(folder, base, nodes, nodes, keyspaces)
    }

    /// As [`Cluster::start_with`], with room between the ports for nodes that join later.
    pub(crate) fn start_spaced(
        folder: &Path,
        base: u16,
        nodes: u16,
        stride: u16,
        keyspaces: &[&str],
    ) -> (Cluster, Vec<String>) {
        let mut command = cluster_command_spaced(folder, base, nodes, stride);
        command.args(keyspaces.iter().flat_map(|keyspace| ["--keyspace", keyspace]));
        Cluster::start_by(command, folder, base, stride)
    }

    /// Starts the cluster that a folder holds, given only the folder's name.
    pub(crate) fn start_again(folder: &Path, base: u16, stride: u16) -> (Cluster, Vec<String>) {
        let mut command = quorate();
        command.arg("cluster").arg("--dir").arg(folder);
        Cluster::start_by(command, folder, base, stride)
    }

    /// Starts a cluster with a command.
    pub(crate) fn start_by(
        command: Command,
        folder: &Path,
        base: u16,
        stride: u16,
    ) -> (Cluster, Vec<String>) {
        let mut cluster = Cluster::spawn(command, folder, base, stride);
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| line != "ready") {
            let reports = lines.iter().filter(|line| line.starts_with("not ready after")).count();
            assert!(reports < 3, "it does not get ready: {lines:?}");
            lines.push(cluster.line());
        }
        (cluster, lines)
    }

    /// Starts a cluster that may never become ready.
    pub(crate) fn spawn(mut command: Command, folder: &Path, base: u16, stride: u16) -> Cluster {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Cluster { child, output, folder: folder.to_owned(), base, stride }
    }

    /// Returns the next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the cluster has ended");
        line.trim_end().to_owned()
    }

    pub(crate) fn client(&self, id: u16) -> Client {
        Client::connect(self.base + id - 1)
    }

    pub(crate) fn health(&self, id: u16) -> (u16, String) {
        http(self.http_port(id), "GET /health HTTP/1.1", "")
    }

    pub(crate) fn http_port(&self, id: u16) -> u16 {
        self.base + self.stride + id - 1
    }

    pub(crate) fn node(&self, id: u16) -> PathBuf {
        self.folder.join(format!("node-{id}"))
    }

    /// Returns the process that a node's folder names.
    pub(crate) fn process(&self, id: u16) -> u32 {
        fs::read_to_string(self.node(id).join("quorate.pid")).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn own_process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, by: Signal) {
        signal(self.child.id(), by);
    }

    pub(crate) fn wait(&mut self) -> i32 {
        wait(&mut self.child)
    }

    pub(crate) fn stop(&mut self, by: Signal) -> i32 {
        self.signal(by);
        self.wait()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Its nodes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command for a cluster whose ports from `base` are those of all clients, then of HTTP, then of peers.
pub(crate) fn cluster_command(folder: &Path, base: u16, nodes: u16) -> Command {
    cluster_command_spaced(folder, base, nodes, nodes)
}

fn cluster_command_spaced(folder: &Path, base: u16, nodes: u16, stride: u16) -> Command {
    let mut command = quorate();
    command.arg("cluster").arg("--dir").arg(folder).arg("--nodes").arg(nodes.to_string());
    let bases = [("--client-port", base), ("--http-port", base + stride), ("--peer-port", base + 2 * stride)];
    for (name, port) in bases {
        command.arg(name).arg(port.to_string());
    }
    command
}
