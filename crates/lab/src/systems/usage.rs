//! What the processes of a system cost: processor time and bytes written to disks, from the operating system; bytes
//! sent to other nodes, from the nodes themselves if they report them.
//!
//! A [`Meter`] samples at regular intervals while a load runs, and returns afterwards what was used between two
//! times: which part of the run is measured is known only when it is over.

use std::fs;
use std::time::{Duration, Instant};

/// How often processor time and disk bytes are sampled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The number of samples between two requests to the nodes for the bytes they have sent: a request costs them
/// something.
const ASK_EVERY_LOOKS: u32 = 10;

/// A process's usage so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time of all its threads, in seconds.
    pub cpu_s: f64,
    /// Bytes written to disks on its behalf.
    pub disk_bytes: f64,
}

impl Usage {
    /// A process's usage so far; `None` when it is gone, or where the system does not report it.
    pub fn of(process: u32) -> Option<Usage> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let cpu_s = cpu_ticks(&stat)? as f64 / rustix::param::clock_ticks_per_second() as f64;
        let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        let disk_bytes = written.and_then(|text| text.parse().ok()).unwrap_or(0.0);
        Some(Usage { cpu_s, disk_bytes })
    }
}

/// User and system time from `/proc/PID/stat`. The name before them may contain anything but ends with the last `)`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// One node's usage in a period of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeUsage {
    /// Processor time in seconds.
    pub cpu_s: f64,
    /// Bytes written to disks on its behalf.
    pub disk_bytes: f64,
    /// Bytes that it sent to other nodes, if it reports them.
    pub peer_bytes: Option<f64>,
}

/// A growing count, sampled at several times. A restarted process counts from zero: its earlier count is kept.
#[derive(Clone, Debug, Default)]
struct Counter {
    seen: Vec<(Instant, f64)>,
    raw: f64,
}

impl Counter {
    fn see(&mut self, at: Instant, raw: f64) {
        let before = self.seen.last().map_or(0.0, |(_, sum)| *sum);
        let more = if self.seen.is_empty() || raw < self.raw { raw } else { raw - self.raw };
        self.raw = raw;
        self.seen.push((at, before + more));
    }

    /// The count at a time, interpolated between two samples.
    fn at(&self, at: Instant) -> Option<f64> {
        let behind = self.seen.partition_point(|(time, _)| *time <= at);
        match (behind.checked_sub(1).map(|before| self.seen[before]), self.seen.get(behind)) {
            (None, None) => None,
            (Some((_, sum)), None) => Some(sum),
            (None, Some((_, sum))) => Some(*sum),
            (Some((start, from)), Some((end, to))) => {
                let share = (at - start).as_secs_f64() / (*end - start).as_secs_f64();
                Some(from + (to - from) * share)
            }
        }
    }

    fn between(&self, from: Instant, to: Instant) -> Option<f64> {
        Some((self.at(to)? - self.at(from)?).max(0.0))
    }
}

#[derive(Clone, Debug, Default)]
struct NodeCounters {
    cpu_s: Counter,
    disk_bytes: Counter,
    peer_bytes: Counter,
}

/// Samples the nodes of a system while they work.
#[derive(Debug)]
pub struct Meter {
    nodes: Vec<NodeCounters>,
    looks: u32,
}

impl Meter {
    /// Creates a meter for `nodes` nodes.
    pub fn new(nodes: usize) -> Meter {
        Meter { nodes: vec![NodeCounters::default(); nodes], looks: 0 }
    }

    /// When to sample again, after a sample at `last`.
    pub fn next_look(last: Instant) -> Instant {
        last + LOOK_EVERY
    }

    /// Samples every node. `process` returns a node's process, if it runs; `peer_bytes` asks the node how much it
    /// has sent.
    pub fn look(
        &mut self,
        process: impl Fn(usize) -> Option<u32>,
        peer_bytes: impl Fn(usize) -> Option<u64>,
    ) {
        let asks = self.looks.is_multiple_of(ASK_EVERY_LOOKS);
        self.looks += 1;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(usage) = process(index).and_then(Usage::of) else { continue };
            let now = Instant::now();
            node.cpu_s.see(now, usage.cpu_s);
            node.disk_bytes.see(now, usage.disk_bytes);
            if asks && let Some(sent) = peer_bytes(index) {
                node.peer_bytes.see(Instant::now(), sent as f64);
            }
        }
    }

    /// Makes the next sample ask the nodes too: it is the last one.
    pub fn ask_at_next_look(&mut self) {
        self.looks = 0;
    }

    /// Each node's usage between two times.
    pub fn between(&self, from: Instant, to: Instant) -> Vec<NodeUsage> {
        let usage = |node: &NodeCounters| NodeUsage {
            cpu_s: node.cpu_s.between(from, to).unwrap_or(0.0),
            disk_bytes: node.disk_bytes.between(from, to).unwrap_or(0.0),
            peer_bytes: node.peer_bytes.between(from, to),
        };
        self.nodes.iter().map(usage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a ) (b) S 1 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_ticks(stat), Some(42));
    }

    #[test]
    fn this_process_has_used_something() {
        let usage = Usage::of(std::process::id()).expect("a process can look at itself");
        assert!(usage.cpu_s >= 0.0 && usage.disk_bytes >= 0.0);
    }

    #[test]
    fn usage_between_two_samples_is_interpolated() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut counter = Counter::default();
        counter.see(at(0), 10.0);
        counter.see(at(100), 20.0);
        counter.see(at(200), 60.0);
        assert_eq!(counter.between(at(50), at(150)), Some(25.0));
        assert_eq!(counter.between(at(200), at(900)), Some(0.0), "nothing is known of later");
    }

    #[test]
    fn a_process_that_starts_again_goes_on_counting() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut counter = Counter::default();
        for (ms, raw) in [(0, 5.0), (100, 9.0), (200, 2.0)] {
            counter.see(at(ms), raw);
        }
        assert_eq!(counter.between(at(0), at(200)), Some(6.0));
    }
}
