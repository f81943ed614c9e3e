//! The control group.

use cluster::control::{CONTROL_GROUP, ClusterMap};
use node::NodeId;

use super::risks::Risks;
use super::{away, majority_survives};
use crate::status::advice::Stopped;
use crate::status::answers::Answers;
use crate::status::standing::{Control, Keyspace, Severity, Standing};
use crate::status::words;

pub(super) fn control(answers: &Answers, map: &ClusterMap, risks: &mut Risks) -> Control {
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
        risks.about("control group").at_risk(
            "no-control-leader",
            format!(
                "no node leads the control group{silent}: leader-follower keyspaces stop, and nothing can be \
                 changed"
            ),
            "normal for a moment; if it lasts, see the links and the logs of these nodes",
        );
    } else if survives == 0 && wanted > 2 {
        risks.about("control group").at_risk(
            "one-failure-away",
            format!("the control group stops with the next failure of one of its members{silent}"),
            Stopped::of(answers, &holders).start_or_replace(),
        );
    }
    control
}

/// A lost majority of the control group is one thing to say, with one thing to do about it: what follows from
/// it is named there, and not beside it.
pub(super) fn fold_lost_majority(
    answers: &Answers,
    map: &ClusterMap,
    standing: &Standing,
    risks: &mut Risks,
) {
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
    risks.about("control group").put(
        if unserved.is_empty() { Severity::AtRisk } else { Severity::CannotServe },
        "majority-lost",
        format!(
            "a majority of the control nodes ({}) is not there: {}; {what}",
            words::list(&group.members),
            stopped.clause()
        ),
        stopped.start_or_recover(),
    );
}
