//! Faults of machines that have disks: of the disk itself, and of the power.
//!
//! These are drawn from separate random numbers, and only if a keyspace is kept on disks. A run without such a
//! keyspace therefore stays as it was.

use super::{Class, Draw, Kind, MS, Mask, SECOND, Within, ids};
use crate::events::Place;
use std::fmt;
use storage::Verb;
use storage::simulated::Survivors;

/// A fault of machines' disks or power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// Machines lose power; only some of the unsynced data survives. Perhaps some disks were stuck for a while
    /// before; perhaps it happens within a turn, and again at the given operation of the start that follows.
    PowerLoss {
        nodes: Mask,
        stuck: Option<(Mask, u64)>,
        within_turn: Option<Within>,
        down_us: u64,
        survivors: Survivors,
        again: Option<u8>,
    },
    /// Some disks are stuck for `us`. Then every machine loses power, and with it all unsynced data. Some of them
    /// stay away until every key has been read from the others: the run's other faults end with this one.
    Outage { stuck: Mask, away: Mask, us: u64 },
    /// All machines stop, some (`lost`) lose what they hold for good, and an operator recovers the cluster from the others'
    /// folders: the run's other faults end with this one. If `again` is set, the power fails at this operation of the first
    /// folder that is written.
    Recovery { lost: Mask, again: Option<u8> },
    /// Work beside the node takes `times` as long.
    Slow { node: Place, times: u64, us: u64 },
    /// Work beside the node does not end.
    Stuck { node: Place, us: u64 },
    /// The disk fails one operation of a kind, with an input/output error.
    Refusal { node: Place, verb: Verb },
    /// On some disks there is room for only `room` more bytes.
    Full { nodes: Mask, room: u64, us: u64 },
    /// A process dies; while it is down, a bit or a whole sector of the durable data on its disk changes.
    Rot { node: Place, place: u64, zeroes: bool, down_us: u64, replaced_us: Option<u64> },
    /// Whether a process runs or not, `count` of the values on its disk change, chosen from those that all other members have.
    RottenValues { node: Place, place: u64, count: u16 },
    /// A process dies and restarts with an empty disk.
    Wiped { node: Place, down_us: u64, replaced_us: Option<u64> },
    /// A process dies and restarts with an earlier state of its disk.
    RolledBack { node: Place, after_us: u64, down_us: u64, replaced_us: Option<u64> },
}

impl DiskFault {
    pub(crate) fn class(self) -> Class {
        match self {
            DiskFault::PowerLoss { .. } => Class::PowerLoss,
            DiskFault::Outage { .. } => Class::Outage,
            DiskFault::Recovery { .. } => Class::Recovered,
            DiskFault::Slow { .. } => Class::SlowDisk,
            DiskFault::Stuck { .. } => Class::StuckDisk,
            DiskFault::Refusal { verb: Verb::Sync, .. } => Class::FailedSync,
            DiskFault::Refusal { verb: Verb::Write, .. } => Class::FailedWrite,
            DiskFault::Refusal { .. } => Class::FailedOperation,
            DiskFault::Full { .. } => Class::FullDisk,
            DiskFault::Rot { .. } => Class::BitRot,
            DiskFault::RottenValues { .. } => Class::RottenValue,
            DiskFault::Wiped { .. } => Class::WipedDisk,
            DiskFault::RolledBack { .. } => Class::RolledBackDisk,
        }
    }
}

