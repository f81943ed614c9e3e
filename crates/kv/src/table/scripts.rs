//! Scripts: what a script may do with the table while it runs.
//!
//! A script runs in the group of the keys that it declares. It may use those, and others of its extent, which are in this
//! group too ([`Script::build_in`]). Its changes can be undone: when a limit ends a script, none of its writes remain
//! ([`Access::undo`]).

use super::changes::Mark;
use super::charges::Copied;
use super::draws::mix;
use super::entry::Entry;
use super::index::KeyHash;
use super::kind::Kind;
use super::refusals::refuse_large_reply;
use super::{Record, Table, WARMED_KEYS_MAX};
use crate::command::{By, Command, Known, List, Script, Size, UNIT_NS};
use crate::glob::Pattern;
use crate::limits::SCRIPT_PUBLISHED_BYTES_MAX;
use crate::reply::{Announcement, Reads, ReplyBuffer};
use crate::{UnixMs, ValueId};
use std::collections::BTreeMap;

/// Why a command of a script was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptRefusal<'a> {
    /// The command is a write, and the script may only read.
    Write,
    /// The command uses this key, which the script has not declared, and which is not in its extent.
    Undeclared(&'a [u8]),
    /// The command uses this key, which the script has not declared, and whose value is not in memory. Such values are
    /// supplied only for declared keys.
    NotInMemory(&'a [u8]),
    /// The command's effect or reply differs between replicas, or it concerns all keys.
    NotInScripts,
    /// The command's reply may differ between replicas, and the script has written already, or is a part of a transaction
    /// that may write.
    LooksAround,
    /// The command is a write, after one whose reply may differ between replicas.
    HasLookedAround,
    /// The command may enlarge the data, and the keyspace was full when the script was ordered.
    NoRoom,
    /// The command may add more bytes than are left of the bound of the script's record. The run must end, and be undone.
    TooMuch,
}

/// The table, as one run of a script may use it.
#[derive(Debug)]
pub struct Access<'t> {
    table: &'t mut Table,
    /// The version and time for the keys that the run writes; `None` if it may only read.
    record: Option<Record>,
    now: UnixMs,
    /// The declared keys in ascending order, each with its state before the run first wrote it.
    keys: Vec<(&'t [u8], Saved)>,
    /// The prefixes of its extent.
    extent: Vec<&'t [u8]>,
    /// The other keys that the run has written, each with its state before.
    others: BTreeMap<Box<[u8]>, Saved>,
    /// What the run has published so far, and its size in bytes.
    announcements: Vec<Announcement>,
    announced_bytes: usize,
    /// Whether the keyspace was full: the run must not enlarge the data before it has written something.
    is_in_full: bool,
    /// Whether commands are allowed whose replies may differ between replicas ([`looks_around`]). The run must not write before
    /// or after them, so that replicas stay equal, whatever they answer.
    may_look_around: bool,
    has_looked_around: bool,
    /// See [`crate::ScriptOptions::by_second_rules`].
    by_second_rules: bool,
    /// The keys that it has read, if its reply must name them.
    reads: Option<Reads>,
    /// Where the notes of the run's changes begin.
    changes: Mark,
    /// The limit on the run's cost, and its cost so far.
    cost_max: u64,
    cost: u64,
}

/// What is kept of a key until the script ends.
#[derive(Debug, Default)]
struct Saved {
    before: Before,
    /// What the script's changes have copied, since the former value is kept.
    copied: Copied,
}

/// The state of a key before a script wrote it.
#[derive(Debug, Default)]
enum Before {
    #[default]
    Untouched,
    Absent,
    Was(Entry),
}

/// The recent cost of scripts on this replica, by the hash of their text. It determines only how many scripts are
/// admitted at a time, so replicas need not agree on it. When two scripts share a place, the later one takes it.
#[derive(Debug, Default)]
pub(super) struct ScriptCosts(Vec<(KeyHash, u64)>);

impl ScriptCosts {
    const PLACES: usize = 256;

    fn place(hash: KeyHash) -> usize {
        (hash.number() >> 1) as usize % Self::PLACES
    }

    fn of(&self, hash: KeyHash) -> Option<u64> {
        let (known, cost) = *self.0.get(Self::place(hash))?;
        (known == hash).then_some(cost)
    }

    fn note(&mut self, hash: KeyHash, cost: u64) {
        // The cost may depend on the arguments, so forget an expensive run slowly.
        let before = self.of(hash).unwrap_or(0);
        self.0.resize(Self::PLACES, (KeyHash::END, 0));
        self.0[Self::place(hash)] = (hash, cost.max(before - before / 8));
    }
}

impl Access<'_> {
    /// The time of the run, the same on every replica.
    pub fn now(&self) -> UnixMs {
        self.now
    }

    /// The cost that the run may still incur. The scripts of one transaction share one script's limit.
    pub fn cost_left(&self) -> u64 {
        self.cost_max.saturating_sub(self.cost)
    }

    /// Adds to the cost of the run.
    pub fn spend(&mut self, cost: u64) {
        self.cost += cost;
    }

    /// Carries out one command of the script and appends one reply to `out`.
    ///
    /// # Errors
    /// [`ScriptRefusal`] if no script, or not this one, may use the command: nothing was done, `out` is unchanged.
    pub fn call<'c>(
        &mut self,
        command: &Command<'c>,
        out: &mut ReplyBuffer,
    ) -> Result<(), ScriptRefusal<'c>> {
        if let Command::Keys { pattern } = command
            && !self.extent.is_empty()
        {
            self.list_keys(pattern, out);
            return Ok(());
        }
        if looks_around(command) {
            return self.look_around(command, out);
        }
        if !may_be_in_a_script(command) {
            return Err(ScriptRefusal::NotInScripts);
        }
        let mut refusal = None;
        command.for_each_key(|key| refusal = refusal.or_else(|| self.refusal_of(key)));
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        if !command.is_write() {
            self.note_read(command);
            self.table.read(command, self.now, out);
            return Ok(());
        }
        let Some(record) = self.record else { return Err(ScriptRefusal::Write) };
        if self.has_looked_around {
            return Err(ScriptRefusal::HasLookedAround);
        }
        if self.is_in_full && command.may_grow() {
            return Err(ScriptRefusal::NoRoom);
        }
        if self.table.charges.are_bounded() && !self.pays(command) {
            return Err(ScriptRefusal::TooMuch);
        }
        self.is_in_full = false;
        self.may_look_around = false;
        command.for_each_key(|key| self.remember(key));
        self.table.carry_out_paid(command, record, out);
        Ok(())
    }

    /// A command whose reply may differ between replicas: of all keys, it concerns those of this table.
    fn look_around<'c>(
        &mut self,
        command: &Command<'c>,
        out: &mut ReplyBuffer,
    ) -> Result<(), ScriptRefusal<'c>> {
        let mut keys = (0, None);
        command.for_each_key(|key| {
            let is_here = self.position(key).is_some() || self.extends_to(key);
            keys = (keys.0 + 1, keys.1.or((!is_here).then_some(ScriptRefusal::Undeclared(key))));
        });
        match keys {
            _ if !self.by_second_rules => return Err(ScriptRefusal::NotInScripts),
            (0, _) if self.extent.is_empty() => return Err(ScriptRefusal::NotInScripts),
            (_, Some(refusal)) => return Err(refusal),
            _ if !self.may_look_around => return Err(ScriptRefusal::LooksAround),
            _ => {}
        }
        self.has_looked_around = true;
        self.note_read(command);
        let command = match command {
            Command::RandomKey { .. } => {
                self.table.read_seed = self.table.read_seed.wrapping_add(1);
                Command::RandomKey { draw: mix(self.table.read_seed) }
            }
            command => *command,
        };
        self.table.read(&command, self.now, out);
        Ok(())
    }

    /// Whether the run is by the rules of release 2.
    pub fn is_by_second_rules(&self) -> bool {
        self.by_second_rules
    }

    /// The number of keys, including expired ones that have not been removed yet.
    pub fn all_keys(&self) -> usize {
        self.table.len()
    }

    /// The number of keys that have not expired, if that is at most `most`; otherwise `most`. O(most), beside expired keys.
    pub fn live_keys(&self, most: usize) -> usize {
        self.table.index.iter().filter(|entry| !entry.expired(self.now)).take(most).count()
    }

    /// `KEYS`, of the extent. The reply is in ascending order: keys whose hashes are equal may stand in the table in
    /// different orders on different replicas.
    fn list_keys(&self, pattern: &[u8], out: &mut ReplyBuffer) {
        let pattern = Pattern::new(pattern);
        let entries = self.table.index.iter().filter(|entry| !entry.expired(self.now)).map(Entry::key);
        let mut keys: Vec<_> = entries.filter(|key| pattern.matches(key) && self.extends_to(key)).collect();
        keys.sort_unstable();
        if keys.iter().map(|key| key.len()).sum::<usize>() > out.reply_bytes_max() {
            return refuse_large_reply(out.len(), out);
        }
        out.array(keys.len());
        keys.iter().for_each(|key| out.bulk(key));
    }

    /// Bytes stored under a key in one piece; 0 if it does not exist. A change in the middle can take time in proportion
    /// to them.
    pub fn held_bytes(&self, key: &[u8]) -> usize {
        /// Most bytes of a collection that a change moves.
        const MOVED_BYTES: usize = 1024;
        let entry = self.table.peek(key, self.now);
        entry.map_or(0, |entry| match entry.is_collection() {
            true => entry.content_bytes().min(MOVED_BYTES),
            false => entry.held_bytes(),
        })
    }

    /// Bytes of collections that a command looks at or returns.
    pub fn walked_bytes(&self, command: &Command<'_>) -> usize {
        usize::try_from(self.table.walked_bytes(command, self.now)).unwrap_or(usize::MAX)
    }

    /// The units that a command costs besides its words and its reply: its time, and that of keeping the former values in
    /// case the run is undone.
    pub fn cost_of(&self, command: &Command<'_>) -> u64 {
        const KEPT_BYTES_PER_NS: u64 = 32;
        let mut ns = command.walk_ns(&At(self.table, self.now));
        if command.is_write() {
            command.for_each_key(|key| {
                ns = ns.saturating_add(self.held_bytes(key) as u64 / KEPT_BYTES_PER_NS);
            });
        }
        ns / UNIT_NS
    }

    /// Publishes a message once the run is over. Returns false, with nothing done, if the run would publish too much.
    ///
    /// # Errors
    /// [`ScriptRefusal::Write`] when the script may only read: only for a record can a single replica be chosen to
    /// publish.
    pub fn publish(
        &mut self,
        is_sharded: bool,
        channel: &[u8],
        message: &[u8],
    ) -> Result<bool, ScriptRefusal<'static>> {
        if self.record.is_none() {
            return Err(ScriptRefusal::Write);
        }
        let bytes = self.announced_bytes + channel.len() + message.len();
        if bytes > SCRIPT_PUBLISHED_BYTES_MAX {
            return Ok(false);
        }
        self.announced_bytes = bytes;
        self.announcements.push(Announcement {
            is_sharded,
            channel: channel.into(),
            message: message.into(),
        });
        Ok(true)
    }

    /// Restores all keys to their state before the run, and discards its messages. Versions that were used up remain used
    /// up.
    pub fn undo(&mut self) {
        self.announcements.clear();
        let changes = self.changes;
        let Some(record) = self.record else { return };
        let others = self.others.iter_mut().map(|(key, saved)| (&**key, saved));
        for (key, saved) in self.keys.iter_mut().map(|(key, saved)| (*key, saved)).chain(others) {
            match std::mem::take(&mut saved.before) {
                Before::Untouched => {}
                Before::Absent => self.table.put_back(key, None, record),
                Before::Was(entry) => self.table.put_back(key, Some(entry), record),
            }
        }
        self.table.changes.return_to(changes);
    }

    /// Notes what a command reads.
    fn note_read(&mut self, command: &Command<'_>) {
        let Some(reads) = &mut self.reads else { return };
        command.for_each_key(|key| reads.add(key));
    }

    fn position(&self, key: &[u8]) -> Option<usize> {
        self.keys.binary_search_by(|(declared, _)| (*declared).cmp(key)).ok()
    }

    /// Why the script may not use a key, if it may not.
    fn refusal_of<'c>(&self, key: &'c [u8]) -> Option<ScriptRefusal<'c>> {
        if self.position(key).is_some() {
            return None;
        }
        if !self.extends_to(key) {
            return Some(ScriptRefusal::Undeclared(key));
        }
        let is_elsewhere = self.table.peek(key, self.now).is_some_and(|entry| entry.reference().is_some());
        is_elsewhere.then_some(ScriptRefusal::NotInMemory(key))
    }

    fn extends_to(&self, key: &[u8]) -> bool {
        let mut prefixes = self.extent.iter();
        prefixes.next().is_some_and(|within| key.starts_with(within))
            && !prefixes.any(|other| key.starts_with(other))
    }

    /// Saves the state of a key before the first write to it.
    fn remember(&mut self, key: &[u8]) {
        let saved = match self.position(key) {
            Some(position) => &mut self.keys[position].1,
            None => match self.others.contains_key(key) {
                true => return,
                false => self.others.entry(key.into()).or_default(),
            },
        };
        if let Before::Untouched = saved.before {
            let found = self.table.find(self.table.index.hash(key), key);
            saved.before = found.map_or(Before::Absent, |(_, entry)| Before::Was(entry.clone()));
        }
    }

    /// Charges a command, and what it copies, to the bound of the record. Returns false if there is no room for it.
    fn pays(&mut self, command: &Command<'_>) -> bool {
        let (now, changes) = (self.now, command.changed_items());
        let mut charge = self.table.charge_of(command, now);
        let mut copied_of = Vec::new();
        command.for_each_key(|key| {
            let before = self.saved(key).map_or(Copied::default(), |saved| saved.copied);
            let copied = self.table.copied_bytes(key, before, changes, now);
            charge = charge.saturating_add(copied.0 - before.0);
            copied_of.push((key, copied));
        });
        if !self.table.charges.take(charge) {
            return false;
        }
        for (key, copied) in copied_of {
            match self.position(key) {
                Some(position) => self.keys[position].1.copied = copied,
                None => {
                    self.remember(key);
                    if let Some(saved) = self.others.get_mut(key) {
                        saved.copied = copied;
                    }
                }
            }
        }
        true
    }

    fn saved(&self, key: &[u8]) -> Option<&Saved> {
        match self.position(key) {
            Some(position) => Some(&self.keys[position].1),
            None => self.others.get(key),
        }
    }
}

