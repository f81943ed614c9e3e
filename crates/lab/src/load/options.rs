//! What a run does, and what is refused before it starts.

use std::net::SocketAddr;
use std::time::Duration;

use super::outcome::Operation;
use super::{Error, etcd, zookeeper};

/// The most that all requests in flight may take, so that a slip in the options cannot take all memory.
const IN_FLIGHT_BYTES_MAX: u64 = 1 << 30;

/// The largest value, as in Redis.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// The longest key: enough to see what long keys cost.
const KEY_BYTES_MAX: usize = 1 << 20;

/// Keys have at least so many digits, as those of redis-benchmark.
const KEY_DIGITS_MIN: usize = 12;

/// Values of this size name the write that they come from.
const VALUE_BYTES_MIN_RECORDED: usize = 32;

/// Beyond this exponent the first key is all there is.
const ZIPF_EXPONENT_MAX: f64 = 20.0;

/// The highest rate, in requests per second: far beyond what one machine sends.
const RATE_MAX: f64 = 1e8;

/// The most connections of one run.
const CONNECTIONS_MAX: usize = 50_000;

/// The longest that a reply may be waited for.
const REPLY_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The longest warm-up and the longest run.
const RUN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// What to send, to whom, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers; connections are spread over them.
    pub addresses: Vec<SocketAddr>,
    /// How many connections there are in all; each has one batch of requests in flight.
    pub connections: usize,
    /// How many requests a batch has.
    pub pipeline: usize,
    /// The share of each operation.
    pub mix: Mix,
    /// How many keys there are.
    pub keys: u64,
    /// Which of them a request picks.
    pub key_choice: KeyChoice,
    /// What every key starts with.
    pub key_prefix: String,
    /// The size of each key, its prefix included; `None` is 12 digits after the prefix, more where keys need them.
    pub key_bytes: Option<usize>,
    /// The size of each value.
    pub value_bytes: Sizes,
    /// How long requests are sent before measuring starts.
    pub warmup: Duration,
    /// When measuring ends.
    pub stop: Stop,
    /// When requests are sent.
    pub pace: Pace,
    /// What keys and operations are drawn from; the same seed draws the same.
    pub seed: u64,
    /// How requests travel.
    pub transport: Transport,
    /// Whether each SET is followed by WAIT, and both count as one operation.
    pub wait: Option<Wait>,
    /// Whether WAIT comes once behind each batch that has a SET, instead of behind each SET: it answers for all of them.
    pub wait_once: bool,
    /// Whether every key is written once before the run, so that reads find something.
    pub load: bool,
    /// Whether every operation is written down, loading included, for [`Report::take_history`](super::Report::take_history).
    pub record: bool,
    /// How many threads drive the connections.
    pub threads: usize,
    /// What AUTH is sent with.
    pub password: Option<String>,
    /// How long a batch's replies are waited for before its connection is given up.
    pub reply_timeout: Duration,
}

/// The share of each operation, as weights: GET 1 and SET 1 is half and half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Reads.
    pub get: u32,
    /// Writes.
    pub set: u32,
    /// Counters.
    pub incr: u32,
    /// Empty round trips.
    pub ping: u32,
}

impl Mix {
    /// Only one operation.
    pub fn only(operation: Operation) -> Self {
        let mut mix = Self::default();
        *match operation {
            Operation::Get => &mut mix.get,
            Operation::Set => &mut mix.set,
            Operation::Incr => &mut mix.incr,
            Operation::Ping => &mut mix.ping,
        } = 1;
        mix
    }

    /// The weight of an operation.
    pub fn weight(&self, operation: Operation) -> u32 {
        match operation {
            Operation::Get => self.get,
            Operation::Set => self.set,
            Operation::Incr => self.incr,
            Operation::Ping => self.ping,
        }
    }

    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        Operation::ALL.iter().map(|operation| u64::from(self.weight(*operation))).sum()
    }
}

/// Which key a request picks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyChoice {
    /// All keys are equally likely.
    Uniform,
    /// Key number k, from 0, with a probability proportional to 1 / (k + 1) to the power of this exponent.
    Zipf(f64),
    /// One key after the other, and again from the first.
    Sequential,
}

/// A size in bytes, or a range of sizes from which each is drawn, all equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest.
    pub min: usize,
    /// The largest.
    pub max: usize,
}

impl Sizes {
    /// Always the same size.
    pub const fn fixed(bytes: usize) -> Self {
        Self { min: bytes, max: bytes }
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: a connection's next batch follows the replies to its last one.
    Closed,
    /// Open loop: requests are due at times of their own, whatever became of those before. Latencies run from
    /// there, so that what a slow server holds up is counted with all its waiting.
    Open {
        /// How many are due per second.
        per_second: f64,
        /// At which times.
        arrivals: Arrivals,
    },
}

/// How the times at which requests are due are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    Even,
    /// As those of many people who know nothing of each other: with exponentially distributed gaps.
    Poisson,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The Redis protocol.
    Resp,
    /// HTTP/1.1 with JSON: `POST /put`, `GET /get/{key}`, and `GET /health` for PING.
    Http,
    /// etcd's own: `Put` and `Range` by gRPC.
    Etcd,
    /// ZooKeeper's own: `setData` and `getData`, and its ping.
    ZooKeeper,
}

