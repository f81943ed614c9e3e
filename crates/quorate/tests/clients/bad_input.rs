//! Whatever strangers, broken clients and hostile clients send affects only their own connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use redis::{Commands, Connection};

use crate::support::{Cluster, ask, connect, until};

/// Returns everything until the server closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset closes the connection too.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends bytes over a separate connection, and returns the replies until the server closes it.
fn answer_to(cluster: &Cluster, bytes: &[u8]) -> String {
    let mut stream = cluster.raw(1);
    stream.write_all(bytes).unwrap();
    rest(&mut stream)
}

fn is_served(connection: &mut Connection) -> bool {
    ask(connection, "SET alive 1") == "OK" && ask(connection, "GET alive") == "\"1\""
}

#[test]
fn keys_and_values_over_the_limits_are_refused_and_the_connection_stays_open() {
    let cluster = Cluster::start_with(
        3,
        &["prefix= replication=leader-follower acks=majority"],
        "value_bytes_max = 1000000",
    );
    for id in [1, 2] {
        let mut connection = cluster.client(id);
        let too_long = vec![b'k'; 65_537];
        let refused = connection.set::<_, _, ()>(&too_long, "v").unwrap_err().to_string();
        assert!(refused.contains("key is 65537 bytes long; at most 65536 are allowed"), "{refused}");
        let refused = connection.get::<_, Option<String>>(&too_long).unwrap_err().to_string();
        assert!(refused.contains("key is 65537 bytes long"), "{refused}");
        assert_eq!(
            ask(&mut connection, "SETRANGE k 1000000 x"),
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
        );
        assert_eq!(ask(&mut connection, "SETRANGE k 999999 x"), "1000000");
        assert!(ask(&mut connection, "APPEND k x").starts_with("-ERR"));
        assert!(is_served(&mut connection));
    }
    // As in Redis, an argument longer than the maximum ends the connection.
    let answer = answer_to(&cluster, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000001\r\n");
    assert_eq!(answer, "-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn a_command_with_a_million_arguments_is_executed() {
    let cluster = Cluster::start(3, &["prefix= replication=leader-follower acks=majority"]);
    let mut connection = cluster.client(2);
    let mut command = redis::cmd("MSET");
    (0..500_000).for_each(|number| _ = command.arg(number).arg("v"));
    // On a busy machine this may take so long that the leader changes. The outcome is then unknown, and the
    // request is repeated.
    until("it is carried out", || command.query::<()>(&mut connection).is_ok());
    until("the leader serves", || ask(&mut connection, "DBSIZE") == "500000");
    until("the last key is read", || ask(&mut connection, "GET 499999") == "\"v\"");

    let answer = answer_to(&cluster, b"*1048577\r\n");
    assert_eq!(
        answer, "-ERR Protocol error: invalid multibulk length\r\n",
        "more are refused by their number"
    );
}

#[test]
fn invalid_input_gets_an_error_and_the_connection_is_closed() {
    let cluster = Cluster::start(1, &[]);
    let cases: [(&[u8], &str); 9] = [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*99999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$9999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n$1\r\nabc", "expected a line end"),
        (b"SET \"k\r\n", "unbalanced quotes in request"),
        (&[b'x'; 70_000], "too big inline request"),
    ];
    for (bytes, expected) in cases {
        let answer = answer_to(&cluster, bytes);
        assert!(
            answer.starts_with("-ERR Protocol error: ") && answer.contains(expected),
            "{answer:?}, not {expected}"
        );
    }
    // Requests before the broken one are executed.
    let answer = answer_to(&cluster, b"PING\r\n*1\r\n$-1\r\nPING\r\n");
    assert_eq!(answer, "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n");
    // A negative number of arguments is not a request at all, as in Redis.
    let answer = answer_to(&cluster, b"*-1\r\n*0\r\n\r\nPING\r\nQUIT\r\n");
    assert_eq!(answer, "+PONG\r\n+OK\r\n");
    assert!(is_served(&mut cluster.client(1)));
}

#[test]
fn clients_that_disconnect_within_a_request_are_dropped() {
    let cluster = Cluster::start(1, &[]);
    for number in 0..200 {
        let mut stream = cluster.raw(1);
        let half: [&[u8]; 4] = [b"*3\r\n$3\r\nSET\r\n$1", b"*", b"PI", b"*2\r\n$3\r\nGET\r\n$100000\r\nabc"];
        stream.write_all(half[number % 4]).unwrap();
        if number % 2 == 0 {
            stream.shutdown(Shutdown::Write).unwrap();
        }
    }
    let mut connection = cluster.client(1);
    until("all but one are gone", || ask(&mut connection, "CLIENT LIST").matches("id=").count() == 1);
    assert!(is_served(&mut connection));
}

#[test]
fn a_request_that_arrives_too_slowly_is_closed() {
    let cluster = Cluster::start_with(1, &[], "request_timeout_ms = 300");
    let mut slow = cluster.raw(1);
    let mut other = cluster.client(1);
    // One byte at a time, faster than any timeout for silent connections.
    let request = b"*2\r\n$3\r\nGET\r\n$10000\r\n";
    slow.write_all(request).unwrap();
    until("it is closed", || {
        assert!(is_served(&mut other));
        slow.write_all(b"x").is_err()
    });
}

/// Returns pseudo-random bytes, the same in every run.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn a_stranger_at_the_peer_port_is_refused() {
    let cluster = Cluster::start(3, &["prefix= replication=leader-follower acks=all"]);
    let mut connection = cluster.client(2);
    let mut wrong_secret = Vec::new();
    let identity = wire::handshake::Identity::new("elsewhere", 3, b"a secret that is not theirs").unwrap();
    let (_, hello) = wire::handshake::Dialer::new(identity, [7; 16]);
    wire::frame::append(&mut wrong_secret, |out| out.extend_from_slice(&hello));
    let http = b"GET /get/k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_vec();
    let resp = b"*1\r\n$8\r\nFLUSHALL\r\n".to_vec();
    for bytes in [noise(5000), vec![0; 5000], vec![255; 5000], wrong_secret, http, resp] {
        for id in 1..=3 {
            let mut stream = connect(cluster.peer_port(id));
            let _ = stream.write_all(&bytes);
            assert_eq!(rest(&mut stream), "", "a stranger gets no answer");
            assert!(is_served(&mut connection));
        }
    }
    // Random bytes at the other ports are harmless too.
    for id in 1..=3 {
        for port in [cluster.client_port(id), cluster.http_port(id)] {
            let mut stream = connect(port);
            let _ = stream.write_all(&noise(100_000));
            let _ = stream.shutdown(Shutdown::Write);
            rest(&mut stream);
        }
    }
    assert!(is_served(&mut connection));
    (1..=3).for_each(|id| assert_eq!(cluster.health(id)["ready"], true));
}

/// Sends as much as the node reads from this connection, and never reads. Returns the number of bytes.
fn send_without_reading(stream: &mut TcpStream, request: &[u8], most: usize) -> usize {
    stream.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let (chunk, mut sent) = (request.repeat(64), 0);
    while sent < most {
        match stream.write(&chunk) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    sent
}

#[test]
fn a_client_that_never_reads_costs_little_memory_and_delays_no_other() {
    let cluster = Cluster::start(
        3,
        &[
            "prefix= replication=leader-follower acks=majority",
            "prefix=local: replication=leader-follower acks=none leader=2",
        ],
    );
    let mut connection = cluster.client(2);
    let value = vec![b'v'; 100_000];
    connection.set::<_, _, ()>("large", &value).unwrap();
    connection.set::<_, _, ()>("local:large", &value).unwrap();
    let before = [1, 2].map(|id| cluster.resident_bytes(id));
    // One is forwarded, one is answered by the node itself.
    let requests: [&[u8]; 2] =
        [b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n", b"*2\r\n$3\r\nGET\r\n$11\r\nlocal:large\r\n"];
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut grown = [0; 2];
    for request in requests.repeat(2) {
        let mut stream = cluster.raw(2);
        send_without_reading(&mut stream, request, 20_000_000);
        streams.push(stream);
        assert!(is_served(&mut connection));
        for (node, grown) in grown.iter_mut().enumerate() {
            *grown = (*grown).max(cluster.resident_bytes(node as u16 + 1).saturating_sub(before[node]) >> 20);
        }
    }
    // Unread replies of a client are bounded by its window: 256 requests at first, then 8 MiB of replies. There are
    // four such clients, and buffers grow by doubling.
    assert!(
        grown[0] < 150 && grown[1] < 300,
        "the leader's memory grew by {} MB, its own node's by {}",
        grown[0],
        grown[1]
    );
    assert!((1..=3).all(|id| cluster.health(id)["ready"] == true));
}
