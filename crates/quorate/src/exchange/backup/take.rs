//! Makes a backup: reads each shard of each keyspace of a running cluster, and writes files that are then read back.
//!
//! A shard's leader sends a copy of it at one version (`KEYSPACE COPY`). The next backup adds the changes after that
//! version (`KEYSPACE CHANGES`), if the keyspace keeps its changes for long enough; otherwise it makes a new copy. If no
//! such copy is possible, because keys are registers or values are not in memory, keys are read one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cluster::control::{ClusterMap, KeyspaceEntry};
use contents::changes::{self, Record, Versions, word};
use node::Report;
use rdb::file::{FileReader, Item};
use rdb::write::put_text;
use rdb::{Fault, payload, value};
use server::status::words;

use super::super::source::{Source, alike, unfit};
use super::super::{Progress, select};
use super::backups::Backups;
use super::choose;
use super::files::{Sums, Writer};
use super::manifest::{ChangeFile, Cluster, KeyFile, Keyspace, Manifest, Shard, format_for, named};
use super::moment;
use super::together::{Begun, MARK_BYTES, Together, is_passing};
use crate::connection::{ANSWER_WITHIN, Client, Connect, Reply, Role, put_request};
use crate::output::say;

/// How long a backup waits for shards without a leader, all in all, and for a node that lags.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes of changes that are requested at a time.
const CHANGES_BYTES: &[u8] = b"1048576";

/// Keys that a step of a scan visits.
const STEP: &[u8] = b"200";

/// If changes take more bytes than this, and more than the copy that they follow, a new copy is worth its time.
const CHANGES_BYTES_ANYWAY: u64 = 64 << 20;

/// A summary of a backup.
#[derive(Default)]
pub(super) struct Made {
    pub(super) name: String,
    pub(super) copied: usize,
    pub(super) continued: usize,
    pub(super) keys: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The keyspaces that could not be read, by prefix, and why.
    pub(super) missing: BTreeMap<String, String>,
    /// The keyspaces that are as the last backup has them, by prefix, and what that shows.
    pub(super) kept: BTreeMap<String, String>,
    /// The keyspaces that are not of the moment that the others show, by prefix, and why; and for how long commands may have waited
    /// for that moment, if there is one.
    pub(super) apart: BTreeMap<String, String>,
    pub(super) held: Option<Duration>,
    /// The moment that the backup shows of each keyspace, by prefix; 0: it could not be read, and is not in it.
    pub(super) saved: BTreeMap<String, u64>,
}

/// What to back up, and how.
pub(super) struct Wanted<'w> {
    /// The prefixes of the keyspaces; none: all.
    pub(super) keyspaces: &'w [String],
    /// Copy again instead of continuing the last backup.
    pub(super) is_full: bool,
    /// Make no backup if a keyspace cannot be read.
    pub(super) fails_on_missing: bool,
}

