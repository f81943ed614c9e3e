//! The commands that pages and `--help` show.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{files, prose, root};

/// A command, as it is shown.
#[derive(Clone)]
pub(crate) struct Shown {
    /// The page or the command whose help shows it.
    pub(crate) place: String,
    pub(crate) text: String,
}

/// The first words of lines that are commands in blocks of code that name no language.
const PROGRAMS: [&str; 5] = ["quorate", "quorate-lab", "redis-cli", "redis-server", "curl"];

/// Redis commands that pages show without a program.
const COMMANDS: [&str; 5] = ["ACL", "AUTH", "LOCK", "LOCK.RENEW", "UNLOCK"];

/// All commands in the order in which a reader meets them: pages, then help.
pub(crate) fn all(quorate: &Path) -> Vec<Shown> {
    let root = root();
    let mut pages = vec![root.join("README.md"), root.join("examples/README.md")];
    let mut others = Vec::new();
    files(&root.join("docs"), ".md", &mut others);
    others.sort();
    pages.append(&mut others);
    let mut shown = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        let place = page.strip_prefix(&root).unwrap().display().to_string();
        let texts = in_blocks(&text).into_iter().chain(in_sentences(&text));
        shown.extend(texts.map(|text| Shown { place: place.clone(), text }));
    }
    in_help(quorate, &[], &mut shown);
    shown
}

/// The commands in blocks of code. A line that goes on in the next one is one command, and comments are left out.
pub(crate) fn in_blocks(page: &str) -> Vec<String> {
    let (mut found, mut language, mut begun) = (Vec::new(), None, String::new());
    for line in page.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("```") {
            language = if language.is_some() { None } else { Some(named) };
            continue;
        }
        let is_command = |text: &str| match language {
            Some("sh") => !text.is_empty(),
            Some("") => {
                let word = text.split(' ').next().unwrap_or_default();
                PROGRAMS.contains(&word) || COMMANDS.contains(&word)
            }
            _ => false,
        };
        let line = line.strip_prefix("$ ").unwrap_or(line);
        begun.push_str(without_comment(line));
        match begun.strip_suffix('\\') {
            Some(part) => begun = format!("{} ", part.trim_end()),
            None => {
                let text = std::mem::take(&mut begun);
                found.extend(is_command(&text).then_some(text));
            }
        }
    }
    found
}

fn without_comment(line: &str) -> &str {
    let line = if line.starts_with('#') { "" } else { line };
    line.split_once(" #").map_or(line, |(command, _)| command).trim_end()
}

/// The complete commands in sentences: those with arguments, of which none is a word for something else.
pub(crate) fn in_sentences(page: &str) -> Vec<String> {
    let text = prose(page).map(str::trim).collect::<Vec<_>>().join(" ");
    let spans = text.split('`').skip(1).step_by(2);
    let is_complete = |span: &&str| {
        let words: Vec<&str> = span.split(' ').collect();
        let is_word = |word: &&str| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        let has_arguments =
            words[1..].iter().skip(1).any(|word| word.starts_with("--") || word.contains('='));
        match words[..] {
            ["quorate" | "redis-cli" | "cargo", _, ..] if !span.starts_with("cargo test") => {
                has_arguments && !words.iter().any(is_word) && !span.contains(['…', '['])
            }
            ["KEYSPACE", "CREATE" | "SET", prefix, ..] => {
                has_arguments && prefix.ends_with(':') && !span.contains('…')
            }
            _ => false,
        }
    };
    spans.filter(is_complete).map(str::to_owned).collect()
}

/// The examples in the help of a command and of those below it.
fn in_help(quorate: &Path, words: &[&str], shown: &mut Vec<Shown>) {
    let output = Command::new(quorate).args(words).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let place = format!("quorate {} --help", words.join(" "));
    shown.extend(examples(&text).map(|text| Shown { place: place.clone(), text }));
    let commands = text.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        let name = line.trim_start().split(' ').next().unwrap_or_default();
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            in_help(quorate, &[words, &[name]].concat(), shown);
        }
    }
}

/// The examples in a text of help. A description follows each after two spaces or more.
pub(crate) fn examples(help: &str) -> impl Iterator<Item = String> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    let is_command = |line: &&str| {
        let mut words = line.split(' ').filter(|word| !word.contains('='));
        words.next().is_some_and(|word| PROGRAMS.contains(&word))
    };
    lines
        .filter(is_command)
        .map(|line| line.split_once("  ").map_or(line, |(text, _)| text).trim_end().to_owned())
}
