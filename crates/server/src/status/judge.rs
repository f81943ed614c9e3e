//! What follows from the nodes' answers: which nodes serve what, how many more failures each group survives, and what
//! is at risk.

use std::collections::BTreeMap;

use cluster::control::{CONTROL_GROUP, ClusterMap, Group, KeyspaceEntry, NodeState, Saved};
use node::report::{Buckets, Certificate, CommandFigures, Disk, FollowerHealth};
use node::{NodeId, Protocol, Report, Setting as _};

use super::advice::{self, Stopped};
use super::answers::{Answers, Refused, Reported};
use super::standing::{
    Backup, Control, Facts, Keyspace, Node, Replica, Risk, Severity, Shard, Standing, State,
};
use super::words;

/// Memory for data is short above this percentage of the limit for data.
const MEMORY_PERCENT: u64 = 90;

/// A keyspace with a bound and without eviction is nearly full above this percentage.
const KEYSPACE_PERCENT: u64 = 90;

/// A disk is short with less than this percentage free, unless the disk is so large that the next constant is free.
const DISK_PERCENT: u64 = 5;
const DISK_PLENTY_BYTES: u64 = 32 << 30;
/// A disk is short with less than this free, however small the disk is: the log's reserve and a few of its files.
const DISK_BYTES: u64 = 512 << 20;

/// A disk that is full within this time, at its present rate, is reported, in seconds.
const DISK_FILLS_S: u64 = 24 * 3600;

/// For how long it is reported that a keyspace has begun again, empty, in seconds. Nothing can be undone, and an operator who
/// looks once a day sees it.
const BEGAN_EMPTY_S: u64 = 24 * 3600;

/// A certificate that expires within this time is reported, in seconds.
const CERTIFICATE_S: u64 = 14 * 24 * 3600;

/// A follower whose lag is larger is reported, in milliseconds.
const LAG_MS: u64 = 10_000;

/// Derives the state of the cluster from the nodes' answers.
pub fn judge(answers: &Answers) -> Standing {
    let mut risks = Vec::new();
    let reported = answers.reports().next().map(|(_, reported)| reported.report.health.cluster.clone());
    let mut standing = Standing {
        state: State::Healthy,
        unknown: None,
        cluster: reported.unwrap_or_default(),
        map_version: answers.map.as_ref().map_or(0, |map| map.version),
        level: answers.map.as_ref().map_or(0, |map| map.level),
        control: Control::default(),
        nodes: answers.nodes.keys().map(|id| node(answers, *id)).collect(),
        keyspaces: Vec::new(),
        commands: commands(answers),
        risks: Vec::new(),
    };
    let nobody_answers = standing.nodes.is_empty();
    for (address, no_answer) in &answers.others {
        let action = match no_answer.refused {
            Some(refused) => refused.action(),
            None => "check whether the address is right, whether the node runs, and what its log says",
        };
        let is_unknown = nobody_answers && no_answer.refused.is_some();
        risks.push(Risk {
            severity: if is_unknown { Severity::Unknown } else { Severity::AtRisk },
            kind: if is_unknown { "refused" } else { "address" },
            about: address.clone(),
            what: format!("{address} cannot be queried: {}", no_answer.why),
            action: action.into(),
        });
    }
    for node in &standing.nodes {
        node_risks(answers, node, &mut risks);
    }
    match &answers.map {
        Some(map) => {
            standing.control = control(answers, map, &mut risks);
            let mut keyspaces: Vec<(&String, &KeyspaceEntry)> = map.keyspaces.iter().collect();
            keyspaces.sort_by_cached_key(|(prefix, _)| words::natural(prefix));
            for (prefix, entry) in keyspaces {
                let keyspace = keyspace(answers, map, (prefix, entry), &standing.control, &mut risks);
                standing.keyspaces.push(keyspace);
            }
            fold_lost_majority(answers, map, &standing, &mut risks);
        }
        None if answers.others.iter().any(|(_, no_answer)| no_answer.refused.is_some()) && nobody_answers => {
        }
        None if nobody_answers => risks.push(Risk {
            severity: Severity::CannotServe,
            kind: "unreachable",
            about: "cluster".into(),
            what: "no node could be queried".into(),
            action: "give addresses of other nodes with --addr; check whether the nodes run".into(),
        }),
        None => risks.push(Risk {
            severity: Severity::CannotServe,
            kind: "not-begun",
            about: "cluster".into(),
            what: "no node has a cluster map: the cluster has not begun".into(),
            action: "start all control nodes (the first three nodes, or the first five of a larger cluster)"
                .into(),
        }),
    }
    disagreements(answers, &mut risks);
    risks.sort_by_key(|risk| std::cmp::Reverse(risk.severity));
    standing.state = match risks.first().map(|risk| risk.severity) {
        Some(Severity::CannotServe) => State::CannotServe,
        Some(Severity::Unknown) => State::Unknown,
        Some(Severity::AtRisk) => State::AtRisk,
        Some(Severity::Note) | None => State::Healthy,
    };
    if standing.state == State::Unknown {
        let mut refusals = answers.others.iter().filter_map(|(_, no_answer)| no_answer.refused);
        standing.unknown = refusals.next().map(Refused::what);
    }
    standing.risks = risks;
    standing
}

