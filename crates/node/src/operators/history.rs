//! `CLUSTER HISTORY`: what this node has served and held in the last day: rates, latencies, lag, memory, leaders. For people who
//! ask since when something is so, and have no collector of metrics.
//!
//! A sample is taken of counters that exist anyway, once a second; so commands cost nothing more. Kept in memory, in two rings
//! for each keyspace and for all of them together: points of a second, and points of a minute. They begin with the process. A
//! cluster has a bounded number of keyspaces, so all of this takes at most 6,500 KiB.

use crate::context::Context;
use crate::context::status::group_status;
use cluster::control::CONTROL_GROUP;
use commands::statistics::Latencies;
use kv::{Reply, ReplyBuffer};
use protocol::{NodeId, Now};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// How many points of a second are kept: 17 minutes. A power of two, and so exactly what the ring allocates.
const SECONDS: usize = 1024;

/// How many points of a minute are kept: 34 hours.
const MINUTES: usize = 2048;

/// The longest history, in seconds.
const HISTORY_S_MAX: u64 = MINUTES as u64 * 60;

/// The most points of a reply for each figure. So a reply with all keyspaces stays far below what a node may answer to
/// another one.
const POINTS: u64 = 120;

/// What a node did and held in a second or in a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Point {
    /// When it began, in seconds of the monotonic clock.
    at_s: u32,
    /// Commands per second: on average, and in the busiest second.
    commands: f32,
    peak: f32,
    /// Percentiles of the times from a command's request to its reply. 0 if no command ended.
    p50_us: u32,
    p99_us: u32,
    /// How far behind the last follower of a leader here is, of those that are not away.
    lag_ms: u32,
    memory_kib: u32,
    /// 0: a group had no leader.
    leader: NodeId,
}

/// The most bytes of one history: both rings, and the counts of a second and of a minute ago.
#[cfg(test)]
const SERIES_BYTES: usize = (SECONDS + MINUTES) * size_of::<Point>() + 2 * 2048;

/// What a sample finds.
#[derive(Debug, Default)]
struct Found {
    latency: Latencies,
    lag_ms: u64,
    memory: u64,
    leader: Option<NodeId>,
}

/// The history of one keyspace, or of all.
#[derive(Debug, Default)]
struct Series {
    seconds: VecDeque<Point>,
    minutes: VecDeque<Point>,
    second_ago: Latencies,
    minute_ago: Latencies,
    /// The points of the minute that is not over. `None` before the first.
    minute: Option<Joined>,
}

/// The histories of a node.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// When the last sample was taken. 0: none was.
    sampled_us: u64,
    /// When the minute that is not over began, in the same way.
    minute_us: u64,
    whole: Series,
    keyspaces: BTreeMap<String, Series>,
}

/// A reply. Each list has one element for each step, the oldest first; null where nothing is known.
#[derive(Serialize)]
struct Shown<'a> {
    node: NodeId,
    started_ms: u64,
    /// The end of the last step, in milliseconds since the Unix epoch.
    until_ms: u64,
    step_s: u64,
    whole: Columns,
    keyspaces: BTreeMap<&'a str, Columns>,
}

#[derive(Debug, Default, Serialize)]
struct Columns {
    commands: Vec<Option<f32>>,
    peak: Vec<Option<f32>>,
    p50_us: Vec<Option<u32>>,
    p99_us: Vec<Option<u32>>,
    lag_ms: Vec<Option<u32>>,
    memory: Vec<Option<u64>>,
    leader: Vec<Option<NodeId>>,
}

