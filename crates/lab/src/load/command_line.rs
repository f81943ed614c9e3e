//! `quorate bench`: the flags, and what is printed.

use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::options::{Mix, Options, Stop, Wait};
use super::outcome::Operation;
use super::report::{Report, grouped};
use super::versus::{Comparison, compare};
use super::{Error, Progress, Stage, run};

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

/// `--get-ratio` is kept to this precision.
const RATIO_PARTS: u32 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  quorate bench --addr 127.0.0.1:7000 --duration 10s
  quorate bench --addr 127.0.0.1:7000 --command set -P 16 --value-size 1024 --json
  quorate bench --addr 127.0.0.1:7000 --vs 127.0.0.1:6379 --rounds 5

Failures never count as throughput and never enter its latencies.
Exit code: 0 done; 1 not done, nothing succeeded, or a value was wrong; 2 wrong usage.";

/// Measure any server that speaks the Redis protocol.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Server to measure; repeat it to spread the connections over several
    #[arg(long = "addr", value_name = "HOST:PORT", default_value = "127.0.0.1:7000", value_parser = parse_address)]
    addresses: Vec<SocketAddr>,

    /// Second server, measured in turns with the first; prints medians and the ratio
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    vs: Vec<SocketAddr>,

    /// How many turns each server has with --vs
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// Connections in all
    #[arg(long, short = 'c', default_value_t = 50)]
    connections: usize,

    /// Requests that a connection sends at once
    #[arg(long, short = 'P', default_value_t = 1)]
    pipeline: usize,

    /// What to send
    #[arg(long, value_enum, default_value_t = CommandName::Mixed)]
    command: CommandName,

    /// Share of GET in --command mixed, 0 to 1; the rest is SET
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = parse_share)]
    get_ratio: f64,

    /// How many keys there are
    #[arg(long, default_value_t = 100_000)]
    keys: u64,

    /// What every key starts with (chooses the keyspace)
    #[arg(long, default_value = "key:")]
    key_prefix: String,

    /// Size of each value in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    value_size: usize,

    /// How long to measure (500ms, 10s, 2m)
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,

    /// Measure so many operations instead
    #[arg(long, value_name = "OPERATIONS", conflicts_with = "duration")]
    count: Option<u64>,

    /// How long to send before measuring
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    warmup: Duration,

    /// Follow each SET with WAIT: it succeeds when so many replicas have it
    #[arg(long, value_name = "REPLICAS")]
    wait: Option<u32>,

    /// How long WAIT waits; then the SET counts as too_few_replicas
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    wait_timeout: u32,

    /// How long a reply is waited for before its connection is given up
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,

    /// Do not write every key before measuring
    #[arg(long)]
    no_load: bool,

    /// Threads that drive the connections
    #[arg(long, default_value_t = 1)]
    threads: usize,

    /// Seed of keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Password to send with AUTH
    #[arg(long, short = 'a')]
    password: Option<String>,

    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print CSV with a header
    #[arg(long)]
    csv: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CommandName {
    Set,
    Get,
    Incr,
    Ping,
    Mixed,
}

/// Runs `quorate bench` and prints what it found.
pub fn bench(args: BenchArgs) -> ExitCode {
    match measure(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(error) => {
            eprintln!("quorate bench: {error}");
            ExitCode::from(if matches!(error, Error::Usage(_)) { EXIT_USAGE } else { EXIT_FAILED })
        }
    }
}

/// Whether everything was printed and nothing was wrong.
fn measure(args: &BenchArgs) -> Result<bool, Error> {
    let options = args.options(&args.addresses);
    let mut live = LiveLine::new();
    if args.vs.is_empty() {
        let result = run(&options, |progress| live.show("", progress));
        live.clear();
        let report = result?;
        let text = match (args.json, args.csv) {
            (true, _) => format!("{:#}\n", report.to_json()),
            (_, true) => format!("{}\n{}", Report::CSV_HEADER, report.to_csv("")),
            _ => report.to_string(),
        };
        return Ok(print(&text) && is_sound(&report));
    }
    let other = args.options(&args.vs);
    let result = compare([&options, &other], args.rounds, |label, progress| live.show(label, progress));
    live.clear();
    let comparison = result?;
    let text = match (args.json, args.csv) {
        (true, _) => format!("{:#}\n", comparison.to_json()),
        (_, true) => format!("{}\n{}", Comparison::csv_header(), comparison.to_csv()),
        _ => comparison.to_string(),
    };
    Ok(print(&text) && comparison.rounds().iter().flatten().all(is_sound))
}

fn is_sound(report: &Report) -> bool {
    report.operations() > 0 && !report.has_wrong_answers()
}

