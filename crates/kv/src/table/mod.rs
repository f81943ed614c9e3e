//! The in-memory table: the state machine that every protocol drives.
//!
//! [`Table::apply`] takes one record of the group's history; [`Table::read`] needs no record. A record carries its time
//! and number, so replicas that apply the same records hold the same keys, values, versions and deadlines. `KEYS` and
//! `SCAN` return keys in the order of their hashes, which replicas with the same seed share.
//!
//! Reading order: `kind` and `entry` (one key in memory), `partition` and `index` (where entries are stored and how a key is
//! found), `store` (the few ways in which the table changes), `changes` (followers of them), `effects` and `history` (what is
//! kept of them for later readers), `order` (numbers as bytes that are in order); `tree`, `collections` and `entry_items` (what
//! lists, sets, sorted sets, hashes and streams consist of, with `members` and `stream_items`), `found` (how commands get at them).
//! Then the commands: `reads`, `scan`, `strings`, `numbers`, `bits`, `sketches`, `common`, `lists`, `sets`, `sorted_view` and `sorted`,
//! `geo`, `streams`, `hashes`, `sort`, `expire`, `eviction`, `keys`, `charges` (what commands add to memory), `transactions`,
//! `locks`, `queues`, `two_phase`, `scripts` and `interpreter`, `registers`; last `coded` and `spill` (values that are not in the table), `long` (commands that
//! arrive in parts), and `snapshot`.

mod bits;
mod blocks;
mod changes;
mod charges;
mod coded;
mod collections;
mod common;
mod draws;
mod dump;
mod effects;
mod entry;
mod entry_items;
mod eviction;
mod expire;
mod floor;
mod foreseen;
mod found;
mod geo;
mod hashes;
mod history;
mod index;
mod interpreter;
mod keys;
mod kind;
mod lists;
mod locks;
mod long;
mod long_reads;
mod members;
mod name_hash;
mod numbers;
mod order;
mod partition;
mod queues;
mod reads;
mod refusals;
mod registers;
mod scan;
mod scripts;
mod sets;
mod sketches;
mod snapshot;
mod sort;
mod sorted;
mod sorted_view;
mod spill;
mod store;
mod stream_items;
mod streams;
mod strings;
#[cfg(test)]
mod tests;
mod transactions;
mod tree;
mod two_phase;

use crate::command::{By, Command, Condition, Expiry, List, SetAnswer, SortedCommand};
use crate::glob::Pattern;
use crate::limits::WALKED_BYTES_MAX;
use crate::locks::{LockEvent, Locks};
use crate::planted::Fault;
use crate::queues::Queues;
use crate::reply::{Reads, ReplyBuffer};
use crate::two_phase::TwoPhase;
use crate::watch::{RecordName, Watch, Watching};
use crate::{UnixMs, ValueId, Version};
use arrayvec::ArrayVec;
use charges::Charges;
use coded::CodedValues;
use collections::Collection;
use entry::Entry;
use eviction::Uses;
use index::{Index, KeyHash};
use long::LongCommands;
use long_reads::LongReads;
use snapshot::Snapshot;
use spill::SpilledValues;
use std::collections::{BTreeMap, BTreeSet};
use transactions::RemovedVersions;
use tree::{Descent, Discarded};

pub use changes::{Change, ChangeClass, Changes, Follows};
pub use coded::CodedChanges;
pub use dump::{BUSY_KEY, ExpiringField};
pub use eviction::{COMMAND_BYTES, Chooser, Eviction, Victim, blocks_bytes_max};
pub use floor::Floor;
pub use history::{History, Recent};
pub use interpreter::{Interpreter, NoInterpreter};
pub use long_reads::Progress;
pub use queues::put_back;
pub use registers::Register;
pub use scan::scan_group;
use scripts::ScriptCosts;
pub use scripts::{Access, ScriptRefusal};
pub use snapshot::{SnapshotId, encode_value};
pub use spill::Spilled;
pub use two_phase::BLOCKED;

/// The reply to a record that an operator has had skipped.
const SKIPPED: &str = "SKIPPED this command ended every node that carried it out, and an operator has decided to leave it out; nothing was done";

/// The deadline of a key that does not expire: later than any other.
const NO_DEADLINE: UnixMs = UnixMs::MAX;

/// The deadline of a tombstone.
const DELETED: UnixMs = 0;

/// Highest version that [`Command::Replicate`] accepts: low enough that versions can keep growing.
pub const REPLICATED_VERSION_MAX: Version = 1 << 62;

