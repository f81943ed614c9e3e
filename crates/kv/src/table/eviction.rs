//! Eviction: which keys a leader removes to keep a bound on memory, and how often and when keys are used.
//!
//! A leader chooses a key ([`Table::choose`]) and orders [`crate::Command::Evict`], so replicas agree on what exists.
//! The record names the key's version: a key that was written after the choice stays.
//!
//! The least recently or least frequently used key is not searched for among all keys. A leader takes the best of
//! [`SAMPLES`] neighbours in the order of hashes, which is independent of use. Redis takes the best of five and remembers
//! some from earlier rounds. Neighbours are adjacent in memory, so 32 of them cost less than five scattered keys.
//!
//! Where the policy needs it, each entry has a *mark* of 32 bits in its partition, beside the tags. It holds the time of
//! the last access and whether that was the first one; or a counter that grows with the logarithm of the number of accesses
//! and shrinks with time (as Redis's does), and the time of the last access. Marks are not replicated. A replica knows of
//! the reads that it has answered and the writes that it has applied.

use super::draws::mix;
use super::entry::Entry;
use super::index::KeyHash;
use super::{NO_DEADLINE, Record, Table};
use crate::command::{Command, FormerUse, Usage};
use crate::planted::Fault;
use crate::reply::ReplyBuffer;
use crate::{UnixMs, Version};
use std::collections::VecDeque;
use std::ops::Bound::{Excluded, Unbounded};

/// Approximate bytes, besides its own, that a command takes while it is under way, or that it adds for a new key.
pub const COMMAND_BYTES: usize = 64;

/// The most memory that this many bytes of keys and values take, beside [`COMMAND_BYTES`]: blocks of the allocator are up
/// to a quarter longer than what they hold.
pub fn blocks_bytes_max(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 4)
}

/// How many keys are compared before one is evicted.
const SAMPLES: usize = 32;
/// How many entries are visited to find them: few may be candidates.
const VISITED_MAX: usize = 512;

/// How many keys are chosen by their deadlines before the search starts again at the earliest deadline.
const LOOKED_THROUGH_AFTER: u32 = 64;

/// Bytes of the index and of the order of deadlines that a key takes beside its entry.
const PLACE_BYTES: usize = 30;

/// The unit of the times in marks, in bits of a millisecond count: 16 ms. The time of the last access wraps around after
/// a year.
const RECENT_SHIFT: u32 = 4;
/// In a mark without a counter: the key was used again after it was added.
const USED_AGAIN: u32 = 1;
/// A key that was not used since it was added counts as unused for this many times as long, or as used this many times
/// less. Otherwise keys that are requested once, as by a scan, take the places of those that are requested repeatedly.
const ONCE_FACTOR: u32 = 4;
/// The same unit where 24 bits are left beside a counter: a quarter of a second. The time wraps around after 49 days.
const FREQUENT_SHIFT: u32 = 8;
const COUNTER_BITS: u32 = 8;
/// The counter of a new key, chosen so that it is not the next to be evicted.
const COUNTER_FIRST: u32 = 5;
/// The higher this is, the more accesses each step takes. With 10, a million accesses fill the counter.
const COUNTER_SLOWNESS: u64 = 10;
/// A counter goes down by one in this time.
const DECAY_MS: u64 = 60_000;

/// Which keys are evicted when a bound on memory is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// None: writes are refused.
    #[default]
    None,
    /// The least recently used.
    Lru,
    /// The least frequently used.
    Lfu,
    /// The least recently modified.
    Lrm,
    /// Any.
    Random,
    /// Of those that expire, the one that expires first.
    Ttl,
    /// Of those that expire, the least recently used.
    VolatileLru,
    /// Of those that expire, the least frequently used.
    VolatileLfu,
    /// Of those that expire, the least recently modified.
    VolatileLrm,
    /// Of those that expire, any.
    VolatileRandom,
}

