//! Facts about streams: `XINFO`.

use super::groups::{no_group_of, shown};
use super::words::write_entries;
use crate::UnixMs;
use crate::command::StreamId;
use crate::reply::ReplyBuffer;
use crate::table::refusals::refuse_large_reply;
use crate::table::stream_items::items::{self, Group};
use crate::table::stream_items::view::{Stream, write_id};
use std::collections::BTreeSet;

/// Redis keeps 100 entries in one node, and has a radix tree of the nodes. Ours differ, but clients ask for these facts, so
/// we report what Redis would have.
const NODE_ENTRIES: usize = 100;

fn write_number(name: &str, number: u64, out: &mut ReplyBuffer) {
    out.bulk(name.as_bytes());
    out.integer(number as i64);
}

fn write_optional(name: &str, number: Option<u64>, out: &mut ReplyBuffer) {
    out.bulk(name.as_bytes());
    match number {
        Some(number) => out.integer(number as i64),
        None => out.null(),
    }
}

fn write_named_id(name: &str, id: StreamId, out: &mut ReplyBuffer) {
    out.bulk(name.as_bytes());
    write_id(id, out);
}

/// Appends six facts. What is too old to be remembered does not count, though the next entry of a producer removes it.
fn write_producers(stream: Stream<'_>, now: UnixMs, out: &mut ReplyBuffer) {
    /// Producers are counted one by one among so many names of entries at most.
    const COUNTED: usize = 10_000;
    let producers = stream.producers();
    let all = stream.region(items::SENT_BY_ALL, &[]);
    let ms = now.saturating_add(1).saturating_sub(producers.duration_s.saturating_mul(1000));
    let kept = all.end - stream.items.seek(&items::sent_by_all_key(StreamId { ms, seq: 0 }));
    let named_by = |item| match items::Item::trusted(item) {
        items::Item::SentByAll { producer, .. } => Some(producer),
        _ => None,
    };
    let tracked = if kept == all.len() || kept > COUNTED {
        stream.region(items::PRODUCER, &[]).len()
    } else {
        let kept = stream.items.iter_from(all.end - kept).take(kept);
        kept.filter_map(named_by).collect::<BTreeSet<_>>().len()
    };
    write_number("idmp-duration", producers.duration_s, out);
    write_number("idmp-maxsize", producers.most, out);
    write_number("pids-tracked", tracked as u64, out);
    write_number("iids-tracked", kept as u64, out);
    write_number("iids-added", producers.added, out);
    write_number("iids-duplicates", producers.duplicates, out);
}

/// Appends seven facts.
fn write_head(stream: Stream<'_>, out: &mut ReplyBuffer) {
    let (head, length) = (stream.head(), stream.len());
    let nodes = length.div_ceil(NODE_ENTRIES) as u64;
    write_number("length", length as u64, out);
    write_number("radix-tree-keys", nodes, out);
    write_number("radix-tree-nodes", nodes + 1, out);
    write_named_id("last-generated-id", head.last, out);
    write_named_id("max-deleted-entry-id", head.removed, out);
    write_number("entries-added", head.added, out);
    write_named_id("recorded-first-entry-id", stream.edge(false), out);
}

/// `producers_at`: the time, if what producers have sent is shown, too.
pub(super) fn write_stream(stream: Stream<'_>, producers_at: Option<UnixMs>, out: &mut ReplyBuffer) {
    out.map(if producers_at.is_some() { 16 } else { 10 });
    write_head(stream, out);
    if let Some(now) = producers_at {
        write_producers(stream, now, out);
    }
    write_number("groups", stream.groups().count() as u64, out);
    let entries = stream.first()..stream.items.len();
    let mut writer = stream.writer();
    for (name, rank) in [("first-entry", entries.start), ("last-entry", entries.end.wrapping_sub(1))] {
        out.bulk(name.as_bytes());
        match stream.items.get(rank) {
            Some(item) if !entries.is_empty() => {
                writer.write(item, out);
            }
            _ => out.null(),
        }
    }
}

