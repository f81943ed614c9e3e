//! Parsing of the commands on streams.

use kv::command::{NOT_AN_ID, ONE_DELIVERY_LESS, References, SAME_DELIVERIES, at_most_added, parse_id_bound};
use kv::limits::KEY_BYTES_MAX;
use kv::{Command, Kinds, List, NewId, StreamCommand, StreamId, Trim};
use sha2::{Digest, Sha256};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, parsers, value};
use super::error::printable;
use super::later::{Looks, NO_SUCH_KEY};
use super::{CommandError, Context};

fn stream(command: StreamCommand<'_>) -> Parsed<'_> {
    Ok(Command::OnStream(command))
}

/// An integer that counts as 0 if it is negative.
fn at_least_zero(arguments: Arguments<'_>, index: usize) -> Result<u64, CommandError> {
    integer(arguments, index).map(|number| number.max(0) as u64)
}

fn id(text: &[u8]) -> Result<StreamId, CommandError> {
    StreamId::parse(text, 0).ok_or(CommandError::OfStream(NOT_AN_ID))
}

/// The name of a group or a consumer.
fn name(arguments: Arguments<'_>, index: usize) -> Result<&[u8], CommandError> {
    let name = at(arguments, index);
    if name.len() > KEY_BYTES_MAX { Err(CommandError::GroupNameTooLong(name.len())) } else { Ok(name) }
}

/// The options of `XADD` and `XTRIM`.
#[derive(Default)]
struct AddOptions<'a> {
    /// The threshold as text, and whether it is an id.
    threshold: Option<(&'a [u8], bool)>,
    is_approximate: bool,
    limit: Option<u64>,
    if_present: bool,
    references: Option<References>,
    /// The producer, and its name for the entry unless that follows from the fields.
    producer: Option<(&'a [u8], Option<&'a [u8]>)>,
}

/// What becomes of references to removed entries.
fn references(option: &[u8]) -> Option<References> {
    match option {
        keep if is(keep, "KEEPREF") => Some(References::Keep),
        remove if is(remove, "DELREF") => Some(References::Remove),
        respect if is(respect, "ACKED") => Some(References::Respect),
        _ => None,
    }
}

/// What nodes of release 1 do not know.
fn needs_second_level(context: &Context) -> Result<(), CommandError> {
    if context.level < 2 { Err(CommandError::NeedsLevel(2)) } else { Ok(()) }
}

impl<'a> AddOptions<'a> {
    /// Reads the options, for `XADD` up to its id. Returns also the index after them.
    fn read(arguments: Arguments<'a>, is_add: bool) -> Result<(AddOptions<'a>, usize), CommandError> {
        let (mut options, mut index) = (AddOptions::default(), 2);
        while let Some(option) = arguments.get(index) {
            let left = arguments.len() - index - 1;
            let by_id = is(option, "MINID");
            if is_add && option == b"*" {
                break;
            } else if (by_id || is(option, "MAXLEN")) && left > 0 {
                if options.threshold.is_some() {
                    return Err(CommandError::OfStream(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let sign = at(arguments, index + 1);
                options.is_approximate = left > 1 && sign == b"~";
                index += 1 + usize::from(left > 1 && (sign == b"~" || sign == b"="));
                if by_id {
                    id(at(arguments, index))?;
                } else if integer(arguments, index)? < 0 {
                    return Err(CommandError::OfStream("ERR The MAXLEN argument must be >= 0."));
                }
                options.threshold = Some((at(arguments, index), by_id));
            } else if is(option, "LIMIT") && left > 0 {
                index += 1;
                let limit = u64::try_from(integer(arguments, index)?);
                let limit =
                    limit.map_err(|_| CommandError::OfStream("ERR The LIMIT argument must be >= 0."))?;
                options.limit = Some(limit);
            } else if is_add && is(option, "NOMKSTREAM") {
                options.if_present = true;
            } else if let Some(references) = references(option) {
                if options.references.is_some() {
                    return Err(CommandError::Syntax);
                }
                options.references = Some(references);
            } else if is_add && (is(option, "IDMP") && left > 1 || is(option, "IDMPAUTO") && left > 0) {
                let is_named = is(option, "IDMP");
                if options.producer.is_some() {
                    return Err(CommandError::OfStream("ERR IDMP/IDMPAUTO specified multiple times"));
                }
                let producer = name(arguments, index + 1)?;
                let entry = if is_named { Some(name(arguments, index + 2)?) } else { None };
                if producer.is_empty() || entry == Some(b"") {
                    return Err(CommandError::OfStream(match (is_named, producer.is_empty()) {
                        (true, true) => "ERR IDMP requires a non-empty producer ID",
                        (true, false) => "ERR IDMP requires a non-empty idempotent ID",
                        _ => "ERR IDMPAUTO requires a non-empty producer ID",
                    }));
                }
                options.producer = Some((producer, entry));
                index += 1 + usize::from(is_named);
            } else if is_add {
                NewId::parse(option).ok_or(CommandError::OfStream(NOT_AN_ID))?;
                break;
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        Ok((options, index))
    }

    /// What to trim, if anything, and the threshold as text.
    fn trim(&self, is_add: bool, context: &Context) -> Result<Option<(Trim, &'a [u8])>, CommandError> {
        /// At most this many nodes of a stream are removed at a time, unless `LIMIT` says otherwise.
        const NODES: u32 = 100;
        const USUAL_NODE_ENTRIES: u32 = 100;
        let Some((threshold, by_id)) = self.threshold else {
            return match self.limit {
                Some(limit) if limit > 0 => Err(CommandError::OfStream(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                )),
                _ if !is_add => Err(CommandError::OfStream(
                    "ERR syntax error, XTRIM must be called with at least one trimming strategy",
                )),
                Some(_) => Err(CommandError::OfStream(LIMIT_WITHOUT_TILDE)),
                None => Ok(None),
            };
        };
        if self.limit.is_some() && !self.is_approximate {
            return Err(CommandError::OfStream(LIMIT_WITHOUT_TILDE));
        }
        let node_entries = match context.stream_node_entries {
            0 => USUAL_NODE_ENTRIES,
            entries => entries,
        };
        let limit = match self.limit {
            _ if !self.is_approximate => 0,
            Some(limit) => u32::try_from(limit).unwrap_or(u32::MAX),
            None => node_entries.saturating_mul(NODES).min(1_000_000),
        };
        let references = self.references.unwrap_or_default();
        let trim = Trim { by_id, is_approximate: self.is_approximate, limit, node_entries, references };
        Ok(Some((trim, threshold)))
    }
}

const LIMIT_WITHOUT_TILDE: &str = "ERR syntax error, LIMIT cannot be used without the special ~ option";

pub(super) fn xadd<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (options, id_at) = AddOptions::read(arguments, true)?;
    let trim = options.trim(true, context)?;
    let fields = arguments.len().saturating_sub(id_at + 1);
    if fields < 2 || !fields.is_multiple_of(2) {
        return Err(CommandError::WrongArity("xadd"));
    }
    let new_id = at(arguments, id_at);
    if options.producer.is_some() && new_id != b"*" {
        return Err(CommandError::OfStream("ERR IDMP/IDMPAUTO can be used only with auto-generated IDs"));
    }
    if options.producer.is_some() || options.references.is_some() {
        needs_second_level(context)?;
    }
    if NewId::parse(new_id) == Some(NewId::Given(StreamId::MIN)) {
        return Err(CommandError::OfStream("ERR The ID specified in XADD must be greater than 0-0"));
    }
    for index in id_at + 1..arguments.len() {
        value(arguments, index, context)?;
    }
    let threshold = trim.map_or(&b""[..], |(_, threshold)| threshold);
    let (key, trim, if_present) = (key(arguments, 1)?, trim.map(|(trim, _)| trim), options.if_present);
    if let Some((producer, entry)) = options.producer {
        let own = name_of_fields(arguments, id_at + 1, entry.is_none());
        let first = [new_id, threshold, producer, entry.unwrap_or(&own)];
        let words = List::build(scratch, first.into_iter().chain(arguments.iter().skip(id_at + 1)));
        return stream(StreamCommand::AddOnce { key, words, trim, if_present });
    }
    let words = [new_id, threshold].into_iter().chain(arguments.iter().skip(id_at + 1));
    let words = List::build(scratch, words);
    stream(StreamCommand::Add { key, words, trim, if_present })
}

/// A name for an entry that follows from its fields, in whatever order they are; empty if it is not wanted.
fn name_of_fields(arguments: Arguments<'_>, first: usize, is_wanted: bool) -> Vec<u8> {
    const NAME_BYTES: usize = 16;
    if !is_wanted {
        return Vec::new();
    }
    let mut fields: Vec<(&[u8], &[u8])> = (first..arguments.len().saturating_sub(1))
        .step_by(2)
        .map(|index| (at(arguments, index), at(arguments, index + 1)))
        .collect();
    fields.sort_unstable();
    let mut hash = Sha256::new();
    for (name, value) in fields {
        for word in [name, value] {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word);
        }
    }
    hash.finalize()[..NAME_BYTES].to_vec()
}

pub(super) fn xtrim<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (options, _) = AddOptions::read(arguments, false)?;
    if options.references.is_some() {
        needs_second_level(context)?;
    }
    let (trim, threshold) = options.trim(false, context)?.ok_or(CommandError::Syntax)?;
    stream(StreamCommand::Trim { key: key(arguments, 1)?, threshold, trim })
}

pub(super) fn xlen<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    stream(StreamCommand::Length { key: key(arguments, 1)? })
}

pub(super) fn xdel<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    stream(StreamCommand::Delete { key, ids: List::build(scratch, arguments.iter().skip(2)) })
}

/// `IDS numids id …`, and what may stand before and behind it.
struct NumberedIds<'a> {
    ids: Vec<&'a [u8]>,
    references: References,
    deliveries: Option<i64>,
    is_forced: bool,
}

