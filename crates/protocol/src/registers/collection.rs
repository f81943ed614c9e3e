//! The collection of tombstones: a deleted key is forgotten completely once that is safe.
//!
//! A tombstone keeps older writes of its key out. So it may be removed only when no older write, write-back or repair can
//! still be on its way, and messages may take any time. The members therefore agree on the removal in four steps, led by
//! the first member. All members confirm each step, each in the incarnation in which it was when the collection began.
//!
//! 1. **Hold**: every member holds these tombstones, or reports that it does not hold one; those are left out. Every
//!    member reports its generation. From now on every member chooses only counters greater than the tombstones' (the
//!    floor).
//! 2. **Advance** to a generation greater than all of those, and confirm when no operation of an earlier one is open.
//! 3. **Refuse** every value that is stamped with an earlier generation.
//! 4. **Forget** the tombstones.
//!
//! Why it is safe. A value stamped with the new generation belongs to an operation that began when its coordinator held
//! the tombstones, since step 2 follows step 1 at every member, so the operation carries nothing older. A repair carries
//! what is held when it is sent, and an answer to a query of the new generation was given after step 1. Every member
//! refuses values of older generations from step 3 on, and by step 2 they belong to no open operation. When some members
//! have forgotten a tombstone and others have not, the floor makes every new write of the key greater than it.
//!
//! A member that restarts during a collection has forgotten what it confirmed. It learns the generation, the least
//! admitted generation and the floor from its refill sources. If one of these had confirmed a step before, the member
//! learns that; otherwise all of them confirm the step afterwards, and report the newer incarnation with it, and the
//! collection is abandoned. (The argument is the same as for acknowledgements, see [`registers`](super).)
//!
//! With records each step is durable at a member before its confirmation leaves, and at the leading member before it
//! requests the next step. The removal of a tombstone, or of an expired key (which is *buried*: a tombstone replaces it),
//! is not recorded: after a crash the tombstone or key is present again, and is collected or buried once more.

use super::generations::Generations;
use super::members::MemberSet;
use super::message::{Body, Step, Tags};
use super::tag::{Incarnation, Tag};
use super::{Registers, Timing};
use crate::effects::{Effects, Now, Trace};
use crate::planted::Fault;
use std::collections::BTreeMap;

/// Tombstones in one collection.
const TOMBSTONES_MAX: usize = 1024;
/// Bytes of their keys.
const TOMBSTONE_BYTES_MAX: usize = 256 << 10;

/// A collection under way.
#[derive(Debug)]
pub(super) struct Round {
    number: u64,
    pub(super) step: Step,
    /// The generation to advance to; during Hold, the greatest that was reported.
    generation: u64,
    tombstones: Vec<(Vec<u8>, Tag)>,
    /// The tombstones, encoded for the messages.
    encoded: Vec<u8>,
    pub(super) confirmed: MemberSet,
    /// The incarnations in which every step has to be confirmed.
    lives: Vec<Incarnation>,
    began_us: u64,
    asked_us: u64,
}

/// The leading member's state of its collections.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// Each tombstone occurs once, however often the walk has passed it.
    pub(super) candidates: BTreeMap<Vec<u8>, Tag>,
    pub(super) candidate_bytes: usize,
    pub(super) round: Option<Round>,
    number: u64,
}

impl Collector {
    /// Collections get numbers that no earlier incarnation has used.
    pub(super) fn new(nonce: u64) -> Collector {
        Collector { number: nonce, ..Collector::default() }
    }

    /// True while there is nothing to collect.
    pub(super) fn is_empty(&self) -> bool {
        self.round.is_none() && self.candidates.is_empty()
    }

    /// Adds a tombstone that may be collected.
    pub(super) fn candidate(&mut self, key: &[u8], tag: Tag) {
        let has_room = self.candidates.len() < TOMBSTONES_MAX && self.candidate_bytes < TOMBSTONE_BYTES_MAX;
        if self.round.is_none() && has_room && self.candidates.insert(key.to_vec(), tag).is_none() {
            self.candidate_bytes += key.len();
        }
    }

    pub(super) fn tick(
        &mut self,
        registers: &mut Registers,
        timing: &Timing,
        now: Now,
        effects: &mut Effects,
    ) {
        if let Some(round) = &self.round
            && now.ms_since(round.began_us) >= timing.collection_ms
        {
            self.round = None;
        }
        if self.round.is_none() && !self.candidates.is_empty() && registers.reaches_all() {
            self.begin(registers, now, effects);
        }
        if let Some(round) = &mut self.round
            && now.ms_since(round.asked_us) >= timing.retry_ms
        {
            round.ask(registers, now, effects);
        }
        self.go_on(registers, now, effects);
    }

    fn begin(&mut self, registers: &Registers, now: Now, effects: &mut Effects) {
        self.number = self.number.wrapping_add(1);
        self.candidate_bytes = 0;
        let mut round = Round {
            number: self.number,
            step: Step::Hold,
            generation: registers.generations.current(),
            tombstones: std::mem::take(&mut self.candidates).into_iter().collect(),
            encoded: Vec::new(),
            confirmed: MemberSet::EMPTY,
            lives: registers.lives.known().to_vec(),
            began_us: now.monotonic_us,
            asked_us: now.monotonic_us,
        };
        round.encode();
        round.ask(registers, now, effects);
        self.round = Some(round);
    }

