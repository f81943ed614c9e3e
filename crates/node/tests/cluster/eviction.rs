//! Keyspaces with a bound on memory: what is refused, what is evicted, and that replicas agree.

use crate::support::{Client, Cluster, assert_error, setup};
use node::NodeId;

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The bound in bytes: more than an empty table takes.
const BOUND: u64 = 200_000;

/// Starts a cluster whose keyspace has a bound.
fn bounded(settings: &str) -> (Cluster, Client) {
    let mut cluster = setup(3, &[&format!("prefix= memory_max={BOUND} {settings}")]).start();
    let client = cluster.client(2);
    (cluster, client)
}

/// Sets numbered keys, some at a time, and returns the replies.
fn fill(cluster: &mut Cluster, client: Client, from: usize, to: usize, ending: &str) -> Vec<String> {
    let value = "v".repeat(200);
    let mut replies = Vec::new();
    for first in (from..to).step_by(50) {
        let keys = first..to.min(first + 50);
        keys.clone().for_each(|key| cluster.send(client, &format!("SET k{key} {value}{ending}")));
        keys.for_each(|_| replies.push(cluster.reply(client)));
    }
    replies
}

fn assert_equal_and_bounded(cluster: &mut Cluster) {
    cluster.turns(200);
    let held = cluster.node(1).digests();
    for node in [1, 2, 3] {
        assert_eq!(cluster.node(node).digests(), held, "node {node}");
        for memory in cluster.node(node).bounded_memory() {
            assert!(memory.bytes <= memory.bytes_max && memory.bytes_max == BOUND, "node {node}: {memory:?}");
        }
    }
}

/// Runs scripts, through a follower, in a keyspace that has no room for a long value.
fn run_scripts_in_full(cluster: &mut Cluster, client: Client) {
    let value = "v".repeat(2000);
    let mut eval = |text: &str| {
        cluster.send_words(client, &[b"EVAL", text.as_bytes(), b"1", b"s", value.as_bytes()]);
        cluster.reply(client)
    };
    let set = "redis.call('set', KEYS[1], ARGV[1])";
    assert!(eval(set).starts_with(&format!("-{OOM}")));
    assert_eq!(eval("return redis.call('exists', KEYS[1])"), "0", "nothing is left of it");
    assert_eq!(
        eval(&format!("redis.call('del', 'none') {set} return redis.call('strlen', KEYS[1])")),
        "2000"
    );
    assert_eq!(eval("return redis.call('del', KEYS[1])"), "1");
    assert!(eval(&format!("#!lua\n{set}")).starts_with("-OOM allow-oom flag is not set on the script"));
    assert_error(&eval("#!lua flags=\nreturn 1"), "OOM");
    assert_eq!(eval("#!lua flags=no-writes\nreturn 1"), "1");
    assert_eq!(eval(&format!("#!lua flags=allow-oom\n{set} return redis.call('del', KEYS[1])")), "1");
    let mut transact = |text: &str| {
        cluster.ask(client, "MULTI");
        cluster.send_words(client, &[b"EVAL", text.as_bytes(), b"1", b"s", value.as_bytes()]);
        assert_eq!(cluster.reply(client), "QUEUED");
        assert_eq!(cluster.ask(client, "GET none"), "QUEUED");
        cluster.ask(client, "EXEC")
    };
    assert_error(&transact(set), "EXECABORT");
    assert_eq!(
        transact(&format!("#!lua flags=allow-oom\n{set} return redis.call('del', KEYS[1])")),
        "[1, nil]"
    );
}

