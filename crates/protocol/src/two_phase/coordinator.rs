//! The coordinator of transactions: the node that their clients are connected to.

use super::answers::Answer;
use super::{Action, Asked, Found, What};
use crate::contract::Result as Outcome;
use crate::planted::{Fault, Planted};
use kv::command::UNSETTLED_MAX;
use kv::two_phase::Vote;
use kv::{Age, Command, Header, Share, TransactionId, TwoPhaseCommand, UnixMs};
use std::collections::BTreeMap;

/// The pause before a record whose outcome is not known, or that no leader took, is sent again.
const PAUSE_US: u64 = 50_000;

/// The pause before another attempt, where it cannot wait in the group that has refused the last one.
const NEXT_ATTEMPT_US: u64 = 2_000;

/// A share of a transaction that is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The group that it is for.
    pub group: u16,
    /// Whether the group's vote decides.
    pub decides: bool,
    /// The encoded [`Share`]. Of a transaction whose keys are locked first, it only reads, and what the group has to do
    /// follows ([`Coordinator::evaluated`]).
    pub share: Vec<u8>,
}

/// What follows from the values that the groups have returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluated {
    /// Each group of the transaction has this to do, as an encoded [`Share`].
    Shares(Vec<(u16, Vec<u8>)>),
    /// Nothing changes: if all keys are still locked, all values have existed together, and the transaction is over.
    Nothing,
    /// It cannot be carried out: the encoded error.
    Refused(Vec<u8>),
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is committed: the groups with their encoded replies. Of a transaction that was evaluated they are empty.
    Done(Vec<(u16, Vec<u8>)>),
    /// A watched key has changed: nothing was done.
    Changed,
    /// Nothing was done, with the encoded error of a group, or none.
    Refused(Vec<u8>),
    /// It may have been carried out, or may still be: by the groups themselves, all or none.
    Unknown,
}

/// Coordinates transactions, in one incarnation of a node.
#[derive(Clone, Debug)]
pub struct Coordinator {
    name: kv::Coordinator,
    latest: u64,
    /// How often a transaction was begun again, since it was asked.
    repeated: u64,
    /// By number: until all groups have confirmed the end.
    transactions: BTreeMap<u64, Transaction>,
    planted: Planted,
}

#[derive(Clone, Debug)]
struct Transaction {
    /// The client's request; `None` once it was answered, or goes on as another transaction.
    ticket: Option<u64>,
    age: Age,
    deadline_us: u64,
    /// In ascending order of their groups.
    parts: Vec<Part>,
    /// The part that is asked before the others, and may wait for its keys, since this transaction holds nothing.
    alone: Option<usize>,
    stage: Stage,
    /// No group is ever asked to prepare it. So each may give up its lock alone, and is told that it decides alone.
    is_only_locked: bool,
    /// Whether it is committed, once that is decided.
    is_committed: Option<bool>,
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its groups prepare it.
    Preparing,
    /// Its groups lock its keys.
    Locking,
    /// Its groups prepare what was found while the keys were locked.
    PreparingLocked,
    /// Nothing is to be done: its groups are asked whether they still hold the keys. A group may have given up its lock before the
    /// last one had locked, and then the values are not of one moment.
    Confirming,
}

impl Stage {
    /// The stage with which another attempt begins.
    fn first(self) -> Stage {
        match self {
            Stage::Preparing => Stage::Preparing,
            Stage::Locking | Stage::PreparingLocked | Stage::Confirming => Stage::Locking,
        }
    }
}

#[derive(Clone, Debug)]
struct Part {
    planned: Planned,
    /// Of a transaction whose keys are locked first: what the group has to do, once that is known.
    evaluated: Vec<u8>,
    /// Whether a record that locks keys was handed to the group.
    may_hold: bool,
    /// Whether a record of this stage was ever handed to the group.
    was_asked: bool,
    /// A record is under way.
    is_awaited: bool,
    /// A record of this stage may still be applied, or may have been.
    is_in_doubt: bool,
    /// It has done what is asked in this stage.
    is_prepared: bool,
    /// The group has voted against it, or never will prepare it.
    is_refused: bool,
    /// Its reply, once it is prepared, and the time at which its keys were locked.
    reply: Option<Vec<u8>>,
    locked_at: UnixMs,
    /// It has confirmed the end.
    has_ended: bool,
    /// When the next record is due, since the last one was lost.
    again_us: Option<u64>,
}

