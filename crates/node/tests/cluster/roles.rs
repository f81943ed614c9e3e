//! What nodes say of their roles and of how far followers are, in `INFO`, `ROLE` and `HELLO`.

use crate::support::{Client, Cluster, setup};
use node::{Masters, NodeId};

/// The value of a field of `INFO replication`.
fn field(info: &str, name: &str) -> Option<String> {
    let line = info.split("\\r\\n").flat_map(|text| text.split("\r\n"));
    line.filter_map(|line| line.split_once(':'))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.into())
}

fn info(cluster: &mut Cluster, client: Client) -> String {
    cluster.ask(client, "INFO replication")
}

/// The role that a node has by `INFO`, `ROLE` and `HELLO`.
fn roles(cluster: &mut Cluster, node: NodeId) -> [String; 3] {
    let client = cluster.client(node);
    let role = field(&info(cluster, client), "role").expect("a role");
    let [by_role, by_hello] = ["ROLE", "HELLO"].map(|request| cluster.ask(client, request));
    let word = |text: &str, words: [&str; 2]| {
        let found =
            words.into_iter().find(|word| text.contains(&format!("\"{word}\"")) || text.contains(word));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    [role, word(&by_role, ["master", "slave"]), word(&by_hello, ["master", "replica"])]
}

const MASTER: [&str; 3] = ["master", "master", "master"];
const SLAVE: [&str; 3] = ["slave", "slave", "replica"];

#[test]
fn followers_that_have_everything_are_at_the_leaders_offset() {
    for replication in ["consensus", "leader-follower"] {
        let mut cluster = setup(3, &[&format!("prefix= replication={replication}")]).start();
        let leader = cluster.keyspace(1, "default").leader;
        let client = cluster.client(leader);
        // Many commands are one entry of the log.
        for _ in 0..4 {
            let replies = cluster.pipeline(client, &["SET k v"; 50]);
            assert!(replies.iter().all(|reply| reply == "OK"));
        }
        cluster.turns(3000);
        let at_leader = info(&mut cluster, client);
        let offset = field(&at_leader, "master_repl_offset").expect("an offset");
        assert!(offset.parse::<u64>().unwrap() >= 200, "{replication}: {at_leader}");
        assert_eq!(field(&at_leader, "connected_slaves").as_deref(), Some("2"));
        for number in 0..2 {
            let line = field(&at_leader, &format!("slave{number}")).expect("a follower");
            assert!(line.ends_with(&format!("state=online,offset={offset},lag=0")), "{replication}: {line}");
        }
        // `ROLE` at the leader names its offset and each follower's.
        let role = cluster.ask(client, "ROLE");
        assert_eq!(role.matches(&offset).count(), 3, "{replication}: {role}");
        for node in (1..=3).filter(|node| *node != leader) {
            let follower = cluster.client(node);
            let at_follower = info(&mut cluster, follower);
            for name in ["master_repl_offset", "slave_repl_offset", "slave_read_repl_offset"] {
                assert_eq!(field(&at_follower, name).as_ref(), Some(&offset), "{replication}: {name}");
            }
            assert!(cluster.ask(follower, "ROLE").contains(&offset));
        }
        let shards = cluster.ask(client, "CLUSTER SHARDS");
        assert_eq!(shards.matches(&format!("replication-offset\", {offset}")).count(), 3, "{shards}");
    }
}

#[test]
fn a_follower_that_is_cut_off_stays_behind_and_is_not_counted() {
    for replication in ["consensus", "leader-follower"] {
        let mut cluster = setup(3, &[&format!("prefix= replication={replication}")]).start();
        let leader = cluster.keyspace(1, "default").leader;
        let away = (1..=3).find(|node| *node != leader).expect("a follower");
        let client = cluster.client(leader);
        cluster.pipeline(client, &["SET k v"; 10]);
        cluster.settle();
        let before = field(&info(&mut cluster, client), "master_repl_offset").expect("an offset");
        cluster.cut_off(away);
        cluster.turns(1000);
        assert!(cluster.pipeline(client, &["SET k v"; 30]).iter().all(|reply| reply == "OK"));
        cluster.turns(1000);
        let after: u64 = field(&info(&mut cluster, client), "master_repl_offset").unwrap().parse().unwrap();
        let before: u64 = before.parse().unwrap();
        assert!(after >= before + 30);
        let all = cluster.ask(client, "INFO replication quorate");
        assert_eq!(field(&all, "connected_slaves").as_deref(), Some("1"), "{all}");
        assert!(field(&all, "slave1").is_none());
        let line = field(&all, &format!("follower{away}")).expect("the one that is away");
        assert!(line.contains("state=offline"), "{replication}: {line}");
        // leader-follower forgets where a follower was that is not served.
        if replication == "consensus" {
            assert!(line.contains(&format!("offset={before},lag_records={}", after - before)), "{line}");
        }
    }
}

#[test]
fn one_node_is_the_master_unless_all_are_to_be_called_one() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let leader = cluster.keyspace(1, "default").leader;
    for node in 1..=3 {
        let expected = if node == leader { MASTER } else { SLAVE };
        assert_eq!(roles(&mut cluster, node), expected, "node {node}");
    }
    let mut cluster = setup(3, &["prefix= replication=consensus"])
        .with(|configuration| configuration.masters = Masters::All)
        .start();
    let leader = cluster.keyspace(1, "default").leader;
    for node in 1..=3 {
        assert_eq!(roles(&mut cluster, node), MASTER, "node {node}");
    }
    let follower = (1..=3).find(|node| *node != leader).expect("a follower");
    let client = cluster.client(follower);
    let text = info(&mut cluster, client);
    assert_eq!(field(&text, "connected_slaves").as_deref(), Some("0"), "{text}");
    assert_eq!(field(&text, "master_host"), None);
    // One that cannot serve is no master: a client that looks for one goes elsewhere.
    cluster.cut_off(follower);
    cluster.until("the node notices", |cluster| {
        field(&info(cluster, client), "role").as_deref() == Some("slave")
    });
    assert_eq!(roles(&mut cluster, follower), SLAVE);
}

#[test]
fn without_a_leader_every_node_is_a_master() {
    for replication in ["abd", "blocking"] {
        let mut cluster = setup(3, &[&format!("prefix= replication={replication}")]).start();
        for node in 1..=3 {
            assert_eq!(roles(&mut cluster, node), MASTER, "{replication}, node {node}");
        }
    }
}

/// Under a steady load a follower lacks something at nearly every moment, and never for long.
#[test]
fn the_lag_of_a_follower_is_short_under_steady_load() {
    let mut cluster = setup(3, &["prefix= acks=majority leader=1"]).start();
    let client = cluster.client(1);
    let (mut records, mut most_ms) = (0, 0);
    for number in 0..2000 {
        cluster.send(client, &format!("SET k {number}"));
        cluster.turn();
        let health = cluster.keyspace(2, "default");
        records = records.max(health.lag);
        most_ms = most_ms.max(health.lag_ms);
    }
    assert!(records > 0 && most_ms < 50, "{records} records for {most_ms} ms");
}
