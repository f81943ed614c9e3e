//! Whatever a link is like, what goes through it comes out: every byte, every end, every reset.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use lab::network::{Gate, Relay};

use super::world::{World, dial, end, pattern, receive, route, send};

/// Links of every kind.
const LINKS: [&str; 5] = [
    "",
    "delay=2ms jitter=1ms",
    "bandwidth=200mbit delay=1ms",
    "bandwidth=10gbit",
    "bandwidth=200mbit delay=1ms loss=0.1% reorder=1%",
];

#[test]
fn bytes_arrive_unchanged() {
    for words in LINKS {
        let world = World::new().both_ways(words);
        let (one, two) = world.connect();
        let data = pattern(3_000_000);
        let sending = [send(&one, data.clone()), send(&two, data.clone())];
        assert!(receive(&two, data.len()) == data, "{words}");
        assert!(receive(&one, data.len()) == data, "{words}");
        for sending in sending {
            sending.join().unwrap();
        }
    }
}

#[test]
fn bytes_arrive_unchanged_while_everything_changes() {
    let world = World::new();
    let (one, two) = world.connect();
    let data = pattern(6_000_000);
    let sending = send(&one, data.clone());
    let mut received = Vec::new();
    let part = data.len() / 12;
    for round in 0..12 {
        world.link(1, 2, LINKS[round % LINKS.len()]);
        let gate = if round % 3 == 1 { Gate::Drop } else { Gate::Open };
        world.gate(if round % 2 == 0 { 1 } else { 2 }, if round % 2 == 0 { 2 } else { 1 }, gate);
        world.gate(1, 2, Gate::Open);
        world.gate(2, 1, Gate::Open);
        received.extend(receive(&two, part));
    }
    assert!(received == data);
    sending.join().unwrap();
}

#[test]
fn closing_one_direction_leaves_the_other_open() {
    for words in LINKS {
        let world = World::new().both_ways(words);
        let (mut one, mut two) = world.connect();
        one.write_all(b"question").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receive(&two, 8), b"question", "{words}");
        assert_eq!(end(&two), None, "{words}");
        two.write_all(b"answer").unwrap();
        drop(two);
        assert_eq!(receive(&one, 6), b"answer", "{words}");
        assert_eq!(end(&one), None, "{words}");
    }
}

fn reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_reset_arrives_as_a_reset_from_either_side() {
    for words in LINKS {
        let world = World::new().both_ways(words);
        let (one, two) = world.connect();
        reset(one);
        assert_eq!(end(&two), Some(ErrorKind::ConnectionReset), "{words}");
        let (one, two) = world.connect();
        reset(two);
        assert_eq!(end(&one), Some(ErrorKind::ConnectionReset), "{words}");
    }
}

#[test]
fn a_reset_after_a_close_arrives_too() {
    for words in LINKS {
        let world = World::new().both_ways(words);
        let (one, two) = world.connect();
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(end(&two), None, "{words}");
        reset(one);
        // It shows when it writes: what it writes next goes nowhere.
        let mut two = &two;
        while two.write_all(&[0; 1_000]).is_ok() {}
    }
}

#[test]
fn connections_to_an_absent_node_are_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Relay::start(1).unwrap();
    let address = route(&relay, 1, 2, &listener);
    drop(listener);
    assert_eq!(end(&dial(address)), Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_sender_is_blocked_when_the_receiver_does_not_read() {
    for words in ["", "delay=1ms", "bandwidth=1gbit delay=5ms"] {
        let world = World::new().both_ways(words);
        let (mut one, two) = world.connect();
        // Until a write makes no progress for so long.
        one.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let part = pattern(64 << 10);
        let (mut taken, most) = (0, 64 << 20);
        while taken < most {
            match one.write(&part[taken % part.len()..]) {
                Ok(count) => taken += count,
                Err(_) => break,
            }
        }
        assert!(taken < most, "{words}: {taken} bytes are somewhere");
        let received = receive(&two, taken);
        assert!(received.chunks(part.len()).all(|chunk| *chunk == part[..chunk.len()]), "{words}");
    }
}

#[test]
fn many_connections_come_and_go() {
    let world = World::new().both_ways("delay=1ms");
    for _ in 0..10 {
        let pairs: Vec<_> = (0..20).map(|_| dial(world.address)).collect();
        for one in &pairs {
            let mut one = one;
            one.write_all(b"x").unwrap();
            one.shutdown(Shutdown::Write).unwrap();
        }
        for _ in &pairs {
            let (two, _) = world.listener.accept().unwrap();
            assert_eq!(receive(&two, 1), b"x");
            assert_eq!(end(&two), None);
        }
        assert!(pairs.iter().all(|one| end(one).is_none()));
    }
}
