//! Links: what is known of each peer, and which of its messages are accepted.
//!
//! The crate counts every promise that it gets, overwrites a log by every `AcceptSync` in its phase, and starts over with
//! a follower at every request to prepare. That is correct on links that may break but deliver nothing twice and nothing
//! late. On other links it is not: an `AcceptSync` from before a restart cuts off what was acknowledged since. So every
//! message carries a number, and is dropped unless that is greater than the number of the message before; and it names the
//! incarnation of its receiver, and any other incarnation drops it. A late or repeated message is thus lost, and losses
//! are repaired.
//!
//! A message also carries its sender's [`Identity`]: its storage, which was named when it was first used, how often that
//! storage was started, and a number drawn at the start. Every replica that gets a message from a voter records that
//! identity. A voter that lost its storage returns with another one; one whose storage was rolled back begins an
//! incarnation that was begun before, or an earlier one. Messages of either are ignored: it has forgotten what it promised.
//! A rolled-back voter is sent the identity that is known of it, so that it never votes again; otherwise, if started often
//! enough, it could outgrow the known incarnation. That ends when the node is removed from the group: added again, it is a
//! new voter, and its identity is that of the first sender that speaks for it.

use super::group::{Group, Identity, Voter};
use super::message::{Body, Envelope, Message, Stream};
use super::options::Settings;
use crate::contract::{Effects, NodeId, Now, Outgoing, Recipient};
use crate::planted::{Fault, Planted};
use crate::vouch::Vouch;
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::BTreeMap;

/// How often a peer refuses a leader's ballot before the leader raises it.
const REFUSALS: u32 = 4;

/// This replica's identity, and what is known of each peer.
#[derive(Debug)]
pub(super) struct Links {
    identity: Identity,
    /// The record of the identity: no message may leave before it is durable. `None` until this incarnation begins.
    life_record: Option<u64>,
    /// The other voters.
    voters: Vec<Link>,
    /// Peers that are no voters, and that have sent messages or will be sent some.
    outsiders: Vec<Link>,
}

/// What is known of one peer.
#[derive(Debug)]
pub(super) struct Link {
    peer: NodeId,
    /// The identity of the last sender in its name, in this incarnation of this replica.
    known: Option<Identity>,
    /// The voter's recorded identity: messages with any other are ignored.
    voter: Option<Identity>,
    /// The number of the last message that was accepted, by stream.
    received: [u64; 2],
    /// The number of the last message that was sent, by stream.
    sent: [u64; 2],
    /// The record that the last ordered message waits for: no later one may leave earlier.
    after_record: u64,
    /// When its last message was accepted; 0 if its link has gone down since.
    heard_us: u64,
    /// The newest vouch of its node.
    vouch: Vouch,
    /// How much of the log it has accepted, durably, in which ballot.
    accepted: (Ballot, usize),
    /// The newest question to confirm the leader that it answered, and the ballot.
    confirmed: (Ballot, u64),
    /// A ballot higher than this leader's that it has promised, and how often it has reported it.
    refusals: (Ballot, u32),
    /// An ordered message was meant for it, and was not sent, since its incarnation was not known yet.
    is_owed: bool,
    /// True when another identity that sends in its name has been reported.
    is_warned: bool,
    /// When a rate-limited message was last sent to it.
    notified_us: u64,
}

/// Which configuration a sender is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In this replica's, as a voter.
    Voter,
    /// In a newer one: the voter that this replica knows may have been removed since, and another one added in its name.
    /// The sender is not treated as that voter.
    Newer,
    /// In an older one, or in none.
    Other,
}

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Take,
    /// It is the voter's first message, or the first of its incarnation: its identity must be recorded first.
    TakeAfterRecord(Identity),
    Drop,
    /// It comes from an older state of a storage whose later identity is known, which this is.
    Outlived(Identity),
    Reject(&'static str),
}

impl Links {
    /// `random` names this process, and its storage if that is used for the first time.
    pub(super) fn new(random: u64) -> Links {
        let identity = Identity { storage: random, life: 0, process: random };
        Links { identity, life_record: None, voters: Vec::new(), outsiders: Vec::new() }
    }

