//! Clients of real processes that wait for elements.

use std::thread;
use std::time::Duration;

use crate::support::{Cluster, ask, until};

const KINDS: [&str; 2] =
    ["prefix= replication=consensus", "prefix= replication=leader-follower acks=majority"];

/// Clients of both surviving nodes take elements while the leader is killed. Each pushed element goes to one of them, in
/// the order of the pushes.
#[test]
fn each_element_pushed_while_the_leader_dies_goes_to_one_client() {
    for kind in KINDS {
        let mut cluster = Cluster::start(3, &[kind]);
        let leader = cluster.leader();
        let survivors: Vec<u16> = (1..=3).filter(|id| *id != leader).collect();
        let takers: Vec<_> = (0..4)
            .map(|index| {
                let mut connection = cluster.client(survivors[index % 2]);
                thread::spawn(move || {
                    let mut taken: Vec<u64> = Vec::new();
                    loop {
                        let reply = ask(&mut connection, "BLPOP q 5");
                        let Some((_, element)) = reply.split_once("\"e") else {
                            assert_eq!(reply, "nil");
                            return taken;
                        };
                        let number = element.trim_end_matches("\"]");
                        taken.push(number.parse().unwrap_or_else(|_| panic!("no element: {reply}")));
                    }
                })
            })
            .collect();
        let mut pusher = cluster.client(survivors[0]);
        let (mut pushed, mut uncertain) = (Vec::new(), Vec::new());
        for number in 0..200 {
            if number == 100 {
                cluster.kill(leader);
            }
            loop {
                let reply = ask(&mut pusher, &format!("RPUSH q e{number}"));
                if reply.parse::<u64>().is_ok() {
                    pushed.push(number);
                } else if reply.starts_with("-UNKNOWN") {
                    uncertain.push(number);
                } else {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let mut all = Vec::new();
        for taker in takers {
            let taken = taker.join().expect("it has got answers");
            assert!(taken.is_sorted(), "{kind}: each client gets elements in their order: {taken:?}");
            all.extend(taken);
        }
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "{kind}: no element comes twice");
        all.retain(|number| !uncertain.contains(number));
        assert_eq!(all, pushed, "{kind}: every element comes");
        assert_eq!(ask(&mut pusher, "LLEN q"), "0");
    }
}

/// A killed client no longer waits: elements pushed afterwards are for the next one.
#[test]
fn a_disconnected_client_takes_no_elements() {
    let cluster = Cluster::start(3, &KINDS[..1]);
    let until_waiting = |count: u64| {
        until("they wait", || cluster.counter(cluster.leader(), "queue_waiters") == count);
    };
    let mut pusher = cluster.client(2);
    for id in 1..=3 {
        let mut gone = cluster.client(id);
        let number = ask(&mut gone, "CLIENT ID");
        let waits =
            thread::spawn(move || redis::cmd("BLPOP").arg("l").arg(0).query::<redis::Value>(&mut gone));
        until_waiting(1);
        let mut connection = cluster.client(id % 3 + 1);
        let stays = thread::spawn(move || ask(&mut connection, "BLPOP l 30"));
        until_waiting(2);
        assert_eq!(ask(&mut cluster.client(id), &format!("CLIENT KILL ID {number}")), "1");
        assert!(waits.join().expect("a thread").is_err());
        until_waiting(1);
        assert_eq!(ask(&mut pusher, "RPUSH l a"), "1");
        assert_eq!(stays.join().expect("a thread"), "[\"l\", \"a\"]");
    }
}
