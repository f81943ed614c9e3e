//! Clients that wait for elements: which client is served, in which order, and what happens to an element when
//! connections, leaders and nodes fail.

use crate::support::{Client, Cluster, assert_error, setup};

const KINDS: [&str; 2] = ["prefix= replication=consensus", "prefix= replication=leader-follower"];

fn cluster() -> Cluster {
    setup(3, &KINDS[..1]).start()
}

fn leader(cluster: &Cluster) -> u16 {
    cluster.keyspace(1, "default").leader
}

/// Repeats a request, as a client does while there is no leader.
fn insist(cluster: &mut Cluster, client: Client, request: &str) -> String {
    let mut reply = String::new();
    cluster.until("it has an answer", |cluster| {
        reply = cluster.ask(client, request);
        !["-CLUSTERDOWN", "-UNKNOWN", "-TRYAGAIN", "-LOADING", "-NOREPLICAS"]
            .iter()
            .any(|code| reply.starts_with(code))
    });
    reply
}

/// The requests at the leader: how many wait, how many are served but not settled, and how many are claimed.
fn left(cluster: &mut Cluster) -> (usize, usize, usize) {
    let leader = (1..=3).map(|id| cluster.keyspace(id, "default").leader).max().unwrap_or(1).max(1);
    cluster.node(leader).queues_left(1).expect("it has the default keyspace")
}

fn until_waiting(cluster: &mut Cluster, count: usize) {
    cluster.until("they wait", |cluster| left(cluster).0 == count);
}

/// Has both clients wait for an element of the same list, the first client before the second.
fn wait_in_order(cluster: &mut Cluster, clients: [Client; 2]) {
    for (index, client) in clients.into_iter().enumerate() {
        cluster.send(client, "BLPOP l 0");
        until_waiting(cluster, index + 1);
    }
}

fn until_settled(cluster: &mut Cluster) {
    cluster.until("nothing is left", |cluster| left(cluster) == (0, 0, 0));
}

#[test]
fn each_element_goes_to_the_longest_waiting_client_at_any_node() {
    for kind in KINDS {
        let mut cluster = setup(3, &[kind]).start();
        let pusher = cluster.client(2);
        let clients: Vec<Client> = (0..6).map(|index| cluster.client(index % 3 + 1)).collect();
        for (index, client) in clients.iter().enumerate() {
            cluster.send(*client, if index % 2 == 0 { "BLPOP l 0" } else { "BRPOP no l 0" });
            until_waiting(&mut cluster, index + 1);
        }
        for (index, client) in clients.iter().enumerate() {
            assert!(clients[index..].iter().all(|other| cluster.arrived(*other).is_none()));
            assert_eq!(cluster.ask(pusher, &format!("RPUSH l e{index}")), "1");
            let took_ms = cluster.time(|cluster| {
                assert_eq!(cluster.reply(*client), format!("[\"l\", \"e{index}\"]"), "{kind}");
            });
            assert!(took_ms < 20, "two messages and a record, and no polling: {took_ms} ms");
        }
        assert_eq!(cluster.ask(pusher, "EXISTS l"), "0");
        until_settled(&mut cluster);
    }
}

#[test]
fn existing_elements_are_served_at_once_even_with_short_timeouts() {
    let mut cluster = cluster();
    for node in 1..=3 {
        let client = cluster.client(node);
        cluster.ask(client, "RPUSH l a b c d e");
        cluster.ask(client, "ZADD z 1 m 2 n 3 o");
        assert_eq!(cluster.ask(client, "BLPOP no l 0.001"), "[\"l\", \"a\"]");
        assert_eq!(cluster.ask(client, "BLMPOP 0.001 2 no l LEFT COUNT 2"), "[\"l\", [\"b\", \"c\"]]");
        assert_eq!(cluster.ask(client, "BLMOVE l to RIGHT LEFT 0.001"), "\"e\"");
        assert_eq!(cluster.ask(client, "BRPOPLPUSH l to 0.001"), "\"d\"");
        assert_eq!(cluster.ask(client, "LRANGE to 0 -1"), "[\"d\", \"e\"]");
        assert_eq!(cluster.ask(client, "BZPOPMIN z 0.001"), "[\"z\", \"m\", \"1\"]");
        assert_eq!(cluster.ask(client, "BZPOPMAX z 0.001"), "[\"z\", \"o\", \"3\"]");
        assert_eq!(cluster.ask(client, "BZMPOP 0.001 1 z MAX"), "[\"z\", [[\"n\", \"2\"]]]");
        assert_eq!(cluster.ask(client, "DEL to"), "1");
    }
    until_settled(&mut cluster);
}

