//! `quorate cluster`: N real node processes on this machine, for development and for the lab.
//!
//! The folder defines the cluster: its marker `cluster.toml` holds the settings that it was made with, and `node-I` (I
//! from 1) is each node's own folder with its configuration, log and process id. Starting again in the same folder
//! starts the same cluster, including nodes that have joined in it: each with its own file, and with the keyspaces of
//! the cluster map. Settings need not be repeated; settings that differ are refused.
//!
//! This process only watches. It restarts nothing: a node that ends stays down, for people and tests that want to
//! observe the other nodes, until it is started again with `quorate server`.

mod children;
mod folder;
mod nodes;
mod probe;
mod promises;
mod settings;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use server::status::{quoted, words};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::children::Children;
use self::folder::Folder;
use self::nodes::Node;
use self::settings::Settings;
use crate::output::say;

/// The maximum number of nodes that are started on one machine.
const NODES_MAX: i64 = 9;

/// When to first report why nodes do not serve commands yet.
const TELL_AFTER: Duration = Duration::from_secs(10);

/// How often to report it after that.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How often to check whether they do.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  quorate cluster --nodes 3 --dir data
  quorate cluster --dir data                       the same cluster again
  quorate cluster --nodes 3 --dir shop --name shop
  quorate cluster --nodes 5 --dir other --keyspace 'prefix=cache: replication=leader-follower acks=none'
  quorate cluster --nodes 3 --dir sealed --tls     with TLS, at ports from 7443 and 8443
  quorate cluster --nodes 1 --dir one --client-port 7100 --http-port 8100 --peer-port 9100

Node I (from 1) has its configuration, log and process id in DIR/node-I. Ctrl-C stops all nodes.
To restart a node that has ended: quorate server --config DIR/node-I/quorate.toml";

/// Run a cluster of real processes on this machine until Ctrl-C.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClusterArgs {
    /// How many nodes a new cluster has [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    nodes: Option<u16>,

    /// What a new cluster is called, in its nodes' logs, status and backups [default: its folder's name, and a random number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The cluster's folder; created if it does not exist. An existing cluster starts as it is, with --dir alone
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// A keyspace of a new cluster, as 'prefix=P replication=R ...'; repeat it for several
    #[arg(long = "keyspace", value_name = "SETTINGS", value_parser = node::Keyspace::parse)]
    keyspaces: Vec<node::Keyspace>,

    /// Port of the first node for Redis clients; the others' follow [default: 7000]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    client_port: Option<u16>,

    /// Port of the first node for HTTP; the others' follow [default: 8000]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    http_port: Option<u16>,

    /// Port of the first node for the other nodes; the others' follow [default: 9000]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    peer_port: Option<u16>,

    /// TLS at further ports of a new cluster and between its nodes, with certificates of its own authority, in DIR/certs
    #[arg(long)]
    tls: bool,

    /// Port of the first node for Redis clients over TLS; the others' follow [default: 7443]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "tls")]
    tls_client_port: Option<u16>,

    /// Port of the first node for HTTP over TLS; the others' follow [default: 8443]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "tls")]
    tls_http_port: Option<u16>,
}

/// Runs a cluster until it is asked to stop.
///
/// # Errors
/// A sentence that says why it cannot start.
pub(crate) fn run(args: &ClusterArgs) -> Result<()> {
    server::files::make_for_owner_alone();
    // From here on signals are queued, so that no node is left running.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
    let folder = Folder::open(&args.dir)?;
    let made = folder.made()?;
    let is_made = made.is_some();
    let nodes = match made {
        Some(made) => {
            let nodes = nodes::read(&args.dir)?;
            made.check_given(args, &nodes)?;
            check_name(args, &nodes)?;
            ensure!(!nodes.is_empty(), "{} has no folder of a node: use another folder", args.dir.display());
            nodes::check_ports(&nodes)?;
            nodes
        }
        None => {
            let settings = Settings::new(args)?;
            folder.check_new(&settings)?;
            let nodes = settings.nodes(&args.dir);
            nodes::check_ports(&nodes)?;
            folder.write_configurations(&settings, &nodes, args.name.as_deref())?;
            nodes
        }
    };

    let mut children = Children::start(&nodes)?;
    for node in &nodes {
        say(&format!(
            "node {}: process {}, redis {}, http {}, peers {}{}, log {}",
            node.id,
            children.process(node.id).unwrap_or_default(),
            node.at(node.ports.client),
            node.at(node.ports.http),
            node.at(node.ports.peer),
            node.tls.as_ref().map_or(String::new(), |tls| tls.tls_ports(node)),
            node.log().display()
        ));
    }
    match wait_until_ready(&mut signals, &mut children, &nodes, is_made) {
        Ok(true) => {}
        Ok(false) => {
            children.stop(&mut signals);
            return Ok(());
        }
        Err(error) => {
            children.stop(&mut signals);
            return Err(error);
        }
    }
    say("ready");
    say(&format!("try: {} set hello world", nodes[0].redis_cli()));
    if let Some(command) = nodes[0].redis_cli_tls() {
        say(&format!("over TLS: {command} get hello"));
    }
    if let Some(promise) = promises::of_default(&nodes) {
        say(&format!("keys without a keyspace of their own: {promise}"));
    }
    say_what_begins_empty(&nodes, is_made);

    // The iterator never ends; a signal that asks to stop ends the loop.
    for signal in signals.forever() {
        if signal != SIGCHLD {
            break;
        }
        for id in children.ended() {
            say_ended(&children, &nodes, id);
        }
    }
    say_what_is_lost(&nodes);
    say("stopping");
    children.stop(&mut signals);
    // Nodes that were restarted by other processes belong to this cluster, though they are not this process's
    // children.
    children::stop_strays(|| folder.running());
    Ok(())
}

