//! What a coordinator learns about its network and its machine from the values that it disperses.
//!
//! The time from the first piece of a fragment until the peer keeps it is a round trip, a sync, and the transfer time
//! of its bytes. The round trip is measured separately, by an empty message that is sent periodically. The sync takes
//! about as long as this node's own, whose fragment has no network to cross. (The shortest of a few counts: the
//! additional time of a busy disk and long fragments also applies to a value in the log. Whole copies are not
//! counted.) The rest is the transfer time, including all that was queued before those bytes. So the figure is the
//! bandwidth that the next value will get under the present load, rather than the capacity of the wire.
//!
//! Where the fixed part is most of the time, the rest shows that the link is fast, but not how fast: such a
//! measurement can raise an estimate and never lower it. The median of the last three counts: one sync that hung
//! changes nothing, and two values are enough to see that a link has become slow. A peer that has not answered yet is
//! no faster than the time so far allows, so that a link that has almost stopped is noticed before the peer answers.

use info::facts::PeerFacts;
use kv::ValueId;
use protocol::NodeId;
use std::collections::BTreeMap;

/// The assumed bandwidth of a link of which nothing is known yet: a gigabit, in bytes per second.
pub(super) const BANDWIDTH_DEFAULT: f64 = 125e6;

/// The assumed round trip while none was measured.
const ROUND_TRIP_DEFAULT_US: f64 = 1000.0;

/// The assumed time to make a fragment durable, where this node keeps none.
const KEEP_DEFAULT_US: f64 = 1000.0;

/// An older measurement no longer describes the present.
const FRESH_US: u64 = 10_000_000;

/// A node that has not answered for this long never will: its replica does not work, or did not get the message.
const ANSWER_US: u64 = 60_000_000;

/// The most values whose answers are awaited.
const UNDER_WAY_MAX: usize = 256;

/// Repeated doubts within this time have no effect.
const DOUBT_US: u64 = 1_000_000;

/// How many measurements of a bandwidth count.
const RATES: usize = 3;

/// How many measurements of the disk and of the group count.
const TIMES: usize = 9;

/// The shortest of this many round trips counts: the others have waited behind something, on a slow network for long.
const ROUND_TRIPS: usize = 60;

/// The last few measurements of something, the newest at the end.
#[derive(Clone, Debug, Default)]
struct Recent {
    values: Vec<f64>,
    /// When the newest was made; None if they no longer hold.
    newest_us: Option<u64>,
}

impl Recent {
    fn note(&mut self, value: f64, count_max: usize, now_us: u64) {
        if self.values.len() >= count_max {
            self.values.remove(0);
        }
        self.values.push(value);
        self.newest_us = Some(now_us);
    }

    /// The median, the greater of the two in the middle. None if there are no measurements.
    fn median(&self) -> Option<f64> {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    fn least(&self) -> Option<f64> {
        self.values.iter().copied().min_by(f64::total_cmp)
    }

    fn is_within(&self, age_us: u64, now_us: u64) -> bool {
        self.newest_us.is_some_and(|at_us| now_us.saturating_sub(at_us) < age_us)
    }
}

/// A rate, as far as it is known.
#[derive(Clone, Debug, Default)]
struct Rate(Recent);

impl Rate {
    /// Notes that `bytes` took `took_us`, of which `fixed_us` had nothing to do with their number.
    fn note(&mut self, bytes: usize, took_us: f64, fixed_us: f64, now_us: u64) {
        let took_us = took_us.max(1.0);
        // Old measurements do not outweigh new ones.
        if !self.0.is_within(FRESH_US, now_us) {
            self.0.values.clear();
        }
        let is_clear = took_us >= 2.0 * fixed_us;
        // A tiny remainder measures nothing.
        let rate = bytes as f64 / (took_us - fixed_us).max(took_us / 8.0) * 1e6;
        if is_clear || self.0.median().is_none_or(|known| rate > known) {
            self.0.note(rate, RATES, now_us);
        }
        // Otherwise the known rate is confirmed.
        self.0.newest_us = Some(now_us);
    }

