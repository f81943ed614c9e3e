//! Hot keys: those whose requests take most of a node's time, or most traffic, while an operator has them
//! counted (`HOTKEYS`).
//!
//! Only while they are counted, the driver reads the clock around each request, and each answered request is
//! looked at, on the way of slow ones. Memory is bounded: of each metric a fixed number of keys is kept,
//! those with the most so far (*space saving*): a key that is new takes the place of the one with the least.
//! What the old one had is an upper bound of what the new one may have had before, and is not counted for it.
//! So a shown number is never more than what was measured.

use cluster::slots::{SLOTS, slot_of};
use kv::ReplyBuffer;
use kv::number::parse_integer;
use std::collections::BTreeMap;
use wire::resp::Arguments;

/// The most keys that are shown of a metric, and how many are kept for each that is shown.
const SHOWN_MAX: i64 = 64;
const KEPT_FOR_EACH: usize = 10;
const SHOWN_USUALLY: usize = 10;

/// A longer key counts in the sums, but is not kept.
pub(crate) const HOT_KEY_BYTES_MAX: usize = 1024;

/// The longest that keys are counted, in seconds.
const DURATION_S_MAX: i64 = 1_000_000;

/// What is counted: the time of requests in microseconds, and bytes of requests and replies.
const CPU: usize = 0;
const NET: usize = 1;
const METRICS: [&str; 2] = ["CPU", "NET"];

/// What a process had used when it was last measured, in microseconds of its own time and of the system's for
/// it.
pub(crate) type ProcessorTime = (u64, u64);

/// What is to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    counts: [bool; METRICS.len()],
    shown: usize,
    duration_us: Option<u64>,
    ratio: u64,
    /// In ascending order; `None`: all.
    slots: Option<Vec<u16>>,
}

impl Wanted {
    /// Reads `HOTKEYS START METRICS count [CPU] [NET] [COUNT k] [DURATION s] [SAMPLE ratio] [SLOTS count slot
    /// …]`.
    ///
    /// # Errors
    /// The text of Redis's error.
    pub(crate) fn parse(arguments: Arguments<'_>) -> Result<Wanted, String> {
        let is = |at: usize, word: &str| {
            arguments.get(at).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
        };
        let number = |at: usize, most: i64, error: &str| {
            let number = arguments.get(at).and_then(parse_integer);
            number.filter(|number| (1..=most).contains(number)).ok_or_else(|| error.to_owned())
        };
        if !is(2, "METRICS") || arguments.len() < 4 {
            return Err("ERR METRICS parameter is required".into());
        }
        let named = number(3, METRICS.len() as i64, "ERR METRICS count must be > 0 and <= 2")? as usize;
        let mut wanted =
            Wanted { counts: [false; 2], shown: SHOWN_USUALLY, duration_us: None, ratio: 1, slots: None };
        for at in 4..4 + named {
            if at >= arguments.len() {
                return Err("ERR METRICS count does not match number of metric types provided".into());
            }
            // Later versions may have more of them.
            let Some(metric) = (0..METRICS.len()).find(|metric| is(at, METRICS[*metric])) else { continue };
            if std::mem::replace(&mut wanted.counts[metric], true) {
                return Err(format!("ERR METRICS {} defined more than once!", METRICS[metric]));
            }
        }
        if !wanted.counts.contains(&true) {
            return Err("ERR METRICS no valid metrics passed. Supported: CPU|NET".into());
        }
        let mut at = 4 + named;
        while at < arguments.len() {
            if at + 1 == arguments.len() {
                return Err("ERR syntax error".into());
            }
            if is(at, "COUNT") {
                wanted.shown = number(at + 1, SHOWN_MAX, "ERR COUNT must be between 1 and 64")? as usize;
            } else if is(at, "DURATION") {
                let seconds = number(at + 1, DURATION_S_MAX, "ERR DURATION must be between 1 and 1000000")?;
                wanted.duration_us = Some(seconds as u64 * 1_000_000);
            } else if is(at, "SAMPLE") {
                wanted.ratio = number(at + 1, i32::MAX.into(), "ERR SAMPLE ratio must be positive")? as u64;
            } else if is(at, "SLOTS") {
                if wanted.slots.is_some() {
                    return Err("ERR SLOTS parameter already specified".into());
                }
                let count =
                    number(at + 1, SLOTS.into(), "ERR SLOTS count must be between 1 and 16384")? as usize;
                wanted.slots = Some(slots(arguments.skip(at + 2), count)?);
                at += count;
            } else {
                return Err("ERR syntax error".into());
            }
            at += 2;
        }
        Ok(wanted)
    }
}

