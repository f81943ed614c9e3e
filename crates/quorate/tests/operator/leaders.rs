//! Leaders are spread, moved, and return by themselves; nodes are drained. Clients get every outcome.

use std::time::{Duration, Instant};

use check::Outcome;

use super::assert_linearizable;
use super::started::Started;
use super::support::{quorate, until};

const KEYSPACES: [&str; 5] = [
    "prefix=a:",
    "prefix=b: replication=leader-follower acks=all",
    "prefix=c: replication=leader-follower acks=majority",
    "prefix=d: replication=leader-follower acks=none",
    "prefix=e:",
];

const PREFIXES: [&str; 6] = ["", "a:", "b:", "c:", "d:", "e:"];

/// Runs a command of `quorate node` at the first node, and returns what it prints.
fn node(started: &Started, words: &[&str]) -> String {
    let mut command = quorate();
    command.arg("node").args(words).args(["--addr", &format!("127.0.0.1:{}", started.cluster.base)]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// How many of the keyspaces each node leads, once all nodes agree.
fn led(started: &Started) -> [usize; 3] {
    let mut led = [0; 3];
    PREFIXES.iter().for_each(|prefix| led[usize::from(started.leader(prefix)) - 1] += 1);
    led
}

#[test]
fn leaders_are_spread_moved_and_return() {
    let started = Started::new(3, &KEYSPACES);
    until("the cluster has risen to level 2", || started.health(1)["level"] == 2);
    until("each node leads two of six keyspaces", || led(&started) == [2, 2, 2]);

    let keys = ["k", "a:k", "b:k", "c:k", "d:k", "e:k"];
    let recorder = started.record(6, &keys);
    recorder.wait_for(200);

    let said = node(&started, &["drain", "2"]);
    assert!(said.contains("node 2 leads nothing"), "{said}");
    assert_eq!(led(&started)[1], 0);
    assert!(node(&started, &["list"]).contains("drained"));
    recorder.wait_for(200);

    node(&started, &["drain", "2", "--end"]);
    until("what it is preferred to lead returns by itself", || led(&started) == [2, 2, 2]);
    recorder.wait_for(200);

    let other = 1 + started.leader("b:") % 3;
    let begun = Instant::now();
    node(&started, &["lead", "b:", &other.to_string()]);
    until("it leads", || started.leader("b:") == other);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "an operator's wish is not delayed: {:?}",
        begun.elapsed()
    );
    assert_eq!(started.ask(3, "CLUSTER FAILOVER"), "+OK");
    until("one node leads everything", || led(&started) == [0, 0, 6]);
    assert_eq!(started.ask(3, "CLUSTER FAILOVER"), "-ERR You should send CLUSTER FAILOVER to a replica");
    recorder.wait_for(200);
    let said = node(&started, &["lead", "--spread"]);
    assert!(said.contains("4 leaders moved"), "{said}");
    assert_eq!(led(&started), [2, 2, 2]);
    assert_eq!(node(&started, &["lead", "--spread"]), "no leader has to move\n");
    recorder.wait_for(200);

    let history = recorder.stop();
    assert_linearizable(&history);
    let unknown = history.operations().iter().filter(|it| matches!(it.outcome, Outcome::Unknown)).count();
    assert_eq!(unknown, 0, "no outcome is unknown");
}

#[test]
fn the_last_node_that_may_lead_is_not_drained_and_wrong_words_are_refused() {
    let started = Started::new(3, &[]);
    until("the cluster has risen to level 2", || started.health(1)["level"] == 2);
    assert_eq!(started.ask(1, "CLUSTER DRAIN 1"), "+OK");
    assert_eq!(started.ask(1, "CLUSTER DRAIN 2"), "+OK");
    let last = started.ask(1, "CLUSTER DRAIN 3");
    assert!(last.contains("node 3 cannot be drained: no other node is left that may lead"), "{last}");
    until("node 3 leads", || started.leader("") == 3);
    for (command, refusal) in [
        ("CLUSTER DRAIN 9", "there is no node 9"),
        ("CLUSTER LEAD nothing: 3", "there is no keyspace 'nothing:'"),
        ("CLUSTER LEAD default 9", "there is no node 9"),
        ("CLUSTER LEAD default 1", "node 1 is drained"),
        ("CLUSTER LEAD 99 3", "there is no group 99"),
        ("CLUSTER DRAIN 1 NOW", "syntax error"),
    ] {
        let reply = started.ask(1, command);
        assert!(reply.starts_with("-") && reply.contains(refusal), "{command}: {reply}");
    }
}
