//! A read-only view of a stream: its entries by id, its groups, and their pending entries.

use super::items::{
    self, ENTRIES, Group, Head, Item, NAMES, NO_CONSUMER, OWNED, PENDING, Pending, Producers, Text, region,
};
use crate::codec::{Malformed, Reader};
use crate::command::{ID_TEXT_BYTES, StreamId};
use crate::number::INTEGER_TEXT_BYTES_MAX;
use crate::reply::ReplyBuffer;
use crate::table::tree::Items;
use std::ops::Range;

/// A read-only view of a stream. A missing stream looks like one without entries and groups.
#[derive(Clone, Copy)]
pub(in crate::table) struct Stream<'a> {
    pub(in crate::table) items: Items<'a>,
}

/// A consumer of a group.
pub(in crate::table) struct Consumer<'a> {
    pub(in crate::table) number: u64,
    pub(in crate::table) name: &'a [u8],
    pub(in crate::table) seen_ms: u64,
}

impl<'a> Stream<'a> {
    pub(in crate::table) fn head(self) -> Head {
        match self.items.get(0).map(Item::trusted) {
            Some(Item::Head(head)) => head,
            Some(item) => unreachable!("a stream begins with {item:?}"),
            None => Head::default(),
        }
    }

    /// The rank of the first entry among all items.
    pub(in crate::table) fn first(self) -> usize {
        self.items.seek(&[ENTRIES])
    }

    /// The number of entries.
    pub(in crate::table) fn len(self) -> usize {
        self.items.len() - self.first()
    }

    /// The ranks, among all items, of the entries from one id to another.
    pub(in crate::table) fn ranks(self, start: StreamId, end: StreamId) -> Range<usize> {
        let from = self.items.seek(&items::entry_key(start));
        let to = match end.next() {
            Some(next) => self.items.seek(&items::entry_key(next)),
            None => self.items.len(),
        };
        from..to.max(from)
    }

