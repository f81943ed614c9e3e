//! The page of limits is complete: it lists everything that bounds clients, nodes and operators.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

/// Constants that only bound how much the program does at once or caches, and limit no user.
const INTERNAL: [&str; 62] = [
    "ACCEPTS_PER_TURN_MAX",
    "ARRIVALS_MAX",
    "BATCH_BYTES_MAX",
    "BURIED_MAX",
    "COPIED_BYTES_MAX",
    "DISTANCE_MAX",
    "DOUBLINGS_MAX",
    "EMBEDDED_BYTES_MAX",
    "ENDS_MAX",
    "ENTRIES_BYTES_MAX",
    "ERROR_CODES_MAX",
    "EXPIRIES_MAX",
    "FETCHED_MAX",
    "FRACTION_DIGITS_MAX",
    "GENERATION_MAX",
    "GONE_MAX",
    "IN_TRANSIT_BYTES_MAX",
    "ITEM_HEAD_BYTES_MAX",
    "LAST_REPLIES_US_MAX",
    "LATITUDE_MAX",
    "LAZY_BYTES_MAX",
    "LEAVE_US_MAX",
    "LEFT_OVER_MAX",
    "LOG_BYTES_MAX",
    "LONGITUDE_MAX",
    "MANIFEST_BYTES_MAX",
    "NAME_BYTES_MAX",
    "NUMBERS_MAX",
    "NUMBER_TEXT_BYTES_MAX",
    "PARTS_OWED_MAX",
    "PAUSE_US_MAX",
    "PAYLOAD_BYTES_MAX",
    "PIECE_BYTES_MAX",
    "PURGED_FIELDS_MAX",
    "RANDOM_COUNTED_MAX",
    "RANDOM_EXPIRED_MAX",
    "REBUILDS_MAX",
    "RETAINED_ARGUMENTS_MAX",
    "RETAINED_BYTES_MAX",
    "RETAINED_INLINE_BYTES_MAX",
    "RUN_LENGTH_MAX",
    "RUN_VALUE_MAX",
    "SENTENCE_BYTES_MAX",
    "SETTLE_US_MAX",
    "SHORT_BULK_BYTES_MAX",
    "SHORT_COUNT_MAX",
    "SHORT_ZEROS_MAX",
    "SPARE_BYTES_MAX",
    "SPARSE_BYTES_MAX",
    "STOP_US_MAX",
    "TOMBSTONES_MAX",
    "TOMBSTONE_BYTES_MAX",
    "TRACES_MAX",
    "TURN_ACCEPTS_MAX",
    "TURN_CALLS_MAX",
    "TURN_EVENTS_MAX",
    "UNDER_WAY_MAX",
    "UNSETTLED_MAX",
    "UNWRITTEN_BYTES_MAX",
    "WARMED_KEYS_MAX",
    "WINDOW_BYTES_MAX",
    "WITHDRAW_US_MAX",
];

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the top-level constants of a file whose names say that they are a maximum.
fn limits(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            rest.strip_prefix("(crate)").or_else(|| rest.strip_prefix("(super)")).unwrap_or(rest).trim_start()
        });
        let name = line.strip_prefix("const ")?.split(':').next()?;
        let is_most = ["_MAX", "_MAX_DEFAULT", "_MAX_CEILING"].iter().any(|end| name.ends_with(end));
        is_most.then_some(name)
    })
}

#[test]
fn every_limit_is_on_the_page() {
    let page = fs::read_to_string(folder("docs/reference/limits.md")).expect("the page");
    let is_told = |name: &str| page.contains(&format!("`{name}`"));
    let mut files = Vec::new();
    for name in [
        "kv", "coding", "wire", "storage", "commands", "protocol", "cluster", "scripts", "node", "driver",
        "server",
    ] {
        sources(&folder("crates").join(name).join("src"), &mut files);
    }
    let (mut seen, mut missing) = (Vec::new(), Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        for name in limits(&text) {
            seen.push(name.to_string());
            if !is_told(name) && !INTERNAL.contains(&name) {
                missing.push(format!("{name} of {}", file.display()));
            }
        }
    }
    assert!(seen.len() > 100, "{} limits were found", seen.len());
    assert!(missing.is_empty(), "docs/reference/limits.md does not name {missing:#?}");
    let gone: Vec<&&str> = INTERNAL.iter().filter(|name| !seen.iter().any(|it| it == **name)).collect();
    assert!(gone.is_empty(), "these are not there any more: {gone:?}");
}

#[test]
fn every_limit_of_the_configuration_is_on_the_page() {
    let page = fs::read_to_string(folder("docs/reference/limits.md")).expect("the page");
    let text = fs::read_to_string(folder("crates/server/src/config.rs")).expect("a source");
    let (_, limits) = text.split_once("pub struct Limits {").expect("the limits");
    let (limits, _) = limits.split_once("\n}").expect("their end");
    let names = limits.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next());
    let missing: Vec<&str> = names.filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/limits.md does not name {missing:?}");
}
