//! Client-side caching: each client gets invalidations for what is no longer valid, or drops all.

use crate::support::{Client, Cluster, setup};

const CONSENSUS: &str = "prefix= replication=consensus";

/// A client of RESP3 that tracks.
fn tracking(cluster: &mut Cluster, node: u16, options: &str) -> Client {
    let client = cluster.client(node);
    cluster.ask(client, "HELLO 3");
    assert_eq!(cluster.ask(client, format!("CLIENT TRACKING ON {options}").trim_end()), "OK");
    client
}

fn messages(cluster: &mut Cluster, client: Client) -> Vec<String> {
    cluster.turns(20);
    std::iter::from_fn(|| cluster.arrived(client)).collect()
}

fn invalid(key: &str) -> String {
    format!("[\"invalidate\", [\"{key}\"]]")
}

const ALL: &str = "[\"invalidate\", nil]";

#[test]
fn a_client_that_has_read_a_key_gets_one_invalidation() {
    for keyspace in ["prefix= acks=majority", CONSENSUS] {
        let mut cluster = setup(3, &[keyspace]).start();
        let writer = cluster.client(1);
        cluster.ask(writer, "SET k v");
        cluster.turns(200);
        let readers = [1, 2, 3].map(|node| tracking(&mut cluster, node, ""));
        for reader in readers {
            assert_eq!(cluster.ask(reader, "GET k"), "\"v\"");
        }
        cluster.turns(50);
        cluster.ask(writer, "SET k w");
        cluster.ask(writer, "SET other w");
        cluster.ask(writer, "SET k x");
        for reader in readers {
            assert_eq!(messages(&mut cluster, reader), [invalid("k")], "{keyspace}");
            assert_eq!(cluster.ask(reader, "GET k"), "\"x\"");
        }
        for request in ["MULTI", "DEL k", "EXEC"] {
            cluster.ask(writer, request);
        }
        for reader in readers {
            assert_eq!(messages(&mut cluster, reader), [invalid("k")], "{keyspace}");
        }
    }
}

#[test]
fn what_is_read_of_several_shards_is_invalidated() {
    let keyspaces = ["prefix= replication=consensus shards=3", "prefix=b: acks=majority"];
    let mut cluster = setup(3, &keyspaces).start();
    let (writer, reader) = (cluster.client(1), tracking(&mut cluster, 2, ""));
    assert_eq!(cluster.ask(writer, "MSET k0 1 k1 1 k2 1 k3 1 b:k 1"), "OK");
    cluster.turns(200);
    let reads = [
        ("MGET k0 k1 k2 k3 b:k", "[\"1\", \"1\", \"1\", \"1\", \"1\"]"),
        ("EVAL return(redis.call('exists',KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5])) 5 k0 k1 k2 k3 b:k", "5"),
    ];
    for (request, expected) in reads {
        assert_eq!(cluster.ask(reader, request), expected);
        assert!(messages(&mut cluster, reader).is_empty(), "nothing has changed");
        for key in ["k3", "b:k", "k0"] {
            cluster.ask(writer, &format!("INCR {key}"));
            assert_eq!(messages(&mut cluster, reader), [invalid(key)], "after {request}");
        }
        assert_eq!(cluster.ask(writer, "MSET k0 1 k1 1 k2 1 k3 1 b:k 1"), "OK");
        let mut invalidated = messages(&mut cluster, reader);
        invalidated.sort();
        assert_eq!(invalidated, [invalid("k1"), invalid("k2")], "each key once");
    }
}

#[test]
fn an_invalidation_is_repeated_after_a_read_under_way() {
    let mut cluster = setup(1, &[]).start();
    let (reader, writer) = (tracking(&mut cluster, 1, ""), cluster.client(1));
    cluster.ask(writer, "SET k v");
    assert_eq!(cluster.ask(reader, "GET k"), "\"v\"");
    // The reply of the second read waits for the first request's.
    cluster.send(reader, "WAIT 1 200");
    cluster.send(reader, "GET k");
    cluster.ask(writer, "SET k w");
    assert_eq!(cluster.reply(reader), invalid("k"), "it caches what it has read before");
    assert_eq!(cluster.reply(reader), "0");
    assert_eq!(cluster.reply(reader), "\"v\"");
    assert_eq!(cluster.reply(reader), invalid("k"), "it must not cache what it has read now");
    assert_eq!(messages(&mut cluster, reader), [""; 0]);
}

