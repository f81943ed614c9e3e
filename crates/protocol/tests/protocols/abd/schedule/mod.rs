//! One random schedule: clients, a bad network, crashes; then a calm majority; and in the end everything heals.

mod clients;
mod trouble;

use super::{Abd, World};
use crate::kit::random::Random;
use crate::kit::{Consequences, show};
use crate::registers::{give_up, has_memory, register};
use clients::Clients;
use protocol::Replica as _;
use protocol::abd::{Options, Timing};
use protocol::contract::{NodeId, Result as Outcome};
use protocol::planted::Planted;
use protocol::registers;
use std::collections::BTreeSet;

/// What a look at the group finds: nothing, or what is wrong.
pub(crate) type Check = Result<(), String>;

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
    /// Of crashes, so many percent lose the disk.
    lose_disk: u64,
    /// A crash at the worst moment: see `crash_after_acknowledging`.
    forget: u64,
    jump: u64,
    /// Links, each from one node to another, on which letters take far longer than on others.
    slow: BTreeSet<(NodeId, NodeId)>,
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
    records: Records,
    trouble: Trouble,
    clients: Clients,
    /// Nodes that lost their memory, or never had any, and are not ready since.
    damaged: BTreeSet<NodeId>,
    /// Nodes that have written that they vouch for what they hold.
    vouching: BTreeSet<NodeId>,
    told: bool,
}

impl Schedule {
    /// The schedule of a seed, of a group that keeps records or of one that does not. With `told` it prints what happens.
    pub(crate) fn new(seed: u64, keeps_records: bool, planted: Planted, told: bool) -> Schedule {
        let mut random = Random::new(seed);
        let nodes = [3, 3, 3, 5, 5, 5, 5, 7, 1, 2, 4][random.below(11) as usize];
        let upkeep = registers::Timing {
            retry_ms: 50,
            begin_grace_ms: 100,
            stall_ms: 300,
            sweep_ms: [50, 500, 100_000][random.below(3) as usize],
            sweep_keys: [1, 256][random.below(2) as usize],
            clock_error_ms: 60_000,
            collection_ms: 2000,
            chunk_bytes: [1, 60, 1 << 20][random.below(3) as usize],
            chunk_window: [1, 8][random.below(2) as usize],
            silence_ms: 1000,
        };
        let timing = Timing {
            upkeep,
            retry_ms: [50, 200][random.below(2) as usize],
            batch_bytes: [1, 60, 1 << 20][random.below(3) as usize],
            window_bytes: [300, 1 << 20][random.below(2) as usize],
            ..Timing::default()
        };
        let some = |random: &mut Random, chance, most| {
            if random.percent(chance) { 1 + random.below(most) } else { 0 }
        };
        let trouble = Trouble {
            lose: some(&mut random, 60, 15),
            duplicate: some(&mut random, 50, 10),
            reorder: some(&mut random, 60, 100),
            delay: some(&mut random, 50, 10),
            ghosts: [0, 50, 100][random.below(3) as usize],
            cut: some(&mut random, 50, 3),
            isolate: some(&mut random, 30, 3),
            noticed: [0, 50, 100][random.below(3) as usize],
            crash: some(&mut random, 60, 6),
            lose_disk: [0, 0, 30][random.below(3) as usize],
            forget: some(&mut random, 30, 3),
            jump: some(&mut random, 50, 3),
            slow: slow_links(&mut random, nodes),
        };
        let clients = Clients::new(&mut random);
        let mut world = World::new(nodes, Options { keeps_records, planted }, timing);
        world.members().for_each(|id| world.restart(id));
        if random.percent(30) {
            for id in world.members() {
                let unix_ahead_ms = random.below(2000) as i64 - 1000;
                world.clock_mut(id).unix_ahead_ms = unix_ahead_ms;
            }
        }
        let damaged = world.members().collect();
        let records = match keeps_records {
            false => Records::None,
            true if random.percent(25) => Records::Written,
            true => Records::Synced,
        };
        let schedule =
            Schedule { random, world, records, trouble, clients, damaged, vouching: BTreeSet::new(), told };
        schedule.tell(|| format!("{nodes} nodes, {records:?}, {timing:?}"));
        schedule
    }

