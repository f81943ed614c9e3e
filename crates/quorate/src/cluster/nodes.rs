//! The nodes of a folder, as described by their own configuration files, which people edit.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use server::Config;
use server::files::running_process;
use server::holder::of_port;

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
}

impl Node {
    /// The address at which a client on this machine reaches it.
    pub(super) fn host(&self) -> IpAddr {
        match self.bind {
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

    /// The last line of its log: most likely the reason why it ended.
    pub(super) fn last_line(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its log is empty").to_owned()
    }

    /// The `redis-cli` command to talk to it. The password is prompted for, and never on the command line.
    pub(super) fn redis_cli(&self) -> String {
        let mut command = String::from("redis-cli");
        if self.host() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
            command.push_str(&format!(" -h {}", self.host()));
        }
        command.push_str(&format!(" -p {}", self.ports.client));
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
    Ok(Node { id, folder, bind: config.bind, ports, password: config.password })
}

/// Checks that every port is free, before anything is started.
///
/// # Errors
/// One is in use: a sentence that names the port, its node and, if known, the process that holds it.
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
        for (name, port) in node.ports.named() {
            match TcpListener::bind((node.bind, port)) {
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
                    bail!("{} port {port}, the {name} port of node {id}, cannot be used: {error}", node.bind)
                }
            }
        }
    }
    Ok(())
}
