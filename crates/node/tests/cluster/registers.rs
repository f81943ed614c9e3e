//! Keyspaces without a leader: any node coordinates, and any majority suffices.

use crate::support::{Cluster, assert_error, setup};

const PROTOCOLS: [&str; 2] = ["prefix=r: replication=abd", "prefix=r: replication=blocking"];

fn each_protocol(nodes: u16, test: impl Fn(&mut Cluster)) {
    for keyspace in PROTOCOLS {
        test(&mut setup(nodes, &[keyspace]).start());
    }
}

#[test]
fn every_node_reads_and_writes() {
    each_protocol(3, |cluster| {
        let clients = [1, 2, 3].map(|node| cluster.client(node));
        assert_eq!(cluster.ask(clients[0], "SET r:a 1"), "OK");
        assert_eq!(cluster.ask(clients[1], "GET r:a"), "\"1\"");
        assert_eq!(cluster.ask(clients[2], "SET r:a 2"), "OK");
        assert_eq!(cluster.ask(clients[1], "GET r:a"), "\"2\"");
        assert_eq!(cluster.ask(clients[1], "MGET r:a r:none"), "[\"2\", nil]");
        assert_eq!(cluster.ask(clients[2], "EXISTS r:a r:none r:a"), "2");
        assert_eq!(cluster.ask(clients[0], "DEL r:a r:none"), "1");
        assert_eq!(cluster.ask(clients[2], "GET r:a"), "nil");
        assert_eq!(cluster.ask(clients[0], "WAIT 1 100"), "1", "a majority of three has it");
    });
}

#[test]
fn a_key_expires_everywhere_at_once() {
    each_protocol(3, |cluster| {
        let clients = [1, 2].map(|node| cluster.client(node));
        assert_eq!(cluster.ask(clients[0], "SET r:a 1 PX 100"), "OK");
        assert_eq!(cluster.ask(clients[1], "TTL r:a"), "0");
        assert_eq!(cluster.ask(clients[1], "SET r:b 1 EX 100"), "OK");
        assert_eq!(cluster.ask(clients[0], "TTL r:b"), "100");
        cluster.turns(200);
        assert_eq!(cluster.ask(clients[1], "GET r:a"), "nil");
        assert_eq!(cluster.ask(clients[1], "TTL r:a"), "-2");
        assert_eq!(cluster.ask(clients[0], "SET r:b 2"), "OK");
        assert_eq!(cluster.ask(clients[1], "TTL r:b"), "-1");
    });
}

#[test]
fn commands_that_read_and_write_in_one_step_are_refused() {
    for (keyspace, protocol) in PROTOCOLS.into_iter().zip(["abd", "blocking"]) {
        let mut cluster = setup(3, &[keyspace]).start();
        let client = cluster.client(2);
        cluster.ask(client, "SET r:a 1");
        for refused in [
            "INCR r:a",
            "SET r:a 2 NX",
            "SET r:a 2 GET",
            "SET r:a 2 KEEPTTL",
            "GETSET r:a 2",
            "GETDEL r:a",
            "APPEND r:a 2",
            "SETRANGE r:a 0 2",
            "EXPIRE r:a 10",
            "PERSIST r:a",
            "MSET r:a 2 r:b 2",
            "RENAME r:a r:b",
            "COPY r:a r:b",
        ] {
            let reply = cluster.ask(client, refused);
            assert_error(&reply, "ERR");
            assert!(reply.contains(" needs ") && reply.contains(protocol), "{refused}: {reply}");
        }
        assert_eq!(cluster.ask(client, "GET r:a"), "\"1\"");
        assert_eq!(cluster.ask(client, "TTL r:a"), "-1");
    }
}

#[test]
fn flushall_is_refused_before_any_keyspace_is_emptied() {
    each_protocol(3, |cluster| {
        let client = cluster.client(1);
        cluster.ask(client, "SET other 1");
        cluster.ask(client, "SET r:a 1");
        let reply = cluster.ask(client, "FLUSHALL");
        assert!(reply.starts_with("-ERR keyspace 'r:'") && reply.contains("nothing was done"), "{reply}");
        assert_eq!(cluster.ask(client, "GET other"), "\"1\"");
        assert_eq!(cluster.ask(client, "DBSIZE"), "2");
        assert_eq!(cluster.ask_for(client, "KEYS *").elements().len(), 2);
        assert_error(&cluster.ask(client, "MGET other r:a"), "CROSSSLOT");
    });
}

