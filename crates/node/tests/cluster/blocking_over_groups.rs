//! Clients that wait for elements at keys of several shards and keyspaces: what they are served, and what happens when
//! connections, leaders and nodes fail.

use crate::support::{Client, Cluster, assert_error, setup};
use std::collections::BTreeSet;

const KEYSPACES: [&str; 2] = ["prefix= acks=majority", "prefix=b: replication=consensus shards=3"];

fn cluster() -> Cluster {
    setup(3, &KEYSPACES).start()
}

/// Lets requests begin to wait: a transaction has found nothing, and all leaders have noted the clients.
fn begin_to_wait(cluster: &mut Cluster) {
    cluster.turns(100);
}

/// A number in `INFO`.
fn counted(cluster: &mut Cluster, client: Client, name: &str) -> u64 {
    let info = cluster.ask(client, "INFO").replace("\\r\\n", "\n");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).expect("the field");
    line.trim().parse().expect("a number")
}

#[test]
fn what_is_there_is_served_at_once_by_the_first_key_that_has_it() {
    let mut cluster = cluster();
    for node in 1..=3 {
        let client = cluster.client(node);
        let script = [
            ("RPUSH l a b c d", "4"),
            ("RPUSH b:l x y", "2"),
            ("BLPOP none b:l l 0", "[\"b:l\", \"x\"]"),
            ("BRPOP l b:l 0", "[\"l\", \"d\"]"),
            ("BLMPOP 0 2 l b:l LEFT COUNT 2", "[\"l\", [\"a\", \"b\"]]"),
            ("BLMOVE l b:l LEFT RIGHT 0", "\"c\""),
            ("BRPOPLPUSH b:l l 0", "\"c\""),
            ("BLPOP b:none b:l l 0", "[\"b:l\", \"y\"]"),
            ("DEL l", "1"),
            ("ZADD b:z 1 m 2 n 3 o 4 p", "4"),
            ("BZPOPMIN z b:z 0", "[\"b:z\", \"m\", \"1\"]"),
            ("BZPOPMAX z b:z 0", "[\"b:z\", \"p\", \"4\"]"),
            ("BZMPOP 0 2 z b:z MIN COUNT 9", "[\"b:z\", [[\"n\", \"2\"], [\"o\", \"3\"]]]"),
            ("SET s v", "OK"),
            ("BLPOP none s b:l 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("DEL s", "1"),
            ("DBSIZE", "0"),
        ];
        for (request, expected) in script {
            assert_eq!(cluster.ask(client, request), expected, "{request}");
        }
    }
}

#[test]
fn a_client_waits_until_any_key_has_something() {
    let waits = [
        ("BLPOP l b:l 0", "RPUSH b:l x", "[\"b:l\", \"x\"]"),
        ("BLPOP b:l l 0", "LPUSH l x", "[\"l\", \"x\"]"),
        ("BRPOP b:l b:m b:n b:o l 0", "RPUSH b:n x", "[\"b:n\", \"x\"]"),
        (
            "BLMPOP 0 2 l b:l RIGHT COUNT 5",
            "EVAL return{redis.call('rpush',KEYS[1],1,2)} 1 b:l",
            "[\"b:l\", [\"2\", \"1\"]]",
        ),
        ("BLMOVE l b:d LEFT LEFT 0", "RPUSH l x", "\"x\""),
        ("BRPOPLPUSH b:l d 0", "RPUSH b:l x", "\"x\""),
        ("BZPOPMIN z b:z 0", "ZADD b:z 1 m", "[\"b:z\", \"m\", \"1\"]"),
        ("BZPOPMAX b:z z 0", "ZADD z 1 m", "[\"z\", \"m\", \"1\"]"),
        ("BZMPOP 0 2 z b:z MIN", "ZADD b:z 1 m", "[\"b:z\", [[\"m\", \"1\"]]]"),
        ("BLPOP l b:l 0", "LMOVE b:x l LEFT LEFT", "[\"l\", \"0\"]"),
        ("BLPOP l b:l 0", "RENAME b:r l", "[\"l\", \"0\"]"),
        ("BLPOP m b:l 0", "MULTI", "[\"b:l\", \"y\"]"),
    ];
    let mut cluster = cluster();
    let pusher = cluster.client(1);
    for (node, (wait, push, served)) in (0..).zip(waits) {
        let client = cluster.client(node % 3 + 1);
        cluster.ask(pusher, "DEL l b:l d b:d b:x");
        cluster.ask(pusher, "RPUSH b:x 0");
        cluster.ask(pusher, "RPUSH b:r 0");
        cluster.send(client, wait);
        begin_to_wait(&mut cluster);
        assert!(cluster.arrived(client).is_none() && !cluster.node(client.node).wants_input(client.id));
        let took_ms = cluster.time(|cluster| {
            if push == "MULTI" {
                cluster.pipeline(pusher, &["MULTI", "RPUSH b:l y", "SET n 1", "EXEC"]);
            } else {
                cluster.ask(pusher, push);
            }
            assert_eq!(cluster.reply(client), served, "{wait} at {push}");
        });
        assert!(took_ms < 60, "no polling: {took_ms} ms for {wait} at {push}");
    }
}

#[test]
fn streams_are_read_from_where_they_end_when_the_client_begins_to_wait() {
    let mut cluster = cluster();
    let pusher = cluster.client(1);
    for node in 1..=3 {
        let client = cluster.client(node);
        cluster.ask(pusher, "DEL s b:s");
        cluster.ask(pusher, "XADD s 1-1 f old");
        cluster.send(client, "XREAD BLOCK 0 STREAMS s b:s $ $");
        begin_to_wait(&mut cluster);
        assert_eq!(cluster.arrived(client), None);
        cluster.ask(pusher, "XADD b:s 2-1 f v");
        assert_eq!(cluster.reply(client), "[[\"b:s\", [[\"2-1\", [\"f\", \"v\"]]]]]");
        cluster.send(client, "XREAD BLOCK 0 STREAMS s b:s 1-1 2-1");
        begin_to_wait(&mut cluster);
        cluster.ask(pusher, "XADD s 3-1 f v");
        assert_eq!(cluster.reply(client), "[[\"s\", [[\"3-1\", [\"f\", \"v\"]]]]]");
        let both = "[[\"s\", [[\"3-1\", [\"f\", \"v\"]]]], [\"b:s\", [[\"2-1\", [\"f\", \"v\"]]]]]";
        assert_eq!(cluster.ask(client, "XREAD BLOCK 0 STREAMS s b:s 1-1 0"), both);
        assert_eq!(cluster.ask(client, "XREAD BLOCK 20 STREAMS s b:s $ $"), "nil");
        // All who read an entry get it.
        let other = cluster.client(node % 3 + 1);
        [client, other].into_iter().for_each(|it| cluster.send(it, "XREAD BLOCK 0 STREAMS b:s s $ $"));
        begin_to_wait(&mut cluster);
        cluster.ask(pusher, "XADD s 4-1 f v");
        for it in [client, other] {
            assert_eq!(cluster.reply(it), "[[\"s\", [[\"4-1\", [\"f\", \"v\"]]]]]");
        }
    }
}

#[test]
fn consumers_wait_for_entries_of_several_groups() {
    let mut cluster = cluster();
    let (pusher, client, watcher) = (cluster.client(1), cluster.client(2), cluster.client(2));
    for key in ["s", "b:s"] {
        assert_eq!(cluster.ask(pusher, &format!("XGROUP CREATE {key} g $ MKSTREAM")), "OK");
    }
    let request = "XREADGROUP GROUP g c BLOCK 0 STREAMS s b:s > >";
    for key in ["b:s", "s", "b:s"] {
        cluster.send(client, request);
        begin_to_wait(&mut cluster);
        let begun = counted(&mut cluster, watcher, "transactions_begun");
        cluster.turns(1000);
        let later = counted(&mut cluster, watcher, "transactions_begun");
        assert_eq!(later, begun, "its own attempts wake nobody");
        let id = cluster.ask(pusher, &format!("XADD {key} * f v"));
        assert_eq!(cluster.reply(client), format!("[[\"{key}\", [[{id}, [\"f\", \"v\"]]]]]"));
    }
    assert_eq!(cluster.ask(pusher, "XPENDING s g").split(',').next(), Some("[1"));
    cluster.send(client, request);
    begin_to_wait(&mut cluster);
    cluster.ask(pusher, "DEL s");
    assert_error(&cluster.reply(client), "NOGROUP");
}

#[test]
fn a_wait_lasts_for_its_timeout() {
    let mut cluster = cluster();
    let waits = [
        "BLPOP l b:l 0.1",
        "BLMOVE l b:m LEFT LEFT 0.1",
        "BZMPOP 0.1 2 z b:z MIN",
        "XREAD BLOCK 100 STREAMS s b:s 0 0",
    ];
    for (node, request) in (0..).zip(waits) {
        let client = cluster.client(node % 3 + 1);
        let took_ms = cluster.time(|cluster| assert_eq!(cluster.ask(client, request), "nil", "{request}"));
        assert!((100..140).contains(&took_ms), "{request}: {took_ms} ms");
    }
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "BLPOP l b:l 0.001"), "nil");
    assert_eq!(cluster.ask(client, "RPUSH l a"), "1", "nobody waits for it any more");
    cluster.turns(100);
    assert_eq!(cluster.ask(client, "LLEN l"), "1");
    assert!(!(1..=3).any(|id| cluster.node(id).has_waits()));
}

