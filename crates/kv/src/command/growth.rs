//! Commands that may enlarge the data, and by how much beyond their own size.

use super::declaration::{Adds, Effect, Inner};
use super::{
    BitOperation, By, BytesCommand, Command, DELIVERED_MAX, HashCommand, List, ListCommand, QueueCommand,
    SetCommand, SetOperation, SortCommand, SortOptions, SortedCommand, StreamCommand, WhenFull,
};
use crate::ValueId;
use crate::sketch::{DENSE_BYTES, ELEMENT_BYTES, EMPTY_BYTES, SPARSE_BYTES_MAX};
use std::ops::Range;

impl Command<'_> {
    /// Whether the command may enlarge the data: those that Redis marks with `denyoom`, and those that request locks. A
    /// node without free memory refuses these and carries out the others.
    pub fn may_grow(&self) -> bool {
        self.declared_effect() == Effect::Grows
    }

    /// Whether every part of the command that may enlarge the data is allowed to do so in a full keyspace: scripts with
    /// [`WhenFull::Runs`].
    pub fn may_overfill(&self) -> bool {
        match self {
            Command::Script(script) => script.options().when_full == WhenFull::Runs,
            Command::Transaction(transaction) => {
                transaction.commands().all(|command| !command.may_grow() || command.may_overfill())
            }
            Command::Bounded(bounded) => bounded.command().may_overfill(),
            _ => false,
        }
    }

    /// Whether the command only deletes.
    pub fn only_deletes(&self) -> bool {
        self.declared_effect() == Effect::Frees
    }

    /// How many bytes of memory the command may add beyond what its own bytes can: a `SETRANGE` far beyond the end, a
    /// `COPY`, what a `RESTORE` expands to, the result of a `STORE`. Includes what is needed only while it is carried out.
    /// Takes no look at the table for the usual commands on strings.
    #[inline]
    pub fn growth_bytes(&self, sizes: &dyn Sizes) -> u64 {
        match self {
            Command::Get { .. } | Command::Set { .. } => 0,
            _ => self.growth_bytes_of_any(sizes),
        }
    }

    /// Whether the command adds at most 1 KiB beyond its own bytes, whatever the table holds: true of reads
    /// and of nearly all writes that clients send.
    pub fn grows_little(&self) -> bool {
        match self {
            // What they contain would have to be decoded.
            Command::Transaction(_) | Command::Supplied(_) => false,
            command => command.declared_adds() == Adds::Little,
        }
    }

    /// Whether the command needs no second look before it is ordered: it adds little beyond its own bytes, which are at most
    /// `bytes_max`, and it looks at few keys or items.
    #[inline]
    pub fn is_ordinary(&self, bytes_max: usize) -> bool {
        match self {
            Command::Get { .. } => true,
            Command::Set { value, .. } => value.len() <= bytes_max,
            _ => self.is_any_ordinary(bytes_max),
        }
    }

    fn is_any_ordinary(&self, bytes_max: usize) -> bool {
        self.grows_little() && !self.may_walk() && self.payload_bytes() <= bytes_max
    }

    /// At most how many bytes of memory the command adds, its own bytes included. For commands that consist of others, such
    /// as scripts, what they are known to add: the others are charged when they are carried out.
    pub fn charge_bytes(&self, sizes: &dyn Sizes) -> u64 {
        match self {
            Command::Transaction(transaction) => {
                let charges = transaction.commands().map(|command| command.charge_bytes(sizes));
                charges.fold(0, u64::saturating_add)
            }
            _ if !self.is_write() => 0,
            // Its keys are in the record, and it stores nothing.
            Command::Delete { keys } => CHARGE_BYTES + keys.bytes() as u64,
            _ => {
                let mut key_bytes = 0;
                self.for_each_key(|key| key_bytes += key.len());
                let own = (self.payload_bytes() + key_bytes) as u64;
                // An item of a collection is built before it is stored.
                let own = own + if self.is_of_strings() { own / 4 } else { own };
                let own = own + CHARGE_BYTES + self.items() as u64 * ITEM_BYTES;
                own.saturating_add(self.growth_bytes(sizes)).saturating_add(self.moment_bytes(sizes))
            }
        }
    }

    fn is_of_strings(&self) -> bool {
        use Command::*;
        matches!(
            self,
            Set { .. }
                | SetIf { .. }
                | MultiSet { .. }
                | MultiSetExpire { .. }
                | Append { .. }
                | SetRange { .. }
                | Fenced(_)
        )
    }

    /// Bytes that a command needs for a moment which adds nothing, and must not be refused when nothing is left.
    fn moment_bytes(&self, sizes: &dyn Sizes) -> u64 {
        match self {
            Command::Rename { from, .. } => sizes.string_bytes(from),
            Command::Clear {} => EMPTY_INDEX_BYTES,
            _ => 0,
        }
    }

    /// Whether what the command adds depends on the table when it is carried out, or is known only then. Such a command is
    /// ordered with a bound: see [`super::Bounded`].
    pub fn grows_with_the_table(&self) -> bool {
        self.declared_adds() == Adds::Unforeseen
    }

    /// Whether the command only carries out others, each of which is charged.
    pub(crate) fn consists_of_others(&self) -> bool {
        use Command::*;
        matches!(self, Transaction(_) | Script(_) | Supplied(_) | LongEnd { .. } | Bounded(_) | TwoPhase(_))
    }

    /// The number of items of its lists.
    fn items(&self) -> usize {
        match self {
            Command::MultiSet { pairs, .. } | Command::MultiSetExpire { pairs, .. } => pairs.len(),
            Command::Delete { keys } => keys.len(),
            Command::Hash(command) => command.items(),
            Command::OnList(command) => command.items(),
            Command::OnSet(command) => command.items(),
            Command::OnSorted(command) => command.items(),
            Command::OnStream(command) => command.items(),
            // The elements of a sketch are not stored.
            Command::OnBytes(command) if !matches!(command, BytesCommand::Count { .. }) => command.items(),
            Command::Sort(command) => command.items(),
            Command::Queue(command) => command.items(),
            _ => 1,
        }
    }

    /// How many items of a collection the command may change, at most. Each may be in a node of its own.
    pub(crate) fn changed_items(&self) -> u64 {
        match self {
            Command::OnList(ListCommand::Remove { count: 0, .. }) => u64::MAX,
            Command::OnList(ListCommand::Remove { count, .. }) => count.unsigned_abs(),
            Command::OnSet(SetCommand::Pop { count: Some(count), .. }) => *count,
            Command::OnStream(StreamCommand::ReadGroup { count, .. }) => delivered(*count),
            Command::OnStream(StreamCommand::Consume { count, .. }) => delivered((*count).into()),
            Command::OnStream(StreamCommand::ClaimRange { count, .. }) => delivered(*count),
            // Those of a range are neighbours.
            _ => self.items() as u64 + 1,
        }
    }

    fn growth_bytes_of_any(&self, sizes: &dyn Sizes) -> u64 {
        use Command::*;
        match self {
            SetRange { value: [], .. } => 0,
            SetRange { key, offset, value } => {
                extended(sizes, key, offset.saturating_add(value.len() as u64))
            }
            Append { key, value, .. } => match sizes.string_bytes(key) {
                0 => 0,
                length => extended(sizes, key, length + value.len() as u64),
            },
            IncrementByFloat { .. } | IncrementWithin { .. } => FLOAT_BYTES,
            Copy { from, .. } => copied(sizes, from),
            Restore { payload, .. } => restored_bytes(payload),
            Transaction(transaction) => {
                let growths = transaction.commands().map(|command| command.growth_bytes(sizes));
                growths.fold(0, u64::saturating_add)
            }
            LongEnd { id, .. } => sizes.long_growth_bytes(*id),
            Queue(QueueCommand::Ask { wish, .. }) => wish.command().growth_bytes(sizes),
            Hash(command) => command.growth_bytes(),
            OnSet(command) => command.growth_bytes(sizes),
            OnSorted(command) => command.growth_bytes(sizes),
            OnStream(command) => command.growth_bytes(sizes),
            OnBytes(command) => command.growth_bytes(sizes),
            Sort(SortCommand::Store { key, options, .. }) => {
                // What other keys hold is charged as it is looked up.
                let gets = SortOptions::decode(options).map_or(0, |options| options.gets.len() as u64);
                copied(sizes, key)
                    .saturating_mul(2)
                    .saturating_add(sizes.items(key) * (1 + gets) * ITEM_BYTES)
            }
            Supplied(supplied) => supplied.command().map_or(0, |command| command.growth_bytes(sizes)),
            Bounded(bounded) => bounded.command().growth_bytes(sizes),
            TwoPhase(command) => command.share().map_or(0, |share| share.command().growth_bytes(sizes)),
            // Reads.
            Get { .. } | Fetch { .. } | MultiGet { .. } | Exists { .. } | Type { .. } | Length { .. } => 0,
            GetRange { .. } | TimeToLive { .. } | Keys { .. } | Scan { .. } | RandomKey { .. } | Size {} => 0,
            Encoding { .. } | Used { .. } | MemoryUsage { .. } | Digest { .. } | Dump { .. } => 0,
            Watch { .. } | Recent { .. } | NewestToken { .. } => 0,
            Sort(SortCommand::Read { .. }) | Foreseen(_) => 0,
            // What these add is in them.
            Set { .. } | SetIf { .. } | MultiSet { .. } | Replicate { .. } | SetCoded { .. } => 0,
            MultiSetExpire { .. }
            | Fenced(_)
            | LongPart { .. }
            | IncrementBy { .. }
            | OnList(_)
            | Lock(_) => 0,
            Queue(_) => 0,
            // They remove something, or change its name or its deadline.
            GetDelete { .. } | GetExpire { .. } | Delete { .. } | DeleteIf { .. } | Expire { .. } => 0,
            Persist { .. } | Rename { .. } | Clear {} | Purge { .. } | Evict { .. } | Abandon { .. } => 0,
            SkipVersions { .. } | RaiseFloor { .. } => 0,
            // Known only when it runs.
            Script(_) => 0,
        }
    }
}

