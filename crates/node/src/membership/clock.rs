//! The time in the cluster.
//!
//! Keys expire by wall clocks, and a wall clock can be set wrong: one that is a day ahead, on one node, would expire
//! keys that are alive by most clocks, and give new keys deadlines far in the future of all other clocks. So a node
//! does not use its own wall clock directly. Once a second, it asks every other node for its wall clock, and it uses
//! a time that a majority of all nodes' clocks agrees with.
//!
//! The other clock was read between the sending of the question and the arrival of the answer, on the asker's
//! monotonic clock. So an answer shows the distance of the other wall clock from the asker's monotonic clock, give or
//! take half of the round trip. Of n nodes, a majority is m = n / 2 + 1. A time that is not ahead of the m-th latest
//! clock is not ahead of a majority, and one that is not behind the m-th earliest is not behind a majority. Between
//! two answers, the agreed time advances with the monotonic clock, and it is moved only as far as these two limits
//! require. With all answers of an odd number of nodes, both limits are the median. With some answers missing, the
//! limits are wide, and the previously agreed time stays; with less than a majority, it advances by the monotonic
//! clock alone. A node that has just started begins with the time that another node has agreed on, or with its own
//! clock if none has.
//!
//! If most clocks are wrong together, they are followed: the majority decides. A single node follows its own clock.
//!
//! # The bound
//!
//! While a majority answers, the time of a record is at most [`protocol::CLOCK_BOUND_MS`] ahead of what a majority of
//! clocks shows. An answer whose round trip took more than a second is not used, so a clock is known to within half a
//! second. Where the agreed time would step back by no more than a quarter of a second, it stands still instead, and so
//! does the time of records that follow those of an earlier leader: that is the rest of the second.

use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use crate::messages::envelope::Envelope;
use info::report;
use protocol::planted::{Fault, Planted};
use protocol::{CLOCK_BOUND_MS, NodeId, Now, not_before};
use std::collections::BTreeMap;

/// How often each other node is asked.
const ASK_MS: u64 = 1000;
/// The same before a time is agreed on.
const ASK_FIRST_MS: u64 = 100;
/// The longest round trip of an answer that is used: a longer one is too imprecise.
const ROUND_TRIP_MS_MAX: u64 = 1000;
/// The greatest age of an answer that is used.
const ANSWER_MS_MAX: u64 = 10_000;
/// A reading of this node's wall clock may be behind it by so much: reading two clocks takes a moment.
const JITTER_US: u64 = 5_000;

/// What another node's wall clock shows, as microseconds ahead of this node's monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ahead_us: i64,
    at_us: u64,
}

/// One node's view of the time.
#[derive(Debug)]
pub(crate) struct Clock {
    planted: Planted,
    /// How far this node's wall clock is ahead of the monotonic one, in microseconds.
    own_us: i64,
    /// The same for the agreed time. `None`: there is none yet.
    agreed_us: Option<i64>,
    /// The same for the time that another node had agreed on, as it last reported.
    answered_us: Option<i64>,
    readings: BTreeMap<NodeId, Reading>,
    /// The number of nodes.
    nodes: usize,
    /// How many clocks took part when the time was last judged.
    answers: usize,
    asked_us: u64,
    shown_ms: u64,
    is_off: bool,
}

impl Clock {
    /// The clock of one of `nodes` nodes.
    pub(crate) fn new(now: Now, nodes: usize, planted: Planted) -> Clock {
        Clock {
            planted,
            own_us: ahead_us(now),
            agreed_us: None,
            answered_us: None,
            readings: BTreeMap::new(),
            nodes,
            answers: 0,
            asked_us: 0,
            shown_ms: 0,
            is_off: false,
        }
    }

    /// Takes a reading of the clocks, and returns the time to use.
    pub(crate) fn read(&mut self, now: Now) -> Now {
        // The faults that are planted on wall clocks need a clock that jumps.
        if self.planted.has(Fault::ClockUnbounded) || self.planted.has(Fault::LeaseOnWallClock) {
            return now;
        }
        let own_us = ahead_us(now);
        // A reading is cut to milliseconds, and the monotonic clock is read a moment later. So none is ahead of the wall clock,
        // and the greatest is nearest to it.
        if own_us > self.own_us || own_us.abs_diff(self.own_us) >= JITTER_US {
            self.own_us = own_us;
            self.agree(now.monotonic_us);
        }
        self.advance(now)
    }

