//! A disk without room: its node says so and refuses writes, and the others go on.

use std::fs;
use std::process::{Command, Stdio};

use super::assert_linearizable;
use super::bare::Bare;
use super::recorder::Recorder;
use super::support::{Client, quorate, until};

/// Segments are small, so that a small disk is full soon; no checkpoint makes room again.
const TABLES: &str = r#"
[storage]
segment_bytes = 65536
checkpoint_bytes = 1073741824

[[keyspace]]
prefix = "all:"
replication = "leader-follower"
acks = "all"
durability = "fsync"
leader = 3
"#;

/// A command that runs in mounts of its own, with a disk in memory, of so many mebibytes, as a folder of the node that no
/// other process sees.
pub(super) fn with_a_small_disk(
    bare: &Bare,
    node: u16,
    (folder, mebibytes): (&str, u32),
    then: &str,
) -> Command {
    let folder = bare.node(node).join(folder);
    fs::create_dir_all(&folder).unwrap();
    let script = format!("mount -t tmpfs -o size={mebibytes}m quorate-test \"$1\" && {then}");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(folder);
    command.arg(quorate().get_program()).arg(bare.node(node).join("quorate.toml"));
    command
}

/// Serves from the folder that has become small.
pub(super) const SERVES: &str = "exec \"$2\" server --config \"$3\"";

/// Where its log is.
const LOG: (&str, u32) = ("storage", 1);

#[test]
fn a_node_without_room_says_so_and_the_others_go_on() {
    let mut bare = Bare::new(TABLES, |config, _| config);
    let mut probe = with_a_small_disk(&bare, 3, LOG, "true");
    probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        println!("skipped: this user may not mount a small disk for the node");
        return;
    }
    bare.start(1);
    bare.start(2);
    let on_small_disk = with_a_small_disk(&bare, 3, LOG, SERVES);
    bare.start_by(3, on_small_disk);
    bare.wait_until_ready(&[1, 2, 3]);

    let ports = [bare.client_port(1), bare.client_port(2)];
    let recorder = Recorder::start(&ports, 4, &["a", "b", "all:a", "all:b"]);
    recorder.wait_for(100);
    let mut filler = Client::connect(bare.client_port(1));
    let value = "v".repeat(10_000);
    until("node 3 says that there is no room", || {
        filler.ask(&format!("SET fill {value}"));
        bare.health(3).1.contains("\"disk_full\":true")
    });
    until("it is logged", || {
        bare.log(3).contains("the disk is full: writes are refused until there is room again")
    });
    recorder.wait_for(300);
    until("the others write without it", || {
        ["fill", "all:fill"].iter().all(|key| filler.ask(&format!("SET {key} v")) == "+OK")
    });
    recorder.wait_for(300);
    assert!(bare.health(3).1.contains("\"disk_full\":true"), "the node lives on, and tries in vain");
    assert_linearizable(&recorder.stop());
}
