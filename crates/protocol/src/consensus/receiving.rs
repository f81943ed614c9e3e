//! Messages: what reaches the crate, and when.
//!
//! The crate trusts its peers: an index beyond its log, a ballot of somebody else's or an answer from a stranger makes
//! it panic, or worse. What no correct peer can have sent is refused here; what a correct peer sends that the crate
//! cannot bear is answered otherwise: see the list in the parent module.

use super::Replica;
use super::group::{Member, Voter};
use super::links::{Arrival, Standing};
use super::message::{Body, Message};
use super::record::Change;
use crate::contract::{Effects, NodeId, Now, Trace};
use crate::planted::Fault;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::{Accepted, NotAccepted, PaxosMsg, Prepare, Promise};
use std::cmp::Ordering;

impl Replica {
    pub(super) fn message(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects) {
        let configuration = message.envelope.configuration;
        if !self.is_started || from == self.id || !self.meet(from) {
            return;
        }
        if configuration > self.group.id {
            self.apply(effects); // The stop-sign may have come just before.
        }
        let own = (self.identity.storage, self.identity.life);
        let member = self.group.since(from).map(|since| Member { node: from, since });
        let standing = match configuration.cmp(&self.group.id) {
            Ordering::Greater => Standing::Newer,
            Ordering::Equal if member.is_some() => Standing::Voter,
            _ => Standing::Other,
        };
        let planted = self.options.planted;
        let Some(link) = self.link_mut(from) else { return };
        match link.arrive(now, own, standing, planted, &message) {
            Arrival::Take => {}
            Arrival::Drop => {
                self.counters.dropped_messages += 1;
                return;
            }
            Arrival::TakeAfterRecord(identity) => {
                if let Some(member) = member {
                    let voter = Voter { member, identity };
                    self.voters.insert(from, voter);
                    self.log.borrow_mut().record(vec![Change::Peer(voter)]);
                }
            }
            Arrival::Outlived(identity) => {
                if !std::mem::replace(&mut link.is_warned, true) {
                    let why =
                        "its storage is in an older state than it was: what it promised since is forgotten";
                    effects.trace.push(Trace::Rejected { peer: from, why });
                }
                let Some(member) = member else { return };
                let voter = Voter { member, identity };
                return self.tell_now_and_then(now, from, Body::Outlived { voter }, effects);
            }
            Arrival::Reject(why) => {
                if !std::mem::replace(&mut link.is_warned, true) {
                    effects.trace.push(Trace::Rejected { peer: from, why });
                }
                return;
            }
        }
        self.wake_for(now, from, &message.body);
        if !message.body.is_of_any_configuration()
            && !self.is_of_this_configuration(now, from, &message, effects)
        {
            return;
        }
        match message.body {
            Body::Heartbeat(heartbeat) => self.heartbeat(from, heartbeat, effects),
            Body::Paxos(message) => self.paxos(now, from, message, effects),
            Body::Position { ballot, end, decided } => {
                self.position(from, ballot, (end as usize, decided as usize), effects);
            }
            Body::Confirm { ballot, number } => {
                // Who promised a newer ballot stays silent.
                if self.log.borrow().promise() == ballot {
                    self.send(from, Body::Confirmed { ballot, number }, effects);
                }
            }
            Body::Confirmed { ballot, number } => {
                if let Some(link) = self.link_mut(from) {
                    link.confirmed = (ballot, number);
                }
            }
            Body::CopyBegin { transfer, moment } => self.copy_begins(now, from, transfer, moment, effects),
            Body::CopyChunk { transfer, index, chunk } => {
                self.copy_chunk(now, from, (transfer, index), chunk, effects);
            }
            Body::CopyEnd { transfer, chunks, round, rest, voters } => {
                self.copy_ends(now, from, (transfer, chunks), (round, rest), &voters, effects);
            }
            Body::CopyProgress { transfer, next } => self.copy_progress(now, from, transfer, next, effects),
            Body::Behind { index, asks } => {
                self.help(now, from, configuration, (index as usize, asks), effects);
            }
            Body::Decided { configuration: of, from: index, entries } => {
                self.learn(from, of, index as usize, entries, effects);
            }
            Body::Newer { members } => self.hears_of_newer(now, from, configuration, Some(&members), effects),
            Body::Outlived { voter: Voter { member, identity } } => {
                // As another member, before it was removed and added again, it may have been anybody.
                let is_own = member.node == self.id && self.group.since(self.id) == Some(member.since);
                if is_own && self.identity.is_outlived_by(&identity) {
                    self.exclude("its own storage is in an older state than others have heard", effects);
                }
            }
            Body::LedBefore { ballot } => {
                if ballot.pid == u64::from(self.id) && ballot == self.log.borrow().promise() {
                    self.exclude("its own storage has forgotten in which ballots it led", effects);
                }
            }
        }
        self.look_at_leadership(effects);
    }

