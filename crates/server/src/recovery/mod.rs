//! The folders of stopped nodes, for a recovery (`cluster::recovery`): each is locked, read without changes to it, copied,
//! and written.

mod overlay;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use cluster::recovery::{Plan, Survivor};
use driver::Clock as _;
use node::{Folder, NodeId};

use self::overlay::Overlay;
use crate::config::Config;
use crate::disk::FolderDisk;
use crate::files::DataFolder;
use crate::start::node_configuration;
use crate::turn::Clock;

/// The name of the file beside a copy with the facts that led to the plan.
const FACTS_FILE: &str = "facts.json";

/// A node that does not run, and cannot be started while this value exists.
pub struct StoppedNode {
    config: Config,
    folder: DataFolder,
}

impl StoppedNode {
    /// Locks the folder of a node.
    ///
    /// # Errors
    /// The node runs, or its folder holds nothing of a node.
    pub fn lock(config: Config) -> Result<StoppedNode> {
        let storage = config.data.join("storage");
        ensure!(
            storage.join("manifest").is_file(),
            "{} holds nothing of a node: its disk is lost, so leave it out",
            config.data.display()
        );
        let folder = DataFolder::open(&config.data).context("only a stopped node can be recovered")?;
        Ok(StoppedNode { config, folder })
    }

    /// The node's number.
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// The node's configuration file.
    pub fn config_file(&self) -> &Path {
        &self.config.file
    }

    /// Returns what is found in the folder. Changes nothing in it.
    ///
    /// # Errors
    /// The folder cannot be read, or is of another node.
    pub fn read(&self) -> Result<Survivor> {
        let folder = self.read_from(&mut Overlay::new(self.disk()?))?;
        Ok(folder.survivor().clone())
    }

    /// Copies the folder's log to a new folder beside it, with the facts that led to the plan, and returns the new
    /// folder's path.
    ///
    /// # Errors
    /// It cannot be copied, as when the disk has no room for a copy.
    pub fn back_up(&self, plan: &Plan, survivors: &[Survivor]) -> Result<PathBuf> {
        let name = format!("quorate.before-recovery-{}", plan.lineage.recoveries);
        let mut target = self.config.data.join(&name);
        let mut number = 1;
        while target.exists() {
            number += 1;
            target = self.config.data.join(format!("{name}-{number}"));
        }
        let copied = || -> Result<()> {
            let storage = target.join("storage");
            fs::create_dir_all(&storage)?;
            for entry in fs::read_dir(self.folder.storage())? {
                let entry = entry?;
                let name = entry.file_name();
                // The reserve files hold no data.
                if entry.file_type()?.is_file() && !name.to_string_lossy().starts_with("reserve-") {
                    let copy = storage.join(&name);
                    fs::copy(entry.path(), &copy)?;
                    File::open(&copy)?.sync_all()?;
                }
            }
            save(&target.join(FACTS_FILE), survivors)?;
            for folder in [&storage, &target, &self.config.data] {
                File::open(folder)?.sync_all()?;
            }
            Ok(())
        };
        copied().with_context(|| {
            format!(
                "node {}: its log cannot be copied to {}, so nothing was changed",
                self.node(),
                target.display()
            )
        })?;
        Ok(target)
    }

    /// Writes the plan's decisions for this node, whose folder was found as given, and reads them back.
    ///
    /// # Errors
    /// The folder has changed since, or cannot be written: do it again before the node is started.
    pub fn write(&self, plan: &Plan, found: &Survivor) -> Result<()> {
        let (node, mut disk) = (self.node(), self.disk()?);
        let folder = self.read_from(&mut disk)?;
        ensure!(
            folder.survivor() == found,
            "node {node}: its folder has changed since it was read; begin again"
        );
        folder.write(plan, &mut disk, Clock.now()).map_err(|why| anyhow!("node {node}: {why}"))?;
        drop(disk);
        let written = self.read()?;
        let is_there = plan.alone_at(node).all(|group| {
            let epoch = written.stands.get(&group).map_or(0, |stand| stand.epoch);
            plan.map
                .groups
                .get(&group)
                .is_some_and(|it| it.epoch == epoch || !written.stands.contains_key(&group))
                || plan.map.protocol(group) == node::Protocol::LeaderFollower
        });
        if written.map != plan.map || !is_there {
            bail!(
                "node {node}: what was written is not what is read; do not start it, and put back its copy"
            );
        }
        Ok(())
    }

    fn disk(&self) -> Result<FolderDisk> {
        let storage = self.folder.storage();
        FolderDisk::open(&storage).with_context(|| format!("cannot use the folder {}", storage.display()))
    }

    fn read_from<D: storage::Disk>(&self, disk: &mut D) -> Result<Folder> {
        let read = Folder::read(node_configuration(&self.config)?, disk, Clock.now());
        read.map_err(|error| anyhow!("cannot read the log in {}: {error}", self.folder.storage().display()))
    }
}

/// Writes what was found in folders to a file, for other machines. The cluster's map in it has the hashes of passwords.
///
/// # Errors
/// The file cannot be written.
pub fn save(file: &Path, survivors: &[Survivor]) -> Result<()> {
    let text = serde_json::to_vec(survivors)?;
    let written = || {
        let mut options = fs::OpenOptions::new();
        let mut target = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
        target.write_all(&text)?;
        target.sync_all()
    };
    written().with_context(|| format!("cannot write {}", file.display()))
}

/// Reads the output of [`save`].
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn saved(file: &Path) -> Result<Vec<Survivor>> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| {
        format!("{} is not a file that `quorate recover --save` has written", file.display())
    })
}