/// What marks record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Recent,
    Frequent,
}

impl Eviction {
    /// Whether only keys that expire are evicted.
    fn is_volatile(self) -> bool {
        use Eviction::*;
        matches!(self, Ttl | VolatileLru | VolatileLfu | VolatileLrm | VolatileRandom)
    }

    /// Whether the key that was written the longest ago is evicted. Its version tells that, so nothing is
    /// noted.
    pub fn goes_by_writes(self) -> bool {
        matches!(self, Eviction::Lrm | Eviction::VolatileLrm)
    }

    fn goes_by(self) -> Option<Use> {
        use Eviction::*;
        match self {
            Lru | VolatileLru => Some(Use::Recent),
            Lfu | VolatileLfu => Some(Use::Frequent),
            None | Lrm | VolatileLrm | Random | Ttl | VolatileRandom => Option::None,
        }
    }
}

/// A key to evict.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'t> {
    /// The key.
    pub key: &'t [u8],
    /// Its version.
    pub version: Version,
    /// Approximately the bytes that its removal frees.
    pub bytes: usize,
    /// What to give to [`Chooser::end`].
    pub name: u64,
}

/// The evictions that a leader has ordered and that have no outcome yet. It does not choose these keys again.
///
/// An eviction counts as under way until its deadline at most. So a leader continues whatever happened to the command.
#[derive(Debug, Default)]
pub struct Chooser {
    draws: u64,
    /// Sorted by hash.
    under_way: Vec<UnderWay>,
    /// The sum of the bytes that they will free.
    bytes: usize,
    /// The deadlines of these evictions, and of some that have ended, in the order in which they began.
    deadlines: VecDeque<(u64, KeyHash)>,
    /// The last key that was chosen by its deadline, since the search last started at the earliest deadline.
    behind: (UnixMs, KeyHash),
    /// The number of keys chosen since then.
    chosen_behind: u32,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    hash: KeyHash,
    /// The bytes that its removal frees.
    bytes: usize,
    until_us: u64,
}

impl Chooser {
    /// Bytes that the evictions under way will free, including those that their commands take until then.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no eviction is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Notes that a victim's eviction is under way, until `until_us` at most, which must not decrease from call to call.
    pub fn begin(&mut self, victim: &Victim<'_>, until_us: u64) {
        let command_bytes = COMMAND_BYTES + victim.key.len();
        let bytes = victim.bytes + command_bytes;
        let hash = KeyHash::from_number(victim.name);
        let Err(at) = self.place(hash) else { unreachable!("what is under way is not chosen again") };
        self.under_way.insert(at, UnderWay { hash, bytes, until_us });
        self.bytes += bytes;
        self.deadlines.push_back((until_us, hash));
    }

    /// Notes that the eviction with this name has ended, whatever its outcome.
    pub fn end(&mut self, name: u64) {
        if let Ok(at) = self.place(KeyHash::from_number(name)) {
            self.bytes -= self.under_way.remove(at).bytes;
        }
        self.end_overdue(0);
    }

    /// Ends the evictions whose deadline has passed.
    pub fn end_overdue(&mut self, now_us: u64) {
        while let Some((until_us, hash)) = self.deadlines.front() {
            let found = self.place(*hash).ok().filter(|at| self.under_way[*at].until_us == *until_us);
            match found {
                Some(_) if *until_us > now_us => return,
                Some(at) => self.bytes -= self.under_way.remove(at).bytes,
                None => {}
            }
            self.deadlines.pop_front();
        }
    }

    /// Checks that the sums are right, and that everything under way will end.
    ///
    /// # Panics
    /// When they are not.
    pub fn check_invariants(&self) {
        assert_eq!(self.bytes, self.under_way.iter().map(|it| it.bytes).sum::<usize>());
        let ends = |it: &UnderWay| self.deadlines.contains(&(it.until_us, it.hash));
        assert!(self.under_way.iter().all(ends), "an eviction has no end");
        assert!(self.deadlines.iter().is_sorted_by_key(|(until_us, _)| *until_us));
    }

