//! What the study measures: loops in one process, without a network. The table alone, by one thread and by several,
//! appending to a buffer, and a leader with its followers.
//!
//! The leader is the same state machine that the server runs. So are its followers; they run in the same loop, but only
//! the leader's steps are timed: taking requests, creating the messages, taking acknowledgements.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kv::{Command, Condition, Expiry, Reply, ReplyBuffer, SetAnswer, Table};
use protocol::leader_follower::{Acks, Durability, Message, Options, Replica, Timing};
use protocol::{
    Configuration, Effects, Input, NodeId, Now, Replica as _, Request, Result as Ended, Submission, Ticket,
};

use crate::harness::Figures;

/// Distinct keys: with their values they exceed any cache, as a store's keys do.
const DISTINCT_KEYS: usize = 200_000;

/// Operations between two readings of the clock.
const ROUND: usize = 10_000;

/// The minimum length of a slice: several times as long as a leader waits before it notifies followers that are not
/// awaited.
const SLICE: Duration = Duration::from_millis(5);

const LEADER: NodeId = 1;

/// How many operations the circular buffer holds.
const BUFFER_OPERATIONS: usize = 100_000;

/// The size of the values in the log's records.
const RECORD_VALUE_BYTES: usize = 64;

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    Command::Set { key, value, expiry, condition, answer }
}

/// Keys in contiguous memory, so that reading them costs as little as possible.
fn keys(count: usize) -> Vec<[u8; 16]> {
    let key = |number: usize| {
        let mut key = [0; 16];
        key.copy_from_slice(format!("key:{number:012}").as_bytes());
        key
    };
    (0..count).map(key).collect()
}

/// The operations on the table.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) is_write: bool,
    pub(super) value_bytes: usize,
    /// One key, or many in an order that caches cannot predict.
    pub(super) is_one_key: bool,
}

