//! What clients of Redis Cluster ask about slots, shards and links.

use crate::support::{Client, Cluster, setup};

/// The nodes of `CLUSTER NODES`: name, flags, the leader's name.
fn nodes(cluster: &mut Cluster, client: Client) -> Vec<[String; 3]> {
    let text = cluster.ask(client, "CLUSTER NODES");
    let lines = text.trim_matches('"').split("\\n").flat_map(|text| text.split('\n'));
    let words = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        [0, 2, 3].map(|place| words[place].clone())
    };
    lines.filter(|line| line.contains('@')).map(words).collect()
}

#[test]
fn keys_of_a_slot_are_counted_and_listed() {
    let mut cluster = setup(3, &["prefix= replication=consensus shards=4"]).start();
    let client = cluster.client(1);
    let mut expected = Vec::new();
    for number in 0..50 {
        assert_eq!(cluster.ask(client, &format!("SET {{foo}}{number} v")), "OK");
        assert_eq!(cluster.ask(client, &format!("SET other{number} v")), "OK");
        expected.push(format!("\"{{foo}}{number}\""));
    }
    cluster.settle();
    let slot = cluster.ask(client, "CLUSTER KEYSLOT {foo}1");
    // Each node counts in its own replica.
    for node in 1..=3 {
        let client = cluster.client(node);
        assert_eq!(cluster.ask(client, &format!("CLUSTER COUNTKEYSINSLOT {slot}")), "50");
        let listed = cluster.ask(client, &format!("CLUSTER GETKEYSINSLOT {slot} 100"));
        let mut listed: Vec<String> =
            listed.trim_matches(['[', ']']).split(", ").map(str::to_owned).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
        let some = cluster.ask(client, &format!("CLUSTER GETKEYSINSLOT {slot} 3"));
        assert_eq!(some.matches("{foo}").count(), 3, "{some}");
    }
    assert_eq!(cluster.ask(client, &format!("CLUSTER GETKEYSINSLOT {slot} 0")), "[]");
    for (request, error) in [
        ("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot"),
        ("CLUSTER COUNTKEYSINSLOT -1", "-ERR Invalid slot"),
        ("CLUSTER COUNTKEYSINSLOT x", "-ERR value is not an integer or out of range"),
        ("CLUSTER GETKEYSINSLOT 1 -1", "-ERR Invalid slot or number of keys"),
        ("CLUSTER GETKEYSINSLOT 16384 1", "-ERR Invalid slot or number of keys"),
    ] {
        assert_eq!(cluster.ask(client, request), error, "{request}");
    }
}

#[test]
fn a_scan_of_the_cluster_returns_each_key_once_at_any_node() {
    let mut cluster = setup(3, &["prefix= replication=consensus shards=4"]).start();
    let client = cluster.client(1);
    let mut expected: Vec<String> = (0..60).map(|number| format!("\"k{number}\"")).collect();
    for number in 0..60 {
        assert_eq!(cluster.ask(client, &format!("SET k{number} v")), "OK");
    }
    let (mut cursor, mut found, mut steps) = ("0".to_owned(), Vec::new(), 0);
    while steps == 0 || cursor != "0" {
        // Each step at another node.
        let client = cluster.client(steps % 3 + 1);
        let reply = cluster.ask_for(client, &format!("CLUSTERSCAN {cursor} COUNT 7 MATCH k*")).elements();
        cursor = reply[0].clone().text();
        assert!(cursor == "0" || cursor.starts_with("0-{06S}-"), "{cursor}");
        found.extend(reply[1].clone().elements().iter().map(ToString::to_string));
        steps += 1;
    }
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(steps > 4, "{steps}");
    for (request, error) in [
        ("invalid", "-ERR invalid cursor"),
        ("0-{06S}-", "-ERR invalid cursor"),
        ("7", "-ERR invalid cursor"),
        ("0 COUNT 0", "-ERR syntax error"),
        ("0 MATCH", "-ERR syntax error"),
    ] {
        assert_eq!(cluster.ask(client, &format!("CLUSTERSCAN {request}")), error, "{request}");
    }
    assert!(cluster.ask(client, "CLUSTERSCAN 0 SLOT 5").contains("is refused"));
}

