//! Replicas of Redis and Valkey that follow the default keyspace (`REPLICAOF`): `REPLCONF` and `PSYNC`.
//!
//! A replica gets a copy of the keyspace as it is at one moment (of each shard), in the form of a file of Redis that ends with
//! a mark, and then the effects of all changes behind that moment ([`kv::table::History`]). It is asynchronous: nothing waits
//! for it, and what it acknowledges is of no consequence.
//!
//! The stream's offset counts its bytes. Where each record ends is noted with the versions there, so a replica that connects
//! to this node again goes on where it was, as long as the changes behind that are kept.

use super::readers::{OUTPUT_BYTES, check_kept, history_of, take_record};
use crate::context::Context;
use crate::log::{Level, Line};
use crate::session::{ClientId, ClientKind};
use kv::codec::Reader;
use kv::table::{ExpiringField, SnapshotId};
use kv::{Reply, ReplyBuffer, Version};
use std::collections::{BTreeMap, VecDeque};
use wire::resp::Arguments;

/// How much is made at a time, of the copy or of the stream.
const CHUNK_BYTES: usize = 64 << 10;

/// Where so many of the latest records end is noted, of a replica and of so many that are gone.
const ENDS_MAX: usize = 10_000;
const GONE_MAX: usize = 16;

/// How often a replica that gets nothing else gets a `PING`.
const PING_US: u64 = 5_000_000;

/// A replica that takes nothing for this long is closed: the copy that it was sent costs memory.
const SILENCE_US: u64 = 60_000_000;

/// How soon it is looked whether a replica reads again.
const LOOK_US: u64 = 10_000;

/// The replicas that follow this node.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    all: BTreeMap<ClientId, Replica>,
    /// Those that are gone, and may come back.
    gone: VecDeque<Stream>,
    begun: u64,
    due_us: u64,
}

#[derive(Debug)]
struct Replica {
    client: ClientId,
    stream: Stream,
    /// What is left of the copy; `None`: it has it.
    copy: Option<Copy>,
    /// It has been sent the whole copy, and has not acknowledged that yet: it finds the end only if nothing follows.
    is_loading: bool,
    /// The beginning of its stream, which was not sent yet.
    first: Vec<u8>,
    /// When it took something last, and when it gets a `PING` if there is nothing else.
    took_us: u64,
    ping_us: u64,
    due_us: u64,
}

/// What a replica has been sent.
#[derive(Debug)]
struct Stream {
    /// The name that Redis calls a replication id.
    id: String,
    offset: u64,
    /// The groups of the keyspace, each with the version up to which all has been sent.
    versions: Vec<(u16, Version)>,
    /// Offsets at which records end, with the versions there.
    ends: VecDeque<(u64, Vec<(u16, Version)>)>,
}

/// A copy of the keyspace under way.
#[derive(Debug)]
struct Copy {
    /// The shards that are left, the last one first, each with its snapshot and the number of its history then.
    left: Vec<(u16, SnapshotId, u64)>,
    mark: String,
    /// What the form of the copy cannot say.
    expiring: Vec<ExpiringField>,
}