    /// Returns the time to use, by the monotonic clock.
    #[inline]
    pub(crate) fn advance(&mut self, now: Now) -> Now {
        if self.planted.has(Fault::ClockUnbounded) || self.planted.has(Fault::LeaseOnWallClock) {
            return now;
        }
        let unix_ms = now.monotonic_us.saturating_add_signed(self.ahead_us()) / 1000;
        self.shown_ms = not_before(unix_ms, self.shown_ms);
        Now { unix_ms: self.shown_ms, ..now }
    }

    /// How far the time to use is ahead of the monotonic clock, in microseconds.
    pub(crate) fn ahead_us(&self) -> i64 {
        self.agreed_us.unwrap_or(self.own_us)
    }

    /// What this node's wall clock shows, and the agreed time, or 0. In milliseconds.
    fn readings(&self, now_us: u64) -> (u64, u64) {
        let show = |ahead_us: i64| now_us.saturating_add_signed(ahead_us) / 1000;
        (show(self.own_us), self.agreed_us.map_or(0, show))
    }

    /// Takes another node's answer to a question.
    fn answered(&mut self, from: NodeId, asked_us: u64, (own_ms, agreed_ms): (u64, u64), now_us: u64) {
        let Some(took_us) = now_us.checked_sub(asked_us).filter(|us| *us <= ROUND_TRIP_MS_MAX * 1000) else {
            return;
        };
        // The other clock was read between the two. It is cut to milliseconds, which loses half of one on average.
        let earliest = |unix_ms| ahead_us(Now { unix_ms, monotonic_us: now_us });
        let middle = |unix_ms| earliest(unix_ms).saturating_add_unsigned(took_us / 2 + 500);
        let earliest_us = earliest(own_ms);
        let latest_us = earliest_us.saturating_add_unsigned(took_us + 1000);
        // The known distance is kept as far as the answer allows, so that the time does not follow every round trip.
        let ahead_us = match self.readings.get(&from) {
            Some(known) => known.ahead_us.clamp(earliest_us, latest_us),
            None => middle(own_ms),
        };
        self.readings.insert(from, Reading { ahead_us, at_us: now_us });
        if agreed_ms > 0 {
            self.answered_us = Some(middle(agreed_ms));
        }
        self.agree(now_us);
    }

    /// Derives the agreed time from all known clocks.
    fn agree(&mut self, now_us: u64) {
        self.readings.retain(|_, reading| now_us.saturating_sub(reading.at_us) <= ANSWER_MS_MAX * 1000);
        let mut ahead_us: Vec<i64> = self.readings.values().map(|reading| reading.ahead_us).collect();
        ahead_us.push(self.own_us);
        ahead_us.sort_unstable();
        self.answers = ahead_us.len();
        let majority = self.nodes / 2 + 1;
        if ahead_us.len() < majority {
            return;
        }
        let not_behind = ahead_us[majority - 1];
        let not_ahead = ahead_us[ahead_us.len() - majority];
        let goes_on = self.agreed_us.or(self.answered_us).unwrap_or(self.own_us);
        self.agreed_us = Some(goes_on.clamp(not_behind.min(not_ahead), not_behind.max(not_ahead)));
    }

    /// How this machine's wall clock compares with the other nodes'.
    pub(crate) fn report(&self) -> report::Clock {
        let ahead_ms = self.own_us.saturating_sub(self.agreed_us.unwrap_or(self.own_us)) / 1000;
        report::Clock { off: self.is_off, ahead_ms }
    }

    /// The number of known wall clocks, including this node's.
    pub(crate) fn known(&self) -> usize {
        self.answers
    }

    /// Whether the known clocks are a majority of all nodes' clocks.
    pub(crate) fn is_agreed(&self) -> bool {
        self.answers > self.nodes / 2
    }

    /// The line to log when this node's wall clock is newly off, or newly right.
    fn look(&mut self) -> Option<Line> {
        let ahead_ms = self.report().ahead_ms;
        let off_ms = ahead_ms.unsigned_abs();
        let was_off = self.is_off;
        self.is_off = off_ms > if was_off { CLOCK_BOUND_MS / 2 } else { CLOCK_BOUND_MS };
        let (is_ahead, seconds) = (ahead_ms > 0, off_ms as f64 / 1000.0);
        match (was_off, self.is_off) {
            (false, true) => {
                let how = if is_ahead { "ahead of" } else { "behind" };
                let text = format!(
                    "this machine's wall clock is {seconds:.1} s {how} what most nodes' clocks show; expiry goes by theirs. \
                     Set the clock right, and keep it so (NTP)"
                );
                Some(Line { level: Level::Warning, text })
            }
            (true, false) => {
                let text = "this machine's wall clock agrees with most nodes' clocks again".into();
                Some(Line { level: Level::Info, text })
            }
            _ => None,
        }
    }
}

