//! Votes on transactions whose coordinator has ended.

use crate::support::{Cluster, setup};

/// How many votes the nodes have had their groups forget.
fn forgotten(cluster: &mut Cluster) -> u64 {
    (1..=3)
        .map(|node| {
            let client = cluster.client(node);
            let info = cluster.ask(client, "INFO stats");
            cluster.node(node).disconnect(client.id);
            let (_, field) = info.split_once("votes_forgotten:").expect("the field is there");
            let digits: String = field.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().expect("a number")
        })
        .sum()
}

/// A node dies again and again while it coordinates. What its earlier starts have left is forgotten, and that once.
#[test]
fn what_ended_coordinators_have_left_is_forgotten() {
    let mut cluster = setup(3, &["prefix= replication=consensus shards=4"]).start();
    for round in 0..12 {
        let client = cluster.client(3);
        cluster.until("the node coordinates", |cluster| cluster.ask(client, "MSET a 1 b 1 c 1 d 1") == "OK");
        for key in ["e", "f", "g", "h"] {
            cluster.send(client, &format!("MSET {key}1 {round} {key}2 {round} {key}3 {round}"));
            cluster.turns(round / 3);
        }
        cluster.kill(3);
        cluster.turns(1500);
        cluster.restart(3);
        cluster.turns(500);
    }
    let client = cluster.client(3);
    cluster.until("the node coordinates", |cluster| cluster.ask(client, "MSET a 2 b 2 c 2 d 2") == "OK");
    cluster.turns(6_000);
    let once = forgotten(&mut cluster);
    assert!(once >= 5, "{once} votes were forgotten");
    cluster.turns(11_000);
    assert_eq!(forgotten(&mut cluster), once, "they are asked about no more");
    assert_eq!(cluster.ask(client, "MGET a b c d"), "[\"2\", \"2\", \"2\", \"2\"]");
}
