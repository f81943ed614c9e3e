//! Large histories of an atomic store are approved. With one thing changed to something that no atomic store
//! answers, they are rejected, and the window is small and contains the change.

use check::{Action, Answer, History, Limits, Operation, OperationId, Outcome, Value, Verdict, Window};

use crate::atomic::{self, Kinds, Shape};
use crate::random::Random;

const REGISTER: Shape = Shape {
    clients: 8,
    operations: 600,
    keys: 3,
    kinds: Kinds::Plain,
    values: None,
    unknown_one_in: 20,
    time_max: 1000,
};

/// The limit of steps is low, so that a search that begins to explode is noticed.
fn check(history: &History) -> Verdict {
    check::linearizable_within(history, Limits { steps: 10_000_000 }, |_| false)
}

fn violation(history: &History) -> Window {
    match check(history) {
        Verdict::Violation(window) => window,
        other => panic!("{other:?}"),
    }
}

fn approve(history: &History) {
    assert!(matches!(check(history), Verdict::Ok { .. }), "{:?}", check(history));
}

#[test]
fn answers_of_an_atomic_store_are_approved() {
    let mut random = Random(10);
    for kinds in [Kinds::Plain, Kinds::Counter, Kinds::All] {
        for values in [None, Some(4)] {
            for unknown_one_in in [3, 20, 1000] {
                for clients in [2, 8, 16] {
                    let shape =
                        Shape { clients, kinds, values, unknown_one_in, operations: 1500, ..REGISTER };
                    let history = atomic::history(&mut random, shape);
                    let verdict = check(&history);
                    assert!(matches!(verdict, Verdict::Ok { .. }), "{shape:?}: {verdict:?}");
                }
            }
        }
    }
}

#[test]
fn hundreds_of_open_writes_do_not_make_the_search_explode() {
    let mut random = Random(11);
    for kinds in [Kinds::Plain, Kinds::Counter] {
        let shape = Shape {
            clients: 16,
            operations: 3000,
            keys: 1,
            unknown_one_in: 4,
            kinds,
            values: None,
            ..REGISTER
        };
        let history = atomic::history(&mut random, shape);
        let open = history.operations().iter().filter(|operation| {
            operation.outcome == Outcome::Unknown && !matches!(operation.action, Action::Get)
        });
        assert!(open.count() > 300);
        approve(&history);
    }
}

/// The write of each value, and every read of it.
struct Story {
    history: History,
}

impl Story {
    fn new(random: &mut Random) -> Story {
        let history = atomic::history(random, REGISTER);
        approve(&history);
        Story { history }
    }

    fn read(&self, id: OperationId) -> Option<Value> {
        match self.history.operation(id).outcome {
            Outcome::Ok(Answer::Value(value)) => value,
            _ => None,
        }
    }

    fn write_of(&self, value: Value) -> &Operation {
        let mut operations = self.history.operations().iter();
        operations.find(|operation| operation.action == Action::Set(value)).unwrap()
    }

    fn answer(&mut self, id: OperationId, value: Value) {
        let end = self.history.operation(id).end.unwrap();
        self.history.end(id, end, Outcome::Ok(Answer::Value(Some(value))));
    }

    /// Reads of some value, in the order in which they were sent.
    fn reads(&self) -> Vec<OperationId> {
        let mut reads: Vec<OperationId> = self.history.ids().filter(|id| self.read(*id).is_some()).collect();
        reads.sort_by_key(|id| self.history.operation(*id).start);
        reads
    }
}

fn is_before(one: &Operation, other: &Operation) -> bool {
    one.outcome != Outcome::Unknown && one.key == other.key && one.end.unwrap() < other.start
}

#[test]
fn a_stale_read_is_found() {
    let mut random = Random(12);
    for _ in 0..200 {
        let mut story = Story::new(&mut random);
        // A read returns a value that was overwritten before the read was sent.
        let reads = story.reads();
        let stale = reads[reads.len() / 2 + random.below(50) as usize];
        let read = *story.history.operation(stale);
        let writes = story.history.operations().iter().filter(|write| matches!(write.action, Action::Set(_)));
        let before: Vec<&Operation> = writes.filter(|write| is_before(write, &read)).collect();
        let old = *before[random.below(before.len() as u64) as usize];
        if !before.iter().any(|newer| is_before(&old, newer)) {
            continue;
        }
        let Action::Set(value) = old.action else { unreachable!() };
        story.answer(stale, value);
        let window = violation(&story.history);
        assert!(window.operations.contains(&stale), "{window:?}");
        assert!(window.operations.len() <= 3, "{window:?}");
    }
}

