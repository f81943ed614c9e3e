//! Votes of coordinators that have ended: what such a one had under way is kept by its groups until none of them holds it any more.
//! `docs/design/transactions.md`, "Forgetting", says why that is safe; every order of the records is in `kv/two_phase/tests`.

use super::{Question, TwoPhase, was_dropped};
use crate::context::Context;
use crate::groups::Group;
use kv::codec::Writer;
use kv::two_phase::Vote;
use kv::{Command, Coordinator, Reply, TransactionId, TwoPhaseCommand};
use protocol::Result as Outcome;
use std::collections::{BTreeMap, BTreeSet};

/// How often this node looks for such votes in the groups that it leads.
const FORGET_US: u64 = 5_000_000;

/// The most transactions that are asked about at a time.
const ASKED_AT_ONCE: usize = 100;

/// What this node, as the leader of groups, has asked other groups about.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// By group and transaction: the groups that have not said yet that they do not hold it.
    asked: BTreeMap<(u16, TransactionId), BTreeSet<u16>>,
    /// When it looks next, on the monotonic clock.
    pub(super) due_us: u64,
}

impl TwoPhase {
    /// Asks the groups of each transaction that an ended coordinator has left whether they hold it.
    pub(super) fn look_for_left(&mut self, cx: &mut Context) {
        let (now_us, mut left) = (cx.now.monotonic_us, Vec::new());
        self.forgetting.due_us = now_us + FORGET_US;
        for (group, Group { replica, .. }) in cx.groups.iter() {
            let Some(replica) = replica.as_ref().filter(|replica| replica.is_leader()) else { continue };
            // Its name is the version of a map that has its node.
            let is_gone = |it: Coordinator| cx.map.version >= it.life && !cx.map.nodes.contains_key(&it.node);
            for (id, header) in replica.table().two_phase().left_behind(is_gone) {
                let is_asked = |other: &u16| *other != group && !was_dropped(cx, *other);
                let others: BTreeSet<u16> =
                    header.groups().map(|(other, _)| other).filter(is_asked).collect();
                // A group that this node has not heard of yet may hold it.
                let are_known = others.iter().all(|other| cx.groups.get(*other).is_some());
                if are_known && left.len() + self.forgetting.asked.len() < ASKED_AT_ONCE {
                    left.push(((group, id), others));
                }
            }
        }
        for ((group, id), others) in left {
            if self.forgetting.asked.contains_key(&(group, id)) {
                continue;
            }
            self.forgetting.asked.insert((group, id), others.clone());
            self.forget_if_free(cx, (group, id));
            for other in others {
                let command = Command::TwoPhase(TwoPhaseCommand::Ask { id });
                let deadline_us = now_us + cx.configuration.command_timeout_ms * 1000;
                self.ask(cx, Question::Left { group: other, holder: group, id }, &command, deadline_us);
            }
        }
    }

    /// Takes a group's answer. One that is not known, or does not come, ends the attempt.
    pub(super) fn take_left(
        &mut self,
        cx: &mut Context,
        (group, holder, id): (u16, u16, TransactionId),
        (result, reply): (Outcome, &[u8]),
    ) {
        let Some(awaited) = self.forgetting.asked.get_mut(&(holder, id)) else { return };
        let vote = match (result, Reply::first(reply)) {
            (Outcome::Done { .. }, Reply::Status(word)) => {
                Vote::ALL.into_iter().find(|vote| vote.word().as_bytes() == word)
            }
            _ => None,
        };
        match vote {
            None | Some(Vote::Prepared | Vote::Locked) => drop(self.forgetting.asked.remove(&(holder, id))),
            Some(Vote::Unknown | Vote::Committed | Vote::Refused | Vote::Over) => {
                awaited.remove(&group);
                self.forget_if_free(cx, (holder, id));
            }
        }
    }

    fn forget_if_free(&mut self, cx: &mut Context, (group, id): (u16, TransactionId)) {
        if !self.forgetting.asked[&(group, id)].is_empty() {
            return;
        }
        self.forgetting.asked.remove(&(group, id));
        let mut numbers = Vec::new();
        numbers.put_u64(id.number);
        let forget = TwoPhaseCommand::Forget { coordinator: id.coordinator, numbers: &numbers };
        let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        cx.counters.votes_forgotten += 1;
        self.ask(cx, Question::Forget { group }, &Command::TwoPhase(forget), deadline_us);
    }
}
