//! Narrows a violation down to the shortest impossible window.
//!
//! A key's history may hold thousands of operations when three of them are the reason why it is impossible. These are
//! found by weakening the history for as long as it stays impossible. Each way to weaken it is sound: any
//! linearization of the whole history would also be one of the weaker history. What is left at the end is therefore a
//! proof.
//!
//! 1. **Cut off the end** after an instant T: what started later is left out, and what had not ended becomes unknown.
//! 2. **Cut off the beginning** before an instant S: what ended by S is left out, and the key may hold anything then.
//!    What was running at S becomes unknown: it may have taken effect before S, and so be part of what the key holds,
//!    or later.
//! 3. **Forget answers**, one operation after the other: its outcome becomes unknown. A write is never simply left
//!    out, because a read of its value would then be impossible for no reason.

use super::{check_from_any, check_key};
use crate::history::{Answer, History, Key, Operation, OperationId, Outcome, Value};
use crate::search::{Budget, Found};
use crate::window::Window;

/// Steps that one attempt to weaken the history may take, in addition to steps for each operation. An attempt that
/// takes more is given up: the window stays longer than it could be, and is a proof all the same.
const STEPS_PER_ATTEMPT: u64 = 1 << 16;
const STEPS_PER_OPERATION: u64 = 16;

/// Narrows the impossible history of one key down to a window.
pub(crate) fn narrow(
    history: &History,
    key: Key,
    ids: &[OperationId],
    operations: &[Operation],
    budget: &mut Budget,
) -> Window {
    let mut narrowing = Narrowing {
        history,
        operations,
        until: u64::MAX,
        after: None,
        is_known: operations.iter().map(|operation| matches!(operation.outcome, Outcome::Ok(_))).collect(),
    };
    narrowing.cut_end(budget);
    // Without its beginning a history is often, but not always, shorter to explain: to show that no client wrote a
    // value, all of it is needed.
    let mut whole = narrowing.clone();
    narrowing.cut_beginning(budget);
    narrowing.forget_answers(budget);
    if narrowing.after.is_some() {
        whole.forget_answers(budget);
        if whole.size() < narrowing.size() {
            narrowing = whole;
        }
    }

    let mut window: Vec<usize> = (0..ids.len()).filter(|index| narrowing.is_known[*index]).collect();
    window.sort_by_key(|index| (operations[*index].start, operations[*index].end));
    let last = window.iter().copied().max_by_key(|index| operations[*index].end).unwrap_or(0);
    let observed: Vec<_> = window.iter().filter_map(|index| observed(&operations[*index])).collect();
    let is_origin = |index: usize| {
        let operation = &operations[index];
        !matches!(operation.outcome, Outcome::Failed | Outcome::Ok(Answer::Applied(false)))
            && operation.start <= narrowing.until
            && operation.action.stores().is_some_and(|value| observed.contains(&value))
    };
    let mut origins: Vec<usize> =
        (0..ids.len()).filter(|index| !narrowing.is_known[*index] && is_origin(*index)).collect();
    origins.sort_by_key(|index| (operations[*index].start, operations[*index].end));
    Window {
        key,
        operations: window.into_iter().map(|index| ids[index]).collect(),
        culprit: ids[last],
        origins: origins.into_iter().map(|index| ids[index]).collect(),
        is_from_any: narrowing.after.is_some(),
        breach: None,
    }
}

/// Returns the value in an operation's answer.
fn observed(operation: &Operation) -> Option<Value> {
    match operation.outcome {
        Outcome::Ok(Answer::Value(value)) => value,
        _ => None,
    }
}

/// A weakened history that is still impossible.
#[derive(Clone)]
struct Narrowing<'h> {
    history: &'h History,
    operations: &'h [Operation],
    /// Operations that start later are left out.
    until: u64,
    /// Operations that ended by then are left out, and the key may hold anything then.
    after: Option<u64>,
    /// For each operation, whether its answer counts.
    is_known: Vec<bool>,
}

