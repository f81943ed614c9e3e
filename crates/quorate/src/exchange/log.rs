//! Append-only files: their manifest, and the commands in them.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rdb::{Fault, Source};

/// The files of a folder of append-only files, in the order in which they are read.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "manifest") {
            manifests.push(path);
        }
    }
    ensure!(manifests.len() < 2, "{} has several manifests", folder.display());
    let manifest = manifests.pop().with_context(|| format!("{} has no manifest", folder.display()))?;
    let text = std::fs::read_to_string(&manifest).with_context(cannot)?;
    let (mut base, mut increments) = (None, Vec::new());
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let what = || format!("line {number} of {}", manifest.display());
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |name| {
            let at = words.iter().step_by(2).position(|word| *word == name)?;
            words.get(2 * at + 1).copied()
        };
        let name = value("file").with_context(|| format!("{} names no file", what()))?;
        let name = name.trim_matches('"');
        ensure!(!name.contains('/'), "{} names a file elsewhere", what());
        let sequence: u64 =
            value("seq").unwrap_or("").parse().with_context(|| format!("{}: its seq", what()))?;
        match value("type") {
            Some("b") if base.is_none() => base = Some(folder.join(name)),
            Some("i") => increments.push((sequence, folder.join(name))),
            // Files that have been replaced.
            Some("h") => {}
            _ => bail!("{} is not understood", what()),
        }
    }
    increments.sort();
    let files: Vec<PathBuf> = base.into_iter().chain(increments.into_iter().map(|(_, file)| file)).collect();
    ensure!(!files.is_empty(), "{} names no file", manifest.display());
    Ok(files)
}

/// Most words of a command, and longest word.
const WORDS: usize = 1 << 20;
const WORD_BYTES: u64 = 512 << 20;

/// What stands in an append-only file.
pub(super) enum Item {
    /// The words of a command.
    Command(Vec<Vec<u8>>),
    /// What stands behind `#`, such as the time at which the commands behind it were written.
    Remark(Vec<u8>),
}

/// Reads what comes next.
///
/// # Errors
/// [`Fault`] if the bytes are neither.
pub(super) fn item<R: Read>(source: &mut Source<R>) -> Result<Item, Fault> {
    let line = line(source)?;
    match line.split_first() {
        Some((b'#', remark)) => Ok(Item::Remark(remark.to_vec())),
        Some((b'*', count)) => {
            let count = number(count, WORDS as u64).ok_or_else(|| damaged(source))?;
            Ok(Item::Command((0..count).map(|_| word(source)).collect::<Result<_, Fault>>()?))
        }
        _ => Err(damaged(source)),
    }
}

fn damaged<R: Read>(source: &Source<R>) -> Fault {
    Fault::Damaged(rdb::Damaged { at: source.at(), why: "this is no command" })
}

fn number(text: &[u8], most: u64) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|number| *number <= most)
}

fn word<R: Read>(source: &mut Source<R>) -> Result<Vec<u8>, Fault> {
    let line = line(source)?;
    let length = line.strip_prefix(b"$").and_then(|text| number(text, WORD_BYTES));
    let length = length.ok_or_else(|| damaged(source))?;
    let mut bytes = Vec::new();
    source.bytes(length, &mut bytes)?;
    if source.array()? == *b"\r\n" { Ok(bytes) } else { Err(damaged(source)) }
}

fn line<R: Read>(source: &mut Source<R>) -> Result<Vec<u8>, Fault> {
    const BYTES: usize = 100;
    let mut line = Vec::new();
    loop {
        match source.byte()? {
            b'\n' => break,
            byte if line.len() < BYTES => line.push(byte),
            _ => return Err(damaged(source)),
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}
