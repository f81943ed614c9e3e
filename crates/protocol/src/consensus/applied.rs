//! Applying: what is decided takes effect, in order, once.

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
    Command, Interpreter, LockCommand, NoInterpreter, Reply, ReplyBuffer, SKIPPED_VERSIONS, Table, UnixMs,
    ValueId, Version,
};

/// The keys and values, how many entries have made them, and the fragments that they refer to.
#[derive(Debug)]
pub(super) struct Applied {
    /// Exactly what the first `index` entries made.
    table: Table,
    index: usize,
    /// How many commands these held.
    offset: Version,
    /// The time of the newest of them.
    time: UnixMs,
    /// What runs scripts.
    interpreter: &'static dyn Interpreter,
    /// This record is not applied, nor any behind it.
    stands_before: Option<Version>,
    /// Decided entries wait for the next turn: those of this one took long.
    owes: bool,
    fragments: FragmentStore,
}

/// Who hears of what an entry does, besides the table.
pub(super) struct Audience<'a> {
    pub(super) planted: Planted,
    /// Who waits for its commands here.
    pub(super) proposal: Option<&'a Proposal>,
    /// The reads that came while it was built.
    pub(super) within: Option<&'a mut Reads>,
    /// The epoch that those are answered in.
    pub(super) epoch: u64,
    pub(super) notifier: Notifier,
}

impl Audience<'_> {
    /// Nobody: the entry was ordered in an earlier life.
    pub(super) fn none(settings: &Settings) -> Audience<'static> {
        let notifier = Notifier { node: settings.id, is_leader: false };
        Audience { planted: settings.options.planted, proposal: None, within: None, epoch: 0, notifier }
    }
}

impl Applied {
    /// No entries.
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

    /// How many commands these held.
    #[inline]
    pub(super) fn offset(&self) -> Version {
        self.offset
    }

    /// True when this is a state that the group was in, and not the emptiness before.
    pub(super) fn is_filled(&self) -> bool {
        self.index > 0
    }

    /// The time of what is carried out, or read, at this moment.
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

    /// The table, for what is not an entry: snapshots, watching, cleaning, values on the disk.
    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    pub(super) fn set_interpreter(&mut self, interpreter: &'static dyn Interpreter) {
        self.interpreter = interpreter;
        self.table.set_interpreter(interpreter);
    }

    /// A configuration holds from here on. While records are replayed, entries of the one before may not be applied yet: its
    /// stop-sign will tell.
    pub(super) fn enter(&mut self, group: &Group) {
        if self.index as u64 >= group.begins {
            self.table.set_membership(group.id);
        }
    }

    /// Applies what stands before this record, and stops there.
    pub(super) fn stand_before(&mut self, record: Option<Version>) {
        self.stands_before = record;
    }

    /// True when it stops before a record.
    pub(super) fn stands_still(&self) -> bool {
        self.stands_before.is_some()
    }

    // Entries.

    /// How much time scripts may have taken in all when enough is applied for one turn, in nanoseconds.
    pub(super) fn enough_ns(&self, settings: &Settings) -> u64 {
        self.table.scripts_ns() + settings.timing.applying_ns
    }

    /// The next of so many decided entries, unless scripts have taken long enough or a record is stopped before.
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

