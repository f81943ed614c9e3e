//! Checks whether the answers about a list, a set or a sorted set can be right, including their order.
//!
//! A collection holds elements, which are numbers; those of a list are pushed once in its whole history. The entries of
//! a stream that a group has not delivered yet are a list, too: `XADD` pushes at its back, and `XREADGROUP >` takes from
//! its front. What is delivered is pending until it is acknowledged, in the same order.
//!
//! The search is that of Wing and Gong (1993), with a memory of the points at which it has failed (Lowe 2017): each is
//! given by the operations that took effect, and the collection that they left. It differs from the search for strings in
//! that one answer seldom determines the whole collection.
//!
//! **Unknown outcomes.** Such an operation may take effect at any time after its start, or never. Operations with equal
//! requests are tried in the order of their starts only, since they are interchangeable. For lists, two more rules do not
//! change the verdict. An element that no answer names is not pushed by an operation of unknown outcome: where it was
//! pushed, only operations of unknown outcome can have taken it out of the way, and leaving out both changes no answer. And
//! such an operation pops no element that an answer names as taken, since the element would be missing then.
//!
//! **Waiting.** A [`Action::Take`] of unknown outcome may take an element and give it back, to the front of the list, at
//! any later time: the element of a client that has died. Until then other clients do not see it. A [`Action::TakeLowest`]
//! gives its element back with its score, unless the sorted set has the element again by then.

mod state;
#[cfg(test)]
mod tests;

use state::State;
use std::collections::BTreeSet;

/// What a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Adds an element at the front of a list (`LPUSH`); answered by [`Answer::Done`].
    PushFront(u32),
    /// Adds an element at the back of a list (`RPUSH`); answered by [`Answer::Done`].
    PushBack(u32),
    /// Takes the first element (`LPOP`); answered by [`Answer::Element`].
    PopFront,
    /// Takes the last element (`RPOP`); answered by [`Answer::Element`].
    PopBack,
    /// Takes the first element, and waits for one if there is none (`BLPOP`); answered by [`Answer::Element`].
    Take,
    /// Moves the first element of a list to its back (`LMOVE LEFT RIGHT` with one key); answered by [`Answer::Element`].
    Rotate,
    /// Takes the first element, which is pending from then on (`XREADGROUP >`); answered by [`Answer::Element`].
    Deliver,
    /// Asks for the first pending element, on behalf of another consumer (`XAUTOCLAIM`); answered by
    /// [`Answer::Element`].
    Claim,
    /// Makes the first pending element no longer pending (`XACK`); answered by [`Answer::Element`].
    Acknowledge,
    /// Adds an element to a set (`SADD`); answered by [`Answer::Applied`].
    Add(u32),
    /// Removes an element from a set or a sorted set (`SREM`, `ZREM`); answered by [`Answer::Applied`].
    Remove(u32),
    /// Asks whether an element is in a set (`SISMEMBER`); answered by [`Answer::Applied`].
    Contains(u32),
    /// Takes any element of a set (`SPOP`); answered by [`Answer::Element`].
    Draw,
    /// Gives an element a score (`ZADD`); answered by [`Answer::Applied`], which is true if it is new.
    SetScore(u32, i64),
    /// Adds to an element's score, which counts as 0 if there is none (`ZINCRBY`); answered by [`Answer::Score`].
    AddScore(u32, i64),
    /// Takes the element with the lowest score; among equal scores, that with the lowest number (`ZPOPMIN`). Answered by
    /// [`Answer::Scored`].
    PopLowest,
    /// The same, and waits for an element if there is none (`BZPOPMIN`); answered by [`Answer::Scored`].
    TakeLowest,
}

impl Action {
    /// Whether it changes no collection with this answer. A rotation of a single element, or a score that the element has
    /// already, changes nothing either, but would change another collection with the same answer.
    fn changes_nothing_with(self, answer: Answer) -> bool {
        match (self, answer) {
            (Action::Contains(_) | Action::Claim, _) => true,
            (Action::Add(_) | Action::Remove(_), Answer::Applied(is_changed)) => !is_changed,
            (_, Answer::Element(element)) => element.is_none(),
            (_, Answer::Scored(element)) => element.is_none(),
            _ => false,
        }
    }
}

/// The answer that a client got. An answer of a kind that its action does not have is a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The element that was taken; `None` if there was none.
    Element(Option<u32>),
    /// Whether the operation changed the collection, or whether it found the element.
    Applied(bool),
    /// The sum.
    Score(i64),
    /// The element that was taken and its score; `None` if there was none.
    Scored(Option<(u32, i64)>),
}

/// One operation. Refused operations do not belong in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What the client requested.
    pub action: Action,
    /// When the request was sent.
    pub start: u64,
    /// When the answer came, and the answer; `None` if the outcome is unknown.
    pub answer: Option<(u64, Answer)>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// A correct store could have given these answers.
    Yes,
    /// No order of the operations explains the answers.
    No {
        /// The index of the operation that was due and impossible at the point where most answers were explained.
        stuck: usize,
        /// How many answers were explained there.
        explained: usize,
    },
    /// The search was given up.
    Undecided,
}

