//! For Porcupine: a line of JSON for each operation. Without `return` and `output` it may have happened at any time
//! after its call, or never. The models are in `tools/porcupine`.

use std::borrow::Cow;
use std::io::Write;

use serde::Serialize;

use super::{Checker, ExportError, Exported, refused, says_nothing};
use crate::history::{Action, Answer, History, Key, OperationId, Outcome, Value};
use crate::history::{Hold, LockAction};
use crate::json_lines::Bytes;

#[derive(Serialize)]
struct Line<'h> {
    client: u64,
    input: Input<'h>,
    call: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Output<'h>>,
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    returned: Option<u64>,
}

#[derive(Default, Serialize)]
struct Input<'h> {
    operation: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Bytes<'h>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<Bytes<'h>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Option<Bytes<'h>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Bytes<'h>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Bytes<'h>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u32>,
}

#[derive(Default, Serialize)]
struct Output<'h> {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Option<Bytes<'h>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Option<u64>>,
}

pub(super) fn write(
    history: &History,
    ids: &[OperationId],
    mut output: impl Write,
) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    for id in ids {
        let Some(line) = line(history, *id)? else { continue };
        serde_json::to_writer(&mut output, &line).map_err(std::io::Error::from)?;
        output.write_all(b"\n")?;
        exported.operations += 1;
    }
    Ok(exported)
}

fn line(history: &History, id: OperationId) -> Result<Option<Line<'_>>, ExportError> {
    let operation = history.operation(id);
    if operation.outcome == Outcome::Failed || says_nothing(history, id) {
        return Ok(None);
    }
    let value = |value: Value| Bytes(Cow::Borrowed(history.value_bytes(value)));
    let name = |key: Key| Some(Bytes(Cow::Borrowed(history.key_bytes(key))));
    let mut input = Input { operation: operation.action.name(), ..Input::default() };
    match operation.action {
        Action::Lock(action) => {
            input.lock = name(operation.key);
            match action {
                LockAction::Acquire { owner, hold: Hold::Lease(ms), .. } => {
                    (input.owner, input.lease_ms) = (Some(value(owner)), Some(ms));
                }
                LockAction::Renew { token, lease_ms } => {
                    (input.token, input.lease_ms) = (Some(token), Some(lease_ms));
                }
                LockAction::Release { token } => input.token = Some(token),
                _ => return Err(refused(history, id, Checker::Porcupine, "a session")),
            }
        }
        action => {
            (input.key, input.value) = (name(operation.key), action.stores().map(value));
            match action {
                Action::Increment(delta) => input.delta = Some(delta),
                Action::CompareAndSet { expected, .. } => input.expected = Some(expected.map(value)),
                _ => {}
            }
        }
    }
    let output = match (operation.action, operation.outcome) {
        // A client that waited in vain may have held the lock for a while without knowing.
        (Action::Lock(LockAction::Acquire { waits: true, .. }), Outcome::Ok(Answer::Token(None))) => None,
        (_, Outcome::Ok(answer)) => Some(match answer {
            Answer::Done => Output::default(),
            Answer::Value(read) => Output { value: Some(read.map(value)), ..Output::default() },
            Answer::Applied(applied) => Output { applied: Some(applied), ..Output::default() },
            Answer::Sum(sum) => Output { sum: Some(sum), ..Output::default() },
            Answer::Token(token) => Output { token: Some(token), ..Output::default() },
            Answer::Session(_) => return Err(refused(history, id, Checker::Porcupine, "a session")),
        }),
        _ => None,
    };
    let returned = operation.end.filter(|_| output.is_some());
    Ok(Some(Line { client: operation.client, input, call: operation.start, output, returned }))
}
