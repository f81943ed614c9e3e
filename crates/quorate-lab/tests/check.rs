//! `quorate check` and `quorate-lab export`: what they print, draw and exit with.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const SET: &str = r#"{"client":1,"operation":"set","key":"a","value":"v1","start":0,"end":1000000,"outcome":"ok"}
{"client":2,"operation":"set","key":"a","value":"v2","start":2000000,"end":3000000,"outcome":"ok"}
"#;
const FRESH: &str = r#"{"client":3,"operation":"get","key":"a","value":"v2","start":4000000,"end":5000000,"outcome":"ok"}
"#;
const STALE: &str = r#"{"client":3,"operation":"get","key":"a","value":"v1","start":4000000,"end":5000000,"outcome":"ok"}
"#;

fn check(arguments: &[&str], input: &str) -> (i32, String, String) {
    run("check", arguments, input.as_bytes())
}

fn export(arguments: &[&str], input: &str) -> (i32, String, String) {
    run("export", arguments, input.as_bytes())
}

/// Runs a command to its end: exit code, standard output, standard error.
fn run(name: &str, arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate-lab"));
    command.arg(name).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses its arguments does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_linearizable_history_is_ok() {
    let (code, out, error) = check(&["-"], &format!("{SET}{FRESH}"));
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.starts_with("ok: 3 operations on 1 key by 3 clients are linearizable ("), "{out}");
}

#[test]
fn a_violation_is_explained_in_words_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let (svg, html) = (path(folder.path(), "window.svg"), path(folder.path(), "window.html"));
    let history = format!("{SET}{STALE}");
    for picture in [&svg, &html] {
        let (code, out, error) = check(&["-", "--picture", picture], &history);
        assert_eq!((code, error.as_str()), (1, ""));
        let sentence = "violation: key 'a' is not linearizable: client 3's get returned 'v1' (4 ms .. 5 ms), although \
                        client 2's set of 'v2' had ended 1 ms before that began\n";
        assert!(out.starts_with(sentence), "{out}");
        assert!(out.contains("'v1' was written by client 1 (set), before these: 0 ns .. 1 ms"), "{out}");
    }
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("set of 'v2' was acknowledged"), "{svg}");
    let html = fs::read_to_string(html).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<svg "), "{html}");
}

#[test]
fn locks_are_checked_beside_keys() {
    const HELD: &str = r#"{"client":1,"operation":"acquire","lock":"l","owner":"a","lease_ms":100,"token":5,"start":0,"end":1000000,"outcome":"ok"}
"#;
    let next = |end: u64| {
        format!(
            r#"{{"client":2,"operation":"acquire","lock":"l","owner":"b","lease_ms":100,"token":7,"start":2000000,"end":{end},"outcome":"ok"}}"#
        )
    };
    let (code, out, _) = check(&["-"], &format!("{SET}{HELD}{}", next(100_000_000)));
    assert_eq!(code, 0, "{out}");
    assert!(out.starts_with("ok: 4 operations on 1 key and 1 lock by 2 clients are linearizable ("), "{out}");
    let (code, out, _) = check(&["-"], &format!("{SET}{HELD}{}", next(99_000_000)));
    assert_eq!(code, 1, "{out}");
    assert!(out.starts_with("violation: lock 'l' did not keep its promise: client 2's acquire"), "{out}");
}

#[test]
fn several_files_are_checked_each_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (path(folder.path(), "good.jsonl"), path(folder.path(), "bad.jsonl"));
    fs::write(&good, format!("{SET}{FRESH}")).unwrap();
    fs::write(&bad, format!("{SET}{STALE}")).unwrap();
    let (code, out, _) = check(&[&good, &bad], "");
    assert_eq!(code, 1);
    assert!(out.contains(&format!("{good}: ok: ")) && out.contains(&format!("{bad}: violation: ")), "{out}");

    let (code, out, _) = check(&["--json", &good, &bad], "");
    assert_eq!(code, 1);
    let objects: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&objects[0]["verdict"], &objects[0]["ok"]["keys"]), (&"ok".into(), &1.into()));
    let violation = &objects[1]["violation"];
    assert_eq!(objects[1]["verdict"], "violation");
    assert_eq!((&violation["culprit"]["client"], &violation["culprit"]["value"]), (&3.into(), &"v1".into()));
    assert_eq!(violation["window"].as_array().unwrap().len(), 2);
    assert_eq!(violation["origins"][0]["client"], 1);
}

