//! The content of requests, which operation on which key, and the judgement of replies.

use super::keys::Keys;
use super::options::{Options, Wait};
use super::outcome::{ErrorWord, Expected, Operation, Outcome};
use super::random::Random;
use super::reply::Reply;
use super::value::Values;

/// How many low bits of a write's sequence count the thread's writes; the others identify the thread.
const SEQUENCE_BITS: u32 = 48;

/// One thread's source of requests.
pub(crate) struct Workload {
    random: Random,
    /// Each operation with the sum of the weights up to and including it.
    shares: Vec<(u64, Operation)>,
    shares_total: u64,
    keys: Keys,
    wait: Option<Wait>,
    values: Values,
    sequence: u64,
    loading: Option<Loading>,
    /// What loads a key.
    loads_with: Operation,
}

/// The keys that remain to be written before the run.
struct Loading {
    next: u64,
    again: Vec<u64>,
}

impl Workload {
    /// The requests of thread number `thread`.
    pub(crate) fn new(options: &Options, thread: usize) -> Self {
        let mut shares_total = 0;
        let shares = Operation::ALL
            .into_iter()
            .filter(|operation| options.mix.weight(*operation) > 0)
            .map(|operation| {
                shares_total += u64::from(options.mix.weight(operation));
                (shares_total, operation)
            })
            .collect();
        Self {
            random: Random::for_thread(options.seed, thread),
            shares,
            shares_total,
            keys: Keys::new(options.key_choice, options.keys, thread, options.threads),
            wait: options.wait,
            values: Values::new(options.value_bytes),
            sequence: (thread as u64) << SEQUENCE_BITS,
            loading: None,
            loads_with: if options.custom_load.is_some() { Operation::Custom } else { Operation::Set },
        }
    }

    /// From now on writes the keys from `first` on, in order.
    pub(crate) fn start_loading(&mut self, first: u64) {
        self.loading = Some(Loading { next: first, again: Vec::new() });
    }

    /// From now on draws from the mix.
    pub(crate) fn stop_loading(&mut self) {
        self.loading = None;
    }

