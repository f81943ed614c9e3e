//! Requests that wait: writes that are proposed, reads that must be confirmed or stand behind writes, requests that
//! nobody leads, and `WAIT`.

use crate::contract::{NodeId, Ticket};
use kv::Version;
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::VecDeque;

/// Who waits for a command of a batch, and until when. Nobody does for what the leader orders itself.
pub(super) type Asker = Option<(Ticket, u64)>;

/// A batch that was appended here and is not known to be decided.
#[derive(Debug)]
pub(super) struct Proposal {
    /// Which of this life's proposals.
    pub(super) batch: u64,
    /// Where in the log it stands. If anything else is decided there, it never will be: only its proposer ever puts it
    /// in a log, once, and entries keep their places.
    pub(super) index: usize,
    /// The ballot in which it was appended.
    pub(super) ballot: Ballot,
    /// When, on this replica's clock: a lease begins with it.
    pub(super) proposed_us: u64,
    pub(super) bytes: usize,
    /// About how long its commands take that take long, in nanoseconds.
    pub(super) work_ns: u64,
    pub(super) askers: Vec<Asker>,
}

/// Batches in the order in which they were proposed.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    pub(super) batches: VecDeque<Proposal>,
    pub(super) bytes: usize,
    pub(super) work_ns: u64,
    /// The last batch proposed in this life.
    pub(super) last: u64,
    /// No asker has an earlier deadline.
    earliest_us: u64,
}

impl Proposals {
    pub(super) fn push(&mut self, proposal: Proposal) {
        let deadlines = proposal.askers.iter().flatten().map(|(_, deadline_us)| *deadline_us);
        self.earliest_us = deadlines.fold(self.earliest_us, u64::min);
        assert!(proposal.batch > self.last, "nothing is proposed twice");
        self.bytes += proposal.bytes;
        self.work_ns += proposal.work_ns;
        self.last = proposal.batch;
        self.batches.push_back(proposal);
    }

    pub(super) fn pop_if(&mut self, fits: impl Fn(&Proposal) -> bool) -> Option<Proposal> {
        let proposal = self.batches.pop_front_if(|proposal| fits(proposal))?;
        self.bytes -= proposal.bytes;
        self.work_ns -= proposal.work_ns;
        Some(proposal)
    }

    /// How many commands have no end yet.
    pub(super) fn commands(&self) -> usize {
        self.batches.iter().map(|batch| batch.askers.len()).sum()
    }

    /// Every batch up to this one has an end.
    pub(super) fn settled(&self) -> u64 {
        self.batches.front().map_or(self.last, |proposal| proposal.batch - 1)
    }

    /// Takes the askers whose deadline has passed, each with its proposal's place in the log.
    pub(super) fn take_overdue(&mut self, now_us: u64) -> Vec<(Ticket, usize)> {
        let mut overdue = Vec::new();
        if now_us < self.earliest_us {
            return overdue;
        }
        self.earliest_us = u64::MAX;
        let batches = self.batches.iter_mut();
        let askers = batches.flat_map(|batch| batch.askers.iter_mut().map(|asker| (asker, batch.index)));
        for (asker, index) in askers {
            match *asker {
                Some((ticket, deadline_us)) if deadline_us <= now_us => {
                    overdue.push((ticket, index));
                    *asker = None;
                }
                Some((_, deadline_us)) => self.earliest_us = self.earliest_us.min(deadline_us),
                None => {}
            }
        }
        overdue
    }
}

/// A read that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) ticket: Ticket,
    pub(super) deadline_us: u64,
    /// The batch that must have its end first.
    pub(super) behind: u64,
    /// How many commands of that batch stand before it, if it came while the batch was built.
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
    /// How many bytes were there before the first that is kept.
    bytes_start: u64,
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    pub(super) fn push(
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
    pub(super) fn first(&self) -> Option<&Read> {
        self.reads.front()
    }

    /// The newest question that a read waits for.
    pub(super) fn last_question(&self) -> u64 {
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

    /// Takes the reads whose deadline has passed.
    pub(super) fn take_overdue(&mut self, now_us: u64) -> Vec<Ticket> {
        let mut overdue = Vec::new();
        self.reads.retain(|read| {
            let is_overdue = read.deadline_us <= now_us;
            if is_overdue {
                overdue.push(read.ticket);
            }
            !is_overdue
        });
        overdue
    }
}

/// A request that waits until somebody leads. It was not proposed, so it can still be refused.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) ticket: Ticket,
    pub(super) deadline_us: u64,
    pub(super) fenced: bool,
    pub(super) request: HeldRequest,
}

#[derive(Debug)]
pub(super) enum HeldRequest {
    Command(Vec<u8>),
    Wait { offset: Version, count: u32 },
}

/// A `WAIT` whose writes are proposed.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) ticket: Ticket,
    pub(super) deadline_us: u64,
    pub(super) behind: u64,
    pub(super) offset: Version,
    pub(super) count: u32,
}

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// This replica leads and may append.
    Leads,
    /// It leads, or is about to, but may not append now: an older lease may last, or too few peers are heard.
    MayNotAppend,
    /// That one leads.
    Follows(NodeId),
    /// Nobody is known to lead.
    Nobody,
}
