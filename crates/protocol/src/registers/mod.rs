//! What the protocols of registers share: each key is a register of its own, ordered by the tags of its writes, and
//! held by majorities without a leader.
//!
//! Reading order: [`tag`] (what orders writes), [`members`] and [`lives`] (who takes part, and in which of its
//! lives), [`commands`] and [`requests`] (what can be asked, and by whom it is), then the upkeep: [`rejoin`] and
//! [`refill`] (how a replica that lost its memory comes back), [`repair`], [`generations`] and [`collection`] (how
//! replicas become equal, and tombstones go), and last [`journal`], [`record`] and [`restoring`] (what outlives a crash).
//!
//! # Why acknowledgements survive restarts
//!
//! A replica that keeps no records, or whose records do not count, has forgotten after a restart what it acknowledged. With
//! majority m of N, a
//! newcomer copies the tables of R = N - m + 1 others before it answers anything. Let a write be *decided*: a
//! coordinator counted acknowledgements of a majority Q, none of a life that it knew to be over.
//!
//! **Every member of Q, in every later life of its that is refilled, holds the write or a newer one.** Let Y be such a
//! member, counted in life y and refilled in life y' > y. Of the other N - 1 members, m - 1 are in Q and R are Y's
//! sources: they share one, P, counted in some life p.
//!
//! * *P served Y in life p, and had stored the write before it began the copy.* Then the copy holds it.
//! * *P served Y in life p, and stored the write afterwards.* It knew of y' then, for a life is noted before a copy is
//!   begun. So its acknowledgement said y', and the coordinator did not count Y's life y. A contradiction.
//! * *P served Y in a later life than p.* It was refilled before that, so it held the write, by induction over the times
//!   at which refills end.
//! * *P served Y in an earlier life than p.* Then P lost its memory, y' with it. But whoever was a source of Y and is
//!   refilled later learns of y' again: its own R sources and the R members other than it that know y' (Y's sources,
//!   and Y) share one. Either that one tells it, or it had served it before it served Y; then it told Y that the
//!   source's life was over, and Y did not count that copy ([`rejoin`] drops it). So P knew of y' when it
//!   acknowledged, as in the second case.
//!
//! The same holds for whatever else a coordinator counts: that a replica *holds* a value, as a read does, is an
//! acknowledgement too. And a read's majority shares a member with Q that answers after the write was decided, in a
//! life in which it holds it. So a read in one round is covered.
//!
//! **With records** a replica has forgotten nothing that anybody counts on, since that was durable before it was told
//! ([`journal`]). For the argument its lives are one: P's *earlier life* in the last case is one in which it lost its
//! records. That P knows of y' is recorded before P serves Y, so a restart does not take it back. And Y may take for a copy
//! that a member has never vouched for anything: it has then not been counted for any write, and if it is later, its
//! acknowledgement says y', as in the second case.
//!
//! **With members that were given up** (`Past::GivenUp`): an operator has said that what they acknowledged in earlier lives
//! need not be found again. A newcomer that counts one of them for a copy has copies of all others that have their memory, so
//! those that are refilled so hold all that is left, and every majority has one of them. It has told that member its life,
//! as it tells its sources, so later acknowledgements are covered as in the second case.
//!
//! What this asks of the node: to count its starts, and never to begin a life with the number of an earlier one. A
//! lost count is noticed by whoever still knows the old one ([`lives::Lives::admit`]); of a node that was replaced the
//! control group knows it ([`Replacement`]).

pub mod collection;
pub mod commands;
pub mod generations;
mod invariants;
pub mod journal;
pub mod lives;
pub mod members;
pub mod message;
pub mod record;
pub mod refill;
pub mod rejoin;
pub mod repair;
pub mod requests;
pub mod restoring;
pub mod tag;
pub mod upkeep;

use crate::contract::{Configuration, Effects, NodeId, Now, Trace};
use crate::planted::{Fault, Planted};
use crate::rest::Rest;
use generations::Generations;
use journal::Journal;
use kv::{Register, Table};
pub use restoring::Replacement;
use restoring::{Checkpoint, Memory};

pub use commands::{Detail, Keys, Plan, Question};
pub use lives::{Lives, LivesView, Sender};
pub use members::{Group, MEMBERS_MAX, MemberSet};
pub use message::Past;
use message::{Body, Bounds};
pub use requests::{Deferred, Errors, RequestId, Requests};
pub use tag::{Incarnation, Tag};
pub use upkeep::Loss;
pub use upkeep::Upkeep;

