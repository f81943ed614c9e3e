//! The section `keysizes` of `INFO`: how many keys of each type have how many items, or bytes.
//!
//! Nothing is counted as commands change keys: the section looks at all keys, so it is made only when it is named.

use crate::node::Node;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The most keys of a database that are looked at: some ten milliseconds.
const SIZED_KEYS_MAX: usize = 100_000;

/// Which of a key's sizes is counted.
const LENGTH: usize = 0;
const MEMORY: usize = 1;

/// The types of Redis that have a line, in their order, which of their sizes it counts, and what it is
/// called.
const LINES: [(&[u8], usize, &str); 9] = [
    (b"string", LENGTH, "strings_sizes"),
    (b"list", LENGTH, "lists_items"),
    (b"set", LENGTH, "sets_items"),
    (b"zset", LENGTH, "zsets_items"),
    (b"hash", LENGTH, "hashes_items"),
    (b"list", MEMORY, "lists_sizes"),
    (b"set", MEMORY, "sets_sizes"),
    (b"zset", MEMORY, "zsets_sizes"),
    (b"hash", MEMORY, "hashes_sizes"),
];

/// Appends the section, of this node's replicas.
pub(super) fn write(node: &Node, out: &mut String) {
    if !out.is_empty() {
        out.push_str("\r\n");
    }
    out.push_str("# Keysizes\r\n");
    let mut databases: BTreeMap<u8, Vec<u16>> = BTreeMap::new();
    for (id, group) in node.cx.groups.iter() {
        databases.entry(group.keyspace.database()).or_default().push(id);
    }
    for (number, groups) in databases {
        let tables = groups.iter().filter_map(|id| Some(node.cx.groups.get(*id)?.replica.as_ref()?.table()));
        let keys: usize = tables.clone().map(|table| table.len()).sum();
        if keys > SIZED_KEYS_MAX {
            let _ = write!(
                out,
                "# db{number} has {keys} keys here, more than SIZED_KEYS_MAX ({SIZED_KEYS_MAX}): they are not looked at\r\n"
            );
            continue;
        }
        // How many keys of each type have this power of two of items.
        let mut counts: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let shows_memory = node.cx.parameters.shows_memory_of_keys();
        for (kind, sizes) in tables.flat_map(|table| table.key_sizes(node.cx.now.unix_ms)) {
            for (line, (_, which, _)) in LINES.iter().enumerate().filter(|(_, (of, ..))| *of == kind) {
                if *which == LENGTH || shows_memory {
                    *counts.entry((line, power_of(sizes[*which]))).or_default() += 1;
                }
            }
        }
        for (line, (_, _, name)) in LINES.iter().enumerate() {
            let of_line = counts.range((line, 0)..=(line, u64::MAX));
            let shown: Vec<String> =
                of_line.map(|((_, power), count)| format!("{}={count}", label(*power))).collect();
            if !shown.is_empty() {
                let _ = write!(out, "db{number}_distrib_{name}:{}\r\n", shown.join(","));
            }
        }
    }
}

/// The greatest power of two that is not greater; 0 for 0.
fn power_of(size: u64) -> u64 {
    size.checked_ilog2().map_or(0, |exponent| 1 << exponent)
}

/// A power of two as Redis writes it: `512`, `1K`, `2M`.
fn label(power: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let unit = (power.checked_ilog2().unwrap_or(0) / 10) as usize;
    format!("{}{}", power >> (10 * unit), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_labelled_by_powers_of_two() {
        let labels = [0, 1, 2, 3, 1023, 1024, 4095, 1 << 20, u64::MAX].map(|size| label(power_of(size)));
        assert_eq!(labels, ["0", "1", "2", "2", "512", "1K", "2K", "1M", "8E"]);
    }
}