/// The commands of all nodes that answered, by name.
fn commands(answers: &Answers) -> Vec<CommandFigures> {
    let mut all: BTreeMap<&str, (CommandFigures, BTreeMap<u64, u64>)> = BTreeMap::new();
    for command in answers.reports().flat_map(|(_, reported)| &reported.report.commands) {
        let (sum, latency) = all.entry(&command.name).or_default();
        sum.calls += command.calls;
        sum.failed += command.failed;
        sum.rejected += command.rejected;
        sum.us += command.us;
        add(latency, &command.latency);
    }
    let named = all.into_iter().map(|(name, (sum, latency))| CommandFigures {
        name: name.to_owned(),
        latency: latency.into_iter().collect(),
        ..sum
    });
    named.collect()
}

/// Adds counted times.
fn add(sum: &mut BTreeMap<u64, u64>, buckets: &Buckets) {
    buckets.iter().for_each(|(us, count)| *sum.entry(*us).or_default() += count);
}

fn node(answers: &Answers, id: NodeId) -> Node {
    let answer = &answers.nodes[&id];
    let entry = answers.map.as_ref().and_then(|map| map.nodes.get(&id));
    let facts = answer.reported.as_ref().ok().map(|reported| {
        let report = reported.report.clone();
        Facts {
            version: report.health.version,
            release: report.health.release,
            ready: report.health.ready,
            admitted: report.admitted,
            uptime_s: report.uptime_s,
            map_version: reported.map.version,
            control_leader: report.health.control_leader,
            memory: report.memory,
            disk: report.disk,
            certificate: report.certificate,
            clock: report.clock,
            links: report.links,
            counters: report.counters,
        }
    });
    Node {
        node: id,
        address: answer.address.clone(),
        reached: facts.is_some(),
        alive: answers.is_alive(id),
        leaving: entry.is_some_and(|entry| entry.state == NodeState::Leaving),
        drained: entry.is_some_and(|entry| entry.is_drained),
        error: answer.reported.as_ref().err().map(|no_answer| no_answer.why.clone()),
        refused: answer.reported.as_ref().err().and_then(|no_answer| no_answer.refused),
        facts,
    }
}

/// How many more of a group's members may fail while a majority remains.
fn majority_survives(members: usize, left: usize) -> i64 {
    left as i64 - (members / 2 + 1) as i64
}

fn control(answers: &Answers, map: &ClusterMap, risks: &mut Vec<Risk>) -> Control {
    let Some(group) = map.groups.get(&CONTROL_GROUP) else { return Control::default() };
    let alive = group.members.iter().filter(|id| answers.is_alive(**id)).count();
    let survives = majority_survives(group.members.len(), alive);
    let leader = answers
        .reports()
        .map(|(_, reported)| reported.report.health.control_leader)
        .find(|leader| *leader != 0);
    let control = Control { leader: leader.unwrap_or(0), members: group.members.clone(), survives };
    let wanted = group.members.len().max(map.members_wanted(CONTROL_GROUP));
    let holders = map.wanted_holders(CONTROL_GROUP);
    let silent = away(answers, &holders);
    if control.leader == 0 || survives < 0 {
        risks.push(Risk {
            severity: Severity::AtRisk,
            kind: "no-control-leader",
            about: "control group".into(),
            what: format!(
                "no node leads the control group{silent}: leader-follower keyspaces stop, and nothing can be changed"
            ),
            action: "normal for a moment; if it lasts, see the links and the logs of these nodes".into(),
        });
    } else if survives == 0 && wanted > 2 {
        risks.push(Risk {
            severity: Severity::AtRisk,
            kind: "one-failure-away",
            about: "control group".into(),
            what: format!("the control group stops with the next failure of one of its members{silent}"),
            action: Stopped::of(answers, &holders).start_or_replace(),
        });
    }
    control
}

/// Which of these nodes are not alive, as a clause; empty if all are.
fn away(answers: &Answers, members: &[NodeId]) -> String {
    let away: Vec<NodeId> = members.iter().copied().filter(|id| !answers.is_alive(*id)).collect();
    match away.as_slice() {
        [] => String::new(),
        [one] => format!(" (node {one} is away)"),
        several => format!(" ({} are away)", words::nodes(several)),
    }
}