impl Replicas {
    /// Whether there are any.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.all.is_empty()
    }

    /// When they have to be looked after next even if nothing happens.
    pub(crate) fn due_us(&self) -> u64 {
        if self.is_on() { self.due_us } else { u64::MAX }
    }

    /// `REPLCONF`: what a replica says of itself. An acknowledgement has no answer.
    pub(crate) fn configure(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let mut words = arguments.iter().skip(1);
        while let Some(word) = words.next() {
            let value = words.next().unwrap_or_default();
            match word.to_ascii_lowercase().as_slice() {
                b"ack" | b"getack" => {
                    if let Some(replica) = self.all.get_mut(&client).filter(|replica| replica.copy.is_none())
                    {
                        replica.is_loading = false;
                        self.due_us = 0;
                    }
                    return;
                }
                b"capa" if value.eq_ignore_ascii_case(b"eof") => {
                    if let Some(session) = cx.clients.sessions.get_mut(client) {
                        session.takes_marked_copy = true;
                    }
                }
                _ => {}
            }
        }
        cx.answer(client, ReplyBuffer::ok);
    }

    /// `PSYNC id offset`: begins to send a client the default keyspace, or goes on.
    pub(crate) fn begin(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let groups = match self.check(cx, client) {
            Ok(groups) => groups,
            Err(error) => return cx.answer(client, |replies| replies.error(&format!("ERR {error}"))),
        };
        let now_us = cx.now.monotonic_us;
        let continued = self.continued(cx, &groups, &arguments[1], &arguments[2]);
        let how = if continued.is_some() { "goes on" } else { "gets a copy of the default keyspace" };
        let (stream, copy) = match continued {
            Some(stream) => {
                cx.answer(client, |replies| replies.push(Reply::Status(b"CONTINUE")));
                (stream, None)
            }
            None => {
                let Some((stream, copy)) = self.copied(cx, client, &groups) else {
                    return cx.answer(client, |replies| {
                        replies
                            .error("ERR this node has no replica of the default keyspace that it could copy");
                    });
                };
                let answer = format!("FULLRESYNC {} {}", stream.id, stream.offset);
                cx.answer(client, |replies| replies.push(Reply::Status(answer.as_bytes())));
                // Version 10 of the format, and the only database.
                let head = [format!("$EOF:{}\r\n", copy.mark).as_bytes(), b"REDIS0010\xfe\x00"].concat();
                cx.send_raw(client, &head);
                (stream, Some(copy))
            }
        };
        let address = match cx.clients.sessions.get_mut(client) {
            Some(session) => {
                session.readers += 1;
                match &session.kind {
                    ClientKind::Resp { address, .. } => address.clone(),
                    ClientKind::Internal => String::new(),
                }
            }
            None => return,
        };
        cx.log.push(Line { level: Level::Info, text: format!("a Redis replica at {address} {how}") });
        let (took_us, ping_us) = (now_us, now_us + PING_US);
        let is_loading = copy.is_some();
        let replica =
            Replica { client, stream, copy, is_loading, first: Vec::new(), took_us, ping_us, due_us: 0 };
        self.all.insert(client, replica);
        self.due_us = 0;
    }

    /// The groups of the default keyspace, if a replica can follow it here.
    fn check(&self, cx: &Context, client: ClientId) -> Result<Vec<u16>, String> {
        let session = cx.clients.sessions.get(client).ok_or("the client is gone")?;
        if session.is_waiting() || self.all.contains_key(&client) {
            return Err("a connection's only request is PSYNC, and its last one".into());
        }
        if !session.takes_marked_copy {
            return Err("a replica must take copies that end with a mark: REPLCONF capa eof".into());
        }
        let entry = cx.map.keyspaces.get("").ok_or("there is no default keyspace")?;
        check_kept(entry)?;
        if entry.keyspace.spills() {
            return Err("values on the disk cannot be copied for a Redis replica: use quorate export".into());
        }
        match entry.groups.iter().all(|group| history_of(cx, *group).is_some()) {
            true => Ok(entry.groups.clone()),
            false => {
                let own = cx.configuration.node;
                Err(format!(
                    "node {own} has no replica of the default keyspace that serves: ask another node"
                ))
            }
        }
    }

    /// The stream of a replica that was here before, if it can go on at this offset: that of the first byte which it lacks.
    fn continued(&mut self, cx: &Context, groups: &[u16], id: &[u8], offset: &[u8]) -> Option<Stream> {
        let offset = kv::number::parse_integer(offset).and_then(|offset| u64::try_from(offset).ok())?;
        let place = self.gone.iter().position(|stream| stream.id.as_bytes() == id)?;
        let stream = &self.gone[place];
        let end = stream.ends.iter().rposition(|(end, _)| end + 1 == offset)?;
        let versions = &stream.ends[end].1;
        let is_kept = |(group, version): &(u16, Version)| {
            history_of(cx, *group).is_some_and(|(table, history)| {
                let floor = table.version_floor();
                history.since(floor) <= *version
            })
        };
        if !versions.iter().map(|(group, _)| group).eq(groups) || !versions.iter().all(is_kept) {
            return None;
        }
        let mut stream = self.gone.remove(place)?;
        stream.ends.truncate(end + 1);
        (stream.offset, stream.versions) = stream.ends.back().cloned()?;
        Some(stream)
    }

    /// Begins a copy: the moment that it shows is now.
    fn copied(&mut self, cx: &mut Context, client: ClientId, groups: &[u16]) -> Option<(Stream, Copy)> {
        self.begun += 1;
        let name = |salt: u8| {
            let words = [cx.configuration.identity, cx.now.unix_ms, self.begun, client.to_bits()];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain([salt]).collect();
            format!("{:016x}", kv::digest::digest_of(&bytes))
        };
        let hex = |salt: u8| (salt..salt + 3).map(name).collect::<String>()[..40].to_owned();
        let (id, mark) = (hex(0), hex(3));
        let (mut versions, mut left) = (Vec::new(), Vec::new());
        for group in groups {
            let (table, history) = history_of(cx, *group)?;
            let restarts = history.restarts();
            versions.push((*group, table.version_floor()));
            let replica = cx.groups.get_mut(*group)?.replica.as_mut()?;
            left.push((*group, replica.dumped()?.begin_snapshot(), restarts));
        }
        let stream = Stream { id, offset: 1, versions, ends: VecDeque::new() };
        Some((stream, Copy { left, mark, expiring: Vec::new() }))
    }

    /// A client is gone.
    pub(crate) fn end(&mut self, cx: &mut Context, client: ClientId) {
        let Some(replica) = self.all.remove(&client) else { return };
        match replica.copy {
            Some(copy) => copy.end(cx),
            None => {
                self.gone.push_back(replica.stream);
                if self.gone.len() > GONE_MAX {
                    self.gone.pop_front();
                }
            }
        }
    }

    /// A turn ends: sends replicas what there is.
    pub(crate) fn end_turn(&mut self, cx: &mut Context) {
        let mut ended = Vec::new();
        self.due_us = u64::MAX;
        for replica in self.all.values_mut() {
            match replica.advance(cx) {
                Ok(()) => self.due_us = self.due_us.min(replica.due_us),
                Err(why) => ended.push((replica.client, why)),
            }
        }
        for (client, why) in ended {
            cx.log.push(Line { level: Level::Warning, text: format!("a Redis replica is closed: {why}") });
            // It connects again, and gets a copy.
            if let Some(copy) = self.all.remove(&client).and_then(|replica| replica.copy) {
                copy.end(cx);
            }
            cx.kill(client);
        }
    }
}