    // This replica's identity.

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether an ordered message was not sent to a peer that is known now. Returns this once.
    #[inline]
    pub(super) fn ends_owing(&mut self, peer: NodeId) -> bool {
        let link = self.voters.iter_mut().find(|link| link.peer == peer);
        link.is_some_and(|link| link.known.is_some() && std::mem::take(&mut link.is_owed))
    }

    /// The number of this incarnation.
    pub(super) fn life(&self) -> u64 {
        self.identity.life
    }

    /// Replays the record of an earlier incarnation.
    pub(super) fn restore_life(&mut self, storage: u64, life: u64) {
        (self.identity.storage, self.identity.life) = (storage, life);
    }

    /// Begins the next incarnation. Returns its number.
    pub(super) fn begin_life(&mut self) -> u64 {
        assert!(!self.is_started(), "an incarnation begins twice");
        self.identity.life += 1;
        self.identity.life
    }

    /// The incarnation is in this record.
    pub(super) fn note_life_record(&mut self, record: u64) {
        self.life_record = Some(record);
    }

    /// Whether it has been configured: its records are read, and its incarnation has begun.
    #[inline]
    pub(super) fn is_started(&self) -> bool {
        self.life_record.is_some()
    }

    /// The record of the incarnation: a message that rests on nothing else waits for it.
    pub(super) fn life_record(&self) -> u64 {
        self.life_record.unwrap_or_default()
    }

    // Peers.

    /// Takes the voters of a configuration, with their known identities, whether or not this replica is one of them.
    pub(super) fn meet_voters(&mut self, id: NodeId, group: &Group, known: &BTreeMap<NodeId, Voter>) {
        let mut met = std::mem::take(&mut self.voters);
        met.append(&mut self.outsiders);
        for member in group.nodes().into_iter().filter(|member| *member != id) {
            let place = met.iter().position(|link| link.peer == member);
            let mut link = place.map_or_else(|| Link::new(member), |place| met.swap_remove(place));
            link.voter = known.get(&member).map(|voter| voter.identity);
            self.voters.push(link);
        }
        // A peer that is no longer a voter may have any identity.
        met.iter_mut().for_each(|link| link.voter = None);
        self.outsiders = met;
    }

    /// Adds a peer that is no voter, if it is new. False when there are too many.
    pub(super) fn meet(&mut self, peer: NodeId) -> bool {
        const OUTSIDERS_MAX: usize = 64;
        if self.get(peer).is_none() {
            if self.outsiders.len() >= OUTSIDERS_MAX {
                return false;
            }
            self.outsiders.push(Link::new(peer));
        }
        true
    }

    pub(super) fn get(&self, peer: NodeId) -> Option<&Link> {
        self.voters.iter().chain(&self.outsiders).find(|link| link.peer == peer)
    }

    fn get_mut(&mut self, peer: NodeId) -> Option<&mut Link> {
        self.voters.iter_mut().chain(&mut self.outsiders).find(|link| link.peer == peer)
    }

    /// The other voters.
    pub(super) fn peers(&self) -> impl Iterator<Item = NodeId> + Clone {
        self.voters.iter().map(|link| link.peer)
    }

    pub(super) fn outsiders(&self) -> impl Iterator<Item = NodeId> {
        self.outsiders.iter().map(|link| link.peer)
    }