#[test]
fn a_wait_is_ended_and_reported_like_any_other() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(1));
    let id = cluster.ask(bob, "CLIENT ID");
    let unblocked = "-UNBLOCKED client unblocked via CLIENT UNBLOCK";
    for (how, reply) in [("", "nil"), (" TIMEOUT", "nil"), (" ERROR", unblocked)] {
        cluster.send(bob, "BLPOP l b:l 0");
        begin_to_wait(&mut cluster);
        assert_eq!(counted(&mut cluster, ann, "blocked_clients"), 1);
        assert_eq!(counted(&mut cluster, ann, "total_blocking_keys"), 2);
        assert!(cluster.ask(ann, &format!("CLIENT LIST ID {id}")).contains("flags=b"), "it is blocked");
        assert_eq!(cluster.ask(ann, &format!("CLIENT UNBLOCK {id}{how}")), "1");
        assert_eq!(cluster.reply(bob), reply);
        assert_eq!(cluster.ask(ann, &format!("CLIENT UNBLOCK {id}")), "0");
    }
    cluster.send(bob, "BLPOP l b:l 0");
    begin_to_wait(&mut cluster);
    assert_eq!(cluster.ask(ann, &format!("CLIENT KILL ID {id}")), "1");
    cluster.turns(50);
    assert_eq!(counted(&mut cluster, ann, "blocked_clients"), 0);
    assert_eq!(cluster.ask(ann, "RPUSH l a"), "1");
    cluster.turns(50);
    assert_eq!(cluster.ask(ann, "BLPOP b:l l 0"), "[\"l\", \"a\"]", "it was not taken");
    let requests = ["MULTI", "BLPOP l b:l 0", "RPUSH b:l a", "BLPOP l b:l 0", "EXEC"];
    assert_eq!(cluster.pipeline(ann, &requests)[4], "[nil, 1, [\"b:l\", \"a\"]]");
    let cat = cluster.client(2);
    cluster.send(cat, "BLPOP l b:l 0");
    begin_to_wait(&mut cluster);
    cluster.node(2).stop_waits();
    assert!(cluster.reply(cat).starts_with("-CLUSTERDOWN NOLEADER node 2 is about to stop"));
    assert!(!cluster.node(2).has_waits());
}

