//! Rest in consensus: see [`rest`] for what it is.
//!
//! A replica that has seen some rounds without anything but heartbeats, in which all who can be reached were content with the
//! same leader and held the same log, lets its rounds be. It answers the rounds of others as ever (that takes no clock), and goes
//! on with its own as soon as anything happens: a request, a message that is news, another configuration, a link that breaks or
//! is made, a leader's node that falls silent.
//!
//! Votes, promises, leases and what is decided know no rounds: a lease is measured from entries.
//!
//! # Why a leader that is gone is missed
//!
//! Its link breaks at every other member that could take over, or its node falls silent there, or a client asks for something
//! there: then the round begins at once.
//! The answers of the last round before the rest are looked at first: they are content, so that nobody bids for the
//! leadership just because many begin at the same moment. The next round misses the leader.
//!
//! Whoever is not content does not rest, and its rounds wake those who do: else one that cannot reach the leader would ask
//! others whose answers are of long ago. Replicas fall asleep one after the other; so the rounds of others wake nobody who
//! has only just begun to rest.
//!
//! Whoever rests takes its peers for live as long as its node reaches theirs, and when it wakes, for as long as after any
//! word of theirs.

use super::Replica;
use super::message::Body;
use crate::contract::{NodeId, Now, Replica as _};
use crate::rest;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::PaxosMsg;

/// For so many rounds the others may fall asleep later: on a busy machine some of theirs are not calm, as answers come late.
/// Whoever is in trouble is heard after that.
const FALLING_ASLEEP_ROUNDS: u64 = 16;

impl Replica {
    /// What [`set_reached`](crate::Replica::set_reached) tells.
    pub(super) fn note_reached(&mut self, now: Now, peer: NodeId, is_reached: bool) {
        let changes = self.rest.set_reached(peer, is_reached);
        if changes && self.rest.is_resting() && self.link(peer).is_some() && self.concerns(peer, is_reached) {
            self.wake(now);
        }
    }

    /// Whether it matters to a replica at rest that a peer is reached, or not any more. To a follower its leader does. A leader
    /// looks how far one has come that is back, and does not lead without a majority.
    fn concerns(&self, peer: NodeId, is_reached: bool) -> bool {
        let reached = self.links.iter().filter(|link| self.rest.reaches(link.peer)).count();
        match self.is_leader() {
            true => is_reached || reached + 1 < self.majority(),
            false => self.leader() == Some(peer),
        }
    }

    /// Whether a peer is live, as far as anybody can say.
    pub(super) fn is_peer_live(&self, now: Now, peer: NodeId) -> bool {
        let link = self.link(peer);
        link.is_some_and(|link| link.is_live(now, self.timing.silence_ms))
            || self.rest.is_resting() && self.rest.reaches(peer)
    }

    /// Something happens.
    #[inline]
    pub(super) fn wake(&mut self, now: Now) {
        if self.rest.end() {
            self.wake_up(now);
        }
    }

    #[cold]
    fn wake_up(&mut self, now: Now) {
        self.next_round_us = now.monotonic_us;
        for link in self.links.iter_mut().filter(|link| self.rest.reaches(link.peer)) {
            link.is_there(now);
        }
    }

    /// A message has come that is taken.
    #[inline]
    pub(super) fn wake_for(&mut self, now: Now, from: NodeId, body: &Body<'_>) {
        let is_news = match body {
            Body::Heartbeat(HeartbeatMsg::Reply(_)) => false,
            // Others who rest later still have their rounds.
            Body::Heartbeat(HeartbeatMsg::Request(_)) => {
                let asleep_us = FALLING_ASLEEP_ROUNDS * self.timing.heartbeat_ms * 1000;
                self.rest.since_us().is_some_and(|since_us| now.monotonic_us >= since_us + asleep_us)
            }
            Body::Position { ballot, end, decided } => {
                let log = self.log.borrow();
                (*ballot, *end, *decided) != (log.promise(), log.end() as u64, log.decided() as u64)
            }
            Body::Paxos(PaxosMsg::Accepted(accepted)) => {
                let known = self.link(from).map(|link| link.accepted);
                known != Some((accepted.n, accepted.accepted_idx))
            }
            _ => true,
        };
        if is_news {
            self.wake(now);
        }
    }

    /// A round is over, its answers not looked at yet: whether nothing but heartbeats was in it and all who can be reached
    /// are content, so that the rounds behind it would be the same.
    pub(super) fn is_calm(&self) -> bool {
        let log = self.log.borrow();
        let (promise, end) = (log.promise(), log.end());
        let is_content = |peer: NodeId| {
            let said = |(from, answer): &(NodeId, HeartbeatMsg)| match answer {
                HeartbeatMsg::Reply(reply) => *from == peer && reply.happy && reply.leader == promise,
                HeartbeatMsg::Request(_) => false,
            };
            self.answers.iter().any(said)
        };
        let leader = promise.pid as NodeId;
        let mut peers = self.links.iter().filter(|link| self.rest.reaches(link.peer));
        let count = peers.clone().count();
        let leads = self.leadership.is_some_and(|leadership| leadership.ballot == promise);
        self.rest.is_told()
            && !self.links.is_empty()
            && count + 1 >= self.majority()
            && (leads || leader != self.id && self.rest.reaches(leader))
            && self.agreement.as_ref().is_some_and(|it| it.is_accepting() && it.leader() == Some(leader))
            && log.decided() == end
            && self.applied == end
            && !log.has_untold()
            && peers.all(|link| is_content(link.peer) && (!leads || link.accepted == (promise, end)))
            && self.has_nothing_to_do()
    }

    fn has_nothing_to_do(&self) -> bool {
        self.fragments.is_empty() && self.has_nothing_under_way()
    }

    pub(super) fn has_nothing_under_way(&self) -> bool {
        let is_of_one_mind =
            self.wanted.id == self.group.id && self.excluded.is_none() && self.learners.is_empty();
        let nobody_waits = self.builder_askers.is_empty()
            && self.proposals.batches.is_empty()
            && self.reads.is_empty()
            && self.reads_behind.is_empty()
            && self.reads_within.is_empty()
            && !self.is_read
            && !self.owes_answers
            && self.waits.is_empty()
            && self.held.is_empty();
        let nothing_is_copied =
            self.senders.is_empty() && self.receiver.is_none() && self.replayed_copy.is_none();
        // What ends at some time the leader has to end.
        is_of_one_mind && nobody_waits && nothing_is_copied && rest::is_still(&self.table)
    }

    /// A round is over.
    pub(super) fn rest_after(&mut self, now: Now, was_calm: bool) {
        if self.rest.note_round(was_calm) {
            self.rest.begin(now.monotonic_us);
            self.next_round_us = u64::MAX;
        }
    }
}
