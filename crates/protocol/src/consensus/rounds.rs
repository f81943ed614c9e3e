//! Rounds of heartbeats, and rest from them: see [`crate::rest`] for what that is.
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

use super::agreement::Agreement;
use super::applied::Applied;
use super::links::Links;
use super::log::Log;
use super::message::Body;
use super::options::Settings;
use crate::contract::{NodeId, Now};
use crate::rest::Rest;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::PaxosMsg;

/// For so many rounds the others may fall asleep later: on a busy machine some of theirs are not calm, as answers come late.
/// Whoever is in trouble is heard after that.
const FALLING_ASLEEP_ROUNDS: u64 = 16;

/// The rounds of a replica.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    rest: Rest,
    /// When the round ends.
    end_us: u64,
    /// What its heartbeats were answered with.
    answers: Vec<(NodeId, HeartbeatMsg)>,
    /// The promise at its beginning.
    promise: Ballot,
    /// The followers are to be told how far the leader has come.
    is_position_due: bool,
}

impl Rounds {
    /// The first round begins.
    pub(super) fn begin(&mut self, now: Now, settings: &Settings) {
        self.end_us = now.monotonic_us + settings.timing.heartbeat_ms * 1000;
    }

    /// A configuration begins, or the same one with another log. Answers are of the one before, or of another round.
    pub(super) fn forget_answers(&mut self, promise: Ballot) {
        self.answers.clear();
        self.promise = promise;
    }

    /// A heartbeat is answered. It is looked at when the round ends.
    pub(super) fn answer(&mut self, from: NodeId, answer: HeartbeatMsg) {
        self.answers.push((from, answer));
    }

    /// When the round ends.
    pub(super) fn end_us(&self) -> u64 {
        self.end_us
    }

    /// The round ends, and the next one begins. Returns the answers, and whether another candidate has won this replica's
    /// promise meanwhile.
    ///
    /// The answers show how the others stood when the round began. When another candidate has won the promise since, all may
    /// seem to be without a leader still, and the crate would bid against that candidate: it is not told who answered, and
    /// bids in a later round if need be.
    pub(super) fn turn(
        &mut self,
        now: Now,
        promise: Ballot,
        settings: &Settings,
    ) -> (Vec<(NodeId, HeartbeatMsg)>, bool) {
        // A round that was slept through is not made up for: nobody could have answered in it.
        self.begin(now, settings);
        self.is_position_due = true;
        let is_won = promise > self.promise && promise.pid != u64::from(settings.id);
        self.promise = promise;
        let answers = std::mem::take(&mut self.answers);
        (if is_won { Vec::new() } else { answers }, is_won)
    }

    /// Whether the followers are to be told how far the leader has come.
    pub(super) fn is_position_due(&self) -> bool {
        self.is_position_due
    }

    /// They are told.
    pub(super) fn positions_are_told(&mut self) {
        self.is_position_due = false;
    }

    // Rest.

    pub(super) fn is_resting(&self) -> bool {
        self.rest.is_resting()
    }

    /// What [`set_reached`](crate::Replica::set_reached) tells.
    pub(super) fn set_reached(
        &mut self,
        now: Now,
        (peer, is_reached): (NodeId, bool),
        agreement: &Agreement,
        links: &mut Links,
    ) {
        let changes = self.rest.set_reached(peer, is_reached);
        if changes && self.is_resting() && links.get(peer).is_some() {
            // A leader looks how far one has come that is back, and does not lead without a majority. To a follower its
            // leader matters.
            let reached = links.peers().filter(|peer| self.rest.reaches(*peer)).count();
            let concerns = match agreement.leads() {
                true => is_reached || reached + 1 < links.majority(),
                false => agreement.leader() == Some(peer),
            };
            if concerns {
                self.wake(now, links);
            }
        }
    }

    /// Whether a peer is live, as far as anybody can say.
    pub(super) fn is_peer_live(&self, now: Now, peer: NodeId, links: &Links, settings: &Settings) -> bool {
        links.get(peer).is_some_and(|link| link.is_live(now, settings.timing.silence_ms))
            || self.is_resting() && self.rest.reaches(peer)
    }

    /// Something happens.
    #[inline]
    pub(super) fn wake(&mut self, now: Now, links: &mut Links) {
        if self.rest.end() {
            self.wake_up(now, links);
        }
    }

    #[cold]
    fn wake_up(&mut self, now: Now, links: &mut Links) {
        self.end_us = now.monotonic_us;
        links.are_there(now, |peer| self.rest.reaches(peer));
    }

