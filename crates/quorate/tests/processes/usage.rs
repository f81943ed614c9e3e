//! Exit codes, and clear messages instead of guesses.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use super::support::{Server, configuration, free_ports, quorate};

/// Runs the binary to its end. Returns its exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = quorate().args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_is_printed_with_examples() {
    for command in
        ["", "cluster", "server", "certs", "join", "status", "top", "import", "export", "backup", "restore"]
            .into_iter()
            .chain(["completions", "man"])
            .map(|name| [name, "--help"])
    {
        let command = &command[usize::from(command[0].is_empty())..];
        let (code, out, _) = run(command);
        assert_eq!(code, 0);
        assert!(out.contains("Examples:"), "{command:?}: {out}");
    }
}

#[test]
fn shells_complete_every_command_and_each_has_a_page() {
    const COMMANDS: [&str; 11] = [
        "cluster",
        "server",
        "join",
        "status",
        "top",
        "import",
        "export",
        "backup",
        "restore",
        "completions",
        "bench",
    ];
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, error) = run(&["completions", shell]);
        assert_eq!((code, error.as_str()), (0, ""), "{shell}");
        for word in COMMANDS.iter().chain(["password-file", "config"].iter()) {
            assert!(out.contains(word), "{shell} does not complete {word}");
        }
        // The shell itself finds no error, if it is installed.
        let mut child = match Command::new(shell).arg("-n").arg("/dev/stdin").stdin(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(_) => continue,
        };
        child.stdin.take().unwrap().write_all(out.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{shell}");
    }
    assert_eq!(run(&["completions", "nothing"]).0, 2);

    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man/man1");
    assert_eq!(run(&["man", pages.to_str().unwrap()]), (0, String::new(), String::new()));
    for command in COMMANDS {
        let page = fs::read_to_string(pages.join(format!("quorate-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}: {page}");
    }
    let page = fs::read_to_string(pages.join("quorate-status.1")).unwrap();
    assert!(page.contains("password") && page.contains("Exit code: 0 healthy, 1 at risk"), "{page}");
    fs::write(folder.path().join("file"), "").unwrap();
    let (code, _, error) = run(&["man", folder.path().join("file").to_str().unwrap()]);
    assert!(code == 1 && error.contains("cannot write manual pages into"), "{error}");
}

#[test]
fn wrong_usage_has_exit_code_2_or_for_the_state_of_a_cluster_3() {
    for command in [
        &[][..],
        &["serve"],
        &["server"],
        &["cluster", "--nodes", "0", "--dir", "x"],
        &["cluster", "--nodes", "10", "--dir", "x"],
        &["cluster", "--dir", "x", "--keyspace", "nonsense"],
        &["cluster", "--dir", "x", "--client-port", "0"],
    ] {
        let (code, _, error) = run(command);
        assert_eq!(code, 2, "{command:?}: {error}");
    }
    // 2 would be an outage.
    for command in [&["status", "--here", "--json"], &["top", "--interval", "0"]] {
        let (code, _, error) = run(command);
        assert_eq!(code, 3, "{command:?}: {error}");
    }
}

#[test]
fn an_unusable_configuration_exits_with_1_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let name = file.to_str().unwrap();
    let (code, _, error) = run(&["server", "--config", name]);
    assert_eq!(code, 1);
    assert!(error.contains("cannot read the configuration file") && error.contains(name), "{error}");

    fs::write(&file, configuration(7000, 1, "bind = \"0.0.0.0\"", "")).unwrap();
    let (code, out, error) = run(&["server", "--config", name]);
    assert_eq!(code, 1);
    assert!(error.contains("there is no password"), "{error}");
    assert_eq!((error.lines().count(), out.as_str()), (1, ""));
}

/// The filtering library takes a word that is not a level for the name of a module, and silenced all others.
#[test]
fn an_unknown_log_level_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    fs::write(&file, configuration(free_ports(3), 1, "", "")).unwrap();
    let mut command = quorate();
    command.arg("server").arg("--config").arg(&file).env("QUORATE_LOG", "silly");
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("QUORATE_LOG=silly: 'silly' is not a level; use error, warn, info"), "{error}");
    assert!(!folder.path().join("storage").exists(), "a start that fails leaves nothing behind");
}

