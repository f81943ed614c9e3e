//! Reads of a collection that would take long in one step: they are carried out little by little, beside records.
//!
//! Such a read shows the moment at which it begins. It keeps a copy of the collection as it was then, which costs nothing
//! (`docs/design/collections.md`), the names that it looks for, and its reply so far. What replaces the table's contents, or
//! the table, does not end it. Reads within scripts and transactions take one step.

use super::collections::Collection;
use super::entry::Entry;
use super::geo;
use super::hashes::Hash;
use super::kind::Kind;
use super::lists::ranks;
use super::order::scored_parts;
use super::refusals::refuse_large_reply;
use super::sets;
use super::sorted;
use super::sorted_view::Sorted;
use super::tree::Discarded;
use super::{Table, order::Key};
use crate::command::{
    Command, ExpiryUnit, HashCommand, HashPart, List, ListCommand, SetCommand, SortedCommand,
};
use crate::reply::{Lent, LongReadId, Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a reply element in addition to a member, a score or a number.
const ELEMENT_BYTES: usize = 16;

/// More than the estimates have for one item that is listed, and for ten of its bytes, in nanoseconds.
const LISTED_NS: usize = 100;

/// How far a read has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether the reply is complete: [`Table::end_reading`] returns it.
    pub is_complete: bool,
    /// The memory that the reply takes so far, and the names that the read looks for.
    pub bytes: usize,
}

/// The reads that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct LongReads {
    reads: BTreeMap<LongReadId, LongRead>,
    begun: u64,
}

impl LongReads {
    pub(super) fn are_none(&self) -> bool {
        self.reads.is_empty()
    }

    /// The contents that the copies are of were removed as a whole: what they share does not count any more.
    pub(super) fn outlive_contents(&mut self) {
        self.reads.values_mut().for_each(|read| read.has_outlived = true);
    }

    /// Takes them out for the table that replaces this one. Ids go on.
    pub(super) fn take(&mut self) -> LongReads {
        self.outlive_contents();
        let begun = self.begun;
        std::mem::replace(self, LongReads { reads: BTreeMap::new(), begun })
    }
}

#[derive(Debug)]
struct LongRead {
    collection: Collection,
    /// See [`LongReads::outlive_contents`].
    has_outlived: bool,
    now: UnixMs,
    /// What one item takes, as estimated.
    item_ns: u64,
    left: Left,
    replies: ReplyBuffer,
}

/// What is left to do.
#[derive(Debug)]
enum Left {
    /// Items of these ranks, in their order, or from the last one on.
    Items(Listed, Range<usize>),
    /// So many names, each with its length, from a place on.
    Names { form: Sought, names: Box<[u8]>, from: usize, count: usize },
}

/// How items are shown.
#[derive(Clone, Copy, Debug)]
enum Listed {
    Elements,
    Members,
    Scored { is_reverse: bool, with_scores: bool },
    Fields(HashPart),
}

/// What is shown for each name.
#[derive(Clone, Copy, Debug)]
enum Sought {
    IsThere,
    Score,
    Hash,
    Place,
    Value,
    Expiry(ExpiryUnit),
}

