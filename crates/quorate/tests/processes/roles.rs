//! The roles of `quorate user create --role`: each may do what its tools really send, and no more.

use std::fs;
use std::path::Path;

use super::support::{Client, Cluster, Server, free_ports, quorate, request, until};

/// Runs a tool as a user. Returns its exit code, and its output.
fn run(port: u16, user: &str, folder: &Path, line: &str) -> (i32, String) {
    let mut command = quorate();
    let mut words = line.split(' ');
    command.arg(words.next().unwrap()).args(["--addr", &format!("127.0.0.1:{port}")]);
    if !user.is_empty() {
        command.args(["--user", user, "--password-file"]).arg(folder.join(user));
    }
    let output = command.args(words).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code().unwrap(), text)
}

fn make(port: u16, folder: &Path, user: &str, rules: &[&str]) {
    fs::write(folder.join(user), format!("password of {user}")).unwrap();
    let address = format!("127.0.0.1:{port}");
    let output = quorate()
        .args([
            "user",
            "--addr",
            &address,
            "create",
            user,
            "--role",
            user.trim_start_matches("a-"),
            "--set-password",
        ])
        .arg(folder.join(user))
        .args(rules)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[track_caller]
fn may(port: u16, user: &str, folder: &Path, line: &str) {
    let (code, text) = run(port, user, folder, line);
    assert!(code == 0 && !text.contains("NOPERM"), "{user} may {line}: {code} {text}");
}

#[track_caller]
fn may_not(port: u16, user: &str, folder: &Path, line: &str) {
    let (code, text) = run(port, user, folder, line);
    assert!(code != 0 && text.contains("NOPERM"), "{user} may not {line}: {code} {text}");
}

/// What each role may do, by the tools that it is for.
const MONITORS: [&str; 8] = [
    "status",
    "status --json",
    "top --count 2 --interval 1",
    "keyspace list",
    "keyspace get reg:",
    "node list",
    "lock list",
    "status --here",
];

fn may_all(port: u16, user: &str, folder: &Path, lines: &[String]) {
    lines.iter().for_each(|line| may(port, user, folder, line));
}

#[test]
fn each_role_may_do_what_its_tools_send() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = folder.path();
    let keyspaces = ["prefix=reg: replication=abd", "prefix=log: changes_bytes=1mb"];
    let (cluster, _) = Cluster::start_with(data.path(), free_ports(9), 3, &keyspaces);
    let port = cluster.base;
    let mut client = Client::connect(port);
    for key in ["k", "reg:k", "log:k", "shop:k"] {
        assert_eq!(client.ask(&format!("SET {key} v")), "+OK");
    }
    until("nothing is at risk", || run(port, "", folder, "status").0 == 0);
    for (user, rules) in
        [("monitor", &[][..]), ("backup", &[]), ("a-operator", &[]), ("application", &["~shop:*", "&shop:*"])]
    {
        make(port, folder, user, rules);
    }
    let monitors: Vec<String> = MONITORS.map(str::to_owned).to_vec();
    for user in ["monitor", "backup", "a-operator"] {
        may_all(port, user, folder, &monitors);
    }
    let place = |name: &str| folder.join(name).display().to_string();
    for user in ["backup", "a-operator"] {
        // The second one asks for changes, where they are kept.
        let (to, file) = (place(&format!("to-{user}")), place(&format!("{user}.rdb")));
        let backup = format!("backup --to {to}");
        may_all(port, user, folder, &[backup.clone(), backup]);
        may(port, user, folder, &format!("export {file}"));
    }
    let operator = [
        "keyspace create new: durability=os",
        "keyspace create new: durability=os",
        "keyspace alter new: memory_max=1gb",
        "keyspace drop new: --yes",
        "quarantine list",
        "user create other --draw-password +ping",
        "user list",
        "user drop other",
        "node add 4 127.0.0.1 1 2 3",
        "node remove 4",
    ];
    may_all(port, "a-operator", folder, &operator.map(str::to_owned));
    let restore = format!("restore --from {} --same-cluster --empty-first --dry-run", place("to-backup"));
    may(port, "a-operator", folder, &restore);

    for user in ["monitor", "backup", "application"] {
        for line in [
            "keyspace create no:",
            "keyspace drop log: --yes",
            "node remove 3",
            "user create no --draw-password",
        ] {
            may_not(port, user, folder, line);
        }
    }
    let backup = format!("backup --to {}", place("to-monitor"));
    for user in ["monitor", "application"] {
        may_not(port, user, folder, &backup);
    }
}

