//! `quorate sim`: replays a seed, or searches many.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use serde_json::json;
use sim::{Class, Part, Protocol, Report, Settings, Totals};

const EXAMPLES: &str = "\
Examples:
  quorate sim --minutes 10                          search for faults in all protocols
  quorate sim --minutes 1 --protocol abd            in one protocol
  quorate sim --seed 7                              replay a run
  quorate sim --seed 7 --shrink                     remove what it does not need to fail
  quorate sim --seed 7 --without 3,5,loss --trace   replay what is left, line by line

A seed always gives the same run, byte for byte, in one version of the program. --without takes the numbers of faults,
as --seed prints them, or kinds of background: clock-drift, loss, duplication, reordering, delay, stale-delivery,
full-output, slow-reader, held-back, impatient-client, missing-minority. Exit codes: 0 all promises held, 1 one did not, 2 wrong usage.";

/// Run whole clusters in a simulated world, with faults, and check the replies that clients got.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["seed", "minutes", "runs"])))]
pub(crate) struct SimArgs {
    /// Replay this seed; with --minutes or --runs, begin with it
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Search for this many minutes, or until a run fails
    #[arg(long, value_name = "M", value_parser = minutes)]
    minutes: Option<Duration>,

    /// Search this many runs, or until one fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,

    /// Only this protocol: leader-follower, abd, blocking or consensus
    #[arg(long, value_name = "P", value_parser = protocol)]
    protocol: Option<Protocol>,

    /// Every keyspace of consensus keeps its values as fragments
    #[arg(long)]
    coded: bool,

    /// Every keyspace of consensus or leader-follower that does not keep fragments keeps its values on the disk
    #[arg(long)]
    spilled: bool,

    /// Many writes are too long for one record, and are sent in parts
    #[arg(long)]
    long: bool,

    /// There are clients that keep what they read
    #[arg(long)]
    tracking: bool,

    /// Every keyspace has a bound on memory, which it reaches
    #[arg(long)]
    bounded: bool,
    /// There are clients that read all changes of a keyspace
    #[arg(long)]
    changes: bool,
    /// Clients make transactions over several keyspaces and shards, where these can
    #[arg(long)]
    across: bool,
    /// There are clients that make backups, which are restored into another cluster at the end
    #[arg(long)]
    backup: bool,
    /// Nodes have the programs of two releases
    #[arg(long)]
    releases: bool,
    /// At the end a majority of the control nodes is lost, and the cluster is recovered from the others' folders
    #[arg(long)]
    recovery: bool,
    /// Nothing goes wrong but that nodes have long turns: no leader may change
    #[arg(long)]
    busy: bool,
    /// In each run nodes are told to stop, drained, and told to lead
    #[arg(long)]
    handovers: bool,

    /// Leave out these faults
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = part)]
    without: Vec<Part>,

    /// At most this many clients
    #[arg(long, value_name = "N", value_parser = clients)]
    clients: Option<usize>,

    /// Heal after this many milliseconds of simulated time
    #[arg(long, value_name = "MS")]
    length_ms: Option<u64>,

    /// If the run fails, shrink it to what is needed for the failure
    #[arg(long)]
    shrink: bool,

    /// Print everything that happens in a run
    #[arg(long, conflicts_with = "json")]
    trace: bool,

    /// Draw the operations that are impossible, as SVG
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    let length = Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())?;
    if length.is_zero() { Err("it must be more than 0".to_string()) } else { Ok(length) }
}

