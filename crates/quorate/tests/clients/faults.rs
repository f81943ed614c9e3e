//! Nodes are killed, paused and restarted while clients write.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::{Connection, pipe};

use crate::contents::assert_all_equal;
use crate::support::{Cluster, ask, code, until};

const MAJORITY: &[&str] = &["prefix= replication=leader-follower acks=majority reads=any"];

/// The number of the writer's keys. It cycles through them with growing numbers.
const WRITER_KEYS: u64 = 500;

/// Writes 0, 1 … one by one until `stop` is set. Each must be acknowledged.
fn write_until(stop: &AtomicBool, written: &AtomicU64, mut connection: Connection) {
    while !stop.load(Ordering::Relaxed) {
        let number = written.load(Ordering::Relaxed);
        assert_eq!(
            ask(&mut connection, &format!("SET w:{} {number} PX 1000000", number % WRITER_KEYS)),
            "OK"
        );
        written.store(number + 1, Ordering::Relaxed);
    }
}

/// Runs `disturb` while a client of node 1 writes; `disturb` can read the number of writes. Returns their number at
/// the end.
fn while_writing(cluster: &mut Cluster, disturb: impl FnOnce(&mut Cluster, &dyn Fn() -> u64)) -> u64 {
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let connection = cluster.client(1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&stop, &written, connection));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            disturb(cluster, &|| written.load(Ordering::Relaxed));
        }));
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    written.load(Ordering::Relaxed)
}

fn wait_for_more(what: &str, written: &dyn Fn() -> u64, more: u64) {
    let before = written();
    until(what, || written() >= before + more);
}

/// Asserts that all nodes hold the same data: what the writer has written.
fn assert_all_there(cluster: &Cluster, written: u64) {
    assert_eq!(assert_all_equal(cluster, 3) as u64, written.min(WRITER_KEYS));
    let mut connection = cluster.client(2);
    for number in written.saturating_sub(WRITER_KEYS)..written {
        assert_eq!(ask(&mut connection, &format!("GET w:{}", number % WRITER_KEYS)), format!("\"{number}\""));
    }
}

#[test]
fn writes_continue_without_a_killed_follower_and_it_catches_up_after_a_restart() {
    // A backlog that is soon too small: otherwise the whole history would be sent again, without a snapshot transfer.
    let mut cluster = Cluster::start(
        3,
        &["prefix= replication=leader-follower acks=majority reads=any backlog_bytes=4096"],
    );
    let full_before = cluster.counters("full_resyncs_total");
    let written = while_writing(&mut cluster, |cluster, written| {
        wait_for_more("writes before", written, 200);
        cluster.kill(3);
        wait_for_more("writes without node 3", written, 200);
        cluster.restart(3);
        cluster.wait_until_ready(3);
        wait_for_more("writes with node 3 again", written, 200);
    });
    assert_all_there(&cluster, written);
    assert!(cluster.counters("full_resyncs_total") > full_before, "it had no memory to go on from");
}

#[test]
fn a_paused_follower_continues_where_it_stopped() {
    let mut cluster = Cluster::start(3, MAJORITY);
    let full = cluster.counters("full_resyncs_total");
    let written = while_writing(&mut cluster, |cluster, written| {
        wait_for_more("writes before", written, 100);
        cluster.pause(2);
        until("node 2 is silent", || cluster.follower_state(2) == "silent");
        wait_for_more("writes without node 2", written, 100);
        cluster.go_on(2);
        until("node 2 is back", || cluster.follower_state(2) == "streaming");
    });
    assert_all_there(&cluster, written);
    assert_eq!(cluster.counters("full_resyncs_total"), full, "nothing that it had was sent again");
}

#[test]
fn a_follower_that_missed_more_than_the_backlog_gets_a_snapshot() {
    let cluster = Cluster::start(
        3,
        &["prefix= replication=leader-follower acks=majority reads=any backlog_bytes=4096"],
    );
    let full = cluster.counters("full_resyncs_total");
    let mut connection = cluster.client(1);
    assert_eq!(ask(&mut connection, "SET gone v"), "OK");
    cluster.pause(3);
    until("node 3 is silent", || cluster.follower_state(3) == "silent");
    assert_eq!(ask(&mut connection, "DEL gone"), "1");
    let mut pipeline = pipe();
    // More than the leader sends without an acknowledgement: otherwise the follower would find the missed records in its sockets.
    let value = "v".repeat(80_000);
    (0..1000).for_each(|number| _ = pipeline.set_ex(format!("k{number}"), &value, 1000).ignore());
    pipeline.query::<()>(&mut connection).unwrap();
    cluster.go_on(3);
    until("node 3 is back", || cluster.follower_state(3) == "streaming");
    assert_eq!(assert_all_equal(&cluster, 3), 1000, "no key of before is left over");
    assert!(cluster.counters("full_resyncs_total") > full);
}