impl History {
    /// Takes a sample, if a new second has begun. O(groups).
    pub(crate) fn tick(&mut self, cx: &Context, resident_bytes: u64, control_leader: NodeId) {
        let now_us = cx.now.monotonic_us;
        let is_first = self.sampled_us == 0;
        if second_of(now_us) == second_of(self.sampled_us) && !is_first {
            return;
        }
        let took_us =
            [self.sampled_us, self.minute_us].map(|since_us| now_us.saturating_sub(since_us).max(1));
        let ends_minute = second_of(now_us) / 60 != second_of(self.sampled_us) / 60;
        let at_s = second_of(self.sampled_us);
        self.sampled_us = now_us;
        if ends_minute || is_first {
            self.minute_us = now_us;
        }
        let mut whole = Found { memory: resident_bytes, leader: Some(control_leader), ..Found::default() };
        let mut found: BTreeMap<&str, Found> = BTreeMap::new();
        for (id, group) in cx.groups.iter().filter(|(id, _)| *id != CONTROL_GROUP) {
            let prefix = group.keyspace.prefix.as_str();
            whole.latency.add(&group.latency);
            let status = group_status(cx, id);
            // What a follower knows itself, since when it was not level with its leader, is long under any steady load.
            let lag_ms = status
                .followers
                .iter()
                .filter(|it| !matches!(it.state, "silent" | "absent"))
                .map(|it| it.lag_ms)
                .fold(0, u64::max);
            whole.lag_ms = whole.lag_ms.max(lag_ms);
            let own = found.entry(prefix).or_default();
            own.latency.add(&group.latency);
            own.lag_ms = own.lag_ms.max(lag_ms);
            own.memory += group.replica.as_ref().map_or(0, |replica| replica.table().memory_bytes() as u64);
            own.leader = Some(if own.leader == Some(0) { 0 } else { status.leader });
        }
        self.keyspaces.retain(|prefix, _| found.contains_key(prefix.as_str()));
        let note = |series: &mut Series, found: Found, is_new: bool| match is_new {
            true => series.begin(found.latency),
            false => series.note(found, at_s, took_us, ends_minute),
        };
        note(&mut self.whole, whole, is_first);
        for (prefix, found) in found {
            match self.keyspaces.get_mut(prefix) {
                Some(series) => note(series, found, is_first),
                None => note(self.keyspaces.entry(prefix.to_owned()).or_default(), found, true),
            }
        }
    }

    /// `CLUSTER HISTORY seconds`.
    pub(crate) fn write(&self, cx: &Context, started: Now, seconds: &[u8], out: &mut ReplyBuffer) {
        let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse().ok());
        let Some(seconds) = seconds.filter(|seconds| (1..=HISTORY_S_MAX).contains(seconds)) else {
            out.error(&format!("ERR CLUSTER HISTORY shows the last 1 to {HISTORY_S_MAX} seconds"));
            return;
        };
        let is_of_seconds = seconds <= SECONDS as u64;
        let step_s = seconds.div_ceil(POINTS).next_multiple_of(if is_of_seconds { 1 } else { 60 });
        let now_s = u64::from(second_of(cx.now.monotonic_us));
        // The second that is not over is no point yet.
        let end_s = (now_s - now_s % step_s) + if is_of_seconds && step_s == 1 { 0 } else { step_s };
        let steps = Steps { end_s, step_s, count: seconds.div_ceil(step_s) };
        let columns = |series: &Series| {
            let points = if is_of_seconds { &series.seconds } else { &series.minutes };
            let last = series.minute.as_ref().filter(|_| !is_of_seconds).map(Joined::point);
            steps.columns(points.iter().copied().chain(last))
        };
        let now_ms = cx.now.unix_ms.saturating_sub(cx.now.monotonic_us / 1000 % 1000);
        let shown = Shown {
            node: cx.configuration.node,
            started_ms: cx.now.unix_ms.saturating_sub(cx.now.ms_since(started.monotonic_us)),
            until_ms: (now_ms + end_s * 1000).saturating_sub(now_s * 1000),
            step_s,
            whole: columns(&self.whole),
            keyspaces: self
                .keyspaces
                .iter()
                .map(|(prefix, series)| (prefix.as_str(), columns(series)))
                .collect(),
        };
        let text = serde_json::to_vec(&shown).expect("a history is made of numbers, strings and lists");
        out.push(Reply::Text(&text));
    }
}

