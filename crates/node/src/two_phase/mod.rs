//! Transactions over several groups: what this node coordinates for its clients, and what it does as the leader of groups that
//! take part. `docs/design/transactions.md` has the protocol, and why it is right.
//!
//! `plan` divides a request and joins the replies; `evaluation` carries out what cannot be divided, on copies of its values; `reading`
//! reads without locks; `merging` makes one transaction of what waits on a connection, `lanes` of what several connections ask;
//! `protocol::two_phase` has the coordinator and the resolver; `list` is what a leader knows of locked keys before its table does;
//! `moment` locks all keys for a backup.

pub(crate) mod evaluation;
mod forgetting;
pub(crate) mod lanes;
pub(crate) mod list;
pub(crate) mod merging;
pub(crate) mod moment;
pub(crate) mod plan;
mod reading;

use crate::context::routing::{CROSSSLOT, MOVED};
use crate::context::{Call, Context};
use crate::groups::Group;
use crate::session::gates::Gate;
use crate::session::origin::{Asked, Origin};
use crate::session::{ClientId, Item, Pending};
use cluster::control::Feature;
use evaluation::MOVED_BYTES_MAX;
use forgetting::Forgetting;
use kv::codec::Reader;
use kv::{Announcement, Command, Reply, ReplyBuffer, TransactionId, UnixMs, Version};
use lanes::Lanes;
use list::{Judged, Locks};
use merging::{Connections, Merged, Work};
use moment::Moment;
use plan::Whole;
use protocol::leader_follower::{Acks, Durability};
use protocol::planted::{Fault, Planted};
use protocol::two_phase::{self, Action, Coordinator, Ended, Evaluated, Planned, Resolver, What};
use protocol::{Outcome as Ending, Request, Result as Outcome, Ticket};
use reading::{Next, Reading};
use std::collections::{BTreeMap, BTreeSet};

/// How often this node looks for transactions that are held here and that nobody ends.
const LOOK_US: u64 = 50_000;

/// After this time a transaction that is held here is resolved, whatever its coordinator does.
const RESOLVED_AFTER_US: u64 = 1_000_000;

/// The same where the coordinator's node is not reached.
const ABANDONED_US: u64 = 100_000;

/// After this time a transaction is given up that depends on a group which does not exist any more.
const ORPHANED_US: u64 = 5_000_000;

const LATE: &str = "TRYAGAIN LOCKED other transactions held the keys for too long, or a keyspace of the request did not answer; nothing was done, \
     try again";

const UNKNOWN: &str = "UNKNOWN not all keyspaces of the transaction have answered in time; all of it may still take effect, or nothing";

/// The transactions over several groups that concern this node.
#[derive(Debug)]
pub(crate) struct TwoPhase {
    /// There is none before this start of the node is in the map.
    coordinator: Option<Coordinator>,
    resolver: Resolver,
    /// The clients' requests that are under way, by number: one number for those that are merged.
    requests: BTreeMap<u64, Merged>,
    /// Those that read without locks.
    readings: BTreeMap<u64, Reading>,
    /// For a backup: the request that has all keys locked, by its number.
    moment: Option<(u64, Moment)>,
    /// What scripts have published that were carried out here.
    announced: Vec<Announcement>,
    newest_request: u64,
    /// The order of each connection's requests.
    connections: Connections,
    /// Those of them that are merged with others' requests.
    lanes: Lanes,
    /// Bytes of values that requests which are carried out here hold, or may be about to.
    moving_bytes: usize,
    /// Clients whose requests over several groups have ended while another request waited behind them.
    released: Vec<ClientId>,
    /// What groups were asked and have not answered yet, by the number of the ticket.
    questions: BTreeMap<u64, Question>,
    newest_question: u64,
    /// By the group that this node leads.
    lists: BTreeMap<u16, Locks>,
    /// Since when transactions are held by groups that this node leads, on the monotonic clock.
    held_since_us: BTreeMap<(u16, TransactionId), u64>,
    looked_us: u64,
    forgetting: Forgetting,
    /// When [`TwoPhase::tick`] has something to do.
    due_us: u64,
}

