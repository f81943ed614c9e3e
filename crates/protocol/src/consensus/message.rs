//! Messages between replicas: the crate's, in our own encoding, and ours.
//!
//! The crate assumes links that lose a message only together with everything after it, and never deliver one twice, late
//! or after a restart. [`Envelope`] makes such links of any network: see `links`. The crate's kinds of message that no
//! replica sends here have no encoding: forwarded proposals, compaction, its stop-signs.

use super::entry::Entry;
use super::group::{Identity, Voter, put_nodes, put_voters, take_nodes, take_voters};
use super::record::{
    INDEX_MAX, Moment, put_ballot, put_entries, put_entries_but_last, put_moment, take_ballot, take_entries,
    take_moment,
};
use crate::contract::NodeId;
use kv::codec::{Malformed, Reader, Writer};
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::{HeartbeatMsg, HeartbeatReply, HeartbeatRequest};
use omnipaxos::messages::sequence_paxos::{
    AcceptDecide, AcceptSync, Accepted, Decide, NotAccepted, PaxosMsg, Prepare, PrepareReq, Promise,
};
use omnipaxos::util::{LogSync, SequenceNumber};
use std::sync::Arc;

/// The header of every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The configuration of the group that the sender is in; 0 when it is in none yet.
    pub configuration: u32,
    /// The sender's identity.
    pub sender: Identity,
    /// The receiver's storage, as known to the sender; 0 when it does not know it.
    pub to_storage: u64,
    /// The receiver's incarnation, as known to the sender; 0 when it does not know it.
    pub to_life: u64,
    /// The message's number among those of its stream from this incarnation of the sender to this receiver.
    pub number: u64,
}

/// A message. The text in brackets names the sender.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// Heartbeats, which elect the leader (all voters).
    Heartbeat(HeartbeatMsg),
    /// Sequence Paxos: promises and entries.
    Paxos(PaxosMsg<Entry>),
    /// The leader's position; a follower that has less has lost a message (leader).
    Position {
        /// The leader's ballot.
        ballot: Ballot,
        /// The end of its log.
        end: u64,
        /// How much of it is decided.
        decided: u64,
    },
    /// Asks whether the sender still leads (leader, `lease = off`).
    Confirm {
        /// The leader's ballot.
        ballot: Ballot,
        /// The question's number.
        number: u64,
    },
    /// It does: this follower has promised nothing newer (follower).
    Confirmed {
        /// The question's ballot.
        ballot: Ballot,
        /// The question's number.
        number: u64,
    },
    /// The receiver lacks entries that the sender has cut off: a snapshot of the sender's table follows (any replica that
    /// has more).
    SnapshotBegin {
        /// Unique among all transfers of the sender's incarnation.
        transfer: u64,
        /// The moment of the snapshot.
        moment: Moment,
    },
    /// A part of the snapshot.
    SnapshotChunk {
        /// The transfer.
        transfer: u64,
        /// The part's number, from 0.
        index: u32,
        /// Entries of the table.
        chunk: &'a [u8],
    },
    /// The snapshot is complete; and this is what the sender had accepted after it.
    SnapshotEnd {
        /// The transfer.
        transfer: u64,
        /// The number of parts.
        chunks: u32,
        /// The ballot in which the sender had accepted its log.
        round: Ballot,
        /// The log after the moment of the snapshot.
        rest: Vec<Entry>,
        /// The voters' identities, as far as the sender knows them, its own included.
        voters: Vec<Voter>,
    },
    /// The receiver has all parts before this one (receiver). `u32::MAX`: the snapshot is installed, or not needed.
    SnapshotProgress {
        /// The transfer.
        transfer: u64,
        /// The first part that is missing.
        next: u32,
    },
    /// The sender lacks what others have (a replica that will be a member, or that knows of a configuration newer than its
    /// own).
    Behind {
        /// How many entries are applied at the sender.
        index: u64,
        /// The receiver is requested to help.
        asks: bool,
    },
    /// These entries of the receiver's configuration are decided (any replica that has them).
    Decided {
        /// The receiver's configuration.
        configuration: u32,
        /// The index of the first entry.
        from: u64,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// The receiver's configuration has ended; these are the members of the sender's (to a replica that sent a message in an
    /// older one).
    Newer {
        /// The members.
        members: Vec<NodeId>,
    },
    /// The sender knows a later identity of the receiver's storage, so the receiver has an older state of it (to a replica
    /// that returned with one).
    Outlived {
        /// The later identity, and the member that had it.
        voter: Voter,
    },
    /// The sender has promised this ballot to an earlier incarnation of the receiver, so the receiver's storage has forgotten
    /// that it led (to a replica that asks for the promise again).
    LedBefore {
        /// The ballot.
        ballot: Ballot,
    },
    /// The sender has led in this ballot, and neither appends nor answers reads in it any more: the receiver, which has
    /// accepted all of its log, may lead (leader).
    HandOver {
        /// The ballot.
        ballot: Ballot,
    },
}

