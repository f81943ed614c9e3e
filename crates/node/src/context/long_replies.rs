//! Long replies: a reply to a client of another node that is too long for one frame is sent there in parts.
//!
//! ```text
//!  client      its node                              leader
//!    | GET k      |                                     |
//!    |----------->|------------------------------------>|  carried out; the reply stays where it was made
//!    |            |<-- 0..256 KiB, 256..512, ... --------|  a few parts at a time
//!    |            |--- arrived so far: n --------------->|  which releases the next ones
//!    |            |  ...                                 |
//!    |<- 64 MiB --|                                      |
//! ```
//!
//! In one piece, a reply of 64 MiB would be copied several times at both ends, each time within one turn, and would
//! block all that comes behind it. Only a few parts are under way at a time, so heartbeats, records and short replies
//! go between them.
//!
//! Parts arrive in order over the link that the request came over. When that link ends, both nodes forget what they
//! have: the request is answered like any whose outcome was lost. A reply is not made a second time, since the
//! command that it reports was carried out already. A large value that is the whole reply is not even copied into
//! one: the table lends the value, and a change of it makes a new one. (A copy would take longer the less memory the
//! node has used before.) A request's time limit starts again with each part that arrives. Outcomes may overtake each
//! other: each names its request, and a session puts its replies in order.
//!
//! For clients that are connected to this node, large values in a long reply are written from where the reply was made.

use crate::context::Context;
use crate::messages::envelope::{Envelope, OutcomePart};
use crate::messages::transfer::{Transfer, Window};
use crate::session::ClientId;
use crate::session::origin::Origin;
use cluster::configuration::{PARTS_UNDER_WAY, part_bytes};
use kv::SharedBytes;
use kv::codec::Malformed;
use protocol::{NodeId, Result as Outcome, Ticket};
use std::collections::VecDeque;
use wire::frame;

/// When more parts than this are under way to a peer, its next requests wait for some of them: 256 MiB.
const PARTS_OWED_MAX: usize = 1024;

/// The error for a read whose reply has no room beside those that are already under way to the same node.
const TOO_MANY_REPLIES: &str = "TRYAGAIN OVERLOADED too many bytes of replies are on their way to that node; nothing was done, try again";

/// A reply under way.
#[derive(Debug)]
struct LongReply {
    /// The receiver's number for its request.
    id: u64,
    result: Outcome,
    reply: Transfer,
}

/// The long replies that are under way to a peer.
#[derive(Debug, Default)]
pub(crate) struct LongReplies {
    /// Of the replies not yet wholly sent, the one that has waited longest for its next part comes first.
    replies: VecDeque<LongReply>,
    /// The total length of `replies`.
    bytes: usize,
    window: Window,
    part_bytes: usize,
    /// See [`PARTS_OWED_MAX`]; less where there is less memory.
    bytes_max: usize,
}

impl LongReplies {
    /// Forgets all replies, since the link has ended.
    pub(crate) fn clear(&mut self) {
        *self = LongReplies::default();
    }

