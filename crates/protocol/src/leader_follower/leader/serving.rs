//! The leader's followers: how each joins the history, and what each is sent.

use super::Leader;
use crate::contract::{Effects, NodeId, Now, Outgoing, Recipient, Trace};
use crate::leader_follower::message::Message;
use crate::leader_follower::position::Position;
use crate::leader_follower::state::State;
use crate::leader_follower::transfer::Sender;
use crate::status::FollowerStatus;
use crate::transfer::kept_bytes_max;
use kv::Version;
use std::ops::Range;

/// The most bytes that are gathered for a follower that no write waits for.
const LAZY_BYTES_MAX: u64 = 64 << 10;

/// How a follower is served.
#[derive(Debug)]
pub(in crate::leader_follower) enum Service {
    /// It has not joined in this epoch.
    Absent,
    /// It is being sent a snapshot.
    Snapshot(Sender),
    /// It is sent batches; everything up to `sent` has been sent.
    Streaming {
        sent: Position,
        /// Bytes of records up to `sent`, counted as
        /// [`Backlog::stream_at`](crate::leader_follower::backlog::Backlog::stream_at) does.
        sent_bytes: u64,
        /// The same for the last acknowledged offset whose bytes were known. May be too low, so the window does not open
        /// too early.
        acked_bytes: u64,
    },
}

impl Service {
    /// Returns the service that sends batches after a position.
    fn streaming(state: &State, after: Position) -> Service {
        let bytes = state
            .backlog
            .stream_at(after.offset)
            .expect("the position is held, or its batch was the last dropped");
        Service::Streaming { sent: after, sent_bytes: bytes, acked_bytes: bytes }
    }
}

/// What the leader knows about one follower.
#[derive(Debug)]
pub(in crate::leader_follower) struct Follower {
    pub(in crate::leader_follower) id: NodeId,
    pub(in crate::leader_follower) service: Service,
    /// The join question that its service answers. Acknowledgements that name another question do not count.
    pub(in crate::leader_follower) join: u64,
    /// When that question was answered.
    answered_us: u64,
    /// The offset up to which it has reported holding everything since it joined. 0: it has reported nothing yet.
    pub(in crate::leader_follower) acked: Version,
    pub(in crate::leader_follower) heard_us: u64,
    pub(in crate::leader_follower) sent_us: u64,
    /// The commit offset that it was last sent.
    pub(in crate::leader_follower) sent_commit: Version,
    /// During a snapshot transfer, the offset at which it is complete. The follower acknowledges nothing before.
    pub(in crate::leader_follower) fills_until: Version,
    pub(in crate::leader_follower) link_up: bool,
    /// It is not in the map's in-sync set, and the leader will request that it join.
    pub(in crate::leader_follower) is_joining_set: bool,
    /// With `acks = all`: nothing is committed without this follower.
    pub(in crate::leader_follower) is_awaited: bool,
    /// Whether it has acknowledged anything since it joined; `in_step_us` is when it last did.
    is_confirmed: bool,
    pub(in crate::leader_follower) in_step_us: u64,
    /// The leader's last offset when the follower last held all of the previous mark, and when that was.
    mark: Version,
    mark_us: u64,
    /// Whether it has caught up once since it joined.
    is_caught_up: bool,
    /// Whether it was live at the last check, to report changes.
    pub(in crate::leader_follower) was_live: bool,
    /// It has acknowledged quiescence, and was sent nothing since then that ends it.
    pub(in crate::leader_follower) confirms_rest: bool,
    /// The leader and this follower are quiescent: it does not count as silent.
    pub(in crate::leader_follower) is_at_rest: bool,
}

impl Follower {
    /// Returns a follower that has not joined yet.
    pub(in crate::leader_follower) fn new(id: NodeId, now: Now) -> Follower {
        Follower {
            id,
            service: Service::Absent,
            join: 0,
            answered_us: 0,
            acked: 0,
            heard_us: now.monotonic_us,
            sent_us: 0,
            sent_commit: 0,
            fills_until: 0,
            link_up: true,
            is_joining_set: false,
            is_awaited: false,
            is_confirmed: false,
            in_step_us: now.monotonic_us,
            mark: 0,
            mark_us: now.monotonic_us,
            is_caught_up: false,
            was_live: false,
            confirms_rest: false,
            is_at_rest: false,
        }
    }

