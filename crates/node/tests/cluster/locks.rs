//! Locks: which client gets a lock, in which order, until when, and what happens when connections, leaders and nodes
//! fail.

use crate::support::{Client, Cluster, assert_error, setup};

/// The kind of the message that notifies a node of a grant.
const LOCK_NOTIFIED: u8 = 5;

const KEYSPACES: &[&str] = &["prefix= replication=consensus"];

/// How long a lease lasts: a tenth longer than requested, since clocks differ, and a few turns for a record.
fn lasts_ms(lease_ms: u64) -> std::ops::RangeInclusive<u64> {
    lease_ms..=lease_ms + lease_ms / 10 + 30
}

fn cluster() -> Cluster {
    setup(3, KEYSPACES).start()
}

fn leader(cluster: &Cluster) -> u16 {
    cluster.keyspace(1, "default").leader
}

/// Returns the token of a reply.
#[track_caller]
fn token(reply: &str) -> u64 {
    reply.parse().unwrap_or_else(|_| panic!("no token: {reply}"))
}

/// Repeats a request, as a client does while there is no leader.
fn insist(cluster: &mut Cluster, client: Client, request: &str) -> String {
    let mut reply = String::new();
    cluster.until("it has an answer", |cluster| {
        reply = cluster.ask(client, request);
        !["-CLUSTERDOWN", "-UNKNOWN", "-TRYAGAIN", "-LOADING"].iter().any(|code| reply.starts_with(code))
    });
    reply
}

/// Waits until `count` requests are in the queue.
fn until_waiting(cluster: &mut Cluster, client: Client, name: &str, count: usize) {
    let answer = format!("\"waiters\", {count},");
    cluster.until("they wait", |cluster| cluster.ask(client, &format!("LOCK.INFO {name}")).contains(&answer));
}

#[test]
fn one_owner_holds_a_lock_at_every_node() {
    let mut cluster = cluster();
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    let first = token(&cluster.ask(clients[0], "LOCK l ann PX 1000"));
    assert_eq!(cluster.ask(clients[1], "LOCK l bob PX 1000"), "nil");
    assert_eq!(
        cluster.ask(clients[2], "lock l ann px 500"),
        first.to_string(),
        "the same owner, the same token"
    );
    assert_eq!(cluster.ask(clients[1], &format!("UNLOCK l {}", first + 1)), "0");
    assert_eq!(cluster.ask(clients[1], &format!("LOCK.RENEW l {} PX 1", first + 1)), "0");
    assert_eq!(cluster.ask(clients[1], &format!("LOCK.RENEW l {first} PX 2000")), "1");
    let info = cluster.ask(clients[2], "LOCK.INFO l");
    assert!(info.contains("\"owner\", \"ann\"") && info.contains("\"lease-ms\", 2000"), "{info}");
    assert!(info.contains(&format!("\"token\", {first}")) && info.contains("\"left-ms\", 199"), "{info}");
    assert_eq!(cluster.ask(clients[2], &format!("UNLOCK l {first}")), "1");
    assert_eq!(cluster.ask(clients[2], &format!("UNLOCK l {first}")), "0");
    assert_eq!(cluster.ask(clients[2], "LOCK.INFO l"), "nil");
    assert!(token(&cluster.ask(clients[1], "LOCK l bob PX 1000")) > first);
}

#[test]
fn locks_are_not_keys() {
    let mut cluster = cluster();
    let client = cluster.client(1);
    let held = cluster.ask(client, "LOCK l ann PX 5000");
    assert_eq!(cluster.ask(client, "DEL l"), "0");
    assert_eq!(cluster.ask(client, "KEYS *"), "[]");
    assert_eq!(cluster.ask(client, "FLUSHALL"), "OK");
    assert_eq!(cluster.ask(client, "LOCK l ann PX 5000"), held);
}

