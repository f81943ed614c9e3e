//! Transactions over several groups: what a group does for them. For its state see [`crate::two_phase`].
//!
//! Between its vote and the end of a transaction nothing but that transaction changes or reads its keys here. So what its share
//! does is known when it is prepared: the replies are found on a table of copies ([`Table::foretell`]).

use super::changes::ChangeClass;
use super::draws::mix;
use super::queues::Ready;
use super::scripts::At;
use super::{Record, Table, WARMED_KEYS_MAX};
use crate::Version;
use crate::codec::Reader;
use crate::command::{Command, Header, Share, TransactionId, TwoPhaseCommand};
use crate::limits::LOCKED_READ_NS_MAX;
use crate::planted::Fault;
use crate::reply::{Reply, ReplyBuffer};
use crate::two_phase::{Locks, Prepared, TwoPhase, Vote};
use arrayvec::ArrayVec;
use std::collections::BTreeMap;

/// The version of a command that was not carried out since a key is locked ([`Table::is_blocked`]): it has to be sent again.
pub const BLOCKED: Version = Version::MAX;

const LOCKED: &str =
    "TRYAGAIN LOCKED a transaction over several shards has locked the key; nothing was done, try again";

const TOO_LONG_TO_MOVE: &str = "ERR the values that the request needs of several shards or keyspaces are too large to be moved; nothing was \
     done";

const KNOWS_PRODUCERS: &str = "ERR a stream that knows what its producers have sent (XADD … IDMP) cannot be used in one step with keys \
     of other shards or keyspaces; nothing was done";

impl Table {
    /// The transactions over several groups that the group takes part in.
    pub fn two_phase(&self) -> &TwoPhase {
        &self.two_phase
    }

    /// Whether a transaction has locked what a command concerns: then the command must wait. Commands on all keys wait for all
    /// transactions.
    #[inline]
    pub fn is_blocked(&self, command: &Command<'_>) -> bool {
        let two_phase = &self.two_phase;
        two_phase.locks_any()
            && self.meets(command, (two_phase.locked(), two_phase.all_locked_by()), &|_| true)
    }

    /// Whether a command concerns one of these keys, or any if all keys are locked: of those that count, by what holds them. A
    /// command on all keys concerns all of them.
    #[cold]
    pub fn meets<T>(
        &self,
        command: &Command<'_>,
        held: (&BTreeMap<Box<[u8]>, T>, Option<&T>),
        counts: &impl Fn(&T) -> bool,
    ) -> bool {
        use Command::*;
        let (locked, all) = held;
        let are_all = all.is_some_and(counts);
        match *command {
            Bounded(ref bounded) => return self.meets(&bounded.command(), held, counts),
            LongEnd { id, .. } => {
                let whole = self.long_command(id).map(|bytes| Command::decode(&mut Reader::new(bytes)));
                return matches!(whole, Some(Ok(command)) if self.meets(&command, held, counts));
            }
            Transaction(ref transaction)
                if transaction.commands().any(|command| self.meets(&command, held, counts)) =>
            {
                return true;
            }
            Supplied(ref supplied) => {
                return supplied.command().is_some_and(|command| self.meets(&command, held, counts));
            }
            // The names of locks are no keys; and a transaction that meets a lock votes against itself.
            Lock(_) | TwoPhase(_) => return false,
            Script(_) if are_all => return true,
            Script(script) if script.has_extent() => {
                let extends_to = |key: &[u8]| script.extent().any(|prefix| key.starts_with(prefix));
                if locked.iter().any(|(key, by)| counts(by) && extends_to(key)) {
                    return true;
                }
            }
            _ if command.is_on_all_keys() => return are_all || locked.values().any(counts),
            _ => {}
        }
        let mut meets = false;
        command.for_each_key(|key| meets = meets || are_all || locked.get(key).is_some_and(counts));
        meets
    }

    /// Refuses a command that is blocked.
    #[cold]
    pub(super) fn refuse_blocked(out: &mut ReplyBuffer) -> Version {
        out.error(LOCKED);
        BLOCKED
    }

    pub(super) fn read_two_phase(&self, command: &TwoPhaseCommand<'_>, out: &mut ReplyBuffer) {
        match *command {
            TwoPhaseCommand::Ask { id } => out.push(Reply::Status(self.two_phase.vote(id).word().as_bytes())),
            _ => out.error("ERR a write has to be ordered before it is applied"),
        }
    }

