//! Replies of other nodes that arrive in parts.

use super::{Forwarding, note_refusal};
use crate::collections::slab::Handle;
use crate::context::peers::peer_payload_bytes_max;
use crate::context::{Call, Context};
use crate::messages::envelope::{Envelope, OutcomePart};
use crate::session::origin::Origin;
use kv::SharedBytes;
use kv::codec::Malformed;
use protocol::{NodeId, Ticket};
use wire::resp::reply::element_end;

impl Forwarding {
    // At the node that waits for the reply.

    /// Takes a part of the outcome of a forwarded request.
    ///
    /// # Errors
    /// [`Malformed`] when it is not the next part, or the whole is not a reply.
    pub(crate) fn outcome_part(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        part: &OutcomePart<'_>,
    ) -> Result<(), Malformed> {
        let (length, handle) = (part.length as usize, Handle::from_bits(part.id));
        if length > peer_payload_bytes_max() {
            return Err(Malformed("a reply that is longer than any"));
        }
        let awaited = self.entries.get(handle).filter(|entry| entry.to == from);
        let Some(ticket) = awaited.map(|entry| entry.ticket) else {
            answer_part(cx, from, part.id, None); // The request has ended here already.
            return Ok(());
        };
        if !is_wanted(cx, ticket) {
            self.take_forward(cx, handle);
            answer_part(cx, from, part.id, None);
            return Ok(());
        }
        let until_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        let Some(entry) = self.entries.get_mut(handle) else { return Ok(()) };
        if part.offset as usize != entry.arrived.len() {
            return Err(Malformed("a part of a reply out of its order"));
        }
        if part.offset == 0 {
            entry.arrived = Vec::with_capacity(length);
        }
        entry.arrived.extend_from_slice(part.bytes);
        entry.deadline_us = entry.deadline_us.max(until_us);
        let arrived = entry.arrived.len();
        if arrived == length && element_end(&entry.arrived)? != length {
            return Err(Malformed("bytes behind a reply"));
        }
        answer_part(cx, from, part.id, Some(arrived as u32));
        if arrived == length
            && let Some(entry) = self.take_forward(cx, handle)
        {
            note_refusal(cx, &entry, &entry.arrived);
            cx.call(Call::CompleteLong {
                ticket: entry.ticket,
                group: entry.group,
                result: part.result,
                reply: SharedBytes::from(entry.arrived),
            });
        }
        Ok(())
    }
}

/// Whether the sender of a request still exists.
fn is_wanted(cx: &Context, ticket: Ticket) -> bool {
    match Origin::of(ticket) {
        Origin::Session(client) => cx.clients.sessions.get(client).is_some(),
        Origin::Peer(id, link) => cx.peers[id].is_linked_by(link),
        Origin::Part(_) | Origin::Wait | Origin::LongPart | Origin::Coding(_) | Origin::Value => true,
        Origin::Freshness | Origin::Changes | Origin::Eviction | Origin::TwoPhase => true,
        Origin::Floor | Origin::Unawaited => true,
    }
}

fn answer_part(cx: &mut Context, to: NodeId, id: u64, so_far: Option<u32>) {
    cx.peers[to].send(&Envelope::PartsArrived { id, so_far });
}
