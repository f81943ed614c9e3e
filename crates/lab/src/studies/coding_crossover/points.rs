//! The points: the study's three scenarios, and what it left open.

use super::{ADAPTIVE, at, part};
use crate::harness::{Point, Scale};

/// The study's bandwidths in Mbit/s: scenario 3, and the extremes of scenarios 1 and 2.
pub(super) const MBITS: [u64; 5] = [10, 25, 40, 55, 70];
pub(super) const MBIT_SLOW: u64 = 1;
pub(super) const MBIT_FAST: u64 = 10_000;

/// The study's sizes, and the small one of scenario 1.
pub(super) const SIZES: [u64; 5] = [200_000, 400_000, 600_000, 800_000, 1_000_000];
pub(super) const SIZE_SMALL: u64 = 1_000;

/// Sizes in between, where the two are expected to cross. The study has none.
const SIZES_BETWEEN: [u64; 3] = [8_000, 32_000, 100_000];

/// A quick run: each bandwidth with the sizes written at it. Enough to see the surfaces and where they cross.
const QUICK: [(u64, &[u64]); 5] = [
    (MBIT_FAST, &[SIZE_SMALL, SIZES[4]]),
    (MBITS[4], &[SIZES_BETWEEN[1], SIZES[0], SIZES[4]]),
    // With these the plane of the study's regression has six conditions.
    (MBITS[2], &[SIZES[2]]),
    (MBITS[1], &[SIZES[1]]),
    (MBITS[0], &[SIZES_BETWEEN[1], SIZES[0], SIZES[4]]),
];

/// The write at 1 Mbit/s in a quick run, except by nodes that choose.
const QUICK_SLOW: (u64, u64) = (MBIT_SLOW, SIZES[0]);

/// The points where a quick run reads, and where it writes at a follower.
const QUICK_READS: [(u64, u64, &str); 4] = [
    (MBITS[4], SIZES[4], at::LEADER),
    (MBITS[4], SIZES[0], at::FOLLOWER),
    (MBITS[4], SIZES[4], at::FOLLOWER),
    (MBITS[0], SIZES[0], at::FOLLOWER),
];
const QUICK_WRITE_APART: (u64, u64) = (MBITS[4], SIZES[4]);

/// The shares of reads answered from the cache, in percent, and where they are measured.
pub(super) const HITS: [u64; 4] = [0, 50, 90, 100];
const HITS_QUICK: [u64; 3] = [0, 50, 100];
pub(super) const HITS_MBIT: u64 = 40;
pub(super) const HITS_SIZE: u64 = 600_000;

/// The bandwidth and the size of values where a node is lost.
pub(super) const REBUILD_MBIT: u64 = 70;
pub(super) const REBUILD_SIZE: u64 = 400_000;

/// The one-way delays between nodes, and where they are measured: the same sizes are also written without delay.
pub(super) const DELAYS_MS: [u64; 3] = [5, 25, 100];
const DELAYS_QUICK_MS: [u64; 1] = [25];
pub(super) const FAR_MBIT: u64 = MBITS[4];
pub(super) const FAR_SIZES: [u64; 2] = [SIZES[0], SIZES[4]];

/// The numbers of simultaneous writers, and the bandwidth and size of their writes.
const WRITERS: [u64; 3] = [1, 8, 32];
pub(super) const WRITERS_QUICK: [u64; 1] = [8];
pub(super) const WRITERS_MBIT: u64 = MBITS[4];
pub(super) const WRITERS_SIZE: u64 = SIZES_BETWEEN[2];

/// How many nodes are down while values of this size are read.
const GONE: [u64; 2] = [1, 2];
const GONE_QUICK: [u64; 1] = [2];
pub(super) const GONE_MBIT: u64 = MBITS[4];
pub(super) const GONE_SIZE: u64 = SIZES[4];

fn point(part: &str, at: &str, mbit: u64, bytes: u64) -> Point {
    Point::new().with("part", part).with("at", at).with("mbit", mbit).with("bytes", bytes)
}

/// Bandwidth and size of all writes at the leader.
fn grid(scale: Scale) -> Vec<(u64, u64)> {
    let with = |mbit: u64, sizes: &[u64]| sizes.iter().map(move |bytes| (mbit, *bytes)).collect::<Vec<_>>();
    match scale {
        Scale::Quick => QUICK.iter().flat_map(|(mbit, sizes)| with(*mbit, sizes)).collect(),
        Scale::Full => {
            let all = [&[SIZE_SMALL][..], &SIZES_BETWEEN, &SIZES].concat();
            let mbits = MBITS.iter().rev();
            // The slowest last: a sweep that is stopped early has the rest.
            [&MBIT_FAST]
                .into_iter()
                .chain(mbits)
                .flat_map(|mbit| with(*mbit, &all))
                .chain(with(MBIT_SLOW, &SIZES))
                .collect()
        }
    }
}

