//! Commands on sets: `SADD`, `SMEMBERS` and similar ones. For the representation see [`super::collections`].

use super::changes::ChangeClass;
use super::collections::Collection;
use super::draws::{Draws, mix};
use super::entry::Entry;
use super::found::Found;
use super::kind::Kind;
use super::lists::write_items;
use super::members::{Member, first_at, is_number, item_of, member_of, position_of};
use super::name_hash::HASH_BYTES;
use super::refusals::{TOO_MANY_POPPED, WRONG_KIND, refuse_large_reply};
use super::transactions::CUT_WRITE;
use super::tree::Items;
use super::{Record, Table};
use crate::command::{EncodingLimits, List, SetCommand, SetOperation};
use crate::glob::Pattern;
use crate::planted::Fault;
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};

/// How Redis would store a set, as `OBJECT ENCODING` reports it.
pub(super) fn encoding(entry: &Entry, limits: &EncodingLimits) -> &'static [u8] {
    let items = entry.items();
    let is_intset = items.len() <= limits.intset_members as usize && items.iter_from(0).all(is_number);
    if is_intset { b"intset" } else { b"hashtable" }
}

/// Appends the member that an item holds.
pub(super) fn write_member(item: &[u8], out: &mut ReplyBuffer) {
    out.bulk(&member_of(item));
}

/// Appends whether a member is there. `item` is a buffer.
pub(super) fn write_whether_there(
    items: Items<'_>,
    member: &[u8],
    item: &mut Vec<u8>,
    out: &mut ReplyBuffer,
) {
    out.integer(items.contains(item_of(member, item)).into());
}

