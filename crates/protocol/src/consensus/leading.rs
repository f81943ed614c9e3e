//! Leading: waiting for the old leader's lease to end, gathering, proposing, and keeping a lease.

use super::applied::Applied;
use super::batch::Batch;
use super::counters::Counters;
use super::decider::Decider;
use super::entry::{Entry, Head, Proposer};
use super::group::StopSign;
use super::handover::Handover;
use super::held::{Fenced, ParkedRequest};
use super::lock_leases::LockLeases;
use super::log::{Log, SharedLog};
use super::options::{Lease, Settings};
use super::proposals::{Proposal, Proposals};
use super::reads::{Queue, Read, Readers, Reads};
use super::routing::Asked;
use super::slices::Slices;
use crate::contract::{Effects, NodeId, Now, Request, Ticket};
use crate::planted::Fault;
use kv::codec::Reader;
use kv::{Command, LockCommand, UnixMs, Version};
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::VecDeque;

/// What reads are answered from.
pub(super) struct Answers<'a> {
    pub(super) now: Now,
    pub(super) epoch: u64,
    pub(super) is_leader: bool,
    pub(super) applied: &'a mut Applied,
    pub(super) lock_leases: &'a LockLeases,
}

impl Answers<'_> {
    #[inline]
    pub(super) fn answer(&mut self, ticket: Ticket, command: &Command<'_>, effects: &mut Effects) {
        let start = effects.replies.len();
        let (now, replies) = (self.now, &mut effects.replies);
        let version = if let Command::Lock(LockCommand::Describe { name }) = command {
            let locks = self.applied.table().locks();
            self.lock_leases.describe(now, name, locks, self.is_leader, replies);
            0
        } else {
            self.applied.read(now, self.epoch, command, replies)
        };
        effects.done(ticket, start, version, 0);
    }
}

/// A ballot in which this replica leads, and the requests that wait in it. When the leadership ends, these are taken out:
/// see [`Leadership::take_requests`].
#[derive(Debug)]
pub(super) struct Leadership {
    ballot: Ballot,
    /// The end of the inherited log: no read is answered before all of it is applied.
    inherited: usize,
    /// The greatest floor in its log, applied or not: see [`super::floor`].
    floor: u64,
    /// Nothing is appended before this time: an older leader may still be answering reads alone.
    appends_from_us: u64,
    /// When the newest committed entry of this ballot was proposed.
    leased_from_us: Option<u64>,
    newest: Newest,
    /// A read came since an entry was last proposed.
    is_read: bool,
    /// The number of commands that are under way at once: the maximum at recent proposals, which decays with each entry.
    load: usize,
    /// For a planted fault: whether there was a lease at the last tick.
    leased_at_tick: bool,
    /// Commands that are not proposed yet.
    batch: Batch,
    readers: Readers,
    /// Reads that could have been answered wait for the next turn: the replies of this one are many bytes.
    owes_answers: bool,
    waits: Vec<Wait>,
    /// It lets another member lead.
    handover: Option<Handover>,
    slices: Slices,
}

/// The newest entry of a ballot.
#[derive(Clone, Copy, Debug)]
enum Newest {
    /// There is none.
    None,
    /// It was proposed at that time, and is not known to be durable here.
    Proposed { at_us: u64 },
    /// It was found to be durable at `at_us`.
    Durable { proposed_us: u64, at_us: u64 },
}

impl Newest {
    fn proposed_us(self) -> Option<u64> {
        match self {
            Newest::None => None,
            Newest::Proposed { at_us: proposed_us } | Newest::Durable { proposed_us, .. } => {
                Some(proposed_us)
            }
        }
    }
}

/// A `WAIT` whose writes are proposed.
#[derive(Debug)]
struct Wait {
    ticket: Ticket,
    deadline_us: u64,
    behind: u64,
    offset: Version,
    count: u32,
}

/// The replica that appends an entry, and the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Author {
    pub(super) node: NodeId,
    pub(super) life: u64,
    /// The time by which the expiry of its commands is judged.
    pub(super) time: UnixMs,
}

