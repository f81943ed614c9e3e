//! Outcomes of forwarded requests, and how requests end that will get none.

use super::{Forwarded, Forwarding};
use crate::collections::slab::Handle;
use crate::context::Context;
use crate::context::routing::{MOVED, MOVED_CODE};
use kv::Reply;
use protocol::planted::Fault;
use protocol::{NodeId, Result as Outcome, Ticket};

impl Forwarding {
    /// Takes the outcome of a request that was forwarded to a node, by the number under which it was sent. Returns
    /// the request's ticket and group if the outcome is the client's: the caller ends the request with it. Otherwise
    /// the request has ended already, is sent again, or has another outcome.
    #[inline]
    pub(crate) fn take_outcome(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        name: Handle,
        result: Outcome,
        reply: &[u8],
    ) -> Option<(Ticket, u16)> {
        self.entries.get(name).filter(|entry| entry.to == from)?;
        let entry = self.take_forward(cx, name)?;
        self.answered(cx, &entry, result, reply).then_some((entry.ticket, entry.group))
    }

    /// Whether the outcome of a forwarded request is the client's.
    #[inline]
    fn answered(&mut self, cx: &mut Context, entry: &Forwarded, result: Outcome, reply: &[u8]) -> bool {
        if let Outcome::Redirect { .. } = result {
            // The leadership for which the request was meant is over: it never takes effect there.
            let error = "CLUSTERDOWN NOLEADER the leader has changed; nothing was done, try again";
            if !self.ask_again(cx, entry, error.into()) {
                cx.complete_with_error(entry.ticket, entry.group, Outcome::Refused, error);
            }
            return false;
        }
        let is_sent_again = result == Outcome::Refused
            && note_refusal(cx, entry, reply)
                .is_some_and(|why| self.is_newest(entry) && self.ask_again(cx, entry, why));
        !is_sent_again
    }

    /// Whether a refused request may be sent again: no later request of its client is under way, which may have been
    /// accepted.
    fn is_newest(&self, entry: &Forwarded) -> bool {
        let is_later = |other: &Forwarded| {
            other.number > entry.number
                && (other.ticket.client, other.group) == (entry.ticket.client, entry.group)
        };
        !self.entries.iter().any(|(_, other)| is_later(other))
    }