#[test]
fn a_full_keyspace_without_eviction_refuses_writes_and_loses_nothing() {
    for replication in ["consensus", "leader-follower", "abd", "blocking"] {
        let (mut cluster, client) = bounded(&format!("replication={replication}"));
        let replies = fill(&mut cluster, client, 0, 1000, "");
        let stored = replies.iter().filter(|reply| *reply == "OK").count();
        assert!((200..700).contains(&stored), "{replication}: {stored}");
        let refused = |reply: &String| reply == "OK" || *reply == format!("-{OOM}");
        assert!(replies.iter().all(refused), "{replication}: {replies:?}");
        cluster.turns(200);
        for key in (0..1000).filter(|key| replies[*key] == "OK") {
            assert_ne!(cluster.ask(client, &format!("GET k{key}")), "nil", "{replication}");
        }
        assert_eq!(cluster.ask(client, "DEL k0"), "1", "what frees memory goes on");
        if replication == "consensus" {
            assert_eq!(cluster.ask(client, "MULTI"), "OK");
            assert_eq!(cluster.ask(client, "DEL k1"), "QUEUED");
            assert_eq!(cluster.ask(client, &format!("SET k {}", "v".repeat(2000))), "QUEUED");
            assert_eq!(
                cluster.ask(client, "EXEC"),
                format!("-EXECABORT Transaction discarded because of: {OOM}")
            );
            assert_eq!(cluster.ask(client, "MULTI"), "OK");
            assert_eq!(cluster.ask(client, "DEL k1"), "QUEUED");
            assert_eq!(cluster.ask(client, "EXEC"), "[1]");
            // A command that could not be executed anyway is refused when it is queued, as in Redis.
            assert_eq!(cluster.ask(client, "CONFIG SET maxmemory 70000"), "OK");
            assert_eq!(cluster.ask(client, "MULTI"), "OK");
            assert_eq!(cluster.ask(client, "GET k2"), "QUEUED");
            assert_eq!(cluster.ask(client, "SET k v"), format!("-{OOM}"));
            assert_error(&cluster.ask(client, "EXEC"), "EXECABORT");
            run_scripts_in_full(&mut cluster, client);
        }
    }
}

#[test]
fn a_full_keyspace_with_eviction_accepts_writes_and_replicas_agree() {
    for replication in ["consensus", "leader-follower acks=none", "leader-follower acks=all"] {
        let policies = "lru lfu lrm random ttl volatile-lru volatile-lfu volatile-lrm volatile-random";
        for eviction in policies.split(' ') {
            let (mut cluster, client) = bounded(&format!("eviction={eviction} replication={replication}"));
            // If only keys that expire may be evicted, the others stay.
            let stays = eviction.starts_with("volatile") || eviction == "ttl";
            if stays {
                fill(&mut cluster, client, 0, 50, "");
            }
            let replies = fill(&mut cluster, client, 50, 2000, " EX 1000");
            assert!(replies.iter().all(|reply| reply == "OK"), "{eviction} {replication}: {replies:?}");
            assert_equal_and_bounded(&mut cluster);
            if stays {
                (0..50).for_each(|key| assert_ne!(cluster.ask(client, &format!("GET k{key}")), "nil"));
            }
            let info = cluster.ask(client, "INFO stats");
            let evicted: String = info.split("evicted_keys:").skip(1).collect();
            let evicted: String = evicted.chars().take_while(char::is_ascii_digit).collect();
            assert!(evicted.parse::<u64>().unwrap() > 1000, "{evicted}");
        }
    }
}

#[test]
fn writes_are_refused_if_nothing_can_be_evicted() {
    let (mut cluster, client) = bounded("eviction=volatile-lru");
    let replies = fill(&mut cluster, client, 0, 1000, "");
    assert!(replies.iter().any(|reply| *reply == format!("-{OOM}")));
    assert_eq!(cluster.ask(client, "EXPIRE k1 1000"), "1");
    let value = "v".repeat(BOUND as usize);
    assert_eq!(cluster.ask(client, &format!("SET k {value}")), format!("-{OOM}"), "it is too long for it");
    assert_equal_and_bounded(&mut cluster);
}

#[test]
fn a_bound_is_set_and_lowered_at_run_time_as_in_redis() {
    let mut cluster = setup(3, &["prefix="]).start();
    let client = cluster.client(2);
    assert_eq!(
        cluster.ask(client, "CONFIG GET maxmemory maxmemory-policy"),
        "[\"maxmemory\", \"0\", \"maxmemory-policy\", \"noeviction\"]"
    );
    fill(&mut cluster, client, 0, 1500, "");
    assert_error(&cluster.ask(client, "CONFIG SET maxmemory-policy allkeys-mru"), "ERR");
    assert_error(&cluster.ask(client, "CONFIG SET maxmemory 1 maxmemory-policy allkeys-mru"), "ERR");
    assert_eq!(
        cluster.ask(client, &format!("CONFIG SET maxmemory {BOUND} maxmemory-policy allkeys-lru")),
        "OK"
    );
    assert_equal_and_bounded(&mut cluster);
    let other = cluster.client(1);
    assert_eq!(cluster.ask(other, "CONFIG GET maxmemory"), format!("[\"maxmemory\", \"{BOUND}\"]"));
    let info = cluster.ask(other, "INFO memory");
    assert!(info.contains(&format!("maxmemory:{BOUND}")) && info.contains("maxmemory_policy:allkeys-lru"));
    assert_eq!(cluster.ask(other, "CONFIG SET maxmemory 0"), "OK");
    assert!(fill(&mut cluster, client, 0, 1500, "").iter().all(|reply| reply == "OK"));
    assert_eq!(cluster.ask(other, "DBSIZE"), "1500");
}

