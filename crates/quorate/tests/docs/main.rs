//! The documentation is consistent: links have targets, every page is in the index and names its readers, the
//! sources name pages that exist, and every command that is shown works.

#![allow(clippy::unwrap_used, missing_docs)]

mod commands;
#[path = "../required/mod.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod required;
mod shown;
#[path = "../processes/support.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Collects all files under a folder whose names end with `end`, except for build outputs and hidden folders.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, end, found);
            }
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
}

fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "SECURITY.md"].iter().map(|name| root.join(name)).collect();
    files(&root.join("docs"), ".md", &mut pages);
    assert!(pages.len() > 20, "{} pages were found", pages.len());
    pages
}

/// Returns the lines of a page outside blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of a page's links, except for those to other sites.
fn links(text: &str) -> Vec<String> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("https://")).map(str::to_owned).collect()
}

/// Returns a heading's anchor as the usual renderers make it: without punctuation, in lower case, with hyphens for
/// spaces.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // For a link in a heading, its text counts.
    while let Some((before, link)) = rest.split_once("](") {
        text.push_str(before);
        rest = link.split_once(')').map_or("", |(_, behind)| behind);
    }
    text.push_str(rest);
    let kept = text.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter_map(|line| line.strip_prefix('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#'))).collect()
}

/// Resolves `..` in a path; returns it relative to the repository's root if it is inside.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns what is wrong with the links of one page.
fn broken(page: &Path, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for link in links(text) {
        let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
        let target = if path.is_empty() { page.to_owned() } else { plain(&page.with_file_name(path)) };
        if !target.exists() {
            broken.push(format!("{}: {link}: there is no such file", page.display()));
        } else if !fragment.is_empty() {
            let other = (target != page).then(|| fs::read_to_string(&target).expect("a page"));
            if !anchors(other.as_deref().unwrap_or(text)).iter().any(|it| it == fragment) {
                broken.push(format!("{}: {link}: there is no such heading", page.display()));
            }
        }
    }
    broken
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let (mut count, mut found) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        count += links(&text).len();
        found.extend(broken(&page, &text));
    }
    assert!(count > 100, "{count} links were found");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_broken_link_is_found() {
    let page = root().join("docs/README.md");
    let text =
        "# A page\n\n[here](#a-page), [a file](../README.md), [a heading](reference/limits.md#memory)\n";
    assert_eq!(broken(&page, text), [""; 0]);
    for wrong in ["nowhere.md", "#b-page", "../README.md#no-such-heading"] {
        let found = broken(&page, &format!("# A page\n\nSee [this]({wrong}).\n"));
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
    }
    assert_eq!(links("```\n[code](nowhere.md)\n```\n"), [""; 0]);
    assert_eq!(anchor(" What `KEYS` costs, and [why](why.md)"), "what-keys-costs-and-why");
}