impl LongRead {
    fn go_on(&mut self, ns: u64) -> Progress {
        let LongRead { collection, now, item_ns, left, replies, .. } = self;
        let items = usize::try_from(ns / (*item_ns).max(1)).unwrap_or(usize::MAX).max(1);
        // Some items may be much longer than most.
        let enough =
            replies.len().saturating_add(usize::try_from(ns).unwrap_or(usize::MAX).saturating_mul(2));
        // What is shown for a name is short, unless it is a value.
        let most = match left {
            Left::Items(..) | Left::Names { form: Sought::Value, .. } => replies.reply_bytes_max(),
            Left::Names { .. } => usize::MAX,
        };
        let mut is_refused = false;
        // Whether to stop behind what has just been written.
        let mut is_enough = |replies: &mut ReplyBuffer| {
            is_refused = replies.len() > most;
            if is_refused {
                refuse_large_reply(0, replies);
            }
            is_refused || replies.len() >= enough
        };
        let mut done = 0;
        match left {
            Left::Items(form, ranks) => {
                let all = collection.items();
                let hash = Hash::of_collection(collection, *now);
                let is_reverse = matches!(form, Listed::Scored { is_reverse: true, .. });
                let part = match is_reverse {
                    true => ranks.end.saturating_sub(items).max(ranks.start)..ranks.end,
                    false => ranks.start..ranks.start.saturating_add(items).min(ranks.end),
                };
                let mut write = |item: &[u8]| {
                    match *form {
                        Listed::Elements => replies.bulk(item),
                        Listed::Members => sets::write_member(item, replies),
                        Listed::Fields(shown) => hash.write_field(item, shown, replies),
                        Listed::Scored { with_scores, .. } => {
                            let (key, member): (Key, &[u8]) = scored_parts(item);
                            sorted::write_member(key, member, with_scores, replies);
                        }
                    }
                    done += 1;
                    is_enough(replies)
                };
                let _ = match is_reverse {
                    true => all.iter_back(part.end).take(part.len()).any(&mut write),
                    false => all.iter_from(part.start).take(part.len()).any(&mut write),
                };
                match is_reverse {
                    true => ranks.end -= done,
                    false => ranks.start += done,
                }
            }
            Left::Names { form, names, from, count } => {
                let (sorted, hash) =
                    (Sorted::of_collection(collection), Hash::of_collection(collection, *now));
                let (all, mut item) = (collection.items(), Vec::new());
                let part = List::of_encoded(&names[*from..], items.min(*count));
                for name in Collection::touching(Some(collection), part) {
                    match *form {
                        Sought::IsThere => sets::write_whether_there(all, name, &mut item, replies),
                        Sought::Score => sorted::write_score(sorted.key(name), replies),
                        Sought::Hash => geo::write_hash(sorted, name, replies),
                        Sought::Place => geo::write_place_of(sorted, name, replies),
                        Sought::Value => hash.write_value(name, replies),
                        Sought::Expiry(unit) => hash.write_expiry(name, unit, replies),
                    }
                    done += 1;
                    *from += List::length_of(name);
                    if is_enough(replies) {
                        break;
                    }
                }
                *count -= done;
            }
        }
        let (is_over, names_bytes) = match left {
            Left::Items(_, ranks) => (Range::is_empty(ranks), 0),
            Left::Names { names, count, .. } => (*count == 0, names.len()),
        };
        Progress { is_complete: is_over || is_refused, bytes: replies.len() + names_bytes }
    }

    fn discard(self, live: &mut Discarded, cleared: &mut Discarded) -> ReplyBuffer {
        self.collection.discard(if self.has_outlived { cleared } else { live });
        self.replies
    }
}

/// The key of a read that can be carried out little by little, and the kind of its value.
fn target<'a>(command: &Command<'a>) -> Option<(&'a [u8], Kind)> {
    use {HashCommand as H, SetCommand as S, SortedCommand as Z};
    Some(match *command {
        Command::Hash(H::All { key, .. } | H::MultiGet { key, .. } | H::TimeToLive { key, .. }) => {
            (key, Kind::Hash)
        }
        Command::OnList(ListCommand::Range { key, .. }) => (key, Kind::List),
        Command::OnSet(S::All { key } | S::ContainsEach { key, .. }) => (key, Kind::Set),
        Command::OnSorted(Z::Range { key, .. } | Z::Scores { key, .. }) => (key, Kind::Sorted),
        Command::OnSorted(Z::Hashes { key, .. } | Z::Places { key, .. }) => (key, Kind::Sorted),
        _ => return None,
    })
}

