//! Commands on lists: `LPUSH`, `LRANGE` and similar ones. For the representation see [`super::collections`].

use super::changes::ChangeClass;
use super::found::Found;
use super::kind::Kind;
use super::refusals::{TOO_MANY_POPPED, WRONG_KIND, refuse_large_reply};
use super::transactions::CUT_WRITE;
use super::tree::Items;
use super::{Record, Table};
use crate::command::{List, ListCommand, popped, pushed};
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};

/// Converts a rank that may count from the end; `None` if there is no such element.
fn rank_in(length: usize, rank: i64) -> Option<usize> {
    let rank = if rank < 0 { rank.checked_add(length as i64)? } else { rank };
    usize::try_from(rank).ok().filter(|rank| *rank < length)
}

/// The ranks from `start` to `end` inclusive, by Redis's rules for negative ones and those out of range.
pub(super) fn ranks(length: usize, start: i64, end: i64) -> std::ops::Range<usize> {
    let length = length as i64;
    let position = |rank: i64| if rank < 0 { (rank + length).max(0) } else { rank.min(length) };
    let end = if end < 0 { end + length } else { end.min(length - 1) };
    let start = position(start);
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// Appends an array of items, whose number is given, unless it is too large for a reply.
pub(super) fn write_items(
    count: usize,
    items: impl Iterator<Item = impl AsRef<[u8]>>,
    out: &mut ReplyBuffer,
) {
    let start = out.len();
    out.array(count);
    for item in items.take(count) {
        out.bulk(item.as_ref());
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

impl Table {
    pub(super) fn read_list(
        &mut self,
        command: &ListCommand<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        use ListCommand::*;
        let (Length { key } | Index { key, .. } | Range { key, .. } | Position { key, .. }) = *command else {
            return 0; // A write: see `change_list`.
        };
        let Ok((items, version)) = self.items_of(key, Kind::List, now) else {
            out.error(WRONG_KIND);
            return 0;
        };
        match *command {
            Index { rank, .. } => match rank_in(items.len(), rank).and_then(|rank| items.get(rank)) {
                Some(element) => out.bulk(element),
                None => out.null(),
            },
            Range { start, end, .. } => {
                let ranks = ranks(items.len(), start, end);
                write_items(ranks.len(), items.iter_from(ranks.start), out);
            }
            Position { element, skip, count, compared_max, .. } => {
                write_positions(items, element, skip, count, compared_max, out);
            }
            _ => out.integer(items.len() as i64),
        }
        version
    }

    pub(super) fn change_list(&mut self, command: &ListCommand<'_>, record: Record, out: &mut ReplyBuffer) {
        use ListCommand::*;
        if let Move { from, to, from_front, to_front } = *command {
            return self.move_element((from, from_front), (to, to_front), record, out);
        }
        if let MultiPop { keys, .. } | PopAny { keys, .. } = *command {
            return self.pop_first(keys, command, record, out);
        }
        let mut key = &b""[..];
        command.for_each_key(|it| key = it);
        let Ok(found) = self.find_kind(key, Kind::List, record) else { return out.error(WRONG_KIND) };
        let length = self.items_at(found).len();
        match *command {
            Push { if_present: true, .. } if length == 0 => out.integer(0),
            Push { elements, at_front, .. } => {
                self.edit_collection(found, Kind::List, record, |list, _| {
                    for element in elements.iter() {
                        list.insert(if at_front { 0 } else { list.len() }, element);
                    }
                });
                out.integer((length + elements.len()) as i64);
            }
            Pop { count: None, .. } if length == 0 => out.null(),
            Pop { count: Some(_), .. } if length == 0 => out.push(Reply::NullArray),
            Pop { at_front, count: None, .. } => self.pop_one(found, at_front, record, out),
            Pop { at_front, count: Some(count), .. } => self.pop_many(found, at_front, count, record, out),
            Set { .. } if length == 0 => out.error("ERR no such key"),
            Set { rank, element, .. } => match rank_in(length, rank) {
                Some(rank) => {
                    self.edit_collection(found, Kind::List, record, |list, discarded| {
                        list.remove(rank, rank + 1, discarded);
                        list.insert(rank, element);
                    });
                    out.ok();
                }
                None => out.error("ERR index out of range"),
            },
            Insert { .. } if length == 0 => out.integer(0),
            Insert { is_before, pivot, element, .. } => {
                let pivot = self.items_at(found).iter_from(0).position(|item| item == pivot);
                match pivot {
                    Some(rank) => {
                        let rank = if is_before { rank } else { rank + 1 };
                        self.edit_collection(found, Kind::List, record, |list, _| list.insert(rank, element));
                        out.integer(length as i64 + 1);
                    }
                    None => out.integer(-1),
                }
            }
            Remove { count, element, .. } => self.remove_elements(found, count, element, record, out),
            Trim { start, end, .. } => {
                let kept = ranks(length, start, end);
                self.edit_collection(found, Kind::List, record, |list, discarded| {
                    list.remove(kept.end, length, discarded);
                    list.remove(0, kept.start, discarded);
                });
                out.ok();
            }
            // Handled above, or in `read_list`.
            Move { .. } | MultiPop { .. } | PopAny { .. } => {}
            Length { .. } | Index { .. } | Range { .. } | Position { .. } => {}
        }
    }

    fn pop_one(&mut self, found: Found<'_>, at_front: bool, record: Record, out: &mut ReplyBuffer) {
        let items = self.items_at(found);
        let rank = if at_front { 0 } else { items.len() - 1 };
        match items.get(rank) {
            Some(_) if self.is_quiet => out.error(CUT_WRITE),
            Some(element) => out.bulk(element),
            None => unreachable!("a list has an element of this rank"),
        }
        self.edit_collection(found, Kind::List, record, |list, discarded| {
            list.remove(rank, rank + 1, discarded);
        });
    }

    /// Removes up to `count` elements and appends an array of them.
    fn pop_many(
        &mut self,
        found: Found<'_>,
        at_front: bool,
        count: u64,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let items = self.items_at(found);
        let length = items.len();
        let count = usize::try_from(count).map_or(length, |count| count.min(length));
        let start = out.len();
        match (self.is_quiet, at_front) {
            (true, _) => out.error(CUT_WRITE),
            (false, true) => write_items(count, items.iter_from(0), out),
            (false, false) => write_items(count, items.iter_back(length), out),
        }
        if !self.is_quiet && ReplyBuffer::is_error(&out.as_bytes()[start..]) {
            // The limit on a reply may differ between nodes, so the elements are removed in any case.
            out.truncate(start);
            out.error(TOO_MANY_POPPED);
        }
        let (from, to) = if at_front { (0, count) } else { (length - count, length) };
        self.edit_collection(found, Kind::List, record, |list, discarded| list.remove(from, to, discarded));
    }

    fn pop_first(
        &mut self,
        keys: List<'_>,
        command: &ListCommand<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        for key in keys.iter() {
            let Ok(found) = self.find_kind(key, Kind::List, record) else { return out.error(WRONG_KIND) };
            if found.place.is_some() {
                out.array(2);
                out.bulk(key);
                return match *command {
                    ListCommand::MultiPop { at_front, count, .. } => {
                        self.pop_many(found, at_front, count, record, out);
                    }
                    ListCommand::PopAny { at_front, .. } => self.pop_one(found, at_front, record, out),
                    _ => unreachable!("only these take from any of several lists"),
                };
            }
        }
        out.push(Reply::NullArray);
    }

    fn move_element(
        &mut self,
        (from, from_front): (&[u8], bool),
        (to, to_front): (&[u8], bool),
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let Ok(source) = self.find_kind(from, Kind::List, record) else { return out.error(WRONG_KIND) };
        if source.place.is_none() {
            return out.null();
        }
        let Ok(target) = self.find_kind(to, Kind::List, record) else { return out.error(WRONG_KIND) };
        // Find the source again: the target may have expired and been removed, which invalidates the source's place.
        let Ok(source) = self.find_kind(from, Kind::List, record) else { return out.error(WRONG_KIND) };
        let items = self.items_at(source);
        let rank = if from_front { 0 } else { items.len() - 1 };
        let Some(element) = items.get(rank) else {
            unreachable!("a list has an element of this rank");
        };
        if self.is_quiet {
            out.error(CUT_WRITE);
        } else {
            out.bulk(element);
        }
        let element = element.to_vec();
        self.changes.begin_event(Some((ChangeClass::List, pushed(to_front))));
        if from == to {
            self.edit_collection(source, Kind::List, record, |list, discarded| {
                list.remove(rank, rank + 1, discarded);
                list.insert(if to_front { 0 } else { list.len() }, &element);
            });
            return self.changes.note_as(from, ChangeClass::List, popped(from_front));
        }
        // Change the target first: a change of the source may move its place in the index.
        self.edit_collection(target, Kind::List, record, |list, _| {
            list.insert(if to_front { 0 } else { list.len() }, &element);
        });
        let Ok(source) = self.find_kind(from, Kind::List, record) else { return };
        self.changes.begin_event(Some((ChangeClass::List, popped(from_front))));
        self.edit_collection(source, Kind::List, record, |list, discarded| {
            list.remove(rank, rank + 1, discarded);
        });
    }

    /// Puts elements back that were removed one by one at an end of a list. Returns false if the key is now of another
    /// kind.
    pub(super) fn give_back_elements(
        &mut self,
        key: &[u8],
        elements: &[&[u8]],
        at_front: bool,
        record: Record,
    ) -> bool {
        let Ok(found) = self.find_kind(key, Kind::List, record) else { return false };
        self.edit_collection(found, Kind::List, record, |list, _| {
            for element in elements.iter().rev() {
                list.insert(if at_front { 0 } else { list.len() }, element);
            }
        });
        self.cover_elements(key, elements, at_front);
        true
    }

    fn remove_elements(
        &mut self,
        found: Found<'_>,
        count: i64,
        element: &[u8],
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let items = self.items_at(found);
        let length = items.len();
        let most =
            if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
        let equal = |(rank, item): (usize, &[u8])| (item == element).then_some(rank);
        let mut ranks: Vec<usize> = if count < 0 {
            items
                .iter_back(length)
                .enumerate()
                .filter_map(equal)
                .map(|back| length - 1 - back)
                .take(most)
                .collect()
        } else {
            items.iter_from(0).enumerate().filter_map(equal).take(most).collect()
        };
        out.integer(ranks.len() as i64);
        if ranks.is_empty() {
            return;
        }
        // From the last to the first, so that ranks in front stay valid.
        ranks.sort_unstable();
        self.edit_collection(found, Kind::List, record, |list, discarded| {
            for rank in ranks.iter().rev() {
                list.remove(*rank, rank + 1, discarded);
            }
        });
    }
}

fn write_positions(
    items: Items<'_>,
    element: &[u8],
    skip: i64,
    count: Option<u64>,
    compared_max: u64,
    out: &mut ReplyBuffer,
) {
    let most =
        |number: u64| if number == 0 { usize::MAX } else { usize::try_from(number).unwrap_or(usize::MAX) };
    let (compared, length) = (most(compared_max), items.len());
    let wanted = count.map_or(1, most);
    let before = usize::try_from(skip.unsigned_abs().saturating_sub(1)).unwrap_or(usize::MAX);
    let equal = |(rank, item): (usize, &[u8])| (item == element).then_some(rank);
    let found: Vec<usize> = if skip < 0 {
        let found = items.iter_back(length).take(compared).enumerate().filter_map(equal);
        found.skip(before).take(wanted).map(|back| length - 1 - back).collect()
    } else {
        items.iter_from(0).take(compared).enumerate().filter_map(equal).skip(before).take(wanted).collect()
    };
    match (count, found.first()) {
        (Some(_), _) => {
            out.array(found.len());
            found.iter().for_each(|rank| out.integer(*rank as i64));
        }
        (None, Some(rank)) => out.integer(*rank as i64),
        (None, None) => out.null(),
    }
}
