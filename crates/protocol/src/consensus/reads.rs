//! Reads that wait at a leader: each until it is certain that no other replica leads, and until the batch that its client
//! wrote before it is settled.

use super::held::{Fenced, ParkedRequest};
use crate::contract::{Effects, Ticket};
use std::collections::VecDeque;

const NOT_CONFIRMED: &str =
    "CLUSTERDOWN NOQUORUM too few nodes answer to say who leads; nothing was read, try again";

/// A read that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) ticket: Ticket,
    pub(super) deadline_us: u64,
    /// The batch that must be settled first.
    pub(super) behind: u64,
    /// How many commands of that batch precede it, if it came while the batch was built.
    pub(super) after: usize,
    /// The question to confirm the leader that must be answered first.
    pub(super) question: u64,
    pub(super) fenced: bool,
    start: u64,
    length: u32,
}

/// Reads in the order in which they came, their commands in one buffer.
#[derive(Debug, Default)]
pub(super) struct Reads {
    reads: VecDeque<Read>,
    bytes: Vec<u8>,
    /// How many bytes came before the first one that is kept.
    bytes_start: u64,
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    fn push(
        &mut self,
        (ticket, deadline_us, fenced): (Ticket, u64, bool),
        (behind, after, question): (u64, usize, u64),
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let before = self.bytes.len();
        encode(&mut self.bytes);
        let (start, length) = (self.bytes_start + before as u64, (self.bytes.len() - before) as u32);
        self.reads.push_back(Read { ticket, deadline_us, behind, after, question, fenced, start, length });
    }

    /// The read that is taken next.
    fn first(&self) -> Option<&Read> {
        self.reads.front()
    }

    /// The newest question that a read waits for.
    fn last_question(&self) -> u64 {
        self.reads.back().map_or(0, |read| read.question)
    }

    /// Takes the first read, if it fits.
    pub(super) fn pop_if(&mut self, fits: impl Fn(&Read) -> bool) -> Option<Read> {
        self.reads.pop_front_if(|read| fits(read))
    }

    /// The command of a read that was taken; its bytes are forgotten with the next [`Reads::forget`].
    pub(super) fn command(&self, read: &Read) -> &[u8] {
        assert!(read.start >= self.bytes_start, "a read's command was forgotten");
        let start = (read.start - self.bytes_start) as usize;
        &self.bytes[start..start + read.length as usize]
    }

    /// Forgets the commands of the reads that were taken.
    pub(super) fn forget(&mut self) {
        const KEPT_BYTES: usize = 64 << 10;
        let kept_from =
            self.reads.front().map_or(self.bytes_start + self.bytes.len() as u64, |read| read.start);
        let taken = (kept_from - self.bytes_start) as usize;
        if taken == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
        } else if taken > KEPT_BYTES && taken > self.bytes.len() / 2 {
            self.bytes.drain(..taken);
        } else {
            return;
        }
        self.bytes_start = kept_from;
    }

    fn end_overdue(&mut self, now_us: u64, effects: &mut Effects) {
        self.reads.retain(|read| {
            let is_kept = read.deadline_us > now_us;
            if !is_kept {
                effects.refuse(read.ticket, NOT_CONFIRMED);
            }
            is_kept
        });
    }

    /// Takes the first reads that fit, to be handled again.
    fn keep(&mut self, fits: impl Fn(&Read) -> bool, kept: &mut VecDeque<ParkedRequest>) {
        while let Some(read) = self.pop_if(&fits) {
            let Read { ticket, deadline_us, fenced, .. } = read;
            kept.push_back(ParkedRequest::encoded(ticket, deadline_us, Fenced(fenced), self.command(&read)));
        }
        self.forget();
    }
}

/// Where a read waits: reads that wait for a batch of their own client do not delay the others.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queue {
    /// Only for the certainty that this replica leads.
    Free,
    /// For a batch of its own client, too.
    BehindWrites,
    /// Within the batch that was being built when it came: it must not see what its client writes after it in the same batch.
    WithinBatches,
}

/// All reads of a leadership.
#[derive(Debug, Default)]
pub(super) struct Readers {
    free: Reads,
    behind: Reads,
    within: Reads,
}

impl Readers {
    pub(super) fn is_empty(&self) -> bool {
        self.free.is_empty() && self.behind.is_empty() && self.within.is_empty()
    }

