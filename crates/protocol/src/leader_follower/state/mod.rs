//! What a replica keeps in any role: the table, the newest history, and the last offset in each.

mod restoring;

use self::restoring::{Checkpoint, Replayed};
use super::backlog::{Backlog, Batch};
use super::handover::Handover;
use super::journal::Journal;
use super::message::Message;
use super::options::{Acks, Durability, Options, Timing};
use super::position::Moment;
use super::position::Position;
use super::record::Change;
use super::snapshot::Snapshot;
use crate::contract::{Configuration, Effects, NodeId, Now, Trace, not_before};
use crate::planted::{Fault, in_table};
use crate::rest::Rest;
use crate::vouch::Vouches;
use crate::waiters::Reach;
use kv::{Table, UnixMs, Version};
use std::collections::BTreeSet;

/// Counts of events, for `INFO` and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Partial resyncs: how often the replica served a follower from its backlog, or got one itself.
    pub partial_resyncs: u64,
    /// Snapshot transfers: how often the replica sent one, or received one itself.
    pub transfers: u64,
    /// Writes that this replica acknowledged as leader, and that a later leader has given up (`acks = none`): an upper
    /// bound. They become known when the deposed leader returns with its memory. Records that its backlog no longer holds
    /// all count, including parts of long writes and removals of expired keys.
    pub lost_writes: u64,
    /// Records cut off because a leader was deposed before they were committed.
    pub truncated_records: u64,
    /// Writes refused because too few replicas were live.
    pub refused_writes: u64,
    /// Writes whose outcome was reported as unknown.
    pub unknown_writes: u64,
}

/// The part of a replica's state that does not depend on its role.
#[derive(Debug)]
pub(super) struct State {
    pub(super) id: NodeId,
    pub(super) options: Options,
    pub(super) timing: Timing,
    /// The group's members. `configuration.epoch` may lag behind `epoch`.
    pub(super) configuration: Configuration,
    /// The seed for the hash of every table made here.
    pub(super) seed: u64,
    /// The highest epoch seen. Messages of older ones are refused.
    pub(super) epoch: u64,
    /// The keys and values: exactly the history up to `applied`.
    pub(super) table: Table,
    /// The newest history; may reach beyond `applied`.
    pub(super) backlog: Backlog,
    /// The most history that this replica's node has room for, in bytes.
    pub(super) history_max: usize,
    /// This record and those after it must not be applied.
    pub(super) stands_before: Option<Version>,
    /// The offset up to which everything is in the table. Invariant: `applied <= backlog.last().offset`.
    pub(super) applied: Version,
    /// The time of the newest record: the next one's is not earlier.
    pub(super) time: UnixMs,
    /// Whether this replica holds everything that it ever acknowledged. A replica that started empty does not know what
    /// it lost, and vouches for nothing before it has caught up with a leader.
    pub(super) intact: bool,
    /// The replica was created with its group: no replica of the group has ever acknowledged anything.
    pub(super) is_new: bool,
    /// The control group appoints no other leader before this moment, unless this one resigns.
    lease_until_us: u64,
    /// Until when a leader takes requests: until its lease ends; 0 while it hands over.
    takes_until_us: u64,
    /// The handover that this replica has begun in this epoch.
    handover: Option<Handover>,
    /// The last epoch in which this replica led, until it is known which of its writes are lost.
    pub(super) led: Option<u64>,
    /// What must survive a crash, and how much of it is durable.
    pub(super) journal: Journal,
    /// The peers that its node reaches, and whether a leader is quiescent. A follower becomes quiescent when its leader
    /// requests it.
    pub(super) rest: Rest,
    /// The nodes that are alive and busy.
    pub(super) vouches: Vouches,
    /// The nodes that are about to stop, as they said over the links that are up.
    pub(super) leaving: BTreeSet<NodeId>,
    /// The nodes to which it has links.
    pub(super) reach: Reach,
    /// The checkpoint being written.
    pub(super) checkpoint: Option<Checkpoint>,
    /// The snapshot transfer being replayed.
    pub(super) replayed: Option<Replayed>,
    /// The number of the last question: see [`State::next_question`].
    question: u64,
    pub(super) counters: Counters,
}

impl State {
    /// The most history that is kept for followers that return, in bytes.
    pub(super) fn backlog_bytes_max(&self) -> usize {
        self.options.backlog_bytes.min(self.history_max)
    }