/// Time per SET or GET on the table, by threads that each have their own table, as shards do. With one thread it is
/// that of the median slice; with several all the time counts, since they may have to wait for a processor.
pub(super) fn table(asked: Asked, threads: usize, duration: Duration) -> Result<Figures> {
    let all_are_ready = Barrier::new(threads);
    let all: Result<Vec<Loop>> = std::thread::scope(|scope| {
        let one = || table_loop(asked, duration, &all_are_ready);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let join = |thread: ScopedJoinHandle<'_, Result<Loop>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let per_s = match &all?[..] {
        [alone] => 1e9 / alone.median_ns_per_op,
        all => all.iter().map(|it| it.per_s).sum(),
    };
    Ok(Figures::from([
        ("ns_per_op", 1e9 * threads as f64 / per_s),
        ("per_s", per_s),
        ("gib_per_s", per_s * asked.value_bytes as f64 / (1_u64 << 30) as f64),
    ]))
}

/// The result of one thread.
struct Loop {
    median_ns_per_op: f64,
    per_s: f64,
}

fn table_loop(asked: Asked, duration: Duration, all_are_ready: &Barrier) -> Result<Loop> {
    let Asked { is_write, value_bytes, is_one_key } = asked;
    let keys = keys(if is_one_key { 1 } else { DISTINCT_KEYS });
    let value = vec![b'v'; value_bytes];
    let (mut table, mut out) = (Table::new(7), ReplyBuffer::new());
    let mut version = 0;
    for key in &keys {
        version += 1;
        out.clear();
        table.apply(&set(key, &value), version, 1, &mut out);
    }
    // A step that is coprime with the number of keys visits each of them once in a cycle.
    let (mut at, step) = (0, 77_003 % keys.len());
    let (mut slices, mut operations) = (Slices::default(), 0);
    all_are_ready.wait();
    while slices.timed < duration {
        operations += ROUND;
        let begin = Instant::now();
        for _ in 0..ROUND {
            out.clear();
            let key = &keys[at];
            if is_write {
                version += 1;
                table.apply(&set(key, &value), version, 1, &mut out);
            } else {
                table.read(&Command::Get { key }, 1, &mut out);
            }
            at = (at + step) % keys.len();
        }
        slices.add(ROUND, begin.elapsed());
    }
    // The last reply shows that the loop did its work.
    let mut expected = ReplyBuffer::new();
    expected.push(if is_write { Reply::Ok } else { Reply::Bulk(&value) });
    ensure!(out.as_bytes() == expected.as_bytes(), "the table gave a wrong answer");
    let per_s = operations as f64 / slices.timed.as_secs_f64();
    Ok(Loop { median_ns_per_op: slices.ns_per_op(), per_s })
}

/// What the document calls its replication log, rewritten from its description (section 7): operations are appended to
/// a circular buffer. Nothing is set, and nothing is sent.
pub(super) fn append(batch: usize, duration: Duration) -> Result<Figures> {
    struct Operation {
        offset: u64,
        key: Vec<u8>,
        value: Vec<u8>,
    }
    let keys = keys(DISTINCT_KEYS);
    let value = vec![b'v'; RECORD_VALUE_BYTES];
    let mut buffer: VecDeque<Operation> = VecDeque::with_capacity(BUFFER_OPERATIONS);
    let (mut at, mut offset) = (0, 0);
    let mut slices = Slices::default();
    while slices.timed < duration {
        let begin = Instant::now();
        for _ in 0..batch {
            if buffer.len() == BUFFER_OPERATIONS {
                buffer.pop_front();
            }
            offset += 1;
            buffer.push_back(Operation { offset, key: keys[at].to_vec(), value: value.clone() });
            at = (at + 1) % keys.len();
        }
        slices.add(batch, begin.elapsed());
    }
    let bytes: usize = buffer.iter().map(|it| it.key.len() + it.value.len()).sum();
    let is_whole = buffer.back().is_some_and(|last| last.offset == offset);
    ensure!(
        is_whole && bytes == buffer.len() * (16 + RECORD_VALUE_BYTES),
        "the buffer lacks what was appended"
    );
    let ns_per_op = slices.ns_per_op();
    Ok(Figures::from([
        ("ns_per_op", ns_per_op),
        ("per_s", 1e9 / ns_per_op),
        ("batch_us", ns_per_op * batch as f64 / 1e3),
    ]))
}

/// Time per SET at a leader with `followers` followers, `batch` of them in each turn.
pub(super) fn leader(batch: usize, followers: u16, duration: Duration) -> Result<Figures> {
    let mut group = Group::new(followers);
    let keys = keys(DISTINCT_KEYS);
    let value = vec![b'v'; RECORD_VALUE_BYTES];
    let (mut at, mut sequence) = (0, 0);
    let mut slices = Slices::default();
    while slices.timed < duration {
        let begin = Instant::now();
        let now = group.now();
        for _ in 0..batch {
            sequence += 1;
            let request = &Request::Command(&set(&keys[at], &value));
            let ticket = Ticket { client: 1, sequence };
            let submission =
                Submission { ticket, request, follows: false, seen: 0, deadline_us: u64::MAX, fenced: false };
            group.leader.step(now, Input::Request(&submission), &mut group.effects);
            at = (at + 77_003) % keys.len();
        }
        group.leader.step(now, Input::Flush, &mut group.effects);
        group.timed += begin.elapsed();
        let done = group.effects.outcomes.iter().filter(|it| matches!(it.result, Ended::Done { .. })).count();
        ensure!(done == batch, "{done} of {batch} writes were acknowledged");
        group.exchange();
        slices.add(batch, std::mem::take(&mut group.timed));
    }
    // The followers' state shows that they were replicated to.
    let until = Instant::now() + Duration::from_secs(5);
    while group.lag() > 0 {
        ensure!(Instant::now() < until, "the followers do not catch up: {} records", group.lag());
        group.exchange();
    }
    let ns_per_op = slices.ns_per_op();
    Ok(Figures::from([
        ("ns_per_op", ns_per_op),
        ("per_s", 1e9 / ns_per_op),
        ("batch_us", ns_per_op * batch as f64 / 1e3),
    ]))
}

/// Times of many operations in slices. The result is the median slice: a slice in which the machine did something else
/// is longer, and no slice is so short that periodic work, such as notifying followers, falls between slices.
#[derive(Default)]
struct Slices {
    timed: Duration,
    operations: usize,
    slice: Duration,
    ns_per_op: Vec<f64>,
}

impl Slices {
    fn add(&mut self, operations: usize, took: Duration) {
        self.timed += took;
        self.operations += operations;
        self.slice += took;
        if self.slice >= SLICE {
            self.ns_per_op.push(self.slice.as_nanos() as f64 / self.operations as f64);
            (self.operations, self.slice) = (0, Duration::ZERO);
        }
    }

    fn ns_per_op(mut self) -> f64 {
        self.ns_per_op.sort_by(f64::total_cmp);
        match self.ns_per_op.get(self.ns_per_op.len() / 2) {
            Some(median) => *median,
            None => self.slice.as_nanos() as f64 / self.operations as f64,
        }
    }
}

/// A group in this process, with `acks = none`.
struct Group {
    start: Instant,
    leader: Replica,
    followers: Vec<Replica>,
    effects: Effects,
    /// The previous effects, so that buffers are reused as in a server.
    sent: Effects,
    /// The time of the leader's steps.
    timed: Duration,
}

impl Group {
    fn new(followers: u16) -> Group {
        let options = Options {
            acks: Acks::None,
            reads_any: true,
            backlog_bytes: 64 << 20,
            spill_bytes_min: usize::MAX,
            durability: Durability::None,
            planted: Default::default(),
        };
        let replica = |id: NodeId| {
            let mut replica = Replica::new(id, options, Timing::default(), u64::from(id));
            replica.begin_with_group();
            replica
        };
        let mut group = Group {
            start: Instant::now(),
            leader: replica(LEADER),
            followers: (2..2 + followers).map(replica).collect(),
            effects: Effects::default(),
            sent: Effects::default(),
            timed: Duration::ZERO,
        };
        let members: Vec<NodeId> = (LEADER..LEADER + 1 + followers).collect();
        let configuration = Configuration {
            epoch: 1,
            leader: LEADER,
            in_sync: members.clone(),
            members,
            ..Configuration::default()
        };
        let now = group.now();
        let mut ignored = Effects::default();
        for follower in &mut group.followers {
            follower.step(now, Input::Configure(&configuration), &mut ignored);
        }
        group.leader.step(now, Input::Configure(&configuration), &mut group.effects);
        group.leader.step(now, Input::Lease { until_us: u64::MAX }, &mut group.effects);
        for peer in 2..2 + followers {
            group.leader.step(now, Input::Link { peer, up: true }, &mut group.effects);
            group.followers[usize::from(peer) - 2].step(
                now,
                Input::Link { peer: LEADER, up: true },
                &mut ignored,
            );
        }
        // All replicas find each other, and the followers ask to be served.
        for _ in 0..100 {
            group.exchange();
        }
        group.timed = Duration::ZERO;
        group
    }

    /// Starts at one second, so that no time is before zero.
    fn now(&self) -> Now {
        Now { monotonic_us: 1_000_000 + self.start.elapsed().as_micros() as u64, unix_ms: 1 }
    }

    fn lag(&self) -> u64 {
        let leader = self.leader.status(self.now()).offset;
        let held = self.followers.iter().map(|follower| follower.status(self.now()).offset);
        held.map(|offset| leader - offset).max().unwrap_or(0)
    }

    /// Carries messages from the leader to the followers and back. Only the leader's part is timed.
    fn exchange(&mut self) {
        std::mem::swap(&mut self.effects, &mut self.sent);
        let sent = &self.sent;
        let mut answers = Effects::default();
        for (number, follower) in (2..).zip(&mut self.followers) {
            let now = Now { monotonic_us: 1_000_000 + self.start.elapsed().as_micros() as u64, unix_ms: 1 };
            answers.clear();
            for message in sent.messages.iter().filter(|message| message.to == number) {
                if let Ok(message) = Message::decode(message.bytes.parts(&sent.bytes)[0]) {
                    follower.step(now, Input::Message { from: LEADER, message }, &mut answers);
                }
            }
            follower.step(now, Input::Flush, &mut answers);
            if follower.wakeup_us(now) <= now.monotonic_us {
                follower.step(now, Input::Tick, &mut answers);
            }
            let begin = Instant::now();
            for message in answers.messages.iter().filter(|message| message.to == LEADER) {
                if let Ok(message) = Message::decode(message.bytes.parts(&answers.bytes)[0]) {
                    self.leader.step(now, Input::Message { from: number, message }, &mut self.effects);
                }
            }
            self.timed += begin.elapsed();
        }
        self.sent.clear();
        let begin = Instant::now();
        let now = self.now();
        if self.leader.wakeup_us(now) <= now.monotonic_us {
            self.leader.step(now, Input::Tick, &mut self.effects);
        }
        self.leader.step(now, Input::Flush, &mut self.effects);
        self.timed += begin.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_do_their_work() {
        let short = Duration::from_millis(5);
        for is_write in [true, false] {
            for threads in [1, 3] {
                let asked = Asked { is_write, value_bytes: 1 << 10, is_one_key: true };
                let figures = table(asked, threads, short).unwrap();
                assert!(figures["ns_per_op"] > 0.0);
                assert_eq!(figures["gib_per_s"], figures["per_s"] / f64::from(1 << 20));
            }
        }
        assert!(append(100, short).unwrap()["ns_per_op"] > 0.0);
        for followers in [0, 1, 3] {
            let figures = leader(100, followers, short).unwrap();
            assert!(figures["ns_per_op"] > 0.0, "{followers}");
        }
    }
}
