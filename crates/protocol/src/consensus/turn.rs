//! What involves a replica as a whole: a turn, a round, a decided entry, another configuration, the installation of a
//! snapshot, a restart. Each component does its part.

use super::Replica;
use super::applied::Audience;
use super::entry::Entry;
use super::group::{Group, StopSign, Voter, are_members};
use super::incoming::Received;
use super::leading::Leadership;
use super::log::{Handle, Log};
use super::members::Help;
use super::message::Body;
use super::outbox::{Outbox, outbox};
use super::record::{Change, Moment, put_changes};
use super::restoring::{Checkpoint, own_life};
use super::slices::Slices;
use super::transfers::WHOLE;
use crate::contract::{Configuration, Effects, NodeId, Notice, Now, Progress, Trace};
use crate::planted::Fault;
use crate::rest;
use crate::waiters::Notifier;
use kv::Table;
use kv::codec::Malformed;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::Storage;
use std::rc::Rc;

impl Replica {
    pub(super) fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.applied.table_mut().tidy(rest::TIDIED_KEYS);
        self.end_overdue(now.monotonic_us, effects);
        if now.monotonic_us < self.rounds.end_us() {
            return;
        }
        if self.rounds.goes_on(now, &self.agreement, &self.links, &self.settings) {
            return;
        }
        let was_calm = self.is_calm();
        let promise = self.log.borrow().promise();
        let (answers, is_won) = self.rounds.turn(now, promise, &self.settings);
        self.agreement.tick(&self.settings, answers);
        self.ask_for_help(now, effects);
        if self.agreement.leads() {
            self.members.invite_newcomers(now, &mut outbox!(self, effects));
        }
        self.look_at_leadership(effects);
        self.log.borrow_mut().record_decided();
        self.transfers.abandon_stuck(now, &self.settings, self.applied.table_mut(), effects);
        let log = self.log.borrow();
        let slices = self.agreement.leadership_mut().map(Leadership::slices_mut);
        let state = (&*log, slices);
        self.transfers.abandon_long_kept(state, self.history_max, self.applied.table_mut(), effects);
        drop(log);
        self.applied.drop_old_fragments(now, &self.settings);
        if let Some(leadership) = self.agreement.leadership_mut() {
            leadership.tick(now, &self.settings);
        }
        self.rounds.rest_after(now, was_calm && !is_won);
    }

    /// The turn ends.
    pub(super) fn flush(&mut self, now: Now, effects: &mut Effects) {
        if !self.links.is_started() {
            return;
        }
        self.rounds.note_turn(now);
        self.end_overdue(now.monotonic_us, effects);
        self.release_held(now, effects);
        self.propose(now);
        self.apply(effects);
        self.answer_reads(now, effects);
        self.end_waits(now, effects);
        let is_position_due = self.rounds.is_position_due();
        let mut out = outbox!(self, effects);
        self.agreement.send_messages(is_position_due, &mut out);
        if self.agreement.send_slices(&mut out) {
            self.transfers.note_caught_up();
        }
        self.agreement.send_own_messages(is_position_due, &self.proposals, &self.settings, &mut out);
        self.rounds.note_positions_sent();
        // After the messages, which may show that more must be kept.
        self.cut_log();
        self.advance_handover(now, effects);
        let mut out = outbox!(self, effects);
        self.transfers.advance(now, &self.members, &mut self.applied, &mut out);
        for changes in self.log.borrow_mut().take_records() {
            let record = effects.encode(|out| put_changes(out, &changes));
            effects.records.push(record);
        }
    }

    /// Checks whether this replica has just become the leader, or ceased to be it.
    pub(super) fn look_at_leadership(&mut self, effects: &mut Effects) {
        let Some(mut change) = self.agreement.look(&self.settings, self.members.group(), &self.log, effects)
        else {
            return;
        };
        let of_ended = change.ended.as_deref_mut().map(|ended| ended.take_requests(&self.proposals));
        self.held.keep(of_ended, effects);
        if change.has_begun {
            self.links.forget_refusals();
            self.inherit_floor();
        }
    }

    /// This replica takes part no longer: its requests wait for the next leader.
    fn stand_outside(&mut self, effects: &mut Effects) {
        let mut ended = self.agreement.stand_outside();
        let of_ended = ended.as_deref_mut().map(|ended| ended.take_requests(&self.proposals));
        self.held.keep(of_ended, effects);
    }

    // Quiescence.

    /// Whether the rounds after the one that ends would be the same.
    fn is_calm(&self) -> bool {
        let log = self.log.borrow();
        self.rounds.is_calm(&self.applied, &log, &self.links, &self.agreement, &self.settings)
            && self.applied.fragments().is_empty()
            && self.has_nothing_under_way()
    }

    /// Whether no request waits, and nothing in the table has a deadline, which the leader would have to act on.
    pub(super) fn has_nothing_under_way(&self) -> bool {
        let has_nothing = |leadership: &Leadership| {
            leadership.has_no_requests()
                && leadership.handover().is_none()
                && !leadership.renews_lease(self.links.is_alone(), &self.settings)
        };
        let no_request_waits = self.held.is_empty()
            && self.proposals.is_empty()
            && self.agreement.leadership().is_none_or(has_nothing);
        let nothing_is_transferred = self.transfers.is_empty() && self.incoming.is_empty();
        self.members.is_settled()
            && no_request_waits
            && nothing_is_transferred
            && rest::is_still(self.applied.table())
    }

    // Entries.

    fn notifier(&self) -> Notifier {
        Notifier { node: self.settings.id, is_leader: self.agreement.leads() }
    }

    /// Applies the decided entries that are not applied yet, and answers the requests that wait for them. Entries with many
    /// scripts may take longer than the peers' silence limit, so each turn applies some.
    pub(super) fn apply(&mut self, effects: &mut Effects) {
        let before = self.applied.index();
        let configuration = self.members.group().id;
        let decided = self.agreement.decided(before, configuration, &self.log, &self.settings);
        let own = (self.settings.id, self.links.life());
        let enough_ns = self.applied.enough_ns(&self.settings);
        loop {
            let next = self.applied.next(&self.log.borrow(), decided, enough_ns);
            let Some(entry) = next else { break };
            let proposal = self.proposals.take(own, self.applied.index(), entry.head(), effects);
            let notifier = self.notifier();
            let audience = Audience {
                planted: self.settings.options.planted,
                proposal: proposal.as_ref(),
                within: self.agreement.leadership_mut().map(Leadership::reads_within),
                epoch: self.members.epoch(),
                notifier,
            };
            if let Some(events) = self.applied.carry_out(&entry, audience, effects) {
                let now_us = self.log.borrow().now_us();
                let measured = (self.agreement.leads_in(), &self.settings.timing);
                let offset = self.applied.offset();
                self.lock_leases.follow(now_us, measured, events, (notifier, offset), effects);
            }
            let offset = self.log.borrow().offset_at(self.applied.index());
            assert_eq!(
                Some(self.applied.offset()),
                offset,
                "an entry holds other commands than its head says"
            );
            if let (Some(proposal), Some(leadership)) = (&proposal, self.agreement.leadership_mut()) {
                leadership.committed(proposal);
            }
            if let Some(stop_sign) = entry.stop_sign()
                && stop_sign.id > self.members.group().id
            {
                self.follow_stop_sign(&stop_sign, effects);
                break;
            }
        }
        if self.applied.index() > before {
            self.applied.follow_values(self.log.borrow().now_us());
            effects.trace.push(Trace::Committed { offset: self.applied.offset() });
        }
    }

    /// Cuts off the oldest part of a log that has grown too large, but nothing that is not applied. It cuts a small part at a
    /// time, so that new entries reuse the memory of old ones, and the size of the process stays even.
    pub(super) fn cut_log(&mut self) {
        let bytes_max = self.settings.options.log_bytes.min(self.history_max);
        if self.log.borrow().bytes() <= bytes_max {
            return;
        }
        let left = bytes_max - bytes_max / 8;
        let slices = self.agreement.leadership().map(Leadership::slices);
        let kept_from = self.transfers.kept_from().min(slices.map_or(usize::MAX, Slices::kept_from));
        let index = self.log.borrow().cut_for(left).min(self.applied.index()).min(kept_from);
        if self.agreement.cut_before(index, self.settings.id, &self.log) {
            self.counters.log_cuts += 1;
        }
    }

    // Configurations.

    /// The control group names the members of the group.
    pub(super) fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        let mut members = configuration.members.clone();
        members.sort_unstable();
        members.dedup();
        let id = u32::try_from(configuration.epoch).unwrap_or(0);
        if id == 0 || !are_members(&members) {
            let why = "a configuration that cannot be";
            return effects.trace.push(Trace::Rejected { peer: self.settings.id, why });
        }
        self.agreement.set_preferred(configuration.leader == self.settings.id);
        if !self.links.is_started() {
            self.begin_life();
            self.rounds.begin(now, &self.settings);
            let is_first = id == 1 || self.settings.options.planted.has(Fault::NewMemberVotesEarly);
            if self.members.group().id == 0 && is_first && members.contains(&self.settings.id) {
                self.enter(Group::first(id, &members));
                self.record_group();
            }
            self.begin_voting();
        }
        if self.members.want(id, members) {
            self.ask_for_help(now, effects);
        }
        self.look_at_leadership(effects);
    }

    /// Puts a configuration into force.
    fn enter(&mut self, group: Group) {
        self.log.borrow_mut().begin_configuration(group.begins as usize);
        self.applied.enter(&group);
        self.members.enter(group);
        self.agreement.forget_reported_promise();
    }

    fn record_group(&mut self) {
        self.log.borrow_mut().record(vec![Change::Group(self.members.group().clone())]);
    }

    /// Takes up the voters of the current configuration, and votes among them if this replica has a vote.
    fn begin_voting(&mut self) {
        self.members.meet(&mut self.links);
        if self.members.has_vote() {
            self.rounds.forget_answers(self.log.borrow().promise());
            self.agreement.take_part(&self.settings, self.members.group(), &self.log);
        }
    }

    /// The entry that was just applied ends the configuration: the next one begins.
    fn follow_stop_sign(&mut self, stop_sign: &StopSign, effects: &mut Effects) {
        let end = self.applied.index();
        let is_decided = end <= self.log.borrow().decided();
        let is_checked = self.settings.options.planted.has_invariants();
        assert!(is_decided || !is_checked, "a configuration begins before its stop-sign is decided");
        self.proposals.refuse_all(effects);
        let ended = self.agreement.leadership_mut().map(|ended| ended.take_requests(&self.proposals));
        self.held.keep(ended, effects);
        // The others must learn that the stop-sign is decided.
        let is_position_due = self.rounds.is_position_due();
        self.agreement.send_messages(is_position_due, &mut outbox!(self, effects));
        self.agreement.end_configuration(end);
        self.enter(self.members.group().next(stop_sign, end as u64));
        self.record_group();
        let (group, offset) = (self.members.group(), self.applied.offset());
        let role = if group.contains(self.settings.id) { "voter" } else { "outsider" };
        effects.trace.push(Trace::Role { role, epoch: u64::from(group.id), offset });
        if !self.links.is_started() {
            return; // The records of earlier incarnations are being replayed.
        }
        self.begin_voting();
        self.agreement.go_on_leading();
        self.look_at_leadership(effects);
    }

    /// The storage of this replica was found to be lost or rolled back: it loses its vote.
    pub(super) fn exclude(&mut self, why: &'static str, effects: &mut Effects) {
        let Some(change) = self.members.exclude() else { return };
        self.log.borrow_mut().record(vec![change]);
        effects.trace.push(Trace::Rejected { peer: self.settings.id, why });
        self.stand_outside(effects);
    }

    /// Requests what this replica lacks from the others, if it lacks anything.
    fn ask_for_help(&mut self, now: Now, effects: &mut Effects) {
        if !self.members.needs_help(&self.links) {
            return;
        }
        if self.incoming.is_stuck(now, &self.settings) {
            self.incoming.give_up(self.applied.table_mut());
        }
        let (applied, is_helped) = (self.applied.index(), self.incoming.is_received());
        self.members.ask_for_help(applied, is_helped, &mut outbox!(self, effects));
    }

    /// A peer reports its position in its configuration, and may request what it lacks.
    pub(super) fn help(
        &mut self,
        now: Now,
        from: NodeId,
        configuration: u32,
        (index, asks): (usize, bool),
        effects: &mut Effects,
    ) {
        let log = self.log.borrow();
        let applied = self.applied.index();
        let help = self.members.note_behind(now, from, configuration, (index, asks), (applied, &log));
        let mut out = outbox!(self, effects);
        match help {
            Help::None => {}
            Help::UpTo(end) if !self.transfers.must_transfer(from, index, end, &log, &self.settings) => {
                let entries = log.entries_between(index, end);
                if !entries.is_empty() {
                    out.send(from, Body::Decided { configuration, from: index as u64, entries });
                }
            }
            _ if self.members.expects(from) && self.members.has_a_log(applied) => {
                drop(log);
                self.begin_transfer(now, from, "it lacks what is cut off here", effects);
            }
            _ => self.members.send_members(now, from, &mut out),
        }
    }

    /// Begins a snapshot transfer, unless one is under way.
    pub(super) fn begin_transfer(&mut self, now: Now, to: NodeId, why: &'static str, effects: &mut Effects) {
        let (state, counters) = ((&self.members, &mut self.applied), &mut self.counters);
        self.transfers.begin(now, (to, why), state, counters, &mut outbox!(self, effects));
    }

    /// A peer has sent decided entries that follow those that are applied here.
    pub(super) fn learn(
        &mut self,
        from: NodeId,
        configuration: u32,
        decided: (usize, Vec<Entry>),
        effects: &mut Effects,
    ) {
        let applied = self.applied.index();
        let mut out = outbox!(self, effects);
        let Some(entries) = self.members.useful(from, configuration, decided, applied, &mut out) else {
            return;
        };
        // If this replica led, it was deposed, or the stop-sign would have been decided here. The crate does not know of
        // these entries and would append others after them: a voter, whose configuration they end, takes part in it no
        // longer. The next one begins when the stop-sign is applied, which may take some turns.
        self.stand_outside(effects);
        self.log.borrow_mut().learn(applied, entries);
        self.apply(effects);
    }

    // Snapshot transfers.

    /// A snapshot begins to arrive.
    pub(super) fn transfer_begins(
        &mut self,
        now: Now,
        from: NodeId,
        transfer: u64,
        moment: Moment,
        effects: &mut Effects,
    ) {
        let is_of_use = self.is_of_use(&moment);
        let mut out = outbox!(self, effects);
        if !is_of_use {
            return out.send(from, Body::SnapshotProgress { transfer, next: WHOLE });
        }
        self.incoming.begin(now, (from, transfer), moment, self.applied.table_mut(), &mut out);
    }

    fn is_of_use(&self, moment: &Moment) -> bool {
        moment.index as usize > self.applied.index() || moment.group.id > self.members.group().id
    }

    /// A snapshot ends: it is installed if it is complete and of use.
    pub(super) fn transfer_ends(
        &mut self,
        now: Now,
        (from, transfer, chunks): (NodeId, u64, u32),
        accepted: (Ballot, Vec<Entry>),
        voters: &[Voter],
        effects: &mut Effects,
    ) {
        if let Some(mut received) = self.incoming.take_whole(from, transfer, chunks) {
            if self.is_of_use(&received.moment) {
                self.install(received, accepted, voters, effects);
                self.ask_for_help(now, effects);
            } else {
                self.applied.table_mut().take_spilled_of(&mut received.table);
            }
        }
        self.incoming.answer(from, transfer, &mut outbox!(self, effects));
    }

    /// Puts the whole snapshot in place, and restarts the crate with the log that follows it.
    ///
    /// The log after the snapshot is the greater one, by ballot and then by length: the sender's, or this replica's own. So this
    /// replica never seems to have accepted less than it is known to have decided, nor loses what it has accepted. It may seem
    /// to have accepted what the sender has, because whatever was chosen is in either or in the greater one. See the proof in
    /// the parent module.
    ///
    /// A snapshot of a newer configuration replaces all that was accepted in an older one, which has ended. A replica without a
    /// vote in the snapshot's configuration keeps what is decided, and nothing after it.
    fn install(
        &mut self,
        received: Received,
        (round, rest): (Ballot, Vec<Entry>),
        voters: &[Voter],
        effects: &mut Effects,
    ) {
        let Received { moment, mut table, from, .. } = received;
        let configuration = self.members.group().id;
        let is_of_one = round == Ballot::default() || round.config_id == moment.group.id;
        if !is_of_one || moment.group.id < configuration {
            self.applied.table_mut().take_spilled_of(&mut table);
            let why = "a snapshot with a log of another configuration";
            return effects.trace.push(Trace::Rejected { peer: from, why });
        }
        let had_nothing = configuration == 0;
        let is_newer = moment.group.id > configuration;
        let proposals_are_void = is_newer && self.agreement.takes_part();
        // They show the table that is being replaced, as does a checkpoint.
        self.transfers.abandon_all(self.applied.table_mut(), effects);
        self.checkpoint = None;
        let before = self.log.borrow().accepted();
        let has_more = is_newer || before < (round, moment.index as usize + rest.len());
        self.put_in_place(table, &moment);
        let mut out = outbox!(self, effects);
        let mut learned = self.members.learn_voters(voters, &mut out);
        if had_nothing {
            learned.extend(self.members.exclude_newcomer(&mut out));
        }
        let behind = (has_more && self.members.has_vote()).then_some((round, rest));
        self.log.borrow_mut().record_snapshot(moment.index, behind, learned);
        let after = self.log.borrow().accepted();
        assert!(
            is_newer || after >= before,
            "it looks as if it had accepted less: {after:?}, and it was {before:?}"
        );
        let index = self.applied.index();
        self.proposals.skip_before(index, &self.settings, &mut self.counters, effects);
        if proposals_are_void {
            self.proposals.refuse_all(effects);
        }
        self.counters.transfers_installed += 1;
        let keys = self.applied.table().len() as u64;
        effects.trace.push(Trace::Installed { offset: moment.offset, keys });
        effects.notices.push(Notice::Skipped);
        self.stand_outside(effects);
        self.begin_voting();
    }

    /// Replaces the table and the log's beginning by those of a snapshot.
    fn put_in_place(&mut self, table: Table, moment: &Moment) {
        self.applied.put_in_place(table, moment);
        let is_newer = moment.group.id > self.members.group().id;
        self.log.borrow_mut().installed(moment, is_newer);
        if is_newer {
            self.members.enter(moment.group.clone());
            self.agreement.forget_reported_promise();
        }
        self.applied.match_fragments(moment.group.id, self.log.borrow().now_us());
    }

    // Records.

    pub(super) fn take_record(&mut self, now: Now, record: &[u8]) -> Result<(), Malformed> {
        self.log.borrow_mut().set_now(now);
        for change in Change::decode_all(record)? {
            match change {
                Change::Life { identity, life } => self.links.restore_life(identity, life),
                Change::Peer(voter) => self.members.learn_identity(voter),
                Change::Group(group) => self.enter(group),
                Change::Excluded { since } => self.members.was_excluded(since),
                Change::SnapshotBegin(moment) => self.incoming.replay_begin(moment, &self.settings),
                Change::SnapshotChunk(chunk) => self.incoming.replay_chunk(&chunk)?,
                Change::SnapshotEnd => {
                    let (moment, table) = self.incoming.replay_end()?;
                    self.put_in_place(table, &moment);
                }
                Change::Fragment(piece) => {
                    self.applied.keep(&piece, self.log.borrow().now_us());
                }
                Change::StoredFragment(piece) => {
                    self.applied.restore_piece(&piece, self.log.borrow().now_us());
                }
                change => self.log.borrow_mut().replay(change),
            }
        }
        self.cut_replayed();
        Ok(())
    }

    /// Applies replayed entries and cuts them off as the log grows, so that a start needs no more memory than the incarnation
    /// before it. Only up to the end of the configuration: the beginning of the next one is a record of its own.
    fn cut_replayed(&mut self) {
        let bytes_max = self.settings.options.log_bytes;
        if self.log.borrow().bytes() <= bytes_max {
            return;
        }
        let ends = |entry: &Entry, group: &Group| entry.stop_sign().is_some_and(|it| it.id > group.id);
        let decided = self.log.borrow().decided().min(self.log.borrow().end());
        loop {
            let next = self.applied.next(&self.log.borrow(), decided, u64::MAX);
            let Some(entry) = next.filter(|entry| !ends(entry, self.members.group())) else { break };
            self.applied.carry_out(&entry, Audience::none(&self.settings), &mut Effects::default());
            self.applied.follow_values(self.log.borrow().now_us());
        }
        let index = self.log.borrow().cut_for(bytes_max / 2).min(self.applied.index());
        let _ = Handle(Rc::clone(&self.log)).set_compacted_idx(index);
    }

    /// The records have been replayed: begins a new incarnation.
    fn begin_life(&mut self) {
        self.incoming.give_up(self.applied.table_mut()); // The rest of a transfer under way was lost.
        let life = self.links.begin_life();
        self.transfers.begin_life(life);
        self.log.borrow_mut().replayed();
        let record = self.log.borrow_mut().record(vec![own_life(&self.links)]);
        // No request waits for what earlier incarnations proposed.
        self.apply(&mut Effects::default());
        self.links.note_life_record(record);
    }

    /// Begins a checkpoint of what is applied. False while the state is about to be replaced, and in the middle of a turn:
    /// changes that the node has not taken yet would be both in the checkpoint and in a later record.
    pub(super) fn start_checkpoint(&mut self) -> bool {
        let is_in_a_turn = self.log.borrow().has_pending_records();
        // A replica whose replay is stopped before a record may stay so for days, and was not started.
        let is_whole = (self.links.is_started() || self.applied.stands_still()) && self.incoming.is_empty();
        if is_in_a_turn || self.members.group().id == 0 || !is_whole {
            return false;
        }
        self.end_checkpoint();
        let (settings, log): (_, &Log) = (&self.settings, &self.log.borrow());
        let checkpoint = Checkpoint::begin(settings, &self.links, &self.members, &mut self.applied, log);
        self.checkpoint = Some(checkpoint);
        true
    }

    pub(super) fn next_checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        let Some(checkpoint) = &mut self.checkpoint else { return Progress::Abandoned };
        if checkpoint.next_record(&mut self.applied, bytes_max, record) {
            return Progress::More;
        }
        self.end_checkpoint();
        Progress::Whole
    }

    pub(super) fn end_checkpoint(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            checkpoint.end(self.applied.table_mut());
        }
    }
}