#[test]
fn waiting_clients_of_all_nodes_are_served_in_order() {
    let mut cluster = cluster();
    let clients: Vec<Client> = (0..6).map(|index| cluster.client(index % 3 + 1)).collect();
    let mut held = token(&cluster.ask(clients[0], "LOCK l 0 PX 5000"));
    for (index, client) in clients.iter().enumerate().skip(1) {
        cluster.send(*client, &format!("LOCK l {index} PX 5000 WAIT 10000"));
        until_waiting(&mut cluster, clients[0], "l", index);
    }
    for (index, client) in clients.iter().enumerate().skip(1) {
        assert!(clients[index..].iter().all(|other| cluster.arrived(*other).is_none()));
        assert_eq!(cluster.ask(clients[0], &format!("UNLOCK l {held}")), "1");
        let took_ms = cluster.time(|cluster| {
            let next = token(&cluster.reply(*client));
            assert!(next > held);
            held = next;
        });
        assert!(took_ms < 10, "one message, and no polling: {took_ms} ms");
    }
}

#[test]
fn no_more_requests_are_taken_from_a_waiting_client() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    let held = cluster.ask(ann, "LOCK l ann PX 5000");
    cluster.send(bob, "LOCK l bob PX 5000 WAIT 10000");
    assert!(!cluster.node(2).wants_input(bob.id));
    until_waiting(&mut cluster, ann, "l", 1);
    assert_eq!(cluster.ask(ann, &format!("UNLOCK l {held}")), "1");
    token(&cluster.reply(bob));
    assert!(cluster.node(2).wants_input(bob.id));
}

#[test]
fn a_wait_that_times_out_gets_null_and_is_skipped() {
    let mut cluster = cluster();
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    let held = cluster.ask(clients[0], "LOCK l ann PX 5000");
    let took_ms = cluster.time(|cluster| {
        assert_eq!(cluster.ask(clients[1], "LOCK l bob PX 5000 WAIT 100"), "nil");
    });
    assert!((100..110).contains(&took_ms), "{took_ms} ms");
    cluster.send(clients[2], "LOCK l cat PX 5000 WAIT 10000");
    until_waiting(&mut cluster, clients[1], "l", 1);
    assert_eq!(cluster.ask(clients[0], &format!("UNLOCK l {held}")), "1");
    token(&cluster.reply(clients[2]));
}

#[test]
fn a_disconnected_client_no_longer_waits() {
    for node in 1..=3 {
        let mut cluster = cluster();
        let (ann, bob, cat) = (cluster.client(1), cluster.client(node), cluster.client(2));
        let held = cluster.ask(ann, "LOCK l ann PX 60000");
        cluster.send(bob, "LOCK l bob PX 60000 WAIT 60000");
        until_waiting(&mut cluster, ann, "l", 1);
        cluster.send(cat, "LOCK l cat PX 60000 WAIT 60000");
        until_waiting(&mut cluster, ann, "l", 2);
        cluster.close(bob);
        until_waiting(&mut cluster, ann, "l", 1);
        assert_eq!(cluster.ask(ann, &format!("UNLOCK l {held}")), "1");
        token(&cluster.reply(cat));
    }
}

/// Whether the connection is closed before, while or after the grant is in flight, the lock passes to the next
/// request, and no client waits for a lease.
#[test]
fn a_grant_for_a_connection_that_closes_goes_to_the_next_client() {
    for moment in 0..12 {
        let mut cluster = cluster();
        let away = leader(&cluster) % 3 + 1;
        let (ann, bob, cat) = (cluster.client(1), cluster.client(away), cluster.client(2));
        let held = cluster.ask(ann, "LOCK l ann PX 60000");
        cluster.send(bob, "LOCK l bob PX 60000 WAIT 60000");
        until_waiting(&mut cluster, ann, "l", 1);
        cluster.send(cat, "LOCK l cat PX 60000 WAIT 60000");
        until_waiting(&mut cluster, ann, "l", 2);
        cluster.send(ann, &format!("UNLOCK l {held}"));
        cluster.turns(moment);
        if cluster.arrived(bob).is_some() {
            assert!(moment > 3, "it cannot be that fast");
            break;
        }
        cluster.close(bob);
        let took_ms = cluster.time(|cluster| assert!(token(&cluster.reply(cat)) > 0));
        assert!(took_ms < 50, "moment {moment}: {took_ms} ms");
    }
}

