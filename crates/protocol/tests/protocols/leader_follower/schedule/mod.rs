//! The leader-follower part of random schedules: a control group, replicas that lose their memory or their disks, stores of
//! spilled values, planted faults, and notices about reachable nodes, which need not be true.

pub(crate) mod control;
pub(crate) mod oracle;
pub(crate) mod plant;

use super::{LeaderFollower, World, give_values};
use crate::kit::history::Question;
use crate::kit::random::Random;
use crate::kit::schedule::{Check, Ending, Pace, Schedule, Scheduled, Troubles};
use crate::kit::{Consequences, Letter};
use control::Control;
use oracle::{COUNTER, FLEETING, KEYS, Oracle};
use plant::Plant;
use protocol::Ticket;
use protocol::contract::{NodeId, Result as Outcome};
use protocol::leader_follower::{Acks, Durability, Options, Status, Timing};
use protocol::planted::Fault;
use std::collections::BTreeSet;

/// Values from `value10` on.
const SPILL_BYTES_MIN: usize = 7;

const CLIENTS: usize = 3;

pub(crate) enum Event {
    /// The control group does what is due.
    Control,
    /// A node's store has read the values for which snapshots wait.
    Read(NodeId),
}

pub(crate) struct Own {
    oracle: Oracle,
    control: Control,
    acks: Acks,
    reads_any: bool,
    keeps_records: bool,
    /// Nodes that lost their memory and are not known to have recovered it.
    damaged: BTreeSet<NodeId>,
    /// The newest write that each client knows of.
    seen: [u64; CLIENTS],
    values: u64,
    plant: Option<Plant>,
    spills: bool,
    /// Whether nodes get notices about reachable nodes.
    reaches: bool,
    depose: u64,
    hand_over: u64,
    /// Of crashes of replicas with records, this percentage loses the disk.
    wipe: u64,
}

impl Own {
    /// With `acks = none` a new leader may begin another history.
    fn forget_promises(&mut self) {
        self.oracle.forget_promises();
        if self.acks == Acks::None {
            self.seen = [0; CLIENTS];
        }
    }
}

