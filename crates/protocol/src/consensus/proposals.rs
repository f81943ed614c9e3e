//! Proposals of this replica that are not settled: a leader that is deposed leaves them, and another one may still decide
//! them.

use super::counters::Counters;
use super::entry::{Head, Proposer};
use super::options::Settings;
use crate::contract::{Effects, NodeId, Ticket};
use crate::planted::Fault;
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::VecDeque;

/// The request that waits for a command of a batch, and until when. `None` for what the leader orders itself.
pub(super) type Asker = Option<(Ticket, u64)>;

/// A batch that was appended here and is not known to be decided.
#[derive(Debug)]
pub(super) struct Proposal {
    /// Its number among this incarnation's proposals.
    pub(super) batch: u64,
    /// Its index in the log. If another entry is decided there, this one never will be: only its proposer ever puts it in a
    /// log, once, and entries keep their indices.
    pub(super) index: usize,
    /// The ballot in which it was appended. A log that holds it also holds what its proposer appended before it in this
    /// ballot.
    pub(super) ballot: Ballot,
    /// When it was proposed, on this replica's clock: a lease begins then.
    pub(super) proposed_us: u64,
    pub(super) bytes: usize,
    /// About how long its slow commands take, in nanoseconds.
    pub(super) work_ns: u64,
    pub(super) askers: Vec<Asker>,
}

impl Proposal {
    /// How many requests wait for its outcome. O(requests).
    fn awaited(&self) -> usize {
        self.askers.iter().flatten().count()
    }
}

/// Batches in the order in which they were proposed.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    batches: VecDeque<Proposal>,
    bytes: usize,
    work_ns: u64,
    /// How many requests wait for an outcome.
    awaited: usize,
    /// The last batch proposed in this incarnation.
    last: u64,
    /// The last batch that holds a purge.
    purge: u64,
    /// No asker has an earlier deadline.
    earliest_us: u64,
    /// The ballot of the last proposal that was found lost.
    lost_in: Option<Ballot>,
}

impl Proposals {
    pub(super) fn push(&mut self, proposal: Proposal) {
        let deadlines = proposal.askers.iter().flatten().map(|(_, deadline_us)| *deadline_us);
        self.earliest_us = deadlines.fold(self.earliest_us, u64::min);
        assert!(proposal.batch > self.last, "nothing is proposed twice");
        self.bytes += proposal.bytes;
        self.work_ns += proposal.work_ns;
        self.awaited += proposal.awaited();
        self.last = proposal.batch;
        self.batches.push_back(proposal);
    }

    fn pop_if(&mut self, fits: impl Fn(&Proposal) -> bool) -> Option<Proposal> {
        let proposal = self.batches.pop_front_if(|proposal| fits(proposal))?;
        self.bytes -= proposal.bytes;
        self.work_ns -= proposal.work_ns;
        self.awaited -= proposal.awaited();
        Some(proposal)
    }

