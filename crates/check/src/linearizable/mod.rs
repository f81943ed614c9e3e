//! Checks whether a history is linearizable.
//!
//! Linearizability is local (Herlihy and Wing 1990): a history is linearizable exactly if the operations of each key
//! are. Each key is therefore checked separately, which makes large histories cheap (P-compositionality, Horn and
//! Kroening 2015): it is prepared (`prepare`), then searched (`search`). Locks come first (`locks`): what they reveal
//! about writes with fences is used for the keys.

mod narrow;

use crate::history::{History, Key, Operation, OperationId};
use crate::locks;
use crate::model::ABSENT;
use crate::prepare::{Initial, initial_states, prepare};
use crate::search::{Budget, Found, search};
use crate::window::Window;
use crate::words::quoted;
use narrow::narrow;

/// The limits of a check. Running out of them gives [`Verdict::Unknown`], never an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Search steps for each key; about 10 to 100 million take a second.
    pub steps: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { steps: 1 << 30 }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every key is linearizable, and every lock has kept its promise.
    Ok {
        /// The number of operations that were checked.
        operations: usize,
        /// The number of keys that were checked.
        keys: usize,
        /// The number of locks that were checked.
        locks: usize,
    },
    /// A key is not linearizable, or a lock has broken its promise, as the window shows.
    Violation(Window),
    /// No violation was found, but for this key the limits were too narrow to decide.
    Unknown {
        /// The first such key.
        key: Key,
    },
}

impl Verdict {
    /// Describes the result in a sentence or more.
    pub fn words(&self, history: &History) -> String {
        match self {
            Verdict::Ok { operations, keys, locks } => {
                let operations = counted(*operations, "operation");
                let (clients, are) =
                    (counted(history.clients(), "client"), if operations.1 { "is" } else { "are" });
                let on = match (keys, locks) {
                    (keys, 0) => counted(*keys, "key").0,
                    (0, locks) => counted(*locks, "lock").0,
                    (keys, locks) => {
                        format!("{} and {}", counted(*keys, "key").0, counted(*locks, "lock").0)
                    }
                };
                format!("{} on {on} by {} {are} linearizable", operations.0, clients.0)
            }
            Verdict::Violation(window) => window.words(history),
            Verdict::Unknown { key } => {
                let key = quoted(history.key_bytes(*key));
                format!(
                    "key {key} could not be decided within the limits; no other key was found to be wrong"
                )
            }
        }
    }
}

/// Returns a count with its noun, and whether the count is one.
fn counted(count: usize, noun: &str) -> (String, bool) {
    let is_one = count == 1;
    (format!("{count} {noun}{}", if is_one { "" } else { "s" }), is_one)
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of operations on finished keys.
    pub operations: usize,
    /// The number of finished keys.
    pub keys: usize,
}

/// Checks a history, its keys and its locks, within the default limits.
pub fn linearizable(history: &History) -> Verdict {
    linearizable_within(history, Limits::default(), |_| false)
}

/// Checks a history. `interrupt` is called periodically, at least before every key; once it returns true, whatever is
/// undecided stays unknown.
pub fn linearizable_within(
    history: &History,
    limits: Limits,
    mut interrupt: impl FnMut(Progress) -> bool,
) -> Verdict {
    let checked = match locks::check(history) {
        Ok(checked) => checked,
        Err(window) => return Verdict::Violation(window),
    };
    let mut progress = Progress { operations: checked.operations, keys: 0 };
    let mut unknown = None;
    let by_key = ByKey::new(history);
    let mut operations: Vec<Operation> = Vec::new();
    for key in by_key.keys() {
        let ids = by_key.operations(key);
        operations.clear();
        operations.extend(ids.iter().map(|id| locks::narrowed(history.operation(*id), *id, &checked.fenced)));
        let mut ask = || interrupt(progress);
        let found = if ask() {
            Found::Nothing
        } else {
            let mut budget = Budget { steps: limits.steps, interrupt: &mut ask };
            check_key(history, &operations, &mut budget)
        };
        match found {
            Found::Possible => {}
            Found::Impossible => {
                let mut budget = Budget { steps: limits.steps, interrupt: &mut ask };
                return Verdict::Violation(narrow(history, key, ids, &operations, &mut budget));
            }
            Found::Nothing => {
                unknown.get_or_insert(key);
            }
        }
        progress.operations += ids.len();
        progress.keys += 1;
    }
    match unknown {
        Some(key) => Verdict::Unknown { key },
        None => {
            let Progress { operations, keys } = progress;
            Verdict::Ok { operations, keys, locks: checked.locks }
        }
    }
}

/// Checks the operations of one key.
pub(crate) fn check_key(history: &History, operations: &[Operation], budget: &mut Budget) -> Found {
    check_from(history, operations, Initial::State(ABSENT), budget)
}

/// Checks the operations of one key that may hold anything at the beginning.
pub(crate) fn check_from_any(history: &History, operations: &[Operation], budget: &mut Budget) -> Found {
    let Some(initial) = initial_states(history, operations) else { return Found::Nothing };
    for initial in initial {
        match check_from(history, operations, initial, budget) {
            Found::Impossible => {}
            found => return found,
        }
    }
    Found::Impossible
}

fn check_from(history: &History, operations: &[Operation], initial: Initial, budget: &mut Budget) -> Found {
    match prepare(history, operations, initial) {
        Ok(prepared) => search(prepared, budget),
        Err(_) => Found::Impossible,
    }
}

/// The operations of each key, in the order in which they were recorded.
pub(crate) struct ByKey {
    /// Sorted by key.
    operations: Vec<OperationId>,
    /// Where each key's operations begin, by the key's index; at the end, where the last ones end.
    starts: Vec<usize>,
    keys: Vec<Key>,
}

impl ByKey {
    pub(crate) fn new(history: &History) -> ByKey {
        let is_of_key = |id: &OperationId| !history.operation(*id).action.is_of_locks();
        let mut starts = vec![0; history.keys() + 1];
        for operation in history.operations().iter().filter(|it| !it.action.is_of_locks()) {
            starts[operation.key.index() + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut operations: Vec<OperationId> = history.ids().filter(is_of_key).collect();
        operations.sort_by_key(|id| history.operation(*id).key);
        let mut keys: Vec<Key> = operations.iter().map(|id| history.operation(*id).key).collect();
        keys.dedup();
        ByKey { operations, starts, keys }
    }

    /// Returns all keys that have operations.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys.iter().copied()
    }

    pub(crate) fn operations(&self, key: Key) -> &[OperationId] {
        &self.operations[self.starts[key.index()]..self.starts[key.index() + 1]]
    }
}