#[test]
fn a_wait_lasts_for_its_timeout() {
    for kind in KINDS {
        let mut cluster = setup(3, &[kind]).start();
        for (node, request) in (1..).zip(["BLPOP l 0.1", "BLMOVE l m LEFT LEFT 0.1", "BZMPOP 0.1 1 z MIN"]) {
            let client = cluster.client(node);
            let took_ms = cluster.time(|cluster| assert_eq!(cluster.ask(client, request), "nil"));
            assert!((100..115).contains(&took_ms), "{request}: {took_ms} ms");
        }
        assert_eq!(left(&mut cluster).0, 0, "no client waits any more");
        until_settled(&mut cluster);
        let client = cluster.client(3);
        assert_eq!(cluster.ask(client, "RPUSH l a"), "1", "no client waits for it any more");
        assert_eq!(cluster.ask(client, "LLEN l"), "1");
    }
}

#[test]
fn requests_after_a_waiting_one_are_executed_after_it() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    cluster.send(bob, "BLPOP l 0");
    assert!(!cluster.node(2).wants_input(bob.id));
    until_waiting(&mut cluster, 1);
    assert_eq!(cluster.ask(ann, "RPUSH l a"), "1");
    cluster.reply(bob);
    assert!(cluster.node(2).wants_input(bob.id));
}

#[test]
fn requests_in_a_transaction_do_not_wait() {
    let mut cluster = cluster();
    let client = cluster.client(1);
    let requests =
        ["MULTI", "BLPOP l 0", "RPUSH l a b", "BRPOP l 0", "BLMOVE no l LEFT LEFT 0", "BZPOPMIN z 0", "EXEC"];
    let replies = cluster.pipeline(client, &requests);
    assert_eq!(replies[6], "[nil, 2, [\"l\", \"b\"], nil, nil]");
    assert_eq!(cluster.ask(client, "LRANGE l 0 -1"), "[\"a\"]");
}

#[test]
fn a_waiting_client_is_served_when_a_transaction_is_over() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    cluster.send(bob, "BLPOP k l 0");
    until_waiting(&mut cluster, 1);
    let replies = cluster.pipeline(ann, &["MULTI", "RPUSH l a", "RPUSH l b", "LPOP l", "RPUSH k c", "EXEC"]);
    assert_eq!(replies[5], "[1, 2, \"a\", 1]");
    assert_eq!(cluster.reply(bob), "[\"l\", \"b\"]", "the key that was written first");
}

#[test]
fn a_client_that_waits_at_a_node_without_a_replica_is_served() {
    let mut cluster = setup(5, &["prefix= replication=consensus replicas=3"]).start();
    let lead = leader(&cluster);
    let (ann, bob) = (cluster.client(lead), cluster.client(5));
    cluster.send(bob, "BLPOP l 0");
    cluster.turns(30);
    // The notification is lost with the link: the node asks when the link is back.
    cluster.break_link(lead, 5);
    assert_eq!(cluster.ask(ann, "RPUSH l a"), "1");
    cluster.turns(100);
    cluster.mend_link(lead, 5);
    assert_eq!(cluster.reply(bob), "[\"l\", \"a\"]");
}

/// The connection is closed before, while or after the element is on its way: the next client in the queue gets it.
#[test]
fn an_element_for_a_connection_that_closes_goes_to_the_next_client() {
    for kind in KINDS {
        for moment in 0..20 {
            let mut cluster = setup(3, &[kind]).start();
            let away = leader(&cluster) % 3 + 1;
            let (ann, bob, cat) = (cluster.client(1), cluster.client(away), cluster.client(2));
            wait_in_order(&mut cluster, [bob, cat]);
            cluster.send(ann, "RPUSH l a");
            cluster.turns(moment);
            if cluster.arrived(bob).is_some() {
                assert!(moment > 3, "it cannot be that fast");
                break;
            }
            cluster.close(bob);
            assert_eq!(cluster.reply(cat), "[\"l\", \"a\"]", "{kind}, moment {moment}");
            until_settled(&mut cluster);
        }
    }
}

