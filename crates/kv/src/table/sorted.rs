//! Commands on sorted sets: `ZADD`, `ZRANGE` and similar ones. For the representation see [`super::collections`].

use super::collections::{Collection, index_item};
use super::draws::Draws;
use super::entry::Entry;
use super::found::Found;
use super::kind::Kind;
use super::lists::ranks;
use super::members::Member;
use super::name_hash::HASH_BYTES;
use super::order::{KEY_BYTES, Key, key_of, number_of, scored_parts, short};
use super::refusals::{TOO_MANY_POPPED, WRONG_KIND, refuse_large_reply};
use super::sorted_view::Sorted;
use super::transactions::CUT_WRITE;
use super::tree::{Discarded, Items, Tree};
use super::{Record, Table, geo};
use crate::command::{
    AddOptions, Aggregate, By, EncodingLimits, List, MemberBound, SetOperation, Size, SortedCommand,
    parse_member_bound, parse_score, parse_score_bound,
};
use crate::glob::Pattern;
use crate::number::format_double;
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use std::collections::BTreeMap;
use std::ops::Range;

const NOT_A_SCORE_RANGE: &str = "ERR min or max is not a float";
const NOT_A_MEMBER_RANGE: &str = "ERR min or max not valid string range item";
const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

/// Encodes the item of a member into `item`.
pub(super) fn item_of<'i>(key: Key, member: &[u8], item: &'i mut Vec<u8>) -> &'i [u8] {
    item.clear();
    item.extend_from_slice(&short(key));
    item.extend_from_slice(member);
    item
}

/// How Redis would store a sorted set, as `OBJECT ENCODING` reports it.
pub(super) fn encoding(entry: &Entry, limits: &EncodingLimits) -> &'static [u8] {
    let items = entry.items();
    let is_short = |item: &[u8]| scored_parts(item).1.len() <= limits.sorted_member_bytes as usize;
    let is_listpack = items.len() <= limits.sorted_members as usize && items.iter_from(0).all(is_short);
    if is_listpack { b"listpack" } else { b"skiplist" }
}

/// A score times the weight of its set.
pub(super) fn weighted(key: Key, weight: f64) -> f64 {
    let product = number_of(key) * weight;
    if product.is_nan() { 0.0 } else { product }
}

/// What a member's scores in two sets are combined to.
pub(super) fn added(aggregate: Aggregate, one: f64, other: f64) -> f64 {
    match aggregate {
        Aggregate::Sum if (one + other).is_nan() => 0.0,
        Aggregate::Sum => one + other,
        Aggregate::Least => one.min(other),
        Aggregate::Greatest => one.max(other),
    }
}

impl Collection {
    /// Sets the score of a member whose present score is `before`.
    pub(super) fn set_score(
        &mut self,
        member: &[u8],
        before: Option<Key>,
        key: Key,
        discarded: &mut Discarded,
    ) {
        let mut item = Vec::new();
        if let Some(before) = before {
            let (rank, is_there) = self.items().find(item_of(before, member, &mut item));
            assert!(is_there, "a member is where its score says");
            return self.change_key(rank, item_of(key, member, &mut item), discarded);
        }
        self.add_named(item_of(key, member, &mut item));
    }

    fn remove_member(&mut self, member: &[u8], discarded: &mut Discarded) -> bool {
        let Some(key) = self.key_of_name(member) else { return false };
        let rank = self.items().seek(item_of(key, member, &mut Vec::new()));
        self.remove_named(rank..rank + 1, discarded);
        true
    }
}

/// The first rank whose member is not before a place, by binary search, which assumes that members are in order.
fn partition(items: Items<'_>, is_before: impl Fn(&[u8]) -> bool) -> usize {
    let (mut start, mut end) = (0, items.len());
    while start < end {
        let middle = start.midpoint(end);
        match items.get(middle) {
            Some(item) if is_before(scored_parts(item).1) => start = middle + 1,
            _ => end = middle,
        }
    }
    start
}

