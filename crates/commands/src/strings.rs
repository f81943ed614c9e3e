//! Parsing of the commands on strings.

use kv::locks::LOCK_NAME_BYTES_MAX;
use kv::number::parse_float;
use kv::{Command, Comparison, Condition, Expiry, Fenced, Kinds, List, SetAnswer, Version};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, parsers, value};
use super::expiry::ExpiryOption;
use super::later::Looks;
use super::locks::token;
use super::{CommandError, Context};

pub(super) fn get<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Get { key: key(arguments, 1)? })
}

/// Parses `SET`.
///
/// # Errors
/// [`CommandError`] if an argument is wrong.
pub fn set<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (key, value) = (key(arguments, 1)?, value(arguments, 2, context)?);
    if arguments.len() == 3 {
        return Ok(plain_set(key, value));
    }
    let options = SetOptions::parse(arguments)?;
    let expiry = match options.expiry {
        Some((option, index)) => Expiry::Set(option.deadline("set", arguments, index, context)?),
        None if options.keep => Expiry::Keep,
        None => Expiry::Clear,
    };
    let answer = if options.get { SetAnswer::Before } else { SetAnswer::Status };
    let command = match options.condition {
        SetCondition::Presence(condition) => Command::Set { key, value, expiry, condition, answer },
        SetCondition::Value(comparison) => Command::SetIf { key, value, expiry, comparison, answer },
    };
    match options.fence {
        Some((name, token)) => {
            let fenced = Fenced::build(name, token, &command, scratch);
            fenced.map(Command::Fenced).ok_or(CommandError::Syntax)
        }
        None => Ok(command),
    }
}

#[inline]
fn plain_set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    Command::Set { key, value, expiry, condition, answer }
}

/// The condition of a `SET`.
enum SetCondition<'a> {
    Presence(Condition),
    Value(Comparison<'a>),
}

struct SetOptions<'a> {
    condition: SetCondition<'a>,
    get: bool,
    keep: bool,
    /// The option, and the index of its argument.
    expiry: Option<(ExpiryOption, usize)>,
    /// The lock, and the token that the writer claims to be the lock's newest.
    fence: Option<(&'a [u8], Version)>,
}

impl<'a> SetOptions<'a> {
    /// Reads the options after the value. As in Redis an option may be repeated, and the last one counts, but
    /// two that exclude each other are a syntax error.
    fn parse(arguments: Arguments<'a>) -> Result<SetOptions<'a>, CommandError> {
        use Condition::{Always, IfAbsent, IfPresent};
        let condition = SetCondition::Presence(Always);
        let mut options = SetOptions { condition, get: false, keep: false, expiry: None, fence: None };
        let mut index = 3;
        while let Some(option) = arguments.get(index) {
            if is(option, "NX") && matches!(options.condition, SetCondition::Presence(Always | IfAbsent)) {
                options.condition = SetCondition::Presence(IfAbsent);
            } else if is(option, "XX")
                && matches!(options.condition, SetCondition::Presence(Always | IfPresent))
            {
                options.condition = SetCondition::Presence(IfPresent);
            } else if matches!(options.condition, SetCondition::Presence(Always))
                && index + 1 < arguments.len()
                && let Some(comparison) = comparison(arguments, index)?
            {
                options.condition = SetCondition::Value(comparison);
                index += 1;
            } else if is(option, "GET") {
                options.get = true;
            } else if is(option, "FENCE") && index + 2 < arguments.len() {
                let name = at(arguments, index + 1);
                if name.len() > LOCK_NAME_BYTES_MAX {
                    return Err(CommandError::LockNameTooLong(name.len()));
                }
                options.fence = Some((name, token(at(arguments, index + 2))?));
                index += 2;
            } else if is(option, "KEEPTTL") && options.expiry.is_none() {
                options.keep = true;
            } else if let Some(expiry) = ExpiryOption::named(option)
                && !options.keep
                && expiry.may_follow(options.expiry)
                && index + 1 < arguments.len()
            {
                options.expiry = Some((expiry, index + 1));
                index += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        Ok(options)
    }
}

/// Reads a condition on the value, if the argument at `index` is the name of one.
fn comparison(arguments: Arguments<'_>, index: usize) -> Result<Option<Comparison<'_>>, CommandError> {
    let (name, operand) = (at(arguments, index), at(arguments, index + 1));
    let digest = || Comparison::digest_from_hex(operand).ok_or(CommandError::NotADigest);
    Ok(if is(name, "IFEQ") {
        Some(Comparison::Equal(operand))
    } else if is(name, "IFNE") {
        Some(Comparison::NotEqual(operand))
    } else if is(name, "IFDEQ") {
        Some(Comparison::DigestEqual(digest()?))
    } else if is(name, "IFDNE") {
        Some(Comparison::DigestNotEqual(digest()?))
    } else {
        None
    })
}

pub(super) fn delifeq<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::DeleteIf { key: key(arguments, 1)?, comparison: Comparison::Equal(at(arguments, 2)) })
}

pub(super) fn delex<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    match arguments.len() {
        2 => Ok(Command::Delete { keys: all_keys(arguments, scratch)? }),
        4 => {
            let comparison = comparison(arguments, 2)?.ok_or(CommandError::NotAComparison)?;
            Ok(Command::DeleteIf { key: key(arguments, 1)?, comparison })
        }
        _ => Err(CommandError::WrongArity("delex")),
    }
}

pub(super) fn digest<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Digest { key: key(arguments, 1)? })
}