/// Makes a backup, which continues the last one where that is possible. A keyspace that cannot be read, or is not wanted, stays
/// as the last backup has it, so that the newest backup always needs the newest files of each keyspace.
///
/// # Errors
/// A sentence that says why there is no backup. The place is unchanged, except for files that the next backup
/// removes.
pub(super) fn take(
    backups: &Backups,
    connect: &Connect,
    last: Option<Manifest>,
    wanted: &Wanted<'_>,
) -> Result<Made> {
    let begun_ms = moment::now_ms();
    let mut source = Source::find(connect, Role::Changes)?;
    let entries = source.keyspaces(wanted.keyspaces)?;
    let cluster = Cluster { name: source.report()?.health.cluster, storages: storages(&source.map) };
    let last = last.filter(|last| !last.cluster.storages.is_disjoint(&cluster.storages));
    let before = last.as_ref().filter(|_| !wanted.is_full);
    let made = Made { name: moment::name(begun_ms), ..Made::default() };
    let patience = Patience { left: PATIENCE, is_told: false };
    let together = Together::begin(&mut source, &entries);
    let mut taking = Taking { backups, progress: Progress::begin(), made, patience, together };
    let mut keyspaces = Vec::new();
    for (prefix, entry) in &entries {
        let (name, before) = (entry.keyspace.name(), before.and_then(|before| before.keyspace(prefix)));
        match taking.keyspace(&mut source, (prefix.as_str(), entry), before) {
            Ok(keyspace) => keyspaces.push(keyspace),
            Err(error) if wanted.fails_on_missing => return Err(error.context(format!("keyspace '{name}'"))),
            Err(error) => {
                taking.made.missing.insert(prefix.clone(), format!("{error:#}"));
                taking.together.drop_copies(&entry.groups);
                taking.together.apart.remove(prefix);
                source.connect_again()?;
            }
        }
    }
    if keyspaces.is_empty() {
        let name = |prefix: &str| if prefix.is_empty() { "default".to_owned() } else { prefix.to_owned() };
        let missing: Vec<(String, &String)> =
            taking.made.missing.iter().map(|(prefix, why)| (name(prefix), why)).collect();
        let missing = missing.iter().map(|(name, why)| (name.as_str(), why.as_str()));
        bail!("no keyspace can be read: {}", alike(missing).join("; "));
    }
    let is_in_map = |it: &&Keyspace| source.map.keyspaces.contains_key(&it.prefix);
    let kept = last.iter().flat_map(|last| &last.keyspaces).filter(is_in_map);
    let kept: Vec<Keyspace> =
        kept.filter(|it| !keyspaces.iter().any(|new| new.prefix == it.prefix)).cloned().collect();
    taking.made.kept = kept.iter().map(|it| (it.prefix.clone(), choose::reach(it))).collect();
    keyspaces.extend(kept);
    keyspaces.sort_by_cached_key(|it| words::natural(&it.prefix));
    taking.made.saved = taking.made.missing.keys().map(|prefix| (prefix.clone(), 0)).collect();
    taking.made.saved.extend(keyspaces.iter().map(|it| (it.prefix.clone(), choose::reached_ms(it))));
    let users = source.texts(&[b"ACL", b"LIST"]).context("the users cannot be read")?;
    let functions = source.text(&[b"FUNCTION", b"DUMP"]).context("the functions cannot be read")?;
    let functions = functions.iter().map(|byte| format!("{byte:02x}")).collect();
    // What could not be read the last time, and is not wanted now, is still in no backup.
    let mut missing = taking.made.missing.clone();
    for (prefix, why) in last.iter().flat_map(|last| &last.missing) {
        let is_saved = keyspaces.iter().any(|it| it.prefix == *prefix);
        if !is_saved && source.map.keyspaces.contains_key(prefix) {
            missing.entry(prefix.clone()).or_insert_with(|| why.clone());
        }
    }
    let Together { at_ms, held, apart, .. } = taking.together;
    (taking.made.held, taking.made.apart) = (at_ms.map(|_| held), apart.clone());
    let mut manifest = Manifest {
        format: format_for(&missing, at_ms.is_some() || !apart.is_empty()),
        program: node::VERSION.to_owned(),
        name: taking.made.name.clone(),
        cluster,
        begun_ms,
        ended_ms: moment::now_ms(),
        keyspaces,
        users,
        functions,
        missing,
        together_ms: at_ms,
        apart,
        checksum: String::new(),
    };
    backups.add(&mut manifest)?;
    taking.progress.end();
    Ok(taking.made)
}

/// What distinguishes a cluster from any other one, even from one with a copy of its keys: the number of each node's
/// storage.
pub(super) fn storages(map: &ClusterMap) -> BTreeSet<String> {
    let started = map.nodes.values().map(|node| node.start.identity).filter(|identity| *identity != 0);
    started.map(|identity| format!("{identity:016x}")).collect()
}

/// Why a shard cannot be copied.
enum NoCopy {
    /// Its keys must be read one by one.
    Walk(String),
    Error(anyhow::Error),
}

impl Source {
    /// The cluster's time, in milliseconds since the Unix epoch.
    fn time_ms(&mut self) -> Result<u64> {
        let parts = self.texts(&[b"TIME"])?;
        let [seconds, micros] = parts.as_slice() else { bail!("TIME answers with no time") };
        Ok(seconds.parse::<u64>()? * 1000 + micros.parse::<u64>()? / 1000)
    }

