//! Room in memory for writes that are under way.

use super::support::{Cluster, setup};

/// While there is no leader, requests wait; then all of them could be ordered at once.
#[test]
fn writes_that_waited_for_a_leader_share_the_room_that_is_left() {
    const WRITES: usize = 100;
    for keyspace in ["prefix= replication=consensus", "prefix= replication=leader-follower acks=majority"] {
        let mut cluster =
            setup(3, &[keyspace]).with(|configuration| configuration.memory_max = 64 << 20).start();
        let first = cluster.client(1);
        assert_eq!(cluster.ask(first, "SET k v"), "OK");
        let leader = (1..=3).find(|id| cluster.keyspace(*id, "default").role == "leader").expect("one leads");
        let others: Vec<u16> = (1..=3).filter(|id| *id != leader).collect();
        cluster.kill(leader);
        cluster.turns(100);
        let clients: Vec<_> = others.iter().map(|id| cluster.client(*id)).collect();
        for client in &clients {
            for number in 0..WRITES {
                cluster.send(*client, &format!("SETRANGE pad:{}:{number} 900000 x", client.node));
            }
        }
        let (mut stored, mut refused) = (0, 0);
        for client in clients {
            for _ in 0..WRITES {
                match cluster.reply(client) {
                    reply if reply == "900001" => stored += 1,
                    reply if reply.starts_with("-OOM") || reply.starts_with("-TRYAGAIN OVERLOADED") => {
                        refused += 1
                    }
                    reply => panic!("{reply}"),
                }
            }
        }
        // Three quarters of the bound are for data.
        assert!((1..=53).contains(&stored), "{keyspace}: {stored} of 0.9 MB were stored, {refused} refused");
    }
}

/// Copies of a collection share its nodes, and take memory only when they change, even if a change only removes.
#[test]
fn copies_are_refused_where_their_changes_would_have_no_room() {
    const MEMORY_MAX: u64 = 64 << 20;
    const RESIDENT: u64 = 10 << 20;
    for keyspace in ["prefix= replication=consensus", "prefix= replication=leader-follower acks=majority"] {
        let mut cluster =
            setup(3, &[keyspace]).with(|configuration| configuration.memory_max = MEMORY_MAX).start();
        let client = cluster.client(1);
        let members: Vec<String> = (0..5000).map(|number| format!("member:{number:060}")).collect();
        for some in members.chunks(100) {
            assert_eq!(cluster.ask(client, &format!("SADD set {}", some.join(" "))), "100");
        }
        let one: u64 = cluster.ask(client, "MEMORY USAGE set").parse().expect("a number");
        let measure = |cluster: &mut Cluster| {
            (1..=3).for_each(|node| cluster.node(node).measured(RESIDENT, 0, 0));
            cluster.settle();
        };
        let mut copies = 0;
        let refusal = loop {
            measure(&mut cluster);
            match cluster.ask(client, &format!("COPY set copy:{copies}")) {
                reply if reply == "1" => copies += 1,
                reply => break reply,
            }
            assert!(copies < 1000, "{keyspace}: nothing is refused");
        };
        assert!(refusal.starts_with("-OOM"), "{keyspace}: {refusal}");
        let room = MEMORY_MAX / 4 * 3 - RESIDENT;
        assert!(
            (room / one / 2..=room / one).contains(&copies),
            "{keyspace}: {copies} copies of {one} bytes"
        );
        assert_eq!(
            cluster.ask(client, "MEMORY USAGE copy:0"),
            one.to_string(),
            "a copy counts with all it has"
        );
        // The original may go as well as a copy.
        for key in ["set", "copy:0", "copy:1"] {
            assert_eq!(cluster.ask(client, &format!("DEL {key}")), "1");
        }
        measure(&mut cluster);
        assert_eq!(cluster.ask(client, "COPY copy:2 copy:0"), "1", "{keyspace}");
        assert_eq!(cluster.ask(client, "FLUSHALL"), "OK");
        measure(&mut cluster);
        assert_eq!(
            cluster.ask(client, "SETRANGE large 1000000 x"),
            "1000001",
            "{keyspace}: all is free again"
        );
    }
}
