//! What the register protocols share. Each key is an independent register: the tags of its writes order them, and
//! majorities hold it, without a leader.
//!
//! Reading order: [`tag`] (what orders writes), [`members`] and [`lives`] (the members and their incarnations),
//! [`commands`] and [`requests`] (what clients can request, and requests under way), then the upkeep: [`rejoin`] and
//! [`transfers`] (how a replica that lost its memory rejoins), [`repair`], [`generations`] and [`collection`] (how
//! replicas converge, and how tombstones are removed), and last [`journal`], [`record`] and [`restoring`] (what survives
//! a crash).
//!
//! # Why acknowledgements survive restarts
//!
//! After a restart, a replica that keeps no records, or whose records do not count, has forgotten what it acknowledged.
//! With majority m of N, such a newcomer gets the tables of R = N - m + 1 others before it answers anything. Call a write
//! *decided* when a coordinator has counted acknowledgements from a majority Q, none of them from an incarnation that the
//! coordinator knew to be over.
//!
//! **Every member of Q, in each of its later incarnations that is refilled, holds the write or a newer one.** Let Y be
//! such a member, counted in incarnation y and refilled in incarnation y' > y. Of the other N - 1 members, m - 1 are in Q
//! and R are Y's sources. The two sets share a member P, counted in some incarnation p.
//!
//! * *P served Y in incarnation p, and had stored the write before its snapshot.* Then the snapshot holds the write.
//! * *P served Y in incarnation p, and stored the write afterwards.* Then P knew of y', because a source notes an
//!   incarnation before it takes a snapshot for it. So P's acknowledgement carried y', and the coordinator did not count
//!   Y's incarnation y: a contradiction.
//! * *P served Y in a later incarnation than p.* P was refilled before that, so it held the write, by induction over the
//!   times at which refills end.
//! * *P served Y in an earlier incarnation than p.* Then P lost its memory, and y' with it. But a source of Y that is
//!   refilled later learns of y' again: its own R sources, and the R members other than itself that know y' (Y's sources,
//!   and Y), share a member S. Either S reports y' to that source, or S had served the source before it served Y. In the
//!   latter case S reported to Y that the source's incarnation was over, and Y did not count that source's snapshot
//!   ([`rejoin`] drops it). So P knew of y' when it acknowledged, as in the second case.
//!
//! The same holds for everything else that a coordinator counts: an answer to a read, which states that a replica *holds*
//! a value, is an acknowledgement too. And a read's majority shares a member with Q that answers after the write was
//! decided, in an incarnation in which it holds the write. So a read in one round is covered.
//!
//! **With records** a replica forgets nothing that any coordinator counts on, since that was durable before it was sent
//! ([`journal`]). For the argument, all incarnations with the same records are one: P's *earlier incarnation* in the last
//! case is one before P lost its records. That P knows of y' is recorded before P serves Y, so a restart does not undo
//! it. Also, in place of a snapshot, Y may accept a member's statement that it has never vouched for anything. Then no
//! write has counted that member yet, and if one does later, the member's acknowledgement carries y', as in the second
//! case.
//!
//! **With members that were given up** (`Past::GivenUp`): an operator has declared that what they acknowledged in earlier
//! incarnations need not be recovered. A newcomer that counts such a member in place of a snapshot has the snapshots of
//! all others that have their memory. So members refilled in this way hold everything that is left, and every majority
//! contains one of them. The newcomer has reported its incarnation to the member that was given up, as it does to its
//! sources, so later acknowledgements are covered as in the second case.
//!
//! This requires that the node counts its starts, and never begins an incarnation with the number of an earlier one. If a
//! node loses its count, members that still know its old number notice ([`lives::Lives::admit`]); for a node that was
//! replaced, the control group knows the number ([`Replacement`]).

pub mod collection;
pub mod commands;
pub(crate) mod counters;
pub mod floor;
pub mod generations;
mod invariants;
pub mod journal;
pub mod lives;
pub mod members;
pub mod message;
pub mod record;
pub mod rejoin;
pub mod repair;
pub mod requests;
pub mod restoring;
pub mod tag;
pub mod transfers;
pub mod upkeep;

