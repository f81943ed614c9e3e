//! Configurations: how one ends, how the next one begins, and how all replicas get there.
//!
//! A configuration ends with an entry of its log, the stop-sign, which names the next one. A replica that applies it starts
//! the next configuration after it: with a new instance of the crate, no promise and nothing accepted but the log up to
//! the stop-sign. See the parent module for why that is safe.
//!
//! ```text
//!  leader 1              follower 2            follower 3 (away)       new 4
//!    |                      |                      |                     |
//!    |<----------------------------------------------------- Behind 0 ---|  named by the control group
//!    |-- Snapshot ------------------------------------------------------>|  (of the old configuration: no vote)
//!    |<----------------------------------------------------- Behind 9 ---|  near enough to the end
//!    |-- AcceptDecide [stop-sign: {1,2,3,4}] --->| ...                   |
//!    |<- Accepted ----------|                      |                     |
//!    |  decided: the next configuration begins     |                     |
//!    |-- Decide ----------->|                      |                     |
//!    |-- Prepare (next) --->|   (next) ------------------------------->  |
//!    |<----------------------------------------------------- Behind 9 ---|  it learns of a newer configuration
//!    |-- Decided [.., stop-sign] --------------------------------------->|  from here on it votes
//!    |                      |<- Heartbeat (old) ---|                     |
//!    |                      |-- Newer ------------>|                     |
//!    |                      |<- Behind 7 ----------|                     |
//!    |                      |-- Decided [.., stop-sign] ->|              |
//! ```

use super::applied::Applied;
use super::entry::Entry;
use super::group::{Group, Identity, Member, StopSign, Voter};
use super::links::Links;
use super::log::Log;
use super::message::Body;
use super::outbox::Outbox;
use super::record::Change;
use super::status::Status;
use crate::contract::{NodeId, Now};
use std::collections::BTreeMap;

/// The newest configuration that any peer is known to be in.
#[derive(Clone, Copy, Debug, Default)]
struct Newer {
    id: u32,
    /// This replica is a member of it.
    is_member: bool,
}

/// A replica that will be a member.
#[derive(Clone, Copy, Debug)]
struct Learner {
    /// How many entries are applied there; it is in this replica's configuration.
    index: usize,
    heard_us: u64,
}

/// What to send a peer that is behind.
#[derive(Debug)]
pub(super) enum Help {
    /// Nothing: it requests nothing, or gets what it lacks in another way.
    None,
    /// The decided entries up to this index, or a snapshot if these are cut off or too many.
    UpTo(usize),
    /// A snapshot: nothing of its configuration is known to be decided.
    Snapshot,
}

/// The configurations that a replica knows of, and who their members are.
#[derive(Debug)]
pub(super) struct Members {
    /// This replica's node.
    id: NodeId,
    /// The configuration in force after the entries that are applied.
    group: Group,
    /// The newest configuration that the control group has named, and the newest that any peer is known to be in.
    wanted: StopSign,
    newer: Newer,
    /// It has no vote as the member that it has been since that configuration: its storage was lost or rolled back.
    excluded: Option<u32>,
    /// The recorded identities of voters that have ever sent a message.
    voters: BTreeMap<NodeId, Voter>,
    /// Future members and their positions.
    learners: BTreeMap<NodeId, Learner>,
    /// How often help was requested: each time from another peer.
    help_requests: usize,
}

impl Members {
    /// Without a configuration.
    pub(super) fn new(id: NodeId) -> Members {
        Members {
            id,
            group: Group::default(),
            wanted: StopSign { id: 0, members: Vec::new() },
            newer: Newer::default(),
            excluded: None,
            voters: BTreeMap::new(),
            learners: BTreeMap::new(),
            help_requests: 0,
        }
    }

