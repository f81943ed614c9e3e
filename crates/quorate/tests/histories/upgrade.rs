//! Upgrades without downtime: nodes of the last release and of this one in one cluster, under load, back and forth.
//!
//! `QUORATE_LAST_RELEASE` is the path of the last release's program; `.ci/run` builds it. Without it these tests are
//! skipped, by name, unless `QUORATE_REQUIRE_LAST_RELEASE` is set.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::assert_linearizable;
use super::bare::Bare;
use super::recorder::Recorder;
use super::support::{Client, signal, until};
use cluster::control::Feature;
use rustix::process::Signal;
use wire::release::RELEASES;

/// A keyspace of each protocol that keeps its keys on the disk: the same nodes are restarted again and again.
const KEYSPACES: &str = "[[keyspace]]\nprefix = \"\"\nreplication = \"consensus\"\n\
                         [[keyspace]]\nprefix = \"follow:\"\nreplication = \"leader-follower\"\nacks = \"majority\"\n\
                         durability = \"fsync\"\n\
                         [[keyspace]]\nprefix = \"reg:\"\nreplication = \"abd\"\ndurability = \"fsync\"\n";

/// Returns the last release's program, or reports that a test is skipped.
fn last_release(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("QUORATE_LAST_RELEASE").filter(|path| !path.is_empty()).map(PathBuf::from);
    match &path {
        Some(path) => {
            assert!(path.is_file(), "QUORATE_LAST_RELEASE is {}, and there is no file", path.display())
        }
        None => {
            let is_required =
                std::env::var_os("QUORATE_REQUIRE_LAST_RELEASE").is_some_and(|it| !it.is_empty());
            assert!(
                !is_required,
                "{test} needs the last release's program: set QUORATE_LAST_RELEASE to its path"
            );
            eprintln!("skipped: {test} needs the last release's program (QUORATE_LAST_RELEASE)");
        }
    }
    path
}

/// Three nodes, some with the last release's program.
struct Cluster {
    bare: Bare,
    last: PathBuf,
}

impl Cluster {
    fn new(last: PathBuf) -> Cluster {
        let mut cluster = Cluster { bare: Bare::new(KEYSPACES, |config, _| config), last };
        (1..=3).for_each(|node| cluster.start(node, true));
        cluster.bare.wait_until_ready(&[1, 2, 3]);
        cluster
    }

    fn start(&mut self, node: u16, is_old: bool) {
        match is_old {
            false => self.bare.start(node),
            true => {
                let mut command = Command::new(&self.last);
                command.arg("server").arg("--config").arg(self.bare.node(node).join("quorate.toml"));
                self.bare.start_by(node, command);
            }
        }
    }

    /// Stops a node, in an orderly way or by `kill -9`, and starts it with this program or the last release's.
    fn exchange(&mut self, node: u16, is_old: bool, in_order: bool) {
        if in_order {
            let process = self.bare.process(node);
            signal(process, Signal::TERM);
            until("it has stopped", || !super::support::is_running(process));
        }
        self.bare.kill(node);
        self.start(node, is_old);
        self.bare.wait_until_ready(&[1, 2, 3]);
    }

    fn ask(&self, node: u16, command: &str) -> String {
        let mut client = Client::connect(self.bare.client_port(node));
        client.send(format!("{command}\r\n"));
        client.line()
    }

    /// The cluster's level, as a node sees it.
    fn level(&self, node: u16) -> u64 {
        let health: serde_json::Value = serde_json::from_str(&self.bare.health(node).1).unwrap_or_default();
        health["level"].as_u64().unwrap_or(0)
    }
}

#[test]
fn a_cluster_is_upgraded_node_by_node_under_load() {
    let Some(last) = last_release("a_cluster_is_upgraded_node_by_node_under_load") else { return };
    let mut cluster = Cluster::new(last);
    let old_level = cluster.level(1);
    assert!(old_level >= 1 && old_level <= u64::from(RELEASES.newest));

    let ports = [1, 2, 3].map(|node| cluster.bare.client_port(node));
    let recorder = Recorder::start(&ports, 12, &["a", "b", "follow:a", "follow:b", "reg:a", "reg:b"]);
    recorder.wait_for(300);
    // (node, whether it gets the old program, whether it is stopped in an orderly way): forward, one back, forward,
    // the last one.
    let steps = [(2, false, true), (1, false, false), (1, true, true), (1, false, true)];
    for (node, is_old, in_order) in steps {
        cluster.exchange(node, is_old, in_order);
        recorder.wait_for(300);
        let levels = [1, 2, 3].map(|node| cluster.level(node));
        assert_eq!(levels, [old_level; 3], "node 3 has the last release's program");
    }
    let may_be_held = u64::from(Feature::LevelHeld.since()) <= old_level;
    if !may_be_held {
        let answer = cluster.ask(1, "CLUSTER LEVEL HOLD");
        assert!(
            answer.starts_with("-ERR holding the level needs level 2") && answer.contains("nodes [3]"),
            "{answer}"
        );
    }
    cluster.exchange(3, false, true);
    let is_risen = |cluster: &Cluster| (1..=3).all(|node| cluster.level(node) == u64::from(RELEASES.newest));
    until("the level has risen", || is_risen(&cluster));
    recorder.wait_for(300);
    let history = recorder.stop();
    assert_linearizable(&history);
    assert_eq!(cluster.ask(1, "CLUSTER LEVEL HOLD"), "+OK");
    assert_eq!(cluster.ask(3, "CLUSTER LEVEL RISE"), "+OK");

    if old_level == u64::from(RELEASES.newest) {
        return; // Nothing has changed since the last release that a level would be needed for.
    }
    // There is no way back: the last release's program refuses the folder.
    cluster.bare.kill(2);
    cluster.start(2, true);
    let process = cluster.bare.process(2);
    until("it ends", || !super::support::is_running(process));
    let log = cluster.bare.log(2);
    assert!(log.contains(&format!("the cluster is at level {}", RELEASES.newest)), "{log}");
    cluster.bare.kill(2);
    cluster.start(2, false);
    cluster.bare.wait_until_ready(&[1, 2, 3]);
    assert_eq!(cluster.ask(2, "SET a again"), "+OK");
}

