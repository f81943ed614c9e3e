//! `quorate bench`: the flags, and the output.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use check::{History, Verdict};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::custom::Custom;
use super::flags::{
    Cores, Server, parse_cores, parse_duration, parse_key_choice, parse_mix, parse_server, parse_share,
    parse_sizes,
};
use super::hgrm::write_hgrm;
use super::keys::KeyChoice;
use super::live::Live;
use super::options::{Arrivals, Login, Mix, Options, Pace, Stop, Transport, Wait};
use super::outcome::Operation;
use super::report::Report;
use super::tls::{Tls, Trust};
use super::value::Sizes;
use super::versus::{Comparison, compare};
use super::{Error, run};

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

/// The precision of `--get-ratio`.
const RATIO_PARTS: u32 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  quorate bench --addr 127.0.0.1:7000 --duration 10s
  quorate bench --addr 127.0.0.1:7000 --command set -P 16 --value-size 1024 --json
  quorate bench --addr 127.0.0.1:7000 --vs 127.0.0.1:6379 --rounds 5
  quorate bench --addr 127.0.0.1:7000 --rate 20000 --key-choice zipf --hgrm latencies
  quorate bench --addr 127.0.0.1:7000 --vs etcd://127.0.0.1:2379 -c 256 --command set --value-size 256
  quorate bench --addr 127.0.0.1:7000 --send 'ZADD board {random} {key}'
  quorate bench --addr 127.0.0.1:7000 --load-with 'RPUSH list {value}' --send 'LRANGE list 0 99' --vs 127.0.0.1:6379
  quorate bench --addr 127.0.0.1:8000 --http --get-ratio 0.9 --verify
  quorate bench --addr db1.example:7443 --cacert authority.crt --user ada --password-file ada.txt
  quorate bench --addr rediss://db1.example:7443 --cacert authority.crt --vs db1.example:7000    what TLS costs

Latencies are in microseconds. With --rate they are measured from when a request was due, not from when it was sent.
Failures never count as throughput and never enter its latencies.
Exit code: 0 done; 1 not done, nothing succeeded, a value was wrong or a history not linearizable; 2 wrong usage.";

