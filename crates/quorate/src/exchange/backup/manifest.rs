//! What a backup consists of, and where that is.
//!
//! A folder holds backups, each in a folder of its own with the time at which it was begun as its name, and with a file
//! [`FILE`] that lists all files that the backup needs: its own, and those of earlier backups that it goes on from. The
//! folder has a name that ends with [`PART`] until all of it is on the disk: so a backup that was interrupted is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::files::{self, Sums};
use super::moment;

/// The file that lists what a backup needs.
pub(super) const FILE: &str = "manifest.json";

/// The end of the name of a backup's folder that is not whole.
const PART: &str = ".part";

/// The version of the format.
pub(super) const FORMAT: u32 = 1;

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// The version of the program that wrote it.
    pub(super) program: String,
    /// The name of its folder.
    pub(super) name: String,
    /// Whose backup it is.
    pub(super) cluster: Cluster,
    /// When it was begun and ended, by the clock of the machine that made it, in milliseconds since the Unix epoch.
    pub(super) begun_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) keyspaces: Vec<Keyspace>,
    /// The users, as `ACL LIST` shows them.
    pub(super) users: Vec<String>,
    /// The libraries of functions, as `FUNCTION DUMP` returns them, in hexadecimal digits.
    pub(super) functions: String,
    /// The SHA-256 of this file with an empty checksum.
    pub(super) checksum: String,
}

/// Which cluster it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cluster {
    pub(super) name: String,
    /// The number of each node's storage, drawn when the node first started, in hexadecimal digits.
    pub(super) storages: BTreeSet<String>,
}

/// A keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keyspace {
    pub(super) prefix: String,
    /// Its settings, without the prefix.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) shards: Vec<Shard>,
}

/// A shard of a keyspace; or all of a keyspace whose keys were read one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shard {
    /// The number of its group; 0: its keys were read one by one, each at a moment of its own.
    pub(super) group: u16,
    /// The version up to which the file of keys has all changes.
    pub(super) version: u64,
    /// The cluster's time then, or when the last key was read, in milliseconds since the Unix epoch.
    pub(super) time_ms: u64,
    pub(super) keys: KeyFile,
    /// What has changed behind that, in order.
    pub(super) changes: Vec<ChangeFile>,
}

/// A file of keys, as Redis writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyFile {
    /// Where it is in the folder of backups.
    pub(super) path: String,
    pub(super) sums: Sums,
    /// How many keys of each type there are.
    pub(super) types: BTreeMap<String, u64>,
}

/// A file of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeFile {
    pub(super) path: String,
    pub(super) sums: Sums,
    /// It has all changes behind this version, and up to that one.
    pub(super) from: u64,
    pub(super) until: u64,
    /// A time of the cluster, in milliseconds since the Unix epoch: what was acknowledged by then is there.
    pub(super) until_ms: u64,
    pub(super) records: u64,
}

impl Shard {
    /// Whether its keys were read one by one.
    pub(super) fn is_walked(&self) -> bool {
        self.group == 0
    }

    /// The version up to which all changes are there.
    pub(super) fn reached(&self) -> u64 {
        self.changes.last().map_or(self.version, |changes| changes.until)
    }

    /// The time up to which all changes are there.
    pub(super) fn reached_ms(&self) -> u64 {
        self.changes.last().map_or(self.time_ms, |changes| changes.until_ms)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &Sums)> {
        let changes = self.changes.iter().map(|changes| (changes.path.as_str(), &changes.sums));
        std::iter::once((self.keys.path.as_str(), &self.keys.sums)).chain(changes)
    }
}

impl Keyspace {
    pub(super) fn name(&self) -> &str {
        if self.prefix.is_empty() { "default" } else { &self.prefix }
    }

    /// Whether changes can be added to it.
    pub(super) fn keeps_changes(&self) -> bool {
        self.settings.get("changes_bytes").is_some_and(|bytes| bytes != "0")
    }
}

impl Manifest {
    /// All files that it needs.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &Sums)> {
        self.keyspaces.iter().flat_map(|keyspace| &keyspace.shards).flat_map(Shard::files)
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    fn sum(&self) -> Result<String> {
        Ok(files::sum_of(&Manifest { checksum: String::new(), ..self.clone() }.encode()?))
    }