    /// Runs it to its end. Returns how many operations were checked.
    pub(crate) fn run(mut self) -> Result<u64, String> {
        for id in self.world.alive() {
            self.configure(id)?;
        }
        if self.random.percent(80) {
            self.settle(10, 50)?; // Most schedules begin with a group in order, some with one that begins.
        }
        let steps = 100 + self.random.below(900);
        for _ in 0..steps {
            self.step()?;
        }
        self.leave_a_majority_alone()?;
        self.heal()?;
        self.clients.check()
    }

    /// As [`Schedule::run`], but a majority loses its memory on the way, and that is given up: the group goes on with what the
    /// others hold, and from there on everything is as linearizable as before. Returns 0 where none could lose it.
    pub(crate) fn run_with_a_loss(mut self) -> Result<u64, String> {
        // Without its disk a node does not know how often it was started, and those who knew have forgotten it, too.
        self.trouble.lose_disk = 0;
        for id in self.world.alive() {
            self.configure(id)?;
        }
        self.settle(10, 50)?;
        for _ in 0..50 + self.random.below(300) {
            self.step()?;
        }
        if !self.lose_a_majority()? {
            return Ok(0);
        }
        for _ in 0..100 + self.random.below(400) {
            self.step()?;
        }
        self.leave_a_majority_alone()?;
        self.heal()?;
        self.clients.check()
    }

    /// A majority loses its memory at one moment; all of them come back, and an operator gives up what they have lost.
    fn lose_a_majority(&mut self) -> Result<bool, String> {
        let members: Vec<NodeId> = self.world.members().collect();
        let most = members.len() - (members.len() / 2 + 1);
        let ready: Vec<NodeId> = members.iter().copied().filter(|id| has_memory(&self.world, *id)).collect();
        if most == 0 || ready.is_empty() {
            return Ok(false);
        }
        let mut keeping = BTreeSet::new();
        for _ in 0..1 + self.random.below(most as u64) {
            keeping.extend(self.random.pick(&ready));
        }
        self.tell(|| format!("only {keeping:?} keep their memory"));
        let lost: Vec<NodeId> = members.iter().copied().filter(|id| !keeping.contains(id)).collect();
        for id in &lost {
            if self.world.is_alive(*id) {
                self.crash(*id)?;
            }
        }
        for id in &lost {
            if !self.world.is_alive(*id) {
                self.restart(*id)?;
            }
        }
        for one in &members {
            for other in members.iter().filter(|other| one < *other) {
                self.set_link(*one, *other, true)?;
            }
        }
        // Longer than any request may take.
        self.settle(25, 250)?;
        if let Some(waiting) = self.clients.first_open() {
            return Err(format!("{waiting} is never answered"));
        }
        for id in &members {
            let why = self.world.status(*id).map(|status| status.explanation).unwrap_or_default();
            if !why.contains("a majority of its") {
                return Err(format!("node {id} does not say that the group stands still: {why}"));
            }
        }
        let now = self.world.now(1).unix_ms;
        for key in clients::KEYS {
            let held = keeping.iter().filter_map(|id| register(&self.world, *id, key));
            let newest =
                held.max_by_key(|register| register.version).filter(|register| register.is_live(now));
            let newest = newest.map(|register| register.value.to_vec());
            self.clients.begin_anew(key, newest.as_deref());
        }
        for id in &lost {
            let consequences = give_up(&mut self.world, *id);
            self.note(*id, consequences)?;
        }
        Ok(true)
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if self.told {
            println!("{:>12} {}", self.world.time_us, line());
        }
    }

