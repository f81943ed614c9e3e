//! `WAIT` answers with the true number of replicas that hold what the client has written.

use crate::support::{Cluster, setup};

#[test]
fn wait_pipelined_after_a_write_counts_the_replicas_of_that_write() {
    for acks in ["none", "majority", "all"] {
        let mut cluster = setup(3, &[&format!("prefix= acks={acks}")]).start();
        for node in 1..=3 {
            let client = cluster.client(node);
            let replies = cluster.pipeline(client, &["SET k v", "WAIT 2 0", "GET k"]);
            assert_eq!(replies, ["OK", "2", "\"v\""], "acks={acks} at node {node}");
        }
    }
}

#[test]
fn wait_after_an_answered_write_counts_the_same() {
    for acks in ["none", "majority", "all"] {
        let mut cluster = setup(3, &[&format!("prefix= acks={acks}")]).start();
        for node in 1..=3 {
            let client = cluster.client(node);
            cluster.ask(client, "SET k v");
            assert_eq!(cluster.ask(client, "WAIT 2 0"), "2", "acks={acks} at node {node}");
        }
    }
}

fn with_a_silent_follower(acks: &str) -> Cluster {
    let mut cluster = setup(3, &[&format!("prefix= acks={acks}")]).start();
    cluster.cut_off(3);
    cluster
}

#[test]
fn a_replica_that_does_not_have_the_write_is_not_counted() {
    for acks in ["none", "majority"] {
        let mut cluster = with_a_silent_follower(acks);
        for node in 1..=2 {
            let client = cluster.client(node);
            let took_ms = cluster.time(|cluster| {
                assert_eq!(cluster.pipeline(client, &["SET k v", "WAIT 2 100"]), ["OK", "1"], "acks={acks}");
            });
            assert!((100..150).contains(&took_ms), "it waits as long as it may: {took_ms}");
        }
    }
}

#[test]
fn wait_ends_as_soon_as_enough_replicas_have_the_write() {
    let mut cluster = with_a_silent_follower("none");
    let client = cluster.client(1);
    let took_ms = cluster.time(|cluster| {
        assert_eq!(cluster.pipeline(client, &["SET k v", "WAIT 1 10000"]), ["OK", "1"]);
    });
    assert!(took_ms < 20, "{took_ms}");

    cluster.send(client, "WAIT 2 0");
    cluster.turns(500);
    assert_eq!(cluster.arrived(client), None, "without a timeout it waits forever");
    cluster.reconnect(3);
    assert_eq!(cluster.reply(client), "2");
}

#[test]
fn wait_over_several_keyspaces_counts_the_replicas_that_have_everything() {
    let keyspaces = ["prefix= acks=none", "prefix=b: acks=none leader=2", "prefix=few: acks=none replicas=2"];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(1);
    assert_eq!(cluster.pipeline(client, &["SET a 1", "SET b:k 1", "WAIT 2 0"]), ["OK", "OK", "2"]);
    assert_eq!(cluster.pipeline(client, &["SET few:k 1", "WAIT 2 50"]), ["OK", "1"]);
}

#[test]
fn writes_of_other_clients_are_not_waited_for() {
    let mut cluster = setup(3, &["prefix= acks=none", "prefix=b: acks=none leader=2"]).start();
    let client = cluster.client(1);
    cluster.cut_off(2);
    // Keyspace b: is unreachable, but this client has written nothing there.
    assert_eq!(cluster.pipeline(client, &["SET a 1", "WAIT 1 1000"]), ["OK", "1"]);
}

#[test]
fn a_flush_of_several_keyspaces_is_a_write_to_wait_for() {
    let mut cluster = setup(3, &["prefix= acks=none", "prefix=b: acks=none leader=1"]).start();
    let client = cluster.client(1);
    cluster.ask(client, "SET a 1");
    assert_eq!(cluster.ask(client, "WAIT 2 0"), "2");
    cluster.pause(2);
    cluster.pause(3);
    assert_eq!(cluster.ask(client, "FLUSHALL"), "OK");
    assert_eq!(cluster.ask(client, "WAIT 2 50"), "0", "no replica has received it yet");
    cluster.go_on(2);
    cluster.go_on(3);
    assert_eq!(cluster.ask(client, "WAIT 2 0"), "2");
}

