//! `quorate cluster`: real nodes, started and stopped together, and otherwise independent of each other.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;

use rustix::process::Signal;

use super::support::{
    Cluster, cluster_command, free_ports, is_running, quorate, request, signal, until, wait,
};

/// Starts a cluster that must be refused, and returns the message.
fn refusal(folder: &std::path::Path, base: u16, nodes: u16, more: &[&str]) -> String {
    let output = cluster_command(folder, base, nodes).args(more).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    error
}

#[test]
fn a_cluster_starts_serves_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(9);
    let (mut cluster, lines) = Cluster::start(folder.path(), base, 3);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[2].starts_with("node 3: "), "{lines:?}");
    assert!(cluster.line().contains(&format!("redis-cli -p {base}")));
    assert!(cluster.line().ends_with("consensus, durability fsync, reads linearizable"));

    let processes: Vec<u32> = (1..=3).map(|id| cluster.process(id)).collect();
    for id in 1..=3 {
        assert_eq!(cluster.client(id).ask("PING"), "+PONG");
        assert_eq!(cluster.health(id).0, 200);
        assert!(cluster.node(id).join("quorate.log").exists());
    }
    assert_eq!(cluster.stop(Signal::TERM), 0);
    for (id, process) in (1..).zip(processes) {
        assert!(!is_running(process));
        assert!(!cluster.node(id).join("quorate.pid").exists());
    }
}

#[test]
fn the_same_folder_starts_the_same_cluster_again_with_all_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(3);
    let config = folder.path().join("node-1/quorate.toml");
    let mut made = None;
    for start in 1..=2 {
        let (mut cluster, _) = Cluster::start(folder.path(), base, 1);
        assert_eq!(cluster.client(1).ask("INCR starts"), format!(":{start}"));
        assert_eq!(cluster.stop(Signal::INT), 0);
        let text = fs::read_to_string(&config).unwrap();
        assert_eq!(made.get_or_insert(text.clone()), &text);
        let log = fs::read_to_string(cluster.node(1).join("quorate.log")).unwrap();
        assert!(!log.contains("cut off"), "an orderly end leaves no torn tail: {log}");
    }
}

/// The log's `manifest` records up to where the log is durable (docs/design/storage.md): a stopped node knows
/// everything that it wrote.
#[test]
fn stopped_nodes_have_recorded_that_their_logs_are_durable() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, _) = Cluster::start(folder.path(), free_ports(9), 3);
    for number in 0..100 {
        let (key, id) = (format!("k{number}"), number % 3 + 1);
        assert_eq!(taken(&cluster, id, &request(&[b"SET", key.as_bytes(), b"v"])), "+OK");
    }
    assert_eq!(cluster.stop(Signal::TERM), 0);
    for node in 1..=3 {
        let storage = cluster.node(node).join("storage");
        let mut disk = server::disk::FolderDisk::open(&storage).unwrap();
        let manifest = fs::read(storage.join("manifest")).unwrap();
        let number = |at: usize| u64::from_le_bytes(manifest[at..at + 8].try_into().unwrap());
        let identity = storage::Identity { cluster: number(16), log: number(24), node, worker: 0 };
        let options = storage::Options::new(identity);
        let (_, replayed) = storage::open(&mut disk, options).unwrap().replay(&mut disk, |_| {}).unwrap();
        let (start, durable) = (number(64), number(72));
        assert!(replayed.entries > 100, "node {node} took part");
        assert_eq!((start + replayed.bytes, replayed.torn), (durable, None), "node {node}");
    }
}

#[test]
fn a_killed_node_is_reported_once_and_can_be_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, _) = Cluster::start(folder.path(), free_ports(9), 3);
    cluster.line();
    cluster.line();
    let killed = cluster.process(3);
    signal(killed, Signal::KILL);
    let printed = cluster.line();
    assert!(printed.starts_with("node 3 ended (killed by signal 9)"), "{printed}");
    assert!(is_running(cluster.process(1)) && is_running(cluster.process(2)));
    assert_eq!(cluster.client(1).ask("PING"), "+PONG");

    let config = cluster.node(3).join("quorate.toml");
    let mut again =
        quorate().arg("server").arg("--config").arg(config).stderr(Stdio::null()).spawn().unwrap();
    until("node 3 runs again", || cluster.process(3) == again.id());
    until("node 3 is ready again", || cluster.health(3).0 == 200);

    // It is a node of this cluster, so it is stopped with the cluster, although another process has started it.
    assert_eq!(cluster.stop(Signal::TERM), 0);
    assert_eq!(wait(&mut again), 0);
}

