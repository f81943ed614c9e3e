//! Checks of weaker promises.
//!
//! Asynchronous replication promises neither linearizable reads on followers nor that a failover keeps every
//! acknowledged write. The weaker promises can be checked, and the lost writes can be counted:
//!
//! - [`check_prefixes`]: every node shows a prefix of the leader's order of writes, and never a shorter one later;
//! - [`differing_keys`]: at the end all replicas hold the same;
//! - [`lost_writes`]: the acknowledged writes that are missing from the final state;
//! - [`check_sessions`]: a client reads its own writes, and never reads something older than it has read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Action, Answer, History, Key, Operation, OperationId, Outcome, Value};
use crate::model::integer;

/// A write in the leader's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// Its version: versions grow along the order, over all keys.
    pub version: u64,
    /// The key that was written.
    pub key: Key,
    /// What the key holds afterwards; `None` if it was deleted.
    pub value: Option<Value>,
}

/// A read that contradicts the leader's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPrefix {
    /// The contradicting read.
    pub read: OperationId,
    /// An earlier read on the same node that had already shown more; `None` if no prefix gives the value at all.
    pub after: Option<OperationId>,
}

/// Checks that each node showed a prefix of the leader's order, which only grew.
///
/// `order` is sorted by version and holds every write of the keys that were read. Only answered reads whose node is
/// known are checked. A read with a version must have that write's value.
///
/// Each read is given the earliest prefix that has its value and is not shorter than any that the node showed before
/// the read was sent. If the reads can be given prefixes at all, these work, because a prefix longer than needed
/// never helps a later read.
pub fn check_prefixes(history: &History, order: &[Ordered]) -> Result<(), NotAPrefix> {
    let mut writes: BTreeMap<Key, Vec<&Ordered>> = BTreeMap::new();
    for write in order {
        writes.entry(write.key).or_default().push(write);
    }
    struct Read<'h> {
        id: OperationId,
        operation: &'h Operation,
        value: Option<Value>,
        end: u64,
    }
    let mut reads: BTreeMap<u32, Vec<Read>> = BTreeMap::new();
    for id in history.ids() {
        let operation = history.operation(id);
        if let (Action::Get, Outcome::Ok(Answer::Value(value))) = (operation.action, operation.outcome)
            && let (Some(node), Some(end)) = (operation.node, operation.end)
        {
            reads.entry(node).or_default().push(Read { id, operation, value, end });
        }
    }
    for reads in reads.values_mut() {
        reads.sort_by_key(|read| (read.operation.start, read.end));
        // The longest prefix of the reads that have ended, with its read; and the reads that have not ended.
        let mut shown: Option<(u64, OperationId)> = None;
        let mut running: BTreeSet<(Reverse<u64>, u64, OperationId)> = BTreeSet::new();
        for Read { id, operation, value, end } in reads.iter() {
            while let Some((Reverse(ended), prefix, by)) =
                running.last().copied().filter(|last| last.0.0 < operation.start)
            {
                running.remove(&(Reverse(ended), prefix, by));
                shown = shown.max(Some((prefix, by)));
            }
            let writes = writes.get(&operation.key).map_or(&[][..], Vec::as_slice);
            let (least, by) = shown.map_or((0, None), |(prefix, by)| (prefix, Some(by)));
            let prefix = shortest_prefix(writes, *value, operation.version, least);
            let Some(prefix) = prefix else {
                let is_nowhere = shortest_prefix(writes, *value, operation.version, 0).is_none();
                return Err(NotAPrefix { read: *id, after: by.filter(|_| !is_nowhere) });
            };
            running.insert((Reverse(*end), prefix, *id));
        }
    }
    Ok(())
}

