//! The abd part of random schedules: clients that send requests before earlier ones are answered, slow links, replicas that
//! lose their memory or their disks. At the end a majority is left alone, which must do every request. At rest no tombstone
//! is left.

mod loss;

use super::{Abd, World};
use crate::kit::history::Question;
use crate::kit::random::Random;
use crate::kit::schedule::{Check, Ending, Pace, Schedule, Scheduled, Troubles};
use crate::kit::{Consequences, Letter, show};
use crate::registers::{Memory, are_equal, checkpoint, has_memory, no_read_is_unknown, register};
use kv::{Reply, Version};
use protocol::abd::{Options, Timing};
use protocol::contract::{NodeId, Result as Outcome};
use protocol::planted::Planted;
use protocol::{Ticket, Trace, registers};
use std::collections::BTreeSet;
use std::convert::Infallible;

const KEYS: [&str; 2] = ["a", "b"];

/// Longer than any client waits.
const LONG_US: u64 = 600_000;

pub(crate) struct Own {
    memory: Memory,
    /// Percent of requests that are sent before the client's previous one is answered.
    pipelined: u64,
    deletes: u64,
    /// Percent of requests that are reads, and the number of keys used.
    reads: u64,
    keys: u64,
    values: u64,
    // In percent of the moments at which something may go wrong ...
    checkpoint: u64,
    backup: u64,
    /// ... a node crashes while its acknowledgement is under way.
    acknowledger: u64,
    /// ... a node acknowledges an update that no other node has got, and forgets it.
    forget: u64,
}

/// The schedule of a seed, of a group with or without records. With `prints` it prints what happens.
pub(crate) fn schedule(seed: u64, keeps_records: bool, planted: Planted, prints: bool) -> Schedule<Abd> {
    let mut random = Random::new(seed);
    let nodes = [3, 3, 3, 5, 5, 5, 5, 7, 1, 2, 4][random.below(11) as usize];
    let timing = Timing {
        upkeep: registers::Timing {
            retry_ms: 20,
            begin_grace_ms: 30,
            stall_ms: 60,
            sweep_ms: [10, 100, 1000][random.below(3) as usize],
            sweep_keys: [1, 256][random.below(2) as usize],
            clock_error_ms: 60_000,
            collection_ms: 200,
            chunk_bytes: [1, 60, 1 << 20][random.below(3) as usize],
            chunk_window: [1, 8][random.below(2) as usize],
            silence_ms: 500,
        },
        retry_ms: [10, 50][random.below(2) as usize],
        batch_bytes: [1, 60, 1 << 20][random.below(3) as usize],
        window_bytes: [300, 1 << 20][random.below(2) as usize],
        ..Timing::default()
    };
    let troubles = Troubles {
        lose: random.some(60, 15),
        duplicate: random.some(50, 10),
        delay: random.some(60, 20),
        delay_us: [2_000, 20_000, 200_000][random.below(3) as usize],
        overtake: random.some(60, 100),
        slow_disk: random.some(60, 20),
        syncs_at_once: random.percent(25),
        crash: random.some(60, 15),
        crash_all: random.some(20, 3),
        restart_us: 100_000,
        pause: random.some(40, 10),
        pause_us: 300_000,
        cut: random.some(40, 5),
        one_way: random.some(20, 5),
        link: random.some(50, 15),
        noticed: [0, 50, 100][random.below(3) as usize],
        slow: slow_links(&mut random, nodes),
        jump: random.some(30, 10),
        every_us: 10_000,
        ..Troubles::default()
    };
    let world = World::new(nodes, Options { keeps_records, planted }, timing).with_seed(seed);
    let own = Own {
        memory: Memory::new(&world, keeps_records, [0, 0, 30][random.below(3) as usize]),
        keys: [1, 1, 2][random.below(3) as usize],
        reads: [30, 50, 80][random.below(3) as usize],
        pipelined: [0, 30][random.below(2) as usize],
        deletes: [0, 0, 10, 40][random.below(4) as usize],
        values: 0,
        checkpoint: random.some(50, 20),
        backup: random.some(60, 10),
        acknowledger: random.some(50, 10),
        forget: random.some(30, 10),
    };
    let pace = Pace {
        clients: 2 + random.below(6) as usize,
        think_us: 10_000,
        timeouts_us: [30_000, 150_000, 400_000],
        // Most schedules begin with a settled group.
        settle_us: if random.percent(80) { 150_000 } else { 0 },
        lasts_us: 100_000 + random.below(700_000),
        tick_us: 20_000,
        peace_us: LONG_US,
    };
    Schedule::new(random, world, (troubles, pace), own, prints)
}