/// Busy nodes of this release vouch for themselves to each other, over a connection that the last release may not know. The
/// node of that release is not disturbed, every link stays, and all nodes answer.
#[test]
fn busy_nodes_vouch_for_themselves_beside_one_of_the_last_release() {
    let Some(last) = last_release("busy_nodes_vouch_for_themselves_beside_one_of_the_last_release") else {
        return;
    };
    let mut cluster = Cluster::new(last);
    [1, 2].iter().for_each(|node| cluster.exchange(*node, false, true));
    let mut busy = Client::connect(cluster.bare.client_port(1));
    let numbers: Vec<String> = (0..200_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_string()).collect();
    for chunk in numbers.chunks(20_000) {
        let words = [&b"RPUSH"[..], b"l"].into_iter().chain(chunk.iter().map(String::as_bytes));
        busy.send(super::support::request(&words.collect::<Vec<_>>()));
        assert!(busy.line().starts_with(':'));
    }
    let links = |cluster: &Cluster| {
        let lines = |node| cluster.bare.log(node).lines().filter(|line| line.contains("link")).count();
        [1, 2, 3].map(lines)
    };
    let before = links(&cluster);
    let begun = Instant::now();
    let (mut longest, mut done) = (Duration::ZERO, 0);
    while begun.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        // Every replica sorts.
        let reply = busy.ask("SORT l LIMIT 0 1 STORE d");
        done += u32::from(reply == ":1");
        longest = longest.max(asked.elapsed());
        for node in 1..=3 {
            // A node of release 1 may take a busy leader for a dead one.
            let reply = cluster.ask(node, "INCR count");
            let is_lost = ["-TRYAGAIN ", "-UNKNOWN "].iter().any(|error| reply.starts_with(error));
            assert!(reply.starts_with(':') || is_lost, "node {node}: {reply}");
        }
    }
    assert!(done > 0 && longest >= Duration::from_millis(40), "{done} done, the longest in {longest:?}");
    assert_eq!(links(&cluster), before, "{}", cluster.bare.log(3));
}

#[test]
fn all_nodes_of_the_last_release_can_be_killed_and_started_with_this_one() {
    let Some(last) = last_release("all_nodes_of_the_last_release_can_be_killed_and_started_with_this_one")
    else {
        return;
    };
    let mut cluster = Cluster::new(last);
    for key in ["a", "follow:a", "reg:a"] {
        assert_eq!(cluster.ask(1, &format!("SET {key} kept")), "+OK");
    }
    cluster.bare.kill_all();
    (1..=3).for_each(|node| cluster.start(node, false));
    cluster.bare.wait_until_ready(&[1, 2, 3]);
    for key in ["a", "follow:a", "reg:a"] {
        let mut client = Client::connect(cluster.bare.client_port(2));
        client.send(format!("GET {key}\r\n"));
        assert_eq!((client.line(), client.line()), ("$4".into(), "kept".into()), "{key}");
    }
}

/// The node whose folder is kept for each release.
const KEPT_TABLES: &str = "[storage]\nsegment_bytes = 65536\ncheckpoint_bytes = 65536\n\
                           [[keyspace]]\nprefix = \"\"\nreplication = \"consensus\"\n\
                           [[keyspace]]\nprefix = \"follow:\"\nreplication = \"leader-follower\"\ndurability = \"fsync\"\n\
                           acks = \"none\"\n\
                           [[keyspace]]\nprefix = \"reg:\"\nreplication = \"abd\"\ndurability = \"fsync\"\n";

