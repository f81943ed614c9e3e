//! Links that carry one way only: a node hears the others and is not heard, or the other way round.

use std::net::{Ipv4Addr, SocketAddr};

use super::assert_linearizable;
use super::bare::Bare;
use super::recorder::Recorder;
use super::relay::{FRONT, Relay};

/// Node 1 leads first where leaders are appointed, and the others reach it through a relay.
const KEYSPACES: &str = r#"
[[keyspace]]
prefix = "all:"
replication = "leader-follower"
acks = "all"

[[keyspace]]
prefix = "most:"
replication = "leader-follower"
"#;

const KEYS: [&str; 6] = ["a", "b", "all:a", "all:b", "most:a", "most:b"];

fn one_way_only(hold: impl Fn(&Relay, bool)) {
    // The first entry is node 1's, which listens on 127.0.0.1 all the same.
    let through_relay =
        |config: String, _| config.replacen("host = \"127.0.0.1\"", &format!("host = \"{FRONT}\""), 1);
    let mut bare = Bare::new(KEYSPACES, through_relay);
    let peer_port = bare.client_port(1) + 2;
    let behind = SocketAddr::from((Ipv4Addr::LOCALHOST, peer_port));
    let Some(relay) = Relay::start(SocketAddr::from((FRONT, peer_port)), behind) else {
        println!("skipped: this machine has no address {FRONT} for the relay");
        return;
    };
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    let ports: Vec<u16> = (1..=3).map(|node| bare.client_port(node)).collect();
    let recorder = Recorder::start(&ports, 6, &KEYS);
    recorder.wait_for(300);
    hold(&relay, true);
    recorder.wait_for(600);
    bare.wait_until_ready(&[2, 3]);
    recorder.wait_for(300);
    hold(&relay, false);
    bare.wait_until_ready(&[1, 2, 3]);
    recorder.wait_for(300);
    assert_linearizable(&recorder.stop());
}

#[test]
fn a_leader_that_is_heard_by_nobody_is_replaced() {
    one_way_only(Relay::mute);
}

#[test]
fn a_leader_that_hears_nobody_is_replaced() {
    one_way_only(Relay::deafen);
}
