//! The log: what the crate's storage trait requires, in memory, and the record of every change.
//!
//! The crate owns its storage, but the replica has to read the log and take the records, so the crate gets a [`Handle`].
//! Nothing here can fail: if the node's log on disk fails, the node stops.

use super::entry::{Entry, Nothing};
use super::group::StopSign;
use super::record::{Change, Moment};
use crate::contract::Now;
use crate::planted::{Fault, Planted};
use kv::Version;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::{Storage, StorageOp, StorageResult};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

#[derive(Debug)]
struct Slot {
    entry: Entry,
    /// The number of commands in the history up to and including this entry.
    offset: Version,
}

/// What was accepted when a record was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    record: u64,
    round: Ballot,
    index: usize,
}

/// The log, shared with the crate, whose storage it is.
pub(super) type SharedLog = Rc<RefCell<Log>>;

/// A replica's log, and the rest of what it must not forget.
#[derive(Debug, Default)]
pub(super) struct Log {
    promise: Ballot,
    round: Ballot,
    decided: usize,
    /// Entries before this index are cut off.
    base: usize,
    base_offset: Version,
    slots: VecDeque<Slot>,
    bytes: usize,
    /// The time, for the next field.
    now_us: u64,
    /// When entries last came here, on this replica's clock. 0: there were never any.
    changed_us: u64,
    /// Records that the node has not taken yet, each with its changes.
    pending: Vec<Vec<Change>>,
    /// The number of the last record.
    recorded: u64,
    /// The last record that holds a promise.
    promise_record: u64,
    /// True when `decided` has grown since it was last recorded. A record of it only makes it known sooner after a restart,
    /// and without one it is never wrong, so it waits for another record.
    decided_unrecorded: bool,
    marks: VecDeque<Mark>,
    durable: u64,
    durable_accepted: Mark,
    planted: Planted,
}

impl Log {
    pub(super) fn new(planted: Planted) -> Log {
        Log { planted, ..Log::default() }
    }

    pub(super) fn promise(&self) -> Ballot {
        self.promise
    }

    /// How many entries are decided, as far as this replica knows.
    pub(super) fn decided(&self) -> usize {
        self.decided
    }

    /// The index of the first entry that is held.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// How many commands the entries before it hold.
    pub(super) fn base_offset(&self) -> Version {
        self.base_offset
    }

    /// The index after the last entry.
    pub(super) fn end(&self) -> usize {
        self.base + self.slots.len()
    }

    pub(super) fn accepted_round(&self) -> Ballot {
        self.round
    }

    /// What was accepted, in an order that compares: the ballot, then the number of entries.
    pub(super) fn accepted(&self) -> (Ballot, usize) {
        (self.round, self.end())
    }

    /// The number of commands in the history up to the last entry.
    pub(super) fn end_offset(&self) -> Version {
        self.slots.back().map_or(self.base_offset, |slot| slot.offset)
    }

    /// How many commands the first `index` entries hold; `None` if their end is cut off, or beyond the log's.
    pub(super) fn offset_at(&self, index: usize) -> Option<Version> {
        match index.checked_sub(self.base)? {
            0 => Some(self.base_offset),
            place => self.slots.get(place - 1).map(|slot| slot.offset),
        }
    }

    /// The index after the entry that holds the command with this number; at most [`Log::end`].
    pub(super) fn index_of(&self, offset: Version) -> usize {
        if offset <= self.base_offset {
            return self.base;
        }
        self.end().min(self.base + self.slots.partition_point(|slot| slot.offset < offset) + 1)
    }

    /// Bytes of all entries that are held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the entries from an index on. O(entries).
    pub(super) fn bytes_from(&self, index: usize) -> usize {
        let skipped = index.saturating_sub(self.base);
        self.slots.iter().skip(skipped).map(|slot| slot.entry.bytes().len()).sum()
    }

    pub(super) fn entry(&self, index: usize) -> Option<Entry> {
        Some(self.slots.get(index.checked_sub(self.base)?)?.entry.clone())
    }

