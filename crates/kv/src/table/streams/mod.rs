//! Commands on streams: `XADD`, `XREADGROUP` and similar ones.
//!
//! A stream is a collection ([`super::collections`]) whose items are of several kinds: see [`super::stream_items`]. So
//! everything that collections can do, such as copies at no cost and snapshots in pieces, applies to streams with their
//! groups and pending entries.
//!
//! Reading order: [`changes`] (how a stream changes), then the commands: this file, [`groups`] and [`info`]; and [`mod@dump`].

mod changes;
mod dump;
mod groups;
mod info;
mod words;

use super::changes::ChangeClass;
use super::stream_items::items::{self, Producers};
use super::stream_items::view::{Stream, write_id};
use super::{Record, Table};
use crate::command::{List, NOT_AN_ID, NewId, References, Size, StreamCommand, StreamId, Trim};
use crate::reply::{Reply, ReplyBuffer};
use crate::table::found::Found;
use crate::table::kind::Kind;
use crate::table::refusals::{WRONG_KIND, refuse_large_reply};
use crate::{UnixMs, Version};
use changes::{Changing, Removal, Threshold};
use std::ops::Range;
use words::{NO_COMMAND, ids_of, pairs_of, range_of, up_to, write_entries};

pub(super) use dump::{Restoring, dump};

const NO_SUCH_KEY: &str = "ERR no such key";
const NO_ID_LEFT: &str = "ERR The stream has exhausted the last possible ID, unable to add more items";
const NOT_GREATER: &str = "ERR The ID specified in XADD is equal or smaller than the target stream top item";

fn write_removals(removals: &[Removal], out: &mut ReplyBuffer) {
    out.array(removals.len());
    for removal in removals {
        out.integer(match removal {
            Removal::Missing => -1,
            Removal::Done => 1,
            Removal::Referenced => 2,
        });
    }
}

fn threshold_of(trim: Trim, text: &[u8]) -> Result<Threshold, &'static str> {
    if trim.by_id {
        let least = StreamId::parse(text, 0).ok_or(NOT_AN_ID)?;
        return Ok(least.previous().map_or(Threshold::Length(u64::MAX), Threshold::Id));
    }
    let most = crate::number::parse_integer(text).ok_or(super::refusals::NOT_AN_INTEGER)?;
    Ok(Threshold::Length(most.max(0) as u64))
}

impl NewId {
    /// The id to use at this time; it must be greater than `last`.
    fn behind(self, last: StreamId, now: UnixMs) -> Result<StreamId, &'static str> {
        let id = match self {
            // Ids never decrease, whatever the clock does.
            NewId::Next if now > last.ms => Some(StreamId { ms: now, seq: 0 }),
            NewId::Next => last.next(),
            NewId::NextAt(ms) if ms == last.ms => last.next().filter(|next| next.ms == ms),
            NewId::NextAt(ms) => Some(StreamId { ms, seq: 0 }),
            NewId::Given(id) => Some(id),
        };
        match id {
            _ if last == StreamId::MAX => Err(NO_ID_LEFT),
            Some(id) if id > last => Ok(id),
            _ => Err(NOT_GREATER),
        }
    }
}

fn range_of_ends(ends: List<'_>) -> Result<(StreamId, StreamId), &'static str> {
    let mut ends = ends.iter();
    range_of(ends.next(), ends.next())
}

/// The ranks, among all items, of the entries that a range returns, at most `count`. If the range is reversed, they are
/// returned from the end.
pub(super) fn selected(
    stream: Stream<'_>,
    ends: List<'_>,
    is_reverse: bool,
    count: Option<u64>,
) -> Result<Range<usize>, &'static str> {
    let (start, end) = range_of_ends(ends)?;
    let ranks = stream.ranks(start, end);
    let count = ranks.len().min(up_to(count.unwrap_or(0)));
    Ok(if is_reverse { ranks.end - count..ranks.end } else { ranks.start..ranks.start + count })
}

