//! Large values on this node's disk: what is done with values that its replicas have spilled
//! ([`kv::table::Spilled`]).
//!
//! The log remains the truth. A value is in memory until the store has it, and the store is synced only when the log is
//! about to be shortened:
//!
//! ```text
//!  record applied        checkpoint begins                 it counts
//!    | value: in memory     |                                 |
//!    |--- Put ------------->|- Put of all so far -- Persist --|   what was released before
//!    |    in the store      |  the references are written     |   it began is removed
//! ```
//!
//! Two rules make a crash safe at any time. First, a checkpoint refers to values, so it is not written before they
//! are durable in the store; the values of the log after it are put again at the next start. Second, a value to which
//! no key refers any more is *released*, but it is removed only when a checkpoint counts that began later: until then
//! a start may restore a table that refers to it. So the store has, at any time, every value to which any table
//! refers that a start can restore.
//!
//! Reads and writes of the store run beside the loop ([`storage::ValueWork`]). Code that needs a value calls
//! [`Values::look_up`], and snapshot transfers to other replicas are supplied by [`Values::look_up_for_copies`]. A
//! damaged value is fetched from another replica (`repair`), and all values are read from time to time, so that
//! damage is found early (`scrub`). The work at a start is in `sweep`.

mod repair;
mod scrub;
mod sweep;
#[cfg(test)]
mod tests;

use crate::collections::cache::Cache;
use crate::context::{Call, Context};
use crate::diagnostics::log::{Level, Line};
use crate::disk::journal::News;
use crate::groups::Group;
use cluster::configuration::StorageSettings;
use info::facts::ValueCounters;
use kv::Reference;
use kv::table::Spilled;
use protocol::NodeId;
use protocol::SpilledValues;
use protocol::planted::{Fault, Planted};
pub(crate) use repair::Found;
use repair::Lookup;
use scrub::Scrub;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use storage::values::NAME_BYTES;
use storage::{DiskError, ValueName, ValueOutcome, ValueResult, ValueWork};
pub(crate) use sweep::Sweep;

/// The most values that are put at once: bytes, and number.
const PUT_BYTES: usize = 4 << 20;
const PUT_VALUES: usize = 4096;

/// The most values that are removed at once.
const REMOVED_VALUES: usize = 4096;

/// Clients' writes are refused while more bytes than this are not in the store.
const PENDING_BYTES_MAX: usize = 128 << 20;

/// How often a write to a full disk is tried again.
const RETRY_MS: u64 = 100;

/// The bytes of a value in the store.
type Value = Arc<Vec<u8>>;

/// What a checkpoint waits for, and what is removed when it counts.
#[derive(Debug)]
struct Checkpoint {
    /// Values that were released before it began.
    released: BTreeSet<Reference>,
    /// How many values must have been put, and be durable, before the checkpoint may be written.
    after: u64,
    is_safe: bool,
}

/// The state of a node's large values on its disk.
#[derive(Debug)]
pub(crate) struct Values {
    /// Whether a keyspace keeps values on the disk, or did.
    is_on: bool,
    /// Work to run beside the loop.
    work: Vec<ValueWork>,
    /// From this many pending bytes on, the node is behind.
    behind_bytes: u64,
    /// Values that the store is not known to have.
    pending: BTreeMap<ValueName, Value>,
    pending_bytes: usize,
    /// The pending values that are not being put.
    queue: VecDeque<ValueName>,
    /// How many values were ever queued, and how many of these were put.
    queued: u64,
    put: u64,
    /// Whether values are being put, removed or made durable.
    is_writing: bool,
    removes_next: bool,
    /// When the disk was first found full; None while it is not.
    full_since_us: Option<u64>,
    retry_at_us: u64,
    /// Values released since the group's last checkpoint began.
    released: BTreeMap<u16, BTreeSet<Reference>>,
    /// Checkpoints that do not count yet, in the order in which they began.
    checkpoints: BTreeMap<u16, VecDeque<Checkpoint>>,
    /// Values of replicas that were dropped: removed when the log has forgotten them, too.
    doomed: BTreeMap<u16, BTreeSet<Reference>>,
    /// Values to remove, unless something refers to them again.
    removals: VecDeque<(u16, Reference)>,
    cache: Cache<ValueName, Value>,
    /// Values that are being read or fetched, and those of them for which snapshot transfers wait.
    lookups: BTreeMap<ValueName, Lookup>,
    for_copies: BTreeSet<ValueName>,
    /// By number: the values that were requested from other nodes, and from which.
    fetches: BTreeMap<u64, (ValueName, NodeId)>,
    fetch_count: u64,
    /// Damaged pieces of fragments that were not rebuilt yet: at most as many as were found since the start.
    lost_pieces: BTreeSet<ValueName>,
    scrub: Scrub,
    stopped: Option<String>,
    planted: Planted,
    counters: ValueCounters,
}

