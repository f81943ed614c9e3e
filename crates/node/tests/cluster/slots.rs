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
