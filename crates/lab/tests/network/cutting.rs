//! Links that are cut, in either direction, and heal.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use lab::network::Gate;

use super::world::{World, dial, echo, end, is_silent, pattern, receive, round_trip, send};

#[test]
fn what_is_sent_over_a_cut_link_arrives_once_it_is_healed() {
    for words in ["", "delay=1ms"] {
        let world = World::new().both_ways(words);
        let (mut one, mut two) = world.connect();
        world.gate(1, 2, Gate::Drop);
        one.write_all(b"there").unwrap();
        two.write_all(b"back").unwrap();
        assert!(is_silent(&two));
        assert_eq!(receive(&one, 4), b"back", "the other way is open");
        world.gate(1, 2, Gate::Open);
        assert_eq!(receive(&two, 5), b"there");
    }
}

#[test]
fn the_open_direction_of_a_half_cut_link_stops_for_lack_of_acknowledgements() {
    for words in ["", "delay=1ms"] {
        let world = World::new().both_ways(words);
        let (one, two) = world.connect();
        world.gate(2, 1, Gate::Drop);
        let data = pattern(200_000);
        let sending = send(&one, data.clone());
        let window = 64 << 10;
        assert_eq!(receive(&two, window), data[..window]);
        assert!(is_silent(&two));
        world.gate(2, 1, Gate::Open);
        assert_eq!(receive(&two, data.len() - window), data[window..]);
        sending.join().unwrap();
    }
}

#[test]
fn a_connection_over_a_cut_link_is_established_once_it_is_healed() {
    for (from, to) in [(1, 2), (2, 1)] {
        let world = World::new();
        world.gate(from, to, Gate::Drop);
        let one = dial(world.address);
        world.listener.set_nonblocking(true).unwrap();
        assert!(is_silent(&one));
        assert!(world.listener.accept().is_err(), "it came through a cut link");
        world.listener.set_nonblocking(false).unwrap();
        world.gate(from, to, Gate::Open);
        let (two, _) = world.listener.accept().unwrap();
        let answering = echo(two);
        round_trip(&one);
        drop(one);
        answering.join().unwrap();
    }
}

#[test]
fn a_rejecting_link_resets_open_connections_and_refuses_new_ones() {
    for (from, to) in [(1, 2), (2, 1)] {
        let world = World::new().both_ways("delay=1ms");
        let (one, two) = world.connect();
        world.gate(from, to, Gate::Reject);
        assert_eq!(end(&one), Some(ErrorKind::ConnectionReset));
        assert_eq!(end(&two), Some(ErrorKind::ConnectionReset));
        let refused = TcpStream::connect(world.address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        world.gate(from, to, Gate::Open);
        let (one, two) = world.connect();
        let answering = echo(two);
        round_trip(&one);
        drop(one);
        answering.join().unwrap();
    }
}

#[test]
fn a_close_waits_at_a_cut_link_like_bytes() {
    let world = World::new();
    let (mut one, two) = world.connect();
    world.gate(1, 2, Gate::Drop);
    one.write_all(b"last words").unwrap();
    drop(one);
    assert!(is_silent(&two));
    world.gate(1, 2, Gate::Open);
    assert_eq!(receive(&two, 10), b"last words");
    assert_eq!(end(&two), None);
}
