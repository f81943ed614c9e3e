//! Requests that wait for elements, and what they were served.
//!
//! A client that calls `BLPOP` on an empty list waits in a queue that all replicas know, in the order of the records with
//! the clients' requests, whichever node each client is connected to. The record that adds an element serves the first
//! request in the queue in the same step (`table/queues.rs`). This module is the part of that state machine that does not
//! depend on the keys' values: which requests wait, and what was served.
//!
//! * **What was served is kept until the client has its reply.** A request is first *waiting*, then *served*, then
//!   *claimed* by its node, which repeats the request and gets the reply. When the client has the reply, the node settles
//!   the request, and it is forgotten. So a reply that is lost on its way is requested again, and it is the same.
//! * **What was served and not claimed goes back** to where it came from, when the node withdraws the request (its
//!   client has left) or is lost. No element is lost when a node dies between the grant and the reply.
//! * **What was claimed may have reached the client**, so it goes back only if the node itself reports that it did not. If
//!   the node dies at this moment, the element is lost with it, like one that `LPOP` has taken; it is never given to two
//!   clients.
//!
//! ```text
//!            push                asked again              settled
//!  waiting ---------> served --------------> claimed -------------> forgotten
//!     |                  |                      |
//!     | withdrawn,       | withdrawn,           | withdrawn: goes back
//!     v gone             v gone: goes back      v in another incarnation: forgotten
//! ```
//!
//! A request that can be served when its record is applied is claimed at once. A request that is concluded with nothing is
//! kept as claimed, with that reply, until it is settled: a late record of the same request then takes nothing.

mod copies;
mod watchers;

use crate::Version;
use crate::command::{Awaited, WaiterId, Wish};
use crate::planted::{Fault, Planted};
use std::collections::{BTreeMap, BTreeSet};
use watchers::Watchers;

/// Most requests that may wait at one key.
pub const QUEUE_WAITERS_MAX: usize = 10_000;

/// Most requests of a group that may wait, or be served and not settled.
pub const QUEUE_REQUESTS_MAX: usize = 100_000;

/// Most bytes of the commands that wait in a group.
pub const QUEUE_WISHES_BYTES_MAX: usize = 64 << 20;

/// The state of a request that was served, in the reply to [`QueueCommand::Check`](crate::command::QueueCommand::Check).
pub const SERVED: &[u8] = b"SERVED";

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) id: WaiterId,
    /// The command that it waits for, encoded.
    pub(crate) wish: Box<[u8]>,
}

impl Waiting {
    pub(crate) fn wish(&self) -> Wish<'_> {
        Wish::of(&self.wish).expect("a wish is checked before it waits")
    }
}

/// Where the elements that a request was served go back to, if it does not get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nowhere: they were moved, not taken out, or there are none.
    None,
    /// To the front of the list.
    Front,
    /// To the end of the list.
    End,
    /// Into the sorted set.
    Members,
}

/// What a request was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// Its place in the order in which requests were served: the record's version, and its number in the record.
    pub(crate) order: (Version, u32),
    pub(crate) is_claimed: bool,
    pub(crate) origin: Origin,
    /// The reply to the command.
    pub(crate) reply: Box<[u8]>,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStatistics {
    /// Replies with elements that were claimed and did not go back, in the history of the group: the same on all replicas.
    /// Their elements were received by their clients, or lost on the way.
    pub claimed: u64,
    /// Requests that had to wait and were served. This counter and those below are each replica's own, since its state was
    /// created.
    pub served: u64,
    /// Replies whose elements went back to where they came from.
    pub returned: u64,
    /// Replies whose elements could not go back, because the key was of another kind by then.
    pub dropped: u64,
}

/// The requests of a group that wait for elements, and what they were served.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// By place: the version of the record with the request.
    waiting: BTreeMap<Version, Waiting>,
    places: BTreeMap<WaiterId, Version>,
    /// The places of the requests that wait at each key, grouped by the kind of value they wait for.
    by_key: BTreeMap<Box<[u8]>, BTreeSet<(Awaited, Version)>>,
    wish_bytes: usize,
    served: BTreeMap<WaiterId, Served>,
    served_bytes: usize,
    /// The served requests that are not claimed.
    unclaimed: BTreeSet<WaiterId>,
    /// Clients that wait at keys of several groups. Not a part of the replicated state.
    pub(crate) watchers: Watchers,
    statistics: QueueStatistics,
    planted: Planted,
}

impl Queues {
    /// Plants a fault, in tests.
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    pub(crate) fn has_planted(&self, fault: Fault) -> bool {
        self.planted.has(fault)
    }

    // Changes.

    /// Adds a request that waits at some keys, behind all others. `place` is the version of its record.
    pub(crate) fn add(&mut self, place: Version, id: WaiterId, wish: Wish<'_>) {
        let (awaited, keys) = wish.command().awaited().expect("a wish waits");
        for key in keys.iter() {
            match self.by_key.get_mut(key) {
                Some(places) => drop(places.insert((awaited, place))),
                None => drop(self.by_key.insert(key.into(), [(awaited, place)].into())),
            }
        }
        self.wish_bytes += wish.bytes().len();
        self.waiting.insert(place, Waiting { id, wish: wish.bytes().into() });
        self.places.insert(id, place);
    }

