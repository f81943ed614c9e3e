//! Decides what can be decided about a key's operations before any search.
//!
//! Every rule here keeps the answer: the prepared operations have a linearization exactly if the given ones have.
//!
//! 1. **Operations without information are dropped**: failed ones, and reads with an unknown outcome.
//! 2. **Values reveal order.** If only one operation can produce a value (values that tests write are mostly unique),
//!    it comes before all operations that observe the value. So it took effect before the first of them ended, and
//!    none of them took effect before it started; the intervals shrink accordingly. If its outcome was unknown, it is
//!    known now. An interval that becomes empty is a contradiction, and so is a value that no operation can have
//!    produced.
//! 3. **Unknown writes whose value no operation read are dropped**, on keys with only reads and unconditional writes.
//!    Take any linearization with such a write in it. The operation after the write is not a read, because no read
//!    returned its value (and a read that ended before the write started could not have); so it is another write, or
//!    the end. Without the write, all the others are as possible as before.
//! 4. **Values that no operation depends on are one value.** No operation is possible with one of them and impossible
//!    with another, so they are interchangeable. (With unknown increments, integers are not: they lead to different
//!    sums.)
//! 5. **Unknown operations that do the same are interchangeable**, so they form a class: of those that a
//!    linearization uses, we may take the ones that started first.

use std::collections::BTreeSet;

use crate::history::{History, Operation, Outcome};
use crate::model::{ABSENT, Model, State, Step};

/// An operation that took effect between two instants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) step: Step,
}

/// Operations with an unknown outcome and the same effect.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) step: Step,
    /// The instants at which they started, in order.
    pub(crate) starts: Vec<u64>,
}

/// What a key holds before the first operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initial {
    /// A state that occurs in the operations, or [`ABSENT`].
    State(State),
    /// An integer.
    Integer(i64),
    /// A value that occurs in no operation.
    Other,
}

/// The most initial states to try.
const INITIAL_STATES_MAX: usize = 256;

/// A key's operations, ready for the search.
pub(crate) struct Prepared {
    pub(crate) model: Model,
    /// The state before the first operation.
    pub(crate) initial: State,
    /// Sorted by start.
    pub(crate) closed: Vec<Closed>,
    pub(crate) open: Vec<Class>,
    /// By state: the number of closed operations that are possible in this state only.
    pub(crate) observers: Vec<u32>,
    /// By state: the number of operations that can produce it.
    pub(crate) producers: Vec<u32>,
    /// Whether there are only reads and unconditional writes.
    pub(crate) is_plain: bool,
    /// Whether a state that was left can return.
    pub(crate) comeback: StateRecurrence,
}

/// Whether a state that was left can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateRecurrence {
    /// No: the key's integer only grows, or only shrinks.
    Never,
    /// Only if one of the state's producers has yet to take effect.
    ByProducer,
    /// Possibly, as a sum of unknown increments.
    BySum,
}

/// No order of the operations is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction;

struct Item {
    start: u64,
    /// `None` while it is open.
    end: Option<u64>,
    step: Step,
}

/// Prepares the operations of one key.
pub(crate) fn prepare(
    history: &History,
    operations: &[Operation],
    initial: Initial,
) -> Result<Prepared, Contradiction> {
    let (mut model, mut items) = compile(history, operations);
    let initial = match initial {
        Initial::State(state) => state,
        Initial::Integer(integer) => model.state_of(integer),
        Initial::Other => model.other_state(),
    };
    let has_sums = items.iter().any(|item| matches!(item.step, Step::MayAdd(_)));
    shrink(&mut items, &model, initial, has_sums)?;

    let is_plain = items.iter().all(|item| matches!(item.step, Step::Observe(_) | Step::Write(_)));
    if is_plain {
        drop_unread(&mut items, model.states());
    }
    merge_unobserved(&mut items, &mut model, initial, has_sums);
    let comeback = match has_sums {
        _ if is_monotone(&items, &model) => StateRecurrence::Never,
        true => StateRecurrence::BySum,
        false => StateRecurrence::ByProducer,
    };

    let mut observers = vec![0; model.states()];
    let mut producers = vec![0; model.states()];
    let mut closed = Vec::with_capacity(items.len());
    let mut open: Vec<(Step, u64)> = Vec::new();
    for item in &items {
        if let Some(state) = item.step.produces() {
            producers[state as usize] += 1;
        }
        match item.end {
            Some(end) => {
                if let Some(state) = item.step.observes() {
                    observers[state as usize] += 1;
                }
                closed.push(Closed { start: item.start, end, step: item.step });
            }
            None => open.push((item.step, item.start)),
        }
    }
    closed.sort_by_key(|operation| (operation.start, operation.end));
    open.sort_unstable();
    let open = open
        .chunk_by(|one, other| one.0 == other.0)
        .map(|class| Class { step: class[0].0, starts: class.iter().map(|(_, start)| *start).collect() })
        .collect();
    Ok(Prepared { model, initial, closed, open, observers, producers, is_plain, comeback })
}

