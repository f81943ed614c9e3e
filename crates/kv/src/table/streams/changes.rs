//! Changes of a stream: the operations of which all commands on streams consist.

use crate::codec::Writer;
use crate::command::{References, StreamId, Trim};
use crate::table::collections::Collection;
use crate::table::stream_items::items::{
    self, Group, Head, Item, NAMES, NAMES_KEPT, NAMES_KEPT_BYTES, NO_CONSUMER, Pending, Producers, Text,
};
use crate::table::stream_items::view::{self, Stream};
use crate::table::tree::Discarded;
use std::ops::Range;

/// A stream that is being changed.
pub(super) struct Changing<'c> {
    pub(super) collection: &'c mut Collection,
    pub(super) discarded: &'c mut Discarded,
}

impl Changing<'_> {
    pub(super) fn view(&self) -> Stream<'_> {
        Stream { items: self.collection.items() }
    }

    /// Changes the head, and creates the stream if it does not exist.
    pub(super) fn change_head(&mut self, change: impl FnOnce(&mut Head)) -> Head {
        let mut head = self.view().head();
        change(&mut head);
        match self.collection.len() {
            0 => self.collection.insert(0, &head.item()),
            _ => self.collection.replace(0, &head.item(), self.discarded),
        }
        head
    }

    /// Stores an item in place of the one with the same key, if there is one.
    fn put(&mut self, key: &[u8], item: &[u8]) {
        debug_assert!(item.starts_with(key));
        let (rank, is_there) = {
            let (rank, found) = self.view().find_key(key);
            (rank, found.is_some())
        };
        match is_there {
            true => self.collection.replace(rank, item, self.discarded),
            false => self.collection.insert(rank, item),
        }
    }

    /// Removes the item with a key; returns whether it existed.
    fn remove(&mut self, key: &[u8]) -> bool {
        let (rank, is_there) = {
            let (rank, found) = self.view().find_key(key);
            (rank, found.is_some())
        };
        if is_there {
            self.collection.remove(rank, rank + 1, self.discarded);
        }
        is_there
    }

    fn remove_ranks(&mut self, ranks: Range<usize>) {
        self.collection.remove(ranks.start, ranks.end, self.discarded);
    }

    /// Adds an entry whose id is greater than all before.
    pub(super) fn append<'f>(
        &mut self,
        id: StreamId,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) {
        let mut names = Vec::new();
        fields.clone().for_each(|(name, _)| Text::put(name, &mut names));
        let number = self.number_of_names(&names);
        let mut item = items::entry_key(id);
        item.put_u8(number);
        for (name, value) in fields {
            if number == 0 {
                Text::put(name, &mut item);
            }
            Text::put(value, &mut item);
        }
        self.change_head(|head| {
            head.last = id;
            head.added = head.added.saturating_add(1);
        });
        self.collection.insert(self.collection.len(), &item);
    }

    /// The number of a list of names, which is stored from now on; 0 if there are too many to store.
    fn number_of_names(&mut self, names: &[u8]) -> u8 {
        let mut last = 0;
        for (number, held) in self.view().names() {
            if held == names {
                return number;
            }
            last = number;
        }
        if last >= NAMES_KEPT || names.len() > NAMES_KEPT_BYTES {
            return 0;
        }
        if self.collection.len() == 0 {
            self.change_head(|_| {});
        }
        let item = [&[NAMES, last + 1], names].concat();
        self.collection.insert(usize::from(last) + 1, &item);
        last + 1
    }

    /// Removes entries; returns how many existed.
    pub(super) fn delete(&mut self, ids: impl Iterator<Item = StreamId>) -> usize {
        let (mut count, mut greatest) = (0, StreamId::MIN);
        for id in ids {
            if self.remove(&items::entry_key(id)) {
                count += 1;
                greatest = greatest.max(id);
            }
        }
        if count > 0 {
            self.change_head(|head| head.removed = head.removed.max(greatest));
            self.forget_names();
        }
        count
    }

    /// Removes entries that may be; returns what became of each.
    pub(super) fn delete_with(
        &mut self,
        ids: impl Iterator<Item = StreamId>,
        references: References,
    ) -> Vec<Removal> {
        let groups = self.groups_for(references);
        let removals: Vec<Removal> = ids.map(|id| self.delete_one(id, references, &groups)).collect();
        self.forget_names();
        removals
    }

    /// Ends the pending state of entries in a group, and removes them if they may be.
    pub(super) fn acknowledge_and_delete(
        &mut self,
        group: u64,
        ids: impl Iterator<Item = StreamId>,
        references: References,
    ) -> Vec<Removal> {
        let groups = self.groups_for(references);
        let one = |id| match self.acknowledge(group, id) {
            false => Removal::Missing,
            // Its reference may have outlived it.
            true => match self.delete_one(id, references, &groups) {
                Removal::Missing => Removal::Done,
                removal => removal,
            },
        };
        let removals: Vec<Removal> = ids.map(one).collect();
        self.forget_names();
        removals
    }

    /// The groups whose references to entries matter.
    fn groups_for(&self, references: References) -> Vec<Group> {
        match references {
            References::Keep => Vec::new(),
            _ => self.view().groups().map(|(_, group)| group).collect(),
        }
    }

    fn delete_one(&mut self, id: StreamId, references: References, groups: &[Group]) -> Removal {
        let is_there = self.view().find(id).is_some();
        match references {
            References::Respect if is_there && self.is_referenced(id, groups) => return Removal::Referenced,
            References::Remove => self.remove_references(id, groups),
            _ => {}
        }
        if !is_there {
            return Removal::Missing;
        }
        self.remove(&items::entry_key(id));
        self.change_head(|head| head.removed = head.removed.max(id));
        Removal::Done
    }

    /// Whether a group has not read and acknowledged an entry.
    fn is_referenced(&self, id: StreamId, groups: &[Group]) -> bool {
        groups.iter().any(|group| id > group.last || self.view().pending(group.number, id).is_some())
    }

    fn remove_references(&mut self, id: StreamId, groups: &[Group]) {
        for group in groups {
            self.acknowledge(group.number, id);
        }
    }

    /// Removes entries from the front; returns how many were removed, and their ids unless references stay.
    pub(super) fn trim(&mut self, trim: Trim, threshold: Threshold) -> (usize, Vec<StreamId>) {
        let view = self.view();
        let (first, length) = (view.first(), view.len());
        let beyond = match threshold {
            Threshold::Length(most) => length - length.min(usize::try_from(most).unwrap_or(usize::MAX)),
            Threshold::Id(least) => view.ranks(StreamId::MIN, least).len(),
        };
        let count =
            if trim.is_approximate { whole_nodes(trim, beyond, length, view.head().added) } else { beyond };
        if trim.references != References::Keep {
            return self.trim_with(trim.references, first, count);
        }
        if count > 0 {
            self.remove_ranks(first..first + count);
            self.forget_names();
        }
        (count, Vec::new())
    }

    /// Removes some of the first entries, or these and the references to them.
    fn trim_with(&mut self, references: References, first: usize, count: usize) -> (usize, Vec<StreamId>) {
        let groups = self.groups_for(references);
        let ids: Vec<StreamId> = self.view().items.iter_from(first).take(count).map(view::id_of).collect();
        let removed: Vec<StreamId> = match references {
            References::Respect => ids.into_iter().filter(|id| !self.is_referenced(*id, &groups)).collect(),
            _ => ids,
        };
        if references == References::Remove && count > 0 {
            self.remove_ranks(first..first + count);
            self.forget_names();
            removed.iter().for_each(|id| self.remove_references(*id, &groups));
        } else {
            self.delete(removed.iter().copied());
        }
        (removed.len(), removed)
    }

    /// Removes the stored lists of names, if there are no entries.
    fn forget_names(&mut self) {
        if self.view().len() == 0 {
            let ranks = self.view().region(NAMES, &[]);
            self.remove_ranks(ranks);
        }
    }

    /// A new number for a group or a consumer, never used before.
    fn next_number(&mut self) -> u64 {
        self.change_head(|head| head.numbers += 1).numbers
    }

    pub(super) fn create_group(&mut self, name: &[u8], last: StreamId, read: Option<u64>) {
        let number = self.next_number();
        self.put_group(name, Group { number, last, read });
    }

    pub(super) fn put_group(&mut self, name: &[u8], group: Group) {
        let key = Group::key(name);
        let mut item = key.clone();
        group.put(&mut item);
        self.put(&key, &item);
    }

    pub(super) fn destroy_group(&mut self, name: &[u8], group: u64) {
        self.remove(&Group::key(name));
        for tag in [items::NAMED, items::CONSUMER, items::PENDING, items::OWNED, items::ACTIVE] {
            let ranks = self.view().region(tag, &[group]);
            self.remove_ranks(ranks);
        }
    }

    /// The number of a consumer that has got something. Creates it if it does not exist, and records that it was seen now.
    pub(super) fn see_consumer(&mut self, group: u64, name: &[u8], now: u64) -> u64 {
        let number = self.put_consumer(group, name, now);
        self.remove(&items::region(items::ACTIVE, &[group, number]));
        number
    }

    /// Records that a consumer was seen now, and has got nothing. Creates it if it does not exist.
    pub(super) fn see_attempt(&mut self, group: u64, name: &[u8], now: u64) {
        let before = self.view().consumer(group, name).map(|number| self.view().consumer_of(group, number));
        if before.as_ref().is_some_and(|consumer| consumer.seen_ms == now) {
            return;
        }
        let active_ms = before.and_then(|consumer| self.view().active_ms(group, &consumer));
        let number = self.put_consumer(group, name, now);
        let key = items::region(items::ACTIVE, &[group, number]);
        let mut item = key.clone();
        item.put_u64(active_ms.unwrap_or(u64::MAX));
        self.put(&key, &item);
    }

    fn put_consumer(&mut self, group: u64, name: &[u8], now: u64) -> u64 {
        let number = self.view().consumer(group, name).unwrap_or_else(|| {
            let number = self.next_number();
            let key = items::named_key(group, name);
            let mut item = key.clone();
            items::put_number(number, &mut item);
            self.put(&key, &item);
            number
        });
        let key = items::region(items::CONSUMER, &[group, number]);
        let mut item = key.clone();
        item.put_u64(now);
        item.extend_from_slice(name);
        self.put(&key, &item);
        number
    }

    /// Removes a consumer and its pending entries; returns how many those were.
    pub(super) fn delete_consumer(&mut self, group: u64, name: &[u8]) -> usize {
        let Some(number) = self.view().consumer(group, name) else { return 0 };
        let ids: Vec<StreamId> = self.view().owned_from(group, number, StreamId::MIN).collect();
        for id in &ids {
            self.remove(&Pending::key(group, *id));
        }
        let owned = self.view().region(items::OWNED, &[group, number]);
        self.remove_ranks(owned);
        self.remove(&items::named_key(group, name));
        self.remove(&items::region(items::CONSUMER, &[group, number]));
        self.remove(&items::region(items::ACTIVE, &[group, number]));
        ids.len()
    }

    /// Makes a pending entry that of no consumer, or, if `is_forced`, one that is not pending. `change` returns its number of
    /// deliveries. Returns whether that was done.
    pub(super) fn release(
        &mut self,
        group: u64,
        id: StreamId,
        is_forced: bool,
        change: impl FnOnce(u64) -> u64,
    ) -> bool {
        let before = self.view().pending(group, id);
        if before.is_none() && !(is_forced && self.view().find(id).is_some()) {
            return false;
        }
        let deliveries = change(before.map_or(0, |before| before.deliveries));
        self.set_pending(group, id, Pending { consumer: NO_CONSUMER, delivered_ms: 0, deliveries });
        true
    }

    /// Makes an entry pending, or changes its pending state.
    pub(super) fn set_pending(&mut self, group: u64, id: StreamId, pending: Pending) {
        let key = Pending::key(group, id);
        let mut item = key.clone();
        pending.put(&mut item);
        let (rank, before) = {
            let (rank, found) = self.view().find_key(&key);
            (rank, found.map(Item::trusted).map(|item| item.owner()))
        };
        match before {
            Some(_) => self.collection.replace(rank, &item, self.discarded),
            None => self.collection.insert(rank, &item),
        }
        if before == Some(pending.consumer) {
            return;
        }
        if let Some(before) = before {
            self.remove(&Pending::owned_key(group, before, id));
        }
        let key = Pending::owned_key(group, pending.consumer, id);
        self.put(&key, &key);
    }

    /// Ends an entry's pending state; returns whether it was pending.
    pub(super) fn acknowledge(&mut self, group: u64, id: StreamId) -> bool {
        let Some(pending) = self.view().pending(group, id) else { return false };
        self.remove(&Pending::key(group, id));
        self.remove(&Pending::owned_key(group, pending.consumer, id));
        true
    }
}