/// The ranks of a range, or why it is invalid.
pub(super) fn ranks_of(items: Items<'_>, by: By, ends: List<'_>) -> Result<Range<usize>, &'static str> {
    let mut ends = ends.iter();
    let (start, end) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
    let range = match by {
        By::Rank => {
            let integer = |text| crate::number::parse_integer(text).ok_or(super::refusals::NOT_AN_INTEGER);
            return Ok(ranks(items.len(), integer(start)?, integer(end)?));
        }
        By::Score => {
            let (least, above_least) = parse_score_bound(start).ok_or(NOT_A_SCORE_RANGE)?;
            let (most, below_most) = parse_score_bound(end).ok_or(NOT_A_SCORE_RANGE)?;
            // The rank of the first item with at least this score, or with a greater one.
            let rank = |score: f64, is_behind: bool| {
                let key = u64::from_be_bytes(key_of(score)) + u64::from(is_behind);
                items.seek(&short(key.to_be_bytes()))
            };
            rank(least, above_least)..rank(most, !below_most)
        }
        By::Member => {
            let start = parse_member_bound(start).ok_or(NOT_A_MEMBER_RANGE)?;
            let end = parse_member_bound(end).ok_or(NOT_A_MEMBER_RANGE)?;
            // Such a range makes sense only if all scores are equal. If they are not, members are compared without their
            // scores, as in Redis.
            let key_at = |rank| items.get(rank).map(|item| scored_parts(item).0).unwrap_or_default();
            let (key, last_key) = (key_at(0), key_at(items.len().saturating_sub(1)));
            let rank = |bound: MemberBound<'_>, is_end: bool| match bound {
                MemberBound::Lowest => 0,
                MemberBound::Highest => items.len(),
                MemberBound::At(member, is_open) if key != last_key => {
                    partition(items, |other| other < member || is_open != is_end && other == member)
                }
                MemberBound::At(member, is_open) => {
                    let mut item = Vec::new();
                    item_of(key, member, &mut item);
                    if is_open != is_end {
                        item.push(0); // The next possible member.
                    }
                    items.seek(&item)
                }
            };
            rank(start, false)..rank(end, true)
        }
    };
    Ok(if range.start < range.end { range } else { 0..0 })
}

/// The ranks of the members that a range returns, without the first `skip`, and at most `count`. If the range is reversed,
/// they are returned from the end.
pub(super) fn selected(
    items: Items<'_>,
    (by, ends): (By, List<'_>),
    is_reverse: bool,
    (skip, count): (u32, u32),
) -> Result<Range<usize>, &'static str> {
    let mut range = ranks_of(items, by, ends)?;
    if by == By::Rank && is_reverse {
        range = items.len() - range.end..items.len() - range.start;
    }
    let skip = (skip as usize).min(range.len());
    let count = (count as usize).min(range.len() - skip);
    Ok(match is_reverse {
        false => range.start + skip..range.start + skip + count,
        true => range.end - skip - count..range.end - skip,
    })
}

/// Appends the head of so many members, which follow.
pub(super) fn write_head(count: usize, with_scores: bool, out: &mut ReplyBuffer) {
    match with_scores {
        true => out.push(Reply::Pairs(count as u32)),
        false => out.array(count),
    }
}

/// Appends a member, with its score if requested.
pub(super) fn write_member(key: Key, member: &[u8], with_scores: bool, out: &mut ReplyBuffer) {
    if with_scores {
        out.push(Reply::Pair);
    }
    out.bulk(member);
    if with_scores {
        out.push(Reply::Double(number_of(key)));
    }
}

/// Appends the score of a member, or null.
pub(super) fn write_score(key: Option<Key>, out: &mut ReplyBuffer) {
    match key {
        Some(key) => out.push(Reply::Double(number_of(key))),
        None => out.null(),
    }
}

