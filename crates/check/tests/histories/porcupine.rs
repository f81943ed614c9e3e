//! Compares this checker with Porcupine, which reads exported histories. Skipped where there is no Go,
//! or where its modules cannot be downloaded.

#![allow(clippy::disallowed_methods, reason = "a test may write files")]

use std::path::{Path, PathBuf};
use std::process::Command;

use check::{Checker, History, Verdict, linearizable};

use crate::atomic::{self, Kinds, Shape};
use crate::random::Random;
use crate::{agreement, lock_orders};

/// Builds `tools/porcupine`; `None` where that is not possible.
fn porcupine(folder: &Path) -> Option<PathBuf> {
    let binary = folder.join("porcupine");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/porcupine");
    match Command::new("go").current_dir(source).args(["build", "-o"]).arg(&binary).arg(".").output() {
        Ok(output) if output.status.success() => return Some(binary),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            // A compile error is no reason to skip the test.
            assert!(!error.lines().any(|line| line.starts_with("# ")), "{error}");
            println!("skipped: Porcupine, a module for Go, cannot be had: {error}");
        }
        Err(error) => println!("skipped: go is not installed: {error}"),
    }
    None
}

/// Porcupine's verdict on each history: `ok`, `illegal` or `unknown`; and its exit code.
fn verdicts(program: &Path, folder: &Path, histories: &[History]) -> (Vec<String>, Option<i32>) {
    let mut command = Command::new(program);
    for (number, history) in histories.iter().enumerate() {
        let mut bytes = Vec::new();
        history.export(Checker::Porcupine, None, &mut bytes).unwrap();
        let file = folder.join(format!("{number}.jsonl"));
        std::fs::write(&file, bytes).unwrap();
        command.arg(file);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<String> = text.lines().map(|line| line.split(": ").nth(1).unwrap().to_owned()).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(words.len(), histories.len(), "{text}{error}");
    (words, output.status.code())
}

/// Whether the export of a history contains any operation.
fn is_anything_exported(history: &History) -> bool {
    history.export(Checker::Porcupine, None, std::io::sink()).unwrap().operations > 0
}

fn words(is_possible: bool) -> &'static str {
    if is_possible { "ok" } else { "illegal" }
}

fn lines(history: &History) -> String {
    let mut bytes = Vec::new();
    history.write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn porcupine_reaches_the_same_verdicts() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = porcupine(folder.path()) else { return };
    let mut random = Random(3);
    let mut histories: Vec<(History, bool)> = Vec::new();
    while histories.len() < 500 {
        let history = agreement::any_history(&mut random);
        let is_possible = matches!(linearizable(&history), Verdict::Ok { .. });
        histories.push((history, is_possible));
    }
    // Porcupine does not know fences, so it may miss what a fence makes impossible.
    while histories.len() < 1_500 {
        let history = lock_orders::any_history(&mut random, histories.len().is_multiple_of(2));
        if history.ids().all(|id| history.fence(id).is_none()) {
            let is_possible = lock_orders::is_possible(&history);
            histories.push((history, is_possible));
        }
    }
    // A large history of many keys, as a store without faults answers.
    let (clients, operations, keys) = (8, 20_000, 100);
    let (kinds, values, unknown_one_in, time_max) = (Kinds::All, None, 1_000, 1_000_000);
    let shape = Shape { clients, operations, keys, kinds, values, unknown_one_in, time_max };
    histories.push((atomic::history(&mut random, shape), true));

    histories.retain(|(history, _)| is_anything_exported(history));
    let (histories, expected): (Vec<History>, Vec<bool>) = histories.into_iter().unzip();
    let (found, code) = verdicts(&program, folder.path(), &histories);
    for ((verdict, expected), history) in found.iter().zip(&expected).zip(&histories) {
        assert_eq!(verdict, words(*expected), "{}", lines(history));
    }
    let possible = expected.iter().filter(|expected| **expected).count();
    assert!((300..1_200).contains(&possible), "both kinds are met: {possible} of {}", expected.len());
    assert_eq!(code, Some(1));
    let (_, code) = verdicts(&program, folder.path(), &histories[histories.len() - 1..]);
    assert_eq!(code, Some(0));
}
