//! Parses the values of `quorate bench`'s flags.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::keys::KeyChoice;
use super::options::{Mix, Transport};
use super::value::Sizes;

/// The greatest number of a processor core.
const CORE_MAX: usize = 1023;

/// The default exponent of `zipf`: that of YCSB.
const ZIPF_EXPONENT: f64 = 0.99;

/// A server to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The host as it was given: the name that its certificate must have.
    pub(crate) host: String,
    /// Its protocol, if the address names one.
    pub(crate) transport: Option<Transport>,
    /// Whether the address asks for TLS.
    pub(crate) is_tls: bool,
}

/// `HOST:PORT`, `rediss://HOST:PORT`, `etcd://HOST:PORT` or `zookeeper://HOST:PORT`.
pub(crate) fn parse_server(text: &str) -> Result<Server, String> {
    let (transport, address) = match text.split_once("://") {
        None => (None, text),
        Some(("redis" | "rediss", address)) => (Some(Transport::Resp), address),
        Some(("etcd", address)) => (Some(Transport::Etcd), address),
        Some(("zookeeper", address)) => (Some(Transport::ZooKeeper), address),
        Some(_) => {
            return Err(
                "expected HOST:PORT, redis://HOST:PORT, rediss://HOST:PORT (TLS), etcd://HOST:PORT or \
                        zookeeper://HOST:PORT"
                    .to_owned(),
            );
        }
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    Ok(Server { address: parse_address(address)?, host, transport, is_tls: text.starts_with("rediss://") })
}

/// A host and a port. Of a host with several addresses, takes the first IPv4 one, because servers listen on IPv4
/// by default.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let addresses: Vec<SocketAddr> = text.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| "the host has no address".to_owned())
}

pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number")?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("it must be from 0 to 1".to_owned()) }
}

/// Processor cores, in the order in which threads get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

/// Processor cores, such as `0,2-3`.
pub(crate) fn parse_cores(text: &str) -> Result<Cores, String> {
    let wrong = || format!("expected processor cores from 0 to {CORE_MAX}, such as 0,2-3");
    let core = |text: &str| text.parse::<usize>().ok().filter(|core| *core <= CORE_MAX).ok_or_else(wrong);
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (core(first)?, core(last)?);
        if first > last {
            return Err(wrong());
        }
        cores.extend(first..=last);
    }
    Ok(Cores(cores))
}

/// A number with `ms`, `s` or `m`; without a unit it is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit_s) = if let Some(number) = text.strip_suffix("ms") {
        (number, 0.001)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else {
        (text, 1.0)
    };
    let seconds = number.parse::<f64>().map_err(|_| "expected a duration such as 500ms, 10s or 2m")? * unit_s;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// `uniform`, `sequential`, `zipf`, or `zipf:EXPONENT`.
pub(crate) fn parse_key_choice(text: &str) -> Result<KeyChoice, String> {
    match (text, text.strip_prefix("zipf:")) {
        ("uniform", _) => Ok(KeyChoice::Uniform),
        ("sequential", _) => Ok(KeyChoice::Sequential),
        ("zipf", _) => Ok(KeyChoice::Zipf(ZIPF_EXPONENT)),
        (_, Some(exponent)) => {
            exponent.parse().map(KeyChoice::Zipf).map_err(|_| "the exponent is not a number".to_owned())
        }
        _ => Err("expected uniform, sequential, zipf or zipf:EXPONENT".to_owned()),
    }
}

/// `BYTES`, or `MIN-MAX`.
pub(crate) fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let number = |text: &str| text.parse().map_err(|_| "expected a size such as 64 or 64-1024".to_owned());
    match text.split_once('-') {
        None => number(text).map(Sizes::fixed),
        Some((min, max)) => Ok(Sizes { min: number(min)?, max: number(max)? }),
    }
}

/// Operations with their weights: `get=8,set=1,incr=1`.
pub(crate) fn parse_mix(text: &str) -> Result<Mix, String> {
    let mut mix = Mix::default();
    for part in text.split(',') {
        let (name, weight) = part.split_once('=').ok_or("expected weights such as get=8,set=2")?;
        let weight = weight.parse().map_err(|_| format!("the weight of {name} is not a number"))?;
        *match name {
            "get" => &mut mix.get,
            "set" => &mut mix.set,
            "incr" => &mut mix.incr,
            "ping" => &mut mix.ping,
            _ => return Err(format!("there is no operation {name}: get, set, incr, ping")),
        } = weight;
    }
    Ok(mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = |text| parse_duration(text).unwrap().as_secs_f64();
        assert_eq!((seconds("500ms"), seconds("10s"), seconds("2m"), seconds("3")), (0.5, 10.0, 120.0, 3.0));
        for wrong in ["soon", "-1s", "infs", ""] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!(parse_cores("0,2-3"), Ok(Cores(vec![0, 2, 3])));
        for wrong in ["", "a", "3-2", "1-", "-1", "1024", "0,,1"] {
            assert!(parse_cores(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_chosen_by_name() {
        assert_eq!(parse_key_choice("uniform"), Ok(KeyChoice::Uniform));
        assert_eq!(parse_key_choice("sequential"), Ok(KeyChoice::Sequential));
        assert_eq!(parse_key_choice("zipf"), Ok(KeyChoice::Zipf(0.99)));
        assert_eq!(parse_key_choice("zipf:1.2"), Ok(KeyChoice::Zipf(1.2)));
        assert!(parse_key_choice("zipf:much").is_err() && parse_key_choice("hot").is_err());
    }

    #[test]
    fn sizes_are_one_or_a_range() {
        assert_eq!(parse_sizes("64"), Ok(Sizes::fixed(64)));
        assert_eq!(parse_sizes("64-1024"), Ok(Sizes { min: 64, max: 1024 }));
        assert!(parse_sizes("64-").is_err() && parse_sizes("-1").is_err() && parse_sizes("big").is_err());
    }

    #[test]
    fn a_mix_is_a_list_of_weights() {
        assert_eq!(parse_mix("get=8,set=1,incr=1"), Ok(Mix { get: 8, set: 1, incr: 1, ..Mix::default() }));
        assert_eq!(parse_mix("ping=1"), Ok(Mix { ping: 1, ..Mix::default() }));
        for wrong in ["", "get", "get=x", "fly=1", "get=-1"] {
            assert!(parse_mix(wrong).is_err(), "{wrong}");
        }
    }
}
