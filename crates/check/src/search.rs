//! The search for a linearization of one key's operations.
//!
//! This is the algorithm of Wing and Gong (1993) with Lowe's memoisation (2017). Calls and returns form a linked list
//! in the order of time. An operation whose call precedes the first return may take effect next: its call and return
//! are lifted out of the list. When none can, the last one is put back and another one is tried. A point that failed
//! once (the operations that took effect and the state they left) is remembered and not tried again. When all closed
//! operations are lifted, the order of lifting is a linearization.
//!
//! Three rules skip orders that make no difference. None of them loses a linearization.
//!
//! * **An operation that can come next without loss comes next.** An observation that is possible now may take effect
//!   now: in any linearization that continues from here it can be moved to the front, as it changes nothing. On plain
//!   keys, the same holds for a write whose value no remaining operation reads, if none reads the present value
//!   either: the next operation is a write anyway and hides it, and where it stood a write followed.
//! * **A state that is still to be observed must not be lost.** A state that a remaining operation observes is not
//!   left if it cannot return.
//! * **Unknown operations come last.** One takes effect only right before a closed operation that is impossible
//!   without it. If the closed one is possible without it, then either the closed one leaves the same state anyway,
//!   and the unknown one can be left out, or it changes nothing, and the unknown one may as well come after it. (This
//!   is the property of steps that `model` states.) For the same reason an unconditional write is only ever the first
//!   of several unknown operations in a row.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashTable;

use crate::model::{ABSENT, State, Step};
use crate::prepare::{Closed, Prepared, StateRecurrence};

/// The budget of a search.
pub(crate) struct Budget<'b> {
    /// The steps that are left.
    pub(crate) steps: u64,
    /// Called periodically; a true result ends the search.
    pub(crate) interrupt: &'b mut dyn FnMut() -> bool,
}

/// Steps between two calls of `interrupt`.
const INTERRUPT_EVERY: u64 = 1 << 14;

/// The memory of failed points, in words of 4 bytes; a search that needs more is given up.
const MEMORY_WORDS: usize = 1 << 28;

impl Budget<'_> {
    /// Counts steps.
    fn spend(&mut self, steps: usize) -> Result<(), Exhausted> {
        let before = self.steps;
        self.steps = self.steps.saturating_sub(steps as u64);
        if self.steps / INTERRUPT_EVERY != before / INTERRUPT_EVERY && (self.interrupt)() {
            self.steps = 0;
        }
        if self.steps == 0 { Err(Exhausted) } else { Ok(()) }
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is a linearization.
    Possible,
    /// There is no linearization.
    Impossible,
    /// The budget ran out.
    Nothing,
}

/// Searches for a linearization.
pub(crate) fn search(prepared: Prepared, budget: &mut Budget) -> Found {
    Search::new(prepared).run(budget).unwrap_or(Found::Nothing)
}

/// The budget is used up.
struct Exhausted;

/// Calls and returns in the order of time, as a doubly linked list. Place 0 is before the first and after the last.
struct Timeline {
    next: Vec<u32>,
    previous: Vec<u32>,
    /// For each place, its operation, and whether it is the operation's return.
    entries: Vec<(u32, bool)>,
    /// The places of each operation's call and return.
    places: Vec<(u32, u32)>,
}

