//! Patterns against texts: what the automaton says is what Redis's rules say.
#![no_main]

#[path = "../../crates/kv/src/glob/reference.rs"]
mod reference;

use kv::glob::Pattern;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    reference::any_bytes(data, |pattern, text| Pattern::new(pattern).matches(text));
});