    /// A connection on which the leader of a shard sends a copy, and the copy's header. Asks all nodes until one leads, or
    /// `patience` is used up.
    fn copy(
        &mut self,
        prefix: &str,
        shard: usize,
        patience: &mut Patience,
    ) -> Result<(Client, Begun), NoCopy> {
        let mut last = anyhow!("no node was asked");
        loop {
            let begun = Instant::now();
            for address in self.cluster.addresses.clone() {
                let asked = self.cluster.connect(&address, ANSWER_WITHIN).and_then(|mut client| {
                    let words = [&b"KEYSPACE"[..], b"COPY", prefix.as_bytes(), shard.to_string().as_bytes()]
                        .map(<[u8]>::to_vec);
                    let reply = client.ask(&words.each_ref().map(Vec::as_slice))?;
                    Ok((client, reply))
                });
                let (client, reply) = match asked {
                    Ok(asked) => asked,
                    Err(error) => {
                        self.forget_if_silent(&address, &error);
                        last = error;
                        continue;
                    }
                };
                match reply {
                    Reply::Status(text) => {
                        let begun = Begun::parse(&text).ok_or_else(|| anyhow!("a copy begins with {text}"));
                        return Ok((client, begun.map_err(NoCopy::Error)?));
                    }
                    Reply::Error(error) if error.starts_with("NOCOPY ") => {
                        return Err(NoCopy::Walk(error["NOCOPY ".len()..].to_owned()));
                    }
                    Reply::Error(error) if is_passing(&error) => last = anyhow!("{address}: {error}"),
                    reply => return Err(NoCopy::Error(unfit("KEYSPACE COPY", &reply).context(address))),
                }
            }
            if !patience.wait(|| format!("{}: no node leads it yet", named(prefix))) {
                return Err(NoCopy::Error(last.context("no node leads it")));
            }
            patience.took(begun);
        }
    }

    /// A node that accepts connections and does not answer is not asked again: each time would cost a minute.
    pub(super) fn forget_if_silent(&mut self, address: &str, error: &anyhow::Error) {
        let is_silent = |error: &std::io::Error| matches!(error.kind(), TimedOut | WouldBlock);
        if error.chain().filter_map(|it| it.downcast_ref()).any(is_silent) && self.cluster.addresses.len() > 1
        {
            self.cluster.addresses.retain(|other| other != address);
        }
    }
}

/// How long a backup still waits for what does not answer, all in all.
struct Patience {
    left: Duration,
    is_told: bool,
}

impl Patience {
    /// Waits a moment, and says so the first time. Returns false when there is no time left.
    fn wait(&mut self, what: impl Fn() -> String) -> bool {
        if self.left.is_zero() {
            return false;
        }
        if !std::mem::replace(&mut self.is_told, true) {
            let seconds = self.left.as_secs();
            let _ = writeln!(std::io::stderr(), "{}; waiting up to {seconds} s", what());
        }
        std::thread::sleep(PAUSE);
        true
    }

    /// Counts the time since then.
    fn took(&mut self, since: Instant) {
        self.left = self.left.saturating_sub(since.elapsed());
    }
}

/// A backup in progress.
struct Taking<'b> {
    backups: &'b Backups,
    progress: Progress,
    made: Made,
    patience: Patience,
    together: Together,
}

