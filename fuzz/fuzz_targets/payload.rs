//! Values in Redis's serialization format.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/kv/tests/dump/body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::payload(data));
