//! Changes of a table, for followers on its node: notifications, and clients that cache what they read.
//!
//! While there is a follower, each change of a key is noted as its record is applied, by the few functions of `store`
//! through which every change goes: so none is missed, whatever command, transaction or script makes it. The event has
//! Redis's name for it, which follows from the command being carried out ([`Changes::begin`]).
//!
//! None of this is replicated state. Each replica notes what it applies, once, for its own node, which takes the notes
//! after each step. Without a follower of changes, noting one costs a single comparison.
//!
//! Where a table keeps the history of its changes, a record's notes go there, too, together with its effects (`effects`,
//! `history`).

use super::history::History;
use super::kind::Kind;
use super::{Record, Table};
use crate::command::{Command, Header};
use crate::planted::Fault;
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use std::collections::BTreeSet;

/// The most bytes of noted keys that wait to be taken, and the most notes. Beyond either limit all notes are dropped, and
/// the next taker gets them as incomplete.
const NOTED_BYTES_MAX: usize = 4 << 20;
const NOTES_MAX: usize = 1 << 17;

/// The classes of events, as `notify-keyspace-events` chooses among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangeClass {
    /// Of commands on keys of any type (`g`).
    Generic,
    /// Of commands on strings (`$`).
    String,
    /// Of commands on lists (`l`).
    List,
    /// Of commands on sets (`s`).
    Set,
    /// Of commands on hashes (`h`).
    Hash,
    /// Of commands on sorted sets (`z`).
    Sorted,
    /// Of commands on streams (`t`).
    Stream,
    /// A key was removed because its deadline had passed (`x`).
    Expired,
    /// A key was removed to make room (`e`).
    Evicted,
    /// A key was created (`n`).
    New,
    /// A key was read that does not exist (`m`). Not a change.
    Missed,
    /// The value of a key was replaced (`o`). Beside the event of the command.
    Overwritten,
    /// It was replaced by one of another type (`c`).
    TypeChanged,
    /// A transaction over several groups will change the key once it is committed, which its client may know before this table
    /// does. Only clients that cache the key are told.
    Locked,
}

impl ChangeClass {
    /// Whether such a note stands beside that of the change itself, or is of no change.
    pub fn is_beside(self) -> bool {
        use ChangeClass::{Missed, New, Overwritten, TypeChanged};
        matches!(self, New | Missed | Overwritten | TypeChanged)
    }
}

/// What a node wants to know of a table's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Follows {
    /// The changes. Without them, nothing is noted.
    pub changes: bool,
    /// Reads of missing keys.
    pub misses: bool,
    /// Which changes replace a value, and its type.
    pub overwrites: bool,
}

/// One change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'c> {
    /// The key.
    pub key: &'c [u8],
    /// The version of the record that made it.
    pub version: Version,
    /// The class of the event.
    pub class: ChangeClass,
    /// Redis's name of the event; empty for a change that has none.
    pub event: &'static str,
}

/// Changes that were noted.
#[derive(Debug, Default)]
pub struct Changes {
    keys: Vec<u8>,
    notes: Vec<Note>,
    /// There may have been changes that are not among the notes: all keys were removed, the table was replaced, or there
    /// were too many notes.
    is_incomplete: bool,
    /// Whether changes are noted: the node takes them, or the table keeps a history.
    is_followed: bool,
    /// What the node takes.
    taken: Follows,
    /// The version of the record being applied.
    version: Version,
    /// The class and name of the event for the command being carried out, and where its notes begin.
    class: Option<ChangeClass>,
    event: &'static str,
    begin: usize,
    history: Option<Box<History>>,
    /// What has been noted of the record being applied; empty without a history.
    of_record: OfRecord,
}

