//! The cluster's level: the release whose messages, records and settings the cluster as a whole may use. The map holds it.
//!
//! Every start of a node registers the releases that its program understands. The control leader raises the level
//! when every node in the map, also one that is down, was last started with a program that knows the next level. The
//! level never falls. Until it rises, any node may go back to the program that it had. From then on a program that
//! does not know the level is refused: by itself when it reads its folder, and by the control leader when it asks for
//! admission.
//!
//! `docs/design/releases.md` says why nothing of a newer level can reach a program that does not know it.

use super::map::ClusterMap;
use super::refusal::{Refusal, refuse};
use protocol::NodeId;
use wire::release::Release;

/// What the cluster can do from some level on. Each feature changes a record, a message or the map, so programs that
/// do not know the level would fail at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// An operator holds the level where it is. The map has a field for it that release 1 does not know.
    LevelHeld,
    /// A keyspace holds a database. Release 1 takes `@3` for a prefix of keys, and refuses requests that another node
    /// routes as a database's.
    Databases,
    /// The map holds the epoch in which a leader has taken over, in a field that release 1 does not know.
    TakingOver,
    /// What a script's caller may do is read by the categories and keys that Redis has for each command, which release 1 does not
    /// know.
    RightsOfRedis,
    /// Commands that release 1 does not know answer requests whose arguments are wrong, and scripts run by rules of release 2.
    Answers,
    /// Records have a bound on the memory that they may add, which release 1 does not know.
    BoundedWrites,
    /// A leader lets another member lead, a node is drained, and a leader-follower group has a preferred leader: messages and
    /// fields of the map that release 1 does not know.
    Handovers,
    /// The map holds when keyspaces were saved by a backup, in a field that release 1 does not know.
    Backups,
    /// Rules of users name databases (`db=`), which release 1 does not read: there such a user may do nothing.
    DatabaseRights,
    /// A keyspace evicts the least recently modified keys, by words that release 1 does not read.
    EvictionByWrites,
    /// Transactions over several groups have records that release 1 does not know.
    Transactions,
    /// A record, a field of the map and messages of registers hold the version of the map by which a group's commands have to be
    /// checked, which release 1 does not know.
    Floors,
}

impl Feature {
    /// All features.
    pub const ALL: [Feature; 12] = [
        Feature::LevelHeld,
        Feature::Databases,
        Feature::TakingOver,
        Feature::RightsOfRedis,
        Feature::Answers,
        Feature::BoundedWrites,
        Feature::Handovers,
        Feature::Backups,
        Feature::DatabaseRights,
        Feature::EvictionByWrites,
        Feature::Transactions,
        Feature::Floors,
    ];

    /// The level that brings the feature.
    pub fn since(self) -> Release {
        match self {
            Feature::LevelHeld
            | Feature::Databases
            | Feature::TakingOver
            | Feature::RightsOfRedis
            | Feature::Answers
            | Feature::BoundedWrites
            | Feature::Handovers
            | Feature::Backups
            | Feature::DatabaseRights
            | Feature::EvictionByWrites
            | Feature::Transactions
            | Feature::Floors => 2,
        }
    }

    /// The feature's description, for error messages.
    fn words(self) -> &'static str {
        match self {
            Feature::LevelHeld => "holding the level",
            Feature::Databases => "a database beside database 0",
            Feature::TakingOver => "knowing when a leader has taken over",
            Feature::RightsOfRedis => "rights by the categories and keys that Redis has",
            Feature::Answers => "what release 2 answers",
            Feature::BoundedWrites => "a bound on what a write adds",
            Feature::Handovers => "moving leaders",
            Feature::Backups => "knowing when backups were made",
            Feature::DatabaseRights => "rights to databases",
            Feature::EvictionByWrites => "eviction of the least recently modified keys",
            Feature::Transactions => "transactions over several shards and keyspaces",
            Feature::Floors => "refusing commands by older maps",
        }
    }

    /// Whether a map uses the feature.
    fn is_used(self, map: &ClusterMap) -> bool {
        match self {
            Feature::LevelHeld => map.is_level_held,
            // A new cluster, which begins at the lowest level, may be configured with databases.
            Feature::Databases => false,
            // As with databases, a new cluster may be configured with it.
            Feature::EvictionByWrites => false,
            // It is in the records of scripts.
            Feature::RightsOfRedis => false,
            // Used by commands, not by the map.
            Feature::Answers => false,
            // Only records have it.
            Feature::BoundedWrites | Feature::Transactions => false,
            Feature::Floors => map.keyspaces.values().any(|entry| entry.floor > 0),
            Feature::Handovers => {
                map.nodes.values().any(|node| node.is_drained)
                    || map.groups.values().any(|group| group.preferred > 0)
            }
            Feature::TakingOver => map.groups.values().any(|group| group.taken_over > 0),
            Feature::Backups => map.keyspaces.values().any(|entry| entry.saved.is_some()),
            Feature::DatabaseRights => {
                map.users.values().flatten().any(|rule| commands::users::limits_databases(&rule.bytes()))
            }
        }
    }
}

impl ClusterMap {
    /// The highest level that the programs of all nodes know, but at least the present one. A node that never started knows
    /// none.
    pub fn attainable_level(&self) -> Release {
        let newest = self.nodes.values().map(|node| node.releases.newest).min().unwrap_or(0);
        newest.max(self.level)
    }

    /// The level to which the control leader may raise the cluster now.
    pub fn next_level(&self) -> Release {
        if self.is_level_held { self.level } else { self.attainable_level() }
    }

    /// The nodes whose programs do not know a level, and those that have not started yet, whose programs are unknown.
    pub fn nodes_below(&self, level: Release) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.releases.newest < level).map(|(id, _)| *id).collect()
    }

    /// Whether the cluster is at a level that has a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.level >= feature.since()
    }

    /// Checks that the cluster is at a level that has a feature. Call it before recording, sending or showing
    /// anything that needs it.
    ///
    /// # Errors
    /// A sentence that names the needed level, and what keeps the cluster from it.
    pub fn require(&self, feature: Feature) -> Result<(), Refusal> {
        let (since, level) = (feature.since(), self.level);
        if self.has(feature) {
            return Ok(());
        }
        let (what, below) = (feature.words(), self.nodes_below(since));
        match below.is_empty() {
            true => Err(Refusal::LevelRises { what: what.into(), since, level }),
            false => refuse!(
                "{what} needs level {since}, and the cluster is at level {level}, as the programs of nodes {below:?} are not \
                 known to have release {since}: upgrade these first"
            ),
        }
    }

    /// Checks that the map uses no feature that its level lacks.
    pub(super) fn check_level(&self) -> Result<(), String> {
        match Feature::ALL.into_iter().find(|it| it.is_used(self) && !self.has(*it)) {
            Some(early) => Err(format!(
                "it is of level {}, and uses what level {} brings: {}",
                self.level,
                early.since(),
                early.words()
            )),
            None => Ok(()),
        }
    }

    pub(super) fn hold_level(&mut self, is_held: bool) {
        self.is_level_held = is_held;
    }

    pub(super) fn raise_level(&mut self, level: Release) -> Result<(), Refusal> {
        let below = self.nodes_below(level);
        if level > self.level && !below.is_empty() {
            refuse!("the cluster cannot be at level {level}: the programs of nodes {below:?} do not know it");
        }
        self.level = self.level.max(level);
        if self.has(Feature::Handovers) {
            self.prefer_leaders();
        }
        Ok(())
    }
}
