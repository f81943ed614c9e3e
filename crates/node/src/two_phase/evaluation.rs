//! Requests that need the values of several groups at once: the groups lock the keys and return what they hold, this node carries out
//! the whole on copies, and each group gets what has changed of its keys.

use super::plan::{SHARED_KEYS_MAX, Whole};
use kv::codec::Reader;
use kv::command::ExpiryUnit;
use kv::limits::SCRIPT_COST_DEFAULT;
use kv::{
    Command, Deadline, Draft, List, Reply, ReplyBuffer, RestoreOptions, Script, ScriptLimits, ScriptOptions,
    Share, Table, Transaction, UnixMs, Version,
};
use protocol::two_phase::{Evaluated, Found};
use scripts::LUA;
use std::collections::BTreeMap;

/// The most bytes of values that one request may take from its groups, or give to them.
pub(crate) const MOVED_BYTES_MAX: usize = 16 << 20;

/// The most estimated work of one request, in nanoseconds. The node does nothing else while it is carried out.
const EVALUATED_NS_MAX: u64 = 25_000_000;

/// A request whose keys are in several groups, and which is carried out here.
#[derive(Debug, Default)]
pub(crate) struct Evaluation {
    commands: Draft,
    /// Whether its reply is that of a transaction.
    is_array: bool,
    /// Its client has waited since it looked the first time: a key that does not hold what it waits for is not looked at.
    pub(crate) is_again: bool,
    /// By group: what it locks and reads.
    locks: BTreeMap<u16, Draft>,
    /// By group: the keys, in the order in which their values are read.
    keys: BTreeMap<u16, Vec<Key>>,
    /// It is `MOVE`, carried out as `RENAMENX`: where that gives an error, since the key is missing, the reply is 0.
    is_move: bool,
    reply: ReplyBuffer,
    /// Bytes of values for which it is charged.
    charge: usize,
}

/// A key, by its names.
#[derive(Debug)]
struct Key {
    /// In its group.
    name: Box<[u8]>,
    /// On the copies, if it is another one there.
    alias: Option<Box<[u8]>>,
    /// It may be the name of a lock that fences a write, whose newest token is read, too.
    may_fence: bool,
}

impl Key {
    fn on_copies(&self) -> &[u8] {
        self.alias.as_ref().unwrap_or(&self.name)
    }
}

/// What a key of one database becomes in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToDatabase {
    /// It is moved there (`MOVE`), if it does not exist there yet.
    Moved,
    /// It is copied (`COPY … DB`).
    Copied {
        /// Whether the copy replaces a key that exists.
        replaces: bool,
    },
}

impl Evaluation {
    /// A key that goes to another database, where both are given with their groups. The groups differ.
    pub(crate) fn to_database(
        (group, from): (u16, &[u8]),
        (other, to): (u16, &[u8]),
        what: ToDatabase,
    ) -> Evaluation {
        assert_ne!(group, other, "a group belongs to one database");
        // Both names may be the same, and databases are unknown on the copies.
        let alias = if from.is_empty() { &b"a"[..] } else { b"" };
        let command = match what {
            ToDatabase::Moved => Command::Rename { from, to: alias, if_absent: true },
            ToDatabase::Copied { replaces } => Command::Copy { from, to: alias, replace: replaces },
        };
        let mut evaluation = Evaluation { is_move: what == ToDatabase::Moved, ..Evaluation::default() };
        assert!(evaluation.commands.push(&command), "a transaction may hold these commands");
        evaluation.lock(group, Key { name: from.into(), alias: None, may_fence: false });
        evaluation.lock(other, Key { name: to.into(), alias: Some(alias.into()), may_fence: false });
        evaluation
    }

    /// One command.
    ///
    /// # Errors
    /// [`Whole`]: it cannot be carried out on copies of its keys.
    pub(crate) fn of_command(
        command: &Command<'_>,
        group_of: impl Fn(&[u8]) -> u16,
    ) -> Result<Evaluation, Whole> {
        let mut evaluation = Evaluation::default();
        evaluation.push(command)?;
        evaluation.with_locks(group_of)
    }

