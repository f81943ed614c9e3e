//! The dependencies: only with licences and from sources that `deny.toml` names, and code in other languages only
//! where it is known to be needed.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};

/// Crates that contain C code or search for it, and why they are here. `wasm-bindgen-shared` links nothing: it only
/// ensures that there is one version.
const NATIVE: [&str; 7] = [
    "aegis",               // seals frames between nodes
    "alloca",              // benchmarks only
    "libmimalloc-sys",     // the allocator
    "mlua-sys",            // scripts
    "ring",                // authenticates the lengths of frames between nodes
    "signal-hook",         // for a feature that is off here
    "wasm-bindgen-shared", // for browsers, where some libraries run, too
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the packages of all features and systems; without a connection, those of this build.
fn packages() -> Vec<Value> {
    let metadata = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["metadata", "--format-version", "1", "--locked"]).args(more);
        let output = command.current_dir(root()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() {
            true => Ok(serde_json::from_slice::<Value>(&output.stdout).unwrap()),
            false => Err(error),
        }
    };
    let host = Command::new("rustc").arg("-vV").output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let all = metadata(&["--all-features"]);
    let all = all.or_else(|_| metadata(&["--offline", "--filter-platform", host]));
    let all = all.unwrap_or_else(|why| panic!("{why}"));
    all["packages"].as_array().unwrap().clone()
}

fn name(package: &Value) -> String {
    format!("{} {}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap())
}

/// Returns what is wrong with a package's licence, if anything.
fn refusal(licence: Option<&str>, allowed: &[String]) -> Option<String> {
    let Some(licence) = licence else { return Some("it names no licence".into()) };
    let expression = match Expression::parse_mode(licence, ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("its licence cannot be read: {}", error.reason)),
    };
    let is_allowed = |wanted: &LicenseReq| allowed.contains(&wanted.to_string());
    (!expression.evaluate(is_allowed)).then(|| format!("its licence is {licence}"))
}

#[test]
fn licences_and_sources_are_those_that_are_allowed() {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let rules: toml::Table = text.parse().unwrap();
    let allowed = rules["licenses"]["allow"].as_array().unwrap();
    let allowed: Vec<String> = allowed.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let packages = packages();
    let mut wrong = Vec::new();
    let (mut outside, mut ours) = (0, 0);
    for package in &packages {
        match package["source"].as_str() {
            // Ours has the licence in the file LICENSE. Crates in `vendor` keep their own.
            None => {
                ours += 1;
                let is_vendored = package["manifest_path"].as_str().unwrap().contains("/vendor/");
                let licence = if is_vendored { "MIT" } else { "Apache-2.0" };
                let differs = package["license"] != licence;
                wrong.extend(differs.then(|| format!("{}: its licence is not {licence}", name(package))));
            }
            Some(REGISTRY) => {
                outside += 1;
                let why = refusal(package["license"].as_str(), &allowed);
                wrong.extend(why.map(|why| format!("{}: {why}", name(package))));
            }
            Some(other) => wrong.push(format!("{}: it comes from {other}", name(package))),
        }
    }
    assert!(outside > 100 && ours > 10, "only {outside} packages and {ours} of ours were looked at");
    assert!(wrong.is_empty(), "deny.toml does not allow:\n{}", wrong.join("\n"));
}

/// The sources come with the licences of everything in them.
#[test]
fn the_licence_and_the_notices_are_present() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let licence = read("LICENSE");
    assert!(licence.contains("Apache License") && licence.contains("Grant of Patent License"));
    assert!(read("vendor/lua-src/LICENSE").contains("Lua.org, PUC-Rio"));
    let notice = read("NOTICE");
    for folder in std::fs::read_dir(root().join("vendor")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(notice.contains(&format!("vendor/{name}/LICENSE")), "NOTICE does not name {name}");
    }
}

