//! One random schedule: clients, a bad network, pauses, crashes; in the end everything heals.

pub(crate) mod oracle;

use super::{Blocking, World};
use crate::kit::random::Random;
use crate::kit::{Asked, Clock, Consequences, Letter, Protocol as _, show};
use crate::registers::has_memory;
use kv::{Command, Condition, Expiry, List, SetAnswer};
use oracle::{Check, Oracle, Question};
use protocol::Replica as _;
use protocol::blocking::{Options, Retry, Timing};
use protocol::contract::{NodeId, Result as Outcome};
use protocol::planted::Planted;
use protocol::{Request, Ticket, registers};
use std::collections::{BTreeMap, BTreeSet};

/// What goes wrong in this schedule. Chances in percent of letters; rates in so many milliseconds on average, 0 for
/// never. Many are 0: a search in which everything always happens at once finds less.
#[derive(Debug)]
struct Trouble {
    lose: u64,
    duplicate: u64,
    delay: u64,
    delay_ms: u64,
    cut_every_ms: u64,
    crash_every_ms: u64,
    pause_every_ms: u64,
    /// Of syncs, so many percent take long.
    slow_sync: u64,
}

enum Event {
    Arrive(Letter),
    Turn(NodeId),
    Flush(NodeId),
    Ask(usize),
    Cut,
    Crash,
    Restart(NodeId),
    Pause,
    /// A sync of a life's disk ends: what was written when it began is durable.
    Synced(NodeId, u64, u64),
    Checkpoint(NodeId),
}

/// What replicas find again after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Records {
    /// Nothing: they keep their memory only.
    None,
    /// All that they have written.
    Written,
    /// What was synced, and perhaps more.
    Synced,
}

pub(crate) struct Schedule {
    random: Random,
    world: World,
    oracle: Oracle,
    trouble: Trouble,
    records: Records,
    /// How often each node has crashed: a sync that an earlier life began is nothing to a later one.
    crashes: BTreeMap<NodeId, u64>,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    /// Until when each paused node takes nothing.
    paused_until_us: BTreeMap<NodeId, u64>,
    /// Nodes that have just started, or crashed, and do not hold yet what they must.
    damaged: BTreeSet<NodeId>,
    /// Nodes that have written that they vouch for what they hold.
    vouching: BTreeSet<NodeId>,
    /// Where each open request was put.
    asked_at: BTreeMap<Ticket, NodeId>,
    clients: usize,
    sequence: u64,
    keys: Vec<String>,
    ends_us: u64,
    last_outcome: Option<(Ticket, Outcome)>,
    lease_ms: u64,
    told: bool,
}

