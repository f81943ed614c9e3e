//! The values that a keyspace's settings may have, and how each is written, in the same way in configuration files,
//! commands, the cluster map and reports. This is the only place where text becomes such a value.

use kv::table::Eviction;
use protocol::blocking::Retry;
use protocol::consensus::Lease;
use protocol::leader_follower::{Acks, Durability};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use std::fmt::Display;

/// How the replicas of a keyspace agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One replica leads, appointed by the control group.
    LeaderFollower,
    /// Registers, read and written at majorities (Attiya, Bar-Noy, Dolev).
    Abd,
    /// Registers, locked at a majority for each operation.
    Blocking,
    /// The replicas elect their leader.
    Consensus,
}

impl Protocol {
    /// Whether one replica leads. Otherwise any replica coordinates.
    pub fn has_leader(self) -> bool {
        match self {
            Protocol::LeaderFollower | Protocol::Consensus => true,
            Protocol::Abd | Protocol::Blocking => false,
        }
    }

    /// Whether keys are registers: values that are written whole, and never read and written in one step.
    pub fn has_registers(self) -> bool {
        match self {
            Protocol::LeaderFollower | Protocol::Consensus => false,
            Protocol::Abd | Protocol::Blocking => true,
        }
    }
}

/// Which replicas answer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Only one that knows that it is current.
    Linearizable,
    /// Any replica; the answer may be stale.
    Any,
}

/// Where values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory.
    Memory,
    /// Long ones on the disk, with a cache in front of them.
    Disk,
}

/// The value of one setting.
pub trait Setting: Sized {
    /// The name of the setting.
    const NAME: &'static str;

    /// The values that it may have, for error messages: `"memory" or "disk"`.
    const CHOICES: &'static str;

    /// Parses a value. `None` if the text is not one.
    fn parse(text: &str) -> Option<Self>;

    /// The text of a value, in the form in which it is parsed.
    fn text(&self) -> impl Display;
}

/// Implements [`Setting`] for a type each of whose values is one word.
macro_rules! words {
    ($setting:ty, $name:literal, $choices:literal, $($word:literal => $value:path),+) => {
        impl Setting for $setting {
            const NAME: &'static str = $name;
            const CHOICES: &'static str = $choices;

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some($value),)+
                    _ => None,
                }
            }

            fn text(&self) -> impl Display {
                match self {
                    $($value => $word,)+
                }
            }
        }
    };
}

words!(
    Protocol, "replication", "consensus, leader-follower, abd or blocking",
    "consensus" => Protocol::Consensus,
    "leader-follower" => Protocol::LeaderFollower,
    "abd" => Protocol::Abd,
    "blocking" => Protocol::Blocking
);
words!(
    Reads, "reads", r#""linearizable" or "any""#,
    "linearizable" => Reads::Linearizable,
    "any" => Reads::Any
);
words!(
    Storage, "storage", r#""memory" or "disk""#,
    "memory" => Storage::Memory,
    "disk" => Storage::Disk
);
words!(
    Durability, "durability", r#""none", "os" or "fsync""#,
    "none" => Durability::None,
    "os" => Durability::Os,
    "fsync" => Durability::Fsync
);
words!(
    Retry, "retry", r#""none" or "backoff""#,
    "none" => Retry::None,
    "backoff" => Retry::Backoff
);
words!(
    Lease, "lease", r#""log" or "off""#,
    "log" => Lease::Log,
    "off" => Lease::Off
);

/// The policies of Redis, by shorter names; Redis's own names are read, too.
impl Setting for Eviction {
    const NAME: &'static str = "eviction";
    const CHOICES: &'static str =
        "none, lru, lfu, lrm, random, ttl, volatile-lru, volatile-lfu, volatile-lrm or volatile-random";

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "none" | "noeviction" => Eviction::None,
            "lru" | "allkeys-lru" => Eviction::Lru,
            "lfu" | "allkeys-lfu" => Eviction::Lfu,
            "lrm" | "allkeys-lrm" => Eviction::Lrm,
            "random" | "allkeys-random" => Eviction::Random,
            "ttl" | "volatile-ttl" => Eviction::Ttl,
            "volatile-lru" => Eviction::VolatileLru,
            "volatile-lfu" => Eviction::VolatileLfu,
            "volatile-lrm" => Eviction::VolatileLrm,
            "volatile-random" => Eviction::VolatileRandom,
            _ => return None,
        })
    }

    fn text(&self) -> impl Display {
        match self {
            Eviction::None => "none",
            Eviction::Lru => "lru",
            Eviction::Lfu => "lfu",
            Eviction::Lrm => "lrm",
            Eviction::Random => "random",
            Eviction::Ttl => "ttl",
            Eviction::VolatileLru => "volatile-lru",
            Eviction::VolatileLfu => "volatile-lfu",
            Eviction::VolatileLrm => "volatile-lrm",
            Eviction::VolatileRandom => "volatile-random",
        }
    }
}

/// The names of these policies in Redis (`maxmemory-policy`).
pub const POLICIES: [&str; 10] = [
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-lrm",
    "allkeys-random",
    "volatile-ttl",
    "volatile-lru",
    "volatile-lfu",
    "volatile-lrm",
    "volatile-random",
];

/// The name of a policy in Redis.
pub fn policy_name(eviction: Eviction) -> &'static str {
    POLICIES.into_iter().find(|name| Eviction::parse(name) == Some(eviction)).unwrap_or("noeviction")
}