/// Returns the initial states to try where any is allowed: if the operations are possible from some state, then from
/// one of these. `None` if there are too many.
///
/// Take a linearization in which each unknown operation stands right before the closed one that needs it (see
/// `search`), and in it the first closed operation that does more than find that the state is not a certain one. If
/// it needs one state (an increment that found nothing: one of two), then the initial state is that one, or unknown
/// operations lead from the initial state to it. If it does not, or if an unconditional unknown write stands before
/// it, then a value different from all others will do. That operation comes before all writes, so it starts before
/// the first of them ends.
pub(crate) fn initial_states(history: &History, operations: &[Operation]) -> Option<Vec<Initial>> {
    let (mut model, items) = compile(history, operations);
    let occurring = model.states();
    let writes = items.iter().filter(|item| !item.step.is_observation());
    let first_end = writes.filter_map(|item| item.end).min().unwrap_or(u64::MAX);
    let early = items.iter().filter(|item| item.end.is_some() && item.start <= first_end);
    let needed = early.filter_map(|item| match item.step {
        Step::Add { from, .. } => Some(from),
        step => step.observes(),
    });
    let mut open: Vec<Step> = items.iter().filter(|item| item.end.is_none()).map(|item| item.step).collect();
    let most = open.len();
    open.sort_unstable();
    open.dedup();
    // Backwards over unknown operations, at most as often as there are any.
    let mut states: BTreeSet<State> = needed.chain([ABSENT]).collect();
    let mut newest: Vec<State> = states.iter().copied().collect();
    for _ in 0..most {
        let mut before = Vec::new();
        for (state, step) in newest.iter().flat_map(|state| open.iter().map(|step| (*state, *step))) {
            match step {
                Step::MayReplace { from, to } if to == state => before.push(from),
                Step::MayAdd(delta) if state != ABSENT => {
                    let integer = model.integer(state).and_then(|integer| integer.checked_sub(delta));
                    before.extend(integer.map(|integer| model.state_of(integer)));
                }
                _ => {}
            }
        }
        before.retain(|state| states.insert(*state));
        if before.is_empty() {
            break;
        }
        if states.len() > INITIAL_STATES_MAX {
            return None;
        }
        newest = before;
    }
    let initial = states.into_iter().map(|state| match model.integer(state) {
        Some(integer) if state as usize >= occurring => Initial::Integer(integer),
        _ => Initial::State(state),
    });
    Some(initial.chain([Initial::Other]).collect())
}

fn compile(history: &History, operations: &[Operation]) -> (Model, Vec<Item>) {
    let mut model = Model::new(history, operations);
    let mut items = Vec::with_capacity(operations.len());
    for operation in operations {
        if let Some(step) = model.compile(operation) {
            let end = match operation.outcome {
                Outcome::Unknown => None,
                _ => Some(operation.end.unwrap_or(u64::MAX)),
            };
            items.push(Item { start: operation.start, end, step });
        }
    }
    (model, items)
}

/// What is known of the operations that produce or observe one state.
#[derive(Clone, Copy)]
struct Tie {
    producers: u32,
    /// One of the producers, perhaps the only one.
    producer: usize,
    is_observed: bool,
    first_end: u64,
}

/// Rule 2.
fn shrink(items: &mut [Item], model: &Model, initial: State, has_sums: bool) -> Result<(), Contradiction> {
    let none = Tie { producers: 0, producer: 0, is_observed: false, first_end: u64::MAX };
    let mut ties = vec![none; model.states()];
    for (index, item) in items.iter().enumerate() {
        if let Some(state) = item.step.produces() {
            ties[state as usize].producers += 1;
            ties[state as usize].producer = index;
        }
        // Only closed operations observe.
        if let (Some(state), Some(end)) = (item.step.observes(), item.end) {
            ties[state as usize].is_observed = true;
            ties[state as usize].first_end = ties[state as usize].first_end.min(end);
        }
    }
    // The initial state needs no producer, and a sum of unknown increments has producers beyond those counted.
    let is_counted = |state: State| state != initial && !(has_sums && model.integer(state).is_some());
    for (state, tie) in (0..).zip(&ties).filter(|(state, tie)| tie.is_observed && is_counted(*state)) {
        match tie.producers {
            0 => return Err(Contradiction),
            1 => {
                let producer = &mut items[tie.producer];
                producer.end = Some(producer.end.map_or(tie.first_end, |end| end.min(tie.first_end)));
                if let Step::MayReplace { from, to } = producer.step {
                    producer.step = Step::Replace { from, to };
                }
                debug_assert_eq!(producer.step.produces(), Some(state));
            }
            _ => {}
        }
    }
    for index in 0..items.len() {
        if let Some(state) = items[index].step.observes().filter(|state| is_counted(*state))
            && ties[state as usize].producers == 1
        {
            items[index].start = items[index].start.max(items[ties[state as usize].producer].start);
        }
    }
    if items.iter().any(|item| item.end.is_some_and(|end| end < item.start)) {
        return Err(Contradiction);
    }
    Ok(())
}