    /// True when there are no other voters.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.voters.is_empty()
    }

    /// How many voters are a majority, this replica included.
    pub(super) fn majority(&self) -> usize {
        self.voters.len().div_ceil(2) + 1
    }

    /// Checks the envelope of a message.
    pub(super) fn arrive(
        &mut self,
        now: Now,
        from: NodeId,
        standing: Standing,
        settings: &Settings,
        message: &Message<'_>,
    ) -> Arrival {
        let own = (self.identity.storage, self.identity.life);
        let planted = settings.options.planted;
        match self.get_mut(from) {
            Some(link) => link.arrive(now, own, standing, planted, message),
            None => Arrival::Drop,
        }
    }

    /// True only the first time: that a peer's storage is another one, or an older state of it, is reported once.
    pub(super) fn is_first_warning(&mut self, peer: NodeId) -> bool {
        self.get_mut(peer).is_some_and(|link| !std::mem::replace(&mut link.is_warned, true))
    }

    /// Whether a rate-limited message may be sent to a peer now: one a round at most. If so, the caller sends it.
    pub(super) fn may_notify(&mut self, now: Now, peer: NodeId, round_ms: u64) -> bool {
        let Some(link) = self.get_mut(peer) else { return false };
        let may_notify = link.notified_us == 0 || now.ms_since(link.notified_us) >= round_ms;
        if may_notify {
            link.notified_us = now.monotonic_us;
        }
        may_notify
    }

    /// The nodes of these voters are reached: they count as live for as long as if a message of theirs had just come.
    pub(super) fn mark_live(&mut self, now: Now, is_there: impl Fn(NodeId) -> bool) {
        for link in self.voters.iter_mut().filter(|link| is_there(link.peer)) {
            link.heard_us = now.monotonic_us;
        }
    }

    /// The link is reported down: the peer is not live until its next message.
    pub(super) fn mark_down(&mut self, peer: NodeId) {
        if let Some(link) = self.get_mut(peer) {
            link.heard_us = 0;
        }
    }

    /// A peer's node vouches for itself.
    pub(super) fn vouched(&mut self, peer: NodeId, vouch: Vouch) {
        if let Some(link) = self.get_mut(peer) {
            link.vouch = vouch;
        }
    }

    /// Sends a message with its envelope, not before a record is durable.
    pub(super) fn send(
        &mut self,
        to: NodeId,
        configuration: u32,
        after_record: u64,
        body: Body<'_>,
        effects: &mut Effects,
    ) {
        let envelope = Envelope { configuration, sender: self.identity, ..Envelope::default() };
        if let Some(link) = self.get_mut(to) {
            link.send(envelope, after_record, body, effects);
        }
    }

    // What voters report to their leader.

    /// A follower reports how much of the log it has accepted.
    pub(super) fn accepts(&mut self, peer: NodeId, accepted: (Ballot, usize)) {
        if let Some(link) = self.get_mut(peer) {
            link.accepted = accepted;
        }
    }

    /// How much of the log each other voter has accepted, durably, in which ballot.
    pub(super) fn accepted(&self) -> impl Iterator<Item = (NodeId, (Ballot, usize))> {
        self.voters.iter().map(|link| (link.peer, link.accepted))
    }

    /// How many other voters have accepted at least this many entries in a ballot.
    pub(super) fn accepted_by(&self, ballot: Ballot, index: usize) -> usize {
        let holds = |link: &&Link| link.accepted.0 == ballot && link.accepted.1 >= index;
        self.voters.iter().filter(holds).count()
    }

    /// A follower answers a question to confirm the leader.
    pub(super) fn confirms(&mut self, peer: NodeId, confirmed: (Ballot, u64)) {
        if let Some(link) = self.get_mut(peer) {
            link.confirmed = confirmed;
        }
    }

    /// The newest question that a majority has answered: none of them had promised a newer ballot when it was asked.
    pub(super) fn confirmed(&self, ballot: Ballot) -> u64 {
        if self.is_alone() {
            return u64::MAX;
        }
        let answered = |link: &Link| if link.confirmed.0 == ballot { link.confirmed.1 } else { 0 };
        let mut answers: Vec<u64> = self.voters.iter().map(answered).collect();
        answers.sort_unstable_by(|one, other| other.cmp(one));
        answers[self.majority() - 2] // Itself, and this many others.
    }

    /// A follower refuses this leader's ballot for a higher one. True when it has done so often enough.
    pub(super) fn refuses(&mut self, peer: NodeId, own: Ballot, higher: Ballot) -> bool {
        let Some(link) = self.get_mut(peer) else { return false };
        let times = if link.refusals.0 == higher { link.refusals.1 + 1 } else { 1 };
        link.refusals = (higher, times);
        let is_enough = higher > own && times >= REFUSALS;
        if is_enough {
            link.refusals = (Ballot::default(), 0);
        }
        is_enough
    }

    /// Another leadership begins: refusals of the previous one do not count.
    pub(super) fn forget_refusals(&mut self) {
        for link in &mut self.voters {
            link.refusals = (Ballot::default(), 0);
        }
    }
}

