//! Parsing of `SORT`.

use kv::command::SortOptions;
use kv::{Command, List, SortCommand};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, parsers};
use super::{CommandError, Context};

parsers! { (arguments, scratch, context)
    sort => sort_to(true, arguments, scratch);
    sort_ro => sort_to(false, arguments, scratch);
}

fn sort_to<'a>(may_store: bool, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    let (mut by, mut gets, mut limit, mut to) = (None, Vec::new(), (0, -1), None);
    let (mut is_reverse, mut by_text, mut index) = (false, false, 2);
    while let Some(option) = arguments.get(index) {
        let left = arguments.len() - index - 1;
        if is(option, "ASC") {
            is_reverse = false;
        } else if is(option, "DESC") {
            is_reverse = true;
        } else if is(option, "ALPHA") {
            by_text = true;
        } else if is(option, "LIMIT") && left >= 2 {
            limit = (integer(arguments, index + 1)?, integer(arguments, index + 2)?);
            index += 2;
        } else if may_store && is(option, "STORE") && left >= 1 {
            index += 1;
            to = Some(key(arguments, index)?);
        } else if is(option, "BY") && left >= 1 {
            index += 1;
            by = Some(at(arguments, index));
        } else if is(option, "GET") && left >= 1 {
            index += 1;
            gets.push(at(arguments, index));
        } else {
            return Err(CommandError::Syntax);
        }
        index += 1;
    }
    let mut listed = Vec::new();
    let gets = List::build(&mut listed, gets);
    scratch.clear();
    SortOptions { by, gets, limit, is_reverse, by_text }.encode(scratch);
    let (key, options) = (key(arguments, 1)?, &scratch[..]);
    Ok(Command::Sort(match to {
        Some(to) => SortCommand::Store { key, to, options },
        None => SortCommand::Read { key, options },
    }))
}