impl Leadership {
    pub(super) fn new(ballot: Ballot, log: &Log, appends_from_us: u64) -> Leadership {
        Leadership {
            ballot,
            inherited: log.end(),
            floor: 0,
            appends_from_us,
            leased_from_us: None,
            newest: Newest::None,
            is_read: false,
            load: 0,
            leased_at_tick: false,
            batch: Batch::new(),
            readers: Readers::default(),
            owes_answers: false,
            waits: Vec::new(),
            handover: None,
            slices: Slices::default(),
        }
    }

    #[inline]
    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// The end of the log that it took over.
    pub(super) fn inherited(&self) -> usize {
        self.inherited
    }

    /// The log holds this floor of the cluster map.
    pub(super) fn note_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// Whether its log has a floor above the map by which this node checks commands.
    #[inline]
    pub(super) fn is_below_floor(&self, settings: &Settings) -> bool {
        settings.map_version < self.floor
    }

    /// From when on it may append.
    pub(super) fn appends_from_us(&self) -> u64 {
        self.appends_from_us
    }

    pub(super) fn handover(&self) -> Option<Handover> {
        self.handover
    }

    pub(super) fn set_handover(&mut self, handover: Option<Handover>) {
        self.handover = handover;
    }

    pub(super) fn slices(&self) -> &Slices {
        &self.slices
    }

    pub(super) fn slices_mut(&mut self) -> &mut Slices {
        &mut self.slices
    }

    // The lease.

    /// True once an entry of its own is committed: it has had a lease.
    pub(super) fn was_leased(&self) -> bool {
        self.leased_from_us.is_some()
    }

    /// True while the lease lasts.
    pub(super) fn is_leased(&self, now: Now, settings: &Settings) -> bool {
        let now_us = settings.lease_clock_us(now);
        self.leased_from_us.is_some_and(|from_us| now_us < from_us + settings.timing.lease_ms * 1000)
    }

    /// True when a read may be answered at this moment, with `applied` entries applied: no other leader can have committed
    /// anything. See the proof in the parent module.
    pub(super) fn may_answer(&self, now: Now, applied: usize, is_alone: bool, settings: &Settings) -> bool {
        if applied < self.inherited || self.is_below_floor(settings) {
            return false;
        }
        if self.handover.is_some_and(|it| it.has_resigned(settings)) {
            return false;
        }
        match settings.options.lease {
            _ if is_alone => now.monotonic_us >= self.appends_from_us,
            Lease::Off => settings.options.planted.has(Fault::ReadWithoutQuorum),
            Lease::Log if settings.options.planted.has(Fault::LeaseNotRechecked) => self.leased_at_tick,
            Lease::Log => self.is_leased(now, settings),
        }
    }

