//! Recovery: how an operator goes on with the folders that are left when a majority of the control nodes is lost.
//!
//! A plan is a pure function of the folders' contents ([`Survivor`]): it has what can be kept, what is lost, and the
//! map with which the survivors go on ([`Plan`]). All machines that are given the same survivors make the same plan,
//! to the bit: so each machine can write its own folders. No node runs in the meantime.
//!
//! # What is done
//!
//! * The newest map that any survivor has followed is taken, with a version that no lost node can have reached, and
//!   another [lineage](wire::lineage).
//! * A group that has lost what it needs to go on continues with its most advanced survivor as the only member: the
//!   control group always, a consensus group when a majority is lost, a leader-follower group when acknowledged
//!   writes may be lost. The control group then adds members, as it does for any group that lacks some.
//! * Everything else stays: groups that can go on do so, with their lost members, which an operator removes or
//!   replaces.
//!
//! # Why it is safe
//!
//! *The survivors agree.* A folder that was not part of the recovery has the old lineage. No node of the new lineage
//! exchanges messages with it, or takes a map from it: so the new control group and whatever is left of the old one
//! are two clusters, and no message, vote, lease or map of one counts in the other. The lineage's mark is a digest of
//! all survivors: folders for which different plans were made do not meet either, and a part of a plan's folders can
//! do nothing that the whole could not.
//!
//! *In the new lineage every promise holds* that does not depend on what is lost. A group that goes on as it is has
//! everything that it had except the members that are down. In a group that is left with one survivor, that survivor
//! holds everything that any other survivor knows to be decided (`protocol::consensus`, `recovering`). Other nodes
//! take its state as new members do.
//!
//! *A node whose disk was set back does not count*: what the survivors know of each other's logs is compared here, as
//! the control group does at an admission, and the control group checks it once more at the start.
//!
//! *The old leases* are over: all survivors were stopped. That the lost nodes are down is only the operator's
//! statement. A lost node that still runs, cut off from all survivors, serves its clients from what it has; no node
//! that cannot reach it can exclude this. When it reaches a survivor, it learns that it was left behind, and stops.

mod fate;

pub use fate::{Fate, GroupReport};

use crate::control::{CONTROL_GROUP, ClusterMap, GroupId, Start};
use crate::setting::Protocol;
use protocol::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::lineage::Lineage;

/// By how much the new map's version exceeds that of the newest map that was found. Lost nodes may have had later
/// maps, and the log of a survivor may hold proposals of later ones that it has not adopted: these keep their keys,
/// and an existing version is never replaced (`proposal` in `control/keeper.rs`). So the new version must be beyond
/// all of these. There are at most a few, since each proposal waits for the version before it.
const LEAP: u64 = 1 << 20;

/// The contents of a node's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survivor {
    /// The node.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// The log's own number, the node's identity in the map.
    pub log: u64,
    /// How often the log was opened: the node's last incarnation.
    pub openings: u64,
    /// Where the log ends.
    pub end: u64,
    /// The newest map that the node has followed.
    pub map: ClusterMap,
    /// What its replicas hold, by group. Those of the control group and of keyspaces with records.
    pub stands: BTreeMap<GroupId, Stand>,
    /// What the node knows of other nodes' logs.
    pub heard: BTreeMap<NodeId, Heard>,
}

/// What a replica holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stand {
    /// Comparable: the replica with the greater rank holds more.
    pub rank: [u64; 5],
    /// The members of the replica's configuration, if it knows them.
    pub members: Vec<NodeId>,
    /// Whether the replica holds all that it ever promised to hold, and counts as a member.
    pub is_whole: bool,
    /// How many commands the replica's log holds, or the position of its last record.
    pub commands: u64,
    /// The greatest epoch that the replica knows.
    pub epoch: u64,
}

/// What a control node knows of another node: the start that was admitted last, and up to where its log was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heard {
    /// The start.
    pub start: Start,
    /// The position.
    pub durable: u64,
}

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The lineage that begins.
    pub lineage: Lineage,
    /// The map with which the survivors go on.
    pub map: ClusterMap,
    /// The node that had the newest map, and the version of that.
    pub newest: (NodeId, u64),
    /// The nodes of that map that are not among the survivors.
    pub lost: Vec<NodeId>,
    /// Every group, the control group first.
    pub groups: Vec<GroupReport>,
}

impl Plan {
    /// Makes the plan for these survivors, whatever their order.
    ///
    /// # Errors
    /// If the survivors cannot go on together, a sentence: which folder must be left out, or what else is wrong.
    pub fn new(survivors: &[Survivor]) -> Result<Plan, String> {
        let mut survivors: Vec<&Survivor> = survivors.iter().collect();
        survivors.sort_by_key(|survivor| survivor.node);
        let newest = check(&survivors)?;
        let map = &newest.map;
        let bytes = serde_json::to_vec(&survivors).map_err(|error| error.to_string())?;
        let recoveries = map.lineage.recoveries + 1;
        let lineage = Lineage { recoveries, mark: kv::digest::digest_of(&bytes) };
        let lost = map.nodes.keys().copied().filter(|node| !survivors.iter().any(|it| it.node == *node));
        let lost = lost.collect();
        let groups: Vec<GroupReport> =
            map.groups.keys().map(|id| fate::of_group(map, *id, &survivors)).collect();
        let next = next_map(map, lineage, &groups, &survivors)?;
        Ok(Plan { lineage, map: next, newest: (newest.node, map.version), lost, groups })
    }

