//! The crate's guarantees, tested through its public interface.

mod bodies;
mod handshakes;
mod properties;
mod replies;
mod requests;
mod seals;