impl Link {
    fn new(peer: NodeId) -> Link {
        Link {
            peer,
            known: None,
            voter: None,
            received: [0; 2],
            sent: [0; 2],
            after_record: 0,
            heard_us: 0,
            vouch: Vouch::default(),
            accepted: (Ballot::default(), 0),
            confirmed: (Ballot::default(), 0),
            refusals: (Ballot::default(), 0),
            is_owed: false,
            is_warned: false,
            notified_us: 0,
        }
    }

    /// Checks an envelope from this peer, which arrives at the given storage in the given incarnation.
    fn arrive(
        &mut self,
        now: Now,
        own: (u64, u64),
        standing: Standing,
        planted: Planted,
        message: &Message<'_>,
    ) -> Arrival {
        let Envelope { sender, to_storage, to_life, number, .. } = message.envelope;
        if let Some(voter) = self.voter.filter(|_| standing != Standing::Newer) {
            if voter.storage != sender.storage && !planted.has(Fault::WipedVoterVotes) {
                return Arrival::Reject("it has not the storage that it had: what it promised is forgotten");
            }
            if sender.is_outlived_by(&voter) && !planted.has(Fault::RolledBackVoterVotes) {
                return Arrival::Outlived(voter);
            }
        }
        if self.known != Some(sender) {
            self.known = Some(sender);
            self.received = [0; 2];
        }
        let stream = message.body.stream();
        if stream == Stream::Ordered && (to_storage, to_life) != own
            || number <= self.received[stream as usize]
        {
            return Arrival::Drop;
        }
        self.received[stream as usize] = number;
        self.heard_us = now.monotonic_us;
        if standing != Standing::Voter || self.voter == Some(sender) {
            return Arrival::Take;
        }
        self.voter = Some(sender);
        Arrival::TakeAfterRecord(sender)
    }

    /// True when a message of its came within this many milliseconds, or its node is alive and busy.
    pub(super) fn is_live(&self, now: Now, silence_ms: u64) -> bool {
        let is_heard = now.ms_since(self.heard_us) < silence_ms || self.vouch.excuses(now, self.heard_us);
        self.heard_us > 0 && is_heard
    }

    /// Whether its node is alive and busy, and so need not have sent anything since `since_us`.
    pub(super) fn is_excused(&self, now: Now, since_us: u64) -> bool {
        self.vouch.excuses(now, since_us)
    }

    /// The identity of the last sender in its name, in this incarnation of this replica.
    pub(super) fn known(&self) -> Option<Identity> {
        self.known
    }

    /// How much of the log it has accepted, durably, in which ballot.
    pub(super) fn accepted(&self) -> (Ballot, usize) {
        self.accepted
    }

    /// Sends the peer a message, not before a record is durable.
    fn send(&mut self, mut envelope: Envelope, after_record: u64, body: Body<'_>, effects: &mut Effects) {
        let stream = body.stream();
        let after_record = match stream {
            Stream::Loose => after_record,
            // The peer would drop it: its incarnation is not known before its first message.
            Stream::Ordered if self.known.is_none() => return self.is_owed = true,
            Stream::Ordered => {
                self.after_record = self.after_record.max(after_record);
                self.after_record
            }
        };
        self.sent[stream as usize] += 1;
        let known = self.known.unwrap_or_default();
        (envelope.to_storage, envelope.to_life) = (known.storage, known.life);
        envelope.number = self.sent[stream as usize];
        let message = Message { envelope, body };
        let bytes = effects.encode(|out| message.encode_parts(out));
        let recipient = Recipient::Replica;
        effects.messages.push(Outgoing { to: self.peer, bytes, after_record, recipient });
    }
}