use crate::effects::{Configuration, Effects, NodeId, Now, Trace};
use crate::planted::{Fault, Planted};
use crate::recovery_line::RecoveryLine;
use crate::rest::Rest;
use crate::transfer::{Checkpoint, Window};
use crate::vouch::Vouches;
use floor::Floor;
use generations::Generations;
use journal::Journal;
use kv::{Register, Table};
use restoring::Memory;
pub use restoring::Replacement;

pub use commands::{Detail, Keys, Plan, Question};
pub use lives::{Lives, LivesView, Sender};
pub use members::{Group, MEMBERS_MAX, MemberSet};
pub use message::Past;
use message::{Body, Bounds};
pub use requests::{Errors, RequestId, Requests};
pub use tag::{Incarnation, Tag};
pub use upkeep::Loss;
pub use upkeep::Upkeep;

/// Time limits of the upkeep, and how much it does at once. Times in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A request without an answer is repeated after this time.
    pub retry_ms: u64,
    /// A replica that was never started before waits this long for others to report that it was.
    pub begin_grace_ms: u64,
    /// A source of a refill that sends nothing for this long is replaced by another.
    pub stall_ms: u64,
    /// The interval at which some keys are compared with the others.
    pub sweep_ms: u64,
    /// The number of keys compared at once.
    pub sweep_keys: usize,
    /// The most by which two nodes' clocks differ: a key that expired this long ago has expired at every node.
    pub clock_error_ms: u64,
    /// A collection of tombstones that is not confirmed for this long is abandoned.
    pub collection_ms: u64,
    /// The size of one chunk of a snapshot.
    pub chunk_bytes: usize,
    /// Chunks sent and not acknowledged.
    pub chunk_window: usize,
    /// A member from which nothing was received for this long is silent.
    pub silence_ms: u64,
}

impl Timing {
    /// How much of a snapshot is under way.
    fn window(&self) -> Window {
        Window { chunk_bytes: self.chunk_bytes, chunks: self.chunk_window }
    }
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

/// The counters of the upkeep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How often this replica was refilled.
    pub refills: u64,
    /// Keys that this replica received by repair.
    pub repaired_keys: u64,
    /// Tombstones forgotten in collections that this replica led.
    pub collected_tombstones: u64,
}

/// The question number of a report that a member has its memory: no question of the same incarnation has a greater
/// number.
const HAS_MEMORY: u32 = u32::MAX;

/// The state of a group in which a majority has lost its memory.
#[derive(Debug)]
struct Standstill {
    lost: MemberSet,
    holding: MemberSet,
    why: String,
}

/// One replica's registers, and what it knows of its group.
#[derive(Debug)]
pub struct Registers {
    /// The members; none before the first configuration.
    pub group: Group,
    /// The registers.
    pub table: Table,
    /// The incarnation of each member.
    pub lives: Lives,
    /// The group's progress in the collection of tombstones.
    pub generations: Generations,
    /// The members whose link is not known to be down, including this one.
    pub links: MemberSet,
    /// When a message was last received from each member.
    pub heard_us: Vec<u64>,
    /// The members from which a message was received since their link came up.
    heard: MemberSet,
    /// The peers that the node reaches.
    rest: Rest,
    /// The members' nodes that are alive and busy.
    pub(crate) vouches: Vouches,
    /// How often what this replica holds or knows has changed.
    changes: u64,
    /// The members that have reported that they are without their memory, and have sent nothing since that requires it.
    without_memory: MemberSet,
    /// Those of them that may have acknowledged what no other member holds.
    lost: MemberSet,
    /// For each member its newest incarnation that reported on its memory, and the number of its newest question at that
    /// time: [`HAS_MEMORY`] from its recovery on. A report with lower numbers is late, and ignored.
    reports: Vec<(Incarnation, u32)>,
    /// Why the group is stopped until an operator acts (a majority has lost its memory); `None` if it is not stopped.
    standstill: Option<Standstill>,
    /// What an operator says to end a standstill.
    pub(crate) recovery_line: RecoveryLine,
    /// The counters.
    pub counters: Counters,
    /// The records of this incarnation.
    pub journal: Journal,
    /// The maps that have taken keys from the group.
    pub(crate) floor: Floor,
    /// A planted fault, in tests.
    pub planted: Planted,
    table_seed: u64,
    nonce: u64,
    /// How often the node was started, this time included.
    starts: u64,
    memory: Memory,
    checkpoint: Option<Checkpoint>,
}

