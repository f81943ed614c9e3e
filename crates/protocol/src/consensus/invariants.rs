//! Invariants: what the proof in the parent module rests on, as far as one replica can see it.
//!
//! [`Replica::check_step`] compares a few numbers, and a replica does that in every step but those for requests.
//! [`Replica::check_all`] looks at everything that it holds; tests and simulations ask for that
//! ([`check_invariants`](crate::Replica::check_invariants)). Nothing here depends on what a peer says: that is checked
//! where it comes in. Each function is named after the sentence that it stands for.

use super::Replica;
use super::group::Voter;
use super::log::Log;
use kv::Command;
use omnipaxos::ballot_leader_election::Ballot;

impl Replica {
    /// Whether the replica may go on. O(1).
    ///
    /// # Panics
    /// When an invariant is broken: going on would spread the damage.
    #[inline]
    pub(super) fn check_step(&self) {
        if !self.options.planted.has_invariants() || !self.is_started {
            return;
        }
        let log = self.log.borrow();
        self.what_is_applied_is_decided(&log);
        promised_before_accepted(&log);
        records_become_durable_in_order(&log);
        self.a_leader_leads_in_its_promise(&log);
    }

    /// The same, and whatever takes time in the length of the log and in what is under way.
    ///
    /// # Panics
    /// As [`Replica::check_step`].
    pub(super) fn check_all(&self) {
        if !self.options.planted.has_invariants() {
            return;
        }
        self.check_step();
        let log = self.log.borrow();
        commands_are_counted(&log);
        self.versions_are_offsets_of_what_is_applied(&log);
        self.nothing_is_cut_off_that_a_copy_needs(&log);
        records_are_waited_for_in_order(&log);
        if !self.is_started {
            return;
        }
        self.a_stop_sign_is_the_last_entry(&log);
        drop(log);
        self.only_voters_take_part();
        self.proposals_are_in_order();
        self.who_does_not_lead_orders_nothing();
        self.a_lease_begins_with_a_proposal();
        self.who_rests_has_nothing_under_way();
        self.lock_leases.check();
    }

    // What is said is durable.

    /// Nothing is applied that is not decided, and nothing is cut off that is not applied.
    fn what_is_applied_is_decided(&self, log: &Log) {
        let (base, applied, decided) = (log.base(), self.applied, log.decided());
        assert!(applied <= decided, "{applied} entries are applied, and {decided} decided");
        assert!(decided <= log.end(), "{decided} entries are decided, and {} held", log.end());
        assert!(base <= applied, "{base} entries are cut off, and {applied} applied");
    }

    /// Replicas that have applied as many entries have carried out the same commands.
    fn versions_are_offsets_of_what_is_applied(&self, log: &Log) {
        let offset = log.offset_at(self.applied);
        assert_eq!(Some(self.offset), offset, "the commands of {} entries", self.applied);
        let floor = self.table.version_floor();
        assert!(floor <= self.offset, "a key has version {floor}, and {} commands are applied", self.offset);
    }

    /// A leader has promised its own ballot, has taken over a log in it, and no newer one.
    fn a_leader_leads_in_its_promise(&self, log: &Log) {
        let Some(leadership) = &self.leadership else { return };
        let ballot = leadership.ballot;
        assert_eq!(ballot.pid, u64::from(self.id), "it leads in another's ballot");
        assert_eq!(ballot.config_id, self.group.id, "it leads in another configuration");
        let promised = (log.promise(), log.accepted_round());
        assert_eq!(
            promised,
            (ballot, ballot),
            "it leads in a ballot that it has not promised, or does not follow"
        );
        assert!(self.agreement.is_some(), "it leads without a vote");
        assert!(leadership.inherited <= log.end(), "the log that it took over is cut off");
        // An index is decided by a message that is passed on only as far as the leader's own log is durable.
        let taken_over = leadership.inherited.max(leadership.said_decided);
        let (decided, durable) = (log.decided(), log.durable_in(ballot).max(taken_over));
        assert!(decided <= durable, "{decided} entries are decided, and {durable} durable at their leader");
    }

    // A configuration ends in its own log.

    /// A stop-sign is the last entry of every log that holds one. All before the configuration's beginning is decided by
    /// earlier ones. O(entries that are not applied).
    fn a_stop_sign_is_the_last_entry(&self, log: &Log) {
        for index in self.applied..log.end() {
            let ends =
                log.entry(index).and_then(|entry| entry.stop_sign()).is_some_and(|it| it.id > self.group.id);
            assert!(!ends || index + 1 == log.end(), "entries stand behind a stop-sign");
        }
        let begins = self.group.begins as usize;
        let is_past = self.applied >= begins || self.stands_before.is_some();
        assert!(is_past, "the configuration begins at {begins}, and {} entries are applied", self.applied);
    }

