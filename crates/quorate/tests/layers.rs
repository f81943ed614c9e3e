//! Imports only go downward: a crate depends on crates below it, and on none beside or above it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Peekable;
use std::path::Path;
use std::str::Chars;

/// The layers, from the top down. Crates in one row do not depend on each other.
const ROWS: [&[&str]; 11] = [
    &["quorate", "quorate-lab"],
    &["lab", "server", "sim"],
    &["driver", "contents"],
    &["node", "check"],
    &["scripts", "info"],
    &["cluster"],
    &["protocol"],
    &["storage", "commands"],
    &["wire"],
    &["kv", "coding"],
    &["rdb"],
];

/// Crates that must run in a simulator: none of these depends on an operating system.
const CORE: [&str; 14] = [
    "rdb", "kv", "coding", "wire", "commands", "storage", "protocol", "cluster", "info", "scripts", "node",
    "driver", "check", "contents",
];

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

/// The modules of each crate, from the top down: a module imports from rows below its own only. Modules in the same row
/// do not import each other. A folder is one module here.
const MODULES: [(&str, &[&[&str]]); 16] = [
    (
        "rdb",
        &[&["file", "payload"], &["weigh"], &["write"], &["value"], &["source"], &["crc", "lzf", "packed"]],
    ),
    (
        "kv",
        &[
            &["table"],
            &["two_phase"],
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
            &["operators", "requests"],
            &["following", "forwarding", "maintenance", "two_phase"],
            &["channels", "coding", "connections", "membership", "values", "waits"],
            &["context"],
            &["groups"],
            &["disk", "messages", "parameters", "session"],
            &["collections", "diagnostics"],
        ],
    ),
    ("info", &[&["metrics", "sections"], &["facts"], &["usage"], &["report"]]),
    (
        "cluster",
        &[
            &["recovery"],
            &["control"],
            &["configuration"],
            &["keyspace"],
            &["libraries", "setting", "slots", "words"],
        ],
    ),
    (
        "commands",
        &[
            &["users"],
            &["release_1"],
            &["introspection", "lookup"],
            &["table"],
            &["bytes", "geo", "hashes", "lists", "sets", "sort", "sorted", "streams"],
            &["fields_of_release_1", "keyspace"],
            &["strings"],
            &["expiry", "locks"],
            &["later"],
            &["arguments", "spec"],
            &["error", "listening", "redis_version", "statistics", "text"],
        ],
    ),
    (
        "protocol",
        &[
            &["abd", "blocking", "consensus", "leader_follower", "two_phase"],
            &["leaderless"],
            &["contract"],
            &["registers"],
            &["coded", "parked", "rest", "status", "transfer", "vouch", "waiters", "watching"],
            &["effects", "planted", "recovery_line"],
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
            &["export", "locks", "prepare", "transactions", "weaker", "words"],
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
            &["vouching"],
            &["tls"],
            &["descriptors", "home", "listen"],
            &["bridge", "config", "log", "metrics", "notebook", "usage"],
            &[
                "answers",
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
            &["reading", "thread"],
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
            &["across", "caching", "clock", "job", "locking", "reading"],
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

/// The paths that a source names, beginning with `crate`, `super` or `self`, with those in braces one by one; without comments
/// and unit tests.
fn paths(text: &str) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().expect("at least one part");
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut found = Vec::new();
    let is_of_name = |character: char| character.is_alphanumeric() || character == '_';
    for root in ["crate::", "super::", "self::"] {
        for (place, _) in code.match_indices(root) {
            let before = code[..place].chars().next_back();
            // Not the end of another name, nor the second `super` of a path.
            if before.is_none_or(|before| !is_of_name(before) && before != ':') {
                expand(&mut code[place..].chars().peekable(), Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads the rest of a path, whose beginning is `path`.
fn expand(rest: &mut Peekable<Chars<'_>>, mut path: Vec<String>, found: &mut Vec<Vec<String>>) {
    let skip_space =
        |rest: &mut Peekable<Chars<'_>>| while rest.next_if(|it| it.is_whitespace()).is_some() {};
    loop {
        skip_space(rest);
        if rest.next_if_eq(&'{').is_some() {
            loop {
                skip_space(rest);
                match rest.peek() {
                    Some('}') | None => break,
                    _ => expand(rest, path.clone(), found),
                }
                // The rest of a name with an alias, as in `name as other`.
                while rest.next_if(|it| !matches!(it, ',' | '}')).is_some() {}
                rest.next_if_eq(&',');
            }
            rest.next();
            return;
        }
        let mut name = String::new();
        while let Some(character) = rest.next_if(|it| it.is_alphanumeric() || *it == '_') {
            name.push(character);
        }
        if name.is_empty() {
            break;
        }
        path.push(name);
        if rest.next_if_eq(&':').is_none() || rest.next_if_eq(&':').is_none() {
            break;
        }
    }
    found.push(path);
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
            if ["lib", "main", "tests"].contains(&name.as_str()) {
                continue;
            }
            let own =
                row(&name).unwrap_or_else(|| panic!("module {name} of {krate} has no place in MODULES"));
            let mut files = Vec::new();
            sources(&path, &mut files);
            for file in files {
                let text = fs::read_to_string(&file).unwrap();
                let named = paths(&text).into_iter().filter(|path| path[0] == "crate");
                for other in named.filter_map(|path| path.into_iter().nth(1)) {
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

/// A module's place in its crate, such as `table::collections`.
type Place = Vec<String>;

/// All modules of a crate that are files, with their sources.
fn modules(folder: &Path, place: &Place, found: &mut BTreeMap<Place, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_str().expect("text").to_owned();
        let mut own = place.clone();
        if path.is_dir() {
            own.push(name);
            modules(&path, &own, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !own.contains(&"tests".to_owned())
        {
            match name.as_str() {
                "tests" => continue,
                "mod" | "lib" | "main" => {}
                _ => own.push(name),
            }
            found.insert(own, fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// The module that a path names, relative to another module, as far as it is a file.
fn module_named(from: &Place, path: &[String], modules: &BTreeMap<Place, String>) -> Option<Place> {
    let mut place = from.clone();
    for name in path {
        match name.as_str() {
            "crate" => place.clear(),
            "self" => {}
            "super" => drop(place.pop()?),
            _ => {
                place.push(name.clone());
                if !modules.contains_key(&place) {
                    place.pop();
                    break;
                }
            }
        }
    }
    Some(place)
}

/// A circle among the modules of one folder, if there is one.
fn circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    // A module that imports none of the remaining ones is in no circle.
    let mut left: BTreeSet<&String> = imports.keys().collect();
    while let Some(free) =
        left.iter().copied().find(|name| imports[*name].iter().all(|it| !left.contains(it)))
    {
        left.remove(free);
    }
    (!left.is_empty()).then(|| left.into_iter().cloned().collect())
}

/// In no folder do modules import each other in a circle. Imports between a folder's own file and its modules do not
/// count: that file is their interface.
#[test]
fn modules_of_one_folder_do_not_import_each_other_in_a_circle() {
    let mut looked_at = 0;
    for krate in ROWS.iter().copied().flatten() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("src");
        let mut all = BTreeMap::new();
        modules(&folder, &Vec::new(), &mut all);
        let mut beside: BTreeMap<Place, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, text) in &all {
            for to in paths(text).iter().filter_map(|path| module_named(from, path, &all)) {
                let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
                if let (Some(own), Some(other)) = (from.get(shared), to.get(shared)) {
                    let imports = beside.entry(from[..shared].to_vec()).or_default();
                    imports.entry(other.clone()).or_default();
                    imports.entry(own.clone()).or_default().insert(other.clone());
                    looked_at += 1;
                }
            }
        }
        for (folder, imports) in &beside {
            let found = circle(imports);
            assert_eq!(found, None, "{krate}: modules of {folder:?} that import each other, or import such");
        }
    }
    assert!(looked_at > 1000, "only {looked_at} imports were looked at");
}

#[test]
fn a_circle_is_found() {
    let imports = |text: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
        let own = |name: &str| name.to_owned();
        text.iter().map(|(from, to)| (own(from), to.iter().copied().map(own).collect())).collect()
    };
    assert_eq!(circle(&imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let round = [("a", &["b"][..]), ("b", &["c"]), ("c", &["a", "d"]), ("d", &[])];
    assert_eq!(circle(&imports(&round)), Some(["a", "b", "c"].map(String::from).to_vec()));
}

#[test]
fn names_in_imports_are_found() {
    let text = "use crate::{a::{b, c}, d};\nuse super::super::e::F; // crate::comment\nlet x = crate::g();\n\
                use self::i::{self, j as k};\nlet y = supper::no();\n#[cfg(test)]\nmod tests {\n use crate::h;\n}";
    let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::a::b",
        "crate::a::c",
        "crate::d",
        "crate::g",
        "super::super::e::F",
        "self::i::self",
        "self::i::j",
    ];
    assert_eq!(found, expected);
}
