//! Slow and large commands, and events: the entries of `SLOWLOG` and `COMMANDLOG`, and the events of `LATENCY`.
//!
//! A command's time lasts from the turn in which its request was read to its outcome: it includes ordering,
//! replication and the wait for the disk, since the client waits for these. The node reads no clock for it: both
//! times are those of turns. Only after a command that is known to take long the driver reads the clock once more,
//! since the command's own work would otherwise not be in its time. The intended wait of a command (`BLPOP`, `LOCK …
//! WAIT`, `WAIT`) is not slowness, and does not count.

use commands::introspection::key_positions;
use kv::number::parse_integer;
use kv::{Reply, ReplyBuffer};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use wire::resp::{Arguments, ArgumentsBuffer};

/// The most arguments of a request that are kept, and the most bytes of each; Redis's numbers.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// The most entries, whatever `slowlog-max-len` is. An entry has up to 8 KiB.
pub(crate) const ENTRIES_MAX: usize = 10_000;

/// How many seconds of an event are kept.
const SAMPLES_MAX: usize = 160;

/// How many rows a graph of `LATENCY GRAPH` has.
const GRAPH_ROWS: usize = 4;

/// Why a command is logged. Each has a log of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Slow,
    LargeRequest,
    LargeReply,
}

impl Reason {
    pub(crate) const ALL: [Reason; 3] = [Reason::Slow, Reason::LargeRequest, Reason::LargeReply];

    /// Reads the word of `COMMANDLOG`.
    pub(crate) fn parse(word: &[u8]) -> Option<Reason> {
        Some(match word.to_ascii_lowercase().as_slice() {
            b"slow" => Reason::Slow,
            b"large-request" => Reason::LargeRequest,
            b"large-reply" => Reason::LargeReply,
            _ => return None,
        })
    }
}

/// What a command has taken: its time in microseconds, and the bytes of its request and of its reply, in the order of
/// [`Reason::ALL`].
pub(crate) type Taken = [u64; Reason::ALL.len()];

/// The thresholds from which on commands are logged, and make events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// From this time on, in microseconds, it is looked at whether a command is to be noted. While large ones are logged: 0.
    looked_at_us: u64,
    /// Whether any commands are logged, with their arguments.
    is_logging: bool,
    /// `u64::MAX`: there is no log.
    logged: Taken,
    /// `latency-monitor-threshold`, in microseconds; `u64::MAX`: it is off.
    event_us: u64,
}

impl Thresholds {
    /// No command is noted.
    pub(crate) const NONE: Thresholds = Thresholds {
        looked_at_us: u64::MAX,
        is_logging: false,
        logged: [u64::MAX; Reason::ALL.len()],
        event_us: u64::MAX,
    };

    /// Those of the logs and of events; `u64::MAX`: none.
    pub(crate) fn new(logged: Taken, event_us: u64) -> Thresholds {
        let [slow_us, of_sizes @ ..] = logged;
        let logs_sizes = of_sizes.iter().any(|threshold| *threshold != u64::MAX);
        Thresholds {
            looked_at_us: if logs_sizes { 0 } else { slow_us.min(event_us) },
            is_logging: logs_sizes || slow_us != u64::MAX,
            logged,
            event_us,
        }
    }

    /// The same, but every command is looked at, and its arguments are kept until its outcome.
    pub(crate) fn looking_at_all(self) -> Thresholds {
        Thresholds { looked_at_us: 0, is_logging: true, ..self }
    }

    /// Whether all commands are logged.
    pub(crate) fn logs_all(&self) -> bool {
        self.logged.contains(&0)
    }

    /// Why a command that has taken this much is logged.
    pub(crate) fn reasons(&self, taken: &Taken) -> impl Iterator<Item = Reason> + use<> {
        let (taken, logged) = (*taken, self.logged);
        Reason::ALL.into_iter().filter(move |reason| taken[*reason as usize] >= logged[*reason as usize])
    }

    /// Whether a command that took this long is an event.
    pub(crate) fn makes_event(&self, took_us: u64) -> bool {
        took_us >= self.event_us
    }

    /// Whether commands are logged, with their arguments.
    #[inline]
    pub(crate) fn is_logging(&self) -> bool {
        self.is_logging
    }

    /// Whether a command that took this long may be one to note: then [`Thresholds::reached`] decides.
    #[inline]
    pub(crate) fn may_be_reached(&self, took_us: u64) -> bool {
        took_us >= self.looked_at_us
    }