fn keyspace(
    answers: &Answers,
    map: &ClusterMap,
    (prefix, entry): (&str, &KeyspaceEntry),
    control: &Control,
    risks: &mut Vec<Risk>,
) -> Keyspace {
    let settings = &entry.keyspace;
    let mut keyspace = Keyspace {
        prefix: prefix.to_owned(),
        promise: String::new(),
        replication: settings.replication.text().to_string(),
        acks: settings.acks.text().to_string(),
        durability: settings.durability().text().to_string(),
        reads: settings.reads.text().to_string(),
        keys: 0,
        memory: 0,
        memory_max: settings.memory_max,
        evicted: 0,
        lookups: 0,
        records: 0,
        unknown_writes: 0,
        lost_writes: 0,
        locks: 0,
        lock_waiters: 0,
        latency: Buckets::new(),
        backup: entry.saved.and_then(|saved| backup(answers, saved)),
        shards: Vec::new(),
    };
    let (mut fullest, mut latency, mut began_empty_ms) = (0, BTreeMap::new(), 0);
    for id in &entry.groups {
        let Some(group) = map.groups.get(id) else { continue };
        let shard = shard(answers, settings.replication, &keyspace, (*id, group), control);
        let figures =
            || answers.reports().filter_map(|(_, reported)| reported.report.figures(prefix, group.shard));
        keyspace.keys += figures().map(|figures| figures.keys).max().unwrap_or(0);
        keyspace.memory += figures().map(|figures| figures.memory).max().unwrap_or(0);
        keyspace.evicted += figures().map(|figures| figures.evicted).max().unwrap_or(0);
        keyspace.lookups += figures().map(|figures| figures.lookups).sum::<u64>();
        keyspace.unknown_writes += figures().map(|figures| figures.unknown_writes).sum::<u64>();
        keyspace.lost_writes += figures().map(|figures| figures.lost_writes).sum::<u64>();
        keyspace.locks += figures().map(|figures| figures.locks).max().unwrap_or(0);
        keyspace.lock_waiters += figures().map(|figures| figures.lock_waiters).max().unwrap_or(0);
        began_empty_ms =
            figures().map(|figures| figures.began_empty_ms).max().unwrap_or(0).max(began_empty_ms);
        figures().for_each(|figures| add(&mut latency, &figures.latency));
        let share = |memory: u64, max: u64| memory.saturating_mul(100).checked_div(max).unwrap_or(0);
        let full = figures().map(|figures| share(figures.memory, figures.memory_max)).max();
        fullest = fullest.max(full.unwrap_or(0));
        if settings.replication.has_leader() {
            let replicas =
                answers.reports().filter_map(|(_, reported)| reported.report.shard(prefix, group.shard));
            keyspace.records += replicas.map(|replica| replica.offset).max().unwrap_or(0);
        }
        let name = match entry.groups.len() {
            1 => format!("keyspace '{}'", keyspace.name()),
            _ => format!("keyspace '{}', shard {}", keyspace.name(), shard.shard),
        };
        shard_risks(answers, map, &keyspace, group, (&name, &shard), risks);
        keyspace.shards.push(shard);
    }
    keyspace.latency = latency.into_iter().collect();
    let most = keyspace.shards.iter().map(|shard| shard.members.len()).max().unwrap_or(0);
    keyspace.promise = words::promise(&keyspace, most);
    backup_risk(&keyspace, risks);
    began_empty_risk(answers, &keyspace, began_empty_ms, risks);
    if settings.eviction.text().to_string() == "none" && fullest >= KEYSPACE_PERCENT {
        let bound = words::bytes(settings.memory_max);
        risks.push(Risk {
            severity: Severity::AtRisk,
            kind: "keyspace-full",
            about: format!("keyspace '{}'", keyspace.name()),
            what: format!(
                "keyspace '{}' has taken {fullest} % of its bound of {bound} in a shard: at 100 % writes are refused with OOM",
                keyspace.name()
            ),
            action: format!(
                "delete keys, or raise the bound: {}, or let keys be evicted (eviction=lru)",
                advice::alter(prefix, &format!("memory_max={}mb", (settings.memory_max >> 19).max(1)))
            ),
        });
    }
    keyspace
}

/// The time that the nodes agree on.
fn now_ms(answers: &Answers) -> Option<u64> {
    answers.reports().map(|(_, reported)| reported.report.time_ms).max().filter(|ms| *ms > 0)
}

/// How old the newest backup of a keyspace is.
fn backup(answers: &Answers, saved: Saved) -> Option<Backup> {
    let now_ms = now_ms(answers)?;
    let age_s = (saved.at_ms > 0).then(|| now_ms.saturating_sub(saved.at_ms) / 1000);
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    Some(Backup { age_s, due_in_s: signed(saved.due_ms).saturating_sub(signed(now_ms)).div_euclid(1000) })
}

fn backup_risk(keyspace: &Keyspace, risks: &mut Vec<Risk>) {
    let Some(backup) = keyspace.backup.as_ref().filter(|backup| backup.due_in_s < 0) else { return };
    let name = format!("keyspace '{}'", keyspace.name());
    let what = match backup.age_s {
        Some(age_s) => format!(
            "the newest backup of {name} shows it as it was {} ago; a newer one is due",
            words::duration(age_s)
        ),
        None => format!("no backup holds {name}: it could not be read when the others were saved"),
    };
    risks.push(Risk {
        severity: Severity::AtRisk,
        kind: "backup-old",
        about: name,
        what,
        action: "look at what should have made it (its log, its exit code), and make one: quorate backup --to PLACE".into(),
    });
}

