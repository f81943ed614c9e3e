//! A node's configuration: the file that `quorate server --config FILE` reads.
//!
//! Unknown keys are refused, and every refusal names the file, the place and what to do. The file holds the cluster's
//! secret, so only its owner may read it.
//!
//! ```toml
//! node = 1                          # which of the nodes below this is
//! cluster = "shop"                  # the same in all nodes' files, as are secret, keyspaces and nodes
//! secret = "0123456789abcdef0123456789abcdef"
//! data = "."                        # the node's folder, relative to this file
//! bind = "127.0.0.1"                # to serve other machines, set another address and
//! # password = "..."                # a password
//!
//! [limits]                          # all optional, see Limits
//! connections_max = 10000
//!
//! [storage]                         # all optional, see StorageSettings
//! segment_bytes = 16777216
//!
//! [values]                          # all optional, see ValueSettings
//! scrub_days = 14
//!
//! [traces]                          # optional, see TraceSettings
//! endpoint = "http://127.0.0.1:4318"
//!
//! [tls]                             # optional, see TlsSettings
//! client_port = 7443
//! certificate = "node-1.crt"
//! key = "node-1.key"
//!
//! [[keyspace]]                      # optional: the default keyspace always exists
//! prefix = "cache:"
//! replication = "leader-follower"
//! acks = "none"
//!
//! [[dial]]                          # optional: where to reach another node, if not at its address
//! node = 2                          # in the map, for example through a relay or a tunnel
//! host = "127.0.0.1"
//! port = 9102
//!
//! [[nodes]]                         # one for each node, including this one; once the cluster has agreed on a map
//!                                   # of its own, the map counts instead, and CLUSTER adds and removes nodes
//! id = 1
//! host = "127.0.0.1"
//! client_port = 7000
//! http_port = 8000
//! peer_port = 9000
//! ```

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cluster::control::GROUPS_MAX;
use commands::RedisVersion;
use node::{DebugCommand, Keyspace, Masters, NodeAddress, NodeId, StorageSettings, check_host, one_line};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::memory::{self, MEMORY_BYTES_MIN};
use crate::traces::TraceSettings;

/// The length of the shortest secret, in bytes: a shorter one could be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// The comment at the head of a file that is written.
const FILE_HEAD: &str = "\
# One node's configuration; docs/reference/configuration.md explains every key. Keys of the whole node come before the first [table].
# [[keyspace]] and [[nodes]] describe a new cluster: once it has begun, KEYSPACE and CLUSTER commands change it.
";

/// Where to put a password. At the end of the file it would be a key of the last table.
const PASSWORD_HINT: &str = "\
# password = \"...\"    # what clients authenticate with; needed before bind may be an address that other machines reach
";

/// The maximum number of nodes of one cluster, and the greatest node id.
pub const NODES_MAX: usize = cluster::control::NODES_MAX;

/// What clients may use of a node. Every limit has a name with a unit; a client that exceeds one gets an error or is
/// closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Memory that a node may use, in bytes. 0 means three quarters of the machine's, or of its control group's if that is
    /// less.
    pub memory_max: u64,
    /// Longest value that a client may store, in bytes; at most 1/32 of the memory.
    pub value_bytes_max: usize,
    /// The maximum number of clients at the same time.
    pub connections_max: usize,
    /// The maximum number of HTTP connections at the same time.
    pub http_connections_max: usize,
    /// The maximum number of bytes of HTTP bodies being read or processed, over all connections.
    pub http_bytes_max: usize,
    /// The maximum number of bytes of replies that a client may leave unread before it is closed.
    pub output_bytes_max: usize,
    /// The maximum number of bytes of incomplete requests, over all clients.
    pub input_bytes_max: usize,
    /// How long a command may take before it gets an error, in milliseconds.
    pub command_timeout_ms: u64,
    /// The factor by which nodes wait longer than usual before they consider each other dead, for slow networks. It must
    /// be the same on all nodes, since leases depend on it: nodes with another value are refused.
    pub patience: u64,
    /// The maximum number of groups (shards of keyspaces) of which a node may hold a replica.
    pub groups_max: usize,
    /// How long a request may take to arrive, in milliseconds; large ones get more time, at 100 bytes per millisecond.
    pub request_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_max: 0,
            value_bytes_max: kv::limits::VALUE_BYTES_MAX_DEFAULT,
            connections_max: 10_000,
            http_connections_max: 1_000,
            http_bytes_max: 1 << 30,
            output_bytes_max: 256 << 20,
            input_bytes_max: 1 << 30,
            command_timeout_ms: 5_000,
            patience: 1,
            groups_max: 512,
            request_timeout_ms: 30_000,
        }
    }
}