#[test]
fn invalidations_for_own_changes_follow_the_reply_or_are_not_sent() {
    for keyspace in ["prefix= acks=majority", CONSENSUS] {
        let mut cluster = setup(3, &[keyspace]).start();
        cluster.turns(200);
        for node in [1, 2, 3] {
            let [own, noloop] = ["", "NOLOOP"].map(|options| tracking(&mut cluster, node, options));
            let broadcast = tracking(&mut cluster, node, "BCAST NOLOOP");
            for write in ["SET k v", "DEL k", "EVAL redis.call('SET',KEYS[1],1) 1 k"] {
                for reader in [own, noloop] {
                    cluster.ask(reader, "GET k");
                }
                cluster.send(own, write);
                let reply = cluster.reply(own);
                assert!(["OK", "1", "nil"].contains(&reply.as_str()), "{reply} to {write}");
                // Once the writer has the reply, other clients of this node have their invalidations.
                assert_eq!(cluster.arrived(noloop), Some(invalid("k")), "{keyspace}, node {node}, {write}");
                assert_eq!(messages(&mut cluster, own), [invalid("k")], "{keyspace}, node {node}, {write}");
                assert_eq!(messages(&mut cluster, broadcast), [invalid("k")]);
            }
            for writer in [noloop, broadcast] {
                cluster.ask(noloop, "GET k");
                cluster.ask(writer, "SET k w");
                assert_eq!(messages(&mut cluster, writer), [""; 0], "{keyspace}, node {node}");
                for reader in [noloop, broadcast].into_iter().filter(|reader| *reader != writer) {
                    assert_eq!(messages(&mut cluster, reader), [invalid("k")], "{keyspace}, node {node}");
                }
            }
            cluster.ask(noloop, "GET k");
            cluster.ask(noloop, "SET k x");
            assert_eq!(cluster.ask(own, "SET k y"), "OK");
            assert_eq!(messages(&mut cluster, noloop), [invalid("k")], "it still caches what it has written");
            for client in [own, noloop, broadcast] {
                cluster.close(client);
            }
        }
    }
}

#[test]
fn a_waiting_client_gets_its_element_before_the_invalidation() {
    for node in [1, 2] {
        let mut cluster = setup(3, &[CONSENSUS]).start();
        cluster.turns(200);
        let (waits, writer) = (tracking(&mut cluster, node, ""), cluster.client(node));
        cluster.ask(writer, "RPUSH to a");
        assert_eq!(cluster.ask(waits, "LRANGE to 0 -1"), "[\"a\"]");
        cluster.send(waits, "BLMOVE from to LEFT LEFT 0");
        cluster.turns(100);
        cluster.ask(writer, "RPUSH from b");
        assert_eq!(cluster.reply(waits), "\"b\"");
        assert_eq!(messages(&mut cluster, waits), [invalid("to")]);
    }
}

#[test]
fn clients_drop_all_when_all_keys_are_removed() {
    let mut cluster = setup(1, &[]).start();
    let (reader, writer) = (tracking(&mut cluster, 1, ""), cluster.client(1));
    cluster.ask(writer, "SET k v");
    cluster.ask(reader, "GET k");
    cluster.ask(writer, "FLUSHALL");
    assert_eq!(messages(&mut cluster, reader), [ALL]);
}

#[test]
fn clients_of_a_node_that_is_cut_off_drop_all_in_time() {
    for keyspace in ["prefix= acks=majority", CONSENSUS] {
        let mut cluster = setup(3, &[keyspace]).start();
        let writer = cluster.client(1);
        cluster.ask(writer, "SET k v");
        cluster.turns(200);
        let reader = tracking(&mut cluster, 3, "");
        assert_eq!(cluster.ask(reader, "GET k"), "\"v\"");
        cluster.turns(50);
        assert_eq!(messages(&mut cluster, reader), [""; 0]);
        cluster.cut_off(3);
        let took_ms = cluster.time(|cluster| {
            cluster.until("the client drops all", |cluster| cluster.arrived(reader).is_some());
        });
        assert!(took_ms <= 1_300, "{took_ms}");
        cluster.ask(writer, "SET k w");
        cluster.reconnect(3);
        cluster.settle();
        // The client gets no invalidation twice, and caches again what it reads.
        assert_eq!(cluster.ask(reader, "GET k"), "\"w\"");
        let _ = messages(&mut cluster, reader);
        cluster.turns(500);
        assert_eq!(cluster.ask(reader, "GET k"), "\"w\"");
        assert_eq!(messages(&mut cluster, reader), [""; 0], "{keyspace}");
        cluster.ask(writer, "SET k x");
        assert_eq!(messages(&mut cluster, reader), [invalid("k")], "{keyspace}");
    }
}