    /// Notes that `bytes` were sent within `took_us`, and may not have arrived: the rate is no higher than that.
    fn note_at_most(&mut self, bytes: usize, took_us: f64, fixed_us: f64, now_us: u64) {
        let rate = bytes as f64 / (took_us - fixed_us).max(1.0) * 1e6;
        if took_us >= 2.0 * fixed_us && rate < self.bytes_per_second().unwrap_or(BANDWIDTH_DEFAULT) {
            self.note(bytes, took_us, fixed_us, now_us);
        }
    }

    fn bytes_per_second(&self) -> Option<f64> {
        self.0.median()
    }
}

/// What is known of another node.
#[derive(Clone, Debug, Default)]
struct PeerEstimates {
    rate: Rate,
    round_trips_us: Recent,
}

/// A node that has not answered yet.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    node: NodeId,
    /// When the first piece was sent to this node. Others may have got theirs earlier, or the link had other bytes to
    /// carry first.
    since_us: Option<u64>,
}

/// A value whose fragments are being sent.
#[derive(Debug)]
struct UnderWay {
    begun_us: u64,
    /// When the first piece was sent to any other node.
    since_us: Option<u64>,
    fragment_bytes: usize,
    /// Whether each fragment is a whole copy.
    is_whole: bool,
    awaited: Vec<Awaited>,
    /// The bytes that the nodes which have answered keep.
    kept_bytes: usize,
    /// The highest rate so far of all nodes together: bytes, their time, and the fixed part of it.
    fastest: Option<(usize, f64, f64)>,
    /// Whether the uplink's rate was already noted from this value.
    is_measured: bool,
}

/// What a node has measured.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    peers: BTreeMap<NodeId, PeerEstimates>,
    uplink: Rate,
    /// How long it took to make this node's own fragments durable.
    keeps_us: Recent,
    /// How long it took to have small commands ordered.
    orders_us: Recent,
    /// How long cutting took, in microseconds for each byte of a value; the shortest counts.
    encode_us_per_byte: Recent,
    under_way: BTreeMap<ValueId, UnderWay>,
    doubted_us: Option<u64>,
}

impl Estimates {
    /// Notes that fragments of a value will be sent to these nodes.
    pub(super) fn begun(
        &mut self,
        id: ValueId,
        (fragment_bytes, is_whole): (usize, bool),
        to: Vec<NodeId>,
        now_us: u64,
    ) {
        if self.under_way.len() >= UNDER_WAY_MAX {
            self.under_way.pop_first();
        }
        let under_way = UnderWay {
            begun_us: now_us,
            since_us: None,
            fragment_bytes,
            is_whole,
            awaited: to.into_iter().map(|node| Awaited { node, since_us: None }).collect(),
            kept_bytes: 0,
            fastest: None,
            is_measured: false,
        };
        self.under_way.insert(id, under_way);
    }

    /// Notes that a node's first piece is sent; `own` is this node.
    pub(super) fn leaves(&mut self, to: NodeId, id: ValueId, own: NodeId, now_us: u64) {
        let Some(value) = self.under_way.get_mut(&id) else { return };
        let Some(awaited) = value.awaited.iter_mut().find(|awaited| awaited.node == to) else { return };
        awaited.since_us.get_or_insert(now_us);
        if to != own {
            value.since_us.get_or_insert(now_us);
        }
    }

    /// Notes that a node keeps its fragment; `own` is this node.
    pub(super) fn kept(&mut self, from: NodeId, id: ValueId, own: NodeId, now_us: u64) {
        let fixed_us = self.fixed_us(from);
        let Some(value) = self.under_way.get_mut(&id) else { return };
        let Some(place) = value.awaited.iter().position(|awaited| awaited.node == from) else { return };
        let awaited = value.awaited.swap_remove(place);
        let took_us = |since_us: Option<u64>| since_us.map(|at_us| now_us.saturating_sub(at_us) as f64);
        if from == own {
            if let Some(took_us) = took_us(awaited.since_us).filter(|_| !value.is_whole) {
                self.keeps_us.note(took_us, TIMES, now_us);
            }
        } else if let (Some(took_us), Some(all_us)) = (took_us(awaited.since_us), took_us(value.since_us)) {
            let peer = self.peers.entry(from).or_default();
            peer.rate.note(value.fragment_bytes, took_us, fixed_us, now_us);
            value.kept_bytes += value.fragment_bytes;
            let rate = |(bytes, took_us, _): (usize, f64, f64)| bytes as f64 / took_us.max(1.0);
            let all = (value.kept_bytes, all_us, fixed_us);
            if value.fastest.is_none_or(|fastest| rate(all) > rate(fastest)) {
                value.fastest = Some(all);
            }
        }
        self.end_if_over(id, now_us);
    }