    /// Ends forwarded requests whose answer is overdue: the node that they went to would have answered in time.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        const GRACE_US: u64 = 500_000;
        let now_us = cx.now.monotonic_us;
        let is_overdue = |entry: &Forwarded| entry.deadline_us.saturating_add(GRACE_US) <= now_us;
        let overdue = self.entries.iter().map(|(_, entry)| entry).filter(|entry| is_overdue(entry));
        overdue.for_each(|entry| cx.peers[entry.to].left_unanswered(cx.now));
        self.end_forwards_for_good(cx, is_overdue, "did not answer in time");
    }

    /// Handles forwarded requests that will get no answer. A request that has changed nothing is sent again, in its
    /// order. A write that was meant for one leadership is sent again, too, once it is known that it never takes
    /// effect there; the requests behind it wait for that. The outcome of any other write is unknown.
    pub(crate) fn end_forwards(
        &mut self,
        cx: &mut Context,
        ends: impl Fn(&Forwarded) -> bool,
        why: &'static str,
    ) {
        let begun_us = cx.now.monotonic_us;
        for entry in self.entries.iter_mut() {
            if entry.doubt.is_none() && ends(entry) {
                entry.doubt = Some((why, begun_us));
                self.waiting.in_doubt += 1;
            }
        }
        self.end_doubts(cx);
    }

    /// Ends requests in doubt, as far as their outcome can be known.
    pub(crate) fn end_doubts(&mut self, cx: &mut Context) {
        if self.waiting.in_doubt == 0 {
            return;
        }
        let in_doubt = self.entries.iter().filter(|(_, entry)| entry.doubt.is_some());
        let mut in_doubt: Vec<(u64, Handle)> =
            in_doubt.map(|(handle, entry)| (entry.number, handle)).collect();
        in_doubt.sort_unstable();
        let mut undecided: Vec<u16> = Vec::new();
        for (_, handle) in in_doubt {
            let Some(entry) = self.entries.get(handle) else { continue };
            if undecided.contains(&entry.group) {
                continue; // The request must not overtake an earlier one.
            }
            match self.is_void(cx, entry) {
                Some(is_void) => self.end_forward(cx, handle, is_void),
                None => undecided.push(entry.group),
            }
        }
    }

    /// Whether a request in doubt has changed nothing and never will; `None` while that is not known yet.
    fn is_void(&self, cx: &Context, entry: &Forwarded) -> Option<bool> {
        const DOUBT_MS: u64 = 2000;
        if !entry.is_write {
            return Some(true);
        }
        let (_, since_us) = entry.doubt?;
        if cx.configuration.planted.has(Fault::DoubtTakenForVoid) {
            return Some(true);
        }
        let replica = cx.groups.get(entry.group).and_then(|group| group.replica.as_ref());
        let Some(replica) = replica.filter(|_| entry.leadership != 0) else { return Some(false) };
        let is_over = cx.now.ms_since(since_us) >= DOUBT_MS * cx.configuration.patience;
        replica.is_void(entry.to, entry.position).or(is_over.then_some(false))
    }

    /// Ends all requests of a group that is removed.
    pub(crate) fn end_group(&mut self, cx: &mut Context, group: u16) {
        let is_one = |entry: &Forwarded| entry.group == group;
        self.end_forwards_for_good(cx, is_one, "had no answer before its keyspace was dropped");
        self.end_waiting(cx, group);
    }

    /// Ends forwarded requests, even if more could become known about them.
    fn end_forwards_for_good(
        &mut self,
        cx: &mut Context,
        ends: impl Fn(&Forwarded) -> bool,
        why: &'static str,
    ) {
        let ended = self.entries.iter().filter(|(_, entry)| ends(entry));
        let mut ended: Vec<(u64, Handle)> = ended.map(|(handle, entry)| (entry.number, handle)).collect();
        ended.sort_unstable();
        for (_, handle) in ended {
            let Some(entry) = self.entries.get_mut(handle) else { continue };
            self.waiting.in_doubt += usize::from(entry.doubt.is_none());
            entry.doubt.get_or_insert((why, 0));
            let is_read = !entry.is_write;
            self.end_forward(cx, handle, is_read);
        }
    }

    fn end_forward(&mut self, cx: &mut Context, handle: Handle, is_void: bool) {
        let Some(entry) = self.take_forward(cx, handle) else { return };
        let Forwarded { ticket, group, to, doubt, .. } = entry;
        let why = doubt.map_or("did not answer", |(why, _)| why);
        if !is_void {
            let error =
                format!("UNKNOWN node {to} {why}; the write may have taken effect or may still do so");
            return cx.complete_with_error(ticket, group, Outcome::Unknown, &error);
        }
        let has_leader = cx.groups.get(group).is_none_or(|group| group.keyspace.has_leader());
        let code = if has_leader { "NOLEADER" } else { "NOQUORUM" };
        let error = format!("CLUSTERDOWN {code} node {to} {why}; nothing was changed");
        if !self.ask_again(cx, &entry, error.clone()) {
            cx.complete_with_error(ticket, group, Outcome::Refused, &error);
        }
        self.waiting.look_soon(cx.now);
    }
}

/// Notes that a node could not serve a forwarded request, so that another node is asked next time. Returns the node's
/// reason, if it refused because of that, or because this node's map and its own differ: one of them is old.
pub(crate) fn note_refusal(cx: &mut Context, entry: &Forwarded, reply: &[u8]) -> Option<String> {
    let Reply::Error(error) = Reply::first(reply) else { return None };
    if error.starts_with(MOVED_CODE.as_bytes()) {
        return Some(MOVED.into());
    }
    if !error.starts_with(b"CLUSTERDOWN ") && !error.starts_with(b"LOADING ") {
        return None;
    }
    if let Some(group) = cx.groups.get_mut(entry.group) {
        group.refused_by = entry.to;
        if group.reported_leader == entry.to {
            group.reported_leader = 0;
        }
    }
    Some(String::from_utf8_lossy(error).into_owned())
}
