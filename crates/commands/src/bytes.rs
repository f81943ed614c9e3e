//! Parsing of the commands on the bytes of strings: bits, sketches, `LCS`.

use kv::command::{BitOperation, CommonAnswer, FieldAction, FieldOperation, Overflow};
use kv::number::parse_integer;
use kv::{BytesCommand, Command, Kinds, List};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, parsers, value};
use super::later::Looks;
use super::strings::all_keys;
use super::{CommandError, Context};

fn bytes(command: BytesCommand<'_>) -> Parsed<'_> {
    Ok(Command::OnBytes(command))
}

/// The offset of a field of `bits` bits, which must end within the longest value.
fn offset(text: &[u8], bits: u64, context: &Context) -> Result<u64, CommandError> {
    let offset = parse_integer(text).and_then(|offset| u64::try_from(offset).ok());
    let is_within = |offset: &u64| {
        offset.checked_add(bits).is_some_and(|end| end.div_ceil(8) <= context.value_bytes_max as u64)
    };
    offset.filter(is_within).ok_or(CommandError::BitOffset)
}

pub(super) fn setbit<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let offset = offset(at(arguments, 2), 1, context)?;
    let bit = match at(arguments, 3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(CommandError::NotABit),
    };
    bytes(BytesCommand::SetBit { key: key(arguments, 1)?, offset, bit })
}

pub(super) fn getbit<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let offset = offset(at(arguments, 2), 1, context)?;
    bytes(BytesCommand::GetBit { key: key(arguments, 1)?, offset })
}

/// Whether the unit of a range, if one is given at `index`, is bits.
fn in_bits(arguments: Arguments<'_>, index: usize) -> Result<bool, CommandError> {
    match arguments.get(index) {
        None => Ok(false),
        Some(unit) if is(unit, "BIT") => Ok(true),
        Some(unit) if is(unit, "BYTE") => Ok(false),
        Some(_) => Err(CommandError::Syntax),
    }
}

pub(super) fn bitcount<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let (start, end, in_bits) = match arguments.len() {
        2 => (0, -1, false),
        4 | 5 => (integer(arguments, 2)?, integer(arguments, 3)?, in_bits(arguments, 4)?),
        _ => return Err(CommandError::Syntax),
    };
    bytes(BytesCommand::CountBits { key, start, end, in_bits })
}

pub(super) fn bitpos<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let bit = match integer(arguments, 2)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::NotZeroOrOne),
    };
    if arguments.len() > 6 {
        return Err(CommandError::Syntax);
    }
    let start = if arguments.len() > 3 { integer(arguments, 3)? } else { 0 };
    let in_bits = in_bits(arguments, 5)?;
    let end = if arguments.len() > 4 { Some(integer(arguments, 4)?) } else { None };
    bytes(BytesCommand::FindBit { key: key(arguments, 1)?, bit, start, end, in_bits })
}

pub(super) fn bitop<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    use BitOperation::{And, AndOr, Diff, Not, One, Or, OthersOnly, Xor};
    const OPERATIONS: [(&str, BitOperation); 8] = [
        ("AND", And),
        ("OR", Or),
        ("XOR", Xor),
        ("NOT", Not),
        ("DIFF", Diff),
        ("DIFF1", OthersOnly),
        ("ANDOR", AndOr),
        ("ONE", One),
    ];
    let named = OPERATIONS.into_iter().find(|(name, _)| is(at(arguments, 1), name));
    let (name, operation) = named.ok_or(CommandError::Syntax)?;
    match operation {
        Not if arguments.len() != 4 => return Err(CommandError::NotOfSeveral),
        Diff | OthersOnly | AndOr if arguments.len() < 5 => return Err(CommandError::OfOne(name)),
        Diff | OthersOnly | AndOr | One if context.level < 2 => return Err(CommandError::NeedsLevel(2)),
        _ => {}
    }
    for index in 2..arguments.len() {
        key(arguments, index)?;
    }
    let (to, keys) = (at(arguments, 2), List::build(scratch, arguments.iter().skip(3)));
    bytes(BytesCommand::Combine { operation, to, keys })
}

parsers! { (arguments, scratch, context)
    bitfield => fields(false, arguments, scratch, context);
    bitfield_ro => fields(true, arguments, scratch, context);
}

