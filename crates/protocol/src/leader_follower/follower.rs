//! A follower: takes the leader's records in order, acknowledges them, and applies those that are committed.

use super::backlog::Batch;
use super::message::Message;
use super::position::Position;
use super::state::State;
use super::transfer::{Received, Receiver, Sender};
use crate::contract::{Effects, NodeId, Now, Request, Ticket, Trace};
use crate::planted::Fault;
use kv::Version;

/// How the follower gets the leader's records.
#[derive(Debug)]
pub(super) enum Mode {
    /// It has sent a join question, or is about to. It takes no batches, so the content of the question stays true.
    Joining,
    /// It is receiving a snapshot.
    Filling(Box<Receiver>),
    /// It receives batches.
    Streaming,
}

/// The follower's role.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) mode: Mode,
    /// The number of its last join question.
    join: u64,
    asked_us: u64,
    /// How often it has asked it.
    times_asked: u32,
    /// Once it has reached this offset, it again holds everything that it ever acknowledged.
    pub(super) whole_at: Version,
    heard_us: u64,
    /// The commit offset that the leader reported; may be ahead of what is held.
    commit: Version,
    /// The leader's last offset, as last reported.
    leader_offset: Version,
    /// An offset that the leader reported, and when: once it is applied here, the newest reported one takes its place. So its age
    /// tells for how long records wait to be applied, however steadily more come.
    mark: (Version, u64),
    /// Whether the leader waits for an acknowledgement.
    acknowledge: bool,
    pub(super) acked: Version,
    acked_us: u64,
    /// Whether the leader's last message requested quiescence.
    rest_requested: bool,
    /// The newest snapshot transfer seen in this epoch: late messages of older ones are ignored.
    transfer: u64,
    /// A snapshot being sent to a leader that lost its memory.
    sender: Option<Sender>,
    /// A leader that holds less, and up to where it has been sent the rest.
    behind: Option<(NodeId, Position)>,
}

impl Follower {
    pub(super) fn new(state: &mut State, now: Now, effects: &mut Effects) -> Follower {
        let (epoch, offset) = (state.epoch, state.last().offset);
        effects.trace.push(Trace::Role { role: "follower", epoch, offset });
        Follower {
            mode: Mode::Joining,
            join: state.next_question(now),
            asked_us: 0,
            times_asked: 0,
            whole_at: 0,
            heard_us: now.monotonic_us,
            commit: state.applied,
            leader_offset: offset,
            mark: (offset, now.monotonic_us),
            acknowledge: false,
            acked: 0,
            acked_us: 0,
            rest_requested: false,
            transfer: 0,
            sender: None,
            behind: None,
        }
    }

    /// A follower answers reads only where stale reads are allowed, never with something older than what the client has
    /// seen, and never before it is intact. All other requests are redirected to the leader.
    pub(super) fn request(
        &mut self,
        state: &mut State,
        now: Now,
        (ticket, follows, seen): (Ticket, bool, Version),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        if let Request::Command(command) = request
            && !command.is_write()
            && state.options.reads_any
            && state.intact
            && !follows
            && state.applied >= seen
            // Whether the transaction is over that has locked a key is known to the leader.
            && !state.table.is_blocked(command)
        {
            let start = effects.replies.len();
            let version = state.table.read(command, state.clock(now), &mut effects.replies);
            return effects.done(ticket, start, version, 0);
        }
        effects.redirect(ticket, state.configuration.leader);
    }

    pub(super) fn link(
        &mut self,
        state: &mut State,
        now: Now,
        peer: NodeId,
        up: bool,
        effects: &mut Effects,
    ) {
        if peer == state.configuration.leader && up {
            self.join(state, now, effects);
        }
    }

    /// Stops taking batches, reports to the leader what is held here and requests the rest.
    fn join(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.stop_filling(state);
        self.join = state.next_question(now);
        self.times_asked = 0;
        self.acknowledge = false;
        self.ask(state, now, effects);
    }

    /// Sends the join question. It may be repeated while its answer is still on its way.
    fn ask(&mut self, state: &State, now: Now, effects: &mut Effects) {
        self.times_asked += 1;
        let (epoch, last, applied, join) = (state.epoch, state.last(), state.applied, self.join);
        let message = Message::Join { epoch, last, applied, join };
        effects.send([state.configuration.leader], |out| message.encode(out));
        self.asked_us = now.monotonic_us;
    }