/// What is to be done for a read of a collection. Writes the head of the reply.
fn begun(command: &Command<'_>, collection: &Collection, now: UnixMs, out: &mut ReplyBuffer) -> Option<Left> {
    use {HashCommand as H, SetCommand as S, SortedCommand as Z};
    let (items, length) = (collection.items(), collection.len());
    let (form, names) = match *command {
        Command::Hash(H::All { part, .. }) => {
            Hash::of_collection(collection, now).write_head(part, out);
            return Some(Left::Items(Listed::Fields(part), 0..length));
        }
        Command::OnList(ListCommand::Range { start, end, .. }) => {
            let ranks = ranks(length, start, end);
            out.array(ranks.len());
            return Some(Left::Items(Listed::Elements, ranks));
        }
        Command::OnSet(S::All { .. }) => {
            out.push(Reply::Set(length as u32));
            return Some(Left::Items(Listed::Members, 0..length));
        }
        Command::OnSorted(Z::Range { by, ends, is_reverse, skip, count, with_scores, .. }) => {
            let ranks = sorted::selected(items, (by, ends), is_reverse, (skip, count)).ok()?;
            sorted::write_head(ranks.len(), with_scores, out);
            return Some(Left::Items(Listed::Scored { is_reverse, with_scores }, ranks));
        }
        Command::Hash(H::MultiGet { fields, .. }) => (Sought::Value, fields),
        Command::Hash(H::TimeToLive { fields, unit, .. }) => (Sought::Expiry(unit), fields),
        Command::OnSet(S::ContainsEach { members, .. }) => (Sought::IsThere, members),
        Command::OnSorted(Z::Scores { members, .. }) => (Sought::Score, members),
        Command::OnSorted(Z::Hashes { members, .. }) => (Sought::Hash, members),
        Command::OnSorted(Z::Places { members, .. }) => (Sought::Place, members),
        _ => return None,
    };
    out.array(names.len());
    Some(Left::Names { form, names: names.encoded().into(), from: 0, count: names.len() })
}

impl Table {
    /// Begins a read that would take too long in one step. Returns the key's version, or `None`: it takes one step.
    pub(super) fn begin_long_read(
        &mut self,
        command: &Command<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Option<Version> {
        let read_ns_max = out.read_ns_max()?;
        let (key, kind) = target(command)?;
        let entry = self.peek(key, now);
        if entry.is_some_and(|entry| entry.kind() != kind) {
            return None;
        }
        let (items, bytes) = entry.map_or((0, 0), |entry| (entry.items().len(), entry.content_bytes()));
        // Nearly all reads end here. An estimate may have to find a range a second time.
        let is_short = (items * LISTED_NS + bytes) as u64 <= read_ns_max;
        let lists = matches!(command, Command::OnList(_) | Command::OnSet(SetCommand::All { .. }))
            || matches!(command, Command::Hash(HashCommand::All { .. }))
            || matches!(command, Command::OnSorted(SortedCommand::Range { .. }));
        if lists && is_short {
            return None;
        }
        let work_ns = command.walk_ns(self);
        if work_ns <= read_ns_max {
            return None;
        }
        let entry = self.peek(key, now);
        let (is_hit, version) = (entry.is_some(), entry.map_or(0, Entry::version));
        let collection = entry.and_then(Entry::collection).cloned().unwrap_or_else(|| {
            let mut small = Collection::new(kind);
            small.load(kind, entry.map_or(&[], Entry::value));
            small
        });
        let mut replies = ReplyBuffer::new();
        replies.bound_each(out.reply_bytes_max());
        let Some(left) = begun(command, &collection, now, &mut replies) else {
            collection.discard(&mut self.discarded_nodes);
            return None;
        };
        let (count, bytes) = match &left {
            Left::Items(_, ranks) => (ranks.len(), bytes * ranks.len() / items.max(1)),
            Left::Names { count, .. } => (*count, 0),
        };
        // Otherwise it would be moved as a whole for a part of it.
        replies.reserve((bytes + count * ELEMENT_BYTES).min(out.reply_bytes_max()));
        self.count_lookup(is_hit);
        self.long_reads.begun += 1;
        let (id, item_ns) = (LongReadId(self.long_reads.begun), work_ns / count.max(1) as u64);
        let read = LongRead { collection, has_outlived: false, now, item_ns, left, replies };
        self.long_reads.reads.insert(id, read);
        out.push_lent(Lent::Read(id));
        Some(version)
    }

    /// Goes on with a read that has begun, for about `ns` nanoseconds as estimated. `None`: the table does not know it.
    pub fn go_on_reading(&mut self, id: LongReadId, ns: u64) -> Option<Progress> {
        self.long_reads.reads.get_mut(&id).map(|read| read.go_on(ns))
    }

    /// Ends a read, complete or not, and returns its reply so far. `None`: the table does not know it.
    pub fn end_reading(&mut self, id: LongReadId) -> Option<ReplyBuffer> {
        let read = self.long_reads.reads.remove(&id)?;
        Some(read.discard(&mut self.discarded_nodes, &mut self.cleared))
    }
}