impl Series {
    fn begin(&mut self, latency: Latencies) {
        self.minute_ago = latency.clone();
        self.second_ago = latency;
    }

    /// Notes the second that is over, and the minute if that is over too.
    fn note(&mut self, found: Found, at_s: u32, [second_us, minute_us]: [u64; 2], ends_minute: bool) {
        let point = |latency: &Latencies, took_us: u64| {
            let commands = latency.count() as f32 * 1e6 / took_us as f32;
            let [p50_us, p99_us] =
                [50.0, 99.0].map(|percent| u32::try_from(latency.percentile(percent)).unwrap_or(u32::MAX));
            let memory_kib = u32::try_from(found.memory >> 10).unwrap_or(u32::MAX);
            let lag_ms = u32::try_from(found.lag_ms).unwrap_or(u32::MAX);
            let leader = found.leader.unwrap_or(0);
            Point { at_s, commands, peak: commands, p50_us, p99_us, lag_ms, memory_kib, leader }
        };
        let second = point(&found.latency.since(&self.second_ago), second_us);
        push(&mut self.seconds, SECONDS, second);
        let minute = Joined::with(self.minute.take(), second);
        if ends_minute {
            let exact = point(&found.latency.since(&self.minute_ago), minute_us);
            let Point { commands, p50_us, p99_us, .. } = exact;
            push(&mut self.minutes, MINUTES, Point { commands, p50_us, p99_us, ..minute.point() });
            self.minute_ago = found.latency.clone();
        } else {
            self.minute = Some(minute);
        }
        self.second_ago = found.latency;
    }
}

/// Points that are shown as one. Percentiles cannot be added up, so the worst one counts; the rate is the mean.
#[derive(Clone, Copy, Debug)]
struct Joined {
    point: Point,
    sum: f32,
    count: f32,
}

impl Joined {
    fn with(earlier: Option<Joined>, later: Point) -> Joined {
        let Some(Joined { point, sum, count }) = earlier else {
            return Joined { point: later, sum: later.commands, count: 1.0 };
        };
        let point = Point {
            peak: point.peak.max(later.peak),
            p50_us: point.p50_us.max(later.p50_us),
            p99_us: point.p99_us.max(later.p99_us),
            lag_ms: point.lag_ms.max(later.lag_ms),
            memory_kib: point.memory_kib.max(later.memory_kib),
            leader: if point.leader == 0 { 0 } else { later.leader },
            ..point
        };
        Joined { point, sum: sum + later.commands, count: count + 1.0 }
    }

    fn point(&self) -> Point {
        Point { commands: self.sum / self.count, ..self.point }
    }
}

/// The steps of a reply.
#[derive(Clone, Copy)]
struct Steps {
    end_s: u64,
    step_s: u64,
    count: u64,
}

impl Steps {
    fn columns(self, points: impl Iterator<Item = Point>) -> Columns {
        let mut steps: Vec<Option<Joined>> = vec![None; self.count as usize];
        for point in points {
            let before_end = self.end_s.saturating_sub(u64::from(point.at_s) + 1) / self.step_s;
            let Some(step) =
                self.count.checked_sub(before_end + 1).and_then(|place| steps.get_mut(place as usize))
            else {
                continue;
            };
            *step = Some(Joined::with(step.take(), point));
        }
        let mut columns = Columns::default();
        for step in steps {
            let point = step.as_ref().map(Joined::point);
            let is_busy = point.filter(|point| point.peak > 0.0);
            columns.commands.push(point.map(|point| short(point.commands)));
            columns.peak.push(point.map(|point| short(point.peak)));
            columns.p50_us.push(is_busy.map(|point| point.p50_us));
            columns.p99_us.push(is_busy.map(|point| point.p99_us));
            columns.lag_ms.push(point.map(|point| point.lag_ms));
            columns.memory.push(point.map(|point| u64::from(point.memory_kib) << 10));
            columns.leader.push(point.map(|point| point.leader));
        }
        columns
    }
}