impl Copy {
    /// Gives up the snapshots that are left. Those of a table that was replaced are gone with it.
    fn end(self, cx: &mut Context) {
        for (group, snapshot, restarts) in self.left {
            if history_of(cx, group).is_some_and(|(_, history)| history.restarts() == restarts)
                && let Some(replica) = cx.groups.get_mut(group).and_then(|group| group.replica.as_mut())
                && let Some(table) = replica.dumped()
            {
                table.end_snapshot(snapshot);
            }
        }
    }

    /// Appends the next part of the copy. Returns whether it is whole.
    fn write(&mut self, cx: &mut Context, out: &mut Vec<u8>) -> Result<bool, &'static str> {
        const REPLACED: &str = "the keyspace was replaced while it was copied";
        while let Some((group, snapshot, restarts)) = self.left.last().copied() {
            if history_of(cx, group).is_none_or(|(_, history)| history.restarts() != restarts) {
                return Err(REPLACED);
            }
            let replica =
                cx.groups.get_mut(group).and_then(|group| group.replica.as_mut()).ok_or(REPLACED)?;
            let table = replica.dumped().ok_or(REPLACED)?;
            let room = CHUNK_BYTES.saturating_sub(out.len());
            if table.dump_chunk(snapshot, room, out, &mut self.expiring).ok_or(REPLACED)? {
                if out.len() >= CHUNK_BYTES {
                    return Ok(false);
                }
                continue;
            }
            table.end_snapshot(snapshot);
            self.left.pop();
        }
        // The end, without a checksum.
        out.extend_from_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(self.mark.as_bytes());
        Ok(true)
    }
}

