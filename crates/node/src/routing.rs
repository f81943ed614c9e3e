//! Requests on their way to groups, here or on another node, and outcomes on their way back.

use crate::control::CONTROL_GROUP;
use crate::envelope::{Envelope, ForwardedOutcome, ForwardedRequest, NO_DEADLINE_MS, take_request};
use crate::gather::{Combine, Gather};
use crate::groups::{Group, UnderWay};
use crate::log::{Level, Line};
use crate::memory::OUT_OF_MEMORY;
use crate::node::Node;
use crate::origin::Origin;
use crate::replica::Replica;
use crate::session::{ClientId, Session, SessionReply};
use crate::setting::Protocol;
use crate::slab::{Handle, Slab};
use kv::SharedBytes;
use kv::codec::{Malformed, Reader};
use kv::table::WARMED_KEYS_MAX;
use kv::{Command, Reply, ReplyBuffer, Version};
use protocol::contract::Outgoing;
use protocol::planted::Fault;
use protocol::{Effects, HandedOn, Input, NOBODY, NodeId, Recipient, Request, Result as Outcome, Ticket};
use std::ops::Range;
use wire::frame;
use wire::resp::Arguments;

/// A request on its way to a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    /// Whether earlier requests of the same client have no outcome yet.
    pub(crate) follows: bool,
    /// The client's newest acknowledged write in this group.
    pub(crate) seen: Version,
    pub(crate) deadline_us: u64,
    /// How many nodes have forwarded it.
    pub(crate) hops: u8,
    /// The only leadership of this node that may order it; 0: any.
    pub(crate) leadership: u64,
}

/// How often a request may be forwarded, so that it never goes round in circles: by the node that its client is
/// connected to, by one that no longer leads, and by one that has not heard of that yet.
pub(crate) const HOPS_MAX: u8 = 3;

/// A client's request that was forwarded to another node.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) ticket: Ticket,
    pub(crate) group: u16,
    pub(crate) to: NodeId,
    pub(crate) is_write: bool,
    pub(crate) deadline_us: u64,
    pub(crate) follows: bool,
    pub(crate) seen: Version,
    /// Its number among all requests ever forwarded; it keeps the number when it is sent again.
    pub(crate) number: u64,
    /// The only leadership that may order it, and how far this node's replica had come in it; 0: any.
    pub(crate) leadership: u64,
    pub(crate) position: u64,
    /// Why no answer is expected any more, and since when: whether the request took effect is still to be found out.
    pub(crate) doubt: Option<(&'static str, u64)>,
    /// The request: its place in [`ForwardedBytes`]. Empty if it is too long to be kept.
    pub(crate) request: Range<usize>,
    /// What has arrived of its reply, if that comes in parts.
    pub(crate) arrived: Vec<u8>,
}

/// Forwarded requests that have no outcome yet, one after the other.
#[derive(Debug, Default)]
pub(crate) struct ForwardedBytes {
    bytes: Vec<u8>,
    /// At this length, the requests that have been answered are removed.
    collect_at: usize,
    /// How many requests were ever forwarded.
    count: u64,
}

/// Longer requests are not sent again.
const FORWARDED_BYTES_MAX: usize = 64 << 10;

impl ForwardedBytes {
    /// Removes the bytes that belong to no request any more.
    #[cold]
    fn collect(&mut self, forwards: &mut Slab<Forwarded>) {
        const COLLECT_BYTES_MIN: usize = 64 << 10;
        let all = std::mem::take(&mut self.bytes);
        for entry in forwards.iter_mut() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&all[entry.request.clone()]);
            entry.request = start..self.bytes.len();
        }
        self.collect_at = (2 * self.bytes.len()).max(COLLECT_BYTES_MIN);
    }
}

