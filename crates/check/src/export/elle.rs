//! For Elle: each operation is a transaction of reads and writes of registers (`rw-register`). A conditional write
//! whose condition held, and a write that returns the previous value, are a read and a write. An absent key is nil.

use std::io::Write;

use super::edn::{self, Edn, Ended, Lines, Words};
use super::{Checker, ExportError, Exported, refused, says_nothing};
use crate::history::{Action, Answer, History, Key, OperationId, Outcome, Value};

pub(super) fn write(
    history: &History,
    ids: &[OperationId],
    output: impl Write,
) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    let ids: Vec<OperationId> = ids.iter().copied().filter(|id| !says_nothing(history, *id)).collect();
    let mut written: Vec<(Key, Value, OperationId)> = Vec::new();
    for id in &ids {
        let operation = history.operation(*id);
        words(history, *id).map_err(|what| refused(history, *id, Checker::Elle, what))?;
        written.extend(operation.action.stores().map(|value| (operation.key, value, *id)));
        exported.note(
            "conditions that did not hold (:fail)",
            matches!(operation.outcome, Outcome::Ok(Answer::Applied(false))),
        );
    }
    written.sort_unstable();
    if let Some(twice) = written.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 == pair[1].1) {
        return Err(refused(history, twice[1].2, Checker::Elle, "a value that is written to a key twice"));
    }
    exported.operations = ids.len();
    // All operations have words, as checked above.
    let words_of = |id: OperationId| words(history, id).unwrap_or_else(|what| unreachable!("{what}"));
    edn::write(history, &ids, words_of, &mut Lines::new(output))?;
    Ok(exported)
}

fn words(history: &History, id: OperationId) -> Result<Words<'_>, &'static str> {
    let operation = history.operation(id);
    let bytes = |value: Option<Value>| value.map_or(Edn::Nil, |value| Edn::Bytes(history.value_bytes(value)));
    let step = |name, value| {
        Edn::Vector(vec![Edn::Keyword(name), Edn::Bytes(history.key_bytes(operation.key)), value])
    };
    let read = |value: Option<Value>| step("r", bytes(value));
    let write = |value: Value| step("w", bytes(Some(value)));
    let ended = match operation.outcome {
        Outcome::Ok(Answer::Applied(false)) | Outcome::Failed => Ended::Fail,
        Outcome::Ok(_) => Ended::Ok,
        Outcome::Unknown => Ended::Info,
    };
    let answer = match operation.outcome {
        Outcome::Ok(answer) => Some(answer),
        Outcome::Failed | Outcome::Unknown => None,
    };
    let (invoked, completed) = match (operation.action, answer) {
        (Action::Get, Some(Answer::Value(value))) => (vec![read(None)], vec![read(value)]),
        (Action::Set(value), None | Some(Answer::Done)) => (vec![write(value)], vec![write(value)]),
        (Action::SetIfAbsent(value), None | Some(Answer::Applied(_))) => {
            (vec![read(None), write(value)], vec![read(None), write(value)])
        }
        (Action::CompareAndSet { expected, value }, Some(Answer::Applied(true))) => {
            (vec![read(None), write(value)], vec![read(expected), write(value)])
        }
        (Action::CompareAndSet { value, .. }, None | Some(Answer::Applied(false)))
        | (Action::GetAndSet(value), None) => {
            (vec![read(None), write(value)], vec![read(None), write(value)])
        }
        (Action::GetAndSet(value), Some(Answer::Value(before))) => {
            (vec![read(None), write(value)], vec![read(before), write(value)])
        }
        (Action::Delete, _) => return Err("a delete: a register has no way back to nothing"),
        (Action::Increment(_), _) => return Err("an increment"),
        (Action::Lock(_), _) => return Err("locks"),
        _ => return Err("an answer that this operation never has"),
    };
    Ok(Words { function: "txn", ended, invoked: Edn::Vector(invoked), completed: Edn::Vector(completed) })
}
