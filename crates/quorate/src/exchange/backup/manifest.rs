//! What a backup consists of.
//!
//! Each backup has a folder of its own, named after the time at which it was begun. In it a file [`FILE`] lists all files
//! that the backup needs: its own, and those of earlier backups that it continues. That file is written last, so an
//! interrupted backup is not a backup.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::files::{self, Sums};

/// The file that lists what a backup needs.
pub(super) const FILE: &str = "manifest.json";

/// The newest version of the format that this program knows.
pub(super) const FORMAT: u32 = 3;

/// The version of the format of a backup that lacks these keyspaces, and of one that says what is of one moment. Earlier releases
/// do not read the second one, which they would take for whole, nor the third, whose fields they do not know.
pub(super) fn format_for(missing: &BTreeMap<String, String>, says_moment: bool) -> u32 {
    match (says_moment, missing.is_empty()) {
        (true, _) => 3,
        (false, false) => 2,
        (false, true) => 1,
    }
}

/// A keyspace's name for people.
pub(super) fn named(prefix: &str) -> String {
    format!("keyspace '{}'", if prefix.is_empty() { "default" } else { prefix })
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// The version of the program that wrote it.
    pub(super) program: String,
    /// The name of its folder.
    pub(super) name: String,
    /// The cluster that it is a backup of.
    pub(super) cluster: Cluster,
    /// When it was begun and ended, by the clock of the machine that made it, in milliseconds since the Unix epoch.
    pub(super) begun_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) keyspaces: Vec<Keyspace>,
    /// The users, as `ACL LIST` shows them.
    pub(super) users: Vec<String>,
    /// The libraries of functions, as `FUNCTION DUMP` returns them, in hexadecimal digits.
    pub(super) functions: String,
    /// The keyspaces that could not be read, by prefix, and why. They are as the backup before has them, or not in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) missing: BTreeMap<String, String>,
    /// The moment of which all keyspaces are that are neither `missing` nor `apart`, and that this backup was to save, by the clock of
    /// the cluster, in milliseconds since the Unix epoch. None: there is no such moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) together_ms: Option<u64>,
    /// The keyspaces that are not of that moment, by prefix, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) apart: BTreeMap<String, String>,
    /// The SHA-256 of this file with an empty checksum.
    pub(super) checksum: String,
}

/// Identifies a cluster.
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

/// A shard of a keyspace; or a whole keyspace whose keys were read one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shard {
    /// The number of its group. 0: its keys were read one by one, each at a different moment.
    pub(super) group: u16,
    /// The version up to which the file of keys has all changes.
    pub(super) version: u64,
    /// The cluster's time at that version, or when the last key was read, in milliseconds since the Unix epoch.
    pub(super) time_ms: u64,
    pub(super) keys: KeyFile,
    /// The changes after that version, in order.
    pub(super) changes: Vec<ChangeFile>,
}

/// A file of keys, as Redis writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyFile {
    /// Its path in the folder of backups.
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
    /// It has all changes after version `from`, up to `until`.
    pub(super) from: u64,
    pub(super) until: u64,
    /// A time of the cluster, in milliseconds since the Unix epoch: it has all writes acknowledged by then.
    pub(super) until_ms: u64,
    pub(super) records: u64,
}

impl Shard {
    /// Whether its keys were read one by one.
    pub(super) fn is_walked(&self) -> bool {
        self.group == 0
    }

    /// The version up to which all changes are present.
    pub(super) fn reached(&self) -> u64 {
        self.changes.last().map_or(self.version, |changes| changes.until)
    }

    /// The time up to which all changes are present.
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
    /// The keyspace with this prefix.
    pub(super) fn keyspace(&self, prefix: &str) -> Option<&Keyspace> {
        self.keyspaces.iter().find(|keyspace| keyspace.prefix == prefix)
    }

    /// All files that it needs.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &Sums)> {
        self.keyspaces.iter().flat_map(|keyspace| &keyspace.shards).flat_map(Shard::files)
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    pub(super) fn sum(&self) -> Result<String> {
        Ok(files::sum_of(&Manifest { checksum: String::new(), ..self.clone() }.encode()?))
    }

    /// Reads a manifest from the bytes of its file.
    ///
    /// # Errors
    /// It is damaged, or of an unknown version.
    pub(super) fn decode(bytes: &[u8]) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes).context("it is damaged")?;
        ensure!(
            (1..=FORMAT).contains(&format),
            "it has version {format} of the format, and this program, {}, knows versions up to {FORMAT}: use {}",
            node::VERSION,
            if format > FORMAT { "a later release" } else { "the release that wrote it" }
        );
        let manifest: Manifest = serde_json::from_slice(bytes).context("it is damaged")?;
        ensure!(manifest.sum()? == manifest.checksum, "it is damaged: its checksum differs");
        for (path, _) in manifest.files() {
            // The paths in the file decide which files are opened.
            let parts: Vec<&str> = path.split('/').collect();
            let is_inside =
                parts.len() == 2 && parts.iter().all(|part| !part.is_empty() && !part.starts_with('.'));
            ensure!(is_inside, "it names a file elsewhere: {path}");
        }
        Ok(manifest)
    }
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
            format: 1,
            program: "0".into(),
            name: "20261126T220000.000Z".into(),
            cluster: Cluster::default(),
            begun_ms: 1,
            ended_ms: 2,
            keyspaces: vec![keyspace],
            users: Vec::new(),
            functions: String::new(),
            missing: BTreeMap::new(),
            together_ms: None,
            apart: BTreeMap::new(),
            checksum: String::new(),
        };
        manifest.checksum = manifest.sum().unwrap();
        manifest
    }

    #[test]
    fn a_changed_manifest_is_refused() {
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
    fn a_manifest_that_names_a_file_elsewhere_is_refused() {
        for path in ["../1.rdb", "a/../../1.rdb", "/etc/passwd", "1.rdb", "a//1.rdb"] {
            let mut manifest = example();
            manifest.keyspaces[0].shards[0].keys.path = path.into();
            manifest.checksum = manifest.sum().unwrap();
            let why = Manifest::decode(&manifest.encode().unwrap()).unwrap_err().to_string();
            assert!(why.contains("elsewhere"), "{path}: {why}");
        }
    }
}
