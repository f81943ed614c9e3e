//! This replica's part in the agreement: whether it has a vote, which leader it follows, and whether it leads.

use super::decider::{CrateMessage, Decider};
use super::entry::Entry;
use super::group::{Group, Identity, StopSign};
use super::leading::{Author, Leadership};
use super::log::{Handle, Log, SharedLog};
use super::message::Body;
use super::options::{Lease, Settings};
use super::outbox::Outbox;
use super::proposals::Proposals;
use crate::contract::{Effects, NodeId, Now, Trace};
use crate::planted::Fault;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::{Accepted, PaxosMsg, Promise};
use omnipaxos::storage::Storage;
use std::rc::Rc;

/// The role of a replica in its configuration.
#[derive(Debug)]
enum Role {
    /// It has no vote.
    Outside,
    /// It votes.
    Votes(Decider),
    /// It leads.
    Leads(Decider, Box<Leadership>),
}

/// What a replica does with its vote.
#[derive(Debug)]
pub(super) struct Agreement {
    role: Role,
    /// If it led to the end of a configuration: the index of that end, and from when on it was allowed to append.
    led_until: Option<(usize, u64)>,
    /// The cluster map prefers this replica as leader, so that leaders are spread over nodes.
    is_preferred: bool,
    /// The promise that was last reported as a change of role.
    reported_promise: Ballot,
    /// The candidate that requested the newest promise that was requested in this incarnation.
    promised_to: Option<(Ballot, Identity)>,
    /// What members have promised for this replica's newest ballot.
    taking_over: TakingOver,
    /// The newest ballot whose leader, as this replica knows, has resigned: see [`super::handover`].
    resigned: Ballot,
    /// The number of the last question to confirm the leader.
    questions: u64,
    /// The number of the round of heartbeats that has begun last.
    round: u32,
    /// The crate's messages that are still to be sent.
    outgoing: Vec<CrateMessage>,
}

/// A candidate's own log, and those of the members whose promises it counts.
#[derive(Clone, Copy, Debug, Default)]
struct TakingOver {
    ballot: Ballot,
    /// The greatest of these logs, which the candidate will take over: its ballot, and its end.
    greatest: (Ballot, usize),
    /// How many entries are decided, as far as one of them knows.
    decided: usize,
}

/// A change of leadership that concerns this replica.
#[derive(Debug)]
pub(super) struct Change {
    /// The leadership that has ended.
    pub(super) ended: Option<Box<Leadership>>,
    /// A leadership has begun.
    pub(super) has_begun: bool,
}

impl Agreement {
    /// Without a vote.
    pub(super) fn new() -> Agreement {
        Agreement {
            role: Role::Outside,
            led_until: None,
            is_preferred: false,
            reported_promise: Ballot::default(),
            promised_to: None,
            taking_over: TakingOver::default(),
            resigned: Ballot::default(),
            questions: 0,
            round: 0,
            outgoing: Vec::new(),
        }
    }

    /// Sets whether the cluster map prefers this replica as leader. It matters from the next configuration on.
    pub(super) fn set_preferred(&mut self, is_preferred: bool) {
        self.is_preferred = is_preferred;
    }

    /// Takes part in a configuration, with the log as it is.
    pub(super) fn take_part(&mut self, settings: &Settings, group: &Group, log: &SharedLog) {
        self.role = Role::Votes(Decider::new(settings, group, self.is_preferred, log));
    }

    /// Takes part no longer. Returns the leadership that has ended.
    pub(super) fn stand_outside(&mut self) -> Option<Box<Leadership>> {
        match std::mem::replace(&mut self.role, Role::Outside) {
            Role::Leads(_, leadership) => Some(leadership),
            Role::Votes(_) | Role::Outside => None,
        }
    }

    /// The configuration ends, and with it a leadership. Its end is noted, as this replica may lead the next configuration.
    pub(super) fn end_configuration(&mut self, end: usize) {
        self.led_until = self.leadership().map(|leadership| (end, leadership.appends_from_us()));
        self.reported_promise = Ballot::default();
        self.role = Role::Outside;
    }

    /// Continues to lead if it led the configuration that has ended.
    pub(super) fn go_on_leading(&mut self) {
        if let (Some(_), Role::Votes(decider)) = (self.led_until, &mut self.role) {
            decider.go_on_leading(&mut self.outgoing);
        }
    }