#[test]
fn nodes_end_when_the_cluster_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, _) = Cluster::start(folder.path(), free_ports(6), 2);
    let processes = [cluster.process(1), cluster.process(2)];
    signal(cluster.own_process(), Signal::KILL);
    cluster.stop(Signal::KILL);
    until("both nodes end", || !processes.into_iter().any(is_running));
}

#[test]
fn a_second_start_is_refused_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let base = free_ports(6);
    let (cluster, _) = Cluster::start(folder.path(), base, 2);

    let output = refusal(folder.path(), base, 2, &[]);
    assert!(output.contains(&format!("already running (process {})", cluster.own_process())), "{output}");
    let output = refusal(other.path(), base, 2, &[]);
    assert!(output.contains(&format!("port {base}, the client port of node 1, is in use")), "{output}");
    assert_eq!(cluster.client(2).ask("PING"), "+PONG", "the first goes on");
}

#[test]
fn a_port_in_use_is_named_with_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(9);
    let _holder = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 7)).unwrap();
    let output = refusal(folder.path(), base, 3, &[]);
    assert!(output.contains(&format!("port {}, the peer port of node 2, is in use", base + 7)), "{output}");
}

#[test]
fn a_folder_of_another_cluster_is_refused_and_the_difference_named() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(9);
    let (mut cluster, _) = Cluster::start(folder.path(), base, 1);
    cluster.stop(Signal::TERM);

    let output = refusal(folder.path(), base, 3, &[]);
    assert!(output.contains("--nodes is 1 there, not 3"), "{output}");
    let output = refusal(folder.path(), base + 1, 1, &[]);
    assert!(output.contains(&format!("--client-port is {base} there, not {}", base + 1)), "{output}");
    let keyspace = ["--keyspace", "prefix=cache: replication=leader-follower acks=none"];
    let output = refusal(folder.path(), base, 1, &keyspace);
    assert!(output.contains("--keyspace cache: is not there"), "{output}");
}

/// Returns a node's reply to a write. On a busy machine the leader may change in between: a refused request, which was
/// not executed, is repeated.
fn taken(cluster: &Cluster, id: u16, request: &[u8]) -> String {
    let mut printed = String::new();
    until("the write is not refused", || {
        let mut client = cluster.client(id);
        client.send(request);
        printed = client.line();
        !(printed.starts_with('-') && printed.ends_with("nothing was done, try again"))
    });
    printed
}

#[test]
fn writes_at_one_node_are_served_by_all_nodes_and_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, _) = Cluster::start(folder.path(), free_ports(9), 3);
    // Long enough to travel between nodes in many pieces.
    let value = vec![b'v'; 5_000_000];
    let large = request(&[b"SET", b"large", &value]);
    assert_eq!(taken(&cluster, 2, &large), "+OK");
    for number in 0..100 {
        let increment = request(&[b"INCR", b"counter"]);
        assert_eq!(taken(&cluster, number % 3 + 1, &increment), format!(":{}", number + 1));
    }
    for id in 1..=3 {
        assert_eq!(cluster.client(id).ask("STRLEN large"), ":5000000");
    }

    signal(cluster.process(1), Signal::KILL);
    let config = cluster.node(1).join("quorate.toml");
    until("it has ended", || !is_running(cluster.process(1)));
    let mut again =
        quorate().arg("server").arg("--config").arg(config).stderr(Stdio::null()).spawn().unwrap();
    until("node 1 is ready again", || cluster.process(1) == again.id() && cluster.health(1).0 == 200);
    let increment = request(&[b"INCR", b"counter"]);
    assert_eq!(taken(&cluster, 1, &increment), ":101", "nothing acknowledged is lost");
    assert_eq!(cluster.client(3).ask("STRLEN large"), ":5000000");
    signal(again.id(), Signal::TERM);
    assert_eq!(wait(&mut again), 0);
}

#[test]
fn a_cluster_has_the_name_that_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let (named, other) = (folder.path().join("one"), folder.path().join("shop"));
    for (path, name) in [(&named, Some("store")), (&other, None)] {
        let base = free_ports(3);
        let mut command = cluster_command(path, base, 1);
        command.args(name.map(|name| ["--name", name]).into_iter().flatten());
        let (mut cluster, _) = Cluster::start_by(command, path, base, 1);
        let file = std::fs::read_to_string(cluster.node(1).join("quorate.toml")).unwrap();
        let begin = name.map_or("cluster = \"shop-".to_owned(), |name| format!("cluster = \"{name}\""));
        assert!(file.contains(&begin), "{file}");
        cluster.stop(Signal::TERM);
    }
    let mut again = std::process::Command::new(env!("CARGO_BIN_EXE_quorate"));
    let output = again.args(["cluster", "--name", "another", "--dir"]).arg(&named).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("holds the cluster 'store', not 'another'"),
        "{error}"
    );
}
