//! Rounds of heartbeats, and quiescence: see [`crate::rest`] for what that is.
//!
//! A replica becomes quiescent and stops its rounds after some rounds with nothing but heartbeats, in which all reachable
//! members were content with the same leader and held the same log. It still answers the rounds of others (that needs no
//! clock), and resumes its own as soon as anything happens: a request, a message that is news, another configuration, a link
//! that goes down or comes up, a leader's node that becomes silent.
//!
//! Votes, promises, leases and decisions do not depend on rounds: a lease is measured from entries.
//!
//! # A busy leader is not a dead one
//!
//! A round goes on beyond its end while what it is to show is known only to members whose nodes are alive and busy
//! ([`crate::vouch`]): at a follower, that the leader is content; at a leader, that a majority follows it. So a leader's
//! long turn, or one that all members take for the same entry, causes no election. Their answers count when they come,
//! since the round is still the same. And a round that began in a long turn of this node goes on for one more turn, as its
//! heartbeats left at the end of that turn. A round that goes on delays an election and nothing else.
//!
//! # Why a dead leader is noticed
//!
//! At every other member that could take over, the leader's link breaks, or its node becomes silent, or a client's request
//! arrives. Then that member resumes its rounds at once. It first evaluates the answers of the round in which it became
//! quiescent, once that round's time is over. Those are content, so no member bids for the leadership just because many
//! resume at the same moment. The next round misses the leader.
//!
//! A replica that is not content does not become quiescent, and its rounds make the quiescent ones resume: otherwise a
//! replica that cannot reach the leader would get outdated answers from them. Replicas become quiescent one after the other,
//! so the rounds of others do not disturb a replica that has only just become quiescent.
//!
//! A quiescent replica considers a peer live as long as its node reaches the peer's. When it resumes its rounds, such a peer
//! stays live for as long as after any message from it.

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

/// For this many rounds the heartbeats of others do not end a replica's quiescence. The others may become quiescent later:
/// on a busy machine some of their rounds are not calm, as answers come late. One that is in trouble still sends
/// heartbeats after that.
const SETTLING_ROUNDS: u64 = 16;

/// How often a round that goes on is looked at, in the time of one round.
const LOOKS_PER_ROUND: u64 = 8;

/// The rounds of a replica.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    rest: Rest,
    /// When the round was to end.
    due_us: u64,
    /// When the round ends, or is looked at again.
    end_us: u64,
    /// How many turns of its node have ended since the round began, the one in which it began included.
    turns: u32,
    /// The time of the last of them.
    turn_us: u64,
    /// The answers to the heartbeats of this round.
    answers: Vec<(NodeId, HeartbeatMsg)>,
    /// The promise when the round began.
    promise: Ballot,
    /// Whether to send the followers the leader's position.
    is_position_due: bool,
}

impl Rounds {
    /// Begins a round.
    pub(super) fn begin(&mut self, now: Now, settings: &Settings) {
        let length_us = settings.timing.heartbeat_ms * 1000;
        self.end_us = match settings.timing.rounds_in_step {
            true => now.next_beat_us(length_us),
            false => now.monotonic_us + length_us,
        };
        self.due_us = self.end_us;
        (self.turns, self.turn_us) = (0, 0);
    }

    /// A turn ends, perhaps in several steps of the same time.
    #[inline]
    pub(super) fn note_turn(&mut self, now: Now) {
        if self.turn_us != now.monotonic_us {
            (self.turns, self.turn_us) = (self.turns.saturating_add(1), now.monotonic_us);
        }
    }

    /// Whether the round goes on, although its time is over: it waits for members that are alive and busy.
    pub(super) fn goes_on(
        &mut self,
        now: Now,
        agreement: &Agreement,
        links: &Links,
        settings: &Settings,
    ) -> bool {
        let Some(leader) = agreement.leader() else { return false };
        let answers = |peer: NodeId| {
            let is_answer = |(from, answer): &(NodeId, HeartbeatMsg)| match answer {
                HeartbeatMsg::Reply(reply) => *from == peer && reply.round == agreement.round(),
                HeartbeatMsg::Request(_) => false,
            };
            self.answers.iter().any(is_answer)
        };
        let is_busy = |peer: NodeId| {
            !answers(peer) && links.get(peer).is_some_and(|link| link.is_excused(now, self.due_us))
        };
        // The turn in which it began was long: the heartbeats left at the end of that turn, and the answers have as long as
        // usual from now. A member that has just become busy vouches for itself only after a while, so less is not enough.
        let has_just_asked = self.turns < 2 && now.monotonic_us > self.due_us;
        let goes_on = if leader == settings.id {
            let (answered, busy) = links.peers().fold((0, 0), |(answered, busy), peer| {
                (answered + usize::from(answers(peer)), busy + usize::from(is_busy(peer)))
            });
            let is_enough = |count: usize| count + 1 >= links.majority();
            !is_enough(answered) && (has_just_asked || is_enough(answered + busy))
        } else {
            is_busy(leader) || has_just_asked && !answers(leader)
        };
        if goes_on {
            let length_us = settings.timing.heartbeat_ms * 1000;
            self.end_us =
                now.monotonic_us + if has_just_asked { length_us } else { length_us / LOOKS_PER_ROUND };
        }
        goes_on
    }

