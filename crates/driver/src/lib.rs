//! One turn of a node, in whatever world: sockets and files, a simulation, or a test.
//!
//! The node ([`node::Node`]) is a state machine without input or output. A [`Driver`] steps it: it takes in what has
//! arrived, tells the node what was finished beside it, has it make one batch of all that, writes the batches to the peers
//! and the replies to the clients. What it reads from and writes to is a [`World`]. There is no other loop that steps a
//! node: so what is found in the simulator is found in the turn that serves production, its backpressure, its looking
//! ahead and the buffers that it lends to the node included.
//!
//! A driver is owned by whoever runs it and shares nothing, so a process may have several, each with its node.
//!
//! Reading order: [`world`] (what a driver asks for), [`driver`](Driver) (a turn), [`clients`] (who is read when, and how
//! much), `clients/connection` (requests out of bytes), `peers` (who is held back), [`turn`] (what these share).

pub mod clients;
mod counters;
mod driver;
mod limiter;
mod look_ahead;
mod outlet;
mod peers;
mod sizes;
pub mod turn;
pub mod world;

pub use clients::{Change, Clients, Socket};
pub use counters::Counters;
pub use driver::{Driver, Stopped};
pub use limiter::Limiter;
pub use outlet::Outlet;
pub use sizes::Sizes;
pub use turn::{Clock, Turn};
pub use world::{Event, World};
