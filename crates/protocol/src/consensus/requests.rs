//! Clients' requests: answered here, proposed, held for a while, or redirected to the leader.

use super::Replica;
use super::group::StopSign;
use super::leading::{Answers, Author, Leadership};
use super::options::Lease;
use super::routing::{Asked, Standing};
use crate::contract::{Effects, NOBODY, NodeId, Now, Request};
use crate::planted::Fault;
use crate::watching;
use kv::{Command, Version};

impl Replica {
    #[inline]
    pub(super) fn standing(&self, now: Now) -> Standing {
        match self.agreement.leadership() {
            Some(leadership) if leadership.is_below_floor(&self.settings) => Standing::MayNotAppend,
            _ => self.standing_by_log(now),
        }
    }

    /// The same, whatever the floor is: what the leader itself orders was not checked by a map.
    #[inline]
    fn standing_by_log(&self, now: Now) -> Standing {
        let is_live = |peer: &NodeId| self.rounds.is_peer_live(now, *peer, &self.links, &self.settings);
        if let Some(leadership) = self.agreement.leadership() {
            // Nothing may follow a stop-sign.
            if self.log.borrow().is_ending(self.members.group().id) || leadership.handover().is_some() {
                return Standing::MayNotAppend;
            }
            let heard = self.links.peers().filter(is_live).count();
            let may_append = now.monotonic_us >= leadership.appends_from_us();
            return match heard + 1 >= self.links.majority() && may_append {
                true => Standing::Leads,
                false => Standing::MayNotAppend,
            };
        }
        if !self.agreement.takes_part() {
            return self.links.peers().find(is_live).map_or(Standing::Nobody, Standing::Follows);
        }
        match self.agreement.leader() {
            Some(leader) if leader == self.settings.id => Standing::MayNotAppend,
            Some(leader) if is_live(&leader) => Standing::Follows(leader),
            _ => Standing::Nobody,
        }
    }

    #[inline]
    pub(super) fn request(&mut self, now: Now, asked: Asked, request: &Request<'_>, effects: &mut Effects) {
        if self.held.is_empty()
            && let Request::Command(command) = request
            && !command.is_write()
        {
            // Any replica answers, if the keyspace allows it and the answer does not show less than the client has seen.
            let stale = self.settings.options.reads_any
                && !asked.follows
                && self.applied.offset() >= asked.seen
                && self.applied.is_filled()
                // Whether the transaction is over that has locked a key is known to the leader.
                && !self.applied.table().is_blocked(command);
            let settled = !asked.follows || self.everything_is_settled();
            let alone = !stale && settled && self.may_answer(now);
            if alone && let Some(leadership) = self.agreement.leadership_mut() {
                leadership.note_read();
            }
            if stale || alone {
                let mut answers = Answers {
                    now,
                    epoch: self.members.epoch(),
                    is_leader: self.agreement.leads(),
                    applied: &mut self.applied,
                    lock_leases: &self.lock_leases,
                };
                return answers.answer(asked.ticket, command, effects);
            }
        }
        match self.standing(now) {
            _ if asked.fenced && !self.agreement.leads() => effects.redirect(asked.ticket, NOBODY),
            // A client with nothing under way waits for no other client.
            Standing::Follows(leader) if !asked.follows => effects.redirect(asked.ticket, leader),
            _ if !self.held.is_empty() => self.held.hold(asked, request, effects),
            Standing::Leads => self.serve(now, asked, request, effects),
            // Earlier requests of this client, and proposals of this replica, may still take effect: another node must not
            // overtake them.
            Standing::Follows(_) if !self.everything_is_settled() => {
                self.held.hold(asked, request, effects);
            }
            Standing::Follows(leader) => effects.redirect(asked.ticket, leader),
            // A read may not need an append.
            Standing::MayNotAppend if self.may_read() && request.write().is_none() => {
                self.serve(now, asked, request, effects);
            }
            Standing::MayNotAppend | Standing::Nobody => self.held.hold(asked, request, effects),
        }
    }