    /// Notes that it reported what it holds, naming the question that its service answers.
    pub(in crate::leader_follower) fn confirm(&mut self, now: Now) {
        self.is_confirmed = true;
        self.in_step_us = now.monotonic_us;
    }

    /// Whether it has recently reported what it holds, naming the question that its service answers.
    pub(in crate::leader_follower) fn confirmed_within(&self, now: Now, silence_ms: u64) -> bool {
        self.is_confirmed && now.ms_since(self.in_step_us) <= silence_ms
    }

    /// Whether the answer to a question that has come again is on its way, or has arrived. Questions gather where a turn is
    /// long, and each answer would bring a window of history.
    fn is_answered(&self, join: u64, now: Now, patience_ms: u64) -> bool {
        let is_recent = now.ms_since(self.answered_us) < patience_ms;
        self.join == join && !matches!(self.service, Service::Absent) && (self.is_confirmed || is_recent)
    }

    /// Checks whether it has reached the position that its leader had some time ago. Under load it never holds everything
    /// at any one moment. Returns true when it has caught up for the first time since it joined.
    pub(in crate::leader_follower) fn watch_mark(&mut self, now: Now, head: Version) -> bool {
        let is_there = self.is_confirmed && self.acked >= self.mark;
        if is_there {
            self.mark = head;
            self.mark_us = now.monotonic_us;
        }
        is_there && !std::mem::replace(&mut self.is_caught_up, true)
    }

    /// Whether it holds what its leader held `silence_ms` ago, and has recently reported it.
    pub(in crate::leader_follower) fn is_in_step(&self, now: Now, silence_ms: u64) -> bool {
        self.link_up
            && self.is_streaming()
            && self.is_caught_up
            && now.ms_since(self.in_step_us) <= silence_ms
            && now.ms_since(self.mark_us) <= silence_ms
    }

    /// Stops serving it until it joins again.
    pub(in crate::leader_follower) fn leave(
        &mut self,
        why: &'static str,
        state: &mut State,
        effects: &mut Effects,
    ) {
        if let Service::Snapshot(sender) = std::mem::replace(&mut self.service, Service::Absent) {
            sender.abandon(state, why, effects);
        }
    }

    /// Notes that it holds everything up to an offset.
    pub(in crate::leader_follower) fn acknowledge(&mut self, state: &State, offset: Version) {
        assert!(offset >= self.acked, "a follower goes back to before what it acknowledged");
        self.acked = offset;
        if let Service::Streaming { acked_bytes, .. } = &mut self.service
            && let Some(bytes) = state.backlog.stream_at(offset)
        {
            *acked_bytes = bytes;
        }
    }

    /// Whether it has joined, and is sent batches.
    pub(in crate::leader_follower) fn is_streaming(&self) -> bool {
        matches!(self.service, Service::Streaming { .. })
    }

    /// Whether there is more to send to it.
    pub(in crate::leader_follower) fn is_behind(&self, head: Version) -> bool {
        matches!(self.service, Service::Streaming { sent, .. } if sent.offset < head)
    }

    /// Returns the offset after which it needs the history, which is known while it joins.
    pub(in crate::leader_follower) fn needs_after(&self) -> Option<Version> {
        match &self.service {
            Service::Snapshot(sender) => Some(sender.position.offset),
            Service::Streaming { sent, .. } if self.acked == 0 || !self.is_caught_up => Some(sent.offset),
            _ => None,
        }
    }

    /// Whether it takes what it is sent, as far as its leader knows: it was heard lately, or its node is alive and busy.
    pub(in crate::leader_follower) fn is_live(&self, state: &State, now: Now) -> bool {
        let is_heard = self.is_at_rest
            || now.ms_since(self.heard_us) <= state.timing.silence_ms
            || state.vouches.excuse(self.id, now, self.heard_us);
        self.link_up && self.is_streaming() && is_heard
    }