/// All members of a keyspace in memory were restarted: what it held is gone. `at_ms` is 0 if that has not happened.
fn began_empty_risk(answers: &Answers, keyspace: &Keyspace, at_ms: u64, risks: &mut Vec<Risk>) {
    let ago_s = now_ms(answers).filter(|_| at_ms > 0).map(|now_ms| now_ms.saturating_sub(at_ms) / 1000);
    let Some(ago_s) = ago_s.filter(|ago_s| *ago_s < BEGAN_EMPTY_S) else { return };
    let name = format!("keyspace '{}'", keyspace.name());
    risks.push(Risk {
        severity: Severity::AtRisk,
        kind: "began-empty",
        what: format!(
            "{name} began again, empty, {} ago, after all nodes that held it were restarted: it is kept in memory only \
             (durability = none), and what was acknowledged before is lost",
            words::duration(ago_s)
        ),
        about: name,
        action: "restore its backup, if there is one (quorate restore), or have its users fill it again. A keyspace with \
                 durability = os or fsync keeps its keys. This is shown for a day"
            .into(),
    });
}

fn shard(
    answers: &Answers,
    protocol: Protocol,
    keyspace: &Keyspace,
    (id, group): (u16, &Group),
    control: &Control,
) -> Shard {
    let seen = |report: &Report| report.shard(&keyspace.prefix, group.shard).cloned();
    let views: Vec<_> =
        answers.reports().filter_map(|(id, reported)| Some((id, seen(&reported.report)?))).collect();
    // Of several nodes that claim to lead, the one with the highest epoch leads.
    let leading = views.iter().filter(|(_, view)| view.role == "leader").max_by_key(|(_, view)| view.epoch);
    let followed =
        views.iter().filter(|(_, view)| view.ready).map(|(_, view)| view.leader).find(|id| *id != 0);
    let leader = match leading {
        _ if !protocol.has_leader() => 0,
        Some((id, _)) => *id,
        None => followed.filter(|id| answers.is_alive(*id)).unwrap_or(0),
    };
    let followers: &[FollowerHealth] = leading.map_or(&[], |(_, view)| &view.followers);
    let replica = |node: NodeId| {
        let view = views.iter().find(|(id, _)| *id == node).map(|(_, view)| view);
        let follower = followers.iter().find(|follower| follower.node == node);
        let streams = follower.is_none_or(|follower| follower.state == "streaming");
        let (role, takes_part) = match view {
            Some(view) => {
                let has_all = ["leader", "candidate", "follower", "replica"].contains(&view.role.as_str());
                (view.role.clone(), has_all)
            }
            None if answers.is_alive(node) => ("unasked".to_owned(), true),
            None => ("away".to_owned(), false),
        };
        Replica {
            node,
            role,
            ready: view.is_some_and(|view| view.ready),
            sound: takes_part && streams && answers.is_alive(node),
            lag_records: follower.map_or(0, |follower| follower.lag),
            lag_ms: follower.map_or(0, |follower| follower.lag_ms),
        }
    };
    let replicas: Vec<Replica> = group.members.iter().map(|member| replica(*member)).collect();
    let is_sound = |id: &NodeId| replicas.iter().any(|replica| replica.node == *id && replica.sound);
    let sound = group.members.iter().filter(|id| is_sound(id)).count();
    let in_sync = group.in_sync.iter().filter(|id| is_sound(id)).count();
    Shard {
        group: id,
        shard: group.shard,
        leader,
        epoch: match (leading, protocol) {
            (Some((_, view)), _) => view.epoch,
            // The map knows the leaderships of leader-follower groups only.
            (None, Protocol::Consensus) => views.iter().map(|(_, view)| view.epoch).max().unwrap_or(0),
            (None, _) => group.epoch,
        },
        in_sync: group.in_sync.clone(),
        serves: views.iter().any(|(_, view)| view.ready && (view.role != "leader" || view.writable)),
        survives: survives(protocol, &keyspace.acks, group.members.len(), sound, in_sync, control.survives),
        members: group.members.clone(),
        replicas,
    }
}

/// How many more failures a group survives, given its number of members, how many of them are `sound`, and how many of the
/// replicas that hold everything acknowledged are `in_sync`.
fn survives(
    protocol: Protocol,
    acks: &str,
    members: usize,
    sound: usize,
    in_sync: usize,
    control: i64,
) -> i64 {
    if protocol != Protocol::LeaderFollower {
        return majority_survives(members, sound);
    }
    let followers = match acks {
        "majority" => members / 2,
        // `all` waits for the in-sync replicas, and a failed replica leaves the in-sync set.
        "none" | "all" => 0,
        number => number.parse().unwrap_or(0),
    };
    (in_sync as i64 - 1).min(sound as i64 - 1 - followers as i64).min(control)
}