/// Which members of a range are wanted.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // As in [`SortedCommand::Range`].
pub struct RangePart {
    pub is_reverse: bool,
    pub skip: u32,
    pub count: u32,
}

impl RangePart {
    /// The ranks of the wanted members, by those of the range.
    pub fn of(self, ranks: Range<usize>) -> Range<usize> {
        let skip = ranks.len().min(self.skip as usize);
        let count = (ranks.len() - skip).min(self.count as usize);
        let start = if self.is_reverse { ranks.end - skip - count } else { ranks.start + skip };
        start..start + count
    }
}

/// The sizes on which a charge depends. They are those of contents, never of allocations: replicas agree on them.
pub trait Sizes {
    /// Bytes of a key's value; 0 if the key does not exist.
    fn content_bytes(&self, key: &[u8]) -> u64;

    /// The length of a key's string; 0 if the key does not exist or holds something else.
    fn string_bytes(&self, key: &[u8]) -> u64;

    /// The number of items of a key's value.
    fn items(&self, key: &[u8]) -> u64;

    /// Bytes and number of the members of a part of a range of a sorted set.
    fn range(&self, key: &[u8], by: By, ends: List<'_>, part: RangePart) -> (u64, u64);

    /// [`Command::growth_bytes`] of a command that has arrived in parts.
    fn long_growth_bytes(&self, id: ValueId) -> u64;
}

/// At most this much a command adds of which [`Command::grows_little`] is true.
pub(super) const LITTLE_GROWTH_BYTES: u64 = 1024;

/// A charge for each command, whatever it is: an entry, its place in the index, a deadline, the beginning of a tree.
const CHARGE_BYTES: u64 = 512;

/// A charge for each item of a command, beside its bytes: the places of a member in two trees.
const ITEM_BYTES: u64 = 128;

/// Bytes of the index of a table without keys.
const EMPTY_INDEX_BYTES: u64 = 64 << 10;

/// Bytes of the longest sum that is stored as text.
const FLOAT_BYTES: u64 = 512;

/// A charge for each pending entry of a group: its places in the trees of the group and of the consumer.
const PENDING_BYTES: u64 = 128;

/// Bytes of a group of consumers, and of a consumer.
const GROUP_BYTES: u64 = 1024;
const _: () = assert!(GROUP_BYTES <= LITTLE_GROWTH_BYTES && FLOAT_BYTES <= LITTLE_GROWTH_BYTES);

/// What extending a string to `end` bytes may take: a new allocation, with room for as much again as a half.
fn extended(sizes: &dyn Sizes, key: &[u8], end: u64) -> u64 {
    match sizes.string_bytes(key) {
        0 => end.saturating_mul(2),
        length if end > length => end.saturating_add(end / 2),
        _ => 0,
    }
}

/// What counting elements in a sketch of so many bytes may take, of which there are none if it is new. A
/// dense one is changed in place. A sparse one is built anew.
fn counted(length: u64, elements: u64) -> u64 {
    if length == DENSE_BYTES as u64 {
        return 0;
    }
    let added = elements.saturating_mul(ELEMENT_BYTES as u64);
    let grown = length.max(EMPTY_BYTES as u64).saturating_add(added);
    match grown <= SPARSE_BYTES_MAX as u64 {
        true if length > 0 => added,
        true => grown,
        false => 2 * DENSE_BYTES as u64,
    }
}

/// What a copy of a key may take.
fn copied(sizes: &dyn Sizes, key: &[u8]) -> u64 {
    match sizes.string_bytes(key) {
        0 => collection_bytes(sizes.content_bytes(key), sizes.items(key)),
        length => length,
    }
}

/// The most memory of a collection with this content.
fn collection_bytes(content: u64, items: u64) -> u64 {
    content.saturating_mul(2).saturating_add(items.saturating_mul(ITEM_BYTES / 2))
}

/// What the value of a payload may take. Compressed parts count by what they expand to.
pub(crate) fn restored_bytes(payload: &[u8]) -> u64 {
    /// Nothing in a payload takes less than two bytes, and becomes more than an item with its name.
    const TIMES: u64 = 12;
    let Some(rdb::Weight { bytes, packed_bytes, items }) = rdb::payload::weigh(payload) else { return 0 };
    let (bytes, packed) = (bytes.saturating_mul(3), packed_bytes.saturating_mul(TIMES));
    bytes.saturating_add(packed).saturating_add(items.saturating_mul(ITEM_BYTES))
}

/// How many entries a command delivers or claims that wants so many; 0: all.
fn delivered(count: u64) -> u64 {
    if count == 0 { DELIVERED_MAX as u64 } else { count.min(DELIVERED_MAX as u64) }
}

/// What a combination of collections may take, by the sizes of those that it reads.
fn combined<'k>(
    sizes: &dyn Sizes,
    operation: SetOperation,
    keys: impl Iterator<Item = &'k [u8]>,
    of_one: impl Fn(u64, u64) -> u64,
) -> u64 {
    let mut all = keys.map(|key| of_one(sizes.content_bytes(key), sizes.items(key)));
    match operation {
        SetOperation::Union => all.fold(0, u64::saturating_add),
        SetOperation::Intersection => all.min().unwrap_or(0),
        SetOperation::Difference => all.next().unwrap_or(0),
    }
}