/// An element that the node has not claimed goes to the next client in the queue. One that it has claimed may have reached
/// its client, and goes to no other one.
#[test]
fn an_unclaimed_element_for_a_node_that_dies_goes_to_the_next_client() {
    for restarts in [false, true] {
        let mut kept_for_the_node = 0;
        for moment in 0..20 {
            let mut cluster = cluster();
            let lead = leader(&cluster);
            let (away, other) = (lead % 3 + 1, (lead + 1) % 3 + 1);
            let (ann, bob, cat) = (cluster.client(lead), cluster.client(away), cluster.client(other));
            wait_in_order(&mut cluster, [bob, cat]);
            cluster.send(ann, "RPUSH l a");
            cluster.turns(moment);
            let has_bob = cluster.arrived(bob).is_some();
            cluster.kill(away);
            if restarts {
                cluster.restart(away);
            }
            cluster.turns(2500);
            let has_cat = cluster.arrived(cat).is_some();
            assert!(!(has_bob && has_cat), "moment {moment}: it was given to two");
            if !has_bob && !has_cat {
                // The claim was on its way, or already its answer. The group keeps the claim until the node is back.
                let kept = cluster.node(lead).queues_left(1).expect("it leads").2;
                assert!(restarts || kept == 1, "moment {moment}: it vanished");
                kept_for_the_node += 1;
            }
            if has_bob {
                break;
            }
        }
        assert!(kept_for_the_node <= 5, "as long as the claim is on its way: {kept_for_the_node} turns");
    }
}

#[test]
fn waiting_clients_do_not_notice_a_change_of_leader() {
    for kind in KINDS {
        let mut cluster = setup(3, &[kind]).start();
        let dead = leader(&cluster);
        let (there, elsewhere) = (dead % 3 + 1, (dead + 1) % 3 + 1);
        let (ann, bob, cat) = (cluster.client(there), cluster.client(elsewhere), cluster.client(there));
        wait_in_order(&mut cluster, [bob, cat]);
        cluster.kill(dead);
        assert_eq!(insist(&mut cluster, ann, "RPUSH l a b"), "2");
        assert_eq!(cluster.reply(bob), "[\"l\", \"a\"]", "{kind}");
        assert_eq!(cluster.reply(cat), "[\"l\", \"b\"]", "{kind}");
    }
}

/// The leader dies at any moment while an element is pushed, served or claimed: the element goes once, to the first client
/// in the queue.
#[test]
fn an_element_is_delivered_once_when_the_leader_dies() {
    for moment in 0..16 {
        let mut cluster = cluster();
        let dead = leader(&cluster);
        let (there, elsewhere) = (dead % 3 + 1, (dead + 1) % 3 + 1);
        let (ann, bob, cat) = (cluster.client(there), cluster.client(elsewhere), cluster.client(there));
        wait_in_order(&mut cluster, [bob, cat]);
        cluster.send(ann, "RPUSH l a");
        cluster.turns(moment);
        cluster.kill(dead);
        let reply = cluster.reply(ann);
        assert!(
            reply == "1" || reply.starts_with("-UNKNOWN") || reply.starts_with("-CLUSTERDOWN"),
            "{reply}"
        );
        cluster.turns(3000);
        let first = cluster.arrived(bob);
        if reply == "1" {
            assert_eq!(first.as_deref(), Some("[\"l\", \"a\"]"), "moment {moment}");
        }
        assert_eq!(cluster.arrived(cat), None, "moment {moment}: there was one element");
        insist(&mut cluster, ann, "RPUSH l b");
        let next = if first.is_some() { cat } else { bob };
        assert_eq!(cluster.reply(next), "[\"l\", \"b\"]", "moment {moment}");
    }
}

