//! Log lines on their way to standard error.
//!
//! Standard error may be a full disk, a pipe that is not read, or a pipe whose reader has exited. None of that may end or
//! delay the node: a thread of its own writes the lines. Lines that it cannot write are lost, and their number is logged
//! as soon as lines can be written again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::thread;

/// The maximum number of lines that wait to be written. Further lines are lost.
const WAITING_LINES_MAX: usize = 1024;

/// A bounded log file is truncated when it is longer than this; its old contents are kept in one file beside it.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// How long the process waits at its end for lines that are not written yet.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The number of lines that this process has lost.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The number of log lines that could not be written.
pub(crate) fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

#[derive(Debug, Default)]
struct Progress {
    given: AtomicU64,
    done: AtomicU64,
}

/// Takes log lines: the writer to which [`tracing_subscriber`] writes events.
#[derive(Clone, Debug)]
pub(crate) struct LineWriter {
    lines: SyncSender<Vec<u8>>,
    progress: Arc<Progress>,
}

impl Write for LineWriter {
    /// Never fails: there is nowhere to report an error.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Counted first, so that a waiting thread never sees more lines done than given.
        self.progress.given.fetch_add(1, Ordering::Relaxed);
        if self.lines.try_send(line.to_vec()).is_err() {
            self.progress.done.fetch_add(1, Ordering::Relaxed);
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// On drop, at the end of the process, waits for lines that are not written yet.
#[derive(Debug)]
pub(crate) struct Settled(Arc<Progress>);

impl Drop for Settled {
    fn drop(&mut self) {
        let given = self.0.given.load(Ordering::Relaxed);
        let by = Instant::now() + SETTLE_WITHIN;
        while self.0.done.load(Ordering::Relaxed) < given && Instant::now() < by {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Starts the thread that writes. If standard error is a file that this process should keep short, `file` is its name.
/// `note` formats the thread's own messages as log lines.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(file: Option<PathBuf>, note: fn(&str) -> String) -> io::Result<(LineWriter, Settled)> {
    let (sender, receiver) = sync_channel(WAITING_LINES_MAX);
    let progress = Arc::new(Progress::default());
    let (writer, settled) =
        (LineWriter { lines: sender, progress: Arc::clone(&progress) }, Settled(Arc::clone(&progress)));
    thread::start("log", move || write(receiver, file, note, &progress))?;
    Ok((writer, settled))
}

fn write(lines: Receiver<Vec<u8>>, file: Option<PathBuf>, note: fn(&str) -> String, progress: &Progress) {
    let mut file = file.map(BoundedFile::new);
    let mut reported = 0;
    for line in lines {
        let lost = lost_lines();
        let mut out = io::stderr().lock();
        let mut written = Ok(());
        if lost > reported {
            let text =
                format!("{} lines of this log were lost, as they could not be written", lost - reported);
            written = out.write_all(note(&text).as_bytes());
        }
        if written.and_then(|()| out.write_all(&line)).is_ok() {
            reported = lost;
        } else {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        drop(out);
        if let Some(file) = &mut file {
            file.grown(line.len() as u64);
        }
        progress.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The file that standard error appends to.
struct BoundedFile {
    path: PathBuf,
    /// Its length, as far as known. The file itself is checked when it may be too long.
    bytes: u64,
}

impl BoundedFile {
    fn new(path: PathBuf) -> BoundedFile {
        BoundedFile { path, bytes: FILE_BYTES_MAX }
    }

    fn grown(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.bytes > FILE_BYTES_MAX {
            self.bytes = truncate_if_long(&self.path, FILE_BYTES_MAX).unwrap_or(0);
        }
    }
}

/// Empties a file that is too long, after copying its contents to a file beside it. A process that has the file open
/// for appending continues in it, and so do the last lines of a crash. Returns the file's length afterwards.
fn truncate_if_long(path: &Path, bytes_max: u64) -> io::Result<u64> {
    let file: File = OpenOptions::new().append(true).open(path)?;
    let bytes = file.metadata()?.len();
    if bytes <= bytes_max {
        return Ok(bytes);
    }
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    if fs::copy(path, &old).is_err() {
        // Most likely the disk is full. Then neither file is worth the space.
        let _ = fs::remove_file(&old);
    }
    file.set_len(0)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_truncated_and_its_contents_are_kept_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quorate.log");
        let mut appending = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        appending.write_all(b"0123456789").unwrap();
        assert_eq!(truncate_if_long(&path, 10).unwrap(), 10);
        appending.write_all(b"x").unwrap();
        assert_eq!(truncate_if_long(&path, 10).unwrap(), 0);
        appending.write_all(b"next").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"next");
        assert_eq!(fs::read(folder.path().join("quorate.log.old")).unwrap(), b"0123456789x");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_delay_no_caller() {
        let (sender, receiver) = sync_channel(1);
        let mut writer = LineWriter { lines: sender, progress: Arc::default() };
        let before = lost_lines();
        for _ in 0..3 {
            writer.write_all(b"line\n").unwrap();
        }
        assert_eq!(lost_lines() - before, 2);
        drop(receiver);
    }
}
