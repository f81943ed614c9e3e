//! Checks lists whose elements clients wait for: each element is given to one client, and none vanishes but with an
//! answer that is lost.
//!
//! At the end observers have taken all elements that were left. So an element that was pushed and came to nobody is
//! lost. That may happen to what was taken for a client which did not get the answer: no more elements of a list may be
//! lost than requests for them had no answer.

use crate::operation::{Key, Kind, Reply, Value};
use crate::promise::Space;
use crate::record::Entry;
use crate::report::{Broken, Failure};
use std::collections::BTreeMap;

/// An element that a client pushed.
struct Pushed<'e> {
    entry: &'e Entry,
    taken: Option<&'e Entry>,
}

/// `kept`: so many elements may still be kept for requests whose end is not known to the group.
pub(super) fn judge<'e>(
    entries: impl Iterator<Item = &'e Entry> + Clone,
    space: &Space,
    mut kept: usize,
) -> Option<Failure> {
    let broken = |what: String, entry: &Entry| {
        let end = entry.reply().map_or(u64::MAX, |(at, _)| at);
        let words = format!("keyspace '{}': {what}", space.keyspace.name());
        Some(Failure { broken: Broken::Safety, words, window_us: (entry.start, end), picture: None })
    };
    let pushes = entries.clone().filter(|entry| entry.operation.kind == Kind::Push);
    let mut pushed: BTreeMap<(Key, Value), Pushed<'e>> = pushes
        .map(|entry| ((entry.operation.key, entry.operation.value), Pushed { entry, taken: None }))
        .collect();
    let mut unanswered: BTreeMap<Key, usize> = BTreeMap::new();
    for entry in entries.filter(|entry| entry.operation.kind == Kind::Take) {
        let key = entry.operation.key;
        let value = match entry.reply() {
            Some((_, Reply::Value(value))) => value,
            Some((_, Reply::Nil | Reply::Refused(_))) => continue,
            _ => {
                *unanswered.entry(key).or_default() += 1;
                continue;
            }
        };
        let Some(element) = pushed.get_mut(&(key, value)) else {
            return broken(
                format!("client {} took v{}, which nobody pushed", entry.client, value.number),
                entry,
            );
        };
        if matches!(element.entry.reply(), Some((_, Reply::Refused(_)))) {
            return broken(
                format!("client {} took v{}, whose push was refused", entry.client, value.number),
                entry,
            );
        }
        if let Some(other) = element.taken.replace(entry) {
            let (one, other, number) = (other.client, entry.client, value.number);
            return broken(format!("clients {one} and {other} both took v{number}"), entry);
        }
    }
    for ((key, value), Pushed { entry, taken }) in &pushed {
        let was_pushed = matches!(entry.reply(), Some((_, Reply::Integer(_))));
        if !was_pushed || taken.is_some() {
            continue;
        }
        let left = unanswered.entry(*key).or_default();
        match (left.checked_sub(1), kept.checked_sub(1)) {
            (Some(less), _) => *left = less,
            (None, Some(less)) => kept = less,
            (None, None) => {
                let words =
                    format!("v{} of client {} was pushed, and came to nobody", value.number, entry.client);
                return broken(words, entry);
            }
        }
    }
    None
}