#[test]
fn code_in_other_languages_is_known_by_name() {
    let packages = packages();
    let compiles = |dependency: &Value| {
        dependency["kind"] == "build"
            && ["cc", "cmake", "bindgen"].contains(&dependency["name"].as_str().unwrap())
    };
    let brings_code = |package: &&Value| {
        package["links"].is_string() || package["dependencies"].as_array().unwrap().iter().any(compiles)
    };
    let native = packages.iter().filter(brings_code);
    let unknown: Vec<String> =
        native.filter(|package| !NATIVE.contains(&package["name"].as_str().unwrap())).map(name).collect();
    assert!(unknown.is_empty(), "these link code that is not Rust: {unknown:?}");
}

/// Returns a crate's releases from cargo's cache of the registry's index: a file per crate, a line of JSON per release.
fn releases(name: &str) -> Vec<Value> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).unwrap_or_default();
    let lower = name.to_ascii_lowercase();
    let place = match lower.len() {
        1 => format!("1/{lower}"),
        2 => format!("2/{lower}"),
        3 => format!("3/{}/{lower}", &lower[..1]),
        _ => format!("{}/{}/{lower}", &lower[..2], &lower[2..4]),
    };
    let indices = std::fs::read_dir(home.join("registry/index")).into_iter().flatten().flatten();
    let files = indices.filter_map(|index| std::fs::read(index.path().join(".cache").join(&place)).ok());
    // Zero bytes separate the lines from the rest of the file.
    let pieces = files.flat_map(|file| file.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<Vec<_>>());
    pieces.filter_map(|piece| serde_json::from_slice::<Value>(&piece).ok()).filter(Value::is_object).collect()
}

/// Authors withdraw a release for a reason. Checks the releases that are in this machine's copy of the index.
#[test]
fn no_release_that_is_built_was_withdrawn() {
    let (mut known, mut withdrawn) = (0, Vec::new());
    for package in packages().iter().filter(|package| package["source"].is_string()) {
        let releases = releases(package["name"].as_str().unwrap());
        let Some(release) = releases.iter().find(|release| release["vers"] == package["version"]) else {
            continue;
        };
        known += 1;
        withdrawn.extend((release["yanked"] == true).then(|| name(package)));
    }
    println!("{known} releases were looked up");
    assert!(withdrawn.is_empty(), "these releases were withdrawn (yanked): {withdrawn:?}");
}

/// SECURITY.md names a test for each promise: for each file in its tables, the tests named after it.
#[test]
fn every_test_that_the_promises_name_exists() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains(".rs`"));
    let (mut files, mut tests) = (0, 0);
    for row in rows {
        let named = row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2);
        let mut content = String::new();
        for word in named {
            if word.ends_with(".rs") {
                let beside = ["", "crates/quorate/tests/"].map(|folder| root().join(folder).join(word));
                let found = beside.iter().find_map(|file| std::fs::read_to_string(file).ok());
                content = found.unwrap_or_else(|| panic!("{word} is not there"));
                files += 1;
            } else {
                let begins = format!("fn {}", word.trim_end_matches('…'));
                assert!(content.contains(&begins), "no test {word} where {row} says that it is");
                tests += 1;
            }
        }
    }
    assert!(files > 20 && tests > 10, "{files} files and {tests} tests are named");
}

#[test]
fn a_licence_is_allowed_if_one_of_its_alternatives_is() {
    let allowed = ["MIT".to_owned(), "Zlib".to_owned()];
    for (licence, is_allowed) in [
        (Some("MIT"), true),
        (Some("MIT/Apache-2.0"), true),
        (Some("GPL-3.0-only OR (Zlib AND MIT)"), true),
        (Some("MIT AND GPL-3.0-only"), false),
        (Some("GPL-3.0-only"), false),
        (Some("MIT WITH LLVM-exception"), false),
        (Some("as you like"), false),
        (None, false),
    ] {
        assert_eq!(refusal(licence, &allowed).is_none(), is_allowed, "{licence:?}");
    }
}