/// What was handed to a group.
#[derive(Clone, Copy, Debug)]
enum Question {
    /// A record of a transaction.
    Record {
        group: u16,
        asked: two_phase::Asked,
        /// The group for which the resolver has asked; `None`: the coordinator has.
        holder: Option<u16>,
    },
    /// A read without locks, of the request with this number.
    Read { group: u16, request: u64 },
    /// Whether the group holds a transaction that an ended coordinator has left, and on which another group keeps its vote.
    Left { group: u16, holder: u16, id: TransactionId },
    /// The group forgets such a vote.
    Forget { group: u16 },
}

/// How a request begins.
enum Way {
    Reads(Reading),
    Records(Vec<Planned>),
}

impl TwoPhase {
    pub(crate) fn new(planted: Planted) -> TwoPhase {
        TwoPhase {
            coordinator: None,
            resolver: Resolver::new(planted),
            requests: BTreeMap::new(),
            readings: BTreeMap::new(),
            moment: None,
            announced: Vec::new(),
            newest_request: 0,
            connections: Connections::default(),
            lanes: Lanes::default(),
            moving_bytes: 0,
            released: Vec::new(),
            questions: BTreeMap::new(),
            newest_question: 0,
            lists: BTreeMap::new(),
            held_since_us: BTreeMap::new(),
            looked_us: 0,
            forgetting: Forgetting::default(),
            due_us: 0,
        }
    }

    // Coordinating.