    /// Whether a command that has taken this much is to be noted.
    pub(crate) fn reached(&self, taken: &Taken) -> bool {
        self.makes_event(taken[0]) || self.reasons(taken).next().is_some()
    }
}

/// The arguments of a request, cut to what the log keeps: how many are kept, and how many are left out; for each that is kept,
/// its length and where its bytes begin; and these bytes. All numbers have four bytes. `is_secret` says which arguments must
/// not be shown; `None`: all may be.
///
/// This is done for each request that waits for its outcome, so a short one is copied as it lies in its buffer.
#[inline]
pub(crate) fn keep_arguments(
    arguments: Arguments<'_>,
    is_secret: Option<&dyn Fn(usize) -> bool>,
    out: &mut Vec<u8>,
) {
    /// Nearly all requests have fewer arguments.
    const FEW: usize = 8;
    match arguments.span() {
        Some((bytes, ranges))
            if bytes.len() <= ARGUMENT_BYTES_MAX && ranges.len() < FEW && is_secret.is_none() =>
        {
            let mut head = [0; 8 * FEW];
            let (numbers, _) = head.as_chunks_mut::<8>();
            numbers[0] = (ranges.len() as u64).to_le_bytes();
            let length = 8 + 8 * ranges.len();
            for (number, (start, end)) in numbers[1..].iter_mut().zip(ranges) {
                *number = (u64::from(end - start) | u64::from(start) << 32).to_le_bytes();
            }
            out.reserve(length + bytes.len());
            out.extend_from_slice(&head[..length]);
            out.extend_from_slice(bytes);
        }
        _ => keep_long_arguments(arguments, is_secret, out),
    }
}

#[cold]
fn keep_long_arguments(
    arguments: Arguments<'_>,
    is_secret: Option<&dyn Fn(usize) -> bool>,
    out: &mut Vec<u8>,
) {
    let count = arguments.len();
    // Redis's last argument is the number of those left out.
    let kept = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
    let mut put = |number: usize| out.extend_from_slice(&(number as u32).to_le_bytes());
    put(kept);
    put(count - kept);
    let mut bytes = Vec::new();
    for (place, argument) in arguments.iter().take(kept).enumerate() {
        let argument =
            if is_secret.is_some_and(|is_secret| is_secret(place)) { b"(redacted)" } else { argument };
        put(argument.len());
        put(bytes.len());
        bytes.extend_from_slice(&argument[..argument.len().min(ARGUMENT_BYTES_MAX)]);
    }
    out.extend_from_slice(&bytes);
}

/// The arguments of requests that wait for their outcomes, in a row. Adding and removing a request costs little more
/// than a copy of its bytes.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    /// Bytes before this are of requests that were removed.
    start: usize,
}

impl Kept {
    /// Adds the bytes that `keep` appends, and returns their number.
    #[inline]
    pub(crate) fn push(&mut self, keep: impl FnOnce(&mut Vec<u8>)) -> usize {
        /// Moving fewer bytes than this is not worthwhile.
        const MOVED_BYTES_MIN: usize = 4 << 10;
        // At most half is moved, so a byte is moved once on average.
        if self.start >= MOVED_BYTES_MIN && self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let before = self.bytes.len();
        keep(&mut self.bytes);
        self.bytes.len() - before
    }

    /// Removes the first bytes.
    #[inline]
    pub(crate) fn remove(&mut self, bytes: usize) {
        const RETAINED_BYTES_MAX: usize = 16 << 10;
        self.start += bytes;
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > RETAINED_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// This many bytes, from an offset on.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> &[u8] {
        &self.bytes[self.start + offset..][..bytes]
    }