/// How many keys [`Table::warm`] takes: enough to overlap the waits, few enough that all are still in the cache when
/// used.
pub const WARMED_KEYS_MAX: usize = 16;

/// With fewer keys than this [`Table::warm`] does not pay off, unless they hold large collections.
const FEW_KEYS: usize = 1000;
/// A table of few keys with less memory than this has no large collections.
const FEW_BYTES: usize = 1 << 20;

/// Counters since the table was created. Each replica counts for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lookups that found the key.
    pub hits: u64,
    /// Lookups that did not find the key.
    pub misses: u64,
    /// Keys removed because their deadline had passed.
    pub expired: u64,
    /// Of these, those that a purge has removed, and no command that has found them expired.
    pub purged: u64,
    /// Fields of hashes that a purge has removed.
    pub purged_fields: u64,
    /// Keys removed because of a bound on memory.
    pub evicted: u64,
    /// Large collections, and keys of large tables, that were removed at once and freed later: see [`Table::tidy`].
    pub freed_later: u64,
}

impl Statistics {
    /// Each counter of both.
    fn of_both(self, other: Statistics, of: fn(u64, u64) -> u64) -> Statistics {
        Statistics {
            hits: of(self.hits, other.hits),
            misses: of(self.misses, other.misses),
            expired: of(self.expired, other.expired),
            purged: of(self.purged, other.purged),
            purged_fields: of(self.purged_fields, other.purged_fields),
            evicted: of(self.evicted, other.evicted),
            freed_later: of(self.freed_later, other.freed_later),
        }
    }

    /// Lookups of keys.
    pub fn lookups(self) -> u64 {
        self.hits + self.misses
    }

    /// What was counted since `before`; a table that was replaced has begun again.
    pub fn since(self, before: Statistics) -> Statistics {
        self.of_both(before, u64::saturating_sub)
    }
}

impl std::iter::Sum for Statistics {
    fn sum<I: Iterator<Item = Statistics>>(statistics: I) -> Statistics {
        statistics.fold(Statistics::default(), |sum, one| sum.of_both(one, u64::saturating_add))
    }
}

/// The keys of one group, with their values, versions and deadlines.
#[derive(Debug)]
pub struct Table {
    index: Index,
    /// Deadlines with the hashes of their keys, earliest first. Keys that share both share an element.
    expiries: BTreeSet<(UnixMs, KeyHash)>,
    /// Number of keys with a deadline.
    expiring: usize,
    /// The first deadline of a field of each hash that has any, with the hash of its key, in the same way.
    fields_due: BTreeSet<(UnixMs, KeyHash)>,
    /// After how many lookups what has expired was purged last, if it is purged after a lookup only. See
    /// [`Table::keep_expired`].
    purged_at: Option<u64>,
    /// Open snapshots.
    snapshots: Vec<Snapshot>,
    snapshots_begun: u64,
    /// Number of changes other than by records.
    replacements: u64,
    /// The highest version ever given.
    floor: Version,
    /// What the table remembers of removed keys.
    removed_versions: RemovedVersions,
    /// State of values stored as fragments.
    coded: CodedValues,
    /// State of values on the disk.
    spilled: SpilledValues,
    /// Commands that have not arrived completely.
    long: LongCommands,
    /// Reads that have begun and not ended.
    long_reads: LongReads,
    /// Large entries of a snapshot transfer that have arrived in part, by key and version, each with room for its
    /// header in front.
    arriving: BTreeMap<(Box<[u8]>, Version), Vec<u8>>,
    /// Large collections of a snapshot transfer that have arrived in part.
    arriving_items: BTreeMap<(Box<[u8]>, Version), Collection>,
    /// Indexes that were removed as a whole and still occupy memory.
    discarded: Vec<Index>,
    /// The same for nodes of large collections.
    discarded_nodes: Discarded,
    /// The same for nodes of contents that were removed as a whole.
    cleared: Discarded,
    /// The state of the random numbers of writes: set by each record, so that all replicas draw the same numbers.
    write_seed: u64,
    /// The same for reads: set by each script, otherwise arbitrary.
    read_seed: u64,
    /// A collection in which small ones are changed, kept to reuse its memory.
    spare: Option<Collection>,
    /// A buffer for the item of a member, rebuilt each time.
    item: Vec<u8>,
    /// Number of tombstones.
    tombstones: usize,
    /// Bytes of all entries, including the allocator's overhead.
    entry_bytes: usize,
    statistics: Statistics,
    /// The locks: a namespace separate from the keys.
    locks: Locks,
    /// The requests that wait for elements.
    queues: Queues,
    /// The transactions over several groups.
    two_phase: TwoPhase,
    map_floor: Floor,
    /// Awaited keys that scripts of the record being applied have written without declaring them.
    written: queues::Ready,
    /// Events that followed from records about locks and queues, until [`Table::take_lock_events`] takes them.
    lock_events: Vec<LockEvent>,
    changes: Changes,
    /// For replies whose head is known only once they are complete.
    scratch: ReplyBuffer,
    /// The reply to the record being applied, or the rest of it, will be dropped: skip its reads and the values that
    /// its writes would return.
    is_quiet: bool,
    /// Collects the replies that are dropped.
    unasked: ReplyBuffer,
    interpreter: &'static dyn Interpreter,
    watched: Watching,
    /// What the scripts of the current transaction have cost so far.
    transaction_cost: Option<u64>,
    /// What the scripts of the transaction under way have read, if one of them reports its reads.
    script_reads: Option<Reads>,
    script_costs: ScriptCosts,
    /// The approximate time that all scripts have taken on this replica; it never decreases.
    scripts_ns: u64,
    uses: Uses,
    /// Whether changes, misses or accesses are noted, or keys are locked: the only test for these on the path of each command.
    is_observed: bool,
    charges: Charges,
}

