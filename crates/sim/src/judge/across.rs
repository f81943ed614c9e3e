//! Checks that transactions over several keyspaces and shards are strictly serializable, together with single commands on the same
//! lists.

use super::Evidence;
use crate::across::steps;
use crate::operation::{Kind, Reply};
use crate::record::Entry;
use crate::report::{Broken, Failure};
use check::transactions::{Ending, Step, Transaction, Transactions};

/// Returns how many transactions were checked, and what is wrong. Nothing is checked where a keyspace may have lost what it had
/// acknowledged, or was dropped.
pub(super) fn judge(evidence: &Evidence<'_>) -> (u64, Option<Failure>) {
    let takes_part = |index: &usize| evidence.spaces[*index].kinds.contains(&Kind::Across);
    let mut indices = (0..evidence.spaces.len()).filter(takes_part);
    let kept = |index: usize| evidence.stayed[index] && !evidence.forgot[index] && !evidence.recovered[index];
    if !indices.clone().any(|_| true) || !indices.all(kept) {
        return (0, None);
    }
    let is_across = |entry: &&Entry| matches!(entry.operation.kind, Kind::Across | Kind::ReadAcross);
    let entries: Vec<&Entry> = evidence.record.on_keys().filter(is_across).collect();
    let history = Transactions { all: entries.iter().map(|entry| transaction(entry, evidence)).collect() };
    let failure = history.strictly_serializable().err().map(|violation| {
        let places = violation.places();
        let starts = places.iter().map(|place| entries[*place].start);
        let ends = places.iter().map(|place| entries[*place].reply().map_or(u64::MAX, |(at, _)| at));
        Failure {
            broken: Broken::Safety,
            words: violation.words(&history),
            window_us: (starts.min().unwrap_or(0), ends.max().unwrap_or(u64::MAX)),
            picture: None,
        }
    });
    (history.answered() as u64, failure)
}

fn transaction(entry: &Entry, evidence: &Evidence<'_>) -> Transaction {
    let (ending, end) = match entry.reply() {
        Some((at, Reply::Ok)) => (Ending::Ok, Some(at * 1000)),
        Some((at, Reply::Refused(_))) => (Ending::Failed, Some(at * 1000)),
        _ => (Ending::Unknown, None),
    };
    let reads = evidence.record.reads.get(&entry.operation.number).map_or(&[][..], Vec::as_slice);
    let mut reads = reads.iter();
    let step = |step: crate::across::Step| {
        let mut key = Vec::new();
        step.key.write(&evidence.spaces[usize::from(step.key.space)].keyspace.prefix, &mut key);
        match step.appends {
            true => Step::Append { key, element: entry.operation.number.to_string().into_bytes() },
            false => Step::Read { key, elements: reads.next().cloned().unwrap_or_default() },
        }
    };
    let steps = steps(&entry.operation, evidence.spaces).into_iter().map(step).collect();
    Transaction { client: entry.client.into(), start: entry.start * 1000, end, ending, steps }
}
