//! Parsing of the commands on keys of any kind, and on the keyspace as a whole.

use kv::command::{FormerUse, Usage};
use kv::glob::PATTERN_BYTES_MAX;
use kv::{Answer, Command, Deadline, Kinds, RestoreOptions};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, parsers, value};
use super::later::Looks;
use super::strings::all_keys;
use super::{CommandError, Context};
use crate::DATABASES;

parsers! { (arguments, scratch, context)
    delete => Ok(Command::Delete { keys: all_keys(arguments, scratch)? });
    exists => Ok(Command::Exists { keys: all_keys(arguments, scratch)? });
    kind => Ok(Command::Type { key: key(arguments, 1)? });
    rename => Ok(Command::Rename { from: key(arguments, 1)?, to: key(arguments, 2)?, if_absent: false });
    renamenx => Ok(Command::Rename { from: key(arguments, 1)?, to: key(arguments, 2)?, if_absent: true });
    dump => Ok(Command::Dump { key: key(arguments, 1)? });
}

pub(super) fn copy<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (from, to) = (key(arguments, 1)?, key(arguments, 2)?);
    let (mut replace, mut database) = (false, context.database);
    let mut index = 3;
    while let Some(option) = arguments.get(index) {
        if is(option, "REPLACE") {
            replace = true;
        } else if is(option, "DB") && index + 1 < arguments.len() {
            index += 1;
            let number = integer(arguments, index)?;
            i32::try_from(number).map_err(|_| CommandError::NotAnInteger32)?;
            let number = u8::try_from(number).ok().filter(|number| *number < DATABASES);
            database = number.ok_or(CommandError::NoSuchDatabase)?;
        } else {
            return Err(CommandError::Syntax);
        }
        index += 1;
    }
    if database != context.database {
        return Err(CommandError::OtherDatabase { number: database, replaces: replace });
    }
    if from == to {
        return Err(CommandError::SameKey);
    }
    Ok(Command::Copy { from, to, replace })
}

pub(super) fn restore<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (mut replaces, mut is_absolute, mut used, mut index) = (false, false, None, 4);
    while let Some(option) = arguments.get(index) {
        let has_more = index + 1 < arguments.len();
        if is(option, "REPLACE") {
            replaces = true;
        } else if is(option, "ABSTTL") {
            is_absolute = true;
        } else if is(option, "IDLETIME") && has_more && !matches!(used, Some(FormerUse::Frequency(_))) {
            index += 1;
            let seconds = match integer(arguments, index)? {
                ..0 => return Err(CommandError::InvalidIdleTime),
                seconds => u32::try_from(seconds).unwrap_or(u32::MAX),
            };
            used = Some(FormerUse::Idle(seconds));
        } else if is(option, "FREQ") && has_more && !matches!(used, Some(FormerUse::Idle(_))) {
            index += 1;
            let counter = u8::try_from(integer(arguments, index)?);
            used = Some(FormerUse::Frequency(counter.map_err(|_| CommandError::InvalidFrequency)?));
        } else {
            return Err(CommandError::Syntax);
        }
        index += 1;
    }
    let looks = Looks::at(1, if replaces { Kinds::ANY } else { Kinds::NONE }).or_else(kv::table::BUSY_KEY);
    let ms = looks.clone().then(integer(arguments, 2))?;
    let deadline = match ms {
        ..0 => return looks.then(Err(CommandError::NegativeTtl)),
        0 => None,
        _ if is_absolute => Some(Deadline::At(ms)),
        _ => Some(Deadline::In(ms)),
    };
    Ok(Command::Restore {
        key: key(arguments, 1)?,
        payload: value(arguments, 3, context)?,
        deadline,
        options: RestoreOptions { replaces, used },
    })
}

pub(super) fn keys<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Keys { pattern: checked_pattern(at(arguments, 1))? })
}

/// Checks that a pattern is not too long.
pub(super) fn checked_pattern(pattern: &[u8]) -> Result<&[u8], CommandError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(CommandError::PatternTooLong(pattern.len()));
    }
    Ok(pattern)
}

/// How many keys a `SCAN` without `COUNT` looks at, as in Redis.
const SCAN_COUNT_DEFAULT: u64 = 10;

pub(super) fn scan<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    scan_from(cursor(at(arguments, 1))?, arguments)
}

/// How a cursor of `CLUSTERSCAN` begins. Clients of Valkey's cluster send the request to a node of the slot of what is in braces. Any
/// node continues any scan, so this is one slot for all.
const CLUSTER_CURSOR: &str = "0-{06S}-";

