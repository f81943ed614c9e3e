//! Before a new leader, or one that has lost its memory, serves, it collects what was written.
//!
//! An acknowledged write is held by its leader and by as many followers as `acks` requires. The next leader may hold
//! less, or, after a restart, nothing. It must not continue from there, or the others would discard what they hold. So it
//! probes them, waits for a set of answers that must contain every acknowledged write, and fetches the most advanced
//! history: a snapshot of what is applied there, followed by the batches that may or may not be committed. The leader
//! commits those batches with its own first record (see `leader/mod.rs`).

use super::backlog::Batch;
use super::message::Message;
use super::options::Acks;
use super::position::Position;
use super::state::State;
use super::transfer::{Received, Receiver};
use crate::contract::{Effects, NodeId, Now, Trace};
use kv::Version;
use std::collections::{BTreeMap, VecDeque};

/// One replica's answer.
#[derive(Clone, Copy, Debug)]
struct Answer {
    last: Position,
    intact: bool,
}

/// The history that arrives from the most advanced replica. This replica's own history stays unchanged until the transfer
/// is complete.
#[derive(Debug)]
pub(super) struct Fetching {
    from: NodeId,
    join: u64,
    /// The last position that the source reported. A source that has lost its memory since then does not reach it.
    pub(super) until: Position,
    asked_us: u64,
    receiver: Option<Box<Receiver>>,
}

impl Fetching {
    fn message(
        &mut self,
        state: &mut State,
        now: Now,
        message: Message<'_>,
        effects: &mut Effects,
    ) -> Received {
        match (message, &mut self.receiver) {
            (Message::SnapshotBegin { join, .. }, None) if join == self.join => {
                let until = self.until.offset;
                self.receiver =
                    Receiver::begin(state, now, self.from, until, &message, effects).map(Box::new);
                Received::Part
            }
            (Message::Resume { join, after, .. }, None) if join == self.join => {
                if after.offset < state.applied || state.backlog.position_at(after.offset) != Some(after) {
                    return Received::Broken("it resumes at a position that is not held here");
                }
                let receiver = Receiver::resume(now, self.from, after, self.until.offset);
                self.receiver = Some(Box::new(receiver));
                Received::Part
            }
            (message, Some(receiver)) => match receiver.message(state, now, message, effects) {
                Received::Whole if receiver.last() != self.until => {
                    Received::Broken("it is not the history that was promised")
                }
                received => received,
            },
            _ => Received::Part,
        }
    }

    fn is_stuck(&self, state: &State, now: Now) -> bool {
        match &self.receiver {
            Some(receiver) => receiver.is_stuck(state, now),
            None => now.ms_since(self.asked_us) > state.timing.retry_ms,
        }
    }
}

/// A history that has wholly arrived, and is taken over: a part in each turn, since nobody is served meanwhile. What is held
/// here from now on is a beginning of it, and lacks nothing that this replica may have promised: all of that is in the most
/// advanced history.
#[derive(Debug)]
struct Installing {
    /// The batches that are not held here yet.
    rest: VecDeque<Batch>,
    until: Position,
    /// What is known to be committed: it is applied, too.
    commit: Version,
}

/// The role of a leader that may not serve yet.
#[derive(Debug)]
pub(super) struct Recovery {
    answers: BTreeMap<NodeId, Answer>,
    started_us: u64,
    asked_us: u64,
    pub(super) fetching: Option<Fetching>,
    installing: Option<Installing>,
    /// The join questions of followers that arrived in the meantime, to be answered when this replica leads.
    pub(super) joins: BTreeMap<NodeId, Message<'static>>,
    /// A peer knows a higher epoch: this replica must wait for a new epoch.
    pub(super) passed: bool,
}

impl Recovery {
    /// Begins a recovery by probing the others. When its epoch has `passed`, it only waits for a new epoch.
    pub(super) fn new(state: &State, now: Now, passed: bool, effects: &mut Effects) -> Recovery {
        let (epoch, offset) = (state.epoch, state.last().offset);
        effects.trace.push(Trace::Role { role: "recovering", epoch, offset });
        let mut recovery = Recovery {
            answers: BTreeMap::new(),
            started_us: now.monotonic_us,
            asked_us: 0,
            fetching: None,
            installing: None,
            joins: BTreeMap::new(),
            passed,
        };
        if !passed {
            recovery.ask(state, now, effects);
        }
        recovery
    }