    /// Another configuration is in force, or the same one from a snapshot.
    pub(super) fn forget_reported_promise(&mut self) {
        self.reported_promise = Ballot::default();
    }

    fn decider(&self) -> Option<&Decider> {
        match &self.role {
            Role::Outside => None,
            Role::Votes(decider) | Role::Leads(decider, _) => Some(decider),
        }
    }

    fn decider_mut(&mut self) -> Option<&mut Decider> {
        match &mut self.role {
            Role::Outside => None,
            Role::Votes(decider) | Role::Leads(decider, _) => Some(decider),
        }
    }

    // The leader.

    /// Whether it has a vote and uses it.
    pub(super) fn takes_part(&self) -> bool {
        self.decider().is_some()
    }

    /// The leader that this replica follows, which may be itself.
    pub(super) fn leader(&self) -> Option<NodeId> {
        self.decider().and_then(Decider::leader)
    }

    /// True when the promised ballot has passed its prepare phase: entries may be accepted in it.
    pub(super) fn is_accepting(&self) -> bool {
        self.decider().is_some_and(Decider::is_accepting)
    }

    #[inline]
    pub(super) fn leads(&self) -> bool {
        matches!(self.role, Role::Leads(..))
    }

    /// The ballot in which it leads.
    #[inline]
    pub(super) fn leads_in(&self) -> Option<Ballot> {
        self.leadership().map(Leadership::ballot)
    }

    #[inline]
    pub(super) fn leadership(&self) -> Option<&Leadership> {
        match &self.role {
            Role::Leads(_, leadership) => Some(leadership),
            Role::Votes(_) | Role::Outside => None,
        }
    }

    #[inline]
    pub(super) fn leadership_mut(&mut self) -> Option<&mut Leadership> {
        match &mut self.role {
            Role::Leads(_, leadership) => Some(leadership),
            Role::Votes(_) | Role::Outside => None,
        }
    }

    /// Checks whether this replica has just become the leader, or ceased to be it.
    pub(super) fn look(
        &mut self,
        settings: &Settings,
        group: &Group,
        log: &SharedLog,
        effects: &mut Effects,
    ) -> Option<Change> {
        let leads = self.decider()?.leads_in(settings.id);
        let promise = log.borrow().promise();
        if leads == self.leads_in() && promise == self.reported_promise {
            return None;
        }
        let offset = log.borrow().end_offset();
        let mut change = None;
        if leads != self.leads_in() {
            let (decider, ended) = match std::mem::replace(&mut self.role, Role::Outside) {
                Role::Outside => return None,
                Role::Votes(decider) => (decider, None),
                Role::Leads(decider, leadership) => (decider, Some(leadership)),
            };
            self.role = match leads {
                None => Role::Votes(decider),
                Some(ballot) => {
                    effects.trace.push(Trace::Role { role: "leader", epoch: u64::from(ballot.n), offset });
                    Role::Leads(decider, Box::new(self.take_over(ballot, settings, group, log)))
                }
            };
            change = Some(Change { ended, has_begun: leads.is_some() });
        }
        if promise != self.reported_promise {
            self.reported_promise = promise;
            if leads.is_none() {
                let role = if promise.pid == u64::from(settings.id) { "candidate" } else { "follower" };
                effects.trace.push(Trace::Role { role, epoch: u64::from(promise.n), offset });
            }
        }
        change
    }

    fn take_over(&self, ballot: Ballot, settings: &Settings, group: &Group, log: &SharedLog) -> Leadership {
        let log = log.borrow();
        if settings.options.lease == Lease::Off {
            return Leadership::new(ballot, &log, 0);
        }
        // Every entry that an older leader's lease can rest on is in this log, and came here after it was proposed.
        // So the newest of those leases ends, at the latest, a lease after the newest entry came.
        let wait_us = (settings.timing.lease_ms + settings.timing.lease_margin_ms) * 1000;
        let was_ever_alone = group.members.len() == 1 && group.begins == 0;
        let nobody_led = log.changed_us() == 0 || was_ever_alone;
        // A replica that led to the end of a configuration has already waited for older leases in it, and has none itself
        // while it does not lead. If another replica had a lease in the new configuration, the log would be longer.
        let led_until = self.led_until.filter(|(end, _)| *end == log.end());
        let serves_early = settings.options.planted.has(Fault::NewLeaderServesEarly);
        let appends_from_us = match led_until {
            _ if nobody_led || serves_early => 0,
            // See `handover`.
            _ if self.has_all_of_resigned(ballot) => 0,
            Some((_, appended_from_us)) => appended_from_us,
            None => log.changed_us() + wait_us,
        };
        Leadership::new(ballot, &log, appends_from_us)
    }

