//! The folder of a sweep: its settings, and the results so far.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::machine::now_utc;
use super::{Results, Scale};
use crate::systems::NodeUsage;

/// The subfolder of a sweep's folder that holds the histories of its points.
pub(crate) const HISTORIES: &str = "history";

/// Sound histories are kept as long as their total size does not exceed this.
const HISTORY_BYTES_MAX: u64 = 1 << 30;

/// The settings of a sweep. Only a run with the same settings can continue it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The study's name.
    pub study: String,
    /// How much of the study is run.
    pub scale: Scale,
    /// Whether histories are checked.
    pub verify: bool,
    /// How many times each point is measured.
    pub repeats: u32,
    /// Quorate's version, and a checksum of the program: another build is another system.
    pub program: String,
}

impl Settings {
    /// Describes the differences from `asked`, for people.
    fn differences(&self, asked: &Settings) -> Vec<String> {
        let scale = |settings: &Settings| settings.scale.pick("--quick", "--full").to_owned();
        let verify =
            |settings: &Settings| if settings.verify { "--verify" } else { "no --verify" }.to_owned();
        let pairs = [
            ("the study", self.study.clone(), asked.study.clone()),
            ("the scale", scale(self), scale(asked)),
            ("checking", verify(self), verify(asked)),
            ("the number of repeats", self.repeats.to_string(), asked.repeats.to_string()),
            ("the program", self.program.clone(), asked.program.clone()),
        ];
        let differing = pairs.into_iter().filter(|(_, made, asked)| made != asked);
        differing.map(|(what, made, asked)| format!("{what} is {made} there, not {asked}")).collect()
    }
}

/// Description of an arm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmNote {
    /// The system's name.
    pub system: String,
    /// The system's version.
    pub version: String,
    /// When it acknowledges a write.
    pub acknowledges: String,
    /// What an acknowledged write survives.
    pub durability: String,
    /// How it differs from the other arms.
    pub differs: String,
    /// The network between its nodes; empty if no process was started.
    #[serde(default)]
    pub network: String,
    /// The command lines of its nodes.
    pub commands: Vec<String>,
}

/// Something that a reader must know: an arm or a point without figures, or wrong answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The arm's name.
    pub arm: String,
    /// The point; empty for the arm as a whole.
    pub point: String,
    /// `skipped` or `failed`; `cold` for a point that was measured before its system was warm; for a history that is
    /// not known to be linearizable the verdict, `violation` or `unknown`.
    pub kind: String,
    /// The reason.
    pub text: String,
}

impl Note {
    /// Whether it is about a point that was measured, and so stays true when the sweep continues.
    pub fn is_of_measured(&self) -> bool {
        ["violation", "unknown", "cold"].contains(&self.kind.as_str())
    }
}

/// The content of `run.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The settings of the sweep.
    pub settings: Settings,
    /// When the sweep began, in UTC.
    pub begun: String,
    /// The command line of the last run.
    pub command: String,
    /// The arms that were started, by name.
    pub arms: BTreeMap<String, ArmNote>,
    /// What is missing or wrong.
    pub notes: Vec<Note>,
}

/// The resources that the nodes used at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    /// The arm's name.
    pub arm: String,
    /// The point: the values of its parameters.
    pub point: Vec<String>,
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// Each node's usage, from node 1.
    pub nodes: Vec<NodeUsage>,
}

/// A sweep's folder, locked by this process.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Never read: held open for its lock.
    _lock: File,
}

impl Folder {
    /// Locks the folder for a sweep with these settings, creating it if necessary. Returns what an earlier run has
    /// left: its file and its rows.
    ///
    /// # Errors
    /// Another process has locked the folder, or it holds something else or a sweep with other settings.
    pub fn open(
        path: &Path,
        settings: &Settings,
        parameters: usize,
    ) -> Result<(Folder, RunFile, Option<Results>)> {
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let folder = Folder { path: path.to_owned(), _lock: lock(path)? };
        let file = folder.file("run.json");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                ensure!(
                    !folder.file("raw.csv").exists(),
                    "{} holds a raw.csv but no run.json: use another folder",
                    path.display()
                );
                let run = RunFile {
                    settings: settings.clone(),
                    begun: now_utc(),
                    command: command_line(),
                    arms: BTreeMap::new(),
                    notes: Vec::new(),
                };
                return Ok((folder, run, None));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        let mut run: RunFile =
            serde_json::from_str(&text).with_context(|| format!("{} is no sweep's file", file.display()))?;
        let differences = run.settings.differences(settings);
        ensure!(
            differences.is_empty(),
            "{} holds a sweep that was begun with other settings: {}. Continue with those, or use another \
             folder (--dir)",
            path.display(),
            differences.join("; ")
        );
        // What was missing may exist now; what was wrong stays wrong.
        run.notes.retain(Note::is_of_measured);
        run.command = command_line();
        let results = folder.read_results(parameters)?;
        Ok((folder, run, results))
    }

