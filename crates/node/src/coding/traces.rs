//! How long the steps of storing took, for the values that this node has stored last.

use info::facts::StoringTimes;
use kv::ValueId;
use std::collections::VecDeque;

/// How many values are remembered.
const TRACES_MAX: usize = 64;

/// The values stored last, and the times so far of those under way.
#[derive(Debug, Default)]
pub(super) struct Traces {
    ended: VecDeque<StoringTimes>,
    /// Values that were cut in this turn, with the number of bytes of each.
    cut: Vec<(ValueId, usize)>,
    /// How long cutting took so far, for values under way.
    encoding: VecDeque<(ValueId, f64)>,
}

impl Traces {
    /// Notes that `bytes` of a value were cut.
    pub(super) fn cut(&mut self, id: ValueId, bytes: usize) {
        match self.cut.iter().position(|(other, _)| *other == id) {
            Some(place) => self.cut[place].1 += bytes,
            None if self.cut.len() < TRACES_MAX => self.cut.push((id, bytes)),
            None => {}
        }
    }

    /// All cutting of this turn took `took_us`: each value gets its share.
    pub(super) fn encoded(&mut self, took_us: u64) {
        let all: usize = self.cut.iter().map(|(_, bytes)| bytes).sum();
        for (id, bytes) in self.cut.drain(..) {
            let share_us = took_us as f64 * bytes as f64 / all.max(1) as f64;
            match self.encoding.iter_mut().find(|(other, _)| *other == id) {
                Some((_, sum_us)) => *sum_us += share_us,
                None => self.encoding.push_back((id, share_us)),
            }
        }
        while self.encoding.len() > TRACES_MAX {
            self.encoding.pop_front();
        }
    }

    /// Forgets this turn's cuts, whose time was not measured.
    pub(super) fn forget_cut(&mut self) {
        self.cut.clear();
    }

    /// Notes that a value is stored.
    pub(super) fn stored(&mut self, mut trace: StoringTimes) {
        if let Some(place) = self.encoding.iter().position(|(id, _)| *id == trace.id) {
            trace.encode_us = self.encoding.remove(place).map_or(0, |(_, sum_us)| sum_us as u64);
        }
        if self.ended.len() == TRACES_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(trace);
    }

    /// The stored values, the oldest first.
    pub(super) fn ended(&self) -> Vec<StoringTimes> {
        self.ended.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::Coordinator;

    fn id(counter: u64) -> ValueId {
        ValueId { coordinator: Coordinator { node: 1, life: 7 }, counter }
    }

    fn trace(counter: u64) -> StoringTimes {
        StoringTimes { id: id(counter), bytes: 100, parts: 2, encode_us: 0, disperse_us: 5, order_us: 6 }
    }

    #[test]
    fn values_of_one_turn_share_its_time_by_their_bytes() {
        let mut traces = Traces::default();
        traces.cut(id(1), 100);
        traces.cut(id(2), 200);
        traces.cut(id(1), 100);
        traces.encoded(400);
        traces.cut(id(2), 1);
        traces.encoded(7);
        [1, 2].into_iter().for_each(|counter| traces.stored(trace(counter)));
        let encode_us: Vec<u64> = traces.ended().iter().map(|trace| trace.encode_us).collect();
        assert_eq!(encode_us, [200, 207]);
    }

    #[test]
    fn only_the_last_traces_are_remembered() {
        let mut traces = Traces::default();
        for counter in 1..=TRACES_MAX as u64 + 3 {
            traces.cut(id(counter), 1);
            traces.forget_cut();
            traces.stored(trace(counter));
        }
        let ended = traces.ended();
        assert_eq!((ended.len(), ended[0].id.counter, ended[0].encode_us), (TRACES_MAX, 4, 0));
    }
}
