//! Imports one server's keys: its snapshot, then its stream of commands.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use contents::commands;
use contents::keys::{self, Rules, Sink, of_database};
use rdb::file::FileReader;
use rdb::{Fault, Kind, Source};

use super::super::{Refusals, functions};
use super::StartAgain;
use super::handover::Asking;
use super::lane::{Batch, Lane, Refused, Target};
use super::link::{Address, Link, Sends, check_end};
use super::rewrite::{self, Meaning, put_off};
use super::routes::Routes;
use super::spool::{Spool, SpoolReader};
use crate::connection::Reply;

/// Transactions of a snapshot that are in progress at once, in each group.
pub(super) const LANES: usize = 4;

/// Requests, keys of MSET, and bytes of a transaction.
const REQUESTS: usize = 1000;
const BYTES: usize = 256 << 10;

/// The same for a transaction of the server, which is not divided unless it is larger.
const TOGETHER_REQUESTS: usize = 9000;
const TOGETHER_BYTES: usize = 16 << 20;

/// The length of the longest key and value that are stored together with others by one MSET.
const SMALL_BYTES: usize = 1 << 10;

/// How often the positions of groups without commands are written.
const IDLE_EVERY: Duration = Duration::from_secs(3);

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What all workers share.
pub(super) struct Import {
    pub(super) target: Arc<Target>,
    pub(super) routes: Routes,
    pub(super) rules: Rules,
    /// The name of this run.
    pub(super) run: String,
    pub(super) spool_folder: PathBuf,
    pub(super) spool_bytes: u64,
    /// Whether a deadline was put off.
    pub(super) has_deadlines: AtomicBool,
    pub(super) report: Mutex<Report>,
}

/// What was imported, and what was not.
#[derive(Default)]
pub(super) struct Report {
    pub(super) kinds: BTreeMap<Kind, u64>,
    /// Commands about functions, of snapshots and streams.
    pub(super) function_commands: u64,
    pub(super) messages: u64,
    pub(super) refusals: Refusals,
    /// Values that were taken although they are not what the snapshot says.
    pub(super) mended: Refusals,
}

impl Import {
    pub(super) fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, refused: Vec<Refused>) {
        if !refused.is_empty() {
            let mut report = self.report();
            refused.iter().for_each(|(what, error)| report.refusals.add(error, what));
        }
    }

    /// Executes a command about functions, which may be repeated.
    fn function_command(&self, words: Vec<Vec<u8>>, what: &[u8]) -> Result<()> {
        let asked = words.iter().map(Vec::as_slice).collect();
        match Asking::new(&self.target).ask(&[asked])?.pop() {
            Some(Reply::Error(error)) if !functions::is_gone(&words, &error) => self.refuse(&error, what),
            _ => self.report().function_commands += 1,
        }
        Ok(())
    }

    fn refuse(&self, reason: &str, what: &[u8]) {
        self.report().refusals.add(reason, what);
    }

    fn is_over(&self) -> bool {
        self.target.is_over.load(Ordering::Acquire)
    }
}

/// A server that keys are imported from, and its progress.
pub(super) struct Origin {
    pub(super) address: Address,
    /// Its number among those of the import.
    pub(super) number: usize,
    pub(super) keys: AtomicU64,
    pub(super) commands: AtomicU64,
    /// Bytes of the snapshot that were read.
    pub(super) read: AtomicU64,
    pub(super) is_following: AtomicBool,
    /// The name of the server's history, to which the offsets below belong.
    pub(super) history: Mutex<String>,
    /// The position up to which commands have taken effect, and the position at which to stop.
    pub(super) applied: AtomicU64,
    pub(super) stop_at: AtomicU64,
}

impl Origin {
    pub(super) fn new(address: Address, number: usize) -> Origin {
        Origin {
            address,
            number,
            keys: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            read: AtomicU64::new(0),
            is_following: AtomicBool::new(false),
            history: Mutex::default(),
            applied: AtomicU64::new(0),
            stop_at: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether commands come from this history.
    pub(super) fn is_in(&self, history: &str) -> bool {
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) == history
    }

    /// The key that holds the position of a lane.
    pub(super) fn position_key(&self, routes: &Routes, group: usize, lane: usize) -> Result<Vec<u8>> {
        routes.key_in(group, &format!("quorate:import:{}:{lane}:", self.number))
    }
}

/// The position up to which a server's commands have taken effect in a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) history: String,
    pub(super) offset: u64,
    /// The database of the next command.
    pub(super) database: u64,
    pub(super) has_deadlines: bool,
}

