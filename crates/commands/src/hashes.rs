//! Parsing of the commands on hashes.

use std::ops::Range;

use kv::command::{ExpireCondition, ExpiryUnit, FieldsCondition};
use kv::number::parse_float;
use kv::{Command, Condition, Deadline, Expiry, HashCommand, HashPart, Kinds, List};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, decimal, integer, is, key, parsers, random_options, value};
use super::error::printable;
use super::expiry::ExpiryOption;
use super::keyspace::scan_options;
use super::later::Looks;
use super::{CommandError, Context, fields_of_release_1};

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
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let delta = decimal(arguments, 3, scratch, context).ok_or(CommandError::NotAFloat)?;
    if !parse_float(delta).is_some_and(f64::is_finite) {
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

/// The fields of a command that takes nothing else: `FIELDS` and their number stand before them. Redis looks at the key first.
fn all_fields<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Result<List<'a>, CommandError> {
    let checked = if !is(at(arguments, 2), "FIELDS") {
        Err(CommandError::OfFields("ERR Mandatory argument FIELDS is missing or not at the right position"))
    } else {
        match integer(arguments, 3).ok().and_then(|count| usize::try_from(count).ok()) {
            None | Some(0) => Err(CommandError::OfFields("ERR Number of fields must be a positive integer")),
            Some(count) if count != arguments.len().saturating_sub(4) => Err(CommandError::OfFields(
                "ERR The `numfields` parameter must match the number of arguments",
            )),
            Some(_) => Ok(()),
        }
    };
    Looks::at(1, Kinds::HASH).then(checked)?;
    Ok(List::build(scratch, arguments.iter().skip(4)))
}

/// Where the fields stand of a command that has options too, and in any order: after `FIELDS`, which is at `index`, and
/// their number, with `width` arguments for each.
fn fields_at(
    arguments: Arguments<'_>,
    index: usize,
    width: usize,
    not_a_count: &'static str,
) -> Result<Range<usize>, CommandError> {
    let count = integer(arguments, index + 1).ok().and_then(|count| i32::try_from(count).ok());
    let count = count.filter(|count| *count > 0).ok_or(CommandError::OfFields(not_a_count))?;
    let first = index + 2;
    let end = (count as usize).saturating_mul(width).saturating_add(first);
    if end > arguments.len() {
        return Err(CommandError::OfFields("ERR wrong number of arguments"));
    }
    Ok(first..end)
}

const FIELDS_TWICE: CommandError = CommandError::OfFields("ERR FIELDS keyword specified multiple times");
const NO_FIELDS: CommandError = CommandError::OfFields("ERR missing FIELDS argument");

fn expire<'a>(
    name: &'static str,
    option: ExpiryOption,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    if context.level < 2 {
        return fields_of_release_1::expire(name, option, arguments, scratch, context);
    }
    let key = key(arguments, 1)?;
    let options = expire_options(name, option, arguments, context);
    let (deadline, condition, fields) = Looks::at(1, Kinds::HASH).then(options)?;
    let fields = List::build(scratch, arguments.iter().skip(fields.start).take(fields.len()));
    Ok(Command::Hash(HashCommand::Expire { key, fields, deadline, condition }))
}

/// Reads the options of `HEXPIRE` and kin. Returns the deadline, its condition, and where the fields stand.
fn expire_options(
    name: &'static str,
    option: ExpiryOption,
    arguments: Arguments<'_>,
    context: &Context,
) -> Result<(Deadline, ExpireCondition, Range<usize>), CommandError> {
    let deadline = field_deadline(option, name, arguments, 2, context)?;
    let conditions = [
        ("NX", ExpireCondition::IfNone),
        ("XX", ExpireCondition::IfSome),
        ("GT", ExpireCondition::IfLater),
        ("LT", ExpireCondition::IfEarlier),
    ];
    let (mut condition, mut crossed, mut fields, mut index) = (None, false, None, 3);
    while let Some(option) = arguments.get(index) {
        if is(option, "FIELDS") {
            if fields.is_some() {
                return Err(FIELDS_TWICE);
            }
            if index + 2 >= arguments.len() {
                let text = "ERR FIELDS requires at least numfields and one field argument";
                return Err(CommandError::OfFields(text));
            }
            let range = fields_at(arguments, index, 1, "ERR Parameter `numFields` should be greater than 0")?;
            index = range.end;
            fields = Some(range);
            continue;
        }
        match conditions.into_iter().find(|(word, _)| is(option, word)) {
            // A condition may be repeated, but there is only one.
            Some((_, given)) => crossed |= condition.replace(given).is_some_and(|before| before != given),
            None => return Err(CommandError::UnknownArgument(printable(option))),
        }
        index += 1;
    }
    let fields = fields.ok_or(NO_FIELDS)?;
    if crossed {
        return Err(CommandError::OfFields("ERR Multiple condition flags specified"));
    }
    Ok((deadline, condition.unwrap_or(ExpireCondition::Always), fields))
}

/// The latest deadline of a field, in milliseconds of Unix time, as in Redis: in the year 4199.
const FIELD_DEADLINE_MAX: i64 = (1 << 46) - 1;

