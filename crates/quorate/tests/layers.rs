//! Imports only go downward: a crate depends on crates below it, and on none beside or above it.

use std::fs;
use std::path::Path;

/// The layers, from the top down. Crates in one row do not depend on each other.
const ROWS: [&[&str]; 8] = [
    &["quorate", "quorate-lab"],
    &["lab", "server", "sim"],
    &["driver"],
    &["node", "check"],
    &["protocol"],
    &["storage"],
    &["wire"],
    &["kv", "coding"],
];

/// Crates that must run in a simulator: none of these depends on an operating system.
const CORE: [&str; 8] = ["kv", "coding", "wire", "storage", "protocol", "node", "driver", "check"];

fn manifest(name: &str) -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().expect("a manifest is TOML")
}

fn dependencies(name: &str) -> Vec<String> {
    let manifest = manifest(name);
    manifest
        .get("dependencies")
        .and_then(|table| table.as_table())
        .into_iter()
        .flat_map(|t| t.keys().cloned())
        .collect()
}

fn row(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&name))
}

#[test]
fn every_crate_has_its_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            let name = entry.file_name().into_string().unwrap();
            assert!(row(&name).is_some(), "crate {name} has no place in the house: see ARCHITECTURE.md");
        }
    }
}

#[test]
fn imports_run_downward_only() {
    for name in ROWS.iter().copied().flatten() {
        for dependency in dependencies(name) {
            if let Some(below) = row(&dependency) {
                assert!(below > row(name).unwrap(), "{name} must not know {dependency}");
            }
        }
    }
}

#[test]
fn the_core_has_no_operating_system() {
    const OUTSIDE: [&str; 9] =
        ["mio", "tokio", "hyper", "rustix", "libc", "getrandom", "signal-hook", "tracing", "rand"];
    for name in CORE {
        for dependency in dependencies(name) {
            assert!(!OUTSIDE.contains(&dependency.as_str()), "{name} must not know {dependency}");
        }
        let lints = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("clippy.toml");
        assert!(lints.exists(), "{name} is not under the lints of the core");
    }
}
