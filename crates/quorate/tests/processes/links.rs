//! TLS between nodes: what can be seen on the network, which nodes are refused, and how a running cluster changes
//! over.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose as Purpose, KeyPair};
use rustix::process::Signal;
use wire::greeting;
use wire::handshake::{Dialer, Identity};

use super::support::{Client, SECRET, Server, configuration, connect, free_ports, request, signal, until};
use super::tls::{Certs, Sealed};

const NODES: u16 = 3;

/// A forwarder that keeps what it forwards.
struct Wire {
    port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Wire {
    fn to(target: u16) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for dialled in listener.incoming() {
                let Ok(dialled) = dialled else { return };
                let Ok(accepted) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { continue };
                for stream in [&dialled, &accepted] {
                    stream.set_nodelay(true).unwrap();
                }
                let ways =
                    [(dialled.try_clone().unwrap(), accepted.try_clone().unwrap()), (accepted, dialled)];
                for (from, to) in ways {
                    let kept = Arc::clone(&kept);
                    std::thread::spawn(move || forward(from, to, &kept));
                }
            }
        });
        Wire { port, seen }
    }

    fn has(&self, text: &[u8]) -> bool {
        self.seen.lock().unwrap().windows(text.len()).any(|window| window == text)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        kept.lock().unwrap().extend_from_slice(&buffer[..count]);
    }
    // One direction may end before the other.
    let _ = to.shutdown(Shutdown::Write);
}

/// A cluster of three, whose links can be observed.
struct Nodes {
    certs: Certs,
    base: u16,
    servers: Vec<Server>,
    wires: Vec<Wire>,
}

impl Nodes {
    fn certs() -> Certs {
        Certs::new(&[
            "--node",
            "127.0.0.1",
            "--node",
            "127.0.0.1",
            "--node",
            "127.0.0.1",
            "--client",
            "alice",
        ])
    }

    fn new(certs: Certs) -> Nodes {
        let base = free_ports(5 * NODES);
        // To node 1 from 2 and 3, and to node 2 from 3.
        let wires = [1, 1, 2].map(|id: u16| Wire::to(base + 3 * (id - 1) + 2)).into();
        Nodes { certs, base, servers: Vec::new(), wires }
    }

    /// Starts all nodes with a mode, and waits until they serve.
    fn start(mode: &str) -> Nodes {
        let mut nodes = Nodes::new(Nodes::certs());
        for id in 1..=NODES {
            let config = nodes.config(id, nodes.certs.file("authority.crt").parent().unwrap(), mode);
            nodes.servers.push(Server::start_node(id, NODES, nodes.base, &config));
        }
        until("the cluster serves", || nodes.client(3).ask("SET first value") == "+OK");
        nodes
    }

    /// A node's configuration, with its certificate in a folder.
    fn config(&self, id: u16, certs: &Path, mode: &str) -> String {
        let wire = |node: u16, at: usize| {
            format!("[[dial]]\nnode = {node}\nhost = \"127.0.0.1\"\nport = {}\n", self.wires[at].port)
        };
        let dial = match id {
            1 => String::new(),
            2 => wire(1, 0),
            _ => wire(1, 1) + &wire(2, 2),
        };
        let file = |name: &str| format!("{:?}", certs.join(name));
        let tls = format!(
            "[tls]\nclient_port = {}\ncertificate = {}\nkey = {}\nauthority = {}\npeers = \"{mode}\"\n",
            self.base + 3 * NODES + id,
            file(&format!("node-{id}.crt")),
            file(&format!("node-{id}.key")),
            file("authority.crt"),
        );
        configuration(self.base, NODES, "", &(tls + &dial))
            .replace("node = 1\ncluster", &format!("node = {id}\ncluster"))
    }

    fn server(&self, id: u16) -> &Server {
        &self.servers[usize::from(id) - 1]
    }

    fn client(&self, id: u16) -> Client {
        self.server(id).client()
    }

    /// Changes a node's mode while it runs.
    fn switch(&self, id: u16, mode: &str) {
        let file = self.server(id).folder().join("quorate.toml");
        let text = fs::read_to_string(&file).unwrap();
        let line = text.lines().find(|line| line.starts_with("peers = ")).unwrap().to_owned();
        fs::write(&file, text.replace(&line, &format!("peers = \"{mode}\""))).unwrap();
        signal(self.server(id).process(), Signal::HUP);
        self.awaits_line(id, &format!("tls.peers is \"{mode}\" from now on"));
    }

