//! `coding = "adaptive"`: chooses how a value is stored, by the predicted time of each way.
//!
//! The ways are the log, which carries the value whole to all members, and fragments: 1 to N - F parts, 1 being whole
//! copies that are dispersed beside the log. The prediction is [`coding::cost`], with the network as it was measured
//! ([`super::estimates`]). It covers the write alone: which nodes will read the value, and how often, is not known
//! yet, and a node that reads it twice has it cached.
//!
//! A value shorter than the keyspace's threshold goes into the log, and nothing is measured or computed for it. A
//! longer value for which the log is predicted to be faster goes there, too. Such writes measure nothing of the
//! network, and the next value would be judged by old measurements. Therefore one value is periodically dispersed as
//! whole copies, and so is one after a write that took much longer than predicted ([`super::logged`]). That sends
//! what the log would send and costs one round trip and one sync more, however slow a link is: it waits for no more
//! than a majority. No other way needs to be tried: fragments go to all members whatever their number, so each choice
//! but the log shows what all links carry.

use super::Coding;
use super::estimates::Estimates;
use crate::context::Context;
use coding::cost::{At, Links, Work, disperse_seconds, write_seconds};
use coding::{Layout, data_fragments_max};
use info::facts::ChoiceFacts;
use kv::ValueId;
use protocol::NodeId;
use std::collections::BTreeMap;

/// Longer values never go into the log: records behind them would wait for all their bytes.
const LOG_BYTES_MAX: usize = 1 << 20;

/// The last choice for values of about that length stays until another way is faster by this share.
const ADVANTAGE_MIN: f64 = 0.1;

/// When the network was not measured for this long, a value that would go into the log is dispersed instead.
const TRIAL_US: u64 = 3_000_000;

/// How often a round trip to each other node is measured.
const PROBE_US: u64 = 1_000_000;

/// The assumed bandwidth, in bytes per second, to a node that cannot be reached or does not answer: a write must not
/// have to wait for such a node.
const DEAD: f64 = 1.0;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// Whole, in the log.
    Log,
    /// As fragments, in this many parts.
    Parts(u8),
}

impl std::fmt::Display for Way {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Way::Log => formatter.write_str("log"),
            Way::Parts(parts) => write!(formatter, "k{parts}"),
        }
    }
}

/// The measurements, and the choices made from them.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) estimates: Estimates,
    /// The last choice, by group and the length's number of binary digits.
    last: BTreeMap<(u16, u32), Way>,
    /// How many values were chosen to be stored in each way.
    chosen: BTreeMap<Way, u64>,
    /// When round trips are measured next.
    probe_us: u64,
    /// Bytes of whole values that were cut in this turn.
    encoding_bytes: usize,
    /// The predicted time of the value that was judged last, in seconds.
    predicted: f64,
}

impl Choice {
    /// Returns the fastest way for a value, or the last one if that is nearly as fast. At most `parts_max` members
    /// can be relied on besides those that may fail.
    fn choose(
        &mut self,
        group: u16,
        bytes: usize,
        (at, parts_max): (At, usize),
        links: &Links,
        now_us: u64,
    ) -> Way {
        let usual = Work::default();
        let encode = self.estimates.encode().unwrap_or(usual.encode);
        let round_trips = if at == At::Leader { 1.0 } else { 2.0 };
        let order = self.estimates.order().map(|order| (order - round_trips * links.round_trip).max(0.0));
        let order = order.unwrap_or(usual.order);
        let work = Work { disperse: self.estimates.keep(), encode, order, ..usual };
        let seconds = |way| match way {
            Way::Log if bytes > LOG_BYTES_MAX => None,
            Way::Log => write_seconds(bytes, 1, at, links, &work),
            Way::Parts(parts) => disperse_seconds(bytes, parts.into(), at, links, &work),
        };
        let parts_max = parts_max.min(data_fragments_max(links.peers.len() + 1)).clamp(1, u8::MAX.into());
        let ways = [Way::Log].into_iter().chain((1..=parts_max as u8).map(Way::Parts));
        let predicted: Vec<(Way, f64)> =
            ways.filter_map(|way| Some((way, seconds(way)?))).filter(|(_, it)| it.is_finite()).collect();
        // Of equally fast ways the first, which has the fewest parts.
        let best = predicted.iter().copied().min_by(|left, right| left.1.total_cmp(&right.1));
        let Some((best, best_seconds)) = best else { return Way::Parts(1) };
        let class = (group, usize::BITS - bytes.leading_zeros());
        let last = self.last.get(&class).and_then(|last| predicted.iter().find(|(way, _)| way == last));
        let (chosen, predicted) = match last {
            Some((last, seconds)) if *seconds <= best_seconds * (1.0 + ADVANTAGE_MIN) => (*last, *seconds),
            _ => (best, best_seconds),
        };
        self.predicted = predicted;
        self.last.insert(class, chosen);
        let is_trial = chosen == Way::Log
            && links.peers.len() >= 2
            && !self.estimates.was_measured_within(TRIAL_US, now_us);
        let way = if is_trial { Way::Parts(1) } else { chosen };
        *self.chosen.entry(way).or_default() += 1;
        way
    }