/// Returns the name of a group's value in this node's store.
fn name_of(group: u16, reference: &Reference) -> ValueName {
    let mut name = [0; NAME_BYTES];
    name[..2].copy_from_slice(&group.to_be_bytes());
    name[2..10].copy_from_slice(&reference.id.coordinator.life.to_be_bytes());
    name[10..18].copy_from_slice(&reference.id.counter.to_be_bytes());
    name[18..22].copy_from_slice(&reference.length.to_be_bytes());
    name[22..].copy_from_slice(&reference.digest.to_be_bytes());
    ValueName(name)
}

/// Returns the value that has a name.
fn reference_of(name: &ValueName) -> Reference {
    fn number<const N: usize>(bytes: &[u8]) -> [u8; N] {
        let mut number = [0; N];
        number.copy_from_slice(bytes);
        number
    }
    let bytes = &name.0;
    let version = u64::from_be_bytes(number(&bytes[2..10]));
    let index = u64::from_be_bytes(number(&bytes[10..18]));
    let length = u32::from_be_bytes(number(&bytes[18..22]));
    Reference::spilled(version, index, length, u64::from_be_bytes(number(&bytes[22..])))
}

impl Values {
    pub(crate) fn new(settings: StorageSettings, planted: Planted, sweep: Sweep) -> Values {
        let Sweep { is_on, released, leftovers, .. } = sweep;
        Values {
            is_on,
            work: Vec::new(),
            pending: BTreeMap::new(),
            pending_bytes: 0,
            behind_bytes: settings.behind_bytes,
            queue: VecDeque::new(),
            queued: 0,
            put: 0,
            is_writing: false,
            removes_next: false,
            full_since_us: None,
            retry_at_us: 0,
            released,
            checkpoints: BTreeMap::new(),
            doomed: BTreeMap::new(),
            removals: leftovers.into(),
            cache: Cache::new(settings.cache_bytes),
            lookups: BTreeMap::new(),
            for_copies: BTreeSet::new(),
            fetches: BTreeMap::new(),
            fetch_count: 0,
            lost_pieces: BTreeSet::new(),
            scrub: Scrub::new(settings.scrub_period_us),
            stopped: None,
            planted,
            counters: ValueCounters::default(),
        }
    }

    /// A keyspace keeps values on the disk.
    pub(crate) fn begin(&mut self) {
        self.is_on = true;
    }

    /// Whether a keyspace keeps values on the disk, or did.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether there is no room for more values.
    pub(crate) fn is_full(&self) -> bool {
        self.full_since_us.is_some()
    }

    /// Whether nothing more should be taken from peers.
    pub(crate) fn is_behind(&self) -> bool {
        self.pending_bytes as u64 > self.behind_bytes
    }

