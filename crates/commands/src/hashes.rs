//! Parsing of the commands on hashes.

use kv::command::{ExpireCondition, ExpiryUnit};
use kv::number::parse_float;
use kv::{Command, Condition, Deadline, Expiry, HashCommand, HashPart, Kinds, List};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, parsers, random_options, value};
use super::expiry::ExpiryOption;
use super::keyspace::scan_options;
use super::{CommandError, Context};

parsers! { (arguments, scratch, context)
    hset => set("hset", true, arguments, scratch, context);
    hmset => set("hmset", false, arguments, scratch, context);
}

fn set<'a>(
    name: &'static str,
    counts: bool,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    if !arguments.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity(name));
    }
    let key = key(arguments, 1)?;
    for index in 2..arguments.len() {
        value(arguments, index, context)?;
    }
    let pairs = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::Hash(HashCommand::Set { key, pairs, counts }))
}

pub(super) fn hsetnx<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (field, value) = (value(arguments, 2, context)?, value(arguments, 3, context)?);
    let key = key(arguments, 1)?;
    Ok(Command::Hash(HashCommand::SetIfAbsent { key, field, value }))
}

pub(super) fn hget<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::Get { key: key(arguments, 1)?, field: at(arguments, 2) }))
}

pub(super) fn hmget<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let fields = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::Hash(HashCommand::MultiGet { key, fields }))
}

parsers! { (arguments, scratch, context)
    hgetall => Ok(Command::Hash(HashCommand::All { key: key(arguments, 1)?, part: HashPart::Both }));
    hkeys => Ok(Command::Hash(HashCommand::All { key: key(arguments, 1)?, part: HashPart::Fields }));
    hvals => Ok(Command::Hash(HashCommand::All { key: key(arguments, 1)?, part: HashPart::Values }));
    hlen => Ok(Command::Hash(HashCommand::Length { key: key(arguments, 1)? }));
    hexists => Ok(Command::Hash(HashCommand::Exists { key: key(arguments, 1)?, field: at(arguments, 2) }));
    hstrlen =>
        Ok(Command::Hash(HashCommand::ValueLength { key: key(arguments, 1)?, field: at(arguments, 2) }));
}

pub(super) fn hdel<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let fields = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::Hash(HashCommand::Delete { key, fields }))
}

pub(super) fn hincrby<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let delta = integer(arguments, 3)?;
    let (key, field) = (key(arguments, 1)?, value(arguments, 2, context)?);
    Ok(Command::Hash(HashCommand::IncrementBy { key, field, delta }))
}

pub(super) fn hincrbyfloat<'a>(
    arguments: Arguments<'a>,
    _: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let delta = at(arguments, 3);
    if !parse_float(delta).ok_or(CommandError::NotAFloat)?.is_finite() {
        return Err(CommandError::NotFiniteValue);
    }
    let (key, field) = (key(arguments, 1)?, value(arguments, 2, context)?);
    Ok(Command::Hash(HashCommand::IncrementByFloat { key, field, delta }))
}

pub(super) fn hscan<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let with_values = !is(at(arguments, arguments.len() - 1), "NOVALUES") || arguments.len() < 4;
    let options = if with_values { arguments.len() } else { arguments.len() - 1 };
    let (position, count, pattern) = scan_options(arguments, options, Kinds::HASH)?;
    Ok(Command::Hash(HashCommand::Scan { key: key(arguments, 1)?, position, count, pattern, with_values }))
}

pub(super) fn hrandfield<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (count, with_values) = random_options(arguments, "WITHVALUES")?;
    Ok(Command::Hash(HashCommand::Random { key: key(arguments, 1)?, count, with_values }))
}

/// The fields of a command that names them, from `index` on, by `FIELDS`, their number, and `width` arguments for each.
fn fields<'a>(
    arguments: Arguments<'a>,
    index: usize,
    width: usize,
    not_positive: CommandError,
    scratch: &'a mut Vec<u8>,
) -> Result<List<'a>, CommandError> {
    if !is(at(arguments, index), "FIELDS") {
        return Err(CommandError::FieldsMissing);
    }
    let count = integer(arguments, index + 1).ok().filter(|count| *count > 0).ok_or(not_positive)?;
    let given = arguments.len().saturating_sub(index + 2);
    if usize::try_from(count).ok().and_then(|count| count.checked_mul(width)) != Some(given) {
        return Err(CommandError::FieldsMismatch);
    }
    Ok(List::build(scratch, arguments.iter().skip(index + 2)))
}

fn all_fields<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Result<List<'a>, CommandError> {
    fields(arguments, 2, 1, CommandError::FieldsNotPositive, scratch)
}

