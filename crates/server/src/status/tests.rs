//! What is judged of clusters that are described by their maps and reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use cluster::control::ClusterMap;
use node::report::{Certificate, CommandFigures, Disk, FollowerHealth, GroupFigures, Link};
use node::{Health, KeyspaceHealth, NodeId, Report};
use serde_json::{Value, json};

use super::standing::{Risk, Severity, Standing};
use super::{Answers, NoAnswer, Refused, Reported, State, judge};

/// The map of a cluster with these keyspaces, each with the nodes that hold it.
pub(super) fn map(nodes: NodeId, control: &[NodeId], keyspaces: &[(&str, &[NodeId])]) -> ClusterMap {
    let node = |id: NodeId| {
        let address = json!({ "id": id, "host": "h", "client_port": id, "http_port": 9, "peer_port": 9 });
        let start = json!({ "identity": 1, "life": 1, "run": 1 });
        (id.to_string(), json!({ "address": address, "start": start, "state": "member", "rejoins": {} }))
    };
    let group = |keyspace: &str, members: &[NodeId]| {
        json!({ "keyspace": keyspace, "shard": 0, "slots": { "first": 0, "last": 16383 }, "members": members,
                "leader": members[0], "epoch": 1, "in_sync": members, "revision": 0, "settled": true })
    };
    let mut groups = serde_json::Map::from_iter([("0".to_owned(), group("", control))]);
    let mut entries = serde_json::Map::new();
    for (at, (settings, members)) in keyspaces.iter().enumerate() {
        let keyspace = node::Keyspace::parse(settings).unwrap();
        groups.insert((at + 1).to_string(), group(&keyspace.prefix, members));
        entries.insert(keyspace.prefix.clone(), json!({ "keyspace": keyspace, "groups": [at + 1] }));
    }
    let nodes: serde_json::Map<String, Value> = (1..=nodes).map(node).collect();
    let next = keyspaces.len() + 1;
    let map = json!({ "version": 7, "level": 2, "nodes": nodes, "keyspaces": entries, "groups": groups, "next_group": next });
    serde_json::from_value(map).unwrap()
}

/// The report of a node of that map which has links to these others, and serves or does not.
pub(super) fn report(map: &ClusterMap, node: NodeId, links: &[NodeId], serves: bool) -> Report {
    let others = map.nodes.keys().filter(|id| **id != node);
    let links: Vec<Value> = others.map(|id| json!({ "node": id, "up": links.contains(id) })).collect();
    let shard = |(prefix, entry): (&String, &cluster::control::KeyspaceEntry)| {
        let group = &map.groups[&entry.groups[0]];
        let leads = group.leader == node && serves;
        let role = if leads { "leader" } else { "follower" };
        group.members.contains(&node).then(|| {
            json!({ "prefix": prefix, "shard": 0, "ready": serves, "writable": leads, "role": role,
                    "leader": if serves { group.leader } else { 0 }, "epoch": 1 })
        })
    };
    let shards: Vec<Value> = map.keyspaces.iter().filter_map(shard).collect();
    let leader = if serves { 1 } else { 0 };
    serde_json::from_value(json!({
        "node": node, "cluster": "c", "version": "1", "release": 2, "ready": serves, "admitted": true,
        "control_leader": leader, "keyspaces": shards, "links": links,
    }))
    .unwrap()
}

/// What is judged if these nodes answer, and the others are down.
pub(super) fn judged(map: &ClusterMap, reports: Vec<Report>) -> Standing {
    let mut answers = Answers::default();
    let places: BTreeMap<NodeId, String> = map.nodes.keys().map(|id| (*id, format!("h:{id}"))).collect();
    for report in reports {
        let address = places[&report.health.node].clone();
        answers.take(address, Ok(Reported { report, map: map.clone(), at: Instant::now() }));
    }
    for (id, place) in &places {
        if !answers.nodes.contains_key(id) {
            answers.take(place.clone(), Err(format!("cannot connect to {place}: Connection refused").into()));
        }
    }
    answers.name_others(&places);
    judge(&answers)
}

/// All fields of a report, with a point between a field and those within it.
fn fields(value: &Value, within: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            let named = object.iter().map(|(name, value)| (format!("{within}.{name}"), value));
            named.for_each(|(name, value)| fields(value, &name, found));
        }
        Value::Array(all) if all.iter().any(Value::is_object) => {
            all.iter().for_each(|value| fields(value, within, found));
        }
        _ => _ = found.insert(within.trim_start_matches('.').to_owned()),
    }
}