#[test]
fn requests_of_a_nodes_earlier_incarnation_are_forgotten_when_it_restarts() {
    let mut cluster = cluster();
    let lead = leader(&cluster);
    let dead = lead % 3 + 1;
    let (ann, bob) = (cluster.client(lead), cluster.client(dead));
    cluster.send(bob, "BLPOP l 0");
    until_waiting(&mut cluster, 1);
    cluster.kill(dead);
    cluster.restart(dead);
    until_waiting(&mut cluster, 0);
    assert_eq!(cluster.ask(ann, "RPUSH l a"), "1");
    assert_eq!(cluster.ask(ann, "LLEN l"), "1");
}

/// A group may be unable to record anything for a long time. Requests whose clients no longer wait still leave its queue.
#[test]
fn a_request_whose_client_leaves_is_withdrawn_once_the_group_can_record_again() {
    for kind in KINDS {
        let mut cluster = setup(3, &[kind]).with(|it| it.command_timeout_ms = 100).start();
        let lead = leader(&cluster);
        let others = [lead % 3 + 1, (lead + 1) % 3 + 1];
        let ann = cluster.client(lead);
        cluster.send(ann, "BLPOP l 0");
        until_waiting(&mut cluster, 1);
        others.into_iter().for_each(|id| cluster.kill(id));
        cluster.turns(100);
        cluster.close(ann);
        cluster.turns(20_000);
        others.into_iter().for_each(|id| cluster.restart(id));
        cluster.settle();
        until_waiting(&mut cluster, 0);
    }
}

/// The input of a paused leader has the record of a waiting request that is long over. The request's node withdraws the
/// request when the record arrives, even if it has withdrawn it before.
#[test]
fn a_late_record_leaves_no_request_in_the_queue() {
    for kind in KINDS {
        let mut cluster = setup(5, &[kind]).with(|it| it.command_timeout_ms = 20_000).start();
        let paused = cluster.keyspace(1, "default").leader;
        let there = paused % 5 + 1;
        let bob = cluster.client(there);
        cluster.pause(paused);
        cluster.send(bob, "BLPOP l 3");
        assert_eq!(cluster.reply(bob), "nil", "{kind}");
        // The next leader has the request's node check all requests that the group has of it.
        let second = cluster.keyspace(there, "default").leader;
        assert!(![0, paused].contains(&second), "{kind}: another node leads");
        let others: Vec<u16> = (1..=5).filter(|id| ![paused, second].contains(id)).collect();
        others.iter().for_each(|id| cluster.break_link(second, *id));
        cluster.until("a third one leads", |cluster| {
            let leader = |id: &u16| cluster.keyspace(*id, "default").leader;
            others.iter().any(|id| *id != there && ![0, second].contains(&leader(id)))
        });
        others.iter().for_each(|id| cluster.mend_link(second, *id));
        cluster.turns(5000);
        cluster.go_on(paused);
        cluster.turns(70_000);
        let lead = cluster.keyspace(there, "default").leader;
        assert_eq!(cluster.node(lead).queues_left(1), Some((0, 0, 0)), "{kind}");
    }
}

#[test]
fn a_snapshot_transfer_includes_waiting_requests() {
    let keyspaces = &["prefix= replication=consensus backlog_bytes=100000"];
    let mut cluster = setup(3, keyspaces).start();
    let lead = leader(&cluster);
    let (away, third) = (lead % 3 + 1, (lead + 1) % 3 + 1);
    cluster.kill(away);
    let (ann, bob) = (cluster.client(lead), cluster.client(third));
    cluster.send(bob, "BLPOP l 0");
    cluster.until("it waits", |cluster| cluster.node(lead).queues_left(1).is_some_and(|it| it.0 == 1));
    for index in 0..300 {
        cluster.ask(ann, &format!("SET k{index} {}", "v".repeat(1000)));
    }
    cluster.restart(away);
    cluster.settle();
    assert_eq!(cluster.node(away).queues_left(1), Some((1, 0, 0)));
    cluster.kill(lead);
    let cat = cluster.client(away);
    assert_eq!(insist(&mut cluster, cat, "RPUSH l a"), "1");
    assert_eq!(cluster.reply(bob), "[\"l\", \"a\"]");
}

