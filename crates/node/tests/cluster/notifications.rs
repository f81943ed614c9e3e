//! Notifications of changes: once at each node that holds a replica, and after the reply.

use crate::support::{Client, Cluster, setup};

/// A client of a node that is notified of all events of all keys.
fn follower(cluster: &mut Cluster, node: u16) -> Client {
    let client = cluster.client(node);
    cluster.ask(client, "HELLO 3");
    assert_eq!(cluster.ask(client, "CONFIG SET notify-keyspace-events KEA"), "OK");
    cluster.ask(client, "PSUBSCRIBE __key*__:*");
    client
}

fn messages(cluster: &mut Cluster, client: Client) -> Vec<String> {
    cluster.turns(50);
    std::iter::from_fn(|| cluster.arrived(client)).collect()
}

fn by_key(key: &str, event: &str) -> String {
    format!("[\"pmessage\", \"__key*__:*\", \"__keyspace@0__:{key}\", \"{event}\"]")
}

fn by_event(key: &str, event: &str) -> String {
    format!("[\"pmessage\", \"__key*__:*\", \"__keyevent@0__:{event}\", \"{key}\"]")
}

#[test]
fn each_node_notifies_its_clients_of_what_its_replica_applies() {
    for keyspace in ["prefix= acks=majority", "prefix= replication=consensus"] {
        let mut cluster = setup(3, &[keyspace]).start();
        let followers = [1, 2, 3].map(|node| follower(&mut cluster, node));
        let writer = cluster.client(2);
        assert_eq!(cluster.ask(writer, "SET k v"), "OK");
        for request in ["MULTI", "LPUSH l a", "RPOP l", "EXEC"] {
            cluster.ask(writer, request);
        }
        cluster.ask(writer, "SET k w PX 10");
        let expected: Vec<String> = [
            ("k", "set"),
            ("l", "lpush"),
            ("l", "rpop"),
            ("l", "del"),
            ("k", "set"),
            ("k", "expire"),
            ("k", "expired"),
        ]
        .iter()
        .flat_map(|(key, event)| [by_key(key, event), by_event(key, event)])
        .collect();
        for client in followers {
            assert_eq!(messages(&mut cluster, client), expected, "{keyspace}");
        }
    }
}

#[test]
fn a_client_is_notified_of_its_own_writes_after_their_replies() {
    let mut cluster = setup(1, &[]).start();
    let client = follower(&mut cluster, 1);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    assert_eq!(messages(&mut cluster, client), [by_key("k", "set"), by_event("k", "set")]);
}

#[test]
fn the_setting_belongs_to_one_node_and_selects_classes() {
    let mut cluster = setup(2, &["prefix= acks=all"]).start();
    let here = follower(&mut cluster, 1);
    let there = cluster.client(2);
    cluster.ask(there, "HELLO 3");
    cluster.ask(there, "PSUBSCRIBE __key*__:*");
    assert_eq!(cluster.ask(here, "CONFIG SET notify-keyspace-events Kl"), "OK");
    cluster.ask(here, "SET k v");
    cluster.ask(here, "LPUSH l a");
    assert_eq!(messages(&mut cluster, here), [by_key("l", "lpush")]);
    assert_eq!(messages(&mut cluster, there), [""; 0]);
    cluster.send_words(here, &[b"CONFIG", b"SET", b"notify-keyspace-events", b""]);
    assert_eq!(cluster.reply(here), "OK");
    cluster.ask(here, "LPUSH l a");
    assert_eq!(messages(&mut cluster, here), [""; 0]);
    let error = "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class \
                 character. Use 'Ag$lshzxeKEtmdnoc'.";
    assert_eq!(cluster.ask(here, "CONFIG SET notify-keyspace-events KEq"), error);
}