    pub(super) fn apply_two_phase(
        &mut self,
        command: &TwoPhaseCommand<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        match *command {
            TwoPhaseCommand::Prepare { header, share, .. } => self.prepare(header, share, record, out),
            TwoPhaseCommand::Lock { header, share, .. } => self.lock_keys(header, share, record, out),
            TwoPhaseCommand::PrepareLocked { header, share } => {
                self.prepare_locked(header, share, record, out);
            }
            TwoPhaseCommand::Resolve { header }
                if self.queues.has_planted(Fault::RefusalForgotten)
                    && self.two_phase.vote(header.id()) == Vote::Unknown =>
            {
                out.array(1);
                out.push(Reply::Status(Vote::Refused.word().as_bytes()));
            }
            TwoPhaseCommand::Resolve { header } => {
                self.ending(header.id(), record, |two_phase| two_phase.resolve(header));
                self.answer_vote(header.id(), out);
            }
            TwoPhaseCommand::Commit { header } => match self.two_phase.finish(header, true) {
                Some(prepared) => {
                    self.changes.note_transaction(&header);
                    self.carry_out_share(&prepared, record, out);
                }
                None => self.answer_vote(header.id(), out),
            },
            TwoPhaseCommand::Abort { header } => {
                self.ending(header.id(), record, |two_phase| two_phase.finish(header, false));
                self.answer_vote(header.id(), out);
            }
            TwoPhaseCommand::Forget { coordinator, numbers } => {
                let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
                self.two_phase.forget(coordinator, numbers.chunks_exact(8).filter_map(number));
                out.ok();
            }
            // Answered by `read_two_phase`.
            TwoPhaseCommand::Ask { .. } => {}
        }
        self.observe();
        self.raise_floor(record);
    }

    fn answer_vote(&self, id: TransactionId, out: &mut ReplyBuffer) {
        out.array(1);
        out.push(Reply::Status(self.two_phase.vote(id).word().as_bytes()));
    }

    /// Votes. The reply is `[PREPARED, reply]`, or the vote against it, with the reason if it was cast here: the number of the
    /// transaction that is in the way, or null if a watched key has changed.
    fn prepare(&mut self, header: Header<'_>, share: Share<'_>, record: Record, out: &mut ReplyBuffer) {
        let id = header.id();
        let command = share.command();
        if self.two_phase.begin(&header) == Vote::Unknown {
            let is_unchanged = self.is_unchanged(&command, record);
            let prepared = self.prepared_by(share, record);
            let in_the_way = self.two_phase.prepare(header, prepared, is_unchanged);
            if self.two_phase.vote(id) == Vote::Refused {
                return refuse(in_the_way, out);
            }
            self.note_prepared(&command);
        }
        if self.two_phase.vote(id) != Vote::Prepared {
            return self.answer_vote(id, out);
        }
        out.array(2);
        out.push(Reply::Status(Vote::Prepared.word().as_bytes()));
        // A script that ends the process does so here, on every replica: this record can be skipped, and its end cannot.
        match self.is_quiet && !runs_script(&command) {
            true => out.null(),
            false => self.foretell(id, out),
        }
    }

