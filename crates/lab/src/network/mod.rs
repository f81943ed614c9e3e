//! The network between the nodes under test: a seeded relay, and the kernel's own means in network namespaces.
//!
//! A relay stands between TCP programs that know nothing of it. Whoever shall reach a node through a link dials the
//! relay's address for that link instead of the node's. Each directed link has a bandwidth, a delay, jitter, loss and
//! reordering; each node has an interface whose bandwidth its links share, each way for itself; a link can be cut.
//! Everything can be changed while it runs, and everything that chance decides is drawn from a seed.
//!
//! What reaches the relay is a stream, so a packet cannot be missing from it. A lost packet is one that arrives later,
//! by as much as TCP needs to send it again, and what is behind it on its connection waits for it. `docs/guide/network.md`
//! says what is modelled, what is not, and how what was measured compares with what was asked.
//!
//! Reading order: `settings` (what can be asked), `draws` (chance), `pace` (a rate), `fabric` (when what is sent
//! arrives), `connection` (what is under way), `engine` (sockets and time), `relay` (its handle), `namespaces`.

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
mod settings;
mod timer;

use std::time::Duration;

pub use command_line::{RelayArgs, relay};
pub use fabric::Traffic;
#[cfg(target_os = "linux")]
pub use namespaces::Namespaces;
pub use relay::{LinkTraffic, Relay, Route};
pub use settings::{Bandwidth, Gate, Interface, Link, Node};

/// Nanoseconds since the relay began.
type Nanos = u64;

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