impl Draw<'_> {
    /// Draws the disk faults of a run, in order of their numbers. As with the other faults, most runs have only some
    /// kinds.
    pub(crate) fn disk_faults(&mut self) -> Vec<super::Fault> {
        type One = fn(&mut Draw<'_>) -> DiskFault;
        const DRAWS: [One; 10] = [
            |draw| draw.power_loss(),
            |draw| draw.power_loss(),
            |draw| draw.slow_disk(),
            |draw| draw.stuck_disk(),
            |draw| DiskFault::Refusal { node: draw.node(), verb: Verb::Sync },
            |draw| DiskFault::Refusal { node: draw.node(), verb: Verb::Write },
            |draw| draw.refusal(),
            |draw| draw.full_disk(),
            |draw| draw.rot(),
            |draw| draw.lost_disk(),
        ];
        let chosen: Vec<One> = DRAWS.into_iter().filter(|_| self.random.percent(30)).collect();
        if chosen.is_empty() {
            return Vec::new();
        }
        let per_minute = self.random.scaled(2, 60);
        let count = 1 + self.length_us * per_minute / (60 * SECOND);
        (0..count)
            .map(|_| {
                let at = self.random.below(self.length_us);
                let kind = Kind::Disk(self.random.pick(&chosen)(self));
                super::Fault { at, kind }
            })
            .collect()
    }

    fn power_loss(&mut self) -> DiskFault {
        let all = ((1u64 << self.nodes) - 1) as Mask;
        let nodes = match self.random.below(4) {
            0 => all,
            1 => self.some(),
            _ => 1 << self.node(),
        };
        let within_turn = self.random.percent(50).then(|| self.within());
        let stuck = (self.some(), self.random.scaled(MS, SECOND));
        DiskFault::PowerLoss {
            nodes,
            stuck: self.random.percent(60).then_some(stuck),
            within_turn,
            down_us: self.random.scaled(MS, 8 * SECOND),
            survivors: self.random.pick(&[Survivors::Random, Survivors::Random, Survivors::Nothing]),
            again: self.random.percent(30).then_some(1 + self.random.below(40) as u8),
        }
    }

    /// Draws a power loss of all machines shortly before the run ends. The nodes whose disks are stuck then, and
    /// those that stay away, are each as many as may fail, and no node is in both sets: this catches a node that
    /// acknowledges what is not on a disk.
    pub(crate) fn outage(&mut self) -> super::Fault {
        let mut places: Vec<Place> = (0..self.nodes).collect();
        let some = |random: &mut crate::random::Random, places: &mut Vec<Place>| {
            (0..(self.nodes - 1) / 2).fold(0, |mask: Mask, _| {
                let drawn = random.below(places.len() as u64) as usize;
                mask | 1 << places.swap_remove(drawn)
            })
        };
        let (stuck, away) = (some(self.random, &mut places), some(self.random, &mut places));
        let us = self.random.scaled(5 * MS, SECOND).min(self.length_us / 2);
        let kind = Kind::Disk(DiskFault::Outage { stuck, away, us });
        // Before everything heals.
        super::Fault { at: (self.length_us - us).saturating_sub(MS), kind }
    }

    /// Draws the loss of a majority of the control nodes, which are among the first of the cluster, and perhaps of others.
    pub(crate) fn recovery(&mut self) -> super::Fault {
        let control = self.nodes.min(if self.nodes < 5 { 3 } else { 5 });
        let mut lost = self.some();
        while (lost.count_ones() as Place) <= control / 2 {
            lost |= 1 << self.random.below(control.into());
        }
        let again = self.random.percent(50).then(|| 1 + self.random.below(6) as u8);
        let kind = Kind::Disk(DiskFault::Recovery { lost, again });
        // Before everything heals.
        super::Fault { at: self.length_us.saturating_sub(MS), kind }
    }

    fn slow_disk(&mut self) -> DiskFault {
        let node = self.node();
        DiskFault::Slow {
            node,
            times: self.random.scaled(5, 500),
            us: self.random.scaled(50 * MS, 5 * SECOND),
        }
    }

    fn stuck_disk(&mut self) -> DiskFault {
        DiskFault::Stuck { node: self.node(), us: self.random.scaled(20 * MS, 8 * SECOND) }
    }

    fn refusal(&mut self) -> DiskFault {
        const VERBS: [Verb; 8] = [
            Verb::Create,
            Verb::Cut,
            Verb::Rename,
            Verb::Remove,
            Verb::SyncFolder,
            Verb::List,
            Verb::Read,
            Verb::Measure,
        ];
        DiskFault::Refusal { node: self.node(), verb: self.random.pick(&VERBS) }
    }

    fn full_disk(&mut self) -> DiskFault {
        let (node, room) = (self.node(), self.random.below(100_000));
        let us = self.random.scaled(100 * MS, 10 * SECOND);
        let nodes = match self.random.below(4) {
            0 => ((1u64 << self.nodes) - 1) as Mask,
            1 => self.some(),
            _ => 1 << node,
        };
        DiskFault::Full { nodes, room, us }
    }

    fn rot(&mut self) -> DiskFault {
        DiskFault::Rot {
            node: self.node(),
            place: self.random.draw(),
            zeroes: self.random.percent(30),
            down_us: self.random.scaled(MS, SECOND),
            replaced_us: self.replaced_us(),
        }
    }

    /// Draws changes of values on disks, in order of their numbers.
    pub(crate) fn rotten_values(&mut self) -> Vec<super::Fault> {
        let one = |draw: &mut Draw<'_>| super::Fault {
            at: draw.random.below(draw.length_us),
            kind: Kind::Disk(DiskFault::RottenValues {
                node: draw.node(),
                place: draw.random.draw(),
                count: draw.random.scaled(1, 200) as u16,
            }),
        };
        (0..self.random.between(1, 8)).map(|_| one(self)).collect()
    }

    /// Draws the time after which the operator replaces a node that has lost its disk, if ever.
    fn replaced_us(&mut self) -> Option<u64> {
        let after_us = self.random.scaled(100 * MS, 5 * SECOND);
        self.random.percent(70).then_some(after_us)
    }

    fn lost_disk(&mut self) -> DiskFault {
        let (node, down_us) = (self.node(), self.random.scaled(MS, 2 * SECOND));
        match self.random.percent(50) {
            true => DiskFault::Wiped { node, down_us, replaced_us: self.replaced_us() },
            false => {
                let after_us = self.random.scaled(100 * MS, 5 * SECOND);
                DiskFault::RolledBack { node, after_us, down_us, replaced_us: self.replaced_us() }
            }
        }
    }
}