fn expire<'a>(
    name: &'static str,
    option: ExpiryOption,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let deadline = not_negative_deadline(option, name, arguments, 2, context)?;
    let conditions = [
        ("NX", ExpireCondition::IfNone),
        ("XX", ExpireCondition::IfSome),
        ("GT", ExpireCondition::IfLater),
        ("LT", ExpireCondition::IfEarlier),
    ];
    let given = conditions.into_iter().find(|(word, _)| is(at(arguments, 3), word));
    let index = if given.is_some() { 4 } else { 3 };
    let condition = given.map_or(ExpireCondition::Always, |(_, condition)| condition);
    let fields = fields(arguments, index, 1, CommandError::FieldParameterNotPositive, scratch)?;
    Ok(Command::Hash(HashCommand::Expire { key, fields, deadline, condition }))
}

/// The deadline of a field: 0 is in the past, but not an error.
fn not_negative_deadline(
    option: ExpiryOption,
    name: &'static str,
    arguments: Arguments<'_>,
    index: usize,
    context: &Context,
) -> Result<Deadline, CommandError> {
    if integer(arguments, index)? < 0 {
        return Err(CommandError::NegativeExpireTime);
    }
    option.any_deadline(name, arguments, index, context)
}

parsers! { (arguments, scratch, context)
    hexpire => expire("hexpire", ExpiryOption::Seconds, arguments, scratch, context);
    hpexpire => expire("hpexpire", ExpiryOption::Milliseconds, arguments, scratch, context);
    hexpireat => expire("hexpireat", ExpiryOption::AtSecond, arguments, scratch, context);
    hpexpireat => expire("hpexpireat", ExpiryOption::AtMillisecond, arguments, scratch, context);
}

fn time_to_live<'a>(unit: ExpiryUnit, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    let (key, fields) = (key(arguments, 1)?, all_fields(arguments, scratch)?);
    Ok(Command::Hash(HashCommand::TimeToLive { key, fields, unit }))
}

parsers! { (arguments, scratch, context)
    httl => time_to_live(ExpiryUnit::SecondsLeft, arguments, scratch);
    hpttl => time_to_live(ExpiryUnit::MillisecondsLeft, arguments, scratch);
    hexpiretime => time_to_live(ExpiryUnit::UnixSeconds, arguments, scratch);
    hpexpiretime => time_to_live(ExpiryUnit::UnixMilliseconds, arguments, scratch);
}

pub(super) fn hpersist<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, fields) = (key(arguments, 1)?, all_fields(arguments, scratch)?);
    Ok(Command::Hash(HashCommand::Persist { key, fields }))
}

pub(super) fn hgetdel<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, fields) = (key(arguments, 1)?, all_fields(arguments, scratch)?);
    Ok(Command::Hash(HashCommand::GetDelete { key, fields }))
}

/// Reads the options before `FIELDS`. Returns the expiry, if any, the condition, and the index of `FIELDS`.
fn field_options(
    name: &'static str,
    arguments: Arguments<'_>,
    context: &Context,
) -> Result<(Option<Expiry>, Condition, usize), CommandError> {
    let sets = name == "hsetex";
    let (mut expiry, mut condition, mut index) = (None, None, 2);
    while let Some(option) = arguments.get(index)
        && !is(option, "FIELDS")
    {
        if sets && condition.is_none() && is(option, "FNX") {
            condition = Some(Condition::IfAbsent);
        } else if sets && condition.is_none() && is(option, "FXX") {
            condition = Some(Condition::IfPresent);
        } else if expiry.is_none() && sets && is(option, "KEEPTTL") {
            expiry = Some(Expiry::Keep);
        } else if expiry.is_none() && !sets && is(option, "PERSIST") {
            expiry = Some(Expiry::Clear);
        } else if expiry.is_none()
            && let Some(option) = ExpiryOption::named(option)
            && index + 1 < arguments.len()
        {
            index += 1;
            expiry = Some(Expiry::Set(not_negative_deadline(option, name, arguments, index, context)?));
        } else {
            return Err(CommandError::Syntax);
        }
        index += 1;
    }
    Ok((expiry, condition.unwrap_or(Condition::Always), index))
}

pub(super) fn hgetex<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let (expiry, _, index) = field_options("hgetex", arguments, context)?;
    let fields = fields(arguments, index, 1, CommandError::FieldsNotPositive, scratch)?;
    Ok(Command::Hash(match expiry {
        Some(expiry) => HashCommand::GetExpire { key, fields, expiry },
        // Without options it changes nothing, so it need not be ordered among the writes.
        None => HashCommand::MultiGet { key, fields },
    }))
}

pub(super) fn hsetex<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let (expiry, condition, index) = field_options("hsetex", arguments, context)?;
    let pairs = fields(arguments, index, 2, CommandError::FieldsNotPositive, scratch)?;
    for index in index + 2..arguments.len() {
        value(arguments, index, context)?;
    }
    let expiry = expiry.unwrap_or(Expiry::Clear);
    Ok(Command::Hash(HashCommand::SetExpire { key, pairs, expiry, condition }))
}
