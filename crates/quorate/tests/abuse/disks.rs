//! Bytes and files of a node's folder are changed and removed while it is stopped. It then starts with everything
//! that it acknowledged, or reports the damage and does not start. The node was stopped in an orderly way: after a
//! `kill -9`, damage at the end of the log looks like an interrupted write (docs/design/storage.md), and other nodes
//! have what is missing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bounded::{Cluster, rounds};
use crate::kept::Kept;
use crate::random::Random;
use crate::support::{connect, request, try_http, until};

const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// Returns the files of a folder and its subfolders, always in the same order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

/// Changes a bit, truncates a file, or removes it. Returns a description.
fn damage(storage: &Path, random: &mut Random) -> String {
    let files: Vec<PathBuf> =
        files(storage).into_iter().filter(|file| !fs::read(file).unwrap().is_empty()).collect();
    let file = random.pick(&files);
    let mut bytes = fs::read(file).unwrap();
    // Most of a segment is empty: the data is at its beginning.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    let at = random.below(written);
    let what = match random.below(5) {
        0 => {
            fs::remove_file(file).unwrap();
            "removed".to_owned()
        }
        1 => {
            bytes.truncate(at);
            fs::write(file, &bytes).unwrap();
            format!("cut at {at}")
        }
        _ => {
            bytes[at] ^= 1 << random.below(8);
            fs::write(file, &bytes).unwrap();
            format!("changed at {at}")
        }
    };
    format!("{} {what} of {written}", file.file_name().unwrap().to_string_lossy())
}

#[test]
fn a_damaged_folder_is_refused_or_holds_everything() {
    let mut cluster = Cluster::start(1, "[storage]\nsegment_bytes = 65536\ncheckpoint_bytes = 65536\n");
    let kept = Kept::write(&cluster, 1, 3000);
    cluster.stop(1);
    let (folder, whole) = (cluster.folder(1), cluster.folder(2));
    copy(&folder.join("storage"), &whole);
    let mut random = Random::new(11);
    let (mut served, mut refused) = (0, 0);
    for _ in 0..rounds(15, 300) {
        fs::remove_dir_all(folder.join("storage")).unwrap();
        copy(&whole, &folder.join("storage"));
        let what = damage(&folder.join("storage"), &mut random);
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.arg("server").arg("--config").arg(folder.join("quorate.toml"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status.code());
            }
            let health = try_http(cluster.http_port(1), "GET /health?all HTTP/1.1", "");
            if health.is_some_and(|(status, _)| status == 200) {
                break None;
            }
            assert!(begun.elapsed() < STARTS_WITHIN, "{what}: neither starts nor ends:\n{}", cluster.log(1));
            std::thread::sleep(Duration::from_millis(5));
        };
        match code {
            None => {
                served += 1;
                println!("{what}: it serves");
                kept.assert_at(&cluster, 1);
            }
            Some(code) => {
                refused += 1;
                let log = cluster.log(1);
                let last = log.lines().last().unwrap_or_default();
                println!("{what}: {last}");
                // 101 would be a panic, and `None` a signal.
                assert_eq!(code, Some(1), "{what}: {log}");
                assert!(last.starts_with("quorate server: "), "{what}: {log}");
            }
        }
        let _ = child.kill();
        child.wait().unwrap();
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}

/// The system keeps files that are open, so that a node could go on as if nothing had happened, and all of it would be lost with
/// its process.
#[test]
fn a_node_whose_log_is_removed_while_it_runs_acknowledges_nothing_more() {
    for (durability, acknowledged_s) in [("fsync", 0), ("os", 5)] {
        let keyspace = format!(
            "[[keyspace]]\nprefix = \"\"\nreplication = \"consensus\"\ndurability = \"{durability}\"\n"
        );
        let mut cluster = Cluster::start(1, &keyspace);
        let mut client = cluster.client(1);
        let set = request(&[b"SET", b"k", b"v"]);
        client.send(&set);
        assert_eq!(client.line(), "+OK");
        files(&cluster.folder(1).join("storage")).iter().for_each(|file| fs::remove_file(file).unwrap());
        let removed = Instant::now();
        let mut stream = connect(cluster.client_port(1));
        let mut answer = [0; 5];
        while stream.write_all(&set).and_then(|()| stream.read_exact(&mut answer)).is_ok() {
            assert!(removed.elapsed().as_secs() < acknowledged_s, "{durability}: {}", answer.escape_ascii());
        }
        until("the node ends", || !cluster.runs(1));
        assert!(cluster.log(1).contains("somebody has removed this file"), "{}", cluster.log(1));
    }
}
