//! Why there are the rules about fragments: each test passes, and fails if one rule is left out.

use crate::support::{Client, Cluster, assert_error, setup};
use protocol::planted::{Fault, Planted};

fn five(fault: Option<Fault>) -> Cluster {
    let planted = fault.map(Planted::one).unwrap_or_default();
    let plant = |configuration: &mut node::Configuration| configuration.planted = planted;
    setup(5, &["prefix= replication=consensus coding=3 coding_threshold=100"]).with(plant).start()
}

fn large() -> String {
    "v".repeat(3000)
}

fn insist(cluster: &mut Cluster, client: Client, request: &str) {
    cluster.until("it is done", |cluster| cluster.ask(client, request) == "OK");
}

/// Two nodes get no fragment, and two others die once the write is acknowledged. The remaining nodes are a majority.
fn majority_after_a_write(fault: Option<Fault>) -> String {
    let mut cluster = five(fault);
    let client = cluster.client(1);
    [4, 5].into_iter().for_each(|node| cluster.pause(node));
    assert_eq!(cluster.ask(client, &format!("SET k {}", large())), "OK");
    // Messages in flight to these nodes are lost.
    for node in [4, 5] {
        (1..=3).for_each(|other| cluster.break_link(other, node));
    }
    [2, 3].into_iter().for_each(|node| cluster.kill(node));
    for node in [4, 5] {
        cluster.mend_link(1, node);
        cluster.go_on(node);
    }
    cluster.kill(1);
    cluster.restart(1);
    let client = cluster.client(4);
    insist(&mut cluster, client, "SET after v");
    cluster.ask(client, "GET k")
}

#[test]
fn a_value_is_ordered_only_when_any_majority_can_restore_it() {
    assert_eq!(majority_after_a_write(None), format!("\"{}\"", large()));
    let lost = majority_after_a_write(Some(Fault::CodedOnBareMajority));
    assert!(lost.starts_with("-CLUSTERDOWN NOQUORUM"), "{lost}");
}

/// The digest of the whole value shows an error, and then the digests of the pieces show where it is.
#[test]
fn a_value_is_rebuilt_from_the_undamaged_pieces() {
    for damaged in 1..=3 {
        let mut cluster = five(None);
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, &format!("SET k {}", large())), "OK");
        cluster.settle();
        (2..2 + damaged).for_each(|node| cluster.damage_frames_of(node));
        let reader = cluster.client(5);
        let answer = cluster.ask(reader, "GET k");
        match damaged {
            3 => assert_error(&answer, "NOQUORUM"),
            _ => assert_eq!(answer, format!("\"{}\"", large()), "the pieces of {damaged} nodes are damaged"),
        }
        let info = cluster.ask(reader, "INFO coding");
        assert!(!info.contains("coded_pieces_damaged:0"), "node 2 was asked: {info}");
    }
}

/// The command that stores a value waits at a paused node until the value has been given up.
fn late_command(fault: Option<Fault>) -> String {
    let planted = fault.map(Planted::one).unwrap_or_default();
    let plant = |configuration: &mut node::Configuration| {
        configuration.planted = planted;
        configuration.command_timeout_ms = 1000;
    };
    let keyspace = "prefix= replication=consensus replicas=3 leader=2 coding=2 coding_threshold=100";
    let mut cluster = setup(5, &[keyspace]).with(plant).start();
    // Nodes 2, 3 and 4 have replicas. Node 5 does not know the leader yet: it asks node 2, which is down.
    cluster.kill(2);
    cluster.until("another one leads", |cluster| ![0, 2].contains(&cluster.keyspace(3, "default").leader));
    cluster.restart(2);
    cluster.settle();
    let client = cluster.client(5);
    cluster.send(client, &format!("SET k {}", large()));
    // Two turns later all three have stored their fragments, and the command is on its way to node 2, which is
    // paused.
    cluster.turns(3);
    cluster.pause(2);
    assert_error(&cluster.reply(client), "UNKNOWN");
    cluster.turns(10_000);
    cluster.go_on(2);
    cluster.turns(1000);
    let reader = cluster.client(3);
    cluster.ask(reader, "GET k")
}

#[test]
fn a_value_that_was_given_up_is_never_stored() {
    assert_eq!(late_command(None), "nil");
    let lost = late_command(Some(Fault::AbandonedValueStored));
    assert!(lost.starts_with("-CLUSTERDOWN NOQUORUM"), "{lost}");
}
