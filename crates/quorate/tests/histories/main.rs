//! Real clusters under real faults, with clients that record everything: could a store with one copy of each key,
//! which never fails, have given these answers?
//!
//! The nodes hold several keyspaces with different protocols at once. Faults affect processes: `kill -9`, `SIGSTOP`,
//! a start without memory, a log whose end a power failure has torn, and links that work in one direction only.

#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)] // Other tests use the rest.
mod bare;
mod crashes;
mod failover;
mod partition;
mod planned;
mod recorder;
#[allow(dead_code)] // Other tests use the rest.
mod started;
#[path = "../processes/support.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod support;
mod transactions;
mod upgrade;

use check::{History, Verdict};
use rustix::process::Signal;
use started::Started;
use support::{signal, until};

/// The keyspaces of registers, and one without promises.
const KEYSPACES: [&str; 4] = [
    "prefix=sess: replication=abd",
    "prefix=lock: replication=blocking",
    "prefix=cache: replication=leader-follower acks=none",
    "prefix=five: replication=abd replicas=5",
];

fn started(nodes: u16) -> Started {
    let fits = |text: &&str| nodes >= 5 || !text.contains("replicas=5");
    let keyspaces: Vec<&str> = KEYSPACES.into_iter().filter(fits).collect();
    Started::new(nodes, &keyspaces)
}

/// Asserts that the history is linearizable, and long enough to be meaningful.
#[track_caller]
fn assert_linearizable(history: &History) {
    assert!(history.operations().len() > 200, "too short: {}", history.operations().len());
    match check::linearizable(history) {
        Verdict::Ok { .. } => {}
        other => panic!("{}", other.words(history)),
    }
}

#[test]
fn any_two_of_five_can_be_killed() {
    for (prefix, dead) in [("sess:", [1, 2]), ("lock:", [4, 5])] {
        let started = started(5);
        let keys = ["a", "b", "c"].map(|key| format!("{prefix}{key}"));
        let recorder = started.record(10, &keys.each_ref().map(String::as_str));
        recorder.wait_for(300);
        dead.into_iter().for_each(|node| started.kill(node));
        recorder.wait_for(600);
        assert_eq!(recorder.refusals(), Vec::<String>::new(), "three of five are a majority");
        assert_linearizable(&recorder.stop());
    }
}

#[test]
fn a_paused_node_stops_no_other_and_resumes_without_harm() {
    for prefix in ["sess:", "lock:"] {
        let started = started(5);
        let keys = ["a", "b", "c"].map(|key| format!("{prefix}{key}"));
        let recorder = started.record(10, &keys.each_ref().map(String::as_str));
        recorder.wait_for(300);
        let paused = started.cluster.process(2);
        signal(paused, Signal::STOP);
        recorder.wait_for(600);
        signal(paused, Signal::CONT);
        until("it is in step again", || started.is_ready(2));
        recorder.wait_for(300);
        assert_linearizable(&recorder.stop());
    }
}

#[test]
fn nodes_that_lose_their_memory_one_after_the_other_lose_no_write() {
    for prefix in ["sess:", "lock:", ""] {
        let started = started(3);
        let keys = ["a", "b", "c"].map(|key| format!("{prefix}{key}"));
        let recorder = started.record(6, &keys.each_ref().map(String::as_str));
        recorder.wait_for(200);
        let mut restarted = Vec::new();
        for node in [1, 2, 3] {
            started.kill(node);
            recorder.wait_for(100);
            restarted.push(started.start_again(node));
            recorder.wait_for(100);
        }
        assert_linearizable(&recorder.stop());
    }
}