    /// A newer epoch has begun: stops following older leaders, and joins the new one.
    pub(super) fn enter_epoch(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.transfer = 0;
        self.stop_filling(state);
        self.join = state.next_question(now);
        (self.asked_us, self.times_asked) = (0, 0);
        self.acknowledge = false;
        self.commit = state.applied;
        self.leader_offset = state.last().offset;
        self.mark = (self.leader_offset, now.monotonic_us);
        self.stop_sending(state, "a newer epoch began", effects);
    }

    /// Abandons the snapshot, or the history, that it sends, if any.
    pub(super) fn stop_sending(&mut self, state: &mut State, why: &'static str, effects: &mut Effects) {
        self.behind = None;
        if let Some(sender) = self.sender.take() {
            sender.abandon(state, why, effects);
        }
    }

    /// Stops taking batches, and drops a snapshot that is being received.
    pub(super) fn stop_filling(&mut self, state: &mut State) {
        if let Mode::Filling(receiver) = std::mem::replace(&mut self.mode, Mode::Joining) {
            receiver.give_up(state);
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
        match message {
            Message::Append { previous, count, commit, leader_offset, acknowledge, rest, .. } => {
                self.heard_us = now.monotonic_us;
                self.rest_requested = rest;
                self.leader_offset = leader_offset;
                if matches!(self.mode, Mode::Filling(_)) {
                    self.commit = self.commit.max(commit);
                    return self.fill(state, now, from, message, effects);
                }
                if !matches!(self.mode, Mode::Streaming) {
                    return;
                }
                let last = state.last();
                match Batch::received(&message, now) {
                    Some(batch) if previous == last => state.push(batch, effects),
                    Some(batch) if state.options.planted.has(Fault::GapNotNoticed) && previous > last => {
                        state.push(Batch { first: last.offset + 1, ..batch }, effects);
                    }
                    // A gap: something was lost on the way.
                    _ if previous != last && previous.offset + count as u64 > last.offset => {
                        return self.join(state, now, effects);
                    }
                    _ => {}
                }
                self.notice_whole(state, effects);
                self.acknowledge |= acknowledge;
                self.commit = self.commit.max(commit);
                self.apply(state, now, effects);
            }
            Message::Resume { join, after, head, .. } if join == self.join => {
                self.resume(state, now, (after, head), effects);
            }
            Message::SnapshotBegin { join, transfer, head, .. } => {
                let asked = join == self.join && !matches!(self.mode, Mode::Streaming);
                if asked
                    && transfer > self.transfer
                    && let Some(receiver) = Receiver::begin(state, now, from, head, &message, effects)
                {
                    self.stop_filling(state);
                    self.transfer = transfer;
                    self.whole_at = head;
                    self.mode = Mode::Filling(Box::new(receiver));
                }
            }
            Message::SnapshotChunk { .. } | Message::SnapshotEnd { .. } => {
                self.fill(state, now, from, message, effects);
            }
            Message::SnapshotProgress { transfer, next, .. } => {
                if let Some(sender) = &mut self.sender {
                    sender.progress(now, transfer, next);
                }
            }
            Message::Probe { epoch } => {
                // Two facts in the reply must survive a crash: that no older epoch is followed, and what is held.
                let holding = Message::Holding { epoch, last: state.last(), intact: state.intact };
                effects.send_after(state.journal.last(), [from], |out| holding.encode(out));
                if matches!(self.mode, Mode::Joining) {
                    self.asked_us = 0; // The appointed leader may have missed the join question, so repeat it.
                }
            }
            // A replica that streams is served by a leader that has everything it needs, so this request is late.
            Message::Fetch { last, applied, join, .. } if !matches!(self.mode, Mode::Streaming) => {
                self.give(state, now, from, (last, applied, join), effects);
            }
            _ => {}
        }
    }

    /// Sends the appointed leader what it lacks.
    fn give(
        &mut self,
        state: &mut State,
        now: Now,
        to: NodeId,
        (last, applied, join): (Position, Version, u64),
        effects: &mut Effects,
    ) {
        self.stop_sending(state, "it was asked for again", effects);
        let end = state.last().offset;
        let can_follow = |common: &Position| {
            // The batches are not acknowledged one by one.
            let bytes = state.backlog.bytes_between(common.offset, end);
            common.offset >= applied && bytes <= state.timing.window_bytes as u64
        };
        match state.backlog.common_with(last).filter(can_follow) {
            Some(after) => {
                state.counters.partial_resyncs += 1;
                effects.trace.push(Trace::PartialResync { follower: to, after: after.offset });
                let resume = Message::Resume { epoch: state.epoch, join, after, head: end };
                effects.send([to], |out| resume.encode(out));
                self.behind = Some((to, after));
            }
            None => {
                let why = "it is to lead and holds less";
                self.sender = Some(Sender::begin(state, now, (to, why), (join, join), last, effects));
            }
        }
    }

    /// The leader's history agrees with this one up to `after`: cuts off the records after that, which were never
    /// committed.
    fn resume(
        &mut self,
        state: &mut State,
        now: Now,
        (after, head): (Position, Version),
        effects: &mut Effects,
    ) {
        if !matches!(self.mode, Mode::Joining) {
            return; // A duplicate: what is held now may have been acknowledged since.
        }
        if after.offset < state.applied || state.backlog.position_at(after.offset) != Some(after) {
            let peer = state.configuration.leader;
            let why = "it resumes at a position that is not held here";
            return effects.trace.push(Trace::Rejected { peer, why });
        }
        state.note_lost(Some(after.offset), effects);
        state.truncate_after(after.offset, effects);
        state.counters.partial_resyncs += 1;
        self.whole_at = head;
        self.begin_streaming(state, now, effects);
    }

    /// Takes a part of the snapshot, or a batch that follows it; installs everything when it is complete.
    fn fill(
        &mut self,
        state: &mut State,
        now: Now,
        from: NodeId,
        message: Message<'_>,
        effects: &mut Effects,
    ) {
        let Mode::Filling(receiver) = &mut self.mode else { return };
        match receiver.message(state, now, message, effects) {
            Received::Part => {}
            Received::Broken(why) => self.start_over(state, now, from, why, effects),
            Received::Whole => {
                if let Mode::Filling(receiver) = std::mem::replace(&mut self.mode, Mode::Streaming) {
                    let rest = receiver.install(state, effects);
                    assert!(
                        rest.is_empty(),
                        "a follower receives batches one by one, unless they follow a snapshot"
                    );
                    self.begin_streaming(state, now, effects);
                    self.apply(state, now, effects);
                }
            }
        }
    }

    /// Sends a leader that holds less the next batches that it lacks. They may never have been committed. They cannot change
    /// in the meantime, as this replica takes no batch before that leader leads.
    fn send_behind(&mut self, state: &State, effects: &mut Effects) {
        let Some((to, previous)) = &mut self.behind else { return };
        while let Some(batch) = state.backlog.following(previous.offset) {
            if effects.history_bytes >= state.timing.turn_bytes {
                return;
            }
            effects.history_bytes += batch.bytes();
            let message = state.append(*previous, Some(batch), state.last().offset, false);
            effects.send([*to], |out| message.encode(out));
            *previous = batch.end();
        }
        self.behind = None;
    }

    /// How long it waits for an answer: from the second repetition on, each time longer. The answer may stand behind much
    /// else on its way, to which every repetition adds.
    fn retry_ms(&self, state: &State) -> u64 {
        const DOUBLINGS: u32 = 3;
        state.timing.retry_ms << self.times_asked.saturating_sub(2).min(DOUBLINGS)
    }

    fn begin_streaming(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.mode = Mode::Streaming;
        self.behind = None;
        self.rest_requested = false;
        self.acked = 0;
        self.acknowledge = true;
        self.heard_us = now.monotonic_us;
        self.notice_whole(state, effects);
    }

    fn notice_whole(&self, state: &mut State, effects: &mut Effects) {
        if state.last().offset >= self.whole_at {
            state.set_intact(effects);
        }
    }

    fn start_over(
        &mut self,
        state: &mut State,
        now: Now,
        peer: NodeId,
        why: &'static str,
        effects: &mut Effects,
    ) {
        effects.trace.push(Trace::Rejected { peer, why });
        self.join(state, now, effects);
    }

    fn apply(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        state.apply_until(self.commit.min(state.last().offset), effects);
        state.backlog.trim(state.backlog_bytes_max(), state.applied);
        if state.applied >= self.mark.0 {
            self.mark = (self.leader_offset, now.monotonic_us);
        }
    }

    pub(super) fn flush(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        if let Some(mut sender) = self.sender.take() {
            match sender.advance(state, now, effects) {
                true => self.behind = Some((sender.to, sender.position)),
                false => self.sender = Some(sender),
            }
        }
        self.send_behind(state, effects);
        if matches!(self.mode, Mode::Joining) && self.asked_us == 0 {
            self.ask(state, now, effects);
        }
        if !matches!(self.mode, Mode::Streaming) {
            return;
        }
        let offset = state.last().offset;
        let lazily = offset > self.acked && now.ms_since(self.acked_us) >= state.timing.lazy_acknowledge_ms;
        if self.acknowledge || lazily {
            self.acknowledge = false;
            self.acked = offset;
            self.acked_us = now.monotonic_us;
            let rests = self.is_resting(state);
            let message = Message::Acknowledge { epoch: state.epoch, join: self.join, offset, rests };
            let after_record = match state.options.planted.has(Fault::HeldBeforeDurable) {
                true => 0,
                false => state.journal.last(),
            };
            effects.send_after(after_record, [state.configuration.leader], |out| message.encode(out));
        }
    }

    pub(super) fn tick(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        if self.sender.as_ref().is_some_and(|sender| sender.is_stuck(state, now)) {
            self.stop_sending(state, "the receiver does not get on", effects);
        }
        match &self.mode {
            Mode::Joining if now.ms_since(self.asked_us) >= self.retry_ms(state) => {
                self.ask(state, now, effects);
            }
            Mode::Filling(receiver) if receiver.is_stuck(state, now) => self.join(state, now, effects),
            Mode::Streaming if self.silent_ms(state, now) > state.timing.silence_ms => {
                self.join(state, now, effects);
            }
            _ => {}
        }
    }

    pub(super) fn wakeup_us(&self, state: &State, now: Now) -> u64 {
        if self.is_resting(state) {
            return u64::MAX;
        }
        let unacked = matches!(self.mode, Mode::Streaming) && state.last().offset > self.acked;
        let delay_ms = match () {
            () if self.behind.is_some() => 0,
            () if unacked || self.sender.is_some() => state.timing.lazy_acknowledge_ms,
            () => state.timing.heartbeat_ms,
        };
        now.monotonic_us + delay_ms * 1000
    }

    pub(super) fn is_streaming(&self, state: &State, now: Now) -> bool {
        matches!(self.mode, Mode::Streaming) && self.silent_ms(state, now) <= state.timing.silence_ms
    }

    /// Whether it lacks something that its leader holds, and hears it.
    pub(super) fn catches_up(&self, state: &State, now: Now) -> bool {
        !matches!(self.mode, Mode::Streaming) && self.silent_ms(state, now) <= state.timing.silence_ms
    }

    pub(super) fn is_filling(&self) -> bool {
        matches!(self.mode, Mode::Filling(_))
    }

    /// The snapshot that it receives.
    pub(super) fn receiver(&self) -> Option<&Receiver> {
        match &self.mode {
            Mode::Filling(receiver) => Some(receiver),
            Mode::Joining | Mode::Streaming => None,
        }
    }

    /// As [`Follower::receiver`], to change it.
    pub(super) fn receiver_mut(&mut self) -> Option<&mut Receiver> {
        match &mut self.mode {
            Mode::Filling(receiver) => Some(receiver),
            Mode::Joining | Mode::Streaming => None,
        }
    }

    /// The snapshot that it sends.
    pub(super) fn sender(&self) -> Option<&Sender> {
        self.sender.as_ref()
    }

    /// As [`Follower::sender`], to change it.
    pub(super) fn sender_mut(&mut self) -> Option<&mut Sender> {
        self.sender.as_mut()
    }

    pub(super) fn silent_ms(&self, state: &State, now: Now) -> u64 {
        let is_excused =
            self.is_resting(state) || state.vouches.excuse(state.configuration.leader, now, self.heard_us);
        if is_excused { 0 } else { now.ms_since(self.heard_us) }
    }

    /// Whether its leader has made it quiescent, and it has nothing else to do.
    pub(super) fn is_resting(&self, state: &State) -> bool {
        let offset = state.last().offset;
        self.rest_requested
            && matches!(self.mode, Mode::Streaming)
            && self.sender.is_none()
            && self.behind.is_none()
            && !self.acknowledge
            && self.acked == offset
            && [state.applied, self.leader_offset] == [offset; 2]
            && state.rest.reaches(state.configuration.leader)
            && state.journal.has_recorded_commit(offset)
    }

    /// The leader's node cannot be reached any more: the leader's silence is measured from now on.
    pub(super) fn expect_heartbeats(&mut self, now: Now) {
        if std::mem::take(&mut self.rest_requested) {
            self.heard_us = now.monotonic_us;
        }
    }

    /// Returns how many records of the leader are not applied here, and for how many milliseconds they have waited.
    pub(super) fn lag(&self, state: &State, now: Now) -> (u64, u64) {
        match self.leader_offset.saturating_sub(state.applied) {
            0 => (0, 0),
            behind => (behind, now.ms_since(self.mark.1)),
        }
    }
}