/// An envelope and its content.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// The envelope.
    pub envelope: Envelope,
    /// The message.
    pub body: Body<'a>,
}

/// Messages of one stream are accepted in the order of their numbers, each once. The streams are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Messages that depend on nothing that was sent before.
    Loose = 0,
    /// Messages of the crate and of transfers: accepted only by the incarnation that they were meant for.
    Ordered = 1,
}

const HEARTBEAT_REQUEST: u8 = 1;
const HEARTBEAT_REPLY: u8 = 2;
const PREPARE_REQUEST: u8 = 3;
const PREPARE: u8 = 4;
const PROMISE: u8 = 5;
const ACCEPT_SYNC: u8 = 6;
const ACCEPT_DECIDE: u8 = 7;
const ACCEPTED: u8 = 8;
const NOT_ACCEPTED: u8 = 9;
const DECIDE: u8 = 10;
const POSITION: u8 = 11;
const CONFIRM: u8 = 12;
const CONFIRMED: u8 = 13;
const SNAPSHOT_BEGIN: u8 = 14;
const SNAPSHOT_CHUNK: u8 = 15;
const SNAPSHOT_END: u8 = 16;
const SNAPSHOT_PROGRESS: u8 = 17;
const BEHIND: u8 = 18;
const DECIDED: u8 = 19;
const NEWER: u8 = 20;
const OUTLIVED: u8 = 21;
const LED_BEFORE: u8 = 22;
const HAND_OVER: u8 = 23;

impl<'a> Body<'a> {
    pub(super) fn stream(&self) -> Stream {
        match self {
            Body::Heartbeat(_) | Body::Confirm { .. } | Body::Confirmed { .. } => Stream::Loose,
            // Facts, and requests for facts.
            Body::Behind { .. }
            | Body::Decided { .. }
            | Body::Newer { .. }
            | Body::Outlived { .. }
            | Body::LedBefore { .. } => Stream::Loose,
            Body::Paxos(_)
            | Body::Position { .. }
            | Body::SnapshotBegin { .. }
            | Body::SnapshotChunk { .. }
            | Body::SnapshotEnd { .. }
            | Body::SnapshotProgress { .. }
            | Body::HandOver { .. } => Stream::Ordered,
        }
    }

    /// Whether it means the same in every configuration: it reports what is decided, or requests it.
    pub(super) fn is_of_any_configuration(&self) -> bool {
        match self {
            Body::SnapshotBegin { .. }
            | Body::SnapshotChunk { .. }
            | Body::SnapshotEnd { .. }
            | Body::SnapshotProgress { .. }
            | Body::Behind { .. }
            | Body::Decided { .. }
            | Body::Newer { .. }
            | Body::Outlived { .. } => true,
            Body::Heartbeat(_)
            | Body::Paxos(_)
            | Body::Position { .. }
            | Body::Confirm { .. }
            | Body::Confirmed { .. }
            | Body::LedBefore { .. }
            | Body::HandOver { .. } => false,
        }
    }