fn shard_risks(
    answers: &Answers,
    map: &ClusterMap,
    keyspace: &Keyspace,
    group: &Group,
    (name, shard): (&str, &Shard),
    risks: &mut Vec<Risk>,
) {
    let protocol = map.protocol(shard.group);
    let holders = map.wanted_holders(shard.group);
    let away = away(answers, &holders);
    let views = || {
        let view = |(id, reported): (NodeId, &Reported)| {
            Some((id, reported.report.shard(&keyspace.prefix, shard.shard)?.clone()))
        };
        answers.reports().filter_map(view)
    };
    // What several nodes say in the same words is shown once.
    let mut explanations: Vec<(String, Vec<NodeId>)> = Vec::new();
    for (id, view) in views().filter(|(_, view)| !view.ready && !view.explanation.is_empty()) {
        match explanations.iter_mut().find(|(why, _)| *why == view.explanation) {
            Some((_, nodes)) => nodes.push(id),
            None => explanations.push((view.explanation, vec![id])),
        }
    }
    let unready: Vec<String> =
        explanations.iter().map(|(why, nodes)| format!("{}: {why}", words::nodes(nodes))).collect();
    let reasons = if unready.is_empty() { String::new() } else { format!(" ({})", unready.join("; ")) };
    let mut put = |severity, kind, what: String, action: String| {
        risks.push(Risk { severity, kind, about: name.to_owned(), what, action });
    };
    let standing = map.quarantine.standing.get(&shard.group);
    // A node that is down has stopped before its record, too.
    let stopped = standing.and_then(|standing| standing.iter().next()).map(|(id, record)| (*id, *record));
    let quarantined = views().find(|(_, view)| view.role == "quarantined");
    if quarantined.is_some() || stopped.is_some() {
        let (id, why) = match quarantined {
            Some((id, view)) => (id, view.explanation),
            None => (stopped.map_or(0, |(id, _)| id), "it does not answer".to_owned()),
        };
        let record = standing.and_then(|standing| standing.get(&id)).copied();
        put(
            if shard.serves { Severity::AtRisk } else { Severity::CannotServe },
            "quarantine",
            format!("{name}: node {id} has stopped before a record that crashed it: {why}"),
            advice::quarantine(shard.group, record),
        );
    }
    let lacks_leader = protocol.has_leader() && shard.leader == 0;
    if !shard.serves || shard.survives < 0 || lacks_leader {
        let what = match (shard.survives < 0, lacks_leader) {
            (true, _) => format!("{name} does not serve: too few of its replicas are left{away}{reasons}"),
            (false, true) => format!("{name} does not serve: no node leads it{away}{reasons}"),
            (false, false) => format!("{name} does not serve{away}{reasons}"),
        };
        put(Severity::CannotServe, "cannot-serve", what, restoring(answers, protocol, keyspace, shard));
    } else if shard.survives == 0 {
        // A lost node that was replaced, or left behind by a recovery, is no member until it is back.
        let wanted = shard.members.len().max(map.members_wanted(shard.group));
        let by_design = survives(protocol, &keyspace.acks, wanted, wanted, wanted, i64::MAX);
        if by_design > 0 {
            put(
                Severity::AtRisk,
                "one-failure-away",
                format!("{name} stops with the next failure of a node that holds it{away}"),
                Stopped::of(answers, &holders).start_or_replace(),
            );
        } else {
            put(
                Severity::Note,
                "no-redundancy",
                format!("{name} survives no failure, as configured: {}", words::count(wanted, "replica")),
                "to survive one: three replicas on three nodes, and acks that one follower fewer can give"
                    .into(),
            );
        }
    } else if !unready.is_empty() {
        put(
            Severity::AtRisk,
            "nodes-disagree",
            format!("{name} is served, but not through every node{reasons}"),
            "send clients to the other nodes; if it lasts, look at the links and logs of those nodes".into(),
        );
    }
    let leaders: Vec<(NodeId, NodeId, u64)> = views()
        .filter(|(_, view)| view.ready && view.leader != 0)
        .map(|(id, view)| (id, view.leader, view.epoch))
        .collect();
    if protocol.has_leader() && leaders.windows(2).any(|pair| pair[0].1 != pair[1].1) {
        let claims =
            leaders.iter().map(|(id, leader, epoch)| format!("node {id} says {leader} (epoch {epoch})"));
        put(
            Severity::AtRisk,
            "nodes-disagree",
            format!("{name}: nodes disagree on who leads: {}", claims.collect::<Vec<_>>().join(", ")),
            "normal for a moment after a failover; if it lasts, look at the links between these nodes".into(),
        );
    }
    for replica in shard.replicas.iter().filter(|replica| replica.lag_ms > LAG_MS) {
        if answers.is_alive(replica.node) {
            put(
                Severity::AtRisk,
                "behind",
                format!(
                    "{name}: node {} is {} records and {} behind its leader",
                    replica.node,
                    replica.lag_records,
                    words::duration(replica.lag_ms / 1000)
                ),
                "look at its processor, disk and network; it catches up by itself if they allow".into(),
            );
        }
    }
    // Where the only replica is lost, nothing changes by itself.
    if !group.settled && map.waits_alone(shard.group).is_none() {
        put(
            Severity::Note,
            "members-change",
            format!("{name} is changing its members: not all of them hold everything yet"),
            "wait".into(),
        );
    }
}

