//! Snapshot transfer: a replica gets the whole table of another one, in chunks, while writes continue.
//!
//! The table keeps a copy-on-write view open for the transfer, so chunks that are taken at different times show one
//! moment. [`Outgoing`] is the sender's side: it numbers the chunks, limits how many are under way, and keeps those that
//! are not acknowledged, so that they can be sent again unchanged. [`Incoming`] is the receiver's side: it takes them in
//! order, each once. A [`Checkpoint`] writes the same chunks to the disk.
//!
//! The parts on which a protocol's proof rests are in the protocol: which replica may send and when, the moment that the
//! snapshot shows, what follows the snapshot, and what the receiver does with a whole table. In leader-follower and
//! consensus it replaces the receiver's table. Registers merge the tables of several members, key by key.

mod checkpoint;
mod incoming;
mod loading;
mod outgoing;

pub(crate) use checkpoint::Checkpoint;
pub(crate) use incoming::{Arrival, Incoming};
pub(crate) use outgoing::{Outgoing, Window};

/// A transfer may always keep so many bytes of history.
const KEPT_BYTES_LEAST: usize = 16 << 20;

/// How many bytes of history one transfer may keep at first, of a replica that may keep `history_max` for others.
pub(crate) fn kept_bytes_max(history_max: usize) -> usize {
    history_max.saturating_mul(2).max(KEPT_BYTES_LEAST)
}

/// How often what transfers may keep is doubled. While data may not grow, this bounds it by a quarter of the memory.
const DOUBLINGS: u32 = 3;

/// How much history transfers may keep. One that keeps more is given up, and its receiver begins again: a receiver whose
/// disk is full, say, gets on too slowly to be worth the memory.
///
/// What is written during a transfer may always be more than that. So each time the next ones may keep twice as much, until
/// a receiver has caught up, or it is [`DOUBLINGS`] times doubled: one that never gets on must not take all memory from
/// writes.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    given_up: u32,
}

impl Allowance {
    /// How many bytes a transfer may keep now that may keep `at_first` at first.
    pub(crate) fn of(&self, at_first: usize) -> usize {
        at_first.saturating_mul(1 << self.given_up)
    }

    /// Transfers were given up for what they kept.
    pub(crate) fn note_given_up(&mut self) {
        self.given_up = (self.given_up + 1).min(DOUBLINGS);
    }

    /// A receiver has caught up.
    pub(crate) fn note_caught_up(&mut self) {
        self.given_up = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_never_gets_on_has_no_more_than_eight_times_as_much_kept() {
        let mut allowance = Allowance::default();
        let mut after = |times: u32| {
            (0..times).for_each(|_| allowance.note_given_up());
            allowance.of(KEPT_BYTES_LEAST)
        };
        assert_eq!([0, 1, 1, 1].map(&mut after), [16 << 20, 32 << 20, 64 << 20, 128 << 20]);
        assert_eq!([1, 1000].map(after), [128 << 20; 2], "it is given up again and again");
        allowance.note_caught_up();
        assert_eq!(allowance.of(KEPT_BYTES_LEAST), KEPT_BYTES_LEAST);
        assert_eq!(kept_bytes_max(0), KEPT_BYTES_LEAST);
        assert_eq!(allowance.of(kept_bytes_max(usize::MAX)), usize::MAX);
    }
}