    fn place(&self, hash: KeyHash) -> Result<usize, usize> {
        self.under_way.binary_search_by_key(&hash, |it| it.hash)
    }

    /// A random hash; all are equally probable.
    fn draw(&mut self) -> KeyHash {
        self.draws += 1;
        KeyHash::from_number(mix(self.draws) >> (u64::BITS - KeyHash::BITS))
    }

    fn is_chosen(&self, hash: KeyHash) -> bool {
        self.place(hash).is_ok()
    }
}

/// How a table notes the use of its keys.
#[derive(Debug, Default)]
pub(super) struct Uses {
    goes_by: Option<Use>,
    /// The number of draws for steps of counters.
    draws: u64,
}

impl Uses {
    /// Whether accesses are noted.
    pub(super) fn is_on(&self) -> bool {
        self.goes_by.is_some()
    }
}

/// A mark with the time of the last access in all bits but the last.
fn recent(now: UnixMs) -> u32 {
    ((now >> RECENT_SHIFT) as u32) << 1
}

/// How long a key with such a mark was not used, in the unit of the mark's time.
fn idle(mark: u32, now: UnixMs) -> u32 {
    recent(now).wrapping_sub(mark & !USED_AGAIN) >> 1
}

/// A mark with a counter: the time of the last access in the upper bits.
fn frequent(now: UnixMs, counter: u32) -> u32 {
    ((now >> FREQUENT_SHIFT) as u32) << COUNTER_BITS | counter
}

/// How long a key with such a mark was not used, in the unit of the mark's time.
fn unused(mark: u32, now: UnixMs) -> u32 {
    frequent(now, 0).wrapping_sub(mark & !0xff) >> COUNTER_BITS
}

/// The counter in a mark, less its decay until now.
fn counter(mark: u32, now: UnixMs) -> u32 {
    let lost = (u64::from(unused(mark, now)) << FREQUENT_SHIFT) / DECAY_MS;
    (mark & 0xff).saturating_sub(lost.min(0xff) as u32)
}

impl Table {
    /// Sets the policy by which keys are evicted, and thereby which accesses are noted from now on. O(1), unless accesses
    /// were noted before and are no longer noted, or noted differently.
    pub fn set_eviction(&mut self, eviction: Eviction) {
        let goes_by = eviction.goes_by();
        if self.uses.goes_by != goes_by {
            self.uses.goes_by = goes_by;
            self.index.drop_marks();
            self.observe();
        }
    }

    /// Notes an access to the keys of a command that is about to be carried out, if accesses are noted. Keys that the
    /// command adds count as new at this time.
    #[inline(never)]
    pub(super) fn note_uses(&mut self, command: &Command<'_>, now: UnixMs) {
        let Some(goes_by) = self.uses.goes_by else { return };
        self.index.set_fresh_mark(match goes_by {
            Use::Recent => recent(now),
            Use::Frequent => frequent(now, COUNTER_FIRST),
        });
        use Command::{Dump, Encoding, Evict, MemoryUsage, NewestToken, TimeToLive, Type, Used, Watch};
        // These commands ask about a key, not for its value.
        if matches!(
            command,
            Encoding { .. }
                | MemoryUsage { .. }
                | NewestToken { .. }
                | Used { .. }
                | TimeToLive { .. }
                | Type { .. }
                | Watch { .. }
                | Dump { .. }
                | Evict { .. }
        ) {
            return;
        }
        command.for_each_key(|key| {
            let hash = self.index.hash(key);
            let Uses { draws, .. } = &mut self.uses;
            self.index.change_mark(hash, key, |mark| match goes_by {
                Use::Recent => recent(now) | USED_AGAIN,
                Use::Frequent => {
                    let before = counter(mark, now);
                    *draws += 1;
                    let above = u64::from(before.saturating_sub(COUNTER_FIRST));
                    let steps = mix(*draws).is_multiple_of(above * COUNTER_SLOWNESS + 1);
                    frequent(now, (before + u32::from(steps)).min(0xff))
                }
            });
        });
    }

