//! Invariants: what the proof in the parent module rests on, as far as one replica can see it.
//!
//! [`Replica::check_step`] compares a few numbers, in every step except those for requests. [`Replica::check_all`] checks
//! the whole state, for tests and simulations ([`check_invariants`](crate::Replica::check_invariants)). Nothing here depends
//! on what a peer sends: messages are checked on arrival. Each component checks its own state; the checks here compare
//! several.

use super::Replica;

impl Replica {
    /// Checks whether the replica may continue. O(1).
    ///
    /// # Panics
    /// When an invariant is broken: to continue would spread the damage.
    #[inline]
    pub(super) fn check_step(&self) {
        if !self.settings.options.planted.has_invariants() || !self.links.is_started() {
            return;
        }
        let log = self.log.borrow();
        self.applied.what_is_applied_is_decided(&log);
        log.what_is_decided_is_held();
        log.promised_before_accepted();
        log.records_become_durable_in_order();
        if let Some(leadership) = self.agreement.leadership() {
            leadership.is_in_its_promise(self.settings.id, self.members.group().id, &log);
        }
    }

    /// The same, and the checks whose time grows with the log and with what is under way.
    ///
    /// # Panics
    /// As [`Replica::check_step`].
    pub(super) fn check_all(&self) {
        if !self.settings.options.planted.has_invariants() {
            return;
        }
        self.check_step();
        let log = self.log.borrow();
        log.commands_are_counted();
        log.records_are_waited_for_in_order();
        self.applied.versions_are_offsets_of_what_is_applied(&log);
        self.transfers.check(self.applied.index(), &log, &self.settings);
        if !self.links.is_started() {
            return;
        }
        self.members.a_stop_sign_is_the_last_entry(&self.applied, &log);
        if let Some(leadership) = self.agreement.leadership() {
            leadership.check(&log, &self.settings);
        }
        drop(log);
        self.only_voters_take_part();
        self.proposals.check();
        self.lock_leases.check();
        self.a_quiescent_replica_has_nothing_under_way();
    }

    /// Only members whose storage was neither lost nor rolled back vote, and only such votes are counted.
    fn only_voters_take_part(&self) {
        self.members.only_voters_are_counted(&self.links);
        let log = self.log.borrow();
        let has_ended = log.is_ending(self.members.group().id) && log.decided() == log.end();
        let (takes_part, has_vote) = (self.agreement.takes_part(), self.members.has_vote());
        assert!(
            takes_part == has_vote || !takes_part && has_ended,
            "a replica takes part exactly if it has a vote"
        );
        assert!(self.links.life() > 0, "an incarnation without a number");
    }

    /// A replica is quiescent only while no request waits and nothing has a deadline. Fragments may arrive at a quiescent
    /// replica: its node takes care of them.
    fn a_quiescent_replica_has_nothing_under_way(&self) {
        assert!(
            !self.rounds.is_resting() || self.has_nothing_under_way(),
            "a quiescent replica has something to do"
        );
    }
}
