//! The network between the nodes under test: a seeded relay, and the kernel's own mechanisms in network namespaces.
//!
//! A relay sits between TCP programs that are unaware of it. To reach a node through a link, a program dials the
//! relay's address for that link instead of the node's. Each directed link has a bandwidth, a delay, jitter, loss and
//! reordering; each node has an interface whose bandwidth its links share, separately for each direction; a link can be
//! cut. Every setting can be changed while the relay runs, and every random choice is drawn from a seed.
//!
//! The relay carries streams, so a packet cannot be missing from one. Instead, a lost packet arrives later, by as much
//! as TCP needs to send it again, and everything behind it on its connection waits for it. `docs/guide/network.md`
//! describes what is modelled, what is not, and how measured behaviour compares with the settings.
//!
//! Reading order: `settings` (what can be set), `draws` (chance), `pace` (a rate), `fabric` (arrival times),
//! `connection` (bytes in flight), `request`, `engine` (sockets and time), `relay` (its handle), `namespaces`.

mod command_line;
mod connection;
mod draws;
mod engine;
mod fabric;
mod measure;
#[cfg(target_os = "linux")]
mod namespaces;
mod pace;
mod relay;
mod request;
mod settings;
mod timer;

use std::time::Duration;

pub use command_line::{RelayArgs, relay};
pub use fabric::Traffic;
#[cfg(target_os = "linux")]
pub use namespaces::Namespaces;
pub use relay::Relay;
pub use request::{LinkTraffic, Route};
pub use settings::{Bandwidth, Gate, Interface, Link, Node};

/// Nanoseconds since the relay started.
type Nanos = u64;

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
