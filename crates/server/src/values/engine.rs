//! The engine that keeps a node's large values.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::fjall::Fjall;
#[cfg(feature = "rocksdb")]
use super::rocksdb::Rocksdb;
use super::tree::{Tree, TreeError};

/// A log-structured merge tree that keeps large values. Neither engine can read the other's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// `fjall`, which is in every build.
    #[default]
    Fjall,
    /// RocksDB, which is in builds with the feature `rocksdb`.
    Rocksdb,
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Engine::Fjall => "fjall",
            Engine::Rocksdb => "rocksdb",
        })
    }
}

impl Engine {
    /// All engines that a configuration can name, whether they are in this build or not.
    pub const ALL: [Engine; 2] = [Engine::Fjall, Engine::Rocksdb];

    /// Refuses an engine that is not in this build.
    ///
    /// # Errors
    /// A sentence that says how to build a program with the engine.
    pub fn check(self) -> Result<()> {
        ensure!(
            self == Engine::Fjall || cfg!(feature = "rocksdb"),
            "engine = \"{self}\" is not in this program: build it with `cargo build --release --features {self}`, or set \
             engine = \"fjall\""
        );
        Ok(())
    }

    /// Refuses a folder in which another engine has kept values.
    ///
    /// # Errors
    /// A sentence that says what to do; or the folder cannot be read.
    pub(super) fn check_folder(self, folder: &Path) -> Result<()> {
        let files = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            files => files.with_context(|| format!("cannot read the folder {}", folder.display()))?,
        };
        for file in files {
            let name =
                file.with_context(|| format!("cannot read the folder {}", folder.display()))?.file_name();
            let is_mark = |engine: &Engine| engine.marks().iter().any(|mark| name == *mark);
            if let Some(other) = Engine::ALL.iter().find(|other| **other != self && is_mark(other)) {
                bail!(
                    "the values in {} were written by {other}, and {self} cannot read them: set engine = \"{other}\" under \
                     [values]; or, to have {self} keep them, start this node with an empty data folder and \
                     admit it again with CLUSTER REPLACE, which copies everything from the others",
                    folder.display()
                );
            }
        }
        Ok(())
    }

    /// Files that only this engine creates, and creates before it keeps anything.
    fn marks(self) -> &'static [&'static str] {
        match self {
            Engine::Fjall => &["keyspaces", "version"],
            Engine::Rocksdb => &["CURRENT", "IDENTITY"],
        }
    }

    /// Opens the tree in this folder, and creates it if there is none.
    pub(super) fn open(self, folder: &Path) -> Result<Box<dyn Tree>, TreeError> {
        match self {
            Engine::Fjall => Ok(Box::new(Fjall::open(folder)?)),
            #[cfg(feature = "rocksdb")]
            Engine::Rocksdb => Ok(Box::new(Rocksdb::open(folder)?)),
            #[cfg(not(feature = "rocksdb"))]
            Engine::Rocksdb => Err(TreeError::Failed(format!("{self} is not in this program"))),
        }
    }
}
