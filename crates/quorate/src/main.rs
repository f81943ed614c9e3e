//! Quorate's command line: runs a node, runs a cluster on this machine, makes certificates and new nodes, shows the
//! state of a cluster, manages keyspaces, nodes, users and locks, reads and writes Redis's files, and makes backups.
//! Measuring, simulating and checking are in a program of their own, `quorate-lab`, to which the commands of these
//! names are passed on.
//!
//! This crate parses arguments and prints lines; the work is done in the other crates. Exit codes: 0 done, 1 failed, 2
//! wrong usage; those of `status` and `top` depend on the state of the cluster, and 3 is one that is not known.

mod certs;
mod cluster;
mod connection;
mod exchange;
mod join;
mod manage;
mod manual;
mod memory;
mod output;
mod recover;
mod status;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{self, ExitCode};

use anyhow::{Result, anyhow};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  quorate cluster --nodes 3 --dir data           three nodes on this machine
  redis-cli -p 7000 set hello world              talk to the first of them
  quorate server --config data/node-1/quorate.toml   restart one node
  quorate join --like data/node-1/quorate.toml --dir data/node-4   create a fourth
  quorate status --addr 127.0.0.1:7000           the state of the cluster
  quorate keyspace create cart: durability=os    make a keyspace
  quorate certs --dir certs --node 10.0.0.1      certificates for TLS
  quorate import dump.rdb --addr 127.0.0.1:7000   import the keys of a Redis
  quorate backup --to /backup --addr 127.0.0.1:7000   everything as files; quorate restore reads them into another cluster
  quorate bench --addr 127.0.0.1:7000            measure it
  quorate lab run leader-follower --quick        reproduce a study
  quorate check history.jsonl                    is this history linearizable?
  quorate advise --value 500KB --bandwidth 10mbit   whole copies or fragments?
  quorate sim --minutes 10                       look for faults in a simulated world";

/// The text of `--version`. It is needed once at most, so it may leak.
fn version() -> &'static str {
    format!("{} ({})", wire::release::BUILD, wire::release::RELEASES).leak()
}

/// A replicated key-value store that speaks the Redis protocol.
#[derive(Parser)]
#[command(name = "quorate", version = version(), after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a cluster of real processes on this machine until Ctrl-C
    Cluster(cluster::ClusterArgs),
    /// Run one node
    Server(ServerArgs),
    /// Make certificates for TLS: the cluster's own authority, and certificates that it issues
    Certs(certs::CertsArgs),
    /// Create a new node for a running cluster
    Join(join::JoinArgs),
    /// Show the state of a cluster, what is at risk, and what to do about it
    Status(status::StatusArgs),
    /// Watch what a cluster's nodes and keyspaces do
    Top(status::TopArgs),
    /// Make, change, drop and list keyspaces
    Keyspace(manage::KeyspaceArgs),
    /// Add, remove, replace and list nodes
    Node(manage::NodeArgs),
    /// Make, change, drop and list users
    User(manage::UserArgs),
    /// List, describe and release locks
    Lock(manage::LockArgs),
    /// Records that have crashed nodes: list them, skip one, or try again
    Quarantine(manage::QuarantineArgs),
    /// Read files of Redis into a running cluster
    Import(exchange::ImportArgs),
    /// Write the keys of a running cluster to a file that Redis and Valkey load
    Export(exchange::ExportArgs),
    /// Make a backup of a running cluster
    Backup(exchange::BackupArgs),
    /// Restore a backup into a running cluster
    Restore(exchange::RestoreArgs),
    /// Continue with the folders that are left when a majority of the control nodes is lost
    Recover(recover::RecoverArgs),
    /// Write a shell's completion of these commands
    Completions(manual::CompletionsArgs),
    /// Write manual pages
    Man(manual::ManualArgs),
    /// Measure a server that speaks the Redis protocol, HTTP, etcd or ZooKeeper
    Bench(HandedOver),
    /// Check whether recorded histories are linearizable
    Check(HandedOver),
    /// Reproduce published studies, and compare results
    Lab(HandedOver),
    /// Run whole clusters in a simulated world and check the replies that clients got
    Sim(HandedOver),
    /// Whole copies or fragments? Predict what each costs for a size and a network
    Advise(HandedOver),
}

const SERVER_EXAMPLES: &str = "\
Examples:
  quorate server --config data/node-1/quorate.toml
  QUORATE_LOG=debug quorate server --config node.toml

The log goes to standard error. SIGTERM and Ctrl-C stop the node in an orderly way.";