impl Part {
    fn new(planned: Planned) -> Part {
        Part {
            planned,
            evaluated: Vec::new(),
            may_hold: false,
            was_asked: false,
            is_awaited: false,
            is_in_doubt: false,
            is_prepared: false,
            is_refused: false,
            reply: None,
            locked_at: 0,
            has_ended: false,
            again_us: None,
        }
    }
}

impl Transaction {
    /// Whether a deciding group was asked to prepare it.
    fn asked_deciders(&self) -> bool {
        self.asks_for_votes() && self.parts.iter().any(|part| part.planned.decides && part.was_asked)
    }

    fn asks_for_votes(&self) -> bool {
        matches!(self.stage, Stage::Preparing | Stage::PreparingLocked)
    }

    /// What its groups are asked.
    fn question(&self) -> What {
        match self.stage {
            Stage::Locking => What::Lock,
            Stage::Confirming => What::Confirm,
            Stage::Preparing | Stage::PreparingLocked => What::Prepare,
        }
    }

    /// Whether it can never be committed: the rule by which a coordinator may abort.
    fn may_be_aborted(&self) -> bool {
        let is_refused = |part: &Part| part.planned.decides && part.is_refused;
        !self.asked_deciders() || self.parts.iter().any(is_refused)
    }

    /// The parts that may be asked now: one alone, then those that do not decide, then those that do. Locks are no votes.
    fn wave(&self) -> Vec<usize> {
        let places = 0..self.parts.len();
        let alone = self.alone.filter(|_| matches!(self.stage, Stage::Preparing | Stage::Locking));
        if let Some(alone) = alone.filter(|alone| !self.parts[*alone].is_prepared) {
            return vec![alone];
        }
        if !self.asks_for_votes() {
            return places.collect();
        }
        let others = places.clone().filter(|place| !self.parts[*place].planned.decides);
        match others.clone().all(|place| self.parts[place].is_prepared) {
            false => others.collect(),
            true => places.filter(|place| self.parts[*place].planned.decides).collect(),
        }
    }
}

impl Coordinator {
    /// Without transactions. The name is different in each incarnation of the node.
    pub fn new(name: kv::Coordinator, planted: Planted) -> Coordinator {
        Coordinator { name, latest: 0, repeated: 0, transactions: BTreeMap::new(), planted }
    }

    /// The number of transactions that are not over in all of their groups.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Whether all transactions are over in all of their groups.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// How often a transaction was begun again since the last call, because another one was in the way.
    pub fn take_repeated(&mut self) -> u64 {
        std::mem::take(&mut self.repeated)
    }

    /// Whether it has this transaction under way: then no group need resolve it.
    pub fn has(&self, id: TransactionId) -> bool {
        id.coordinator == self.name && self.transactions.contains_key(&id.number)
    }

    /// The client's request that a transaction is for, while that waits.
    pub fn ticket_of(&self, id: TransactionId) -> Option<u64> {
        self.transactions.get(&id.number).filter(|_| id.coordinator == self.name)?.ticket
    }

    /// Until when a transaction may be asked to be prepared, on the monotonic clock.
    pub fn deadline_us(&self, id: TransactionId) -> Option<u64> {
        self.transactions.get(&id.number).filter(|_| id.coordinator == self.name).map(|it| it.deadline_us)
    }

    /// When [`Coordinator::tick`] has something to do, on the monotonic clock.
    pub fn wakeup_us(&self) -> u64 {
        let due = self.transactions.values().flat_map(|it| {
            let again = it.parts.iter().filter_map(|part| part.again_us);
            again.chain((it.is_committed.is_none() && it.ticket.is_some()).then_some(it.deadline_us))
        });
        due.min().unwrap_or(u64::MAX)
    }

    /// Begins a transaction for a client's request. `since` is the time that the nodes agree on.
    ///
    /// # Panics
    /// Without a part that decides, or with two of one group.
    pub fn begin(
        &mut self,
        of: (u64, UnixMs),
        parts: Vec<Planned>,
        deadline_us: u64,
        actions: &mut Vec<Action>,
    ) {
        self.begin_at((Stage::Preparing, false), of, parts, deadline_us, actions);
    }

    /// As [`Coordinator::begin`], but the keys are locked first. When they are, [`Action::Evaluate`] follows.
    ///
    /// # Panics
    /// As [`Coordinator::begin`].
    pub fn begin_locking(
        &mut self,
        of: (u64, UnixMs),
        parts: Vec<Planned>,
        deadline_us: u64,
        actions: &mut Vec<Action>,
    ) {
        self.begin_at((Stage::Locking, false), of, parts, deadline_us, actions);
    }