/// Appends everything, with at most `count` elements of each list. `more_at`: the time, if also what producers have sent, and
/// when each consumer last got an entry.
pub(super) fn write_all(stream: Stream<'_>, count: usize, more_at: Option<UnixMs>, out: &mut ReplyBuffer) {
    let (start, with_more) = (out.len(), more_at.is_some());
    out.map(if with_more { 15 } else { 9 });
    write_head(stream, out);
    if let Some(now) = more_at {
        write_producers(stream, now, out);
    }
    out.bulk(b"entries");
    write_entries(stream, stream.len().min(count), stream.items.iter_from(stream.first()), out);
    out.bulk(b"groups");
    out.array(stream.groups().count());
    for (name, group) in stream.groups() {
        out.map(7);
        out.bulk(b"name");
        out.bulk(&name);
        write_group(stream, group, count, with_more, out);
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

fn write_group(stream: Stream<'_>, group: Group, count: usize, with_more: bool, out: &mut ReplyBuffer) {
    let number = group.number;
    write_named_id("last-delivered-id", group.last, out);
    write_optional("entries-read", group.read, out);
    write_optional("lag", stream.lag(group, with_more), out);
    let pending = stream.pending_count(number, None);
    write_number("pel-count", pending as u64, out);
    out.bulk(b"pending");
    out.array(pending.min(count));
    for (id, pending) in stream.pending_from(number, StreamId::MIN).take(count) {
        out.array(4);
        write_id(id, out);
        out.bulk(stream.owner_of(number, &pending));
        out.integer(pending.delivered_ms as i64);
        out.integer(shown(pending.deliveries));
    }
    out.bulk(b"consumers");
    out.array(stream.consumers(number).count());
    for consumer in stream.consumers(number) {
        out.map(if with_more { 5 } else { 4 });
        out.bulk(b"name");
        out.bulk(consumer.name);
        write_number("seen-time", consumer.seen_ms, out);
        if with_more {
            out.bulk(b"active-time");
            out.integer(stream.active_ms(number, &consumer).map_or(-1, |active_ms| active_ms as i64));
        }
        let owned = stream.pending_count(number, Some(consumer.number));
        write_number("pel-count", owned as u64, out);
        out.bulk(b"pending");
        out.array(owned.min(count));
        for id in stream.owned_from(number, consumer.number, StreamId::MIN).take(count) {
            let Some(pending) = stream.pending(number, id) else {
                unreachable!("what a consumer has is pending")
            };
            out.array(3);
            write_id(id, out);
            out.integer(pending.delivered_ms as i64);
            out.integer(shown(pending.deliveries));
        }
    }
}

/// `knows_ends`: see [`Stream::lag`].
pub(super) fn write_groups(stream: Stream<'_>, knows_ends: bool, out: &mut ReplyBuffer) {
    out.array(stream.groups().count());
    for (name, group) in stream.groups() {
        out.map(6);
        out.bulk(b"name");
        out.bulk(&name);
        let consumers = stream.region(items::NAMED, &[group.number]).len();
        write_number("consumers", consumers as u64, out);
        write_number("pending", stream.pending_count(group.number, None) as u64, out);
        write_named_id("last-delivered-id", group.last, out);
        write_optional("entries-read", group.read, out);
        write_optional("lag", stream.lag(group, knows_ends), out);
    }
}

pub(super) fn write_consumers(
    stream: Stream<'_>,
    key: &[u8],
    name: &[u8],
    now: UnixMs,
    with_more: bool,
    out: &mut ReplyBuffer,
) {
    let Some(group) = stream.group(name) else { return out.error(&no_group_of(key, name)) };
    out.array(stream.consumers(group.number).count());
    for consumer in stream.consumers(group.number) {
        out.map(if with_more { 4 } else { 3 });
        out.bulk(b"name");
        out.bulk(consumer.name);
        let pending = stream.pending_count(group.number, Some(consumer.number));
        write_number("pending", pending as u64, out);
        write_number("idle", now.saturating_sub(consumer.seen_ms), out);
        if with_more {
            let active_ms = stream.active_ms(group.number, &consumer);
            out.bulk(b"inactive");
            out.integer(active_ms.map_or(-1, |active_ms| now.saturating_sub(active_ms) as i64));
        }
    }
}
