//! Redis's own tools, unmodified: redis-py, redis-cli and redis-benchmark.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use crate::required::is_installed;
use crate::support::{Cluster, PATIENCE, ask};

/// Returns a Python that has a module.
pub(crate) fn python_with(module: &str, package: &str) -> Option<String> {
    let python = std::env::var("QUORATE_PYTHON").unwrap_or("python3".into());
    let what = format!("{module} (pip install {package})");
    is_installed(&what, Command::new(&python).args(["-c", &format!("import redis, {module}")]))
        .then_some(python)
}

/// Returns the folder of the programs in other languages.
pub(crate) fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"))
}

fn has_tool(name: &str) -> bool {
    is_installed(&format!("{name} (package redis-tools)"), Command::new(name).arg("--version"))
}

/// Waits for a tool to end, for at most [`PATIENCE`], and returns its output.
pub(crate) fn finish(mut child: Child, name: &str) -> Output {
    let by = Instant::now() + PATIENCE;
    // The output is read while the tool runs, as it may be long.
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            bytes
        })
    };
    let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > by => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{name} does not end: {}", String::from_utf8_lossy(&stdout.join().unwrap()));
            }
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn start(name: impl AsRef<OsStr>, words: &[&str]) -> Child {
    let mut command = Command::new(name);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs `redis-cli` against a node with this input, and returns its output.
fn redis_cli(cluster: &Cluster, id: u16, words: &[&str], input: &[u8]) -> String {
    let port = cluster.client_port(id).to_string();
    let mut child = start("redis-cli", &[&["-p", &port][..], words].concat());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    let output = finish(child, "redis-cli");
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "redis-cli {words:?}: {printed}{error}");
    printed.into_owned()
}

