//! The origin of the request that a ticket names.

use crate::collections::slab::{ClientId, Handle};
use kv::Version;
use protocol::{NodeId, Ticket};

/// The origin of the request that a ticket names. The ticket's `client` begins with its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client of this node.
    Session(ClientId),
    /// A client of another node, whose request came over that node's link with this number.
    Peer(NodeId, u32),
    /// A part of a request to several groups.
    Part(Handle),
    /// A step of an operation of this node on large values.
    Coding(Handle),
    /// A question about a request that waits: the sequence is the request's number.
    Wait,
    /// A part of a long command: the sequence is the part's number.
    LongPart,
    /// A question about how recent this node's replica is: the sequence is when it was asked.
    Freshness,
    /// An eviction that this node has ordered as leader: the sequence names the evicted key.
    Eviction,
    /// A question for changes that are not kept here: the sequence is the question's number.
    Changes,
    /// A request to another node for a value, since it is damaged here: the sequence is the fetch's number.
    Value,
    /// A record of a transaction over several groups: the sequence is the question's number.
    TwoPhase,
    /// A request that a group raises its floor: the sequence names the change of the map, and the group.
    Floor,
    /// A request of this node itself, which it repeats if necessary: nothing waits for the outcome.
    Unawaited,
}

/// The number of bits below the kind: as many as a handle may need.
const KIND_SHIFT: u32 = Handle::BITS;

const SESSION: u64 = 0;
const PEER: u64 = 1;
const PART: u64 = 2;
const CODING: u64 = 3;
const WAIT: u64 = 4;
const LONG_PART: u64 = 5;
const FRESHNESS: u64 = 6;
const UNAWAITED: u64 = 7;
/// These share the kind [`UNAWAITED`], as three bits have room for no more kinds: the rest of the ticket tells them apart.
const EVICTION: u64 = 1;
const CHANGES: u64 = 2;
const VALUE: u64 = 3;
const TWO_PHASE: u64 = 4;
const FLOOR: u64 = 5;

impl Origin {
    #[inline]
    pub(crate) fn of(ticket: Ticket) -> Origin {
        let rest = ticket.client & ((1 << KIND_SHIFT) - 1);
        match ticket.client >> KIND_SHIFT {
            SESSION => Origin::Session(Handle::from_bits(rest)),
            PEER => Origin::Peer(rest as NodeId, (rest >> NodeId::BITS) as u32),
            PART => Origin::Part(Handle::from_bits(rest)),
            CODING => Origin::Coding(Handle::from_bits(rest)),
            WAIT => Origin::Wait,
            LONG_PART => Origin::LongPart,
            FRESHNESS => Origin::Freshness,
            UNAWAITED if rest == EVICTION => Origin::Eviction,
            UNAWAITED if rest == CHANGES => Origin::Changes,
            UNAWAITED if rest == VALUE => Origin::Value,
            UNAWAITED if rest == TWO_PHASE => Origin::TwoPhase,
            UNAWAITED if rest == FLOOR => Origin::Floor,
            _ => Origin::Unawaited,
        }
    }

    /// The ticket of the request with this number.
    #[inline]
    pub(crate) fn ticket(self, sequence: u64) -> Ticket {
        let (kind, rest) = match self {
            Origin::Session(client) => (SESSION, client.to_bits()),
            Origin::Peer(id, link) => (PEER, u64::from(link) << NodeId::BITS | u64::from(id)),
            Origin::Part(gather) => (PART, gather.to_bits()),
            Origin::Coding(operation) => (CODING, operation.to_bits()),
            Origin::Wait => (WAIT, 0),
            Origin::LongPart => (LONG_PART, 0),
            Origin::Freshness => (FRESHNESS, 0),
            Origin::Eviction => (UNAWAITED, EVICTION),
            Origin::Changes => (UNAWAITED, CHANGES),
            Origin::Value => (UNAWAITED, VALUE),
            Origin::TwoPhase => (UNAWAITED, TWO_PHASE),
            Origin::Floor => (UNAWAITED, FLOOR),
            Origin::Unawaited => (UNAWAITED, 0),
        };
        Ticket { client: kind << KIND_SHIFT | rest, sequence }
    }
}

/// A request on its way to a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    /// Whether earlier requests of the same client have no outcome yet.
    pub(crate) follows: bool,
    /// The client's newest acknowledged write in this group.
    pub(crate) seen: Version,
    pub(crate) deadline_us: u64,
    /// How many nodes have forwarded the request.
    pub(crate) hops: u8,
    /// The only leadership of this node that may order the request; 0: any.
    pub(crate) leadership: u64,
}

/// How often a request may be forwarded, so that it never goes in a circle: by the node that its client is connected
/// to, by one that no longer leads, and by one that does not know that yet.
pub(crate) const HOPS_MAX: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_names_its_origin() {
        let last = Handle::from_bits((1 << Handle::BITS) - 1);
        for origin in [
            Origin::Session(last),
            Origin::Session(Handle::from_bits(0)),
            Origin::Peer(NodeId::MAX, u32::MAX),
            Origin::Part(last),
            Origin::Coding(last),
            Origin::Wait,
            Origin::LongPart,
            Origin::Freshness,
            Origin::Eviction,
            Origin::Changes,
            Origin::Value,
            Origin::TwoPhase,
            Origin::Floor,
            Origin::Unawaited,
        ] {
            assert_eq!(Origin::of(origin.ticket(7)), origin);
        }
    }
}