/// The record being applied: the version it gives to the keys it writes, and its time.
#[derive(Clone, Copy, Debug)]
struct Record {
    version: Version,
    time: UnixMs,
}

impl Table {
    /// Returns an empty table. `seed` is mixed into the hash of every key, so that no client can choose keys that
    /// collide; it determines the order of `KEYS` and `SCAN` and the key that `RANDOMKEY` picks, and nothing else.
    pub fn new(seed: u64) -> Table {
        Table {
            index: Index::new(seed),
            expiries: BTreeSet::new(),
            expiring: 0,
            fields_due: BTreeSet::new(),
            purged_at: None,
            snapshots: Vec::new(),
            snapshots_begun: 0,
            replacements: 0,
            floor: 0,
            removed_versions: RemovedVersions::default(),
            coded: CodedValues::default(),
            spilled: SpilledValues::default(),
            long: LongCommands::default(),
            long_reads: LongReads::default(),
            arriving: BTreeMap::new(),
            arriving_items: BTreeMap::new(),
            discarded: Vec::new(),
            discarded_nodes: Discarded::default(),
            cleared: Discarded::default(),
            write_seed: 0,
            read_seed: 0,
            spare: None,
            item: Vec::new(),
            tombstones: 0,
            entry_bytes: 0,
            statistics: Statistics::default(),
            locks: Locks::default(),
            queues: Queues::default(),
            two_phase: TwoPhase::default(),
            map_floor: Floor::default(),
            written: queues::Ready::new(),
            lock_events: Vec::new(),
            changes: Changes::default(),
            scratch: ReplyBuffer::new(),
            is_quiet: false,
            unasked: ReplyBuffer::new(),
            interpreter: &NoInterpreter,
            watched: Watching::default(),
            transaction_cost: None,
            script_reads: None,
            script_costs: ScriptCosts::default(),
            scripts_ns: 0,
            uses: Uses::default(),
            is_observed: false,
            charges: Charges::default(),
        }
    }

    /// Sets the interpreter that runs scripts from now on.
    pub fn set_interpreter(&mut self, interpreter: &'static dyn Interpreter) {
        self.interpreter = interpreter;
    }

    /// Sets the `watch` that is notified of records of this group that may end the process.
    pub fn set_watch(&mut self, group: u16, watch: &'static dyn Watch) {
        self.watched.set(group, watch);
    }

    /// Skips these records: each changes nothing, and its reply is an error.
    pub fn skip(&mut self, records: &[RecordName]) {
        self.watched.skip(records);
    }

    /// Takes over the watch, the skipped records, the settings for noting accesses and the reads under way from a table that
    /// this one replaces.
    pub fn take_watched_of(&mut self, table: &mut Table) {
        self.long_reads = table.long_reads.take();
        self.watched = std::mem::take(&mut table.watched);
        self.uses = std::mem::take(&mut table.uses);
        self.purged_at = table.purged_at;
        self.observe();
    }

