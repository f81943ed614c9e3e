//! The cluster map: nodes, keyspaces, groups and their members. Plain data.

use super::refusal::Refusal;
use crate::configuration::NodeAddress;
use crate::keyspace::Keyspace;
use crate::libraries::Libraries;
use crate::setting::Protocol;
use crate::slots::SLOTS;
use commands::users::Rules;
use protocol::leader_follower::Acks;
use protocol::registers::Replacement;
use protocol::{Configuration, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::lineage::Lineage;
use wire::release::{RELEASES, Release, Releases};

/// A group's number. No number is ever used twice.
pub type GroupId = u16;

/// The group that holds the map itself.
pub const CONTROL_GROUP: GroupId = 0;

/// The group number of the map's own records in the node's log.
pub const MAP_GROUP: u16 = u16::MAX;

/// The most bytes of an encoded map.
pub const MAP_BYTES_MAX: usize = 16 << 20;

/// The state of the cluster. Only [`ClusterMap::apply`] makes a new one from an old one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterMap {
    /// Grows by one with each committed map. The first one has 1.
    pub version: u64,
    /// The release whose messages, records and settings the cluster may use. It never falls. See `level`.
    #[serde(default = "first_level")]
    pub level: Release,
    /// The cluster's history that this map belongs to: each recovery begins another one. A node never takes a map of
    /// another lineage.
    #[serde(default, skip_serializing_if = "Lineage::is_original")]
    pub lineage: Lineage,
    /// Whether an operator holds the level where it is, so that nodes can go back to an older program. From level 2
    /// on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_level_held: bool,
    /// The nodes, by their numbers.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The keyspaces, by their prefixes.
    pub keyspaces: BTreeMap<String, KeyspaceEntry>,
    /// The groups, the control group among them.
    pub groups: BTreeMap<GroupId, Group>,
    /// Records that crash the process that executes them.
    #[serde(default, skip_serializing_if = "Quarantine::is_empty")]
    pub quarantine: Quarantine,
    /// The libraries of functions, by their names.
    #[serde(default, skip_serializing_if = "Libraries::is_empty")]
    pub libraries: Libraries,
    /// The users' rules, by their names.
    #[serde(default, skip_serializing_if = "Rules::is_empty")]
    pub users: Rules,
    /// The number of the next group. Greater than any group number when all are used up.
    pub next_group: u32,
}

/// One start of a node: its storage, how often that was opened, and by which process. A node whose start is not a
/// later one of the same storage may have forgotten what it promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Drawn at random when the storage was first used. 0: the node has never started.
    pub identity: u64,
    /// The incarnation: how often the storage was opened, this time included.
    pub life: u64,
    /// Drawn at random at each start. A copy of the storage that is one incarnation older is opened in the same
    /// incarnation as the process that was registered last; this tells the two apart.
    pub run: u64,
    /// Where the storage's log ended when it was opened. For consecutive starts that were not admitted, it is the end
    /// that the first of them found. A later start must not find less: see `positions`.
    #[serde(default)]
    pub found: u64,
}

/// The cluster's entry for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The node's number and network address.
    pub address: NodeAddress,
    /// The newest start that was accepted.
    pub start: Start,
    /// What the program of that start understands. Empty if the node has not started, or was started with a program
    /// from before the first release.
    #[serde(default)]
    pub releases: Releases,
    /// Whether the node stays in the cluster.
    pub state: NodeState,
    /// Whether the node is to lead nothing, by an operator's decision. From level 2 on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_drained: bool,
    /// Groups that the node must leave and enter again as a new member, or whose replicas it must rebuild, since it
    /// lost its storage.
    pub rejoins: BTreeMap<GroupId, Rejoin>,
}

/// Whether a node stays in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// The node stays.
    Member,
    /// The node leaves: its replicas are moved to other nodes, and it is removed with the last of them.
    Leaving,
}

/// What remains to be done for a replica that has lost its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rejoin {
    /// The node still counts as the member that it was. It must not take part.
    Leave,
    /// The node was removed from the group, and will be added again.
    Join,
    /// The node stays the member that it is, as in all groups of registers, but what it had recorded does not count.
    Refill {
        /// The node's first incarnation with its present storage; 0: it has not started since.
        since: u64,
        /// How many incarnations the node had with other storage.
        lives_before: u64,
        /// Whether an operator gave up what the node held, so that its group need not wait for it.
        accepts_loss: bool,
    },
}