/// Appends members, with their scores if requested, unless they are too large for a reply.
fn write_members(
    count: usize,
    members: impl Iterator<Item = (Key, impl AsRef<[u8]>)>,
    with_scores: bool,
    out: &mut ReplyBuffer,
) {
    let start = out.len();
    write_head(count, with_scores, out);
    for (key, member) in members.take(count) {
        write_member(key, member.as_ref(), with_scores, out);
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

impl Table {
    /// The sorted set or, if `takes_sets`, set of a key; an empty one if the key does not exist, `None` if it holds
    /// something else.
    pub(super) fn sorted(&self, key: &[u8], takes_sets: bool, now: UnixMs) -> Option<Sorted<'_>> {
        match self.peek(key, now) {
            None => Some(Sorted::EMPTY),
            Some(entry) if entry.kind() == Kind::Sorted || takes_sets && entry.kind() == Kind::Set => {
                Some(Sorted::of(entry))
            }
            Some(_) => None,
        }
    }

    /// The members of a range; none if the range is invalid.
    pub(super) fn size_of_range(&self, key: &[u8], by: By, ends: List<'_>, now: UnixMs) -> Size {
        let sorted = self.peek(key, now).filter(|entry| entry.kind() == Kind::Sorted);
        sorted.map_or(Size::default(), |entry| {
            let items = ranks_of(entry.items(), by, ends).map_or(0, |range| range.len());
            entry.share(items)
        })
    }

    /// The members that a search for places looks at.
    pub(super) fn size_of_search(&self, key: &[u8], query: &[u8], now: UnixMs) -> Size {
        let entry = self.peek(key, now).filter(|entry| entry.kind() == Kind::Sorted);
        entry.map_or(Size::default(), |entry| entry.share(geo::looked_at(Sorted::of(entry), query)))
    }

    /// Bytes of the members of a range; 0 if the range is invalid.
    pub(super) fn bytes_in_range(&self, key: &[u8], by: By, ends: List<'_>, now: UnixMs) -> u64 {
        self.size_of_range(key, by, ends, now).bytes
    }

    pub(super) fn read_sorted(
        &mut self,
        command: &SortedCommand<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        use SortedCommand::*;
        let key = match *command {
            Combine { operation, inputs, is_weighted, aggregate, with_scores } => {
                match self.combine_sorted(operation, inputs, is_weighted, aggregate, now) {
                    Some(all) => write_members(all.len(), all.into_iter(), with_scores, out),
                    None => out.error(WRONG_KIND),
                }
                return 0;
            }
            CountCommon { keys, limit } => {
                self.count_common_sorted(keys, limit, now, out);
                return 0;
            }
            Length { key } | Score { key, .. } | Scores { key, .. } => key,
            Rank { key, .. } | RankWithScore { key, .. } => key,
            Count { key, .. } | Range { key, .. } | Random { key, .. } | Scan { key, .. } => key,
            ScanMembers { key, .. } => key,
            Distance { key, .. } | Hashes { key, .. } | Places { key, .. } | Find { key, .. } => key,
            _ => return 0, // A write: see `change_sorted`.
        };
        let mut draws = self.draws_to_read();
        let entry = self.peek(key, now);
        let (is_hit, version) = (entry.is_some(), entry.map_or(0, Entry::version));
        match self.sorted(key, false, now) {
            Some(sorted) => answer(command, sorted, &mut draws, out),
            None => out.error(WRONG_KIND),
        }
        self.count_lookup(is_hit);
        version
    }

    fn count_common_sorted(&mut self, keys: List<'_>, limit: u64, now: UnixMs, out: &mut ReplyBuffer) {
        let sets: Option<Vec<_>> = keys.iter().map(|key| self.sorted(key, true, now)).collect();
        let Some(mut sets) = sets else { return out.error(WRONG_KIND) };
        sets.sort_by_key(|sorted| sorted.len());
        let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let is_in_all = |member: &[u8]| sets[1..].iter().all(|sorted| sorted.key(member).is_some());
        let common = sets.first().copied().unwrap_or(Sorted::EMPTY).iter().filter(|(_, it)| is_in_all(it));
        out.integer(common.take(most).count() as i64);
    }

    /// The members of several sets combined, in order. `None` if one is of another kind.
    fn combine_sorted(
        &self,
        operation: SetOperation,
        inputs: List<'_>,
        is_weighted: bool,
        aggregate: Aggregate,
        now: UnixMs,
    ) -> Option<Vec<(Key, Member<'_>)>> {
        let mut sets = Vec::new();
        let mut inputs = inputs.iter();
        while let Some(key) = inputs.next() {
            let weight = if is_weighted { parse_score(inputs.next()?)? } else { 1.0 };
            sets.push((self.sorted(key, true, now)?, weight));
        }
        let add = |one: f64, other: f64| added(aggregate, one, other);
        let first = sets.first().copied();
        if operation != SetOperation::Difference {
            // In this order sums are identical to Redis's, to the last digit.
            sets.sort_by_key(|(sorted, _)| sorted.len());
        }
        let mut all: Vec<(Key, Member<'_>)> = match operation {
            SetOperation::Union => {
                let mut scores: BTreeMap<Member<'_>, f64> = BTreeMap::new();
                for (sorted, weight) in &sets {
                    for (key, member) in sorted.iter() {
                        let score = weighted(key, *weight);
                        scores.entry(member).and_modify(|sum| *sum = add(*sum, score)).or_insert(score);
                    }
                }
                scores.into_iter().map(|(member, score)| (key_of(score), member)).collect()
            }
            SetOperation::Intersection => {
                let (least, weight) = *sets.first()?;
                let score = |key: Key, member: &[u8]| {
                    sets[1..].iter().try_fold(weighted(key, weight), |sum, (sorted, weight)| {
                        // As in Redis, a NaN product does not become 0 here: `add` handles it.
                        Some(add(sum, number_of(sorted.key(member)?) * weight))
                    })
                };
                least.iter().filter_map(|(key, it)| Some((key_of(score(key, &it)?), it))).collect()
            }
            SetOperation::Difference => {
                let is_in_others =
                    |member: &[u8]| sets[1..].iter().any(|(other, _)| other.key(member).is_some());
                first?.0.iter().filter(|(_, member)| !is_in_others(member)).collect()
            }
        };
        all.sort_unstable();
        Some(all)
    }

    pub(super) fn change_sorted(
        &mut self,
        command: &SortedCommand<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        use SortedCommand::*;
        let key = match *command {
            MultiPop { keys, is_highest, .. } | PopAny { keys, is_highest } => {
                for key in keys.iter() {
                    let Ok(found) = self.find_kind(key, Kind::Sorted, record) else {
                        return out.error(WRONG_KIND);
                    };
                    if found.place.is_some() {
                        return match *command {
                            MultiPop { count, .. } => self.pop_nested(found, is_highest, count, record, out),
                            _ => self.pop_named(found, is_highest, record, out),
                        };
                    }
                }
                return out.push(Reply::NullArray);
            }
            StoreFound { to, from, query } => return self.store_found(to, from, query, record, out),
            Store { to, operation, inputs, is_weighted, aggregate } => {
                let all = self.combine_sorted(operation, inputs, is_weighted, aggregate, record.time);
                let Some(all) = all else { return out.error(WRONG_KIND) };
                let collection = Collection::of_sorted(all.into_iter());
                out.integer(collection.len() as i64);
                return self.put_collection(to, collection, record);
            }
            StoreRange { to, from, by, ends, is_reverse, skip, count } => {
                let Some(Sorted { items, .. }) = self.sorted(from, false, record.time) else {
                    return out.error(WRONG_KIND);
                };
                let range = match selected(items, (by, ends), is_reverse, (skip, count)) {
                    Ok(range) => range,
                    Err(error) => return out.error(error),
                };
                let members = items.iter_from(range.start).take(range.len()).map(scored_parts);
                let collection = Collection::of_sorted(members);
                out.integer(collection.len() as i64);
                return self.put_collection(to, collection, record);
            }
            Add { key, .. } | Increment { key, .. } | Remove { key, .. } => key,
            RemoveRange { key, .. } | Pop { key, .. } => key,
            // Answered by `read_sorted`.
            _ => return,
        };
        let Ok(found) = self.find_kind(key, Kind::Sorted, record) else { return out.error(WRONG_KIND) };
        match *command {
            Add { pairs, options, counts_changes, .. } => {
                let (added, changed) = self.add_scores(found, pairs, options, record);
                out.integer((added + if counts_changes { changed } else { 0 }) as i64);
            }
            Increment { delta, member, options, .. } => {
                self.increment_score(found, delta, member, options, record, out);
            }
            Remove { members, .. } => {
                let removed = self.edit_collection(found, Kind::Sorted, record, |sorted, discarded| {
                    members.iter().filter(|member| sorted.remove_member(member, discarded)).count()
                });
                out.integer(removed as i64);
            }
            RemoveRange { by, ends, .. } => match ranks_of(self.items_at(found), by, ends) {
                Ok(range) => {
                    out.integer(range.len() as i64);
                    self.edit_collection(found, Kind::Sorted, record, |sorted, discarded| {
                        sorted.remove_named(range, discarded);
                    });
                }
                Err(error) => out.error(error),
            },
            Pop { is_highest, count, .. } => self.pop_scores(found, is_highest, count, record, out),
            _ => {}
        }
    }

    /// Sets scores. Returns how many members are new, and how many have a changed score.
    fn add_scores(
        &mut self,
        found: Found<'_>,
        pairs: List<'_>,
        options: AddOptions,
        record: Record,
    ) -> (usize, usize) {
        let (mut added, mut changed) = (0, 0);
        self.edit_collection(found, Kind::Sorted, record, |sorted, discarded| {
            for (score, member) in pairs.pairs() {
                let Some(key) = parse_score(score).map(key_of) else { continue };
                let before = sorted.key_of_name(member);
                if options.allow(before, key) && before != Some(key) {
                    sorted.set_score(member, before, key, discarded);
                    added += usize::from(before.is_none());
                    changed += usize::from(before.is_some());
                }
            }
        });
        (added, changed)
    }

    fn increment_score(
        &mut self,
        found: Found<'_>,
        delta: &[u8],
        member: &[u8],
        options: AddOptions,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let Some(delta) = parse_score(delta) else { return out.error("ERR value is not a valid float") };
        let view = found.place.map_or(Sorted::EMPTY, |place| Sorted::of(self.index.entry(place)));
        let before = view.key(member);
        let sum = before.map_or(0.0, number_of) + delta;
        if before.is_some() && options.only_new || before.is_none() && options.only_old {
            return out.null();
        }
        if sum.is_nan() {
            return out.error(NOT_A_NUMBER);
        }
        if !options.allow(before, key_of(sum)) {
            return out.null();
        }
        if before != Some(key_of(sum)) {
            self.edit_collection(found, Kind::Sorted, record, |sorted, discarded| {
                sorted.set_score(member, before, key_of(sum), discarded);
            });
        }
        out.push(Reply::Double(number_of(key_of(sum))));
    }

    /// The ranks of the members to be removed at an end.
    fn popped(&self, found: Found<'_>, is_highest: bool, count: u64) -> Range<usize> {
        let length = self.items_at(found).len();
        let count = usize::try_from(count).map_or(length, |count| count.min(length));
        if is_highest { length - count..length } else { 0..count }
    }

    fn pop_scores(
        &mut self,
        found: Found<'_>,
        is_highest: bool,
        count: Option<u64>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let range = self.popped(found, is_highest, count.unwrap_or(1));
        let items = self.items_at(found);
        let start = out.len();
        match (count, range.len()) {
            _ if self.is_quiet => out.error(CUT_WRITE),
            (_, 0) => out.array(0),
            (None, _) => {
                let (key, member) = items.get(range.start).map(scored_parts).unwrap_or_default();
                out.array(2);
                out.bulk(member);
                out.push(Reply::Double(number_of(key)));
            }
            (Some(_), count) => write_members(count, at_ranks(items, &range, is_highest), true, out),
        }
        self.finish_pop(found, range, start, record, out);
    }

    fn pop_nested(
        &mut self,
        found: Found<'_>,
        is_highest: bool,
        count: u64,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let range = self.popped(found, is_highest, count);
        let start = out.len();
        if self.is_quiet {
            out.error(CUT_WRITE);
        } else {
            out.array(2);
            out.bulk(found.key);
            out.array(range.len());
            for (key, member) in at_ranks(self.items_at(found), &range, is_highest) {
                out.array(2);
                out.bulk(member);
                out.push(Reply::Double(number_of(key)));
                if out.len() - start > out.reply_bytes_max() {
                    refuse_large_reply(start, out);
                    break;
                }
            }
        }
        self.finish_pop(found, range, start, record, out);
    }

    /// Removes one member, and appends the sorted set's key, the member and its score.
    fn pop_named(&mut self, found: Found<'_>, is_highest: bool, record: Record, out: &mut ReplyBuffer) {
        let range = self.popped(found, is_highest, 1);
        let start = out.len();
        match self.items_at(found).get(range.start).map(scored_parts) {
            Some((key, member)) if !self.is_quiet => {
                out.array(3);
                out.bulk(found.key);
                out.bulk(member);
                out.push(Reply::Double(number_of(key)));
            }
            _ => out.error(CUT_WRITE),
        }
        self.finish_pop(found, range, start, record, out);
    }

    /// Puts members back that were removed, unless they are present again. Returns false if the key is now of another kind.
    pub(super) fn give_back_members(&mut self, key: &[u8], members: &[(&[u8], f64)], record: Record) -> bool {
        let Ok(found) = self.find_kind(key, Kind::Sorted, record) else { return false };
        self.edit_collection(found, Kind::Sorted, record, |sorted, discarded| {
            for (member, score) in members {
                if sorted.key_of_name(member).is_none() {
                    sorted.set_score(member, None, key_of(*score), discarded);
                }
            }
        });
        self.cover_members(key, members, record.time);
        true
    }

    fn finish_pop(
        &mut self,
        found: Found<'_>,
        range: Range<usize>,
        start: usize,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        if !self.is_quiet && ReplyBuffer::is_error(&out.as_bytes()[start..]) {
            out.truncate(start);
            out.error(TOO_MANY_POPPED);
        }
        self.edit_collection(found, Kind::Sorted, record, |sorted, discarded| {
            sorted.remove_named(range, discarded);
        });
    }
}

/// The members of a range, from its end if `is_reverse`.
pub(super) fn at_ranks<'i>(
    items: Items<'i>,
    range: &Range<usize>,
    is_reverse: bool,
) -> Box<dyn Iterator<Item = (Key, &'i [u8])> + 'i> {
    match is_reverse {
        true => Box::new(items.iter_back(range.end).take(range.len()).map(scored_parts)),
        false => Box::new(items.iter_from(range.start).take(range.len()).map(scored_parts)),
    }
}

impl AddOptions {
    /// Whether a member with the score `before` may get this one.
    fn allow(self, before: Option<Key>, key: Key) -> bool {
        match before {
            None => !self.only_old,
            Some(before) => {
                !self.only_new && (!self.only_greater || key > before) && (!self.only_less || key < before)
            }
        }
    }
}

fn answer(command: &SortedCommand<'_>, sorted: Sorted<'_>, draws: &mut Draws, out: &mut ReplyBuffer) {
    use SortedCommand::*;
    let items = sorted.items;
    let rank_of = |key: Key, member: &[u8], is_reverse: bool| {
        let rank = items.seek(item_of(key, member, &mut Vec::new()));
        (if is_reverse { items.len() - 1 - rank } else { rank }) as i64
    };
    match *command {
        Score { member, .. } => write_score(sorted.key(member), out),
        Scores { members, .. } => {
            out.array(members.len());
            let members = Collection::touching(sorted.collection, members);
            members.for_each(|member| write_score(sorted.key(member), out));
        }
        Rank { member, is_reverse, .. } => match sorted.key(member) {
            Some(key) => out.integer(rank_of(key, member, is_reverse)),
            None => out.null(),
        },
        RankWithScore { member, is_reverse, .. } => match sorted.key(member) {
            Some(key) => {
                out.array(2);
                out.integer(rank_of(key, member, is_reverse));
                write_score(Some(key), out);
            }
            None => out.push(Reply::NullArray),
        },
        Count { by, ends, .. } => match ranks_of(items, by, ends) {
            Ok(range) => out.integer(range.len() as i64),
            Err(error) => out.error(error),
        },
        Range { by, ends, is_reverse, skip, count, with_scores, .. } => {
            match selected(items, (by, ends), is_reverse, (skip, count)) {
                Ok(range) => {
                    write_members(range.len(), at_ranks(items, &range, is_reverse), with_scores, out);
                }
                Err(error) => out.error(error),
            }
        }
        Distance { from, to, unit_m, .. } => geo::distance(sorted, (from, to), unit_m, out),
        Hashes { members, .. } => geo::write_hashes(sorted, members, out),
        Places { members, .. } => geo::write_places(sorted, members, out),
        Find { query, .. } => geo::write_found(sorted, query, out),
        Random { count, with_scores, .. } => write_random(items, count, with_scores, draws, out),
        Scan { position, count, pattern, .. } => scan(sorted, position, count, pattern, true, out),
        ScanMembers { position, count, pattern, .. } => scan(sorted, position, count, pattern, false, out),
        _ => out.integer(sorted.len() as i64),
    }
}

fn write_random(
    items: Items<'_>,
    count: Option<i64>,
    with_scores: bool,
    draws: &mut Draws,
    out: &mut ReplyBuffer,
) {
    let length = items.len();
    let get = |rank: usize| items.get(rank).map(scored_parts).unwrap_or_default();
    match count {
        None if length == 0 => out.null(),
        None => out.bulk(get(draws.below(length)).1),
        Some(_) if length == 0 => out.array(0),
        Some(count @ 0..) => {
            let wanted = usize::try_from(count).map_or(length, |count| count.min(length));
            let ranks = draws.distinct(wanted, length);
            write_members(ranks.len(), items.at(&ranks).map(scored_parts), with_scores, out);
        }
        Some(count) => {
            let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            // Each member takes at least five bytes of the reply.
            if wanted > out.reply_bytes_max() / 5 {
                return refuse_large_reply(out.len(), out);
            }
            let drawn = std::iter::repeat_with(|| get(draws.below(length)));
            write_members(wanted, drawn, with_scores, out);
        }
    }
}

/// Returns about `count` members with their scores from a cursor on, in the order of their hashes: see `SSCAN` in `sets`.
fn scan(
    sorted: Sorted<'_>,
    position: u64,
    count: u64,
    pattern: Option<&[u8]>,
    with_scores: bool,
    out: &mut ReplyBuffer,
) {
    let pattern = pattern.map(Pattern::new);
    let (mut matching, mut bytes, mut next, mut before) = (Vec::new(), 0, 0, None);
    let from = u32::try_from(position).ok();
    // A small sorted set has no index: build one.
    let mut index = Tree::new(true);
    if sorted.members.is_none() {
        for (key, member) in sorted.iter() {
            let held = index_item(&member, Some(key));
            index.insert(index.items().seek(&held), &held);
        }
    }
    let index = sorted.members.unwrap_or(&index).items();
    let from = from.map_or(index.len(), |from| index.seek(&from.to_be_bytes()));
    for (seen, item) in (0..).zip(index.iter_from(from)) {
        let (hash, behind) = item.split_at(HASH_BYTES);
        let (member, key) = behind.split_at(behind.len() - KEY_BYTES);
        let is_enough = seen >= count.max(1) || bytes > out.reply_bytes_max() / 2;
        if is_enough && before != Some(hash) {
            next = u32::from_be_bytes(hash.try_into().unwrap_or_default());
            break;
        }
        before = Some(hash);
        if pattern.as_ref().is_none_or(|pattern| pattern.matches(member)) {
            bytes += item.len() + KEY_BYTES;
            let key: Key = key.try_into().unwrap_or_default();
            matching.push((key, member));
        }
    }
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.array(matching.len() * if with_scores { 2 } else { 1 });
    for (key, member) in matching {
        out.bulk(member);
        if with_scores {
            out.bulk(format_double(number_of(key)).as_bytes());
        }
    }
}