    /// Reads a manifest from the bytes of its file.
    ///
    /// # Errors
    /// It is damaged, or of a version that is not known.
    pub(super) fn decode(bytes: &[u8]) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes).context("it is damaged")?;
        ensure!(
            format == FORMAT,
            "it has version {format} of the format, and this program, {}, knows version {FORMAT}: use {}",
            node::VERSION,
            if format > FORMAT { "a later release" } else { "the release that wrote it" }
        );
        let manifest: Manifest = serde_json::from_slice(bytes).context("it is damaged")?;
        ensure!(manifest.sum()? == manifest.checksum, "it is damaged: its checksum is another one");
        for (path, _) in manifest.files() {
            // What stands in the file decides what is opened.
            let parts: Vec<&str> = path.split('/').collect();
            let is_inside =
                parts.len() == 2 && parts.iter().all(|part| !part.is_empty() && !part.starts_with('.'));
            ensure!(is_inside, "it names a file elsewhere: {path}");
        }
        Ok(manifest)
    }
}

/// A folder of backups.
pub(super) struct Folder {
    path: PathBuf,
    /// Held while something is written.
    _lock: Option<File>,
}

impl Folder {
    /// Opens a folder to read it.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn open(path: &Path) -> Result<Folder> {
        ensure!(path.is_dir(), "{} is no folder", path.display());
        Ok(Folder { path: path.into(), _lock: None })
    }

    /// Opens a folder to write to it, creates it if it is not there, and removes what backups have left that were
    /// interrupted.
    ///
    /// # Errors
    /// It cannot be written, or another process writes to it.
    pub(super) fn lock(path: &Path) -> Result<Folder> {
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let file = path.join("lock");
        let cannot = || format!("cannot write to {}", path.display());
        let lock =
            File::options().create(true).truncate(false).write(true).open(file).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another backup into {} is under way, or waits for its time", path.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let folder = Folder { path: path.into(), _lock: Some(lock) };
        folder.sweep()?;
        Ok(folder)
    }

    /// Removes what backups have left that were interrupted.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn sweep(&self) -> Result<()> {
        for name in self.names()?.into_iter().filter(|name| name.strip_suffix(PART).is_some_and(is_name)) {
            let part = self.path.join(name);
            fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
        }
        Ok(())
    }

    /// Where a file of a backup is.
    pub(super) fn path_of(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// The folder of a backup that is not whole.
    pub(super) fn part_of(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{PART}"))
    }

    /// The names of all folders in it, sorted.
    fn names(&self) -> Result<Vec<String>> {
        let cannot = || format!("cannot read {}", self.path.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            if entry.path().is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort();
        Ok(names)
    }

    /// All backups, the oldest first.
    ///
    /// # Errors
    /// The folder, or one of its manifests, cannot be read.
    pub(super) fn backups(&self) -> Result<Vec<Manifest>> {
        let names = self.names()?.into_iter().filter(|name| self.path.join(name).join(FILE).is_file());
        names.map(|name| self.backup(&name)).collect()
    }

    /// The backup of this name.
    ///
    /// # Errors
    /// There is none, or its manifest cannot be read.
    pub(super) fn backup(&self, name: &str) -> Result<Manifest> {
        let file = self.path.join(name).join(FILE);
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let manifest = Manifest::decode(&bytes).with_context(|| file.display().to_string())?;
        ensure!(manifest.name == name, "{}: this is the manifest of {}", file.display(), manifest.name);
        Ok(manifest)
    }

    /// Adds a backup whose files are in [`Folder::part_of`]. When this returns, all of it is on the disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&self, manifest: &mut Manifest) -> Result<()> {
        let part = self.part_of(&manifest.name);
        let cannot = || format!("cannot write to {}", part.display());
        manifest.checksum = manifest.sum()?;
        files::write_whole(&part.join(FILE), &manifest.encode()?).with_context(cannot)?;
        files::sync_folder(&part).with_context(cannot)?;
        fs::rename(&part, self.path.join(&manifest.name)).with_context(cannot)?;
        files::sync_folder(&self.path).with_context(cannot)
    }

    /// Removes all backups but the newest `keep`, and the files that none of those needs. Returns how many were removed.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub(super) fn prune(&self, keep: usize) -> Result<usize> {
        let cannot = || format!("cannot remove old backups from {}", self.path.display());
        let backups = self.backups()?;
        let (old, kept) = backups.split_at(backups.len().saturating_sub(keep));
        let needed: BTreeSet<&str> = kept.iter().flat_map(Manifest::files).map(|(path, _)| path).collect();
        // Without its manifest it is no backup any more, whatever happens to the rest.
        for manifest in old {
            fs::remove_file(self.path.join(&manifest.name).join(FILE)).with_context(cannot)?;
            files::sync_folder(&self.path.join(&manifest.name)).with_context(cannot)?;
        }
        for name in self.names()?.into_iter().filter(|name| is_name(name)) {
            let folder = self.path.join(&name);
            let mut is_needed = false;
            for entry in fs::read_dir(&folder).with_context(cannot)? {
                let file = entry.with_context(cannot)?.file_name();
                let file = file.to_string_lossy();
                match file == FILE || needed.contains(format!("{name}/{file}").as_str()) {
                    true => is_needed = true,
                    false => fs::remove_file(folder.join(&*file)).with_context(cannot)?,
                }
            }
            if !is_needed {
                fs::remove_dir(&folder).with_context(cannot)?;
            }
        }
        Ok(old.len())
    }
}

