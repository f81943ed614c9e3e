//! `quorate cluster` on a folder that already holds a cluster, which has been edited and changed since.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::support::{Cluster, Server, free_ports, quorate, until};

/// Edits a node's configuration file.
fn edit(folder: &Path, node: u16, change: impl Fn(String) -> String) {
    let file = folder.join(format!("node-{node}/quorate.toml"));
    let text = fs::read_to_string(&file).unwrap();
    let changed = change(text.clone());
    assert_ne!(text, changed, "nothing was changed");
    fs::write(file, changed).unwrap();
}

/// Runs `quorate cluster` with these arguments beside the folder; returns the message with which it refuses.
fn refusal(folder: &Path, more: &[&str]) -> String {
    let mut command = quorate();
    let output = command.arg("cluster").arg("--dir").arg(folder).args(more).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    error
}

#[test]
fn a_cluster_with_a_password_becomes_ready_and_so_do_its_joined_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let base = free_ports(12);
    let (mut cluster, _) = Cluster::start_spaced(folder, base, 3, 4, &[]);
    cluster.stop(Signal::TERM);
    for node in 1..=3 {
        edit(folder, node, |text| text.replace("# password = \"...\"", "password = \"open sesame\""));
    }
    let (mut cluster, lines) = Cluster::start_again(folder, base, 4);
    assert_eq!(lines.len(), 4, "{lines:?}");
    let line = cluster.line();
    assert!(line.contains(" --askpass ") && !line.contains("sesame"), "{line}");
    let mut client = cluster.client(2);
    assert!(client.ask("SET k v").starts_with("-NOAUTH"));
    assert_eq!(client.ask("AUTH 'open sesame'"), "+OK");
    assert_eq!(client.ask("SET k v"), "+OK");

    let (like, fourth) = (folder.join("node-1/quorate.toml"), folder.join("node-4"));
    let mut join = quorate();
    join.arg("join").arg("--like").arg(like).arg("--dir").arg(&fourth);
    let output = join.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.stop(Signal::INT);

    // It is now a node of the folder like the others.
    let (cluster, lines) = Cluster::start_again(folder, base, 4);
    assert!(lines[3].starts_with("node 4: process"), "{lines:?}");
    let mut client = cluster.client(4);
    assert_eq!(client.ask("AUTH 'open sesame'"), "+OK");
    client.send("GET k\r\n");
    assert_eq!((client.line(), client.line()), ("$1".into(), "v".into()));
}

#[test]
fn a_cluster_is_reached_where_its_files_say() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(3);
    let (mut cluster, _) = Cluster::start(folder.path(), base, 1);
    cluster.stop(Signal::TERM);
    let other = free_ports(3);
    edit(folder.path(), 1, |text| {
        let text = text.replace("bind = \"127.0.0.1\"", "bind = \"127.0.0.2\"");
        text.replace(&format!("client_port = {base}"), &format!("client_port = {other}"))
    });
    let (mut cluster, lines) = Cluster::start_again(folder.path(), base, 1);
    assert!(lines[0].contains(&format!("redis 127.0.0.2:{other}, http 127.0.0.2:")), "{lines:?}");
    assert!(cluster.line().contains(&format!("redis-cli -h 127.0.0.2 -p {other} ")));
    assert_eq!(cluster.stop(Signal::TERM), 0);
}

