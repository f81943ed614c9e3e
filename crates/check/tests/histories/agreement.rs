//! Compares the checker with the exhaustive search, on small histories of every kind.

use check::{Action, Answer, History, Operation, Outcome, Verdict, linearizable};

use crate::atomic::{self, Kinds, Shape};
use crate::exhaustive::is_possible;
use crate::random::Random;

/// A history of one key with answers drawn at random: about half of them are impossible.
pub(crate) fn any_history(random: &mut Random) -> History {
    let mut history = History::new();
    let key = history.key(b"k");
    let kinds = random.pick(&[Kinds::Plain, Kinds::All, Kinds::All]);
    let unknown_one_in = random.pick(&[2, 4, 8, 1000]);
    let values = Some(random.pick(&[2, 3, 6]));
    let shape = Shape { clients: 1, operations: 0, keys: 1, kinds, values, unknown_one_in, time_max: 1 };
    let span = random.pick(&[4, 8, 16, 30]);
    let only_numbers = random.one_in(4);
    for number in 0..2 + random.below(6) {
        let action = match only_numbers {
            true => {
                random.pick(&[Action::Get, Action::Increment(1), Action::Increment(1), Action::Increment(2)])
            }
            false => atomic::action(&mut history, random, shape, number),
        };
        let start = random.below(span);
        let end = start + random.below(span / 2);
        let value = history.value(random.below(4).to_string().as_bytes());
        let value = random.pick(&[None, Some(value), Some(value)]);
        let outcome = match action {
            _ if random.one_in(unknown_one_in) => Outcome::Unknown,
            _ if random.one_in(20) => Outcome::Failed,
            Action::Get | Action::GetAndSet(_) => Outcome::Ok(Answer::Value(value)),
            Action::Delete if kinds == Kinds::All && random.one_in(2) => {
                Outcome::Ok(Answer::Applied(random.one_in(2)))
            }
            Action::Set(_) | Action::Delete | Action::Lock(_) => Outcome::Ok(Answer::Done),
            Action::Increment(_) => Outcome::Ok(Answer::Sum(random.below(5) as i64)),
            Action::SetIfAbsent(_) | Action::CompareAndSet { .. } => {
                Outcome::Ok(Answer::Applied(random.one_in(2)))
            }
        };
        let end = if random.one_in(30) { None } else { Some(end) };
        // An operation with an answer has an end.
        let outcome = if end.is_none() { Outcome::Unknown } else { outcome };
        history.push(Operation {
            client: number,
            node: None,
            key,
            action,
            start,
            end,
            outcome,
            version: None,
        });
    }
    history
}

fn lines(history: &History) -> String {
    history.operations().iter().map(|operation| format!("\n{operation:?}")).collect()
}

fn check_both(history: &History) -> bool {
    let expected = is_possible(history, history.operations(), &[None]);
    match linearizable(history) {
        Verdict::Ok { .. } => assert!(expected, "approved, though impossible: {}", lines(history)),
        Verdict::Violation(window) => {
            assert!(!expected, "refused, though possible: {}", lines(history));
            // The window is a proof: it stays impossible when all other operations are unknown. It contains no
            // superfluous operation.
            assert!(!is_window_possible(history, &window, None), "{window:?} of {}", lines(history));
            for leave in &window.operations {
                assert!(
                    is_window_possible(history, &window, Some(*leave)),
                    "{leave:?} is idle in {window:?} of {}",
                    lines(history)
                );
            }
        }
        Verdict::Unknown { .. } => panic!("so small a history was not decided: {}", lines(history)),
    }
    expected
}

/// Tries the window's operations, except for one. All others are unknown, or came before the window, which then
/// begins with any state.
fn is_window_possible(history: &History, window: &check::Window, leave: Option<check::OperationId>) -> bool {
    let first = history.operation(window.operations[0]).start;
    let last = history.operation(window.culprit).end.unwrap();
    let mut operations = Vec::new();
    for id in history.ids() {
        let mut operation = *history.operation(id);
        let is_before = window.is_from_any
            && operation.end.is_some_and(|end| end < first)
            && operation.outcome != Outcome::Unknown;
        if operation.outcome == Outcome::Failed || is_before || operation.start > last {
            continue;
        }
        if leave == Some(id) || !window.operations.contains(&id) {
            operation.outcome = Outcome::Unknown;
        }
        operations.push(operation);
    }
    let mut initial = vec![None];
    if window.is_from_any {
        initial.push(Some(b"something else".to_vec()));
        initial.extend((-20..30).map(|number: i64| Some(number.to_string().into_bytes())));
    }
    is_possible(history, &operations, &initial)
}

/// The key's value at the beginning of the window need not be one that a client has read: here it is 1, to which
/// the unknown increment adds 1 between the two.
#[test]
fn a_window_includes_states_that_only_unknown_operations_leave() {
    let mut history = History::new();
    let key = history.key(b"k");
    let [zero, one, two, three, four, five] =
        [b"0", b"1", b"2", b"3", b"4", b"5"].map(|text| history.value(text));
    let mut add = |action, start, end, answer| {
        let id = history.begin(0, key, action, start);
        history.end(id, end, Outcome::Ok(answer));
    };
    add(Action::Set(zero), 0, 6, Answer::Done);
    add(Action::SetIfAbsent(one), 3, 6, Answer::Applied(false));
    add(Action::Increment(1), 3, 13, Answer::Sum(1));
    add(Action::GetAndSet(three), 16, 25, Answer::Value(Some(two)));
    add(Action::SetIfAbsent(four), 8, 8, Answer::Applied(false));
    add(Action::CompareAndSet { expected: Some(two), value: five }, 8, 10, Answer::Applied(false));
    assert!(!check_both(&history));
}

#[test]
fn the_checker_agrees_with_the_exhaustive_search() {
    let mut random = Random(1);
    let count = 40_000;
    let possible = (0..count).filter(|_| check_both(&any_history(&mut random))).count();
    assert!((count / 5..count * 4 / 5).contains(&possible), "both kinds are met: {possible} of {count}");
}

#[test]
fn the_checker_agrees_on_small_histories_of_an_atomic_store_with_one_answer_changed() {
    let mut random = Random(2);
    let mut possible = 0;
    for round in 0..10_000 {
        let shape = Shape {
            clients: 1 + random.below(4),
            operations: 3 + random.below(4),
            keys: 1,
            kinds: random.pick(&[Kinds::Plain, Kinds::Counter, Kinds::All]),
            values: random.pick(&[None, Some(3)]),
            unknown_one_in: random.pick(&[3, 10]),
            time_max: 12,
        };
        let mut history = atomic::history(&mut random, shape);
        assert!(check_both(&history), "round {round}");
        let id = history.ids().nth(random.below(shape.operations) as usize).unwrap();
        let operation = *history.operation(id);
        let value = history.value(random.below(4).to_string().as_bytes());
        let outcome = match operation.outcome {
            Outcome::Ok(Answer::Value(_)) => Outcome::Ok(Answer::Value(random.pick(&[None, Some(value)]))),
            Outcome::Ok(Answer::Applied(applied)) => Outcome::Ok(Answer::Applied(!applied)),
            Outcome::Ok(Answer::Sum(sum)) => Outcome::Ok(Answer::Sum(sum + random.pick(&[-1, 1, 2]))),
            other => other,
        };
        history.end(id, operation.end.unwrap(), outcome);
        possible += usize::from(check_both(&history));
    }
    assert!((2_000..9_000).contains(&possible), "both kinds are met: {possible}");
}