impl HashCommand<'_> {
    fn growth_bytes(&self) -> u64 {
        use HashCommand::*;
        match self {
            IncrementByFloat { .. } => FLOAT_BYTES,
            Get { .. } | MultiGet { .. } | All { .. } | Length { .. } | Exists { .. } => 0,
            ValueLength { .. } | Scan { .. } | Random { .. } | TimeToLive { .. } => 0,
            Delete { .. } | Set { .. } | SetIfAbsent { .. } | IncrementBy { .. } | Expire { .. } => 0,
            Persist { .. } | GetExpire { .. } | SetExpire { .. } | GetDelete { .. } => 0,
        }
    }
}

impl SetCommand<'_> {
    fn growth_bytes(&self, sizes: &dyn Sizes) -> u64 {
        use SetCommand::*;
        match *self {
            Store { operation, keys, .. } => combined(sizes, operation, keys.iter(), collection_bytes),
            Length { .. } | Contains { .. } | ContainsEach { .. } | All { .. } | Random { .. } => 0,
            Scan { .. } | Combine { .. } | CountCommon { .. } => 0,
            Add { .. } | Remove { .. } | Move { .. } | Pop { .. } => 0,
        }
    }
}

impl SortedCommand<'_> {
    fn growth_bytes(&self, sizes: &dyn Sizes) -> u64 {
        use SortedCommand::*;
        // Each member of a set gets a score, and a place in the index of names.
        let sorted = |content: u64, items: u64| collection_bytes(content, 2 * items).saturating_add(content);
        match *self {
            Store { operation, inputs, is_weighted, .. } => {
                let keys = inputs.iter().step_by(if is_weighted { 2 } else { 1 });
                combined(sizes, operation, keys, sorted)
            }
            StoreRange { from, by, ends, is_reverse, skip, count, .. } => {
                let (content, items) = sizes.range(from, by, ends, RangePart { is_reverse, skip, count });
                sorted(content, items)
            }
            StoreFound { from, .. } => sorted(sizes.content_bytes(from), sizes.items(from)),
            Length { .. } | Score { .. } | Scores { .. } | Rank { .. } | Count { .. } | Range { .. } => 0,
            Random { .. } | Scan { .. } | Combine { .. } | CountCommon { .. } | Distance { .. } => 0,
            RankWithScore { .. } | ScanMembers { .. } => 0,
            Hashes { .. } | Places { .. } | Find { .. } => 0,
            Add { .. } | Increment { .. } | Remove { .. } | RemoveRange { .. } | Pop { .. } => 0,
            MultiPop { .. } | PopAny { .. } => 0,
        }
    }
}

