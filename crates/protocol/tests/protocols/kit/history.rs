//! The requests of clients and their answers. A single copy must be able to explain them: they must be linearizable.

use super::{script, show};
use check::{Action, Answer, History, Key, Operation, Outcome as End, Verdict};
use kv::{Command, List, Reply};
use protocol::contract::Result as Outcome;
use protocol::{Request, Ticket};
use std::collections::BTreeMap;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Get {
        keys: Vec<String>,
    },
    Set {
        key: String,
        value: String,
    },
    Delete {
        keys: Vec<String>,
    },
    /// Adds 1.
    Add {
        key: String,
    },
    /// Sets a key that expires after this many milliseconds. Its value is not checked.
    Expiring {
        key: String,
        ms: i64,
    },
    /// Waits until this many other replicas hold everything written so far.
    Wait {
        count: u32,
    },
}

impl Question {
    /// The keys in whose histories it belongs.
    pub(crate) fn keys(&self) -> &[String] {
        match self {
            Question::Get { keys } | Question::Delete { keys } => keys,
            Question::Set { key, .. } | Question::Add { key } => std::slice::from_ref(key),
            Question::Expiring { .. } | Question::Wait { .. } => &[],
        }
    }

    /// Calls `ask` with the request of this question.
    pub(crate) fn with_request<T>(&self, ask: impl FnOnce(Request<'_>) -> T) -> T {
        let mut scratch = Vec::new();
        let keys = self.keys().iter().map(String::as_bytes);
        let command = match self {
            Question::Get { keys } if keys.len() == 1 => Command::Get { key: keys[0].as_bytes() },
            Question::Get { .. } => Command::MultiGet { keys: List::build(&mut scratch, keys) },
            Question::Delete { .. } => Command::Delete { keys: List::build(&mut scratch, keys) },
            Question::Add { key } => Command::IncrementBy { key: key.as_bytes(), delta: 1 },
            Question::Set { key, value } => script::set(key, value, None),
            Question::Expiring { key, ms } => script::set(key, "expires", Some(*ms)),
            Question::Wait { count } => return ask(Request::Wait { offset: u64::MAX, count: *count }),
        };
        ask(Request::Command(&command))
    }
}

/// The history of all requests in a schedule.
#[derive(Default)]
pub(crate) struct Recorder {
    history: History,
    asked_at: BTreeMap<Ticket, u64>,
    /// For each client and key: when the node got the request that was answered last, and when it was answered.
    answered_at: BTreeMap<(u64, Key), (u64, u64)>,
    /// Each event has a time of its own.
    now: u64,
}

impl Recorder {
    fn pass(&mut self, time_us: u64) -> u64 {
        self.now = (self.now + 1).max(time_us * 1000);
        self.now
    }

    pub(crate) fn ask(&mut self, time_us: u64, ticket: Ticket) {
        let now = self.pass(time_us);
        self.asked_at.insert(ticket, now);
    }

    /// A client's requests about one key take effect in the order in which their node got them: a request answered later
    /// came after. `in_order` is when the node got this request; `None` if its place in that order is not known.
    pub(crate) fn answer(
        &mut self,
        time_us: u64,
        (ticket, question): (Ticket, &Question),
        (result, reply): (&Outcome, &[u8]),
        in_order: Option<u64>,
    ) -> Result<(), String> {
        let Some(asked_at) = self.asked_at.remove(&ticket) else {
            return Err(format!("{ticket:?} was never asked"));
        };
        let (now, client) = (self.pass(time_us), ticket.client);
        let replies = show::elements(reply);
        let mut values = replies.iter().filter(|reply| !matches!(reply, Reply::Array(_)));
        // A deletion of several keys has one answer.
        let mut next =
            || if let Question::Delete { .. } = question { replies.first() } else { values.next() };
        for key in question.keys() {
            let outcome = match result {
                Outcome::Done { .. } => match self.answer_of(question, next()) {
                    Some(answer) => End::Ok(answer),
                    None => return Err(format!("{ticket:?}: {question:?} is answered {replies:?}")),
                },
                Outcome::Refused | Outcome::Redirect { .. } => End::Failed,
                Outcome::Unknown => End::Unknown,
            };
            let key = self.history.key(key.as_bytes());
            let action = match question {
                Question::Set { value, .. } => Action::Set(self.history.value(value.as_bytes())),
                Question::Delete { .. } => Action::Delete,
                Question::Add { .. } => Action::Increment(1),
                _ => Action::Get,
            };
            let end = (outcome != End::Unknown).then_some(now);
            let earlier = self.answered_at.get(&(client, key)).filter(|(got, _)| Some(*got) < in_order);
            let start = asked_at.max(earlier.map_or(0, |(_, answered)| *answered));
            if let (Some(got), End::Ok(_)) = (in_order, outcome) {
                self.answered_at.insert((client, key), (got, now));
            }
            self.history.push(Operation {
                client,
                node: None,
                key,
                action,
                start,
                end,
                outcome,
                version: None,
            });
        }
        Ok(())
    }

    fn answer_of(&mut self, question: &Question, reply: Option<&Reply<'_>>) -> Option<Answer> {
        Some(match (question, reply) {
            (Question::Set { .. }, Some(Reply::Ok)) | (Question::Delete { .. }, Some(Reply::Integer(_))) => {
                Answer::Done
            }
            (Question::Add { .. }, Some(Reply::Integer(sum))) => Answer::Sum(*sum),
            (Question::Get { .. }, Some(Reply::Null)) => Answer::Value(None),
            (Question::Get { .. }, Some(Reply::Bulk(value))) => {
                Answer::Value(Some(self.history.value(value)))
            }
            _ => return None,
        })
    }

    /// Forgets all earlier answers: from now on each key starts with the given value.
    pub(crate) fn begin_again(&mut self, time_us: u64, held: &[(&str, Option<Vec<u8>>)]) {
        self.history = History::new();
        self.answered_at.clear();
        let (start, end) = (self.pass(time_us), Some(self.pass(time_us)));
        for (key, value) in held {
            let key = self.history.key(key.as_bytes());
            let action =
                value.as_ref().map_or(Action::Delete, |value| Action::Set(self.history.value(value)));
            let outcome = End::Ok(Answer::Done);
            let client = u64::MAX;
            self.history.push(Operation {
                client,
                node: None,
                key,
                action,
                start,
                end,
                outcome,
                version: None,
            });
        }
    }

    /// Returns the number of operations.
    pub(crate) fn count(&self) -> u64 {
        self.history.operations().len() as u64
    }

    /// Checks that the history is linearizable. Returns the number of operations.
    pub(crate) fn check(&self) -> Result<u64, String> {
        match check::linearizable(&self.history) {
            Verdict::Ok { operations, .. } => Ok(operations as u64),
            verdict @ Verdict::Violation(_) => Err(verdict.words(&self.history)),
            Verdict::Unknown { .. } => Err("too many operations to say whether it is linearizable".into()),
        }
    }
}