#[test]
fn invalid_arguments_of_wait_get_redis_errors() {
    let mut cluster = setup(1, &[]).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "WAIT 0 0"), "0");
    assert_eq!(cluster.ask(client, "WAIT 1 10"), "0", "there is no replica");
    assert_eq!(cluster.ask(client, "WAIT x 0"), "-ERR value is not an integer or out of range");
    assert_eq!(cluster.ask(client, "WAIT 0 x"), "-ERR timeout is not an integer or out of range");
    assert_eq!(cluster.ask(client, "WAIT 0 -1"), "-ERR timeout is negative");
}

const SYNCED: [&str; 2] = ["prefix= replication=consensus", "prefix= acks=majority durability=fsync"];

#[test]
fn waitaof_tells_whose_disks_have_the_writes() {
    for keyspace in SYNCED {
        let mut cluster = setup(3, &[keyspace]).start();
        for node in 1..=3 {
            let client = cluster.client(node);
            let replies = cluster.pipeline(client, &["SET k v", "WAITAOF 1 2 0", "GET k"]);
            assert_eq!(replies, ["OK", "[1, 2]", "\"v\""], "{keyspace} at node {node}");
            assert_eq!(cluster.ask(client, "WAITAOF 0 0 0"), "[1, 2]", "{keyspace}");
        }
        cluster.cut_off(3);
        let client = cluster.client(1);
        assert_eq!(cluster.pipeline(client, &["SET k v", "WAITAOF 1 1 0"])[1], "[1, 1]", "{keyspace}");
        let took_ms = cluster.time(|cluster| {
            assert_eq!(
                cluster.ask(client, "WAITAOF 1 2 100"),
                "[1, 1]",
                "{keyspace}: these writes are acknowledged"
            );
        });
        assert!((100..150).contains(&took_ms), "{took_ms}");
    }
}

/// Without a majority the write is committed nowhere: its leader says of its own disk no more than is known of the write.
#[test]
fn waitaof_says_nothing_of_a_write_in_doubt() {
    for keyspace in SYNCED {
        let mut cluster = setup(3, &[keyspace]).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
        cluster.cut_off(2);
        cluster.cut_off(3);
        cluster.send(client, "SET k w");
        cluster.send(client, "WAITAOF 1 0 100");
        cluster.reply(client);
        let reply = cluster.reply(client);
        assert!(reply == "[0, 0]" || reply.starts_with('-'), "{keyspace}: {reply}");
    }
}

#[test]
fn waitaof_is_refused_where_it_is_not_known_what_is_synced() {
    let keyspaces =
        ["prefix= replication=consensus", "prefix=b: acks=majority durability=os", "prefix=c: acks=majority"];
    let mut cluster = setup(3, &keyspaces).start();
    for (key, durability) in [("b:k", "os"), ("c:k", "none")] {
        let client = cluster.client(2);
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
        assert_eq!(cluster.ask(client, "WAITAOF 1 1 0"), "[1, 2]");
        assert_eq!(cluster.ask(client, &format!("SET {key} v")), "OK");
        let refused = cluster.ask(client, "WAITAOF 0 1 0");
        assert!(refused.starts_with("-ERR WAITAOF is for") && refused.contains(durability), "{refused}");
        assert_eq!(
            cluster.ask(client, "WAITAOF 0 0 0"),
            "[0, 0]",
            "nothing is asked for, and nothing is known"
        );
    }
    let client = cluster.client(1);
    for (request, error) in [
        ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF x 0 0", "-ERR value is not an integer or out of range"),
        ("WAITAOF 1 -1 0", "-ERR value is out of range, must be positive"),
        ("WAITAOF 1 0 -1", "-ERR timeout is negative"),
        ("WAITAOF 1 0", "-ERR wrong number of arguments for 'waitaof' command"),
    ] {
        assert_eq!(cluster.ask(client, request), error);
    }
}
