//! What a stream consists of: items of one ordered tree, each of which begins with a tag for its kind.
//!
//! ```text
//! 0  head:      last id, entries ever added, last id removed, numbers given to groups and consumers     always the first
//! 1  names:     number u8, of the names of fields | these names             number n has the rank n
//! 2  group:     name | number | last id read, how many entries that are
//! 3  consumer:  group | name | number                                       found by its name
//! 4  consumer:  group | number | when it was seen | name                    found by its number
//! 5  pending:   group | id | consumer, when delivered, how often
//! 6  pending:   group | consumer | id                                       the same, found by its consumer
//! 7  active:    group | consumer | when it last got an entry                if not when it was seen
//! 8  producers: for how long, and how many of each | counts                 what is remembered of what they have sent
//! 9  producer:  name | number                                               found by its name
//! 10 producer:  number | name                                               found by its number
//! 11 sent:      producer | its name for an entry | id                       found by that name
//! 12 sent:      producer | id | its name for the entry                      the same, in the order of sending
//! 13 sent:      id | producer                                               the same, of all producers
//! entry:        id | number of the names of its fields, or 0 and names among the values | values
//! ```
//!
//! Entries are the last items, and their number follows from their ranks. Ids are encoded so that their bytes have the
//! order of ids: the time in six bytes, chosen to leave the tags above in front of them, and the number in one byte if it
//! is small. The entries of a stream seldom differ in the names of their fields, so the first few lists of names are stored
//! once. A value that is an integer takes the bytes of the integer.
//!
//! What no consumer has, although it is pending, has the consumer 0.

use crate::codec::{Malformed, Reader, Writer};
use crate::command::StreamId;
use crate::number::{INTEGER_TEXT_BYTES_MAX, format_integer, parse_integer};

pub(in crate::table) const HEAD: u8 = 0;
pub(in crate::table) const NAMES: u8 = 1;
pub(in crate::table) const GROUP: u8 = 2;
pub(in crate::table) const NAMED: u8 = 3;
pub(in crate::table) const CONSUMER: u8 = 4;
pub(in crate::table) const PENDING: u8 = 5;
pub(in crate::table) const OWNED: u8 = 6;
pub(in crate::table) const ACTIVE: u8 = 7;
pub(in crate::table) const PRODUCERS: u8 = 8;
pub(in crate::table) const PRODUCER: u8 = 9;
pub(in crate::table) const NUMBERED: u8 = 10;
pub(in crate::table) const SENT: u8 = 11;
pub(in crate::table) const SENT_IN_ORDER: u8 = 12;
pub(in crate::table) const SENT_BY_ALL: u8 = 13;

/// In place of a consumer's number: the entry was released, and not claimed since. Consumers are numbered from 1.
pub(in crate::table) const NO_CONSUMER: u64 = 0;
/// Entries begin with at least this byte.
pub(in crate::table) const ENTRIES: u8 = 16;

/// Most lists of names that are stored once. They are searched one by one for each new entry.
pub(in crate::table) const NAMES_KEPT: u8 = 16;
/// Longest list of names that is stored once, in bytes.
pub(in crate::table) const NAMES_KEPT_BYTES: usize = 512;

/// Numbers below this take one byte.
const SHORT_END: u8 = 240;
/// Added to the six bytes of a time.
const MS_BASE: u64 = (ENTRIES as u64) << 40;
/// The first byte of a time that does not fit into six bytes.
const LONG_MS: u8 = 0xff;

const NOT_SHORTEST: Malformed = Malformed("a number that is written too long");

/// Appends a number so that the order of the bytes is that of the numbers.
pub(in crate::table) fn put_number(number: u64, out: &mut Vec<u8>) {
    if number < u64::from(SHORT_END) {
        return out.put_u8(number as u8);
    }
    let bytes = number.to_be_bytes();
    let zeros = number.leading_zeros() as usize / 8;
    out.put_u8(SHORT_END + (8 - zeros) as u8);
    out.extend_from_slice(&bytes[zeros..]);
}