    /// Who votes is a member whose storage is what it was, and so are those whom it counts.
    fn only_voters_take_part(&self) {
        let others = self.group.nodes().into_iter().filter(|node| *node != self.id);
        assert!(
            self.links.iter().map(|link| link.peer).eq(others),
            "the links are to others than the members"
        );
        let has_ended = self.is_ending() && self.log.borrow().decided() == self.log.borrow().end();
        let takes_part = self.agreement.is_some();
        assert!(
            takes_part == self.has_vote() || !takes_part && has_ended,
            "who has a vote takes part, and nobody else"
        );
        let is_member = |voter: &Voter| self.group.since(voter.member.node) == Some(voter.member.since);
        assert!(self.voters.values().all(is_member), "a voter is known that is none");
        assert!(self.identity.life > 0 && self.life_record > 0, "a life without a number");
    }

    // Requests.

    /// Nothing is proposed twice, and each proposal has its place.
    fn proposals_are_in_order(&self) {
        let batches = &self.proposals.batches;
        let numbers = batches.iter().map(|proposal| proposal.batch);
        assert!(numbers.is_sorted_by(|one, other| one < other), "a proposal's number is given twice");
        assert!(
            batches.back().is_none_or(|it| it.batch == self.proposals.last),
            "a number that was not given"
        );
        let sums = batches.iter().fold((0, 0), |(bytes, ns), it| (bytes + it.bytes, ns + it.work_ns));
        assert_eq!(sums, (self.proposals.bytes, self.proposals.work_ns), "what is under way");
        let mut commands = self.builder.commands_reader();
        let mut count = 0;
        while !commands.is_empty() {
            assert!(Command::decode(&mut commands).is_ok(), "what is gathered cannot be read");
            count += 1;
        }
        assert_eq!(count, self.builder_askers.len(), "commands that are gathered, and who asked for them");
        let fenced = &self.builder_fenced;
        let is_known =
            fenced.is_sorted_by(|one, other| one < other) && fenced.last().is_none_or(|it| *it < count);
        assert!(is_known, "a fenced command that is not gathered");
    }

    /// Requests of a leader that leads no more wait for the next one.
    fn who_does_not_lead_orders_nothing(&self) {
        let is_empty = self.builder_askers.is_empty()
            && self.reads.is_empty()
            && self.reads_behind.is_empty()
            && self.reads_within.is_empty()
            && self.waits.is_empty();
        assert!(self.leadership.is_some() || is_empty, "a request waits for a leadership that is over");
    }

    /// The log is the lease: it begins with the proposal of an entry that is decided.
    fn a_lease_begins_with_a_proposal(&self) {
        let Some(leadership) = &self.leadership else { return };
        assert!(
            leadership.leased_from_us <= leadership.proposed_us,
            "a lease begins before its entry was proposed"
        );
        assert!(
            leadership.durable_us.is_none() || leadership.durable_us >= leadership.proposed_us,
            "durable before it was proposed"
        );
    }

    // Copies, and rest.

    /// A copy shows what is decided, and the log is kept from its moment on until its receiver goes on from there.
    fn nothing_is_cut_off_that_a_copy_needs(&self, log: &Log) {
        for sender in &self.senders {
            let index = sender.moment.index as usize;
            assert!(index <= self.applied, "a copy shows what is not decided");
            assert!(log.base() <= index, "{} entries are cut off, and a copy shows {index}", log.base());
            assert!(sender.acknowledged <= sender.next, "a chunk is received that was not sent");
            assert!(
                sender.unacknowledged.len() <= self.timing.chunk_window as usize,
                "too many chunks are under way"
            );
        }
    }

    /// A replica rests only while nothing waits and nothing ends by itself. Fragments come also to one that rests: its node
    /// looks after them.
    fn who_rests_has_nothing_under_way(&self) {
        assert!(
            !self.rest.is_resting() || self.has_nothing_under_way(),
            "a replica rests that has something to do"
        );
    }
}

/// No log is accepted in a ballot that was not promised. Ballots of different configurations are never compared.
fn promised_before_accepted(log: &Log) {
    let (promise, round) = (log.promise(), log.accepted_round());
    assert!(round <= promise, "the log is accepted in {round:?}, and {promise:?} is promised");
    let is_one = round == Ballot::default() || round.config_id == promise.config_id;
    assert!(is_one, "the log is accepted in a ballot of another configuration");
}

/// Records are made in order and become durable in order.
fn records_become_durable_in_order(log: &Log) {
    assert!(log.durable <= log.recorded(), "a record is durable that was never made");
    assert!(log.promise_record() <= log.recorded(), "a promise is in no record");
    assert!(log.durable_accepted.record <= log.durable, "an entry counts as durable before its record is");
}

/// O(records that are not durable).
fn records_are_waited_for_in_order(log: &Log) {
    let mut before = log.durable;
    for mark in &log.marks {
        assert!(before < mark.record, "records out of order: {:?}", log.marks);
        before = mark.record;
    }
    assert!(before <= log.recorded(), "a record is waited for that was never made");
}

/// Entries follow one another, and each begins behind the commands of those before. O(entries).
fn commands_are_counted(log: &Log) {
    let (mut offset, mut bytes) = (log.base_offset, 0);
    for slot in &log.slots {
        offset += u64::from(slot.entry.head().count);
        assert_eq!(slot.offset, offset, "the commands up to an entry");
        bytes += slot.entry.bytes().len();
    }
    assert_eq!(bytes, log.bytes(), "the bytes that are held");
}