impl<'a> NumberedIds<'a> {
    /// Reads the arguments from an index on. Those of `XNACK` have other options.
    fn read(
        arguments: Arguments<'a>,
        mut index: usize,
        is_nack: bool,
        context: &Context,
    ) -> Result<NumberedIds<'a>, CommandError> {
        needs_second_level(context)?;
        let (mut ids, mut given, mut deliveries, mut is_forced) = (Vec::new(), None, None, false);
        while let Some(option) = arguments.get(index) {
            let left = arguments.len() - index - 1;
            if is(option, "IDS") && left > 0 && ids.is_empty() {
                let count = integer(arguments, index + 1).ok().filter(|count| *count > 0);
                let count =
                    count.ok_or(CommandError::OfStream("ERR Number of IDs must be a positive integer"))?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if count > left - 1 {
                    return Err(CommandError::OfStream(
                        "ERR The `numids` parameter must match the number of arguments",
                    ));
                }
                ids = arguments.iter().skip(index + 2).take(count).collect();
                ids.iter().try_for_each(|text| id(text).map(drop))?;
                index += 1 + count;
            } else if is_nack && is(option, "RETRYCOUNT") && left > 0 {
                index += 1;
                deliveries = Some(integer(arguments, index)?);
                if deliveries < Some(0) {
                    return Err(CommandError::OfStream("ERR RETRYCOUNT must be >= 0"));
                }
            } else if is_nack && is(option, "FORCE") {
                is_forced = true;
            } else {
                match references(option).filter(|_| !is_nack && given.is_none()) {
                    None => return Err(CommandError::Syntax),
                    references => given = references,
                }
            }
            index += 1;
        }
        if ids.is_empty() {
            return Err(CommandError::Syntax);
        }
        Ok(NumberedIds { ids, references: given.unwrap_or_default(), deliveries, is_forced })
    }
}