/// What has been noted of the record being applied, for the history.
#[derive(Debug, Default)]
struct OfRecord {
    /// Where its notes begin, and the end of those whose effects are written.
    begin: usize,
    written: usize,
    /// Its effects: an array of words for each.
    effects: ReplyBuffer,
    count: u32,
    /// The number of notes made before all keys were removed.
    cleared_at: Option<usize>,
    /// Whether some of its changes could not be kept.
    is_lost: bool,
    /// The transaction over several groups that it commits: an array of its name and its groups.
    transaction: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    /// Where its key ends in the keys; it begins where that of the previous note ends.
    end: usize,
    version: Version,
    class: ChangeClass,
    event: &'static str,
}

/// A point among the notes, to which [`Changes::return_to`] can go back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    keys: usize,
    notes: usize,
    effects: (usize, u32),
}

impl Changes {
    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty() && !self.is_incomplete
    }

    /// Whether there may have been changes that are not among the notes.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The notes, in the order of the changes.
    pub fn iter(&self) -> impl Iterator<Item = Change<'_>> {
        let mut start = 0;
        self.notes.iter().map(move |note| {
            let key = &self.keys[std::mem::replace(&mut start, note.end)..note.end];
            Change { key, version: note.version, class: note.class, event: note.event }
        })
    }

    /// Whether changes are noted.
    #[inline]
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Whether changes or misses are noted.
    pub(super) fn has_followers(&self) -> bool {
        self.is_followed || self.taken.misses
    }

    /// Begins a record: the following changes belong to the record with this version.
    #[inline]
    pub(super) fn begin_record(&mut self, version: Version, floor: Version) {
        if self.is_followed {
            self.version = version;
            if let Some(history) = &mut self.history {
                history.begin(floor);
                self.of_record.begin = self.notes.len();
                self.of_record.written = self.notes.len();
            }
        }
    }

    /// Stops noting changes until [`Changes::resume`].
    pub(super) fn pause(&mut self) {
        self.is_followed = false;
    }

    pub(super) fn resume(&mut self) {
        self.is_followed = self.taken.changes || self.history.is_some();
    }

    /// The following changes belong to no command.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.is_followed {
            self.begin_event(None);
        }
    }

    /// The following changes belong to this command.
    #[inline]
    pub(super) fn begin(&mut self, command: &Command<'_>) {
        if self.is_followed {
            self.begin_event(event_of(command));
        }
    }

    /// The following changes belong to this event.
    pub(super) fn begin_event(&mut self, event: Option<(ChangeClass, &'static str)>) {
        (self.class, self.event) = event.map_or((None, ""), |(class, event)| (Some(class), event));
        self.begin = self.notes.len();
    }

    /// Notes a change of a key by the command that is being carried out.
    #[inline]
    pub(super) fn note(&mut self, key: &[u8]) {
        if self.is_followed {
            self.note_as(key, self.class.unwrap_or(ChangeClass::Generic), self.event);
        }
    }

    /// Notes a change of a key. Within one command, an event of a key is noted once, in however many steps the key changes.
    pub(super) fn note_as(&mut self, key: &[u8], class: ChangeClass, event: &'static str) {
        if !self.is_followed {
            return;
        }
        if let Some(last) = self.notes[self.begin..].last()
            && (last.class, last.event) == (class, event)
            && self.keys[self.start_of(self.notes.len() - 1)..last.end] == *key
        {
            return;
        }
        if self.notes.len() >= NOTES_MAX || self.keys.len() + key.len() > NOTED_BYTES_MAX {
            self.keys.clear();
            self.notes.clear();
            self.begin = 0;
            (self.of_record.begin, self.of_record.written) = (0, 0);
            self.lose_record();
            return self.miss_some();
        }
        self.keys.extend_from_slice(key);
        self.notes.push(Note { end: self.keys.len(), version: self.version, class, event });
        if matches!(class, ChangeClass::Expired | ChangeClass::Evicted) {
            self.put_effect([&b"DEL"[..], key]);
        }
    }

    /// Records that some changes are not noted one by one.
    pub(super) fn miss_some(&mut self) {
        self.is_incomplete |= self.taken.changes;
    }

    /// Records that all keys are removed.
    pub(super) fn clear_all(&mut self) {
        if self.history.is_some() {
            self.put_effect([&b"FLUSHDB"[..]]);
            self.of_record.cleared_at = Some(self.notes.len());
        }
    }

    /// The record being applied commits a part of this transaction. It is kept even if it changes nothing, so that readers know when
    /// they have all parts.
    pub(super) fn note_transaction(&mut self, header: &Header<'_>) {
        if self.history.is_some() {
            let mut element = ReplyBuffer::new();
            element.array(1 + header.groups().count());
            element.bulk(header.id().to_string().as_bytes());
            header.groups().for_each(|(group, _)| element.integer(i64::from(group)));
            self.of_record.transaction = Some(element.take());
        }
    }

    /// Whether the effects of changes are written, which is for the history.
    #[inline]
    pub(super) fn have_effects(&self) -> bool {
        self.history.is_some()
    }

    /// The keys that the command being carried out has changed and whose effects are not written yet, each once, in the
    /// order of their changes. Without expired and evicted keys, whose effects were written when they were noted.
    pub(super) fn unwritten(&self) -> Vec<&[u8]> {
        let (mut keys, mut seen) = (Vec::new(), BTreeSet::new());
        let mut start = self.start_of(self.of_record.written);
        for note in &self.notes[self.of_record.written..] {
            let key = &self.keys[std::mem::replace(&mut start, note.end)..note.end];
            if !is_apart(note.class) && seen.insert(key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Records that the effects of all notes are written.
    pub(super) fn all_written(&mut self) {
        self.of_record.written = self.notes.len();
    }

    /// Writes an effect: a command of Redis.
    pub(super) fn put_effect<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8], IntoIter: Clone>) {
        let Some(history) = &self.history else { return };
        if self.of_record.is_lost {
            return;
        }
        if self.of_record.effects.len() > history.bytes_max() {
            return self.lose_record();
        }
        let words = words.into_iter();
        self.of_record.effects.array(words.clone().count());
        words.for_each(|word| self.of_record.effects.bulk(word));
        self.of_record.count += 1;
    }

    /// Gives up keeping the record being applied: it has changes that cannot be kept.
    pub(super) fn lose_record(&mut self) {
        if self.history.is_some() {
            self.of_record.is_lost = true;
            self.of_record.effects.clear();
            self.of_record.count = 0;
        }
    }

    /// Ends a record that was applied and whose effects are all written, and keeps it in the history. Returns its version
    /// if there was anything to keep. `time` is the record's time.
    pub(super) fn end_record(&mut self, time: UnixMs) -> Option<Version> {
        let history = self.history.as_mut()?;
        let mut kept = None;
        let OfRecord { begin, mut effects, count, cleared_at, is_lost, transaction, .. } =
            std::mem::take(&mut self.of_record);
        let mut start = begin.checked_sub(1).map_or(0, |before| self.notes[before].end);
        if is_lost {
            history.lose(self.version);
        } else if self.notes.len() > begin || cleared_at.is_some() || transaction.is_some() {
            let mut events = ReplyBuffer::new();
            let mut number = 0;
            for (at, note) in (begin..).zip(self.notes[begin..].iter().map(Some).chain([None])) {
                if cleared_at == Some(at) {
                    put_event(b"", "flushdb", &mut events);
                    number += 1;
                }
                let Some(note) = note else { break };
                let key = &self.keys[std::mem::replace(&mut start, note.end)..note.end];
                if !note.class.is_beside() && note.class != ChangeClass::Locked {
                    put_event(key, note.event, &mut events);
                    number += 1;
                }
            }
            if number > 0 || transaction.is_some() {
                let (events, effects) = ((number, events.as_bytes()), (count, effects.as_bytes()));
                history.keep(self.version, time, events, effects, transaction.as_deref());
                kept = Some(self.version);
            }
        }
        effects.clear();
        self.of_record.effects = effects;
        if !self.taken.changes {
            self.keys.clear();
            self.notes.clear();
        }
        self.begin = self.notes.len();
        (self.of_record.begin, self.of_record.written) = (self.begin, self.begin);
        kept
    }

    fn start_of(&self, number: usize) -> usize {
        number.checked_sub(1).map_or(0, |before| self.notes[before].end)
    }

    fn drop_notes(&mut self) {
        self.keys.clear();
        self.notes.clear();
        self.is_incomplete = false;
        self.begin = 0;
        (self.of_record.begin, self.of_record.written) = (0, 0);
    }

    pub(super) fn mark(&self) -> Mark {
        let effects = (self.of_record.effects.len(), self.of_record.count);
        Mark { keys: self.keys.len(), notes: self.notes.len(), effects }
    }

    /// Forgets what was noted since the mark, because it was undone.
    pub(super) fn return_to(&mut self, mark: Mark) {
        self.keys.truncate(mark.keys);
        self.notes.truncate(mark.notes);
        self.begin = self.begin.min(self.notes.len());
        // A lost record has no effects to forget.
        if !self.of_record.is_lost {
            self.of_record.effects.truncate(mark.effects.0);
            self.of_record.count = mark.effects.1;
        }
        self.of_record.begin = self.of_record.begin.min(self.notes.len());
        self.of_record.written = self.of_record.written.min(self.notes.len());
    }
}

/// Whether a note needs no effect of the command being carried out.
fn is_apart(class: ChangeClass) -> bool {
    use ChangeClass::{Evicted, Expired, Locked};
    class.is_beside() || matches!(class, Expired | Evicted | Locked)
}

fn put_event(key: &[u8], event: &str, out: &mut ReplyBuffer) {
    out.array(2);
    out.bulk(key);
    out.push(Reply::Bulk(event.as_bytes()));
}

impl Table {
    /// Starts or stops noting changes.
    pub fn follow_changes(&mut self, follows: Follows) {
        self.changes.taken = follows;
        self.changes.resume();
        if !follows.changes {
            self.changes.drop_notes();
        }
        self.observe();
    }

    /// Makes the table keep its latest changes, in at most this many bytes, for [`crate::Command::Recent`]; 0 ends that.
    /// The history begins here, unless one was kept before.
    pub fn keep_history(&mut self, bytes_max: usize) {
        match &mut self.changes.history {
            _ if bytes_max == 0 => self.changes.history = None,
            Some(history) => history.bound(bytes_max),
            before => *before = Some(Box::new(History::new(bytes_max))),
        }
        self.changes.resume();
        self.observe();
    }

    /// The latest changes, if the table keeps them.
    pub fn history(&self) -> Option<&History> {
        self.changes.history.as_deref()
    }

    /// A number that grows whenever the table is changed other than by records, for example when another table takes its
    /// place. Snapshots from before are then gone.
    pub fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Records that the table was changed other than by records: the history of its changes begins again.
    pub(super) fn break_history(&mut self) {
        self.replacements += 1;
        if let Some(history) = &mut self.changes.history {
            history.restart();
        }
    }

    /// Takes the notes since the last call; `None` if there are none.
    pub fn take_changes(&mut self) -> Option<Changes> {
        if !self.changes.taken.changes || self.changes.is_empty() {
            return None;
        }
        let changes = &mut self.changes;
        let taken = Changes {
            keys: std::mem::take(&mut changes.keys),
            notes: std::mem::take(&mut changes.notes),
            is_incomplete: changes.is_incomplete,
            ..Changes::default()
        };
        changes.drop_notes();
        Some(taken)
    }

    /// Takes over the followers of a table that this one replaces. They learn that they have missed changes, and the
    /// history begins again.
    pub fn take_followers_of(&mut self, before: &mut Table) {
        self.changes = std::mem::take(&mut before.changes);
        self.replacements = before.replacements + 1;
        if !before.queues.has_planted(Fault::SnapshotNotNoted) {
            self.changes.miss_some();
        }
        if !before.queues.has_planted(Fault::HistoryOutlivesSnapshot) {
            self.break_history();
        }
        self.observe();
    }

    /// Notes the keys of a read that do not exist, if misses are followed.
    #[cold]
    pub(super) fn note_misses(&mut self, command: &Command<'_>, now: UnixMs) {
        if !self.changes.taken.misses || !self.changes.is_followed {
            return;
        }
        if matches!(command, Command::Script(_) | Command::Transaction(_)) {
            return;
        }
        command.for_each_key(|key| {
            if self.peek(key, now).is_none() {
                self.changes.note_as(key, ChangeClass::Missed, "keymiss");
            }
        });
    }

    /// Notes that the value at a place is about to be replaced by one of this type, if that is followed.
    #[inline(always)]
    pub(super) fn note_overwritten(&mut self, place: super::index::Place, kind: Kind, record: Record) {
        if self.changes.taken.overwrites {
            self.note_followed_overwrite(place, kind, record);
        }
    }

    #[cold]
    fn note_followed_overwrite(&mut self, place: super::index::Place, kind: Kind, record: Record) {
        let entry = self.index.entry(place);
        if self.changes.is_followed && !entry.expired(record.time) {
            self.changes.note_as(entry.key(), ChangeClass::Overwritten, "overwritten");
            if entry.kind().type_name() != kind.type_name() {
                self.changes.note_as(entry.key(), ChangeClass::TypeChanged, "type_changed");
            }
        }
    }

    /// What the live value at a place is, if it is followed that it is replaced. Until [`Table::note_held`]
    /// is called, no replacement is noted: `RESTORE`'s own event comes first.
    pub(super) fn hold_overwritten(&mut self, place: Option<super::index::Place>) -> Option<Kind> {
        let is_noted = self.changes.taken.overwrites && self.changes.is_followed;
        let held = place.filter(|_| is_noted).map(|place| self.index.entry(place).kind());
        self.changes.taken.overwrites &= held.is_none();
        held
    }

    /// Notes that a key's value, which was of this kind, has been replaced: see [`Table::hold_overwritten`].
    pub(super) fn note_held(&mut self, key: &[u8], held: Option<Kind>) {
        let Some(before) = held else { return };
        self.changes.taken.overwrites = true;
        let after = self.find(self.index.hash(key), key).map(|(_, entry)| entry.kind());
        if let Some(after) = after {
            self.changes.note_as(key, ChangeClass::Overwritten, "overwritten");
            if before.type_name() != after.type_name() {
                self.changes.note_as(key, ChangeClass::TypeChanged, "type_changed");
            }
        }
    }

    /// Notes that the key at a place is removed because it has expired, if it has.
    #[inline]
    pub(super) fn note_if_expired(&mut self, place: super::index::Place, record: Record) {
        if self.changes.is_followed && self.index.entry(place).expired(record.time) {
            self.changes.note_as(self.index.entry(place).key(), ChangeClass::Expired, "expired");
        }
    }
}

/// Redis's event for a command's changes, with its class; for a command with several events, the first one. `None` if it has
/// none.
fn event_of(command: &Command<'_>) -> Option<(ChangeClass, &'static str)> {
    use Command::*;
    let class = match command {
        Hash(_) => ChangeClass::Hash,
        OnList(_) | Sort(_) => ChangeClass::List,
        OnSet(_) => ChangeClass::Set,
        OnSorted(_) => ChangeClass::Sorted,
        OnStream(_) => ChangeClass::Stream,
        Expire { .. } | GetExpire { .. } | Persist { .. } => ChangeClass::Generic,
        Rename { .. } | Copy { .. } | Restore { .. } => ChangeClass::Generic,
        _ => ChangeClass::String,
    };
    Some((class, command.event()?))
}
