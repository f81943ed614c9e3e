//! Clients while nothing fails.

use super::{LATE, Waiting, ask, cluster, connect, token, until_waiting, waiters};
use crate::support::{http, until};
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn waiting_clients_at_any_node_are_served_in_order() {
    let started = cluster();
    let mut first = connect(&started, 1);
    let mut held = token(&mut first, "LOCK l 0 PX 60000");
    let mut waiting = Vec::new();
    for index in 1..=6u16 {
        let request = format!("LOCK l {index} PX 60000 WAIT 60000");
        waiting.push(Waiting::begin(&started, index % 3 + 1, request));
        until_waiting(&mut first, "l", index.into());
    }
    for one in waiting {
        assert_eq!(ask::<i64>(&mut first, &format!("UNLOCK l {held}")).unwrap(), 1);
        // The grant to the next client is awaited before another one can be granted the lock.
        let (token, _) = one.granted();
        assert!(token > held, "{token} behind {held}");
        held = token;
    }
    assert_eq!(ask::<i64>(&mut first, &format!("UNLOCK l {held}")).unwrap(), 1);
}

#[test]
fn closing_a_waiting_connection_passes_the_lock_on() {
    let started = cluster();
    for node in 1..=3 {
        let mut ann = connect(&started, 1);
        let held = token(&mut ann, "LOCK l ann PX 60000");
        // Bytes sent after the request stay unread, and hide the end of the stream.
        let mut gone = started.cluster.client(node);
        gone.stream.write_all(b"LOCK l gone PX 60000 WAIT 60000\r\nSET behind v\r\n").unwrap();
        until_waiting(&mut ann, "l", 1);
        let next = Waiting::begin(&started, 2, "LOCK l next PX 60000 WAIT 60000".into());
        until_waiting(&mut ann, "l", 2);
        drop(gone);
        until_waiting(&mut ann, "l", 1);
        assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {held}")).unwrap(), 1);
        let (token, _) = next.granted();
        assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {token}")).unwrap(), 1);
        assert_eq!(ask::<i64>(&mut ann, "EXISTS behind").unwrap(), 0, "it was to be done with the lock");
    }
}

#[test]
fn commands_sent_after_a_wait_run_with_the_lock() {
    let started = cluster();
    let mut ann = connect(&started, 1);
    let held = token(&mut ann, "LOCK l ann PX 60000");
    assert_eq!(ask::<String>(&mut ann, "SET k before").unwrap(), "OK");
    let mut bob = started.cluster.client(2);
    bob.send("LOCK l bob PX 60000 WAIT 60000\r\nGET k\r\n");
    until_waiting(&mut ann, "l", 1);
    assert_eq!(ask::<String>(&mut ann, "SET k after").unwrap(), "OK");
    assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {held}")).unwrap(), 1);
    assert!(bob.line().starts_with(':'));
    assert_eq!((bob.line().as_str(), bob.line().as_str()), ("$5", "after"));
}

#[test]
fn a_dead_holder_keeps_the_lock_until_its_lease_ends() {
    let started = cluster();
    let mut bob = connect(&started, 2);
    let asked = Instant::now();
    let held = token(&mut connect(&started, 1), "LOCK l gone PX 1000");
    let granted = token(&mut bob, "LOCK l bob PX 60000 WAIT 60000");
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(1000) && took < Duration::from_millis(1100) + LATE, "{took:?}");
    assert!(granted > held);
    let refused = ask::<String>(&mut bob, &format!("SET k late FENCE l {held}")).unwrap_err();
    assert_eq!(refused.code(), Some("FENCED"));
    assert_eq!(ask::<String>(&mut bob, &format!("SET k v FENCE l {granted}")).unwrap(), "OK");
}

#[test]
fn a_client_that_waits_is_not_idle() {
    let started = cluster();
    let mut ann = connect(&started, 2);
    assert_eq!(ask::<String>(&mut ann, "CONFIG SET timeout 1").unwrap(), "OK");
    let asked = Instant::now();
    token(&mut ann, "LOCK l ann PX 4000");
    token(&mut connect(&started, 2), "LOCK l bob PX 1000 WAIT 60000");
    assert!(asked.elapsed() >= Duration::from_millis(4000));
}

#[test]
fn ending_a_session_releases_all_its_locks() {
    let started = cluster();
    let (mut ann, mut bob) = (connect(&started, 1), connect(&started, 3));
    let session: String = ask(&mut ann, "LOCK.SESSION OPEN any PX 60000").unwrap();
    for name in ["a", "b", "c"] {
        token(&mut ann, &format!("LOCK {name} ann SESSION {session}"));
    }
    let waiting =
        ["a", "b"].map(|name| Waiting::begin(&started, 2, format!("LOCK {name} bob PX 60000 WAIT 60000")));
    until("both wait", || waiters(&mut bob, "a") + waiters(&mut bob, "b") == 2);
    assert_eq!(ask::<i64>(&mut ann, &format!("LOCK.SESSION CLOSE any {session}")).unwrap(), 1);
    let tokens = waiting.map(|one| one.granted().0);
    assert_eq!(tokens[0], tokens[1], "one record has freed both");
    token(&mut bob, "LOCK c bob PX 1000");
    // A session that is not renewed ends by itself.
    let session: String = ask(&mut ann, "LOCK.SESSION OPEN any PX 500").unwrap();
    token(&mut ann, &format!("LOCK d ann SESSION {session}"));
    token(&mut bob, "LOCK d bob PX 1000 WAIT 60000");
    assert_eq!(ask::<i64>(&mut ann, &format!("LOCK.SESSION RENEW any {session}")).unwrap(), 0);
}

#[test]
fn operators_see_the_numbers_of_holders_and_waiters() {
    let started = cluster();
    let mut ann = connect(&started, 1);
    let held = token(&mut ann, "LOCK l ann PX 60000");
    let waiting = Waiting::begin(&started, 1, "LOCK l bob PX 60000 WAIT 60000".into());
    until_waiting(&mut ann, "l", 1);
    let info: String = ask(&mut ann, "INFO locks").unwrap();
    assert!(info.contains("locks_held:1\r\nlock_waiters:1\r\n"), "{info}");
    assert!(info.contains("lock_waiting_clients:1\r\n"), "{info}");
    let (_, metrics) = http(started.cluster.http_port(1), "GET /metrics HTTP/1.1", "");
    assert!(metrics.contains("quorate_keyspace_lock_waiters{keyspace=\"default\"} 1"), "{metrics}");
    assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {held}")).unwrap(), 1);
    waiting.granted();
}
