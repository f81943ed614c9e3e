//! The leader: orders writes, streams them, commits what enough followers hold, and answers.
//!
//! A leader that takes over may hold records of which it does not know whether they are committed. It writes
//! a record of its own behind them, and shows nothing to anybody before enough followers hold that one. Copies
//! of an older epoch's record prove nothing by themselves: a replica with a newer, never committed record in
//! its place would win the next recovery (figure 8 of the Raft paper).

use super::backlog::Batch;
use super::message::{Message, Position};
use super::options::Acks;
use super::queue::{Queue, Waiting};
use super::resync::Sender;
use super::state::State;
use crate::contract::{Effects, NodeId, Now, Request, Ticket, Trace};
use kv::codec::Reader;
use kv::{Command, Reply, Version};
use std::collections::VecDeque;
use std::ops::Range;

/// How a follower is served.
#[derive(Debug)]
enum Service {
    /// It has not joined in this epoch.
    Absent,
    /// It gets a snapshot.
    Snapshot(Sender),
    /// It gets batches; everything up to `sent` is on its way.
    Streaming { sent: Position },
}

/// What the leader knows of one follower.
#[derive(Debug)]
struct Follower {
    id: NodeId,
    service: Service,
    /// The question that its service answers. What it acknowledges as an answer to another does not count.
    join: u64,
    /// It holds everything up to here: by its own word, since it joined. 0: it has not said yet.
    acked: Version,
    heard_us: u64,
    sent_us: u64,
    /// The commit offset that it was last told.
    sent_commit: Version,
    link_up: bool,
    /// Whether it was live when last looked at, to tell changes.
    was_live: bool,
}

impl Follower {
    /// Serves it no more, until it asks again.
    fn leave(&mut self, why: &'static str, state: &mut State, effects: &mut Effects) {
        if let Service::Snapshot(sender) = std::mem::replace(&mut self.service, Service::Absent) {
            sender.abandon(state, why, effects);
        }
    }

    /// Behind which offset it needs the history: known while it is being joined to it.
    fn needs_after(&self) -> Option<Version> {
        match &self.service {
            Service::Snapshot(sender) => Some(sender.position.offset),
            Service::Streaming { sent } if self.acked == 0 => Some(sent.offset),
            _ => None,
        }
    }

    fn is_live(&self, now: Now, silence_ms: u64) -> bool {
        self.link_up
            && matches!(self.service, Service::Streaming { .. })
            && now.ms_since(self.heard_us) <= silence_ms
    }
}

/// A request that waits, in order, until enough followers are live. It was not written anywhere yet, so it
/// can still be refused.
#[derive(Debug)]
struct Held {
    ticket: Ticket,
    deadline_us: u64,
    request: HeldRequest,
}

#[derive(Debug)]
enum HeldRequest {
    Command(Vec<u8>),
    Wait { offset: Version, count: u32 },
}

/// A `WAIT` whose writes are committed, or need not be.
#[derive(Debug)]
struct Wait {
    ticket: Ticket,
    offset: Version,
    count: u32,
    deadline_us: u64,
}

/// How one follower stands, for `INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowerStatus {
    /// Its node.
    pub id: NodeId,
    /// `streaming`, `snapshot`, `silent` or `absent`.
    pub state: &'static str,
    /// The last offset that it acknowledged.
    pub acked: Version,
    /// How many records it has not acknowledged.
    pub lag: u64,
    /// For how long the oldest of them has been waiting, in milliseconds.
    pub lag_ms: u64,
}

/// The leader's role.
#[derive(Debug)]
pub(super) struct Leader {
    /// The last offset given, sealed into a batch or not.
    head: Version,
    /// Nothing is served before this offset is committed: the first record written here, if any was inherited.
    serves_from: Version,
    /// The last purge ordered: no other before it is done.
    purge: Version,
    /// This turn's records.
    builder: Vec<u8>,
    builder_count: u32,
    builder_time: u64,
    queue: Queue,
    held: VecDeque<Held>,
    waits: Vec<Wait>,
    followers: Vec<Follower>,
    transfers: u64,
    /// True when a `WAIT` came in that the next message must ask acknowledgements for.
    ask: bool,
}

