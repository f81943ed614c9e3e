//! Checks keyspaces of which acknowledged writes were lost with a majority: what must hold after the recovery.
//!
//! The operations on a key that began after the recovery must fit one order, starting from some value that the key had before the
//! recovery. Which value that is cannot be known. And no token of a lock is granted twice, although the lost replicas' grants are
//! forgotten.

use super::{Written, is_ordered};
use crate::operation::{Key, Kind, Reply};
use crate::promise::Space;
use crate::record::Entry;
use crate::report::{Broken, Failure};
use check::{Action, Answer, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// A client number that no client has: this client writes the value that the recovery left.
const RECOVERY: u64 = u64::MAX;

/// `at` is when all processes had stopped.
pub(super) fn judge<'e>(
    entries: impl Iterator<Item = &'e Entry> + Clone,
    space: &Space,
    at: u64,
) -> Option<Failure> {
    let mut by_key: BTreeMap<Key, [Vec<&Entry>; 2]> = BTreeMap::new();
    // The values of keys written under fences depend on their locks.
    let is_plain = |entry: &&Entry| {
        is_ordered(entry, space) && !entry.operation.kind.is_of_locks() && !entry.operation.key.is_guarded()
    };
    for entry in entries.clone().filter(is_plain) {
        by_key.entry(entry.operation.key).or_default()[usize::from(entry.start >= at)].push(entry);
    }
    // An evicted counter starts again, so the least sum seen does not show where it was.
    let is_judged =
        |[before, after]: &&[Vec<&Entry>; 2]| !space.evicts() || !before.iter().chain(after).any(counts);
    let mut keys = by_key.values().filter(is_judged);
    let broken = keys.find_map(|[before, after]| judge_key(before, after, space));
    broken.or_else(|| judge_tokens(entries, at))
}

fn judge_key(before: &[&Entry], after: &[&Entry], space: &Space) -> Option<Failure> {
    let mut failure = None;
    for left in possible_remains(before, after) {
        let mut written = Written::new(after.iter().copied(), space);
        if let (Some(left), Some(first)) = (&left, after.first()) {
            let mut name = Vec::new();
            first.operation.key.write(&space.keyspace.prefix, &mut name);
            let key = written.history.key(&name);
            let set = Action::Set(written.history.value(left));
            let id = written.history.begin(RECOVERY, key, set, 0);
            written.history.end(id, 1, Outcome::Ok(Answer::Done));
        }
        failure = Some(written.judge(space)?);
    }
    failure.map(|failure| Failure { words: format!("after the recovery, {}", failure.words), ..failure })
}

/// The values that the recovery may have left of a key: nothing, one that is read later, or one that is never read.
fn possible_remains(before: &[&Entry], after: &[&Entry]) -> Vec<Option<Vec<u8>>> {
    // A counter: at most the value that the first operation to see it shows.
    let least = after.iter().filter_map(|entry| match (entry.operation.kind, entry.reply()?.1) {
        (Kind::Increment | Kind::Transact | Kind::Script, Reply::Integer(sum)) => Some(sum - 1),
        (Kind::Get | Kind::GetByScript, Reply::Integer(sum)) => Some(sum),
        (Kind::Get | Kind::GetByScript, Reply::Nil) => Some(0),
        _ => None,
    });
    if before.iter().chain(after).any(counts) {
        let least = least.min().filter(|least| *least > 0);
        return vec![least.map(|sum| sum.to_string().into_bytes())];
    }
    let seen: BTreeSet<_> = after
        .iter()
        .filter_map(|entry| match entry.reply()?.1 {
            Reply::Value(value) => Some(value.number),
            _ => None,
        })
        .collect();
    let values = before.iter().map(|entry| entry.operation.value).filter(|value| value.number > 0);
    let (read, others): (Vec<_>, Vec<_>) = values.partition(|value| seen.contains(&value.number));
    let mut bytes = Vec::new();
    let mut left = vec![None];
    for value in read.into_iter().chain(others.into_iter().next()) {
        super::write_value(value, &mut bytes);
        left.push(Some(bytes.clone()));
    }
    left
}

/// Whether the operation adds to a counter.
fn counts(entry: &&Entry) -> bool {
    matches!(entry.operation.kind, Kind::Increment | Kind::Transact | Kind::Script)
}

/// Checks that every token granted after the recovery is above all tokens granted before it.
fn judge_tokens<'e>(entries: impl Iterator<Item = &'e Entry>, at: u64) -> Option<Failure> {
    let mut newest: BTreeMap<Key, i64> = BTreeMap::new();
    for entry in entries.filter(|entry| entry.operation.kind == Kind::Acquire) {
        let Some((end, Reply::Integer(token))) = entry.reply() else { continue };
        let newest = newest.entry(entry.operation.key).or_insert(0);
        if entry.start < at {
            *newest = token.max(*newest);
        } else if token <= *newest {
            let words = format!(
                "client {} was granted a lock with token {token} after the recovery, and {newest} had been granted before",
                entry.client
            );
            return Some(Failure {
                broken: Broken::Safety,
                words,
                window_us: (entry.start, end),
                picture: None,
            });
        }
    }
    None
}
