//! The links and interfaces of a network, and the arrival times of what is sent over them. Time is an input; nothing
//! waits here.
//!
//! Bytes pass a sender's interface, a link and a receiver's interface together, bit by bit, like light through a row
//! of switches: they take the time of the slowest, not the sum. So bytes take their share of all three when they
//! depart, and the receiver's interface is shared as if every delay were zero.

use std::collections::{BTreeMap, VecDeque};

use super::draws::Draws;
use super::pace::{Pace, QUEUE};
use super::settings::{Gate, Interface, Link, Node};
use super::{Nanos, nanos};

/// The payload of one packet: what an Ethernet frame leaves to TCP.
pub(super) const PACKET_BYTES: usize = 1_448;

/// The most bytes that are handled as one quantum.
pub(super) const QUANTUM_BYTES_MAX: usize = 256 << 10;

/// A quantum takes no longer than this on its link, unless a single packet does.
const QUANTUM: Nanos = 500_000;

/// The shortest wait for a lost packet when no later packet reveals the loss: Linux's minimum retransmission timeout.
/// The round trip is added to it.
const RETRANSMISSION_TIMEOUT: Nanos = 200_000_000;

/// After this many packets behind a lost one its sender learns of the loss, one round trip later, and sends it again.
pub(super) const FAST_RETRANSMIT_PACKETS: u64 = 3;

/// How much of one connection may be in flight: enough for the bandwidth and the round trip, within these limits.
const WINDOW_BYTES_MIN: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 64 << 20;
const WINDOW_BYTES_UNLIMITED: u64 = 16 << 20;

/// By how much a sender that waited for its turn may be late and still be served as if in time. This compensates for
/// a relay thread that was not scheduled; longer pauses have their full cost.
const LATENESS: Nanos = 50_000_000;

pub(super) type LinkId = usize;

pub(super) type PaceId = usize;

/// A pace, and the queue of those that wait for it.
pub(super) struct Waiting<Waiter> {
    pub(super) pace: Pace,
    pub(super) queue: VecDeque<Waiter>,
    /// Whether an event on the agenda will serve the queue.
    pub(super) is_awaited: bool,
}

/// Counters of a link since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that departed.
    pub bytes: u64,
    /// Packets that departed, not counting retransmissions.
    pub packets: u64,
    /// The number of losses; a packet may be lost several times.
    pub lost: u64,
    /// Packets that arrived later than those behind them.
    pub reordered: u64,
    /// The sum of what jitter and reordering added to packets' minimum delays, in nanoseconds.
    pub later_ns: u64,
}

/// One direction between two nodes.
pub(super) struct Way {
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) link: Link,
    pub(super) gate: Gate,
    pub(super) traffic: Traffic,
    draws: Draws,
    /// The sender's interface, the link, the receiver's interface.
    path: [PaceId; 3],
}

/// The times of a group of bytes on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// When the last of them leaves its sender.
    pub(super) departs: Nanos,
    pub(super) arrives: Nanos,
    pub(super) packets: u64,
    /// A lost packet among them whose loss no later packet has revealed yet.
    pub(super) lost: Option<Lost>,
}

/// A lost packet that a timeout would recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// The number of packets behind it so far.
    pub(super) packets_behind: u64,
    /// When all others of its quantum arrive.
    others_arrive: Nanos,
    /// The time from when its sender learns of the loss until the packet arrives.
    recovery: Nanos,
}

impl Lost {
    /// When the lost packet arrives, if the packet that reveals its loss departs at this time.
    pub(super) fn arrives_if_reported(&self, departs: Nanos) -> Nanos {
        self.others_arrive.max(departs + self.recovery)
    }
}

/// All links and interfaces. `Waiter` identifies a sender that waits for one of them.
pub(super) struct Fabric<Waiter> {
    seed: u64,
    ways: Vec<Way>,
    paces: Vec<Waiting<Waiter>>,
    /// For each node, its sending and its receiving pace.
    interfaces: BTreeMap<Node, (PaceId, PaceId)>,
    numbers: BTreeMap<(Node, Node), LinkId>,
}