/// The fields of a report, by these names to programs of all releases.
const REPORTED: &str = "\
    ready explanation node cluster version release level role epoch offset lag lag_ms map_version control_leader \
    journal_bytes disk_full keyspaces.prefix keyspaces.shard keyspaces.replication keyspaces.acks keyspaces.durability \
    keyspaces.reads keyspaces.ready keyspaces.writable keyspaces.role keyspaces.leader keyspaces.epoch keyspaces.offset \
    keyspaces.applied keyspaces.lag keyspaces.lag_ms keyspaces.explanation keyspaces.followers.node \
    keyspaces.followers.state keyspaces.followers.acked keyspaces.followers.lag keyspaces.followers.lag_ms time_ms \
    uptime_s admitted refusal memory.resident memory.max memory.machine memory.data memory.data_max memory.clients \
    memory.full disk.free disk.size disk.full disk.full_in_s disk.damaged disk.repaired certificate.left_s \
    certificate.unusable clock.off clock.ahead_ms links.node links.up links.release links.silent_ms counters.clients \
    counters.commands counters.errors counters.forwarded counters.calls counters.calls_us counters.client_bytes_in \
    counters.client_bytes_out counters.peer_bytes_in counters.peer_bytes_out groups.group groups.prefix groups.shard \
    groups.keys groups.expires groups.expiring_hashes groups.memory groups.memory_max groups.eviction groups.evicted groups.lookups \
    groups.unknown_writes groups.lost_writes groups.began_empty_ms groups.locks groups.lock_waiters groups.latency \
    commands.name commands.calls commands.failed commands.rejected commands.us commands.latency";

#[test]
fn a_report_keeps_the_names_of_its_fields_and_is_read_without_those_that_an_older_release_lacks() {
    let shard = KeyspaceHealth {
        explanation: "e".to_owned(),
        followers: vec![FollowerHealth::default()],
        ..Default::default()
    };
    let health = Health { explanation: "e".to_owned(), keyspaces: vec![shard], ..Default::default() };
    let report = Report {
        health,
        certificate: Some(Certificate::default()),
        links: vec![Link::default()],
        groups: vec![GroupFigures::default()],
        commands: vec![CommandFigures::default()],
        ..Default::default()
    };
    let written = serde_json::to_value(&report).unwrap();
    let mut found = BTreeSet::new();
    fields(&written, "", &mut found);
    assert_eq!(found, REPORTED.split_whitespace().map(str::to_owned).collect());

    // Without any one of its fields it is read, and is the same with that field's default.
    for name in written.as_object().unwrap().keys() {
        let mut older = written.clone();
        older.as_object_mut().unwrap().remove(name);
        older["a field of a newer release"] = json!([1, { "two": 3 }]);
        let read: Report = serde_json::from_value(older).unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = serde_json::to_value(&read).unwrap();
        let plain = serde_json::to_value(Report::default()).unwrap();
        for (other, value) in written.as_object().unwrap() {
            let expected = if other == name { plain.get(name) } else { Some(value) };
            assert_eq!(again.get(other), expected, "{other} without {name}");
        }
    }
}

fn kinds(standing: &Standing) -> Vec<&'static str> {
    standing.risks.iter().map(|risk| risk.kind).collect()
}

fn risk<'a>(standing: &'a Standing, kind: &str) -> &'a Risk {
    standing.risks.iter().find(|risk| risk.kind == kind).unwrap_or_else(|| panic!("{:#?}", standing.risks))
}

