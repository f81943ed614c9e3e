//! Checks, keyspace by keyspace, whether the replies that clients got can be right.

mod across;
mod collections;
mod fleeting;
mod locks;
mod queues;
mod recovered;
mod stale;

use crate::operation::{Kind, Operation, Reply, Value};
use crate::promise::{Returned, Space};
use crate::record::{End, Entry, Record};
use crate::report::{Broken, Failure, Seen};
use check::{Action, Answer, History, Limits, Outcome, Verdict};
use std::collections::BTreeMap;

/// What a run leaves for judgement.
pub(crate) struct Evidence<'r> {
    pub(crate) record: &'r Record,
    pub(crate) spaces: &'r [Space],
    /// For each space, whether its leader may have forgotten acknowledged writes, where that is allowed.
    pub(crate) forgot: &'r [bool],
    /// For each space, whether acknowledged writes were lost with a majority, and when the cluster was recovered.
    pub(crate) recovered: &'r [bool],
    pub(crate) recovered_at: Option<u64>,
    /// For each space, whether it existed to the end: dropped ones are not checked.
    pub(crate) stayed: &'r [bool],
    /// For each dropped space, since when its keys are those of the first one.
    pub(crate) returned: &'r [Returned],
    /// For each space, for how many requests its groups may still keep elements, and how many requests have claimed
    /// theirs.
    pub(crate) served: &'r [(usize, u64)],
    /// The width of the range of times on which a majority of clocks agreed.
    pub(crate) clocks_apart_ms: u64,
}

/// Search steps for each key. The histories are short; one that takes longer is reported as undecided.
const STEPS: u64 = 20_000_000;

impl Evidence<'_> {
    /// Counts the operations, and finds the first broken promise.
    pub(crate) fn judge(&self) -> (Vec<Seen>, Option<Failure>) {
        let mut seen = self.count();
        let mut failure = None;
        for (index, space) in self.spaces.iter().enumerate() {
            if !self.stayed[index] {
                failure = failure.or_else(|| self.judge_returned(index, &mut seen[0]));
                continue;
            }
            let entries = || self.record.on_keys().filter(|e| usize::from(e.operation.key.space) == index);
            let linearizable = entries().filter(|entry| is_ordered(entry, space));
            // An evicted key is missing for no reason that a client knows.
            let recovered_at = self.recovered_at.filter(|_| self.recovered[index]);
            let forgot = self.forgot[index] || recovered_at.is_some();
            let is_last_seen = !space.reads_any && !forgot && !space.evicts();
            let mut found = fleeting::judge(entries(), self.clocks_apart_ms, is_last_seen);
            if let Some(at) = recovered_at {
                found = found.or_else(|| recovered::judge(entries(), space, at));
            }
            if forgot {
                found = found.or_else(|| stale::judge_values(entries()));
                seen[index].lost_acknowledged +=
                    Written::new(linearizable, space).lost(&finally(entries(), space));
            } else {
                found = found.or_else(|| stale::judge_sessions(entries(), space));
                // Elements may be evicted with their keys.
                if !space.evicts() {
                    found = found.or_else(|| queues::judge(entries(), space, self.served[index]));
                    let (checked, broken) = collections::judge(entries(), space);
                    seen[index].checked += checked;
                    found = found.or(broken);
                }
                let history = Written::new(linearizable, space);
                seen[index].checked += history.history.operations().len() as u64;
                found = found.or_else(|| history.judge(space));
            }
            failure = failure.or(found);
        }
        let (checked, broken) = across::judge(self);
        // They are of several keyspaces, and begin in the first that takes part.
        if let Some(index) = self.spaces.iter().position(|space| space.kinds.contains(&Kind::Across)) {
            seen[index].checked += checked;
        }
        (seen, failure.or(broken))
    }

    /// Judges what was done with the keys of a dropped keyspace since they are those of the first one, in which they were never
    /// written before. What was under way while it was dropped was done in one or the other.
    fn judge_returned(&self, index: usize, seen: &mut Seen) -> Option<Failure> {
        let Returned { told, since, .. } = self.returned[index];
        let since = since.filter(|_| !self.forgot[0] && !self.recovered[0])?;
        let mut space = self.spaces[0].clone();
        space.keyspace.prefix.clone_from(&self.spaces[index].keyspace.prefix);
        let entries = self.record.on_keys().filter(|e| usize::from(e.operation.key.space) == index);
        let entries: Vec<Entry> = entries
            .filter(|entry| is_ordered(entry, &space) && entry.reply().is_none_or(|(at, _)| at >= told))
            .map(|entry| Entry { end: if entry.start < since { End::Open } else { entry.end }, ..*entry })
            .collect();
        let history = Written::new(entries.iter(), &space);
        seen.checked += history.history.operations().len() as u64;
        history.judge(&space)
    }

    fn count(&self) -> Vec<Seen> {
        let mut seen = vec![Seen { keyspaces: 1, ..Seen::default() }; self.spaces.len()];
        for entry in self.record.on_keys() {
            let seen = &mut seen[usize::from(entry.operation.key.space)];
            seen.operations += 1;
            match entry.reply() {
                None | Some((_, Reply::Unknown)) => seen.unknown += 1,
                Some((_, Reply::Refused(_) | Reply::Wrong | Reply::Torn)) => seen.refused += 1,
                Some(_) => seen.done += 1,
            }
        }
        seen
    }
}