fn ahead_us(now: Now) -> i64 {
    i64::try_from(now.unix_ms.saturating_mul(1000))
        .unwrap_or(i64::MAX)
        .saturating_sub_unsigned(now.monotonic_us)
}

impl Clock {
    /// Follows a change of the nodes in the map.
    pub(crate) fn follow_map(&mut self, cx: &mut Context) {
        self.nodes = cx.map.nodes.len().max(1);
        let nodes = &cx.map.nodes;
        self.readings.retain(|id, _| nodes.contains_key(id));
        self.agree(cx.now.monotonic_us);
    }

    /// Asks the other nodes when it is time, and logs whether this node's clock is off.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        let every_ms = if self.agreed_us.is_some() { ASK_MS } else { ASK_FIRST_MS };
        if cx.now.ms_since(self.asked_us) >= every_ms {
            self.asked_us = now_us;
            self.agree(now_us);
            cx.peers.ids().for_each(|id| ask(cx, id));
        }
        cx.log.extend(self.look());
    }

    /// Answers another node's request for this node's wall clock.
    pub(crate) fn asked(&mut self, cx: &mut Context, from: NodeId, asked_us: u64) {
        let (own_ms, agreed_ms) = self.readings(cx.now.monotonic_us);
        send(cx, from, &Envelope::ClockAnswer { asked_us, own_ms, agreed_ms });
    }

    pub(crate) fn take_answer(&mut self, cx: &mut Context, from: NodeId, asked_us: u64, answer: (u64, u64)) {
        if cx.map.nodes.contains_key(&from) {
            self.answered(from, asked_us, answer, cx.now.monotonic_us);
        }
    }
}

/// Asks another node for its wall clock.
pub(crate) fn ask(cx: &mut Context, peer: NodeId) {
    send(cx, peer, &Envelope::ClockAsked { asked_us: cx.now.monotonic_us });
}