#[test]
fn a_lost_majority_is_one_thing_to_say() {
    let keyspaces: Vec<(String, &[NodeId])> =
        (0..21).map(|at| (format!("prefix=app{at}:"), &[1, 2, 3][..])).collect();
    let mut keyspaces: Vec<(&str, &[NodeId])> =
        keyspaces.iter().map(|(settings, nodes)| (settings.as_str(), *nodes)).collect();
    keyspaces.push(("prefix=lf: replication=leader-follower", &[1, 2, 3]));
    let map = map(3, &[1, 2, 3], &keyspaces);
    let standing = judged(&map, vec![report(&map, 3, &[], false)]);
    assert_eq!((standing.state, kinds(&standing)), (State::CannotServe, vec!["majority-lost"]));
    let Risk { what, action, .. } = risk(&standing, "majority-lost");
    assert_eq!(
        what,
        "a majority of the control nodes (1, 2, 3) is not there: nodes 1, 2 are down; no keyspace is served"
    );
    assert!(action.starts_with("start node 1 or 2: one is enough"), "{action}");
    assert!(action.contains("Only if both disks are lost: docs/guide/recover.md"), "{action}");
    assert!(!action.contains("REPLACE") && !action.contains("replace"), "that needs the majority: {action}");

    // A process that runs, and waits to be admitted, need not be started.
    let mut waits = report(&map, 3, &[], false);
    waits.admitted = false;
    let standing = judged(&map, vec![waits]);
    assert!(risk(&standing, "majority-lost").what.contains("nodes 1, 2 are down"), "{standing:#?}");
}

#[test]
fn what_the_control_group_can_still_do_is_advised() {
    // One of three is down: it may be replaced.
    let three = map(3, &[1, 2, 3], &[("prefix=", &[1, 2, 3])]);
    let standing = judged(&three, vec![report(&three, 1, &[2], true), report(&three, 2, &[1], true)]);
    assert_eq!(standing.state, State::AtRisk);
    assert!(risk(&standing, "node-down").action.contains("quorate node replace 3"), "{standing:#?}");
    assert!(risk(&standing, "one-failure-away").action.contains("quorate node replace 3"));

    // A keyspace of consensus has lost its own majority: nobody can take in a replacement, though nodes change.
    let five = map(5, &[1, 2, 3], &[("prefix=", &[1, 2, 3]), ("prefix=far: replicas=3", &[3, 4, 5])]);
    let reports = (1..=3).map(|id| report(&five, id, &[1, 2, 3], id != 3)).collect();
    let standing = judged(&five, reports);
    let far = risk(&standing, "cannot-serve");
    assert!(
        far.about.contains("far:") && far.action.starts_with("start node 4 or 5: one is enough"),
        "{far:#?}"
    );
    assert!(!far.action.contains("node replace"), "{far:#?}");
    for line in standing.risks.iter().map(|risk| &risk.action) {
        assert!(
            !line.contains("CLUSTER REPLACE") && !line.contains(" id"),
            "nothing is left to fill in: {line}"
        );
    }
}

#[test]
fn a_keyspace_that_lacks_replicas_was_not_configured_so() {
    let keyspaces: [(&str, &[NodeId]); 4] = [
        ("prefix=", &[1, 2]),
        ("prefix=lf: replication=leader-follower replicas=3", &[1, 2]),
        ("prefix=one: replicas=1", &[1]),
        ("prefix=two: replicas=2", &[1, 2]),
    ];
    let kinds_of = |standing: &Standing| {
        let of = |about: &str| {
            let risks = standing.risks.iter().filter(|risk| risk.about == about);
            risks.map(|risk| risk.kind).collect::<Vec<_>>()
        };
        ["keyspace 'default'", "keyspace 'lf:'", "keyspace 'one:'", "keyspace 'two:'", "control group"]
            .map(of)
    };
    let at_risk = vec!["one-failure-away"];
    let so_configured = vec!["no-redundancy"];
    let expected = [&at_risk, &at_risk, &so_configured, &so_configured, &at_risk].map(Clone::clone);

    // Node 3 was replaced, and is not back yet.
    let mut replaced = map(3, &[1, 2], &keyspaces);
    replaced.nodes.get_mut(&3).unwrap().start = Default::default();
    let standing =
        judged(&replaced, vec![report(&replaced, 1, &[2], true), report(&replaced, 2, &[1], true)]);
    assert_eq!(kinds_of(&standing), expected, "{:#?}", standing.risks);
    let Risk { what, action, .. } = risk(&standing, "one-failure-away");
    assert!(what.ends_with("(node 3 is away)"), "{what}");
    for action in [action, &risk(&standing, "node-down").action] {
        assert!(action.starts_with("start node 3 with an empty folder (quorate server"), "{action}");
        assert!(!action.contains("replace"), "that was done: {action}");
    }

    // After a recovery.
    let alone = map(3, &[1], &[("prefix=", &[1])]);
    let standing = judged(&alone, vec![report(&alone, 1, &[], true)]);
    let [default, .., control] = kinds_of(&standing);
    assert_eq!((&default, &control), (&at_risk, &at_risk), "{:#?}", standing.risks);
    let action = &risk(&standing, "one-failure-away").action;
    assert!(action.contains("quorate node replace 2, quorate node replace 3"), "{action}");
}

