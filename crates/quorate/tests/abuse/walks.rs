//! Commands that visit all keys or all connections: few bytes, long execution. A pipeline holds thousands of them,
//! and other clients are served between any two.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::bounded::{Cluster, rounds};
use crate::support::{connect, request};

/// The number of other clients' writes that must be served during an attack. When a node was frozen, one write
/// took ten seconds.
const BESIDE: usize = 30;

/// How long all of them may take, on a busy machine too: with a frozen node they would take minutes.
const BESIDE_TAKES: Duration = Duration::from_secs(40);

/// Sends each of these requests repeatedly over a few connections to every node, reads nothing, and asserts that
/// other clients are served during it. On a busy machine leaders change occasionally, so some writes may get an error
/// that says so.
#[track_caller]
fn assert_others_are_served(cluster: &Cluster, attacks: &[Vec<u8>]) {
    let mut attackers = Vec::new();
    for (number, attack) in attacks.iter().enumerate() {
        for id in 1..=3 {
            let mut stream = connect(cluster.client_port(id));
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let _ = stream.write_all(&attack.repeat(rounds(2000, 10_000)));
            attackers.push((number, stream));
        }
    }
    let (mut client, mut took) = (cluster.client(1), Vec::new());
    let all = Instant::now();
    while took.len() < BESIDE {
        let begun = Instant::now();
        if client.ask("SET beside it") == "+OK" {
            took.push(begun.elapsed());
        }
        assert!(all.elapsed() < BESIDE_TAKES, "only {} SETs were served: {took:?}", took.len());
    }
    took.sort_unstable();
    println!("beside the attack a SET took {:?}, the slowest {:?}", took[BESIDE / 2], took[BESIDE - 1]);
    // The attackers are served too.
    for (number, stream) in &mut attackers {
        assert!(stream.read(&mut [0; 4]).unwrap() > 0, "attack {number}");
    }
}

fn fill(cluster: &Cluster, keys: usize) {
    let mut client = cluster.client(1);
    for part in 0..keys / 2000 {
        let words = (0..2000).flat_map(|key| [format!("key:{part}:{key}").into_bytes(), b"v".to_vec()]);
        let words: Vec<Vec<u8>> = [b"MSET".to_vec()].into_iter().chain(words).collect();
        client.send(request(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        assert_eq!(client.line(), "+OK");
    }
}

/// Each takes about 5 ms, and 256 of them used to be executed in one turn, during which leaders were deposed.
#[test]
fn reads_of_all_keys_do_not_delay_others() {
    let mut cluster = Cluster::start(3, "");
    fill(&cluster, 100_000);
    let attacks = [
        request(&[b"KEYS", b"nothing*"]),
        request(&[b"SCAN", b"0", b"MATCH", b"nothing*", b"COUNT", b"1000000000"]),
    ];
    assert_others_are_served(&cluster, &attacks);
    cluster.assert_serves();
}

/// A transaction of ten thousand used to freeze a node for minutes, and with a write among them each of its
/// replicas, at every start.
#[test]
fn a_transaction_of_reads_of_all_keys_is_refused() {
    let mut cluster = Cluster::start(3, "");
    fill(&cluster, 100_000);
    for id in 1..=3 {
        for first in ["SET transaction x", "GET transaction"] {
            let mut client = cluster.client(id);
            assert_eq!(client.ask("MULTI"), "+OK");
            assert_eq!(client.ask(first), "+QUEUED");
            for _ in 0..100 {
                assert_eq!(client.ask("KEYS nothing*"), "+QUEUED");
            }
            let begun = Instant::now();
            let answer = client.ask("EXEC");
            assert!(answer.starts_with("-ERR the transaction would look at so many keys"), "{answer}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    }
    let mut client = cluster.client(1);
    assert_eq!(client.ask("EXISTS transaction"), ":0");
    assert_eq!(client.ask("MULTI"), "+OK");
    assert_eq!(client.ask("KEYS nothing*"), "+QUEUED");
    assert_eq!(client.ask("EXEC"), "*1", "a few are carried out");
    cluster.assert_serves();
}

/// A published message is matched with every pattern: that took four seconds for one message, and here is a pipeline
/// of them.
#[test]
fn messages_to_many_patterns_do_not_delay_others() {
    let mut cluster = Cluster::start(3, "");
    let mut listeners = Vec::new();
    for id in 1..=3 {
        let mut listener = cluster.client(id);
        for number in 0..rounds(1000, 9000) {
            let pattern = format!("*x{}{number}", "x*".repeat(25));
            listener.send(request(&[b"PSUBSCRIBE", pattern.as_bytes()]));
        }
        listeners.push(listener);
    }
    let name = b"x".repeat(1000);
    let attacks =
        [request(&[b"PUBLISH", &name, b"m"]), request(&[b"PUBSUB", b"CHANNELS", &b"*x".repeat(500)])];
    assert_others_are_served(&cluster, &attacks);
    let mut client = cluster.client(1);
    client.send(request(&[b"PUBLISH", &b"x".repeat(1025), b"m"]));
    assert_eq!(client.line(), "-ERR the name of a channel is 1025 bytes long; at most 1024 are allowed");
    cluster.assert_serves();
}

/// Each may take about 20 ms, and a turn used to execute hundreds of them: with a pipeline a node stopped for
/// seconds.
#[test]
fn long_scripts_do_not_delay_others() {
    let mut cluster = Cluster::start(3, "");
    let script = |steps: usize| {
        format!("for step = 1, {steps} do KEYS[1] = KEYS[1] end return redis.call('SET', KEYS[1], 'v')")
            .into_bytes()
    };
    let attacks = [
        request(&[b"EVAL", &script(200_000), b"1", b"scripted"]),
        // The cost of a script that has never run is unknown.
        (0..50).flat_map(|more| request(&[b"EVAL", &script(200_000 + more), b"1", b"scripted"])).collect(),
    ];
    assert_others_are_served(&cluster, &attacks);
    cluster.assert_serves();
}

#[test]
fn lists_of_many_clients_do_not_delay_others() {
    let mut cluster = Cluster::start(3, "");
    let _idle: Vec<_> = (0..rounds(1000, 5000)).map(|_| connect(cluster.client_port(1))).collect();
    let mut by_id = vec![b"CLIENT".to_vec(), b"LIST".to_vec(), b"ID".to_vec()];
    by_id.extend((0..10_000_u64).map(|id| (1 << 40 | id).to_string().into_bytes()));
    let attacks = [
        request(&[b"CLIENT", b"LIST", b"TYPE", b"pubsub"]),
        request(&[b"CLIENT", b"KILL", b"ADDR", b"192.0.2.1:1"]),
    ];
    assert_others_are_served(&cluster, &attacks);
    let begun = Instant::now();
    let mut client = cluster.client(1);
    client.send(request(&by_id.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    assert_eq!(client.line(), "$0");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    cluster.assert_serves();
}