    /// The share that a record will evaluate, if the group takes it as things are.
    #[cold]
    pub(super) fn evaluated_by<'a>(&self, command: &TwoPhaseCommand<'a>) -> Option<Share<'a>> {
        let (header, share) = match *command {
            TwoPhaseCommand::Prepare { header, share, .. }
            | TwoPhaseCommand::Lock { header, share, .. }
            | TwoPhaseCommand::PrepareLocked { header, share } => (header, share),
            _ => return None,
        };
        let is_evaluated = match self.two_phase.vote(header.id()) {
            Vote::Unknown => {
                let mut are_free = !share.is_on_all_keys() || !self.two_phase.locks_any();
                share.command().for_each_key(|key| are_free &= !self.two_phase.locks(key));
                are_free
            }
            Vote::Locked => true,
            // A share that is prepared has the values that it needs.
            _ => false,
        };
        is_evaluated.then_some(share)
    }

    fn is_unchanged(&self, command: &Command<'_>, record: Record) -> bool {
        match command {
            Command::Transaction(transaction) => self.is_as_it_was(transaction, record.time),
            _ => true,
        }
    }

    fn prepared_by(&self, share: Share<'_>, Record { version, time, .. }: Record) -> Prepared {
        let (share, bound) = (share.bytes().into(), self.charges.bound());
        Prepared { share, locks: None, values: self.supplied_values(), bound, version, time }
    }

    /// Tells those who cache the keys that they will change.
    fn note_prepared(&mut self, command: &Command<'_>) {
        if command.is_write() && self.changes.is_followed() {
            command.for_each_key(|key| self.changes.note_as(key, ChangeClass::Locked, ""));
        }
    }

    /// Locks keys without a vote. The reply is `[LOCKED, time, reply]` with what the share has read, or as that of `Prepare`.
    fn lock_keys(&mut self, header: Header<'_>, share: Share<'_>, record: Record, out: &mut ReplyBuffer) {
        let (id, command) = (header.id(), share.command());
        // Replicas have to agree on what it costs; what a script has cost here is not the same everywhere.
        if command.is_write() || runs_script(&command) {
            return out.error("ERR what is done while keys are locked may only read");
        }
        if command.walk_ns(&At(self, record.time)) > LOCKED_READ_NS_MAX {
            return out.error(TOO_LONG_TO_MOVE);
        }
        let mut cannot_move = false;
        command.for_each_key(|key| cannot_move |= self.knows_producers(key, record.time));
        if cannot_move {
            return out.error(KNOWS_PRODUCERS);
        }
        let locks = !self.queues.has_planted(Fault::ValuesNotLocked);
        if self.two_phase.begin(&header) == Vote::Unknown && locks {
            let is_unchanged = self.is_unchanged(&command, record);
            let in_the_way = self.two_phase.lock(header, locks_of(share, record), is_unchanged);
            if self.two_phase.vote(id) == Vote::Refused {
                return refuse(in_the_way, out);
            }
        }
        if self.two_phase.vote(id) != Vote::Locked && locks {
            return self.answer_vote(id, out);
        }
        out.array(3);
        out.push(Reply::Status(Vote::Locked.word().as_bytes()));
        out.integer(i64::try_from(record.time).unwrap_or(i64::MAX));
        match self.is_quiet {
            true => out.null(),
            false => {
                self.read_within(&unconditional(command), record.time, out);
            }
        }
    }

    /// Votes, where the keys are locked: against the transaction, if the token of its fence has changed since. A command of the share
    /// that would fail, as there is no memory for it, refuses the whole: what the other groups do was found by one run of all
    /// commands, and this group cannot do less.
    fn prepare_locked(
        &mut self,
        header: Header<'_>,
        share: Share<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let id = header.id();
        match self.two_phase.begin(&header) {
            Vote::Locked => {}
            Vote::Unknown if self.queues.has_planted(Fault::ValuesNotLocked) => {
                return self.prepare(header, share, record, out);
            }
            Vote::Unknown => {
                // The lock is lost, with what the group had acknowledged.
                self.two_phase.resolve(header);
                return self.answer_vote(id, out);
            }
            _ => return self.answer_vote(id, out),
        }
        if !self.has_tokens_of(&share.command()) {
            // The transaction begins again.
            self.ending(id, record, |two_phase| two_phase.give_up(id));
            return self.answer_vote(id, out);
        }
        let mut reply = ReplyBuffer::new();
        if self.two_phase.prepare_locked(id, self.prepared_by(share, record)) {
            self.foretell(id, &mut reply);
        } else {
            reply.error("ERR a share names a key that is not locked");
        }
        match first_error(reply.as_bytes()) {
            None => {
                self.note_prepared(&share.command());
                out.array(1);
                out.push(Reply::Status(Vote::Prepared.word().as_bytes()));
            }
            Some(error) => {
                self.ending(id, record, |two_phase| two_phase.give_up(id));
                out.array(2);
                out.push(Reply::Status(Vote::Refused.word().as_bytes()));
                out.push(Reply::Error(error));
            }
        }
    }

    /// Whether the newest tokens of locks are those that a share names.
    fn has_tokens_of(&self, command: &Command<'_>) -> bool {
        match *command {
            Command::Transaction(transaction) => transaction.commands().all(|it| self.has_tokens_of(&it)),
            Command::NewestToken { name, seen } => self.locks.newest_token(name) == seen,
            _ => true,
        }
    }

    /// Carries out a change by which a transaction may end here without having taken effect.
    fn ending<R>(&mut self, id: TransactionId, record: Record, change: impl FnOnce(&mut TwoPhase) -> R) {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        self.two_phase.for_each_locked_by(id, |key| keys.push(key.into()));
        let had_all = self.two_phase.all_locked_by() == Some(&id);
        change(&mut self.two_phase);
        let are_unlocked = match had_all {
            true => self.two_phase.all_locked_by().is_none(),
            false => keys.first().is_some_and(|key| !self.two_phase.locks(key)),
        };
        if are_unlocked {
            self.note_unlocked(&keys, had_all, record);
        }
    }

    /// Appends the reply that a prepared share will give, found on copies of its keys. O(1) for a large collection, whose nodes
    /// are shared.
    fn foretell(&mut self, id: TransactionId, out: &mut ReplyBuffer) {
        let Some(prepared) = self.two_phase.prepared_share(id) else {
            unreachable!("it has just been prepared")
        };
        let Prepared { bound, version, time, .. } = *prepared;
        let share = prepared.share();
        let command = unconditional(share.command());
        let mut copies = Table::new(0);
        copies.interpreter = self.interpreter;
        copies.floor = version.saturating_sub(1);
        self.warm_keys(&command);
        command.for_each_key(|key| {
            if let Some((_, entry)) = self.find(self.index.hash(key), key) {
                copies.put_entry(entry.under(key, entry.stamp()), Record { version: entry.version(), time });
            }
        });
        copies.put_supplied(prepared.supplied(), Record { version, time });
        copies.begin_share(version, bound);
        // What scripts publish leaves with the end of the transaction alone.
        let before = out.take_announcements();
        copies.carry_out(&command, Record { version, time }, out);
        out.set_announcements(before);
        self.scripts_ns += copies.scripts_ns;
    }

    /// [`Table::warm`] for the keys of a share.
    fn warm_keys(&self, share: &Command<'_>) {
        let mut keys: ArrayVec<&[u8], WARMED_KEYS_MAX> = ArrayVec::new();
        share.for_each_key(|key| {
            keys.push(key);
            if keys.is_full() {
                self.warm(keys.drain(..));
            }
        });
        self.warm(keys.drain(..));
    }

    /// Sets what the commands of a share depend on beside their keys.
    fn begin_share(&mut self, version: Version, bound: Option<u64>) {
        self.write_seed = mix(version);
        self.charges.begin(bound);
    }

    /// Carries out a share that all deciding groups have prepared. It does what was foretold: its time and its random numbers are
    /// those of the record that has prepared it, and nothing else has changed its keys since.
    fn carry_out_share(&mut self, prepared: &Prepared, record: Record, out: &mut ReplyBuffer) {
        let share = prepared.share();
        out.array(2);
        out.push(Reply::Status(Vote::Committed.word().as_bytes()));
        self.begin_share(prepared.version, prepared.bound);
        let own = Record { version: record.version, time: prepared.time };
        for (key, reference, _) in prepared.supplied() {
            let held = self.find(self.index.hash(key), key).and_then(|(_, entry)| entry.reference());
            assert_eq!(held, Some(reference), "a locked key keeps its value");
        }
        self.put_supplied(prepared.supplied(), own);
        self.warm_keys(&share.command());
        self.carry_out(&unconditional(share.command()), own, out);
        self.charges.end();
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        if !self.queues.nobody_waits() {
            prepared.for_each_locked(|key| keys.push(key.into()));
        }
        self.note_unlocked(&keys, prepared.share().is_on_all_keys(), record);
    }

    /// After keys were unlocked, these or all: what was to go back to one of them goes back, and requests that wait are served after
    /// the record.
    fn note_unlocked(&mut self, keys: &[Box<[u8]>], are_all: bool, record: Record) {
        let mut ready = Ready::new();
        for (origin, reply) in self.two_phase.take_returned() {
            self.put_back_taken(origin, reply, record, &mut ready);
        }
        if self.queues.nobody_waits() {
            return;
        }
        ready.iter().for_each(|key| self.note_written(key));
        match self.two_phase.take_stalled() | are_all {
            true => self.note_all_written(),
            false => keys.iter().for_each(|key| self.note_written(key)),
        }
    }
}