pub(super) fn xdelex<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let given = NumberedIds::read(arguments, 2, false, context);
    let NumberedIds { ids, references, .. } = Looks::at(1, Kinds::STREAM).then(given)?;
    let (key, ids) = (key(arguments, 1)?, List::build(scratch, ids));
    stream(StreamCommand::DeleteWith { key, ids, references })
}

pub(super) fn xackdel<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let given = NumberedIds::read(arguments, 3, false, context);
    let NumberedIds { ids, references, .. } = Looks::at(1, Kinds::STREAM).then(given)?;
    let (key, group) = (key(arguments, 1)?, name(arguments, 2)?);
    let ids = List::build(scratch, ids);
    stream(StreamCommand::AcknowledgeAndDelete { key, group, ids, references })
}

pub(super) fn xnack<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let by_mode = match at(arguments, 3) {
        silent if is(silent, "SILENT") => ONE_DELIVERY_LESS,
        fail if is(fail, "FAIL") => SAME_DELIVERIES,
        fatal if is(fatal, "FATAL") => i64::MAX,
        _ => return Err(CommandError::Syntax),
    };
    let NumberedIds { ids, deliveries, is_forced, .. } = NumberedIds::read(arguments, 4, true, context)?;
    let (key, group) = (key(arguments, 1)?, name(arguments, 2)?);
    let ids = List::build(scratch, ids);
    let deliveries = deliveries.unwrap_or(by_mode);
    stream(StreamCommand::Release { key, group, ids, deliveries, is_forced })
}