#[test]
fn requests_before_and_after_a_waiting_one_keep_their_places() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    for line in ["RPUSH l 1", "RPUSH b:l 2", "BLPOP b:l l 0"] {
        cluster.send(ann, line);
    }
    let replies: Vec<String> = (0..3).map(|_| cluster.reply(ann)).collect();
    assert_eq!(replies, ["1", "1", "[\"b:l\", \"2\"]"]);
    for line in ["MSET l2 1 b:l2 2", "BLPOP l l2 b:l 0"] {
        cluster.send(ann, line);
    }
    assert_eq!([cluster.reply(ann), cluster.reply(ann)], ["OK", "[\"l\", \"1\"]"]);
    cluster.send(bob, "BLPOP l b:l 0");
    assert!(!cluster.node(2).wants_input(bob.id));
    begin_to_wait(&mut cluster);
    cluster.ask(ann, "RPUSH l a");
    cluster.reply(bob);
    assert!(cluster.node(2).wants_input(bob.id));
}

#[test]
fn those_who_waited_longest_are_served_first() {
    let mut cluster = cluster();
    let pusher = cluster.client(2);
    let clients: Vec<Client> = (0..6).map(|index| cluster.client(index % 3 + 1)).collect();
    for (index, client) in clients.iter().enumerate() {
        cluster.send(*client, if index % 2 == 0 { "BLPOP l b:l 0" } else { "BRPOP b:none l 0" });
        begin_to_wait(&mut cluster);
    }
    for (index, client) in clients.iter().enumerate() {
        assert_eq!(cluster.ask(pusher, &format!("RPUSH l e{index}")), "1");
        assert_eq!(cluster.reply(*client), format!("[\"l\", \"e{index}\"]"));
        assert!(clients[index + 1..].iter().all(|other| cluster.arrived(*other).is_none()));
    }
    assert_eq!(cluster.ask(pusher, "EXISTS l"), "0");
    // One push of several elements serves several clients.
    clients.iter().for_each(|client| cluster.send(*client, "BLPOP b:l l 0"));
    begin_to_wait(&mut cluster);
    assert_eq!(cluster.ask(pusher, "RPUSH l 1 2 3 4 5 6"), "6");
    let served: BTreeSet<String> = clients.iter().map(|client| cluster.reply(*client)).collect();
    assert_eq!(served.len(), 6);
}