/// Refuses a transaction: another one is in the way, or a watched key has changed.
fn refuse(in_the_way: Option<TransactionId>, out: &mut ReplyBuffer) {
    out.array(2);
    out.push(Reply::Status(Vote::Refused.word().as_bytes()));
    match in_the_way {
        Some(other) => out.bulk(&other.encoded()),
        None => out.null(),
    }
}

fn locks_of(share: Share<'_>, record: Record) -> Locks {
    Locks { share: share.bytes().into(), version: record.version }
}

/// The first error in a reply, at any depth.
fn first_error(reply: &[u8]) -> Option<&[u8]> {
    let mut elements = Reader::new(reply);
    while !elements.is_empty() {
        if let Reply::Error(error) = Reply::decode(&mut elements).expect("it was encoded here") {
            return Some(error);
        }
    }
    None
}

fn runs_script(command: &Command<'_>) -> bool {
    match command {
        Command::Transaction(transaction) => {
            transaction.commands().any(|it| matches!(it, Command::Script(_)))
        }
        command => matches!(command, Command::Script(_)),
    }
}

/// The command without its condition, which was checked when it was prepared.
fn unconditional(command: Command<'_>) -> Command<'_> {
    match command {
        Command::Transaction(transaction) => Command::Transaction(transaction.unconditional()),
        command => command,
    }
}
