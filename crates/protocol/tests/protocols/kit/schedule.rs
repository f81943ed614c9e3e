//! One random schedule of a group, in virtual time: clients, a bad network, slow disks, pauses, clocks that differ, crashes
//! that lose what was not synced, and the protocol's own faults; then everything heals. A seed determines all that happens
//! in it.
//!
//! A protocol defines by [`Scheduled`] what clients request, its own kinds of trouble, and what must hold.

use super::history::{Question, Recorder};
use super::random::Random;
use super::{Asked, Consequences, Letter, Protocol, World, show};
use protocol::Ticket;
use protocol::contract::{NodeId, Result as Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// The result of a check of the group: an error describes what is wrong.
pub(crate) type Check = Result<(), String>;

/// A protocol's part of a schedule. The defaults suit a protocol that needs nothing special.
pub(crate) trait Scheduled: Protocol {
    /// Events of this protocol only.
    type Event;

    /// The protocol's state in a schedule: its oracle, its own trouble.
    type Own;

    /// Whether a client's requests about one key take effect in order, even when it does not wait for their outcomes.
    const IN_ORDER: bool = false;

    /// Whether nodes are notified of links that break and come up.
    const NOTICES_LINKS: bool = true;

    /// Returns a client's next request; `None` if it has to wait.
    fn question(schedule: &mut Schedule<Self>, client: u64) -> Option<Question>;

    /// Returns the node to which the client sends it.
    fn node(schedule: &mut Schedule<Self>, _client: u64) -> NodeId {
        schedule.any_node()
    }

    /// What that node knows of the client: whether earlier requests of it are open, and the newest write that it has seen.
    fn session(_schedule: &Schedule<Self>, _ticket: Ticket) -> (bool, u64) {
        (false, 0)
    }

    fn asked(_schedule: &mut Schedule<Self>, _ticket: Ticket, _question: &Question) {}

    /// Whether all members are equal and have nothing left to do.
    fn is_whole(schedule: &Schedule<Self>) -> bool;

    /// Checks what must hold after every step of a replica; `letter` is the message that it took. A planted fault may
    /// change what follows.
    fn look(
        _schedule: &mut Schedule<Self>,
        _id: NodeId,
        _letter: Option<&Letter>,
        _consequences: &mut Consequences,
    ) -> Check {
        Ok(())
    }

    /// Checks what must hold of an outcome, besides that all answers are linearizable.
    fn check_outcome(_schedule: &mut Schedule<Self>, _ending: &Ending<'_>) -> Check {
        Ok(())
    }

    /// Whether linearizable answers are promised in this schedule.
    fn is_linearizable(_schedule: &Schedule<Self>) -> bool {
        true
    }

    /// The node that an event is for, if any: while the node is paused, the event waits.
    fn node_of(_event: &Self::Event) -> Option<NodeId> {
        None
    }

    fn happen(schedule: &mut Schedule<Self>, event: Self::Event) -> Check;

    /// Causes the protocol's own trouble, perhaps with this node, besides [`Troubles`].
    fn trouble(_schedule: &mut Schedule<Self>, _id: NodeId) -> Check {
        Ok(())
    }

    /// Whether a node may crash, or start if it has crashed.
    fn may_crash(_schedule: &Schedule<Self>, _id: NodeId) -> bool {
        true
    }

    fn crashed(_schedule: &mut Schedule<Self>, _id: NodeId) -> Check {
        Ok(())
    }

    fn start(schedule: &mut Schedule<Self>, id: NodeId) -> Consequences {
        schedule.world.start(id)
    }

    /// Called when a node has ended its turn.
    fn flushed(_schedule: &mut Schedule<Self>, _id: NodeId) {}

    /// Called when nothing more goes wrong, but nothing is healed yet.
    fn calm(_schedule: &mut Schedule<Self>) -> Check {
        Ok(())
    }

    /// Called when everything works again, and all nodes run.
    fn heal(_schedule: &mut Schedule<Self>) -> Check {
        Ok(())
    }

    /// Called when some more time has passed since then.
    fn mend(_schedule: &mut Schedule<Self>) -> Check {
        Ok(())
    }

    /// Called when the group is whole, and every request has its outcome.
    fn rest(_schedule: &mut Schedule<Self>) -> Check {
        Ok(())
    }
}

/// How likely each kind of trouble is in this schedule, in percent of letters, of syncs, or of the moments at which
/// something may go wrong. Many are 0: a search in which everything always happens at once finds less.
#[derive(Clone, Debug, Default)]
pub(crate) struct Troubles {
    pub(crate) lose: u64,
    pub(crate) duplicate: u64,
    pub(crate) delay: u64,
    /// How long most delayed letters are under way.
    pub(crate) delay_us: u64,
    /// The percentage of letters that may overtake earlier ones.
    pub(crate) overtake: u64,
    pub(crate) slow_disk: u64,
    /// Whether written records are durable at once.
    pub(crate) syncs_at_once: bool,
    pub(crate) crash: u64,
    pub(crate) crash_all: u64,
    /// A crashed node starts within this time; if 0, it starts when it is next picked for a crash.
    pub(crate) restart_us: u64,
    pub(crate) pause: u64,
    pub(crate) pause_us: u64,
    pub(crate) cut: u64,
    pub(crate) one_way: u64,
    /// One link breaks both ways, or comes up again; `noticed` is the percentage of breaks that are noticed.
    pub(crate) link: u64,
    pub(crate) noticed: u64,
    /// Directed links on which letters take far longer than on others.
    pub(crate) slow: BTreeSet<(NodeId, NodeId)>,
    pub(crate) checkpoint: u64,
    pub(crate) jump: u64,
    /// The time between two moments at which something may go wrong.
    pub(crate) every_us: u64,
}

/// The pace of a schedule, apart from trouble.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) clients: usize,
    /// The time between two requests of a client.
    pub(crate) think_us: u64,
    /// How long clients wait.
    pub(crate) timeouts_us: [u64; 3],
    /// How long the group has before clients come.
    pub(crate) settle_us: u64,
    /// How long clients send requests and things go wrong.
    pub(crate) lasts_us: u64,
    /// The longest time between two turns of a node.
    pub(crate) tick_us: u64,
    /// In peace everything must be done within this time.
    pub(crate) peace_us: u64,
}

