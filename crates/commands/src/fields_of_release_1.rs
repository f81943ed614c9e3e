//! How nodes of release 1 read the commands on fields of hashes that take options: these before `FIELDS`, each once. As long as
//! the cluster has such nodes, all nodes read them so, since every replica parses what a script calls.

use kv::command::{ExpireCondition, FieldsCondition};
use kv::{Command, Condition, Deadline, Expiry, HashCommand, List};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, value};
use super::expiry::ExpiryOption;
use super::{CommandError, Context};

/// The fields of a command that names them, from `index` on, by `FIELDS`, their number, and `width` arguments for each.
fn fields<'a>(
    arguments: Arguments<'a>,
    index: usize,
    width: usize,
    not_positive: &'static str,
    scratch: &'a mut Vec<u8>,
) -> Result<List<'a>, CommandError> {
    if !is(at(arguments, index), "FIELDS") {
        return Err(CommandError::OfFields(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = integer(arguments, index + 1)
        .ok()
        .filter(|count| *count > 0)
        .ok_or(CommandError::OfFields(not_positive))?;
    let given = arguments.len().saturating_sub(index + 2);
    if usize::try_from(count).ok().and_then(|count| count.checked_mul(width)) != Some(given) {
        return Err(CommandError::OfFields(
            "ERR The `numfields` parameter must match the number of arguments",
        ));
    }
    Ok(List::build(scratch, arguments.iter().skip(index + 2)))
}

pub(super) fn expire<'a>(
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
    let fields = fields(arguments, index, 1, "ERR Parameter `numFields` should be greater than 0", scratch)?;
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
    let fields = fields(arguments, index, 1, "ERR Number of fields must be a positive integer", scratch)?;
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
    let pairs = fields(arguments, index, 2, "ERR Number of fields must be a positive integer", scratch)?;
    for index in index + 2..arguments.len() {
        value(arguments, index, context)?;
    }
    let expiry = expiry.unwrap_or(Expiry::Clear);
    let condition = FieldsCondition::of_fields(condition);
    Ok(Command::Hash(HashCommand::SetExpire { key, pairs, expiry, condition }))
}
