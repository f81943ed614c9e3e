//! `quorate check`: checks whether a recorded history is linearizable.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use check::transactions::Transactions;
use check::{History, Limits, Progress, Verdict, Window, linearizable_within};
use clap::Args;
use serde_json::json;

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

/// A check that takes longer than this shows its progress.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  quorate check history.jsonl
  quorate check history.jsonl --picture window.html
  quorate check lab-results/locks-quick/history/*.jsonl.gz

A history is one JSON object per line; docs/reference/histories.md shows them:
  {\"client\":1,\"operation\":\"set\",\"key\":\"a\",\"value\":\"v\",\"start\":10,\"end\":20,\"outcome\":\"ok\"}

Exit code: 0 every history is linearizable; 1 one is not, or it could not be decided in time; 2 wrong usage, or a
file that cannot be read or holds nothing to check.";

/// Check whether recorded histories are linearizable, and whether locks in them kept their promises.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Histories as JSON lines, compressed or not, each checked by itself; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Give up on a history after this long; its verdict is then unknown, never ok
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    timeout: Duration,

    /// Print one JSON object per file
    #[arg(long)]
    json: bool,

    /// The files hold transactions over several keys: check whether they are strictly serializable
    #[arg(long, conflicts_with = "picture")]
    transactions: bool,

    /// Draw the impossible window of a violation; the name ends in .svg or .html
    #[arg(long, value_name = "OUT", value_parser = parse_picture)]
    picture: Option<PathBuf>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn parse_picture(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "html") => Ok(path),
        _ => Err("a picture's name ends in .svg or .html".to_owned()),
    }
}

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    if args.picture.is_some() && args.files.len() > 1 {
        eprintln!("quorate check: --picture shows one history; give one file");
        return ExitCode::from(EXIT_USAGE);
    }
    let mut worst = 0;
    for file in &args.files {
        let checked = if args.transactions { check_transactions(args, file) } else { check_file(args, file) };
        let code = checked.unwrap_or_else(|error| {
            eprintln!("quorate check: {error:#}");
            EXIT_USAGE
        });
        worst = worst.max(code);
    }
    ExitCode::from(worst)
}

/// Checks one file and prints the result. Returns the exit code.
fn check_file(args: &CheckArgs, file: &Path) -> Result<u8> {
    let history = read(file)?;
    let (operations, name) = (history.operations().len(), name_of(file));
    ensure!(operations > 0, "{name}: it holds no operation, so there is nothing to check");
    ensure!(
        history.answered() > 0,
        "{name}: none of its {operations} operations has an answer (outcome \"ok\"), so there is nothing to check"
    );
    let started = Instant::now();
    let mut progress_line = ProgressLine::new(started, history.operations().len());
    // The search is limited by time only.
    let verdict = linearizable_within(&history, Limits { steps: u64::MAX }, |progress| {
        progress_line.show(progress);
        started.elapsed() >= args.timeout
    });
    progress_line.clear();
    let seconds = started.elapsed().as_secs_f64();

    if let (Verdict::Violation(window), Some(picture)) = (&verdict, &args.picture) {
        draw(&history, window, picture)?;
    }
    let text = match args.json {
        true => json_text(&history, &verdict, file, seconds),
        false => {
            let name = if args.files.len() > 1 { format!("{}: ", file.display()) } else { String::new() };
            name + &plain_text(&history, &verdict, seconds)
        }
    };
    writeln!(io::stdout().lock(), "{text}").context("cannot write to standard output")?;
    Ok(if matches!(verdict, Verdict::Ok { .. }) { 0 } else { EXIT_FAILED })
}

/// The same for a file of transactions.
fn check_transactions(args: &CheckArgs, file: &Path) -> Result<u8> {
    let (mut history, name) = (Transactions::default(), name_of(file));
    history.read(open(file)?).with_context(|| name.clone())?;
    let (all, answered) = (history.all.len(), history.answered());
    ensure!(
        answered > 0,
        "{name}: none of its {all} transactions has an answer, so there is nothing to check"
    );
    let started = Instant::now();
    let verdict = history.strictly_serializable();
    let seconds = started.elapsed().as_secs_f64();
    let text = match (args.json, &verdict) {
        (true, _) => {
            let words = verdict.as_ref().err().map(|violation| violation.words(&history));
            let name = if verdict.is_ok() { "ok" } else { "violation" };
            let file = file.display().to_string();
            let head = json!({ "file": file, "transactions": all, "seconds": seconds, "verdict": name });
            let mut object = head;
            if let Some(words) = words {
                object["violation"] = json!({ "sentence": words });
            }
            object.to_string()
        }
        (false, Ok(())) => format!("ok: {answered} transactions are strictly serializable ({seconds:.1} s)"),
        (false, Err(violation)) => format!("violation: {}", violation.words(&history)),
    };
    let name = if args.files.len() > 1 && !args.json { format!("{name}: ") } else { String::new() };
    writeln!(io::stdout().lock(), "{name}{text}").context("cannot write to standard output")?;
    Ok(if verdict.is_ok() { 0 } else { EXIT_FAILED })
}

pub(crate) fn read(file: &Path) -> Result<History> {
    let mut history = History::new();
    history.read(open(file)?).with_context(|| name_of(file))?;
    Ok(history)
}

fn open(file: &Path) -> Result<Box<dyn BufRead>> {
    if is_standard_input(file) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let input = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, input)))
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}

/// The name of a file in errors.
pub(crate) fn name_of(file: &Path) -> String {
    if is_standard_input(file) { "standard input".to_owned() } else { file.display().to_string() }
}

fn draw(history: &History, window: &Window, picture: &Path) -> Result<()> {
    let is_page = picture.extension().is_some_and(|extension| extension == "html");
    let drawn = if is_page { window.html(history) } else { window.svg(history) };
    std::fs::write(picture, drawn).with_context(|| format!("cannot write {}", picture.display()))
}

fn plain_text(history: &History, verdict: &Verdict, seconds: f64) -> String {
    let words = verdict.words(history);
    match verdict {
        Verdict::Ok { .. } => format!("ok: {words} ({seconds:.1} s)"),
        Verdict::Violation(_) => format!("violation: {words}"),
        Verdict::Unknown { .. } => format!("unknown: {words}; gave up after {seconds:.1} s, see --timeout"),
    }
}

fn json_text(history: &History, verdict: &Verdict, file: &Path, seconds: f64) -> String {
    let file = file.display().to_string();
    let total = history.operations().len();
    let mut object =
        json!({ "file": file, "operations": total, "clients": history.clients(), "seconds": seconds });
    let (name, details) = match verdict {
        Verdict::Ok { keys, locks, .. } => ("ok", json!({ "keys": keys, "locks": locks })),
        Verdict::Violation(window) => {
            let all = |ids: &[check::OperationId]| ids.iter().map(|id| history.json(*id)).collect::<Vec<_>>();
            let details = json!({
                "sentence": window.sentence(history),
                "culprit": history.json(window.culprit),
                "window": all(&window.operations),
                "origins": all(&window.origins),
                "from_any": window.is_from_any,
            });
            ("violation", details)
        }
        Verdict::Unknown { key } => {
            ("unknown", json!({ "key": history.key_bytes(*key).escape_ascii().to_string() }))
        }
    };
    object["verdict"] = json!(name);
    object[name] = details;
    object.to_string()
}

/// A line on a terminal that is rewritten in place.
struct ProgressLine {
    next: Instant,
    is_shown: bool,
    total: usize,
    is_terminal: bool,
}

impl ProgressLine {
    fn new(started: Instant, total: usize) -> ProgressLine {
        let is_terminal = io::stderr().is_terminal();
        ProgressLine { next: started + PROGRESS_AFTER, is_shown: false, total, is_terminal }
    }

    fn show(&mut self, progress: Progress) {
        if self.is_terminal && Instant::now() >= self.next {
            self.next = Instant::now() + PROGRESS_EVERY;
            self.is_shown = true;
            eprint!(
                "\r{} of {} operations checked, {} keys done",
                progress.operations, self.total, progress.keys
            );
        }
    }

    fn clear(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}
