//! Readers of changes: `KEYSPACE WATCH`, which sends every change of a keyspace from a version on, and `KEYSPACE CHANGES`,
//! which returns the next ones.
//!
//! The tables of replicas keep their latest changes ([`kv::table::History`]), those of each record with its version. A
//! reader knows, for each of the keyspace's groups, up to which version it has read. All of these together are the version
//! that its client gets, as one word; a client that keeps this word can continue at any node.
//!
//! Changes are read from this node's replica. Without one, or if what it keeps begins too late, the reader asks the group's
//! leader, by a read like any other, which is forwarded to it. A reader takes no more than fits into its client's output:
//! a client that does not read falls behind, and gets an error once the changes that it lacks are no longer kept.
//! `docs/design/changes.md` explains why no change is missed.

use super::ANSWER_US;
use crate::context::Context;
use crate::session::origin::{Asked, Origin};
use crate::session::{ClientId, SessionReply};
use cluster::control::{KeyspaceEntry, Refusal};
use cluster::words::quoted;
use commands::KeyspaceCommand;
use kv::codec::Reader as Bytes;
use kv::table::History;
use kv::{Command, Reply, ReplyBuffer, Table, UnixMs, Version};
use protocol::planted::Fault;
use protocol::{Request, Result as Outcome};
use std::collections::BTreeMap;
use wire::resp::Arguments;
use wire::resp::reply::Protocol;

/// The most readers of one client, and of all clients of a node.
const OF_CLIENT_MAX: u16 = 16;
const READERS_MAX: usize = 1000;

/// A client with this many bytes of unwritten output gets no more changes for now.
pub(super) const OUTPUT_BYTES: usize = 256 << 10;

/// How many bytes of changes are read from a group at a time, unless a request asks for fewer.
const READ_BYTES: u32 = 64 << 10;

/// How soon a leader is asked again if it had nothing new, and if its answer was an error.
const ASK_US: u64 = 10_000;
const ASK_AFTER_ERROR_US: u64 = 100_000;

/// After this time a question to a leader counts as lost.
const QUESTION_US: u64 = 2_000_000;

const SYNTAX: &str = "ERR syntax error; KEYSPACE HELP lists what there is";

/// All readers of this node's clients.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    all: BTreeMap<u64, Reader>,
    /// The number of the newest reader.
    latest: u64,
    /// The questions to leaders that are under way: each with its reader, and the index of the group in the reader's
    /// positions.
    questions: BTreeMap<u64, (u64, usize)>,
    /// The number of the newest question.
    asked: u64,
    due_us: u64,
}

#[derive(Debug)]
struct Reader {
    client: ClientId,
    prefix: String,
    positions: Vec<Position>,
    purpose: Purpose,
    /// When it has to advance even if nothing happens.
    due_us: u64,
}

/// How far a reader has read in one group.
#[derive(Debug)]
struct Position {
    group: u16,
    /// `None`: it begins at the group's current version, which is not known yet.
    version: Option<Version>,
    /// Of a request: the version up to which nothing follows that one. It counts when all has been read: until then, the versions at
    /// a record differ from those at the one before in the record's own group alone.
    until: Version,
    /// The number of the question to the group's leader that is under way, and when it was asked.
    question: Option<(u64, u64)>,
    /// When the group's leader may be asked next.
    next_us: u64,
    /// Whether the group has been read for the request.
    is_read: bool,
}

#[derive(Debug)]
enum Purpose {
    /// A stream to its client, and whether its first version has been sent.
    Stream { is_announced: bool },
    /// A request of its client, with what has been read for it so far.
    Request { sequence: u64, bytes_left: usize, has_times: bool, records: u32, replies: ReplyBuffer },
}

/// The options of a request, besides its keyspace and version.
#[derive(Debug, Default)]
struct Options {
    bytes_max: Option<usize>,
    has_times: bool,
}

/// The end of a reader.
enum End {
    /// It has read what it was for.
    Done,
    /// An error for its client.
    Error(String),
}