pub(super) fn xcfgset<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    needs_second_level(context)?;
    let (mut duration_s, mut most, mut index) = (None, None, 2);
    while let Some(option) = arguments.get(index) {
        let (is_duration, is_most) = (is(option, "IDMP-DURATION"), is(option, "IDMP-MAXSIZE"));
        if !(is_duration || is_most) || index + 1 == arguments.len() {
            return Err(CommandError::Syntax);
        }
        let number = integer(arguments, index + 1)?;
        let within = |most: i64, error| match number {
            1.. if number <= most => Ok(Some(number as u64)),
            _ => Err(CommandError::OfStream(error)),
        };
        if is_duration {
            duration_s = within(86_400, "ERR IDMP-DURATION must be between 1 and 86400 seconds")?;
        } else {
            most = within(10_000, "ERR IDMP-MAXSIZE must be between 1 and 10000 entries")?;
        }
        index += 2;
    }
    if duration_s.is_none() && most.is_none() {
        return Err(CommandError::OfStream("ERR At least one parameter must be specified"));
    }
    stream(StreamCommand::Remember { key: key(arguments, 1)?, duration_s, most })
}

/// Reads a name that `XADD … IDMP` would take.
fn name_of_sent<'a>(
    arguments: Arguments<'a>,
    index: usize,
    empty: &'static str,
) -> Result<&'a [u8], CommandError> {
    match name(arguments, index)? {
        b"" => Err(CommandError::OfStream(empty)),
        name => Ok(name),
    }
}

pub(super) fn xidmprecord<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    needs_second_level(context)?;
    id(at(arguments, 4))?;
    stream(StreamCommand::Record {
        key: key(arguments, 1)?,
        producer: name_of_sent(arguments, 2, "ERR producer ID must be non-empty")?,
        name: name_of_sent(arguments, 3, "ERR idempotent ID must be non-empty")?,
        id: at(arguments, 4),
    })
}

parsers! { (arguments, scratch, context)
    xrange => range(false, arguments, scratch);
    xrevrange => range(true, arguments, scratch);
}

/// Checks the two ends of a range of ids, the lower one first.
fn check_ends(start: &[u8], end: &[u8]) -> Result<(), CommandError> {
    parse_id_bound(start, false).map_err(CommandError::OfStream)?;
    parse_id_bound(end, true).map_err(CommandError::OfStream)?;
    Ok(())
}

