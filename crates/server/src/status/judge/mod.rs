//! What follows from the nodes' answers: which nodes serve what, how many more failures each group survives,
//! and what is at risk.
//!
//! Reading order: [`risks`] (how they are gathered), [`nodes`], [`mod@control`], [`shards`], [`keyspaces`] (what
//! is shown of each, and its risks).

mod control;
mod keyspaces;
mod nodes;
mod risks;
mod shards;

use std::collections::BTreeMap;

use cluster::control::KeyspaceEntry;
use node::NodeId;
use node::report::{Buckets, CommandFigures};

use self::control::{control, fold_lost_majority};
use self::keyspaces::keyspace;
use self::nodes::{node, node_risks};
use self::risks::Risks;
use super::answers::{Answers, Refused, Reported};
use super::standing::{Control, Severity, Standing, State};
use super::words;

/// Derives the state of the cluster from the nodes' answers.
pub fn judge(answers: &Answers) -> Standing {
    let mut risks = Risks::default();
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
        risks.about(address.clone()).put(
            if is_unknown { Severity::Unknown } else { Severity::AtRisk },
            if is_unknown { "refused" } else { "address" },
            format!("{address} cannot be queried: {}", no_answer.why),
            action,
        );
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
        None if nobody_answers => risks.about("cluster").put(
            Severity::CannotServe,
            "unreachable",
            "no node could be queried",
            "give addresses of other nodes with --addr; check whether the nodes run",
        ),
        None => risks.about("cluster").put(
            Severity::CannotServe,
            "not-begun",
            "no node has a cluster map: the cluster has not begun",
            "start all control nodes (the first three nodes, or the first five of a larger cluster)",
        ),
    }
    disagreements(answers, &mut risks);
    standing.risks = risks.sorted();
    standing.state = match standing.risks.first().map(|risk| risk.severity) {
        Some(Severity::CannotServe) => State::CannotServe,
        Some(Severity::Unknown) => State::Unknown,
        Some(Severity::AtRisk) => State::AtRisk,
        Some(Severity::Note) | None => State::Healthy,
    };
    if standing.state == State::Unknown {
        let mut refusals = answers.others.iter().filter_map(|(_, no_answer)| no_answer.refused);
        standing.unknown = refusals.next().map(Refused::what);
    }
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

/// How many more of a group's members may fail while a majority remains.
fn majority_survives(members: usize, left: usize) -> i64 {
    left as i64 - (members / 2 + 1) as i64
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

/// What the nodes that answered report differently, besides who leads.
fn disagreements(answers: &Answers, risks: &mut Risks) {
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
        risks.about("cluster").note(
            "versions-differ",
            format!("nodes run different versions: {versions}"),
            "finish the upgrade",
        );
    }
    if let Some(map) = &answers.map
        && let Some(next) =
            map.nodes.values().map(|node| node.releases.newest).filter(|it| *it > map.level).min()
    {
        let below = map.nodes_below(next);
        let what = match below.is_empty() {
            true => format!("the cluster is at level {}, and all nodes know level {next}", map.level),
            false => format!(
                "the cluster is at level {}, since {} {} not known to have a program of release {next}",
                map.level,
                words::nodes(&below),
                if below.len() == 1 { "is" } else { "are" }
            ),
        };
        let action = match below.is_empty() {
            _ if map.is_level_held => {
                "an operator holds it: redis-cli CLUSTER LEVEL RISE lets it rise, and then there is no way \
                 back"
            }
            true => "normal for a moment: the control leader raises it",
            false => {
                "finish the upgrade, or remove nodes that do not come back; until then every node can go \
                 back to the program that it had"
            }
        };
        risks.about("cluster").note("level-behind", what, action);
    }
    if let Some(maps) = differing("has map", |reported| reported.map.version.to_string()) {
        risks.about("cluster").note(
            "maps-differ",
            format!("nodes have different cluster maps: {maps}"),
            "normal for a moment; if it lasts, the nodes with the older ones are cut off",
        );
    }
}
