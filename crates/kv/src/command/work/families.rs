//! How long commands on collections and on bytes take, in nanoseconds.

use super::super::{
    BytesCommand, HashCommand, List, ListCommand, References, SetCommand, SetOperation, SortCommand,
    SortedCommand, StreamCommand,
};
use super::{Known, MANY, Size, copied, made};
use crate::geo::{Query, Shape, Shown};
use crate::limits::SCANNED_AT_ONCE;

/// Items that are copied one after the other, into a reply.
fn listed(size: Size) -> u64 {
    size.ns(13, 200)
}

/// Items at an end of a collection that are returned and removed.
fn popped(size: Size) -> u64 {
    size.ns(13, 100)
}

/// Items that are found one by one, by their rank.
fn drawn(size: Size) -> u64 {
    size.strewn(95)
}

/// So many distinct items that are drawn out of all.
fn drawn_apart(all: Size, count: u64) -> u64 {
    let drawn = all.first(count);
    if is_worth_a_walk(drawn, all) { all.ns(20, 100) + drawn.ns(25, 200) } else { drawn.strewn(155) }
}

/// Whether the table walks over all items instead of finding some of them one by one.
fn is_worth_a_walk(some: Size, all: Size) -> bool {
    crate::limits::is_worth_a_walk(some.items as usize, all.items as usize)
}

/// Some of all items that are removed, which takes `each_ns` for one that has to be found. To remove all takes no time: they
/// are freed later.
fn removed_of(some: Size, all: Size, each_ns: u64) -> u64 {
    match some.items == all.items {
        true => 0,
        false if is_worth_a_walk(some, all) => all.ns(38, 200),
        false => some.strewn(each_ns),
    }
}

/// Items that are looked up by their names.
fn found(size: Size) -> u64 {
    size.strewn(85)
}

/// Items that are added to a set one by one. Those that are there already take a third.
fn added(size: Size) -> u64 {
    size.strewn(250)
}

/// Items of a collection that is made of items in order.
fn built(size: Size) -> u64 {
    size.ns(80, 300)
}

/// Items that are removed one by one.
fn removed(size: Size) -> u64 {
    size.strewn(200)
}

fn matched(size: Size, pattern: Option<&[u8]>) -> u64 {
    let length = pattern.map_or(0, |pattern| pattern.len() / 8) as u64;
    size.ns(32, 200).saturating_mul(1 + length)
}

/// `DUMP`: its checksum is of each byte.
pub(super) fn dump_ns(size: Size, is_stream: bool) -> u64 {
    if is_stream { size.ns(80, 700) } else { size.ns(32, 700) }
}

/// `RESTORE`. A plain collection says how many items it has; of packed ones, which are short, an item has some 30 bytes.
pub(super) fn restore_ns(payload: &[u8]) -> u64 {
    let (tag, behind) = payload.split_first().unwrap_or((&0, &[]));
    let bytes = payload.len() as u64;
    // A payload may say that it has more items than it has bytes, which is refused when it is read.
    let size = Size { items: length_in_front(behind).min(bytes), bytes };
    match tag {
        0 => size.bytes * 8 / 10,
        1 | 10 | 14 | 18 => size.bytes * 6,
        2 => size.ns(280, 1500),
        4 => size.ns(430, 1500),
        3 | 5 => size.ns(750, 1500),
        15 | 19 | 21 => size.bytes * 38,
        _ => size.bytes * 15,
    }
}