/// How values of keyspaces with `storage = "disk"` are kept.
#[allow(clippy::manual_non_exhaustive)] // The field is in older files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValueSettings {
    /// Older files name the store. There is only one left, so nothing depends on this.
    #[serde(skip_serializing, deserialize_with = "only_fjall")]
    engine: (),
    /// Every value is read once in this many days, to find out whether the disk has damaged it. 0: never.
    pub scrub_days: f64,
}

impl Default for ValueSettings {
    fn default() -> ValueSettings {
        ValueSettings { engine: (), scrub_days: 14.0 }
    }
}

/// Reads `engine`, which earlier versions had.
fn only_fjall<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    match String::deserialize(from)?.as_str() {
        "fjall" => Ok(()),
        "rocksdb" => Err(D::Error::custom(
            "this version cannot keep values in RocksDB: remove the key, start this node with an empty data folder and \
             admit it again (quorate node replace ID), which copies everything from the others",
        )),
        _ => Err(D::Error::custom("values are kept in fjall: remove the key")),
    }
}

impl ValueSettings {
    /// `scrub_days` in microseconds.
    pub(crate) fn scrub_period_us(&self) -> u64 {
        const DAY_US: f64 = 86_400e6;
        (self.scrub_days * DAY_US) as u64
    }
}

/// TLS for clients and HTTP, at ports beside the plain ones or instead of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// The address to listen on: by default that of the plain ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// Port for Redis clients; 0 means none. If it equals the node's `client_port`, that port speaks TLS only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub client_port: u16,
    /// Port for HTTP, in the same way.
    #[serde(default, skip_serializing_if = "is_default")]
    pub http_port: u16,
    /// The file with the node's certificate and the intermediate certificates up to the authority, in PEM; a relative path
    /// is relative to the folder of the configuration file.
    pub certificate: PathBuf,
    /// The file with the certificate's private key, in PEM.
    pub key: PathBuf,
    /// The file with the certificates of the authorities whose clients are accepted, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
    /// Whether clients present certificates.
    #[serde(default, skip_serializing_if = "is_default")]
    pub client_certificates: ClientCertificates,
    /// Whether a Redis client's certificate authenticates it, without a password, as the user named by its common
    /// name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub certificates_name_users: bool,
    /// Whether the nodes speak TLS among themselves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub peers: PeerTls,
}

/// Whether the nodes speak TLS among themselves. If so, both sides present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerTls {
    /// They do not.
    #[default]
    Off,
    /// TLS with nodes that speak it, plain connections with others: for the time in which a cluster changes over.
    Wanted,
    /// Nodes without TLS are refused.
    Required,
}

/// Whether clients are asked for certificates. A certificate that a client presents must come from a trusted
/// authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// Clients are not asked for one.
    #[default]
    Off,
    /// Clients may have none.
    Wanted,
    /// Clients must have one.
    Required,
}

impl PeerTls {
    /// The word for it in the file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            PeerTls::Off => "off",
            PeerTls::Wanted => "wanted",
            PeerTls::Required => "required",
        }
    }
}