impl Transport {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// What people are told who see the options of a run; nothing where it is RESP.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Resp => "",
            Self::Http => " over HTTP",
            Self::Etcd => " by etcd's gRPC",
            Self::ZooKeeper => " by ZooKeeper's protocol",
        }
    }

    /// What cannot be asked of such servers.
    fn refusals(self, options: &Options) -> Vec<(bool, &'static str)> {
        let is_larger_than = |bytes_max: usize| options.value_bytes.max > bytes_max;
        let has_password = options.password.is_some();
        match self {
            Self::Resp => Vec::new(),
            Self::Http => vec![
                (options.mix.incr > 0, "there is no INCR over HTTP"),
                (options.wait.is_some(), "there is no WAIT over HTTP"),
            ],
            Self::Etcd => vec![
                (options.mix.incr > 0 || options.mix.ping > 0, "etcd is asked for GET and SET only"),
                (options.wait.is_some(), "there is no WAIT at etcd"),
                (has_password, "etcd is asked without a password only"),
                (is_larger_than(etcd::VALUE_BYTES_MAX), "values for etcd must have at most 8 KiB: one frame"),
                (
                    options.pipeline.saturating_mul(etcd::request_bytes_max(options)) > etcd::BATCH_BYTES_MAX,
                    "the requests of a pipeline must have at most 48 KiB together for etcd",
                ),
            ],
            Self::ZooKeeper => vec![
                (options.mix.incr > 0, "there is no INCR at ZooKeeper"),
                (options.wait.is_some(), "there is no WAIT at ZooKeeper"),
                (has_password, "ZooKeeper is asked without a password only"),
                (
                    options.key_prefix.contains('/'),
                    "keys for ZooKeeper must have no slash: they are nodes of the root",
                ),
                (
                    is_larger_than(zookeeper::VALUE_BYTES_MAX),
                    "values for ZooKeeper must have at most 1,000,000 bytes",
                ),
            ],
        }
    }
}

/// When measuring ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After so many operations, whatever their outcome.
    Count(u64),
    /// After so many of each connection, whatever their outcome: who is done first waits for the others. Closed loop only.
    CountEach(u64),
    /// After so much time.
    Duration(Duration),
}

/// `WAIT replicas timeout_ms` after each SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How many replicas must have the write, else the operation failed.
    pub replicas: u32,
    /// How long the server waits for them; 0 is for ever.
    pub timeout_ms: u32,
}

impl Default for Options {
    /// Half reads, half writes of 64 bytes on one address that stands for "this machine".
    fn default() -> Self {
        Self {
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 7000))],
            connections: 50,
            pipeline: 1,
            mix: Mix { get: 1, set: 1, ..Mix::default() },
            keys: 100_000,
            key_choice: KeyChoice::Uniform,
            key_prefix: "key:".to_owned(),
            key_bytes: None,
            value_bytes: Sizes::fixed(64),
            warmup: Duration::from_secs(1),
            stop: Stop::Duration(Duration::from_secs(10)),
            pace: Pace::Closed,
            seed: 1,
            transport: Transport::Resp,
            wait: None,
            wait_once: false,
            load: true,
            record: false,
            threads: 1,
            password: None,
            reply_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// Refuses what cannot work, in the words of the person who asked for it.
    pub fn validate(&self) -> Result<(), Error> {
        let in_flight_bytes = (self.connections as u64)
            .saturating_mul(self.pipeline as u64)
            .saturating_mul(self.value_bytes.max as u64 + self.key_size() as u64);
        let wait_ms = self.wait.map_or(0, |wait| u64::from(wait.timeout_ms));
        let refusals = [
            (self.addresses.is_empty(), "there is no address"),
            (self.connections == 0 || self.connections > CONNECTIONS_MAX, "connections must be 1 to 50000"),
            (self.threads == 0, "threads must be at least 1"),
            (self.threads > self.connections, "there are more threads than connections"),
            (self.pipeline == 0, "pipeline must be at least 1"),
            (self.keys == 0, "keys must be at least 1"),
            (self.mix.total() == 0, "the mix has no operation"),
            (!self.has_room_for_keys(), "the key size has no room for the prefix and the keys' digits"),
            (self.key_size() > KEY_BYTES_MAX, "key size must be at most 1 MiB"),
            (!is_exponent(self.key_choice), "the Zipf exponent must be more than 0 and at most 20"),
            (!is_rate(self.pace), "the rate must be more than 0 and at most 100 million per second"),
            (self.value_bytes.min > self.value_bytes.max, "the smallest value is larger than the largest"),
            (self.value_bytes.max > VALUE_BYTES_MAX, "value size must be at most 512 MiB"),
            (in_flight_bytes > IN_FLIGHT_BYTES_MAX, "connections x pipeline x value size exceeds 1 GiB"),
            (
                self.record && self.value_bytes.min < VALUE_BYTES_MIN_RECORDED,
                "to tell writes apart in a history, values must have at least 32 bytes",
            ),
            (matches!(self.stop, Stop::Count(0) | Stop::CountEach(0)), "count must be at least 1"),
            (
                matches!(self.stop, Stop::CountEach(_)) && self.pace != Pace::Closed,
                "in an open loop no connection has operations of its own to count",
            ),
            (self.stop == Stop::Duration(Duration::ZERO), "duration must be more than 0"),
            (
                self.warmup > RUN_MAX || matches!(self.stop, Stop::Duration(duration) if duration > RUN_MAX),
                "warm-up and duration must each be at most 1 year",
            ),
            (self.reply_timeout.is_zero(), "the reply timeout must be more than 0"),
            (self.reply_timeout > REPLY_TIMEOUT_MAX, "the reply timeout must be at most 1 hour"),
            (
                Duration::from_millis(wait_ms) >= self.reply_timeout,
                "WAIT's timeout must be shorter than the reply timeout",
            ),
            (self.wait_once && self.wait.is_none(), "there is no WAIT that could come once for each batch"),
        ];
        match refusals.iter().chain(&self.transport.refusals(self)).find(|(is_refused, _)| *is_refused) {
            Some((_, reason)) => Err(Error::Usage((*reason).to_owned())),
            None => Ok(()),
        }
    }

    /// How many digits a key has after its prefix.
    pub(crate) fn key_digits(&self) -> usize {
        match self.key_bytes {
            Some(bytes) => bytes.saturating_sub(self.key_prefix.len()),
            None => KEY_DIGITS_MIN.max(digits(self.keys)),
        }
    }

    pub(crate) fn key_size(&self) -> usize {
        self.key_prefix.len().saturating_add(self.key_digits())
    }

    fn has_room_for_keys(&self) -> bool {
        self.key_digits() >= digits(self.keys)
    }
}