    /// Whether it may stay in the in-sync set: it has reported lately what it holds, or its node is alive and busy, and its
    /// node is not about to stop.
    pub(in crate::leader_follower) fn stays_in_sync(&self, state: &State, now: Now) -> bool {
        let is_heard = now.ms_since(self.in_step_us) <= state.timing.in_sync_silence_ms
            || state.vouches.excuse(self.id, now, self.in_step_us);
        is_heard && !state.leaving.contains(&self.id)
    }
}

impl Leader {
    /// A follower reports what it holds. It gets the rest from the backlog if its history is a prefix of the leader's and
    /// the rest is still kept, else a snapshot.
    pub(in crate::leader_follower) fn join(
        &mut self,
        state: &mut State,
        now: Now,
        index: usize,
        (last, applied, join): (Position, Version, u64),
        effects: &mut Effects,
    ) {
        if self.followers[index].is_answered(join, now, state.timing.retry_ms / 2) {
            return;
        }
        self.seal(state, now, effects);
        let id = self.followers[index].id;
        self.followers[index].leave("the follower began anew", state, effects);
        let common = state.backlog.common_with(last);
        let service = match common.filter(|common| common.offset >= applied) {
            Some(after) => {
                state.counters.partial_resyncs += 1;
                effects.trace.push(Trace::PartialResync { follower: id, after: after.offset });
                let resume = Message::Resume { epoch: state.epoch, join, after, head: self.head };
                effects.send([id], |out| resume.encode(out));
                Service::streaming(state, after)
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
                self.transfers += 1;
                let transfer = (join, self.transfers);
                Service::Snapshot(Sender::begin(state, now, (id, why), transfer, last, effects))
            }
        };
        let head = self.head;
        let follower = &mut self.followers[index];
        (follower.join, follower.acked, follower.service) = (join, 0, service);
        follower.answered_us = now.monotonic_us;
        follower.confirms_rest = false;
        (follower.is_confirmed, follower.is_caught_up, follower.mark) = (false, false, head);
        follower.fills_until = if matches!(follower.service, Service::Snapshot(_)) { head } else { 0 };
        follower.sent_us = 0; // It is sent something at the end of this turn, even without records.
    }