    /// True when every batch is settled.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// True when a request waits for an outcome. If none does, what is not settled may still be decided, but its clients know
    /// that.
    pub(super) fn are_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// The last batch proposed in this incarnation.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn work_ns(&self) -> u64 {
        self.work_ns
    }

    /// How many commands are not settled.
    pub(super) fn commands(&self) -> usize {
        self.batches.iter().map(|batch| batch.askers.len()).sum()
    }

    /// Every batch up to this one is settled: known to be decided, or known never to be, or skipped.
    pub(super) fn settled(&self) -> u64 {
        self.batches.front().map_or(self.last, |proposal| proposal.batch - 1)
    }

    /// True when no purge is under way.
    pub(super) fn may_purge(&self) -> bool {
        self.purge <= self.settled()
    }

    /// The next batch will hold a purge.
    pub(super) fn purges(&mut self) {
        self.purge = self.last + 1;
    }

    // Outcomes.

    /// Takes the proposal of the entry that is decided at an index, if this incarnation of this replica made it. Proposals
    /// that are now certain never to be decided are refused.
    pub(super) fn take(
        &mut self,
        own: (NodeId, u64),
        index: usize,
        head: Head,
        effects: &mut Effects,
    ) -> Option<Proposal> {
        let Proposer { node, life, batch } = head.proposer;
        let is_own = (node, life) == own;
        loop {
            let lost_in = self.lost_in;
            let proposal = self.pop_if(|proposal| match is_own {
                // A later proposal of this replica stands in a log without this one.
                true => proposal.batch <= batch,
                // Another entry has taken its index, or that of an earlier proposal without which no log holds this one.
                false => proposal.index <= index || lost_in == Some(proposal.ballot),
            })?;
            if is_own && proposal.batch == batch {
                assert!(
                    lost_in != Some(proposal.ballot),
                    "a log holds all of its ballot's earlier proposals"
                );
                return Some(proposal);
            }
            self.lost_in = Some(proposal.ballot);
            refuse_lost(&proposal, effects);
        }
    }

    /// Refuses all: they stand where nothing of their configuration is ever decided.
    pub(super) fn refuse_all(&mut self, effects: &mut Effects) {
        while let Some(proposal) = self.pop_if(|_| true) {
            refuse_lost(&proposal, effects);
        }
    }

    /// A snapshot of the table has skipped the entries before an index: the outcomes of proposals there stay unknown.
    pub(super) fn skip_before(
        &mut self,
        index: usize,
        settings: &Settings,
        counters: &mut Counters,
        effects: &mut Effects,
    ) {
        while let Some(proposal) = self.pop_if(|proposal| proposal.index < index) {
            for (ticket, _) in proposal.askers.into_iter().flatten() {
                end_as_unknown(ticket, settings, counters, effects);
            }
        }
    }

    /// Ends the requests that have waited too long. Returns the indices of their proposals.
    pub(super) fn end_overdue(
        &mut self,
        now_us: u64,
        settings: &Settings,
        counters: &mut Counters,
        effects: &mut Effects,
    ) -> Vec<usize> {
        let mut overdue = Vec::new();
        if now_us < self.earliest_us {
            return overdue;
        }
        self.earliest_us = u64::MAX;
        let batches = self.batches.iter_mut();
        let askers = batches.flat_map(|batch| batch.askers.iter_mut().map(|asker| (asker, batch.index)));
        for (asker, index) in askers {
            match *asker {
                Some((ticket, deadline_us)) if deadline_us <= now_us => {
                    end_as_unknown(ticket, settings, counters, effects);
                    overdue.push(index);
                    self.awaited -= 1;
                    *asker = None;
                }
                Some((_, deadline_us)) => self.earliest_us = self.earliest_us.min(deadline_us),
                None => {}
            }
        }
        overdue
    }

    /// Nothing is proposed twice, and the sums are right. O(proposals).
    pub(super) fn check(&self) {
        let numbers = self.batches.iter().map(|proposal| proposal.batch);
        assert!(numbers.is_sorted_by(|one, other| one < other), "a proposal's number is given twice");
        assert!(self.batches.back().is_none_or(|it| it.batch == self.last), "a number that was not given");
        let sums = self.batches.iter().fold((0, 0, 0), |(bytes, ns, awaited), it| {
            (bytes + it.bytes, ns + it.work_ns, awaited + it.awaited())
        });
        assert_eq!(sums, (self.bytes, self.work_ns, self.awaited), "what is under way");
    }
}

fn end_as_unknown(ticket: Ticket, settings: &Settings, counters: &mut Counters, effects: &mut Effects) {
    let error = "UNKNOWN the write was proposed, but not known to be committed in time: it may still happen";
    if settings.options.planted.has(Fault::UnknownReportedAsRefused) {
        return effects.refuse(ticket, error);
    }
    counters.unknown_writes += 1;
    effects.unknown(ticket, error);
}

fn refuse_lost(proposal: &Proposal, effects: &mut Effects) {
    let error = "TRYAGAIN LOST another leader took over without it; nothing was done, try again";
    proposal.askers.iter().flatten().for_each(|(ticket, _)| effects.refuse(*ticket, error));
}

#[cfg(test)]
mod tests {
    use super::super::kit::{entry, settings, ticket};
    use super::*;
    use crate::contract::Result;

    const OWN: (NodeId, u64) = (1, 1);

    fn proposal(batch: u64, index: usize, ballot: u32, deadline_us: u64) -> Proposal {
        let (askers, ballot) =
            (vec![Some((ticket(batch), deadline_us)), None], Ballot::with(1, ballot, 0, 1));
        Proposal { batch, index, ballot, proposed_us: 0, bytes: 10, work_ns: 3, askers }
    }

    /// Batch 1 at index 5 in ballot 1, and batches 2 and 3 at the next indices in ballot 2.
    fn three() -> Proposals {
        let mut proposals = Proposals::default();
        for batch in 1..=3 {
            proposals.push(proposal(batch, batch as usize + 4, batch.min(2) as u32, 100 * batch));
        }
        proposals
    }