impl Rejoin {
    /// What a replica of registers needs to know at each start.
    pub fn replacement(&self) -> Option<Replacement> {
        match *self {
            Rejoin::Refill { since, lives_before, accepts_loss } => {
                Some(Replacement { since, lives_before, accepts_loss })
            }
            Rejoin::Leave | Rejoin::Join => None,
        }
    }
}

/// A keyspace and its groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyspaceEntry {
    /// Its settings.
    pub keyspace: Keyspace,
    /// Its shards' groups, in the order of the shards.
    pub groups: Vec<GroupId>,
    /// Registers: the version of the newest map that took keys from it. 0: none did. From level 2 on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub floor: u64,
    /// What the newest backup holds of it, as `quorate backup` has said. From level 2 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
}

/// What a backup holds of a keyspace. Times are in milliseconds since the Unix epoch, by the cluster's agreed clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The moment that it shows. 0: a backup was made, and none holds the keyspace, since it could not be read.
    pub at_ms: u64,
    /// When a newer one should be there.
    pub due_ms: u64,
}

/// A range of hash slots, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
}

impl Slots {
    /// The slots of shard number `shard` out of `shards`.
    pub fn of_shard(shard: u16, shards: u16) -> Slots {
        let from = |shard: u32| (shard * u32::from(SLOTS) / u32::from(shards)) as u16;
        Slots { first: from(u32::from(shard)), last: from(u32::from(shard) + 1) - 1 }
    }
}

/// The replicas of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The prefix of its keyspace. Empty for the control group, which has none.
    pub keyspace: String,
    /// The shard's number within the keyspace.
    pub shard: u16,
    /// The shard's hash slots.
    pub slots: Slots,
    /// The nodes that hold a replica, in ascending order.
    pub members: Vec<NodeId>,
    /// leader-follower: the leader. consensus: the preferred leader. Else 0.
    #[serde(default)]
    pub leader: NodeId,
    /// leader-follower: the preferred leader. Else 0. From level 2 on.
    #[serde(default, skip_serializing_if = "is_zero_node")]
    pub preferred: NodeId,
    /// leader-follower: the number of the leadership. Else of the membership. Begins at 1 and only grows.
    #[serde(alias = "membership")]
    pub epoch: u64,
    /// leader-follower: see [`protocol::Configuration`]. Else the members that are known to take part in this epoch
    /// with all that they need.
    pub in_sync: Vec<NodeId>,
    /// How often anything of this group has changed. A leader's request counts only if nothing has changed since the
    /// leader learned the revision: requests are repeated and may arrive late, and an in-sync set that the leader has
    /// replaced since must not be restored.
    pub revision: u64,
    /// Registers: members whose memory an operator gave up, with the incarnation for which that holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<NodeId, u64>,
    /// Leader-follower: the newest epoch whose leader is known to hold all that was acknowledged before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken_over: u64,
    /// False from a change of members until enough of them are known to hold everything: until then no leader is
    /// appointed, and no other member changes.
    pub settled: bool,
}

impl Group {
    /// Whether its leader is known to hold all that was acknowledged before its epoch. For the first epoch that is
    /// nothing.
    pub fn has_taken_over(&self) -> bool {
        self.epoch == 1 || self.taken_over == self.epoch
    }

    /// The configuration of the group's replicas.
    pub fn configuration(&self) -> Configuration {
        Configuration {
            epoch: self.epoch,
            leader: self.leader,
            members: self.members.clone(),
            in_sync: self.in_sync.clone(),
            is_given_up: false,
        }
    }

    /// The configuration of one of the group's replicas, in this incarnation of its node.
    pub fn configuration_of(&self, node: NodeId, life: u64) -> Configuration {
        Configuration { is_given_up: self.given_up.get(&node) == Some(&life), ..self.configuration() }
    }
}