    /// The configuration in force after the entries that are applied.
    #[inline]
    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// Identifies the history: it changes only with the members, or after a loss that an operator has accepted.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.group.id.into()
    }

    /// Puts a configuration into force.
    pub(super) fn enter(&mut self, group: Group) {
        self.group = group;
        self.voters.retain(|node, voter| self.group.since(*node) == Some(voter.member.since));
        self.learners.clear();
    }

    /// Whether this replica may vote in the current configuration.
    pub(super) fn has_vote(&self) -> bool {
        let since = self.group.since(self.id);
        since.is_some() && since != self.excluded
    }

    /// The control group names a configuration. True when that is news.
    pub(super) fn want(&mut self, id: u32, members: Vec<NodeId>) -> bool {
        let is_news = id > self.wanted.id;
        if is_news {
            self.wanted = StopSign { id, members };
        }
        is_news
    }

    /// Whether this replica is to be the only member of a group that had begun, and holds nothing: no other replica can
    /// send it what the group held.
    pub(super) fn is_lost(&self) -> bool {
        self.group.id == 0 && self.wanted.id > 1 && self.wanted.members == [self.id]
    }

    /// True when the control group wants the current configuration, and no replica is joining or excluded.
    pub(super) fn is_settled(&self) -> bool {
        self.wanted.id == self.group.id && self.excluded.is_none() && self.learners.is_empty()
    }

    // The end of a configuration.

    /// The stop-sign that the leader must propose now, if any. It waits until the new members have nearly reached the
    /// leader's position: otherwise their votes would be missing for as long as a snapshot transfer takes.
    pub(super) fn due_stop_sign(
        &self,
        now: Now,
        silence_ms: u64,
        log: &Log,
        must_transfer: impl Fn(NodeId, usize) -> bool,
    ) -> Option<StopSign> {
        let is_ready = |node: &NodeId| {
            self.learners.get(node).is_some_and(|learner| {
                let is_heard = now.ms_since(learner.heard_us) < 2 * silence_ms;
                is_heard && !must_transfer(*node, learner.index)
            })
        };
        let mut newcomers = self.wanted.members.iter().filter(|node| !self.group.contains(**node));
        let is_due =
            self.wanted.id > self.group.id && !log.is_ending(self.group.id) && newcomers.all(is_ready);
        is_due.then(|| self.wanted.clone())
    }

    // Votes.

    /// The storage of this replica was found to be lost or rolled back. Returns the change to record, if it had a vote.
    pub(super) fn exclude(&mut self) -> Option<Change> {
        let since = self.group.since(self.id).filter(|_| self.has_vote())?;
        self.excluded = Some(since);
        Some(Change::Excluded { since })
    }

    /// Replays the record of an exclusion.
    pub(super) fn was_excluded(&mut self, since: u32) {
        self.excluded = Some(since);
    }

    /// Whether this is the member that this replica is now: it may have been another one before it was removed and added
    /// again.
    pub(super) fn is_own(&self, member: Member) -> bool {
        member.node == self.id && self.group.since(self.id) == Some(member.since)
    }

    /// Takes a voter's identity, from its message or from a record.
    pub(super) fn learn_identity(&mut self, voter: Voter) {
        self.voters.insert(voter.member.node, voter);
    }

    /// Sets the links' voters to those of the current configuration.
    pub(super) fn meet(&self, links: &mut Links) {
        links.meet_voters(self.id, &self.group, &self.voters);
    }

    /// Every voter whose identity is known here, this replica included if it has a vote.
    pub(super) fn known_voters(&self, own: &Identity) -> Vec<Voter> {
        let own = self
            .group
            .since(self.id)
            .filter(|_| self.has_vote())
            .map(|since| Voter { member: Member { node: self.id, since }, identity: *own });
        own.into_iter().chain(self.voters.values().copied()).collect()
    }

    /// Adopts what another replica knows of the voters' identities, so that a new member does not mistake one for another.
    /// Returns the changes to record.
    pub(super) fn learn_voters(&mut self, voters: &[Voter], out: &mut Outbox<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        for voter in voters {
            let Member { node, since } = voter.member;
            if self.group.since(node) != Some(since) {
                continue;
            }
            if node == self.id {
                if out.links.identity().is_another(&voter.identity) && self.excluded != Some(since) {
                    self.excluded = Some(since);
                    changes.push(Change::Excluded { since });
                    let why = "others know another storage, or a newer state of it, as this member's";
                    out.reject(self.id, why);
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

    /// This replica had nothing, and got a snapshot of a configuration in which it is a member already. No replica becomes a
    /// member before a snapshot of an earlier configuration is durable on it, except those that began the first one
    /// themselves, with nothing. So its storage was lost, and what it promised is unknown.
    pub(super) fn exclude_newcomer(&mut self, out: &mut Outbox<'_>) -> Option<Change> {
        let change = self.exclude()?;
        out.reject(self.id, "it is a member already, and has lost what it had");
        Some(change)
    }

    /// The records of them that a checkpoint holds.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        let voters = self.voters.values().map(|voter| Change::Peer(*voter));
        voters.chain(self.excluded.map(|since| Change::Excluded { since }))
    }

    // A replica that is behind requests help.

    /// Whether others have something that this replica needs and that the crate does not deliver.
    fn lacks(&self) -> bool {
        let newer = self.newer.id > self.group.id;
        if self.has_vote() {
            return newer;
        }
        let wanted = self.wanted.id > self.group.id && self.wanted.members.contains(&self.id);
        wanted || newer && self.newer.is_member
    }

    /// Whether this replica needs help.
    pub(super) fn needs_help(&self, links: &Links) -> bool {
        links.is_started() && self.lacks()
    }

    /// Sends all known peers this replica's position, and requests help from one of them, another one each time, unless one
    /// is already helping.
    pub(super) fn ask_for_help(&mut self, applied: usize, is_helped: bool, out: &mut Outbox<'_>) {
        let mut peers = self.wanted.members.clone();
        peers.extend(self.group.nodes());
        peers.extend(out.links.outsiders());
        peers.sort_unstable();
        peers.dedup();
        peers.retain(|peer| *peer != self.id);
        self.help_requests += 1;
        for (place, peer) in peers.iter().enumerate() {
            let asks = place == self.help_requests % peers.len() && !is_helped;
            if out.links.meet(*peer) {
                out.send(*peer, Body::Behind { index: applied as u64, asks });
            }
        }
    }

    /// Makes the leader known to future members: they may not know any of the present ones.
    pub(super) fn invite_newcomers(&self, now: Now, out: &mut Outbox<'_>) {
        if self.wanted.id <= self.group.id {
            return;
        }
        for newcomer in &self.wanted.members {
            let is_member = *newcomer == self.id || self.group.contains(*newcomer);
            if !is_member && out.links.meet(*newcomer) {
                self.send_members(now, *newcomer, out);
            }
        }
    }

    /// Sends a node the members of the current configuration, once a round at most.
    pub(super) fn send_members(&self, now: Now, to: NodeId, out: &mut Outbox<'_>) {
        out.send_rate_limited(now, to, Body::Newer { members: self.group.nodes() });
    }

    /// A peer is in a configuration with these members. Without a list this replica is one of them: the message was of a kind
    /// that is sent to members only. If this replica lacks what the peer has, and no peer helps yet, it requests that.
    pub(super) fn note_newer(
        &mut self,
        now: Now,
        from: NodeId,
        (id, members): (u32, Option<&[NodeId]>),
        (applied, is_helped): (usize, bool),
        out: &mut Outbox<'_>,
    ) {
        if id <= self.group.id {
            return;
        }
        if id > self.newer.id || id == self.newer.id && members.is_some() {
            let is_member = members.is_none_or(|members| members.contains(&self.id));
            self.newer = Newer { id, is_member };
        }
        if self.lacks() && !is_helped {
            out.send_rate_limited(now, from, Body::Behind { index: applied as u64, asks: true });
        }
    }

    // A replica that is ahead helps.

    /// A peer reports its position in its configuration, and may request what it lacks. It gets what is decided in that
    /// configuration, and no more: what follows a stop-sign belongs to the next configuration, and the crate delivers it.
    pub(super) fn note_behind(
        &mut self,
        now: Now,
        from: NodeId,
        configuration: u32,
        (index, asks): (usize, bool),
        (applied, log): (usize, &Log),
    ) -> Help {
        if configuration == self.group.id {
            if self.group.contains(from) {
                return Help::None;
            }
            self.learners.insert(from, Learner { index, heard_us: now.monotonic_us });
        }
        if configuration > self.group.id || !asks || self.group.id == 0 {
            return Help::None;
        }
        let end = match configuration == self.group.id {
            true => applied,
            false => log.stop_sign_from(index).map_or(0, |stop_sign| stop_sign + 1),
        };
        if configuration > 0 && end > 0 { Help::UpTo(end) } else { Help::Snapshot }
    }

    /// Whether a node is a member or will be one.
    pub(super) fn expects(&self, node: NodeId) -> bool {
        self.group.contains(node) || self.wanted.members.contains(&node)
    }

    /// Whether the log here is one to vote with. A replica without a vote knows only what is decided, which is no such log
    /// except at the very beginning of the configuration.
    pub(super) fn has_a_log(&self, applied: usize) -> bool {
        self.has_vote() || applied as u64 == self.group.begins
    }

    /// A peer has sent entries that are decided, from `index` on, while `applied` entries are applied here. Returns those
    /// that are of use. A voter takes them only if they end its configuration: otherwise it would know more to be decided
    /// than its log and ballot show, and the crate would go wrong.
    pub(super) fn useful(
        &self,
        from: NodeId,
        configuration: u32,
        (index, mut entries): (usize, Vec<Entry>),
        applied: usize,
        out: &mut Outbox<'_>,
    ) -> Option<Vec<Entry>> {
        let is_of_use = index <= applied && index + entries.len() > applied;
        if configuration != self.group.id || configuration == 0 || !is_of_use {
            return None;
        }
        entries.drain(..applied - index);
        let ends = |entry: &Entry| entry.stop_sign().is_some_and(|it| it.id > configuration);
        match entries.iter().position(ends) {
            Some(stop_sign) => entries.truncate(stop_sign + 1),
            None if self.group.contains(self.id) => {
                out.reject(from, "it sends a voter decided entries without the end of its configuration");
                return None;
            }
            None => {}
        }
        Some(entries)
    }

    // Status.

    pub(super) fn is_excluded(&self) -> bool {
        self.group.contains(self.id) && !self.has_vote()
    }

    /// Whether the newest configuration that this replica knows of does not include it.
    pub(super) fn is_removed(&self) -> bool {
        let newest = self.group.id.max(self.wanted.id).max(self.newer.id);
        let is_member = match newest {
            0 => true,
            id if id == self.group.id => self.group.contains(self.id),
            id if id == self.newer.id => self.newer.is_member,
            _ => self.wanted.members.contains(&self.id),
        };
        // It has its vote until its configuration has ended.
        !is_member && !self.has_vote()
    }

    /// Fills in what is known of configurations.
    pub(super) fn describe(&self, status: &mut Status) {
        status.configuration = self.group.id;
        status.members = self.group.nodes();
        status.voter = self.has_vote() && self.newer.id <= self.group.id;
        status.removed = self.is_removed();
        status.excluded = self.is_excluded();
        status.next_configuration = if self.wanted.id > self.group.id { self.wanted.id } else { 0 };
        let learner = |(node, learner): (&NodeId, &Learner)| (*node, learner.index as u64);
        status.learners = self.learners.iter().map(learner).collect();
    }

    // Invariants.

    /// The configuration begins at or before what is applied, unless replay stops before a record. A stop-sign is the last
    /// entry of every log that holds one. O(entries that are not applied).
    pub(super) fn a_stop_sign_is_the_last_entry(&self, applied: &Applied, log: &Log) {
        for index in applied.index()..log.end() {
            let ends =
                log.entry(index).and_then(|entry| entry.stop_sign()).is_some_and(|it| it.id > self.group.id);
            assert!(!ends || index + 1 == log.end(), "entries follow a stop-sign");
        }
        let (begins, applied_entries) = (self.group.begins as usize, applied.index());
        let is_past = applied_entries >= begins || applied.stands_still();
        assert!(is_past, "the configuration begins at {begins}, and {applied_entries} entries are applied");
    }

    /// The links' voters and the known identities are those of members.
    pub(super) fn only_voters_are_counted(&self, links: &Links) {
        let others = self.group.nodes().into_iter().filter(|node| *node != self.id);
        assert!(links.peers().eq(others), "the links' voters are not the other members");
        let is_member = |voter: &Voter| self.group.since(voter.member.node) == Some(voter.member.since);
        assert!(self.voters.values().all(is_member), "a known voter is not a member");
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Head;
    use super::super::kit::{Peers, at_ms, entry, identity};
    use super::*;

    /// Node 1 in configuration 3, with nodes 2 and 3.
    fn members() -> Members {
        let mut members = Members::new(1);
        members.enter(Group::first(3, &[1, 2, 3]));
        members
    }

    fn stop(id: u32) -> Entry {
        Entry::stop(Head::default(), &StopSign { id, members: vec![1, 2, 3, 4] })
    }

    #[test]
    fn a_stop_sign_waits_for_new_members() {
        let (mut members, mut log) = (members(), Log::default());
        let due = |members: &Members, log: &Log, ms: u64, lacks: bool| {
            members.due_stop_sign(at_ms(ms), 240, log, |_, _| lacks).is_some()
        };
        assert!(members.want(4, vec![1, 2, 3, 4]) && !members.want(4, vec![1]));
        assert!(!due(&members, &log, 10, false), "no message of node 4 has come");
        let help = members.note_behind(at_ms(10), 4, 3, (0, false), (0, &log));
        assert!(matches!(help, Help::None), "it requests no help");
        assert!(!due(&members, &log, 20, true), "it lacks what is cut off");
        assert!(due(&members, &log, 20, false) && !due(&members, &log, 10 + 480, false));
        log.append(vec![stop(4)]);
        assert!(!due(&members, &log, 20, false), "it is ordered");
        members.enter(Group::first(4, &[1, 2, 3, 4]));
        assert!(!due(&members, &Log::default(), 20, false), "it is in force");
    }

    #[test]
    fn a_replica_that_is_behind_gets_only_what_its_configuration_has_decided() {
        let (mut members, mut log) = (members(), Log::default());
        log.append(vec![entry(1, 1, &["a"]), stop(3), entry(1, 2, &["b"])]);
        let mut help = |from, configuration, index, asks| {
            members.note_behind(at_ms(1), from, configuration, (index, asks), (3, &log))
        };
        assert!(matches!(help(4, 2, 0, true), Help::UpTo(2)), "the stop-sign of its configuration");
        assert!(matches!(help(4, 2, 2, true), Help::Snapshot), "that is cut off");
        assert!(matches!(help(4, 3, 0, true), Help::UpTo(3)));
        assert!(matches!(help(4, 0, 0, true), Help::Snapshot));
        assert!(matches!(help(2, 3, 0, true), Help::None), "the crate brings it to members");
        assert!(matches!(help(4, 5, 0, true), Help::None), "it is ahead");
    }

    #[test]
    fn a_voter_is_sent_only_the_end_of_its_configuration() {
        let (members, mut peers) = (members(), Peers::new());
        let sent = || vec![entry(2, 1, &["a"]), entry(2, 2, &["b"]), stop(4), entry(2, 3, &["c"])];
        let mut useful = |members: &Members, index, sent, applied| {
            members.useful(2, 3, (index, sent), applied, &mut peers.out()).map(|entries| entries.len())
        };
        assert_eq!(useful(&members, 5, sent(), 6), Some(2), "after what is applied, up to the stop-sign");
        assert_eq!(useful(&members, 5, sent()[..2].to_vec(), 6), None);
        assert_eq!(useful(&members, 7, sent(), 6), None, "it leaves a hole");
        let mut learner = Members::new(9);
        learner.enter(members.group().clone());
        assert_eq!(useful(&learner, 5, sent()[..2].to_vec(), 6), Some(1));
    }

    #[test]
    fn a_member_whose_storage_is_older_than_others_know_has_no_vote() {
        let (mut members, mut peers) = (members(), Peers::new());
        let voter =
            |node, since, life| Voter { member: Member { node, since }, identity: identity(node, life) };
        let known = [voter(2, 3, 4), voter(3, 2, 4), voter(1, 3, 2)];
        let changes = members.learn_voters(&known, &mut peers.out());
        assert_eq!(changes, [Change::Peer(known[0]), Change::Excluded { since: 3 }]);
        assert!(!members.has_vote() && members.is_excluded());
        assert_eq!(members.known_voters(peers.links.identity()), [known[0]]);
        assert!(members.learn_voters(&known, &mut peers.out()).is_empty(), "that is known");
        members.enter(Group::first(4, &[1, 2]));
        assert!(members.has_vote(), "added again it is a new voter");
    }
}
