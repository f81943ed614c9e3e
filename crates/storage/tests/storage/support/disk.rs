//! Changes that tests make to a disk without the log's knowledge.

use storage::Disk as _;
pub(crate) use storage::simulated::{SimulatedDisk, Survivors, Trouble};

pub(crate) trait Folder {
    /// The names and bytes of all files.
    fn contents(&self) -> Vec<(String, Vec<u8>)>;

    /// Writes a file, safely.
    fn put(&mut self, name: &str, bytes: &[u8]);

    /// Removes a file, safely.
    fn take(&mut self, name: &str);
}

impl Folder for SimulatedDisk {
    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        self.files().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect()
    }

    fn put(&mut self, name: &str, bytes: &[u8]) {
        self.create(name, 0).unwrap();
        self.write(name, 0, bytes).unwrap();
        self.sync(name).unwrap();
        self.sync_folder().unwrap();
    }

    fn take(&mut self, name: &str) {
        self.remove(name).unwrap();
        self.sync_folder().unwrap();
    }
}