/// Run one node.
#[derive(Args)]
#[command(after_help = SERVER_EXAMPLES)]
struct ServerArgs {
    /// The node's configuration; `quorate cluster` writes one for each node
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Accept a data folder that was copied or moved as the node's only one. Needed once; the folder that it comes
    /// from must never be started again
    #[arg(long)]
    adopt: bool,

    /// Keep this file short: standard error is appended to it
    #[arg(long, value_name = "FILE", hide = true)]
    log_file: Option<PathBuf>,

    /// Stop when the process that started this one ends; this must be its id
    #[arg(long, value_name = "PID", hide = true)]
    stop_with: Option<i32>,
}

/// The arguments for `quorate-lab`.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct HandedOver {
    /// See `quorate-lab --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    let command_line = CommandLine::try_parse().unwrap_or_else(|error| refuse(&error));
    let of_status = |name, result: Result<ExitCode>| match result {
        Ok(code) => code,
        // 1 would mean that the cluster serves, and 2 that it does not.
        Err(error) => failed(name, &error, ExitCode::from(status::UNKNOWN)),
    };
    let (name, done) = match command_line.command {
        Command::Status(args) => return of_status("status", status::run(&args)),
        Command::Top(args) => return of_status("top", status::top(&args)),
        Command::Cluster(args) => ("cluster", cluster::run(&args)),
        Command::Server(args) => ("server", serve(&args)),
        Command::Certs(args) => ("certs", certs::run(&args)),
        Command::Join(args) => ("join", join::run(&args)),
        Command::Keyspace(args) => ("keyspace", manage::keyspace(&args)),
        Command::Node(args) => ("node", manage::node(&args)),
        Command::User(args) => ("user", manage::user(&args)),
        Command::Lock(args) => ("lock", manage::lock(&args)),
        Command::Quarantine(args) => ("quarantine", manage::quarantine(&args)),
        Command::Import(args) => ("import", exchange::import(&args)),
        Command::Export(args) => ("export", exchange::export(&args)),
        Command::Backup(args) => ("backup", exchange::backup(&args)),
        Command::Restore(args) => ("restore", exchange::restore(&args)),
        Command::Recover(args) => ("recover", recover::run(&args)),
        Command::Completions(args) => ("completions", manual::complete(&args, CommandLine::command())),
        Command::Man(args) => ("man", manual::pages(&args, CommandLine::command())),
        Command::Bench(rest) => ("bench", hand_over(Some("bench"), &rest)),
        Command::Check(rest) => ("check", hand_over(Some("check"), &rest)),
        Command::Lab(rest) => ("lab", hand_over(None, &rest)),
        Command::Sim(rest) => ("sim", hand_over(Some("sim"), &rest)),
        Command::Advise(rest) => ("advise", hand_over(Some("advise"), &rest)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(name, &error, ExitCode::FAILURE),
    }
}

/// Shows help, or what is wrong with the command line, and ends. A wrong usage of `status` says nothing about the cluster,
/// so it does not end with the exit code of an outage.
fn refuse(error: &clap::Error) -> ! {
    let asks_state = std::env::args_os().nth(1).is_some_and(|word| word == "status" || word == "top");
    if error.use_stderr() && asks_state {
        let _ = error.print();
        process::exit(i32::from(status::UNKNOWN));
    }
    error.exit()
}

fn failed(name: &str, error: &anyhow::Error, code: ExitCode) -> ExitCode {
    // If standard error is not read, the exit code suffices.
    let _ = writeln!(std::io::stderr(), "quorate {name}: {error:#}");
    code
}

/// Replaces this process with the lab's program: the one in the same folder, or else the one on the `PATH`. Returns only if
/// there is none.
fn hand_over(command: Option<&str>, rest: &HandedOver) -> Result<()> {
    const PROGRAM: &str = "quorate-lab";
    let beside = std::env::current_exe()?.with_file_name(PROGRAM);
    let program = if beside.is_file() { beside.clone() } else { PROGRAM.into() };
    let error = process::Command::new(program).args(command).args(&rest.arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => anyhow!(
            "this is a command of the program {PROGRAM}, which is neither {} nor on the PATH: build it with \
             `cargo build --release --package {PROGRAM}`",
            beside.display()
        ),
        _ => anyhow!("cannot start {PROGRAM}: {error}"),
    })
}

fn serve(args: &ServerArgs) -> Result<()> {
    server::files::make_for_owner_alone();
    memory::use_as_a_node();
    if let Some(parent) = args.stop_with
        && !cluster::stop_with_parent(parent)?
    {
        return Ok(());
    }
    server::run(server::Config::read(&args.config)?, args.adopt, args.log_file.clone(), memory::release)
}
