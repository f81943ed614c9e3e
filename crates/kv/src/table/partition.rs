//! One small hash table: entries in the order of their hashes, with gaps.
//!
//! Ordered linear probing (Amble and Knuth, 1974). A hash has a *home*, its preferred place: the hash scaled to the
//! number of homes, so that homes grow with hashes. Entries with the same home follow each other from there, in the
//! order of their hashes; those of the last homes overflow into a tail.
//!
//! Each place has a *tag*, one byte of its hash. A search compares the tags of eight places, from the home on, at once.
//! That takes no branch that the processor could mispredict, so the processor proceeds to the next command while it
//! waits for the memory of this one. An entry not found this way is searched for in the order of hashes: the search
//! ends at a greater hash or at a gap, behind which all hashes are greater.
//!
//! Tags, hashes and entries are stored apart: the tags of a million keys take 1.3 MB, which fits in a cache near the
//! core.

use super::blocks::allocated_bytes;
use super::entry::Entry;

/// The hash of an empty place: greater than every other. See [`super::index::KeyHash`].
const FREE: u32 = u32::MAX;

/// Places whose tags a search compares at once.
const WINDOW: usize = 8;
/// The lowest bit of each tag in a window.
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;
/// The number of homes of the second smallest partition. The smallest has one home: a sorted list of at most [`WINDOW`]
/// entries.
const HOMES_MIN: u32 = 16;
/// An entry that would be farther than this from its home makes the partition grow early, unless the partition is
/// sparse, when growing does not help. At up to four fifths full this never happens by chance; it does when entries are
/// added in the order of their hashes, as from a snapshot of a table with the same seed.
const DISTANCE_MAX: usize = 64;

/// Entries of the keys whose hashes have the same upper bits. Aligned to one cache line, as every search begins by
/// reading it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Partition {
    /// The hash of the entry in each place, or [`FREE`]. From every home on there are at least [`WINDOW`] places.
    hashes: Box<[u32]>,
    /// The tag of the hash in each place; 0 for a gap, but a hash may have tag 0 too.
    tags: Box<[u8]>,
    /// The entry in each place: as many places as `hashes`, except in a partition of one home, which has only as many
    /// as needed. A gap holds the default entry.
    entries: Box<[Entry]>,
    homes: u32,
    count: u32,
    /// The mark of the entry in each place, where accesses are noted: see [`super::eviction`]. One pointer, so that a
    /// partition stays within its cache line.
    marks: Option<Box<Marks>>,
}

#[derive(Debug)]
struct Marks(Box<[u32]>);

// One cache line.
const _: () = assert!(size_of::<Partition>() == 64);

#[inline]
fn home_among(homes: u32, hash: u32) -> usize {
    ((u64::from(hash) * u64::from(homes)) >> 32) as usize
}

/// The bits above the lowest one. Neighbours share the upper bits of their hashes, and the lowest bit is always 0.
#[inline]
fn tag(hash: u32) -> u8 {
    (hash >> 1) as u8
}

