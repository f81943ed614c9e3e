//! The cost of writing and reading a value as whole copies and as fragments: the time until the client has its reply.
//!
//! A value of V bytes in a group of N replicas, cut into k parts, is N fragments of V / k bytes; k = 1 is a whole
//! copy on each. The coordinator of a write sends N - 1 of them and keeps one. All of them leave through its uplink,
//! including those it does not wait for: a client that writes one value after the other waits for them before its
//! next write. So
//!
//! ```text
//! write, dispersed  (N-1) V/k / up  +  2 round trips  +  disperse  +  order  +  encode V  +  handle (V + N V/k)
//!   not at the leader: + 1 round trip: the small command to be ordered goes to the leader first
//! write, in the log (N-1) V   / up  +  1 round trip   +  order               +  handle (V + N V)
//!   not at the leader: + V / up + 1 round trip: the whole value goes to the leader first
//! read, k > 1       (k-1) V/k / down  +  1 round trip  +  decode V  +  handle V   (own fragment, k - 1 of others)
//!   not at the leader: + 1 round trip, for the reference that the key holds; in the cache: nothing else
//! read, k = 1       handle V
//!   not at the leader: + V / up + 1 round trip: all values come from the leader
//! ```
//!
//! `up` and `down` are the total bandwidths with which a node can send and receive. A slower peer delays a write if
//! its fragment is among those awaited: k + F of N, where F is the number of failures that a majority tolerates. A
//! write in the log awaits a majority, as does a dispersal of whole copies (k = 1).
//!
//! The model has two users: `quorate advise`, for a given network, and nodes with `coding = "adaptive"`, with their
//! measurements. The model ignores load: it describes a single client that waits for its replies.

use crate::{data_fragments_max, failures_tolerated};

/// A network as one node sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Links {
    /// The node's total bandwidth for sending, in bytes per second.
    pub uplink: f64,
    /// The node's total bandwidth for receiving, in bytes per second.
    pub downlink: f64,
    /// The bandwidth of the link to each of the N - 1 other nodes, the same both ways, in bytes per second.
    pub peers: Vec<f64>,
    /// The bandwidth of the link to the leader, if that is another node, in bytes per second.
    pub leader: f64,
    /// The round trip time to another node, in seconds.
    pub round_trip: f64,
}

impl Links {
    /// Returns the network of a group whose nodes have the same bandwidth each way, in bytes per second.
    pub fn even(members: usize, bandwidth: f64, round_trip: f64) -> Links {
        let peers = vec![bandwidth; members.saturating_sub(1)];
        Links { uplink: bandwidth, downlink: bandwidth, peers, leader: bandwidth, round_trip }
    }

    fn members(&self) -> usize {
        self.peers.len() + 1
    }

    /// The time until `awaited` peers have received `bytes` each, while all peers are sent the same number of bytes.
    fn send(&self, bytes: f64, awaited: usize) -> f64 {
        let mut peers = self.peers.clone();
        peers.sort_by(|left, right| right.total_cmp(left));
        let slowest = awaited.checked_sub(1).and_then(|last| peers.get(last));
        let link = slowest.map_or(0.0, |bandwidth| bytes / bandwidth);
        link.max(bytes * self.peers.len() as f64 / self.uplink)
    }

    /// The time to receive `bytes` from each of the `count` fastest peers.
    fn receive(&self, bytes: f64, count: usize) -> f64 {
        let mut peers = self.peers.clone();
        peers.sort_by(|left, right| right.total_cmp(left));
        let slowest = count.checked_sub(1).and_then(|last| peers.get(last));
        let link = slowest.map_or(0.0, |bandwidth| bytes / bandwidth);
        link.max(bytes * count as f64 / self.downlink)
    }
}

/// The cost of work on the nodes themselves, in seconds, or in seconds per byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// A small write, in seconds: from the request to the reply, with its syncs, without round trips.
    pub order: f64,
    /// Making fragments durable before the write is ordered, in seconds: another sync.
    pub disperse: f64,
    /// A small read, in seconds.
    pub read: f64,
    /// One byte of a value that the coordinator receives, sends or logs.
    pub handle: f64,
    /// One byte of a value that is cut into fragments.
    pub encode: f64,
    /// One byte of a value that is reconstructed.
    pub decode: f64,
}