#[test]
fn a_lost_write_is_found() {
    let mut random = Random(13);
    let mut found = 0;
    for _ in 0..100 {
        let mut story = Story::new(&mut random);
        // An acknowledged write after which all reads return the previous value, until the next write.
        let reads = story.reads();
        let lost = story.read(reads[reads.len() / 2]).unwrap();
        let write = *story.write_of(lost);
        let earlier = |id: &&OperationId| {
            let read = story.history.operation(**id);
            is_before(read, &write) && is_before(story.write_of(story.read(**id).unwrap()), &write)
        };
        let Some(before) = reads.iter().rev().find(earlier).and_then(|id| story.read(*id)) else { continue };
        let changed: Vec<OperationId> =
            reads.into_iter().filter(|id| story.read(*id) == Some(lost)).collect();
        if write.outcome == Outcome::Unknown
            || !changed.iter().any(|id| is_before(&write, story.history.operation(*id)))
        {
            continue;
        }
        changed.iter().for_each(|id| story.answer(*id, before));
        let window = violation(&story.history);
        assert!(window.operations.iter().any(|id| changed.contains(id)), "{window:?}");
        assert!(window.operations.len() <= 3, "{window:?}");
        found += 1;
    }
    assert!(found > 30, "{found}");
}

#[test]
fn swapped_order_is_found() {
    let mut random = Random(14);
    let mut found = 0;
    for _ in 0..100 {
        let mut story = Story::new(&mut random);
        // Two reads, one after the other, of two values that were written one after the other.
        let reads = story.reads();
        let at = random.below(reads.len() as u64 - 20) as usize;
        let second = reads[at..].iter().find(|id| {
            let (one, two) = (story.read(reads[at]).unwrap(), story.read(**id).unwrap());
            is_before(story.history.operation(reads[at]), story.history.operation(**id))
                && is_before(story.write_of(one), story.write_of(two))
        });
        let Some(second) = second.copied() else { continue };
        let (one, two) = (story.read(reads[at]).unwrap(), story.read(second).unwrap());
        story.answer(reads[at], two);
        story.answer(second, one);
        let window = violation(&story.history);
        let swapped = [reads[at], second];
        assert!(window.operations.iter().any(|id| swapped.contains(id)), "{window:?}");
        assert!(window.operations.len() <= 3, "{window:?}");
        found += 1;
    }
    assert!(found > 30, "{found}");
}

#[test]
fn a_value_that_no_client_wrote_is_found() {
    let mut random = Random(15);
    for _ in 0..50 {
        let mut story = Story::new(&mut random);
        let reads = story.reads();
        let wrong = reads[random.below(reads.len() as u64) as usize];
        let value = story.history.value(b"from nowhere");
        story.answer(wrong, value);
        let window = violation(&story.history);
        assert_eq!(window.operations, [wrong]);
        assert!(window.origins.is_empty());
    }
}

#[test]
fn an_increment_that_was_applied_twice_is_found() {
    let mut random = Random(16);
    for _ in 0..50 {
        let shape = Shape { kinds: Kinds::Counter, keys: 1, unknown_one_in: 1_000_000, ..REGISTER };
        let mut history = atomic::history(&mut random, shape);
        approve(&history);
        let twice = 10 + random.below(200) as i64;
        for id in history.ids() {
            let operation = *history.operation(id);
            let answer = match operation.outcome {
                Outcome::Ok(Answer::Sum(sum)) if sum > twice => Answer::Sum(sum + 1),
                Outcome::Ok(Answer::Value(Some(value))) => {
                    let read: i64 = str::from_utf8(history.value_bytes(value)).unwrap().parse().unwrap();
                    let read = if read > twice { read + 1 } else { read };
                    Answer::Value(Some(history.value(read.to_string().as_bytes())))
                }
                Outcome::Ok(answer) => answer,
                other => panic!("{other:?}"),
            };
            history.end(id, operation.end.unwrap(), Outcome::Ok(answer));
        }
        let window = violation(&history);
        let seen = |id: &OperationId| match history.operation(*id).outcome {
            Outcome::Ok(Answer::Sum(sum)) => sum,
            Outcome::Ok(Answer::Value(Some(value))) => {
                str::from_utf8(history.value_bytes(value)).unwrap().parse().unwrap()
            }
            _ => 0,
        };
        assert!(window.operations.iter().any(|id| seen(id) > twice), "{window:?}");
        assert!(window.operations.len() <= 20, "{window:?}");
    }
}

#[test]
fn an_unknown_outcome_is_not_taken_for_a_failure() {
    let mut history = History::new();
    let (key, one, two) = (history.key(b"k"), history.value(b"1"), history.value(b"2"));
    let mut add = |client, action, start, end, outcome| {
        let id = history.begin(client, key, action, start);
        history.end(id, end, outcome);
        id
    };
    add(1, Action::Set(one), 0, 10, Outcome::Ok(Answer::Done));
    let open = add(2, Action::Set(two), 20, 30, Outcome::Unknown);
    add(3, Action::Get, 40, 50, Outcome::Ok(Answer::Value(Some(one))));
    add(3, Action::Get, 60, 70, Outcome::Ok(Answer::Value(Some(two))));
    approve(&history);
    history.end(open, 30, Outcome::Failed);
    violation(&history);
}

#[test]
fn an_exhausted_budget_gives_unknown() {
    let mut random = Random(17);
    let history = atomic::history(&mut random, Shape { keys: 1, ..REGISTER });
    let verdict = check::linearizable_within(&history, Limits { steps: 100 }, |_| false);
    assert!(matches!(verdict, Verdict::Unknown { .. }), "{verdict:?}");
    let verdict = check::linearizable_within(&history, Limits::default(), |_| true);
    assert!(matches!(verdict, Verdict::Unknown { .. }), "{verdict:?}");
}
