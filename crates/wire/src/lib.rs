//! The formats on the wire: RESP2 and RESP3 for clients, framed and sealed messages for peers.
//!
//! Bytes in, values out, and back. Nothing here opens a socket, reads a clock or draws a random number. All input from
//! a client or a peer is bounded by a named limit. It takes time in proportion to its length, however many pieces it
//! arrives in, and memory in proportion to what has arrived, never to the announced length.
//!
//! Reading order: [`resp::request`] (requests of clients), [`resp::reply`] (replies to them), [`frame`] (how messages
//! of peers are delimited), [`release`] (which release two builds speak with each other), [`lineage`] (which history
//! of a cluster a node belongs to), [`greeting`] and [`handshake`] (how peers prove their identity), [`seal`] (how
//! their frames are encrypted and authenticated).

pub mod frame;
pub mod greeting;
pub mod handshake;
pub mod lineage;
pub mod release;
pub mod resp;
pub mod seal;
