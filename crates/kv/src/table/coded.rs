//! Values stored outside the table: which values keys refer to, and which commands need their bytes. Most of this module is
//! about values stored as fragments; `spill` has the rest about values on the disk, which each replica stores for itself.
//!
//! Several keys may refer to one value (`COPY`), so references are counted. [`Table::take_coded_changes`] reports when
//! the first reference is made and when the last one is dropped, for the code that stores this replica's fragments.
//!
//! The fragments of a value may be stored although the value itself never is, for example because its coordinator died.
//! Fragments can be dropped only once no record can ever refer to them. So a record gives up all values of a coordinator up
//! to a counter ([`Command::Abandon`]): every replica refuses a later record that would store one of them. The given-up
//! counters are a part of the table: snapshots contain them.

use super::entry::Entry;
use super::kind::Kind;
use super::{Record, Table};
use crate::UnixMs;
use crate::coded::{Coordinator, REFERENCE_BYTES, Reference, ValueId, ValueRef, View};
use crate::command::{Command, Comparison, Condition, Expiry, SetAnswer};
use crate::reply::{Reply, ReplyBuffer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Longer values are not decimal numbers: see [`crate::number`].
const NUMBER_BYTES_MAX: u32 = 5 * 1024;

/// A table's state of values stored as fragments.
#[derive(Debug, Default)]
pub(super) struct CodedValues {
    /// Every value that keys refer to, and the number of those keys.
    references: BTreeMap<ValueId, (Reference, u32)>,
    /// The counter up to which a coordinator's values are given up, except those that keys refer to already.
    abandoned: BTreeMap<Coordinator, u64>,
    /// Bytes of one fragment of each of these values.
    fragment_bytes: usize,
    /// The number of the group's membership.
    membership: u32,
    changes: CodedChanges,
}

/// Changes to values stored as fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodedChanges {
    /// Values whose first reference was made or whose last one was dropped, or that no key will ever refer to.
    pub values: BTreeSet<ValueId>,
    /// Coordinators whose values were given up, and up to which counter.
    pub abandoned: BTreeMap<Coordinator, u64>,
}

impl CodedValues {
    fn gain(&mut self, reference: Reference) {
        let (_, count) = self.references.entry(reference.id).or_insert((reference, 0));
        *count += 1;
        if *count == 1 {
            self.changes.values.insert(reference.id);
            self.fragment_bytes += reference.fragment_bytes();
        }
    }

    fn lose(&mut self, id: ValueId) {
        let Some((reference, count)) = self.references.get_mut(&id) else { return };
        *count -= 1;
        if *count == 0 {
            self.fragment_bytes -= reference.fragment_bytes();
            self.references.remove(&id);
            self.changes.values.insert(id);
        }
    }

    pub(super) fn lose_all(&mut self) {
        self.fragment_bytes = 0;
        self.changes.values.extend(std::mem::take(&mut self.references).into_keys());
    }

    /// The given-up values: each coordinator with the counter up to which its values are given up.
    pub(super) fn abandoned(&self) -> impl Iterator<Item = ValueId> {
        self.abandoned
            .iter()
            .map(|(coordinator, counter)| ValueId { coordinator: *coordinator, counter: *counter })
    }

    pub(super) fn abandon(&mut self, id: ValueId) {
        let counter = self.abandoned.entry(id.coordinator).or_default();
        *counter = (*counter).max(id.counter);
        self.changes.abandoned.insert(id.coordinator, *counter);
    }
}

impl Table {
    /// Counts one more key that refers to a value.
    pub(super) fn gain_reference(&mut self, reference: Reference) {
        match reference.is_spilled() {
            true => self.spilled.gain(reference),
            false => self.coded.gain(reference),
        }
    }

    /// Counts one key fewer that refers to a value.
    pub(super) fn lose_reference(&mut self, reference: Reference) {
        match reference.is_spilled() {
            true => self.spilled.lose(reference),
            false => self.coded.lose(reference.id),
        }
    }

    /// Checks that references are counted as the entries hold them.
    ///
    /// # Panics
    /// When they are not.
    pub(super) fn references_are_counted(&self, held: BTreeMap<Reference, u32>) {
        let (spilled, coded): (BTreeMap<_, _>, BTreeMap<_, _>) =
            held.into_iter().partition(|(reference, _)| reference.is_spilled());
        self.spilled.are_counted(&spilled);
        let coded: BTreeMap<_, _> =
            coded.into_iter().map(|(reference, count)| (reference.id, (reference, count))).collect();
        assert_eq!(coded, self.coded.references, "the references to values that are kept as fragments");
        let bytes: usize = coded.values().map(|(reference, _)| reference.fragment_bytes()).sum();
        assert_eq!(bytes, self.coded.fragment_bytes, "the bytes of these fragments");
    }

    // For the code that stores the fragments.

