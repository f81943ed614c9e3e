//! Copies of the table, for replicas that lack what is cut off from the log, sent in chunks while writes go on.
//!
//! A copy moves before the crate hears of the replica that needs it: a leader does not pass on the promise of a
//! follower whose log ends before its own begins, and a follower does not pass on the question of a candidate that is
//! so far behind. So the crate never meets a gap. With a copy comes what its sender
//! has accepted behind it.
//!
//! A copy shows only what is decided, so anybody may send one to anybody. The receiver records it as it comes: until
//! the whole of it is durable it says nothing that rests on it, and after a crash it has either the old state or the
//! new one.

use super::Replica;
use super::entry::Entry;
use super::group::Voter;
use super::message::Body;
use super::options::Options;
use super::record::{Change, Moment};
use crate::contract::{Effects, NodeId, Notice, Now, Trace};
use crate::loading::Loading;
use crate::planted::Fault;
use kv::Table;
use kv::table::SnapshotId;
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::VecDeque;

/// What a receiver answers when it needs no more.
const WHOLE: u32 = u32::MAX;

/// The sending side of a copy.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) to: NodeId,
    transfer: u64,
    pub(super) moment: Moment,
    /// What is accepted here behind that moment, and in which ballot.
    accepted: (Ballot, Vec<Entry>),
    /// None once all chunks are taken.
    snapshot: Option<SnapshotId>,
    /// Chunks that were sent and not acknowledged: links lose messages.
    pub(super) unacknowledged: VecDeque<(u32, Vec<u8>)>,
    /// A chunk that waits for spilled values.
    pub(super) loading: Option<Loading>,
    pub(super) next: u32,
    pub(super) acknowledged: u32,
    /// When the receiver last got on, and when something was last sent again.
    progress_us: u64,
    repeated_us: u64,
    is_begun: bool,
    /// The receiver has installed it. The log is kept from its moment on until the receiver has joined.
    pub(super) is_delivered: bool,
}

/// The receiving side: a table of its own, filled beside the one in use.
#[derive(Debug)]
pub(super) struct Receiver {
    from: NodeId,
    transfer: u64,
    moment: Moment,
    next: u32,
    pub(super) table: Table,
    /// When it last got on.
    progress_us: u64,
}

impl Receiver {
    pub(super) fn is_stuck(&self, now: Now, patience_ms: u64) -> bool {
        now.ms_since(self.progress_us) > patience_ms
    }
}

impl Replica {
    /// Whether a peer can go on only with a copy: what it needs is cut off, or too much to send as one message.
    pub(super) fn must_copy(&self, to: NodeId, from_index: usize, decided: usize) -> bool {
        let log = self.log.borrow();
        if from_index < log.base() {
            return true;
        }
        let has_copy = self.senders.iter().any(|sender| sender.to == to && sender.is_delivered);
        !has_copy && from_index < decided && log.bytes() > self.timing.sync_bytes_max && {
            log.bytes_from(from_index) > self.timing.sync_bytes_max
        }
    }

    /// Begins to send a copy, unless one is under way.
    pub(super) fn begin_copy(&mut self, now: Now, to: NodeId, why: &'static str, effects: &mut Effects) {
        // Who has no vote knows only what is decided. That is no log to vote with, but at the very beginning.
        let has_a_log = self.has_vote() || self.applied as u64 == self.group.begins;
        assert!(has_a_log, "it sends a copy without the ballot of what stands behind it");
        if self.senders.iter().any(|sender| sender.to == to && !sender.is_delivered) {
            return;
        }
        self.abandon_copies(|sender| sender.to == to, effects);
        self.transfers += 1;
        let mut moment = self.moment();
        if self.options.planted.has(Fault::SnapshotIndexOffByOne) {
            moment.index = moment.index.saturating_sub(1);
        }
        self.counters.copies_sent += 1;
        effects.trace.push(Trace::FullResync { follower: to, offset: moment.offset, why });
        let accepted = {
            let log = self.log.borrow();
            (log.accepted_round(), log.entries_from(self.applied))
        };
        let snapshot = self.begin_snapshot();
        self.senders.push(Sender {
            to,
            transfer: self.transfers,
            moment,
            accepted,
            snapshot: Some(snapshot),
            unacknowledged: VecDeque::new(),
            loading: None,
            next: 0,
            acknowledged: 0,
            progress_us: now.monotonic_us,
            repeated_us: now.monotonic_us,
            is_begun: false,
            is_delivered: false,
        });
    }