/// How many members must be known to hold everything before a group of `members` is settled. Only leader-follower can
/// have other acknowledgements than a majority's.
pub(super) fn settles_with(acks: Acks, members: usize) -> usize {
    match acks {
        Acks::None | Acks::All => 1,
        Acks::Count(count) => (usize::from(count) + 1).min(members),
        Acks::Majority => members / 2 + 1,
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_zero_node(node: &NodeId) -> bool {
    *node == 0
}

/// How many nodes hold the map in a cluster of `nodes`.
pub fn control_members(nodes: usize) -> usize {
    if nodes < 5 { nodes.min(3) } else { 5 }
}

/// The level of maps without a level: those from before there were levels.
fn first_level() -> Release {
    1
}

/// The level at which a new cluster begins. It rises as soon as all nodes have been started.
fn level_of_new_cluster() -> Release {
    RELEASES.oldest
}

/// The part of a map that every program can read.
#[derive(Deserialize)]
struct Level {
    #[serde(default = "first_level")]
    level: Release,
}

/// Returns why a program that understands `releases` cannot take an encoded map, if the map's level is the reason.
pub fn level_refusal(bytes: &[u8], releases: Releases) -> Option<String> {
    let level = serde_json::from_slice::<Level>(bytes).ok()?.level;
    // Bytes with level 0 are no map.
    releases.refusal(level).filter(|_| level > 0)
}

impl ClusterMap {
    /// The map that all nodes of a new cluster begin with. It takes effect once the control group has committed it.
    ///
    /// # Errors
    /// A sentence when there are no nodes, or a keyspace cannot be kept on them.
    pub fn initial(nodes: &[NodeAddress], keyspaces: &[Keyspace]) -> Result<ClusterMap, String> {
        let level = level_of_new_cluster();
        let mut map = ClusterMap { next_group: 1, level, ..ClusterMap::default() };
        for address in nodes {
            let node = Node::new(address.clone());
            if address.id == 0 || map.nodes.insert(address.id, node).is_some() {
                return Err(format!("node number {} is 0 or is configured twice", address.id));
            }
        }
        let members: Vec<NodeId> = map.nodes.keys().copied().take(control_members(map.nodes.len())).collect();
        let leader = *members.first().ok_or("a cluster needs a node")?;
        let control = Group {
            keyspace: String::new(),
            shard: 0,
            slots: Slots::of_shard(0, 1),
            leader,
            preferred: 0,
            epoch: 1,
            in_sync: members.clone(),
            members,
            revision: 0,
            given_up: BTreeMap::new(),
            taken_over: 0,
            settled: true,
        };
        map.groups.insert(CONTROL_GROUP, control);
        let mut keyspaces = keyspaces.to_vec();
        if !keyspaces.iter().any(|keyspace| keyspace.prefix.is_empty()) {
            keyspaces.push(Keyspace::default());
        }
        keyspaces.sort_by(|one, other| one.prefix.cmp(&other.prefix));
        for keyspace in keyspaces {
            map.create_keyspace(keyspace, &|_| true).map_err(|why| why.to_string())?;
        }
        map.version = 1;
        Ok(map)
    }

    /// The keyspace of a group. The control group has none.
    fn keyspace_of(&self, group: GroupId) -> Option<&Keyspace> {
        let keyspace = &self.groups.get(&group)?.keyspace;
        self.keyspaces.get(keyspace).map(|entry| &entry.keyspace).filter(|_| group != CONTROL_GROUP)
    }

    /// How a group's replicas agree. The control group is one of consensus.
    pub fn protocol(&self, group: GroupId) -> Protocol {
        self.keyspace_of(group).map_or(Protocol::Consensus, |keyspace| keyspace.replication)
    }

    /// How many replicas of a group hold a write before it is acknowledged.
    pub fn acks(&self, group: GroupId) -> Acks {
        self.keyspace_of(group).map_or(Acks::Majority, |keyspace| keyspace.acks)
    }

    /// Whether a replica of a group still holds after a restart what it acknowledged.
    pub fn keeps_records(&self, group: GroupId) -> bool {
        self.keyspace_of(group).is_none_or(Keyspace::keeps_records)
    }

    /// A group's name in messages to users.
    pub fn name_of(&self, id: GroupId) -> String {
        match self.groups.get(&id) {
            _ if id == CONTROL_GROUP => "the control group".into(),
            None => format!("group {id}"),
            Some(group) => {
                let keyspace = if group.keyspace.is_empty() { "default" } else { &group.keyspace };
                format!("shard {} of keyspace '{keyspace}'", group.shard)
            }
        }
    }

    /// The groups in which a node takes part, without those that it must leave since it lost its storage.
    pub fn groups_of(&self, node: NodeId) -> impl Iterator<Item = (GroupId, &Group)> {
        let takes_part = move |(id, group): &(&GroupId, &Group)| self.takes_part(node, **id, group);
        self.groups.iter().filter(takes_part).map(|(id, group)| (*id, group))
    }

    /// Whether a node takes part in a group: it is a member, and need not leave it first.
    pub fn takes_part(&self, node: NodeId, id: GroupId, group: &Group) -> bool {
        let leaves = |known: &Node| known.rejoins.get(&id) == Some(&Rejoin::Leave);
        group.members.contains(&node) && self.nodes.get(&node).is_some_and(|known| !leaves(known))
    }

    /// Checks whether a node may be admitted with this start, given that its log is known to have been durable up to
    /// `durable`.
    pub(super) fn check_start(&self, id: NodeId, start: Start, durable: u64) -> Result<(), String> {
        let known = self.nodes.get(&id).ok_or_else(|| Refusal::NoNode(id).to_string())?.start;
        if known == start || known.identity == 0 {
            return Ok(()); // The node has never started, or was replaced.
        }
        if start.identity != known.identity {
            return Err(format!(
                "node {id} came back with other storage than it had, so it has forgotten what it promised: give it back \
                 its storage, or let it in as a new member: quorate node replace {id} (CLUSTER REPLACE {id})"
            ));
        }
        if start.life <= known.life {
            return Err(format!(
                "node {id} came back with storage from before its last start, so it has forgotten what it promised since: \
                 to let it in as a new member: quorate node replace {id} (CLUSTER REPLACE {id})"
            ));
        }
        if start.found < durable {
            let found = start.found;
            return Err(format!(
                "node {id} came back with an older state of its storage: its log ends at {found} and had been durable up to \
                 {durable}, so it has forgotten what it promised since; to let it in as a new member: quorate node replace {id} \
                 (CLUSTER REPLACE {id})"
            ));
        }
        Ok(())
    }

    /// The node with the only replica of a consensus group that is not known to take part: its storage was given up as lost,
    /// or, for a moment, all other members have just left.
    pub fn waits_alone(&self, id: GroupId) -> Option<NodeId> {
        let group = self.groups.get(&id).filter(|group| group.epoch > 1 && !group.settled)?;
        let [alone] = group.members[..] else { return None };
        (self.protocol(id) == Protocol::Consensus && group.in_sync.is_empty()).then_some(alone)
    }

    /// The nodes that stay in the cluster, in ascending order.
    pub(super) fn staying(&self) -> Vec<NodeId> {
        let is_member = |node: &Node| node.state == NodeState::Member;
        self.nodes.iter().filter(|(_, node)| is_member(node)).map(|(id, _)| *id).collect()
    }

    /// How many replicas a group has, as a target, on `nodes` nodes.
    pub(super) fn replicas_of(&self, id: GroupId, nodes: usize) -> usize {
        self.keyspace_of(id).map_or_else(|| control_members(nodes), |keyspace| keyspace.replicas_on(nodes))
    }

    /// How many members a group is to have on the nodes that stay. Registers keep their first members.
    pub fn members_wanted(&self, id: GroupId) -> usize {
        let there = self.groups.get(&id).map_or(0, |group| group.members.len());
        match self.protocol(id).has_registers() {
            true => there,
            false => self.replicas_of(id, self.staying().len()),
        }
    }

    /// The members of a group and, if they are fewer than they are to be, the other nodes that stay.
    pub fn wanted_holders(&self, id: GroupId) -> Vec<NodeId> {
        let members = self.groups.get(&id).map(|group| group.members.clone()).unwrap_or_default();
        match members.len() < self.members_wanted(id) {
            true => self.staying().into_iter().chain(members).collect::<BTreeSet<_>>().into_iter().collect(),
            false => members,
        }
    }

    // Bytes.

    /// Encodes the map for the log and for messages.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a map is made of numbers, strings, lists and maps of these")
    }

    /// Reads a map, for a program that understands `releases`.
    ///
    /// # Errors
    /// A sentence when the map is of a level that the program does not understand, the bytes are not a map, or the map is
    /// inconsistent.
    pub fn decode(bytes: &[u8], releases: Releases) -> Result<ClusterMap, String> {
        if bytes.len() > MAP_BYTES_MAX {
            return Err(format!("a map of {} bytes is longer than {MAP_BYTES_MAX}", bytes.len()));
        }
        if let Some(why) = level_refusal(bytes, releases) {
            return Err(why);
        }
        let map: ClusterMap = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        map.check()?;
        Ok(map)
    }

    /// Checks the map for consistency.
    ///
    /// # Errors
    /// A sentence that says what is inconsistent.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |what: String| Err(format!("map {}: {what}", self.version));
        if let Err(why) = self.check_level() {
            return wrong(why);
        }
        if !self.groups.contains_key(&CONTROL_GROUP) || !self.keyspaces.contains_key("") {
            return wrong("it has no control group or no default keyspace".into());
        }
        for (id, group) in &self.groups {
            let is_among = |some: &[NodeId], all: &[NodeId]| some.iter().all(|node| all.contains(node));
            let ascends = |nodes: &[NodeId]| nodes.windows(2).all(|pair| pair[0] < pair[1]);
            if group.members.is_empty() || !ascends(&group.members) || !ascends(&group.in_sync) {
                return wrong(format!("the members of group {id} are none or not in order"));
            }
            if !group.members.iter().all(|member| self.nodes.contains_key(member)) {
                return wrong(format!("a member of group {id} is no node"));
            }
            if !is_among(&group.in_sync, &group.members) || group.epoch == 0 {
                return wrong(format!("group {id} has an epoch of 0 or others in sync than its members"));
            }
            if group.taken_over > group.epoch {
                return wrong(format!("group {id} was taken over in an epoch that has not begun"));
            }
            let leads = group.members.contains(&group.leader);
            let fits = match self.protocol(*id) {
                Protocol::LeaderFollower => leads && group.in_sync.contains(&group.leader),
                Protocol::Consensus => leads,
                Protocol::Abd | Protocol::Blocking => group.leader == 0,
            };
            if !fits {
                return wrong(format!("group {id} cannot be led by node {}", group.leader));
            }
            let is_listed = |entry: &KeyspaceEntry| entry.groups.contains(id);
            let listed = self.keyspaces.get(&group.keyspace).is_some_and(is_listed);
            if u32::from(*id) >= self.next_group || listed == (*id == CONTROL_GROUP) {
                return wrong(format!("group {id} belongs to no keyspace or was never given out"));
            }
        }
        for (prefix, entry) in &self.keyspaces {
            let mut next = 0;
            for group in &entry.groups {
                let slots = self.groups.get(group).filter(|group| group.keyspace == *prefix);
                let slots = slots.map(|group| group.slots).filter(|slots| slots.first == next);
                let Some(slots) = slots.filter(|slots| slots.last >= next && slots.last < SLOTS) else {
                    return wrong(format!("the slots of keyspace '{prefix}' have a gap at {next}"));
                };
                next = slots.last + 1;
            }
            if entry.floor > self.version {
                return wrong(format!("keyspace '{prefix}' lost keys to a map that is not made yet"));
            }
            if next != SLOTS || entry.keyspace.prefix != *prefix {
                return wrong(format!("keyspace '{prefix}' ends at slot {next}"));
            }
        }
        for (id, node) in &self.nodes {
            if *id == 0 || node.address.id != *id {
                return wrong(format!("node {id} has another number in its address"));
            }
        }
        Ok(())
    }
}

