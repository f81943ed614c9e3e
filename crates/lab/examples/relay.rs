//! The relay alone: `cargo run --release --example relay -- --measure`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "relay")]
struct CommandLine {
    #[command(flatten)]
    args: lab::network::RelayArgs,
}

fn main() -> ExitCode {
    lab::network::relay(&CommandLine::parse().args)
}