fn range<'a>(is_reverse: bool, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    let (first, second) = (at(arguments, 2), at(arguments, 3));
    let (start, end) = if is_reverse { (second, first) } else { (first, second) };
    check_ends(start, end)?;
    let (mut count, mut index) = (None, 4);
    while let Some(option) = arguments.get(index) {
        if !is(option, "COUNT") || index + 1 == arguments.len() {
            return Err(CommandError::Syntax);
        }
        count = Some(at_least_zero(arguments, index + 1)?);
        index += 2;
    }
    let ends = List::build(scratch, [start, end]);
    stream(StreamCommand::Range { key: key(arguments, 1)?, ends, is_reverse, count })
}

/// The options of `XREAD` and `XREADGROUP`.
#[derive(Default)]
struct ReadOptions<'a> {
    group: Option<(&'a [u8], &'a [u8])>,
    count: u64,
    acknowledges: bool,
    /// For how long what is claimed must have been pending, in milliseconds.
    claim_ms: Option<i64>,
    /// How long to wait if there is nothing, in milliseconds; 0: forever.
    block_ms: Option<u64>,
    /// The index of the first key. The ids follow the keys.
    streams_at: usize,
}

impl<'a> ReadOptions<'a> {
    fn read(arguments: Arguments<'a>, is_group: bool, level: u32) -> Result<ReadOptions<'a>, CommandError> {
        let (mut options, mut index) = (ReadOptions::default(), 1);
        while let Some(option) = arguments.get(index) {
            let left = arguments.len() - index - 1;
            if is(option, "BLOCK") && left > 0 {
                index += 1;
                let timeout = integer(arguments, index)
                    .map_err(|_| CommandError::OfStream("ERR timeout is not an integer or out of range"))?;
                let timeout = u64::try_from(timeout);
                let timeout = timeout.map_err(|_| CommandError::OfStream("ERR timeout is negative"))?;
                options.block_ms = Some(timeout);
            } else if is(option, "COUNT") && left > 0 {
                index += 1;
                options.count = at_least_zero(arguments, index)?;
            } else if is(option, "STREAMS") && left > 0 {
                if !left.is_multiple_of(2) {
                    return Err(CommandError::OfStream(match (level, is_group) {
                        (..2, _) => {
                            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
                        }
                        (_, true) => {
                            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
                        }
                        (_, false) => {
                            "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
                        }
                    }));
                }
                options.streams_at = index + 1;
                break;
            } else if is(option, "GROUP") && left > 1 {
                if !is_group {
                    return Err(CommandError::OnlyOfGroups("GROUP"));
                }
                options.group = Some((name(arguments, index + 1)?, name(arguments, index + 2)?));
                index += 2;
            } else if is(option, "CLAIM") && left > 0 {
                if !is_group {
                    return Err(CommandError::OnlyOfGroups("CLAIM"));
                }
                index += 1;
                let claim_ms = integer(arguments, index).map_err(|_| {
                    CommandError::OfStream("ERR min-idle-time is not an integer or out of range")
                })?;
                if claim_ms < 0 {
                    return Err(CommandError::OfStream("ERR min-idle-time must be a positive integer"));
                }
                options.claim_ms = Some(claim_ms);
            } else if is(option, "NOACK") {
                if !is_group {
                    return Err(CommandError::OnlyOfGroups("NOACK"));
                }
                options.acknowledges = true;
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        if options.streams_at == 0 {
            return Err(CommandError::Syntax);
        }
        Ok(options)
    }

    /// The keys, each followed by its id.
    fn streams(&self, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Result<List<'a>, CommandError> {
        let count = (arguments.len() - self.streams_at) / 2;
        for index in self.streams_at..self.streams_at + count {
            key(arguments, index)?;
        }
        let pairs = (self.streams_at..self.streams_at + count)
            .flat_map(|index| [at(arguments, index), at(arguments, index + count)]);
        Ok(List::build(scratch, pairs))
    }
}

/// How long `XREAD` and `XREADGROUP` wait, if they do.
pub(super) fn wait(arguments: Arguments<'_>) -> Option<u64> {
    let options = ReadOptions::read(arguments, is(at(arguments, 0), "XREADGROUP"), 2).ok()?;
    let most_us = |ms: u64| if ms == 0 { u64::MAX } else { ms.saturating_mul(1000) };
    options.block_ms.map(most_us)
}

pub(super) fn xread<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let options = ReadOptions::read(arguments, false, context.level)?;
    let first_id = options.streams_at + (arguments.len() - options.streams_at) / 2;
    if arguments.iter().skip(first_id).any(|id| id == b"+") {
        needs_second_level(context)?;
    }
    stream(StreamCommand::Read { streams: options.streams(arguments, scratch)?, count: options.count })
}

pub(super) fn xreadgroup<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let options = ReadOptions::read(arguments, true, context.level)?;
    let missing = CommandError::OfStream("ERR Missing GROUP option for XREADGROUP");
    let (group, consumer) = options.group.ok_or(missing)?;
    let (count, acknowledges) = (options.count, options.acknowledges);
    let streams = options.streams(arguments, scratch)?;
    if context.level < 2 {
        return match options.claim_ms {
            None => stream(StreamCommand::ReadGroup { group, consumer, streams, count, acknowledges }),
            Some(_) => Err(CommandError::NeedsLevel(2)),
        };
    }
    let (count, claim_ms) = (u32::try_from(count).unwrap_or(u32::MAX), options.claim_ms.unwrap_or(-1));
    stream(StreamCommand::Consume { group, consumer, streams, count, acknowledges, claim_ms })
}

pub(super) fn xsetid<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let last = id(at(arguments, 2))?;
    let (mut added, mut removed, mut index) = (None, None, 3);
    while let Some(option) = arguments.get(index) {
        let argument = index + 1;
        if argument == arguments.len() {
            return Err(CommandError::Syntax);
        }
        if is(option, "ENTRIESADDED") {
            let negative = CommandError::OfStream("ERR entries_added must be positive");
            added = Some(u64::try_from(integer(arguments, argument)?).map_err(|_| negative)?);
        } else if is(option, "MAXDELETEDID") {
            let greatest = at(arguments, argument);
            if id(greatest)? > last {
                return Err(CommandError::OfStream(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            removed = Some(greatest);
        } else {
            return Err(CommandError::Syntax);
        }
        index += 2;
    }
    let ids = List::build(scratch, std::iter::once(at(arguments, 2)).chain(removed));
    stream(StreamCommand::SetId { key: key(arguments, 1)?, ids, added })
}

pub(super) fn xack<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, group) = (key(arguments, 1)?, name(arguments, 2)?);
    stream(StreamCommand::Acknowledge { key, group, ids: List::build(scratch, arguments.iter().skip(3)) })
}

pub(super) fn xpending<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let (key, group) = (key(arguments, 1)?, name(arguments, 2)?);
    if arguments.len() == 3 {
        return stream(StreamCommand::Pending { key, group });
    }
    if !(6..=9).contains(&arguments.len()) {
        return Err(CommandError::Syntax);
    }
    let (mut min_idle_ms, mut first) = (0, 3);
    if is(at(arguments, 3), "IDLE") {
        min_idle_ms = at_least_zero(arguments, 4)?;
        first = 5;
    }
    // `start end count [consumer]`. Redis ignores what follows; nodes of release 1 refuse it, in scripts too.
    let left = arguments.len() - first;
    if left < 3 || left > 4 && context.level < 2 {
        return Err(CommandError::Syntax);
    }
    let count = at_least_zero(arguments, first + 2)?;
    let (start, end) = (at(arguments, first), at(arguments, first + 1));
    check_ends(start, end)?;
    let words = [group, start, end].into_iter().chain(arguments.get(first + 3));
    stream(StreamCommand::PendingRange { key, words: List::build(scratch, words), min_idle_ms, count })
}