fn slots(arguments: Arguments<'_>, count: usize) -> Result<Vec<u16>, String> {
    if arguments.len() < count {
        return Err("ERR not enough slot numbers provided".into());
    }
    let slot = |argument: &[u8]| {
        let slot = parse_integer(argument).and_then(|slot| u16::try_from(slot).ok());
        slot.filter(|slot| *slot < SLOTS).ok_or_else(|| "ERR Invalid or out of range slot".to_owned())
    };
    let mut slots = arguments.iter().take(count).map(slot).collect::<Result<Vec<_>, _>>()?;
    slots.sort_unstable();
    match slots.is_sorted_by(|one, next| one < next) {
        true => Ok(slots),
        false => Err("ERR duplicate slot number".into()),
    }
}

/// The keys with most of one metric so far.
#[derive(Debug, Default)]
struct Top {
    most: usize,
    keys: BTreeMap<Box<[u8]>, Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    /// What the key may have had.
    at_most: u64,
    /// How much of that another key had before.
    others: u64,
}

impl Top {
    fn add(&mut self, key: &[u8], amount: u64) {
        if let Some(counted) = self.keys.get_mut(key) {
            counted.at_most = counted.at_most.saturating_add(amount);
            return;
        }
        if amount == 0 || key.len() > HOT_KEY_BYTES_MAX {
            return;
        }
        let mut others = 0;
        if self.keys.len() >= self.most {
            let least = self.keys.iter().min_by_key(|(_, counted)| counted.at_most);
            let Some((least, counted)) = least.map(|(key, counted)| (key.clone(), *counted)) else { return };
            others = counted.at_most;
            self.keys.remove(&least);
        }
        self.keys.insert(key.into(), Counted { at_most: others.saturating_add(amount), others });
    }

    /// The first ones, with what was counted for each.
    fn first(&self, count: usize) -> Vec<(&[u8], u64)> {
        let counted = |counted: &Counted| counted.at_most - counted.others;
        let mut keys: Vec<_> = self.keys.iter().map(|(key, it)| (&**key, counted(it))).collect();
        keys.sort_by_key(|(_, amount)| std::cmp::Reverse(*amount));
        keys.truncate(count);
        keys
    }
}

/// Sums of one metric.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: u64,
    of_slots: u64,
    sampled: u64,
}

/// A request that has been taken and whose time is not known yet.
#[derive(Debug)]
struct Taken {
    keys: Vec<Box<[u8]>>,
    chosen: Chosen,
}

#[derive(Clone, Copy, Debug)]
struct Chosen {
    by_slot: bool,
    by_sample: bool,
}

/// Keys that are counted, or were.
#[derive(Debug)]
pub(crate) struct HotKeys {
    wanted: Wanted,
    tops: [Top; METRICS.len()],
    sums: [Sums; METRICS.len()],
    begun_us: u64,
    begun_unix_ms: u64,
    begun_used: ProcessorTime,
    /// `None`: they are being counted.
    ended_us: Option<u64>,
    /// When the clock was last read.
    read_us: u64,
    taken: Option<Taken>,
    /// Bytes of replies to the request that is being taken.
    replied: u64,
    draws: u64,
}

impl HotKeys {
    pub(crate) fn new(wanted: Wanted, now_us: u64, unix_ms: u64, used: ProcessorTime) -> HotKeys {
        let top = || Top { most: wanted.shown * KEPT_FOR_EACH, keys: BTreeMap::new() };
        HotKeys {
            tops: [top(), top()],
            sums: Default::default(),
            begun_us: now_us,
            begun_unix_ms: unix_ms,
            begun_used: used,
            ended_us: None,
            read_us: now_us,
            taken: None,
            replied: 0,
            draws: 0,
            wanted,
        }
    }

    /// Whether keys are being counted.
    pub(crate) fn is_active(&self) -> bool {
        self.ended_us.is_none()
    }

