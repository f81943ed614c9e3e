//! Applying: decided entries take effect, in order, once.

use super::entry::Entry;
use super::group::Group;
use super::log::Log;
use super::options::{Options, Settings};
use super::proposals::Proposal;
use super::reads::Reads;
use super::record::Moment;
use crate::coded::{FragmentStore, Kept, KeptPiece, StoredPiece};
use crate::contract::{Effects, Now, TOO_MUCH_AT_ONCE, not_before};
use crate::planted::{Fault, Planted, in_table};
use crate::waiters::Notifier;
use crate::watching;
use kv::codec::Reader;
use kv::locks::{LockEvent, LockNotification};
use kv::table::{CodedChanges, SnapshotId, Spilled, WARMED_KEYS_MAX};
use kv::{
    Command, Interpreter, LockCommand, NoInterpreter, Reference, Reply, ReplyBuffer, SKIPPED_VERSIONS, Table,
    UnixMs, ValueId, Version,
};

/// The table, the number of entries that it holds, and the fragments that its values refer to.
#[derive(Debug)]
pub(super) struct Applied {
    /// Exactly the result of the first `index` entries.
    table: Table,
    index: usize,
    /// The number of commands in these entries.
    offset: Version,
    /// The time of the newest of these entries.
    time: UnixMs,
    /// Runs scripts.
    interpreter: &'static dyn Interpreter,
    /// Neither this record nor any later one is applied.
    stands_before: Option<Version>,
    /// Decided entries wait for the next turn, because those of this one took long.
    owes: bool,
    fragments: FragmentStore,
}

/// The requests, besides the table, that an entry concerns.
pub(super) struct Audience<'a> {
    pub(super) planted: Planted,
    /// This replica's proposal of it, with the requests that wait for its commands.
    pub(super) proposal: Option<&'a Proposal>,
    /// The reads that came while it was built.
    pub(super) within: Option<&'a mut Reads>,
    /// The epoch in which those reads are answered.
    pub(super) epoch: u64,
    pub(super) notifier: Notifier,
}

impl Audience<'_> {
    /// No requests: the entry was ordered in an earlier incarnation.
    pub(super) fn none(settings: &Settings) -> Audience<'static> {
        let notifier = Notifier { node: settings.id, is_leader: false };
        Audience { planted: settings.options.planted, proposal: None, within: None, epoch: 0, notifier }
    }
}

impl Applied {
    /// Without entries.
    pub(super) fn new(seed: u64, options: Options) -> Applied {
        Applied {
            table: new_table(seed, options),
            index: 0,
            offset: 0,
            time: 0,
            interpreter: &NoInterpreter,
            stands_before: None,
            owes: false,
            fragments: FragmentStore::new(options.spill_bytes_min < usize::MAX),
        }
    }

    /// How many entries are applied.
    #[inline]
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// The number of commands in the entries that are applied.
    #[inline]
    pub(super) fn offset(&self) -> Version {
        self.offset
    }

    /// True when this is a state of the group, and not the empty table before it has any.
    pub(super) fn is_filled(&self) -> bool {
        self.index > 0
    }

    /// The time of a command or read that is executed now.
    #[inline]
    pub(super) fn time_at(&self, now: Now) -> UnixMs {
        now.unix_ms_behind(self.time)
    }

    /// True when decided entries wait for the next turn.
    pub(super) fn owes(&self) -> bool {
        self.owes
    }

    #[inline]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// The table, for everything but entries: snapshots, watching, cleaning, values on the disk.
    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    pub(super) fn set_interpreter(&mut self, interpreter: &'static dyn Interpreter) {
        self.interpreter = interpreter;
        self.table.set_interpreter(interpreter);
    }

    /// A configuration comes into force. During replay, entries of the previous one may not be applied yet: then its stop-sign
    /// sets the table's membership later.
    pub(super) fn enter(&mut self, group: &Group) {
        if self.index as u64 >= group.begins {
            self.table.set_membership(group.id);
        }
    }

    /// Makes it stop before this record.
    pub(super) fn stand_before(&mut self, record: Option<Version>) {
        self.stands_before = record;
    }

    /// True when it stops before a record.
    pub(super) fn stands_still(&self) -> bool {
        self.stands_before.is_some()
    }

