//! The fate of a group in a recovery: it follows from the members that are left, and from what each protocol
//! promises.

use super::{Stand, Survivor};
use crate::control::{CONTROL_GROUP, ClusterMap, Group, GroupId, Rejoin};
use crate::setting::Protocol;
use protocol::NodeId;
use protocol::leader_follower::Acks;
use serde::Serialize;

/// How a group continues after a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fate")]
pub enum Fate {
    /// The group goes on with the members that are left: nothing is lost.
    GoesOn,
    /// The survivor that holds most goes on as the only member. Other nodes get their copies from it.
    Alone {
        /// That survivor.
        node: NodeId,
    },
    /// A group of registers that serves nothing until an operator gives up what its lost members held.
    StandsStill,
    /// Nothing usable is left of the group.
    Lost,
}

/// A group and its fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupReport {
    /// The group.
    pub group: GroupId,
    /// The prefix of its keyspace.
    pub keyspace: String,
    /// The shard's number.
    pub shard: u16,
    /// Its members.
    pub members: Vec<NodeId>,
    /// The members that are left.
    pub left: Vec<NodeId>,
    /// Whether what is left is enough for the group to go on, with all that was acknowledged.
    pub survives: bool,
    /// How many commands the most advanced member that is left holds.
    pub commands: u64,
    /// The group's fate.
    #[serde(flatten)]
    pub fate: Fate,
    /// What that means for acknowledged writes, as a sentence.
    pub loss: String,
}

/// What is left of a group: the members whose folders were found, with what they hold.
struct Left<'a> {
    members: Vec<(NodeId, Option<&'a Stand>)>,
}

