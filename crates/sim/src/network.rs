//! Connections between nodes, and how long messages over them take.
//!
//! Each pair of nodes has one connection. While it is up, messages between replicas may each be lost, duplicated,
//! delayed or reordered; the protocols must tolerate that. Forwarded requests and their outcomes arrive in order or,
//! when the connection breaks, not at all. When a way is blocked, they wait at its beginning, as in a TCP connection
//! that keeps retransmitting, until the way is free or the connection breaks.
//!
//! There may be a second connection beside it for urgent messages: nothing on it waits for what is on the first.

use crate::buffers::Buffers;
use crate::events::{Event, Place, Queue};
use crate::faults::{Class, Counts};
use crate::random::Random;
use crate::scenario::{NetworkFaults, Scenario, stream};

/// The way from one node to another.
#[derive(Debug)]
pub(crate) struct Link {
    random: Random,
    /// When the last message left, and how long it took.
    last_latency: (u64, u64),
    /// When the last frame that keeps its order arrives.
    last_arrival: u64,
    /// The same for the urgent connection.
    last_urgent: u64,
    /// Frames that must arrive in order, with the connection over which they were sent.
    stalled: Vec<(u32, u32)>,
    /// How many faults block this way.
    blocked: u16,
    slow_us: u64,
    /// Unread bytes sent over the newest first connection, whose number comes first.
    unread: usize,
    generation: u32,
    /// Whether the sender has more to send, for which there was no room.
    is_starved: bool,
}

/// A connection between two nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pair {
    /// The newest connection's number.
    pub(crate) generation: u32,
    /// The newest attempt to connect; earlier ones have been given up.
    pub(crate) attempt: u32,
    /// The connection that each end believes to be up; the lower node first.
    ends: [Option<u32>; 2],
}

/// All ways and connections.
#[derive(Debug)]
pub(crate) struct Network {
    nodes: Place,
    links: Vec<Link>,
    pairs: Vec<Pair>,
    latency_us: u64,
    jitter_us: u64,
    /// Whether the messages of one write may arrive apart.
    splits_writes: bool,
    network_faults: NetworkFaults,
    delay_us: u64,
    hold_ups: u32,
    hold_up_us: u64,
    /// A way accepts more while fewer unread bytes than this are on it.
    pub(crate) room: usize,
    /// Whether messages may arrive after their connection has ended.
    pub(crate) stale_deliveries: bool,
    /// The number of storms in progress.
    pub(crate) storms: u16,
}

/// The lower bounds that a storm sets for the faults of the network.
const STORM: NetworkFaults =
    NetworkFaults { loss: 300_000, duplication: 100_000, reordering: 300_000, delay: 100_000 };

