//! The programs in `examples/`, unchanged, with a cluster whose leaders are killed one after another.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::required::{is_installed, is_prepared};
use crate::support::Cluster;
use crate::tools::python_with;

const EXPECTED: &str = "the order is ours\nwritten under the lock: begun\na late write is refused: FENCED\n\
                        taken: job 1\ndone\n";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Each program that can be run here: its language, and its words without the nodes.
fn programs(built: &Path) -> Vec<(&'static str, Vec<String>)> {
    let file = |path: &str| examples().join(path).to_str().unwrap().to_owned();
    let here = |path: &str| built.join(path).to_str().unwrap().to_owned();
    // Beside this test's own folder: cargo builds examples before it runs tests.
    let rust = std::env::current_exe().unwrap().with_file_name("../examples/client");
    assert!(
        rust.is_file(),
        "build the example first: cargo test -p quorate --examples --test clients examples"
    );
    let mut programs = vec![("Rust", vec![rust.to_str().unwrap().to_owned()])];
    if let Some(python) = python_with("redis", "redis") {
        programs.push(("Python", vec![python, file("python/example.py")]));
    }
    let ioredis = "ioredis (npm install, and NODE_PATH)";
    if is_installed(ioredis, Command::new("node").args(["-e", "require('ioredis')"])) {
        programs.push(("Node.js", vec!["node".to_owned(), file("node/example.js")]));
    }
    let mut build = Command::new("go");
    build.current_dir(examples().join("go")).args(["build", "-o", &here("go"), "."]);
    if is_prepared("the example for Go (package golang-go)", &mut build) {
        programs.push(("Go", vec![here("go")]));
    }
    let mut fetch = Command::new("mvn");
    fetch.args(["-B", "-q", "dependency:copy-dependencies", "-f", &file("java/pom.xml")]);
    fetch.arg(format!("-DoutputDirectory={}", here("java")));
    if is_prepared("the example for Java (packages default-jdk, maven)", &mut fetch) {
        let classes = format!("{}/*", here("java"));
        programs.push((
            "Java",
            vec!["java".to_owned(), "-cp".to_owned(), classes, file("java/src/Example.java")],
        ));
    }
    programs
}

fn run(words: &[String], nodes: &[String]) -> Output {
    Command::new(&words[0]).args(&words[1..]).args(nodes).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_examples_work_while_leaders_die() {
    const RUNS: usize = 3;
    let built = tempfile::tempdir().unwrap();
    let programs = programs(built.path());
    let mut cluster = Cluster::start(3, &[]);
    let nodes: Vec<String> = (1..=3).map(|id| format!("127.0.0.1:{}", cluster.client_port(id))).collect();
    for (language, words) in &programs {
        let Output { status, stdout, stderr } = run(words, &nodes);
        let (output, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success() && output == EXPECTED, "{language}: {output}{error}");
    }

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let runs = programs.iter().enumerate().map(|(place, (language, words))| {
            // Each starts with another node.
            let mut nodes = nodes.clone();
            nodes.rotate_left(place % 3);
            scope.spawn(move || (0..RUNS).map(|_| (*language, run(words, &nodes))).collect::<Vec<_>>())
        });
        let runs: Vec<_> = runs.collect();
        let outputs = scope.spawn(|| {
            let outputs: Vec<_> = runs.into_iter().flat_map(|run| run.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            outputs
        });
        while !is_over.load(Ordering::Relaxed) {
            let leader = cluster.leader();
            cluster.kill(leader);
            std::thread::sleep(Duration::from_millis(200));
            cluster.restart(leader);
            (1..=3).for_each(|id| cluster.wait_until_ready(id));
        }
        for (language, Output { status, stdout, stderr }) in outputs.join().unwrap() {
            let (output, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
            assert!(status.success() && output == EXPECTED, "{language}: {output}{error}");
        }
    });
}
