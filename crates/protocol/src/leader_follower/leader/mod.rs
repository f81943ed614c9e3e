//! The leader: orders writes, streams them, commits what enough followers hold, and answers.
//!
//! A leader that takes over may hold records without knowing whether they are committed. It writes a record of its own
//! after them, and shows nothing before enough followers hold that one. Copies of an older epoch's record prove nothing
//! by themselves: a replica with a newer, never committed record in its place would win the next recovery (figure 8 of
//! the Raft paper).

mod handover;
mod held;
mod in_sync;
pub(super) mod serving;
mod waits;

use self::held::{Held, NO_LEASE};
use self::in_sync::Pending;
use self::serving::{Follower, Service};
use self::waits::Wait;
use super::backlog::Batch;
use super::message::Message;
use super::options::Acks;
use super::position::Position;
use super::queue::{Entry, Queue, Waiting};
use super::state::State;
use crate::contract::{Effects, NOBODY, NodeId, Now, Request, TOO_MUCH_AT_ONCE, Ticket, Trace, not_before};
use crate::planted::Fault;
use crate::transfer::Allowance;
use crate::watching;
use kv::codec::Reader;
use kv::{Command, Version};

/// A request, its client and its deadline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    /// The request takes effect after earlier ones of the same client.
    pub(super) follows: bool,
    pub(super) deadline_us: u64,
    /// As long as nothing was done, it may be held until this moment.
    pub(super) hold_until_us: u64,
}

/// The leader's role.
#[derive(Debug)]
pub(super) struct Leader {
    /// The last offset assigned, sealed into a batch or not.
    pub(super) head: Version,
    /// Nothing is served before this offset is committed: the first record written here, if any was inherited.
    pub(super) serves_from: Version,
    /// When this record is durable, so is everything that the leader held when it began to lead.
    takeover_record: u64,
    /// The last purge ordered: no other purge is ordered before it is applied.
    pub(super) purge: Version,
    /// The last record that drops the waiting requests of a dead node: no other such record is ordered before it is
    /// applied.
    pub(super) dropped: Version,
    /// This turn's records.
    pub(super) builder: Vec<u8>,
    pub(super) builder_count: u32,
    builder_time: u64,
    /// Bytes of sealed records that are not committed.
    pub(super) uncommitted_bytes: usize,
    pub(super) queue: Queue,
    pub(super) held: Held,
    pub(super) waits: Vec<Wait>,
    /// How many followers must hold a write before it is committed.
    pub(super) needed: usize,
    /// The request that is pending with the control group.
    pub(super) in_sync_request: Option<Pending>,
    /// When the leader last checked which followers are in step.
    pub(super) watched_us: u64,
    /// Whether it had a lease at the last check, to report changes.
    pub(super) was_leased: bool,
    pub(super) followers: Vec<Follower>,
    pub(super) transfers: u64,
    /// How much history transfers may keep.
    pub(super) allowance: Allowance,
    /// True when the next message must request acknowledgements, because a `WAIT` arrived.
    pub(super) ask: bool,
    /// In this turn a follower was not sent all that it could take: the rest leaves in the next one.
    pub(super) is_cut_short: bool,
    /// When the leader last checked for activity, and the last offset at that time.
    pub(super) round_us: u64,
    pub(super) round_head: Version,
}

