//! `quorate sim` as people run it.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate-lab"));
    command.arg("sim").args(arguments).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

/// The output without the figure that depends on this machine's speed.
fn without_speed(text: &str) -> String {
    let lines =
        text.lines().map(|line| match (line.find(" ("), line.find(" simulated seconds per second)")) {
            (Some(start), Some(_)) => &line[..start],
            _ => line,
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_seed_is_replayed_byte_for_byte() {
    let arguments = ["--seed", "7", "--protocol", "leader-follower", "--trace"];
    let (once, again) = (sim(&arguments), sim(&arguments));
    assert!(once.status.success(), "{}", text(&once));
    assert!(text(&once).contains("digest "));
    assert!(text(&once).lines().count() > 1000, "the story is printed");
    assert_eq!(without_speed(&text(&once)), without_speed(&text(&again)));
}

#[test]
fn a_search_reports_its_totals() {
    let output = sim(&["--runs", "5", "--seed", "1", "--json"]);
    assert!(output.status.success(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!((&report["ok"], &report["totals"]["runs"]), (&true.into(), &5.into()));
    assert!(report["totals"]["checked"].as_u64() > Some(0));
    assert!(report["totals"]["simulated_seconds"].as_f64() > Some(25.0));
    let faults = report["totals"]["faults"].as_object().expect("each fault has its count");
    assert!(faults.contains_key("crash") && faults.contains_key("one-way-partition"));
}

#[test]
fn impossible_arguments_are_wrong_usage() {
    let refusals: [(&[&str], &str); 7] = [
        (&[], "required"),
        (&["--seed", "1", "--protocol", "gossip"], "unknown protocol"),
        (&["--seed", "1", "--without", "rain"], "neither a fault's number"),
        (&["--minutes", "-1"], "minutes"),
        // A search of no runs finds nothing, and must not print ok.
        (&["--minutes", "0"], "more than 0"),
        (&["--runs", "0"], "0 is not in 1.."),
        (&["--seed", "1", "--clients", "0"], "at least 1"),
    ];
    for (arguments, expected) in refusals {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