    fn ask(&mut self, state: &State, now: Now, effects: &mut Effects) {
        let probe = Message::Probe { epoch: state.configuration.epoch };
        let silent = state.peers().filter(|peer| !self.answers.contains_key(peer));
        effects.send(silent, |out| probe.encode(out));
        self.asked_us = now.monotonic_us;
    }

    pub(super) fn link(&mut self, state: &State, peer: NodeId, up: bool, effects: &mut Effects) {
        if up && !self.passed && !self.answers.contains_key(&peer) {
            let probe = Message::Probe { epoch: state.configuration.epoch };
            effects.send([peer], |out| probe.encode(out));
        }
    }

    /// True when the replica holds everything it could have promised, and may lead.
    #[must_use]
    pub(super) fn message(
        &mut self,
        state: &mut State,
        now: Now,
        from: NodeId,
        message: Message<'_>,
        effects: &mut Effects,
    ) -> bool {
        match message {
            Message::Holding { epoch, last, intact } if epoch == state.configuration.epoch => {
                self.answers.insert(from, Answer { last, intact });
                self.choose(state, now, effects)
            }
            Message::Join { epoch, last, applied, join } => {
                self.joins.insert(from, Message::Join { epoch, last, applied, join });
                false
            }
            message => match self.fetching.as_mut().filter(|fetching| fetching.from == from) {
                Some(fetching) => {
                    let received = fetching.message(state, now, message, effects);
                    self.received(state, now, received, effects);
                    false
                }
                None => false,
            },
        }
    }

    fn received(&mut self, state: &mut State, now: Now, received: Received, effects: &mut Effects) {
        let Some(fetching) = &self.fetching else { return };
        match received {
            Received::Broken(why) => {
                effects.trace.push(Trace::Rejected { peer: fetching.from, why });
                self.start_over(state, now, effects);
            }
            Received::Part => {}
            Received::Whole => self.install(state, effects),
        }
    }

    fn install(&mut self, state: &mut State, effects: &mut Effects) {
        let Some(Fetching { receiver: Some(receiver), until, .. }) = self.fetching.take() else { return };
        let commit = state.applied.max(receiver.commit());
        let rest = receiver.install(state, effects).into();
        self.installing = Some(Installing { rest, until, commit });
    }

    /// Takes over as much of the fetched history as a turn allows. True when the replica may lead.
    #[must_use]
    pub(super) fn flush(&mut self, state: &mut State, effects: &mut Effects) -> bool {
        let Some(installing) = &mut self.installing else { return false };
        let left = state.timing.turn_bytes.saturating_sub(effects.history_bytes);
        let mut held = 0;
        while held < left
            && let Some(batch) = installing.rest.pop_front()
        {
            held += batch.bytes();
            state.push(batch, effects);
        }
        let (mut applied, mut end) = (0, state.applied);
        let commit = state.as_far_as_it_goes(installing.commit);
        let is_applied = loop {
            match state.backlog.following(end).filter(|batch| batch.end().offset <= commit) {
                None => break true,
                Some(_) if applied >= left => break false,
                Some(batch) => {
                    applied += batch.bytes();
                    end = batch.end().offset;
                }
            }
        };
        state.apply_until(end, effects);
        effects.history_bytes += held.max(applied);
        if !installing.rest.is_empty() || !is_applied {
            return false;
        }
        assert_eq!(state.last(), installing.until, "it holds another history than it was to fetch");
        self.installing = None;
        true
    }

    fn start_over(&mut self, state: &mut State, now: Now, effects: &mut Effects) {
        self.stop_fetching(state);
        self.answers.clear();
        self.started_us = now.monotonic_us;
        self.ask(state, now, effects);
    }

    /// Drops what has arrived so far.
    pub(super) fn stop_fetching(&mut self, state: &mut State) {
        if let Some(Fetching { receiver: Some(receiver), .. }) = self.fetching.take() {
            receiver.give_up(state);
        }
    }