impl<Waiter> Fabric<Waiter> {
    pub(super) fn new(seed: u64) -> Fabric<Waiter> {
        Fabric {
            seed,
            ways: Vec::new(),
            paces: Vec::new(),
            interfaces: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Returns the link from one node to another; creates it if necessary.
    pub(super) fn link(&mut self, from: Node, to: Node) -> LinkId {
        if let Some(id) = self.numbers.get(&(from, to)) {
            return *id;
        }
        let (up, down) = (self.interface(from).0, self.interface(to).1);
        let path = [up, self.new_pace(), down];
        self.ways.push(Way {
            from,
            to,
            link: Link::default(),
            gate: Gate::Open,
            traffic: Traffic::default(),
            draws: Draws::new(self.seed, from, to),
            path,
        });
        self.numbers.insert((from, to), self.ways.len() - 1);
        self.ways.len() - 1
    }

    pub(super) fn way(&self, link: LinkId) -> &Way {
        &self.ways[link]
    }

    pub(super) fn ways(&self) -> impl Iterator<Item = (LinkId, &Way)> {
        self.ways.iter().enumerate()
    }

    /// The number of paces; they are numbered from 0.
    pub(super) fn paces(&self) -> usize {
        self.paces.len()
    }

    pub(super) fn waiting(&mut self, pace: PaceId) -> &mut Waiting<Waiter> {
        &mut self.paces[pace]
    }

    pub(super) fn change_link(&mut self, link: LinkId, settings: Link, now: Nanos) {
        let way = &mut self.ways[link];
        way.link = settings;
        self.paces[way.path[1]].pace.change(settings.bandwidth, now);
    }

    pub(super) fn change_interface(&mut self, node: Node, settings: Interface, now: Nanos) {
        let (up, down) = self.interface(node);
        self.paces[up].pace.change(settings.up, now);
        self.paces[down].pace.change(settings.down, now);
    }

    pub(super) fn change_gate(&mut self, link: LinkId, gate: Gate) {
        self.ways[link].gate = gate;
    }

    /// Whether bytes may be carried from socket to socket at once: nothing slows the link down or could hold it.
    pub(super) fn is_plain(&self, link: LinkId) -> bool {
        let way = &self.ways[link];
        way.link.is_plain() && self.rate(link).is_none()
    }

    /// The delay of the link plus that of the link back.
    pub(super) fn round_trip(&self, link: LinkId) -> Nanos {
        let Way { from, to, link, .. } = &self.ways[link];
        let back = self.numbers.get(&(*to, *from)).map_or(0, |back| nanos(self.ways[*back].link.delay));
        nanos(link.delay) + back
    }

    /// How many bytes are handled as one quantum.
    pub(super) fn quantum_bytes(&self, link: LinkId) -> usize {
        let bytes =
            self.rate(link).map_or(u64::MAX, |rate| (rate / 8).saturating_mul(QUANTUM) / 1_000_000_000);
        usize::try_from(bytes).unwrap_or(QUANTUM_BYTES_MAX).clamp(PACKET_BYTES, QUANTUM_BYTES_MAX)
    }

    /// How much of one connection may be in flight.
    pub(super) fn window_bytes(&self, link: LinkId) -> u64 {
        let Some(rate) = self.rate(link) else { return WINDOW_BYTES_UNLIMITED };
        let round_trip = self.round_trip(link) + nanos(self.ways[link].link.jitter) + 2 * QUEUE;
        let bytes = u128::from(rate) / 8 * u128::from(2 * round_trip) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    /// The first pace that is not free for more bytes, if any; others may be queued for it already.
    pub(super) fn blocking(&self, link: LinkId, now: Nanos, is_its_turn: bool) -> Option<PaceId> {
        self.ways[link].path.into_iter().find(|pace| {
            let Waiting { pace, queue, .. } = &self.paces[*pace];
            pace.blocked_until(now).is_some() || !is_its_turn && !queue.is_empty()
        })
    }

    /// Sends bytes. If their sender has waited for its turn, they depart as if taken in time.
    pub(super) fn send(&mut self, link: LinkId, bytes: usize, now: Nanos, has_waited: bool) -> Passage {
        let round_trip = self.round_trip(link);
        let way = &mut self.ways[link];
        let packets = bytes.div_ceil(PACKET_BYTES) as u64;
        let first_packet = way.traffic.packets;
        way.traffic.packets += packets;
        way.traffic.bytes += bytes as u64;

        // Everything is drawn before anything departs: a lost packet takes its time on the link twice.
        let jitter = nanos(way.link.jitter);
        let delay = nanos(way.link.delay);
        let (mut lost_times, mut later, mut last_lost) = (0, jitter, None);
        if jitter > 0 || way.link.loss > 0.0 || way.link.reorder > 0.0 {
            later = 0;
            for packet in 0..packets {
                let fate = way.draws.fate(&way.link, first_packet + packet);
                lost_times += u64::from(fate.losses);
                way.traffic.lost += u64::from(fate.losses);
                way.traffic.reordered += u64::from(fate.is_reordered);
                way.traffic.later_ns += fate.later;
                if fate.losses > 0 {
                    last_lost = Some((packets - 1 - packet, fate.losses));
                }
                later = later.max(fate.later);
            }
        }
        let on_the_way = (bytes + lost_times as usize * PACKET_BYTES) as u64;
        let since = if has_waited { now.saturating_sub(LATENESS) } else { now };
        let path = way.path;
        let departs = path.iter().map(|pace| self.paces[*pace].pace.pass(since, on_the_way)).max();
        // A path without a pace takes no time: the bytes were not there before now.
        let departs = if self.rate(link).is_some() { departs.unwrap_or(now) } else { now };
        let others_arrive = (departs + delay + later).saturating_sub(jitter);

        let Some((packets_behind, losses)) = last_lost else {
            return Passage { departs, arrives: others_arrive, packets, lost: None };
        };
        let timeout = RETRANSMISSION_TIMEOUT + round_trip;
        // Each further loss doubles the timeout.
        let again: Nanos = (1..losses).map(|loss| timeout << loss).sum();
        let lost = Lost { packets_behind, others_arrive, recovery: round_trip + delay + again };
        if packets_behind >= FAST_RETRANSMIT_PACKETS {
            return Passage { departs, arrives: lost.arrives_if_reported(departs), packets, lost: None };
        }
        let arrives = others_arrive.max(departs + timeout + again + delay);
        Passage { departs, arrives, packets, lost: Some(lost) }
    }

    /// Counts bytes carried over a plain link.
    pub(super) fn note_plain(&mut self, link: LinkId, bytes: usize) {
        let traffic = &mut self.ways[link].traffic;
        traffic.bytes += bytes as u64;
        traffic.packets += bytes.div_ceil(PACKET_BYTES) as u64;
    }

    /// The rate of the slowest pace of a link's path, in bits per second.
    fn rate(&self, link: LinkId) -> Option<u64> {
        let rates = self.ways[link].path.iter().filter_map(|pace| self.paces[*pace].pace.bits_per_second());
        rates.min()
    }

    fn interface(&mut self, node: Node) -> (PaceId, PaceId) {
        if let Some(interface) = self.interfaces.get(&node) {
            return *interface;
        }
        let interface = (self.new_pace(), self.new_pace());
        self.interfaces.insert(node, interface);
        interface
    }

    fn new_pace(&mut self) -> PaceId {
        self.paces.push(Waiting { pace: Pace::default(), queue: VecDeque::new(), is_awaited: false });
        self.paces.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Bandwidth;
    use super::*;

    const MS: Nanos = 1_000_000;

    fn fabric(words: &str) -> (Fabric<()>, LinkId) {
        let mut fabric = Fabric::new(1);
        let there = fabric.link(1, 2);
        let back = fabric.link(2, 1);
        for link in [there, back] {
            fabric.change_link(link, Link::default().change(words).unwrap(), 0);
        }
        (fabric, there)
    }

    #[test]
    fn bytes_arrive_after_their_time_on_the_link_and_its_delay() {
        let (mut fabric, link) = fabric("bandwidth=8mbit delay=10ms");
        let passage = fabric.send(link, 1_000, 5 * MS, false);
        assert_eq!((passage.departs, passage.arrives), (6 * MS, 16 * MS));
        // The second waits until the first has left.
        assert_eq!(fabric.send(link, 1_000, 5 * MS, false).arrives, 17 * MS);
    }

    #[test]
    fn links_of_a_node_share_its_interface_and_the_slowest_counts() {
        let (mut fabric, to_2) = fabric("bandwidth=80mbit");
        let to_3 = fabric.link(1, 3);
        fabric.change_interface(1, Interface { up: Some(Bandwidth::megabits(8)), down: None }, 0);
        assert_eq!(fabric.send(to_2, 1_000, 0, false).arrives, MS);
        assert_eq!(fabric.send(to_3, 1_000, 0, false).arrives, 2 * MS);
        // The other direction has a budget of its own.
        let back = fabric.link(2, 1);
        assert_eq!(fabric.send(back, 1_000, 0, false).arrives, MS / 10);
    }

    #[test]
    fn a_receiver_shares_its_interface_among_its_senders() {
        let (mut fabric, from_1) = fabric("");
        let from_3 = fabric.link(3, 2);
        fabric.change_interface(2, Interface { up: None, down: Some(Bandwidth::megabits(8)) }, 0);
        assert_eq!(fabric.send(from_1, 1_000, 0, false).arrives, MS);
        assert_eq!(fabric.send(from_3, 1_000, 0, false).arrives, 2 * MS);
    }

    #[test]
    fn a_late_sender_continues_as_if_called_in_time() {
        let (mut fabric, link) = fabric("bandwidth=8mbit");
        fabric.send(link, 11_000, 0, false);
        assert!(fabric.blocking(link, 0, true).is_some());
        assert_eq!(fabric.send(link, 1_000, 15 * MS, true).departs, 12 * MS);
        assert_eq!(fabric.send(link, 1_000, 25 * MS, false).departs, 26 * MS);
    }

    #[test]
    fn jitter_is_uniform_around_the_delay() {
        let (mut fabric, link) = fabric("delay=10ms jitter=4ms");
        let delays: Vec<Nanos> = (0..1_000).map(|_| fabric.send(link, 100, 0, false).arrives).collect();
        assert!(delays.iter().all(|delay| (6 * MS..=14 * MS).contains(delay)));
        assert!(delays.iter().any(|delay| *delay < 7 * MS) && delays.iter().any(|delay| *delay > 13 * MS));
    }

    #[test]
    fn a_loss_that_is_not_reported_waits_for_the_timeout() {
        let (mut fabric, link) = fabric("delay=10ms loss=100%");
        let passage = fabric.send(link, 100, 0, false);
        let lost = passage.lost.expect("it is lost");
        // Six losses in a row: timeouts from 220 ms on, each twice the one before, plus the delay.
        assert_eq!(passage.arrives, 220 * MS * 63 + 10 * MS);
        assert!(lost.arrives_if_reported(MS) < passage.arrives);
    }

    #[test]
    fn a_loss_followed_by_packets_is_resent_after_a_round_trip() {
        let (mut fabric, link) = fabric("delay=10ms loss=1%");
        let draws = Draws::new(1, 1, 2);
        let settings = fabric.way(link).link;
        let fates: Vec<u32> = (0..10_000).map(|packet| draws.fate(&settings, packet).losses).collect();
        let quantum = 10;
        let mut seen = 0;
        for (number, packets) in fates.chunks(quantum).enumerate() {
            let passage = fabric.send(link, quantum * PACKET_BYTES, 0, false);
            let lost: Vec<usize> = (0..quantum).filter(|packet| packets[*packet] > 0).collect();
            match lost[..] {
                [] => assert_eq!(passage.arrives, 10 * MS, "quantum {number}"),
                [at] if packets[at] == 1 && quantum - 1 - at >= 3 => {
                    seen += 1;
                    assert_eq!((passage.arrives, passage.lost), (30 * MS, None), "quantum {number}");
                }
                [at] if packets[at] == 1 => {
                    assert_eq!(passage.arrives, 230 * MS, "quantum {number}");
                    assert_eq!(passage.lost.map(|lost| lost.packets_behind), Some((quantum - 1 - at) as u64));
                }
                _ => {}
            }
        }
        assert!(seen > 20);
    }
}
