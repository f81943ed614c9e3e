//! A full disk: its node reports it and refuses writes, and the other nodes continue.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::assert_linearizable;
use super::bare::Bare;
use super::recorder::Recorder;
use super::required::{skip_without_rights, succeeds};
use super::support::{Client, quorate, request, until};

/// Segments are small, so that a small disk is soon full; no checkpoint makes room.
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

/// Returns a command that runs with private mounts, where a folder of the node is a disk in memory of the given size
/// in MiB. No other process sees it.
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

/// Whether this user may mount a small disk for a node. If not, says so, or fails where that is not allowed.
#[track_caller]
pub(super) fn may_mount(bare: &Bare, node: u16, disk: (&str, u32)) -> bool {
    let may = succeeds(&mut with_a_small_disk(bare, node, disk, "true"));
    if !may {
        skip_without_rights(
            "a small disk cannot be mounted: that needs unshare (package util-linux) and CAP_SYS_ADMIN",
        );
    }
    may
}

/// Starts the node on the small disk.
pub(super) const SERVES: &str = "exec \"$2\" server --config \"$3\"";

/// The folder of the log.
const LOG: (&str, u32) = ("storage", 1);

#[test]
fn a_node_with_a_full_disk_reports_it_and_the_others_continue() {
    let mut bare = Bare::new(TABLES, |config, _| config);
    if !may_mount(&bare, 3, LOG) {
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
    // The node is still running. A checkpoint may have made room for it since.
    assert!(bare.health(3).1.contains("\"disk_full\":"), "the node lives on");
    assert_linearizable(&recorder.stop());
}

/// Deleted data gives its memory back at once, though a member whose disk is full lacks much of what was written.
#[test]
fn memory_comes_back_though_a_disk_is_full() {
    const BOUNDED: &str = "[limits]\nmemory_max = 314572800\n[storage]\nsegment_bytes = 4194304\n";
    let mut bare = Bare::new(BOUNDED, |config, _| config);
    let disk = ("storage", 64);
    if !may_mount(&bare, 3, disk) {
        return;
    }
    let on_small_disk = with_a_small_disk(&bare, 3, disk, SERVES);
    bare.start(1);
    bare.start(2);
    bare.start_by(3, on_small_disk);
    bare.wait_until_ready(&[1, 2, 3]);
    let mut client = Client::connect(bare.client_port(1));
    let value = vec![b'v'; 30_000];
    let write = |client: &mut Client, number: usize| {
        client.send(request(&[b"SET", format!("key{number}").as_bytes(), &value]));
        client.line()
    };
    let mut written = 0;
    until("memory is full", || {
        (0..1000).any(|_| {
            written += 1;
            write(&mut client, written).starts_with("-OOM ")
        })
    });
    assert!(bare.health(3).1.contains("\"disk_full\":true"), "{written} values did not fill the disk");
    for number in 1..=written {
        until("it is deleted", || [":0", ":1"].contains(&client.ask(&format!("DEL key{number}")).as_str()));
    }
    until("there is room again", || write(&mut client, 0) == "+OK");
    for number in 0..500 {
        let reply = write(&mut client, number);
        assert_eq!(reply, "+OK", "{number} of {written}");
    }
}

/// Small disks in memory for the data of all three nodes; they outlive the nodes' processes.
struct Disks(Vec<PathBuf>);

impl Disks {
    /// Returns `None` if this user may not mount them.
    fn mount(bare: &Bare) -> Option<Disks> {
        let mut disks = Disks(Vec::new());
        for node in 1..=3 {
            let folder = bare.node(node).join("data");
            fs::create_dir(&folder).unwrap();
            let mut command = Command::new("mount");
            command.args(["-t", "tmpfs", "-o", "size=16m", "quorate-test"]).arg(&folder);
            if !succeeds(&mut command) {
                skip_without_rights("small disks cannot be mounted: that needs CAP_SYS_ADMIN");
                return None;
            }
            disks.0.push(folder);
        }
        Some(disks)
    }

    /// Fills a node's disk completely.
    fn fill(&self, node: u16) {
        let mut file = fs::File::create(self.0[usize::from(node) - 1].join("filler")).unwrap();
        for piece in [1 << 20, 4096] {
            while file.write_all(&vec![1; piece]).is_ok() {}
        }
    }

    fn free(&self, node: u16) {
        fs::remove_file(self.0[usize::from(node) - 1].join("filler")).unwrap();
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = Command::new("umount").arg("--lazy").arg(folder).status();
        }
    }
}

