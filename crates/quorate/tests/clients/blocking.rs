//! Clients of real processes that wait for elements at keys of several shards.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::support::{Cluster, ask};

const KEYS: [&str; 2] = ["a", "b"];

/// Takes elements until there are none for five seconds. Returns them, and how often an outcome was not known.
fn take(mut connection: redis::Connection) -> (Vec<u64>, usize) {
    let (mut taken, mut unknown) = (Vec::new(), 0);
    loop {
        let reply = ask(&mut connection, "BLPOP a b 5");
        match reply.split_once("\"e") {
            Some((_, element)) => {
                let number = element.trim_end_matches("\"]");
                taken.push(number.parse().unwrap_or_else(|_| panic!("no element: {reply}")));
            }
            None if reply == "nil" => return (taken, unknown),
            None if reply.starts_with("-UNKNOWN") => unknown += 1,
            None => {
                assert!(reply.starts_with("-TRYAGAIN") || reply.starts_with("-CLUSTERDOWN"), "{reply}");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Twenty clients wait at keys of two shards, and a thousand elements are pushed on either. Each comes once, also while a leader is
/// killed: what is missing then was taken by a client that was told that its outcome is not known.
#[test]
fn each_element_pushed_in_two_shards_goes_to_one_client() {
    for kills in [false, true] {
        let mut cluster = Cluster::start(3, &["prefix= replication=consensus shards=4"]);
        let leader = cluster.leader();
        let survivors: Vec<u16> = (1..=3).filter(|id| *id != leader).collect();
        let takers: Vec<_> = (0..20)
            .map(|index| {
                let connection = cluster.client(survivors[index % 2]);
                thread::spawn(move || take(connection))
            })
            .collect();
        let mut pusher = cluster.client(survivors[0]);
        let mut pushed: BTreeMap<u64, bool> = BTreeMap::new();
        for number in 0..1000 {
            if number == 500 && kills {
                cluster.kill(leader);
            }
            loop {
                let key = KEYS[number as usize % 2];
                let reply = ask(&mut pusher, &format!("RPUSH {key} e{number}"));
                if reply.parse::<u64>().is_err() && !reply.starts_with("-UNKNOWN") {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
                pushed.insert(number, reply.starts_with("-UNKNOWN"));
                break;
            }
        }
        let (mut taken, mut unknown) = (Vec::new(), 0);
        for taker in takers {
            let (own, own_unknown) = taker.join().expect("it has got answers");
            taken.extend(own);
            unknown += own_unknown;
        }
        taken.sort_unstable();
        let count = taken.len();
        taken.dedup();
        assert_eq!(taken.len(), count, "no element comes twice");
        assert!(kills || unknown == 0, "nothing has failed");
        let is_missing =
            |(number, is_uncertain): &(u64, bool)| !is_uncertain && taken.binary_search(number).is_err();
        let missing = pushed.into_iter().filter(is_missing).count();
        assert!(missing <= unknown, "{missing} elements are missing, and {unknown} outcomes are not known");
        for key in KEYS {
            assert_eq!(ask(&mut pusher, &format!("LLEN {key}")), "0");
        }
        let has_begun = !ask(&mut pusher, "INFO stats").contains("transactions_begun:0");
        assert!(has_begun, "the keys are in two shards");
    }
}