#[test]
fn a_lease_that_is_not_renewed_ends_and_not_too_early() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(3));
    let held = cluster.ask(ann, "LOCK l ann PX 300");
    cluster.turns(200);
    assert_eq!(cluster.ask(ann, &format!("LOCK.RENEW l {held} PX 300")), "1");
    let took_ms = cluster.time(|cluster| {
        token(&cluster.ask(bob, "LOCK l bob PX 300 WAIT 10000"));
    });
    assert!(lasts_ms(300).contains(&(took_ms + 2)), "{took_ms} ms");
    assert_eq!(cluster.ask(ann, &format!("UNLOCK l {held}")), "0", "it is another's by now");
    assert_eq!(cluster.ask(ann, &format!("LOCK.RENEW l {held} PX 300")), "0");
}

#[test]
fn the_death_of_the_leader_shortens_no_lease_and_loses_no_waiting_request() {
    let mut cluster = cluster();
    let dead = leader(&cluster);
    let (there, elsewhere) = (dead % 3 + 1, (dead + 1) % 3 + 1);
    let (ann, bob) = (cluster.client(there), cluster.client(elsewhere));
    let held = token(&cluster.ask(ann, "LOCK l ann PX 2000"));
    cluster.send(bob, "LOCK l bob PX 2000 WAIT 20000");
    until_waiting(&mut cluster, ann, "l", 1);
    cluster.kill(dead);
    let took_ms = cluster.time(|cluster| assert!(token(&cluster.reply(bob)) > held));
    assert!((1990..3500).contains(&took_ms), "{took_ms} ms: a lease from when the next leader began");
}

#[test]
fn waiting_requests_of_a_dead_node_are_skipped() {
    let mut cluster = cluster();
    let lead = leader(&cluster);
    let (dead, other) = (lead % 3 + 1, (lead + 1) % 3 + 1);
    let (ann, cat) = (cluster.client(lead), cluster.client(other));
    let held = cluster.ask(ann, "LOCK l ann PX 60000");
    for index in 0..3 {
        let client = cluster.client(dead);
        cluster.send(client, &format!("LOCK l gone{index} PX 60000 WAIT 60000"));
        until_waiting(&mut cluster, ann, "l", index + 1);
    }
    cluster.send(cat, "LOCK l cat PX 60000 WAIT 60000");
    until_waiting(&mut cluster, ann, "l", 4);
    cluster.kill(dead);
    until_waiting(&mut cluster, ann, "l", 1);
    assert_eq!(cluster.ask(ann, &format!("UNLOCK l {held}")), "1");
    token(&cluster.reply(cat));
}

#[test]
fn waiting_requests_of_an_earlier_incarnation_are_forgotten_after_a_restart() {
    let mut cluster = cluster();
    let lead = leader(&cluster);
    // First a follower, then the leader itself, which finds the waiting requests in its own log.
    for dead in [lead % 3 + 1, lead] {
        let other = (lead + 1) % 3 + 1;
        let (ann, bob) = (cluster.client(other), cluster.client(dead));
        let held = insist(&mut cluster, ann, "LOCK l ann PX 60000");
        cluster.send(bob, "LOCK l bob PX 60000 WAIT 60000");
        until_waiting(&mut cluster, ann, "l", 1);
        cluster.kill(dead);
        cluster.restart(dead); // Before any node notices.
        until_waiting(&mut cluster, ann, "l", 0);
        assert_eq!(insist(&mut cluster, ann, &format!("UNLOCK l {held}")), "1");
        let cat = cluster.client(dead);
        let taken = insist(&mut cluster, cat, "LOCK l cat PX 60000");
        assert_eq!(insist(&mut cluster, cat, &format!("UNLOCK l {}", token(&taken))), "1");
    }
}

/// The reply that a request waits and the grant may overtake each other.
#[test]
fn a_release_that_crosses_a_request_is_not_missed() {
    for moment in 0..8 {
        for same_node in [true, false] {
            let mut cluster = cluster();
            let lead = leader(&cluster);
            let away = lead % 3 + 1;
            let bob = cluster.client(away);
            // From the same node, the release can follow the request in one batch.
            let ann = cluster.client(if same_node { away } else { lead });
            let held = cluster.ask(ann, "LOCK l ann PX 60000");
            let took_ms = cluster.time(|cluster| {
                cluster.send(bob, "LOCK l bob PX 60000 WAIT 60000");
                cluster.turns(moment);
                cluster.send(ann, &format!("UNLOCK l {held}"));
                assert!(token(&cluster.reply(bob)) > token(&held));
            });
            assert!(took_ms < 40, "moment {moment}, {same_node}: {took_ms} ms");
        }
    }
}