    /// Locks all keys of these groups. When they are, [`Action::Evaluate`] follows, and then nothing, until the transaction is ended:
    /// by [`Coordinator::evaluated`] with [`Evaluated::Nothing`], or by the deadline. A group may lose its lock at any time: who
    /// relies on it has to ask the group, after all have locked.
    ///
    /// # Panics
    /// Without a group, or with one twice.
    pub fn lock_all(
        &mut self,
        of: (u64, UnixMs),
        groups: &[u16],
        deadline_us: u64,
        actions: &mut Vec<Action>,
    ) {
        let mut share = Vec::new();
        Share::of_all_keys(&mut share);
        let planned = |group: &u16| Planned { group: *group, decides: true, share: share.clone() };
        let parts = groups.iter().map(planned).collect();
        self.begin_at((Stage::Locking, true), of, parts, deadline_us, actions);
    }

    fn begin_at(
        &mut self,
        (stage, is_only_locked): (Stage, bool),
        (ticket, since): (u64, UnixMs),
        mut parts: Vec<Planned>,
        deadline_us: u64,
        actions: &mut Vec<Action>,
    ) {
        parts.sort_unstable_by_key(|part| part.group);
        assert!(parts.iter().any(|part| part.decides), "one group decides");
        assert!(parts.is_sorted_by(|one, other| one.group < other.group), "a group has one share");
        let first = TransactionId { coordinator: self.name, number: self.latest + 1 };
        let parts = parts.into_iter().map(Part::new).collect();
        let age = Age { since, first };
        let (ticket, alone, is_committed) = (Some(ticket), None, None);
        let begun =
            Transaction { ticket, age, deadline_us, parts, alone, stage, is_only_locked, is_committed };
        self.latest += 1;
        self.transactions.insert(self.latest, begun);
        self.ask(self.latest, actions);
    }

    /// Takes what was found from the values of a transaction whose keys are all locked.
    ///
    /// # Panics
    /// Unless it is so, and each of its groups has a share.
    pub fn evaluated(&mut self, id: TransactionId, evaluated: Evaluated, actions: &mut Vec<Action>) {
        let transaction = self.transactions.get_mut(&id.number).expect("it is under way");
        assert_eq!(transaction.stage, Stage::Locking, "it is evaluated once");
        assert!(transaction.parts.iter().all(|part| part.is_prepared), "all keys are locked");
        let has_shares = matches!(evaluated, Evaluated::Shares(_));
        assert!(!has_shares || !transaction.is_only_locked, "its groups do not know of each other");
        let shares = match evaluated {
            Evaluated::Shares(shares) => shares,
            // One group is asked once, so what it has read is of one moment.
            Evaluated::Nothing if transaction.is_only_locked || transaction.parts.len() == 1 => {
                return self.end(id.number, false, Ended::Done(Vec::new()), actions);
            }
            Evaluated::Nothing => {
                transaction.stage = Stage::Confirming;
                for part in &mut transaction.parts {
                    let planned = part.planned.clone();
                    *part = Part { may_hold: true, ..Part::new(planned) };
                }
                return self.ask(id.number, actions);
            }
            Evaluated::Refused(error) => return self.end(id.number, false, Ended::Refused(error), actions),
        };
        assert_eq!(shares.len(), transaction.parts.len(), "each group has a share");
        transaction.stage = Stage::PreparingLocked;
        for (part, (group, share)) in transaction.parts.iter_mut().zip(shares) {
            assert_eq!(part.planned.group, group, "shares are in the order of their groups");
            let planned = part.planned.clone();
            *part = Part { evaluated: share, may_hold: true, ..Part::new(planned) };
        }
        self.ask(id.number, actions);
    }