/// Many schedules have slow links: some at random, or nearly all from and to one node, so that the operations it
/// coordinates take long while other nodes make progress.
fn slow_links(random: &mut Random, nodes: NodeId) -> BTreeSet<(NodeId, NodeId)> {
    let share = [0, 0, 20, 40, 60, 80][random.below(6) as usize];
    let lonely = if share == 80 { 1 + random.below(u64::from(nodes)) as NodeId } else { 0 };
    let pairs = (1..=nodes).flat_map(|from| (1..=nodes).map(move |to| (from, to)));
    let may_be_slow = |(from, to): &(NodeId, NodeId)| lonely == 0 || [*from, *to].contains(&lonely);
    pairs.filter(may_be_slow).filter(|_| random.percent(share)).collect()
}

impl Scheduled for Abd {
    type Event = Infallible;
    type Own = Own;

    const IN_ORDER: bool = true;

    fn question(schedule: &mut Schedule<Abd>, client: u64) -> Option<Question> {
        /// The limit before the end: more operations would only make the check slow.
        const OPERATIONS_MAX: u64 = 400;
        let waiting = schedule.open_at(client).count();
        let (random, own) = (&mut schedule.random, &mut schedule.own);
        if waiting > 0 && (waiting > 3 || !random.percent(own.pipelined))
            || !schedule.is_calm && schedule.recorder.count() >= OPERATIONS_MAX
        {
            return None;
        }
        let key = KEYS[random.below(own.keys) as usize].into();
        let keys = if own.keys > 1 && random.percent(10) { KEYS.map(String::from).into() } else { vec![key] };
        Some(match random.percent(own.reads) {
            true => Question::Get { keys },
            false if random.percent(own.deletes) => Question::Delete { keys },
            false => {
                own.values += 1;
                Question::Set { key: keys[0].clone(), value: format!("value{}", own.values) }
            }
        })
    }

    /// A client keeps to the node at which it has open requests.
    fn node(schedule: &mut Schedule<Abd>, client: u64) -> NodeId {
        let asked = schedule.open_at(client).next();
        asked.unwrap_or_else(|| schedule.any_node())
    }

    fn session(schedule: &Schedule<Abd>, ticket: Ticket) -> (bool, u64) {
        (schedule.follows(ticket), 0)
    }

    fn look(
        schedule: &mut Schedule<Abd>,
        id: NodeId,
        _letter: Option<&Letter>,
        consequences: &mut Consequences,
    ) -> Check {
        schedule.own.memory.look(&schedule.world, id);
        match consequences.traces.iter().find(|trace| matches!(trace, Trace::Rejected { .. })) {
            Some(rejected) => Err(format!("node {id} {}", show::trace(rejected))),
            None => Ok(()),
        }
    }

    fn check_outcome(schedule: &mut Schedule<Abd>, ending: &Ending<'_>) -> Check {
        no_read_is_unknown(ending)?;
        let Outcome::Done { version, .. } = *ending.result else { return Ok(()) };
        match ending.question {
            Question::Set { key, .. } => schedule.is_held(key, version),
            Question::Get { keys } if matches!(Reply::first(ending.reply), Reply::Bulk(_)) => {
                schedule.is_held(&keys[0], version)
            }
            _ => Ok(()),
        }
    }

    fn happen(_schedule: &mut Schedule<Abd>, event: Infallible) -> Check {
        match event {}
    }

    fn may_crash(schedule: &Schedule<Abd>, id: NodeId) -> bool {
        schedule.own.memory.may_crash(&schedule.world, id)
    }