/// Whether a folder has the name of a backup: nothing else in there is anybody's to remove.
fn is_name(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    name.len() == moment::name(0).len() && digits == 17 && name.ends_with('Z') && name.contains('T')
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn example() -> Manifest {
        let sums = Sums { bytes: 1, blocks: vec![files::sum_of(b"x")] };
        let path = |file: &str| format!("20261126T220000.000Z/{file}");
        let keys = KeyFile { path: path("1.rdb"), sums: sums.clone(), types: [("string".into(), 3)].into() };
        let changes =
            ChangeFile { path: path("1.changes"), sums, from: 7, until: 9, until_ms: 2, records: 2 };
        let shard = Shard { group: 1, version: 7, time_ms: 1, keys, changes: vec![changes] };
        let keyspace = Keyspace { prefix: String::new(), settings: BTreeMap::new(), shards: vec![shard] };
        let mut manifest = Manifest {
            format: FORMAT,
            program: "0".into(),
            name: "20261126T220000.000Z".into(),
            cluster: Cluster::default(),
            begun_ms: 1,
            ended_ms: 2,
            keyspaces: vec![keyspace],
            users: Vec::new(),
            functions: String::new(),
            checksum: String::new(),
        };
        manifest.checksum = manifest.sum().unwrap();
        manifest
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_or_not_at_all() {
        let manifest = example();
        let bytes = manifest.encode().unwrap();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            // White space may become other white space.
            if let Ok(read) = Manifest::decode(&changed) {
                assert_eq!(read, manifest, "byte {at}");
            }
            assert!(Manifest::decode(&bytes[..at]).is_err() || at + 1 == bytes.len(), "{at} bytes");
        }
    }

    #[test]
    fn a_manifest_names_no_file_elsewhere() {
        for path in ["../1.rdb", "a/../../1.rdb", "/etc/passwd", "1.rdb", "a//1.rdb"] {
            let mut manifest = example();
            manifest.keyspaces[0].shards[0].keys.path = path.into();
            manifest.checksum = manifest.sum().unwrap();
            let why = Manifest::decode(&manifest.encode().unwrap()).unwrap_err().to_string();
            assert!(why.contains("elsewhere"), "{path}: {why}");
        }
    }

    #[test]
    fn what_newer_backups_need_of_older_ones_stays() {
        let folder = tempfile::tempdir().unwrap();
        let backups = Folder::lock(folder.path()).unwrap();
        assert!(Folder::lock(folder.path()).is_err(), "one at a time");
        for (at, needs) in [(1, 1), (2, 1), (3, 3), (4, 3)] {
            let name = moment::name(at * 1000);
            fs::create_dir(backups.part_of(&name)).unwrap();
            fs::write(backups.part_of(&name).join("1.rdb"), "x").unwrap();
            let mut manifest = Manifest { name, ..example() };
            let shard = &mut manifest.keyspaces[0].shards[0];
            shard.keys.path = format!("{}/1.rdb", moment::name(needs * 1000));
            shard.changes.clear();
            backups.add(&mut manifest).unwrap();
        }
        fs::create_dir(folder.path().join("mine.part")).unwrap();
        fs::create_dir(backups.part_of(&moment::name(5000))).unwrap();
        let file = |at: u64| folder.path().join(moment::name(at * 1000)).join("1.rdb");
        assert_eq!(backups.prune(3).unwrap(), 1);
        assert_eq!(backups.backups().unwrap().len(), 3);
        assert!(file(1).exists() && !file(2).exists() && file(3).exists());
        assert_eq!(backups.prune(2).unwrap(), 1);
        assert!(!file(1).exists() && file(3).exists() && !file(4).exists());
        drop(backups);
        let backups = Folder::lock(folder.path()).unwrap();
        assert_eq!(backups.names().unwrap(), [&moment::name(3000)[..], &moment::name(4000), "mine.part"]);
    }
}
