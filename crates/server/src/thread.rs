//! Threads beside the worker.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that the node needs. If it panics, the process is aborted after the panic's message. Otherwise the worker
/// would wait forever for the thread's work, and clients with it.
///
/// # Errors
/// The system has no threads left.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        let _guard = AbortsOnPanic;
        run();
    })
}

struct AbortsOnPanic;

impl Drop for AbortsOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    /// Set for the process whose thread panics.
    const VARIABLE: &str = "QUORATE_TEST_THREAD_PANICS";

    #[test]
    fn a_thread_that_panics_ends_the_process() {
        if std::env::var_os(VARIABLE).is_some() {
            let thread = super::start("log-sync", || panic!("an invariant of the log"));
            let _ = thread.expect("it starts").join();
            return; // Reached only if the panic did not end the process.
        }
        let name = "thread::tests::a_thread_that_panics_ends_the_process";
        let mut child = Command::new(std::env::current_exe().expect("a test is a program"));
        let ended =
            child.args(["--exact", name, "--nocapture"]).env(VARIABLE, "1").output().expect("it runs");
        assert_eq!(ended.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("log-sync") && said.contains("an invariant of the log"), "{said}");
    }

    #[test]
    fn a_thread_that_returns_ends_nothing_else() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = super::start("values-read", move || sender.send(7).expect("it is awaited"));
        thread.expect("it starts").join().expect("it does not panic");
        assert_eq!(receiver.recv(), Ok(7));
    }
}
