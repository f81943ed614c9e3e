//! A leader that has lost its memory gets it back from its followers before it serves anybody.
//!
//! An acknowledged write is held by the leader and by as many followers as `acks` says. A leader that
//! restarts empty must not begin an empty history: its followers would throw theirs away. So it asks them,
//! takes an answer set that must contain every acknowledged write, and copies the most advanced one.

use super::message::{Message, Position};
use super::options::Acks;
use super::resync::{Received, Receiver};
use super::state::State;
use crate::contract::{Effects, NodeId, Now, Trace};
use std::collections::BTreeMap;

/// One replica's answer.
#[derive(Clone, Copy, Debug)]
struct Answer {
    last: Position,
    intact: bool,
}

/// A copy under way.
#[derive(Debug)]
struct Copying {
    from: NodeId,
    asked_us: u64,
    receiver: Option<Box<Receiver>>,
}

/// The role of a leader that may not serve yet.
#[derive(Debug)]
pub(super) struct Recovery {
    answers: BTreeMap<NodeId, Answer>,
    started_us: u64,
    asked_us: u64,
    copying: Option<Copying>,
    /// The newest transfer seen: a late one must not be installed.
    transfer: u64,
    /// A peer knows a higher epoch: nothing can be done before this node gets a new one.
    pub(super) passed: bool,
}

impl Recovery {
    pub(super) fn new(state: &State, now: Now, effects: &mut Effects) -> Recovery {
        let (epoch, offset) = (state.epoch, state.last().offset);
        effects.trace.push(Trace::Role { role: "recovering", epoch, offset });
        let mut recovery = Recovery {
            answers: BTreeMap::new(),
            started_us: now.monotonic_us,
            asked_us: 0,
            copying: None,
            transfer: 0,
            passed: false,
        };
        recovery.ask(state, now, effects);
        recovery
    }

    fn ask(&mut self, state: &State, now: Now, effects: &mut Effects) {
        let probe = Message::Probe { epoch: state.configuration.epoch };
        let silent = state.peers().filter(|peer| !self.answers.contains_key(peer));
        effects.send(silent, |out| probe.encode(out));
        self.asked_us = now.monotonic_us;
    }

    pub(super) fn link(&mut self, state: &State, now: Now, up: bool, effects: &mut Effects) {
        if up && !self.passed {
            self.ask(state, now, effects);
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
            Message::SnapshotBegin { transfer, position, floor, time, .. } => {
                if let Some(copying) = self.copying.as_mut().filter(|copying| copying.from == from)
                    && transfer > self.transfer
                {
                    self.transfer = transfer;
                    let receiver = Receiver::begin(from, now, state.seed, transfer, (position, floor, time));
                    copying.receiver = Some(Box::new(receiver));
                }
                false
            }
            Message::SnapshotChunk { transfer, index, entries, .. } => {
                if let Some(Copying { receiver: Some(receiver), .. }) = &mut self.copying
                    && let Received::Broken(why) =
                        receiver.chunk(state, now, (transfer, index), entries, effects)
                {
                    effects.trace.push(Trace::Rejected { peer: from, why });
                    self.start_over(state, now, effects);
                }
                false
            }
            Message::SnapshotEnd { transfer, chunks, .. } => {
                let Some(Copying { receiver: Some(receiver), .. }) = &self.copying else {
                    return false;
                };
                match receiver.end(transfer, chunks) {
                    Received::Part => false,
                    Received::Broken(why) => {
                        effects.trace.push(Trace::Rejected { peer: from, why });
                        self.start_over(state, now, effects);
                        false
                    }
                    Received::Whole => self.install(state, effects),
                }
            }
            _ => false,
        }
    }

    fn install(&mut self, state: &mut State, effects: &mut Effects) -> bool {
        let receiver = self.copying.take().and_then(|copying| copying.receiver);
        let Some(receiver) = receiver else { return false };
        receiver.install(state, effects);
        state.counters.full_resyncs += 1;
        true
    }

    fn start_over(&mut self, state: &State, now: Now, effects: &mut Effects) {
        self.copying = None;
        self.answers.clear();
        self.started_us = now.monotonic_us;
        self.ask(state, now, effects);
    }

    /// Whether the answers so far must contain every acknowledged write.
    ///
    /// A write is acknowledged when the leader and n followers hold it. Any N - n replicas with intact memory
    /// have one of these n + 1 among them. Where no number is enough (`acks = none`), or too many have lost
    /// their memory, everybody's answer is the best there is.
    fn is_enough(&self, state: &State, now: Now) -> bool {
        let others = state.configuration.members.len() - 1;
        if self.answers.len() >= others {
            return true;
        }
        let own = usize::from(state.intact);
        let intact = own + self.answers.values().filter(|answer| answer.intact).count();
        match state.options.acks {
            Acks::None => intact > 0 && now.ms_since(self.started_us) >= state.timing.recovery_grace_ms,
            _ => intact >= state.configuration.members.len() - state.acks_needed(),
        }
    }

    fn choose(&mut self, state: &mut State, now: Now, effects: &mut Effects) -> bool {
        if self.copying.is_some() || self.passed || !self.is_enough(state, now) {
            return false;
        }
        let most_advanced = self.answers.iter().map(|(id, answer)| (answer.last, *id)).max();
        match most_advanced {
            Some((last, id)) if last > state.last() => {
                let fetch = Message::Fetch { epoch: state.configuration.epoch };
                effects.send([id], |out| fetch.encode(out));
                self.copying = Some(Copying { from: id, asked_us: now.monotonic_us, receiver: None });
                false
            }
            _ => {
                state.apply_until(state.last().offset, effects);
                true
            }
        }
    }

    /// True when the replica may lead.
    #[must_use]
    pub(super) fn tick(&mut self, state: &mut State, now: Now, effects: &mut Effects) -> bool {
        if self.passed {
            return false;
        }
        let stuck = self.copying.as_ref().is_some_and(|copying| match &copying.receiver {
            Some(receiver) => receiver.is_stuck(state, now),
            None => now.ms_since(copying.asked_us) > state.timing.silence_ms,
        });
        if stuck {
            self.start_over(state, now, effects);
        } else if now.ms_since(self.asked_us) >= state.timing.retry_ms {
            self.ask(state, now, effects);
        }
        self.choose(state, now, effects)
    }

    /// What is missing, for people.
    pub(super) fn explain(&self, state: &State) -> String {
        if self.passed {
            return "it waits for a new epoch".into();
        }
        if let Some(copying) = &self.copying {
            return format!("it copies what node {} holds", copying.from);
        }
        let silent: Vec<String> = state
            .peers()
            .filter(|peer| !self.answers.contains_key(peer))
            .map(|peer| format!("node {peer}"))
            .collect();
        format!("it must know what its followers hold, and has no answer of {}", silent.join(" and "))
    }
}