/// Bandwidth and size of the writes at a follower.
fn writes_apart(scale: Scale) -> Vec<(u64, u64)> {
    match scale {
        Scale::Quick => vec![QUICK_WRITE_APART],
        Scale::Full => {
            let sizes = [SIZES[0], SIZES[2], SIZES[4]];
            grid(scale)
                .into_iter()
                .filter(|(mbit, bytes)| *mbit != MBIT_SLOW && sizes.contains(bytes))
                .collect()
        }
    }
}

fn reads(scale: Scale) -> Vec<(u64, u64, &'static str)> {
    match scale {
        Scale::Quick => QUICK_READS.to_vec(),
        Scale::Full => grid(scale)
            .into_iter()
            .flat_map(|(mbit, bytes)| [at::LEADER, at::FOLLOWER].map(|at| (mbit, bytes, at)))
            .collect(),
    }
}

/// The points of an arm. All share one start of its system; a node is lost in the last one.
pub(super) fn all(scale: Scale, parts: usize) -> Vec<Point> {
    let mut points = Vec::new();
    // A quick run has the bandwidths in between only for the regression, which does not include nodes that choose.
    let is_left_out = |mbit: &u64| scale == Scale::Quick && parts == ADAPTIVE && MBITS[1..4].contains(mbit);
    points.extend(
        grid(scale)
            .into_iter()
            .filter(|(mbit, _)| !is_left_out(mbit))
            .map(|(mbit, bytes)| point(part::WRITE, at::LEADER, mbit, bytes)),
    );
    if scale == Scale::Quick && parts != ADAPTIVE {
        points.push(point(part::WRITE, at::LEADER, QUICK_SLOW.0, QUICK_SLOW.1));
    }
    points.extend(
        writes_apart(scale).into_iter().map(|(mbit, bytes)| point(part::WRITE, at::FOLLOWER, mbit, bytes)),
    );
    // Reads depend on how a value was stored, and that is measured already.
    if parts == ADAPTIVE {
        return points;
    }
    points.extend(
        reads(scale).into_iter().map(|(mbit, bytes, at)| point(part::READ, at, mbit, bytes).with("hits", 0)),
    );
    for hits in scale.pick(&HITS_QUICK[..], &HITS[..]) {
        let point = point(part::READ, at::FOLLOWER, HITS_MBIT, HITS_SIZE).with("hits", hits);
        // Copies are not in a cache: a node that has one answers from it.
        if (*hits == 0 || parts > 1) && !points.contains(&point) {
            points.push(point);
        }
    }
    for bytes in scale.pick(&FAR_SIZES[..1], &FAR_SIZES[..]) {
        for delay_ms in scale.pick(&DELAYS_QUICK_MS[..], &DELAYS_MS[..]) {
            points.push(point(part::FAR, at::LEADER, FAR_MBIT, *bytes).with("delay_ms", delay_ms));
        }
    }
    for clients in scale.pick(&WRITERS_QUICK[..], &WRITERS[..]) {
        points.push(point(part::WRITERS, at::LEADER, WRITERS_MBIT, WRITERS_SIZE).with("clients", clients));
    }
    for at in scale.pick(&[at::LEADER][..], &[at::LEADER, at::FOLLOWER]) {
        for gone in scale.pick(&GONE_QUICK[..], &GONE[..]) {
            points.push(point(part::DEGRADED, at, GONE_MBIT, GONE_SIZE).with("gone", gone));
        }
    }
    // A node with copies is admitted as fast in either run, and nothing is judged by it.
    if scale == Scale::Full || parts > 1 {
        points.push(point(part::REBUILD, at::LEADER, REBUILD_MBIT, REBUILD_SIZE));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_has_the_papers_25_conditions_and_both_extremes() {
        let has = |mbit, bytes| {
            let points = all(Scale::Full, 1);
            [part::WRITE, part::READ].iter().all(|part| {
                let is_it = |point: &&Point| {
                    point.get("part") == *part
                        && point.get("at") == at::LEADER
                        && point.get("mbit") == format!("{mbit}")
                        && point.get("bytes") == format!("{bytes}")
                };
                points.iter().filter(is_it).count() == 1
            })
        };
        let conditions = MBITS.iter().flat_map(|mbit| SIZES.map(|bytes| (*mbit, bytes)));
        assert_eq!(conditions.filter(|(mbit, bytes)| has(*mbit, *bytes)).count(), 25);
        assert!(has(MBIT_FAST, SIZE_SMALL));
        assert!(SIZES.iter().all(|bytes| has(MBIT_SLOW, *bytes)));
    }

    #[test]
    fn no_point_is_measured_twice() {
        for scale in [Scale::Quick, Scale::Full] {
            for parts in [1, 2, ADAPTIVE] {
                let points = all(scale, parts);
                for (index, point) in points.iter().enumerate() {
                    assert!(!points[..index].contains(point), "{}", point.words());
                }
            }
        }
    }
}