    /// Notes that `bytes` of a value were cut. How long that took is reported at the end of the turn, if it is
    /// measured.
    pub(super) fn cut(&mut self, bytes: usize) {
        self.encoding_bytes += bytes;
    }

    /// A turn begins to cut values. The time of the turn before was not measured.
    pub(super) fn forget_cut(&mut self) {
        self.encoding_bytes = 0;
    }

    pub(super) fn summary(&self) -> ChoiceFacts {
        ChoiceFacts {
            chosen: self.chosen.iter().map(|(way, count)| (way.to_string(), *count)).collect(),
            peers: self.estimates.summary(),
            uplink: self.estimates.uplink_summary(),
            encoding: self.estimates.encode().map(|seconds| 1.0 / seconds.max(1e-12)),
            keep_us: self.estimates.keep() * 1e6,
        }
    }
}

impl Coding {
    /// Returns how a value of `bytes` bytes should be stored in a group, and the predicted time in microseconds.
    pub(super) fn way_for(&mut self, cx: &mut Context, group: u16, bytes: usize) -> (Way, u64) {
        let own = cx.configuration.node;
        let entry = &cx.groups[group];
        let others: Vec<NodeId> = entry.members.iter().copied().filter(|member| *member != own).collect();
        let is_leader = entry.replica.as_ref().is_some_and(|replica| replica.is_leader());
        let now_us = cx.now.monotonic_us;
        let estimates = &self.choice.estimates;
        let bandwidth_to = |node: NodeId| match self.is_counted_on(cx, node) {
            true => estimates.bandwidth_to(node, now_us),
            false => DEAD,
        };
        let mut peers: Vec<f64> = others.iter().map(|node| bandwidth_to(*node)).collect();
        // A coordinator that is not a member keeps no fragment of its own, so one more answer is awaited: the
        // fastest.
        if others.len() == entry.members.len() {
            peers.sort_by(f64::total_cmp);
            peers.pop();
        }
        let uplink = estimates.uplink();
        let links = Links {
            uplink,
            downlink: uplink,
            peers,
            leader: bandwidth_to(cx.coordinator_of(group)),
            round_trip: estimates.round_trip(&others),
        };
        let at = if is_leader { At::Leader } else { At::Another };
        let parts_max = self.parts_for(cx, group, usize::MAX);
        let way = self.choice.choose(group, bytes, (at, parts_max), &links, now_us);
        (way, (self.choice.predicted * 1e6) as u64)
    }

    /// Measures round trips periodically, while no large value is under way: the empty message would wait behind it.
    pub(super) fn probe_round_trips(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        self.choice.estimates.tick(now_us);
        if now_us < self.choice.probe_us || !self.dispersals.is_empty() {
            return;
        }
        self.choice.probe_us = now_us + PROBE_US;
        let own = cx.configuration.node;
        let mut nodes = BTreeMap::new();
        for (id, group) in cx.groups.iter().filter(|(_, group)| group.coding.is_some()) {
            nodes.extend(group.members.iter().filter(|member| **member != own).map(|member| (*member, id)));
        }
        for (node, group) in nodes {
            self.send(cx, group, node, &protocol::coded::Message::Probe { at_us: now_us });
        }
    }

    /// Whether there are values to cut in this turn, so that it is worth measuring how long
    /// [`crate::Node::code_values`] takes.
    pub(crate) fn has_values_to_code(&self) -> bool {
        !self.dispersals.is_empty()
    }

    /// Cuts values and sends their fragments, as far as there is room; otherwise the end of the turn does it. A
    /// caller with a clock reports how long it took ([`crate::Node::coding_took`]).
    pub(crate) fn code_values(&mut self, cx: &mut Context) {
        self.flush(cx);
        self.is_pumped = true;
    }

    /// Reports how long [`crate::Node::code_values`] took, in microseconds.
    pub(crate) fn coding_took(&mut self, cx: &Context, took_us: u64) {
        let bytes = std::mem::take(&mut self.choice.encoding_bytes);
        self.choice.estimates.encoded(bytes, took_us, cx.now.monotonic_us);
        self.traces.encoded(took_us);
    }

