//! The batch: commands that a leader gathers until they are proposed together, and the requests that wait for them.

use super::entry::{Entry, EntryBuilder, Head};
use super::held::{Fenced, ParkedRequest};
use super::proposals::Asker;
use crate::contract::Ticket;
use kv::Command;
use kv::codec::Reader;

/// Commands that are not proposed yet.
#[derive(Debug)]
pub(super) struct Batch {
    builder: EntryBuilder,
    askers: Vec<Asker>,
    /// About how long the slow commands among them take, in nanoseconds.
    work_ns: u64,
    /// The indices of the fenced ones.
    fenced: Vec<usize>,
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch { builder: EntryBuilder::new(), askers: Vec::new(), work_ns: 0, fenced: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.askers.is_empty()
    }

    /// How many commands it holds.
    pub(super) fn len(&self) -> usize {
        self.askers.len()
    }

    /// The commands' bytes.
    pub(super) fn bytes(&self) -> usize {
        self.builder.commands().len()
    }

    pub(super) fn work_ns(&self) -> u64 {
        self.work_ns
    }

    /// Adds a client's command. `work_ns` is about how long it takes if it is slow, otherwise 0.
    #[inline]
    pub(super) fn push(&mut self, command: &Command<'_>, asker: (Ticket, u64), fenced: bool, work_ns: u64) {
        self.work_ns += work_ns;
        command.encode(self.builder.end());
        if fenced {
            self.fenced.push(self.askers.len());
        }
        self.askers.push(Some(asker));
    }

    /// Adds a command of the leader itself.
    pub(super) fn order(&mut self, command: &Command<'_>) {
        command.encode(self.builder.end());
        self.askers.push(None);
    }

    /// A planted fault: the commands of an entry that was proposed before.
    pub(super) fn repeat(&mut self, entry: &Entry) {
        self.builder.end().extend_from_slice(entry.commands().rest());
        (0..entry.head().count).for_each(|_| self.askers.push(None));
    }

    /// Makes an entry of the commands, and empties the batch. Returns the entry, the requests that wait for its commands, and
    /// how long the slow ones take.
    pub(super) fn take(&mut self, head: Head) -> (Entry, Vec<Asker>, u64) {
        let entry = self.builder.take(Head { count: self.askers.len() as u32, ..head });
        self.fenced.clear();
        let next = Vec::with_capacity(self.askers.len());
        let askers = std::mem::replace(&mut self.askers, next);
        (entry, askers, std::mem::take(&mut self.work_ns))
    }

    /// Takes all commands out, in order. With each comes its number from 1, the place of the reads that came right after it.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Option<ParkedRequest>, usize)) {
        let mut commands = self.builder.commands_reader();
        for (index, asker) in self.askers.drain(..).enumerate() {
            let before = commands.rest();
            let Ok(_) = Command::decode(&mut commands) else { break };
            let bytes = &before[..before.len() - commands.rest().len()];
            let held = asker.map(|(ticket, deadline_us)| {
                let fenced = self.fenced.binary_search(&index).is_ok();
                ParkedRequest::encoded(ticket, deadline_us, Fenced(fenced), bytes)
            });
            each(held, index + 1);
        }
        self.builder.clear();
        self.work_ns = 0;
        self.fenced.clear();
    }

    /// What is gathered can be decoded, and each command has its asker or `None`. O(commands).
    pub(super) fn check(&self) {
        let mut commands: Reader<'_> = self.builder.commands_reader();
        let mut count = 0;
        while !commands.is_empty() {
            assert!(Command::decode(&mut commands).is_ok(), "what is gathered cannot be read");
            count += 1;
        }
        assert_eq!(count, self.askers.len(), "the gathered commands, and their askers");
        let fenced = &self.fenced;
        let is_known =
            fenced.is_sorted_by(|one, other| one < other) && fenced.last().is_none_or(|it| *it < count);
        assert!(is_known, "a fenced command that is not gathered");
    }
}

#[cfg(test)]
mod tests {
    use super::super::kit::{entry, ticket, write};
    use super::*;
    use crate::consensus::Proposer;
    use crate::contract::Request;

    fn three() -> Batch {
        let mut batch = Batch::new();
        batch.push(&write("a"), (ticket(1), 10), false, 0);
        batch.order(&write("b"));
        batch.push(&write("c"), (ticket(3), 30), true, 7);
        batch
    }

    #[test]
    fn a_batch_becomes_an_entry_and_is_empty_again() {
        let mut batch = three();
        let head = Head { proposer: Proposer { node: 1, life: 1, batch: 1 }, time: 0, count: 0 };
        let (made, askers, work_ns) = batch.take(head);
        assert_eq!(made.bytes(), entry(1, 1, &["a", "b", "c"]).bytes());
        assert_eq!((askers, work_ns), (vec![Some((ticket(1), 10)), None, Some((ticket(3), 30))], 7));
        assert_eq!((batch.len(), batch.bytes(), batch.work_ns()), (0, 0, 0));
        batch.check();
    }

    #[test]
    fn drained_commands_go_back_to_clients_except_the_leaders_own() {
        let (mut batch, mut drained) = (three(), Vec::new());
        batch.drain(|held, after| drained.push((held, after)));
        let given = drained.iter().map(|(held, after)| {
            let held = held.as_ref().map(|held| (held.ticket, held.deadline_us, held.terms.0));
            (held, *after)
        });
        let expected = [(Some((ticket(1), 10, false)), 1), (None, 2), (Some((ticket(3), 30, true)), 3)];
        assert_eq!(given.collect::<Vec<_>>(), expected);
        let third = drained[2].0.as_ref().unwrap();
        third.with(|request| assert_eq!(*request, Request::Command(&write("c"))));
        assert!(batch.is_empty());
        batch.check();
    }
}
