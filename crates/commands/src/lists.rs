//! Parsing of the commands on lists.

use kv::{Answer, Command, Kinds, List, ListCommand};
use wire::resp::Arguments;

use super::arguments::{
    Parsed, at, counted_keys, integer, is, key, keys_before_last, not_negative, parsers, pop_count, timeout,
    value,
};
use super::later::{Looks, NO_SUCH_KEY};
use super::{CommandError, Context};

/// Which end of a list an argument names: whether it is the front.
fn is_front(argument: &[u8]) -> Result<bool, CommandError> {
    match argument {
        left if is(left, "LEFT") => Ok(true),
        right if is(right, "RIGHT") => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

parsers! { (arguments, scratch, context)
    lpush => push(true, false, arguments, scratch, context);
    rpush => push(false, false, arguments, scratch, context);
    lpushx => push(true, true, arguments, scratch, context);
    rpushx => push(false, true, arguments, scratch, context);
}

fn push<'a>(
    at_front: bool,
    if_present: bool,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    for index in 2..arguments.len() {
        value(arguments, index, context)?;
    }
    let elements = List::build(scratch, arguments.iter().skip(2));
    Ok(Command::OnList(ListCommand::Push { key, elements, at_front, if_present }))
}

parsers! { (arguments, scratch, context)
    lpop => pop("lpop", true, arguments);
    rpop => pop("rpop", false, arguments);
}

fn pop<'a>(name: &'static str, at_front: bool, arguments: Arguments<'a>) -> Parsed<'a> {
    if arguments.len() > 3 {
        return Err(CommandError::WrongArity(name));
    }
    let count = match arguments.len() {
        3 => Some(not_negative(arguments, 2, CommandError::NotPositive)?),
        _ => None,
    };
    Ok(Command::OnList(ListCommand::Pop { key: key(arguments, 1)?, at_front, count }))
}

parsers! { (arguments, scratch, context)
    llen => Ok(Command::OnList(ListCommand::Length { key: key(arguments, 1)? }));
    lindex => {
        let rank = Looks::at(1, Kinds::LIST).or(Answer::Null).then(integer(arguments, 2))?;
        Ok(Command::OnList(ListCommand::Index { key: key(arguments, 1)?, rank }))
    };
}

pub(super) fn lset<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let rank = Looks::at(1, Kinds::LIST).or(NO_SUCH_KEY).then(integer(arguments, 2))?;
    let (key, element) = (key(arguments, 1)?, value(arguments, 3, context)?);
    Ok(Command::OnList(ListCommand::Set { key, rank, element }))
}

pub(super) fn lrange<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (start, end) = (integer(arguments, 2)?, integer(arguments, 3)?);
    Ok(Command::OnList(ListCommand::Range { key: key(arguments, 1)?, start, end }))
}

pub(super) fn ltrim<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (start, end) = (integer(arguments, 2)?, integer(arguments, 3)?);
    Ok(Command::OnList(ListCommand::Trim { key: key(arguments, 1)?, start, end }))
}

pub(super) fn linsert<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let is_before = match at(arguments, 2) {
        before if is(before, "BEFORE") => true,
        after if is(after, "AFTER") => false,
        _ => return Err(CommandError::Syntax),
    };
    let (key, pivot, element) = (key(arguments, 1)?, at(arguments, 3), value(arguments, 4, context)?);
    Ok(Command::OnList(ListCommand::Insert { key, is_before, pivot, element }))
}

pub(super) fn lrem<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, count, element) = (key(arguments, 1)?, integer(arguments, 2)?, at(arguments, 3));
    Ok(Command::OnList(ListCommand::Remove { key, count, element }))
}

pub(super) fn lpos<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (key, element) = (key(arguments, 1)?, at(arguments, 2));
    let (mut skip, mut count, mut compared_max) = (1, None, 0);
    for index in (3..arguments.len()).step_by(2) {
        let (option, argument) = (at(arguments, index), index + 1);
        if argument == arguments.len() {
            return Err(CommandError::Syntax);
        }
        if is(option, "RANK") {
            skip = integer(arguments, argument)?;
            if skip == 0 {
                return Err(CommandError::RankZero);
            }
            // Redis 7.0 and release 1 accept it.
            if skip == i64::MIN && context.level >= 2 {
                return Err(CommandError::RankOutOfRange);
            }
        } else if is(option, "COUNT") {
            count = Some(not_negative(arguments, argument, CommandError::Negative("COUNT"))?);
        } else if is(option, "MAXLEN") {
            compared_max = not_negative(arguments, argument, CommandError::Negative("MAXLEN"))?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(Command::OnList(ListCommand::Position { key, element, skip, count, compared_max }))
}

pub(super) fn lmove<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (from_front, to_front) = (is_front(at(arguments, 3))?, is_front(at(arguments, 4))?);
    let (from, to) = (key(arguments, 1)?, key(arguments, 2)?);
    Ok(Command::OnList(ListCommand::Move { from, to, from_front, to_front }))
}

pub(super) fn rpoplpush<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (from, to) = (key(arguments, 1)?, key(arguments, 2)?);
    Ok(Command::OnList(ListCommand::Move { from, to, from_front: false, to_front: true }))
}

// Blocking commands are parsed to what they do when they need not wait.

pub(super) fn blpop<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    timeout(arguments, arguments.len() - 1, context.level)?;
    let keys = keys_before_last(arguments, scratch)?;
    Ok(Command::OnList(ListCommand::PopAny { keys, at_front: true }))
}

pub(super) fn brpop<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    timeout(arguments, arguments.len() - 1, context.level)?;
    let keys = keys_before_last(arguments, scratch)?;
    Ok(Command::OnList(ListCommand::PopAny { keys, at_front: false }))
}

pub(super) fn blmove<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let command = lmove(arguments, scratch, context)?;
    timeout(arguments, 5, context.level)?;
    Ok(command)
}

pub(super) fn brpoplpush<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    timeout(arguments, 3, context.level)?;
    rpoplpush(arguments, scratch, context)
}

pub(super) fn blmpop<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let command = multi_pop(arguments, 2, scratch)?;
    timeout(arguments, 1, context.level)?;
    Ok(command)
}

pub(super) fn lmpop<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    multi_pop(arguments, 1, scratch)
}

fn multi_pop<'a>(arguments: Arguments<'a>, counted_at: usize, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    let (keys, next) = counted_keys(arguments, counted_at, scratch)?;
    let at_front = is_front(at(arguments, next))?;
    let count = pop_count(arguments, next + 1)?;
    Ok(Command::OnList(ListCommand::MultiPop { keys, at_front, count }))
}
