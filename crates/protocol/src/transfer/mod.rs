//! Snapshot transfer: a replica gets the whole table of another one, in chunks, while writes continue.
//!
//! The table keeps a copy-on-write view open for it, so chunks that are taken at different times show one moment.
//! [`Outgoing`] is the sender's side: it numbers the chunks, limits how many are under way, and keeps those that are not
//! acknowledged, so that they can be sent again unchanged. [`Incoming`] is the receiver's: it takes them in order, each once.
//! A [`Checkpoint`] takes the same chunks to the disk.
//!
//! What a protocol's proof rests on is its own: who may send and when, the moment that the snapshot shows, what comes after
//! it, and what the receiver does with a whole table. Leader-follower and consensus put it in the place of the receiver's.
//! Registers merge those of several members, key by key.

mod checkpoint;
mod incoming;
mod loading;
mod outgoing;

pub(crate) use checkpoint::Checkpoint;
pub(crate) use incoming::{Arrival, Incoming};
pub(crate) use outgoing::{Outgoing, Window};
