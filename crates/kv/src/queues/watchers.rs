//! Clients that wait at keys of several groups. Their commands are carried out by transactions over these groups, so nothing is
//! taken for them here: they are woken, and try again.
//!
//! This is no replicated state, and may be lost: only the leader's table has it, and each entry ends after a while. The clients' nodes
//! ask for it again from time to time, and learn from the marks of the keys what they have missed.

use super::QUEUE_REQUESTS_MAX;
use crate::UnixMs;
use crate::command::WaiterId;
use std::collections::BTreeMap;

/// How long a client is noted unless its node asks again, in milliseconds: several times as long as nodes take to do so.
const NOTED_MS: UnixMs = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    until: UnixMs,
    /// The mark of the stream whose entries it waits for. `None`: it waits for elements, or members.
    pub(crate) mark: Option<Box<[u8]>>,
}

/// The clients at a key, by when they began to wait.
type AtKey = BTreeMap<(UnixMs, WaiterId), Watcher>;

/// The clients that are woken. Those that have waited longest are first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchers {
    by_key: BTreeMap<Box<[u8]>, AtKey>,
    /// The entries of all keys.
    count: usize,
    /// When the entries were last looked at that may have ended.
    swept: UnixMs,
}

impl Watchers {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Box<[u8]>> {
        self.by_key.keys()
    }

    /// Whether so many more may be noted.
    pub(crate) fn has_room_for(&self, count: usize) -> bool {
        self.count + count <= QUEUE_REQUESTS_MAX
    }

    /// Notes a client at a key, in the place of its earlier entry there.
    pub(crate) fn add(&mut self, key: &[u8], of: (UnixMs, WaiterId), mark: Option<Box<[u8]>>, now: UnixMs) {
        let watcher = Watcher { until: now + NOTED_MS, mark };
        self.count += match self.by_key.get_mut(key) {
            Some(watchers) => usize::from(watchers.insert(of, watcher).is_none()),
            None => {
                self.by_key.insert(key.into(), [(of, watcher)].into());
                1
            }
        };
    }

    /// Forgets the clients at a key that `ends` returns true for, and returns them, those that have waited longest first.
    pub(crate) fn take(
        &mut self,
        key: &[u8],
        mut ends: impl FnMut(WaiterId, &Watcher) -> bool,
    ) -> Vec<WaiterId> {
        let Some(watchers) = self.by_key.get_mut(key) else { return Vec::new() };
        let ended = watchers.extract_if(.., |(_, id), watcher| ends(*id, watcher));
        let ended: Vec<WaiterId> = ended.map(|((_, id), _)| id).collect();
        if watchers.is_empty() {
            self.by_key.remove(key);
        }
        self.count -= ended.len();
        ended
    }

    /// Forgets clients whose nodes have not asked again, now and then.
    pub(crate) fn sweep(&mut self, now: UnixMs) {
        if self.is_empty() || now < self.swept + NOTED_MS {
            return;
        }
        self.swept = now;
        self.by_key.retain(|_, watchers| {
            watchers.retain(|_, watcher| watcher.until > now);
            !watchers.is_empty()
        });
        self.count = self.by_key.values().map(BTreeMap::len).sum();
    }

    /// Estimated memory in bytes, without the keys.
    pub(crate) fn memory_bytes(&self) -> usize {
        const ENTRY_BYTES: usize = 160;
        self.count * ENTRY_BYTES
    }

    /// Asserts that all parts of the state are consistent. O(entries).
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.count, self.by_key.values().map(BTreeMap::len).sum::<usize>());
        assert!(self.by_key.values().all(|watchers| !watchers.is_empty()));
    }
}
