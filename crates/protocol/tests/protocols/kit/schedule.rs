//! One random schedule of a group, in virtual time: clients, a bad network, slow disks, pauses, clocks that differ, crashes
//! that lose what was not synced, and what else goes wrong for a protocol; then everything heals. A seed says all that
//! happens in it.
//!
//! A protocol says by [`Scheduled`] what clients ask, which troubles are its own, and what must hold.

use super::history::{Question, Told};
use super::random::Random;
use super::{Asked, Consequences, Letter, Protocol, World, show};
use protocol::contract::{NodeId, Result as Outcome};
use protocol::{Request, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// What a look at the group finds: nothing, or what is wrong.
pub(crate) type Check = Result<(), String>;

/// What a protocol adds to a schedule. What it does not say is done as for a group that needs nothing.
pub(crate) trait Scheduled: Protocol {
    /// What happens to this protocol only.
    type Event;

    /// What it knows of a schedule: its oracle, its troubles.
    type Own;

    /// What a client asks next.
    fn question(schedule: &mut Schedule<Self>) -> Question;

    /// Whether all members are equal, and have no more to do.
    fn is_whole(schedule: &Schedule<Self>) -> bool;

    /// What must hold after every step of a replica; `letter` is what it took.
    fn look(
        _schedule: &mut Schedule<Self>,
        _id: NodeId,
        _letter: Option<&Letter>,
        _consequences: &Consequences,
    ) -> Check {
        Ok(())
    }

    /// What an outcome may not be.
    fn may_be_told(_question: &Question, _result: &Outcome) -> Check {
        Ok(())
    }

    /// Whom an event is for, if for a node: while it is paused, it has to wait.
    fn node_of(_event: &Self::Event) -> Option<NodeId> {
        None
    }

    fn happen(schedule: &mut Schedule<Self>, event: Self::Event) -> Check;

    /// Its own troubles, perhaps with this node, besides those of [`Troubles`].
    fn trouble(_schedule: &mut Schedule<Self>, _id: NodeId) -> Check {
        Ok(())
    }

    /// Whether a node may crash, or start if it has.
    fn may_crash(_schedule: &Schedule<Self>, _id: NodeId) -> bool {
        true
    }

    fn crashed(_schedule: &mut Schedule<Self>, _id: NodeId) -> Check {
        Ok(())
    }

    fn started(_schedule: &mut Schedule<Self>, _id: NodeId) -> Check {
        Ok(())
    }

    /// A node has ended its turn.
    fn flushed(_schedule: &mut Schedule<Self>, _id: NodeId) {}

    /// Everything works again, and all nodes run.
    fn heal(_schedule: &mut Schedule<Self>) -> Check {
        Ok(())
    }

    /// Some more time has passed since then.
    fn mend(_schedule: &mut Schedule<Self>) -> Check {
        Ok(())
    }

    /// The group is whole, and every request has its outcome.
    fn rest(_schedule: &mut Schedule<Self>) -> Check {
        Ok(())
    }
}

/// How likely each kind of trouble is in this schedule, in percent: of letters, of syncs, and of moments at which something
/// may go wrong. Many are 0: a search in which everything always happens at once finds less.
#[derive(Clone, Debug, Default)]
pub(crate) struct Troubles {
    pub(crate) lose: u64,
    pub(crate) duplicate: u64,
    pub(crate) delay: u64,
    /// For how long most delayed letters are under way.
    pub(crate) delay_us: u64,
    /// Of letters, so many percent arrive without regard to those before them.
    pub(crate) overtake: u64,
    pub(crate) slow_disk: u64,
    /// What is written is durable at once.
    pub(crate) syncs_at_once: bool,
    pub(crate) crash: u64,
    pub(crate) crash_all: u64,
    pub(crate) pause: u64,
    pub(crate) pause_us: u64,
    pub(crate) cut: u64,
    pub(crate) one_way: u64,
    pub(crate) checkpoint: u64,
    pub(crate) jump: u64,
    /// Between two moments at which something may go wrong.
    pub(crate) every_us: u64,
}

/// How a schedule goes, trouble apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) clients: usize,
    /// Between two questions of a client.
    pub(crate) think_us: u64,
    /// Clients wait for so long.
    pub(crate) timeouts_us: [u64; 3],
    /// How long the group has before clients come.
    pub(crate) settle_us: u64,
    /// How long clients ask and things go wrong.
    pub(crate) lasts_us: u64,
    /// A node takes a turn at least so often.
    pub(crate) tick_us: u64,
    /// In peace all is done within this time.
    pub(crate) peace_us: u64,
}

