//! The contents of keyspaces outside of a cluster: keys as files of Redis, later changes, the state that results from both,
//! and the commands that put keys into a cluster.
//!
//! `quorate import`, `quorate backup` and `quorate restore` move these between real servers and files; the simulator does
//! the same with simulated ones.
//!
//! Reading order: [`keys`] (files of keys, and receivers of keys), [`pieces`] (large values as several commands),
//! [`requests`] (keys as commands), [`commands`] (append-only files), [`changes`] (changes, as a node's reply and as a
//! file), [`state`] (what a shard held at one moment), [`digest`] and [`mod@sum`] (whether two values, or two files of
//! keys, are the same).

pub mod changes;
pub mod commands;
pub mod digest;
pub mod keys;
pub mod pieces;
pub mod requests;
pub mod state;
pub mod sum;
