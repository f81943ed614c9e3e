//! Replicas of Redis and Valkey that follow all keyspaces that keep their changes (`REPLICAOF`): `REPLCONF`, `PSYNC` and `SYNC`;
//! and clients that only want a copy: of all keyspaces (`redis-cli --rdb`), or of one shard of any keyspace (`KEYSPACE COPY`).
//!
//! A replica gets a copy of the keyspaces, each shard as it is at one moment, in the form of a Redis file, and then the
//! effects of all changes after these moments ([`kv::table::History`]). Replication is asynchronous: nothing waits for the
//! replica, and its acknowledgements have no effect. If the set of keyspaces or shards to follow changes, it starts again
//! with a new copy.
//!
//! The copy ends with a mark, if the replica has announced that it takes that. Otherwise its length comes first. To know
//! it, a second snapshot of the same moments is read and counted before: that takes processor time, but neither memory in
//! proportion to the keys nor a file.
//!
//! The stream's offset counts its bytes. The end of each record is noted with the versions there, so a replica that
//! reconnects to this node continues where it was, as long as the changes after that point are kept.

use super::readers::{OUTPUT_BYTES, check_kept, history_of, take_record};
use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use crate::session::{ClientId, ClientKind, Pending, ReplicaWishes};
use cluster::control::Refusal;
use cluster::words::quoted;
use kv::codec::Reader;
use kv::table::{ExpiringField, SnapshotId, Table};
use kv::{Reply, ReplyBuffer, TransactionId, Version};
use protocol::Result as Outcome;
use protocol::planted::Fault;
use std::collections::{BTreeMap, VecDeque};
use wire::resp::Arguments;

/// How many bytes of the copy or of the stream are written at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// For how many of the latest records of a replica the end is noted, and for how many disconnected replicas that is kept.
const ENDS_MAX: usize = 10_000;
const GONE_MAX: usize = 16;

/// How often a replica that gets nothing else gets a `PING`.
const PING_US: u64 = 5_000_000;

/// A replica that takes nothing for this long is closed: the copy that it was sent costs memory.
const SILENCE_US: u64 = 60_000_000;

/// The same of a copy that is one of several of one moment, which a backup reads one after the other.
const SILENCE_AT_MOMENT_US: u64 = 3_600_000_000;

/// How soon to check again whether a replica reads.
const LOOK_US: u64 = 10_000;

const NOT_ALONE: &str = "ERR send KEYSPACE COPY on a connection of its own, with no other request";

/// A copy for a client that has begun, and of which nothing is sent yet.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The line that the client gets before the keys.
    pub(crate) status: String,
    stream: Stream,
    copy: Copy,
    is_of_moment: bool,
}

/// The replicas that follow this node.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    all: BTreeMap<ClientId, Replica>,
    /// The streams of disconnected replicas, which may reconnect.
    gone: VecDeque<Stream>,
    begun: u64,
    due_us: u64,
}

#[derive(Debug)]
struct Replica {
    client: ClientId,
    stream: Stream,
    /// The version of the map for which it was last checked that the replica follows all that it should. `None`: it only
    /// gets a copy.
    map_version: Option<u64>,
    /// A copy of the same moments that is only counted, before the other one is sent.
    counted: Option<Counted>,
    /// What is left to send of the copy; `None`: all was sent.
    copy: Option<Copy>,
    /// The copy is not acknowledged yet. Nothing may be sent until then: the replica finds the copy's end only if nothing
    /// follows it.
    is_loading: bool,
    /// The beginning of its stream, not sent yet.
    first: Vec<u8>,
    /// When it last had room for more, and when it gets a `PING` if there is nothing else to send.
    took_us: u64,
    /// For how long it may take nothing.
    silence_us: u64,
    ping_us: u64,
    due_us: u64,
}

/// A shard that is copied or followed, and the database that its keys are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shard {
    database: u8,
    group: u16,
}

/// What a replica has been sent.
#[derive(Debug)]
struct Stream {
    /// What Redis calls the replication id.
    id: String,
    offset: u64,
    /// The database that the stream selected last.
    selected: Option<u8>,
    shards: Vec<Shard>,
    /// For each shard, in the order of `shards`: its group, and the version up to which all has been sent.
    versions: Vec<(u16, Version)>,
    /// Offsets at which records end, with the versions there.
    ends: VecDeque<(u64, Vec<(u16, Version)>)>,
}