/// The length with which a value in Redis's format begins.
fn length_in_front(value: &[u8]) -> u64 {
    match *value {
        [first, ..] if first < 0x40 => first.into(),
        [first, second, ..] if first < 0x80 => u64::from(first & 0x3f) << 8 | u64::from(second),
        [0x80, a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d]).into(),
        [0x81, a, b, c, d, e, f, g, h, ..] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// `GETRANGE` of a string with so many bytes.
pub(super) fn substring_ns(bytes: u64, start: i64, end: i64) -> u64 {
    let at = |place: i64| {
        if place < 0 { bytes.saturating_add_signed(place) } else { bytes.min(place.unsigned_abs()) }
    };
    copied(at(end).saturating_sub(at(start)))
}

/// How many items there are from one rank to another.
fn ranks(items: u64, start: i64, end: i64) -> u64 {
    let at =
        |rank: i64| if rank < 0 { items.saturating_add_signed(rank) } else { items.min(rank.unsigned_abs()) };
    (at(end) + 1).min(items).saturating_sub(at(start))
}

fn all(count: Option<u64>) -> u64 {
    count.filter(|count| *count > 0).unwrap_or(u64::MAX)
}

fn sum(sizes: impl Iterator<Item = Size>) -> Size {
    sizes.fold(Size::default(), Size::and)
}

impl HashCommand<'_> {
    pub(super) fn ns(&self, known: &dyn Known) -> u64 {
        use HashCommand::*;
        /// To give a field a deadline.
        const EXPIRED_NS: u64 = 1250;
        let size = || known.size(self.key());
        match *self {
            All { .. } => size().strewn(30),
            Scan { count, pattern, .. } => {
                let size = size().first(count.max(SCANNED_AT_ONCE));
                matched(size, pattern).max(size.strewn(30))
            }
            Random { count: Some(count @ 0..), .. } => drawn_apart(size(), count.unsigned_abs()),
            Random { count: Some(count), .. } => drawn(size().drawn(count.unsigned_abs())),
            MultiGet { fields, .. } | TimeToLive { fields, .. } => fields.size().strewn(140),
            // With fields that are there already it takes a third.
            Set { pairs, .. } => pairs.pairs_size().strewn(480),
            SetExpire { pairs, .. } => pairs.pairs_size().strewn(480 + EXPIRED_NS),
            Persist { fields, .. } | Delete { fields, .. } => fields.size().strewn(250),
            Expire { fields, .. } | GetExpire { fields, .. } => fields.size().strewn(EXPIRED_NS),
            GetDelete { fields, .. } => fields.size().strewn(420),
            _ => 0,
        }
    }
}

impl ListCommand<'_> {
    pub(super) fn ns(&self, known: &dyn Known) -> u64 {
        use ListCommand::*;
        /// Elements that are compared.
        fn compared(size: Size) -> u64 {
            size.ns(7, 50)
        }
        match *self {
            Range { key, start, end } => {
                let size = known.size(key);
                listed(size.first(ranks(size.items, start, end)))
            }
            Position { key, compared_max, count, .. } => {
                let size = known.size(key).first(all(Some(compared_max)));
                size.ns(if count.is_some() { 13 } else { 7 }, 50)
            }
            Push { elements, .. } => elements.size().ns(50, 300),
            Pop { key, count: Some(count), .. } => popped(known.size(key).first(count)),
            MultiPop { keys, count, .. } => {
                keys.iter().map(|key| popped(known.size(key).first(count))).max().unwrap_or(0)
            }
            Insert { key, .. } => compared(known.size(key)),
            Remove { key, count, .. } => {
                let size = known.size(key);
                compared(size) + size.first(all(Some(count.unsigned_abs()))).ns(50, 0)
            }
            PopAny { keys, .. } => keys.size().ns(50, 0),
            Length { .. } | Index { .. } | Set { .. } | Trim { .. } | Move { .. } | Pop { .. } => 0,
        }
    }
}

/// The time to combine sets whose items are in order, and the most that they may result in. To look up one name takes
/// `name_ns`.
fn combined(operation: SetOperation, sizes: &[Size], name_ns: u64) -> (u64, Size) {
    let times = sizes.len() as u64 - u64::from(!sizes.is_empty());
    let looked_up = |size: Size| (size.strewn(name_ns).saturating_mul(times), size);
    match operation {
        SetOperation::Union => {
            let total = sum(sizes.iter().copied());
            let merges = u64::from(sizes.len().next_power_of_two().trailing_zeros());
            (total.ns(3 + 5 * merges, 200), total)
        }
        SetOperation::Intersection => {
            looked_up(sizes.iter().copied().min_by_key(|size| size.items).unwrap_or_default())
        }
        SetOperation::Difference => looked_up(sizes.first().copied().unwrap_or_default()),
    }
}