    /// The message's name, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Body::Heartbeat(HeartbeatMsg::Request(_)) => "HeartbeatRequest",
            Body::Heartbeat(HeartbeatMsg::Reply(_)) => "HeartbeatReply",
            Body::Paxos(PaxosMsg::PrepareReq(_)) => "PrepareRequest",
            Body::Paxos(PaxosMsg::Prepare(_)) => "Prepare",
            Body::Paxos(PaxosMsg::Promise(_)) => "Promise",
            Body::Paxos(PaxosMsg::AcceptSync(_)) => "AcceptSync",
            Body::Paxos(PaxosMsg::AcceptDecide(_)) => "AcceptDecide",
            Body::Paxos(PaxosMsg::Accepted(_)) => "Accepted",
            Body::Paxos(PaxosMsg::NotAccepted(_)) => "NotAccepted",
            Body::Paxos(PaxosMsg::Decide(_)) => "Decide",
            Body::Paxos(_) => "(never sent)",
            Body::Position { .. } => "Position",
            Body::Confirm { .. } => "Confirm",
            Body::Confirmed { .. } => "Confirmed",
            Body::SnapshotBegin { .. } => "SnapshotBegin",
            Body::SnapshotChunk { .. } => "SnapshotChunk",
            Body::SnapshotEnd { .. } => "SnapshotEnd",
            Body::SnapshotProgress { .. } => "SnapshotProgress",
            Body::Behind { .. } => "Behind",
            Body::Decided { .. } => "Decided",
            Body::Newer { .. } => "Newer",
            Body::Outlived { .. } => "Outlived",
            Body::LedBefore { .. } => "LedBefore",
            Body::HandOver { .. } => "HandOver",
        }
    }

    fn encode_parts(&self, out: &mut Vec<u8>) -> Option<Arc<Vec<u8>>> {
        match self {
            Body::Heartbeat(HeartbeatMsg::Request(request)) => {
                out.put_u8(HEARTBEAT_REQUEST);
                out.put_u32(request.round);
            }
            Body::Heartbeat(HeartbeatMsg::Reply(reply)) => {
                out.put_u8(HEARTBEAT_REPLY);
                out.put_u32(reply.round);
                put_ballot(out, reply.ballot);
                put_ballot(out, reply.leader);
                out.put_bool(reply.happy);
            }
            Body::Paxos(message) => return encode_paxos(message, out),
            Body::Position { ballot, end, decided } => {
                put_head(out, POSITION, *ballot);
                out.put_u64(*end);
                out.put_u64(*decided);
            }
            Body::Confirm { ballot, number } => {
                put_head(out, CONFIRM, *ballot);
                out.put_u64(*number);
            }
            Body::Confirmed { ballot, number } => {
                put_head(out, CONFIRMED, *ballot);
                out.put_u64(*number);
            }
            Body::SnapshotBegin { transfer, moment } => {
                out.put_u8(SNAPSHOT_BEGIN);
                out.put_u64(*transfer);
                put_moment(out, moment);
            }
            Body::SnapshotChunk { transfer, index, chunk } => {
                out.put_u8(SNAPSHOT_CHUNK);
                out.put_u64(*transfer);
                out.put_u32(*index);
                out.put_bytes(chunk);
            }
            Body::SnapshotEnd { transfer, chunks, round, rest, voters } => {
                out.put_u8(SNAPSHOT_END);
                out.put_u64(*transfer);
                out.put_u32(*chunks);
                put_ballot(out, *round);
                put_entries(out, rest);
                put_voters(out, voters);
            }
            Body::SnapshotProgress { transfer, next } => {
                out.put_u8(SNAPSHOT_PROGRESS);
                out.put_u64(*transfer);
                out.put_u32(*next);
            }
            Body::Behind { index, asks } => {
                out.put_u8(BEHIND);
                out.put_u64(*index);
                out.put_bool(*asks);
            }
            Body::Decided { configuration, from, entries } => {
                out.put_u8(DECIDED);
                out.put_u32(*configuration);
                out.put_u64(*from);
                return put_entries_but_last(out, entries);
            }
            Body::Newer { members } => {
                out.put_u8(NEWER);
                put_nodes(out, members);
            }
            Body::Outlived { voter } => {
                out.put_u8(OUTLIVED);
                voter.put(out);
            }
            Body::LedBefore { ballot } => {
                out.put_u8(LED_BEFORE);
                put_ballot(out, *ballot);
            }
            Body::HandOver { ballot } => put_head(out, HAND_OVER, *ballot),
        }
        None
    }

    fn take(reader: &mut Reader<'a>) -> Result<Body<'a>, Malformed> {
        Ok(match reader.u8()? {
            HEARTBEAT_REQUEST => {
                Body::Heartbeat(HeartbeatMsg::Request(HeartbeatRequest { round: reader.u32()? }))
            }
            HEARTBEAT_REPLY => Body::Heartbeat(HeartbeatMsg::Reply(HeartbeatReply {
                round: reader.u32()?,
                ballot: take_ballot(reader)?,
                leader: take_ballot(reader)?,
                happy: reader.bool()?,
            })),
            POSITION => {
                let ballot = take_ballot(reader)?;
                Body::Position { ballot, end: reader.u64()?, decided: reader.u64()? }
            }
            CONFIRM => Body::Confirm { ballot: take_ballot(reader)?, number: reader.u64()? },
            CONFIRMED => Body::Confirmed { ballot: take_ballot(reader)?, number: reader.u64()? },
            SNAPSHOT_BEGIN => Body::SnapshotBegin { transfer: reader.u64()?, moment: take_moment(reader)? },
            SNAPSHOT_CHUNK => {
                Body::SnapshotChunk { transfer: reader.u64()?, index: reader.u32()?, chunk: reader.bytes()? }
            }
            SNAPSHOT_END => Body::SnapshotEnd {
                transfer: reader.u64()?,
                chunks: reader.u32()?,
                round: take_ballot(reader)?,
                rest: take_entries(reader)?,
                voters: take_voters(reader)?,
            },
            SNAPSHOT_PROGRESS => Body::SnapshotProgress { transfer: reader.u64()?, next: reader.u32()? },
            BEHIND => Body::Behind { index: take_index(reader)? as u64, asks: reader.bool()? },
            DECIDED => Body::Decided {
                configuration: reader.u32()?,
                from: take_index(reader)? as u64,
                entries: take_entries(reader)?,
            },
            NEWER => Body::Newer { members: take_nodes(reader)? },
            OUTLIVED => Body::Outlived { voter: Voter::take(reader)? },
            LED_BEFORE => Body::LedBefore { ballot: take_ballot(reader)? },
            HAND_OVER => Body::HandOver { ballot: take_ballot(reader)? },
            kind => Body::Paxos(take_paxos(kind, reader)?),
        })
    }
}