/// Whether an operation must have a place in one order that all clients see.
fn is_ordered(entry: &Entry, space: &Space) -> bool {
    let may_be_stale = space.reads_any && entry.operation.kind == Kind::Get;
    let kind = entry.operation.kind;
    let has_own_judge =
        matches!(kind, Kind::SetFleeting | Kind::GetFleeting | Kind::Across | Kind::ReadAcross)
            || kind.collection().is_some();
    !may_be_stale && !has_own_judge
}

/// A history in the checker's form.
struct Written {
    history: History,
}

impl Written {
    fn new<'e>(entries: impl Iterator<Item = &'e Entry>, space: &Space) -> Written {
        let mut history = History::new();
        let mut bytes = Vec::new();
        for entry in entries {
            let operation = &entry.operation;
            let key = locks::key(operation, space, &mut history, &mut bytes);
            let mut action = action(operation, &mut history, &mut bytes);
            let mut outcome = match entry.end {
                End::Answered { at, reply } => {
                    Some((at, outcome(operation, reply, space, &mut history, &mut bytes)))
                }
                _ => None,
            };
            if space.evicts() {
                if is_unknown(outcome) && matches!(action, Action::Increment(_)) {
                    let first = Action::Set(history.value(b"1"));
                    history.begin(u64::from(entry.client), key, first, entry.start * 1000);
                }
                action = with_eviction(action, &mut outcome, &mut history);
            }
            let id = history.begin(u64::from(entry.client), key, action, entry.start * 1000);
            history.set_node(id, u32::from(entry.node) + 1);
            if let Some((at, outcome)) = outcome {
                history.end(id, at * 1000, outcome);
            }
            if let Some(fence) = locks::fence(entry, space, &mut history, &mut bytes) {
                history.set_fence(id, fence);
            }
        }
        Written { history }
    }

    fn judge(&self, space: &Space) -> Option<Failure> {
        match check::linearizable_within(&self.history, Limits { steps: STEPS }, |_| false) {
            Verdict::Ok { .. } => None,
            Verdict::Unknown { key } => {
                let key = String::from_utf8_lossy(self.history.key_bytes(key)).into_owned();
                let count = self.history.operations().len();
                let words =
                    format!("{count} operations, those on key {key} among them, are too hard to check");
                Some(Failure { broken: Broken::Undecided, words, window_us: (0, u64::MAX), picture: None })
            }
            Verdict::Violation(window) => {
                let operations = window.operations.iter().map(|id| self.history.operation(*id));
                let start = operations.map(|operation| operation.start).min().unwrap_or_default();
                let end = self.history.operation(window.culprit).end.unwrap_or(u64::MAX);
                let words = format!("keyspace '{}': {}", space.keyspace.name(), window.words(&self.history));
                let (window_us, picture) = ((start / 1000, end / 1000), Some(window.svg(&self.history)));
                Some(Failure { broken: Broken::Safety, words, window_us, picture })
            }
        }
    }

    /// Returns how many acknowledged writes are explained neither by the last values nor by a later write.
    fn lost(&self, finally: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
        check::lost_writes(&self.history, |key| finally.get(key).map(Vec::as_slice)).len() as u64
    }
}

fn is_unknown(outcome: Option<(u64, Outcome)>) -> bool {
    outcome.is_none_or(|(_, outcome)| outcome == Outcome::Unknown)
}