    /// Takes a client's request over several groups, whose reply is `pending`, or made from the groups' replies alone. It begins with
    /// the end of the turn's input, or when what the client has asked before is over.
    ///
    /// # Errors
    /// The error for the client: nothing was begun.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        work: Result<Work, Whole>,
        pending: Option<Pending>,
    ) -> Result<(), String> {
        let work = self.admit(cx, work)?;
        let Some(session) = cx.clients.sessions.get_mut(client) else { return Ok(()) };
        // What the node carries out with the reply comes before the client's next request, and so does all that a part of the server
        // asks, which has no input to be held.
        let has_node_items = matches!(&pending, Some(Pending::Exec { items, .. })
            if items.iter().any(|item| matches!(item, Item::Node(_))));
        if has_node_items || session.is_internal() {
            session.close_gate();
        }
        work.written().into_iter().for_each(|group| session.wrote(group));
        if let Some(pending) = pending {
            session.expect(pending);
        }
        let ticket = session.begin(false);
        session.divides = true;
        cx.counters.transaction_requests += 1;
        self.add(cx, (work, ticket), cx.now.unix_ms, None);
        Ok(())
    }

    /// Takes the request of a client that waits, whose reply is not made before there is something. `wait`: its number, and since when
    /// it waits.
    ///
    /// # Errors
    /// The error: nothing was begun.
    pub(crate) fn attempt(
        &mut self,
        cx: &mut Context,
        work: Result<Work, Whole>,
        ticket: Ticket,
        (number, since): (u64, UnixMs),
    ) -> Result<(), String> {
        let client = ClientId::from_bits(ticket.client);
        let work = self.admit(cx, work)?;
        let Some(session) = cx.clients.sessions.get_mut(client) else { return Ok(()) };
        work.written().into_iter().for_each(|group| session.wrote(group));
        self.add(cx, (work, ticket), since, Some(number));
        Ok(())
    }

    /// Checks that a client's request over several groups can be carried out.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn admit(&mut self, cx: &Context, work: Result<Work, Whole>) -> Result<Work, String> {
        let work = work.map_err(Whole::explanation)?;
        cx.map.require(Feature::Transactions).map_err(|why| format!("{CROSSSLOT}: {why}"))?;
        work.groups().try_for_each(|group| takes_part(&cx.groups[group]))?;
        self.coordinator_here(cx)?;
        Ok(work)
    }

    /// Adds a request behind those of its connection. `wait`: that of its client, if it waits for something.
    fn add(&mut self, cx: &mut Context, (work, ticket): (Work, Ticket), since: UnixMs, wait: Option<u64>) {
        cx.gates.set(Gate::Divided, true);
        let (tickets, map_version) = (vec![ticket], cx.map.version);
        let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        let (is_alone, held) = (wait.is_some(), BTreeSet::new());
        self.connections.add(Merged { work, tickets, since, deadline_us, map_version, is_alone, wait, held });
    }

    /// The coordinator of this start of the node.
    ///
    /// # Errors
    /// The error for a client: this start is not in the map yet.
    fn coordinator_here(&mut self, cx: &Context) -> Result<&mut Coordinator, String> {
        if self.coordinator.is_none() {
            self.coordinator = coordinator(cx);
        }
        self.coordinator.as_mut().ok_or_else(|| {
            let why = cx.admission.explanation();
            format!("CLUSTERDOWN NOLEADER {why}; nothing was done, try again")
        })
    }

    /// Whether requests wait for [`TwoPhase::begin_free`].
    #[inline]
    pub(crate) fn has_free(&self, cx: &Context) -> bool {
        self.connections.has_free(|ticket| is_first(cx, ticket))
    }

    /// Begins the next transaction of each connection that has none under way.
    #[cold]
    pub(crate) fn begin_free(&mut self, cx: &mut Context) {
        while self.has_free(cx) {
            for client in self.connections.take_free(|ticket| is_first(cx, ticket)) {
                let Some(merged) = self.connections.next(client) else {
                    self.release(cx, ClientId::from_bits(client));
                    continue;
                };
                let is_evaluated = matches!(merged.work, Work::Evaluation(_));
                let bytes_max = cx.memory.reply_max().max(MOVED_BYTES_MAX);
                if is_evaluated && self.moving_bytes + MOVED_BYTES_MAX > bytes_max {
                    self.connections.stall(merged);
                    continue;
                }
                if let Some(merged) = self.lanes.add(merged) {
                    self.start(cx, merged);
                }
            }
            for merged in self.lanes.take_free() {
                self.start(cx, merged);
            }
        }
    }

    /// Begins a transaction, or answers why it cannot begin.
    fn start(&mut self, cx: &mut Context, mut merged: Merged) {
        let way = match self.way(cx, &merged) {
            Ok(way) => way,
            Err(error) => return self.cannot_start(cx, merged, &error),
        };
        if let Work::Evaluation(evaluation) = &mut merged.work {
            self.moving_bytes += evaluation.charge(MOVED_BYTES_MAX).1;
        }
        cx.counters.transactions_begun += 1;
        self.newest_request += 1;
        let number = self.newest_request;
        self.requests.insert(number, merged);
        match way {
            Way::Reads(reading) => {
                self.readings.insert(number, reading);
                self.ask_to_read(cx, number);
            }
            Way::Records(planned) => self.coordinate(cx, number, planned),
        }
    }

    /// Tells the client that nothing was begun. Of requests that were merged each is tried by itself.
    fn cannot_start(&mut self, cx: &mut Context, merged: Merged, error: &str) {
        self.lanes.end(&merged);
        if merged.tickets.len() > 1 {
            return self.connections.separate(merged);
        }
        self.connections.end(merged.tickets[0].client);
        let mut replies = ReplyBuffer::new();
        replies.error(error);
        complete_all(cx, (merged.tickets, merged.wait), 0, Outcome::Refused, &replies);
    }

    /// How a transaction begins.
    ///
    /// # Errors
    /// The error for the client: it cannot.
    fn way(&mut self, cx: &Context, merged: &Merged) -> Result<Way, String> {
        if cx.now.monotonic_us >= merged.deadline_us {
            return Err(LATE.to_owned());
        }
        let work = &merged.work;
        if merged.map_version != cx.map.version && !work.is_still(|group, it| cx.belongs(group, it)) {
            return Err(MOVED.to_owned());
        }
        self.coordinator_here(cx)?;
        Ok(match work.shows_versions() {
            true => Way::Reads(Reading::new(work.drafts().iter(), cx.now.unix_ms, cx.configuration.planted)),
            false => Way::Records(planned(cx, work)?),
        })
    }

    /// Has the groups prepare a request, or lock its keys.
    fn coordinate(&mut self, cx: &mut Context, number: u64, planned: Vec<Planned>) {
        let coordinator = self.coordinator.as_mut().expect("it was there when the request began");
        let Merged { work, since, deadline_us, .. } = &self.requests[&number];
        let (request, mut actions) = ((number, *since), Vec::new());
        match work {
            Work::Divided(_) => coordinator.begin(request, planned, *deadline_us, &mut actions),
            Work::Evaluation(_) => coordinator.begin_locking(request, planned, *deadline_us, &mut actions),
        }
        self.carry_out(cx, None, actions);
    }

    /// Asks the groups of a read without locks.
    fn ask_to_read(&mut self, cx: &mut Context, request: u64) {
        let deadline_us = self.requests[&request].deadline_us;
        for (group, command) in self.readings[&request].questions() {
            let command = Command::decode(&mut Reader::of_checked(&command)).expect("it was encoded here");
            self.ask(cx, Question::Read { group, request }, &command, deadline_us);
        }
    }

    /// Hands a command to a group, which answers by [`TwoPhase::answered`].
    fn ask(&mut self, cx: &mut Context, question: Question, command: &Command<'_>, deadline_us: u64) {
        let (Question::Record { group, .. }
        | Question::Read { group, .. }
        | Question::Left { group, .. }
        | Question::Forget { group }) = question;
        self.newest_question += 1;
        self.questions.insert(self.newest_question, question);
        let ticket = Origin::TwoPhase.ticket(self.newest_question);
        let (follows, seen, hops, leadership) = (false, Version::MAX, 0, 0);
        cx.submit(
            group,
            Asked { ticket, follows, seen, deadline_us, hops, leadership },
            &Request::Command(command),
        );
    }

    /// Takes a group's answer to a read without locks.
    fn take_read(&mut self, cx: &mut Context, (request, group): (u64, u16), result: Outcome, reply: &[u8]) {
        // It has ended with another group's answer.
        let Some(reading) = self.readings.get_mut(&request) else { return };
        let merged = self.requests.get_mut(&request).expect("a request is kept while it is read");
        if let Outcome::Done { offset, .. } = result {
            all_saw(cx, merged, group, offset);
        }
        let next = reading.answered(group, result, reply, cx.now.unix_ms);
        match next {
            Next::Wait => return,
            Next::Ask => return self.ask_to_read(cx, request),
            _ => self.readings.remove(&request),
        };
        let locks = match next {
            Next::Refused(error) => return self.end(cx, request, Ended::Refused(error)),
            Next::Read(found) => match &mut merged.work {
                Work::Divided(_) => {
                    let replies = found.into_iter().map(|it| (it.group, it.reply)).collect();
                    return self.end(cx, request, Ended::Done(replies));
                }
                Work::Evaluation(evaluation) => match evaluation.evaluate(&found, cx.draw()) {
                    Evaluated::Nothing => return self.end(cx, request, Ended::Done(Vec::new())),
                    Evaluated::Refused(error) => return self.end(cx, request, Ended::Refused(error)),
                    // A hash whose fields have expired by the clock here, and not by its leader's.
                    Evaluated::Shares(_) => planned(cx, &merged.work),
                },
            },
            _ => planned(cx, &merged.work),
        };
        cx.counters.transactions_repeated += 1;
        match locks {
            Ok(planned) => self.coordinate(cx, request, planned),
            Err(error) => {
                let mut refusal = ReplyBuffer::new();
                refusal.error(&error);
                self.end(cx, request, Ended::Refused(refusal.take()));
            }
        }
    }

    /// Takes what scripts have published that were carried out here.
    pub(crate) fn take_announced(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announced)
    }

    /// A client has no request over several groups without a reply any more: what it has asked behind them goes on.
    fn release(&mut self, cx: &mut Context, client: ClientId) {
        cx.gates.set(Gate::Divided, !self.connections.is_empty());
        if let Some(session) = cx.clients.sessions.get_mut(client) {
            session.divides = false;
            if session.is_held_back() {
                self.released.push(client);
            }
        }
    }

    /// Whether requests that waited behind transactions may go on.
    #[inline]
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Takes the clients whose requests may go on.
    pub(crate) fn take_released(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.released)
    }

    /// Takes the outcome of a record.
    pub(crate) fn answered(&mut self, cx: &mut Context, number: u64, result: Outcome, reply: &[u8]) {
        let (group, asked, holder) = match self.questions.remove(&number) {
            Some(Question::Record { group, asked, holder }) => (group, asked, holder),
            Some(Question::Read { group, request }) => {
                self.take_read(cx, (request, group), result, reply);
                return self.begin_free(cx);
            }
            Some(Question::Left { group, holder, id }) => {
                return self.take_left(cx, (group, holder, id), (result, reply));
            }
            // What is left undone is found again.
            Some(Question::Forget { .. }) | None => return,
        };
        let (now_us, mut actions) = (cx.now.monotonic_us, Vec::new());
        match holder {
            Some(holder) => {
                self.resolver.answered(holder, (group, asked), (result, reply), now_us, &mut actions);
            }
            None => {
                let Some(coordinator) = &mut self.coordinator else { return };
                if let (Outcome::Done { offset, .. }, What::Lock | What::Prepare) = (result, asked.what)
                    && let Some(request) = coordinator.ticket_of(asked.id)
                    && let Some(merged) = self.requests.get(&request)
                {
                    all_saw(cx, merged, group, offset);
                }
                coordinator.answered(group, asked, (result, reply), now_us, &mut actions);
            }
        }
        self.carry_out(cx, holder, actions);
        if let Some(coordinator) = &mut self.coordinator {
            cx.counters.transactions_repeated += coordinator.take_repeated();
        }
        // What comes next on a connection stands behind the end of the last one in the groups' logs.
        self.begin_free(cx);
    }

    fn carry_out(&mut self, cx: &mut Context, holder: Option<u16>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Submit { group, asked, record } => {
                    let command =
                        Command::decode(&mut Reader::of_checked(&record)).expect("it was encoded here");
                    let timeout_us = cx.configuration.command_timeout_ms * 1000;
                    let is_moment = self.is_of_moment(asked.id);
                    // A group that lets it wait for its keys says so before the client is told that its outcome is not known.
                    let limit = self.coordinator.as_ref();
                    let limit = limit.filter(|_| matches!(asked.what, What::Lock | What::Prepare));
                    let limit_us = limit.and_then(|it| it.deadline_us(asked.id)).unwrap_or(u64::MAX);
                    let limit_us = limit_us.saturating_sub(if is_moment { 0 } else { timeout_us / 10 });
                    let deadline_us = limit_us.clamp(cx.now.monotonic_us, cx.now.monotonic_us + timeout_us);
                    self.ask(cx, Question::Record { group, asked, holder }, &command, deadline_us);
                }
                Action::Evaluate { ticket, id, .. } if self.begins_moment(cx, ticket, id) => {}
                Action::Evaluate { ticket, id, found } => {
                    let Some(coordinator) = &mut self.coordinator else { continue };
                    let merged = self.requests.get_mut(&ticket);
                    let Some(Merged { work: Work::Evaluation(evaluation), tickets, wait, .. }) = merged
                    else {
                        unreachable!("only such a request has its keys locked first")
                    };
                    let mut actions = Vec::new();
                    let evaluated = match wait.is_none_or(|wait| still_waits(cx, tickets[0], wait)) {
                        true => evaluation.evaluate(&found, cx.draw()),
                        false => Evaluated::Refused(Vec::new()),
                    };
                    let bytes: usize = found.iter().map(|found| found.reply.len()).sum();
                    let (before, after) = evaluation.charge(bytes);
                    assert!(before <= self.moving_bytes, "what is under way has its charge");
                    self.moving_bytes = self.moving_bytes - before + after;
                    self.connections.resume();
                    coordinator.evaluated(id, evaluated, &mut actions);
                    self.carry_out(cx, None, actions);
                }
                Action::End { ticket, .. } if self.ends_moment(cx, ticket) => {}
                Action::End { ticket, ended } => self.end(cx, ticket, ended),
            }
        }
        self.find_due(cx);
    }

    /// Answers a client's request, or those that were merged.
    fn end(&mut self, cx: &mut Context, request: u64, ended: Ended) {
        let Some(mut merged) = self.requests.remove(&request) else { return };
        if let Work::Evaluation(evaluation) = &mut merged.work {
            let (before, _) = evaluation.charge(0);
            assert!(before <= self.moving_bytes, "what is under way has its charge");
            self.moving_bytes -= before;
            self.connections.resume();
        }
        self.lanes.end(&merged);
        if merged.tickets.len() > 1
            && let Ended::Refused(error) = &ended
            && !error.is_empty()
        {
            cx.counters.transactions_refused += 1;
            return self.connections.separate(merged);
        }
        merged.clients().into_iter().for_each(|client| self.connections.end(client));
        let Merged { work, tickets, wait, .. } = merged;
        let group = work.groups().next().unwrap_or(0);
        let done = Outcome::Done { version: 0, offset: 0 };
        *match &ended {
            Ended::Done(_) => &mut cx.counters.transactions_committed,
            Ended::Changed | Ended::Refused(_) => &mut cx.counters.transactions_refused,
            Ended::Unknown => &mut cx.counters.transactions_unknown,
        } += 1;
        let mut replies = ReplyBuffer::new();
        let result = match ended {
            Ended::Done(shares) => {
                let replies = match work {
                    Work::Divided(divided) => divided.join(&shares),
                    Work::Evaluation(evaluation) => vec![evaluation.into_reply()],
                };
                for (ticket, mut reply) in tickets.into_iter().zip(replies) {
                    self.announced.extend(reply.take_announcements());
                    match wait {
                        Some(number) => cx.call(Call::Attempted { number, result: done, reply }),
                        None => cx.complete_with(ticket, group, done, reply),
                    }
                }
                return;
            }
            Ended::Changed => {
                replies.push(Reply::NullArray);
                done
            }
            Ended::Refused(error) if !error.is_empty() => {
                replies.extend_encoded(&error);
                // The leader of a group has changed since its keys were watched.
                if Reply::first(&error) == Reply::NullArray { done } else { Outcome::Refused }
            }
            Ended::Refused(_) => {
                replies.error(LATE);
                Outcome::Refused
            }
            Ended::Unknown => {
                replies.error(UNKNOWN);
                Outcome::Unknown
            }
        };
        complete_all(cx, (tickets, wait), group, result, &replies);
    }

    // Taking part.

    /// Decides about a command that this node is about to hand to its replica of a group, and notes what it locks and unlocks.
    pub(crate) fn judge<'c>(
        &mut self,
        cx: &mut Context,
        id: u16,
        ticket: Ticket,
        deadline_us: u64,
        command: &Command<'c>,
    ) -> Judged<'c> {
        let planted = cx.configuration.planted;
        // Another replica redirects it to the leader.
        let Some(leads_in) = cx.groups[id].leads_in() else { return Judged::Goes };
        let Group { replica: Some(replica), granted, .. } = &mut cx.groups[id] else { return Judged::Goes };
        let list = self.lists.entry(id).or_default();
        let judged = match list.judge(replica.table(), leads_in, ticket, command) {
            Judged::Waits if !command.is_write() && planted.has(Fault::LockedKeyRead) => Judged::Goes,
            judged => judged,
        };
        if judged == Judged::Goes && list.has(ticket) {
            // Its outcome is of interest, whatever it adds.
            granted.begin(ticket, 0, deadline_us);
        }
        if !list.is_empty() {
            cx.gates.set(Gate::Locked, true);
        }
        judged
    }

    /// Takes the outcomes of a group's requests. Returns whether waiting requests may go on.
    #[cold]
    pub(crate) fn settle(&mut self, group: u16, outcomes: &[Ending]) -> bool {
        let Some(list) = self.lists.get_mut(&group) else { return false };
        outcomes.iter().filter(|outcome| list.ended(outcome.ticket)).count() > 0
    }

    /// A request leaves the group's replica here without an outcome: another one will take it.
    #[cold]
    pub(crate) fn withdraw(&mut self, group: u16, ticket: Ticket) {
        if let Some(list) = self.lists.get_mut(&group) {
            list.ended(ticket);
        }
    }

    /// Begins a look at all requests that wait in a group.
    pub(crate) fn begin_pass(&mut self, group: u16) {
        if let Some(list) = self.lists.get_mut(&group) {
            list.begin_pass();
        }
    }

    /// Closes the gate of commands while something is locked here, or about to be.
    #[cold]
    pub(crate) fn set_gate(&mut self, cx: &mut Context) {
        let leads_in = |cx: &Context, group| cx.groups.get(group)?.leads_in();
        for (group, list) in &mut self.lists {
            if cx.groups.get(*group).is_none_or(|group| group.waiting.is_empty()) {
                list.begin_pass();
            }
        }
        self.lists.retain(|group, list| !list.is_empty() && list.is_of(leads_in(cx, *group)));
        cx.gates.set(Gate::Locked, self.is_on(cx));
        self.find_due(cx);
    }

    /// Whether something is locked here, or about to be.
    pub(crate) fn is_on(&self, cx: &Context) -> bool {
        let mut replicas = cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        self.lists.values().any(|list| !list.is_empty())
            || replicas.any(|replica| replica.table().two_phase().locks_any())
    }

    /// Whether all transactions that this node coordinates are over in all of their groups.
    pub(crate) fn is_settled(&self) -> bool {
        self.connections.is_empty() && self.coordinator.as_ref().is_none_or(Coordinator::is_empty)
    }

    /// Whether requests over several groups are without a reply.
    pub(crate) fn are_any(&self) -> bool {
        !self.connections.is_empty()
    }

    // From time to time.

    /// When [`TwoPhase::tick`] has something to do.
    #[inline]
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.due_us
    }

    fn find_due(&mut self, cx: &Context) {
        let coordinator = self.coordinator.as_ref().map_or(u64::MAX, Coordinator::wakeup_us);
        let looks = cx.gates.has(Gate::Locked) || !self.resolver.is_empty();
        let look_us = if looks { self.looked_us + LOOK_US } else { u64::MAX };
        self.due_us = coordinator.min(look_us).min(self.forgetting.due_us);
    }

    /// Sends again what was lost, and resolves what nobody ends.
    #[cold]
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        let mut actions = Vec::new();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.tick(now_us, &mut actions);
        }
        self.carry_out(cx, None, actions);
        self.begin_free(cx);
        if now_us >= self.looked_us + LOOK_US {
            self.looked_us = now_us;
            self.look(cx);
        }
        if now_us >= self.forgetting.due_us {
            self.look_for_left(cx);
        }
        self.find_due(cx);
    }

    /// Looks for transactions that are held by groups which this node leads, and has those resolved that nobody ends.
    fn look(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        let TwoPhase { coordinator, resolver, held_since_us, .. } = self;
        let (mut held, mut begun) = (BTreeMap::new(), Vec::new());
        for (group, Group { replica, .. }) in cx.groups.iter() {
            let Some(replica) = replica.as_ref().filter(|replica| replica.is_leader()) else { continue };
            for (id, header) in replica.table().two_phase().held() {
                let since_us = *held_since_us.get(&(group, id)).unwrap_or(&now_us);
                held.insert((group, id), since_us);
                let is_gone = |(other, decides): (u16, bool)| decides && was_dropped(cx, other);
                let is_orphan = now_us >= since_us + ORPHANED_US && header.groups().any(is_gone);
                let is_own = coordinator.as_ref().is_some_and(|it| it.has(id));
                let node = id.coordinator.node;
                let is_reached = node == cx.configuration.node || cx.peers.is_up(node);
                let patience_us = if is_reached { RESOLVED_AFTER_US } else { ABANDONED_US };
                if is_orphan || !is_own && now_us >= since_us + patience_us {
                    begun.push((group, header.bytes().to_vec(), is_orphan));
                }
            }
        }
        *held_since_us = held;
        resolver.retain(|group, id| held_since_us.contains_key(&(group, id)));
        for (group, header, is_orphan) in begun {
            let mut actions = Vec::new();
            let header = kv::Header::of(&header).expect("it was a header");
            match is_orphan {
                true => {
                    let exists = |group| !was_dropped(cx, group);
                    self.resolver.abandon(group, header, exists, now_us, &mut actions);
                }
                false => self.resolver.begin(group, header, now_us, &mut actions),
            }
            self.carry_out(cx, Some(group), actions);
        }
    }

    /// Checks the lists of locks.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self) {
        self.lists.values().for_each(Locks::check_invariants);
        let charges = self.requests.values().map(|merged| match &merged.work {
            Work::Evaluation(evaluation) => evaluation.charged(),
            Work::Divided(_) => 0,
        });
        assert_eq!(self.moving_bytes, charges.sum::<usize>(), "what is under way has its charge");
    }
}

