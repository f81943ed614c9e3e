//! What a collection holds, and the sequential specification of its operations.

use super::{Action, Answer, Named};

/// The elements of a list in their order, or those of a set in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    /// Elements with their scores, which are 0 except in sorted sets.
    elements: Vec<(u32, i64)>,
    /// The elements that were taken by waiting clients and may be given back, those of a sorted set with their scores;
    /// sorted.
    held: Vec<(u32, Option<i64>)>,
    /// The elements that were delivered and not acknowledged, in the order in which they were delivered.
    pending: Vec<u32>,
}

impl State {
    /// Returns what an operation with this answer leaves, or `None` if it is impossible here.
    pub(super) fn answering(&self, action: Action, answer: Answer) -> Option<State> {
        let mut next = self.clone();
        let elements = &mut next.elements;
        let expected = match action {
            Action::PushFront(element) => {
                elements.insert(0, (element, 0));
                Answer::Done
            }
            Action::PushBack(element) => {
                elements.push((element, 0));
                Answer::Done
            }
            Action::PopFront | Action::Take => {
                Answer::Element((!elements.is_empty()).then(|| elements.remove(0).0))
            }
            Action::PopBack => Answer::Element(elements.pop().map(|(element, _)| element)),
            Action::Rotate => {
                let by = usize::from(!elements.is_empty());
                elements.rotate_left(by);
                Answer::Element(elements.last().map(|(element, _)| *element))
            }
            Action::Deliver => {
                let delivered = (!elements.is_empty()).then(|| elements.remove(0).0);
                next.pending.extend(delivered);
                Answer::Element(delivered)
            }
            Action::Claim => Answer::Element(next.pending.first().copied()),
            Action::Acknowledge => {
                Answer::Element((!next.pending.is_empty()).then(|| next.pending.remove(0)))
            }
            Action::Add(element) => Answer::Applied(match self.place(element) {
                Ok(_) => false,
                Err(place) => {
                    elements.insert(place, (element, 0));
                    true
                }
            }),
            Action::Remove(element) => {
                Answer::Applied(self.place(element).map(|place| elements.remove(place)).is_ok())
            }
            Action::Contains(element) => Answer::Applied(self.place(element).is_ok()),
            // The answer names the element that was drawn.
            Action::Draw => match answer {
                Answer::Element(Some(element)) => {
                    elements.remove(self.place(element).ok()?);
                    answer
                }
                _ if elements.is_empty() => Answer::Element(None),
                _ => return None,
            },
            Action::SetScore(element, score) => Answer::Applied(match self.place(element) {
                Ok(place) => {
                    elements[place].1 = score;
                    false
                }
                Err(place) => {
                    elements.insert(place, (element, score));
                    true
                }
            }),
            Action::AddScore(element, more) => match self.place(element) {
                Ok(place) => {
                    elements[place].1 += more;
                    Answer::Score(elements[place].1)
                }
                Err(place) => {
                    elements.insert(place, (element, more));
                    Answer::Score(more)
                }
            },
            Action::PopLowest | Action::TakeLowest => {
                let lowest = (0..elements.len()).min_by_key(|place| (elements[*place].1, elements[*place].0));
                Answer::Scored(lowest.map(|place| elements.remove(place)))
            }
        };
        (expected == answer).then_some(next)
    }

    /// Returns the states that an operation of unknown outcome may leave, except the present one.
    pub(super) fn unanswered(&self, action: Action, named: &Named) -> Vec<State> {
        let end = match action {
            Action::TakeLowest => {
                let Some(mut next) = self.any_answer(action) else { return Vec::new() };
                let taken = self.elements.iter().find(|element| next.place(element.0).is_err());
                next.hold(taken.map(|(element, score)| (*element, Some(*score))));
                return vec![next];
            }
            Action::PopFront | Action::Take => self.elements.first(),
            Action::PopBack => self.elements.last(),
            Action::Draw => {
                let drawn = self.elements.iter().map(|(element, _)| Answer::Element(Some(*element)));
                return drawn.filter_map(|answer| self.answering(action, answer)).collect();
            }
            _ => return self.any_answer(action).into_iter().collect(),
        };
        let Some((element, _)) = end.copied() else { return Vec::new() };
        let Some(mut next) = self.answering(action, Answer::Element(Some(element))) else {
            unreachable!("this is the element there")
        };
        if action != Action::Take && named.popped.contains(&element) {
            return Vec::new();
        }
        if action == Action::Take && named.all.contains(&element) {
            next.hold(Some((element, None)));
        }
        vec![next]
    }

    /// Returns the state that an operation leaves whose answer depends on the present state.
    fn any_answer(&self, action: Action) -> Option<State> {
        let score = |element| self.place(element).map_or(0, |place| self.elements[place].1);
        let answers = match action {
            Action::PushFront(_) | Action::PushBack(_) => vec![Answer::Done],
            Action::AddScore(element, more) => vec![Answer::Score(score(element) + more)],
            Action::PopLowest | Action::TakeLowest => {
                let lowest = self.elements.iter().copied().min_by_key(|(element, score)| (*score, *element));
                vec![Answer::Scored(lowest)]
            }
            Action::Rotate | Action::Deliver => {
                vec![Answer::Element(self.elements.first().map(|(element, _)| *element))]
            }
            Action::Acknowledge => vec![Answer::Element(self.pending.first().copied())],
            _ => vec![Answer::Applied(true), Answer::Applied(false)],
        };
        answers.into_iter().find_map(|answer| self.answering(action, answer)).filter(|next| next != self)
    }

    fn hold(&mut self, taken: Option<(u32, Option<i64>)>) {
        self.held.extend(taken);
        self.held.sort_unstable();
    }

    /// Returns the states after one of the held elements has been given back: to the front of a list, or to a sorted set,
    /// unless that has the element again.
    pub(super) fn returns(&self) -> impl Iterator<Item = State> {
        (0..self.held.len()).map(|place| {
            let mut next = self.clone();
            match next.held.remove(place) {
                (element, None) => next.elements.insert(0, (element, 0)),
                (element, Some(score)) => {
                    if let Err(place) = next.place(element) {
                        next.elements.insert(place, (element, score));
                    }
                }
            }
            next
        })
    }

    fn place(&self, element: u32) -> Result<usize, usize> {
        self.elements.binary_search_by_key(&element, |(other, _)| *other)
    }
}
