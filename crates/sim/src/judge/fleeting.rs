//! Checks keys that expire. Whether a read near a deadline is right depends on clocks, so the check allows for them:
//! no value may be seen when its deadline has passed by more than the possible error of the relevant clocks, and none
//! may be missing when its deadline is further ahead than that.

use crate::operation::{Kind, Reply, Value};
use crate::record::Entry;
use crate::report::{Broken, Failure};
use std::collections::BTreeMap;

/// A node's further error: the latency of replies, and reading the time once per turn.
const SLACK_US: u64 = 1_000;

/// Writer and reader may both be off by the bound for clocks, and be delayed as well.
const BOUND_US: u64 = 2 * protocol::CLOCK_BOUND_MS * 1000;

/// A write of a value with a lifetime.
struct Write {
    start: u64,
    /// When it had certainly taken effect.
    end: u64,
    lives_us: u64,
}

/// `clocks_apart_ms` is the width of the range of times on which a majority of clocks agreed during the run.
/// `is_last_seen`: whether every read sees the newest value.
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
        let lives_us = u64::from(entry.operation.lifetime_ms) * 1000;
        let end = entry.reply().filter(|(_, reply)| reply.is_done()).map_or(u64::MAX, |(at, _)| at);
        gone_at.insert(entry.operation.value, end.saturating_add(lives_us + room_us));
        by_key.entry(entry.operation.key).or_default().push(Write { start: entry.start, end, lives_us });
    }
    for entry in entries.filter(|entry| entry.operation.kind == Kind::GetFleeting) {
        let Some((end, reply)) = entry.reply() else { continue };
        let what = match reply {
            Reply::Value(value) => match gone_at.get(&value) {
                Some(gone) if entry.start <= *gone => continue,
                Some(_) => format!("v{}, which had expired", value.number),
                None => format!("v{}, which no client wrote", value.number),
            },
            Reply::Nil
                if is_last_seen && is_missed(by_key.get(&entry.operation.key), entry, end, room_us) =>
            {
                "nothing, though no value had expired".to_string()
            }
            _ => continue,
        };
        let words = format!("client {} read {what}", entry.client);
        return Some(Failure { broken: Broken::Safety, words, window_us: (entry.start, end), picture: None });
    }
    None
}

/// Whether a key that was not found must have existed: something was written before, and every value that may have
/// been the newest was still alive.
fn is_missed(writes: Option<&Vec<Write>>, read: &Entry, read_end: u64, room_us: u64) -> bool {
    let Some(writes) = writes else { return false };
    let Some(before) = writes.iter().filter(|write| write.end < read.start).map(|write| write.start).max()
    else {
        return false;
    };
    let mut may_be_newest = writes.iter().filter(|write| write.end > before && write.start < read_end);
    may_be_newest.all(|write| write.start + write.lives_us > read_end + room_us)
}
