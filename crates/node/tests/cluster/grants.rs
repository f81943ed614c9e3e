//! Room in memory for writes that are under way.

use super::support::setup;

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
