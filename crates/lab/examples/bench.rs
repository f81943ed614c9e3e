//! The load generator alone: `cargo run --release --example bench -- --addr 127.0.0.1:6379`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "bench")]
struct CommandLine {
    #[command(flatten)]
    args: lab::load::BenchArgs,
}

fn main() -> ExitCode {
    lab::load::bench(CommandLine::parse().args)
}
