//! Links: what is known of each peer, and which of its messages are taken.
//!
//! The crate counts every promise that it is shown, overwrites a log by every `AcceptSync` in its phase, and starts
//! over with a follower at every request to prepare. That is right on links that may break but bring nothing twice
//! and nothing late. On others it is not: an `AcceptSync` of before a restart cuts off what was acknowledged since.
//! So every message carries a number, and is dropped unless it is greater than that of the message before; and it
//! names the life of its receiver, and is dropped by any other. What is late, or comes twice, is thus lost, and
//! losses are repaired.
//!
//! A message also carries who sends it: the identity that its storage got when it was first used, kept as a record
//! by everybody who ever heard it. A node that lost its storage comes back as somebody else and is not listened to:
//! it has forgotten what it promised.

use super::message::{Body, Envelope, Message, Stream};
use crate::contract::{Effects, NodeId, Now};
use crate::planted::{Fault, Planted};
use omnipaxos::ballot_leader_election::Ballot;

/// What is known of one peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: NodeId,
    /// Who it is; none before it was first heard.
    pub(super) identity: Option<u64>,
    /// Its newest life that was heard.
    life: u64,
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
}

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Take,
    /// The sender was never heard before: its identity is to be recorded first.
    TakeAfterRecord,
    Drop,
    Reject(&'static str),
}

impl Link {
    pub(super) fn new(peer: NodeId, identity: Option<u64>) -> Link {
        Link {
            peer,
            identity,
            life: 0,
            received: [0; 2],
            sent: [0; 2],
            after_record: 0,
            heard_us: 0,
            accepted: (Ballot::default(), 0),
            confirmed: (Ballot::default(), 0),
            refusals: (Ballot::default(), 0),
            is_warned: false,
        }
    }

    /// Looks at an envelope from this peer, which is to be opened by the given identity in the given life.
    pub(super) fn arrive(
        &mut self,
        now: Now,
        own: (u64, u64),
        planted: Planted,
        message: &Message<'_>,
    ) -> Arrival {
        let Envelope { identity, life, to_identity, to_life, number, .. } = message.envelope;
        let is_new = match self.identity {
            Some(known) if known != identity && !planted.has(Fault::WipedVoterVotes) => {
                return Arrival::Reject("it has not the storage that it had: what it promised is forgotten");
            }
            known => known.is_none(),
        };
        if life < self.life {
            return Arrival::Drop;
        }
        if life > self.life {
            self.life = life;
            self.received = [0; 2];
        }
        let stream = message.body.stream();
        if stream == Stream::Ordered && (to_identity, to_life) != own
            || number <= self.received[stream as usize]
        {
            return Arrival::Drop;
        }
        self.received[stream as usize] = number;
        self.heard_us = now.monotonic_us;
        self.identity = Some(identity);
        if is_new { Arrival::TakeAfterRecord } else { Arrival::Take }
    }

    /// True when it was heard within so many milliseconds.
    pub(super) fn is_live(&self, now: Now, silence_ms: u64) -> bool {
        self.heard_us > 0 && now.ms_since(self.heard_us) < silence_ms
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
            Stream::Ordered if self.life == 0 => return,
            Stream::Ordered => {
                self.after_record = self.after_record.max(after_record);
                self.after_record
            }
        };
        self.sent[stream as usize] += 1;
        envelope.to_identity = self.identity.unwrap_or_default();
        envelope.to_life = self.life;
        envelope.number = self.sent[stream as usize];
        let message = Message { envelope, body };
        effects.send_after(after_record, [self.peer], |out| message.encode(out));
    }
}