    /// The entries from an index on that together have no more bytes than this, at least one; and their
    /// bytes.
    pub(super) fn slice(&self, from: usize, bytes_max: usize) -> (Vec<Entry>, usize) {
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let is_first = bytes == 0;
            let fits = is_first || bytes + entry.bytes().len() <= bytes_max;
            bytes += if fits { entry.bytes().len() } else { 0 };
            fits
        };
        let entries = self.slots.iter().skip(from.saturating_sub(self.base)).map(|slot| &slot.entry);
        let slice = entries.take_while(fits).cloned().collect();
        (slice, bytes)
    }

    pub(super) fn entries_from(&self, index: usize) -> Vec<Entry> {
        self.entries_between(index, usize::MAX)
    }

    /// The entries from one index up to another, as far as they are held.
    pub(super) fn entries_between(&self, index: usize, end: usize) -> Vec<Entry> {
        let skipped = index.saturating_sub(self.base);
        let taken = end.saturating_sub(self.base + skipped);
        self.slots.iter().skip(skipped).take(taken).map(|slot| slot.entry.clone()).collect()
    }

    /// The lowest index at which the log can be cut so that at most this many bytes are left.
    pub(super) fn cut_for(&self, bytes_max: usize) -> usize {
        let mut left = self.bytes;
        let too_many = self.slots.iter().take_while(|slot| {
            let is_too_much = left > bytes_max;
            left -= slot.entry.bytes().len();
            is_too_much
        });
        self.base + too_many.count()
    }

    /// The time of the current step, or of the last one whose time matters here.
    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    pub(super) fn set_now(&mut self, now: Now) {
        self.now_us = now.monotonic_us;
    }

    pub(super) fn changed_us(&self) -> u64 {
        self.changed_us
    }

    // Records.

    pub(super) fn recorded(&self) -> u64 {
        self.recorded
    }

    pub(super) fn promise_record(&self) -> u64 {
        self.promise_record
    }

    /// How many entries have been accepted durably in a ballot.
    pub(super) fn durable_in(&self, ballot: Ballot) -> usize {
        if self.durable_accepted.round == ballot { self.durable_accepted.index } else { 0 }
    }

    /// Everything up to this record is durable.
    pub(super) fn durable(&mut self, record: u64) {
        self.durable = self.durable.max(record.min(self.recorded));
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.record <= self.durable) {
            self.durable_accepted = mark;
        }
    }

    /// Makes a record of changes that have been made, and returns its number.
    pub(super) fn record(&mut self, mut changes: Vec<Change>) -> u64 {
        self.recorded += 1;
        for change in &changes {
            match change {
                Change::Promise(_) => self.promise_record = self.recorded,
                Change::Decided(_) => self.decided_unrecorded = false,
                _ => {}
            }
        }
        if self.decided_unrecorded {
            self.decided_unrecorded = false;
            // Entries come last in a record, so that they need not be copied.
            let place = changes.len() - usize::from(matches!(changes.last(), Some(Change::Append(_))));
            changes.insert(place, Change::Decided(self.decided as u64));
        }
        let mark = Mark { record: self.recorded, round: self.round, index: self.end() };
        let newest = self.marks.back().unwrap_or(&self.durable_accepted);
        if (newest.round, newest.index) != (mark.round, mark.index) {
            self.marks.push_back(mark);
        }
        self.pending.push(changes);
        self.recorded
    }

    /// Records how much is decided, if that waits for a record.
    pub(super) fn record_decided(&mut self) {
        if self.decided_unrecorded {
            self.record(Vec::new());
        }
    }

    /// True when records wait for the end of the turn.
    pub(super) fn has_pending_records(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the records made since the last time, in order.
    pub(super) fn take_records(&mut self) -> Vec<Vec<Change>> {
        std::mem::take(&mut self.pending)
    }

    // Changes.

    /// Makes a change that a record holds, when the replica starts.
    pub(super) fn replay(&mut self, change: Change) {
        match change {
            Change::Promise(ballot) => self.promise = ballot,
            Change::Accepted(ballot) => self.round = ballot,
            Change::Decided(index) => self.decided = self.decided.max(index as usize),
            Change::Append(entries) => self.push(entries),
            Change::Replace(from, entries) => self.replace(from as usize, entries),
            Change::Life { .. }
            | Change::Peer(_)
            | Change::Group(_)
            | Change::Excluded { .. }
            | Change::SnapshotBegin(_)
            | Change::SnapshotChunk(_)
            | Change::SnapshotEnd
            | Change::Fragment(_)
            | Change::StoredFragment(_) => {}
        }
    }

    /// Everything that was replayed is durable, as it was read from the disk.
    pub(super) fn replayed(&mut self) {
        // Earlier releases believed a peer that knew more to be decided than the log held which they took over.
        self.decided = self.decided.min(self.end());
        self.durable_accepted = Mark { record: 0, round: self.round, index: self.end() };
    }

    /// Appends entries and makes a record of them.
    pub(super) fn append(&mut self, entries: Vec<Entry>) {
        self.push(entries.clone());
        self.record(vec![Change::Append(entries)]);
    }

    fn push(&mut self, entries: Vec<Entry>) {
        if !entries.is_empty() {
            self.changed_us = self.now_us;
        }
        for entry in entries {
            self.bytes += entry.bytes().len();
            let offset = self.end_offset() + Version::from(entry.head().count);
            self.slots.push_back(Slot { entry, offset });
        }
    }

    fn replace(&mut self, from: usize, entries: Vec<Entry>) {
        while self.end() > from.max(self.base) {
            let cut = self.slots.pop_back();
            self.bytes -= cut.map_or(0, |slot| slot.entry.bytes().len());
        }
        self.push(entries);
    }

    fn cut_before(&mut self, index: usize) {
        assert!(index <= self.decided(), "{index} is cut off, and {} decided", self.decided());
        while self.base < index
            && let Some(slot) = self.slots.pop_front()
        {
            self.base += 1;
            self.base_offset = slot.offset;
            self.bytes -= slot.entry.bytes().len();
        }
    }

    /// A snapshot of the table has replaced the beginning of the log. Entries that are held after the snapshot's moment stay,
    /// as they may be needed to decide them; but what was accepted in an older configuration is void in a newer one.
    pub(super) fn installed(&mut self, moment: &Moment, is_newer: bool) {
        let index = moment.index as usize;
        let kept = self.entries_from(index);
        let had_all = index <= self.end() && !is_newer;
        if is_newer {
            self.promise = Ballot::default();
            self.round = Ballot::default();
            self.decided = index;
        }
        self.slots.clear();
        self.bytes = 0;
        self.base = index;
        self.base_offset = moment.offset;
        self.decided = self.decided.max(index);
        self.changed_us = self.now_us;
        if had_all {
            self.push(kept);
        }
    }

    /// A snapshot is in place. Records that, what the sender had accepted after it if that is adopted, and what else came
    /// with it.
    pub(super) fn record_snapshot(
        &mut self,
        index: u64,
        behind: Option<(Ballot, Vec<Entry>)>,
        learned: Vec<Change>,
    ) {
        let mut changes = vec![Change::SnapshotEnd];
        if let Some((round, entries)) = behind {
            let promise = self.promise.max(round);
            changes.extend([
                Change::Promise(promise),
                Change::Accepted(round),
                Change::Replace(index, entries),
            ]);
            changes[1..].iter().for_each(|change| self.replay(change.clone()));
        }
        changes.extend(learned);
        self.record(changes);
    }

    /// A configuration begins after the stop-sign of the previous one.
    pub(super) fn begin_configuration(&mut self, begins: usize) {
        self.replace(begins, Vec::new());
        self.promise = Ballot::default();
        self.round = Ballot::default();
        self.decided = begins;
        self.decided_unrecorded = false;
    }

    /// Puts entries that others have decided after those that are applied here.
    pub(super) fn learn(&mut self, from: usize, entries: Vec<Entry>) {
        assert!(self.base <= from && from <= self.end(), "a hole in the log before {from}");
        self.replace(from, entries.clone());
        self.decided = self.end();
        self.record(vec![Change::Replace(from as u64, entries), Change::Decided(self.decided as u64)]);
    }

    /// The stop-sign that ends the log, if there is one.
    fn last_stop_sign(&self) -> Option<StopSign> {
        self.slots.back()?.entry.stop_sign()
    }

    /// Whether the log ends with a stop-sign that ends this configuration: nothing may be appended then.
    pub(super) fn is_ending(&self, configuration: u32) -> bool {
        self.last_stop_sign().is_some_and(|stop_sign| stop_sign.id > configuration)
    }

    /// The first entry from an index on that ends a configuration. O(entries).
    pub(super) fn stop_sign_from(&self, index: usize) -> Option<usize> {
        let skipped = index.checked_sub(self.base)?;
        let found = self.slots.iter().skip(skipped).position(|slot| slot.entry.stop_sign().is_some())?;
        Some(index + found)
    }

    fn set_promise(&mut self, ballot: Ballot) {
        self.take_promise(ballot);
        if !self.planted.has(Fault::VoteNotPersisted) {
            self.record(vec![Change::Promise(ballot)]);
        }
    }

    /// A promise is never taken back: older ballots are no longer served. A new configuration begins without a promise.
    fn take_promise(&mut self, ballot: Ballot) {
        assert!(ballot >= self.promise, "{ballot:?} is promised after {:?}", self.promise);
        self.promise = ballot;
    }

    /// Carries out an operation. `decided` is the number of decided entries before it and the operations written with it.
    fn carry_out(&mut self, operation: StorageOp<Entry>, decided: usize) -> Option<Change> {
        match &operation {
            StorageOp::SetPromise(ballot) => self.take_promise(*ballot),
            StorageOp::SetAcceptedRound(round) => {
                assert!(*round >= self.round, "accepted in {round:?} after {:?}", self.round);
            }
            // What was decided is never replaced: messages from peers are checked before the crate gets them.
            StorageOp::AppendOnPrefix(from, _) => {
                let end = self.end();
                assert!(
                    decided <= *from && *from <= end,
                    "replaced from {from}: {decided} decided, {end} held"
                );
            }
            StorageOp::SetDecidedIndex(index) => {
                assert!(*index >= decided, "{index} decided after {decided}")
            }
            _ => {}
        }
        let change = match operation {
            StorageOp::AppendEntry(entry) => Change::Append(vec![entry]),
            StorageOp::AppendEntries(entries) => Change::Append(entries),
            StorageOp::AppendOnPrefix(from, entries) => Change::Replace(from as u64, entries),
            StorageOp::SetPromise(ballot) => Change::Promise(ballot),
            StorageOp::SetAcceptedRound(ballot) => Change::Accepted(ballot),
            StorageOp::SetDecidedIndex(index) => Change::Decided(index as u64),
            // What is cut off in memory is still in the records: checkpoints cut these.
            StorageOp::SetCompactedIdx(index) => {
                self.cut_before(index);
                return None;
            }
            // Stop-signs are entries of ours, and cutting is done above.
            StorageOp::Trim(_) | StorageOp::SetStopsign(_) | StorageOp::SetSnapshot(_) => return None,
        };
        self.replay(change.clone());
        Some(change)
    }
}