impl TlsSettings {
    /// Whether all users of the machine can read the private key.
    pub(crate) fn is_key_exposed(&self) -> bool {
        std::fs::metadata(&self.key).is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0)
    }

    fn check(&self, bind: IpAddr, own: &NodeAddress, has_password: bool) -> Result<()> {
        let address = self.bind.unwrap_or(bind);
        ensure!(
            self.client_port != 0 || self.http_port != 0 || self.peers != PeerTls::Off,
            "tls: give client_port, http_port or both: the ports that speak TLS; or peers, for TLS between nodes"
        );
        ensure!(
            self.peers == PeerTls::Off || self.authority.is_some(),
            "tls: peers: give authority, the file with the certificates of those who issue the nodes'"
        );
        ensure!(
            has_password
                || address.to_canonical().is_loopback()
                || (self.client_port, self.http_port) == (0, 0),
            "tls: bind: {address} can be reached from other machines, and there is no password: set `password`, or bind \
             to 127.0.0.1"
        );
        ensure!(
            self.authority.is_some() || self.client_certificates == ClientCertificates::Off,
            "tls: client_certificates: give authority, the file with the certificates of those who issue them"
        );
        ensure!(
            !self.certificates_name_users || self.client_certificates != ClientCertificates::Off,
            "tls: certificates_name_users: clients are not asked for certificates: set client_certificates to \"wanted\" \
             or \"required\""
        );
        if address != bind {
            return Ok(());
        }
        let others =
            [("http_port", own.http_port), ("peer_port", own.peer_port), ("tls.http_port", self.http_port)];
        let clash = others.iter().find(|(_, port)| *port == self.client_port && *port != 0);
        let clash = clash.map(|(name, port)| ("client_port", *name, *port)).or_else(|| {
            let others = [("client_port", own.client_port), ("peer_port", own.peer_port)];
            let clash = others.iter().find(|(_, port)| *port == self.http_port);
            clash.map(|(name, port)| ("http_port", *name, *port))
        });
        match clash {
            Some((own, other, port)) => bail!("tls: {own} and {other} of this node are both {port}"),
            None => Ok(()),
        }
    }
}

/// Where to reach another node. All other nodes and clients still use the map's address.
///
/// Of two nodes, the one with the higher id dials, so an entry matters only for nodes with lower ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dial {
    /// The other node.
    pub node: NodeId,
    /// The host to dial.
    pub host: String,
    /// The port to dial.
    pub port: u16,
}

/// One node's configuration.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// This node's id.
    pub node: NodeId,
    /// The cluster's name: nodes of another cluster are refused.
    pub cluster: String,
    /// The secret with which the nodes authenticate to each other.
    pub secret: String,
    /// The node's folder; a relative path is relative to the folder of this file.
    #[serde(default = "this_folder")]
    pub data: PathBuf,
    /// The address to listen on.
    #[serde(default = "loopback")]
    pub bind: IpAddr,
    /// The clients' password. Required when `bind` is reachable from other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The password of the user `operator`, who may do everything. Without it there is no such user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_password: Option<String>,
    /// What the default user may do until `ACL SETUSER` changes it. By default everything on loopback, and beyond
    /// loopback everything except changing the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_user: Option<DefaultUser>,
    /// Who may use `DEBUG`: no client, by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub enable_debug_command: DebugCommand,
    /// Which nodes call themselves a master: the one that leads the default keyspace, by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub masters: Masters,
    /// The version of Redis that the node tells clients: by default the newest whose commands it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_version: Option<RedisVersion>,
    /// Names and addresses accepted in URLs of HTTP requests, besides loopback's and those of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http_hosts: Vec<String>,
    /// Limits on what clients may use.
    #[serde(default)]
    pub limits: Limits,
    /// How the log is kept.
    #[serde(default)]
    pub storage: StorageSettings,
    /// How large values are kept.
    #[serde(default)]
    pub values: ValueSettings,
    /// Where traces of sampled commands go; without it there are no traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<TraceSettings>,
    /// TLS for clients and HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSettings>,
    /// The keyspaces at the first start.
    #[serde(default, rename = "keyspace", skip_serializing_if = "Vec::is_empty")]
    pub keyspaces: Vec<Keyspace>,
    /// Where this node dials others, if not at their addresses in the map.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dial: Vec<Dial>,
    /// All nodes of the cluster.
    pub nodes: Vec<NodeAddress>,
    /// The file that this configuration was read from, named in errors.
    #[serde(skip)]
    pub file: PathBuf,
}

/// What the default user may do until `ACL SETUSER` changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultUser {
    /// Everything.
    All,
    /// Everything except changing the cluster: its keyspaces, members and users (`+@all -@cluster`).
    Data,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn this_folder() -> PathBuf {
    PathBuf::from(".")
}

fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// A sentence that names the file, the place in it and what is wrong.
    pub fn read(file: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the configuration file {}", file.display()))?;
        let mut config = Config::parse(&text)
            .with_context(|| format!("the configuration file {} cannot be used", file.display()))?;
        config.file = std::path::absolute(file)?;
        let folder = config.file.parent().unwrap_or(Path::new("/"));
        config.data = folder.join(&config.data);
        if let Some(tls) = &mut config.tls {
            let files = [&mut tls.certificate, &mut tls.key].into_iter().chain(&mut tls.authority);
            files.for_each(|file| *file = folder.join(&file));
        }
        Ok(config)
    }

    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// A sentence that names the place and what is wrong.
    pub fn parse(text: &str) -> Result<Config> {
        let config: Config = toml::from_str(text).map_err(|error| located(text, &error))?;
        config.check()?;
        Ok(config)
    }

    /// Returns the configuration as the text of a file, for people to edit.
    ///
    /// # Errors
    /// The configuration cannot be written as TOML.
    pub fn text(&self) -> Result<String> {
        let written = toml::to_string(self).context("the configuration cannot be written as TOML")?;
        let mut text = String::from(FILE_HEAD);
        for line in written.lines() {
            text.push_str(line);
            text.push('\n');
            if line.starts_with("bind = ") && self.password.is_none() {
                text.push_str(PASSWORD_HINT);
            }
        }
        Ok(text)
    }

    /// Writes the file, readable by its owner alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        let text = self.text()?;
        let write = || {
            let mut options = std::fs::OpenOptions::new();
            let mut target = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
            target.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            target.write_all(text.as_bytes())?;
            target.sync_all()
        };
        write().with_context(|| format!("cannot write the configuration file {}", file.display()))
    }

    /// Returns this node's own entry.
    ///
    /// # Errors
    /// No entry has this node's id.
    pub fn own(&self) -> Result<&NodeAddress> {
        self.nodes.iter().find(|entry| entry.id == self.node).with_context(|| {
            format!(
                "node = {}, but no [[nodes]] entry has id = {}: add it, or correct one of them",
                self.node, self.node
            )
        })
    }

    /// Whether a plain port exists beside one with TLS. `tls` and `plain` choose the two numbers.
    pub fn has_plain_port(&self, tls: fn(&TlsSettings) -> u16, plain: fn(&NodeAddress) -> u16) -> bool {
        let (Some(settings), Ok(own)) = (&self.tls, self.own()) else { return true };
        settings.bind.is_some_and(|bind| bind != self.bind) || tls(settings) != plain(own)
    }

    /// Whether the default user may change the cluster.
    pub(crate) fn default_changes_cluster(&self) -> bool {
        let usual = if self.bind.to_canonical().is_loopback() { DefaultUser::All } else { DefaultUser::Data };
        self.default_user.unwrap_or(usual) == DefaultUser::All
    }

    /// Whether other users of the machine can read the file and the secret in it.
    pub fn is_file_exposed(&self) -> bool {
        std::fs::metadata(&self.file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
    }

    /// The name by which nodes know each other: the cluster's, and everything else that must be the same on all of them.
    pub(crate) fn name_for_peers(&self) -> String {
        match self.limits.patience {
            1 => self.cluster.clone(),
            patience => format!("{} with patience {patience}", self.cluster),
        }
    }

    fn check(&self) -> Result<()> {
        self.check_nodes()?;
        ensure!(
            !self.cluster.is_empty() && self.name_for_peers().len() <= 64,
            "cluster: the cluster's name must have 1 to 64 bytes"
        );
        ensure!(
            one_line(&self.cluster) == self.cluster,
            "cluster: the cluster's name '{}' cannot contain newlines or special characters",
            one_line(&self.cluster)
        );
        ensure!(
            self.secret.len() >= SECRET_BYTES_MIN,
            "secret: it must have at least {SECRET_BYTES_MIN} bytes; `openssl rand -hex 32` makes a good one"
        );
        match &self.password {
            Some(password) => ensure!(
                !password.is_empty(),
                "password: an empty password protects nothing; leave the key out to have none"
            ),
            None => ensure!(
                self.bind.to_canonical().is_loopback(),
                "bind: {} can be reached from other machines, and there is no password: set `password`, or bind to 127.0.0.1",
                self.bind
            ),
        }
        if let Some(traces) = &self.traces {
            traces.check()?;
        }
        if let Some(tls) = &self.tls {
            tls.check(self.bind, self.own()?, self.password.is_some())?;
        }
        ensure!(
            self.operator_password.as_ref().is_none_or(|password| !password.is_empty()),
            "operator_password: an empty password protects nothing; leave the key out to have no user 'operator'"
        );
        self.check_keyspaces()?;
        self.check_dial()?;
        let StorageSettings { segment_bytes, checkpoint_bytes, .. } = self.storage;
        ensure!(
            segment_bytes.is_multiple_of(512) && (1 << 16..=1 << 40).contains(&segment_bytes),
            "storage: segment_bytes = {segment_bytes} must be a multiple of 512, from 64 KiB to 1 TiB"
        );
        ensure!(
            checkpoint_bytes >= segment_bytes,
            "storage: checkpoint_bytes = {checkpoint_bytes} must be at least segment_bytes = {segment_bytes}"
        );
        let scrub_days = self.values.scrub_days;
        ensure!(
            (0.0..=3650.0).contains(&scrub_days),
            "values: scrub_days = {scrub_days} must be a number of days, from 0 (never) to 3650"
        );
        self.limits.check()
    }

    fn check_nodes(&self) -> Result<()> {
        let count = self.nodes.len();
        ensure!(
            (1..=NODES_MAX).contains(&count),
            "nodes: there must be 1 to {NODES_MAX} [[nodes]], not {count}"
        );
        self.own()?;
        // Nodes join and leave, so there may be gaps.
        for NodeAddress { id, .. } in &self.nodes {
            let same = self.nodes.iter().filter(|entry| entry.id == *id).count();
            ensure!(
                (1..=NODES_MAX).contains(&usize::from(*id)) && same == 1,
                "nodes: ids are from 1 to {NODES_MAX}, each once, but {same} have id = {id}"
            );
        }
        let mut taken: Vec<(&str, u16, String)> = Vec::new();
        for entry in &self.nodes {
            check_host(&entry.host)
                .map_err(|why| anyhow::anyhow!("nodes: host of node {}: {why}", entry.id))?;
            let ports = [
                ("client_port", entry.client_port),
                ("http_port", entry.http_port),
                ("peer_port", entry.peer_port),
            ];
            for (name, port) in ports {
                let user = format!("{name} of node {}", entry.id);
                ensure!(port != 0, "nodes: {user} is 0");
                if let Some((.., other)) =
                    taken.iter().find(|(host, number, _)| (*host, *number) == (&entry.host, port))
                {
                    bail!("nodes: {user} and {other} are both {port} on {}", entry.host);
                }
                taken.push((&entry.host, port, user));
            }
        }
        Ok(())
    }

    /// A node in `dial` need not be in `nodes`: it may join later.
    fn check_dial(&self) -> Result<()> {
        for (index, Dial { node, host, port }) in self.dial.iter().enumerate() {
            let twice = self.dial[..index].iter().any(|earlier| earlier.node == *node);
            ensure!(!twice, "dial: node {node} is listed twice");
            ensure!(
                *node < self.node,
                "dial: node {node} dials node {}, not the other way round: of two nodes the one with the higher id \
                 dials",
                self.node
            );
            check_host(host).map_err(|why| anyhow::anyhow!("dial: host of node {node}: {why}"))?;
            ensure!(*port != 0, "dial: port of node {node} is 0");
        }
        Ok(())
    }

    fn check_keyspaces(&self) -> Result<()> {
        for (index, keyspace) in self.keyspaces.iter().enumerate() {
            let twice = self.keyspaces[..index].iter().any(|earlier| earlier.prefix == keyspace.prefix);
            ensure!(!twice, "keyspace: the prefix '{}' is listed twice", keyspace.prefix);
            keyspace.check(self.nodes.len()).map_err(anyhow::Error::msg)?;
        }
        let groups: usize = self.keyspaces.iter().map(|keyspace| usize::from(keyspace.shards)).sum();
        ensure!(
            groups <= self.limits.groups_max,
            "keyspace: there are {groups} shards in all, but a node may hold {} (limits.groups_max)",
            self.limits.groups_max
        );
        Ok(())
    }
}

