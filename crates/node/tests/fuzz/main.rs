//! The bodies of the fuzz targets, run with random bytes and with nearly valid bytes.

mod bodies;

use proptest::collection::vec;
use proptest::prelude::*;

/// Each case starts a node, so there are only a few.
fn few() -> ProptestConfig {
    ProptestConfig { cases: 150, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn any_commands_get_valid_resp_replies(data in vec(any::<u8>(), 0..600)) {
        bodies::commands(&data);
    }

    #[test]
    fn a_node_survives_any_bytes_from_a_peer(kind in 0_u8..3, data in vec(any::<u8>(), 0..200)) {
        bodies::map(&[&[kind], &data[..]].concat());
    }

    #[test]
    fn a_nearly_valid_map_is_refused_or_accepted(
        edits in vec((any::<u16>(), 0_u8..3, vec(prop::sample::select(&b"0123456789,:{}[]\"-ae"[..]), 0..3)), 0..4),
    ) {
        let edits = edits.iter().flat_map(|(at, removed, put)| {
            [&at.to_be_bytes()[..], &[*removed, put.len() as u8], put].concat()
        });
        let data: Vec<u8> = std::iter::once(3).chain(edits).collect();
        bodies::map(&data);
    }
}
