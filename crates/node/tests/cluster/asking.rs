//! `CLUSTER ASK`, `CLUSTER EVENTS` and `LOCK.LIST`: what operators learn about all nodes through one.

use crate::support::setup;

#[test]
fn a_node_can_be_asked_through_another_one() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let (client, other) = (cluster.client(1), cluster.client(3));
    cluster.ask(other, "CONFIG SET slowlog-log-slower-than 0");
    cluster.ask(other, "GET seen");
    assert!(cluster.ask(client, "CLUSTER ASK 3 SLOWLOG GET").contains("\"seen\""));
    assert!(!cluster.ask(client, "CLUSTER ASK 1 SLOWLOG GET").contains("\"seen\""), "it is asked itself");
    for id in 1..=3 {
        let report = cluster.ask(client, &format!("CLUSTER ASK {id} CLUSTER REPORT"));
        assert!(
            report.contains(&format!("\"node\\\":{id},")) || report.contains(&format!("\"node\":{id},")),
            "{report}"
        );
    }
    assert_eq!(cluster.ask(client, "SET k v"), "OK", "replies keep their order");
}

#[test]
fn only_commands_that_change_nothing_can_be_asked_of_another_node() {
    let mut cluster = setup(3, &[]).start();
    let client = cluster.client(1);
    for command in [
        "SET k v",
        "FLUSHALL",
        "CONFIG SET maxclients 1",
        "SLOWLOG RESET",
        "CLUSTER ASK 3 INFO",
        "SUBSCRIBE c",
    ] {
        let refused = cluster.ask(client, &format!("CLUSTER ASK 2 {command}"));
        assert!(refused.contains("cannot be asked of another node"), "{command}: {refused}");
    }
    assert!(cluster.ask(client, "CLUSTER ASK 2 NOSUCH").starts_with("-ERR unknown command"));
    assert!(cluster.ask(client, "CLUSTER ASK two INFO").starts_with("-ERR the first argument"));
    assert!(cluster.ask(client, "CLUSTER ASK 9 INFO").starts_with("-ERR there is no node 9"));
}

#[test]
fn asking_an_unreachable_node_is_an_error() {
    let mut cluster = setup(3, &[]).start();
    let client = cluster.client(1);
    cluster.pause(2);
    assert_eq!(cluster.ask(client, "CLUSTER ASK 2 INFO"), "-CLUSTERDOWN node 2 has not answered within 2 s");
    cluster.go_on(2);
    cluster.break_link(1, 3);
    assert_eq!(cluster.ask(client, "CLUSTER ASK 3 INFO"), "-CLUSTERDOWN node 1 has no link to node 3");
    assert!(cluster.ask(client, "CLUSTER ASK 2 INFO server").contains("quorate_version"));
}

#[test]
fn a_client_that_asks_needs_the_rights_for_the_command() {
    let mut cluster = setup(3, &[]).start();
    let (operator, client) = (cluster.client(1), cluster.client(1));
    cluster.ask(operator, "ACL SETUSER reader on nopass -@all +cluster|ask +cluster|report");
    assert_eq!(cluster.ask(client, "AUTH reader any"), "OK");
    assert!(cluster.ask(client, "CLUSTER ASK 2 CLUSTER REPORT").contains("uptime_s"));
    for id in 1..=2 {
        let refused = cluster.ask(client, &format!("CLUSTER ASK {id} SLOWLOG GET"));
        assert!(refused.starts_with("-NOPERM") && refused.contains("slowlog|get"), "{refused}");
    }
}

#[test]
fn a_change_of_leader_is_among_the_events_of_the_new_one() {
    let mut cluster = setup(3, &["prefix= replication=leader-follower acks=majority leader=1"]).start();
    cluster.turns(2500);
    cluster.kill(1);
    cluster.until("another node leads", |cluster| {
        [2, 3].iter().any(|id| cluster.keyspace(*id, "").role == "leader")
    });
    cluster.turns(200);
    let events: Vec<String> = [2, 3]
        .into_iter()
        .map(|id| {
            let client = cluster.client(id);
            cluster.ask(client, "CLUSTER EVENTS").replace('\\', "")
        })
        .collect();
    let of_change: Vec<&String> =
        events.iter().filter(|events| events.contains("\"from\":1,\"to\":")).collect();
    assert_eq!(of_change.len(), 1, "{events:?}");
    assert!(of_change[0].contains("leader in epoch"), "the lines of the log are there, too: {events:?}");
    let begun = [2, 3].map(|id| {
        let mut metrics = String::new();
        cluster.node(id).metrics(&mut metrics);
        let name = "quorate_keyspace_leaderships_total{keyspace=\"default\"} ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.expect("each node has the metric").parse::<u64>().expect("a number")
    });
    assert_eq!(begun.iter().sum::<u64>(), 1, "one of them took over: {begun:?}");
}