    /// A message has come that is taken.
    #[inline]
    pub(super) fn wake_for(
        &mut self,
        now: Now,
        (from, body): (NodeId, &Body<'_>),
        log: &Log,
        links: &mut Links,
        settings: &Settings,
    ) {
        let is_news = match body {
            Body::Heartbeat(HeartbeatMsg::Reply(_)) => false,
            // Others who rest later still have their rounds.
            Body::Heartbeat(HeartbeatMsg::Request(_)) => {
                let asleep_us = FALLING_ASLEEP_ROUNDS * settings.timing.heartbeat_ms * 1000;
                self.rest.since_us().is_some_and(|since_us| now.monotonic_us >= since_us + asleep_us)
            }
            Body::Position { ballot, end, decided } => {
                (*ballot, *end, *decided) != (log.promise(), log.end() as u64, log.decided() as u64)
            }
            Body::Paxos(PaxosMsg::Accepted(accepted)) => {
                let known = links.get(from).map(|link| link.accepted());
                known != Some((accepted.n, accepted.accepted_idx))
            }
            _ => true,
        };
        if is_news {
            self.wake(now, links);
        }
    }

    /// A round is over, its answers not looked at yet: whether nothing but heartbeats was in it and all who can be reached
    /// are content, so that the rounds behind it would be the same.
    pub(super) fn is_calm(
        &self,
        applied: &Applied,
        log: &Log,
        links: &Links,
        agreement: &Agreement,
        settings: &Settings,
    ) -> bool {
        let (promise, end) = (log.promise(), log.end());
        let is_content = |peer: NodeId| {
            let said = |(from, answer): &(NodeId, HeartbeatMsg)| match answer {
                HeartbeatMsg::Reply(reply) => *from == peer && reply.happy && reply.leader == promise,
                HeartbeatMsg::Request(_) => false,
            };
            self.answers.iter().any(said)
        };
        let leader = promise.pid as NodeId;
        let mut peers = links.peers().filter(|peer| self.rest.reaches(*peer));
        let count = peers.clone().count();
        let leads = agreement.leads_in() == Some(promise);
        let has_accepted = |peer| links.get(peer).is_some_and(|link| link.accepted() == (promise, end));
        self.rest.is_told()
            && !links.is_alone()
            && count + 1 >= links.majority()
            && (leads || leader != settings.id && self.rest.reaches(leader))
            && agreement.is_accepting()
            && agreement.leader() == Some(leader)
            && log.decided() == end
            && applied.index() == end
            && !log.has_untold()
            && peers.all(|peer| is_content(peer) && (!leads || has_accepted(peer)))
    }

    /// A round is over.
    pub(super) fn rest_after(&mut self, now: Now, was_calm: bool) {
        if self.rest.note_round(was_calm) {
            self.rest.begin(now.monotonic_us);
            self.end_us = u64::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kit::{Peers, at_ms, settings};
    use super::*;
    use crate::rest::CALM_ROUNDS;
    use omnipaxos::messages::ballot_leader_election::HeartbeatRequest;

    fn answer() -> HeartbeatMsg {
        HeartbeatMsg::Request(HeartbeatRequest { round: 1 })
    }

    #[test]
    fn the_crate_does_not_hear_of_a_round_in_which_another_candidate_has_won() {
        let (mut rounds, settings) = (Rounds::default(), settings(1));
        let mut turn = |promise| {
            rounds.answer(2, answer());
            let (answers, is_won) = rounds.turn(at_ms(100), promise, &settings);
            assert_eq!(rounds.end_us(), 180_000);
            (answers.len(), is_won)
        };
        assert_eq!(turn(Ballot::with(1, 1, 0, 1)), (1, false), "its own ballot");
        assert_eq!(turn(Ballot::with(1, 2, 0, 2)), (0, true));
        assert_eq!(turn(Ballot::with(1, 2, 0, 2)), (1, false), "it has won before");
    }

    #[test]
    fn rest_ends_with_news_and_peers_are_live_meanwhile() {
        let (mut rounds, settings, mut peers) = (Rounds::default(), settings(1), Peers::new());
        let (agreement, log) = (Agreement::new(), Log::default());
        rounds.set_reached(at_ms(1), (2, true), &agreement, &mut peers.links);
        rounds.begin(at_ms(1), &settings);
        (0..CALM_ROUNDS).for_each(|_| rounds.rest_after(at_ms(1000), true));
        assert!(rounds.is_resting() && rounds.end_us() == u64::MAX);
        assert!(rounds.is_peer_live(at_ms(9000), 2, &peers.links, &settings));
        assert!(!rounds.is_peer_live(at_ms(9000), 3, &peers.links, &settings));
        let known = Body::Position { ballot: log.promise(), end: 0, decided: 0 };
        rounds.wake_for(at_ms(9000), (2, &known), &log, &mut peers.links, &settings);
        assert!(rounds.is_resting(), "that is no news");
        let news = Body::Position { ballot: log.promise(), end: 1, decided: 0 };
        rounds.wake_for(at_ms(9000), (2, &news), &log, &mut peers.links, &settings);
        assert!(!rounds.is_resting() && rounds.end_us() == 9_000_000);
        assert!(rounds.is_peer_live(at_ms(9100), 2, &peers.links, &settings), "as if it had spoken");
        assert!(!rounds.is_peer_live(at_ms(9240), 2, &peers.links, &settings));
    }

    #[test]
    fn rounds_of_others_wake_who_rests_for_long() {
        let (mut rounds, settings, mut peers) = (Rounds::default(), settings(1), Peers::new());
        (0..CALM_ROUNDS).for_each(|_| rounds.rest_after(at_ms(1000), true));
        let (request, log) = (Body::Heartbeat(answer()), Log::default());
        let long_ms = FALLING_ASLEEP_ROUNDS * settings.timing.heartbeat_ms;
        rounds.wake_for(at_ms(1000 + long_ms - 1), (2, &request), &log, &mut peers.links, &settings);
        assert!(rounds.is_resting());
        rounds.wake_for(at_ms(1000 + long_ms), (2, &request), &log, &mut peers.links, &settings);
        assert!(!rounds.is_resting());
    }
}
