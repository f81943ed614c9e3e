//! What a collection holds, and the sequential specification of its operations.

use super::{Action, Answer};
use std::collections::BTreeSet;

/// The elements of a list in their order, or those of a set in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    /// Elements with their scores, which are 0 but in sorted sets.
    elements: Vec<(u32, i64)>,
    /// The elements that were taken by waiting clients and may come back; sorted.
    held: Vec<u32>,
}

impl State {
    /// Returns what an operation with this answer leaves, or `None` if it is impossible here.
    pub(super) fn answering(&self, action: Action, answer: Answer) -> Option<State> {
        let mut next = self.clone();
        let elements = &mut next.elements;
        let told = match action {
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
            // The answer says which one was drawn.
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
            Action::PopLowest => {
                let lowest = (0..elements.len()).min_by_key(|place| (elements[*place].1, elements[*place].0));
                Answer::Scored(lowest.map(|place| elements.remove(place)))
            }
        };
        (told == answer).then_some(next)
    }

    /// Returns what an operation of unknown outcome may leave, where that differs from this. `named`: the elements that
    /// answers name.
    pub(super) fn unanswered(&self, action: Action, named: &BTreeSet<u32>) -> Vec<State> {
        let end = match action {
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
        if named.contains(&element) {
            if action != Action::Take {
                return Vec::new();
            }
            let place = next.held.partition_point(|other| *other < element);
            next.held.insert(place, element);
        }
        vec![next]
    }

    /// Returns what an operation leaves whose answer depends on what is here.
    fn any_answer(&self, action: Action) -> Option<State> {
        let score = |element| self.place(element).map_or(0, |place| self.elements[place].1);
        let answers = match action {
            Action::PushFront(_) | Action::PushBack(_) => vec![Answer::Done],
            Action::AddScore(element, more) => vec![Answer::Score(score(element) + more)],
            Action::PopLowest => {
                let lowest = self.elements.iter().copied().min_by_key(|(element, score)| (*score, *element));
                vec![Answer::Scored(lowest)]
            }
            _ => vec![Answer::Applied(true), Answer::Applied(false)],
        };
        answers.into_iter().find_map(|answer| self.answering(action, answer)).filter(|next| next != self)
    }

    /// Returns what is there when one of the held elements has come back.
    pub(super) fn returns(&self) -> impl Iterator<Item = State> {
        (0..self.held.len()).map(|place| {
            let mut next = self.clone();
            let element = next.held.remove(place);
            next.elements.insert(0, (element, 0));
            next
        })
    }

    fn place(&self, element: u32) -> Result<usize, usize> {
        self.elements.binary_search_by_key(&element, |(other, _)| *other)
    }
}
