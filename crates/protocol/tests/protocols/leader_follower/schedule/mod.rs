//! One random schedule: clients, a bad network, crashes, a control group, and in the end everything heals.

pub(crate) mod control;
pub(crate) mod oracle;
pub(crate) mod plant;
mod trouble;

use super::{LeaderFollower, World, give_values};
use crate::kit::random::Random;
use crate::kit::{Asked, Consequences, Protocol as _, show};
use control::Control;
use kv::{Command, Condition, Deadline, Expiry, SetAnswer};
use oracle::{COUNTER, Check, FLEETING, KEYS, Oracle, Question};
use plant::Plant;
use protocol::Replica as _;
use protocol::contract::{NodeId, Result as Outcome};
use protocol::leader_follower::{Acks, Durability, Options, Timing};
use protocol::{Request, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// How likely each kind of trouble is in this schedule, in percent of steps. Many are 0: a search in which
/// everything always happens at once finds less.
struct Trouble {
    lose: u64,
    duplicate: u64,
    reorder: u64,
    delay: u64,
    /// Of crashed nodes and broken links, so many percent leave letters behind that arrive much later.
    ghosts: u64,
    cut: u64,
    isolate: u64,
    /// Of broken links, so many percent are noticed.
    noticed: u64,
    crash: u64,
    depose: u64,
    jump: u64,
    /// The power fails everywhere at once (replicas with records only).
    blackout: u64,
    /// Of crashes of replicas with records, so many percent take the disk with them.
    wipe: u64,
}

struct Client {
    asked: u64,
    waiting: BTreeSet<u64>,
    /// The newest write that it was told of.
    seen: u64,
}

/// Of a checkpoint.
const CHUNK_BYTES: usize = 50;

/// Values from `value10` on.
const SPILL_BYTES_MIN: usize = 7;

pub(crate) struct Schedule {
    random: Random,
    world: World,
    oracle: Oracle,
    trouble: Trouble,
    clients: Vec<Client>,
    /// Where each open request was put.
    asked_at: BTreeMap<Ticket, NodeId>,
    acks: Acks,
    keeps_records: bool,
    control: Control,
    /// Nodes that lost their memory and are not known to have got it back.
    damaged: BTreeSet<NodeId>,
    values: u64,
    plant: Option<Plant>,
    /// With spilled values: when they are read for copies.
    store: Option<Random>,
    /// Half of the schedules: what nodes say of whom they reach, which need not be true.
    reach: Option<Random>,
    told: bool,
}

impl Schedule {
    /// The schedule of a seed. With `spilled` most values are kept outside the tables. With `told` it prints what happens.
    pub(crate) fn new(seed: u64, plant: Option<Plant>, spilled: bool, told: bool) -> Schedule {
        let mut random = Random::new(seed);
        let nodes = if random.percent(60) { 3 } else { 5 };
        let acks = match random.below(5) {
            0 => Acks::None,
            1 => Acks::Count(1),
            2 | 3 => Acks::Majority,
            _ => Acks::All,
        };
        // Small enough for full resyncs, batches that are closed within a turn, and waiting for slow followers.
        let options = Options {
            acks,
            reads_any: random.percent(50),
            backlog_bytes: [200, 2_000, 1 << 20][random.below(3) as usize],
            spill_bytes_min: if spilled { SPILL_BYTES_MIN } else { usize::MAX },
            durability: if random.percent(50) { Durability::Fsync } else { Durability::None },
            planted: plant.map(Plant::in_replica).unwrap_or_default(),
        };
        let timing = Timing {
            batch_bytes: [1, 60, 1 << 20][random.below(3) as usize],
            window_bytes: [100, 1 << 20][random.below(2) as usize],
            uncommitted_bytes_max: [2_000, 1 << 20][random.below(2) as usize],
            chunk_bytes: [1, 40, 1 << 20][random.below(3) as usize],
            chunk_window: [1, 8][random.below(2) as usize],
            resync_backlog_bytes_max: [500, 1 << 20][random.below(2) as usize],
            lazy_send_ms: [0, 0, 0, 1, 2][random.below(5) as usize],
            // Followers leave the in-sync set and come back in a short time.
            heartbeat_ms: [20, 100][random.below(2) as usize],
            in_sync_silence_ms: [40, 150, 300][random.below(3) as usize],
            wish_ms: [20, 100][random.below(2) as usize],
            ..Timing::default()
        };
        let some = |random: &mut Random, chance, most| {
            if random.percent(chance) { 1 + random.below(most) } else { 0 }
        };
        let trouble = Trouble {
            lose: some(&mut random, 50, 10),
            duplicate: some(&mut random, 50, 10),
            reorder: some(&mut random, 50, 50),
            delay: some(&mut random, 50, 10),
            ghosts: [0, 50, 100][random.below(3) as usize],
            cut: some(&mut random, 50, 3),
            isolate: some(&mut random, 50, 5),
            noticed: [0, 50, 100][random.below(3) as usize],
            crash: some(&mut random, 60, 4),
            depose: some(&mut random, 60, 5),
            jump: some(&mut random, 50, 3),
            blackout: some(&mut random, 30, 1),
            wipe: [0, 10, 50][random.below(3) as usize],
        };
        let mut world = World::new(nodes, options, timing);
        world.members().for_each(|id| world.restart(id));
        if random.percent(50) {
            const DRIFT_PPM: u64 = 40_000; // Of two clocks, one may gain nearly a tenth on the other.
            for id in world.members() {
                let drift = random.below(2 * DRIFT_PPM) as i64 - DRIFT_PPM as i64;
                world.clock_mut(id).drift_ppm = drift;
            }
        }
        let control = Control::new(plant.and_then(Plant::in_control));
        let oracle = Oracle::new(acks, acks.needed(&world.configuration));
        let client = || Client { asked: 0, waiting: BTreeSet::new(), seen: 0 };
        let schedule = Schedule {
            random,
            world,
            oracle,
            trouble,
            clients: (0..3).map(|_| client()).collect(),
            asked_at: BTreeMap::new(),
            acks,
            keeps_records: options.durability != Durability::None,
            damaged: BTreeSet::new(),
            control,
            values: 0,
            plant,
            store: spilled.then(|| Random::new(!seed)),
            reach: seed.is_multiple_of(2).then(|| Random::new(seed.rotate_left(32) ^ 0x5eed)),
            told,
        };
        schedule.tell(&format!("{nodes} nodes, {options:?}, {timing:?}"));
        schedule
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Result<u64, String> {
        for id in self.world.alive() {
            self.configure(id)?;
        }
        if self.random.percent(80) {
            self.settle(5)?; // Most schedules begin with a group in order, some with one that begins.
        }
        self.reach_all();
        let steps = 30 + self.random.below(300);
        for _ in 0..steps {
            self.step()?;
        }
        self.tell("everything heals");
        self.heal()?;
        Ok(self.oracle.answered())
    }

    fn tell(&self, line: &str) {
        if self.told {
            println!("{:>12} {line}", self.world.time_us);
        }
    }

    /// So little time passes that wall clocks stand still: keys expire only in turns and when clocks jump.
    fn pass(&mut self, microseconds: u64) {
        let shown_ms = self.world.now(1).unix_ms;
        self.world.time_us += microseconds;
        let ahead_ms = shown_ms as i64 - (self.world.time_us / 1000) as i64;
        for id in self.world.members() {
            self.world.clock_mut(id).unix_ahead_ms = ahead_ms;
        }
    }

    // One step.

    fn step(&mut self) -> Check {
        let passed_us = 1 + self.random.below(300);
        self.pass(passed_us);
        let trouble = self.random.below(100);
        let mut below = 0;
        let mut is = |percent: u64| {
            below += percent;
            trouble < below
        };
        match () {
            () if is(self.trouble.lose) => self.lose(),
            () if is(self.trouble.duplicate) => self.duplicate(),
            () if is(self.trouble.delay) => self.delay(),
            () if is(self.trouble.cut) => return self.cut_or_mend(),
            () if is(self.trouble.isolate) => return self.isolate_or_rejoin(),
            () if is(self.trouble.crash) => return self.crash_or_restart(),
            () if is(self.trouble.depose) => self.control.depose(),
            () if is(self.trouble.blackout) => return self.blackout(),
            () if is(self.trouble.jump) => {
                let jump = self.random.below(3000);
                self.world.time_us += jump * 1000;
            }
            () => match self.random.below(10) {
                0..=2 => return self.ask(),
                3 | 4 => return self.turn(),
                5 => return self.sync_or_checkpoint(),
                _ => return self.deliver_one(),
            },
        }
        Ok(())
    }

    /// A node's turn ends, perhaps after time has passed.
    fn turn(&mut self) -> Check {
        let Some(id) = self.random.pick(&self.world.alive()) else { return Ok(()) };
        self.reach_or_not(id);
        if self.random.percent(50) {
            let passed = self.random.below(60);
            self.world.time_us += passed * 1000;
            self.control(false)?;
            let consequences = self.world.tick(id);
            self.note(id, consequences)?;
        }
        self.flush(id)
    }

    fn deliver_one(&mut self) -> Check {
        let network = &self.world.network;
        let moving: Vec<usize> = (0..network.len()).filter(|index| !network[*index].held).collect();
        let Some(mut index) = self.random.pick(&moving) else { return Ok(()) };
        // Mostly the first on its link, sometimes one that overtakes.
        if !self.random.percent(self.trouble.reorder) {
            let ends = |index: usize| (network[index].from, network[index].to);
            index = moving.iter().copied().find(|first| ends(*first) == ends(index)).unwrap_or(index);
        }
        self.deliver(index)
    }

    fn deliver(&mut self, index: usize) -> Check {
        let letter = self.world.network.remove(index);
        self.tell(&format!("  deliver {}", show::letter::<LeaderFollower>(&letter)));
        let consequences = self.world.deliver(&letter);
        self.note(letter.to, consequences)?;
        if self.random.percent(70) { self.flush(letter.to) } else { Ok(()) }
    }

    fn flush(&mut self, id: NodeId) -> Check {
        let (mut gives_values, mut writes_checkpoint) = (false, false);
        if let Some(store) = &mut self.store {
            (gives_values, writes_checkpoint) = (store.percent(70), store.percent(20));
        }
        if gives_values {
            let consequences = give_values(&mut self.world, id);
            self.note(id, consequences)?;
        }
        if writes_checkpoint {
            self.world.checkpoint(id, CHUNK_BYTES);
        }
        let consequences = self.world.flush(id);
        self.note(id, consequences)
    }

    /// Looks at everything that followed from an input, and puts the letters on their way.
    fn note(&mut self, id: NodeId, mut consequences: Consequences) -> Check {
        for trace in &consequences.traces {
            self.tell(&format!("{id} * {}", LeaderFollower::show_trace(trace)));
        }
        if let Some(plant) = self.plant {
            let statuses = self.world.alive().into_iter().filter_map(|id| self.world.status(id));
            let leaders = statuses.filter(|status| status.role == "leader");
            let head = leaders.map(|status| status.offset).max().unwrap_or(0);
            consequences.letters.iter_mut().for_each(|letter| plant.spoil(letter, head));
        }
        self.control.hear(std::mem::take(&mut consequences.wishes));
        // The tables first: an outcome may not tell what no replica may show yet.
        self.oracle.look(&self.world, id, &consequences.traces)?;
        for (outcome, reply) in &consequences.outcomes {
            self.tell(&format!(
                "{:?} {}",
                outcome.ticket,
                show::outcome::<LeaderFollower>(&outcome.result, reply)
            ));
            let at_leader = self.world.status(id).is_some_and(|status| status.role == "leader");
            self.oracle.answer(outcome.ticket, &outcome.result, reply, at_leader)?;
            self.asked_at.remove(&outcome.ticket);
            let client = &mut self.clients[outcome.ticket.client as usize];
            client.waiting.remove(&outcome.ticket.sequence);
            if let Outcome::Done { offset, .. } = outcome.result {
                client.seen = client.seen.max(offset);
            }
        }
        for letter in &consequences.letters {
            self.tell(&show::letter::<LeaderFollower>(letter));
        }
        self.world.post(consequences.letters);
        self.notice_repair();
        self.check_in_sync()
    }

    /// `acks = all`: whom the map calls in sync holds everything that was acknowledged.
    fn check_in_sync(&self) -> Check {
        if self.acks != Acks::All {
            return Ok(());
        }
        let in_sync = self.world.configuration.in_sync.iter().filter(|id| !self.damaged.contains(id));
        for id in in_sync {
            let Some(status) = self.world.status(*id) else { continue };
            let acknowledged = self.oracle.acknowledged();
            if status.offset < acknowledged {
                let held = status.offset;
                return Err(format!("{id} is called in sync, holds {held}, and {acknowledged} was told"));
            }
        }
        Ok(())
    }

    /// A node's disk gets on, or the node writes a part of a checkpoint.
    fn sync_or_checkpoint(&mut self) -> Check {
        let Some(id) = self.random.pick(&self.world.alive()) else { return Ok(()) };
        if self.random.percent(20) {
            self.world.checkpoint(id, CHUNK_BYTES);
            return Ok(());
        }
        let (durable, written) = (self.world.durable(id), self.world.written(id));
        let position = if self.random.percent(70) {
            written
        } else {
            durable + self.random.below(1 + written - durable)
        };
        self.tell(&format!("{id} syncs up to {position} of {written}"));
        let consequences = self.world.sync(id, position);
        self.note(id, consequences)
    }

    /// A damaged node is whole again when it holds what a leader that serves holds.
    fn notice_repair(&mut self) {
        if self.damaged.is_empty() {
            return;
        }
        let Some(leader) = self.world.status(self.world.configuration.leader) else { return };
        if leader.role != "leader" || !leader.ready || leader.epoch != self.world.configuration.epoch {
            return;
        }
        let world = &self.world;
        self.damaged.retain(|id| {
            let in_step = |status: protocol::leader_follower::Status| {
                status.ready && status.epoch == leader.epoch && status.offset >= leader.offset
            };
            !world.status(*id).is_some_and(in_step)
        });
    }

    // Clients.

    fn ask(&mut self) -> Check {
        let client = self.random.below(self.clients.len() as u64);
        let alive = self.world.alive();
        // Mostly one that thinks that it leads, deposed or not.
        let leads = |id: &NodeId| self.world.status(*id).is_some_and(|status| status.role == "leader");
        let leaders: Vec<NodeId> = alive.iter().copied().filter(leads).collect();
        let candidates = if self.random.percent(85) { &leaders } else { &alive };
        let Some(node) = self.random.pick(candidates) else { return Ok(()) };
        let value = format!("value{}", self.values);
        let key = KEYS[self.random.below(KEYS.len() as u64) as usize];
        let set = |key: &'static str, expiry: Expiry| Command::Set {
            key: key.as_bytes(),
            value: value.as_bytes(),
            expiry,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        };
        let (request, question) = match self.random.below(20) {
            0..=8 => {
                self.values += 1;
                let question = Question::Set { key, value: value.clone() };
                (Request::Command(set(key, Expiry::Clear)), question)
            }
            9..=11 => {
                let command = Command::IncrementBy { key: COUNTER.as_bytes(), delta: 1 };
                (Request::Command(command), Question::Add)
            }
            12 => {
                let expiry = Expiry::Set(Deadline::In(1 + self.random.below(200) as i64));
                (Request::Command(set(FLEETING, expiry)), Question::Other)
            }
            13 => {
                let count = 1 + self.random.below(3) as u32;
                (Request::Wait { offset: u64::MAX, count }, Question::Other)
            }
            _ => (Request::Command(Command::Get { key: key.as_bytes() }), Question::Get { key }),
        };
        let asker = &mut self.clients[client as usize];
        asker.asked += 1;
        let ticket = Ticket { client, sequence: asker.asked };
        let timeout_ms = [20, 300, 3000][self.random.below(3) as usize];
        let asked = Asked {
            ticket,
            follows: !asker.waiting.is_empty(),
            seen: asker.seen,
            deadline_us: self.world.now(node).monotonic_us + timeout_ms * 1000,
        };
        asker.waiting.insert(ticket.sequence);
        self.asked_at.insert(ticket, node);
        self.tell(&format!("{ticket:?} asks {node} {question:?}"));
        self.oracle.ask(ticket, question);
        let consequences = self.world.request(node, asked, request);
        self.note(node, consequences)?;
        if self.random.percent(50) { self.flush(node) } else { Ok(()) }
    }

    // The end.

    /// So many rounds in which time passes and everything is delivered.
    fn settle(&mut self, rounds: usize) -> Check {
        for _ in 0..rounds {
            self.world.time_us += 50_000;
            self.control(true)?;
            for id in self.world.alive() {
                let consequences = self.world.sync_all(id);
                self.note(id, consequences)?;
                let consequences = self.world.tick(id);
                self.note(id, consequences)?;
                self.flush(id)?;
            }
            // What is sent while this is delivered arrives in the next round.
            for _ in 0..self.world.network.len() {
                self.pass(1);
                let letter = self.world.network.remove(0);
                self.tell(&format!("  deliver {}", show::letter::<LeaderFollower>(&letter)));
                let consequences = self.world.deliver(&letter);
                self.note(letter.to, consequences)?;
            }
            for id in self.world.alive() {
                self.flush(id)?;
            }
        }
        Ok(())
    }

    fn heal(&mut self) -> Check {
        const ROUNDS_MAX: usize = 1000;
        let members: Vec<NodeId> = self.world.members().collect();
        self.world.network.iter_mut().for_each(|letter| letter.held = false);
        self.mend_all()?;
        for id in &members {
            if !self.world.is_alive(*id) {
                self.restart(*id)?;
            }
        }
        self.reach_all();
        let leader = self.world.configuration.leader;
        for _ in 0..ROUNDS_MAX {
            self.settle(1)?;
            if self.is_whole() && self.oracle.unanswered() == 0 {
                return self.oracle.settle(&mut self.world);
            }
        }
        let statuses: Vec<String> = members
            .iter()
            .filter_map(|id| Some(format!("{id}: {}", LeaderFollower::show_status(&self.world.status(*id)?))))
            .collect();
        let open = self.oracle.unanswered();
        Err(format!("led by {leader}, it does not heal, {open} unanswered\n{}", statuses.join("\n")))
    }

    fn is_whole(&self) -> bool {
        let statuses: Vec<_> = self.world.members().filter_map(|id| self.world.status(id)).collect();
        let digests: BTreeSet<u64> = self
            .world
            .members()
            .filter_map(|id| self.world.replica(id))
            .map(|replica| replica.table().digest())
            .collect();
        let offsets: BTreeSet<u64> =
            statuses.iter().flat_map(|status| [status.offset, status.applied]).collect();
        statuses.iter().all(|status| status.ready) && digests.len() == 1 && offsets.len() == 1
    }
}
