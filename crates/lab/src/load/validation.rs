//! Which options cannot work.

use std::time::Duration;

use super::keys::KeyChoice;
use super::options::{Options, Pace, Stop, Transport};
use super::{Error, etcd, zookeeper};

/// The limit for all requests in flight, so that a mistake in the options cannot take all memory.
const IN_FLIGHT_BYTES_MAX: u64 = 1 << 30;

/// The largest value, as in Redis.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// The longest key: enough to see what long keys cost.
const KEY_BYTES_MAX: usize = 1 << 20;

/// Values of at least this size identify the write that they come from.
const VALUE_BYTES_MIN_RECORDED: usize = 32;

/// Beyond this exponent nearly every draw is the first key.
const ZIPF_EXPONENT_MAX: f64 = 20.0;

/// The highest rate, in requests per second: far beyond what one machine sends.
const RATE_MAX: f64 = 1e8;

/// The most connections of one run.
const CONNECTIONS_MAX: usize = 50_000;

/// The longest reply timeout.
const REPLY_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The longest warm-up and the longest run.
const RUN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

impl Options {
    /// Refuses options that cannot work, with a message in the user's terms.
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
            (self.mix.custom > 0 && self.custom.is_none(), "there is no custom command to send"),
            (
                self.is_custom() && self.transport != Transport::Resp,
                "custom commands are sent by the Redis protocol only",
            ),
            (
                self.is_custom() && self.record,
                "what a custom command does to a key cannot be recorded or verified",
            ),
            (self.wait_once && self.wait.is_none(), "there is no WAIT to send once for each batch"),
        ];
        match refusals.iter().chain(&self.transport.refusals(self)).find(|(is_refused, _)| *is_refused) {
            Some((_, reason)) => Err(Error::Usage((*reason).to_owned())),
            None => Ok(()),
        }
    }

    fn is_custom(&self) -> bool {
        self.custom.is_some() || self.custom_load.is_some()
    }
}

impl Transport {
    /// The options that this protocol does not support.
    fn refusals(self, options: &Options) -> Vec<(bool, &'static str)> {
        let is_larger_than = |bytes_max: usize| options.value_bytes.max > bytes_max;
        let has_password = options.login.is_some();
        match self {
            Self::Resp => Vec::new(),
            Self::Http => vec![
                (options.mix.incr > 0, "there is no INCR over HTTP"),
                (options.wait.is_some(), "there is no WAIT over HTTP"),
            ],
            Self::Etcd => vec![
                (options.mix.incr > 0 || options.mix.ping > 0, "only GET and SET are supported for etcd"),
                (options.wait.is_some(), "there is no WAIT at etcd"),
                (has_password, "passwords are not supported for etcd"),
                (options.tls.is_some(), "TLS is not supported for etcd"),
                (is_larger_than(etcd::VALUE_BYTES_MAX), "values for etcd must have at most 8 KiB: one frame"),
                (
                    options.pipeline.saturating_mul(etcd::request_bytes_max(options)) > etcd::BATCH_BYTES_MAX,
                    "the requests of a pipeline must have at most 48 KiB together for etcd",
                ),
            ],
            Self::ZooKeeper => vec![
                (options.mix.incr > 0, "there is no INCR at ZooKeeper"),
                (options.wait.is_some(), "there is no WAIT at ZooKeeper"),
                (has_password, "passwords are not supported for ZooKeeper"),
                (options.tls.is_some(), "TLS is not supported for ZooKeeper"),
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
    use super::super::options::{Arrivals, Mix, Wait};
    use super::super::outcome::Operation;
    use super::super::value::Sizes;
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert!(Options::default().validate().is_ok());
    }

    fn rate(per_second: f64) -> Pace {
        Pace::Open { per_second, arrivals: Arrivals::Even }
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
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
        assert!(refused(|options| options.mix = Mix::only(Operation::Custom)));
        assert!(refused(|options| {
            options.custom = "LPUSH {key} {value}".parse().ok();
            options.record = true;
        }));
        assert!(refused(|options| {
            options.custom_load = "LPUSH {key} {value}".parse().ok();
            options.transport = Transport::Http;
        }));
    }
}
