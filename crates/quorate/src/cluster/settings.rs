//! What a cluster is made of, and the folder that remembers it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use node::{Keyspace, NodeAddress};
use serde::{Deserialize, Serialize};
use server::Config;
use server::files::running_process;
use server::holder::of_port;

use super::ClusterArgs;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What a cluster was made with. Kept in the folder's marker.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    nodes: u16,
    client_port: u16,
    http_port: u16,
    peer_port: u16,
    #[serde(default, rename = "keyspace")]
    keyspaces: Vec<Keyspace>,
}

/// One node's ports.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) http: u16,
    pub(super) peer: u16,
}

impl Ports {
    fn named(&self) -> [(&'static str, u16); 3] {
        [("client", self.client), ("http", self.http), ("peer", self.peer)]
    }
}

impl Settings {
    /// What the command line asks for.
    ///
    /// # Errors
    /// The ports do not fit together.
    pub(super) fn new(args: &ClusterArgs) -> Result<Settings> {
        let settings = Settings {
            nodes: args.nodes,
            client_port: args.client_port,
            http_port: args.http_port,
            peer_port: args.peer_port,
            keyspaces: args.keyspaces.clone(),
        };
        for keyspace in &settings.keyspaces {
            keyspace.check(usize::from(settings.nodes)).map_err(anyhow::Error::msg)?;
        }
        let mut taken: Vec<(u16, String)> = Vec::new();
        for id in settings.ids() {
            for (name, base) in settings.bases() {
                let Some(port) = base.checked_add(id - 1) else {
                    bail!("--{name}-port {base}: node {id} would have a port above 65535");
                };
                let user = format!("the {name} port of node {id}");
                if let Some((_, other)) = taken.iter().find(|(number, _)| *number == port) {
                    bail!("port {port} would be {other} and {user}: choose bases further apart");
                }
                taken.push((port, user));
            }
        }
        Ok(settings)
    }

    fn bases(&self) -> [(&'static str, u16); 3] {
        [("client", self.client_port), ("http", self.http_port), ("peer", self.peer_port)]
    }

    /// The nodes' ids.
    pub(super) fn ids(&self) -> std::ops::RangeInclusive<u16> {
        1..=self.nodes
    }

    /// A node's ports. They fit: [`Settings::new`] saw to it.
    pub(super) fn ports(&self, id: u16) -> Ports {
        let of = |base: u16| base.saturating_add(id - 1);
        Ports { client: of(self.client_port), http: of(self.http_port), peer: of(self.peer_port) }
    }

    /// What the default keyspace is when the cluster begins, in a few words.
    pub(super) fn default_promise(&self) -> String {
        let given = self.keyspaces.iter().find(|keyspace| keyspace.prefix.is_empty());
        let keyspace = given.cloned().unwrap_or_default();
        let is_consensus = keyspace.replication == "consensus";
        let acks = match keyspace.replication.as_str() {
            "leader-follower" => format!(", acks {}", keyspace.acks),
            _ => String::new(),
        };
        let durability = match keyspace.durability.as_str() {
            "" if is_consensus => "fsync",
            "" => "none",
            given => given,
        };
        format!("{}{acks}, durability {durability}, reads {}", keyspace.replication, keyspace.reads)
    }

    /// Looks whether every port can be had, before anything is started.
    ///
    /// # Errors
    /// One is in use: a sentence that says which, for which node, and by whom if that is known.
    pub(super) fn check_ports(&self, folder: &Folder) -> Result<()> {
        for id in self.ids() {
            if let Some(process) = running_process(&folder.node(id)) {
                bail!(
                    "node {id} of this folder already runs as process {process}: stop it first (kill {process})"
                );
            }
        }
        for id in self.ids() {
            for (name, port) in self.ports(id).named() {
                match TcpListener::bind((HOST, port)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                        let holder = of_port(port).unwrap_or_else(|| "another program".into());
                        bail!(
                            "port {port}, the {name} port of node {id}, is in use by {holder}: stop it, or choose \
                             other ports with --{name}-port"
                        )
                    }
                    Err(error) => bail!("port {port}, the {name} port of node {id}, cannot be had: {error}"),
                }
            }
        }
        Ok(())
    }

