//! What the wire promises, seen from outside.

mod bodies;
mod handshakes;
mod properties;
mod replies;
mod requests;
mod seals;