impl Position {
    /// Reads the output of [`Position::text`]; `None` if the group has a part of a snapshot or of a transaction.
    pub(super) fn parse(text: &[u8]) -> Option<Position> {
        let words: Vec<&str> = std::str::from_utf8(text).ok()?.split(' ').collect();
        let [_, "at", history, offset, database, deadlines] = words[..] else { return None };
        Some(Position {
            history: history.to_owned(),
            offset: offset.parse().ok()?,
            database: database.parse().ok()?,
            has_deadlines: deadlines == "deadlines",
        })
    }

    fn text(&self, run: &str) -> Vec<u8> {
        let deadlines = if self.has_deadlines { "deadlines" } else { "-" };
        format!("{run} at {} {} {} {deadlines}", self.history, self.offset, self.database).into_bytes()
    }
}

/// Takes the snapshot and follows the stream until [`Origin::stop_at`]. With `found`, the positions of an earlier run in each
/// group, it continues from there.
///
/// # Errors
/// [`StartAgain`] if a whole snapshot must be taken, into an empty cluster; a sentence if that would not help.
pub(super) fn work(import: &Import, origin: &Origin, found: Option<Vec<Position>>) -> Result<()> {
    let mut lanes = Vec::new();
    if let Some(found) = &found {
        for (group, position) in found.iter().enumerate() {
            let key = origin.position_key(&import.routes, group, 0)?;
            let database = import.routes.database_of(group);
            lanes.push(Lane::open(&import.target, database, key, position.text(&import.run))?);
        }
    }
    let mut positions = found.unwrap_or_default();
    loop {
        let from = positions.iter().min_by_key(|position| position.offset).cloned();
        let link = connect(import, origin, from.as_ref())?;
        let spool = link.spool.clone();
        link.history.clone_into(&mut origin.history.lock().unwrap_or_else(PoisonError::into_inner));
        let mut reader = SpoolReader::new(&spool);
        if let Sends::Snapshot(end) = &link.sends {
            if !positions.is_empty() {
                return Err(
                    StartAgain("the source does not have the commands since then any more".into()).into()
                );
            }
            let loaded = load(import, origin, &link, &mut reader, end);
            (lanes, positions) = loaded.map_err(|error| match is_lost(&error) {
                true => StartAgain(format!("{error:#}")).into(),
                false => error,
            })?;
        }
        origin.is_following.store(true, Ordering::Release);
        let database = from.map_or(0, |position| position.database);
        let follower = Follower {
            import,
            origin,
            link: &link,
            lanes: &mut lanes,
            batches: positions.iter().map(|_| Batch::default()).collect(),
            positions: &mut positions,
            database,
            offset: link.offset,
            flushed: link.offset,
            is_divided: true,
            idle_since: Instant::now(),
        };
        match follower.follow(&mut reader) {
            Err(error) if is_lost(&error) => {
                crate::output::say(&format!("{}: {error:#}", origin.address.server));
            }
            outcome => return outcome,
        }
    }
}

/// Whether the error means that the connection to the server was lost.
fn is_lost(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Fault::Read(_))) || error.downcast_ref::<std::io::Error>().is_some()
}