/// Whether replicas may answer a command differently: it depends on the order of the keys, which follows from the cluster's
/// secret, on memory, or on what each replica has read itself.
fn looks_around(command: &Command<'_>) -> bool {
    use Command::*;
    matches!(command, Scan { .. } | RandomKey { .. } | Size {} | MemoryUsage { .. } | Used { .. })
}

/// Whether scripts may use a command. They may if it names its keys and its outcome is the same on every replica.
fn may_be_in_a_script(command: &Command<'_>) -> bool {
    use Command::*;
    if let Sort(sort) = command
        && sort.patterns().next().is_some()
    {
        return false; // It looks up keys that no script can declare.
    }
    !matches!(
        command,
        // On all keys; a script may use only those that it has declared.
        Keys { .. } | Clear {} | Purge { .. } | Evict { .. }
        // Used only by the cluster itself, or not allowed within another command.
        | Fetch { .. } | Watch { .. } | Recent { .. } | NewestToken { .. } | Replicate { .. } | SkipVersions { .. } | RaiseFloor { .. } | Transaction(_) | Script(_) | Lock(_) | Queue(_) | SetCoded { .. } | Abandon { .. } | Supplied(_)
        | LongPart { .. } | LongEnd { .. } | Bounded(_) | TwoPhase(_)
    )
}