#[test]
fn locks_are_listed_with_their_owners_and_waiters() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let (client, waiting) = (cluster.client(1), cluster.client(2));
    assert_eq!(cluster.ask(client, "LOCK.LIST"), "[]");
    cluster.ask(client, "LOCK job ann PX 1000000");
    cluster.send(waiting, "LOCK job bob PX 1000 WAIT 1000000");
    cluster.turns(100);
    let listed = cluster.ask(client, "LOCK.LIST");
    for part in ["\"job\"", "\"ann\"", "\"bob\"", "\"waiters\""] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(cluster.ask(client, "CLUSTER ASK 3 LOCK.LIST COUNT 1").contains("\"ann\""));
    for wrong in ["LOCK.LIST COUNT 0", "LOCK.LIST COUNT many", "LOCK.LIST COUNT 10001"] {
        assert!(cluster.ask(client, wrong).starts_with("-ERR COUNT is a number from 1 to 10000"), "{wrong}");
    }
    assert_eq!(cluster.ask(client, "LOCK.LIST 5"), "-ERR syntax error");
}

#[test]
fn a_report_has_the_times_of_a_keyspaces_commands() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let client = cluster.client(2);
    for _ in 0..3 {
        cluster.ask(client, "SET k v");
    }
    let report = cluster.ask(client, "CLUSTER REPORT").replace('\\', "");
    let report = report.trim_matches('"').to_owned();
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let sum = |buckets: &serde_json::Value| -> u64 {
        buckets.as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap()).sum()
    };
    let group = &report["groups"].as_array().unwrap()[0];
    let set = report["commands"].as_array().unwrap().iter().find(|it| it["name"] == "set").unwrap();
    assert_eq!(
        (sum(&group["latency"]), sum(&set["latency"]), &set["calls"]),
        (3, 3, &3.into()),
        "{report:#}"
    );
    let longest = set["latency"].as_array().unwrap().last().unwrap()[0].as_u64().unwrap();
    assert!((1000..100_000).contains(&longest), "{longest} microseconds");
}

#[test]
fn a_node_tells_its_history_to_others() {
    let mut cluster = setup(3, &["prefix= replication=leader-follower acks=majority leader=1"]).start();
    let client = cluster.client(2);
    for _ in 0..50 {
        assert_eq!(cluster.ask(client, "SET k v"), "OK");
    }
    cluster.turns(3000);
    let other = cluster.client(1);
    let reply = cluster.ask(other, "CLUSTER ASK 2 CLUSTER HISTORY 60").replace('\\', "");
    let history: serde_json::Value = serde_json::from_str(reply.trim_matches('"')).expect(&reply);
    assert_eq!((&history["node"], &history["step_s"]), (&2.into(), &1.into()));
    for of in [&history["whole"], &history["keyspaces"][""]] {
        let rates: Vec<Option<f64>> = serde_json::from_value(of["commands"].clone()).expect("rates");
        let commands: f64 = rates.iter().flatten().sum();
        assert!(rates.len() == 60 && (45.0..=55.0).contains(&commands), "{of}");
        assert_eq!(of["leader"][59], 1, "{of}");
        let times: Vec<Option<u64>> = serde_json::from_value(of["p99_us"].clone()).expect("times");
        assert!(times.iter().flatten().any(|us| *us > 0) && times.contains(&None), "{of}");
    }
    for wrong in ["0", "122881", "-1", "day"] {
        let refused = cluster.ask(client, &format!("CLUSTER HISTORY {wrong}"));
        assert_eq!(refused, "-ERR CLUSTER HISTORY shows the last 1 to 122880 seconds");
    }
}