impl Leader {
    /// Takes over everything that is held.
    pub(super) fn new(state: &mut State, now: Now, effects: &mut Effects) -> Leader {
        let (epoch, offset) = (state.epoch, state.last().offset);
        effects.trace.push(Trace::Role { role: "leader", epoch, offset });
        let follower = |id| Follower {
            id,
            service: Service::Absent,
            join: 0,
            acked: 0,
            heard_us: now.monotonic_us,
            sent_us: 0,
            sent_commit: 0,
            link_up: true,
            was_live: false,
        };
        let mut leader = Leader {
            head: offset,
            serves_from: 0,
            purge: 0,
            builder: Vec::new(),
            builder_count: 0,
            builder_time: 0,
            queue: Queue::default(),
            held: VecDeque::new(),
            waits: Vec::new(),
            followers: state.peers().map(follower).collect(),
            transfers: 0,
            ask: false,
        };
        if leader.followers.is_empty() {
            state.apply_until(offset, effects); // Nobody is to be waited for, and nobody else will ever lead.
        }
        if state.applied < offset {
            (state.applied..offset).for_each(|_| leader.queue.push_write(None, u64::MAX));
            // Its own first record changes nothing: it removes the keys that expired before all time.
            leader.write(state, now, (None, u64::MAX), &Command::Purge { until: 0 }, effects);
            leader.serves_from = leader.head;
            leader.reconsider(state, now, effects);
        }
        leader
    }

    /// The group's in-sync set has changed, or nobody is to be waited for.
    pub(super) fn reconsider(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.seal(state, now);
        self.commit(state, now, effects);
        self.end_waits(now, effects);
        self.release_held(state, now, effects);
    }