    /// The item of an entry.
    pub(in crate::table) fn find(self, id: StreamId) -> Option<&'a [u8]> {
        self.find_key(&items::entry_key(id)).1
    }

    /// The rank of the item with this key, or the rank where it belongs, and the item.
    pub(in crate::table) fn find_key(self, key: &[u8]) -> (usize, Option<&'a [u8]>) {
        let (rank, mut items) = self.items.iter_from_key(key);
        (rank, items.next().filter(|item| item.starts_with(key)))
    }

    /// The id of the first or the last entry; 0-0 if there are none.
    pub(in crate::table) fn edge(self, is_last: bool) -> StreamId {
        let rank = if is_last { self.items.len().checked_sub(1) } else { Some(self.first()) };
        match rank.and_then(|rank| self.items.get(rank)).map(Item::trusted) {
            Some(Item::Entry { id, .. }) => id,
            _ => StreamId::MIN,
        }
    }

    /// The ranks of the items whose keys begin with this tag and these numbers, at least one of them.
    pub(in crate::table) fn region(self, tag: u8, numbers: &[u64]) -> Range<usize> {
        let from = self.items.seek(&region(tag, numbers));
        let to = match numbers {
            [before @ .., last] => {
                let next: Vec<u64> = before.iter().copied().chain([last + 1]).collect();
                self.items.seek(&region(tag, &next))
            }
            [] => self.items.seek(&[tag + 1]),
        };
        from..to
    }

    /// The lists of names that are kept once, in the order of their numbers.
    pub(in crate::table) fn names(self) -> impl Iterator<Item = (u8, &'a [u8])> {
        self.items.iter_from(1).map_while(|item| match item {
            [NAMES, number, names @ ..] => Some((*number, names)),
            _ => None,
        })
    }

    pub(in crate::table) fn group(self, name: &[u8]) -> Option<Group> {
        match self.find_key(&Group::key(name)).1.map(Item::trusted) {
            Some(Item::Group { group, .. }) => Some(group),
            _ => None,
        }
    }

    /// All groups with their names, in the order of the names.
    pub(in crate::table) fn groups(self) -> impl Iterator<Item = (Vec<u8>, Group)> {
        let ranks = self.region(items::GROUP, &[]);
        self.items.iter_from(ranks.start).take(ranks.len()).filter_map(|item| match Item::trusted(item) {
            Item::Group { name, group } => Some((name, group)),
            _ => None,
        })
    }

    /// The number of a consumer.
    pub(in crate::table) fn consumer(self, group: u64, name: &[u8]) -> Option<u64> {
        match self.find_key(&items::named_key(group, name)).1.map(Item::trusted) {
            Some(Item::Named { consumer, .. }) => Some(consumer),
            _ => None,
        }
    }

    /// The name of a consumer, and when it was last seen.
    pub(in crate::table) fn consumer_of(self, group: u64, number: u64) -> Consumer<'a> {
        match self.find_key(&region(items::CONSUMER, &[group, number])).1.map(Item::trusted) {
            Some(Item::Consumer { seen_ms, name, .. }) => Consumer { number, name, seen_ms },
            _ => unreachable!("what is pending belongs to a consumer"),
        }
    }

    /// The name of the consumer for which an entry is pending; empty if no consumer has it.
    pub(in crate::table) fn owner_of(self, group: u64, pending: &Pending) -> &'a [u8] {
        if pending.consumer == NO_CONSUMER { &[] } else { self.consumer_of(group, pending.consumer).name }
    }

    /// When a consumer last got an entry, if it ever did.
    pub(in crate::table) fn active_ms(self, group: u64, consumer: &Consumer<'_>) -> Option<u64> {
        match self.find_key(&region(items::ACTIVE, &[group, consumer.number])).1.map(Item::trusted) {
            Some(Item::Active { active_ms, .. }) => active_ms,
            _ => Some(consumer.seen_ms),
        }
    }

    /// What is remembered of what producers have sent.
    pub(in crate::table) fn producers(self) -> Producers {
        match self.find_key(&[items::PRODUCERS]).1.map(Item::trusted) {
            Some(Item::Producers(producers)) => producers,
            _ => Producers::default(),
        }
    }

    /// The number of a producer.
    pub(in crate::table) fn producer(self, name: &[u8]) -> Option<u64> {
        match self.find_key(&items::producer_key(name)).1.map(Item::trusted) {
            Some(Item::Producer { producer, .. }) => Some(producer),
            _ => None,
        }
    }

    /// The id of an entry that a producer has sent under a name, if that is remembered.
    pub(in crate::table) fn sent(self, producer: u64, name: &[u8]) -> Option<StreamId> {
        match self.find_key(&items::sent_key(producer, name)).1.map(Item::trusted) {
            Some(Item::Sent { id, .. }) => Some(id),
            _ => None,
        }
    }

    /// What was sent first of what is remembered: its id and its producer.
    pub(in crate::table) fn sent_first(self) -> Option<(StreamId, u64)> {
        let rank = self.items.seek(&[items::SENT_BY_ALL]);
        match self.items.get(rank).map(Item::trusted) {
            Some(Item::SentByAll { id, producer }) => Some((id, producer)),
            _ => None,
        }
    }

    /// All consumers of a group, in the order of their names.
    pub(in crate::table) fn consumers(self, group: u64) -> impl Iterator<Item = Consumer<'a>> {
        let ranks = self.region(items::NAMED, &[group]);
        self.items.iter_from(ranks.start).take(ranks.len()).filter_map(move |item| {
            match Item::trusted(item) {
                Item::Named { consumer, .. } => Some(self.consumer_of(group, consumer)),
                _ => None,
            }
        })
    }

    /// The number of pending entries of a group, or of one consumer.
    pub(in crate::table) fn pending_count(self, group: u64, consumer: Option<u64>) -> usize {
        match consumer {
            Some(consumer) => self.region(OWNED, &[group, consumer]).len(),
            None => self.region(PENDING, &[group]).len(),
        }
    }

    pub(in crate::table) fn pending(self, group: u64, id: StreamId) -> Option<Pending> {
        match self.find_key(&Pending::key(group, id)).1.map(Item::trusted) {
            Some(Item::Pending { pending, .. }) => Some(pending),
            _ => None,
        }
    }

    /// The pending entries of a group from an id on.
    pub(in crate::table) fn pending_from(
        self,
        group: u64,
        start: StreamId,
    ) -> impl Iterator<Item = (StreamId, Pending)> {
        let from = self.items.seek(&Pending::key(group, start));
        self.items.iter_from(from).map_while(move |item| match Item::trusted(item) {
            Item::Pending { group: of, id, pending } if of == group => Some((id, pending)),
            _ => None,
        })
    }

    /// The ids of a consumer's pending entries, from an id on.
    pub(in crate::table) fn owned_from(
        self,
        group: u64,
        consumer: u64,
        start: StreamId,
    ) -> impl Iterator<Item = StreamId> {
        let from = self.items.seek(&Pending::owned_key(group, consumer, start));
        self.items.iter_from(from).map_while(move |item| match Item::trusted(item) {
            Item::Owned { group: of, consumer: whose, id } if (of, whose) == (group, consumer) => Some(id),
            _ => None,
        })
    }

    /// Whether it is remembered which producer has sent an entry.
    pub(in crate::table) fn is_sent(self, id: StreamId) -> bool {
        self.find_key(&super::items::sent_by_all_key(id)).1.is_some()
    }

    /// The last id whose entry was removed from between others, if any was. Up to it, the number of entries does not follow
    /// from ids.
    pub(in crate::table) fn gaps_up_to(self) -> Option<StreamId> {
        Some(self.head().removed).filter(|removed| self.len() > 0 && *removed != StreamId::MIN)
    }

    /// The number of entries ever added up to an id, if that is known.
    pub(in crate::table) fn added_up_to(self, id: StreamId) -> Option<u64> {
        let Head { last, added, removed, .. } = self.head();
        let length = self.len() as u64;
        if added == 0 {
            return Some(0);
        }
        if id == last || length == 0 && id < last {
            return Some(added);
        }
        let first = self.edge(false);
        if id > last || removed != StreamId::MIN && removed >= first || id > first {
            return None;
        }
        Some(added.saturating_sub(length) + u64::from(id == first))
    }

    /// The number of entries that a group has not read yet, if that is known. With `knows_ends` it is known,
    /// too, of an empty stream, and where the group is before the first entry and so is all that was removed.
    pub(in crate::table) fn lag(self, group: Group, knows_ends: bool) -> Option<u64> {
        let Head { added, removed, .. } = self.head();
        if added == 0 {
            return Some(0);
        }
        let first = self.edge(false);
        if knows_ends && (self.len() == 0 || group.last < first && removed < first) {
            return Some(self.len() as u64);
        }
        let known = group.read.filter(|_| self.gaps_up_to().is_none_or(|last| group.last > last));
        known.or_else(|| self.added_up_to(group.last)).map(|read| added.wrapping_sub(read))
    }

    /// Writes entries of this stream into replies.
    pub(in crate::table) fn writer(self) -> EntryWriter<'a> {
        EntryWriter { stream: self, number: 0, names: &[], count: 0 }
    }
}