    /// Bytes of all that is kept.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The arguments that [`keep_arguments`] has kept, as the log shows them.
fn shown_arguments(kept: &[u8]) -> Vec<Vec<u8>> {
    let (numbers, _) = kept.as_chunks::<4>();
    let number = |at: usize| numbers.get(at).map_or(0, |number| u32::from_le_bytes(*number) as usize);
    let (count, left_out) = (number(0), number(1));
    let bytes = kept.get(8 + 8 * count..).unwrap_or_default();
    let mut shown = Vec::new();
    for place in 1..=count {
        let (length, start) = (number(2 * place), number(2 * place + 1));
        let argument = bytes.get(start..start + length.min(ARGUMENT_BYTES_MAX));
        let mut argument = argument.unwrap_or_default().to_vec();
        if length > ARGUMENT_BYTES_MAX {
            let more = length - ARGUMENT_BYTES_MAX;
            argument.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
        }
        shown.push(argument);
    }
    if left_out > 0 {
        shown.push(format!("... ({left_out} more arguments)").into_bytes());
    }
    shown
}

/// The keys of a request whose arguments [`keep_arguments`] has kept, but those that were cut; none if
/// arguments are left out.
pub(crate) fn kept_keys(kept: &[u8]) -> Vec<Box<[u8]>> {
    let (numbers, _) = kept.as_chunks::<4>();
    let left_out = numbers.get(1).is_none_or(|number| *number != [0; 4]);
    let words: ArgumentsBuffer = shown_arguments(kept).iter().map(Vec::as_slice).collect();
    let words = words.as_arguments();
    let places = if left_out { Ok(Vec::new()) } else { key_positions(words) };
    let keys = places.unwrap_or_default().into_iter().filter_map(|place| words.get(place));
    keys.filter(|key| key.len() <= ARGUMENT_BYTES_MAX).map(Box::from).collect()
}

/// A slow or large command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) unix_s: u64,
    /// Its time in microseconds, or its bytes.
    pub(crate) taken: u64,
    /// See [`keep_arguments`].
    pub(crate) arguments: Vec<u8>,
    pub(crate) address: String,
    pub(crate) name: Vec<u8>,
}

/// The slow and large commands, and events.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    logs: [Log; Reason::ALL.len()],
    events: BTreeMap<&'static str, Event>,
}

/// The commands that were logged for one reason.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The newest first.
    entries: VecDeque<(u64, Entry)>,
    /// The number of the next entry.
    next: u64,
}

/// The times of a slow event.
#[derive(Debug, Default)]
struct Event {
    /// Seconds since the Unix epoch, and the most milliseconds of an event in that second. The oldest first.
    samples: VecDeque<(u64, u64)>,
    most_ms: u64,
}

impl Log {
    /// Adds an entry, and drops the oldest entries beyond `most`.
    pub(crate) fn add(&mut self, entry: Entry, most: usize) {
        self.entries.push_front((self.next, entry));
        self.next += 1;
        self.entries.truncate(most.min(ENTRIES_MAX));
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all entries.
    pub(crate) fn reset(&mut self) {
        self.entries.clear();
    }

    /// Answers `SLOWLOG GET` or `COMMANDLOG GET`, with at most `count` entries.
    pub(crate) fn get(&self, count: Option<&[u8]>, out: &mut ReplyBuffer) {
        let count = match count.map_or(Some(10), parse_integer) {
            Some(-1) => self.entries.len(),
            Some(count) if count >= 0 => self.entries.len().min(count as usize),
            _ => return out.error("ERR count should be greater than or equal to -1"),
        };
        out.array(count);
        for (number, entry) in self.entries.iter().take(count) {
            out.array(6);
            out.integer(*number as i64);
            out.integer(entry.unix_s as i64);
            out.integer(entry.taken as i64);
            let arguments = shown_arguments(&entry.arguments);
            out.array(arguments.len());
            arguments.iter().for_each(|argument| out.bulk(argument));
            out.bulk(entry.address.as_bytes());
            out.bulk(&entry.name);
        }
    }
}

impl Slow {
    /// The commands that were logged for a reason.
    pub(crate) fn log(&mut self, reason: Reason) -> &mut Log {
        &mut self.logs[reason as usize]
    }

    /// Notes that an event took long.
    pub(crate) fn note(&mut self, event: &'static str, unix_s: u64, took_ms: u64) {
        let event = self.events.entry(event).or_default();
        event.most_ms = event.most_ms.max(took_ms);
        match event.samples.back_mut() {
            Some((at, most)) if *at == unix_s => *most = took_ms.max(*most),
            _ => event.samples.push_back((unix_s, took_ms)),
        }
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
    }

    /// `LATENCY LATEST`.
    pub(crate) fn latest(&self, out: &mut ReplyBuffer) {
        out.array(self.events.len());
        for (name, event) in &self.events {
            let (at, took_ms) = event.samples.back().copied().unwrap_or_default();
            out.array(4);
            out.bulk(name.as_bytes());
            [at, took_ms, event.most_ms].into_iter().for_each(|number| out.integer(number as i64));
        }
    }

    /// `LATENCY HISTORY`.
    pub(crate) fn history(&self, name: &[u8], out: &mut ReplyBuffer) {
        let samples = self.event(name).map(|(_, event)| &event.samples);
        out.array(samples.map_or(0, VecDeque::len));
        for (at, took_ms) in samples.into_iter().flatten() {
            out.array(2);
            out.integer(*at as i64);
            out.integer(*took_ms as i64);
        }
    }