#[cfg(test)]
mod tests {
    use super::super::kit::{Peers, at_ms, identity, settings};
    use super::super::message::Body;
    use super::*;

    /// What node 1, in its first incarnation, does with a message of node 2.
    fn arrive(links: &mut Links, sender: Identity, number: u64, standing: Standing) -> Arrival {
        let envelope = Envelope { configuration: 1, sender, to_storage: 1, to_life: 1, number };
        let message = Message { envelope, body: Body::SnapshotProgress { transfer: 1, next: 0 } };
        links.arrive(at_ms(5), 2, standing, &settings(1), &message)
    }

    #[test]
    fn late_and_repeated_messages_are_dropped() {
        let links = &mut Peers::new().links;
        let sender = identity(2, 1);
        assert_eq!(arrive(links, sender, 2, Standing::Voter), Arrival::Take);
        assert_eq!(arrive(links, sender, 2, Standing::Voter), Arrival::Drop);
        assert_eq!(arrive(links, sender, 1, Standing::Voter), Arrival::Drop);
        links.identity.life = 2;
        assert_eq!(
            arrive(links, sender, 3, Standing::Voter),
            Arrival::Drop,
            "it is for an earlier incarnation"
        );
    }

    #[test]
    fn a_voter_with_a_lost_or_rolled_back_storage_is_ignored() {
        let links = &mut Peers::new().links;
        let next = identity(2, 2);
        assert_eq!(arrive(links, next, 1, Standing::Voter), Arrival::TakeAfterRecord(next));
        assert_eq!(arrive(links, identity(2, 1), 9, Standing::Voter), Arrival::Outlived(next));
        let twin = Identity { process: 7, ..next };
        assert_eq!(
            arrive(links, twin, 9, Standing::Voter),
            Arrival::Outlived(next),
            "an incarnation begun twice"
        );
        let wiped = identity(9, 1);
        assert!(matches!(arrive(links, wiped, 9, Standing::Voter), Arrival::Reject(_)));
        // In a newer configuration it may be another voter; and a peer that is no longer a voter may have any identity.
        assert_eq!(arrive(links, wiped, 9, Standing::Newer), Arrival::Take);
        links.meet_voters(1, &Group::first(2, &[1, 3]), &BTreeMap::new());
        assert_eq!(arrive(links, identity(8, 1), 1, Standing::Other), Arrival::Take);
    }

    #[test]
    fn a_question_is_confirmed_by_a_majority() {
        let mut links = Links::new(1);
        assert_eq!((links.majority(), links.confirmed(Ballot::default())), (1, u64::MAX));
        for (members, majority) in [(2, 2), (3, 2), (4, 3), (5, 3)] {
            let nodes: Vec<NodeId> = (1..=members).collect();
            links.meet_voters(1, &Group::first(1, &nodes), &BTreeMap::new());
            assert_eq!(links.majority(), majority, "of {members}");
        }
        let (ballot, older) = (Ballot::with(1, 2, 0, 1), Ballot::with(1, 1, 0, 1));
        links.confirms(2, (ballot, 5));
        links.confirms(3, (older, 9));
        assert_eq!(links.confirmed(ballot), 0, "itself and one other are no majority of five");
        links.confirms(4, (ballot, 3));
        assert_eq!(links.confirmed(ballot), 3);
    }

    #[test]
    fn a_ballot_is_raised_only_after_repeated_refusals() {
        let links = &mut Peers::new().links;
        let (own, higher) = (Ballot::with(1, 2, 0, 1), Ballot::with(1, 3, 0, 3));
        let mut refuses = |times: u32| (0..times).map(|_| links.refuses(2, own, higher)).collect::<Vec<_>>();
        assert_eq!(refuses(4), [false, false, false, true]);
        assert_eq!(refuses(3), [false; 3]);
        links.forget_refusals();
        assert!(!links.refuses(2, own, higher), "refusals of an earlier leadership do not count");
    }
}