    pub(super) fn new(id: NodeId, options: Options, timing: Timing, seed: u64) -> State {
        State {
            id,
            options,
            timing,
            configuration: Configuration::default(),
            seed,
            epoch: 0,
            table: new_table(seed, options),
            backlog: Backlog::default(),
            history_max: usize::MAX,
            stands_before: None,
            applied: 0,
            time: 0,
            intact: false,
            is_new: false,
            lease_until_us: 0,
            takes_until_us: 0,
            handover: None,
            led: None,
            journal: Journal::new(options.durability != Durability::None),
            rest: Rest::default(),
            vouches: Vouches::default(),
            leaving: BTreeSet::new(),
            reach: Reach::default(),
            checkpoint: None,
            replayed: None,
            question: 0,
            counters: Counters::default(),
        }
    }

    /// Returns an empty table. Returns a snapshot of this moment to be filled, with an empty table.
    pub(super) fn begin_snapshot(&self, moment: Moment) -> Snapshot {
        Snapshot { moment, table: new_table(self.seed, self.options) }
    }

    /// Replaces the table and the history by a snapshot.
    pub(super) fn install(&mut self, snapshot: Snapshot) {
        let Snapshot { moment, mut table } = snapshot;
        self.checkpoint = None; // It shows the table that is being replaced.
        table.set_version_floor(moment.floor);
        table.take_spilled_of(&mut self.table);
        self.table.replace(table);
        self.backlog.reset(moment.position);
        (self.applied, self.time) = (moment.position.offset, moment.time);
    }

    /// The last position held, applied or not.
    pub(super) fn last(&self) -> Position {
        self.backlog.last()
    }

    /// Returns the time that records and reads see.
    pub(super) fn clock(&self, now: Now) -> UnixMs {
        now.unix_ms_behind(self.time)
    }

    /// The other members of the group.
    pub(super) fn peers(&self) -> impl Iterator<Item = NodeId> {
        self.configuration.members.iter().copied().filter(|member| *member != self.id)
    }

    /// Returns a number for a question to a peer that no earlier question of this node had, including those before a
    /// restart: the time, or the next number while time stands still.
    pub(super) fn next_question(&mut self, now: Now) -> u64 {
        self.question = now.monotonic_us.max(self.question + 1);
        self.question
    }