/// Rule 3.
fn drop_unread(items: &mut Vec<Item>, states: usize) {
    let mut last_read = vec![None; states];
    for item in items.iter() {
        if let Some(state) = item.step.observes() {
            last_read[state as usize] = last_read[state as usize].max(item.end);
        }
    }
    items.retain(|item| match (item.end, item.step.produces()) {
        (None, Some(state)) => last_read[state as usize].is_some_and(|end| end >= item.start),
        _ => true,
    });
}

/// Rule 4.
fn merge_unobserved(items: &mut [Item], model: &mut Model, initial: State, has_sums: bool) {
    let mut is_observed = vec![false; model.states()];
    is_observed[ABSENT as usize] = true;
    is_observed[initial as usize] = true;
    for item in items.iter() {
        match item.step {
            Step::Observe(state) | Step::ObserveNot(state) => is_observed[state as usize] = true,
            Step::Replace { from, .. } | Step::MayReplace { from, .. } | Step::Add { from, .. } => {
                is_observed[from as usize] = true;
            }
            Step::Write(_) | Step::Remove | Step::MayAdd(_) | Step::Impossible => {}
        }
    }
    let other = model.other_state();
    for item in items {
        if let Step::Write(to) | Step::Replace { to, .. } | Step::MayReplace { to, .. } = &mut item.step
            && !is_observed[*to as usize]
            && !(has_sums && model.integer(*to).is_some())
        {
            *to = other;
        }
    }
}

/// Whether the key's integer only grows, or only shrinks: then no state returns.
fn is_monotone(items: &[Item], model: &Model) -> bool {
    let mut signs = [false; 2];
    for item in items {
        match item.step {
            Step::MayAdd(delta) => signs[usize::from(delta > 0)] |= delta != 0,
            Step::Add { from, to, .. } => {
                signs[usize::from(model.integer(to) > model.integer(from))] |= from != to
            }
            step if step.is_observation() => {}
            _ => return false,
        }
    }
    !(signs[0] && signs[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Action, Answer};

    /// Client, action, start, end (`None` if open), answer.
    fn prepared(
        history: &mut History,
        operations: &[(Action, u64, Option<u64>, Outcome)],
    ) -> Result<Prepared, Contradiction> {
        let key = history.key(b"k");
        for (action, start, end, outcome) in operations {
            let id = history.begin(0, key, *action, *start);
            if let Some(end) = end {
                history.end(id, *end, *outcome);
            }
        }
        prepare(history, history.operations(), Initial::State(ABSENT))
    }

    #[test]
    fn an_unknown_write_ends_with_its_first_read() {
        let mut history = History::new();
        let value = history.value(b"v");
        let read = Outcome::Ok(Answer::Value(Some(value)));
        let set = (Action::Set(value), 10, None, Outcome::Unknown);
        let reads = [(Action::Get, 40, Some(60), read), (Action::Get, 5, Some(50), read)];
        let prepared = prepared(&mut history, &[set, reads[0], reads[1]]).unwrap();
        assert!(prepared.open.is_empty());
        let intervals: Vec<(u64, u64)> =
            prepared.closed.iter().map(|closed| (closed.start, closed.end)).collect();
        assert_eq!(intervals, [(10, 50), (10, 50), (40, 60)], "and no read takes effect before it");
    }

    #[test]
    fn an_unread_unknown_write_is_dropped_on_plain_keys_only() {
        let mut history = History::new();
        let (one, two) = (history.value(b"1"), history.value(b"2"));
        let unread = (Action::Set(one), 10, None, Outcome::Unknown);
        let set = (Action::Set(two), 0, Some(5), Outcome::Ok(Answer::Done));
        assert!(prepared(&mut history, &[unread, set]).unwrap().open.is_empty());
        let not_absent = (Action::SetIfAbsent(two), 20, Some(30), Outcome::Ok(Answer::Applied(false)));
        let prepared = prepared(&mut history, &[not_absent]).unwrap();
        assert_eq!(prepared.open.len(), 1, "it may be why the key is there");
    }

    #[test]
    fn a_value_from_nowhere_and_a_value_from_the_future_are_contradictions() {
        let mut history = History::new();
        let value = history.value(b"v");
        let read = (Action::Get, 10, Some(20), Outcome::Ok(Answer::Value(Some(value))));
        assert!(prepared(&mut history.clone(), &[read]).is_err());
        let late = (Action::Set(value), 30, Some(40), Outcome::Ok(Answer::Done));
        assert!(prepared(&mut history, &[read, late]).is_err());
    }

    #[test]
    fn unknown_operations_with_the_same_effect_form_a_class() {
        let mut history = History::new();
        let value = history.value(b"3");
        let open = |delta, start| (Action::Increment(delta), start, None, Outcome::Unknown);
        let read = (Action::Get, 90, Some(99), Outcome::Ok(Answer::Value(Some(value))));
        let prepared = prepared(&mut history, &[open(1, 30), open(2, 20), read, open(1, 10)]).unwrap();
        let classes: Vec<(Step, Vec<u64>)> =
            prepared.open.iter().map(|class| (class.step, class.starts.clone())).collect();
        assert_eq!(classes, [(Step::MayAdd(1), vec![10, 30]), (Step::MayAdd(2), vec![20])]);
        assert_eq!(prepared.comeback, StateRecurrence::Never, "the number only grows");
    }
}