    /// Returns the changes to values stored as fragments since the last call, `None` if there are none. Takes no time
    /// if no values are coded.
    pub fn take_coded_changes(&mut self) -> Option<CodedChanges> {
        let changes = &mut self.coded.changes;
        let is_empty = changes.values.is_empty() && changes.abandoned.is_empty();
        (!is_empty).then(|| std::mem::take(changes))
    }

    /// The reference to the value with this name, if keys refer to it.
    pub fn reference(&self, id: ValueId) -> Option<Reference> {
        self.coded.references.get(&id).map(|(reference, _)| *reference)
    }

    /// Bytes that one replica's fragments of all these values occupy.
    pub fn fragment_bytes(&self) -> usize {
        self.coded.fragment_bytes
    }

    /// Every value that keys refer to, in the order of their names.
    pub fn references(&self) -> impl Iterator<Item = Reference> {
        self.coded.references.values().map(|(reference, _)| *reference)
    }

    /// Whether a value was given up: no record will ever store it, but keys may refer to it already.
    pub fn is_abandoned(&self, id: ValueId) -> bool {
        self.coded.abandoned.get(&id.coordinator).is_some_and(|counter| id.counter <= *counter)
    }

    /// Sets the number of the group's membership. Values stored by the members of an earlier one can no longer be
    /// stored in the table.
    pub fn set_membership(&mut self, membership: u32) {
        self.coded.membership = membership;
    }

    // Commands.

    #[allow(clippy::too_many_arguments)] // They are the fields of the command.
    pub(super) fn set_coded(
        &mut self,
        key: &[u8],
        reference: &[u8; REFERENCE_BYTES],
        membership: u32,
        expiry: Expiry,
        condition: Condition,
        answer: SetAnswer,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let Ok(Reference { id, .. }) = Reference::decode(reference) else {
            return out.error("ERR a reference to a value that cannot be");
        };
        if self.is_abandoned(id) {
            return out
                .error("ABANDONED the value was given up before it was stored; nothing was done, try again");
        }
        // Whatever the outcome, no new reference to this value will be made afterwards: report it.
        self.coded.changes.values.insert(id);
        if membership != self.coded.membership {
            return out.error("RECONFIGURED the group's members have changed; nothing was done, try again");
        }
        let hash = self.index.hash(key);
        let found = self.find_live(hash, key, record);
        let wanted = match condition {
            Condition::Always => true,
            Condition::IfAbsent => found.is_none(),
            Condition::IfPresent => found.is_some(),
        };
        let new = wanted.then_some((&reference[..], expiry, Kind::Coded));
        self.set_found((hash, key, found), new, answer, record, out);
    }

    pub(super) fn abandon(&mut self, id: ValueId, out: &mut ReplyBuffer) {
        self.coded.abandon(id);
        out.ok();
    }

    // Commands that need bytes.

    /// Whether any values are not in the table: fragments, or values on the disk.
    #[inline]
    pub fn holds_coded(&self) -> bool {
        !self.coded.references.is_empty() || !self.spilled.is_empty()
    }

    /// Replies with the reference to a value instead of the value.
    pub(super) fn write_reference(reference: Reference, view: View, out: &mut ReplyBuffer) {
        out.push(Reply::Reference(&ValueRef { reference, view }.encoded()));
    }

    /// Adds the references of all keys that a command names.
    fn refer_to_all<'a>(
        &self,
        command: &Command<'a>,
        now: UnixMs,
        needs: &mut BTreeMap<&'a [u8], Reference>,
    ) {
        command.for_each_key(|key| {
            needs.extend(self.reference_of(key, now).map(|reference| (key, reference)));
        });
    }

    fn reference_of(&self, key: &[u8], now: UnixMs) -> Option<Reference> {
        self.peek(key, now).and_then(Entry::reference)
    }

    /// Returns whether a write needs the bytes of values stored outside the table. Then it must not be carried out: the
    /// reply names the values it needs.
    #[cold]
    pub(super) fn write_needs(&self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) -> bool {
        let mut needs: BTreeMap<&[u8], Reference> = BTreeMap::new();
        match command {
            Command::Transaction(transaction) => {
                // A value may move from key to key within the transaction: if one of its commands needs bytes, supply
                // those of all keys.
                if transaction.commands().any(|command| command.is_part_of_need()) {
                    self.refer_to_all(&Command::Transaction(*transaction), now, &mut needs);
                }
            }
            Command::TwoPhase(command) => {
                if let Some(share) = self.evaluated_by(command) {
                    let share = share.command();
                    let evaluates = match &share {
                        Command::Transaction(share) => share.commands().any(|it| it.is_part_of_need()),
                        share => share.is_part_of_need(),
                    };
                    if evaluates {
                        self.refer_to_all(&share, now, &mut needs);
                    }
                }
            }
            // A script's accesses are known only when it runs: supply the bytes of all keys that it declares.
            Command::Script(script) => {
                for key in script.keys() {
                    needs.extend(self.reference_of(key, now).map(|reference| (key, reference)));
                }
            }
            Command::OnBytes(command) => command.for_each_source(&mut |key| {
                needs.extend(self.reference_of(key, now).map(|reference| (key, reference)));
            }),
            command => {
                if let Some((key, lengths)) = needs_bytes(command) {
                    let reference = self.reference_of(key, now);
                    let reference = reference.filter(|reference| lengths.contains(&reference.length));
                    needs.extend(reference.map(|reference| (key, reference)));
                }
            }
        }
        if needs.is_empty() {
            return false;
        }
        if self.is_quiet {
            return true; // The reply will be dropped.
        }
        let mut encoded = Vec::new();
        command.encode(&mut encoded);
        out.push(Reply::Needs(&encoded));
        out.array(2 * needs.len());
        for (key, reference) in needs {
            out.bulk(key);
            Self::write_reference(reference, View::Whole, out);
        }
        true
    }
}

