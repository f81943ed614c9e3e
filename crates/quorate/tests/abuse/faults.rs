//! Nodes are killed, paused, cut off and flooded while clients record the replies that they get: could a store with
//! one copy of each key, which never fails, have given those replies?

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use check::Verdict;
use lab::network::{Gate, Relay, Route};
use rustix::process::Signal;

use crate::bounded::{Cluster, rounds};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::support::{free_ports, request, signal};

/// All of them keep acknowledged writes when all processes are killed.
const KEYSPACES: &str = r#"
[[keyspace]]
prefix = "all:"
replication = "leader-follower"
acks = "all"
durability = "fsync"

[[keyspace]]
prefix = "most:"
replication = "leader-follower"
durability = "os"

[[keyspace]]
prefix = "abd:"
replication = "abd"
durability = "os"

[[keyspace]]
prefix = "lock:"
replication = "blocking"
durability = "fsync"
"#;

const PREFIXES: [&str; 5] = ["", "all:", "most:", "abd:", "lock:"];

/// Of two nodes, the one with the higher number dials.
const LINKS: [(u16, u16); 3] = [(2, 1), (3, 1), (3, 2)];

/// Too few operations might never reveal a lost write.
const OPERATIONS_MIN: usize = 500;

/// Starts three nodes whose links can be cut.
fn start() -> (Cluster, Relay) {
    let (base, fronts) = (free_ports(9), free_ports(3));
    let relay = Relay::start(1).unwrap();
    let mut dials = String::new();
    for (index, (from, to)) in LINKS.into_iter().enumerate() {
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (listen, target) = (at(fronts + index as u16), at(base + 3 * (to - 1) + 2));
        relay.add_route(Route { from, to, listen, target }).unwrap();
        dials.push_str(&format!("{from} {to} {}\n", listen.port()));
    }
    let edit = |text: String, node: u16| {
        let mut own = String::new();
        for line in dials.lines() {
            let words: Vec<u16> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            if words[0] == node {
                let (to, port) = (words[1], words[2]);
                own.push_str(&format!("[[dial]]\nnode = {to}\nhost = \"127.0.0.1\"\nport = {port}\n\n"));
            }
        }
        text.replacen("[[nodes]]", &format!("{own}[[nodes]]"), 1)
    };
    (Cluster::start_edited(base, 3, KEYSPACES, edit, None), relay)
}

fn cut_off(relay: &Relay, node: u16, gate: Gate) {
    for (from, to) in LINKS.into_iter().filter(|(from, to)| *from == node || *to == node) {
        relay.set_gate(from, to, gate).unwrap();
        relay.set_gate(to, from, gate).unwrap();
    }
}

/// Opens connections that request more than they will ever read.
fn flood(cluster: &Cluster, random: &mut Random) {
    for _ in 0..30 {
        let port = cluster.client_port(1 + random.below(3) as u16);
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        let value = vec![b'x'; 20_000];
        let _ = stream.write_all(&request(&[b"SET", b"flood", &value]).repeat(20));
        let _ = stream.write_all(&b"GET flood\r\n".repeat(100));
    }
}

fn pause(random: &mut Random, least_ms: u64, most_ms: u64) {
    std::thread::sleep(Duration::from_millis(least_ms + random.below((most_ms - least_ms) as usize) as u64));
}

fn hurt(cluster: &mut Cluster, relay: &Relay, random: &mut Random, kind: usize) {
    let node = 1 + random.below(3) as u16;
    match kind {
        0 => {
            cluster.kill(node);
            pause(random, 100, 900);
            cluster.restart(node);
        }
        1 => {
            (1..=3).for_each(|node| cluster.kill(node));
            (1..=3).for_each(|node| cluster.restart(node));
        }
        2 => {
            signal(cluster.process(node), Signal::STOP);
            pause(random, 300, 1500);
            signal(cluster.process(node), Signal::CONT);
        }
        3 => {
            cut_off(relay, node, Gate::Drop);
            pause(random, 300, 1500);
            cut_off(relay, node, Gate::Open);
        }
        _ => flood(cluster, random),
    }
    (1..=3).for_each(|node| cluster.wait_until_ready(node));
}

#[test]
fn nothing_acknowledged_is_lost_under_kills_pauses_partitions_and_floods() {
    const KINDS: usize = 5;
    let (mut cluster, relay) = start();
    let mut random = Random::new(3);
    // Each round has a separate history, with new keys.
    for round in 0..rounds(1, 40) {
        let keys: Vec<String> = PREFIXES
            .iter()
            .flat_map(|prefix| (0..3).map(move |key| format!("{prefix}r{round}-{key}")))
            .collect();
        let ports: Vec<u16> = (1..=3).map(|id| cluster.client_port(id)).collect();
        let recorder = Recorder::start(&ports, 6, &keys.iter().map(String::as_str).collect::<Vec<_>>());
        recorder.wait_for(100);
        let begun = Instant::now();
        // Each kind of fault once, beginning with a different one in each round.
        for kind in 0..KINDS {
            hurt(&mut cluster, &relay, &mut random, (kind + round) % KINDS);
            recorder.wait_for(100);
        }
        let history = recorder.stop();
        let operations = history.operations().len();
        println!("round {round}: {operations} operations in {:.1} s", begun.elapsed().as_secs_f64());
        assert!(history.answered() >= OPERATIONS_MIN, "too few: {} of {operations}", history.answered());
        match check::linearizable(&history) {
            Verdict::Ok { .. } => {}
            other => panic!("{}", other.words(&history)),
        }
        cluster.assert_takes_writes();
    }
}
