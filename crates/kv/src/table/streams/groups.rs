//! Groups of consumers: `XREADGROUP`, `XACK`, `XCLAIM` and similar commands.
//!
//! A group knows the id up to which it has read. An entry that it delivers to a consumer is pending until the consumer
//! acknowledges it.

use super::changes::Changing;
use super::words::{ids_of, range_of, up_to};
use crate::UnixMs;
use crate::command::{
    DELIVERED_BYTES_MAX, DELIVERED_MAX, List, NOT_AN_ID, ONE_DELIVERY_LESS, SAME_DELIVERIES, StreamCommand,
    StreamId, entries_read, parse_id_bound,
};
use crate::reply::{Reply, ReplyBuffer};
use crate::table::changes::ChangeClass;
use crate::table::found::Found;
use crate::table::kind::Kind;
use crate::table::refusals::{TOO_MANY_POPPED, WRONG_KIND};
use crate::table::stream_items::items::{self, Group, NO_CONSUMER, Pending};
use crate::table::stream_items::view::{self, Stream, write_id};
use crate::table::transactions::CUT_WRITE;
use crate::table::{Record, Table};
use std::collections::BinaryHeap;

pub(super) const ONLY_IN_GROUPS: &str =
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.";
const LAST_IN_GROUP: &str = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.";
const NO_STREAM: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";
const GROUP_EXISTS: &str = "BUSYGROUP Consumer Group name already exists";

/// How many more deliveries one command may make, of all its streams together. It is limited because each delivered entry
/// becomes pending.
struct Room {
    entries: usize,
    bytes: usize,
}

impl Room {
    const WHOLE: Room = Room { entries: DELIVERED_MAX, bytes: DELIVERED_BYTES_MAX };

    fn is_empty(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }

    /// Takes room for one entry; returns false if there is none left.
    fn take(&mut self, item: Option<&[u8]>) -> bool {
        let has_room = !self.is_empty();
        if has_room {
            self.entries -= 1;
            self.bytes = self.bytes.saturating_sub(item.map_or(0, <[u8]>::len));
        }
        has_room
    }
}

/// A command that reads for a consumer of a group.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    streams: List<'a>,
    count: u64,
    acknowledges: bool,
    /// For how long what it claims has been pending, if it claims anything.
    claim_ms: Option<u64>,
    /// Whether it is of level 2: it creates the consumer, and notes that it was there, even if there is nothing; and it
    /// counts what the group has read as Redis has done since 7.4.
    is_second: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn of(command: &StreamCommand<'a>) -> Option<Reader<'a>> {
        match *command {
            StreamCommand::ReadGroup { group, consumer, streams, count, acknowledges } => {
                let (claim_ms, is_second) = (None, false);
                Some(Reader { group, consumer, streams, count, acknowledges, claim_ms, is_second })
            }
            StreamCommand::Consume { group, consumer, streams, count, acknowledges, claim_ms } => {
                let (count, claim_ms) = (count.into(), u64::try_from(claim_ms).ok());
                let is_second = true;
                Some(Reader { group, consumer, streams, count, acknowledges, claim_ms, is_second })
            }
            _ => None,
        }
    }
}

/// One delivery more. It saturates where nodes of release 1 do, so that replicas of both releases agree.
fn once_more(deliveries: u64) -> u64 {
    deliveries.saturating_add(1)
}

/// A number of deliveries, as far as replies can tell it.
pub(super) fn shown(deliveries: u64) -> i64 {
    i64::try_from(deliveries).unwrap_or(i64::MAX)
}

