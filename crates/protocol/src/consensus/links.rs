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

use super::group::{Identity, Voter};
use super::message::{Body, Envelope, Message, Stream};
use crate::contract::{Effects, NodeId, Now, Outgoing, Recipient};
use crate::planted::{Fault, Planted};
use omnipaxos::ballot_leader_election::Ballot;

/// What is known of one peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: NodeId,
    /// Who was last heard in its name, in this life of this replica.
    pub(super) known: Option<Identity>,
    /// Who the voter is, as a record says: nobody else is listened to.
    voter: Option<Identity>,
    received: [u64; 2],
    sent: [u64; 2],
    /// The record that the last ordered message waits for: none that is sent later may leave earlier.
    after_record: u64,
    heard_us: u64,
    /// How far it has accepted the log, durably, in which ballot.
    pub(super) accepted: (Ballot, usize),
    /// The newest question to confirm the leader that it answered, and the ballot.
    pub(super) confirmed: (Ballot, u64),
    /// A ballot higher than this leader's that it has promised, and how often it has said so.
    pub(super) refusals: (Ballot, u32),
    /// True when it was told that somebody else speaks in its name.
    pub(super) is_warned: bool,
    /// When it was last told, unasked, something about configurations or lives.
    pub(super) told_us: u64,
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

impl Link {
    pub(super) fn new(peer: NodeId) -> Link {
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

    /// The peer is a voter from now on, or goes on being one: the one that the records know, if they do.
    pub(super) fn bind(&mut self, voter: Option<&Voter>) {
        self.voter = voter.map(|voter| voter.identity);
    }

    /// The peer is no voter any more: whoever speaks for it is it.
    pub(super) fn unbind(&mut self) {
        self.voter = None;
    }

    /// Looks at an envelope from this peer, which is to be opened by the given storage in the given life.
    pub(super) fn arrive(
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

    /// Its node is there: it has as long to speak as if it had.
    pub(super) fn is_there(&mut self, now: Now) {
        self.heard_us = now.monotonic_us;
    }

    /// The link is said to be down: it is silent until it is heard again.
    pub(super) fn is_down(&mut self) {
        self.heard_us = 0;
    }

    /// Sends it a message, not before a record is durable.
    pub(super) fn send(
        &mut self,
        mut envelope: Envelope,
        after_record: u64,
        body: Body<'_>,
        effects: &mut Effects,
    ) {
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
