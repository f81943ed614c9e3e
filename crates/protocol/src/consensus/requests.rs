//! What clients ask: answered here, proposed, held back for a while, or sent on to the leader.

use super::Replica;
use super::links::Link;
use super::options::Lease;
use super::waiting::{Held, HeldRequest, Read, Reads, Standing, Wait};
use crate::contract::{Effects, NOBODY, NodeId, Now, Request, TOO_MUCH_AT_ONCE, Ticket};
use crate::planted::Fault;
use crate::watching;
use kv::codec::Reader;
use kv::{Command, LockCommand, Version};
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::VecDeque;

const NO_LEADER: &str =
    "CLUSTERDOWN NOLEADER nobody is known to lead this group; nothing was done, try again";
const NOT_CONFIRMED: &str =
    "CLUSTERDOWN NOQUORUM too few nodes answer to say who leads; nothing was read, try again";

/// A request without what is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    pub(super) follows: bool,
    pub(super) seen: Version,
    pub(super) deadline_us: u64,
    /// Only this leadership may order it.
    pub(super) fenced: bool,
}

impl Replica {
    pub(super) fn standing(&self, now: Now) -> Standing {
        if let Some(leadership) = &self.leadership {
            // Nothing stands behind a stop-sign.
            if self.is_ending() {
                return Standing::MayNotAppend;
            }
            let heard = self.links.iter().filter(|link| self.is_peer_live(now, link.peer)).count();
            return match heard + 1 >= self.majority() && now.monotonic_us >= leadership.appends_from_us {
                true => Standing::Leads,
                false => Standing::MayNotAppend,
            };
        }
        if self.agreement.is_none() {
            let member = self.links.iter().find(|link| self.is_peer_live(now, link.peer));
            return member.map_or(Standing::Nobody, |link| Standing::Follows(link.peer));
        }
        match self.leader() {
            Some(leader) if leader == self.id => Standing::MayNotAppend,
            Some(leader) if self.is_peer_live(now, leader) => Standing::Follows(leader),
            _ => Standing::Nobody,
        }
    }

    /// Whom this replica follows, itself included.
    pub(super) fn leader(&self) -> Option<NodeId> {
        self.agreement.as_ref().and_then(|agreement| agreement.leader())
    }

    #[inline]
    pub(super) fn request(&mut self, now: Now, asked: Asked, request: Request<'_>, effects: &mut Effects) {
        if self.held.is_empty()
            && let Request::Command(command) = &request
            && !command.is_write()
        {
            // Any replica, if the keyspace allows it, unless it would show less than the client has seen.
            let stale =
                self.options.reads_any && !asked.follows && self.offset >= asked.seen && self.is_filled();
            let settled = !asked.follows || self.everything_is_settled();
            let alone = !stale && settled && self.may_answer(now);
            self.is_read |= alone;
            if stale || alone {
                return self.answer(now, asked.ticket, command, effects);
            }
        }
        match self.standing(now) {
            _ if asked.fenced && self.leadership.is_none() => effects.redirect(asked.ticket, NOBODY),
            _ if !self.held.is_empty() => self.hold(asked, request, effects),
            Standing::Leads => self.serve(now, asked, request, effects),
            // What its client asked before, and what is proposed here, may still happen: another node must not overtake it.
            Standing::Follows(_) if asked.follows && !self.everything_is_settled() => {
                self.hold(asked, request, effects);
            }
            Standing::Follows(leader) => effects.redirect(asked.ticket, leader),
            // A read there may not need an append.
            Standing::MayNotAppend if self.leadership.is_some() && !is_write(&request) => {
                self.serve(now, asked, request, effects);
            }
            Standing::MayNotAppend | Standing::Nobody => self.hold(asked, request, effects),
        }
    }

