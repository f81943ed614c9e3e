//! Restoring: a replica is what its records say. Checkpoints are records, too.
//!
//! See [`crate::Replica`] for what a node does with them.

use super::Replica;
use super::copying::new_table;
use super::fragments::FragmentsLeft;
use super::log::Handle;
use super::record::{Change, Moment};
use crate::contract::{Effects, Now, Progress};
use crate::planted::Fault;
use kv::codec::Malformed;
use kv::table::SnapshotId;
use kv::{Command, Table};
use omnipaxos::storage::Storage;
use std::rc::Rc;

/// A checkpoint that is being written.
#[derive(Debug)]
pub(super) struct Checkpoint {
    snapshot: SnapshotId,
    begin: Option<Vec<Change>>,
    /// None while the table is not told yet.
    fragments: Option<FragmentsLeft>,
    end: Vec<Change>,
}

/// A copy that is being replayed.
#[derive(Debug)]
pub(super) struct Replay {
    moment: Moment,
    pub(super) table: Table,
}

impl Replica {
    pub(super) fn take_record(&mut self, now: Now, record: &[u8]) -> Result<(), Malformed> {
        self.log.borrow_mut().now_us = now.monotonic_us;
        for change in Change::decode_all(record)? {
            match change {
                Change::Life { identity, life } => {
                    (self.identity.storage, self.identity.life) = (identity, life);
                }
                Change::Peer(voter) => {
                    self.voters.insert(voter.member.node, voter);
                }
                Change::Group(group) => self.enter(group),
                Change::Excluded { since } => self.excluded = Some(since),
                Change::CopyBegin(moment) => {
                    self.replayed_copy = Some(Replay { moment, table: new_table(self.seed, self.options) });
                }
                Change::CopyChunk(chunk) => {
                    if let Some(copy) = &mut self.replayed_copy {
                        copy.table.install(&chunk)?;
                    }
                }
                Change::CopyEnd => {
                    let copy = self.replayed_copy.take().ok_or(Malformed("a copy ends that never began"))?;
                    self.put_in_place(copy.table, &copy.moment);
                }
                Change::Fragment(piece) => self.replay_piece(&piece.piece()),
                change => self.log.borrow_mut().replay(change),
            }
        }
        self.cut_replayed();
        Ok(())
    }

    /// Applies what is replayed and cuts it off as it grows, so that a start needs no more memory than the life before it.
    fn cut_replayed(&mut self) {
        if self.log.borrow().bytes() > self.options.log_bytes {
            self.apply_replayed();
            let index = self.log.borrow().cut_for(self.options.log_bytes / 2).min(self.applied);
            let _ = Handle(Rc::clone(&self.log)).set_compacted_idx(index);
        }
    }

    /// Makes of the records what they say, and begins a new life.
    pub(super) fn begin_life(&mut self) {
        if let Some(mut copy) = self.replayed_copy.take() {
            self.table.take_spilled_of(&mut copy.table); // The rest of it was lost.
        }
        assert!(!self.is_started, "a life begins twice");
        self.log.borrow_mut().replayed();
        self.identity.life += 1;
        self.transfers = self.identity.life << 32; // No transfer has the name of one of an earlier life.
        let changes = vec![self.own_life()];
        self.life_record = self.log.borrow_mut().record(changes);
        // Nobody waits for what earlier lives proposed.
        self.apply(&mut Effects::default());
    }

    fn own_life(&self) -> Change {
        Change::Life { identity: self.identity.storage, life: self.identity.life }
    }

    /// Begins a checkpoint of what is applied. False while the state is about to be replaced, and in the middle of a
    /// turn: what is in the log and not in a record yet would be there twice.
    pub(super) fn start_checkpoint(&mut self) -> bool {
        let is_in_a_turn = self.log.borrow().has_untold();
        // One that stands still may do so for days, and was not started.
        let is_whole = self.is_started || self.stands_before.is_some() && self.replayed_copy.is_none();
        if is_in_a_turn || self.receiver.is_some() || self.group.id == 0 || !is_whole {
            return false;
        }
        self.give_up_checkpoint();
        let mut begin = vec![self.own_life()];
        begin.extend(self.voters.values().map(|voter| Change::Peer(*voter)));
        begin.extend(self.excluded.map(|since| Change::Excluded { since }));
        begin.push(Change::CopyBegin(self.moment()));
        let log = self.log.borrow();
        let kept = match self.options.planted.has(Fault::LogCutPastApplied) {
            true => Vec::new(),
            false => log.entries_from(self.applied),
        };
        let end = vec![
            Change::CopyEnd,
            Change::Promise(log.promise()),
            Change::Accepted(log.accepted_round()),
            Change::Append(kept),
            Change::Decided(log.decided() as u64),
        ];
        drop(log);
        let snapshot = self.begin_snapshot();
        self.checkpoint = Some(Checkpoint { snapshot, begin: Some(begin), fragments: None, end });
        true
    }

    pub(super) fn next_checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        let Some(checkpoint) = &mut self.checkpoint else { return Progress::Abandoned };
        if let Some(begin) = checkpoint.begin.take() {
            begin.iter().for_each(|change| change.encode(record));
            return Progress::More;
        }
        let Some(mut left) = checkpoint.fragments.take() else {
            let mut chunk = Vec::new();
            if !self.table.snapshot_chunk(checkpoint.snapshot, bytes_max, &mut chunk) {
                let ids = self.fragments.worth_recording();
                checkpoint.fragments = Some(FragmentsLeft { ids, stripe: 0 });
            }
            Change::CopyChunk(chunk).encode(record);
            return Progress::More;
        };
        let more = self.record_fragments(&mut left, bytes_max, record);
        let Some(checkpoint) = &mut self.checkpoint else { return Progress::Abandoned };
        if more {
            checkpoint.fragments = Some(left);
            return Progress::More;
        }
        checkpoint.end.iter().for_each(|change| change.encode(record));
        self.give_up_checkpoint();
        Progress::Whole
    }

    pub(super) fn give_up_checkpoint(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            self.table.end_snapshot(checkpoint.snapshot);
        }
    }

    /// Cuts off the oldest part of a log that has grown too large, but nothing that is not applied. A small part at a time,
    /// so that new entries are made where old ones were, and the process does not breathe in and out.
    pub(super) fn cut_log(&mut self) {
        if self.log.borrow().bytes() <= self.options.log_bytes {
            return;
        }
        let Some(agreement) = &self.agreement else { return };
        // A candidate was told by others what they lack, by its log as it is.
        if !agreement.is_accepting() && self.leader() == Some(self.id) {
            return;
        }
        let kept_for_copies = self.kept_for_copies();
        let log = self.log.borrow();
        let left = self.options.log_bytes - self.options.log_bytes / 8;
        let index = log.cut_for(left).min(self.applied).min(kept_for_copies);
        let base = log.base();
        drop(log);
        if index > base {
            self.counters.log_cuts += 1;
            if let Some(agreement) = &mut self.agreement {
                agreement.cut_before(&self.log, index);
            }
        }
    }

    /// Answers a read from what is applied here, whatever the role: for people and tests that look at one replica. It
    /// promises nothing about other replicas.
    pub fn peek(&mut self, command: &Command<'_>, now: kv::UnixMs, out: &mut kv::ReplyBuffer) {
        self.table.read(command, now, out);
    }
}