    /// Begins a snapshot of the table.
    pub(super) fn begin_snapshot(&mut self) -> kv::SnapshotId {
        let snapshot = self.table.begin_snapshot();
        #[cfg(feature = "planted-bugs")]
        if self.options.planted.has(crate::planted::Fault::PartsNotInSnapshot) {
            self.table.leave_out_long(snapshot);
        }
        snapshot
    }

    /// The moment that the table shows now.
    pub(super) fn moment(&self) -> Moment {
        let floor = self.table.version_floor();
        let group = self.group.clone();
        Moment { index: self.applied as u64, offset: self.offset, time: self.time, floor, group }
    }

    /// Sends what the receivers of copies can take.
    pub(super) fn advance_copies(&mut self, now: Now, effects: &mut Effects) {
        for mut sender in std::mem::take(&mut self.senders) {
            self.advance_copy(now, &mut sender, effects);
            self.senders.push(sender);
        }
    }

    fn advance_copy(&mut self, now: Now, sender: &mut Sender, effects: &mut Effects) {
        let Sender { to, transfer, .. } = *sender;
        let again = !sender.is_delivered && now.ms_since(sender.repeated_us) >= self.timing.silence_ms;
        if !sender.is_begun || again && sender.acknowledged == 0 {
            sender.is_begun = true;
            let moment = sender.moment.clone();
            self.send(to, Body::CopyBegin { transfer, moment }, effects);
        }
        if again {
            sender.repeated_us = now.monotonic_us;
            for (index, chunk) in &sender.unacknowledged {
                self.send(to, Body::CopyChunk { transfer, index: *index, chunk }, effects);
            }
        }
        while let Some(snapshot) = sender.snapshot
            && sender.unacknowledged.len() < self.timing.chunk_window as usize
        {
            let bytes_max = self.timing.chunk_bytes;
            let next = || Loading::next(&mut self.table, snapshot, bytes_max, Vec::new());
            let loading = sender.loading.take().unwrap_or_else(next);
            if !loading.is_whole() {
                // The receiver is not what is waited for.
                sender.progress_us = sender.progress_us.max(loading.progress_us);
                sender.loading = Some(loading);
                break;
            }
            let more = loading.more;
            let chunk = loading.into_chunk();
            if !chunk.is_empty() {
                let index = sender.next;
                self.send(to, Body::CopyChunk { transfer, index, chunk: &chunk }, effects);
                sender.unacknowledged.push_back((index, chunk));
                sender.next += 1;
            }
            if !more {
                self.table.end_snapshot(snapshot);
                sender.snapshot = None;
                self.end_copy(sender, effects);
            }
        }
        if again && sender.snapshot.is_none() {
            self.end_copy(sender, effects);
        }
    }

    fn end_copy(&mut self, sender: &Sender, effects: &mut Effects) {
        let (round, rest) = sender.accepted.clone();
        let voters = self.known_voters();
        let body = Body::CopyEnd { transfer: sender.transfer, chunks: sender.next, round, rest, voters };
        self.send(sender.to, body, effects);
    }

    /// The receiver of a copy says how far it is.
    pub(super) fn copy_progress(
        &mut self,
        now: Now,
        from: NodeId,
        transfer: u64,
        next: u32,
        effects: &mut Effects,
    ) {
        let fits = |sender: &&mut Sender| sender.to == from && sender.transfer == transfer;
        let Some(sender) = self.senders.iter_mut().find(fits) else { return };
        if next == WHOLE {
            sender.is_delivered = true;
            sender.progress_us = now.monotonic_us;
            sender.unacknowledged.clear();
            sender.loading = None;
            if let Some(snapshot) = sender.snapshot.take() {
                self.table.end_snapshot(snapshot);
            }
        } else if next < sender.acknowledged {
            // It has forgotten what it had: it was started again.
            self.abandon_copies(|sender| sender.to == from && sender.transfer == transfer, effects);
        } else if next > sender.acknowledged && next <= sender.next {
            sender.acknowledged = next;
            sender.progress_us = now.monotonic_us;
            sender.repeated_us = now.monotonic_us;
            while sender.unacknowledged.pop_front_if(|(index, _)| *index < next).is_some() {}
        }
    }

