//! The options of a run.

use std::net::SocketAddr;
use std::time::Duration;

use super::custom::Custom;
use super::keys::KeyChoice;
use super::outcome::Operation;
use super::tls::Tls;
use super::value::Sizes;

/// Keys have at least this many digits, as those of redis-benchmark.
const KEY_DIGITS_MIN: usize = 12;

/// What to send, to which servers, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers; connections are spread over them.
    pub addresses: Vec<SocketAddr>,
    /// How many connections there are in total; each has one batch of requests in flight.
    pub connections: usize,
    /// How many requests a batch has.
    pub pipeline: usize,
    /// The share of each operation.
    pub mix: Mix,
    /// The command that [`Operation::Custom`] sends.
    pub custom: Option<Custom>,
    /// The command that loads each key instead of SET.
    pub custom_load: Option<Custom>,
    /// The number of keys.
    pub keys: u64,
    /// How a request's key is chosen.
    pub key_choice: KeyChoice,
    /// The prefix of every key.
    pub key_prefix: String,
    /// The size of each key in bytes, including its prefix; `None` is 12 digits after the prefix, more if the number of
    /// keys needs them.
    pub key_bytes: Option<usize>,
    /// The size of each value in bytes.
    pub value_bytes: Sizes,
    /// How long requests are sent before measuring starts.
    pub warmup: Duration,
    /// When measuring ends.
    pub stop: Stop,
    /// When requests are sent.
    pub pace: Pace,
    /// The seed of keys and operations; the same seed gives the same ones.
    pub seed: u64,
    /// The protocol.
    pub transport: Transport,
    /// Whether each SET is followed by WAIT, which counts with it as one operation.
    pub wait: Option<Wait>,
    /// Whether WAIT follows each batch that has a SET once, instead of each SET: it answers for all of them.
    pub wait_once: bool,
    /// Whether every key is written once before the run, so that reads find values.
    pub load: bool,
    /// Whether every operation is recorded, loading included, for
    /// [`Report::take_history`](super::Report::take_history).
    pub record: bool,
    /// How many threads drive the connections.
    pub threads: usize,
    /// The processor cores that the threads are pinned to, one after the other, and then from the first one on. Empty: the system
    /// places them.
    pub cores: Vec<usize>,
    /// As whom to log in, if at all.
    pub login: Option<Login>,
    /// How to speak TLS with the servers; `None` is without.
    pub tls: Option<Tls>,
    /// How long to wait for a batch's replies before its connection is given up.
    pub reply_timeout: Duration,
}

/// A user, and the password.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user's name; `None` is the default user.
    pub user: Option<String>,
    /// The password.
    pub password: String,
}

/// The share of each operation, as weights: GET 1 and SET 1 is half and half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// The weight of GET, which reads.
    pub get: u32,
    /// The weight of SET, which writes.
    pub set: u32,
    /// The weight of INCR, which counts.
    pub incr: u32,
    /// The weight of PING, an empty round trip.
    pub ping: u32,
    /// The weight of the custom command.
    pub custom: u32,
}

impl Mix {
    /// A mix of one operation.
    pub fn only(operation: Operation) -> Self {
        let mut mix = Self::default();
        *match operation {
            Operation::Get => &mut mix.get,
            Operation::Set => &mut mix.set,
            Operation::Incr => &mut mix.incr,
            Operation::Ping => &mut mix.ping,
            Operation::Custom => &mut mix.custom,
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
            Operation::Custom => self.custom,
        }
    }

    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        Operation::ALL.iter().map(|operation| u64::from(self.weight(*operation))).sum()
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: a connection's next batch follows the replies to its last one.
    Closed,
    /// Open loop: requests are due at predetermined times, whatever the outcome of those before. Latencies are measured
    /// from these times, so that a delay caused by a slow server counts in full.
    Open {
        /// How many requests are due per second.
        per_second: f64,
        /// The distribution of the times.
        arrivals: Arrivals,
    },
}

/// How the times at which requests are due are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals.
    Even,
    /// With exponentially distributed gaps, as from many independent clients.
    Poisson,
}

/// The protocol of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The Redis protocol.
    Resp,
    /// HTTP/1.1 with JSON: `POST /put`, `GET /get/{key}`, and `GET /health` for PING.
    Http,
    /// etcd's own protocol: `Put` and `Range` by gRPC.
    Etcd,
    /// ZooKeeper's own protocol: `setData` and `getData`, and its ping.
    ZooKeeper,
}

impl Transport {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// The protocol's description beside the options of a run; empty for RESP.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Resp => "",
            Self::Http => " over HTTP",
            Self::Etcd => " by etcd's gRPC",
            Self::ZooKeeper => " by ZooKeeper's protocol",
        }
    }
}

/// When measuring ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After this many operations, whatever their outcome.
    Count(u64),
    /// After this many operations of each connection, whatever their outcome: a connection that is done waits for the
    /// others. Closed loop only.
    CountEach(u64),
    /// After this time.
    Duration(Duration),
}

/// `WAIT replicas timeout_ms` after each SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How many replicas must have the write; otherwise the operation has failed.
    pub replicas: u32,
    /// How long the server waits for them, in milliseconds; 0 is without limit.
    pub timeout_ms: u32,
}

impl Default for Options {
    /// Half reads, half writes of 64 bytes, to one local address.
    fn default() -> Self {
        Self {
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 7000))],
            connections: 50,
            pipeline: 1,
            mix: Mix { get: 1, set: 1, ..Mix::default() },
            custom: None,
            custom_load: None,
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
            cores: Vec::new(),
            login: None,
            tls: None,
            reply_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
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

    pub(crate) fn has_room_for_keys(&self) -> bool {
        self.key_digits() >= digits(self.keys)
    }
}

/// How many digits the number of the last of `keys` keys has.
fn digits(keys: u64) -> usize {
    keys.saturating_sub(1).to_string().len()
}