    /// Whether no recovery is needed: no group has lost what it needs to go on.
    pub fn is_needless(&self) -> bool {
        self.groups.iter().all(|group| group.survives)
    }

    /// The groups that continue with this node as the only member.
    pub fn alone_at(&self, node: NodeId) -> impl Iterator<Item = GroupId> {
        let is_there = move |group: &&GroupReport| group.fate == Fate::Alone { node };
        self.groups.iter().filter(is_there).map(|group| group.group)
    }
}

/// Checks that the survivors belong together, and that none contradicts what the others know of it. Returns the one
/// with the newest map.
fn check<'a>(survivors: &[&'a Survivor]) -> Result<&'a Survivor, String> {
    let newest = survivors.iter().max_by_key(|it| (it.map.version, it.node)).ok_or("no folder was given")?;
    for pair in survivors.windows(2) {
        if pair[0].node == pair[1].node {
            return Err(format!("node {} is given twice", pair[0].node));
        }
    }
    let map = &newest.map;
    for survivor in survivors {
        let Survivor { node, cluster, .. } = survivor;
        if *cluster != newest.cluster {
            let other = &newest.cluster;
            return Err(format!(
                "node {node} is of cluster '{cluster}', and node {} of '{other}'",
                newest.node
            ));
        }
        if survivor.map.version == 0 {
            return Err(format!("node {node} has never taken part in its cluster: leave it out"));
        }
        if survivor.map.lineage != map.lineage {
            return Err(of_two_lineages(survivors));
        }
        if survivor.map.version == map.version && survivor.map != *map {
            return Err(format!(
                "node {node} and node {} have different maps of version {}: one of these folders is of another cluster",
                newest.node, map.version
            ));
        }
        let Some(known) = map.nodes.get(node) else {
            return Err(format!(
                "node {node} was removed from the cluster, as map {} of node {} says: leave it out",
                map.version, newest.node
            ));
        };
        let is_it = known.start.identity == survivor.log;
        let others = survivors.iter().filter(|other| other.node != *node);
        let heard = others.filter_map(|other| other.heard.get(node));
        let latest = heard.filter(|heard| heard.start.identity == survivor.log);
        let (mut life, mut durable) = (known.start.life, known.start.found);
        for Heard { start, durable: reached } in latest {
            (life, durable) = (life.max(start.life), durable.max(*reached));
        }
        if !is_it {
            return Err(format!(
                "node {node} has other storage than map {} of node {} knows: it was replaced, or its disk was. What it holds \
                 does not count: leave it out",
                map.version, newest.node
            ));
        }
        if survivor.openings < life || survivor.end < durable {
            return Err(format!(
                "the folder of node {node} is an older copy: it was opened {} times and its log ends at {}, and the others \
                 have heard it in its start number {life} with a log up to {durable}. It lacks what it acknowledged since: \
                 leave it out",
                survivor.openings, survivor.end
            ));
        }
    }
    Ok(newest)
}

/// The error for folders of which some are from before a recovery, and others were part of it.
fn of_two_lineages(survivors: &[&Survivor]) -> String {
    let of = |survivor: &&Survivor| format!("node {} is {}", survivor.node, survivor.map.lineage);
    let each: Vec<String> = survivors.iter().map(of).collect();
    format!(
        "these folders are of different histories of the cluster: {}. If a recovery was interrupted, finish it: give the \
         folders that it has not written yet, and for the others the files of facts that it has put beside its copies \
         (--with). Otherwise leave out the folders from before the recovery: they do not count any more",
        each.join(", ")
    )
}

/// The map with which the survivors go on.
fn next_map(
    map: &ClusterMap,
    lineage: Lineage,
    groups: &[GroupReport],
    survivors: &[&Survivor],
) -> Result<ClusterMap, String> {
    let mut next = ClusterMap { lineage, version: map.version + LEAP, ..map.clone() };
    for report in groups {
        let Fate::Alone { node } = report.fate else { continue };
        let known = survivors.iter().filter_map(|it| it.stands.get(&report.group)).map(|stand| stand.epoch);
        let Some(group) = next.groups.get_mut(&report.group) else { continue };
        group.epoch = known.fold(group.epoch, u64::max) + 1;
        if map.protocol(report.group) == Protocol::LeaderFollower {
            group.epoch += 1; // The epoch before is that of the recovery's records.
        }
        if map.protocol(report.group) == Protocol::Consensus && u32::try_from(group.epoch).is_err() {
            return Err(format!("group {} has used up the numbers of its configurations", report.group));
        }
        group.leader = node;
        group.members = vec![node];
        group.in_sync = vec![node];
        group.settled = true;
        group.revision += 1;
        if let Some(node) = next.nodes.get_mut(&node) {
            node.rejoins.remove(&report.group);
        }
    }
    next.check()?;
    match next.groups.get(&CONTROL_GROUP).is_some_and(|control| control.members.len() == 1) {
        true => Ok(next),
        false => Err("no node is left that could hold the cluster's map: all of them were replaced, and have not come back \
                      to it yet"
            .into()),
    }
}

#[cfg(test)]
mod tests;