impl Taking<'_> {
    fn keyspace(
        &mut self,
        source: &mut Source,
        (prefix, entry): (&str, &KeyspaceEntry),
        before: Option<&Keyspace>,
    ) -> Result<Keyspace> {
        let words = source.texts(&[b"KEYSPACE", b"GET", prefix.as_bytes()])?;
        let pairs = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        let settings: BTreeMap<String, String> = pairs.filter(|(name, _)| name != "prefix").collect();
        let mut keyspace = Keyspace { prefix: prefix.to_owned(), settings, shards: Vec::new() };
        if let Some(before) = before.filter(|before| self.may_continue(&keyspace, before, entry)) {
            let goals = self.together.versions(&entry.groups);
            match self.changes(source, prefix, &before.shards, goals) {
                Ok(shards) => {
                    self.made.continued += shards.len();
                    self.together.drop_copies(&entry.groups);
                    return Ok(Keyspace { shards, ..keyspace });
                }
                Err(Broken::Behind) => say(&format!(
                    "keyspace '{}': what has changed since the last backup is not kept any more, so it is copied as a whole: \
                     raise changes_bytes, or make backups more often",
                    keyspace.name()
                )),
                Err(Broken::Other(error)) => return Err(error),
            }
        }
        for (number, group) in entry.groups.iter().enumerate() {
            if let Some((client, begun)) = self.together.take(*group) {
                match self.copied(client, &begun) {
                    Ok(shard) => {
                        keyspace.shards.push(shard);
                        continue;
                    }
                    Err(error) => {
                        let why = format!("the copy of shard {number} broke off: {error:#}");
                        self.together.set_apart(prefix, &entry.groups, why);
                    }
                }
            }
            match source.copy(prefix, number, &mut self.patience) {
                Ok((client, begun)) => {
                    ensure!(begun.group == *group, "the keyspace was created again during the backup");
                    keyspace.shards.push(self.copied(client, &begun)?);
                }
                Err(NoCopy::Walk(why)) => {
                    say(&format!("keyspace '{}': keys are read one by one: {why}", keyspace.name()));
                    for shard in std::mem::take(&mut keyspace.shards) {
                        self.made.keys -= shard.keys.types.values().sum::<u64>();
                        self.made.bytes -= shard.keys.sums.bytes;
                        self.backups.remove(&shard.keys.path)?;
                    }
                    keyspace.shards = vec![self.walked(source, prefix)?];
                    break;
                }
                Err(NoCopy::Error(error)) => return Err(error.context(format!("shard {number}"))),
            }
        }
        self.made.copied += keyspace.shards.len();
        Ok(keyspace)
    }

    /// Whether changes can be added to an earlier backup's files.
    fn may_continue(&self, keyspace: &Keyspace, before: &Keyspace, entry: &KeyspaceEntry) -> bool {
        let are_the_same = before.shards.iter().map(|shard| shard.group).eq(entry.groups.iter().copied());
        let bytes: u64 = before.shards.iter().map(|shard| shard.keys.sums.bytes).sum();
        let changed = before.shards.iter().flat_map(|shard| &shard.changes).map(|changes| changes.sums.bytes);
        let are_few = changed.sum::<u64>() <= bytes.max(CHANGES_BYTES_ANYWAY);
        keyspace.keeps_changes() && are_the_same && are_few
    }

    fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.made.name)
    }

    fn changes_of(&self, group: u16) -> String {
        self.path(&format!("{group}.changes"))
    }

    /// Ends a file of keys, and reads it back.
    fn end_keys(&mut self, path: String, writer: Writer) -> Result<KeyFile> {
        let sums = writer.end()?;
        let read = check_keys(self.backups, &path, &sums);
        let types = read.with_context(|| format!("{}, read back", self.backups.name_of(&path)))?;
        self.made.keys += types.values().sum::<u64>();
        self.made.bytes += sums.bytes;
        Ok(KeyFile { path, sums, types })
    }

    /// Writes the copy that a leader sends.
    fn copied(&mut self, client: Client, begun: &Begun) -> Result<Shard> {
        let path = self.path(&format!("{}.rdb", begun.group));
        let mut writer = self.backups.create(&path)?;
        let (mut held, mut stream) = client.into_parts();
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        // Nothing follows the mark, so the mark is at the end of the received bytes.
        while !held.ends_with(&begun.mark) {
            let count = stream.read(&mut buffer).context("the connection is lost")?;
            ensure!(count > 0, "the node has ended the connection: its log says why");
            held.extend_from_slice(&buffer[..count]);
            let sure = held.len().saturating_sub(MARK_BYTES);
            writer.write_all(&held[..sure])?;
            held.drain(..sure);
            bytes += sure as u64;
            self.progress.show_bytes(self.made.bytes + bytes, None);
        }
        writer.write_all(&held[..held.len() - MARK_BYTES])?;
        let keys = self.end_keys(path, writer)?;
        let Begun { group, version, time_ms, .. } = *begun;
        Ok(Shard { group, version, time_ms, keys, changes: Vec::new() })
    }

    /// Reads the keys of a keyspace one by one.
    fn walked(&mut self, source: &mut Source, prefix: &str) -> Result<Shard> {
        let shard = self.walked_through(source, prefix)?;
        select(&mut source.client, 0)?;
        Ok(shard)
    }

    fn walked_through(&mut self, source: &mut Source, prefix: &str) -> Result<Shard> {
        let entry = &source.map.keyspaces[prefix];
        let has_registers = entry.keyspace.replication.has_registers();
        // Group numbers begin at 1, so no other file has this name.
        let path = self.path(&format!("0-{}.rdb", entry.groups.first().copied().unwrap_or_default()));
        let mut walk = source.walk(prefix)?;
        let mut writer = self.backups.create(&path)?;
        let mut bytes = b"REDIS0012\xfe\x00".to_vec();
        while let Some(mut keys) = walk.step(&mut source.client, STEP)? {
            for _ in 0..10 {
                let read = read_keys(&mut source.client, &keys, has_registers)?;
                let mut again = Vec::new();
                for (key, read) in keys.into_iter().zip(read) {
                    match read {
                        Some(Read::Value(deadline, tag, value)) => {
                            if let Some(deadline) = deadline {
                                bytes.push(0xfc);
                                bytes.extend_from_slice(&deadline.to_le_bytes());
                            }
                            bytes.push(tag);
                            put_text(&key, &mut bytes);
                            bytes.extend_from_slice(&value);
                        }
                        Some(Read::Gone) => {}
                        None => again.push(key),
                    }
                }
                keys = again;
                if keys.is_empty() {
                    break;
                }
            }
            ensure!(
                keys.is_empty(),
                "the deadline of the key \"{}\" changes all the time, so it cannot be read together with its value",
                keys[0].escape_ascii()
            );
            writer.write_all(&bytes)?;
            self.made.bytes += bytes.len() as u64;
            self.progress.show_bytes(self.made.bytes, None);
            bytes.clear();
        }
        // The end of the file, without a checksum.
        writer.write_all(&[0xff, 0, 0, 0, 0, 0, 0, 0, 0])?;
        let keys = self.end_keys(path, writer)?;
        self.made.bytes -= keys.sums.bytes;
        Ok(Shard { group: 0, version: 0, time_ms: source.time_ms()?, keys, changes: Vec::new() })
    }
}