    fn awaits_line(&self, id: u16, what: &str) {
        until(what, || self.server(id).log().contains(what));
    }

    /// How many links of a node are up, and how many of these use TLS.
    fn links(&self, id: u16) -> (u64, u64) {
        let server = self.server(id);
        (server.metric("quorate_peer_links"), server.metric("quorate_peer_links_tls"))
    }

    fn await_links(&self, expected: (u64, u64)) {
        until("the links are as they should be", || (1..=NODES).all(|id| self.links(id) == expected));
    }
}

/// The beginning of a Hello, and the name in it: the cluster's.
const HELLO: &[u8] = b"quorate\n";

#[test]
fn links_in_tls_reveal_nothing() {
    let nodes = Nodes::start("required");
    nodes.await_links((2, 2));
    let value = vec![b'v'; 300_000];
    let mut client = nodes.client(2);
    client.send(request(&[b"SET", b"a-key-to-look-for", &value]));
    assert_eq!(client.line(), "+OK");
    assert_eq!(nodes.client(1).ask("STRLEN a-key-to-look-for"), ":300000");
    for wire in &nodes.wires {
        assert_eq!(wire.seen.lock().unwrap()[..2], [0x16, 3], "it begins with TLS");
        assert!(!wire.has(HELLO) && !wire.has(b"a-key-to-look-for") && !wire.has(&value[..64]));
    }
    let seen: usize = nodes.wires.iter().map(|wire| wire.seen.lock().unwrap().len()).sum();
    assert!(seen > 300_000, "the value has gone over these wires");
    // Without TLS the Hello can be read.
    let plain = Nodes::start("off");
    plain.await_links((2, 0));
    assert!(plain.wires.iter().all(|wire| wire.has(HELLO)));
}

#[test]
fn a_running_cluster_changes_over_without_an_error() {
    let nodes = Nodes::start("off");
    nodes.await_links((2, 0));
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let settle = || {
        let from = done.load(Ordering::Relaxed);
        until("the load goes on", || done.load(Ordering::Relaxed) > from + 2000);
    };
    std::thread::scope(|scope| {
        for (id, number) in [(1, 0), (2, 1), (3, 2), (3, 3)] {
            let (nodes, is_over, done) = (&nodes, &is_over, &done);
            scope.spawn(move || {
                let mut client = nodes.client(id);
                let mut count = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    // Many at once, so that something is always in flight.
                    let batch: Vec<u8> = (0..20)
                        .flat_map(|at| {
                            let (key, value) = (format!("key:{number}"), format!("{}", count + at));
                            request(&[b"SET", key.as_bytes(), value.as_bytes()])
                        })
                        .collect();
                    client.send(batch);
                    for _ in 0..20 {
                        let reply = client.line();
                        if reply != "+OK" {
                            is_over.store(true, Ordering::Relaxed);
                            panic!("a client of node {id} got {reply:?} after {count}");
                        }
                    }
                    count += 20;
                    done.fetch_add(20, Ordering::Relaxed);
                }
                let reply = client.ask(&format!("GET key:{number}"));
                assert_eq!((reply.is_empty(), client.line()), (false, (count - 1).to_string()));
            });
        }
        let guard = EndsLoad(&is_over);
        settle();
        // In any order: a node that dials with TLS uses a plain link with a node whose TLS is still off.
        for id in [3, 1, 2] {
            nodes.switch(id, "wanted");
            settle();
        }
        nodes.await_links((2, 2));
        settle();
        for id in 1..=NODES {
            nodes.switch(id, "required");
            settle();
        }
        nodes.await_links((2, 2));
        settle();
        // Certificates are replaced under load too.
        let shown = Sealed::connect(nodes.base + 3 * NODES + 1, &nodes.certs, None);
        drop(shown);
        for id in 1..=NODES {
            for kind in ["crt", "key"] {
                fs::remove_file(nodes.certs.file(&format!("node-{id}.{kind}"))).unwrap();
            }
        }
        let all = ["--node", "127.0.0.1", "--node", "127.0.0.1", "--node", "127.0.0.1"];
        let (went_well, output) = nodes.certs.issue(&[&all[..], &["--days", "10"]].concat());
        assert!(went_well, "{output}");
        let renewed = || {
            (2..=NODES).all(|id| {
                nodes.server(id).log().matches("goes on over a new connection").count() > usize::from(id)
            })
        };
        until("links are set up again with the new certificates", renewed);
        for id in 1..=NODES {
            nodes.awaits_line(id, &format!("node-{id}.crt expires in 9 days"));
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let expires_s = nodes.server(id).metric("quorate_tls_certificate_expiry_timestamp_seconds");
            assert!((9 * 86400..=10 * 86400).contains(&(expires_s - now_s)), "{expires_s}, now {now_s}");
        }
        settle();
        // And back.
        for mode in ["wanted", "off"] {
            for id in 1..=NODES {
                nodes.switch(id, mode);
            }
        }
        nodes.await_links((2, 0));
        settle();
        drop(guard);
    });
    for id in 1..=NODES {
        let log = nodes.server(id).log();
        assert!(!log.contains(" is down"), "no link was lost: {log}");
    }
}

