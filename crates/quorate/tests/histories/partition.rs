//! Links that work in one direction only: a node receives and its own messages are lost, or vice versa.

use std::net::{Ipv4Addr, SocketAddr};

use lab::network::{Gate, Relay, Route};

use super::assert_linearizable;
use super::bare::Bare;
use super::recorder::Recorder;
use super::support::free_ports;

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

/// Opens or cuts the direction from node 1, or the direction to node 1.
fn one_way_only(cut: impl Fn(&Relay, Gate)) {
    let relay = Relay::start(1).unwrap();
    let fronts = free_ports(2);
    // Nodes 2 and 3 dial node 1, each through a relay port of its own. Node 1 dials no other node.
    let dial = |node: u16| {
        format!("[[dial]]\nnode = 1\nhost = \"127.0.0.1\"\nport = {}\n\n[[nodes]]", fronts + node - 2)
    };
    let through_relay = |config: String, node| match node {
        1 => config,
        node => config.replacen("[[nodes]]", &dial(node), 1),
    };
    let mut bare = Bare::new(KEYSPACES, through_relay);
    for from in [2, 3] {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, fronts + from - 2));
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, bare.client_port(1) + 2));
        relay.add_route(Route { from, to: 1, listen, target }).unwrap();
    }
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    let ports: Vec<u16> = (1..=3).map(|node| bare.client_port(node)).collect();
    let recorder = Recorder::start(&ports, 6, &KEYS);
    recorder.wait_for(300);
    cut(&relay, Gate::Drop);
    recorder.wait_for(600);
    bare.wait_until_ready(&[2, 3]);
    recorder.wait_for(300);
    cut(&relay, Gate::Open);
    bare.wait_until_ready(&[1, 2, 3]);
    recorder.wait_for(300);
    assert_linearizable(&recorder.stop());
    let traffic = relay.traffic().unwrap();
    assert!(traffic.iter().all(|it| it.traffic.bytes > 10_000), "a link went another way: {traffic:?}");
}

#[test]
fn a_leader_whose_messages_reach_no_node_is_replaced() {
    one_way_only(|relay, gate| [2, 3].iter().for_each(|other| relay.set_gate(1, *other, gate).unwrap()));
}

#[test]
fn a_leader_that_receives_no_messages_is_replaced() {
    one_way_only(|relay, gate| [2, 3].iter().for_each(|other| relay.set_gate(*other, 1, gate).unwrap()));
}