/// Appends a set of members, unless it is too large for a reply.
fn write_members<'i>(items: impl ExactSizeIterator<Item = &'i [u8]>, out: &mut ReplyBuffer) {
    let start = out.len();
    out.push(Reply::Set(items.len() as u32));
    for item in items {
        write_member(item, out);
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

impl Table {
    /// Random numbers for a read. Within a script that is a record, they follow from the record.
    pub(super) fn draws_to_read(&mut self) -> Draws {
        self.read_seed = self.read_seed.wrapping_add(1);
        Draws(mix(self.read_seed))
    }

    /// Random numbers for a write, which follow from its record.
    pub(super) fn draws_to_write(&mut self) -> Draws {
        if self.queues.has_planted(Fault::SetDrawnApart) {
            return self.draws_to_read();
        }
        self.write_seed = self.write_seed.wrapping_add(1);
        Draws(mix(self.write_seed))
    }

    pub(super) fn read_set(
        &mut self,
        command: &SetCommand<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        use SetCommand::*;
        let key = match *command {
            Combine { operation, keys } => {
                self.combine(operation, keys, now, out);
                return 0;
            }
            CountCommon { keys, limit } => {
                self.count_common(keys, limit, now, out);
                return 0;
            }
            Length { key } | Contains { key, .. } | ContainsEach { key, .. } | All { key } => key,
            Random { key, .. } | Scan { key, .. } => key,
            _ => return 0, // A write: see `change_set`.
        };
        let mut draws = self.draws_to_read();
        let mut item = std::mem::take(&mut self.item);
        let entry = self.peek(key, now);
        let (is_hit, version) = (entry.is_some(), entry.map_or(0, Entry::version));
        match entry {
            Some(entry) if entry.kind() != Kind::Set => out.error(WRONG_KIND),
            entry => answer(command, entry, (&mut item, &mut draws), out),
        }
        self.count_lookup(is_hit);
        self.item = item;
        version
    }

    /// The items of several sets; none for a key that does not exist. `None` if one is of another kind.
    fn sets(&self, keys: List<'_>, now: UnixMs) -> Option<Vec<Items<'_>>> {
        let of = |key| match self.peek(key, now) {
            None => Some(Items::EMPTY),
            Some(entry) if entry.kind() == Kind::Set => Some(entry.items()),
            Some(_) => None,
        };
        keys.iter().map(of).collect()
    }

    fn combine(&mut self, operation: SetOperation, keys: List<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        match self.sets(keys, now) {
            Some(sets) => write_members(combined(operation, sets).into_iter(), out),
            None => out.error(WRONG_KIND),
        }
    }

    fn count_common(&mut self, keys: List<'_>, limit: u64, now: UnixMs, out: &mut ReplyBuffer) {
        let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        match self.sets(keys, now) {
            Some(sets) => out.integer(common(sets).take(most).count() as i64),
            None => out.error(WRONG_KIND),
        }
    }

    pub(super) fn change_set(&mut self, command: &SetCommand<'_>, record: Record, out: &mut ReplyBuffer) {
        use SetCommand::*;
        match *command {
            Add { key, members } => {
                let Ok(found) = self.find_kind(key, Kind::Set, record) else { return out.error(WRONG_KIND) };
                out.integer(self.add_members(found, members.iter(), record) as i64);
            }
            Remove { key, members } => {
                let Ok(found) = self.find_kind(key, Kind::Set, record) else { return out.error(WRONG_KIND) };
                out.integer(self.remove_members(found, members.iter(), record) as i64);
            }
            Move { from, to, member } => self.move_member(from, to, member, record, out),
            Pop { key, count } => {
                let Ok(found) = self.find_kind(key, Kind::Set, record) else { return out.error(WRONG_KIND) };
                self.pop_members(found, count, record, out);
            }
            Store { operation, to, keys } => self.store_combined(operation, to, keys, record, out),
            // Answered by `read_set`.
            Length { .. } | Contains { .. } | ContainsEach { .. } | All { .. } => {}
            Random { .. } | Scan { .. } | Combine { .. } | CountCommon { .. } => {}
        }
    }

    fn add_members<'m>(
        &mut self,
        found: Found<'_>,
        members: impl Iterator<Item = &'m [u8]>,
        record: Record,
    ) -> usize {
        let mut item = std::mem::take(&mut self.item);
        let added = self.edit_collection(found, Kind::Set, record, |set, _| {
            members.filter(|member| set.insert_in_order(item_of(member, &mut item))).count()
        });
        self.item = item;
        added
    }

    fn remove_members<'m>(
        &mut self,
        found: Found<'_>,
        members: impl Iterator<Item = &'m [u8]>,
        record: Record,
    ) -> usize {
        let mut item = std::mem::take(&mut self.item);
        let removed = self.edit_collection(found, Kind::Set, record, |set, discarded| {
            members.filter(|member| set.remove_in_order(item_of(member, &mut item), discarded)).count()
        });
        self.item = item;
        removed
    }

    fn move_member(&mut self, from: &[u8], to: &[u8], member: &[u8], record: Record, out: &mut ReplyBuffer) {
        let Ok(source) = self.find_kind(from, Kind::Set, record) else { return out.error(WRONG_KIND) };
        if source.place.is_none() {
            return out.integer(0);
        }
        if self.find_kind(to, Kind::Set, record).is_err() {
            return out.error(WRONG_KIND);
        }
        // Find the source again: the target may have expired and been removed, which invalidates the source's place.
        let Ok(source) = self.find_kind(from, Kind::Set, record) else { return out.error(WRONG_KIND) };
        let is_there = self.items_at(source).contains(item_of(member, &mut Vec::new()));
        out.integer(is_there.into());
        if !is_there || from == to {
            return;
        }
        self.remove_members(source, std::iter::once(member), record);
        // The target's place may have changed.
        let Ok(target) = self.find_kind(to, Kind::Set, record) else { return };
        self.changes.begin_event(Some((ChangeClass::Set, "sadd")));
        self.add_members(target, std::iter::once(member), record);
    }

    fn pop_members(&mut self, found: Found<'_>, count: Option<u64>, record: Record, out: &mut ReplyBuffer) {
        let mut draws = self.draws_to_write();
        let items = self.items_at(found);
        let length = items.len();
        let wanted = usize::try_from(count.unwrap_or(1)).map_or(length, |count| count.min(length));
        // All members need no ranks.
        let ranks = (wanted < length).then(|| draws.distinct(wanted, length));
        let drawn = || -> Box<dyn Iterator<Item = &[u8]> + '_> {
            match &ranks {
                Some(ranks) => Box::new(items.at(ranks)),
                None => Box::new(items.iter_from(0)),
            }
        };
        let start = out.len();
        match count {
            None if length == 0 => out.null(),
            _ if self.is_quiet => out.error(CUT_WRITE),
            None => out.bulk(&drawn().next().map(member_of).unwrap_or_default()),
            Some(_) => write_members(Counted(wanted, drawn()), out),
        }
        if !self.is_quiet && ReplyBuffer::is_error(&out.as_bytes()[start..]) {
            out.truncate(start);
            out.error(TOO_MANY_POPPED);
        }
        let popped = match self.changes.have_effects() {
            true => drawn().map(|item| member_of(item).to_vec()).collect(),
            false => Vec::new(),
        };
        self.edit_collection(found, Kind::Set, record, |set, discarded| match &ranks {
            Some(ranks) => set.remove_each(ranks, discarded),
            None => set.remove(0, length, discarded),
        });
        self.cover_drawn(found.key, popped);
    }

    fn store_combined(
        &mut self,
        operation: SetOperation,
        to: &[u8],
        keys: List<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let Some(sets) = self.sets(keys, record.time) else { return out.error(WRONG_KIND) };
        let mut collection = Collection::new(Kind::Set);
        for item in combined(operation, sets) {
            collection.insert(collection.len(), item);
        }
        out.integer(collection.len() as i64);
        self.put_collection(to, collection, record);
    }
}

/// An iterator whose length is known.
pub(super) struct Counted<I>(pub(super) usize, pub(super) I);

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.1.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0, Some(self.0))
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}

