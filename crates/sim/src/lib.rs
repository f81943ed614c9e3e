//! The simulated world: whole clusters of `node` in virtual time.
//!
//! One seed decides everything: the cluster and its keyspaces, how the network, the clocks and the clients behave,
//! and what goes wrong when. Two runs of a seed are equal, byte for byte.
//!
//! Reading order: `promise` (what each protocol promises, and therefore what is checked), `faults` and `scenario`
//! (what a seed means), `disk` (a machine's disk), `events` and `world` (what happens), `record` and `judge` (the
//! replies that clients got, and whether they can be right), `shrink` (finds a smaller run that still fails).

mod across;
mod buffers;
mod caching;
mod clients;
mod clock;
mod conversation;
mod describe;
mod disk;
mod events;
mod faults;
mod host;
mod job;
mod judge;
mod locking;
mod message;
mod network;
mod operation;
mod pipe;
mod promise;
mod random;
mod reading;
mod record;
mod report;
mod run;
mod scenario;
mod shrink;
mod totals;
mod trace;
mod world;

pub use faults::{Class, Counts};
pub use promise::Protocol;
pub use report::{Broken, Failure, Report, Seen};
pub use run::run;
pub use scenario::{Calm, Part, Settings};
pub use shrink::{Shrunk, shrink};
pub use totals::Totals;
pub use trace::Line;