    /// Takes the outcome of a record.
    pub fn answered(
        &mut self,
        group: u16,
        Asked { id, what }: Asked,
        (result, reply): (Outcome, &[u8]),
        now_us: u64,
        actions: &mut Vec<Action>,
    ) {
        assert_eq!(id.coordinator, self.name, "an answer for another coordinator");
        let Some(transaction) = self.transactions.get_mut(&id.number) else { return };
        let Some(place) = transaction.parts.iter().position(|part| part.planned.group == group) else {
            return;
        };
        let is_question = what == transaction.question();
        // A lock says nothing about the vote that follows it.
        if what == What::Lock && !is_question && transaction.is_committed.is_none() {
            return;
        }
        let part = &mut transaction.parts[place];
        part.is_awaited = false;
        let answer = match Answer::of(result, reply) {
            Answer::Unknown if self.planted.has(Fault::UnknownTakenForVote) && what == What::Prepare => {
                Answer::Prepared(None)
            }
            answer => answer,
        };
        if transaction.is_committed.is_some() {
            match (what, answer) {
                (What::End, Answer::Vote(Vote::Committed | Vote::Refused | Vote::Over)) => {
                    part.has_ended = true
                }
                _ => part.again_us = Some(now_us + if what == What::End { PAUSE_US } else { 0 }),
            }
            return self.end_if_confirmed(id.number);
        }
        match answer {
            Answer::Vote(Vote::Locked) if is_question && what == What::Confirm => {
                part.is_prepared = true;
                self.ask(id.number, actions);
            }
            Answer::Vote(_) if is_question && what == What::Confirm => {
                part.is_refused = true;
                self.begin_again(id.number, place, now_us, actions);
            }
            Answer::Prepared(reply) => {
                part.is_prepared = true;
                part.reply = reply.map(<[u8]>::to_vec);
                self.ask(id.number, actions);
            }
            Answer::Locked(time, reply) if what == What::Lock => {
                part.is_prepared = true;
                (part.reply, part.locked_at) = (Some(reply.to_vec()), time);
                self.ask(id.number, actions);
            }
            Answer::Failed(error) => {
                let error = error.to_vec();
                self.refused(id.number, place, Ended::Refused(error), actions);
            }
            // Another transaction is in the way, or a command on all keys; or other groups have resolved it, since this node was
            // slow. Nothing was done.
            Answer::InTheWay(_) | Answer::Vote(Vote::Refused) => {
                part.is_refused = true;
                if transaction.may_be_aborted() {
                    self.begin_again(id.number, place, now_us, actions);
                }
            }
            // Other groups have resolved it.
            Answer::Vote(Vote::Committed) => self.end(id.number, true, Ended::Unknown, actions),
            Answer::Changed => self.refused(id.number, place, Ended::Changed, actions),
            // Whether it was carried out before all groups forgot it is not known any more.
            Answer::Vote(Vote::Over) => self.refused(id.number, place, Ended::Unknown, actions),
            Answer::NotOrdered(error) if is_question && !part.is_in_doubt => {
                let error = error.to_vec();
                self.refused(id.number, place, Ended::Refused(error), actions);
            }
            Answer::NotOrdered(_)
            | Answer::Locked(..)
            | Answer::Vote(Vote::Unknown | Vote::Locked | Vote::Prepared) => {
                part.again_us = Some(now_us + PAUSE_US);
            }
            Answer::Unknown => {
                part.is_in_doubt |= is_question;
                part.again_us = Some(now_us + PAUSE_US);
                if self.planted.has(Fault::RepeatedAfterUnknown) && transaction.ticket.is_some() {
                    self.repeat(id.number, actions);
                }
            }
        }
    }

    /// A planted fault: a transaction goes on, and begins once more under another name.
    #[cold]
    fn repeat(&mut self, number: u64, actions: &mut Vec<Action>) {
        let transaction = self.transactions.get_mut(&number).expect("it is under way");
        let parts = transaction.parts.iter().map(|part| Part::new(part.planned.clone())).collect();
        let stage = transaction.stage.first();
        let repeated = Transaction { parts, alone: None, stage, ..transaction.clone() };
        transaction.ticket = None;
        self.latest += 1;
        self.transactions.insert(self.latest, repeated);
        self.ask(self.latest, actions);
    }

    /// A group has voted against a transaction. If it does not decide, and a deciding one was asked, that one's vote has to be
    /// waited for: others have resolved the transaction.
    fn refused(&mut self, number: u64, place: usize, ended: Ended, actions: &mut Vec<Action>) {
        let transaction = self.transactions.get_mut(&number).expect("it is under way");
        transaction.parts[place].is_refused = true;
        if transaction.may_be_aborted() {
            self.end(number, false, ended, actions);
        }
    }

