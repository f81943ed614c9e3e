//! The relay over real sockets: what it does to what goes through it, and what it must not do.

mod carrying;
mod cutting;
mod shaping;
mod world;