/// A copy under way.
#[derive(Debug)]
struct Copy {
    /// The shards that are left, the last one first, each with its snapshot and how often its table had been replaced when
    /// the snapshot began.
    left: Vec<(Shard, SnapshotId, u64)>,
    /// The database of the keys that were written last.
    database: Option<u8>,
    /// What it ends with; empty if its length was sent first.
    mark: String,
    /// How many bytes of the length that was sent are left.
    promised: Option<u64>,
    /// Fields that expire, by database: what a copy in the format from before Redis 7.4 cannot hold. `None`: the format
    /// holds them, and nothing follows the copy.
    expiring: Option<BTreeMap<u8, Vec<ExpiringField>>>,
}

/// A copy of which only the length is wanted.
#[derive(Debug)]
struct Counted {
    copy: Copy,
    bytes: u64,
    /// The beginning of the file, which counts, too.
    head: &'static [u8],
}

/// The beginnings of files in the format's versions 10 and 12, which has deadlines of fields of hashes.
const HEAD: &[u8] = b"REDIS0010";
const HEAD_WITH_DEADLINES: &[u8] = b"REDIS0012";

impl Replicas {
    /// Whether there are any replicas.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.all.is_empty()
    }

    /// When [`Replicas::end_turn`] has to run next, even if nothing happens.
    pub(crate) fn due_us(&self) -> u64 {
        if self.is_on() { self.due_us } else { u64::MAX }
    }

    /// `REPLCONF`: what a replica reports about itself. An acknowledgement gets no reply.
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
                        session.replica.takes_mark = true;
                    }
                }
                b"rdb-only" => {
                    if let Some(session) = cx.clients.sessions.get_mut(client) {
                        session.replica.wants_only_copy = value != b"0";
                    }
                }
                b"rdb-filter-only" if !value.is_empty() => {
                    return cx.answer(client, |replies| {
                        replies.error(
                            "ERR REPLCONF rdb-filter-only is refused: a copy has all keys, and no functions: those are read \
                             with FUNCTION DUMP",
                        );
                    });
                }
                _ => {}
            }
        }
        cx.answer(client, ReplyBuffer::ok);
    }

    /// `PSYNC id offset`: begins to send a client a copy and the changes after it, or continues an earlier stream. `SYNC`: the
    /// same with a new copy, and without a line that names the stream.
    pub(crate) fn begin(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let wishes = cx.clients.sessions.get(client).map(|session| session.replica).unwrap_or_default();
        let shards = match self.check(cx, client, wishes.wants_only_copy) {
            Ok(shards) => shards,
            Err(error) => return cx.answer(client, |replies| replies.error(&format!("ERR {error}"))),
        };
        if let Some(session) = cx.clients.sessions.get_mut(client) {
            session.replica.is_one = true;
        }
        let named = arguments.get(1).zip(arguments.get(2)).filter(|_| !wishes.wants_only_copy);
        if let Some(stream) = named.and_then(|(id, offset)| self.continued(cx, &shards, id, offset)) {
            cx.answer(client, |replies| replies.push(Reply::Status(b"CONTINUE")));
            let map_version = Some(cx.map.version);
            return self.add(cx, client, (stream, None, None), map_version, |address| {
                format!("a Redis replica at {address} goes on")
            });
        }
        if let Err(why) = self.begin_whole(cx, client, shards, wishes, arguments.len() > 1) {
            cx.answer(client, |replies| replies.error(&format!("ERR {why}")));
        }
    }

    /// Begins to send a client a copy.
    fn begin_whole(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        shards: Vec<Shard>,
        ReplicaWishes { takes_mark, wants_only_copy, .. }: ReplicaWishes,
        is_named: bool,
    ) -> Result<(), &'static str> {
        let has_deadlines =
            |shard: &Shard| table_of(cx, shard.group).is_some_and(|it| it.has_field_deadlines());
        let head = match wants_only_copy && shards.iter().any(has_deadlines) {
            true => HEAD_WITH_DEADLINES,
            false => HEAD,
        };
        // What follows a copy has the deadlines of fields.
        let expiring = || (!wants_only_copy).then(BTreeMap::new);
        let counted = match takes_mark {
            true => None,
            false => {
                let (_, copy) = self.copied(cx, client, shards.clone())?;
                let copy = Copy { expiring: expiring(), mark: String::new(), ..copy };
                Some(Counted { copy, bytes: head.len() as u64, head })
            }
        };
        // At the same moment: the node does nothing else in between.
        let (stream, mut copy) = self.copied(cx, client, shards)?;
        copy.expiring = expiring();
        if is_named {
            let answer = format!("FULLRESYNC {} {}", stream.id, stream.offset);
            cx.answer(client, |replies| replies.push(Reply::Status(answer.as_bytes())));
        }
        match takes_mark {
            true => cx.send_raw(client, &[format!("$EOF:{}\r\n", copy.mark).as_bytes(), head].concat()),
            false => copy.mark.clear(),
        }
        let how = match wants_only_copy {
            true => "gets a copy of all keyspaces".to_owned(),
            false => format!("gets a copy {}", followed_keyspaces(cx)),
        };
        let map_version = (!wants_only_copy).then_some(cx.map.version);
        self.add(cx, client, (stream, counted, Some(copy)), map_version, |address| {
            format!("a Redis replica at {address} {how}")
        });
        Ok(())
    }

    fn add(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        (stream, counted, copy): (Stream, Option<Counted>, Option<Copy>),
        map_version: Option<u64>,
        line: impl FnOnce(&str) -> String,
    ) {
        let groups = stream.shards.iter().map(|shard| shard.group);
        assert!(
            groups.eq(stream.versions.iter().map(|(group, _)| *group)),
            "each shard has the version at its place"
        );
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        session.readers += 1;
        let text = line(match session.kind() {
            ClientKind::Resp { address, .. } => address,
            ClientKind::Internal => "",
        });
        cx.log.push(Line { level: Level::Info, text });
        let now_us = cx.now.monotonic_us;
        let (took_us, ping_us) = (now_us, now_us + PING_US);
        // With the length known, what follows the copy cannot be taken for a part of it.
        let is_loading = copy.as_ref().is_some_and(|copy| !copy.mark.is_empty());
        let first = Vec::new();
        let replica = Replica {
            client,
            stream,
            map_version,
            counted,
            copy,
            is_loading,
            first,
            took_us,
            silence_us: SILENCE_US,
            ping_us,
            due_us: 0,
        };
        self.all.insert(client, replica);
        self.due_us = 0;
    }

    /// The shards to follow, or to copy.
    ///
    /// # Errors
    /// Why a replica cannot follow all of them here.
    fn check(&self, cx: &Context, client: ClientId, wants_only_copy: bool) -> Result<Vec<Shard>, String> {
        let session = cx.clients.sessions.get(client).ok_or("the client is gone")?;
        if session.is_waiting() || self.all.contains_key(&client) {
            return Err("a connection's only request is PSYNC or SYNC, and its last one".into());
        }
        if wants_only_copy {
            return all_shards(cx);
        }
        let shards = shards_to_follow(cx);
        if shards.is_empty() {
            check_kept(cx.map.keyspaces.get("").ok_or("there is no default keyspace")?)?;
        }
        for entry in cx.map.keyspaces.values().filter(|entry| entry.keyspace.keeps_changes()) {
            let name = entry.keyspace.name();
            if entry.keyspace.spills() {
                return Err(format!(
                    "keyspace '{name}' has values on the disk, which cannot be copied for a Redis replica: use quorate export, \
                     or have the keyspace keep no changes, to leave it out: quorate keyspace alter {} changes_bytes=0",
                    quoted(&entry.keyspace.prefix)
                ));
            }
            if !entry.groups.iter().all(|group| history_of(cx, *group).is_some()) {
                let own = cx.configuration.node;
                return Err(format!(
                    "node {own} has no replica of keyspace '{name}' that serves: ask another node"
                ));
            }
        }
        Ok(shards)
    }

    /// The stream of a replica that was connected before, if it can continue at this offset, which is that of the first
    /// byte that the replica lacks.
    fn continued(&mut self, cx: &Context, shards: &[Shard], id: &[u8], offset: &[u8]) -> Option<Stream> {
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
        if stream.shards != shards || !versions.iter().all(is_kept) {
            return None;
        }
        let mut stream = self.gone.remove(place)?;
        stream.ends.truncate(end + 1);
        (stream.offset, stream.versions) = stream.ends.back().cloned()?;
        // The database that was selected at that point is not noted.
        stream.selected = None;
        Some(stream)
    }

    /// `KEYSPACE COPY prefix shard [LOCKED id]`: returns the group that must be asked for its version before it is copied. A deposed
    /// leader may not know yet that it is one, and then lacks writes that were acknowledged since.
    pub(crate) fn ask_to_copy(
        &self,
        cx: &mut Context,
        client: ClientId,
        arguments: Arguments<'_>,
    ) -> Option<u16> {
        let locked_by = match arguments.len() {
            4 => Ok(None),
            6 if arguments[4].eq_ignore_ascii_case(b"LOCKED") => {
                let id = std::str::from_utf8(&arguments[5]).ok().and_then(TransactionId::parse);
                id.map(Some)
                    .ok_or_else(|| "ERR behind LOCKED stands what CLUSTER BACKUP LOCK has answered".into())
            }
            _ => Err("ERR syntax error; KEYSPACE HELP lists what there is".to_owned()),
        };
        let found = locked_by.and_then(|locked_by| {
            let (group, name) = self.find_copied(cx, client, &arguments[2], &arguments[3])?;
            Ok((group, name, locked_by))
        });
        match found {
            Ok((group, name, locked_by)) => {
                cx.clients.sessions.get_mut(client)?.expect(Pending::Copy(name, locked_by));
                Some(group)
            }
            Err(error) => {
                cx.answer(client, |replies| replies.error(&error));
                None
            }
        }
    }

    /// Begins a copy of a group, which has answered at which version it is. When the client has its reply, the keys are
    /// sent: [`Replicas::send_copy`].
    ///
    /// # Errors
    /// The group did not answer, or this node's replica lacks some of what it has; or the keys cannot be copied, or are not locked
    /// by the transaction that should have locked them.
    pub(crate) fn begin_copy(
        &mut self,
        cx: &mut Context,
        (client, sequence): (ClientId, u64),
        (group, name, locked_by): (u16, &str, Option<TransactionId>),
        (result, reply): (Outcome, &[u8]),
    ) -> Result<Begun, String> {
        if !cx.clients.sessions.get(client).is_some_and(|session| session.waits_only_for(sequence)) {
            return Err(NOT_ALONE.into());
        }
        let mut answer = Reader::new(reply);
        let newest = match (result, Reply::decode(&mut answer), Reply::decode(&mut answer)) {
            (Outcome::Done { .. }, Ok(Reply::Array(1)), Ok(Reply::Integer(version))) => version as Version,
            _ => Version::MAX,
        };
        let Some(table) = table_of(cx, group).filter(|table| table.version_floor() >= newest) else {
            return Err(not_leader(cx, name));
        };
        // Then nothing has changed since all groups were locked, for none of these locks is ever taken twice.
        let is_held = |id| table.two_phase().all_locked_by() == Some(&id);
        if !locked_by.is_none_or(is_held) {
            return Err(format!("UNLOCKED {name} is not locked by this transaction any more"));
        }
        // The number of the database does not matter: the reader knows which one it asked for.
        let begun = self.copied(cx, client, vec![Shard { database: 0, group }]);
        let (stream, copy) = begun.map_err(|why| format!("NOCOPY {why}"))?;
        let status = format!("COPY {group}-{} {} {}", stream.versions[0].1, cx.now.unix_ms, copy.mark);
        Ok(Begun { status, stream, copy, is_of_moment: locked_by.is_some() })
    }

    /// Sends a client the keys of a copy that has begun.
    pub(crate) fn send_copy(&mut self, cx: &mut Context, client: ClientId, name: &str, begun: Begun) {
        let Begun { stream, copy, is_of_moment, .. } = begun;
        // Version 12 of the format.
        cx.send_raw(client, b"REDIS0012");
        let line = |address: &str| format!("{name} is copied for the client at {address}");
        self.add(cx, client, (stream, None, Some(copy)), None, line);
        if let Some(replica) = self.all.get_mut(&client).filter(|_| is_of_moment) {
            replica.silence_us = SILENCE_AT_MOMENT_US;
        }
    }

    /// The group of a shard of a keyspace, and its name, if this node leads it.
    fn find_copied(
        &self,
        cx: &Context,
        client: ClientId,
        prefix: &[u8],
        shard: &[u8],
    ) -> Result<(u16, String), String> {
        let prefix = String::from_utf8_lossy(prefix).into_owned();
        let entry = cx.map.keyspaces.get(&prefix).ok_or_else(|| {
            let why = Refusal::NoKeyspace(prefix);
            format!("{} {why}", why.code())
        })?;
        let name = entry.keyspace.name();
        let session = cx.clients.sessions.get(client);
        // What is sent is not a reply, so only a client with a socket can take it.
        let is_free = session.is_some_and(|it| !it.is_waiting() && !it.is_internal());
        if !is_free || self.all.contains_key(&client) {
            return Err(NOT_ALONE.into());
        }
        if !entry.keyspace.has_leader() {
            return Err(format!(
                "NOCOPY the keys of keyspace '{name}' are registers, each on its own: no copy shows them at one moment"
            ));
        }
        let number = kv::number::parse_integer(shard).and_then(|shard| usize::try_from(shard).ok());
        let Some(group) = number.and_then(|number| entry.groups.get(number)) else {
            return Err(format!("ERR keyspace '{name}' has shards 0 to {}", entry.groups.len() - 1));
        };
        let shard = number.unwrap_or_default();
        let named = format!("shard {shard} of keyspace '{name}'");
        let served = cx.groups.get(*group).filter(|group| group.holds.is_none());
        let replica = served.and_then(|group| group.replica.as_ref());
        // All writes acknowledged so far are in the leader's table; a follower's may lack some of them.
        match replica.is_some_and(|replica| replica.is_leader() && replica.summary(cx.now).ready) {
            true => Ok((*group, named)),
            false => Err(not_leader(cx, &named)),
        }
    }

    /// Begins a copy, which shows the keys as they are now.
    fn copied(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        shards: Vec<Shard>,
    ) -> Result<(Stream, Copy), &'static str> {
        const NONE: &str = "this node has no replica of the keyspace that it could copy";
        for Shard { group, .. } in &shards {
            if table_of(cx, *group).ok_or(NONE)?.holds_coded() {
                return Err("some values are on the disk or in fragments: read them key by key");
            }
        }
        self.begun += 1;
        let name = |salt: u8| {
            let words = [cx.configuration.identity, cx.now.unix_ms, self.begun, client.to_bits()];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain([salt]).collect();
            format!("{:016x}", kv::digest::digest_of(&bytes))
        };
        let hex = |salt: u8| (salt..salt + 3).map(name).collect::<String>()[..40].to_owned();
        let (id, mark) = (hex(0), hex(3));
        let early = u64::from(cx.configuration.planted.has(Fault::CopyOfLaterVersion));
        let (mut versions, mut left) = (Vec::new(), Vec::new());
        for shard in &shards {
            let table = table_of(cx, shard.group).ok_or(NONE)?;
            versions.push((shard.group, table.version_floor().saturating_sub(early)));
            left.push((*shard, table.begin_snapshot(), table.replacements()));
        }
        left.reverse();
        let stream = Stream { id, offset: 1, selected: None, shards, versions, ends: VecDeque::new() };
        Ok((stream, Copy { left, database: None, mark, promised: None, expiring: None }))
    }

    /// Ends the stream of a disconnected client.
    pub(crate) fn end(&mut self, cx: &mut Context, client: ClientId) {
        let Some(replica) = self.all.remove(&client) else { return };
        if let Some(stream) = replica.end(cx) {
            self.gone.push_back(stream);
            if self.gone.len() > GONE_MAX {
                self.gone.pop_front();
            }
        }
    }

    /// Sends replicas what there is to send, at the end of a turn.
    pub(crate) fn end_turn(&mut self, cx: &mut Context) {
        let mut ended = Vec::new();
        self.due_us = u64::MAX;
        for replica in self.all.values_mut() {
            match replica.advance(cx) {
                Ok(true) => self.due_us = self.due_us.min(replica.due_us),
                Ok(false) => ended.push((replica.client, None)),
                Err(why) => ended.push((replica.client, Some(why))),
            }
        }
        for (client, why) in ended {
            let replica = self.all.remove(&client);
            let Some(why) = why else {
                if let Some(session) = cx.clients.sessions.get_mut(client) {
                    session.readers = session.readers.saturating_sub(1);
                }
                continue;
            };
            let text =
                format!("a client that is sent a copy, or follows as a Redis replica, is closed: {why}");
            cx.log.push(Line { level: Level::Warning, text });
            // The replica reconnects, and gets a new copy.
            if let Some(replica) = replica {
                replica.end(cx);
            }
            cx.kill(client);
        }
    }
}