    /// Sends a follower what it can take. `encoded` is the message that the previous follower got: usually this follower
    /// gets the same one, which is then encoded only once.
    pub(in crate::leader_follower) fn serve(
        &mut self,
        state: &mut State,
        now: Now,
        follower: &mut Follower,
        encoded: &mut Option<(Position, Range<usize>)>,
        effects: &mut Effects,
    ) {
        if let Service::Snapshot(sender) = &mut follower.service {
            let position = sender.position;
            if !sender.advance(state, now, effects) {
                return;
            }
            follower.service = Service::streaming(state, position);
        }
        let timing = &state.timing;
        let window = if follower.is_caught_up { usize::MAX } else { timing.catch_up_bytes };
        let window = window.min(timing.window_bytes) as u64;
        let Service::Streaming { sent, sent_bytes, acked_bytes } = &mut follower.service else {
            return;
        };
        let acknowledge = self.needed > 0 || self.ask;
        if !acknowledge
            && now.ms_since(follower.sent_us) < state.timing.lazy_send_ms
            && state.backlog.bytes_between(sent.offset, self.head) < LAZY_BYTES_MAX
        {
            return; // The gathered records leave with the next message.
        }
        let mut sent_any = false;
        while let Some(batch) = state.backlog.following(sent.offset) {
            // A transfer is not acknowledged before it is complete, and must not close the window.
            let may_acknowledge = sent.offset >= follower.fills_until;
            if may_acknowledge && sent_bytes.saturating_sub(*acked_bytes) >= window {
                break;
            }
            if batch.received_us < now.monotonic_us {
                if effects.history_bytes >= timing.turn_bytes {
                    self.is_cut_short = true;
                    break;
                }
                effects.history_bytes += batch.bytes();
            }
            match encoded {
                Some((previous, bytes)) if previous == sent => {
                    let (to, bytes) = (follower.id, bytes.clone().into());
                    let recipient = Recipient::Replica;
                    effects.messages.push(Outgoing { to, bytes, after_record: 0, recipient });
                }
                _ => {
                    let message = state.append(*sent, Some(batch), self.head, acknowledge);
                    let start = effects.bytes.len();
                    effects.send([follower.id], |out| message.encode(out));
                    *encoded = Some((*sent, start..effects.bytes.len()));
                }
            }
            follower.confirms_rest = false;
            *sent = batch.end();
            *sent_bytes = batch.stream_end;
            sent_any = true;
        }
        if sent.offset < self.head && state.backlog.following(sent.offset).is_none() {
            // The follower fell behind the backlog: it will find the gap at the next heartbeat and join again.
            let why = "it fell behind the backlog";
            effects.trace.push(Trace::TransferAbandoned { to: follower.id, why });
            sent.offset = self.head;
        }
        let quiet_ms = now.ms_since(follower.sent_us);
        let is_heartbeat = quiet_ms >= state.timing.heartbeat_ms;
        let due = is_heartbeat
            || (follower.sent_commit < state.applied && quiet_ms >= state.timing.commit_notice_ms)
            || (self.ask && follower.acked < self.head);
        if due && !sent_any && !state.rest.is_resting() {
            // A notice of commits needs no answer from a follower that has acknowledged everything.
            let acknowledge = is_heartbeat || follower.acked < self.head || state.rest.is_due();
            let mut message = state.append(*sent, None, self.head, acknowledge);
            let is_to_rest = state.rest.is_due() && follower.acked == self.head;
            if let Message::Append { rest, .. } = &mut message {
                *rest = is_to_rest;
            }
            follower.confirms_rest &= is_to_rest;
            effects.send([follower.id], |out| message.encode(out));
            sent_any = true;
        }
        if sent_any {
            follower.sent_us = now.monotonic_us;
            follower.sent_commit = state.applied;
        }
    }

    /// Drops history beyond the backlog's size, except what must follow a snapshot under way, unless that exceeds its own
    /// limit.
    pub(in crate::leader_follower) fn trim(&mut self, state: &mut State, effects: &mut Effects) {
        let limit = state.options.backlog_bytes + state.timing.transfer_backlog_bytes_max;
        let limit = self.allowance.of(limit.min(kept_bytes_max(state.history_max))) as u64;
        if state.backlog.bytes_between(state.backlog.base().offset, state.applied) > limit {
            let mut any = false;
            for follower in &mut self.followers {
                let needs = |after: Version| state.backlog.bytes_between(after, state.applied) > limit;
                if follower.needs_after().is_some_and(needs) {
                    follower.leave("too much was written during the transfer", state, effects);
                    any = true;
                }
            }
            if any {
                self.allowance.note_given_up();
            }
        }
        self.drop_history(state);
    }

    /// Drops history beyond the backlog's size, except what must follow a snapshot under way.
    pub(in crate::leader_follower) fn drop_history(&self, state: &mut State) {
        let needed = self.followers.iter().filter_map(Follower::needs_after);
        let keep_after = needed.fold(state.applied, Version::min);
        // Without followers no replica will request the history.
        let bytes_max = if self.followers.is_empty() { 0 } else { state.backlog_bytes_max() };
        state.backlog.trim(bytes_max, keep_after);
    }

    pub(in crate::leader_follower) fn watch_followers(
        &mut self,
        state: &mut State,
        now: Now,
        effects: &mut Effects,
    ) {
        for follower in &mut self.followers {
            let live = follower.is_live(state, now);
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

    pub(in crate::leader_follower) fn live(&self, state: &State, now: Now) -> usize {
        self.followers.iter().filter(|follower| follower.is_live(state, now)).count()
    }

    pub(in crate::leader_follower) fn follower_status(&self, state: &State, now: Now) -> Vec<FollowerStatus> {
        let status = |follower: &Follower| {
            let live = follower.is_live(state, now);
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