/// Ends the load when a test fails.
struct EndsLoad<'a>(&'a AtomicBool);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn peers_without_tls_are_refused_where_it_is_required() {
    let nodes = Nodes::start("required");
    let server = nodes.server(1);
    let mut stranger = connect(server.peer_port);
    let identity = Identity::new("test", 2, SECRET.as_bytes()).unwrap().reached_at_port(server.peer_port + 3);
    let (_, hello) = Dialer::new(identity, [7; 16]);
    let mut bytes = Vec::new();
    greeting::append(&mut bytes, |out| out.extend_from_slice(&hello));
    stream_takes(&mut stranger, &bytes);
    nodes.awaits_line(1, "it does not speak TLS, and tls.peers = \"required\"");
    nodes.await_links((2, 2));
}

/// Sends something, and waits for the end.
fn stream_takes(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_certificate_must_be_that_of_the_node() {
    let nodes = Nodes::start("required");
    let server = nodes.server(1);
    // A stranger has the cluster's secret, and a certificate of the authority that is another node's.
    let claims = |certs: &Certs, own: Option<&str>| {
        let mut stream = Sealed::connect(server.peer_port, certs, own).stream.into_inner();
        let identity = Identity::new("test", 2, SECRET.as_bytes()).unwrap();
        let (_, hello) = Dialer::new(identity.reached_at_port(server.peer_port + 3), [7; 16]);
        let mut bytes = Vec::new();
        greeting::append(&mut bytes, |out| out.extend_from_slice(&hello));
        let sent = stream.write_all(&bytes).and_then(|()| stream.flush());
        let mut answer = Vec::new();
        let _ = sent.and_then(|()| stream.read_to_end(&mut answer));
        assert!(answer.is_empty(), "it gets no Challenge");
    };
    claims(&nodes.certs, Some("node-3"));
    nodes.awaits_line(1, "its certificate is that of node 3, and not that of node 2");
    claims(&nodes.certs, Some("client-alice"));
    nodes.awaits_line(
        1,
        "its certificate, of \"alice\", is neither that of node-2 nor for the host 127.0.0.1",
    );
    claims(&nodes.certs, None);
    nodes.awaits_line(1, "turned away: it presents no certificate");
    // A node finds at its start that its certificate is another node's.
    let folder = tempfile::tempdir().unwrap();
    for name in ["authority.crt", "node-3.crt", "node-3.key"] {
        fs::copy(nodes.certs.file(name), folder.path().join(name.replace("node-3", "node-2"))).unwrap();
    }
    let file = folder.path().join("quorate.toml");
    fs::write(&file, nodes.config(2, folder.path(), "wanted")).unwrap();
    let output = super::support::quorate().arg("server").arg("--config").arg(&file).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("its certificate is that of node 3, and not that of node 2"), "{printed}");
    nodes.await_links((2, 2));
}

