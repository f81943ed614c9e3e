//! One random schedule of a consensus group in virtual time: clients, a bad network, crashes that lose what was not
//! synced, pauses, clocks that drift, members that come and go; then everything heals.

mod control;
mod oracle;

use super::golden::texts;
use super::{Consensus, World, peek};
use crate::kit::disk::Disk;
use crate::kit::random::Random;
use crate::kit::{Asked, Clock, Consequences, Letter, Protocol as _, show};
use kv::{Command, Condition, Expiry, SetAnswer};
use oracle::{Check, Oracle, Question};
use protocol::consensus::{Change, Lease, Options, Timing, Voter};
use protocol::contract::{Configuration, NodeId, Replica as _, Result as Outcome};
use protocol::planted::Planted;
use protocol::{Request, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// What happens at a moment.
enum Event {
    Deliver(Letter),
    /// A node's turn ends.
    Flush(NodeId, u64),
    /// A node's timer.
    Tick(NodeId, u64),
    /// A sync of a node's disk up to a position is done.
    Synced(NodeId, u64, u64),
    /// A client asks something new.
    Ask(u64),
    /// A client goes where it was sent.
    AskAgain(Ticket, NodeId),
    /// The control group tells a node one of its configurations.
    Configure(NodeId, usize),
    Trouble,
}

/// How likely each kind of trouble is in this schedule. Many are 0: a search in which everything always happens at
/// once finds less.
struct Troubles {
    lose: u64,
    duplicate: u64,
    delay: u64,
    /// Of letters, so many percent arrive without regard to those before them.
    overtake: u64,
    crash: u64,
    crash_all: u64,
    pause: u64,
    cut: u64,
    one_way: u64,
    checkpoint: u64,
    /// Of disks, which are lost, or else rolled back.
    spoil: u64,
    loses_disks: bool,
    backup: u64,
    change: u64,
    slow_disk: u64,
    jump: u64,
}

/// A request that has no end yet.
struct Open {
    question: Question,
    node: NodeId,
    deadline_us: u64,
    hops: u32,
}

pub(crate) struct Schedule {
    random: Random,
    world: World,
    oracle: Oracle,
    troubles: Troubles,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    /// Which start of each node its events belong to.
    starts: Vec<u64>,
    is_flush_due: Vec<bool>,
    is_syncing: Vec<bool>,
    paused_until_us: Vec<u64>,
    /// When the last letter on each link arrives.
    arrivals: BTreeMap<(NodeId, NodeId), u64>,
    /// Directed links that bring nothing.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// The node whose disk was lost or rolled back, until it was removed.
    spoiled: Option<NodeId>,
    /// All that the control group ever decided.
    configurations: Vec<Configuration>,
    open: BTreeMap<Ticket, Open>,
    asked: Vec<u64>,
    values: u64,
    nodes: NodeId,
    is_calm: bool,
    ends_us: u64,
    told: bool,
}

impl Schedule {
    /// The schedule of a seed. With `told` it prints what happens.
    pub(crate) fn new(seed: u64, planted: Planted, told: bool) -> Schedule {
        let mut random = Random::new(seed);
        let members = [1, 2, 3, 3, 3, 5][random.below(6) as usize];
        let spares = [0, 1, 2, 2][random.below(4) as usize];
        let nodes = members + spares;
        let lease = if random.percent(60) { Lease::Log } else { Lease::Off };
        // Small enough for copies, and for batches that are closed within a turn.
        let log_bytes = [200, 2_000, 1 << 20][random.below(3) as usize];
        let options = Options { lease, reads_any: false, log_bytes, spill_bytes_min: usize::MAX, planted };
        let heartbeat_ms = [20, 80][random.below(2) as usize];
        let timing = Timing {
            heartbeat_ms,
            lease_ms: [2, 4, 8][random.below(3) as usize] * heartbeat_ms,
            lease_margin_ms: heartbeat_ms,
            silence_ms: 3 * heartbeat_ms,
            batch_bytes: [1, 60, 1 << 20][random.below(3) as usize],
            sync_bytes_max: [300, 1 << 20][random.below(2) as usize],
            chunk_bytes: [1, 40, 1 << 20][random.below(3) as usize],
            chunk_window: [1, 8][random.below(2) as usize],
            ..Timing::default()
        };
        let mut some =
            |percent: u64, bound: u64| if random.percent(percent) { 1 + random.below(bound) } else { 0 };
        let troubles = Troubles {
            lose: some(40, 15),
            duplicate: some(40, 20),
            delay: some(40, 20),
            overtake: some(40, 50),
            crash: some(60, 30),
            crash_all: some(20, 10),
            pause: some(40, 30),
            cut: some(40, 30),
            one_way: some(30, 30),
            checkpoint: some(50, 60),
            spoil: some(30, 20),
            loses_disks: some(40, 1) > 0,
            backup: some(60, 40),
            change: some(75, 20),
            slow_disk: some(40, 30),
            jump: some(40, 60),
        };
        let clients = 2 + random.below(4);
        let mut world = World::new(members, options, timing).with_spares(spares);
        // Within the margin: a lease and a margin are measured by clocks that differ by less.
        let drifts = random.percent(50);
        for id in 1..=nodes {
            let ppm = random.below(80_000) as i64 - 40_000;
            world.clock_mut(id).drift_ppm = if drifts { ppm } else { 0 };
        }
        let first: Vec<NodeId> = (1..=members).collect();
        let first =
            Configuration { epoch: 1, leader: 0, members: first.clone(), in_sync: first, is_given_up: false };
        Schedule {
            ends_us: world.time_us + 1000 * heartbeat_ms * (20 + random.below(60)),
            random,
            world,
            oracle: Oracle::new(),
            troubles,
            events: BTreeMap::new(),
            next_event: 0,
            starts: vec![0; nodes as usize + 1],
            is_flush_due: vec![false; nodes as usize + 1],
            is_syncing: vec![false; nodes as usize + 1],
            paused_until_us: vec![0; nodes as usize + 1],
            arrivals: BTreeMap::new(),
            cut: BTreeSet::new(),
            spoiled: None,
            configurations: vec![first],
            open: BTreeMap::new(),
            asked: vec![0; clients as usize],
            values: 0,
            nodes,
            is_calm: false,
            told,
        }
    }

    /// Runs it: an error says which promise was broken.
    pub(crate) fn run(mut self) -> Result<u64, String> {
        for id in self.configurations[0].members.clone() {
            self.start(id)?;
        }
        for client in 0..self.asked.len() as u64 {
            self.later(client * 1000, Event::Ask(client));
        }
        self.later(10_000, Event::Trouble);
        let ends_us = self.ends_us;
        self.run_until(ends_us)?;
        self.heal()
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        if self.told {
            println!("{:>9} {}", self.world.time_us, text());
        }
    }

    fn tell_tables(&mut self) {
        for id in self.world.alive() {
            for key in ["key0", "key1", "counter"] {
                let entry = peek(&mut self.world, id, &Command::Fetch { key: key.as_bytes() });
                self.tell(|| format!("{id}: {key} {}", texts(&entry)));
            }
        }
    }

    fn later(&mut self, delay_us: u64, event: Event) {
        let at = self.world.time_us + delay_us;
        self.at(at, event);
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((at_us.max(self.world.time_us), self.next_event), event);
    }

    fn run_until(&mut self, end_us: u64) -> Check {
        while let Some(first) = self.events.first_entry() {
            if first.key().0 > end_us {
                break;
            }
            let ((at_us, _), event) = first.remove_entry();
            self.world.time_us = self.world.time_us.max(at_us);
            self.happen(event)?;
        }
        self.world.time_us = self.world.time_us.max(end_us);
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Check {
        let node = match &event {
            Event::Deliver(letter) => Some(letter.to),
            Event::Flush(id, start) | Event::Tick(id, start) | Event::Synced(id, start, _) => {
                if *start != self.starts[*id as usize] {
                    return Ok(());
                }
                Some(*id)
            }
            Event::AskAgain(_, id) | Event::Configure(id, _) => Some(*id),
            Event::Ask(_) | Event::Trouble => None,
        };
        // What comes to a paused node waits, in order, until it goes on.
        if let Some(id) = node
            && self.paused_until_us[id as usize] > self.world.time_us
        {
            let until_us = self.paused_until_us[id as usize];
            self.at(until_us, event);
            return Ok(());
        }
        match event {
            Event::Deliver(letter) => {
                self.tell(|| format!("  deliver {}", show::letter::<Consensus>(&letter)));
                let consequences = self.world.deliver(&letter);
                self.note(letter.to, consequences)
            }
            Event::Flush(id, _) => {
                let consequences = self.world.flush(id);
                self.note(id, consequences)?; // It asks for no other flush: this one counts as still to come.
                self.is_flush_due[id as usize] = false;
                self.sync(id);
                Ok(())
            }
            Event::Tick(id, start) => {
                let consequences = self.world.tick(id);
                self.note(id, consequences)?;
                self.set_timer(id, start);
                Ok(())
            }
            Event::Synced(id, _, position) => {
                self.is_syncing[id as usize] = false;
                let consequences = self.world.sync(id, position);
                self.note(id, consequences)?;
                self.sync(id);
                Ok(())
            }
            Event::Ask(client) => self.ask(client),
            Event::AskAgain(ticket, node) => self.ask_at(ticket, node),
            Event::Configure(id, which) => self.configure(id, which),
            Event::Trouble => self.trouble(),
        }
    }

    fn set_timer(&mut self, id: NodeId, start: u64) {
        if let Some(wakeup_us) = wakeup_us(&self.world, id) {
            let at_us = wakeup_us.max(self.world.time_us + 1000).min(self.world.time_us + 100_000);
            self.at(at_us, Event::Tick(id, start));
        }
    }

    /// Begins a sync, if one is needed and none runs.
    fn sync(&mut self, id: NodeId) {
        if self.is_syncing[id as usize] || self.world.is_synced(id) {
            return;
        }
        self.is_syncing[id as usize] = true;
        let is_slow = !self.is_calm && self.random.percent(self.troubles.slow_disk);
        let duration_us =
            if is_slow { 1000 + self.random.below(60_000) } else { 100 + self.random.below(1500) };
        let (start, position) = (self.starts[id as usize], self.world.written(id));
        self.later(duration_us, Event::Synced(id, start, position));
    }

    /// Looks at everything that followed from an input, and puts the letters on their way.
    fn note(&mut self, id: NodeId, consequences: Consequences) -> Check {
        for trace in &consequences.traces {
            self.tell(|| format!("{id} * {}", Consensus::show_trace(trace)));
        }
        if let Err(why) = self.oracle.look(&self.world, id, &consequences.traces) {
            self.tell_tables();
            return Err(why);
        }
        for (outcome, reply) in &consequences.outcomes {
            self.tell(|| {
                format!("{:?} {}", outcome.ticket, show::outcome::<Consensus>(&outcome.result, reply))
            });
            let Some(mut open) = self.open.remove(&outcome.ticket) else {
                return Err(format!("{:?} has a second end", outcome.ticket));
            };
            if let Outcome::Redirect { to } = outcome.result {
                const HOPS_MAX: u32 = 8;
                open.hops += 1;
                if open.hops <= HOPS_MAX && self.world.time_us < open.deadline_us {
                    open.node = to;
                    self.open.insert(outcome.ticket, open);
                    let delay_us = 100 + self.random.below(1000);
                    self.later(delay_us, Event::AskAgain(outcome.ticket, to));
                    continue;
                }
            }
            self.oracle.answer(self.world.time_us, outcome.ticket, &open.question, &outcome.result, reply)?;
        }
        if !self.is_flush_due[id as usize] {
            self.is_flush_due[id as usize] = true;
            let delay_us = self.random.below(300);
            let start = self.starts[id as usize];
            self.later(delay_us, Event::Flush(id, start));
        }
        consequences.letters.into_iter().for_each(|letter| self.post(letter));
        Ok(())
    }

    fn post(&mut self, letter: Letter) {
        let is = |this: &mut Schedule, percent: u64| !this.is_calm && this.random.percent(percent);
        if self.cut.contains(&(letter.from, letter.to)) || is(self, self.troubles.lose) {
            return;
        }
        let mut delay_us = 100 + self.random.below(500);
        let is_late = is(self, self.troubles.delay);
        if is_late {
            let most_us = if self.random.percent(90) { 20_000 } else { 2_000_000 };
            delay_us += self.random.below(most_us);
        }
        if is(self, self.troubles.duplicate) {
            let most_us = if self.random.percent(90) { 5_000 } else { 2_000_000 };
            let again_us = delay_us + self.random.below(most_us);
            self.later(again_us, Event::Deliver(letter.clone()));
        }
        let mut at_us = self.world.time_us + delay_us;
        if !is_late && !is(self, self.troubles.overtake) {
            let last_us = self.arrivals.entry((letter.from, letter.to)).or_default();
            at_us = at_us.max(*last_us);
            *last_us = at_us;
        }
        self.at(at_us, Event::Deliver(letter));
    }

    // Clients.

    fn ask(&mut self, client: u64) -> Check {
        if !self.is_calm {
            let pause_us = 200 + self.random.below(40_000);
            self.later(pause_us, Event::Ask(client));
        }
        let (key, roll) = (self.random.below(2), self.random.below(10));
        let question = match roll {
            0..=3 => {
                self.values += 1;
                Question::Set { key, value: self.values }
            }
            4 => Question::Add,
            _ => Question::Get { key },
        };
        self.asked[client as usize] += 1;
        let ticket = Ticket { client, sequence: self.asked[client as usize] };
        let timeout_us = [20_000, 200_000, 1_000_000][self.random.below(3) as usize];
        let deadline_us = self.world.time_us + timeout_us;
        let node = 1 + self.random.below(u64::from(self.nodes)) as NodeId;
        self.oracle.ask(self.world.time_us, ticket, &question);
        self.tell(|| format!("{ticket:?} {question:?}"));
        self.open.insert(ticket, Open { question, node, deadline_us, hops: 0 });
        self.later(10, Event::AskAgain(ticket, node));
        Ok(())
    }

    fn ask_at(&mut self, ticket: Ticket, node: NodeId) -> Check {
        let Some(open) = self.open.get(&ticket).filter(|open| open.node == node) else { return Ok(()) };
        if self.world.replica(node).is_none() {
            let open = self.open.remove(&ticket).expect("it was just there");
            return self.oracle.answer(self.world.time_us, ticket, &open.question, &Outcome::Refused, &[]);
        }
        let (deadline_us, question) = (open.deadline_us, open.question);
        let left_us = deadline_us.saturating_sub(self.world.time_us);
        let deadline_us = self.world.now(node).monotonic_us + left_us;
        let asked = Asked { ticket, follows: false, seen: 0, deadline_us };
        let (key, value) = (question.key(), question.value());
        let command = match question {
            Question::Get { .. } => Command::Get { key: key.as_bytes() },
            Question::Add => Command::IncrementBy { key: key.as_bytes(), delta: 1 },
            Question::Set { .. } => Command::Set {
                key: key.as_bytes(),
                value: value.as_bytes(),
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            },
        };
        let consequences = self.world.request(node, asked, Request::Command(command));
        self.note(node, consequences)
    }

    // Trouble.

    fn trouble(&mut self) -> Check {
        if self.is_calm {
            return Ok(());
        }
        let pause_us = self.random.below(60_000);
        self.later(pause_us, Event::Trouble);
        let id = 1 + self.random.below(u64::from(self.nodes)) as NodeId;
        let is = |this: &mut Schedule, percent: u64| this.random.percent(percent);
        if is(self, self.troubles.checkpoint) && self.paused_until_us[id as usize] <= self.world.time_us {
            let chunk_bytes = [1, 1000][self.random.below(2) as usize];
            self.world.checkpoint(id, chunk_bytes);
        }
        if is(self, self.troubles.pause) {
            let pause_us = self.random.below(1_500_000);
            self.tell(|| format!("{id} pauses for {pause_us}"));
            self.paused_until_us[id as usize] = self.world.time_us + pause_us;
        }
        if is(self, self.troubles.jump) {
            let more_ms = self.random.below(5_000);
            self.world.clock_mut(id).unix_ahead_ms = 1_000_000 + more_ms as i64;
        }
        if is(self, self.troubles.cut) {
            match self.cut.is_empty() {
                true => self.isolate(id, true),
                false => self.cut.clear(),
            }
        }
        if is(self, self.troubles.one_way) {
            match self.cut.is_empty() {
                true => self.isolate(id, false),
                false => self.cut.clear(),
            }
        }
        if is(self, self.troubles.crash_all) {
            for id in
                self.world.alive().into_iter().filter(|id| self.spoiled != Some(*id)).collect::<Vec<_>>()
            {
                self.crash(id)?;
            }
        }
        if is(self, self.troubles.crash) && self.spoiled != Some(id) && !self.world.is_unused(id) {
            match self.world.replica(id) {
                Some(_) => self.crash(id)?,
                None => self.start(id)?,
            }
        }
        // The older a backup is, the more is forgotten with it. Who believes to be alone, though, asks nobody.
        let is_alone = self.world.status(id).is_none_or(|status| status.members.len() < 2);
        if is(self, self.troubles.backup) && !is_alone && lives_in_backup(&self.world, id).is_none() {
            self.world.back_up(id);
        }
        if is(self, self.troubles.spoil) {
            self.spoil(id)?;
        }
        if self.troubles.change > 0 {
            self.tell_again()?;
        }
        if is(self, self.troubles.change) {
            self.change_members()?;
        }
        Ok(())
    }

    fn isolate(&mut self, id: NodeId, both_ways: bool) {
        self.tell(|| format!("{id} is cut off, both ways: {both_ways}"));
        let is_whole = self.random.percent(60);
        for peer in 1..=self.nodes {
            if peer == id || !is_whole && self.random.percent(50) {
                continue;
            }
            self.cut.insert((id, peer));
            if both_ways {
                self.cut.insert((peer, id));
            }
        }
    }

    fn crash(&mut self, id: NodeId) -> Check {
        if self.world.replica(id).is_none() {
            return Ok(());
        }
        let kept = if self.random.percent(50) { 0 } else { self.random.below(4) };
        self.tell(|| format!("{id} crashes"));
        self.world.crash(id, kept);
        self.starts[id as usize] += 1;
        if self.random.percent(50) {
            for peer in self.world.alive() {
                let consequences = self.world.hint(peer, id, false);
                self.note(peer, consequences)?;
            }
        }
        let lost: Vec<Ticket> =
            self.open.iter().filter(|(_, open)| open.node == id).map(|(ticket, _)| *ticket).collect();
        for ticket in lost {
            let open = self.open.remove(&ticket).expect("it was just there");
            self.oracle.answer(self.world.time_us, ticket, &open.question, &Outcome::Unknown, &[])?;
        }
        Ok(())
    }

    fn start(&mut self, id: NodeId) -> Check {
        self.tell(|| format!("{id} starts"));
        self.is_flush_due[id as usize] = false;
        self.is_syncing[id as usize] = false;
        self.paused_until_us[id as usize] = 0;
        let consequences = self.world.start(id);
        self.note(id, consequences)?;
        let start = self.starts[id as usize];
        self.set_timer(id, start);
        Ok(())
    }

    // The end.

    fn heal(&mut self) -> Result<u64, String> {
        const ROUNDS_MAX: usize = 300;
        self.tell(|| "everything heals".into());
        self.is_calm = true;
        self.cut.clear();
        self.paused_until_us.fill(0);
        for id in self.world.members() {
            if self.world.replica(id).is_none() && !self.world.is_unused(id) {
                self.start(id)?;
            }
        }
        self.tell_all()?;
        for _ in 0..ROUNDS_MAX {
            let end_us = self.world.time_us + 100_000;
            self.run_until(end_us)?;
            self.mend()?;
            if self.open.is_empty() && self.is_whole() {
                return self.finish();
            }
        }
        let statuses: Vec<String> = self
            .world
            .members()
            .filter_map(|id| Some(format!("{id}: {}", Consensus::show_status(&self.world.status(id)?))))
            .collect();
        Err(format!("it does not heal, {} unanswered\n{}", self.open.len(), statuses.join("\n")))
    }

    /// Writes go on, and what they make is linearizable.
    fn finish(&mut self) -> Result<u64, String> {
        for client in 0..self.asked.len() as u64 {
            self.ask(client)?;
        }
        let end_us = self.world.time_us + 3_000_000;
        self.run_until(end_us)?;
        if !self.open.is_empty() {
            return Err("a request in peace is not answered".into());
        }
        self.oracle.check()
    }
}

/// When, in the world's time, a replica wants its next tick: early rather than late, whatever its clock does.
fn wakeup_us(world: &World, id: NodeId) -> Option<u64> {
    let wakeup_us = world.replica(id)?.wakeup_us(world.now(id));
    let Clock { drift_ppm, ahead_us, .. } = world.clock(id);
    let own_us = wakeup_us.saturating_sub(ahead_us) as i64;
    Some((own_us - own_us * drift_ppm / 1_000_000).max(0) as u64 + 1)
}

/// The lives of which a node's backup knows; none without one.
fn lives_in_backup(world: &World, id: NodeId) -> Option<u64> {
    let lives = changes(world.backup(id)?)
        .filter_map(|change| if let Change::Life { life, .. } = change { Some(life) } else { None });
    lives.last()
}

/// Whether the disks of all these others hold, durably, who a node is, and that it has had so many lives.
fn is_known(world: &World, id: NodeId, lives: u64, others: &[NodeId]) -> bool {
    let is_it = |voter: &Voter| voter.member.node == id && voter.identity.life >= lives;
    let knows = |other| {
        changes(world.disk(other)).any(|change| matches!(change, Change::Peer(voter) if is_it(&voter)))
    };
    others.iter().all(|other| *other == id || knows(*other))
}

/// What a disk's records say that a crash would leave.
fn changes(disk: &Disk) -> impl Iterator<Item = Change> {
    disk.durable_records()
        .flat_map(|record| Change::decode_all(record).expect("replicas write what can be read"))
}
