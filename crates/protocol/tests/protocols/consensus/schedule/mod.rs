//! The `consensus` part of random schedules: members that come and go, and disks that are lost or rolled back. All
//! replicas go through the same states.

mod control;

use super::{Consensus, World};
use crate::kit::disk::Disk;
use crate::kit::history::Question;
use crate::kit::random::Random;
use crate::kit::schedule::{Check, Pace, Schedule, Scheduled, Troubles};
use crate::kit::{Consequences, Letter};
use protocol::consensus::{Change, Lease, Options, Timing, Voter};
use protocol::contract::{Configuration, NodeId};
use protocol::planted::{Fault, Planted};
use protocol::{Replica as _, Trace};
use std::collections::BTreeMap;

/// The control group sends a node one of its configurations.
pub(crate) struct Configure {
    id: NodeId,
    which: usize,
}

pub(crate) struct Own {
    /// Percent of the moments at which something may go wrong and a disk is lost or rolled back.
    spoil: u64,
    loses_disks: bool,
    backup: u64,
    change: u64,
    hand_over: u64,
    /// The node whose disk was lost or rolled back, until it was removed.
    spoiled: Option<NodeId>,
    /// All configurations that the control group ever decided.
    configurations: Vec<Configuration>,
    values: u64,
    /// The table's digest at each offset, from the replica that showed it first.
    states: BTreeMap<u64, u64>,
}

/// The schedule of a seed. With `prints` it prints what happens.
pub(crate) fn schedule(seed: u64, planted: Planted, prints: bool) -> Schedule<Consensus> {
    let mut random = Random::new(seed);
    let members = [1, 2, 3, 3, 3, 5][random.below(6) as usize];
    let spares = [0, 1, 2, 2][random.below(4) as usize];
    let lease = if random.percent(60) { Lease::Log } else { Lease::Off };
    // Small enough for snapshot transfers, and for batches that are closed within a turn.
    let log_bytes = [200, 2_000, 1 << 20][random.below(3) as usize];
    let options = Options {
        lease,
        reads_any: false,
        log_bytes,
        spill_bytes_min: usize::MAX,
        is_bounded: false,
        planted,
    };
    // Not where another fault is planted: the seeds that find those faults are from schedules without it.
    let hands_over = planted == Planted::default() || planted.has(Fault::ResignedLeaderAnswers);
    let heartbeat_ms = [20, 80][random.below(2) as usize];
    let timing = Timing {
        heartbeat_ms,
        // Without it where a fault is planted: the seeds that find those faults are from schedules without it.
        rounds_in_step: planted == Planted::default() && seed.is_multiple_of(2),
        turn_bytes: if planted == Planted::default() && seed.is_multiple_of(3) { 1 } else { 1 << 20 },
        lease_ms: [2, 4, 8][random.below(3) as usize] * heartbeat_ms,
        lease_margin_ms: heartbeat_ms,
        silence_ms: 3 * heartbeat_ms,
        batch_bytes: [1, 60, 1 << 20][random.below(3) as usize],
        sync_bytes_max: [300, 1 << 20][random.below(2) as usize],
        chunk_bytes: [1, 40, 1 << 20][random.below(3) as usize],
        chunk_window: [1, 8][random.below(2) as usize],
        ..Timing::default()
    };
    let mut troubles = Troubles {
        lose: random.some(40, 15),
        duplicate: random.some(40, 20),
        delay: random.some(40, 20),
        delay_us: 20_000,
        overtake: random.some(40, 50),
        crash: random.some(60, 30),
        crash_all: random.some(20, 10),
        pause: random.some(40, 30),
        pause_us: 1_500_000,
        cut: random.some(40, 30),
        one_way: random.some(30, 30),
        checkpoint: random.some(50, 60),
        every_us: 60_000,
        ..Troubles::default()
    };
    let mut own = Own {
        spoil: random.some(30, 20),
        loses_disks: random.some(40, 1) > 0,
        backup: random.some(60, 40),
        change: random.some(75, 20),
        hand_over: if hands_over { Random::new(!seed).some(50, 60) } else { 0 },
        spoiled: None,
        configurations: Vec::new(),
        values: 0,
        states: BTreeMap::new(),
    };
    troubles.slow_disk = random.some(40, 30);
    troubles.jump = random.some(40, 60);
    let clients = 2 + random.below(4) as usize;
    let mut world = World::new(members, options, timing).with_spares(spares);
    own.configurations.push(world.configuration.clone());
    // Within the margin: leases and margins are measured by clocks that differ by less.
    let drifts = random.percent(50);
    for id in world.members() {
        let ppm = random.below(80_000) as i64 - 40_000;
        world.clock_mut(id).drift_ppm = if drifts { ppm } else { 0 };
    }
    let pace = Pace {
        clients,
        think_us: 40_000,
        timeouts_us: [20_000, 200_000, 1_000_000],
        settle_us: 0,
        lasts_us: 1000 * heartbeat_ms * (20 + random.below(60)),
        tick_us: 100_000,
        peace_us: 3_000_000,
    };
    Schedule::new(random, world, (troubles, pace), own, prints)
}

