//! Reads that are carried out over several turns, through any node.

use crate::support::{Cluster, Setup, setup};

/// A read of some twenty elements counts as long then, and goes on with as many in each turn.
fn three(keyspaces: &[&str]) -> Setup {
    setup(3, keyspaces).with(|configuration| configuration.long_command_bytes = 400)
}

/// Fills a list through a node, and returns what `LRANGE` answers.
fn fill(cluster: &mut Cluster, key: &str, count: usize) -> String {
    let client = cluster.client(1);
    let elements: Vec<String> = (0..count).map(|number| format!("e{number}")).collect();
    assert_eq!(cluster.ask(client, &format!("RPUSH {key} {}", elements.join(" "))), count.to_string());
    let quoted: Vec<String> = elements.iter().map(|element| format!("\"{element}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

#[test]
fn a_long_read_shows_its_beginning_through_any_node_and_others_do_not_wait_for_it() {
    for keyspace in ["prefix= replication=consensus", "prefix= acks=majority"] {
        let mut cluster = three(&[keyspace]).start();
        let all = fill(&mut cluster, "l", 1000);
        for node in [1, 2, 3] {
            let (client, other) = (cluster.client(node), cluster.client(node));
            cluster.send(client, "LRANGE l 0 -1");
            cluster.send(client, "LLEN l");
            cluster.turns(8);
            assert_eq!(cluster.ask(other, "RPUSH l more"), "1001", "{keyspace}: through node {node}");
            assert_eq!(cluster.ask(other, "RPOP l"), "\"more\"");
            assert_eq!(
                cluster.arrived(client),
                None,
                "{keyspace}: the read through node {node} is under way"
            );
            assert!(cluster.reply(client) == all, "{keyspace}: through node {node}");
            assert_eq!(cluster.reply(client), "1000", "{keyspace}");
        }
    }
}
