//! The files of an append-only log, as its manifest names them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

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
    let manifest = manifests.pop().with_context(|| {
        format!(
            "{} is no folder of append-only files: it has no manifest (appendonly.aof.manifest)",
            folder.display()
        )
    })?;
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