#[test]
fn any_majority_serves_and_a_minority_refuses() {
    each_protocol(5, |cluster| {
        let client = cluster.client(3);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        // Other nodes than the first two can fail as well.
        cluster.kill(1);
        cluster.kill(2);
        assert_eq!(cluster.ask(client, "GET r:a"), "\"1\"");
        assert_eq!(cluster.ask(client, "SET r:a 2"), "OK");
        cluster.kill(4);
        for request in ["GET r:a", "SET r:a 3"] {
            let (mut reply, within) = (String::new(), 7000);
            let took = cluster.time(|cluster| reply = cluster.ask(client, request));
            assert!(took < within, "{took} ms");
            assert!(reply.starts_with("-CLUSTERDOWN NOQUORUM") || reply.starts_with("-UNKNOWN"), "{reply}");
        }
        cluster.restart(4);
        // Nodes 1 and 2 may hold what 3 and 5 do not: node 4 cannot be refilled before one of them is back.
        cluster.restart(1);
        cluster.restart(2);
        assert!(cluster.health(3).keyspaces.iter().any(|keyspace| keyspace.prefix == "r:"));
    });
}

#[test]
fn a_node_that_lost_its_memory_is_refilled_before_it_answers() {
    each_protocol(3, |cluster| {
        let clients = [1, 2].map(|node| cluster.client(node));
        for number in 0..50 {
            cluster.ask(clients[0], &format!("SET r:{number} {number}"));
        }
        cluster.kill(3);
        cluster.ask(clients[1], "SET r:7 new");
        cluster.ask(clients[1], "DEL r:8");
        cluster.restart(3);
        cluster.settle();
        // Nothing that only node 1 holds is needed.
        cluster.kill(1);
        let client = cluster.client(3);
        cluster.until("it finds the other one", |cluster| cluster.ask(client, "GET r:7") == "\"new\"");
        assert_eq!(cluster.ask(client, "GET r:8"), "nil");
        for number in 9..50 {
            assert_eq!(cluster.ask(client, &format!("GET r:{number}")), format!("\"{number}\""));
        }
    });
}

#[test]
fn a_pipeline_takes_effect_in_order() {
    each_protocol(3, |cluster| {
        let client = cluster.client(2);
        let replies =
            cluster.pipeline(client, &["SET r:a 1", "GET r:a", "SET r:a 2", "GET r:a", "DEL r:a", "GET r:a"]);
        assert_eq!(replies, ["OK", "\"1\"", "OK", "\"2\"", "1", "nil"]);
    });
}

#[test]
fn a_node_without_a_replica_asks_a_node_with_one() {
    for protocol in ["abd", "blocking"] {
        let keyspace = format!("prefix=r: replication={protocol} replicas=3");
        let mut cluster = setup(5, &[&keyspace]).start();
        let clients = [4, 5].map(|node| cluster.client(node));
        assert_eq!(cluster.ask(clients[0], "SET r:a 1"), "OK");
        assert_eq!(cluster.ask(clients[1], "GET r:a"), "\"1\"");
        cluster.kill(1);
        assert_eq!(cluster.ask(clients[1], "GET r:a"), "\"1\"");
        assert_eq!(cluster.ask(clients[0], "SET r:a 2"), "OK");
        assert_eq!(cluster.ask(clients[1], "GET r:a"), "\"2\"");
        cluster.kill(2);
        cluster.kill(3);
        assert_error(&cluster.ask(clients[0], "GET r:a"), "NOQUORUM");
    }
}

#[test]
fn keyspaces_of_different_protocols_coexist() {
    let keyspaces = [
        "prefix=sess: replication=abd",
        "prefix=lock: replication=blocking retry=none",
        "prefix=cache: replication=leader-follower acks=none leader=2",
        "prefix=gold: replication=leader-follower acks=all leader=3",
    ];
    let mut cluster = setup(3, &keyspaces).start();
    let clients = [1, 2, 3].map(|node| cluster.client(node));
    for (number, client) in clients.into_iter().enumerate() {
        for prefix in ["sess:", "lock:", "cache:", "gold:", ""] {
            assert_eq!(cluster.ask(client, &format!("SET {prefix}{number} {number}")), "OK");
        }
    }
    assert_eq!(cluster.ask(clients[0], "DBSIZE"), "15");
    for (number, client) in clients.into_iter().rev().enumerate() {
        for prefix in ["sess:", "lock:", "cache:", "gold:", ""] {
            assert_eq!(cluster.ask(client, &format!("GET {prefix}{number}")), format!("\"{number}\""));
        }
    }
}