    /// Until when it may answer reads alone if nothing more is committed, given that it may now: `u64::MAX` in a group of one.
    pub(super) fn leased_until_us(&self, is_alone: bool, settings: &Settings) -> u64 {
        match self.leased_from_us {
            Some(from_us) if !is_alone => from_us + settings.timing.lease_ms * 1000,
            _ => u64::MAX,
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Now, settings: &Settings) {
        self.leased_at_tick = self.is_leased(now, settings);
    }

    /// A proposal of this replica is committed.
    pub(super) fn committed(&mut self, proposal: &Proposal) {
        if proposal.ballot == self.ballot {
            self.leased_from_us = self.leased_from_us.max(Some(proposal.proposed_us));
        }
    }

    // Requests.

    /// True when nothing is gathered.
    #[inline]
    pub(super) fn has_gathered_nothing(&self) -> bool {
        self.batch.is_empty()
    }

    /// How many commands are gathered, and their bytes.
    pub(super) fn gathered(&self) -> (usize, usize) {
        (self.batch.len(), self.batch.bytes())
    }

    /// A read came, or waits.
    #[inline]
    pub(super) fn note_read(&mut self) {
        self.is_read = true;
    }

    /// Whether an entry will be proposed only because keys are read: the log is the lease.
    pub(super) fn renews_lease(&self, is_alone: bool, settings: &Settings) -> bool {
        self.is_read && !is_alone && settings.options.lease == Lease::Log
    }

    /// True when no request waits here, except for proposals.
    pub(super) fn has_no_requests(&self) -> bool {
        self.batch.is_empty() && self.readers.is_empty() && self.waits.is_empty()
    }

    /// The number of the newest batch, including the one that is being built, which will have the next number.
    fn newest_batch(&self, proposals: &Proposals) -> u64 {
        proposals.last() + u64::from(!self.batch.is_empty())
    }

    /// A read waits for its turn, and for the next question's answer if it needs one.
    pub(super) fn wait_to_read(
        &mut self,
        asked: Asked,
        command: &Command<'_>,
        questions: u64,
        proposals: &Proposals,
    ) {
        let Asked { ticket, follows, deadline_us, fenced, .. } = asked;
        let behind = if follows { self.newest_batch(proposals) } else { 0 };
        let is_timed = matches!(command.unbounded(&mut None), Command::Lock(_));
        let queue = if behind > proposals.last() && !is_timed {
            Queue::WithinBatches
        } else if behind > proposals.settled() {
            Queue::BehindWrites
        } else {
            Queue::Free
        };
        let place = (behind, self.batch.len(), questions + 1);
        self.readers.push(queue, (ticket, deadline_us, fenced), place, |out| command.encode(out));
    }

    /// Puts a write into the batch, if there is room. True when the batch is full.
    #[inline]
    pub(super) fn gather(
        &mut self,
        asked: Asked,
        command: &Command<'_>,
        (applied, proposals): (&Applied, &Proposals),
        settings: &Settings,
        counters: &mut Counters,
        effects: &mut Effects,
    ) -> bool {
        let Asked { ticket, deadline_us, fenced, .. } = asked;
        assert!(
            !self.is_below_floor(settings),
            "it orders what was checked by an older map than its log allows"
        );
        let timing = &settings.timing;
        if proposals.bytes() + self.batch.bytes() > timing.uncommitted_bytes_max {
            counters.refused_writes += 1;
            let error = "TRYAGAIN OVERLOADED too many bytes of writes wait to be committed; nothing was done, try again";
            effects.refuse(ticket, error);
            return false;
        }
        let work_ns = if command.may_walk() { command.walk_ns(applied.table()) } else { 0 };
        if work_ns > 0 && proposals.work_ns() + self.batch.work_ns() > timing.unapplied_ns_max {
            counters.refused_writes += 1;
            let error = "TRYAGAIN OVERLOADED too many scripts that take long wait to be carried out; nothing was done, try \
                 again";
            effects.refuse(ticket, error);
            return false;
        }
        self.batch.push(command, (ticket, deadline_us), fenced, work_ns);
        self.batch.bytes() >= timing.batch_bytes || self.batch.work_ns() >= timing.applying_ns
    }

    /// Lets a `WAIT` wait for the writes before it.
    pub(super) fn wait(&mut self, asked: Asked, (offset, count): (Version, u32), proposals: &Proposals) {
        let Asked { ticket, deadline_us, .. } = asked;
        let behind = self.newest_batch(proposals);
        self.waits.push(Wait { ticket, deadline_us, behind, offset, count });
    }

    /// A planted fault: the whole batch, once more.
    pub(super) fn gather_again(&mut self, entry: &Entry) {
        self.batch.repeat(entry);
    }

    /// The reads that came while the batch that is just being applied was built.
    pub(super) fn reads_within(&mut self) -> &mut Reads {
        self.readers.queue(Queue::WithinBatches)
    }

    /// Whether reads need a lease or a question's answer.
    pub(super) fn has_readers(&self, proposals: &Proposals) -> bool {
        self.readers.need_certainty(proposals.settled())
    }

    /// Whether a read needs a newer question than this one.
    pub(super) fn has_new_readers(&self, proposals: &Proposals, questions: u64) -> bool {
        self.readers.need_new_question(proposals.settled(), questions)
    }

    /// Answers the reads that can be answered now, as far as there is room for their replies: all if the leader may answer
    /// alone, otherwise those that wait for a question up to the confirmed one.
    #[inline]
    pub(super) fn answer_reads(
        &mut self,
        (is_leased, confirmed): (bool, u64),
        proposals: &Proposals,
        applying_ns: u64,
        answers: &mut Answers<'_>,
        effects: &mut Effects,
    ) {
        let settled = proposals.settled();
        let confirmed = if answers.applied.index() >= self.inherited { confirmed } else { 0 };
        let is_due = |read: &Read| read.behind <= settled && (is_leased || read.question <= confirmed);
        // Thousands that scan all keys may have waited: a few of these are enough for one step.
        let mut walked_ns = 0;
        // Reads within a batch are still here only if another entry was decided in its place.
        for queue in [Queue::Free, Queue::BehindWrites, Queue::WithinBatches] {
            let reads = self.readers.queue(queue);
            while !effects.replies.is_over_full()
                && walked_ns < applying_ns
                && let Some(read) = reads.pop_if(is_due)
            {
                if let Ok(command) = Command::decode(&mut Reader::new(reads.command(&read))) {
                    answers.answer(read.ticket, &command, effects);
                    let table = answers.applied.table();
                    walked_ns += if command.may_walk() { command.walk_ns(table) } else { 0 };
                }
            }
            reads.forget();
        }
        let is_enough = walked_ns >= applying_ns || effects.replies.is_over_full();
        self.owes_answers = is_enough && self.has_readers(proposals);
    }

    /// True when reads that can be answered wait for the next turn.
    pub(super) fn owes_answers(&self) -> bool {
        self.owes_answers
    }

    /// Ends the `WAIT`s whose writes enough replicas hold, or that have waited long enough.
    pub(super) fn end_waits(
        &mut self,
        now: Now,
        settled: u64,
        held_by: impl Fn(Version) -> usize,
        effects: &mut Effects,
    ) {
        self.waits.retain(|wait| {
            let held_by = if wait.behind <= settled { held_by(wait.offset) } else { 0 };
            let is_over = wait.deadline_us <= now.monotonic_us;
            let is_met = wait.behind <= settled && held_by >= wait.count as usize;
            if is_over || is_met {
                let start = effects.replies.len();
                effects.replies.integer(held_by as i64);
                effects.done(wait.ticket, start, 0, 0);
            }
            !is_over && !is_met
        });
    }

    /// Ends the reads that have waited too long.
    pub(super) fn end_overdue(&mut self, now_us: u64, effects: &mut Effects) {
        self.readers.end_overdue(now_us, effects);
    }

    /// Takes out what was gathered but not proposed, in order.
    pub(super) fn take_gathered(&mut self, proposals: &Proposals) -> VecDeque<ParkedRequest> {
        let number = proposals.last() + 1;
        let mut kept = VecDeque::new();
        self.batch.drain(|parked, after| {
            kept.extend(parked);
            self.readers.keep_within((number, after), &mut kept);
        });
        kept
    }

    /// Takes out all that can wait for another leader, in order. Not what was proposed: it may still be decided.
    pub(super) fn take_requests(&mut self, proposals: &Proposals) -> VecDeque<ParkedRequest> {
        let mut kept = self.take_gathered(proposals);
        self.readers.keep(&mut kept);
        for Wait { ticket, deadline_us, offset, count, .. } in self.waits.drain(..) {
            let wait = Request::Wait { offset, count };
            kept.push_back(ParkedRequest::new(ticket, deadline_us, Fenced(false), &wait));
        }
        kept
    }

    // Proposing.

    /// Whether new writes are only gathered for now, and until when at most. What is gathered is one entry, one record, one
    /// sync on each node and one message to each follower instead of many, whatever its size. Writes are gathered
    ///
    /// 1. while the previous batch is not durable here. That costs the first of them at most the rest of one sync of the
    ///    leader's own disk; nothing if the followers' disks are no faster, since they are busy with the previous batch. A disk
    ///    that hangs delays nothing for longer than `GATHERING_US_MAX`.
    /// 2. then for as long as that sync took, unless half of the recent load has come. Clients that wait for one answer before
    ///    their next request return in bursts, as large as the batch that answers them: otherwise the first few of a burst
    ///    would make up a batch of their own. It also keeps batches even: one that is small because nearly all other clients
    ///    are in the previous batch waits for those. A single client does not wait, once the earlier load has decayed: by an
    ///    eighth with each entry, and by at least one.
    pub(super) fn gathers_until_us(&self, now: Now, settings: &Settings) -> Option<u64> {
        const GATHERING_US_MAX: u64 = 20_000;
        const GATHERING_ON_US_MAX: u64 = 2000;
        let until_us = match self.newest {
            Newest::None => return None,
            Newest::Proposed { at_us } => at_us + GATHERING_US_MAX,
            Newest::Durable { .. } if self.batch.len() >= self.load / 2 => return None,
            Newest::Durable { proposed_us, at_us } => {
                at_us + at_us.saturating_sub(proposed_us).min(GATHERING_ON_US_MAX)
            }
        };
        (settings.lease_clock_us(now) < until_us).then_some(until_us)
    }

    /// When this replica must be stepped, even without input, because of what it has gathered.
    pub(super) fn gathered_is_due_us(&self, now: Now, settings: &Settings) -> u64 {
        match self.batch.is_empty() {
            true => u64::MAX,
            false => self.gathers_until_us(now, settings).unwrap_or(u64::MAX),
        }
    }

    /// Notes whether all that was proposed is durable here by now.
    pub(super) fn note_durable(&mut self, now: Now, log: &Log, settings: &Settings) {
        if let Newest::Proposed { at_us: proposed_us } = self.newest
            && log.durable_in(self.ballot) >= log.end()
        {
            self.newest = Newest::Durable { proposed_us, at_us: settings.lease_clock_us(now) };
        }
    }

    /// Orders what no client requests: the removal of keys whose deadline has passed, as an entry like any other, so that
    /// replicas agree; and the ends of lock leases.
    #[inline]
    pub(super) fn order(
        &mut self,
        now: Now,
        applied: &Applied,
        proposals: &mut Proposals,
        lock_leases: &mut LockLeases,
        settings: &Settings,
    ) {
        const KEYS_MAX: usize = 1000;
        if proposals.may_purge()
            && let Some(until) = applied.table().purge_until(applied.time_at(now), KEYS_MAX)
        {
            self.batch.order(&Command::Purge { until });
            proposals.purges();
        }
        let table = applied.table();
        lock_leases.order(now, self.ballot, table, proposals, settings, |command| self.batch.order(&command));
    }

    /// Whether to append an entry: what was gathered, or an empty one. An empty one begins a ballot, so that reads can be
    /// answered; later ones renew the lease while there are readers, early enough that these do not wait.
    pub(super) fn must_append(&self, now: Now, is_alone: bool, settings: &Settings) -> bool {
        if !self.batch.is_empty() || is_alone {
            return !self.batch.is_empty();
        }
        self.newest.proposed_us().is_none_or(|proposed_us| {
            self.renews_lease(is_alone, settings)
                && settings.lease_clock_us(now) >= proposed_us + settings.timing.lease_ms * 500
        })
    }

    /// Appends what was gathered, or a stop-sign.
    pub(super) fn append(
        &mut self,
        now: Now,
        author: Author,
        (decider, log): (&mut Decider, &SharedLog),
        proposals: &mut Proposals,
        settings: &Settings,
        stop_sign: Option<&StopSign>,
    ) {
        // Every older lease has ended by then.
        assert!(
            now.monotonic_us >= self.appends_from_us,
            "it appends while an older leader may be answering"
        );
        assert!(self.handover.is_none(), "a leader that hands over appends nothing");
        let Author { node, life, time } = author;
        let batch = proposals.last() + 1;
        let index = log.borrow().end();
        let proposed_us = settings.lease_clock_us(now);
        let head = Head { proposer: Proposer { node, life, batch }, time, count: 0 };
        let (entry, askers, work_ns) = match stop_sign {
            None => self.batch.take(head),
            Some(stop_sign) => (Entry::stop(head, stop_sign), Vec::new(), 0),
        };
        let (ballot, bytes) = (self.ballot, entry.bytes().len());
        proposals.push(Proposal { batch, index, ballot, proposed_us, bytes, work_ns, askers });
        self.newest = Newest::Proposed { at_us: proposed_us };
        self.is_read = false;
        self.load = proposals.commands().max(self.load - self.load.div_ceil(8));
        decider.append(log, entry);
        assert_eq!(log.borrow().end(), index + 1, "an entry is not where its proposal says");
    }

    // Invariants.

    /// A leader has promised its own ballot and no newer one, and has taken over a log in it.
    pub(super) fn is_in_its_promise(&self, id: NodeId, configuration: u32, log: &Log) {
        let ballot = self.ballot;
        assert_eq!(ballot.pid, u64::from(id), "it leads in another's ballot");
        assert_eq!(ballot.config_id, configuration, "it leads in another configuration");
        let promised = (log.promise(), log.accepted_round());
        assert_eq!(
            promised,
            (ballot, ballot),
            "it leads in a ballot that it has not promised, or does not follow"
        );
        assert!(self.inherited <= log.end(), "the log that it took over is cut off");
        // An index is decided by a message that is passed on only as far as the leader's own log is durable.
        let (decided, durable) = (log.decided(), log.durable_in(ballot).max(self.inherited));
        assert!(decided <= durable, "{decided} entries are decided, and {durable} durable at their leader");
    }

    /// What is gathered can be decoded; and the lease begins with the proposal of a decided entry. O(commands).
    pub(super) fn check(&self, log: &Log, settings: &Settings) {
        self.batch.check();
        self.slices.check(log, settings);
        assert!(
            self.leased_from_us <= self.newest.proposed_us(),
            "a lease begins before its entry was proposed"
        );
        if let Newest::Durable { proposed_us, at_us } = self.newest {
            assert!(at_us >= proposed_us, "durable before it was proposed");
        }
    }
}

/// A number that differs between any two ballots of one node.
pub(super) fn number_of(ballot: Ballot) -> u64 {
    u64::from(ballot.config_id) << 32 | u64::from(ballot.n)
}

#[cfg(test)]
mod tests {
    use super::super::kit::{at_ms, entry, read, settings, ticket, write};
    use super::*;