/// For how long an entry has been pending; `None` if no consumer has it.
fn idle_ms(pending: &Pending, now: UnixMs) -> Option<u64> {
    (pending.consumer != NO_CONSUMER).then(|| now.saturating_sub(pending.delivered_ms))
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn no_group(key: &[u8], group: &[u8]) -> String {
    format!("NOGROUP No such key '{}' or consumer group '{}'", text(key), text(group))
}

pub(super) fn no_group_of(key: &[u8], group: &[u8]) -> String {
    format!("NOGROUP No such consumer group '{}' for key name '{}'", text(group), text(key))
}

pub(super) fn write_pending(stream: Stream<'_>, key: &[u8], group: &[u8], out: &mut ReplyBuffer) {
    let Some(Group { number, .. }) = stream.group(group) else { return out.error(&no_group(key, group)) };
    let ranks = stream.region(items::PENDING, &[number]);
    let id_at = |rank: usize| match stream.items.get(rank).map(items::Item::trusted) {
        Some(items::Item::Pending { id, .. }) => id,
        _ => unreachable!("what is pending is in its region"),
    };
    out.array(4);
    out.integer(ranks.len() as i64);
    if ranks.is_empty() {
        out.null();
        out.null();
        return out.push(Reply::NullArray);
    }
    write_id(id_at(ranks.start), out);
    write_id(id_at(ranks.end - 1), out);
    let consumers = stream.consumers(number).map(|consumer| {
        let count = stream.pending_count(number, Some(consumer.number));
        (consumer.name, count)
    });
    let consumers: Vec<_> = consumers.filter(|(_, count)| *count > 0).collect();
    out.array(consumers.len());
    for (name, count) in consumers {
        out.array(2);
        out.bulk(name);
        out.bulk(count.to_string().as_bytes());
    }
}

pub(super) fn write_pending_range(
    stream: Stream<'_>,
    key: &[u8],
    words: List<'_>,
    (min_idle_ms, count): (u64, u64),
    now: UnixMs,
    out: &mut ReplyBuffer,
) {
    let mut words = words.iter();
    let name = words.next().unwrap_or_default();
    let (start, end) = match range_of(words.next(), words.next()) {
        Ok(range) => range,
        Err(error) => return out.error(error),
    };
    let Some(group) = stream.group(name) else { return out.error(&no_group(key, name)) };
    let group = group.number;
    let pending: &mut dyn Iterator<Item = (StreamId, Pending)> = match words.next() {
        None => &mut stream.pending_from(group, start),
        Some(consumer) => {
            let Some(consumer) = stream.consumer(group, consumer) else { return out.array(0) };
            &mut stream.owned_from(group, consumer, start).map(move |id| match stream.pending(group, id) {
                Some(pending) => (id, pending),
                None => unreachable!("what a consumer has is pending"),
            })
        }
    };
    let is_idle = |pending: &Pending| idle_ms(pending, now).is_none_or(|idle_ms| idle_ms >= min_idle_ms);
    let found = pending.take_while(|(id, _)| *id <= end).filter(|(_, it)| is_idle(it));
    // Each entry takes at least this many bytes of the reply.
    const REPLY_BYTES: usize = 32;
    let most = usize::try_from(count).unwrap_or(usize::MAX).min(out.reply_bytes_max() / REPLY_BYTES);
    let found: Vec<_> = found.take(most).collect();
    out.array(found.len());
    for (id, pending) in found {
        out.array(4);
        write_id(id, out);
        out.bulk(stream.owner_of(group, &pending));
        out.integer(idle_ms(&pending, now).map_or(-1, |idle_ms| idle_ms as i64));
        out.integer(shown(pending.deliveries));
    }
}

/// The result of a claim of one entry.
enum Claimed {
    /// It stays as it is.
    Kept,
    /// The entry no longer exists, so it is not pending any more.
    Gone,
    /// The consumer has it now.
    Taken,
}

/// The state of entries that a command has delivered to a consumer.
pub(in crate::table) struct Delivered {
    /// Whether the consumer exists.
    pub(in crate::table) is_known: bool,
    /// Entries that are pending for the consumer: since when, how often delivered, and their ids.
    pub(in crate::table) pending: Vec<(u64, u64, Vec<StreamId>)>,
    /// The delivered entries that are pending for no consumer.
    pub(in crate::table) gone: Vec<StreamId>,
    /// The id up to which the group has read, and the number of entries up to it.
    pub(in crate::table) last: StreamId,
    pub(in crate::table) read: Option<u64>,
}

impl Table {
    /// The error for a stream that lacks a group, or for a key that holds no stream.
    pub(in crate::table) fn lacks_group(&self, key: &[u8], group: &[u8], now: UnixMs) -> Option<String> {
        let found = self.stream(key, now).and_then(|stream| stream.group(group));
        found.is_none().then(|| no_group(key, group))
    }

    /// Commands that name one group of one stream.
    pub(super) fn change_group(
        &mut self,
        command: &StreamCommand<'_>,
        found: Found<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        use StreamCommand::*;
        let key = found.key;
        let name = match *command {
            CreateGroup { group, .. } | SetGroup { group, .. } | DestroyGroup { group, .. } => group,
            CreateConsumer { group, .. } | DeleteConsumer { group, .. } | Acknowledge { group, .. } => group,
            Release { group, .. } => group,
            Claim { words, .. } | ClaimRange { words, .. } => words.iter().next().unwrap_or_default(),
            // See `change_stream`.
            _ => return Ok(()),
        };
        let stream = self.stream_at(found);
        let (group, items::Head { last, added, .. }) = (stream.group(name), stream.head());
        let is_missing = found.place.is_none();
        let read_up_to = |id: &[u8]| if id == b"$" { Some(last) } else { StreamId::parse(id, 0) };
        match (command, group) {
            (Acknowledge { .. }, None) => out.integer(0),
            (Claim { .. } | ClaimRange { .. } | Release { .. }, None) => out.error(&no_group(key, name)),
            (CreateGroup { makes_stream: true, .. }, _) if is_missing => {
                self.create_group(command, read_up_to, found, record, out)?;
            }
            _ if is_missing => return Err(NO_STREAM),
            (CreateGroup { .. }, None) => self.create_group(command, read_up_to, found, record, out)?,
            (CreateGroup { id, .. }, Some(_)) => {
                return Err(if read_up_to(id).is_some() { GROUP_EXISTS } else { NOT_AN_ID });
            }
            (DestroyGroup { .. }, None) => out.integer(0),
            (_, None) => out.error(&no_group_of(key, name)),
            (SetGroup { id, entries_read: read, .. }, Some(group)) => {
                let last = match *id {
                    b"-" => StreamId::MIN,
                    b"+" => StreamId::MAX,
                    id => read_up_to(id).ok_or(NOT_AN_ID)?,
                };
                let group = Group { last, read: entries_read(*read, added), ..group };
                self.change_one(found, record, |stream| stream.put_group(name, group));
                out.ok();
            }
            (DestroyGroup { .. }, Some(group)) => {
                self.change_one(found, record, |stream| stream.destroy_group(name, group.number));
                out.integer(1);
            }
            (CreateConsumer { consumer, .. }, Some(group)) => {
                let is_new = stream.consumer(group.number, consumer).is_none();
                if is_new {
                    self.change_one(found, record, |stream| {
                        stream.see_consumer(group.number, consumer, record.time)
                    });
                }
                out.integer(i64::from(is_new));
            }
            (DeleteConsumer { consumer, .. }, Some(group)) => {
                let count =
                    self.change_one(found, record, |stream| stream.delete_consumer(group.number, consumer));
                out.integer(count as i64);
            }
            (Acknowledge { ids, .. }, Some(group)) => {
                let ids = ids_of(*ids)?;
                let count = self.change_one(found, record, |stream| {
                    ids.into_iter().filter(|id| stream.acknowledge(group.number, *id)).count()
                });
                out.integer(count as i64);
            }
            (Release { ids, deliveries, is_forced, .. }, Some(group)) => {
                let ids = ids_of(*ids)?;
                let change = |before: u64| match *deliveries {
                    SAME_DELIVERIES => before,
                    ONE_DELIVERY_LESS => before.saturating_sub(1),
                    deliveries => u64::try_from(deliveries).unwrap_or(0),
                };
                let mut released = Vec::new();
                self.change_one(found, record, |stream| {
                    for id in ids {
                        if stream.release(group.number, id, *is_forced, change) {
                            let pending = stream.view().pending(group.number, id);
                            released.push((id, pending.map_or(0, |pending| pending.deliveries)));
                        }
                    }
                });
                self.cover_released(key, name, &released);
                out.integer(released.len() as i64);
            }
            (Claim { .. }, Some(group)) => self.claim(found, command, group, record, out)?,
            (ClaimRange { words, min_idle_ms, count, only_ids, .. }, Some(group)) => {
                self.claim_range(found, *words, group, (*min_idle_ms, *count, *only_ids), record, out)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn create_group(
        &mut self,
        command: &StreamCommand<'_>,
        read_up_to: impl Fn(&[u8]) -> Option<StreamId>,
        found: Found<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        let StreamCommand::CreateGroup { group, id, entries_read: read, .. } = *command else {
            return Ok(());
        };
        let id = read_up_to(id).ok_or(NOT_AN_ID)?;
        let read = entries_read(read, self.stream_at(found).head().added);
        self.change_one(found, record, |stream| stream.create_group(group, id, read));
        out.ok();
        Ok(())
    }

    /// Of all that a consumer does, only its creation is an event. Returns whether it is new.
    fn begin_consumer(&mut self, found: Found<'_>, group: u64, consumer: &[u8]) -> bool {
        let is_new = self.stream_at(found).consumer(group, consumer).is_none();
        self.changes.begin_event(is_new.then_some((ChangeClass::Stream, "xgroup-createconsumer")));
        is_new
    }

    pub(super) fn read_group(&mut self, reader: Reader<'_>, record: Record, out: &mut ReplyBuffer) {
        let Reader { group, consumer, streams, count, acknowledges, claim_ms, is_second } = reader;
        // Check all streams before anything changes.
        for (key, id) in streams.pairs() {
            let Ok(found) = self.find_kind(key, Kind::Stream, record) else { return out.error(WRONG_KIND) };
            if self.stream_at(found).group(group).is_none() {
                let error = no_group(key, group);
                return out.error(&format!("{error} in XREADGROUP with GROUP option"));
            }
            match id {
                b"$" => return out.error(LAST_IN_GROUP),
                b">" => {}
                id if StreamId::parse(id, 0).is_some() => {}
                _ => return out.error(NOT_AN_ID),
            }
        }
        let (mut served, mut room) = (0_u32, Room::WHOLE);
        let mut replies = std::mem::take(&mut self.scratch);
        replies.clear();
        for (key, id) in streams.pairs() {
            let Ok(found) = self.find_kind(key, Kind::Stream, record) else { continue };
            let Some(state) = self.stream_at(found).group(group) else { continue };
            let is_quiet = self.is_quiet;
            let from = StreamId::parse(id, 0).filter(|id| *id != StreamId::MAX);
            let stream = self.stream_at(found);
            let idle = match claim_ms {
                Some(claim_ms) if from.is_none() => {
                    stream.idle_longest(state.number, claim_ms, up_to(count).min(room.entries), record.time)
                }
                _ => Vec::new(),
            };
            let has_nothing = from.is_none() && idle.is_empty() && stream.edge(true) <= state.last;
            if room.is_empty() || has_nothing && !is_second {
                continue;
            }
            let is_new = self.begin_consumer(found, state.number, consumer);
            if has_nothing {
                let see = |stream: &mut Changing<'_>| {
                    stream.see_attempt(state.number, consumer, record.time);
                };
                if is_new {
                    self.change_one(found, record, see);
                    self.cover_new_consumer(key, group, consumer);
                } else {
                    self.change_quietly(found, record, see);
                }
                continue;
            }
            let (limits, own) = ((up_to(count), &mut room), (group, state, consumer));
            let given = (record.time, is_quiet);
            let new = (record.time, is_quiet, is_second);
            let (ids, written) = self.change_one(found, record, |stream| match from {
                Some(from) => {
                    let after = from.next().unwrap_or(StreamId::MAX);
                    stream.write_again((state, consumer), after, limits, given)
                }
                None => {
                    let claims = claim_ms.map(|_| &idle[..]);
                    let delivered = stream.deliver(own, limits, !acknowledges, claims, new);
                    if is_second {
                        stream.bound_read(group);
                    }
                    delivered
                }
            });
            // What was claimed may all be gone.
            if is_second && from.is_none() && written.count == 0 {
                self.cover_deliveries(key, group, consumer, &ids);
                continue;
            }
            served += 1;
            replies.push(Reply::Entry);
            replies.bulk(key);
            if !is_quiet {
                replies.array(written.count);
                replies.extend_encoded(written.entries.as_bytes());
            }
            self.cover_deliveries(key, group, consumer, &ids);
        }
        match served {
            _ if self.is_quiet => out.error(CUT_WRITE),
            0 => out.push(Reply::NullArray),
            _ if replies.len() > out.reply_bytes_max() => out.error(TOO_MANY_POPPED),
            served => {
                out.push(Reply::Entries(served));
                out.extend_encoded(replies.as_bytes());
            }
        }
        replies.clear();
        self.scratch = replies;
    }

    fn claim(
        &mut self,
        found: Found<'_>,
        command: &StreamCommand<'_>,
        group: Group,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        let StreamCommand::Claim {
            words,
            min_idle_ms,
            delivered_ms,
            deliveries,
            is_idle,
            is_forced,
            only_ids,
            ..
        } = *command
        else {
            return Ok(());
        };
        let mut words = words.iter();
        let name = words.next().unwrap_or_default();
        let (consumer, last) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let last = StreamId::parse(last, 0).ok_or(NOT_AN_ID)?;
        let ids = words.map(|id| StreamId::parse(id, 0).ok_or(NOT_AN_ID)).collect::<Result<Vec<_>, _>>()?;
        let now = record.time;
        let delivered = if is_idle { (now as i64).checked_sub(delivered_ms) } else { Some(delivered_ms) };
        // As in Redis, an impossible time counts as the present.
        let delivered = delivered.and_then(|delivered| u64::try_from(delivered).ok());
        let delivered_ms = delivered.map_or(now, |delivered| delivered.min(now));
        self.begin_consumer(found, group.number, consumer);
        let taken = self.change_one(found, record, |stream| {
            if last > group.last {
                stream.put_group(name, Group { last, ..group });
            }
            let mut taken = Vec::new();
            for id in ids.iter().copied() {
                let claimed = stream.claim(group.number, consumer, id, now, |before| {
                    let is_idle =
                        |before: Pending| idle_ms(&before, now).is_none_or(|idle_ms| idle_ms >= min_idle_ms);
                    if !before.map_or(is_forced, is_idle) {
                        return None;
                    }
                    let count = before.map_or(1, |before| before.deliveries);
                    let more = if only_ids { count } else { once_more(count) };
                    Some((delivered_ms, u64::try_from(deliveries).unwrap_or(more)))
                });
                if let Claimed::Taken = claimed {
                    taken.push(id);
                }
            }
            taken
        });
        self.cover_deliveries(found.key, name, consumer, &ids);
        self.write_claimed(found, &taken, only_ids, record, out);
        Ok(())
    }

    fn claim_range(
        &mut self,
        found: Found<'_>,
        words: List<'_>,
        group: Group,
        (min_idle_ms, count, only_ids): (u64, u64, bool),
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        /// On average one of this many entries must be claimed, or the command stops.
        const TRIED_FOR_ONE: usize = 10;
        let mut words = words.iter();
        let name = words.next().unwrap_or_default();
        let (consumer, start) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (mut next, number) = (Some(parse_id_bound(start, false)?), group.number);
        let mut room = Room { entries: up_to(count).min(DELIVERED_MAX), ..Room::WHOLE };
        let mut tries = room.entries.saturating_mul(TRIED_FOR_ONE);
        let now = record.time;
        self.begin_consumer(found, number, consumer);
        let (taken, gone, next) = self.change_one(found, record, |stream| {
            let (mut taken, mut gone) = (Vec::new(), Vec::new());
            while let Some((id, _)) = next.and_then(|from| stream.view().pending_from(number, from).next()) {
                next = Some(id);
                if tries == 0 || room.is_empty() {
                    break;
                }
                tries -= 1;
                let claimed = stream.claim(number, consumer, id, now, |before| {
                    let before = before?;
                    let is_idle = idle_ms(&before, now).is_none_or(|idle_ms| idle_ms >= min_idle_ms);
                    let more = if only_ids { before.deliveries } else { once_more(before.deliveries) };
                    is_idle.then_some((now, more))
                });
                match claimed {
                    Claimed::Kept => {}
                    Claimed::Gone => {
                        room.take(None);
                        gone.push(id);
                    }
                    Claimed::Taken => {
                        room.take(stream.view().find(id));
                        taken.push(id);
                    }
                }
                next = id.next();
            }
            let next = next.and_then(|from| stream.view().pending_from(number, from).next());
            (taken, gone, next.map_or(StreamId::MIN, |(id, _)| id))
        });
        self.cover_deliveries(found.key, name, consumer, &[&taken[..], &gone].concat());
        let start = out.len();
        out.array(3);
        write_id(next, out);
        let is_written = self.write_claimed(found, &taken, only_ids, record, out);
        if !is_written {
            out.truncate(start);
            out.error(if self.is_quiet { CUT_WRITE } else { TOO_MANY_POPPED });
            return Ok(());
        }
        out.array(gone.len());
        gone.into_iter().for_each(|id| write_id(id, out));
        Ok(())
    }

    /// The state of entries that were delivered to a consumer; `None` if the group does not exist.
    pub(in crate::table) fn delivered(
        &self,
        key: &[u8],
        group: &[u8],
        consumer: &[u8],
        ids: &[StreamId],
    ) -> Option<Delivered> {
        let (_, entry) = self.find(self.index.hash(key), key)?;
        let stream = Stream { items: entry.items() };
        let Group { number, last, read } = stream.group(group)?;
        let own = stream.consumer(number, consumer);
        let mut delivered =
            Delivered { is_known: own.is_some(), pending: Vec::new(), gone: Vec::new(), last, read };
        for id in ids {
            let is_there = stream.find(*id).is_some();
            match stream.pending(number, *id) {
                None => delivered.gone.push(*id),
                Some(it) if is_there && own == Some(it.consumer) => match delivered.pending.last_mut() {
                    Some((since, often, ids)) if (*since, *often) == (it.delivered_ms, it.deliveries) => {
                        ids.push(*id);
                    }
                    _ => delivered.pending.push((it.delivered_ms, it.deliveries, vec![*id])),
                },
                // It is pending for another consumer, or still pending although its entry was removed: nothing has changed.
                Some(_) => {}
            }
        }
        Some(delivered)
    }

    /// Appends an array of claimed entries, or of their ids. If it would be too large, appends an error and returns false.
    fn write_claimed(
        &self,
        found: Found<'_>,
        taken: &[StreamId],
        only_ids: bool,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> bool {
        if self.is_quiet {
            out.error(CUT_WRITE);
            return false;
        }
        // The key's place may have changed: a small stream may have become a large one.
        let Some(stream) = self.stream(found.key, record.time) else { return false };
        let (start, mut writer) = (out.len(), stream.writer());
        out.array(taken.len());
        for id in taken {
            match stream.find(*id) {
                Some(item) if !only_ids => {
                    writer.write(item, out);
                }
                _ => write_id(*id, out),
            }
            if out.len() - start > out.reply_bytes_max() {
                out.truncate(start);
                out.error(TOO_MANY_POPPED);
                return false;
            }
        }
        true
    }
}

/// Entries for a reply.
struct Written {
    count: usize,
    /// Empty if no reply is wanted.
    entries: ReplyBuffer,
}

/// An entry to be claimed: since when it has been pending, its id, and what it is.
type Idle = (UnixMs, StreamId, Pending);

impl Stream<'_> {
    /// The pending entries of a group that have been idle for at least `min_idle_ms`, at most `count` of them: the longest
    /// idle first. Entries without a consumer come before all others.
    fn idle_longest(self, group: u64, min_idle_ms: u64, count: usize, now: UnixMs) -> Vec<Idle> {
        let mut longest = BinaryHeap::new();
        for (id, pending) in self.pending_from(group, StreamId::MIN) {
            if idle_ms(&pending, now).is_none_or(|idle_ms| idle_ms >= min_idle_ms) {
                longest.push((pending.delivered_ms, id));
                if longest.len() > count {
                    longest.pop();
                }
            }
        }
        let longest = longest.into_sorted_vec().into_iter();
        longest.filter_map(|(since, id)| Some((since, id, self.pending(group, id)?))).collect()
    }
}

impl Changing<'_> {
    /// Returns the entries that are pending for a consumer, from an id on. They count as delivered once more. An entry that
    /// no longer exists is returned without fields.
    fn write_again(
        &mut self,
        (group, consumer): (Group, &[u8]),
        from: StreamId,
        (count, room): (usize, &mut Room),
        (now, is_quiet): (UnixMs, bool),
    ) -> (Vec<StreamId>, Written) {
        let number = self.see_consumer(group.number, consumer, now);
        let view = self.view();
        let owned = view.owned_from(group.number, number, from).take(count);
        let ids: Vec<StreamId> = owned.take_while(|id| room.take(view.find(*id))).collect();
        let (mut writer, mut entries) = (view.writer(), ReplyBuffer::new());
        for id in ids.iter().filter(|_| !is_quiet) {
            match view.find(*id) {
                Some(item) => {
                    writer.write(item, &mut entries);
                }
                None => {
                    entries.array(2);
                    write_id(*id, &mut entries);
                    entries.push(Reply::NullArray);
                }
            }
        }
        for id in ids.iter().copied() {
            let view = self.view();
            let (Some(before), true) = (view.pending(group.number, id), view.find(id).is_some()) else {
                continue;
            };
            let pending = Pending { delivered_ms: now, deliveries: once_more(before.deliveries), ..before };
            self.set_pending(group.number, id, pending);
        }
        let count = ids.len();
        (ids, Written { count, entries })
    }

    /// A group that was said to have read more than it could has read no more than the stream has ever had: from level 2 on, as
    /// [`at_most_added`](crate::command::at_most_added).
    fn bound_read(&mut self, name: &[u8]) {
        let added = self.view().head().added;
        if let Some(group) = self.view().group(name).filter(|group| group.read > Some(added)) {
            self.put_group(name, Group { read: Some(added), ..group });
        }
    }

    /// Returns the entries that a group has not read yet. They become pending if `pends`. Before them come those that are
    /// claimed, if the command claims any: then each has with it for how long it has been pending, and how often it was
    /// delivered. Returns also the ids of those whose pending state has changed.
    fn deliver(
        &mut self,
        (name, mut group, consumer): (&[u8], Group, &[u8]),
        (count, room): (usize, &mut Room),
        pends: bool,
        claims: Option<&[Idle]>,
        (now, is_quiet, is_second): (UnixMs, bool, bool),
    ) -> (Vec<StreamId>, Written) {
        let number = self.see_consumer(group.number, consumer, now);
        let view = self.view();
        let (mut writer, mut written) = (view.writer(), ReplyBuffer::new());
        let mut write = |item, idle_ms: i64, deliveries: u64| match claims {
            _ if is_quiet => view::id_of(item),
            None => writer.write(item, &mut written),
            Some(_) => {
                written.array(4);
                let id = writer.write_parts(item, &mut written);
                written.integer(idle_ms);
                written.integer(shown(deliveries));
                id
            }
        };
        let (mut claimed, mut gone) = (Vec::new(), Vec::new());
        for (_, id, before) in claims.unwrap_or_default() {
            match view.find(*id) {
                Some(item) if room.take(Some(item)) => {
                    let idle_ms = idle_ms(before, now).map_or(-1, |idle_ms| idle_ms as i64);
                    write(item, idle_ms, before.deliveries);
                    claimed.push((*id, once_more(before.deliveries)));
                }
                Some(_) => break,
                None => gone.push(*id),
            }
        }
        let from = group.last.next().unwrap_or(StreamId::MAX);
        let ranks = view.ranks(from, StreamId::MAX);
        let left = count - claimed.len();
        let items = view.items.iter_from(ranks.start).take(left).take_while(|item| room.take(Some(item)));
        let mut ids = Vec::new();
        let (gaps_up_to, first) = (view.gaps_up_to(), view.edge(false));
        for item in items {
            let id = write(item, 0, 0);
            ids.push(id);
            // From where on nothing may be missing for the count to go on.
            let from = if is_second { group.last } else { id };
            let goes_on = gaps_up_to.is_none_or(|last| from > last) && (!is_second || from >= first);
            group.read = match group.read {
                Some(read) if goes_on => Some(read.saturating_add(1)),
                _ => view.added_up_to(id),
            };
            group.last = id;
        }
        let written = Written { count: claimed.len() + ids.len(), entries: written };
        self.put_group(name, group);
        for id in &gone {
            self.acknowledge(group.number, *id);
        }
        // With NOACK no consumer has new ones pending, and they were not pending before.
        let new = ids.into_iter().filter(|_| pends).map(|id| (id, 1));
        let pending: Vec<(StreamId, u64)> = claimed.into_iter().chain(new).collect();
        for (id, deliveries) in pending.iter().copied() {
            let pending = Pending { consumer: number, delivered_ms: now, deliveries };
            self.set_pending(group.number, id, pending);
        }
        (pending.into_iter().map(|(id, _)| id).chain(gone).collect(), written)
    }

    /// Makes an entry pending for a consumer, if `decide` returns its delivery time and count.
    fn claim(
        &mut self,
        group: u64,
        consumer: &[u8],
        id: StreamId,
        now: UnixMs,
        decide: impl FnOnce(Option<Pending>) -> Option<(u64, u64)>,
    ) -> Claimed {
        let before = self.view().pending(group, id);
        if self.view().find(id).is_none() {
            let was_pending = self.acknowledge(group, id);
            return if was_pending { Claimed::Gone } else { Claimed::Kept };
        }
        let Some((delivered_ms, deliveries)) = decide(before) else { return Claimed::Kept };
        let consumer = self.see_consumer(group, consumer, now);
        self.set_pending(group, id, Pending { consumer, delivered_ms, deliveries });
        Claimed::Taken
    }
}
