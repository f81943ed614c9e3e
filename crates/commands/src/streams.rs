//! Parsing of the commands on streams.

use kv::command::{NOT_AN_ID, parse_id_bound};
use kv::limits::KEY_BYTES_MAX;
use kv::{Command, Kinds, List, NewId, StreamCommand, StreamId, Trim};
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
        let trim = Trim { by_id, is_approximate: self.is_approximate, limit, node_entries };
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
    if NewId::parse(new_id) == Some(NewId::Given(StreamId::MIN)) {
        return Err(CommandError::OfStream("ERR The ID specified in XADD must be greater than 0-0"));
    }
    for index in id_at + 1..arguments.len() {
        value(arguments, index, context)?;
    }
    let threshold = trim.map_or(&b""[..], |(_, threshold)| threshold);
    let words = [new_id, threshold].into_iter().chain(arguments.iter().skip(id_at + 1));
    stream(StreamCommand::Add {
        key: key(arguments, 1)?,
        words: List::build(scratch, words),
        trim: trim.map(|(trim, _)| trim),
        if_present: options.if_present,
    })
}

pub(super) fn xtrim<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (options, _) = AddOptions::read(arguments, false)?;
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
    /// How long to wait if there is nothing, in milliseconds; 0: forever.
    block_ms: Option<u64>,
    /// The index of the first key. The ids follow the keys.
    streams_at: usize,
}

impl<'a> ReadOptions<'a> {
    fn read(arguments: Arguments<'a>, is_group: bool) -> Result<ReadOptions<'a>, CommandError> {
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
                    return Err(CommandError::OfStream(
                        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                    ));
                }
                options.streams_at = index + 1;
                break;
            } else if is(option, "GROUP") && left > 1 {
                if !is_group {
                    return Err(CommandError::OnlyOfGroups("GROUP"));
                }
                options.group = Some((name(arguments, index + 1)?, name(arguments, index + 2)?));
                index += 2;
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
    let options = ReadOptions::read(arguments, is(at(arguments, 0), "XREADGROUP")).ok()?;
    let most_us = |ms: u64| if ms == 0 { u64::MAX } else { ms.saturating_mul(1000) };
    options.block_ms.map(most_us)
}

pub(super) fn xread<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let options = ReadOptions::read(arguments, false)?;
    let first_id = options.streams_at + (arguments.len() - options.streams_at) / 2;
    if context.level < 2 && arguments.iter().skip(first_id).any(|id| id == b"+") {
        return Err(CommandError::NeedsLevel(2));
    }
    stream(StreamCommand::Read { streams: options.streams(arguments, scratch)?, count: options.count })
}

pub(super) fn xreadgroup<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let options = ReadOptions::read(arguments, true)?;
    let missing = CommandError::OfStream("ERR Missing GROUP option for XREADGROUP");
    let (group, consumer) = options.group.ok_or(missing)?;
    let (count, acknowledges) = (options.count, options.acknowledges);
    let streams = options.streams(arguments, scratch)?;
    stream(StreamCommand::ReadGroup { group, consumer, streams, count, acknowledges })
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

pub(super) fn xpending<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
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
    // `start end count [consumer]`
    if !(3..=4).contains(&(arguments.len() - first)) {
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
fn group_options(arguments: Arguments<'_>, is_create: bool) -> Result<(i64, bool), CommandError> {
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
    Ok((entries_read, makes_stream))
}

pub(super) fn create_group<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (entries_read, makes_stream) = group_options(arguments, true)?;
    let (key, group, id) = (key(arguments, 2)?, name(arguments, 3)?, at(arguments, 4));
    stream(StreamCommand::CreateGroup { key, group, id, entries_read, makes_stream })
}

pub(super) fn set_group<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (entries_read, _) = group_options(arguments, false)?;
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

pub(super) fn stream_facts<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    /// How many entries and pending entries of each list are returned by default, so that nothing takes long by accident.
    const USUAL_COUNT: u64 = 10;
    let key = key(arguments, 2)?;
    let looks = Looks::at(2, Kinds::STREAM).or(NO_SUCH_KEY);
    let count = match arguments.len() {
        3 => return stream(StreamCommand::Info { key }),
        4 if is(at(arguments, 3), "FULL") => USUAL_COUNT,
        6 if is(at(arguments, 3), "FULL") && is(at(arguments, 4), "COUNT") => {
            u64::try_from(looks.then(integer(arguments, 5))?).unwrap_or(USUAL_COUNT)
        }
        _ => return looks.then(Err(misused("XINFO", arguments))),
    };
    stream(StreamCommand::InfoFull { key, count })
}

parsers! { (arguments, scratch, context)
    group_facts => stream(StreamCommand::InfoGroups { key: key(arguments, 2)? });
    consumer_facts =>
        stream(StreamCommand::InfoConsumers { key: key(arguments, 2)?, group: name(arguments, 3)? });
}
