//! What a replica of registers does besides its clients' operations: it refills itself and others, repairs, and collects
//! tombstones.

use super::collection::{self, Collector};
use super::lives::Sender;
use super::members::MemberSet;
use super::message::{Body, Message, Past};
use super::rejoin::{Progress, Rejoin, may_be_lost};
use super::repair::{self, Sweep};
use super::transfers::Transfers;
use super::{Registers, Standstill, Timing};
use crate::effects::{Effects, NodeId, Now, Trace};
use crate::planted::Fault;

/// What a stopped group has lost: see [`Registers::standstill`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The members that have lost their memory: a majority.
    pub lost: Vec<NodeId>,
    /// The members that have their memory.
    pub holding: Vec<NodeId>,
    /// The members that have been silent for a while.
    pub silent: Vec<NodeId>,
}

/// The upkeep of one replica.
#[derive(Debug)]
pub struct Upkeep {
    nonce: u64,
    /// `None`: the replica has its memory, and answers.
    pub(super) rejoin: Option<Rejoin>,
    /// The incarnations that began the group together with this one, by their nonces.
    anew: Vec<u8>,
    pub(super) transfers: Transfers,
    pub(super) sweep: Sweep,
    pub(super) collector: Collector,
    swept_us: u64,
}

impl Upkeep {
    /// Starts a replica with the contents of its records, if it keeps any. `starts` counts the node's starts, this one
    /// included.
    pub fn new(registers: &mut Registers, now: Now, starts: u64, effects: &mut Effects) -> Upkeep {
        let has_number = registers.begin_life(starts.max(1));
        let (nonce, first) = (registers.nonce, registers.is_first(starts));
        let past = if first { Past::None } else { Past::Forgotten };
        let mut rejoin = Rejoin::new(registers, now, past, nonce);
        if !has_number {
            rejoin.exhaust();
        }
        let mut upkeep = Upkeep {
            nonce,
            rejoin: Some(rejoin),
            anew: Vec::new(),
            transfers: Transfers::new(registers.group.len()),
            sweep: Sweep::new(nonce),
            collector: Collector::new(nonce),
            swept_us: now.monotonic_us,
        };
        let incarnation = registers.lives.own();
        if registers.has_resumed() && has_number {
            upkeep.rejoin = None;
            effects.trace.push(Trace::Resumed { incarnation, keys: registers.table.len() as u64 });
            upkeep.greet(registers, registers.group.others(), effects);
            return upkeep;
        }
        effects.trace.push(Trace::Refilling { incarnation });
        if registers.planted.has(Fault::AnswerWithoutRefill) {
            upkeep.progress(registers, Progress::Refilled, effects);
        } else if registers.group.others().is_empty() {
            upkeep.tick(registers, &Timing::default(), now, true, effects);
        } else if let Some(rejoin) = &upkeep.rejoin {
            rejoin.ask(registers, registers.group.others(), effects);
        }
        upkeep
    }

