//! What a run does, and what is refused before it starts.

use std::net::SocketAddr;
use std::time::Duration;

use super::Error;
use super::outcome::Operation;

/// The most that all requests in flight may take, so that a slip in the options cannot take all memory.
const IN_FLIGHT_BYTES_MAX: u64 = 1 << 30;

/// The largest value, as in Redis.
const VALUE_BYTES_MAX: usize = 512 << 20;

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
    /// How many keys there are; each request picks one, all equally likely.
    pub keys: u64,
    /// What every key starts with.
    pub key_prefix: String,
    /// The size of each value.
    pub value_bytes: usize,
    /// How long requests are sent before measuring starts.
    pub warmup: Duration,
    /// When measuring ends.
    pub stop: Stop,
    /// What keys and operations are drawn from; the same seed draws the same.
    pub seed: u64,
    /// Whether each SET is followed by WAIT, and both count as one operation.
    pub wait: Option<Wait>,
    /// Whether every key is written once before the run, so that reads find something.
    pub load: bool,
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

/// When measuring ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After so many operations, whatever their outcome.
    Count(u64),
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
            key_prefix: "key:".to_owned(),
            value_bytes: 64,
            warmup: Duration::from_secs(1),
            stop: Stop::Duration(Duration::from_secs(10)),
            seed: 1,
            wait: None,
            load: true,
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
            .saturating_mul(self.value_bytes as u64 + self.key_prefix.len() as u64);
        let wait_ms = self.wait.map_or(0, |wait| u64::from(wait.timeout_ms));
        let refusals = [
            (self.addresses.is_empty(), "there is no address"),
            (self.connections == 0 || self.connections > CONNECTIONS_MAX, "connections must be 1 to 50000"),
            (self.threads == 0, "threads must be at least 1"),
            (self.threads > self.connections, "there are more threads than connections"),
            (self.pipeline == 0, "pipeline must be at least 1"),
            (self.keys == 0, "keys must be at least 1"),
            (self.mix.total() == 0, "the mix has no operation"),
            (self.value_bytes > VALUE_BYTES_MAX, "value size must be at most 512 MiB"),
            (in_flight_bytes > IN_FLIGHT_BYTES_MAX, "connections x pipeline x value size exceeds 1 GiB"),
            (self.stop == Stop::Count(0), "count must be at least 1"),
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
        ];
        match refusals.iter().find(|(is_refused, _)| *is_refused) {
            Some((_, reason)) => Err(Error::Usage((*reason).to_owned())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert!(Options::default().validate().is_ok());
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
        assert!(refused(|options| options.value_bytes = 100 << 20));
        assert!(refused(|options| options.stop = Stop::Count(0)));
        assert!(refused(|options| options.wait = Some(Wait { replicas: 1, timeout_ms: 10_000 })));
    }
}
