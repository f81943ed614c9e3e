//! What commands add to memory is charged before they are carried out, where a record has a bound ([`Bounded`]).
//!
//! A charge depends on the record and on contents of the table alone, never on allocations, so replicas agree on it. It is
//! an upper bound: what a command frees is not given back to the bound, since it may be kept for undoing a script, or may be
//! freed little by little.

use super::entry::Entry;
use super::kind::Kind;
use super::sorted::ranks_of;
use super::{Record, Table};
use crate::codec::Reader;
use crate::command::{Bounded, By, Command, List, RangePart, Sizes};
use crate::reply::ReplyBuffer;
use crate::{UnixMs, ValueId, Version};

/// The error of a command for which there is no room, as in Redis.
pub(super) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A change of a tree that is shared copies the nodes on its path, at most this many bytes of them.
const PATH_BYTES: u64 = 8 << 10;

/// The bound of the record being applied, and what is charged to it.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// What may still be added; `None` if the record has no bound.
    left: Option<u64>,
    /// The charges of all records with a bound, on this replica.
    total: u64,
}

impl Charges {
    /// Whether the record has a bound.
    #[inline]
    pub(super) fn are_bounded(&self) -> bool {
        self.left.is_some()
    }

    /// The bound of a record of which nothing has been charged yet.
    pub(super) fn bound(&self) -> Option<u64> {
        self.left
    }

    /// Begins to charge to a bound, if there is one.
    pub(super) fn begin(&mut self, bound: Option<u64>) {
        assert!(!self.are_bounded(), "a record has one bound, and it ends with the record");
        self.left = bound;
    }

    /// Ends the bound.
    pub(super) fn end(&mut self) {
        self.left = None;
    }

    /// What may still be added; everything, if the record has no bound.
    pub(super) fn left(&self) -> u64 {
        self.left.unwrap_or(u64::MAX)
    }

    /// Charges so many bytes. Returns false, and charges nothing, if that is more than what is left.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let Some(left) = self.left else { return true };
        let Some(after) = left.checked_sub(bytes) else { return false };
        self.left = Some(after);
        self.total = self.total.wrapping_add(bytes);
        true
    }
}

/// Sizes of a table's contents at a time.
pub(super) struct SizesAt<'t>(pub(super) &'t Table, pub(super) UnixMs);

impl SizesAt<'_> {
    fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.0.peek(key, self.1)
    }
}

impl Sizes for SizesAt<'_> {
    fn content_bytes(&self, key: &[u8]) -> u64 {
        self.entry(key).map_or(0, |entry| entry.content_bytes() as u64)
    }

    fn string_bytes(&self, key: &[u8]) -> u64 {
        let entry = self.entry(key).filter(|entry| !entry.is_collection());
        entry.map_or(0, |entry| entry.full_length() as u64)
    }

    fn items(&self, key: &[u8]) -> u64 {
        let entry = self.entry(key).filter(|entry| entry.is_collection());
        entry.map_or(0, |entry| entry.items().len() as u64)
    }

    fn range(&self, key: &[u8], by: By, ends: List<'_>, part: RangePart) -> (u64, u64) {
        let entry = self.entry(key).filter(|entry| entry.kind() == Kind::Sorted);
        let Some(items) = entry.map(Entry::items) else { return (0, 0) };
        let Ok(ranks) = ranks_of(items, by, ends) else { return (0, 0) };
        let ranks = part.of(ranks);
        let chosen = items.iter_from(ranks.start).take(ranks.len());
        (chosen.map(|item| item.len() as u64).sum(), ranks.len() as u64)
    }

    fn long_growth_bytes(&self, id: ValueId) -> u64 {
        let command = self.0.long_command(id).and_then(|bytes| Command::decode(&mut Reader::new(bytes)).ok());
        command
            .filter(|command| !matches!(command, Command::LongEnd { .. }))
            .map_or(0, |it| it.growth_bytes(self))
    }
}

impl Table {
    /// Sizes of the table's contents at the time `now`, on which the charges of commands depend.
    pub fn sizes(&self, now: UnixMs) -> impl Sizes {
        SizesAt(self, now)
    }

    /// The charges of all records with a bound that this replica has applied: how it differs between two times is more
    /// than what they have added in between. It wraps around.
    pub fn charged_bytes(&self) -> u64 {
        self.charges.total
    }

    /// Carries out a record with a bound.
    pub(super) fn apply_bounded(
        &mut self,
        bounded: &Bounded<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Version {
        self.charges.begin(Some(bounded.bytes_max()));
        let version = self.apply_any(&bounded.command(), record, out);
        self.charges.end();
        version
    }

    /// At most how many bytes a command adds now.
    pub(super) fn charge_of(&self, command: &Command<'_>, now: UnixMs) -> u64 {
        command.charge_bytes(&SizesAt(self, now))
    }

    /// Charges a command to the bound of its record. If there is no room for it, appends an error and returns false: the
    /// command must not be carried out.
    #[cold]
    pub(super) fn pays(&mut self, command: &Command<'_>, record: Record, out: &mut ReplyBuffer) -> bool {
        if command.consists_of_others() {
            return true;
        }
        let pays = self.charges.take(self.charge_of(command, record.time));
        if !pays {
            out.error(OUT_OF_MEMORY);
        }
        pays
    }

    /// What a script's change of a key copies, since the former value is kept until the script ends: the string, or the
    /// nodes of the tree that change, beside those that were copied for earlier changes.
    pub(super) fn copied_bytes(&self, key: &[u8], before: Copied, changes: u64, now: UnixMs) -> Copied {
        let Some(entry) = self.peek(key, now) else { return before };
        let content = entry.content_bytes() as u64;
        if !entry.is_collection() {
            return if before == Copied(0) { Copied(content) } else { before };
        }
        let nodes = before.0.saturating_add(changes.saturating_mul(PATH_BYTES));
        Copied(nodes.min(2 * content).max(before.0))
    }
}

/// Bytes that a script has copied of a key's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied(pub(super) u64);
