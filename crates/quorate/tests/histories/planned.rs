//! Planned stops: a node that is told to stop first hands over what it leads. Others' clients get every outcome, and wait for some
//! milliseconds at most.

use std::time::Duration;

use check::{History, Outcome};

use super::assert_linearizable;
use super::recorder::longest_silence;
use super::started::{Restarted, Started};
use super::support::until;

/// A keyspace of each kind. The default one is of consensus.
const KEYSPACES: [&str; 5] = [
    "prefix=all: replication=leader-follower acks=all",
    "prefix=most: replication=leader-follower acks=majority durability=fsync",
    "prefix=none: replication=leader-follower acks=none",
    "prefix=abd: replication=abd",
    "prefix=blocking: replication=blocking",
];

/// The limit on busy machines: less than after a kill. The test prints the times.
const SILENCE_MAX: Duration = Duration::from_millis(300);

/// How often it is tried: other processes may hold up the disk.
const ATTEMPTS: usize = 3;

/// With `blocking`, two clients that each hold the lock at one of the two members that are left give way after 200 ms.
const BLOCKED_MAX: Duration = Duration::from_secs(1);

/// The operations whose outcomes their clients do not know, at nodes other than this one.
fn unknown_beside(history: &History, stopped: u16) -> usize {
    let is_unknown = |outcome: &Outcome| matches!(outcome, Outcome::Unknown);
    let elsewhere = history.operations().iter().filter(|it| it.node != Some(stopped.into()));
    elsewhere.filter(|it| is_unknown(&it.outcome)).count()
}

/// Stops each node in turn under load, and starts it again. Returns the longest silence of each stop, in milliseconds.
fn rolling_restart(started: &Started, prefix: &str, restarted: &mut Vec<Restarted>) -> Vec<u128> {
    let mut silences = Vec::new();
    for node in 1..=3 {
        let keys = ["a", "b", "c", "d"].map(|key| format!("{prefix}{node}-{}:{key}", restarted.len()));
        let recorder = started.record(6, &keys.each_ref().map(String::as_str));
        recorder.wait_for(200);
        let stopped_at = recorder.now();
        started.stop(node);
        recorder.wait_for(300);
        let history = recorder.stop();
        assert_linearizable(&history);
        assert_eq!(unknown_beside(&history, node), 0, "keyspace '{prefix}', node {node}");
        silences.push(longest_silence(&history, stopped_at).as_millis());
        restarted.push(started.start_again(node));
        until("all are ready", || (1..=3).all(|node| started.is_ready(node)));
    }
    silences
}

#[test]
fn rolling_restarts_of_each_kind() {
    let started = Started::new(3, &KEYSPACES);
    let mut restarted = Vec::new(); // They end when they are dropped.
    for prefix in ["", "all:", "most:", "none:", "abd:", "blocking:"] {
        let most = if prefix == "blocking:" { BLOCKED_MAX } else { SILENCE_MAX };
        let is_short = (0..ATTEMPTS).any(|_| {
            let silences = rolling_restart(&started, prefix, &mut restarted);
            println!("keyspace '{prefix}': no write was acknowledged for {silences:?} ms");
            silences.iter().all(|ms| *ms < most.as_millis())
        });
        assert!(is_short, "keyspace '{prefix}': no write for {most:?} or longer, {ATTEMPTS} times");
    }
}
