//! The peer port: only nodes that know the cluster's secret are accepted, and strangers do no harm.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::network::{Bandwidth, Interface};
use lab::systems::{Children, Quorate, Relayed, Running, System as _};
use wire::handshake::{Dialer, Identity, PAYLOAD_BYTES_MAX, VERSION};
use wire::seal::Session;
use wire::{frame, greeting};

use super::support::{
    Client, PATIENCE, SECRET, Server, configuration, connect, free_ports, http, request, until,
};

/// Starts node 1 of a cluster of two; the test acts as node 2.
fn node_with_a_missing_peer() -> Server {
    Server::start_one_of_two(1, free_ports(6))
}

fn send(stream: &mut TcpStream, payload: &[u8]) {
    let mut bytes = Vec::new();
    greeting::append(&mut bytes, |out| out.extend_from_slice(payload));
    stream.write_all(&bytes).unwrap();
}

/// Returns the next frame, or `None` when the other side closes.
fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match greeting::next(&bytes, PAYLOAD_BYTES_MAX).unwrap() {
            greeting::Next::Frame { payload, .. } => return Some(payload.to_vec()),
            greeting::Next::Incomplete { needed } => {
                let start = bytes.len();
                bytes.resize(start + needed, 0);
                stream.read_exact(&mut bytes[start..]).ok()?;
            }
        }
    }
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

#[test]
fn garbage_closes_only_that_connection() {
    let server = node_with_a_missing_peer();
    let mut client = server.client();
    for garbage in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 64], &[0xff; 4096], b"*1\r\n$4\r\nPING\r\n"]
    {
        let mut stranger = connect(server.peer_port);
        stranger.write_all(garbage).unwrap();
        assert!(is_closed(&mut stranger));
        assert_eq!(client.ask("PING"), "+PONG");
    }
    let turned_away = || server.log().matches("at the peer port was turned away").count();
    until("all are logged", || turned_away() >= 4);
    assert_eq!(turned_away(), 4);
    assert_eq!(server.metric("quorate_strangers_total"), 4);
}

#[test]
fn a_node_of_another_cluster_is_refused() {
    let server = node_with_a_missing_peer();
    let mut stranger = connect(server.peer_port);
    let (_, hello) = Dialer::new(Identity::new("another", 2, SECRET.as_bytes()).unwrap(), [7; 16]);
    send(&mut stranger, &hello);
    assert_eq!(receive(&mut stranger), None);
    until("it is logged", || server.log().contains("the peer belongs to cluster 'another'"));
}

#[test]
fn a_peer_without_the_secret_is_refused() {
    let base = free_ports(6);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 2)).unwrap();
    let second = Server::start_one_of_two(2, base);
    // Node 2 dials the test, which acts as node 1, and dials again after each failure.
    let mut cluster = String::new();
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        let hello = receive(&mut stream).expect("a Hello");
        cluster = cluster_in(&hello);
        // Without the secret, the test cannot check the Hello. It sends what a node would send.
        let mut challenge = vec![2];
        challenge.extend_from_slice(&VERSION.to_le_bytes());
        challenge.extend_from_slice(&1_u16.to_le_bytes());
        challenge.extend_from_slice(&[9; 16 + 32]);
        send(&mut stream, &challenge);
        assert_eq!(receive(&mut stream), None, "who has not proved himself gets no proof");
    }
    until("it is logged", || second.log().contains("does not have this cluster's secret"));
    assert_eq!(second.client().ask("PING"), "+PONG");

    // In the other direction, the test dials node 1 of a cluster of the same name.
    let first = node_with_a_missing_peer();
    let mut stranger = connect(first.peer_port);
    let (_, hello) =
        Dialer::new(Identity::new(&cluster, 2, b"another secret, long enough").unwrap(), [7; 16]);
    send(&mut stranger, &hello);
    assert_eq!(receive(&mut stranger), Some(vec![7]), "a notice, and not even a Challenge");
    assert_eq!(receive(&mut stranger), None);
    until("it is logged", || first.log().contains("does not have this cluster's secret"));
}

#[test]
fn a_silent_stranger_is_closed_after_a_while() {
    let server = node_with_a_missing_peer();
    let mut silent = connect(server.peer_port);
    let mut half = connect(server.peer_port);
    half.write_all(&[20, 0, 0, 0, 1]).unwrap();
    assert_eq!(receive(&mut silent), None);
    assert_eq!(receive(&mut half), None);
    until("it is logged", || server.log().contains("the handshake took too long"));
}

#[test]
fn too_many_strangers_are_refused_and_clients_served() {
    let server = node_with_a_missing_peer();
    let crowd: Vec<TcpStream> = (0..200).map(|_| connect(server.peer_port)).collect();
    until("some are turned away", || server.metric("quorate_strangers_total") >= 100);
    assert_eq!(server.client().ask("PING"), "+PONG");
    drop(crowd);
}