impl Default for Work {
    /// Five nodes and their client on two shared processors, in a virtual machine whose disk syncs in about a
    /// millisecond. The study `coding-crossover` fits these to the machine that it runs on.
    fn default() -> Work {
        Work { order: 2e-3, disperse: 1e-3, read: 2e-4, handle: 4e-9, encode: 5e-11, decode: 7e-11 }
    }
}

/// The node that the client is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The leader of the group.
    Leader,
    /// Any other node.
    Another,
}

/// The time of a write, in seconds. `parts` is k; 1 is replication through the log. `None` if the group has too few
/// members.
pub fn write_seconds(bytes: usize, parts: usize, at: At, links: &Links, work: &Work) -> Option<f64> {
    if parts != 1 {
        return disperse_seconds(bytes, parts, at, links, work);
    }
    let (members, value) = (links.members(), bytes as f64);
    let forwarded = match at {
        At::Leader => 0.0,
        At::Another => value / links.uplink.min(links.leader) + links.round_trip,
    };
    let sent = links.send(value, members / 2);
    let handled = work.handle * (value + members as f64 * value);
    Some(forwarded + sent + links.round_trip + work.order + handled)
}

/// The time, in seconds, of a write of a value that is dispersed before it is ordered: in `parts`, or as whole copies
/// if that is 1. `None` if the group has too few members.
pub fn disperse_seconds(bytes: usize, parts: usize, at: At, links: &Links, work: &Work) -> Option<f64> {
    let members = links.members();
    if !(1..=data_fragments_max(members)).contains(&parts) {
        return None;
    }
    let (value, fragment) = (bytes as f64, bytes as f64 / parts as f64);
    let asked = match at {
        At::Leader => 0.0,
        At::Another => links.round_trip,
    };
    // One of the awaited fragments is the coordinator's own.
    let sent = links.send(fragment, parts + failures_tolerated(members) - 1);
    let encoded = if parts == 1 { 0.0 } else { work.encode * value };
    let handled = work.handle * (value + members as f64 * fragment);
    Some(asked + sent + 2.0 * links.round_trip + work.disperse + work.order + encoded + handled)
}

/// The time, in seconds, of a read of a value that is in no cache. `None` if the group has too few members.
pub fn read_seconds(bytes: usize, parts: usize, at: At, links: &Links, work: &Work) -> Option<f64> {
    if !(1..=data_fragments_max(links.members())).contains(&parts) {
        return None;
    }
    let (value, fragment) = (bytes as f64, bytes as f64 / parts as f64);
    let asked = match at {
        At::Leader => 0.0,
        At::Another => links.round_trip,
    };
    let local = work.read + work.handle * value;
    if parts == 1 {
        let sent = match at {
            At::Leader => 0.0,
            At::Another => value / links.uplink.min(links.downlink),
        };
        return Some(asked + sent + local);
    }
    let received = links.receive(fragment, parts - 1);
    Some(asked + received + links.round_trip + work.decode * value + local)
}