/// Measure a server that speaks the Redis protocol, Quorate's HTTP, etcd or ZooKeeper.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Server to measure: HOST:PORT, rediss://HOST:PORT (TLS), etcd://HOST:PORT or zookeeper://HOST:PORT; repeat it to
    /// spread the connections over several
    #[arg(long = "addr", value_name = "SERVER", default_value = "127.0.0.1:7000", value_parser = parse_server)]
    servers: Vec<Server>,

    /// Second server, measured alternately with the first; prints medians and the ratio
    #[arg(long, value_name = "SERVER", value_parser = parse_server)]
    vs: Vec<Server>,

    /// How often each server is measured with --vs
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

    /// What to send, with weights: get=8,set=1,incr=1,ping=0
    #[arg(long, value_name = "WEIGHTS", conflicts_with_all = ["command", "get_ratio"], value_parser = parse_mix)]
    mix: Option<Mix>,

    /// Send this command; {key}, {number}, {random}, {random:N} and {value} are filled in for each request
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["command", "get_ratio", "mix"])]
    send: Option<Custom>,

    /// Load each key with this command instead of SET: 'ZADD board {number} {key}'
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_load")]
    load_with: Option<Custom>,

    /// Send this many requests per second, whether or not replies arrive, instead of waiting for each reply
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<f64>,

    /// How the requests of --rate are spread over time
    #[arg(long, value_enum, default_value_t = ArrivalsName::Even, requires = "rate")]
    arrivals: ArrivalsName,

    /// Use HTTP: POST /put, GET /get/KEY, and GET /health for ping
    #[arg(long)]
    http: bool,

    /// How many keys there are
    #[arg(long, default_value_t = 100_000)]
    keys: u64,

    /// What every key starts with (chooses the keyspace)
    #[arg(long, default_value = "key:")]
    key_prefix: String,

    /// Which key a request picks: uniform, sequential, zipf or zipf:EXPONENT
    #[arg(long, value_name = "CHOICE", default_value = "uniform", value_parser = parse_key_choice)]
    key_choice: KeyChoice,

    /// Size of each key in bytes, prefix included [default: 12 digits after the prefix]
    #[arg(long, value_name = "BYTES")]
    key_size: Option<usize>,

    /// Size of each value in bytes, or a range (64-1024)
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_sizes)]
    value_size: Sizes,

    /// How long to measure (500ms, 10s, 2m)
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,

    /// Measure this many operations instead
    #[arg(long, value_name = "OPERATIONS", conflicts_with = "duration")]
    count: Option<u64>,

    /// How long to send before measuring
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    warmup: Duration,

    /// Follow each SET with WAIT: it succeeds when this many replicas have it
    #[arg(long, value_name = "REPLICAS")]
    wait: Option<u32>,

    /// Send WAIT once after all requests of a pipeline, for all SETs among them
    #[arg(long, requires = "wait")]
    wait_once: bool,

    /// How long WAIT waits; then the SET counts as too_few_replicas
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    wait_timeout: u32,

    /// How long to wait for a reply before giving up its connection
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,

    /// Do not write every key before measuring
    #[arg(long)]
    no_load: bool,

    /// Threads that drive the connections
    #[arg(long, default_value_t = 1)]
    threads: usize,

    /// Pin the threads to these processor cores, one after the other: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    cores: Option<Cores>,

    /// Seed of keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Password to send with AUTH
    #[arg(long, short = 'a')]
    password: Option<String>,

    /// A file with the password
    #[arg(long, value_name = "FILE", conflicts_with = "password")]
    password_file: Option<PathBuf>,

    /// The user to log in as [default: default]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Use TLS with every server whose address begins with no protocol; rediss://HOST:PORT asks for it for one
    #[arg(long)]
    tls: bool,

    /// With TLS: the certificates of the authorities to trust, in PEM [default: this machine's]
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// With TLS, if a server requires one: this client's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Record every operation and check that the history is linearizable; keys must be new or loaded
    #[arg(long, conflicts_with = "vs")]
    verify: bool,

    /// Record every operation to a file that `quorate check` reads; compressed if its name ends in .gz
    #[arg(long, value_name = "FILE", conflicts_with = "vs")]
    history: Option<PathBuf>,

    /// Write the latencies of each operation and outcome to .hgrm files in a folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "vs")]
    hgrm: Option<PathBuf>,

    /// Show no progress
    #[arg(long, short = 'q')]
    quiet: bool,

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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ArrivalsName {
    /// Evenly
    Even,
    /// With exponentially distributed gaps
    Poisson,
}

/// Runs `quorate bench` and prints its results.
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

/// Runs the load and prints the results. Returns whether everything was printed and nothing was wrong.
fn measure(args: &BenchArgs) -> Result<bool, Error> {
    let mut live = if args.quiet { Live::silent() } else { Live::new() };
    if args.vs.is_empty() {
        return measure_one(args, &mut live);
    }
    let sides = [&args.options(&args.servers)?, &args.options(&args.vs)?];
    let result = compare(sides, args.rounds, |label, progress| live.show(label, progress));
    live.clear();
    let comparison = result?;
    let text = match (args.json, args.csv) {
        (true, _) => format!("{:#}\n", comparison.to_json()),
        (_, true) => format!("{}\n{}", Comparison::csv_header(), comparison.to_csv()),
        _ => comparison.to_string(),
    };
    Ok(print(&text) && comparison.rounds().iter().flatten().all(is_sound))
}