    pub(crate) fn stop(&mut self, now_us: u64) {
        self.took(now_us);
        self.ended_us.get_or_insert(now_us);
    }

    /// A request has been taken, whose keys are at these places.
    pub(crate) fn take(&mut self, request: Arguments<'_>, places: &[usize]) {
        self.take_time(0);
        let replied = std::mem::take(&mut self.replied);
        let keys: Vec<Box<[u8]>> =
            places.iter().filter_map(|place| request.get(*place)).map(Box::from).collect();
        if keys.is_empty() {
            return;
        }
        self.draws += 1;
        let chosen = Chosen {
            by_slot: self.has_slot(&keys[0]),
            by_sample: mixed(self.draws).is_multiple_of(self.wanted.ratio),
        };
        self.count(NET, &keys, chosen, request.extent() as u64 + replied);
        self.taken = Some(Taken { keys, chosen });
    }

    /// Bytes of a reply to the request that is being taken.
    pub(crate) fn reply(&mut self, bytes: usize) {
        self.replied += bytes as u64;
    }

    /// Bytes of a reply to an earlier request with these keys.
    pub(crate) fn reply_to(&mut self, keys: &[Box<[u8]>], bytes: usize) {
        if let Some(first) = keys.first() {
            self.draws += 1;
            let by_sample = mixed(self.draws).is_multiple_of(self.wanted.ratio);
            self.count(NET, keys, Chosen { by_slot: self.has_slot(first), by_sample }, bytes as u64);
        }
    }

    /// The clock was read: what was taken since the last reading has taken as long as that.
    pub(crate) fn took(&mut self, now_us: u64) {
        self.take_time(now_us.saturating_sub(self.read_us));
        self.read_us = now_us;
        self.replied = 0;
        if self.wanted.duration_us.is_some_and(|duration_us| now_us >= self.begun_us + duration_us) {
            self.ended_us.get_or_insert(now_us);
        }
    }

    fn take_time(&mut self, took_us: u64) {
        if let Some(Taken { keys, chosen }) = self.taken.take() {
            self.count(CPU, &keys, chosen, took_us);
        }
    }

    fn has_slot(&self, key: &[u8]) -> bool {
        self.wanted.slots.as_ref().is_none_or(|slots| slots.binary_search(&slot_of(key)).is_ok())
    }

    /// Counts what a request has used, in equal parts for its keys.
    fn count(&mut self, metric: usize, keys: &[Box<[u8]>], chosen: Chosen, amount: u64) {
        if !self.is_active() {
            return;
        }
        let sums = &mut self.sums[metric];
        sums.all += amount;
        sums.of_slots += if chosen.by_slot { amount } else { 0 };
        if !(chosen.by_slot && chosen.by_sample) {
            return;
        }
        sums.sampled += amount;
        if self.wanted.counts[metric] {
            let (part, rest) = (amount / keys.len() as u64, amount % keys.len() as u64);
            for (place, key) in keys.iter().enumerate() {
                self.tops[metric].add(key, part + u64::from((place as u64) < rest));
            }
        }
    }

