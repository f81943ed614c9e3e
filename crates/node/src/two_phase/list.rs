//! What the leader of a group knows of locked keys before its table does: which keys it has proposed to lock, and which locks it
//! has proposed to end. A command that would meet a lock when it is applied waits here instead.
//!
//! The list belongs to one leadership. What an earlier one has proposed is in the table, or will be refused there
//! ([`kv::BLOCKED`]).

use kv::codec::Reader;
use kv::{Age, Command, Header, Share, Table, TransactionId, TwoPhaseCommand};
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
    /// Those of them that will lock all keys.
    all: Vec<TransactionId>,
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
        let mut inner = None;
        match without_values(command, &mut inner) {
            Command::TwoPhase(
                TwoPhaseCommand::Prepare { header, is_alone, share }
                | TwoPhaseCommand::Lock { header, is_alone, share },
            ) => {
                let (id, age) = (header.id(), header.age());
                if self.has_barrier {
                    return if *is_alone { Judged::Waits } else { Judged::Refused(*header) };
                }
                let holders = self.holders(table, id, share);
                let is_oldest = holders.iter().all(|holder| age < *holder);
                if !holders.is_empty() && (*is_alone || is_oldest) {
                    self.has_barrier |= share.is_on_all_keys();
                    return Judged::Waits;
                }
                self.propose_lock(ticket, (id, age), share);
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
        let held = (table.two_phase().locked(), table.two_phase().all_locked_by());
        table.meets(command, held, &|id| !ends(id))
            || table.meets(command, (&self.keys, Some(&self.all)), &|ids| ids.iter().any(|id| !ends(id)))
    }

    /// The ages of the other transactions that hold keys of a share, or will.
    fn holders(&self, table: &Table, own: TransactionId, share: &Share<'_>) -> Vec<Age> {
        let two_phase = table.two_phase();
        let mut ids: Vec<TransactionId> = self.all.clone();
        ids.extend(two_phase.all_locked_by());
        if share.is_on_all_keys() {
            ids.extend(two_phase.held().map(|(id, _)| id).chain(self.locking.keys().copied()));
        }
        share.command().for_each_key(|key| {
            ids.extend(two_phase.locked_by(key));
            ids.extend(self.keys.get(key).into_iter().flatten());
        });
        let others = ids.into_iter().filter(|id| *id != own && !self.ending.contains_key(id));
        let age_of = |id| self.locking.get(&id).map(|it| it.age).or_else(|| two_phase.age_of(id));
        others.filter_map(age_of).collect()
    }

    fn propose_lock(&mut self, ticket: Ticket, (id, age): (TransactionId, Age), share: &Share<'_>) {
        self.tickets.insert(ticket, (id, Proposed::Lock));
        let locking = self.locking.entry(id).or_insert_with(|| {
            let mut keys: Vec<Box<[u8]>> = Vec::new();
            share.command().for_each_key(|key| keys.push(key.into()));
            self.all.extend(share.is_on_all_keys().then_some(id));
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
                    self.all.retain(|all| *all != id);
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
        let is_locking = |id| self.locking.contains_key(id);
        assert!(self.all.iter().all(is_locking), "what will lock all keys is proposed");
        let records: u32 =
            self.ending.values().sum::<u32>() + self.locking.values().map(|it| it.records).sum::<u32>();
        assert_eq!(self.tickets.len(), records as usize, "each record that is proposed has a ticket");
    }
}

/// The command without the values that it was supplied with. If there are some, it is decoded into `inner`.
fn without_values<'s, 'c>(command: &'s Command<'c>, inner: &'s mut Option<Command<'c>>) -> &'s Command<'c> {
    match command {
        Command::Supplied(supplied) => {
            inner.insert(supplied.command().expect("it was checked when it was built"))
        }
        command => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Condition, Coordinator, Draft, Expiry, List, ReplyBuffer, SetAnswer};

    const LEADERSHIP: u64 = 1;

    fn set(key: &[u8]) -> Command<'_> {
        let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
        Command::Set { key, value: b"v", expiry, condition, answer }
    }

    fn ticket(sequence: u64) -> Ticket {
        Ticket { client: 7, sequence }
    }

    /// A leader's table and list.
    #[derive(Default)]
    struct Leader {
        list: Locks,
        version: u64,
        table: Option<Table>,
    }

    impl Leader {
        fn judge(&mut self, sequence: u64, command: &Command<'_>) -> &'static str {
            let table = self.table.get_or_insert_with(|| Table::new(1));
            let judged = self.list.judge(table, LEADERSHIP, ticket(sequence), command);
            self.list.check_invariants();
            match judged {
                Judged::Goes => "goes",
                Judged::Waits => "waits",
                Judged::Refused(_) => "refused",
            }
        }

        fn apply(&mut self, sequence: u64, command: &Command<'_>) {
            self.version += 1;
            let table = self.table.get_or_insert_with(|| Table::new(1));
            table.apply(command, self.version, 1, &mut ReplyBuffer::new());
            assert!(self.list.ended(ticket(sequence)));
            self.list.check_invariants();
        }
    }

    enum Step {
        Prepare { is_alone: bool },
        Commit,
    }

    /// Calls `with` with a record of a transaction that sets a key.
    fn record<R>(number: u64, since: u64, key: &[u8], step: Step, with: impl Fn(&Command<'_>) -> R) -> R {
        let id = TransactionId { coordinator: Coordinator { node: 1, life: 1 }, number };
        let (mut scratch, mut bytes, mut draft) = (Vec::new(), Vec::new(), Draft::default());
        let age = Age { since, first: id };
        let header = Header::build((id, age), (1, []), [(4, true), (9, true)], &mut scratch).unwrap();
        draft.push(&set(key));
        let share = Share::build(&Command::Transaction(draft.transaction()), &mut bytes).unwrap();
        with(&Command::TwoPhase(match step {
            Step::Prepare { is_alone } => TwoPhaseCommand::Prepare { header, is_alone, share },
            Step::Commit => TwoPhaseCommand::Commit { header },
        }))
    }

    fn prepare<R>(
        number: u64,
        since: u64,
        key: &[u8],
        is_alone: bool,
        with: impl Fn(&Command<'_>) -> R,
    ) -> R {
        record(number, since, key, Step::Prepare { is_alone }, with)
    }

    #[test]
    fn others_wait_for_a_key_from_the_proposal_of_its_lock_to_that_of_its_end() {
        let leader = std::cell::RefCell::new(Leader::default());
        let judge = |sequence, command: &Command<'_>| leader.borrow_mut().judge(sequence, command);
        assert_eq!(prepare(1, 10, b"a", false, |it| judge(1, it)), "goes");
        let get = Command::Get { key: b"a" };
        assert_eq!([judge(2, &set(b"a")), judge(3, &get), judge(4, &set(b"b"))], ["waits", "waits", "goes"]);
        prepare(1, 10, b"a", false, |it| leader.borrow_mut().apply(1, it));
        assert_eq!([judge(2, &set(b"a")), judge(3, &get)], ["waits", "waits"], "the table has the lock");
        assert_eq!(record(1, 10, b"a", Step::Commit, |it| judge(5, it)), "goes");
        assert_eq!([judge(2, &set(b"a")), judge(3, &get)], ["goes", "waits"], "a read shows what is applied");
        record(1, 10, b"a", Step::Commit, |it| leader.borrow_mut().apply(5, it));
        assert_eq!(judge(3, &get), "goes");
        assert!(leader.borrow().list.is_empty());
    }

    #[test]
    fn a_transaction_waits_if_it_holds_nothing_or_is_the_oldest() {
        let leader = std::cell::RefCell::new(Leader::default());
        let judge = |sequence, command: &Command<'_>| leader.borrow_mut().judge(sequence, command);
        assert_eq!(prepare(1, 10, b"a", false, |it| judge(1, it)), "goes");
        assert_eq!(prepare(1, 10, b"a", false, |it| judge(5, it)), "goes", "its own lock");
        assert_eq!(prepare(2, 9, b"a", false, |it| judge(2, it)), "waits", "it is older");
        assert_eq!(prepare(3, 11, b"a", true, |it| judge(3, it)), "waits", "it is alone");
        assert_eq!(prepare(4, 11, b"a", false, |it| judge(4, it)), "goes", "its record refuses it");
    }

    #[test]
    fn later_transactions_leave_the_way_to_a_command_on_all_keys() {
        let leader = std::cell::RefCell::new(Leader::default());
        let judge = |sequence, command: &Command<'_>| leader.borrow_mut().judge(sequence, command);
        assert_eq!(prepare(1, 10, b"a", false, |it| judge(1, it)), "goes");
        assert_eq!(judge(2, &Command::Size {}), "waits");
        assert_eq!(prepare(2, 11, b"b", false, |it| judge(3, it)), "refused");
        assert_eq!(prepare(3, 11, b"b", true, |it| judge(4, it)), "waits");
        leader.borrow_mut().list.begin_pass();
        prepare(1, 10, b"a", false, |it| leader.borrow_mut().apply(1, it));
        record(1, 10, b"a", Step::Commit, |it| judge(5, it));
        record(1, 10, b"a", Step::Commit, |it| leader.borrow_mut().apply(5, it));
        assert_eq!([judge(2, &Command::Size {}), prepare(3, 11, b"b", true, |it| judge(4, it))], ["goes"; 2]);
    }

    #[test]
    fn a_transaction_that_locks_all_keys_is_in_the_way_of_all_commands_and_waits_for_other_transactions() {
        let leader = std::cell::RefCell::new(Leader::default());
        let judge = |sequence, command: &Command<'_>| leader.borrow_mut().judge(sequence, command);
        let lock_all = |number: u64, since, is_alone, sequence| {
            let id = TransactionId { coordinator: Coordinator { node: 1, life: 1 }, number };
            let (mut scratch, mut bytes) = (Vec::new(), Vec::new());
            let age = Age { since, first: id };
            let header = Header::build((id, age), (1, []), [(4, true)], &mut scratch).unwrap();
            let share = Share::of_all_keys(&mut bytes);
            judge(sequence, &Command::TwoPhase(TwoPhaseCommand::Lock { header, is_alone, share }))
        };
        assert_eq!(prepare(1, 10, b"a", false, |it| judge(1, it)), "goes");
        assert_eq!(lock_all(2, 11, false, 2), "goes", "it is younger: its record refuses it");
        leader.borrow_mut().list.ended(ticket(2));
        assert_eq!(lock_all(3, 9, false, 3), "waits", "it is the oldest");
        assert_eq!(prepare(4, 12, b"b", false, |it| judge(4, it)), "refused", "later ones let it pass");
        assert_eq!(judge(5, &set(b"c")), "goes", "single commands are not in its way");
        leader.borrow_mut().list.begin_pass();
        leader.borrow_mut().list.ended(ticket(1));
        assert_eq!(lock_all(3, 9, false, 3), "goes");
        assert_eq!([judge(5, &set(b"c")), judge(6, &Command::Size {})], ["waits"; 2]);
        leader.borrow_mut().list.begin_pass();
        assert_eq!(prepare(4, 12, b"b", true, |it| judge(4, it)), "waits");
        leader.borrow_mut().list.ended(ticket(3));
        assert_eq!(judge(5, &set(b"c")), "goes");
    }

    #[test]
    fn what_leaves_without_an_outcome_or_with_its_leadership_is_forgotten() {
        let leader = std::cell::RefCell::new(Leader::default());
        let judge = |sequence, command: &Command<'_>| leader.borrow_mut().judge(sequence, command);
        prepare(1, 10, b"a", false, |it| judge(1, it));
        prepare(1, 10, b"a", false, |it| judge(1, it));
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, [&b"b"[..], b"a"]);
        assert_eq!(judge(2, &Command::Delete { keys }), "waits");
        let mut leader = leader.into_inner();
        let table = Table::new(1);
        let judged = leader.list.judge(&table, LEADERSHIP + 1, ticket(2), &Command::Delete { keys });
        assert_eq!(judged, Judged::Goes);
        assert!(leader.list.is_empty() && leader.list.is_of(Some(LEADERSHIP + 1)));
    }
}
