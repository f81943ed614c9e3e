//! Keyspaces without a leader, in memory only, whose nodes are killed.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::started::{Restarted, Started};
use super::support::until;

const KEYSPACES: [&str; 2] = ["prefix=a: replication=abd", "prefix=b: replication=blocking"];

fn keyspace(started: &Started, node: u16, prefix: &str) -> Value {
    let health = started.health(node);
    let mut keyspaces = health["keyspaces"].as_array().into_iter().flatten();
    keyspaces.find(|keyspace| keyspace["prefix"] == prefix).cloned().unwrap_or_default()
}

fn restart(started: &Started, node: u16) -> Restarted {
    started.kill(node);
    started.start_again(node)
}

/// Returns the whole reply to a command that answers with an array of texts.
fn reply_to(started: &Started, node: u16, command: &str) -> String {
    let mut client = started.cluster.client(node);
    let head = client.ask(command);
    let Some(lines) = head.strip_prefix('*') else { return head };
    let lines: u32 = lines.parse().unwrap();
    (0..2 * lines).map(|_| client.line()).collect::<Vec<_>>().join("\n")
}

#[test]
fn writes_wait_for_no_lease_and_a_lost_majority_is_reported_until_it_is_given_up() {
    let started = Started::new(3, &KEYSPACES);
    for prefix in ["a:", "b:"] {
        assert_eq!(started.ask(1, &format!("SET {prefix}k 1")), "+OK");
    }
    // Two kills close together, well within the lease of a lock: five seconds.
    let mut nodes = vec![restart(&started, 2)];
    nodes.push(restart(&started, 3));
    let begun = Instant::now();
    assert_eq!(started.ask(1, "SET b:k 2"), "+OK");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");

    // Both at once: data that only these two held is lost.
    nodes.clear();
    nodes.extend([2, 3].map(|node| started.spawn(node)));
    for node in [1, 2, 3] {
        for prefix in ["a:", "b:"] {
            until("it says that it stands still", || {
                let why = keyspace(&started, node, prefix)["explanation"].as_str().unwrap_or("").to_string();
                why.contains("nodes 2, 3, a majority") && why.contains("KEYSPACE RECOVER")
            });
            assert!(!started.is_ready(node));
            let begun = Instant::now();
            let reply = started.ask(node, &format!("GET {prefix}k"));
            assert!(reply.starts_with("-CLUSTERDOWN NOQUORUM nodes 2, 3, a majority"), "{reply}");
            assert!(
                begun.elapsed() < Duration::from_secs(3),
                "it is certain, so no request waits for the deadline"
            );
        }
    }
    until("the log says so", || {
        started.log(1).contains("keyspace 'a:': nodes [2, 3] have lost their memory")
    });
    for prefix in ["a:", "b:"] {
        let lost = reply_to(&started, 1, &format!("KEYSPACE RECOVER {prefix}"));
        assert!(lost.contains("nodes [2, 3] have lost their memory, nodes [1] have theirs"), "{lost}");
        assert_eq!(started.ask(1, &format!("KEYSPACE RECOVER {prefix} ACCEPTLOSS")), "+OK");
    }
    for node in [1, 2, 3] {
        until("it serves", || started.is_ready(node));
        assert_eq!(started.ask(node, "GET a:k"), "$1", "what node 1 holds is there");
        assert_eq!(started.ask(node, "SET b:k 3"), "+OK");
    }
    until("it is logged", || started.log(2).contains("is given up, as an operator decided"));
}
