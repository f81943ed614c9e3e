//! Describes which rule a lock or a session has broken.

use super::{described, duration, first_start, interval, quoted, shown};
use crate::history::{Action, Answer, History, Hold, LockAction, OperationId, Outcome};
use crate::window::{Breach, Rule, Why, Window};

/// Describes an operation on a lock or a session.
pub(crate) fn asked(history: &History, action: LockAction) -> String {
    let name = action.name();
    match action {
        LockAction::Acquire { owner, hold, waits } => {
            let hold = match hold {
                Hold::Lease(ms) => format!("for {}", duration(u64::from(ms) * 1_000_000)),
                Hold::Session(session) => format!("under session {}", quoted(history.key_bytes(session))),
            };
            let waits = if waits { ", waiting," } else { "" };
            format!("{name} as {} {hold}{waits}", shown(history, Some(owner)))
        }
        LockAction::Renew { token, lease_ms } => {
            format!("{name} of token {token} for {}", duration(u64::from(lease_ms) * 1_000_000))
        }
        LockAction::Release { token } => format!("{name} of token {token}"),
        LockAction::OpenSession { .. } | LockAction::RenewSession | LockAction::CloseSession => {
            name.to_owned()
        }
    }
}

/// Describes the answer.
pub(crate) fn answered(history: &History, answer: Answer) -> String {
    match answer {
        Answer::Token(Some(token)) => format!("was granted token {token}"),
        Answer::Session(session) => format!("opened {}", quoted(history.key_bytes(session))),
        _ => "was told that another one holds it".to_owned(),
    }
}

/// Returns one sentence that states what is impossible and why.
pub(crate) fn sentence(window: &Window, breach: &Breach, history: &History) -> String {
    let name = quoted(history.key_bytes(window.key));
    let subject = if window.is_of_session(history) { "session" } else { "lock" };
    let who = |id: OperationId| {
        let operation = history.operation(id);
        // A session ties locks together.
        let of_another = match operation.action {
            Action::Lock(LockAction::Acquire { .. } | LockAction::Release { .. })
                if operation.key != window.key =>
            {
                format!(" (lock {})", quoted(history.key_bytes(operation.key)))
            }
            _ => String::new(),
        };
        format!("client {}'s {}{of_another}", operation.client, described(history, id))
    };
    let when = |at: u64| duration(at - first_start(history));
    let answered = format!(
        "{subject} {name} did not keep its promise: {} ({})",
        who(breach.answered),
        interval(history, history.operation(breach.answered))
    );
    let because = breach.because.map(who).unwrap_or_default();
    let starts = breach.because.map(|id| when(history.operation(id).start)).unwrap_or_default();
    let reason = match breach.rule {
        Rule::TooEarly { why: Why::Asked, .. } => {
            format!("although {because}, which by its token comes before, was sent only at {starts}")
        }
        Rule::TooEarly { why: Why::Used, .. } => {
            format!("although {because}, which came before the end, was sent only at {starts}")
        }
        Rule::TooEarly { why: Why::Written, .. } => {
            format!("although {because}, which came before any newer token, was sent only at {starts}")
        }
        Rule::TooEarly { earliest, why: Why::Leased } => {
            format!(
                "although the lease of {because}, sent at {starts}, lasted until {} at least",
                when(earliest)
            )
        }
        Rule::TokenTwice => format!("although {because} for another owner"),
        Rule::SessionTwice => format!("although {because} as well"),
        Rule::EndedTwice => format!("although {because} as well"),
        Rule::GrantedToNobody => "although nobody can have been granted that token".to_owned(),
        Rule::HeldByNobody => "although no other one can have held it at that time".to_owned(),
        Rule::OutOfTurn => match breach.because.and_then(|id| history.queued(id)) {
            Some(queued) => {
                format!("although {because} later, who had waited since {} or before", when(queued))
            }
            None => format!("although {because} later"),
        },
        Rule::NoAnswer => "which is no answer to that".to_owned(),
    };
    format!("{answered}, {reason}")
}

impl Window {
    /// Whether a session's promise was broken.
    fn is_of_session(&self, history: &History) -> bool {
        let mut operations = self.operations.iter().map(|id| history.operation(*id));
        operations.any(|operation| match (operation.action, operation.outcome) {
            (Action::Lock(LockAction::OpenSession { .. }), Outcome::Ok(Answer::Session(session))) => {
                session == self.key
            }
            (Action::Lock(LockAction::RenewSession | LockAction::CloseSession), _) => {
                operation.key == self.key
            }
            _ => false,
        })
    }
}
