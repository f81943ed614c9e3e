//! Commands on a key that holds a stream: entries in the order of their ids, and groups of consumers that read them.

use super::List;
use super::declaration::{Every, Needs, Part, family};
use crate::codec::{Malformed, Reader, Writer};
use crate::number::parse_integer;

/// The reply if something else stands where an id is expected.
pub const NOT_AN_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// The name of an entry: a Unix time in milliseconds, and a number that distinguishes entries of the same millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // Its doc names them.
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

/// Bytes of the longest id as text.
pub const ID_TEXT_BYTES: usize = 41;

impl StreamId {
    /// Before the first id that an entry can have.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The last id that an entry can have.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The next id, if there is one.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The id before this one, if there is one.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Parses `ms-seq`, or `ms` alone, which gets the given number.
    ///
    /// ```
    /// use kv::StreamId;
    /// assert_eq!(StreamId::parse(b"5-3", 0), Some(StreamId { ms: 5, seq: 3 }));
    /// assert_eq!(StreamId::parse(b"5", 7), Some(StreamId { ms: 5, seq: 7 }));
    /// assert_eq!(StreamId::parse(b"-", 0), None);
    /// ```
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<StreamId> {
        match text.iter().position(|byte| *byte == b'-') {
            Some(at) => Some(StreamId { ms: parse_part(&text[..at])?, seq: parse_part(&text[at + 1..])? }),
            None => Some(StreamId { ms: parse_part(text)?, seq: missing_seq }),
        }
    }

    /// Writes the id as text into `buffer`, and returns the part that was used.
    pub fn write(self, buffer: &mut [u8; ID_TEXT_BYTES]) -> &[u8] {
        let mut start = buffer.len();
        for (mut number, is_last) in [(self.seq, true), (self.ms, false)] {
            loop {
                start -= 1;
                buffer[start] = b'0' + (number % 10) as u8;
                number /= 10;
                if number == 0 {
                    break;
                }
            }
            if is_last {
                start -= 1;
                buffer[start] = b'-';
            }
        }
        &buffer[start..]
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.ms, self.seq)
    }
}

/// Parses one half of an id. As in Redis, leading zeros and a plus are allowed here.
fn parse_part(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_integer(text) {
        return u64::try_from(number).ok();
    }
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// The id that `XADD` requests for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// The time of the record, and the next free number (`*`).
    Next,
    /// The next free number of this millisecond (`ms-*`).
    NextAt(u64),
    /// This one.
    Given(StreamId),
}

impl NewId {
    /// Parses an id or one of the forms that stand for a new id.
    pub fn parse(text: &[u8]) -> Option<NewId> {
        match text {
            b"*" => Some(NewId::Next),
            [ms @ .., b'-', b'*'] => parse_part(ms).map(NewId::NextAt),
            _ => StreamId::parse(text, 0).map(NewId::Given),
        }
    }
}

/// Parses an end of a range of ids, and returns it as an inclusive end: `-`, `+`, an id, or `(` and an id that is excluded.
///
/// # Errors
/// Why it is invalid, in Redis's words.
pub fn parse_id_bound(text: &[u8], is_end: bool) -> Result<StreamId, &'static str> {
    let missing_seq = if is_end { u64::MAX } else { 0 };
    let id = |text| StreamId::parse(text, missing_seq).ok_or(NOT_AN_ID);
    match (text, is_end) {
        (b"-", _) => Ok(StreamId::MIN),
        (b"+", _) => Ok(StreamId::MAX),
        ([b'(', text @ ..], false) => id(text)?.next().ok_or("ERR invalid start ID for the interval"),
        ([b'(', text @ ..], true) => id(text)?.previous().ok_or("ERR invalid end ID for the interval"),
        _ => id(text),
    }
}

/// What becomes of the groups' references to entries that are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// They stay: the entries stay pending (`KEEPREF`).
    #[default]
    Keep,
    /// They are removed with the entries (`DELREF`).
    Remove,
    /// Entries that a group has not read and acknowledged are not removed (`ACKED`).
    Respect,
}

impl References {
    fn of(number: u8) -> Result<References, Malformed> {
        match number {
            0 => Ok(References::Keep),
            1 => Ok(References::Remove),
            2 => Ok(References::Respect),
            _ => Err(Malformed("an unknown way to treat references")),
        }
    }
}