impl Limits {
    /// Returns the limits with a definite bound on memory, and with the limits that follow from it.
    pub(crate) fn within_memory(&self) -> Limits {
        let memory_max = match self.memory_max {
            0 => memory::default_bytes(),
            bytes => bytes,
        };
        if memory_max == 0 {
            return self.clone();
        }
        let part = |bytes: usize, parts: u64| bytes.min((memory_max / parts) as usize);
        Limits {
            memory_max,
            value_bytes_max: part(self.value_bytes_max, 32),
            output_bytes_max: part(self.output_bytes_max, 8),
            input_bytes_max: part(self.input_bytes_max, 8),
            http_bytes_max: part(self.http_bytes_max, 16),
            ..self.clone()
        }
    }

    fn check(&self) -> Result<()> {
        const HOUR_MS: u64 = 3_600_000;
        let ranges = [
            ("value_bytes_max", self.value_bytes_max as u64, 1, kv::limits::VALUE_BYTES_MAX_CEILING as u64),
            ("connections_max", self.connections_max as u64, 1, 1_000_000),
            ("http_connections_max", self.http_connections_max as u64, 1, 1_000_000),
            ("http_bytes_max", self.http_bytes_max as u64, 1 << 20, 1 << 40),
            ("output_bytes_max", self.output_bytes_max as u64, 1 << 20, 1 << 40),
            ("input_bytes_max", self.input_bytes_max as u64, 1 << 20, 1 << 40),
            ("command_timeout_ms", self.command_timeout_ms, 1, HOUR_MS),
            ("patience", self.patience, 1, 100),
            ("groups_max", self.groups_max as u64, 1, GROUPS_MAX as u64),
            ("request_timeout_ms", self.request_timeout_ms, 1, HOUR_MS),
        ];
        ensure!(
            self.memory_max == 0 || self.memory_max >= MEMORY_BYTES_MIN,
            "limits: memory_max = {} is less than {MEMORY_BYTES_MIN}; 0 means three quarters of the memory \
             that the node has",
            self.memory_max
        );
        for (name, value, least, most) in ranges {
            ensure!(
                (least..=most).contains(&value),
                "limits: {name} = {value} is not within {least} to {most}"
            );
        }
        Ok(())
    }
}

