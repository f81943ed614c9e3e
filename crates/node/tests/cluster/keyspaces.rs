//! Several keyspaces in one cluster: each keeps its own promises, and together they look like one store.

use crate::reading::Reply;
use crate::support::{Client, Cluster, assert_error, setup};
use std::collections::BTreeSet;

/// Starts three keyspaces with three leaders and three promises.
fn three_keyspaces() -> Cluster {
    setup(3, &["prefix= acks=majority", "prefix=b: acks=none leader=2", "prefix=c: acks=all leader=3"])
        .start()
}

/// As [`three_keyspaces`], but only node 2 can lead the second one.
fn one_without_copies() -> Cluster {
    let second = "prefix=b: acks=none replicas=1 leader=2";
    setup(3, &["prefix= acks=majority", second, "prefix=c: acks=all leader=3"]).start()
}

/// Sets the keys `k0`, `b:k0`, `c:k0`, `k1` …, `each` of each kind.
fn fill(cluster: &mut Cluster, client: Client, each: usize) -> BTreeSet<String> {
    let keys = (0..each).flat_map(|number| ["", "b:", "c:"].map(|prefix| format!("{prefix}k{number}")));
    let keys: BTreeSet<String> = keys.collect();
    keys.iter().for_each(|key| cluster.send(client, &format!("SET {key} v")));
    keys.iter().for_each(|_| assert_eq!(cluster.reply(client), "OK"));
    keys
}

fn texts(reply: Reply) -> Vec<String> {
    reply.elements().into_iter().map(Reply::text).collect()
}

/// Runs a whole scan. Returns every key found, repeats included.
fn scan(cluster: &mut Cluster, client: Client, options: &str) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    loop {
        let mut answer = cluster.ask_for(client, format!("SCAN {cursor} {options}").trim()).elements();
        found.extend(texts(answer.remove(1)));
        cursor = answer.remove(0).text();
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn a_dead_node_does_not_stop_a_keyspace_for_long() {
    let mut cluster = three_keyspaces();
    let client = cluster.client(3);
    cluster.cut_off(2);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    let took_ms = cluster.time(|cluster| {
        assert_eq!(
            cluster.ask(client, "SET c:k v"),
            "OK",
            "it waits until the dead one is not in sync any more"
        );
        cluster.until("another node leads", |cluster| cluster.ask(client, "SET b:k v") == "OK");
    });
    assert!(took_ms < 1000, "{took_ms}");

    cluster.reconnect(2);
    cluster.settle();
    assert_eq!(cluster.ask(client, "SET c:k w"), "OK");
    assert_ne!(cluster.keyspace(2, "b:").role, "leader", "a restarted node follows");
}

#[test]
fn a_write_is_seen_only_once_it_is_acknowledged() {
    let mut cluster = three_keyspaces();
    let (writer, reader) = (cluster.client(3), cluster.client(3));
    cluster.pause(1);
    cluster.send(writer, "SET c:k new");
    cluster.turns(5);
    assert_eq!(cluster.ask(reader, "GET c:k"), "nil", "node 1 has not got it yet");
    cluster.go_on(1);
    assert_eq!(cluster.reply(writer), "OK");
    assert_eq!(cluster.ask(reader, "GET c:k"), "\"new\"");
}

#[test]
fn the_longest_prefix_wins() {
    let mut cluster = setup(1, &["prefix=a", "prefix=ab: acks=none", "prefix=abc acks=all"]).start();
    let client = cluster.client(1);
    for key in ["a", "ab", "ab:", "ab:x", "abc", "abcd", "b", ""] {
        cluster.send_words(client, &[b"SET", key.as_bytes(), b"v"]);
        assert_eq!(cluster.reply(client), "OK");
    }
    let offset = |name| cluster.keyspace(1, name).offset;
    let offsets = ["a", "ab:", "abc", "default"].map(offset);
    assert_eq!(offsets, [2, 2, 2, 2], "a and ab, ab: and ab:x, abc and abcd, b and the empty key");
}

#[test]
fn commands_on_all_keys_cover_all_keyspaces() {
    let mut cluster = three_keyspaces();
    for node in 1..=3 {
        let client = cluster.client(node);
        let keys = fill(&mut cluster, client, 7);
        assert_eq!(cluster.ask(client, "DBSIZE"), "21");
        let found = texts(cluster.ask_for(client, "KEYS *"));
        assert_eq!(found.len(), 21);
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), keys);
        let some: BTreeSet<String> = texts(cluster.ask_for(client, "KEYS b:*3")).into_iter().collect();
        assert_eq!(some, BTreeSet::from(["b:k3".to_string()]));

        let drawn: BTreeSet<String> = (0..200).map(|_| cluster.ask_for(client, "RANDOMKEY").text()).collect();
        assert!(drawn.is_subset(&keys));
        let prefixes: BTreeSet<&str> = drawn.iter().map(|key| key.split('k').next().unwrap_or("")).collect();
        assert_eq!(prefixes.len(), 3, "keys of every keyspace are drawn: {drawn:?}");

        assert_eq!(cluster.ask(client, "FLUSHALL"), "OK");
        assert_eq!(cluster.ask(client, "DBSIZE"), "0");
        assert_eq!(cluster.ask(client, "RANDOMKEY"), "nil");
        assert_eq!(cluster.ask(client, "KEYS *"), "[]");
        assert_eq!(scan(&mut cluster, client, ""), Vec::<String>::new());
    }
}