    /// Whether nothing more is taken from clients.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.pending_bytes > PENDING_BYTES_MAX
    }

    /// Why the node must stop, if it must.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    pub(crate) fn counters(&self) -> ValueCounters {
        self.counters
    }

    /// Bytes of values in memory: those that the store does not have yet, and those in the cache.
    pub(crate) fn memory_bytes(&self) -> (usize, usize) {
        (self.pending_bytes, self.cache.bytes())
    }

    /// When, on the monotonic clock, the next work is due.
    pub(crate) fn wakeup_us(&self) -> u64 {
        let retry_us = if self.is_full() { self.retry_at_us } else { u64::MAX };
        if self.is_on { retry_us.min(self.scrub.due_us()) } else { retry_us }
    }

    fn keep(&mut self, group: u16, reference: &Reference, value: Value) {
        let name = name_of(group, reference);
        let bytes = value.len();
        if self.pending.insert(name, value).is_none() {
            self.pending_bytes += bytes;
            self.queue.push_back(name);
            self.queued += 1;
        }
    }

    // Checkpoints.

    /// A checkpoint of a group begins: the values to which its table refers now must be durable before it is written.
    pub(crate) fn begin_checkpoint(&mut self, group: u16) {
        let released = self.released.remove(&group).unwrap_or_default();
        let checkpoint = Checkpoint { released, after: self.queued, is_safe: false };
        self.checkpoints.entry(group).or_default().push_back(checkpoint);
    }

    /// Whether a checkpoint of a group must not be written yet.
    pub(crate) fn holds_checkpoint(&self, group: u16) -> bool {
        let last = self.checkpoints.get(&group).and_then(VecDeque::back);
        last.is_some_and(|last| !last.is_safe) && !self.planted.has(Fault::CheckpointBeforeValues)
    }

    /// The checkpoint of a group that began last will not be written.
    pub(crate) fn abandon_checkpoint(&mut self, group: u16) {
        let last = self.checkpoints.get_mut(&group).and_then(VecDeque::pop_back);
        self.release(group, last.map(|last| last.released).unwrap_or_default());
    }

    fn release(&mut self, group: u16, released: BTreeSet<Reference>) {
        if self.planted.has(Fault::ValueRemovedEarly) {
            return self.remove(group, released);
        }
        if !released.is_empty() {
            self.released.entry(group).or_default().extend(released);
        }
    }

    /// Whether a value waits for a checkpoint to be removed. A value that was released, spilled again, and released
    /// again, waits for a later checkpoint than at first: one that began in between may refer to it.
    fn is_released(&self, group: u16, reference: &Reference) -> bool {
        let checkpoints = self.checkpoints.get(&group).into_iter().flatten();
        let mut waiting = checkpoints.map(|checkpoint| &checkpoint.released).chain(self.released.get(&group));
        waiting.any(|released| released.contains(reference))
    }

    fn remove(&mut self, group: u16, references: impl IntoIterator<Item = Reference>) {
        self.removals.extend(references.into_iter().map(|reference| (group, reference)));
    }

    /// Follows a change of what a start would find in the log.
    pub(crate) fn log_changed(&mut self, news: News) {
        let (News::Checkpoint(group) | News::NoCheckpoint(group) | News::Forgotten(group)) = news;
        let first = match news {
            News::Forgotten(_) => None,
            _ => self.checkpoints.get_mut(&group).and_then(VecDeque::pop_front),
        };
        let gone = match news {
            News::Forgotten(_) => self.doomed.remove(&group).unwrap_or_default(),
            News::Checkpoint(_) => first.map(|first| first.released).unwrap_or_default(),
            News::NoCheckpoint(_) => {
                return self.release(group, first.map(|first| first.released).unwrap_or_default());
            }
        };
        self.remove(group, gone);
    }

    /// A replica of a group, which had these values, was dropped. If it has no records, no start will ever find it.
    pub(crate) fn replica_dropped(&mut self, group: u16, references: Vec<Reference>, is_recorded: bool) {
        if !is_recorded {
            return self.remove(group, references);
        }
        let doomed = self.doomed.entry(group).or_default();
        doomed.extend(references);
        doomed.extend(self.released.remove(&group).unwrap_or_default());
        let checkpoints = self.checkpoints.remove(&group).unwrap_or_default();
        checkpoints.into_iter().for_each(|checkpoint| doomed.extend(checkpoint.released));
    }

    // Work beside the loop.

    fn next_put(&mut self) -> Option<ValueWork> {
        let (mut values, mut bytes) = (Vec::new(), 0);
        while values.len() < PUT_VALUES
            && bytes < PUT_BYTES
            && let Some(name) = self.queue.pop_front()
        {
            let Some(value) = self.pending.get(&name) else {
                debug_assert!(false, "what is queued is pending");
                self.put += 1;
                continue;
            };
            bytes += value.len();
            values.push((name, Arc::clone(value)));
        }
        (!values.is_empty()).then_some(ValueWork::Put(values))
    }

    /// Whether all values that must be durable for some checkpoint were put.
    fn is_to_be_safe(&self) -> bool {
        let waiting = self.checkpoints.values().flatten().filter(|checkpoint| !checkpoint.is_safe);
        waiting.map(|checkpoint| checkpoint.after).min().is_some_and(|after| after <= self.put)
    }

    fn note_safe(&mut self) {
        let put = self.put;
        let all = self.checkpoints.values_mut().flatten();
        all.filter(|checkpoint| checkpoint.after <= put).for_each(|checkpoint| checkpoint.is_safe = true);
    }

    fn note_full(&mut self, error: &DiskError, now_us: u64, lines: &mut Vec<Line>) {
        if self.full_since_us.is_none() {
            let text = format!("{error}: writes are refused until there is room for values again");
            lines.push(Line { level: Level::Error, text });
            self.full_since_us = Some(now_us);
        }
        self.retry_at_us = now_us + RETRY_MS * 1000;
    }
}