    /// Sends again what was lost, and ends what has taken too long.
    pub fn tick(&mut self, now_us: u64, actions: &mut Vec<Action>) {
        let numbers: Vec<u64> = self.transactions.keys().copied().collect();
        for number in numbers {
            let Some(transaction) = self.transactions.get_mut(&number) else { continue };
            let is_late = transaction.is_committed.is_none() && now_us >= transaction.deadline_us;
            if is_late && !transaction.asked_deciders() {
                self.end(number, false, Ended::Refused(Vec::new()), actions);
                continue;
            }
            if is_late && let Some(ticket) = transaction.ticket.take() {
                actions.push(Action::End { ticket, ended: Ended::Unknown });
            }
            let (is_committed, question) = (transaction.is_committed, transaction.question());
            let is_due = |part: &Part| part.again_us.is_some_and(|at_us| at_us <= now_us) && !part.is_awaited;
            let places: Vec<usize> =
                (0..transaction.parts.len()).filter(|place| is_due(&transaction.parts[*place])).collect();
            places.iter().for_each(|place| transaction.parts[*place].again_us = None);
            for place in places {
                let what = match is_committed {
                    Some(_) => What::End,
                    None if is_late => What::Resolve,
                    None => question,
                };
                self.send(number, place, what, actions);
            }
        }
    }

    /// Asks the groups whose turn it is; when all have prepared the transaction, it is committed.
    fn ask(&mut self, number: u64, actions: &mut Vec<Action>) {
        let transaction = &self.transactions[&number];
        let is_one_enough = self.planted.has(Fault::VotesNotAwaited) && transaction.stage != Stage::Locking;
        if transaction.parts.iter().all(|part| part.is_prepared || is_one_enough && part.was_asked)
            && transaction.parts.iter().any(|part| part.is_prepared)
        {
            return self.all_have_answered(number, actions);
        }
        let (wave, question) = (transaction.wave(), transaction.question());
        let unasked: Vec<usize> =
            wave.into_iter().filter(|place| !transaction.parts[*place].was_asked).collect();
        unasked.into_iter().for_each(|place| self.send(number, place, question, actions));
    }

    /// All groups have prepared a transaction, or locked its keys.
    fn all_have_answered(&mut self, number: u64, actions: &mut Vec<Action>) {
        let transaction = &self.transactions[&number];
        let parts = transaction.parts.iter();
        let ended = match transaction.stage {
            Stage::Preparing => {
                let replies = parts.map(|part| Some((part.planned.group, part.reply.clone()?)));
                replies.collect::<Option<Vec<_>>>().map_or(Ended::Unknown, Ended::Done)
            }
            Stage::PreparingLocked => Ended::Done(Vec::new()),
            Stage::Confirming => return self.end(number, false, Ended::Done(Vec::new()), actions),
            Stage::Locking => {
                // Nobody waits for it any more.
                let Some(ticket) = transaction.ticket else {
                    return self.end(number, false, Ended::Unknown, actions);
                };
                let found = |part: &Part| Found {
                    group: part.planned.group,
                    time: part.locked_at,
                    reply: part.reply.clone().unwrap_or_default(),
                };
                let (id, found) =
                    (TransactionId { coordinator: self.name, number }, parts.map(found).collect());
                return actions.push(Action::Evaluate { ticket, id, found });
            }
        };
        self.end(number, true, ended, actions);
    }

    /// Gives up this attempt, and begins another one with the same age: first in the group where another transaction was in the
    /// way, where it may wait, unless that decides and others do not, which are asked before it.
    fn begin_again(&mut self, number: u64, place: usize, now_us: u64, actions: &mut Vec<Action>) {
        let transaction = self.transactions.get_mut(&number).expect("it is under way");
        if now_us >= transaction.deadline_us {
            return self.end(number, false, Ended::Refused(Vec::new()), actions);
        }
        let ticket = transaction.ticket.take();
        let mut parts: Vec<Part> =
            transaction.parts.iter().map(|part| Part::new(part.planned.clone())).collect();
        let is_first = transaction.stage != Stage::Preparing
            || !parts[place].planned.decides
            || parts.iter().all(|part| part.planned.decides);
        if !is_first {
            let others = parts.iter_mut().filter(|part| !part.planned.decides);
            others.for_each(|part| part.again_us = Some(now_us + NEXT_ATTEMPT_US));
        }
        let alone = is_first.then_some(place);
        // The group was asked alone, and its leader did not let it wait, as it has just become the leader.
        let is_repeated = is_first && transaction.alone == alone;
        if is_repeated {
            parts[place].again_us = Some(now_us + NEXT_ATTEMPT_US);
        }
        let stage = transaction.stage.first();
        let next = Transaction { ticket, parts, alone, stage, is_committed: None, ..transaction.clone() };
        self.end(number, false, Ended::Unknown, actions);
        if next.ticket.is_none() {
            return;
        }
        self.latest += 1;
        self.repeated += 1;
        self.transactions.insert(self.latest, next);
        if is_first && !is_repeated {
            self.ask(self.latest, actions);
        }
    }