/// Connects, retrying until it succeeds or the import ends.
fn connect(import: &Import, origin: &Origin, from: Option<&Position>) -> Result<Link> {
    const SAY_EVERY: u32 = 20;
    for again in 0.. {
        if import.is_over() {
            break;
        }
        let spool = Spool::new(&import.spool_folder, import.spool_bytes)?;
        let position = from.map(|position| (&position.history[..], position.offset));
        match Link::open(&origin.address, position, spool) {
            Ok(link) => return Ok(link),
            Err(error) if again % SAY_EVERY == 0 => {
                crate::output::say(&format!("{error:#}; trying again"));
            }
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    bail!("the import was ended")
}

/// A snapshot's keys on their way to one group.
struct Loading {
    lanes: Vec<Lane>,
    next: usize,
    /// The number of transactions sent.
    sent: u64,
    batch: Batch,
    /// Keys and values of the MSET that is being built.
    pairs: Vec<u8>,
    pairs_count: usize,
}

struct Loader<'i> {
    import: &'i Import,
    origin: &'i Origin,
    /// The database that keys go to.
    database: u8,
    groups: Vec<Loading>,
    kinds: BTreeMap<Kind, u64>,
}

fn load(
    import: &Import,
    origin: &Origin,
    link: &Link,
    reader: &mut SpoolReader<'_>,
    end: &super::link::SnapshotEnd,
) -> Result<(Vec<Lane>, Vec<Position>)> {
    let mut groups = Vec::new();
    for group in 0..import.routes.groups {
        let mut lanes = Vec::new();
        for lane in 0..LANES {
            let key = origin.position_key(&import.routes, group, lane)?;
            let database = import.routes.database_of(group);
            lanes.push(Lane::open(&import.target, database, key, load_text(&import.run, 0))?);
        }
        groups.push(Loading {
            lanes,
            next: 0,
            sent: 0,
            batch: Batch::default(),
            pairs: Vec::new(),
            pairs_count: 0,
        });
    }
    let mut loader = Loader { import, origin, database: 0, groups, kinds: BTreeMap::new() };
    let mut file = FileReader::new(&mut *reader)?;
    keys::read(&mut file, &import.rules, &mut loader)?;
    let bytes = file.source().at();
    check_end(end, bytes, reader)?;
    loader.end(link)
}

fn load_text(run: &str, number: u64) -> Vec<u8> {
    format!("{run} load {number}").into_bytes()
}

impl Loader<'_> {
    fn loading(&mut self, key: &[u8]) -> Option<usize> {
        let group = self.import.routes.group_of(self.database, key);
        if group.is_none() {
            self.import.refuse("its keyspace has no transactions (abd or blocking)", key);
        }
        group
    }

    fn is_full(&self, group: usize) -> bool {
        let loading = &self.groups[group];
        loading.pairs_count + loading.batch.len() >= REQUESTS
            || loading.pairs.len() + loading.batch.bytes() >= BYTES
    }

    /// Sends the batch, in a given lane or in the next one.
    fn send(&mut self, group: usize, lane: Option<usize>) -> Result<()> {
        let loading = &mut self.groups[group];
        let mut batch = std::mem::take(&mut loading.batch);
        if loading.pairs_count > 0 {
            let mut request = format!("*{}\r\n$4\r\nMSET\r\n", 2 * loading.pairs_count + 1).into_bytes();
            request.append(&mut loading.pairs);
            batch.add_encoded(&request);
            loading.pairs_count = 0;
        }
        if batch.len() == 0 {
            return Ok(());
        }
        loading.sent += 1;
        let text = load_text(&self.import.run, loading.sent);
        let lane = lane.unwrap_or_else(|| {
            loading.next = (loading.next + 1) % LANES;
            loading.next
        });
        let refused = loading.lanes[lane].submit(batch, text)?;
        self.import.note(refused);
        Ok(())
    }

    fn add(&mut self, key: &[u8], kind: Kind, words: &[&[u8]]) -> Result<()> {
        let Some(group) = self.loading(key) else { return Ok(()) };
        self.count(kind);
        self.groups[group].batch.add(words);
        if self.is_full(group) { self.send(group, None) } else { Ok(()) }
    }

    fn count(&mut self, kind: Kind) {
        *self.kinds.entry(kind).or_default() += 1;
        self.origin.keys.fetch_add(1, Ordering::Relaxed);
    }

    fn deadline(&mut self, deadline_ms: Option<u64>) -> Option<String> {
        let later = put_off(deadline_ms?).to_string();
        self.import.has_deadlines.store(true, Ordering::Release);
        Some(later)
    }

    /// Waits for all transactions, and writes the position at which the commands begin.
    fn end(mut self, link: &Link) -> Result<(Vec<Lane>, Vec<Position>)> {
        let position = Position {
            history: link.history.clone(),
            offset: link.offset,
            database: 0,
            has_deadlines: self.import.has_deadlines.load(Ordering::Acquire),
        };
        let (mut lanes, mut positions) = (Vec::new(), Vec::new());
        for group in 0..self.groups.len() {
            self.send(group, None)?;
        }
        for (group, mut loading) in std::mem::take(&mut self.groups).into_iter().enumerate() {
            for lane in &mut loading.lanes {
                self.import.note(lane.settle()?);
            }
            let mut batch = Batch::default();
            for lane in 1..LANES {
                batch.add(&[b"DEL", &self.origin.position_key(&self.import.routes, group, lane)?]);
            }
            let mut first = loading.lanes.swap_remove(0);
            first.submit(batch, position.text(&self.import.run))?;
            first.settle()?;
            lanes.push(first);
            positions.push(position.clone());
        }
        let mut report = self.import.report();
        self.kinds.iter().for_each(|(kind, count)| *report.kinds.entry(*kind).or_default() += count);
        Ok((lanes, positions))
    }
}