fn node_risks(answers: &Answers, node: &Node, risks: &mut Vec<Risk>) {
    let id = node.node;
    let mut put = |severity, kind, what: String, action: String| {
        risks.push(Risk { severity, kind, about: format!("node {id}"), what, action });
    };
    let Some(facts) = &node.facts else {
        let (address, error) = (&node.address, node.error.as_deref().unwrap_or_default());
        return match (node.alive, node.refused) {
            (_, Some(refused)) => put(
                Severity::AtRisk,
                "unreachable-from-here",
                format!("node {id} ({address}) refuses to be asked: {error}"),
                refused.action().into(),
            ),
            (true, None) => put(
                Severity::AtRisk,
                "unreachable-from-here",
                format!(
                    "node {id} ({address}) cannot be queried from here: {error}; other nodes have a link to it"
                ),
                "look at the network between here and it, at its password and its number of clients".into(),
            ),
            (false, None) => put(
                Severity::AtRisk,
                "node-down",
                format!("node {id} ({address}) cannot be reached: {error}"),
                match lacks_majority(answers) {
                    true => advice::start(id),
                    false if answers.is_new(id) => advice::start_empty(&[id]),
                    false => advice::start_or_replace(id),
                },
            ),
        };
    };
    if !facts.admitted {
        let refusal = answers.report(id).and_then(|report| report.refusal.clone());
        let (what, action) = match refusal {
            Some(why) => (
                format!("node {id} may not take part: {why}"),
                format!(
                    "do what the sentence says; if its disk is lost, or its folder was left out of a recovery, start it with an \
                     empty folder: {}",
                    advice::replace(id)
                ),
            ),
            None => (
                format!("node {id} has not been admitted by the control group yet"),
                "if it does not pass within seconds, its log says why: no majority of the control nodes, another secret, an \
                 expired certificate"
                    .to_owned(),
            ),
        };
        put(Severity::AtRisk, "not-admitted", what, action);
    }
    if node.leaving {
        put(
            Severity::Note,
            "leaving",
            format!("node {id} is leaving the cluster: its replicas move to other nodes"),
            "wait; its process ends by itself".into(),
        );
    }
    if node.drained {
        put(
            Severity::Note,
            "drained",
            format!("node {id} is drained: it leads nothing that another node can lead"),
            format!("when its maintenance is over: quorate node drain {id} --end"),
        );
    }
    let down: Vec<NodeId> = facts.links.iter().filter(|link| !link.up).map(|link| link.node).collect();
    let cut_off: Vec<NodeId> = down.into_iter().filter(|other| answers.report(*other).is_some()).collect();
    if !cut_off.is_empty() {
        put(
            Severity::AtRisk,
            "link-down",
            format!("node {id} has no link to {}, though they answer", words::nodes(&cut_off)),
            "look at the network and the firewall between their peer ports, and at both logs".into(),
        );
    }
    let memory = &facts.memory;
    if memory.full {
        put(
            Severity::AtRisk,
            "memory-full",
            format!("node {id} has no memory left for data: writes that need some are refused with OOM"),
            "delete keys, bound keyspaces (memory_max, eviction), or raise limits.memory_max".into(),
        );
    } else if memory.data_max > 0 && memory.data > memory.data_max / 100 * MEMORY_PERCENT {
        let (data, max) = (words::bytes(memory.data), words::bytes(memory.data_max));
        put(
            Severity::AtRisk,
            "memory-short",
            format!("node {id} is short of memory: data takes {data} of {max}"),
            "delete keys, bound keyspaces (memory_max, eviction), or raise limits.memory_max".into(),
        );
    }
    let disk = &facts.disk;
    let (free, size) = (words::bytes(disk.free), words::bytes(disk.size));
    if disk.full {
        put(
            Severity::AtRisk,
            "disk-full",
            format!("node {id} has no room on its disk but the reserve ({free} of {size} free)"),
            "free room on that disk, or delete keys; it goes on by itself".into(),
        );
    } else if is_short(disk.free, disk.size) {
        put(
            Severity::AtRisk,
            "disk-short",
            format!("node {id} is short of disk: {free} of {size} free"),
            "free room on that disk before it is full".into(),
        );
    } else if let Some(seconds) = disk.full_in_s.filter(|seconds| *seconds < DISK_FILLS_S) {
        put(
            Severity::AtRisk,
            "disk-fills",
            format!("node {id}: its disk is full in {}, if it fills as in the last hour: {free} of {size} free", words::duration(seconds)),
            "free room on that disk or enlarge it before then; find what grows: quorate top, quorate keyspace list".into(),
        );
    }
    if let Some(certificate) = &facts.certificate {
        certificate_risks(node, certificate, &mut put);
    }
    if disk.damaged > 0 {
        let Disk { damaged, repaired, .. } = disk;
        put(
            Severity::AtRisk,
            "disk-damages",
            format!(
                "node {id}: its disk has damaged {damaged} of its values since its start; {repaired} were fetched from other \
                 replicas"
            ),
            format!("replace the disk, then the node: {}; its log names the values", advice::replace(id)),
        );
    }
    if facts.clock.off {
        put(
            Severity::AtRisk,
            "clock-off",
            format!("node {id}: its machine's clock is {} ms off", facts.clock.ahead_ms),
            "have the machine's clock set (NTP); keys are safe until then".into(),
        );
    }
}

