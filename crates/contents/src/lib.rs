//! What keyspaces hold, outside of a cluster: keys as files of Redis, changes behind them, what the two make together, and the
//! commands that put keys into a cluster.
//!
//! `quorate import`, `quorate backup` and `quorate restore` bring these from and to real servers and files; the simulator
//! carries out the same on simulated ones.
//!
//! Reading order: [`keys`] (files of keys, and who takes keys), [`pieces`] (large values as several commands), [`requests`]
//! (keys as commands), [`commands`] (append-only files), [`changes`] (what has changed, as a node says it and as a file),
//! [`state`] (what a shard held at a moment), [`digest`] and [`mod@sum`] (whether two values, or two
//! files of keys, are the same).

pub mod changes;
pub mod commands;
pub mod digest;
pub mod keys;
pub mod pieces;
pub mod requests;
pub mod state;
pub mod sum;