impl Command<'_> {
    /// Whether this write may need the bytes of a value stored outside the table.
    pub fn may_need_bytes(&self) -> bool {
        match self {
            Command::Transaction(transaction) => transaction.commands().any(|it| it.is_part_of_need()),
            Command::Script(_) | Command::OnBytes(_) => true,
            command => needs_bytes(command).is_some(),
        }
    }

    /// Whether this read cannot be answered with references, so that it must be ordered together with the bytes that it
    /// needs.
    pub(super) fn reads_by_bytes(&self) -> bool {
        match self {
            Command::Transaction(transaction) => transaction.commands().any(|it| it.reads_by_bytes()),
            command => {
                matches!(command, Command::Script(_) | Command::OnBytes(_) | Command::Dump { .. })
            }
        }
    }

    /// Whether a transaction that includes this command needs the bytes of values.
    fn is_part_of_need(&self) -> bool {
        needs_bytes(self).is_some()
            || reads_bytes(self)
            || matches!(self, Command::Script(_) | Command::OnBytes(_))
    }
}

/// The key whose value a write needs in order to be carried out, and the range of lengths for which it does.
fn needs_bytes<'a>(command: &Command<'a>) -> Option<(&'a [u8], RangeInclusive<u32>)> {
    use Command::*;
    let any = 0..=u32::MAX;
    match *command {
        GetDelete { key } | GetExpire { key, .. } | Append { key, .. } => Some((key, any)),
        // The payload's checksum covers the bytes.
        Dump { key } => Some((key, any)),
        Set { key, answer: SetAnswer::Before, .. } => Some((key, any)),
        SetRange { key, value, .. } if !value.is_empty() => Some((key, any)),
        SetIf { key, answer: SetAnswer::Before, .. } => Some((key, any)),
        SetIf { key, comparison: Comparison::Equal(other) | Comparison::NotEqual(other), .. }
        | DeleteIf { key, comparison: Comparison::Equal(other) | Comparison::NotEqual(other) } => {
            let length = other.len() as u32;
            Some((key, length..=length))
        }
        Fenced(fenced) => fenced.command().and_then(|command| needs_bytes(&command)),
        IncrementBy { key, .. } | IncrementByFloat { key, .. } | IncrementWithin { key, .. } => {
            Some((key, 0..=NUMBER_BYTES_MAX))
        }
        // What replaces or removes a value, moves it or gives it a deadline needs none of its bytes.
        Set { .. } | SetRange { .. } | SetIf { .. } | DeleteIf { .. } | MultiSet { .. } | Delete { .. } => {
            None
        }
        MultiSetExpire { .. } => None,
        Expire { .. } | Persist { .. } | Rename { .. } | Copy { .. } | Restore { .. } | Clear {} => None,
        Purge { .. }
        | Evict { .. }
        | SkipVersions { .. }
        | RaiseFloor { .. }
        | Replicate { .. }
        | SetCoded { .. } => None,
        Abandon { .. } | LongPart { .. } | LongEnd { .. } => None,
        // The bytes of values that a read returns are added to its reply.
        Get { .. } | Fetch { .. } | MultiGet { .. } | Exists { .. } | Type { .. } | Length { .. } => None,
        GetRange { .. } | TimeToLive { .. } | Keys { .. } | Scan { .. } | RandomKey { .. } | Size {} => None,
        Encoding { .. } | Used { .. } | MemoryUsage { .. } | Digest { .. } | Watch { .. } => None,
        Recent { .. } | NewestToken { .. } | Foreseen(_) => None,
        // Values of other types are in the table; of commands within commands, see the callers.
        Hash(_) | OnList(_) | OnSet(_) | OnSorted(_) | OnStream(_) | OnBytes(_) | Sort(_) => None,
        Transaction(_) | Script(_) | Supplied(_) | Bounded(_) | Lock(_) | Queue(_) | TwoPhase(_) => None,
    }
}

/// Whether a command's reply contains the bytes of values.
fn reads_bytes(command: &Command<'_>) -> bool {
    matches!(command, Command::Get { .. } | Command::MultiGet { .. } | Command::GetRange { .. })
}