    /// Notes how a restored value was used before, if the policy here goes by that kind of use. O(1).
    pub(super) fn note_former_use(&mut self, key: &[u8], used: FormerUse, now: UnixMs) {
        // The time of the last access wraps around after a year.
        const IDLE_MS_MOST: u64 = 180 * 24 * 3_600_000;
        let mark = match (used, self.uses.goes_by) {
            (FormerUse::Idle(seconds), Some(Use::Recent)) => {
                let ms = (u64::from(seconds) * 1000).min(IDLE_MS_MOST);
                recent(now.saturating_sub(ms)) | USED_AGAIN
            }
            (FormerUse::Frequency(counter), Some(Use::Frequent)) => frequent(now, counter.into()),
            _ => return,
        };
        self.index.change_mark(self.index.hash(key), key, |_| mark);
    }

    /// Chooses a key to evict that is not chosen already; `None` if there is none, or none was found among 512 neighbours.
    /// With `fragments` a victim's fragment counts as memory. The cost does not grow with the number of keys.
    pub fn choose<'t>(
        &'t self,
        eviction: Eviction,
        now: UnixMs,
        chooser: &mut Chooser,
        fragments: bool,
    ) -> Option<Victim<'t>> {
        if eviction == Eviction::None {
            return None;
        }
        let sampled = match eviction {
            Eviction::Ttl => None,
            _ => self.sample(eviction, now, chooser),
        };
        let first = |chooser: &mut Chooser| match eviction.is_volatile() {
            true => self.first_not_chosen(chooser),
            false => None,
        };
        let (hash, entry) = sampled.or_else(|| first(chooser))?;
        let reference = entry.reference().filter(|reference| fragments && !reference.is_spilled());
        let elsewhere = reference.map_or(0, |reference| reference.fragment_bytes());
        Some(Victim {
            key: entry.key(),
            version: entry.version(),
            bytes: entry.memory_bytes() + PLACE_BYTES + elsewhere,
            name: hash.number(),
        })
    }

    /// The best victim among some neighbours.
    fn sample(&self, eviction: Eviction, now: UnixMs, chooser: &mut Chooser) -> Option<(KeyHash, &Entry)> {
        let start = chooser.draw();
        let around =
            self.index.walk_marked_from(start).chain(self.index.walk_marked_from(KeyHash::default()));
        let is_candidate = |(hash, entry, _): &(KeyHash, &Entry, Option<u32>)| {
            (!eviction.is_volatile() || entry.deadline() != NO_DEADLINE) && !chooser.is_chosen(*hash)
        };
        let candidates = around.take(VISITED_MAX.min(self.index.len())).filter(is_candidate);
        let by_writes = eviction.goes_by_writes();
        let samples = if by_writes || eviction.goes_by().is_some() { SAMPLES } else { 1 };
        let worth_of_use = |mark: u32| match eviction.goes_by() {
            Some(Use::Recent) if mark & USED_AGAIN == 0 => idle(mark, now).saturating_mul(ONCE_FACTOR),
            Some(Use::Recent) => idle(mark, now),
            // Among keys with the same counter, the one unused for the longest time is best.
            Some(Use::Frequent) => {
                let is_once = mark & 0xff == COUNTER_FIRST;
                let counted = counter(mark, now) / if is_once { ONCE_FACTOR } else { 1 };
                (0xff - counted) << (32 - COUNTER_BITS) | unused(mark, now)
            }
            None => 0,
        };
        // Among equals choose at random: always the first or the last would leave growing gaps, in which there is nothing
        // to evict.
        let lot = |hash: &KeyHash| mix(hash.number() ^ start.number());
        let worth = |entry: &Entry, mark: Option<u32>| match by_writes {
            true => Version::MAX - entry.version(),
            false => mark.map_or(0, worth_of_use).into(),
        };
        let best =
            candidates.take(samples).max_by_key(|(hash, entry, mark)| (worth(entry, *mark), lot(hash)));
        best.map(|(hash, entry, _)| (hash, entry))
    }

    /// The key that expires first of those that are not chosen. This is approximate: a new key may expire earlier than
    /// those where the search continues.
    fn first_not_chosen(&self, chooser: &mut Chooser) -> Option<(KeyHash, &Entry)> {
        let first_behind = |chooser: &Chooser| {
            let mut behind = self.expiries.range((Excluded(chooser.behind), Unbounded));
            behind.find(|(_, hash)| !chooser.is_chosen(*hash)).copied()
        };
        let mut first = None;
        if chooser.chosen_behind < LOOKED_THROUGH_AFTER && !chooser.is_empty() {
            first = first_behind(chooser);
        }
        if first.is_none() {
            (chooser.behind, chooser.chosen_behind) = Default::default();
            first = first_behind(chooser);
        }
        let (deadline, hash) = first?;
        chooser.behind = (deadline, hash);
        chooser.chosen_behind += 1;
        let (_, entry) = self.index.find(hash, |entry| entry.deadline() == deadline)?;
        Some((hash, entry))
    }

    /// Removes a key if it still has this version.
    pub(super) fn evict(&mut self, key: &[u8], version: Version, record: Record, out: &mut ReplyBuffer) {
        if self.queues.has_planted(Fault::EvictsApart) && self.is_quiet {
            return self.evict_apart(record, out);
        }
        let hash = self.index.hash(key);
        let found = self.find(hash, key).filter(|(_, entry)| entry.version() == version);
        let found = found.map(|(place, _)| place);
        if let Some(place) = found {
            self.remove_evicted(place, record);
        }
        out.integer(found.is_some().into());
    }

    /// A planted fault: this replica evicts a key of its own choice.
    #[cold]
    fn evict_apart(&mut self, record: Record, out: &mut ReplyBuffer) {
        let mut chooser = Chooser { draws: record.version, ..Chooser::default() };
        let chosen = self.choose(Eviction::Random, record.time, &mut chooser, false);
        let place = chosen.and_then(|victim| {
            let (place, _) = self.find(self.index.hash(victim.key), victim.key)?;
            Some(place)
        });
        if let Some(place) = place {
            self.remove(place, record);
        }
        out.integer(1);
    }

    /// Does not count as an access.
    pub(super) fn usage(&mut self, key: &[u8], usage: Usage, now: UnixMs, out: &mut ReplyBuffer) -> Version {
        let Some(version) = self.peek(key, now).map(Entry::version) else {
            out.null();
            return 0;
        };
        let mark = self.index.mark(self.index.hash(key), key);
        match (usage, self.uses.goes_by) {
            (Usage::Idle, Some(Use::Recent)) => {
                let units = mark.map_or(0, |mark| idle(mark, now));
                out.integer(((u64::from(units) << RECENT_SHIFT) / 1000) as i64);
            }
            (Usage::Frequency, Some(Use::Frequent)) => {
                out.integer(mark.map_or(COUNTER_FIRST, |mark| counter(mark, now)).into());
            }
            (Usage::Idle, Some(Use::Frequent)) => out.error(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
                 policies at runtime LRU and LFU data will take some time to adjust.",
            ),
            (Usage::Idle, None) => out.error(
                "ERR OBJECT IDLETIME is refused: times of access are kept where the keyspace's eviction is lru or volatile-lru",
            ),
            (Usage::Frequency, _) => out.error(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
                 between policies at runtime LRU and LFU data will take some time to adjust.",
            ),
        }
        version
    }
}