    /// `LATENCY RESET`: forgets these events, or all. Returns how many existed.
    pub(crate) fn reset_events<'a>(
        &mut self,
        names: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> usize {
        let before = self.events.len();
        let is_named = |event: &str| names.clone().any(|name| name.eq_ignore_ascii_case(event.as_bytes()));
        self.events.retain(|event, _| names.len() > 0 && !is_named(event));
        before - self.events.len()
    }

    fn event(&self, name: &[u8]) -> Option<(&&'static str, &Event)> {
        self.events.iter().find(|(event, _)| name.eq_ignore_ascii_case(event.as_bytes()))
    }

    /// `LATENCY GRAPH`: a column for each second that was kept, the newest at the right, with its age.
    pub(crate) fn graph(&self, name: &[u8], now_s: u64, out: &mut ReplyBuffer) {
        let Some((name, event)) = self.event(name) else {
            let name = String::from_utf8_lossy(name).into_owned();
            return out.error(&format!("ERR No samples available for event '{name}'"));
        };
        let times = event.samples.iter().map(|(_, took_ms)| *took_ms);
        let (least, most) = (times.clone().min().unwrap_or(0), times.clone().max().unwrap_or(0));
        let mut text =
            format!("{name} - high {most} ms, low {least} ms (all time high {} ms)\n", event.most_ms);
        let _ = writeln!(text, "{}", "-".repeat(80));
        for row in (0..GRAPH_ROWS as u64).rev() {
            let reaches = |took_ms: u64| (took_ms - least) * GRAPH_ROWS as u64 >= row * (most - least).max(1);
            let line: String =
                times.clone().map(|took_ms| if reaches(took_ms) { '#' } else { ' ' }).collect();
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let ages: Vec<String> = event.samples.iter().map(|(at, _)| age(now_s.saturating_sub(*at))).collect();
        for place in 0..ages.iter().map(String::len).max().unwrap_or(0) {
            let line: String = ages.iter().map(|age| age.chars().nth(place).unwrap_or(' ')).collect();
            let _ = writeln!(text, "{}", line.trim_end());
        }
        out.push(Reply::Text(text.as_bytes()));
    }

    /// `LATENCY DOCTOR`, as text for people.
    pub(crate) fn doctor(&self, thresholds: Thresholds, out: &mut ReplyBuffer) {
        let mut text = String::new();
        if thresholds.event_us == u64::MAX {
            text.push_str(
                "Nothing is watched: CONFIG SET latency-monitor-threshold gives the milliseconds from which on commands are \
                 noted.\n",
            );
        }
        if self.events.is_empty() {
            text.push_str("No command was noted.\n");
        }
        for (name, event) in &self.events {
            let times = || event.samples.iter().map(|(_, took_ms)| *took_ms);
            let count = event.samples.len().max(1) as u64;
            let mean = times().sum::<u64>() / count;
            let _ = writeln!(
                text,
                "{name}: {count} seconds with slow ones, {mean} ms on average, {} ms at most.",
                event.most_ms
            );
        }
        if !self.events.is_empty() {
            text.push_str(
                "A command's time goes from its request to its reply, so a slow disk, a slow link between nodes and a change of \
                 the leader are in it. SLOWLOG GET names the commands, INFO latencystats the usual times, and /metrics the \
                 times of syncs and of turns.\n",
            );
        }
        out.push(Reply::Text(text.as_bytes()));
    }
}

/// A time span in its greatest unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(arguments: &[&[u8]]) -> Vec<String> {
        let (mut kept, words) = (Vec::new(), arguments.iter().copied().collect::<ArgumentsBuffer>());
        let is_secret =
            (arguments[0] == b"AUTH").then_some(&(|place: usize| place > 0) as &dyn Fn(usize) -> bool);
        keep_arguments(words.as_arguments(), is_secret, &mut kept);
        shown_arguments(&kept).into_iter().map(|argument| String::from_utf8(argument).unwrap()).collect()
    }