/// What happens at a moment.
enum Event<P: Scheduled> {
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
    Trouble,
    Own(P::Event),
}

/// A request that has no end yet.
struct Open {
    question: Question,
    node: NodeId,
    deadline_us: u64,
    hops: u32,
}

pub(crate) struct Schedule<P: Scheduled> {
    pub(crate) random: Random,
    pub(crate) world: World<P>,
    pub(crate) troubles: Troubles,
    pub(crate) own: P::Own,
    pace: Pace,
    told: Told,
    events: BTreeMap<(u64, u64), Event<P>>,
    next_event: u64,
    /// Which start of each node its events belong to.
    starts: Vec<u64>,
    is_flush_due: Vec<bool>,
    is_syncing: Vec<bool>,
    paused_until_us: Vec<u64>,
    /// When the last letter on each link arrives.
    arrivals: BTreeMap<(NodeId, NodeId), u64>,
    /// Directed links that bring nothing.
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    open: BTreeMap<Ticket, Open>,
    asked: Vec<u64>,
    last_outcome: Option<(Ticket, Outcome)>,
    pub(crate) is_calm: bool,
    /// Whether it prints what happens.
    tells: bool,
}

impl<P: Scheduled> Schedule<P> {
    pub(crate) fn new(
        random: Random,
        world: World<P>,
        (troubles, pace): (Troubles, Pace),
        own: P::Own,
        tells: bool,
    ) -> Schedule<P> {
        let nodes = world.members().count();
        let schedule = Schedule {
            random,
            world,
            own,
            told: Told::new(),
            events: BTreeMap::new(),
            next_event: 0,
            starts: vec![0; nodes + 1],
            is_flush_due: vec![false; nodes + 1],
            is_syncing: vec![false; nodes + 1],
            paused_until_us: vec![0; nodes + 1],
            arrivals: BTreeMap::new(),
            cut: BTreeSet::new(),
            open: BTreeMap::new(),
            asked: vec![0; pace.clients],
            last_outcome: None,
            is_calm: false,
            troubles,
            pace,
            tells,
        };
        schedule.tell(|| format!("{nodes} nodes, {:?}, {pace:?}", schedule.troubles));
        schedule
    }

    /// Runs it. An error says which promise was broken; else so many operations were checked.
    pub(crate) fn run(mut self) -> Result<u64, String> {
        for id in self.world.configuration.members.clone() {
            self.start(id)?;
        }
        self.run_for(self.pace.settle_us)?;
        for client in 0..self.asked.len() as u64 {
            self.later(client * 1000, Event::Ask(client));
        }
        self.later(10_000, Event::Trouble);
        self.run_for(self.pace.lasts_us)?;
        self.heal()
    }