pub(in crate::table) fn take_number(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let length = match reader.u8()? {
        number @ 0..SHORT_END => return Ok(number.into()),
        length => usize::from(length - SHORT_END),
    };
    if !(1..=8).contains(&length) {
        return Err(Malformed("a number that is too long"));
    }
    let mut bytes = [0; 8];
    bytes[8 - length..].copy_from_slice(reader.take(length)?);
    let number = u64::from_be_bytes(bytes);
    let is_shortest = bytes[8 - length] > 0 && number >= u64::from(SHORT_END);
    if is_shortest { Ok(number) } else { Err(NOT_SHORTEST) }
}

/// Appends an id so that the order of the bytes is that of the ids.
pub(in crate::table) fn put_id(id: StreamId, out: &mut Vec<u8>) {
    let short = id.ms.saturating_add(MS_BASE);
    if short < u64::from(LONG_MS) << 40 {
        out.extend_from_slice(&short.to_be_bytes()[2..]);
    } else {
        out.put_u8(LONG_MS);
        out.extend_from_slice(&id.ms.to_be_bytes());
    }
    put_number(id.seq, out);
}

pub(in crate::table) fn take_id(reader: &mut Reader<'_>) -> Result<StreamId, Malformed> {
    let mut bytes = [0; 8];
    let ms = match reader.rest().first() {
        Some(&LONG_MS) => {
            bytes.copy_from_slice(&reader.take(9)?[1..]);
            let ms = u64::from_be_bytes(bytes);
            if ms.saturating_add(MS_BASE) < u64::from(LONG_MS) << 40 {
                return Err(NOT_SHORTEST);
            }
            ms
        }
        _ => {
            bytes[2..].copy_from_slice(reader.take(6)?);
            let ms = u64::from_be_bytes(bytes).checked_sub(MS_BASE);
            ms.ok_or(Malformed("an id that is none"))?
        }
    };
    Ok(StreamId { ms, seq: take_number(reader)? })
}

