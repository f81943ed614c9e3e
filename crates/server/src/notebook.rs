//! The node's notebook: which record the process is executing now, and what the node must know at its next start
//! (see [`node::Past`]).
//!
//! `quorate.record` names the record that is being executed, in case it crashes the process. It is written before and
//! after each one, and never synced: what a process has written survives the process, and if the machine crashes, the
//! record is not to blame. `quorate.quarantine` holds the node's own text, and is synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use anyhow::{Context, Result};
use kv::{RecordName, Watch};
use node::{Notebook, Past};

use crate::files::{DataFolder, replace_file};

const RECORD_FILE: &str = "quorate.record";
const TEXT_FILE: &str = "quorate.quarantine";

/// Length of `quorate.record` in bytes: the mark (set while a record is executed), its group, its number and its
/// time.
const NOTE_BYTES: usize = 24;
const MARK: [u8; 4] = *b"runs";

#[derive(Debug)]
struct FolderNotebook {
    record: File,
    folder: PathBuf,
}

impl Watch for FolderNotebook {
    fn begun(&self, group: u16, record: RecordName) {
        // A failed write only loses the note; that is no reason to stop the node.
        let _ = self.record.write_all_at(&note(group, record), 0);
    }

    fn over(&self) {
        let _ = self.record.write_all_at(&[0; MARK.len()], 0);
    }
}

impl Notebook for FolderNotebook {
    fn keep(&self, text: &str) {
        if let Err(error) = replace_file(&self.folder, TEXT_FILE, text) {
            tracing::error!("records that end this node will not be known at its next start: {error:#}");
        }
    }
}

/// Opens a folder's notebook, and takes out the note that the last process left.
///
/// # Errors
/// The notebook cannot be read or written.
pub(crate) fn open(folder: &DataFolder) -> Result<Past> {
    let (path, text) = (folder.path().join(RECORD_FILE), folder.path().join(TEXT_FILE));
    let opened = || -> io::Result<(File, Option<(u16, RecordName)>)> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let mut bytes = [0; NOTE_BYTES];
        let died_of = match options.read_exact_at(&mut bytes, 0) {
            Ok(()) => noted(&bytes),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                // Its space is allocated now: the disk may be full when the note is needed.
                let _ = options.write_all_at(&[0; NOTE_BYTES], 0);
                None
            }
            Err(error) => return Err(error),
        };
        Ok((options, died_of))
    };
    let (record, died_of) = opened().with_context(|| format!("cannot open {}", path.display()))?;
    let kept = match fs::read_to_string(&text) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", text.display()))?,
    };
    // A process has one folder for as long as it runs.
    let notebook: &'static FolderNotebook =
        Box::leak(Box::new(FolderNotebook { record, folder: folder.path().to_owned() }));
    Ok(Past { notebook, kept, died_of, program: program() })
}

fn note(group: u16, record: RecordName) -> [u8; NOTE_BYTES] {
    let mut bytes = [0; NOTE_BYTES];
    bytes[..4].copy_from_slice(&MARK);
    bytes[4..6].copy_from_slice(&group.to_le_bytes());
    bytes[8..16].copy_from_slice(&record.offset.to_le_bytes());
    bytes[16..].copy_from_slice(&record.time.to_le_bytes());
    bytes
}

fn noted(bytes: &[u8; NOTE_BYTES]) -> Option<(u16, RecordName)> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let is_running = bytes[..4] == MARK;
    let group = u16::from_le_bytes([bytes[4], bytes[5]]);
    is_running.then(|| (group, RecordName { offset: number(8), time: number(16) }))
}

/// What distinguishes this program from another build of it.
fn program() -> String {
    let file = std::env::current_exe().and_then(fs::metadata);
    let (bytes, changed) = file.map_or((0, 0), |file| (file.len(), file.mtime()));
    format!("{} {bytes} {changed}", node::VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_executed_at_a_crash_is_found_once() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        let past = open(&folder).unwrap();
        assert_eq!((past.died_of, past.kept.as_str()), (None, ""));
        let record = RecordName { offset: 1 << 40, time: 1_700_000_000_000 };
        past.notebook.begun(3, record);
        let past = open(&folder).unwrap();
        assert_eq!(past.died_of, Some((3, record)));
        past.notebook.keep("known");
        past.notebook.over();
        let past = open(&folder).unwrap();
        assert_eq!((past.died_of, past.kept.as_str()), (None, "known"));
        past.notebook.begun(3, record);
        past.notebook.over();
        assert_eq!(open(&folder).unwrap().died_of, None);
    }
}
