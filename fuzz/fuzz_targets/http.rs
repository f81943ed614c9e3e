//! Requests over HTTP into a node.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::over_http(data));