    /// The leader of a ballot does nothing in it any more.
    pub(super) fn note_resigned(&mut self, ballot: Ballot) {
        self.resigned = ballot;
    }

    /// Whether the greatest log that this candidate has taken over is that of a leader that has resigned.
    fn has_all_of_resigned(&self, candidate: Ballot) -> bool {
        let TakingOver { ballot, greatest, .. } = self.taking_over;
        ballot == candidate && self.resigned != Ballot::default() && greatest.0 == self.resigned
    }

    // Messages to and from the crate.

    /// Notes which candidate requests a promise. True when this promise was given to an earlier incarnation of the same
    /// node.
    ///
    /// A candidate records its ballot before it requests any promise, and still has it after a crash; the crate then takes
    /// another one. So a candidate that requests a promise for the same ballot in another incarnation has a disk that was
    /// rolled back to an earlier state. No replica may follow it: it may have forgotten what was decided in that ballot.
    /// None would, as they follow that ballot already, but all would stay content with it.
    pub(super) fn has_promised_to_another_life(
        &mut self,
        asker: Identity,
        ballot: Ballot,
        settings: &Settings,
    ) -> bool {
        let (promised, promised_to) = *self.promised_to.get_or_insert((ballot, asker));
        if promised == ballot {
            return promised_to != asker && !settings.options.planted.has(Fault::RolledBackVoterVotes);
        }
        self.promised_to = Some((ballot, asker));
        false
    }

    /// Whether a promise agrees with the log that is taken over, which has all that was ever decided. A promise that knows more
    /// to be decided does not: a voter has forgotten what it accepted, as if its disk had been put back.
    pub(super) fn agrees(&mut self, promise: &Promise<Entry>, log: &Log) -> bool {
        let decided = promise.decided_idx;
        if let Some(leadership) = self.leadership() {
            // A follower that has accepted this ballot's log knows what this leader has decided since.
            return promise.n_accepted == promise.n || decided <= leadership.inherited();
        }
        if self.taking_over.ballot != promise.n {
            let (ballot, greatest, decided) = (promise.n, log.accepted(), log.decided());
            self.taking_over = TakingOver { ballot, greatest, decided };
        }
        let TakingOver { ballot, greatest, decided: known } = self.taking_over;
        let greatest = greatest.max((promise.n_accepted, promise.accepted_idx));
        let decided = decided.max(known);
        let agrees = decided <= greatest.1;
        if agrees {
            self.taking_over = TakingOver { ballot, greatest, decided };
        }
        agrees
    }

    pub(super) fn handle(&mut self, settings: &Settings, from: NodeId, message: PaxosMsg<Entry>) {
        let (Role::Votes(decider) | Role::Leads(decider, _)) = &mut self.role else { return };
        if let PaxosMsg::Promise(_) = message {
            // The crate adds entries to an `AcceptDecide` that was not taken from it yet, even if an `AcceptSync` follows
            // that message: the entries would be missing after it.
            decider.take_messages(&mut self.outgoing);
        }
        decider.handle(settings.id, from, message);
    }

    pub(super) fn heartbeat(&mut self, settings: &Settings, from: NodeId, message: HeartbeatMsg) {
        if let Some(decider) = self.decider_mut() {
            decider.heartbeat(settings.id, from, message);
        }
    }

    /// A round of heartbeats has ended, with these answers.
    pub(super) fn tick(&mut self, settings: &Settings, answers: Vec<(NodeId, HeartbeatMsg)>) {
        if let Some(decider) = self.decider_mut() {
            for (from, answer) in answers {
                decider.heartbeat(settings.id, from, answer);
            }
            decider.tick();
        }
    }

    /// Makes the leader start over with this replica, because something that it sent was lost.
    pub(super) fn start_over_with(&mut self, leader: NodeId) {
        if let Some(decider) = self.decider_mut() {
            decider.start_over_with(leader);
        }
    }