    /// The total length of the replies, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are so many that the peer's further requests have to wait.
    pub(crate) fn are_too_many(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Whether there are so many that another reply has no room here. Requests are taken only while there is room for
    /// their replies, but those that have waited for a leader, or for a majority, are all answered at once.
    fn are_far_too_many(&self) -> bool {
        self.bytes > self.bytes_max.saturating_mul(2)
    }

    fn push(
        &mut self,
        id: u64,
        result: Outcome,
        (head, bytes): (Vec<u8>, SharedBytes),
        (part_bytes, bytes_max): (usize, usize),
    ) {
        let reply = Transfer::new(head, bytes);
        self.bytes += reply.len();
        self.part_bytes = part_bytes;
        self.bytes_max = bytes_max.min(PARTS_OWED_MAX * part_bytes);
        self.replies.push_back(LongReply { id, result, reply });
    }

    /// Writes parts as far as there is room, one of each reply in turn, so that a short reply does not wait for a
    /// long one.
    pub(crate) fn pump(&mut self, output: &mut Vec<u8>) {
        while self.window.under_way() < self.part_bytes * PARTS_UNDER_WAY
            && let Some(place) = self.replies.iter().position(|reply| !reply.reply.is_sent())
            && let Some(mut long) = self.replies.remove(place)
        {
            let (begin, bytes) = long.reply.next_part(self.part_bytes);
            // A reply is shorter than 4 GiB, like any frame.
            let part = OutcomePart {
                id: long.id,
                result: long.result,
                length: long.reply.len() as u32,
                offset: begin as u32,
                bytes: &bytes,
            };
            frame::append(output, |out| Envelope::OutcomePart(part).encode(out));
            self.window.sent(bytes.len());
            self.replies.push_back(long);
        }
    }

    /// Notes how much of a reply has arrived, or that the rest of it is not wanted.
    ///
    /// # Errors
    /// [`Malformed`] when less has arrived than before, or more than was sent.
    pub(crate) fn arrived(&mut self, id: u64, so_far: Option<u32>) -> Result<(), Malformed> {
        // The receiver answers each part of an unwanted reply in this way: its first answer has ended the reply.
        let Some(place) = self.replies.iter().position(|reply| reply.id == id) else { return Ok(()) };
        let reply = &mut self.replies[place].reply;
        let arrived = so_far.map_or(reply.sent(), |so_far| so_far as usize);
        if arrived < reply.arrived() || arrived > reply.sent() {
            return Err(Malformed("of a long reply that has arrived which was not sent"));
        }
        self.window.arrived(arrived - reply.arrived());
        reply.has(arrived);
        if so_far.is_none() || reply.has_arrived() {
            self.bytes -= reply.len();
            self.replies.remove(place);
        }
        Ok(())
    }
}

/// The client that sent a request, if its reply can be written from the reply's place without a copy.
pub(crate) fn takes_shared(cx: &Context, ticket: Ticket) -> Option<ClientId> {
    let Origin::Session(client) = Origin::of(ticket) else { return None };
    let session = cx.clients.sessions.get(client)?;
    (!session.is_internal() && !session.has_pending(ticket.sequence)).then_some(client)
}

/// Sends a peer the outcome of its request part by part: the reply's head, and the rest. A newer link may be that of
/// another incarnation of the node.
#[cold]
pub(crate) fn reply_in_parts(
    cx: &mut Context,
    (to, link): (NodeId, u32),
    id: u64,
    result: Outcome,
    reply: (Vec<u8>, SharedBytes),
) {
    let sizes = (part_bytes(&cx.configuration), cx.memory.replies_max());
    let peer = &mut cx.peers[to];
    if !peer.is_linked_by(link) {
        return;
    }
    // A read without an answer has had no effect. A write's outcome must not be withheld.
    if matches!(result, Outcome::Done { offset: 0, .. }) && peer.long_replies.are_far_too_many() {
        let ticket = Origin::Peer(to, link).ticket(id);
        return cx.complete_with_error(ticket, 0, Outcome::Refused, TOO_MANY_REPLIES);
    }
    cx.counters.long_replies += 1;
    peer.long_replies.push(id, result, reply, sizes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Outcome = Outcome::Done { version: 1, offset: 2 };

    /// The parts that are written next: their reply, start and end.
    fn pumped(replies: &mut LongReplies) -> Vec<(u64, usize, usize)> {
        let (mut output, mut parts) = (Vec::new(), Vec::new());
        replies.pump(&mut output);
        let mut rest = output.as_slice();
        while let Ok(frame::Next::Frame { payload, consumed }) = frame::next(rest, 1000) {
            let Ok(Envelope::OutcomePart(part)) = Envelope::decode(payload) else { panic!("{payload:?}") };
            let begin = part.offset as usize;
            assert!(part.bytes.iter().all(|byte| u64::from(*byte) == part.id) && part.result == DONE);
            parts.push((part.id, begin, begin + part.bytes.len()));
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty());
        parts
    }

    fn owed(lengths: &[(u64, usize)]) -> LongReplies {
        let mut replies = LongReplies::default();
        for (id, length) in lengths {
            let head = vec![*id as u8; length.min(&7).to_owned()];
            let rest = SharedBytes::from(vec![*id as u8; length - head.len()]);
            replies.push(*id, DONE, (head, rest), (10, usize::MAX));
        }
        replies
    }

    #[test]
    fn a_few_parts_are_under_way_and_arrivals_release_the_next_ones() {
        let mut replies = owed(&[(1, 55)]);
        assert_eq!(pumped(&mut replies), [(1, 0, 10), (1, 10, 20), (1, 20, 30), (1, 30, 40)]);
        assert_eq!(pumped(&mut replies), []);
        assert_eq!(replies.arrived(1, Some(10)), Ok(()));
        assert_eq!(pumped(&mut replies), [(1, 40, 50)]);
        assert_eq!(replies.arrived(1, Some(50)), Ok(()));
        assert_eq!(pumped(&mut replies), [(1, 50, 55)]);
        assert_eq!(replies.bytes(), 55, "it is held until it has arrived");
        assert_eq!(replies.arrived(1, Some(55)), Ok(()));
        assert_eq!((replies.bytes(), replies.window.under_way(), replies.replies.len()), (0, 0, 0));
    }

    #[test]
    fn replies_take_turns_and_an_unwanted_one_makes_room() {
        let mut replies = owed(&[(1, 100), (2, 15), (3, 100)]);
        assert_eq!(pumped(&mut replies), [(1, 0, 10), (2, 0, 10), (3, 0, 10), (1, 10, 20)]);
        assert_eq!(replies.arrived(1, None), Ok(()));
        assert_eq!(replies.arrived(1, None), Ok(()), "the other part is answered so, too");
        assert_eq!(pumped(&mut replies), [(2, 10, 15), (3, 10, 20), (3, 20, 30)]);
        assert_eq!(replies.arrived(2, Some(15)), Ok(()));
        assert_eq!((replies.bytes(), replies.window.under_way()), (100, 30));
    }

    #[test]
    fn parts_that_were_not_sent_cannot_have_arrived() {
        let mut replies = owed(&[(1, 100)]);
        pumped(&mut replies);
        assert!(replies.arrived(1, Some(41)).is_err() && replies.arrived(1, Some(u32::MAX)).is_err());
        assert_eq!(replies.arrived(1, Some(20)), Ok(()));
        assert!(replies.arrived(1, Some(19)).is_err());
        assert_eq!(replies.arrived(2, Some(7)), Ok(()), "it is none of these any more");
    }

    #[test]
    fn replies_under_way_to_a_peer_are_limited() {
        let mut replies = LongReplies::default();
        assert!(!replies.are_too_many());
        let value = SharedBytes::from(vec![b'v'; 10 * PARTS_OWED_MAX]);
        replies.push(1, DONE, (Vec::new(), value), (10, usize::MAX));
        assert!(!replies.are_too_many());
        replies.push(2, DONE, (b"v".to_vec(), SharedBytes::default()), (10, usize::MAX));
        assert!(replies.are_too_many() && !replies.are_far_too_many());
        let value = SharedBytes::from(vec![b'v'; 10 * PARTS_OWED_MAX]);
        replies.push(3, DONE, (Vec::new(), value), (10, usize::MAX));
        assert!(replies.are_far_too_many());
        replies.clear();
        assert!(!replies.are_too_many() && replies.bytes() == 0);
    }
}
