//! Values on the disk (`storage = "disk"`): more of them than fit into the cache, and what remains of them when
//! processes are killed, after a node was down, and when there is no room.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bare::Bare;
use super::disk::{SERVES, may_mount, with_a_small_disk};
use super::required::{is_installed, succeeds};
use super::support::{Client, request, until};

/// Little memory for values and for the log, so that there is much to read, write and copy.
const TABLES: &str = r#"
[storage]
segment_bytes = 1048576
checkpoint_bytes = 4194304
cache_bytes = 1048576

[[keyspace]]
prefix = ""
storage = "disk"
backlog_bytes = 1048576
durability = "fsync"
"#;

fn tables(replication: &str) -> String {
    format!("{TABLES}replication = \"{replication}\"\n\n[values]\n")
}

const VALUE_BYTES: usize = 10_000;

/// Returns a unique value.
fn value(number: usize) -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| ((at * (number + 7) + at / 251 + number) % 256) as u8).collect()
}

fn set(client: &mut Client, number: usize) {
    let (key, value) = (format!("key{number}"), value(number));
    until("it is written", || {
        client.send(request(&[b"SET", key.as_bytes(), &value]));
        client.line() == "+OK"
    });
}

/// Returns a key's value; `None` while it cannot be read.
fn get(client: &mut Client, number: usize) -> Option<Vec<u8>> {
    client.send(request(&[b"GET", format!("key{number}").as_bytes()]));
    let length = client.line().strip_prefix('$')?.parse().ok()?;
    let value = client.bytes(length);
    client.line();
    Some(value)
}

fn assert_all_there(client: &mut Client, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let mut found = None;
        until("it is read", || {
            found = get(client, number);
            found.is_some()
        });
        assert!(found == Some(value(number)), "key{number} holds something else");
    }
}

/// Returns a number from `INFO`.
fn info(bare: &Bare, node: u16, field: &str) -> u64 {
    let mut client = Client::connect(bare.client_port(node));
    client.send("INFO everything\r\n");
    let length = client.line().trim_start_matches('$').parse().unwrap();
    let text = String::from_utf8(client.bytes(length)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("{field} is missing in {text}")).parse().unwrap()
}

fn ten_times_the_cache_survives_a_kill_of_all_processes(replication: &str) {
    const COUNT: usize = 1200;
    let mut bare = Bare::new(&tables(replication), |config, _| config);
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    let mut client = Client::connect(bare.client_port(1));
    (0..COUNT).for_each(|number| set(&mut client, number));
    assert_all_there(&mut Client::connect(bare.client_port(2)), 0..COUNT);
    let asked = |bare: &Bare, field| (1..=3).map(|node| info(bare, node, field)).sum::<u64>();
    assert!(asked(&bare, "values_cache_misses") > COUNT as u64 / 2, "most are on the disk only");
    let hits = asked(&bare, "values_cache_hits");
    (0..10).for_each(|_| assert!(get(&mut client, 7) == Some(value(7))));
    assert!(asked(&bare, "values_cache_hits") >= hits + 9, "what was just read is in memory");
    assert!((1..=3).all(|node| info(&bare, node, "values_cache_memory") <= 1 << 20));
    // Some are overwritten: their old values are no longer needed.
    (0..100).for_each(|number| set(&mut client, number));

    bare.kill_all();
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    assert_all_there(&mut Client::connect(bare.client_port(3)), 0..COUNT);
    until("all replicas refer to all values", || {
        (1..=3).all(|node| info(&bare, node, "values_on_disk") == COUNT as u64)
    });
}

fn a_returning_node_gets_what_it_lacks(replication: &str) {
    const COUNT: usize = 600;
    let mut bare = Bare::new(&tables(replication), |config, _| config);
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    let mut client = Client::connect(bare.client_port(1));
    set(&mut client, 0);
    bare.kill(3);
    (1..COUNT).for_each(|number| set(&mut client, number));
    bare.start(3);
    bare.wait_until_ready(&[1, 2, 3]);
    until("it has them all", || info(&bare, 3, "values_on_disk") == COUNT as u64);
    // It and one other node are a majority.
    bare.kill(1);
    assert_all_there(&mut Client::connect(bare.client_port(3)), 0..COUNT);
}

/// The fragments of all values are ten times the cache too.
#[test]
fn consensus_keeps_fragments_of_ten_times_the_cache() {
    const COUNT: usize = 1200;
    let coded = tables("consensus").replace(
        "replication = \"consensus\"",
        "replication = \"consensus\"\ncoding = 2\ncoding_threshold = 4096",
    );
    let mut bare = Bare::new(&coded, |config, _| config);
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    let mut client = Client::connect(bare.client_port(1));
    (0..COUNT).for_each(|number| set(&mut client, number));
    bare.kill_all();
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    assert_all_there(&mut Client::connect(bare.client_port(3)), 0..COUNT);
    assert!(info(&bare, 3, "values_cache_misses") > COUNT as u64 / 2, "most pieces are on the disk only");
    assert!((1..=3).all(|node| info(&bare, node, "values_on_disk") == 0), "no value is there as a whole");
    bare.kill(3);
    let mut client = Client::connect(bare.client_port(1));
    (0..100).for_each(|number| set(&mut client, number));
    bare.start(3);
    bare.wait_until_ready(&[1, 2, 3]);
    until("it has rebuilt what it lacks", || {
        info(&bare, 3, "coded_fragments_rebuilt") == 100 && info(&bare, 3, "coded_fragments_lacking") == 0
    });
    bare.kill(1);
    assert_all_there(&mut Client::connect(bare.client_port(3)), 0..COUNT);
}

/// The files below a folder in which the store keeps values separately from their names.
fn blobs(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| if path.is_dir() { blobs(&path) } else { vec![path] };
    paths.flat_map(of).filter(|path| path.to_string_lossy().contains("blob")).collect()
}

