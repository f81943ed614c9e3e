//! The backups in a place: which exist, what they need, and which files are no longer needed.

use std::collections::BTreeSet;
use std::io::{Read, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::files::{Reader, Sums, Writer};
use super::manifest::{FILE, Manifest};
use super::moment;
use super::store::{self, Store};

/// Earlier versions added this to the name of a backup's folder until the backup was whole.
const PART: &str = ".part";

/// A place for the backups of one cluster.
pub(super) struct Backups {
    store: Box<dyn Store>,
}

impl Backups {
    /// Opens a place. Whether anything exists there shows when it is read.
    ///
    /// # Errors
    /// It is not a place for backups.
    pub(super) fn open(place: &Path) -> Result<Backups> {
        Ok(Backups { store: store::open(place)? })
    }

    /// The name of a file for people, or of the place if the path is empty.
    pub(super) fn name_of(&self, path: &str) -> String {
        self.store.name_of(path)
    }

    /// Keeps other backups from writing here, until this value is dropped.
    ///
    /// # Errors
    /// Another backup writes here.
    pub(super) fn lock(&self) -> Result<()> {
        self.store.lock()
    }

    /// Reports that nothing will be written until the next [`Backups::lock`].
    pub(super) fn rest(&self) {
        self.store.rest();
    }

    /// All backups, the oldest first.
    ///
    /// # Errors
    /// The place, or one of the manifests, cannot be read.
    pub(super) fn all(&self) -> Result<Vec<Manifest>> {
        let paths = self.store.list()?;
        let names = paths.iter().filter_map(|path| name_of_manifest(path));
        names.map(|name| self.get(name)).collect()
    }

    /// All backups, the oldest first; at least one.
    ///
    /// # Errors
    /// There is none, or the errors of [`Backups::all`].
    pub(super) fn some(&self) -> Result<Vec<Manifest>> {
        let backups = self.all()?;
        ensure!(!backups.is_empty(), "there is no backup in {}", self.name_of(""));
        Ok(backups)
    }

    /// The backup with this name.
    ///
    /// # Errors
    /// There is none, or its manifest cannot be read.
    pub(super) fn get(&self, name: &str) -> Result<Manifest> {
        let path = format!("{name}/{FILE}");
        let file = self.name_of(&path);
        let mut bytes = Vec::new();
        let (_, mut from) = self.store.read(&path)?;
        from.read_to_end(&mut bytes).with_context(|| format!("cannot read {file}"))?;
        let manifest = Manifest::decode(&bytes).with_context(|| file.clone())?;
        ensure!(manifest.name == name, "{file}: this is the manifest of {}", manifest.name);
        Ok(manifest)
    }

    /// Opens a file of a backup for reading.
    ///
    /// # Errors
    /// It cannot be read, or has another length.
    pub(super) fn read(&self, path: &str, expected: &Sums) -> Result<Reader<Box<dyn Read>>> {
        let (bytes, from) = self.store.read(path)?;
        ensure!(
            bytes == expected.bytes,
            "{} is damaged: it has {bytes} bytes and should have {}",
            self.name_of(path),
            expected.bytes
        );
        Ok(Reader::new(from, expected.clone()))
    }

    /// Creates a new file.
    ///
    /// # Errors
    /// It cannot be written, or exists already.
    pub(super) fn create(&self, path: &str) -> Result<Writer> {
        Ok(Writer::new(self.name_of(path), self.store.create(path)?))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        self.store.remove(path)
    }

    /// Adds a backup whose files are written. When this returns, all of it is durable.
    ///
    /// # Errors
    /// It cannot be written, or another backup has written here since this one began.
    pub(super) fn add(&self, manifest: &mut Manifest) -> Result<()> {
        // Another backup that took over the place has removed the files that are in no manifest yet.
        self.store.lock()?;
        manifest.checksum = manifest.sum()?;
        let path = format!("{}/{FILE}", manifest.name);
        let mut file = self.create(&path)?;
        file.write_all(&manifest.encode()?)?;
        file.end()?;
        // If a lock can be lost, it may have been lost just before the manifest was written.
        if let Err(error) = self.store.lock() {
            let _ = self.store.remove(&path);
            return Err(error);
        }
        Ok(())
    }

    /// Removes what interrupted backups have left. Returns the whole backups, the oldest first.
    ///
    /// # Errors
    /// The place cannot be read or written.
    pub(super) fn sweep(&self) -> Result<Vec<Manifest>> {
        let backups = self.all()?;
        self.remove_all_but(&backups)?;
        Ok(backups)
    }

    /// Removes all backups but the newest `keep`, and the files that none of those needs. Returns how many were
    /// removed.
    ///
    /// # Errors
    /// The place cannot be read or written.
    pub(super) fn prune(&self, keep: usize) -> Result<usize> {
        let backups = self.all()?;
        let (old, kept) = backups.split_at(backups.len().saturating_sub(keep));
        // Without its manifest it is not a backup any more, whatever happens to the rest.
        for manifest in old {
            self.store.remove(&format!("{}/{FILE}", manifest.name))?;
        }
        self.remove_all_but(kept)?;
        Ok(old.len())
    }

    /// Removes all files in folders of backups that neither belong to these backups nor are needed by one of them.
    fn remove_all_but(&self, kept: &[Manifest]) -> Result<()> {
        let needed: BTreeSet<&str> = kept.iter().flat_map(Manifest::files).map(|(path, _)| path).collect();
        for path in self.store.list()? {
            let is_manifest = kept.iter().any(|kept| name_of_manifest(&path) == Some(&kept.name));
            let is_backup = path.split('/').next().is_some_and(is_name);
            if is_backup && !is_manifest && !needed.contains(path.as_str()) {
                self.store.remove(&path)?;
            }
        }
        Ok(())
    }
}

/// The name of the backup whose manifest has this path.
fn name_of_manifest(path: &str) -> Option<&str> {
    let (name, file) = path.split_once('/')?;
    (file == FILE && is_name(name) && !name.ends_with(PART)).then_some(name)
}

/// Whether a folder has the name of a backup. Nothing else in the place may be removed.
fn is_name(name: &str) -> bool {
    let name = name.strip_suffix(PART).unwrap_or(name);
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    name.len() == moment::name(0).len() && digits == 17 && name.ends_with('Z') && name.contains('T')
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::example;
    use super::*;
    use std::fs;

    #[test]
    fn files_of_old_backups_stay_while_newer_ones_need_them() {
        let folder = tempfile::tempdir().unwrap();
        let backups = Backups::open(folder.path()).unwrap();
        backups.lock().unwrap();
        assert!(Backups::open(folder.path()).unwrap().lock().is_err(), "one at a time");
        for (at, needs) in [(1, 1), (2, 1), (3, 3), (4, 3)] {
            let name = moment::name(at * 1000);
            let mut file = backups.create(&format!("{name}/1.rdb")).unwrap();
            file.write_all(b"x").unwrap();
            file.end().unwrap();
            let mut manifest = Manifest { name, ..example() };
            let shard = &mut manifest.keyspaces[0].shards[0];
            shard.keys.path = format!("{}/1.rdb", moment::name(needs * 1000));
            shard.changes.clear();
            backups.add(&mut manifest).unwrap();
        }
        // A folder that is not a backup's, one that an interrupted backup has left, and one of an earlier version.
        fs::create_dir(folder.path().join("mine.part")).unwrap();
        fs::create_dir(folder.path().join(moment::name(5000))).unwrap();
        fs::write(folder.path().join(moment::name(5000)).join("1.rdb.part"), "x").unwrap();
        fs::create_dir(folder.path().join(moment::name(6000) + PART)).unwrap();
        fs::write(folder.path().join(moment::name(6000) + PART).join(FILE), "x").unwrap();
        let file = |at: u64| folder.path().join(moment::name(at * 1000)).join("1.rdb");
        assert_eq!(backups.prune(3).unwrap(), 1);
        assert_eq!(backups.all().unwrap().len(), 3);
        assert!(file(1).exists() && !file(2).exists() && file(3).exists());
        assert_eq!(backups.prune(2).unwrap(), 1);
        assert!(!file(1).exists() && file(3).exists() && !file(4).exists());
        assert_eq!(backups.sweep().unwrap().len(), 2);
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [&moment::name(3000)[..], &moment::name(4000), "lock", "mine.part"]);
    }
}
