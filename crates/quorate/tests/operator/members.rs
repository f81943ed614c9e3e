//! Nodes come and go while clients write.

use std::fs;

use super::assert_linearizable;
use super::recorder::Recorder;
use super::started::{Restarted, Started};
use super::support::{quorate, until};
use rustix::process::Signal;

const FOLLOWED: &str = "prefix= replication=leader-follower acks=all durability=fsync";
const CONSENSUS: &str = "prefix= replication=consensus";

fn cluster(keyspace: &str) -> Started {
    Started::spaced(3, 4, &[keyspace])
}

fn record(started: &Started) -> Recorder {
    started.record(4, &["a", "b", "c"])
}

/// `quorate join`, as an operator types it. Gives back what it says.
fn join(started: &Started, more: &[&str]) -> (bool, String) {
    let (like, folder) = (started.cluster.node(1).join("quorate.toml"), started.cluster.node(4));
    let mut command = quorate();
    command.arg("join").arg("--like").arg(like).arg("--dir").arg(folder).args(more);
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

/// Adds node 4, starts it, and waits until it has its part of the default keyspace.
fn fourth(started: &Started) -> Restarted {
    let (done, told) = join(started, &[]);
    assert!(done && told.contains("node 4 is added"), "{told}");
    let node = started.spawn(4);
    until("node 4 holds everything", || holds_everything(started, 4) && started.is_ready(4));
    node
}

/// Whether a node is a member of the default keyspace's group, known to hold all that it needs.
fn holds_everything(started: &Started, node: u16) -> bool {
    let group = started.group(1, "");
    let has = |list: &str| group[list].as_array().is_some_and(|nodes| nodes.iter().any(|it| *it == node));
    has("members") && has("in_sync") && group["settled"] == true
}

/// Whether the cluster has no such node any more.
fn is_gone(started: &Started, node: u16) -> bool {
    let port = started.cluster.base + node - 1;
    let mut client = started.cluster.client(1);
    client.send("CLUSTER NODES\r\n");
    let length: usize = client.line().trim_start_matches('$').parse().unwrap();
    let nodes = String::from_utf8(client.bytes(length)).unwrap();
    !nodes.contains(&format!(":{port}@"))
}

/// Asks a node to have another one removed. Where the answer was lost on the way and it was asked twice, it says so.
fn remove(started: &Started, asked: u16, node: u16) {
    let told = started.ask(asked, &format!("CLUSTER REMOVE {node}"));
    assert!(told == "+OK" || told.contains("an earlier try may have succeeded"), "{told}");
}

fn a_node_is_added_and_removed(keyspace: &str) {
    let started = cluster(keyspace);
    let recorder = record(&started);
    recorder.wait_for(200);
    let node = fourth(&started);
    recorder.wait_for(200);
    assert_eq!(started.ask(4, "SET of:4 v"), "+OK", "it takes commands");
    assert_eq!(started.ask(2, "GET of:4"), "$1");

    remove(&started, 2, 4);
    until("node 4 is gone", || is_gone(&started, 4));
    until("it is told so", || started.log(4).contains("the cluster has no node 4"));
    until("its links are closed", || started.log(1).contains("the node has left the cluster"));
    drop(node);
    recorder.wait_for(200);
    assert_linearizable(&recorder.stop());
}

#[test]
fn a_node_joins_a_leader_follower_cluster_under_load_and_leaves_it() {
    a_node_is_added_and_removed(FOLLOWED);
}

#[test]
fn a_node_joins_a_consensus_cluster_under_load_and_leaves_it() {
    a_node_is_added_and_removed(CONSENSUS);
}

/// A dead node is let in with an empty folder after it was replaced, and not before.
fn a_wiped_node_is_replaced(keyspace: &str) {
    let started = cluster(keyspace);
    let first = fourth(&started);
    let recorder = record(&started);
    recorder.wait_for(200);
    drop(first);
    fs::remove_dir_all(started.cluster.node(4).join("storage")).unwrap();
    fs::remove_file(started.cluster.node(4).join("quorate.log")).unwrap();
    let _again = started.spawn(4);
    until("it is refused", || started.log(4).contains("other storage than it had"));
    recorder.wait_for(200);
    assert!(!started.is_ready(4), "it has forgotten what it promised");
    assert!(started.health(4).to_string().contains("CLUSTER REPLACE"), "it says what to do");

    // Refused for as long as it may not be dead yet.
    until("it may be replaced", || started.ask(1, "CLUSTER REPLACE 4") == "+OK");
    until("node 4 holds everything again", || holds_everything(&started, 4) && started.is_ready(4));
    recorder.wait_for(200);
    assert_linearizable(&recorder.stop());
}

#[test]
fn a_node_of_a_leader_follower_cluster_that_lost_its_storage_is_replaced() {
    a_wiped_node_is_replaced(FOLLOWED);
}

#[test]
fn a_node_of_a_consensus_cluster_that_lost_its_storage_is_replaced() {
    a_wiped_node_is_replaced(CONSENSUS);
}

/// One of the first three, which hold the map itself.
#[test]
fn a_control_node_is_removed_and_the_newcomer_takes_its_place() {
    let started = cluster(CONSENSUS);
    let recorder = record(&started);
    let _fourth = fourth(&started);
    recorder.wait_for(200);
    remove(&started, 1, 3);
    until("node 3 is gone", || is_gone(&started, 3));
    recorder.wait_for(200);
    // Of the three that held the map, one is left: no majority without the newcomer.
    started.kill(2);
    recorder.wait_for(200);
    assert_linearizable(&recorder.stop());
}

#[test]
fn a_node_that_nobody_added_is_turned_away_until_it_is() {
    let started = cluster(FOLLOWED);
    let (done, told) = join(&started, &["--id", "4"]);
    assert!(done, "{told}");
    remove(&started, 1, 4);
    until("it was never there", || is_gone(&started, 4));
    let _node = started.spawn(4);
    until("the others say why", || {
        started.log(1).contains("it says that it is node 4, which does not belong here")
    });
    until("and it does", || started.log(4).contains("CLUSTER ADD lets a new node in"));
    let ports = [0, 4, 8].map(|ports| started.cluster.base + 3 + ports);
    let [client, http, peer] = ports;
    assert_eq!(started.ask(2, &format!("CLUSTER ADD 4 127.0.0.1 {client} {http} {peer}")), "+OK");
    until("node 4 holds everything", || holds_everything(&started, 4) && started.is_ready(4));
}

#[test]
fn join_says_what_is_wrong_and_leaves_nothing_behind() {
    let mut started = cluster(FOLLOWED);
    let (done, told) = join(&started, &["--id", "2"]);
    assert!(!done && told.contains("there is a node 2 already"), "{told}");
    let (done, told) = join(&started, &["--client-port", "0"]);
    assert!(!done && told.contains("--client-port"), "{told}");
    let (done, told) = join(&started, &["--host", ""]);
    assert!(!done && told.contains("host of node 4 is empty"), "{told}");
    assert!(!started.cluster.node(4).exists());

    assert_eq!(started.cluster.stop(Signal::TERM), 0);
    let (done, told) = join(&started, &[]);
    assert!(!done && told.contains("the cluster must run"), "{told}");
    assert!(!started.cluster.node(4).exists());
}

#[test]
fn a_node_that_has_joined_starts_again_knowing_its_cluster_and_is_stopped_with_it() {
    let mut started = cluster(FOLLOWED);
    drop(fourth(&started));
    let mut again = started.start_again(4);
    assert!(started.log(4).contains("records were read"), "it has a log");
    assert_eq!(started.cluster.stop(Signal::TERM), 0);
    assert_eq!(super::support::wait(&mut again.0), 0);
}