    fn ballot() -> Ballot {
        Ballot::with(1, 2, 0, 1)
    }

    fn leadership() -> Leadership {
        Leadership::new(ballot(), &Log::default(), 50_000)
    }

    fn asked(sequence: u64, follows: bool) -> Asked {
        Asked { ticket: ticket(sequence), follows, seen: 0, deadline_us: 0, fenced: false }
    }

    fn proposal(batch: u64, ballot: Ballot, proposed_us: u64) -> Proposal {
        Proposal { batch, index: 0, ballot, proposed_us, bytes: 0, work_ns: 0, askers: Vec::new() }
    }

    #[test]
    fn a_lease_begins_with_the_proposal_of_an_entry_of_its_own_ballot() {
        let (mut leadership, settings) = (leadership(), settings(1));
        leadership.committed(&proposal(1, Ballot::with(1, 1, 0, 1), 60_000));
        assert!(!leadership.is_leased(at_ms(60), &settings));
        leadership.committed(&proposal(2, ballot(), 60_000));
        leadership.committed(&proposal(3, ballot(), 55_000));
        assert!(leadership.is_leased(at_ms(359), &settings) && !leadership.is_leased(at_ms(360), &settings));
        assert_eq!(leadership.leased_until_us(false, &settings), 360_000);
        assert_eq!(leadership.leased_until_us(true, &settings), u64::MAX);
    }