impl Narrowing<'_> {
    /// Returns the instants at which an operation of the present window ended, in order.
    fn ends(&self) -> Vec<u64> {
        let operations = self.operations.iter().zip(&self.is_known).filter(|(_, is_known)| **is_known);
        let mut ends: Vec<u64> = operations.filter_map(|(operation, _)| operation.end).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// Returns how many answers count.
    fn size(&self) -> usize {
        self.is_known.iter().filter(|is_known| **is_known).count()
    }

    fn cut_end(&mut self, budget: &mut Budget) {
        // Impossible up to ends[high], not shown to be so up to ends[low - 1].
        let ends = self.ends();
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_impossible(ends[middle], None, &self.is_known, budget) {
                (high, self.until) = (middle, ends[middle]);
            } else {
                low = middle + 1;
            }
        }
        self.forget_outside();
    }

    fn cut_beginning(&mut self, budget: &mut Budget) {
        // Impossible after ends[low - 1], not shown to be so after ends[high].
        let ends = self.ends();
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_impossible(self.until, Some(ends[middle]), &self.is_known, budget) {
                (low, self.after) = (middle + 1, Some(ends[middle]));
            } else {
                high = middle;
            }
        }
        self.forget_outside();
    }

    /// Forgets the answers that are outside the cuts and therefore do not count.
    fn forget_outside(&mut self) {
        for (operation, is_known) in self.operations.iter().zip(&mut self.is_known) {
            let is_late = operation.end.is_none_or(|end| end > self.until);
            let is_early = self.after.is_some_and(|after| operation.start <= after);
            *is_known &= !is_late && !is_early;
        }
    }

    /// Forgets answers in ever smaller runs, the oldest first.
    fn forget_answers(&mut self, budget: &mut Budget) {
        let mut known: Vec<usize> =
            (0..self.operations.len()).filter(|index| self.is_known[*index]).collect();
        known.sort_by_key(|index| self.operations[*index].end);
        let mut run = known.len();
        while run > 0 {
            let mut at = 0;
            while at < known.len() {
                let part = known[at..known.len().min(at + run)].to_vec();
                let mut is_known = self.is_known.clone();
                part.iter().for_each(|index| is_known[*index] = false);
                if part.len() < known.len() && self.is_impossible(self.until, self.after, &is_known, budget) {
                    self.is_known = is_known;
                    known.drain(at..at + part.len());
                } else {
                    at += run;
                }
            }
            run /= 2;
        }
    }

    /// Whether it can be shown at little cost that the weakened history is impossible.
    fn is_impossible(&self, until: u64, after: Option<u64>, is_known: &[bool], budget: &mut Budget) -> bool {
        if (budget.interrupt)() {
            return false;
        }
        let mut operations = Vec::new();
        for (operation, is_known) in self.operations.iter().zip(is_known) {
            let is_before = operation.end.is_some_and(|end| after.is_some_and(|after| end <= after));
            let never = operation.outcome == Outcome::Failed || operation.start > until;
            // Operations answered by the cut are left out; the end of one with an unknown outcome means nothing.
            if never || is_before && operation.outcome != Outcome::Unknown {
                continue;
            }
            let is_late = operation.end.is_none_or(|end| end > until);
            let is_running = after.is_some_and(|after| operation.start <= after);
            let mut operation = *operation;
            if is_late || is_running || !is_known {
                operation.outcome = Outcome::Unknown;
            }
            operations.push(operation);
        }
        let steps = STEPS_PER_ATTEMPT + STEPS_PER_OPERATION * operations.len() as u64;
        let mut attempt = Budget { steps: budget.steps.min(steps), interrupt: &mut *budget.interrupt };
        let given = attempt.steps;
        let found = match after {
            None => check_key(self.history, &operations, &mut attempt),
            Some(_) => check_from_any(self.history, &operations, &mut attempt),
        };
        let spent = given - attempt.steps;
        budget.steps -= spent;
        found == Found::Impossible
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Action;
    use crate::{Verdict, linearizable};

    #[test]
    fn a_window_contains_the_contradiction_and_the_origins_of_its_values() {
        let mut history = History::new();
        let (key, one, two) = (history.key(b"k"), history.value(b"1"), history.value(b"2"));
        let mut ids = Vec::new();
        let mut add = |action, start, outcome| {
            let id = history.begin(7, key, action, start);
            history.end(id, start + 5, outcome);
            ids.push(id);
        };
        let read = |value| Outcome::Ok(Answer::Value(Some(value)));
        add(Action::Set(one), 0, Outcome::Ok(Answer::Done));
        add(Action::SetIfAbsent(one), 10, Outcome::Ok(Answer::Applied(false)));
        add(Action::Get, 20, read(one));
        add(Action::Set(two), 30, Outcome::Ok(Answer::Done));
        add(Action::Set(one), 40, Outcome::Failed);
        add(Action::Get, 50, read(one));
        add(Action::Get, 60, read(two));
        let Verdict::Violation(window) = linearizable(&history) else { panic!("it is impossible") };
        assert_eq!(window.operations, [ids[3], ids[5]]);
        assert_eq!(window.culprit, ids[5]);
        assert_eq!(window.origins, [ids[0]], "what was not applied, or refused, brought nothing about");
        assert!(window.is_from_any);
    }
}