    /// Takes a request out of its queues.
    pub(crate) fn remove_waiting(&mut self, id: WaiterId) -> Option<Waiting> {
        let place = self.places.remove(&id)?;
        let waiting = self.waiting.remove(&place).expect("a request with a place waits there");
        let (awaited, keys) = waiting.wish().command().awaited().expect("a wish waits");
        for key in keys.iter() {
            if let Some(places) = self.by_key.get_mut(key) {
                places.remove(&(awaited, place));
                if places.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        self.wish_bytes -= waiting.wish.len();
        Some(waiting)
    }

    /// Keeps the reply that a request was served.
    pub(crate) fn keep(&mut self, id: WaiterId, served: Served) {
        self.served_bytes += served.reply.len();
        // Requests that are claimed at once have not waited.
        if !served.is_claimed {
            self.unclaimed.insert(id);
            self.statistics.served += 1;
        } else if served.origin != Origin::None {
            self.statistics.claimed += 1;
        }
        let before = self.served.insert(id, served);
        assert!(before.is_none(), "a request is served once");
    }

    /// Marks a served request as claimed, and returns the reply.
    pub(crate) fn claim(&mut self, id: WaiterId) -> Option<&[u8]> {
        let served = self.served.get_mut(&id)?;
        served.is_claimed = true;
        if self.unclaimed.remove(&id) && served.origin != Origin::None {
            self.statistics.claimed += 1;
        }
        Some(&served.reply)
    }

    /// Forgets a served request, and returns what it was served.
    pub(crate) fn remove_served(&mut self, id: WaiterId) -> Option<Served> {
        let served = self.served.remove(&id)?;
        self.served_bytes -= served.reply.len();
        self.unclaimed.remove(&id);
        Some(served)
    }

    /// Forgets a served request because its elements go back, and returns what it was served.
    pub(crate) fn take_back(&mut self, id: WaiterId) -> Option<Served> {
        let served = self.remove_served(id)?;
        if served.is_claimed && served.origin != Origin::None {
            // An untrusted snapshot may have a count that is too low.
            self.statistics.claimed = self.statistics.claimed.saturating_sub(1);
        }
        Some(served)
    }

    /// Counts a reply whose elements went back, or could not.
    pub(crate) fn count_return(&mut self, went_back: bool) {
        match went_back {
            true => self.statistics.returned += 1,
            false => self.statistics.dropped += 1,
        }
    }

    // Queries.

    /// Whether anyone waits at a key.
    pub(crate) fn is_awaited(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key) || self.watchers.has(key)
    }

    /// The keys at which anyone waits.
    pub(crate) fn awaited_keys(&self) -> impl Iterator<Item = &Box<[u8]>> {
        self.by_key.keys().chain(self.watchers.keys())
    }

    /// The request that has waited longest for this at a key.
    pub(crate) fn first_at(&self, key: &[u8], awaited: Awaited) -> Option<WaiterId> {
        let places = self.by_key.get(key)?;
        let (_, place) = places.range((awaited, 0)..=(awaited, Version::MAX)).next()?;
        self.waiting.get(place).map(|waiting| waiting.id)
    }

    /// The requests that wait for this at a key, in order.
    pub(crate) fn all_at(&self, key: &[u8], awaited: Awaited) -> Vec<WaiterId> {
        let places = self.by_key.get(key).into_iter();
        let places = places.flat_map(|places| places.range((awaited, 0)..=(awaited, Version::MAX)));
        places.filter_map(|(_, place)| self.waiting.get(place)).map(|waiting| waiting.id).collect()
    }

    /// What a request waits for.
    pub(crate) fn wish_of(&self, id: WaiterId) -> Option<&[u8]> {
        Some(&self.waiting.get(self.places.get(&id)?)?.wish)
    }

    /// Whether a request waits.
    pub(crate) fn waits(&self, id: WaiterId) -> bool {
        self.places.contains_key(&id)
    }

    /// What a request was served.
    pub(crate) fn served_to(&self, id: WaiterId) -> Option<&Served> {
        self.served.get(&id)
    }

    /// Whether there is room for one more request.
    pub(crate) fn has_room_for(&self, wish: Wish<'_>) -> bool {
        let (_, keys) = wish.command().awaited().expect("a wish waits");
        let is_full = |key| self.by_key.get(key).is_some_and(|places| places.len() >= QUEUE_WAITERS_MAX);
        self.waiting.len() + self.served.len() < QUEUE_REQUESTS_MAX
            && self.wish_bytes + wish.bytes().len() <= QUEUE_WISHES_BYTES_MAX
            && !keys.iter().any(is_full)
    }

    /// The waiting requests of a node, except those of the `spared` incarnation, if any.
    pub(crate) fn waiting_of(&self, node: u16, spared: Option<u64>) -> Vec<WaiterId> {
        let ranges = WaiterId::of_node(node, spared).into_iter();
        ranges.flat_map(|range| self.places.range(range)).map(|(id, _)| *id).collect()
    }

    /// The served requests of a node, except those of the `spared` incarnation, if any; the one served last comes first.
    pub(crate) fn served_of(&self, node: u16, spared: Option<u64>) -> Vec<WaiterId> {
        let ranges = WaiterId::of_node(node, spared).into_iter();
        let mut served: Vec<_> =
            ranges.flat_map(|range| self.served.range(range)).map(|(id, it)| (it.order, *id)).collect();
        served.sort_unstable_by(|one, other| other.cmp(one));
        served.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether there are requests that a node made in an incarnation other than `life`.
    pub fn has_requests_of_other_lives(&self, node: u16, life: u64) -> bool {
        WaiterId::of_node(node, Some(life)).into_iter().any(|range| {
            self.places.range(range.clone()).next().is_some() || self.served.range(range).next().is_some()
        })
    }

    /// The nodes with requests that wait, or were served and are not claimed, in ascending order.
    pub fn coordinators(&self) -> Vec<u16> {
        WaiterId::nodes(|from| {
            let waiting = self.places.range(from..).next().map(|(id, _)| *id);
            let unclaimed = self.unclaimed.range(from..).next().copied();
            waiting.into_iter().chain(unclaimed).min()
        })
    }

    /// Whether no request waits, and no served request is unclaimed.
    pub fn is_still(&self) -> bool {
        self.waiting.is_empty() && self.unclaimed.is_empty()
    }

    /// Whether no request waits, and no client that is only woken.
    #[inline]
    pub fn nobody_waits(&self) -> bool {
        self.waiting.is_empty() && self.watchers.is_empty()
    }

    /// The requests that wait.
    pub fn requests(&self) -> impl Iterator<Item = WaiterId> {
        self.places.keys().copied()
    }

    /// The requests that wait, and those that were served and are not settled.
    pub fn all(&self) -> impl Iterator<Item = WaiterId> {
        self.places.keys().chain(self.served.keys()).copied()
    }

    /// The number of requests that wait.
    pub fn waiters(&self) -> usize {
        self.waiting.len()
    }

    /// The number of requests that were served and are not settled.
    pub fn unsettled(&self) -> usize {
        self.served.len()
    }

    /// The number of requests whose elements are kept until they are claimed. O(unclaimed requests).
    pub fn kept(&self) -> usize {
        let served = self.unclaimed.iter().filter_map(|id| self.served.get(id));
        served.filter(|served| served.origin != Origin::None).count()
    }

    /// The requests that were served and are not claimed.
    pub fn unclaimed(&self) -> impl Iterator<Item = WaiterId> {
        self.unclaimed.iter().copied()
    }

    /// The counters so far.
    pub fn statistics(&self) -> QueueStatistics {
        self.statistics
    }

    /// Estimated memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        const WAITING_BYTES: usize = 320;
        const SERVED_BYTES: usize = 160;
        self.waiting.len() * WAITING_BYTES
            + self.served.len() * SERVED_BYTES
            + 3 * self.wish_bytes
            + self.watchers.memory_bytes()
            + self.served_bytes
    }

    /// Asserts that all parts of the state are consistent. O(requests).
    pub fn check_invariants(&self) {
        self.watchers.check_invariants();
        let mut by_key = BTreeMap::<Box<[u8]>, BTreeSet<(Awaited, Version)>>::new();
        for (place, waiting) in &self.waiting {
            assert_eq!(self.places.get(&waiting.id), Some(place), "a waiting request has a place");
            assert!(!self.served.contains_key(&waiting.id), "a waiting request was not served");
            let (awaited, keys) = waiting.wish().command().awaited().expect("a wish waits");
            for key in keys.iter() {
                by_key.entry(key.into()).or_default().insert((awaited, *place));
            }
        }
        assert_eq!(self.places.len(), self.waiting.len());
        assert_eq!(by_key, self.by_key, "a waiting request is in the queues of its keys");
        let wish_bytes: usize = self.waiting.values().map(|waiting| waiting.wish.len()).sum();
        let served_bytes: usize = self.served.values().map(|served| served.reply.len()).sum();
        let unclaimed = self.served.iter().filter(|(_, served)| !served.is_claimed).map(|(id, _)| *id);
        assert_eq!(unclaimed.collect::<BTreeSet<_>>(), self.unclaimed);
        assert_eq!((wish_bytes, served_bytes), (self.wish_bytes, self.served_bytes));
        let has_claimed = |served: &&Served| served.is_claimed && served.origin != Origin::None;
        let claimed = self.served.values().filter(has_claimed).count() as u64;
        assert!(claimed <= self.statistics.claimed, "claimed requests that are not settled are counted");
    }
}