#[test]
fn a_random_key_is_found_when_only_one_keyspace_has_any() {
    let mut cluster = three_keyspaces();
    let client = cluster.client(1);
    cluster.ask(client, "SET b:only v");
    for _ in 0..20 {
        assert_eq!(cluster.ask(client, "RANDOMKEY"), "\"b:only\"");
    }
}

#[test]
fn a_whole_scan_returns_every_key_once_with_any_count() {
    let mut cluster = three_keyspaces();
    let filler = cluster.client(1);
    let keys = fill(&mut cluster, filler, 25);
    for node in 1..=3 {
        let client = cluster.client(node);
        for options in ["", "COUNT 1", "COUNT 3", "COUNT 25", "COUNT 26", "COUNT 1000"] {
            let mut found = scan(&mut cluster, client, options);
            found.sort();
            assert_eq!(found, keys.iter().cloned().collect::<Vec<_>>(), "node {node}, {options}");
        }
        let mut found = scan(&mut cluster, client, "MATCH c:* COUNT 4");
        found.sort();
        assert_eq!(found.len(), 25);
        assert!(found.iter().all(|key| key.starts_with("c:")));
        assert_eq!(scan(&mut cluster, client, "TYPE list"), Vec::<String>::new());
    }
}

#[test]
fn a_scan_returns_unchanged_keys_once_while_others_are_added_and_removed() {
    let mut cluster = three_keyspaces();
    let client = cluster.client(2);
    let keys = fill(&mut cluster, client, 30);
    let (mut cursor, mut found, mut step) = ("0".to_string(), Vec::new(), 0);
    loop {
        let mut answer = cluster.ask_for(client, &format!("SCAN {cursor} COUNT 5")).elements();
        found.extend(texts(answer.remove(1)).into_iter().filter(|key| keys.contains(key)));
        cursor = answer.remove(0).text();
        if cursor == "0" {
            break;
        }
        step += 1;
        let prefix = ["", "b:", "c:"][step % 3];
        cluster.ask(client, &format!("SET {prefix}new{step} v"));
        cluster.ask(client, &format!("DEL {prefix}new{}", step.saturating_sub(3)));
    }
    found.sort();
    assert_eq!(found, keys.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_scan_continues_at_the_next_leader() {
    for keyspace in ["prefix= replication=consensus", "prefix= replication=leader-follower acks=all"] {
        let mut cluster = setup(3, &[keyspace]).start();
        let leader = cluster.keyspace(1, "default").leader;
        let asked = (1..=3).find(|node| *node != leader).expect("there are three");
        let client = cluster.client(asked);
        let keys: BTreeSet<String> = (0..100).map(|number| format!("k{number}")).collect();
        for key in &keys {
            assert_eq!(cluster.ask(client, &format!("SET {key} v")), "OK");
        }
        let (mut cursor, mut found, mut step) = ("0".to_string(), Vec::new(), 0);
        loop {
            let mut answer = cluster.ask_for(client, &format!("SCAN {cursor} COUNT 10")).elements();
            found.extend(texts(answer.remove(1)));
            cursor = answer.remove(0).text();
            if cursor == "0" {
                break;
            }
            step += 1;
            if step == 5 {
                cluster.kill(leader);
                cluster.until("another one leads", |cluster| cluster.ask(client, "GET k0") == "\"v\"");
            }
        }
        found.sort();
        assert_eq!(found, keys.into_iter().collect::<Vec<_>>(), "{keyspace}");
    }
}

/// Some clients with several connections use the next connection each time.
#[test]
fn a_scan_through_alternating_nodes_returns_every_key_once() {
    for keyspace in [
        "prefix= replication=consensus reads=any",
        "prefix= replication=leader-follower acks=all reads=any",
        "prefix= replication=abd",
        "prefix= replication=blocking",
    ] {
        let mut cluster = setup(3, &[keyspace]).start();
        let clients = [1, 2, 3].map(|node| cluster.client(node));
        let keys: BTreeSet<String> = (0..100).map(|number| format!("k{number}")).collect();
        for key in &keys {
            assert_eq!(cluster.ask(clients[0], &format!("SET {key} v")), "OK");
        }
        cluster.until("all have all", |cluster| {
            clients.iter().all(|client| cluster.ask(*client, "DBSIZE") == "100")
        });
        let (mut cursor, mut found, mut step) = ("0".to_string(), Vec::new(), 0);
        loop {
            let mut answer =
                cluster.ask_for(clients[step % 3], &format!("SCAN {cursor} COUNT 10")).elements();
            found.extend(texts(answer.remove(1)));
            cursor = answer.remove(0).text();
            if cursor == "0" {
                break;
            }
            step += 1;
            assert!(step < 1000, "{keyspace}: the scan does not end");
        }
        found.sort();
        assert_eq!(found, keys.into_iter().collect::<Vec<_>>(), "{keyspace}");
    }
}

#[test]
fn keys_of_several_keyspaces_in_one_command_are_refused() {
    let mut cluster = three_keyspaces();
    let client = cluster.client(1);
    let requests =
        ["MSET a 1 b:k 2", "MGET a b:k", "DEL a b:k", "RENAME a b:k", "COPY b:k c:k", "EXISTS a b:k a"];
    for request in requests {
        assert_error(&cluster.ask(client, request), "CROSSSLOT");
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), "0");
    assert_eq!(cluster.ask(client, "MSET b:k 1 b:l 2"), "OK", "several keys of one keyspace are fine");
    assert_eq!(cluster.ask(client, "MGET b:k b:l"), r#"["1", "2"]"#);
}

#[test]
fn commands_on_all_keys_name_a_keyspace_that_is_unreachable() {
    let mut cluster = one_without_copies();
    let client = cluster.client(1);
    fill(&mut cluster, client, 3);
    cluster.cut_off(2);
    for request in ["DBSIZE", "KEYS *", "KEYS b*"] {
        let reply = cluster.ask(client, request);
        assert_error(&reply, "NOLEADER");
        assert!(reply.contains("keyspace 'b:' cannot answer"), "{reply}");
    }
    assert_eq!(cluster.ask(client, "KEYS c:k0"), r#"["c:k0"]"#);
    let random = cluster.ask(client, "RANDOMKEY");
    assert!(random.starts_with("\"k") || random.starts_with("\"c:k"), "{random}");
}

#[test]
fn a_partial_flush_does_not_claim_that_nothing_was_done() {
    let mut cluster = one_without_copies();
    let client = cluster.client(1);
    fill(&mut cluster, client, 3);
    cluster.cut_off(2); // Keyspace b: is unreachable, and c: lacks a follower.
    let reply = cluster.ask(client, "FLUSHALL");
    assert_error(&reply, "UNKNOWN");
    assert_eq!(cluster.ask(client, "EXISTS k0 k1 k2"), "0", "this keyspace was emptied");
}

#[test]
fn a_node_without_a_replica_forwards_requests() {
    let mut cluster = setup(3, &["prefix= replicas=1 acks=none", "prefix=two: replicas=2 leader=2"]).start();
    for node in 1..=3 {
        let client = cluster.client(node);
        assert_eq!(cluster.ask(client, &format!("SET k {node}")), "OK");
        assert_eq!(cluster.ask(client, "GET k"), format!("\"{node}\""));
        assert_eq!(cluster.ask(client, &format!("SET two:k {node}")), "OK");
        assert_eq!(cluster.ask(client, "GET two:k"), format!("\"{node}\""));
        assert_eq!(cluster.ask(client, "DBSIZE"), "2");
    }
    cluster.kill(1);
    let client = cluster.client(3);
    assert_error(&cluster.ask(client, "GET k"), "NOLEADER");
    assert!(!cluster.health(3).serves_all() && cluster.health(3).ready);
    assert_eq!(cluster.ask(client, "GET two:k"), "\"3\"");
}

#[test]
fn a_keyspace_is_created_changed_and_dropped_while_the_cluster_runs() {
    let mut cluster = setup(3, &["prefix="]).start();
    let (one, other) = (cluster.client(1), cluster.client(3));
    assert_eq!(cluster.ask(one, "SET new:k before"), "OK");
    assert_eq!(cluster.ask(one, "KEYSPACE CREATE new: replication=consensus shards=4"), "OK");
    assert_eq!(cluster.ask(one, "KEYSPACE LIST"), r#"["", "new:"]"#);
    cluster.until("all nodes know it", |cluster| cluster.ask(other, "KEYSPACE LIST") == r#"["", "new:"]"#);
    cluster.until("it serves", |cluster| cluster.ask(other, "SET new:k v") == "OK");
    assert_eq!(cluster.ask(one, "GET new:k"), "\"v\"");
    for number in 0..50 {
        cluster
            .until("it serves", |cluster| cluster.ask(other, &format!("SET new:{number} {number}")) == "OK");
    }
    // The default keyspace's keys with this prefix are unreachable, but still exist.
    assert_eq!(cluster.ask(one, "DBSIZE"), "52");
    assert_eq!(cluster.ask(one, "MGET new:0 new:1"), "[\"0\", \"1\"]", "of several shards");
    assert_eq!(cluster.ask(one, "MGET new:{a}0 new:{a}1"), "[nil, nil]");

    // Asked again it has what was asked for, and stays as it is.
    let create = "KEYSPACE CREATE same: replication=consensus acks=majority";
    assert_eq!([cluster.ask(one, create), cluster.ask(other, create)], ["OK", "OK"]);
    assert_error(&cluster.ask(one, "KEYSPACE CREATE same: reads=any"), "EXISTS");
    assert_eq!(cluster.ask(one, "KEYSPACE SET same: reads=any"), "OK");
    assert_error(&cluster.ask(one, create), "EXISTS");
    // A setting of another protocol is no wish that could be granted, whatever its value.
    assert_error(&cluster.ask(one, "KEYSPACE SET same: acks=majority"), "ERR");
    assert_error(&cluster.ask(one, "KEYSPACE CREATE meant: acks=majority"), "ERR");
    assert_eq!(cluster.ask(one, "KEYSPACE DROP same:"), "OK");

    assert_eq!(cluster.ask(one, "KEYSPACE SET new: reads=any"), "OK");
    let settings = cluster.ask(one, "KEYSPACE GET new:");
    assert!(
        settings.contains(r#""reads", "any""#) && settings.contains(r#""durability", "fsync""#),
        "{settings}"
    );
    assert_error(&cluster.ask(one, "KEYSPACE SET new: shards=5"), "ERR");
    assert_error(&cluster.ask(one, "KEYSPACE CREATE new: replication=abd"), "EXISTS");
    assert_error(&cluster.ask(one, "KEYSPACE CREATE wrong: replication=gossip"), "ERR");
    assert_error(&cluster.ask(one, "KEYSPACE DROP none:"), "NOTFOUND");

    assert_eq!(cluster.ask(other, "KEYSPACE DROP new:"), "OK");
    assert_eq!(cluster.ask(other, "GET new:k"), "\"before\"");
    cluster.turns(10_000);
    assert_eq!(cluster.ask(other, "DBSIZE"), "1");
}

#[test]
fn a_client_that_waits_in_a_dropped_keyspace_gets_a_reply() {
    let mut cluster = setup(3, &["prefix=", "prefix=x: acks=2"]).start();
    let (waiting, operator) = (cluster.client(1), cluster.client(1));
    cluster.pause(3);
    cluster.send(waiting, "SET x:k v");
    cluster.turns(5);
    assert_eq!(cluster.ask(operator, "KEYSPACE DROP x:"), "OK");
    assert_error(&cluster.reply(waiting), "UNKNOWN");
    assert_eq!(cluster.ask(waiting, "GET x:k"), "nil");
}

#[test]
fn a_new_keyspace_serves_once_its_creation_is_answered_and_survives_its_first_leader() {
    for settings in
        ["replication=leader-follower acks=all", "replication=leader-follower", "replication=consensus"]
    {
        let mut cluster = setup(3, &["prefix="]).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, &format!("KEYSPACE CREATE new: {settings}")), "OK");
        assert_eq!(cluster.ask(client, "SET new:k v"), "OK", "{settings}");
        // Another keyspace's leader dies before any node knows the keyspace.
        cluster.send(client, &format!("KEYSPACE CREATE young: {settings}"));
        cluster.until("the map has it", |cluster| {
            cluster.health(2).keyspaces.iter().any(|keyspace| keyspace.prefix == "young:")
        });
        cluster.kill(1);
        let client = cluster.client(2);
        cluster.until("another leads", |cluster| cluster.ask(client, "SET young:k v") == "OK");
        assert_eq!(cluster.ask(client, "GET new:k"), "\"v\"");
    }
}

/// Clients and operators ask any node for the state of the cluster: with `ok` they would keep waiting for requests that no
/// node can answer.
#[test]
fn two_survivors_of_five_report_that_the_cluster_does_not_serve() {
    for replication in ["consensus", "leader-follower acks=majority", "abd"] {
        let mut cluster = setup(5, &[&format!("prefix= replication={replication}")]).start();
        let client = cluster.client(1);
        let state = |cluster: &mut Cluster, client| {
            let info = cluster.ask(client, "CLUSTER INFO");
            let field = |name: &str| {
                let (_, rest) = info.split_once(&format!("{name}:")).expect(name);
                rest.split(['\r', '\\', '\n']).next().unwrap_or_default().to_owned()
            };
            (field("cluster_state"), field("cluster_slots_ok"))
        };
        let (ok, fail) = (("ok".to_owned(), "16384".to_owned()), ("fail".to_owned(), "0".to_owned()));
        cluster.until("all serve", |cluster| state(cluster, client) == ok);
        [4, 5].into_iter().for_each(|id| cluster.kill(id));
        cluster.until("three of five serve", |cluster| state(cluster, client) == ok);
        cluster.kill(3);
        cluster.until("two of five do not", |cluster| state(cluster, client) == fail);
        cluster.restart(3);
        cluster.until("three of five serve again", |cluster| state(cluster, client) == ok);
    }
}