impl Changing<'_> {
    pub(super) fn put_producers(&mut self, producers: Producers) {
        self.put(&[items::PRODUCERS], &producers.item());
    }

    /// Remembers that a producer has sent an entry under a name. Forgets some of what is too old, or too much.
    pub(super) fn remember(&mut self, producer: &[u8], name: &[u8], id: StreamId, now: u64) {
        /// More than are added, so that what is too old gets less.
        const FORGOTTEN_AT_ONCE: usize = 8;
        let mut producers = self.view().producers();
        for _ in 0..FORGOTTEN_AT_ONCE {
            match self.view().sent_first() {
                Some((first, of)) if is_forgotten(first, producers, now) => self.forget(of, first),
                _ => break,
            }
        }
        let known = self.view().producer(producer);
        if let Some(number) = known {
            if let Some(before) = self.view().sent(number, name) {
                self.forget(number, before);
            }
            let sent = self.view().region(items::SENT_IN_ORDER, &[number]);
            if sent.len() as u64 >= producers.most
                && let Some(Item::SentInOrder { id, .. }) =
                    self.view().items.get(sent.start).map(Item::trusted)
            {
                self.forget(number, id);
            }
        }
        // It is forgotten with the last of what it has sent.
        let number = self.view().producer(producer).unwrap_or_else(|| {
            let number = self.next_number();
            let mut key = items::producer_key(producer);
            let length = key.len();
            items::put_number(number, &mut key);
            self.put(&key[..length], &key);
            let key = items::region(items::NUMBERED, &[number]);
            self.put(&key, &[&key[..], producer].concat());
            number
        });
        let mut item = items::sent_key(number, name);
        let length = item.len();
        items::put_id(id, &mut item);
        self.put(&item[..length], &item);
        let key = items::sent_in_order_key(number, id);
        self.put(&key, &[&key[..], name].concat());
        let mut item = items::sent_by_all_key(id);
        let length = item.len();
        items::put_number(number, &mut item);
        self.put(&item[..length], &item);
        producers.added = producers.added.saturating_add(1);
        self.put_producers(producers);
    }

    /// Forgets that a producer has sent an entry, and the producer if that was the last.
    fn forget(&mut self, producer: u64, id: StreamId) {
        let key = items::sent_in_order_key(producer, id);
        let sent = match self.view().find_key(&key).1.map(Item::trusted) {
            Some(Item::SentInOrder { name, .. }) => items::sent_key(producer, name),
            _ => unreachable!("what was sent is there in three orders"),
        };
        self.remove(&sent);
        self.remove(&key);
        self.remove(&items::sent_by_all_key(id));
        if self.view().region(items::SENT_IN_ORDER, &[producer]).is_empty() {
            let key = items::region(items::NUMBERED, &[producer]);
            let named = match self.view().find_key(&key).1.map(Item::trusted) {
                Some(Item::Numbered { name, .. }) => items::producer_key(name),
                _ => unreachable!("a producer is found by its name and by its number"),
            };
            self.remove(&named);
            self.remove(&key);
        }
    }

    /// Forgets what producers have sent.
    pub(super) fn forget_all(&mut self) {
        let items = &self.view().items;
        let ranks = items.seek(&[items::PRODUCER])..items.seek(&[items::SENT_BY_ALL + 1]);
        self.remove_ranks(ranks);
    }
}

/// Whether an entry was sent so long ago that its name is not remembered. Its id says when that was: `XADD` chooses it.
pub(super) fn is_forgotten(id: StreamId, producers: Producers, now: u64) -> bool {
    id.ms.saturating_add(producers.duration_s.saturating_mul(1000)) <= now
}

/// What became of an entry that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Missing,
    Done,
    /// A group has not read and acknowledged it.
    Referenced,
}

/// The limit beyond which entries are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threshold {
    /// This many entries stay.
    Length(u64),
    /// Entries up to this id are removed.
    Id(StreamId),
}

/// How many of the entries beyond a threshold are removed if only whole nodes are removed, as in Redis. An entry's node
/// follows from how many were added before it: what replicas remove must not depend on where the nodes of their trees
/// begin.
fn whole_nodes(trim: Trim, beyond: usize, length: usize, added: u64) -> usize {
    let most = match trim.limit {
        0 => beyond,
        limit => beyond.min(limit as usize),
    };
    if most == length {
        return length;
    }
    let node = u64::from(trim.node_entries.max(1));
    let in_last_node = added.wrapping_sub(length as u64).wrapping_add(most as u64) % node;
    most.saturating_sub(in_last_node as usize)
}