/// An event at one moment.
enum Event<P: Scheduled> {
    Deliver(Letter),
    /// A node's turn ends.
    Flush(NodeId, u64),
    /// A node's timer.
    Tick(NodeId, u64),
    /// A sync of a node's disk up to a position is done.
    Synced(NodeId, u64, u64),
    /// A client sends a new request.
    Ask(u64),
    /// A client sends its request to the node to which it was redirected.
    AskAgain(Ticket, NodeId),
    /// A node that has crashed starts again.
    Restart(NodeId),
    Trouble,
    Own(P::Event),
}

/// The end of a request.
pub(crate) struct Ending<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) question: &'a Question,
    /// The node that returned the outcome; `None` when the client lost its connection, or never had one.
    pub(crate) by: Option<NodeId>,
    pub(crate) result: &'a Outcome,
    pub(crate) reply: &'a [u8],
}

/// A request without an outcome.
struct Open {
    question: Question,
    node: NodeId,
    deadline_us: u64,
    hops: u32,
    /// When that node got it, as a growing number.
    got: u64,
}

pub(crate) struct Schedule<P: Scheduled> {
    pub(crate) random: Random,
    pub(crate) world: World<P>,
    pub(crate) troubles: Troubles,
    pub(crate) own: P::Own,
    pace: Pace,
    pub(crate) recorder: Recorder,
    events: BTreeMap<(u64, u64), Event<P>>,
    next_event: u64,
    /// The number of each node's current start: events of earlier starts are ignored.
    starts: Vec<u64>,
    is_flush_due: Vec<bool>,
    is_syncing: Vec<bool>,
    paused_until_us: Vec<u64>,
    /// When the last letter on each link arrives.
    arrivals: BTreeMap<(NodeId, NodeId), u64>,
    /// Directed links that lose everything.
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    open: BTreeMap<Ticket, Open>,
    asked: Vec<u64>,
    last_outcome: Option<(Ticket, Outcome)>,
    pub(crate) is_calm: bool,
    /// Whether it prints what happens.
    prints: bool,
}