/// How long the upkeep may take, and how much it does at once. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A question without an answer is asked again after so long.
    pub retry_ms: u64,
    /// A replica that was never started before gives others so long to tell it that it was.
    pub begin_grace_ms: u64,
    /// A source of a refill that sends nothing for so long is replaced by another.
    pub stall_ms: u64,
    /// Some keys are compared with the others this often.
    pub sweep_ms: u64,
    /// So many keys.
    pub sweep_keys: usize,
    /// No two nodes' clocks are farther apart: a key that expired so long ago has expired for everybody.
    pub clock_error_ms: u64,
    /// A collection of tombstones that is not confirmed for so long is given up.
    pub collection_ms: u64,
    /// One chunk of a copy.
    pub chunk_bytes: usize,
    /// Chunks sent and not acknowledged.
    pub chunk_window: usize,
    /// A member that was not heard for so long is silent.
    pub silence_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            retry_ms: 200,
            begin_grace_ms: 1000,
            stall_ms: 2000,
            sweep_ms: 100,
            sweep_keys: 256,
            clock_error_ms: 60_000,
            collection_ms: 10_000,
            chunk_bytes: 256 << 10,
            chunk_window: 8,
            silence_ms: 1000,
        }
    }
}

/// What the upkeep has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How often this replica was refilled.
    pub refills: u64,
    /// Keys that it got by repair.
    pub repaired_keys: u64,
    /// Tombstones that were forgotten under its lead.
    pub collected_tombstones: u64,
}

/// One replica's registers, and what it knows of its group.
#[derive(Debug)]
pub struct Registers {
    /// The members; none before the first configuration.
    pub group: Group,
    /// The registers.
    pub table: Table,
    /// Which life each member is in.
    pub lives: Lives,
    /// How far the group is, for the collection of tombstones.
    pub generations: Generations,
    /// Members whose link is not known to be down, this one included.
    pub links: MemberSet,
    /// When each member was last heard.
    pub heard_us: Vec<u64>,
    /// Those that were heard over the link that is up.
    heard: MemberSet,
    /// Whom the node reaches.
    rest: Rest,
    /// How often this replica has come to hold, or to know, something else.
    changes: u64,
    /// Members that have said that they are without their memory, and nothing since that takes it.
    without_memory: MemberSet,
    /// Those of them that may have acknowledged what nobody else holds.
    lost: MemberSet,
    /// Why the group stands still until an operator does something, if it does: a majority has lost its memory.
    standstill: Option<String>,
    /// What was counted.
    pub counters: Counters,
    /// What was recorded in this life.
    pub journal: Journal,
    /// A fault to be found, in tests.
    pub planted: Planted,
    table_seed: u64,
    nonce: u64,
    /// How often the node was started, this life included.
    starts: u64,
    memory: Memory,
    checkpoint: Option<Checkpoint>,
}

impl Registers {
    /// Empty, and without a group. `seed` names this life, `table_seed` keeps the table from flooding. With `keeps_records`
    /// what is held is to be found again after a crash.
    pub fn new(seed: u64, table_seed: u64, keeps_records: bool, planted: Planted) -> Registers {
        Registers {
            group: Group::default(),
            table: Table::new(table_seed),
            lives: Lives::default(),
            generations: Generations::default(),
            links: MemberSet::EMPTY,
            heard_us: Vec::new(),
            heard: MemberSet::EMPTY,
            rest: Rest::default(),
            changes: 0,
            without_memory: MemberSet::EMPTY,
            lost: MemberSet::EMPTY,
            standstill: None,
            counters: Counters::default(),
            journal: Journal::new(keeps_records),
            planted,
            table_seed,
            nonce: name_of(seed),
            starts: 0,
            memory: Memory::default(),
            checkpoint: None,
        }
    }

