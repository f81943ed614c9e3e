//! Slices: a follower that returns gets the part of the log that it lacks in many small messages.
//!
//! The crate puts all that a follower lacks into one `AcceptSync`. It would hold up everyone else's requests
//! at both nodes. So what leaves is a shorter one, followed by as many `AcceptDecide`s as are needed. The
//! node's replicas together send a limited number of bytes in one turn, and a limited number of slices is
//! sent and not accepted yet.
//!
//! ```text
//!  leader                                      follower that returns
//!    |<------------- Promise, has 100 entries -----|
//!    | the crate: AcceptSync [100..9000]           |
//!    |-- AcceptSync #2.1 [100..400] -------------->|
//!    |-- AcceptDecide #2.2 [400..700] ------------>|
//!    |<------------------------- Accepted 400 -----|
//!    |-- AcceptDecide #2.3 [700..1000] ----------->|   ...
//! ```
//!
//! Meanwhile the crate's own messages to that follower with newer entries are dropped, since slices will
//! contain these. So the follower's messages are numbered here until it starts over: the numbers must have
//! no gaps.
//!
//! **Why this is correct.** The first slice goes at least to the end of the log that the leader took over
//! (`Leadership::inherited`). So the follower is in the state in which it would be if it had accepted
//! this leader's log earlier, and the rest were still on its way. A shorter one would lose writes: the
//! follower would report, as accepted in this ballot, a log without entries that were chosen in earlier
//! ones, and a candidate would take it over.
//!
//! The crate's messages of a ballot in which this replica no longer leads are dropped. Behind slices such a
//! message could have the next number by chance, and its entries would be put in the wrong place.

use super::entry::Entry;
use super::log::Log;
use super::options::{Settings, Timing};
use crate::contract::NodeId;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::sequence_paxos::{AcceptDecide, AcceptSync, PaxosMsg};
use omnipaxos::util::SequenceNumber;
use std::collections::VecDeque;

/// The followers of a leader that were behind by more than a slice when they last started over with it.
#[derive(Debug, Default)]
pub(super) struct Slices {
    open: Vec<Follower>,
    /// More could be sent, but the turn's bytes are used up.
    is_cut_short: bool,
}

#[derive(Debug)]
struct Follower {
    id: NodeId,
    /// The number of the last message to it.
    number: SequenceNumber,
    /// The end of what was sent.
    sent: usize,
    /// The ends of the slices that are sent and not known to be accepted.
    unaccepted: VecDeque<usize>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is sent slices.
    Behind,
    /// It has everything or will: only the numbers of its messages differ from the crate's.
    Abreast,
    /// What it lacks is cut off: it starts over when it gets the leader's position.
    Lost,
}

impl Slices {
    /// True when there are no such followers.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a message of the ballot in which this replica leads, which took over a log up to `inherited`.
    /// Changes it to what is to be sent instead; false if that is nothing. `sent_bytes` counts what the node
    /// sends of logs and snapshots in this turn.
    #[cold]
    pub(super) fn pass(
        &mut self,
        to: NodeId,
        message: &mut PaxosMsg<Entry>,
        inherited: usize,
        sent_bytes: &mut usize,
        timing: &Timing,
    ) -> bool {
        let number = match message {
            PaxosMsg::AcceptDecide(accept) => &mut accept.seq_num,
            PaxosMsg::Decide(decide) => &mut decide.seq_num,
            message => {
                // It starts over, or is about to.
                self.open.retain(|follower| follower.id != to);
                if let PaxosMsg::AcceptSync(sync) = message {
                    let room = timing.turn_bytes.saturating_sub(*sent_bytes).min(timing.chunk_bytes);
                    *sent_bytes += self.cut(to, sync, inherited, timing.chunk_bytes, room);
                }
                return true;
            }
        };
        let Some(follower) = self.open.iter_mut().find(|follower| follower.id == to) else { return true };
        let is_sent = follower.standing == Standing::Abreast;
        if is_sent {
            *number = follower.next_number();
        }
        is_sent
    }