/// A table at a time: keys that have expired by then are missing.
pub(super) struct At<'t>(pub(super) &'t Table, pub(super) UnixMs);

impl Known for At<'_> {
    fn warm(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> usize {
        self.0.warm(keys);
        WARMED_KEYS_MAX
    }

    fn keys(&self) -> u64 {
        self.0.len() as u64
    }

    fn size(&self, key: &[u8]) -> Size {
        self.0.peek(key, self.1).map_or(Size::default(), |entry| Size {
            items: if entry.is_collection() { entry.items().len() as u64 } else { 0 },
            bytes: entry.content_bytes() as u64,
        })
    }

    fn is_stream(&self, key: &[u8]) -> bool {
        self.0.peek(key, self.1).is_some_and(|entry| entry.kind() == Kind::Stream)
    }

    fn in_range(&self, key: &[u8], by: By, ends: List<'_>) -> Size {
        self.0.size_of_range(key, by, ends, self.1)
    }

    fn in_search(&self, key: &[u8], query: &[u8]) -> Size {
        self.0.size_of_search(key, query, self.1)
    }

    fn between(&self, key: &[u8], start: &[u8], end: &[u8]) -> Size {
        self.0.size_between(key, start, end, self.1)
    }

    fn groups_of(&self, key: &[u8]) -> u64 {
        Table::groups_of(self.0, key, self.1)
    }

    fn pending_of(&self, key: &[u8], group: &[u8], consumer: &[u8]) -> u64 {
        Table::pending_of(self.0, key, group, consumer, self.1)
    }

    fn script_ns(&self, script: &Script<'_>) -> u64 {
        // As much as one turn may take: a script that has never run here is admitted alone.
        const UNKNOWN_NS: u64 = 5_000_000;
        let cost = self.0.script_costs.of(self.0.index.hash(script.text()));
        cost.map_or(UNKNOWN_NS, |cost| cost * UNIT_NS).min(script.most_ns())
    }

    fn long_command(&self, id: ValueId) -> Option<&[u8]> {
        Table::long_command(self.0, id)
    }
}

