//! Sets that are combined little by little. Their items are in one order, and so are those of the result.

use crate::command::SetOperation;
use crate::table::collections::Collection;
use crate::table::tree::Items;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// How far it has come.
#[derive(Debug)]
pub(super) enum Combining {
    /// To the member of this rank of the first set, of those that all others have, or none of them.
    Sifted { are_common: bool, next: usize },
    /// To these ranks of all sets.
    Merged { next: Vec<usize> },
}

impl Combining {
    /// Begins. Returns also how many items are to be looked at.
    pub(super) fn of(operation: SetOperation, sets: &mut [Collection]) -> (Combining, usize) {
        let are_common = match operation {
            SetOperation::Union => {
                let count = sets.iter().map(Collection::len).sum();
                return (Combining::Merged { next: vec![0; sets.len()] }, count);
            }
            SetOperation::Intersection => {
                sets.sort_by_key(Collection::len);
                true
            }
            SetOperation::Difference => false,
        };
        (Combining::Sifted { are_common, next: 0 }, sets.first().map_or(0, Collection::len))
    }

    /// Goes on for so many items of the sets. `take` gets each item of the result, and returns whether to stop behind it.
    /// Returns whether that was the last one.
    pub(super) fn go_on(
        &mut self,
        sets: &[Collection],
        items: usize,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        match self {
            Combining::Sifted { are_common, next } => {
                let Some((first, others)) = sets.split_first() else { return true };
                for item in first.items().iter_from(*next).take(items) {
                    *next += 1;
                    let mut others = others.iter().map(Collection::items);
                    let has = |other: Items<'_>| other.contains(item);
                    let is_taken = if *are_common { others.all(has) } else { !others.any(has) };
                    if is_taken && take(item) {
                        break;
                    }
                }
                *next == first.len()
            }
            Combining::Merged { next } => {
                let from = sets.iter().zip(next.iter()).map(|(set, rank)| set.items().iter_from(*rank));
                let mut rests: Vec<_> = from.collect();
                let heads = rests.iter_mut().enumerate();
                let mut heads: BinaryHeap<_> =
                    heads.filter_map(|(set, rest)| rest.next().map(|item| Reverse((item, set)))).collect();
                // To find these places has taken as long as so many items.
                let mut left = items.max(sets.len());
                while let Some(&Reverse((item, _))) = heads.peek().filter(|_| left > 0) {
                    while let Some(mut head) = heads.peek_mut().filter(|head| head.0.0 == item) {
                        let set = head.0.1;
                        (next[set], left) = (next[set] + 1, left.saturating_sub(1));
                        match rests[set].next() {
                            Some(following) => *head = Reverse((following, set)),
                            None => drop(PeekMut::pop(head)),
                        }
                    }
                    if take(item) {
                        break;
                    }
                }
                heads.is_empty()
            }
        }
    }
}
