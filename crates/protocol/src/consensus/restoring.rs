//! Restoring: a replica is what its records say. Checkpoints are records, too.
//!
//! See [`crate::Replica`] for what a node does with them.

use super::applied::Applied;
use super::links::Links;
use super::log::Log;
use super::members::Members;
use super::options::Settings;
use super::record::{Change, put_fragment};
use crate::planted::Fault;
use kv::table::SnapshotId;
use kv::{Table, ValueId};

/// A checkpoint that is being written.
#[derive(Debug)]
pub(super) struct Checkpoint {
    snapshot: SnapshotId,
    stage: Stage,
    end: Vec<Change>,
}

/// What is written next.
#[derive(Debug)]
enum Stage {
    Begin(Vec<Change>),
    Table,
    Fragments(FragmentsLeft),
}

/// The fragments that a checkpoint has not recorded yet.
#[derive(Debug, Default)]
struct FragmentsLeft {
    ids: Vec<ValueId>,
    /// Of the last one: the stripe to go on with.
    stripe: u32,
}

impl Checkpoint {
    /// Begins one of what is applied, with the log behind it.
    pub(super) fn begin(
        settings: &Settings,
        links: &Links,
        members: &Members,
        applied: &mut Applied,
        log: &Log,
    ) -> Checkpoint {
        let mut begin = vec![own_life(links)];
        begin.extend(members.changes());
        begin.push(Change::CopyBegin(applied.moment(members.group())));
        let kept = match settings.options.planted.has(Fault::LogCutPastApplied) {
            true => Vec::new(),
            false => log.entries_from(applied.index()),
        };
        let end = vec![
            Change::CopyEnd,
            Change::Promise(log.promise()),
            Change::Accepted(log.accepted_round()),
            Change::Append(kept),
            Change::Decided(log.decided() as u64),
        ];
        let snapshot = applied.begin_snapshot(settings.options.planted);
        Checkpoint { snapshot, stage: Stage::Begin(begin), end }
    }

    /// Writes the next record, of about so many bytes. False when it was the last one.
    pub(super) fn next_record(
        &mut self,
        applied: &mut Applied,
        bytes_max: usize,
        record: &mut Vec<u8>,
    ) -> bool {
        match &mut self.stage {
            Stage::Begin(begin) => {
                begin.iter().for_each(|change| change.encode(record));
                self.stage = Stage::Table;
            }
            Stage::Table => {
                let mut chunk = Vec::new();
                if !applied.table_mut().snapshot_chunk(self.snapshot, bytes_max, &mut chunk) {
                    let ids = applied.fragments().worth_recording();
                    self.stage = Stage::Fragments(FragmentsLeft { ids, stripe: 0 });
                }
                Change::CopyChunk(chunk).encode(record);
            }
            Stage::Fragments(left) => {
                if !left.record(applied, bytes_max, record) {
                    self.end.iter().for_each(|change| change.encode(record));
                    return false;
                }
            }
        }
        true
    }

    /// It is written, or given up.
    pub(super) fn end(self, table: &mut Table) {
        table.end_snapshot(self.snapshot);
    }
}

impl FragmentsLeft {
    /// Appends pieces to a record, about so many bytes. False when none are left.
    fn record(&mut self, applied: &Applied, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let enough = out.len() + bytes_max;
        while let Some(id) = self.ids.last() {
            let from = self.stripe;
            let fragment = applied.fragments().get(*id);
            for piece in fragment.into_iter().flat_map(|fragment| fragment.pieces_from(from)) {
                if out.len() >= enough {
                    return true;
                }
                put_fragment(out, &piece);
                self.stripe = piece.stripe + 1;
            }
            self.ids.pop();
            self.stripe = 0;
        }
        false
    }
}

/// Who this replica is, in a record.
pub(super) fn own_life(links: &Links) -> Change {
    let identity = links.identity();
    Change::Life { identity: identity.storage, life: identity.life }
}