/// Commands that fill it.
const KEPT: [&str; 12] = [
    "SET plain value",
    "SET expires later PXAT 4102444800000",
    "SETBIT bits 7 1",
    "RPUSH list one two three",
    "SADD set one two",
    "ZADD sorted 1 one 2.5 two",
    "HSET hash field value other 7",
    "XADD stream 1-1 field value",
    "XGROUP CREATE stream group 0",
    "INCRBY count 41",
    "SET follow:plain value",
    "SET reg:plain value",
];

/// Reads of it, with their expected replies.
const FOUND: [(&str, &[&str]); 13] = [
    ("GET plain", &["$5", "value"]),
    ("PEXPIRETIME expires", &[":4102444800000"]),
    ("GETBIT bits 7", &[":1"]),
    ("LRANGE list 0 -1", &["*3", "$3", "one", "$3", "two", "$5", "three"]),
    ("SCARD set", &[":2"]),
    ("ZSCORE sorted two", &["$3", "2.5"]),
    ("HGET hash other", &["$1", "7"]),
    ("XLEN stream", &[":1"]),
    ("XGROUP DESTROY stream group", &[":1"]),
    ("INCR count", &[":42"]),
    ("GET follow:plain", &["$5", "value"]),
    ("GET reg:plain", &["$5", "value"]),
    ("DBSIZE", &[":11"]),
];

fn kept_node(folder: &std::path::Path, base: u16) -> Command {
    let config = super::support::configuration(base, 1, "", KEPT_TABLES);
    std::fs::write(folder.join("quorate.toml"), config).unwrap();
    let mut command = super::support::quorate();
    command.arg("server").arg("--config").arg(folder.join("quorate.toml"));
    command.stdout(Stdio::null()).stderr(std::fs::File::create(folder.join("quorate.log")).unwrap());
    command
}

fn lines(client: &mut Client, command: &str, count: usize) -> Vec<String> {
    client.send(format!("{command}\r\n"));
    (0..count).map(|_| client.line()).collect()
}

fn folders() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/histories/folders")
}

fn archived(folder: &std::path::Path, arguments: &[&str]) {
    let tar = Command::new("tar").current_dir(folder).args(arguments).status();
    assert!(tar.is_ok_and(|status| status.success()), "tar {arguments:?} has failed");
}

/// A folder that a release has written can be read by all later ones.
#[test]
fn a_folder_of_each_release_is_read() {
    let mut count = 0;
    for entry in std::fs::read_dir(folders()).unwrap() {
        let archive = entry.unwrap().path();
        let folder = tempfile::tempdir().unwrap();
        archived(folder.path(), &["-xzf", archive.to_str().unwrap()]);
        let base = super::support::free_ports(3);
        // The folder was copied, and its original does not run.
        let mut node =
            super::started::Restarted(kept_node(folder.path(), base).arg("--adopt").spawn().unwrap());
        let is_ready = || {
            super::support::try_http(base + 1, "GET /health?all HTTP/1.1", "").is_some_and(|it| it.0 == 200)
        };
        until("it serves", || node.0.try_wait().unwrap().is_some() || is_ready());
        let log = std::fs::read_to_string(folder.path().join("quorate.log")).unwrap();
        assert!(is_ready(), "{}: {log}", archive.display());
        let mut client = Client::connect(base);
        for (command, found) in FOUND {
            assert_eq!(lines(&mut client, command, found.len()), found, "{}: {command}", archive.display());
        }
        count += 1;
    }
    assert!(count > 0, "no folder is kept");
}

/// Writes the folder of this release, when one is made: `cargo test -p quorate --test histories -- --ignored folder_of_this`.
#[test]
#[ignore = "writes a file of the repository; once for each release"]
fn the_folder_of_this_release_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let base = super::support::free_ports(3);
    let mut node = super::started::Restarted(kept_node(folder.path(), base).spawn().unwrap());
    let is_ready =
        || super::support::try_http(base + 1, "GET /health?all HTTP/1.1", "").is_some_and(|it| it.0 == 200);
    until("it serves", is_ready);
    let mut client = Client::connect(base);
    // Enough for a snapshot, with records after it.
    let filler = "x".repeat(1000);
    for number in 0..200 {
        assert_eq!(lines(&mut client, &format!("SET filler-{} {filler}", number % 3), 1), ["+OK"]);
    }
    for command in KEPT {
        let line = &lines(&mut client, command, 1)[0];
        assert!(!line.starts_with('-'), "{command}: {line}");
        if line.starts_with('$') || line.starts_with('*') {
            client.send("PING\r\n");
            while client.line() != "+PONG" {}
        }
    }
    assert_eq!(lines(&mut client, "DEL filler-0 filler-1 filler-2", 1), [":3"]);
    signal(node.0.id(), Signal::TERM);
    until("it has stopped", || node.0.try_wait().unwrap().is_some());
    let archive = folders().join(format!("release-{}.tar.gz", RELEASES.newest));
    std::fs::create_dir_all(folders()).unwrap();
    for name in ["quorate.toml", "quorate.log", "quorate.lock"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    archived(folder.path(), &["-czf", archive.to_str().unwrap(), "."]);
}
