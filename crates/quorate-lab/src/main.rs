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

/// Ends the process quietly when the reader of its output has closed it, as `| head` does, where Rust would panic.
fn end_with_the_reader() {
    /// What a process returns that the closed pipe has killed.
    const BY_PIPE: i32 = 128 + 13;
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(BY_PIPE);
        }
        usual(panic);
    }));
}

fn main() -> ExitCode {
    end_with_the_reader();
    match CommandLine::parse().command {
        Command::Lab(command) => lab::run(command),
        Command::Bench(args) => ::lab::load::bench(*args),
        Command::Check(args) => check::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Advise(args) => advise::run(&args),
    }
}