/// Whether an encoded message may, and should, leave before those that were made earlier: heartbeats would elect another
/// leader if they waited behind a long entry on a slow link.
pub(super) fn is_urgent(bytes: &[u8]) -> bool {
    // All those of the loose stream, because within a stream messages are accepted in order only.
    let loose = [
        HEARTBEAT_REQUEST,
        HEARTBEAT_REPLY,
        CONFIRM,
        CONFIRMED,
        BEHIND,
        DECIDED,
        NEWER,
        OUTLIVED,
        LED_BEFORE,
    ];
    let mut reader = Reader::new(bytes);
    let kind = Envelope::take(&mut reader).and_then(|_| reader.u8());
    kind.is_ok_and(|kind| loose.contains(&kind))
}

impl Envelope {
    fn take(reader: &mut Reader<'_>) -> Result<Envelope, Malformed> {
        Ok(Envelope {
            configuration: reader.u32()?,
            sender: Identity::take(reader)?,
            to_storage: reader.u64()?,
            to_life: reader.u64()?,
            number: reader.u64()?,
        })
    }
}

impl<'a> Message<'a> {
    /// Appends the message's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let behind = self.encode_parts(out);
        behind.iter().for_each(|bytes| out.extend_from_slice(bytes));
    }

    /// Like [`encode`](Message::encode), but without the bytes of an entry at the message's end, which are returned.
    pub(super) fn encode_parts(&self, out: &mut Vec<u8>) -> Option<Arc<Vec<u8>>> {
        let Envelope { configuration, sender, to_storage, to_life, number } = self.envelope;
        out.put_u32(configuration);
        sender.put(out);
        out.put_u64(to_storage);
        out.put_u64(to_life);
        out.put_u64(number);
        self.body.encode_parts(out)
    }

    /// Reads a whole message and checks every entry in it.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not exactly one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let envelope = Envelope::take(&mut reader)?;
        let body = Body::take(&mut reader)?;
        if !reader.is_empty() {
            return Err(Malformed("bytes behind a message"));
        }
        Ok(Message { envelope, body })
    }
}