impl SetCommand<'_> {
    pub(super) fn ns(&self, known: &dyn Known) -> u64 {
        use SetCommand::*;
        const NAME_NS: u64 = 50;
        let sizes = |keys: List<'_>| keys.iter().map(|key| known.size(key)).collect::<Vec<_>>();
        match *self {
            All { key } => listed(known.size(key)),
            Scan { key, count, pattern, .. } => matched(known.size(key).first(count), pattern),
            Random { key, count: Some(count @ 0..) } => drawn_apart(known.size(key), count.unsigned_abs()),
            Random { key, count: Some(count) } => drawn(known.size(key).drawn(count.unsigned_abs())),
            Pop { key, count: Some(count) } => {
                let size = known.size(key);
                let popped = size.first(count);
                let drawn = if popped.items == size.items { listed(size) } else { drawn_apart(size, count) };
                drawn + removed_of(popped, size, 200)
            }
            ContainsEach { members, .. } => found(members.size()),
            Add { members, .. } => added(members.size()),
            Remove { members, .. } => removed(members.size()),
            Combine { operation, keys } => {
                let (ns, result) = combined(operation, &sizes(keys), NAME_NS);
                ns + listed(result)
            }
            CountCommon { keys, .. } => combined(SetOperation::Intersection, &sizes(keys), NAME_NS).0,
            Store { operation, keys, .. } => {
                let (ns, result) = combined(operation, &sizes(keys), NAME_NS);
                ns + built(result)
            }
            _ => 0,
        }
    }
}

