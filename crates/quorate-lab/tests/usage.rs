//! Exit codes and help of the lab's program.

#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

/// Runs the program to its end: exit code, standard output, standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_quorate-lab")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_is_printed_with_examples() {
    for command in [
        &["--help"][..],
        &["bench", "--help"],
        &["check", "--help"],
        &["export", "--help"],
        &["sim", "--help"],
        &["run", "--help"],
        &["compare", "--help"],
        &["advise", "--help"],
    ] {
        let (code, out, _) = run(command);
        assert_eq!(code, 0);
        assert!(out.contains("Examples:"), "{command:?}: {out}");
    }
}

#[test]
fn wrong_usage_has_exit_code_2() {
    for command in [
        &[][..],
        &["study"],
        &["run"],
        &["sim"],
        &["advise", "--value", "1KB"],
        &["advise", "--value", "1KB", "--bandwidth", "fast"],
    ] {
        let (code, _, error) = run(command);
        assert_eq!(code, 2, "{command:?}: {error}");
    }
}

#[test]
fn advice_is_a_table_with_a_recommendation() {
    let question = ["advise", "--value", "500KB", "--bandwidth", "10mbit", "--reads", "0.9", "--nodes", "5"];
    let (code, out, error) = run(&question);
    assert_eq!((code, error.as_str()), (0, ""));
    for text in ["replication", "coding, k = 2", "coding, k = 3", "recommended: coding = ", "crosses at"] {
        assert!(out.contains(text), "{text} is not in {out}");
    }
    let (code, out, _) = run(&[&question[..], &["--json"]].concat());
    let advice: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, advice["choices"].as_array().map(Vec::len)), (0, Some(3)));
    let (code, _, error) = run(&[&question[..], &["--from", "nowhere"]].concat());
    assert_eq!(code, 1);
    assert!(error.contains("nowhere is not the result of a study"), "{error}");
}