    /// Updates `is_observed`.
    fn observe(&mut self) {
        self.is_observed = self.uses.is_on() || self.changes.has_followers() || self.two_phase.locks_any();
    }

    /// Applies one record of the group's history and appends one reply to `out`.
    ///
    /// `offset` is the record's number in that history and `time` its time by its leader's clock. The record's version
    /// is `offset`, or one more than the highest version in use if that is more. The keys that it writes get that
    /// version, which is returned. A record uses its version up only if it changes something.
    ///
    /// A read is answered as by [`Table::read`].
    #[inline(always)]
    pub fn apply(
        &mut self,
        command: &Command<'_>,
        offset: Version,
        time: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        if !self.watched.begin(command, offset, time) {
            out.error(SKIPPED);
            return 0;
        }
        let record = self.record(offset, time);
        let version = if !self.is_observed && self.apply_common(command, record) {
            out.ok();
            record.version
        } else {
            self.apply_any(command, record, out)
        };
        self.watched.end();
        version
    }

    /// Applies one record as [`Table::apply`] does, where no client waits for its reply: on a follower, and when
    /// records are replayed. Work that affects only the reply is skipped: a transaction's reads may ask for gigabytes.
    #[inline(always)]
    pub fn apply_unasked(&mut self, command: &Command<'_>, offset: Version, time: UnixMs) {
        if !self.watched.begin(command, offset, time) {
            return;
        }
        let record = self.record(offset, time);
        if self.is_observed || !self.apply_common(command, record) {
            self.apply_quietly(command, record);
        }
        self.watched.end();
    }

    #[inline(always)]
    fn record(&self, offset: Version, time: UnixMs) -> Record {
        Record { version: offset.max(self.floor.saturating_add(1)), time: latest(time) }
    }

    /// Carries out the most common record, a plain `SET` answered by `OK`, if changes have no followers. Everything else
    /// stays off this path.
    #[inline(always)]
    fn apply_common(&mut self, command: &Command<'_>, record: Record) -> bool {
        let Command::Set {
            key,
            value,
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        } = *command
        else {
            return false;
        };
        self.update(key, value, record)
    }

    #[inline(never)]
    fn apply_quietly(&mut self, command: &Command<'_>, record: Record) {
        let mut unasked = std::mem::take(&mut self.unasked);
        self.is_quiet = true;
        self.apply_any(command, record, &mut unasked);
        self.is_quiet = false;
        unasked.clear();
        self.unasked = unasked;
    }

    #[inline(never)]
    fn apply_any(&mut self, command: &Command<'_>, record: Record, out: &mut ReplyBuffer) -> Version {
        if let Command::Bounded(bounded) = command {
            return self.apply_bounded(bounded, record, out);
        }
        if let Command::Get { .. } = command {
            return self.read(command, record.time, out);
        }
        if self.is_blocked(command) {
            return Table::refuse_blocked(out);
        }
        if self.is_observed {
            self.note_uses(command, record.time);
            if !self.changes.is_followed() && self.apply_common(command, record) {
                out.ok();
                return record.version;
            }
        }
        self.write_seed = draws::mix(record.version);
        self.changes.begin_record(record.version, self.floor);
        if self.holds_coded() && self.write_needs(command, record.time, out) {
            return record.version;
        }
        let version = self.carry_out(command, record, out);
        if !self.queues.nobody_waits() {
            self.serve_after(command, record);
        }
        self.changes.end();
        if self.changes.have_effects() {
            self.end_record(record);
        }
        self.spill(record);
        version
    }