/// Every protocol that keeps records, with segments that are soon full.
const KEPT: &str = r#"
[storage]
segment_bytes = 524288
checkpoint_bytes = 1048576

[[keyspace]]
prefix = "all:"
replication = "leader-follower"
acks = "all"
durability = "fsync"
leader = 3
"#;

/// The same, with a protocol that keeps records and has no leader.
const REGISTERS: &str = r#"
[[keyspace]]
prefix = "abd:"
replication = "abd"
durability = "fsync"
"#;

fn with_data_folders(tables: &str) -> Bare {
    Bare::new(tables, |config, _| config.replace("cluster = ", "data = \"data\"\ncluster = "))
}

fn value(number: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; 4000]
}

fn set(client: &mut Client, prefix: &str, number: usize) -> String {
    client.send(request(&[b"SET", format!("{prefix}key{number}").as_bytes(), &value(number)]));
    client.line()
}

fn holds(client: &mut Client, prefix: &str, number: usize) -> bool {
    client.send(format!("GET {prefix}key{number}\r\n"));
    let answer = client.line();
    let Some(Ok(length)) = answer.strip_prefix('$').map(str::parse) else { return false };
    let found = client.bytes(length);
    client.line();
    found == value(number)
}

/// Writes through all nodes in turn until there is no more room. Returns the acknowledged keys.
fn write_until_refused(bare: &Bare, prefix: &str, from: usize) -> Vec<usize> {
    let mut clients: Vec<Client> = (1..=3).map(|node| Client::connect(bare.client_port(node))).collect();
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    for number in from.. {
        let begun = Instant::now();
        match set(&mut clients[number % 3], prefix, number).as_str() {
            "+OK" => {
                acknowledged.push(number);
                refused = 0;
            }
            answer if answer.starts_with("-NOSPACE") => {
                assert!(begun.elapsed() < Duration::from_secs(3), "after {:?}", begun.elapsed());
                refused += 1;
            }
            answer => assert!(answer.starts_with("-UNKNOWN") || answer.starts_with("-TRYAGAIN"), "{answer}"),
        }
        if refused == 6 {
            break;
        }
        assert!(number - from < 10_000, "there is room without end");
    }
    acknowledged
}

fn lines_about_room(bare: &Bare, node: u16) -> usize {
    let about = |line: &&str| line.contains("room") || line.contains("full");
    bare.log(node).lines().filter(about).count()
}

#[test]
fn when_all_disks_are_full_reads_and_deletions_continue_and_flushall_makes_room() {
    reads_and_deletions_continue(KEPT, &["", "all:"], |client, _| {
        assert_eq!(client.ask("FLUSHALL"), "+OK");
    });
}

#[test]
fn when_all_disks_are_full_registers_can_be_read_and_deleted_which_makes_room() {
    reads_and_deletions_continue(&format!("{KEPT}{REGISTERS}"), &["abd:"], |client, kept| {
        for (prefix, number) in kept {
            assert!([":0", ":1"].contains(&client.ask(&format!("DEL {prefix}key{number}")).as_str()));
        }
    });
}

