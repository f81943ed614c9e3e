//! Meaningless bytes at all three ports: noise, requests with errors in them, frames of strangers, and abandoned
//! connections.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::bounded::{Cluster, rounds};
use crate::kept::Kept;
use crate::random::Random;
use crate::support::request;

/// The number of connections that each attacker keeps open while it makes others.
const OPEN: usize = 30;

const ATTACKERS: u64 = 4;

/// Numbers to use where a length or a count is expected.
const COUNTS: [&str; 12] = [
    "-1",
    "0",
    "1",
    "1048577",
    "2147483647",
    "2147483648",
    "4294967296",
    "-2147483648",
    "9223372036854775807",
    "18446744073709551616",
    "1e9",
    "",
];

const HTTP: [&str; 5] = [
    "GET /get/junk HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "POST /put HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n{\"key\":\"junk:a\",\"value\":\"v\"}x",
    "POST /put HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx\r\n0\r\n\r\n",
    "DELETE /junk:%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "POST /locks/junk HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999999999999\r\n\r\n{\"owner\":\"x\",\"ttl_ms\":1}",
];

/// Changes, removes or doubles a few bytes.
fn damaged(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes.truncate(at),
            2 => drop(bytes.remove(at)),
            _ => {
                let part = bytes[at..].to_vec();
                bytes.extend(part);
            }
        }
    }
    bytes
}

fn garbage(random: &mut Random) -> Vec<u8> {
    let words: &[&[&[u8]]] = &[
        &[b"SET", b"junk:a", b"value", b"EX", b"100"],
        &[b"HSET", b"junk:h", b"field", b"value"],
        &[b"EVAL", b"return redis.call('get', KEYS[1])", b"1", b"junk:a"],
        &[b"LOCK", b"junk:l", b"me", b"100"],
        &[b"GET", b"junk:a"],
        &[b"MULTI"],
    ];
    let length = random.below(2000);
    match random.below(8) {
        0 => random.bytes(length),
        1 => {
            let words = words[random.below(words.len())];
            damaged(request(words), random)
        }
        2 => {
            let (first, second) = (random.pick(&COUNTS).to_string(), random.pick(&COUNTS).to_string());
            format!("*{first}\r\n${second}\r\nSET\r\n").into_bytes()
        }
        3 => format!("*{}\r\n", random.pick(&COUNTS)).repeat(1 + random.below(50)).into_bytes(),
        4 => damaged(random.pick(&HTTP).as_bytes().to_vec(), random),
        5 => {
            // A frame as a stranger may send it, with a correct checksum, or as peers send it.
            let mut bytes = Vec::new();
            let payload = random.bytes(length % 1024);
            match random.below(2) {
                0 => wire::greeting::append(&mut bytes, |out| out.extend_from_slice(&payload)),
                _ => wire::frame::append(&mut bytes, |out| out.extend_from_slice(&payload)),
            }
            bytes
        }
        6 => {
            let secret = b"not the secret of these nodes";
            let identity = wire::handshake::Identity::new("test", 2, secret).unwrap();
            let (_, hello) = wire::handshake::Dialer::new(identity, [7; 16]);
            let mut bytes = Vec::new();
            wire::greeting::append(&mut bytes, |out| out.extend_from_slice(&hello));
            if random.below(2) == 0 { damaged(bytes, random) } else { bytes }
        }
        _ => Vec::new(),
    }
}

/// Makes connections one after the other, sends meaningless bytes on each, and leaves some open for a while.
fn attack(ports: &[u16], seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let mut open: VecDeque<TcpStream> = VecDeque::new();
    for _ in 0..count {
        let port = *random.pick(ports);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // A node may refuse a client that connects too often.
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else { continue };
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = stream.write_all(&garbage(&mut random));
        match random.below(3) {
            0 => drop(stream),
            1 => _ = stream.shutdown(Shutdown::Write),
            _ => open.push_back(stream),
        }
        if open.len() > OPEN {
            open.pop_front();
        }
    }
}

#[test]
fn garbage_at_every_port_does_no_harm() {
    let mut cluster = Cluster::start(3, "");
    let kept = Kept::write(&cluster, 3, 300);
    let ports: Vec<u16> = (1..=3)
        .flat_map(|id| [cluster.client_port(id), cluster.http_port(id), cluster.peer_port(id)])
        .collect();
    std::thread::scope(|scope| {
        for seed in 0..ATTACKERS {
            let ports = &ports;
            scope.spawn(move || attack(ports, seed, rounds(750, 6500)));
        }
    });
    cluster.assert_takes_writes();
    (1..=3).for_each(|id| kept.assert_at(&cluster, id));
}

/// Many connections send nothing or half of something, and stay open.
#[test]
fn many_silent_connections_do_no_harm() {
    let mut cluster = Cluster::start(3, "");
    let kept = Kept::write(&cluster, 3, 100);
    let mut crowd = Vec::new();
    for number in 0..rounds(600, 4000) {
        let id = number as u16 % 3 + 1;
        let ports = [cluster.client_port(id), cluster.http_port(id), cluster.peer_port(id)];
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[number / 3 % 3]));
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else { continue };
        let beginnings: [&[u8]; 4] = [b"", b"*2\r\n$3\r\nGE", b"GET /health HTTP/1.1\r\nHo", &[200, 0, 0, 0]];
        let _ = stream.write_all(beginnings[number / 9 % 4]);
        crowd.push(stream);
    }
    cluster.assert_takes_writes();
    (1..=3).for_each(|id| kept.assert_at(&cluster, id));
    drop(crowd);
    cluster.assert_takes_writes();
}
