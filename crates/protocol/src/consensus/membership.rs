//! Configurations: how one ends, how the next one begins, and how everybody gets there.
//!
//! A configuration ends by an entry of its log, the stop-sign, which names the next one. Whoever applies it begins the
//! next configuration behind it: with a new instance of the crate, no promise and nothing accepted but the log up to the
//! stop-sign. See the parent module for why that is safe.
//!
//! ```text
//!  leader 1              follower 2            follower 3 (away)       new 4
//!    |                      |                      |                     |
//!    |<----------------------------------------------------- Behind 0 ---|  told by the control group
//!    |-- Copy ---------------------------------------------------------->|  (of the old configuration: no vote)
//!    |<----------------------------------------------------- Behind 9 ---|  it has come far enough
//!    |-- AcceptDecide [stop-sign: {1,2,3,4}] --->| ...                   |
//!    |<- Accepted ----------|                      |                     |
//!    |  decided: the next configuration begins     |                     |
//!    |-- Decide ----------->|                      |                     |
//!    |-- Prepare (next) --->|   (next) ------------------------------->  |
//!    |<----------------------------------------------------- Behind 9 ---|  it hears a newer configuration
//!    |-- Decided [.., stop-sign] --------------------------------------->|  from here on it votes
//!    |                      |<- Heartbeat (old) ---|                     |
//!    |                      |-- Newer ------------>|                     |
//!    |                      |<- Behind 7 ----------|                     |
//!    |                      |-- Decided [.., stop-sign] ->|              |
//! ```

use super::Replica;
use super::entry::Entry;
use super::group::{Group, Identity, Member, StopSign, Voter, are_members};
use super::links::Link;
use super::message::{Body, Message};
use super::record::Change;
use crate::contract::{Configuration, Effects, NodeId, Now, Trace};
use crate::planted::Fault;
use omnipaxos::ballot_leader_election::Ballot;

/// The newest configuration that a peer was heard to be in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newer {
    pub(super) id: u32,
    /// This replica is a member of it.
    pub(super) is_member: bool,
}

/// A replica that is to be a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learner {
    /// What is applied there, of this replica's configuration.
    pub(super) index: usize,
    heard_us: u64,
}

