//! Quorate's command line: one binary for a node, a cluster on this machine, the load generator, the lab, the
//! simulator and the checker of histories.
//!
//! This crate parses words and prints lines; what it starts lives in the other crates. Exit codes: 0 done,
//! 1 failed, 2 wrong usage.

mod advise;
mod check;
mod cluster;
mod export;
mod join;
mod lab;
mod memory;
mod sim;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  quorate cluster --nodes 3 --dir data           three nodes on this machine
  redis-cli -p 7000 set hello world              talk to the first of them
  quorate server --config data/node-1/quorate.toml   start one node again
  quorate join --like data/node-1/quorate.toml --dir data/node-4   make a fourth
  quorate bench --addr 127.0.0.1:7000            measure it
  quorate lab run leader-follower --quick        reproduce a study
  quorate check history.jsonl                    is this history linearizable?
  quorate advise --value 500KB --bandwidth 10mbit   whole copies or fragments?
  quorate sim --minutes 10                       look for faults in a simulated world";

/// A replicated key-value store that speaks the Redis protocol.
#[derive(Parser)]
#[command(name = "quorate", version, after_help = EXAMPLES)]
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
    /// Make a new node of a cluster that runs
    Join(join::JoinArgs),
    /// Measure a server that speaks the Redis protocol, HTTP, etcd or ZooKeeper
    Bench(Box<::lab::load::BenchArgs>),
    /// Check whether recorded histories are linearizable
    Check(check::CheckArgs),
    /// Write a recorded history for another checker: Porcupine, Knossos or Elle
    Export(export::ExportArgs),
    /// Reproduce published studies, and compare results
    Lab(lab::LabArgs),
    /// Run whole clusters in a simulated world and check what clients were told
    Sim(sim::SimArgs),
    /// Whole copies or fragments? Predict what each costs for a size and a network
    Advise(advise::AdviseArgs),
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

    /// The data folder was copied or moved, and is the node's only one from now on. Wanted once; the folder that it comes
    /// from must never be started again
    #[arg(long)]
    adopt: bool,

    /// Standard error appends to this file: keep it short
    #[arg(long, value_name = "FILE", hide = true)]
    log_file: Option<PathBuf>,

    /// Stop when the process that started this one, which must be this one, ends
    #[arg(long, value_name = "PID", hide = true)]
    stop_with: Option<i32>,
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let (name, done) = match command_line.command {
        Command::Cluster(args) => ("cluster", cluster::run(&args)),
        Command::Server(args) => ("server", serve(&args)),
        Command::Join(args) => ("join", join::run(&args)),
        Command::Bench(args) => return ::lab::load::bench(*args),
        Command::Check(args) => return check::run(&args),
        Command::Export(args) => return export::run(&args),
        Command::Lab(args) => return lab::run(args),
        Command::Sim(args) => return sim::run(&args),
        Command::Advise(args) => return advise::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where nobody reads it, the exit code says enough.
            let _ = writeln!(std::io::stderr(), "quorate {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
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
