//! Replicas that apply the same records are equal, however they reached their state.

use super::model::{records, replay};
use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The second replica has another seed, and keys that collide. The third joins midway: it installs a snapshot that is
    /// read while records continue, then applies the records since the snapshot began.
    #[test]
    fn the_same_records_give_the_same_digest(
        before in records(0..100),
        after in records(0..100),
        bytes_max in 0..500usize,
    ) {
        let (mut first, mut second, mut third) = (Table::new(1), colliding(2), Table::new(3));
        let (mut first_offset, mut second_offset) = (0, 0);
        replay(&mut first, &before, &mut first_offset);
        let (floor, mut third_offset) = (first.version_floor(), first_offset);
        let id = first.begin_snapshot();
        for record in &after {
            let mut chunk = Vec::new();
            first.snapshot_chunk(id, bytes_max, &mut chunk);
            third.install(&chunk).unwrap();
            replay(&mut first, std::slice::from_ref(record), &mut first_offset);
        }
        let mut chunk = Vec::new();
        while first.snapshot_chunk(id, bytes_max, &mut chunk) {}
        third.install(&chunk).unwrap();
        third.set_version_floor(floor);
        replay(&mut third, &after, &mut third_offset);
        replay(&mut second, &before, &mut second_offset);
        replay(&mut second, &after, &mut second_offset);
        prop_assert_eq!(first.digest(), second.digest());
        prop_assert_eq!(first.digest(), third.digest());
        prop_assert_eq!(first.len(), third.len());
        prop_assert_eq!(first.expires(), third.expires());
    }
}

#[test]
fn the_digest_shows_any_difference() {
    let play = |script: &str| {
        let mut store = Store::new();
        store.play(script);
        store.table.digest()
    };
    let digests = [
        play(""),
        play("SET k v -> OK"),
        play("SET k w -> OK"),
        play("SET l v -> OK"),
        play("SET kv \"\" -> OK"),
        play("SET k v EX 10 -> OK"),
        play("SET k v EX 11 -> OK"),
        play("SET k v -> OK\nSET k v -> OK"),
        play("SET k v -> OK\nDEL k -> 1"),
        play("MSET k l l k -> OK"),
        play("MSET k k l l -> OK"),
    ];
    let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(distinct.len(), digests.len());
    assert_eq!(play("MSET k 1 l 2 -> OK"), play("MSET l 2 k 1 -> OK"), "the order makes no difference");
}
