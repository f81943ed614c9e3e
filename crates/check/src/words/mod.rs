//! Describes a window in words.

mod locks;

use std::fmt::Write as _;

use crate::history::{Action, Answer, History, Operation, OperationId, Outcome, Value};
use crate::window::Window;

/// Longer keys and values are cut off in texts.
const SHOWN_BYTES_MAX: usize = 40;

/// The number of writes of one value that are mentioned.
const ORIGINS_MAX: usize = 3;

impl Window {
    /// Returns a sentence that states what is impossible and why, followed by the operations.
    pub fn words(&self, history: &History) -> String {
        let mut text = self.sentence(history);
        if self.operations.len() > 1 {
            let before = if self.is_from_any { ", whatever the key held before" } else { "" };
            let count = self.operations.len();
            let claim = match self.breach {
                None => format!("No order of these {count} operations explains their answers{before}"),
                Some(_) => format!("These {count} operations cannot all have been answered so"),
            };
            let _ = write!(text, "\n{claim}:");
            let names: Vec<String> = self
                .operations
                .iter()
                .map(|id| format!("client {}", history.operation(*id).client))
                .collect();
            let name_width = names.iter().map(String::len).max().unwrap_or(0);
            for (id, name) in self.operations.iter().zip(names) {
                let operation = history.operation(*id);
                let (interval, described) = (interval(history, operation), described(history, *id));
                let _ = write!(text, "\n  {name:name_width$}  {described}  ({interval})");
            }
        }
        for (origin, id) in self.origins.iter().take(ORIGINS_MAX).map(|id| (history.operation(*id), id)) {
            let place = if self.is_before(history, *id) { ", before these" } else { "" };
            let (named, interval) = (named(history, origin), interval(history, origin));
            let _ = write!(text, "\n{named}{place}: {interval}");
        }
        if let Some(more) = self.origins.len().checked_sub(ORIGINS_MAX + 1) {
            let _ = write!(text, "\n... and {} more writes of values that were read here", more + 1);
        }
        text.push_str("\nTimes count from the start of the history's first operation.");
        text
    }

    /// Returns one sentence that states what is impossible and why.
    pub fn sentence(&self, history: &History) -> String {
        if let Some(breach) = &self.breach {
            return locks::sentence(self, breach, history);
        }
        let culprit = history.operation(self.culprit);
        let key = quoted(history.key_bytes(culprit.key));
        let mut text = format!(
            "key {key} is not linearizable: client {}'s {} ({}), ",
            culprit.client,
            described(history, self.culprit),
            interval(history, culprit)
        );
        let others: Vec<OperationId> =
            self.operations.iter().copied().filter(|id| *id != self.culprit).collect();
        if others.is_empty() {
            text.push_str(match (culprit.action, culprit.outcome) {
                (Action::Get | Action::GetAndSet(_), Outcome::Ok(Answer::Value(Some(_))))
                    if self.origins.is_empty() =>
                {
                    "which nobody had written"
                }
                _ => "which nothing that was done before explains",
            });
            return text;
        }
        text.push_str("although ");
        for (index, id) in others.iter().enumerate() {
            let other = history.operation(*id);
            let link = match index {
                0 => "",
                _ if index + 1 == others.len() => " and ",
                _ => ", ",
            };
            let when = match other.end.and_then(|end| culprit.start.checked_sub(end)).filter(|gap| *gap > 0) {
                Some(gap) => format!("had ended {} before that began", duration(gap)),
                None => "ran at the same time".to_owned(),
            };
            let _ = write!(text, "{link}client {}'s {} {when}", other.client, claimed(history, *id));
        }
        text
    }

    /// Whether an operation had ended when the window began.
    fn is_before(&self, history: &History, id: OperationId) -> bool {
        let first = self.operations.iter().map(|id| history.operation(*id).start).min();
        let operation = history.operation(id);
        operation.outcome != Outcome::Unknown
            && operation.end.zip(first).is_some_and(|(end, first)| end < first)
    }
}

