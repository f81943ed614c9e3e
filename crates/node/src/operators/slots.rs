//! What a node's replicas hold of hash slots.

use super::{Range, ranges};
use crate::context::Context;
use cluster::slots::{SLOTS, slot_of};
use commands::ClusterCommand;
use kv::number::parse_integer;
use kv::{ReplyBuffer, Table};
use std::cmp::Reverse;
use wire::resp::Arguments;

/// The most keys of a shard among which those of a slot are looked for: some ten milliseconds.
const SLOT_WALKED_KEYS_MAX: usize = 100_000;

/// `CLUSTER GETKEYSINSLOT` returns no more keys than fit into about this many bytes.
const REPLY_BYTES: usize = 1 << 20;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// The table of this node's replica of a range of slots; `None`: it has none.
///
/// # Errors
/// The error for the client if the table has too many keys.
fn table_of<'c>(cx: &'c Context, range: &Range<'_>) -> Result<Option<&'c Table>, String> {
    let group = cx.groups.get(range.group).filter(|group| group.holds.is_none());
    let table = group.and_then(|group| group.replica.as_ref()).map(|replica| replica.table());
    match table.map(Table::len) {
        Some(keys) if keys > SLOT_WALKED_KEYS_MAX => Err(format!(
            "ERR the keys of a slot are found by looking at all keys of its shard, and node {} holds {keys}, more than \
             SLOT_WALKED_KEYS_MAX ({SLOT_WALKED_KEYS_MAX}): use SCAN, and CLUSTER KEYSLOT of each key",
            cx.configuration.node
        )),
        _ => Ok(table),
    }
}

/// `CLUSTER COUNTKEYSINSLOT slot` and `CLUSTER GETKEYSINSLOT slot count`: keys of this node's replica, as in Redis.
pub(super) fn keys_in_slot(
    cx: &Context,
    command: ClusterCommand,
    arguments: Arguments<'_>,
    replies: &mut ReplyBuffer,
) -> Result<(), String> {
    let number = |place| {
        let number = parse_integer(arguments.get(place).unwrap_or(b"0"));
        number.ok_or(NOT_AN_INTEGER)
    };
    let (slot, count) = (number(2)?, number(3)?);
    let slot = u16::try_from(slot).ok().filter(|slot| *slot < SLOTS);
    let (slot, count) = match (slot, usize::try_from(count)) {
        (Some(slot), Ok(count)) => (slot, count),
        _ if command == ClusterCommand::CountKeysInSlot => return Err("ERR Invalid slot".into()),
        _ => return Err("ERR Invalid slot or number of keys".into()),
    };
    let ranges = ranges(cx);
    let range = ranges.iter().find(|range| (range.slots.first..=range.slots.last).contains(&slot));
    let table = range.map(|range| table_of(cx, range)).transpose()?.flatten();
    let table = table.ok_or_else(|| {
        format!("ERR node {} has no replica of slot {slot}: ask another node", cx.configuration.node)
    })?;
    let mut keys = table.live_keys(cx.now.unix_ms).filter(|key| slot_of(key) == slot);
    if command == ClusterCommand::CountKeysInSlot {
        replies.integer(keys.count() as i64);
        return Ok(());
    }
    let (mut found, mut rows) = (0, ReplyBuffer::new());
    while found < count
        && rows.len() < REPLY_BYTES
        && let Some(key) = keys.next()
    {
        rows.bulk(key);
        found += 1;
    }
    replies.array(found);
    replies.extend_encoded(rows.as_bytes());
    Ok(())
}