#[test]
fn clients_of_all_nodes_write_one_key_and_all_succeed() {
    for nodes in [3, 5] {
        each_protocol(nodes, |cluster| {
            let clients: Vec<_> = (0..2 * nodes).map(|number| cluster.client(1 + number % nodes)).collect();
            let took = cluster.time(|cluster| {
                for round in 0..50 {
                    for (number, client) in clients.iter().enumerate() {
                        let request = match (number + round) % 4 {
                            0 => "DEL r:a".to_string(),
                            1 => "GET r:a".to_string(),
                            _ => format!("SET r:a {number}-{round}"),
                        };
                        cluster.send(*client, &request);
                    }
                    for client in &clients {
                        let reply = cluster.reply(*client);
                        assert!(!reply.starts_with('-'), "{reply}");
                    }
                }
            });
            assert!(took < 10_000, "{took} ms");
        });
    }
}

/// A machine that lost power leaves its links up for a while.
#[test]
fn a_node_without_a_replica_asks_another_one_when_the_first_gives_no_answer() {
    let mut cluster = setup(5, &["prefix=r: replication=abd replicas=3"]).start();
    let client = cluster.client(4);
    assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
    cluster.pause(1); // Node 4 asks node 1 first.
    assert_error(&cluster.ask(client, "SET r:a 2"), "UNKNOWN");
    assert_eq!(cluster.ask(client, "SET r:a 3"), "OK");
    assert_eq!(cluster.ask(client, "GET r:a"), "\"3\"");
}

#[test]
fn no_client_waits_for_a_lease_after_two_kills_in_a_row() {
    for durability in ["none", "fsync"] {
        let keyspace = format!("prefix=r: replication=blocking durability={durability}");
        let mut cluster = setup(3, &[&keyspace]).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        for node in [2, 3] {
            cluster.kill(node);
            cluster.restart(node);
            cluster.until("it has its memory", |cluster| cluster.keyspace(node, "r:").ready);
        }
        let took = cluster.time(|cluster| assert_eq!(cluster.ask(client, "SET r:a 2"), "OK"));
        assert!(took < 100, "{durability}: {took} ms");

        // Keys that a coordinator had locked when it was killed are free as soon as it has restarted.
        let writer = cluster.client(2);
        cluster.send(writer, "SET r:a 3");
        cluster.turns(2);
        cluster.kill(2);
        cluster.restart(2);
        cluster.until("it has its memory", |cluster| cluster.keyspace(2, "r:").ready);
        let took = cluster.time(|cluster| assert_eq!(cluster.ask(client, "SET r:a 4"), "OK"));
        assert!(took < 500, "{durability}: {took} ms");
    }
}

/// Nodes are restarted one after another, each when the one before is ready. Two restarts too close together would lose what is in
/// memory.
#[test]
fn a_restarted_node_is_ready_when_it_has_its_memory_again() {
    each_protocol(3, |cluster| {
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        cluster.kill(3);
        cluster.restart(3);
        // It needs what both others hold, and they go on without it.
        cluster.break_link(2, 3);
        cluster.until("it serves another keyspace", |cluster| cluster.keyspace(3, "default").ready);
        for _ in 0..15_000 {
            cluster.turn();
            assert!(!cluster.health(3).ready && cluster.health(1).ready);
        }
        assert!(cluster.health(3).explanation.starts_with("a replica here catches up; keyspace 'r:': "));
        cluster.mend_link(2, 3);
        cluster.until("it has its memory", |cluster| cluster.health(3).ready);
        assert!(cluster.keyspace(3, "r:").ready);
    });
}

/// Waits until a node reports that a keyspace cannot serve.
fn until_it_cannot_serve(cluster: &mut Cluster, node: u16) -> String {
    cluster.until("it says so", |cluster| {
        cluster.keyspace(node, "r:").explanation.contains("a majority of its 3 replicas")
    });
    assert!(!cluster.health(node).serves_all());
    cluster.keyspace(node, "r:").explanation
}