impl Readers {
    /// Whether there are any readers.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.all.is_empty()
    }

    /// When [`Readers::end_turn`] has to run next, even if nothing happens.
    pub(crate) fn due_us(&self) -> u64 {
        if self.is_on() { self.due_us } else { u64::MAX }
    }

    /// Executes a command about the changes that tables keep.
    ///
    /// # Panics
    /// If it is any other command.
    pub(crate) fn command(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        command: KeyspaceCommand,
        arguments: Arguments<'_>,
    ) {
        match command {
            KeyspaceCommand::Watch => self.watch(cx, client, arguments),
            KeyspaceCommand::Unwatch => self.unwatch(cx, client, &arguments[2]),
            KeyspaceCommand::Changes => self.request(cx, client, arguments),
            _ => unreachable!("{command:?} is none of changes"),
        }
    }

    /// `KEYSPACE WATCH prefix [FROM version]`.
    fn watch(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let begun = self.begun(cx, client, arguments);
        let is_resp3 = cx.clients.sessions.get(client).is_some_and(|it| it.protocol() == Protocol::Resp3);
        let outcome = match begun {
            _ if !is_resp3 => refusal(
                "the changes come as pushes, which need RESP3: say HELLO 3 first, or ask with KEYSPACE CHANGES",
            ),
            Ok((_, Options { bytes_max: Some(_), .. } | Options { has_times: true, .. })) => {
                refusal("only KEYSPACE CHANGES takes BYTES and TIMES")
            }
            Ok((reader, _)) => Ok(reader),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(reader) => {
                cx.answer(client, ReplyBuffer::ok);
                self.add(cx, reader);
            }
            Err(error) => cx.answer(client, |replies| replies.error(&format!("{} {error}", error.code()))),
        }
    }

    /// `KEYSPACE UNWATCH prefix`: replies with the number of streams that it ended.
    fn unwatch(&mut self, cx: &mut Context, client: ClientId, prefix: &[u8]) {
        let before = self.all.len();
        self.all.retain(|_, reader| {
            let is_meant = reader.client == client
                && reader.prefix.as_bytes() == prefix
                && matches!(reader.purpose, Purpose::Stream { .. });
            !is_meant
        });
        let ended = before - self.all.len();
        if let Some(session) = cx.clients.sessions.get_mut(client) {
            session.readers -= ended as u16;
        }
        cx.answer(client, |replies| replies.integer(ended as i64));
    }

    /// `KEYSPACE CHANGES prefix [FROM version] [BYTES number] [TIMES]`.
    fn request(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        match self.begun(cx, client, arguments) {
            Ok((mut reader, Options { bytes_max, has_times })) => {
                let Some(session) = cx.clients.sessions.get_mut(client) else { return };
                let sequence = session.begin(false).sequence;
                let bytes_left = bytes_max.unwrap_or(READ_BYTES as usize);
                reader.purpose = Purpose::Request {
                    sequence,
                    bytes_left,
                    has_times,
                    records: 0,
                    replies: ReplyBuffer::new(),
                };
                self.add(cx, reader);
            }
            Err(error) => cx.answer(client, |replies| replies.error(&format!("{} {error}", error.code()))),
        }
    }

    fn begun(
        &self,
        cx: &Context,
        client: ClientId,
        arguments: Arguments<'_>,
    ) -> Result<(Reader, Options), Refusal> {
        let prefix = String::from_utf8_lossy(&arguments[2]).into_owned();
        let entry = cx.map.keyspaces.get(&prefix).ok_or_else(|| Refusal::NoKeyspace(prefix.clone()))?;
        check_kept(entry).map_err(Refusal::Other)?;
        let (mut from, mut options) = (None, Options::default());
        let mut words = arguments.iter().skip(3);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Refusal::Other(SYNTAX[4..].into()));
            match word.to_ascii_lowercase().as_slice() {
                b"times" if !options.has_times => options.has_times = true,
                b"from" if from.is_none() => from = Some(value()?),
                b"bytes" if options.bytes_max.is_none() => {
                    let number = kv::number::parse_integer(value()?).and_then(|it| usize::try_from(it).ok());
                    options.bytes_max = Some(
                        number
                            .ok_or_else(|| Refusal::Other("behind BYTES stands a number of bytes".into()))?,
                    );
                }
                _ => return refusal(&SYNTAX[4..]),
            }
        }
        let repeats = cx.configuration.planted.has(Fault::ChangesRepeated);
        let positions = positions(entry, from, repeats)?;
        let session = cx.clients.sessions.get(client);
        if self.all.len() >= READERS_MAX || session.is_some_and(|it| it.readers >= OF_CLIENT_MAX) {
            return refusal(&format!(
                "this node has as many readers of changes as it may: {OF_CLIENT_MAX} of one client, {READERS_MAX} of all"
            ));
        }
        let purpose = Purpose::Stream { is_announced: false };
        Ok((Reader { client, prefix, positions, purpose, due_us: 0 }, options))
    }

    fn add(&mut self, cx: &mut Context, reader: Reader) {
        if let Some(session) = cx.clients.sessions.get_mut(reader.client) {
            session.readers += 1;
        }
        self.latest += 1;
        self.all.insert(self.latest, reader);
        self.due_us = 0;
    }

    /// Ends all readers of a client that is reset or disconnected.
    pub(crate) fn end(&mut self, cx: &mut Context, client: ClientId) {
        self.all.retain(|_, reader| reader.client != client);
        if let Some(session) = cx.clients.sessions.get_mut(client) {
            session.readers = 0;
        }
    }

    /// At the end of a turn, reads what replicas here have applied, and asks leaders for what is not here.
    #[cold]
    pub(crate) fn end_turn(&mut self, cx: &mut Context) {
        let mut wanted = Vec::new();
        let mut all = std::mem::take(&mut self.all);
        self.due_us = u64::MAX;
        all.retain(|number, reader| {
            let end = reader.advance(cx, |place, group, from, bytes_max| {
                self.asked += 1;
                self.questions.insert(self.asked, (*number, place));
                wanted.push((group, self.asked, Command::Recent { from, bytes_max }));
                self.asked
            });
            self.due_us = self.due_us.min(reader.due_us);
            end.is_none_or(|end| {
                reader.finish(cx, end);
                false
            })
        });
        self.all = all;
        for (group, number, command) in wanted {
            let deadline_us = cx.now.monotonic_us + ANSWER_US;
            let ticket = Origin::Changes.ticket(number);
            // The answer must be the leader's: a replica here may not have everything.
            let asked =
                Asked { ticket, follows: false, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
            cx.submit(group, asked, &Request::Command(&command));
        }
    }

    /// Takes a leader's answer to a question.
    pub(crate) fn answered(&mut self, cx: &mut Context, number: u64, result: Outcome, reply: &[u8]) {
        let Some((reader_number, place)) = self.questions.remove(&number) else { return };
        let Some(reader) = self.all.get_mut(&reader_number) else { return };
        let position = &mut reader.positions[place];
        if position.question.is_none_or(|(asked, _)| asked != number) {
            return;
        }
        position.question = None;
        let end = match (result, Reply::first(reply)) {
            (Outcome::Done { .. }, Reply::Array(_)) => {
                position.next_us = cx.now.monotonic_us + ASK_US;
                reader.take(cx, place, reply)
            }
            (_, first) => {
                position.next_us = cx.now.monotonic_us + ASK_AFTER_ERROR_US;
                match (&reader.purpose, first) {
                    (Purpose::Request { .. }, Reply::Error(error)) => {
                        Some(End::Error(String::from_utf8_lossy(error).into_owned()))
                    }
                    _ => None,
                }
            }
        };
        self.due_us = 0;
        if let Some(end) = end
            && let Some(mut reader) = self.all.remove(&reader_number)
        {
            reader.finish(cx, end);
        }
    }
}

