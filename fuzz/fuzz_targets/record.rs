//! Records of the log.
#![no_main]
#![allow(dead_code)] // One body of three is used here.

#[path = "../../crates/wire/tests/wire/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::record(data));
