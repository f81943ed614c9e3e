//! Where a component's messages go: to its peers, when what they say may be known.

use super::links::Links;
use super::log::SharedLog;
use super::message::{Body, Stream};
use super::options::Settings;
use super::record::Change;
use crate::contract::{Effects, NodeId, Now, Trace};
use crate::planted::Fault;
use omnipaxos::messages::sequence_paxos::PaxosMsg;

/// The links of a replica in its configuration, and what its messages rest on.
pub(super) struct Outbox<'a> {
    pub(super) settings: &'a Settings,
    pub(super) log: &'a SharedLog,
    pub(super) links: &'a mut Links,
    pub(super) configuration: u32,
    /// It leads.
    pub(super) leads: bool,
    pub(super) effects: &'a mut Effects,
}

impl Outbox<'_> {
    /// Sends a message when what it says may be known.
    ///
    /// A follower's words rest on all its records; a leader's on the promise by which it leads, and what it asks others
    /// to accept it may say before it has it safe itself. What waits keeps its place: see [`Links::send`].
    pub(super) fn send(&mut self, to: NodeId, body: Body<'_>) {
        let planted = self.settings.options.planted;
        let life_record = self.links.life_record();
        let log = self.log.borrow();
        let after_record = match &body {
            Body::Paxos(PaxosMsg::Promise(_)) if planted.has(Fault::VotePersistedAfterReply) => 0,
            Body::Paxos(PaxosMsg::Accepted(_)) if planted.has(Fault::AcceptedBeforeDurable) => 0,
            // A newcomer is counted on as far as it cannot forget.
            Body::Behind { .. } => log.recorded(),
            body if body.stream() == Stream::Loose => life_record,
            _ if self.leads => life_record.max(log.promise_record()),
            _ => log.recorded(),
        };
        self.links.send(to, self.configuration, after_record, body, self.effects);
    }

    /// Sends what is of use once a round, at most.
    pub(super) fn send_rate_limited(&mut self, now: Now, to: NodeId, body: Body<'_>) {
        if self.links.may_notify(now, to, self.settings.timing.heartbeat_ms) {
            self.send(to, body);
        }
    }

    /// The other voters.
    pub(super) fn peers(&self) -> Vec<NodeId> {
        self.links.peers().collect()
    }

    /// The end of the log, and how much of it is decided.
    pub(super) fn log_end(&self) -> (u64, u64) {
        let log = self.log.borrow();
        (log.end() as u64, log.decided() as u64)
    }

    /// Makes a record: what is said from now on rests on it.
    pub(super) fn record(&mut self, changes: Vec<Change>) {
        self.log.borrow_mut().record(changes);
    }

    /// Reports why a peer is not believed.
    pub(super) fn reject(&mut self, peer: NodeId, why: &'static str) {
        self.effects.trace.push(Trace::Rejected { peer, why });
    }
}

/// The outbox of a replica. A macro, so that its other components can be used beside it.
macro_rules! outbox {
    ($replica:expr, $effects:expr) => {
        Outbox {
            settings: &$replica.settings,
            log: &$replica.log,
            configuration: $replica.members.group().id,
            leads: $replica.agreement.leads(),
            links: &mut $replica.links,
            effects: $effects,
        }
    };
}
pub(super) use outbox;

#[cfg(test)]
mod tests {
    use super::super::kit::{Peers, at_ms};
    use super::*;
    use omnipaxos::ballot_leader_election::Ballot;
    use omnipaxos::messages::sequence_paxos::Accepted;

    fn accepted<'a>() -> Body<'a> {
        Body::Paxos(PaxosMsg::Accepted(Accepted { n: Ballot::default(), accepted_idx: 1 }))
    }

    #[test]
    fn what_a_message_rests_on_is_durable_before_it_leaves() {
        let mut peers = Peers::new();
        let promise = peers.log.borrow_mut().record(vec![Change::Promise(Ballot::default())]);
        let newest = peers.log.borrow_mut().record(Vec::new());
        let life = peers.links.life_record();
        assert!(life < promise + 1 && promise < newest);
        let mut after = |leads: bool, body: Body<'_>| {
            let mut out = Outbox { leads, ..peers.out() };
            out.send(2, body);
            peers.effects.messages.pop().map(|message| message.after_record)
        };
        let confirm = || Body::Confirm { ballot: Ballot::default(), number: 1 };
        assert_eq!(after(true, confirm()), Some(life), "it is lost if it comes late");
        assert_eq!(after(true, accepted()), Some(promise), "a leader speaks before its entries are durable");
        assert_eq!(after(false, Body::Behind { index: 0, asks: false }), Some(newest));
        assert_eq!(after(false, accepted()), Some(newest));
        assert_eq!(after(true, accepted()), Some(newest), "it does not overtake what was sent before");
    }

    #[test]
    fn what_is_sent_unasked_is_sent_once_a_round() {
        let mut peers = Peers::new();
        for ms in [100, 179, 180] {
            peers.out().send_rate_limited(at_ms(ms), 2, accepted());
        }
        assert_eq!(peers.effects.messages.len(), 2);
    }
}