impl Partition {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.entries.into_iter().filter(Entry::is_some)
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let marks = self.marks.as_ref().map_or(0, |marks| size_of_val(&*marks.0));
        let runs = [size_of_val(&*self.hashes), self.tags.len(), size_of_val(&*self.entries), marks];
        runs.into_iter().map(allocated_bytes).sum()
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        home_among(self.homes, hash)
    }

    /// Returns the most likely place of an entry with this hash, if that is near its home. Only tags are compared, so
    /// the place may hold another entry or a gap: the caller compares keys.
    #[inline(always)]
    fn likely_place(&self, hash: u32) -> Option<usize> {
        let home = self.home(hash);
        self.begin_wait_for_entries(home);
        let window = u64::from_le_bytes(*self.tags.get(home..)?.first_chunk::<WINDOW>()?);
        // The lowest marked byte is a true match: a zero byte of `differing`, so an equal tag (Mycroft, 1987).
        let differing = window ^ (LOWEST_BITS * u64::from(tag(hash)));
        let equal = differing.wrapping_sub(LOWEST_BITS) & !differing & (LOWEST_BITS << 7);
        if equal == 0 { None } else { Some(home + (equal.trailing_zeros() / u8::BITS) as usize) }
    }

    /// Reads the entries at a home and ignores the result, so that the wait for that memory begins together with the
    /// wait for the tags. Reads one word of each of two lines and no more: see [`super::Table::update`].
    #[inline(always)]
    fn begin_wait_for_entries(&self, home: usize) {
        if let Some([first, _, _, fourth]) =
            self.entries.get(home..).and_then(|entries| entries.first_chunk())
        {
            std::hint::black_box(first.is_apart() ^ fourth.is_apart());
        }
    }

    /// Like [`Partition::likely_place`], but returns the entry there; that of a gap has no key.
    #[inline(always)]
    pub(super) fn likely(&self, hash: u32) -> Option<&Entry> {
        self.entries.get(self.likely_place(hash)?)
    }

    /// Like [`Partition::likely`], but mutable.
    #[inline(always)]
    pub(super) fn likely_mut(&mut self, hash: u32) -> Option<&mut Entry> {
        self.entries.get_mut(self.likely_place(hash)?)
    }

    /// Returns the place of the first entry with this hash that `check` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u32, check: impl Fn(&Entry) -> bool) -> Option<usize> {
        let start = self.lower_bound(hash);
        let equal = self.hashes[start..].iter().take_while(|held| **held == hash).count();
        (start..start + equal).find(|at| self.get(*at).is_some_and(&check))
    }

    /// Returns the place of the first entry whose hash is not less, or where such an entry would be inserted.
    fn lower_bound(&self, hash: u32) -> usize {
        let home = self.home(hash);
        // The hash of a gap is greater than any other.
        home + self.hashes[home..].iter().take_while(|held| **held < hash).count()
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&Entry> {
        self.entries.get(at).filter(|entry| entry.is_some())
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Entry> {
        self.entries.get_mut(at).filter(|entry| entry.is_some())
    }

    /// Iterates over entries and their hashes in the order of hashes, from `hash` on.
    pub(super) fn walk_from(&self, hash: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let start = self.lower_bound(hash);
        let places = self.hashes[start..].iter().zip(&self.entries[start..]);
        places.filter(|(_, entry)| entry.is_some()).map(|(hash, entry)| (*hash, entry))
    }

    /// The place of the entry of `key`.
    pub(super) fn place_of(&self, hash: u32, key: &[u8]) -> Option<usize> {
        let has_key = |at: &usize| self.entries.get(*at).is_some_and(|entry| entry.has_key(key));
        let likely = self.likely_place(hash).filter(has_key);
        likely.or_else(|| self.find(hash, |entry| entry.has_key(key)))
    }

    /// The mark of an occupied place, if marks are kept.
    pub(super) fn mark(&self, at: usize) -> Option<u32> {
        self.marks.as_ref().map(|marks| marks.0[at])
    }

    /// The mark of an occupied place, to change it. If no marks are kept yet, all places get the mark `fresh`.
    pub(super) fn mark_mut(&mut self, at: usize, fresh: u32) -> &mut u32 {
        let places = self.entries.len();
        let marks = self.marks.get_or_insert_with(|| Box::new(Marks(vec![fresh; places].into())));
        &mut marks.0[at]
    }

    /// Drops all marks.
    pub(super) fn drop_marks(&mut self) {
        self.marks = None;
    }

    /// Like [`Partition::walk_from`], with marks.
    pub(super) fn walk_marked_from(&self, hash: u32) -> impl Iterator<Item = (u32, &Entry, Option<u32>)> {
        let places = self.lower_bound(hash)..self.entries.len();
        let held = places.filter(|at| self.hashes[*at] != FREE);
        held.map(|at| (self.hashes[at], &self.entries[at], self.mark(at)))
    }

    /// Iterates mutably over the entries with this hash.
    pub(super) fn all_with_mut(&mut self, hash: u32) -> impl Iterator<Item = &mut Entry> {
        let start = self.lower_bound(hash);
        let places = self.hashes[start..].iter().zip(&mut self.entries[start..]);
        places.take_while(move |(held, _)| **held == hash).map(|(_, entry)| entry)
    }

    /// Adds an entry behind those that already have its hash, with its mark if marks are kept.
    pub(super) fn insert(&mut self, hash: u32, entry: Entry, mark: Option<u32>) {
        if self.is_full() {
            self.rebuild(self.more_homes());
        }
        // No entry has the hash FREE, so `hash + 1` does not overflow.
        let mut at = self.lower_bound(hash + 1);
        if at - self.home(hash) > DISTANCE_MAX && !self.is_sparse() {
            self.rebuild(self.more_homes());
            at = self.lower_bound(hash + 1);
        }
        let gap = loop {
            let places = &self.hashes[at..self.entries.len()];
            match places.iter().position(|held| *held == FREE) {
                Some(distance) => break at + distance,
                None => self.rebuild(self.homes), // Makes the tail longer.
            }
            at = self.lower_bound(hash + 1);
        };
        self.hashes.copy_within(at..gap, at + 1);
        self.hashes[at] = hash;
        self.tags.copy_within(at..gap, at + 1);
        self.tags[at] = tag(hash);
        self.entries[at..=gap].rotate_right(1);
        self.entries[at] = entry;
        self.count += 1;
        match mark {
            Some(mark) => {
                self.mark_mut(at, mark);
                if let Some(marks) = &mut self.marks {
                    marks.0.copy_within(at..gap, at + 1);
                    marks.0[at] = mark;
                }
            }
            None => self.marks = None,
        }
    }

    /// Whether four fifths of the homes are taken. Beyond that, entries are far from their homes.
    fn is_full(&self) -> bool {
        match self.homes {
            0 => true,
            1 => self.count as usize == WINDOW,
            homes => u64::from(self.count) * 5 >= u64::from(homes) * 4,
        }
    }

    /// Whether two thirds of the homes are empty: if entries are far from their homes all the same, their hashes are
    /// equal or nearly so, and more homes do not help.
    fn is_sparse(&self) -> bool {
        u64::from(self.count) * 3 <= u64::from(self.homes)
    }

    fn more_homes(&self) -> u32 {
        if self.count == 0 { 1 } else { (self.homes + self.homes / 2).max(HOMES_MIN) }
    }

    /// The number of homes to shrink to, if there are too many: half of them if less than a sixth is taken, so that a
    /// partition whose size fluctuates does not resize back and forth. Where accesses are noted, keys are evicted, and
    /// empty places take memory from keys: shrink to two thirds if less than two fifths are taken.
    fn fewer_homes(&self) -> Option<u32> {
        let (count, homes) = (u64::from(self.count), u64::from(self.homes));
        match self.marks {
            Some(_) if count * 5 < homes * 2 => Some(self.homes / 3 * 2),
            None if count * 6 < homes => Some(self.homes / 2),
            _ => None,
        }
    }

    /// Takes the entry out of an occupied place, and moves the entries behind it nearer to their homes.
    pub(super) fn remove(&mut self, at: usize) -> Option<Entry> {
        let is_displaced =
            |place: &usize| self.hashes[*place] != FREE && self.home(self.hashes[*place]) < *place;
        let end = at + 1 + (at + 1..self.entries.len()).take_while(is_displaced).count();
        self.hashes.copy_within(at + 1..end, at);
        self.hashes[end - 1] = FREE;
        self.tags.copy_within(at + 1..end, at);
        self.tags[end - 1] = 0;
        if let Some(marks) = &mut self.marks {
            marks.0.copy_within(at + 1..end, at);
        }
        self.entries[at..end].rotate_left(1);
        let entry = std::mem::take(&mut self.entries[end - 1]);
        self.count -= 1;
        if self.count == 0 {
            *self = Partition::default();
        } else if let Some(fewer) = self.fewer_homes() {
            self.rebuild(if fewer < HOMES_MIN { 1 } else { fewer });
        }
        entry.is_some().then_some(entry)
    }

    /// Moves the entries to `homes` homes, with a tail that has room for one more.
    fn rebuild(&mut self, homes: u32) {
        let held = || self.hashes.iter().filter(|hash| **hash != FREE);
        let end = held().fold(0, |end, hash| end.max(home_among(homes, *hash)) + 1);
        let places = if homes == 1 {
            (self.len() + 1).next_power_of_two().min(WINDOW)
        } else {
            end.max(homes as usize) + WINDOW - 1
        };
        let mut hashes = vec![FREE; places.max(WINDOW)].into_boxed_slice();
        let mut tags = vec![0; hashes.len()].into_boxed_slice();
        let mut entries: Box<[Entry]> = std::iter::repeat_with(Entry::default).take(places).collect();
        let mut marks = self.marks.as_ref().map(|_| Box::new(Marks(vec![0; places].into())));
        let mut end = 0;
        let held = self.hashes.iter().zip(&mut self.entries).enumerate();
        for (from, (hash, entry)) in held.filter(|(_, (hash, _))| **hash != FREE) {
            let at = end.max(home_among(homes, *hash));
            hashes[at] = *hash;
            tags[at] = tag(*hash);
            entries[at] = std::mem::take(entry);
            if let (Some(after), Some(before)) = (&mut marks, &self.marks) {
                after.0[at] = before.0[from];
            }
            end = at + 1;
        }
        *self = Partition { hashes, tags, entries, homes, count: self.count, marks };
    }
}

#[cfg(test)]
mod tests {
    use super::super::NO_DEADLINE;
    use super::super::entry::Stamp;
    use super::super::kind::Kind;
    use super::*;
    use std::collections::BTreeMap;

    fn entry(number: u32) -> Entry {
        Entry::new(&number.to_le_bytes(), b"", Stamp { version: 1, deadline: NO_DEADLINE, kind: Kind::Plain })
    }

    fn number_of(entry: &Entry) -> u32 {
        u32::from_le_bytes(entry.key().try_into().unwrap())
    }

    fn place_of(partition: &Partition, hash: u32, number: u32) -> Option<usize> {
        partition.find(hash, |entry| number_of(entry) == number)
    }

    /// The farthest that any entry is from its home.
    fn distance(partition: &Partition) -> usize {
        let places = partition.hashes.iter().enumerate().filter(|(_, hash)| **hash != FREE);
        places.map(|(at, hash)| at - partition.home(*hash)).max().unwrap_or(0)
    }

    fn spread(number: u32) -> u32 {
        number.wrapping_mul(0x9e37_79b1) & !1
    }

    /// Inserts and removes in waves, so that the partition grows and shrinks, and compares it with a sorted map.
    fn compare_with_a_model(hash_of: impl Fn(u32) -> u32) {
        let (mut partition, mut model) = (Partition::default(), BTreeMap::new());
        let mut state = 1u64;
        for step in 0..30_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (state >> 54) as u32;
            let hash = hash_of(number);
            let is_rising = step / 3000 % 2 == 0;
            match place_of(&partition, hash, number) {
                Some(at) if !is_rising || state >> 50 & 7 == 0 => {
                    assert_eq!(partition.remove(at).map(|entry| number_of(&entry)), Some(number));
                    assert_eq!(model.remove(&(hash, number)), Some(()));
                }
                None if is_rising || state >> 50 & 7 == 0 => {
                    partition.insert(hash, entry(number), Some(number));
                    assert_eq!(model.insert((hash, number), ()), None);
                }
                found => assert_eq!(found.is_some(), model.contains_key(&(hash, number))),
            }
            assert_eq!(partition.len(), model.len());
            if step % 100 == 0 {
                let mut held: Vec<_> =
                    partition.walk_from(0).map(|(hash, entry)| (hash, number_of(entry))).collect();
                assert!(held.is_sorted_by_key(|(hash, _)| *hash));
                held.sort();
                assert!(held.iter().eq(model.keys()));
                assert!(partition.walk_marked_from(0).all(|(_, entry, mark)| mark == Some(number_of(entry))));
                let from = hash_of(number);
                assert_eq!(partition.walk_from(from).count(), model.range((from, 0)..).count());
            }
        }
    }

    #[test]
    fn a_partition_matches_a_sorted_map() {
        compare_with_a_model(spread);
        compare_with_a_model(|number| number << 1); // All in the first home.
        compare_with_a_model(|number| FREE - 1 - (number << 1)); // All in the last one.
        compare_with_a_model(|number| spread(number & 15)); // Few different hashes.
        compare_with_a_model(|_| FREE - 1); // One hash.
    }

    #[test]
    fn an_entry_with_a_unique_hash_is_the_likely_one() {
        let mut partition = Partition::default();
        (0..1000).for_each(|number| partition.insert(spread(number), entry(number), Some(number)));
        let near =
            (0..1000).filter(|number| partition.likely(spread(*number)).map(number_of) == Some(*number));
        assert!(near.count() > 980, "nearly all stand in the window of their home");
        let is_none = |number| partition.likely(spread(number)).is_none_or(|entry| !entry.is_some());
        assert!((1000..2000).all(is_none));
    }

    #[test]
    fn entries_added_in_the_order_of_their_hashes_stay_near_home() {
        let mut partition = Partition::default();
        let mut farthest = 0;
        for number in 0..10_000u32 {
            partition.insert(number * 400_000, entry(number), Some(number));
            farthest = farthest.max(distance(&partition));
        }
        assert!(distance(&partition) <= DISTANCE_MAX);
        assert!(farthest < 1000, "{farthest}");
        assert!(partition.homes < 20_000);
    }

    #[test]
    fn an_emptied_partition_has_no_places_and_equal_hashes_do_not_grow_it() {
        let mut partition = Partition::default();
        (0..500).for_each(|number| partition.insert(FREE - 1, entry(number), None));
        assert!(partition.bytes() < 500 * 20 * 6, "{}", partition.bytes());
        while partition.len() > 0 {
            let at = partition.lower_bound(FREE - 1);
            assert!(partition.remove(at).is_some());
        }
        assert_eq!(partition.bytes(), 0);
    }
}