/// What a writer knows about a key: the last number sent, and the last one acknowledged.
#[derive(Default)]
struct Known {
    sent: BTreeMap<String, u64>,
    acknowledged: BTreeMap<String, u64>,
}

/// Writes growing numbers to ten keys, and records each outcome.
fn write_and_note(writer: usize, cluster_port: u16, stop: &AtomicBool) -> Known {
    let mut known = Known::default();
    let client = redis::Client::open(format!("redis://127.0.0.1:{cluster_port}/")).unwrap();
    let mut connection = None;
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let Some(open) = connection.as_mut() else {
            connection = client.get_connection_with_timeout(Duration::from_secs(1)).ok();
            continue;
        };
        let key = format!("w{writer}:{}", number % 10);
        known.sent.insert(key.clone(), number);
        match redis::cmd("SET").arg(&key).arg(number).query::<()>(open) {
            Ok(()) => drop(known.acknowledged.insert(key, number)),
            // An error reply leaves the connection intact; any other error ends it.
            Err(error) if error.code().is_some() => {}
            Err(_) => connection = None,
        }
    }
    known
}

#[test]
fn a_killed_leader_restarts_with_every_acknowledged_write() {
    let mut cluster = Cluster::start(3, MAJORITY);
    let stop = AtomicBool::new(false);
    let ports = [cluster.client_port(1), cluster.client_port(2), cluster.client_port(3)];
    let known: Vec<Known> = std::thread::scope(|scope| {
        let stop = &stop;
        let writers: Vec<_> = ports
            .into_iter()
            .enumerate()
            .map(|(writer, port)| scope.spawn(move || write_and_note(writer, port, stop)))
            .collect();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..2 {
                let offset = |cluster: &Cluster| cluster.default_keyspace(1)["applied"].as_u64().unwrap();
                let before = offset(&cluster);
                until("writes arrive", || offset(&cluster) > before + 300);
                cluster.kill(1);
                cluster.restart(1);
                cluster.wait_until_ready(1);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let known = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        known
    });
    // A follower answers reads too: it must have everything before it is asked.
    let keys = assert_all_equal(&cluster, 3);
    assert!(keys >= 30, "{keys}");
    let mut connection = cluster.client(2);
    for (key, acknowledged) in known.iter().flat_map(|known| &known.acknowledged) {
        let value: u64 = ask(&mut connection, &format!("GET {key}")).trim_matches('"').parse().unwrap_or(0);
        let sent = known.iter().find_map(|known| known.sent.get(key)).unwrap();
        assert!(
            (*acknowledged..=*sent).contains(&value),
            "{key} is {value}; {acknowledged} was acknowledged, {sent} sent"
        );
    }
}

#[test]
fn with_acks_all_a_dead_follower_leaves_the_in_sync_set_and_rejoins_it() {
    let mut cluster = Cluster::start(3, &["prefix= replication=leader-follower acks=all"]);
    let mut connection = cluster.client(2);
    assert_eq!(ask(&mut connection, "SET k before"), "OK");
    cluster.kill(3);
    // The write waits until the follower has left the in-sync set by agreement; before that, no write is acknowledged
    // without it.
    assert_eq!(ask(&mut connection, "SET k after"), "OK");
    assert_eq!(cluster.in_sync(2), serde_json::json!([1, 2]));

    cluster.restart(3);
    cluster.wait_until_ready(3);
    until("it is in the set again", || cluster.in_sync(2) == serde_json::json!([1, 2, 3]));
    assert_eq!(ask(&mut connection, "SET k later"), "OK");
    assert_eq!(ask(&mut cluster.client(3), "GET k"), "\"later\"");
}

#[test]
fn without_a_follower_acks_count_refuses_writes_and_acks_none_accepts_them() {
    let mut cluster = Cluster::start(
        3,
        &[
            "prefix= replication=leader-follower acks=2",
            "prefix=cache: replication=leader-follower acks=none",
        ],
    );
    let mut connection = cluster.client(2);
    assert_eq!(ask(&mut connection, "SET k before"), "OK");
    cluster.kill(3);
    let begun = Instant::now();
    until("writes are refused", || ask(&mut connection, "SET k after").starts_with("-NOREPLICAS"));
    let took = begun.elapsed();
    assert!(took.as_millis() < 4000, "it waits about a second for the follower: {took:?}");
    assert_eq!(ask(&mut connection, "GET k"), "\"before\"", "it was not applied");
    assert_eq!(ask(&mut connection, "SET cache:k v"), "OK");
    assert_eq!(ask(&mut connection, "GET cache:k"), "\"v\"");

    cluster.restart(3);
    cluster.wait_until_ready(3);
    until("all can be written again", || ask(&mut connection, "SET k later") == "OK");
    assert_eq!(ask(&mut connection, "GET k"), "\"later\"");
}

#[test]
fn a_write_that_a_paused_follower_may_have_is_unknown_and_replicas_agree_later() {
    let cluster = Cluster::start_with(
        3,
        &["prefix= replication=leader-follower acks=2 reads=any"],
        "command_timeout_ms = 1500",
    );
    let leader = cluster.leader();
    let paused = if leader == 3 { 2 } else { 3 };
    let mut connection = cluster.client(leader);
    until("it can be written", || ask(&mut connection, "SET k before") == "OK");
    until("the follower is in step", || cluster.follower_state(paused) == "streaming");
    cluster.pause(paused);
    // The follower does not count as silent yet, so the write is sent to it.
    let outcome = code(redis::cmd("SET").arg("k").arg("after").query::<()>(&mut connection));
    assert_eq!(outcome, "UNKNOWN");
    cluster.go_on(paused);
    assert_eq!(assert_all_equal(&cluster, 3), 1);
    let values = [1, 2, 3].map(|id| ask(&mut cluster.client(id), "GET k"));
    assert_eq!(values, ["\"after\"", "\"after\"", "\"after\""], "it did take effect");
}

#[test]
fn clients_of_a_follower_continue_after_a_failover_and_get_an_error_when_no_node_can_lead() {
    let mut cluster = Cluster::start(3, &["prefix= replication=leader-follower acks=majority"]);
    let leader = cluster.leader();
    let [stays, goes] = [1, 2, 3].into_iter().filter(|id| *id != leader).collect::<Vec<_>>()[..] else {
        panic!()
    };
    let mut connection = cluster.client(stays);
    assert_eq!(ask(&mut connection, "SET k v"), "OK");
    cluster.kill(leader);
    until("another leads", || ask(&mut connection, "GET k") == "\"v\"");
    assert_eq!(ask(&mut connection, "INCR n"), "1");
    assert_eq!(cluster.http(stays, "GET /health HTTP/1.1", "").0, 200);

    cluster.kill(goes);
    until("there is no majority", || ask(&mut connection, "GET k").starts_with("-CLUSTERDOWN NOLEADER"));
    assert_eq!(code(redis::cmd("INCR").arg("n").query::<i64>(&mut connection)), "CLUSTERDOWN");
    assert_eq!(ask(&mut connection, "PING"), "PONG", "what needs no leader goes on");
    until("health says so", || cluster.http(stays, "GET /health HTTP/1.1", "").0 == 503);

    cluster.restart(goes);
    until("there is a leader again", || ask(&mut connection, "GET k") == "\"v\"");
    assert_eq!(ask(&mut connection, "INCR n"), "2", "the refused one was not done");
}

#[test]
fn killing_a_node_in_each_role_leaves_the_replicas_equal() {
    let mut cluster = Cluster::start(3, MAJORITY);
    for (round, victim) in [2, 1, 3, 1].into_iter().enumerate() {
        let mut connection = cluster.client(if victim == 2 { 3 } else { 2 });
        for number in 0..50 {
            assert_eq!(ask(&mut connection, &format!("SET r{round}:{number} v PX 10000000")), "OK");
        }
        assert_eq!(ask(&mut connection, &format!("DEL r{round}:0 r{round}:1")), "2");
        cluster.kill(victim);
        cluster.restart(victim);
        (1..=3).for_each(|id| cluster.wait_until_ready(id));
    }
    assert_eq!(assert_all_equal(&cluster, 3), 4 * 48);
}
