//! Applying: what is decided takes effect, in order, once.

use super::Replica;
use super::agreement::Agreement;
use super::entry::{Entry, Proposer};
use super::log::Handle;
use super::waiting::Proposal;
use crate::contract::{Effects, Trace, not_before};
use crate::planted::Fault;
use kv::codec::Reader;
use kv::table::WARMED_KEYS_MAX;
use kv::{Command, Table, Version};
use omnipaxos::storage::Storage;
use std::rc::Rc;

impl Replica {
    /// Applies the decided entries that are not applied yet, and answers whoever waits for them. Those of many scripts may take
    /// longer than others wait for a sign of life, so each turn applies some.
    pub(super) fn apply(&mut self, effects: &mut Effects) {
        let decided = self.decided();
        let before = self.applied;
        let enough_ns = self.table.scripts_ns() + self.timing.applying_ns;
        self.owes_applying = false;
        while self.applied < decided {
            if self.table.scripts_ns() >= enough_ns {
                self.owes_applying = true;
                break;
            }
            let Some(entry) = self.log.borrow().entry(self.applied) else { break };
            if self.stands_before_one_of(&entry) {
                break;
            }
            let head = entry.head();
            // Entries of different leaders may be out of the order of their times.
            self.time = not_before(head.time, self.time);
            let proposal = self.proposal_of(self.applied, head.proposer, effects);
            self.carry_out(&entry, proposal.as_ref(), effects);
            self.applied += 1;
            let offset = self.log.borrow().offset_at(self.applied);
            assert_eq!(Some(self.offset), offset, "an entry holds other commands than its head says");
            if let (Some(proposal), Some(leadership)) = (&proposal, &mut self.leadership)
                && proposal.ballot == leadership.ballot
            {
                leadership.committed(proposal.proposed_us);
            }
            if let Some(stop_sign) = entry.stop_sign()
                && stop_sign.id > self.group.id
            {
                self.follow_stop_sign(&stop_sign, effects);
                break;
            }
        }
        if self.applied > before {
            self.follow_values();
            effects.trace.push(Trace::Committed { offset: self.offset });
        }
    }

    /// Applies what is known to be decided while records are replayed, up to the end of the configuration: how the next one
    /// began is a record of its own.
    pub(super) fn apply_replayed(&mut self) {
        let decided = self.log.borrow().decided();
        while self.applied < decided {
            let Some(entry) = self.log.borrow().entry(self.applied) else { return };
            if self.stands_before_one_of(&entry) {
                return;
            }
            if entry.stop_sign().is_some_and(|stop_sign| stop_sign.id > self.group.id) {
                return;
            }
            self.time = not_before(entry.head().time, self.time);
            self.carry_out(&entry, None, &mut Effects::default());
            self.applied += 1;
            self.follow_values();
        }
    }

    fn stands_before_one_of(&self, entry: &Entry) -> bool {
        let last = self.offset + Version::from(entry.head().count);
        self.stands_before.is_some_and(|record| self.offset < record && record <= last)
    }

    /// How many entries are decided. Alone, that is what is durable.
    fn decided(&mut self) -> usize {
        if let Some(Agreement::Alone { ballot }) = self.agreement {
            let durable = self.log.borrow().durable_in(ballot);
            if durable > self.applied {
                let _ = Handle(Rc::clone(&self.log)).set_decided_idx(durable);
            }
        }
        let log = self.log.borrow();
        if self.options.planted.has(Fault::ConfigurationBeginsEarly)
            && log.last_stop_sign().is_some_and(|stop_sign| stop_sign.id > self.group.id)
        {
            return log.end();
        }
        log.decided()
    }

    fn carry_out(&mut self, entry: &Entry, proposal: Option<&Proposal>, effects: &mut Effects) {
        if let Some(stop_sign) = entry.stop_sign() {
            // Whichever configuration this replica is in by now: what stands behind it is of that one.
            self.table.set_membership(stop_sign.id);
        }
        let asked_within = proposal.filter(|_| !self.reads_within.is_empty()).map(|proposal| proposal.batch);
        let mut carried_out = 0;
        let mut askers = proposal.map(|proposal| proposal.askers.iter()).into_iter().flatten();
        let mut reader = entry.commands();
        let mut commands = Vec::with_capacity(WARMED_KEYS_MAX);
        while next_commands(&mut reader, &self.table, &mut commands) {
            for command in &commands {
                self.offset += 1;
                carried_out += 1;
                if self.options.planted.has(Fault::AbandonedValueStored) && self.forgets_abandoned(command) {
                    askers.next();
                } else if let Some(Some((ticket, _))) = askers.next() {
                    let start = effects.replies.len();
                    let version = self.table.apply(command, self.offset, self.time, &mut effects.replies);
                    effects.done(*ticket, start, version, self.offset);
                } else {
                    self.apply_unasked(command, effects);
                }
                if let Some(batch) = asked_within {
                    self.answer_within(batch, carried_out, effects);
                }
            }
        }
        if let Some(events) = self.table.take_lock_events() {
            self.follow_lock_events(events, effects);
        }
    }

    /// The proposal that is the entry decided at an index, if this life of this replica made it. Proposals of which
    /// it is now certain that they never will be decided are told so.
    fn proposal_of(&mut self, index: usize, proposer: Proposer, effects: &mut Effects) -> Option<Proposal> {
        let is_own = (proposer.node, proposer.life) == (self.id, self.identity.life);
        loop {
            let proposal = self.proposals.pop_if(|proposal| {
                // A later proposal of this replica stands in a log that the earlier one is not in; or something else
                // has taken its place.
                if is_own { proposal.batch <= proposer.batch } else { proposal.index <= index }
            })?;
            if is_own && proposal.batch == proposer.batch {
                return Some(proposal);
            }
            refuse_lost(&proposal, effects);
        }
    }

    /// Proposals that stand where nothing of their configuration is ever decided.
    pub(super) fn end_void_proposals(&mut self, effects: &mut Effects) {
        while let Some(proposal) = self.proposals.pop_if(|_| true) {
            refuse_lost(&proposal, effects);
        }
    }

    /// Proposals before an index that a copy of the table has skipped: nobody here will ever know.
    pub(super) fn skip_proposals(&mut self, index: usize, effects: &mut Effects) {
        while let Some(proposal) = self.proposals.pop_if(|proposal| proposal.index < index) {
            for (ticket, _) in proposal.askers.into_iter().flatten() {
                self.tell_unknown(ticket, effects);
            }
        }
    }
}

fn refuse_lost(proposal: &Proposal, effects: &mut Effects) {
    let error = "TRYAGAIN LOST another leader's write was decided in its place; nothing was done, try again";
    proposal.askers.iter().flatten().for_each(|(ticket, _)| effects.refuse(*ticket, error));
}

/// Decodes the next commands and looks at what they need in memory, all at once; false when none are left.
fn next_commands<'a>(reader: &mut Reader<'a>, table: &Table, commands: &mut Vec<Command<'a>>) -> bool {
    commands.clear();
    while commands.len() < WARMED_KEYS_MAX && !reader.is_empty() {
        commands.push(Command::decode(reader).expect("entries are checked before they are kept"));
    }
    if commands.len() > 1 {
        let mut keys: [&[u8]; WARMED_KEYS_MAX] = [&[]; WARMED_KEYS_MAX];
        let mut places = keys.iter_mut();
        for command in commands.iter() {
            command.for_each_key(|key| {
                if let Some(place) = places.next() {
                    *place = key;
                }
            });
        }
        let missing = places.len();
        table.warm(keys[..WARMED_KEYS_MAX - missing].iter().copied());
    }
    !commands.is_empty()
}