/// When a disk returns other bytes than were written, every read still succeeds, and the node repairs its copies: those that
/// are read or, if it scrubs, all of them.
fn damaged_values_are_repaired_from_another_replica(replication: &str, scrub_days: f64) {
    const COUNT: usize = 2400;
    let any = match replication {
        "leader-follower" => {
            tables(replication).replace("durability = \"fsync\"", "durability = \"fsync\"\nreads = \"any\"")
        }
        _ => tables(replication),
    };
    let mut bare = Bare::new(&format!("{any}scrub_days = {scrub_days}\n"), |config, _| config);
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    let mut client = Client::connect(bare.client_port(1));
    (0..COUNT).for_each(|number| set(&mut client, number));
    until("node 3 has them all", || info(&bare, 3, "values_on_disk") == COUNT as u64);
    bare.kill(3);
    // One byte of nearly every value that has left the store's memory.
    let blobs = blobs(&bare.node(3).join("values"));
    let mut changed = 0;
    for blob in &blobs {
        let mut bytes = fs::read(blob).unwrap();
        for at in (VALUE_BYTES / 2..bytes.len()).step_by(VALUE_BYTES) {
            bytes[at] ^= 1;
            changed += 1;
        }
        fs::write(blob, bytes).unwrap();
    }
    assert!(changed > COUNT / 4, "{changed} bytes of {blobs:?}");
    bare.start(3);
    bare.wait_until_ready(&[1, 2, 3]);
    let passes = |bare: &Bare, count| {
        until("all are scrubbed", || info(bare, 3, "values_scrub_passes") >= count);
    };
    match scrub_days > 0.0 {
        true => passes(&bare, 1),
        false => assert_all_there(&mut Client::connect(bare.client_port(3)), 0..COUNT),
    }
    let damaged = info(&bare, 3, "values_damaged");
    assert!(damaged > COUNT as u64 / 8, "{damaged} damaged values of {changed} changed bytes");
    assert_eq!(info(&bare, 3, "values_repaired"), damaged);
    assert!(bare.log(3).contains("is whole again: node "), "it is logged");
    let status = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["status", "--addr", &format!("127.0.0.1:{}", bare.client_port(1))])
        .output()
        .unwrap();
    let (code, printed) = (status.status.code(), String::from_utf8_lossy(&status.stdout).into_owned());
    let expected =
        format!("node 3: its disk has damaged {damaged} of its values since its start; {damaged} were");
    assert!(code == Some(1) && printed.contains(&expected), "{code:?}: {printed}");
    until("they are put again", || info(&bare, 3, "values_pending_memory") == 0);
    bare.kill(3);
    bare.start(3);
    bare.wait_until_ready(&[1, 2, 3]);
    if scrub_days > 0.0 {
        passes(&bare, 1);
    }
    assert_all_there(&mut Client::connect(bare.client_port(3)), 0..COUNT);
    assert_eq!(info(&bare, 3, "values_damaged"), 0, "what was repaired is whole");
}

/// The folder of the values.
const VALUES: (&str, u32) = ("values", 24);

#[test]
fn a_node_without_room_for_values_reports_it_and_continues_when_there_is_room() {
    let mut bare = Bare::new(&tables("consensus"), |config, _| config);
    let mut nsenter = Command::new("nsenter");
    if !is_installed("nsenter (package util-linux)", nsenter.arg("--version")) || !may_mount(&bare, 3, VALUES)
    {
        return;
    }
    bare.start(1);
    bare.start(2);
    let on_small_disk = with_a_small_disk(&bare, 3, VALUES, SERVES);
    bare.start_by(3, on_small_disk);
    bare.wait_until_ready(&[1, 2, 3]);
    let mut client = Client::connect(bare.client_port(1));
    let mut count = 0;
    until("node 3 says that there is no room", || {
        (count..count + 50).for_each(|number| set(&mut client, number));
        count += 50;
        bare.health(3).1.contains("\"disk_full\":true")
    });
    let expected = "the disk is full: writes are refused until there is room for values again";
    until("it is logged", || bare.log(3).contains(expected));
    (count..count + 50).for_each(|number| set(&mut client, number));
    count += 50;
    let values = bare.node(3).join("values");
    let mut enlarge = Command::new("nsenter");
    enlarge.args(["--target", &bare.process(3).to_string(), "--mount", "mount", "-o", "remount,size=512m"]);
    assert!(succeeds(enlarge.arg(values)), "the disk is made larger");
    until("node 3 has room and all values", || {
        bare.health(3).1.contains("\"disk_full\":false") && info(&bare, 3, "values_on_disk") == count as u64
    });
    bare.kill(1);
    assert_all_there(&mut Client::connect(bare.client_port(3)), 0..count);
}

#[test]
fn consensus_keeps_ten_times_the_cache() {
    ten_times_the_cache_survives_a_kill_of_all_processes("consensus");
}

#[test]
fn leader_follower_keeps_ten_times_the_cache() {
    ten_times_the_cache_survives_a_kill_of_all_processes("leader-follower");
}

#[test]
fn consensus_brings_a_returning_node_up_to_date() {
    a_returning_node_gets_what_it_lacks("consensus");
}

#[test]
fn leader_follower_brings_a_returning_node_up_to_date() {
    a_returning_node_gets_what_it_lacks("leader-follower");
}

#[test]
fn leader_follower_repairs_damaged_values_from_another_replica() {
    damaged_values_are_repaired_from_another_replica("leader-follower", 0.0);
}

#[test]
fn consensus_finds_damaged_values_that_no_client_reads() {
    damaged_values_are_repaired_from_another_replica("consensus", 0.00005);
}