impl Replica {
    /// The control group tells who is to make up the group.
    pub(super) fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        let mut members = configuration.members.clone();
        members.sort_unstable();
        members.dedup();
        let id = u32::try_from(configuration.epoch).unwrap_or(0);
        if id == 0 || !are_members(&members) {
            let why = "a configuration that cannot be";
            return effects.trace.push(Trace::Rejected { peer: self.id, why });
        }
        self.is_preferred = configuration.leader == self.id;
        if !self.is_started {
            self.begin_life();
            self.is_started = true;
            self.next_round_us = now.monotonic_us + self.timing.heartbeat_ms * 1000;
            let is_first = id == 1 || self.options.planted.has(Fault::NewMemberVotesEarly);
            if self.group.id == 0 && is_first && members.contains(&self.id) {
                self.enter(Group::first(id, &members));
                self.log.borrow_mut().record(vec![Change::Group(self.group.clone())]);
            }
            self.begin_voting();
        }
        if id > self.wanted.id {
            self.wanted = StopSign { id, members };
            self.ask_for_help(now, effects);
        }
        self.look_at_leadership(effects);
    }

    /// A configuration holds from here on.
    pub(super) fn enter(&mut self, group: Group) {
        self.log.borrow_mut().begin_configuration(group.begins as usize);
        self.group = group;
        // While records are replayed, entries of the one before may not be applied yet: its stop-sign will tell.
        if self.applied as u64 >= self.group.begins {
            self.table.set_membership(self.group.id);
        }
        self.forget_former_voters();
    }

    pub(super) fn forget_former_voters(&mut self) {
        self.told_promise = Ballot::default();
        let group = &self.group;
        self.voters.retain(|node, voter| group.since(*node) == Some(voter.member.since));
        self.learners.clear();
    }

    /// Whether this replica may vote in the configuration that holds.
    pub(super) fn has_vote(&self) -> bool {
        let since = self.group.since(self.id);
        since.is_some() && since != self.excluded
    }

    /// Meets the voters of the configuration that holds, as one of them if it is one.
    pub(super) fn begin_voting(&mut self) {
        let mut met = std::mem::take(&mut self.links);
        met.append(&mut self.outsiders);
        for member in self.group.nodes().into_iter().filter(|member| *member != self.id) {
            let place = met.iter().position(|link| link.peer == member);
            let mut link = place.map_or_else(|| Link::new(member), |place| met.swap_remove(place));
            link.bind(self.voters.get(&member));
            self.links.push(link);
        }
        met.iter_mut().for_each(Link::unbind);
        self.outsiders = met;
        self.agreement = None;
        if self.has_vote() {
            self.begin_agreement();
        }
    }

    /// Whoever is heard for the first time, and is no voter. False when there are too many.
    pub(super) fn meet(&mut self, peer: NodeId) -> bool {
        const OUTSIDERS_MAX: usize = 64;
        if self.link(peer).is_none() {
            if self.outsiders.len() >= OUTSIDERS_MAX {
                return false;
            }
            self.outsiders.push(Link::new(peer));
        }
        true
    }

    // The end of a configuration.

    /// A stop-sign stands at the end of the log: nothing may be appended.
    pub(super) fn is_ending(&self) -> bool {
        self.log.borrow().last_stop_sign().is_some_and(|stop_sign| stop_sign.id > self.group.id)
    }

    /// Whether this leader is to propose the next configuration now. It waits until those who are new have come nearly
    /// as far as itself: so their votes are not missed for as long as a copy takes.
    pub(super) fn is_change_due(&self, now: Now) -> bool {
        let is_ready = |node: &NodeId| {
            self.learners.get(node).is_some_and(|learner| {
                let is_heard = now.ms_since(learner.heard_us) < 2 * self.timing.silence_ms;
                is_heard && !self.must_copy(*node, learner.index, self.log.borrow().decided())
            })
        };
        let mut newcomers = self.wanted.members.iter().filter(|node| !self.group.contains(**node));
        self.wanted.id > self.group.id && !self.is_ending() && newcomers.all(is_ready)
    }

    /// The entry that was applied just now ends the configuration: the next one begins.
    pub(super) fn follow_stop_sign(&mut self, stop_sign: &StopSign, effects: &mut Effects) {
        let is_decided = self.applied <= self.log.borrow().decided();
        let is_looked_at = self.options.planted.has_invariants();
        assert!(is_decided || !is_looked_at, "a configuration begins before its stop-sign is decided");
        self.end_void_proposals(effects);
        self.keep_requests(effects);
        self.send_crate_messages(effects); // The others are to hear that it is decided.
        self.led_until = self.leadership.map(|leadership| (self.applied, leadership.appends_from_us));
        self.leadership = None;
        self.enter(self.group.next(stop_sign, self.applied as u64));
        self.log.borrow_mut().record(vec![Change::Group(self.group.clone())]);
        let role = if self.group.contains(self.id) { "voter" } else { "outsider" };
        effects.trace.push(Trace::Role { role, epoch: u64::from(self.group.id), offset: self.offset });
        if !self.is_started {
            return; // The records of former lives end here.
        }
        self.begin_voting();
        if self.led_until.is_some()
            && let Some(agreement) = &mut self.agreement
        {
            agreement.go_on_leading(&mut self.outgoing);
        }
        self.look_at_leadership(effects);
    }

    /// It turns out that the storage of this replica is not what it was.
    pub(super) fn exclude(&mut self, why: &'static str, effects: &mut Effects) {
        let Some(since) = self.group.since(self.id).filter(|_| self.has_vote()) else { return };
        self.excluded = Some(since);
        self.log.borrow_mut().record(vec![Change::Excluded { since }]);
        effects.trace.push(Trace::Rejected { peer: self.id, why });
        self.leadership = None;
        self.agreement = None;
        self.keep_requests(effects);
    }

    // Who is behind asks.

    /// Whether others have what this replica needs and the crate does not bring.
    fn lacks(&self) -> bool {
        let newer = self.newer.id > self.group.id;
        if self.has_vote() {
            return newer;
        }
        let wanted = self.wanted.id > self.group.id && self.wanted.members.contains(&self.id);
        wanted || newer && self.newer.is_member
    }

    /// Tells everybody how far this replica has come, and asks one of them to help, another one each time.
    pub(super) fn ask_for_help(&mut self, now: Now, effects: &mut Effects) {
        if !self.is_started || !self.lacks() {
            return;
        }
        let patience_ms = 10 * self.timing.silence_ms;
        if self.receiver.as_ref().is_some_and(|receiver| receiver.is_stuck(now, patience_ms)) {
            self.give_up_receiving();
        }
        let mut peers = self.wanted.members.clone();
        peers.extend(self.group.nodes());
        peers.extend(self.outsiders.iter().map(|link| link.peer));
        peers.sort_unstable();
        peers.dedup();
        peers.retain(|peer| *peer != self.id);
        self.questions_for_help += 1;
        for (place, peer) in peers.iter().enumerate() {
            let asks = place == self.questions_for_help % peers.len() && self.receiver.is_none();
            if self.meet(*peer) {
                self.send(*peer, Body::Behind { index: self.applied as u64, asks }, effects);
            }
        }
    }

    /// The leader makes itself known to those who are to be members: of the present ones they may know nobody.
    pub(super) fn invite_newcomers(&mut self, now: Now, effects: &mut Effects) {
        if self.leadership.is_none() || self.wanted.id <= self.group.id {
            return;
        }
        for newcomer in self.wanted.members.clone() {
            let is_member = newcomer == self.id || self.group.contains(newcomer);
            if !is_member && self.meet(newcomer) {
                let members = self.group.nodes();
                self.tell_now_and_then(now, newcomer, Body::Newer { members }, effects);
            }
        }
    }

    /// Looks at the configuration of a message that means something in its own one only.
    pub(super) fn is_of_this_configuration(
        &mut self,
        now: Now,
        from: NodeId,
        message: &Message<'_>,
        effects: &mut Effects,
    ) -> bool {
        let configuration = message.envelope.configuration;
        if configuration < self.group.id {
            let members = self.group.nodes();
            self.tell_now_and_then(now, from, Body::Newer { members }, effects);
        }
        // It is sent to members only.
        self.hears_of_newer(now, from, configuration, None, effects);
        // The crate cannot bear what strangers say.
        configuration == self.group.id && self.agreement.is_some() && self.group.contains(from)
    }

    pub(super) fn hears_of_newer(
        &mut self,
        now: Now,
        from: NodeId,
        id: u32,
        members: Option<&[NodeId]>,
        effects: &mut Effects,
    ) {
        if id <= self.group.id {
            return;
        }
        if id > self.newer.id || id == self.newer.id && members.is_some() {
            let is_member = members.is_none_or(|members| members.contains(&self.id));
            self.newer = Newer { id, is_member };
        }
        if self.lacks() && self.receiver.is_none() {
            let index = self.applied as u64;
            self.tell_now_and_then(now, from, Body::Behind { index, asks: true }, effects);
        }
    }

    /// Sends what is of use once a round, at most.
    pub(super) fn tell_now_and_then(&mut self, now: Now, to: NodeId, body: Body<'_>, effects: &mut Effects) {
        let round_ms = self.timing.heartbeat_ms;
        let Some(link) = self.link_mut(to) else { return };
        if link.told_us == 0 || now.ms_since(link.told_us) >= round_ms {
            link.told_us = now.monotonic_us;
            self.send(to, body, effects);
        }
    }

    // Who is further helps.

    /// Somebody tells how far it has come, in its configuration. Of what is decided it gets what it lacks of that, and
    /// no more: what stands behind a stop-sign is the next configuration's, and the crate's to bring.
    pub(super) fn help(
        &mut self,
        now: Now,
        from: NodeId,
        configuration: u32,
        (index, asks): (usize, bool),
        effects: &mut Effects,
    ) {
        let is_expected = self.group.contains(from) || self.wanted.members.contains(&from);
        if configuration == self.group.id {
            if self.group.contains(from) {
                return;
            }
            self.learners.insert(from, Learner { index, heard_us: now.monotonic_us });
        }
        if configuration > self.group.id || !asks || self.group.id == 0 {
            return;
        }
        let end = match configuration == self.group.id {
            true => self.applied,
            false => self.log.borrow().stop_sign_from(index).map_or(0, |stop_sign| stop_sign + 1),
        };
        if configuration > 0 && end > 0 && !self.must_copy(from, index, end) {
            let entries = self.log.borrow().entries_between(index, end);
            if !entries.is_empty() {
                let body = Body::Decided { configuration, from: index as u64, entries };
                self.send(from, body, effects);
            }
        } else if is_expected && (self.has_vote() || self.applied as u64 == self.group.begins) {
            // Who has no vote knows only what is decided. That is no log to vote with, but at the very beginning.
            self.begin_copy(now, from, "it lacks what is cut off here", effects);
        } else {
            let members = self.group.nodes();
            self.tell_now_and_then(now, from, Body::Newer { members }, effects);
        }
    }

    /// Somebody tells what is decided behind what is applied here. A voter takes only what ends its configuration:
    /// else it would know more to be decided than its log and ballot show, and the crate would go wrong by that.
    pub(super) fn learn(
        &mut self,
        from: NodeId,
        configuration: u32,
        index: usize,
        mut entries: Vec<Entry>,
        effects: &mut Effects,
    ) {
        let is_of_use = index <= self.applied && index + entries.len() > self.applied;
        if configuration != self.group.id || configuration == 0 || !is_of_use {
            return;
        }
        entries.drain(..self.applied - index);
        let ends = |entry: &Entry| entry.stop_sign().is_some_and(|it| it.id > configuration);
        match entries.iter().position(ends) {
            Some(stop_sign) => entries.truncate(stop_sign + 1),
            None if self.group.contains(self.id) => {
                let why = "it tells a voter what is decided, and not the end of its configuration";
                return effects.trace.push(Trace::Rejected { peer: from, why });
            }
            None => {}
        }
        // It was deposed, or the stop-sign would have been decided here. The crate does not know of these entries and would
        // put others behind them: a voter, whose configuration they end, takes part in it no more. The next one begins when
        // the stop-sign is applied, which may take some turns.
        self.leadership = None;
        self.agreement = None;
        self.keep_requests(effects);
        self.log.borrow_mut().learn(self.applied, entries);
        self.apply(effects);
    }

    // Who the voters are.

    /// Every voter of whom it is known here who it is.
    pub(super) fn known_voters(&self) -> Vec<Voter> {
        let own = self
            .group
            .since(self.id)
            .filter(|_| self.has_vote())
            .map(|since| Voter { member: Member { node: self.id, since }, identity: self.identity });
        own.into_iter().chain(self.voters.values().copied()).collect()
    }

    /// Takes over what somebody else knows of voters: so no newcomer takes one for another. Returns what is to be
    /// recorded.
    pub(super) fn learn_voters(&mut self, voters: &[Voter], effects: &mut Effects) -> Vec<Change> {
        let mut changes = Vec::new();
        for voter in voters {
            let Member { node, since } = voter.member;
            if self.group.since(node) != Some(since) {
                continue;
            }
            if node == self.id {
                if self.is_another(&voter.identity) && self.excluded != Some(since) {
                    self.excluded = Some(since);
                    changes.push(Change::Excluded { since });
                    let why = "others have heard another storage, or a newer state of it, as this member";
                    effects.trace.push(Trace::Rejected { peer: self.id, why });
                }
                continue;
            }
            let is_news = |known: &Voter| known.identity.is_outlived_by(&voter.identity);
            if self.voters.get(&node).is_none_or(is_news) {
                self.voters.insert(node, *voter);
                changes.push(Change::Peer(*voter));
            }
        }
        changes
    }

    /// This replica had nothing, and gets a copy of a configuration in which it is a member already. Nobody becomes a
    /// member before a copy of an earlier configuration is durable there, but for those who began the first one, with
    /// nothing, themselves. So its storage was lost: there is no telling what it promised.
    pub(super) fn exclude_newcomer(&mut self, effects: &mut Effects) -> Option<Change> {
        let since = self.group.since(self.id).filter(|_| self.has_vote())?;
        self.excluded = Some(since);
        let why = "it is a member already, and has lost what it had";
        effects.trace.push(Trace::Rejected { peer: self.id, why });
        Some(Change::Excluded { since })
    }

    fn is_another(&self, identity: &Identity) -> bool {
        self.identity.storage != identity.storage || self.identity.is_outlived_by(identity)
    }
}