    /// True when a read may be answered at this moment from what is applied here.
    pub(super) fn may_answer(&self, now: Now) -> bool {
        let (applied, is_alone) = (self.applied.index(), self.links.is_alone());
        self.agreement
            .leadership()
            .is_some_and(|leadership| leadership.may_answer(now, applied, is_alone, &self.settings))
    }

    /// Whether every earlier write that was requested here has its outcome. That may be "unknown": a write that its client
    /// has given up may take effect at any time.
    fn everything_is_settled(&self) -> bool {
        !self.proposals.are_awaited()
            && self.agreement.leadership().is_none_or(Leadership::has_gathered_nothing)
    }

    fn serve(&mut self, now: Now, asked: Asked, request: &Request<'_>, effects: &mut Effects) {
        let questions = self.agreement.questions();
        let Some(leadership) = self.agreement.leadership_mut() else { return };
        match request {
            Request::Command(command) if !command.is_write() => {
                leadership.wait_to_read(asked, command, questions, &self.proposals);
            }
            Request::Command(command) => {
                // Its node checks the keys of a long command, which are in the parts: those may be in the inherited log.
                if self.applied.index() < leadership.inherited() && watching::ends_long(command) {
                    return self.held.hold(asked, request, effects);
                }
                let (epoch, time) = (self.members.epoch(), self.applied.time_at(now));
                let planted = self.settings.options.planted;
                if !watching::may_be_ordered(command, self.applied.table(), epoch, time, planted) {
                    return effects.abort(asked.ticket);
                }
                let unchecked = watching::unchecked(command, self.applied.table(), planted);
                let command = unchecked.as_ref().unwrap_or(command);
                let state = (&self.applied, &self.proposals);
                let (settings, counters) = (&self.settings, &mut self.counters);
                let is_full = leadership.gather(asked, command, state, settings, counters, effects);
                match command {
                    Command::RaiseFloor { version } => self.order_floor(now, *version),
                    _ if is_full => self.append(now, None),
                    _ => {}
                }
            }
            Request::Wait { offset, count } => leadership.wait(asked, (*offset, *count), &self.proposals),
        }
    }

    /// Answers the reads that can be answered now.
    pub(super) fn answer_reads(&mut self, now: Now, effects: &mut Effects) {
        let is_leased = self.may_answer(now);
        let Some(leadership) = self.agreement.leadership_mut() else { return };
        let confirmed = match self.settings.options.lease {
            Lease::Off => self.links.confirmed(leadership.ballot()),
            Lease::Log => 0,
        };
        let mut answers = Answers {
            now,
            epoch: self.members.epoch(),
            is_leader: true,
            applied: &mut self.applied,
            lock_leases: &self.lock_leases,
        };
        let applying_ns = self.settings.timing.applying_ns;
        let certainty = (is_leased, confirmed);
        leadership.answer_reads(certainty, &self.proposals, applying_ns, &mut answers, effects);
        if leadership.has_readers(&self.proposals) {
            leadership.note_read();
        }
    }

    // Requests that wait for a leader.

    /// Takes up the held requests, in order, once there is a leader.
    pub(super) fn release_held(&mut self, now: Now, effects: &mut Effects) {
        if self.held.is_empty() {
            return;
        }
        let leader = match self.standing(now) {
            Standing::Leads if self.settings.options.is_bounded => Some(self.settings.id),
            Standing::Leads => None,
            // See `request`: the next leader's first entry will soon show what has become of the proposals of this replica.
            Standing::Follows(leader) if self.everything_is_settled() => Some(leader),
            _ => return,
        };
        // Those that were checked by an older map go back to this node, too, which checks them again.
        let must_check =
            self.held.takes_unchecked(self.agreement.leadership().is_some_and(|it| !it.has_no_requests()));
        let leader = leader.or_else(|| must_check.then_some(self.settings.id));
        for held in self.held.take() {
            // Nothing of it was done, and its sender learns that.
            if must_check && held.terms.0 {
                effects.redirect(held.ticket, NOBODY);
                continue;
            }
            let (ticket, deadline_us, fenced) = (held.ticket, held.deadline_us, held.terms.0);
            // A fenced command may be ordered by one leadership only, which its node has named; that node does not retry.
            if !leader.is_some_and(|leader| !fenced && held.hand_on(leader, effects)) {
                let asked = Asked { ticket, follows: true, seen: Version::MAX, deadline_us, fenced };
                held.with(|request| self.request(now, asked, request, effects));
            }
        }
    }

