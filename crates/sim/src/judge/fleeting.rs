//! Keys that expire. Whether a read in the vicinity of a deadline is right depends on clocks, so the check is
//! loose: no value is seen when its deadline has passed by more than clocks can be wrong.

use crate::operation::{Kind, Reply, Value};
use crate::record::Entry;
use crate::report::{Broken, Failure};
use std::collections::BTreeMap;

/// What a node's clock may be off besides: its replies' way, and reading time once per turn.
const SLACK_US: u64 = 1_000;

pub(super) fn judge<'e>(
    entries: impl Iterator<Item = &'e Entry> + Clone,
    clock_error_ms: u64,
) -> Option<Failure> {
    let sets = entries.clone().filter(|entry| entry.operation.kind == Kind::SetFleeting);
    // When each value must be gone.
    let gone_at: BTreeMap<Value, u64> = sets
        .map(|entry| {
            let lives_us = u64::from(entry.operation.lives_ms) * 1000;
            // Written as late as its answer, by a clock that is late, and read by one that is later still.
            let written = entry.reply().filter(|(_, reply)| reply.is_done()).map_or(u64::MAX, |(at, _)| at);
            let gone = written.saturating_add(lives_us + 2 * clock_error_ms * 1000 + SLACK_US);
            (entry.operation.value, gone)
        })
        .collect();
    for entry in entries.filter(|entry| entry.operation.kind == Kind::GetFleeting) {
        let Some((end, Reply::Value(value))) = entry.reply() else { continue };
        let known = gone_at.get(&value);
        if known.is_none_or(|gone| entry.start > *gone) {
            let what = if known.is_some() { "whose time was over" } else { "which nobody wrote" };
            let words = format!("client {} read v{}, {what}", entry.client, value.number);
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