    /// Tries to lead in a higher ballot.
    pub(super) fn raise_ballot(&mut self) {
        if let Some(decider) = self.decider_mut() {
            decider.raise_ballot();
        }
    }

    /// Reports to the crate how many entries a follower has accepted, but no more than are durable in this leader's own log.
    ///
    /// The crate counts the leader's own entries as accepted when they are appended. So it must not learn that others accepted
    /// them before that is true; then an entry is decided only when the leader's own copy is durable, too.
    pub(super) fn count_accepted(
        &mut self,
        settings: &Settings,
        from: NodeId,
        accepted: (Ballot, usize),
        log: &SharedLog,
    ) {
        let Role::Leads(decider, leadership) = &mut self.role else { return };
        let ballot = leadership.ballot();
        if accepted.0 != ballot {
            return;
        }
        let durable = match settings.options.planted.has(Fault::LeaderCountsUnsynced) {
            true => log.borrow().end(),
            false => log.borrow().durable_in(ballot),
        };
        let accepted = Accepted { n: ballot, accepted_idx: accepted.1.min(durable) };
        decider.handle(settings.id, from, PaxosMsg::Accepted(accepted));
    }

    /// Appends what the leader has gathered, or a stop-sign.
    pub(super) fn append(
        &mut self,
        now: Now,
        author: Author,
        log: &SharedLog,
        proposals: &mut Proposals,
        settings: &Settings,
        stop_sign: Option<&StopSign>,
    ) {
        if let Role::Leads(decider, leadership) = &mut self.role {
            leadership.append(now, author, (decider, log), proposals, settings, stop_sign);
        }
    }

    /// How many entries are decided, when `applied` are applied. In a group of one, those that are durable.
    pub(super) fn decided(
        &self,
        applied: usize,
        configuration: u32,
        log: &SharedLog,
        settings: &Settings,
    ) -> usize {
        if let Some(Decider::Alone { ballot }) = self.decider() {
            let durable = log.borrow().durable_in(*ballot);
            if durable > applied {
                let _ = Handle(Rc::clone(log)).set_decided_idx(durable);
            }
        }
        let log = log.borrow();
        if settings.options.planted.has(Fault::ConfigurationBeginsEarly) && log.is_ending(configuration) {
            return log.end();
        }
        log.decided()
    }

    /// Cuts off the log before an index, unless this replica is a candidate: the promises that it got refer to its log as it
    /// is. True if something was cut off.
    pub(super) fn cut_before(&mut self, index: usize, id: NodeId, log: &SharedLog) -> bool {
        let is_candidate = !self.is_accepting() && self.leader() == Some(id);
        let Some(decider) = self.decider_mut().filter(|_| !is_candidate && index > log.borrow().base())
        else {
            return false;
        };
        decider.cut_before(log, index);
        true
    }

    /// Sends the crate's messages. While the next entry is being gathered, a `Decide` may wait and be sent together with it;
    /// but never after a [`Body::Position`], from which followers would conclude that the `Decide` was lost.
    pub(super) fn send_messages(&mut self, is_position_due: bool, out: &mut Outbox<'_>) {
        if let Role::Votes(decider) | Role::Leads(decider, _) = &mut self.role {
            decider.take_messages(&mut self.outgoing);
        }
        let gathers = self.leadership().is_some_and(|leadership| !leadership.has_gathered_nothing());
        if gathers && !is_position_due && self.outgoing.iter().all(is_decide) {
            return;
        }
        let Agreement { role, outgoing, round, .. } = self;
        let mut leadership = match role {
            Role::Leads(_, leadership) => Some(leadership),
            Role::Votes(_) | Role::Outside => None,
        };
        for message in outgoing.drain(..) {
            let to = message.get_receiver() as NodeId;
            let body = match message {
                CrateMessage::SequencePaxos(mut message) => {
                    let sent_bytes = &mut out.effects.history_bytes;
                    let leadership = leadership.as_deref_mut();
                    if !pass(leadership, to, &mut message.msg, sent_bytes, out.settings) {
                        continue;
                    }
                    Body::Paxos(message.msg)
                }
                CrateMessage::BLE(message) => {
                    if let HeartbeatMsg::Request(request) = &message.msg {
                        *round = request.round;
                    }
                    Body::Heartbeat(message.msg)
                }
            };
            out.send(to, body);
        }
    }

