//! Parsing of the commands on hashes.

use kv::number::parse_float;
use kv::{Command, HashCommand, HashPart, List};
use wire::resp::Arguments;

use super::arguments::{at, integer, key, value};
use super::keyspace::scan_options;
use super::{CommandError, Context};

type Parsed<'a> = Result<Command<'a>, CommandError>;

pub(super) fn hset<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    set("hset", true, arguments, scratch, context)
}

pub(super) fn hmset<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    set("hmset", false, arguments, scratch, context)
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
    Ok(Command::Hash(HashCommand::Set { key, pairs, bytes_max: bytes_max(context), counts }))
}

/// The largest size of the whole hash. It travels with the command: the limit can differ from node to
/// node.
fn bytes_max(context: &Context) -> u64 {
    context.value_bytes_max as u64
}

pub(super) fn hsetnx<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (field, value) = (value(arguments, 2, context)?, value(arguments, 3, context)?);
    let (key, bytes_max) = (key(arguments, 1)?, bytes_max(context));
    Ok(Command::Hash(HashCommand::SetIfAbsent { key, field, value, bytes_max }))
}

pub(super) fn hget<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::Get { key: key(arguments, 1)?, field: at(arguments, 2) }))
}

pub(super) fn hmget<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let fields = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::Hash(HashCommand::MultiGet { key, fields }))
}

pub(super) fn hgetall<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::All { key: key(arguments, 1)?, part: HashPart::Both }))
}

pub(super) fn hkeys<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::All { key: key(arguments, 1)?, part: HashPart::Fields }))
}

pub(super) fn hvals<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::All { key: key(arguments, 1)?, part: HashPart::Values }))
}

pub(super) fn hlen<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::Length { key: key(arguments, 1)? }))
}

pub(super) fn hexists<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::Exists { key: key(arguments, 1)?, field: at(arguments, 2) }))
}

pub(super) fn hstrlen<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    Ok(Command::Hash(HashCommand::ValueLength { key: key(arguments, 1)?, field: at(arguments, 2) }))
}

pub(super) fn hdel<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let fields = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::Hash(HashCommand::Delete { key, fields }))
}

pub(super) fn hincrby<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let delta = integer(arguments, 3)?;
    let (key, field, bytes_max) = (key(arguments, 1)?, value(arguments, 2, context)?, bytes_max(context));
    Ok(Command::Hash(HashCommand::IncrementBy { key, field, delta, bytes_max }))
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
    let (key, field, bytes_max) = (key(arguments, 1)?, value(arguments, 2, context)?, bytes_max(context));
    Ok(Command::Hash(HashCommand::IncrementByFloat { key, field, delta, bytes_max }))
}

pub(super) fn hscan<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (position, count, pattern) = scan_options(arguments)?;
    Ok(Command::Hash(HashCommand::Scan { key: key(arguments, 1)?, position, count, pattern }))
}