    /// The log goes on with a replica: the copy that it got, if it did, has served.
    pub(super) fn copy_was_of_use(&mut self, to: NodeId) {
        self.senders.retain(|sender| sender.to != to || !sender.is_delivered);
    }

    /// Gives up copies whose receivers do not get on.
    pub(super) fn abandon_stuck_copies(&mut self, now: Now, effects: &mut Effects) {
        let patience_ms = 10 * self.timing.silence_ms;
        self.abandon_copies(|sender| now.ms_since(sender.progress_us) > patience_ms, effects);
    }

    pub(super) fn abandon_copies(&mut self, which: impl Fn(&Sender) -> bool, effects: &mut Effects) {
        let (given_up, kept) =
            std::mem::take(&mut self.senders).into_iter().partition(|sender| which(sender));
        self.senders = kept;
        let given_up: Vec<Sender> = given_up;
        for sender in given_up {
            if let Some(snapshot) = sender.snapshot {
                self.table.end_snapshot(snapshot);
            }
            if !sender.is_delivered {
                let why = "its receiver does not get on, or something newer has come";
                effects.trace.push(Trace::ResyncAbandoned { follower: sender.to, why });
            }
        }
    }

    /// Nothing is cut off that somebody needs who just gets a copy.
    pub(super) fn kept_for_copies(&self) -> usize {
        self.senders.iter().map(|sender| sender.moment.index as usize).min().unwrap_or(usize::MAX)
    }

    // Receiving.

    pub(super) fn give_up_receiving(&mut self) {
        if let Some(mut receiver) = self.receiver.take() {
            self.table.take_spilled_of(&mut receiver.table);
        }
    }

    pub(super) fn copy_begins(
        &mut self,
        now: Now,
        from: NodeId,
        transfer: u64,
        moment: Moment,
        effects: &mut Effects,
    ) {
        if moment.index as usize <= self.applied && moment.group.id <= self.group.id {
            return self.send(from, Body::CopyProgress { transfer, next: WHOLE }, effects);
        }
        let is_busy = self.receiver.as_ref().is_some_and(|receiver| {
            let same = receiver.from == from && receiver.transfer == transfer;
            let is_live =
                self.link(receiver.from).is_some_and(|link| link.is_live(now, self.timing.silence_ms));
            same || is_live && receiver.from != from && receiver.moment.index >= moment.index
        });
        if is_busy {
            return;
        }
        self.log.borrow_mut().record(vec![Change::CopyBegin(moment.clone())]);
        self.give_up_receiving();
        let (table, progress_us) = (new_table(self.seed, self.options), now.monotonic_us);
        self.receiver = Some(Receiver { from, transfer, moment, next: 0, table, progress_us });
    }

    pub(super) fn copy_chunk(
        &mut self,
        now: Now,
        from: NodeId,
        (transfer, index): (u64, u32),
        chunk: &[u8],
        effects: &mut Effects,
    ) {
        let Some(receiver) = self.receiver.as_mut().filter(|it| it.from == from && it.transfer == transfer)
        else {
            let next = if self.installed_transfer == (from, transfer) { WHOLE } else { 0 };
            return self.send(from, Body::CopyProgress { transfer, next }, effects);
        };
        if index == receiver.next {
            if receiver.table.install(chunk).is_err() {
                self.give_up_receiving();
                return effects.trace.push(Trace::Rejected { peer: from, why: "a copy that cannot be read" });
            }
            receiver.next += 1;
            receiver.progress_us = now.monotonic_us;
            self.log.borrow_mut().record(vec![Change::CopyChunk(chunk.to_vec())]);
        }
        let next = receiver.next;
        self.send(from, Body::CopyProgress { transfer, next }, effects);
    }

    pub(super) fn copy_ends(
        &mut self,
        now: Now,
        from: NodeId,
        (transfer, chunks): (u64, u32),
        accepted: (Ballot, Vec<Entry>),
        voters: &[Voter],
        effects: &mut Effects,
    ) {
        let is_whole = |it: &Receiver| it.from == from && it.transfer == transfer && it.next == chunks;
        if let Some(receiver) = self.receiver.take_if(|receiver| is_whole(receiver)) {
            let moment = &receiver.moment;
            if moment.index as usize > self.applied || moment.group.id > self.group.id {
                self.install(receiver, accepted, voters, effects);
                self.ask_for_help(now, effects);
            } else {
                let mut table = receiver.table;
                self.table.take_spilled_of(&mut table);
            }
            self.installed_transfer = (from, transfer);
            return self.send(from, Body::CopyProgress { transfer, next: WHOLE }, effects);
        }
        let next = match &self.receiver {
            _ if self.installed_transfer == (from, transfer) => WHOLE,
            Some(receiver) if receiver.from == from && receiver.transfer == transfer => receiver.next,
            _ => 0,
        };
        self.send(from, Body::CopyProgress { transfer, next }, effects);
    }

