//! Requests that no node can take now: no leader of their group is known, or it cannot be reached. They wait in this
//! node, in order, until a node can take them, or until their time is over. In the latter case nothing of them was
//! done.
//!
//! A client's requests take effect in order. So all later requests of a client wait behind a waiting one, and while
//! one node has not answered a client's request, the client's next ones go to no other node. A client with nothing
//! under way waits behind no other.

use super::{Forwarded, Forwarding};
use crate::context::Context;
use crate::context::peers::MUTE_MS;
use crate::groups::Kept;
use crate::membership::clock;
use crate::messages::envelope::put_request;
use crate::session::origin::{Asked, Origin};
use cluster::setting::Protocol;
use protocol::{NodeId, Now, Request, Result as Outcome, Ticket};
use std::collections::{BTreeSet, VecDeque};

/// How often waiting requests are checked for whether they can continue.
const LOOK_MS: u64 = 10;

/// The most requests that may wait in a node, and the most bytes of them: a sixteenth of `memory_max`, if that is less.
const REQUESTS_MAX: usize = 100_000;
const BYTES_MAX: u64 = 64 << 20;

/// After this long, a node without a replica of a group gives up a peer that is mute: it does not learn by itself
/// which node leads the group.
const ABANDONED_MS: u64 = 1000;

/// Totals of what waits in a node.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    requests: usize,
    bytes: u64,
    /// The number of forwarded requests in doubt.
    pub(super) in_doubt: usize,
    look_at_us: u64,
    /// The ticket of the request that is being tried again, with its number, and whether it must go on waiting.
    tried: Option<(Ticket, u64)>,
    waits_on: bool,
    /// The request that is being kept waits for keys.
    is_for_keys: bool,
    /// The requests of the group whose turn it is that were tried again and wait for keys, or behind such a request of their client.
    passed_over: VecDeque<Kept>,
    /// Their clients, as far as they are known here.
    stuck: BTreeSet<u64>,
}

/// How many requests of a group may be found to wait for keys before no others are tried.
const PASSED_OVER_AT_ONCE: usize = 1_000;

/// The error for a request that has waited for keys.
const KEYS_LOCKED: &str = "TRYAGAIN LOCKED transactions over several shards or keyspaces have locked the key; nothing was done, try again";

/// The number of a request that was not forwarded yet.
const NEVER_PASSED_ON: u64 = u64::MAX;

impl Waiting {
    pub(crate) fn next_due_us(&self) -> u64 {
        if self.requests == 0 && self.in_doubt == 0 { u64::MAX } else { self.look_at_us }
    }

    /// Has the next turn check whether waiting requests can continue.
    pub(crate) fn look_soon(&mut self, now: Now) {
        self.look_at_us = now.monotonic_us;
    }

    fn is_tried(&self, ticket: Ticket) -> bool {
        self.tried.is_some_and(|(tried, _)| tried == ticket)
    }

    /// The number of a request that is being tried again, if it was forwarded before: it keeps its place among the
    /// requests of its client.
    pub(crate) fn number_of(&self, ticket: Ticket) -> Option<u64> {
        let (_, number) = self.tried.filter(|(tried, _)| *tried == ticket)?;
        (number != NEVER_PASSED_ON).then_some(number)
    }

    /// The number of waiting requests.
    pub(crate) fn count(&self) -> usize {
        self.requests
    }
}

impl Forwarding {
    /// Has the next turn check whether waiting requests can continue.
    pub(crate) fn look_soon(&mut self, cx: &Context) {
        self.waiting.look_soon(cx.now);
    }

    /// Whether a request must not be sent before earlier ones of its client have continued, or have their outcomes.
    #[inline]
    pub(crate) fn stands_behind(&self, cx: &Context, group: u16, asked: &Asked, to: NodeId) -> bool {
        if !asked.follows {
            return false;
        }
        let entry = &cx.groups[group];
        if !self.waiting.is_tried(asked.ticket) {
            // Of requests that wait for keys, only those of the same client are in the way: of the same link, if it is forwarded.
            let is_before =
                |kept: &Kept| !kept.is_for_keys || kept.asked.ticket.client == asked.ticket.client;
            if entry.waiting.iter().any(is_before) {
                return true;
            }
        }
        if entry.has_none_under_way() {
            return false;
        }
        // Under another leadership, an earlier request may be refused and sent again: a later one must not have taken
        // effect by then.
        let (leadership, _) = self.leadership_of(cx, group, to, asked.ticket);
        entry.has_others_under_way(to, leadership)
    }