fn encode_paxos(message: &PaxosMsg<Entry>, out: &mut Vec<u8>) -> Option<Arc<Vec<u8>>> {
    match message {
        PaxosMsg::PrepareReq(request) => put_head(out, PREPARE_REQUEST, request.n),
        PaxosMsg::Prepare(prepare) => {
            put_head(out, PREPARE, prepare.n);
            put_index(out, prepare.decided_idx);
            put_ballot(out, prepare.n_accepted);
            put_index(out, prepare.accepted_idx);
        }
        PaxosMsg::Promise(promise) => {
            put_head(out, PROMISE, promise.n);
            put_ballot(out, promise.n_accepted);
            put_index(out, promise.decided_idx);
            put_index(out, promise.accepted_idx);
            out.put_bool(promise.log_sync.is_some());
            promise.log_sync.iter().for_each(|sync| put_sync(out, sync));
        }
        PaxosMsg::AcceptSync(accept) => {
            put_head(out, ACCEPT_SYNC, accept.n);
            put_sequence(out, accept.seq_num);
            put_index(out, accept.decided_idx);
            put_sync(out, &accept.log_sync);
        }
        PaxosMsg::AcceptDecide(accept) => {
            put_head(out, ACCEPT_DECIDE, accept.n);
            put_sequence(out, accept.seq_num);
            put_index(out, accept.decided_idx);
            return put_entries_but_last(out, &accept.entries);
        }
        PaxosMsg::Accepted(accepted) => {
            put_head(out, ACCEPTED, accepted.n);
            put_index(out, accepted.accepted_idx);
        }
        PaxosMsg::NotAccepted(refusal) => put_head(out, NOT_ACCEPTED, refusal.n),
        PaxosMsg::Decide(decide) => {
            put_head(out, DECIDE, decide.n);
            put_sequence(out, decide.seq_num);
            put_index(out, decide.decided_idx);
        }
        PaxosMsg::ProposalForward(_)
        | PaxosMsg::Compaction(_)
        | PaxosMsg::AcceptStopSign(_)
        | PaxosMsg::ForwardStopSign(_) => unreachable!("nothing here makes the crate send this"),
    }
    None
}

