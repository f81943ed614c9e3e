//! What the allocator of a node asks of the system: no fresh memory in the middle of a turn, or little of it at a time.
//!
//! Left to itself it asks for pages of 2 MiB, each of which the system clears when it is touched for the first time. That
//! takes a fraction of a millisecond; on a virtual machine whose host has to find the memory first 7 ms, in which small
//! commands wait: beside values of 64 MiB three fresh nodes had 167 and 194 turns of more than 5 ms in 16 s, and with pages
//! of 4 KiB 1 and 11. So a node's memory is of small pages, as that of Redis is.
//!
//! It also gives free memory back to the system after a second, and the next large value would be given fresh pages again.
//! So a node keeps its memory for a minute.
//!
//! The allocator reads its options from the environment before `main` begins. To set some, a node's process starts its
//! own program once more in its own place: it stays the same process.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The allocator's options, and what a node sets them to: free memory is kept for so many milliseconds; large pages are
/// not asked for, and refused where the system gives them unasked.
const OPTIONS: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "60000"), ("MIMALLOC_ALLOW_THP", "0")];

/// Sees to it that this process uses memory as a node should, as far as its environment does not say otherwise. To be
/// called before anything else: what the process has done is forgotten.
pub(crate) fn use_as_a_node() {
    let mut unset = OPTIONS.into_iter().filter(|(name, _)| env::var_os(name).is_none()).peekable();
    if unset.peek().is_none() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // This returns only when it has failed. The node runs all the same.
    let _ = command.args(arguments).envs(unset).exec();
}

/// Gives memory that is free, and that the allocator keeps for later, back to the system.
#[allow(unsafe_code)]
pub(crate) fn release() {
    // SAFETY: it may be called at any time, by any thread.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
