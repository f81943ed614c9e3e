//! Links: what is known of each peer, and which of its messages are taken.
//!
//! The crate counts every promise that it is shown, overwrites a log by every `AcceptSync` in its phase, and starts
//! over with a follower at every request to prepare. That is right on links that may break but bring nothing twice
//! and nothing late. On others it is not: an `AcceptSync` of before a restart cuts off what was acknowledged since.
//! So every message carries a number, and is dropped unless it is greater than that of the message before; and it
//! names the life of its receiver, and is dropped by any other. What is late, or comes twice, is thus lost, and
//! losses are repaired.
//!
//! A message also carries who sends it ([`Identity`]): the storage that it had when it was first used, how often that
//! was started, and a number drawn at the start. Everybody who hears a voter keeps that as a record. A voter that lost
//! its storage comes back with another one; one whose storage was rolled back begins a life that was begun before, or
//! an earlier one. Neither is listened to: it has forgotten what it promised. The latter is told who was heard, so that
//! it knows and never votes again; it could, started often enough, outgrow the life that is known of it. That ends when
//! the node is removed from the group: added again, it is a new voter, and whoever speaks for it then is it.

use super::group::{Group, Identity, Voter};
use super::message::{Body, Envelope, Message, Stream};
use super::options::Settings;
use crate::contract::{Effects, NodeId, Now, Outgoing, Recipient};
use crate::planted::{Fault, Planted};
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::BTreeMap;

/// No message of a leader is refused more often before it raises its ballot.
const REFUSALS: u32 = 4;

/// Who this replica is to its peers, and what is known of each.
#[derive(Debug)]
pub(super) struct Links {
    identity: Identity,
    /// The record that says so: no message may leave before it. None until this life begins.
    life_record: Option<u64>,
    /// The other voters.
    voters: Vec<Link>,
    /// Others who were heard, or are to be.
    outsiders: Vec<Link>,
}

/// What is known of one peer.
#[derive(Debug)]
pub(super) struct Link {
    peer: NodeId,
    /// Who was last heard in its name, in this life of this replica.
    known: Option<Identity>,
    /// Who the voter is, as a record says: nobody else is listened to.
    voter: Option<Identity>,
    received: [u64; 2],
    sent: [u64; 2],
    /// The record that the last ordered message waits for: none that is sent later may leave earlier.
    after_record: u64,
    heard_us: u64,
    /// How far it has accepted the log, durably, in which ballot.
    accepted: (Ballot, usize),
    /// The newest question to confirm the leader that it answered, and the ballot.
    confirmed: (Ballot, u64),
    /// A ballot higher than this leader's that it has promised, and how often it has said so.
    refusals: (Ballot, u32),
    /// True when it was told that somebody else speaks in its name.
    is_warned: bool,
    /// When it was last told, unasked, something about configurations or lives.
    told_us: u64,
}

/// In which configuration a sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In this replica's, as a voter.
    Voter,
    /// In a newer one: whoever this replica knows as the voter may have been removed since, and another one added in its
    /// name. It is not listened to as a voter.
    Newer,
    /// In an older one, or in none.
    Other,
}

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Take,
    /// The voter was never heard before, or not in this life: who it is is to be recorded first.
    TakeAfterRecord(Identity),
    Drop,
    /// It comes of an older state of a storage that was heard.
    Outlived(Identity),
    Reject(&'static str),
}

impl Links {
    /// `random` names this process, and its storage if that is used for the first time.
    pub(super) fn new(random: u64) -> Links {
        let identity = Identity { storage: random, life: 0, process: random };
        Links { identity, life_record: None, voters: Vec::new(), outsiders: Vec::new() }
    }

    // Who this replica is.

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Which of its lives this is.
    pub(super) fn life(&self) -> u64 {
        self.identity.life
    }

    /// An earlier life, as a record says.
    pub(super) fn had_life(&mut self, storage: u64, life: u64) {
        (self.identity.storage, self.identity.life) = (storage, life);
    }