impl Reader {
    /// Reads the next changes, as far as there are any and its client has room. `ask` asks a group's leader, given the
    /// index of the group's position, and returns the number of the question.
    fn advance(
        &mut self,
        cx: &mut Context,
        mut ask: impl FnMut(usize, u16, Version, u32) -> u64,
    ) -> Option<End> {
        let now_us = cx.now.monotonic_us;
        let Some(session) = cx.clients.sessions.get(self.client) else { return Some(End::Done) };
        if matches!(self.purpose, Purpose::Stream { .. }) && session.output_bytes() >= OUTPUT_BYTES {
            self.due_us = now_us + ASK_US;
            return None;
        }
        if let Err(error) = self.check_keyspace(cx) {
            return Some(End::Error(error));
        }
        self.due_us = u64::MAX;
        for position in self.positions.iter_mut().filter(|position| position.version.is_none()) {
            position.version = history_of(cx, position.group).map(|(table, _)| table.version_floor());
        }
        self.announce(cx);
        let is_request = matches!(self.purpose, Purpose::Request { .. });
        for place in 0..self.positions.len() {
            let (is_known, bytes_max) = (self.are_all_known(), self.bytes_wanted());
            let position = &mut self.positions[place];
            if is_request && bytes_max == 0 {
                position.is_read = true;
            }
            if is_request && position.is_read {
                continue;
            }
            if let Some((_, asked_us)) = position.question {
                if now_us < asked_us + QUESTION_US {
                    self.due_us = self.due_us.min(asked_us + QUESTION_US);
                    continue;
                }
                position.question = None;
            }
            let own = history_of(cx, position.group);
            let own = own.map(|(table, history)| (table, table.version_floor(), history));
            match (position.version, own) {
                (Some(_), _) if !is_known => {} // Until all versions are known, no message could hold the reader's version.
                (Some(version), Some((table, floor, history))) if history.since(floor) <= version => {
                    position.is_read = true;
                    if floor > version {
                        let mut replies = ReplyBuffer::new();
                        table.recent(version, bytes_max, &mut replies);
                        if let Some(end) = self.take(cx, place, replies.as_bytes()) {
                            return Some(end);
                        }
                        if self.positions[place].version.is_some_and(|version| version < floor) {
                            self.due_us = now_us;
                        }
                    }
                }
                _ if now_us < position.next_us => self.due_us = self.due_us.min(position.next_us),
                (version, _) => {
                    let number = ask(place, position.group, version.unwrap_or(Version::MAX), bytes_max);
                    position.question = Some((number, now_us));
                    self.due_us = self.due_us.min(now_us + QUESTION_US);
                }
            }
        }
        (is_request && self.positions.iter().all(|position| position.is_read)).then_some(End::Done)
    }

