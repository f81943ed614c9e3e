//! State that the coordinator and the replica of one node share, and the replica's side: locks and writes.

use super::item::{Answer, Ask, Item};
use super::locks::{Holder, Locks};
use super::message::encode_turn;
use super::options::{Options, Timing};
use crate::contract::{Effects, Now};
use crate::planted::Fault;
use crate::registers::{Group, Lives, MEMBERS_MAX, MemberSet, Registers, Tag};
use kv::{Register, Table};
use std::collections::BTreeSet;

/// The counters of a replica since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Locks that this replica granted.
    pub granted: u64,
    /// Locks that this replica denied.
    pub denied: u64,
    /// Locks whose lease ran out before they were released.
    pub expired: u64,
    /// Writes that this replica refused because the writer did not have the lock, or no longer had it.
    pub writes_denied: u64,
    /// Operations of this coordinator that met a lock and tried again later.
    pub backoffs: u64,
    /// Reads that were done in one round.
    pub one_round_reads: u64,
    /// Reads that saw different tags and wrote the newest back.
    pub repairs: u64,
    /// Locks that were granted when they were no longer needed, and were therefore released.
    pub surplus_released: u64,
    /// Messages that were sent again because they were lost or late.
    pub retries: u64,
    /// Writes that were withdrawn, so that they will never be accepted.
    pub withdrawn: u64,
    /// Operations that ended as refused.
    pub refused: u64,
    /// Writes that ended as unknown.
    pub unknown: u64,
}

/// Items to be sent to one peer at the end of the turn.
#[derive(Debug, Default)]
struct Outbox {
    asks: Vec<u8>,
    answers: Vec<u8>,
    /// Answers that vouch for what this replica holds; `after_record` must be durable before they leave.
    waiting: Vec<u8>,
    after_record: u64,
}

/// State that coordinator and replica share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) registers: Registers,
    pub(super) options: Options,
    pub(super) timing: Timing,
    pub(super) locks: Locks,
    pub(super) counters: Counters,
    /// What this replica holds for attempts of its coordinator but may lose in a crash until a record is durable:
    /// (record, attempt, tag).
    pub(super) undurable: BTreeSet<(u64, u64, Tag)>,
    outboxes: [Outbox; MEMBERS_MAX],
}

impl State {
    pub(super) fn new(options: Options, timing: Timing, seed: u64, table_seed: u64) -> State {
        State {
            registers: Registers::new(seed, table_seed, options.keeps_records, options.planted),
            options,
            timing,
            locks: Locks::new(timing.lease_ms),
            counters: Counters::default(),
            undurable: BTreeSet::new(),
            outboxes: Default::default(),
        }
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.options.planted.has(fault)
    }

    pub(super) fn group(&self) -> &Group {
        &self.registers.group
    }

    pub(super) fn lives(&self) -> &Lives {
        &self.registers.lives
    }

    pub(super) fn table(&self) -> &Table {
        &self.registers.table
    }

    /// Returns the members whose link is not known to be down, including this one.
    pub(super) fn links(&self) -> MemberSet {
        self.registers.links
    }

    /// Returns the members whose link is down, or that have been silent for a long time.
    pub(super) fn absent(&self, now: Now) -> MemberSet {
        let (registers, timing) = (&self.registers, &self.timing.upkeep);
        let mut absent = MemberSet::EMPTY;
        for member in
            registers.group.others().iter().filter(|member| !registers.is_heard(*member, timing, now))
        {
            absent.insert(member);
        }
        absent
    }

    /// Returns an attempt of this coordinator as the holder of a lock.
    pub(super) fn own_holder(&self, attempt: u64) -> Holder {
        Holder { node: self.group().node(self.group().own()), attempt }
    }

    // The replica's side.

    /// Grants a lock to the first holder that requests it.
    pub(super) fn lock(&mut self, now: Now, key: &[u8], holder: Holder) -> Option<u64> {
        let granted = self.locks.acquire(now.monotonic_us, key, holder);
        match granted {
            Some(_) => self.counters.granted += 1,
            None => self.counters.denied += 1,
        }
        granted
    }

    /// Frees the locks of members that have begun other incarnations: their coordinators have forgotten what they held.
    pub(super) fn free_locks_of_earlier_lives(&mut self, members: MemberSet) {
        for member in members.iter() {
            let (node, incarnation) = (self.group().node(member), self.lives().of(member));
            self.locks.end_earlier_lives(node, incarnation);
        }
    }

