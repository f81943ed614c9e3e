//! `quorate join`: creates a new node of a running cluster.
//!
//! The configuration file of any of its nodes holds what all nodes share: name, secret, password, limits. The cluster
//! itself knows its members. The new node's file gets both; then the node is added to the cluster (`CLUSTER ADD`),
//! and can be started. The secret is only ever copied from file to file, never sent over a connection or put on a
//! command line.
//!
//! [`prepared`]: of a node whose file exists already.

mod prepared;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use cluster::control::ClusterMap;
use node::{NodeAddress, NodeId};
use server::Config;
use server::config::{PeerTls, TlsSettings};

use crate::certs::{AUTHORITY_FILE, AUTHORITY_KEY_FILE, Authority, DAYS, Owner};
use crate::connection::{Client, Cluster, Reply, map_of};
use crate::output::say;

/// How long a node may be silent: the control group gives up after five seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  quorate join --like data/node-1/quorate.toml --dir data/node-4
  quorate server --config data/node-4/quorate.toml

On another machine, with a copy of any node's quorate.toml (it holds the secret: keep it safe on the way):
  quorate join --like quorate.toml --dir data --host 10.0.0.7 --bind 10.0.0.7

Where the cluster has TLS, with the folder of `quorate certs`:
  quorate join --like node-1/quorate.toml --dir node-4 --certs certs --host 10.0.0.7

Before each start of a node whose file exists already (under Kubernetes): a node that is not in the cluster is added, and a member
is left as it is. Nodes 1 to 3 begin a new cluster:
  quorate join --config quorate.toml --beginners 3

quorate node remove removes a node; quorate node replace admits one that has lost its storage.";

/// Create a new node for a running cluster.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JoinArgs {
    /// The configuration of a node of the cluster: name, secret, password and limits are taken from it
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    like: Option<PathBuf>,

    /// The new node's folder; created if it does not exist
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    dir: Option<PathBuf>,

    /// Instead of --like and --dir: the node's own configuration, which exists already. It is added unless it is a member, by
    /// the other nodes that the file names; a new node waits for them
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["like", "dir", "id", "host", "bind", "certs", "client_port", "http_port", "peer_port"]
    )]
    config: Option<PathBuf>,

    /// With --config: nodes 1 to N begin a new cluster, so they wait for no other node
    #[arg(long, value_name = "N", default_value_t = 0, requires = "config")]
    beginners: NodeId,

    /// The new node's number [default: one more than the greatest]
    #[arg(long)]
    id: Option<NodeId>,

    /// The address at which the other nodes and clients reach the new node; needed if the nodes of the file are on other
    /// machines
    #[arg(long)]
    host: Option<String>,

    /// The address to listen on [default: as in the file]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,

    /// The folder of the authority (quorate certs), if the cluster has TLS: the new node gets a certificate, and the TLS
    /// settings of the file's node [default: the folder of that node's certificate, if the authority's key is there]
    #[arg(long, value_name = "DIR")]
    certs: Option<PathBuf>,

    /// Port for Redis clients [default: that of the file's node, plus the difference of the node numbers]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    client_port: Option<u16>,

    /// Port for HTTP
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    http_port: Option<u16>,

    /// Port for the other nodes
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    peer_port: Option<u16>,
}

/// Writes the new node's configuration and adds it to the cluster.
///
/// # Errors
/// A sentence that says why it failed. Then no configuration file is left, and the node is not added, unless the
/// answer of the cluster was lost.
pub(crate) fn run(args: &JoinArgs) -> Result<()> {
    if let Some(config) = &args.config {
        return prepared::run(config, args.beginners);
    }
    let (Some(like), Some(dir)) = (&args.like, &args.dir) else {
        bail!("give --like and --dir, or --config")
    };
    server::files::make_for_owner_alone();
    let like = Config::read(like)?;
    let file = dir.join("quorate.toml");
    ensure!(
        !file.exists() && !dir.join("storage").exists(),
        "{} already is a node's folder: use another one, or start that node with `quorate server --config \
         {}`",
        dir.display(),
        file.display()
    );
    let cluster = Cluster::of(&like)?;
    let (asked, mut member) = cluster.open(ANSWER_WITHIN).with_context(|| {
        format!("the cluster must be running, and {} must say where", like.file.display())
    })?;
    let map = map_of(&mut member).with_context(|| asked.clone())?;
    let own = address(args, &like, &map)?;
    let certificate = Certificate::find(args, &like, &own)?;
    let mut config = configuration(&like, &map, &own, args.bind.unwrap_or(like.bind));
    config.tls = certificate.as_ref().map(|certificate| certificate.settings.clone());
    // Parsed as the node will parse it, to find errors now.
    Config::parse(&config.text()?).context("the new node could not start")?;

    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    if let Some(certificate) = &certificate {
        certificate.put_into(dir)?;
    }
    config.write(&file)?;
    let NodeAddress { id, host, .. } = &own;
    if let Err(error) = add(&mut member, &own) {
        // If there was no answer, the node may have been added nevertheless: the same command then adds it again.
        let _ = std::fs::remove_file(&file);
        return Err(error).with_context(|| format!("{asked}: node {id} was not added"));
    }
    if let (Some(tls), None) = (&like.tls, &certificate) {
        let needs = match tls.peers {
            PeerTls::Required => ", without which the other nodes turn it away",
            PeerTls::Off | PeerTls::Wanted => "",
        };
        say(&format!(
            "it has no TLS yet{needs}: make it a certificate (quorate certs --node {id}={host}), and add a table [tls] to {}",
            file.display()
        ));
    }
    say(&format!("start it: quorate server --config {}", file.display()));
    Ok(())
}

