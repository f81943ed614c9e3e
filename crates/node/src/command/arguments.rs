//! Reading single arguments: keys, values, numbers, words.
//!
//! Call these after the number of arguments was checked. A missing argument reads as an empty one:
//! nothing that a client sends may crash the node.

use kv::limits::KEY_BYTES_MAX;
use kv::number::parse_integer;
use wire::resp::Arguments;

use super::{CommandError, Context};

/// The argument at `index`.
#[inline]
pub(super) fn at(arguments: Arguments<'_>, index: usize) -> &[u8] {
    arguments.get(index).unwrap_or_default()
}

/// The key at `index`.
#[inline]
pub(super) fn key(arguments: Arguments<'_>, index: usize) -> Result<&[u8], CommandError> {
    let key = at(arguments, index);
    if key.len() > KEY_BYTES_MAX { Err(CommandError::KeyTooLong(key.len())) } else { Ok(key) }
}

/// The value at `index`.
#[inline]
pub(super) fn value<'a>(
    arguments: Arguments<'a>,
    index: usize,
    context: &Context,
) -> Result<&'a [u8], CommandError> {
    let value = at(arguments, index);
    if value.len() > context.value_bytes_max {
        Err(CommandError::ValueTooLong { bytes: value.len(), most: context.value_bytes_max })
    } else {
        Ok(value)
    }
}

/// The integer at `index`.
#[inline]
pub(super) fn integer(arguments: Arguments<'_>, index: usize) -> Result<i64, CommandError> {
    parse_integer(at(arguments, index)).ok_or(CommandError::NotAnInteger)
}

/// Whether the argument is this word, ignoring case.
#[inline]
pub(super) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
