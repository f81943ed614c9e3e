//! Messages of channels between replies, and what happens to them when a leader dies.

use crate::support::{Client, Cluster, setup};
use std::collections::BTreeSet;

fn subscribed(cluster: &mut Cluster, node: u16, protocol: &str) -> Client {
    let client = cluster.client(node);
    cluster.ask(client, &format!("HELLO {protocol}"));
    assert_eq!(cluster.ask(client, "SUBSCRIBE news"), "[\"subscribe\", \"news\", 1]");
    client
}

fn message(text: &str) -> String {
    format!("[\"message\", \"news\", \"{text}\"]")
}

#[test]
fn in_resp2_a_message_is_never_taken_for_a_reply() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let (client, publisher) = (cluster.client(2), cluster.client(2));
    // The first request goes to the leader, so the confirmation waits for its reply, and the message waits for the
    // confirmation.
    cluster.send(client, "SET k v");
    cluster.send(client, "SUBSCRIBE news");
    assert_eq!(cluster.ask(publisher, "PUBLISH news early"), "1");
    assert_eq!(cluster.reply(client), "OK");
    assert_eq!(cluster.reply(client), "[\"subscribe\", \"news\", 1]");
    assert_eq!(cluster.reply(client), message("early"));
}

#[test]
fn in_resp3_a_message_overtakes_waiting_replies_but_not_the_confirmation() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let publisher = cluster.client(1);
    cluster.cut_off(3);
    let client = subscribed(&mut cluster, 1, "3");
    assert_eq!(cluster.ask(client, "SET k v"), "OK", "it may still ask");
    cluster.send(client, "WAIT 2 100000");
    cluster.turns(20);
    assert_eq!(cluster.ask(publisher, "PUBLISH news text"), "1");
    assert_eq!(cluster.reply(client), message("text"));
    cluster.send(client, "SUBSCRIBE more");
    assert_eq!(cluster.ask(publisher, "PUBLISH more later"), "1");
    assert_eq!(cluster.arrived(client), None);
    cluster.reconnect(3);
    assert_eq!(cluster.reply(client), "2");
    assert_eq!(cluster.reply(client), "[\"subscribe\", \"more\", 2]");
    assert_eq!(cluster.reply(client), "[\"message\", \"more\", \"later\"]");
}

#[test]
fn a_message_to_the_publisher_itself_follows_the_reply() {
    let mut cluster = setup(1, &[]).start();
    let client = subscribed(&mut cluster, 1, "3");
    cluster.send(client, "PUBLISH news text");
    assert_eq!([cluster.reply(client), cluster.reply(client)], ["1".into(), message("text")]);
    assert_eq!(cluster.ask(client, "PING"), "PONG");
    // The whole transaction, and the whole script.
    for request in ["MULTI", "PING", "PUBLISH news text", "PUBLISH news more", "PING"] {
        cluster.ask(client, request);
    }
    cluster.send(client, "EXEC");
    let replies = [cluster.reply(client), cluster.reply(client), cluster.reply(client)];
    assert_eq!(replies, ["[PONG, 1, 1, PONG]".into(), message("text"), message("more")]);
    cluster.send_words(client, &[b"EVAL", b"return redis.call('publish', 'news', 'text')", b"0"]);
    assert_eq!([cluster.reply(client), cluster.reply(client)], ["0".into(), message("text")]);
}