#[test]
fn keys_are_counted_by_slots() {
    let mut cluster = setup(3, &["prefix= replication=consensus shards=4"]).start();
    let client = cluster.client(2);
    for key in ["{06S}a", "{06S}b", "{Qi}a", "other"] {
        assert_eq!(cluster.ask(client, &format!("SET {key} v")), "OK");
    }
    cluster.settle();
    let stats = |slot: u16, keys: u32| format!("[{slot}, [\"key-count\", {keys}]]");
    // The tags are of slots 0 and 1.
    let both = format!("[{}, {}]", stats(0, 2), stats(1, 1));
    assert_eq!(cluster.ask(client, "CLUSTER SLOT-STATS SLOTSRANGE 0 1"), both);
    assert_eq!(cluster.ask(client, "CLUSTER SLOT-STATS ORDERBY key-count LIMIT 2 DESC"), both);
    let least = cluster.ask(client, "CLUSTER SLOT-STATS ORDERBY key-count ASC LIMIT 1");
    assert_eq!(least, format!("[{}]", stats(2, 0)));
    for (request, error) in [
        ("SLOTSRANGE 1 0", "Start slot number 1 is greater than end slot number 0"),
        ("SLOTSRANGE 0 16384", "Invalid or out of range slot"),
        ("ORDERBY cpu-usec", "Unrecognized sort metric for ORDERBY."),
        ("ORDERBY key-count LIMIT 0", "Limit has to lie in between 1 and 16384"),
        ("ORDERBY key-count ASC DESC", "Multiple filters of the same type are disallowed."),
        ("ORDERBY key-count what", "syntax error"),
        ("RANGE 1", "syntax error"),
    ] {
        let refused = cluster.ask(client, &format!("CLUSTER SLOT-STATS {request}"));
        assert!(refused.starts_with(&format!("-ERR {error}")), "{request}: {refused}");
    }
}

#[test]
fn keys_of_a_slot_are_not_looked_for_among_very_many() {
    let mut cluster = setup(1, &["prefix= replication=consensus"]).start();
    let client = cluster.client(1);
    for batch in 0..101 {
        let names: Vec<String> = (0..1000).map(|number| format!("k{batch}:{number}")).collect();
        let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..])
            .chain(names.iter().flat_map(|name| [name.as_bytes(), b"v"]))
            .collect();
        cluster.send_words(client, &words);
        assert_eq!(cluster.reply(client), "OK");
    }
    let error = cluster.ask(client, "CLUSTER COUNTKEYSINSLOT 1");
    assert!(error.contains("SLOT_WALKED_KEYS_MAX") && error.contains("SCAN"), "{error}");
}

#[test]
fn replicas_of_a_node_are_the_nodes_that_name_it() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let client = cluster.client(1);
    let nodes = nodes(&mut cluster, client);
    assert_eq!(nodes.len(), 3);
    let leader = nodes.iter().find(|[_, flags, _]| flags.contains("master")).expect("a leader");
    for command in ["REPLICAS", "SLAVES"] {
        let listed = cluster.ask(client, &format!("CLUSTER {command} {}", leader[0]));
        let followers: Vec<_> = nodes.iter().filter(|[_, _, followed]| *followed == leader[0]).collect();
        assert_eq!(followers.len(), 2);
        assert_eq!(listed.matches(&format!("slave {}", leader[0])).count(), 2, "{listed}");
        assert!(followers.iter().all(|[name, ..]| listed.contains(name.as_str())), "{listed}");
        assert_eq!(
            cluster.ask(client, &format!("CLUSTER {command} {}", followers[0][0])),
            "-ERR The specified node is not a master"
        );
        assert_eq!(cluster.ask(client, &format!("CLUSTER {command} nosuch")), "-ERR Unknown node nosuch");
    }
}

#[test]
fn members_of_a_shard_name_it_alike() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let names: Vec<String> = (1..=3)
        .map(|node| {
            let client = cluster.client(node);
            cluster.ask(client, "CLUSTER MYSHARDID")
        })
        .collect();
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    let name = names[0].trim_matches('"');
    assert!(name.len() == 40 && name.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
}

#[test]
fn links_are_those_that_are_up() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let client = cluster.client(1);
    let links = cluster.ask(client, "CLUSTER LINKS");
    let all = nodes(&mut cluster, client);
    let others = || all.iter().filter(|[_, flags, _]| !flags.contains("myself"));
    assert!(others().all(|[name, ..]| links.contains(name.as_str())), "{links}");
    assert_eq!(links.matches("\"create-time\", 17").count(), 2, "{links}");
    cluster.break_link(1, 2);
    cluster.turns(2);
    let links = cluster.ask(client, "CLUSTER LINKS");
    assert_eq!(others().filter(|[name, ..]| links.contains(name.as_str())).count(), 1, "{links}");
}