impl Leader {
    /// Begins to lead, with everything that is held here.
    pub(super) fn new(state: &mut State, now: Now, effects: &mut Effects) -> Leader {
        let (epoch, offset) = (state.epoch, state.last().offset);
        effects.trace.push(Trace::Role { role: "leader", epoch, offset });
        let mut leader = Leader {
            head: offset,
            serves_from: 0,
            takeover_record: state.journal.last(),
            purge: 0,
            dropped: 0,
            builder: Vec::new(),
            builder_count: 0,
            builder_time: 0,
            uncommitted_bytes: state.backlog.bytes_between(state.applied, offset) as usize,
            queue: Queue::default(),
            held: Held::default(),
            waits: Vec::new(),
            needed: 0,
            in_sync_request: None,
            watched_us: now.monotonic_us,
            was_leased: state.is_leased(now),
            followers: state.peers().map(|id| Follower::new(id, now)).collect(),
            transfers: 0,
            allowance: Allowance::default(),
            ask: false,
            is_cut_short: false,
            round_us: now.monotonic_us,
            round_head: offset,
        };
        leader.count_needed(state);
        if leader.followers.is_empty() && !state.journal.is_kept() {
            state.apply_until(offset, effects); // There is no follower to wait for, and no other node can lead.
        }
        if state.applied < offset {
            (state.applied..offset).for_each(|_| leader.queue.push_write(None, u64::MAX));
            // The leader's own first record changes nothing: it removes the keys that expired before time 0.
            leader.write(state, now, (None, u64::MAX), &Command::Purge { until: 0 }, effects);
            leader.serves_from = leader.head;
            leader.reconsider(state, now, effects);
        }
        leader
    }

    /// Whether everything that it took over is durable here.
    pub(super) fn has_taken_over(&self, state: &State) -> bool {
        state.journal.durable >= self.takeover_record
    }

    /// More of the history is durable here.
    pub(super) fn durable(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.commit(state, now, effects);
        self.end_waits(state, now, effects);
    }

    /// The in-sync set or the lease, for which requests wait, has changed.
    pub(super) fn reconsider(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.watch_lease(state, now, effects);
        self.seal(state, now, effects);
        self.commit(state, now, effects);
        self.end_waits(state, now, effects);
        self.release_held(state, now, effects);
    }

    /// Whether what its table shows is known to be committed.
    pub(super) fn serves(&self, state: &State) -> bool {
        state.applied >= self.serves_from
    }

    // Requests.