    /// Answers `HOTKEYS GET`.
    pub(crate) fn get(&self, now_us: u64, used: ProcessorTime, out: &mut ReplyBuffer) {
        let Wanted { counts, shown, ratio, slots, .. } = &self.wanted;
        let [cpu, net] = self.sums;
        let (samples, selects) = (*ratio > 1, slots.is_some());
        let of_process =
            |now: u64, begun: u64| Some(now.saturating_sub(begun) / 1000).filter(|_| counts[CPU]);
        let lasted_us = self.ended_us.unwrap_or(now_us).saturating_sub(self.begun_us);
        let numbers = [
            ("sampled-commands-selected-slots-us", Some(cpu.sampled).filter(|_| samples && selects)),
            ("all-commands-selected-slots-us", Some(cpu.of_slots).filter(|_| selects)),
            ("all-commands-all-slots-us", Some(cpu.all)),
            ("net-bytes-sampled-commands-selected-slots", Some(net.sampled).filter(|_| samples && selects)),
            ("net-bytes-all-commands-selected-slots", Some(net.of_slots).filter(|_| selects)),
            ("net-bytes-all-commands-all-slots", Some(net.all)),
            ("collection-start-time-unix-ms", Some(self.begun_unix_ms)),
            ("collection-duration-ms", Some(lasted_us / 1000)),
            ("total-cpu-time-user-ms", of_process(used.0, self.begun_used.0)),
            ("total-cpu-time-sys-ms", of_process(used.1, self.begun_used.1)),
            ("total-net-bytes", Some(net.sampled).filter(|_| counts[NET])),
        ];
        let lists = [("by-cpu-time-us", CPU), ("by-net-bytes", NET)];
        let lists = lists.into_iter().filter(|(_, metric)| counts[*metric]);
        let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
        out.array(1);
        out.map(3 + numbers.clone().count() + lists.clone().count());
        out.bulk(b"tracking-active");
        out.integer(self.is_active().into());
        out.bulk(b"sample-ratio");
        out.integer(*ratio as i64);
        out.bulk(b"selected-slots");
        write_ranges(slots.as_deref(), out);
        for (name, number) in numbers {
            out.bulk(name.as_bytes());
            out.integer(i64::try_from(number).unwrap_or(i64::MAX));
        }
        for (name, metric) in lists {
            let first = self.tops[metric].first(*shown);
            out.bulk(name.as_bytes());
            out.array(2 * first.len());
            for (key, amount) in first {
                out.bulk(key);
                out.integer(i64::try_from(amount).unwrap_or(i64::MAX));
            }
        }
    }
}

/// Appends slots as ranges: of one slot its number, of more the first and the last one.
fn write_ranges(slots: Option<&[u16]>, out: &mut ReplyBuffer) {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    match slots {
        None => ranges.push((0, SLOTS - 1)),
        Some(slots) => {
            for slot in slots {
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == *slot => *last = *slot,
                    _ => ranges.push((*slot, *slot)),
                }
            }
        }
    }
    out.array(ranges.len());
    for (first, last) in ranges {
        out.array(if first == last { 1 } else { 2 });
        out.integer(first.into());
        if first != last {
            out.integer(last.into());
        }
    }
}