    /// The commands of a transaction. `watched_in`: the leadership of a group in which its keys were watched.
    ///
    /// # Errors
    /// [`Whole`]: one of them cannot be carried out on copies of its keys.
    pub(crate) fn of_transaction(
        transaction: &Transaction<'_>,
        group_of: impl Fn(&[u8]) -> u16,
        watched_in: impl Fn(u16) -> u64,
    ) -> Result<Evaluation, Whole> {
        let mut evaluation = Evaluation { is_array: true, ..Evaluation::default() };
        for watched in transaction.watched() {
            let group = group_of(watched.key);
            evaluation.locks.entry(group).or_default().watch(watched_in(group), watched);
        }
        transaction.commands().try_for_each(|command| evaluation.push(&command))?;
        evaluation.with_locks(group_of)
    }

    fn push(&mut self, command: &Command<'_>) -> Result<(), Whole> {
        let mut scratch = Vec::new();
        let command = match command {
            // It may use the keys that it declares alone: no extent is in all of its groups.
            Command::Script(script) => Command::Script(declared_alone(script, &mut scratch)),
            command => *command,
        };
        // What these tell is of the table, and not of its copy.
        let is_of_table = matches!(command, Command::Used { .. } | Command::MemoryUsage { .. });
        match command.names_all_it_uses() && !is_of_table && self.commands.push(&command) {
            true => Ok(()),
            false => Err(Whole::NeedsAll),
        }
    }

    /// Finds what each group locks.
    fn with_locks(mut self, group_of: impl Fn(&[u8]) -> u16) -> Result<Evaluation, Whole> {
        // By key: whether it may be the name of a lock that fences a write.
        let mut keys: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for command in self.commands.transaction().commands() {
            command.for_each_key(|key| {
                let may_fence = match command {
                    Command::Fenced(fenced) => fenced.name == key,
                    Command::Script(script) => script.is_write(),
                    _ => false,
                };
                *keys.entry(key.to_vec()).or_default() |= may_fence;
            });
        }
        if keys.len() > SHARED_KEYS_MAX {
            return Err(Whole::TooManyKeys);
        }
        for (key, may_fence) in keys {
            self.lock(group_of(&key), Key { name: key.into(), alias: None, may_fence });
        }
        Ok(self)
    }

    /// Has a group lock a key, and read it.
    fn lock(&mut self, group: u16, key: Key) {
        let draft = self.locks.entry(group).or_default();
        let name = &*key.name;
        let is_pushed = draft.push(&Command::TimeToLive { key: name, unit: ExpiryUnit::UnixMilliseconds })
            && draft.push(&Command::Dump { key: name })
            && (!key.may_fence || draft.push(&Command::NewestToken { name, seen: 0 }));
        assert!(is_pushed, "a transaction may hold these commands");
        self.keys.entry(group).or_default().push(key);
    }

    /// The groups, each with its encoded share, by which it locks the keys and reads them.
    pub(crate) fn shares(&self) -> Vec<(u16, Vec<u8>)> {
        let share = |(group, draft): (&u16, &Draft)| {
            let mut bytes = Vec::new();
            let share = Share::build(&Command::Transaction(draft.transaction()), &mut bytes);
            assert!(share.is_some(), "what reads named keys can be shared");
            (*group, bytes)
        };
        self.locks.iter().map(share).collect()
    }