    /// Returns the message that brings a batch, or none, to a replica whose history ends at `previous`.
    pub(super) fn append<'a>(
        &self,
        previous: Position,
        batch: Option<&'a Batch>,
        leader_offset: Version,
        acknowledge: bool,
    ) -> Message<'a> {
        Message::Append {
            epoch: self.epoch,
            previous,
            batch_epoch: batch.map_or(self.epoch, |batch| batch.epoch),
            count: batch.map_or(0, |batch| batch.count),
            time: batch.map_or(self.time, |batch| batch.time),
            commit: self.applied,
            leader_offset,
            acknowledge,
            rest: false,
            records: batch.map_or(&[], |batch| &batch.records),
        }
    }

    /// Returns how many followers must hold a write before it is committed, given the control group's configuration.
    pub(super) fn acks_needed(&self) -> usize {
        self.options.acks.needed(&self.configuration)
    }

    /// Whether the lease lasts and the leader has not resigned, so that no other leader can have been appointed. Call this
    /// with the time of the step that makes an answer.
    #[inline]
    pub(super) fn is_leased(&self, now: Now) -> bool {
        let planted = self.options.planted;
        (now.monotonic_us < self.lease_until_us || planted.has(Fault::ServesWithoutLease))
            && (!self.has_resigned() || planted.has(Fault::ResignedLeaderAnswers))
    }

    /// Whether this leader has resigned, and waits for the next epoch.
    pub(super) fn has_resigned(&self) -> bool {
        self.handover.is_some_and(|it| it.has_resigned)
    }

    /// Whether a leader takes requests: it is leased, and does not hand over.
    #[inline]
    pub(super) fn takes_requests(&self, now: Now) -> bool {
        now.monotonic_us < self.takes_until_us || self.takes_requests_by_fault()
    }

    /// A planted fault has it answer without a lease, or although it has resigned.
    #[cold]
    fn takes_requests_by_fault(&self) -> bool {
        match self.handover {
            None => self.options.planted.has(Fault::ServesWithoutLease),
            Some(it) => it.has_resigned && self.options.planted.has(Fault::ResignedLeaderAnswers),
        }
    }

    /// Extends the lease from the control group.
    pub(super) fn extend_lease(&mut self, until_us: u64) {
        self.lease_until_us = self.lease_until_us.max(until_us);
        self.set_handover(self.handover);
    }

    pub(super) fn handover(&self) -> Option<Handover> {
        self.handover
    }

    pub(super) fn set_handover(&mut self, handover: Option<Handover>) {
        self.handover = handover;
        self.takes_until_us = if handover.is_some() { 0 } else { self.lease_until_us };
    }

    /// Stops following older epochs. `leads`: this replica is the leader of the new one.
    pub(super) fn enter_epoch(&mut self, epoch: u64, leads: bool, effects: &mut Effects) {
        assert!(!leads || epoch >= self.epoch, "a replica is to lead in an epoch that has passed");
        if epoch > self.epoch || leads {
            if epoch > self.epoch {
                self.set_handover(None);
            }
            self.epoch = self.epoch.max(epoch);
            self.journal.record(&Change::Epoch { epoch: self.epoch, leads }, effects);
        }
    }

    /// Notes that it again holds everything that it ever acknowledged.
    pub(super) fn set_intact(&mut self, effects: &mut Effects) {
        if !self.intact {
            self.intact = true;
            self.journal.record(&Change::Intact(true), effects);
        }
    }

    /// Appends a batch to the history.
    pub(super) fn push(&mut self, batch: Batch, effects: &mut Effects) {
        self.journal.record_batch(&batch, self.applied, effects);
        self.backlog.push(batch);
    }

    /// Cuts off everything after an offset, and returns the number of records cut.
    pub(super) fn truncate_after(&mut self, after: Version, effects: &mut Effects) -> u64 {
        assert!(after >= self.applied, "what is applied is committed, and would be cut off");
        let records = self.backlog.truncate_after(after);
        if records > 0 {
            self.journal.record_truncated(after, effects);
            self.counters.truncated_records += records;
            effects.trace.push(Trace::Truncated { after, records });
        }
        records
    }

    /// Whether this replica, in this incarnation, led the epoch just before its configuration's. Then no other replica has
    /// led since, and it holds everything acknowledged: what it inherited, and what it wrote. An earlier incarnation may
    /// have sent more than it recorded, so it does not count.
    pub(super) fn led_before(&self) -> bool {
        let goes_on = |led: u64| led + 1 == self.configuration.epoch && led > self.journal.earlier_epoch;
        self.intact && self.led.is_some_and(goes_on)
    }

    /// Counts lost writes: what is held after `kept`, if that offset is known, is about to be given up. If this replica
    /// acknowledged some of it as leader, only clients were promised it (`acks = none`), and they have lost it.
    pub(super) fn note_lost(&mut self, kept: Option<Version>, effects: &mut Effects) {
        let (Some(epoch), last) = (self.led.take(), self.last()) else { return };
        let Some(kept) = kept.filter(|kept| last.epoch == epoch && *kept < last.offset) else { return };
        if self.options.acks == Acks::None {
            let records = last.offset - kept - self.backlog.others_behind(kept);
            self.counters.lost_writes += records;
            effects.trace.push(Trace::LostWrites { epoch, records });
        }
    }

    /// Applies records that no client here waits for, up to `commit`, as far as they are held.
    pub(super) fn apply_until(&mut self, commit: Version, effects: &mut Effects) {
        let before = self.applied;
        let commit = self.as_far_as_it_goes(commit);
        while self.applied < commit {
            let Some(batch) = self.backlog.following(self.applied).cloned() else {
                break;
            };
            if batch.end().offset > commit {
                break;
            }
            let mut windows = batch.windows();
            while windows.advance(&self.table) {
                for (offset, command) in windows.commands() {
                    self.table.apply_unasked(command, *offset, batch.time);
                }
            }
            self.applied_batch(&batch);
        }
        if self.applied > before {
            effects.trace.push(Trace::Committed { offset: self.applied });
        }
    }

    /// Returns the last committed offset that may be applied: see [`stand_before`](crate::Replica::stand_before).
    pub(super) fn as_far_as_it_goes(&self, committed: Version) -> Version {
        match self.stands_before {
            Some(record) if self.applied < record => committed.min(record - 1),
            _ => committed,
        }
    }

    /// Notes that a whole batch is in the table.
    pub(super) fn applied_batch(&mut self, batch: &Batch) {
        assert_eq!(batch.first, self.applied + 1, "records take effect in order, each of them once");
        self.applied = batch.end().offset;
        self.time = not_before(batch.time, self.time);
    }
}

fn new_table(seed: u64, options: Options) -> Table {
    let mut table = Table::new(seed);
    table.spill_from(options.spill_bytes_min);
    table.plant(in_table(options.planted));
    table
}