/// A frame to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) generation: u32,
    pub(crate) buffer: u32,
    /// Whether it must arrive in order: it is not a message between replicas.
    pub(crate) keeps_order: bool,
    /// Whether it goes over the second connection.
    pub(crate) is_urgent: bool,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Network {
        let ways = usize::from(scenario.nodes) * usize::from(scenario.nodes);
        let link = |way| Link {
            random: Random::new(scenario.seed, stream::LINKS + way as u64),
            last_latency: (u64::MAX, 0),
            last_arrival: 0,
            last_urgent: 0,
            stalled: Vec::new(),
            blocked: 0,
            slow_us: 0,
            unread: 0,
            generation: 0,
            is_starved: false,
        };
        Network {
            nodes: scenario.nodes,
            links: (0..ways).map(link).collect(),
            pairs: vec![Pair::default(); ways],
            latency_us: scenario.latency_us,
            jitter_us: scenario.jitter_us,
            splits_writes: scenario.splits_writes,
            network_faults: scenario.network_faults,
            delay_us: scenario.delay_us,
            hold_ups: scenario.hold_ups,
            hold_up_us: scenario.hold_up_us,
            room: scenario.peer_room,
            stale_deliveries: scenario.stale_deliveries,
            storms: 0,
        }
    }

    #[inline]
    pub(crate) fn link(&mut self, from: Place, to: Place) -> &mut Link {
        &mut self.links[usize::from(from) * usize::from(self.nodes) + usize::from(to)]
    }

    #[inline]
    pub(crate) fn pair(&mut self, one: Place, other: Place) -> &mut Pair {
        let (low, high) = (one.min(other), one.max(other));
        &mut self.pairs[usize::from(low) * usize::from(self.nodes) + usize::from(high)]
    }

    /// The connection that a node believes to be up.
    #[inline]
    pub(crate) fn end(&mut self, at: Place, peer: Place) -> &mut Option<u32> {
        &mut self.pair(at, peer).ends[usize::from(at > peer)]
    }

    pub(crate) fn is_open(&mut self, one: Place, other: Place) -> bool {
        self.link(one, other).blocked == 0 && self.link(other, one).blocked == 0
    }

    /// Whether both ends believe the same connection to be up.
    pub(crate) fn is_connected(&mut self, one: Place, other: Place) -> bool {
        let [low, high] = self.pair(one, other).ends;
        low.is_some() && low == high
    }

    /// Draws how long a message takes that leaves at a given time. Those of one write take the same time, unless writes are split.
    #[inline]
    pub(crate) fn latency(&mut self, at: u64, from: Place, to: Place) -> u64 {
        let (latency_us, jitter_us, splits_writes) = (self.latency_us, self.jitter_us, self.splits_writes);
        let link = self.link(from, to);
        if splits_writes || link.last_latency.0 != at {
            link.last_latency = (at, latency_us + link.slow_us + link.random.below(jitter_us + 1));
        }
        link.last_latency.1
    }

    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.room < usize::MAX
    }

    /// Whether the first connection accepts more.
    #[inline]
    pub(crate) fn has_room(&mut self, from: Place, to: Place) -> bool {
        let room = self.room;
        let link = self.link(from, to);
        link.is_starved = link.unread >= room;
        !link.is_starved
    }

    /// Counts `bytes` sent over a connection as read or lost. Returns true if the sender was waiting for that.
    pub(crate) fn read(&mut self, from: Place, to: Place, generation: u32, bytes: usize) -> bool {
        let room = self.room;
        let link = self.link(from, to);
        if link.generation != generation {
            return false;
        }
        link.unread = link.unread.saturating_sub(bytes);
        link.unread < room && std::mem::take(&mut link.is_starved)
    }

    /// Empties a way for a new connection.
    pub(crate) fn empty(&mut self, from: Place, to: Place, generation: u32) {
        let link = self.link(from, to);
        (link.unread, link.is_starved, link.generation) = (0, false, generation);
    }

    /// Ends all faults for good.
    pub(crate) fn heal(&mut self) {
        self.network_faults = NetworkFaults::default();
        self.hold_ups = 0;
        self.storms = 0;
        self.room = usize::MAX;
        for link in &mut self.links {
            (link.blocked, link.slow_us) = (0, 0);
        }
    }

    /// Sends a frame that leaves at a given time. Returns whether it is on its way.
    #[inline]
    pub(crate) fn send(
        &mut self,
        at: u64,
        frame: Outgoing,
        buffers: &mut Buffers,
        queue: &mut Queue,
        counts: &mut Counts,
    ) -> bool {
        let Outgoing { from, to, buffer, is_urgent, .. } = frame;
        let bytes = if is_urgent { 0 } else { buffers.get(buffer).len() };
        self.link(from, to).unread += bytes;
        if !is_urgent && self.is_held_up(from, to, at) {
            counts.add(Class::HoldUp);
        }
        if frame.keeps_order {
            self.send_in_order(at, frame, queue);
            return true;
        }
        let network_faults = self.network_faults_now();
        let (latency_us, delay_us) = (self.latency(at, from, to), self.delay_us);
        let link = self.link(from, to);
        if link.blocked > 0 || link.random.per_million(network_faults.loss) {
            counts.add(Class::Loss);
            link.unread = link.unread.saturating_sub(bytes);
            buffers.release(buffer);
            return false;
        }
        let mut arrival = at + latency_us;
        if link.random.per_million(network_faults.delay) {
            counts.add(Class::Delay);
            arrival += link.random.below(delay_us + 1);
        } else if link.random.per_million(network_faults.reordering) {
            counts.add(Class::Reordering);
            arrival += link.random.below(2 * latency_us);
        } else {
            let last = if is_urgent { &mut link.last_urgent } else { &mut link.last_arrival };
            arrival = arrival.max(*last);
            *last = arrival;
        }
        if is_urgent && arrival < link.last_arrival {
            counts.add(Class::Overtaking);
        }
        let copied = link.random.per_million(network_faults.duplication);
        let late = if copied { link.random.below(4 * latency_us) } else { 0 };
        push(queue, arrival, frame);
        if copied {
            counts.add(Class::Duplication);
            push(queue, arrival + late, Outgoing { buffer: buffers.duplicate(buffer), ..frame });
        }
        true
    }

    /// Decides whether nothing arrives on a way for a while, from this frame on. Returns the decision.
    fn is_held_up(&mut self, from: Place, to: Place, at: u64) -> bool {
        let (hold_ups, hold_up_us) = (self.hold_ups, self.hold_up_us);
        let link = self.link(from, to);
        let is_held_up = hold_ups > 0 && link.random.per_million(hold_ups);
        if is_held_up {
            link.last_arrival = link.last_arrival.max(at + link.random.below(hold_up_us + 1));
        }
        is_held_up
    }

    fn send_in_order(&mut self, at: u64, frame: Outgoing, queue: &mut Queue) {
        let Outgoing { from, to, generation, buffer, .. } = frame;
        let latency_us = self.latency(at, from, to);
        let link = self.link(from, to);
        if link.blocked > 0 || !link.stalled.is_empty() {
            link.stalled.push((generation, buffer));
        } else {
            link.last_arrival = link.last_arrival.max(at + latency_us);
            push(queue, link.last_arrival, frame);
        }
    }

    fn network_faults_now(&self) -> NetworkFaults {
        if self.storms == 0 {
            return self.network_faults;
        }
        let NetworkFaults { loss, duplication, reordering, delay } = self.network_faults;
        NetworkFaults {
            loss: loss.max(STORM.loss),
            duplication: duplication.max(STORM.duplication),
            reordering: reordering.max(STORM.reordering),
            delay: delay.max(STORM.delay),
        }
    }

    /// Sends what waited at the beginning of a way.
    pub(crate) fn release_stalled(&mut self, now: u64, from: Place, to: Place, queue: &mut Queue) {
        for (generation, buffer) in std::mem::take(&mut self.link(from, to).stalled) {
            self.send_in_order(
                now,
                Outgoing { from, to, generation, buffer, keeps_order: true, is_urgent: false },
                queue,
            );
        }
    }

    /// Drops what waited at the beginning of a way, with its connection.
    pub(crate) fn drop_stalled(&mut self, from: Place, to: Place, buffers: &mut Buffers) {
        let stalled = std::mem::take(&mut self.link(from, to).stalled);
        stalled.into_iter().for_each(|(_, buffer)| buffers.release(buffer));
    }

    /// Makes frames that keep their order arrive no earlier than `time`.
    pub(crate) fn hold_until(&mut self, from: Place, to: Place, time: u64) {
        let link = self.link(from, to);
        link.last_arrival = link.last_arrival.max(time);
    }
}