    /// A configuration begins, or the same one with another log: the answers so far belong to the previous one.
    pub(super) fn forget_answers(&mut self, promise: Ballot) {
        self.answers.clear();
        self.promise = promise;
    }

    /// Keeps an answer to a heartbeat until the round ends.
    pub(super) fn answer(&mut self, from: NodeId, answer: HeartbeatMsg) {
        self.answers.push((from, answer));
    }

    /// When the round ends; `u64::MAX` while quiescent.
    pub(super) fn end_us(&self) -> u64 {
        self.end_us
    }

    /// Ends the round and begins the next one. Returns the answers, and whether another candidate has won this replica's
    /// promise during the round.
    ///
    /// The answers show the state of the others when the round began. If another candidate has won the promise since then, all
    /// members may still seem to be without a leader, and the crate would bid against that candidate. So it gets no answers
    /// then, and bids in a later round if necessary.
    pub(super) fn turn(
        &mut self,
        now: Now,
        promise: Ballot,
        settings: &Settings,
    ) -> (Vec<(NodeId, HeartbeatMsg)>, bool) {
        // Missed rounds are not made up for: no peer could have answered in them.
        self.begin(now, settings);
        self.is_position_due = true;
        let is_won = promise > self.promise && promise.pid != u64::from(settings.id);
        self.promise = promise;
        let answers = std::mem::take(&mut self.answers);
        (if is_won { Vec::new() } else { answers }, is_won)
    }

    /// Whether to send the followers the leader's position.
    pub(super) fn is_position_due(&self) -> bool {
        self.is_position_due
    }

    /// The followers were sent the leader's position.
    pub(super) fn note_positions_sent(&mut self) {
        self.is_position_due = false;
    }

    // Quiescence.

    pub(super) fn is_resting(&self) -> bool {
        self.rest.is_resting()
    }