pub(super) fn setnx<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    Ok(Command::Set {
        key: key(arguments, 1)?,
        value: value(arguments, 2, context)?,
        expiry: Expiry::Clear,
        condition: Condition::IfAbsent,
        answer: SetAnswer::Integer,
    })
}

pub(super) fn getset<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    Ok(Command::Set {
        key: key(arguments, 1)?,
        value: value(arguments, 2, context)?,
        expiry: Expiry::Clear,
        condition: Condition::Always,
        answer: SetAnswer::Before,
    })
}

parsers! { (arguments, scratch, context)
    getdel => Ok(Command::GetDelete { key: key(arguments, 1)? });
    mget => Ok(Command::MultiGet { keys: all_keys(arguments, scratch)? });
}

/// Lists the arguments after the command's name, all of them keys, in `scratch`.
///
/// # Errors
/// [`CommandError`] if one of them can be no key.
pub fn all_keys<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Result<List<'a>, CommandError> {
    for index in 1..arguments.len() {
        key(arguments, index)?;
    }
    Ok(List::build(scratch, arguments.iter().skip(1)))
}

parsers! { (arguments, scratch, context)
    mset => multi_set("mset", arguments, scratch, context);
    msetnx => multi_set("msetnx", arguments, scratch, context);
}

fn multi_set<'a>(
    name: &'static str,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    if arguments.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity(name));
    }
    for index in (1..arguments.len()).step_by(2) {
        key(arguments, index)?;
        value(arguments, index + 1, context)?;
    }
    let pairs = List::build(scratch, arguments.iter().skip(1));
    Ok(Command::MultiSet { pairs, if_absent: name == "msetnx" })
}

pub(super) fn append<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (key, value) = (key(arguments, 1)?, value(arguments, 2, context)?);
    Ok(Command::Append { key, value, bytes_max: context.value_bytes_max as u64 })
}

pub(super) fn strlen<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Length { key: key(arguments, 1)? })
}

pub(super) fn getrange<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (start, end) = (integer(arguments, 2)?, integer(arguments, 3)?);
    Ok(Command::GetRange { key: key(arguments, 1)?, start, end })
}

pub(super) fn setrange<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (key, value) = (key(arguments, 1)?, at(arguments, 3));
    let offset = u64::try_from(integer(arguments, 2)?).map_err(|_| CommandError::OffsetOutOfRange)?;
    if value.is_empty() {
        // Nothing is written, not even zero bytes up to the offset: the answer is the present length.
        return Ok(Command::Length { key });
    }
    if offset.saturating_add(value.len() as u64) > context.value_bytes_max as u64 {
        return Looks::at(1, Kinds::STRING).then(Err(CommandError::StringTooLong));
    }
    Ok(Command::SetRange { key, offset, value })
}

parsers! { (arguments, scratch, context)
    incr => Ok(Command::IncrementBy { key: key(arguments, 1)?, delta: 1 });
    decr => Ok(Command::IncrementBy { key: key(arguments, 1)?, delta: -1 });
    incrby => Ok(Command::IncrementBy { key: key(arguments, 1)?, delta: integer(arguments, 2)? });
}

pub(super) fn decrby<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let delta = integer(arguments, 2)?.checked_neg().ok_or(CommandError::DecrementOverflow)?;
    Ok(Command::IncrementBy { key: key(arguments, 1)?, delta })
}

pub(super) fn incrbyfloat<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, delta) = (key(arguments, 1)?, at(arguments, 2));
    // Redis accepts infinity as a number, but not as the sum. The table refuses it after it has looked at the value.
    let looks = Looks::at(1, Kinds::STRING);
    looks.then(parse_float(delta).ok_or(CommandError::NotAFloat))?;
    Ok(Command::IncrementByFloat { key, delta })
}