#[test]
fn a_flood_of_strangers_does_not_flood_the_log() {
    let server = node_with_a_missing_peer();
    for _ in 0..100 {
        let mut stranger = connect(server.peer_port);
        stranger.write_all(b"nonsense nonsense nonsense").unwrap();
        assert!(is_closed(&mut stranger));
    }
    assert!(server.log().lines().count() < 30, "{}", server.log());
}

/// Takes the cluster's name from a Hello: kind, eight magic bytes, version, then the name with its length.
fn cluster_in(hello: &[u8]) -> String {
    let length = u32::from_le_bytes(hello[11..15].try_into().unwrap()) as usize;
    String::from_utf8(hello[15..15 + length].to_vec()).unwrap()
}

/// Returns the identity of node 2 in the cluster of this node 1.
fn second(server: &Server, cluster: &str) -> Identity {
    let identity = Identity::new(cluster, 2, SECRET.as_bytes()).unwrap();
    identity.reached_at_port(server.peer_port + 3)
}

/// Opens a connection to a node on which the test has authenticated as node 2, byte by byte.
fn linked(server: &Server, cluster: &str) -> (TcpStream, Session) {
    let mut stream = connect(server.peer_port);
    let (dialer, hello) = Dialer::new(second(server, cluster), [7; 16]);
    let mut bytes = Vec::new();
    greeting::append(&mut bytes, |out| out.extend_from_slice(&hello));
    stream.set_nodelay(true).unwrap();
    for byte in bytes {
        stream.write_all(&[byte]).unwrap();
    }
    let challenge = receive(&mut stream).expect("a Challenge");
    let (proof, id, session) = dialer.on_challenge(&challenge, |id| id == 1).unwrap();
    assert_eq!(id, 1);
    send(&mut stream, &proof);
    (stream, session)
}

#[test]
fn a_peer_is_linked_a_newer_link_replaces_the_older_and_nonsense_ends_it() {
    let server = node_with_a_missing_peer();
    let cluster = cluster_of_two();
    let links = || server.metric("quorate_peer_links");

    let (mut older, _) = linked(&server, &cluster);
    until("the link is up", || links() == 1);
    let (mut newer, mut session) = linked(&server, &cluster);
    assert!(is_closed(&mut older));
    assert_eq!(links(), 1);

    let mut bytes = Vec::new();
    frame::append(&mut bytes, |out| out.extend_from_slice(b"no message of a peer"));
    session.sealer.seal(&mut bytes);
    newer.write_all(&bytes).unwrap();
    assert!(is_closed(&mut newer));
    until("the link is down", || links() == 0);
    until("it is logged", || server.log().contains("link to node 2 is down: a message cannot be read"));
    assert_eq!(server.client().ask("PING"), "+PONG");
}

#[test]
fn a_node_with_another_port_than_the_cluster_knows_is_refused() {
    let server = node_with_a_missing_peer();
    let mut copy = connect(server.peer_port);
    let identity = second(&server, &cluster_of_two()).reached_at_port(server.peer_port + 4);
    let (_, hello) = Dialer::new(identity, [7; 16]);
    send(&mut copy, &hello);
    assert_eq!(receive(&mut copy), None);
    until("it is logged", || server.log().contains("is it a copy of that node?"));
}

#[test]
fn a_peer_is_found_by_the_name_of_its_host() {
    let base = free_ports(6);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 2)).unwrap();
    // The name may also have an IPv6 address, where no process listens: the other address is tried next.
    let _second = Server::start_one_of_two_at("localhost", 2, base);
    let (mut stream, _) = listener.accept().unwrap();
    assert!(receive(&mut stream).is_some(), "a Hello");
}

/// Returns the name that the nodes of [`Server::start_one_of_two`] use for their cluster.
fn cluster_of_two() -> String {
    let base = free_ports(6);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 2)).unwrap();
    let _second = Server::start_one_of_two(2, base);
    let (mut stream, _) = listener.accept().unwrap();
    cluster_in(&receive(&mut stream).expect("a Hello"))
}

/// Two nodes get 1 MB each over an interface with 10 Mbit/s: that takes 1.6 s, during which heartbeats continue. With
/// three times the usual timeouts, a leader whose heartbeats do not arrive is deposed after half a second. If
/// heartbeats waited behind values, that would happen each time; a machine occasionally stalls for that long, so one
/// of three attempts must succeed.
#[test]
fn a_large_value_on_a_slow_network_does_not_depose_its_leader() {
    let folder = tempfile::tempdir().unwrap();
    let quorate = Quorate::new(Path::new(env!("CARGO_BIN_EXE_quorate")), 3, "replication=consensus leader=1")
        .with_limits(&[("patience", 3)]);
    let system = Relayed::new(Box::new(quorate), 1);
    let children = Children::default();
    let running = Running::start(&system, &folder.path().join("work"), &children).unwrap();
    let epoch = || {
        let health = http(running.http()[0].port(), "GET /health HTTP/1.1", "").1;
        serde_json::from_str::<serde_json::Value>(&health).unwrap()["keyspaces"][0]["epoch"].as_u64()
    };
    let mut client = Client::connect(running.resp()[0].port());
    assert_eq!(client.ask("SET small value"), "+OK");

    let slow = Some(Bandwidth::megabits(10));
    let relay = system.relay().unwrap();
    for node in 1..=3 {
        relay.set_interface(node, Interface { up: slow, down: slow }).unwrap();
    }
    let value = vec![b'x'; 1_000_000];
    let mut observed = Vec::new();
    let mut keeps_leader = || {
        let led = epoch();
        let replies: Vec<String> = (0..3)
            .map(|_| {
                client.send(request(&[b"SET", b"large", &value]));
                client.line()
            })
            .collect();
        let is_kept = epoch() == led && replies.iter().all(|reply| reply == "+OK");
        observed.push((led, epoch(), replies));
        is_kept
    };
    let goes_well = (0..3).any(|_| keeps_leader());
    assert!(goes_well, "leaders are deposed: epochs before and after, and replies: {observed:?}");
}