    /// The next life begins. Returns its number.
    pub(super) fn begin_life(&mut self) -> u64 {
        assert!(!self.is_started(), "a life begins twice");
        self.identity.life += 1;
        self.identity.life
    }

    /// The life is in this record.
    pub(super) fn life_is_recorded(&mut self, record: u64) {
        self.life_record = Some(record);
    }

    /// It has been configured: its records are read, and its life has begun.
    #[inline]
    pub(super) fn is_started(&self) -> bool {
        self.life_record.is_some()
    }

    /// The record that a message waits for which rests on nothing else.
    pub(super) fn life_record(&self) -> u64 {
        self.life_record.unwrap_or_default()
    }

    // Peers.

    /// Meets the voters of a configuration, as they are known, as one of them or not.
    pub(super) fn meet_voters(&mut self, id: NodeId, group: &Group, known: &BTreeMap<NodeId, Voter>) {
        let mut met = std::mem::take(&mut self.voters);
        met.append(&mut self.outsiders);
        for member in group.nodes().into_iter().filter(|member| *member != id) {
            let place = met.iter().position(|link| link.peer == member);
            let mut link = place.map_or_else(|| Link::new(member), |place| met.swap_remove(place));
            link.voter = known.get(&member).map(|voter| voter.identity);
            self.voters.push(link);
        }
        // Whoever speaks for a peer that is no voter any more is it.
        met.iter_mut().for_each(|link| link.voter = None);
        self.outsiders = met;
    }

    /// Whoever is heard for the first time, and is no voter. False when there are too many.
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

    /// How many make a majority with this replica.
    pub(super) fn majority(&self) -> usize {
        self.voters.len().div_ceil(2) + 1
    }

    /// Looks at the envelope of a message.
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

    /// True when nobody was told yet that somebody else speaks in a peer's name.
    pub(super) fn is_first_warning(&mut self, peer: NodeId) -> bool {
        self.get_mut(peer).is_some_and(|link| !std::mem::replace(&mut link.is_warned, true))
    }

    /// True when something of use may be told unasked, once a round at most: it is told then.
    pub(super) fn may_tell(&mut self, now: Now, peer: NodeId, round_ms: u64) -> bool {
        let Some(link) = self.get_mut(peer) else { return false };
        let may_tell = link.told_us == 0 || now.ms_since(link.told_us) >= round_ms;
        if may_tell {
            link.told_us = now.monotonic_us;
        }
        may_tell
    }

    /// Their nodes are there: they have as long to speak as if they had.
    pub(super) fn mark_live(&mut self, now: Now, is_there: impl Fn(NodeId) -> bool) {
        for link in self.voters.iter_mut().filter(|link| is_there(link.peer)) {
            link.heard_us = now.monotonic_us;
        }
    }

    /// The link is said to be down: it is silent until it is heard again.
    pub(super) fn mark_down(&mut self, peer: NodeId) {
        if let Some(link) = self.get_mut(peer) {
            link.heard_us = 0;
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

    // What voters say to their leader.

    /// A follower says how far it has accepted the log.
    pub(super) fn accepts(&mut self, peer: NodeId, accepted: (Ballot, usize)) {
        if let Some(link) = self.get_mut(peer) {
            link.accepted = accepted;
        }
    }

    /// How far each other voter has accepted the log, durably, in which ballot.
    pub(super) fn accepted(&self) -> impl Iterator<Item = (NodeId, (Ballot, usize))> {
        self.voters.iter().map(|link| (link.peer, link.accepted))
    }

    /// How many other voters have accepted so many entries in a ballot.
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

    /// The newest question that a majority has answered: nobody had promised a newer ballot when it was asked.
    pub(super) fn confirmed(&self, ballot: Ballot) -> u64 {
        if self.is_alone() {
            return u64::MAX;
        }
        let answered = |link: &Link| if link.confirmed.0 == ballot { link.confirmed.1 } else { 0 };
        let mut answers: Vec<u64> = self.voters.iter().map(answered).collect();
        answers.sort_unstable_by(|one, other| other.cmp(one));
        answers[self.majority() - 2] // Itself, and this many others.
    }

    /// A follower refuses this leader's ballot for a higher one. True when it has said so often enough.
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

    /// Another leadership begins.
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
            accepted: (Ballot::default(), 0),
            confirmed: (Ballot::default(), 0),
            refusals: (Ballot::default(), 0),
            is_warned: false,
            told_us: 0,
        }
    }