impl Node {
    /// Draws a number that cannot be guessed without the seed; the same in every run with the same seed.
    pub(crate) fn draw(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The group of all keys of a command; `None` if they are in several groups.
    #[inline]
    pub(crate) fn group_of(&self, command: &Command<'_>) -> Option<u16> {
        if let [only] = self.groups.ids() {
            return Some(*only);
        }
        let mut found: Option<u16> = None;
        let mut agree = true;
        command.for_each_key(|key| {
            let group = self.router.group_of(key);
            agree &= *found.get_or_insert(group) == group;
        });
        found.filter(|_| agree)
    }

    /// Loads from memory what requests need whose first argument is a key here. Called before the first of several
    /// requests is carried out, so that it waits for all of them at once.
    pub fn warm<'a>(&self, requests: impl Iterator<Item = Arguments<'a>>) {
        // With many keyspaces, sorting the keys by group would cost more than it saves.
        const GROUPS_MAX: usize = 4;
        let tables = self.groups.iter().take(GROUPS_MAX).filter_map(|(id, group)| {
            let table = group.replica.as_ref()?.table();
            table.gains_by_warming().then_some((id, table))
        });
        let mut tables = tables.peekable();
        if tables.peek().is_none() {
            return;
        }
        let mut keys = [(0, &b""[..]); WARMED_KEYS_MAX];
        let mut count = 0;
        for (place, key) in keys.iter_mut().zip(requests.filter_map(|arguments| arguments.get(1))) {
            *place = (self.router.group_of(key), key);
            count += 1;
        }
        for (id, table) in tables {
            table.warm(keys[..count].iter().filter(|(group, _)| *group == id).map(|(_, key)| *key));
        }
    }

    /// Sends a client's request to one group, with the usual deadline.
    #[inline]
    pub(crate) fn ask(&mut self, client: ClientId, group: u16, wants_version: bool, request: Request<'_>) {
        let timeout_us = self.configuration.command_timeout_ms * 1000;
        self.ask_until(client, group, wants_version, request, self.now.monotonic_us + timeout_us);
    }

