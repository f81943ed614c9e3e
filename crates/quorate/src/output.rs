//! What is printed for people and pipes.

use std::io::{IsTerminal as _, Write as _};

/// Prints a line and flushes it, into a pipe too. An error is ignored: a closed pipe is no reason to stop.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    if !out.is_terminal() {
        let _ = out.flush();
    }
}