/// The coordinator of this start of the node. Its name is the version of the map that has the start: each start is registered there,
/// so later ones have greater names.
fn coordinator(cx: &Context) -> Option<Coordinator> {
    let (node, own) = (cx.configuration.node, &cx.configuration);
    let start = cx.map.nodes.get(&node)?.start;
    let is_registered = (start.identity, start.life) == (own.identity, own.life);
    let name = kv::Coordinator { node, life: cx.map.version };
    (cx.admission.is_admitted() && is_registered).then(|| Coordinator::new(name, own.planted))
}

/// Ends requests that were merged, or tells a wait what became of its transaction.
fn complete_all(
    cx: &mut Context,
    (tickets, wait): (Vec<Ticket>, Option<u64>),
    group: u16,
    result: Outcome,
    replies: &ReplyBuffer,
) {
    for ticket in tickets {
        let mut reply = ReplyBuffer::new();
        reply.extend_encoded(replies.as_bytes());
        match wait {
            Some(number) => cx.call(Call::Attempted { number, result, reply }),
            None => cx.complete_with(ticket, group, result, reply),
        }
    }
}

/// Whether the client of a wait is there, and waits.
fn still_waits(cx: &Context, ticket: Ticket, wait: u64) -> bool {
    let session = cx.clients.sessions.get(ClientId::from_bits(ticket.client));
    session.is_some_and(|session| session.wait == Some(wait))
}