    /// True when a read may be answered at this moment by what is applied here: nobody else can have committed
    /// anything. See the proof in the parent module.
    pub(super) fn may_answer(&self, now: Now) -> bool {
        let Some(leadership) = &self.leadership else { return false };
        if self.applied < leadership.inherited {
            return false;
        }
        match self.options.lease {
            _ if self.links.is_empty() => now.monotonic_us >= leadership.appends_from_us,
            Lease::Off => self.options.planted.has(Fault::ReadWithoutQuorum),
            Lease::Log if self.options.planted.has(Fault::LeaseNotRechecked) => leadership.leased_at_tick,
            Lease::Log => self.is_leased(now),
        }
    }

    /// Nothing that was asked here before is without its end.
    fn everything_is_settled(&self) -> bool {
        self.builder_askers.is_empty() && self.proposals.batches.is_empty()
    }

    fn serve(&mut self, now: Now, asked: Asked, request: Request<'_>, effects: &mut Effects) {
        let Asked { ticket, follows, deadline_us, fenced, .. } = asked;
        // The batch that is being built will have the next number.
        let newest = self.proposals.last + u64::from(!self.builder_askers.is_empty());
        match request {
            Request::Command(command) if !command.is_write() => {
                let behind = if follows { newest } else { 0 };
                let (after, question) = (self.builder_askers.len(), self.questions + 1);
                let is_timed = matches!(command, Command::Lock(_));
                let reads = if behind > self.proposals.last && !is_timed {
                    &mut self.reads_within
                } else if behind > self.proposals.settled() {
                    &mut self.reads_behind
                } else {
                    &mut self.reads
                };
                reads.push((ticket, deadline_us, fenced), (behind, after, question), |out| {
                    command.encode(out)
                });
            }
            Request::Command(mut command) => {
                let (epoch, time) = (self.epoch(), now.unix_ms_behind(self.time));
                let planted = self.options.planted;
                if !watching::may_be_ordered(&mut command, &self.table, epoch, time, planted) {
                    return effects.abort(ticket);
                }
                if self.proposals.bytes + self.builder.commands().len() > self.timing.uncommitted_bytes_max {
                    self.counters.refused_writes += 1;
                    let error = "TRYAGAIN OVERLOADED too many bytes of writes wait to be committed; nothing was done, try again";
                    return effects.refuse(ticket, error);
                }
                let work_ns = if command.may_walk() { command.walk_ns(&self.table) } else { 0 };
                if work_ns > 0 && self.proposals.work_ns + self.builder_ns > self.timing.unapplied_ns_max {
                    self.counters.refused_writes += 1;
                    let error = "TRYAGAIN OVERLOADED too many scripts that take long wait to be carried out; nothing was done, try \
                                 again";
                    return effects.refuse(ticket, error);
                }
                self.builder_ns += work_ns;
                command.encode(self.builder.end());
                if fenced {
                    self.builder_fenced.push(self.builder_askers.len());
                }
                self.builder_askers.push(Some((ticket, deadline_us)));
                if self.builder.commands().len() >= self.timing.batch_bytes
                    || self.builder_ns >= self.timing.applying_ns
                {
                    self.seal(now);
                }
            }
            Request::Wait { offset, count } => {
                self.waits.push(Wait { ticket, deadline_us, behind: newest, offset, count });
            }
        }
    }

    /// Which history this is: another one only after a loss that an operator has accepted, or other members.
    fn epoch(&self) -> u64 {
        self.group.id.into()
    }

    pub(super) fn answer(&mut self, now: Now, ticket: Ticket, command: &Command<'_>, effects: &mut Effects) {
        let start = effects.replies.len();
        if let Command::Lock(LockCommand::Describe { name }) = command {
            self.describe_lock(now, name, effects);
            return effects.done(ticket, start, 0, 0);
        }
        let (epoch, time) = (self.epoch(), now.unix_ms_behind(self.time));
        let version = watching::read(&mut self.table, epoch, command, time, &mut effects.replies);
        effects.done(ticket, start, version, 0);
    }

