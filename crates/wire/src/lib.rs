//! What travels: RESP2 and RESP3 for clients, framed and sealed messages for peers.
//!
//! Bytes in, values out, and back. Nothing here opens a socket, reads a clock or draws a number. Everything
//! that a client or a peer sends is bounded by a limit with a name, costs time in proportion to its length
//! however many pieces it arrives in, and memory in proportion to what arrived, never to what was announced.
//!
//! Reading order: [`resp::request`] (what clients ask), [`resp::reply`] (what they are answered),
//! [`frame`] (how peers' messages are told apart), [`greeting`] and [`handshake`] (how peers prove who they are),
//! [`seal`] (how their frames are encrypted and authenticated).

pub mod frame;
pub mod greeting;
pub mod handshake;
pub mod resp;
pub mod seal;
