//! `quorate join`: creates a new node of a running cluster.
//!
//! The configuration file of any of its nodes holds what all nodes share: name, secret, password, limits. The cluster
//! itself knows its members. Both go into the new node's file; then the node is added to the cluster (`CLUSTER ADD`),
//! and can be started. The secret is only ever copied from file to file, never sent over a connection or put on a
//! command line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use node::control::{ClusterMap, MAP_BYTES_MAX};
use node::{NodeAddress, NodeId};
use server::Config;
use wire::release::RELEASES;

use crate::cluster::say;

/// How long a node may take to connect. Answers take longer: the control group gives up after five seconds.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  quorate join --like data/node-1/quorate.toml --dir data/node-4
  quorate server --config data/node-4/quorate.toml

On another machine, with a copy of any node's quorate.toml (it holds the secret: keep it safe on the way):
  quorate join --like quorate.toml --dir data --host 10.0.0.7 --bind 10.0.0.7

CLUSTER REMOVE removes a node; CLUSTER REPLACE admits one that has lost its storage.";

/// Create a new node for a running cluster.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JoinArgs {
    /// The configuration of a node of the cluster: name, secret, password and limits are taken from it
    #[arg(long, value_name = "FILE")]
    like: PathBuf,

    /// The new node's folder; created if it does not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

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
/// A sentence that says why not. Then no configuration file is left, and the node is not added, unless the answer of
/// the cluster was lost.
pub(crate) fn run(args: &JoinArgs) -> Result<()> {
    server::files::make_for_owner_alone();
    let like = Config::read(&args.like)?;
    let file = args.dir.join("quorate.toml");
    ensure!(
        !file.exists() && !args.dir.join("storage").exists(),
        "{} already is a node's folder: use another one, or start that node with `quorate server --config \
         {}`",
        args.dir.display(),
        file.display()
    );
    let mut member = Member::find(&like)?;
    let map = member.map()?;
    let own = address(args, &like, &map)?;
    let config = configuration(&like, &map, &own, args.bind.unwrap_or(like.bind));
    // Read as the node will read it, so that what it would refuse is refused now.
    Config::parse(&config.text()?).context("the new node could not start")?;

    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make the folder {}", args.dir.display()))?;
    config.write(&file)?;
    let NodeAddress { id, host, client_port, http_port, peer_port } = &own;
    let words = [client_port, http_port, peer_port].map(u16::to_string);
    let [client, http, peer] = words.each_ref().map(String::as_str);
    if let Err(error) = member.ask(&["CLUSTER", "ADD", &id.to_string(), host, client, http, peer]) {
        // If there was no answer, the node may have been added all the same: the same command then adds it again.
        let _ = std::fs::remove_file(&file);
        return Err(error).with_context(|| format!("node {id} was not added"));
    }
    say(&format!("node {id} is added: redis {host}:{client}, http {host}:{http}, peers {host}:{peer}"));
    if like.tls.is_some() {
        say(&format!(
            "it has no TLS yet: make it a certificate (quorate certs --node {id}=HOST), and add a table [tls] to {}",
            file.display()
        ));
    }
    say(&format!("start it: quorate server --config {}", file.display()));
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
        // A certificate is of one node.
        tls: None,
        nodes,
        file: PathBuf::new(),
        ..like.clone()
    }
}

/// A node of the cluster that answers.
struct Member {
    stream: BufReader<TcpStream>,
    name: String,
}

impl Member {
    /// Finds the first node of a configuration that answers and has a map.
    fn find(like: &Config) -> Result<Member> {
        let mut reasons = Vec::new();
        for address in &like.nodes {
            match Member::connect(address, like) {
                Ok(member) => return Ok(member),
                Err(error) => reasons.push(format!("node {}: {error:#}", address.id)),
            }
        }
        let file: &Path = &like.file;
        bail!("no node of {} answers ({}): the cluster must be running", file.display(), reasons.join("; "))
    }

    fn connect(address: &NodeAddress, like: &Config) -> Result<Member> {
        let name = format!("node {} at {}:{}", address.id, address.host, address.client_port);
        let mut found = (address.host.as_str(), address.client_port).to_socket_addrs()?;
        let socket = found.next().context("its name has no address")?;
        let stream = TcpStream::connect_timeout(&socket, CONNECT_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let mut member = Member { stream: BufReader::new(stream), name };
        // Beyond loopback the default user does not add nodes.
        match (&like.operator_password, &like.password) {
            (Some(password), _) => drop(member.ask(&["AUTH", "operator", password])?),
            (None, Some(password)) => drop(member.ask(&["AUTH", password])?),
            (None, None) => {}
        }
        member.ask(&["PING"])?;
        Ok(member)
    }

    fn map(&mut self) -> Result<ClusterMap> {
        let bytes = self.ask(&["CLUSTER", "MAP"])?;
        let map = ClusterMap::decode(&bytes, RELEASES)
            .map_err(|why| anyhow!("{}: its map cannot be read: {why}", self.name))?;
        ensure!(
            map.version > 0,
            "{} has no cluster map yet: the cluster has not begun, or the node is cut off from it",
            self.name
        );
        Ok(map)
    }

    /// Runs a command and returns its reply, a text.
    fn ask(&mut self, words: &[&str]) -> Result<Vec<u8>> {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        let answer = self.exchange(request.as_bytes());
        // The first word alone: the others may include a password.
        answer.with_context(|| format!("{} was asked for {}", self.name, words[0]))
    }

    fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.stream.get_mut().write_all(request)?;
        let mut line = String::new();
        // Neither a line nor the length that it announces is unbounded.
        (&mut self.stream).take(1 << 16).read_line(&mut line)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+", text)) => Ok(text.as_bytes().to_vec()),
            Some(("-", error)) => Err(anyhow!("{error}")),
            Some(("$", length)) => {
                let length: usize = length.parse()?;
                ensure!(length <= MAP_BYTES_MAX, "its answer has {length} bytes");
                let mut bytes = vec![0; length + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(bytes)
            }
            _ => bail!("its answer cannot be read: {line:?}"),
        }
    }
}