/// `CLUSTER SLOT-STATS SLOTSRANGE first last` and `CLUSTER SLOT-STATS ORDERBY key-count [LIMIT count] [ASC | DESC]`: how many keys
/// this node's replicas hold of each slot. Nothing else is counted by slots.
pub(super) fn slot_stats(
    cx: &mut Context,
    arguments: Arguments<'_>,
    replies: &mut ReplyBuffer,
) -> Result<(), String> {
    let options = arguments.skip(2);
    let is = |place: usize, word: &str| {
        options.get(place).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()))
    };
    if options.len() == 3 && is(0, "SLOTSRANGE") {
        let (first, last) = (slot_at(options, 1)?, slot_at(options, 2)?);
        if first > last {
            return Err(format!("ERR Start slot number {first} is greater than end slot number {last}"));
        }
        let counts = key_counts(cx, first, last)?;
        write_stats(&counts, replies);
        return Ok(());
    }
    if !is(0, "ORDERBY") {
        return Err("ERR syntax error".into());
    }
    if !is(1, "key-count") {
        return Err("ERR Unrecognized sort metric for ORDERBY. Slots are ordered by key-count: neither time nor bytes are counted \
                    by slots"
            .into());
    }
    let (mut limit, mut is_ascending) = (None, None);
    let mut at = 2;
    while at < options.len() {
        let is_repeated = if is(at, "LIMIT") && at + 1 < options.len() {
            let given =
                parse_integer(&options[at + 1]).filter(|given| (1..=i64::from(SLOTS)).contains(given));
            let given =
                given.ok_or("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).")?;
            at += 1;
            limit.replace(given as usize).is_some()
        } else if is(at, "ASC") || is(at, "DESC") {
            is_ascending.replace(is(at, "ASC")).is_some()
        } else {
            return Err("ERR syntax error".into());
        };
        if is_repeated {
            return Err("ERR Multiple filters of the same type are disallowed.".into());
        }
        at += 1;
    }
    let mut counts = key_counts(cx, 0, SLOTS - 1)?;
    // Of equal ones the lower slot comes first.
    match is_ascending {
        Some(true) => counts.sort_by_key(|(_, keys)| *keys),
        _ => counts.sort_by_key(|(_, keys)| Reverse(*keys)),
    }
    counts.truncate(limit.unwrap_or(usize::from(SLOTS)));
    write_stats(&counts, replies);
    Ok(())
}

fn slot_at(options: Arguments<'_>, place: usize) -> Result<u16, String> {
    let slot = options.get(place).and_then(parse_integer).and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| *slot < SLOTS).ok_or_else(|| "ERR Invalid or out of range slot".into())
}

/// The slots of these of which this node has a replica, in order, each with the number of its keys there.
fn key_counts(cx: &mut Context, first: u16, last: u16) -> Result<Vec<(u16, u32)>, String> {
    /// About how long it takes to find out a key's slot, in nanoseconds.
    const KEY_NS: u64 = 100;
    let mut counts: Vec<Option<u32>> = vec![None; usize::from(SLOTS)];
    let mut walked = 0;
    for range in ranges(cx) {
        if range.slots.last < first || range.slots.first > last {
            continue;
        }
        let Some(table) = table_of(cx, &range)? else { continue };
        (range.slots.first..=range.slots.last).for_each(|slot| counts[usize::from(slot)] = Some(0));
        for key in table.live_keys(cx.now.unix_ms) {
            if let Some(count) = &mut counts[usize::from(slot_of(key))] {
                *count += 1;
            }
        }
        walked += table.len() as u64;
    }
    cx.spend(walked * KEY_NS);
    let counts = counts.iter().enumerate().map(|(slot, count)| (slot as u16, *count));
    Ok(counts
        .filter(|(slot, _)| (first..=last).contains(slot))
        .filter_map(|(slot, count)| Some((slot, count?)))
        .collect())
}

fn write_stats(counts: &[(u16, u32)], replies: &mut ReplyBuffer) {
    replies.array(counts.len());
    for (slot, keys) in counts {
        replies.array(2);
        replies.integer(i64::from(*slot));
        replies.map(1);
        replies.bulk(b"key-count");
        replies.integer(i64::from(*keys));
    }
}