impl<P: Scheduled> Schedule<P> {
    pub(crate) fn new(
        random: Random,
        world: World<P>,
        (troubles, pace): (Troubles, Pace),
        own: P::Own,
        prints: bool,
    ) -> Schedule<P> {
        let nodes = world.members().count();
        let schedule = Schedule {
            random,
            world,
            own,
            recorder: Recorder::default(),
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
            prints,
        };
        schedule.tell(|| format!("{nodes} nodes, {:?}, {pace:?}", schedule.troubles));
        schedule
    }

    /// Runs the schedule. Returns the number of operations checked, or which promise was broken.
    pub(crate) fn run(mut self) -> Result<u64, String> {
        self.begin()?;
        self.go_wrong()?;
        self.heal()
    }

    pub(crate) fn begin(&mut self) -> Check {
        for id in self.world.configuration.members.clone() {
            self.start(id)?;
        }
        self.run_for(self.pace.settle_us)
    }

    /// Lets clients send requests and things go wrong.
    pub(crate) fn go_wrong(&mut self) -> Check {
        self.is_calm = false;
        for client in 0..self.asked.len() as u64 {
            self.later(client * 1000, Event::Ask(client));
        }
        self.later(10_000, Event::Trouble);
        self.run_for(self.pace.lasts_us)
    }

    pub(crate) fn tell(&self, text: impl FnOnce() -> String) {
        if self.prints {
            println!("{:>9} {}", self.world.time_us, text());
        }
    }

    /// Returns true with this probability, while things may go wrong.
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