#[test]
fn the_index_names_every_page_and_every_page_names_its_readers() {
    let folder = root().join("docs");
    let index = fs::read_to_string(folder.join("README.md")).expect("the index");
    let named: Vec<PathBuf> = links(&index).iter().map(|link| plain(&folder.join(link))).collect();
    let mut wrong = Vec::new();
    for page in pages().into_iter().filter(|page| page.starts_with(&folder)) {
        let text = fs::read_to_string(&page).expect("a page");
        let name = page.strip_prefix(&folder).unwrap().display().to_string();
        if name != "README.md" && !named.contains(&page) {
            wrong.push(format!("{name} is not in the index"));
        }
        let first = text.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default();
        if !first.starts_with("For ") {
            wrong.push(format!("{name} does not say for whom it is"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn sources_name_pages_that_exist() {
    let root = root();
    let mut sources = Vec::new();
    for folder in ["crates", "fuzz", "tools"] {
        files(&root.join(folder), ".rs", &mut sources);
    }
    sources.extend(
        [
            "deploy/docker/Dockerfile",
            "deploy/docker/compose.yaml",
            "deploy/helm/quorate/values.yaml",
            "crates/quorate/Cargo.toml",
            "tools/release",
            "tools/count-instructions",
        ]
        .map(|name| root.join(name)),
    );
    let (mut count, mut missing) = (0, Vec::new());
    for source in sources.iter().filter(|source| !source.ends_with("tests/docs/main.rs")) {
        let text = fs::read_to_string(source).expect("a source");
        for rest in text.split("docs/").skip(1) {
            let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "/-_.".contains(letter);
            let path = rest.split(|letter| !is_of_path(letter)).next().unwrap_or_default();
            let Some((path, _)) = path.rsplit_once(".md") else { continue };
            count += 1;
            if !root.join("docs").join(format!("{path}.md")).exists() {
                missing.push(format!("{}: docs/{path}.md", source.display()));
            }
        }
    }
    assert!(count > 10, "{count} pages were named");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Returns the string literals in a source, up to its tests and outside comments.
fn literals(source: &str) -> Vec<&str> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
}

#[test]
fn every_error_code_is_on_the_page() {
    /// Texts that look like codes but never reach a client as codes: the coordinator of a coded value handles the
    /// first two, the next three are beginnings of arguments, and the last one of sentences behind `ERR`.
    const NO_CODES: [&str; 6] = ["ABANDONED", "RECONFIGURED", "LIST", "JSON", "GROUP", "SWAPDB"];
    let root = root();
    let page = |name: &str| fs::read_to_string(root.join(name)).expect("the page");
    let pages = ["docs/reference/errors.md", "docs/guide/troubleshooting.md"].map(|name| (name, page(name)));
    let mut sources = Vec::new();
    for name in ["kv", "protocol", "node", "server"] {
        files(&root.join("crates").join(name).join("src"), ".rs", &mut sources);
    }
    let (mut seen, mut missing) = (Vec::new(), Vec::new());
    let is_test = |source: &&PathBuf| {
        source.ends_with("tests.rs") || source.components().any(|part| part.as_os_str() == "tests")
    };
    for source in sources.iter().filter(|source| !is_test(source)) {
        let text = fs::read_to_string(source).expect("a source");
        for literal in literals(&text) {
            let mut words = literal.trim_start_matches('-').split(' ');
            let code = words.next().unwrap_or_default();
            let is_code = code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase());
            let is_word = |word: &str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
            if is_code && words.filter(|word| is_word(word)).count() > 1 && !NO_CODES.contains(&code) {
                seen.push(code.to_owned());
                for (name, _) in pages.iter().filter(|(_, page)| !page.contains(&format!("`{code}"))) {
                    missing.push(format!("{name}: {code} of {}: {literal}", source.display()));
                }
            }
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 15, "{seen:?}");
    assert!(missing.is_empty(), "pages do not name {missing:#?}");
}

/// The words of a text in `code`.
fn code_words(text: &str) -> BTreeSet<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_risk_is_on_the_page_of_what_is_wrong() {
    /// Literals that look like kinds of risks: roles, states of followers, settings, words of sentences.
    const NO_KINDS: [&str; 15] = [
        "leader",
        "candidate",
        "follower",
        "replica",
        "streaming",
        "unasked",
        "away",
        "quarantined",
        "majority",
        "none",
        "all",
        "are",
        "cluster",
        "runs",
        "wait",
    ];
    let root = root();
    let files = ["mod", "nodes", "control", "shards", "keyspaces"];
    let files = files.map(|name| root.join(format!("crates/server/src/status/judge/{name}.rs")));
    let sources = files.map(|path| fs::read_to_string(path).expect("a source"));
    let is_kind = |word: &&str| {
        word.len() > 2
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            && !NO_KINDS.contains(word)
    };
    let kinds: BTreeSet<&str> = sources.iter().flat_map(|source| literals(source)).filter(is_kind).collect();
    assert!(kinds.len() > 25, "{kinds:?}");
    let page = fs::read_to_string(root.join("docs/guide/troubleshooting.md")).expect("the page");
    let (symptoms, index) = page.split_once("## The risks of quorate status").expect("the list");
    let listed = index.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let listed: BTreeSet<&str> = listed.flat_map(|cell| cell.split('`').step_by(2)).collect();
    assert_eq!(listed, kinds, "the list has the kinds of risks that there are");
    let named = code_words(symptoms);
    let missing: Vec<_> = kinds.difference(&named).collect();
    assert!(missing.is_empty(), "no symptom names {missing:?}");
}

#[test]
fn every_metric_is_on_the_page() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/reference/metrics.md")).expect("the page");
    let (mut count, mut missing) = (0, Vec::new());
    for name in [
        "info/src/metrics/node.rs",
        "protocol/src/leader_follower/summary.rs",
        "protocol/src/abd/mod.rs",
        "protocol/src/blocking/mod.rs",
        "protocol/src/consensus/status.rs",
        "protocol/src/registers/counters.rs",
        "info/src/metrics/coding.rs",
        "info/src/metrics/groups.rs",
        "server/src/metrics.rs",
    ] {
        let text = fs::read_to_string(root.join("crates").join(name)).expect("a source");
        for literal in literals(&text) {
            if literal.contains('_') && literal.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            {
                count += 1;
                // A complete name of a metric may be a prefix of several others; any other name must match as a
                // whole.
                let is_beginning = literal.starts_with("quorate_");
                let goes_on =
                    |rest: &str| rest.starts_with(|letter: char| letter == '_' || letter.is_alphanumeric());
                if !page.split(literal).skip(1).any(|rest| is_beginning || !goes_on(rest)) {
                    missing.push(format!("{literal} of {name}"));
                }
            }
        }
    }
    assert!(count > 80, "{count} metrics were found");
    assert!(missing.is_empty(), "docs/reference/metrics.md does not name {missing:#?}");
}
