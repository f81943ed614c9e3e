//! Exports histories to other checkers (Porcupine, Knossos and Elle), so that users need not trust this one alone.
//!
//! Operations that another checker cannot express are refused ([`ExportError::Refused`]) where leaving them out could
//! make a sound history wrong, or would leave nothing to check. Where that can only hide a fault, they are left out
//! and counted ([`Exported::left_out`]). docs/guide/checking.md has the table.

mod edn;
mod elle;
mod knossos;
mod porcupine;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::history::LockAction;
use crate::history::{Action, History, Key, OperationId, Outcome};

/// The checker that a history is exported for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checker {
    /// Operations as lines of JSON, for the program in `tools/porcupine`.
    Porcupine,
    /// A Jepsen history of one key (`cas-register`) or of one lock (`mutex`).
    Knossos,
    /// A Jepsen history of transactions of reads and writes (`rw-register`).
    Elle,
}

impl Checker {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Checker::Porcupine => "Porcupine",
            Checker::Knossos => "Knossos",
            Checker::Elle => "Elle",
        }
    }
}

/// A key or a lock of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A key, with its operations.
    Key(Key),
    /// A lock, with its operations.
    Lock(Key),
}

/// Summary of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The number of operations that were written.
    pub operations: usize,
    /// What the other checker does not see, and how often it occurs.
    pub left_out: BTreeMap<&'static str, usize>,
}

/// Why a history was not exported, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The other checker cannot express something in the history. Nothing was written.
    #[error("{0}")]
    Refused(String),
    /// The output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl History {
    /// Returns the keys and locks that the history contains.
    pub fn subjects(&self) -> BTreeSet<Subject> {
        self.ids().filter_map(|id| subject(self, id)).collect()
    }

    /// Writes the operations for another checker: all of them, or those of one key or lock.
    ///
    /// # Errors
    /// If the other checker cannot express them, or the output fails.
    pub fn export(
        &self,
        checker: Checker,
        only: Option<Subject>,
        output: impl Write,
    ) -> Result<Exported, ExportError> {
        let is_asked = |id: &OperationId| only.is_none() || subject(self, *id) == only;
        let ids: Vec<OperationId> = self.ids().filter(is_asked).collect();
        if let Some(id) = ids.iter().find(|id| is_of_sessions(self.operation(**id).action)) {
            let what = "a session, which ties locks together";
            return Err(refused(self, *id, checker, what));
        }
        let exported = match checker {
            Checker::Porcupine => porcupine::write(self, &ids, output),
            Checker::Knossos => knossos::write(self, &ids, output),
            Checker::Elle => elle::write(self, &ids, output),
        };
        let mut exported = exported?;
        for id in ids {
            exported.note("fences of writes", self.fence(id).is_some());
            exported.note("places in a lock's queue", self.queued(id).is_some());
        }
        Ok(exported)
    }
}

impl Exported {
    fn note(&mut self, what: &'static str, is_left_out: bool) {
        if is_left_out {
            *self.left_out.entry(what).or_default() += 1;
        }
    }
}

/// Returns the key or lock that an operation concerns; `None` if it concerns a session.
fn subject(history: &History, id: OperationId) -> Option<Subject> {
    let operation = history.operation(id);
    match operation.action {
        Action::Lock(LockAction::Acquire { .. } | LockAction::Renew { .. } | LockAction::Release { .. }) => {
            Some(Subject::Lock(operation.key))
        }
        Action::Lock(_) => None,
        _ => Some(Subject::Key(operation.key)),
    }
}

fn is_of_sessions(action: Action) -> bool {
    match action {
        Action::Lock(LockAction::Acquire { hold, .. }) => matches!(hold, crate::history::Hold::Session(_)),
        Action::Lock(
            LockAction::OpenSession { .. } | LockAction::RenewSession | LockAction::CloseSession,
        ) => true,
        _ => false,
    }
}

/// Whether an operation carries no information: a read without an answer, which changes nothing, either.
fn says_nothing(history: &History, id: OperationId) -> bool {
    let operation = history.operation(id);
    operation.action == Action::Get && !matches!(operation.outcome, Outcome::Ok(_))
}

fn refused(history: &History, id: OperationId, checker: Checker, what: &str) -> ExportError {
    let operation = history.operation(id);
    ExportError::Refused(format!(
        "{} has no words for {what}: the {} of client {} that began at {} ns",
        checker.name(),
        operation.action.name(),
        operation.client,
        operation.start
    ))
}

#[cfg(test)]
mod tests;
