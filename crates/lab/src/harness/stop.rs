//! Ctrl-C and SIGTERM: ends every process that was started, and the lab.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::systems::Children;

/// Installs a handler: from now on a signal that asks to stop kills all children and ends this program. What was
/// measured is on the disk.
///
/// # Errors
/// The system refuses.
pub fn stop_on_signals(children: Children) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            children.kill_for_ever();
            eprintln!(
                "\nquorate lab: stopped; what was measured is kept, and the same command continues with the \
                 rest"
            );
            // The exit status by which a shell reports that a signal ended a program.
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}
