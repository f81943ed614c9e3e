//! Scripts: any bytes as a text, and programs made of them.
#![no_main]

#[path = "../../crates/scripts/tests/scripts/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::script(data));