    /// Notes that a node will not answer for this value. `sent_bytes` is the part of its fragment that was sent, or 0
    /// if that shows nothing.
    pub(super) fn given_up(&mut self, from: NodeId, id: ValueId, sent_bytes: usize, now_us: u64) {
        let fixed_us = self.fixed_us(from);
        let Some(value) = self.under_way.get_mut(&id) else { return };
        let Some(place) = value.awaited.iter().position(|awaited| awaited.node == from) else { return };
        if let Some(since_us) = value.awaited.swap_remove(place).since_us.filter(|_| sent_bytes > 0) {
            let took_us = now_us.saturating_sub(since_us) as f64;
            let rate = &mut self.peers.entry(from).or_default().rate;
            rate.note_at_most(sent_bytes, took_us, fixed_us, now_us);
        }
        self.end_if_over(id, now_us);
    }

    /// Notes that a value is ordered, which shows what this node could send. Nodes that have not answered yet are
    /// slow, and show nothing about that.
    pub(super) fn ordered(&mut self, id: ValueId, now_us: u64) {
        let Some(value) = self.under_way.get_mut(&id) else { return };
        if let Some((bytes, took_us, fixed_us)) = value.fastest.filter(|_| !value.is_measured) {
            value.is_measured = true;
            self.uplink.note(bytes, took_us, fixed_us, now_us);
        }
    }

    fn end_if_over(&mut self, id: ValueId, now_us: u64) {
        if self.under_way.get(&id).is_some_and(|value| value.awaited.is_empty()) {
            self.ordered(id, now_us);
            self.under_way.remove(&id);
        }
    }

