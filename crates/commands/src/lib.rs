//! The commands of clients: which exist, how they are parsed, how they are described, and which users may give them.
//!
//! Everything derives from one table. Reading order: [`spec`] (the types of the table), [`table`] (the
//! table), this file (finding a request's row), then the parse functions by family and [`introspection`]; [`users`] (the
//! rules of users, and what they allow).
//!
//! Nothing here knows a node, a group or a connection: a request goes in, and what it asks for comes out.

mod arguments;
mod bytes;
mod error;
mod expiry;
mod fields_of_release_1;
mod geo;
mod hashes;
pub mod introspection;
mod keyspace;
mod later;
mod listening;
mod lists;
pub mod locks;
mod lookup;
mod redis_version;
mod release_1;
mod sets;
mod sort;
mod sorted;
pub mod spec;
pub mod statistics;
mod streams;
mod strings;
pub mod table;
#[cfg(test)]
mod tests;
mod text;
pub mod users;

pub use error::{CommandError, printable};
pub use keyspace::{cluster_cursor, cluster_scan};
pub use later::{Later, reference_count};
pub use listening::Listening;
pub use redis_version::RedisVersion;
pub use spec::{
    AclCommand, ChannelCommand, ClientCommand, ClusterCommand, CommandCommand, CommandSpec, ConfigCommand,
    Context, Flag, FunctionCommand, Handler, HotKeysCommand, KeyspaceCommand, LatencyCommand, LockVerb,
    MemoryCommand, NamedBy, NodeCommand, ParseFn, RunScript, ScriptCommand, ServerCommand, SlowlogCommand,
    TransactionCommand, WaitFn,
};
pub use strings::{all_keys, set};
pub use table::COMMANDS;
pub use text::Text;

use wire::resp::Arguments;

/// How many databases clients can select.
pub const DATABASES: u8 = 16;

/// Number of commands, subcommands included. Each has a number below this one.
pub const COMMAND_COUNT: usize = FIRST_NUMBERS[COMMANDS.len()];

/// The number of each row's command, and at the end the number of all commands. The subcommands of a row
/// have the numbers that follow its own.
static FIRST_NUMBERS: [usize; COMMANDS.len() + 1] = {
    let mut numbers = [0; COMMANDS.len() + 1];
    let mut row = 0;
    while row < COMMANDS.len() {
        numbers[row + 1] = numbers[row] + 1 + COMMANDS[row].subcommands.len();
        row += 1;
    }
    numbers
};

/// The command that a request names.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The row that describes it; a subcommand's own.
    pub spec: &'static CommandSpec,
    /// Its number, below [`COMMAND_COUNT`].
    pub number: usize,
}

/// A request that the node itself answers.
#[derive(Clone, Copy, Debug)]
pub struct NodeRequest<'a> {
    /// What the node does.
    pub command: NodeCommand,
    /// The row that describes it.
    pub found: Found,
    /// The whole request.
    pub arguments: Arguments<'a>,
}

/// Finds the command that a request names, and checks the number of its arguments.
///
/// # Errors
/// [`CommandError`] when there is no such command or subcommand, or the number of arguments is wrong. See
/// [`named`] for the command in the latter case.
#[inline]
pub fn find(request: Arguments<'_>) -> Result<Found, CommandError> {
    let found = named(request)?;
    if found.spec.takes(request.len()) { Ok(found) } else { Err(CommandError::WrongArity(found.spec.name)) }
}

/// Finds the command that a request names, whatever the number of its arguments.
///
/// A container without a subcommand is found as itself.
///
/// # Errors
/// [`CommandError`] when there is no such command or subcommand.
#[inline]
pub fn named(request: Arguments<'_>) -> Result<Found, CommandError> {
    let name = request.get(0).unwrap_or_default();
    let Some(row) = lookup::position(name) else {
        return Err(CommandError::unknown_command(request));
    };
    let spec = &COMMANDS[row];
    match request.get(1) {
        Some(subcommand) if !spec.subcommands.is_empty() => find_subcommand(row, subcommand),
        _ => Ok(Found { spec, number: FIRST_NUMBERS[row] }),
    }
}

fn find_subcommand(row: usize, name: &[u8]) -> Result<Found, CommandError> {
    let container = &COMMANDS[row];
    let is_named = |spec: &CommandSpec| spec.short_name().as_bytes().eq_ignore_ascii_case(name);
    match container.subcommands.iter().position(is_named) {
        Some(position) => {
            Ok(Found { spec: &container.subcommands[position], number: FIRST_NUMBERS[row] + 1 + position })
        }
        None => Err(CommandError::unknown_subcommand(container.name, name)),
    }
}

/// Returns the command with this full name, such as `get` or `config|get`, ignoring case.
pub fn by_full_name(name: &[u8]) -> Option<&'static CommandSpec> {
    found_by_full_name(name).map(|found| found.spec)
}

/// The same, with its number.
pub fn found_by_full_name(name: &[u8]) -> Option<Found> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let row = lookup::position(parts.next()?)?;
    match parts.next() {
        Some(subcommand) => find_subcommand(row, subcommand).ok(),
        None => Some(Found { spec: &COMMANDS[row], number: FIRST_NUMBERS[row] }),
    }
}

/// All commands in the order of their numbers, each container before its subcommands.
pub fn all() -> impl Iterator<Item = &'static CommandSpec> {
    COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
}

/// Returns the command with this number, if it is below [`COMMAND_COUNT`].
pub fn by_number(number: usize) -> Option<&'static CommandSpec> {
    let row = FIRST_NUMBERS.partition_point(|first| *first <= number).checked_sub(1)?;
    let spec = COMMANDS.get(row)?;
    match number - FIRST_NUMBERS[row] {
        0 => Some(spec),
        subcommand => spec.subcommands.get(subcommand - 1),
    }
}
