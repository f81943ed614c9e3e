//! Channels: compared with a real Redis, and between nodes.

use std::io::{BufReader, Write};
use std::time::Duration;

use redis::PubSubCommands;

use crate::scripts::{Bare, Redis};
use crate::support::{Cluster, ask, connect, until};

fn bare(cluster: &Cluster, id: u16) -> Bare {
    Bare(BufReader::new(cluster.raw(id)))
}

/// Returns everything that arrives for a request, up to the marker requested after it.
fn all_of(connection: &mut Bare, words: &[&str]) -> Vec<String> {
    let mut replies = vec![connection.ask(words)];
    connection.0.get_mut().write_all(b"*2\r\n$4\r\nPING\r\n$6\r\nmarker\r\n").unwrap();
    loop {
        match connection.reply() {
            reply if reply.contains("marker") => return replies,
            reply => replies.push(reply),
        }
    }
}

const CONVERSATION: &[&[&str]] = &[
    &["SUBSCRIBE", "a", "b"],
    &["SUBSCRIBE", "a"],
    &["PSUBSCRIBE", "n*", "?"],
    &["SSUBSCRIBE", "s"],
    &["GET", "k"],
    &["PUBLISH", "a", "x"],
    &["PING"],
    &["PUBSUB", "CHANNELS"],
    &["UNSUBSCRIBE", "nothing", "b"],
    &["PUNSUBSCRIBE", "n*", "?"],
    &["SUNSUBSCRIBE"],
    &["UNSUBSCRIBE"],
    &["UNSUBSCRIBE"],
    &["PUNSUBSCRIBE"],
    &["SUNSUBSCRIBE"],
    &["PING"],
    &["PUBLISH", "a", "x"],
    &["SPUBLISH", "a", "x"],
    &["SUBSCRIBE"],
    &["PUBSUB", "NUMSUB"],
    &["PUBSUB", "NUMSUB", "a", "b"],
    &["PUBSUB", "NUMPAT"],
    &["PUBSUB", "CHANNELS", "a*"],
    &["PUBSUB", "SHARDCHANNELS"],
    &["PUBSUB", "SHARDNUMSUB", "s"],
    &["PUBSUB", "NOSUCH"],
    &["SUBSCRIBE", "a"],
    &["RESET"],
    &["PUBSUB", "NUMSUB", "a"],
];

#[test]
fn channels_answer_as_in_redis() {
    let Some(redis) = Redis::start_of("7.0.") else { return };
    let cluster = Cluster::start(1, &[]);
    for protocol in ["2", "3"] {
        let (mut reference, mut own) = (Bare(BufReader::new(connect(redis.1))), bare(&cluster, 1));
        for connection in [&mut reference, &mut own] {
            assert!(!connection.ask(&["HELLO", protocol]).starts_with('-'));
        }
        for words in CONVERSATION {
            // Redis lists channels in no particular order.
            let sorted = |mut replies: Vec<String>| {
                replies.sort();
                replies
            };
            let (theirs, ours) = (sorted(all_of(&mut reference, words)), sorted(all_of(&mut own, words)));
            let is_list = words[0] == "PUBSUB" && words[1].ends_with("CHANNELS");
            assert!(
                ours == theirs || is_list && ours[0].len() == theirs[0].len(),
                "{words:?}: {ours:?}, {theirs:?}"
            );
        }
    }
}

#[test]
fn a_message_reaches_every_listener_on_every_node_once() {
    let cluster = Cluster::start(3, &["prefix=f: replication=leader-follower acks=majority replicas=1"]);
    let mut listeners: Vec<Bare> = Vec::new();
    for (id, protocol) in [(1, "2"), (2, "3"), (3, "2"), (3, "3")] {
        let mut listener = bare(&cluster, id);
        assert!(!listener.ask(&["HELLO", protocol]).starts_with('-'));
        assert!(listener.ask(&["SUBSCRIBE", "news"]).contains("'subscribe' 'news' :1"));
        assert!(listener.ask(&["PSUBSCRIBE", "n[ae]*"]).contains("'psubscribe' 'n[ae]*' :2"));
        listeners.push(listener);
    }
    let mut heard = |text: &str| {
        for listener in &mut listeners {
            assert!(listener.reply().ends_with(&format!("['message' 'news' '{text}']")));
            assert!(listener.reply().ends_with(&format!("['pmessage' 'n[ae]*' 'news' '{text}']")));
        }
    };
    // Each is received before the next is sent, so the next one would reveal a duplicate.
    for id in [1, 2, 3] {
        let mut node = cluster.client(id);
        let own = if id == 3 { 4 } else { 2 };
        assert_eq!(ask(&mut node, "PUBLISH news plain"), own.to_string(), "listeners of its own node");
        heard("plain");
        for prefix in ["", "f:"] {
            let mut script = redis::cmd("EVAL");
            script.arg("redis.call('set', KEYS[1], 1) return redis.call('publish', 'news', ARGV[1])");
            let count: i64 = script.arg(1).arg(format!("{prefix}k")).arg("script").query(&mut node).unwrap();
            assert_eq!(count, 0, "in a script the number is the same everywhere");
            heard("script");
        }
        let (stored, count): (String, i64) = redis::pipe()
            .atomic()
            .cmd("SET")
            .arg("k")
            .arg("v")
            .cmd("PUBLISH")
            .arg("news")
            .arg("exec")
            .query(&mut node)
            .unwrap();
        assert_eq!((stored.as_str(), count), ("OK", own));
        heard("exec");
        assert_eq!(ask(&mut node, "SPUBLISH news other"), "0", "these are other channels");
    }
}

