//! The orders that any explanation of a history must have, as a graph, and its shortest contradiction.

use super::{Reason, Transaction};
use std::collections::VecDeque;

/// A node is a transaction, or a moment at which one had ended: then those behind it are the transactions that began later.
#[derive(Debug)]
pub(super) struct Graph {
    /// For each node, those that come later, with the reason; none if a moment is between them.
    after: Vec<Vec<(usize, Option<Reason>)>>,
    transactions: usize,
}

impl Graph {
    pub(super) fn new(transactions: usize) -> Graph {
        Graph { after: vec![Vec::new(); transactions], transactions }
    }

    /// One transaction comes before another one.
    pub(super) fn add(&mut self, before: usize, after: usize, reason: impl FnOnce() -> Reason) {
        if before != after {
            self.after[before].push((after, Some(reason())));
        }
    }

    /// Adds the order of time. Moments stand in a chain, so that this takes O(n log n) and not a pair of all transactions.
    pub(super) fn add_times(&mut self, all: &[Transaction]) {
        let answered = all.iter().enumerate().filter(|(_, it)| it.ending == super::Ending::Ok);
        let mut ends: Vec<(u64, usize)> = answered.filter_map(|(place, it)| Some((it.end?, place))).collect();
        ends.sort_unstable();
        let first = self.after.len();
        self.after.resize_with(first + ends.len(), Vec::new);
        for (at, (_, place)) in ends.iter().enumerate() {
            self.after[*place].push((first + at, None));
            if at + 1 < ends.len() {
                self.after[first + at].push((first + at + 1, None));
            }
        }
        for (place, it) in all.iter().enumerate() {
            // Those that touch at one instant are concurrent.
            let ended = ends.partition_point(|(end, _)| *end < it.start);
            if ended > 0 {
                self.after[first + ended - 1].push((place, None));
            }
        }
    }

    /// The shortest cycle, in transactions with the reason why each comes before the next; `None` if there is none.
    pub(super) fn cycle(&self) -> Option<Vec<(usize, Reason)>> {
        let on_cycles = self.on_cycles();
        let mut shortest: Option<Vec<(usize, Reason)>> = None;
        for start in (0..self.transactions).filter(|node| on_cycles[*node]) {
            if let Some(cycle) = self.shortest_through(start, &on_cycles)
                && shortest.as_ref().is_none_or(|known| cycle.len() < known.len())
            {
                shortest = Some(cycle);
            }
            if shortest.as_ref().is_some_and(|known| known.len() == 2) {
                break;
            }
        }
        shortest
    }

    /// Which nodes may be on a cycle: those that are left when nodes without predecessors, or without successors, are taken
    /// away again and again.
    fn on_cycles(&self) -> Vec<bool> {
        let count = self.after.len();
        let mut before = vec![Vec::new(); count];
        for (node, after) in self.after.iter().enumerate() {
            after.iter().for_each(|(other, _)| before[*other].push(node));
        }
        let forward: Vec<Vec<usize>> =
            self.after.iter().map(|after| after.iter().map(|(other, _)| *other).collect()).collect();
        let mut left = vec![true; count];
        for (into, out) in [(&before, &forward), (&forward, &before)] {
            let mut open: Vec<usize> =
                into.iter().map(|nodes| nodes.iter().filter(|other| left[**other]).count()).collect();
            let mut free: Vec<usize> = (0..count).filter(|node| left[*node] && open[*node] == 0).collect();
            while let Some(node) = free.pop() {
                left[node] = false;
                for other in out[node].iter().filter(|other| left[**other]) {
                    open[*other] -= 1;
                    if open[*other] == 0 {
                        free.push(*other);
                    }
                }
            }
        }
        left
    }

    /// The shortest way from a transaction back to itself. Breadth first, where a moment costs nothing.
    fn shortest_through(&self, start: usize, on_cycles: &[bool]) -> Option<Vec<(usize, Reason)>> {
        let mut from: Vec<Option<(usize, usize)>> = vec![None; self.after.len()];
        let mut left = VecDeque::from([start]);
        while let Some(node) = left.pop_front() {
            for (at, (next, _)) in self.after[node].iter().enumerate() {
                if *next == start {
                    return Some(self.way(start, (node, at), &from));
                }
                if on_cycles[*next] && from[*next].is_none() {
                    from[*next] = Some((node, at));
                    match *next >= self.transactions {
                        true => left.push_front(*next),
                        false => left.push_back(*next),
                    }
                }
            }
        }
        None
    }

    /// The transactions on a way back to `start`, whose last step is given.
    fn way(
        &self,
        start: usize,
        last: (usize, usize),
        from: &[Option<(usize, usize)>],
    ) -> Vec<(usize, Reason)> {
        let (mut way, mut step) = (Vec::new(), Some(last));
        while let Some((node, at)) = step {
            if node < self.transactions {
                let reason = self.after[node][at].1.clone();
                way.push((node, reason.unwrap_or(Reason::Earlier)));
            }
            step = if node == start { None } else { from[node] };
        }
        way.reverse();
        way
    }
}