impl fmt::Display for DiskFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: &u64| us / MS;
        match self {
            DiskFault::PowerLoss { nodes, stuck, within_turn, down_us, survivors, again } => {
                let before = stuck.map_or(String::new(), |(mask, us)| {
                    format!(" after the disks of {} were stuck for {} ms", super::ids(mask), us / MS)
                });
                let how = if within_turn.is_some() { " within a turn" } else { "" };
                let what = match survivors {
                    Survivors::Nothing => "nothing",
                    Survivors::Everything => "all",
                    Survivors::Random => "some",
                };
                let again =
                    again.map_or(String::new(), |at| format!(", and again at operation {at} of their start"));
                let (ids, ms) = (ids(*nodes), ms(down_us));
                write!(
                    formatter,
                    "nodes {ids} lose their power{how}{before} for {ms} ms, {what} that is not synced survives{again}"
                )
            }
            DiskFault::Outage { stuck, away, us } => {
                let (stuck, away, ms) = (ids(*stuck), ids(*away), ms(us));
                write!(
                    formatter,
                    "the disks of nodes {stuck} are stuck for {ms} ms; then all nodes lose their power, and nodes {away} stay away"
                )
            }
            DiskFault::Recovery { lost, again } => {
                let again = again.map_or(String::new(), |at| {
                    format!(", and the power fails at operation {at} of the first one")
                });
                let ids = ids(*lost);
                write!(
                    formatter,
                    "nodes {ids} are lost for good, and the cluster is recovered from the other folders{again}"
                )
            }
            DiskFault::Slow { node, times, us } => {
                write!(
                    formatter,
                    "the disk of node {} takes {times} times as long, for {} ms",
                    node + 1,
                    ms(us)
                )
            }
            DiskFault::Stuck { node, us } => {
                write!(formatter, "the disk of node {} is stuck for {} ms", node + 1, ms(us))
            }
            DiskFault::Refusal { node, verb } => {
                write!(formatter, "the disk of node {} will fail to {verb} something", node + 1)
            }
            DiskFault::Full { nodes, room, us } => {
                let (ids, ms) = (ids(*nodes), ms(us));
                write!(formatter, "the disks of nodes {ids} have room for {room} bytes each, for {ms} ms")
            }
            DiskFault::Rot { node, zeroes, .. } => {
                let what = if *zeroes { "a sector" } else { "a bit" };
                write!(formatter, "node {} dies, and {what} on its disk changes", node + 1)
            }
            DiskFault::RottenValues { node, count, .. } => {
                write!(formatter, "up to {count} values on the disk of node {} change", node + 1)
            }
            DiskFault::Wiped { node, .. } => {
                write!(formatter, "node {} dies, and its disk is empty", node + 1)
            }
            DiskFault::RolledBack { node, after_us, .. } => {
                let (node, ms) = (node + 1, ms(after_us));
                write!(formatter, "node {node} dies, and its disk is what it was {ms} ms before")
            }
        }
    }
}