fn measure_one(args: &BenchArgs, live: &mut Live) -> Result<bool, Error> {
    let result = run(&args.options(&args.servers)?, |progress| live.show("", progress));
    live.clear();
    let mut report = result?;
    let history = report.take_history();
    let mut has_written = true;
    if let Some(folder) = &args.hgrm {
        has_written &= is_written(folder, write_hgrm(&report, folder).map(drop));
    }
    if let (Some(path), Some(history)) = (&args.history, &history) {
        has_written &= is_written(path, write_history(path, history));
    }
    let verdict = history.filter(|_| args.verify).map(|history| {
        if history.answered() == 0 {
            return (false, "nothing was verified: no operation of a key was answered".to_owned());
        }
        let verdict = check::linearizable(&history);
        (matches!(verdict, Verdict::Ok { .. }), verdict.words(&history))
    });
    let text = match (args.json, args.csv) {
        (true, _) => {
            let mut json = report.to_json();
            if let Some((is_linearizable, words)) = &verdict {
                json["verification"] = json!({ "linearizable": is_linearizable, "words": words });
            }
            format!("{json:#}\n")
        }
        (_, true) => format!("{}\n{}", Report::CSV_HEADER, report.to_csv("")),
        _ => report.to_string(),
    };
    let has_printed = print(&text);
    if let Some((_, words)) = verdict.as_ref().filter(|_| !args.json) {
        // Kept out of the CSV rows.
        eprintln!("{words}");
    }
    let is_verified = verdict.is_none_or(|(is_linearizable, _)| is_linearizable);
    Ok(has_printed && has_written && is_verified && is_sound(&report))
}

fn write_history(path: &Path, history: &History) -> io::Result<()> {
    let file = File::create(path)?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        return history.write_compressed(file);
    }
    let mut out = BufWriter::new(file);
    history.write(&mut out)?;
    out.flush()
}

/// Whether the file was written; prints the error if not.
fn is_written(path: &Path, result: io::Result<()>) -> bool {
    if let Err(error) = &result {
        eprintln!("quorate bench: cannot write {}: {error}", path.display());
    }
    result.is_ok()
}

fn is_sound(report: &Report) -> bool {
    report.operations() > 0 && !report.has_wrong_answers()
}

/// Prints text and returns whether that worked: a closed pipe is no reason to panic.
fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

impl BenchArgs {
    /// As whom to log in.
    fn login(&self) -> Result<Option<Login>, Error> {
        let password = match &self.password_file {
            Some(file) => {
                let text = fs::read_to_string(file);
                let text = text.map_err(|error| Error::Usage(format!("{}: {error}", file.display())))?;
                Some(text.trim_end().to_owned())
            }
            None => self.password.clone(),
        };
        if self.user.is_some() && password.is_none() {
            return Err(Error::Usage("--user needs --password-file or --password".to_owned()));
        }
        Ok(password.map(|password| Login { user: self.user.clone(), password }))
    }

    /// How to speak TLS with the servers of one side, if it does.
    fn tls(&self, servers: &[Server]) -> Result<Option<Tls>, Error> {
        let is_given = self.tls || self.cacert.is_some() || self.cert.is_some();
        let names_one = self.servers.iter().chain(&self.vs).any(|server| server.is_tls);
        // Where an address asks for it, the files are for that one.
        let is_implied = self.tls || is_given && !names_one;
        let has_tls = |server: &Server| server.is_tls || is_implied && server.transport.is_none();
        let count = servers.iter().filter(|server| has_tls(server)).count();
        if count == 0 {
            return Ok(None);
        }
        if count < servers.len() {
            return Err(Error::Usage("the servers of one side must all have TLS, or none".to_owned()));
        }
        let own = self.cert.clone().zip(self.key.clone());
        let trust = Trust { authority: self.cacert.clone(), own };
        Tls::new(&trust, servers.iter().map(|server| server.host.as_str())).map(Some)
    }