    #[inline]
    pub(super) fn request(
        &mut self,
        state: &mut State,
        now: Now,
        (ticket, follows, deadline_us): (Ticket, bool, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let hold_until_us = deadline_us.min(now.monotonic_us + state.timing.hold_ms * 1000);
        self.take(state, now, Asked { ticket, follows, deadline_us, hold_until_us }, request, effects);
    }

    #[inline]
    pub(super) fn take(
        &mut self,
        state: &mut State,
        now: Now,
        asked: Asked,
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let Asked { ticket, follows, deadline_us, .. } = asked;
        let stands_behind = !self.held.is_empty() && (follows || !is_read(request));
        if stands_behind || !state.takes_requests(now) {
            return self.hold(state, now, asked, request, effects);
        }
        match request {
            Request::Command(command) if !command.is_write() => {
                if !self.queue.is_empty() && (follows || !self.serves(state)) {
                    self.queue.push_read(ticket, deadline_us, |out| command.encode(out));
                } else {
                    answer_read(state, now, ticket, command, effects);
                }
            }
            Request::Command(command) => {
                // Its node checks the keys of a long command, which are in the parts: those may not be applied.
                if watching::ends_long(command) && !self.serves(state) {
                    return self.hold(state, now, asked, request, effects);
                }
                let (time, planted) = (state.clock(now), state.options.planted);
                if !watching::may_be_ordered(command, &state.table, state.epoch, time, planted) {
                    return effects.abort(ticket);
                }
                let unchecked = watching::unchecked(command, &state.table, planted);
                let command = unchecked.as_ref().unwrap_or(command);
                if self.takes_effect_at_once(state) {
                    self.write_at_once(state, now, Some(ticket), command, effects);
                } else if self.can_commit(state, now) {
                    self.write(state, now, (Some(ticket), deadline_us), command, effects);
                } else {
                    self.hold(state, now, asked, request, effects);
                }
            }
            Request::Wait { offset, count } => {
                let (offset, count) = ((*offset).min(self.head), *count);
                if self.queue.is_empty() {
                    self.begin_wait(now, Wait { ticket, offset, count, deadline_us }, effects);
                } else {
                    self.queue.push_wait(ticket, deadline_us, offset, count);
                }
            }
        }
    }

    /// Whether a write need not wait for followers, the disk or earlier requests.
    #[inline]
    fn takes_effect_at_once(&self, state: &State) -> bool {
        self.needed == 0 && !state.journal.is_kept() && self.queue.is_empty()
    }

    /// `acks = none`: a write takes effect at once; the followers get it at the end of the turn.
    #[inline]
    fn write_at_once(
        &mut self,
        state: &mut State,
        now: Now,
        ticket: Option<Ticket>,
        command: &Command<'_>,
        effects: &mut Effects,
    ) {
        let time = state.clock(now);
        if !self.followers.is_empty() {
            self.build(state, now, time, command, effects);
        }
        self.head += 1;
        state.time = time;
        state.applied = self.head;
        let start = effects.replies.len();
        let version = state.table.apply(command, self.head, time, &mut effects.replies);
        match ticket {
            Some(ticket) => effects.done(ticket, start, version, self.head),
            None => effects.replies.truncate(start),
        }
    }

    /// Orders a write, which takes effect, and becomes visible, when enough followers hold it.
    #[inline]
    fn write(
        &mut self,
        state: &mut State,
        now: Now,
        (ticket, deadline_us): (Option<Ticket>, u64),
        command: &Command<'_>,
        effects: &mut Effects,
    ) {
        if let Some(ticket) = ticket
            && self.uncommitted_bytes + self.builder.len() > state.timing.uncommitted_bytes_max
        {
            state.counters.refused_writes += 1;
            let error = "TRYAGAIN OVERLOADED too many bytes of writes wait for the followers; nothing was written, try again";
            return effects.refuse(ticket, error);
        }
        // Nor may the time be before that of unapplied records.
        let time = not_before(state.clock(now), self.builder_time);
        self.build(state, now, time, command, effects);
        self.head += 1;
        self.queue.push_write(ticket, deadline_us);
    }

    #[inline]
    fn build(
        &mut self,
        state: &mut State,
        now: Now,
        time: u64,
        command: &Command<'_>,
        effects: &mut Effects,
    ) {
        // All records of a batch share one time, and a batch is bounded even when a turn is not.
        if self.builder_count > 0
            && (self.builder_time != time || self.builder.len() >= state.timing.batch_bytes)
        {
            self.seal(state, now, effects);
        }
        self.builder_time = time;
        command.encode(&mut self.builder);
        self.builder_count += 1;
    }

    /// Whether enough followers are live to commit a write that is ordered now.
    pub(super) fn can_commit(&self, state: &State, now: Now) -> bool {
        let is_live = |follower: &&Follower| follower.is_live(state, now);
        match state.options.acks {
            Acks::All => self.followers.iter().filter(|follower| follower.is_awaited).all(|f| is_live(&f)),
            _ => self.followers.iter().filter(is_live).count() >= self.needed,
        }
    }

    // Commit.

    /// Returns the last offset that enough followers hold, by the keyspace's `acks`.
    fn committed(&self, state: &State) -> Version {
        let planted = state.options.planted;
        let needed = self.needed.saturating_sub(planted.has(Fault::OneAcknowledgementTooFew).into());
        if needed == 0 || planted.has(Fault::VisibleBeforeCommitted) {
            return self.head;
        }
        if state.options.acks == Acks::All {
            let followers = self.followers.iter().filter(|follower| follower.is_awaited);
            return followers.map(|follower| follower.acked).min().unwrap_or(self.head);
        }
        // Finds the needed-th largest without sorting: groups have at most a handful of members.
        let held_by = |offset| self.followers.iter().filter(|follower| follower.acked >= offset).count();
        let acked = self.followers.iter().map(|follower| follower.acked);
        acked.filter(|offset| held_by(*offset) >= needed).max().unwrap_or(0)
    }

    /// Applies and answers everything that is committed by now. Applied writes are answered, so without a lease nothing
    /// is applied: another leader may have given up what this one holds.
    fn commit(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        if !state.is_leased(now) {
            return;
        }
        let before = state.applied;
        let committed = self.committed(state).min(state.last().offset);
        let committed = match state.options.planted.has(Fault::LeaderCountsUnrecorded) {
            true => committed,
            false => committed.min(state.journal.held()),
        };
        let committed = state.as_far_as_it_goes(committed);
        if committed < self.serves_from {
            return; // Inherited records are committed with the first record of this epoch, not before.
        }
        while state.applied < committed {
            let batch =
                state.backlog.following(state.applied).cloned().expect("uncommitted batches are kept");
            if batch.end().offset > committed {
                break;
            }
            let mut windows = batch.windows();
            while windows.advance(&state.table) {
                for (offset, command) in windows.commands() {
                    self.answer_due(state, now, effects);
                    let entry = self.queue.pop_write().expect("each uncommitted record has its entry");
                    match entry.ticket {
                        Some(ticket) => {
                            let start = effects.replies.len();
                            let replies = &mut effects.replies;
                            let version = state.table.apply(command, *offset, batch.time, replies);
                            effects.done(ticket, start, version, *offset);
                        }
                        // An earlier leader may have answered the record's client already.
                        None => state.table.apply_unasked(command, *offset, batch.time),
                    }
                }
            }
            self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(batch.records.len());
            state.applied_batch(&batch);
        }
        if state.applied > before {
            self.what_is_committed_is_held_by_enough(state);
            self.answer_due(state, now, effects);
            effects.trace.push(Trace::Committed { offset: state.applied });
        }
    }

    /// Answers the reads, and begins the `WAIT`s, that followed writes which have now taken effect.
    fn answer_due(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        while let Some(entry) = self.queue.pop_due() {
            match (entry.waiting, entry.ticket) {
                (Waiting::Read { start, length }, ticket) => {
                    if let Some(ticket) = ticket
                        && effects.replies.is_over_full()
                    {
                        effects.refuse(ticket, TOO_MUCH_AT_ONCE);
                    } else if let Some(ticket) = ticket {
                        let bytes = self.queue.read_bytes(start, length);
                        let command = Command::decode(&mut Reader::of_checked(bytes)).expect("we encoded it");
                        answer_read(state, now, ticket, &command, effects);
                    }
                    self.queue.release_bytes(start, length);
                }
                (Waiting::Wait { offset, count }, Some(ticket)) => {
                    let wait = Wait { ticket, offset, count, deadline_us: entry.deadline_us };
                    self.begin_wait(now, wait, effects);
                }
                _ => {}
            }
        }
    }

    // Followers.

    pub(super) fn link(&mut self, state: &mut State, peer: NodeId, up: bool, effects: &mut Effects) {
        let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == peer) else {
            return;
        };
        follower.link_up = up;
        if !up {
            follower.leave("the link broke", state, effects);
        }
    }