impl Values {
    /// Takes what a group's replica here has spilled. Returns false if its keyspace keeps all values in memory.
    pub(crate) fn keep_spilled(&mut self, cx: &mut Context, group: u16) -> bool {
        let Some(target) = cx.groups.get_mut(group).filter(|group| group.keyspace.spills()) else {
            return false;
        };
        let Some(replica) = &mut target.replica else { return true };
        if let Some(Spilled { kept, released }) =
            replica.spilled_values_mut().and_then(SpilledValues::take_spilled)
        {
            let is_durable = target.tail.is_durable();
            for (reference, value) in kept {
                if !self.lost_pieces.is_empty() {
                    self.note_rebuilt(cx, group, &reference);
                }
                self.keep(group, &reference, value);
            }
            match is_durable {
                true => self.release(group, released),
                false => self.remove(group, released), // No start will find a table that refers to them.
            }
        }
        true
    }

    /// Whether a replica here refers to a value, or a replica that a start may restore.
    fn is_needed(&self, cx: &Context, group: u16, reference: &Reference) -> bool {
        let replica = cx.groups.get(group).and_then(|group| group.replica.as_ref());
        let values = replica.and_then(|replica| replica.spilled_values());
        values.is_some_and(|values| values.refers_to(reference)) || self.is_released(group, reference)
    }

    /// Whether a reference names a piece of a fragment here.
    fn is_piece(&self, cx: &Context, group: u16, reference: &Reference) -> bool {
        let replica = cx.groups.get(group).and_then(|group| group.replica.as_ref());
        replica.and_then(|replica| replica.fragments()).is_some_and(|fragments| fragments.stores(reference))
    }

    fn next_removal(&mut self, cx: &mut Context) -> Option<ValueWork> {
        // A snapshot transfer sends the table as it was: it may refer to values that the table has released since.
        let sends_snapshots = |group: &Group| {
            let replica = group.replica.as_ref();
            replica.and_then(|it| it.spilled_values()).is_some_and(SpilledValues::sends_snapshots)
        };
        if self.removals.is_empty() || cx.groups.iter().any(|(_, group)| sends_snapshots(group)) {
            return None;
        }
        let mut names = Vec::new();
        for _ in 0..self.removals.len().min(REMOVED_VALUES) {
            let Some((group, reference)) = self.removals.pop_front() else { break };
            // The value may have been spilled again, for example by a snapshot transfer.
            if self.is_needed(cx, group, &reference) {
                continue;
            }
            let name = name_of(group, &reference);
            if self.lookups.contains_key(&name) || self.pending.contains_key(&name) {
                self.removals.push_back((group, reference));
                continue;
            }
            names.push(name);
        }
        self.counters.removed += names.len() as u64;
        (!names.is_empty()).then_some(ValueWork::Remove(names))
    }

    /// Starts the next work, if none is under way.
    pub(crate) fn flush(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        if self.is_on {
            self.scrub_next(cx);
        }
        let waits = self.is_full() && now_us < self.retry_at_us;
        if !self.is_on || self.is_writing || waits {
            return;
        }
        // Removals come first when there is no room, and periodically in any case.
        let removes_first = std::mem::take(&mut self.removes_next) || self.is_full();
        let work = if self.is_to_be_safe() {
            Some(ValueWork::Persist)
        } else if removes_first {
            self.next_removal(cx).or_else(|| self.next_put())
        } else {
            let put = self.next_put();
            self.removes_next = put.is_some();
            put.or_else(|| self.next_removal(cx))
        };
        match work {
            Some(work) => {
                self.is_writing = true;
                self.work.push(work);
            }
            // The values for which there was no room are no longer needed.
            None => self.full_since_us = None,
        }
    }

