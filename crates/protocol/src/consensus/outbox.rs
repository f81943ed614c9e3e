//! The outbox: sends a component's messages to peers, once what they state is durable enough.

use super::links::Links;
use super::log::SharedLog;
use super::message::{Body, Stream};
use super::options::Settings;
use super::record::Change;
use crate::contract::{Effects, NodeId, Now, Trace};
use crate::planted::Fault;
use omnipaxos::messages::sequence_paxos::PaxosMsg;

/// The links of a replica in its configuration, and the log that its messages rest on.
pub(super) struct Outbox<'a> {
    pub(super) settings: &'a Settings,
    pub(super) log: &'a SharedLog,
    pub(super) links: &'a mut Links,
    pub(super) configuration: u32,
    /// Whether it leads.
    pub(super) leads: bool,
    pub(super) effects: &'a mut Effects,
}

impl Outbox<'_> {
    /// Sends a message, which leaves when what it rests on is durable.
    ///
    /// A follower's messages rest on all its records; a leader's only on the promise by which it leads, so it may ask others to
    /// accept entries before these are durable on its own disk. Messages that wait keep their order: see [`Links::send`].
    pub(super) fn send(&mut self, to: NodeId, body: Body<'_>) {
        let planted = self.settings.options.planted;
        let life_record = self.links.life_record();
        let log = self.log.borrow();
        let after_record = match &body {
            Body::Paxos(PaxosMsg::Promise(_)) if planted.has(Fault::VotePersistedAfterReply) => 0,
            Body::Paxos(PaxosMsg::Accepted(_)) if planted.has(Fault::AcceptedBeforeDurable) => 0,
            // A future member counts only as far as its position is durable.
            Body::Behind { .. } => log.recorded(),
            body if body.stream() == Stream::Loose => life_record,
            _ if self.leads => life_record.max(log.promise_record()),
            _ => log.recorded(),
        };
        self.links.send(to, self.configuration, after_record, body, self.effects);
    }

    /// Sends a message unless one was sent to this peer in this way within a round.
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

    /// Makes a record: messages that are sent from now on rest on it.
    pub(super) fn record(&mut self, changes: Vec<Change>) {
        self.log.borrow_mut().record(changes);
    }

    /// Reports why a peer's message is rejected.
    pub(super) fn reject(&mut self, peer: NodeId, why: &'static str) {
        self.effects.trace.push(Trace::Rejected { peer, why });
    }
}

/// The outbox of a replica. A macro, so that the replica's other components can be borrowed beside it.
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
    fn a_message_leaves_when_what_it_rests_on_is_durable() {
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
        assert_eq!(after(true, confirm()), Some(life), "it would be of no use if it came late");
        assert_eq!(after(true, accepted()), Some(promise), "a leader sends before its entries are durable");
        assert_eq!(after(false, Body::Behind { index: 0, asks: false }), Some(newest));
        assert_eq!(after(false, accepted()), Some(newest));
        assert_eq!(after(true, accepted()), Some(newest), "it does not overtake what was sent before");
    }

    #[test]
    fn rate_limited_messages_are_sent_once_a_round() {
        let mut peers = Peers::new();
        for ms in [100, 179, 180] {
            peers.out().send_rate_limited(at_ms(ms), 2, accepted());
        }
        assert_eq!(peers.effects.messages.len(), 2);
    }
}