#[test]
fn a_key_of_another_kind_serves_nobody_who_waits() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    cluster.send(bob, "BLPOP l b:l 0");
    begin_to_wait(&mut cluster);
    cluster.ask(ann, "ZADD l 1 m");
    cluster.turns(50);
    assert_eq!(cluster.arrived(bob), None);
    cluster.ask(ann, "RPUSH b:l a");
    assert_eq!(cluster.reply(bob), "[\"b:l\", \"a\"]");
}

#[test]
fn an_element_stays_for_others_when_its_client_leaves() {
    for moment in 0..20 {
        let mut cluster = cluster();
        let (ann, bob, cat) = (cluster.client(1), cluster.client(2), cluster.client(3));
        for client in [bob, cat] {
            cluster.send(client, "BLPOP l b:l 0");
            begin_to_wait(&mut cluster);
        }
        cluster.send(ann, "RPUSH b:l a");
        cluster.turns(moment);
        if cluster.arrived(bob).is_some() {
            assert!(moment > 3, "it cannot be that fast");
            break;
        }
        cluster.close(bob);
        assert_eq!(cluster.reply(cat), "[\"b:l\", \"a\"]", "moment {moment}");
    }
}

#[test]
fn waiting_clients_do_not_notice_a_change_of_leader() {
    for key in ["l", "b:l"] {
        let mut cluster = cluster();
        let dead = cluster.keyspace(1, if key == "l" { "default" } else { "b:" }).leader;
        let dead = if dead == 0 { 1 } else { dead };
        let (there, elsewhere) = (dead % 3 + 1, (dead + 1) % 3 + 1);
        let (ann, bob, cat) = (cluster.client(there), cluster.client(elsewhere), cluster.client(there));
        for client in [bob, cat] {
            cluster.send(client, "BLPOP l b:l b:m b:n 0");
            begin_to_wait(&mut cluster);
        }
        cluster.kill(dead);
        cluster.until("it is pushed", |cluster| cluster.ask(ann, &format!("RPUSH {key} a b")) == "2");
        let served: BTreeSet<String> = [bob, cat].map(|client| cluster.reply(client)).into();
        assert_eq!(served, BTreeSet::from(["a", "b"].map(|it| format!("[\"{key}\", \"{it}\"]"))));
    }
}

/// The node has no replica of the groups, and what its leader says is lost with a link.
#[test]
fn a_client_at_a_node_without_replicas_is_served_whatever_is_lost() {
    let keyspaces =
        ["prefix= acks=majority replicas=3", "prefix=b: replication=consensus shards=3 replicas=3"];
    let mut cluster = setup(5, &keyspaces).start();
    for node in 1..=5 {
        let (ann, bob) = (cluster.client(node % 5 + 1), cluster.client(node));
        for key in ["l", "b:l"] {
            cluster.send(bob, "BLPOP l b:l 0");
            begin_to_wait(&mut cluster);
            assert_eq!(cluster.ask(ann, &format!("RPUSH {key} a")), "1");
            assert_eq!(cluster.reply(bob), format!("[\"{key}\", \"a\"]"));
            cluster.send(bob, "BLPOP l b:l 0");
            begin_to_wait(&mut cluster);
            for other in (1..=5).filter(|it| *it != node) {
                cluster.break_link(other, node);
            }
            assert_eq!(cluster.ask(ann, &format!("RPUSH {key} a")), "1");
            cluster.turns(20);
            for other in (1..=5).filter(|it| *it != node) {
                cluster.mend_link(other, node);
            }
            assert_eq!(cluster.reply(bob), format!("[\"{key}\", \"a\"]"));
        }
    }
}