#[test]
fn a_folder_is_started_by_its_name_and_differences_are_answered_with_commands() {
    let folder = tempfile::tempdir().unwrap();
    // A name that a shell would split.
    let folder = folder.path().join("my demo");
    let base = free_ports(6);
    let cache = "prefix=cache: replication=leader-follower acks=none";
    let (mut cluster, lines) =
        Cluster::start_spaced(&folder, base, 1, 2, &[cache, "prefix=sess: replication=abd"]);
    assert_eq!(lines.len(), 2);
    cluster.stop(Signal::TERM);

    // Repeated settings do no harm, whichever others are left out.
    let mut command = quorate();
    command.arg("cluster").arg("--dir").arg(&folder).args(["--keyspace", cache, "--nodes", "1"]);
    let (mut cluster, _) = Cluster::start_by(command, &folder, base, 2);
    assert_eq!(cluster.client(1).ask("SET cache:k v"), "+OK");
    cluster.stop(Signal::TERM);

    let other = "prefix=cache: replication=leader-follower acks=0 reads=any";
    let printed = refusal(&folder, &["--nodes", "2", "--keyspace", other, "--keyspace", "prefix=b:"]);
    assert!(printed.contains("--nodes is 1 there, not 2"), "{printed}");
    assert!(printed.contains("--keyspace cache: is (prefix=cache: acks=none"), "{printed}");
    assert!(printed.contains("--keyspace b: is not there"), "{printed}");
    let commands: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let [start, set, create, join] = commands[..] else { panic!("{printed}") };

    // Each command is pasted into a shell unchanged.
    let programs = Path::new(env!("CARGO_BIN_EXE_quorate")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).env("PATH", &path).stdin(Stdio::null());
        command
    };
    let (mut cluster, _) = Cluster::start_by(shell(&format!("exec {start}")), &folder, base, 2);
    for line in [set, create] {
        let redis_cli = format!("redis-cli -p {base} ");
        let words = line.strip_prefix(&redis_cli).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(cluster.client(1).ask(words), "+OK", "{words}");
    }
    let joined = shell(join).output().unwrap();
    assert!(joined.status.success(), "{join}: {}", String::from_utf8_lossy(&joined.stderr));
    assert!(folder.join("node-2/quorate.toml").exists());
    cluster.stop(Signal::TERM);
}

#[test]
fn keyspaces_that_only_a_file_has_are_named_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(3);
    let (mut cluster, _) = Cluster::start(folder.path(), base, 1);
    cluster.stop(Signal::TERM);
    let documented =
        "\n[[keyspace]]\nprefix = \"cache:\"\nreplication = \"leader-follower\"\nacks = \"none\"\n";
    edit(folder.path(), 1, |text| format!("{text}{documented}"));
    let (mut cluster, _) = Cluster::start_again(folder.path(), base, 1);
    let log = || fs::read_to_string(folder.path().join("node-1/quorate.log")).unwrap();
    until("it is logged", || {
        log().contains("keyspace 'cache:' is in the configuration file and not in the cluster's map")
    });
    cluster.stop(Signal::TERM);
}

#[test]
fn a_node_that_cannot_start_does_not_keep_the_others_from_serving() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(9);
    let (mut cluster, _) = Cluster::start(folder.path(), base, 3);
    cluster.stop(Signal::TERM);
    fs::remove_dir_all(folder.path().join("node-3/storage")).unwrap();
    fs::write(folder.path().join("node-3/storage"), "no folder").unwrap();
    let (mut cluster, lines) = Cluster::start_again(folder.path(), base, 3);
    assert!(lines[3].starts_with("node 3 ended (exit code 1); start it again with: "), "{lines:?}");
    assert!(lines[4].contains("last line of its log") && lines[4].contains("storage"), "{lines:?}");
    until("two of three serve", || cluster.client(2).ask("SET k v") == "+OK");
    assert_eq!(cluster.stop(Signal::TERM), 0);
}

/// Two of three have another secret, so there is no majority.
#[test]
fn a_cluster_that_does_not_become_ready_reports_why_and_keeps_running() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(9);
    let (mut cluster, _) = Cluster::start(folder.path(), base, 3);
    cluster.stop(Signal::TERM);
    for node in 2..=3 {
        edit(folder.path(), node, |text| text.replace("secret = \"", &format!("secret = \"{node}")));
    }
    let mut command = quorate();
    command.arg("cluster").arg("--dir").arg(folder.path());
    let mut cluster = Cluster::spawn(command, folder.path(), base, 3);
    (0..3).for_each(|_| drop(cluster.line()));
    let printed = cluster.line();
    assert!(printed.starts_with("not ready after "), "{printed}");
    let seen = format!("node 1: GET /health?all at 127.0.0.1:{}: 503 (keyspace 'default': ", base + 3);
    assert!(printed.contains(&seen) && printed.contains("node-3/quorate.log"), "{printed}");
    assert_eq!(cluster.health(2).0, 503, "it still runs");
    assert_eq!(cluster.stop(Signal::INT), 0);
}