/// A rate as it is shown: in hundredths below ten.
fn short(rate: f32) -> f32 {
    if rate < 10.0 { (rate * 100.0).round() / 100.0 } else { rate.round() }
}

fn second_of(monotonic_us: u64) -> u32 {
    // A process does not live for more than a hundred years.
    (monotonic_us / 1_000_000) as u32
}

fn push(ring: &mut VecDeque<Point>, most: usize, point: Point) {
    if ring.len() >= most {
        ring.pop_front();
    }
    ring.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::keyspace::KEYSPACES_MAX;

    /// A history of so many seconds, in each of which so many commands took so long.
    fn series(seconds: u32, commands: impl Fn(u32) -> u64, took_us: u64) -> Series {
        let (mut series, mut latency) = (Series::default(), Latencies::default());
        series.begin(latency.clone());
        for at_s in 0..seconds {
            (0..commands(at_s)).for_each(|_| latency.record(took_us));
            let found = Found { latency: latency.clone(), lag_ms: 5, memory: 4096, leader: Some(2) };
            series.note(found, at_s, [1_000_000, 60_000_000], at_s % 60 == 59);
        }
        series
    }

    #[test]
    fn a_day_is_kept_in_bounded_memory() {
        let series = series(MINUTES as u32 * 60 + 300, |_| 1, 100);
        assert_eq!((series.seconds.len(), series.minutes.len()), (SECONDS, MINUTES));
        assert!(series.minutes.len() >= 24 * 60 && series.seconds.len() >= 600);
        let rings = (series.seconds.capacity() + series.minutes.capacity()) * size_of::<Point>();
        assert_eq!((rings + 2 * 2048, SERIES_BYTES), (SERIES_BYTES, 100 << 10));
        assert_eq!(SERIES_BYTES * (1 + KEYSPACES_MAX), 6500 << 10, "that is on the page of the status");
        let (oldest, newest) = (series.minutes[0], series.minutes[MINUTES - 1]);
        assert_eq!(newest.at_s - oldest.at_s, (MINUTES as u32 - 1) * 60);
    }

    #[test]
    fn a_minute_has_the_rate_the_peak_and_the_percentiles_of_its_seconds() {
        let series = series(60, |at_s| if at_s == 30 { 600 } else { 0 }, 1000);
        let minute = series.minutes[0];
        assert_eq!((minute.commands, minute.peak, minute.at_s), (10.0, 600.0, 0));
        assert!((1000..=1125).contains(&minute.p50_us) && minute.p99_us == minute.p50_us, "{minute:?}");
        assert_eq!((minute.lag_ms, minute.memory_kib, minute.leader), (5, 4, 2));
        assert_eq!(series.seconds[29].p99_us, 0, "no command ended in that second");
    }

    #[test]
    fn steps_join_points_and_leave_gaps() {
        let points = [(0, 4.0, 1), (1, 8.0, 0), (2, 6.0, 1), (9, 1.0, 3)].map(|(at_s, commands, leader)| {
            Point { at_s, commands, peak: commands, leader, ..Point::default() }
        });
        let columns = Steps { end_s: 10, step_s: 2, count: 5 }.columns(points.into_iter());
        assert_eq!(columns.commands, [Some(6.0), Some(6.0), None, None, Some(1.0)]);
        assert_eq!(columns.peak, [Some(8.0), Some(6.0), None, None, Some(1.0)]);
        assert_eq!(columns.leader, [Some(0), Some(1), None, None, Some(3)], "0: there was none for a while");
        // What is older is left out.
        let columns = Steps { end_s: 10, step_s: 2, count: 1 }.columns(points.into_iter());
        assert_eq!(columns.commands, [Some(1.0)]);
    }
}