/// The bandwidth of a node, in bytes per second, below which a write in `parts` is faster than replication, with the
/// round trip of `links`. `None` if the write in `parts` is faster at no bandwidth from 1 kbit/s to 1 Tbit/s, or the
/// group has too few members; infinity if it is faster at every such bandwidth.
pub fn crossover(bytes: usize, parts: usize, at: At, links: &Links, work: &Work) -> Option<f64> {
    let gain = |bandwidth: f64| {
        let links = Links::even(links.members(), bandwidth, links.round_trip);
        let replicated = write_seconds(bytes, 1, at, &links, work)?;
        Some(replicated - write_seconds(bytes, parts, at, &links, work)?)
    };
    let (mut low, mut high) = (125.0, 125e9);
    if gain(low)? <= 0.0 {
        return None;
    }
    if gain(high)? > 0.0 {
        return Some(f64::INFINITY);
    }
    // The gain shrinks as the bandwidth grows: only the sending time depends on it.
    for _ in 0..100 {
        let middle = f64::sqrt(low * high);
        if gain(middle)? > 0.0 { low = middle } else { high = middle }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABIT: f64 = 125_000.0;

    fn links(megabits: f64) -> Links {
        Links::even(5, megabits * MEGABIT, 1e-3)
    }

    /// No cost but the network's.
    const NO_WORK: Work =
        Work { order: 0.0, disperse: 0.0, read: 0.0, handle: 0.0, encode: 0.0, decode: 0.0 };

    fn close(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left / right - 1.0).abs() < 1e-9)
    }

    #[test]
    fn a_write_takes_as_long_as_its_coordinator_needs_to_send_it() {
        let write = |parts, at| write_seconds(1_000_000, parts, at, &links(10.0), &NO_WORK);
        assert!(close(write(1, At::Leader), 4.0 * 0.8 + 1e-3));
        assert!(close(write(2, At::Leader), 4.0 * 0.4 + 2e-3));
        assert!(close(write(3, At::Leader), 4.0 * 0.8 / 3.0 + 2e-3));
        // A replicated value passes through the leader as a whole; with fragments only the small command does.
        assert!(close(write(1, At::Another), 5.0 * 0.8 + 2e-3));
        assert!(close(write(3, At::Another), 4.0 * 0.8 / 3.0 + 3e-3));
    }

    #[test]
    fn copies_can_be_dispersed_too_and_avoid_the_way_through_the_leader() {
        let mut links = links(10.0);
        let write = |at, links: &Links| {
            [write_seconds, disperse_seconds].map(|of| of(1_000_000, 1, at, links, &NO_WORK).unwrap())
        };
        let [logged, dispersed] = write(At::Leader, &links);
        assert!((dispersed - logged - 1e-3).abs() < 1e-9, "a round trip more");
        let [logged, dispersed] = write(At::Another, &links);
        assert!(dispersed < logged - 0.7, "{dispersed} {logged}");
        links.leader = MEGABIT;
        let [slow, unmoved] = write(At::Another, &links);
        assert!(slow > logged + 7.0 && unmoved == dispersed, "the leader is behind a slow link");
    }

    #[test]
    fn reads_of_copies_are_free_at_the_leader_alone() {
        let read = |parts, at| read_seconds(1_000_000, parts, at, &links(10.0), &NO_WORK);
        assert_eq!(read(1, At::Leader), Some(0.0));
        assert!(close(read(1, At::Another), 0.8 + 1e-3));
        assert!(close(read(2, At::Another), 0.4 + 2e-3), "half of it is there already");
        assert!(close(read(3, At::Leader), 0.8 * 2.0 / 3.0 + 1e-3));
    }

    #[test]
    fn more_parts_than_survive_the_loss_of_a_minority_are_refused() {
        for parts in [0, 4, 5] {
            assert_eq!(write_seconds(1000, parts, At::Leader, &links(10.0), &NO_WORK), None);
            assert_eq!(read_seconds(1000, parts, At::Leader, &links(10.0), &NO_WORK), None);
        }
    }

    #[test]
    fn a_slow_peer_counts_when_its_fragment_is_awaited() {
        let mut links = links(100.0);
        links.peers = vec![100.0 * MEGABIT, MEGABIT, 100.0 * MEGABIT, 100.0 * MEGABIT];
        let write = |parts| write_seconds(600_000, parts, At::Leader, &links, &NO_WORK).unwrap();
        assert!(write(1) < 0.2, "a majority is enough");
        assert!(write(2) < 0.2, "four of five are enough");
        assert!(write(3) > 1.5, "all five are needed");
    }

    #[test]
    fn the_crossover_is_where_both_take_as_long() {
        let work = Work::default();
        for (bytes, parts) in [(4_000, 2), (20_000, 2), (20_000, 3)] {
            let at = crossover(bytes, parts, At::Leader, &links(1.0), &work).expect("they cross");
            let links = Links::even(5, at, 1e-3);
            let both =
                [1, parts].map(|parts| write_seconds(bytes, parts, At::Leader, &links, &work).unwrap());
            assert!((both[0] / both[1] - 1.0).abs() < 1e-6, "{bytes} {parts}: {both:?}");
        }
        let large = crossover(10_000_000, 2, At::Leader, &links(1.0), &work);
        assert_eq!(large, Some(f64::INFINITY), "fragments are less to handle, too");
        let of = |bytes| crossover(bytes, 2, At::Leader, &links(1.0), &work).unwrap();
        assert!(
            of(20_000) > of(4_000),
            "the larger a value, the faster the network on which coding still gains"
        );
    }
}
