//! Shards: their replicas, how many more failures they survive, and what brings them back.

use cluster::control::{ClusterMap, Group};
use cluster::words::quoted;
use node::report::FollowerHealth;
use node::{NodeId, Protocol};

use super::risks::Risks;
use super::{away, majority_survives};
use crate::status::advice::{self, Stopped};
use crate::status::answers::Answers;
use crate::status::standing::{Control, Keyspace, Replica, Severity, Shard};
use crate::status::words;

/// A follower whose lag is larger is reported, in milliseconds.
const LAG_MS: u64 = 10_000;

pub(super) fn shard(
    answers: &Answers,
    protocol: Protocol,
    keyspace: &Keyspace,
    (id, group): (u16, &Group),
    control: &Control,
) -> Shard {
    let views: Vec<_> = answers.views(&keyspace.prefix, group.shard).collect();
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

/// How many more failures a group survives, given its number of members, how many of them are `sound`, and
/// how many of the replicas that hold everything acknowledged are `in_sync`.
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

pub(super) fn shard_risks(
    answers: &Answers,
    map: &ClusterMap,
    keyspace: &Keyspace,
    group: &Group,
    (name, shard): (&str, &Shard),
    risks: &mut Risks,
) {
    let protocol = map.protocol(shard.group);
    let holders = map.wanted_holders(shard.group);
    let away = away(answers, &holders);
    let views = || answers.views(&keyspace.prefix, shard.shard);
    // What several nodes say in the same words is shown once.
    let mut explanations: Vec<(&str, Vec<NodeId>)> = Vec::new();
    for (id, view) in views().filter(|(_, view)| !view.ready && !view.explanation.is_empty()) {
        match explanations.iter_mut().find(|(why, _)| *why == view.explanation) {
            Some((_, nodes)) => nodes.push(id),
            None => explanations.push((&view.explanation, vec![id])),
        }
    }
    let unready: Vec<String> =
        explanations.iter().map(|(why, nodes)| format!("{}: {why}", words::nodes(nodes))).collect();
    let reasons = if unready.is_empty() { String::new() } else { format!(" ({})", unready.join("; ")) };
    let mut about = risks.about(name);
    let standing = map.quarantine.standing.get(&shard.group);
    // A node that is down has stopped before its record, too.
    let stopped = standing.and_then(|standing| standing.iter().next()).map(|(id, record)| (*id, *record));
    let quarantined = views().find(|(_, view)| view.role == "quarantined");
    if quarantined.is_some() || stopped.is_some() {
        let (id, why) = match quarantined {
            Some((id, view)) => (id, view.explanation.as_str()),
            None => (stopped.map_or(0, |(id, _)| id), "it does not answer"),
        };
        let record = standing.and_then(|standing| standing.get(&id)).copied();
        about.put(
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
        about.put(Severity::CannotServe, "cannot-serve", what, restoring(answers, protocol, keyspace, shard));
    } else if shard.survives == 0 {
        // A lost node that was replaced, or left behind by a recovery, is no member until it is back.
        let wanted = shard.members.len().max(map.members_wanted(shard.group));
        let by_design = survives(protocol, &keyspace.acks, wanted, wanted, wanted, i64::MAX);
        if by_design > 0 {
            about.at_risk(
                "one-failure-away",
                format!("{name} stops with the next failure of a node that holds it{away}"),
                Stopped::of(answers, &holders).start_or_replace(),
            );
        } else {
            about.note(
                "no-redundancy",
                format!("{name} survives no failure, as configured: {}", words::count(wanted, "replica")),
                "to survive one: three replicas on three nodes, and acks that one follower fewer can give",
            );
        }
    } else if !unready.is_empty() {
        about.at_risk(
            "nodes-disagree",
            format!("{name} is served, but not through every node{reasons}"),
            "send clients to the other nodes; if it lasts, look at the links and logs of those nodes",
        );
    }
    let leaders: Vec<(NodeId, NodeId, u64)> = views()
        .filter(|(_, view)| view.ready && view.leader != 0)
        .map(|(id, view)| (id, view.leader, view.epoch))
        .collect();
    if protocol.has_leader() && leaders.windows(2).any(|pair| pair[0].1 != pair[1].1) {
        let claims =
            leaders.iter().map(|(id, leader, epoch)| format!("node {id} says {leader} (epoch {epoch})"));
        about.at_risk(
            "nodes-disagree",
            format!("{name}: nodes disagree on who leads: {}", claims.collect::<Vec<_>>().join(", ")),
            "normal for a moment after a failover; if it lasts, look at the links between these nodes",
        );
    }
    for replica in shard.replicas.iter().filter(|replica| replica.lag_ms > LAG_MS) {
        if answers.is_alive(replica.node) {
            about.at_risk(
                "behind",
                format!(
                    "{name}: node {} is {} records and {} behind its leader",
                    replica.node,
                    replica.lag_records,
                    words::duration(replica.lag_ms / 1000)
                ),
                "look at its processor, disk and network; it catches up by itself if they allow",
            );
        }
    }
    // Where the only replica is lost, nothing changes by itself.
    if !group.settled && map.waits_alone(shard.group).is_none() {
        about.note(
            "members-change",
            format!("{name} is changing its members: not all of them hold everything yet"),
            "wait",
        );
    }
}

/// What brings back a shard that does not serve.
fn restoring(answers: &Answers, protocol: Protocol, keyspace: &Keyspace, shard: &Shard) -> String {
    let stopped = Stopped::of(answers, &shard.members);
    let recover = format!("quorate keyspace recover {}", quoted(&keyspace.prefix));
    let is_alone = protocol == Protocol::Consensus && shard.members.len() == 1;
    match protocol {
        _ if is_alone && shard.members.iter().all(|id| answers.runs(*id)) => format!(
            "if it does not come back within seconds: {recover} says whether all is lost; then with \
             --accept-loss it begins again, empty. Restore its backup, if there is one"
        ),
        _ if shard.members.iter().all(|id| answers.runs(*id)) && !protocol.has_leader() => format!(
            "if it does not come back within seconds, this shows what is lost, and what to do: {recover}"
        ),
        _ if shard.members.iter().all(|id| answers.runs(*id)) => {
            "if it does not come back within seconds, see the explanation and the nodes' logs".to_owned()
        }
        _ if advice::lacks_majority(answers) => "start the nodes that are down".to_owned(),
        _ if is_alone && answers.is_new(shard.members[0]) => format!(
            "{}, and then {recover} --accept-loss: it begins again, empty. Restore its backup, if there is \
             one",
            advice::start_empty(&shard.members)
        ),
        _ if is_alone => format!(
            "{}. Only if its disk is lost, and the keyspace with it: {} --accept-loss, then start it with \
             an empty folder, and then {recover} --accept-loss",
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
}