fn fields<'a>(
    only_reads: bool,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let (mut overflow, mut index, mut operations) = (Overflow::Wrap, 2, Vec::new());
    while let Some(word) = arguments.get(index) {
        let left = arguments.len() - index - 1;
        let action = match word {
            get if is(get, "GET") && left >= 2 => FieldAction::Get,
            set if is(set, "SET") && left >= 3 => FieldAction::Set,
            incrby if is(incrby, "INCRBY") && left >= 3 => FieldAction::Increment,
            word if is(word, "OVERFLOW") && left >= 1 => {
                overflow = match at(arguments, index + 1) {
                    wrap if is(wrap, "WRAP") => Overflow::Wrap,
                    sat if is(sat, "SAT") => Overflow::Saturate,
                    fail if is(fail, "FAIL") => Overflow::Fail,
                    _ => return Err(CommandError::NotAnOverflow),
                };
                index += 2;
                continue;
            }
            _ => return Err(CommandError::Syntax),
        };
        let (is_signed, bits) = field_type(at(arguments, index + 1)).ok_or(CommandError::NotAFieldType)?;
        let offset = match at(arguments, index + 2) {
            // `#N`: the offset is N times the size of the field.
            [b'#', text @ ..] => {
                let number = parse_integer(text).and_then(|number| number.checked_mul(bits.into()));
                let number = number.ok_or(CommandError::BitOffset)?;
                self::offset(number.to_string().as_bytes(), bits.into(), context)?
            }
            text => self::offset(text, bits.into(), context)?,
        };
        let operand = if action == FieldAction::Get { 0 } else { integer(arguments, index + 3)? };
        operations.push(FieldOperation { action, is_signed, bits, overflow, offset, operand });
        index += if action == FieldAction::Get { 3 } else { 4 };
    }
    let writes = operations.iter().any(|operation| operation.action != FieldAction::Get);
    if only_reads && writes {
        return Err(CommandError::OnlyGet);
    }
    let encoded: Vec<_> = operations.iter().map(FieldOperation::encoded).collect();
    let operations = List::build(scratch, encoded.iter().map(|item| &item[..]));
    let key = key(arguments, 1)?;
    bytes(match writes {
        true => BytesCommand::ChangeFields { key, operations },
        false => BytesCommand::ReadFields { key, operations },
    })
}

/// Whether a field is signed, and how many bits it has.
fn field_type(text: &[u8]) -> Option<(bool, u8)> {
    let (is_signed, digits) = match text {
        [b'i', digits @ ..] => (true, digits),
        [b'u', digits @ ..] => (false, digits),
        _ => return None,
    };
    let bits = parse_integer(digits).and_then(|bits| u8::try_from(bits).ok())?;
    (1..=if is_signed { 64 } else { 63 }).contains(&bits).then_some((is_signed, bits))
}

pub(super) fn pfadd<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    for index in 2..arguments.len() {
        value(arguments, index, context)?;
    }
    bytes(BytesCommand::Count { key, elements: List::build(scratch, arguments.iter().skip(2)) })
}

pub(super) fn pfcount<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    bytes(BytesCommand::Estimate { keys: all_keys(arguments, scratch)? })
}

pub(super) fn pfmerge<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    for index in 1..arguments.len() {
        key(arguments, index)?;
    }
    let (to, keys) = (at(arguments, 1), List::build(scratch, arguments.iter().skip(2)));
    bytes(BytesCommand::Merge { to, keys })
}

pub(super) fn lcs<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let (first, second) = (key(arguments, 1)?, key(arguments, 2)?);
    let looks =
        || Looks::at_all(1..3, Kinds::STRING).or_else("ERR The specified keys must contain string values");
    let (mut length, mut ranges, mut with_lengths, mut least, mut index) = (false, false, false, 0, 3);
    while let Some(option) = arguments.get(index) {
        if is(option, "LEN") {
            length = true;
        } else if is(option, "IDX") {
            ranges = true;
        } else if is(option, "WITHMATCHLEN") {
            with_lengths = true;
        } else if is(option, "MINMATCHLEN") && index + 1 < arguments.len() {
            index += 1;
            least = u64::try_from(looks().then(integer(arguments, index))?).unwrap_or(0);
        } else {
            return looks().then(Err(CommandError::Syntax));
        }
        index += 1;
    }
    let answer = match (length, ranges) {
        (true, true) => return looks().then(Err(CommandError::LengthAndRanges)),
        (true, _) => CommonAnswer::Length,
        (_, true) if with_lengths => CommonAnswer::RangesWithLengths,
        (_, true) => CommonAnswer::Ranges,
        _ => CommonAnswer::Text,
    };
    bytes(BytesCommand::Common { first, second, answer, least })
}
