//! Distinguishes the data folder in which a node has always run from a copy of it.
//!
//! A copy that is started beside its original, or instead of it, continues in the node's name: it announces later
//! incarnations to the other nodes, which then refuse the original. The contents of a folder do not help, since a copy
//! has the same. So the file `quorate.home` holds its own inode and creation time, which no copy shares. Both stay when a
//! folder is renamed, or moved on its disk. When moving it to another disk, the operator confirms this with `--adopt`.
//!
//! A block-by-block copy of the whole disk is not detected.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};

use crate::config::Config;
use crate::files::DataFolder;

const NAME: &str = "quorate.home";

/// The version of the file's format. Files from before the version was written have none, and are read as the first.
const FORMAT: u32 = 1;

/// What distinguishes a file from its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    inode: u64,
    /// Creation time in nanoseconds since 1970; 0 if the file system does not report it.
    made_ns: u128,
}

impl Mark {
    fn of(file: &File) -> io::Result<Mark> {
        let metadata = file.metadata()?;
        let made = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        Ok(Mark { inode: metadata.ino(), made_ns: made.map_or(0, |made| made.as_nanos()) })
    }

    fn text(self) -> String {
        format!(
            "format {FORMAT}\ninode {}\nmade {}\n# Identifies this folder, so that a copy of it is not taken for the node. Do not edit.\n",
            self.inode, self.made_ns
        )
    }

    fn read(text: &str) -> Option<Mark> {
        let number = |name: &str| number_in(text, name);
        Some(Mark { inode: number("inode")?.try_into().ok()?, made_ns: number("made")? })
    }

    fn is_of(self, file: Mark) -> bool {
        let is_known = self.made_ns != 0 && file.made_ns != 0;
        self.inode == file.inode && (!is_known || self.made_ns == file.made_ns)
    }
}

/// Checks that this process may continue as the node in the folder. A new folder gets a mark; with `adopts` any
/// folder gets a new one.
///
/// # Errors
/// A sentence that says what the folder seems to be, and what to do.
pub(crate) fn check(folder: &DataFolder, config: &Config, adopts: bool) -> Result<()> {
    let file = config.data.join(NAME);
    let is_new = fs::read_dir(folder.storage()).map_or(true, |mut entries| entries.next().is_none());
    match home_of(&file).with_context(|| format!("cannot read {}", file.display()))? {
        Home::Here => return Ok(()),
        Home::Nowhere if is_new => {}
        found if adopts => {
            let was = if found == Home::Nowhere { "had no mark" } else { "was a copy, or moved" };
            tracing::warn!(
                "{} {was}, and is the home of node {} from now on: never start the folder that it comes from again",
                config.data.display(),
                config.node
            );
        }
        _ => bail!(
            "{} holds the data of node {}, and was copied, or moved from another disk. If its original were started, too, \
             or again later, it would be refused, or acknowledged writes would be lost. If this folder is to be the \
             node's only one from now on, stop the original, never start it again, and start this one once with\n  \
             quorate server --config {} --adopt\nTo create another node instead: quorate join --like {} \
             --dir NEW",
            config.data.display(),
            config.node,
            config.file.display(),
            config.file.display()
        ),
    }
    mark(&file, &config.data).with_context(|| format!("cannot write {}", file.display()))
}

/// Adds the cluster's name, for messages, to the mark of a folder whose log is known to be of this cluster. A mark from before
/// names were added gets one, too; its file stays the same one. Without the name messages say less, and nothing fails.
pub(crate) fn name_cluster(config: &Config) {
    if cluster_of(config).is_none()
        && let Ok(mut file) = File::options().append(true).open(config.data.join(NAME))
    {
        let _ = writeln!(file, "cluster {}", config.cluster);
    }
}

/// The name of the cluster to which the data in a folder belongs, if its mark has it.
pub(crate) fn cluster_of(config: &Config) -> Option<String> {
    let text = fs::read_to_string(config.data.join(NAME)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("cluster ")).map(str::to_owned)
}

/// Returns the number after a name, on a line of its own.
fn number_in(text: &str, name: &str) -> Option<u128> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Here,
    Elsewhere,
    Nowhere,
}

fn home_of(path: &Path) -> io::Result<Home> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Home::Nowhere),
        Err(error) => return Err(error),
    };
    let text = io::read_to_string(&file)?;
    if let Some(format) = number_in(&text, "format").filter(|format| *format > u128::from(FORMAT)) {
        return Err(io::Error::other(format!(
            "it has version {format} of its format, and this program knows version {FORMAT}: a later release has written it; \
             start one that is at least as new"
        )));
    }
    let marked = Mark::read(&text);
    let is_here = marked.is_some_and(|marked| Mark::of(&file).is_ok_and(|file| marked.is_of(file)));
    Ok(if is_here { Home::Here } else { Home::Elsewhere })
}

/// Creates a file that holds its own mark. A crash leaves the previous file, none, or the whole new one.
fn mark(path: &Path, folder: &Path) -> io::Result<()> {
    let new = path.with_extension("home.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(&new)?;
    let mark = Mark::of(&file)?;
    file.write_all(mark.text().as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_file_is_recognised_and_a_copy_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [first, moved, copy] = ["first", "moved", "copy"].map(|name| folder.path().join(name));
        assert_eq!(home_of(&first).unwrap(), Home::Nowhere);
        let later = folder.path().join("later");
        fs::write(&later, "format 2\nplace 7\n").unwrap();
        assert!(home_of(&later).unwrap_err().to_string().contains("a later release has written it"));
        mark(&first, folder.path()).unwrap();
        assert_eq!(home_of(&first).unwrap(), Home::Here);
        fs::rename(&first, &moved).unwrap();
        assert_eq!(home_of(&moved).unwrap(), Home::Here);
        fs::copy(&moved, &copy).unwrap();
        assert_eq!(home_of(&copy).unwrap(), Home::Elsewhere);
        mark(&copy, folder.path()).unwrap();
        assert_eq!(home_of(&copy).unwrap(), Home::Here);
        fs::write(&copy, "nonsense").unwrap();
        assert_eq!(home_of(&copy).unwrap(), Home::Elsewhere);
    }
}
