//! TLS for clients and HTTP, at ports of their own, and for the links between nodes, at their usual port.
//!
//! A handshake costs a signature, which takes as long as a hundred small commands. So handshakes are made on a thread of
//! their own (`door`), and the worker gets connections that have completed theirs: a flood of strangers takes none of its
//! turns. From then on the worker decrypts and encrypts (`stream`), behind the interface of a plain socket, so the driver
//! does not know about TLS. HTTP makes its handshakes on its own thread, with the same functions.
//!
//! Links between nodes are dialled and accepted by the worker, and only their handshakes are made on that thread (`links`).
//!
//! The files of certificates are checked once a second (`certificates`): new ones apply to new connections.

mod certificates;
mod door;
mod farewell;
mod links;
pub mod names;
mod refusals;
mod socket;
mod stream;

pub(crate) use certificates::Certificates;
pub use certificates::{authorities_in, certificates_in};
pub(crate) use door::{Arrival, Arrivals, Door, shake_hands};
pub(crate) use links::{Handshakes, Made, Pending, why_broken};
pub(crate) use refusals::Counters;
pub(crate) use socket::AnySocket;
pub(crate) use stream::{Scratch, Secured, TlsStream, scratch};