    /// Reads a finished or unfinished sweep, to be compared or reported again.
    ///
    /// # Errors
    /// The folder holds none.
    pub fn read(path: &Path, parameters: impl Fn(&str) -> Option<usize>) -> Result<(RunFile, Results)> {
        let file = path.join("run.json");
        let text = fs::read_to_string(&file)
            .with_context(|| format!("{} is not the result of a study", path.display()))?;
        let run: RunFile =
            serde_json::from_str(&text).with_context(|| format!("{} is no sweep's file", file.display()))?;
        let study = &run.settings.study;
        let Some(parameters) = parameters(study) else { bail!("this version has no study '{study}'") };
        let file = path.join("raw.csv");
        let input = File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let results = Results::read_raw(input, parameters).with_context(|| file.display().to_string())?;
        Ok((run, results))
    }

    fn read_results(&self, parameters: usize) -> Result<Option<Results>> {
        let file = self.file("raw.csv");
        match File::open(&file) {
            Ok(input) => {
                let results = Results::read_raw(input, parameters);
                Ok(Some(results.with_context(|| file.display().to_string())?))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces a file atomically: an interrupted write leaves the old file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let (file, temporary) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || -> Result<()> {
            let mut output = BufWriter::new(File::create(&temporary)?);
            fill(&mut output)?;
            output.flush()?;
            fs::rename(&temporary, &file)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", file.display()))
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_json(&self, name: &str, what: &impl Serialize) -> Result<()> {
        self.write(name, |output| {
            serde_json::to_writer_pretty(&mut *output, what)?;
            Ok(writeln!(output)?)
        })
    }

    /// Moves a history into the folder under this name. Returns false if there is no room for a sound one: it is
    /// removed.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub(crate) fn keep_history(&self, file: &Path, name: &str, is_wrong: bool) -> Result<bool> {
        self.keep_history_within(file, name, if is_wrong { u64::MAX } else { HISTORY_BYTES_MAX })
    }

    fn keep_history_within(&self, file: &Path, name: &str, bytes_max: u64) -> Result<bool> {
        let folder = self.file(HISTORIES);
        let keep = || -> io::Result<bool> {
            fs::create_dir_all(&folder)?;
            let mut bytes = fs::metadata(file)?.len();
            for entry in fs::read_dir(&folder)? {
                bytes = bytes.saturating_add(entry?.metadata()?.len());
            }
            if bytes > bytes_max {
                fs::remove_file(file)?;
                return Ok(false);
            }
            fs::rename(file, folder.join(name))?;
            Ok(true)
        };
        keep().with_context(|| format!("cannot keep {name} in {}", folder.display()))
    }

    /// Appends the nodes' usage at one point to `nodes.csv`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append_nodes(&self, parameters: &[String], row: &NodeRow) -> Result<()> {
        let file = self.file("nodes.csv");
        let is_new = !file.exists();
        let output = OpenOptions::new().append(true).create(true).open(&file);
        let output = output.with_context(|| format!("cannot write {}", file.display()))?;
        let mut csv = csv::Writer::from_writer(output);
        if is_new {
            let header = ["arm", "repeat"].into_iter().chain(parameters.iter().map(String::as_str));
            csv.write_record(header.chain(["node", "cpu_s", "disk_bytes", "peer_bytes"]))?;
        }
        for (index, usage) in row.nodes.iter().enumerate() {
            let mut record = vec![row.arm.clone(), row.repeat.to_string()];
            record.extend(row.point.iter().cloned());
            let peer_bytes = usage.peer_bytes.map_or(String::new(), |bytes| format!("{bytes:.0}"));
            let (cpu_s, disk_bytes) = (format!("{:.4}", usage.cpu_s), format!("{:.0}", usage.disk_bytes));
            record.extend([(index + 1).to_string(), cpu_s, disk_bytes, peer_bytes]);
            csv.write_record(record)?;
        }
        csv.flush()?;
        Ok(())
    }
}

fn command_line() -> String {
    let words: Vec<String> = std::env::args()
        .enumerate()
        .map(|(index, word)| if index == 0 { program_name(&word) } else { word })
        .collect();
    words.join(" ")
}

/// A program's name without its folder.
fn program_name(word: &str) -> String {
    Path::new(word).file_name().map_or_else(|| word.to_owned(), |name| name.to_string_lossy().into_owned())
}

fn lock(path: &Path) -> Result<File> {
    let file = path.join("lab.lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&file);
    let lock = lock.with_context(|| format!("cannot open {}", file.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!("another lab works in {}: use another folder (--dir)", path.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", file.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_histories_have_limited_room_and_wrong_ones_are_always_kept() {
        let place = tempfile::tempdir().unwrap();
        let (study, program) = ("locks".to_owned(), "1".to_owned());
        let settings = Settings { study, scale: Scale::Quick, verify: true, repeats: 1, program };
        let (folder, ..) = Folder::open(place.path(), &settings, 0).unwrap();
        let keep = |name: &str, bytes_max| {
            let file = folder.file("new");
            fs::write(&file, [0; 10]).unwrap();
            let is_kept = folder.keep_history_within(&file, name, bytes_max).unwrap();
            assert!(!file.exists());
            assert_eq!(folder.file(HISTORIES).join(name).exists(), is_kept);
            is_kept
        };
        assert_eq!([keep("a", 25), keep("b", 25), keep("c", 25), keep("d", 25)], [true, true, false, false]);
        assert!(keep("wrong", u64::MAX));
    }
}