/// Invariants.
impl Log {
    /// No peer is believed that knows entries to be decided which it does not send.
    pub(super) fn what_is_decided_is_held(&self) {
        let (decided, end) = (self.decided, self.end());
        assert!(decided <= end, "{decided} entries are decided, and {end} held");
    }

    /// A log is accepted only in a promised ballot. Ballots of different configurations are never compared.
    pub(super) fn promised_before_accepted(&self) {
        let (promise, round) = (self.promise, self.round);
        assert!(round <= promise, "the log is accepted in {round:?}, and {promise:?} is promised");
        let is_one = round == Ballot::default() || round.config_id == promise.config_id;
        assert!(is_one, "the log is accepted in a ballot of another configuration");
    }

    /// Records are made in order and become durable in order.
    pub(super) fn records_become_durable_in_order(&self) {
        assert!(self.durable <= self.recorded, "a record is durable that was never made");
        assert!(self.promise_record <= self.recorded, "a promise is in no record");
        assert!(
            self.durable_accepted.record <= self.durable,
            "an entry counts as durable before its record is"
        );
    }

    /// O(records that are not durable).
    pub(super) fn records_are_waited_for_in_order(&self) {
        let mut before = self.durable;
        for mark in &self.marks {
            assert!(before < mark.record, "records out of order: {:?}", self.marks);
            before = mark.record;
        }
        assert!(before <= self.recorded, "a record is waited for that was never made");
    }

