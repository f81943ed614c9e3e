//! How a group's replicas agree: the replica contract, and one folder per protocol.
//!
//! A protocol is a pure function of its inputs: no clock, socket, thread, file or randomness. Start with [`contract`],
//! which describes what goes into a replica and what comes out, then read a protocol's `mod.rs`.

pub mod abd;
pub mod blocking;
pub mod coded;
pub mod consensus;
pub mod contract;
mod effects;
pub mod leader_follower;
pub mod leaderless;
mod parked;
pub mod planted;
mod recovery_line;
pub mod registers;
mod rest;
pub mod status;
mod transfer;
pub mod two_phase;
pub mod vouch;
mod waiters;
mod watching;

pub use contract::{
    CLOCK_BOUND_MS, Configuration, ControlRequest, Effects, Encoded, HandedOn, Input, NOBODY, NodeId, Notice,
    Now, Outcome, Progress, Recipient, Replica, Request, Result, SpilledValues, Submission, Ticket, Trace,
    not_before,
};
pub use recovery_line::RecoveryLine;
