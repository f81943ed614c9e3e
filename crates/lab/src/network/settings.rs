//! The settings of a link and of a node's interface, and their notation.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A node's number, as in the cluster map. 0 is free for other programs, such as clients.
pub type Node = u16;

/// The slowest link: below this a single packet would take longer than a minute.
const BITS_PER_SECOND_MIN: u64 = 1_000;

/// The longest delay and jitter.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// How late a reordered packet arrives, unless the link's settings say otherwise.
const REORDER_DELAY_DEFAULT: Duration = Duration::from_millis(1);

/// The rate at which bytes of a connection are carried. Headers are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth {
    bits_per_second: u64,
}

impl Bandwidth {
    /// Creates a bandwidth from bits per second; at least 1000.
    #[must_use]
    pub const fn bits_per_second(bits_per_second: u64) -> Bandwidth {
        let is_enough = bits_per_second > BITS_PER_SECOND_MIN;
        Bandwidth { bits_per_second: if is_enough { bits_per_second } else { BITS_PER_SECOND_MIN } }
    }

    /// Creates a bandwidth from megabits per second.
    #[must_use]
    pub const fn megabits(megabits: u64) -> Bandwidth {
        Bandwidth::bits_per_second(megabits.saturating_mul(1_000_000))
    }

    /// The bandwidth in bits per second.
    #[must_use]
    pub const fn as_bits_per_second(self) -> u64 {
        self.bits_per_second
    }
}

impl FromStr for Bandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Bandwidth, String> {
        let refusal = || format!("'{text}' is not a bandwidth: write 500kbit, 10mbit or 1gbit");
        let (number, unit) = split_unit(text).ok_or_else(refusal)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(refusal()),
        };
        let bits = number * factor;
        if !(BITS_PER_SECOND_MIN as f64..=1e12).contains(&bits) {
            return Err(format!("bandwidth {text} is not between 1kbit and 1000gbit"));
        }
        Ok(Bandwidth::bits_per_second(bits.round() as u64))
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_second;
        for (factor, unit) in [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")] {
            if bits.is_multiple_of(factor) {
                return write!(formatter, "{}{unit}", bits / factor);
            }
        }
        write!(formatter, "{bits}bit")
    }
}

/// The properties of the link from one node to another. The opposite direction is a separate link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The bandwidth; `None` for as fast as the relay can.
    pub bandwidth: Option<Bandwidth>,
    /// The delay of every packet.
    pub delay: Duration,
    /// Each packet's delay differs from `delay` by at most this, evenly distributed.
    pub jitter: Duration,
    /// The probability that a packet is lost and sent again.
    pub loss: f64,
    /// The probability that a packet comes later than those behind it.
    pub reorder: f64,
    /// By how much a reordered packet is late.
    pub reorder_delay: Duration,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            bandwidth: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            reorder_delay: REORDER_DELAY_DEFAULT,
        }
    }
}

impl Link {
    /// Returns the link with the settings in `words`, such as `delay=10ms loss=1%`, changed.
    ///
    /// # Errors
    /// A word is not understood: the error says which.
    pub fn change(mut self, words: &str) -> Result<Link, String> {
        for word in words.split_whitespace() {
            let (name, value) = setting(word)?;
            match name {
                "bandwidth" => self.bandwidth = optional(value)?,
                "delay" => self.delay = duration(value)?,
                "jitter" => self.jitter = duration(value)?,
                "loss" => self.loss = share(value)?,
                "reorder" => self.reorder = share(value)?,
                "reorder_delay" => self.reorder_delay = duration(value)?,
                _ => {
                    return Err(format!(
                        "a link has no '{name}': it has bandwidth, delay, jitter, loss, reorder, reorder_delay"
                    ));
                }
            }
        }
        if self.jitter > self.delay {
            return Err(format!(
                "jitter {:?} is greater than the delay {:?}: packets would arrive before they are sent",
                self.jitter, self.delay
            ));
        }
        Ok(self)
    }

    /// Whether the link only carries: it has no bandwidth limit, delay, jitter, loss or reordering.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_never = self.loss == 0.0 && self.reorder == 0.0;
        self.bandwidth.is_none() && self.delay.is_zero() && self.jitter.is_zero() && is_never
    }
}