/// Describes an operation with its answer: "get returned 'v'".
pub(crate) fn described(history: &History, id: OperationId) -> String {
    let (operation, asked) = (history.operation(id), asked(history, id));
    match operation.outcome {
        Outcome::Ok(answer) => format!("{asked} {}", answered(history, operation.action, answer)),
        Outcome::Failed if history.fence(id).is_some_and(|fence| fence.is_refused) => {
            format!("{asked} was refused by the fence")
        }
        Outcome::Failed => format!("{asked} was refused"),
        Outcome::Unknown => format!("{asked} had an unknown outcome"),
    }
}

/// Describes the same as the subject of a clause: "get, which returned 'v',".
fn claimed(history: &History, id: OperationId) -> String {
    let (operation, asked) = (history.operation(id), asked(history, id));
    match operation.outcome {
        Outcome::Ok(Answer::Done) | Outcome::Failed | Outcome::Unknown => asked,
        Outcome::Ok(answer) => format!("{asked}, which {},", answered(history, operation.action, answer)),
    }
}

/// Describes a write and its client: "'v' was written by client 1 (set)".
fn named(history: &History, origin: &Operation) -> String {
    let value = origin.action.stores().map_or_else(String::new, |value| shown(history, Some(value)));
    let unknown = if origin.outcome == Outcome::Unknown { ", outcome unknown" } else { "" };
    format!("{value} was written by client {} ({}{unknown})", origin.client, origin.action.name())
}

fn asked(history: &History, id: OperationId) -> String {
    let action = history.operation(id).action;
    let name = action.name();
    let asked = match action {
        Action::Get | Action::Delete => name.to_owned(),
        Action::Increment(delta) => format!("{name} by {delta}"),
        Action::Set(value) | Action::SetIfAbsent(value) => {
            format!("{name} of {}", shown(history, Some(value)))
        }
        Action::GetAndSet(value) => format!("{name} of {}", shown(history, Some(value))),
        Action::CompareAndSet { expected, value } => {
            format!("{name} from {} to {}", shown(history, expected), shown(history, Some(value)))
        }
        Action::Lock(action) => locks::asked(history, action),
    };
    match history.fence(id) {
        Some(fence) => {
            format!("{asked} with token {} of lock {}", fence.token, quoted(history.key_bytes(fence.lock)))
        }
        None => asked,
    }
}

fn answered(history: &History, action: Action, answer: Answer) -> String {
    match (action, answer) {
        (_, Answer::Done) => "was acknowledged".to_owned(),
        (_, Answer::Value(value)) => format!("returned {}", shown(history, value)),
        (Action::Delete, Answer::Applied(true)) => "removed a value".to_owned(),
        (Action::Delete, Answer::Applied(false)) => "found nothing to remove".to_owned(),
        (_, Answer::Applied(true)) => "was applied".to_owned(),
        (_, Answer::Applied(false)) => "was not applied".to_owned(),
        (_, Answer::Sum(sum)) => format!("answered {sum}"),
        (_, Answer::Token(_) | Answer::Session(_)) => locks::answered(history, answer),
    }
}

/// Describes a value, or its absence.
pub(crate) fn shown(history: &History, value: Option<Value>) -> String {
    value.map_or_else(|| "no value".to_owned(), |value| quoted(history.value_bytes(value)))
}

/// Returns bytes in quotation marks, with unprintable ones escaped, cut off if there are many.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let more = if bytes.len() > SHOWN_BYTES_MAX { "..." } else { "" };
    format!("'{}{more}'", bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii())
}

/// Formats an operation's interval, counted from the history's first start.
pub(crate) fn interval(history: &History, operation: &Operation) -> String {
    let first = first_start(history);
    let start = duration(operation.start - first);
    match operation.end {
        Some(end) if operation.outcome != Outcome::Unknown => format!("{start} .. {}", duration(end - first)),
        _ => format!("from {start} on"),
    }
}

