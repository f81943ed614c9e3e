//! The script interpreter. The table's creator supplies it, so this crate does not depend on the language.

use super::Access;
use crate::command::Script;
use crate::reply::ReplyBuffer;

/// Runs scripts on a table.
///
/// Every replica of a group runs a script, at the same point of the history. So its effects and its reply must depend only
/// on the script and on what [`Access`] returns, not on earlier runs, the node, or memory addresses.
pub trait Interpreter: Sync + std::fmt::Debug {
    /// Runs a script and appends one reply to `out`.
    fn run(&self, script: &Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer);
}

/// The default interpreter of a table: it refuses every script.
#[derive(Clone, Copy, Debug)]
pub struct NoInterpreter;

impl Interpreter for NoInterpreter {
    fn run(&self, _: &Script<'_>, _: &mut Access<'_>, out: &mut ReplyBuffer) {
        out.error("ERR there is nothing here that runs scripts");
    }
}