    /// Ends the requests that have waited too long.
    pub(super) fn end_overdue(&mut self, now_us: u64, effects: &mut Effects) {
        let overdue = self.end_until(now_us, effects);
        if self.settings.options.planted.has(Fault::RetriedCommandAppliedTwice) {
            let log = self.log.borrow();
            let entries = overdue.into_iter().filter_map(|index| log.entry(index));
            if let Some(leadership) = self.agreement.leadership_mut() {
                entries.for_each(|entry| leadership.gather_again(&entry));
            }
        }
    }

    /// Ends the requests whose deadline is `now_us` or earlier. Returns the indices of the entries that had proposed them.
    fn end_until(&mut self, now_us: u64, effects: &mut Effects) -> Vec<usize> {
        let overdue = self.proposals.end_overdue(now_us, &self.settings, &mut self.counters, effects);
        if let Some(leadership) = self.agreement.leadership_mut() {
            leadership.end_overdue(now_us, effects);
        }
        self.held.end_overdue(now_us, effects);
        overdue
    }

    /// The replica is removed from its node: all its requests end.
    pub(super) fn end_requests(&mut self, effects: &mut Effects) {
        let ended = self.agreement.leadership_mut().map(|ended| ended.take_requests(&self.proposals));
        self.held.keep(ended, effects);
        self.end_until(u64::MAX, effects);
        let has_requests = self.agreement.leadership().is_some_and(|it| !it.has_no_requests());
        assert!(self.held.is_empty() && !has_requests, "no request is left without an outcome");
    }

    /// Ends the `WAIT`s whose writes enough replicas hold, or that have waited long enough.
    pub(super) fn end_waits(&mut self, now: Now, effects: &mut Effects) {
        let Some(leadership) = self.agreement.leadership_mut() else { return };
        let (log, ballot, applied) = (self.log.borrow(), leadership.ballot(), self.applied.offset());
        let held_by = |offset: Version| self.links.accepted_by(ballot, log.index_of(offset.min(applied)));
        leadership.end_waits(now, self.proposals.settled(), held_by, effects);
    }

    // Proposing.

    /// Appends what was gathered; without a write, an empty entry if the lease needs one.
    pub(super) fn propose(&mut self, now: Now) {
        let may_append = self.standing_by_log(now) == Standing::Leads;
        let Some(leadership) = self.agreement.leadership_mut() else { return };
        if !may_append {
            // What was gathered waits until this leader may append, or until its clients have waited long enough.
            return self.held.put_first(leadership.take_gathered(&self.proposals));
        }
        leadership.note_durable(now, &self.log.borrow(), &self.settings);
        if leadership.gathers_until_us(now, &self.settings).is_some() {
            return;
        }
        let (applied, lock_leases) = (&self.applied, &mut self.lock_leases);
        leadership.order(now, applied, &mut self.proposals, lock_leases, &self.settings);
        if leadership.must_append(now, self.links.is_alone(), &self.settings) {
            self.append(now, None);
        }
        let log = self.log.borrow();
        let must_transfer =
            |node, index| self.transfers.must_transfer(node, index, log.decided(), &log, &self.settings);
        let silence_ms = self.settings.timing.silence_ms;
        let stop_sign = self.members.due_stop_sign(now, silence_ms, &log, must_transfer);
        drop(log);
        if stop_sign.is_some() {
            self.append(now, stop_sign.as_ref());
        }
    }

    /// Appends what was gathered, or a stop-sign.
    pub(super) fn append(&mut self, now: Now, stop_sign: Option<&StopSign>) {
        let (node, life, time) = (self.settings.id, self.links.life(), self.applied.time_at(now));
        let (author, settings) = (Author { node, life, time }, &self.settings);
        self.agreement.append(now, author, &self.log, &mut self.proposals, settings, stop_sign);
    }
}
