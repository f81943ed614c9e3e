//! Unmodified lock libraries for Redis: the commands that they send for locks work on a cluster.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::required::is_prepared;
use crate::support::Cluster;
use crate::tools::{finish, python_with, tests};

const KEYSPACES: &[&str] = &["prefix=f: replication=leader-follower acks=majority"];

/// Runs a program against a leader and a follower, in a keyspace of each protocol that has scripts.
fn run_everywhere(program: impl AsRef<std::ffi::OsStr> + Copy, words: &[&str], folder: &Path) {
    let cluster = Cluster::start(3, KEYSPACES);
    for (id, prefix) in [(1, ""), (2, ""), (1, "f:"), (3, "f:")] {
        let port = cluster.client_port(id).to_string();
        let mut command = Command::new(program);
        command.current_dir(folder).args(words).args([port.as_str(), prefix]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(command.spawn().unwrap(), "the program");
        let (printed, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "node {id}, prefix '{prefix}': {printed}{error}");
    }
}

#[test]
fn redis_py_lock_works_unchanged() {
    let Some(python) = python_with("redis.lock", "redis") else { return };
    run_everywhere(python.as_str(), &["locks.py", "redis-py"], tests());
}

#[test]
fn redlock_py_works_unchanged() {
    let Some(python) = python_with("redlock", "redlock-py") else { return };
    run_everywhere(python.as_str(), &["locks.py", "redlock-py"], tests());
}

#[test]
fn pottery_works_unchanged() {
    let Some(python) = python_with("pottery", "pottery") else { return };
    run_everywhere(python.as_str(), &["locks.py", "pottery"], tests());
}

/// `redsync` and `redislock`, over `go-redis`.
#[test]
fn the_libraries_for_go_work_unchanged() {
    let program = tempfile::tempdir().unwrap();
    let binary = program.path().join("locks");
    let mut build = Command::new("go");
    build.current_dir(tests().join("go_locks")).args(["build", "-o"]).arg(&binary).arg(".");
    if is_prepared("redsync and redislock for Go (package golang-go)", &mut build) {
        run_everywhere(binary.as_path(), &[], tests());
    }
}
