//! Only the owner can read a node's files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::support::{Cluster, Server, free_ports, until};

/// Returns everything in a folder, including the folder itself.
fn all_in(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        found.extend(fs::read_dir(path).unwrap().flat_map(|entry| all_in(&entry.unwrap().path())));
    }
    found
}

#[track_caller]
fn assert_closed(folder: &Path) {
    let all = all_in(folder);
    assert!(all.len() > 8, "{all:?}");
    for path in all {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
    }
}

#[test]
fn only_the_owner_can_read_files_and_folders_also_those_of_older_versions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made");
    let base = free_ports(3);
    let (mut cluster, _) = Cluster::start(&folder, base, 1);
    assert_eq!(cluster.client(1).ask("SET k v"), "+OK");
    // While the node runs, with its process id.
    assert_closed(&folder);
    assert_eq!(cluster.stop(Signal::TERM), 0);

    let node = folder.join("node-1");
    for path in all_in(&node) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let others = node.join("notes.txt");
    fs::write(&others, "not the node's").unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o644)).unwrap();
    let (mut cluster, _) = Cluster::start_again(&folder, base, 1);
    assert_eq!(fs::metadata(&others).unwrap().permissions().mode() & 0o777, 0o644);
    fs::remove_file(&others).unwrap();
    assert_closed(&folder);
    assert_eq!(cluster.stop(Signal::TERM), 0);
}

#[test]
fn only_the_owner_can_read_files_of_large_values() {
    let storage = "[storage]\nsegment_bytes = 1048576\ncheckpoint_bytes = 1048576\ncache_bytes = 1048576\n";
    let keyspace = "[[keyspace]]\nprefix = \"\"\nreplication = \"consensus\"\nstorage = \"disk\"\n";
    let mut server = Server::start("", &format!("{storage}{keyspace}"));
    let (mut client, value) = (server.client(), "v".repeat(40_000));
    let values = server.folder().join("values");
    let mut number = 0;
    until("values are in files", || {
        number += 1;
        assert_eq!(client.ask(&format!("SET k{number} {value}")), "+OK");
        values.exists() && all_in(&values).len() > 8
    });
    assert_eq!(server.stop(), 0);
    assert_closed(&values);
}
