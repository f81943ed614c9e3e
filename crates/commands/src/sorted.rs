//! Parsing of the commands on sorted sets.

use std::borrow::Cow;

use kv::command::{parse_member_bound, parse_score, parse_score_bound};
use kv::number::parse_integer;
use kv::{AddOptions, Aggregate, By, Command, Kinds, List, SetOperation, SortedCommand};
use wire::resp::Arguments;

use super::arguments::{
    Parsed, at, counted, counted_keys, decimal, from_hexadecimal, integer, is, key, keys_before_last,
    not_negative, parsers, pop_count, random_options, timeout, value,
};
use super::keyspace::scan_options;
use super::later::Looks;
use super::{CommandError, Context};

fn sorted(command: SortedCommand<'_>) -> Parsed<'_> {
    Ok(Command::OnSorted(command))
}

pub(super) fn zadd<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let (mut options, mut counts_changes, mut increments) = (AddOptions::default(), false, false);
    let mut next = 2;
    while let Some(option) = arguments.get(next) {
        match option {
            nx if is(nx, "NX") => options.only_new = true,
            xx if is(xx, "XX") => options.only_old = true,
            gt if is(gt, "GT") => options.only_greater = true,
            lt if is(lt, "LT") => options.only_less = true,
            ch if is(ch, "CH") => counts_changes = true,
            incr if is(incr, "INCR") => increments = true,
            _ => break,
        }
        next += 1;
    }
    let count = arguments.len() - next;
    if count == 0 || !count.is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    if options.only_new && options.only_old {
        return Err(CommandError::AddXxWithNx);
    }
    let exclusive = [options.only_new, options.only_greater, options.only_less];
    if exclusive.into_iter().filter(|is_set| *is_set).count() > 1 {
        return Err(CommandError::AddGtWithLtOrNx);
    }
    if increments && count > 2 {
        return Err(CommandError::SeveralIncrements);
    }
    let mut has_hexadecimals = false;
    for index in (next..arguments.len()).step_by(2) {
        if parse_score(at(arguments, index)).is_none() {
            has_hexadecimals = true;
            from_hexadecimal(at(arguments, index), context).ok_or(CommandError::NotAFloat)?;
        }
        value(arguments, index + 1, context)?;
    }
    let key = key(arguments, 1)?;
    if increments {
        let member = at(arguments, next + 1);
        let delta = decimal(arguments, next, scratch, context).ok_or(CommandError::NotAFloat)?;
        return sorted(SortedCommand::Increment { key, delta, member, options });
    }
    let pairs = match has_hexadecimals {
        false => List::build(scratch, arguments.iter().skip(next)),
        true => in_decimals(arguments, next, scratch, context),
    };
    sorted(SortedCommand::Add { key, pairs, options, counts_changes })
}

/// Scores from `first` on, each with its member, where some scores are hexadecimal.
#[cold]
fn in_decimals<'a>(
    arguments: Arguments<'a>,
    first: usize,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> List<'a> {
    let decimals = (first..arguments.len()).step_by(2).map(|index| {
        let score = at(arguments, index);
        from_hexadecimal(score, context).map_or(Cow::Borrowed(score), Cow::Owned)
    });
    let decimals: Vec<Cow<'_, [u8]>> = decimals.collect();
    let members = arguments.iter().skip(first + 1).step_by(2);
    List::build(scratch, decimals.iter().zip(members).flat_map(|(score, member)| [score.as_ref(), member]))
}

pub(super) fn zincrby<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let delta = decimal(arguments, 2, scratch, context).ok_or(CommandError::NotAFloat)?;
    let (key, member, options) = (key(arguments, 1)?, value(arguments, 3, context)?, AddOptions::default());
    sorted(SortedCommand::Increment { key, delta, member, options })
}

pub(super) fn zrem<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    sorted(SortedCommand::Remove { key, members: List::build(scratch, arguments.iter().skip(2)) })
}

parsers! { (arguments, scratch, context)
    zcard => sorted(SortedCommand::Length { key: key(arguments, 1)? });
    zscore => sorted(SortedCommand::Score { key: key(arguments, 1)?, member: at(arguments, 2) });
}

pub(super) fn zmscore<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    sorted(SortedCommand::Scores { key, members: List::build(scratch, arguments.iter().skip(2)) })
}

parsers! { (arguments, scratch, context)
    zrank => rank(arguments, false, context);
    zrevrank => rank(arguments, true, context);
}