/// etcd's lock once failed because a lease was not checked again after a wait (etcd #11456).
#[test]
fn a_grant_that_is_read_late_is_checked_before_the_reply() {
    let mut cluster = cluster();
    let lead = leader(&cluster);
    let (paused, other) = (lead % 3 + 1, (lead + 1) % 3 + 1);
    let (ann, bob, cat) = (cluster.client(lead), cluster.client(paused), cluster.client(other));
    let held = cluster.ask(ann, "LOCK l ann PX 60000");
    cluster.send(bob, "LOCK l bob PX 300 WAIT 60000");
    until_waiting(&mut cluster, ann, "l", 1);
    cluster.send(cat, "LOCK l cat PX 60000 WAIT 60000");
    until_waiting(&mut cluster, ann, "l", 2);
    cluster.pause(paused);
    assert_eq!(cluster.ask(ann, &format!("UNLOCK l {held}")), "1");
    let held = token(&cluster.reply(cat)); // When bob's lease was over.
    cluster.go_on(paused);
    cluster.turns(100);
    assert_eq!(cluster.arrived(bob), None, "it is not bob's any more");
    assert_eq!(cluster.ask(cat, &format!("UNLOCK l {held}")), "1");
    assert!(token(&cluster.reply(bob)) > held);
}

/// A node asks again when it got no answer. So one request can be granted the lock, lose it by its lease, and be granted
/// it once more; and the notification of the first grant may arrive last.
#[test]
fn a_late_notification_of_an_old_grant_neither_ends_a_newer_one_nor_is_believed() {
    for is_taken_by_another in [false, true] {
        let mut cluster = setup(4, &["prefix= replication=consensus replicas=3"]).start();
        let (lead, away) = (leader(&cluster), 4);
        let (ann, bob) = (cluster.client(lead), cluster.client(away));
        let held = cluster.ask(ann, "LOCK l ann PX 60000");
        cluster.send(bob, "LOCK l bob PX 100 WAIT 60000");
        cluster.turn();
        cluster.turn();
        cluster.break_link(lead, away);
        cluster.mend_link(lead, away);
        until_waiting(&mut cluster, ann, "l", 1);
        cluster.turns(100); // Node 4 has asked again.
        cluster.send(ann, &format!("UNLOCK l {held}"));
        let mut late = Vec::new();
        cluster.until("the lock is granted", |cluster| {
            late = cluster.take_from_way(lead, away, |frame| frame[0] == LOCK_NOTIFIED);
            !late.is_empty()
        });
        assert_eq!(cluster.reply(ann), "1");
        cluster.until("the lease is over", |cluster| cluster.ask(ann, "LOCK.INFO l") == "nil");
        if is_taken_by_another {
            let held = cluster.ask(ann, "LOCK l ann PX 1000");
            late.iter()
                .for_each(|frame| cluster.node(away).peer_frame(lead, frame).expect("it is well formed"));
            cluster.turns(900);
            assert_eq!(cluster.arrived(bob), None, "ann holds it");
            assert_eq!(cluster.ask(ann, &format!("UNLOCK l {held}")), "1");
            assert!(token(&cluster.reply(bob)) > token(&held));
        } else {
            let granted = token(&cluster.reply(bob));
            late.iter()
                .for_each(|frame| cluster.node(away).peer_frame(lead, frame).expect("it is well formed"));
            for _ in 0..20 {
                assert_eq!(cluster.ask(ann, "LOCK l ann PX 1000"), "nil", "bob holds it");
            }
            assert_eq!(cluster.ask(bob, &format!("UNLOCK l {granted}")), "1");
        }
    }
}

/// The leader's message to the client's node is lost with their link. That node has a replica, or asks.
#[test]
fn a_grant_whose_message_is_lost_is_found() {
    for replicas in [3, 5] {
        let mut cluster = setup(5, &[&format!("prefix= replication=consensus replicas={replicas}")]).start();
        let lead = leader(&cluster);
        let away = 5;
        let (ann, bob) = (cluster.client(lead), cluster.client(away));
        let held = cluster.ask(ann, "LOCK l ann PX 60000");
        cluster.send(bob, "LOCK l bob PX 60000 WAIT 60000");
        until_waiting(&mut cluster, ann, "l", 1);
        cluster.break_link(lead, away);
        assert_eq!(cluster.ask(ann, &format!("UNLOCK l {held}")), "1");
        cluster.turns(100);
        cluster.mend_link(lead, away);
        token(&cluster.reply(bob));
    }
}