    /// Sends a client's request to one group; its outcome is due by `deadline_us`.
    #[inline]
    pub(crate) fn ask_until(
        &mut self,
        client: ClientId,
        group: u16,
        wants_version: bool,
        request: Request<'_>,
        deadline_us: u64,
    ) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        // A client that watches keys must not read anything older than what it watches.
        let seen = if session.transaction.is_none() { session.seen(group) } else { Version::MAX };
        self.ask_not_before(client, group, wants_version, request, (seen, deadline_us));
    }

    /// Sends a client's request to one group, and only to a replica whose answer cannot be stale.
    pub(crate) fn ask_afresh(&mut self, client: ClientId, group: u16, request: Request<'_>) {
        let deadline_us = self.now.monotonic_us + self.configuration.command_timeout_ms * 1000;
        self.ask_not_before(client, group, false, request, (Version::MAX, deadline_us));
    }

    #[inline]
    fn ask_not_before(
        &mut self,
        client: ClientId,
        group: u16,
        wants_version: bool,
        request: Request<'_>,
        (seen, deadline_us): (Version, u64),
    ) {
        let work_ns = self.work_ns(group, &request);
        let Some(session) = self.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        if let Request::Command(command) = &request
            && command.is_write()
        {
            session.wrote(group);
            if self.coding.is_on
                && !self.refuses_growth(group, command)
                && !self.is_refused_by_room(group, command)
                && self.disperse(client, group, wants_version, command, deadline_us)
            {
                return;
            }
            if self.coding.is_on || self.values.is_on {
                self.hold_back_behind(client, group, command);
            }
        }
        let Some(session) = self.sessions.get_mut(client) else { return };
        session.request_ns = work_ns;
        let ticket = session.begin(wants_version);
        self.submit(group, Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 }, request);
    }

    /// Sends the requests that `request` makes to several groups for a client, and answers with one reply.
    pub(crate) fn ask_all<'r>(
        &mut self,
        client: ClientId,
        groups: &[u16],
        combine: Combine,
        deadline_us: u64,
        request: impl Fn(&Session, u16) -> Request<'r>,
    ) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        let asked: Vec<(u16, Request<'r>, Version)> =
            groups.iter().map(|group| (*group, request(session, *group), session.seen(*group))).collect();
        for (group, request, _) in &asked {
            if matches!(request, Request::Command(command) if command.is_write()) {
                session.wrote(*group);
            }
        }
        let ticket = session.begin(false);
        let bytes_max = self.memory.reply_max();
        let gather = self.gathers.insert(|_| Gather::new(ticket, combine, groups.len(), bytes_max));
        for (part, (group, request, seen)) in asked.into_iter().enumerate() {
            let ticket = Origin::Part(gather).ticket(part as u64);
            self.submit(group, Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 }, request);
        }
    }

    /// Hands a request to this node's replica of the group, or to a node that can carry it out.
    #[inline]
    pub(crate) fn submit(&mut self, group: u16, asked: Asked, request: Request<'_>) {
        if self.quarantine.is_on() {
            if let Some(error) = self.quarantined(group) {
                return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
            }
            if self.groups[group].holds.is_some() {
                return self.forward(group, self.coordinator_of(group), asked, request);
            }
        }
        if let Request::Command(command) = &request
            && command.is_write()
            && self.memory.is_bounded()
            && self.refuses_growth(group, command)
        {
            self.counters.memory_refused += 1;
            return self.complete_with_error(asked.ticket, group, Outcome::Refused, OUT_OF_MEMORY);
        }
        if self.is_settled_by_room(group, &asked, &request) {
            return;
        }
        if let Some(error) = self.spend_on(group, &request) {
            return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
        }
        if let Request::Command(command) = &request
            && command.payload_bytes() > self.configuration.long_command_bytes
            && self.groups[group].keyspace.has_leader()
            && asked.leadership == 0
        {
            return self.submit_in_parts(group, asked, command);
        }
        let target = &mut self.groups[group];
        let Some(replica) = &mut target.replica else {
            let to = self.coordinator_of(group);
            return self.forward(group, to, asked, request);
        };
        let Asked { ticket, follows, seen, deadline_us, leadership, .. } = asked;
        let fenced = leadership != 0 && !self.configuration.planted.has(Fault::LeadershipNotCompared);
        if fenced && replica.leads_in() != Some(leadership) {
            return self.complete(ticket, group, Outcome::Redirect { to: NOBODY }, &[]);
        }
        if follows
            && !(target.waiting.is_empty() && target.under_way.is_empty())
            && (replica.is_leader() || !target.keyspace.has_leader())
            && self.stands_behind(group, &asked, self.configuration.node)
        {
            let why = self.nobody_leads(group);
            return self.keep(group, asked, request, why);
        }
        let target = &mut self.groups[group];
        let Some(replica) = &mut target.replica else { return };
        if self.values.is_on
            && self.values.is_overloaded()
            && target.keyspace.spills()
            && matches!(request, Request::Command(command) if command.is_write())
        {
            let own = self.configuration.node;
            let error = format!(
                "TRYAGAIN OVERLOADED the disk of node {own} is behind with values; nothing was done, try again"
            );
            return self.complete_with_error(ticket, group, Outcome::Refused, &error);
        }
        let input = Input::Request { ticket, request, follows, seen, deadline_us, fenced };
        let stepped = replica.step(self.now, input, &mut self.effects);
        debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
        // If another node can be asked, ask it at once: the command is still at hand.
        let redirect = match self.effects.outcomes.last() {
            Some(outcome) => match outcome.result {
                Outcome::Redirect { to } if outcome.ticket == ticket => Some(to),
                _ => None,
            },
            None => None,
        };
        if let Some(to) = redirect {
            self.effects.outcomes.pop();
            match fenced {
                true => self.complete(ticket, group, Outcome::Redirect { to }, &[]),
                false => self.forward(group, to, asked, request),
            }
        }
        self.settle(group);
    }

    /// The node to ask for a group that has no replica here: its leader; if none is known, a replica whose link is up,
    /// the next one in a ring, so that different nodes ask different ones.
    pub(crate) fn coordinator_of(&self, group: u16) -> NodeId {
        let Group { keyspace, members, leader, reported_leader, refused_by, .. } = &self.groups[group];
        // When this node stands aside, others take over what it leads; it may not have heard of that yet.
        let is_taken_over = *leader == self.configuration.node && self.stands_aside(group);
        if keyspace.replication == Protocol::LeaderFollower && !is_taken_over {
            return *leader;
        }
        let told = *reported_leader;
        if self.peer_is_up(told)
            && !self.peers[told as usize - 1].is_silent(self.now, self.configuration.patience)
        {
            return told;
        }
        // A node that has lost its disk never knows the leader: skip a node that refused until the others were asked.
        let behind = if *refused_by == 0 { self.configuration.node } else { *refused_by };
        let ring = members.iter().filter(|member| **member > behind).chain(members).copied();
        let serves = |member: &NodeId| self.map.quarantine.stands(group, *member).is_none();
        let mut reached = ring.filter(|member| self.peer_is_up(*member) && serves(member)).peekable();
        let first = reached.peek().copied();
        let patience = self.configuration.patience;
        let mut answering = reached
            .filter(|member| !self.peers[*member as usize - 1].is_silent(self.now, patience))
            .peekable();
        let silent = answering.peek().copied();
        // A machine that lost power leaves its link up for a while.
        let with_room = answering.find(|member| !self.peers[*member as usize - 1].is_short);
        with_room.or(silent).or(first).unwrap_or(members[0])
    }

    /// Forwards a request to another node; if none can take it now, it waits until one can.
    pub(crate) fn forward(&mut self, group: u16, to: NodeId, asked: Asked, request: Request<'_>) {
        if let Some(why) = self.cannot_forward(group, to, &asked) {
            // Refuse: a sender without a replica can ask another member, and without a leader any other member is as
            // good.
            let is_passed_on = matches!(Origin::of(asked.ticket), Origin::Peer(..));
            if is_passed_on && (!self.is_admitted || !self.groups[group].keyspace.has_leader()) {
                return self.complete_with_error(asked.ticket, group, Outcome::Refused, &why);
            }
            return self.keep(group, asked, request, why);
        }
        self.counters.forwarded += 1;
        if let Origin::Peer(from, _) = Origin::of(asked.ticket) {
            let envelope = Envelope::Leader { group, leader: to };
            frame::append(&mut self.peers[from as usize - 1].output, |out| envelope.encode(out));
        }
        let Asked { ticket, follows, seen, deadline_us, hops, .. } = asked;
        let (leadership, position) = self.leadership_of(group, to, ticket);
        let is_write = matches!(request, Request::Command(command) if command.is_write());
        if self.forwarded.bytes.len() >= self.forwarded.collect_at {
            self.forwarded.collect(&mut self.forwards);
        }
        let number = self.waiting.number_of(ticket).unwrap_or_else(|| {
            self.forwarded.count += 1;
            self.forwarded.count
        });
        let entry = self.forwards.insert(|_| Forwarded {
            ticket,
            group,
            to,
            is_write,
            deadline_us,
            follows,
            seen,
            number,
            leadership,
            position,
            doubt: None,
            request: 0..0,
            arrived: Vec::new(),
        });
        let under_way = &mut self.groups[group].under_way;
        match under_way.iter_mut().find(|it| (it.at, it.leadership) == (to, leadership)) {
            Some(it) => it.count += 1,
            None => under_way.push(UnderWay { at: to, leadership, count: 1 }),
        }
        let remaining_ms = match deadline_us {
            u64::MAX => NO_DEADLINE_MS,
            _ => (deadline_us.saturating_sub(self.now.monotonic_us) / 1000).min(NO_DEADLINE_MS as u64 - 1)
                as u32,
        };
        let peer = &mut self.peers[to as usize - 1];
        let forwarded = ForwardedRequest {
            id: entry.to_bits(),
            group,
            follows,
            seen,
            remaining_ms,
            hops: hops + 1,
            leadership,
            request,
        };
        let request_start = forwarded.encode(&mut peer.requests);
        let request = &peer.requests[request_start..];
        if request.len() <= FORWARDED_BYTES_MAX
            && let Some(entry) = self.forwards.get_mut(entry)
        {
            let start = self.forwarded.bytes.len();
            self.forwarded.bytes.extend_from_slice(request);
            entry.request = start..self.forwarded.bytes.len();
        }
        peer.flush_if_large();
    }

    /// The leadership of a node that a client's request is meant for, and how far this node's replica has got in it.
    #[inline]
    pub(crate) fn leadership_of(&self, group: u16, to: NodeId, ticket: Ticket) -> (u64, u64) {
        if !matches!(Origin::of(ticket), Origin::Session(_) | Origin::Part(_)) {
            return (0, 0);
        }
        match self.groups[group].replica.as_ref().and_then(Replica::follows_in) {
            Some((leader, leadership, position)) if leader == to => (leadership, position),
            _ => (0, 0),
        }
    }

    /// Why a request cannot be forwarded to this node now, if so: the error for its client unless that changes in time.
    #[inline]
    fn cannot_forward(&self, group: u16, to: NodeId, asked: &Asked) -> Option<String> {
        let own = self.configuration.node;
        let reaches = to != own && self.peer_is_up(to);
        let has_hops = !matches!(Origin::of(asked.ticket), Origin::Peer(..))
            || asked.hops < HOPS_MAX && self.groups[group].keyspace.has_leader();
        if self.is_admitted
            && reaches
            && has_hops
            && !self.stands_behind(group, asked, to)
            && self.peers[usize::from(to) - 1].probed_us <= self.peers[usize::from(to) - 1].heard_us
        {
            return None;
        }
        self.why_not_forward(group, to, (reaches, has_hops), asked)
    }

    #[cold]
    fn why_not_forward(
        &self,
        group: u16,
        to: NodeId,
        (reaches, has_hops): (bool, bool),
        asked: &Asked,
    ) -> Option<String> {
        let own = self.configuration.node;
        let Group { keyspace, members, replica, .. } = &self.groups[group];
        let (name, has_leader) = (keyspace.name(), keyspace.has_leader());
        if !self.is_admitted && members.contains(&own) {
            return Some(format!(
                "LOADING node {own} has not been let in by the control group yet; nothing was done"
            ));
        }
        let is_mute =
            reaches && self.peers[usize::from(to) - 1].is_mute(self.now, self.configuration.patience);
        if !has_hops && !has_leader {
            return Some(format!(
                "CLUSTERDOWN NOQUORUM node {own} cannot serve keyspace '{name}' yet; nothing was done, try again"
            ));
        }
        if !reaches || is_mute || !has_hops {
            let recovering = replica.as_ref().and_then(|replica| replica.recovers(self.now));
            return Some(match (has_leader, recovering) {
                (true, Some(why)) => format!(
                    "LOADING the leader does not hold all that was written before it led: {why}; nothing was done"
                ),
                (true, _) if to == own || to == 0 || !has_hops => self.nobody_leads(group),
                (true, _) => format!(
                    "CLUSTERDOWN NOLEADER node {to}, which leads keyspace '{name}', cannot be reached from node {own}; nothing was done"
                ),
                (false, _) => format!(
                    "CLUSTERDOWN NOQUORUM no replica of keyspace '{name}' can be reached from node {own}; nothing was done"
                ),
            });
        }
        self.stands_behind(group, asked, to).then(|| self.nobody_leads(group))
    }

    fn nobody_leads(&self, group: u16) -> String {
        let name = self.groups[group].keyspace.name();
        format!("CLUSTERDOWN NOLEADER nobody is known to lead keyspace '{name}'; nothing was done, try again")
    }

    /// Removes a forwarded request that has come to its end here.
    pub(crate) fn take_forward(&mut self, handle: Handle) -> Option<Forwarded> {
        let entry = self.forwards.remove(handle)?;
        self.waiting.in_doubt -= usize::from(entry.doubt.is_some());
        if let Some(group) = self.groups.get_mut(entry.group)
            && let Some(place) =
                group.under_way.iter().position(|it| (it.at, it.leadership) == (entry.to, entry.leadership))
        {
            group.under_way[place].count -= 1;
            if group.under_way[place].count == 0 {
                group.under_way.swap_remove(place);
                if !group.waiting.is_empty() {
                    self.waiting.look_soon(self.now);
                }
            }
        }
        Some(entry)
    }

    /// Sends a forwarded request again, to the current leader: it has had no effect, or is a read. Returns false if
    /// that is impossible.
    pub(crate) fn ask_again(&mut self, entry: &Forwarded, why: String) -> bool {
        if entry.request.is_empty() || self.groups.get(entry.group).is_none() {
            return false;
        }
        let bytes = self.forwarded.bytes[entry.request.clone()].to_vec();
        let Ok(request) = take_request(&mut Reader::new(&bytes)) else { return false };
        let Forwarded { ticket, follows, seen, deadline_us, .. } = *entry;
        let asked = Asked { ticket, follows, seen, deadline_us, hops: 0, leadership: 0 };
        self.keep_in_order(entry.group, asked, request, why, entry.number);
        true
    }

    /// Carries out the effects that a replica's step has left.
    #[inline]
    pub(crate) fn settle(&mut self, group: u16) {
        self.groups.touch(group);
        if !self.values.is_on {
            return self.settle_effects(group, false);
        }
        let spills = self.keep_spilled(group);
        self.settle_effects(group, spills);
        if spills {
            self.look_up_for_copies(group);
        }
    }

    #[inline]
    fn settle_effects(&mut self, group: u16, spills: bool) {
        // Boxes are swapped, since this runs for each request: what settling leads to may itself be settled before it
        // returns.
        let fresh = self.spare_effects.take().unwrap_or_default();
        let mut effects = std::mem::replace(&mut self.effects, fresh);
        if effects.replies.has_announcements() {
            self.publish_announced(&mut effects.replies);
        }
        let long_bytes = self.configuration.long_command_bytes;
        let are_some_long = effects.replies.len() > long_bytes
            && effects.outcomes.iter().any(|outcome| outcome.reply.len() > long_bytes);
        if are_some_long || effects.replies.has_lent() {
            self.settle_long(group, &mut effects, spills);
        } else {
            for outcome in &effects.outcomes {
                let reply = &effects.replies.as_bytes()[outcome.reply.clone()];
                self.settle_outcome(group, outcome, reply, spills);
            }
        }
        for record in effects.records.drain(..) {
            let parts = record.parts(&effects.bytes);
            self.journal.append(group, &mut self.groups[group].tail, parts);
        }
        for Outgoing { to, bytes, after_record, recipient } in &effects.messages {
            let parts = bytes.parts(&effects.bytes);
            if self.groups[group].tail.may_leave(*after_record) {
                self.send(group, *to, *recipient, parts);
            } else if !self.journal.is_full() || self.groups[group].keyspace.has_leader() {
                self.groups[group].tail.hold(*after_record, *to, *recipient, parts);
            }
            // Otherwise it would wait for a record that may never be written: registers ask again, as often as it
            // takes.
        }
        for event in effects.trace.drain(..) {
            self.log_trace(group, event);
        }
        if effects.handed_on.is_empty() && effects.wishes.is_empty() && effects.notices.is_empty() {
            return self.reuse_effects(effects);
        }
        let wishes = std::mem::take(&mut effects.wishes);
        let handed_on = std::mem::take(&mut effects.handed_on);
        let notices = std::mem::take(&mut effects.notices);
        let bytes = std::mem::take(&mut effects.bytes);
        self.reuse_effects(effects);
        wishes.into_iter().for_each(|wish| self.wish(group, wish));
        notices.into_iter().for_each(|notice| self.lock_notice(group, notice));
        for HandedOn { ticket, to, deadline_us, command } in handed_on {
            match Command::decode(&mut Reader::new(&bytes[command])) {
                Ok(command) => {
                    let (seen, leadership) = (Version::MAX, 0);
                    let asked = Asked { ticket, follows: true, seen, deadline_us, hops: 0, leadership };
                    self.forward(group, to, asked, Request::Command(command));
                }
                Err(Malformed(why)) => {
                    debug_assert!(false, "a replica hands on what it was given: {why}");
                    let error = "CLUSTERDOWN NOLEADER the leader has changed; nothing was done, try again";
                    self.complete_with_error(ticket, group, Outcome::Refused, error);
                }
            }
        }
    }

    /// Ends what [`Node::settle`] began: clears both effects, so that neither holds anything of this request.
    #[inline]
    fn reuse_effects(&mut self, mut effects: Box<Effects>) {
        effects.clear();
        let mut spare = std::mem::replace(&mut self.effects, effects);
        spare.clear();
        self.spare_effects = Some(spare);
    }

    /// Handles the outcome of a request that a replica has ended.
    #[inline]
    pub(crate) fn settle_outcome(
        &mut self,
        group: u16,
        outcome: &protocol::Outcome,
        reply: &[u8],
        spills: bool,
    ) {
        if let Outcome::Redirect { to } = outcome.result {
            if matches!(Origin::of(outcome.ticket), Origin::Peer(..)) {
                return self.complete(outcome.ticket, group, outcome.result, &[]);
            }
            let error = format!("CLUSTERDOWN NOLEADER node {to} leads now; nothing was done, try again");
            return self.complete_with_error(outcome.ticket, group, Outcome::Refused, &error);
        }
        if spills && ReplyBuffer::is_unfinished(reply) {
            return self.resolve(outcome.ticket, group, outcome.result, reply);
        }
        self.complete(outcome.ticket, group, outcome.result, reply);
    }

    /// Sends a replica's message.
    #[inline]
    pub(crate) fn send(
        &mut self,
        group: u16,
        to: NodeId,
        recipient: Recipient,
        [message, behind]: [&[u8]; 2],
    ) {
        if recipient == Recipient::Coordinator {
            assert!(behind.is_empty(), "a piece of a fragment is no entry, whose bytes are shared");
            self.send_fragment_bytes(group, to, message);
            return;
        }
        if self.stands_aside(group) {
            return;
        }
        // A group may name a node that this node's map does not know yet.
        let peer = self.peers.get_mut(usize::from(to).wrapping_sub(1));
        if let Some(peer) = peer.filter(|peer| peer.up) {
            let envelope = Envelope::Group { group, message };
            let replica = self.groups.get(group).and_then(|group| group.replica.as_ref());
            let is_urgent = peer.has_urgent_link
                && (group == CONTROL_GROUP || replica.is_some_and(|replica| replica.is_urgent(message)));
            let output = if is_urgent { &mut peer.urgent_output } else { &mut peer.output };
            frame::append(output, |out| {
                envelope.encode(out);
                out.extend_from_slice(behind);
            });
        }
    }

    #[inline]
    pub(crate) fn complete(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        match Origin::of(ticket) {
            Origin::Session(client) => {
                if ReplyBuffer::is_unfinished(reply) {
                    return self.finish(ticket, group, result, reply);
                }
                let Some(session) = self.sessions.get_mut(client) else { return };
                if let Some(pending) = session.take_pending(ticket.sequence) {
                    return self.complete_pending(client, pending, ticket, group, (result, reply));
                }
                if ReplyBuffer::is_error(reply)
                    && let Reply::Error(error) = Reply::first(reply)
                {
                    self.counters.errors += 1;
                    self.statistics.error(error);
                }
                self.complete_session(client, ticket.sequence, group, result, SessionReply::Encoded(reply));
            }
            Origin::Coding(operation) => self.operation_answered(operation, ticket.sequence, result, reply),
            Origin::Peer(from, link) => {
                if reply.len() > self.configuration.long_command_bytes {
                    let reply = SharedBytes::from(reply.to_vec());
                    return self.reply_in_parts((from, link), ticket.sequence, result, (Vec::new(), reply));
                }
                let peer = &mut self.peers[from as usize - 1];
                // A newer link may be that of another incarnation of the node, which numbers its requests anew.
                if peer.up && peer.link == link {
                    ForwardedOutcome { id: ticket.sequence, result, reply }.encode(&mut peer.outcomes);
                    peer.flush_if_large();
                }
            }
            Origin::LockWait => self.lock_outcome(ticket.sequence, result, reply),
            Origin::LongPart => self.long_part_answered(ticket.sequence, result, reply),
            Origin::Nobody => {}
            Origin::Part(handle) => {
                let Some(gather) = self.gathers.get_mut(handle) else { return };
                if let (Outcome::Done { offset, .. }, Origin::Session(client)) =
                    (result, Origin::of(gather.ticket))
                    && offset > 0
                    && let Some(session) = self.sessions.get_mut(client)
                {
                    session.saw(group, offset);
                }
                if gather.take(ticket.sequence as usize, reply)
                    && let Some(gather) = self.gathers.remove(handle)
                {
                    let mut replies = ReplyBuffer::new();
                    gather.combine(&mut replies);
                    let done = Outcome::Done { version: 0, offset: 0 };
                    self.complete_with(gather.ticket, 0, done, replies);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn complete_session(
        &mut self,
        client: ClientId,
        sequence: u64,
        group: u16,
        result: Outcome,
        reply: SessionReply<'_>,
    ) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let mut known = None;
        if let Outcome::Done { version, offset } = result {
            known = Some(version);
            if offset > 0 {
                session.saw(group, offset);
            }
        }
        let reply_bytes = reply.len();
        let (command, begun_us) = session.complete(sequence, known, reply);
        self.memory.follow(session);
        if let Some(number) = command {
            self.statistics.took(number, self.now.monotonic_us.saturating_sub(begun_us));
        }
        if session.output_bytes() > self.configuration.output_bytes_max {
            return self.close_overflowing(client);
        }
        if !std::mem::replace(&mut session.listed, true) {
            self.ready.push(client);
        }
        if self.memory.answered(reply_bytes) {
            self.bound_sessions();
        }
    }

    /// Closes a client that has more output waiting than it may have.
    #[cold]
    pub(crate) fn close_overflowing(&mut self, client: ClientId) {
        self.counters.output_overflows += 1;
        let text = format!("client {} does not read its replies; it is closed", client.to_bits());
        self.log.push(Line { level: Level::Warning, text });
        self.kill(client);
    }

    pub(crate) fn complete_with_error(&mut self, ticket: Ticket, group: u16, result: Outcome, error: &str) {
        let mut replies = ReplyBuffer::new();
        replies.error(error);
        self.complete(ticket, group, result, replies.as_bytes());
    }
}
