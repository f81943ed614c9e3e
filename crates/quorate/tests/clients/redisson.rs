//! Redisson, the Java library, unmodified: its locks, semaphores, latches, topics and values work on a cluster.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::required::{is_installed, is_prepared};
use crate::support::{Cluster, ask};

/// Java starts slowly, and more slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redisson"))
}

fn started(command: &mut Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits for a process to end, and returns its output, which must be short.
fn finish(mut child: Child, name: &str) -> Output {
    let by = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > by {
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            panic!("{name} does not end: {}", String::from_utf8_lossy(&output.stdout));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Returns a folder with Redisson and its dependencies.
fn library() -> Option<TempDir> {
    for (name, word) in [("javac", "-version"), ("mvn", "-version")] {
        let what = format!("{name} (packages default-jdk, maven)");
        if !is_installed(&what, Command::new(name).arg(word)) {
            return None;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("mvn");
    command.args(["-B", "-q", "dependency:copy-dependencies", "-f"]).arg(sources().join("pom.xml"));
    command.arg(format!("-DoutputDirectory={}", folder.path().display()));
    is_prepared("Redisson", &mut command).then_some(folder)
}

fn java(library: &TempDir, words: &[&str]) -> Child {
    let mut command = Command::new("java");
    command.arg("-cp").arg(format!("{}/*", library.path().display()));
    command.arg(sources().join("RedissonClients.java")).args(words);
    started(&mut command).unwrap()
}

#[track_caller]
fn succeeds(child: Child, what: &str) {
    let output = finish(child, what);
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{what}: {printed}");
    assert!(output.status.success() && printed.ends_with("done\n"), "{what}: {printed}{error}");
}

#[test]
fn redisson_works_unchanged() {
    const ROUNDS: usize = 50;
    let Some(library) = library() else { return };
    for keyspace in ["prefix= replication=consensus", "prefix= replication=leader-follower acks=majority"] {
        let cluster = Cluster::start(3, &[keyspace]);
        let ports = [1, 2, 3].map(|id| cluster.client_port(id).to_string());
        // A leader and a follower, and the reverse.
        for (first, second) in [(0, 1), (2, 0)] {
            let prefix = format!("r{first}:");
            succeeds(java(&library, &[&ports[first], &prefix, "alone", &ports[second]]), keyspace);
        }
        succeeds(java(&library, &[&ports[0], "slots:", "alone", &ports[1], "cluster"]), "as a cluster");
        let rounds = ROUNDS.to_string();
        let contenders = [1, 2].map(|node: usize| java(&library, &[&ports[node], "c:", "contend", &rounds]));
        contenders.into_iter().for_each(|child| succeeds(child, "two processes that contend"));
        let sum = ask(&mut cluster.client(1), "GET c:sum");
        assert_eq!(sum, format!("\"{}\"", 2 * ROUNDS), "no step was lost");
    }
}