#[test]
fn a_refusal_is_no_outage() {
    let refused = |refused| Err(NoAnswer { why: "it says no".to_owned(), refused: Some(refused) });
    let silent = || Err(NoAnswer::from("cannot connect"));
    let of = |asked: Vec<Result<Reported, NoAnswer>>| {
        let mut answers = Answers::default();
        asked.into_iter().enumerate().for_each(|(at, heard)| answers.take(format!("h:{at}"), heard));
        judge(&answers)
    };
    for why in [Refused::Password, Refused::NeedsPassword, Refused::Right, Refused::Tls, Refused::Protocol] {
        let standing = of(vec![silent(), refused(why)]);
        assert_eq!((standing.state, standing.unknown), (State::Unknown, Some(why.what())));
        assert_eq!(standing.risks[0].action, why.action());
        assert!(!kinds(&standing).contains(&"unreachable"), "{standing:#?}");
    }
    let standing = of(vec![silent(), silent()]);
    assert_eq!((standing.state, standing.unknown), (State::CannotServe, None));
    assert_eq!(standing.risks[0].kind, "unreachable");

    // Another node answers: then the cluster is judged by that.
    let map = map(1, &[1], &[("prefix=", &[1])]);
    let report = report(&map, 1, &[], true);
    let answers = Reported { report, map, at: Instant::now() };
    let standing = of(vec![Ok(answers), refused(Refused::Password)]);
    assert_eq!((standing.state, risk(&standing, "address").severity), (State::AtRisk, Severity::AtRisk));
}

#[test]
fn a_node_that_refuses_is_not_down() {
    let three = map(3, &[1, 2, 3], &[("prefix=", &[1, 2, 3])]);
    let mut answers = Answers::default();
    let reported = Reported { report: report(&three, 1, &[], false), map: three, at: Instant::now() };
    answers.take("h:1".to_owned(), Ok(reported));
    for address in ["h:2", "h:3"] {
        let why = NoAnswer { why: "WRONGPASS".to_owned(), refused: Some(Refused::Password) };
        answers.take(address.to_owned(), Err(why));
    }
    answers.name_others(&(1..=3).map(|id| (id, format!("h:{id}"))).collect());
    let standing = judge(&answers);
    assert!(
        !kinds(&standing).contains(&"majority-lost") && !kinds(&standing).contains(&"node-down"),
        "{standing:#?}"
    );
    assert_eq!(risk(&standing, "unreachable-from-here").action, Refused::Password.action());
}

#[test]
fn what_is_wrong_soon_is_a_risk_today() {
    const DAY_S: i64 = 24 * 3600;
    let one = map(1, &[1], &[("prefix=", &[1])]);
    let with = |left_s: i64, unusable: bool, full_in_s: Option<u64>| {
        let mut report = report(&one, 1, &[], true);
        report.certificate = Some(Certificate { left_s, unusable });
        report.disk = Disk { free: 60 << 30, size: 99 << 30, full_in_s, ..Default::default() };
        judged(&one, vec![report])
    };
    let kinds = |standing: &Standing| {
        let risky = standing.risks.iter().filter(|risk| risk.severity == Severity::AtRisk);
        risky.map(|risk| risk.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&with(15 * DAY_S, false, None)), [""; 0]);
    let soon = with(3 * DAY_S, false, Some(5 * 3600));
    assert_eq!((soon.state, kinds(&soon)), (State::AtRisk, vec!["disk-fills", "certificate-expires"]));
    assert!(risk(&soon, "disk-fills").what.contains("is full in 5 h 0 min, if it fills as in the last hour"));
    let certificate = risk(&soon, "certificate-expires");
    assert_eq!(certificate.what, "node 1: its certificate expires in 3 d 0 h");
    assert!(certificate.action.starts_with("quorate certs --dir DIR --node 1=h,"), "{certificate:?}");
    assert!(risk(&with(-1, false, None), "certificate-expires").what.contains("has expired"));
    assert_eq!(kinds(&with(99 * DAY_S, true, Some(25 * 3600))), ["certificate-unusable"]);
}

