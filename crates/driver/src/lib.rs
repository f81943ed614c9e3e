//! One turn of a node, in any world: sockets and files, a simulation, or a test.
//!
//! The node ([`node::Node`]) is a state machine without input or output. A [`Driver`] steps it: it takes in what has
//! arrived, passes the node the results of work that ran beside it, has it make one batch of all that, and writes the
//! batches to the peers and the replies to the clients. It reads from and writes to a [`World`]. No other loop steps a
//! node, so the simulator exercises the very turn that serves production, including its backpressure, its look-ahead and
//! the buffers that it lends to the node.
//!
//! A driver is owned by the loop that runs it and shares nothing, so a process may have several, each with its own node.
//!
//! Reading order: [`world`] (what a driver needs from the world), [`driver`](Driver) (a turn), [`clients`] (when each
//! client is read, and how much), `clients/connection` (parsing requests), `peers` (which peers are held back), [`turn`]
//! (what these parts share).

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