    /// Answers the reads that can be answered now, as far as there is room for their replies.
    pub(super) fn answer_reads(&mut self, now: Now, effects: &mut Effects) {
        let is_leased = self.may_answer(now);
        let confirmed = match self.leadership {
            Some(leadership) if self.applied >= leadership.inherited => self.confirmed(leadership.ballot),
            _ => 0,
        };
        let settled = self.proposals.settled();
        let confirmed = if self.options.lease == Lease::Off { confirmed } else { 0 };
        let is_due = |read: &Read| read.behind <= settled && (is_leased || read.question <= confirmed);
        // Some that look at all keys are enough for a step: thousands may have waited.
        let mut walked_ns = 0;
        // Those within a batch are here only if it had another end than theirs.
        for queue in [Queue::Free, Queue::BehindWrites, Queue::WithinBatches] {
            let mut reads = std::mem::take(self.queue(queue));
            while !effects.replies.is_over_full()
                && walked_ns < self.timing.applying_ns
                && let Some(read) = reads.pop_if(is_due)
            {
                if let Ok(command) = Command::decode(&mut Reader::new(reads.command(&read))) {
                    self.answer(now, read.ticket, &command, effects);
                    walked_ns += if command.may_walk() { command.walk_ns(&self.table) } else { 0 };
                }
            }
            reads.forget();
            *self.queue(queue) = reads;
        }
        let has_readers = self.readers().next().is_some();
        self.is_read |= has_readers;
        self.owes_answers =
            has_readers && (walked_ns >= self.timing.applying_ns || effects.replies.is_over_full());
    }

    fn queue(&mut self, queue: Queue) -> &mut Reads {
        match queue {
            Queue::Free => &mut self.reads,
            Queue::BehindWrites => &mut self.reads_behind,
            Queue::WithinBatches => &mut self.reads_within,
        }
    }

    /// The reads that need a lease or a question. Those within a batch do not, unless it had another end than theirs.
    pub(super) fn readers(&self) -> impl Iterator<Item = &Reads> {
        let settled = self.proposals.settled();
        let is_orphaned = self.reads_within.first().is_some_and(|read| read.behind <= settled);
        let within = is_orphaned.then_some(&self.reads_within);
        [&self.reads, &self.reads_behind].into_iter().chain(within).filter(|reads| !reads.is_empty())
    }

    /// Answers the reads that stand behind so many commands of a batch, which is just being applied so far.
    ///
    /// They are as good as entries of the log: the batch was proposed after they came, so its place is later than that of
    /// everything that was acknowledged by then; and it is decided. No lease is needed.
    pub(super) fn answer_within(&mut self, batch: u64, after: usize, effects: &mut Effects) {
        let epoch = self.epoch();
        while let Some(read) = self.reads_within.pop_if(|read| (read.behind, read.after) == (batch, after)) {
            // Later it would show what stands behind it in the batch.
            if effects.replies.is_over_full() {
                effects.refuse(read.ticket, TOO_MUCH_AT_ONCE);
            } else if let Ok(command) = Command::decode(&mut Reader::new(self.reads_within.command(&read))) {
                let start = effects.replies.len();
                let version =
                    watching::read(&mut self.table, epoch, &command, self.time, &mut effects.replies);
                effects.done(read.ticket, start, version, 0);
            }
        }
        self.reads_within.forget();
    }

    /// The newest question that a majority has answered: nobody had promised a newer ballot when it was asked.
    fn confirmed(&self, ballot: Ballot) -> u64 {
        if self.links.is_empty() {
            return u64::MAX;
        }
        let answered = |link: &Link| if link.confirmed.0 == ballot { link.confirmed.1 } else { 0 };
        let mut answers: Vec<u64> = self.links.iter().map(answered).collect();
        answers.sort_unstable_by(|one, other| other.cmp(one));
        answers[self.majority() - 2] // Itself, and this many others.
    }

    // Requests that wait for a leader.