impl Copy {
    /// Ends the snapshots that are left. Those of a replaced table were dropped with it.
    fn end(self, cx: &mut Context) {
        for (Shard { group, .. }, snapshot, replacements) in self.left {
            if let Some(table) = table_of(cx, group).filter(|table| table.replacements() == replacements) {
                table.end_snapshot(snapshot);
            }
        }
    }

    /// Counts bytes that are sent, if their number was announced.
    ///
    /// # Errors
    /// It is another number.
    fn keep_promise(&mut self, bytes: usize, is_whole: bool) -> Result<(), &'static str> {
        const OTHER: &str = "the copy has another length than was counted";
        let Some(promised) = &mut self.promised else { return Ok(()) };
        *promised = promised.checked_sub(bytes as u64).ok_or(OTHER)?;
        if is_whole && *promised > 0 { Err(OTHER) } else { Ok(()) }
    }

    /// Appends the next part of the copy. Returns whether the copy is complete.
    fn write(&mut self, cx: &mut Context, out: &mut Vec<u8>) -> Result<bool, &'static str> {
        const REPLACED: &str = "the keyspace was replaced while it was copied";
        while let Some((Shard { database, group }, snapshot, replacements)) = self.left.last().copied() {
            if self.database != Some(database) {
                self.database = Some(database);
                out.extend_from_slice(&[0xfe, database]);
            }
            let expiring = self.expiring.as_mut().map(|all| all.entry(database).or_default());
            let table = table_of(cx, group).filter(|table| table.replacements() == replacements);
            let table = table.ok_or(REPLACED)?;
            let room = CHUNK_BYTES.saturating_sub(out.len());
            if table.dump_chunk(snapshot, room, out, expiring).ok_or(REPLACED)? {
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
    /// Ends what it was sent. Returns its stream, which it may continue later unless its copy was not whole.
    fn end(self, cx: &mut Context) -> Option<Stream> {
        if let Some(Counted { copy, .. }) = self.counted {
            copy.end(cx);
        }
        match self.copy {
            Some(copy) => {
                copy.end(cx);
                None
            }
            None => Some(self.stream),
        }
    }

    /// Counts the next part of the copy, which is not sent before its length is known.
    fn count(&mut self, cx: &mut Context) -> Result<(), &'static str> {
        let (now_us, mut part) = (cx.now.monotonic_us, Vec::new());
        self.due_us = now_us;
        let Some(counted) = &mut self.counted else { return Ok(()) };
        let is_whole = counted.copy.write(cx, &mut part)?;
        counted.bytes += part.len() as u64;
        if is_whole && let Some(Counted { bytes, head, .. }) = self.counted.take() {
            cx.send_raw(self.client, &[format!("${bytes}\r\n").as_bytes(), head].concat());
            let promised = bytes.checked_sub(head.len() as u64);
            if let Some(copy) = &mut self.copy {
                copy.promised = promised;
            }
        } else if now_us >= self.ping_us {
            // A replica that waits for the length takes empty lines for a sign of life.
            cx.send_raw(self.client, b"\n");
            self.ping_us = now_us + PING_US;
        }
        Ok(())
    }

    /// Sends what there is, as far as the client's output has room. Returns whether more may follow.
    fn advance(&mut self, cx: &mut Context) -> Result<bool, &'static str> {
        let now_us = cx.now.monotonic_us;
        if self.map_version.is_some_and(|version| version != cx.map.version) {
            if self.stream.shards != shards_to_follow(cx) {
                return Err("there are other keyspaces or shards to follow than before");
            }
            self.map_version = Some(cx.map.version);
        }
        let Some(session) = cx.clients.sessions.get(self.client) else { return Ok(true) };
        if session.output_bytes() >= OUTPUT_BYTES {
            self.due_us = now_us + LOOK_US;
            return match now_us > self.took_us + self.silence_us {
                true => Err("it does not read"),
                false => Ok(true),
            };
        }
        self.took_us = now_us;
        if self.counted.is_some() {
            return self.count(cx).map(|()| true);
        }
        let mut out = Vec::new();
        if let Some(copy) = &mut self.copy {
            self.due_us = now_us;
            let is_whole = copy.write(cx, &mut out)?;
            copy.keep_promise(out.len(), is_whole)?;
            cx.send_raw(self.client, &out);
            if is_whole && let Some(copy) = self.copy.take() {
                cx.journal.note_saved(cx.now.unix_ms);
                let Some(expiring) = copy.expiring else { return Ok(false) };
                // This is sent once the copy is acknowledged.
                for (database, fields) in expiring {
                    self.stream.select(database, &mut self.first);
                    for (key, field, deadline) in fields {
                        let deadline = deadline.to_string();
                        let words = [&b"HPEXPIREAT"[..], &key, deadline.as_bytes(), b"FIELDS", b"1", &field];
                        put_command(words, &mut self.first);
                    }
                }
            }
            return Ok(true);
        }
        if self.is_loading {
            self.due_us = u64::MAX;
            return Ok(true);
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
                let (version, _, (_, elements)) = take_record(&mut reader).ok_or("a change that is none")?;
                let database = self.stream.shards[place].database;
                let is_only =
                    self.stream.shards.iter().filter(|shard| shard.database == database).count() == 1;
                let before = out.len();
                self.stream.select(database, &mut out);
                put_record(elements, is_only, &mut out)?;
                self.stream.versions[place].1 = version;
                self.stream.sent(out.len() - before);
            }
            // Records that change nothing have versions, too.
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
        Ok(true)
    }
}