impl Table {
    /// The stream of a key: one without entries if the key does not exist, `None` if it holds something else.
    fn stream(&self, key: &[u8], now: UnixMs) -> Option<Stream<'_>> {
        match self.peek(key, now) {
            None => Some(Stream { items: super::tree::Items::EMPTY }),
            Some(entry) if entry.kind() == Kind::Stream => Some(Stream { items: entry.items() }),
            Some(_) => None,
        }
    }

    /// The id of the last entry ever added; the smallest id if there is no stream.
    pub(super) fn last_entry_id(&self, key: &[u8], now: UnixMs) -> StreamId {
        let stream = self.stream(key, now).filter(|stream| stream.items.len() > 0);
        stream.map_or(StreamId::MIN, |stream| stream.head().last)
    }

    fn stream_at(&self, found: Found<'_>) -> Stream<'_> {
        Stream { items: self.items_at(found) }
    }

    /// Changes a stream. Creates it if it does not exist.
    fn change_one<R>(
        &mut self,
        found: Found<'_>,
        record: Record,
        change: impl FnOnce(&mut Changing<'_>) -> R,
    ) -> R {
        self.edit_collection(found, Kind::Stream, record, |collection, discarded| {
            change(&mut Changing { collection, discarded })
        })
    }

    /// Changes what a stream tells only about itself: that is no event, and has no effect on copies.
    fn change_quietly(&mut self, found: Found<'_>, record: Record, change: impl FnOnce(&mut Changing<'_>)) {
        self.changes.pause();
        self.change_one(found, record, change);
        self.changes.resume();
    }

    /// The entries between two ids, and about how many bytes they have; none if there is no stream, or the ids are no
    /// range.
    pub(super) fn size_between(&self, key: &[u8], start: &[u8], end: &[u8], now: UnixMs) -> Size {
        let Some(entry) = self.peek(key, now).filter(|entry| entry.kind() == Kind::Stream) else {
            return Size::default();
        };
        let Ok((start, end)) = range_of(Some(start), Some(end)) else { return Size::default() };
        entry.share(Stream { items: entry.items() }.ranks(start, end).len())
    }

    /// Estimated bytes of the entries between two ids; 0 if there is no stream, or if the ids are no range.
    pub(super) fn bytes_between(&self, key: &[u8], start: &[u8], end: &[u8], now: UnixMs) -> u64 {
        self.size_between(key, start, end, now).bytes
    }

    /// The number of entries of a stream; 0 if the key holds none.
    pub(super) fn stream_length(&self, key: &[u8]) -> usize {
        let stream = self.peek(key, 0).filter(|entry| entry.kind() == Kind::Stream);
        stream.map_or(0, |entry| Stream { items: entry.items() }.len())
    }

    /// The number of groups of a stream, in O(log N).
    pub(super) fn groups_of(&self, key: &[u8], now: UnixMs) -> u64 {
        let stream = self.stream(key, now).filter(|stream| stream.items.len() > 0);
        stream.map_or(0, |stream| stream.region(items::GROUP, &[]).len() as u64)
    }

    /// Whether a stream knows what producers have sent, which no payload holds.
    pub(super) fn knows_producers(&self, key: &[u8], now: UnixMs) -> bool {
        let stream = self.stream(key, now).filter(|stream| stream.items.len() > 0);
        stream.is_some_and(|stream| !stream.region(items::PRODUCER, &[]).is_empty())
    }

    pub(super) fn has_stream_entry(&self, key: &[u8], id: StreamId) -> bool {
        self.stream(key, 0).is_some_and(|stream| stream.find(id).is_some())
    }

    /// The names of a stream's groups.
    pub(super) fn names_of_groups(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let stream = self.stream(key, 0).filter(|stream| stream.items.len() > 0);
        stream.map_or(Vec::new(), |stream| stream.groups().map(|(name, _)| name).collect())
    }

    /// How many entries a group has read, if that is known.
    pub(super) fn entries_read_of(&self, key: &[u8], group: &[u8]) -> Option<u64> {
        self.stream(key, 0)?.group(group)?.read
    }

    /// Pending entries of a consumer, in O(log N).
    pub(super) fn pending_of(&self, key: &[u8], group: &[u8], consumer: &[u8], now: UnixMs) -> u64 {
        let Some(entry) = self.peek(key, now).filter(|entry| entry.kind() == Kind::Stream) else { return 0 };
        let stream = Stream { items: entry.items() };
        let found = stream.group(group).and_then(|group| {
            let consumer = stream.consumer(group.number, consumer)?;
            Some(stream.pending_count(group.number, Some(consumer)))
        });
        found.unwrap_or(0) as u64
    }

    pub(super) fn read_stream(
        &mut self,
        command: &StreamCommand<'_>,
        now: UnixMs,
        out: &mut ReplyBuffer,
    ) -> Version {
        use StreamCommand::*;
        if let Read { streams, count } = *command {
            self.read_streams(streams, count, now, out);
            return 0;
        }
        let mut key = &b""[..];
        command.for_each_key(|it| key = it);
        let Ok((items, version)) = self.items_of(key, Kind::Stream, now) else {
            out.error(WRONG_KIND);
            return 0;
        };
        let (stream, exists) = (Stream { items }, items.len() > 0);
        match *command {
            // As in Redis.
            Range { count: Some(0), ends, .. } if exists && range_of_ends(ends).is_ok() => {
                out.push(Reply::NullArray);
            }
            Range { ends, is_reverse, count, .. } => match selected(stream, ends, is_reverse, count) {
                Ok(ranks) if is_reverse => {
                    write_entries(stream, ranks.len(), items.iter_back(ranks.end), out)
                }
                Ok(ranks) => write_entries(stream, ranks.len(), items.iter_from(ranks.start), out),
                Err(error) => out.error(error),
            },
            Pending { group, .. } => groups::write_pending(stream, key, group, out),
            PendingRange { words, min_idle_ms, count, .. } => {
                groups::write_pending_range(stream, key, words, (min_idle_ms, count), now, out);
            }
            Info { .. } | InfoFull { .. } | InfoGroups { .. } | InfoConsumers { .. } if !exists => {
                out.error(NO_SUCH_KEY);
            }
            Describe { .. } | DescribeFull { .. } | DescribeGroups { .. } | DescribeConsumers { .. }
                if !exists =>
            {
                out.error(NO_SUCH_KEY);
            }
            Info { .. } => info::write_stream(stream, None, out),
            Describe { .. } => info::write_stream(stream, Some(now), out),
            InfoFull { count, .. } => info::write_all(stream, up_to(count), None, out),
            DescribeFull { count, .. } => info::write_all(stream, up_to(count), Some(now), out),
            InfoGroups { .. } => info::write_groups(stream, false, out),
            DescribeGroups { .. } => info::write_groups(stream, true, out),
            InfoConsumers { group, .. } => info::write_consumers(stream, key, group, now, false, out),
            DescribeConsumers { group, .. } => info::write_consumers(stream, key, group, now, true, out),
            _ => out.integer(stream.len() as i64),
        }
        version
    }

    fn read_streams(&mut self, streams: List<'_>, count: u64, now: UnixMs, out: &mut ReplyBuffer) {
        // Check all streams before answering.
        let mut asked = Vec::with_capacity(streams.len() / 2);
        for (key, id) in streams.pairs() {
            let Some(stream) = self.stream(key, now) else { return out.error(WRONG_KIND) };
            let after = match id {
                b"$" => stream.head().last,
                // Behind all but the last entry.
                b"+" if stream.len() > 0 => {
                    asked.push((key, stream, stream.edge(true)));
                    continue;
                }
                b"+" => stream.head().last,
                b">" => return out.error(groups::ONLY_IN_GROUPS),
                id => match StreamId::parse(id, 0) {
                    Some(id) => id,
                    None => return out.error(NOT_AN_ID),
                },
            };
            if stream.edge(true) > after {
                asked.push((key, stream, after.next().unwrap_or(StreamId::MAX)));
            }
        }
        let hits = asked.len();
        if asked.is_empty() {
            out.push(Reply::NullArray);
        } else {
            let start = out.len();
            out.push(Reply::Entries(hits as u32));
            for (key, stream, from) in asked {
                let ranks = stream.ranks(from, StreamId::MAX);
                out.push(Reply::Entry);
                out.bulk(key);
                write_entries(
                    stream,
                    ranks.len().min(up_to(count)),
                    stream.items.iter_from(ranks.start),
                    out,
                );
                if out.len() - start > out.reply_bytes_max() {
                    refuse_large_reply(start, out);
                    break;
                }
            }
        }
        streams.pairs().enumerate().for_each(|(at, _)| self.count_lookup(at < hits));
    }

    pub(super) fn change_stream(
        &mut self,
        command: &StreamCommand<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        use StreamCommand::*;
        if let Some(reader) = groups::Reader::of(command) {
            return self.read_group(reader, record, out);
        }
        let mut key = &b""[..];
        command.for_each_key(|it| key = it);
        let Ok(found) = self.find_kind(key, Kind::Stream, record) else { return out.error(WRONG_KIND) };
        let outcome = match *command {
            Add { words, trim, if_present, .. } => {
                self.add_entry(found, words, (trim, if_present, false), record, out)
            }
            AddOnce { words, trim, if_present, .. } => {
                self.add_entry(found, words, (trim, if_present, true), record, out)
            }
            Delete { .. } | Trim { .. } if found.place.is_none() => {
                out.integer(0);
                Ok(())
            }
            Delete { ids, .. } => ids_of(ids).map(|ids| {
                let count = self.change_one(found, record, |stream| stream.delete(ids.into_iter()));
                out.integer(count as i64);
            }),
            Trim { threshold, trim, .. } => threshold_of(trim, threshold).map(|threshold| {
                let (count, ids) = self.change_one(found, record, |stream| stream.trim(trim, threshold));
                if trim.references != References::Keep {
                    self.cover_trimmed(key, None, &ids, trim.references);
                }
                out.integer(count as i64);
            }),
            DeleteWith { ids, references, .. } => ids_of(ids).map(|ids| {
                let removals = self.change_one_there(found, ids.len(), record, |stream| {
                    stream.delete_with(ids.iter().copied(), references)
                });
                self.cover_removed(key, &ids, references, None);
                write_removals(&removals, out);
            }),
            AcknowledgeAndDelete { group, ids, references, .. } => ids_of(ids).map(|ids| {
                let number = self.stream_at(found).group(group).map(|group| group.number);
                let removals = match number {
                    None => vec![Removal::Missing; ids.len()],
                    Some(number) => self.change_one(found, record, |stream| {
                        stream.acknowledge_and_delete(number, ids.iter().copied(), references)
                    }),
                };
                self.cover_removed(key, &ids, references, Some(group));
                write_removals(&removals, out);
            }),
            Remember { duration_s, most, .. } => self.set_remembered(found, duration_s, most, record, out),
            Record { producer, name, id, .. } => self.record_sent(found, (producer, name), id, record, out),
            SetId { ids, added, .. } => self.set_id(found, ids, added, record, out),
            _ => self.change_group(command, found, record, out),
        };
        if let Err(error) = outcome {
            out.error(error);
        }
    }

    /// Changes a stream that has to exist: otherwise each of `count` entries is missing.
    fn change_one_there(
        &mut self,
        found: Found<'_>,
        count: usize,
        record: Record,
        change: impl FnOnce(&mut Changing<'_>) -> Vec<Removal>,
    ) -> Vec<Removal> {
        match found.place {
            None => vec![Removal::Missing; count],
            Some(_) => self.change_one(found, record, change),
        }
    }

    /// `XCFGSET`.
    fn set_remembered(
        &mut self,
        found: Found<'_>,
        duration_s: Option<u64>,
        most: Option<u64>,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        if found.place.is_none() {
            return Err(NO_SUCH_KEY);
        }
        let before = self.stream_at(found).producers();
        let (duration_s, most) = (duration_s.unwrap_or(before.duration_s), most.unwrap_or(before.most));
        let producers = Producers { duration_s, most, ..before };
        if producers != before {
            self.change_one(found, record, |stream| {
                stream.forget_all();
                stream.put_producers(producers);
            });
        }
        out.ok();
        Ok(())
    }

    /// `XIDMPRECORD`.
    fn record_sent(
        &mut self,
        found: Found<'_>,
        (producer, name): (&[u8], &[u8]),
        id: &[u8],
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        let id = StreamId::parse(id, 0).ok_or(NOT_AN_ID)?;
        if found.place.is_none() {
            return Err(NO_SUCH_KEY);
        }
        let stream = self.stream_at(found);
        if stream.find(id).is_none() {
            return Err("ERR No such message in stream");
        }
        let producers = stream.producers();
        let sent = stream.producer(producer).and_then(|number| stream.sent(number, name));
        match sent.filter(|id| !changes::is_forgotten(*id, producers, record.time)) {
            Some(sent) if sent == id => {}
            Some(_) => return Err("ERR IID already exists for this producer with a different stream ID"),
            None if stream.is_sent(id) => {
                return Err("ERR the entry was sent by another producer, or under another name");
            }
            None => self.change_one(found, record, |stream| stream.remember(producer, name, id, record.time)),
        }
        out.ok();
        Ok(())
    }

    fn add_entry(
        &mut self,
        found: Found<'_>,
        words: List<'_>,
        (trim, if_present, is_once): (Option<Trim>, bool, bool),
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        let mut words = words.iter();
        let id = words.next().and_then(NewId::parse).ok_or(NOT_AN_ID)?;
        let threshold = words.next().ok_or(NO_COMMAND)?;
        let trim = match trim {
            Some(trim) => Some((trim, threshold_of(trim, threshold)?)),
            None => None,
        };
        if if_present && found.place.is_none() {
            out.null();
            return Ok(());
        }
        let once = match is_once {
            true => Some((words.next().ok_or(NO_COMMAND)?, words.next().ok_or(NO_COMMAND)?)),
            false => None,
        };
        if let Some((producer, name)) = once {
            let stream = self.stream_at(found);
            let producers = stream.producers();
            let sent = stream.producer(producer).and_then(|number| stream.sent(number, name));
            if let Some(id) = sent.filter(|id| !changes::is_forgotten(*id, producers, record.time)) {
                let duplicates = producers.duplicates.saturating_add(1);
                self.change_quietly(found, record, |stream| {
                    stream.put_producers(Producers { duplicates, ..producers });
                });
                write_id(id, out);
                return Ok(());
            }
        }
        let id = id.behind(self.stream_at(found).head().last, record.time)?;
        let fields = pairs_of(words);
        let (trimmed, ids) = self.change_one(found, record, |stream| {
            stream.append(id, fields.clone());
            if let Some((producer, name)) = once {
                stream.remember(producer, name, id, record.time);
            }
            trim.map_or((0, Vec::new()), |(trim, threshold)| stream.trim(trim, threshold))
        });
        if trimmed > 0 {
            self.changes.note_as(found.key, ChangeClass::Stream, "xtrim");
        }
        if let Some((Trim { references, .. }, _)) =
            trim.filter(|(trim, _)| trim.references != References::Keep)
        {
            let added = fields.flat_map(|(name, value)| [name, value]).collect();
            self.cover_trimmed(found.key, Some((id, added)), &ids, references);
        }
        write_id(id, out);
        Ok(())
    }

    fn set_id(
        &mut self,
        found: Found<'_>,
        ids: List<'_>,
        added: Option<u64>,
        record: Record,
        out: &mut ReplyBuffer,
    ) -> Result<(), &'static str> {
        let ids = ids_of(ids)?;
        let (id, removed) = (*ids.first().ok_or(NO_COMMAND)?, ids.get(1).copied());
        if found.place.is_none() {
            return Err(NO_SUCH_KEY);
        }
        let stream = self.stream_at(found);
        if stream.len() > 0 && id < stream.edge(true) {
            return Err("ERR The ID specified in XSETID is smaller than the target stream top item");
        }
        if added.is_some_and(|added| (stream.len() as u64) > added) {
            return Err("ERR The entries_added specified in XSETID is smaller than the target stream length");
        }
        self.change_one(found, record, |stream| {
            stream.change_head(|head| {
                head.last = id;
                head.added = added.unwrap_or(head.added);
                head.removed = removed.filter(|id| *id != StreamId::MIN).unwrap_or(head.removed);
            })
        });
        out.ok();
        Ok(())
    }
}
