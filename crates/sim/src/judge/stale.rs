//! Checks promises weaker than one order for all: reads at a follower (`reads = any`), and what is left when a leader
//! has forgotten what it acknowledged (`acks = none`).

use super::is_ordered;
use crate::operation::{Key, Kind, Reply, Value};
use crate::promise::Space;
use crate::record::Entry;
use crate::report::{Broken, Failure};
use std::collections::BTreeMap;

/// A write that may have taken effect, as far as its client knows.
#[derive(Clone, Copy, Debug)]
struct Write {
    start: u64,
    /// When it had certainly taken effect.
    end: u64,
    was_refused: bool,
}

/// Returns the writes, whose values are never written twice.
fn writes<'e>(entries: impl Iterator<Item = &'e Entry>) -> BTreeMap<Value, Write> {
    let stores = |kind| matches!(kind, Kind::Set | Kind::SetFenced | Kind::SetIfAbsent | Kind::GetAndSet);
    let mut writes: BTreeMap<Value, Write> = BTreeMap::new();
    for entry in entries.filter(|entry| stores(entry.operation.kind)) {
        let end = entry.reply().filter(|(_, reply)| reply.is_done()).map_or(u64::MAX, |(at, _)| at);
        let was_refused = matches!(entry.reply(), Some((_, Reply::Refused(_))));
        let tried = Write { start: entry.start, end, was_refused };
        // A client without an answer repeats the same write.
        let write = writes.entry(entry.operation.value).or_insert(tried);
        write.end = write.end.min(tried.end);
        write.was_refused &= was_refused;
    }
    writes
}

fn failure(entry: &Entry, what: &str, end: u64) -> Option<Failure> {
    let words = format!("client {} was told at node {} {what}", entry.client, entry.node + 1);
    Some(Failure { broken: Broken::Safety, words, window_us: (entry.start, end), picture: None })
}

/// Checks that every value read was written, and not refused.
pub(super) fn judge_values<'e>(entries: impl Iterator<Item = &'e Entry> + Clone) -> Option<Failure> {
    let writes = writes(entries.clone());
    for entry in entries.filter(|entry| entry.operation.kind == Kind::Get) {
        if let Some((end, Reply::Value(value))) = entry.reply() {
            match writes.get(&value) {
                None => return failure(entry, &format!("v{}, which no client wrote", value.number), end),
                Some(write) if write.was_refused => {
                    return failure(entry, &format!("v{}, which was refused", value.number), end);
                }
                Some(write) if write.start > end => {
                    return failure(entry, &format!("v{} before it was written", value.number), end);
                }
                Some(_) => {}
            }
        }
    }
    None
}

/// Checks that stale reads are never older than the writes that their own connection knows to be done.
pub(super) fn judge_sessions<'e>(
    entries: impl Iterator<Item = &'e Entry> + Clone,
    space: &Space,
) -> Option<Failure> {
    if !space.reads_any {
        return None;
    }
    if let Some(failure) = judge_values(entries.clone()) {
        return Some(failure);
    }
    let writes = writes(entries.clone());
    let deletes: Vec<(Key, u64)> = entries
        .clone()
        .filter(|entry| entry.operation.kind == Kind::Delete)
        .filter(|entry| !matches!(entry.reply(), Some((_, Reply::Refused(_)))))
        .map(|entry| (entry.operation.key, entry.reply().map_or(u64::MAX, |(end, _)| end)))
        .collect();
    // For each connection and key, the start of the last plain write known to be done.
    let mut own: BTreeMap<(u8, u32, Key), (u64, u64)> = BTreeMap::new();
    for entry in entries {
        let Some((end, reply)) = entry.reply() else { continue };
        let (kind, key) = (entry.operation.kind, entry.operation.key);
        if kind == Kind::Set && reply.is_done() {
            own.insert((entry.client, entry.connection, key), (entry.start, end));
        }
        if kind != Kind::Get || is_ordered(entry, space) {
            continue;
        }
        let Some((start, known)) = own.get(&(entry.client, entry.connection, key)) else { continue };
        if *known > entry.start {
            continue; // It was sent before the client knew.
        }
        let is_older = match reply {
            Reply::Value(value) => writes.get(&value).is_some_and(|write| write.end < *start),
            Reply::Nil if space.evicts() => false,
            Reply::Nil => !deletes.iter().any(|(deleted, end)| *deleted == key && *end >= *start),
            _ => false,
        };
        if is_older {
            return failure(entry, &format!("{reply}, which is older than what it had written itself"), end);
        }
    }
    None
}