    fn ends(effects: &Effects) -> Vec<(u64, Result)> {
        effects.outcomes.iter().map(|outcome| (outcome.ticket.sequence, outcome.result)).collect()
    }

    #[test]
    fn a_proposal_is_refused_when_another_entry_takes_its_index() {
        let (mut proposals, mut effects) = (three(), Effects::default());
        // A later proposal of this replica is decided in a log without the first one.
        let taken = proposals.take(OWN, 5, entry(1, 2, &["a", "b"]).head(), &mut effects);
        assert_eq!(taken.map(|it| it.batch), Some(2));
        assert_eq!(ends(&effects), [(1, Result::Refused)]);
        assert!(proposals.take(OWN, 6, entry(2, 9, &[]).head(), &mut effects).is_none());
        assert_eq!(ends(&effects).len(), 1, "the third one stands after that");
        assert!(proposals.take(OWN, 7, entry(2, 10, &[]).head(), &mut effects).is_none());
        assert_eq!(ends(&effects), [(1, Result::Refused), (3, Result::Refused)]);
        assert_eq!((proposals.settled(), proposals.bytes(), proposals.work_ns()), (3, 0, 0));
        proposals.check();
    }

    #[test]
    fn with_a_proposal_those_after_it_in_its_ballot_are_refused() {
        let (mut proposals, mut effects) = (Proposals::default(), Effects::default());
        for (batch, index, ballot) in [(1, 5, 1), (2, 6, 1), (3, 7, 1), (4, 7, 2)] {
            proposals.push(proposal(batch, index, ballot, 0));
        }
        assert!(proposals.take(OWN, 5, entry(2, 9, &[]).head(), &mut effects).is_none());
        assert_eq!(ends(&effects), [1, 2, 3].map(|number| (number, Result::Refused)));
        let taken = proposals.take(OWN, 7, entry(1, 4, &["a", "b"]).head(), &mut effects);
        assert_eq!(taken.map(|it| it.batch), Some(4), "a later ballot's log is another one");
        proposals.check();
    }

    #[test]
    #[should_panic(expected = "a log holds all of its ballot's earlier proposals")]
    fn no_proposal_is_decided_in_a_ballot_in_which_an_earlier_one_was_lost() {
        let (mut proposals, mut effects) = (Proposals::default(), Effects::default());
        proposals.push(proposal(1, 5, 1, 0));
        proposals.push(proposal(2, 6, 1, 0));
        proposals.take(OWN, 6, entry(1, 2, &["a", "b"]).head(), &mut effects);
    }

    #[test]
    fn the_same_number_in_another_incarnation_is_another_proposal() {
        let (mut proposals, mut effects) = (three(), Effects::default());
        assert!(proposals.take((1, 2), 4, entry(1, 3, &[]).head(), &mut effects).is_none());
        assert!(ends(&effects).is_empty() && proposals.settled() == 0);
    }

    #[test]
    fn an_overdue_request_ends_once_with_an_unknown_outcome() {
        let (mut proposals, mut effects) = (three(), Effects::default());
        let (settings, mut counters) = (settings(1), Counters::default());
        let overdue = proposals.end_overdue(200, &settings, &mut counters, &mut effects);
        assert_eq!(overdue, [5, 6]);
        assert_eq!(ends(&effects), [(1, Result::Unknown), (2, Result::Unknown)]);
        assert_eq!(proposals.settled(), 0, "they may still be decided");
        assert!(proposals.are_awaited(), "the third one");
        assert!(proposals.end_overdue(299, &settings, &mut counters, &mut effects).is_empty());
        proposals.skip_before(8, &settings, &mut counters, &mut effects);
        assert_eq!(ends(&effects)[2..], [(3, Result::Unknown)]);
        assert_eq!((counters.unknown_writes, proposals.is_empty()), (3, true));
        assert!(!proposals.are_awaited());
        proposals.check();
    }

    #[test]
    fn a_purge_is_under_way_until_its_batch_is_settled() {
        let (mut proposals, mut effects) = (three(), Effects::default());
        proposals.purges();
        assert!(!proposals.may_purge());
        proposals.push(proposal(4, 8, 2, 0));
        for batch in 1..=3 {
            proposals.take(OWN, batch as usize + 4, entry(1, batch, &[]).head(), &mut effects);
        }
        assert!(!proposals.may_purge());
        proposals.take(OWN, 8, entry(1, 4, &[]).head(), &mut effects);
        assert!(proposals.may_purge());
    }
}