    /// Takes a member's confirmation of a step.
    pub(super) fn confirmed(
        &mut self,
        registers: &mut Registers,
        now: Now,
        from: usize,
        (number, step, generation, held): (u64, Step, u64, &[u8]),
        effects: &mut Effects,
    ) {
        let Some(round) = &mut self.round else { return };
        if (round.number, round.step) != (number, step) || round.confirmed.contains(from) {
            return;
        }
        if step == Step::Hold {
            if held.len() != round.tombstones.len() {
                return registers.reject(from, "a confirmation of other tombstones", effects);
            }
            // A tombstone that a member does not hold is marked rather than removed, so that the positions in the others'
            // answers still match.
            for (tombstone, held) in round.tombstones.iter_mut().zip(held) {
                if *held == 0 {
                    tombstone.1 = Tag::NONE;
                }
            }
            round.generation = round.generation.max(generation);
        }
        round.confirmed.insert(from);
        self.go_on(registers, now, effects);
    }

    /// Takes the next steps, as far as they are confirmed.
    fn go_on(&mut self, registers: &mut Registers, now: Now, effects: &mut Effects) {
        loop {
            let Some(round) = &mut self.round else { return };
            if round.lives != registers.lives.known() {
                self.round = None; // A member has forgotten what it confirmed.
                return;
            }
            let still_open =
                round.step == Step::Advance && !registers.generations.none_open_before(round.generation);
            if round.confirmed != registers.group.others() || still_open {
                return;
            }
            round.confirmed = MemberSet::EMPTY;
            round.step = match round.step {
                Step::Hold => {
                    let table = &registers.table;
                    round.tombstones.retain(|(key, tag)| {
                        let register = table.register(key);
                        register.is_deleted() && register.version == tag.version() && *tag != Tag::NONE
                    });
                    if round.tombstones.is_empty() {
                        self.round = None;
                        return;
                    }
                    round.encode();
                    raise_floor(registers, Tags::built(&round.encoded));
                    round.generation = round.generation.max(registers.generations.current()) + 1;
                    match registers.planted.has(Fault::TombstoneForgottenEarly) {
                        true => Step::Forget,
                        false => Step::Advance,
                    }
                }
                Step::Advance => Step::Refuse,
                Step::Refuse | Step::Forget => Step::Forget,
            };
            match round.step {
                Step::Hold => {}
                Step::Advance => {
                    registers.generations.advance(round.generation);
                    registers.note_bounds();
                }
                Step::Refuse => {
                    registers.generations.refuse_before(round.generation);
                    registers.note_bounds();
                }
                Step::Forget => {
                    let Generations { minimum, floor, .. } = registers.generations;
                    let is_safe = minimum >= round.generation
                        && round.tombstones.iter().all(|it| it.1.counter() <= floor);
                    let is_looked_at = registers.planted.has_invariants();
                    assert!(is_safe || !is_looked_at, "a tombstone is forgotten while older writes may come");
                    // Forget needs no confirmation: a member that misses it keeps a tombstone, which is collected another
                    // time.
                    round.ask(registers, now, effects);
                    forget(registers, Tags::built(&round.encoded));
                    let tombstones = round.tombstones.len() as u64;
                    registers.counters.collected_tombstones += tombstones;
                    effects.trace.push(Trace::TombstonesCollected { tombstones });
                    self.round = None;
                    return;
                }
            }
            round.ask(registers, now, effects);
        }
    }
}

impl Round {
    fn encode(&mut self) {
        self.encoded.clear();
        for (key, tag) in &self.tombstones {
            Tags::append(&mut self.encoded, key, *tag);
        }
    }

    /// Sends the present step to the members that have not confirmed it.
    fn ask(&mut self, registers: &Registers, now: Now, effects: &mut Effects) {
        self.asked_us = now.monotonic_us;
        let tombstones = match self.step {
            Step::Hold | Step::Forget => Tags::built(&self.encoded),
            Step::Advance | Step::Refuse => Tags::default(),
        };
        let (round, step, generation) = (self.number, self.step, self.generation);
        let collect = Body::Collect { round, step, generation, tombstones };
        // The leading member takes each step too, and must make it durable before the next one begins.
        registers.send_vouching(registers.group.others().without(self.confirmed), collect, effects);
    }
}

/// Takes a step that another member leads, and confirms it.
pub(super) fn take_step(
    registers: &mut Registers,
    from: usize,
    (round, step, generation, tombstones): (u64, Step, u64, Tags<'_>),
    effects: &mut Effects,
) {
    if !registers.journal.has_room() {
        return; // The leading member repeats the step, or abandons the collection.
    }
    let mut held = Vec::new();
    match step {
        Step::Hold => {
            for (key, tag) in tombstones.iter() {
                held.push(u8::from(hold(registers, key, tag)));
            }
            raise_floor(registers, tombstones);
        }
        Step::Advance => {
            registers.generations.advance(generation);
            registers.note_bounds();
            if !registers.generations.none_open_before(generation) {
                return; // The leading member repeats the step.
            }
        }
        Step::Refuse => {
            registers.generations.refuse_before(generation);
            registers.note_bounds();
        }
        Step::Forget => return forget(registers, tombstones),
    }
    let collected = Body::Collected { round, step, generation: registers.generations.current(), held: &held };
    registers.send_vouching(MemberSet::only(from), collected, effects);
}

/// True when the tombstone itself is held now: not something newer, nor an expired value that will be buried under its
/// tag.
fn hold(registers: &mut Registers, key: &[u8], tag: Tag) -> bool {
    let tombstone = kv::Register { version: tag.version(), ..kv::Register::UNWRITTEN };
    registers.put(key, tombstone) || registers.table.register(key) == tombstone
}

fn raise_floor(registers: &mut Registers, tombstones: Tags<'_>) {
    let counters = tombstones.iter().map(|(_, tag)| tag.counter());
    registers.generations.raise_floor(counters.max().unwrap_or(0));
    registers.note_bounds();
}

fn forget(registers: &mut Registers, tombstones: Tags<'_>) {
    for (key, tag) in tombstones.iter() {
        registers.table.remove_tombstone(key, tag.version());
    }
}