/// Appends a name so that the order of the bytes is that of the names, and no name is a prefix of another one: a zero byte
/// is followed by a one, and two zero bytes are the end.
fn put_name(name: &[u8], out: &mut Vec<u8>) {
    for byte in name {
        out.put_u8(*byte);
        if *byte == 0 {
            out.put_u8(1);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn take_name(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let mut name = Vec::new();
    loop {
        match reader.u8()? {
            0 => match reader.u8()? {
                0 => return Ok(name),
                1 => name.push(0),
                _ => return Err(Malformed("a name that does not end as names do")),
            },
            byte => name.push(byte),
        }
    }
}

fn put_fixed_id(id: StreamId, out: &mut Vec<u8>) {
    out.put_u64(id.ms);
    out.put_u64(id.seq);
}

fn take_fixed_id(reader: &mut Reader<'_>) -> Result<StreamId, Malformed> {
    Ok(StreamId { ms: reader.u64()?, seq: reader.u64()? })
}

/// A value of an entry, or a name of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Text<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> Text<'a> {
    const MEDIUM: u8 = 249;
    const LONG: u8 = 250;

    /// Appends a text: its length and its bytes, or the bytes of an integer if that is shorter.
    pub(in crate::table) fn put(text: &[u8], out: &mut Vec<u8>) {
        if let Some(integer) = parse_integer(text) {
            // Of the upper bits that equal the sign, one is enough.
            let bits = 64 - (integer ^ (integer >> 63)).leading_zeros() as usize + 1;
            let length = bits.div_ceil(8);
            if length < text.len() {
                out.put_u8(SHORT_END + length as u8);
                return out.extend_from_slice(&integer.to_le_bytes()[..length]);
            }
        }
        match text.len() {
            length @ 0..240 => out.put_u8(length as u8),
            length @ 240..=0xffff => {
                out.put_u8(Self::MEDIUM);
                out.put_u16(length as u16);
            }
            length => {
                out.put_u8(Self::LONG);
                out.put_u32(length as u32);
            }
        }
        out.extend_from_slice(text);
    }

    pub(in crate::table) fn take(reader: &mut Reader<'a>) -> Result<Text<'a>, Malformed> {
        let length = match reader.u8()? {
            Self::MEDIUM => reader.u16()? as usize,
            Self::LONG => reader.u32()? as usize,
            length @ 0..=239 => length as usize,
            tag @ 241..=248 => {
                let bytes = reader.take(usize::from(tag - SHORT_END))?;
                let is_negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
                let mut integer = if is_negative { [0xff; 8] } else { [0; 8] };
                integer[..bytes.len()].copy_from_slice(bytes);
                return Ok(Text::Integer(i64::from_le_bytes(integer)));
            }
            _ => return Err(Malformed("a value of an entry that is none")),
        };
        Ok(Text::Bytes(reader.take(length)?))
    }

    /// The bytes of the text.
    pub(in crate::table) fn bytes(self, buffer: &'a mut [u8; INTEGER_TEXT_BYTES_MAX]) -> &'a [u8] {
        match self {
            Text::Bytes(bytes) => bytes,
            Text::Integer(integer) => format_integer(integer, buffer),
        }
    }

    /// The number of texts in these bytes.
    pub(in crate::table) fn count(texts: &'a [u8]) -> Result<usize, Malformed> {
        let (mut reader, mut count) = (Reader::new(texts), 0);
        while !reader.is_empty() {
            Text::take(&mut reader)?;
            count += 1;
        }
        Ok(count)
    }
}

/// The properties of a stream beside its entries and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::table) struct Head {
    /// The greatest id ever given.
    pub(in crate::table) last: StreamId,
    /// The number of entries ever added.
    pub(in crate::table) added: u64,
    /// The greatest id removed by `XDEL`.
    pub(in crate::table) removed: StreamId,
    /// The last number that was given to a group or a consumer.
    pub(in crate::table) numbers: u64,
}

impl Head {
    pub(in crate::table) fn item(self) -> Vec<u8> {
        let mut item = Vec::with_capacity(49);
        item.put_u8(HEAD);
        put_fixed_id(self.last, &mut item);
        item.put_u64(self.added);
        put_fixed_id(self.removed, &mut item);
        item.put_u64(self.numbers);
        item
    }

    pub(in crate::table) fn take(reader: &mut Reader<'_>) -> Result<Head, Malformed> {
        let (last, added) = (take_fixed_id(reader)?, reader.u64()?);
        Ok(Head { last, added, removed: take_fixed_id(reader)?, numbers: reader.u64()? })
    }
}

/// A group of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Group {
    pub(in crate::table) number: u64,
    /// The id up to which the group has read.
    pub(in crate::table) last: StreamId,
    /// The number of entries of the stream up to that id, if known.
    pub(in crate::table) read: Option<u64>,
}

impl Group {
    pub(in crate::table) fn key(name: &[u8]) -> Vec<u8> {
        let mut key = vec![GROUP];
        put_name(name, &mut key);
        key
    }

    pub(in crate::table) fn put(self, item: &mut Vec<u8>) {
        put_number(self.number, item);
        put_fixed_id(self.last, item);
        item.put_u64(self.read.unwrap_or(u64::MAX));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Group, Malformed> {
        let (number, last, read) = (take_number(reader)?, take_fixed_id(reader)?, reader.u64()?);
        Ok(Group { number, last, read: Some(read).filter(|read| *read != u64::MAX) })
    }
}

/// An entry that was delivered to a consumer and is not acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Pending {
    /// The consumer's number.
    pub(in crate::table) consumer: u64,
    pub(in crate::table) delivered_ms: u64,
    pub(in crate::table) deliveries: u64,
}

impl Pending {
    pub(in crate::table) fn key(group: u64, id: StreamId) -> Vec<u8> {
        let mut key = region(PENDING, &[group]);
        put_id(id, &mut key);
        key
    }

    /// The key by which a consumer's pending entries are found.
    pub(in crate::table) fn owned_key(group: u64, consumer: u64, id: StreamId) -> Vec<u8> {
        let mut key = region(OWNED, &[group, consumer]);
        put_id(id, &mut key);
        key
    }

    pub(in crate::table) fn put(self, item: &mut Vec<u8>) {
        put_number(self.consumer, item);
        item.put_u64(self.delivered_ms);
        put_number(self.deliveries, item);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Pending, Malformed> {
        let (consumer, delivered_ms) = (take_number(reader)?, reader.u64()?);
        Ok(Pending { consumer, delivered_ms, deliveries: take_number(reader)? })
    }
}

/// What is remembered of what producers have sent, and how much of that there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Producers {
    /// For how long an entry's name is remembered, in seconds.
    pub(in crate::table) duration_s: u64,
    /// How many names of each producer are.
    pub(in crate::table) most: u64,
    /// The number of entries ever added with a name.
    pub(in crate::table) added: u64,
    /// The number of entries that were not added because they had been sent before.
    pub(in crate::table) duplicates: u64,
}

impl Default for Producers {
    fn default() -> Producers {
        Producers { duration_s: 100, most: 100, added: 0, duplicates: 0 }
    }
}

impl Producers {
    pub(in crate::table) fn item(self) -> Vec<u8> {
        let mut item = vec![PRODUCERS];
        for number in [self.duration_s, self.most, self.added, self.duplicates] {
            put_number(number, &mut item);
        }
        item
    }

    fn take(reader: &mut Reader<'_>) -> Result<Producers, Malformed> {
        let (duration_s, most) = (take_number(reader)?, take_number(reader)?);
        Ok(Producers { duration_s, most, added: take_number(reader)?, duplicates: take_number(reader)? })
    }
}

/// The key by which a producer is found.
pub(in crate::table) fn producer_key(name: &[u8]) -> Vec<u8> {
    let mut key = vec![PRODUCER];
    put_name(name, &mut key);
    key
}

/// The key by which an entry is found that a producer has sent under a name.
pub(in crate::table) fn sent_key(producer: u64, name: &[u8]) -> Vec<u8> {
    let mut key = region(SENT, &[producer]);
    put_name(name, &mut key);
    key
}

/// The key of what a producer has sent, in the order of sending.
pub(in crate::table) fn sent_in_order_key(producer: u64, id: StreamId) -> Vec<u8> {
    let mut key = region(SENT_IN_ORDER, &[producer]);
    put_id(id, &mut key);
    key
}

/// The key of what any producer has sent, in the order of sending.
pub(in crate::table) fn sent_by_all_key(id: StreamId) -> Vec<u8> {
    let mut key = vec![SENT_BY_ALL];
    put_id(id, &mut key);
    key
}

/// The beginning of the keys of all items with this tag and these numbers.
pub(in crate::table) fn region(tag: u8, numbers: &[u64]) -> Vec<u8> {
    let mut key = vec![tag];
    numbers.iter().for_each(|number| put_number(*number, &mut key));
    key
}

/// The key by which a consumer is found.
pub(in crate::table) fn named_key(group: u64, name: &[u8]) -> Vec<u8> {
    let mut key = region(NAMED, &[group]);
    put_name(name, &mut key);
    key
}

/// The bytes of an id at the beginning of its entry.
pub(in crate::table) fn entry_key(id: StreamId) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    put_id(id, &mut key);
    key
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::table) enum Item<'a> {
    Head(Head),
    Names { number: u8, names: &'a [u8] },
    Group { name: Vec<u8>, group: Group },
    Named { group: u64, name: Vec<u8>, consumer: u64 },
    Consumer { group: u64, consumer: u64, seen_ms: u64, name: &'a [u8] },
    Pending { group: u64, id: StreamId, pending: Pending },
    Owned { group: u64, consumer: u64, id: StreamId },
    Active { group: u64, consumer: u64, active_ms: Option<u64> },
    Producers(Producers),
    Producer { name: Vec<u8>, producer: u64 },
    Numbered { producer: u64, name: &'a [u8] },
    Sent { producer: u64, name: Vec<u8>, id: StreamId },
    SentInOrder { producer: u64, id: StreamId, name: &'a [u8] },
    SentByAll { id: StreamId, producer: u64 },
    Entry { id: StreamId, names: u8, values: &'a [u8] },
}

impl<'a> Item<'a> {
    /// Reads an item.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes, if they are untrusted, are no item.
    pub(in crate::table) fn of(bytes: &'a [u8]) -> Result<Item<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let item = match bytes.first() {
            Some(&(ENTRIES..)) => {
                let (id, names) = (take_id(&mut reader)?, reader.u8()?);
                return Ok(Item::Entry { id, names, values: reader.rest() });
            }
            _ => match reader.u8()? {
                HEAD => Item::Head(Head::take(&mut reader)?),
                NAMES => return Ok(Item::Names { number: reader.u8()?, names: reader.rest() }),
                GROUP => {
                    let name = take_name(&mut reader)?;
                    Item::Group { name, group: Group::take(&mut reader)? }
                }
                NAMED => {
                    let (group, name) = (take_number(&mut reader)?, take_name(&mut reader)?);
                    Item::Named { group, name, consumer: take_number(&mut reader)? }
                }
                CONSUMER => {
                    let (group, consumer) = (take_number(&mut reader)?, take_number(&mut reader)?);
                    let seen_ms = reader.u64()?;
                    return Ok(Item::Consumer { group, consumer, seen_ms, name: reader.rest() });
                }
                PENDING => {
                    let (group, id) = (take_number(&mut reader)?, take_id(&mut reader)?);
                    Item::Pending { group, id, pending: Pending::take(&mut reader)? }
                }
                OWNED => {
                    let (group, consumer) = (take_number(&mut reader)?, take_number(&mut reader)?);
                    Item::Owned { group, consumer, id: take_id(&mut reader)? }
                }
                ACTIVE => {
                    let (group, consumer) = (take_number(&mut reader)?, take_number(&mut reader)?);
                    let active_ms = Some(reader.u64()?).filter(|active_ms| *active_ms != u64::MAX);
                    Item::Active { group, consumer, active_ms }
                }
                PRODUCERS => Item::Producers(Producers::take(&mut reader)?),
                PRODUCER => {
                    let name = take_name(&mut reader)?;
                    Item::Producer { name, producer: take_number(&mut reader)? }
                }
                NUMBERED => {
                    return Ok(Item::Numbered { producer: take_number(&mut reader)?, name: reader.rest() });
                }
                SENT => {
                    let (producer, name) = (take_number(&mut reader)?, take_name(&mut reader)?);
                    Item::Sent { producer, name, id: take_id(&mut reader)? }
                }
                SENT_IN_ORDER => {
                    let (producer, id) = (take_number(&mut reader)?, take_id(&mut reader)?);
                    return Ok(Item::SentInOrder { producer, id, name: reader.rest() });
                }
                SENT_BY_ALL => {
                    let id = take_id(&mut reader)?;
                    Item::SentByAll { id, producer: take_number(&mut reader)? }
                }
                _ => return Err(Malformed("an unknown item of a stream")),
            },
        };
        if reader.is_empty() { Ok(item) } else { Err(Malformed("an item of a stream that does not end")) }
    }

    /// Reads an item that was written here, or was checked on arrival.
    pub(in crate::table) fn trusted(bytes: &'a [u8]) -> Item<'a> {
        match Item::of(bytes) {
            Ok(item) => item,
            Err(Malformed(why)) => unreachable!("an item of a stream is not what was stored: {why}"),
        }
    }

    /// The number of the consumer for which an entry is pending; 0 of other items.
    pub(in crate::table) fn owner(&self) -> u64 {
        match self {
            Item::Pending { pending, .. } => pending.consumer,
            _ => 0,
        }
    }

    /// The key by which the item is found. It is unique within a stream.
    pub(in crate::table) fn key(&self) -> Vec<u8> {
        match self {
            Item::Head(_) => vec![HEAD],
            Item::Names { number, .. } => vec![NAMES, *number],
            Item::Group { name, .. } => Group::key(name),
            Item::Named { group, name, .. } => named_key(*group, name),
            Item::Consumer { group, consumer, .. } => region(CONSUMER, &[*group, *consumer]),
            Item::Pending { group, id, .. } => Pending::key(*group, *id),
            Item::Owned { group, consumer, id } => Pending::owned_key(*group, *consumer, *id),
            Item::Active { group, consumer, .. } => region(ACTIVE, &[*group, *consumer]),
            Item::Producers(_) => vec![PRODUCERS],
            Item::Producer { name, .. } => producer_key(name),
            Item::Numbered { producer, .. } => region(NUMBERED, &[*producer]),
            Item::Sent { producer, name, .. } => sent_key(*producer, name),
            Item::SentInOrder { producer, id, .. } => sent_in_order_key(*producer, *id),
            Item::SentByAll { id, .. } => sent_by_all_key(*id),
            Item::Entry { id, .. } => entry_key(*id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids() -> impl Strategy<Value = StreamId> {
        let part = prop_oneof![0..3_u64, 238..243_u64, Just(1 << 40), Just((0xef << 40) - 1), any::<u64>()];
        (part.clone(), part).prop_map(|(ms, seq)| StreamId { ms, seq })
    }

    proptest! {
        #[test]
        fn the_bytes_of_ids_have_their_order(one in ids(), other in ids()) {
            let (first, second) = (entry_key(one), entry_key(other));
            prop_assert_eq!(first.cmp(&second), one.cmp(&other));
            prop_assert!(one == other || !second.starts_with(&first));
            prop_assert!(first[0] >= ENTRIES);
            prop_assert_eq!(take_id(&mut Reader::new(&first)), Ok(one));
        }

        #[test]
        fn the_bytes_of_names_have_their_order(one in "[\0\u{1}a]{0,4}", other in "[\0\u{1}a]{0,4}") {
            let (first, second) = (Group::key(one.as_bytes()), Group::key(other.as_bytes()));
            prop_assert_eq!(first.cmp(&second), one.as_bytes().cmp(other.as_bytes()));
            prop_assert!(one == other || !second.starts_with(&first));
            prop_assert_eq!(take_name(&mut Reader::new(&first[1..])), Ok(one.into_bytes()));
        }

        #[test]
        fn integers_are_texts(integer in prop_oneof![any::<i64>(), -70_000..70_000_i64]) {
            let (text, mut item, mut buffer) = (integer.to_string(), Vec::new(), [0; INTEGER_TEXT_BYTES_MAX]);
            Text::put(text.as_bytes(), &mut item);
            prop_assert!(item.len() <= 1 + text.len().min(8));
            let taken = Text::take(&mut Reader::new(&item)).unwrap();
            prop_assert_eq!(taken.bytes(&mut buffer), text.as_bytes());
        }
    }

    #[test]
    fn texts_take_little_more_than_their_bytes() {
        for (text, bytes) in [
            (&b""[..], 1),
            (b"7", 2),
            (b"127", 2),
            (b"-128", 2),
            (b"128", 3),
            (b"032", 4),
            (&[b'a'; 239], 240),
            (&[b'a'; 240], 243),
            (&[b'a'; 70_000], 70_005),
        ] {
            let (mut item, mut buffer) = (Vec::new(), [0; INTEGER_TEXT_BYTES_MAX]);
            Text::put(text, &mut item);
            assert_eq!(item.len(), bytes, "{}", text.escape_ascii());
            assert_eq!(Text::take(&mut Reader::new(&item)).unwrap().bytes(&mut buffer), text);
        }
    }
}
