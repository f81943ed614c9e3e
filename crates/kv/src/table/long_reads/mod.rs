//! Reads of collections that would take long in one step: they are carried out little by little, beside records.
//!
//! Such a read shows the moment at which it begins. It keeps a copy of each collection as it was then, which costs nothing
//! (`docs/design/collections.md`), the names that it looks for, and its reply so far. What replaces the table's contents, or
//! the table, does not end it. Reads within scripts and transactions take one step.

mod combining;
mod gathering;

use super::collections::Collection;
use super::entry::Entry;
use super::geo::{self, Searching};
use super::hashes::Hash;
use super::kind::Kind;
use super::lists::ranks;
use super::order::scored_parts;
use super::refusals::refuse_large_reply;
use super::sets;
use super::sorted;
use super::sorted_view::Sorted;
use super::stream_items::view::Stream;
use super::streams;
use super::tree::Discarded;
use super::{Table, order::Key};
use crate::command::{
    Aggregate, Command, ExpiryUnit, HashCommand, HashPart, List, ListCommand, SetCommand, SetOperation,
    SortedCommand, StreamCommand,
};
use crate::geo::Shown;
use crate::limits::WALKED_BYTES_MAX;
use crate::reply::{Lent, LongReadId, Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use combining::Combining;
use gathering::Gathering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::ops::Range;

/// Bytes of a reply element in addition to a member, a score or a number.
const ELEMENT_BYTES: usize = 16;

/// More than the estimates have for one item that is listed, and for ten of its bytes, in nanoseconds.
const LISTED_NS: usize = 100;

/// More than the estimates have for a byte that a read of several keys or of a stream looks at, as [`Table::walked_bytes`] counts them.
const WALKED_NS: u64 = 8;

/// How far a read has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether the reply is complete: [`Table::end_reading`] returns it.
    pub is_complete: bool,
    /// The memory that the reply takes so far, the names that the read looks for, and its copies of what is small.
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
    /// The collections that it shows, or combines.
    sources: Vec<Collection>,
    /// What those take that are small: copies of large ones share their memory.
    copied_bytes: usize,
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
    /// What becomes of several sets. So many members are found; with `most`, they are only counted, up to that.
    Sets { form: Combining, found: usize, most: Option<usize> },
    /// What becomes of several sorted sets, which is shown when all of it is there.
    Gathered { form: Box<Gathering>, with_scores: bool },
    /// Places that are found, which are shown when all of them are.
    Found(Box<Searching>),
}

/// How items are shown.
#[derive(Clone, Copy, Debug)]
enum Listed {
    Elements,
    Members,
    Scored { is_reverse: bool, with_scores: bool },
    Fields(HashPart),
    Entries { is_reverse: bool },
    Hits(Shown, f64),
}