/// Formats an error of the TOML reader as one line with its place. It includes the key but not the text of the line, which
/// may hold the secret, since errors end up in logs.
pub fn located(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let mut place = String::new();
    if let Some(before) = error.span().and_then(|span| text.get(..span.start)) {
        let number = before.matches('\n').count() + 1;
        let _ = write!(place, "line {number}");
        let line = text.lines().nth(number - 1).unwrap_or_default();
        if let Some((key, _)) = line.split_once('=') {
            let _ = write!(place, ", key {}", key.trim());
        }
        place.push_str(": ");
    }
    anyhow::anyhow!("{place}{}", node::of_toml(error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
node = 1
cluster = "test"
secret = "0123456789abcdef0123456789abcdef"

[limits]
connections_max = 5

[[keyspace]]
prefix = "cache:"
replication = "leader-follower"
acks = "none"

[[nodes]]
id = 1
host = "127.0.0.1"
client_port = 7000
http_port = 8000
peer_port = 9000
"#;

    fn refusal(text: &str) -> String {
        match Config::parse(text) {
            Ok(_) => panic!("accepted"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn keys_missing_from_a_file_have_their_defaults() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.own().unwrap().client_port, 7000);
        assert_eq!(config.limits.connections_max, 5);
        assert_eq!(config.limits.request_timeout_ms, 30_000);
        assert!(config.bind.is_loopback());
        assert_eq!(config.keyspaces.len(), 1);
    }

    #[test]
    fn a_written_file_reads_back_and_only_its_owner_may_read_it() {
        let folder = std::env::temp_dir().join(format!("quorate-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("quorate.toml");
        std::fs::write(&file, "old").unwrap();
        Config::parse(GOOD).unwrap().write(&file).unwrap();
        let config = Config::read(&file).unwrap();
        assert!(!config.is_file_exposed());
        assert_eq!(config.data.canonicalize().unwrap(), folder.canonicalize().unwrap());
        assert_eq!(config.secret, "0123456789abcdef0123456789abcdef");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_written_file_can_be_edited_as_documented() {
        let mut config = Config::parse(GOOD).unwrap();
        config.keyspaces.clear();
        let text = config.text().unwrap();
        let documented =
            "[[keyspace]]\nprefix = \"cache:\"\nreplication = \"leader-follower\"\nacks = \"none\"\n";
        let edited = format!("{}\n{documented}", text.replace("# password = \"...\"", "password = \"p\""));
        let read = Config::parse(&edited).unwrap();
        assert_eq!((read.keyspaces.len(), read.password.as_deref()), (1, Some("p")), "{edited}");
        // Also with keyspaces or a password that exist already.
        let again = Config::parse(&read.text().unwrap()).unwrap();
        assert_eq!((again.keyspaces, again.password), (read.keyspaces, read.password));
        let second = format!("{}\n{}", config.text().unwrap(), documented.replace("cache:", "other:"));
        assert_eq!(Config::parse(&second).unwrap().keyspaces[0].prefix, "other:");
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = refusal(&GOOD.replace("connections_max", "conections_max"));
        assert!(
            error.contains(
                "line 7, key conections_max: there is no setting 'conections_max'; there are memory_max, "
            ),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_kind_of_value_is_refused_without_showing_the_secret() {
        let error = refusal(&GOOD.replace("node = 1", "node = \"one\""));
        assert!(error.contains("line 2, key node"), "{error}");
        let error = refusal(&GOOD.replace("cdef\"", "cdef\" x"));
        assert!(error.contains("line 4, key secret") && !error.contains("0123"), "{error}");
    }

    #[test]
    fn the_version_of_redis_to_say_is_three_numbers() {
        let with = |version: &str| format!("redis_version = \"{version}\"\n{GOOD}");
        assert_eq!(Config::parse(GOOD).unwrap().redis_version, None);
        let config = Config::parse(&with("7.2.4")).unwrap();
        assert!(
            config.text().unwrap().contains("redis_version = \"7.2.4\"\n"),
            "it is written as it was read"
        );
        let error = refusal(&with("7.2"));
        assert!(error.contains("line 1, key redis_version: '7.2' is no version of Redis"), "{error}");
    }

    #[test]
    fn an_address_to_dial_must_be_of_a_node_that_this_node_dials() {
        let with = |node: u16, port: u16| {
            let dial = format!("[[dial]]\nnode = {node}\nhost = \"127.0.0.1\"\nport = {port}\n\n[[nodes]]");
            let config = GOOD.replace("[[nodes]]", &dial).replace("id = 1", "id = 2");
            config.replace("node = 1\n", "node = 2\n").replace("[[dial]]\nnode = 2", "[[dial]]\nnode = 1")
        };
        let dial = Config::parse(&with(1, 9102)).unwrap().dial;
        assert_eq!(dial, [Dial { node: 1, host: "127.0.0.1".into(), port: 9102 }]);
        assert!(refusal(&with(1, 0)).contains("dial: port of node 1 is 0"));
        assert!(refusal(&with(3, 9102)).contains("dial: node 3 dials node 2"));
    }

    #[test]
    fn files_of_earlier_versions_may_name_the_engine_of_large_values_that_is_left() {
        let with = |engine: &str| {
            GOOD.replace("[[nodes]]", &format!("[values]\nengine = \"{engine}\"\n\n[[nodes]]"))
        };
        assert_eq!(Config::parse(GOOD).unwrap().values, ValueSettings::default());
        let read = Config::parse(&with("fjall")).unwrap();
        assert_eq!(read.values, ValueSettings::default());
        assert!(!read.text().unwrap().contains("engine"), "it is not written any more");
        let error = refusal(&with("rocksdb"));
        assert!(error.contains("key engine: this version cannot keep values in RocksDB: remove"), "{error}");
        let error = refusal(&with("leveldb"));
        assert!(error.contains("key engine: values are kept in fjall: remove the key"), "{error}");
    }

    #[test]
    fn a_public_address_needs_a_password() {
        for address in ["0.0.0.0", "192.168.1.7", "::"] {
            let open = GOOD.replace("node = 1\n", &format!("node = 1\nbind = \"{address}\"\n"));
            assert!(refusal(&open).contains("there is no password"));
            assert!(Config::parse(&open.replace("node = 1\n", "node = 1\npassword = \"p\"\n")).is_ok());
            assert!(
                refusal(&open.replace("node = 1\n", "node = 1\npassword = \"\"\n"))
                    .contains("empty password")
            );
        }
        for address in ["127.0.0.1", "127.9.9.9", "::1"] {
            let closed = GOOD.replace("node = 1\n", &format!("node = 1\nbind = \"{address}\"\n"));
            assert!(Config::parse(&closed).is_ok(), "{address}");
        }
    }

    #[test]
    fn invalid_tls_settings_are_refused() {
        let with = |lines: &str| {
            let files = "certificate = \"n.crt\"\nkey = \"n.key\"";
            GOOD.replace("[[nodes]]", &format!("[tls]\n{files}\n{lines}\n\n[[nodes]]"))
        };
        let tls = Config::parse(&with("client_port = 7443")).unwrap().tls.unwrap();
        assert_eq!((tls.client_port, tls.client_certificates), (7443, ClientCertificates::Off));
        assert!(Config::parse(&with("client_port = 7000\nhttp_port = 8000")).is_ok());
        let between = Config::parse(&with("authority = \"a.crt\"\npeers = \"wanted\"")).unwrap().tls.unwrap();
        assert_eq!((between.client_port, between.peers), (0, PeerTls::Wanted));
        for (lines, why) in [
            ("", "tls: give client_port, http_port or both"),
            ("client_port = 9000", "tls: client_port and peer_port of this node are both 9000"),
            ("http_port = 7000", "tls: http_port and client_port of this node are both 7000"),
            (
                "http_port = 7443\nclient_port = 7443",
                "tls: client_port and tls.http_port of this node are both 7443",
            ),
            (
                "client_port = 7443\nbind = \"0.0.0.0\"",
                "tls: bind: 0.0.0.0 can be reached from other machines",
            ),
            (
                "client_port = 7443\nclient_certificates = \"required\"",
                "tls: client_certificates: give authority",
            ),
            ("peers = \"required\"", "tls: peers: give authority"),
            ("peers = \"yes\"", "key peers: unknown variant `yes`"),
            (
                "client_port = 7443\nclient_certificates = \"yes\"",
                "key client_certificates: unknown variant `yes`",
            ),
        ] {
            assert!(refusal(&with(lines)).contains(why), "{lines}: {}", refusal(&with(lines)));
        }
        let public = with("client_port = 7443\nbind = \"0.0.0.0\"")
            .replace("node = 1\n", "node = 1\npassword = \"p\"\n");
        let config = Config::parse(&public).unwrap();
        let again = Config::parse(&config.text().unwrap()).unwrap();
        assert_eq!(again.tls, config.tls);
    }

    #[test]
    fn invalid_nodes_are_refused() {
        assert!(refusal(&GOOD.replace("node = 1\n", "node = 2\n")).contains("no [[nodes]] entry has id = 2"));
        assert!(refusal(&GOOD.replace("http_port = 8000", "http_port = 7000")).contains("are both 7000"));
        assert!(
            refusal(&GOOD.replace("peer_port = 9000", "peer_port = 0")).contains("peer_port of node 1 is 0")
        );
        assert!(refusal(&GOOD.replace("0123456789abcdef", "")).contains("secret"));
        for host in ["", "a\\nb", "two words", "[::1]"] {
            let error = refusal(&GOOD.replace("host = \"127.0.0.1\"", &format!("host = \"{host}\"")));
            assert!(error.contains("host of node 1") && !error.contains("a\nb"), "{error}");
        }
        let twice = format!("{GOOD}{}", &GOOD[GOOD.find("[[nodes]]").unwrap()..]);
        assert!(refusal(&twice).contains("2 have id = 1"));
    }

    #[test]
    fn invalid_limits_and_keyspaces_are_refused() {
        assert!(
            refusal(&GOOD.replace("connections_max = 5", "connections_max = 0"))
                .contains("connections_max = 0")
        );
        let keyspace = &GOOD[GOOD.find("[[keyspace]]").unwrap()..GOOD.find("[[nodes]]").unwrap()];
        assert!(refusal(&format!("{GOOD}{keyspace}")).contains("'cache:' is listed twice"));
    }
}
