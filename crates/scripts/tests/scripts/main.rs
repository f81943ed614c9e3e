//! Scripts of random bytes and programs of random parts: none ends the process, runs forever, or has two different results.

#![allow(clippy::unwrap_used, missing_docs)]

mod bodies;
mod effects;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_script_has_one_result(bytes in vec(any::<u8>(), 0..120)) {
        bodies::script(&bytes);
    }
}

#[test]
fn generated_programs_do_something() {
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let mut wrong = 0;
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..80).map(|_| draw()).collect();
        let outcome = bodies::run(bodies::program(&bytes).as_bytes(), 200_000, &scripts::LUA);
        wrong += usize::from(outcome.reply.windows(9).any(|part| part == b"compiling"));
    }
    assert!(wrong < 5, "{wrong} of 100 are no programs");
}
