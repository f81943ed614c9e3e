//! `--verify`: the load generator records every operation of the measured run; each history is checked and stored.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use check::{History, Limits, Verdict, linearizable_within};

/// The time limit for checking one history. Beyond it the verdict is unknown, never ok.
const CHECK_WITHIN: Duration = Duration::from_secs(30);

/// The result of checking a point's histories.
#[derive(Debug)]
pub(crate) struct Checked {
    /// How many operations were checked.
    pub(crate) operations: u64,
    /// The worst of the verdicts: `ok`, `unknown` or `violation`.
    pub(crate) verdict: &'static str,
    /// The compressed history files.
    pub(crate) files: Vec<PathBuf>,
    /// The first history that is not known to be linearizable: its file, and why.
    pub(crate) wrong: Option<(PathBuf, String)>,
}

/// Checks a history, which is stored in this file, and adds the result to that of earlier ones.
pub(crate) fn check(history: &History, file: PathBuf, before: Option<Checked>) -> Checked {
    let by = Instant::now() + CHECK_WITHIN;
    // Only the time limits the search.
    let verdict = linearizable_within(history, Limits { steps: u64::MAX }, |_| Instant::now() > by);
    let words = verdict.words(history);
    let (operations, verdict, words) = match verdict {
        // A check of no operations shows nothing.
        _ if history.answered() == 0 => {
            (0, "unknown", Some("no operation has an answer, so nothing could be checked".to_owned()))
        }
        Verdict::Ok { .. } => (history.operations().len() as u64, "ok", None),
        Verdict::Unknown { .. } => (history.operations().len() as u64, "unknown", Some(words)),
        Verdict::Violation(_) => (history.operations().len() as u64, "violation", Some(words)),
    };
    let wrong = words.map(|words| (file.clone(), words));
    let found = Checked { operations, verdict, files: vec![file], wrong };
    let Some(mut before) = before else { return found };
    let is_worse = found.verdict == "violation" || before.verdict == "ok";
    let operations = found.operations + before.operations;
    before.files.extend(found.files);
    let (verdict, wrong) =
        if is_worse { (found.verdict, found.wrong) } else { (before.verdict, before.wrong) };
    Checked { operations, verdict, files: before.files, wrong }
}

/// Writes a history, compressed.
pub(crate) fn keep(history: &History, file: &Path) -> Result<()> {
    let write = || -> std::io::Result<()> { history.write_compressed(File::create(file)?) };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use check::{Action, Answer, Outcome};

    use super::*;

    /// A write, and a subsequent read of the written value or of nothing.
    fn history(is_read: bool) -> History {
        let mut history = History::new();
        let (key, value) = (history.key(b"k"), history.value(b"v"));
        let write = history.begin(1, key, Action::Set(value), 0);
        history.end(write, 1, Outcome::Ok(Answer::Done));
        let read = history.begin(1, key, Action::Get, 2);
        history.end(read, 3, Outcome::Ok(Answer::Value(is_read.then_some(value))));
        history
    }

    fn checked(history: &History, name: &str, before: Option<Checked>) -> Checked {
        check(history, PathBuf::from(name), before)
    }

    #[test]
    fn a_history_without_answers_is_not_ok() {
        let nothing = checked(&History::new(), "empty", None);
        assert_eq!((nothing.operations, nothing.verdict), (0, "unknown"));
        let mut unknown = History::new();
        let (key, value) = (unknown.key(b"k"), unknown.value(b"v"));
        unknown.begin(1, key, Action::Set(value), 0);
        assert_eq!(checked(&unknown, "unknown", None).verdict, "unknown");
    }

    #[test]
    fn a_violation_outweighs_sound_histories_before_and_after_it() {
        let first = checked(&history(true), "first", None);
        assert_eq!((first.operations, first.verdict), (2, "ok"));
        let second = checked(&history(false), "second", Some(first));
        assert_eq!((second.operations, second.verdict), (4, "violation"));
        let third = checked(&history(true), "third", Some(second));
        assert_eq!((third.operations, third.verdict), (6, "violation"));
        assert_eq!(third.files, ["first", "second", "third"].map(PathBuf::from));
        let (file, words) = third.wrong.unwrap();
        assert!(file == Path::new("second") && words.contains("key 'k'"), "{words}");
    }
}