    pub(super) fn message(
        &mut self,
        state: &mut State,
        now: Now,
        from: NodeId,
        message: Message<'_>,
        effects: &mut Effects,
    ) {
        let Some(index) = self.followers.iter().position(|follower| follower.id == from) else {
            return;
        };
        self.followers[index].heard_us = now.monotonic_us;
        self.followers[index].link_up = true;
        match message {
            Message::Join { last, applied, join, .. } => {
                self.join(state, now, index, (last, applied, join), effects);
            }
            Message::Acknowledge { epoch, join, offset, rests } if epoch == state.epoch => {
                if offset > self.head {
                    let why = "it acknowledges what was never written";
                    return effects.trace.push(Trace::Rejected { peer: from, why });
                }
                let follower = &mut self.followers[index];
                if join != follower.join {
                    // One of the two questions is late: this message's, if the follower still confirms the other one.
                    // Otherwise it joins again when it is no longer served; but a quiescent follower would not.
                    if !follower.is_at_rest && !follower.confirmed_within(now, state.timing.silence_ms) {
                        follower.leave("it acknowledges by another question", state, effects);
                    }
                    return;
                }
                if follower.is_streaming() {
                    follower.confirm(now);
                }
                follower.confirms_rest = rests && offset == self.head;
                if offset > follower.acked && follower.is_streaming() {
                    follower.acknowledge(state, offset);
                    self.commit(state, now, effects);
                    self.end_waits(state, now, effects);
                }
                self.release_held(state, now, effects);
            }
            Message::SnapshotProgress { epoch, transfer, next } if epoch == state.epoch => {
                if let Service::Snapshot(sender) = &mut self.followers[index].service {
                    sender.progress(now, transfer, next);
                }
            }
            _ => {}
        }
    }