    /// Forgets a node's measurements, since the link to it is a new one.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.peers.remove(&node);
        self.under_way.retain(|_, value| {
            value.awaited.retain(|awaited| awaited.node != node);
            !value.awaited.is_empty()
        });
    }

    /// Stops waiting for nodes that have not answered for very long.
    pub(super) fn tick(&mut self, now_us: u64) {
        let is_over = |value: &UnderWay| now_us.saturating_sub(value.begun_us) >= ANSWER_US;
        let over: Vec<ValueId> =
            self.under_way.iter().filter(|(_, value)| is_over(value)).map(|(id, _)| *id).collect();
        for id in over {
            let Some(value) = self.under_way.remove(&id) else { continue };
            // Nothing is learned about a node that was sent nothing.
            for awaited in value.awaited.iter().filter(|awaited| awaited.since_us.is_some()) {
                let rate = &mut self.peers.entry(awaited.node).or_default().rate;
                rate.note(value.fragment_bytes, ANSWER_US as f64, 0.0, now_us);
            }
        }
    }

    /// Notes that the measurements of the network no longer hold: the next one outweighs them.
    pub(super) fn doubt(&mut self, now_us: u64) {
        if self.doubted_us.is_some_and(|at_us| now_us.saturating_sub(at_us) < DOUBT_US) {
            return;
        }
        self.doubted_us = Some(now_us);
        let rates = self.peers.values_mut().map(|peer| &mut peer.rate);
        rates.chain([&mut self.uplink]).for_each(|rate| rate.0.newest_us = None);
    }

    /// Notes how long it took to have a small command ordered.
    pub(super) fn took_to_order(&mut self, took_us: u64, now_us: u64) {
        self.orders_us.note(took_us as f64, TIMES, now_us);
    }

    /// Notes that an empty message was answered.
    pub(super) fn answered(&mut self, node: NodeId, took_us: u64, now_us: u64) {
        self.peers.entry(node).or_default().round_trips_us.note(took_us as f64, ROUND_TRIPS, now_us);
    }

    /// Notes that cutting `bytes` of values took `took_us`.
    pub(super) fn encoded(&mut self, bytes: usize, took_us: u64, now_us: u64) {
        // For fewer bytes the clock's resolution would matter.
        const BYTES_MIN: usize = 64 << 10;
        if bytes >= BYTES_MIN {
            self.encode_us_per_byte.note(took_us as f64 / bytes as f64, RATES, now_us);
        }
    }

    // What is known.

    /// The bandwidth to a node, in bytes per second.
    pub(super) fn bandwidth_to(&self, node: NodeId, now_us: u64) -> f64 {
        let known = self.peers.get(&node).and_then(|peer| peer.rate.bytes_per_second());
        let known = known.unwrap_or(BANDWIDTH_DEFAULT);
        let fixed_us = self.fixed_us(node);
        let bounds = self.under_way.values().filter_map(|value| {
            let since_us = value.awaited.iter().find(|awaited| awaited.node == node)?.since_us?;
            let took_us = now_us.saturating_sub(since_us) as f64;
            (took_us >= 2.0 * fixed_us)
                .then(|| value.fragment_bytes as f64 / (took_us - fixed_us).max(1.0) * 1e6)
        });
        bounds.fold(known, f64::min)
    }

    /// The bytes that a node takes in twice the time from sending a piece until the node reports that it keeps it:
    /// with this many under way its link and its disk are never idle.
    pub(super) fn in_turnaround(&self, node: NodeId, now_us: u64) -> f64 {
        self.bandwidth_to(node, now_us) * 2.0 * self.fixed_us(node) / 1e6
    }

    /// The bytes that are under way on the link to a node and back when it is busy.
    pub(super) fn in_round_trip(&self, node: NodeId, now_us: u64) -> f64 {
        self.bandwidth_to(node, now_us) * round_trip_us(self.peers.get(&node)) / 1e6
    }

    /// This node's uplink, in bytes per second.
    pub(super) fn uplink(&self) -> f64 {
        self.uplink.bytes_per_second().unwrap_or(BANDWIDTH_DEFAULT)
    }

    /// Whether the network was measured within `age_us`, and no doubt has come up since.
    pub(super) fn was_measured_within(&self, age_us: u64, now_us: u64) -> bool {
        self.uplink.0.is_within(age_us, now_us)
    }

    /// The time to have a small command ordered, in seconds, as a coordinator sees it. `None`: it was not measured.
    pub(super) fn order(&self) -> Option<f64> {
        Some(self.orders_us.median()? / 1e6)
    }

    /// The round trip to a majority of a group, in seconds; `others` are its members except this node.
    pub(super) fn round_trip(&self, others: &[NodeId]) -> f64 {
        let mut all: Vec<f64> = others.iter().map(|node| round_trip_us(self.peers.get(node))).collect();
        all.sort_by(f64::total_cmp);
        // With this node itself, half of the others are a majority.
        let awaited = others.len().div_ceil(2).saturating_sub(1);
        all.get(awaited).copied().unwrap_or(0.0) / 1e6
    }

    /// The time to make a fragment durable, in seconds.
    pub(super) fn keep(&self) -> f64 {
        self.keep_us() / 1e6
    }

    /// The part of a node's answering time that does not depend on the bytes.
    fn fixed_us(&self, node: NodeId) -> f64 {
        self.keep_us() + round_trip_us(self.peers.get(&node))
    }

    fn keep_us(&self) -> f64 {
        self.keeps_us.least().unwrap_or(KEEP_DEFAULT_US)
    }

    /// The time to cut values, in seconds for each byte of them. `None`: it was not measured.
    pub(super) fn encode(&self) -> Option<f64> {
        Some(self.encode_us_per_byte.least()? / 1e6)
    }

    /// The measurements of each other node, in the order of their numbers.
    pub(super) fn summary(&self) -> Vec<PeerFacts> {
        let summary = |(node, peer): (&NodeId, &PeerEstimates)| PeerFacts {
            node: *node,
            bandwidth: peer.rate.bytes_per_second(),
            round_trip_us: peer.round_trips_us.least(),
        };
        self.peers.iter().map(summary).collect()
    }

    /// This node's uplink, in bytes per second, if it was measured.
    pub(super) fn uplink_summary(&self) -> Option<f64> {
        self.uplink.bytes_per_second()
    }
}