    fn step(&mut self) -> Check {
        self.world.time_us += 1 + self.random.below(300);
        if self.records != Records::None && self.random.percent(25) {
            self.use_a_disk()?;
        }
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
            () if is(self.trouble.forget) => return self.crash_after_acknowledging(),
            () if is(self.trouble.jump) => {
                let jump = self.random.below(3000);
                self.world.time_us += jump * 1000;
            }
            () => match self.random.below(10) {
                0..=2 => return self.ask(),
                3 | 4 => return self.turn(),
                _ => return self.deliver_one(),
            },
        }
        Ok(())
    }

    /// A node's turn ends, perhaps after time has passed.
    fn turn(&mut self) -> Check {
        let Some(id) = self.random.pick(&self.world.alive()) else { return Ok(()) };
        if self.random.percent(50) {
            // Mostly less than anybody's patience.
            let most = [3, 60][usize::from(self.random.percent(10))];
            let passed = self.random.below(most);
            self.world.time_us += passed * 1000;
            let consequences = self.world.tick(id);
            self.note(id, consequences)?;
        }
        self.flush(id)
    }

    fn deliver_one(&mut self) -> Check {
        let network = &self.world.network;
        let moving: Vec<usize> = (0..network.len()).filter(|index| !network[*index].held).collect();
        let Some(mut index) = self.random.pick(&moving) else { return Ok(()) };
        if self.trouble.slow.contains(&(network[index].from, network[index].to)) && self.random.percent(95) {
            if self.random.percent(self.trouble.lose) {
                self.world.network.remove(index);
            }
            return Ok(());
        }
        // Mostly the first on its link, sometimes one that overtakes.
        if !self.random.percent(self.trouble.reorder) {
            let ends = |index: usize| (network[index].from, network[index].to);
            index = moving.iter().copied().find(|first| ends(*first) == ends(index)).unwrap_or(index);
        }
        self.deliver(index)
    }

    fn deliver(&mut self, index: usize) -> Check {
        let letter = self.world.network.remove(index);
        self.tell(|| format!("  deliver {}", show::letter::<Abd>(&letter)));
        let consequences = self.world.deliver(&letter);
        self.note(letter.to, consequences)?;
        if self.random.percent(70) { self.flush(letter.to) } else { Ok(()) }
    }

    fn flush(&mut self, id: NodeId) -> Check {
        let consequences = self.world.flush(id);
        if has_memory(&self.world, id) {
            self.vouching.insert(id);
        }
        self.note(id, consequences)
    }

    fn configure(&mut self, id: NodeId) -> Check {
        let consequences = self.world.configure(id);
        self.note(id, consequences)
    }

    fn ask(&mut self) -> Check {
        let alive = self.world.alive();
        let Some(id) = self.random.pick(&alive) else { return Ok(()) };
        self.ask_of(id).map(drop)
    }

    /// A client asks a node; false when it may not at present.
    fn ask_of(&mut self, id: NodeId) -> Result<bool, String> {
        let Some((asked, command)) = self.clients.ask(&mut self.random, id, self.world.now(id)) else {
            return Ok(false);
        };
        self.tell(|| format!("{:?} asks {id}: {}", asked.ticket, show::command(&command.command())));
        let request = protocol::Request::Command(command.command());
        let consequences = self.world.request(id, asked, request);
        self.note(id, consequences)?;
        Ok(true)
    }

    /// Looks at everything that followed from an input, and puts the letters on their way.
    fn note(&mut self, id: NodeId, consequences: Consequences) -> Check {
        for trace in &consequences.traces {
            self.tell(|| format!("{id} * {}", show::trace(trace)));
            if let protocol::Trace::Rejected { why, .. } = trace {
                return Err(format!("node {id} rejected a message: {why}"));
            }
        }
        for (outcome, reply) in &consequences.outcomes {
            self.tell(|| format!("{:?} {}", outcome.ticket, show::outcome::<Abd>(&outcome.result, reply)));
            if let Some((key, version)) = self.clients.answer(outcome.ticket, &outcome.result, reply)? {
                self.is_held(key, version)?;
            }
        }
        for letter in &consequences.letters {
            self.tell(|| show::letter::<Abd>(letter));
        }
        self.world.post(consequences.letters);
        // What it vouches for has to outlive the next crash, or it is as damaged as it was.
        let is_safe = self.vouching.contains(&id) && self.world.is_synced(id);
        if has_memory(&self.world, id) && (self.records == Records::None || is_safe) {
            self.damaged.remove(&id);
        }
        match !consequences.records.is_empty() && self.records == Records::Written {
            true => self.sync(id),
            false => Ok(()),
        }
    }

    fn sync(&mut self, id: NodeId) -> Check {
        let consequences = self.world.sync_all(id);
        self.note(id, consequences)
    }

    /// What was acknowledged is held by a majority, but for those of it that have lost their memory since and are not
    /// ready again. So only a minority of those that are ready can be without it.
    fn is_held(&self, key: &str, version: kv::Version) -> Check {
        let ready = self.world.members().filter(|id| has_memory(&self.world, *id));
        let holds = |id: &NodeId| {
            let replica = self.world.replica(*id);
            replica.is_some_and(|replica| replica.table().register(key.as_bytes()).version >= version)
        };
        let without: Vec<NodeId> = ready.filter(|id| !holds(id)).collect();
        let members = self.world.members().count();
        match without.len() > members - (members / 2 + 1) {
            true => {
                Err(format!("{key} was acknowledged with version {version}, and {without:?} do not hold it"))
            }
            false => Ok(()),
        }
    }

    /// Time passes and everything that moves arrives, so many times.
    fn settle(&mut self, times: u64, passes_ms: u64) -> Check {
        for _ in 0..times {
            self.world.time_us += passes_ms * 1000;
            for id in self.world.alive() {
                let consequences = self.world.tick(id);
                self.note(id, consequences)?;
                self.flush(id)?;
                self.sync(id)?;
            }
            self.deliver_all()?;
        }
        Ok(())
    }

    fn deliver_all(&mut self) -> Check {
        const LETTERS_MAX: usize = 20_000;
        for _ in 0..LETTERS_MAX {
            let Some(index) = self.world.network.iter().position(|letter| !letter.held) else {
                return Ok(());
            };
            let letter = self.world.network.remove(index);
            self.tell(|| format!("  deliver {}", show::letter::<Abd>(&letter)));
            let consequences = self.world.deliver(&letter);
            self.note(letter.to, consequences)?;
            self.flush(letter.to)?;
            self.sync(letter.to)?;
            self.flush(letter.to)?;
        }
        Err("the group never becomes quiet".into())
    }

    /// Any majority that has its memory is left alone, the others stay away: whatever is asked of it is done.
    fn leave_a_majority_alone(&mut self) -> Check {
        let ready: Vec<NodeId> = self.world.members().filter(|id| has_memory(&self.world, *id)).collect();
        let majority = self.world.members().count() / 2 + 1;
        if ready.len() < majority {
            return Ok(());
        }
        let mut together = BTreeSet::new();
        while together.len() < majority {
            together.extend(self.random.pick(&ready));
        }
        self.tell(|| format!("{together:?} are left alone"));
        for one in self.world.members() {
            for other in one + 1..=self.world.members().count() as NodeId {
                let up = together.contains(&one) && together.contains(&other);
                if self.world.is_cut(one, other) == up {
                    self.set_link(one, other, up)?;
                }
            }
        }
        // Longer than any request may take, so that all that follows is new.
        self.settle(25, 250)?;
        self.clients.take_refused();
        for id in &together {
            for _ in 0..3 {
                let asked = self.clients.open();
                if self.ask_of(*id)? {
                    self.settle(10, 50)?;
                    if self.clients.open() > asked {
                        return Err(format!(
                            "a request of node {id} is not answered, though {together:?} are calm"
                        ));
                    }
                }
            }
        }
        match self.clients.take_refused() {
            0 => Ok(()),
            refused => Err(format!("{refused} requests were not done, though {together:?} were calm")),
        }
    }

    /// A sync of a node's disk ends, a part of a checkpoint is written, or a copy of the disk is put aside.
    fn use_a_disk(&mut self) -> Check {
        let Some(id) = self.random.pick(&self.world.alive()) else { return Ok(()) };
        match self.random.below(20) {
            0..=15 => {
                let (durable, written) = (self.world.durable(id), self.world.written(id));
                // A sync covers what was written when it began.
                let position = written - self.random.below(written - durable + 1);
                let consequences = self.world.sync(id, position);
                self.note(id, consequences)
            }
            16 => {
                self.world.back_up(id);
                Ok(())
            }
            _ => {
                self.flush(id)?;
                let chunk_bytes = [1, 60, 1 << 20][self.random.below(3) as usize];
                let progress = self.world.checkpoint(id, chunk_bytes);
                self.tell(|| format!("{id} writes a checkpoint: {progress:?}"));
                Ok(())
            }
        }
    }

    /// Everything heals: the group becomes whole, with everybody answered and all replicas equal.
    fn heal(&mut self) -> Check {
        self.tell(|| "everything heals".into());
        self.world.network.iter_mut().for_each(|letter| letter.held = false);
        for id in self.world.members() {
            if !self.world.is_alive(id) {
                self.restart(id)?;
            }
        }
        for one in self.world.members() {
            for other in one + 1..=self.world.members().count() as NodeId {
                self.set_link(one, other, true)?;
            }
        }
        for _ in 0..100 {
            self.settle(5, 200)?;
            if self.is_whole() {
                break;
            }
            if self.trouble_is_over() {
                self.world.time_us += 100_000_000; // For those that sweep so seldom.
            }
        }
        if let Some(waiting) = self.clients.first_open() {
            return Err(format!("{waiting} is never answered"));
        }
        for id in self.world.members() {
            let Some(status) = self.world.status(id) else { return Err(format!("node {id} is not there")) };
            if status.role != "replica" {
                return Err(format!("node {id} never becomes ready: {}", status.explanation));
            }
        }
        if !self.is_whole() {
            return Err("the replicas never become equal and free of tombstones".into());
        }
        for id in self.world.members() {
            for key in clients::KEYS {
                let (asked, command) = self.clients.read_at_last(id, key, self.world.now(id));
                let request = protocol::Request::Command(command.command());
                let consequences = self.world.request(id, asked, request);
                self.note(id, consequences)?;
                self.settle(2, 10)?;
            }
        }
        match self.clients.first_open() {
            Some(waiting) => Err(format!("{waiting} is never answered")),
            None => Ok(()),
        }
    }

    fn trouble_is_over(&self) -> bool {
        self.clients.open() == 0 && self.world.members().all(|id| has_memory(&self.world, id))
    }

    fn is_whole(&self) -> bool {
        let table = |id| self.world.replica(id).map(|replica| replica.table());
        let contents: BTreeSet<_> =
            self.world.members().map(|id| table(id).map(|table| table.digest())).collect();
        let tombstones = self.world.members().any(|id| table(id).is_some_and(|table| table.tombstones() > 0));
        self.trouble_is_over() && contents.len() == 1 && !tombstones
    }
}

/// Many schedules have slow links: some here and there, or nearly all from and to one node, so that what it coordinates
/// takes long while the others get on.
fn slow_links(random: &mut Random, nodes: NodeId) -> BTreeSet<(NodeId, NodeId)> {
    let share = [0, 0, 20, 40, 60, 80][random.below(6) as usize];
    let lonely = if share == 80 { 1 + random.below(u64::from(nodes)) as NodeId } else { 0 };
    let pairs = (1..=nodes).flat_map(|from| (1..=nodes).map(move |to| (from, to)));
    let may_be_slow = |(from, to): &(NodeId, NodeId)| lonely == 0 || [*from, *to].contains(&lonely);
    pairs.filter(may_be_slow).filter(|_| random.percent(share)).collect()
}

/// Whether an outcome says that what was asked was done.
fn is_done(result: &Outcome) -> bool {
    matches!(result, Outcome::Done { .. })
}
