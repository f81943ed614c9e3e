//! Every process that the lab has started, so that none outlives it.
//!
//! Three mechanisms back each other up: a system that goes out of scope is stopped, also while a panic unwinds; a
//! signal kills the process group of each child before the lab ends; and where the lab's own program starts the
//! children (see [`hold`]), the kernel kills them when the lab is killed and cannot do anything any more.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// The running processes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Children {
    groups: Arc<Mutex<BTreeSet<i32>>>,
    holder: Option<PathBuf>,
}

impl Children {
    /// Creates an empty list. `holder` is a program that passes `lab hold PID PROGRAM …` to [`hold`].
    pub fn new(holder: Option<PathBuf>) -> Children {
        Children { groups: Arc::default(), holder }
    }

    /// Starts a process in its own group, so that Ctrl-C reaches it only through the lab.
    pub(crate) fn spawn(
        &self,
        program: &std::path::Path,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<Child> {
        let mut command = match &self.holder {
            None => Command::new(program),
            Some(holder) => {
                let mut command = Command::new(holder);
                command.args(["hold", &std::process::id().to_string()]).arg(program);
                command
            }
        };
        prepare(&mut command);
        command.process_group(0);
        // The lock is held during the start: a signal that arrives now finds the child in the list.
        let mut groups = self.groups();
        let child = command.spawn()?;
        groups.insert(child.id() as i32);
        Ok(child)
    }

    /// Runs something that a signal cannot interrupt: the program ends before it or after it.
    pub fn undisturbed<T>(&self, what: impl FnOnce() -> T) -> T {
        let _groups = self.groups();
        what()
    }

    /// Removes a process that has been waited for: its number may be reused.
    pub(crate) fn forget(&self, process: u32) {
        self.groups().remove(&(process as i32));
    }

    /// Kills every group and prevents new starts: the lock is never released. For the end of the program.
    pub fn kill_for_ever(&self) {
        let groups = self.groups();
        for group in groups.iter().copied().filter_map(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
        std::mem::forget(groups);
    }

    fn groups(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces this process by another program that is killed when the process that started this one ends.
///
/// The kernel sends that signal when the *thread* that started this process ends: the lab starts processes on the
/// thread that runs the sweep, which lives as long as they may.
///
/// # Errors
/// The program cannot be started, or the parent has already ended.
pub fn hold(parent: u32, program: &std::ffi::OsStr, arguments: &[std::ffi::OsString]) -> io::Error {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    let present = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    if present != Some(parent) {
        return io::Error::other("the process that started this one has ended");
    }
    Command::new(program).args(arguments).exec()
}
