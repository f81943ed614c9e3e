//! `--verify`: the load generator writes down every operation of the measured run, and each history is checked.

use std::time::{Duration, Instant};

use check::{History, Limits, Verdict, linearizable_within};

/// How long the check of one history may take. What takes longer is unknown, never ok.
const CHECK_WITHIN: Duration = Duration::from_secs(30);

/// What the check of a point's histories said.
#[derive(Debug)]
pub(super) struct Checked {
    /// How many operations were looked at.
    pub(super) operations: u64,
    /// The worst of the verdicts: `ok`, `unknown` or `violation`.
    pub(super) verdict: &'static str,
    /// The first history that is not known to be linearizable, and why.
    pub(super) wrong: Option<(History, String)>,
}

/// Checks a history and adds what is found to what was found before.
pub(super) fn check(history: History, before: Option<Checked>) -> Checked {
    let by = Instant::now() + CHECK_WITHIN;
    // The time alone limits the search.
    let verdict = linearizable_within(&history, Limits { steps: u64::MAX }, |_| Instant::now() > by);
    let operations = history.operations().len() as u64;
    let words = verdict.words(&history);
    let found = match verdict {
        // A check of nothing says nothing.
        _ if history.answered() == 0 => {
            let words = "no operation has an answer, so nothing could be checked".to_owned();
            Checked { operations: 0, verdict: "unknown", wrong: Some((history, words)) }
        }
        Verdict::Ok { .. } => Checked { operations, verdict: "ok", wrong: None },
        Verdict::Unknown { .. } => Checked { operations, verdict: "unknown", wrong: Some((history, words)) },
        Verdict::Violation(_) => Checked { operations, verdict: "violation", wrong: Some((history, words)) },
    };
    let Some(before) = before else { return found };
    let is_worse = found.verdict == "violation" || before.verdict == "ok";
    let (worse, other) = if is_worse { (found, before) } else { (before, found) };
    Checked { operations: worse.operations + other.operations, ..worse }
}

#[cfg(test)]
mod tests {
    use check::{Action, Answer, Outcome};

    use super::*;

    /// A write and a read behind it of what was written, or of nothing.
    fn history(is_read: bool) -> History {
        let mut history = History::new();
        let (key, value) = (history.key(b"k"), history.value(b"v"));
        let write = history.begin(1, key, Action::Set(value), 0);
        history.end(write, 1, Outcome::Ok(Answer::Done));
        let read = history.begin(1, key, Action::Get, 2);
        history.end(read, 3, Outcome::Ok(Answer::Value(is_read.then_some(value))));
        history
    }

    #[test]
    fn a_history_without_answers_is_not_ok() {
        let checked = check(History::new(), None);
        assert_eq!((checked.operations, checked.verdict), (0, "unknown"));
        let mut unknown = History::new();
        let (key, value) = (unknown.key(b"k"), unknown.value(b"v"));
        unknown.begin(1, key, Action::Set(value), 0);
        assert_eq!(check(unknown, None).verdict, "unknown");
    }

    #[test]
    fn a_violation_outweighs_what_is_sound_before_and_after_it() {
        let checked = check(history(true), None);
        assert_eq!((checked.operations, checked.verdict), (2, "ok"));
        let checked = check(history(false), Some(checked));
        assert_eq!((checked.operations, checked.verdict), (4, "violation"));
        let checked = check(history(true), Some(checked));
        assert_eq!((checked.operations, checked.verdict), (6, "violation"));
        assert!(checked.wrong.is_some_and(|(_, words)| words.contains("\"k\"") || words.contains('k')));
    }
}