    /// The groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u16> {
        self.locks.keys().copied()
    }

    /// By group: what it reads while its keys are locked.
    pub(crate) fn locks(&self) -> &BTreeMap<u16, Draft> {
        &self.locks
    }

    /// What is carried out here.
    pub(crate) fn commands(&self) -> &Draft {
        &self.commands
    }

    /// By group: the keys.
    pub(crate) fn reads(&self) -> Vec<(u16, Vec<Box<[u8]>>)> {
        let names = |keys: &Vec<Key>| keys.iter().map(|key| key.name.clone()).collect();
        self.keys.iter().map(|(group, keys)| (*group, names(keys))).collect()
    }

    /// Whether all of its keys are still in their groups.
    pub(crate) fn is_still(&self, belongs: impl Fn(u16, &Command<'_>) -> bool) -> bool {
        self.locks.iter().all(|(group, draft)| belongs(*group, &Command::Transaction(draft.transaction())))
    }

    /// Carries out the request on what the groups have returned, and finds what each of them has to do. `draw`: a random number.
    pub(crate) fn evaluate(&mut self, found: &[Found], draw: u64) -> Evaluated {
        match self.try_evaluate(found, draw) {
            Ok(evaluated) => evaluated,
            Err(error) => Evaluated::Refused(error),
        }
    }

    fn try_evaluate(&mut self, found: &[Found], draw: u64) -> Result<Evaluated, Vec<u8>> {
        let bytes: usize = found.iter().map(|found| found.reply.len()).sum();
        if bytes > MOVED_BYTES_MAX {
            return Err(too_large());
        }
        // What one group has found expired is missing for all; what expires later, by the clock of another one, was there. Without
        // locks the time is this node's, and what a leader has returned had not expired by the leader's.
        let read = found.iter().flat_map(|found| values(self.keys_of(found.group), &found.reply));
        let deadlines = read.filter_map(|value| UnixMs::try_from(value.expiry).ok());
        let times = found.iter().map(|found| found.time);
        let now = times.chain(deadlines.map(|deadline| deadline.saturating_sub(1))).min().unwrap_or(0);
        // What is drawn at random follows from the version.
        let mut copies = Copies { table: Table::new(draw), version: draw >> 16, now };
        copies.table.set_interpreter(&LUA);
        for Found { group, reply, .. } in found {
            copies.restore(self.keys_of(*group), reply)?;
        }
        let before = copies.version;
        self.reply = ReplyBuffer::new();
        let (mut served, mut scratch) = (Draft::default(), Vec::new());
        if self.is_again {
            let waiting = self.commands.transaction().commands().next();
            let form = waiting.and_then(|it| copies.table.served_form(&it, copies.now, &mut scratch));
            let Some(command) = form else {
                self.reply.push(Reply::NullArray);
                return Ok(Evaluated::Nothing);
            };
            assert!(served.push(&command), "a transaction may hold this command");
        }
        let commands = if self.is_again { &served } else { &self.commands };
        let whole = Command::Transaction(commands.transaction());
        let work_ns = whole.walk_ns(&copies.table);
        if work_ns > EVALUATED_NS_MAX {
            return Err(error(&format!(
                "ERR what the request does with values of several shards or keyspaces would take about {} ms; at most {} ms are \
                 possible; nothing was done",
                work_ns / 1_000_000,
                EVALUATED_NS_MAX / 1_000_000
            )));
        }
        let mut reply = ReplyBuffer::new();
        copies.apply(&whole, &mut reply);
        let announcements = reply.take_announcements();
        let elements = match Reply::decode(&mut Reader::new(reply.as_bytes())) {
            Ok(Reply::Array(_)) if !self.is_array => {
                let mut reader = Reader::new(reply.as_bytes());
                let _head = Reply::decode(&mut reader);
                reader.rest()
            }
            _ => reply.as_bytes(),
        };
        // An earlier attempt has made another one.
        self.reply = ReplyBuffer::new();
        match Reply::first(elements) {
            Reply::Error(_) if self.is_move => self.reply.integer(0),
            _ => self.reply.extend_encoded(elements),
        }
        self.reply.set_announcements(announcements);
        let (mut shares, mut have_changed, mut bytes) = (Vec::new(), false, 0);
        for (group, draft) in &self.locks {
            let keys = self.keys_of(*group);
            let own = found.iter().find(|found| found.group == *group);
            let mut changes = Draft::default();
            for (key, value) in keys.iter().zip(own.into_iter().flat_map(|found| values(keys, &found.reply)))
            {
                have_changed |= copies.put_change(key, value.exists, before, &mut changes)?;
                if value.token > 0 {
                    let newest = Command::NewestToken { name: &key.name, seen: value.token };
                    assert!(changes.push(&newest), "a transaction may hold this command");
                }
            }
            if changes.is_empty() {
                // Its vote counts all the same: what it has read must be as it was when all others have prepared.
                let mut first: Option<Vec<u8>> = None;
                Command::Transaction(draft.transaction()).for_each_key(|key| {
                    first.get_or_insert_with(|| key.to_vec());
                });
                let mut scratch = Vec::new();
                let keys = List::build(&mut scratch, first.as_deref());
                assert!(changes.push(&Command::Exists { keys }), "a transaction may hold this command");
            }
            bytes += changes.bytes();
            let mut share = Vec::new();
            let built = Share::build(&Command::Transaction(changes.transaction()), &mut share);
            assert!(built.is_some(), "changes of named keys can be shared");
            shares.push((*group, share));
        }
        match have_changed {
            _ if bytes > MOVED_BYTES_MAX => Err(too_large()),
            true => Ok(Evaluated::Shares(shares)),
            false => Ok(Evaluated::Nothing),
        }
    }

    fn keys_of(&self, group: u16) -> &[Key] {
        self.keys.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Charges it for so many bytes of values. Returns the charge before, and this one.
    pub(crate) fn charge(&mut self, bytes: usize) -> (usize, usize) {
        (std::mem::replace(&mut self.charge, bytes), bytes)
    }

    /// Bytes of values for which it is charged.
    pub(crate) fn charged(&self) -> usize {
        self.charge
    }

    /// The reply of the client, once the request is carried out.
    pub(crate) fn into_reply(self) -> ReplyBuffer {
        self.reply
    }
}

/// The script without its extent, and with no more time than scripts have by default, whatever its keyspace gives them.
fn declared_alone<'s>(script: &Script<'s>, scratch: &'s mut Vec<u8>) -> Script<'s> {
    let inputs = script.keys().chain(script.arguments()).chain(script.rights());
    let cost_max = script.limits().cost_max.min(SCRIPT_COST_DEFAULT);
    let limits = ScriptLimits { cost_max, ..script.limits() };
    let (count, writes) = (script.key_count(), script.is_write());
    let alone = Script::build(scratch, script.text(), inputs, count, limits, writes);
    // For a client that caches what it reads, the declared keys are noted.
    let options = ScriptOptions { tells_reads: false, ..script.options() };
    alone.expect("it has as many inputs as before").with_options(options)
}

/// What a group has read of a key.
struct Value {
    /// Negative if there is none.
    expiry: i64,
    exists: bool,
    /// That of the lock of this name; 0 if there is none, or it was not asked for.
    token: Version,
}

/// What a group has read of its keys, in order.
fn values<'r>(keys: &'r [Key], reply: &'r [u8]) -> impl Iterator<Item = Value> + 'r {
    let mut elements = Reader::new(reply);
    let _head = Reply::decode(&mut elements);
    keys.iter().map_while(move |key| {
        let (expiry, payload) = (Reply::decode(&mut elements), Reply::decode(&mut elements));
        let (Ok(Reply::Integer(expiry)), Ok(payload)) = (expiry, payload) else { return None };
        let token = if key.may_fence { taken_token(&mut elements)? } else { 0 };
        Some(Value { expiry, exists: payload != Reply::Null, token })
    })
}

fn taken_token(elements: &mut Reader<'_>) -> Option<Version> {
    match Reply::decode(elements) {
        Ok(Reply::Integer(token)) => Version::try_from(token).ok(),
        _ => None,
    }
}

fn error(text: &str) -> Vec<u8> {
    let mut replies = ReplyBuffer::new();
    replies.error(text);
    replies.take()
}

fn too_large() -> Vec<u8> {
    error(&format!(
        "ERR the values of several shards or keyspaces that the request needs at once have more than {} MiB; nothing was done",
        MOVED_BYTES_MAX >> 20
    ))
}

/// The values that the groups have returned.
struct Copies {
    table: Table,
    version: Version,
    now: UnixMs,
}

impl Copies {
    fn apply(&mut self, command: &Command<'_>, out: &mut ReplyBuffer) {
        self.version += 1;
        self.table.apply(command, self.version, self.now, out);
    }

    /// Takes the values of a group: for each key its deadline and its payload, and perhaps the token of a lock.
    fn restore(&mut self, keys: &[Key], reply: &[u8]) -> Result<(), Vec<u8>> {
        let mut elements = Reader::new(reply);
        let unreadable =
            || error("ERR a shard has answered something else than it was asked; nothing was done");
        match Reply::decode(&mut elements) {
            Ok(Reply::Array(_)) => {}
            Ok(Reply::Error(_)) => return Err(reply.to_vec()),
            _ => return Err(unreadable()),
        }
        for key in keys {
            let (expiry, payload) = (Reply::decode(&mut elements), Reply::decode(&mut elements));
            if key.may_fence {
                match taken_token(&mut elements).ok_or_else(unreadable)? {
                    0 => {}
                    token => self.table.assume_token(key.on_copies(), token),
                }
            }
            let (expiry, payload) = match (expiry, payload) {
                (Ok(Reply::Integer(expiry)), Ok(Reply::Bulk(payload))) => (expiry, payload),
                (Ok(Reply::Integer(_)), Ok(Reply::Null)) => continue,
                (Ok(Reply::Error(text)), _) | (_, Ok(Reply::Error(text))) => {
                    return Err(error(&String::from_utf8_lossy(text)));
                }
                _ => return Err(unreadable()),
            };
            let deadline = (expiry >= 0).then_some(Deadline::At(expiry));
            let (options, mut out) =
                (RestoreOptions { replaces: true, ..Default::default() }, ReplyBuffer::new());
            let key = key.on_copies();
            self.apply(&Command::Restore { key, payload, deadline, options }, &mut out);
            if Reply::first(out.as_bytes()) != Reply::Ok {
                return Err(out.take());
            }
        }
        Ok(())
    }

    /// Adds what has changed of a key since the version `before`. Returns whether anything has.
    fn put_change(
        &mut self,
        key: &Key,
        was_there: bool,
        before: Version,
        changes: &mut Draft,
    ) -> Result<bool, Vec<u8>> {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, [key.on_copies()]);
        let mut versions = ReplyBuffer::new();
        self.table.read(&Command::Watch { keys }, self.now, &mut versions);
        let mut elements = Reader::new(versions.as_bytes());
        let _ = (Reply::decode(&mut elements), Reply::decode(&mut elements));
        let version = match Reply::decode(&mut elements) {
            Ok(Reply::Integer(version)) => Version::try_from(version).unwrap_or(0),
            _ => unreachable!("a table tells the versions of keys"),
        };
        let is_pushed = match version {
            0 if was_there => {
                let mut scratch = Vec::new();
                changes.push(&Command::Delete { keys: List::build(&mut scratch, [&*key.name]) })
            }
            0 => return Ok(false),
            version if version <= before => return Ok(false),
            _ => {
                let mut out = ReplyBuffer::new();
                let (unit, copy) = (ExpiryUnit::UnixMilliseconds, key.on_copies());
                self.table.read(&Command::TimeToLive { key: copy, unit }, self.now, &mut out);
                self.table.read(&Command::Dump { key: copy }, self.now, &mut out);
                let mut elements = Reader::new(out.as_bytes());
                let (expiry, payload) = (Reply::decode(&mut elements), Reply::decode(&mut elements));
                let (Ok(Reply::Integer(expiry)), Ok(Reply::Bulk(payload))) = (expiry, payload) else {
                    return Err(too_large());
                };
                let deadline = (expiry >= 0).then_some(Deadline::At(expiry));
                let options = RestoreOptions { replaces: true, ..Default::default() };
                changes.push(&Command::Restore { key: &key.name, payload, deadline, options })
            }
        };
        assert!(is_pushed, "a transaction may hold these commands");
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Condition, Expiry, SetAnswer};

    fn group_of(key: &[u8]) -> u16 {
        key[0].into()
    }

    /// A group's answer to its share, from a table that holds these strings.
    fn found(evaluation: &Evaluation, group: u16, values: &[(&[u8], &[u8])]) -> Found {
        let mut table = Table::new(1);
        for (version, (key, value)) in (1..).zip(values) {
            let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
            let set = Command::Set { key, value, expiry, condition, answer };
            table.apply(&set, version, 1, &mut ReplyBuffer::new());
        }
        let (_, share) = evaluation.shares().into_iter().find(|(other, _)| *other == group).unwrap();
        let mut reply = ReplyBuffer::new();
        table.read(&Share::of(&share).unwrap().command(), 5, &mut reply);
        Found { group, time: 5, reply: reply.take() }
    }

    fn commands(evaluated: &Evaluated) -> Vec<(u16, String)> {
        let Evaluated::Shares(shares) = evaluated else { panic!("{evaluated:?}") };
        let command = |share: &[u8]| format!("{:?}", Share::of(share).unwrap().command());
        shares.iter().map(|(group, share)| (*group, command(share))).collect()
    }

    #[test]
    fn each_group_gets_what_has_changed_of_its_keys() {
        let rename = Command::Rename { from: b"a", to: b"b", if_absent: false };
        let mut evaluation = Evaluation::of_command(&rename, group_of).unwrap();
        assert_eq!(evaluation.groups().collect::<Vec<_>>(), [97, 98]);
        let values = [found(&evaluation, 97, &[(b"a", b"1")]), found(&evaluation, 98, &[])];
        let commands = commands(&evaluation.evaluate(&values, 7));
        assert!(commands[0].1.contains("Delete") && commands[1].1.contains("Restore"), "{commands:?}");
        assert_eq!(Reply::first(evaluation.into_reply().as_bytes()), Reply::Ok);
    }

    #[test]
    fn another_attempt_begins_from_the_beginning() {
        let mut scratch = Vec::new();
        let pairs = List::build(&mut scratch, [&b"a"[..], b"1", b"b", b"2"]);
        let set = Command::MultiSet { pairs, if_absent: true };
        let mut evaluation = Evaluation::of_command(&set, group_of).unwrap();
        let free = [found(&evaluation, 97, &[]), found(&evaluation, 98, &[])];
        assert_eq!(commands(&evaluation.evaluate(&free, 7)).len(), 2);
        let taken = [found(&evaluation, 97, &[(b"a", b"0")]), found(&evaluation, 98, &[])];
        assert_eq!(evaluation.evaluate(&taken, 7), Evaluated::Nothing);
        assert_eq!(evaluation.into_reply().as_bytes(), {
            let mut reply = ReplyBuffer::new();
            reply.integer(0);
            reply.take()
        });
    }

    #[test]
    fn a_group_whose_keys_do_not_change_votes_all_the_same() {
        let copy = Command::Copy { from: b"a", to: b"b", replace: true };
        let mut evaluation = Evaluation::of_command(&copy, group_of).unwrap();
        let values = [found(&evaluation, 97, &[(b"a", b"1")]), found(&evaluation, 98, &[(b"b", b"2")])];
        let commands = commands(&evaluation.evaluate(&values, 7));
        assert!(commands[0].1.contains("Exists") && commands[1].1.contains("Restore"), "{commands:?}");
    }

    #[test]
    fn what_a_leader_returns_has_not_expired_whatever_the_clock_here_says() {
        let mut scratch = Vec::new();
        let exists = Command::Exists { keys: List::build(&mut scratch, [&b"a"[..], b"b"]) };
        let mut evaluation = Evaluation::of_command(&exists, group_of).unwrap();
        let mut table = Table::new(1);
        let (condition, answer) = (Condition::Always, SetAnswer::Status);
        let expiry = Expiry::Set(Deadline::At(9));
        table.apply(
            &Command::Set { key: b"a", value: b"1", expiry, condition, answer },
            1,
            1,
            &mut ReplyBuffer::new(),
        );
        let mut reply = ReplyBuffer::new();
        table.read(&Command::Transaction(evaluation.locks()[&97].transaction()), 8, &mut reply);
        let late = Found { group: 97, time: 20, reply: reply.take() };
        let values = [late, Found { time: 20, ..found(&evaluation, 98, &[]) }];
        assert_eq!(evaluation.evaluate(&values, 7), Evaluated::Nothing);
        assert_eq!(Reply::first(evaluation.into_reply().as_bytes()), Reply::Integer(1));
    }

    #[test]
    fn what_would_take_long_on_the_copies_is_refused() {
        let mut draft = Draft::default();
        draft.push(&Command::Rename { from: b"a", to: b"b", if_absent: false });
        let keys = vec![&b"s"[..]; 50];
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, keys);
        let union = kv::SetCommand::Combine { operation: kv::SetOperation::Union, keys };
        for _ in 0..50 {
            assert!(draft.push(&Command::OnSet(union)));
        }
        let mut evaluation = Evaluation::of_transaction(&draft.transaction(), group_of, |_| 0).unwrap();
        let mut table = Table::new(1);
        let members: Vec<Vec<u8>> = (0..1000).map(|member: u32| member.to_string().into_bytes()).collect();
        let mut scratch = Vec::new();
        let members = List::build(&mut scratch, members.iter().map(Vec::as_slice));
        let add = Command::OnSet(kv::SetCommand::Add { key: b"s", members });
        table.apply(&add, 1, 1, &mut ReplyBuffer::new());
        let (group, share) = evaluation.shares().into_iter().find(|(group, _)| *group == 115).unwrap();
        let mut reply = ReplyBuffer::new();
        table.read(&Share::of(&share).unwrap().command(), 5, &mut reply);
        let values = [
            found(&evaluation, 97, &[(b"a", b"1")]),
            found(&evaluation, 98, &[]),
            Found { group, time: 5, reply: reply.take() },
        ];
        let Evaluated::Refused(error) = evaluation.evaluate(&values, 7) else { panic!("it is short") };
        assert!(
            matches!(Reply::first(&error), Reply::Error(text) if text.starts_with(b"ERR what the request"))
        );
    }

    #[test]
    fn what_is_larger_than_the_bound_is_refused() {
        let copy = Command::Copy { from: b"a", to: b"b", replace: true };
        let mut evaluation = Evaluation::of_command(&copy, group_of).unwrap();
        let large = vec![0; MOVED_BYTES_MAX];
        let values = [found(&evaluation, 97, &[(b"a", &large)]), found(&evaluation, 98, &[])];
        assert!(matches!(evaluation.evaluate(&values, 7), Evaluated::Refused(_)));
    }
}