fn take_paxos(kind: u8, reader: &mut Reader<'_>) -> Result<PaxosMsg<Entry>, Malformed> {
    let message = match kind {
        PREPARE_REQUEST => PaxosMsg::PrepareReq(PrepareReq { n: take_ballot(reader)? }),
        PREPARE => PaxosMsg::Prepare(Prepare {
            n: take_ballot(reader)?,
            decided_idx: take_index(reader)?,
            n_accepted: take_ballot(reader)?,
            accepted_idx: take_index(reader)?,
        }),
        PROMISE => PaxosMsg::Promise(Promise {
            n: take_ballot(reader)?,
            n_accepted: take_ballot(reader)?,
            decided_idx: take_index(reader)?,
            accepted_idx: take_index(reader)?,
            log_sync: if reader.bool()? { Some(take_sync(reader)?) } else { None },
        }),
        ACCEPT_SYNC => PaxosMsg::AcceptSync(AcceptSync {
            n: take_ballot(reader)?,
            seq_num: take_sequence(reader)?,
            decided_idx: take_index(reader)?,
            log_sync: take_sync(reader)?,
        }),
        ACCEPT_DECIDE => PaxosMsg::AcceptDecide(AcceptDecide {
            n: take_ballot(reader)?,
            seq_num: take_sequence(reader)?,
            decided_idx: take_index(reader)?,
            entries: take_entries(reader)?,
        }),
        ACCEPTED => {
            PaxosMsg::Accepted(Accepted { n: take_ballot(reader)?, accepted_idx: take_index(reader)? })
        }
        NOT_ACCEPTED => PaxosMsg::NotAccepted(NotAccepted { n: take_ballot(reader)? }),
        DECIDE => PaxosMsg::Decide(Decide {
            n: take_ballot(reader)?,
            seq_num: take_sequence(reader)?,
            decided_idx: take_index(reader)?,
        }),
        _ => return Err(Malformed("unknown kind of message")),
    };
    Ok(message)
}

fn put_head(out: &mut Vec<u8>, kind: u8, ballot: Ballot) {
    out.put_u8(kind);
    put_ballot(out, ballot);
}

fn put_index(out: &mut Vec<u8>, index: usize) {
    out.put_u64(index as u64);
}

fn take_index(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    match reader.u64()? {
        index @ 0..=INDEX_MAX => Ok(index as usize),
        _ => Err(Malformed("an index that no log reaches")),
    }
}

/// The crate counts up from the number that it gets, so this one, too, must be far from the end of its range.
fn take_sequence(reader: &mut Reader<'_>) -> Result<SequenceNumber, Malformed> {
    Ok(SequenceNumber { session: take_index(reader)? as u64, counter: take_index(reader)? as u64 })
}

fn put_sequence(out: &mut Vec<u8>, number: SequenceNumber) {
    out.put_u64(number.session);
    out.put_u64(number.counter);
}

fn put_sync(out: &mut Vec<u8>, sync: &LogSync<Entry>) {
    put_index(out, sync.sync_idx);
    put_entries(out, &sync.suffix);
}

fn take_sync(reader: &mut Reader<'_>) -> Result<LogSync<Entry>, Malformed> {
    let sync_idx = take_index(reader)?;
    Ok(LogSync { decided_snapshot: None, suffix: take_entries(reader)?, sync_idx, stopsign: None })
}

#[cfg(test)]
mod tests {
    use super::super::group::Member;
    use super::*;

    #[test]
    fn exactly_the_messages_of_the_loose_stream_are_urgent() {
        let ballot = Ballot::default();
        let bodies = [
            Body::Heartbeat(HeartbeatMsg::Request(HeartbeatRequest { round: 1 })),
            Body::Confirm { ballot, number: 1 },
            Body::Confirmed { ballot, number: 1 },
            Body::Behind { index: 1, asks: true },
            Body::Decided { configuration: 1, from: 0, entries: Vec::new() },
            Body::Newer { members: vec![1] },
            Body::Outlived {
                voter: Voter { member: Member { node: 2, since: 0 }, identity: Identity::default() },
            },
            Body::LedBefore { ballot },
            Body::Position { ballot, end: 2, decided: 1 },
            Body::SnapshotChunk { transfer: 1, index: 0, chunk: b"chunk" },
            Body::SnapshotProgress { transfer: 1, next: 1 },
        ];
        for body in bodies {
            let is_loose = body.stream() == Stream::Loose;
            let message = Message { envelope: Envelope::default(), body };
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(is_urgent(&bytes), is_loose, "{}", message.body.kind());
        }
        assert!(!is_urgent(b"no message"));
    }
}