#[test]
fn a_quarantine_is_a_risk_also_if_its_node_is_down() {
    let mut three = map(3, &[1, 2, 3], &[("prefix=", &[1, 2, 3])]);
    let record = cluster::control::FatalRecord { offset: 1045, time: 1 };
    three.quarantine.standing.entry(1).or_default().insert(3, record);
    let standing = judged(&three, vec![report(&three, 1, &[2], true), report(&three, 2, &[1], true)]);
    let quarantine = risk(&standing, "quarantine");
    assert!(quarantine.what.contains("node 3 has stopped before a record"), "{quarantine:?}");
    assert!(quarantine.action.contains("quorate quarantine retry 1"), "{quarantine:?}");
    assert!(quarantine.action.contains("quorate quarantine skip 1 1045"), "{quarantine:?}");
}

#[test]
fn a_keyspace_that_began_again_empty_is_at_risk_for_a_day() {
    const ALL: &[NodeId] = &[1, 2, 3];
    const BEGAN_MS: u64 = 1_000_000;
    let map = map(3, ALL, &[("prefix=", ALL), ("prefix=r: replication=consensus", ALL)]);
    let judged_after = |hours: u64| {
        let of = |node: NodeId| {
            let links: Vec<NodeId> = ALL.iter().copied().filter(|other| *other != node).collect();
            let mut report = report(&map, node, &links, true);
            report.time_ms = BEGAN_MS + hours * 3_600_000;
            // One of its nodes was restarted since, and has forgotten it.
            let began_empty_ms = if node == 3 { 0 } else { BEGAN_MS };
            let figures = json!({ "prefix": "r:", "shard": 0, "began_empty_ms": began_empty_ms });
            report.groups = vec![serde_json::from_value(figures).unwrap()];
            report
        };
        judged(&map, ALL.iter().map(|node| of(*node)).collect())
    };
    let standing = judged_after(3);
    let risk = standing.risks.iter().find(|risk| risk.kind == "began-empty").expect("a risk");
    assert_eq!((standing.state, risk.severity), (State::AtRisk, Severity::AtRisk));
    assert!(risk.what.contains("keyspace 'r:' began again, empty, 3 h 0 min ago"), "{}", risk.what);
    assert_eq!(judged_after(25).state, State::Healthy);
}

#[test]
fn what_to_do_about_a_lost_only_replica_goes_step_by_step() {
    const ALL: &[NodeId] = &[1, 2, 3];
    let mut map = map(3, ALL, &[("prefix=", ALL), ("prefix=one:", &[3])]);
    let action = |map: &ClusterMap, reports| {
        let standing = judged(map, reports);
        let risk =
            standing.risks.iter().find(|risk| risk.about == "keyspace 'one:'" && risk.kind == "cannot-serve");
        risk.expect("it does not serve").action.clone()
    };
    let of = |map: &ClusterMap, node: NodeId, links: &[NodeId]| report(map, node, links, true);
    let down = action(&map, vec![of(&map, 1, &[2]), of(&map, 2, &[1])]);
    assert!(down.starts_with("start node 3 ("), "{down}");
    for line in ["quorate node replace 3 --accept-loss", "quorate keyspace recover one: --accept-loss"] {
        assert!(down.contains(line), "{down}");
    }
    // It is replaced: only its start, with an empty folder, is left, and then the other line.
    map.nodes.get_mut(&3).unwrap().start = Default::default();
    let group = map.groups.get_mut(&2).unwrap();
    (group.epoch, group.settled, group.in_sync) = (2, false, Vec::new());
    let replaced = action(&map, vec![of(&map, 1, &[2]), of(&map, 2, &[1])]);
    assert!(
        replaced.starts_with("start node 3 with an empty folder") && !replaced.contains("replace"),
        "{replaced}"
    );
    assert!(replaced.contains("quorate keyspace recover one: --accept-loss"), "{replaced}");
    // It runs.
    map.nodes.get_mut(&3).unwrap().start.identity = 9;
    let empty = report(&map, 3, &[1, 2], false);
    let runs = action(&map, vec![of(&map, 1, &[2, 3]), of(&map, 2, &[1, 3]), empty]);
    assert!(runs.contains("quorate keyspace recover one: says whether all is lost"), "{runs}");
}