    /// Whether the answers so far must contain every acknowledged write.
    ///
    /// A write is acknowledged when the leader and n followers hold it. Any N - n replicas with intact memory include one
    /// of these n + 1. With `acks = all`, each member of the in-sync set holds all acknowledged writes; the leader waits
    /// for two of them if there is a second one, because a member whose disk was rolled back within one incarnation does
    /// not know that. If no number of answers is enough (`acks = none`), or too many replicas have lost their memory, the
    /// answers of all replicas are the best that can be had.
    ///
    /// The leader of the previous epoch holds all acknowledged writes itself: when the members change, their leader
    /// continues. It must not need the others for that, or a group with a lost member could never get a replacement.
    fn is_enough(&self, state: &State, now: Now) -> bool {
        if state.led_before() {
            return true;
        }
        let others = state.configuration.members.len() - 1;
        if self.answers.len() >= others {
            return true;
        }
        let answers = self.answers.iter().filter(|(_, answer)| answer.intact).map(|(id, _)| *id);
        let intact: Vec<NodeId> = answers.chain(state.intact.then_some(state.id)).collect();
        match state.options.acks {
            Acks::None => {
                !intact.is_empty() && now.ms_since(self.started_us) >= state.timing.recovery_grace_ms
            }
            // Waits some time for a second member: one whose disk was rolled back does not know that.
            Acks::All => {
                let in_sync = &state.configuration.in_sync;
                let heard = intact.iter().filter(|id| in_sync.contains(id)).count();
                let waited = now.ms_since(self.started_us) >= state.timing.recovery_grace_ms;
                heard >= in_sync.len().clamp(1, 2) || heard == 1 && waited
            }
            _ => intact.len() + state.acks_needed() >= state.configuration.members.len(),
        }
    }

    /// Chooses the history to fetch once there are enough answers. True when the replica may lead. Its epoch must be
    /// durable first, or after a restart it would consider the epoch's records unwritten.
    pub(super) fn choose(&mut self, state: &mut State, now: Now, effects: &mut Effects) -> bool {
        let may_begin = state.journal.is_epoch_durable() && self.is_enough(state, now);
        if self.fetching.is_some() || self.installing.is_some() || self.passed || !may_begin {
            return false;
        }
        let most_advanced = self.answers.iter().map(|(id, answer)| (answer.last, *id)).max();
        match most_advanced {
            Some((last, id)) if last > state.last() => {
                let (join, epoch) = (state.next_question(now), state.configuration.epoch);
                let fetch = Message::Fetch { epoch, last: state.last(), applied: state.applied, join };
                effects.send([id], |out| fetch.encode(out));
                self.fetching = Some(Fetching {
                    from: id,
                    join,
                    until: last,
                    asked_us: now.monotonic_us,
                    receiver: None,
                });
                false
            }
            _ => true,
        }
    }

    /// True when the replica may lead.
    #[must_use]
    pub(super) fn tick(&mut self, state: &mut State, now: Now, effects: &mut Effects) -> bool {
        if self.passed {
            return false;
        }
        if self.fetching.as_ref().is_some_and(|fetching| fetching.is_stuck(state, now)) {
            self.start_over(state, now, effects);
        } else if now.ms_since(self.asked_us) >= state.timing.retry_ms {
            self.ask(state, now, effects);
        }
        self.choose(state, now, effects)
    }

    pub(super) fn wakeup_us(&self, state: &State, now: Now) -> u64 {
        if self.installing.is_some() {
            return now.monotonic_us;
        }
        let grace_us = self.started_us + state.timing.recovery_grace_ms * 1000;
        let retry_us = self.asked_us + state.timing.retry_ms * 1000;
        let next_us = if now.monotonic_us < grace_us { grace_us.min(retry_us) } else { retry_us };
        next_us.clamp(now.monotonic_us, now.monotonic_us + state.timing.heartbeat_ms * 1000)
    }

    pub(super) fn is_fetching(&self) -> bool {
        self.receiver().is_some()
    }

    /// The transfer that this replica receives.
    pub(super) fn receiver(&self) -> Option<&Receiver> {
        self.fetching.as_ref()?.receiver.as_deref()
    }

    /// As [`Recovery::receiver`], to change it.
    pub(super) fn receiver_mut(&mut self) -> Option<&mut Receiver> {
        self.fetching.as_mut()?.receiver.as_deref_mut()
    }

    /// Describes what is missing, for people.
    pub(super) fn explain(&self, state: &State) -> String {
        if self.passed {
            return "it waits for a new epoch".into();
        }
        if let Some(fetching) = &self.fetching {
            return format!("it fetches what node {} holds", fetching.from);
        }
        if self.installing.is_some() {
            return "it takes over what it has fetched".into();
        }
        let list = |write: fn(NodeId) -> String, between: &str| {
            let silent = state.peers().filter(|peer| !self.answers.contains_key(peer));
            silent.map(write).collect::<Vec<_>>().join(between)
        };
        format!(
            "it must know what its followers hold, and has no answer of {}; start what is not there, or replace what never \
             comes back, with --accept-loss if that is not enough: {} (CLUSTER REPLACE id ACCEPTLOSS)",
            list(|node| format!("node {node}"), " and "),
            list(|node| format!("quorate node replace {node}"), ", ")
        )
    }
}