impl Sink for Loader<'_> {
    fn select(&mut self, database: u8) -> Result<()> {
        self.database = database;
        Ok(())
    }

    fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, text: &[u8]) -> Result<()> {
        use std::io::Write as _;
        let deadline = self.deadline(deadline_ms);
        if let Some(deadline) = deadline {
            return self.add(key, Kind::String, &[b"SET", key, text, b"PXAT", deadline.as_bytes()]);
        }
        if key.len() > SMALL_BYTES || text.len() > SMALL_BYTES {
            return self.add(key, Kind::String, &[b"SET", key, text]);
        }
        let Some(group) = self.loading(key) else { return Ok(()) };
        self.count(Kind::String);
        let loading = &mut self.groups[group];
        for word in [key, text] {
            write!(loading.pairs, "${}\r\n", word.len())?;
            loading.pairs.extend_from_slice(word);
            loading.pairs.extend_from_slice(b"\r\n");
        }
        loading.pairs_count += 1;
        if self.is_full(group) { self.send(group, None) } else { Ok(()) }
    }

    fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind, payload: &[u8]) -> Result<()> {
        let deadline = self.deadline(deadline_ms).unwrap_or_else(|| "0".into());
        self.add(key, kind, &[b"RESTORE", key, deadline.as_bytes(), payload, b"ABSTTL"])
    }

    fn begin_pieces(&mut self, key: &[u8]) -> Result<bool> {
        let Some(group) = self.loading(key) else { return Ok(false) };
        self.send(group, None)?;
        Ok(true)
    }

    fn piece(&mut self, key: &[u8], request: &[u8]) -> Result<()> {
        let Some(group) = self.loading(key) else { return Ok(()) };
        if request.len() > self.import.rules.string_bytes_max {
            self.import.refuse("elements that are longer than the cluster allows", key);
            return Ok(());
        }
        self.groups[group].batch.add_encoded(request);
        // Pieces must stay in order.
        if self.is_full(group) { self.send(group, Some(0)) } else { Ok(()) }
    }

    fn end_pieces(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind) -> Result<()> {
        let Some(group) = self.loading(key) else { return Ok(()) };
        if let Some(deadline) = self.deadline(deadline_ms) {
            self.groups[group].batch.add(&[b"PEXPIREAT", key, deadline.as_bytes()]);
        }
        self.count(kind);
        self.send(group, Some(0))
    }

    fn abandon_pieces(&mut self, key: &[u8], reason: &str) -> Result<()> {
        let Some(group) = self.loading(key) else { return Ok(()) };
        self.groups[group].batch.add(&[b"DEL", key]);
        self.import.refuse(reason, key);
        self.send(group, Some(0))
    }

    fn mended(&mut self, reason: &str, key: &[u8]) -> Result<()> {
        self.import.report().mended.add(reason, key);
        Ok(())
    }

    fn library(&mut self, text: &[u8]) -> Result<()> {
        self.import.function_command(functions::load(text), functions::name(text))
    }

    fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()> {
        self.import.refuse(reason, what);
        Ok(())
    }

    fn expired(&mut self) {}

    fn reached(&mut self, bytes: u64) -> Result<()> {
        self.origin.read.store(bytes, Ordering::Relaxed);
        if self.import.is_over() { bail!("the import was ended") } else { Ok(()) }
    }
}

