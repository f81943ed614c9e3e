//! Parsing of the commands on strings.

use kv::command::Step;
use kv::locks::LOCK_NAME_BYTES_MAX;
use kv::number::parse_float;
use kv::{Answer, Command, Comparison, Condition, Expiry, Fenced, Kinds, List, SetAnswer, Version};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, decimal, integer, is, key, parsers, value};
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
    let options = SetOptions::parse(arguments, 3, context)?;
    let expiry = options.expiry("set", arguments, context)?;
    let answer = if options.get { SetAnswer::Before } else { SetAnswer::Status };
    let command = match options.condition {
        SetCondition::Presence(condition) => Command::Set { key, value, expiry, condition, answer },
        SetCondition::Value(Compared::With(comparison)) => {
            Command::SetIf { key, value, expiry, comparison, answer }
        }
        SetCondition::Value(Compared::WithNoDigest { is_equal: false }) if context.level >= 2 => {
            Command::SetIf { key, value, expiry, comparison: Comparison::NoDigest, answer }
        }
        SetCondition::Value(Compared::WithNoDigest { is_equal }) => {
            let looks = Looks::at(1, Kinds::STRING);
            let looks = if is_equal { looks.or(Answer::Null) } else { looks };
            return looks.then(Err(CommandError::NotADigest));
        }
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
    Value(Compared<'a>),
}

/// What a value is compared with.
enum Compared<'a> {
    With(Comparison<'a>),
    /// With something that is no digest, which Redis sees when it compares: `IFDEQ`, if `is_equal`, or `IFDNE`.
    WithNoDigest {
        is_equal: bool,
    },
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
    /// Reads the options from the argument at `index` on. As in Redis an option may be repeated, and the last one counts, but
    /// two that exclude each other are a syntax error.
    fn parse(
        arguments: Arguments<'a>,
        mut index: usize,
        context: &Context,
    ) -> Result<SetOptions<'a>, CommandError> {
        use Condition::{Always, IfAbsent, IfPresent};
        // Nodes of release 1 take a comparison once, in scripts too.
        let may_compare_again = context.level >= 2;
        let mut compares_by: Option<&[u8]> = None;
        let condition = SetCondition::Presence(Always);
        let mut options = SetOptions { condition, get: false, keep: false, expiry: None, fence: None };
        while let Some(option) = arguments.get(index) {
            if is(option, "NX") && matches!(options.condition, SetCondition::Presence(Always | IfAbsent)) {
                options.condition = SetCondition::Presence(IfAbsent);
            } else if is(option, "XX")
                && matches!(options.condition, SetCondition::Presence(Always | IfPresent))
            {
                options.condition = SetCondition::Presence(IfPresent);
            } else if index + 1 < arguments.len()
                && let Some(compared) = compared(arguments, index)
                && match options.condition {
                    SetCondition::Presence(condition) => condition == Always,
                    SetCondition::Value(_) => {
                        may_compare_again && compares_by.is_some_and(|word| word.eq_ignore_ascii_case(option))
                    }
                }
            {
                compares_by = Some(option);
                options.condition = SetCondition::Value(compared);
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

    fn expiry(
        &self,
        command: &'static str,
        arguments: Arguments<'_>,
        context: &Context,
    ) -> Result<Expiry, CommandError> {
        Ok(match self.expiry {
            Some((option, index)) => Expiry::Set(option.deadline(command, arguments, index, context)?),
            None if self.keep => Expiry::Keep,
            None => Expiry::Clear,
        })
    }
}

/// Reads a condition on the value, if the argument at `index` is the name of one.
fn compared(arguments: Arguments<'_>, index: usize) -> Option<Compared<'_>> {
    let (name, operand) = (at(arguments, index), at(arguments, index + 1));
    let is_equal = is(name, "IFDEQ");
    Some(Compared::With(if is(name, "IFEQ") {
        Comparison::Equal(operand)
    } else if is(name, "IFNE") {
        Comparison::NotEqual(operand)
    } else if is_equal || is(name, "IFDNE") {
        match (Comparison::digest_from_hex(operand), is_equal) {
            (None, _) => return Some(Compared::WithNoDigest { is_equal }),
            (Some(digest), true) => Comparison::DigestEqual(digest),
            (Some(digest), false) => Comparison::DigestNotEqual(digest),
        }
    } else {
        return None;
    }))
}

/// What `DELEX` answers for another kind of value.
const NOT_COMPARABLE: &str = "ERR Key should be of string type if conditions are specified";

pub(super) fn delifeq<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::DeleteIf { key: key(arguments, 1)?, comparison: Comparison::Equal(at(arguments, 2)) })
}

pub(super) fn delex<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    match arguments.len() {
        2 => Ok(Command::Delete { keys: all_keys(arguments, scratch)? }),
        4 => {
            let comparison = match compared(arguments, 2) {
                Some(Compared::With(comparison)) => Ok(comparison),
                Some(Compared::WithNoDigest { .. }) => Err(CommandError::NotADigest),
                None => Err(CommandError::NotAComparison),
            };
            let looks = Looks::at(1, Kinds::STRING).or(Answer::Integer(0));
            let comparison = looks.or_else(NOT_COMPARABLE).then(comparison)?;
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

pub(super) fn msetex<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let count = integer(arguments, 1).ok().and_then(|count| u32::try_from(count).ok());
    let count = count.filter(|count| (1..=i32::MAX as u32).contains(count));
    let count = count.ok_or(CommandError::InvalidKeyCount)? as usize;
    let end = 2 + 2 * count;
    if end > arguments.len() {
        return Err(CommandError::WrongPairCount);
    }
    for index in (2..end).step_by(2) {
        key(arguments, index)?;
        value(arguments, index + 1, context)?;
    }
    let options = SetOptions::parse(arguments, end, context)?;
    let SetOptions { condition: SetCondition::Presence(condition), get: false, fence: None, .. } = options
    else {
        return Err(CommandError::Syntax);
    };
    let expiry = options.expiry("msetex", arguments, context)?;
    if context.level < 2 {
        return Err(CommandError::NeedsLevel(2));
    }
    let pairs = List::build(scratch, arguments.iter().take(end).skip(2));
    Ok(Command::MultiSetExpire { pairs, expiry, condition })
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

/// Parses `INCREX`. No option may be repeated.
///
/// # Errors
/// [`CommandError`] if an argument is wrong.
pub(super) fn increx<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let (mut by, mut least, mut most) = (None, None, None);
    let (mut saturates, mut persists, mut if_without, mut expiry) = (false, false, false, None);
    let mut index = 2;
    while let Some(option) = arguments.get(index) {
        let has_operand = index + 1 < arguments.len();
        let (is_decimal, is_whole) = (is(option, "BYFLOAT"), is(option, "BYINT"));
        if (is_decimal || is_whole) && by.is_none() && has_operand {
            by = Some((is_decimal, index + 1));
            index += 1;
        } else if is(option, "LBOUND") && least.is_none() && has_operand {
            least = Some(index + 1);
            index += 1;
        } else if is(option, "UBOUND") && most.is_none() && has_operand {
            most = Some(index + 1);
            index += 1;
        } else if is(option, "SATURATE") && !saturates {
            saturates = true;
        } else if is(option, "PERSIST") && !persists && !if_without && expiry.is_none() {
            persists = true;
        } else if is(option, "ENX") && !if_without && !persists {
            if_without = true;
        } else if let Some(option) = ExpiryOption::named(option)
            && !persists
            && expiry.is_none()
            && has_operand
        {
            expiry = Some((option, index + 1));
            index += 1;
        } else {
            return Err(CommandError::Syntax);
        }
        index += 1;
    }
    let step = match by {
        Some((true, index)) => {
            let by = at(arguments, index);
            let number = parse_float(by).ok_or(CommandError::OptionNotAFloat("Increment"))?;
            if number.is_infinite() {
                return Err(CommandError::InfiniteIncrement);
            }
            let bound = |name, index: Option<usize>, none: f64| match index {
                None => Ok(none),
                Some(index) => parse_float(at(arguments, index)).ok_or(CommandError::OptionNotAFloat(name)),
            };
            let (least, most) = (bound("LBOUND", least, -f64::MAX)?, bound("UBOUND", most, f64::MAX)?);
            if least > most {
                return Err(CommandError::BoundsCrossed);
            }
            Step::Decimal { by, least, most }
        }
        _ => {
            let whole = |name, index: Option<usize>, none: i64| match index {
                None => Ok(none),
                Some(index) => integer(arguments, index).map_err(|_| CommandError::OptionNotAnInteger(name)),
            };
            let by = whole("Increment", by.map(|(_, index)| index), 1)?;
            let (least, most) = (whole("LBOUND", least, i64::MIN)?, whole("UBOUND", most, i64::MAX)?);
            if least > most {
                return Err(CommandError::BoundsCrossed);
            }
            Step::Whole { by, least, most }
        }
    };
    let expiry = match expiry {
        Some((option, index)) => Expiry::Set(option.deadline("increx", arguments, index, context)?),
        None if if_without => return Err(CommandError::ConditionWithoutExpiry),
        None if persists => Expiry::Clear,
        None => Expiry::Keep,
    };
    if context.level < 2 {
        return Err(CommandError::NeedsLevel(2));
    }
    Ok(Command::IncrementWithin { key, step, saturates, expiry, if_without })
}

pub(super) fn incrbyfloat<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    // Redis accepts infinity as a number, but not as the sum. The table refuses it after it has looked at the value.
    let delta = decimal(arguments, 2, scratch, context).ok_or(CommandError::NotAFloat);
    let delta = Looks::at(1, Kinds::STRING).then(delta)?;
    Ok(Command::IncrementByFloat { key, delta })
}