fn round_trip_us(peer: Option<&PeerEstimates>) -> f64 {
    peer.and_then(|peer| peer.round_trips_us.least()).unwrap_or(ROUND_TRIP_DEFAULT_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::Coordinator;

    const OWN: NodeId = 1;
    const MS: u64 = 1000;

    fn id(counter: u64) -> ValueId {
        ValueId { coordinator: Coordinator { node: OWN, life: 7 }, counter }
    }

    /// Sends values one after the other to nodes 1, 2 and 3, each of which answers after a given number of
    /// milliseconds.
    struct Sender {
        estimates: Estimates,
        now_us: u64,
        counter: u64,
    }

    impl Sender {
        fn new() -> Sender {
            let mut estimates = Estimates::default();
            [2, 3].into_iter().for_each(|node| estimates.answered(node, MS, 0));
            Sender { estimates, now_us: 0, counter: 0 }
        }

        fn send(&mut self, bytes: usize, mut answers_ms: Vec<(NodeId, u64)>) {
            self.counter += 1;
            let (id, begun_us) = (id(self.counter), self.now_us);
            let nodes = answers_ms.iter().map(|(node, _)| *node).collect();
            self.begin(id, (bytes, false), nodes);
            answers_ms.sort_by_key(|(_, after_ms)| *after_ms);
            for (node, after_ms) in answers_ms {
                self.now_us = begun_us + after_ms * MS;
                self.estimates.kept(node, id, OWN, self.now_us);
            }
        }

        /// Sends a value's first pieces to these nodes, all at once.
        fn begin(&mut self, id: ValueId, fragments: (usize, bool), to: Vec<NodeId>) {
            self.estimates.begun(id, fragments, to.clone(), self.now_us);
            to.into_iter().for_each(|node| self.estimates.leaves(node, id, OWN, self.now_us));
        }

        fn bandwidth_to(&self, node: NodeId) -> f64 {
            self.estimates.bandwidth_to(node, self.now_us)
        }
    }

    fn is_close(left: f64, right: f64) -> bool {
        (left / right - 1.0).abs() < 1e-6
    }

    #[test]
    fn a_fragments_bytes_over_their_own_time_are_a_links_bandwidth() {
        let mut sender = Sender::new();
        assert_eq!(sender.bandwidth_to(2), BANDWIDTH_DEFAULT);
        assert!(!sender.estimates.was_measured_within(FRESH_US, 0));
        // A sync of 2 ms, a round trip of 1 ms, and 100 or 200 ms for the bytes.
        sender.send(1_000_000, vec![(1, 2), (2, 103), (3, 203)]);
        assert!(is_close(sender.bandwidth_to(2), 10e6));
        assert!(is_close(sender.bandwidth_to(3), 5e6));
        assert!(is_close(sender.estimates.uplink(), 10e6), "{}", sender.estimates.uplink());
        assert!(is_close(sender.estimates.keep(), 2e-3));
        assert!(sender.estimates.was_measured_within(1, sender.now_us));
        assert!(!sender.estimates.was_measured_within(FRESH_US, FRESH_US * 2));
    }

    #[test]
    fn the_uplink_is_what_both_links_carry_at_the_same_time() {
        let mut sender = Sender::new();
        sender.send(1_000_000, vec![(1, 2), (2, 203), (3, 203)]);
        assert!(is_close(sender.bandwidth_to(2), 5e6));
        assert!(is_close(sender.estimates.uplink(), 10e6));
    }

    #[test]
    fn one_hung_measurement_changes_nothing_and_two_do() {
        let mut sender = Sender::new();
        let at = |ms| vec![(1, 2), (2, ms)];
        (0..3).for_each(|_| sender.send(1_000_000, at(103)));
        sender.send(1_000_000, at(2003));
        assert!(is_close(sender.bandwidth_to(2), 10e6));
        sender.send(1_000_000, at(2003));
        assert!(is_close(sender.bandwidth_to(2), 0.5e6));
        (0..2).for_each(|_| sender.send(1_000_000, at(103)));
        assert!(is_close(sender.bandwidth_to(2), 10e6), "a link that is fast again is so soon");
    }

    #[test]
    fn an_old_measurement_does_not_outweigh_a_new_one() {
        let mut sender = Sender::new();
        (0..3).for_each(|_| sender.send(1_000_000, vec![(1, 2), (2, 103)]));
        sender.now_us += FRESH_US;
        sender.send(1_000_000, vec![(1, 2), (2, 2003)]);
        assert!(is_close(sender.bandwidth_to(2), 0.5e6));
    }

    #[test]
    fn a_doubted_measurement_does_not_outweigh_the_next_one() {
        let mut sender = Sender::new();
        (0..3).for_each(|_| sender.send(1_000_000, vec![(1, 2), (2, 103)]));
        sender.estimates.doubt(sender.now_us);
        assert!(!sender.estimates.was_measured_within(FRESH_US, sender.now_us));
        assert!(is_close(sender.bandwidth_to(2), 10e6), "there is nothing better yet");
        sender.send(1_000_000, vec![(1, 2), (2, 2003)]);
        assert!(is_close(sender.bandwidth_to(2), 0.5e6));
    }

    #[test]
    fn whole_copies_do_not_measure_how_long_keeping_a_fragment_takes() {
        let mut sender = Sender::new();
        sender.begin(id(1), (1_000_000, true), vec![1, 2]);
        sender.estimates.kept(OWN, id(1), OWN, 90 * MS);
        assert!(is_close(sender.estimates.keep(), KEEP_DEFAULT_US / 1e6));
        sender.send(1_000, vec![(1, 4)]);
        assert!(is_close(sender.estimates.keep(), 4e-3));
    }

    #[test]
    fn a_sync_that_hung_does_not_make_the_disk_slow() {
        let mut sender = Sender::new();
        (0..4).for_each(|_| sender.send(1_000_000, vec![(1, 2), (2, 103)]));
        sender.send(1_000_000, vec![(1, 2000), (2, 2003)]);
        assert!(is_close(sender.estimates.keep(), 2e-3));
        assert_eq!(sender.estimates.order(), None);
        [3000, 900_000, 3000].into_iter().for_each(|us| sender.estimates.took_to_order(us, 0));
        assert_eq!(sender.estimates.order(), Some(3e-3));
    }

    #[test]
    fn small_fragments_show_that_a_link_is_fast_but_not_that_it_is_slow() {
        let mut sender = Sender::new();
        sender.send(1_000_000, vec![(1, 2), (2, 13)]);
        assert!(is_close(sender.bandwidth_to(2), 100e6));
        // 1 KB in 5 ms, of which 3 are not transfer time.
        (0..5).for_each(|_| sender.send(1_000, vec![(1, 2), (2, 5)]));
        assert!(is_close(sender.bandwidth_to(2), 100e6));
        (0..2).for_each(|_| sender.send(900_000, vec![(1, 2), (2, 4)]));
        assert!(sender.bandwidth_to(2) > 500e6);
    }

    #[test]
    fn a_node_that_has_not_answered_is_no_faster_than_the_time_so_far_allows() {
        let mut sender = Sender::new();
        (0..3).for_each(|_| sender.send(1_000_000, vec![(1, 2), (2, 103)]));
        sender.begin(id(100), (1_000_000, false), vec![2]);
        sender.now_us += 1003 * MS;
        assert!(is_close(sender.bandwidth_to(2), 1e6));
        assert!(is_close(sender.bandwidth_to(3), BANDWIDTH_DEFAULT), "the others owe nothing");
        sender.estimates.kept(2, id(100), OWN, sender.now_us);
        assert!(is_close(sender.bandwidth_to(2), 10e6), "once is not enough");
    }

    #[test]
    fn a_nodes_time_begins_with_its_first_piece() {
        let mut sender = Sender::new();
        let value = id(1);
        sender.estimates.begun(value, (1_000_000, false), vec![1, 2, 3], 0);
        sender.estimates.leaves(OWN, value, OWN, 50 * MS);
        sender.estimates.kept(OWN, value, OWN, 52 * MS);
        // The whole value was digested before; and node 3 got its first piece when node 2 had all of its pieces.
        sender.estimates.leaves(2, value, OWN, 100 * MS);
        sender.estimates.leaves(2, value, OWN, 120 * MS);
        sender.now_us = 150 * MS;
        assert!(is_close(sender.bandwidth_to(3), BANDWIDTH_DEFAULT), "it was sent nothing, and owes nothing");
        sender.estimates.leaves(3, value, OWN, 200 * MS);
        sender.estimates.kept(2, value, OWN, 203 * MS);
        sender.estimates.kept(3, value, OWN, 303 * MS);
        assert!(is_close(sender.estimates.keep(), 2e-3));
        assert!(is_close(sender.bandwidth_to(2), 10e6) && is_close(sender.bandwidth_to(3), 10e6));
        assert!(is_close(sender.estimates.uplink(), 10e6), "one after the other");
    }

    #[test]
    fn a_slow_node_does_not_hide_what_the_others_have_taken() {
        let mut sender = Sender::new();
        let value = id(1);
        sender.begin(value, (1_000_000, false), vec![2, 3]);
        sender.estimates.kept(2, value, OWN, 102 * MS);
        sender.estimates.ordered(value, 104 * MS);
        assert!(is_close(sender.estimates.uplink(), 10e6));
        sender.estimates.kept(3, value, OWN, 5002 * MS);
        assert!(is_close(sender.estimates.uplink(), 10e6) && is_close(sender.bandwidth_to(3), 0.2e6));
    }

    #[test]
    fn a_transfer_that_is_given_up_shows_how_little_was_sent() {
        let mut sender = Sender::new();
        sender.begin(id(1), (10_000_000, false), vec![2, 3]);
        sender.estimates.given_up(2, id(1), 1_000_000, 1002 * MS);
        sender.estimates.given_up(3, id(1), 0, 1002 * MS);
        assert!(is_close(sender.bandwidth_to(2), 1e6));
        assert!(is_close(sender.bandwidth_to(3), BANDWIDTH_DEFAULT), "it was sent nothing");
        assert!(sender.estimates.under_way.is_empty());
        // The first piece was sent just now, and may be anywhere.
        sender.begin(id(2), (10_000_000, false), vec![2]);
        sender.estimates.given_up(2, id(2), 250_000, MS);
        assert!(is_close(sender.bandwidth_to(2), 1e6));
    }

    #[test]
    fn a_node_behind_a_new_link_is_unknown() {
        let mut sender = Sender::new();
        sender.send(1_000_000, vec![(1, 2), (2, 2003)]);
        sender.begin(id(9), (1_000_000, false), vec![2]);
        sender.estimates.forget(2);
        sender.now_us += 5000 * MS;
        assert!(is_close(sender.bandwidth_to(2), BANDWIDTH_DEFAULT));
        assert!(sender.estimates.under_way.is_empty());
    }

    #[test]
    fn silence_ends() {
        let mut sender = Sender::new();
        sender.estimates.begun(id(1), (6_000_000, false), vec![2, 3], 0);
        sender.estimates.leaves(2, id(1), OWN, 0);
        sender.estimates.tick(ANSWER_US - 1);
        assert_eq!(sender.estimates.under_way.len(), 1);
        sender.estimates.tick(ANSWER_US);
        assert!(sender.estimates.under_way.is_empty());
        assert!(is_close(sender.bandwidth_to(2), 100e3));
        assert!(is_close(sender.bandwidth_to(3), BANDWIDTH_DEFAULT), "it was sent nothing");
    }

    #[test]
    fn a_distant_node_has_more_under_way_than_a_near_one() {
        let mut sender = Sender::new();
        sender.send(1_000_000, vec![(1, 2), (2, 103)]);
        // 10 MB/s, a round trip of 1 ms, and 2 ms for the sync.
        assert!(is_close(sender.estimates.in_turnaround(2, sender.now_us), 60e3));
        (0..ROUND_TRIPS).for_each(|_| sender.estimates.answered(2, 50 * MS, 0));
        assert!(is_close(sender.estimates.in_turnaround(2, sender.now_us), 1040e3));
        assert!(is_close(sender.estimates.in_round_trip(2, sender.now_us), 500e3));
    }

    #[test]
    fn the_round_trip_is_that_of_a_majority() {
        let mut estimates = Estimates::default();
        for (node, ms) in [(2, 1), (3, 40), (4, 2), (5, 90)] {
            estimates.answered(node, (ms + 5) * MS, 0);
            estimates.answered(node, ms * MS, 0);
        }
        assert!(is_close(estimates.round_trip(&[2, 3, 4, 5]), 2e-3));
        assert_eq!(estimates.round_trip(&[]), 0.0);
    }

    #[test]
    fn the_shortest_time_of_cutting_counts() {
        let mut estimates = Estimates::default();
        assert_eq!(estimates.encode(), None);
        estimates.encoded(1 << 20, 200, 0);
        estimates.encoded(1 << 20, 100, 0);
        estimates.encoded(100, 100, 0);
        assert!(is_close(estimates.encode().unwrap(), 1e-4 / f64::from(1 << 20)));
    }
}
