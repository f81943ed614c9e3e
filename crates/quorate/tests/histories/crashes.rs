//! All nodes are killed at once: writes acknowledged under `os` and `fsync` are in their logs.

use std::fs;
use std::path::Path;

use server::disk::FolderDisk;
use storage::{Identity, Options};

use super::assert_linearizable;
use super::started::{Restarted, Started};
use super::support::until;

/// Keyspaces that survive a kill of all processes. The default one is of consensus, with `fsync`.
const KEYSPACES: [&str; 3] = [
    "prefix=os: durability=os",
    "prefix=all: replication=leader-follower acks=all durability=fsync",
    "prefix=most: replication=leader-follower acks=majority durability=fsync",
];

const KEYS: [&str; 8] = ["a", "b", "os:a", "os:b", "all:a", "all:b", "most:a", "most:b"];

/// The same for registers.
const REGISTERS: [&str; 4] = [
    "prefix=abd: replication=abd durability=fsync",
    "prefix=abd-os: replication=abd durability=os",
    "prefix=lock: replication=blocking durability=fsync",
    "prefix=lock-os: replication=blocking durability=os",
];

const REGISTERS_KEYS: [&str; 8] =
    ["abd:a", "abd:b", "abd-os:a", "abd-os:b", "lock:a", "lock:b", "lock-os:a", "lock-os:b"];

/// Kills all nodes while clients write, damages their folders with `hurt`, restarts them, and checks that the
/// clients' histories are still linearizable.
fn all_die(keyspaces: &[&str], keys: &[&str], hurt: impl Fn(&Path)) -> Started {
    let started = Started::new(3, keyspaces);
    let recorder = started.record(6, keys);
    let mut restarted: Vec<Restarted> = Vec::new();
    for _ in 0..2 {
        recorder.wait_for(400);
        started.kill_all(&[1, 2, 3]);
        (1..=3).for_each(|node| hurt(&started.cluster.node(node)));
        restarted.extend((1..=3).map(|node| started.spawn(node)));
        until("all are ready again", || (1..=3).all(|node| started.is_ready(node)));
    }
    recorder.wait_for(400);
    assert_linearizable(&recorder.stop());
    started
}

#[test]
fn nothing_acknowledged_is_lost_when_all_nodes_are_killed_at_once() {
    all_die(&KEYSPACES, &KEYS, |_| {});
}

#[test]
fn nothing_acknowledged_is_lost_when_a_power_failure_tears_unsynced_data() {
    let started = all_die(&KEYSPACES, &KEYS, |node| tear(&node.join("storage")));
    for node in 1..=3 {
        let cut_off = || started.log(node).matches("the end of the log was cut off").count();
        until("both starts are logged", || cut_off() >= 2);
        assert_eq!(cut_off(), 2);
    }
}

#[test]
fn registers_keep_acknowledged_writes_when_all_nodes_are_killed_at_once() {
    let started = all_die(&REGISTERS, &REGISTERS_KEYS, |_| {});
    for node in 1..=3 {
        let is_resumed = |line: &&str| line.contains("'abd:'") && line.contains("that it had recorded");
        let resumed = || started.log(node).lines().filter(is_resumed).count();
        until("both starts are logged", || resumed() >= 2);
        assert_eq!(resumed(), 2, "it copies nothing from others");
    }
}

#[test]
fn registers_keep_acknowledged_writes_when_a_power_failure_tears_unsynced_data() {
    all_die(&REGISTERS, &REGISTERS_KEYS, |node| tear(&node.join("storage")));
}

/// Leaves a node's log as a power failure does in the middle of a write that was never acknowledged: after everything
/// else, adds a batch of which one sector was not written. Acknowledged records were synced, so none of them is cut.
fn tear(folder: &Path) {
    let mut disk = FolderDisk::open(folder).unwrap();
    let options = Options::new(identity(&fs::read(folder.join("manifest")).unwrap()));
    let mut log = storage::open(&mut disk, options).unwrap().replay(&mut disk, |_| {}).unwrap().0;
    const MARK: [u8; 4096] = [0xa7; 4096];
    log.append(1, 0, &MARK);
    log.write(&mut disk).unwrap();
    let segments = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        segments.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("segment-")).collect();
    segments.sort();
    for segment in segments.into_iter().rev() {
        let mut bytes = fs::read(&segment).unwrap();
        // 480 bytes of each sector belong to the log.
        let mut sectors = bytes.chunks_mut(512);
        let Some(lacking) = sectors.rfind(|sector| sector.starts_with(&MARK[..480])) else { continue };
        lacking.fill(0);
        fs::write(&segment, bytes).unwrap();
        return;
    }
    panic!("what was written is in no segment of {}", folder.display());
}

/// Returns the log's identity: see docs/design/storage.md for the first bytes of a manifest.
fn identity(manifest: &[u8]) -> Identity {
    let number = |at: usize| u64::from_le_bytes(manifest[at..at + 8].try_into().unwrap());
    let short = |at: usize| u16::from_le_bytes(manifest[at..at + 2].try_into().unwrap());
    Identity { cluster: number(16), log: number(24), node: short(32), worker: short(34) }
}
