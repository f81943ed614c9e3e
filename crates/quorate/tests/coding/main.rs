//! Five real nodes that store values as fragments, any three of which suffice, under real faults: `kill -9` of one
//! node and of all, and a lost disk.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../histories/recorder.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod recorder;
#[path = "../histories/started.rs"]
#[allow(dead_code)]
mod started;
#[path = "../processes/support.rs"]
#[allow(dead_code)]
mod support;

use std::fs;

use check::{History, Verdict};
use recorder::Recorder;
use rustix::process::Signal;
use started::{Restarted, Started};
use support::{request, signal, until};

const NODES: [u16; 5] = [1, 2, 3, 4, 5];

const KEYSPACE: &str = "prefix= replication=consensus coding=3 coding_threshold=1000";

/// Long enough to be cut into fragments, with several stripes.
const LARGE_BYTES: usize = 2_000_000;

fn cluster() -> Started {
    Started::new(5, &[KEYSPACE])
}

/// Starts clients whose values are long enough to be cut into fragments.
fn record(started: &Started) -> Recorder {
    let ports: Vec<u16> = NODES.map(|node| started.cluster.base + node - 1).into();
    Recorder::start_with(&ports, 6, &["a", "b", "c"], 3000)
}

#[track_caller]
fn assert_linearizable(history: &History) {
    assert!(history.operations().len() > 200, "too short: {}", history.operations().len());
    match check::linearizable(history) {
        Verdict::Ok { .. } => {}
        other => panic!("{}", other.words(history)),
    }
}

/// Returns a value that no other key has.
fn value_of(key: &str) -> Vec<u8> {
    let line = format!("this is of {key}; ");
    line.bytes().cycle().take(LARGE_BYTES).collect()
}

/// Sets keys to large values at a node, and repeats that until it succeeds.
fn set(started: &Started, node: u16, keys: &[&str]) {
    let mut client = started.cluster.client(node);
    for key in keys {
        let request = request(&[b"SET", key.as_bytes(), &value_of(key)]);
        until("the value is stored", || {
            client.send(&request);
            client.line() == "+OK"
        });
    }
}

/// Reads keys at a node until it returns them, and checks the values.
#[track_caller]
fn assert_read(started: &Started, node: u16, keys: &[&str]) {
    let mut client = started.cluster.client(node);
    for key in keys {
        until("the value is returned", || match client.ask(&format!("GET {key}")).strip_prefix('$') {
            Some(length) => {
                let bytes = client.bytes(length.parse::<usize>().unwrap() + 2);
                assert!(bytes[..LARGE_BYTES] == value_of(key), "node {node} returns another value of {key}");
                true
            }
            None => false,
        });
    }
}

/// Returns a number from `INFO coding`.
fn counted(started: &Started, node: u16, field: &str) -> u64 {
    let mut client = started.cluster.client(node);
    let length: usize = client.ask("INFO coding").trim_start_matches('$').parse().unwrap();
    let text = String::from_utf8(client.bytes(length)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in\n{text}")).parse().unwrap()
}

/// Waits until a node has rebuilt at least `least` fragments and lacks none.
fn wait_until_rebuilt(started: &Started, node: u16, least: u64) {
    until("it has rebuilt what it lacked", || {
        counted(started, node, "coded_fragments_rebuilt") >= least
            && counted(started, node, "coded_fragments_lacking") == 0
    });
}

#[test]
fn writes_continue_without_a_node_which_rebuilds_its_fragments_when_it_returns() {
    let started = cluster();
    let recorder = record(&started);
    recorder.wait_for(200);
    set(&started, 1, &["before"]);
    assert!(counted(&started, 1, "coded_values_stored") > 0, "values are cut");

    started.kill(4);
    recorder.wait_for(200);
    set(&started, 2, &["meanwhile", "too"]);
    assert_read(&started, 3, &["before", "meanwhile", "too"]);

    let _again = started.start_again(4);
    wait_until_rebuilt(&started, 4, 2);
    recorder.wait_for(200);

    // Values written without it were split in two: now its fragments replace those of others.
    started.kill_all(&[1, 2]);
    assert_read(&started, 4, &["before", "meanwhile", "too"]);
    recorder.wait_for(200);
    assert_linearizable(&recorder.stop());
}

#[test]
fn nothing_acknowledged_is_lost_when_all_nodes_are_killed_at_once() {
    let started = cluster();
    let recorder = record(&started);
    let mut restarted: Vec<Restarted> = Vec::new();
    for round in ["first", "second"] {
        recorder.wait_for(200);
        set(&started, 5, &[round]);
        started.kill_all(&NODES);
        // Two of them stay down at first: any three have every value.
        restarted.extend([1, 3, 5].map(|node| started.spawn(node)));
        until("three are ready", || [1, 3, 5].into_iter().all(|node| started.is_ready(node)));
        assert_read(&started, 3, &[round]);
        recorder.wait_for(100);
        restarted.extend([2, 4].map(|node| started.spawn(node)));
        until("all are ready", || NODES.into_iter().all(|node| started.is_ready(node)));
    }
    recorder.wait_for(100);
    assert_read(&started, 2, &["first", "second"]);
    assert_linearizable(&recorder.stop());
}

#[test]
fn a_node_that_lost_its_disk_is_replaced_and_rebuilds_its_fragments() {
    let started = cluster();
    let keys = ["one", "two", "three"];
    set(&started, 1, &keys);
    started.kill(5);
    fs::remove_dir_all(started.cluster.node(5).join("storage")).unwrap();
    let _again = started.spawn(5);
    until("it is refused", || started.log(5).contains("other storage than it had"));
    // Refused while it may still be alive.
    until("it may be replaced", || started.ask(1, "CLUSTER REPLACE 5") == "+OK");
    until("it is ready", || started.is_ready(5));
    wait_until_rebuilt(&started, 5, keys.len() as u64);
    // It gets its values before it counts in majorities.
    until("it votes", || started.log(5).contains("keyspace 'default': voter"));
    // With two others down, reads need the new node's fragments.
    started.kill_all(&[1, 2]);
    assert_read(&started, 5, &keys);
    assert_read(&started, 3, &keys);
}

#[test]
fn clients_notice_nothing_when_nodes_fail_one_after_the_other() {
    let started = cluster();
    let recorder = record(&started);
    let mut restarted: Vec<Restarted> = Vec::new();
    for node in [1, 2, 3] {
        recorder.wait_for(150);
        let paused = started.cluster.process(node + 2);
        signal(paused, Signal::STOP);
        recorder.wait_for(50);
        signal(paused, Signal::CONT);
        recorder.wait_for(50);
        started.kill(node);
        recorder.wait_for(150);
        restarted.push(started.start_again(node));
    }
    recorder.wait_for(150);
    assert_linearizable(&recorder.stop());
}