    fn crashed(schedule: &mut Schedule<Abd>, id: NodeId) -> Check {
        schedule.own.memory.crash(&mut schedule.world, &mut schedule.random, id);
        Ok(())
    }

    fn flushed(schedule: &mut Schedule<Abd>, id: NodeId) {
        schedule.own.memory.flushed(&schedule.world, id);
    }

    fn trouble(schedule: &mut Schedule<Abd>, id: NodeId) -> Check {
        if schedule.is(schedule.own.backup) {
            schedule.world.back_up(id);
        }
        if schedule.is(schedule.own.checkpoint) {
            checkpoint(schedule, id)?;
        }
        if schedule.is(schedule.own.acknowledger) {
            let acknowledges = |letter: &&Letter| letter.kinds::<Abd>().contains(&"Held");
            let senders: Vec<NodeId> =
                schedule.under_way().filter(acknowledges).map(|letter| letter.from).collect();
            if let Some(sender) = schedule.random.pick(&senders).filter(|id| Abd::may_crash(schedule, *id)) {
                schedule.crash(sender)?;
            }
        }
        if schedule.is(schedule.own.forget) { schedule.crash_after_acknowledging() } else { Ok(()) }
    }

    /// A majority of members with their memory is left alone, the others stay away: the majority must do every request.
    fn calm(schedule: &mut Schedule<Abd>) -> Check {
        let members = schedule.world.members().count();
        let mut others: Vec<NodeId> = schedule.world.members().collect();
        let mut together: Vec<NodeId> =
            others.iter().copied().filter(|id| has_memory(&schedule.world, *id)).collect();
        if together.len() <= members / 2 {
            return Ok(());
        }
        while together.len() > members / 2 + 1 {
            together.remove(schedule.random.below(together.len() as u64) as usize);
        }
        schedule.tell(|| format!("{together:?} are left alone"));
        // In every other schedule, messages under way stay so until the end, and then arrive very late.
        if schedule.recorder.count().is_multiple_of(2) {
            schedule.arrive_in(4 * LONG_US, |_| true);
        }
        others.retain(|id| !together.contains(id));
        schedule.mend_links()?;
        for other in others {
            for id in schedule.world.members().filter(|id| *id != other) {
                schedule.set_link(id, other, false, false)?;
            }
        }
        schedule.run_for(LONG_US)?;
        for id in together {
            for _ in 0..3 {
                if let Some(question) = Abd::question(schedule, 0) {
                    schedule.must_do(id, question, 20_000)?;
                }
            }
        }
        Ok(())
    }

    fn heal(schedule: &mut Schedule<Abd>) -> Check {
        schedule.arrive_in(0, |_| true);
        Ok(())
    }

    fn is_whole(schedule: &Schedule<Abd>) -> bool {
        let world = &schedule.world;
        let mut tables = world.members().filter_map(|id| world.table(id));
        let is_ready = |id| world.status(id).is_some_and(|status| status.explanation.is_empty());
        are_equal(world) && world.members().all(is_ready) && tables.all(|table| table.tombstones() == 0)
    }

    fn rest(schedule: &mut Schedule<Abd>) -> Check {
        for id in schedule.world.members() {
            for key in KEYS {
                schedule.must_do(id, Question::Get { keys: vec![key.into()] }, 20_000)?;
            }
        }
        Ok(())
    }
}

impl Schedule<Abd> {
    /// An acknowledged value is held by a majority, except for those of its members that have lost their memory since and
    /// are not ready again. So only a minority of the ready members can lack it.
    fn is_held(&self, key: &str, version: Version) -> Check {
        let ready = self.world.members().filter(|id| has_memory(&self.world, *id));
        let holds = |id: NodeId| register(&self.world, id, key).is_some_and(|it| it.version >= version);
        let without: Vec<NodeId> = ready.filter(|id| !holds(*id)).collect();
        match without.len() > (self.world.members().count() - 1) / 2 {
            true => {
                Err(format!("{key} was acknowledged with version {version}, and {without:?} do not hold it"))
            }
            false => Ok(()),
        }
    }
}