    fn options(&self, servers: &[Server]) -> Result<Options, Error> {
        let unsaid = if self.http { Transport::Http } else { Transport::Resp };
        let transport_of = |server: &Server| server.transport.unwrap_or(unsaid);
        let transport = servers.first().map_or(unsaid, transport_of);
        if servers.iter().any(|server| transport_of(server) != transport) {
            return Err(Error::Usage("the servers of one side must speak the same protocol".to_owned()));
        }
        let gets = (self.get_ratio * f64::from(RATIO_PARTS)).round() as u32;
        let mix = match (self.mix, self.command) {
            _ if self.send.is_some() => Mix::only(Operation::Custom),
            (Some(mix), _) => mix,
            (None, CommandName::Set) => Mix::only(Operation::Set),
            (None, CommandName::Get) => Mix::only(Operation::Get),
            (None, CommandName::Incr) => Mix::only(Operation::Incr),
            (None, CommandName::Ping) => Mix::only(Operation::Ping),
            (None, CommandName::Mixed) => Mix { get: gets, set: RATIO_PARTS - gets, ..Mix::default() },
        };
        Ok(Options {
            addresses: servers.iter().map(|server| server.address).collect(),
            connections: self.connections,
            pipeline: self.pipeline,
            mix,
            custom: self.send.clone(),
            custom_load: self.load_with.clone(),
            keys: self.keys,
            key_choice: self.key_choice,
            key_prefix: self.key_prefix.clone(),
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            warmup: self.warmup,
            stop: self.count.map_or(Stop::Duration(self.duration), Stop::Count),
            pace: self.rate.map_or(Pace::Closed, |per_second| Pace::Open {
                per_second,
                arrivals: match self.arrivals {
                    ArrivalsName::Even => Arrivals::Even,
                    ArrivalsName::Poisson => Arrivals::Poisson,
                },
            }),
            transport,
            seed: self.seed,
            wait_once: self.wait_once,
            wait: self.wait.map(|replicas| Wait { replicas, timeout_ms: self.wait_timeout }),
            // Only GET needs loaded keys; the others create theirs, except with ZooKeeper.
            load: !self.no_load
                && (mix.get > 0
                    || self.load_with.is_some()
                    || mix.set > 0 && transport == Transport::ZooKeeper),
            record: self.verify || self.history.is_some(),
            threads: self.threads,
            cores: self.cores.as_ref().map(|cores| cores.0.clone()).unwrap_or_default(),
            login: self.login()?,
            tls: self.tls(servers)?,
            reply_timeout: self.timeout,
        })
    }
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
        args.options(&args.servers).unwrap()
    }

    #[test]
    fn flags_become_options() {
        let options = options(
            "--addr 127.0.0.1:1 --addr 127.0.0.1:2 -c 7 -P 8 --get-ratio 0.9 --count 5 --wait 2 --wait-once --wait-timeout 50 \
             --value-size 9 --warmup 250ms --timeout 3",
        );
        assert_eq!(options.addresses.len(), 2);
        assert_eq!((options.connections, options.pipeline, options.value_bytes), (7, 8, Sizes::fixed(9)));
        assert_eq!((options.mix.get, options.mix.set), (900_000, 100_000));
        assert_eq!(options.stop, Stop::Count(5));
        assert_eq!(options.wait, Some(Wait { replicas: 2, timeout_ms: 50 }));
        assert!(options.wait_once);
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
    fn an_address_may_name_the_protocol_of_its_server() {
        assert_eq!(options("--addr etcd://127.0.0.1:1 --command set").transport, Transport::Etcd);
        let zookeeper = options("--addr zookeeper://127.0.0.1:1 --command set");
        assert!(zookeeper.transport == Transport::ZooKeeper && zookeeper.load, "nodes are made by loading");
        let args = parse("--addr 127.0.0.1:1 --http --vs etcd://127.0.0.1:2").unwrap();
        assert_eq!(args.options(&args.servers).unwrap().transport, Transport::Http);
        assert_eq!(args.options(&args.vs).unwrap().transport, Transport::Etcd);
        let mixed = parse("--addr 127.0.0.1:1 --addr etcd://127.0.0.1:2").unwrap();
        assert!(matches!(mixed.options(&mixed.servers), Err(Error::Usage(_))));
        assert!(parse("--addr gopher://127.0.0.1:1").is_err());
    }

    #[test]
    fn tls_is_for_all_servers_of_a_side_or_for_none() {
        let sides = |line: &str| {
            let args = parse(line).unwrap();
            [&args.servers, &args.vs].map(|side| match args.tls(side) {
                Ok(tls) => tls.map_or("plain".to_owned(), |_| "tls".to_owned()),
                Err(error) => error.to_string(),
            })
        };
        let plain = "plain".to_owned();
        assert_eq!(sides("--addr 127.0.0.1:1 --vs 127.0.0.1:2"), [plain.clone(), plain.clone()]);
        assert_eq!(
            sides("--addr redis://127.0.0.1:1 --vs etcd://127.0.0.1:2 --tls"),
            [plain.clone(), plain.clone()]
        );
        let [one, other] = sides("--addr 127.0.0.1:1 --vs 127.0.0.1:2 --cacert nowhere.crt");
        assert!(one.contains("nowhere.crt") && other.contains("nowhere.crt"), "{one}; {other}");
        let [one, other] = sides("--addr rediss://127.0.0.1:1 --vs 127.0.0.1:2 --cacert nowhere.crt");
        assert!(one.contains("nowhere.crt") && other == plain, "the file is for the one that has TLS");
        let [mixed, _] = sides("--addr rediss://127.0.0.1:1 --addr 127.0.0.1:2");
        assert!(mixed.contains("must all have TLS"), "{mixed}");
    }

    #[test]
    fn a_user_needs_a_password() {
        let login =
            |line: &str| parse(line).unwrap().login().map(|login| login.map(|it| (it.user, it.password)));
        assert!(matches!(login("-c 1"), Ok(None)));
        let ada = (Some("ada".to_owned()), "word".to_owned());
        assert_eq!(login("--user ada -a word").unwrap(), Some(ada));
        assert!(login("--user ada").is_err() && login("--password-file /nowhere").is_err());
    }

    #[test]
    fn load_has_a_shape_in_time_and_over_keys() {
        let poisson = options("--rate 1000 --arrivals poisson --key-choice zipf:1.5 --http --verify");
        assert_eq!(poisson.pace, Pace::Open { per_second: 1000.0, arrivals: Arrivals::Poisson });
        assert_eq!((poisson.key_choice, poisson.transport), (KeyChoice::Zipf(1.5), Transport::Http));
        assert!(poisson.record);
        let mixed = options("--mix get=8,incr=2 --key-size 30 --value-size 40-80");
        assert_eq!((mixed.mix.get, mixed.mix.set, mixed.mix.incr), (8, 0, 2));
        assert_eq!((mixed.key_bytes, mixed.value_bytes), (Some(30), Sizes { min: 40, max: 80 }));
        assert!(!mixed.record && mixed.pace == Pace::Closed);
    }

    #[test]
    fn a_custom_command_is_the_only_operation() {
        let args = Line::try_parse_from([
            "bench",
            "--send",
            "ZRANK board {key}",
            "--load-with",
            "ZADD board {number} {key}",
        ]);
        let args = args.unwrap().args;
        let options = args.options(&args.servers).unwrap();
        assert_eq!((options.mix, options.load), (Mix::only(Operation::Custom), true));
        assert_eq!(options.custom.unwrap().text(), "ZRANK board {key}");
        for wrong in [["--send", "GET {keys}"], ["--load-with", ""]] {
            assert!(Line::try_parse_from(["bench"].iter().chain(&wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn wrong_flags_are_refused() {
        for line in [
            "--count 5 --duration 1s",
            "--json --csv",
            "--mix get=1 --command set",
            "--arrivals poisson",
            "--key-choice hot",
            "--value-size large",
            "--vs 127.0.0.1:1 --verify",
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
}