impl Scheduled for Consensus {
    type Event = Configure;
    type Own = Own;

    const NOTICES_LINKS: bool = false;

    fn question(schedule: &mut Schedule<Consensus>, _client: u64) -> Option<Question> {
        let (key, roll) = (format!("key{}", schedule.random.below(2)), schedule.random.below(10));
        Some(match roll {
            0..=3 => {
                schedule.own.values += 1;
                Question::Set { key, value: format!("value{}", schedule.own.values) }
            }
            4 => Question::Add { key: "counter".into() },
            _ => Question::Get { keys: vec![key] },
        })
    }

    /// All replicas go through the same states.
    fn look(
        schedule: &mut Schedule<Consensus>,
        id: NodeId,
        _letter: Option<&Letter>,
        consequences: &mut Consequences,
    ) -> Check {
        let reveals = |trace: &Trace| matches!(trace, Trace::Committed { .. } | Trace::Installed { .. });
        let (Some(replica), Some(status)) = (schedule.world.replica(id), schedule.world.status(id)) else {
            return Ok(());
        };
        if !consequences.traces.iter().any(reveals) {
            return Ok(());
        }
        let digest = replica.table().digest();
        match schedule.own.states.insert(status.applied, digest) {
            Some(before) if before != digest => {
                Err(format!("node {id} is in another state at offset {} than others were", status.applied))
            }
            _ => Ok(()),
        }
    }

    fn node_of(event: &Configure) -> Option<NodeId> {
        Some(event.id)
    }

    fn happen(schedule: &mut Schedule<Consensus>, event: Configure) -> Check {
        schedule.configure(event.id, event.which)
    }

    fn may_crash(schedule: &Schedule<Consensus>, id: NodeId) -> bool {
        schedule.own.spoiled != Some(id) && !schedule.world.is_unused(id)
    }

    fn trouble(schedule: &mut Schedule<Consensus>, id: NodeId) -> Check {
        // The older a backup is, the more is forgotten with it. But a replica that believes to be alone asks no other.
        let is_alone = schedule.world.status(id).is_none_or(|status| status.members.len() < 2);
        if schedule.is(schedule.own.backup)
            && !is_alone
            && incarnations_in_backup(&schedule.world, id).is_none()
        {
            schedule.world.back_up(id);
        }
        if schedule.is(schedule.own.spoil) {
            schedule.spoil(id)?;
        }
        if schedule.own.change > 0 {
            schedule.tell_again()?;
        }
        if schedule.is(schedule.own.change) {
            schedule.change_members()?;
        }
        if schedule.own.hand_over > 0 && schedule.is(schedule.own.hand_over) {
            schedule.hand_over()?;
        }
        Ok(())
    }

    fn heal(schedule: &mut Schedule<Consensus>) -> Check {
        schedule.send_to_all()
    }

    fn mend(schedule: &mut Schedule<Consensus>) -> Check {
        schedule.mend()
    }

    fn is_whole(schedule: &Schedule<Consensus>) -> bool {
        schedule.is_whole()
    }
}

/// The incarnations that a node's backup knows of; `None` without a backup.
fn incarnations_in_backup(world: &World, id: NodeId) -> Option<u64> {
    let incarnations = changes(world.backup(id)?)
        .filter_map(|change| if let Change::Life { life, .. } = change { Some(life) } else { None });
    incarnations.last()
}

/// Whether the disks of all these other nodes hold, durably, the node's identity and that it has had this many
/// incarnations.
fn is_known(world: &World, id: NodeId, incarnations: u64, others: &[NodeId]) -> bool {
    let is_it = |voter: &Voter| voter.member.node == id && voter.identity.life >= incarnations;
    let knows = |other| {
        changes(world.disk(other)).any(|change| matches!(change, Change::Peer(voter) if is_it(&voter)))
    };
    others.iter().all(|other| *other == id || knows(*other))
}

/// The changes in a disk's records that a crash would leave.
fn changes(disk: &Disk) -> impl Iterator<Item = Change> {
    disk.durable_records()
        .flat_map(|record| Change::decode_all(record).expect("replicas write what can be read"))
}