impl fmt::Display for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bandwidth {
            Some(bandwidth) => write!(formatter, "bandwidth={bandwidth}")?,
            None => formatter.write_str("bandwidth=none")?,
        }
        write!(formatter, " delay={:?} jitter={:?}", self.delay, self.jitter)?;
        write!(formatter, " loss={}% reorder={}%", self.loss * 100.0, self.reorder * 100.0)?;
        if self.reorder > 0.0 {
            write!(formatter, " reorder_delay={:?}", self.reorder_delay)?;
        }
        Ok(())
    }
}

/// A node's own interface, shared by all its links, separately for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The sending bandwidth; `None` for no limit.
    pub up: Option<Bandwidth>,
    /// The receiving bandwidth; `None` for no limit.
    pub down: Option<Bandwidth>,
}

impl Interface {
    /// Returns the interface with the settings in `words`, such as `up=10mbit down=none`, changed.
    ///
    /// # Errors
    /// A word is not understood: the error says which.
    pub fn change(mut self, words: &str) -> Result<Interface, String> {
        for word in words.split_whitespace() {
            let (name, value) = setting(word)?;
            match name {
                "up" => self.up = optional(value)?,
                "down" => self.down = optional(value)?,
                "bandwidth" => (self.up, self.down) = (optional(value)?, optional(value)?),
                _ => return Err(format!("a node has no '{name}': it has up, down, and bandwidth for both")),
            }
        }
        Ok(self)
    }
}

/// What a link does with traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Traffic is carried.
    #[default]
    Open,
    /// Traffic is dropped, as by a silent firewall: TCP sends it again until the link is open.
    Drop,
    /// Traffic is refused: connections are reset and new ones refused.
    Reject,
}

fn setting(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=').ok_or_else(|| format!("'{word}' is not a setting: write name=value"))
}

fn optional(value: &str) -> Result<Option<Bandwidth>, String> {
    if value == "none" { Ok(None) } else { value.parse().map(Some) }
}

fn duration(text: &str) -> Result<Duration, String> {
    let refusal = || format!("'{text}' is not a duration: write 500us, 10ms or 1s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = split_unit(text).ok_or_else(refusal)?;
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => return Err(refusal()),
    };
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| refusal())?;
    if duration > DELAY_MAX {
        return Err(format!("{text} is longer than the longest delay, {DELAY_MAX:?}"));
    }
    Ok(duration)
}

fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("'{text}' is not a probability: write 1% or 0.01")),
    }
}

fn split_unit(text: &str) -> Option<(f64, &str)> {
    let unit_at = text.find(char::is_alphabetic)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_as_written() {
        let link =
            Link::default().change("bandwidth=2.5mbit delay=10ms jitter=500us loss=1% reorder=0.02").unwrap();
        assert_eq!(link.bandwidth, Some(Bandwidth::bits_per_second(2_500_000)));
        assert_eq!(link.delay, Duration::from_millis(10));
        assert_eq!(link.jitter, Duration::from_micros(500));
        assert_eq!((link.loss, link.reorder), (0.01, 0.02));
        let later = link.change("bandwidth=none loss=0").unwrap();
        assert_eq!((later.bandwidth, later.loss, later.delay), (None, 0.0, link.delay));
        let interface = Interface::default().change("bandwidth=10mbit down=1gbit").unwrap();
        assert_eq!(interface.up, Some(Bandwidth::megabits(10)));
        assert_eq!(interface.down, Some(Bandwidth::megabits(1_000)));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (words, expected) in [
            ("delay", "name=value"),
            ("delay=10", "not a duration"),
            ("delay=2m", "not a duration"),
            ("delay=100s", "longest delay"),
            ("delay=1ms jitter=2ms", "before they are sent"),
            ("loss=101%", "not a probability"),
            ("bandwidth=10", "not a bandwidth"),
            ("bandwidth=-1mbit", "not a bandwidth"),
            ("bandwidth=1bit", "not between"),
            ("speed=1mbit", "no 'speed'"),
        ] {
            let refusal = Link::default().change(words).unwrap_err();
            assert!(refusal.contains(expected), "{words}: {refusal}");
        }
    }

    #[test]
    fn a_link_reads_back_as_it_is_shown() {
        let link =
            Link::default().change("bandwidth=10mbit delay=10ms jitter=1ms loss=2% reorder=1%").unwrap();
        assert_eq!(Link::default().change(&link.to_string()).unwrap(), link);
    }
}
