//! Options of a node's allocator, so that it never, or only in small steps, requests fresh memory from the system in the
//! middle of a turn.
//!
//! By default it requests pages of 2 MiB, each of which the system clears when it is first touched. That takes a fraction
//! of a millisecond, but 7 ms on a virtual machine whose host must find the memory first, while small commands wait:
//! beside values of 64 MiB three fresh nodes had 167 and 194 turns of more than 5 ms in 16 s, and with pages of 4 KiB 1
//! and 11. So a node's memory consists of small pages, like Redis's.
//!
//! By default the allocator also returns free memory to the system after a second, and the next large value would get fresh
//! pages again. So a node keeps its memory for a minute.
//!
//! The allocator reads its options from the environment before `main` begins. To set them, a node's process replaces itself
//! with its own program (`exec`): it stays the same process.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The allocator's options, and a node's values for them: how many milliseconds free memory is kept; and whether large
/// pages are allowed: they are not requested, and refused if the system provides them anyway.
const OPTIONS: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "60000"), ("MIMALLOC_ALLOW_THP", "0")];

/// Sets the allocator's options for a node, except those that the environment sets already. Call this before anything else:
/// the process starts over and loses its state.
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
    // This returns only on failure. The node runs nevertheless.
    let _ = command.args(arguments).envs(unset).exec();
}

/// Returns free memory that the allocator keeps for later use to the system, soon. The caller's own free pages are handed to
/// the process's pool here, which takes less than a millisecond. The system takes 40 ms to take back 300 MiB of the pool, so
/// a thread of its own waits for that.
pub(crate) fn release() {
    static RELEASES: AtomicBool = AtomicBool::new(false);
    collect(false);
    if RELEASES.swap(true, Ordering::AcqRel) {
        return;
    }
    let thread = thread::Builder::new().name("release".to_owned()).spawn(|| {
        collect(true);
        RELEASES.store(false, Ordering::Release);
    });
    if thread.is_err() {
        collect(true);
        RELEASES.store(false, Ordering::Release);
    }
}

/// Hands the calling thread's free pages to the process's pool, and with `returns` those of the pool to the system.
#[allow(unsafe_code)]
fn collect(returns: bool) {
    // SAFETY: it may be called at any time, by any thread.
    unsafe { libmimalloc_sys::mi_collect(returns) };
}
