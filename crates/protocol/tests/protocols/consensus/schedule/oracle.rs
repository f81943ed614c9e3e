//! What must be true whatever happens.

use crate::consensus::World;
use check::{Action, Answer, History, OperationId, Outcome as End, Verdict};
use kv::Reply;
use protocol::Replica as _;
use protocol::contract::{NodeId, Result as Outcome};
use protocol::{Ticket, Trace};
use std::collections::BTreeMap;

/// What is wrong, in words.
pub(crate) type Check = Result<(), String>;

/// What a client asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    Set { key: u64, value: u64 },
    Add,
    Get { key: u64 },
}

impl Question {
    pub(crate) fn key(&self) -> String {
        match self {
            Question::Set { key, .. } | Question::Get { key } => format!("key{key}"),
            Question::Add => "counter".into(),
        }
    }

    pub(crate) fn value(&self) -> String {
        match self {
            Question::Set { value, .. } => format!("value{value}"),
            _ => String::new(),
        }
    }
}

pub(crate) struct Oracle {
    history: History,
    operations: BTreeMap<Ticket, OperationId>,
    /// What the table was at each offset, wherever it was seen first.
    states: BTreeMap<u64, u64>,
}

impl Oracle {
    pub(crate) fn new() -> Oracle {
        Oracle { history: History::new(), operations: BTreeMap::new(), states: BTreeMap::new() }
    }

    pub(crate) fn ask(&mut self, now_us: u64, ticket: Ticket, question: &Question) {
        let key = self.history.key(question.key().as_bytes());
        let action = match question {
            Question::Set { .. } => Action::Set(self.history.value(question.value().as_bytes())),
            Question::Add => Action::Increment(1),
            Question::Get { .. } => Action::Get,
        };
        let operation = self.history.begin(ticket.client, key, action, now_us * 1000);
        self.operations.insert(ticket, operation);
    }

    pub(crate) fn answer(
        &mut self,
        now_us: u64,
        ticket: Ticket,
        question: &Question,
        result: &Outcome,
        reply: &[u8],
    ) -> Check {
        let Some(operation) = self.operations.remove(&ticket) else {
            return Err(format!("{ticket:?} was never asked"));
        };
        let end = match result {
            Outcome::Done { .. } => End::Ok(match (question, Reply::first(reply)) {
                (Question::Set { .. }, Reply::Ok) => Answer::Done,
                (Question::Add, Reply::Integer(sum)) => Answer::Sum(sum),
                (Question::Get { .. }, Reply::Null) => Answer::Value(None),
                (Question::Get { .. }, Reply::Bulk(value)) => Answer::Value(Some(self.history.value(value))),
                (_, other) => return Err(format!("{ticket:?}: {question:?} is answered {other:?}")),
            }),
            Outcome::Refused | Outcome::Redirect { .. } => End::Failed,
            Outcome::Unknown => End::Unknown,
        };
        if end != End::Unknown {
            self.history.end(operation, now_us * 1000, end);
        }
        Ok(())
    }

    /// All replicas go through the same states.
    pub(crate) fn look(&mut self, world: &World, id: NodeId, traces: &[Trace]) -> Check {
        let tells = |trace: &Trace| matches!(trace, Trace::Committed { .. } | Trace::Installed { .. });
        if !traces.iter().any(tells) {
            return Ok(());
        }
        let (Some(replica), Some(status)) = (world.replica(id), world.status(id)) else { return Ok(()) };
        let digest = replica.table().digest();
        match self.states.insert(status.applied, digest) {
            Some(before) if before != digest => {
                Err(format!("node {id} is in another state at offset {} than others were", status.applied))
            }
            _ => Ok(()),
        }
    }

    /// Whether clients were told what a single copy could have told. Returns how many operations that was.
    pub(crate) fn check(&self) -> Result<u64, String> {
        match check::linearizable(&self.history) {
            Verdict::Ok { operations, .. } => Ok(operations as u64),
            verdict @ Verdict::Violation(_) => Err(verdict.words(&self.history)),
            Verdict::Unknown { .. } => Err("too many operations to say whether it is linearizable".into()),
        }
    }
}
