//! Parsing of the commands on sets.

use kv::{Command, Kinds, List, SetCommand, SetOperation};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, counted, integer, is, key, not_negative, parsers, positive, value};
use super::keyspace::scan_options;
use super::strings::all_keys;
use super::{CommandError, Context};

pub(super) fn sadd<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    for index in 2..arguments.len() {
        value(arguments, index, context)?;
    }
    let members = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::OnSet(SetCommand::Add { key, members }))
}

pub(super) fn srem<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let members = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::OnSet(SetCommand::Remove { key, members }))
}

parsers! { (arguments, scratch, context)
    scard => Ok(Command::OnSet(SetCommand::Length { key: key(arguments, 1)? }));
    sismember =>
        Ok(Command::OnSet(SetCommand::Contains { key: key(arguments, 1)?, member: at(arguments, 2) }));
}

pub(super) fn smismember<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let members = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::OnSet(SetCommand::ContainsEach { key, members }))
}

pub(super) fn smembers<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::OnSet(SetCommand::All { key: key(arguments, 1)? }))
}

pub(super) fn smove<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (from, to, member) = (key(arguments, 1)?, key(arguments, 2)?, at(arguments, 3));
    Ok(Command::OnSet(SetCommand::Move { from, to, member }))
}

pub(super) fn spop<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let count = match arguments.len() {
        2 => None,
        3 => Some(not_negative(arguments, 2, CommandError::NotPositive)?),
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::OnSet(SetCommand::Pop { key: key(arguments, 1)?, count }))
}

pub(super) fn srandmember<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let count = match arguments.len() {
        2 => None,
        3 => Some(integer(arguments, 2)?),
        _ => return Err(CommandError::Syntax),
    };
    if count == Some(i64::MIN) {
        return Err(CommandError::CountOutOfRange);
    }
    Ok(Command::OnSet(SetCommand::Random { key: key(arguments, 1)?, count }))
}

pub(super) fn sscan<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (position, count, pattern) = scan_options(arguments, arguments.len(), Kinds::SET)?;
    Ok(Command::OnSet(SetCommand::Scan { key: key(arguments, 1)?, position, count, pattern }))
}

parsers! { (arguments, scratch, context)
    sinter => combine(SetOperation::Intersection, arguments, scratch);
    sunion => combine(SetOperation::Union, arguments, scratch);
    sdiff => combine(SetOperation::Difference, arguments, scratch);
}

fn combine<'a>(operation: SetOperation, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    Ok(Command::OnSet(SetCommand::Combine { operation, keys: all_keys(arguments, scratch)? }))
}

parsers! { (arguments, scratch, context)
    sinterstore => store(SetOperation::Intersection, arguments, scratch);
    sunionstore => store(SetOperation::Union, arguments, scratch);
    sdiffstore => store(SetOperation::Difference, arguments, scratch);
}

fn store<'a>(operation: SetOperation, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    let to = key(arguments, 1)?;
    let keys = all_keys(arguments.skip(1), scratch)?;
    Ok(Command::OnSet(SetCommand::Store { operation, to, keys }))
}

pub(super) fn sintercard<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    positive(arguments, 1, "numkeys")?;
    let keys = counted(arguments, 1, 1).map_err(|_| CommandError::TooManyKeys)?;
    let mut limit = 0;
    for index in (keys.end..arguments.len()).step_by(2) {
        if !is(at(arguments, index), "LIMIT") || index + 1 == arguments.len() {
            return Err(CommandError::Syntax);
        }
        limit = not_negative(arguments, index + 1, CommandError::Negative("LIMIT"))?;
    }
    for index in keys.clone() {
        key(arguments, index)?;
    }
    let keys = List::build(scratch, arguments.iter().skip(keys.start).take(keys.len()));
    Ok(Command::OnSet(SetCommand::CountCommon { keys, limit }))
}