/// Whether the text went out; a reader that has left is no reason to panic.
fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

impl BenchArgs {
    fn options(&self, addresses: &[SocketAddr]) -> Options {
        let gets = (self.get_ratio * f64::from(RATIO_PARTS)).round() as u32;
        let mix = match self.command {
            CommandName::Set => Mix::only(Operation::Set),
            CommandName::Get => Mix::only(Operation::Get),
            CommandName::Incr => Mix::only(Operation::Incr),
            CommandName::Ping => Mix::only(Operation::Ping),
            CommandName::Mixed => Mix { get: gets, set: RATIO_PARTS - gets, ..Mix::default() },
        };
        Options {
            addresses: addresses.to_vec(),
            connections: self.connections,
            pipeline: self.pipeline,
            mix,
            keys: self.keys,
            key_prefix: self.key_prefix.clone(),
            value_bytes: self.value_size,
            warmup: self.warmup,
            stop: self.count.map_or(Stop::Duration(self.duration), Stop::Count),
            seed: self.seed,
            wait: self.wait.map(|replicas| Wait { replicas, timeout_ms: self.wait_timeout }),
            // Only GET reads what loading writes; the others make what they need.
            load: !self.no_load && mix.get > 0,
            threads: self.threads,
            password: self.password.clone(),
            reply_timeout: self.timeout,
        }
    }
}

/// One line on the terminal that shows how the run goes on.
struct LiveLine {
    is_terminal: bool,
    is_shown: bool,
}

impl LiveLine {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), is_shown: false }
    }

    fn show(&mut self, label: &str, progress: &Progress) {
        if !self.is_terminal {
            return;
        }
        let stage = match progress.stage {
            Stage::Load => "loading",
            Stage::Measure => "running",
        };
        let separator = if label.is_empty() { "" } else { "  " };
        // Back to the start of the line, and what an older, longer line left is erased.
        eprint!(
            "\r\x1b[K{label}{separator}{stage} {:.0} s  {} op/s  p99 {} us  {} failures",
            progress.elapsed.as_secs_f64(),
            grouped(progress.operations_per_second.round() as u64),
            grouped(progress.p99_us),
            grouped(progress.failures),
        );
        self.is_shown = true;
    }

    fn clear(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// A host and a port; of a host with several addresses the first IPv4 one, because that is what servers listen on
/// by default.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let addresses: Vec<SocketAddr> = text.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| "the host has no address".to_owned())
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number")?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("it must be from 0 to 1".to_owned()) }
}

/// A number with `ms`, `s` or `m`; without a unit it is seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit_s) = if let Some(number) = text.strip_suffix("ms") {
        (number, 0.001)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else {
        (text, 1.0)
    };
    let seconds = number.parse::<f64>().map_err(|_| "expected a duration such as 500ms, 10s or 2m")? * unit_s;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).map(|line| line.args)
    }

    fn options(line: &str) -> Options {
        let args = parse(line).unwrap();
        args.options(&args.addresses)
    }

    #[test]
    fn flags_become_options() {
        let options = options(
            "--addr 127.0.0.1:1 --addr 127.0.0.1:2 -c 7 -P 8 --get-ratio 0.9 --count 5 --wait 2 --wait-timeout 50 \
             --value-size 9 --warmup 250ms --timeout 3",
        );
        assert_eq!(options.addresses.len(), 2);
        assert_eq!((options.connections, options.pipeline, options.value_bytes), (7, 8, 9));
        assert_eq!((options.mix.get, options.mix.set), (900_000, 100_000));
        assert_eq!(options.stop, Stop::Count(5));
        assert_eq!(options.wait, Some(Wait { replicas: 2, timeout_ms: 50 }));
        assert_eq!(options.warmup, Duration::from_millis(250));
        assert_eq!(options.reply_timeout, Duration::from_secs(3));
        assert!(options.load && options.validate().is_ok());
    }

    #[test]
    fn keys_are_loaded_only_for_reads() {
        assert!(options("--command get").load);
        assert!(!options("--command get --no-load").load);
        assert!(!options("--command set").load);
        assert!(!options("--get-ratio 0").load);
    }

    #[test]
    fn wrong_flags_are_refused() {
        for line in [
            "--count 5 --duration 1s",
            "--json --csv",
            "--get-ratio 1.5",
            "--get-ratio NaN",
            "--duration soon",
            "--duration -1s",
            "--duration infs",
            "--addr nowhere",
            "--command fly",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn durations_have_units() {
        let seconds = |text| parse_duration(text).unwrap().as_secs_f64();
        assert_eq!((seconds("500ms"), seconds("10s"), seconds("2m"), seconds("3")), (0.5, 10.0, 120.0, 3.0));
    }
}
