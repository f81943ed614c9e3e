//! A copied data folder: it does not serve in its node's name, and does not harm the original.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::bare::Bare;
use super::started::Restarted;
use super::support::{Client, quorate, try_http, until, wait};

/// Starts three nodes that hold some data.
fn cluster() -> Bare {
    let mut bare = Bare::new("", |config, _| config);
    (1..=3).for_each(|node| bare.start(node));
    bare.wait_until_ready(&[1, 2, 3]);
    assert_eq!(Client::connect(bare.client_port(1)).ask("SET key value"), "+OK");
    bare
}

/// Copies all files, as `cp -a` does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.unwrap(), to.to_owned());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn copied(bare: &Bare, node: u16) -> PathBuf {
    let folder = bare.node(node).with_file_name(format!("copy-of-node-{node}"));
    copy(&bare.node(node), &folder);
    folder
}

/// Starts a node from such a folder.
fn start(folder: &Path, more: &[&str]) -> Restarted {
    let mut command = quorate();
    command.arg("server").arg("--config").arg(folder.join("quorate.toml")).args(more);
    Restarted(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Returns the message of a node that ends by itself.
fn refusal(mut process: Restarted) -> String {
    assert_eq!(wait(&mut process.0), 1);
    let mut message = String::new();
    process.0.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    message
}

/// Changes the node's own ports among all that a configuration file names.
fn move_ports(folder: &Path, bare: &Bare, node: u16) -> u16 {
    let file = folder.join("quorate.toml");
    let mut text = fs::read_to_string(&file).unwrap();
    let base = super::support::free_ports(3);
    for offset in 0..3 {
        let port = |base: u16| format!("_port = {}\n", base + offset);
        assert!(text.contains(&port(bare.client_port(node))));
        text = text.replace(&port(bare.client_port(node)), &port(base));
    }
    fs::write(file, text).unwrap();
    base
}

#[test]
fn a_copied_folder_does_not_start_and_the_original_keeps_running() {
    let mut bare = cluster();
    bare.kill(3);
    let folder = copied(&bare, 3);
    for _ in 0..2 {
        let message = refusal(start(&folder, &[]));
        assert!(message.contains("was copied") && message.contains("--adopt"), "{message}");
    }
    move_ports(&folder, &bare, 3);
    refusal(start(&folder, &[]));
    bare.start(3);
    bare.wait_until_ready(&[3]);

    // Beside the running original, and with only its log.
    refusal(start(&folder, &[]));
    fs::remove_file(folder.join("quorate.home")).unwrap();
    refusal(start(&folder, &[]));
    assert_eq!(Client::connect(bare.client_port(3)).ask("SET key other"), "+OK");
}

#[test]
fn a_renamed_folder_starts_as_before_and_a_moved_one_when_it_is_adopted() {
    let mut bare = cluster();
    bare.kill(3);
    let renamed = bare.node(3).with_file_name("renamed");
    fs::rename(bare.node(3), &renamed).unwrap();
    let process = start(&renamed, &[]);
    bare.wait_until_ready(&[3]);
    drop(process);

    let moved = bare.node(3).with_file_name("moved");
    copy(&renamed, &moved);
    fs::remove_dir_all(&renamed).unwrap();
    drop(refusal(start(&moved, &[])));
    let process = start(&moved, &["--adopt"]);
    bare.wait_until_ready(&[3]);
    drop(process);
    let _process = start(&moved, &[]);
    bare.wait_until_ready(&[3]);
}

/// Even a copy that an operator adopts by mistake sends nothing to the others.
#[test]
fn a_copy_on_other_ports_is_refused_by_the_others() {
    let mut bare = cluster();
    bare.kill(3);
    let folder = copied(&bare, 3);
    let base = move_ports(&folder, &bare, 3);
    for _ in 0..2 {
        let _copy = start(&folder, &["--adopt"]);
        until("the copy listens", || try_http(base + 1, "GET /health HTTP/1.1", "").is_some());
        until("it is refused", || bare.log(1).contains("is it a copy of that node?"));
    }
    let _copy = start(&folder, &[]);
    until("the copy listens", || try_http(base + 1, "GET /health HTTP/1.1", "").is_some());
    bare.start(3);
    bare.wait_until_ready(&[3]);
    assert_ne!(try_http(base + 1, "GET /health HTTP/1.1", "").map(|(status, _)| status), Some(200));
}

/// An operator adopts a copy in place of the original, and still starts the original.
#[test]
fn a_node_whose_copy_was_admitted_is_repaired_by_cluster_replace() {
    for node in [3, 1] {
        let mut bare = cluster();
        bare.kill(node);
        let folder = copied(&bare, node);
        for more in [&["--adopt"][..], &[]] {
            let _copy = start(&folder, more);
            bare.wait_until_ready(&[1, 2, 3]);
        }
        bare.start(node);
        until("the original is refused", || bare.log(node).contains("CLUSTER REPLACE"));
        let asked = if node == 1 { 2 } else { node };
        until("it may be replaced", || {
            let message = Client::connect(bare.client_port(asked)).ask(&format!("CLUSTER REPLACE {node}"));
            assert!(!message.contains("UNKNOWN"), "{message}");
            message == "+OK"
        });
        bare.wait_until_ready(&[1, 2, 3]);
        assert_eq!(Client::connect(bare.client_port(node)).ask("GET key"), "$5");
    }
}