#[test]
fn messages_of_scripts_are_not_repeated_when_nodes_restart() {
    let mut cluster = Cluster::start(3, &["prefix= replication=consensus durability=os"]);
    let script = "redis.call('incr', KEYS[1]) redis.call('publish', 'news', ARGV[1]) return 1";
    let publish = |cluster: &Cluster, id: u16, text: &str| {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg("k").arg(text);
        let mut node = cluster.client(id);
        until("it is published", || command.query::<i64>(&mut node).is_ok());
    };
    for number in 0..20 {
        publish(&cluster, 1, &format!("old{number}"));
    }
    // A script that hits a limit has published nothing.
    let endless = "redis.call('publish', 'news', 'never') while true do end";
    let mut command = redis::cmd("EVAL");
    let outcome = command.arg(endless).arg(0).query::<i64>(&mut cluster.client(1));
    assert!(outcome.is_err_and(|error| error.to_string().contains("nothing of it was kept")));
    let mut listener = bare(&cluster, 3);
    assert!(listener.ask(&["SUBSCRIBE", "news"]).contains("'subscribe'"));
    cluster.wait_until_equal();
    for id in [2, 1] {
        cluster.kill(id);
        cluster.restart(id);
        cluster.wait_until_ready(id);
    }
    until("links are up", || cluster.health(3)["ready"] == true);
    publish(&cluster, 3, "new");
    assert_eq!(listener.reply(), "['message' 'news' 'new']");
}

#[test]
fn a_listener_that_does_not_read_is_closed_and_the_others_are_not() {
    let cluster = Cluster::start_with(1, &[], "output_bytes_max = 2000000");
    let mut silent = bare(&cluster, 1);
    assert!(silent.ask(&["SUBSCRIBE", "news"]).contains("'subscribe'"));
    let mut node = cluster.client(1);
    let message = "x".repeat(100_000);
    until("it is closed", || ask(&mut node, &format!("PUBLISH news {message}")) == "0");
    assert!(ask(&mut node, "INFO stats").contains("client_output_buffer_limit_disconnections:1"));
    assert_eq!(ask(&mut node, "PUBSUB NUMSUB news"), "[\"news\", 0]");
}

#[test]
fn the_rust_client_subscribes_over_both_protocols() {
    let cluster = Cluster::start(3, &[]);
    let mut publisher = cluster.client(1);
    let mut connection = cluster.client(2);
    let mut listener = connection.as_pubsub();
    listener.subscribe("news").unwrap();
    listener.psubscribe("other.*").unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    ask(&mut publisher, "PUBLISH news one");
    ask(&mut publisher, "PUBLISH other.place two");
    let message = listener.get_message().unwrap();
    assert_eq!(
        (message.get_channel_name(), message.get_payload::<String>().unwrap().as_str()),
        ("news", "one")
    );
    let message = listener.get_message().unwrap();
    assert_eq!(message.get_pattern::<String>().unwrap(), "other.*");
    drop(listener);
    // Dropping it ended its subscriptions, and the connection is like any other.
    assert_eq!(ask(&mut connection, "SET k v"), "OK");

    let mut third = cluster.client3(3);
    let mut seen = Vec::new();
    let publishing = std::thread::spawn(move || {
        until("somebody listens", || {
            ask(&mut publisher, "PUBLISH news three");
            ask(&mut publisher, "EXISTS heard") == "1"
        });
    });
    let mut witness = cluster.client(2);
    third
        .subscribe(&["news"], |message| {
            seen.push(message.get_payload::<String>().unwrap());
            redis::ControlFlow::<()>::Break(())
        })
        .unwrap();
    assert_eq!(ask(&mut witness, "SET heard 1"), "OK");
    publishing.join().unwrap();
    assert_eq!(seen, ["three"]);
}