/// Whether a group existed and does not any more. Numbers are never used again, so one that is not below the map's next is of a
/// newer map: it may have prepared what others hold.
fn was_dropped(cx: &Context, group: u16) -> bool {
    cx.groups.get(group).is_none() && u32::from(group) < cx.map.next_group
}

/// Whether all that a client has asked before a request has its reply. What waits for a locked key, or for a leader, must not be
/// overtaken.
fn is_first(cx: &Context, ticket: Ticket) -> bool {
    let session = cx.clients.sessions.get(ClientId::from_bits(ticket.client));
    session.is_none_or(|session| !session.has_earlier(ticket.sequence))
}

/// Notes what the clients have seen of a group.
fn all_saw(cx: &mut Context, merged: &Merged, group: u16, offset: Version) {
    let mut last = None;
    for ticket in &merged.tickets {
        if last != Some(ticket.client)
            && let Origin::Session(client) = Origin::of(*ticket)
            && let Some(session) = cx.clients.sessions.get_mut(client)
        {
            session.saw(group, offset);
        }
        last = Some(ticket.client);
    }
}

/// Whether a group can take part in transactions over several groups.
///
/// # Errors
/// The error for the client.
fn takes_part(group: &Group) -> Result<(), String> {
    let keyspace = &group.keyspace;
    keyspace.takes_part().map_err(|why| {
        let name = keyspace.name();
        format!("{CROSSSLOT}, and '{name}' takes part in no transaction over several: it {why}")
    })
}

