//! Studies as people run them: the processes that they start end with them, however they end, and what was measured
//! is kept.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The lab's program. The server that it measures is in the same folder if the whole workspace was built.
fn quorate_lab() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_quorate-lab"));
    let server = program.with_file_name("quorate");
    assert!(server.is_file(), "there is no {}: run the tests with --workspace", server.display());
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let by = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < by, "waited a minute in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// A process's exit code; -1 if a signal ended it.
fn wait(child: &mut Child) -> i32 {
    let mut status = None;
    until("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code().unwrap_or(-1)
}

fn run(folder: &Path) -> Child {
    run_study("leader-follower", folder)
}

fn run_study(study: &str, folder: &Path) -> Child {
    let mut command = quorate_lab();
    command.args(["run", study, "--quick", "--dir"]).arg(folder);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The processes whose command line names a folder's nodes.
fn nodes_of(folder: &Path) -> Vec<u32> {
    let work = folder.canonicalize().unwrap().join("work");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(work.to_str().unwrap())
    };
    processes.filter(is_ours).collect()
}

fn rows(folder: &Path) -> usize {
    fs::read_to_string(folder.join("raw.csv")).unwrap_or_default().lines().count().saturating_sub(1)
}

#[test]
fn a_stopped_lab_leaves_no_process_and_can_continue_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = run(folder.path());
    until("a point is measured", || rows(folder.path()) > 0);
    assert_eq!(nodes_of(folder.path()).len(), 3);
    signal(first.id(), Signal::INT);
    assert_eq!(wait(&mut first), 128 + 2);
    until("all nodes have ended", || nodes_of(folder.path()).is_empty());

    let measured = rows(folder.path());
    let mut second = run(folder.path());
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
    let first_line = said.next().unwrap().unwrap();
    assert!(first_line.starts_with(&format!("{measured} of ")), "{first_line}");
    until("another point is measured", || rows(folder.path()) > measured);
    signal(second.id(), Signal::TERM);
    assert_eq!(wait(&mut second), 128 + 15);
    until("all nodes have ended again", || nodes_of(folder.path()).is_empty());
}

#[test]
fn nodes_end_when_the_lab_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = run(folder.path());
    until("three nodes run", || nodes_of(folder.path()).len() == 3);
    signal(lab.id(), Signal::KILL);
    wait(&mut lab);
    until("they end", || nodes_of(folder.path()).is_empty());
}

/// Runs the study up to its second point: values of 1 MB over shaped links between five nodes.
#[test]
fn bytes_between_nodes_are_counted_where_links_are_shaped() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = run_study("coding-crossover", folder.path());
    until("two points are measured", || rows(folder.path()) >= 2);
    signal(lab.id(), Signal::INT);
    assert_eq!(wait(&mut lab), 128 + 2);
    let raw = fs::read_to_string(folder.path().join("raw.csv")).unwrap();
    let mut lines = raw.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let row = lines.nth(1).unwrap();
    let value = |name: &str| row[head.iter().position(|column| *column == name).unwrap()];
    assert_eq!((value("arm"), value("part"), value("bytes")), ("Replication", "write", "1000000"));
    assert_eq!(value("failure"), "0");
    // Four copies are sent; heartbeats and acknowledgements are small compared with them.
    let sent: f64 = value("wire_per_value").parse().unwrap();
    assert!((3.9..4.5).contains(&sent), "{sent}");
    until("all nodes have ended", || nodes_of(folder.path()).is_empty());
}

#[test]
fn an_unknown_study_is_wrong_usage_and_the_others_are_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_quorate-lab")).args(["run", "nonsense"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("there is no study 'nonsense'; there are: leader-follower"), "{error}");
}

#[test]
fn a_lab_without_a_server_explains_how_to_build_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("quorate-lab");
    fs::copy(env!("CARGO_BIN_EXE_quorate-lab"), &program).unwrap();
    let mut command = Command::new(program);
    let output = command.args(["run", "leader-follower"]).current_dir(folder.path()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("build it with `cargo build --release`"), "{error}");
    assert!(!folder.path().join("lab-results").exists(), "a run that cannot begin leaves nothing behind");
}
