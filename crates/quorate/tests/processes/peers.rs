//! The peer port: only who knows the cluster's secret gets in, and nobody else does harm.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use wire::frame;
use wire::handshake::{Acceptor, Dialer, Identity, PAYLOAD_BYTES_MAX};

use super::support::{SECRET, Server, connect, free_ports, until};

/// Node 1 of a cluster of two; node 2 is the test.
fn node_with_a_missing_peer() -> Server {
    Server::start_in(tempfile::tempdir().unwrap(), free_ports(6), 2, "", "")
}

fn send(stream: &mut TcpStream, payload: &[u8]) {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, |out| out.extend_from_slice(payload));
    stream.write_all(&bytes).unwrap();
}

/// The next frame, or none when the other side closes.
fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match frame::next(&bytes, PAYLOAD_BYTES_MAX).unwrap() {
            frame::Next::Frame { payload, .. } => return Some(payload.to_vec()),
            frame::Next::Incomplete { needed } => {
                let start = bytes.len();
                bytes.resize(start + needed, 0);
                stream.read_exact(&mut bytes[start..]).ok()?;
            }
        }
    }
}

fn is_closed(stream: &mut TcpStream) -> bool {
    // Bytes that were sent before the end may come first.
    stream.read_to_end(&mut Vec::new()).is_ok()
        || stream.peer_addr().is_err()
        || stream.take_error().is_ok()
}

/// What a node with another secret than the cluster's says.
fn hello(cluster: &str, node: u16, secret: &str) -> (Dialer, Vec<u8>) {
    Dialer::new(Identity::new(cluster, node, secret.as_bytes()).unwrap(), [7; 16])
}

#[test]
fn garbage_closes_that_connection_alone() {
    let server = node_with_a_missing_peer();
    let mut client = server.client();
    for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 64], &[0xff; 4096], b"*1\r\n$4\r\nPING\r\n"] {
        let mut stranger = connect(server.peer_port);
        stranger.write_all(garbage).unwrap();
        assert!(is_closed(&mut stranger));
        assert_eq!(client.ask("PING"), "+PONG");
    }
    let log = server.log();
    assert_eq!(log.matches("at the peer port was turned away").count(), 4, "{log}");
    assert_eq!(server.metric("quorate_strangers_total"), 4);
}

#[test]
fn a_wrong_secret_is_refused_after_the_challenge() {
    let server = node_with_a_missing_peer();
    // The node's own name for its cluster is not known here; any other is refused at once.
    let mut stranger = connect(server.peer_port);
    let (_, hello) = hello("another cluster", 2, SECRET);
    send(&mut stranger, &hello);
    assert_eq!(receive(&mut stranger), None);
    until("it is logged", || server.log().contains("belongs to cluster 'another cluster'"));
}

#[test]
fn a_stranger_that_says_nothing_is_closed_after_a_while() {
    let server = node_with_a_missing_peer();
    let mut silent = connect(server.peer_port);
    let mut half = connect(server.peer_port);
    half.write_all(&[20, 0, 0, 0, 1]).unwrap();
    assert_eq!(receive(&mut silent), None);
    assert_eq!(receive(&mut half), None);
    assert!(server.log().contains("the handshake took too long"));
}

#[test]
fn too_many_strangers_are_turned_away_and_clients_served() {
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

#[test]
fn a_node_that_cannot_be_reached_is_dialled_again() {
    // Node 2 of two dials node 1, which is the test.
    let base = free_ports(6);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as_second(folder, base);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 2)).unwrap();
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        let dialled = receive(&mut stream).expect("a Hello");
        // The name of the cluster stands in the Hello: answer as the node would, with a wrong secret.
        let cluster = cluster_in(&dialled);
        let identity = Identity::new(&cluster, 1, b"another secret, long enough").unwrap();
        let challenge = Acceptor::new(identity, [9; 16]).on_hello(&dialled, |_| true).unwrap();
        send(&mut stream, &challenge);
        assert_eq!(receive(&mut stream), None, "a node that has not proved itself gets no proof");
    }
    until("it is logged", || server.log().contains("does not have this cluster's secret"));
    assert_eq!(server.client().ask("PING"), "+PONG");
}

/// The cluster's name out of a Hello: kind, eight magic bytes, version, then the name with its length.
fn cluster_in(hello: &[u8]) -> String {
    let length = u32::from_le_bytes(hello[11..15].try_into().unwrap()) as usize;
    String::from_utf8(hello[15..15 + length].to_vec()).unwrap()
}
