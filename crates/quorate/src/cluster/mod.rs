//! `quorate cluster`: N real node processes on this machine, for development and for the lab.
//!
//! The folder says what the cluster is: its marker `cluster.toml` holds the settings that it was made with, and
//! `node-I` (I from 1) is each node's own folder with its configuration, log and process id. Starting again in
//! the same folder with the same settings starts the same cluster; other settings are refused.
//!
//! This process only watches. It restarts nothing: a node that ends stays down, for people and tests that want
//! to see what the others do, until somebody starts it again with `quorate server`.

mod children;
mod probe;
mod settings;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::children::Children;
use self::settings::{Folder, Settings};

/// Most nodes that are started on one machine.
const NODES_MAX: i64 = 9;

/// How long the nodes may take to serve commands.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked whether they do.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  quorate cluster --nodes 3 --dir data
  quorate cluster --nodes 5 --dir data --keyspace 'prefix=cache: replication=leader-follower acks=none'
  quorate cluster --nodes 1 --dir data --client-port 7100 --http-port 8100 --peer-port 9100

Node I (from 1) has its configuration, log and process id in DIR/node-I. Ctrl-C stops all nodes.
Start a node that has ended again with: quorate server --config DIR/node-I/quorate.toml";

/// Run a cluster of real processes on this machine until Ctrl-C.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClusterArgs {
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    nodes: u16,

    /// The cluster's folder; made if it is not there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// A keyspace, as 'prefix=P replication=R ...'; repeat it for several
    #[arg(long = "keyspace", value_name = "SETTINGS", value_parser = node::Keyspace::parse)]
    keyspaces: Vec<node::Keyspace>,

    /// Port of the first node for Redis clients; the others' follow
    #[arg(long, value_name = "PORT", default_value_t = 7000, value_parser = clap::value_parser!(u16).range(1..))]
    client_port: u16,

    /// Port of the first node for HTTP; the others' follow
    #[arg(long, value_name = "PORT", default_value_t = 8000, value_parser = clap::value_parser!(u16).range(1..))]
    http_port: u16,

    /// Port of the first node for the other nodes; the others' follow
    #[arg(long, value_name = "PORT", default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1..))]
    peer_port: u16,
}

/// Runs a cluster until it is asked to stop.
///
/// # Errors
/// It cannot start: a sentence that says why.
pub(crate) fn run(args: &ClusterArgs) -> Result<()> {
    // From here on a signal waits for its turn, so that no node is left behind.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
    let settings = Settings::new(args)?;
    let folder = Folder::open(&args.dir, &settings)?;
    settings.check_ports(&folder)?;
    folder.write_configurations(&settings)?;

    let mut children = Children::start(&folder, &settings)?;
    for id in settings.ids() {
        let ports = settings.ports(id);
        say(&format!(
            "node {id}: process {}, redis 127.0.0.1:{}, http 127.0.0.1:{}, peers 127.0.0.1:{}, log {}",
            children.process(id),
            ports.client,
            ports.http,
            ports.peer,
            folder.log(id).display()
        ));
    }
    match wait_until_ready(&mut signals, &mut children, &folder, &settings) {
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
    say(&format!("try: redis-cli -p {} set hello world", settings.ports(1).client));
    say(&format!("keys without a keyspace of their own: {}", settings.default_promise()));

    // The iterator ends never; a signal that asks to stop ends the loop.
    for signal in signals.forever() {
        if signal != SIGCHLD {
            break;
        }
        for id in children.ended() {
            say(&format!(
                "node {id} ended ({}); start it again with: quorate server --config {}",
                children.fate(id),
                folder.configuration(id).display()
            ));
        }
    }
    say("stopping");
    children.stop(&mut signals);
    // Nodes that somebody has started again are this cluster's nodes, if not this process's children.
    children::stop_strays(|| folder.running());
    Ok(())
}

/// True when every node serves commands, false when it is asked to stop before.
fn wait_until_ready(
    signals: &mut Signals,
    children: &mut Children,
    folder: &Folder,
    settings: &Settings,
) -> Result<bool> {
    let by = Instant::now() + READY_WITHIN;
    let mut waiting: Vec<u16> = settings.ids().collect();
    loop {
        if signals.pending().any(|signal| signal != SIGCHLD) {
            return Ok(false);
        }
        if let Some(id) = children.ended().first() {
            bail!("node {id} did not start ({}): {}", children.fate(*id), folder.last_line(*id));
        }
        waiting.retain(|id| !probe::is_ready(settings.ports(*id)));
        if waiting.is_empty() {
            return Ok(true);
        }
        if Instant::now() > by {
            let logs: Vec<String> = waiting.iter().map(|id| folder.log(*id).display().to_string()).collect();
            bail!(
                "after {} s these nodes do not serve commands: {waiting:?}; see {}",
                READY_WITHIN.as_secs(),
                logs.join(", ")
            );
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Prints a line at once, also into a pipe. That nobody reads it any more is no reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    if !out.is_terminal() {
        let _ = out.flush();
    }
}

/// Lets this process be asked to stop when its parent ends. False when the parent has ended already.
///
/// # Errors
/// The system refuses.
pub(crate) fn stop_with_parent(parent: i32) -> Result<bool> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    Ok(rustix::process::getppid().is_some_and(|present| present.as_raw_nonzero().get() == parent))
}
