//! How long a node keeps memory that it does not need at the moment.
//!
//! Left to itself the allocator gives free memory back to the system after a second. The next large value is given fresh
//! pages then, which the system clears when they are touched for the first time, in the middle of a turn: 2 MiB at a time,
//! which takes a fraction of a millisecond, and on a virtual machine whose host has taken the memory back meanwhile 6 ms.
//! Small commands wait for that. So a node keeps its memory for a minute.
//!
//! The allocator reads its options from the environment before `main` begins. To set one, a node's process starts its
//! own program once more in its own place: it stays the same process.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

const OPTION: &str = "MIMALLOC_PURGE_DELAY";
const KEPT_MS: &str = "60000";

/// Sees to it that this process keeps free memory for a while, unless its environment says for how long already. To be
/// called before anything else: what the process has done is forgotten.
pub(crate) fn keep_for_a_while() {
    if std::env::var_os(OPTION).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // This returns only when it has failed. The node runs all the same.
    let _ = command.args(arguments).env(OPTION, KEPT_MS).exec();
}