    /// The group becomes known.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn join(&mut self, id: NodeId, configuration: &Configuration) -> Result<(), &'static str> {
        let group = Group::new(id, configuration)?;
        if !self.records_fit(group.len()) {
            return Err("its records are of a group with other members");
        }
        self.group = group;
        self.links = self.group.all();
        self.heard_us = vec![0; self.group.len()];
        Ok(())
    }

    /// Takes a register, unless the key has that write already or a later one. True when it was taken.
    #[inline]
    pub fn put(&mut self, key: &[u8], register: Register<'_>) -> bool {
        let is_taken = self.table.put_register(key, register);
        if is_taken {
            self.changes += 1;
            self.journal.tell_register(key, register);
        }
        is_taken
    }

    /// Whether there is room for records. While there is none, nothing is taken from other members: what they send is
    /// passed over as if it had been lost on its way, which any message may be, and a sweep brings it later.
    pub fn set_room(&mut self, has_room: bool) {
        self.journal.set_room(has_room);
    }

    /// True unless a register that another member sends would need a record for which there is no room.
    #[inline]
    pub fn may_take(&self, key: &[u8], register: Register<'_>) -> bool {
        self.journal.has_room() || self.table.register(key).version >= register.version
    }

    /// The record that has to be durable before anybody counts that this replica holds what it does of a key. 0: it is.
    #[inline]
    pub fn held_after(&self, key: &[u8]) -> u64 {
        match self.journal.register(key) {
            0 => 0,
            // There is nothing to forget of a key that was never written.
            _ if self.table.register(key).version == 0 => 0,
            _ if self.planted.has(Fault::RegisterToldBeforeDurable) => 0,
            record => record,
        }
    }

    /// Learns from the lives that come with a message, and says whether the message is to be heeded.
    #[inline]
    pub fn hear(&mut self, from: usize, told: LivesView<'_>) -> Sender {
        let sender = self.lives.hear(from, told);
        self.note_lives();
        sender
    }

    /// A member says which life it begins: see [`Lives::admit`].
    fn admit(&mut self, member: usize, incarnation: Incarnation, nonce: u64) -> bool {
        let is_admitted = self.lives.admit(member, incarnation, nonce);
        self.note_lives();
        is_admitted
    }

    /// What is known of lives must not be forgotten: a replica that is refilled from here relies on it.
    #[inline]
    fn note_lives(&mut self) {
        if self.lives.take_changed() {
            self.changes += 1;
            self.journal.tell_lives(self.starts, &self.lives);
        }
    }

    /// Records are durable up to this one.
    pub fn durable(&mut self, record: u64) {
        self.journal.durable(record);
    }

    /// Sends a message of the upkeep.
    pub(crate) fn send(&self, to: MemberSet, body: Body<'_>, effects: &mut Effects) {
        self.send_after(0, to, body, effects);
    }

    /// Sends a message of the upkeep that vouches for all that was recorded until now.
    fn send_vouching(&self, to: MemberSet, body: Body<'_>, effects: &mut Effects) {
        self.send_after(self.journal.last(), to, body, effects);
    }

    fn send_after(&self, record: u64, to: MemberSet, body: Body<'_>, effects: &mut Effects) {
        if !to.is_empty() {
            let to = to.iter().map(|member| self.group.node(member));
            let record = record.max(self.journal.life());
            effects.send_after(record, to, |out| body.encode(&self.lives, out));
        }
    }

    /// A member sent what cannot be.
    pub(crate) fn reject(&self, from: usize, why: &'static str, effects: &mut Effects) {
        effects.trace.push(Trace::Rejected { peer: self.group.node(from), why });
    }

    /// A member was heard.
    #[inline]
    pub fn heard(&mut self, member: usize, now: Now) {
        self.heard_us[member] = now.monotonic_us;
        self.heard.insert(member);
    }

    /// The link to a member came up, or broke.
    pub(crate) fn set_link(&mut self, member: usize, up: bool) {
        self.changes += 1;
        self.heard.remove(MemberSet::only(member));
        match up {
            true => self.links.insert(member),
            false if member == self.group.own() => {}
            false => self.links.remove(MemberSet::only(member)),
        }
    }

    /// What [`set_reached`](crate::Replica::set_reached) tells.
    pub(crate) fn set_reached(&mut self, peer: NodeId, is_reached: bool) {
        self.changes += u64::from(self.rest.set_reached(peer, is_reached));
    }

    /// Whether a member's node is reached, and the replica there has been heard since it is.
    fn is_reached(&self, member: usize) -> bool {
        self.heard.contains(member) && self.rest.reaches(self.group.node(member))
    }

    /// For how many milliseconds a member was not heard: none while its node is reached, as it may rest.
    pub(crate) fn silent_ms(&self, member: usize, now: Now) -> u64 {
        if self.is_reached(member) { 0 } else { now.ms_since(self.heard_us[member]) }
    }

    /// Whether nothing ends by itself here, nobody is without memory, and all others are there.
    fn is_still(&self) -> bool {
        self.without_memory.is_empty()
            && self.group.others().iter().all(|member| self.links.contains(member) && self.is_reached(member))
            && self.table.tombstones() == 0
            && crate::rest::is_still(&self.table)
            && self.journal.has_room()
    }

    /// A member says what takes its memory.
    #[inline]
    pub fn has_memory(&mut self, member: usize) {
        if self.without_memory.contains(member) {
            self.changes += 1;
            self.without_memory.remove(MemberSet::only(member));
            self.lost.remove(MemberSet::only(member));
            if self.lost.len() < self.group.majority() {
                self.standstill = None;
            }
        }
    }

    /// A member says that it is without its memory, and whether that may be a loss.
    fn has_no_memory(&mut self, member: usize, may_be_lost: bool) {
        self.without_memory.insert(member);
        match may_be_lost {
            true => self.lost.insert(member),
            false => self.lost.remove(MemberSet::only(member)),
        }
    }

    /// The group begins: who was without memory has nothing to get back.
    fn all_may_have_memory(&mut self) {
        (self.without_memory, self.lost, self.standstill) = (MemberSet::EMPTY, MemberSet::EMPTY, None);
    }

    /// Why no majority will ever answer before an operator has done something, for people; `None` where it may.
    #[inline]
    pub fn standstill(&self) -> Option<&str> {
        self.standstill.as_deref()
    }

    /// What a request is told that will never have a majority: nothing was changed by it.
    pub(crate) fn refusal(&self) -> Option<String> {
        Some(format!("CLUSTERDOWN NOQUORUM {}; nothing was changed", self.standstill()?))
    }

    /// Why requests cannot be served by a replica that has its memory, for people; empty where they can: a majority that
    /// has its memory was heard not long ago.
    pub fn lacks(&self, timing: &Timing, now: Now) -> String {
        if let Some(why) = &self.standstill {
            return why.clone();
        }
        let silent = self.silent(timing, now);
        let answering = self.group.all().without(silent).without(self.without_memory);
        if answering.len() >= self.group.majority() {
            return String::new();
        }
        let mut why = format!("no majority of its {} replicas answers", self.group.len());
        for (what, members) in
            [("not heard", silent), ("without memory yet", self.without_memory.without(silent))]
        {
            if !members.is_empty() {
                why += &format!("; {what}: {}", self.group.list(members));
            }
        }
        why + "; start the nodes that are not there"
    }

    /// The other members that were not heard for a while.
    pub(crate) fn silent(&self, timing: &Timing, now: Now) -> MemberSet {
        let mut silent = self.group.others();
        for member in self.group.others().iter().filter(|member| self.is_heard(*member, timing, now)) {
            silent.remove(MemberSet::only(member));
        }
        silent
    }

    /// True when a member was heard not long ago.
    pub fn is_heard(&self, member: usize, timing: &Timing, now: Now) -> bool {
        self.links.contains(member)
            && self.heard_us[member] > 0
            && self.silent_ms(member, now) <= timing.silence_ms
    }

    /// True when no link is known to be down.
    pub fn reaches_all(&self) -> bool {
        self.links == self.group.all()
    }

    /// True when a majority can be reached, as far as is known.
    pub fn reaches_majority(&self) -> bool {
        self.links.len() >= self.group.majority()
    }

    fn clear(&mut self) {
        self.changes += 1;
        self.table = Table::new(self.table_seed);
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            generation: self.generations.current(),
            minimum: self.generations.minimum(),
            floor: self.generations.floor(),
            version: self.table.version_floor(),
        }
    }

    /// How far the group is has changed.
    fn note_bounds(&mut self) {
        self.changes += 1;
        self.journal.tell_bounds(self.bounds());
    }

    fn take_bounds(&mut self, bounds: Bounds) {
        self.generations.advance(bounds.generation);
        self.generations.refuse_before(bounds.minimum);
        self.generations.raise_floor(bounds.floor);
        self.table.set_version_floor(bounds.version);
    }
}

/// A name that another seed does not have: never 0 (the finaliser of splitmix64, which is one to one).
fn name_of(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}
