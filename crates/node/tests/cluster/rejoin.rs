//! A node that returns is sent what it lacks in slices, over all keyspaces together, so that clients of other nodes wait for
//! no long turn. Bytes are counted here, since a test's time depends on the machine.

use crate::support::{Cluster, setup};

const KEYSPACES: [&str; 4] = ["a:", "b:", "c:", "d:"];
const VALUE_BYTES: usize = 100_000;
const VALUES: usize = 60;

/// The most that may leave for the returning node in a turn: a slice, one chunk or record more, and what is written meanwhile.
const TURN_BYTES_MAX: usize = 3 << 19;

/// Takes turns until node 3 is in step, with a write at another node at any time. Returns the most bytes that left for node 3
/// in a turn, and the most turns that a write took.
fn catch_up(cluster: &mut Cluster) -> (usize, usize) {
    let client = cluster.client(2);
    let (mut most_bytes, mut most_turns, mut turns) = (0, 0, 0);
    cluster.send(client, "SET a:key v");
    for _ in 0..5000 {
        cluster.turn();
        // What was sent before has arrived in this turn.
        most_bytes = (1..3).map(|from| cluster.waiting_bytes(from, 3)).fold(most_bytes, usize::max);
        turns += 1;
        if cluster.arrived(client).is_some() {
            most_turns = most_turns.max(turns);
            turns = 0;
            let holds_all = |prefix: &str| cluster.keyspace(3, prefix).applied >= VALUES as u64;
            if KEYSPACES.into_iter().all(holds_all) {
                return (most_bytes, most_turns);
            }
            cluster.send(client, "SET a:key v");
        }
    }
    panic!("node 3 does not catch up");
}

/// What a keyspace's settings say of its protocol, and whether node 3 loses its memory.
fn returns(replication: &str, losses: &[bool]) {
    let keyspaces = KEYSPACES.map(|prefix| format!("prefix={prefix} {replication} leader=1"));
    let keyspaces: Vec<&str> = keyspaces.iter().map(String::as_str).collect();
    for &loses_memory in losses {
        let mut cluster = setup(3, &keyspaces).start();
        let client = cluster.client(1);
        match loses_memory {
            true => cluster.kill(3),
            false => cluster.cut_off(3),
        }
        let value = vec![b'v'; VALUE_BYTES];
        for number in 0..VALUES {
            for prefix in KEYSPACES {
                let key = format!("{prefix}{number}");
                cluster.send_words(client, &[b"SET", key.as_bytes(), &value]);
                assert_eq!(cluster.reply(client), "OK");
            }
        }
        match loses_memory {
            true => cluster.restart(3),
            false => cluster.reconnect(3),
        }
        let (bytes, turns) = catch_up(&mut cluster);
        assert!(bytes > 1 << 19, "it lacked much: {bytes} bytes at once");
        assert!(bytes <= TURN_BYTES_MAX, "{bytes} bytes in one turn, loses memory: {loses_memory}");
        assert!(turns <= 10, "a write took {turns} turns, loses memory: {loses_memory}");
    }
}

#[test]
fn a_node_that_returns_delays_nobody() {
    returns("acks=majority", &[false, true]);
}

/// Every keyspace's group has its own log, of which a follower gets slices.
#[test]
fn a_node_that_returns_to_consensus_delays_nobody() {
    returns("replication=consensus", &[false, true]);
}