/// How many digits the number of the last of so many keys has.
fn digits(keys: u64) -> usize {
    keys.saturating_sub(1).to_string().len()
}

fn is_exponent(choice: KeyChoice) -> bool {
    match choice {
        KeyChoice::Zipf(exponent) => exponent > 0.0 && exponent <= ZIPF_EXPONENT_MAX,
        KeyChoice::Uniform | KeyChoice::Sequential => true,
    }
}

fn is_rate(pace: Pace) -> bool {
    match pace {
        Pace::Open { per_second, .. } => per_second > 0.0 && per_second <= RATE_MAX,
        Pace::Closed => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert!(Options::default().validate().is_ok());
    }

    fn rate(per_second: f64) -> Pace {
        Pace::Open { per_second, arrivals: Arrivals::Even }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refused = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            matches!(options.validate(), Err(Error::Usage(_)))
        };
        assert!(refused(|options| options.addresses.clear()));
        assert!(refused(|options| options.connections = 0));
        assert!(refused(|options| options.threads = 51));
        assert!(refused(|options| options.pipeline = 0));
        assert!(refused(|options| options.keys = 0));
        assert!(refused(|options| options.mix = Mix::default()));
        assert!(refused(|options| options.value_bytes = Sizes::fixed(100 << 20)));
        assert!(refused(|options| options.value_bytes = Sizes { min: 2, max: 1 }));
        assert!(refused(|options| options.key_bytes = Some(8)), "four for the prefix, five for the digits");
        assert!(refused(|options| options.key_choice = KeyChoice::Zipf(0.0)));
        assert!(refused(|options| options.key_choice = KeyChoice::Zipf(f64::NAN)));
        assert!(refused(|options| options.pace = rate(0.0)));
        assert!(refused(|options| options.pace = rate(f64::INFINITY)));
        assert!(refused(|options| {
            options.transport = Transport::Http;
            options.mix = Mix::only(Operation::Incr);
        }));
        assert!(refused(|options| {
            options.transport = Transport::Etcd;
            options.value_bytes = Sizes::fixed(5000);
            options.pipeline = 10;
        }));
        assert!(refused(|options| {
            options.transport = Transport::Etcd;
            options.value_bytes = Sizes::fixed(10_000);
        }));
        assert!(refused(|options| {
            options.transport = Transport::ZooKeeper;
            options.key_prefix = "a/b".to_owned();
        }));
        assert!(refused(|options| {
            options.record = true;
            options.value_bytes = Sizes { min: 31, max: 64 };
        }));
        assert!(refused(|options| options.stop = Stop::Count(0)));
        assert!(refused(|options| {
            options.stop = Stop::CountEach(5);
            options.pace = rate(10.0);
        }));
        assert!(refused(|options| options.wait = Some(Wait { replicas: 1, timeout_ms: 10_000 })));
        assert!(refused(|options| options.wait_once = true));
    }
}
