//! Studies: reproduces published ones, and compares results.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use ::lab::harness::{Judged, Note, Plan, Scale, Steal, Study, stop_on_signals};
use ::lab::studies;
use ::lab::systems::{Children, PaperStore};
use ::lab::{Outcome, Sweep};
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use serde_json::json;

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

const RUN_EXAMPLES: &str = "\
Examples:
  quorate lab run leader-follower --quick --verify
  quorate lab run leader-follower --full --with-paper-store --dir results/today

The folder gets raw.csv, summary.csv, nodes.csv, machine.json, run.json, every figure as SVG and PNG, and report.html,
which begins with the study's claims and what was found about each. Ctrl-C stops everything that was started; the same
command continues where it was interrupted. A system that is not installed is skipped, and the report says so.

Exit code: 0 done; 1 something could not be measured, or an answer was wrong; 2 wrong usage.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  quorate lab compare before after
  quorate lab compare before after --measure per_s --measure p99_ms
  quorate lab compare before after --report both.html

A star marks a ratio that is more than noise: all repeats of one side are above all repeats of the other.";

/// Reproduce a study, compare two results, or shape a network.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List the studies
    List,
    /// Run a study and write its report
    Run(RunArgs),
    /// Compare two results of one study
    Compare(CompareArgs),
    /// Relay TCP between servers, as a network with chosen delays, losses and bandwidths
    Relay(::lab::network::RelayArgs),
    /// Run a program that ends with this process's parent (the lab starts what it measures in this way)
    #[command(hide = true)]
    Hold(HoldArgs),
}

#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Which study; `quorate lab list` shows them
    study: String,

    /// A few points: two to five minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// All points of the study
    #[arg(long)]
    full: bool,

    /// Record the history of every run and check that it is linearizable
    #[arg(long)]
    verify: bool,

    /// Folder for the results [default: lab-results/STUDY-quick or -full]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Install the study's own store (Python packages, into a virtual environment) and measure it too
    #[arg(long)]
    with_paper_store: bool,

    /// Install the clients of the study of locks (Python packages, into a virtual environment)
    #[arg(long)]
    with_lock_clients: bool,

    /// Print claims and medians as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    /// A folder written by `quorate lab run`
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Another one, of the same study
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Compare only this measure; repeat it for several [default: throughput and latencies]
    #[arg(long = "measure", value_name = "NAME")]
    measures: Vec<String>,

    /// Compare a run with --verify and one without, though recording costs time
    #[arg(long)]
    mixed: bool,

    /// Also write an HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    parent: u32,
    program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the command that the command line names.
