//! What clients asked and what they were told. A single copy has to be able to explain it: it must be linearizable.

use check::{Action, Answer, History, OperationId, Outcome as End, Verdict};
use kv::{Command, Condition, Expiry, List, Reply, SetAnswer};
use protocol::Ticket;
use protocol::contract::Result as Outcome;
use std::collections::BTreeMap;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Get {
        key: String,
    },
    Set {
        key: String,
        value: String,
    },
    Delete {
        key: String,
    },
    /// Adds 1.
    Add {
        key: String,
    },
}

impl Question {
    pub(crate) fn key(&self) -> &str {
        match self {
            Question::Get { key }
            | Question::Set { key, .. }
            | Question::Delete { key }
            | Question::Add { key } => key,
        }
    }

    /// Calls `ask` with the command that asks this.
    pub(crate) fn with_command<T>(&self, ask: impl FnOnce(Command<'_>) -> T) -> T {
        let key = self.key().as_bytes();
        let mut scratch = Vec::new();
        ask(match self {
            Question::Get { .. } => Command::Get { key },
            Question::Delete { .. } => Command::Delete { keys: List::build(&mut scratch, [key]) },
            Question::Add { .. } => Command::IncrementBy { key, delta: 1 },
            Question::Set { value, .. } => Command::Set {
                key,
                value: value.as_bytes(),
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            },
        })
    }
}

/// A history of all that clients asked in a schedule.
pub(crate) struct Told {
    history: History,
    operations: BTreeMap<Ticket, OperationId>,
}

impl Told {
    pub(crate) fn new() -> Told {
        Told { history: History::new(), operations: BTreeMap::new() }
    }

    pub(crate) fn ask(&mut self, time_us: u64, ticket: Ticket, question: &Question) {
        let key = self.history.key(question.key().as_bytes());
        let action = match question {
            Question::Get { .. } => Action::Get,
            Question::Set { value, .. } => Action::Set(self.history.value(value.as_bytes())),
            Question::Delete { .. } => Action::Delete,
            Question::Add { .. } => Action::Increment(1),
        };
        let operation = self.history.begin(ticket.client, key, action, time_us * 1000);
        self.operations.insert(ticket, operation);
    }

    pub(crate) fn answer(
        &mut self,
        time_us: u64,
        ticket: Ticket,
        question: &Question,
        result: &Outcome,
        reply: &[u8],
    ) -> Result<(), String> {
        let Some(operation) = self.operations.remove(&ticket) else {
            return Err(format!("{ticket:?} was never asked"));
        };
        let end = match result {
            Outcome::Done { .. } => End::Ok(match (question, Reply::first(reply)) {
                (Question::Set { .. }, Reply::Ok) | (Question::Delete { .. }, Reply::Integer(_)) => {
                    Answer::Done
                }
                (Question::Add { .. }, Reply::Integer(sum)) => Answer::Sum(sum),
                (Question::Get { .. }, Reply::Null) => Answer::Value(None),
                (Question::Get { .. }, Reply::Bulk(value)) => Answer::Value(Some(self.history.value(value))),
                (_, other) => return Err(format!("{ticket:?}: {question:?} is answered {other:?}")),
            }),
            Outcome::Refused | Outcome::Redirect { .. } => End::Failed,
            Outcome::Unknown => End::Unknown,
        };
        if end != End::Unknown {
            self.history.end(operation, time_us * 1000, end);
        }
        Ok(())
    }

    /// Whether it is linearizable. Returns how many operations it holds.
    pub(crate) fn check(&self) -> Result<u64, String> {
        match check::linearizable(&self.history) {
            Verdict::Ok { operations, .. } => Ok(operations as u64),
            verdict @ Verdict::Violation(_) => Err(verdict.words(&self.history)),
            Verdict::Unknown { .. } => Err("too many operations to say whether it is linearizable".into()),
        }
    }
}