    fn hold(&mut self, asked: Asked, request: Request<'_>, effects: &mut Effects) {
        const HELD_MAX: usize = 100_000;
        if self.held.len() >= HELD_MAX {
            return effects.refuse(asked.ticket, NO_LEADER);
        }
        let request = match request {
            Request::Command(command) => {
                let mut bytes = Vec::new();
                command.encode(&mut bytes);
                HeldRequest::Command(bytes)
            }
            Request::Wait { offset, count } => HeldRequest::Wait { offset, count },
        };
        let Asked { ticket, deadline_us, fenced, .. } = asked;
        self.holds_fenced |= fenced;
        self.held.push_back(Held { ticket, deadline_us, fenced, request });
    }

    /// Takes up what was held, in order, when somebody leads.
    pub(super) fn release_held(&mut self, now: Now, effects: &mut Effects) {
        if self.held.is_empty() {
            return;
        }
        let leader = match self.standing(now) {
            Standing::Leads => None,
            // See `request`: soon the next leader's entries say what has become of what is proposed here.
            Standing::Follows(leader) if self.everything_is_settled() => Some(leader),
            _ => return,
        };
        for Held { ticket, deadline_us, fenced, request } in std::mem::take(&mut self.held) {
            let asked = Asked { ticket, follows: true, seen: Version::MAX, deadline_us, fenced };
            match request {
                HeldRequest::Command(bytes) if let Some(leader) = leader => {
                    effects.hand_on(ticket, leader, deadline_us, &bytes);
                }
                HeldRequest::Command(bytes) => {
                    if let Ok(command) = Command::decode(&mut Reader::new(&bytes)) {
                        self.request(now, asked, Request::Command(command), effects);
                    }
                }
                HeldRequest::Wait { offset, count } => {
                    self.request(now, asked, Request::Wait { offset, count }, effects);
                }
            }
        }
    }

    /// This leader may not append for now: what was gathered and not proposed waits, before what waits already, until it
    /// may, or until its clients have waited long enough.
    pub(super) fn hold_gathered(&mut self) {
        if self.builder_askers.is_empty() {
            return;
        }
        let mut kept = self.take_gathered();
        kept.append(&mut self.held);
        self.held = kept;
    }

    /// The requests of the batch that is being built, in order.
    fn take_gathered(&mut self) -> VecDeque<Held> {
        let batch = self.proposals.last + 1;
        let mut kept = VecDeque::new();
        let mut commands = Reader::new(self.builder.commands());
        for (index, asker) in self.builder_askers.drain(..).enumerate() {
            let before = commands.rest();
            let Ok(_) = Command::decode(&mut commands) else { break };
            let bytes = before[..before.len() - commands.rest().len()].to_vec();
            if let Some((ticket, deadline_us)) = asker {
                let fenced = self.builder_fenced.binary_search(&index).is_ok();
                kept.push_back(Held { ticket, deadline_us, fenced, request: HeldRequest::Command(bytes) });
            }
            let is_next = |read: &Read| (read.behind, read.after) == (batch, index + 1);
            while let Some(read) = self.reads_within.pop_if(is_next) {
                kept.push_back(held_read(&self.reads_within, &read));
            }
        }
        self.reads_within.forget();
        self.builder.clear();
        self.builder_ns = 0;
        self.builder_fenced.clear();
        self.holds_fenced |= kept.iter().any(|held| held.fenced);
        kept
    }

    /// The replica leads no more, or in another ballot, or the configuration ends: reads and what was not proposed wait for the
    /// next leader, before what waits already. What is fenced waits for nobody else: whoever asks is told so, and knows. What was
    /// proposed may still be decided.
    pub(super) fn keep_requests(&mut self, effects: &mut Effects) {
        let reads = [&self.reads, &self.reads_behind, &self.reads_within];
        if self.builder_askers.is_empty()
            && self.waits.is_empty()
            && reads.iter().all(|reads| reads.is_empty())
        {
            return self.turn_fenced_away(effects);
        }
        let mut kept = self.take_gathered();
        for reads in [&mut self.reads_within, &mut self.reads_behind, &mut self.reads] {
            while let Some(read) = reads.pop_if(|_| true) {
                kept.push_back(held_read(reads, &read));
            }
            reads.forget();
        }
        for Wait { ticket, deadline_us, offset, count, .. } in self.waits.drain(..) {
            let request = HeldRequest::Wait { offset, count };
            kept.push_back(Held { ticket, deadline_us, fenced: false, request });
        }
        self.holds_fenced |= kept.iter().any(|held| held.fenced);
        kept.append(&mut self.held);
        self.held = kept;
        self.turn_fenced_away(effects);
    }