    /// Takes the result of one piece of that work. Call it within a turn.
    pub(crate) fn work_finished(&mut self, cx: &mut Context, work: ValueWork, result: ValueResult) {
        match work {
            ValueWork::Get(name) => return self.value_read(cx, name, result),
            ValueWork::Names { .. } => return self.names_listed(cx, result),
            ValueWork::Put(_) | ValueWork::Remove(_) | ValueWork::Persist => {}
        }
        let now_us = cx.now.monotonic_us;
        assert!(self.is_writing, "one change at a time is under way");
        self.is_writing = false;
        match result {
            Ok(_) => {
                let found_room = matches!(work, ValueWork::Put(_)) || self.queue.is_empty();
                if found_room && self.full_since_us.take().is_some() {
                    cx.log
                        .push(Line { level: Level::Info, text: "the disk has room for values again".into() });
                }
            }
            Err(error) if error.is_only_full() && work != ValueWork::Persist => {
                self.note_full(&error, now_us, &mut cx.log);
                match work {
                    ValueWork::Put(put) => {
                        put.iter().rev().for_each(|(name, _)| self.queue.push_front(*name))
                    }
                    ValueWork::Remove(names) => {
                        let again = names.iter().map(|name| (name.group(), reference_of(name)));
                        self.removals.extend(again);
                    }
                    ValueWork::Persist | ValueWork::Get(_) | ValueWork::Names { .. } => {}
                }
                return;
            }
            Err(error) => {
                self.stopped.get_or_insert_with(|| error.to_string());
                return;
            }
        }
        match work {
            ValueWork::Put(put) => {
                self.put += put.len() as u64;
                self.counters.stored += put.len() as u64;
                for (name, value) in put {
                    self.pending.remove(&name);
                    self.pending_bytes -= value.len();
                    self.cache.insert(name, &value);
                }
            }
            ValueWork::Persist => self.note_safe(),
            ValueWork::Remove(_) | ValueWork::Get(_) | ValueWork::Names { .. } => {}
        }
        self.flush(cx);
    }

    /// Whether there is work to run beside the loop.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    /// Moves the work that runs beside the loop into `work`.
    pub(crate) fn take_work(&mut self, work: &mut Vec<ValueWork>) {
        work.append(&mut self.work);
    }

    // Lookups.

    fn value_read(&mut self, cx: &mut Context, name: ValueName, result: ValueResult) {
        let (group, reference) = (name.group(), reference_of(&name));
        let why = match result {
            Ok(ValueOutcome::Value(Some(value))) if self.is_whole(&reference, &value) => {
                let value = Arc::new(value);
                // A value that is only scrubbed would take the place of those that clients ask for.
                if self.is_asked_for(&name) {
                    self.cache.insert(name, &value);
                }
                return self.end_lookup(cx, name, Some(value));
            }
            Ok(ValueOutcome::Value(Some(_))) => "its checksum is wrong".to_owned(),
            Ok(ValueOutcome::Value(None)) => "it is not there".to_owned(),
            Ok(other) => unreachable!("a value that was read came to {other:?}"),
            Err(error) => error.to_string(),
        };
        self.counters.damaged += 1;
        let text = format!("{} is damaged: {why}", self.describe(cx, group, &reference));
        cx.log.push(Line { level: Level::Error, text });
        self.fetch(cx, name);
    }

    /// A value's description, for the log.
    fn describe(&self, cx: &Context, group: u16, reference: &Reference) -> String {
        let keyspace = cx.groups.get(group).map_or_else(String::new, |group| group.name());
        let (version, number) = (reference.id.coordinator.life, reference.id.counter);
        match self.is_piece(cx, group, reference) {
            true => format!("a piece of a fragment of keyspace '{keyspace}'"),
            false => format!("value {number} of version {version} of keyspace '{keyspace}'"),
        }
    }

    /// Looks up the values that snapshot transfers to other replicas wait for.
    pub(crate) fn look_up_for_copies(&mut self, cx: &mut Context, group: u16) {
        let replica = cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
        let values = replica.and_then(|replica| replica.spilled_values_mut());
        for reference in values.map(SpilledValues::wanted_values).unwrap_or_default() {
            match self.look_up(group, &reference) {
                Some(value) => cx.call(Call::GiveValue { group, reference, value: Some(value) }),
                None => {
                    self.for_copies.insert(name_of(group, &reference));
                }
            }
        }
    }
}
