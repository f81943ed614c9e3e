//! The nodes of a folder, as described by their own configuration files, which people edit.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use server::Config;
use server::config::ClientCertificates;
use server::files::running_process;
use server::holder::of_port;
use server::status::quoted;

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

/// A node that is started here.
pub(super) struct Node {
    pub(super) id: u16,
    pub(super) folder: PathBuf,
    /// The address that it listens on.
    pub(super) bind: IpAddr,
    pub(super) ports: Ports,
    /// The clients' password.
    pub(super) password: Option<String>,
    /// Its TLS settings.
    pub(super) tls: Option<Tls>,
}

/// A node's ports with TLS, and what a client needs to know.
pub(super) struct Tls {
    /// Port for Redis clients, or 0.
    pub(super) client: u16,
    /// Port for HTTP, or 0.
    pub(super) http: u16,
    pub(super) bind: IpAddr,
    /// The file with the authority's certificate, if it is known.
    pub(super) authority: Option<PathBuf>,
    /// Clients must present a certificate.
    pub(super) wants_certificates: bool,
}

impl Tls {
    fn named(&self) -> impl Iterator<Item = (&'static str, u16)> + use<> {
        [("tls-client", self.client), ("tls-http", self.http)].into_iter().filter(|(_, port)| *port != 0)
    }

    /// Its ports, as a part of the line about its node.
    pub(super) fn tls_ports(&self, node: &Node) -> String {
        let parts = self.named().map(|(name, port)| {
            let name = if name == "tls-client" { "redis" } else { "http" };
            format!(", {name} over TLS {}", SocketAddr::new(node.host_of(self.bind), port))
        });
        parts.collect()
    }
}

impl Node {
    /// The address at which a client on this machine reaches the node.
    pub(super) fn host(&self) -> IpAddr {
        self.host_of(self.bind)
    }

    fn host_of(&self, bind: IpAddr) -> IpAddr {
        match bind {
            IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            address => address,
        }
    }

    /// The address of one of its ports for a client on this machine.
    pub(super) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.host(), port)
    }

    pub(super) fn configuration(&self) -> PathBuf {
        self.folder.join("quorate.toml")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("quorate.log")
    }

    /// The last line of its log: most likely the reason why the node ended.
    pub(super) fn last_line(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its log is empty").to_owned()
    }

    /// The `redis-cli` command to connect to it. redis-cli prompts for the password, which is never on the command
    /// line.
    pub(super) fn redis_cli(&self) -> String {
        self.command("redis-cli", self.host(), self.ports.client)
    }

    /// The same over TLS, if the node has a port for that.
    pub(super) fn redis_cli_tls(&self) -> Option<String> {
        let tls = self.tls.as_ref().filter(|tls| tls.client != 0)?;
        let mut begin = String::from("redis-cli --tls");
        if let Some(file) = &tls.authority {
            begin.push_str(&format!(" --cacert {}", quoted(&file.to_string_lossy())));
        }
        if tls.wants_certificates {
            begin.push_str(" --cert FILE --key FILE");
        }
        Some(self.command(&begin, self.host_of(tls.bind), tls.client))
    }

    fn command(&self, begin: &str, host: IpAddr, port: u16) -> String {
        let mut command = begin.to_owned();
        if host != IpAddr::V4(Ipv4Addr::LOCALHOST) {
            command.push_str(&format!(" -h {host}"));
        }
        command.push_str(&format!(" -p {port}"));
        if self.password.is_some() {
            command.push_str(" --askpass");
        }
        command
    }
}

/// A node's folder in a cluster's folder.
pub(super) fn folder_of(cluster: &Path, id: u16) -> PathBuf {
    cluster.join(format!("node-{id}"))
}

/// The folder of a cluster's authority in the cluster's folder.
pub(super) fn certificates_of(cluster: &Path) -> PathBuf {
    cluster.join("certs")
}

/// Returns the nodes whose folders are in a cluster's folder, including nodes that have joined, in the order of
/// their ids.
///
/// # Errors
/// A configuration file cannot be used, or is for another node than its folder.
pub(super) fn read(cluster: &Path) -> Result<Vec<Node>> {
    let entries = fs::read_dir(cluster).with_context(|| format!("cannot read {}", cluster.display()))?;
    let id_of = |name: &str| name.strip_prefix("node-")?.parse::<u16>().ok();
    let mut ids: Vec<u16> =
        entries.flatten().filter_map(|entry| id_of(entry.file_name().to_str()?)).collect();
    ids.retain(|id| folder_of(cluster, *id).join("quorate.toml").exists());
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| read_node(folder_of(cluster, id), id)).collect()
}

fn read_node(folder: PathBuf, id: u16) -> Result<Node> {
    let file = folder.join("quorate.toml");
    let config = Config::read(&file)?;
    ensure!(
        config.node == id,
        "{} says node = {}, but its folder is node {id}'s: correct one of them",
        file.display(),
        config.node
    );
    let own = config.own()?;
    let ports = Ports { client: own.client_port, http: own.http_port, peer: own.peer_port };
    ensure!(
        config.has_plain_port(|tls| tls.client_port, |own| own.client_port)
            && config.has_plain_port(|tls| tls.http_port, |own| own.http_port),
        "{} leaves no plain port, at which `quorate cluster` asks whether a node is ready: give [tls] ports of its own, or \
         start the node with `quorate server`",
        file.display()
    );
    let tls = config.tls.map(|tls| Tls {
        client: tls.client_port,
        http: tls.http_port,
        bind: tls.bind.unwrap_or(config.bind),
        authority: tls.authority,
        wants_certificates: tls.client_certificates == ClientCertificates::Required,
    });
    Ok(Node { id, folder, bind: config.bind, ports, password: config.password, tls })
}

/// Checks that every port is free, before anything is started.
///
/// # Errors
/// A port is in use: a sentence that names the port, its node and, if known, the process that holds it.
pub(super) fn check_ports(nodes: &[Node]) -> Result<()> {
    for Node { id, folder, .. } in nodes {
        if let Some(process) = running_process(folder) {
            bail!(
                "node {id} of this folder already runs as process {process}: stop it first (kill {process})"
            );
        }
    }
    for node in nodes {
        let id = node.id;
        let plain = node.ports.named().map(|(name, port)| (node.bind, name, port));
        let tls = node.tls.iter().flat_map(|tls| tls.named().map(|(name, port)| (tls.bind, name, port)));
        for (bind, name, port) in plain.into_iter().chain(tls) {
            match TcpListener::bind((bind, port)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let holder = of_port(port).unwrap_or_else(|| "another program".into());
                    bail!(
                        "port {port}, the {name} port of node {id}, is in use by {holder}: stop it, or choose other \
                         ports (--{name}-port for a new folder, {} for this one)",
                        node.configuration().display()
                    )
                }
                Err(error) => {
                    bail!("{bind} port {port}, the {name} port of node {id}, cannot be used: {error}")
                }
            }
        }
    }
    Ok(())
}