#[test]
fn redis_py_works_unchanged_at_a_leader_and_a_follower() {
    let python = std::env::var("QUORATE_PYTHON").unwrap_or("python3".into());
    if !is_installed("redis-py (pip install redis)", Command::new(&python).args(["-c", "import redis"])) {
        return;
    }
    let cluster = Cluster::start(3, &[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redis_py.py");
    for id in [1, 2] {
        let port = cluster.client_port(id).to_string();
        let output = finish(start(&python, &[script, &port]), "python");
        let (printed, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "node {id}: {printed}{error}");
    }
}

#[test]
fn redis_cli_works_in_its_usual_modes() {
    if !has_tool("redis-cli") {
        return;
    }
    let cluster = Cluster::start(
        3,
        &[
            "prefix= replication=leader-follower acks=majority",
            "prefix=b: replication=leader-follower acks=none leader=2",
        ],
    );
    for (id, protocol) in [(1, "-2"), (2, "-3")] {
        let run = |words: &[&str], input: &str| redis_cli(&cluster, id, words, input.as_bytes());
        run(&[protocol, "FLUSHALL"], "");
        assert_eq!(run(&[protocol, "SET", "k", "some text"], ""), "OK\n");
        assert_eq!(run(&[protocol, "GET", "k"], ""), "some text\n");
        assert_eq!(run(&[protocol, "--no-raw", "GET", "nothing"], ""), "(nil)\n");
        assert_eq!(run(&["-x", "SET", "from:stdin"], "all of it"), "OK\n");
        assert_eq!(
            run(&[], "PING\nINCR n\nINCR n\nGET from:stdin\n"),
            "PONG\n1\n2\nall of it\n",
            "as a script"
        );
        assert_eq!(
            run(&["--no-raw"], "MULTI\nINCR n\nGET nothing\nEXEC\n"),
            "OK\nQUEUED\nQUEUED\n1) (integer) 3\n2) (nil)\n",
            "a transaction"
        );
        assert_eq!(
            run(&["--no-raw"], "WATCH n\nINCR n\nMULTI\nPING\nEXEC\n"),
            "OK\n(integer) 4\nOK\nQUEUED\n(nil)\n",
            "and one that is aborted"
        );
        assert!(run(&["NOSUCH"], "").contains("ERR unknown command 'NOSUCH'"));
        // The command that it sends for its hints in interactive use.
        assert!(run(&["COMMAND", "DOCS"], "").contains("Returns the value of a key"));

        let lines: String = (0..500).map(|number| format!("SET b:{number} {number}\r\n")).collect();
        let output = run(&["--pipe"], &lines);
        assert!(output.contains("errors: 0, replies: 500"), "{output}");
        let mut keys: Vec<String> =
            run(&["--scan", "--pattern", "b:*"], "").lines().map(String::from).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 500);
        let output = run(&["--bigkeys"], "");
        assert!(output.contains("Biggest string found") && output.contains("503 strings"), "{output}");
        let output = run(&["--memkeys"], "");
        assert!(output.contains("503 strings"), "{output}");
        assert_eq!(run(&["DBSIZE"], ""), "503\n");
    }
}

#[test]
fn redis_cli_shows_statistics_and_latency() {
    if !has_tool("redis-cli") {
        return;
    }
    let cluster = Cluster::start(1, &[]);
    let port = cluster.client_port(1).to_string();
    assert_eq!(ask(&mut cluster.client(1), "SET k v"), "OK");
    // Without a terminal it measures for one second: minimum, maximum and average in milliseconds, and the count.
    let output = redis_cli(&cluster, 1, &["--latency"], b"");
    assert_eq!(output.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count(), 4, "{output}");
    // The statistics never end: read the first ones, then end the tool.
    let mut child = start("redis-cli", &["-p", &port, "--stat", "-i", "0.01"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let shown: Vec<String> = lines.by_ref().take(6).map(Result::unwrap).collect();
    let _ = child.kill();
    let _ = child.wait();
    let is_row = |line: &String| line.starts_with("1 ") && line.contains("(+");
    assert!(shown.iter().any(is_row), "{shown:?}");
}

#[test]
fn redis_benchmark_measures_a_leader_and_a_follower() {
    if !has_tool("redis-benchmark") {
        return;
    }
    let cluster = Cluster::start(3, &[]);
    for id in [1, 2] {
        let port = cluster.client_port(id).to_string();
        let words = ["-p", &port, "-t", "ping,set,get,incr,mset", "-P", "16", "-n", "20000", "-q"];
        let output = finish(start("redis-benchmark", &words), "redis-benchmark");
        let printed = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
        assert!(output.status.success() && !printed.contains("Error"), "{printed}");
        for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"] {
            let is_told =
                |line: &str| line.starts_with(&format!("{test}: ")) && line.contains("requests per second");
            assert!(printed.lines().any(is_told), "{test} at node {id}: {printed}");
        }
    }
    assert_eq!(ask(&mut cluster.client(3), "GET counter:__rand_int__"), "\"40000\"");
}

/// Starts a cluster whose default keyspace has four shards, with leaders on all nodes.
fn sharded() -> Cluster {
    let cluster =
        Cluster::start(3, &["prefix= shards=4 replication=leader-follower acks=majority durability=fsync"]);
    (1..=3).for_each(|id| cluster.wait_until_ready(id));
    cluster
}

#[test]
fn redis_py_knows_the_shards_and_finds_the_new_leaders_when_a_node_is_killed() {
    let python = std::env::var("QUORATE_PYTHON").unwrap_or("python3".into());
    if !is_installed("redis-py (pip install redis)", Command::new(&python).args(["-c", "import redis"])) {
        return;
    }
    let cluster = sharded();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redis_cluster.py");
    let (port, victim) = (cluster.client_port(1).to_string(), cluster.process(2).to_string());
    let output = finish(start(&python, &[script, &port, &victim]), "python");
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{error}");
}

#[test]
fn redis_py_works_unchanged_over_tls() {
    let python = std::env::var("QUORATE_PYTHON").unwrap_or("python3".into());
    if !is_installed("redis-py (pip install redis)", Command::new(&python).args(["-c", "import redis"])) {
        return;
    }
    let run = |cluster: &Cluster, script: &str, words: &[&str]| {
        (1..=3).for_each(|id| cluster.wait_until_ready(id));
        let script = tests().join(script).to_str().unwrap().to_owned();
        let (port, authority) = (cluster.tls_port(1).to_string(), cluster.authority());
        let words = [&[&script[..], &port], words, &[&authority]].concat();
        let output = finish(start(&python, &words), "python");
        let (printed, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{words:?}: {printed}{error}");
    };
    run(&Cluster::start_sealed(3, &[]), "redis_py.py", &[]);
    let shards = "prefix= shards=4 replication=leader-follower acks=majority durability=fsync";
    let sharded = Cluster::start_sealed(3, &[shards]);
    run(&sharded, "redis_cluster.py", &[&sharded.process(2).to_string()]);
}

#[test]
fn redis_cli_and_redis_benchmark_know_the_shards() {
    if !has_tool("redis-cli") || !has_tool("redis-benchmark") {
        return;
    }
    let cluster = sharded();
    for id in 1..=3 {
        assert_eq!(redis_cli(&cluster, id, &["-c", "SET", "foo", "bar"], b""), "OK\n");
        assert_eq!(redis_cli(&cluster, id, &["-c"], b"GET foo\nCLUSTER KEYSLOT foo\n"), "bar\n12182\n");
    }
    let address = format!("127.0.0.1:{}", cluster.client_port(2));
    let printed = redis_cli(&cluster, 1, &["--cluster", "check", &address], b"");
    assert!(printed.contains("All 16384 slots covered") && !printed.contains("[ERR]"), "{printed}");

    let port = cluster.client_port(3).to_string();
    let words = ["--cluster", "-p", &port, "-t", "set,get", "-r", "1000", "-n", "10000", "-q"];
    let output = finish(start("redis-benchmark", &words), "redis-benchmark");
    let printed = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\r', "\n"))
        .concat();
    assert!(output.status.success() && !printed.contains("rror"), "{printed}");
    assert!(printed.contains("Cluster has 3 master nodes"), "{printed}");
    for test in ["SET: ", "GET: "] {
        assert!(
            printed.lines().any(|line| line.starts_with(test) && line.contains("requests per second")),
            "{printed}"
        );
    }
}
