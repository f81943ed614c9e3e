//! `quorate-lab export`: writes a recorded history for another checker.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use check::{Checker, Exported, History, Subject};
use clap::{Args, ValueEnum};

use crate::check::{name_of, read};

const EXIT_USAGE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  quorate-lab export --to porcupine history.jsonl.gz > operations.jsonl
  quorate-lab export --to knossos --key cart:17 history.jsonl --out history.edn
  quorate-lab export --to elle history.jsonl --out history.edn

docs/guide/checking.md says how to run each of these checkers.

Exit code: 0 written; 2 wrong usage, a file that cannot be read, or a history that the other checker cannot express.";

/// Write a recorded history for another checker: Porcupine, Knossos or Elle.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// A history as JSON lines, compressed or not; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The checker to write for
    #[arg(long, value_enum)]
    to: CheckerName,

    /// Only the operations of this key
    #[arg(long, conflicts_with = "lock")]
    key: Option<String>,

    /// Only the operations of this lock
    #[arg(long)]
    lock: Option<String>,

    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CheckerName {
    /// Lines of JSON, for tools/porcupine: keys, and locks with leases
    Porcupine,
    /// A Jepsen history of one key (cas-register) or one lock (mutex)
    Knossos,
    /// A Jepsen history of transactions (rw-register)
    Elle,
}

pub(crate) fn run(args: &ExportArgs) -> ExitCode {
    match export(args) {
        Ok(exported) => {
            let plural = if exported.operations == 1 { "" } else { "s" };
            eprintln!("{} operation{plural}", exported.operations);
            for (what, count) in exported.left_out {
                eprintln!("not checked by this checker: {what}, {count} times");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("quorate-lab export: {error:#}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn export(args: &ExportArgs) -> Result<Exported> {
    let mut history = read(&args.file)?;
    let name = name_of(&args.file);
    ensure!(history.answered() > 0, "{name}: no operation in it has an answer, so there is nothing to check");
    let checker = match args.to {
        CheckerName::Porcupine => Checker::Porcupine,
        CheckerName::Knossos => Checker::Knossos,
        CheckerName::Elle => Checker::Elle,
    };
    let only = subject(args, &mut history, checker).with_context(|| name.clone())?;
    let written = match &args.out {
        // If the history is refused, no file is created.
        Some(out) => {
            let mut bytes = BufWriter::new(Later { path: out, file: None });
            let exported = history.export(checker, only, &mut bytes);
            exported.and_then(|exported| Ok(bytes.flush().map(|()| exported)?))
        }
        None => {
            let mut bytes = BufWriter::new(io::stdout().lock());
            let exported = history.export(checker, only, &mut bytes);
            exported.and_then(|exported| Ok(bytes.flush().map(|()| exported)?))
        }
    };
    written.with_context(|| name)
}

/// Returns the requested key or lock. For a checker that needs one, defaults to the only one in the
/// history.
fn subject(args: &ExportArgs, history: &mut History, checker: Checker) -> Result<Option<Subject>> {
    let asked = match (&args.key, &args.lock) {
        (Some(key), _) => Some(Subject::Key(history.key(key.as_bytes()))),
        (None, Some(lock)) => Some(Subject::Lock(history.key(lock.as_bytes()))),
        (None, None) => None,
    };
    let subjects = history.subjects();
    if let Some(asked) = asked {
        ensure!(subjects.contains(&asked), "no operation in it concerns that");
        return Ok(Some(asked));
    }
    if checker == Checker::Knossos && subjects.len() > 1 {
        let (what, first) = match subjects.first() {
            Some(Subject::Lock(lock)) => ("--lock", *lock),
            Some(Subject::Key(key)) => ("--key", *key),
            None => bail!("it has no operation on a key or a lock"),
        };
        let first = history.key_bytes(first).escape_ascii();
        bail!(
            "Knossos checks one key or one lock at a time, and these are {}: choose one, for example with \
             {what} '{first}'",
            subjects.len()
        );
    }
    Ok(None)
}

/// A file that is created by the first write to it.
struct Later<'a> {
    path: &'a PathBuf,
    file: Option<File>,
}

impl io::Write for Later<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_none() {
            self.file = Some(File::create(self.path)?);
        }
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