    /// Looks at an envelope from this peer, which is to be opened by the given storage in the given life.
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

    /// True when it was heard within so many milliseconds.
    pub(super) fn is_live(&self, now: Now, silence_ms: u64) -> bool {
        self.heard_us > 0 && now.ms_since(self.heard_us) < silence_ms
    }

    /// Who was last heard in its name, in this life of this replica.
    pub(super) fn known(&self) -> Option<Identity> {
        self.known
    }

    /// How far it has accepted the log, durably, in which ballot.
    pub(super) fn accepted(&self) -> (Ballot, usize) {
        self.accepted
    }

    /// Sends it a message, not before a record is durable.
    fn send(&mut self, mut envelope: Envelope, after_record: u64, body: Body<'_>, effects: &mut Effects) {
        let stream = body.stream();
        let after_record = match stream {
            Stream::Loose => after_record,
            // It could not be taken: its life is not known before it is heard.
            Stream::Ordered if self.known.is_none() => return,
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

    /// What node 1, in its first life, does with a message of node 2.
    fn arrive(links: &mut Links, sender: Identity, number: u64, standing: Standing) -> Arrival {
        let envelope = Envelope { configuration: 1, sender, to_storage: 1, to_life: 1, number };
        let message = Message { envelope, body: Body::SnapshotProgress { transfer: 1, next: 0 } };
        links.arrive(at_ms(5), 2, standing, &settings(1), &message)
    }

    #[test]
    fn what_is_late_or_comes_twice_is_lost() {
        let links = &mut Peers::new().links;
        let sender = identity(2, 1);
        assert_eq!(arrive(links, sender, 2, Standing::Voter), Arrival::Take);
        assert_eq!(arrive(links, sender, 2, Standing::Voter), Arrival::Drop);
        assert_eq!(arrive(links, sender, 1, Standing::Voter), Arrival::Drop);
        links.identity.life = 2;
        assert_eq!(arrive(links, sender, 3, Standing::Voter), Arrival::Drop, "it is for an earlier life");
    }

    #[test]
    fn a_voter_whose_storage_is_not_what_it_was_is_not_listened_to() {
        let links = &mut Peers::new().links;
        let next = identity(2, 2);
        assert_eq!(arrive(links, next, 1, Standing::Voter), Arrival::TakeAfterRecord(next));
        assert_eq!(arrive(links, identity(2, 1), 9, Standing::Voter), Arrival::Outlived(next));
        let twin = Identity { process: 7, ..next };
        assert_eq!(arrive(links, twin, 9, Standing::Voter), Arrival::Outlived(next), "a life begun twice");
        let wiped = identity(9, 1);
        assert!(matches!(arrive(links, wiped, 9, Standing::Voter), Arrival::Reject(_)));
        // In a newer configuration it may be another voter; and one that is no voter any more is whoever speaks for it.
        assert_eq!(arrive(links, wiped, 9, Standing::Newer), Arrival::Take);
        links.meet_voters(1, &Group::first(2, &[1, 3]), &BTreeMap::new());
        assert_eq!(arrive(links, identity(8, 1), 1, Standing::Other), Arrival::Take);
    }

    #[test]
    fn a_majority_confirms_a_question() {
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
    fn only_a_ballot_that_is_refused_again_and_again_is_raised() {
        let links = &mut Peers::new().links;
        let (own, higher) = (Ballot::with(1, 2, 0, 1), Ballot::with(1, 3, 0, 3));
        let mut refuses = |times: u32| (0..times).map(|_| links.refuses(2, own, higher)).collect::<Vec<_>>();
        assert_eq!(refuses(4), [false, false, false, true]);
        assert_eq!(refuses(3), [false; 3]);
        links.forget_refusals();
        assert!(!links.refuses(2, own, higher), "another leadership is not to blame");
    }
}