/// Translates an operation on a key that may be evicted between any two operations.
///
/// An eviction matters only to the next operation, and only if that operation needs a missing key. So each such
/// operation is modelled as if it removed the key itself before it took effect: then it is possible in every state, and
/// leaves the state that its answer shows. All other operations are unchanged. An increment without an answer may or
/// may not have found the key; that it may do both, once each, is the only behaviour allowed beyond what can happen.
fn with_eviction(action: Action, outcome: &mut Option<(u64, Outcome)>, history: &mut History) -> Action {
    let answer = match outcome {
        Some((_, Outcome::Ok(answer))) => answer,
        _ if is_unknown(*outcome) => {
            return match action {
                Action::SetIfAbsent(value) => Action::Set(value),
                action => action,
            };
        }
        _ => return action,
    };
    let instead = match (action, *answer) {
        (Action::Get, Answer::Value(None)) | (Action::Delete, Answer::Applied(false)) => Action::Delete,
        (Action::SetIfAbsent(value), Answer::Applied(true)) => Action::Set(value),
        (Action::GetAndSet(value), Answer::Value(None)) => Action::Set(value),
        (Action::Increment(delta), Answer::Sum(sum)) if sum == delta => {
            Action::Set(history.value(sum.to_string().as_bytes()))
        }
        _ => return action,
    };
    *answer = Answer::Done;
    instead
}

/// Returns the last value that was read of each key at the end, when all replicas were equal.
fn finally<'e>(entries: impl Iterator<Item = &'e Entry>, space: &Space) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut held = BTreeMap::new();
    for entry in entries.filter(|entry| entry.operation.kind == Kind::Get) {
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        entry.operation.key.write(&space.keyspace.prefix, &mut key);
        match entry.reply() {
            Some((_, Reply::Value(value))) => write_value(value, &mut bytes),
            Some((_, Reply::Integer(sum))) => bytes.extend_from_slice(sum.to_string().as_bytes()),
            Some((_, Reply::Nil)) => {
                held.remove(&key);
                continue;
            }
            _ => continue,
        }
        held.insert(key, bytes);
    }
    held
}

/// Writes a value without its padding, which the client has already compared: reports should be readable.
fn write_value(value: Value, bytes: &mut Vec<u8>) {
    bytes.clear();
    Value { padding: 0, ..value }.write(bytes);
    bytes.pop();
}

fn value(value: Value, history: &mut History, bytes: &mut Vec<u8>) -> check::Value {
    write_value(value, bytes);
    history.value(bytes)
}

fn action(operation: &Operation, history: &mut History, bytes: &mut Vec<u8>) -> Action {
    match operation.kind {
        Kind::Get | Kind::GetByScript | Kind::GetFleeting => Action::Get,
        Kind::Set | Kind::SetFleeting | Kind::SetFenced => {
            Action::Set(value(operation.value, history, bytes))
        }
        Kind::Delete => Action::Delete,
        Kind::Increment | Kind::Transact | Kind::Script => Action::Increment(1),
        Kind::SetIfAbsent => Action::SetIfAbsent(value(operation.value, history, bytes)),
        Kind::GetAndSet => Action::GetAndSet(value(operation.value, history, bytes)),
        _ => Action::Lock(locks::action(operation, history)),
    }
}

fn outcome(
    operation: &Operation,
    reply: Reply,
    space: &Space,
    history: &mut History,
    bytes: &mut Vec<u8>,
) -> Outcome {
    Outcome::Ok(match (operation.kind, reply) {
        (_, Reply::Unknown | Reply::Wrong | Reply::Torn) => return Outcome::Unknown,
        (_, Reply::Refused(_)) => return Outcome::Failed,
        (kind, reply) if kind.is_of_locks() => return Outcome::Ok(locks::answer(kind, reply, history)),
        (Kind::Get | Kind::GetByScript | Kind::GetAndSet | Kind::GetFleeting, Reply::Nil) => {
            Answer::Value(None)
        }
        (Kind::Get | Kind::GetByScript | Kind::GetAndSet | Kind::GetFleeting, Reply::Value(read)) => {
            Answer::Value(Some(value(read, history, bytes)))
        }
        // A counter is a string of digits.
        (Kind::Get | Kind::GetByScript, Reply::Integer(sum)) => {
            Answer::Value(Some(history.value(sum.to_string().as_bytes())))
        }
        (Kind::SetIfAbsent, Reply::Nil) => Answer::Applied(false),
        (Kind::SetIfAbsent, Reply::Ok) => Answer::Applied(true),
        (Kind::Delete, Reply::Integer(count)) if space.counts_deleted() => Answer::Applied(count == 1),
        (Kind::Delete, Reply::Integer(_)) => Answer::Done,
        (Kind::Increment | Kind::Transact | Kind::Script, Reply::Integer(sum)) => Answer::Sum(sum),
        (_, Reply::Ok) => Answer::Done,
        // An answer of the wrong kind: the checker finds that nothing explains it.
        (_, Reply::Nil) => Answer::Value(None),
        (_, Reply::Integer(number)) => Answer::Sum(number),
        (_, Reply::Value(read)) => Answer::Value(Some(value(read, history, bytes))),
        (_, Reply::Session(_) | Reply::Scored(..)) => Answer::Value(None),
    })
}