/// A thread that connects to a port, sends something or nothing, and disconnects, repeatedly.
struct Flood {
    is_over: Arc<AtomicBool>,
    connected: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn start(port: u16) -> Flood {
        let (is_over, connected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let flood = |says: &'static [u8]| {
            let (is_over, connected) = (Arc::clone(&is_over), Arc::clone(&connected));
            std::thread::spawn(move || {
                // Some stay open, so that places are occupied.
                let mut stay = VecDeque::new();
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut stranger) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                    let _ = stranger.write_all(says);
                    connected.fetch_add(1, Ordering::Relaxed);
                    stay.push_back(stranger);
                    if stay.len() > 200 {
                        stay.pop_front();
                    }
                }
            })
        };
        let threads = [&b""[..], b"", b"nonsense nonsense", &[20, 0, 0, 0, 1]].map(flood).into();
        Flood { is_over, connected, threads }
    }

    /// Stops it, and returns how many connections it made.
    fn stop(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.connected.load(Ordering::Relaxed)
    }
}

/// All come from one address, the peer's, which is the worst case: otherwise a peer's address has separate places.
#[test]
fn a_peer_connects_within_a_second_while_strangers_flood_its_port() {
    let server = node_with_a_missing_peer();
    let cluster = cluster_of_two();
    let flood = Flood::start(server.peer_port);
    until("the flood is there", || flood.connected.load(Ordering::Relaxed) > 2000);
    // The median of five, as a busy machine may stall for that long.
    let mut took: Vec<Duration> = (0..5)
        .map(|_| {
            let begin = Instant::now();
            while !is_linked(&server, &cluster) {
                assert!(begin.elapsed() < PATIENCE, "the peer does not get in");
            }
            begin.elapsed()
        })
        .collect();
    let connected = flood.stop();
    took.sort_unstable();
    println!("{connected} strangers; the peer took {took:?}");
    assert!(took[2] < Duration::from_secs(1), "{took:?}");
    assert!(server.log().lines().count() < 40, "{}", server.log());
}

/// Whether a peer that dials once completes the handshake and receives a frame from the node.
fn is_linked(server: &Server, cluster: &str) -> bool {
    let mut stream = connect(server.peer_port);
    let (dialer, hello) = Dialer::new(second(server, cluster), [7; 16]);
    let mut bytes = Vec::new();
    greeting::append(&mut bytes, |out| out.extend_from_slice(&hello));
    // On a busy machine a node is this slow.
    std::thread::sleep(Duration::from_millis(5));
    if stream.write_all(&bytes).is_err() {
        return false;
    }
    let Some(challenge) = receive_or_end(&mut stream) else { return false };
    let (proof, _, _) = dialer.on_challenge(&challenge, |id| id == 1).unwrap();
    bytes.clear();
    greeting::append(&mut bytes, |out| out.extend_from_slice(&proof));
    stream.write_all(&bytes).is_ok() && stream.read_exact(&mut [0; 1]).is_ok()
}

/// As [`receive`], for a connection that may be reset.
fn receive_or_end(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match greeting::next(&bytes, PAYLOAD_BYTES_MAX).ok()? {
            greeting::Next::Frame { payload, .. } => return Some(payload.to_vec()),
            greeting::Next::Incomplete { needed } => {
                let start = bytes.len();
                bytes.resize(start + needed, 0);
                stream.read_exact(&mut bytes[start..]).ok()?;
            }
        }
    }
}

#[test]
fn a_wrong_secret_is_told_on_both_sides() {
    let base = free_ports(6);
    let first = Server::start_one_of_two(1, base);
    let config = configuration(base, 2, "", "").replace("node = 1\n", "node = 2\n");
    let second = Server::start_node(2, 2, base, &config.replace(SECRET, "another secret, long enough"));
    until("the one that is dialled tells it", || {
        first.log().contains("does not have this cluster's secret: compare")
    });
    until("the one that dials tells it", || {
        second.log().contains("this node does not have its cluster's secret: compare")
    });
}