    // The end of a turn, and time.

    pub(super) fn seal(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        if self.followers.is_empty() && !state.journal.is_kept() {
            // No follower will request the history.
            return state.backlog.reset(Position { epoch: state.epoch, offset: state.applied });
        }
        if self.builder_count == 0 {
            return;
        }
        if state.applied < self.head {
            self.uncommitted_bytes += self.builder.len();
        }
        let batch = Batch {
            epoch: state.epoch,
            first: state.last().offset + 1,
            count: self.builder_count,
            time: self.builder_time,
            received_us: now.monotonic_us,
            records: self.builder.as_slice().into(),
            stream_end: 0,
        };
        state.push(batch, effects);
        self.builder.clear();
        self.builder.shrink_to(2 * state.timing.batch_bytes);
        self.builder_count = 0;
    }

    pub(super) fn flush(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.seal(state, now, effects);
        self.ask |= state.handover().is_some();
        self.is_cut_short = false;
        let mut followers = std::mem::take(&mut self.followers);
        let mut encoded = None;
        for follower in &mut followers {
            self.serve(state, now, follower, &mut encoded, effects);
        }
        self.followers = followers;
        self.ask = false;
        self.advance_handover(state, now, effects);
        self.trim(state, effects);
    }

    pub(super) fn tick(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        if state.rest.is_resting() {
            return;
        }
        self.watch_lease(state, now, effects);
        self.end_overdue(state, now, effects);
        self.end_waits(state, now, effects);
        self.watch_followers(state, now, effects);
        self.watch_in_sync(state, now, effects);
        self.advance_handover(state, now, effects);
        const PURGED_KEYS_MAX: usize = 1000;
        if self.held.is_empty()
            && state.applied >= self.purge
            && state.takes_requests(now)
            && self.can_commit(state, now)
            && let Some(until) = state.table.purge_until(state.clock(now), PURGED_KEYS_MAX)
        {
            let command = Command::Purge { until };
            match self.takes_effect_at_once(state) {
                true => self.write_at_once(state, now, None, &command, effects),
                false => self.write(state, now, (None, u64::MAX), &command, effects),
            }
            self.purge = self.head;
        }
        if state.applied >= self.dropped && state.takes_requests(now) && self.can_commit(state, now) {
            let dropped: Vec<_> = state.reach.to_drop(now, state.id, &state.table).collect();
            for command in dropped {
                match self.takes_effect_at_once(state) {
                    true => self.write_at_once(state, now, None, &command, effects),
                    false => self.write(state, now, (None, u64::MAX), &command, effects),
                }
                self.dropped = self.head;
            }
        }
        self.watch_rest(state, now);
    }

    fn end_overdue(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        let is_leased = state.is_leased(now);
        for (ticket, waiting) in self.queue.take_overdue(now.monotonic_us) {
            match waiting {
                Waiting::Write => {
                    state.counters.unknown_writes += 1;
                    match state.options.planted.has(Fault::UnknownReportedAsRefused) {
                        true => effects.refuse(ticket, "NOREPLICAS too few followers acknowledged the write"),
                        false if !is_leased => effects.unknown(ticket, LEASE_LOST),
                        false => effects.unknown(ticket, UNACKNOWLEDGED),
                    }
                }
                _ if !is_leased => effects.refuse(ticket, NO_LEASE),
                Waiting::Read { .. } => effects.refuse(ticket, READ_BEHIND),
                Waiting::Wait { offset, .. } => {
                    let start = effects.replies.len();
                    effects.replies.integer(self.held_by(offset) as i64);
                    effects.done(ticket, start, 0, 0);
                }
            }
        }
        self.end_held(state, now, effects);
        self.release_held(state, now, effects);
    }