fn push(queue: &mut Queue, time: u64, frame: Outgoing) {
    let Outgoing { from, to, generation, buffer, is_urgent, .. } = frame;
    queue.push(time, Event::Frame { from, to, is_urgent, generation, buffer });
}

impl Link {
    pub(crate) fn block(&mut self) {
        self.blocked += 1;
    }

    /// Ends one fault that blocked the way. Everything may have healed since it began.
    pub(crate) fn unblock(&mut self) {
        self.blocked = self.blocked.saturating_sub(1);
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked > 0
    }

    pub(crate) fn slow_down(&mut self, by_us: u64) {
        self.slow_us += by_us;
    }

    pub(crate) fn speed_up(&mut self, by_us: u64) {
        self.slow_us = self.slow_us.saturating_sub(by_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Settings;

    /// Returns when two messages arrive that leave in one write, and one that leaves later, in each of some scenarios.
    fn arrivals(splits_writes: bool) -> Vec<[u64; 3]> {
        let arrivals_in = |seed| {
            let mut scenario = Scenario::draw(seed, &Settings::default());
            (scenario.latency_us, scenario.jitter_us, scenario.splits_writes) = (1_000, 500, splits_writes);
            let mut network = Network::new(&scenario);
            [10_000, 10_000, 20_000].map(|at| at + network.latency(at, 0, 1))
        };
        (0..20).map(arrivals_in).collect()
    }

    #[test]
    fn messages_of_one_write_arrive_together_unless_writes_are_split() {
        assert!(arrivals(false).iter().all(|[first, second, _]| first == second));
        assert!(arrivals(true).iter().any(|[first, second, _]| first != second));
        for [first, _, later] in arrivals(false) {
            assert!((11_000..=11_500).contains(&first) && (21_000..=21_500).contains(&later));
        }
        let differs = |[first, _, later]: &[u64; 3]| first + 10_000 != *later;
        assert!(arrivals(false).iter().any(differs), "each write takes a time of its own");
    }
}