    /// Schedules an event of the protocol.
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
            Event::Ask(_) | Event::Restart(_) | Event::Trouble => None,
        };
        // Events for a paused node wait, in order, until it continues.
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
            Event::Restart(id) if self.world.is_alive(id) => Ok(()),
            Event::Restart(id) => self.start(id),
            Event::Trouble => self.trouble(),
            Event::Own(event) => P::happen(self, event),
        }
    }

    /// Ends a node's turn.
    pub(crate) fn flush(&mut self, id: NodeId) -> Check {
        let consequences = self.world.flush(id);
        P::flushed(self, id);
        self.note(id, None, consequences)?; // It requests no other flush: this one is still pending.
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

    /// Checks everything that followed from an input, and puts the letters on their way.
    pub(crate) fn note(
        &mut self,
        id: NodeId,
        letter: Option<&Letter>,
        mut consequences: Consequences,
    ) -> Check {
        for trace in &consequences.traces {
            self.tell(|| format!("{id} * {}", P::show_trace(trace)));
        }
        P::look(self, id, letter, &mut consequences)?;
        for (outcome, reply) in &consequences.outcomes {
            self.tell(|| format!("{:?} {}", outcome.ticket, show::outcome::<P>(&outcome.result, reply)));
            let Some(mut open) = self.open.remove(&outcome.ticket) else {
                return Err(format!("{:?} has a second end", outcome.ticket));
            };
            if let Outcome::Redirect { to } = outcome.result {
                const HOPS_MAX: u32 = 8;
                open.hops += 1;
                if open.hops <= HOPS_MAX && self.world.time_us < open.deadline_us {
                    // No leader is known: the client goes to any node.
                    let to = if to == 0 { self.any_node() } else { to };
                    open.node = to;
                    self.open.insert(outcome.ticket, open);
                    let delay_us = 100 + self.random.below(1000);
                    self.later(delay_us, Event::AskAgain(outcome.ticket, to));
                    continue;
                }
            }
            self.last_outcome = Some((outcome.ticket, outcome.result));
            self.tell_client(outcome.ticket, &open, Some(id), (&outcome.result, reply))?;
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
        const SLOW_US: u64 = 40_000;
        let mut delay_us = 100 + self.random.below(500);
        if !self.is_calm && self.troubles.slow.contains(&(letter.from, letter.to)) {
            delay_us += self.random.below(SLOW_US);
        }
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

    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Letter> {
        self.events
            .values()
            .filter_map(|event| if let Event::Deliver(letter) = event { Some(letter) } else { None })
    }

    /// Makes the letters under way that fit arrive after this time, in the order in which they would have arrived.
    pub(crate) fn arrive_in(&mut self, delay_us: u64, fits: impl Fn(&Letter) -> bool) {
        let is_it = |event: &Event<P>| matches!(event, Event::Deliver(letter) if fits(letter));
        let letters: Vec<_> = self.events.extract_if(.., |_, event| is_it(event)).collect();
        letters.into_iter().for_each(|(_, event)| self.later(delay_us, event));
    }

    // Links.

    /// Breaks a link both ways, or repairs it, which is always noticed.
    pub(crate) fn set_link(&mut self, one: NodeId, other: NodeId, up: bool, is_noticed: bool) -> Check {
        for link in [(one, other), (other, one)] {
            if up {
                self.cut.remove(&link)
            } else {
                self.cut.insert(link)
            };
        }
        if up || is_noticed { self.hint(one, other, up) } else { Ok(()) }
    }

    pub(crate) fn mend_links(&mut self) -> Check {
        for id in self.world.members() {
            for peer in self.world.members().filter(|peer| *peer > id) {
                self.set_link(id, peer, true, true)?;
            }
        }
        Ok(())
    }

    /// Notifies both ends of their link.
    fn hint(&mut self, one: NodeId, other: NodeId, up: bool) -> Check {
        self.tell(|| format!("link {one}-{other} {}", if up { "up" } else { "down" }));
        for (id, peer) in [(one, other), (other, one)] {
            let consequences = self.world.hint(id, peer, up);
            self.note(id, None, consequences)?;
        }
        Ok(())
    }

    // Clients.

    /// The nodes at which a client's requests are open, in the order in which they were sent.
    pub(crate) fn open_at(&self, client: u64) -> impl Iterator<Item = NodeId> {
        let [first, last] = [0, u64::MAX].map(|sequence| Ticket { client, sequence });
        self.open.range(first..=last).map(|(_, open)| open.node)
    }

    pub(crate) fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// Whether an earlier request of the same client is open.
    pub(crate) fn follows(&self, ticket: Ticket) -> bool {
        self.open.range(Ticket { sequence: 0, ..ticket }..ticket).next().is_some()
    }

    fn ask(&mut self, client: u64) -> Check {
        if !self.is_calm {
            let pause_us = 200 + self.random.below(self.pace.think_us);
            self.later(pause_us, Event::Ask(client));
        }
        let Some(question) = P::question(self, client) else { return Ok(()) };
        let timeout_us = self.pace.timeouts_us[self.random.below(3) as usize];
        let node = P::node(self, client);
        self.put(client, node, question, timeout_us);
        Ok(())
    }

    fn put(&mut self, client: u64, node: NodeId, question: Question, timeout_us: u64) -> Ticket {
        self.asked[client as usize] += 1;
        let ticket = Ticket { client, sequence: self.asked[client as usize] };
        self.recorder.ask(self.world.time_us, ticket);
        P::asked(self, ticket, &question);
        self.tell(|| format!("{ticket:?} asks {node} {question:?}"));
        let deadline_us = self.world.time_us + timeout_us;
        self.open.insert(ticket, Open { question, node, deadline_us, hops: 0, got: 0 });
        self.later(10, Event::AskAgain(ticket, node));
        ticket
    }

    /// Checks that in peace a node does a request within this time.
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
        self.next_event += 1;
        let Some(open) = self.open.get_mut(&ticket).filter(|open| open.node == node) else { return Ok(()) };
        open.got = self.next_event;
        let (question, left_us) =
            (open.question.clone(), open.deadline_us.saturating_sub(self.world.time_us));
        if !self.world.is_alive(node) {
            return self.end(ticket, Outcome::Refused);
        }
        let deadline_us = self.world.now(node).monotonic_us + left_us;
        let (follows, seen) = P::session(self, ticket);
        let asked = Asked { ticket, follows, seen, deadline_us };
        let consequences = question.with_request(|request| self.world.request(node, asked, request));
        self.note(node, None, consequences)
    }

    /// Ends a request of a client that has lost its connection, or never had one.
    fn end(&mut self, ticket: Ticket, result: Outcome) -> Check {
        let open = self.open.remove(&ticket).expect("only open requests are ended");
        self.tell_client(ticket, &open, None, (&result, &[]))
    }

    fn tell_client(
        &mut self,
        ticket: Ticket,
        open: &Open,
        by: Option<NodeId>,
        (result, reply): (&Outcome, &[u8]),
    ) -> Check {
        let question = &open.question;
        P::check_outcome(self, &Ending { ticket, question, by, result, reply })?;
        // A redirected request reaches another node by itself, in no known order.
        let in_order = (P::IN_ORDER && open.hops == 0).then_some(open.got);
        self.recorder.answer(self.world.time_us, (ticket, question), (result, reply), in_order)
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
            self.pause(id, pause_us);
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
        if P::NOTICES_LINKS && self.is(self.troubles.link) {
            let peer = self.any_node();
            let up = self.cut.contains(&(id, peer));
            if id != peer {
                let is_noticed = up || self.random.percent(self.troubles.noticed);
                self.set_link(id, peer, up, is_noticed)?;
            }
        }
        P::trouble(self, id)
    }

    pub(crate) fn pause(&mut self, id: NodeId, pause_us: u64) {
        self.tell(|| format!("{id} pauses for {pause_us}"));
        self.paused_until_us[id as usize] = self.world.time_us + pause_us;
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
        P::crashed(self, id)?;
        if self.troubles.restart_us > 0 {
            let restart_us = self.random.below(self.troubles.restart_us);
            self.later(restart_us, Event::Restart(id));
        }
        Ok(())
    }

    pub(crate) fn start(&mut self, id: NodeId) -> Check {
        self.tell(|| format!("{id} starts"));
        self.is_flush_due[id as usize] = false;
        self.is_syncing[id as usize] = false;
        self.paused_until_us[id as usize] = 0;
        let consequences = P::start(self, id);
        self.note(id, None, consequences)?;
        self.set_timer(id, self.starts[id as usize]);
        for peer in self.world.alive().into_iter().filter(|peer| P::NOTICES_LINKS && *peer != id) {
            if !self.cut.contains(&(id, peer)) {
                self.hint(id, peer, true)?;
            }
        }
        Ok(())
    }

    // The end.

    /// From now on nothing more goes wrong. What is broken stays broken.
    pub(crate) fn be_calm(&mut self) {
        self.is_calm = true;
        self.paused_until_us.fill(0);
    }

    pub(crate) fn heal(&mut self) -> Result<u64, String> {
        const ROUNDS_MAX: usize = 300;
        self.be_calm();
        P::calm(self)?;
        self.tell(|| "everything heals".into());
        self.cut.clear();
        for id in self.world.members() {
            if !self.world.is_alive(id) && !self.world.is_unused(id) {
                self.start(id)?;
            }
        }
        if P::NOTICES_LINKS {
            self.mend_links()?;
        }
        P::heal(self)?;
        for _ in 0..ROUNDS_MAX {
            self.run_for(100_000)?;
            P::mend(self)?;
            if self.open.is_empty() && P::is_whole(self) {
                return self.finish();
            }
        }
        Err(format!("it does not heal, {} unanswered\n{}", self.open.len(), self.statuses()))
    }

    /// Checks that the group becomes whole again after requests in peace.
    pub(crate) fn becomes_whole(&mut self) -> Check {
        for _ in 0..50 {
            if P::is_whole(self) {
                return Ok(());
            }
            self.run_for(100_000)?;
        }
        Err(format!("the replicas do not become equal\n{}", self.statuses()))
    }

    fn statuses(&self) -> String {
        let status = |id| Some(format!("{id}: {}", P::show_status(&self.world.status(id)?)));
        self.world.members().filter_map(status).collect::<Vec<_>>().join("\n")
    }

    /// Checks that requests are still served, and that the answers to clients are linearizable.
    fn finish(&mut self) -> Result<u64, String> {
        for client in 0..self.asked.len() as u64 {
            self.ask(client)?;
        }
        self.run_for(self.pace.peace_us)?;
        if !self.open.is_empty() {
            return Err("a request in peace is not answered".into());
        }
        P::rest(self)?;
        if P::is_linearizable(self) { self.recorder.check() } else { Ok(self.recorder.count()) }
    }
}