/// The schedule of a seed. With `spills` most values are kept outside the tables. With `prints` it prints what happens.
pub(crate) fn schedule(
    seed: u64,
    plant: Option<Plant>,
    spills: bool,
    prints: bool,
) -> Schedule<LeaderFollower> {
    let mut random = Random::new(seed);
    let nodes = if random.percent(60) { 3 } else { 5 };
    let acks = match random.below(5) {
        0 => Acks::None,
        1 => Acks::Count(1),
        2 | 3 => Acks::Majority,
        _ => Acks::All,
    };
    // Small enough for snapshot transfers, batches that are closed within a turn, and waiting for slow followers.
    let options = Options {
        acks,
        reads_any: random.percent(50),
        backlog_bytes: [200, 2_000, 1 << 20][random.below(3) as usize],
        spill_bytes_min: if spills { SPILL_BYTES_MIN } else { usize::MAX },
        durability: if random.percent(50) { Durability::Fsync } else { Durability::None },
        planted: plant.map(Plant::in_replica).unwrap_or_default(),
    };
    let timing = Timing {
        batch_bytes: [1, 60, 1 << 20][random.below(3) as usize],
        window_bytes: [100, 1 << 20][random.below(2) as usize],
        uncommitted_bytes_max: [2_000, 1 << 20][random.below(2) as usize],
        chunk_bytes: [1, 40, 1 << 20][random.below(3) as usize],
        chunk_window: [1, 8][random.below(2) as usize],
        transfer_backlog_bytes_max: [500, 1 << 20][random.below(2) as usize],
        lazy_send_ms: [0, 0, 0, 1, 2][random.below(5) as usize],
        // Followers leave the in-sync set and return within a short time.
        heartbeat_ms: [20, 100][random.below(2) as usize],
        in_sync_silence_ms: [40, 150, 300][random.below(3) as usize],
        in_sync_request_ms: [20, 100][random.below(2) as usize],
        ..Timing::default()
    };
    // Not where a fault is planted: the seeds that find it are from schedules without these.
    let timing = match plant {
        None => Timing {
            catch_up_bytes: [50, 4 << 20][(seed / 2 % 2) as usize],
            turn_bytes: [1, 1 << 20][(seed % 2) as usize],
            ..timing
        },
        Some(_) => timing,
    };
    let troubles = Troubles {
        lose: random.some(50, 10),
        duplicate: random.some(50, 10),
        delay: random.some(50, 20),
        delay_us: [2_000, 20_000, 200_000][random.below(3) as usize],
        overtake: random.some(50, 50),
        slow_disk: random.some(50, 50),
        crash: random.some(60, 15),
        crash_all: random.some(30, 3),
        restart_us: [0, 100_000][random.below(2) as usize],
        pause: random.some(50, 10),
        pause_us: 600_000,
        cut: random.some(50, 10),
        one_way: random.some(30, 10),
        link: random.some(50, 10),
        noticed: [0, 50, 100][random.below(3) as usize],
        checkpoint: random.some(60, 60),
        jump: random.some(50, 10),
        every_us: 20_000,
        ..Troubles::default()
    };
    let mut world = World::new(nodes, options, timing).with_seed(seed);
    if random.percent(50) {
        const DRIFT_PPM: u64 = 40_000; // Of two clocks, one may gain nearly a tenth on the other.
        for id in world.members() {
            let drift = random.below(2 * DRIFT_PPM) as i64 - DRIFT_PPM as i64;
            world.clock_mut(id).drift_ppm = drift;
        }
    }
    // The seeds that find other faults were searched without handovers.
    let hands_over = matches!(plant, None | Some(Plant::InReplica(Fault::ResignedLeaderAnswers)));
    let own = Own {
        oracle: Oracle::new(acks, acks.needed(&world.configuration)),
        control: Control::new(plant.and_then(Plant::in_control)),
        acks,
        reads_any: options.reads_any,
        keeps_records: options.durability != Durability::None,
        damaged: BTreeSet::new(),
        seen: [0; CLIENTS],
        values: 0,
        plant,
        spills,
        reaches: random.percent(50),
        depose: random.some(60, 10),
        hand_over: if hands_over { Random::new(!seed).some(50, 60) } else { 0 },
        wipe: [0, 10, 50][random.below(3) as usize],
    };
    let pace = Pace {
        clients: CLIENTS,
        think_us: 20_000,
        timeouts_us: [20_000, 100_000, 500_000],
        // Most schedules begin with a settled group, some with one that is just beginning.
        settle_us: if random.percent(80) { 200_000 } else { 0 },
        lasts_us: 100_000 + random.below(900_000),
        tick_us: 20_000,
        peace_us: 700_000,
    };
    let mut schedule = Schedule::new(random, world, (troubles, pace), own, prints);
    schedule.own_later(0, Event::Control);
    schedule
}

impl Scheduled for LeaderFollower {
    type Event = Event;
    type Own = Own;

    fn question(schedule: &mut Schedule<LeaderFollower>, _client: u64) -> Option<Question> {
        let (random, own) = (&mut schedule.random, &mut schedule.own);
        let key = KEYS[random.below(KEYS.len() as u64) as usize].into();
        Some(match random.below(20) {
            0..=8 => {
                own.values += 1;
                Question::Set { key, value: format!("value{}", own.values) }
            }
            9..=11 => Question::Add { key: COUNTER.into() },
            12 => Question::Expiring { key: FLEETING.into(), ms: 1 + random.below(200) as i64 },
            13 => Question::Wait { count: 1 + random.below(3) as u32 },
            _ => Question::Get { keys: vec![key] },
        })
    }