/// `None` is the protocol's default.
impl Setting for Option<Durability> {
    const NAME: &'static str = Durability::NAME;
    const CHOICES: &'static str = Durability::CHOICES;

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { Durability::parse(text).map(Some) }
    }

    fn text(&self) -> impl Display {
        self.map_or_else(String::new, |durability| durability.text().to_string())
    }
}

impl Setting for Acks {
    const NAME: &'static str = "acks";
    const CHOICES: &'static str = "none, a number, majority or all";

    fn parse(text: &str) -> Option<Self> {
        match text {
            "none" | "0" => Some(Acks::None),
            "majority" => Some(Acks::Majority),
            "all" => Some(Acks::All),
            number => number.parse().ok().map(Acks::Count),
        }
    }

    fn text(&self) -> impl Display {
        match self {
            Acks::None => "none".to_string(),
            Acks::Majority => "majority".to_string(),
            Acks::All => "all".to_string(),
            Acks::Count(count) => count.to_string(),
        }
    }
}

/// `None`: values are copied whole.
impl Setting for Option<Parts> {
    const NAME: &'static str = "coding";
    const CHOICES: &'static str = r#""none", "adaptive" or a number of parts"#;

    fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(None),
            "adaptive" => Some(Some(Parts::Adaptive)),
            number => number.parse().ok().filter(|parts| *parts > 0).map(|parts| Some(Parts::Fixed(parts))),
        }
    }

    fn text(&self) -> impl Display {
        match self {
            None => "none".to_string(),
            Some(Parts::Adaptive) => "adaptive".to_string(),
            Some(Parts::Fixed(parts)) => parts.to_string(),
        }
    }
}

/// For `#[serde(serialize_with)]`.
pub(crate) fn serialize<T: Setting, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&value.text())
}

/// For `#[serde(deserialize_with)]`. A number may be written without quotation marks.
pub(crate) fn deserialize<'de, T: Setting, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a number")]
    enum Given {
        Text(String),
        Number(u64),
    }
    let text = match Given::deserialize(deserializer)? {
        Given::Text(text) => text,
        Given::Number(number) => number.to_string(),
    };
    T::parse(&text)
        .ok_or_else(|| D::Error::custom(format_args!("unknown {} \"{text}\"; use {}", T::NAME, T::CHOICES)))
}

/// Parses a number of bytes with or without a unit: `k` is 1000, `kb` is 1024, and so on.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| i64::try_from(*bytes).is_ok())
}

/// For `#[serde(deserialize_with)]`: a number of bytes, or a text with a unit.
pub(crate) fn deserialize_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number of bytes, or a text such as \"100mb\"")]
    enum Given {
        Number(u64),
        Text(String),
    }
    match Given::deserialize(deserializer)? {
        Given::Number(bytes) => Ok(bytes),
        Given::Text(text) => parse_bytes(&text)
            .ok_or_else(|| D::Error::custom(format_args!("\"{text}\" is no number of bytes such as 100mb"))),
    }
}

/// Into how many parts a keyspace wants its large values cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Always this many.
    Fixed(u8),
    /// As many as are predicted to be the fastest, for each value.
    Adaptive,
}

/// A keyspace's settings for large values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodingSettings {
    /// Into how many parts a value is cut, if enough nodes answer.
    pub parts: Parts,
    /// The shortest value that is cut, in bytes.
    pub threshold: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn every_text_is_parsed_again<T: Setting + PartialEq + Debug>(values: &[T]) {
        for value in values {
            let text = value.text().to_string();
            assert_eq!(T::parse(&text).as_ref(), Some(value), "{} = {text}", T::NAME);
        }
        assert_eq!(T::parse("?"), None, "{}", T::NAME);
    }

    #[test]
    fn a_value_is_parsed_as_it_is_written() {
        use Protocol::{Abd, Blocking, Consensus, LeaderFollower};
        every_text_is_parsed_again(&[Consensus, LeaderFollower, Abd, Blocking]);
        every_text_is_parsed_again(&[Reads::Linearizable, Reads::Any]);
        every_text_is_parsed_again(&[Storage::Memory, Storage::Disk]);
        every_text_is_parsed_again(&[
            None,
            Some(Durability::None),
            Some(Durability::Os),
            Some(Durability::Fsync),
        ]);
        every_text_is_parsed_again(&[Retry::None, Retry::Backoff]);
        every_text_is_parsed_again(&[Lease::Log, Lease::Off]);
        every_text_is_parsed_again(&[Acks::None, Acks::Count(2), Acks::Majority, Acks::All]);
        every_text_is_parsed_again(&[None, Some(Parts::Adaptive), Some(Parts::Fixed(3))]);
        use Eviction::{Lfu, Lrm, Lru, Random, Ttl, VolatileLfu, VolatileLrm, VolatileLru, VolatileRandom};
        let volatile = [Ttl, VolatileLru, VolatileLfu, VolatileLrm, VolatileRandom];
        let policies = [&[Eviction::None, Lru, Lfu, Lrm, Random][..], &volatile].concat();
        every_text_is_parsed_again(&policies);
        assert!(policies.iter().all(|policy| Eviction::parse(policy_name(*policy)) == Some(*policy)));
        assert_eq!(POLICIES.len(), policies.len());
        assert_eq!(Option::<Parts>::parse("0"), None, "a value cannot be cut into no parts");
    }
}
