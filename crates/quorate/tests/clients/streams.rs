//! Streams of real processes: what needs several nodes, or time.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Cluster, ask};

const KINDS: [&str; 2] =
    ["prefix= replication=consensus", "prefix= replication=leader-follower acks=majority"];

/// A producer repeats each request until it has an id, and some that it has already. The leader is killed in between.
#[test]
fn what_a_producer_repeats_is_added_once_although_the_leader_dies() {
    for kind in KINDS {
        let mut cluster = Cluster::start(3, &[kind]);
        let leader = cluster.leader();
        let mut client = cluster.client(leader % 3 + 1);
        let (mut ids, mut repeated) = (Vec::new(), 0);
        let mut send = |number: usize| loop {
            let reply = ask(&mut client, &format!("XADD s IDMP p n{number} * number {number}"));
            if reply.starts_with('"') {
                return reply;
            }
            repeated += 1;
            thread::sleep(Duration::from_millis(10));
        };
        for number in 0..200 {
            if number == 100 {
                cluster.kill(leader);
            }
            ids.push(send(number));
            if number % 10 == 0 {
                assert_eq!(send(number / 2), ids[number / 2], "{kind}");
            }
        }
        // Of what was sent before the leader died, some is still remembered: the default is 100 of each producer.
        for (number, id) in ids.iter().enumerate().skip(150) {
            assert_eq!(send(number), *id, "{kind}");
        }
        println!("{kind}: {repeated} requests had no id");
        cluster.restart(leader);
        cluster.wait_until_ready(leader);
        cluster.wait_until_equal();
        let mut client = cluster.client(leader);
        let entries: Vec<String> = ids
            .iter()
            .enumerate()
            .map(|(number, id)| format!("[{id}, [\"number\", \"{number}\"]]"))
            .collect();
        assert_eq!(ask(&mut client, "XRANGE s - +"), format!("[{}]", entries.join(", ")), "{kind}");
    }
}

/// Nothing is written while a request waits for what is pending to be old enough.
#[test]
fn a_waiting_request_claims_what_becomes_old_enough() {
    let cluster = Cluster::start(3, &KINDS[..1]);
    let mut client = cluster.client(1);
    ask(&mut client, "XADD s 1-0 f v");
    assert_eq!(ask(&mut client, "XGROUP CREATE s g 0"), "OK");
    assert!(ask(&mut client, "XREADGROUP GROUP g a STREAMS s >").contains("1-0"));
    for id in 1..=3 {
        let mut client = cluster.client(id);
        let begin = Instant::now();
        let reply = ask(&mut client, &format!("XREADGROUP GROUP g c{id} BLOCK 20000 CLAIM 400 STREAMS s >"));
        let idle = reply.rsplit(", ").nth(1).and_then(|idle| idle.parse::<u64>().ok());
        assert!(reply.contains("1-0") && idle.is_some_and(|idle| idle >= 400), "{reply}");
        assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
        assert!(ask(&mut client, "XPENDING s g - + 9").contains(&format!("\"c{id}\"")));
    }
    let reply = ask(&mut client, "XREADGROUP GROUP g d BLOCK 150 CLAIM 60000 STREAMS s >");
    assert_eq!(reply, "nil", "its time is over before");
    assert_eq!(ask(&mut client, "XNACK s g FAIL IDS 1 1-0"), "1");
    assert!(ask(&mut client, "XREADGROUP GROUP g d BLOCK 20000 CLAIM 60000 STREAMS s >").contains("1-0"));
}