    #[test]
    fn reads_wait_until_the_whole_inherited_log_is_applied() {
        let (mut log, settings) = (Log::default(), settings(1));
        log.append(vec![entry(2, 1, &["a"]), entry(2, 2, &["b"])]);
        let mut leadership = Leadership::new(ballot(), &log, 0);
        leadership.committed(&proposal(1, ballot(), 1));
        assert!(!leadership.may_answer(at_ms(1), 1, false, &settings));
        assert!(leadership.may_answer(at_ms(1), 2, false, &settings));
        assert!(leadership.may_answer(at_ms(999), 2, true, &settings), "no other replica can lead");
    }

    #[test]
    fn writes_are_gathered_while_a_batch_is_not_durable() {
        let (mut leadership, settings, mut log) = (leadership(), settings(1), Log::default());
        assert_eq!(leadership.gathers_until_us(at_ms(60), &settings), None);
        leadership.newest = Newest::Proposed { at_us: 60_000 };
        assert_eq!(leadership.gathers_until_us(at_ms(61), &settings), Some(80_000));
        assert_eq!(leadership.gathers_until_us(at_ms(80), &settings), None, "a disk that hangs");
        log.append(vec![entry(1, 1, &["a"])]);
        leadership.note_durable(at_ms(61), &log, &settings);
        assert!(matches!(leadership.newest, Newest::Proposed { .. }));
        leadership.note_durable(at_ms(61), &Log::default(), &settings);
        assert_eq!(leadership.gathers_until_us(at_ms(61), &settings), None, "a single client does not wait");
        leadership.load = 4;
        assert_eq!(
            leadership.gathers_until_us(at_ms(61), &settings),
            Some(62_000),
            "as long as the sync took"
        );
        (1..=2).for_each(|sequence| leadership.batch.push(&write("a"), (ticket(sequence), 0), false, 0));
        assert_eq!(leadership.gathers_until_us(at_ms(61), &settings), None, "half of them have come");
    }