fn min_idle(arguments: Arguments<'_>, error: &'static str) -> Result<u64, CommandError> {
    at_least_zero(arguments, 4).map_err(|_| CommandError::OfStream(error))
}

pub(super) fn xclaim<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let looks = || Looks::at(1, Kinds::STREAM).with_group(2);
    let min_idle_ms = min_idle(arguments, "ERR Invalid min-idle-time argument for XCLAIM");
    let min_idle_ms = looks().then(min_idle_ms)?;
    let ids = arguments.iter().skip(5).take_while(|text| StreamId::parse(text, 0).is_some()).count();
    let (mut delivered_ms, mut is_idle, mut deliveries, mut last) = (0, true, -1, &b"0"[..]);
    let (mut is_forced, mut only_ids, mut index) = (false, false, 5 + ids);
    while let Some(option) = arguments.get(index) {
        let argument = index + 1;
        let number =
            |error| looks().then(integer(arguments, argument).map_err(|_| CommandError::OfStream(error)));
        let has_argument = argument < arguments.len();
        if is(option, "FORCE") {
            is_forced = true;
        } else if is(option, "JUSTID") {
            only_ids = true;
        } else if is(option, "IDLE") && has_argument {
            (delivered_ms, is_idle) = (number("ERR Invalid IDLE option argument for XCLAIM")?, true);
            index += 1;
        } else if is(option, "TIME") && has_argument {
            (delivered_ms, is_idle) = (number("ERR Invalid TIME option argument for XCLAIM")?, false);
            index += 1;
        } else if is(option, "RETRYCOUNT") && has_argument {
            deliveries = number("ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
            index += 1;
        } else if is(option, "LASTID") && has_argument {
            last = at(arguments, argument);
            looks().then(id(last))?;
            index += 1;
        } else {
            return looks().then(Err(CommandError::UnknownClaimOption(printable(option))));
        }
        index += 1;
    }
    let names = [name(arguments, 2)?, name(arguments, 3)?, last];
    let words = names.into_iter().chain(arguments.iter().skip(5).take(ids));
    stream(StreamCommand::Claim {
        key: key(arguments, 1)?,
        words: List::build(scratch, words),
        min_idle_ms,
        delivered_ms,
        deliveries,
        is_idle,
        is_forced,
        only_ids,
    })
}

