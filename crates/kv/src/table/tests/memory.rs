//! The memory of values as they are added, grow, shrink and are removed.

use super::*;

fn usage(store: &mut Store, key: &str) -> usize {
    store.read(&Command::MemoryUsage { key: key.as_bytes() }).parse().unwrap()
}

#[test]
fn a_small_key_has_little_overhead() {
    let mut store = Store::new();
    assert_eq!(store.read(&Command::MemoryUsage { key: b"k" }), "nil");
    store.set("a-key-of-16-byte", &"v".repeat(64));
    assert!(usage(&mut store, "a-key-of-16-byte") <= 80 + 70);
}

#[test]
fn a_value_that_shrinks_gives_memory_back() {
    let mut store = Store::new();
    store.set("k", &"v".repeat(10_000));
    store.set("k", &"v".repeat(1000));
    assert!(usage(&mut store, "k") < 1500);
}

#[test]
fn appending_moves_a_value_rarely_and_wastes_no_more_than_half_of_it() {
    let mut store = Store::new();
    let (mut moves, mut bytes) = (0, 0);
    for _ in 0..20_000 {
        store.apply(&Command::Append { key: b"k", value: b"0123456789", bytes_max: 1 << 20 });
        let now = usage(&mut store, "k");
        moves += usize::from(now != bytes);
        bytes = now;
    }
    assert!(moves < 40, "moved {moves} times");
    assert!(bytes < 200_000 * 3 / 2 + 200);
}

#[test]
fn allocations_are_rounded_to_the_allocators_block_sizes() {
    let sizes =
        [(1, 16), (41, 48), (128, 128), (129, 160), (160, 160), (257, 320), (1025, 1280), (131_073, 135_168)];
    for (capacity, block) in sizes {
        assert_eq!(crate::table::blocks::allocated_bytes(capacity), block, "{capacity}");
    }
    assert_eq!(crate::table::blocks::allocated_bytes(0), 0);
}

#[test]
fn no_block_is_longer_than_the_bound_for_its_content() {
    use crate::table::{COMMAND_BYTES, blocks_bytes_max};
    let lengths = (0..10_000).chain((10_000..1_000_000).step_by(37));
    for length in lengths {
        let block = crate::table::blocks::allocated_bytes(length) as u64;
        assert!(block <= blocks_bytes_max(length as u64) + COMMAND_BYTES as u64, "{length}: {block}");
    }
}

#[test]
fn an_emptied_table_takes_little_memory() {
    let mut store = Store::new();
    let empty = store.table.memory_bytes();
    for number in 0..20_000 {
        store.set(&format!("key:{number}"), "value");
    }
    let full = store.table.memory_bytes();
    assert!(full > 20_000 * 60, "{full}");
    for number in 0..20_000 {
        assert_eq!(store.delete(&format!("key:{number}")), "1");
    }
    let emptied = store.table.memory_bytes();
    assert!(emptied < empty + 40_000, "{empty}, {full}, {emptied}");
    store.set("k", "v");
    store.apply(&Command::Clear {});
    assert!(store.table.memory_bytes() <= empty);
}