/// Adds a node to the cluster, and says so.
fn add(member: &mut Client, own: &NodeAddress) -> Result<()> {
    let NodeAddress { id, host, client_port, http_port, peer_port } = own;
    let words = [client_port, http_port, peer_port].map(u16::to_string);
    let [client, http, peer] = words.each_ref().map(String::as_str);
    let number = id.to_string();
    let words = ["CLUSTER", "ADD", &number, host, client, http, peer].map(str::as_bytes);
    if let Reply::Error(error) = member.ask(&words)? {
        bail!("{error}");
    }
    say(&format!("node {id} is added: redis {host}:{client}, http {host}:{http}, peers {host}:{peer}"));
    Ok(())
}

fn address(args: &JoinArgs, like: &Config, map: &ClusterMap) -> Result<NodeAddress> {
    let last = map.nodes.keys().max().copied().unwrap_or_default();
    let id = args.id.unwrap_or(last.saturating_add(1));
    let own = like.own()?;
    let port = |given: Option<u16>, of_like: u16, name: &str| {
        let counted = i32::from(of_like) + i32::from(id) - i32::from(like.node);
        let counted = || u16::try_from(counted).ok().filter(|port| *port > 0);
        given
            .or_else(counted)
            .with_context(|| format!("give --{name}-port: node {id} would have no such port"))
    };
    let host = match &args.host {
        Some(host) => host.clone(),
        None if is_loopback(&own.host) => own.host.clone(),
        None => {
            bail!("give --host, the address of node {id}: the node of the file is reached at {}", own.host)
        }
    };
    let bind = args.bind.unwrap_or(like.bind);
    ensure!(
        host.is_empty() || is_loopback(&host) || !bind.to_canonical().is_loopback(),
        "give --bind: node {id} would be reached at {host}, but would listen on {bind} only"
    );
    let address = NodeAddress {
        id,
        host,
        client_port: port(args.client_port, own.client_port, "client")?,
        http_port: port(args.http_port, own.http_port, "http")?,
        peer_port: port(args.peer_port, own.peer_port, "peer")?,
    };
    match map.nodes.get(&id) {
        // A node that was added and never started may be added again, for example when its file was lost.
        Some(known) if known.address != address || known.start.identity != 0 => bail!(
            "there already is a node {id}, at {}:{}: give another --id",
            known.address.host,
            known.address.client_port
        ),
        _ => Ok(address),
    }
}

/// The new node's certificate, in the folder of the authority, and the node's TLS settings.
struct Certificate {
    folder: PathBuf,
    files: [String; 3],
    settings: TlsSettings,
}

impl Certificate {
    /// Issues the certificate, unless it exists already. `None` if the cluster has no TLS, or the authority's key is
    /// not here.
    fn find(args: &JoinArgs, like: &Config, own: &NodeAddress) -> Result<Option<Certificate>> {
        let Some(tls) = &like.tls else {
            ensure!(args.certs.is_none(), "--certs: {} has no TLS", like.file.display());
            return Ok(None);
        };
        let beside = tls.certificate.parent().filter(|folder| folder.join(AUTHORITY_KEY_FILE).exists());
        let Some(folder) = args.certs.as_deref().or(beside).map(Path::to_owned) else { return Ok(None) };
        ensure!(
            folder.join(AUTHORITY_FILE).exists(),
            "--certs: {} has no {AUTHORITY_FILE}: it is not a folder of `quorate certs`",
            folder.display()
        );
        let owner = Owner::Node { id: own.id, hosts: vec![own.host.clone()] };
        let [certificate, key] = owner.files();
        if ![&certificate, &key].iter().all(|name| folder.join(name).exists()) {
            Authority::open(&folder)?.0.issue(&owner, DAYS)?;
        }
        let model = like.own()?;
        let near = |port: u16, plain: u16, of_model: u16| -> Result<u16> {
            let counted = i32::from(port) + i32::from(plain) - i32::from(of_model);
            let counted = u16::try_from(if port == 0 { 0 } else { counted });
            counted.with_context(|| format!("node {} would have no port for TLS: give other ports", own.id))
        };
        let settings = TlsSettings {
            bind: tls.bind.filter(|_| args.bind.is_none()),
            // The same distance from the plain ports as on the other nodes: clients of Redis Cluster rely on that.
            client_port: near(tls.client_port, own.client_port, model.client_port)?,
            http_port: near(tls.http_port, own.http_port, model.http_port)?,
            certificate: certificate.clone().into(),
            key: key.clone().into(),
            authority: Some(AUTHORITY_FILE.into()),
            ..tls.clone()
        };
        Ok(Some(Certificate { folder, files: [certificate, key, AUTHORITY_FILE.to_owned()], settings }))
    }

    /// Copies the files into the new node's folder.
    fn put_into(&self, target: &Path) -> Result<()> {
        for name in &self.files {
            let (from, to) = (self.folder.join(name), target.join(name));
            // This also copies the mode.
            std::fs::copy(&from, &to)
                .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        }
        Ok(())
    }
}

/// Whether a name or address is reachable from this machine only.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn configuration(like: &Config, map: &ClusterMap, own: &NodeAddress, bind: IpAddr) -> Config {
    let others = map.nodes.values().map(|node| node.address.clone()).filter(|address| address.id != own.id);
    let mut nodes: Vec<NodeAddress> = others.chain([own.clone()]).collect();
    nodes.sort_by_key(|address| address.id);
    Config {
        node: own.id,
        data: PathBuf::from("."),
        bind,
        // The cluster map holds the keyspaces; those in a file are for a new cluster.
        keyspaces: Vec::new(),
        dial: Vec::new(),
        nodes,
        file: PathBuf::new(),
        ..like.clone()
    }
}