fn rank<'a>(arguments: Arguments<'a>, is_reverse: bool, context: &Context) -> Parsed<'a> {
    let (key, member) = (key(arguments, 1)?, at(arguments, 2));
    match arguments.get(3) {
        None => sorted(SortedCommand::Rank { key, member, is_reverse }),
        Some(_) if arguments.len() > 4 => {
            Err(CommandError::WrongArity(if is_reverse { "zrevrank" } else { "zrank" }))
        }
        Some(option) if !is(option, "WITHSCORE") => Err(CommandError::Syntax),
        Some(_) if context.level < 2 => Err(CommandError::NeedsLevel(2)),
        Some(_) => sorted(SortedCommand::RankWithScore { key, member, is_reverse }),
    }
}

/// The two ends of a range, the lower one first, from two arguments that follow each other.
fn ends<'a>(
    by: By,
    arguments: Arguments<'a>,
    index: usize,
    is_reverse: bool,
    scratch: &'a mut Vec<u8>,
) -> Result<List<'a>, CommandError> {
    let (start, end) = (at(arguments, index), at(arguments, index + 1));
    for text in [start, end] {
        match by {
            By::Rank => parse_integer(text).map(drop).ok_or(CommandError::NotAnInteger)?,
            By::Score => parse_score_bound(text).map(drop).ok_or(CommandError::NotAScoreRange)?,
            By::Member => parse_member_bound(text).map(drop).ok_or(CommandError::NotAMemberRange)?,
        }
    }
    let is_swapped = is_reverse && by != By::Rank;
    Ok(List::build(scratch, if is_swapped { [end, start] } else { [start, end] }))
}

pub(super) fn zcount<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, by) = (key(arguments, 1)?, By::Score);
    sorted(SortedCommand::Count { key, by, ends: ends(by, arguments, 2, false, scratch)? })
}

pub(super) fn zlexcount<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (key, by) = (key(arguments, 1)?, By::Member);
    sorted(SortedCommand::Count { key, by, ends: ends(by, arguments, 2, false, scratch)? })
}

fn remove_range<'a>(by: By, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    sorted(SortedCommand::RemoveRange { key, by, ends: ends(by, arguments, 2, false, scratch)? })
}

parsers! { (arguments, scratch, context)
    zremrangebyrank => remove_range(By::Rank, arguments, scratch);
    zremrangebyscore => remove_range(By::Score, arguments, scratch);
    zremrangebylex => remove_range(By::Member, arguments, scratch);
}

/// The options of a command on ranges. Those that follow from the command's name are set beforehand.
struct RangeOptions {
    by: Option<By>,
    is_reverse: Option<bool>,
    /// How many to skip, and how many to return at most.
    limit: Option<(u32, u32)>,
    with_scores: bool,
}