    fn heartbeat(&mut self, from: NodeId, heartbeat: HeartbeatMsg, effects: &mut Effects) {
        if let HeartbeatMsg::Reply(reply) = &heartbeat
            && reply.ballot.pid != u64::from(from)
        {
            return effects.trace.push(Trace::Rejected { peer: from, why: "a heartbeat in another's name" });
        }
        if let HeartbeatMsg::Reply(reply) = &heartbeat
            && reply.ballot.config_id != self.group.id
        {
            let why = "a heartbeat with a ballot of another configuration";
            return effects.trace.push(Trace::Rejected { peer: from, why });
        }
        match (&heartbeat, &mut self.agreement) {
            // It is looked at when the round ends: see `tick`.
            (HeartbeatMsg::Reply(_), _) => self.answers.push((from, heartbeat)),
            (HeartbeatMsg::Request(_), Some(agreement)) => agreement.heartbeat(self.id, from, heartbeat),
            (HeartbeatMsg::Request(_), None) => {}
        }
    }

    fn paxos(&mut self, now: Now, from: NodeId, message: PaxosMsg<super::Entry>, effects: &mut Effects) {
        let reject = |why: &'static str, effects: &mut Effects| {
            effects.trace.push(Trace::Rejected { peer: from, why });
        };
        let (promise, end, decided) = {
            let log = self.log.borrow();
            (log.promise(), log.end(), log.said_decided())
        };
        let leads_as = match &message {
            PaxosMsg::Prepare(prepare) => Some(prepare.n),
            PaxosMsg::AcceptSync(accept) => Some(accept.n),
            PaxosMsg::AcceptDecide(accept) => Some(accept.n),
            PaxosMsg::Decide(decide) => Some(decide.n),
            _ => None,
        };
        if leads_as.is_some_and(|ballot| ballot.pid != u64::from(from)) {
            return reject("it leads in a ballot that is not its own", effects);
        }
        // The crate would compare it with this one's.
        if leads_as.is_some_and(|ballot| ballot.config_id != self.group.id) {
            return reject("it leads in a ballot of another configuration", effects);
        }
        match &message {
            PaxosMsg::Prepare(prepare) if prepare.n >= promise => {
                if self.has_promised_to_another_life(from, prepare.n) {
                    return self.tell_now_and_then(now, from, Body::LedBefore { ballot: prepare.n }, effects);
                }
                if let Some(from_index) = self.lacks_for(prepare)
                    && self.must_copy(from, from_index, decided)
                {
                    // The answer would have to hold what is cut off here.
                    return self.begin_copy(
                        now,
                        from,
                        "it is about to lead and lacks what is cut off here",
                        effects,
                    );
                }
            }
            PaxosMsg::Promise(answer) => {
                if answer.n != promise || promise.pid != u64::from(self.id) {
                    return;
                }
                // Once it leads, the crate does not look at the entries of an answer that comes late.
                let is_counted = !self.agreement.as_ref().is_some_and(|agreement| agreement.is_accepting());
                if let Err(why) = check_promise(answer, is_counted, (decided, end)) {
                    return reject(why, effects);
                }
                if self.must_copy(from, self.continues_from(answer), decided) {
                    return self.begin_copy(now, from, "it lacks what is cut off here", effects);
                }
                self.copy_was_of_use(from);
            }
            PaxosMsg::AcceptSync(accept) if accept.n == promise => {
                let sync = &accept.log_sync;
                let fits = decided <= sync.sync_idx && sync.sync_idx <= end;
                if !fits || accept.decided_idx > sync.sync_idx + sync.suffix.len() {
                    return reject("it sends entries that do not continue this log", effects);
                }
            }
            PaxosMsg::Accepted(accepted) => {
                if let Some(link) = self.link_mut(from) {
                    link.accepted = (accepted.n, accepted.accepted_idx);
                }
                return self.count_accepted(from);
            }
            PaxosMsg::NotAccepted(refusal) => self.note_refusal(from, refusal.n, effects),
            _ => {}
        }
        if let Some(agreement) = &mut self.agreement {
            if let PaxosMsg::Promise(_) = message {
                // The crate adds entries to an `AcceptDecide` that it has not given away yet, even when an `AcceptSync`
                // has followed that message: they would be missing behind it.
                agreement.take_messages(&mut self.outgoing);
            }
            agreement.handle(self.id, from, message);
        }
    }

    /// Takes note of who asks for a promise. True when this one was given to an earlier life of the same node.
    ///
    /// A candidate records its ballot before it asks anybody, and comes back from a crash with it; the crate then takes
    /// another one. So a candidate that asks in the same ballot in another life has a disk that was put back to an
    /// earlier state. Nobody may follow it: what was decided in that ballot may be what it has forgotten. And nobody
    /// would, as they follow that ballot already, but all would stay content with it.
    fn has_promised_to_another_life(&mut self, from: NodeId, ballot: Ballot) -> bool {
        let Some(asker) = self.link(from).and_then(|link| link.known) else { return false };
        let (promised, promised_to) = *self.promised_to.get_or_insert((ballot, asker));
        if promised == ballot {
            return promised_to != asker && !self.options.planted.has(Fault::RolledBackVoterVotes);
        }
        self.promised_to = Some((ballot, asker));
        false
    }

    /// From which index on a candidate will need this replica's log, if it has more than the candidate.
    fn lacks_for(&self, prepare: &Prepare) -> Option<usize> {
        let log = self.log.borrow();
        if log.accepted_round() > prepare.n_accepted {
            Some(prepare.decided_idx)
        } else if log.accepted_round() == prepare.n_accepted && log.end() > prepare.accepted_idx {
            Some(prepare.accepted_idx)
        } else {
            None
        }
    }

    /// From which index on a follower may be sent this leader's log: from where it has come in this ballot already,
    /// else from what it knows to be decided. While promises are counted nobody knows yet whose log will be taken over,
    /// and so which followers could be spared more.
    fn continues_from(&self, promise: &Promise<super::Entry>) -> usize {
        match promise.n_accepted == promise.n {
            true => promise.accepted_idx.min(self.log.borrow().end()),
            false => promise.decided_idx,
        }
    }

    /// Tells the crate how far a follower has come, but no further than this leader's own log is durable.
    ///
    /// The crate counts the leader's own entries as accepted when they are appended. So it must not hear that others
    /// accepted them before that is true, and an entry is decided only when the leader's own copy is durable too.
    fn count_accepted(&mut self, from: NodeId) {
        let Some(leadership) = &self.leadership else { return };
        let ballot = leadership.ballot;
        let log = self.log.borrow();
        let durable = match self.options.planted.has(Fault::LeaderCountsUnsynced) {
            true => log.end(),
            false => log.durable_in(ballot),
        };
        drop(log);
        let Some(accepted) =
            self.link(from).map(|link| link.accepted).filter(|accepted| accepted.0 == ballot)
        else {
            return;
        };
        let accepted = Accepted { n: ballot, accepted_idx: accepted.1.min(durable) };
        if let Some(agreement) = &mut self.agreement {
            agreement.handle(self.id, from, PaxosMsg::Accepted(accepted));
        }
    }

    /// More records are durable.
    pub(super) fn durable(&mut self, record: u64) {
        let before = self.leadership.map(|leadership| self.log.borrow().durable_in(leadership.ballot));
        self.log.borrow_mut().durable(record);
        let after = self.leadership.map(|leadership| self.log.borrow().durable_in(leadership.ballot));
        if after > before {
            self.peers().into_iter().for_each(|peer| self.count_accepted(peer));
        }
    }

    /// A peer has promised a higher ballot than this leader's. When whoever had that ballot is gone and the heartbeats
    /// of a majority are content with this leader, they leave it at that, and the peer without a leader: so the leader
    /// raises its ballot by itself.
    fn note_refusal(&mut self, from: NodeId, ballot: Ballot, effects: &mut Effects) {
        const REFUSALS_MAX: u32 = 4;
        let Some(leadership) = self.leadership else { return };
        let Some(link) = self.link_mut(from) else { return };
        let times = if link.refusals.0 == ballot { link.refusals.1 + 1 } else { 1 };
        link.refusals = (ballot, times);
        if ballot > leadership.ballot && times >= REFUSALS_MAX {
            link.refusals = (Ballot::default(), 0);
            effects.trace.push(Trace::EpochPassed { epoch: u64::from(ballot.n) });
            if let Some(agreement) = &mut self.agreement {
                agreement.raise_ballot();
            }
        }
    }

    /// The leader tells how far it has come. What it sent before has arrived or never will, so whoever has come less
    /// far starts over with it. The answer repeats an acknowledgement that may be lost.
    fn position(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        (end, decided): (usize, usize),
        effects: &mut Effects,
    ) {
        let (promise, own_end, own_decided) = {
            let log = self.log.borrow();
            (log.promise(), log.end(), log.decided())
        };
        if ballot.pid != u64::from(from) {
            return;
        }
        if promise > ballot {
            return self.send(from, Body::Paxos(PaxosMsg::NotAccepted(NotAccepted { n: promise })), effects);
        }
        let Some(agreement) = &mut self.agreement else { return };
        let has_all = own_end >= end && own_decided >= decided;
        if promise == ballot && !agreement.is_accepting() {
            // It has asked already, and will ask again.
        } else if promise < ballot || !has_all {
            self.counters.resyncs += 1;
            agreement.start_over_with(from);
        } else {
            let accepted = Accepted { n: ballot, accepted_idx: own_end };
            self.send(from, Body::Paxos(PaxosMsg::Accepted(accepted)), effects);
        }
    }
}

/// Looks whether a promise is one that a peer can have given to this replica's log.
fn check_promise(
    promise: &Promise<super::Entry>,
    is_counted: bool,
    (decided, end): (usize, usize),
) -> Result<(), &'static str> {
    if promise.decided_idx > promise.accepted_idx {
        return Err("it promises more decided than held");
    }
    match &promise.log_sync {
        Some(sync) if is_counted && (sync.sync_idx < decided || sync.sync_idx > end) => {
            Err("it sends entries that do not continue this log")
        }
        Some(sync) if is_counted && sync.sync_idx + sync.suffix.len() != promise.accepted_idx => {
            Err("it sends other entries than it promises")
        }
        _ => Ok(()),
    }
}
