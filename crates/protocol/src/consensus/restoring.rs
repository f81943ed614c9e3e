//! Restoring: a replica's state is rebuilt from its records. Checkpoints are records, too.
//!
//! See [`crate::Replica`] for what a node does with them.

use super::applied::Applied;
use super::links::Links;
use super::log::Log;
use super::members::Members;
use super::options::Settings;
use super::record::{Change, put_held};
use crate::planted::Fault;
use crate::transfer;
use kv::{Table, ValueId};

/// A checkpoint that is being written.
#[derive(Debug)]
pub(super) struct Checkpoint {
    table: transfer::Checkpoint,
    /// The fragments, which are written after the table; `None` until then.
    fragments: Option<FragmentsLeft>,
    end: Vec<Change>,
}

/// The fragments that a checkpoint has not recorded yet.
#[derive(Debug, Default)]
struct FragmentsLeft {
    ids: Vec<ValueId>,
    /// The next stripe of the last fragment in `ids`.
    stripe: u32,
}

impl Checkpoint {
    /// Begins a checkpoint of what is applied, with the log after it.
    pub(super) fn begin(
        settings: &Settings,
        links: &Links,
        members: &Members,
        applied: &mut Applied,
        log: &Log,
    ) -> Checkpoint {
        let mut begin = Vec::new();
        own_life(links).encode(&mut begin);
        members.changes().for_each(|change| change.encode(&mut begin));
        Change::SnapshotBegin(applied.moment(members.group())).encode(&mut begin);
        let kept = match settings.options.planted.has(Fault::LogCutPastApplied) {
            true => Vec::new(),
            false => log.entries_from(applied.index()),
        };
        let end = vec![
            Change::SnapshotEnd,
            Change::Promise(log.promise()),
            Change::Accepted(log.accepted_round()),
            Change::Append(kept),
            Change::Decided(log.decided() as u64),
        ];
        let snapshot = applied.begin_snapshot(settings.options.planted);
        Checkpoint { table: transfer::Checkpoint::new(snapshot, begin), fragments: None, end }
    }

    /// Writes the next record, of about `bytes_max` bytes. False when it was the last one.
    pub(super) fn next_record(
        &mut self,
        applied: &mut Applied,
        bytes_max: usize,
        record: &mut Vec<u8>,
    ) -> bool {
        if let Some(left) = &mut self.fragments {
            let more = left.record(applied, bytes_max, record);
            if !more {
                self.end.iter().for_each(|change| change.encode(record));
            }
            return more;
        }
        let encode = |chunk: &[u8], out: &mut Vec<u8>| Change::SnapshotChunk(chunk.to_vec()).encode(out);
        if !self.table.next(applied.table_mut(), bytes_max, record, encode) {
            let ids = applied.fragments().worth_recording();
            self.fragments = Some(FragmentsLeft { ids, stripe: 0 });
        }
        true
    }

    /// The checkpoint is written, or given up.
    pub(super) fn end(self, table: &mut Table) {
        self.table.end(table);
    }
}

impl FragmentsLeft {
    /// Appends pieces to a record, about `bytes_max` bytes. False when none are left.
    fn record(&mut self, applied: &Applied, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let enough = out.len() + bytes_max;
        while let Some(id) = self.ids.last() {
            let from = self.stripe;
            let fragment = applied.fragments().get(*id);
            for (stripe, piece) in fragment.into_iter().flat_map(|fragment| fragment.pieces_from(from)) {
                if out.len() >= enough {
                    return true;
                }
                put_held(out, &piece);
                self.stripe = stripe + 1;
            }
            self.ids.pop();
            self.stripe = 0;
        }
        false
    }
}

/// This replica's identity, for a record.
pub(super) fn own_life(links: &Links) -> Change {
    let identity = links.identity();
    Change::Life { identity: identity.storage, life: identity.life }
}

#[cfg(test)]
mod tests {
    use super::super::applied::Audience;
    use super::super::group::{Group, Voter};
    use super::super::kit::{Peers, entry, identity};
    use super::*;
    use crate::consensus::Member;
    use crate::contract::Effects;

    #[test]
    fn a_checkpoint_holds_the_identity_what_is_applied_and_the_log_after_it() {
        let mut peers = Peers::new();
        let (mut members, mut applied) = (Members::new(1), Applied::new(1, peers.settings.options));
        members.enter(Group::first(1, &[1, 2, 3]));
        let voter = Voter { member: Member { node: 2, since: 1 }, identity: identity(2, 1) };
        members.learn_identity(voter);
        let entries = [entry(1, 1, &["a"]), entry(1, 2, &["b"])];
        peers.log.borrow_mut().append(entries.to_vec());
        applied.carry_out(&entries[0], Audience::none(&peers.settings), &mut Effects::default());
        let (links, log) = (&mut peers.links, peers.log.borrow());
        let mut checkpoint = Checkpoint::begin(&peers.settings, links, &members, &mut applied, &log);
        // Later changes are in records of their own.
        applied.carry_out(&entries[1], Audience::none(&peers.settings), &mut Effects::default());
        let (mut records, mut is_more) = (Vec::new(), true);
        while is_more {
            let mut record = Vec::new();
            is_more = checkpoint.next_record(&mut applied, 1000, &mut record);
            records.push(Change::decode_all(&record).unwrap());
        }
        let [begin, table, end] = &records[..] else { panic!("{records:?}") };
        let Change::SnapshotBegin(moment) = &begin[2] else { panic!("{begin:?}") };
        assert_eq!(begin[..2], [Change::Life { identity: 1, life: 1 }, Change::Peer(voter)]);
        assert_eq!((moment.index, moment.offset, &moment.group), (1, 1, members.group()));
        assert!(matches!(table[..], [Change::SnapshotChunk(_)]));
        assert_eq!(end[0], Change::SnapshotEnd);
        assert_eq!(end[3..], [Change::Append(vec![entries[1].clone()]), Change::Decided(0)]);
        checkpoint.end(applied.table_mut());
    }
}
