//! The `blocking` part of random schedules: replicas that lose their memory or their disks, and checks of the locks. At rest
//! every node answers, and every lock is free.

mod oracle;

use super::{Blocking, World};
use crate::kit::history::Question;
use crate::kit::random::Random;
use crate::kit::schedule::{Check, Ending, Pace, Schedule, Scheduled, Troubles};
use crate::kit::{Clock, Consequences, Letter};
use crate::registers::{Memory, are_equal, checkpoint, no_read_is_unknown};
use oracle::Oracle;
use protocol::blocking::{Options, Retry, Timing};
use protocol::contract::NodeId;
use protocol::planted::Planted;
use protocol::registers;
use std::convert::Infallible;

pub(crate) struct Own {
    oracle: Oracle,
    memory: Memory,
    checkpoint: u64,
    keys: Vec<String>,
    values: u64,
    lease_ms: u64,
}

/// The schedule of a seed, of a group with or without records. With `prints` it prints what happens.
pub(crate) fn schedule(
    seed: u64,
    keeps_records: bool,
    planted: Planted,
    (looks_inside, prints): (bool, bool),
) -> Schedule<Blocking> {
    let mut random = Random::new(seed);
    let nodes = [1, 3, 3, 3, 5][random.below(5) as usize];
    let retry = if random.percent(70) { Retry::Backoff } else { Retry::None };
    let timing = Timing {
        lease_ms: [15, 100, 1000][random.below(3) as usize],
        retry_ms: [5, 20][random.below(2) as usize],
        backoff_min_ms: 1,
        backoff_max_ms: 16,
        withdraw_ms: [5, 40][random.below(2) as usize],
        hold_ms: [20, 1000][random.below(2) as usize],
        batch_bytes: [1, 1 << 20][random.below(2) as usize],
        open_bytes_max: 1 << 20,
        upkeep: registers::Timing {
            retry_ms: 20,
            begin_grace_ms: 30,
            stall_ms: 60,
            sweep_ms: [10, 200][random.below(2) as usize],
            chunk_bytes: [1, 1 << 20][random.below(2) as usize],
            silence_ms: 500,
            collection_ms: 200,
            ..registers::Timing::default()
        },
    };
    let options = Options { retry, keeps_records, planted };
    let mut troubles = Troubles {
        lose: random.some(50, 15),
        duplicate: random.some(50, 15),
        delay: random.some(60, 30),
        delay_us: [2_000, 20_000, 200_000][random.below(3) as usize],
        overtake: random.some(60, 100),
        slow_disk: random.some(60, 20),
        syncs_at_once: random.percent(25),
        crash: random.some(50, 10),
        crash_all: random.some(20, 3),
        restart_us: 100_000,
        pause: random.some(40, 20),
        pause_us: 150_000,
        cut: random.some(30, 5),
        one_way: random.some(20, 5),
        noticed: 50,
        every_us: 10_000,
        ..Troubles::default()
    };
    let keys: Vec<String> = (0..1 + random.below(3)).map(|key| format!("k{key}")).collect();
    let mut world = World::new(nodes, options, timing).with_seed(seed);
    for id in world.members() {
        *world.clock_mut(id) = Clock {
            drift_ppm: (random.below(21) as i64 - 10) * 1000,
            ahead_us: random.below(1 << 40),
            unix_ahead_ms: random.below(10_000) as i64 + 1_000_000,
        };
    }
    troubles.link = random.some(40, 20);
    let own = Own {
        oracle: Oracle::new(keys.clone(), looks_inside),
        memory: Memory::new(&world, keeps_records, if keeps_records { 15 } else { 0 }),
        checkpoint: random.some(50, 20),
        keys,
        values: 0,
        lease_ms: timing.lease_ms,
    };
    let pace = Pace {
        clients: 1 + random.below(6) as usize,
        think_us: 8_000,
        timeouts_us: [10_000, 60_000, 500_000],
        // Most schedules begin with a settled group.
        settle_us: if random.percent(90) { 150_000 } else { 0 },
        lasts_us: 50_000 + random.below(400_000),
        tick_us: 10_000,
        // Longer than any request waits and any lock lasts.
        peace_us: (timing.lease_ms * 1200).max(600_000),
    };
    Schedule::new(random, world, (troubles, pace), own, prints)
}

impl Scheduled for Blocking {
    type Event = Infallible;
    type Own = Own;

    fn question(schedule: &mut Schedule<Blocking>, _client: u64) -> Option<Question> {
        let keys = schedule.own.keys.len() as u64;
        let key = schedule.own.keys[schedule.random.below(keys) as usize].clone();
        Some(match schedule.random.below(20) {
            0..=8 => Question::Get { keys: vec![key] },
            9 => Question::Delete { keys: vec![key] },
            _ => {
                schedule.own.values += 1;
                Question::Set { key, value: format!("v{}", schedule.own.values) }
            }
        })
    }

    fn look(
        schedule: &mut Schedule<Blocking>,
        id: NodeId,
        letter: Option<&Letter>,
        _consequences: &mut Consequences,
    ) -> Check {
        schedule.own.oracle.look(&schedule.world, id, letter)?;
        schedule.own.memory.look(&schedule.world, id);
        Ok(())
    }

    fn check_outcome(_schedule: &mut Schedule<Blocking>, ending: &Ending<'_>) -> Check {
        no_read_is_unknown(ending)
    }

    fn happen(_schedule: &mut Schedule<Blocking>, event: Infallible) -> Check {
        match event {}
    }

    fn may_crash(schedule: &Schedule<Blocking>, id: NodeId) -> bool {
        schedule.own.memory.may_crash(&schedule.world, id)
    }

    fn crashed(schedule: &mut Schedule<Blocking>, id: NodeId) -> Check {
        schedule.own.oracle.crash(id);
        schedule.own.memory.crash(&mut schedule.world, &mut schedule.random, id);
        Ok(())
    }

    fn flushed(schedule: &mut Schedule<Blocking>, id: NodeId) {
        schedule.own.memory.flushed(&schedule.world, id);
    }

    fn trouble(schedule: &mut Schedule<Blocking>, id: NodeId) -> Check {
        if schedule.is(schedule.own.checkpoint) { checkpoint(schedule, id) } else { Ok(()) }
    }

    fn is_whole(schedule: &Schedule<Blocking>) -> bool {
        let is_ready = |id| schedule.world.status(id).is_some_and(|status| status.ready);
        are_equal(&schedule.world) && schedule.world.members().all(is_ready)
    }

    /// Every node answers, every lock is free, and the replicas become equal again.
    fn rest(schedule: &mut Schedule<Blocking>) -> Check {
        for id in schedule.world.members() {
            for key in schedule.own.keys.clone() {
                let value = format!("last {id}");
                schedule.must_do(id, Question::Set { key: key.clone(), value }, 15_000)?;
                schedule.must_do(id, Question::Get { keys: vec![key] }, 15_000)?;
            }
        }
        schedule.run_for(10_000)?;
        if schedule.own.lease_ms >= 1000 {
            schedule.own.oracle.locks_are_free(&schedule.world)?;
        }
        schedule.becomes_whole()
    }
}