impl<'a> Part<'a> for References {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u8(self as u8);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        References::of(reader.u8()?)
    }
}

/// `ENTRIESREAD` as a command's `entries_read` since level 2: that many, but no more than the stream has ever had.
pub fn at_most_added(entries_read: u64) -> i64 {
    (-2_i64).saturating_sub(i64::try_from(entries_read).unwrap_or(i64::MAX))
}

/// The number of entries that a group has read, from a command's `entries_read`; `added` is how many the stream has ever
/// had.
pub(crate) fn entries_read(entries_read: i64, added: u64) -> Option<u64> {
    match entries_read {
        -1 => None,
        0.. => Some(entries_read as u64),
        _ => Some(added.min((-2 - entries_read) as u64)),
    }
}

/// The number of deliveries as `XNACK` leaves it: as it is, or one less. Otherwise it becomes the number.
pub const SAME_DELIVERIES: i64 = -1;
/// See [`SAME_DELIVERIES`].
pub const ONE_DELIVERY_LESS: i64 = -2;

/// Which entries are removed from the front of a stream: those beyond a length, or before an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Whether the threshold is the smallest id that stays (`MINID`), not the number of entries that stay (`MAXLEN`).
    pub by_id: bool,
    /// Whether entries beyond the threshold may stay (`~`), because only whole nodes are removed.
    pub is_approximate: bool,
    /// Most entries to remove, if it is approximate; 0: no limit.
    pub limit: u32,
    /// Entries in a node (`stream-node-max-entries`), if it is approximate.
    pub node_entries: u32,
    /// Since level 2.
    pub references: References,
}

impl Trim {
    /// Whether each group is asked about each entry that is to be removed.
    fn asks_groups(self) -> bool {
        self.references != References::Keep
    }
}

impl<'a> Part<'a> for Trim {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.by_id) | (self.references as u8) << 1);
        out.put_bool(self.is_approximate);
        out.put_u32(self.limit);
        out.put_u32(self.node_entries);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (first, is_approximate) = (reader.u8()?, reader.bool()?);
        let (by_id, references) = (first & 1 == 1, References::of(first >> 1)?);
        Ok(Trim { by_id, is_approximate, limit: reader.u32()?, node_entries: reader.u32()?, references })
    }
}

/// Most entries that one command of a group delivers or claims, for example `XREADGROUP` without `COUNT`. Each becomes
/// pending, and until the command ends, its group serves no other command.
pub const DELIVERED_MAX: usize = 10_000;
/// Once such a command has this many bytes of entries, it stops.
pub const DELIVERED_BYTES_MAX: usize = 8 << 20;