    fn turn_fenced_away(&mut self, effects: &mut Effects) {
        if !std::mem::take(&mut self.holds_fenced) {
            return;
        }
        self.held.retain(|held| {
            if held.fenced {
                effects.redirect(held.ticket, NOBODY);
            }
            !held.fenced
        });
    }

    /// Ends what has waited too long.
    pub(super) fn end_overdue(&mut self, now: Now, effects: &mut Effects) {
        for (ticket, index) in self.proposals.take_overdue(now.monotonic_us) {
            if self.options.planted.has(Fault::RetriedCommandAppliedTwice) {
                self.propose_again(index);
            }
            self.tell_unknown(ticket, effects);
        }
        for reads in [&mut self.reads, &mut self.reads_behind, &mut self.reads_within] {
            for ticket in reads.take_overdue(now.monotonic_us) {
                effects.refuse(ticket, NOT_CONFIRMED);
            }
        }
        self.held.retain(|held| {
            let is_kept = held.deadline_us > now.monotonic_us;
            if !is_kept {
                effects.refuse(held.ticket, NO_LEADER);
            }
            is_kept
        });
    }

    /// The replica is taken away: everything that was asked of it ends.
    pub(super) fn end_requests(&mut self, now: Now, effects: &mut Effects) {
        self.keep_requests(effects);
        self.end_overdue(Now { monotonic_us: u64::MAX, ..now }, effects);
        assert!(self.held.is_empty() && self.waits.is_empty(), "no request is left without an outcome");
    }

    /// A planted fault: the whole batch, once more.
    fn propose_again(&mut self, index: usize) {
        if let Some(entry) = self.log.borrow().entry(index) {
            self.builder.end().extend_from_slice(entry.commands().rest());
            (0..entry.head().count).for_each(|_| self.builder_askers.push(None));
        }
    }

    pub(super) fn tell_unknown(&mut self, ticket: Ticket, effects: &mut Effects) {
        let error =
            "UNKNOWN the write was proposed, but not known to be committed in time: it may still happen";
        if self.options.planted.has(Fault::UnknownToldAsRefused) {
            return effects.refuse(ticket, error);
        }
        self.counters.unknown_writes += 1;
        effects.unknown(ticket, error);
    }

    // WAIT.

    /// Ends the `WAIT`s for whose writes enough replicas are counted, or that have waited long enough.
    pub(super) fn end_waits(&mut self, now: Now, effects: &mut Effects) {
        if self.waits.is_empty() {
            return;
        }
        let settled = self.proposals.settled();
        let log = self.log.borrow();
        let ballot = self.leadership.map(|leadership| leadership.ballot);
        let held_by = |offset: Version| {
            let index = log.index_of(offset.min(self.offset));
            let holds = |link: &&Link| Some(link.accepted.0) == ballot && link.accepted.1 >= index;
            self.links.iter().filter(holds).count()
        };
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
}

/// Reads that wait for a batch of their own client do not hold up the others.
#[derive(Clone, Copy, Debug)]
enum Queue {
    Free,
    BehindWrites,
    WithinBatches,
}

/// A read that was taken, to be asked again.
fn held_read(reads: &Reads, read: &Read) -> Held {
    let request = HeldRequest::Command(reads.command(read).to_vec());
    Held { ticket: read.ticket, deadline_us: read.deadline_us, fenced: read.fenced, request }
}

/// Ballots of one node differ in these.
pub(super) fn number_of(ballot: Ballot) -> u64 {
    u64::from(ballot.config_id) << 32 | u64::from(ballot.n)
}

fn is_write(request: &Request<'_>) -> bool {
    matches!(request, Request::Command(command) if command.is_write())
}