impl Schedule {
    /// The schedule of a seed, of a group that keeps records or of one that does not. With `told` it prints what happens.
    pub(crate) fn new(
        seed: u64,
        keeps_records: bool,
        planted: Planted,
        (looks_inside, told): (bool, bool),
    ) -> Schedule {
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
        let some = |random: &mut Random, chance, most| {
            if random.percent(chance) { 1 + random.below(most) } else { 0 }
        };
        let trouble = Trouble {
            lose: some(&mut random, 50, 15),
            duplicate: some(&mut random, 50, 15),
            delay: some(&mut random, 60, 30),
            delay_ms: [2, 20, 200][random.below(3) as usize],
            cut_every_ms: some(&mut random, 40, 100),
            crash_every_ms: some(&mut random, 50, 200),
            pause_every_ms: some(&mut random, 40, 100),
            slow_sync: 10,
        };
        let options = Options { retry, keeps_records, planted };
        let keys: Vec<String> = (0..1 + random.below(3)).map(|key| format!("k{key}")).collect();
        let mut world = World::new(nodes, options, timing).with_seed(seed);
        for id in world.members() {
            let clock = Clock {
                drift_ppm: (random.below(21) as i64 - 10) * 1000,
                ahead_us: random.below(1 << 40),
                unix_ahead_ms: random.below(10_000) as i64 + 1_000_000,
            };
            *world.clock_mut(id) = clock;
        }
        let records = match keeps_records {
            false => Records::None,
            true if random.percent(25) => Records::Written,
            true => Records::Synced,
        };
        let schedule = Schedule {
            records,
            crashes: BTreeMap::new(),
            oracle: Oracle::new(keys.clone(), looks_inside),
            events: BTreeMap::new(),
            scheduled: 0,
            paused_until_us: BTreeMap::new(),
            damaged: BTreeSet::new(),
            vouching: BTreeSet::new(),
            asked_at: BTreeMap::new(),
            clients: 1 + random.below(6) as usize,
            sequence: 0,
            ends_us: 0,
            last_outcome: None,
            random,
            world,
            trouble,
            keys,
            lease_ms: timing.lease_ms,
            told,
        };
        schedule
            .tell(&format!("{nodes} nodes, {records:?}, {options:?}, {timing:?}, {:?}", schedule.trouble));
        schedule
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Result<u64, String> {
        let members: Vec<NodeId> = self.world.members().collect();
        self.damaged.extend(&members);
        for id in &members {
            let consequences = self.world.start(*id);
            self.note(*id, None, consequences)?;
        }
        if self.random.percent(90) {
            self.run_until(self.world.time_us + 150_000)?; // Most schedules begin with a group in order.
        }
        self.ends_us = self.world.time_us + 50_000 + self.random.below(400_000);
        for client in 0..self.clients {
            let in_us = self.random_us(2);
            self.schedule(in_us, Event::Ask(client));
        }
        self.schedule_trouble();
        self.run_until(self.ends_us)?;
        self.heal()?;
        self.rest()?;
        self.oracle.is_linearizable()
    }

    fn tell(&self, line: &str) {
        if self.told {
            println!("{:>9} {line}", self.world.time_us);
        }
    }

    fn random_us(&mut self, milliseconds: u64) -> u64 {
        self.random.below(milliseconds * 1000).max(1)
    }

    fn schedule(&mut self, in_us: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.world.time_us + in_us, self.scheduled), event);
    }

    fn run_until(&mut self, time_us: u64) -> Check {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= time_us) {
            let ((at_us, _), event) = entry.remove_entry();
            self.world.time_us = self.world.time_us.max(at_us);
            self.happen(event)?;
        }
        self.world.time_us = self.world.time_us.max(time_us);
        Ok(())
    }

    /// Whom an event is for has to wait while it is paused.
    fn pause_of(&self, event: &Event) -> Option<u64> {
        let id = match event {
            Event::Arrive(letter) => letter.to,
            Event::Turn(id) | Event::Flush(id) | Event::Synced(id, ..) | Event::Checkpoint(id) => *id,
            _ => return None,
        };
        self.paused_until_us.get(&id).copied().filter(|until_us| *until_us > self.world.time_us)
    }

    fn happen(&mut self, event: Event) -> Check {
        if let Some(until_us) = self.pause_of(&event) {
            self.schedule(until_us - self.world.time_us, event);
            return Ok(());
        }
        match event {
            Event::Arrive(letter) => {
                self.tell(&format!("  {}", show::letter::<Blocking>(&letter)));
                let consequences = self.world.deliver(&letter);
                self.note(letter.to, Some(&letter), consequences)
            }
            Event::Turn(id) => {
                let consequences = self.world.tick(id);
                self.note(id, None, consequences)
            }
            Event::Flush(id) => {
                let consequences = self.world.flush(id);
                if has_memory(&self.world, id) {
                    self.vouching.insert(id);
                }
                self.note(id, None, consequences)
            }
            Event::Ask(client) => self.ask(client),
            Event::Cut => self.cut_or_mend(),
            Event::Crash => self.crash(),
            Event::Restart(id) => self.restart(id),
            Event::Synced(id, life, position) => match self.crashes_of(id) == life {
                true => self.synced(id, position),
                false => Ok(()),
            },
            Event::Checkpoint(id) => {
                let consequences = self.world.flush(id);
                self.note(id, None, consequences)?;
                let chunk_bytes = [1, 1 << 20][self.random.below(2) as usize];
                self.world.checkpoint(id, chunk_bytes);
                Ok(())
            }
            Event::Pause => {
                let members: Vec<NodeId> = self.world.members().collect();
                if let Some(id) = self.random.pick(&members) {
                    let pause_us = self.random_us(150);
                    self.tell(&format!("{id} is paused for {pause_us} us"));
                    self.paused_until_us.insert(id, self.world.time_us + pause_us);
                }
                self.repeat(self.trouble.pause_every_ms, Event::Pause);
                Ok(())
            }
        }
    }

    /// Takes in what a step has led to.
    fn note(&mut self, id: NodeId, letter: Option<&Letter>, consequences: Consequences) -> Check {
        for trace in &consequences.traces {
            self.tell(&format!("{id} * {}", show::trace(trace)));
        }
        self.oracle.look(&self.world, id, letter)?;
        for (outcome, reply) in &consequences.outcomes {
            self.tell(&format!("{:?} {}", outcome.ticket, show::outcome::<Blocking>(&outcome.result, reply)));
            self.oracle.answer(self.world.time_us, outcome.ticket, &outcome.result, reply)?;
            self.asked_at.remove(&outcome.ticket);
            self.last_outcome = Some((outcome.ticket, outcome.result));
            let think_us = self.random_us(8);
            self.schedule(think_us, Event::Ask(outcome.ticket.client as usize));
        }
        for letter in consequences.letters {
            self.post(letter);
        }
        if !consequences.records.is_empty() {
            self.recorded(id)?;
        }
        // What it vouches for has to outlive the next crash, or it is as damaged as it was.
        let is_ready = has_memory(&self.world, id);
        let is_safe = self.vouching.contains(&id) && self.world.is_synced(id);
        if is_ready && (self.records == Records::None || is_safe) {
            self.damaged.remove(&id);
        }
        let at_once = self.random.percent(60);
        let flush_us = if at_once { 0 } else { self.random.below(300) };
        if letter.is_some() || !consequences.outcomes.is_empty() || !consequences.traces.is_empty() {
            self.schedule(flush_us, Event::Flush(id));
        }
        self.schedule_turn(id);
        Ok(())
    }

    fn crashes_of(&self, id: NodeId) -> u64 {
        self.crashes.get(&id).copied().unwrap_or(0)
    }

    /// A node has written records, and begins a sync if it needs one.
    fn recorded(&mut self, id: NodeId) -> Check {
        let written = self.world.written(id);
        if self.records == Records::Written {
            return self.synced(id, written);
        }
        let most_ms = if self.random.percent(self.trouble.slow_sync) { 20 } else { 1 };
        let in_us = self.random_us(most_ms);
        self.schedule(in_us, Event::Synced(id, self.crashes_of(id), written));
        if self.random.percent(2) {
            let in_us = self.random_us(5);
            self.schedule(in_us, Event::Checkpoint(id));
        }
        Ok(())
    }

    fn synced(&mut self, id: NodeId, position: u64) -> Check {
        let consequences = self.world.sync(id, position);
        self.schedule(0, Event::Flush(id));
        self.note(id, None, consequences)
    }

    fn schedule_turn(&mut self, id: NodeId) {
        let Some(wakeup_us) = self.world.wakeup_us(id) else { return };
        let already = self.events.values().any(|event| matches!(event, Event::Turn(of) if *of == id));
        if !already {
            let late_us = self.random.below(500);
            self.schedule(
                wakeup_us.saturating_sub(self.world.time_us).min(20_000) + late_us + 50,
                Event::Turn(id),
            );
        }
    }

    fn post(&mut self, letter: Letter) {
        if self.world.is_cut(letter.from, letter.to) || self.random.percent(self.trouble.lose) {
            return;
        }
        for _ in 0..1 + u64::from(self.random.percent(self.trouble.duplicate)) {
            let delayed = self.random.percent(self.trouble.delay);
            let delay_us =
                if delayed { self.random_us(self.trouble.delay_ms) } else { self.random.below(600) };
            self.schedule(50 + delay_us, Event::Arrive(letter.clone()));
        }
    }

    // Clients.

    fn ask(&mut self, client: usize) -> Check {
        if self.world.time_us >= self.ends_us {
            return Ok(());
        }
        let alive = self.world.alive();
        let (Some(node), Some(key)) = (self.random.pick(&alive), self.random.pick(&[0, 1, 2])) else {
            let think_us = self.random_us(5);
            self.schedule(think_us, Event::Ask(client));
            return Ok(());
        };
        let key = self.keys[key % self.keys.len()].clone();
        let question = match self.random.below(20) {
            0..=8 => Question::Get,
            9 => Question::Delete,
            _ => Question::Set(format!("v{}", self.sequence)),
        };
        let timeout_ms = [10, 60, 500][self.random.below(3) as usize];
        self.put(node, client as u64, &key, question, timeout_ms)
    }

    fn put(&mut self, node: NodeId, client: u64, key: &str, question: Question, timeout_ms: u64) -> Check {
        self.sequence += 1;
        let ticket = Ticket { client, sequence: self.sequence };
        self.tell(&format!("{ticket:?} asks {node} {key} {question:?} within {timeout_ms} ms"));
        self.oracle.ask(self.world.time_us, ticket, key, &question);
        self.asked_at.insert(ticket, node);
        let mut scratch = Vec::new();
        let key = key.as_bytes();
        let command = match &question {
            Question::Get => Command::Get { key },
            Question::Set(value) => Command::Set {
                key,
                value: value.as_bytes(),
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            },
            Question::Delete => Command::Delete { keys: List::build(&mut scratch, [key]) },
        };
        let deadline_us = self.world.now(node).monotonic_us + timeout_ms * 1000;
        let asked = Asked { ticket, follows: false, seen: 0, deadline_us };
        let consequences = self.world.request(node, asked, Request::Command(command));
        self.schedule(0, Event::Flush(node));
        self.note(node, None, consequences)
    }

    // Trouble.

    fn repeat(&mut self, every_ms: u64, event: Event) {
        if every_ms > 0 && self.world.time_us < self.ends_us {
            let in_us = self.random_us(2 * every_ms);
            self.schedule(in_us, event);
        }
    }

    fn schedule_trouble(&mut self) {
        self.repeat(self.trouble.cut_every_ms, Event::Cut);
        self.repeat(self.trouble.crash_every_ms, Event::Crash);
        self.repeat(self.trouble.pause_every_ms, Event::Pause);
    }

    fn cut_or_mend(&mut self) -> Check {
        let members: Vec<NodeId> = self.world.members().collect();
        if let (Some(one), Some(other)) = (self.random.pick(&members), self.random.pick(&members))
            && one != other
        {
            let up = self.world.is_cut(one, other);
            self.set_link(one, other, up)?;
        }
        self.repeat(self.trouble.cut_every_ms, Event::Cut);
        Ok(())
    }

    fn set_link(&mut self, one: NodeId, other: NodeId, up: bool) -> Check {
        self.tell(&format!("link {one}-{other} {}", if up { "up" } else { "down" }));
        self.world.set_link(one, other, up);
        // A broken link is not always noticed; a new one always is.
        if up || self.random.percent(50) {
            for (id, peer) in [(one, other), (other, one)] {
                let consequences = self.world.hint(id, peer, up);
                self.note(id, None, consequences)?;
            }
        }
        Ok(())
    }

    /// A node loses its memory, if that is no more than the group survives; or one crashes, or all do, and find again what
    /// they have recorded.
    fn crash(&mut self) -> Check {
        let alive = self.world.alive();
        let survives = (self.world.members().count() - 1) / 2;
        let keeps_memory = self.records != Records::None;
        let crashing = match keeps_memory && self.random.percent(20) {
            true => alive,
            false => self.random.pick(&alive).into_iter().collect(),
        };
        for id in crashing {
            if !keeps_memory && self.damaged.len() + usize::from(!self.damaged.contains(&id)) > survives {
                continue;
            }
            self.tell(&format!("{id} crashes"));
            if !keeps_memory {
                self.damaged.insert(id);
            }
            self.oracle.crash(id);
            let kept = match self.records {
                Records::Synced => [0, 0, 1, 5][self.random.below(4) as usize],
                Records::None | Records::Written => 0,
            };
            self.world.crash(id, kept);
            self.vouching.remove(&id);
            *self.crashes.entry(id).or_default() += 1;
            let may_lose = self.damaged.len() + usize::from(!self.damaged.contains(&id)) <= survives;
            if keeps_memory && may_lose && self.random.percent(15) {
                self.tell(&format!("{id} loses its disk"));
                self.damaged.insert(id);
                self.world.lose_disk(id);
            }
            let lost = self.asked_at.extract_if(.., |_, node| *node == id);
            for ticket in lost.map(|(ticket, _)| ticket).collect::<Vec<_>>() {
                self.oracle.lose(ticket);
                self.schedule(1000, Event::Ask(ticket.client as usize));
            }
            for peer in self.world.alive() {
                if self.random.percent(50) {
                    let consequences = self.world.hint(peer, id, false);
                    self.note(peer, None, consequences)?;
                }
            }
            let restart_us = self.random_us(100);
            self.schedule(restart_us, Event::Restart(id));
        }
        self.repeat(self.trouble.crash_every_ms, Event::Crash);
        Ok(())
    }

    fn restart(&mut self, id: NodeId) -> Check {
        if self.world.is_alive(id) {
            return Ok(());
        }
        self.tell(&format!("{id} restarts"));
        let consequences = self.world.start(id);
        self.note(id, None, consequences)?;
        for peer in self.world.alive().into_iter().filter(|peer| *peer != id) {
            if !self.world.is_cut(id, peer) {
                self.set_link(id, peer, true)?;
            }
        }
        Ok(())
    }

    // The end.

    /// Everything works again, and every request gets its outcome.
    fn heal(&mut self) -> Check {
        self.tell("everything heals");
        let none = Trouble {
            lose: 0,
            duplicate: 0,
            delay: 0,
            delay_ms: 1,
            cut_every_ms: 0,
            crash_every_ms: 0,
            pause_every_ms: 0,
            slow_sync: 0,
        };
        self.trouble = none;
        self.events.retain(|_, event| !matches!(event, Event::Cut | Event::Crash | Event::Pause));
        self.paused_until_us.clear();
        let members: Vec<NodeId> = self.world.members().collect();
        for one in &members {
            for other in members.iter().filter(|other| *other > one) {
                if self.world.is_cut(*one, *other) {
                    self.set_link(*one, *other, true)?;
                }
            }
        }
        for id in &members {
            self.restart(*id)?;
            for peer in members.iter().filter(|peer| *peer != id) {
                let consequences = self.world.hint(*id, *peer, true);
                self.note(*id, None, consequences)?;
            }
        }
        // The longest time-out, and the longest lease after it.
        self.run_until(self.world.time_us + 600_000)?;
        if self.oracle.unanswered() > 0 {
            return Err(format!("{} requests are never answered", self.oracle.unanswered()));
        }
        self.run_until(self.world.time_us + 1_200_000)
    }

    /// At rest: every node answers, all replicas are equal and every lock is free.
    fn rest(&mut self) -> Check {
        let members: Vec<NodeId> = self.world.members().collect();
        for (index, id) in members.iter().enumerate() {
            for key in self.keys.clone() {
                for question in [Question::Set(format!("last {index}")), Question::Get] {
                    let sequence = self.sequence + 1;
                    self.put(*id, 100, &key, question, 300)?;
                    let ticket = Ticket { client: 100, sequence };
                    self.run_until(self.world.time_us + 15_000)?;
                    if !matches!(self.last_outcome, Some((of, Outcome::Done { .. })) if of == ticket) {
                        return Err(format!("at rest, {id} answers {ticket:?} {:?}", self.last_outcome));
                    }
                }
            }
        }
        self.run_until(self.world.time_us + 10_000)?;
        if self.lease_ms >= 1000 {
            self.oracle.locks_are_free(&self.world)?;
        }
        const ROUNDS_MAX: usize = 50;
        for _ in 0..ROUNDS_MAX {
            let digest = |id: &NodeId| self.world.replica(*id).map(|replica| replica.table().digest());
            let digests: BTreeSet<Option<u64>> = members.iter().map(digest).collect();
            let ready = |id: &NodeId| self.world.status(*id).is_some_and(|status| status.ready);
            if digests.len() == 1 && members.iter().all(ready) {
                return Ok(());
            }
            self.run_until(self.world.time_us + 100_000)?;
        }
        let status = |id: &NodeId| self.world.status(*id).map(|status| Blocking::show_status(&status));
        Err(format!("replicas do not become equal: {:?}", members.iter().map(status).collect::<Vec<_>>()))
    }
}