impl Node {
    pub(super) fn new(address: NodeAddress) -> Node {
        Node {
            address,
            start: Start::default(),
            releases: Releases::default(),
            state: NodeState::Member,
            is_drained: false,
            rejoins: BTreeMap::new(),
        }
    }
}

/// Names a record of a group, as [`kv::RecordName`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatalRecord {
    /// Its number in the group's history.
    pub offset: u64,
    /// Its time, in milliseconds, by its leader's clock.
    pub time: u64,
}

impl From<FatalRecord> for kv::RecordName {
    fn from(record: FatalRecord) -> kv::RecordName {
        kv::RecordName { offset: record.offset, time: record.time }
    }
}

/// The records that crash processes, as far as the cluster knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quarantine {
    /// The stopped replicas of each group, with the record before which each is stopped.
    pub standing: BTreeMap<GroupId, BTreeMap<NodeId, FatalRecord>>,
    /// Records that change nothing on any replica, in the order of the decisions.
    pub skipped: BTreeMap<GroupId, Vec<FatalRecord>>,
}

impl Quarantine {
    /// Whether no replica is stopped and no record is skipped.
    pub fn is_empty(&self) -> bool {
        self.standing.is_empty() && self.skipped.is_empty()
    }

    /// The record before which a node's replica of a group is stopped.
    pub fn stands(&self, group: GroupId, node: NodeId) -> Option<FatalRecord> {
        self.standing.get(&group)?.get(&node).copied()
    }

    /// The records of a group that are skipped.
    pub fn skipped(&self, group: GroupId) -> &[FatalRecord] {
        self.skipped.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Forgets that a node's replicas are stopped, since they start empty.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        for standing in self.standing.values_mut() {
            standing.remove(&node);
        }
    }
}
