//! Keys that expire. Whether a read in the vicinity of a deadline is right depends on clocks, so the check leaves room for
//! them: no value is seen when its deadline has passed by more than the clocks that count can be wrong, and none is missed
//! when its deadline lies farther ahead than that.

use crate::operation::{Kind, Reply, Value};
use crate::record::Entry;
use crate::report::{Broken, Failure};
use std::collections::BTreeMap;

/// What a node's clock may be off besides: its replies' way, and reading time once per turn.
const SLACK_US: u64 = 1_000;

/// Both of who writes and who reads may be off by what a clock is known to, and be held back as well.
const BOUND_US: u64 = 2 * protocol::CLOCK_BOUND_MS * 1000;

/// A write of a value that lives so long.
struct Write {
    start: u64,
    /// When it surely had taken effect.
    end: u64,
    lives_us: u64,
}

/// `clocks_apart_ms`: how far apart the times were, in the course of the run, that a majority of clocks agreed with.
/// `is_last_seen`: a read sees the newest value.
pub(super) fn judge<'e>(
    entries: impl Iterator<Item = &'e Entry> + Clone,
    clocks_apart_ms: u64,
    is_last_seen: bool,
) -> Option<Failure> {
    let room_us = clocks_apart_ms * 1000 + BOUND_US + SLACK_US;
    let sets = entries.clone().filter(|entry| entry.operation.kind == Kind::SetFleeting);
    let mut by_key: BTreeMap<_, Vec<Write>> = BTreeMap::new();
    let mut gone_at: BTreeMap<Value, u64> = BTreeMap::new();
    for entry in sets {
        let lives_us = u64::from(entry.operation.lives_ms) * 1000;
        let end = entry.reply().filter(|(_, reply)| reply.is_done()).map_or(u64::MAX, |(at, _)| at);
        gone_at.insert(entry.operation.value, end.saturating_add(lives_us + room_us));
        by_key.entry(entry.operation.key).or_default().push(Write { start: entry.start, end, lives_us });
    }
    for entry in entries.filter(|entry| entry.operation.kind == Kind::GetFleeting) {
        let Some((end, reply)) = entry.reply() else { continue };
        let what = match reply {
            Reply::Value(value) => match gone_at.get(&value) {
                Some(gone) if entry.start <= *gone => continue,
                Some(_) => format!("v{}, whose time was over", value.number),
                None => format!("v{}, which nobody wrote", value.number),
            },
            Reply::Nil
                if is_last_seen && is_missed(by_key.get(&entry.operation.key), entry, end, room_us) =>
            {
                "nothing, though no value's time was over".to_string()
            }
            _ => continue,
        };
        let words = format!("client {} read {what}", entry.client);
        return Some(Failure { broken: Broken::Safety, words, window_us: (entry.start, end), picture: None });
    }
    None
}

/// Whether a key that was not found must have been there: something was written before, and whatever may have been the
/// newest value lives on.
fn is_missed(writes: Option<&Vec<Write>>, read: &Entry, read_end: u64, room_us: u64) -> bool {
    let Some(writes) = writes else { return false };
    let Some(before) = writes.iter().filter(|write| write.end < read.start).map(|write| write.start).max()
    else {
        return false;
    };
    let mut may_be_newest = writes.iter().filter(|write| write.end > before && write.start < read_end);
    may_be_newest.all(|write| write.start + write.lives_us > read_end + room_us)
}