/// The result of reading a key.
enum Read {
    Gone,
    /// Its deadline, the number of its type, and its value in the format of Redis's files.
    Value(Option<u64>, u8, Vec<u8>),
}

/// Reads values with their deadlines, which are read before and after the value. `None`: the two deadlines differ.
fn read_keys(client: &mut Client, keys: &[Vec<u8>], has_registers: bool) -> Result<Vec<Option<Read>>> {
    let mut requests = Vec::new();
    for key in keys {
        put_request(&[b"PEXPIRETIME", key], &mut requests);
        put_request(&[if has_registers { &b"GET"[..] } else { b"DUMP" }, key], &mut requests);
        put_request(&[b"PEXPIRETIME", key], &mut requests);
    }
    client.send(&requests)?;
    let mut read = Vec::new();
    for key in keys {
        let replies = (client.reply()?, client.reply()?, client.reply()?);
        read.push(match replies {
            (before, _, after) if before != after => None,
            (_, Reply::Null, _) => Some(Read::Gone),
            (Reply::Integer(deadline), Reply::Bulk(bytes), _) => {
                let deadline = u64::try_from(deadline).ok().filter(|deadline| *deadline > 0);
                Some(match has_registers {
                    true => {
                        let mut value = Vec::new();
                        put_text(&bytes, &mut value);
                        Read::Value(deadline, rdb::write::tag::STRING, value)
                    }
                    false => {
                        let (tag, value) = payload::content(&bytes).context("DUMP returned no payload")?;
                        Read::Value(deadline, tag, value.to_vec())
                    }
                })
            }
            (Reply::Error(error), ..) | (_, Reply::Error(error), _) => {
                bail!("the key \"{}\" cannot be read: {error}", key.escape_ascii())
            }
            (_, other, _) => return Err(unfit("DUMP", &other)),
        });
    }
    Ok(read)
}

/// Reads a file of keys, checking its checksums. Returns how many keys of each type it has.
///
/// # Errors
/// It cannot be read, or is damaged: the error names the place.
pub(super) fn check_keys(backups: &Backups, path: &str, sums: &Sums) -> Result<BTreeMap<String, u64>> {
    let mut file = FileReader::new(backups.read(path, sums)?)?;
    let mut types = BTreeMap::new();
    loop {
        match file.item()? {
            Item::Key { form, .. } => {
                value::read(form, file.source(), &mut |_| Ok::<(), Fault>(()))?;
                *types.entry(form.kind().name().to_owned()).or_default() += 1;
            }
            Item::Database(0) => {}
            Item::End => break,
            other => bail!("at byte {}: no backup has {other:?}", file.source().at()),
        }
    }
    file.into_inner().read_out()?;
    Ok(types)
}

// Changes.