/// Whether a node's certificate has to be replaced.
fn certificate_risks(
    node: &Node,
    certificate: &Certificate,
    put: &mut impl FnMut(Severity, &'static str, String, String),
) {
    let id = node.node;
    let host = node.address.rsplit_once(':').map_or(node.address.as_str(), |(host, _)| host);
    let make = format!(
        "quorate certs --dir DIR --node {id}={}, with DIR of the cluster's authority, the old files moved out of it, and all \
         names of the old one; put the new files in the place of the old ones: they are read without a restart",
        host.trim_start_matches('[').trim_end_matches(']')
    );
    if certificate.unusable {
        let what =
            "cannot be used: it goes on with those that it has read, and does not start again with these";
        let action = format!("its log says why; {make}");
        put(
            Severity::AtRisk,
            "certificate-unusable",
            format!("node {id}: its changed files for TLS {what}"),
            action,
        );
    }
    match u64::try_from(certificate.left_s) {
        Ok(seconds) if seconds >= CERTIFICATE_S => {}
        Ok(seconds) => put(
            Severity::AtRisk,
            "certificate-expires",
            format!("node {id}: its certificate expires in {}", words::duration(seconds)),
            make,
        ),
        Err(_) => put(
            Severity::AtRisk,
            "certificate-expires",
            format!(
                "node {id}: its certificate has expired: clients that check it and other nodes open no new connections"
            ),
            make,
        ),
    }
}

/// Whether a disk is short of room. A disk of unknown size is not.
fn is_short(free: u64, size: u64) -> bool {
    let share = (size / 100 * DISK_PERCENT).min(DISK_PLENTY_BYTES);
    size > 0 && free < share.max(DISK_BYTES)
}

/// Whether the control group has lost its majority: then nothing can be changed, and no node replaced.
fn lacks_majority(answers: &Answers) -> bool {
    let group = answers.map.as_ref().and_then(|map| map.groups.get(&CONTROL_GROUP));
    group.is_some_and(|group| Stopped::of(answers, &group.members).lacks_majority())
}

/// What brings back a shard that does not serve.
fn restoring(answers: &Answers, protocol: Protocol, keyspace: &Keyspace, shard: &Shard) -> String {
    let stopped = Stopped::of(answers, &shard.members);
    let recover = format!("quorate keyspace recover {}", advice::quoted(&keyspace.prefix));
    let is_alone = protocol == Protocol::Consensus && shard.members.len() == 1;
    match protocol {
        _ if is_alone && shard.members.iter().all(|id| answers.runs(*id)) => format!(
            "if it does not come back within seconds: {recover} says whether all is lost; then with --accept-loss it begins again, \
             empty. Restore its backup, if there is one"
        ),
        _ if shard.members.iter().all(|id| answers.runs(*id)) && !protocol.has_leader() => format!(
            "if it does not come back within seconds, this shows what is lost, and what to do: {recover}"
        ),
        _ if shard.members.iter().all(|id| answers.runs(*id)) => {
            "if it does not come back within seconds, see the explanation and the nodes' logs".to_owned()
        }
        _ if lacks_majority(answers) => "start the nodes that are down".to_owned(),
        _ if is_alone && answers.is_new(shard.members[0]) => format!(
            "{}, and then {recover} --accept-loss: it begins again, empty. Restore its backup, if there is one",
            advice::start_empty(&shard.members)
        ),
        _ if is_alone => format!(
            "{}. Only if its disk is lost, and the keyspace with it: {} --accept-loss, then start it with an empty folder, and then \
             {recover} --accept-loss",
            advice::start(shard.members[0]),
            advice::replace(shard.members[0])
        ),
        Protocol::Consensus if stopped.lacks_majority() => stopped.start_or_recover(),
        Protocol::LeaderFollower => {
            format!("{}, with --accept-loss if that is refused", stopped.start_or_replace())
        }
        Protocol::Consensus => stopped.start_or_replace(),
        _ => format!("{}, and then {recover}", stopped.start_or_replace()),
    }
}

/// A lost majority of the control group is one thing to say, with one thing to do about it: what follows from it is named
/// there, and not beside it.
fn fold_lost_majority(answers: &Answers, map: &ClusterMap, standing: &Standing, risks: &mut Vec<Risk>) {
    let Some(group) = map.groups.get(&CONTROL_GROUP) else { return };
    let stopped = Stopped::of(answers, &group.members);
    if !stopped.lacks_majority() {
        return;
    }
    let is_down = |about: &str| {
        let id = about.strip_prefix("node ").and_then(|id| id.parse::<NodeId>().ok());
        id.is_some_and(|id| !answers.runs(id))
    };
    risks.retain(|risk| match risk.kind {
        "no-control-leader" | "cannot-serve" => false,
        "node-down" => !is_down(&risk.about),
        _ => true,
    });
    let is_served =
        |keyspace: &&Keyspace| keyspace.shards.iter().all(|shard| shard.serves && shard.survives >= 0);
    let unserved: Vec<&Keyspace> = standing.keyspaces.iter().filter(|it| !is_served(it)).collect();
    let what = match unserved.len() {
        0 => "all keyspaces are still served, and nothing can be changed".to_owned(),
        all if all == standing.keyspaces.len() => "no keyspace is served".to_owned(),
        _ => format!("not served: {}", words::some(unserved.iter().map(|it| format!("'{}'", it.name())), 8)),
    };
    risks.push(Risk {
        severity: if unserved.is_empty() { Severity::AtRisk } else { Severity::CannotServe },
        kind: "majority-lost",
        about: "control group".into(),
        what: format!(
            "a majority of the control nodes ({}) is not there: {}; {what}",
            words::list(&group.members),
            stopped.clause()
        ),
        action: stopped.start_or_recover(),
    });
}

/// What the nodes that answered report differently, besides who leads.
fn disagreements(answers: &Answers, risks: &mut Vec<Risk>) {
    let differing = |what: &str, of: fn(&Reported) -> String| {
        let all: Vec<(NodeId, String)> = answers.reports().map(|(id, reported)| (id, of(reported))).collect();
        let differ = all.windows(2).any(|pair| pair[0].1 != pair[1].1);
        let each: Vec<String> =
            all.iter().map(|(id, reported)| format!("node {id} {what} {reported}")).collect();
        differ.then(|| each.join(", "))
    };
    if let Some(versions) = differing("runs", |reported| {
        format!("{} (release {})", reported.report.health.version, reported.report.health.release)
    }) {
        risks.push(Risk {
            severity: Severity::Note,
            kind: "versions-differ",
            about: "cluster".into(),
            what: format!("nodes run different versions: {versions}"),
            action: "finish the upgrade".into(),
        });
    }
    if let Some(map) = &answers.map
        && let Some(next) =
            map.nodes.values().map(|node| node.releases.newest).filter(|it| *it > map.level).min()
    {
        let below = map.nodes_below(next);
        risks.push(Risk {
            severity: Severity::Note,
            kind: "level-behind",
            about: "cluster".into(),
            what: match below.is_empty() {
                true => format!("the cluster is at level {}, and all nodes know level {next}", map.level),
                false => format!(
                    "the cluster is at level {}, since {} {} not known to have a program of release {next}",
                    map.level,
                    words::nodes(&below),
                    if below.len() == 1 { "is" } else { "are" }
                ),
            },
            action: match below.is_empty() {
                _ if map.is_level_held => "an operator holds it: redis-cli CLUSTER LEVEL RISE lets it rise, and then there is no way back".into(),
                true => "normal for a moment: the control leader raises it".into(),
                false => "finish the upgrade, or remove nodes that do not come back; until then every node can go back to the \
                          program that it had"
                    .into(),
            },
        });
    }
    if let Some(maps) = differing("has map", |reported| reported.map.version.to_string()) {
        risks.push(Risk {
            severity: Severity::Note,
            kind: "maps-differ",
            about: "cluster".into(),
            what: format!("nodes have different cluster maps: {maps}"),
            action: "normal for a moment; if it lasts, the nodes with the older ones are cut off".into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_survivable_failures_is_counted() {
        use Protocol::{Abd, Consensus, LeaderFollower};
        assert_eq!(survives(Consensus, "majority", 3, 3, 3, 1), 1);
        assert_eq!(survives(Consensus, "majority", 3, 2, 2, 0), 0);
        assert_eq!(survives(Consensus, "majority", 3, 1, 1, -1), -1);
        assert_eq!(survives(Abd, "majority", 5, 4, 0, -1), 1);
        // The last in-sync replica continues, as long as the control group lets it lead.
        assert_eq!(survives(LeaderFollower, "all", 3, 3, 3, 1), 1);
        assert_eq!(survives(LeaderFollower, "none", 5, 5, 5, 2), 2);
        assert_eq!(survives(LeaderFollower, "2", 3, 3, 3, 1), 0);
        assert_eq!(survives(LeaderFollower, "1", 3, 1, 1, 1), -1);
        assert_eq!(survives(LeaderFollower, "none", 3, 3, 1, 1), 0);
    }

    #[test]
    fn a_disk_is_short_by_share_or_by_size() {
        assert!(!is_short(0, 0));
        assert!(is_short(400 << 20, 2 << 30));
        assert!(!is_short(600 << 20, 2 << 30));
        assert!(is_short(4 << 30, 100 << 30));
        assert!(!is_short(40 << 30, 2 << 40));
    }
}