    /// Decides: answers the client, and has all groups end the transaction.
    fn end(&mut self, number: u64, is_committed: bool, ended: Ended, actions: &mut Vec<Action>) {
        let transaction = self.transactions.get_mut(&number).expect("it is under way");
        assert!(transaction.is_committed.is_none(), "a transaction is decided once");
        assert!(is_committed || transaction.may_be_aborted(), "it may have been committed: {transaction:?}");
        transaction.is_committed = Some(is_committed);
        if let Some(ticket) = transaction.ticket.take() {
            actions.push(Action::End { ticket, ended });
        }
        for place in 0..transaction.parts.len() {
            let part = &mut self.transactions.get_mut(&number).expect("it is under way").parts[place];
            part.again_us = None;
            // What was never asked, or was refused for certain, has nothing to end.
            part.has_ended = !part.may_hold;
            if part.may_hold {
                self.send(number, place, What::End, actions);
            }
        }
        self.end_if_confirmed(number);
    }

    fn end_if_confirmed(&mut self, number: u64) {
        let is_over = |transaction: &Transaction| transaction.parts.iter().all(|part| part.has_ended);
        if self.transactions.get(&number).is_some_and(is_over) {
            self.transactions.remove(&number);
        }
    }

    /// Hands a record to the group of a part.
    fn send(&mut self, number: u64, place: usize, what: What, actions: &mut Vec<Action>) {
        let id = TransactionId { coordinator: self.name, number };
        let over = self.over();
        let transaction = self.transactions.get_mut(&number).expect("it is under way");
        let is_named = |at: &usize| !transaction.is_only_locked || *at == place;
        let named = (0..transaction.parts.len()).filter(is_named).map(|at| &transaction.parts[at].planned);
        let groups: Vec<(u16, bool)> = named.map(|it| (it.group, it.decides)).collect();
        let mut scratch = Vec::new();
        let header = Header::build((id, transaction.age), over, groups, &mut scratch)
            .expect("its groups are in order");
        let is_alone =
            transaction.alone == Some(place) && transaction.parts.iter().all(|part| !part.is_prepared);
        let part = &mut transaction.parts[place];
        let command = match (what, transaction.is_committed) {
            (What::Prepare | What::Lock, _) => {
                (part.was_asked, part.may_hold) = (true, true);
                let share = if transaction.stage == Stage::PreparingLocked {
                    &part.evaluated
                } else {
                    &part.planned.share
                };
                let share = Share::of_checked(share);
                match transaction.stage {
                    Stage::Preparing => TwoPhaseCommand::Prepare { header, is_alone, share },
                    Stage::Locking => TwoPhaseCommand::Lock { header, is_alone, share },
                    Stage::PreparingLocked => TwoPhaseCommand::PrepareLocked { header, share },
                    Stage::Confirming => unreachable!("what is confirmed is locked"),
                }
            }
            (What::Confirm, _) => {
                part.was_asked = true;
                TwoPhaseCommand::Ask { id }
            }
            (What::Resolve, _) => TwoPhaseCommand::Resolve { header },
            (What::End, Some(true)) => TwoPhaseCommand::Commit { header },
            (What::End, _) => TwoPhaseCommand::Abort { header },
        };
        part.is_awaited = true;
        let mut record = Vec::new();
        Command::TwoPhase(command).encode(&mut record);
        actions.push(Action::Submit { group: part.planned.group, asked: Asked { id, what }, record });
    }

    /// The number below which all transactions are over, but for those that follow: decided ones whose end is not confirmed.
    fn over(&self) -> (u64, Vec<u64>) {
        let mut unsettled = Vec::new();
        for (number, transaction) in &self.transactions {
            if transaction.is_committed.is_none() || unsettled.len() == UNSETTLED_MAX {
                return (*number, unsettled);
            }
            unsettled.push(*number);
        }
        (self.latest + 1, unsettled)
    }
}