/// Why changes cannot be added.
enum Broken {
    /// The node does not keep them any more.
    Behind,
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Broken {
    fn from(error: anyhow::Error) -> Broken {
        Broken::Other(error)
    }
}

impl Taking<'_> {
    /// Adds all changes after those of an earlier backup: up to these versions, which are of a time; or up to what the leaders have
    /// applied now, and what follows.
    fn changes(
        &mut self,
        source: &mut Source,
        prefix: &str,
        before: &[Shard],
        moment: Option<(Versions, u64)>,
    ) -> Result<Vec<Shard>, Broken> {
        let mut at: Versions = before.iter().map(|shard| (shard.group, shard.reached())).collect();
        let is_of_moment = moment.is_some();
        let (goals, until_ms) = match moment {
            Some(moment) => moment,
            None => {
                let until_ms = source.time_ms()?;
                (source.goals(prefix, &at, &mut self.patience)?, until_ms)
            }
        };
        let mut files: Vec<Option<(Writer, u64)>> = at.iter().map(|_| None).collect();
        let mut patience = Instant::now() + PATIENCE;
        while at.iter().zip(&goals).any(|(at, goal)| at.1 < goal.1) {
            let from = word(&at);
            let words: [&[u8]; 8] = [
                b"KEYSPACE",
                b"CHANGES",
                prefix.as_bytes(),
                b"FROM",
                from.as_bytes(),
                b"BYTES",
                CHANGES_BYTES,
                b"TIMES",
            ];
            let reply = match source.client.ask(&words)? {
                Reply::Error(error) if error.starts_with("BEHIND ") => {
                    return Err(Broken::Behind);
                }
                Reply::Error(error) => return Err(anyhow!("{error}").into()),
                reply => reply,
            };
            let (reached, records) =
                changes::of_reply(reply).context("KEYSPACE CHANGES answers with what is none")?;
            for (said, record) in records {
                let groups = |versions: &Versions| versions.iter().map(|it| it.0).collect::<Vec<_>>();
                if groups(&said) != groups(&at) {
                    return Err(anyhow!("the keyspace was created again during the backup").into());
                }
                let mut places = (0..at.len()).filter(|place| said[*place].1 != at[*place].1);
                let (place, other) = (places.next(), places.next());
                let place = place.filter(|place| said[*place].1 > at[*place].1);
                let place = place.context("a change has a version that is not behind those before")?;
                if other.is_some() {
                    // A node of release 1 does not say of which shard the change is.
                    return Err(Broken::Behind);
                }
                let record = Record { version: said[place].1, ..record };
                at = said;
                if is_of_moment && record.version > goals[place].1 {
                    continue;
                }
                let (writer, count) = match &mut files[place] {
                    Some(open) => open,
                    none => {
                        let mut writer = self.backups.create(&self.changes_of(at[place].0))?;
                        changes::begin(&mut writer)?;
                        none.insert((writer, 0))
                    }
                };
                changes::write(&record, writer)?;
                *count += 1;
                self.made.records += 1;
            }
            if word(&reached) != from {
                patience = Instant::now() + PATIENCE;
            } else if Instant::now() > patience {
                return Err(anyhow!(
                    "the node that was asked is behind the others, and does not come on: see quorate status"
                )
                .into());
            } else {
                std::thread::sleep(Duration::from_millis(20));
            }
            at = reached;
            self.progress.show_bytes(self.made.bytes, None);
        }
        let mut shards = before.to_vec();
        for (((shard, file), at), goal) in shards.iter_mut().zip(files).zip(&at).zip(&goals) {
            let from = shard.reached();
            let until = if is_of_moment { goal.1.max(from) } else { at.1 };
            let path = self.changes_of(shard.group);
            // A shard that has not changed has a file without records, which records a later time.
            let (writer, records) = match file {
                Some(open) => open,
                None => {
                    let mut writer = self.backups.create(&path)?;
                    changes::begin(&mut writer)?;
                    (writer, 0)
                }
            };
            let sums = writer.end()?;
            let changes = ChangeFile { path, sums, from, until, until_ms, records };
            let read = check_changes(self.backups, &changes);
            read.with_context(|| format!("{}, read back", self.backups.name_of(&changes.path)))?;
            self.made.bytes += changes.sums.bytes;
            shard.changes.push(changes);
        }
        Ok(shards)
    }
}

/// A node's state of a keyspace.
struct Holding {
    /// The shards that it leads.
    leads: BTreeSet<usize>,
    /// The versions that it has applied.
    applied: Versions,
}