#[test]
fn tokens_grow_over_a_restart_of_all_nodes_and_owners_keep_their_locks() {
    let mut cluster = cluster();
    let client = cluster.client(1);
    let kept = token(&cluster.ask(client, "LOCK kept ann PX 5000"));
    let freed = token(&cluster.ask(client, "LOCK freed ann PX 5000"));
    assert_eq!(cluster.ask(client, &format!("UNLOCK freed {freed}")), "1");
    (1..=3).for_each(|node| cluster.kill(node));
    (1..=3).for_each(|node| cluster.restart(node));
    cluster.settle();
    let client = cluster.client(2);
    assert_eq!(insist(&mut cluster, client, "LOCK kept bob PX 5000"), "nil");
    assert!(token(&cluster.ask(client, "LOCK freed bob PX 5000")) > freed);
    let took_ms = cluster.time(|cluster| {
        assert!(token(&cluster.ask(client, "LOCK kept bob PX 5000 WAIT 10000")) > kept);
    });
    assert!((4000..5600).contains(&took_ms), "{took_ms} ms");
}

#[test]
fn a_snapshot_transfer_includes_locks() {
    let keyspaces = &["prefix= replication=consensus backlog_bytes=100000"];
    let mut cluster = setup(3, keyspaces).start();
    let lead = leader(&cluster);
    let away = lead % 3 + 1;
    cluster.kill(away);
    let client = cluster.client(lead);
    let held = token(&cluster.ask(client, "LOCK l ann PX 600000"));
    for index in 0..300 {
        cluster.ask(client, &format!("SET k{index} {}", "v".repeat(1000)));
    }
    cluster.restart(away);
    cluster.settle();
    cluster.kill(lead);
    let client = cluster.client(away);
    assert_eq!(insist(&mut cluster, client, "LOCK l bob PX 1000"), "nil");
    assert_eq!(insist(&mut cluster, client, &format!("UNLOCK l {held}")), "1");
}

#[test]
fn a_write_with_an_old_token_is_refused() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    let first = token(&cluster.ask(ann, "LOCK l ann PX 100"));
    assert_eq!(cluster.ask(ann, &format!("SET k 1 FENCE l {first}")), "OK");
    assert_eq!(cluster.ask(ann, &format!("SET k 2 XX GET FENCE l {first} PX 60000")), "\"1\"");
    let second = token(&cluster.ask(bob, "LOCK l bob PX 5000 WAIT 1000"));
    let refused = cluster.ask(ann, &format!("SET k late FENCE l {first}"));
    assert_error(&refused, "FENCED");
    assert_eq!(cluster.ask(ann, "GET k"), "\"2\"");
    assert_eq!(cluster.ask(bob, &format!("SET k 3 IFEQ 2 FENCE l {second}")), "OK");
    assert_error(&cluster.ask(bob, &format!("SET k 4 FENCE other {second}")), "FENCED");
    let replies = cluster.pipeline(ann, &["MULTI", &format!("SET k 5 FENCE l {first}"), "GET k", "EXEC"]);
    assert!(replies[3].contains("FENCED") && replies[3].contains("\"3\""), "{}", replies[3]);
}