impl Known for Table {
    fn warm(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> usize {
        At(self, 0).warm(keys)
    }

    fn keys(&self) -> u64 {
        At(self, 0).keys()
    }

    fn size(&self, key: &[u8]) -> Size {
        At(self, 0).size(key)
    }

    fn is_stream(&self, key: &[u8]) -> bool {
        At(self, 0).is_stream(key)
    }

    fn in_range(&self, key: &[u8], by: By, ends: List<'_>) -> Size {
        At(self, 0).in_range(key, by, ends)
    }

    fn in_search(&self, key: &[u8], query: &[u8]) -> Size {
        At(self, 0).in_search(key, query)
    }

    fn between(&self, key: &[u8], start: &[u8], end: &[u8]) -> Size {
        At(self, 0).between(key, start, end)
    }

    fn groups_of(&self, key: &[u8]) -> u64 {
        At(self, 0).groups_of(key)
    }

    fn pending_of(&self, key: &[u8], group: &[u8], consumer: &[u8]) -> u64 {
        At(self, 0).pending_of(key, group, consumer)
    }

    fn script_ns(&self, script: &Script<'_>) -> u64 {
        At(self, 0).script_ns(script)
    }

    fn long_command(&self, id: ValueId) -> Option<&[u8]> {
        Table::long_command(self, id)
    }
}

impl Table {
    /// The approximate time, in nanoseconds, that all scripts on this table have taken.
    pub fn scripts_ns(&self) -> u64 {
        self.scripts_ns
    }

