//! Commands of an operator during a run, and the deaths of leaders. They are drawn from separate random numbers,
//! after everything else.

use super::{Class, Draw, Fault, Kind, MS, SECOND, Within};
use crate::events::Place;
use std::fmt;

/// A command of the operator, which is repeated until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// `KEYSPACE CREATE`, of the keyspace with this number in the run.
    Create { space: u8 },
    /// `KEYSPACE SET`.
    Change { space: u8 },
    /// `KEYSPACE DROP`.
    Drop { space: u8 },
    /// `CLUSTER ADD`, after which the node is started.
    Add { node: Place },
    /// `CLUSTER REMOVE`; the process ends when the node is out of the map.
    Remove { node: Place },
    /// `CLUSTER REPLACE` of a node that has lost its disk, with a new disk.
    Replace { node: Place },
    /// `CLUSTER LEAD`, of all groups of a keyspace.
    Lead { space: u8, node: Place },
    /// `CLUSTER DRAIN`.
    Drain { node: Place },
    /// `CLUSTER DRAIN` with `END`.
    EndDrain { node: Place },
    /// `CLUSTER LEVEL HOLD`.
    HoldLevel,
    /// `CLUSTER LEVEL RISE`.
    LetLevelRise,
}

impl Order {
    pub(crate) fn class(self) -> Class {
        match self {
            Order::Create { .. } => Class::KeyspaceCreated,
            Order::Change { .. } => Class::KeyspaceChanged,
            Order::Drop { .. } => Class::KeyspaceDropped,
            Order::Add { .. } => Class::NodeAdded,
            Order::Remove { .. } => Class::NodeRemoved,
            Order::Replace { .. } => Class::NodeReplaced,
            Order::Lead { .. } | Order::Drain { .. } | Order::EndDrain { .. } => Class::LeadersMoved,
            Order::HoldLevel | Order::LetLevelRise => Class::LevelHeld,
        }
    }
}

/// The leaders that die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaders {
    /// Whether the control group's leader dies.
    pub(crate) control: bool,
    /// If set, a group's leader dies; this number selects the group.
    pub(crate) group: Option<u8>,
}

impl Draw<'_> {
    /// Draws the deaths of leaders.
    pub(crate) fn killed_leaders(&mut self) -> Vec<Fault> {
        if !self.random.percent(35) {
            return Vec::new();
        }
        let per_minute = self.random.scaled(2, 20);
        let count = 1 + self.length_us * per_minute / (60 * SECOND);
        let leaders = |draw: &mut Self| {
            let group = draw.random.below(256) as u8;
            match draw.random.below(3) {
                0 => Leaders { control: true, group: None },
                1 => Leaders { control: false, group: Some(group) },
                _ => Leaders { control: true, group: Some(group) },
            }
        };
        (0..count)
            .map(|_| {
                let at = self.random.below(self.length_us);
                let leaders = leaders(self);
                let within_turn: Option<Within> = self.random.percent(40).then(|| self.within());
                let down_us = self.random.scaled(MS, 8 * SECOND);
                let noticed = self.random.percent(70);
                // Some are only paused: when they resume, the leases that they believe in have expired.
                let pauses = self.random.percent(40);
                Fault { at, kind: Kind::Leader { leaders, pauses, within_turn, down_us, noticed } }
            })
            .collect()
    }

    /// Draws changes of keyspaces and of nodes. `dynamic` is the keyspace that does not exist at the beginning,
    /// `spare` the node.
    pub(crate) fn orders(&mut self, spaces: u8, dynamic: Option<u8>, spare: Option<Place>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut order = |at, order| faults.push(Fault { at, kind: Kind::Order(order) });
        if let Some(space) = dynamic {
            let at = self.random.below(self.length_us / 3);
            order(at, Order::Create { space });
            if self.random.percent(40) {
                order(at + self.random.below(self.length_us - at), Order::Drop { space });
            }
        }
        if self.random.percent(25) {
            let space = self.random.below(spaces.into()) as u8;
            order(self.random.below(self.length_us), Order::Change { space });
        }
        if let Some(node) = spare {
            let at = self.random.below(self.length_us / 2);
            order(at, Order::Add { node });
            if self.random.percent(60) {
                let node = self.random.below(u64::from(node) + 1) as Place;
                order(at + self.random.below(self.length_us - at), Order::Remove { node });
            }
        }
        faults
    }
}

impl fmt::Display for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Create { space } => write!(formatter, "the operator creates keyspace {space}"),
            Order::Change { space } => write!(formatter, "the operator changes keyspace {space}"),
            Order::Drop { space } => write!(formatter, "the operator drops keyspace {space}"),
            Order::Add { node } => write!(formatter, "the operator adds node {}", node + 1),
            Order::Remove { node } => write!(formatter, "the operator removes node {}", node + 1),
            Order::Replace { node } => write!(formatter, "the operator replaces node {}", node + 1),
            Order::Lead { space, node } => {
                write!(formatter, "the operator has node {} lead keyspace {space}", node + 1)
            }
            Order::Drain { node } => write!(formatter, "the operator drains node {}", node + 1),
            Order::EndDrain { node } => write!(formatter, "the operator lets node {} lead again", node + 1),
            Order::HoldLevel => formatter.write_str("the operator holds the level"),
            Order::LetLevelRise => formatter.write_str("the operator lets the level rise"),
        }
    }
}

impl fmt::Display for Leaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match (self.control, self.group) {
            (true, None) => "the control leader",
            (true, Some(_)) => "the control leader and a group's",
            (false, _) => "the leader of a group",
        })
    }
}
