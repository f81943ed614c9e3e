//! What is sent: which operation on which key, as bytes; and what each reply means.
//!
//! Each request is a copy of a template with the key's digits written over: nothing is formatted and
//! nothing allocated per request.

use super::options::{Options, Wait};
use super::outcome::{ErrorWord, Operation, Outcome};
use super::random::Random;
use super::reply::Reply;
use super::value::Values;

/// Keys have at least so many digits, as those of redis-benchmark.
const KEY_DIGITS_MIN: usize = 12;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// How many low bits of a write's sequence count the thread's writes; the others name the thread.
const SEQUENCE_BITS: u32 = 48;

/// What was asked, to be compared with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) operation: Operation,
    pub(crate) key: u64,
}

/// One thread's source of requests.
pub(crate) struct Workload {
    random: Random,
    /// Each operation with the sum of the weights up to and including it.
    shares: Vec<(u64, Operation)>,
    shares_total: u64,
    keys: u64,
    get: Template,
    set: Template,
    incr: Template,
    /// What follows a SET's value: the line end, and WAIT if it is asked for.
    set_tail: Vec<u8>,
    wait: Option<Wait>,
    values: Values,
    sequence: u64,
    loading: Option<Loading>,
}

/// The keys that are still to be written before the run.
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
        let prefix = options.key_prefix.as_str();
        let digits = KEY_DIGITS_MIN.max((options.keys - 1).to_string().len());
        let value_header = format!("${}\r\n", options.value_bytes);
        // Threads draw from sequences of their own: one generator seeds them, so that neighbouring seeds
        // and neighbouring threads have nothing in common.
        let mut seeds = Random::new(options.seed);
        let seed = (0..=thread).fold(0, |_, _| seeds.next());
        Self {
            random: Random::new(seed),
            shares,
            shares_total,
            keys: options.keys,
            get: Template::new("*2\r\n$3\r\nGET\r\n", prefix, digits, ""),
            set: Template::new("*3\r\n$3\r\nSET\r\n", prefix, digits, &value_header),
            incr: Template::new("*2\r\n$4\r\nINCR\r\n", &format!("{prefix}counter:"), digits, ""),
            set_tail: set_tail(options.wait),
            wait: options.wait,
            values: Values::new(options.value_bytes),
            sequence: (thread as u64) << SEQUENCE_BITS,
            loading: None,
        }
    }

    /// From now on write the keys from `first` on, in order.
    pub(crate) fn start_loading(&mut self, first: u64) {
        self.loading = Some(Loading { next: first, again: Vec::new() });
    }

    /// From now on draw from the mix.
    pub(crate) fn stop_loading(&mut self) {
        self.loading = None;
    }

    /// A key could not be written: it comes again.
    pub(crate) fn load_again(&mut self, key: u64) {
        if let Some(loading) = &mut self.loading {
            loading.again.push(key);
        }
    }

    /// Appends the next request to `out`.
    pub(crate) fn append(&mut self, out: &mut Vec<u8>) -> Expected {
        let (operation, key) = self.choose();
        match operation {
            Operation::Get => self.get.append(key, out),
            Operation::Set => {
                self.set.append(key, out);
                self.sequence += 1;
                self.values.write(key, self.sequence, out);
                out.extend_from_slice(&self.set_tail);
            }
            Operation::Incr => self.incr.append(key, out),
            Operation::Ping => out.extend_from_slice(PING),
        }
        Expected { operation, key }
    }

    fn choose(&mut self) -> (Operation, u64) {
        if let Some(loading) = &mut self.loading {
            let key = loading.again.pop().unwrap_or_else(|| {
                loading.next += 1;
                loading.next - 1
            });
            return (Operation::Set, key);
        }
        let operation = match self.shares[..] {
            [(_, only)] => only,
            _ => {
                let draw = self.random.below(self.shares_total);
                self.shares.iter().find(|(end, _)| draw < *end).map_or(Operation::Ping, |share| share.1)
            }
        };
        (operation, self.random.below(self.keys))
    }

    /// How a request ended, from its reply.
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
            _ => Outcome::Protocol,
        }
    }

    /// Whether this operation is followed by WAIT.
    pub(crate) fn has_wait(&self, operation: Operation) -> bool {
        operation == Operation::Set && self.wait.is_some()
    }

    /// How a write with WAIT ended, from what became of the write and the reply to WAIT.
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

fn set_tail(wait: Option<Wait>) -> Vec<u8> {
    let mut tail = b"\r\n".to_vec();
    if let Some(Wait { replicas, timeout_ms }) = wait {
        let (replicas, timeout_ms) = (replicas.to_string(), timeout_ms.to_string());
        tail.extend_from_slice(&command(&["WAIT", &replicas, &timeout_ms]));
    }
    tail
}

/// A command as RESP.
pub(crate) fn command(arguments: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        out.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    out.into_bytes()
}

/// A request up to and including the key, with room for the key's digits.
struct Template {
    bytes: Vec<u8>,
    digits_end: usize,
}

impl Template {
    fn new(command: &str, prefix: &str, digits: usize, tail: &str) -> Self {
        let key_bytes = prefix.len() + digits;
        let head = format!("{command}${key_bytes}\r\n{prefix}{:0digits$}", 0);
        Self { digits_end: head.len(), bytes: format!("{head}\r\n{tail}").into_bytes() }
    }

