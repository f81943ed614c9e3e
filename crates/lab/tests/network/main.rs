//! The relay over real sockets: what it does to what goes through it, and what it must not do.

// A panic is how a test fails; the lint knows that of test functions, but not of their helpers.
#![allow(clippy::unwrap_used)]

mod carrying;
mod cutting;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
#[path = "../../../quorate/tests/required/mod.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod required;
mod shaping;
mod world;