#[test]
fn a_check_that_times_out_is_unknown_and_not_ok() {
    let (code, out, _) = check(&["-", "--timeout", "0"], SET);
    assert_eq!(code, 1);
    assert!(out.starts_with("unknown: key 'a' could not be decided"), "{out}");
    let (_, out, _) = check(&["-", "--timeout", "0", "--json"], SET);
    assert!(out.contains(r#""verdict":"unknown""#), "{out}");
}

#[test]
fn unreadable_or_senseless_input_has_exit_code_2() {
    let (code, _, error) = check(&["-"], &format!("{SET}{{\"client\":1}}\n"));
    assert_eq!(
        (code, error.as_str()),
        (2, "quorate check: standard input: line 3: missing field `operation` (column 12)\n")
    );
    let cases: [(&[&str], &str); 6] = [
        (&[], "<FILE>"),
        (&["does-not-exist.jsonl"], "cannot read does-not-exist.jsonl"),
        (&["-", "--timeout", "soon"], "not a number of seconds"),
        (&["-", "--timeout", "-1"], ""),
        (&["-", "--picture", "window.png"], "a picture's name ends in .svg or .html"),
        (&["-", "-", "--picture", "window.svg"], "--picture shows one history"),
    ];
    for (arguments, reason) in cases {
        let (code, _, error) = check(arguments, "");
        assert!(code == 2 && error.contains(reason), "{arguments:?}: {code} {error}");
    }
}

#[test]
fn a_check_of_nothing_is_an_error_and_never_ok() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, full) = (path(folder.path(), "empty.jsonl"), path(folder.path(), "full.jsonl"));
    fs::write(&empty, "").unwrap();
    fs::write(&full, format!("{SET}{FRESH}")).unwrap();
    for (arguments, input) in [(&["-"][..], ""), (&["-"], "\n\n"), (&["-", "--json"], ""), (&[&empty], "")] {
        let (code, out, error) = check(arguments, input);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?} {error}");
        assert!(error.contains("it holds no operation, so there is nothing to check"), "{error}");
    }
    // A file with operations beside it does not hide that.
    let (code, out, _) = check(&[&empty, &full], "");
    assert!(code == 2 && out.contains(": ok: 3 operations"), "{code} {out}");

    // Neither refused nor unknown operations prove anything.
    let nothing = SET.replace(r#""outcome":"ok""#, r#""outcome":"failed""#);
    let unknown = SET.replace(r#""outcome":"ok""#, r#""outcome":"unknown""#);
    for history in [&nothing, &unknown] {
        let (code, out, error) = check(&["-"], history);
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        assert!(error.contains("none of its 2 operations has an answer"), "{error}");
    }
    let fenced = r#"{"client":1,"operation":"set","key":"a","lock":"l","token":6,"value":"v","fenced":true,"start":10,"end":20,"outcome":"failed"}"#;
    let (code, out, error) = check(&["-"], fenced);
    assert!(code == 0 || error.is_empty(), "it is an answer about the lock: {code} {out} {error}");
}

#[test]
fn compressed_histories_are_read_as_plain_ones() {
    let mut history = ::check::History::new();
    history.read(format!("{SET}{STALE}").as_bytes()).unwrap();
    let mut compressed = Vec::new();
    history.write_compressed(&mut compressed).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "history.jsonl.gz");
    fs::write(&file, &compressed).unwrap();
    for (arguments, input) in [(&["-"][..], &compressed[..]), (&[&file], b"")] {
        let (code, out, error) = run("check", arguments, input);
        assert!(code == 1 && out.starts_with("violation: key 'a'"), "{code} {out} {error}");
    }
    let (code, _, error) = run("check", &["-"], &compressed[..compressed.len() / 2]);
    assert!(code == 2 && error.starts_with("quorate check: standard input: line "), "{code} {error}");
}