impl StreamCommand<'_> {
    fn growth_bytes(&self, sizes: &dyn Sizes) -> u64 {
        use StreamCommand::*;
        match *self {
            ReadGroup { acknowledges: true, .. } => GROUP_BYTES,
            ReadGroup { streams, count, .. } => {
                let entries = streams.pairs().map(|(key, _)| sizes.items(key).min(delivered(count)));
                let entries = entries.fold(0, u64::saturating_add);
                GROUP_BYTES + entries.saturating_mul(PENDING_BYTES)
            }
            // It may create a consumer in each.
            Consume { streams, count, acknowledges, .. } => {
                let most = delivered(count.into());
                let entries = streams.pairs().map(|(key, _)| sizes.items(key).min(most));
                let entries = if acknowledges { 0 } else { entries.fold(0, u64::saturating_add) };
                let consumers = (streams.len() as u64 / 2).saturating_mul(GROUP_BYTES);
                consumers.saturating_add(entries.saturating_mul(PENDING_BYTES))
            }
            // What a producer has sent is in three places, its names in two.
            AddOnce { words, .. } => {
                let names = words.iter().skip(2).take(2).map(|name| 2 * name.len() as u64);
                GROUP_BYTES + names.sum::<u64>()
            }
            Record { producer, name, .. } => GROUP_BYTES + 2 * (producer.len() + name.len()) as u64,
            Release { ids, is_forced: true, .. } => (ids.len() as u64).saturating_mul(PENDING_BYTES),
            CreateGroup { .. } | CreateConsumer { .. } | Claim { .. } | ClaimRange { .. } => GROUP_BYTES,
            Describe { .. } | DescribeFull { .. } | DescribeGroups { .. } | DescribeConsumers { .. } => 0,
            DeleteWith { .. } | AcknowledgeAndDelete { .. } | Release { .. } | Remember { .. } => 0,
            Length { .. } | Range { .. } | Read { .. } | Pending { .. } | PendingRange { .. } => 0,
            Info { .. } | InfoFull { .. } | InfoGroups { .. } | InfoConsumers { .. } => 0,
            Add { .. } | Delete { .. } | Trim { .. } | SetId { .. } | SetGroup { .. } => 0,
            DestroyGroup { .. } | DeleteConsumer { .. } | Acknowledge { .. } => 0,
        }
    }
}