pub(super) fn xautoclaim<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    /// Redis reserves memory for this many ids, so it refuses larger counts.
    const COUNT_MAX: i64 = i64::MAX / 16;
    let min_idle_ms = min_idle(arguments, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = at(arguments, 5);
    parse_id_bound(start, false).map_err(CommandError::OfStream)?;
    let (mut count, mut only_ids, mut index) = (100, false, 6);
    while let Some(option) = arguments.get(index) {
        if is(option, "COUNT") && index + 1 < arguments.len() {
            index += 1;
            let given = integer(arguments, index).ok().filter(|count| (1..=COUNT_MAX).contains(count));
            count = given.ok_or(CommandError::OfStream("ERR COUNT must be > 0"))? as u64;
        } else if is(option, "JUSTID") {
            only_ids = true;
        } else {
            return Err(CommandError::Syntax);
        }
        index += 1;
    }
    let words = List::build(scratch, [name(arguments, 2)?, name(arguments, 3)?, start]);
    stream(StreamCommand::ClaimRange { key: key(arguments, 1)?, words, min_idle_ms, count, only_ids })
}

fn misused(container: &'static str, arguments: Arguments<'_>) -> CommandError {
    CommandError::MisusedSubcommand { container, given: printable(at(arguments, 1)) }
}