    /// Whether a command would take too long in one step. If so, the error is appended, and the command must not be carried
    /// out. The decision depends only on state that replicas agree on.
    #[inline]
    fn refuses_walk(&self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> bool {
        command.may_walk() && self.refuses_long_walk(command, now, out)
    }

    #[cold]
    fn refuses_long_walk(&self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> bool {
        refuses_bytes(command, self.walked_bytes_most(command, now), out)
    }

    /// Like [`Table::walked_bytes`], or more if that is allowed, too.
    fn walked_bytes_most(&self, command: &Command<'_>, now: UnixMs) -> u64 {
        // Estimating a range finds it a second time, so skip the estimate if the range cannot be too long.
        if let Command::OnSorted(SortedCommand::Range { key, .. }) = *command {
            let bytes = self.peek(key, now).map_or(0, Entry::content_bytes) as u64;
            if bytes <= WALKED_BYTES_MAX {
                return bytes;
            }
        }
        self.walked_bytes(command, now)
    }

    /// Bytes of its keys that a command reads or returns, each counted as often as the command reads it.
    fn walked_bytes(&self, command: &Command<'_>, now: UnixMs) -> u64 {
        let bytes_of = |key: &[u8]| self.peek(key, now).map_or(0, Entry::content_bytes) as u64;
        let in_range = |key: &[u8], by: By, ends: List<'_>| self.bytes_in_range(key, by, ends, now);
        let between = |key: &[u8], start: &[u8], end: &[u8]| self.bytes_between(key, start, end, now);
        let pending = |key: &[u8], group: &[u8], consumer: &[u8]| self.pending_of(key, group, consumer, now);
        command.walked_bytes(bytes_of, in_range, between, pending)
    }

    fn carry_out(&mut self, command: &Command<'_>, record: Record, out: &mut ReplyBuffer) -> Version {
        if self.charges.are_bounded() && !self.pays(command, record, out) {
            return record.version;
        }
        self.carry_out_paid(command, record, out)
    }

    /// Carries out a command that was charged.
    fn carry_out_paid(&mut self, command: &Command<'_>, record: Record, out: &mut ReplyBuffer) -> Version {
        let version = self.carry_out_alone(command, record, out);
        if self.changes.have_effects() {
            self.write_effects(command, record);
        }
        version
    }

    fn carry_out_alone(&mut self, command: &Command<'_>, record: Record, out: &mut ReplyBuffer) -> Version {
        use Command::*;
        if self.refuses_walk(command, record.time, out) {
            return record.version;
        }
        self.changes.begin(command);
        match *command {
            Set { key, value, expiry, condition, answer } => {
                self.set(key, value, expiry, condition, answer, record, out);
            }
            GetDelete { key } => self.get_delete(key, record, out),
            GetExpire { key, expiry } => self.get_expire(key, expiry, record, out),
            MultiSet { pairs, if_absent } => self.multi_set(pairs, if_absent, record, out),
            MultiSetExpire { pairs, expiry, condition } => {
                self.multi_set_expire(pairs, expiry, condition, record, out);
            }
            Delete { keys } => self.delete(keys, record, out),
            Append { key, value, bytes_max } => self.append(key, value, bytes_max, record, out),
            SetRange { key, offset, value } => self.set_range(key, offset, value, record, out),
            IncrementBy { key, delta } => self.increment_by(key, delta, record, out),
            IncrementByFloat { key, delta } => self.increment_by_float(key, delta, record, out),
            IncrementWithin { key, step, saturates, expiry, if_without } => {
                self.increment_within(key, (step, saturates), (expiry, if_without), record, out);
            }
            Expire { key, deadline, condition } => self.expire(key, deadline, condition, record, out),
            Persist { key } => self.persist(key, record, out),
            Rename { from, to, if_absent } => self.rename(from, to, if_absent, record, out),
            Copy { from, to, replace } => self.copy(from, to, replace, record, out),
            Restore { key, payload, deadline, options } => {
                self.restore(key, payload, deadline, options.replaces, record, out);
                if let Some(used) = options.used {
                    self.note_former_use(key, used, record.time);
                }
            }
            Clear {} => self.clear(record, out),
            Purge { until } => self.purge(until, record, out),
            Evict { key, version } => self.evict(key, version, record, out),
            SkipVersions { by } => return self.skip_versions(by, record, out),
            RaiseFloor { version } => self.raise_map_floor(version, record, out),
            Replicate { key, value, version } => return self.replicate(key, value, version, record, out),
            SetIf { key, value, expiry, comparison, answer } => {
                self.set_if(key, value, expiry, comparison, answer, record, out);
            }
            DeleteIf { key, comparison } => self.delete_if(key, comparison, record, out),
            SetCoded { key, reference, membership, expiry, condition, answer } => {
                self.set_coded(key, reference, membership, expiry, condition, answer, record, out);
            }
            Abandon { coordinator, counter } => self.abandon(ValueId { coordinator, counter }, out),
            Transaction(transaction) if transaction.is_write() => {
                self.transact(&transaction, record, out.reply_bytes_max(), out);
            }
            Lock(command) if command.is_write() => self.apply_to_locks(&command, record, out),
            Queue(command) if command.is_write() => self.apply_to_queues(&command, record, out),
            TwoPhase(command) if command.is_write() => self.apply_two_phase(&command, record, out),
            Fenced(fenced) => self.apply_behind_fence(&fenced, record, out),
            Script(script) if script.is_write() => self.run_script(&script, record, out),
            Hash(command) if command.is_write() => self.change_hash(&command, record, out),
            OnList(command) if command.is_write() => self.change_list(&command, record, out),
            OnSet(command) if command.is_write() => self.change_set(&command, record, out),
            OnSorted(command) if command.is_write() => self.change_sorted(&command, record, out),
            OnStream(command) if command.is_write() => self.change_stream(&command, record, out),
            OnBytes(command) if command.is_write() => self.change_bytes(&command, record, out),
            Sort(command) if command.is_write() => self.store_sort(&command, record, out),
            Supplied(supplied) => self.supply(&supplied, record, out),
            LongPart { id, offset, length, bytes } => self.gather(id, (offset, length), bytes, record, out),
            LongEnd { id, .. } => return self.carry_out_long(id, record, out),
            // Only within another command, so this reply is a part of that command's reply.
            Get { key } => return self.get(key, record.time, None, out),
            _ => {
                let read_ns_max = out.read_at_once();
                let version = self.read(command, record.time, out);
                out.read_as_before(read_ns_max);
                return version;
            }
        }
        record.version
    }

    /// Answers a read at the time `now` and appends one reply to `out`. Returns the version of the key that was read; 0
    /// if it does not exist, or if the command names no key or several.
    ///
    /// A write is refused: it must be ordered first.
    #[inline]
    pub fn read(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> Version {
        let now = latest(now);
        if self.is_observed {
            if self.is_blocked(command) && !self.queues.has_planted(Fault::LockedKeyRead) {
                return Table::refuse_blocked(out);
            }
            self.note_misses(command, now);
            self.note_uses(command, now);
        }
        match *command {
            Command::Get { key } => self.get(key, now, out.lent_bytes_min(), out),
            _ if self.holds_coded() && command.reads_by_bytes() && self.write_needs(command, now, out) => 0,
            _ if self.holds_coded() => {
                let (start, before) = (out.len(), out.references());
                let version = self.read_any(command, now, out);
                if out.references() > before {
                    reads::mark_unresolved(command, start, out);
                }
                version
            }
            _ => self.read_any(command, now, out),
        }
    }

    fn read_any(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> Version {
        match command.may_walk() {
            true => self.read_long(command, now, out),
            false => self.read_at_once(command, now, out),
        }
    }

    /// A read that may take long, and is no part of another command.
    #[inline(never)]
    fn read_long(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> Version {
        let walked = self.walked_bytes_most(command, now);
        match self.begin_long_read(command, walked, now, out) {
            Some(version) => version,
            None if refuses_bytes(command, walked, out) => 0,
            None => self.read_at_once(command, now, out),
        }
    }

    /// A read that is a part of another command.
    fn read_within(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> Version {
        match self.refuses_walk(command, now, out) {
            true => 0,
            false => self.read_at_once(command, now, out),
        }
    }

    fn read_at_once(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> Version {
        use Command::*;
        match *command {
            Get { key } => return self.get_part(key, now, out),
            Fetch { key } => return self.fetch(key, now, out),
            Type { key } => return self.kind_of_value(key, now, out),
            Length { key } => return self.length(key, now, out),
            GetRange { key, start, end } => return self.get_range(key, start, end, now, out),
            TimeToLive { key, unit } => return self.time_to_live(key, unit, now, out),
            Encoding { key, limits } => return self.encoding(key, &limits, now, out),
            MemoryUsage { key } => return self.memory_usage(key, now, out),
            Used { key, usage } => return self.usage(key, usage, now, out),
            Digest { key } => return self.digest_of_value(key, now, out),
            Dump { key } => return self.dump(key, now, out),
            MultiGet { keys } => self.multi_get(keys, now, out),
            Exists { keys } => self.exists(keys, now, out),
            Keys { pattern } => self.keys(pattern, now, out),
            Scan { position, count, pattern, kind, group, next } => {
                let pattern = pattern.map(Pattern::new);
                let filter = scan::Filter { pattern: pattern.as_ref(), kind };
                self.scan(position, count, filter, (group, next), now, out);
            }
            RandomKey { draw } => self.random_key(draw, now, out),
            Size {} => out.integer(self.len() as i64),
            Watch { keys } => self.watch(keys, now, out),
            Recent { from, bytes_max } => self.recent(from, bytes_max, out),
            NewestToken { name, .. } => out.integer(self.locks.newest_token(name) as i64),
            Transaction(transaction) if !transaction.is_write() => {
                self.read_together(&transaction, now, out.reply_bytes_max(), out);
            }
            Lock(command) if !command.is_write() => self.read_locks(&command, out),
            Queue(command) if !command.is_write() => self.read_queues(&command, now, out),
            TwoPhase(command) if !command.is_write() => self.read_two_phase(&command, out),
            Script(script) if !script.is_write() => self.run_reading_script(&script, now, out),
            Hash(command) if !command.is_write() => return self.read_hash(&command, now, out),
            OnList(command) if !command.is_write() => return self.read_list(&command, now, out),
            OnSet(command) if !command.is_write() => return self.read_set(&command, now, out),
            OnSorted(command) if !command.is_write() => return self.read_sorted(&command, now, out),
            OnStream(command) if !command.is_write() => return self.read_stream(&command, now, out),
            OnBytes(command) if !command.is_write() => return self.read_bytes(&command, now, out),
            Sort(command) if !command.is_write() => self.read_sort(&command, now, out),
            Foreseen(foreseen) => self.answer_foreseen(&foreseen, now, out),
            _ => out.error("ERR a write has to be ordered before it is applied"),
        }
        0
    }

    /// Touches what commands on these keys will need, so that it is in the processor's cache. Takes at most
    /// [`WARMED_KEYS_MAX`] keys and ignores the rest. Changes nothing. Returns whether some of them hold large collections
    /// with names: then [`Table::warm_names`] pays off, too.
    ///
    /// In a large table a command spends nearly all of its time waiting for memory, twice in a row: for the place,
    /// which the index finds, and for the entry. Here the first wait begins for all keys before the second, so that the
    /// waits of each step overlap.
    pub fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let mut entries = [None; WARMED_KEYS_MAX];
        for (place, key) in entries.iter_mut().zip(keys) {
            *place = self.index.likely(self.index.hash(key));
        }
        let seen = entries.iter().flatten().fold(0, |seen, entry: &&Entry| seen ^ entry.touch());
        std::hint::black_box(seen); // The result is unused, but the work must not be optimised away.
        entries.iter().flatten().filter_map(|entry| entry.collection()).any(Collection::has_names)
    }

    /// Touches what commands will need that look for these members or fields of these keys, as [`Table::warm`] does. Each
    /// level of a collection's tree is a step.
    pub fn warm_names<'k>(&self, names: impl Iterator<Item = (&'k [u8], &'k [u8])>) {
        let collection_of = |key| self.index.likely(self.index.hash(key)).and_then(Entry::collection);
        // Often many commands in a row are on one key.
        let (mut last, mut collection) = (&b""[..], None);
        let found = names.take(WARMED_KEYS_MAX).filter_map(|(key, name)| {
            if last != key {
                (last, collection) = (key, collection_of(key));
            }
            Some((collection?, collection?.descent(name)?))
        });
        let (collections, mut descents): (ArrayVec<_, WARMED_KEYS_MAX>, ArrayVec<_, WARMED_KEYS_MAX>) =
            found.unzip();
        Descent::all(&mut descents);
        let behind = collections.iter().zip(&descents);
        let mut behind: ArrayVec<_, WARMED_KEYS_MAX> =
            behind.filter_map(|(collection, index)| collection.descent_behind(*index)).collect();
        if !behind.is_empty() {
            Descent::all(&mut behind);
        }
    }

    /// [`Table::warm`] and [`Table::warm_names`] for these commands.
    pub fn warm_for<'c, 'k: 'c>(&self, commands: impl Iterator<Item = &'c Command<'k>> + Clone) {
        let (mut keys, mut count) = ([&b""[..]; WARMED_KEYS_MAX], 0);
        for command in commands.clone() {
            command.for_each_key(|key| {
                if let Some(place) = keys.get_mut(count) {
                    *place = key;
                    count += 1;
                }
            });
        }
        if self.warm(keys[..count].iter().copied()) {
            let key_of = |command: &Command<'k>| {
                let mut first = &b""[..];
                command.for_each_key(|key| first = if first.is_empty() { key } else { first });
                first
            };
            self.warm_names(commands.map(|command| (key_of(command), command.first_name())));
        }
    }

    /// Whether [`Table::warm`] pays off for a batch of commands, one of which is on this key. It does not in a small table,
    /// which is in the caches anyway.
    pub fn gains_by_warming(&self, key: &[u8]) -> bool {
        let is_large = || self.entry_bytes >= FEW_BYTES;
        let has_names = || {
            let collection = self.index.likely(self.index.hash(key)).and_then(Entry::collection);
            collection.is_some_and(Collection::has_names)
        };
        self.index.len() >= FEW_KEYS || is_large() && has_names()
    }

    /// The number of keys, including expired ones that have not been removed yet. Tombstones are not counted.
    pub fn len(&self) -> usize {
        self.index.len() - self.tombstones
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of keys with a deadline.
    pub fn expires(&self) -> usize {
        self.expiring
    }

    /// Estimated bytes of keys, values and the index. Open snapshots are not counted.
    pub fn memory_bytes(&self) -> usize {
        const EXPIRY_BYTES: usize = 24;
        self.entry_bytes
            + self.index.bytes()
            + (self.expiries.len() + self.fields_due.len()) * EXPIRY_BYTES
            + self.locks.memory_bytes()
            + self.queues.memory_bytes()
            + self.two_phase.memory_bytes()
            + self.spilled.memory_bytes()
            + self.long.memory_bytes()
    }

    /// Bytes of a key and its value; 0 if the key does not exist.
    pub fn bytes_of(&self, key: &[u8]) -> usize {
        self.peek(key, 0).map_or(0, Entry::memory_bytes)
    }

    /// The counters so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Replaces this table by another one, but keeps the interpreter. Leaves the memory of the old contents to
    /// [`Table::tidy`].
    pub fn replace(&mut self, table: Table) {
        let mut before = std::mem::replace(self, table);
        (self.interpreter, self.scripts_ns) = (before.interpreter, before.scripts_ns);
        self.take_watched_of(&mut before);
        self.take_followers_of(&mut before);
        self.discard(before.index.take());
        self.discarded.append(&mut before.discarded);
        self.cleared.append(&mut before.discarded_nodes);
        self.cleared.append(&mut before.cleared);
        for snapshot in before.snapshots {
            snapshot.discard(&mut self.cleared);
        }
    }

    /// Frees memory of keys that were removed all at once, and of large collections, about `keys` keys or blocks at a time:
    /// freeing ten million at once would take seconds. Returns whether there is more. Changes nothing visible.
    pub fn tidy(&mut self, keys: usize) -> bool {
        let mut dropped = 0;
        for nodes in [&mut self.discarded_nodes, &mut self.cleared] {
            while dropped < keys && !nodes.is_empty() {
                dropped += nodes.drop_some();
            }
        }
        while dropped < keys
            && let Some(index) = self.discarded.last_mut()
        {
            match index.drop_some(&mut self.cleared) {
                0 => drop(self.discarded.pop()),
                count => dropped += count,
            }
        }
        !self.is_tidy()
    }

    /// How many large parts of collections and of tables [`Table::tidy`] still has to free.
    pub fn untidy(&self) -> usize {
        self.discarded.len() + self.discarded_nodes.len()
    }

    /// Whether [`Table::tidy`] has nothing to do.
    pub fn is_tidy(&self) -> bool {
        self.discarded.is_empty() && self.discarded_nodes.is_empty() && self.cleared.is_empty()
    }

    /// The highest version ever given in this table.
    pub fn version_floor(&self) -> Version {
        self.floor
    }

    /// Raises the highest version ever given: the part of a snapshot that is not an entry, to use with
    /// [`Table::install`]. Never goes below the version of a key.
    pub fn set_version_floor(&mut self, floor: Version) {
        self.floor = self.floor.max(floor);
        self.break_history();
    }

    fn skip_versions(&mut self, by: Version, record: Record, out: &mut ReplyBuffer) -> Version {
        self.set_version_floor(record.version.saturating_add(by));
        out.ok();
        self.floor
    }
}

/// Whether a command would look at too many bytes in one step. If so, the error is appended.
fn refuses_bytes(command: &Command<'_>, walked: u64, out: &mut ReplyBuffer) -> bool {
    let refuses = walked > WALKED_BYTES_MAX;
    if refuses {
        out.error(&format!(
            "ERR {} would look at {walked} bytes, and WALKED_BYTES_MAX, {WALKED_BYTES_MAX}, is all that a command may in \
             one step; nothing was done",
            command.name()
        ));
    }
    refuses
}

/// Keeps a time below [`NO_DEADLINE`].
#[inline]
fn latest(time: UnixMs) -> UnixMs {
    time.min(NO_DEADLINE - 1)
}