impl RangeOptions {
    /// Reads the options from `index` on. `takes_scores`: whether `WITHSCORES` is one of them.
    fn read(
        mut self,
        arguments: Arguments<'_>,
        mut index: usize,
        takes_scores: bool,
    ) -> Result<RangeOptions, CommandError> {
        // With this length, `LIMIT` is allowed for a range of ranks, and has no effect.
        const NO_BOUND: i64 = -1;
        let mut bounds = false;
        while let Some(option) = arguments.get(index) {
            if takes_scores && is(option, "WITHSCORES") {
                self.with_scores = true;
            } else if is(option, "LIMIT") && index + 2 < arguments.len() {
                // A negative offset skips everything, and a negative length keeps everything.
                let most = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
                let (skip, count) = (integer(arguments, index + 1)?, integer(arguments, index + 2)?);
                self.limit = Some((most(skip), most(count)));
                bounds = count != NO_BOUND;
                index += 2;
            } else if self.is_reverse.is_none() && is(option, "REV") {
                self.is_reverse = Some(true);
            } else if self.by.is_none() && is(option, "BYLEX") {
                self.by = Some(By::Member);
            } else if self.by.is_none() && is(option, "BYSCORE") {
                self.by = Some(By::Score);
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        let by = self.by.unwrap_or(By::Rank);
        if by == By::Rank {
            if bounds {
                return Err(CommandError::LimitByRank);
            }
            self.limit = None;
        }
        if self.with_scores && by == By::Member {
            return Err(CommandError::ScoresByMember);
        }
        Ok(self)
    }
}

fn range<'a>(
    by: Option<By>,
    is_reverse: Option<bool>,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Parsed<'a> {
    let given = RangeOptions { by, is_reverse, limit: None, with_scores: false };
    let RangeOptions { by, is_reverse, limit, with_scores } = given.read(arguments, 4, true)?;
    let (by, is_reverse) = (by.unwrap_or(By::Rank), is_reverse.unwrap_or(false));
    let (skip, count) = limit.unwrap_or((0, u32::MAX));
    let (key, ends) = (key(arguments, 1)?, ends(by, arguments, 2, is_reverse, scratch)?);
    sorted(SortedCommand::Range { key, by, ends, is_reverse, skip, count, with_scores })
}

parsers! { (arguments, scratch, context)
    zrange => range(None, None, arguments, scratch);
    zrevrange => range(Some(By::Rank), Some(true), arguments, scratch);
    zrangebyscore => range(Some(By::Score), Some(false), arguments, scratch);
    zrevrangebyscore => range(Some(By::Score), Some(true), arguments, scratch);
    zrangebylex => range(Some(By::Member), Some(false), arguments, scratch);
    zrevrangebylex => range(Some(By::Member), Some(true), arguments, scratch);
}

pub(super) fn zrangestore<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let given = RangeOptions { by: None, is_reverse: None, limit: None, with_scores: false };
    let RangeOptions { by, is_reverse, limit, .. } = given.read(arguments, 5, false)?;
    let (by, is_reverse) = (by.unwrap_or(By::Rank), is_reverse.unwrap_or(false));
    let (skip, count) = limit.unwrap_or((0, u32::MAX));
    let (to, from) = (key(arguments, 1)?, key(arguments, 2)?);
    let ends = ends(by, arguments, 3, is_reverse, scratch)?;
    sorted(SortedCommand::StoreRange { to, from, by, ends, is_reverse, skip, count })
}

parsers! { (arguments, scratch, context)
    zpopmin => pop(false, arguments);
    zpopmax => pop(true, arguments);
}

fn pop(is_highest: bool, arguments: Arguments<'_>) -> Parsed<'_> {
    let count = match arguments.len() {
        2 => None,
        3 => Some(not_negative(arguments, 2, CommandError::NotPositive)?),
        _ => return Err(CommandError::Syntax),
    };
    sorted(SortedCommand::Pop { key: key(arguments, 1)?, is_highest, count })
}

pub(super) fn bzpopmin<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    timeout(arguments, arguments.len() - 1, context.level)?;
    sorted(SortedCommand::PopAny { keys: keys_before_last(arguments, scratch)?, is_highest: false })
}

pub(super) fn bzpopmax<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    timeout(arguments, arguments.len() - 1, context.level)?;
    sorted(SortedCommand::PopAny { keys: keys_before_last(arguments, scratch)?, is_highest: true })
}

pub(super) fn bzmpop<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let command = multi_pop(arguments, 2, scratch)?;
    timeout(arguments, 1, context.level)?;
    Ok(command)
}

pub(super) fn zmpop<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    multi_pop(arguments, 1, scratch)
}

fn multi_pop<'a>(arguments: Arguments<'a>, counted_at: usize, scratch: &'a mut Vec<u8>) -> Parsed<'a> {
    let (keys, next) = counted_keys(arguments, counted_at, scratch)?;
    let is_highest = match at(arguments, next) {
        min if is(min, "MIN") => false,
        max if is(max, "MAX") => true,
        _ => return Err(CommandError::Syntax),
    };
    let count = pop_count(arguments, next + 1)?;
    sorted(SortedCommand::MultiPop { keys, is_highest, count })
}

pub(super) fn zrandmember<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (count, with_scores) = random_options(arguments, "WITHSCORES")?;
    sorted(SortedCommand::Random { key: key(arguments, 1)?, count, with_scores })
}

pub(super) fn zscan<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let last = arguments.len() - 1;
    let without_scores = context.level >= 2 && last > 2 && is(at(arguments, last), "NOSCORES");
    let end = if without_scores { last } else { last + 1 };
    let ((position, count, pattern), key) =
        (scan_options(arguments, end, Kinds::SORTED)?, key(arguments, 1)?);
    sorted(match without_scores {
        true => SortedCommand::ScanMembers { key, position, count, pattern },
        false => SortedCommand::Scan { key, position, count, pattern },
    })
}