    /// Shortens an `AcceptSync` that has more than a slice, and notes that the rest follows. Returns its
    /// bytes if it was long.
    fn cut(
        &mut self,
        to: NodeId,
        sync: &mut AcceptSync<Entry>,
        inherited: usize,
        slice_bytes: usize,
        room: usize,
    ) -> usize {
        let (from, suffix) = (sync.log_sync.sync_idx, &mut sync.log_sync.suffix);
        let bytes_of = |entries: &[Entry]| entries.iter().map(|entry| entry.bytes().len()).sum::<usize>();
        if bytes_of(suffix) <= slice_bytes {
            return 0;
        }
        let (mut bytes, needed) = (0, inherited.saturating_sub(from));
        let fits = |(place, entry): &(usize, &Entry)| {
            bytes += entry.bytes().len();
            *place < needed || bytes <= room
        };
        let count = suffix.iter().enumerate().take_while(fits).count();
        if count < suffix.len() {
            suffix.truncate(count);
            let sent = from + count;
            sync.decided_idx = sync.decided_idx.min(sent);
            let (number, unaccepted) = (sync.seq_num, VecDeque::from([sent]));
            self.open.push(Follower { id: to, number, sent, unaccepted, standing: Standing::Behind });
        }
        bytes_of(suffix)
    }

    /// The next slice that can be sent now, and its receiver. `accepted` tells how many entries a follower
    /// has accepted in this ballot. All messages of the crate must have been passed.
    pub(super) fn next(
        &mut self,
        ballot: Ballot,
        log: &Log,
        accepted: impl Fn(NodeId) -> usize,
        sent_bytes: &mut usize,
        timing: &Timing,
    ) -> Option<(NodeId, PaxosMsg<Entry>)> {
        self.is_cut_short = false;
        for follower in self.open.iter_mut().filter(|follower| follower.standing == Standing::Behind) {
            let accepted = accepted(follower.id);
            while follower.unaccepted.pop_front_if(|end| *end <= accepted).is_some() {}
            if follower.sent < log.base() {
                follower.standing = Standing::Lost;
            } else if follower.unaccepted.len() < timing.chunk_window {
                if *sent_bytes >= timing.turn_bytes {
                    self.is_cut_short = true;
                    return None;
                }
                let (entries, bytes) = log.slice(follower.sent, timing.chunk_bytes);
                *sent_bytes += bytes;
                follower.sent += entries.len();
                follower.unaccepted.push_back(follower.sent);
                if follower.sent == log.end() {
                    follower.standing = Standing::Abreast;
                }
                let (seq_num, decided_idx) = (follower.next_number(), log.decided().min(follower.sent));
                let slice = AcceptDecide { n: ballot, seq_num, decided_idx, entries };
                return Some((follower.id, PaxosMsg::AcceptDecide(slice)));
            }
        }
        None
    }

    /// True when slices wait only for the next turn.
    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short && !self.is_empty()
    }

    /// The end of what a follower was sent, if it is not sent everything at once.
    pub(super) fn sent_to(&self, id: NodeId) -> Option<usize> {
        let is_behind = |follower: &&Follower| follower.id == id && follower.standing == Standing::Behind;
        self.open.iter().find(is_behind).map(|follower| follower.sent)
    }

    /// Nothing from this index on may be cut off: it is still to be sent.
    pub(super) fn kept_from(&self) -> usize {
        let behind = self.open.iter().filter(|follower| follower.standing == Standing::Behind);
        behind.map(|follower| follower.sent).min().unwrap_or(usize::MAX)
    }

    /// Gives up the followers that would have more of the log kept than this many bytes. True if there were
    /// any.
    pub(super) fn give_up_far_behind(&mut self, log: &Log, bytes_max: usize) -> bool {
        if self.kept_from() == usize::MAX || log.bytes() <= bytes_max {
            return false;
        }
        let mut has_given_up = false;
        for follower in self.open.iter_mut().filter(|follower| follower.standing == Standing::Behind) {
            if log.bytes_from(follower.sent) > bytes_max {
                follower.standing = Standing::Lost;
                has_given_up = true;
            }
        }
        has_given_up
    }

    /// What was sent is in the log, and no more slices are under way than allowed.
    pub(super) fn check(&self, log: &Log, settings: &Settings) {
        for follower in &self.open {
            assert!(follower.sent <= log.end(), "a slice was sent that the log does not hold");
            let under_way = follower.unaccepted.len();
            assert!(under_way <= settings.timing.chunk_window, "too many slices are under way");
            let is_kept = follower.standing != Standing::Behind || follower.sent >= log.base();
            assert!(is_kept, "what follows a slice is cut off");
        }
    }
}