    /// Runs a script that may write, as a part of a record.
    pub(super) fn run_script(&mut self, script: &Script<'_>, record: Record, out: &mut ReplyBuffer) {
        self.run_with(script, Some(record), record.time, out);
    }

    /// Runs a script that may only read.
    pub(super) fn run_reading_script(&mut self, script: &Script<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        self.run_with(script, None, now, out);
    }

    fn run_with(&mut self, script: &Script<'_>, record: Option<Record>, now: UnixMs, out: &mut ReplyBuffer) {
        let mut keys: Vec<_> = script.keys().map(|key| (key, Saved::default())).collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        keys.dedup_by_key(|(key, _)| *key);
        let interpreter = self.interpreter;
        // The replies to its commands decide what a script does next, even if its own reply is dropped.
        let was_quiet = std::mem::take(&mut self.is_quiet);
        let (announcements, announced_bytes) = (Vec::new(), 0);
        // A script that only reads is not a record that will be replayed, so the watch is not notified.
        if record.is_some() {
            self.watched.begin_script(script);
            // Earlier reads of others on this replica must not influence what the script reads.
            self.write_seed = self.write_seed.wrapping_add(1);
            self.read_seed = mix(self.write_seed);
        }
        // Without a reply nothing could carry the keys.
        let reads = (script.options().tells_reads && !was_quiet).then(Reads::default);
        let start = out.len();
        let before = self.transaction_cost;
        let cost_max = u64::from(script.limits().cost_max).saturating_sub(before.unwrap_or(0));
        let (extent, others) = (script.extent().collect(), BTreeMap::new());
        let changes = self.changes.mark();
        let mut access = Access {
            table: self,
            record,
            now,
            keys,
            extent,
            others,
            announcements,
            announced_bytes,
            is_in_full: script.options().is_in_full,
            by_second_rules: script.options().by_second_rules,
            // Within a transaction, what this run costs would decide about the others, which may write.
            may_look_around: record.is_none() || before.is_none(),
            has_looked_around: false,
            reads,
            changes,
            cost_max,
            cost: 0,
        };
        interpreter.run(script, &mut access, out);
        out.announce(&mut access.announcements);
        let (cost, reads) = (access.cost, access.reads.take());
        let others = std::mem::take(&mut access.others);
        others.keys().for_each(|key| access.table.note_written(key));
        let declared = std::mem::take(&mut access.keys).into_iter().map(|(_, saved)| saved);
        for saved in declared.chain(others.into_values()) {
            if let Before::Was(entry) = saved.before {
                access.table.bury(entry.into_collection());
            }
        }
        let hash = self.index.hash(script.text());
        self.script_costs.note(hash, cost);
        self.scripts_ns += cost * UNIT_NS;
        self.transaction_cost = before.map(|before| before + cost);
        if record.is_some() {
            self.watched.end_script();
        }
        self.is_quiet = was_quiet;
        match reads {
            // The transaction's reply names the keys that all its scripts have read.
            Some(reads) if before.is_some() => self.script_reads.get_or_insert_default().join(reads),
            Some(reads) => out.put_reads(start, &reads),
            None => {}
        }
    }
}
