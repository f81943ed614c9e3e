//! What the leader of a group knows of locked keys before its table does: which keys it has proposed to lock, and which locks it
//! has proposed to end. A command that would meet a lock when it is applied waits here instead.
//!
//! The list belongs to one leadership. What an earlier one has proposed is in the table, or will be refused there
//! ([`kv::BLOCKED`]).

use kv::codec::Reader;
use kv::{Age, Command, Header, Table, TransactionId, TwoPhaseCommand};
use protocol::Ticket;
use std::collections::BTreeMap;

/// What a leader does with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged<'c> {
    /// It is ordered.
    Goes,
    /// It waits until a key is unlocked.
    Waits,
    /// The transaction is refused, so that a command on all keys gets its turn: its group is asked to resolve it instead.
    Refused(Header<'c>),
}

/// The list of one group.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    leads_in: u64,
    /// What is proposed, by the tickets of the records.
    tickets: BTreeMap<Ticket, (TransactionId, Proposed)>,
    /// The transactions whose keys are proposed to be locked.
    locking: BTreeMap<TransactionId, Locking>,
    /// The keys that these will lock.
    keys: BTreeMap<Box<[u8]>, Vec<TransactionId>>,
    /// The transactions whose end is proposed, with how many records of it are.
    ending: BTreeMap<TransactionId, u32>,
    /// A command on all keys waits.
    has_barrier: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proposed {
    Lock,
    End,
}

#[derive(Debug)]
struct Locking {
    age: Age,
    keys: Vec<Box<[u8]>>,
    records: u32,
}

impl Locks {
    /// Whether nothing is proposed, and no command on all keys waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty() && !self.has_barrier
    }

    /// Whether it belongs to this leadership.
    pub(crate) fn is_of(&self, leads_in: Option<u64>) -> bool {
        leads_in == Some(self.leads_in)
    }

    /// Whether the request with this ticket is a record of a transaction that has no outcome yet.
    pub(crate) fn has(&self, ticket: Ticket) -> bool {
        self.tickets.contains_key(&ticket)
    }

    /// Begins a look at all that wait: whether a command on all keys is among them is found again.
    pub(crate) fn begin_pass(&mut self) {
        self.has_barrier = false;
    }

    /// Decides about a command that the leader in this leadership is about to order, and notes what it locks and unlocks. `ticket`
    /// is that of its request.
    pub(crate) fn judge<'c>(
        &mut self,
        table: &Table,
        leads_in: u64,
        ticket: Ticket,
        command: &Command<'c>,
    ) -> Judged<'c> {
        if self.leads_in != leads_in {
            *self = Locks { leads_in, ..Locks::default() };
        }
        // It may have come before, and have left without an outcome.
        self.ended(ticket);
        // The parts of a long one are in the table.
        if let Command::LongEnd { id, .. } = *command
            && let Some(Ok(whole)) = table.long_command(id).map(|it| Command::decode(&mut Reader::new(it)))
        {
            return match self.judge(table, leads_in, ticket, &whole) {
                Judged::Waits => Judged::Waits,
                // It cannot be replaced here. The command on all keys waits for it, too.
                Judged::Goes | Judged::Refused(_) => Judged::Goes,
            };
        }
        match command {
            Command::TwoPhase(TwoPhaseCommand::Prepare { header, is_alone, share }) => {
                let (id, age) = (header.id(), header.age());
                if self.has_barrier {
                    return if *is_alone { Judged::Waits } else { Judged::Refused(*header) };
                }
                let holders = self.holders(table, id, &share.command());
                let is_oldest = holders.iter().all(|holder| age < *holder);
                if !holders.is_empty() && (*is_alone || is_oldest) {
                    return Judged::Waits;
                }
                self.propose_lock(ticket, (id, age), &share.command());
            }
            Command::TwoPhase(TwoPhaseCommand::Commit { header } | TwoPhaseCommand::Abort { header }) => {
                self.tickets.insert(ticket, (header.id(), Proposed::End));
                *self.ending.entry(header.id()).or_default() += 1;
            }
            Command::TwoPhase(_) => {}
            command if self.meets(table, command) => {
                self.has_barrier |= command.is_on_all_keys();
                return Judged::Waits;
            }
            _ => {}
        }
        Judged::Goes
    }

    /// Whether a command would meet a lock. A write is ordered behind the end of a transaction that is proposed; a read shows what is
    /// applied, and waits for that.
    fn meets(&self, table: &Table, command: &Command<'_>) -> bool {
        let ends = |id: &TransactionId| command.is_write() && self.ending.contains_key(id);
        table.meets(command, table.two_phase().locked(), &|id| !ends(id))
            || table.meets(command, &self.keys, &|ids| ids.iter().any(|id| !ends(id)))
    }

    /// The ages of the other transactions that hold keys of a share, or will.
    fn holders(&self, table: &Table, own: TransactionId, share: &Command<'_>) -> Vec<Age> {
        let mut ages = Vec::new();
        share.for_each_key(|key| {
            let held = table.two_phase().locked_by(key);
            let proposed = self.keys.get(key).into_iter().flatten().copied();
            for id in
                held.into_iter().chain(proposed).filter(|id| *id != own && !self.ending.contains_key(id))
            {
                let age = self.locking.get(&id).map(|it| it.age).or_else(|| table.two_phase().age_of(id));
                ages.extend(age);
            }
        });
        ages
    }

    fn propose_lock(&mut self, ticket: Ticket, (id, age): (TransactionId, Age), share: &Command<'_>) {
        self.tickets.insert(ticket, (id, Proposed::Lock));
        let locking = self.locking.entry(id).or_insert_with(|| {
            let mut keys: Vec<Box<[u8]>> = Vec::new();
            share.for_each_key(|key| keys.push(key.into()));
            keys.sort_unstable();
            keys.dedup();
            keys.iter().for_each(|key| self.keys.entry(key.clone()).or_default().push(id));
            Locking { age, keys, records: 0 }
        });
        locking.records += 1;
    }

    /// Takes the outcome of a request. What it has locked is in the table by now, if anything. Returns whether it was a record of a
    /// transaction.
    pub(crate) fn ended(&mut self, ticket: Ticket) -> bool {
        let Some((id, proposed)) = self.tickets.remove(&ticket) else { return false };
        match proposed {
            Proposed::End => {
                let records = self.ending.get_mut(&id).expect("its end is proposed");
                *records -= 1;
                if *records == 0 {
                    self.ending.remove(&id);
                }
            }
            Proposed::Lock => {
                let locking = self.locking.get_mut(&id).expect("its keys are proposed to be locked");
                locking.records -= 1;
                if locking.records == 0
                    && let Some(locking) = self.locking.remove(&id)
                {
                    locking.keys.iter().for_each(|key| self.unlist(key, id));
                }
            }
        }
        true
    }

    fn unlist(&mut self, key: &[u8], id: TransactionId) {
        let Some(ids) = self.keys.get_mut(key) else { return };
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Checks that the list of keys is that of the transactions. O(keys).
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn check_invariants(&self) {
        let listed: usize = self.keys.values().map(Vec::len).sum();
        let held: usize = self.locking.values().map(|locking| locking.keys.len()).sum();
        assert_eq!(listed, held, "each key of a transaction is listed once");
        let records: u32 =
            self.ending.values().sum::<u32>() + self.locking.values().map(|it| it.records).sum::<u32>();
        assert_eq!(self.tickets.len(), records as usize, "each record that is proposed has a ticket");
    }
}