    /// In which settings another differs, as people would say it.
    fn differences(&self, asked: &Settings) -> Result<Vec<String>> {
        let mut differences = Vec::new();
        let mut compare = |name: &str, made: u16, asked: u16| {
            if made != asked {
                differences.push(format!("{name} is {made} there, not {asked}"));
            }
        };
        compare("--nodes", self.nodes, asked.nodes);
        compare("--client-port", self.client_port, asked.client_port);
        compare("--http-port", self.http_port, asked.http_port);
        compare("--peer-port", self.peer_port, asked.peer_port);
        let text = |settings: &Settings| -> Result<Vec<String>> {
            let texts =
                settings.keyspaces.iter().map(|keyspace| Ok(toml::to_string(keyspace)?.replace('\n', " ")));
            texts.collect()
        };
        let (made, asked) = (text(self)?, text(asked)?);
        if made != asked {
            let told = |texts: &[String]| if texts.is_empty() { "none".into() } else { texts.join("; ") };
            differences.push(format!(
                "--keyspace is ({}) there, not ({})",
                told(&made).trim(),
                told(&asked).trim()
            ));
        }
        Ok(differences)
    }
}

/// A cluster's folder, taken by this process.
pub(super) struct Folder {
    path: PathBuf,
    /// The marker was there: the nodes have their configurations.
    is_made: bool,
    /// Never read: it is open for its lock.
    _lock: File,
}

impl Folder {
    /// Makes the folder if needed and takes it.
    ///
    /// # Errors
    /// Another process has it, it is another cluster's, or it cannot be written.
    pub(super) fn open(path: &Path, settings: &Settings) -> Result<Folder> {
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let lock = lock(path)?;
        let mut folder = Folder { path: path.to_owned(), is_made: false, _lock: lock };
        let marker = folder.marker();
        match fs::read_to_string(&marker) {
            Ok(text) => {
                let made: Settings = toml::from_str(&text).with_context(|| {
                    format!("{} is not a cluster's marker; use another folder", marker.display())
                })?;
                let differences = made.differences(settings)?;
                ensure!(
                    differences.is_empty(),
                    "{} holds a cluster that was made with other settings: {}. Start it with those, or use another folder",
                    path.display(),
                    differences.join(", ")
                );
                folder.is_made = true;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // New configurations would give nodes that have lived a new identity.
                let lived = settings.ids().find(|id| folder.node(*id).join("storage").exists());
                if let Some(id) = lived {
                    let lived = folder.node(id);
                    bail!(
                        "{} has been a node's, but {} is missing: use another folder",
                        lived.display(),
                        marker.display()
                    );
                }
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", marker.display())),
        }
        Ok(folder)
    }

    /// Writes each node's configuration, then the marker, unless that was done in an earlier start.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn write_configurations(&self, settings: &Settings) -> Result<()> {
        if self.is_made {
            return Ok(());
        }
        let (cluster, secret) = (random_hex::<8>()?, random_hex::<32>()?);
        let nodes: Vec<NodeAddress> = settings
            .ids()
            .map(|id| {
                let Ports { client, http, peer } = settings.ports(id);
                NodeAddress {
                    id,
                    host: HOST.to_string(),
                    client_port: client,
                    http_port: http,
                    peer_port: peer,
                }
            })
            .collect();
        for id in settings.ids() {
            let folder = self.node(id);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            let config = Config {
                node: id,
                cluster: cluster.clone(),
                secret: secret.clone(),
                data: PathBuf::from("."),
                bind: HOST,
                password: None,
                limits: Default::default(),
                storage: Default::default(),
                values: Default::default(),
                keyspaces: settings.keyspaces.clone(),
                dial: Vec::new(),
                nodes: nodes.clone(),
                file: PathBuf::new(),
            };
            config.write(&self.configuration(id))?;
        }
        // Last, and as a whole: a folder without it has never been started.
        let temporary = self.path.join("cluster.toml.new");
        let text = toml::to_string(settings).context("the settings cannot be written as TOML")?;
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, self.marker()))
            .with_context(|| format!("cannot write {}", self.marker().display()))
    }

    /// The processes of nodes in this folder that run, whoever has started them; nodes that have joined, too.
    pub(super) fn running(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let is_node = |path: &PathBuf| path.join("quorate.toml").exists();
        let folders = entries.flatten().map(|entry| entry.path()).filter(is_node);
        folders.filter_map(|folder| running_process(&folder)).collect()
    }

    fn marker(&self) -> PathBuf {
        self.path.join("cluster.toml")
    }

    /// A node's folder.
    pub(super) fn node(&self, id: u16) -> PathBuf {
        self.path.join(format!("node-{id}"))
    }

    /// A node's configuration file.
    pub(super) fn configuration(&self, id: u16) -> PathBuf {
        self.node(id).join("quorate.toml")
    }

    /// A node's log.
    pub(super) fn log(&self, id: u16) -> PathBuf {
        self.node(id).join("quorate.log")
    }

    /// The last thing that a node has logged: why it ended, most likely.
    pub(super) fn last_line(&self, id: u16) -> String {
        let text = fs::read(self.log(id)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its log is empty").to_owned()
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
