//! What a group's leader does about a transaction that it holds and whose coordinator does not end it: it asks the deciding groups
//! for their votes, and ends the transaction in its own group.

use super::answers::Answer;
use super::{Action, Asked, What};
use crate::contract::Result as Outcome;
use crate::planted::{Fault, Planted};
use kv::two_phase::Vote;
use kv::{Command, Header, TransactionId, TwoPhaseCommand};
use std::collections::BTreeMap;

/// The pause before a question that was not answered is asked again.
const PAUSE_US: u64 = 100_000;

/// Resolves transactions that groups of this node hold.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// By the group that holds it.
    transactions: BTreeMap<(u16, TransactionId), Resolving>,
    planted: Planted,
}

#[derive(Clone, Debug)]
struct Resolving {
    header: Vec<u8>,
    /// The groups that are asked, each with whether it has prepared the transaction, as far as that is known; of an orphan, whether
    /// it has committed it.
    votes: BTreeMap<u16, Option<bool>>,
    /// A deciding group does not exist any more. So all others are asked, and one that has committed the transaction decides.
    is_orphan: bool,
    /// When the next questions are due.
    again_us: u64,
}

impl Resolver {
    /// With nothing to resolve.
    pub fn new(planted: Planted) -> Resolver {
        Resolver { transactions: BTreeMap::new(), planted }
    }

    /// Whether it has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// When [`Resolver::tick`] has something to do, on the monotonic clock.
    pub fn wakeup_us(&self) -> u64 {
        self.transactions.values().map(|it| it.again_us).min().unwrap_or(u64::MAX)
    }

    /// Begins to resolve a transaction that a group holds, unless that is under way.
    pub fn begin(&mut self, group: u16, header: Header<'_>, now_us: u64, actions: &mut Vec<Action>) {
        let deciding = header.groups().filter(|(_, decides)| *decides).map(|(group, _)| (group, None));
        let first = self.planted.has(Fault::GivesUpAlone).then_some(false);
        let fresh = || Resolving {
            header: header.bytes().to_vec(),
            votes: deciding.map(|(group, vote)| (group, vote.or(first))).collect(),
            is_orphan: false,
            again_us: now_us,
        };
        self.transactions.entry((group, header.id())).or_insert_with(fresh);
        self.tick(now_us, actions);
    }

    /// Begins to resolve a transaction of which a deciding group does not exist any more. It is committed if one of the others has
    /// committed it, and else given up.
    pub fn abandon(
        &mut self,
        group: u16,
        header: Header<'_>,
        exists: impl Fn(u16) -> bool,
        now_us: u64,
        actions: &mut Vec<Action>,
    ) {
        let others = header.groups().filter(|(other, _)| *other != group && exists(*other));
        let fresh = Resolving {
            header: header.bytes().to_vec(),
            votes: others.map(|(group, _)| (group, None)).collect(),
            is_orphan: true,
            again_us: now_us,
        };
        let name = (group, header.id());
        if !self.transactions.get(&name).is_some_and(|it| it.is_orphan) {
            self.transactions.insert(name, fresh);
        }
        self.tick(now_us, actions);
    }

    /// Forgets what is not held any more.
    pub fn retain(&mut self, holds: impl Fn(u16, TransactionId) -> bool) {
        self.transactions.retain(|(group, id), _| holds(*group, *id));
    }

    /// Takes the outcome of a question that was asked for `holder`.
    pub fn answered(
        &mut self,
        holder: u16,
        (group, asked): (u16, Asked),
        (result, reply): (Outcome, &[u8]),
        now_us: u64,
        actions: &mut Vec<Action>,
    ) {
        let Some(resolving) = self.transactions.get_mut(&(holder, asked.id)) else { return };
        if asked.what == What::Resolve
            && let Some(vote) = resolving.votes.get_mut(&group)
        {
            let is_orphan = resolving.is_orphan;
            match Answer::of(result, reply) {
                Answer::Prepared(_) | Answer::Vote(Vote::Prepared) if is_orphan => *vote = Some(false),
                Answer::Prepared(_) | Answer::Vote(Vote::Committed) => *vote = Some(true),
                // What is over was not committed: it would not have been forgotten while this group holds it.
                Answer::InTheWay(_)
                | Answer::Changed
                | Answer::Failed(_)
                | Answer::Vote(Vote::Refused | Vote::Over) => *vote = Some(false),
                Answer::Vote(Vote::Unknown | Vote::Locked | Vote::Prepared)
                | Answer::Locked(..)
                | Answer::NotOrdered(_)
                | Answer::Unknown => {}
            }
            if resolving.outcome().is_some() {
                resolving.again_us = now_us;
                self.tick(now_us, actions);
            }
        }
    }

    /// Asks what is not known, and ends what is decided.
    pub fn tick(&mut self, now_us: u64, actions: &mut Vec<Action>) {
        for ((holder, id), resolving) in &mut self.transactions {
            if resolving.again_us > now_us {
                continue;
            }
            resolving.again_us = now_us + PAUSE_US;
            let header = Header::of(&resolving.header).expect("it was a header");
            let mut send = |group, what, command| {
                let mut record = Vec::new();
                Command::TwoPhase(command).encode(&mut record);
                actions.push(Action::Submit { group, asked: Asked { id: *id, what }, record });
            };
            match resolving.outcome() {
                Some(true) => send(*holder, What::End, TwoPhaseCommand::Commit { header }),
                Some(false) => send(*holder, What::End, TwoPhaseCommand::Abort { header }),
                None => {
                    let unknown = resolving.votes.iter().filter(|(_, vote)| vote.is_none());
                    unknown.for_each(|(group, _)| {
                        send(*group, What::Resolve, TwoPhaseCommand::Resolve { header })
                    });
                }
            }
        }
    }
}

impl Resolving {
    /// Whether the transaction is committed, if that is certain.
    fn outcome(&self) -> Option<bool> {
        if self.is_orphan {
            let is_known = self.votes.values().all(Option::is_some);
            let is_committed = self.votes.values().any(|vote| *vote == Some(true));
            return (is_known || is_committed).then_some(is_committed);
        }
        match self.votes.values().any(|vote| *vote == Some(false)) {
            true => Some(false),
            false => self.votes.values().all(|vote| *vote == Some(true)).then_some(true),
        }
    }
}