impl Registers {
    /// Returns empty registers, without a group. `seed` identifies this incarnation, `table_seed` protects the table from
    /// hash flooding. With `keeps_records` the registers survive a crash.
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
            vouches: Vouches::default(),
            changes: 0,
            without_memory: MemberSet::EMPTY,
            lost: MemberSet::EMPTY,
            reports: Vec::new(),
            standstill: None,
            recovery_line: RecoveryLine::default(),
            counters: Counters::default(),
            journal: Journal::new(keeps_records),
            floor: Floor::default(),
            planted,
            table_seed,
            nonce: name_of(seed),
            starts: 0,
            memory: Memory::default(),
            checkpoint: None,
        }
    }

    /// Takes the group when it becomes known.
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
        self.reports = vec![(0, 0); self.group.len()];
        Ok(())
    }

    /// Stores a register, unless the key has that write already or a later one. True when it was stored.
    #[inline]
    pub fn put(&mut self, key: &[u8], register: Register<'_>) -> bool {
        let is_taken = self.table.put_register(key, register);
        if is_taken {
            self.changes += 1;
            self.journal.record_register(key, register);
        }
        is_taken
    }

    /// Sets whether there is room for records. While there is none, registers sent by other members are ignored, as if
    /// the messages had been lost on the way, which is always possible. A later sweep brings them again.
    pub fn set_room(&mut self, has_room: bool) {
        self.journal.set_room(has_room);
    }

    /// True unless a register sent by another member would need a record for which there is no room.
    #[inline]
    pub fn may_take(&self, key: &[u8], register: Register<'_>) -> bool {
        self.journal.has_room() || self.table.register(key).version >= register.version
    }

    /// Returns the record that must be durable before a coordinator may count this replica as holding its present
    /// register of a key. 0: it is durable.
    #[inline]
    pub fn held_after(&self, key: &[u8]) -> u64 {
        match self.journal.register(key) {
            0 => 0,
            // There is nothing to forget about a key that was never written.
            _ if self.table.register(key).version == 0 => 0,
            _ if self.planted.has(Fault::RegisterAcknowledgedBeforeDurable) => 0,
            record => record,
        }
    }

    /// Learns the incarnations in a message, and returns how the message relates to its sender's newest incarnation.
    #[inline]
    pub fn learn_from(&mut self, from: usize, reported: LivesView<'_>) -> Sender {
        let sender = self.lives.learn_from(from, reported);
        self.note_lives();
        sender
    }

    /// Takes a member's report of the incarnation that it begins: see [`Lives::admit`].
    fn admit(&mut self, member: usize, incarnation: Incarnation, nonce: u64) -> bool {
        let is_admitted = self.lives.admit(member, incarnation, nonce);
        self.note_lives();
        is_admitted
    }

    /// Known incarnations must not be forgotten: a replica that is refilled from here relies on them.
    #[inline]
    fn note_lives(&mut self) {
        if self.lives.take_changed() {
            self.changes += 1;
            self.journal.record_lives(self.starts, &self.lives);
        }
    }

    /// Notes that records are durable up to this one.
    pub fn durable(&mut self, record: u64) {
        self.journal.durable(record);
    }

    /// Sends a message of the upkeep.
    pub(crate) fn send(&self, to: MemberSet, body: Body<'_>, effects: &mut Effects) {
        self.send_after(0, to, body, effects);
    }

    /// Sends a message of the upkeep that vouches for everything recorded so far.
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

    /// Traces an impossible message from a member.
    pub(crate) fn reject(&self, from: usize, why: &'static str, effects: &mut Effects) {
        effects.trace.push(Trace::Rejected { peer: self.group.node(from), why });
    }

    /// Notes that a message was received from a member.
    #[inline]
    pub fn heard(&mut self, member: usize, now: Now) {
        self.heard_us[member] = now.monotonic_us;
        self.heard.insert(member);
    }

    /// Notes that the link to a member came up, or broke.
    pub(crate) fn set_link(&mut self, member: usize, up: bool) {
        self.changes += 1;
        self.heard.remove(MemberSet::only(member));
        match up {
            true => self.links.insert(member),
            false if member == self.group.own() => {}
            false => self.links.remove(MemberSet::only(member)),
        }
    }

    /// Takes what [`set_reached`](crate::Replica::set_reached) reports.
    pub(crate) fn set_reached(&mut self, peer: NodeId, is_reached: bool) {
        self.changes += u64::from(self.rest.set_reached(peer, is_reached));
    }

    /// Whether a member's node can be reached, and a message of its replica has been received since.
    fn is_reached(&self, member: usize) -> bool {
        self.heard.contains(member) && self.rest.reaches(self.group.node(member))
    }

    /// Returns the milliseconds since the last message from a member: 0 while its node can be reached, as the group may
    /// be quiescent, and while its node is alive and busy.
    pub(crate) fn silent_ms(&self, member: usize, now: Now) -> u64 {
        let heard_us = self.heard_us[member];
        let is_excused =
            self.is_reached(member) || self.vouches.excuse(self.group.node(member), now, heard_us);
        if is_excused { 0 } else { now.ms_since(heard_us) }
    }

    /// Whether nothing expires by itself here, no member is without memory, and all others are present.
    fn is_still(&self) -> bool {
        self.without_memory.is_empty()
            && self.group.others().iter().all(|member| self.links.contains(member) && self.is_reached(member))
            && self.table.tombstones() == 0
            && crate::rest::is_still(&self.table)
            && self.journal.has_room()
    }

    /// Notes that a member sent a message that requires its memory.
    #[inline]
    pub fn has_memory(&mut self, member: usize) {
        self.reports[member] = (self.lives.of(member), HAS_MEMORY);
        if self.without_memory.contains(member) {
            self.changes += 1;
            self.without_memory.remove(MemberSet::only(member));
            self.lost.remove(MemberSet::only(member));
            // A refilling replica goes by the answers to its own questions ([`Upkeep`]).
            if self.memory.vouches && self.lost.len() < self.group.majority() {
                self.standstill = None;
            }
        }
    }

    /// Notes that a member's present incarnation reported, with its question of this number, that it is without its
    /// memory, and whether that may be a loss. Ignores late reports: an incarnation that has its memory keeps it.
    fn has_no_memory(&mut self, member: usize, round: u32, may_be_lost: bool) {
        let report = (self.lives.of(member), round);
        if report < self.reports[member] {
            return;
        }
        self.reports[member] = report;
        self.without_memory.insert(member);
        match may_be_lost {
            true => self.lost.insert(member),
            false => self.lost.remove(MemberSet::only(member)),
        }
    }

    /// The group begins: members without memory have nothing to recover.
    fn all_may_have_memory(&mut self) {
        (self.without_memory, self.lost, self.standstill) = (MemberSet::EMPTY, MemberSet::EMPTY, None);
    }

    /// Returns why no majority can answer before an operator acts, for people; `None` if one may.
    #[inline]
    pub fn standstill(&self) -> Option<&str> {
        self.standstill.as_ref().map(|standstill| standstill.why.as_str())
    }

    /// Returns the error for a request that cannot get a majority: it changed nothing.
    pub(crate) fn refusal(&self) -> Option<String> {
        Some(format!("CLUSTERDOWN NOQUORUM {}; nothing was changed", self.standstill()?))
    }

    /// Returns why a replica that has its memory cannot serve requests, for people; empty when it can: messages arrived
    /// recently from a majority that has its memory.
    pub fn lacks(&self, timing: &Timing, now: Now) -> String {
        if let Some(why) = self.standstill() {
            return why.into();
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

    /// Returns the other members that have been silent for a while.
    pub(crate) fn silent(&self, timing: &Timing, now: Now) -> MemberSet {
        let mut silent = self.group.others();
        for member in self.group.others().iter().filter(|member| self.is_heard(*member, timing, now)) {
            silent.remove(MemberSet::only(member));
        }
        silent
    }

    /// True when a message from a member arrived recently.
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

    /// Records that the bounds of the collection have changed.
    fn note_bounds(&mut self) {
        self.changes += 1;
        self.journal.record_bounds(self.bounds());
    }

    fn take_bounds(&mut self, bounds: Bounds) {
        self.generations.advance(bounds.generation);
        self.generations.refuse_before(bounds.minimum);
        self.generations.raise_floor(bounds.floor);
        self.table.set_version_floor(bounds.version);
    }
}

/// Returns a nonce that is different for each seed, and never 0 (the finaliser of splitmix64, which is one to one).
fn name_of(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}
