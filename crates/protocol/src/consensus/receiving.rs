//! Messages: which of them reach the crate, and when.
//!
//! The crate trusts its peers: an index beyond its log, another node's ballot or an answer from a node that is no voter
//! makes it panic, or worse. Messages that no correct peer can have sent are rejected here; messages of correct peers that
//! the crate cannot handle are answered in another way: see the list in the parent module.

use super::Replica;
use super::entry::Entry;
use super::group::{Member, Voter};
use super::links::{Arrival, Standing};
use super::log::Log;
use super::message::{Body, Message};
use super::outbox::{Outbox, outbox};
use super::record::Change;
use crate::contract::{Effects, NodeId, Now, Trace};
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::{Accepted, NotAccepted, PaxosMsg, Prepare, Promise};
use std::cmp::Ordering;

impl Replica {
    pub(super) fn message(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects) {
        let configuration = message.envelope.configuration;
        if !self.links.is_started() || from == self.settings.id || !self.links.meet(from) {
            return;
        }
        if configuration > self.members.group().id {
            self.apply(effects); // The stop-sign may have arrived just before.
        }
        if !self.is_taken(now, from, &message, effects) {
            return;
        }
        if self.links.ends_owing(from) {
            self.ask_again(from);
        }
        let (log, links, settings) = (self.log.borrow(), &mut self.links, &self.settings);
        self.rounds.wake_for(now, (from, &message.body), &log, links, settings);
        drop(log);
        if !message.body.is_of_any_configuration()
            && !self.is_of_this_configuration(now, from, configuration, effects)
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
                // A replica that has promised a newer ballot does not answer.
                let promise = self.log.borrow().promise();
                if promise == ballot {
                    outbox!(self, effects).send(from, Body::Confirmed { ballot, number });
                }
            }
            Body::Confirmed { ballot, number } => self.links.confirms(from, (ballot, number)),
            Body::SnapshotBegin { transfer, moment } => {
                self.transfer_begins(now, from, transfer, moment, effects)
            }
            Body::SnapshotChunk { transfer, index, chunk } => {
                let (table, mut out) = (self.applied.table_mut(), outbox!(self, effects));
                self.incoming.chunk(now, (from, transfer), (index, chunk), table, &mut out);
            }
            Body::SnapshotEnd { transfer, chunks, round, rest, voters } => {
                self.transfer_ends(now, (from, transfer, chunks), (round, rest), &voters, effects);
            }
            Body::SnapshotProgress { transfer, next } => {
                let table = self.applied.table_mut();
                self.transfers.progress(now, from, (transfer, next), table, effects);
            }
            Body::Behind { index, asks } => {
                self.help(now, from, configuration, (index as usize, asks), effects);
            }
            Body::Decided { configuration: of, from: index, entries } => {
                self.learn(from, of, (index as usize, entries), effects);
            }
            Body::Newer { members } => {
                self.note_newer(now, from, configuration, Some(&members), effects);
            }
            Body::Outlived { voter: Voter { member, identity } } => {
                if self.members.is_own(member) && self.links.identity().is_outlived_by(&identity) {
                    self.exclude("its own storage is in an older state than others have heard", effects);
                }
            }
            Body::HandOver { ballot } if ballot.pid != u64::from(from) => {
                effects
                    .trace
                    .push(Trace::Rejected { peer: from, why: "it resigns in a ballot that is not its own" });
            }
            Body::HandOver { ballot } => self.take_over_from(ballot),
            Body::LedBefore { ballot } => {
                let promise = self.log.borrow().promise();
                if ballot.pid == u64::from(self.settings.id) && ballot == promise {
                    self.exclude("its own storage has forgotten in which ballots it led", effects);
                }
            }
        }
        self.look_at_leadership(effects);
    }

    /// This replica has begun an incarnation, and its request to the leader to start over with it was not sent: see
    /// [`Links::ends_owing`](super::links::Links::ends_owing). The crate would repeat it after some rounds, in which the replica counts
    /// for nothing.
    #[cold]
    fn ask_again(&mut self, leader: NodeId) {
        let follows = self.log.borrow().promise().pid == u64::from(leader) && self.agreement.takes_part();
        if follows && !self.agreement.leads() && !self.agreement.is_accepting() {
            self.agreement.start_over_with(leader);
        }
    }

    /// Whether a message is accepted: it is neither late nor repeated, and its sender is the expected one.
    fn is_taken(&mut self, now: Now, from: NodeId, message: &Message<'_>, effects: &mut Effects) -> bool {
        let group = self.members.group();
        let member = group.since(from).map(|since| Member { node: from, since });
        let standing = match message.envelope.configuration.cmp(&group.id) {
            Ordering::Greater => Standing::Newer,
            Ordering::Equal if member.is_some() => Standing::Voter,
            _ => Standing::Other,
        };
        match self.links.arrive(now, from, standing, &self.settings, message) {
            Arrival::Take => return true,
            Arrival::Drop => self.counters.dropped_messages += 1,
            Arrival::TakeAfterRecord(identity) => {
                if let Some(member) = member {
                    let voter = Voter { member, identity };
                    self.members.learn_identity(voter);
                    self.log.borrow_mut().record(vec![Change::Peer(voter)]);
                }
                return true;
            }
            Arrival::Outlived(identity) => {
                if self.links.is_first_warning(from) {
                    let why =
                        "its storage is in an older state than it was: what it promised since is forgotten";
                    effects.trace.push(Trace::Rejected { peer: from, why });
                }
                if let Some(member) = member {
                    let voter = Voter { member, identity };
                    outbox!(self, effects).send_rate_limited(now, from, Body::Outlived { voter });
                }
            }
            Arrival::Reject(why) => {
                if self.links.is_first_warning(from) {
                    effects.trace.push(Trace::Rejected { peer: from, why });
                }
            }
        }
        false
    }

    /// Checks the configuration of a message that has a meaning only in its own one.
    fn is_of_this_configuration(
        &mut self,
        now: Now,
        from: NodeId,
        configuration: u32,
        effects: &mut Effects,
    ) -> bool {
        if configuration < self.members.group().id {
            self.members.send_members(now, from, &mut outbox!(self, effects));
        }
        // Such a message is sent to members only.
        self.note_newer(now, from, configuration, None, effects);
        // The crate cannot handle messages from nodes that are no members.
        let group = self.members.group();
        configuration == group.id && self.agreement.takes_part() && group.contains(from)
    }

    fn note_newer(
        &mut self,
        now: Now,
        from: NodeId,
        id: u32,
        members: Option<&[NodeId]>,
        effects: &mut Effects,
    ) {
        let own = (self.applied.index(), self.incoming.is_received());
        let mut out = outbox!(self, effects);
        self.members.note_newer(now, from, (id, members), own, &mut out);
    }

    fn heartbeat(&mut self, from: NodeId, heartbeat: HeartbeatMsg, effects: &mut Effects) {
        let HeartbeatMsg::Reply(reply) = &heartbeat else {
            return self.agreement.heartbeat(&self.settings, from, heartbeat);
        };
        if reply.ballot.pid != u64::from(from) {
            return effects.trace.push(Trace::Rejected { peer: from, why: "a heartbeat in another's name" });
        }
        if reply.ballot.config_id != self.members.group().id {
            let why = "a heartbeat with a ballot of another configuration";
            return effects.trace.push(Trace::Rejected { peer: from, why });
        }
        self.rounds.answer(from, heartbeat);
    }

    fn paxos(&mut self, now: Now, from: NodeId, message: PaxosMsg<Entry>, effects: &mut Effects) {
        let reject = |why: &'static str, effects: &mut Effects| {
            effects.trace.push(Trace::Rejected { peer: from, why });
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
        // The crate would compare the ballot with those of this configuration.
        if leads_as.is_some_and(|ballot| ballot.config_id != self.members.group().id) {
            return reject("it leads in a ballot of another configuration", effects);
        }
        let log = self.log.borrow();
        let (promise, end, decided) = (log.promise(), log.end(), log.decided());
        let must_transfer = |index| self.transfers.must_transfer(from, index, decided, &log, &self.settings);
        match &message {
            PaxosMsg::Prepare(prepare) if prepare.n >= promise => {
                let asker = self.links.get(from).and_then(|link| link.known());
                let had_another_life = asker.is_some_and(|asker| {
                    self.agreement.has_promised_to_another_life(asker, prepare.n, &self.settings)
                });
                if had_another_life {
                    let body = Body::LedBefore { ballot: prepare.n };
                    return outbox!(self, effects).send_rate_limited(now, from, body);
                }
                if lacks_for(prepare, &log).is_some_and(must_transfer) {
                    drop(log);
                    // The answer would have to contain entries that are cut off here.
                    let why = "it is about to lead and lacks what is cut off here";
                    return self.begin_transfer(now, from, why, effects);
                }
            }
            PaxosMsg::Promise(answer) => {
                if answer.n != promise || promise.pid != u64::from(self.settings.id) {
                    return;
                }
                // Once this replica leads, the crate ignores the entries of a late answer.
                let is_counted = !self.agreement.is_accepting();
                if let Err(why) = check_promise(answer, is_counted, log.accepted(), decided) {
                    return reject(why, effects);
                }
                let continues_from = continues_from(answer, &log);
                if must_transfer(continues_from) {
                    drop(log);
                    return self.begin_transfer(now, from, "it lacks what is cut off here", effects);
                }
                if !self.agreement.agrees(answer, &log) {
                    // The peer repeats it again and again.
                    if self.links.is_first_warning(from) {
                        let why = "it knows more entries to be decided than this replica has taken over: some node's disk \
                                   was put back to an earlier state";
                        reject(why, effects);
                    }
                    return;
                }
                self.transfers.note_continues(from, continues_from, &log, &self.settings);
            }
            // The leader answers a promise that was repeated a second time; the crate ignores that answer, too.
            PaxosMsg::AcceptSync(accept) if accept.n == promise && self.agreement.is_accepting() => return,
            PaxosMsg::AcceptSync(accept) if accept.n == promise => {
                let sync = &accept.log_sync;
                let fits = decided <= sync.sync_idx && sync.sync_idx <= end;
                if !fits || accept.decided_idx > sync.sync_idx + sync.suffix.len() {
                    return reject("it sends entries that do not continue this log", effects);
                }
            }
            PaxosMsg::Accepted(Accepted { n, accepted_idx }) => {
                self.links.accepts(from, (*n, *accepted_idx));
                let accepted = (*n, *accepted_idx);
                drop(log);
                return self.agreement.count_accepted(&self.settings, from, accepted, &self.log);
            }
            PaxosMsg::NotAccepted(refusal) => {
                drop(log);
                self.note_refusal(from, refusal.n, effects);
                return self.agreement.handle(&self.settings, from, message);
            }
            _ => {}
        }
        drop(log);
        self.agreement.handle(&self.settings, from, message);
    }

    /// More records are durable.
    pub(super) fn durable(&mut self, record: u64) {
        let leads_in = self.agreement.leads_in();
        let durable = |log: &Log| leads_in.map(|ballot| log.durable_in(ballot));
        let mut log = self.log.borrow_mut();
        let before = durable(&log);
        log.durable(record);
        let after = durable(&log);
        drop(log);
        if after > before {
            for (peer, accepted) in self.links.accepted() {
                self.agreement.count_accepted(&self.settings, peer, accepted, &self.log);
            }
        }
    }

    /// A peer has promised a higher ballot than this leader's. If the owner of that ballot is lost and a majority's heartbeats
    /// are content with this leader, no election follows, and the peer stays without a leader: so the leader raises its
    /// ballot by itself.
    fn note_refusal(&mut self, from: NodeId, ballot: Ballot, effects: &mut Effects) {
        let Some(own) = self.agreement.leads_in() else { return };
        if self.links.refuses(from, own, ballot) {
            effects.trace.push(Trace::EpochPassed { epoch: u64::from(ballot.n) });
            self.agreement.raise_ballot();
        }
    }

    /// The leader has sent its position. What it sent before has arrived or never will, so a replica that has less starts over
    /// with it. The answer repeats an acknowledgement that may be lost.
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
        let mut out = outbox!(self, effects);
        if promise > ballot {
            return out.send(from, Body::Paxos(PaxosMsg::NotAccepted(NotAccepted { n: promise })));
        }
        let has_all = own_end >= end && own_decided >= decided;
        if !self.agreement.takes_part() {
            return;
        }
        if promise == ballot && !self.agreement.is_accepting() {
            // This replica has sent a promise or a request to prepare already, and the crate will send it again.
        } else if promise < ballot || !has_all {
            self.counters.resyncs += 1;
            self.agreement.start_over_with(from);
        } else {
            let accepted = Accepted { n: ballot, accepted_idx: own_end };
            out.send(from, Body::Paxos(PaxosMsg::Accepted(accepted)));
        }
    }
}