#[test]
fn a_client_that_waits_on_a_stream_gets_the_entries_added_since() {
    for kind in KINDS {
        let mut cluster = setup(3, &[kind]).start();
        let pusher = cluster.client(1);
        let readers = [1, 2, 3].map(|node| cluster.client(node));
        assert_eq!(cluster.ask(pusher, "XADD s 1-1 f a"), "\"1-1\"");
        let there = "[[\"s\", [[\"1-1\", [\"f\", \"a\"]]]]]";
        assert_eq!(cluster.ask(readers[1], "XREAD BLOCK 0 STREAMS s 0"), there);
        assert_eq!(left(&mut cluster), (0, 0, 0), "it has read, and not waited");
        let took_ms =
            cluster.time(|cluster| assert_eq!(cluster.ask(readers[1], "XREAD BLOCK 50 STREAMS s $"), "nil"));
        assert!((50..75).contains(&took_ms), "{took_ms} ms");
        for (index, reader) in readers.iter().enumerate() {
            cluster.send(*reader, "XREAD BLOCK 0 STREAMS s $");
            until_waiting(&mut cluster, index + 1);
        }
        assert_eq!(cluster.ask(pusher, "XADD s 2-1 f b"), "\"2-1\"");
        for reader in readers {
            assert_eq!(cluster.reply(reader), "[[\"s\", [[\"2-1\", [\"f\", \"b\"]]]]]", "{kind}");
        }
        assert_eq!(cluster.ask(pusher, "XGROUP CREATE s g $"), "OK");
        for (index, reader) in readers.iter().enumerate() {
            cluster.send(*reader, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
            until_waiting(&mut cluster, index + 1);
        }
        for (reader, number) in readers.iter().zip(3..).take(2) {
            cluster.ask(pusher, &format!("XADD s {number}-1 f c"));
            let reply = cluster.reply(*reader);
            assert!(reply.contains(&format!("{number}-1")), "{kind}: {reply}");
        }
        assert_eq!(cluster.ask(pusher, "XGROUP DESTROY s g"), "1");
        let no_group = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
        assert_eq!(cluster.reply(readers[2]), no_group);
        until_settled(&mut cluster);
    }
}

#[test]
fn a_wait_can_be_ended_by_another_client() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(1));
    let number = cluster.ask(bob, "CLIENT ID");
    assert_eq!(cluster.ask(ann, &format!("CLIENT UNBLOCK {number}")), "0", "it does not wait");
    for (how, expected) in
        [("", "nil"), (" TIMEOUT", "nil"), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        cluster.send(bob, "BLPOP l 0");
        until_waiting(&mut cluster, 1);
        assert_eq!(cluster.ask(ann, &format!("CLIENT UNBLOCK {number}{how}")), "1");
        assert_eq!(cluster.reply(bob), expected);
        assert_eq!(left(&mut cluster).0, 0);
    }
    let not_a_number = cluster.ask(ann, "CLIENT UNBLOCK x");
    assert_eq!(not_a_number, "-ERR value is not an integer or out of range");
    let no_reason = cluster.ask(ann, "CLIENT UNBLOCK 1 NOW");
    assert_eq!(no_reason, "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
}