/// A number that looks like one drawn at random.
fn mixed(number: u64) -> u64 {
    let number = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c909)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::ArgumentsBuffer;

    fn words(line: &str) -> ArgumentsBuffer {
        line.split(' ').map(str::as_bytes).collect()
    }

    fn wanted(line: &str) -> Result<Wanted, String> {
        Wanted::parse(words(&format!("HOTKEYS START {line}")).as_arguments())
    }

    fn hot(line: &str) -> HotKeys {
        HotKeys::new(wanted(line).unwrap(), 1_000_000, 5_000, (0, 0))
    }

    fn first(hot: &HotKeys, metric: usize) -> Vec<(String, u64)> {
        let first = hot.tops[metric].first(hot.wanted.shown);
        first.into_iter().map(|(key, amount)| (String::from_utf8_lossy(key).into_owned(), amount)).collect()
    }

    /// The errors are those of redis-server 8.6.3.
    #[test]
    fn what_is_to_be_counted_is_read_as_in_redis() {
        let whole = wanted("metrics 2 net CPU count 64 duration 9 sample 7 slots 3 5 1 4").unwrap();
        let expected = Wanted {
            counts: [true, true],
            shown: 64,
            duration_us: Some(9_000_000),
            ratio: 7,
            slots: Some(vec![1, 4, 5]),
        };
        assert_eq!(whole, expected);
        assert_eq!(
            wanted("METRICS 2 GPU CPU").unwrap().counts,
            [true, false],
            "GPU may come with a later version"
        );
        for (line, error) in [
            ("COUNT 1", "METRICS parameter is required"),
            ("METRICS", "METRICS parameter is required"),
            ("METRICS 0 CPU", "METRICS count must be > 0 and <= 2"),
            ("METRICS 3 CPU NET", "METRICS count must be > 0 and <= 2"),
            ("METRICS 2 CPU", "METRICS count does not match number of metric types provided"),
            ("METRICS 1 GPU", "METRICS no valid metrics passed. Supported: CPU|NET"),
            ("METRICS 2 CPU CPU", "METRICS CPU defined more than once!"),
            ("METRICS 1 CPU NET", "syntax error"),
            ("METRICS 1 CPU COUNT", "syntax error"),
            ("METRICS 1 CPU COUNT 65", "COUNT must be between 1 and 64"),
            ("METRICS 1 CPU DURATION 0", "DURATION must be between 1 and 1000000"),
            ("METRICS 1 CPU SAMPLE 0", "SAMPLE ratio must be positive"),
            ("METRICS 1 CPU SLOTS 2 1", "not enough slot numbers provided"),
            ("METRICS 1 CPU SLOTS 2 1 1", "duplicate slot number"),
            ("METRICS 1 CPU SLOTS 1 16384", "Invalid or out of range slot"),
            ("METRICS 1 CPU SLOTS 1 1 SLOTS 1 2", "SLOTS parameter already specified"),
        ] {
            assert_eq!(wanted(line), Err(format!("ERR {error}")), "{line}");
        }
    }

    #[test]
    fn what_a_request_uses_is_divided_between_its_keys() {
        let mut hot = hot("METRICS 2 CPU NET");
        let request = words("MGET a b");
        hot.reply(11);
        hot.take(request.as_arguments(), &[1, 2]);
        hot.took(1_000_007);
        let bytes = request.as_arguments().extent() as u64 + 11;
        assert_eq!(first(&hot, CPU), [("a".into(), 4), ("b".into(), 3)]);
        assert_eq!(first(&hot, NET).iter().map(|(_, amount)| amount).sum::<u64>(), bytes);
        hot.reply_to(&[Box::from(&b"b"[..])], 100);
        assert_eq!(first(&hot, NET)[0].0, "b");
        // A request without keys takes no key's time.
        hot.take(words("PING").as_arguments(), &[]);
        hot.took(1_000_900);
        assert_eq!((hot.sums[CPU].all, hot.sums[NET].all), (7, bytes + 100));
        hot.stop(2_000_000);
        hot.take(request.as_arguments(), &[1, 2]);
        hot.took(2_000_007);
        assert_eq!((hot.sums[CPU].all, hot.is_active()), (7, false));
    }

    /// Memory stays bounded, frequent keys stay, and no key is shown with more than it had.
    #[test]
    fn hot_keys_are_found_among_many_others() {
        let mut hot = hot("METRICS 1 NET COUNT 2");
        let mut had = BTreeMap::new();
        for round in 0..3_000_u64 {
            let cold = format!("cold{}", mixed(round) % 2_000);
            let keys = ["hot1", &cold, if round % 2 == 0 { "hot2" } else { "hot1" }];
            for key in keys {
                *had.entry(key.to_owned()).or_insert(0) += 10;
                hot.reply_to(&[Box::from(key.as_bytes())], 10);
            }
        }
        let first = first(&hot, NET);
        assert_eq!(first.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["hot1", "hot2"]);
        assert!(
            first.iter().all(|(key, amount)| *amount <= had[key] && *amount * 10 > had[key] * 9),
            "{first:?}"
        );
        assert!(hot.tops[NET].keys.len() <= 20);
        let counted: u64 = hot.tops[NET].keys.values().map(|counted| counted.at_most).sum();
        assert_eq!(counted, hot.sums[NET].sampled);
        hot.reply_to(&[vec![b'x'; HOT_KEY_BYTES_MAX + 1].into()], 1 << 20);
        assert!(hot.tops[NET].keys.keys().all(|key| key.len() < 10), "a long key is not kept");
    }

    #[test]
    fn slots_and_samples_choose_requests_and_the_time_ends() {
        let slot = slot_of(b"a");
        let mut hot = hot(&format!("METRICS 1 NET SAMPLE 4 DURATION 1 SLOTS 1 {slot}"));
        for _ in 0..4_000 {
            for key in ["a", "b"] {
                hot.reply_to(&[Box::from(key.as_bytes())], 1);
            }
        }
        let Sums { all, of_slots, sampled } = hot.sums[NET];
        assert_eq!((all, of_slots), (8_000, 4_000));
        assert!((800..1_200).contains(&sampled), "{sampled} of 4,000");
        assert_eq!(first(&hot, NET), [("a".into(), sampled)]);
        hot.took(1_999_999);
        assert!(hot.is_active());
        hot.took(2_000_000);
        assert!(!hot.is_active());
    }
}
