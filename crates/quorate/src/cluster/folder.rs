//! A cluster's folder: locked by one launcher at a time, with a marker file that holds the settings with
//! which the cluster was made.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use node::NodeAddress;
use server::Config;
use server::config::{Limits, PeerTls, TlsSettings};
use server::files::running_process;

use super::nodes::{Node, Tls, certificates_of, folder_of};
use super::settings::{HOST, Settings};
use crate::certs::{self, AUTHORITY_FILE, Authority, Owner};

/// A cluster's folder, locked by this process.
pub(super) struct Folder {
    path: PathBuf,
    /// Never read: it is open for its lock.
    _lock: File,
}

impl Folder {
    /// Creates the folder if needed and locks it.
    ///
    /// # Errors
    /// Another process has locked it, or it cannot be written.
    pub(super) fn open(path: &Path) -> Result<Folder> {
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let lock = lock(path)?;
        Ok(Folder { path: path.to_owned(), _lock: lock })
    }

    /// Returns the settings with which the folder's cluster was made, if there is one.
    ///
    /// # Errors
    /// The marker cannot be read.
    pub(super) fn made(&self) -> Result<Option<Settings>> {
        let marker = self.marker();
        match fs::read_to_string(&marker) {
            Ok(text) => {
                let made = toml::from_str(&text).with_context(|| {
                    format!("{} is not a cluster's marker; use another folder", marker.display())
                })?;
                Ok(Some(made))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", marker.display())),
        }
    }

    /// Checks that no node has run here: new configurations would give it a new identity.
    ///
    /// # Errors
    /// A node has run here.
    pub(super) fn check_new(&self, settings: &Settings) -> Result<()> {
        let mut lived = settings.ids().map(|id| folder_of(&self.path, id));
        if let Some(lived) = lived.find(|folder| folder.join("storage").exists()) {
            bail!(
                "{} was used by a node, but {} is missing: use another folder",
                lived.display(),
                self.marker().display()
            );
        }
        Ok(())
    }

    /// Writes the configuration of each node of a new cluster, then the marker.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn write_configurations(
        &self,
        settings: &Settings,
        nodes: &[Node],
        name: Option<&str>,
    ) -> Result<()> {
        let secret = random_hex::<32>()?;
        let cluster = match name {
            Some(name) => name.to_owned(),
            None => self.usual_name()?,
        };
        let address = |node: &Node| NodeAddress {
            id: node.id,
            host: HOST.to_string(),
            client_port: node.ports.client,
            http_port: node.ports.http,
            peer_port: node.ports.peer,
        };
        let addresses: Vec<NodeAddress> = nodes.iter().map(address).collect();
        // The nodes share this machine's memory.
        let authority = match settings.has_tls() {
            true => Some(Authority::open(&certificates_of(&self.path))?.0),
            false => None,
        };
        let limits = Limits { memory_max: server::memory::share_bytes(nodes.len()), ..Limits::default() };
        for node in nodes {
            fs::create_dir_all(&node.folder)
                .with_context(|| format!("cannot make the folder {}", node.folder.display()))?;
            let tls = match (&authority, &node.tls) {
                (Some(authority), Some(tls)) => Some(self.certify(authority, node.id, tls)?),
                _ => None,
            };
            let config = Config {
                node: node.id,
                cluster: cluster.clone(),
                secret: secret.clone(),
                data: PathBuf::from("."),
                bind: HOST,
                password: None,
                operator_password: None,
                default_user: None,
                enable_debug_command: Default::default(),
                masters: Default::default(),
                redis_version: None,
                http_hosts: Vec::new(),
                limits: limits.clone(),
                storage: Default::default(),
                values: Default::default(),
                traces: None,
                tls,
                keyspaces: settings.keyspaces.clone(),
                dial: Vec::new(),
                nodes: addresses.clone(),
                file: PathBuf::new(),
            };
            config.write(&node.configuration())?;
        }
        // Written last and atomically: a cluster whose folder has no marker was never started.
        let temporary = self.path.join("cluster.toml.new");
        let text = toml::to_string(settings).context("the settings cannot be written as TOML")?;
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, self.marker()))
            .with_context(|| format!("cannot write {}", self.marker().display()))
    }

    /// The name of a new cluster: that of its folder, so that people know it, and a number, so that a backup of one cluster is
    /// not taken for one of another.
    fn usual_name(&self) -> Result<String> {
        const LETTERS_MOST: usize = 32;
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
        let name: String = name.chars().filter(is_plain).take(LETTERS_MOST).collect();
        let number = random_hex::<4>()?;
        Ok(if name.is_empty() { number } else { format!("{name}-{number}") })
    }

    /// Makes a node's certificate, and returns the node's TLS settings. A certificate left by an earlier attempt is
    /// used.
    fn certify(&self, authority: &Authority, id: u16, tls: &Tls) -> Result<TlsSettings> {
        let owner = Owner::Node { id, hosts: vec![HOST.to_string()] };
        let folder = certificates_of(&self.path);
        let files = owner.files();
        if !files.iter().all(|name| folder.join(name).exists()) {
            authority.issue(&owner, certs::DAYS)?;
        }
        let from_node = |name: &str| Path::new("..").join("certs").join(name);
        Ok(TlsSettings {
            bind: None,
            client_port: tls.client,
            http_port: tls.http,
            certificate: from_node(&files[0]),
            key: from_node(&files[1]),
            authority: Some(from_node(AUTHORITY_FILE)),
            client_certificates: Default::default(),
            certificates_name_users: false,
            peers: PeerTls::Required,
        })
    }

    /// The ids of the processes that run nodes in this folder, whichever process started them, including nodes
    /// that have joined.
    pub(super) fn running(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let is_node = |path: &PathBuf| path.join("quorate.toml").exists();
        let folders = entries.flatten().map(|entry| entry.path()).filter(is_node);
        folders.filter_map(|folder| running_process(&folder)).collect()
    }

    fn marker(&self) -> PathBuf {
        self.path.join("cluster.toml")
    }
}

fn lock(path: &Path) -> Result<File> {
    let file = path.join("cluster.lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&file);
    let lock = lock.with_context(|| format!("cannot open {}", file.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&file).unwrap_or_default();
            bail!(
                "the cluster in {} is already running (process {}): stop it first, or use another folder",
                path.display(),
                holder.trim()
            );
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", file.display()));
        }
    }
    fs::write(&file, format!("{}\n", std::process::id()))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(lock)
}

fn random_hex<const BYTES: usize>() -> Result<String> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