    /// Schedules a key again that could not be written.
    pub(crate) fn load_again(&mut self, key: u64) {
        if let Some(loading) = &mut self.loading {
            loading.again.push(key);
        }
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> Expected {
        let (operation, key) = self.choose();
        let mut sequence = 0;
        if matches!(operation, Operation::Set | Operation::Custom) {
            self.sequence += 1;
            sequence = self.sequence;
        }
        Expected { operation, key, sequence }
    }

    /// The values of its writes.
    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    fn choose(&mut self) -> (Operation, u64) {
        if let Some(loading) = &mut self.loading {
            let key = loading.again.pop().unwrap_or_else(|| {
                loading.next += 1;
                loading.next - 1
            });
            return (self.loads_with, key);
        }
        let operation = match self.shares[..] {
            [(_, only)] => only,
            _ => {
                let draw = self.random.below(self.shares_total);
                self.shares.iter().find(|(end, _)| draw < *end).map_or(Operation::Ping, |share| share.1)
            }
        };
        (operation, self.keys.choose(&mut self.random))
    }

    /// The outcome of a request, from its reply.
    pub(crate) fn judge(&self, expected: Expected, reply: &Reply<'_>) -> Outcome {
        match (expected.operation, reply) {
            (_, Reply::Error(text)) => Outcome::Error(ErrorWord::of(text)),
            (Operation::Get, Reply::Bulk(value)) if self.values.is_possible(expected.key, value) => {
                Outcome::Ok
            }
            (Operation::Get, Reply::Bulk(_)) => Outcome::WrongValue,
            (Operation::Get, Reply::Null) => Outcome::Miss,
            (Operation::Set, Reply::Status(b"OK")) | (Operation::Ping, Reply::Status(b"PONG")) => Outcome::Ok,
            (Operation::Incr, Reply::Integer(count)) if *count >= 1 => Outcome::Ok,
            (Operation::Incr, Reply::Integer(_)) => Outcome::WrongValue,
            (Operation::Custom, Reply::Null) => Outcome::Miss,
            (Operation::Custom, _) => Outcome::Ok,
            _ => Outcome::Protocol,
        }
    }

    /// Whether this operation is followed by WAIT.
    pub(crate) fn has_wait(&self, operation: Operation) -> bool {
        operation == Operation::Set && self.wait.is_some()
    }

    /// The outcome of a write with WAIT, from that of the write and the reply to WAIT.
    pub(crate) fn judge_wait(&self, write: Outcome, reply: &Reply<'_>) -> Outcome {
        let replicas = self.wait.map_or(0, |wait| i64::from(wait.replicas));
        match reply {
            Reply::Integer(_) | Reply::Error(_) if write != Outcome::Ok => write,
            Reply::Integer(count) if *count >= replicas => Outcome::Ok,
            Reply::Integer(_) => Outcome::TooFewReplicas,
            Reply::Error(text) => Outcome::Error(ErrorWord::of(text)),
            _ => Outcome::Protocol,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::options::Mix;

    fn workload(change: impl FnOnce(&mut Options)) -> Workload {
        let mut options = Options { keys: 1000, ..Options::default() };
        change(&mut options);
        Workload::new(&options, 0)
    }

    #[test]
    fn a_get_expects_what_a_set_writes() {
        let mut workload = workload(|options| options.mix = Mix::only(Operation::Set));
        let Expected { key, sequence, .. } = workload.next();
        let mut value = Vec::new();
        workload.values().write(key, sequence, &mut value);
        let read = |key| Expected { operation: Operation::Get, key, sequence: 0 };
        assert_eq!(workload.judge(read(key), &Reply::Bulk(&value)), Outcome::Ok);
        assert_eq!(workload.judge(read(key + 1), &Reply::Bulk(&value)), Outcome::WrongValue);
    }

    #[test]
    fn the_mix_is_kept_and_a_seed_repeats_it() {
        let mix = Mix { get: 8, set: 1, incr: 1, ..Mix::default() };
        let draw = || {
            let mut workload = workload(|options| options.mix = mix);
            (0..10_000).map(|_| workload.next()).collect::<Vec<_>>()
        };
        let first = draw();
        assert_eq!(first, draw());
        let count = |operation| first.iter().filter(|expected| expected.operation == operation).count();
        assert!((7_800..8_200).contains(&count(Operation::Get)));
        assert!((850..1_150).contains(&count(Operation::Set)));
        assert_eq!(count(Operation::Ping), 0);
    }

    #[test]
    fn loading_writes_every_key_and_repeats_failed_writes() {
        let mut workload = workload(|_| {});
        workload.start_loading(3);
        let keys: Vec<u64> = (0..3).map(|_| workload.next().key).collect();
        assert_eq!(keys, [3, 4, 5]);
        workload.load_again(4);
        let keys: Vec<u64> = (0..2).map(|_| workload.next().key).collect();
        assert_eq!(keys, [4, 6]);
    }

    #[test]
    fn replies_are_judged() {
        let workload = workload(|options| options.wait = Some(Wait { replicas: 2, timeout_ms: 100 }));
        let judge = |operation, reply| workload.judge(Expected { operation, key: 1, sequence: 0 }, &reply);
        let no = Outcome::Error(ErrorWord::of(b"NO"));
        assert_eq!(judge(Operation::Get, Reply::Null), Outcome::Miss);
        assert_eq!(judge(Operation::Get, Reply::Error(b"NO way")), no);
        assert_eq!(judge(Operation::Get, Reply::Integer(1)), Outcome::Protocol);
        assert_eq!(judge(Operation::Set, Reply::Status(b"OK")), Outcome::Ok);
        assert_eq!(judge(Operation::Set, Reply::Null), Outcome::Protocol);
        assert_eq!(judge(Operation::Incr, Reply::Integer(1)), Outcome::Ok);
        assert_eq!(judge(Operation::Incr, Reply::Integer(0)), Outcome::WrongValue);
        assert_eq!(judge(Operation::Ping, Reply::Status(b"PONG")), Outcome::Ok);
        assert_eq!(judge(Operation::Custom, Reply::Array), Outcome::Ok);
        assert_eq!(judge(Operation::Custom, Reply::Null), Outcome::Miss);
        assert_eq!(judge(Operation::Custom, Reply::Error(b"NO way")), no);

        let wait = |write, reply| workload.judge_wait(write, &reply);
        assert_eq!(wait(Outcome::Ok, Reply::Integer(2)), Outcome::Ok);
        assert_eq!(wait(Outcome::Ok, Reply::Integer(1)), Outcome::TooFewReplicas);
        assert_eq!(wait(no, Reply::Integer(2)), no);
        assert_eq!(wait(Outcome::Ok, Reply::Error(b"NO")), no);
        assert_eq!(wait(no, Reply::Null), Outcome::Protocol);
    }
}
