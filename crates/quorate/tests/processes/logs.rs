//! If standard error cannot be written, lines are lost, and neither the node nor its clients are affected.

use std::fs::{self, OpenOptions};
use std::io::{PipeWriter, Write, pipe};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::Signal;

use super::support::{
    Client, Cluster, configuration, free_ports, is_running, quorate, signal, try_http, until, wait,
};

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a node with this standard error, makes it log many lines, and stops it.
fn lives_with(log: Stdio, lost_at_least: u64) {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(3);
    let file = folder.path().join("quorate.toml");
    fs::write(&file, configuration(base, 1, "", "")).unwrap();
    let mut command: Command = quorate();
    command.arg("server").arg("--config").arg(&file).stdout(Stdio::null()).stderr(log);
    let mut node = Running(command.spawn().unwrap());
    drop(command);
    let health = || try_http(base + 1, "GET /health HTTP/1.1", "");
    until("the node is ready", || health().is_some_and(|(status, _)| status == 200));
    let mut client = Client::connect(base);
    for round in 0..20 {
        assert_eq!(client.ask(&format!("KEYSPACE CREATE k{round}: replication=leader-follower")), "+OK");
        assert_eq!(client.ask(&format!("SET k{round}:x v")), "+OK");
    }
    assert!(is_running(node.0.id()));
    let (_, metrics) = try_http(base + 1, "GET /metrics HTTP/1.1", "").unwrap();
    let lost = metrics.lines().find_map(|line| line.strip_prefix("quorate_log_lines_lost_total "));
    let lost: u64 = lost.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
    assert!(lost >= lost_at_least, "{lost} lines were lost");
    signal(node.0.id(), Signal::TERM);
    assert_eq!(wait(&mut node.0), 0);
}

#[test]
fn a_log_on_a_full_disk_does_not_end_the_node() {
    lives_with(OpenOptions::new().write(true).open("/dev/full").unwrap().into(), 3);
}

#[test]
fn a_log_whose_reader_has_gone_does_not_end_the_node() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    lives_with(writer.into(), 3);
}

#[test]
fn an_unread_log_does_not_block_the_node() {
    let (reader, writer) = pipe().unwrap();
    fill(writer.try_clone().unwrap());
    lives_with(writer.into(), 0);
    drop(reader);
}

/// Fills a pipe, and blocks in a further write until the pipe has no reader.
fn fill(mut writer: PipeWriter) {
    let (filled, is_full) = std::sync::mpsc::channel();
    thread::spawn(move || {
        writer.write_all(&[b'x'; 4096]).unwrap();
        filled.send(()).unwrap();
        let _ = writer.write_all(&vec![b'x'; 4 << 20]);
    });
    is_full.recv().unwrap();
}

#[test]
fn a_failed_start_that_cannot_be_reported_has_its_exit_code() {
    for log in [None, Some("/dev/full")] {
        let (reader, closed) = pipe().unwrap();
        drop(reader);
        let log = log.map_or(closed.into(), |path| OpenOptions::new().write(true).open(path).unwrap().into());
        let mut command = quorate();
        command.arg("server").arg("--config").arg("/nowhere/quorate.toml").stderr::<Stdio>(log);
        assert_eq!(wait(&mut command.spawn().unwrap()), 1);
    }
}

#[test]
fn the_logs_of_a_cluster_are_rotated_when_they_are_long() {
    let folder = tempfile::tempdir().unwrap();
    let (mut cluster, _) = Cluster::start(folder.path(), free_ports(3), 1);
    cluster.stop(Signal::TERM);
    let log = folder.path().join("node-1/quorate.log");
    OpenOptions::new().write(true).open(&log).unwrap().set_len(17 << 20).unwrap();
    let (mut cluster, _) = Cluster::start_again(folder.path(), 0, 0);
    until("the log is short", || fs::metadata(&log).unwrap().len() < 1 << 20);
    assert_eq!(fs::metadata(folder.path().join("node-1/quorate.log.old")).unwrap().len() >> 20, 17);
    cluster.stop(Signal::TERM);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("node 1 stopped"), "{text}");
}
