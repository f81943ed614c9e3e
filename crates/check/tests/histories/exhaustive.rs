//! The definition of linearizability, spelled out: all orders are tried. It shares nothing with the checker.

use check::{Action, Answer, History, Operation, Outcome, Value};

type State = Option<Vec<u8>>;

/// Is there an order of these operations on one key, beginning in one of these states?
pub(crate) fn is_possible(history: &History, operations: &[Operation], initial: &[State]) -> bool {
    initial.iter().any(|state| order(history, &mut operations.to_vec(), state))
}

fn order(history: &History, rest: &mut Vec<Operation>, state: &State) -> bool {
    if rest.iter().all(|operation| !matches!(operation.outcome, Outcome::Ok(_))) {
        return true;
    }
    for index in 0..rest.len() {
        let next = rest[index];
        let is_first = rest.iter().all(|other| {
            !matches!(other.outcome, Outcome::Ok(_)) || other.end.is_none_or(|end| end >= next.start)
        });
        if next.outcome == Outcome::Failed || !is_first {
            continue;
        }
        let (after, answers) = carry_out(history, state, next.action);
        let fits = match next.outcome {
            Outcome::Ok(answer) => answers.iter().any(|expected| is_same(history, *expected, answer)),
            _ => true,
        };
        if fits {
            rest.remove(index);
            let found = order(history, rest, &after);
            rest.insert(index, next);
            if found {
                return true;
            }
        }
    }
    false
}

fn is_same(history: &History, expected: Told, answer: Answer) -> bool {
    match (expected, answer) {
        (Told::Done, Answer::Done) => true,
        (Told::Value(expected), Answer::Value(value)) => {
            expected == value.map(|value| history.value_bytes(value))
        }
        (Told::Applied(expected), Answer::Applied(applied)) => expected == applied,
        (Told::Sum(expected), Answer::Sum(sum)) => expected == sum,
        _ => false,
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Told<'a> {
    Done,
    Value(Option<&'a [u8]>),
    Applied(bool),
    Sum(i64),
}

/// What an action leaves, and every answer that is right.
pub(crate) fn carry_out<'a>(history: &History, state: &'a State, action: Action) -> (State, Vec<Told<'a>>) {
    let bytes = |value: Value| Some(history.value_bytes(value).to_vec());
    match action {
        Action::Get => (state.clone(), vec![Told::Value(state.as_deref())]),
        Action::Set(value) => (bytes(value), vec![Told::Done]),
        Action::Delete => (None, vec![Told::Done, Told::Applied(state.is_some())]),
        Action::Increment(delta) => {
            let text = state.as_deref().unwrap_or(b"0");
            let integer = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
            match integer {
                Some(integer) if integer.to_string().as_bytes() == text => {
                    let sum = integer + delta;
                    (Some(sum.to_string().into_bytes()), vec![Told::Sum(sum)])
                }
                _ => (state.clone(), Vec::new()),
            }
        }
        Action::SetIfAbsent(value) => {
            let after = if state.is_none() { bytes(value) } else { state.clone() };
            (after, vec![Told::Applied(state.is_none())])
        }
        Action::GetAndSet(value) => (bytes(value), vec![Told::Value(state.as_deref())]),
        Action::CompareAndSet { expected, value } => {
            let holds = *state == expected.and_then(bytes);
            (if holds { bytes(value) } else { state.clone() }, vec![Told::Applied(holds)])
        }
        Action::Lock(_) => unreachable!("a key takes no requests for locks"),
    }
}