    /// Swaps the copy in whole, and lets the crate begin anew with the log that is left behind it.
    ///
    /// The log behind the copy is the longer one, by ballot and then by length: the sender's, or what was here. So this
    /// replica never looks as if it had accepted less than it is known to have decided, nor loses what it has accepted;
    /// and it may look as if it had accepted what the sender has, for whatever was chosen is in either or in the one
    /// that is longer. See the proof in the parent module.
    ///
    /// A copy of a newer configuration replaces all that was accepted in an older one, which has ended. Whoever gets
    /// one without a vote in its configuration keeps what is decided, and nothing behind it.
    fn install(
        &mut self,
        receiver: Receiver,
        (round, rest): (Ballot, Vec<Entry>),
        voters: &[Voter],
        effects: &mut Effects,
    ) {
        let Receiver { moment, mut table, from, .. } = receiver;
        let is_of_one = round == Ballot::default() || round.config_id == moment.group.id;
        if !is_of_one || moment.group.id < self.group.id {
            self.table.take_spilled_of(&mut table);
            let why = "a copy with a log of another configuration";
            return effects.trace.push(Trace::Rejected { peer: from, why });
        }
        let had_nothing = self.group.id == 0;
        let is_newer = moment.group.id > self.group.id;
        let gave_void = is_newer && self.agreement.is_some();
        self.abandon_copies(|_| true, effects); // They show the table that is thrown away, as does a checkpoint.
        self.checkpoint = None;
        let end = moment.index as usize + rest.len();
        let before = {
            let log = self.log.borrow();
            (log.accepted_round(), log.end())
        };
        let has_less = is_newer || before < (round, end);
        self.put_in_place(table, &moment);
        let mut learned = self.learn_voters(voters, effects);
        if had_nothing {
            learned.extend(self.exclude_newcomer(effects));
        }
        let has_less = has_less && self.has_vote();
        let mut log = self.log.borrow_mut();
        let mut changes = vec![Change::CopyEnd];
        if has_less {
            let promise = log.promise().max(round);
            changes.extend([
                Change::Promise(promise),
                Change::Accepted(round),
                Change::Replace(moment.index, rest),
            ]);
            changes[1..].iter().for_each(|change| log.replay(change.clone()));
        }
        changes.extend(learned);
        log.record(changes);
        let after = (log.accepted_round(), log.end());
        assert!(
            is_newer || after >= before,
            "it looks as if it had accepted less: {after:?}, and it was {before:?}"
        );
        drop(log);
        self.skip_proposals(self.applied, effects);
        if gave_void {
            self.end_void_proposals(effects);
        }
        self.counters.copies_installed += 1;
        let keys = self.table.len() as u64;
        effects.trace.push(Trace::Installed { offset: moment.offset, keys });
        effects.notices.push(Notice::Skipped);
        self.leadership = None;
        self.keep_requests(effects);
        self.begin_voting();
    }

    /// The table and the log's beginning are those of a copy from now on.
    pub(super) fn put_in_place(&mut self, mut table: Table, moment: &Moment) {
        table.set_version_floor(moment.floor);
        table.set_interpreter(self.interpreter);
        table.take_watched_of(&mut self.table);
        table.take_spilled_of(&mut self.table);
        self.table = table;
        self.applied = moment.index as usize;
        self.offset = moment.offset;
        self.time = moment.time;
        let is_newer = moment.group.id > self.group.id;
        self.log.borrow_mut().installed(moment, is_newer);
        if is_newer {
            self.group = moment.group.clone();
            self.forget_former_voters();
        }
        self.match_fragments(moment.group.id);
    }
}

/// An empty table.
pub(super) fn new_table(seed: u64, options: Options) -> Table {
    let mut table = Table::new(seed);
    table.spill_from(options.spill_bytes_min);
    table.plant_in_locks(options.planted.in_locks());
    table
}