    /// Each entry begins after the commands of the entries before it. O(entries).
    pub(super) fn commands_are_counted(&self) {
        let (mut offset, mut bytes) = (self.base_offset, 0);
        for slot in &self.slots {
            offset += u64::from(slot.entry.head().count);
            assert_eq!(slot.offset, offset, "the commands up to an entry");
            bytes += slot.entry.bytes().len();
        }
        assert_eq!(bytes, self.bytes, "the bytes that are held");
    }
}

/// The log as the crate's storage.
#[derive(Clone, Debug)]
pub(super) struct Handle(pub(super) SharedLog);

impl Storage<Entry> for Handle {
    fn write_atomically(&mut self, operations: Vec<StorageOp<Entry>>) -> StorageResult<()> {
        let mut log = self.0.borrow_mut();
        let decided = log.decided();
        let changes: Vec<Change> =
            operations.into_iter().filter_map(|operation| log.carry_out(operation, decided)).collect();
        if !changes.is_empty() {
            log.record(changes);
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: Entry) -> StorageResult<()> {
        self.append_entries(vec![entry])
    }

    fn append_entries(&mut self, entries: Vec<Entry>) -> StorageResult<()> {
        if !entries.is_empty() {
            self.0.borrow_mut().append(entries);
        }
        Ok(())
    }

    fn append_on_prefix(&mut self, from: usize, entries: Vec<Entry>) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::AppendOnPrefix(from, entries)])
    }

    fn set_promise(&mut self, ballot: Ballot) -> StorageResult<()> {
        let mut log = self.0.borrow_mut();
        if log.promise != ballot {
            log.set_promise(ballot);
        }
        Ok(())
    }

    fn set_decided_idx(&mut self, index: usize) -> StorageResult<()> {
        let mut log = self.0.borrow_mut();
        assert!(index >= log.decided(), "{index} decided after {}", log.decided());
        log.decided = index;
        log.decided_unrecorded = true;
        Ok(())
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.0.borrow().decided())
    }

    fn set_accepted_round(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::SetAcceptedRound(ballot)])
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        let round = self.0.borrow().round;
        Ok((round != Ballot::default()).then_some(round))
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<Entry>> {
        let log = self.0.borrow();
        if from < log.base || to > log.end() {
            return Ok(Vec::new());
        }
        Ok(log.slots.range(from - log.base..to - log.base).map(|slot| slot.entry.clone()).collect())
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        Ok(self.0.borrow().slots.len())
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<Entry>> {
        let log = self.0.borrow();
        // The crate would take an empty answer for an empty log and go wrong. A replica that needs what is cut off gets a
        // snapshot of the table instead, and the crate is not involved.
        assert!(
            from >= log.base,
            "entries from {from} are requested, and the log is cut off before {}",
            log.base
        );
        Ok(log.entries_from(from))
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        let promise = self.0.borrow().promise;
        Ok((promise != Ballot::default()).then_some(promise))
    }

    fn set_stopsign(&mut self, _: Option<omnipaxos::storage::StopSign>) -> StorageResult<()> {
        Ok(())
    }

    fn get_stopsign(&self) -> StorageResult<Option<omnipaxos::storage::StopSign>> {
        Ok(None)
    }

    fn trim(&mut self, index: usize) -> StorageResult<()> {
        self.set_compacted_idx(index)
    }

    fn set_compacted_idx(&mut self, index: usize) -> StorageResult<()> {
        self.0.borrow_mut().cut_before(index);
        Ok(())
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(self.0.borrow().base)
    }

    fn set_snapshot(&mut self, _: Option<Nothing>) -> StorageResult<()> {
        Ok(())
    }

    fn get_snapshot(&self) -> StorageResult<Option<Nothing>> {
        Ok(None)
    }
}
