//! Recovery: a majority of a group's replicas is lost for good, and an operator decides that one of the remaining replicas
//! continues alone. This is done offline: no replica of the group runs.
//!
//! Nothing is invented. The recovery's records are those that the replica would have made if the others had voted for its
//! log: the whole log is decided, and ends with a stop-sign that names a configuration of this replica alone. So restarts,
//! snapshots and members that are added later need no knowledge of the recovery.
//!
//! **Which replica.** The one with the greatest configuration, then ballot, then length of its log, among those with a
//! vote. What any other remaining replica knows to be decided is in its log, by the argument for the choice of a candidate
//! (a majority promises, and the greatest log is taken over). Suppose that entry e was chosen in ballot c, and that a
//! remaining replica knows it. That replica accepted in a ballot of at least c, so the greatest replica did, too. If that
//! ballot is greater than c, its log extends e by the invariant of Paxos; if it is c, the longest log of c has e. A greater
//! configuration begins with what the previous one has decided. So no remaining replica ever has to take back what it has
//! applied.
//!
//! **What may be lost**: what was acknowledged by a majority of which no replica remains. **What may be gained**: what was
//! in a log and was never acknowledged to a client; its outcome was reported as unknown.
//!
//! **What is not excluded**: the lost replicas, if they return together, may be a majority of the configuration that they
//! know. The operator must make sure that they never reach this replica or its clients.

use super::Replica;
use super::entry::{Entry, Head, Proposer};
use super::group::StopSign;
use super::record::Change;
use crate::contract::NodeId;
use kv::Command;

/// What a replica holds according to its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Orders replicas by what they hold: the configuration, the ballot (three numbers), and the number of entries.
    pub rank: [u64; 5],
    /// The members of its configuration.
    pub members: Vec<NodeId>,
    /// Whether it may vote in its configuration.
    pub has_vote: bool,
    /// How many entries it knows to be decided.
    pub decided: u64,
    /// How many commands its log holds.
    pub commands: u64,
    /// The greatest number of a configuration that it knows of, whether or not that has begun.
    pub newest: u32,
}

impl Replica {
    /// What the replica holds. To be called after its records are replayed and before it is configured.
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

    /// The record that makes this replica the only member of its group, in configuration `id`, and applies these writes after
    /// everything that it holds.
    ///
    /// # Panics
    /// When `id` is not greater than the number of every configuration that it knows.
    pub fn alone(&self, id: u32, writes: &[Command<'_>]) -> Vec<u8> {
        let own = self.settings.id;
        let end = self.log.borrow().end() as u64;
        let mut changes = vec![Change::Decided(end)];
        let mut group = self.members.group().clone();
        // Nothing may follow a stop-sign in its configuration: so that configuration ends with it, as it was about to.
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

    /// The stop-sign at the end of the log, if the current configuration is about to end.
    fn next_stop_sign(&self) -> Option<StopSign> {
        let log = self.log.borrow();
        let last = log.end().checked_sub(1).and_then(|last| log.entry(last))?;
        last.stop_sign().filter(|next| next.id > self.members.group().id)
    }
}