#[test]
fn keyspaces_with_weaker_promises_refuse_by_name() {
    let keyspaces = ["prefix= acks=majority", "prefix=c: acks=none", "prefix=r: replication=abd"];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(1);
    let requests = [
        ("BLPOP l c:l 0", "c:"),
        ("BZPOPMIN r:z z 0", "r:"),
        ("BLMOVE l c:l LEFT LEFT 0", "c:"),
        ("XREAD BLOCK 0 STREAMS s r:s $ $", "r:"),
    ];
    for (request, name) in requests {
        let reply = cluster.ask(client, request);
        assert_error(&reply, "CROSSSLOT");
        assert!(reply.contains(&format!("'{name}'")), "{reply}");
    }
}

#[test]
fn a_keyspace_that_is_dropped_or_created_does_not_hold_a_wait() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    cluster.send(bob, "BLPOP l b:l c:l 0");
    begin_to_wait(&mut cluster);
    assert_eq!(cluster.ask(ann, "KEYSPACE CREATE c: replication=consensus"), "OK");
    cluster.turns(3000);
    assert_eq!(cluster.ask(ann, "RPUSH c:l a"), "1");
    assert_eq!(cluster.reply(bob), "[\"c:l\", \"a\"]");
    cluster.send(bob, "BLPOP l b:l c:l 0");
    begin_to_wait(&mut cluster);
    assert_eq!(cluster.ask(ann, "KEYSPACE DROP c:"), "OK");
    cluster.until("it is pushed", |cluster| cluster.ask(ann, "RPUSH c:l b") == "1");
    assert_eq!(cluster.reply(bob), "[\"c:l\", \"b\"]");
}

#[test]
fn consumers_and_stores_use_keys_of_several_groups_without_waiting() {
    let mut cluster = cluster();
    for node in 1..=3 {
        let client = cluster.client(node);
        let script = [
            ("XADD s 1-1 f v", "\"1-1\""),
            ("XADD b:s 2-1 f v", "\"2-1\""),
            ("XGROUP CREATE s g 0", "OK"),
            ("XREADGROUP GROUP g c STREAMS s b:s > >", "-NOGROUP"),
            ("XGROUP CREATE b:s g 0", "OK"),
            (
                "XREADGROUP GROUP g c COUNT 1 STREAMS b:s s > >",
                "[[\"b:s\", [[\"2-1\", [\"f\", \"v\"]]]], [\"s\", [[\"1-1\", [\"f\", \"v\"]]]]]",
            ),
            ("XREADGROUP GROUP g c STREAMS s b:s > >", "nil"),
            ("XACK s g 1-1", "1"),
            ("RPUSH l 3 1 2", "3"),
            ("SORT l STORE b:sorted", "3"),
            ("LRANGE b:sorted 0 -1", "[\"1\", \"2\", \"3\"]"),
            ("SORT l LIMIT 0 2 DESC STORE b:sorted", "2"),
            ("LRANGE b:sorted 0 -1", "[\"3\", \"2\"]"),
            ("SORT l BY w_* STORE b:sorted", "-CROSSSLOT"),
            ("SORT none STORE b:sorted", "0"),
            ("EXISTS b:sorted", "0"),
            ("GEOADD geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "2"),
            ("GEOSEARCHSTORE b:near geo FROMLONLAT 15 37 BYRADIUS 100 km", "1"),
            ("ZRANGE b:near 0 -1", "[\"Catania\"]"),
            ("GEORADIUS geo 15 37 100 km STORE b:near2", "1"),
            ("ZRANGESTORE b:range geo 0 0", "1"),
            ("DEL s b:s l geo b:near b:near2 b:range", "7"),
        ];
        for (request, expected) in script {
            let reply = cluster.ask(client, request);
            assert!(reply.starts_with(expected), "{request}: {reply}");
        }
        cluster.ask(client, "FLUSHALL");
    }
}