/// All disks are full; `frees` deletes everything.
fn reads_and_deletions_continue(
    tables: &str,
    prefixes: &[&'static str],
    frees: impl Fn(&mut Client, &[(&str, usize)]),
) {
    let mut bare = with_data_folders(tables);
    let Some(disks) = Disks::mount(&bare) else { return };
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    let mut kept: Vec<(&str, usize)> = Vec::new();
    for prefix in prefixes {
        let mut client = Client::connect(bare.client_port(1));
        for number in 0..150 {
            until("there is room", || set(&mut client, prefix, number) == "+OK");
            kept.push((*prefix, number));
        }
    }
    (1..=3).for_each(|node| disks.fill(node));
    for prefix in prefixes {
        let more = write_until_refused(&bare, prefix, 1000);
        kept.extend(more.into_iter().map(|number| (*prefix, number)));
    }
    until("all say so", || (1..=3).all(|node| bare.health(node).1.contains("\"disk_full\":true")));

    let all_is_there = |bare: &Bare, step: usize| {
        for node in 1..=3 {
            let mut client = Client::connect(bare.client_port(node));
            for (prefix, number) in kept.iter().skip(usize::from(node)).step_by(step) {
                until("it is read", || holds(&mut client, prefix, *number));
            }
        }
    };
    all_is_there(&bare, 7);
    // A killed node restarts without any room.
    bare.kill(2);
    bare.start(2);
    bare.wait_until_ready(&[1, 2, 3]);
    all_is_there(&bare, 1);
    bare.kill_all();
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    all_is_there(&bare, 5);

    for (node, prefix) in (1..=3).zip(prefixes.iter().cycle()) {
        let mut client = Client::connect(bare.client_port(node));
        until("what deletes is taken", || client.ask(&format!("DEL {prefix}key{node}")) == ":1");
        let begun = Instant::now();
        assert_eq!(client.ask(&format!("DEL {prefix}key{}", node + 10)), ":1");
        assert!(begun.elapsed() < Duration::from_secs(3), "after {:?}", begun.elapsed());
        assert!(client.ask(&format!("SET {prefix}more {}", "v".repeat(100))).starts_with("-NOSPACE"));
    }
    let mut client = Client::connect(bare.client_port(2));
    frees(&mut client, &kept);
    for node in 1..=3 {
        let mut client = Client::connect(bare.client_port(node));
        for prefix in prefixes {
            until("there is room again", || set(&mut client, prefix, 7) == "+OK");
            assert!(holds(&mut client, prefix, 7) && !holds(&mut client, prefix, 8));
        }
    }
    (1..=3).for_each(|node| disks.free(node));
    until("none is full", || (1..=3).all(|node| bare.health(node).1.contains("\"disk_full\":false")));
    for node in 1..=3 {
        let lines = lines_about_room(&bare, node);
        assert!(lines <= 12, "node {node} has {lines} lines about it");
    }
}

#[test]
fn while_one_disk_is_full_writes_through_every_node_continue() {
    const PREFIXES: [&str; 3] = ["", "all:", "abd:"];
    let mut bare = with_data_folders(&format!("{KEPT}{REGISTERS}"));
    let Some(disks) = Disks::mount(&bare) else { return };
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    disks.fill(3);
    let mut filler = Client::connect(bare.client_port(1));
    until("node 3 says so", || {
        PREFIXES.iter().for_each(|prefix| (0..5).for_each(|number| drop(set(&mut filler, prefix, number))));
        bare.health(3).1.contains("\"disk_full\":true")
    });
    for node in 1..=3 {
        let mut client = Client::connect(bare.client_port(node));
        for prefix in PREFIXES {
            until("another one leads", || set(&mut client, prefix, 1) == "+OK");
        }
    }
    let (mut written, mut slowest) = (0, Duration::ZERO);
    // For some seconds, and less than the other disks hold.
    while written < 540 {
        for node in 1..=3 {
            let mut client = Client::connect(bare.client_port(node));
            for prefix in PREFIXES {
                let begun = Instant::now();
                assert_eq!(set(&mut client, prefix, written), "+OK", "{prefix} through node {node}");
                assert!(holds(&mut client, prefix, written));
                slowest = slowest.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(5));
                written += 1;
            }
        }
    }
    println!("{written} writes, the slowest with its read {slowest:?}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    let lines = lines_about_room(&bare, 3);
    assert!(lines <= 4, "{lines} lines about it:\n{}", bare.log(3));
    disks.free(3);
    until("it has room", || bare.health(3).1.contains("\"disk_full\":false"));
    bare.wait_until_ready(&[1, 2, 3]);
    bare.kill(1);
    let mut client = Client::connect(bare.client_port(3));
    for number in 0..written {
        until("it has caught up", || holds(&mut client, PREFIXES[number % 3], number));
    }
}