/// Parses `CLUSTERSCAN`, whose cursors are those of `SCAN` in another form: [`cluster_cursor`] makes them.
///
/// # Errors
/// [`CommandError`] if the cursor or an option is none.
pub fn cluster_scan(arguments: Arguments<'_>) -> Result<Command<'_>, CommandError> {
    let position = match at(arguments, 1) {
        b"0" => 0,
        text => {
            let digits = text.strip_prefix(CLUSTER_CURSOR.as_bytes()).filter(|digits| !digits.is_empty());
            cursor(digits.ok_or(CommandError::InvalidCursor)?)?
        }
    };
    if arguments.iter().skip(2).step_by(2).any(|option| is(option, "SLOT")) {
        return Err(CommandError::ScanOfSlot);
    }
    scan_from(position, arguments)
}

/// The cursor of `CLUSTERSCAN` for a cursor of `SCAN`.
pub fn cluster_cursor(cursor: &[u8]) -> Vec<u8> {
    if cursor == b"0" { cursor.to_vec() } else { [CLUSTER_CURSOR.as_bytes(), cursor].concat() }
}

/// Reads the options of a scan of all keys.
fn scan_from(position: u64, arguments: Arguments<'_>) -> Result<Command<'_>, CommandError> {
    let (mut count, mut pattern, mut kind) = (SCAN_COUNT_DEFAULT, None, None);
    for index in (2..arguments.len()).step_by(2) {
        let option = at(arguments, index);
        let argument = arguments.get(index + 1).ok_or(CommandError::Syntax)?;
        if is(option, "COUNT") {
            let given = u64::try_from(integer(arguments, index + 1)?).unwrap_or(0);
            count = if given == 0 {
                return Err(CommandError::Syntax);
            } else {
                given
            };
        } else if is(option, "MATCH") {
            pattern = Some(checked_pattern(argument)?);
        } else if is(option, "TYPE") {
            kind = Some(argument);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    // The router sets the group.
    Ok(Command::Scan { position, count, pattern, kind, group: 0, next: 0 })
}

/// Reads the cursor of a scan of one key's value, of a kind, and its options up to `end`: the count, and the pattern, if any.
pub(super) fn scan_options(
    arguments: Arguments<'_>,
    end: usize,
    kinds: Kinds,
) -> Result<(u64, u64, Option<&[u8]>), CommandError> {
    let position = cursor(at(arguments, 2))?;
    let (count, pattern) = Looks::at(1, kinds).or(Answer::EmptyScan).then(options_of_scan(arguments, end))?;
    Ok((position, count, pattern))
}

fn options_of_scan(arguments: Arguments<'_>, end: usize) -> Result<(u64, Option<&[u8]>), CommandError> {
    let (mut count, mut pattern) = (SCAN_COUNT_DEFAULT, None);
    for index in (3..end).step_by(2) {
        let option = at(arguments, index);
        let argument = arguments.get(index + 1).filter(|_| index + 1 < end).ok_or(CommandError::Syntax)?;
        if is(option, "COUNT") {
            count = u64::try_from(integer(arguments, index + 1)?).unwrap_or(0);
            if count == 0 {
                return Err(CommandError::Syntax);
            }
        } else if is(option, "MATCH") {
            pattern = Some(checked_pattern(argument)?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok((count, pattern))
}

/// An unsigned number in decimal. Without any digits it is 0, as in Redis, which reads it with C's `strtoul`.
fn cursor(text: &[u8]) -> Result<u64, CommandError> {
    text.iter()
        .try_fold(0u64, |sum, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            sum.checked_mul(10)?.checked_add(digit)
        })
        .ok_or(CommandError::InvalidCursor)
}

pub(super) fn randomkey<'a>(_: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    // The router draws the number: nothing here is random.
    Ok(Command::RandomKey { draw: 0 })
}

pub(super) fn dbsize<'a>(_: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Size {})
}

pub(super) fn flush<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    match arguments.get(1) {
        None => Ok(Command::Clear {}),
        Some(mode) if arguments.len() == 2 && (is(mode, "ASYNC") || is(mode, "SYNC")) => {
            Ok(Command::Clear {})
        }
        Some(_) => Err(CommandError::Syntax),
    }
}

pub(super) fn idle_time<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Used { key: key(arguments, 2)?, usage: Usage::Idle })
}

pub(super) fn frequency<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Used { key: key(arguments, 2)?, usage: Usage::Frequency })
}

pub(super) fn encoding<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    Ok(Command::Encoding { key: key(arguments, 2)?, limits: context.encodings })
}

pub(super) fn memory_usage<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    for index in (3..arguments.len()).step_by(2) {
        if !is(at(arguments, index), "SAMPLES") || index + 1 >= arguments.len() {
            return Err(CommandError::Syntax);
        }
        // A string is never sampled, so the count only has to be a valid number.
        if integer(arguments, index + 1)? < 0 {
            return Err(CommandError::Syntax);
        }
    }
    Ok(Command::MemoryUsage { key: key(arguments, 2)? })
}