#[test]
fn after_a_majority_has_lost_its_memory_all_report_it_and_an_operator_recovers() {
    each_protocol(3, |cluster| {
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        cluster.kill(2);
        cluster.kill(3);
        cluster.restart(2);
        cluster.restart(3);
        for node in [1, 2, 3] {
            let why = until_it_cannot_serve(cluster, node);
            assert!(
                why.contains("nodes 2, 3,") && why.contains("theirs: 1") && why.contains("KEYSPACE RECOVER"),
                "{why}"
            );
            let mut metrics = String::new();
            cluster.node(node).metrics(&mut metrics);
            assert!(metrics.contains("quorate_keyspace_ready{keyspace=\"r:\"} 0"), "{metrics}");
            cluster.until("other keyspaces are served", |cluster| cluster.health(node).ready);
            // It is certain that no majority can return, so no request waits for the deadline.
            let client = cluster.client(node);
            for request in ["GET r:a", "SET r:a 2", "MGET r:a r:b"] {
                let took = cluster.time(|cluster| {
                    let reply = cluster.ask(client, request);
                    assert!(
                        reply.starts_with("-CLUSTERDOWN NOQUORUM") && reply.contains("nodes 2, 3,"),
                        "{reply}"
                    );
                });
                assert!(took < 10, "{took} ms");
            }
        }
        let answer = cluster.ask(client, "KEYSPACE RECOVER r:");
        assert!(answer.contains("nodes [2, 3] have lost their memory, nodes [1] have theirs"), "{answer}");
        assert!(answer.contains("1 keys are on this node") && answer.contains("ACCEPTLOSS"), "{answer}");
        cluster.turns(500);
        assert!(!cluster.keyspace(1, "r:").ready, "nothing is given up before the loss is accepted");
        assert_error(&cluster.ask(client, "KEYSPACE RECOVER r: SOON"), "ERR");
        assert_eq!(cluster.ask(client, "KEYSPACE RECOVER r: ACCEPTLOSS"), "OK");
        cluster.settle();
        for node in [1, 2, 3] {
            let client = cluster.client(node);
            assert_eq!(cluster.ask(client, "GET r:a"), "\"1\"");
            assert_eq!(cluster.ask(client, &format!("SET r:b {node}")), "OK");
        }
        let answer = cluster.ask(client, "KEYSPACE RECOVER r: ACCEPTLOSS");
        assert!(
            answer.starts_with("-ERR") && answer.contains("nothing to give up now: it is served"),
            "{answer}"
        );
        // The loss was accepted for one incarnation: the next one gets back everything that it has lost.
        cluster.kill(3);
        assert_eq!(cluster.ask(client, "SET r:c 1"), "OK");
        cluster.restart(3);
        cluster.settle();
        cluster.kill(1);
        let client = cluster.client(3);
        cluster.until("the others serve", |cluster| cluster.ask(client, "GET r:c") == "\"1\"");
    });
}

/// When the keyspace `r:` began again, empty, as a node reports it; 0: it has not.
fn began_empty_ms(cluster: &mut Cluster, node: u16) -> u64 {
    let client = cluster.client(node);
    let report = cluster.ask(client, "CLUSTER REPORT").replace("\\\"", "\"");
    let mut groups = report.split("\"group\":").skip(1);
    let figures = groups.find(|figures| figures.contains("\"prefix\":\"r:\"")).expect("its figures");
    let number = figures.split("\"began_empty_ms\":").nth(1).and_then(|rest| rest.split(',').next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn a_keyspace_that_began_empty_since_all_nodes_were_restarted_says_when() {
    each_protocol(3, |cluster| {
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        assert_eq!(began_empty_ms(cluster, 1), 0, "a new keyspace has lost nothing");
        cluster.kill(2);
        cluster.restart(2);
        cluster.settle();
        assert_eq!(began_empty_ms(cluster, 2), 0, "it got everything from the others");
        (1..=3).for_each(|node| cluster.kill(node));
        (1..=3).for_each(|node| cluster.restart(node));
        cluster.settle();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "GET r:a"), "nil");
        assert!((1..=3).all(|node| began_empty_ms(cluster, node) > 0));
        assert!(!cluster.ask(client, "KEYSPACE CREATE new: replication=abd").starts_with('-'));
        cluster.settle();
        let report = cluster.ask(client, "CLUSTER REPORT").replace("\\\"", "\"");
        assert_eq!(
            report.matches("\"began_empty_ms\":0,").count(),
            2,
            "the default and the new one: {report}"
        );
    });
}