    #[test]
    fn an_empty_entry_begins_a_leadership_and_renews_its_lease_for_readers() {
        let (mut leadership, settings) = (leadership(), settings(1));
        let must =
            |leadership: &Leadership, ms, is_alone| leadership.must_append(at_ms(ms), is_alone, &settings);
        assert!(must(&leadership, 60, false) && !must(&leadership, 60, true));
        leadership.newest = Newest::Proposed { at_us: 60_000 };
        assert!(!must(&leadership, 999, false), "no read came");
        leadership.note_read();
        assert!(!must(&leadership, 209, false) && must(&leadership, 210, false));
        assert!(!must(&leadership, 999, true), "no other replica can lead");
        leadership.batch.push(&write("a"), (ticket(1), 0), false, 0);
        assert!(must(&leadership, 61, true));
    }

    #[test]
    fn requests_wait_for_the_next_leader_in_the_order_in_which_they_take_effect() {
        let (mut leadership, settings, proposals) = (leadership(), settings(1), Proposals::default());
        let (applied, mut counters, mut effects) =
            (Applied::new(1, settings.options), Counters::default(), Effects::default());
        let read = read("a");
        leadership.wait_to_read(asked(1, false), &read, 0, &proposals);
        leadership.wait(asked(2, true), (0, 1), &proposals);
        for sequence in [3, 5] {
            let state = (&applied, &proposals);
            let asked_now = asked(sequence, true);
            leadership.gather(asked_now, &write("a"), state, &settings, &mut counters, &mut effects);
            leadership.wait_to_read(asked(sequence + 1, true), &read, 0, &proposals);
        }
        assert!(!leadership.has_no_requests());
        let kept = leadership.take_requests(&proposals);
        let order: Vec<u64> = kept.iter().map(|held| held.ticket.sequence).collect();
        assert_eq!(order, [3, 4, 5, 6, 1, 2]);
        assert!(leadership.has_no_requests());
    }

    #[test]
    fn writes_are_refused_when_too_much_is_not_committed() {
        let (mut leadership, mut settings, proposals) = (leadership(), settings(1), Proposals::default());
        (settings.timing.uncommitted_bytes_max, settings.timing.batch_bytes) = (8, 5);
        let (applied, mut counters, mut effects) =
            (Applied::new(1, settings.options), Counters::default(), Effects::default());
        let mut gather = |key| {
            let (state, command) = ((&applied, &proposals), write(key));
            leadership.gather(asked(1, false), &command, state, &settings, &mut counters, &mut effects)
        };
        assert!(gather("a long key") && !gather("a"), "the batch is full, and then too much");
        assert_eq!((counters.refused_writes, effects.outcomes.len()), (1, 1));
    }
}