#[test]
fn a_lock_of_another_keyspace_or_shard_fences_writes() {
    let keyspaces = ["prefix= replication=consensus", "prefix=q: replication=consensus shards=3"];
    let mut cluster = setup(3, &keyspaces).start();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    for name in ["q:l", "q:m", "q:n"] {
        let first = token(&cluster.ask(ann, &format!("LOCK {name} ann PX 60000")));
        assert_eq!(cluster.ask(ann, &format!("SET k 1 FENCE {name} {first}")), "OK");
        assert_eq!(cluster.ask(ann, &format!("SET q:k 2 GET FENCE {name} {first} PX 60000")), "nil");
        assert_eq!(cluster.ask(ann, &format!("SET k 1b IFEQ 1 FENCE {name} {first}")), "OK");
        assert_eq!(cluster.ask(ann, &format!("UNLOCK {name} {first}")), "1");
        let second = token(&cluster.ask(bob, &format!("LOCK {name} bob PX 60000")));
        assert_eq!(
            cluster.ask(ann, &format!("SET k late FENCE {name} {first}")),
            format!("-FENCED token {first} is not the newest of lock '{name}'; nothing was done")
        );
        // In a transaction or a script it is refused by itself, as in one shard.
        cluster.pipeline(ann, &["MULTI", &format!("SET k late FENCE {name} {first}"), "INCR q:n"]);
        cluster.ask(ann, &format!("SET q:k 3 FENCE {name} {second}"));
        let replies = cluster.ask(ann, "EXEC");
        assert!(replies.starts_with("[-FENCED token") && replies.ends_with(", OK]"), "{replies}");
        let script =
            "redis.call('set',KEYS[2],ARGV[1]);return(redis.call('set',KEYS[1],'s','FENCE',KEYS[3],ARGV[1]))";
        let mut run = |token| cluster.ask(bob, &format!("EVAL {script} 3 k q:k {name} {token}"));
        assert_error(&run(first), "FENCED");
        assert_eq!(run(second), "OK");
        assert_eq!(cluster.ask(bob, "MGET k q:k"), format!("[\"s\", \"{second}\"]"));
        assert_eq!(cluster.ask(bob, "DEL k q:k"), "2");
    }
}

/// The leader of the key is asked late: the lock is granted again, and the key read, after the token was compared once.
#[test]
fn a_fence_of_another_keyspace_is_compared_again_when_all_keys_are_locked() {
    let keyspaces = ["prefix= replication=consensus", "prefix=q: replication=consensus"];
    let mut cluster = setup(3, &keyspaces).start();
    let (of_key, of_lock) = (leader(&cluster), cluster.keyspace(1, "q:").leader);
    assert_ne!(of_key, of_lock, "leaders are spread");
    let (ann, bob) = (cluster.client(of_lock), cluster.client(6 - of_key - of_lock));
    let first = token(&cluster.ask(ann, "LOCK q:l ann PX 60000"));
    assert_eq!(cluster.ask(ann, &format!("SET guarded 1 FENCE q:l {first}")), "OK");
    cluster.send(ann, &format!("SET guarded late FENCE q:l {first}"));
    let mut asks = Vec::new();
    cluster.until("the key's leader is asked", |cluster| {
        let names_key = |frame: &[u8]| frame.windows(7).any(|part| part == b"guarded");
        asks = cluster.take_from_way(of_lock, of_key, names_key);
        !asks.is_empty()
    });
    assert_eq!(cluster.ask(bob, &format!("UNLOCK q:l {first}")), "1");
    let second = token(&cluster.ask(bob, "LOCK q:l bob PX 60000"));
    assert_eq!(cluster.ask(bob, "GET guarded"), "\"1\"");
    for frame in asks {
        cluster.node(of_key).peer_frame(of_lock, &frame).expect("it is well formed");
    }
    assert_error(&cluster.reply(ann), "FENCED");
    assert_eq!(cluster.ask(bob, "GET guarded"), "\"1\"");
    assert_eq!(cluster.ask(bob, &format!("SET guarded 2 FENCE q:l {second}")), "OK");
}