pub(crate) fn run(command: LabCommand) -> ExitCode {
    let done = match command {
        LabCommand::List => list(),
        LabCommand::Run(args) => return run_study(&args),
        LabCommand::Compare(args) => compare(&args),
        LabCommand::Relay(args) => return ::lab::network::relay(&args),
        LabCommand::Hold(args) => {
            let error = ::lab::systems::hold(args.parent, &args.program, &args.arguments);
            Err(error).with_context(|| format!("cannot start {}", args.program.display()))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quorate lab: {error:#}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn list() -> Result<()> {
    for study in studies::ALL {
        println!("{}\n  {}\n  varies: {}", study.name(), study.title(), study.varies());
        if let Some(paper) = study.paper() {
            println!("  after: {} ({})", paper.title, paper.authors);
        }
        println!();
    }
    println!("run one with: quorate lab run NAME [--quick | --full] [--verify]");
    Ok(())
}

fn run_study(args: &RunArgs) -> ExitCode {
    let Some(study) = studies::find(&args.study) else {
        let names: Vec<&str> = studies::ALL.iter().map(|study| study.name()).collect();
        eprintln!("quorate lab: there is no study '{}'; there are: {}", args.study, names.join(", "));
        return ExitCode::from(EXIT_USAGE);
    };
    match sweep(study, args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(error) => {
            eprintln!("quorate lab: {error:#}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Runs a study. Returns whether everything was measured and every answer was right.
fn sweep(study: &'static dyn Study, args: &RunArgs) -> Result<bool> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let quorate = program.with_file_name("quorate");
    ensure!(
        quorate.is_file(),
        "there is no {}, the server to measure: build it with `cargo build --release`",
        quorate.display()
    );
    let scale = if args.full { Scale::Full } else { Scale::Quick };
    let default_folder = || format!("lab-results/{}-{}", study.name(), scale.pick("quick", "full")).into();
    let folder: PathBuf = args.dir.clone().unwrap_or_else(default_folder);
    let children = Children::new(Some(program));
    // From here on a signal leaves no process running.
    stop_on_signals(children.clone())?;
    if args.with_paper_store {
        PaperStore::new().install(&mut |step| eprintln!("{step}"))?;
    }
    if args.with_lock_clients {
        studies::LockClients::new().install(&mut |step| eprintln!("{step}"))?;
    }
    let plan = Plan { scale, verify: args.verify, quorate };
    let outcome = Sweep { study, plan, folder: folder.clone(), children }.run()?;
    if args.json {
        println!("{:#}", to_json(study, &outcome));
    } else {
        print!("{}", claims_text(&outcome.claims, study.paper().is_some()));
        print!("{}", soundness_text(args.verify, &outcome));
        println!("report: {}", folder.join("report.html").display());
    }
    Ok(outcome.is_sound())
}

fn to_json(study: &dyn Study, outcome: &Outcome) -> serde_json::Value {
    let results = &outcome.results;
    let medians: Vec<serde_json::Value> = results
        .summary()
        .into_iter()
        .map(|(arm, point, measure, spread)| {
            let point: serde_json::Map<String, serde_json::Value> =
                results.parameters().iter().cloned().zip(point.iter().map(|value| json!(value))).collect();
            json!({"arm": arm, "point": point, "measure": measure, "median": spread.median, "min": spread.min,
                   "max": spread.max, "repeats": spread.count})
        })
        .collect();
    let (checked, wrong) = results.checked();
    json!({"study": study.name(), "claims": outcome.claims, "notes": outcome.notes, "operations_checked": checked,
           "histories_not_ok": wrong.len(), "medians": medians})
}

/// Formats the claims for a terminal: each with the paper's figure or the requirement, our figure,
/// and the verdict.
fn claims_text(claims: &[Judged], is_of_paper: bool) -> String {
    let mut text = String::new();
    let asked = if is_of_paper { "paper:" } else { "asked:" };
    for (number, judged) in (1..).zip(claims) {
        let judgement = &judged.judgement;
        text.push_str(&format!("{number}. {}\n", judged.claim));
        text.push_str(&format!("   {asked}  {}\n", judged.paper));
        if !judgement.ours.is_empty() {
            text.push_str(&format!("   here:   {}\n", judgement.ours));
        }
        text.push_str(&format!("   {}: {}\n\n", judgement.verdict.words().to_uppercase(), judgement.why));
    }
    text
}

fn soundness_text(verify: bool, outcome: &Outcome) -> String {
    let mut text = String::new();
    if verify {
        let (operations, wrong) = outcome.results.checked();
        text.push_str(&match wrong.len() {
            0 if operations == 0 => {
                "checked: nothing; this study has recorded no history, so nothing is known\n".to_owned()
            }
            0 => format!("checked: {operations} operations, all linearizable\n"),
            wrong => format!(
                "checked: {operations} operations; {wrong} histories are not known to be linearizable\n"
            ),
        });
    }
    if let Some(warning) = Steal::of(&outcome.results).and_then(|steal| steal.warning()) {
        text.push_str(&format!("disturbed: {warning}\n"));
    }
    for Note { arm, point, kind, text: why } in &outcome.notes {
        let point = if point.is_empty() { String::new() } else { format!(", {point}") };
        text.push_str(&format!("{kind}: {arm}{point}: {why}\n"));
    }
    text
}

/// The measures that are compared by default, if the study has them.
const USUAL_MEASURES: [&str; 3] = ["per_s", "p50_ms", "p95_ms"];

fn compare(args: &CompareArgs) -> Result<()> {
    let usual = USUAL_MEASURES.map(str::to_owned);
    let measures = if args.measures.is_empty() { &usual[..] } else { &args.measures };
    let find = |name: &str| studies::find(name);
    let mut comparison = ::lab::report::compare([&args.a, &args.b], measures, args.mixed, find)?;
    if comparison.is_empty() && args.measures.is_empty() {
        comparison = ::lab::report::compare([&args.a, &args.b], &[], args.mixed, find)?;
    }
    if let Some(file) = &args.report {
        std::fs::write(file, comparison.to_html())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if args.json {
        println!("{:#}", comparison.to_json());
    } else {
        print!("{comparison}");
    }
    Ok(())
}