impl SortedCommand<'_> {
    pub(super) fn ns(&self, known: &dyn Known) -> u64 {
        use SortedCommand::*;
        /// To find the squares in which places are looked for.
        const SEARCH_NS: u64 = 1500;
        /// Members with their scores, in a new order and with an index of their names.
        fn sorted(size: Size) -> u64 {
            size.ns(420, 400)
        }
        /// Places whose distances are computed.
        fn measured(size: Size) -> u64 {
            size.ns(160, 200)
        }
        /// Places that are looked at, each of them against every edge of a polygon.
        fn compared(size: Size, query: &[u8]) -> u64 {
            let edges = Query::decode(query).map_or(0, |query| match query.shape {
                Shape::Polygon(polygon) => polygon.len() as u64,
                Shape::Circle(_) | Shape::Box(..) => 0,
            });
            edges.saturating_mul(30).saturating_add(size.ns(edges.saturating_mul(5), 0))
        }
        /// Places that are found, with the distance, hash and position that the reply shows for each.
        fn searched(size: Size, query: &[u8]) -> u64 {
            let shown = Query::decode(query).map_or(0, |query| {
                let Shown { distance, hash, place } = query.shown;
                u64::from(distance) + u64::from(hash) + u64::from(place)
            });
            measured(size).saturating_add(size.ns(150 * shown, 0)).saturating_add(compared(size, query))
        }
        /// Members that are removed by their rank.
        fn cut(size: Size, of: Size) -> u64 {
            removed_of(size, of, 320)
        }
        fn combined(
            operation: SetOperation,
            inputs: List<'_>,
            is_weighted: bool,
            known: &dyn Known,
        ) -> (u64, Size) {
            let keys = inputs.iter().step_by(if is_weighted { 2 } else { 1 });
            let sizes: Vec<Size> = keys.map(|key| known.size(key)).collect();
            match operation {
                SetOperation::Union => {
                    let total = sum(sizes.into_iter());
                    (total.strewn(240), total)
                }
                // The names are in an index of their own.
                _ => super::families::combined(operation, &sizes, 150),
            }
        }
        let popped = |of: Size, count| listed(of.first(count)) + cut(of.first(count), of);
        match *self {
            Range { key, by, ends, skip, count, with_scores, .. } => {
                let most = u64::from(skip) + u64::from(count);
                known.in_range(key, by, ends).first(most).ns(if with_scores { 37 } else { 24 }, 200)
            }
            Random { key, count: Some(count @ 0..), .. } => {
                drawn_apart(known.size(key), count.unsigned_abs())
            }
            Random { key, count: Some(count), .. } => drawn(known.size(key).drawn(count.unsigned_abs())),
            Scan { key, count, pattern, .. } | ScanMembers { key, count, pattern, .. } => {
                let size = known.size(key);
                matched(size.first(count), pattern) + size.first(count).ns(250, 0)
            }
            Scores { members, .. } => found(members.size()).saturating_mul(9) / 5,
            Hashes { members, .. } | Places { members, .. } => {
                found(members.size()) + measured(members.size())
            }
            Find { key, query } => SEARCH_NS + searched(known.in_search(key, query), query),
            StoreFound { from, query, .. } => {
                let size = known.in_search(from, query);
                (SEARCH_NS + measured(size) + sorted(size)).saturating_add(compared(size, query))
            }
            Combine { operation, inputs, is_weighted, .. } => {
                let (ns, result) = combined(operation, inputs, is_weighted, known);
                ns + result.ns(60, 200)
            }
            Store { operation, inputs, is_weighted, .. } => {
                let (ns, result) = combined(operation, inputs, is_weighted, known);
                // A guess: half of a set is in the other one, too.
                let is_part = operation != SetOperation::Union;
                ns + if is_part { sorted(result) / 2 } else { sorted(result) }
            }
            StoreRange { from, by, ends, skip, count, .. } => {
                let most = u64::from(skip) + u64::from(count);
                sorted(known.in_range(from, by, ends).first(most))
            }
            CountCommon { keys, .. } => combined(SetOperation::Intersection, keys, false, known).0,
            Add { pairs, .. } => {
                let size = pairs.pairs_size();
                size.ns(if size.items < MANY { 1150 } else { 2300 }, 500)
            }
            Remove { members, .. } => members.size().ns(750, 400),
            RemoveRange { key, by, ends } => cut(known.in_range(key, by, ends), known.size(key)),
            Pop { key, count: Some(count), .. } => popped(known.size(key), count),
            MultiPop { keys, count, .. } => {
                keys.iter().map(|key| popped(known.size(key), count)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

impl BytesCommand<'_> {
    pub(super) fn ns(&self, known: &dyn Known) -> u64 {
        use BytesCommand::*;
        /// To read the registers of a sum, and to make a sketch of them.
        const SUM_NS: u64 = 14_000;
        const MADE_NS: u64 = 8_000;
        /// A sketch in its short form is walked through for each element, until it has this many bytes.
        const SHORT_BYTES: u64 = 3_000;
        const SHORT_ELEMENTS: u64 = 1_800;
        const SHORT_NS: u64 = 2_000;
        let bytes = |key: &[u8]| known.size(key).bytes;
        let merged = |key: &[u8]| (bytes(key) * 10).min(40_000);
        match *self {
            CountBits { key, .. } => bytes(key) / 8,
            FindBit { key, .. } => bytes(key).saturating_mul(45) / 100,
            Combine { keys, .. } => {
                let most = keys.iter().map(bytes).max().unwrap_or(0);
                2 * made(most) + keys.iter().map(bytes).fold(0, u64::saturating_add) / 12 + most / 16
            }
            Estimate { keys } => SUM_NS + keys.iter().map(merged).sum::<u64>(),
            Merge { to, keys } => SUM_NS + MADE_NS + merged(to) + keys.iter().map(merged).sum::<u64>(),
            Count { key, elements } => {
                let size = elements.size();
                let is_short = bytes(key) <= SHORT_BYTES;
                size.ns(10, 0) + if is_short { size.items.min(SHORT_ELEMENTS) * SHORT_NS } else { 0 }
            }
            ReadFields { operations, .. } | ChangeFields { operations, .. } => operations.size().ns(150, 0),
            // Each byte of one string is compared with 64 bytes of the other at once.
            Common { first, second, .. } => {
                let word_ns = bytes(second).div_ceil(64) * 3;
                bytes(first).saturating_mul(6 + word_ns).saturating_add(2500 + 2 * bytes(second))
            }
            SetBit { key, offset, .. } => made((offset / 8).saturating_sub(bytes(key))),
            GetBit { .. } => 0,
        }
    }
}

impl SortCommand<'_> {
    pub(super) fn ns(&self, known: &dyn Known) -> u64 {
        let (SortCommand::Read { key, .. } | SortCommand::Store { key, .. }) = *self;
        let size = known.size(key);
        let compared = u64::from(size.items.checked_ilog2().unwrap_or(0));
        let looked_up = 200 * self.patterns().count() as u64;
        size.ns(60 + 5 * compared + looked_up, 300)
    }
}

impl StreamCommand<'_> {
    pub(super) fn ns(&self, known: &dyn Known) -> u64 {
        use super::super::DELIVERED_MAX;
        use StreamCommand::*;
        /// Pending entries that are made, changed or removed.
        const PENDING_NS: u64 = 750;
        let delivered = |count: u64| all(Some(count)).min(DELIVERED_MAX as u64);
        let entries = |size: Size| size.ns(90, 300);
        let told = |size: Size| size.ns(190, 600);
        // Each group is asked about each entry.
        let references = |key: &[u8], entries: u64, how: References| match how {
            References::Keep => 0,
            _ => entries.saturating_mul(known.groups_of(key)).saturating_mul(PENDING_NS),
        };
        let trimmed = |key: &[u8], threshold: &[u8], trim: super::super::Trim| {
            let entries = match (trim.references, trim.by_id) {
                (References::Keep, _) => return 4000,
                (_, true) => known.between(key, b"-", threshold).items,
                (_, false) => {
                    let most = crate::number::parse_integer(threshold).map_or(0, |most| most.max(0) as u64);
                    known.between(key, b"-", b"+").items.saturating_sub(most) + 1
                }
            };
            4000 + references(key, entries, trim.references).saturating_add(entries.saturating_mul(400))
        };
        // What a producer has sent is looked up, noted, and forgotten again.
        let once = if matches!(self, AddOnce { .. }) { 6000 } else { 0 };
        match *self {
            Range { key, ends, count, .. } => {
                let mut ends = ends.iter();
                let (start, end) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
                entries(known.between(key, start, end).first(all(count)))
            }
            Read { streams, count } => (streams.pairs())
                .map(|(key, id)| entries(known.between(key, id, b"+").first(all(Some(count)))))
                .fold(0, u64::saturating_add),
            ReadGroup { streams, count, .. } => (streams.pairs())
                .map(|(key, _)| known.size(key).first(delivered(count)).ns(1700, 300))
                .fold(0, u64::saturating_add),
            // What is pending may be anywhere.
            Consume { streams, count, claim_ms, .. } => (streams.pairs())
                .map(|(key, _)| {
                    let all = if claim_ms < 0 { 0 } else { known.size(key).ns(40, 0) };
                    known.size(key).first(delivered(count.into())).ns(2000, 300).saturating_add(all)
                })
                .fold(0, u64::saturating_add),
            ClaimRange { key, count, .. } => known.size(key).first(delivered(count)).ns(4000, 300),
            Claim { words, .. } => words.size().ns(3100, 0),
            Acknowledge { ids, .. } => ids.size().ns(PENDING_NS, 0),
            Delete { ids, .. } => ids.size().ns(400, 0),
            Release { ids, .. } => ids.size().ns(PENDING_NS, 0),
            DeleteWith { key, ids, references: how } => {
                ids.size().ns(400, 0).saturating_add(references(key, ids.len() as u64, how))
            }
            AcknowledgeAndDelete { key, ids, references: how, .. } => {
                ids.size().ns(400 + PENDING_NS, 0).saturating_add(references(key, ids.len() as u64, how))
            }
            Add { key, words, trim: Some(trim), .. } | AddOnce { key, words, trim: Some(trim), .. } => {
                let threshold = words.iter().nth(1).unwrap_or_default();
                words.size().ns(17, 300).saturating_add(trimmed(key, threshold, trim)).saturating_add(once)
            }
            Add { words, .. } | AddOnce { words, .. } => words.size().ns(17, 300).saturating_add(once),
            PendingRange { key, min_idle_ms: 0, count, .. } => known.size(key).first(count.max(1)).ns(220, 0),
            DeleteConsumer { key, group, consumer } => known.pending_of(key, group, consumer) * 280,
            PendingRange { key, .. } => known.size(key).ns(15, 0),
            Pending { .. } | InfoConsumers { .. } | DescribeConsumers { .. } => 2500,
            Trim { key, threshold, trim } => trimmed(key, threshold, trim),
            Remember { .. } | Record { .. } => 8000,
            DestroyGroup { .. } => 8000,
            InfoFull { key, count: 0 } | DescribeFull { key, count: 0 } => told(known.size(key)),
            InfoFull { key, count } | DescribeFull { key, count } => {
                told(known.size(key).first(count.saturating_mul(100)))
            }
            _ => 0,
        }
    }
}