#[test]
fn a_session_holds_many_locks_and_frees_all_when_it_ends() {
    let mut cluster = cluster();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    let session = cluster.ask(ann, "LOCK.SESSION OPEN k PX 400").replace('"', "");
    for name in ["a", "b", "c"] {
        token(&cluster.ask(ann, &format!("LOCK {name} ann SESSION {session}")));
    }
    for _ in 0..5 {
        cluster.turns(200);
        assert_eq!(cluster.ask(ann, &format!("LOCK.SESSION RENEW k {session}")), "1");
    }
    assert_eq!(cluster.ask(bob, "LOCK a bob PX 1000"), "nil");
    let info = cluster.ask(bob, "LOCK.INFO a");
    assert!(info.contains(&format!("\"session\", \"{session}\"")), "{info}");
    assert!(info.contains("\"lease-ms\", 400") && info.contains("\"left-ms\", 39"), "{info}");
    // A session is closed by its owner.
    cluster.send(bob, "LOCK a bob PX 1000 WAIT 10000");
    until_waiting(&mut cluster, ann, "a", 1);
    assert_eq!(cluster.ask(ann, &format!("LOCK.SESSION CLOSE k {session}")), "1");
    token(&cluster.reply(bob));
    assert_eq!(cluster.ask(bob, "LOCK.INFO b"), "nil");
    assert_eq!(cluster.ask(ann, &format!("LOCK.SESSION RENEW k {session}")), "0");
    assert_error(&cluster.ask(ann, &format!("LOCK d ann SESSION {session}")), "NOSESSION");
    // The lease of a session ends.
    let session = cluster.ask(ann, "LOCK.SESSION OPEN k PX 400").replace('"', "");
    token(&cluster.ask(ann, &format!("LOCK b ann SESSION {session}")));
    let cat = cluster.client(3);
    cluster.send(cat, &format!("LOCK a cat SESSION {session} WAIT 10000"));
    let took_ms =
        cluster.time(|cluster| assert!(token(&cluster.ask(bob, "LOCK b bob PX 1000 WAIT 5000")) > 0));
    assert!(lasts_ms(400).contains(&(took_ms + 3)), "{took_ms} ms");
    assert_error(&cluster.reply(cat), "NOSESSION");
}

#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let keyspaces = [
        "prefix= replication=consensus",
        "prefix=q: replication=consensus",
        "prefix=lf: replication=leader-follower",
        "prefix=abd: replication=abd",
    ];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(1);
    for name in ["lf:l", "abd:l"] {
        let refused = cluster.ask(client, &format!("LOCK {name} ann PX 1000"));
        assert!(
            refused.starts_with("-ERR LOCK needs") && refused.contains("replication=consensus"),
            "{refused}"
        );
        let refused = cluster.ask(client, &format!("SET {name} v FENCE {name} 1"));
        assert!(refused.starts_with("-ERR SET FENCE needs"), "{refused}");
    }
    let session = cluster.ask(client, "LOCK.SESSION OPEN q:any PX 1000").replace('"', "");
    assert_error(&cluster.ask(client, &format!("LOCK l ann SESSION {session}")), "CROSSSLOT");
    let replies = cluster.pipeline(client, &["MULTI", "LOCK l ann PX 1000", "EXEC"]);
    assert_eq!(replies[1], "-ERR Command not allowed inside a transaction");
    assert_error(&replies[2], "EXECABORT");
    let cases = [
        ("LOCK l ann", "ERR wrong number of arguments for 'lock' command"),
        ("LOCK l ann PX 0", "ERR invalid lease in 'lock' command: from 1 to 86400000 milliseconds"),
        ("LOCK l ann PX x", "ERR value is not an integer or out of range"),
        ("LOCK l ann WAIT 10", "ERR syntax error"),
        ("LOCK l ann PX 10 SESSION 1-1", "ERR syntax error"),
        ("LOCK l ann PX 10 WAIT", "ERR syntax error"),
        ("LOCK l ann PX 10 WAIT -1", "ERR invalid WAIT in 'lock' command: from 0 to 86400000 milliseconds"),
        ("LOCK l ann SESSION 7", "ERR that is not the id of a session"),
        ("UNLOCK l 0", "ERR a fencing token is a positive integer"),
        ("SET k v FENCE l", "ERR syntax error"),
    ];
    for (request, error) in cases {
        assert_eq!(cluster.ask(client, request), format!("-{error}"), "{request}");
    }
}

#[test]
fn dropping_a_keyspace_removes_its_locks_and_waits() {
    let mut cluster = setup(3, &["prefix= replication=consensus", "prefix=q: replication=consensus"]).start();
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    token(&cluster.ask(ann, "LOCK q:l ann PX 60000"));
    cluster.send(bob, "LOCK q:l bob PX 60000 WAIT 60000");
    until_waiting(&mut cluster, ann, "q:l", 1);
    assert_eq!(cluster.ask(ann, "KEYSPACE DROP q:"), "OK");
    assert_error(&cluster.reply(bob), "NOLEADER");
    token(&cluster.ask(bob, "LOCK q:l bob PX 1000"));
}