    /// Stores a write if its grant lasts. True when the key holds the write, or a newer one, afterwards. If it did
    /// before, the grant is not checked.
    pub(super) fn store(
        &mut self,
        now: Now,
        key: &[u8],
        (holder, grant): (Holder, u64),
        (generation, register): (u64, Register<'_>),
    ) -> bool {
        if self.table().register(key).version >= register.version {
            return true;
        }
        let is_held = self.locks.is_held(now.monotonic_us, key, holder, grant);
        let may_write = is_held || self.has(Fault::WriteWithoutLockCheck);
        if !may_write || !self.registers.generations.admits(generation) {
            self.counters.writes_denied += 1;
            return false;
        }
        self.registers.put(key, register)
    }

    /// Frees a lock if the attempt holds it. True when it did.
    pub(super) fn unlock(&mut self, key: &[u8], holder: Holder) -> bool {
        if self.has(Fault::UnlockByNonOwner) {
            return self.locks.release_any(key);
        }
        self.locks.release(key, holder)
    }

    /// Executes a request of a peer's coordinator, and puts the answer into the peer's outbox.
    pub(super) fn serve(&mut self, now: Now, from: usize, ask: Ask<'_>) {
        let node = self.group().node(from);
        let holder = |attempt| Holder { node, attempt };
        match ask {
            Ask::Lock { attempt, key, newer_than } => match self.lock(now, key, holder(attempt)) {
                Some(grant) => {
                    let Register { version, deadline, value } = self.registers.table.register(key);
                    let tag = Tag::of_version(version);
                    let value = newer_than.is_some_and(|known| tag > known).then_some(value);
                    let answer = Answer::Granted { attempt, key, grant, tag, deadline, value };
                    // Like `vouch`, with a value that is still in the table.
                    let record = self.registers.held_after(key);
                    answer.encode(self.outboxes[from].vouching(record));
                }
                None => self.answer(from, Answer::Denied { attempt }),
            },
            Ask::Write { key, register, .. } if !self.registers.may_take(key, register) => {}
            Ask::Write { attempt, grant, key, generation, register } => {
                let stored = self.store(now, key, (holder(attempt), grant), (generation, register));
                match stored {
                    true => self.vouch(from, key, Answer::Stored { attempt }),
                    false => self.answer(from, Answer::Lost { attempt, grant }),
                }
            }
            Ask::Unlock { attempt, key, tag } => {
                let freed = self.unlock(key, holder(attempt));
                let holds = tag > Tag::NONE && self.table().register(key).version >= tag.version();
                let unlocked = Answer::Unlocked { attempt, freed, holds };
                match holds {
                    true => self.vouch(from, key, unlocked),
                    false => self.answer(from, unlocked),
                }
            }
        }
    }

    // Outgoing messages.

    /// True when nothing is gathered for any peer.
    pub(super) fn is_silent(&self) -> bool {
        let is_empty = |it: &Outbox| it.asks.is_empty() && it.answers.is_empty() && it.waiting.is_empty();
        self.outboxes.iter().all(is_empty)
    }

    /// Sends a request to a peer, at the end of the turn.
    pub(super) fn ask(&mut self, to: usize, ask: Ask<'_>) {
        ask.encode(&mut self.outboxes[to].asks);
    }

    /// Sends a replica what this one holds of a key, under the replica's grant, if that is newer.
    pub(super) fn write_own(&mut self, to: usize, (attempt, grant): (u64, u64), key: &[u8], held_there: Tag) {
        let register = self.registers.table.register(key);
        if register.version > held_there.version() {
            let generation = self.registers.generations.current();
            let write = Ask::Write { attempt, grant, key, generation, register };
            write.encode(&mut self.outboxes[to].asks);
        }
    }

    fn answer(&mut self, to: usize, answer: Answer<'_>) {
        answer.encode(&mut self.outboxes[to].answers);
    }

    /// Adds an answer that vouches for what this replica holds of a key, to be sent when that is durable.
    fn vouch(&mut self, to: usize, key: &[u8], answer: Answer<'_>) {
        let record = self.registers.held_after(key);
        answer.encode(self.outboxes[to].vouching(record));
    }

    /// Sends to each peer what was gathered for it, if that is at least `bytes_min`: one message per peer, and one more
    /// if something has to wait.
    pub(super) fn send(&mut self, bytes_min: usize, effects: &mut Effects) {
        let State { registers: Registers { group, lives, journal, floor, .. }, outboxes, .. } = self;
        let floor = floor.own();
        for (member, outbox) in outboxes.iter_mut().enumerate().take(group.len()) {
            let Outbox { asks, answers, waiting, after_record } = outbox;
            if asks.len() + answers.len() + waiting.len() < bytes_min.max(1) {
                continue;
            }
            let to = [group.node(member)];
            if asks.len() + answers.len() > 0 {
                effects.send_after(journal.life(), to, |out| {
                    encode_turn(floor, lives, asks, answers, out);
                });
            }
            if !waiting.is_empty() {
                let after_record = journal.life().max(std::mem::take(after_record));
                effects.send_after(after_record, to, |out| encode_turn(floor, lives, &[], waiting, out));
            }
            for bytes in [asks, answers, waiting] {
                bytes.clear();
                const KEPT_BYTES: usize = 64 << 10;
                bytes.shrink_to(KEPT_BYTES);
            }
        }
    }
}

impl Outbox {
    /// Returns the buffer for an answer that vouches for what `record` makes durable; 0: for what is durable.
    fn vouching(&mut self, record: u64) -> &mut Vec<u8> {
        if record == 0 {
            return &mut self.answers;
        }
        self.after_record = self.after_record.max(record);
        &mut self.waiting
    }
}
