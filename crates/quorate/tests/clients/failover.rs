//! Applications that use redis-py, ioredis and go-redis with the libraries' usual settings survive a change of
//! leader: they are connected to a node that survives it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::required::{is_installed, is_prepared};
use crate::support::{Cluster, until};
use crate::tools::tests;

const KEYSPACES: [&str; 2] = [
    "prefix= replication=consensus leader=1",
    "prefix=f: replication=leader-follower acks=majority leader=1",
];

/// An application that uses one of the installed libraries.
struct Program {
    library: &'static str,
    words: Vec<String>,
    /// Where Node looks for modules.
    modules: Option<TempDir>,
}

fn programs() -> Vec<Program> {
    let file = |name: &str| tests().join(name).to_str().unwrap().to_owned();
    let mut programs = Vec::new();
    let python = std::env::var("QUORATE_PYTHON").unwrap_or("python3".into());
    if is_installed("redis-py (pip install redis)", Command::new(&python).args(["-c", "import redis"])) {
        programs.push(Program {
            library: "redis-py",
            words: vec![python, file("failover.py")],
            modules: None,
        });
    }
    let modules = tempfile::tempdir().unwrap();
    let mut install = Command::new("npm");
    install.current_dir(modules.path()).args(["install", "--no-audit", "--no-fund", "ioredis@5"]);
    if is_prepared("ioredis (packages nodejs, npm)", &mut install) {
        let words = vec!["node".into(), file("failover.js")];
        programs.push(Program { library: "ioredis", words, modules: Some(modules) });
    }
    let binary = tempfile::tempdir().unwrap();
    let mut build = Command::new("go");
    build.current_dir(tests().join("go_locks")).args(["build", "-o"]).arg(binary.path()).arg("./failover");
    if is_prepared("go-redis (package golang-go)", &mut build) {
        let words = vec![binary.path().join("failover").to_str().unwrap().to_owned()];
        programs.push(Program { library: "go-redis", words, modules: Some(binary) });
    }
    programs
}

/// A running application.
struct Running {
    library: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &Program, port: u16) -> Running {
        let mut command = Command::new(&program.words[0]);
        command.args(&program.words[1..]).args([port.to_string(), format!("{0}-,f:{0}-", program.library)]);
        if let Some(modules) = &program.modules {
            command.env("NODE_PATH", modules.path().join("node_modules"));
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (input, mut output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready", "{}", program.library);
        Running { library: program.library, child, input, output }
    }

    /// Stops the application, and returns its report.
    fn end(mut self) -> (&'static str, Value) {
        drop(self.input.take());
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}: {printed}", self.library);
        (self.library, serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the leader of a keyspace, as the leader itself reports. Does not ask the node `but`.
fn leader(cluster: &Cluster, prefix: &str, but: u16) -> u16 {
    let mut leader = None;
    until("somebody leads", || {
        leader = (1..=3).filter(|id| *id != but).find(|id| {
            let health = cluster.health(*id);
            let mut keyspaces = health["keyspaces"].as_array().into_iter().flatten();
            keyspaces.any(|it| it["prefix"] == prefix && it["role"] == "leader" && it["writable"] == true)
        });
        leader.is_some()
    });
    leader.unwrap()
}

/// Runs the applications at a surviving node while the leader of a keyspace is killed or paused and another node
/// takes over.
fn ride(
    cluster: &mut Cluster,
    programs: &[Program],
    prefix: &str,
    hurt: fn(&mut Cluster, u16),
    how: &str,
) -> u16 {
    let victim = leader(cluster, prefix, 0);
    let survivor = victim % 3 + 1;
    let port = cluster.client_port(survivor);
    let running: Vec<Running> = programs.iter().map(|program| Running::start(program, port)).collect();
    std::thread::sleep(Duration::from_millis(300));
    hurt(cluster, victim);
    assert_ne!(leader(cluster, prefix, victim), victim);
    std::thread::sleep(Duration::from_millis(500));
    for (library, output) in running.into_iter().map(Running::end) {
        println!("{library}, leader of '{prefix}' {how}: {output}");
        assert_eq!(output["errors"].as_array().map_or(0, Vec::len), 0, "{library}: {output}");
        // The operation in flight in each keyspace; ioredis has a SET and an INCR.
        assert!(output["unknown"].as_u64().unwrap() <= 4, "{library}: {output}");
        assert!(output["operations"].as_u64().unwrap() > 10, "{library}: {output}");
    }
    victim
}

#[test]
fn applications_do_not_notice_a_change_of_leader() {
    let programs = programs();
    if programs.is_empty() {
        return;
    }
    let mut cluster = Cluster::start(3, &KEYSPACES);
    let stand_still: fn(&mut Cluster, u16) = |cluster, id| cluster.pause(id);
    let victim = ride(&mut cluster, &programs, "", stand_still, "stands still");
    cluster.go_on(victim);
    cluster.wait_until_ready(victim);
    for prefix in ["", "f:"] {
        let victim = ride(&mut cluster, &programs, prefix, Cluster::kill, "is killed");
        cluster.restart(victim);
        cluster.wait_until_ready(victim);
    }
    let victim = ride(&mut cluster, &programs, "f:", stand_still, "stands still");
    cluster.go_on(victim);
}