    /// Checks that its keyspace still exists, and keeps its changes.
    fn check_keyspace(&self, cx: &Context) -> Result<(), String> {
        let entry = cx.map.keyspaces.get(&self.prefix);
        let groups = self.positions.iter().map(|position| &position.group);
        let entry = entry.filter(|entry| entry.groups.iter().eq(groups));
        let entry = entry.ok_or_else(|| "NOTFOUND the keyspace was dropped".to_string())?;
        check_kept(entry).map_err(|error| format!("ERR {error}"))
    }

    /// Whether its version is known in each group.
    fn are_all_known(&self) -> bool {
        self.positions.iter().all(|position| position.version.is_some())
    }

    fn bytes_wanted(&self) -> u32 {
        match &self.purpose {
            Purpose::Stream { .. } => READ_BYTES,
            Purpose::Request { bytes_left, .. } => {
                READ_BYTES.min(u32::try_from(*bytes_left).unwrap_or(u32::MAX))
            }
        }
    }

    /// Sends the client of a stream the version at which the stream begins, once it is known.
    fn announce(&mut self, cx: &mut Context) {
        let (is_known, version) = (self.are_all_known(), self.version());
        if let Purpose::Stream { is_announced } = &mut self.purpose
            && is_known
            && !std::mem::replace(is_announced, true)
        {
            let mut message = ReplyBuffer::new();
            message.push(Reply::Push(3));
            message.bulk(b"position");
            message.bulk(self.prefix.as_bytes());
            message.bulk(version.as_bytes());
            cx.push(self.client, message.as_bytes());
        }
    }