#[test]
fn a_role_of_commands_gives_no_data_and_one_of_data_no_commands() {
    let (server, folder) = (Server::start("", ""), tempfile::tempdir().unwrap());
    let folder = folder.path();
    assert_eq!(server.client().ask("SET k v"), "+OK");
    make(server.client_port, folder, "monitor", &[]);
    make(server.client_port, folder, "backup", &[]);
    make(server.client_port, folder, "application", &["~shop:*", "&shop:*"]);
    let as_user = |user: &str, lines: &[(&str, bool)]| {
        let mut client = server.client();
        client.send(request(&[b"AUTH", user.as_bytes(), format!("password of {user}").as_bytes()]));
        assert_eq!(client.line(), "+OK");
        for (line, is_allowed) in lines {
            let mut client = server.client();
            client.send(request(&[b"AUTH", user.as_bytes(), format!("password of {user}").as_bytes()]));
            assert_eq!(client.line(), "+OK");
            let reply = client.ask(line);
            assert_eq!(!reply.starts_with("-NOPERM"), *is_allowed, "{user}: {line}: {reply}");
        }
    };
    let no_changes = [
        ("CLUSTER REMOVE 1", false),
        ("KEYSPACE CREATE x:", false),
        ("FLUSHALL", false),
        ("ACL WHOAMI", false),
    ];
    as_user(
        "monitor",
        &[("PING", true), ("INFO", true), ("GET k", false), ("SCAN 0", false), ("SET k w", false)],
    );
    as_user("monitor", &no_changes);
    as_user("backup", &[("GET k", true), ("SET k w", false), ("DEL k", false), ("EVAL return 0", false)]);
    as_user("backup", &no_changes);
    // What drivers send, and applications.
    as_user(
        "application",
        &[
            ("HELLO 3", true),
            ("CLIENT SETNAME a", true),
            ("CLIENT SETINFO LIB-NAME x", true),
            ("COMMAND COUNT", true),
            ("CLUSTER SLOTS", true),
            ("CLUSTER SHARDS", true),
            ("SET shop:k v", true),
            ("SUBSCRIBE shop:c", true),
            ("EVAL return 0", true),
            ("XADD shop:s * a b", true),
            ("GET k", false),
            ("SUBSCRIBE c", false),
            ("FUNCTION DELETE x", false),
            ("KEYSPACE DROP x:", false),
            ("FLUSHALL", false),
            ("CLUSTER REMOVE 1", false),
        ],
    );
    let output =
        quorate().args(["user", "create", "x", "--role", "application", "--draw-password"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("which keys may it use?"), "{output:?}");

    // A user of an older kind becomes one of a role, and keeps nothing else.
    let address = format!("127.0.0.1:{}", server.client_port);
    assert_eq!(server.client().ask("ACL SETUSER old on >word ~* +@all"), "+OK");
    let done =
        quorate().args(["user", "--addr", &address, "alter", "old", "--role", "monitor"]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut client = server.client();
    assert_eq!(client.ask("AUTH old word"), "+OK");
    assert!(client.ask("GET k").starts_with("-NOPERM"), "the former rights are gone");
    assert_eq!(client.ask("PING"), "+PONG");
}

#[test]
fn the_page_and_the_metrics_are_a_monitors() {
    let (server, folder) = (Server::start("", ""), tempfile::tempdir().unwrap());
    make(server.client_port, folder.path(), "monitor", &[]);
    // monitor:password of monitor
    let user = "Authorization: Basic bW9uaXRvcjpwYXNzd29yZCBvZiBtb25pdG9y";
    for path in ["/status", "/metrics", "/keyspaces"] {
        let (status, body) = server.http(&format!("GET {path} HTTP/1.1\r\n{user}"), "");
        assert_eq!(status, 200, "{path}: {body}");
    }
    for command in [
        r#"["CLUSTER","ASK","1","CLUSTER","EVENTS"]"#,
        r#"["CLUSTER","ASK","1","CLUSTER","HISTORY","600"]"#,
        r#"["CLUSTER","ASK","1","SLOWLOG","GET","50"]"#,
        r#"["CLUSTER","ASK","1","LOCK.LIST","COUNT","500"]"#,
        r#"["KEYSPACE","GET",""]"#,
    ] {
        let (status, body) = server.http(
            &format!("POST /command HTTP/1.1\r\nX-Quorate: 1\r\n{user}"),
            &format!(r#"{{"command":{command}}}"#),
        );
        assert!(status == 200 && !body.contains("NOPERM"), "{command}: {status} {body}");
    }
    let (status, body) = server
        .http(&format!("POST /command HTTP/1.1\r\nX-Quorate: 1\r\n{user}"), r#"{"command":["GET","k"]}"#);
    assert!(status != 200 || body.contains("NOPERM"), "{status} {body}");
}
