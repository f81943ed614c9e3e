//! What random schedules of `blocking` have besides what all have: replicas that lose their memory or their disks, links of
//! which nodes are told that they broke, and a look at the locks. At rest every node answers, and every lock is free.

mod oracle;

use super::{Blocking, World};
use crate::kit::history::Question;
use crate::kit::random::Random;
use crate::kit::schedule::{Check, Pace, Schedule, Scheduled, Troubles};
use crate::kit::{Clock, Consequences, Letter};
use crate::registers::has_memory;
use oracle::Oracle;
use protocol::blocking::{Options, Retry, Timing};
use protocol::contract::{NodeId, Result as Outcome};
use protocol::planted::Planted;
use protocol::registers;
use std::collections::BTreeSet;

/// A node that has crashed starts again.
pub(crate) struct Restart(NodeId);

pub(crate) struct Own {
    oracle: Oracle,
    keeps_records: bool,
    /// Of moments at which something may go wrong, in so many percent a link breaks, or comes up again.
    link: u64,
    checkpoint: u64,
    /// Nodes that do not hold yet what they must, since they have just begun or have lost it.
    damaged: BTreeSet<NodeId>,
    /// Nodes that have written that they vouch for what they hold.
    vouching: BTreeSet<NodeId>,
    keys: Vec<String>,
    values: u64,
    lease_ms: u64,
}