/// Executes a server's commands.
struct Follower<'w> {
    import: &'w Import,
    origin: &'w Origin,
    link: &'w Link,
    lanes: &'w mut Vec<Lane>,
    positions: &'w mut Vec<Position>,
    /// The batch that is being built, for each group.
    batches: Vec<Batch>,
    database: u64,
    /// The offset after the last command, and the offset when transactions were last sent.
    offset: u64,
    flushed: u64,
    /// Whether the next command begins a new transaction of the server.
    is_divided: bool,
    idle_since: Instant,
}

impl Follower<'_> {
    fn follow(mut self, reader: &mut SpoolReader<'_>) -> Result<()> {
        let (spool, begun) = (&self.link.spool, reader.taken);
        let mut source = Source::new(reader, 0);
        self.flush()?;
        self.settle()?;
        loop {
            if self.is_divided && self.offset >= self.origin.stop_at.load(Ordering::Acquire) {
                self.idle_since -= IDLE_EVERY;
                self.flush()?;
                return self.settle();
            }
            if self.import.is_over() {
                bail!("the import was ended");
            }
            let used = begun + source.at();
            if spool.pushed() <= used {
                self.flush()?;
                self.settle()?;
                spool.wait(used, LOOK_EVERY);
                if spool.pushed() <= used && !spool.has_ended() {
                    continue;
                }
            }
            let words = match commands::item(&mut source)? {
                commands::Item::Command(words) => words,
                commands::Item::Remark(_) => Vec::new(),
            };
            self.offset = self.link.offset + source.at();
            self.take(words)?;
            let requests: usize = self.batches.iter().map(Batch::len).sum();
            let bytes: usize = self.batches.iter().map(Batch::bytes).sum();
            let is_full = requests >= REQUESTS || bytes >= BYTES;
            if is_full && self.is_divided || requests >= TOGETHER_REQUESTS || bytes >= TOGETHER_BYTES {
                self.flush()?;
            }
        }
    }

    /// Sends the batches, after those sent before have taken effect.
    fn flush(&mut self) -> Result<()> {
        let flushed = self.flushed;
        self.settle_to(flushed)?;
        let is_late = self.idle_since.elapsed() >= IDLE_EVERY;
        if is_late {
            self.idle_since = Instant::now();
        }
        for (group, lane) in self.lanes.iter_mut().enumerate() {
            let position = &mut self.positions[group];
            let batch = std::mem::take(&mut self.batches[group]);
            // The offset of a skipped command may be after the position.
            if batch.len() == 0 && !(is_late && position.offset < self.offset) {
                continue;
            }
            self.origin.commands.fetch_add(batch.len() as u64, Ordering::Relaxed);
            *position = Position {
                history: self.link.history.clone(),
                offset: self.offset,
                database: self.database,
                has_deadlines: position.has_deadlines || self.import.has_deadlines.load(Ordering::Acquire),
            };
            let refused = lane.submit(batch, position.text(&self.import.run))?;
            self.import.note(refused);
        }
        self.flushed = self.offset;
        Ok(())
    }

    /// Waits until everything sent has taken effect.
    fn settle(&mut self) -> Result<()> {
        let flushed = self.flushed;
        self.settle_to(flushed)
    }

    fn settle_to(&mut self, offset: u64) -> Result<()> {
        for lane in self.lanes.iter_mut() {
            self.import.note(lane.settle()?);
        }
        self.link.applied(offset);
        self.origin.applied.store(offset, Ordering::Release);
        Ok(())
    }

    fn take(&mut self, words: Vec<Vec<u8>>) -> Result<()> {
        match rewrite::meaning(&words) {
            Meaning::Nothing => {}
            Meaning::Select(database) => self.database = database,
            Meaning::Multi => self.is_divided = false,
            Meaning::Exec => self.is_divided = true,
            Meaning::HowFar => {
                self.flush()?;
                self.settle()?;
                self.link.acknowledge();
            }
            Meaning::Message => self.import.report().messages += 1,
            Meaning::Functions => {
                // After everything before it.
                self.flush()?;
                self.settle()?;
                self.import.function_command(functions::repeatable(&words), &shown(&words))?;
            }
            Meaning::Databases => self.databases(words)?,
            Meaning::Keys => self.keys(words),
        }
        Ok(())
    }

    fn databases(&mut self, mut words: Vec<Vec<u8>>) -> Result<()> {
        let number = |word: Option<&Vec<u8>>| std::str::from_utf8(word?).ok()?.parse().ok();
        let has = |number: u64| self.import.rules.destinations.contains_key(&number);
        let name = words[0].to_ascii_uppercase();
        let is_concerned = match &name[..] {
            b"FLUSHDB" => has(self.database),
            b"SWAPDB" => [1, 2].into_iter().any(|at| number(words.get(at)).is_none_or(has)),
            b"MOVE" if number(words.get(2)).is_some_and(|to| !has(to)) => {
                if has(self.database) {
                    words.truncate(2);
                    words[0] = b"DEL".to_vec();
                    self.keys(words);
                }
                false
            }
            b"COPY" => {
                let option = (3..words.len()).find(|at| words[*at].eq_ignore_ascii_case(b"DB")).unwrap_or(3);
                let to = number(words.get(option + 1)).unwrap_or(self.database);
                if to == self.database {
                    words.drain(option..(option + 2).min(words.len()));
                    self.keys(words);
                    return Ok(());
                }
                has(to)
            }
            _ => true,
        };
        if !is_concerned {
            return Ok(());
        }
        Err(StartAgain(format!("{} changed whole databases", String::from_utf8_lossy(&name))).into())
    }

    fn keys(&mut self, mut words: Vec<Vec<u8>>) {
        let import = self.import;
        let Some(destination) = import.rules.destinations.get(&self.database) else {
            return import.refuse(&format!("commands {}", of_database(self.database)), &shown(&words));
        };
        // The cluster would close the connection.
        if words.iter().any(|word| word.len() > import.rules.string_bytes_max) {
            return import.refuse("a value that is longer than the cluster allows", &shown(&words));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if rewrite::deadlines(&mut words, now.as_millis() as u64) {
            import.has_deadlines.store(true, Ordering::Release);
        }
        if destination.prefix.is_empty() && import.routes.is_one_group() {
            return self.add(0, &words);
        }
        let places = match rewrite::key_positions(&words) {
            Ok(places) => places,
            Err(error) => {
                return import.refuse(&format!("a command without known keys: {error}"), &shown(&words));
            }
        };
        let mut groups = Vec::new();
        for place in &places {
            words[*place].splice(0..0, destination.prefix.iter().copied());
            match import.routes.group_of(destination.database, &words[*place]) {
                Some(group) => groups.push(group),
                None => {
                    let reason = "a command on a keyspace without transactions (abd or blocking)";
                    return import.refuse(reason, &shown(&words));
                }
            }
        }
        let Some(first) = groups.first() else {
            return import.refuse("a command without known keys", &shown(&words));
        };
        if groups.iter().all(|group| group == first) {
            return self.add(*first, &words);
        }
        let Some(width) = rewrite::is_separable(&words[0]) else {
            return import.refuse("keys of several keyspaces or shards in one command", &shown(&words));
        };
        for (place, group) in places.iter().zip(groups) {
            let part = [&words[..1], &words[*place..place + width]].concat();
            self.add(group, &part);
        }
    }

    fn add(&mut self, group: usize, words: &[Vec<u8>]) {
        // It took effect before the connection, or this program, was interrupted.
        if self.offset <= self.positions[group].offset {
            return;
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.batches[group].add(&words);
    }
}

/// The first two words of a command, to name it.
fn shown(words: &[Vec<u8>]) -> Vec<u8> {
    words.iter().take(2).map(Vec::as_slice).collect::<Vec<_>>().join(&b' ')
}

impl fmt::Display for StartAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartAgain {}