/// The id of an entry.
pub(in crate::table) fn id_of(item: &[u8]) -> StreamId {
    match Item::trusted(item) {
        Item::Entry { id, .. } => id,
        _ => unreachable!("behind the first entry there are only entries"),
    }
}

/// Appends an id.
pub(in crate::table) fn write_id(id: StreamId, out: &mut ReplyBuffer) {
    out.bulk(id.write(&mut [0; ID_TEXT_BYTES]));
}

/// Writes entries into replies. It remembers the names of the last entry's fields.
pub(in crate::table) struct EntryWriter<'a> {
    stream: Stream<'a>,
    number: u8,
    names: &'a [u8],
    count: usize,
}

impl<'a> EntryWriter<'a> {
    /// Appends an entry: an array of its id and an array of its fields with their values. Returns its id.
    pub(in crate::table) fn write(&mut self, item: &'a [u8], out: &mut ReplyBuffer) -> StreamId {
        out.array(2);
        self.write_parts(item, out)
    }

    /// Appends an entry without its array.
    pub(in crate::table) fn write_parts(&mut self, item: &'a [u8], out: &mut ReplyBuffer) -> StreamId {
        let Item::Entry { id, names, values } = Item::trusted(item) else {
            unreachable!("behind the first entry there are only entries")
        };
        write_id(id, out);
        self.write_fields(names, values, out).unwrap_or_else(|Malformed(why)| {
            unreachable!("an entry of a stream is not what was stored: {why}")
        });
        id
    }

    fn write_fields(&mut self, number: u8, values: &[u8], out: &mut ReplyBuffer) -> Result<(), Malformed> {
        let write = |text: Text<'_>, out: &mut ReplyBuffer| {
            out.bulk(text.bytes(&mut [0; INTEGER_TEXT_BYTES_MAX]));
        };
        let mut values = Reader::new(values);
        if number == 0 {
            out.array(Text::count(values.rest())?);
            while !values.is_empty() {
                write(Text::take(&mut values)?, out);
            }
            return Ok(());
        }
        if number != self.number {
            self.names = match self.stream.items.get(number.into()) {
                Some([NAMES, _, names @ ..]) => names,
                _ => return Err(Malformed("names that are missing")),
            };
            (self.number, self.count) = (number, Text::count(self.names)?);
        }
        out.array(2 * self.count);
        let mut names = Reader::new(self.names);
        while !names.is_empty() {
            write(Text::take(&mut names)?, out);
            write(Text::take(&mut values)?, out);
        }
        Ok(())
    }
}