    fn append(&self, key: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let mut rest = key;
        // The template's digits are zeros: only the others are written.
        for digit in out[start..start + self.digits_end].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
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

    fn next(workload: &mut Workload) -> (Expected, String) {
        let mut out = Vec::new();
        let expected = workload.append(&mut out);
        (expected, String::from_utf8(out).unwrap())
    }

    #[test]
    fn requests_are_well_formed() {
        let mut get = workload(|options| options.mix = Mix::only(Operation::Get));
        let (expected, request) = next(&mut get);
        assert_eq!(request, format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{:012}\r\n", expected.key));

        let mut incr = workload(|options| options.mix = Mix::only(Operation::Incr));
        let (expected, request) = next(&mut incr);
        assert_eq!(request, format!("*2\r\n$4\r\nINCR\r\n$24\r\nkey:counter:{:012}\r\n", expected.key));

        let mut ping = workload(|options| options.mix = Mix::only(Operation::Ping));
        assert_eq!(next(&mut ping).1, "*1\r\n$4\r\nPING\r\n");
    }

    #[test]
    fn what_a_set_writes_is_what_a_get_expects() {
        let mut workload = workload(|options| {
            options.mix = Mix::only(Operation::Set);
            options.wait = Some(Wait { replicas: 2, timeout_ms: 100 });
        });
        let (expected, request) = next(&mut workload);
        let head = format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{:012}\r\n$64\r\n", expected.key);
        let tail = "\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$3\r\n100\r\n";
        let value = request.strip_prefix(&head).unwrap().strip_suffix(tail).unwrap();
        let read = Expected { operation: Operation::Get, key: expected.key };
        assert_eq!(workload.judge(read, &Reply::Bulk(value.as_bytes())), Outcome::Ok);
        let other = Expected { operation: Operation::Get, key: expected.key + 1 };
        assert_eq!(workload.judge(other, &Reply::Bulk(value.as_bytes())), Outcome::WrongValue);
    }

    #[test]
    fn the_largest_key_fits_its_digits() {
        let mut out = Vec::new();
        Template::new("", "k", 20, "").append(u64::MAX, &mut out);
        assert_eq!(out, b"$21\r\nk18446744073709551615\r\n");
    }

    #[test]
    fn the_mix_is_kept_and_a_seed_repeats_it() {
        let mix = Mix { get: 8, set: 1, incr: 1, ping: 0 };
        let draw = || {
            let mut workload = workload(|options| options.mix = mix);
            (0..10_000).map(|_| next(&mut workload).0).collect::<Vec<_>>()
        };
        let first = draw();
        assert_eq!(first, draw());
        let count = |operation| first.iter().filter(|expected| expected.operation == operation).count();
        assert!((7_800..8_200).contains(&count(Operation::Get)));
        assert!((850..1_150).contains(&count(Operation::Set)));
        assert_eq!(count(Operation::Ping), 0);
    }

    #[test]
    fn loading_writes_every_key_and_repeats_what_failed() {
        let mut workload = workload(|_| {});
        workload.start_loading(3);
        let keys: Vec<u64> = (0..3).map(|_| next(&mut workload).0.key).collect();
        assert_eq!(keys, [3, 4, 5]);
        workload.load_again(4);
        let keys: Vec<u64> = (0..2).map(|_| next(&mut workload).0.key).collect();
        assert_eq!(keys, [4, 6]);
    }

    #[test]
    fn replies_are_judged() {
        let workload = workload(|options| options.wait = Some(Wait { replicas: 2, timeout_ms: 100 }));
        let judge = |operation, reply| workload.judge(Expected { operation, key: 1 }, &reply);
        let no = Outcome::Error(ErrorWord::of(b"NO"));
        assert_eq!(judge(Operation::Get, Reply::Null), Outcome::Miss);
        assert_eq!(judge(Operation::Get, Reply::Error(b"NO way")), no);
        assert_eq!(judge(Operation::Get, Reply::Integer(1)), Outcome::Protocol);
        assert_eq!(judge(Operation::Set, Reply::Status(b"OK")), Outcome::Ok);
        assert_eq!(judge(Operation::Set, Reply::Null), Outcome::Protocol);
        assert_eq!(judge(Operation::Incr, Reply::Integer(1)), Outcome::Ok);
        assert_eq!(judge(Operation::Incr, Reply::Integer(0)), Outcome::WrongValue);
        assert_eq!(judge(Operation::Ping, Reply::Status(b"PONG")), Outcome::Ok);

        let wait = |write, reply| workload.judge_wait(write, &reply);
        assert_eq!(wait(Outcome::Ok, Reply::Integer(2)), Outcome::Ok);
        assert_eq!(wait(Outcome::Ok, Reply::Integer(1)), Outcome::TooFewReplicas);
        assert_eq!(wait(no, Reply::Integer(2)), no);
        assert_eq!(wait(Outcome::Ok, Reply::Error(b"NO")), no);
        assert_eq!(wait(no, Reply::Null), Outcome::Protocol);
    }
}
