//! Nodes are added and removed while clients write.

use std::fs;

use super::assert_linearizable;
use super::recorder::Recorder;
use super::started::{Restarted, Started};
use super::support::{is_running, quorate, signal, until, wait};
use rustix::process::Signal;

const FOLLOWED: &str = "prefix= replication=leader-follower acks=all durability=fsync";
const CONSENSUS: &str = "prefix= replication=consensus";

fn cluster(keyspace: &str) -> Started {
    Started::spaced(3, 4, &[keyspace])
}

fn record(started: &Started) -> Recorder {
    started.record(4, &["a", "b", "c"])
}

/// Runs `quorate join` as an operator does. Returns whether it succeeded, and its output.
fn join(started: &Started, more: &[&str]) -> (bool, String) {
    let (like, folder) = (started.cluster.node(1).join("quorate.toml"), started.cluster.node(4));
    let mut command = quorate();
    command.arg("join").arg("--like").arg(like).arg("--dir").arg(folder).args(more);
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

/// Adds node 4, starts it, and waits until it has its part of the default keyspace.
fn fourth(started: &Started) -> Restarted {
    let (done, output) = join(started, &[]);
    assert!(done && output.contains("node 4 is added"), "{output}");
    let node = started.spawn(4);
    until("node 4 holds everything", || holds_everything(started, 4) && started.is_ready(4));
    node
}

/// Whether a node is a member of the default keyspace's group and known to hold everything that it needs.
fn holds_everything(started: &Started, node: u16) -> bool {
    let group = started.group(1, "");
    let has = |list: &str| group[list].as_array().is_some_and(|nodes| nodes.iter().any(|it| *it == node));
    has("members") && has("in_sync") && group["settled"] == true
}

/// Whether the node is no longer in the cluster.
fn is_gone(started: &Started, node: u16) -> bool {
    let port = started.cluster.base + node - 1;
    let mut client = started.cluster.client(1);
    client.send("CLUSTER NODES\r\n");
    let length: usize = client.line().trim_start_matches('$').parse().unwrap();
    let nodes = String::from_utf8(client.bytes(length)).unwrap();
    !nodes.contains(&format!(":{port}@"))
}

/// Asks a node to remove another one. If the first answer was lost, the repeated request gets an error that says
/// that an earlier try may have succeeded.
fn remove(started: &Started, asked: u16, node: u16) {
    let answer = started.ask(asked, &format!("CLUSTER REMOVE {node}"));
    assert!(answer == "+OK" || answer.contains("an earlier try may have succeeded"), "{answer}");
}

/// Checks that a removed node reports that and stops in an orderly way.
fn ends_by_itself(started: &Started, id: u16, mut node: Restarted) {
    assert_eq!(wait(&mut node.0), 0, "{}", started.log(id));
    let log = started.log(id);
    assert!(log.contains("this node was removed from the cluster"), "{log}");
    assert!(log.contains(&format!("node {id} stopped")), "{log}");
}

/// `CLUSTER ADD` of a node that was in this cluster before, at the same address.
fn add(started: &Started, id: u16, port: u16) {
    let stride = 4;
    let ports = [0, stride, 2 * stride].map(|more| port + more);
    let [client, http, peer] = ports;
    assert_eq!(started.ask(1, &format!("CLUSTER ADD {id} 127.0.0.1 {client} {http} {peer}")), "+OK");
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
    until("node 4 is removed", || is_gone(&started, 4));
    ends_by_itself(&started, 4, node);
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

/// A dead node with an empty folder is admitted after it was replaced, and not before.
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

    // Refused while it may still be alive.
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

/// One of the first three nodes, which hold the map itself.
#[test]
fn a_control_node_is_removed_and_the_new_node_takes_its_place() {
    let started = cluster(CONSENSUS);
    let recorder = record(&started);
    let _fourth = fourth(&started);
    recorder.wait_for(200);
    remove(&started, 1, 3);
    until("node 3 is gone", || is_gone(&started, 3));
    recorder.wait_for(200);
    // Of the three that held the map, one is left: there is no majority without the new node.
    started.kill(2);
    recorder.wait_for(200);
    assert_linearizable(&recorder.stop());
}

#[test]
fn a_node_is_refused_until_it_is_added() {
    let started = cluster(FOLLOWED);
    let (done, output) = join(&started, &["--id", "4"]);
    assert!(done, "{output}");
    remove(&started, 1, 4);
    until("it was never there", || is_gone(&started, 4));
    let _node = started.spawn(4);
    until("the others say why", || started.log(1).contains("it claims to be node 4, which is not a member"));
    until("and it does", || {
        started.log(4).contains("it does not know this node (quorate join, CLUSTER ADD)")
    });
    let ports = [0, 4, 8].map(|ports| started.cluster.base + 3 + ports);
    let [client, http, peer] = ports;
    assert_eq!(started.ask(2, &format!("CLUSTER ADD 4 127.0.0.1 {client} {http} {peer}")), "+OK");
    until("node 4 holds everything", || holds_everything(&started, 4) && started.is_ready(4));
}

#[test]
fn join_reports_what_is_wrong_and_leaves_nothing_behind() {
    let mut started = cluster(FOLLOWED);
    let (done, output) = join(&started, &["--id", "2"]);
    assert!(!done && output.contains("there already is a node 2"), "{output}");
    let (done, output) = join(&started, &["--client-port", "0"]);
    assert!(!done && output.contains("--client-port"), "{output}");
    let (done, output) = join(&started, &["--host", ""]);
    assert!(!done && output.contains("host of node 4: '' is neither"), "{output}");
    assert!(!started.cluster.node(4).exists());

    assert_eq!(started.cluster.stop(Signal::TERM), 0);
    let (done, output) = join(&started, &[]);
    assert!(!done && output.contains("the cluster must be running"), "{output}");
    assert!(!started.cluster.node(4).exists());
}

#[test]
fn a_node_that_has_joined_starts_again_knowing_its_cluster_and_is_stopped_with_it() {
    let mut started = cluster(FOLLOWED);
    drop(fourth(&started));
    let mut again = started.start_again(4);
    until("it has a log", || started.log(4).contains("records were read"));
    assert_eq!(started.cluster.stop(Signal::TERM), 0);
    assert_eq!(super::support::wait(&mut again.0), 0);
}

#[test]
fn a_removed_node_joins_again_and_counts() {
    let started = cluster(CONSENSUS);
    let node = fourth(&started);
    let port = started.cluster.base + 3;
    remove(&started, 1, 4);
    ends_by_itself(&started, 4, node);
    assert!(started.ask(2, "CLUSTER REMOVE 4").contains("there is no node 4"));
    // With its earlier folder.
    add(&started, 4, port);
    let node = started.spawn(4);
    until("node 4 holds everything", || holds_everything(&started, 4) && started.is_ready(4));

    // A node that is paused while it is removed finds out when it resumes.
    signal(node.0.id(), Signal::STOP);
    until("it is not missed", || started.ask(1, "SET k v") == "+OK");
    until("it may go", || started.ask(1, "CLUSTER REMOVE 4") == "+OK");
    until("node 4 is removed", || is_gone(&started, 4));
    until("its links are closed", || started.log(1).contains("the node has left the cluster"));
    signal(node.0.id(), Signal::CONT);
    ends_by_itself(&started, 4, node);

    // A node that was added again is admitted unchanged, or stops if it first learns that it was removed.
    add(&started, 4, port);
    let mut node = started.spawn(4);
    until("node 4 holds everything", || holds_everything(&started, 4) && started.is_ready(4));
    signal(node.0.id(), Signal::STOP);
    until("it may go", || started.ask(1, "CLUSTER REMOVE 4") == "+OK");
    until("node 4 is removed", || is_gone(&started, 4));
    add(&started, 4, port);
    signal(node.0.id(), Signal::CONT);
    let is_in = || holds_everything(&started, 4) && started.is_ready(4);
    let mut has_ended = false;
    until("node 4 is admitted or ends", || {
        has_ended = node.0.try_wait().unwrap().is_some();
        has_ended || is_in()
    });
    let _node = if has_ended { started.spawn(4) } else { node };
    until("node 4 holds everything", is_in);
    started.kill(3);
    until("one may be missing", || started.ask(4, "SET k v") == "+OK");
    until("a dead one may go", || started.ask(4, "CLUSTER REMOVE 3") == "+OK");
    until("node 3 is gone", || is_gone(&started, 3));
    assert_eq!(started.ask(4, "GET k"), "$1");
}

#[test]
fn a_node_is_removed_by_force_and_joins_again() {
    let started = cluster(CONSENSUS);
    assert_eq!(started.ask(1, "SET k v"), "+OK");
    let answer = started.ask(1, "CLUSTER REMOVE 3");
    assert!(
        answer.contains("without FORCE") && answer.contains("2 of 3 replicas, which survives no failure"),
        "{answer}"
    );
    let (process, port) = (started.cluster.process(3), started.cluster.base + 2);
    assert_eq!(started.ask(1, "CLUSTER REMOVE 3 FORCE"), "+OK");
    until("its process ends", || !is_running(process));
    until("it is logged", || started.log(3).contains("this node was removed from the cluster"));
    let answer = started.ask(1, "CLUSTER REMOVE 1");
    assert!(answer.contains("without FORCE") && answer.contains("1 of 2 replicas"), "{answer}");

    add(&started, 3, port);
    let _third = started.spawn(3);
    until("node 3 holds everything", || holds_everything(&started, 3) && started.is_ready(3));
    started.kill(2);
    until("one may be missing", || started.ask(1, "SET k w") == "+OK");
    // For the other nodes, node 2 may be alive until its lease is over.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let answer = started.ask(1, "CLUSTER REMOVE 3 FORCE");
    assert!(answer.contains("cannot be removed now"), "{answer}");
}