    // Entries.

    /// The total time of scripts, in nanoseconds, at which enough is applied for one turn.
    pub(super) fn enough_ns(&self, settings: &Settings) -> u64 {
        self.table.scripts_ns() + settings.timing.applying_ns
    }

    /// The next of the `decided` entries, unless scripts have taken long enough, or it holds the record to stop before.
    pub(super) fn next(&mut self, log: &Log, decided: usize, enough_ns: u64) -> Option<Entry> {
        let is_due = self.index < decided;
        self.owes = is_due && self.table.scripts_ns() >= enough_ns;
        if !is_due || self.owes {
            return None;
        }
        let entry = log.entry(self.index)?;
        let last = self.offset + Version::from(entry.head().count);
        let stands_before = self.stands_before.is_some_and(|record| self.offset < record && record <= last);
        (!stands_before).then_some(entry)
    }

    /// Carries out the next entry. Returns the lock events.
    pub(super) fn carry_out(
        &mut self,
        entry: &Entry,
        audience: Audience<'_>,
        effects: &mut Effects,
    ) -> Option<Vec<LockEvent>> {
        // The times of entries of different leaders may be out of order.
        self.time = not_before(entry.head().time, self.time);
        if let Some(stop_sign) = entry.stop_sign() {
            // Whatever configuration this replica is in by now: what follows in the log belongs to this one.
            self.table.set_membership(stop_sign.id);
        }
        let Audience { planted, proposal, within, epoch, notifier } = audience;
        let mut within =
            within.filter(|reads| !reads.is_empty()).zip(proposal.map(|proposal| proposal.batch));
        let mut carried_out = 0;
        let mut askers = proposal.map(|proposal| proposal.askers.iter()).into_iter().flatten();
        let mut reader = entry.commands();
        let mut commands = Vec::with_capacity(WARMED_KEYS_MAX);
        while next_commands(&mut reader, &self.table, &mut commands) {
            for command in &commands {
                self.offset += 1;
                carried_out += 1;
                if planted.has(Fault::AbandonedValueStored) && self.forgets_abandoned(command) {
                    askers.next();
                } else if let Some(Some((ticket, _))) = askers.next() {
                    let start = effects.replies.len();
                    let version = self.table.apply(command, self.offset, self.time, &mut effects.replies);
                    effects.done(*ticket, start, version, self.offset);
                } else {
                    self.apply_unasked(command, notifier, effects);
                }
                if let Some((reads, batch)) = &mut within {
                    self.answer_within(reads, (*batch, carried_out), epoch, effects);
                }
            }
        }
        self.index += 1;
        self.table.take_lock_events()
    }

    /// Applies a command that no request here waits for: the request ended with an unknown outcome, or was made to another
    /// replica. If the command requests a lock and gets it at once, the coordinator is still notified.
    fn apply_unasked(&mut self, command: &Command<'_>, notifier: Notifier, effects: &mut Effects) {
        let mut inner = None;
        let unbounded = command.unbounded(&mut inner);
        let &Command::Lock(LockCommand::Acquire { name, waiter: Some(waiter), .. }) = unbounded else {
            return self.table.apply_unasked(command, self.offset, self.time);
        };
        let mut reply = ReplyBuffer::new();
        self.table.apply(command, self.offset, self.time, &mut reply);
        if let Reply::Integer(token) = Reply::first(reply.as_bytes()) {
            notifier.notify(
                waiter,
                name.into(),
                LockNotification::Granted(token as u64),
                self.offset,
                effects,
            );
        }
    }

    /// Answers the reads that wait in a batch after the commands that have just been applied.
    ///
    /// They are as good as entries of the log: the batch was proposed after they came, so its index is higher than that of
    /// everything that was acknowledged by then; and it is decided. No lease is needed.
    fn answer_within(&mut self, reads: &mut Reads, place: (u64, usize), epoch: u64, effects: &mut Effects) {
        while let Some(read) = reads.pop_if(|read| (read.behind, read.after) == place) {
            // Later it would show the effects of commands that follow it in the batch.
            if effects.replies.is_over_full() {
                effects.refuse(read.ticket, TOO_MUCH_AT_ONCE);
            } else if let Ok(command) = Command::decode(&mut Reader::new(reads.command(&read))) {
                let start = effects.replies.len();
                let version =
                    watching::read(&mut self.table, epoch, &command, self.time, &mut effects.replies);
                effects.done(read.ticket, start, version, 0);
            }
        }
        reads.forget();
    }