impl Timeline {
    fn new(closed: &[Closed]) -> Timeline {
        let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * closed.len());
        for (number, operation) in (0..).zip(closed) {
            // At the same instant, calls come before returns: operations that touch are concurrent.
            events.push((operation.start, false, number));
            events.push((operation.end, true, number));
        }
        events.sort_unstable();
        let count = events.len() as u32;
        let mut places = vec![(0, 0); closed.len()];
        let mut entries = vec![(0, false)];
        for (place, (_, is_return, number)) in (1..).zip(events) {
            let places = &mut places[number as usize];
            *(if is_return { &mut places.1 } else { &mut places.0 }) = place;
            entries.push((number, is_return));
        }
        let next = (1..=count).chain([0]).collect();
        let previous = [count].into_iter().chain(0..count).collect();
        Timeline { next, previous, entries, places }
    }

    fn lift(&mut self, operation: u32) {
        let (call, end) = self.places[operation as usize];
        for place in [call, end] {
            let (before, after) = (self.previous[place as usize], self.next[place as usize]);
            self.next[before as usize] = after;
            self.previous[after as usize] = before;
        }
    }

    /// Undoes the last [`Timeline::lift`] that has not been undone yet.
    fn put_back(&mut self, operation: u32) {
        let (call, end) = self.places[operation as usize];
        for place in [end, call] {
            let (before, after) = (self.previous[place as usize], self.next[place as usize]);
            self.next[before as usize] = place;
            self.previous[after as usize] = place;
        }
    }
}

/// A closed operation that may take effect next, after some unknown ones.
#[derive(Clone, Copy)]
struct Move {
    operation: u32,
    /// The unknown operations: a part of `Search::plans`.
    plan: (u32, u32),
    state: State,
}

/// A point of the search: its possible moves, and the situation before the last move.
struct Frame {
    /// Its moves are those of `Search::moves` from this index on.
    moves: u32,
    plans: u32,
    next: u32,
    /// The state and the highest number before the last move.
    state: State,
    highest: u32,
}

struct Search {
    prepared: Prepared,
    timeline: Timeline,
    state: State,
    /// The highest number of an operation that took effect, plus one.
    highest: u32,
    /// For each class of unknown operations, how many took effect.
    used: Vec<u32>,
    /// By state: the classes of unknown operations that can produce it.
    open_producers: BTreeMap<State, Vec<u32>>,
    /// The classes of unknown increments.
    open_sums: Vec<u32>,
    frames: Vec<Frame>,
    moves: Vec<Move>,
    plans: Vec<u32>,
    failed: Memory,
}

impl Search {
    fn new(prepared: Prepared) -> Search {
        let mut open_producers: BTreeMap<State, Vec<u32>> = BTreeMap::new();
        let mut open_sums = Vec::new();
        for (number, class) in (0..).zip(&prepared.open) {
            match class.step.produces() {
                Some(state) => open_producers.entry(state).or_default().push(number),
                None => open_sums.push(number),
            }
        }
        Search {
            timeline: Timeline::new(&prepared.closed),
            state: prepared.initial,
            highest: 0,
            used: vec![0; prepared.open.len()],
            open_producers,
            open_sums,
            frames: Vec::new(),
            moves: Vec::new(),
            plans: Vec::new(),
            failed: Memory::default(),
            prepared,
        }
    }

    fn run(&mut self, budget: &mut Budget) -> Result<Found, Exhausted> {
        while self.timeline.next[0] != 0 {
            self.find_moves(budget)?;
            // Continue from here, or from the last point that has a move left.
            loop {
                let Some(frame) = self.frames.last_mut() else { return Ok(Found::Impossible) };
                if let Some(next) = self.moves.get(frame.next as usize).copied() {
                    frame.next += 1;
                    (frame.state, frame.highest) = (self.state, self.highest);
                    self.make(next);
                    break;
                }
                self.moves.truncate(frame.moves as usize);
                self.plans.truncate(frame.plans as usize);
                self.frames.pop();
                self.take_back();
            }
        }
        Ok(Found::Possible)
    }

    fn make(&mut self, next: Move) {
        self.timeline.lift(next.operation);
        self.state = next.state;
        self.highest = self.highest.max(next.operation + 1);
        let step = self.prepared.closed[next.operation as usize].step;
        if let Some(state) = step.observes() {
            self.prepared.observers[state as usize] -= 1;
        }
        if let Some(state) = step.produces() {
            self.prepared.producers[state as usize] -= 1;
        }
        for index in next.plan.0..next.plan.1 {
            let class = self.plans[index as usize] as usize;
            self.used[class] += 1;
            if let Some(state) = self.prepared.open[class].step.produces() {
                self.prepared.producers[state as usize] -= 1;
            }
        }
    }