#[test]
fn keys_in_memory_only_are_counted_at_the_stop_and_reported_lost_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(6);
    let keyspaces = ["prefix=cache: replication=leader-follower acks=none", "prefix=sess: replication=abd"];
    let (mut cluster, _) = Cluster::start_with(folder.path(), base, 2, &keyspaces);
    let next = |cluster: &mut Cluster| {
        let mut lines = vec![cluster.line()];
        while !lines[lines.len() - 1].contains("memory only") {
            lines.push(cluster.line());
        }
        lines.pop().unwrap()
    };
    let printed = next(&mut cluster);
    assert!(printed.ends_with("lost when all nodes stop: cache:, sess:"), "{printed}");
    for key in ["cache:a", "cache:b", "sess:a", "kept"] {
        assert_eq!(cluster.client(1).ask(&format!("SET {key} v")), "+OK");
    }
    cluster.signal(Signal::INT);
    let printed = next(&mut cluster);
    assert!(
        printed.starts_with("lost with this stop") && printed.ends_with(": cache: (2 keys), sess: (1 key)"),
        "{printed}"
    );
    assert_eq!(cluster.line(), "stopping");
    assert_eq!(cluster.wait(), 0);
    let log = |node: u16| fs::read_to_string(folder.path().join(format!("node-{node}/quorate.log"))).unwrap();
    assert!(log(1).contains("2 keys of keyspace 'cache:' go with this process"), "{}", log(1));

    let (mut cluster, _) = Cluster::start_again(folder.path(), base, 2);
    let printed = next(&mut cluster);
    assert!(
        printed.starts_with("empty, because all nodes were stopped") && printed.ends_with(": cache:, sess:"),
        "{printed}"
    );
    assert!(log(2).contains("keyspace 'sess:' begins without keys on this node"), "{}", log(2));
    assert_eq!(cluster.client(1).ask("EXISTS kept"), ":1");
    assert_eq!(cluster.client(1).ask("EXISTS cache:a"), ":0");
}

#[test]
fn a_node_alone_warns_that_its_keys_are_lost() {
    let keyspace = "[[keyspace]]\nprefix = \"sess:\"\nreplication = \"abd\"\n";
    let mut server = Server::start("", keyspace);
    assert_eq!(server.client().ask("SET sess:a v"), "+OK");
    assert_eq!(server.stop(), 0);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("1 keys of keyspace 'sess:'")).unwrap();
    assert!(line.contains("WARN") && line.contains("no other node has them, so they are lost"), "{log}");
}

/// If the file's node is on another machine, the new one most likely is, too: the address is not guessed.
#[test]
fn a_node_that_joins_is_given_an_address_that_others_can_reach() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(6);
    let (cluster, _) = Cluster::start_spaced(folder.path(), base, 1, 2, &[]);
    // Like node 2's file on another machine; node 1 is the one that answers.
    let like = folder.path().join("like.toml");
    let text = fs::read_to_string(cluster.node(1).join("quorate.toml")).unwrap();
    let remote = "[[nodes]]\nid = 2\nhost = \"10.0.0.9\"\nclient_port = 1\nhttp_port = 2\npeer_port = 3\n";
    fs::write(&like, format!("{}\n{remote}", text.replace("node = 1\n", "node = 2\n"))).unwrap();
    let join = |more: &[&str]| {
        let mut command = quorate();
        command.arg("join").arg("--like").arg(&like).arg("--dir").arg(folder.path().join("new")).args(more);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let printed = join(&[]);
    assert!(
        printed.contains("give --host, the address of node 2: the node of the file is reached at 10.0.0.9"),
        "{printed}"
    );
    let printed = join(&["--host", "10.0.0.7"]);
    assert!(printed.contains("give --bind: node 2 would be reached at 10.0.0.7"), "{printed}");
}