#[test]
fn idle_time_and_frequency_are_reported_if_eviction_depends_on_them() {
    let (mut cluster, _) = bounded("eviction=lru leader=1");
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    cluster.turns(3100);
    assert_eq!(cluster.ask(client, "OBJECT IDLETIME k"), "3");
    assert_eq!(cluster.ask(client, "TOUCH k"), "1");
    assert_eq!(cluster.ask(client, "OBJECT IDLETIME k"), "0");
    assert_error(&cluster.ask(client, "OBJECT FREQ k"), "ERR");
    assert_eq!(cluster.ask(client, "CONFIG SET maxmemory-policy allkeys-lfu"), "OK");
    assert_eq!(cluster.ask(client, "OBJECT FREQ k"), "5");
    assert_error(&cluster.ask(client, "OBJECT IDLETIME k"), "ERR");
    assert_eq!(cluster.ask(client, "OBJECT FREQ none"), "nil");
}

/// The node that leads.
fn leader(cluster: &Cluster) -> NodeId {
    (1..=3).find(|id| cluster.keyspace(*id, "default").role == "leader").expect("one leads")
}

#[test]
fn eviction_goes_on_after_evictions_that_had_no_outcome() {
    for replication in ["consensus", "leader-follower acks=all", "leader-follower acks=majority"] {
        let (mut cluster, _) = bounded(&format!("eviction=lru replication={replication}"));
        let leader = leader(&cluster);
        let client = cluster.client(leader);
        assert!(fill(&mut cluster, client, 0, 1000, "").iter().all(|reply| reply == "OK"));
        for round in 0..3 {
            // Its writes, and the evictions for them, reach no other node. Sometimes another node leads by then.
            cluster.cut_off(leader);
            let cut_off = cluster.client(leader);
            let value = "v".repeat(200);
            (0..300).for_each(|key| cluster.send(cut_off, &format!("SET lost{round}-{key} {value}")));
            cluster.turns([50, 1500, 7000][round]);
            cluster.reconnect(leader);
            cluster.turns(3000);
            for node in [1, 2, 3] {
                let client = cluster.client(node);
                let replies = fill(&mut cluster, client, 1000 * round, 1000 * round + 1000, "");
                assert!(replies.iter().all(|reply| reply == "OK"), "{replication} {round}: {replies:?}");
            }
            assert_equal_and_bounded(&mut cluster);
        }
    }
}

#[test]
fn requests_without_a_leader_are_refused_by_the_next_leader_if_there_is_no_room() {
    for replication in ["consensus", "leader-follower acks=all"] {
        let (mut cluster, client) = bounded(&format!("replication={replication}"));
        fill(&mut cluster, client, 0, 1000, "");
        let dead = leader(&cluster);
        cluster.kill(dead);
        let clients: Vec<Client> = (1..=3).filter(|id| *id != dead).map(|id| cluster.client(id)).collect();
        let value = "v".repeat(200);
        for client in &clients {
            (0..500).for_each(|key| cluster.send(*client, &format!("SET k{}-{key} {value}", client.node)));
            cluster.send(*client, "DEL k0");
        }
        for client in &clients {
            let replies: Vec<String> = (0..500).map(|_| cluster.reply(*client)).collect();
            let refused = replies.iter().filter(|reply| **reply == format!("-{OOM}")).count();
            // Writes that fit into the rest of the bound are not refused.
            assert!(refused > 400, "{replication}: {replies:?}");
        }
        let deleted: Vec<String> = clients.iter().map(|client| cluster.reply(*client)).collect();
        assert!(deleted.contains(&"1".into()), "{replication}: what frees memory goes on: {deleted:?}");
        cluster.restart(dead);
        cluster.turns(3000);
        assert_equal_and_bounded(&mut cluster);
    }
}