/// From which index on a candidate will need this replica's log, if this replica has more than the candidate.
fn lacks_for(prepare: &Prepare, log: &Log) -> Option<usize> {
    if log.accepted_round() > prepare.n_accepted {
        Some(prepare.decided_idx)
    } else if log.accepted_round() == prepare.n_accepted && log.end() > prepare.accepted_idx {
        Some(prepare.accepted_idx)
    } else {
        None
    }
}

/// From which index on this leader will send its log to a follower: from the follower's end if it has accepted entries in
/// this ballot, otherwise from what it knows to be decided. While promises are counted it is not known yet whose log will
/// be taken over, and so which followers would need less.
fn continues_from(promise: &Promise<Entry>, log: &Log) -> usize {
    match promise.n_accepted == promise.n {
        true => promise.accepted_idx.min(log.end()),
        false => promise.decided_idx,
    }
}

/// Checks that a peer can have given this promise to a replica with this log.
fn check_promise(
    promise: &Promise<Entry>,
    is_counted: bool,
    accepted: (Ballot, usize),
    decided: usize,
) -> Result<(), &'static str> {
    if promise.decided_idx > promise.accepted_idx {
        return Err("it promises more decided than held");
    }
    match &promise.log_sync {
        Some(sync) if is_counted && (sync.sync_idx < decided || sync.sync_idx > accepted.1) => {
            Err("it sends entries that do not continue this log")
        }
        Some(sync) if is_counted && sync.sync_idx + sync.suffix.len() != promise.accepted_idx => {
            Err("it sends other entries than it promises")
        }
        None if is_counted && (promise.n_accepted, promise.accepted_idx) > accepted => {
            Err("it has more than this log, and does not send it")
        }
        _ => Ok(()),
    }
}