    #[test]
    fn long_arguments_and_long_lists_of_them_are_cut_as_in_redis() {
        assert_eq!(shown(&[b"SET", b"", b"v"]), ["SET", "", "v"]);
        assert_eq!(shown(&[b"AUTH", b"secret"]), ["AUTH", "(redacted)"]);
        let long = [b'A'; 131];
        let cut = format!("{}... (3 more bytes)", "A".repeat(128));
        assert_eq!(shown(&[b"ECHO", &long[..128], &long]), ["ECHO", &"A".repeat(128), &cut]);
        assert_eq!(shown(&[&b"x"[..]; 32]).len(), 32);
        let many = shown(&[&b"x"[..]; 33]);
        assert_eq!((many.len(), many[30].as_str(), many[31].as_str()), (32, "x", "... (2 more arguments)"));
    }

    #[test]
    fn the_keys_of_a_kept_request_are_found_unless_they_were_cut() {
        let keys = |words: &[&[u8]]| {
            let (mut kept, words) = (Vec::new(), words.iter().copied().collect::<ArgumentsBuffer>());
            keep_arguments(words.as_arguments(), None, &mut kept);
            kept_keys(&kept)
        };
        let long = [b'l'; 129];
        assert_eq!(keys(&[b"MSET", b"a", b"1", &long, b"2"]), [Box::from(&b"a"[..])]);
        assert_eq!(keys(&[b"SET", b"k", &long]), [Box::from(&b"k"[..])]);
        let many: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain([&b"k"[..]; 40]).collect();
        assert!(keys(&many).is_empty() && keys(&[b"PING"]).is_empty() && kept_keys(&[]).is_empty());
    }

    #[test]
    fn requests_are_kept_in_a_row_while_others_are_removed() {
        let (mut kept, mut lengths) = (Kept::default(), VecDeque::new());
        for number in 0..20_000_usize {
            let bytes = kept.push(|out| out.extend(std::iter::repeat_n(number as u8, number % 40)));
            lengths.push_back((number as u8, bytes));
            while lengths.len() > number % 700 {
                let (first, bytes) = lengths.pop_front().unwrap();
                assert!(kept.part(0, bytes).iter().all(|byte| *byte == first));
                kept.remove(bytes);
            }
            let bytes: usize = lengths.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(kept.bytes.len() - kept.start, bytes);
            assert!(kept.start <= bytes + (8 << 10), "{} bytes are kept for nothing", kept.start);
        }
        assert!(kept.memory_bytes() > 0);
    }

    #[test]
    fn the_oldest_entries_are_dropped_and_numbers_go_on() {
        let mut log = Log::default();
        (0..5).for_each(|taken| log.add(Entry { taken, ..Entry::default() }, 3));
        let numbers = |log: &Log| log.entries.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!(numbers(&log), [4, 3, 2]);
        log.reset();
        log.add(Entry::default(), 3);
        assert_eq!(numbers(&log), [5]);
        log.add(Entry::default(), 0);
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn each_log_has_a_threshold_of_its_own() {
        let none = u64::MAX;
        let reasons = |thresholds: Thresholds, taken: Taken| thresholds.reasons(&taken).collect::<Vec<_>>();
        let slow = Thresholds::new([10, none, none], none);
        assert!(slow.may_be_reached(10) && !slow.may_be_reached(9) && slow.is_logging());
        assert_eq!(reasons(slow, [10, 1 << 30, 1 << 30]), [Reason::Slow]);
        let all = Thresholds::new([10, 20, 30], none);
        assert!(all.may_be_reached(0), "a large one may have taken no time");
        assert_eq!(reasons(all, [9, 20, 30]), [Reason::LargeRequest, Reason::LargeReply]);
        assert!(!all.reached(&[9, 19, 29]) && !all.logs_all());
        let events = Thresholds::new([none; 3], 5);
        assert!(events.reached(&[5, 0, 0]) && !events.reached(&[4, 99, 99]) && !events.is_logging());
        assert!(!Thresholds::NONE.may_be_reached(none - 1));
    }

    #[test]
    fn an_event_has_one_sample_a_second_and_the_latest_160() {
        let mut slow = Slow::default();
        for second in 0..200 {
            slow.note("command", second, 5);
            slow.note("command", second, 7);
            slow.note("command", second, 6);
        }
        let event = &slow.events["command"];
        assert_eq!((event.samples.len(), event.samples[0], event.most_ms), (SAMPLES_MAX, (40, 7), 7));
        slow.note("fast-command", 1, 1);
        assert_eq!(slow.reset_events([&b"nosuch"[..]].into_iter()), 0);
        assert_eq!(slow.reset_events([&b"Command"[..]].into_iter()), 1);
        assert_eq!(slow.reset_events([].into_iter()), 1);
    }
}