#[test]
fn registers_are_not_cached() {
    let mut cluster = setup(3, &["prefix= replication=abd"]).start();
    let reader = tracking(&mut cluster, 1, "");
    assert_eq!(cluster.ask(reader, "GET k"), "nil");
    assert_eq!(messages(&mut cluster, reader), [invalid("k")]);
}

#[test]
fn a_client_of_resp2_redirects_invalidations() {
    let mut cluster = setup(1, &[]).start();
    let (reader, listener, writer) = (cluster.client(1), cluster.client(1), cluster.client(1));
    let number = cluster.ask(listener, "CLIENT ID");
    cluster.ask(listener, "SUBSCRIBE __redis__:invalidate");
    assert_eq!(cluster.ask(reader, &format!("CLIENT TRACKING ON REDIRECT {number}")), "OK");
    assert_eq!(cluster.ask(reader, "CLIENT GETREDIR"), number);
    cluster.ask(reader, "GET k");
    cluster.ask(writer, "SET k v");
    let message = "[\"message\", \"__redis__:invalidate\", [\"k\"]]";
    assert_eq!(messages(&mut cluster, listener), [message]);
    cluster.ask(reader, "HELLO 3");
    cluster.ask(reader, "GET k");
    cluster.close(listener);
    cluster.ask(writer, "SET k w");
    assert_eq!(messages(&mut cluster, reader), [format!("[\"tracking-redir-broken\", {number}]")]);
}

#[test]
fn modes_choose_which_invalidations_a_client_gets() {
    let mut cluster = setup(1, &[]).start();
    let writer = cluster.client(1);
    let prefixes = tracking(&mut cluster, 1, "BCAST PREFIX a: PREFIX b:");
    let opting_in = tracking(&mut cluster, 1, "OPTIN");
    let opting_out = tracking(&mut cluster, 1, "OPTOUT");
    let silent = tracking(&mut cluster, 1, "NOLOOP");
    for client in [opting_in, opting_out] {
        cluster.ask(client, "GET a:1");
        cluster.ask(client, &format!("CLIENT CACHING {}", if client == opting_in { "YES" } else { "NO" }));
        cluster.ask(client, "GET a:2");
    }
    cluster.ask(silent, "GET c");
    cluster.ask(silent, "SET c v");
    for key in ["a:1", "a:2", "b:1", "c"] {
        cluster.ask(writer, &format!("SET {key} v"));
    }
    let answer = messages(&mut cluster, prefixes).concat();
    assert!(
        ["a:1", "a:2", "b:1"].iter().all(|key| answer.contains(key)) && !answer.contains("\"c\""),
        "{answer}"
    );
    assert_eq!(messages(&mut cluster, opting_in), [invalid("a:2")]);
    assert_eq!(messages(&mut cluster, opting_out), [invalid("a:1")]);
    assert_eq!(messages(&mut cluster, silent), [invalid("c")], "of the other client's change alone");
    let overlap = "-ERR Prefix 'a:1' overlaps with an existing prefix 'a:'. Prefixes for a single client must not overlap.";
    assert_eq!(cluster.ask(prefixes, "CLIENT TRACKING ON BCAST PREFIX a:1"), overlap);
    assert_eq!(cluster.ask(prefixes, "CLIENT TRACKING OFF"), "OK");
    cluster.ask(writer, "SET a:1 w");
    assert_eq!(messages(&mut cluster, prefixes), [""; 0]);
}

#[test]
fn cached_keys_are_bounded_and_the_oldest_is_dropped_first() {
    let mut cluster = setup(1, &[]).start();
    let reader = tracking(&mut cluster, 1, "");
    assert_eq!(cluster.ask(reader, "CONFIG SET tracking-table-max-keys 2"), "OK");
    for key in ["a", "b", "c"] {
        cluster.ask(reader, &format!("GET {key}"));
    }
    assert_eq!(messages(&mut cluster, reader), [invalid("a")]);
}