/// The items that are in all sets, in order.
fn common<'i>(mut sets: Vec<Items<'i>>) -> impl Iterator<Item = &'i [u8]> {
    sets.sort_by_key(|items| items.len());
    let least = sets.first().copied().unwrap_or(Items::EMPTY);
    least.iter_from(0).filter(move |item| sets[1..].iter().all(|items| items.contains(item)))
}

/// The result of a set operation on several sets' items, in order.
fn combined<'i>(operation: SetOperation, sets: Vec<Items<'i>>) -> Vec<&'i [u8]> {
    match operation {
        SetOperation::Intersection => common(sets).collect(),
        SetOperation::Difference => {
            let (first, others) = sets.split_first().unwrap_or((&Items::EMPTY, &[]));
            let is_in_others = |item: &&[u8]| others.iter().any(|items| items.contains(item));
            first.iter_from(0).filter(|item| !is_in_others(item)).collect()
        }
        SetOperation::Union => {
            // Merge in pairs: each list is in order.
            let mut lists: Vec<Vec<&[u8]>> = sets.iter().map(|items| items.iter_from(0).collect()).collect();
            while lists.len() > 1 {
                lists =
                    lists.chunks(2).map(|pair| merged(&pair[0], pair.get(1).map_or(&[], |it| it))).collect();
            }
            lists.pop().unwrap_or_default()
        }
    }
}

fn merged<'i>(left: &[&'i [u8]], right: &[&'i [u8]]) -> Vec<&'i [u8]> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left, right);
    while let ([first, behind_first @ ..], [second, behind_second @ ..]) = (left, right) {
        let order = first.cmp(second);
        all.push(if order.is_le() { *first } else { *second });
        if order.is_le() {
            left = behind_first;
        }
        if order.is_ge() {
            right = behind_second;
        }
    }
    all.extend_from_slice(left);
    all.extend_from_slice(right);
    all
}

fn write_random(items: Items<'_>, count: Option<i64>, draws: &mut Draws, out: &mut ReplyBuffer) {
    let length = items.len();
    let get = |rank: usize| items.get(rank).map(member_of).unwrap_or_default();
    match count {
        None if length == 0 => out.null(),
        None => out.bulk(&get(draws.below(length))),
        Some(_) if length == 0 => out.array(0),
        Some(count @ 0..) => {
            let wanted = usize::try_from(count).map_or(length, |count| count.min(length));
            if wanted == length {
                return write_items(length, items.iter_from(0).map(member_of), out);
            }
            let ranks = draws.distinct(wanted, length);
            write_items(ranks.len(), items.at(&ranks).map(member_of), out);
        }
        Some(count) => {
            let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            // Each member takes at least five bytes of the reply.
            if wanted > out.reply_bytes_max() / 5 {
                return refuse_large_reply(out.len(), out);
            }
            write_items(wanted, std::iter::repeat_with(|| get(draws.below(length))), out);
        }
    }
}

fn answer(
    command: &SetCommand<'_>,
    set: Option<&Entry>,
    (item, draws): (&mut Vec<u8>, &mut Draws),
    out: &mut ReplyBuffer,
) {
    use SetCommand::*;
    let items = set.map_or(Items::EMPTY, Entry::items);
    match *command {
        Contains { member, .. } => write_whether_there(items, member, item, out),
        ContainsEach { members, .. } => {
            out.array(members.len());
            for member in Collection::touching(set.and_then(Entry::collection), members) {
                write_whether_there(items, member, item, out);
            }
        }
        All { .. } => write_members(Counted(items.len(), items.iter_from(0)), out),
        Random { count, .. } => write_random(items, count, draws, out),
        Scan { position, count, pattern, .. } => scan(items, position, count, pattern, out),
        _ => out.integer(items.len() as i64),
    }
}

/// Returns about `count` members from a cursor on. Members with equal positions are returned together, so a member that is
/// present throughout is returned exactly once.
fn scan(items: Items<'_>, position: u64, count: u64, pattern: Option<&[u8]>, out: &mut ReplyBuffer) {
    let Ok(from) = u32::try_from(position) else {
        out.array(2);
        out.bulk(b"0");
        return out.array(0);
    };
    let pattern = pattern.map(Pattern::new);
    let (mut matching, mut bytes, mut next, mut before) = (Vec::<Member<'_>>::new(), 0, 0, None);
    let (first, length) = first_at(from);
    for (seen, item) in (0..).zip(items.iter_from(items.seek(&first[..length]))) {
        let is_enough = seen >= count.max(1) || bytes > out.reply_bytes_max() / 2;
        if is_enough && before != Some(position_of(item)) {
            next = position_of(item);
            break;
        }
        before = Some(position_of(item));
        if pattern.as_ref().is_none_or(|pattern| pattern.matches(&member_of(item))) {
            bytes += item.len() + HASH_BYTES;
            matching.push(member_of(item));
        }
    }
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.array(matching.len());
    matching.iter().for_each(|member| out.bulk(member));
}