    /// A read waits. `place` is the batch and the number of its commands that it waits for, and the question.
    pub(super) fn push(
        &mut self,
        queue: Queue,
        asker: (Ticket, u64, bool),
        place: (u64, usize, u64),
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        self.queue(queue).push(asker, place, encode);
    }

    pub(super) fn queue(&mut self, queue: Queue) -> &mut Reads {
        match queue {
            Queue::Free => &mut self.free,
            Queue::BehindWrites => &mut self.behind,
            Queue::WithinBatches => &mut self.within,
        }
    }

    /// The reads that need a lease or a question's answer, when all batches up to `settled` are. Those within a batch do not,
    /// unless another entry was decided in its place.
    fn askers(&self, settled: u64) -> impl Iterator<Item = &Reads> {
        let is_orphaned = self.within.first().is_some_and(|read| read.behind <= settled);
        let within = is_orphaned.then_some(&self.within);
        [&self.free, &self.behind].into_iter().chain(within).filter(|reads| !reads.is_empty())
    }

    /// Whether any read needs a lease or a question's answer.
    pub(super) fn need_certainty(&self, settled: u64) -> bool {
        self.askers(settled).next().is_some()
    }

    /// Whether any read needs a newer question than this one.
    pub(super) fn need_new_question(&self, settled: u64, questions: u64) -> bool {
        self.askers(settled).any(|reads| reads.last_question() > questions)
    }

    /// Takes those that wait within a batch after a number of its commands, to be handled again.
    pub(super) fn keep_within(&mut self, place: (u64, usize), kept: &mut VecDeque<ParkedRequest>) {
        self.within.keep(|read| (read.behind, read.after) == place, kept);
    }

    /// Takes all, to be handled again.
    pub(super) fn keep(&mut self, kept: &mut VecDeque<ParkedRequest>) {
        for reads in [&mut self.within, &mut self.behind, &mut self.free] {
            reads.keep(|_| true, kept);
        }
    }

    /// Ends the reads that have waited too long.
    pub(super) fn end_overdue(&mut self, now_us: u64, effects: &mut Effects) {
        for reads in [&mut self.free, &mut self.behind, &mut self.within] {
            reads.end_overdue(now_us, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kit::{read, ticket};
    use super::*;

    fn push(readers: &mut Readers, queue: Queue, sequence: u64, place: (u64, usize, u64)) {
        let key = sequence.to_string();
        readers.push(queue, (ticket(sequence), sequence, false), place, |out| read(&key).encode(out));
    }

    #[test]
    fn commands_are_found_after_earlier_ones_are_forgotten() {
        let mut reads = Reads::default();
        let long = "k".repeat(70_000);
        for sequence in 0..4 {
            reads.push((ticket(sequence), 0, false), (0, 0, 0), |out| {
                read(&long[sequence as usize..]).encode(out)
            });
        }
        for sequence in 0..4 {
            let taken = reads.pop_if(|_| true).unwrap();
            let mut command = Vec::new();
            read(&long[sequence..]).encode(&mut command);
            assert_eq!(reads.command(&taken), command);
            reads.forget();
        }
        assert!(reads.is_empty() && reads.bytes.is_empty());
    }

    #[test]
    fn reads_within_a_batch_need_certainty_only_if_the_batch_was_lost() {
        let mut readers = Readers::default();
        push(&mut readers, Queue::WithinBatches, 1, (4, 1, 8));
        assert!(!readers.need_certainty(3));
        assert!(
            readers.need_certainty(4) && readers.need_new_question(4, 7) && !readers.need_new_question(4, 8)
        );
        push(&mut readers, Queue::Free, 2, (0, 0, 9));
        assert!(readers.need_certainty(3) && readers.need_new_question(3, 8));
    }

    #[test]
    fn reads_are_kept_in_the_order_of_their_places() {
        let (mut readers, mut kept) = (Readers::default(), VecDeque::new());
        push(&mut readers, Queue::Free, 1, (0, 0, 1));
        push(&mut readers, Queue::BehindWrites, 2, (3, 0, 1));
        push(&mut readers, Queue::WithinBatches, 3, (4, 1, 1));
        push(&mut readers, Queue::WithinBatches, 4, (4, 2, 1));
        readers.keep_within((4, 1), &mut kept);
        let order =
            |kept: &VecDeque<ParkedRequest>| kept.iter().map(|it| it.ticket.sequence).collect::<Vec<_>>();
        assert_eq!(order(&kept), [3]);
        readers.keep(&mut kept);
        assert_eq!(order(&kept), [3, 4, 2, 1]);
        assert!(readers.is_empty());
    }
}