#[test]
fn listeners_are_counted_on_all_nodes_that_answer() {
    let mut cluster = setup(3, &[]).start();
    subscribed(&mut cluster, 1, "2");
    for _ in 0..2 {
        subscribed(&mut cluster, 3, "3");
    }
    let (client, sharded) = (cluster.client(2), cluster.client(3));
    assert_eq!(cluster.ask(client, "PUBSUB NUMSUB news other"), "[\"news\", 3, \"other\", 0]");
    assert_eq!(cluster.ask(client, "PUBSUB NUMSUB"), "[]");
    assert_eq!(cluster.ask(sharded, "SSUBSCRIBE news"), "[\"ssubscribe\", \"news\", 1]");
    assert_eq!(cluster.ask(client, "PUBSUB SHARDNUMSUB news"), "[\"news\", 1]");
    // The replies keep their order.
    cluster.send(client, "PUBSUB NUMSUB news");
    cluster.send(client, "PING");
    assert_eq!(cluster.reply(client), "[\"news\", 3]");
    assert_eq!(cluster.reply(client), "PONG");
    // A transaction does not wait.
    for (request, reply) in [("MULTI", "OK"), ("PUBSUB NUMSUB news", "QUEUED"), ("EXEC", "[[\"news\", 0]]")] {
        assert_eq!(cluster.ask(client, request), reply);
    }
    cluster.cut_off(1);
    assert_eq!(cluster.ask(client, "PUBSUB NUMSUB news"), "[\"news\", 2]");
    let names = vec!["c"; 1001].join(" ");
    let error = "-ERR a request counts the listeners of at most 1000 channels";
    assert_eq!(cluster.ask(client, &format!("PUBSUB NUMSUB {names}")), error);
}

#[test]
fn a_disconnected_or_reset_client_no_longer_listens() {
    let mut cluster = setup(2, &[]).start();
    let publisher = cluster.client(1);
    let (first, second) = (subscribed(&mut cluster, 1, "2"), subscribed(&mut cluster, 1, "2"));
    let victim = subscribed(&mut cluster, 1, "3");
    assert_eq!(cluster.ask(publisher, "PUBSUB NUMSUB news"), "[\"news\", 3]");
    let list = cluster.ask(publisher, "CLIENT LIST TYPE pubsub");
    assert_eq!(list.matches("flags=P").count(), 3, "{list}");
    cluster.close(first);
    assert_eq!(cluster.ask(second, "RESET"), "RESET");
    assert_eq!(cluster.ask(publisher, "PUBSUB NUMSUB news"), "[\"news\", 1]");
    assert_eq!(cluster.ask(publisher, "CLIENT KILL TYPE pubsub"), "1");
    assert!(cluster.is_closed(victim));
    assert_eq!(cluster.ask(publisher, "PUBSUB CHANNELS"), "[]");
    assert_eq!(cluster.ask(second, "GET k"), "nil", "it is like any other");
}

/// A script counts and publishes; its leader dies a number of turns later.
#[test]
fn a_scripts_message_is_received_at_most_once_whenever_its_leader_dies() {
    for keyspace in ["prefix= acks=majority", "prefix= replication=consensus durability=os"] {
        let mut outcomes = BTreeSet::new();
        for turns in 0..16 {
            let mut cluster = setup(3, &[keyspace]).start();
            let leader = (1..=3).find(|id| cluster.keyspace(*id, "default").role == "leader");
            let leader = leader.expect("a node leads");
            let others: Vec<u16> = (1..=3).filter(|id| *id != leader).collect();
            let listeners = [others[0], others[1]].map(|node| subscribed(&mut cluster, node, "3"));
            let asker = cluster.client(others[0]);
            let script = b"redis.call('publish', 'news', 'text') return redis.call('incr', KEYS[1])";
            cluster.send_words(asker, &[b"EVAL", script, b"1", b"k"]);
            cluster.turns(turns);
            cluster.kill(leader);
            let mut count = String::new();
            let reader = cluster.client(others[1]);
            cluster.until("another one leads", |cluster| {
                count = cluster.ask(reader, "GET k");
                !count.starts_with('-')
            });
            cluster.turns(1000);
            // The script may have been retried in these turns, if it certainly had not taken effect.
            count = cluster.ask(reader, "GET k");
            let heard = listeners.map(|listener| {
                let mut heard = 0;
                while let Some(received) = cluster.arrived(listener) {
                    assert_eq!(received, message("text"));
                    heard += 1;
                }
                heard
            });
            assert!(heard.iter().all(|heard| *heard <= 1), "{keyspace}, {turns} turns: {heard:?}");
            assert!(count == "\"1\"" || heard == [0, 0], "a script without effect publishes nothing");
            outcomes.insert((count, heard));
        }
        let is_asked_again = keyspace.contains("consensus");
        assert!(outcomes.len() > 1 || is_asked_again, "leaders die early and late: {outcomes:?}");
    }
}