#[test]
fn a_port_in_use_is_named_with_its_key() {
    let base = free_ports(3);
    for (offset, key) in [(0, "client_port"), (1, "http_port"), (2, "peer_port")] {
        let _holder = TcpListener::bind((Ipv4Addr::LOCALHOST, base + offset)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        fs::write(&file, configuration(base, 1, "", "")).unwrap();
        let (code, _, error) = run(&["server", "--config", file.to_str().unwrap()]);
        assert_eq!(code, 1);
        assert!(error.contains(&format!("127.0.0.1:{}, the {key} of node 1", base + offset)), "{error}");
        assert!(error.contains(&format!("process {} (", std::process::id())), "{error}");
        assert!(!folder.path().join("storage").exists(), "a start that fails leaves nothing behind");
    }
}

#[test]
fn a_second_server_on_one_folder_is_refused() {
    let server = Server::start("", "");
    let file = server.folder().join("other.toml");
    let base = free_ports(3);
    fs::write(&file, configuration(base, 1, "", "")).unwrap();
    let (code, _, error) = run(&["server", "--config", file.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(error.contains(&format!("in use by process {}", server.process())), "{error}");
}

#[test]
fn a_folder_of_another_cluster_or_node_is_named_as_people_do() {
    let mut server = Server::start("", "");
    assert_eq!(server.stop(), 0);
    let file = server.folder().join("other.toml");
    let base = free_ports(6);
    let config = configuration(base, 2, "", "");
    for (config, whose) in [
        (config.replace("\"test\"", "\"shop\""), "the data of node 1 of the cluster 'test', and"),
        (config.replace("node = 1\n", "node = 2\n"), "the data of node 1 of this cluster, 'test', and"),
    ] {
        fs::write(&file, config).unwrap();
        let (code, _, error) = run(&["server", "--config", file.to_str().unwrap()]);
        assert!(
            code == 1 && error.contains(whose) && error.contains("start each node with its own file"),
            "{error}"
        );
    }
}

#[test]
fn a_disk_that_is_too_small_is_told_with_what_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quorate.toml");
    // Four of the longest files: no disk of a test machine has that.
    let tables = format!("[storage]\nsegment_bytes = {0}\ncheckpoint_bytes = {0}\n", 1_u64 << 40);
    fs::write(&file, configuration(free_ports(3), 1, "", &tables)).unwrap();
    let (code, _, error) = run(&["server", "--config", file.to_str().unwrap()]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("is too small: ") && error.contains(" MiB are free there"), "{error}");
    assert!(error.contains("the log takes at least 4194304 MiB"), "{error}");
}

#[test]
fn what_is_no_file_of_redis_is_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "hello\n").unwrap();
    let missing = folder.path().join("none.rdb");
    let (page, list, empty) =
        ["page.md", "list.txt", "empty.aof"].map(|name| folder.path().join(name)).into();
    for (file, content) in [(&page, "# Notes\n"), (&list, "* one\n"), (&empty, "")] {
        fs::write(file, content).unwrap();
    }
    for (path, why) in [
        (text.as_path(), "is no file of Redis or Valkey"),
        (&page, "is no file of Redis or Valkey"),
        (&list, "is no file of Redis or Valkey"),
        (&empty, "is empty: there is nothing to import"),
        (missing.as_path(), "cannot read"),
        (folder.path(), "is no folder of append-only files"),
    ] {
        let (code, out, error) = run(&["import", path.to_str().unwrap(), "--dry-run"]);
        assert!(code == 1 && error.contains(why) && out.is_empty(), "{out}{error}");
    }
}

#[test]
fn a_stopped_server_removes_its_process_id() {
    let mut server = Server::start("", "");
    let file = server.folder().join("quorate.pid");
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), server.process().to_string());
    assert_eq!(server.stop(), 0);
    assert!(!file.exists());
    let log = server.log();
    assert!(log.contains("started") && log.contains("stopped"), "{log}");
}

/// A script replaces the lab's program and prints its arguments.
#[test]
fn commands_of_the_lab_are_handed_over_to_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("quorate");
    fs::copy(env!("CARGO_BIN_EXE_quorate"), &program).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        let output = command.args(arguments).env("PATH", folder.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, error) = run(&["bench", "-P", "16"]);
    assert_eq!(code, 1);
    assert!(error.contains("cargo build --release --package quorate-lab"), "{error}");

    let script = folder.path().join("quorate-lab");
    fs::write(&script, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for (given, handed) in [
        (&["bench", "--addr", "127.0.0.1:7000", "-P", "16"][..], "bench --addr 127.0.0.1:7000 -P 16\n"),
        (&["check", "--help"], "check --help\n"),
        (&["sim", "--seed", "1"], "sim --seed 1\n"),
        (&["advise"], "advise\n"),
        (&["lab", "run", "locks", "--quick"], "run locks --quick\n"),
        (&["lab"], "\n"),
    ] {
        let (code, out, _) = run(given);
        assert_eq!((code, out.as_str()), (7, handed), "{given:?}");
    }
}

/// The environment configures the node's allocator before the process begins, so the node has replaced itself with
/// its own program once.
#[test]
#[cfg(target_os = "linux")]
fn a_node_uses_small_pages_keeps_them_for_a_minute_and_remains_the_process_that_was_started() {
    let mut server = Server::start("", "");
    let environment = fs::read(format!("/proc/{}/environ", server.process())).unwrap();
    let kept = environment.split(|byte| *byte == 0).find_map(|it| it.strip_prefix(b"MIMALLOC_PURGE_DELAY="));
    assert_eq!(kept, Some(&b"60000"[..]));
    // Old kernels do not report it.
    let status = fs::read_to_string(format!("/proc/{}/status", server.process())).unwrap();
    if let Some(large_pages) = status.lines().find_map(|line| line.strip_prefix("THP_enabled:")) {
        assert_eq!(large_pages.trim(), "0");
    }
    assert_eq!(server.stop(), 0);
}
