//! Streams in Redis's serialization format.

use super::changes::Changing;
use super::words::pairs_of;
use crate::codec::{Malformed, Reader};
use crate::command::StreamId;
use crate::number::INTEGER_TEXT_BYTES_MAX;
use crate::table::collections::Collection;
use crate::table::kind::Kind;
use crate::table::stream_items::items::{Item, NAMES, NO_CONSUMER, Pending, Text};
use crate::table::stream_items::view::{Consumer, Stream};
use crate::table::tree::{Discarded, Items};
use rdb::write::{self, NODE_ENTRIES, StreamHead, put_fixed_id, put_group, put_length, put_text};
use rdb::{Id, Part, Words};
use std::collections::BTreeMap;

fn id_of(id: StreamId) -> Id {
    Id { ms: id.ms, seq: id.seq }
}

fn own_id(id: Id) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

/// Names and values of an entry, alternating.
fn words_of(items: Items<'_>, number: u8, values: &[u8]) -> Result<Words, Malformed> {
    let (mut words, mut values) = (Words::default(), Reader::new(values));
    let mut names = match items.get(number.into()) {
        _ if number == 0 => None,
        Some([NAMES, _, names @ ..]) => Some(Reader::new(names)),
        _ => return Err(Malformed("names that are missing")),
    };
    while !values.is_empty() {
        if let Some(names) = &mut names {
            words.push(Text::take(names)?.bytes(&mut [0; INTEGER_TEXT_BYTES_MAX]));
        }
        words.push(Text::take(&mut values)?.bytes(&mut [0; INTEGER_TEXT_BYTES_MAX]));
    }
    Ok(words)
}

/// Appends a stream.
pub(in crate::table) fn dump(items: Items<'_>, out: &mut Vec<u8>) {
    let stream = Stream { items };
    let (head, length) = (stream.head(), stream.len());
    put_length(length.div_ceil(NODE_ENTRIES) as u64, out);
    let mut node = Vec::with_capacity(NODE_ENTRIES);
    for (at, item) in (1..).zip(items.iter_from(stream.first())) {
        let Item::Entry { id, names, values } = Item::trusted(item) else {
            unreachable!("behind the first entry there are only entries")
        };
        let words = words_of(items, names, values).unwrap_or_else(|Malformed(why)| {
            unreachable!("an entry of a stream is not what was stored: {why}")
        });
        node.push((id_of(id), words));
        if node.len() == NODE_ENTRIES || at == length {
            write::put_node(&node, out);
            node.clear();
        }
    }
    let groups = stream.groups().count() as u64;
    StreamHead {
        length: length as u64,
        last: id_of(head.last),
        first: id_of(stream.edge(false)),
        removed: id_of(head.removed),
        added: head.added,
        groups,
    }
    .put(out);
    for (name, group) in stream.groups() {
        put_group(&name, id_of(group.last), group.read, out);
        put_length(stream.pending_count(group.number, None) as u64, out);
        for (id, pending) in stream.pending_from(group.number, StreamId::MIN) {
            put_fixed_id(id_of(id), out);
            out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
            put_length(pending.deliveries, out);
        }
        // The format has no place for a pending entry without a consumer: a consumer without a name gets it.
        let unowned = Consumer { number: NO_CONSUMER, name: b"", seen_ms: 0 };
        let (released, is_named) = (
            stream.pending_count(group.number, Some(NO_CONSUMER)),
            stream.consumer(group.number, b"").is_none(),
        );
        let unowned = (released > 0 && is_named).then_some(unowned);
        let count = stream.consumers(group.number).count() + usize::from(unowned.is_some());
        put_length(count as u64, out);
        for consumer in stream.consumers(group.number).chain(unowned) {
            put_text(consumer.name, out);
            out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            let released = if consumer.name.is_empty() && consumer.number != NO_CONSUMER {
                Some(NO_CONSUMER)
            } else {
                None
            };
            let numbers = [Some(consumer.number), released];
            let owned = |number| stream.pending_count(group.number, Some(number)) as u64;
            put_length(numbers.into_iter().flatten().map(owned).sum(), out);
            for number in numbers.into_iter().flatten() {
                for id in stream.owned_from(group.number, number, StreamId::MIN) {
                    put_fixed_id(id_of(id), out);
                }
            }
        }
    }
}

/// A stream that is being restored.
pub(in crate::table) struct Restoring {
    collection: Collection,
    discarded: Discarded,
    /// The last entry read.
    last: Option<Id>,
    group: u64,
    consumer: u64,
    /// The group's pending entries that have not been assigned to a consumer yet.
    pending: BTreeMap<Id, (u64, u64)>,
    has_counts: bool,
    is_whole: bool,
}

impl Default for Restoring {
    fn default() -> Restoring {
        Restoring {
            collection: Collection::new(Kind::Stream),
            discarded: Discarded::default(),
            last: None,
            group: 0,
            consumer: 0,
            pending: BTreeMap::new(),
            has_counts: true,
            is_whole: false,
        }
    }
}

impl Restoring {
    /// Takes the next part.
    ///
    /// # Errors
    /// Why such a stream cannot exist.
    pub(in crate::table) fn take(&mut self, part: Part<'_>) -> Result<(), &'static str> {
        const OWNED: &str = "an entry that is pending for a consumer and not in its group";
        let mut stream = Changing { collection: &mut self.collection, discarded: &mut self.discarded };
        match part {
            Part::Entry(id, words) => {
                if self.last.is_some_and(|last| last >= id) {
                    return Err("an entry whose id is not greater than the one before");
                }
                self.last = Some(id);
                stream.append(own_id(id), pairs_of(words.iter()));
            }
            Part::Stream { last, added, removed, has_counts } => {
                self.has_counts = has_counts;
                if self.last.is_some_and(|own| own > last) {
                    return Err("a stream whose last id is smaller than an entry's");
                }
                stream.change_head(|head| {
                    (head.last, head.added, head.removed) = (own_id(last), added, own_id(removed));
                });
                self.is_whole = true;
            }
            Part::Group { name, last, read } => {
                if !self.pending.is_empty() {
                    return Err("an entry that is pending for no consumer");
                }
                if stream.view().group(name).is_some() {
                    return Err("a group that is there twice");
                }
                let read = if self.has_counts { read } else { stream.view().added_up_to(own_id(last)) };
                stream.create_group(name, own_id(last), read);
                self.group = stream.view().group(name).map_or(0, |group| group.number);
            }
            Part::Pending { id, delivered_ms, deliveries } => {
                if self.pending.insert(id, (delivered_ms, deliveries)).is_some() {
                    return Err("an entry that is pending twice");
                }
            }
            Part::Consumer { name, seen_ms } => {
                if stream.view().consumer(self.group, name).is_some() {
                    return Err("a consumer that is there twice");
                }
                self.consumer = stream.see_consumer(self.group, name, seen_ms);
            }
            Part::Owned(id) => {
                let (delivered_ms, deliveries) = self.pending.remove(&id).ok_or(OWNED)?;
                let pending = Pending { consumer: self.consumer, delivered_ms, deliveries };
                stream.set_pending(self.group, own_id(id), pending);
            }
            _ => return Err("a part of another type"),
        }
        Ok(())
    }

    /// Returns the stream.
    ///
    /// # Errors
    /// Why such a stream cannot exist.
    pub(in crate::table) fn finish(self) -> Result<Collection, &'static str> {
        match self.pending.is_empty() && self.is_whole {
            true => Ok(self.collection),
            false => Err("an entry that is pending for no consumer"),
        }
    }
}