    /// Sends followers that return the next slices of what they lack. True when one of them now has everything.
    #[inline]
    pub(super) fn send_slices(&mut self, out: &mut Outbox<'_>) -> bool {
        match self.leadership_mut() {
            Some(leadership) if !leadership.slices().is_empty() => send_slices_of(leadership, out),
            _ => false,
        }
    }

    /// Sends what the leader adds to the crate's messages: its position, if that is due, and the question whether it still
    /// leads, if reads wait for the answer.
    pub(super) fn send_own_messages(
        &mut self,
        is_position_due: bool,
        proposals: &Proposals,
        settings: &Settings,
        out: &mut Outbox<'_>,
    ) {
        let Role::Leads(_, leadership) = &self.role else { return };
        let ballot = leadership.ballot();
        let has_new_readers = leadership.has_new_readers(proposals, self.questions);
        let asks = settings.options.lease == Lease::Off
            && leadership.has_readers(proposals)
            && (has_new_readers || is_position_due);
        if asks {
            self.questions += 1;
        }
        let (end, decided) = out.log_end();
        let number = self.questions;
        for peer in out.peers() {
            if asks {
                out.send(peer, Body::Confirm { ballot, number });
            }
            if is_position_due {
                // A follower that is sent slices lacks nothing if it has those that were sent.
                let sent = leadership.slices().sent_to(peer).map_or(u64::MAX, |index| index as u64);
                let (end, decided) = (end.min(sent), decided.min(sent));
                out.send(peer, Body::Position { ballot, end, decided });
            }
        }
    }

    /// The number of the round of heartbeats that has begun last: only answers with this number count.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// The number of the last question to confirm the leader.
    pub(super) fn questions(&self) -> u64 {
        self.questions
    }
}

/// Takes a message that the crate sends, and changes it to what is to be sent instead: see
/// [`Slices`](super::slices::Slices). False if that is nothing.
#[inline]
fn pass(
    leadership: Option<&mut Box<Leadership>>,
    to: NodeId,
    message: &mut PaxosMsg<Entry>,
    sent_bytes: &mut usize,
    settings: &Settings,
) -> bool {
    let (ballot, may_be_long) = match message {
        PaxosMsg::AcceptDecide(accept) => (accept.n, false),
        PaxosMsg::Decide(decide) => (decide.n, false),
        PaxosMsg::AcceptSync(sync) => (sync.n, true),
        PaxosMsg::Prepare(prepare) => (prepare.n, false),
        _ => return true,
    };
    match leadership.filter(|leadership| leadership.ballot() == ballot) {
        Some(leadership) if leadership.slices().is_empty() && !may_be_long => true,
        Some(leadership) => {
            let ends_early = settings.options.planted.has(Fault::SliceEndsEarly);
            let inherited = if ends_early { 0 } else { leadership.inherited() };
            leadership.slices_mut().pass(to, message, inherited, sent_bytes, &settings.timing)
        }
        // A candidate has no others.
        None => matches!(message, PaxosMsg::Prepare(_)),
    }
}

#[cold]
fn send_slices_of(leadership: &mut Leadership, out: &mut Outbox<'_>) -> bool {
    let (ballot, timing) = (leadership.ballot(), out.settings.timing);
    let mut has_all = false;
    loop {
        let links = &out.links;
        let accepted = |follower| match links.get(follower).map(|link| link.accepted()) {
            Some((accepted_in, index)) if accepted_in == ballot => index,
            _ => 0,
        };
        let sent_bytes = &mut out.effects.history_bytes;
        let next = leadership.slices_mut().next(ballot, &out.log.borrow(), accepted, sent_bytes, &timing);
        let Some((to, slice)) = next else { return has_all };
        out.send(to, Body::Paxos(slice));
        has_all |= leadership.slices().sent_to(to).is_none();
    }
}

fn is_decide(message: &CrateMessage) -> bool {
    matches!(message, CrateMessage::SequencePaxos(message) if matches!(message.msg, PaxosMsg::Decide(_)))
}

#[cfg(test)]
mod tests {
    use super::super::kit::{at_ms, entry, identity, settings};
    use super::super::log::Log;
    use super::super::record::{Change, Moment};
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_candidate_with_a_rolled_back_disk_is_not_followed() {
        let (mut agreement, settings) = (Agreement::new(), settings(1));
        let mut is_refused = |life, ballot| {
            let asker = identity(2, life);
            agreement.has_promised_to_another_life(asker, Ballot::with(1, ballot, 0, 2), &settings)
        };
        assert!(!is_refused(1, 5) && !is_refused(1, 5), "the same incarnation requests it again");
        assert!(is_refused(2, 5), "it has forgotten that it led");
        assert!(!is_refused(2, 6));
    }

