//! Imports only go downward: a crate depends on crates below it, and on none beside or above it.

use std::fs;
use std::path::Path;

/// The layers, from the top down. Crates in one row do not depend on each other.
const ROWS: [&[&str]; 9] = [
    &["quorate", "quorate-lab"],
    &["lab", "server", "sim"],
    &["driver", "contents"],
    &["node", "check"],
    &["protocol"],
    &["storage"],
    &["wire"],
    &["kv", "coding"],
    &["rdb"],
];

/// Crates that must run in a simulator: none of these depends on an operating system.
const CORE: [&str; 10] =
    ["rdb", "kv", "coding", "wire", "storage", "protocol", "node", "driver", "check", "contents"];

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

/// The modules of each crate, from the top down: a module imports from rows below its own only. Modules that are in the
/// row together do not know each other. A folder is one module here.
const MODULES: [(&str, &[&[&str]]); 13] = [
    ("rdb", &[&["file", "payload"], &["write"], &["value"], &["source"], &["crc", "lzf", "packed"]]),
    (
        "kv",
        &[
            &["table"],
            &["locks", "queues", "watch"],
            &["command", "reply"],
            &["coded", "geo"],
            &["codec", "digest", "glob", "limits", "number", "planted", "range", "shared", "sketch"],
        ],
    ),
    (
        "node",
        &[
            &["node"],
            &["requests"],
            &[
                "asking",
                "checkpoints",
                "completing",
                "following",
                "forwarding",
                "info",
                "mapping",
                "operators",
                "transactions",
            ],
            &[
                "channels",
                "clock",
                "cluster",
                "coding",
                "connections",
                "databases",
                "eviction",
                "exchanges",
                "lock_list",
                "long",
                "notes",
                "quarantine",
                "recent",
                "recovery",
                "scripting",
                "values",
                "waits",
            ],
            &["context"],
            &["groups"],
            &["commits", "envelope", "replica"],
            &["control", "journal", "parameters", "scripts", "session"],
            &["users"],
            &["command", "configuration"],
            &["gather", "keyspace", "origin"],
            &[
                "cache",
                "events",
                "guard",
                "libraries",
                "listening",
                "log",
                "output",
                "setting",
                "slab",
                "slots",
                "slow",
                "spans",
                "start_error",
                "transfer",
                "unfinished",
                "usage",
                "words",
            ],
        ],
    ),
    (
        "protocol",
        &[
            &["abd", "blocking", "consensus", "leader_follower"],
            &["contract"],
            &["registers"],
            &["coded", "rest", "status", "transfer", "waiters", "watching"],
            &["effects", "planted"],
        ],
    ),
    (
        "storage",
        &[
            &["opening"],
            &["tail"],
            &["replay", "simulated_values"],
            &["log", "simulated"],
            &["format"],
            &["error", "memory", "values", "work"],
            &["disk", "floors", "identity", "planted", "reserve"],
        ],
    ),
    (
        "driver",
        &[
            &["driver"],
            &["peers"],
            &["world"],
            &["clients"],
            &["turn"],
            &["counters", "limiter", "look_ahead", "outlet", "sizes"],
        ],
    ),
    (
        "contents",
        &[&["requests", "state", "sum"], &["keys"], &["changes", "pieces"], &["commands", "digest"]],
    ),
    ("wire", &[&["handshake"], &["greeting", "seal"], &["frame", "lineage", "release", "resp"]]),
    ("coding", &[&["layout"], &["cost", "matrix"]]),
    (
        "check",
        &[
            &["linearizable"],
            &["picture", "search"],
            &["export", "locks", "prepare", "weaker", "words"],
            &["json_lines", "model", "window"],
            &["history"],
            &["collections", "interner"],
        ],
    ),
    (
        "server",
        &[
            &["recovery"],
            &["start"],
            &["http"],
            &["status"],
            &["worker"],
            &["clients", "peers"],
            &["tls"],
            &["descriptors", "home", "listen"],
            &["bridge", "config", "log", "metrics", "notebook", "usage"],
            &[
                "disk",
                "files",
                "holder",
                "log_writer",
                "memory",
                "resolver",
                "socket",
                "traces",
                "turn",
                "values",
            ],
        ],
    ),
    (
        "sim",
        &[
            &["shrink"],
            &["run"],
            &["judge", "totals", "world"],
            &["describe", "host", "network", "report"],
            &["clients", "disk", "message", "scenario"],
            &["conversation", "faults", "record", "trace"],
            &["caching", "clock", "errand", "locking", "reading"],
            &["promise"],
            &["buffers", "events", "operation", "pipe", "random"],
        ],
    ),
    (
        "lab",
        &[&["studies", "sweep"], &["report"], &["harness"], &["systems"], &["colour", "load", "network"]],
    ),
];

/// The Rust sources of a module, without its tests.
fn sources(path: &Path, found: &mut Vec<std::path::PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder") {
            sources(&entry.expect("an entry").path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let name = path.file_stem().expect("a name");
        if name != "tests" && path.parent().is_none_or(|parent| !parent.ends_with("tests")) {
            found.push(path.to_path_buf());
        }
    }
}

/// The modules of its crate that a source names, as `crate::module` or in `use crate::{…}`; not in comments, nor in its
/// unit tests.
fn named(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().expect("at least one part");
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().expect("at least one part").to_owned() + "\n")
        .collect();
    let word = |text: &str| -> String {
        text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
    };
    let mut found = Vec::new();
    for part in code.split("crate::").skip(1) {
        match part.strip_prefix('{') {
            // The names at the top level of the braces.
            Some(list) => {
                let (mut depth, mut at_start) = (0, true);
                for (place, character) in list.char_indices() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => at_start = true,
                        _ if at_start && character.is_alphabetic() => {
                            found.push(word(&list[place..]));
                            at_start = false;
                        }
                        _ => {}
                    }
                }
            }
            None => found.push(word(part)),
        }
    }
    found
}

#[test]
fn modules_import_downward_only() {
    for (krate, rows) in MODULES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("src");
        let row = |name: &str| rows.iter().position(|row| row.contains(&name));
        let mut checked = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if ["lib", "main"].contains(&name.as_str()) {
                continue;
            }
            let own =
                row(&name).unwrap_or_else(|| panic!("module {name} of {krate} has no place in MODULES"));
            let mut files = Vec::new();
            sources(&path, &mut files);
            for file in files {
                for other in named(&fs::read_to_string(&file).unwrap()) {
                    if let Some(below) = row(&other).filter(|_| other != name) {
                        checked += 1;
                        assert!(below > own, "{krate}: {name} must not know {other} ({})", file.display());
                    }
                }
            }
        }
        assert!(checked > 0, "no import of {krate} was looked at");
        let missing =
            rows.iter().copied().flatten().find(|name| {
                !folder.join(name).is_dir() && !folder.join(name).with_extension("rs").is_file()
            });
        assert_eq!(missing, None, "a module of {krate} in MODULES that is not there");
    }
}

#[test]
fn names_in_imports_are_found() {
    let text = "use crate::{a::{b, c}, d};\nuse crate::e::F; // crate::comment\nlet x = crate::g();\n\
                #[cfg(test)]\nmod tests {\n use crate::h;\n}";
    assert_eq!(named(text), ["a", "d", "e", "g"]);
}