#[test]
fn a_loss_is_accepted_for_one_incarnation_and_only_after_all_nodes_answered() {
    each_protocol(5, |cluster| {
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        [3, 4, 5].into_iter().for_each(|node| cluster.kill(node));
        [3, 4, 5].into_iter().for_each(|node| cluster.restart(node));
        cluster.until("it stands still", |cluster| {
            cluster.keyspace(1, "r:").explanation.contains("nodes 3, 4, 5, a majority")
        });
        // Node 2 may hold what the others have lost.
        cluster.kill(2);
        cluster.until("it is missed", |cluster| {
            cluster
                .ask(client, "KEYSPACE RECOVER r: ACCEPTLOSS")
                .contains("nodes [2] of keyspace 'r:' are not heard")
        });
        cluster.restart(2);
        cluster.until("it is heard", |cluster| {
            cluster.ask(client, "KEYSPACE RECOVER r:").contains("nodes [2, 3, 4, 5] have lost")
        });
        // Node 2 now runs as another incarnation.
        cluster.until("it is done", |cluster| cluster.ask(client, "KEYSPACE RECOVER r: ACCEPTLOSS") == "OK");
        cluster.settle();
        let client = cluster.client(5);
        assert_eq!(cluster.ask(client, "GET r:a"), "\"1\"");
    });
}

#[test]
fn requests_wait_while_a_majority_may_return_and_are_refused_when_it_cannot() {
    for protocol in ["abd", "blocking"] {
        // The replicas are on nodes 1 to 3; all five nodes know the cluster map.
        let keyspace = format!("prefix=r: replication={protocol} replicas=3");
        let mut cluster = setup(5, &[&keyspace]).start();
        let client = cluster.client(1);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        cluster.kill(2);
        cluster.kill(3);
        cluster.restart(3);
        cluster.until("it is admitted", |cluster| cluster.keyspace(3, "r:").role == "refilling");
        let clients = [1, 3].map(|node| cluster.client(node));
        clients.into_iter().for_each(|client| cluster.send(client, "GET r:a"));
        cluster.turns(1000);
        assert!(
            clients.into_iter().all(|client| cluster.arrived(client).is_none()),
            "node 2 may have its memory"
        );
        let why = cluster.keyspace(1, "r:").explanation;
        assert!(why.contains("not heard: 2") && why.contains("without memory yet: 3"), "{why}");
        cluster.restart(2);
        let took = cluster.time(|cluster| {
            for client in clients {
                let reply = cluster.reply(client);
                assert!(
                    reply.starts_with("-CLUSTERDOWN NOQUORUM") && reply.contains("KEYSPACE RECOVER"),
                    "{reply}"
                );
            }
        });
        assert!(took < 2000, "{took} ms");
    }
}

/// A leader that needs what too many others have lost waits for a node that is away.
#[test]
fn a_leader_reports_that_it_waits_for_a_lost_node_until_that_is_replaced() {
    for acks in ["1", "majority", "none"] {
        let keyspace = format!("prefix=r: replication=leader-follower replicas=3 leader=1 acks={acks}");
        let mut cluster = setup(5, &[&keyspace]).start();
        let client = cluster.client(4);
        assert_eq!(cluster.ask(client, "SET r:a 1"), "OK");
        [1, 2, 3].into_iter().for_each(|node| cluster.kill(node));
        [1, 3].into_iter().for_each(|node| cluster.restart(node));
        let waits = |cluster: &Cluster| {
            [1, 3].into_iter().find(|node| cluster.keyspace(*node, "r:").role == "recovering")
        };
        cluster.until("one is to lead", |cluster| waits(cluster).is_some());
        cluster.turns(3000);
        let leader = waits(&cluster).expect("it waits for node 2");
        let health = cluster.keyspace(leader, "r:");
        assert!(
            !health.ready && health.explanation.contains("no answer of node 2"),
            "{}",
            health.explanation
        );
        assert!(health.explanation.contains("CLUSTER REPLACE"), "{}", health.explanation);
        let recover = cluster.ask(client, "KEYSPACE RECOVER r:");
        assert!(recover.starts_with("-ERR") && recover.contains("CLUSTER REPLACE"), "{recover}");
        let replace = "CLUSTER REPLACE 2 ACCEPTLOSS";
        cluster.until("node 2 may be replaced", |cluster| cluster.ask(client, replace) == "OK");
        cluster.until("it goes on", |cluster| cluster.ask(client, "SET r:a 2") == "OK");
        assert_eq!(cluster.ask(client, "GET r:a"), "\"2\"");
    }
}