/// Returns the version of the shortest prefix, of at least `least`, in which a key with these writes holds `value`.
fn shortest_prefix(
    writes: &[&Ordered],
    value: Option<Value>,
    version: Option<u64>,
    least: u64,
) -> Option<u64> {
    // The newest write in the prefix `least`, then those after it; before the first the key is absent.
    let from = writes.partition_point(|write| write.version <= least);
    let candidates = writes[from.saturating_sub(1)..].iter();
    if from == 0 && value.is_none() && version.is_none() {
        return Some(least);
    }
    candidates
        .filter(|write| write.value == value && version.is_none_or(|version| version == write.version))
        .map(|write| write.version.max(least))
        .next()
}

/// Returns the keys that differ between replicas.
pub fn differing_keys<K: Ord + Clone, V: PartialEq>(replicas: &[BTreeMap<K, V>]) -> Vec<K> {
    let keys: BTreeSet<&K> = replicas.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&K| replicas.windows(2).any(|pair| pair[0].get(*key) != pair[1].get(*key));
    keys.into_iter().filter(differs).cloned().collect()
}

/// Returns the acknowledged writes that are lost: the key's final value, which `finally` returns, is explained
/// neither by the write nor by one that may have come after it.
///
/// A write may have come after another one unless it had ended before the other one was sent; one with an unknown
/// outcome always may. A write that is counted is therefore certainly lost.
pub fn lost_writes<'f>(history: &History, finally: impl Fn(&[u8]) -> Option<&'f [u8]>) -> Vec<OperationId> {
    // By key: what it holds, and when the last write that explains it ended.
    let mut explained: Vec<Option<u64>> = vec![None; history.keys()];
    let mut acknowledged = Vec::new();
    for id in history.ids() {
        let operation = history.operation(id);
        let holds = finally(history.key_bytes(operation.key));
        let bytes = |value: Value| Some(history.value_bytes(value).to_vec());
        let left = match (operation.action, operation.outcome) {
            (Action::Get | Action::Lock(_), _)
            | (_, Outcome::Failed | Outcome::Ok(Answer::Applied(false))) => continue,
            (Action::Delete, _) => None,
            (Action::Increment(_), Outcome::Ok(Answer::Sum(sum))) => Some(sum.to_string().into_bytes()),
            // Any integer may be the sum.
            (Action::Increment(_), _) => holds.filter(|holds| integer(holds).is_some()).map(<[u8]>::to_vec),
            (action, _) => action.stores().and_then(bytes),
        };
        let is_sum_of_nothing = matches!(operation.action, Action::Increment(_)) && left.is_none();
        if left.as_deref() == holds && !is_sum_of_nothing {
            let end = operation.end.filter(|_| operation.outcome != Outcome::Unknown).unwrap_or(u64::MAX);
            let explained = &mut explained[operation.key.index()];
            *explained = (*explained).max(Some(end));
        } else if operation.outcome != Outcome::Unknown {
            acknowledged.push(id);
        }
    }
    acknowledged.retain(|id| {
        let write = history.operation(*id);
        explained[write.key.index()].is_none_or(|end| end < write.start)
    });
    acknowledged
}

/// A client read something older than it already knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backwards {
    /// The read of the older version.
    pub read: OperationId,
    /// The client's earlier operation: a write (then it does not read its own writes) or a read (then its reads are
    /// not monotonic).
    pub after: OperationId,
}