    /// Whether what it shows is known to be committed.
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
        request: Request<'_>,
        effects: &mut Effects,
    ) {
        if !self.held.is_empty() && (follows || !is_read(&request)) {
            return self.hold(state, now, (ticket, deadline_us), request, effects);
        }
        match request {
            Request::Command(command) if !command.is_write() => {
                if !self.queue.is_empty() && (follows || !self.serves(state)) {
                    self.queue.push_read(ticket, deadline_us, |out| command.encode(out));
                } else {
                    answer_read(state, now, ticket, &command, effects);
                }
            }
            Request::Command(command) => {
                if state.acks_needed() == 0 && self.queue.is_empty() {
                    self.write_at_once(state, now, Some(ticket), &command, effects);
                } else if self.can_commit(state, now) {
                    self.write(state, now, (Some(ticket), deadline_us), &command, effects);
                } else {
                    self.hold(state, now, (ticket, deadline_us), request, effects);
                }
            }
            Request::Wait { offset, count } => {
                let offset = offset.min(self.head);
                if self.queue.is_empty() {
                    self.begin_wait(state, now, Wait { ticket, offset, count, deadline_us }, effects);
                } else {
                    self.queue.push_wait(ticket, deadline_us, offset, count);
                }
            }
        }
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
            self.build(state, now, time, command);
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

    /// A write takes effect, and is seen, when enough followers hold it.
    #[inline]
    fn write(
        &mut self,
        state: &mut State,
        now: Now,
        (ticket, deadline_us): (Option<Ticket>, u64),
        command: &Command<'_>,
        effects: &mut Effects,
    ) {
        let uncommitted = state.backlog.bytes_between(state.applied, state.last().offset) as usize;
        if let Some(ticket) = ticket
            && uncommitted + self.builder.len() > state.timing.uncommitted_bytes_max
        {
            state.counters.refused_writes += 1;
            let error =
                "OVERLOADED too many bytes of writes wait for the followers; nothing was written, try again";
            return effects.refuse(ticket, error);
        }
        // Not before the records that are not applied yet, either.
        let time = state.clock(now).max(self.builder_time);
        self.build(state, now, time, command);
        self.head += 1;
        self.queue.push_write(ticket, deadline_us);
    }

    #[inline]
    fn build(&mut self, state: &mut State, now: Now, time: u64, command: &Command<'_>) {
        // All records of a batch have one time; and a batch is bounded even when a turn is not.
        if self.builder_count > 0
            && (self.builder_time != time || self.builder.len() >= state.timing.batch_bytes)
        {
            self.seal(state, now);
        }
        self.builder_time = time;
        command.encode(&mut self.builder);
        self.builder_count += 1;
    }

    fn hold(
        &mut self,
        state: &State,
        now: Now,
        (ticket, deadline_us): (Ticket, u64),
        request: Request<'_>,
        effects: &mut Effects,
    ) {
        const HELD_MAX: usize = 100_000;
        if self.held.len() >= HELD_MAX {
            return effects.refuse(ticket, "NOREPLICAS Not enough good replicas to write.");
        }
        let deadline_us = deadline_us.min(now.monotonic_us + state.timing.hold_ms * 1000);
        let request = match request {
            Request::Command(command) => {
                let mut bytes = Vec::new();
                command.encode(&mut bytes);
                HeldRequest::Command(bytes)
            }
            Request::Wait { offset, count } => HeldRequest::Wait { offset, count },
        };
        self.held.push_back(Held { ticket, deadline_us, request });
    }

    /// Takes up what was held, in order, if it can go on now.
    fn release_held(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        if self.held.is_empty() || !self.can_commit(state, now) {
            return;
        }
        for held in std::mem::take(&mut self.held) {
            self.take_up(state, now, held, effects);
        }
    }

    fn take_up(&mut self, state: &mut State, now: Now, held: Held, effects: &mut Effects) {
        let head = (held.ticket, true, held.deadline_us);
        match held.request {
            HeldRequest::Command(bytes) => {
                let command = Command::decode(&mut Reader::new(&bytes)).expect("we encoded it");
                self.request(state, now, head, Request::Command(command), effects);
            }
            HeldRequest::Wait { offset, count } => {
                self.request(state, now, head, Request::Wait { offset, count }, effects);
            }
        }
    }

    fn can_commit(&self, state: &State, now: Now) -> bool {
        let silence_ms = state.timing.silence_ms;
        let is_live = |follower: &&Follower| follower.is_live(now, silence_ms);
        match state.options.acks {
            Acks::All => {
                let in_sync = &state.configuration.in_sync;
                self.followers.iter().filter(|follower| in_sync.contains(&follower.id)).all(|f| is_live(&f))
            }
            _ => self.followers.iter().filter(is_live).count() >= state.acks_needed(),
        }
    }

    // Commit.

    /// What enough followers hold, by the keyspace's rule.
    fn committed(&self, state: &State) -> Version {
        let needed = state.acks_needed();
        let in_sync = &state.configuration.in_sync;
        if needed == 0 {
            return self.head;
        }
        if state.options.acks == Acks::All {
            let followers = self.followers.iter().filter(|follower| in_sync.contains(&follower.id));
            return followers.map(|follower| follower.acked).min().unwrap_or(self.head);
        }
        // The needed-th largest, without sorting: groups have at most a handful of members.
        let held_by = |offset| self.followers.iter().filter(|follower| follower.acked >= offset).count();
        let acked = self.followers.iter().map(|follower| follower.acked);
        acked.filter(|offset| held_by(*offset) >= needed).max().unwrap_or(0)
    }

    /// Applies and answers everything that is committed by now.
    fn commit(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        let before = state.applied;
        let committed = self.committed(state).min(state.last().offset);
        if committed < self.serves_from {
            return; // What was inherited is committed with the first record of this epoch, not before.
        }
        while state.applied < committed {
            let batch =
                state.backlog.following(state.applied).cloned().expect("uncommitted batches are kept");
            if batch.end().offset > committed {
                break;
            }
            for (offset, command) in batch.commands() {
                self.answer_due(state, now, effects);
                let entry = self.queue.pop_write().expect("each uncommitted record has its entry");
                let start = effects.replies.len();
                let version = state.table.apply(&command, offset, batch.time, &mut effects.replies);
                match entry.ticket {
                    Some(ticket) => effects.done(ticket, start, version, offset),
                    None => effects.replies.truncate(start),
                }
            }
            state.applied_batch(&batch);
        }
        if state.applied > before {
            self.answer_due(state, now, effects);
            effects.trace.push(Trace::Committed { offset: state.applied });
        }
    }

    /// Answers the reads, and begins the `WAIT`s, that stood behind writes which have now taken effect.
    fn answer_due(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        while let Some(entry) = self.queue.pop_due() {
            match (entry.waiting, entry.ticket) {
                (Waiting::Read { start, length }, ticket) => {
                    if let Some(ticket) = ticket {
                        let bytes = self.queue.read_bytes(start, length);
                        let command = Command::decode(&mut Reader::new(bytes)).expect("we encoded it");
                        answer_read(state, now, ticket, &command, effects);
                    }
                    self.queue.release_bytes(start, length);
                }
                (Waiting::Wait { offset, count }, Some(ticket)) => {
                    let wait = Wait { ticket, offset, count, deadline_us: entry.deadline_us };
                    self.begin_wait(state, now, wait, effects);
                }
                _ => {}
            }
        }
    }

    // WAIT.

    fn held_by(&self, offset: Version) -> usize {
        self.followers.iter().filter(|follower| follower.acked >= offset).count()
    }

    fn begin_wait(&mut self, state: &State, now: Now, wait: Wait, effects: &mut Effects) {
        let held_by = self.held_by(wait.offset);
        if held_by >= wait.count as usize || wait.deadline_us <= now.monotonic_us {
            end_wait(&wait, held_by, effects);
        } else {
            self.ask |= state.acks_needed() == 0;
            self.waits.push(wait);
        }
    }

    fn end_waits(&mut self, now: Now, effects: &mut Effects) {
        let mut waits = std::mem::take(&mut self.waits);
        waits.retain(|wait| {
            let held_by = self.held_by(wait.offset);
            let ends = held_by >= wait.count as usize || wait.deadline_us <= now.monotonic_us;
            if ends {
                end_wait(wait, held_by, effects);
            }
            !ends
        });
        self.waits = waits;
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
            Message::Acknowledge { epoch, join, offset } if epoch == state.epoch => {
                if offset > self.head {
                    let why = "it acknowledges what was never written";
                    return effects.trace.push(Trace::Rejected { peer: from, why });
                }
                let follower = &mut self.followers[index];
                if join != follower.join {
                    if join > follower.join {
                        // An older question came late and was answered last. Left alone, it asks again.
                        follower.service = Service::Absent;
                    }
                    return;
                }
                if offset > follower.acked && matches!(follower.service, Service::Streaming { .. }) {
                    follower.acked = offset;
                    self.commit(state, now, effects);
                    self.end_waits(now, effects);
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

    /// A follower says what it has: it gets the rest out of the backlog if its history is a part of ours that
    /// is still kept, else a snapshot.
    fn join(
        &mut self,
        state: &mut State,
        now: Now,
        index: usize,
        (last, applied, join): (Position, Version, u64),
        effects: &mut Effects,
    ) {
        self.seal(state, now);
        let id = self.followers[index].id;
        self.followers[index].leave("the follower began anew", state, effects);
        let common = state.backlog.common_with(last);
        let service = match common.filter(|common| common.offset >= applied) {
            Some(after) => {
                state.counters.partial_resyncs += 1;
                effects.trace.push(Trace::PartialResync { follower: id, after: after.offset });
                let resume = Message::Resume { epoch: state.epoch, join, after, head: self.head };
                effects.send([id], |out| resume.encode(out));
                Service::Streaming { sent: after }
            }
            None => {
                let why = match common {
                    None if last.offset == 0 => "it has nothing",
                    None if last.offset < state.backlog.base().offset => {
                        "what it lacks is no longer in the backlog"
                    }
                    None => "its history is another one",
                    Some(_) => "it has applied what is not in this history",
                };
                effects.trace.push(Trace::FullResync { follower: id, offset: state.applied, why });
                self.transfers += 1;
                Service::Snapshot(Sender::begin(state, now, id, (join, self.transfers), effects))
            }
        };
        let follower = &mut self.followers[index];
        (follower.join, follower.acked, follower.service) = (join, 0, service);
        follower.sent_us = 0; // It hears from us at the end of this turn, records or not.
    }

    // The end of a turn, and time.

    fn seal(&mut self, state: &mut State, now: Now) {
        if self.followers.is_empty() {
            // Nobody will ask for the history.
            return state.backlog.reset(Position { epoch: state.epoch, offset: state.applied });
        }
        if self.builder_count == 0 {
            return;
        }
        state.backlog.push(Batch {
            epoch: state.epoch,
            first: state.last().offset + 1,
            count: self.builder_count,
            time: self.builder_time,
            received_us: now.monotonic_us,
            records: self.builder.as_slice().into(),
            stream_end: 0,
        });
        self.builder.clear();
        self.builder.shrink_to(2 * state.timing.batch_bytes);
        self.builder_count = 0;
    }

    pub(super) fn flush(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.seal(state, now);
        let mut followers = std::mem::take(&mut self.followers);
        let mut encoded = None;
        for follower in &mut followers {
            self.serve(state, now, follower, &mut encoded, effects);
        }
        self.followers = followers;
        self.ask = false;
        self.trim(state, effects);
        state.check();
    }

    /// Sends a follower what it can take. `encoded` is the message that the follower before it got: usually
    /// the same one, which is then encoded once.
    fn serve(
        &mut self,
        state: &mut State,
        now: Now,
        follower: &mut Follower,
        encoded: &mut Option<(Position, Range<usize>)>,
        effects: &mut Effects,
    ) {
        if let Service::Snapshot(sender) = &mut follower.service {
            let position = sender.position;
            if !sender.advance(state, effects) {
                return;
            }
            follower.service = Service::Streaming { sent: position };
        }
        let Service::Streaming { sent } = &mut follower.service else {
            return;
        };
        let acknowledge = state.acks_needed() > 0 || self.ask;
        let mut sent_any = false;
        while let Some(batch) = state.backlog.following(sent.offset) {
            if state.backlog.bytes_between(follower.acked, sent.offset) >= state.timing.window_bytes as u64 {
                break;
            }
            match encoded {
                Some((previous, bytes)) if previous == sent => {
                    effects
                        .messages
                        .push(crate::contract::Outgoing { to: follower.id, bytes: bytes.clone() });
                }
                _ => {
                    let message = state.append(*sent, Some(batch), self.head, acknowledge);
                    let start = effects.bytes.len();
                    effects.send([follower.id], |out| message.encode(out));
                    *encoded = Some((*sent, start..effects.bytes.len()));
                }
            }
            *sent = batch.end();
            sent_any = true;
        }
        if sent.offset < self.head && state.backlog.following(sent.offset).is_none() {
            // It fell out of the backlog: it will find the gap by the next heartbeat and join again.
            let why = "it fell behind the backlog";
            effects.trace.push(Trace::ResyncAbandoned { follower: follower.id, why });
            sent.offset = self.head;
        }
        let quiet_ms = now.ms_since(follower.sent_us);
        let due = quiet_ms >= state.timing.heartbeat_ms
            || (follower.sent_commit < state.applied && quiet_ms >= state.timing.commit_notice_ms)
            || (self.ask && follower.acked < self.head);
        if due && !sent_any {
            let message = state.append(*sent, None, self.head, true);
            effects.send([follower.id], |out| message.encode(out));
            sent_any = true;
        }
        if sent_any {
            follower.sent_us = now.monotonic_us;
            follower.sent_commit = state.applied;
        }
    }

    /// Drops history that is beyond the backlog's size, but nothing that a snapshot under way leads up to,
    /// unless that grows out of bounds.
    fn trim(&mut self, state: &mut State, effects: &mut Effects) {
        let limit = (state.options.backlog_bytes + state.timing.resync_backlog_bytes_max) as u64;
        let applied_bytes = state.backlog.bytes_between(state.backlog.base().offset, state.applied);
        for follower in &mut self.followers {
            if applied_bytes > limit && follower.needs_after().is_some_and(|after| after < state.applied) {
                follower.leave("too much was written meanwhile", state, effects);
            }
        }
        let needed = self.followers.iter().filter_map(Follower::needs_after);
        let keep_after = needed.fold(state.applied, Version::min);
        state.backlog.trim(state.options.backlog_bytes, keep_after);
    }

    pub(super) fn tick(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.end_overdue(state, now, effects);
        self.end_waits(now, effects);
        self.watch_followers(state, now, effects);
        const PURGED_KEYS_MAX: usize = 1000;
        if self.held.is_empty()
            && state.applied >= self.purge
            && self.can_commit(state, now)
            && let Some(until) = state.table.purge_until(state.clock(now), PURGED_KEYS_MAX)
        {
            let command = Command::Purge { until };
            match state.acks_needed() == 0 && self.queue.is_empty() {
                true => self.write_at_once(state, now, None, &command, effects),
                false => self.write(state, now, (None, u64::MAX), &command, effects),
            }
            self.purge = self.head;
        }
    }

    fn end_overdue(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        for (ticket, waiting) in self.queue.take_overdue(now.monotonic_us) {
            match waiting {
                Waiting::Write => {
                    state.counters.unknown_writes += 1;
                    effects.unknown(ticket, UNACKNOWLEDGED);
                }
                Waiting::Read { .. } => effects.refuse(ticket, READ_BEHIND),
                Waiting::Wait { offset, .. } => {
                    let start = effects.replies.len();
                    effects.replies.integer(self.held_by(offset) as i64);
                    effects.done(ticket, start, 0, 0);
                }
            }
        }
        while let Some(held) = self.held.pop_front_if(|held| held.deadline_us <= now.monotonic_us) {
            let is_write = match &held.request {
                HeldRequest::Command(bytes) => {
                    Command::decode(&mut Reader::new(bytes)).is_ok_and(|command| command.is_write())
                }
                HeldRequest::Wait { .. } => false,
            };
            if is_write {
                state.counters.refused_writes += 1;
                let (needed, acks) = (state.acks_needed(), acks_word(state.options.acks));
                let live = self.live(state, now);
                let error = format!(
                    "NOREPLICAS Not enough good replicas to write. acks={acks} needs {needed} live followers \
                     and {live} are; nothing was written"
                );
                effects.refuse(held.ticket, &error);
            } else {
                let earlier = std::mem::take(&mut self.held);
                self.take_up(state, now, held, effects);
                self.held = earlier;
            }
        }
        self.release_held(state, now, effects);
    }

    fn watch_followers(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        for follower in &mut self.followers {
            let live = follower.is_live(now, state.timing.silence_ms);
            if live != follower.was_live {
                follower.was_live = live;
                effects.trace.push(Trace::Follower { follower: follower.id, live });
            }
            if let Service::Snapshot(sender) = &follower.service
                && sender.is_stuck(state, now)
            {
                follower.leave("the follower does not get on", state, effects);
            }
        }
    }

    /// Steps down: whoever waits gets to know that nothing is certain, or that nothing happened.
    pub(super) fn resign(mut self, state: &mut State, now: Now, effects: &mut Effects) {
        for (ticket, waiting) in self.queue.drain_tickets() {
            match waiting {
                Waiting::Write => {
                    state.counters.unknown_writes += 1;
                    effects.unknown(ticket, DEPOSED_WRITE);
                }
                _ => effects.refuse(ticket, DEPOSED),
            }
        }
        std::mem::take(&mut self.held).into_iter().for_each(|held| effects.refuse(held.ticket, DEPOSED));
        std::mem::take(&mut self.waits).into_iter().for_each(|wait| effects.refuse(wait.ticket, DEPOSED));
        self.seal(state, now);
        for follower in &mut self.followers {
            follower.leave("the leader was deposed", state, effects);
        }
    }

    pub(super) fn wakeup_us(&self, state: &State, now: Now) -> u64 {
        const WAITING_MS: u64 = 10;
        let waits = !self.queue.is_empty() || !self.held.is_empty() || !self.waits.is_empty();
        let snapshot = self.followers.iter().any(|follower| matches!(follower.service, Service::Snapshot(_)));
        let untold = |follower: &Follower| {
            follower.sent_commit < state.applied && matches!(follower.service, Service::Streaming { .. })
        };
        let delay_ms = match () {
            () if self.followers.iter().any(untold) => state.timing.commit_notice_ms,
            () if waits || snapshot || state.table.purge_until(state.clock(now), 1).is_some() => WAITING_MS,
            () => state.timing.heartbeat_ms,
        };
        now.monotonic_us + delay_ms * 1000
    }

    fn live(&self, state: &State, now: Now) -> usize {
        self.followers.iter().filter(|follower| follower.is_live(now, state.timing.silence_ms)).count()
    }

    pub(super) fn head(&self) -> Version {
        self.head
    }

    pub(super) fn is_writable(&self, state: &State, now: Now) -> bool {
        self.can_commit(state, now)
    }

    pub(super) fn follower_status(&self, state: &State, now: Now) -> Vec<FollowerStatus> {
        let status = |follower: &Follower| {
            let live = follower.is_live(now, state.timing.silence_ms);
            let name = match &follower.service {
                Service::Absent => "absent",
                Service::Snapshot(_) => "snapshot",
                Service::Streaming { .. } if live => "streaming",
                Service::Streaming { .. } => "silent",
            };
            let oldest = state.backlog.following(follower.acked);
            FollowerStatus {
                id: follower.id,
                state: name,
                acked: follower.acked,
                lag: self.head.saturating_sub(follower.acked),
                lag_ms: oldest.map_or(0, |batch| now.ms_since(batch.received_us)),
            }
        };
        self.followers.iter().map(status).collect()
    }
}

const UNACKNOWLEDGED: &str = "UNKNOWN the write was sent to the followers and too few acknowledged it in time; it may still take effect";
const READ_BEHIND: &str =
    "NOREPLICAS the read stands behind a write that too few followers acknowledged in time";
const DEPOSED_WRITE: &str =
    "UNKNOWN the leader was deposed before the write was committed; it may still take effect";
const DEPOSED: &str = "NOLEADER the leader was deposed; nothing was done";

fn acks_word(acks: Acks) -> String {
    match acks {
        Acks::None => "none".into(),
        Acks::Count(count) => count.to_string(),
        Acks::Majority => "majority".into(),
        Acks::All => "all".into(),
    }
}

fn is_read(request: &Request<'_>) -> bool {
    matches!(request, Request::Command(command) if !command.is_write())
}

#[inline]
fn answer_read(state: &mut State, now: Now, ticket: Ticket, command: &Command<'_>, effects: &mut Effects) {
    let start = effects.replies.len();
    let version = state.table.read(command, state.clock(now), &mut effects.replies);
    effects.done(ticket, start, version, 0);
}

fn end_wait(wait: &Wait, held_by: usize, effects: &mut Effects) {
    let start = effects.replies.len();
    effects.replies.push(Reply::Integer(held_by as i64));
    effects.done(wait.ticket, start, 0, 0);
}