impl Follower {
    fn next_number(&mut self) -> SequenceNumber {
        self.number.counter += 1;
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::super::kit::{entry, settings};
    use super::*;
    use omnipaxos::messages::sequence_paxos::Decide;
    use omnipaxos::util::LogSync;

    /// A leader's log of nine entries, of which it took over two, and the promise of a follower that has one.
    struct World {
        log: Log,
        slices: Slices,
        timing: Timing,
        sent_bytes: usize,
    }

    impl World {
        fn new(turn_bytes: usize) -> World {
            let mut log = Log::default();
            (1..10).for_each(|batch| log.append(vec![entry(1, batch, &["a"])]));
            let each = log.bytes() / 9;
            let timing = Timing {
                chunk_bytes: 2 * each,
                chunk_window: 2,
                turn_bytes: turn_bytes * each,
                ..settings(1).timing
            };
            World { log, slices: Slices::default(), timing, sent_bytes: 0 }
        }

        fn pass(&mut self, message: &mut PaxosMsg<Entry>, inherited: usize) -> bool {
            self.slices.pass(2, message, inherited, &mut self.sent_bytes, &self.timing)
        }

        /// Sends an `AcceptSync`; returns how many entries it has.
        fn sync(&mut self, inherited: usize) -> usize {
            let suffix = self.log.entries_from(1);
            let log_sync = LogSync { decided_snapshot: None, suffix, sync_idx: 1, stopsign: None };
            let seq_num = SequenceNumber { session: 4, counter: 1 };
            let sync = AcceptSync { n: Ballot::default(), seq_num, decided_idx: 9, log_sync };
            let mut message = PaxosMsg::AcceptSync(sync);
            assert!(self.pass(&mut message, inherited));
            let PaxosMsg::AcceptSync(sync) = message else { panic!("it stays what it is") };
            assert_eq!(sync.decided_idx, 1 + sync.log_sync.suffix.len(), "no more than it has");
            sync.log_sync.suffix.len()
        }

        /// The numbers of the slices that leave in a turn, and the ends of what was sent.
        fn turn(&mut self, accepted: usize) -> Vec<(u64, usize)> {
            self.sent_bytes = 0;
            let mut sent = Vec::new();
            let next = |world: &mut World| {
                let World { log, slices, timing, sent_bytes } = world;
                slices.next(Ballot::default(), log, |_| accepted, sent_bytes, timing)
            };
            while let Some((_, PaxosMsg::AcceptDecide(slice))) = next(self) {
                sent.push((slice.seq_num.counter, self.slices.open[0].sent));
            }
            self.slices.check(&self.log, &settings(1));
            sent
        }
    }

    #[test]
    fn slices_wait_for_the_turn_and_for_what_is_accepted() {
        let mut world = World::new(2);
        assert_eq!(world.sync(2), 2);
        assert_eq!(world.slices.sent_to(2), Some(3));
        assert!(world.turn(1) == [(2, 5)] && !world.slices.is_cut_short(), "two are under way");
        assert_eq!((world.turn(1), world.slices.kept_from()), (vec![], 5));
        assert!(world.turn(5) == [(3, 7)] && world.slices.is_cut_short(), "a turn has no more bytes");
        let mut newer = PaxosMsg::Decide(Decide { n: Ballot::default(), seq_num: number(9), decided_idx: 9 });
        assert!(!world.pass(&mut newer, 2), "a slice will tell it");
        assert_eq!(world.turn(7), [(4, 9)]);
        assert_eq!((world.slices.sent_to(2), world.slices.kept_from()), (None, usize::MAX));
        assert!(world.pass(&mut newer, 2));
        assert!(matches!(newer, PaxosMsg::Decide(Decide { seq_num, .. }) if seq_num == number(5)));
    }

    #[test]
    fn the_first_slice_holds_all_that_was_taken_over() {
        let mut world = World::new(2);
        assert_eq!(world.sync(7), 6);
        assert_eq!((world.turn(1), world.slices.is_cut_short()), (vec![(2, 9)], false));
        // Nothing of this turn's bytes is left for another group.
        world.sent_bytes = world.timing.turn_bytes;
        assert_eq!((world.sync(0), world.slices.sent_to(2)), (0, Some(1)));
    }

    #[test]
    fn who_is_too_far_behind_is_given_up_and_starts_over() {
        let mut world = World::new(2);
        world.sync(2);
        let bytes = world.log.bytes();
        assert!(!world.slices.give_up_far_behind(&world.log, bytes));
        assert!(world.slices.give_up_far_behind(&world.log, bytes / 2));
        assert_eq!(
            (world.turn(3), world.slices.sent_to(2)),
            (vec![], None),
            "it is told the leader's position"
        );
        let prepare = omnipaxos::messages::sequence_paxos::Prepare {
            n: Ballot::default(),
            decided_idx: 9,
            n_accepted: Ballot::default(),
            accepted_idx: 9,
        };
        assert!(world.pass(&mut PaxosMsg::Prepare(prepare), 2) && world.slices.is_empty());
    }

    fn number(counter: u64) -> SequenceNumber {
        SequenceNumber { session: 4, counter }
    }
}