#[test]
fn a_foreign_and_an_expired_certificate_are_refused_until_they_are_replaced() {
    let (certs, others) = (Nodes::certs(), Nodes::certs());
    let mut nodes = Nodes::new(certs);
    // Node 2 has a certificate of another authority, and trusts both; node 3 has one that has expired.
    let second = tempfile::tempdir().unwrap();
    for name in ["node-2.crt", "node-2.key"] {
        fs::copy(others.file(name), second.path().join(name)).unwrap();
    }
    let both = [nodes.certs.file("authority.crt"), others.file("authority.crt")];
    fs::write(second.path().join("authority.crt"), both.map(|file| fs::read(file).unwrap()).concat())
        .unwrap();
    let third = tempfile::tempdir().unwrap();
    fs::copy(nodes.certs.file("authority.crt"), third.path().join("authority.crt")).unwrap();
    issue_expired(&nodes.certs, 3, third.path());
    let first = nodes.certs.file("authority.crt");
    let folders = [first.parent().unwrap().to_owned(), second.path().to_owned(), third.path().to_owned()];
    for (id, folder) in (1..).zip(&folders) {
        let config = nodes.config(id, folder, "required");
        nodes.servers.push(Server::start_node(id, NODES, nodes.base, &config));
    }
    nodes
        .awaits_line(1, "at the peer port was turned away: its certificate does not come from tls.authority");
    nodes.awaits_line(
        1,
        "at the peer port was turned away: its certificate is not accepted: certificate expired",
    );
    nodes.awaits_line(
        3,
        "other nodes accept no new link from this one: its certificate is not accepted: certificate expired",
    );
    nodes.awaits_line(2, "it does not accept this node's certificate (UnknownCA)");
    assert_eq!(nodes.links(1), (0, 0));
    // New certificates are used without a restart.
    for (folder, id) in [(&second, 2), (&third, 3)] {
        for kind in ["crt", "key"] {
            let name = format!("node-{id}.{kind}");
            fs::copy(nodes.certs.file(&name), folder.path().join(name)).unwrap();
        }
    }
    nodes.await_links((2, 2));
    until("the cluster serves", || nodes.client(1).ask("SET key value") == "+OK");
    // A node that no longer trusts an authority ends the links with certificates from it, and no others.
    for name in ["node-1.crt", "node-1.key", "authority.crt"] {
        fs::copy(others.file(name), nodes.certs.file(name)).unwrap();
    }
    nodes.awaits_line(1, "link to node 2 is down: its certificate does not come from tls.authority any more");
    nodes.awaits_line(1, "link to node 3 is down: its certificate does not come from tls.authority any more");
    until("node 2 has one link left", || nodes.links(1).0 == 0 && nodes.links(2) == (1, 1));
    until("nodes 2 and 3 go on", || nodes.client(3).ask("SET key other") == "+OK");
}

/// Makes a node's certificate that was valid until yesterday.
fn issue_expired(certs: &Certs, id: u16, folder: &Path) {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, format!("node-{id}"));
    params.extended_key_usages = vec![Purpose::ServerAuth, Purpose::ClientAuth];
    let day = Duration::from_secs(86_400);
    params.not_before = (SystemTime::now() - 10 * day).into();
    params.not_after = (SystemTime::now() - day).into();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &certs.authority()).unwrap();
    fs::write(folder.join(format!("node-{id}.crt")), certificate.pem()).unwrap();
    fs::write(folder.join(format!("node-{id}.key")), key.serialize_pem()).unwrap();
}

#[test]
fn a_flood_of_handshakes_keeps_no_node_out() {
    let mut nodes = Nodes::start("required");
    nodes.await_links((2, 2));
    let (port, is_over) = (nodes.server(1).peer_port, AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut open = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut stranger) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                    // An incomplete record.
                    let _ = stranger.write_all(&[0x16, 3, 1, 2, 0, 1]);
                    open.push(stranger);
                    if open.len() > 100 {
                        open.remove(0);
                    }
                }
            });
        }
        let guard = EndsLoad(&is_over);
        until("strangers are turned away", || nodes.server(1).metric("quorate_strangers_total") > 300);
        let config = fs::read_to_string(nodes.server(3).folder().join("quorate.toml")).unwrap();
        nodes.servers[2].stop();
        nodes.servers.pop();
        // It has a new folder: all that matters here is its links.
        nodes.servers.push(Server::start_node(3, NODES, nodes.base, &config));
        let began = Instant::now();
        until("node 3 gets in", || nodes.links(1).0 == 2);
        println!("it took {:?}", began.elapsed());
        drop(guard);
    });
    assert!(nodes.server(1).log().lines().count() < 60, "{}", nodes.server(1).log());
}