    #[test]
    fn a_promise_that_knows_more_decided_than_the_log_that_is_taken_over_is_not_counted() {
        let ballot = |n| Ballot::with(1, n, 0, 1);
        let promise = |n_accepted, accepted_idx, decided_idx| Promise {
            n: ballot(9),
            n_accepted: ballot(n_accepted),
            decided_idx,
            accepted_idx,
            log_sync: None,
        };
        let mut log = Log::default();
        log.append(vec![entry(1, 1, &["a"]), entry(1, 2, &["b"])]);
        for change in [Change::Promise(ballot(5)), Change::Accepted(ballot(5)), Change::Decided(1)] {
            log.replay(change);
        }
        // Another log of a later ballot holds what is decided, and so do longer ones of the same ballot.
        for good in [promise(3, 3, 2), promise(5, 2, 2), promise(5, 4, 4), promise(6, 3, 3)] {
            assert!(Agreement::new().agrees(&good, &log), "{good:?}");
        }
        // Three entries were decided in ballot 3, and the log of ballot 5 does not have the third one.
        let (mut agreement, before) = (Agreement::new(), promise(3, 3, 3));
        assert!(!agreement.agrees(&before, &log), "this log is greater, and too short");
        assert!(agreement.agrees(&promise(5, 2, 2), &log), "what is not counted is forgotten");
        assert!(!agreement.agrees(&promise(6, 1, 1), &log), "two are decided already");
        assert!(agreement.agrees(&promise(6, 4, 4), &log) && agreement.agrees(&before, &log));
    }

    #[test]
    fn a_group_of_one_waits_for_a_lease_of_an_earlier_configuration() {
        let (settings, mut effects) = (settings(1), Effects::default());
        let mut appends_from_us = |began: u64, had_entries: bool| {
            let log = Rc::new(RefCell::new(Log::default()));
            log.borrow_mut().set_now(at_ms(1000));
            if had_entries {
                log.borrow_mut().append(vec![entry(2, 1, &["a"])]);
            }
            let group = Group { begins: began, ..Group::first(1, &[1]) };
            let mut agreement = Agreement::new();
            agreement.take_part(&settings, &group, &log);
            let change = agreement.look(&settings, &group, &log, &mut effects).unwrap();
            assert!(change.has_begun && change.ended.is_none() && agreement.leads());
            assert!(agreement.look(&settings, &group, &log, &mut effects).is_none(), "that is known");
            let appends_from_us = agreement.leadership().unwrap().appends_from_us();
            assert!(agreement.stand_outside().is_some() && !agreement.takes_part());
            appends_from_us
        };
        assert_eq!(appends_from_us(0, true), 0, "no other node was ever in it");
        assert_eq!(appends_from_us(1, false), 0, "there were never any entries");
        assert_eq!(appends_from_us(1, true), 1_330_000);
    }

    #[test]
    fn a_leader_that_led_to_the_end_of_a_configuration_does_not_wait_again() {
        let (settings, mut effects) = (settings(1), Effects::default());
        let log = Rc::new(RefCell::new(Log::default()));
        log.borrow_mut().set_now(at_ms(1000));
        log.borrow_mut().append(vec![entry(2, 1, &["a"])]);
        let group = Group { begins: 1, ..Group::first(1, &[1]) };
        let mut agreement = Agreement::new();
        let mut lead = |agreement: &mut Agreement| {
            agreement.take_part(&settings, &group, &log);
            agreement.look(&settings, &group, &log, &mut effects);
            agreement.leadership().unwrap().appends_from_us()
        };
        let first = lead(&mut agreement);
        agreement.end_configuration(1);
        log.borrow_mut().set_now(at_ms(9000));
        let moment = Moment { index: 1, ..Moment::default() };
        log.borrow_mut().installed(&moment, false);
        assert_eq!(lead(&mut agreement), first);
        log.borrow_mut().append(vec![entry(2, 3, &["c"])]);
        agreement.stand_outside();
        assert_eq!(lead(&mut agreement), 9_330_000, "another replica may have led since");
    }
}