    /// Answers a read from what is applied.
    #[inline]
    pub(super) fn read(
        &mut self,
        now: Now,
        epoch: u64,
        command: &Command<'_>,
        replies: &mut ReplyBuffer,
    ) -> Version {
        let time = self.time_at(now);
        watching::read(&mut self.table, epoch, command, time, replies)
    }

    // Snapshots.

    /// The moment that the table shows now, given the current configuration.
    pub(super) fn moment(&self, group: &Group) -> Moment {
        let floor = self.table.version_floor();
        Moment { index: self.index as u64, offset: self.offset, time: self.time, floor, group: group.clone() }
    }

    /// Begins a snapshot of the table.
    pub(super) fn begin_snapshot(&mut self, _planted: Planted) -> SnapshotId {
        let snapshot = self.table.begin_snapshot();
        #[cfg(feature = "planted-bugs")]
        if _planted.has(Fault::PartsNotInSnapshot) {
            self.table.leave_out_long(snapshot);
        }
        snapshot
    }

    /// Replaces the table by that of a snapshot.
    pub(super) fn put_in_place(&mut self, mut table: Table, moment: &Moment) {
        table.set_version_floor(moment.floor);
        table.set_interpreter(self.interpreter);
        table.take_watched_of(&mut self.table);
        table.take_followers_of(&mut self.table);
        table.take_spilled_of(&mut self.table);
        self.table = table;
        self.index = moment.index as usize;
        self.offset = moment.offset;
        self.time = moment.time;
    }

    // Fragments.

    pub(super) fn fragments(&self) -> &FragmentStore {
        &self.fragments
    }

    /// Keeps a piece of a fragment, whose value is looked up in the table.
    pub(super) fn keep(&mut self, piece: &KeptPiece, now_us: u64) -> Kept {
        self.fragments.keep(piece, &self.table, now_us)
    }

    /// Takes a piece that is in the node's store according to a checkpoint.
    pub(super) fn restore_piece(&mut self, piece: &StoredPiece, now_us: u64) {
        self.fragments.restore(piece, &self.table, now_us);
    }

    pub(super) fn lose_piece(&mut self, name: &Reference, now_us: u64) {
        self.fragments.lose(name, &self.table, now_us);
    }

    /// What has happened to values on the disk, and to pieces of fragments there.
    #[inline]
    pub(super) fn take_spilled(&mut self) -> Option<Spilled> {
        let mut news = self.table.take_spilled();
        if let Some(more) = self.fragments.take_spilled() {
            news.get_or_insert_default().append(more);
        }
        news
    }

    /// A piece of a fragment is in this record.
    pub(super) fn note_piece_recorded(&mut self, id: ValueId, record: u64) {
        self.fragments.recorded(id, record);
    }

    pub(super) fn forget_fragment(&mut self, id: ValueId) {
        self.fragments.forget(id);
    }

    /// Drops fragments of overwritten values after their grace period, and beyond its limit of bytes.
    pub(super) fn drop_old_fragments(&mut self, now: Now, settings: &Settings) {
        let before_us = now.monotonic_us.saturating_sub(settings.timing.fragment_grace_ms * 1000);
        self.fragments.let_go(before_us, settings.timing.fragment_grace_bytes);
    }

    /// Updates the fragments to what was applied.
    pub(super) fn follow_values(&mut self, now_us: u64) {
        if let Some(changes) = self.table.take_coded_changes() {
            self.fragments.follow(&changes, &self.table, now_us);
        }
    }

    /// A planted fault: values are abandoned and their fragments dropped, but the table does not record it. No request waits
    /// for the outcome of such a command.
    fn forgets_abandoned(&mut self, command: &Command<'_>) -> bool {
        let Command::Abandon { coordinator, counter } = *command else { return false };
        let abandoned = [(coordinator, counter)].into();
        let changes = CodedChanges { abandoned, ..CodedChanges::default() };
        self.fragments.follow(&changes, &self.table, 0);
        true
    }