#[test]
fn transactions_are_checked_for_strict_serializability() {
    let first = r#"{"client":1,"transaction":[{"append":"a","element":"1"},{"append":"b","element":"1"}],"start":0,"end":10,"outcome":"ok"}
"#;
    let reads = |b: &str| {
        format!(
            r#"{{"client":2,"transaction":[{{"read":"a","elements":["1"]}},{{"read":"b","elements":{b}}}],"start":5,"end":20,"outcome":"ok"}}"#
        )
    };
    let arguments = ["--transactions", "-"];
    let (code, out, error) = check(&arguments, &format!("{first}{}", reads(r#"["1"]"#)));
    assert!(code == 0 && out.starts_with("ok: 2 transactions are strictly serializable"), "{out}{error}");
    let half = format!("{first}{}", reads("[]"));
    let (code, out, _) = check(&arguments, &half);
    let why =
        "transaction 2 of client 2 comes before transaction 1 of client 1: it has read key 'b' without '1'";
    assert!(code == 1 && out.starts_with("violation: no order") && out.contains(why), "{out}");
    let (code, out, _) = check(&["--transactions", "--json", "-"], &half);
    assert!(code == 1 && out.contains(r#""verdict":"violation""#) && out.contains("without '1'"), "{out}");
    let (code, _, error) = check(&arguments, "");
    assert!(code == 2 && error.contains("there is nothing to check"), "{error}");
}

#[test]
fn a_history_is_exported_to_a_file_or_to_standard_output() {
    let history = format!("{SET}{STALE}");
    for (checker, lines, first) in [
        ("porcupine", 3, r#"{"client":1,"input":{"operation":"set","key":"a","value":"v1"},"call":0,"#),
        ("knossos", 8, "{:index 0, :time 0, :process 0, :type :invoke, :f :write, :value :absent}"),
        ("elle", 6, r#"{:index 0, :time 0, :process 0, :type :invoke, :f :txn, :value [[:w "a" "v1"]]}"#),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = path(folder.path(), "out");
        let (code, out, error) = export(&["--to", checker, "-"], &history);
        assert_eq!((code, out.lines().count(), error.as_str()), (0, lines, "3 operations\n"), "{out}");
        assert!(out.starts_with(first), "{out}");
        let (code, nothing, _) = export(&["--to", checker, "-", "--out", &file], &history);
        assert_eq!((code, nothing.as_str(), fs::read_to_string(&file).unwrap()), (0, "", out));
    }
}

#[test]
fn histories_that_another_checker_cannot_express_have_exit_code_2_and_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "out");
    let two = format!("{SET}{}", FRESH.replace("\"a\"", "\"b\""));
    let deleted = r#"{"client":1,"operation":"delete","key":"a","start":0,"end":1,"outcome":"ok"}"#;
    let cases: [(&[&str], &str, &str); 6] = [
        (&["--to", "elle", "-"], deleted, "standard input: Elle has no words for a delete"),
        (&["--to", "knossos", "-"], &two, "these are 2: choose one, for example with --key 'a'"),
        (&["--to", "elle", "--key", "c", "-"], &two, "no operation in it concerns that"),
        (&["--to", "elle", "--lock", "a", "-"], &two, "no operation in it concerns that"),
        (&["--to", "porcupine", "-"], "", "there is nothing to check"),
        (&["--to", "nobody", "-"], SET, "invalid value 'nobody'"),
    ];
    for (arguments, history, reason) in cases {
        let (code, out, error) = export(&[arguments, &["--out", &file]].concat(), history);
        assert!(code == 2 && out.is_empty() && error.contains(reason), "{arguments:?}: {code} {error}");
        assert!(!Path::new(&file).exists());
    }
    let (code, _, error) = export(&["--to", "knossos", "--key", "b", "-", "--out", &file], &two);
    assert!(code == 0 && Path::new(&file).exists(), "{error}");
}

#[test]
fn help_is_printed_with_examples() {
    let (code, out, _) = check(&["--help"], "");
    assert!(code == 0 && out.contains("Examples:") && out.contains("Exit code:"), "{out}");
}
