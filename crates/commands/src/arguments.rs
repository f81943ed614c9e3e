//! Reading single arguments: keys, values, numbers, words.
//!
//! Call these functions after the number of arguments was checked. A missing argument reads as an empty one, so that
//! nothing that a client sends can crash the node.

use kv::limits::KEY_BYTES_MAX;
use kv::number::{parse_float, parse_hexadecimal, parse_integer};
use kv::{Command, List};
use wire::resp::Arguments;

use super::{CommandError, Context};

/// The result of a parser.
pub(super) type Parsed<'a> = Result<Command<'a>, CommandError>;

/// Defines parsers, each by one expression on its parameters.
macro_rules! parsers {
    (($arguments:ident, $scratch:ident, $context:ident) $($name:ident => $parsed:expr;)+) => {$(
        // All parsers have the same parameters.
        #[allow(unused_variables, clippy::ptr_arg)]
        pub(super) fn $name<'a>(
            $arguments: Arguments<'a>,
            $scratch: &'a mut Vec<u8>,
            $context: &Context,
        ) -> Parsed<'a> {
            $parsed
        }
    )+};
}
pub(super) use parsers;

/// The argument at `index`.
#[inline]
pub(super) fn at(arguments: Arguments<'_>, index: usize) -> &[u8] {
    arguments.get(index).unwrap_or_default()
}

/// The key at `index`.
#[inline]
pub(super) fn key(arguments: Arguments<'_>, index: usize) -> Result<&[u8], CommandError> {
    let key = at(arguments, index);
    if key.len() > KEY_BYTES_MAX { Err(CommandError::KeyTooLong(key.len())) } else { Ok(key) }
}

/// The value at `index`.
#[inline]
pub(super) fn value<'a>(
    arguments: Arguments<'a>,
    index: usize,
    context: &Context,
) -> Result<&'a [u8], CommandError> {
    let value = at(arguments, index);
    if value.len() > context.value_bytes_max {
        Err(CommandError::ValueTooLong { bytes: value.len(), most: context.value_bytes_max })
    } else {
        Ok(value)
    }
}

/// The integer at `index`.
#[inline]
pub(super) fn integer(arguments: Arguments<'_>, index: usize) -> Result<i64, CommandError> {
    parse_integer(at(arguments, index)).ok_or(CommandError::NotAnInteger)
}

/// The number at `index` as decimal text, as commands hold it. A hexadecimal one is written in `scratch`.
#[inline]
pub(super) fn decimal<'a>(
    arguments: Arguments<'a>,
    index: usize,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Option<&'a [u8]> {
    let text = at(arguments, index);
    if parse_float(text).is_some() {
        return Some(text);
    }
    *scratch = from_hexadecimal(text, context)?;
    Some(scratch)
}

/// A hexadecimal number as decimal text. Nodes of release 1 refuse such numbers, in scripts too.
#[cold]
pub(super) fn from_hexadecimal(text: &[u8], context: &Context) -> Option<Vec<u8>> {
    parse_hexadecimal(text).filter(|_| context.level >= 2).map(|number| number.to_string().into_bytes())
}

/// The integer at `index`, or `error` if it is negative.
pub(super) fn not_negative(
    arguments: Arguments<'_>,
    index: usize,
    error: CommandError,
) -> Result<u64, CommandError> {
    parse_integer(at(arguments, index)).and_then(|number| u64::try_from(number).ok()).ok_or(error)
}

/// The integer at `index`, which must be positive. `name` is for the error.
pub(super) fn positive(
    arguments: Arguments<'_>,
    index: usize,
    name: &'static str,
) -> Result<u64, CommandError> {
    not_negative(arguments, index, CommandError::NotGreaterThanZero(name))
        .and_then(|number| if number == 0 { Err(CommandError::NotGreaterThanZero(name)) } else { Ok(number) })
}

/// The time for which a command waits: at `index` in seconds with a fraction, returned in microseconds. Zero means forever.
/// Since level 2 it may be hexadecimal: nodes of release 1 refuse that, in scripts too.
pub(super) fn timeout(arguments: Arguments<'_>, index: usize, level: u32) -> Result<u64, CommandError> {
    let text = at(arguments, index);
    let seconds = parse_float(text).or_else(|| parse_hexadecimal(text).filter(|_| level >= 2));
    let seconds = seconds.ok_or(CommandError::TimeoutNotAFloat)?;
    if seconds < 0.0 {
        return Err(CommandError::TimeoutNegative);
    }
    // Whole milliseconds, rounded up, so that a short time does not become zero, which means forever.
    let milliseconds = (seconds * 1000.0).ceil();
    if milliseconds > i64::MAX as f64 / 2.0 {
        return Err(CommandError::TimeoutOutOfRange);
    }
    Ok(if milliseconds == 0.0 { u64::MAX } else { (milliseconds as u64).saturating_mul(1000) })
}

