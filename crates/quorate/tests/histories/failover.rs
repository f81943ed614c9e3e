//! Leaders are killed or paused: another node takes over, and no acknowledged write is lost.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::assert_linearizable;
use super::recorder::{Recorder, longest_silence};
use super::started::Started;
use super::support::{signal, until};

/// Keyspaces that survive the loss of their leader. The default one is of consensus.
const KEYSPACES: [&str; 2] = [
    "prefix=all: replication=leader-follower acks=all",
    "prefix=most: replication=leader-follower acks=majority",
];

/// The limit for every test; [`fifty_kills_of_each_leader`] measures the usual times.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Starts clients on keys that no earlier round has used.
fn record(started: &Started, prefix: &str, round: usize) -> Recorder {
    let keys = ["a", "b", "c", "d"].map(|key| format!("{prefix}{round}:{key}"));
    started.record(6, &keys.each_ref().map(String::as_str))
}

/// Kills the leader while clients write. Returns for how long no write was acknowledged.
fn leader_is_killed(started: &Started, prefix: &str, round: usize) -> (u16, Duration) {
    let leader = started.leader(prefix);
    let recorder = record(started, prefix, round);
    recorder.wait_for(200);
    let killed_at = recorder.now();
    started.kill(leader);
    recorder.wait_for(300);
    let history = recorder.stop();
    assert_linearizable(&history);
    (leader, longest_silence(&history, killed_at))
}

fn writes_continue_without_the_leader(prefix: &str) {
    let started = Started::new(3, &KEYSPACES);
    let (_, silence) = leader_is_killed(&started, prefix, 0);
    println!("keyspace '{prefix}': no write was acknowledged for {} ms", silence.as_millis());
    assert!(silence < SILENCE_MAX, "{silence:?}");
}

#[test]
fn a_killed_leader_of_a_consensus_keyspace_is_replaced() {
    writes_continue_without_the_leader("");
}

#[test]
fn a_killed_leader_under_acks_all_is_replaced_from_the_in_sync_set() {
    writes_continue_without_the_leader("all:");
}

#[test]
fn a_killed_leader_under_acks_majority_is_replaced() {
    writes_continue_without_the_leader("most:");
}

/// Three seconds are ten leases: the others have long continued when the leader resumes and finds itself deposed.
fn a_leader_stands_still(prefix: &str) {
    let started = Started::new(3, &KEYSPACES);
    let leader = started.leader(prefix);
    let recorder = record(&started, prefix, 0);
    recorder.wait_for(200);
    let process = started.cluster.process(leader);
    signal(process, Signal::STOP);
    let begun = Instant::now();
    recorder.wait_for(200);
    until("three seconds are over", || begun.elapsed() >= Duration::from_secs(3));
    signal(process, Signal::CONT);
    until("it is in step again", || started.is_ready(leader));
    recorder.wait_for(200);
    assert_linearizable(&recorder.stop());
}

#[test]
fn a_paused_leader_of_consensus_serves_no_stale_reads() {
    a_leader_stands_still("");
}

#[test]
fn a_paused_leader_under_acks_all_serves_no_stale_reads() {
    a_leader_stands_still("all:");
}

#[test]
fn a_paused_leader_under_acks_majority_serves_no_stale_reads() {
    a_leader_stands_still("most:");
}

/// `cargo test --release -p quorate --test histories -- --ignored --nocapture fifty_kills`
#[test]
#[ignore = "a measurement of some minutes"]
fn fifty_kills_of_each_leader() {
    const KILLS: usize = 50;
    for prefix in ["", "all:", "most:"] {
        let started = Started::new(3, &KEYSPACES);
        let mut restarted = Vec::new();
        let mut silences = Vec::new();
        for round in 0..KILLS {
            let (leader, silence) = leader_is_killed(&started, prefix, round);
            silences.push(silence);
            restarted.push(started.spawn(leader));
            until("all are ready again", || (1..=3).all(|node| started.is_ready(node)));
        }
        silences.sort_unstable();
        let rank = |percent: usize| silences[(KILLS * percent).div_ceil(100) - 1].as_millis();
        println!(
            "keyspace '{prefix}', {KILLS} kills: no write was acknowledged for p50 {} ms, p99 {} ms, max {} ms",
            rank(50),
            rank(99),
            rank(100)
        );
        assert!(rank(99) < 1000, "the 99th percentile is {} ms", rank(99));
    }
}