/// The number after `ENTRIESREAD`, and whether there is `MKSTREAM`.
fn group_options(
    arguments: Arguments<'_>,
    is_create: bool,
    context: &Context,
) -> Result<(i64, bool), CommandError> {
    let (mut entries_read, mut makes_stream, mut index) = (-1, false, 5);
    while let Some(option) = arguments.get(index) {
        if is_create && is(option, "MKSTREAM") {
            makes_stream = true;
        } else if is(option, "ENTRIESREAD") && index + 1 < arguments.len() {
            index += 1;
            entries_read = integer(arguments, index)?;
            if entries_read < -1 {
                return Err(CommandError::OfStream("ERR value for ENTRIESREAD must be positive or -1"));
            }
        } else {
            return Err(misused("XGROUP", arguments));
        }
        index += 1;
    }
    // Options may be repeated, as long as there are no more arguments than for each option once.
    let most = if is_create { 8 } else { 7 };
    if arguments.len() > most {
        return Err(misused("XGROUP", arguments));
    }
    if context.level >= 2 && entries_read >= 0 {
        entries_read = at_most_added(entries_read as u64);
    }
    Ok((entries_read, makes_stream))
}

pub(super) fn create_group<'a>(
    arguments: Arguments<'a>,
    _: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let (entries_read, makes_stream) = group_options(arguments, true, context)?;
    let (key, group, id) = (key(arguments, 2)?, name(arguments, 3)?, at(arguments, 4));
    stream(StreamCommand::CreateGroup { key, group, id, entries_read, makes_stream })
}

pub(super) fn set_group<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (entries_read, _) = group_options(arguments, false, context)?;
    let (key, group, id) = (key(arguments, 2)?, name(arguments, 3)?, at(arguments, 4));
    stream(StreamCommand::SetGroup { key, group, id, entries_read })
}

pub(super) fn destroy_group<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    stream(StreamCommand::DestroyGroup { key: key(arguments, 2)?, group: name(arguments, 3)? })
}

pub(super) fn create_consumer<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, group, consumer) = (key(arguments, 2)?, name(arguments, 3)?, name(arguments, 4)?);
    stream(StreamCommand::CreateConsumer { key, group, consumer })
}

pub(super) fn delete_consumer<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, group, consumer) = (key(arguments, 2)?, name(arguments, 3)?, name(arguments, 4)?);
    stream(StreamCommand::DeleteConsumer { key, group, consumer })
}

pub(super) fn stream_facts<'a>(
    arguments: Arguments<'a>,
    _: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    /// How many entries and pending entries of each list are returned by default, so that nothing takes long by accident.
    const USUAL_COUNT: u64 = 10;
    let key = key(arguments, 2)?;
    let looks = Looks::at(2, Kinds::STREAM).or(NO_SUCH_KEY);
    let count = match arguments.len() {
        3 if context.level < 2 => return stream(StreamCommand::Info { key }),
        3 => return stream(StreamCommand::Describe { key }),
        4 if is(at(arguments, 3), "FULL") => USUAL_COUNT,
        6 if is(at(arguments, 3), "FULL") && is(at(arguments, 4), "COUNT") => {
            u64::try_from(looks.then(integer(arguments, 5))?).unwrap_or(USUAL_COUNT)
        }
        _ => return looks.then(Err(misused("XINFO", arguments))),
    };
    stream(match context.level {
        ..2 => StreamCommand::InfoFull { key, count },
        _ => StreamCommand::DescribeFull { key, count },
    })
}

parsers! { (arguments, scratch, context)
    group_facts => {
        let key = key(arguments, 2)?;
        stream(match context.level {
            ..2 => StreamCommand::InfoGroups { key },
            _ => StreamCommand::DescribeGroups { key },
        })
    };
    consumer_facts => {
        let (key, group) = (key(arguments, 2)?, name(arguments, 3)?);
        stream(match context.level {
            ..2 => StreamCommand::InfoConsumers { key, group },
            _ => StreamCommand::DescribeConsumers { key, group },
        })
    };
}