/// What each group is asked to prepare or to lock.
///
/// # Errors
/// The error for the client: its commands cannot be shared.
fn planned(cx: &Context, work: &Work) -> Result<Vec<Planned>, String> {
    let shares = work.shares().ok_or(CROSSSLOT)?;
    let deciding = deciding(cx, work.groups());
    let planned = |(group, share)| Planned { group, decides: deciding.contains(&group), share };
    Ok(shares.into_iter().map(planned).collect())
}

/// The groups whose votes decide: all, if they fail together anyway; else the one with the strongest promise.
fn deciding(cx: &Context, groups: impl Iterator<Item = u16>) -> Vec<u16> {
    let promise = |group: &u16| {
        let Group { keyspace, members, .. } = &cx.groups[*group];
        let followers = members.len().saturating_sub(1);
        let durability = match keyspace.durability() {
            Durability::None => 0,
            Durability::Os => 1,
            Durability::Fsync => 2,
        };
        let failures = match keyspace.acks {
            Acks::Count(count) => usize::from(count).min(followers),
            Acks::All => followers,
            _ => followers / 2,
        };
        (durability, failures, members)
    };
    let all: Vec<u16> = groups.collect();
    let strongest = all.iter().copied().max_by_key(|group| {
        let (durability, failures, _) = promise(group);
        (durability, failures, std::cmp::Reverse(*group))
    });
    let are_alike = all.iter().all(|group| promise(group) == promise(&all[0]));
    if are_alike { all } else { strongest.into_iter().collect() }
}