    /// Undoes the last move of the last frame, if there is one.
    fn take_back(&mut self) {
        let Some(frame) = self.frames.last() else { return };
        let last = self.moves[frame.next as usize - 1];
        (self.state, self.highest) = (frame.state, frame.highest);
        self.timeline.put_back(last.operation);
        let step = self.prepared.closed[last.operation as usize].step;
        if let Some(state) = step.observes() {
            self.prepared.observers[state as usize] += 1;
        }
        if let Some(state) = step.produces() {
            self.prepared.producers[state as usize] += 1;
        }
        for index in last.plan.0..last.plan.1 {
            let class = self.plans[index as usize] as usize;
            self.used[class] -= 1;
            if let Some(state) = self.prepared.open[class].step.produces() {
                self.prepared.producers[state as usize] += 1;
            }
        }
    }

    /// Adds a frame with all moves from here. It has none where nothing is possible, or where all of it has failed
    /// before.
    fn find_moves(&mut self, budget: &mut Budget) -> Result<(), Exhausted> {
        let first = self.moves.len();
        let (moves, plans) = (first as u32, self.plans.len() as u32);
        self.frames.push(Frame { moves, plans, next: moves, state: self.state, highest: self.highest });
        let mut place = self.timeline.next[0];
        loop {
            let (operation, is_return) = self.timeline.entries[place as usize];
            if is_return {
                break;
            }
            place = self.timeline.next[place as usize];
            budget.spend(1)?;
            let step = self.prepared.closed[operation as usize].step;
            let Some(state) = self.prepared.model.step(self.state, step) else {
                self.plan(operation, step, budget)?;
                continue;
            };
            let plan = (plans, plans);
            if step.is_observation() || self.is_blind(step) {
                self.moves.truncate(first);
                self.plans.truncate(plans as usize);
                self.moves.push(Move { operation, plan, state });
                return Ok(());
            }
            if !self.loses(step, state) {
                self.moves.push(Move { operation, plan, state });
            }
        }
        if self.moves.len() - first > 1 {
            if self.was_here(budget)? {
                self.moves.truncate(first);
                return Ok(());
            }
            // The most urgent moves are tried first, with as few unknown operations as possible.
            let closed = &self.prepared.closed;
            self.moves[first..]
                .sort_by_key(|next| (closed[next.operation as usize].end, next.plan.1 - next.plan.0));
        }
        Ok(())
    }

    /// Returns the first return of a remaining operation: the next one must take effect by then.
    fn first_return(&self) -> u64 {
        let mut place = self.timeline.next[0];
        loop {
            let (operation, is_return) = self.timeline.entries[place as usize];
            if is_return {
                return self.prepared.closed[operation as usize].end;
            }
            place = self.timeline.next[place as usize];
        }
    }

    /// Whether it is a write that no remaining operation reads, while none reads the present value either.
    fn is_blind(&self, step: Step) -> bool {
        self.prepared.is_plain
            && step.produces().is_some_and(|state| self.observers(state) == 0)
            && self.observers(self.state) == 0
    }

    /// Returns the number of remaining operations that observe a state.
    fn observers(&self, state: State) -> u32 {
        self.prepared.observers.get(state as usize).copied().unwrap_or(0)
    }

    /// Whether a step to `state` leaves a state that is still to be observed and cannot return.
    fn loses(&self, step: Step, state: State) -> bool {
        if state == self.state {
            return false;
        }
        let rest = self.observers(self.state) - u32::from(step.observes() == Some(self.state));
        let can_come_back = match self.prepared.comeback {
            StateRecurrence::Never => false,
            // This step is not one of the producers: it leads elsewhere.
            StateRecurrence::ByProducer => {
                self.prepared.producers.get(self.state as usize).is_some_and(|count| *count > 0)
            }
            StateRecurrence::BySum => true,
        };
        rest > 0 && !can_come_back
    }