fn send(cx: &mut Context, to: NodeId, envelope: &Envelope<'_>) {
    let peer = &mut cx.peers[to];
    if peer.is_up() {
        peer.send_urgently(envelope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    const START_MS: u64 = 1_700_000_000_000;

    fn at(us: u64, unix_ms: u64) -> Now {
        Now { monotonic_us: us, unix_ms }
    }

    /// A clock of three nodes, the other two of which show the right time.
    fn of_three(own_ahead_ms: u64) -> Clock {
        let mut clock = Clock::new(at(1000, START_MS + own_ahead_ms), 3, Planted::default());
        for peer in [2, 3] {
            clock.answered(peer, 1000, (START_MS + 1, 0), 3000);
        }
        clock
    }

    fn shows(clock: &mut Clock, us: u64, own_ms: u64) -> u64 {
        clock.read(at(us, own_ms)).unix_ms
    }

    #[test]
    fn one_clock_of_three_that_jumps_is_not_followed_and_is_reported() {
        let mut clock = of_three(0);
        assert!(shows(&mut clock, 1_001_000, START_MS + 1000).abs_diff(START_MS + 1000) < 5);
        assert_eq!(clock.look(), None);
        let shown = shows(&mut clock, 2_001_000, START_MS + 2000 + DAY_MS);
        assert!(shown.abs_diff(START_MS + 2000) < 5, "{shown}");
        assert_eq!(clock.look().map(|line| line.level), Some(Level::Warning));
        assert_eq!(clock.look(), None, "once");
        assert!(clock.report().off && clock.report().ahead_ms.abs_diff(DAY_MS as i64) < 5);
        assert!(shows(&mut clock, 3_001_000, START_MS + 3000).abs_diff(START_MS + 3000) < 5);
        assert_eq!(clock.look().map(|line| line.level), Some(Level::Info));
        assert!(!clock.report().off);
    }

    #[test]
    fn a_node_that_starts_with_a_wrong_clock_follows_the_others() {
        for ahead_ms in [DAY_MS, 0] {
            let mut clock = of_three(ahead_ms);
            let shown = shows(&mut clock, 4000, START_MS + ahead_ms + 3);
            assert!(shown.abs_diff(START_MS + 3) < 5, "{shown}");
        }
    }

    #[test]
    fn the_majority_of_clocks_is_followed_even_if_it_is_wrong() {
        let mut clock = of_three(0);
        for jump_ms in [DAY_MS, 3 * DAY_MS, 0] {
            for peer in [2, 3] {
                clock.answered(peer, 1_001_000, (START_MS + 1000 + jump_ms, 0), 1_003_000);
            }
            let shown = shows(&mut clock, 1_003_000, START_MS + 1002);
            assert!(shown.abs_diff(START_MS + 1002 + jump_ms) < 5, "{jump_ms}: {shown}");
        }
    }

    #[test]
    fn if_two_clocks_disagree_the_previously_agreed_time_goes_on() {
        let mut clock = of_three(0);
        // Node 3 is silent for so long that its answer no longer counts.
        clock.answered(2, 11_001_000, (START_MS + 11_000 + DAY_MS, 0), 11_003_000);
        let shown = shows(&mut clock, 11_004_000, START_MS + 11_003);
        assert_eq!(clock.known(), 2);
        assert!(shown.abs_diff(START_MS + 11_003) < 5, "{shown}");
        // A node that starts then begins with the agreed time.
        let mut other = Clock::new(at(1000, START_MS + DAY_MS), 3, Planted::default());
        other.answered(1, 1000, (START_MS + 1, START_MS + 1), 3000);
        assert!(shows(&mut other, 4000, START_MS + DAY_MS + 3).abs_diff(START_MS + 3) < 5);
    }

    #[test]
    fn a_node_without_answers_in_a_larger_cluster_follows_its_monotonic_clock() {
        let mut clock = of_three(0);
        clock.agree(60_000_000);
        assert_eq!((clock.known(), clock.is_agreed()), (1, false));
        let shown = shows(&mut clock, 60_001_000, START_MS + 60_000 + DAY_MS);
        assert!(shown.abs_diff(START_MS + 60_000) < 5, "{shown}");
    }

    #[test]
    fn a_single_node_follows_its_clock() {
        let mut clock = Clock::new(at(1000, START_MS), 1, Planted::default());
        for unix_ms in [START_MS, START_MS + DAY_MS, START_MS] {
            assert!(shows(&mut clock, 2000, unix_ms).abs_diff(unix_ms) < 5);
        }
    }

    #[test]
    fn the_time_is_not_behind_the_clock_by_what_readings_lack() {
        // The wall clock is 700 us into a millisecond when the monotonic one is at 0.
        let wall_ms = |us: u64| START_MS + (us + 700) / 1000;
        let mut clock = Clock::new(at(0, wall_ms(0)), 1, Planted::default());
        for us in (0..20_000).step_by(10) {
            clock.read(at(us, wall_ms(us)));
        }
        for us in (20_000..30_000).step_by(100) {
            assert_eq!(clock.advance(at(us, 0)).unix_ms, wall_ms(us), "at {us} us");
        }
        assert_eq!(clock.ahead_us(), START_MS as i64 * 1000 + 700);
    }

    #[test]
    fn the_time_stands_still_rather_than_going_back_a_little() {
        let mut clock = Clock::new(at(1000, START_MS), 1, Planted::default());
        assert_eq!(shows(&mut clock, 2000, START_MS + 200), START_MS + 200);
        assert_eq!(shows(&mut clock, 3000, START_MS + 100), START_MS + 200);
        assert_eq!(shows(&mut clock, 3000, START_MS + 300), START_MS + 300);
    }

    #[test]
    fn answers_that_no_clock_gives_are_harmless() {
        let mut clock = of_three(0);
        clock.answered(2, 5000, (u64::MAX, u64::MAX), 6000);
        clock.answered(3, 9000, (0, 0), 8000);
        clock.answered(3, 5000, (0, 0), 6000);
        let shown = shows(&mut clock, 7000, START_MS + 6);
        assert!(shown.abs_diff(START_MS + 6) < 5, "the median is the own clock: {shown}");
    }

    #[test]
    fn answers_that_took_too_long_are_not_used() {
        let mut clock = Clock::new(at(1000, START_MS + DAY_MS), 3, Planted::default());
        clock.answered(2, 1000, (START_MS, 0), 1000 + ROUND_TRIP_MS_MAX * 1000 + 1);
        assert_eq!(clock.readings.len(), 0);
    }
}