/// How long a command waits that has its timeout as the last argument.
pub(super) fn wait_in_last(arguments: Arguments<'_>) -> Option<u64> {
    timeout(arguments, arguments.len().checked_sub(1)?, 2).ok()
}

/// How long a command waits that has its timeout as the first argument.
pub(super) fn wait_in_first(arguments: Arguments<'_>) -> Option<u64> {
    timeout(arguments, 1, 2).ok()
}

/// Lists the keys from the first argument to the last but one in `scratch`.
pub(super) fn keys_before_last<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<List<'a>, CommandError> {
    let count = arguments.len().saturating_sub(2);
    for index in 1..=count {
        key(arguments, index)?;
    }
    Ok(List::build(scratch, arguments.iter().skip(1).take(count)))
}

/// The number after `COUNT`, which must be at `index` and the last option; 1 without it.
pub(super) fn pop_count(arguments: Arguments<'_>, index: usize) -> Result<u64, CommandError> {
    if arguments.len() == index {
        return Ok(1);
    }
    if arguments.len() < index + 2 || !arguments[index].eq_ignore_ascii_case(b"COUNT") {
        return Err(CommandError::Syntax);
    }
    let count = positive(arguments, index + 1, "count")?;
    if arguments.len() == index + 2 { Ok(count) } else { Err(CommandError::Syntax) }
}

/// The range of keys that follow their number, which is at `index`, with what follows each of them: every `step`th argument
/// is a key.
pub(super) fn counted(
    arguments: Arguments<'_>,
    index: usize,
    step: u8,
) -> Result<std::ops::Range<usize>, CommandError> {
    let count = usize::try_from(positive(arguments, index, "numkeys")?).unwrap_or(usize::MAX);
    let first = index + 1;
    let end = count.checked_mul(step.into()).and_then(|count| first.checked_add(count));
    let end = end.filter(|end| *end <= arguments.len()).ok_or(CommandError::Syntax)?;
    Ok(first..end)
}

/// The range of the keys after the word `STREAMS`, which is searched for from the index `from` on: the first half of the
/// arguments after it, since an id for each key follows them.
pub(super) fn streams(arguments: Arguments<'_>, from: u8) -> Option<std::ops::Range<usize>> {
    let at = (from.into()..arguments.len()).find(|index| is(at(arguments, *index), "STREAMS"))?;
    let count = (arguments.len() - at - 1) / 2;
    Some(at + 1..at + 1 + count)
}

/// Lists in `scratch` the keys that follow their number, which is at `index`. Returns also the index after them.
pub(super) fn counted_keys<'a>(
    arguments: Arguments<'a>,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<(List<'a>, usize), CommandError> {
    let keys = counted(arguments, index, 1)?;
    for index in keys.clone() {
        key(arguments, index)?;
    }
    Ok((List::build(scratch, arguments.iter().skip(keys.start).take(keys.len())), keys.end))
}

/// Whether the argument is this word, ignoring case.
#[inline]
pub(super) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Reads the options of a command that draws at random: the count, if any, and whether `word` follows it.
pub(super) fn random_options(
    arguments: Arguments<'_>,
    word: &str,
) -> Result<(Option<i64>, bool), CommandError> {
    let count = if arguments.len() > 2 { Some(integer(arguments, 2)?) } else { None };
    if count == Some(i64::MIN) {
        return Err(CommandError::CountOutOfRange);
    }
    let with_word = match arguments.len() {
        2 | 3 => false,
        4 if is(at(arguments, 3), word) => true,
        _ => return Err(CommandError::Syntax),
    };
    // With the word, two elements are returned for each one drawn, and Redis refuses counts whose double overflows.
    if with_word && count.is_some_and(|count| !(-i64::MAX / 2..=i64::MAX / 2).contains(&count)) {
        return Err(CommandError::OutOfRange);
    }
    Ok((count, with_word))
}