/// Checks that an existing cluster has the given name, if one is given.
fn check_name(args: &ClusterArgs, nodes: &[Node]) -> Result<()> {
    if let (Some(given), Some(first)) = (&args.name, nodes.first()) {
        let made = server::Config::read(&first.configuration())?.cluster;
        ensure!(
            *given == made,
            "{} holds the cluster '{made}', not '{given}': the name of a cluster does not change",
            args.dir.display()
        );
    }
    Ok(())
}

/// Waits until every running node serves commands. Returns false if this process is asked to stop before that.
///
/// A node that takes long, for example because it reads a long log, is waited for, and its state is reported
/// periodically. In a cluster that was started before, a node that ends does not keep the others from serving.
fn wait_until_ready(
    signals: &mut Signals,
    children: &mut Children,
    nodes: &[Node],
    is_made: bool,
) -> Result<bool> {
    let begun = Instant::now();
    let mut tell_at = begun + TELL_AFTER;
    let mut waiting: Vec<&Node> = nodes.iter().collect();
    loop {
        if signals.pending().any(|signal| signal != SIGCHLD) {
            return Ok(false);
        }
        for id in children.ended() {
            let last_line = nodes.iter().find(|node| node.id == id).map(Node::last_line).unwrap_or_default();
            if !is_made || children.have_ended() {
                bail!("node {id} did not start ({}): {last_line}", children.fate(id));
            }
            say_ended(children, nodes, id);
            say(&format!("the last line of its log: {last_line}"));
            waiting.retain(|node| node.id != id);
        }
        let mut seen = Vec::new();
        waiting.retain(|node| match probe::what_lacks(node) {
            Some(lack) => {
                seen.push(format!("node {}: {lack}, see {}", node.id, node.log().display()));
                true
            }
            None => false,
        });
        if waiting.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= tell_at {
            tell_at = Instant::now() + TELL_EVERY;
            say(&format!("not ready after {} s: {}", begun.elapsed().as_secs(), seen.join("; ")));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn say_ended(children: &Children, nodes: &[Node], id: u16) {
    let configuration = nodes.iter().find(|node| node.id == id).map(Node::configuration).unwrap_or_default();
    say(&format!(
        "node {id} ended ({}); start it again with: quorate server --config {}",
        children.fate(id),
        quoted(&configuration.to_string_lossy())
    ));
}

/// Prints which keyspaces keep no records. They are empty after all nodes were stopped, and the next start reports
/// that too.
fn say_what_begins_empty(nodes: &[Node], is_made: bool) {
    let held = promises::in_memory_only(nodes);
    let names = |is_named: fn(u64) -> bool| {
        let named = held.iter().filter(|(_, keys)| is_named(*keys)).map(|(name, _)| name.as_str());
        named.collect::<Vec<_>>().join(", ")
    };
    let (all, empty) = (names(|_| true), names(|keys| keys == 0));
    if is_made && !empty.is_empty() {
        say(&format!(
            "empty, because all nodes were stopped and durability none keeps keys in memory only: {empty}"
        ));
    } else if !all.is_empty() {
        say(&format!("in memory only (durability none), lost when all nodes stop: {all}"));
    }
}

fn say_what_is_lost(nodes: &[Node]) {
    let held = promises::in_memory_only(nodes);
    let lost = held.iter().filter(|(_, keys)| *keys > 0);
    let lost: Vec<String> =
        lost.map(|(name, keys)| format!("{name} ({})", words::count(*keys as usize, "key"))).collect();
    if !lost.is_empty() {
        say(&format!(
            "lost with this stop, because durability none keeps keys in memory only: {}",
            lost.join(", ")
        ));
    }
}

/// Makes the system ask this process to stop when its parent ends. Returns false if the parent has ended already.
///
/// # Errors
/// The system refuses.
pub(crate) fn stop_with_parent(parent: i32) -> Result<bool> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    Ok(rustix::process::getppid().is_some_and(|present| present.as_raw_nonzero().get() == parent))
}
