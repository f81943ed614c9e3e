//! Clients that keep what they read (`CLIENT TRACKING`), and what must hold of what they keep.
//!
//! Such a client reads keys that it does not keep, and keeps each reply until its node sends an invalidation or its
//! connection ends. Instead of reading what it keeps it sends `PING`.
//!
//! The promise: a write that was acknowledged for [`BOUND_US`] is in no cache as an older value. So a value that is
//! kept at some moment was the key's value at some moment at most that long ago. When a client drops a value, this is
//! recorded as a read that took place within that time, and judged with all other operations. Only a value kept for
//! longer than the bound adds anything to the read that fetched it.
//!
//! A client cannot know that its node stands still, so "now" is the latest moment at which its node is known to have
//! ended a turn: when the request before the last one was sent, since a node answers the last one in a later turn.

use crate::events::Place;
use crate::operation::{Key, Kind, Operation, Reply, Value};
use crate::promise::Space;
use crate::random::Random;
use std::collections::BTreeMap;

/// The bound of `docs/design/tracking.md`, in microseconds by a clock that runs 1 % slow.
const BOUND_US: u64 = 1_111_000;

/// A value kept for longer than the bound, as a read between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlasted {
    pub(crate) operation: Operation,
    pub(crate) reply: Reply,
    pub(crate) node: Place,
    pub(crate) start: u64,
}

/// What a client keeps.
#[derive(Debug)]
pub(crate) struct Caching {
    /// Whether it gets invalidations for all keys, not only for those that it has read (`BCAST`).
    pub(crate) is_broadcast: bool,
    kept: BTreeMap<Key, (Operation, Reply, Place, u64)>,
    /// When the last two answered requests of this connection were sent, the later one first.
    answered: [u64; 2],
}

impl Caching {
    pub(crate) fn new(is_broadcast: bool) -> Caching {
        Caching { is_broadcast, kept: BTreeMap::new(), answered: [0; 2] }
    }

    /// Handles a new connection: nothing is known of its node yet.
    pub(crate) fn connect(&mut self) {
        self.answered = [0; 2];
    }

    /// Draws its next read in the keyspace with the given index.
    pub(crate) fn draw(&self, index: usize, space: &Space, random: &mut Random) -> Operation {
        let mut classes = vec![b'k'];
        for (kind, class) in [(Kind::Increment, b'n'), (Kind::SetFleeting, b'e'), (Kind::Transact, b'p')] {
            classes.extend(space.kinds.contains(&kind).then_some(class));
        }
        let class = random.pick(&classes);
        let key = Key { space: index as u8, class, number: random.below(space.keys.into()) as u8 };
        let kind = match class {
            b'e' => Kind::GetFleeting,
            _ if space.runs_scripts && random.percent(50) => Kind::GetByScript,
            _ => Kind::Get,
        };
        // Half of these do not declare the key that they read, where one shard has all keys.
        let computes = kind == Kind::GetByScript && space.keyspace.shards == 1 && random.percent(50);
        match self.kept.contains_key(&key) {
            false => Operation::new(kind, key, Value { number: computes.into(), padding: 0 }),
            true => Operation::new(Kind::Ping, key, Value::default()),
        }
    }

    /// Takes the reply to a request that was sent at `start`.
    pub(crate) fn learn(&mut self, operation: Operation, reply: Reply, node: Place, start: u64) {
        self.answered = [start, self.answered[0]];
        if reply.is_done() && operation.kind != Kind::Ping {
            self.kept.insert(operation.key, (operation, reply, node, start));
        }
    }

    /// Drops one key, given as its node names it, or all. `prefix_of` returns the prefix of a keyspace.
    pub(crate) fn drop<'p>(
        &mut self,
        key: Option<&[u8]>,
        prefix_of: impl Fn(u8) -> &'p str,
    ) -> Vec<Outlasted> {
        let until = self.answered[1].saturating_sub(BOUND_US);
        let mut name = Vec::new();
        let is_dropped = |kept: &Key, _: &mut _| {
            name.clear();
            kept.write(prefix_of(kept.space), &mut name);
            key.is_none_or(|key| key == name)
        };
        let dropped = self.kept.extract_if(.., is_dropped).map(|(_, kept)| kept);
        let outlasted = dropped.filter(|(.., read_at)| *read_at < until);
        let outlasted =
            outlasted.map(|(operation, reply, node, _)| Outlasted { operation, reply, node, start: until });
        outlasted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_kept_beyond_the_bound_counts_as_read_within_it() {
        let key = Key { space: 0, class: b'k', number: 1 };
        let read = Operation::new(Kind::Get, key, Value::default());
        let ping = Operation::new(Kind::Ping, key, Value::default());
        let keeps_until = |second: u64, third: u64| {
            let mut caching = Caching::new(false);
            caching.learn(read, Reply::Nil, 0, 1_000);
            caching.learn(ping, Reply::Ok, 0, second);
            caching.learn(ping, Reply::Ok, 0, third);
            assert!(caching.drop(Some(b"x:k3"), |_| "x:").is_empty());
            caching.drop(Some(b"x:k1"), |_| "x:")
        };
        assert!(
            keeps_until(1_000_000, 5_000_000).is_empty(),
            "the last turn that ended is that of the second"
        );
        let outlasted = keeps_until(2_000_000, 5_000_000);
        assert_eq!(outlasted.len(), 1);
        assert_eq!((outlasted[0].start, outlasted[0].reply), (2_000_000 - BOUND_US, Reply::Nil));
    }

    #[test]
    fn kept_values_are_not_read_again_and_errors_are_not_kept() {
        let mut space = Space::plain(crate::promise::Protocol::Consensus);
        space.keys = 1;
        let (mut caching, mut random) = (Caching::new(false), Random::new(1, 1));
        let first = caching.draw(0, &space, &mut random);
        caching.learn(first, Reply::Refused("TRYAGAIN"), 0, 1);
        assert_eq!(caching.draw(0, &space, &mut random), first);
        caching.learn(first, Reply::Nil, 0, 2);
        assert_eq!(caching.draw(0, &space, &mut random).kind, Kind::Ping);
        assert!(caching.drop(None, |_| "").is_empty());
        assert_eq!(caching.draw(0, &space, &mut random), first);
    }
}