/// The deadline of a field: 0 is in the past, but not an error.
fn field_deadline(
    option: ExpiryOption,
    name: &'static str,
    arguments: Arguments<'_>,
    index: usize,
    context: &Context,
) -> Result<Deadline, CommandError> {
    if integer(arguments, index)? < 0 {
        return Err(CommandError::NegativeExpireTime);
    }
    let deadline = option.any_deadline(name, arguments, index, context)?;
    let latest = match deadline {
        Deadline::At(_) => FIELD_DEADLINE_MAX,
        Deadline::In(_) => FIELD_DEADLINE_MAX.saturating_sub_unsigned(context.now_ms),
    };
    match deadline {
        Deadline::At(ms) | Deadline::In(ms) if ms > latest => Err(CommandError::InvalidExpireTime(name)),
        _ => Ok(deadline),
    }
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

/// What is given to `HGETEX` and `HSETEX`, in any order.
struct FieldOptions {
    expiry: Option<Expiry>,
    condition: FieldsCondition,
    /// Where the fields stand, with their values.
    fields: Range<usize>,
}

/// Reads the options of `HSETEX`, which sets fields, or of `HGETEX`.
fn field_options(
    sets: bool,
    arguments: Arguments<'_>,
    context: &Context,
) -> Result<FieldOptions, CommandError> {
    let (name, width) = if sets { ("hsetex", 2) } else { ("hgetex", 1) };
    let several = CommandError::OfFields(if sets {
        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"
    } else {
        "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified"
    });
    let (mut expiry, mut of_key, mut condition, mut fields, mut index) = (None, None, None, None, 2);
    // An option that only the other command has gets an error of its own, after all other errors.
    let mut of_the_other = false;
    while let Some(option) = arguments.get(index) {
        if is(option, "FIELDS") {
            if fields.is_some() {
                return Err(FIELDS_TWICE);
            }
            if index + 1 >= arguments.len() {
                return Err(CommandError::WrongArity(name));
            }
            let range = fields_at(arguments, index, width, "ERR invalid number of fields")?;
            index = range.end;
            fields = Some(range);
            continue;
        }
        if sets && (is(option, "NX") || is(option, "XX")) {
            let given = if is(option, "NX") { Condition::IfAbsent } else { Condition::IfPresent };
            if of_key.replace(given).is_some() {
                return Err(CommandError::OfFields("ERR Only one of XX or NX arguments can be specified"));
            }
        } else if is(option, "FNX") || is(option, "FXX") {
            let given = if is(option, "FNX") { Condition::IfAbsent } else { Condition::IfPresent };
            of_the_other |= !sets;
            if condition.replace(given).is_some() {
                let text = "ERR Only one of FXX or FNX arguments can be specified";
                return Err(CommandError::OfFields(text));
            }
        } else if is(option, "KEEPTTL") || is(option, "PERSIST") {
            let keeps = is(option, "KEEPTTL");
            of_the_other |= keeps != sets;
            let given = if keeps { Expiry::Keep } else { Expiry::Clear };
            let other = if keeps { Expiry::Clear } else { Expiry::Keep };
            if expiry.replace(given).is_some_and(|before| before != other) {
                return Err(several);
            }
        } else if let Some(option) = ExpiryOption::named(option) {
            if expiry.is_some() {
                return Err(several);
            }
            index += 1;
            if index >= arguments.len() {
                return Err(CommandError::OfFields("ERR missing expire time"));
            }
            expiry = Some(Expiry::Set(field_deadline(option, name, arguments, index, context)?));
        } else {
            return Err(CommandError::UnknownArgument(printable(option)));
        }
        index += 1;
    }
    let fields = fields.ok_or(NO_FIELDS)?;
    if of_the_other {
        return Err(CommandError::OfFields("ERR unknown argument"));
    }
    let or_always = |condition: Option<_>| condition.unwrap_or(Condition::Always);
    let condition = FieldsCondition { key: or_always(of_key), fields: or_always(condition) };
    Ok(FieldOptions { expiry, condition, fields })
}

pub(super) fn hgetex<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    if context.level < 2 {
        return fields_of_release_1::hgetex(arguments, scratch, context);
    }
    let key = key(arguments, 1)?;
    let options = Looks::at(1, Kinds::HASH).then(field_options(false, arguments, context))?;
    let fields = List::build(scratch, arguments.iter().skip(options.fields.start).take(options.fields.len()));
    Ok(Command::Hash(match options.expiry {
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
    if context.level < 2 {
        return fields_of_release_1::hsetex(arguments, scratch, context);
    }
    let key = key(arguments, 1)?;
    let FieldOptions { expiry, condition, fields } = field_options(true, arguments, context)?;
    for index in fields.clone() {
        value(arguments, index, context)?;
    }
    let pairs = List::build(scratch, arguments.iter().skip(fields.start).take(fields.len()));
    let expiry = expiry.unwrap_or(Expiry::Clear);
    Ok(Command::Hash(HashCommand::SetExpire { key, pairs, expiry, condition }))
}
