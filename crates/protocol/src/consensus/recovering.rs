//! Recovery: a majority of a group's replicas is lost for good, and an operator decides that one of those that are left goes
//! on alone. Offline: no replica of the group runs.
//!
//! Nothing is made up. The records that do it are those that the replica would have made had the others voted for what it
//! holds: its log is decided as a whole, and ends with a stop-sign that names a configuration of this replica alone. So
//! starts, snapshots and members that are added later need to know nothing of it.
//!
//! **Which replica.** The one with the greatest configuration, then ballot, then length of its log, among those with a
//! vote. What any of the others knows to be decided is in its log, by the argument for the choice of a candidate (a
//! majority promises, and the greatest log is taken over): say entry e was chosen in ballot c, and a replica that is left
//! knows it. That one accepted in a ballot of at least c, so the greatest did; if that ballot is greater than c, its log
//! extends e by the invariant of Paxos; if it is c, the longest log of c has e. A greater configuration begins with what the
//! one before has decided. So no replica that is left ever has to take back what it has applied.
//!
//! **What may be lost** is what was acknowledged by a majority of which nobody is left, and **what may be gained** is what
//! was in a log and acknowledged to nobody: clients were told that its outcome is unknown.
//!
//! **What it does not exclude** are the lost replicas, should they come back together: they may be a majority of the
//! configuration that they know. Whoever uses this must see to it that they never talk to this one, nor to its clients.

use super::Replica;
use super::entry::{Entry, Head, Proposer};
use super::group::StopSign;
use super::record::Change;
use crate::contract::NodeId;
use kv::Command;

/// What a replica was found to hold when its records were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Which of two replicas holds more: its configuration, its ballot (three numbers), and how many entries.
    pub rank: [u64; 5],
    /// The members of that configuration.
    pub members: Vec<NodeId>,
    /// It may vote in it.
    pub has_vote: bool,
    /// How many of the entries it knows to be decided.
    pub decided: u64,
    /// How many commands its log holds.
    pub commands: u64,
    /// The greatest number of a configuration that it knows of, begun or not.
    pub newest: u32,
}

impl Replica {
    /// What it holds. Ask when its records were read and before it is configured.
    pub fn found(&self) -> Found {
        let log = self.log.borrow();
        let group = self.members.group();
        let ((round, entries), newest) = (log.accepted(), self.next_stop_sign().map_or(0, |next| next.id));
        Found {
            rank: [group.id.into(), round.n.into(), round.priority.into(), round.pid, entries as u64],
            members: group.nodes(),
            has_vote: self.members.has_vote(),
            decided: log.decided() as u64,
            commands: log.end_offset(),
            newest: newest.max(group.id),
        }
    }

    /// The record behind which this replica is its group, alone, in configuration number `id`, and has carried out these
    /// writes behind all that it holds.
    ///
    /// # Panics
    /// When `id` is not greater than that of every configuration that it knows.
    pub fn alone(&self, id: u32, writes: &[Command<'_>]) -> Vec<u8> {
        let own = self.settings.id;
        let end = self.log.borrow().end() as u64;
        let mut changes = vec![Change::Decided(end)];
        let mut group = self.members.group().clone();
        // Nothing stands behind a stop-sign in its configuration: that one ends where it was about to.
        if let Some(next) = self.next_stop_sign() {
            group = group.next(&next, end);
            changes.push(Change::Group(group.clone()));
        }
        assert!(id > group.id, "configuration {id} would follow {}", group.id);
        let head =
            Head { proposer: Proposer { node: own, life: self.links.life(), batch: 0 }, ..Head::default() };
        let mut commands = Vec::new();
        writes.iter().for_each(|command| command.encode(&mut commands));
        let stop_sign = StopSign { id, members: vec![own] };
        let written = Entry::new(Head { count: writes.len() as u32, ..head }, &commands);
        let entries = vec![written, Entry::stop(head, &stop_sign)];
        let begins = end + entries.len() as u64;
        changes.extend([
            Change::Append(entries),
            Change::Decided(begins),
            Change::Group(group.next(&stop_sign, begins)),
        ]);
        let mut record = Vec::new();
        changes.iter().for_each(|change| change.encode(&mut record));
        record
    }

    /// The stop-sign at the end of the log, if the configuration that holds is about to end.
    fn next_stop_sign(&self) -> Option<StopSign> {
        let log = self.log.borrow();
        let last = log.end().checked_sub(1).and_then(|last| log.entry(last))?;
        last.stop_sign().filter(|next| next.id > self.members.group().id)
    }
}