    /// Notes that fragments of an attempt will be sent to these nodes.
    pub(super) fn fragments_begun(&mut self, cx: &mut Context, id: ValueId, layout: Layout, to: Vec<NodeId>) {
        let fragments = (layout.fragment_bytes(), layout.parts() == 1);
        self.choice.estimates.begun(id, fragments, to, cx.now.monotonic_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABIT: f64 = 125_000.0;

    /// A network of five in which each node sends `megabits` per second; 1 is the leader.
    fn even(megabits: f64) -> Links {
        Links::even(5, megabits * MEGABIT, 1e-3)
    }

    fn at_leader() -> (At, usize) {
        (At::Leader, 3)
    }

    /// A choice that has just measured the network.
    fn informed() -> Choice {
        let mut choice = Choice::default();
        let id = ValueId { coordinator: kv::Coordinator { node: 1, life: 7 }, counter: 1 };
        choice.estimates.begun(id, (1 << 20, false), vec![2], 0);
        choice.estimates.leaves(2, id, 1, 0);
        choice.estimates.kept(2, id, 1, 100_000);
        choice
    }

    #[test]
    fn large_values_on_a_slow_network_are_cut_and_small_ones_on_a_fast_one_are_not() {
        let mut choice = informed();
        let way = |choice: &mut Choice, bytes, links: &Links| choice.choose(1, bytes, at_leader(), links, 0);
        assert_eq!(way(&mut choice, 1_000_000, &even(10.0)), Way::Parts(3));
        assert_eq!(way(&mut choice, 1_000_000, &even(10_000.0)), Way::Parts(3));
        assert_eq!(way(&mut choice, 20_000, &even(10_000.0)), Way::Log);
        assert_eq!(way(&mut choice, 20_000, &even(1.0)), Way::Parts(3));
        assert_eq!(choice.chosen, [(Way::Log, 1), (Way::Parts(3), 3)].into());
    }

    #[test]
    fn a_slow_link_is_waited_for_only_if_it_must_be() {
        let mut links = even(100.0);
        for (slow, expected) in [(0, Way::Parts(3)), (1, Way::Parts(2)), (2, Way::Log)] {
            links.peers[..slow].fill(MEGABIT / 10.0);
            assert_eq!(informed().choose(1, 600_000, at_leader(), &links, 0), expected, "{slow} are slow");
        }
        // Too long for the log: whole copies beside it also wait only for a majority.
        assert_eq!(informed().choose(1, 5_000_000, at_leader(), &links, 0), Way::Parts(1));
        // At another node than the leader, a value in the log would go to the leader first.
        assert_eq!(informed().choose(1, 600_000, (At::Another, 3), &links, 0), Way::Parts(1));
    }

    #[test]
    fn the_number_of_parts_is_limited_by_the_members_that_can_be_relied_on() {
        for (parts_max, expected) in [(3, 3), (2, 2), (1, 1)] {
            let way = informed().choose(1, 5_000_000, (At::Leader, parts_max), &even(10.0), 0);
            assert_eq!(way, Way::Parts(expected));
        }
        let way = informed().choose(1, 5_000_000, at_leader(), &Links::even(3, MEGABIT, 1e-3), 0);
        assert_eq!(way, Way::Parts(2), "three members bear no more");
        let alone = Links::even(1, MEGABIT, 1e-3);
        assert_eq!(Choice::default().choose(1, 600_000, (At::Leader, 1), &alone, 0), Way::Log);
    }

    #[test]
    fn a_small_advantage_does_not_change_the_choice() {
        // With a slow link, the time of the fragment that crosses it decides. At some speed that is equal to the time
        // of the other way.
        let seconds = |parts, links: &Links| {
            disperse_seconds(600_000, parts, At::Leader, links, &Work::default()).unwrap()
        };
        let with_slow = |megabits: f64| {
            let mut links = even(100.0);
            links.peers[0] = megabits * MEGABIT;
            links
        };
        let speeds = (1..400).map(|step| 10.0 + f64::from(step) * 0.1);
        let meets = speeds.clone().find(|speed| {
            let links = with_slow(*speed);
            seconds(3, &links) < seconds(2, &links)
        });
        let meets = meets.expect("they take as long somewhere");
        let mut choice = informed();
        let mut way = |megabits: f64| choice.choose(1, 600_000, at_leader(), &with_slow(megabits), 0);
        assert_eq!(way(meets * 0.7), Way::Parts(2));
        assert_eq!(way(meets * 1.03), Way::Parts(2), "three parts are faster, a little");
        assert_eq!(way(meets * 1.5), Way::Parts(3));
        assert_eq!(way(meets * 0.97), Way::Parts(3), "two parts are faster, a little");
        assert_eq!(way(meets * 0.7), Way::Parts(2));
    }

    #[test]
    fn a_value_for_the_log_is_sometimes_dispersed_to_measure_the_network() {
        let mut choice = Choice::default();
        let links = even(1000.0);
        assert_eq!(choice.choose(1, 20_000, at_leader(), &links, 0), Way::Parts(1), "nothing is known");
        let mut choice = informed();
        assert_eq!(choice.choose(1, 20_000, at_leader(), &links, 200_000), Way::Log);
        assert_eq!(choice.choose(1, 20_000, at_leader(), &links, 20_000_000), Way::Parts(1), "long ago");
        let mut choice = informed();
        choice.estimates.doubt(200_000);
        assert_eq!(
            choice.choose(1, 20_000, at_leader(), &links, 200_000),
            Way::Parts(1),
            "it was so, but is not"
        );
    }
}