    /// Mostly a node that believes to be the leader, deposed or not.
    fn node(schedule: &mut Schedule<LeaderFollower>, _client: u64) -> NodeId {
        let leads = |id: &NodeId| schedule.world.status(*id).is_some_and(|status| status.role == "leader");
        let leaders: Vec<NodeId> = schedule.world.members().filter(leads).collect();
        let leader = schedule.random.pick(&leaders).filter(|_| schedule.random.percent(85));
        leader.unwrap_or_else(|| schedule.any_node())
    }

    fn session(schedule: &Schedule<LeaderFollower>, ticket: Ticket) -> (bool, u64) {
        (schedule.follows(ticket), schedule.own.seen[ticket.client as usize])
    }

    fn asked(schedule: &mut Schedule<LeaderFollower>, ticket: Ticket, question: &Question) {
        schedule.own.oracle.ask(ticket, question);
    }

    fn look(
        schedule: &mut Schedule<LeaderFollower>,
        id: NodeId,
        _letter: Option<&Letter>,
        consequences: &mut Consequences,
    ) -> Check {
        if let Some(plant) = schedule.own.plant {
            let statuses = schedule.world.alive().into_iter().filter_map(|id| schedule.world.status(id));
            let leaders = statuses.filter(|status| status.role == "leader");
            let head = leaders.map(|status| status.offset).max().unwrap_or(0);
            consequences.letters.iter_mut().for_each(|letter| plant.spoil(letter, head));
        }
        schedule.own.control.receive(std::mem::take(&mut consequences.control_requests));
        // The tables first: an outcome must not reveal what no replica may show yet.
        schedule.own.oracle.look(&schedule.world, id, &consequences.traces)?;
        if schedule.world.beside(id).is_wanted() {
            let delay_us = schedule.random.below(3_000);
            schedule.own_later(delay_us, Event::Read(id));
        }
        schedule.notice_repair();
        schedule.check_in_sync()
    }

    fn check_outcome(schedule: &mut Schedule<LeaderFollower>, ending: &Ending<'_>) -> Check {
        let status = ending.by.and_then(|id| schedule.world.status(id));
        schedule.own.oracle.answer(ending, status.is_some_and(|status| status.role == "leader"))?;
        if let Outcome::Done { offset, .. } = *ending.result {
            let seen = &mut schedule.own.seen[ending.ticket.client as usize];
            *seen = offset.max(*seen);
        }
        schedule.check_in_sync()
    }

    fn is_linearizable(schedule: &Schedule<LeaderFollower>) -> bool {
        schedule.own.acks != Acks::None && !schedule.own.reads_any
    }

    fn node_of(event: &Event) -> Option<NodeId> {
        if let Event::Read(id) = event { Some(*id) } else { None }
    }

    fn happen(schedule: &mut Schedule<LeaderFollower>, event: Event) -> Check {
        match event {
            Event::Control => schedule.control(),
            Event::Read(id) => {
                let consequences = give_values(&mut schedule.world, id);
                schedule.note(id, None, consequences)
            }
        }
    }

    fn trouble(schedule: &mut Schedule<LeaderFollower>, id: NodeId) -> Check {
        if schedule.is(schedule.own.depose) {
            schedule.own.control.depose();
        }
        if schedule.own.hand_over > 0 && schedule.is(schedule.own.hand_over) {
            schedule.hand_over()?;
        }
        let (peer, is_reached) = (schedule.any_node(), schedule.random.percent(80));
        schedule.reach(id, peer, is_reached);
        if schedule.own.spills && schedule.random.percent(70) {
            const CHUNK_BYTES: usize = 50;
            schedule.world.checkpoint(id, CHUNK_BYTES);
        }
        Ok(())
    }

    fn may_crash(schedule: &Schedule<LeaderFollower>, id: NodeId) -> bool {
        schedule.own.keeps_records || !schedule.world.is_alive(id) || schedule.may_lose_memory(id)
    }