impl Replica {
    /// Sends what there is, as far as it has room.
    fn advance(&mut self, cx: &mut Context) -> Result<(), &'static str> {
        let now_us = cx.now.monotonic_us;
        let Some(session) = cx.clients.sessions.get(self.client) else { return Ok(()) };
        if session.output_bytes() >= OUTPUT_BYTES {
            self.due_us = now_us + LOOK_US;
            return match now_us > self.took_us + SILENCE_US {
                true => Err("it does not read"),
                false => Ok(()),
            };
        }
        self.took_us = now_us;
        let mut out = Vec::new();
        if let Some(copy) = &mut self.copy {
            self.due_us = now_us;
            let is_whole = copy.write(cx, &mut out)?;
            cx.send_raw(self.client, &out);
            if is_whole && let Some(copy) = self.copy.take() {
                // What follows the copy, once it is acknowledged.
                put_command([&b"SELECT"[..], b"0"], &mut self.first);
                for (key, field, deadline) in copy.expiring {
                    let deadline = deadline.to_string();
                    let words = [&b"HPEXPIREAT"[..], &key, deadline.as_bytes(), b"FIELDS", b"1", &field];
                    put_command(words, &mut self.first);
                }
            }
            return Ok(());
        }
        if self.is_loading {
            self.due_us = u64::MAX;
            return Ok(());
        }
        self.due_us = self.ping_us;
        if !self.first.is_empty() {
            out = std::mem::take(&mut self.first);
            self.stream.sent(out.len());
        }
        for place in 0..self.stream.versions.len() {
            let (group, version) = self.stream.versions[place];
            let Some((table, history)) = history_of(cx, group) else { continue };
            let floor = table.version_floor();
            let mut records = ReplyBuffer::new();
            let recent = history.write_behind(version, floor, CHUNK_BYTES, &mut records);
            if recent.since > version {
                return Err("what it lacks is not kept any more: raise changes_bytes");
            }
            let mut reader = Reader::new(records.as_bytes());
            for _ in 0..recent.records {
                let (version, elements) = take_record(&mut reader).ok_or("a change that is none")?;
                let is_only = self.stream.versions.len() == 1;
                let before = out.len();
                put_record(elements, is_only, &mut out)?;
                self.stream.versions[place].1 = version;
                self.stream.sent(out.len() - before);
            }
            // What changes nothing has a version, too.
            let reached = &mut self.stream.versions[place].1;
            *reached = (*reached).max(recent.until);
            if recent.until < floor {
                self.due_us = now_us;
            }
        }
        if out.is_empty() && now_us >= self.ping_us {
            put_command([&b"PING"[..]], &mut out);
            self.stream.sent(out.len());
        }
        if !out.is_empty() {
            self.ping_us = now_us + PING_US;
            self.due_us = self.due_us.min(self.ping_us);
            cx.send_raw(self.client, &out);
        }
        Ok(())
    }
}

impl Stream {
    /// So many bytes more were sent, and a record ends there.
    fn sent(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.ends.push_back((self.offset, self.versions.clone()));
        if self.ends.len() > ENDS_MAX {
            self.ends.pop_front();
        }
    }
}

/// Appends the effects of a record, as one transaction if there are several. `is_only`: the keyspace has one shard.
fn put_record(elements: &[u8], is_only: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    const NONE: &str = "a change that is none";
    let mut reader = Reader::new(elements);
    let mut next = || Reply::decode(&mut reader).map_err(|_| NONE);
    let Reply::Array(events) = next()? else { return Err(NONE) };
    for _ in 0..3 * events {
        next()?;
    }
    let Reply::Array(effects) = next()? else { return Err(NONE) };
    let mut commands = Vec::new();
    for _ in 0..effects {
        let Reply::Array(count) = next()? else { return Err(NONE) };
        let mut words = Vec::new();
        for _ in 0..count {
            let Reply::Bulk(word) = next()? else { return Err(NONE) };
            words.push(word);
        }
        commands.push(words);
    }
    let is = |name: &[u8]| commands.iter().any(|words| words.first() == Some(&name));
    if is(b"FLUSHDB") && !is_only {
        return Err("all keys of one shard were removed, which has no counterpart in Redis");
    }
    // A replica that does not know a command would drop the whole transaction.
    let is_transaction = commands.len() > 1 && !is(b"HPEXPIREAT");
    if is_transaction {
        put_command([&b"MULTI"[..]], out);
    }
    commands.into_iter().for_each(|words| put_command(words, out));
    if is_transaction {
        put_command([&b"EXEC"[..]], out);
    }
    Ok(())
}

fn put_command<'w>(
    words: impl IntoIterator<Item = &'w [u8], IntoIter: ExactSizeIterator>,
    out: &mut Vec<u8>,
) {
    let words = words.into_iter();
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