/// The schedule of a seed, of a group that keeps records or of one that does not. With `tells` it prints what happens.
pub(crate) fn schedule(
    seed: u64,
    keeps_records: bool,
    planted: Planted,
    (looks_inside, tells): (bool, bool),
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
    let troubles = Troubles {
        lose: random.some(50, 15),
        duplicate: random.some(50, 15),
        delay: random.some(60, 30),
        delay_us: [2_000, 20_000, 200_000][random.below(3) as usize],
        overtake: random.some(60, 100),
        slow_disk: random.some(60, 20),
        syncs_at_once: random.percent(25),
        crash: random.some(50, 10),
        crash_all: random.some(20, 3),
        pause: random.some(40, 20),
        pause_us: 150_000,
        cut: random.some(30, 5),
        one_way: random.some(20, 5),
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
    let own = Own {
        oracle: Oracle::new(keys.clone(), looks_inside),
        keeps_records,
        link: random.some(40, 20),
        checkpoint: random.some(50, 20),
        damaged: world.members().collect(),
        vouching: BTreeSet::new(),
        keys,
        values: 0,
        lease_ms: timing.lease_ms,
    };
    let pace = Pace {
        clients: 1 + random.below(6) as usize,
        think_us: 8_000,
        timeouts_us: [10_000, 60_000, 500_000],
        // Most schedules begin with a group in order.
        settle_us: if random.percent(90) { 150_000 } else { 0 },
        lasts_us: 50_000 + random.below(400_000),
        tick_us: 10_000,
        // Longer than any request waits, and than any lock lasts.
        peace_us: (timing.lease_ms * 1200).max(600_000),
    };
    Schedule::new(random, world, (troubles, pace), own, tells)
}

impl Scheduled for Blocking {
    type Event = Restart;
    type Own = Own;

    fn question(schedule: &mut Schedule<Blocking>) -> Question {
        let keys = schedule.own.keys.len() as u64;
        let key = schedule.own.keys[schedule.random.below(keys) as usize].clone();
        match schedule.random.below(20) {
            0..=8 => Question::Get { key },
            9 => Question::Delete { key },
            _ => {
                schedule.own.values += 1;
                Question::Set { key, value: format!("v{}", schedule.own.values) }
            }
        }
    }

    fn look(
        schedule: &mut Schedule<Blocking>,
        id: NodeId,
        letter: Option<&Letter>,
        _consequences: &Consequences,
    ) -> Check {
        let (world, own) = (&schedule.world, &mut schedule.own);
        own.oracle.look(world, id, letter)?;
        // What it vouches for has to outlive the next crash, or it is as damaged as it was.
        let is_safe = !own.keeps_records || own.vouching.contains(&id) && world.is_synced(id);
        if has_memory(world, id) && is_safe {
            own.damaged.remove(&id);
        }
        Ok(())
    }

    fn may_be_told(question: &Question, result: &Outcome) -> Check {
        match (question, result) {
            (Question::Get { .. }, Outcome::Unknown) => Err("a read's outcome is unknown".into()),
            _ => Ok(()),
        }
    }

    fn happen(schedule: &mut Schedule<Blocking>, Restart(id): Restart) -> Check {
        if schedule.world.is_alive(id) { Ok(()) } else { schedule.start(id) }
    }

    /// Without records a crash takes the memory: a minority may be without it.
    fn may_crash(schedule: &Schedule<Blocking>, id: NodeId) -> bool {
        schedule.own.keeps_records || !schedule.world.is_alive(id) || may_lose_memory(schedule, id)
    }

    fn crashed(schedule: &mut Schedule<Blocking>, id: NodeId) -> Check {
        schedule.own.oracle.crash(id);
        schedule.own.vouching.remove(&id);
        let loses_disk =
            schedule.own.keeps_records && may_lose_memory(schedule, id) && schedule.random.percent(15);
        if loses_disk {
            schedule.tell(|| format!("{id} loses its disk"));
            schedule.world.lose_disk(id);
        }
        if loses_disk || !schedule.own.keeps_records {
            schedule.own.damaged.insert(id);
        }
        let restart_us = schedule.random.below(100_000);
        schedule.own_later(restart_us, Restart(id));
        Ok(())
    }

    fn started(schedule: &mut Schedule<Blocking>, id: NodeId) -> Check {
        for peer in schedule.world.alive().into_iter().filter(|peer| *peer != id) {
            if !schedule.cut.contains(&(id, peer)) {
                hint(schedule, id, peer, true)?;
            }
        }
        Ok(())
    }

    fn flushed(schedule: &mut Schedule<Blocking>, id: NodeId) {
        if has_memory(&schedule.world, id) {
            schedule.own.vouching.insert(id);
        }
    }

    fn trouble(schedule: &mut Schedule<Blocking>, id: NodeId) -> Check {
        if schedule.is(schedule.own.link) {
            let peer = schedule.any_node();
            let up = schedule.cut.contains(&(id, peer));
            for link in [(id, peer), (peer, id)].into_iter().filter(|_| id != peer) {
                if up {
                    schedule.cut.remove(&link)
                } else {
                    schedule.cut.insert(link)
                };
            }
            // A broken link is not always noticed; a new one always is.
            if id != peer && (up || schedule.random.percent(50)) {
                hint(schedule, id, peer, up)?;
            }
        }
        if schedule.is(schedule.own.checkpoint) && schedule.world.is_alive(id) && !schedule.is_paused(id) {
            schedule.flush(id)?;
            let chunk_bytes = [1, 1 << 20][schedule.random.below(2) as usize];
            schedule.world.checkpoint(id, chunk_bytes);
        }
        Ok(())
    }

    fn heal(schedule: &mut Schedule<Blocking>) -> Check {
        for id in schedule.world.members() {
            for peer in schedule.world.members().filter(|peer| *peer > id) {
                hint(schedule, id, peer, true)?;
            }
        }
        Ok(())
    }

    fn is_whole(schedule: &Schedule<Blocking>) -> bool {
        let world = &schedule.world;
        let digests: BTreeSet<Option<u64>> =
            world.members().map(|id| world.table(id).map(kv::Table::digest)).collect();
        let is_ready = |id| world.status(id).is_some_and(|status| status.ready);
        digests.len() == 1 && world.members().all(is_ready)
    }

    /// Every node answers, every lock is free, and the replicas become equal again.
    fn rest(schedule: &mut Schedule<Blocking>) -> Check {
        for id in schedule.world.members() {
            for key in schedule.own.keys.clone() {
                let value = format!("last {id}");
                schedule.must_do(id, Question::Set { key: key.clone(), value }, 15_000)?;
                schedule.must_do(id, Question::Get { key }, 15_000)?;
            }
        }
        schedule.run_for(10_000)?;
        if schedule.own.lease_ms >= 1000 {
            schedule.own.oracle.locks_are_free(&schedule.world)?;
        }
        for _ in 0..50 {
            if Blocking::is_whole(schedule) {
                return Ok(());
            }
            schedule.run_for(100_000)?;
        }
        Err("the replicas do not become equal".into())
    }
}

/// What is promised: a minority may be without memory at one time.
fn may_lose_memory(schedule: &Schedule<Blocking>, id: NodeId) -> bool {
    let damaged = &schedule.own.damaged;
    let survives = (schedule.world.members().count() - 1) / 2;
    damaged.len() + usize::from(!damaged.contains(&id)) <= survives
}

/// Both ends are told of their link.
fn hint(schedule: &mut Schedule<Blocking>, one: NodeId, other: NodeId, up: bool) -> Check {
    schedule.tell(|| format!("link {one}-{other} {}", if up { "up" } else { "down" }));
    for (id, peer) in [(one, other), (other, one)] {
        let consequences = schedule.world.hint(id, peer, up);
        schedule.note(id, None, consequences)?;
    }
    Ok(())
}