    /// Finds the moves that make a closed operation possible by unknown operations right before it.
    fn plan(&mut self, operation: u32, step: Step, budget: &mut Budget) -> Result<(), Exhausted> {
        if self.prepared.open.is_empty() {
            return Ok(());
        }
        let bound = self.first_return();
        match step {
            Step::Observe(state) | Step::Replace { from: state, .. } => {
                self.plan_state(operation, step, state, bound, budget)
            }
            Step::Add { from, or_absent, .. } => {
                if or_absent {
                    self.plan_state(operation, step, ABSENT, bound, budget)?;
                }
                self.plan_state(operation, step, from, bound, budget)
            }
            // It is enough to leave the present state.
            Step::ObserveNot(_) | Step::Remove => {
                for class in 0..self.prepared.open.len() as u32 {
                    budget.spend(1)?;
                    let by = self.prepared.open[class as usize].step;
                    if self.is_available(class, 0, bound)
                        && let Some(next) = self.prepared.model.step(self.state, by)
                    {
                        self.push_plan(operation, step, next, by, &[class]);
                    }
                }
                Ok(())
            }
            Step::Write(_) | Step::MayReplace { .. } | Step::MayAdd(_) | Step::Impossible => Ok(()),
        }
    }

    /// Finds the moves for a closed operation that is possible in the state `wanted`: goes backwards from there over
    /// its producers, until it meets the present state or a write that is possible in any state.
    fn plan_state(
        &mut self,
        operation: u32,
        step: Step,
        wanted: State,
        bound: u64,
        budget: &mut Budget,
    ) -> Result<(), Exhausted> {
        // The states wanted on the way, each with the classes that lead on from it, in order: fewer of these are
        // better.
        let mut seen: BTreeMap<State, Vec<Vec<u32>>> = BTreeMap::new();
        let mut queue: VecDeque<(State, Vec<u32>)> = [(wanted, Vec::new())].into();
        while let Some((needed, behind)) = queue.pop_front() {
            let producers = self.open_producers.get(&needed).map_or(&[][..], Vec::as_slice);
            let candidates: Vec<u32> = producers.iter().chain(&self.open_sums).copied().collect();
            for class in candidates {
                budget.spend(1)?;
                let planned = behind.iter().filter(|other| **other == class).count();
                if !self.is_available(class, planned, bound) {
                    continue;
                }
                let mut plan = behind.clone();
                plan.insert(plan.partition_point(|other| *other <= class), class);
                let by = self.prepared.open[class as usize].step;
                for before in self.states_before(by, needed, wanted) {
                    if before.is_none_or(|before| before == self.state) {
                        self.push_plan(operation, step, wanted, by, &plan);
                    } else if let Some(before) = before {
                        let others = seen.entry(before).or_default();
                        budget.spend(others.len())?;
                        if !others.iter().any(|fewer| is_part(fewer, &plan)) {
                            others.push(plan.clone());
                            queue.push_back((before, plan.clone()));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the states from which an unknown operation leads to `needed`; `None` means all states.
    fn states_before(&mut self, by: Step, needed: State, wanted: State) -> Vec<Option<State>> {
        match by {
            Step::Write(_) => vec![None],
            Step::MayReplace { from, .. } => vec![Some(from)],
            Step::MayAdd(delta) => {
                let model = &mut self.prepared.model;
                let before = model.integer(needed).filter(|_| needed != ABSENT && delta != 0);
                let Some(before) = before.and_then(|integer| integer.checked_sub(delta)) else {
                    return Vec::new();
                };
                // A number that only grows or only shrinks stays between the present one and the wanted one.
                if self.prepared.comeback == StateRecurrence::Never
                    && let Some((now, wanted)) = model.integer(self.state).zip(model.integer(wanted))
                    && !(now.min(wanted)..=now.max(wanted)).contains(&before)
                {
                    return Vec::new();
                }
                let mut states = vec![Some(model.state_of(before))];
                states.extend((before == 0).then_some(Some(ABSENT)));
                states
            }
            _ => Vec::new(),
        }
    }

    /// Adds the move that executes `step` from the state `from`, to which unknown operations lead.
    fn push_plan(&mut self, operation: u32, step: Step, from: State, by: Step, classes: &[u32]) {
        if from != self.state
            && !self.loses(by, from)
            && let Some(state) = self.prepared.model.step(from, step)
        {
            let start = self.plans.len() as u32;
            self.plans.extend_from_slice(classes);
            self.moves.push(Move { operation, plan: (start, self.plans.len() as u32), state });
        }
    }

    /// Whether one more operation of a class, beside `planned` ones, can take effect before `bound`.
    fn is_available(&self, class: u32, planned: usize, bound: u64) -> bool {
        let starts = &self.prepared.open[class as usize].starts;
        starts.get(self.used[class as usize] as usize + planned).is_some_and(|start| *start <= bound)
    }

    /// Whether the search has been at this point before; remembers the point if not.
    fn was_here(&mut self, budget: &mut Budget) -> Result<bool, Exhausted> {
        // The operations that took effect are described by the highest of them and by the lower ones that did not:
        // these all ran at one instant, so they are few.
        let words = &mut self.failed.words;
        if words.len() + self.failed.used_words > MEMORY_WORDS {
            return Err(Exhausted);
        }
        let start = words.len();
        words.extend([self.state, self.highest]);
        let mut place = self.timeline.next[0];
        while place != 0 {
            let (operation, is_return) = self.timeline.entries[place as usize];
            if !is_return {
                if operation >= self.highest {
                    break;
                }
                words.push(operation);
            }
            place = self.timeline.next[place as usize];
        }
        let (is_known, compared) = self.failed.contains_or_add(start, &self.used);
        budget.spend(compared)?;
        Ok(is_known)
    }
}

/// Whether `one` is a subset of `other`; both are sorted.
fn is_part(one: &[u32], other: &[u32]) -> bool {
    let mut rest = other.iter();
    one.iter().all(|class| rest.any(|candidate| candidate == class))
}

/// Points of the search: a run of words, and the number of unknown operations of each class that were used to get
/// there.
#[derive(Default)]
struct Memory {
    words: Vec<u32>,
    /// For membership only: the order of this table is never used.
    points: HashTable<Point>,
    /// The number of words in the points' `used`.
    used_words: usize,
}

struct Point {
    start: usize,
    length: usize,
    /// None of these uses at most as much of everything as another one. Empty where there are no unknown operations.
    used: Vec<Box<[u32]>>,
}

impl Memory {
    /// Looks for the point whose words are those from `start` on, and which the search reached with at most as many
    /// unknown operations: what was impossible then is impossible with fewer of them left. If there is none, keeps
    /// this one. Also returns the number of comparisons.
    fn contains_or_add(&mut self, start: usize, used: &[u32]) -> (bool, usize) {
        let Memory { words, points, used_words } = self;
        let new = &words[start..];
        let at = |point: &Point| &words[point.start..point.start + point.length];
        if let Some(point) = points.find_mut(hash(new), |point| at(point) == new) {
            let is_known = used.is_empty() || point.used.iter().any(|fewer| is_less(fewer, used));
            if !is_known {
                point.used.retain(|more| !is_less(used, more));
                point.used.push(used.into());
                *used_words += used.len();
            }
            words.truncate(start);
            return (is_known, point.used.len());
        }
        *used_words += used.len();
        let point = Point {
            start,
            length: new.len(),
            used: if used.is_empty() { Vec::new() } else { vec![used.into()] },
        };
        points.insert_unique(hash(new), point, |point| hash(at(point)));
        (false, 0)
    }
}

/// Whether `one` uses at most as many of each class as `other`.
fn is_less(one: &[u32], other: &[u32]) -> bool {
    one.iter().zip(other).all(|(one, other)| one <= other)
}

fn hash(words: &[u32]) -> u64 {
    words.iter().fold(words.len() as u64, |hash, word| {
        let product = u128::from(hash ^ u64::from(*word) ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        (product >> 64) as u64 ^ product as u64
    })
}