    /// Keeps a request until a node can take it.
    #[cold]
    pub(crate) fn keep(
        &mut self,
        cx: &mut Context,
        group: u16,
        mut asked: Asked,
        request: Request<'_>,
        why: String,
    ) {
        if let Origin::Session(client) = Origin::of(asked.ticket)
            && let Some(session) = cx.clients.sessions.get(client)
        {
            let since_us = session.waits_since_us(cx.now.monotonic_us);
            asked.deadline_us = asked.deadline_us.min(since_us + cx.configuration.command_timeout_ms * 1000);
        }
        let number = self.waiting.number_of(asked.ticket).unwrap_or(NEVER_PASSED_ON);
        self.keep_in_order(cx, group, asked, request, why, number);
    }

    /// Keeps a request until the keys that it needs are unlocked.
    #[cold]
    pub(crate) fn keep_for_keys(&mut self, cx: &mut Context, group: u16, asked: Asked, request: Request<'_>) {
        self.waiting.is_for_keys = true;
        self.keep(cx, group, asked, request, KEYS_LOCKED.to_owned());
        self.waiting.is_for_keys = false;
    }

    /// Like [`Forwarding::keep`], for a request that was forwarded with this number: it goes before all requests that
    /// came later.
    pub(crate) fn keep_in_order(
        &mut self,
        cx: &mut Context,
        group: u16,
        asked: Asked,
        request: Request<'_>,
        why: String,
        number: u64,
    ) {
        let now_us = cx.now.monotonic_us;
        let until_us = asked.deadline_us.min(now_us + cx.configuration.command_timeout_ms * 1000);
        let bytes_max = match cx.memory.bytes_max() {
            0 => BYTES_MAX,
            bytes => BYTES_MAX.min(bytes / 16),
        };
        let is_tried = self.waiting.is_tried(asked.ticket);
        if until_us <= now_us {
            return cx.complete_with_error(asked.ticket, group, Outcome::Refused, &why);
        }
        if !is_tried && (self.waiting.requests >= REQUESTS_MAX || self.waiting.bytes >= bytes_max) {
            let error =
                format!("TRYAGAIN OVERLOADED too many requests wait already; nothing was done ({why})");
            return cx.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
        }
        let mut bytes = Vec::new();
        put_request(&request, &mut bytes);
        if self.waiting.requests == 0 {
            self.waiting.look_at_us = now_us + LOOK_MS * 1000;
        }
        self.waiting.requests += 1;
        self.waiting.bytes += bytes.len() as u64;
        // Another node may lead by then: its path starts from here again.
        let hops = asked.hops.min(1);
        let waiting = &mut cx.groups[group].waiting;
        let is_behind = !is_tried && waiting.back().is_some_and(|last| last.is_for_keys);
        let is_for_keys = self.waiting.is_for_keys || is_behind;
        let asked = Asked { hops, ..asked };
        let kept = Kept { asked, request: bytes, until_us, number, is_for_keys, why };
        if is_tried {
            self.waiting.waits_on = true;
            waiting.push_front(kept);
        } else {
            // The waiting requests are in the order of their numbers, and there may be a hundred thousand.
            let place = waiting.partition_point(|other| other.number <= number);
            waiting.insert(place, kept);
        }
    }

    /// Whether waiting requests are checked in this turn. If so, ends the doubts that can be ended.
    pub(crate) fn looks_now(&mut self, cx: &mut Context) -> bool {
        if self.waiting.next_due_us() > cx.now.monotonic_us {
            return false;
        }
        self.waiting.look_at_us = cx.now.monotonic_us + LOOK_MS * 1000;
        self.end_doubts(cx);
        true
    }

    /// Takes out the first waiting request of a group, to be submitted now. [`Forwarding::end_retry`] returns whether
    /// it goes on waiting.
    pub(crate) fn begin_retry(&mut self, cx: &mut Context, group: u16) -> Option<Kept> {
        assert!(self.waiting.tried.is_none(), "one request at a time is tried again");
        let waiting = &mut cx.groups[group].waiting;
        let is_stuck = |kept: &mut Kept| {
            kept.is_for_keys && kept.asked.follows && self.waiting.stuck.contains(&kept.asked.ticket.client)
        };
        while let Some(kept) = waiting.pop_front_if(is_stuck) {
            self.waiting.passed_over.push_back(kept);
        }
        let kept = waiting.pop_front()?;
        self.waiting.requests -= 1;
        self.waiting.bytes -= kept.request.len() as u64;
        self.waiting.tried = Some((kept.asked.ticket, kept.number));
        Some(kept)
    }