family! {
    /// A command on streams. A stream may be empty. Ids and ends of ranges are texts; the lower end of a range comes first.
    StreamCommand needs(Needs::Stream) {
        // Reads.
        /// The number of entries (`XLEN`).
        Length = 1 "XLEN" Reads { key: &'a [u8] };
        /// The entries in a range of ids, at most `count` (`XRANGE`, `XREVRANGE`).
        Range = 2 (if is_reverse { "XREVRANGE" } else { "XRANGE" }) Reads {
            key: &'a [u8], ends: List<'a>, is_reverse: bool,
            count: Option<u64>,
        } walks(true) lists(true);
        /// The entries behind an id in each of several streams. `streams` has each key followed by its id, or `+` for the
        /// last entry. At most `count` entries per stream, unless that is 0 (`XREAD`).
        Read = 3 "XREAD" Reads { streams: List<'a>, count: u64 }
            keys(Every(streams, 2)) walks(true) lists(true);
        /// The number of pending entries of a group, and of each consumer (`XPENDING`).
        Pending = 4 "XPENDING" Reads { key: &'a [u8], group: &'a [u8] } walks(true) lists(true);
        /// Pending entries of a group, or of one consumer. `words` are the group, the two ends of a range of ids, and the
        /// consumer, if it is named (`XPENDING`).
        PendingRange = 5 "XPENDING" Reads { key: &'a [u8], words: List<'a>, min_idle_ms: u64, count: u64 }
            walks(true) lists(true);
        /// Facts about a stream (`XINFO STREAM`).
        Info = 6 "XINFO" Reads { key: &'a [u8] };
        /// Facts about a stream and all of its groups, with at most `count` entries of each list, or all for 0 (`XINFO
        /// STREAM … FULL`).
        InfoFull = 7 "XINFO" Reads { key: &'a [u8], count: u64 } walks(true) lists(true);
        /// Facts about the groups (`XINFO GROUPS`).
        InfoGroups = 8 "XINFO" Reads { key: &'a [u8] };
        /// Facts about the consumers of a group (`XINFO CONSUMERS`).
        InfoConsumers = 9 "XINFO" Reads { key: &'a [u8], group: &'a [u8] } walks(true);
        /// `Info` with what producers have sent. Since level 2, as the next three.
        Describe = 10 "XINFO" Reads { key: &'a [u8] };
        /// `InfoFull` with what producers have sent, and when each consumer last got an entry.
        DescribeFull = 11 "XINFO" Reads { key: &'a [u8], count: u64 } walks(true) lists(true);
        /// `InfoConsumers` with the time since each last got an entry.
        DescribeConsumers = 12 "XINFO" Reads { key: &'a [u8], group: &'a [u8] } walks(true);
        /// `InfoGroups` with the lag as Redis has known it since 7.4.
        DescribeGroups = 13 "XINFO" Reads { key: &'a [u8] };

        // Writes.
        /// Adds an entry and returns its id, then removes what is beyond the threshold, if requested. `words` are the id, a
        /// threshold, and the fields with their values (`XADD`).
        Add = 64 "XADD" Grows { key: &'a [u8], words: List<'a>, trim: Option<Trim>, if_present: bool }
            walks(trim.is_some_and(Trim::asks_groups)) event("xadd");
        /// Removes entries; returns how many existed (`XDEL`).
        Delete = 65 "XDEL" Frees { key: &'a [u8], ids: List<'a> } event("xdel");
        /// Removes the entries beyond a threshold; returns their number (`XTRIM`).
        Trim = 66 "XTRIM" Frees { key: &'a [u8], threshold: &'a [u8], trim: Trim }
            walks(trim.asks_groups()) event("xtrim");
        /// Sets the id of the last entry and, if given, the id of the last removed entry and the number of entries ever
        /// added (`XSETID`).
        SetId = 67 "XSETID" Changes { key: &'a [u8], ids: List<'a>, added: Option<u64> } event("xsetid");
        /// Creates a group that has read up to an id, and `entries_read` entries unless that is negative (`XGROUP CREATE`).
        CreateGroup = 68 "XGROUP" Grows {
            key: &'a [u8], group: &'a [u8], id: &'a [u8], entries_read: i64, makes_stream: bool,
        } event("xgroup-create");
        /// Sets the id up to which a group has read (`XGROUP SETID`).
        SetGroup = 69 "XGROUP" Changes { key: &'a [u8], group: &'a [u8], id: &'a [u8], entries_read: i64 }
            event("xgroup-setid");
        /// Removes a group; returns 1 or 0 (`XGROUP DESTROY`).
        DestroyGroup = 70 "XGROUP" Frees { key: &'a [u8], group: &'a [u8] } event("xgroup-destroy");
        /// Adds a consumer to a group; returns 1 or 0 (`XGROUP CREATECONSUMER`).
        CreateConsumer = 71 "XGROUP" Grows { key: &'a [u8], group: &'a [u8], consumer: &'a [u8] }
            event("xgroup-createconsumer");
        /// Removes a consumer and its pending entries; returns how many those were (`XGROUP DELCONSUMER`).
        DeleteConsumer = 72 "XGROUP" Frees { key: &'a [u8], group: &'a [u8], consumer: &'a [u8] }
            walks(true) event("xgroup-delconsumer");
        /// The entries that a group has not read yet, which become pending unless `acknowledges`; or those that are pending
        /// for a consumer. `streams` and `count` as in `Read` (`XREADGROUP`).
        ReadGroup = 73 "XREADGROUP" Changes {
            group: &'a [u8], consumer: &'a [u8], streams: List<'a>, count: u64, acknowledges: bool,
        } keys(Every(streams, 2)) walks(true) adds(Unforeseen);
        /// Ends the pending state of entries; returns how many were pending (`XACK`).
        Acknowledge = 74 "XACK" Frees { key: &'a [u8], group: &'a [u8], ids: List<'a> };
        /// Makes pending entries those of another consumer, if they were delivered at least `min_idle_ms` ago. `words` are
        /// the group, the consumer, an id up to which the group has at least read, and the ids of the entries. Their
        /// delivery time becomes `delivered_ms`, a Unix time, or that long ago if `is_idle`. Their number of deliveries
        /// becomes `deliveries`; if that is negative, it rises by one unless `only_ids`. With `is_forced`, entries that are
        /// not pending are claimed, too (`XCLAIM`).
        Claim = 75 "XCLAIM" Changes {
            key: &'a [u8],
            words: List<'a>,
            min_idle_ms: u64,
            delivered_ms: i64,
            deliveries: i64,
            is_idle: bool,
            is_forced: bool,
            only_ids: bool,
        };
        /// The same for the entries from an id on. `words` are the group, the consumer and that id (`XAUTOCLAIM`).
        ClaimRange = 76 "XAUTOCLAIM" Changes {
            key: &'a [u8], words: List<'a>, min_idle_ms: u64, count: u64, only_ids: bool,
        } walks(true);

        // Writes since level 2.
        /// Removes entries; returns for each id -1 if there is none, 1 if it was removed, and 2 if a group still needs it
        /// (`XDELEX`).
        DeleteWith = 77 "XDELEX" Frees { key: &'a [u8], ids: List<'a>, references: References }
            walks(true) event("xdel");
        /// Ends the pending state of entries in a group, and removes those; returns for each id -1 if it was not pending, 1 if
        /// the entry was removed, and 2 if another group still needs it (`XACKDEL`).
        AcknowledgeAndDelete = 78 "XACKDEL" Frees {
            key: &'a [u8], group: &'a [u8], ids: List<'a>, references: References,
        } walks(true) event("xdel");
        /// `ReadGroup`, before which the consumer gets the entries that have been pending for `claim_ms`, unless that is negative. It creates the
        /// consumer, and notes the attempt, even if there is nothing.
        Consume = 79 "XREADGROUP" Changes {
            group: &'a [u8], consumer: &'a [u8], streams: List<'a>, count: u32, acknowledges: bool,
            claim_ms: i64,
        } keys(Every(streams, 2)) walks(true) adds(Unforeseen);
        /// Makes pending entries those of no consumer, free to be claimed; returns how many were pending. `deliveries` is
        /// their new number of deliveries, [`SAME_DELIVERIES`] or [`ONE_DELIVERY_LESS`]. With `is_forced`, entries that are
        /// not pending become so (`XNACK`).
        Release = 80 "XNACK" Changes {
            key: &'a [u8], group: &'a [u8], ids: List<'a>, deliveries: i64, is_forced: bool,
        };
        /// `Add`, unless the producer has sent this entry before: then returns the id that it got. `words` are the id, a
        /// threshold, the producer, its name for the entry, and the fields with their values (`XADD … IDMP`).
        AddOnce = 81 "XADD" Grows { key: &'a [u8], words: List<'a>, trim: Option<Trim>, if_present: bool }
            walks(trim.is_some_and(Trim::asks_groups)) adds(More) event("xadd");
        /// Sets for how long, and how many of each producer, names of entries are remembered. If that changes something, all
        /// are forgotten (`XCFGSET`).
        Remember = 82 "XCFGSET" Changes { key: &'a [u8], duration_s: Option<u64>, most: Option<u64> };
        /// Remembers that a producer has sent an entry, which exists, under a name (`XIDMPRECORD`).
        Record = 83 "XIDMPRECORD" Grows { key: &'a [u8], producer: &'a [u8], name: &'a [u8], id: &'a [u8] }
            adds(More);
    }
}

impl<'a> StreamCommand<'a> {
    /// The most bytes of its streams that it reads or returns. `bytes_of` returns the size of a key, `bytes_between` that
    /// of the entries in a range of ids, and `pending_of` the number of a consumer's pending entries.
    pub(super) fn walked_bytes(
        &self,
        bytes_of: impl Fn(&[u8]) -> u64,
        bytes_between: impl Fn(&[u8], &[u8], &[u8]) -> u64,
        pending_of: impl Fn(&[u8], &[u8], &[u8]) -> u64,
    ) -> u64 {
        use StreamCommand::*;
        /// A guess: the usual size of an entry.
        const ENTRY_BYTES: u64 = 256;
        /// The cost of changing one pending entry.
        const PENDING_BYTES: u64 = 2048;
        let part = |bytes: u64, entries: u64, entry_bytes: u64| match entries {
            0 => bytes,
            entries => bytes.min(entries.saturating_mul(entry_bytes)),
        };
        let delivered = |count: u64| match count {
            0 => DELIVERED_MAX as u64,
            count => count.min(DELIVERED_MAX as u64),
        };
        match *self {
            Range { key, ends, count, .. } => {
                let mut ends = ends.iter();
                let (start, end) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
                part(bytes_between(key, start, end), count.unwrap_or(0), ENTRY_BYTES)
            }
            Read { streams, count } => streams
                .pairs()
                .map(|(key, id)| part(bytes_between(key, id, b"+"), count, ENTRY_BYTES))
                .fold(0, u64::saturating_add),
            ReadGroup { streams, count, .. } => streams
                .pairs()
                .map(|(key, _)| part(bytes_of(key).saturating_mul(32), delivered(count), PENDING_BYTES))
                .fold(0, u64::saturating_add),
            Consume { streams, count, claim_ms: ..0, .. } => streams
                .pairs()
                .map(|(key, _)| {
                    part(bytes_of(key).saturating_mul(32), delivered(count.into()), PENDING_BYTES)
                })
                .fold(0, u64::saturating_add),
            Consume { streams, .. } => {
                streams.pairs().map(|(key, _)| bytes_of(key).saturating_mul(32)).fold(0, u64::saturating_add)
            }
            ClaimRange { key, count, .. } => {
                part(bytes_of(key).saturating_mul(32), delivered(count), 4 * PENDING_BYTES)
            }
            PendingRange { key, min_idle_ms: 0, count, .. } => part(bytes_of(key), count.max(1), ENTRY_BYTES),
            DeleteConsumer { key, group, consumer } => {
                pending_of(key, group, consumer).saturating_mul(PENDING_BYTES)
            }
            Pending { key, .. } | PendingRange { key, .. } => bytes_of(key),
            InfoConsumers { key, .. } | DescribeConsumers { key, .. } => bytes_of(key),
            InfoFull { key, count: 0 } | DescribeFull { key, count: 0 } => bytes_of(key),
            InfoFull { key, count } | DescribeFull { key, count } => {
                part(bytes_of(key), count.saturating_mul(100), ENTRY_BYTES)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_and_formatted() {
        let id = |ms, seq| StreamId { ms, seq };
        for (text, expected) in [
            (&b"0-0"[..], Some(StreamId::MIN)),
            (b"18446744073709551615-18446744073709551615", Some(StreamId::MAX)),
            (b"7", Some(id(7, 9))),
            (b"007-+1", Some(id(7, 1))),
            (b"18446744073709551616", None),
            (b"-1", None),
            (b"1-", None),
            (b"-", None),
            (b"1--1", None),
            (b"1-2-3", None),
            (b"", None),
        ] {
            assert_eq!(StreamId::parse(text, 9), expected, "{}", text.escape_ascii());
        }
        for id in [StreamId::MIN, StreamId::MAX, id(1_700_000_000_000, 12)] {
            let mut buffer = [0; ID_TEXT_BYTES];
            assert_eq!(id.write(&mut buffer), id.to_string().as_bytes());
            assert_eq!(StreamId::parse(id.to_string().as_bytes(), 0), Some(id));
        }
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
        assert_eq!(NewId::parse(b"5-*"), Some(NewId::NextAt(5)));
        assert_eq!((NewId::parse(b"*"), NewId::parse(b"*-1")), (Some(NewId::Next), None));
    }

    #[test]
    fn ends_of_ranges_are_inclusive() {
        let id = |ms, seq| Ok(StreamId { ms, seq });
        assert_eq!(parse_id_bound(b"5", false), id(5, 0));
        assert_eq!(parse_id_bound(b"5", true), id(5, u64::MAX));
        assert_eq!(parse_id_bound(b"(5", false), id(5, 1));
        assert_eq!(parse_id_bound(b"(5-1", true), id(5, 0));
        assert_eq!(parse_id_bound(b"(0-0", true), Err("ERR invalid end ID for the interval"));
        assert_eq!(parse_id_bound(b"(-", false), Err(NOT_AN_ID));
    }
}