#[test]
fn a_client_whose_rights_are_taken_away_waits_no_longer() {
    let requests = [
        "BLPOP #1 #2 0",
        "BLMPOP 0 2 #1 #2 LEFT",
        "BLMOVE #1 #2 LEFT LEFT 0",
        "BRPOPLPUSH #1 #2 0",
        "BZPOPMAX #3 0",
        "BZMPOP 0 1 #3 MIN",
        "XREAD BLOCK 0 STREAMS #4 #5 $ $",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS #5 >",
        "LOCK #6 ann PX 1000 WAIT 60000",
    ];
    let mut cluster = cluster();
    let operator = cluster.client(1);
    for key in ["k5", "n5"] {
        cluster.ask(operator, &format!("XGROUP CREATE {key} g $ MKSTREAM"));
    }
    for name in ["k6", "n6"] {
        cluster.ask(operator, &format!("LOCK {name} operator PX 60000"));
    }
    assert_eq!(cluster.ask(operator, "ACL SETUSER ann on nopass +@all ~*"), "OK");
    let mut waiting = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        for first in ["k", "n"] {
            let client = cluster.client(1 + place as u16 % 3);
            assert_eq!(cluster.ask(client, "AUTH ann x"), "OK");
            cluster.send(client, &request.replace('#', first));
            waiting.push((client, first));
            until_waiting(&mut cluster, waiting.len().min(2 * requests.len() - 2));
        }
    }
    let other = cluster.client(2);
    cluster.send(other, "BLPOP n1 0");
    until_waiting(&mut cluster, 2 * requests.len() - 1);
    assert_eq!(cluster.ask(operator, "ACL SETUSER ann resetkeys ~k*"), "OK");
    assert_eq!(cluster.ask(operator, "RPUSH n1 a"), "1");
    for (client, first) in &waiting {
        if *first == "n" {
            assert_error(&cluster.reply(*client), "NOPERM");
        }
    }
    assert_eq!(cluster.reply(other), "[\"n1\", \"a\"]", "who may have it gets it");
    let denials = cluster.ask(operator, "ACL LOG");
    assert!(denials.contains("\"n1\"") && !denials.contains("\"k1\""), "{denials}");
    assert_eq!(cluster.ask(operator, "RPUSH k1 a"), "1");
    assert_eq!(cluster.reply(waiting[0].0), "[\"k1\", \"a\"]", "who still may waits on");
    assert_eq!(cluster.ask(operator, "ACL SETUSER ann -blmpop"), "OK");
    let denied = cluster.reply(waiting[2].0);
    assert!(denied.starts_with("-NOPERM") && denied.contains("blmpop"), "{denied}");
}

#[test]
fn invalid_requests_are_refused_as_in_redis() {
    let keyspaces =
        ["prefix= replication=consensus", "prefix=q: replication=consensus", "prefix=abd: replication=abd"];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(1);
    cluster.ask(client, "SET s v");
    let cases = [
        ("BLPOP s 0", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("BZPOPMIN no s 0", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("BLPOP l x", "ERR timeout is not a float or out of range"),
        ("BLPOP l -0.1", "ERR timeout is negative"),
        ("BLPOP l 1e300", "ERR timeout is out of range"),
        ("BLPOP l", "ERR wrong number of arguments for 'blpop' command"),
        ("BLMOVE a b UP LEFT x", "ERR syntax error"),
        ("BLMOVE a b RIGHT LEFT x", "ERR timeout is not a float or out of range"),
        ("BLMPOP 1 0 a LEFT", "ERR numkeys should be greater than 0"),
        ("BZMPOP x 1 a MIN", "ERR timeout is not a float or out of range"),
    ];
    for (request, error) in cases {
        assert_eq!(cluster.ask(client, request), format!("-{error}"), "{request}");
    }
    let refused = cluster.ask(client, "BLPOP abd:l 0");
    assert!(refused.starts_with("-ERR BLPOP needs a list"), "{refused}");
}

#[test]
fn dropping_a_keyspace_ends_its_waits() {
    let mut cluster = setup(3, &["prefix= replication=consensus", "prefix=q: replication=consensus"]).start();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    cluster.send(bob, "BLPOP q:l 0");
    cluster.turns(30);
    assert_eq!(cluster.ask(ann, "KEYSPACE DROP q:"), "OK");
    assert_error(&cluster.reply(bob), "NOLEADER");
}

#[test]
fn the_keys_at_which_clients_of_a_node_wait_are_counted() {
    let mut cluster = setup(1, &["prefix= replication=consensus"]).start();
    let (operator, list, group) = (cluster.client(1), cluster.client(1), cluster.client(1));
    assert_eq!(cluster.ask(operator, "XGROUP CREATE s g $ MKSTREAM"), "OK");
    cluster.send(list, "BLPOP l m 0");
    cluster.send(group, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    cluster.turns(50);
    let told = cluster.ask(operator, "INFO clients");
    for field in ["total_blocking_keys:3", "total_blocking_keys_on_nokey:1"] {
        assert!(told.contains(field), "{told}");
    }
    assert_eq!(cluster.ask(operator, "DEL s"), "1");
    assert_error(&cluster.reply(group), "NOGROUP");
    let told = cluster.ask(operator, "INFO clients");
    for field in ["total_blocking_keys:2", "total_blocking_keys_on_nokey:0"] {
        assert!(told.contains(field), "{told}");
    }
}
