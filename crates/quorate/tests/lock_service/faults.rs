//! Locks while processes are killed.

use super::{LATE, Waiting, ask, cluster, connect, insist, token, until_waiting};
use rustix::process::Signal;
use std::time::{Duration, Instant};

use crate::support::{signal, until};

#[test]
fn the_leader_is_killed_while_one_client_holds_and_one_waits() {
    let started = cluster();
    let leader = started.leader("");
    let (there, elsewhere) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let mut ann = connect(&started, there);
    let asked = Instant::now();
    let held = token(&mut ann, "LOCK l ann PX 3000");
    let bob = Waiting::begin(&started, elsewhere, "LOCK l bob PX 60000 WAIT 60000".into());
    until_waiting(&mut ann, "l", 1);
    started.kill(leader);
    let killed = Instant::now();
    let (granted, at) = bob.granted();
    assert!(granted > held);
    assert!(at - asked >= Duration::from_millis(3000), "no lease is shortened");
    // The next leader measures the whole lease from the start of its own leadership.
    assert!(at - killed < Duration::from_millis(3300) + LATE, "{:?}", at - killed);
    assert_eq!(insist::<i64>(&mut ann, &format!("UNLOCK l {held}")), 0);
}

#[test]
fn the_holder_renews_while_leaders_are_killed() {
    let started = cluster();
    let leader = started.leader("");
    let mut ann = connect(&started, leader % 3 + 1);
    let mut bob = connect(&started, (leader + 1) % 3 + 1);
    let held = token(&mut ann, "LOCK l ann PX 2000");
    started.kill(leader);
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(insist::<i64>(&mut ann, &format!("LOCK.RENEW l {held} PX 2000")), 1);
        assert_eq!(insist::<Option<u64>>(&mut bob, "LOCK l bob PX 2000"), None);
    }
}

#[test]
fn tokens_grow_and_locks_last_when_all_nodes_are_killed() {
    let started = cluster();
    let mut client = connect(&started, 1);
    let kept = token(&mut client, "LOCK kept ann PX 60000");
    let freed = token(&mut client, "LOCK freed ann PX 60000");
    assert_eq!(ask::<i64>(&mut client, &format!("UNLOCK freed {freed}")).unwrap(), 1);
    started.kill_all(&[1, 2, 3]);
    let _nodes = [1, 2, 3].map(|node| started.spawn(node));
    until("all are ready", || (1..=3).all(|node| started.is_ready(node)));
    let mut client = connect(&started, 2);
    assert_eq!(insist::<Option<u64>>(&mut client, "LOCK kept bob PX 60000"), None);
    assert!(insist::<u64>(&mut client, "LOCK freed bob PX 60000") > freed);
    assert_eq!(insist::<i64>(&mut client, &format!("UNLOCK kept {kept}")), 1);
    assert!(insist::<u64>(&mut client, "LOCK kept bob PX 60000") > kept);
}

#[test]
fn waiters_at_a_killed_node_delay_no_other() {
    let started = cluster();
    let leader = started.leader("");
    let (dead, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let mut ann = connect(&started, leader);
    let held = token(&mut ann, "LOCK l ann PX 600000");
    let mut gone = started.cluster.client(dead);
    gone.send("LOCK l gone PX 600000 WAIT 600000\r\n");
    until_waiting(&mut ann, "l", 1);
    let next = Waiting::begin(&started, other, "LOCK l next PX 1000 WAIT 60000".into());
    until_waiting(&mut ann, "l", 2);
    started.kill(dead);
    until_waiting(&mut ann, "l", 1);
    assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {held}")).unwrap(), 1);
    next.granted();
}

#[test]
fn waiters_at_a_stopping_node_delay_no_other() {
    let started = cluster();
    let leader = started.leader("");
    let stopped = leader % 3 + 1;
    let mut ann = connect(&started, leader);
    let held = token(&mut ann, "LOCK l ann PX 600000");
    let mut gone = started.cluster.client(stopped);
    gone.send("LOCK l gone PX 600000 WAIT 600000\r\n");
    until_waiting(&mut ann, "l", 1);
    signal(started.cluster.process(stopped), Signal::TERM);
    assert!(gone.line().starts_with("-CLUSTERDOWN NOLEADER"), "it gets that answer");
    until_waiting(&mut ann, "l", 0);
    assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {held}")).unwrap(), 1);
}
