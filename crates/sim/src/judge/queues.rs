//! Checks lists, and streams with a group, however long their histories are: each element is given to one client, and none
//! vanishes unless the reply that carried it is lost.
//!
//! At the end, observers have taken all remaining elements. So an element that was pushed and that no client got is lost.
//! That may happen to an element taken for a client that did not get the reply: no more elements of a list may be lost
//! than requests for them had no reply. For clients that wait, this is allowed only where their nodes have claimed the
//! served elements, and the groups count that: an element served to a node that dies before claiming it must return to the
//! list.

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

/// `kept`: how many elements are with no client yet, kept unclaimed or back in their lists; `claimed`: how many requests have
/// claimed theirs.
pub(super) fn judge<'e>(
    entries: impl Iterator<Item = &'e Entry> + Clone,
    space: &Space,
    (mut kept, claimed): (usize, u64),
) -> Option<Failure> {
    let broken = |what: String, entry: &Entry| {
        let end = entry.reply().map_or(u64::MAX, |(at, _)| at);
        let words = format!("keyspace '{}': {what}", space.keyspace.name());
        Some(Failure { broken: Broken::Safety, words, window_us: (entry.start, end), picture: None })
    };
    let adds = |kind| matches!(kind, Kind::Push | Kind::PushFront | Kind::Append);
    let takes =
        |kind| matches!(kind, Kind::Take | Kind::TakeAny | Kind::PopFront | Kind::PopBack | Kind::Deliver);
    let pushes = entries.clone().filter(|entry| adds(entry.operation.kind));
    let mut pushed: BTreeMap<(Key, Value), Pushed<'e>> = pushes
        .map(|entry| ((entry.operation.key, entry.operation.value), Pushed { entry, taken: None }))
        .collect();
    // Requests that take an element at once or not at all, and those that wait.
    let mut unanswered: BTreeMap<Key, [usize; 2]> = BTreeMap::new();
    // Those that wait at several lists: what they take is claimed by no group.
    let mut unanswered_at_all = 0_usize;
    let list_of: BTreeMap<Value, Key> = pushed.keys().map(|(key, value)| (*value, *key)).collect();
    // The same member of a sorted set is taken many times, so members are only counted.
    let members = entries.clone().filter(|entry| entry.operation.kind == Kind::TakeLowest);
    let came_members = members.filter(|entry| matches!(entry.reply(), Some((_, Reply::Scored(..))))).count();
    let mut came = came_members as u64;
    for entry in entries.filter(|entry| takes(entry.operation.kind)) {
        let waits = entry.operation.kind == Kind::Take;
        let at_all = entry.operation.kind == Kind::TakeAny;
        let asked = entry.operation.key;
        let value = match entry.reply() {
            Some((_, Reply::Value(value))) => value,
            Some((_, Reply::Nil | Reply::Refused(_))) => continue,
            _ if at_all => {
                unanswered_at_all += 1;
                continue;
            }
            _ => {
                unanswered.entry(asked).or_default()[usize::from(waits)] += 1;
                continue;
            }
        };
        let key = if at_all { list_of.get(&value).copied().unwrap_or(asked) } else { asked };
        came += u64::from(waits);
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
    if came > claimed {
        let what =
            format!("{came} clients that waited got an element, but only {claimed} of them were claimed");
        return Some(Failure {
            broken: Broken::Safety,
            words: format!("keyspace '{}': {what}", space.keyspace.name()),
            window_us: (0, u64::MAX),
            picture: None,
        });
    }
    let mut lost_on_the_way = claimed - came;
    for ((key, value), Pushed { entry, taken }) in &pushed {
        let was_pushed =
            matches!(entry.reply(), Some((_, Reply::Integer(_) | Reply::Session(_) | Reply::Ok)));
        if !was_pushed || taken.is_some() {
            continue;
        }
        let [at_once, waiting] = unanswered.entry(*key).or_default();
        let less = |count: &mut usize| count.checked_sub(1).map(|less| *count = less).is_some();
        // What can explain elements of this list alone comes before what can explain those of any.
        let is_allowed = less(at_once)
            || lost_on_the_way > 0 && less(waiting) && {
                lost_on_the_way -= 1;
                true
            }
            || entry.operation.kind != Kind::Append && less(&mut unanswered_at_all)
            || less(&mut kept);
        if !is_allowed {
            let words =
                format!("v{} of client {} was pushed, and came to nobody", value.number, entry.client);
            return broken(words, entry);
        }
    }
    None
}