fn clients(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_string()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

fn protocol(text: &str) -> Result<Protocol, String> {
    let protocol: Protocol = text.parse()?;
    protocol.check()?;
    Ok(protocol)
}

fn part(text: &str) -> Result<Part, String> {
    text.parse()
}

/// Lines of the story that are printed around a failure.
const LINES_MAX: usize = 60;

/// The maximum number of runs for shrinking.
const SHRINK_RUNS_MAX: u64 = 1000;

pub(crate) fn run(args: &SimArgs) -> ExitCode {
    match simulate(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("quorate sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(args: &SimArgs) -> Result<ExitCode> {
    // A node that finds a broken invariant panics; the report prints that, once, with the run's story.
    std::panic::set_hook(Box::new(|_| {}));
    let settings = Settings {
        protocol: args.protocol,
        coded: args.coded,
        spilled: args.spilled,
        long: args.long,
        tracking: args.tracking,
        bounded: args.bounded,
        changes: args.changes,
        releases: args.releases,
        across: args.across,
        backup: args.backup,
        recovery: args.recovery,
        busy: args.busy,
        handovers: args.handovers,
        without: args.without.iter().copied().collect::<BTreeSet<Part>>(),
        clients_max: args.clients,
        length_ms_max: args.length_ms,
        ..Settings::default()
    };
    let searches = args.minutes.is_some() || args.runs.is_some();
    let mut search = Search::new(args);
    let first = args.seed.unwrap_or_else(|| getrandom::u32().unwrap_or(1).into());
    for seed in first.. {
        let report = sim::run(seed, &settings, args.trace && !searches);
        search.add(&report);
        if report.failure.is_some() {
            search.end_progress();
            return finish(args, &settings, &search, report);
        }
        if !searches {
            return finish(args, &settings, &search, report);
        }
        if search.is_over() {
            break;
        }
    }
    search.end_progress();
    if let Some(nothing) = search.found_nothing() {
        bail!(nothing);
    }
    if args.json {
        println!("{}", json!({ "ok": true, "first_seed": first, "totals": totals_json(&search) }));
    } else {
        print!("{}", summary(&search));
        println!("ok: {} runs from seed {first} on kept every promise", search.totals.runs);
    }
    Ok(ExitCode::SUCCESS)
}

/// A search in progress. Holds the simulator's only real clock, which decides when to stop, and nothing else.
struct Search {
    totals: Totals,
    started: Instant,
    until: Option<Duration>,
    runs_max: u64,
    shows_progress: bool,
    shown: Option<Instant>,
}

impl Search {
    fn new(args: &SimArgs) -> Search {
        let searches = args.minutes.is_some() || args.runs.is_some();
        Search {
            totals: Totals::default(),
            started: Instant::now(),
            until: args.minutes,
            runs_max: args.runs.unwrap_or(u64::MAX),
            shows_progress: searches && !args.json && std::io::stderr().is_terminal(),
            shown: None,
        }
    }

    fn add(&mut self, report: &Report) {
        self.totals.add(report);
        const SHOW_EVERY: Duration = Duration::from_millis(500);
        if self.shows_progress && self.shown.is_none_or(|shown| shown.elapsed() >= SHOW_EVERY) {
            self.shown = Some(Instant::now());
            let (runs, hours) = (self.totals.runs, self.hours());
            let checked = self.totals.checked();
            eprint!("\r{runs} runs, {hours:.2} simulated hours, {checked} operations checked ");
            // A failure to show progress is ignored.
            let _ = std::io::stderr().flush();
        }
    }

    fn end_progress(&mut self) {
        if self.shown.take().is_some() {
            eprintln!();
        }
    }

    fn is_over(&self) -> bool {
        self.totals.runs >= self.runs_max || self.until.is_some_and(|until| self.started.elapsed() >= until)
    }

    /// Returns why the search proves nothing, if no client got a reply that a promise is about.
    fn found_nothing(&self) -> Option<String> {
        let done: u64 = self.totals.seen.values().map(|seen| seen.done).sum();
        let (runs, operations) = (self.totals.runs, self.totals.operations());
        (done == 0).then(|| {
            format!("nothing was checked: of {operations} operations in {runs} runs none was done, so no promise was tested")
        })
    }

    fn hours(&self) -> f64 {
        self.totals.simulated_us as f64 / 3.6e9
    }

    /// Simulated seconds per second of this process, which has one thread.
    fn speed(&self) -> f64 {
        self.totals.simulated_us as f64 / 1e6 / self.started.elapsed().as_secs_f64().max(1e-6)
    }
}

fn summary(search: &Search) -> String {
    let totals = &search.totals;
    // Writing to a string does not fail.
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} runs, {:.2} simulated hours ({:.0} simulated seconds per second), {} operations, {} checked, \
         {} turns, {} messages between nodes",
        totals.runs,
        search.hours(),
        search.speed(),
        totals.operations(),
        totals.checked(),
        totals.turns,
        totals.frames
    );
    for (protocol, seen) in &totals.seen {
        let _ = writeln!(
            text,
            "  {protocol}: {} keyspaces, {} operations: {} done, {} refused, {} unknown; {} checked; \
             {} acknowledged writes lost where that is allowed",
            seen.keyspaces,
            seen.operations,
            seen.done,
            seen.refused,
            seen.unknown,
            seen.checked,
            seen.lost_acknowledged
        );
    }
    let counts = Class::ALL.into_iter().filter(|class| totals.counts.of(*class) > 0);
    let counts: Vec<String> =
        counts.map(|class| format!("{} {}", totals.counts.of(class), class.name())).collect();
    let _ = writeln!(text, "  faults: {}", if counts.is_empty() { "none".into() } else { counts.join(", ") });
    text
}

fn totals_json(search: &Search) -> serde_json::Value {
    let totals = &search.totals;
    let faults: serde_json::Map<String, serde_json::Value> = Class::ALL
        .into_iter()
        .map(|class| (class.name().to_string(), totals.counts.of(class).into()))
        .collect();
    let protocols: serde_json::Map<String, serde_json::Value> = totals
        .seen
        .iter()
        .map(|(protocol, seen)| {
            let value = json!({
                "keyspaces": seen.keyspaces,
                "operations": seen.operations,
                "done": seen.done,
                "refused": seen.refused,
                "unknown": seen.unknown,
                "checked": seen.checked,
                "lost_acknowledged": seen.lost_acknowledged,
            });
            (protocol.name().to_string(), value)
        })
        .collect();
    json!({
        "runs": totals.runs,
        "simulated_seconds": totals.simulated_us as f64 / 1e6,
        "simulated_seconds_per_second": search.speed(),
        "operations": totals.operations(),
        "checked": totals.checked(),
        "turns": totals.turns,
        "messages": totals.frames,
        "protocols": protocols,
        "faults": faults,
    })
}

/// Reports one run: the requested one, or the one that failed.
fn finish(args: &SimArgs, settings: &Settings, search: &Search, mut report: Report) -> Result<ExitCode> {
    let (mut settings, seed) = (settings.clone(), report.seed);
    if report.failure.is_some() {
        if args.shrink {
            settings = shrunk(args, settings, seed);
        }
        // Run again, to record its story.
        report = sim::run(seed, &settings, true);
    }
    if let (Some(path), Some(picture)) =
        (&args.picture, report.failure.as_ref().and_then(|failure| failure.picture.as_ref()))
    {
        std::fs::write(path, picture).with_context(|| path.display().to_string())?;
    }
    if let Some(nothing) = search.found_nothing().filter(|_| report.failure.is_none()) {
        bail!(nothing);
    }
    match args.json {
        true => println!("{}", report_json(&settings, search, &report)),
        false => tell(args, &settings, search, &report),
    }
    Ok(if report.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn shrunk(args: &SimArgs, settings: Settings, seed: u64) -> Settings {
    let shows_progress = !args.json && std::io::stderr().is_terminal();
    let progress = |runs, parts| {
        if shows_progress {
            eprint!("\rshrinking: {runs} runs, {parts} faults left ");
            let _ = std::io::stderr().flush();
        }
    };
    let shrunk = sim::shrink(seed, &settings, SHRINK_RUNS_MAX, progress);
    if shows_progress {
        eprintln!();
    }
    shrunk.map_or(settings, |shrunk| shrunk.settings)
}

fn tell(args: &SimArgs, settings: &Settings, search: &Search, report: &Report) {
    if args.trace {
        report.lines.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {}: {}", report.seed, report.scenario.join("\n  "));
    print!("{}", summary(search));
    println!("digest {:016x}, {:.3} simulated seconds", report.digest, report.simulated_us as f64 / 1e6);
    let Some(failure) = &report.failure else {
        return println!("ok: it kept every promise");
    };
    if !args.trace {
        let lines = report.lines_around_failure(LINES_MAX);
        println!("The {} steps around the failure, in milliseconds (-> is sent, => arrives):", lines.len());
        lines.iter().for_each(|line| println!("{line}"));
    }
    println!("FAILED ({}): {}", failure.broken.name(), failure.words);
    println!("Replay it with: {}", settings.command(report.seed));
}

fn report_json(settings: &Settings, search: &Search, report: &Report) -> serde_json::Value {
    let failure = report.failure.as_ref().map(|failure| {
        let lines: Vec<String> =
            report.lines_around_failure(LINES_MAX).iter().map(|line| line.to_string()).collect();
        json!({
            "broken": failure.broken.name(),
            "words": failure.words,
            "from_us": failure.window_us.0,
            "to_us": failure.window_us.1,
            "steps": lines,
        })
    });
    json!({
        "ok": failure.is_none(),
        "seed": report.seed,
        "digest": format!("{:016x}", report.digest),
        "replay": settings.command(report.seed),
        "scenario": report.scenario,
        "failure": failure,
        "totals": totals_json(search),
    })
}