impl Source {
    /// The versions up to which changes must be read, so that no write acknowledged before is missing.
    ///
    /// # Errors
    /// The leader of a shard cannot be reached.
    fn goals(&mut self, prefix: &str, at: &Versions, patience: &mut Patience) -> Result<Versions> {
        loop {
            let begun = Instant::now();
            let mut last = anyhow!("no node that was asked leads it");
            let mut holdings = Vec::new();
            for address in self.cluster.addresses.clone() {
                match self.holding(&address, prefix) {
                    Ok(holding) => holdings.push(holding),
                    Err(error) => {
                        self.forget_if_silent(&address, &error);
                        last = error.context(address.clone());
                    }
                }
            }
            let shard = match goals(at, &holdings) {
                Ok(goals) => return Ok(goals),
                Err(shard) => shard,
            };
            if !patience.wait(|| format!("{}: no node leads it yet", named(prefix))) {
                return Err(last.context(format!("the leader of shard {shard} cannot be reached")));
            }
            patience.took(begun);
        }
    }

    /// Asks a node first which shards it leads and then what it has applied: so the versions include what it had
    /// acknowledged as a leader.
    fn holding(&self, address: &str, prefix: &str) -> Result<Holding> {
        let mut client = self.cluster.connect(address, ANSWER_WITHIN)?;
        let mut ask = |words: &[&[u8]]| match client.ask(words)? {
            Reply::Error(error) => bail!("{error}"),
            reply => Ok(reply),
        };
        let report = ask(&[b"CLUSTER", b"REPORT"])?.bytes().context("it does not report")?;
        let report: Report = serde_json::from_slice(&report).context("its report is not understood")?;
        let Reply::Array(parts) = ask(&[b"KEYSPACE", b"CHANGES", prefix.as_bytes()])? else {
            bail!("KEYSPACE CHANGES answers with no list")
        };
        let said = parts.into_iter().next().and_then(Reply::bytes).unwrap_or_default();
        let applied = changes::versions(&String::from_utf8_lossy(&said)).context("it says no version")?;
        let led = report
            .health
            .keyspaces
            .iter()
            .filter(|it| it.prefix == prefix && it.role == "leader" && it.ready);
        Ok(Holding { leads: led.map(|it| usize::from(it.shard)).collect(), applied })
    }
}

/// For each group the greatest version that a node has applied, or `at`; or the first shard whose leader is not among the
/// nodes: the other nodes may lack what it has acknowledged.
fn goals(at: &Versions, holdings: &[Holding]) -> Result<Versions, usize> {
    let mut goals = at.clone();
    for (shard, (group, goal)) in goals.iter_mut().enumerate() {
        if !holdings.iter().any(|holding| holding.leads.contains(&shard)) {
            return Err(shard);
        }
        let applied = holdings.iter().filter_map(|holding| holding.applied.get(shard));
        let of_group = applied.filter(|(other, _)| other == group).map(|(_, version)| *version);
        *goal = of_group.fold(*goal, u64::max);
    }
    Ok(goals)
}

/// Reads a file of changes, checking its checksums and the manifest's facts about it.
///
/// # Errors
/// It cannot be read, or is damaged: the error names the place.
pub(super) fn check_changes(backups: &Backups, expected: &ChangeFile) -> Result<()> {
    let file = backups.read(&expected.path, &expected.sums)?;
    let mut reader = changes::Reader::new(file, expected.sums.bytes, expected.from)?;
    let mut records = 0;
    while let Some(record) = reader.record()? {
        ensure!(record.version <= expected.until, "record {} is behind the last one", record.version);
        records += 1;
    }
    ensure!(records == expected.records, "{records} records are there, and {} should be", expected.records);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_up_to_the_version_of_each_shards_leader() {
        let at = vec![(4, 10), (7, 20)];
        let node = |leads: &[usize], applied: [u64; 2]| Holding {
            leads: leads.iter().copied().collect(),
            applied: vec![(4, applied[0]), (7, applied[1])],
        };
        let (one, two) = (node(&[0], [15, 20]), node(&[1], [12, 31]));
        assert_eq!(goals(&at, &[one, two]), Ok(vec![(4, 15), (7, 31)]));
        assert_eq!(goals(&at, &[node(&[0], [15, 25]), node(&[], [15, 25])]), Err(1), "who leads shard 1?");
        assert_eq!(goals(&at, &[]), Err(0), "nobody was asked");
        let restored = Holding { leads: [0, 1].into(), applied: vec![(4, 3), (9, 99)] };
        assert_eq!(goals(&at, &[restored]), Ok(at.clone()), "of another group nothing follows");
    }
}
