//! Bandwidth, delay and chance. Least times are exact, since the relay is never early. A busy machine may make anything
//! late, though: where a most time matters, one try that keeps it shows that the relay does not add to it.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use lab::network::{Bandwidth, Interface, Traffic};

use super::world::{World, echo, pattern, receive, round_trip, route, send};

#[test]
fn a_link_carries_as_much_as_its_bandwidth() {
    let world = World::new().both_ways("bandwidth=20mbit");
    let data = pattern(1_250_000);
    let mut tries = (0..5).map(|_| {
        let (one, two) = world.connect();
        let start = Instant::now();
        let sending = send(&one, data.clone());
        assert_eq!(receive(&two, data.len()), data);
        let took = start.elapsed();
        sending.join().unwrap();
        assert!(took >= Duration::from_millis(500), "faster than the link: {took:?}");
        took
    });
    assert!(tries.any(|took| took < Duration::from_millis(1_000)), "half the bandwidth or less, five times");
}

#[test]
fn a_change_of_bandwidth_takes_effect_at_once() {
    let world = World::new().both_ways("bandwidth=100kbit");
    let (one, two) = world.connect();
    let data = pattern(1_250_000);
    let sending = send(&one, data.clone());
    // It would take 100 s.
    receive(&two, 1);
    world.link(1, 2, "bandwidth=40mbit");
    let start = Instant::now();
    assert_eq!(receive(&two, data.len() - 1), data[1..]);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    sending.join().unwrap();
}

#[test]
fn the_links_of_a_node_share_its_interface_fairly() {
    let world = World::new();
    let third = TcpListener::bind("127.0.0.1:0").unwrap();
    let to_3 = route(&world.relay, 1, 3, &third);
    world.relay.set_interface(1, Interface { up: Some(Bandwidth::megabits(20)), down: None }).unwrap();
    let (to_2, two) = world.connect();
    let to_3 = super::world::dial(to_3);
    let (three, _) = third.accept().unwrap();
    let data = pattern(625_000);
    let start = Instant::now();
    let sending = [send(&to_2, data.clone()), send(&to_3, data.clone())];
    let first = std::thread::spawn({
        let data = data.clone();
        move || {
            assert_eq!(receive(&two, data.len()), data);
            start.elapsed()
        }
    });
    assert_eq!(receive(&three, data.len()), data);
    let second = start.elapsed();
    let first = first.join().unwrap();
    assert!(first.max(second) >= Duration::from_millis(500), "{first:?} {second:?}");
    // Alone, either would take half of that; one after the other, the first would be done then.
    assert!(first.min(second) > Duration::from_millis(400), "{first:?} {second:?}");
    for sending in sending {
        sending.join().unwrap();
    }
}

#[test]
fn every_message_is_late_by_the_delay_and_not_by_much_more() {
    let world = World::new().both_ways("delay=20ms");
    let (one, two) = world.connect();
    let answering = echo(two);
    let trips: Vec<Duration> = (0..15).map(|_| round_trip(&one)).collect();
    assert!(trips.iter().all(|trip| *trip >= Duration::from_millis(40)), "{trips:?}");
    // A delay that counted twice one way would make it 60 ms.
    let least = trips.into_iter().min();
    assert!(least < Some(Duration::from_millis(50)), "{least:?}");
    drop(one);
    answering.join().unwrap();
}

#[test]
fn connecting_takes_a_round_trip() {
    let world = World::new().both_ways("delay=30ms");
    let start = Instant::now();
    let (one, two) = world.connect();
    let answering = echo(two);
    round_trip(&one);
    // One for the connection, one for the message.
    assert!(start.elapsed() >= Duration::from_millis(120));
    drop(one);
    answering.join().unwrap();
}

#[test]
fn a_slow_direction_does_not_slow_the_other() {
    let world = World::new();
    world.link(1, 2, "bandwidth=1mbit delay=50ms");
    let (one, two) = world.connect();
    let data = pattern(4_000_000);
    let start = Instant::now();
    let sending = send(&two, data.clone());
    assert_eq!(receive(&one, data.len()), data);
    // The other way it would take 32 s.
    assert!(start.elapsed() < Duration::from_secs(8));
    sending.join().unwrap();
}

/// What chance did to a number of messages, each of one packet.
fn chance(seed: u64) -> Traffic {
    let world = World::seeded(seed);
    world.link(1, 2, "delay=1ms jitter=1ms reorder=10% loss=2%");
    let (one, two) = world.connect();
    let answering = echo(two);
    for _ in 0..150 {
        round_trip(&one);
    }
    drop(one);
    answering.join().unwrap();
    world.relay.traffic().unwrap()[0].traffic
}

#[test]
fn the_same_seed_does_the_same_to_the_same_packets() {
    let first = chance(7);
    assert_eq!(first, chance(7));
    assert!(first.lost > 0 && first.reordered > 0, "{first:?}");
    assert_ne!(first.later_ns, chance(8).later_ns);
}