    /// Steps down: clients that wait for a write get the outcome unknown; requests that have not happened are handed on
    /// to the next leader.
    pub(super) fn resign(mut self, state: &mut State, now: Now, effects: &mut Effects) {
        for Entry { ticket, deadline_us, waiting } in self.queue.drain() {
            let Some(ticket) = ticket else { continue };
            match waiting {
                Waiting::Write => {
                    state.counters.unknown_writes += 1;
                    effects.unknown(ticket, DEPOSED_WRITE);
                }
                Waiting::Read { start, length } => {
                    effects.hand_on(ticket, NOBODY, deadline_us, self.queue.read_bytes(start, length));
                }
                Waiting::Wait { .. } => effects.refuse(ticket, DEPOSED),
            }
        }
        self.held.hand_on(effects);
        std::mem::take(&mut self.waits).into_iter().for_each(|wait| effects.refuse(wait.ticket, DEPOSED));
        self.seal(state, now, effects);
        assert!(self.builder_count == 0 || self.followers.is_empty(), "what it wrote is of its own epoch");
        for follower in &mut self.followers {
            follower.leave("the leader was deposed", state, effects);
        }
    }

    pub(super) fn wakeup_us(&self, state: &State, now: Now) -> u64 {
        const WAITING_MS: u64 = 10;
        if state.rest.is_resting() {
            return u64::MAX;
        }
        let requests = !self.queue.is_empty() || !self.held.is_empty() || !self.waits.is_empty();
        let waits = requests || state.handover().is_some();
        let snapshot = self.followers.iter().any(|follower| matches!(follower.service, Service::Snapshot(_)));
        let lacks_commit = |follower: &Follower| {
            follower.sent_commit < state.applied && matches!(follower.service, Service::Streaming { .. })
        };
        let delay_ms = match () {
            () if self.is_cut_short => 0,
            () if self.followers.iter().any(|follower| follower.is_behind(self.head)) => {
                state.timing.lazy_send_ms
            }
            () if self.followers.iter().any(lacks_commit) => state.timing.commit_notice_ms,
            () if waits || snapshot || state.table.purge_until(state.clock(now), 1).is_some() => WAITING_MS,
            () => state.timing.heartbeat_ms,
        };
        now.monotonic_us + delay_ms * 1000
    }

    pub(super) fn head(&self) -> Version {
        self.head
    }

    /// The number of commands that are not applied, and their bytes.
    pub(super) fn unapplied(&self, state: &State) -> (usize, usize) {
        let (held, held_bytes) = self.held.size();
        let ordered_bytes = self.uncommitted_bytes + self.builder.len();
        match self.head - state.applied {
            0 => (held, held_bytes),
            records => (records as usize + held, ordered_bytes + held_bytes),
        }
    }

    pub(super) fn is_writable(&self, state: &State, now: Now) -> bool {
        state.takes_requests(now) && self.can_commit(state, now)
    }
}

const UNACKNOWLEDGED: &str = "UNKNOWN the write was sent to the followers and too few acknowledged it in time; it may still take effect";
const LEASE_LOST: &str =
    "UNKNOWN the write was sent to the followers and the leader's lease ran out; it may still take effect";
const READ_BEHIND: &str =
    "NOREPLICAS the read stands behind a write that too few followers acknowledged in time";
const DEPOSED_WRITE: &str =
    "UNKNOWN the leader was deposed before the write was committed; it may still take effect";
pub(super) const DEPOSED: &str = "CLUSTERDOWN NOLEADER the leader was deposed; nothing was done";

fn is_read(request: &Request<'_>) -> bool {
    matches!(request, Request::Command(command) if !command.is_write())
}

#[inline]
fn answer_read(state: &mut State, now: Now, ticket: Ticket, command: &Command<'_>, effects: &mut Effects) {
    let start = effects.replies.len();
    let (epoch, time) = (state.epoch, state.clock(now));
    let version = watching::read(&mut state.table, epoch, command, time, &mut effects.replies);
    effects.done(ticket, start, version, 0);
}