/// Checks, by versions, that each client reads its own writes and that its reads of a key never go back; operations
/// without a version are ignored.
pub fn check_sessions(history: &History) -> Result<(), Backwards> {
    /// The greatest version that a client knew at an instant, and the operation that revealed it.
    struct Known {
        at: u64,
        version: u64,
        by: OperationId,
    }
    let mut known: BTreeMap<(u64, Key), Vec<Known>> = BTreeMap::new();
    let versioned = |id: &OperationId| {
        let operation = history.operation(*id);
        matches!(operation.outcome, Outcome::Ok(_)) && operation.version.is_some() && operation.end.is_some()
    };
    let mut by_end: Vec<OperationId> = history.ids().filter(versioned).collect();
    by_end.sort_by_key(|id| history.operation(*id).end);
    for id in by_end.iter().copied() {
        let operation = history.operation(id);
        let (version, at) = (operation.version.unwrap_or(0), operation.end.unwrap_or(u64::MAX));
        let known = known.entry((operation.client, operation.key)).or_default();
        let greatest = known.last().filter(|last| last.version >= version);
        let (version, by) = greatest.map_or((version, id), |last| (last.version, last.by));
        known.push(Known { at, version, by });
    }
    for read in by_end {
        let operation = history.operation(read);
        if operation.action != Action::Get {
            continue;
        }
        let known = known.get(&(operation.client, operation.key)).map_or(&[][..], Vec::as_slice);
        let before = known[..known.partition_point(|known| known.at < operation.start)].last();
        if let Some(before) = before.filter(|before| operation.version < Some(before.version)) {
            return Err(Backwards { read, after: before.by });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Outcome = Outcome::Ok(Answer::Done);

    struct Recorder {
        history: History,
        key: Key,
    }

    impl Recorder {
        fn new() -> Recorder {
            let mut history = History::new();
            let key = history.key(b"k");
            Recorder { history, key }
        }

        fn value(&mut self, text: &str) -> Option<Value> {
            (!text.is_empty()).then(|| self.history.value(text.as_bytes()))
        }

        fn read(&mut self, node: u32, text: &str, start: u64, end: u64) -> OperationId {
            let id = self.history.begin(1, self.key, Action::Get, start);
            let value = self.value(text);
            self.history.end(id, end, Outcome::Ok(Answer::Value(value)));
            self.history.set_node(id, node);
            id
        }

        fn write(&mut self, text: &str, start: u64, end: u64, outcome: Outcome) -> OperationId {
            let action = self.value(text).map_or(Action::Delete, Action::Set);
            let id = self.history.begin(2, self.key, action, start);
            self.history.end(id, end, outcome);
            id
        }

        /// The leader's order: versions 10, 20, ...
        fn order(&mut self, texts: &[&str]) -> Vec<Ordered> {
            let key = self.key;
            let values: Vec<Option<Value>> = texts.iter().map(|text| self.value(text)).collect();
            (1..).zip(values).map(|(place, value)| Ordered { version: place * 10, key, value }).collect()
        }

        fn lost(&self, finally: &str) -> Vec<OperationId> {
            lost_writes(&self.history, |_| (!finally.is_empty()).then_some(finally.as_bytes()))
        }
    }

    #[test]
    fn a_follower_may_be_behind_but_not_go_back() {
        let mut recorder = Recorder::new();
        let order = recorder.order(&["a", "b", "", "c"]);
        recorder.read(1, "", 0, 1);
        recorder.read(1, "b", 2, 3);
        recorder.read(2, "a", 4, 5);
        recorder.read(1, "", 6, 7);
        let newer = recorder.read(1, "c", 8, 20);
        recorder.read(1, "", 15, 25);
        assert_eq!(
            check_prefixes(&recorder.history, &order),
            Ok(()),
            "two reads at a time come in any order"
        );
        let older = recorder.read(1, "b", 30, 31);
        assert_eq!(
            check_prefixes(&recorder.history, &order),
            Err(NotAPrefix { read: older, after: Some(newer) })
        );
    }

    #[test]
    fn going_back_is_noticed_across_keys() {
        let mut recorder = Recorder::new();
        let mut order = recorder.order(&["a", "b"]);
        let other = recorder.history.key(b"other");
        let value = recorder.value("x");
        order.push(Ordered { version: 30, key: other, value });
        let newer = recorder.history.begin(1, other, Action::Get, 0);
        recorder.history.end(newer, 1, Outcome::Ok(Answer::Value(value)));
        recorder.history.set_node(newer, 1);
        let older = recorder.read(1, "a", 2, 3);
        let found = check_prefixes(&recorder.history, &order);
        assert_eq!(found, Err(NotAPrefix { read: older, after: Some(newer) }), "x came after b");
    }

    #[test]
    fn a_value_that_is_in_no_prefix_is_found() {
        let mut recorder = Recorder::new();
        let order = recorder.order(&["a", "a"]);
        let read = recorder.read(1, "a", 0, 1);
        recorder.history.set_version(read, 20);
        assert_eq!(check_prefixes(&recorder.history, &order), Ok(()));
        recorder.history.set_version(read, 15);
        assert_eq!(check_prefixes(&recorder.history, &order), Err(NotAPrefix { read, after: None }));
    }

    #[test]
    fn replicas_that_differ_are_reported_by_key() {
        let replica = |pairs: &[(&'static str, u32)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        let full = replica(&[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(differing_keys(&[full.clone(), full.clone(), full.clone()]), Vec::<&str>::new());
        let other = replica(&[("a", 1), ("b", 9), ("d", 4)]);
        assert_eq!(differing_keys(&[full.clone(), full, other]), ["b", "c", "d"]);
    }

    #[test]
    fn a_write_is_lost_if_no_later_write_explains_the_final_value() {
        let mut recorder = Recorder::new();
        recorder.write("a", 0, 10, DONE);
        let second = recorder.write("b", 20, 30, DONE);
        let third = recorder.write("c", 25, 40, DONE);
        recorder.write("d", 50, 60, Outcome::Failed);
        assert_eq!(recorder.lost("c"), []);
        assert_eq!(recorder.lost("b"), [], "b and c were concurrent");
        assert_eq!(recorder.lost("a"), [second, third]);
        assert_eq!(recorder.lost("").len(), 3);
        recorder.write("a", 35, 36, Outcome::Unknown);
        assert_eq!(recorder.lost("a"), [], "the unknown write may have come last");
        recorder.write("", 5, 50, DONE);
        assert_eq!(recorder.lost(""), []);
    }

    #[test]
    fn increments_are_lost_by_their_sums() {
        let mut recorder = Recorder::new();
        let mut increment = |start, outcome| {
            let id = recorder.history.begin(1, recorder.key, Action::Increment(1), start);
            recorder.history.end(id, start + 5, outcome);
            id
        };
        increment(0, Outcome::Ok(Answer::Sum(1)));
        let second = increment(10, Outcome::Ok(Answer::Sum(2)));
        assert_eq!(recorder.lost("2"), []);
        assert_eq!(recorder.lost("1"), [second]);
        let id = recorder.history.begin(1, recorder.key, Action::Increment(1), 20);
        recorder.history.end(id, 25, Outcome::Unknown);
        assert_eq!(recorder.lost("3"), []);
        assert_eq!(recorder.lost("").len(), 2, "an increment leaves no absent key");
    }

    #[test]
    fn sessions_go_forward_only() {
        let mut recorder = Recorder::new();
        let versions = [(2, 0, 5), (9, 10, 15), (4, 12, 20)];
        for (version, start, end) in versions {
            let id = recorder.read(1, "a", start, end);
            recorder.history.set_version(id, version);
        }
        assert_eq!(check_sessions(&recorder.history), Ok(()), "two reads at a time come in any order");
        let (write, value) = (recorder.history.ids().nth(1).unwrap(), recorder.value("a").unwrap());
        let read = recorder.read(2, "a", 30, 40);
        recorder.history.set_version(read, 8);
        assert_eq!(check_sessions(&recorder.history), Err(Backwards { read, after: write }));
        recorder.history.set_version(read, 9);
        assert_eq!(check_sessions(&recorder.history), Ok(()));
        let own = recorder.history.begin(1, recorder.key, Action::Set(value), 50);
        recorder.history.end(own, 60, DONE);
        recorder.history.set_version(own, 10);
        let stale = recorder.read(3, "a", 61, 70);
        recorder.history.set_version(stale, 9);
        assert_eq!(check_sessions(&recorder.history), Err(Backwards { read: stale, after: own }));
    }
}