    /// Takes a group's changes after the reader's version there: the reply to [`kv::Command::Recent`].
    fn take(&mut self, cx: &mut Context, place: usize, reply: &[u8]) -> Option<End> {
        self.announce(cx);
        let mut bytes = Bytes::new(reply);
        let mut next = || Reply::decode(&mut bytes);
        let (Ok(Reply::Array(parts)), Ok(Reply::Integer(since)), Ok(Reply::Integer(until))) =
            (next(), next(), next())
        else {
            return Some(End::Error("ERR a node answers with something else than changes".into()));
        };
        let (since, until) = (since as Version, until as Version);
        let position = &mut self.positions[place];
        let Some(version) = position.version else {
            position.version = Some(until);
            position.next_us = 0;
            return None;
        };
        position.is_read = true;
        if version < since {
            position.version = Some(since);
            let oldest = self.version();
            return Some(End::Error(format!(
                "BEHIND changes behind that version are not kept any more; the oldest version from which one can go on is \
                 {oldest}"
            )));
        }
        if parts > 2 {
            position.next_us = 0; // There may be more.
        }
        for _ in 2..parts {
            let Some((record, time, elements)) = take_record(&mut bytes) else {
                return Some(End::Error("ERR a node answers with something else than changes".into()));
            };
            if self.positions[place].version.is_some_and(|version| version >= record) {
                continue;
            }
            self.positions[place].version = Some(record);
            self.give(cx, time, elements);
        }
        let position = &mut self.positions[place];
        match self.purpose {
            Purpose::Stream { .. } => position.version = position.version.max(Some(until)),
            Purpose::Request { .. } => position.until = until,
        }
        None
    }

    /// Sends one record to its client, or adds it to the reply of the request.
    fn give(&mut self, cx: &mut Context, time: UnixMs, (count, elements): Elements<'_>) {
        let version = self.version();
        match &mut self.purpose {
            Purpose::Stream { .. } => {
                let mut message = ReplyBuffer::new();
                message.push(Reply::Push(3 + count));
                message.bulk(b"change");
                message.bulk(self.prefix.as_bytes());
                message.bulk(version.as_bytes());
                message.extend_encoded(elements);
                cx.push(self.client, message.as_bytes());
            }
            Purpose::Request { bytes_left, has_times, records, replies, .. } => {
                *bytes_left = bytes_left.saturating_sub(elements.len());
                *records += 1;
                replies.array(1 + usize::from(*has_times) + count as usize);
                replies.bulk(version.as_bytes());
                if *has_times {
                    replies.integer(time as i64);
                }
                replies.extend_encoded(elements);
            }
        }
    }

    /// The version up to which it has read in each group, as one word. Groups whose version is not known are left out.
    fn version(&self) -> String {
        let known = self.positions.iter().filter_map(|it| Some(format!("{}-{}", it.group, it.version?)));
        known.collect::<Vec<_>>().join(",")
    }

    fn finish(&mut self, cx: &mut Context, end: End) {
        if let Some(session) = cx.clients.sessions.get_mut(self.client) {
            session.readers = session.readers.saturating_sub(1);
        }
        for position in &mut self.positions {
            position.version = position.version.map(|version| version.max(position.until));
        }
        let version = self.version();
        match (&mut self.purpose, end) {
            (Purpose::Stream { .. }, End::Done) => {}
            (Purpose::Stream { .. }, End::Error(error)) => {
                let mut message = ReplyBuffer::new();
                message.push(Reply::Push(3));
                message.bulk(b"ended");
                message.bulk(self.prefix.as_bytes());
                message.bulk(error.as_bytes());
                cx.push(self.client, message.as_bytes());
            }
            (Purpose::Request { sequence, records, replies, .. }, end) => {
                let mut answer = ReplyBuffer::new();
                match end {
                    End::Error(error) => answer.error(&error),
                    End::Done => {
                        answer.array(2);
                        answer.bulk(version.as_bytes());
                        answer.array(*records as usize);
                        answer.extend_encoded(replies.as_bytes());
                    }
                }
                cx.count_error(answer.as_bytes());
                let (done, reply) =
                    (Outcome::Done { version: 0, offset: 0 }, SessionReply::Encoded(answer.as_bytes()));
                cx.complete_session(self.client, *sequence, 0, done, reply);
            }
        }
    }
}