/// The range of the keys of a command on several sorted sets, which follow their number at `index`.
fn inputs(
    name: &'static str,
    arguments: Arguments<'_>,
    index: usize,
) -> Result<std::ops::Range<usize>, CommandError> {
    if integer(arguments, index)? < 1 {
        return Err(CommandError::NoInputKey(name));
    }
    let keys = counted(arguments, index, 1)?;
    for index in keys.clone() {
        key(arguments, index)?;
    }
    Ok(keys)
}

/// How several sorted sets are combined.
struct Combined<'a> {
    inputs: List<'a>,
    is_weighted: bool,
    aggregate: Aggregate,
    with_scores: bool,
}

fn combined<'a>(
    name: &'static str,
    operation: SetOperation,
    is_stored: bool,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<Combined<'a>, CommandError> {
    let keys = inputs(name, arguments, if is_stored { 2 } else { 1 })?;
    let looks = || Looks::at_all(keys.clone(), Kinds::SET.or(Kinds::SORTED));
    let (mut weights, mut aggregate, mut with_scores) = (None, Aggregate::Sum, false);
    let (takes_weights, mut index) = (operation != SetOperation::Difference, keys.end);
    while let Some(option) = arguments.get(index) {
        let left = arguments.len() - index - 1;
        if takes_weights && is(option, "WEIGHTS") && left >= keys.len() {
            for weight in index + 1..=index + keys.len() {
                looks().then(parse_score(at(arguments, weight)).ok_or(CommandError::NotAWeight))?;
            }
            weights = Some(index + 1);
            index += keys.len();
        } else if takes_weights && is(option, "AGGREGATE") && left >= 1 {
            index += 1;
            aggregate = match at(arguments, index) {
                sum if is(sum, "SUM") => Aggregate::Sum,
                min if is(min, "MIN") => Aggregate::Least,
                max if is(max, "MAX") => Aggregate::Greatest,
                _ => return looks().then(Err(CommandError::Syntax)),
            };
        } else if !is_stored && is(option, "WITHSCORES") {
            with_scores = true;
        } else {
            return looks().then(Err(CommandError::Syntax));
        }
        index += 1;
    }
    let inputs = keys.clone().flat_map(|index| {
        let weight = weights.map(|first| at(arguments, first + index - keys.start));
        std::iter::once(at(arguments, index)).chain(weight)
    });
    let inputs = List::build(scratch, inputs);
    Ok(Combined { inputs, is_weighted: weights.is_some(), aggregate, with_scores })
}

fn combine<'a>(
    name: &'static str,
    operation: SetOperation,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Parsed<'a> {
    let Combined { inputs, is_weighted, aggregate, with_scores } =
        combined(name, operation, false, arguments, scratch)?;
    sorted(SortedCommand::Combine { operation, inputs, is_weighted, aggregate, with_scores })
}

fn store<'a>(
    name: &'static str,
    operation: SetOperation,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Parsed<'a> {
    let to = key(arguments, 1)?;
    let Combined { inputs, is_weighted, aggregate, .. } =
        combined(name, operation, true, arguments, scratch)?;
    sorted(SortedCommand::Store { to, operation, inputs, is_weighted, aggregate })
}

parsers! { (arguments, scratch, context)
    zunion => combine("zunion", SetOperation::Union, arguments, scratch);
    zinter => combine("zinter", SetOperation::Intersection, arguments, scratch);
    zdiff => combine("zdiff", SetOperation::Difference, arguments, scratch);
    zunionstore => store("zunionstore", SetOperation::Union, arguments, scratch);
    zinterstore => store("zinterstore", SetOperation::Intersection, arguments, scratch);
    zdiffstore => store("zdiffstore", SetOperation::Difference, arguments, scratch);
}

pub(super) fn zintercard<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let keys = inputs("zintercard", arguments, 1)?;
    let looks = || Looks::at_all(keys.clone(), Kinds::SET.or(Kinds::SORTED));
    let mut limit = 0;
    for index in (keys.end..arguments.len()).step_by(2) {
        if !is(at(arguments, index), "LIMIT") || index + 1 == arguments.len() {
            return looks().then(Err(CommandError::Syntax));
        }
        limit = looks().then(not_negative(arguments, index + 1, CommandError::Negative("LIMIT")))?;
    }
    let keys = List::build(scratch, arguments.iter().skip(keys.start).take(keys.len()));
    sorted(SortedCommand::CountCommon { keys, limit })
}
