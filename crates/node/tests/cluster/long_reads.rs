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

#[test]
fn combinations_show_their_beginning_through_any_node_and_others_do_not_wait_for_them() {
    let mut cluster = three(&["prefix= replication=consensus"]).start();
    let filler = cluster.client(1);
    let numbers = |from: usize| (from..from + 1000).map(|number| number.to_string()).collect::<Vec<_>>();
    for (command, key, from) in [("SADD", "a", 0), ("SADD", "b", 500)] {
        let line = format!("{command} {key} {}", numbers(from).join(" "));
        assert_eq!(cluster.ask(filler, &line), "1000");
    }
    for (key, from) in [("za", 0), ("zb", 500)] {
        let pairs: Vec<String> = numbers(from).iter().map(|number| format!("{number} m{number}")).collect();
        assert_eq!(cluster.ask(filler, &format!("ZADD {key} {}", pairs.join(" "))), "1000");
    }
    for id in 1..101 {
        cluster.ask(filler, &format!("XADD x {id}-1 field value"));
    }
    let change = ["SREM a 1 2 3", "ZREM za m1 m2 m3", "XDEL x 1-1"];
    let undo = ["SADD a 1 2 3", "ZADD za 1 m1 2 m2 3 m3", "XADD x * field value"];
    let reads = [
        "SUNION a b",
        "SINTER a b",
        "SDIFF a b",
        "ZUNION 2 za zb WITHSCORES",
        "ZINTER 2 za zb",
        "XRANGE x - +",
    ];
    for (read, node) in reads.into_iter().flat_map(|read| [1, 2, 3].map(|node| (read, node))) {
        let (client, other) = (cluster.client(node), cluster.client(node));
        assert_eq!(cluster.ask(client, "MULTI"), "OK");
        assert_eq!(cluster.ask(client, read), "QUEUED");
        let at_once = cluster.ask(client, "EXEC");
        cluster.send(client, read);
        cluster.turns(8);
        change.iter().for_each(|line| drop(cluster.ask(other, line)));
        assert_eq!(cluster.arrived(client), None, "{read} through node {node} is under way");
        assert!(format!("[{}]", cluster.reply(client)) == at_once, "{read} through node {node}");
        undo.iter().for_each(|line| drop(cluster.ask(other, line)));
    }
}