    /// Carries out the next entry. Returns what has become of locks.
    pub(super) fn carry_out(
        &mut self,
        entry: &Entry,
        audience: Audience<'_>,
        effects: &mut Effects,
    ) -> Option<Vec<LockEvent>> {
        // Entries of different leaders may be out of the order of their times.
        self.time = not_before(entry.head().time, self.time);
        if let Some(stop_sign) = entry.stop_sign() {
            // Whichever configuration this replica is in by now: what stands behind it is of that one.
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

    /// Applies a command that nobody here waits for: its asker was told that the outcome is not known, or asked another
    /// replica. A lock that was asked for and granted at once is told its coordinator all the same.
    fn apply_unasked(&mut self, command: &Command<'_>, notifier: Notifier, effects: &mut Effects) {
        let mut inner = None;
        let unrouted = command.unrouted(&mut inner);
        let &Command::Lock(LockCommand::Acquire { name, waiter: Some(waiter), .. }) = unrouted else {
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

    /// Answers the reads that stand behind so many commands of a batch, which is just being applied so far.
    ///
    /// They are as good as entries of the log: the batch was proposed after they came, so its place is later than that of
    /// everything that was acknowledged by then; and it is decided. No lease is needed.
    fn answer_within(&mut self, reads: &mut Reads, place: (u64, usize), epoch: u64, effects: &mut Effects) {
        while let Some(read) = reads.pop_if(|read| (read.behind, read.after) == place) {
            // Later it would show what stands behind it in the batch.
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

    /// Answers a read by what is applied.
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

    /// The moment that the table shows now, where this configuration holds.
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

    /// The table is that of a snapshot from now on.
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

    /// Keeps a piece of a fragment, as far as the table knows its value.
    pub(super) fn keep(&mut self, piece: &KeptPiece, now_us: u64) -> Kept {
        self.fragments.keep(piece, &self.table, now_us)
    }

    /// Takes a piece that a checkpoint says is in the node's store.
    pub(super) fn restore_piece(&mut self, piece: &StoredPiece, now_us: u64) {
        self.fragments.restore(piece, &self.table, now_us);
    }

    pub(super) fn lose_piece(&mut self, piece: &StoredPiece, now_us: u64) {
        self.fragments.lose(piece, &self.table, now_us);
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

    /// A piece of a fragment is in that record.
    pub(super) fn piece_is_recorded(&mut self, id: ValueId, record: u64) {
        self.fragments.recorded(id, record);
    }

    pub(super) fn forget_fragment(&mut self, id: ValueId) {
        self.fragments.forget(id);
    }

    /// Lets go of fragments that no reader can be after any more.
    pub(super) fn let_fragments_go(&mut self, now: Now, settings: &Settings) {
        let before_us = now.monotonic_us.saturating_sub(settings.timing.fragment_grace_ms * 1000);
        self.fragments.let_go(before_us, settings.timing.fragment_grace_bytes);
    }

    /// Fragments follow what was applied.
    pub(super) fn follow_values(&mut self, now_us: u64) {
        if let Some(changes) = self.table.take_coded_changes() {
            self.fragments.follow(&changes, &self.table, now_us);
        }
    }

    /// A planted fault: values are given up, so their fragments go, and the table does not know. Nobody waits for the
    /// outcome of that.
    fn forgets_abandoned(&mut self, command: &Command<'_>) -> bool {
        let Command::Abandon { coordinator, counter } = *command else { return false };
        let abandoned = [(coordinator, counter)].into();
        let changes = CodedChanges { abandoned, ..CodedChanges::default() };
        self.fragments.follow(&changes, &self.table, 0);
        true
    }

    /// The table is another one from now on, of this membership.
    pub(super) fn match_fragments(&mut self, membership: u32, now_us: u64) {
        self.table.take_coded_changes();
        self.table.set_membership(membership);
        self.fragments.match_with(&self.table, now_us);
    }

    // Invariants.

    /// Nothing is applied that is not decided, and nothing is cut off that is not applied.
    pub(super) fn what_is_applied_is_decided(&self, log: &Log) {
        let (base, applied, decided) = (log.base(), self.index, log.decided());
        assert!(applied <= decided, "{applied} entries are applied, and {decided} decided");
        assert!(decided <= log.end(), "{decided} entries are decided, and {} held", log.end());
        assert!(base <= applied, "{base} entries are cut off, and {applied} applied");
    }

    /// Replicas that have applied as many entries have carried out the same commands.
    pub(super) fn versions_are_offsets_of_what_is_applied(&self, log: &Log) {
        let offset = log.offset_at(self.index);
        assert_eq!(Some(self.offset), offset, "the commands of {} entries", self.index);
        // After recoveries it is behind a multiple of what these skip.
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

/// Decodes the next commands and looks at what they need in memory, all at once; false when none are left.
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
    fn entries_are_carried_out_in_order_up_to_the_record_that_is_stopped_before() {
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
    fn who_waits_is_answered_with_the_version_of_its_own_command() {
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