impl Stream {
    /// Has the replica select a database, unless it is selected.
    fn select(&mut self, database: u8, out: &mut Vec<u8>) {
        if self.selected != Some(database) {
            self.selected = Some(database);
            put_command([&b"SELECT"[..], database.to_string().as_bytes()], out);
        }
    }

    /// Notes that `bytes` more bytes were sent, at whose end a record ends.
    fn sent(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.ends.push_back((self.offset, self.versions.clone()));
        if self.ends.len() > ENDS_MAX {
            self.ends.pop_front();
        }
    }
}

/// The shards of all keyspaces that keep their changes, by database.
fn shards_to_follow(cx: &Context) -> Vec<Shard> {
    let kept = cx.map.keyspaces.values().filter(|entry| entry.keyspace.keeps_changes());
    let mut shards: Vec<Shard> = kept
        .flat_map(|entry| {
            let database = entry.keyspace.database();
            entry.groups.iter().map(move |group| Shard { database, group: *group })
        })
        .collect();
    shards.sort_unstable();
    shards
}

/// The shards of all keyspaces, by database.
///
/// # Errors
/// Why not all of them can be copied here.
fn all_shards(cx: &Context) -> Result<Vec<Shard>, String> {
    let mut shards = Vec::new();
    for entry in cx.map.keyspaces.values() {
        let (name, own) = (entry.keyspace.name(), cx.configuration.node);
        if !entry.keyspace.has_leader() || entry.keyspace.spills() {
            return Err(format!(
                "keyspace '{name}' has registers, or values on the disk, which are in no copy: use quorate export, which names \
                 what it leaves out, or quorate backup"
            ));
        }
        let serves = |group: &u16| {
            let group = cx.groups.get(*group).filter(|group| group.holds.is_none());
            group
                .and_then(|group| group.replica.as_ref())
                .is_some_and(|replica| replica.summary(cx.now).ready)
        };
        if !entry.groups.iter().all(serves) {
            return Err(format!(
                "node {own} has no replica of keyspace '{name}' that serves: ask another node"
            ));
        }
        let database = entry.keyspace.database();
        shards.extend(entry.groups.iter().map(|group| Shard { database, group: *group }));
    }
    shards.sort_unstable();
    Ok(shards)
}

/// The keyspaces that a replica follows, and those that it does not, for the log.
fn followed_keyspaces(cx: &Context) -> String {
    let names = |is_kept: bool| -> Vec<String> {
        let entries = cx.map.keyspaces.values().filter(|entry| entry.keyspace.keeps_changes() == is_kept);
        entries.map(|entry| format!("'{}'", entry.keyspace.name())).collect()
    };
    let (kept, others) = (names(true).join(", "), names(false).join(", "));
    match others.is_empty() {
        true => format!("of keyspaces {kept}"),
        false => format!("of keyspaces {kept}, and not of {others}, which keep no changes"),
    }
}

/// Why a group, which this names, cannot be copied here.
fn not_leader(cx: &Context, name: &str) -> String {
    let own = cx.configuration.node;
    format!("NOTLEADER node {own} does not lead {name}, or cannot be sure of it: ask another node")
}

/// The table of this node's replica of a group, if the replica is not stopped and can be copied.
fn table_of(cx: &mut Context, group: u16) -> Option<&mut Table> {
    cx.groups.get_mut(group).filter(|group| group.holds.is_none())?.replica.as_mut()?.dumped()
}

/// Appends the effects of a record, as one transaction if there are several. `is_only`: no other shard has keys in this
/// record's database.
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
