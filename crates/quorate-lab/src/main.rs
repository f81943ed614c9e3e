//! The lab's command line: measures servers, reproduces studies, simulates clusters and checks histories. `quorate`
//! passes its commands of these names on to this program.
//!
//! This crate parses arguments and prints lines; the work is done in the other crates. Exit codes: 0 done, 1 failed, 2
//! wrong usage.

mod advise;
mod check;
mod export;
mod lab;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  quorate-lab list                               the available studies
  quorate-lab run leader-follower --quick --verify
  quorate-lab run leader-follower --full --dir results/today
  quorate-lab compare results/yesterday results/today
  quorate-lab relay --route '1>2 127.0.0.1:9102 127.0.0.1:9002' --link '1<>2 delay=10ms'
  quorate-lab bench --addr 127.0.0.1:7000        measure a server
  quorate-lab check history.jsonl                is this history linearizable?
  quorate-lab advise --value 500KB --bandwidth 10mbit   whole copies or fragments?
  quorate-lab sim --minutes 10                   look for faults in a simulated world

`quorate bench`, `check`, `export`, `sim` and `advise` are the same, and `quorate lab run` is `quorate-lab run`.";

/// Measures, simulates and verifies replicated key-value stores.
#[derive(Parser)]
#[command(name = "quorate-lab", version, after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Lab(lab::LabCommand),
    /// Measure a server that speaks the Redis protocol, HTTP, etcd or ZooKeeper
    Bench(Box<::lab::load::BenchArgs>),
    /// Check whether recorded histories are linearizable
    Check(check::CheckArgs),
    /// Write a recorded history for another checker: Porcupine, Knossos or Elle
    Export(export::ExportArgs),
    /// Run whole clusters in a simulated world and check the replies that clients got
    Sim(sim::SimArgs),
    /// Whole copies or fragments? Predict what each costs for a size and a network
    Advise(advise::AdviseArgs),
}

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Lab(command) => lab::run(command),
        Command::Bench(args) => ::lab::load::bench(*args),
        Command::Check(args) => check::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Advise(args) => advise::run(&args),
    }
}