/// Checks the operations on one collection, which is empty at the beginning, within `steps` steps of search.
///
/// # Complexity
/// Exponential in the number of operations that run at one time; with few of them about linear in the total number.
pub fn explain(operations: &[Operation], steps: u64) -> Explained {
    let mut search = Search::new(operations, steps);
    let mut done = vec![0; operations.len().div_ceil(64)];
    match search.explore(&mut done, &State::default(), 0) {
        Some(true) => Explained::Yes,
        Some(false) => Explained::No { stuck: search.stuck, explained: search.most },
        None => Explained::Undecided,
    }
}

struct Search<'o> {
    operations: &'o [Operation],
    /// Those with answers, in the order of their ends.
    known: Vec<usize>,
    /// Those without answers that may matter, in the order of their starts.
    unknown: Vec<usize>,
    named: Named,
    failed: BTreeSet<(Vec<u64>, State)>,
    steps: u64,
    most: usize,
    stuck: usize,
}

/// The elements of a list that answers name.
struct Named {
    all: BTreeSet<u32>,
    /// The elements that have left the list.
    popped: BTreeSet<u32>,
}

impl Named {
    fn by(operations: &[Operation]) -> Named {
        let (mut all, mut popped) = (BTreeSet::new(), BTreeSet::new());
        for operation in operations {
            let Some((_, Answer::Element(Some(element)))) = operation.answer else { continue };
            all.insert(element);
            if matches!(operation.action, Action::PopFront | Action::PopBack | Action::Take) {
                popped.insert(element);
            }
        }
        Named { all, popped }
    }
}

impl<'o> Search<'o> {
    fn new(operations: &'o [Operation], steps: u64) -> Search<'o> {
        let named = Named::by(operations);
        let end = |index: &usize| operations[*index].answer.map(|(end, _)| end);
        let (mut known, mut unknown): (Vec<usize>, Vec<usize>) =
            (0..operations.len()).partition(|index| end(index).is_some());
        known.sort_by_key(end);
        unknown.sort_by_key(|index| operations[*index].start);
        unknown.retain(|index| match operations[*index].action {
            Action::PushFront(element) | Action::PushBack(element) => named.all.contains(&element),
            Action::Contains(_) | Action::Claim => false,
            _ => true,
        });
        let stuck = known.first().copied().unwrap_or_default();
        Search { operations, known, unknown, named, failed: BTreeSet::new(), steps, most: 0, stuck }
    }

    /// Returns whether all remaining answers can be explained from here; `None` when the steps are used up. `first`: at
    /// least this many of the known operations, in the order of their ends, took effect, and perhaps later ones.
    fn explore(&mut self, done: &mut Vec<u64>, state: &State, first: usize) -> Option<bool> {
        let is_done = |done: &[u64], index: usize| done[index / 64] >> (index % 64) & 1 == 1;
        let mut first = first;
        while self.known.get(first).is_some_and(|index| is_done(done, *index)) {
            first += 1;
        }
        let Some(due) = self.known.get(first).copied() else { return Some(true) };
        if self.failed.contains(&(done.clone(), state.clone())) {
            return Some(false);
        }
        if first > self.most {
            (self.most, self.stuck) = (first, due);
        }
        // The operation that takes effect next started before the first end among the remaining ones.
        let bound = self.operations[due].answer.map_or(u64::MAX, |(end, _)| end);
        for place in first..self.known.len() {
            let index = self.known[place];
            let Operation { action, start, answer } = self.operations[index];
            let Some((_, answer)) = answer else { unreachable!("it is known") };
            if start > bound || is_done(done, index) {
                continue;
            }
            self.steps = self.steps.checked_sub(1)?;
            let Some(next) = state.answering(action, answer) else { continue };
            if self.go(done, index, &next, first)? {
                return Some(true);
            }
            if action.changes_nothing_with(answer) {
                // This operation has to take effect at some time, and may as well do so now: if that is impossible, so is
                // everything from here.
                self.failed.insert((done.clone(), state.clone()));
                return Some(false);
            }
        }
        let mut tried = BTreeSet::new();
        for place in 0..self.unknown.len() {
            let index = self.unknown[place];
            let Operation { action, start, .. } = self.operations[index];
            if start > bound {
                break;
            }
            if is_done(done, index) || !tried.insert(action) {
                continue;
            }
            for next in state.unanswered(action, &self.named) {
                self.steps = self.steps.checked_sub(1)?;
                if self.go(done, index, &next, first)? {
                    return Some(true);
                }
            }
        }
        for next in state.returns() {
            self.steps = self.steps.checked_sub(1)?;
            if self.explore(done, &next, first)? {
                return Some(true);
            }
        }
        self.failed.insert((done.clone(), state.clone()));
        Some(false)
    }

    fn go(&mut self, done: &mut Vec<u64>, index: usize, next: &State, first: usize) -> Option<bool> {
        done[index / 64] |= 1 << (index % 64);
        let found = self.explore(done, next, first);
        done[index / 64] &= !(1 << (index % 64));
        found
    }
}
