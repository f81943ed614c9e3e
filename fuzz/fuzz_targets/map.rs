//! Cluster maps and other messages of a peer into a node.
#![no_main]
#![allow(dead_code)] // One body of two is used here.

#[path = "../../crates/node/tests/fuzz/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::map(data));