    /// True when it has its memory: it may answer, acknowledge and coordinate.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.rejoin.is_none()
    }

    /// Why it is not ready, for people.
    pub fn explain(&self, registers: &Registers) -> String {
        let explain = |rejoin: &Rejoin| match registers.standstill() {
            Some(why) => why.to_string(),
            None => rejoin.explain(registers),
        };
        self.rejoin.as_ref().map_or(String::new(), explain)
    }

    /// Whether it gets its memory back from members that have theirs. False while a majority is without it:
    /// that does not end by itself.
    pub fn catches_up(&self, registers: &Registers) -> bool {
        let rejoin = self.rejoin.as_ref().filter(|_| registers.standstill().is_none());
        rejoin.is_some_and(|rejoin| !rejoin.ready().is_empty())
    }

    /// Returns a node that is ready as far as this one knows, while this one is not.
    pub fn ready_node(&self, registers: &Registers) -> Option<NodeId> {
        Some(registers.group.node(self.rejoin.as_ref()?.ready_member(registers)?))
    }

    /// Takes a message of another member.
    pub fn message(
        &mut self,
        registers: &mut Registers,
        timing: &Timing,
        now: Now,
        from: usize,
        message: Message<'_>,
        effects: &mut Effects,
    ) {
        if let Body::Hello { nonce, round, past } = message.body {
            self.hello(registers, now, from, (nonce, round, past), &message, effects);
            return self.look_for_loss(registers, effects);
        }
        if let Some(rejoin) = &mut self.rejoin {
            let progress = rejoin.message(registers, timing, now, from, &message, effects);
            self.progress(registers, progress, effects);
            return self.look_for_loss(registers, effects);
        }
        match registers.learn_from(from, message.lives) {
            Sender::Current => registers.heard(from, now),
            Sender::Earlier => return,
            Sender::Impossible => {
                return registers.reject(from, "it names impossible incarnations", effects);
            }
        }
        if !matches!(message.body, Body::Fetch { .. } | Body::Standing { ready: false, .. }) {
            registers.has_memory(from);
        }
        match message.body {
            Body::Fetch { nonce, transfer, next } => {
                if registers.admit(from, message.lives.of(from), nonce) {
                    self.transfers.fetch(registers, timing, now, from, (nonce, transfer, next), effects);
                }
            }
            Body::Compare { walk, part, asks, tags } => {
                let is_same = repair::compare(registers, from, tags, effects);
                if self.sweep.walked(from, (walk, part, asks), is_same) {
                    registers.send(MemberSet::only(from), Body::Same { walk }, effects);
                }
            }
            Body::Same { walk } => self.sweep.same(registers, from, walk),
            Body::Differ { generation, wanted, entries } => {
                repair::take(registers, generation, entries);
                repair::supply(registers, from, wanted, effects);
            }
            Body::Repair { generation, entries } => repair::take(registers, generation, entries),
            Body::Collect { round, step, generation, tombstones } => {
                collection::take_step(registers, from, (round, step, generation, tombstones), effects);
            }
            Body::Collected { round, step, generation, held } => {
                self.collector.confirmed(registers, now, from, (round, step, generation, held), effects);
            }
            // `Hello` was handled above. The others are late: this replica's refill has ended.
            Body::Hello { .. } | Body::Standing { .. } | Body::SnapshotChunk { .. } => {}
        }
    }

    /// A member has started. From now on every message carries its new incarnation; only after that may the member get a
    /// snapshot.
    fn hello(
        &mut self,
        registers: &mut Registers,
        now: Now,
        from: usize,
        (nonce, round, past): (u64, u32, Past),
        message: &Message<'_>,
        effects: &mut Effects,
    ) {
        let reported = message.lives;
        let incarnation = reported.of(from);
        // Its report on other members may be useless, as when its own number is too low; its question counts.
        if reported.len() != registers.group.len() || incarnation == 0 {
            return registers.reject(from, "it names impossible incarnations", effects);
        }
        if registers.learn_from(from, reported) == Sender::Impossible && self.is_ready() {
            return registers.reject(from, "it names impossible incarnations", effects);
        }
        registers.heard(from, now);
        let admitted = registers.admit(from, incarnation, nonce);
        if admitted {
            self.transfers.forget(registers, from, nonce);
            // A member that has its memory needs no answer: its question has number 0.
            match round {
                0 => registers.has_memory(from),
                _ => {
                    let begins_with_us = self.anew.get(8 * from..8 * from + 8) == Some(&nonce.to_le_bytes());
                    let may_be_lost = may_be_lost(registers, past) && !begins_with_us;
                    registers.has_no_memory(from, round, may_be_lost);
                }
            }
        }
        let standing = Body::Standing {
            nonce,
            round,
            own_nonce: self.nonce,
            ready: self.is_ready(),
            past: self.rejoin.as_ref().map_or(Past::Forgotten, Rejoin::past),
            admitted,
            anew: &self.anew,
        };
        registers.send(MemberSet::only(from), standing, effects);
    }

    /// True when there is nothing to keep up: all members are present, and hold the same.
    pub fn is_resting(&self, registers: &Registers) -> bool {
        self.is_ready()
            && self.sweep.is_done(registers)
            && registers.is_still()
            && self.transfers.is_empty()
            && self.collector.is_empty()
    }

    /// Does what is due by now. With `may_stop` it skips what is needless while [`Upkeep::is_resting`].
    pub fn tick(
        &mut self,
        registers: &mut Registers,
        timing: &Timing,
        now: Now,
        may_stop: bool,
        effects: &mut Effects,
    ) {
        if let Some(rejoin) = &mut self.rejoin {
            let progress = rejoin.tick(registers, timing, now, effects);
            self.progress(registers, progress, effects);
            return self.look_for_loss(registers, effects);
        }
        self.transfers.tick(registers, timing, now);
        if now.ms_since(self.swept_us) >= timing.sweep_ms && !(may_stop && self.is_resting(registers)) {
            self.swept_us = now.monotonic_us;
            // All members must take part in a collection, so the first member can always lead it.
            let leads = registers.group.own() == 0;
            let collector = &mut self.collector;
            let tombstone = |key: &[u8], tag| {
                if leads {
                    collector.candidate(key, tag);
                }
            };
            self.sweep.step(registers, timing, now.unix_ms, tombstone, effects);
            self.collector.tick(registers, timing, now, effects);
        }
    }

    /// The link to a member came up: questions sent to it may have been lost.
    pub fn link_up(&mut self, registers: &Registers, member: usize, effects: &mut Effects) {
        if let Some(rejoin) = &self.rejoin {
            rejoin.ask(registers, MemberSet::only(member), effects);
        } else if registers.has_resumed() && registers.heard_us[member] == 0 {
            self.greet(registers, MemberSet::only(member), effects);
        }
    }

    /// Sends a hello that needs no answer. A replica that has its memory, as when it continues from its records, needs
    /// nothing from the others. But they should learn each other's incarnations before any of them has a question.
    fn greet(&self, registers: &Registers, to: MemberSet, effects: &mut Effects) {
        registers.send(to, Body::Hello { nonce: self.nonce, round: 0, past: Past::Forgotten }, effects);
    }

    /// An operator has given up what this member has forgotten and cannot recover.
    pub fn give_up(&mut self, registers: &mut Registers, now: Now, effects: &mut Effects) {
        let is_given_up = self.rejoin.as_mut().is_some_and(|rejoin| rejoin.give_up(registers, now, effects));
        if is_given_up {
            effects.trace.push(Trace::GivenUp { incarnation: registers.lives.own() });
            self.look_for_loss(registers, effects);
        }
    }

    /// Returns what is lost, if the group is stopped because of it.
    pub fn loss(&self, registers: &Registers, timing: &Timing, now: Now) -> Option<Loss> {
        registers.standstill()?;
        let group = &registers.group;
        let (lost, holding) = match &self.rejoin {
            None => (registers.lost, group.all().without(registers.without_memory)),
            Some(rejoin) => (rejoin.lost(registers), rejoin.ready()),
        };
        let silent = registers.silent(timing, now);
        let nodes = |members: MemberSet| members.iter().map(|member| group.node(member)).collect();
        Some(Loss { lost: nodes(lost), holding: nodes(holding.without(silent)), silent: nodes(silent) })
    }

    /// Checks whether a majority has lost its memory, or has it again. While a majority lacks it, no member finds enough
    /// sources until an operator acts.
    fn look_for_loss(&mut self, registers: &mut Registers, effects: &mut Effects) {
        let (lost, holding) = match &self.rejoin {
            None => (registers.lost, registers.group.all().without(registers.without_memory)),
            Some(rejoin) => (rejoin.lost(registers), rejoin.ready()),
        };
        let group = &registers.group;
        let before = registers.standstill.as_ref().map(|it| (it.lost, it.holding));
        if lost.len() < group.majority() {
            registers.standstill = None;
        } else if before != Some((lost, holding)) {
            let why = format!(
                "nodes {}, a majority of its {} replicas, have started without their memory: nobody can know what they \
                 alone had acknowledged, and this does not end by itself. Nodes that have theirs: {}. To see what is lost, and \
                 how to go on with what these hold: {}",
                group.list(lost),
                group.len(),
                group.list(holding),
                registers.recovery_line.shows()
            );
            if before.is_none_or(|(before, _)| before != lost) {
                let members = lost.iter().map(|member| group.node(member)).collect();
                effects.trace.push(Trace::MemoryLost { members });
            }
            registers.standstill = Some(Standstill { lost, holding, why });
        }
    }

    /// Returns when it needs its next tick.
    pub fn wakeup_us(&self, registers: &Registers, timing: &Timing, may_stop: bool) -> u64 {
        match &self.rejoin {
            Some(rejoin) => rejoin.wakeup_us(timing),
            None if may_stop && self.is_resting(registers) => u64::MAX,
            None => self.swept_us + timing.sweep_ms * 1000,
        }
    }

    fn progress(&mut self, registers: &mut Registers, progress: Progress, effects: &mut Effects) {
        let incarnation = registers.lives.own();
        match progress {
            Progress::Waiting => return,
            Progress::Refilled => {
                registers.counters.refills += 1;
                let keys = registers.table.len() as u64;
                effects.trace.push(Trace::Refilled { incarnation, keys });
            }
            Progress::Begins(empty) => {
                if let Some(rejoin) = &mut self.rejoin {
                    self.anew = match empty.is_empty() {
                        true => std::mem::take(&mut rejoin.began),
                        false => rejoin.names(registers, empty),
                    };
                }
                registers.all_may_have_memory();
                // Snapshots from members that have lost their memory since may lack what was acknowledged.
                registers.forget_snapshots();
                effects.trace.push(Trace::Begun { incarnation });
            }
        }
        assert!(self.transfers.is_empty(), "it has given a snapshot of what was not whole");
        registers.vouch();
        self.rejoin = None;
        // From now on the others count on this member as on any other, and should know that before it has something to
        // send.
        self.greet(registers, registers.group.others(), effects);
    }
}