pub(crate) fn first_start(history: &History) -> u64 {
    history.operations().iter().map(|operation| operation.start).min().unwrap_or(0)
}

/// Formats a duration in a suitable unit.
pub(crate) fn duration(nanoseconds: u64) -> String {
    let (unit, name) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let number = format!("{}.{:06}", nanoseconds / unit, nanoseconds % unit * (1_000_000_000 / unit) / 1_000);
    format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, linearizable};

    const MS: u64 = 1_000_000;

    fn history(operations: &[(u64, &str, u64, u64)]) -> History {
        let mut history = History::new();
        let key = history.key(b"a");
        for (client, what, start, end) in operations {
            let (name, value) = what.split_once(' ').unwrap_or((what, ""));
            let value = history.value(value.as_bytes());
            let (action, outcome) = match name {
                "get" => (Action::Get, Outcome::Ok(Answer::Value(Some(value)))),
                "set" => (Action::Set(value), Outcome::Ok(Answer::Done)),
                "perhaps" => (Action::Set(value), Outcome::Unknown),
                other => panic!("{other}"),
            };
            let id = history.begin(*client, key, action, start * MS);
            history.end(id, end * MS, outcome);
        }
        history
    }

    fn words(history: &History) -> String {
        match linearizable(history) {
            Verdict::Violation(window) => window.words(history),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stale_read_in_words() {
        let mut operations = vec![(1, "set v1", 0, 1), (4, "get v1", 2, 3), (1, "set v2", 10, 12)];
        operations.extend([(3, "get v1", 15, 17), (1, "set v3", 20, 21)]);
        assert_eq!(
            words(&history(&operations)),
            "key 'a' is not linearizable: client 3's get returned 'v1' (15 ms .. 17 ms), although client 1's set of \
             'v2' had ended 3 ms before that began\n\
             No order of these 2 operations explains their answers, whatever the key held before:\n  \
             client 1  set of 'v2' was acknowledged  (10 ms .. 12 ms)\n  \
             client 3  get returned 'v1'  (15 ms .. 17 ms)\n\
             'v1' was written by client 1 (set), before these: 0 ns .. 1 ms\n\
             Times count from the start of the history's first operation."
        );
    }

    #[test]
    fn a_value_from_nowhere_in_words() {
        let operations = [(1, "set v1", 100, 101), (2, "get v9", 103, 104), (1, "get v1", 105, 106)];
        assert_eq!(
            words(&history(&operations)),
            "key 'a' is not linearizable: client 2's get returned 'v9' (3 ms .. 4 ms), which nobody had written\n\
             Times count from the start of the history's first operation."
        );
    }

    #[test]
    fn a_write_that_is_seen_and_unseen_in_words() {
        let mut operations = vec![(1, "set v1", 0, 1), (5, "perhaps v2", 2, 9), (2, "get v2", 10, 20)];
        operations.extend([(3, "get v1", 30, 40), (4, "get v2", 50, 60)]);
        let words = words(&history(&operations));
        assert!(words.contains("client 3's get returned 'v1' (30 ms .. 40 ms)"), "{words}");
        assert!(
            words.contains("client 2's get, which returned 'v2', had ended 10 ms before that began"),
            "{words}"
        );
        assert!(
            words.contains("'v2' was written by client 5 (set, outcome unknown): from 2 ms on"),
            "{words}"
        );
    }

    #[test]
    fn times_are_shown_in_a_suitable_unit() {
        let cases = [(0, "0 ns"), (999, "999 ns"), (1_500, "1.5 us"), (12_345_678, "12.345678 ms")];
        for (nanoseconds, text) in cases.into_iter().chain([(3_000_000_000, "3 s"), (61_000_000_001, "61 s")])
        {
            assert_eq!(duration(nanoseconds), text);
        }
    }
}