    /// Takes what [`set_reached`](crate::Replica::set_reached) reports.
    pub(super) fn set_reached(
        &mut self,
        now: Now,
        (peer, is_reached): (NodeId, bool),
        agreement: &Agreement,
        links: &mut Links,
    ) {
        let changes = self.rest.set_reached(peer, is_reached);
        if changes && self.is_resting() && links.get(peer).is_some() {
            // A leader checks the position of a peer that has returned, and does not lead without a majority. A follower
            // needs its leader.
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

    /// Whether a peer is live, as far as is known here.
    pub(super) fn is_peer_live(&self, now: Now, peer: NodeId, links: &Links, settings: &Settings) -> bool {
        links.get(peer).is_some_and(|link| link.is_live(now, settings.timing.silence_ms))
            || self.is_resting() && self.rest.reaches(peer)
    }

    /// Something happens: ends the quiescence.
    #[inline]
    pub(super) fn wake(&mut self, now: Now, links: &mut Links) {
        if self.rest.end() {
            self.wake_up(now, links);
        }
    }

    #[cold]
    fn wake_up(&mut self, now: Now, links: &mut Links) {
        // The heartbeats of the round may have left just before: it keeps its time, or no answer could be in it.
        self.due_us = self.due_us.max(now.monotonic_us);
        self.end_us = self.due_us;
        links.mark_live(now, |peer| self.rest.reaches(peer));
    }

    /// A message was accepted: if it is news, it ends the quiescence.
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
            // Peers that become quiescent later still have their rounds.
            Body::Heartbeat(HeartbeatMsg::Request(_)) => {
                let settling_us = SETTLING_ROUNDS * settings.timing.heartbeat_ms * 1000;
                self.rest.since_us().is_some_and(|since_us| now.monotonic_us >= since_us + settling_us)
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

    /// At the end of a round, before its answers are evaluated: whether it had nothing but heartbeats and all reachable
    /// members are content, so that the next rounds would be the same.
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
            let is_content = |(from, answer): &(NodeId, HeartbeatMsg)| match answer {
                HeartbeatMsg::Reply(reply) => *from == peer && reply.happy && reply.leader == promise,
                HeartbeatMsg::Request(_) => false,
            };
            self.answers.iter().any(is_content)
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
            && !log.has_pending_records()
            && peers.all(|peer| is_content(peer) && (!leads || has_accepted(peer)))
    }

    /// A round has ended, calm or not. After enough calm ones the replica becomes quiescent.
    pub(super) fn rest_after(&mut self, now: Now, was_calm: bool) {
        if self.rest.note_round(was_calm) {
            self.rest.begin(now.monotonic_us);
            self.end_us = u64::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::Group;
    use super::super::kit::{Peers, at_ms, settings};
    use super::*;
    use crate::rest::CALM_ROUNDS;
    use crate::vouch::Vouch;
    use omnipaxos::messages::ballot_leader_election::HeartbeatRequest;

    fn answer() -> HeartbeatMsg {
        HeartbeatMsg::Request(HeartbeatRequest { round: 1 })
    }

    #[test]
    fn rounds_in_step_end_at_multiples_of_their_length() {
        let (mut rounds, mut settings) = (Rounds::default(), settings(1));
        settings.timing.rounds_in_step = true;
        assert_eq!(settings.timing.heartbeat_ms, 80);
        let mut end_ms = |ms| {
            rounds.begin(at_ms(ms), &settings);
            rounds.end_us() / 1000
        };
        assert_eq!((end_ms(800), end_ms(820)), (880, 880), "a turn that is late makes the round shorter");
        assert_eq!((end_ms(821), end_ms(879)), (960, 960), "never by more than a quarter");
    }

    #[test]
    fn a_round_that_a_long_turn_delayed_has_its_whole_length_for_the_answers() {
        let (mut rounds, settings, mut peers) = (Rounds::default(), settings(1), Peers::new());
        let mut agreement = Agreement::new();
        let group = Group::first(1, &[1]);
        agreement.take_part(&settings, &group, &peers.log);
        agreement.look(&settings, &group, &peers.log, &mut peers.effects).unwrap();
        assert!(agreement.leads());
        rounds.begin(at_ms(1000), &settings);
        rounds.note_turn(at_ms(1000));
        // That turn lasted 120 ms, and the heartbeats have left only now.
        assert!(rounds.goes_on(at_ms(1120), &agreement, &peers.links, &settings));
        assert_eq!(rounds.end_us(), 1_200_000, "a node that has just become busy says so within that time");
        rounds.note_turn(at_ms(1120));
        assert!(!rounds.goes_on(at_ms(1200), &agreement, &peers.links, &settings), "no node has vouched");
        peers.links.vouched(2, Vouch::new(at_ms(1190), 1));
        assert!(rounds.goes_on(at_ms(1200), &agreement, &peers.links, &settings));
        assert_eq!(rounds.end_us(), 1_210_000);
    }

    #[test]
    fn the_crate_gets_no_answers_of_a_round_in_which_another_candidate_has_won() {
        let (mut rounds, settings) = (Rounds::default(), settings(1));
        let mut turn = |promise| {
            rounds.answer(2, answer());
            let (answers, is_won) = rounds.turn(at_ms(100), promise, &settings);
            assert_eq!(rounds.end_us(), 180_000);
            (answers.len(), is_won)
        };
        assert_eq!(turn(Ballot::with(1, 1, 0, 1)), (1, false), "its own ballot");
        assert_eq!(turn(Ballot::with(1, 2, 0, 2)), (0, true));
        assert_eq!(turn(Ballot::with(1, 2, 0, 2)), (1, false), "it had won before");
    }

    #[test]
    fn news_ends_quiescence_and_peers_are_live_until_then() {
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
        assert!(rounds.is_resting(), "the position was known already");
        let news = Body::Position { ballot: log.promise(), end: 1, decided: 0 };
        rounds.wake_for(at_ms(9000), (2, &news), &log, &mut peers.links, &settings);
        assert!(!rounds.is_resting() && rounds.end_us() == 9_000_000);
        assert!(rounds.is_peer_live(at_ms(9100), 2, &peers.links, &settings), "as if a message had come");
        assert!(!rounds.is_peer_live(at_ms(9240), 2, &peers.links, &settings));
    }

    #[test]
    fn a_round_keeps_its_time_though_the_replica_was_quiescent_in_it() {
        let (mut rounds, settings, mut peers) = (Rounds::default(), settings(1), Peers::new());
        rounds.begin(at_ms(1000), &settings);
        (0..CALM_ROUNDS).for_each(|_| rounds.rest_after(at_ms(1000), true));
        rounds.wake(at_ms(1001), &mut peers.links);
        assert_eq!(rounds.end_us(), 1_080_000, "its answers are on their way");
    }

    #[test]
    fn rounds_of_others_end_a_long_quiescence() {
        let (mut rounds, settings, mut peers) = (Rounds::default(), settings(1), Peers::new());
        (0..CALM_ROUNDS).for_each(|_| rounds.rest_after(at_ms(1000), true));
        let (request, log) = (Body::Heartbeat(answer()), Log::default());
        let long_ms = SETTLING_ROUNDS * settings.timing.heartbeat_ms;
        rounds.wake_for(at_ms(1000 + long_ms - 1), (2, &request), &log, &mut peers.links, &settings);
        assert!(rounds.is_resting());
        rounds.wake_for(at_ms(1000 + long_ms), (2, &request), &log, &mut peers.links, &settings);
        assert!(!rounds.is_resting());
    }
}