    fn crashed(schedule: &mut Schedule<LeaderFollower>, id: NodeId) -> Check {
        let loses_disk = schedule.random.percent(schedule.own.wipe) && schedule.may_lose_memory(id);
        if loses_disk || !schedule.own.keeps_records {
            schedule.tell(|| format!("{id} loses its memory"));
            schedule.world.wipe(id);
            schedule.own.damaged.insert(id);
        }
        if id == schedule.world.configuration.leader {
            schedule.own.forget_promises();
        }
        Ok(())
    }

    fn start(schedule: &mut Schedule<LeaderFollower>, id: NodeId) -> Consequences {
        schedule.world.restart(id);
        schedule.admit(id)
    }

    fn heal(schedule: &mut Schedule<LeaderFollower>) -> Check {
        for id in schedule.world.members() {
            for peer in schedule.world.members() {
                schedule.reach(id, peer, true);
            }
        }
        Ok(())
    }

    fn is_whole(schedule: &Schedule<LeaderFollower>) -> bool {
        let world = &schedule.world;
        let statuses: Vec<Status> = world.members().filter_map(|id| world.status(id)).collect();
        let digests: BTreeSet<Option<u64>> =
            world.members().map(|id| world.table(id).map(kv::Table::digest)).collect();
        let offsets: BTreeSet<u64> =
            statuses.iter().flat_map(|status| [status.offset, status.applied]).collect();
        statuses.iter().all(|status| status.ready) && digests.len() == 1 && offsets.len() == 1
    }

    /// Checks that everything acknowledged is present at all nodes.
    fn rest(schedule: &mut Schedule<LeaderFollower>) -> Check {
        schedule.becomes_whole()?;
        schedule.own.oracle.settle(&mut schedule.world)
    }
}

impl Schedule<LeaderFollower> {
    /// A node gets a notice that it reaches a peer, or does not.
    fn reach(&mut self, id: NodeId, peer: NodeId, is_reached: bool) {
        if id != peer && self.own.reaches {
            self.tell(|| format!("{id} {} {peer}", if is_reached { "reaches" } else { "misses" }));
            self.world.reach(id, peer, is_reached);
        }
    }

    /// Checks that of the replicas that matter, no more are without memory at once than `acks` lets the group survive.
    fn may_lose_memory(&self, id: NodeId) -> bool {
        let configuration = &self.world.configuration;
        let survives = match self.own.acks {
            // The group loses writes, and reports that; the other promises must hold all the same.
            Acks::None => self.world.members().count() - 1,
            acks => acks.needed(configuration),
        };
        let matters = |id: &NodeId| self.own.acks != Acks::All || configuration.in_sync.contains(id);
        let mut without = self.own.damaged.clone();
        without.insert(id);
        without.iter().filter(|id| matters(id)).count() <= survives
    }

    /// `acks = all`: each member of the map's in-sync set holds everything that was acknowledged.
    fn check_in_sync(&self) -> Check {
        if self.own.acks != Acks::All {
            return Ok(());
        }
        let in_sync = self.world.configuration.in_sync.iter().filter(|id| !self.own.damaged.contains(id));
        for id in in_sync {
            let Some(status) = self.world.status(*id) else { continue };
            let acknowledged = self.own.oracle.acknowledged();
            if status.offset < acknowledged {
                let held = status.offset;
                return Err(format!(
                    "{id} is called in sync, holds {held}, and {acknowledged} was acknowledged"
                ));
            }
        }
        Ok(())
    }

    /// A damaged node is whole again when it holds what a leader that serves holds, and a crash would leave that on its
    /// disk.
    fn notice_repair(&mut self) {
        if self.own.damaged.is_empty() {
            return;
        }
        let Some(leader) = self.world.status(self.world.configuration.leader) else { return };
        if leader.role != "leader" || !leader.ready || leader.epoch != self.world.configuration.epoch {
            return;
        }
        let world = &self.world;
        self.own.damaged.retain(|id| {
            let in_step = |status: Status| {
                status.ready && status.epoch == leader.epoch && status.offset >= leader.offset
            };
            !(world.status(*id).is_some_and(in_step) && world.is_synced(*id))
        });
    }
}