impl BytesCommand<'_> {
    fn growth_bytes(&self, sizes: &dyn Sizes) -> u64 {
        use BytesCommand::*;
        match *self {
            SetBit { key, .. } | ChangeFields { key, .. } => match self.reaches_bytes() {
                0 => 0,
                end => extended(sizes, key, end),
            },
            // The result is built before it is stored.
            Combine { operation, keys, .. } => {
                let longest = keys.iter().map(|key| sizes.string_bytes(key)).max().unwrap_or(0);
                // Some need a second string beside it.
                let strings = match operation {
                    BitOperation::And | BitOperation::Or | BitOperation::Xor | BitOperation::Not => 2,
                    BitOperation::Diff | BitOperation::OthersOnly => 3,
                    BitOperation::AndOr | BitOperation::One => 3,
                };
                longest.saturating_mul(strings)
            }
            Count { key, elements } => counted(sizes.string_bytes(key), elements.len() as u64),
            Merge { .. } => 2 * DENSE_BYTES as u64,
            GetBit { .. } | CountBits { .. } | FindBit { .. } | ReadFields { .. } => 0,
            Estimate { .. } | Common { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, HashCommand, LockCommand};

    /// A key that holds a string of a thousand bytes.
    struct OneKey;

    impl Sizes for OneKey {
        fn content_bytes(&self, key: &[u8]) -> u64 {
            self.string_bytes(key)
        }

        fn string_bytes(&self, key: &[u8]) -> u64 {
            if key == b"large" { 1000 } else { 0 }
        }

        fn items(&self, _: &[u8]) -> u64 {
            0
        }

        fn range(&self, _: &[u8], _: By, _: List<'_>, _: RangePart) -> (u64, u64) {
            (0, 0)
        }

        fn long_growth_bytes(&self, _: ValueId) -> u64 {
            7
        }
    }

    #[test]
    fn growth_is_counted_beyond_the_size_of_the_command() {
        let pad = Command::SetRange { key: b"k", offset: 5000, value: b"v" };
        let inside = Command::SetRange { key: b"large", offset: 900, value: b"v" };
        let copy = Command::Copy { from: b"large", to: b"k", replace: false };
        let append = Command::Append { key: b"large", value: b"v", bytes_max: 9000 };
        let growth = |command: &Command<'_>| command.growth_bytes(&OneKey);
        assert_eq!([growth(&pad), growth(&inside), growth(&copy), growth(&append)], [10_002, 0, 1000, 1501]);
        assert_eq!(growth(&Command::Append { key: b"k", value: b"v", bytes_max: 9 }), 0);
        let mut draft = Draft::default();
        (0..3).for_each(|_| assert!(draft.push(&pad)));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!((growth(&transaction), transaction.may_grow()), (30_006, true));
        assert!(transaction.charge_bytes(&OneKey) > 30_006 && transaction.grows_with_the_table());
        assert!(!append.grows_with_the_table() && copy.grows_with_the_table());
    }

    #[test]
    fn counting_in_a_sketch_is_charged_for_what_the_sketch_grows_by() {
        assert_eq!(counted(DENSE_BYTES as u64, 1000), 0, "in place");
        assert_eq!((counted(0, 1), counted(0, 10)), (21, 48));
        assert_eq!((counted(2000, 1), counted(2000, 10)), (3, 30));
        let dense = 2 * DENSE_BYTES as u64;
        assert_eq!((counted(3014, 1), counted(0, 2000), counted(0, u64::MAX)), (dense, dense, dense));
    }

    #[test]
    fn what_only_deletes_is_not_charged_for_what_it_might_store() {
        let mut scratch = Vec::new();
        let names: Vec<String> = (0..10_000).map(|number| format!("k{number:05}")).collect();
        let keys = List::build(&mut scratch, names.iter().map(String::as_bytes));
        let charge = Command::Delete { keys }.charge_bytes(&OneKey);
        assert!(charge <= CHARGE_BYTES + 16 * 10_000, "{charge} bytes");
    }

    #[test]
    fn commands_that_free_memory_do_not_count_as_growing() {
        let mut scratch = Vec::new();
        let keys = crate::command::List::build(&mut scratch, [&b"k"[..]]);
        let frees = [
            Command::Delete { keys },
            Command::Clear {},
            Command::GetDelete { key: b"k" },
            Command::Hash(HashCommand::Delete { key: b"k", fields: keys }),
            Command::Lock(LockCommand::Release { name: b"l", token: 1 }),
            Command::Lock(LockCommand::Renew { name: b"l", token: 1, lease_ms: 1 }),
        ];
        assert!(frees.iter().all(|command| !command.may_grow()));
        let mut draft = Draft::default();
        assert!(draft.push(&frees[0]) && !Command::Transaction(draft.transaction()).may_grow());
    }
}
