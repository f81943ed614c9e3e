//! A serializer that passes bytes one after another at a fixed rate: a link, or one direction of a node's
//! interface.

use super::Nanos;
use super::settings::Bandwidth;

/// The queue in front of it: what a network card's queue holds. Anything beyond that waits at its sender.
pub(super) const QUEUE: Nanos = 10_000_000;

/// A serializer. It only knows when the last bit that it was given has left: at every moment it is as if bits
/// flowed out at exactly its rate, however late it is called.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    bits_per_second: Option<u64>,
    free_at: Nanos,
    /// The remainder of the division by the rate, so that no rate is slightly too fast.
    carry: u64,
}

impl Pace {
    pub(super) fn change(&mut self, bandwidth: Option<Bandwidth>, now: Nanos) {
        let bits_per_second = bandwidth.map(Bandwidth::as_bits_per_second);
        if self.bits_per_second != bits_per_second {
            // Queued bytes were scheduled at the old rate, which may be far slower.
            *self = Pace { bits_per_second, free_at: self.free_at.min(now + QUEUE), carry: 0 };
        }
    }

    pub(super) fn bits_per_second(&self) -> Option<u64> {
        self.bits_per_second
    }

    /// Takes bytes that are available from `since` on; returns when the last one has passed.
    pub(super) fn pass(&mut self, since: Nanos, bytes: u64) -> Nanos {
        let Some(rate) = self.bits_per_second else { return since };
        let work = u128::from(bytes) * 8 * 1_000_000_000 + u128::from(self.carry);
        self.carry = (work % u128::from(rate)) as u64;
        self.free_at = self.free_at.max(since) + (work / u128::from(rate)) as Nanos;
        self.free_at
    }

    /// When it accepts more bytes, if its queue is full now.
    pub(super) fn blocked_until(&self, now: Nanos) -> Option<Nanos> {
        let opens_at = self.free_at.saturating_sub(QUEUE);
        (self.bits_per_second.is_some() && opens_at > now).then_some(opens_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(bits_per_second: u64) -> Pace {
        let mut pace = Pace::default();
        pace.change(Some(Bandwidth::bits_per_second(bits_per_second)), 0);
        pace
    }

    #[test]
    fn a_second_carries_exactly_the_rate() {
        // 7 Mbit/s: a packet takes a non-integer number of nanoseconds.
        let mut pace = pace(7_000_000);
        let packets = 7_000_000 / 8 / 125;
        let last = (0..packets).map(|_| pace.pass(0, 125)).last();
        assert_eq!(last, Some(1_000_000_000));
    }

    #[test]
    fn an_idle_link_saves_nothing_for_later() {
        let mut pace = pace(8_000_000);
        assert_eq!(pace.pass(0, 1_000), 1_000_000);
        assert_eq!(pace.pass(500_000_000, 1_000), 501_000_000);
    }

    #[test]
    fn a_full_queue_takes_nothing_until_it_has_room() {
        let mut pace = pace(8_000_000);
        assert_eq!(pace.blocked_until(0), None);
        pace.pass(0, 11_000);
        assert_eq!(pace.blocked_until(0), Some(1_000_000));
        assert_eq!(pace.blocked_until(1_000_000), None);
    }

    #[test]
    fn a_faster_rate_does_not_wait_for_the_slower_one() {
        let mut pace = pace(8_000);
        pace.pass(0, 10_000);
        pace.change(Some(Bandwidth::megabits(8)), 0);
        assert_eq!(pace.pass(0, 1_000), QUEUE + 1_000_000);
    }
}