impl Listed {
    fn is_reverse(self) -> bool {
        match self {
            Listed::Scored { is_reverse, .. } | Listed::Entries { is_reverse } => is_reverse,
            Listed::Elements | Listed::Members | Listed::Fields(_) | Listed::Hits(..) => false,
        }
    }
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
        let LongRead { sources, copied_bytes, now, item_ns, left, replies, .. } = self;
        let items = usize::try_from(ns / (*item_ns).max(1)).unwrap_or(usize::MAX).max(1);
        // Some items may be much longer than most.
        let enough =
            replies.len().saturating_add(usize::try_from(ns).unwrap_or(usize::MAX).saturating_mul(2));
        // What is shown for a name is short, unless it is a value.
        let most = match left {
            Left::Names { form: Sought::Value, .. } => replies.reply_bytes_max(),
            Left::Names { .. } => usize::MAX,
            Left::Items(..) | Left::Sets { .. } | Left::Gathered { .. } | Left::Found(_) => {
                replies.reply_bytes_max()
            }
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
        let (mut done, mut is_last, mut made_bytes, mut made) = (0, false, 0, None);
        match left {
            Left::Found(_) => {}
            Left::Items(form, ranks) => {
                let Some(collection) = sources.last() else { unreachable!("it shows a collection") };
                let all = collection.items();
                let hash = Hash::of_collection(collection, *now);
                let (is_reverse, mut entries) = (form.is_reverse(), Stream { items: all }.writer());
                let part = match is_reverse {
                    true => ranks.end.saturating_sub(items).max(ranks.start)..ranks.end,
                    false => ranks.start..ranks.start.saturating_add(items).min(ranks.end),
                };
                let mut write = |item| {
                    match *form {
                        Listed::Elements => replies.bulk(item),
                        Listed::Members => sets::write_member(item, replies),
                        Listed::Fields(shown) => hash.write_field(item, shown, replies),
                        Listed::Hits(shown, unit_m) => geo::write_gathered(item, (shown, unit_m), replies),
                        Listed::Entries { .. } => {
                            entries.write(item, replies);
                        }
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
                let Some(collection) = sources.last() else { unreachable!("it looks at a collection") };
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
            Left::Sets { form, found, most } => {
                is_last = form.go_on(sources, items, |item| {
                    *found += 1;
                    match *most {
                        Some(most) => *found == most,
                        None => {
                            sets::write_member(item, replies);
                            is_enough(replies)
                        }
                    }
                });
                match *most {
                    Some(most) => {
                        is_last |= *found == most;
                        if is_last {
                            replies.integer(*found as i64);
                        }
                    }
                    None if is_last && !is_refused => replies.set_count(0, *found),
                    None => {}
                }
            }
            Left::Gathered { form, with_scores } => {
                is_last = form.go_on(sources, items, most);
                made_bytes = form.made.memory_bytes();
                match form.most {
                    Some(_) if is_last => replies.integer(form.found as i64),
                    None if is_last && form.reply_bytes > most => refuse_large_reply(0, replies),
                    None if is_last => {
                        let none = Collection::new(Kind::Sorted);
                        let (all, with_scores) = (std::mem::replace(&mut form.made, none), *with_scores);
                        let (form, shown) = (Listed::Scored { is_reverse: false, with_scores }, 0..all.len());
                        sorted::write_head(all.len(), with_scores, replies);
                        made = Some((all, Left::Items(form, shown)));
                    }
                    _ => {}
                }
            }
        }
        if let Left::Found(search) = left {
            let Some(places) = sources.last() else { unreachable!("it looks at a collection") };
            is_last = search.go_on(Sorted::of_collection(places), items);
            made_bytes = search.hits.memory_bytes();
            if is_last {
                let (shown, unit_m) = search.shown();
                let hits = std::mem::replace(&mut search.hits, Collection::new(Kind::Set));
                let ranks = 0..hits.len().min(search.most());
                replies.array(ranks.len());
                made = Some((hits, Left::Items(Listed::Hits(shown, unit_m), ranks)));
            }
        }
        if let Some((made, then)) = made {
            replies.reserve((made.content_bytes() + made.len() * ELEMENT_BYTES).min(most));
            *left = then;
            (*item_ns, *copied_bytes) = (LISTED_NS as u64, *copied_bytes + made_bytes);
            (made_bytes, is_last) = (0, false);
            sources.push(made);
        }
        let (is_over, names_bytes) = match left {
            Left::Items(_, ranks) => (Range::is_empty(ranks), 0),
            Left::Names { names, count, .. } => (*count == 0, names.len()),
            Left::Sets { .. } | Left::Gathered { .. } | Left::Found(_) => (is_last, made_bytes),
        };
        let bytes = replies.len() + names_bytes + *copied_bytes;
        Progress { is_complete: is_over || is_refused, bytes }
    }

    fn discard(self, live: &mut Discarded, cleared: &mut Discarded) -> ReplyBuffer {
        let discarded = if self.has_outlived { cleared } else { live };
        self.sources.into_iter().for_each(|source| source.discard(discarded));
        match self.left {
            Left::Gathered { form, .. } => form.made.discard(discarded),
            Left::Found(search) => search.hits.discard(discarded),
            Left::Items(..) | Left::Names { .. } | Left::Sets { .. } => {}
        }
        self.replies
    }
}

/// What a read that can be carried out little by little looks at.
enum Target<'a> {
    /// A value of this kind.
    One(&'a [u8], Kind),
    /// Those of several keys, all of these kinds. Each key is the first of so many words.
    Several(List<'a>, usize, &'static [Kind]),
}

const SETS: &[Kind] = &[Kind::Set];
const SORTED_AND_SETS: &[Kind] = &[Kind::Sorted, Kind::Set];

fn target<'a>(command: &Command<'a>) -> Option<Target<'a>> {
    use {HashCommand as H, SetCommand as S, SortedCommand as Z, Target::*};
    Some(match *command {
        Command::Hash(H::All { key, .. } | H::MultiGet { key, .. } | H::TimeToLive { key, .. }) => {
            One(key, Kind::Hash)
        }
        Command::OnList(ListCommand::Range { key, .. }) => One(key, Kind::List),
        Command::OnSet(S::All { key } | S::ContainsEach { key, .. }) => One(key, Kind::Set),
        Command::OnSet(S::Combine { keys, .. } | S::CountCommon { keys, .. }) => Several(keys, 1, SETS),
        Command::OnSorted(Z::Combine { inputs, is_weighted, .. }) => {
            Several(inputs, 1 + usize::from(is_weighted), SORTED_AND_SETS)
        }
        Command::OnSorted(Z::Find { key, .. }) => One(key, Kind::Sorted),
        Command::OnSorted(Z::CountCommon { keys, .. }) => Several(keys, 1, SORTED_AND_SETS),
        Command::OnSorted(Z::Range { key, .. } | Z::Scores { key, .. }) => One(key, Kind::Sorted),
        Command::OnSorted(Z::Hashes { key, .. } | Z::Places { key, .. }) => One(key, Kind::Sorted),
        Command::OnStream(StreamCommand::Range { key, .. }) => One(key, Kind::Stream),
        _ => return None,
    })
}

/// What is to be done for a read of collections, and how many items that are. Writes the head of the reply.
fn begun(
    command: &Command<'_>,
    sources: &mut Vec<Collection>,
    now: UnixMs,
    out: &mut ReplyBuffer,
) -> Option<(Left, usize)> {
    use {HashCommand as H, SetCommand as S, SortedCommand as Z};
    let combined = match *command {
        Command::OnSet(S::Combine { operation, .. }) => {
            out.push(Reply::Set(0)); // They are counted as they are found.
            Some((operation, None))
        }
        Command::OnSet(S::CountCommon { limit, .. }) => {
            Some((SetOperation::Intersection, Some(up_to(limit))))
        }
        _ => None,
    };
    if let Some((operation, most)) = combined {
        let (form, count) = Combining::of(operation, sources);
        return Some((Left::Sets { form, found: 0, most }, count));
    }
    let gathered = match *command {
        Command::OnSorted(Z::Combine { operation, inputs, is_weighted, aggregate, with_scores }) => {
            let weights = gathering::weights(inputs, is_weighted)?;
            Some((operation, weights, aggregate, with_scores, None))
        }
        Command::OnSorted(Z::CountCommon { keys, limit }) => {
            let weights = vec![1.0; keys.len()];
            Some((SetOperation::Intersection, weights, Aggregate::Sum, false, Some(up_to(limit))))
        }
        _ => None,
    };
    if let Some((operation, weights, aggregate, with_scores, most)) = gathered {
        let (form, count) = Gathering::of(operation, sources, (weights, aggregate), most);
        return Some((Left::Gathered { form: Box::new(form), with_scores }, count));
    }
    let collection = sources.first()?;
    if let Command::OnSorted(Z::Find { query, .. }) = *command {
        let sorted = Sorted::of_collection(collection);
        let looked_at = geo::looked_at(sorted, query);
        return Some((Left::Found(Box::new(Searching::of(sorted, query)?)), looked_at));
    }
    let (items, length) = (collection.items(), collection.len());
    let listed = |form, ranks: Range<usize>| Some((Left::Items(form, ranks.clone()), ranks.len()));
    let (form, names) = match *command {
        Command::Hash(H::All { part, .. }) => {
            Hash::of_collection(collection, now).write_head(part, out);
            return listed(Listed::Fields(part), 0..length);
        }
        Command::OnList(ListCommand::Range { start, end, .. }) => {
            let ranks = ranks(length, start, end);
            out.array(ranks.len());
            return listed(Listed::Elements, ranks);
        }
        Command::OnSet(S::All { .. }) => {
            out.push(Reply::Set(length as u32));
            return listed(Listed::Members, 0..length);
        }
        Command::OnSorted(Z::Range { by, ends, is_reverse, skip, count, with_scores, .. }) => {
            let ranks = sorted::selected(items, (by, ends), is_reverse, (skip, count)).ok()?;
            sorted::write_head(ranks.len(), with_scores, out);
            return listed(Listed::Scored { is_reverse, with_scores }, ranks);
        }
        Command::OnStream(StreamCommand::Range { ends, is_reverse, count, .. }) => {
            // Of no entries the reply is another one.
            let count = if count == Some(0) { None } else { Some(count) }?;
            let ranks = streams::selected(Stream { items }, ends, is_reverse, count).ok()?;
            out.array(ranks.len());
            return listed(Listed::Entries { is_reverse }, ranks);
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
    let left = Left::Names { form, names: names.encoded().into(), from: 0, count: names.len() };
    Some((left, names.len()))
}

/// A limit as a number of members; 0 stands for all.
fn up_to(limit: u64) -> usize {
    if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) }
}

/// A copy of the collection that an entry holds, and the memory that it takes.
fn copy_of(entry: Option<&Entry>, kind: Kind) -> (Collection, usize) {
    match entry.and_then(Entry::collection) {
        Some(collection) => (collection.clone(), 0),
        None => {
            let mut small = Collection::new(kind);
            small.load(kind, entry.map_or(&[], Entry::value));
            (small, entry.map_or(0, |entry| entry.value().len()))
        }
    }
}

impl Table {
    /// Begins a read that would take too long in one step, and that looks at so many bytes, as [`Table::walked_bytes`] counts
    /// them. Returns the key's version, 0 for several keys, or `None`: it takes one step.
    pub(super) fn begin_long_read(
        &mut self,
        command: &Command<'_>,
        walked: u64,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Option<Version> {
        let read_ns_max = out.read_ns_max()?;
        // Nearly all reads end in one of these. An estimate may have to find a range a second time.
        let target = target(command)?;
        match target {
            Target::One(key, kind) => {
                let entry = self.peek(key, now);
                if entry.is_some_and(|entry| entry.kind() != kind) {
                    return None;
                }
                let (items, bytes) =
                    entry.map_or((0, 0), |entry| (entry.items().len(), entry.content_bytes()));
                let finds = matches!(command, Command::OnSorted(SortedCommand::Find { .. }));
                let is_in_part = finds || matches!(command, Command::OnStream(_));
                let is_short = match is_in_part {
                    true => walked.saturating_mul(WALKED_NS) <= read_ns_max,
                    false => (items * LISTED_NS + bytes) as u64 <= read_ns_max,
                };
                let lists = is_in_part
                    || matches!(command, Command::OnList(_) | Command::OnSet(SetCommand::All { .. }))
                    || matches!(command, Command::Hash(HashCommand::All { .. }))
                    || matches!(command, Command::OnSorted(SortedCommand::Range { .. }));
                // What is shown as a whole, and not combined, is refused as in one step: at once.
                if lists && is_short || walked > WALKED_BYTES_MAX && !finds {
                    return None;
                }
            }
            Target::Several(..) if walked.saturating_mul(WALKED_NS) <= read_ns_max => return None,
            Target::Several(..) => {}
        }
        let work_ns = command.walk_ns(self);
        if work_ns <= read_ns_max {
            return None;
        }
        self.begin_read(command, (target, work_ns), now, out)
    }

    #[cold]
    fn begin_read(
        &mut self,
        command: &Command<'_>,
        (target, work_ns): (Target<'_>, u64),
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Option<Version> {
        let (mut sources, lookup, copied_bytes) = match target {
            Target::One(key, kind) => {
                let entry = self.peek(key, now);
                let (copy, bytes) = copy_of(entry, kind);
                (vec![copy], Some((entry.is_some(), entry.map_or(0, Entry::version))), bytes)
            }
            Target::Several(words, step, kinds) => {
                let (copies, bytes) = self.copies(words.iter().step_by(step), kinds, now)?;
                (copies, None, bytes)
            }
        };
        let mut replies = ReplyBuffer::new();
        replies.bound_each(out.reply_bytes_max());
        let begun = begun(command, &mut sources, now, &mut replies);
        let bytes: usize = sources.iter().map(Collection::content_bytes).sum();
        let listed_bytes = match &begun {
            Some((Left::Items(..), count)) => bytes * count / sources[0].len().max(1),
            _ => 0,
        };
        let Some((left, count)) = begun else {
            sources.into_iter().for_each(|source| source.discard(&mut self.discarded_nodes));
            return None;
        };
        let reply_bytes = match &left {
            Left::Items(..) | Left::Names { .. } => listed_bytes + count * ELEMENT_BYTES,
            Left::Sets { form: Combining::Merged { .. }, .. } => bytes + count * ELEMENT_BYTES,
            Left::Sets { .. } | Left::Gathered { .. } | Left::Found(_) => 0,
        };
        // Otherwise it would be moved as a whole for a part of it.
        replies.reserve(reply_bytes.min(out.reply_bytes_max()));
        let version = lookup.map_or(0, |(is_hit, version)| {
            self.count_lookup(is_hit);
            version
        });
        self.long_reads.begun += 1;
        let made_ns = match &left {
            Left::Gathered { form, .. } => form.made_ns(),
            Left::Found(_) => 300,
            _ => 0,
        };
        let (id, item_ns) = (LongReadId(self.long_reads.begun), made_ns + work_ns / count.max(1) as u64);
        let read = LongRead { sources, copied_bytes, has_outlived: false, now, item_ns, left, replies };
        self.long_reads.reads.insert(id, read);
        out.push_lent(Lent::Read(id));
        Some(version)
    }

    /// Copies of the collections of several keys, and the memory that they take. `None` if one is of another kind.
    fn copies<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        kinds: &'static [Kind],
        now: UnixMs,
    ) -> Option<(Vec<Collection>, usize)> {
        let kind_of = |key| self.peek(key, now).map_or(kinds[0], Entry::kind);
        if keys.clone().any(|key| !kinds.contains(&kind_of(key))) {
            return None;
        }
        // A small collection that is named again shares the memory of its first copy.
        let (mut copies, mut all_bytes) = (Vec::<Collection>::new(), 0);
        let mut first: BTreeMap<&[u8], usize> = BTreeMap::new();
        for key in keys {
            let copy = match first.entry(key) {
                Slot::Occupied(at) => copies[*at.get()].clone(),
                Slot::Vacant(place) => {
                    place.insert(copies.len());
                    let (copy, bytes) = copy_of(self.peek(key, now), kind_of(key));
                    all_bytes += bytes;
                    copy
                }
            };
            copies.push(copy);
        }
        Some((copies, all_bytes))
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
