//! What runs scripts: given to a table by whoever makes it, so that nothing below knows the language.

use crate::command::Script;
use crate::reply::ReplyBuffer;
use crate::table::Access;

/// Runs scripts on a table.
///
/// A script is run by every replica of its group, at the same place of the history. So whatever it does and answers must
/// follow from the script and from what [`Access`] tells it, and from nothing else: not from what ran before, not from the
/// node, not from addresses in memory.
pub trait Interpreter: Sync + std::fmt::Debug {
    /// Runs a script and appends one reply to `out`.
    fn run(&self, script: &Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer);
}

/// The interpreter of a table that was given none: it refuses every script.
#[derive(Clone, Copy, Debug)]
pub struct NoInterpreter;

impl Interpreter for NoInterpreter {
    fn run(&self, _: &Script<'_>, _: &mut Access<'_>, out: &mut ReplyBuffer) {
        out.error("ERR there is nothing here that runs scripts");
    }
}