    /// Returns true if the request that was tried again goes on waiting, and so do those behind it. One that waits for keys is in
    /// the way of its own client alone.
    pub(crate) fn end_retry(&mut self, cx: &mut Context, group: u16) -> bool {
        self.waiting.tried = None;
        if !std::mem::take(&mut self.waiting.waits_on) {
            return false;
        }
        if self.waiting.passed_over.len() >= PASSED_OVER_AT_ONCE {
            return true;
        }
        let Some(kept) = cx.groups[group].waiting.pop_front_if(|kept| kept.is_for_keys) else { return true };
        self.waiting.stuck.insert(kept.asked.ticket.client);
        self.waiting.passed_over.push_back(kept);
        false
    }

    /// Ends the look at the waiting requests of a group.
    pub(crate) fn end_pass(&mut self, cx: &mut Context, group: u16) {
        self.waiting.stuck.clear();
        let mut passed_over = std::mem::take(&mut self.waiting.passed_over);
        passed_over.append(&mut cx.groups[group].waiting);
        cx.groups[group].waiting = passed_over;
    }

    /// Ends the waiting requests of a group that is removed.
    pub(super) fn end_waiting(&mut self, cx: &mut Context, group: u16) {
        self.end_kept(cx, group, |_, _| true);
    }

    /// Ends the requests of a group that have waited too long.
    pub(crate) fn end_overdue_waiting(&mut self, cx: &mut Context, group: u16) {
        self.end_kept(cx, group, |kept, now_us| kept.until_us <= now_us);
    }

    fn end_kept(&mut self, cx: &mut Context, group: u16, ends: impl Fn(&Kept, u64) -> bool) {
        let now_us = cx.now.monotonic_us;
        if !cx.groups[group].waiting.iter().any(|kept| ends(kept, now_us)) {
            return;
        }
        let mut left = VecDeque::new();
        for kept in std::mem::take(&mut cx.groups[group].waiting) {
            if !ends(&kept, now_us) {
                left.push_back(kept);
                continue;
            }
            self.waiting.requests -= 1;
            self.waiting.bytes -= kept.request.len() as u64;
            cx.complete_with_error(kept.asked.ticket, group, Outcome::Refused, &kept.why);
        }
        // Requests that were added during the loop go behind these.
        left.append(&mut cx.groups[group].waiting);
        cx.groups[group].waiting = left;
    }

    // Mute peers.

    /// Probes each silent peer that has not answered requests, by asking for a sign of life. If it gives none and
    /// others have continued without it, these requests are ended here: the peer would answer them when its process
    /// continues, if ever.
    pub(crate) fn watch_silent_peers(&mut self, cx: &mut Context) {
        if self.entries.len() == 0 {
            return;
        }
        let patience = cx.configuration.patience;
        for id in cx.peers.ids() {
            let peer = &mut cx.peers[id];
            let silent_ms = peer.silent_ms(cx.now);
            let is_asked = cx.groups.iter().any(|(_, group)| group.has_under_way(id));
            if !peer.is_up() || !is_asked || silent_ms < MUTE_MS * patience / 3 {
                continue;
            }
            if !peer.is_probed() {
                peer.probe(cx.now);
                clock::ask(cx, id);
                continue;
            }
            if !peer.is_mute(cx.now, patience) {
                continue;
            }
            let passed_over = |group: u16| match settled_leader(cx, group) {
                Some(leader) => leader != id,
                None => has_no_part(cx, group) && silent_ms >= ABANDONED_MS * patience,
            };
            let groups =
                cx.groups.iter().filter(|(_, group)| group.has_under_way(id)).map(|(group, _)| group);
            let groups: Vec<u16> = groups.filter(|group| passed_over(*group)).collect();
            if !groups.is_empty() {
                let is_one = |entry: &Forwarded| entry.to == id && groups.contains(&entry.group);
                self.end_forwards(cx, is_one, "stands still");
            }
        }
    }
}

/// Whether no replica here learns which node to ask for this group.
fn has_no_part(cx: &Context, group: u16) -> bool {
    let group = &cx.groups[group];
    group.replica.is_none() || !group.keyspace.has_leader()
}

/// The leader of a group, if that is settled and this node knows it.
fn settled_leader(cx: &Context, group: u16) -> Option<NodeId> {
    let group = &cx.groups[group];
    match group.keyspace.replication {
        Protocol::LeaderFollower => Some(group.leader),
        _ => group.replica.as_ref()?.led_by(cx.now),
    }
}