    /// Matches the fragments with a table that has been replaced, of this membership.
    pub(super) fn match_fragments(&mut self, membership: u32, now_us: u64) {
        self.table.take_coded_changes();
        self.table.set_membership(membership);
        self.fragments.match_with(&self.table, now_us);
    }

    // Invariants.

    /// Only decided entries are applied, and only applied ones are cut off.
    pub(super) fn what_is_applied_is_decided(&self, log: &Log) {
        let (base, applied, decided) = (log.base(), self.index, log.decided());
        assert!(applied <= decided, "{applied} entries are applied, and {decided} decided");
        assert!(decided <= log.end(), "{decided} entries are decided, and {} held", log.end());
        assert!(base <= applied, "{base} entries are cut off, and {applied} applied");
    }

    /// The offset is that of the log: replicas that have applied the same number of entries have executed the same commands.
    pub(super) fn versions_are_offsets_of_what_is_applied(&self, log: &Log) {
        let offset = log.offset_at(self.index);
        assert_eq!(Some(self.offset), offset, "the commands of {} entries", self.index);
        // After recoveries it is above a multiple of the versions that these skip.
        let floor = self.table.version_floor() % SKIPPED_VERSIONS;
        assert!(floor <= self.offset, "a key has version {floor}, and {} commands are applied", self.offset);
    }
}

/// An empty table.
pub(super) fn new_table(seed: u64, options: Options) -> Table {
    let mut table = Table::new(seed);
    table.spill_from(options.spill_bytes_min);
    table.plant(in_table(options.planted));
    table
}

/// Decodes the next commands and loads the memory that they need all at once; false when none are left.
fn next_commands<'a>(reader: &mut Reader<'a>, table: &Table, commands: &mut Vec<Command<'a>>) -> bool {
    commands.clear();
    while commands.len() < WARMED_KEYS_MAX && !reader.is_empty() {
        commands.push(Command::decode(reader).expect("entries are checked before they are kept"));
    }
    if commands.len() > 1 {
        table.warm_for(commands.iter());
    }
    !commands.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::kit::{entry, settings, ticket};
    use super::*;
    use omnipaxos::ballot_leader_election::Ballot;

    #[test]
    fn entries_are_carried_out_in_order_and_stop_before_the_given_record() {
        let (settings, mut log) = (settings(1), Log::default());
        log.append(vec![entry(1, 1, &["a", "b"]), entry(1, 2, &["c", "d"])]);
        let mut applied = Applied::new(1, settings.options);
        let apply = |applied: &mut Applied, decided| {
            while let Some(entry) = applied.next(&log, decided, u64::MAX) {
                applied.carry_out(&entry, Audience::none(&settings), &mut Effects::default());
            }
            applied.versions_are_offsets_of_what_is_applied(&log);
            (applied.index(), applied.offset())
        };
        assert_eq!(apply(&mut applied, 0), (0, 0));
        applied.stand_before(Some(4));
        assert_eq!(apply(&mut applied, 2), (1, 2), "the whole entry waits");
        applied.stand_before(None);
        assert_eq!(apply(&mut applied, 2), (2, 4));
        assert!(!applied.owes());
    }

    #[test]
    fn each_request_is_answered_with_the_version_of_its_own_command() {
        let (settings, mut effects) = (settings(1), Effects::default());
        let mut applied = Applied::new(1, settings.options);
        let askers = vec![Some((ticket(1), 0)), None, Some((ticket(3), 0))];
        let (ballot, proposed_us, bytes, work_ns) = (Ballot::default(), 0, 0, 0);
        let proposal = Proposal { batch: 1, index: 0, ballot, proposed_us, bytes, work_ns, askers };
        let audience = Audience { proposal: Some(&proposal), ..Audience::none(&settings) };
        applied.carry_out(&entry(1, 1, &["a", "b", "c"]), audience, &mut effects);
        let ends = effects.outcomes.iter().map(|outcome| match outcome.result {
            crate::contract::Result::Done { offset, .. } => (outcome.ticket.sequence, offset),
            _ => (outcome.ticket.sequence, 0),
        });
        assert_eq!(ends.collect::<Vec<_>>(), [(1, 1), (3, 3)]);
    }
}