/// The table of this node's replica of a group and the changes that it keeps, if the replica exists and is not stopped.
pub(super) fn history_of(cx: &Context, group: u16) -> Option<(&Table, &History)> {
    let group = cx.groups.get(group).filter(|group| group.holds.is_none())?;
    let table = group.replica.as_ref()?.table();
    Some((table, table.history()?))
}

fn refusal<T>(why: &str) -> Result<T, Refusal> {
    Err(Refusal::Other(why.into()))
}

/// Checks that a keyspace keeps its changes.
pub(super) fn check_kept(entry: &KeyspaceEntry) -> Result<(), String> {
    let keyspace = &entry.keyspace;
    let name = keyspace.name();
    match keyspace.changes_bytes {
        _ if !keyspace.has_leader() => Err(format!(
            "the changes of keyspace '{name}' have no order: its keys are registers, each on its own"
        )),
        0 => Err(format!(
            "keyspace '{name}' keeps no changes. To have it keep the latest ones: quorate keyspace alter {} \
             changes_bytes=64mb (KEYSPACE SET {:?} changes_bytes=64mb)",
            quoted(&keyspace.prefix),
            keyspace.prefix
        )),
        _ => Ok(()),
    }
}

/// Parses a version: one of each group, or `0` for the beginning. Without one, a reader begins at the groups' current
/// versions.
fn positions(entry: &KeyspaceEntry, from: Option<&[u8]>, repeats: bool) -> Result<Vec<Position>, Refusal> {
    let parsed: Option<Vec<Option<Version>>> = match from {
        None => Some(vec![None; entry.groups.len()]),
        Some(b"0") => Some(vec![Some(0); entry.groups.len()]),
        Some(word) => std::str::from_utf8(word).ok().and_then(|word| {
            let parts: Vec<&str> = word.split(',').collect();
            let version = |(group, part): (&u16, &str)| {
                let (number, version) = part.split_once('-')?;
                (number.parse::<u16>().ok()? == *group).then_some(Some(version.parse().ok()?))
            };
            let are_all = parts.len() == entry.groups.len();
            entry.groups.iter().zip(parts).map(version).collect::<Option<Vec<_>>>().filter(|_| are_all)
        }),
    };
    let Some(versions) = parsed else {
        return refusal(&format!(
            "that is no version of changes of keyspace '{}': a version is 0, or what came with a change",
            entry.keyspace.name()
        ));
    };
    let position = |(group, version): (&u16, Option<Version>)| Position {
        group: *group,
        version: version.map(|version| version.saturating_sub(repeats.into())),
        until: 0,
        question: None,
        next_us: 0,
        is_read: false,
    };
    Ok(entry.groups.iter().zip(versions).map(position).collect())
}

/// Encoded elements, and their number.
pub(super) type Elements<'r> = (u32, &'r [u8]);

/// Takes a record off the reply to [`kv::Command::Recent`]: its version, its time, and its events and effects, still
/// encoded, with the transaction over several groups of which it is a part. The elements are counted.
pub(super) fn take_record<'r>(bytes: &mut Bytes<'r>) -> Option<(Version, UnixMs, Elements<'r>)> {
    let mut next = || Reply::decode(bytes).ok();
    let (Reply::Array(parts @ 4..=5), Reply::Integer(version), Reply::Integer(time)) =
        (next()?, next()?, next()?)
    else {
        return None;
    };
    let (start, count) = (bytes.rest(), parts - 2);
    let mut elements = u64::from(count);
    while elements > 0 {
        elements -= 1;
        if let Reply::Array(count) = Reply::decode(bytes).ok()? {
            elements += u64::from(count);
        }
    }
    Some((version as Version, time as UnixMs, (count, &start[..start.len() - bytes.rest().len()])))
}
