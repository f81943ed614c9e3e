//! Invariants: what the proof in the parent module rests on, as far as one replica can see it.
//!
//! [`Replica::check_step`] compares a few numbers, and a replica does that in every step but those for requests.
//! [`Replica::check_all`] looks at everything that it holds; tests and simulations ask for that
//! ([`check_invariants`](crate::Replica::check_invariants)). Nothing here depends on what a peer says: that is checked
//! where it comes in. Each component checks its own state; here stand the checks that compare several.

use super::Replica;
use super::leading::Leadership;

impl Replica {
    /// Whether the replica may go on. O(1).
    ///
    /// # Panics
    /// When an invariant is broken: going on would spread the damage.
    #[inline]
    pub(super) fn check_step(&self) {
        if !self.settings.options.planted.has_invariants() || !self.links.is_started() {
            return;
        }
        let log = self.log.borrow();
        self.applied.what_is_applied_is_decided(&log);
        log.promised_before_accepted();
        log.records_become_durable_in_order();
        if let Some(leadership) = self.agreement.leadership() {
            leadership.is_in_its_promise(self.settings.id, self.members.group().id, &log);
        }
    }

    /// The same, and whatever takes time in the length of the log and in what is under way.
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
        drop(log);
        self.only_voters_take_part();
        self.proposals.check();
        self.agreement.leadership().into_iter().for_each(Leadership::check);
        self.lock_leases.check();
        self.a_quiescent_replica_has_nothing_under_way();
    }

    /// Who votes is a member whose storage is what it was, and so are those whom it counts.
    fn only_voters_take_part(&self) {
        self.members.only_voters_are_counted(&self.links);
        let log = self.log.borrow();
        let has_ended = log.is_ending(self.members.group().id) && log.decided() == log.end();
        let (takes_part, has_vote) = (self.agreement.takes_part(), self.members.has_vote());
        assert!(
            takes_part == has_vote || !takes_part && has_ended,
            "who has a vote takes part, and nobody else"
        );
        assert!(self.links.life() > 0, "a life without a number");
    }

    /// A replica rests only while nothing waits and nothing ends by itself. Fragments come also to one that rests: its node
    /// looks after them.
    fn a_quiescent_replica_has_nothing_under_way(&self) {
        assert!(
            !self.rounds.is_resting() || self.has_nothing_under_way(),
            "a replica rests that has something to do"
        );
    }
}