impl<'a> Left<'a> {
    fn of(map: &ClusterMap, id: GroupId, survivors: &[&'a Survivor]) -> Left<'a> {
        let lost_it = |node: NodeId| {
            map.nodes.get(&node).is_some_and(|known| known.rejoins.get(&id) == Some(&Rejoin::Leave))
        };
        let left = survivors.iter().filter(|survivor| !lost_it(survivor.node));
        Left { members: left.map(|survivor| (survivor.node, survivor.stands.get(&id))).collect() }
    }

    /// The member that holds most, of those that count.
    fn best(&self, may_be: impl Fn(NodeId) -> bool) -> Option<(NodeId, &'a Stand)> {
        let whole = |(node, stand): &(NodeId, Option<&'a Stand>)| Some((*node, (*stand)?));
        let whole =
            self.members.iter().filter_map(whole).filter(|(node, stand)| stand.is_whole && may_be(*node));
        // Of equal members the first, on every machine.
        whole.max_by_key(|(node, stand)| (stand.rank, std::cmp::Reverse(*node)))
    }

    fn among(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        self.members.iter().map(|(node, _)| *node).filter(|node| nodes.contains(node)).collect()
    }

    /// How many of these nodes count: they hold what they promised to hold.
    fn whole_among(&self, nodes: &[NodeId]) -> usize {
        let is_whole = |stand: Option<&Stand>| stand.is_some_and(|stand| stand.is_whole);
        self.members.iter().filter(|(node, stand)| nodes.contains(node) && is_whole(*stand)).count()
    }
}

fn is_majority(some: usize, all: usize) -> bool {
    2 * some > all
}

/// The fate of a group of this map.
pub(super) fn of_group(map: &ClusterMap, id: GroupId, survivors: &[&Survivor]) -> GroupReport {
    let group = &map.groups[&id];
    let left = Left::of(map, id, survivors);
    let (survives, fate, loss) = match map.protocol(id) {
        Protocol::Consensus => of_consensus(map, id, group, &left),
        Protocol::LeaderFollower => of_leader_follower(map, id, group, &left),
        Protocol::Abd | Protocol::Blocking => of_registers(map, id, group, &left),
    };
    let best = match fate {
        Fate::Alone { node } => left.best(|it| it == node),
        _ => left.best(|_| true),
    };
    GroupReport {
        group: id,
        keyspace: group.keyspace.clone(),
        shard: group.shard,
        members: group.members.clone(),
        left: left.among(&group.members),
        survives,
        commands: best.map_or(0, |(_, stand)| stand.commands),
        fate,
        loss,
    }
}

const NOTHING_LOST: &str = "nothing is lost";

/// A majority of the configuration in force must be left, and one of the configuration that the map wants.
fn of_consensus(map: &ClusterMap, id: GroupId, group: &Group, left: &Left<'_>) -> (bool, Fate, String) {
    let best = left.best(|_| true);
    let wanted = left.among(&group.members);
    let has_majority = match best {
        Some((_, stand)) => {
            is_majority(left.whole_among(&stand.members), stand.members.len())
                && is_majority(wanted.len(), group.members.len())
        }
        // A keyspace that was just created: its members begin it when they start.
        None => group.epoch == 1 && is_majority(wanted.len(), group.members.len()),
    };
    if id == CONTROL_GROUP {
        // The control group is always left with one member: so that member has the new map, and the new control group
        // cannot meet what is left of the old one.
        let loss = match has_majority {
            true => NOTHING_LOST.to_owned(),
            false => format!(
                "changes of the map after version {} that no survivor heard of: keyspaces and users made, nodes added or \
                 removed, and which replicas are in sync",
                map.version
            ),
        };
        let any = || left.members.first().map(|(node, _)| *node);
        return match best.map(|(node, _)| node).or_else(any) {
            Some(node) => (has_majority, Fate::Alone { node }, loss),
            None => (false, Fate::Lost, loss),
        };
    }
    if has_majority {
        return (true, Fate::GoesOn, NOTHING_LOST.into());
    }
    let is_coded = map.keyspaces.get(&group.keyspace).is_some_and(|entry| entry.keyspace.coding().is_some());
    match best {
        None => (false, Fate::Lost, "all of it: no folder that is left holds it".into()),
        Some(_) if is_coded => {
            let loss = "all of it: its long values are in fragments, of which too few are left, and this version cannot tell \
                        which keys could be kept";
            (false, Fate::Lost, loss.into())
        }
        Some((node, stand)) => {
            let what = format!(
                "a majority of its replicas is lost, so the latest acknowledged writes may be; node {node} holds {} commands, \
                 more than any other that is left",
                stand.commands
            );
            (false, Fate::Alone { node }, what)
        }
    }
}

/// `acks` determines which members hold the acknowledged writes. A leader that cannot be replaced must be left, too.
fn of_leader_follower(map: &ClusterMap, id: GroupId, group: &Group, left: &Left<'_>) -> (bool, Fate, String) {
    let (acks, members) = (map.acks(id), group.members.len());
    let there = left.among(&group.members);
    let Some(first) = there.iter().find(|node| group.in_sync.contains(node)).or(there.first()) else {
        return (false, Fate::Lost, "all of it: no folder that is left holds it".into());
    };
    let keeps_records = map.keeps_records(id);
    if !keeps_records {
        let loss =
            "all of it, as with every stop of all nodes: it is kept in memory only (durability = none)";
        // If all members are left, they find out by themselves that none of them has any records.
        return match there.len() == members {
            true => (true, Fate::GoesOn, loss.into()),
            false => (false, Fate::Alone { node: *first }, loss.into()),
        };
    }
    let whole = left.whole_among(&group.members);
    let lost = members - whole;
    let holds_all = match acks {
        Acks::All => left.whole_among(&group.in_sync) > 0,
        Acks::None => whole > 0,
        Acks::Count(count) => lost <= usize::from(count),
        Acks::Majority => lost <= (members - 1) / 2,
    };
    let is_led = group.settled || there.contains(&group.leader);
    if holds_all && is_led {
        let loss = match acks {
            Acks::None => "writes that only the leader had, as at every failover (acks = none)",
            _ => NOTHING_LOST,
        };
        return (true, Fate::GoesOn, loss.into());
    }
    // Under `all` the map names the members that hold everything; otherwise the member that holds most is taken.
    let may_be = |node: NodeId| group.members.contains(&node);
    let in_sync = left.best(|node| may_be(node) && acks == Acks::All && group.in_sync.contains(&node));
    match in_sync.or_else(|| left.best(may_be)) {
        None => {
            let loss = "all of it: no member that is left holds all that it once held";
            (false, Fate::Alone { node: *first }, loss.into())
        }
        Some((node, stand)) => {
            let loss = match holds_all {
                true => format!("nothing that was acknowledged: node {node} holds it"),
                false => format!(
                    "the latest acknowledged writes may be: too few are left of those that acknowledged them; node {node} \
                     holds {} records",
                    stand.commands
                ),
            };
            (false, Fate::Alone { node }, loss)
        }
    }
}

/// A majority must be left, with its memory.
fn of_registers(map: &ClusterMap, id: GroupId, group: &Group, left: &Left<'_>) -> (bool, Fate, String) {
    let there = left.among(&group.members);
    let keeps_records = map.keeps_records(id);
    let stands_still = |loss: &str| (false, Fate::StandsStill, loss.to_owned());
    match (keeps_records, is_majority(there.len(), group.members.len()), there.is_empty()) {
        (true, true, _) => (true, Fate::GoesOn, NOTHING_LOST.into()),
        (true, false, false) => stands_still(
            "a majority of its replicas is lost, so acknowledged writes may be: it goes on with what the others hold when you \
             have given up the lost ones",
        ),
        (false, _, false) => stands_still(
            "all of it, as with every stop of all nodes: it is kept in memory only (durability = none)",
        ),
        (_, _, true) => (false, Fate::Lost, "all of it: no folder that is left holds it".into()),
    }
}