    pub(crate) fn tell(&self, text: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>9} {}", self.world.time_us, text());
        }
    }

    /// True in so many percent, while anything goes wrong.
    pub(crate) fn is(&mut self, percent: u64) -> bool {
        !self.is_calm && self.random.percent(percent)
    }

    pub(crate) fn any_node(&mut self) -> NodeId {
        1 + self.random.below(self.world.members().count() as u64) as NodeId
    }

    pub(crate) fn is_paused(&self, id: NodeId) -> bool {
        self.paused_until_us[id as usize] > self.world.time_us
    }

    // Events.

    /// Something happens to this protocol only, in a while.
    pub(crate) fn own_later(&mut self, delay_us: u64, event: P::Event) {
        self.later(delay_us, Event::Own(event));
    }

    fn later(&mut self, delay_us: u64, event: Event<P>) {
        self.at(self.world.time_us + delay_us, event);
    }

    fn at(&mut self, at_us: u64, event: Event<P>) {
        self.next_event += 1;
        self.events.insert((at_us.max(self.world.time_us), self.next_event), event);
    }

    pub(crate) fn run_for(&mut self, microseconds: u64) -> Check {
        let end_us = self.world.time_us + microseconds;
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

    fn happen(&mut self, event: Event<P>) -> Check {
        let node = match &event {
            Event::Deliver(letter) => Some(letter.to),
            Event::Flush(id, start) | Event::Tick(id, start) | Event::Synced(id, start, _) => {
                if *start != self.starts[*id as usize] {
                    return Ok(());
                }
                Some(*id)
            }
            Event::AskAgain(_, id) => Some(*id),
            Event::Own(event) => P::node_of(event),
            Event::Ask(_) | Event::Trouble => None,
        };
        // What comes to a paused node waits, in order, until it goes on.
        if let Some(id) = node.filter(|id| self.is_paused(*id)) {
            let until_us = self.paused_until_us[id as usize];
            self.at(until_us, event);
            return Ok(());
        }
        match event {
            Event::Deliver(letter) => {
                self.tell(|| format!("  deliver {}", show::letter::<P>(&letter)));
                let consequences = self.world.deliver(&letter);
                self.note(letter.to, Some(&letter), consequences)
            }
            Event::Flush(id, _) => self.flush(id),
            Event::Tick(id, start) => {
                let consequences = self.world.tick(id);
                self.note(id, None, consequences)?;
                self.set_timer(id, start);
                Ok(())
            }
            Event::Synced(id, _, position) => {
                self.is_syncing[id as usize] = false;
                let consequences = self.world.sync(id, position);
                self.note(id, None, consequences)?;
                self.sync(id);
                Ok(())
            }
            Event::Ask(client) => self.ask(client),
            Event::AskAgain(ticket, node) => self.ask_at(ticket, node),
            Event::Trouble => self.trouble(),
            Event::Own(event) => P::happen(self, event),
        }
    }

    /// A node's turn ends.
    pub(crate) fn flush(&mut self, id: NodeId) -> Check {
        let consequences = self.world.flush(id);
        P::flushed(self, id);
        self.note(id, None, consequences)?; // It asks for no other flush: this one counts as still to come.
        self.is_flush_due[id as usize] = false;
        self.sync(id);
        Ok(())
    }

    fn set_timer(&mut self, id: NodeId, start: u64) {
        if let Some(wakeup_us) = self.world.wakeup_us(id) {
            let now_us = self.world.time_us;
            let at_us = wakeup_us.max(now_us + 1000).min(now_us + self.pace.tick_us);
            self.at(at_us, Event::Tick(id, start));
        }
    }

    /// Begins a sync, if one is needed and none runs.
    fn sync(&mut self, id: NodeId) {
        if self.is_syncing[id as usize] || self.world.is_synced(id) {
            return;
        }
        self.is_syncing[id as usize] = true;
        let duration_us = match self.is(self.troubles.slow_disk) {
            true => 1000 + self.random.below(60_000),
            false => 100 + self.random.below(1500),
        };
        let (start, position) = (self.starts[id as usize], self.world.written(id));
        self.later(duration_us, Event::Synced(id, start, position));
    }

    /// Looks at everything that followed from an input, and puts the letters on their way.
    pub(crate) fn note(&mut self, id: NodeId, letter: Option<&Letter>, consequences: Consequences) -> Check {
        for trace in &consequences.traces {
            self.tell(|| format!("{id} * {}", P::show_trace(trace)));
        }
        P::look(self, id, letter, &consequences)?;
        for (outcome, reply) in &consequences.outcomes {
            self.tell(|| format!("{:?} {}", outcome.ticket, show::outcome::<P>(&outcome.result, reply)));
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
            self.last_outcome = Some((outcome.ticket, outcome.result));
            P::may_be_told(&open.question, &outcome.result)?;
            self.told.answer(self.world.time_us, outcome.ticket, &open.question, &outcome.result, reply)?;
        }
        if !self.is_flush_due[id as usize] {
            self.is_flush_due[id as usize] = true;
            let delay_us = self.random.below(300);
            let start = self.starts[id as usize];
            self.later(delay_us, Event::Flush(id, start));
        }
        consequences.letters.into_iter().for_each(|letter| self.post(letter));
        if self.troubles.syncs_at_once && !self.world.is_synced(id) {
            let consequences = self.world.sync_all(id);
            return self.note(id, None, consequences);
        }
        Ok(())
    }

    fn post(&mut self, letter: Letter) {
        if self.cut.contains(&(letter.from, letter.to)) || self.is(self.troubles.lose) {
            return;
        }
        const VERY_LATE_US: u64 = 2_000_000;
        let mut delay_us = 100 + self.random.below(500);
        let is_late = self.is(self.troubles.delay);
        if is_late {
            let most_us = if self.random.percent(90) { self.troubles.delay_us } else { VERY_LATE_US };
            delay_us += self.random.below(most_us);
        }
        if self.is(self.troubles.duplicate) {
            let most_us = if self.random.percent(90) { 5_000 } else { VERY_LATE_US };
            let again_us = delay_us + self.random.below(most_us);
            self.later(again_us, Event::Deliver(letter.clone()));
        }
        let mut at_us = self.world.time_us + delay_us;
        if !is_late && !self.is(self.troubles.overtake) {
            let last_us = self.arrivals.entry((letter.from, letter.to)).or_default();
            at_us = at_us.max(*last_us);
            *last_us = at_us;
        }
        self.at(at_us, Event::Deliver(letter));
    }

    // Clients.

    fn ask(&mut self, client: u64) -> Check {
        if !self.is_calm {
            let pause_us = 200 + self.random.below(self.pace.think_us);
            self.later(pause_us, Event::Ask(client));
        }
        let question = P::question(self);
        let timeout_us = self.pace.timeouts_us[self.random.below(3) as usize];
        let node = self.any_node();
        self.put(client, node, question, timeout_us);
        Ok(())
    }

    fn put(&mut self, client: u64, node: NodeId, question: Question, timeout_us: u64) -> Ticket {
        self.asked[client as usize] += 1;
        let ticket = Ticket { client, sequence: self.asked[client as usize] };
        self.told.ask(self.world.time_us, ticket, &question);
        self.tell(|| format!("{ticket:?} {question:?}"));
        let deadline_us = self.world.time_us + timeout_us;
        self.open.insert(ticket, Open { question, node, deadline_us, hops: 0 });
        self.later(10, Event::AskAgain(ticket, node));
        ticket
    }

    /// In peace a node does what it is asked, within this time.
    pub(crate) fn must_do(&mut self, node: NodeId, question: Question, within_us: u64) -> Check {
        let what = format!("{question:?}");
        let ticket = self.put(0, node, question, 300_000);
        self.run_for(within_us)?;
        match self.last_outcome {
            Some((of, Outcome::Done { .. })) if of == ticket => Ok(()),
            last => Err(format!("in peace node {node} does not do {what}: {last:?}")),
        }
    }

    fn ask_at(&mut self, ticket: Ticket, node: NodeId) -> Check {
        let Some(open) = self.open.get(&ticket).filter(|open| open.node == node) else { return Ok(()) };
        if !self.world.is_alive(node) {
            return self.end(ticket, Outcome::Refused);
        }
        let left_us = open.deadline_us.saturating_sub(self.world.time_us);
        let deadline_us = self.world.now(node).monotonic_us + left_us;
        let asked = Asked { ticket, follows: false, seen: 0, deadline_us };
        let question = open.question.clone();
        let consequences =
            question.with_command(|command| self.world.request(node, asked, Request::Command(command)));
        self.note(node, None, consequences)
    }

    /// A client has lost its connection, or never had one.
    fn end(&mut self, ticket: Ticket, result: Outcome) -> Check {
        let open = self.open.remove(&ticket).expect("whoever ends a request has found it");
        self.told.answer(self.world.time_us, ticket, &open.question, &result, &[])
    }

    // Trouble.

    fn trouble(&mut self) -> Check {
        if self.is_calm {
            return Ok(());
        }
        let pause_us = self.random.below(self.troubles.every_us);
        self.later(pause_us, Event::Trouble);
        let id = self.any_node();
        if self.is(self.troubles.checkpoint) && !self.is_paused(id) {
            let chunk_bytes = [1, 1000][self.random.below(2) as usize];
            self.world.checkpoint(id, chunk_bytes);
        }
        if self.is(self.troubles.pause) {
            let pause_us = self.random.below(self.troubles.pause_us);
            self.tell(|| format!("{id} pauses for {pause_us}"));
            self.paused_until_us[id as usize] = self.world.time_us + pause_us;
        }
        if self.is(self.troubles.jump) {
            let more_ms = self.random.below(5_000) as i64;
            self.world.clock_mut(id).unix_ahead_ms = P::clock(id).unix_ahead_ms + more_ms;
        }
        for (percent, both_ways) in [(self.troubles.cut, true), (self.troubles.one_way, false)] {
            if self.is(percent) {
                match self.cut.is_empty() {
                    true => self.isolate(id, both_ways),
                    false => self.cut.clear(),
                }
            }
        }
        if self.is(self.troubles.crash_all) {
            for id in self.world.alive() {
                if P::may_crash(self, id) {
                    self.crash(id)?;
                }
            }
        }
        if self.is(self.troubles.crash) && P::may_crash(self, id) {
            match self.world.is_alive(id) {
                true => self.crash(id)?,
                false => self.start(id)?,
            }
        }
        P::trouble(self, id)
    }

    fn isolate(&mut self, id: NodeId, both_ways: bool) {
        self.tell(|| format!("{id} is cut off, both ways: {both_ways}"));
        let is_whole = self.random.percent(60);
        for peer in self.world.members() {
            if peer == id || !is_whole && self.random.percent(50) {
                continue;
            }
            self.cut.insert((id, peer));
            if both_ways {
                self.cut.insert((peer, id));
            }
        }
    }

    pub(crate) fn crash(&mut self, id: NodeId) -> Check {
        if !self.world.is_alive(id) {
            return Ok(());
        }
        let kept = if self.random.percent(50) { 0 } else { self.random.below(4) };
        self.tell(|| format!("{id} crashes"));
        self.world.crash(id, kept);
        self.starts[id as usize] += 1;
        if self.random.percent(50) {
            for peer in self.world.alive() {
                let consequences = self.world.hint(peer, id, false);
                self.note(peer, None, consequences)?;
            }
        }
        let lost: Vec<Ticket> =
            self.open.iter().filter(|(_, open)| open.node == id).map(|(ticket, _)| *ticket).collect();
        lost.into_iter().try_for_each(|ticket| self.end(ticket, Outcome::Unknown))?;
        P::crashed(self, id)
    }

    pub(crate) fn start(&mut self, id: NodeId) -> Check {
        self.tell(|| format!("{id} starts"));
        self.is_flush_due[id as usize] = false;
        self.is_syncing[id as usize] = false;
        self.paused_until_us[id as usize] = 0;
        let consequences = self.world.start(id);
        self.note(id, None, consequences)?;
        self.set_timer(id, self.starts[id as usize]);
        P::started(self, id)
    }

    // The end.

    fn heal(&mut self) -> Result<u64, String> {
        const ROUNDS_MAX: usize = 300;
        self.tell(|| "everything heals".into());
        self.is_calm = true;
        self.cut.clear();
        self.paused_until_us.fill(0);
        for id in self.world.members() {
            if !self.world.is_alive(id) && !self.world.is_unused(id) {
                self.start(id)?;
            }
        }
        P::heal(self)?;
        for _ in 0..ROUNDS_MAX {
            self.run_for(100_000)?;
            P::mend(self)?;
            if self.open.is_empty() && P::is_whole(self) {
                return self.finish();
            }
        }
        let status = |id| Some(format!("{id}: {}", P::show_status(&self.world.status(id)?)));
        let statuses: Vec<String> = self.world.members().filter_map(status).collect();
        Err(format!("it does not heal, {} unanswered\n{}", self.open.len(), statuses.join("\n")))
    }

    /// Requests go on, and what clients were told is linearizable.
    fn finish(&mut self) -> Result<u64, String> {
        for client in 0..self.asked.len() as u64 {
            self.ask(client)?;
        }
        self.run_for(self.pace.peace_us)?;
        if !self.open.is_empty() {
            return Err("a request in peace is not answered".into());
        }
        P::rest(self)?;
        self.told.check()
    }
}
