//! `quorate status` and `quorate top`: their output and exit codes, for healthy clusters and others.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::support::{Cluster, Server, configuration, free_ports, is_running, quorate, signal, until, wait};

/// Runs `quorate status`, or another subcommand, to its end. Returns its exit code, and its output.
fn run(arguments: &[&str]) -> (i32, String) {
    let output = quorate().args(arguments).output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), text)
}

/// Runs it until it prints these sentences: a cluster takes a moment to notice what has happened.
fn until_it_says(arguments: &[&str], code: i32, sentences: &[&str]) -> String {
    let mut output = (0, String::new());
    let what = format!("{arguments:?} ends with {code} and says {sentences:?}");
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until(&what, || {
            output = run(arguments);
            output.0 == code && sentences.iter().all(|sentence| output.1.contains(sentence))
        });
    }));
    assert!(seen.is_ok(), "{what}; instead: {output:?}");
    output.1
}

fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[test]
fn a_cluster_is_healthy_then_at_risk_and_then_does_not_serve() {
    let folder = tempfile::tempdir().unwrap();
    let keyspaces = ["prefix=cache: replication=leader-follower acks=none", "prefix=cart replication=abd"];
    let (cluster, _) = Cluster::start_with(folder.path(), free_ports(9), 3, &keyspaces);
    let (first, second) = (at(cluster.base), at(cluster.base + 1));
    let status = ["status", "--addr", &first];

    let output = until_it_says(&status, 0, &["healthy", "survives 1 failure", "control group: leader "]);
    for id in 1..=3 {
        assert!(output.contains(&at(cluster.base + id - 1)), "{output}");
    }
    for promise in [
        "consensus: a write is acknowledged when 2 of 3 replicas have it (on the disk); reads see every",
        "leader-follower: a write is acknowledged when its leader has it, so a failover may lose it (in memory",
        "abd: a write is acknowledged when 2 of 3 replicas have it (in memory",
        "no leader needed",
    ] {
        assert!(output.contains(promise), "{promise}: {output}");
    }
    assert!(!output.contains('\x1b'), "colours in a pipe: {output:?}");

    let in_json = || {
        let (code, output) = run(&["status", "--addr", &first, "--json"]);
        (code, serde_json::from_str::<Value>(&output).unwrap())
    };
    // At first it may be noted that replicas have not begun yet.
    let mut seen = in_json();
    until("nothing is noted", || {
        let is_all_well = seen.1["risks"] == Value::Array(Vec::new());
        if !is_all_well {
            seen = in_json();
        }
        is_all_well
    });
    let (code, output) = seen;
    assert_eq!((code, &output["state"]), (0, &Value::from("healthy")), "{output:#}");
    assert_eq!(output["nodes"].as_array().unwrap().len(), 3);
    for (index, node) in output["nodes"].as_array().unwrap().iter().enumerate() {
        assert_eq!(node["node"], index + 1);
        assert_eq!((&node["reached"], &node["ready"]), (&true.into(), &true.into()), "{node:#}");
        assert!(
            node["memory"]["data_max"].as_u64().unwrap() > 0 && node["disk"]["full"] == false,
            "{node:#}"
        );
        assert_eq!(node["links"].as_array().unwrap().len(), 2);
    }
    let default = &output["keyspaces"][0];
    assert_eq!((&default["prefix"], &default["replication"]), (&"".into(), &"consensus".into()));
    assert_eq!(default["shards"][0]["survives"], 1);
    assert_eq!(default["shards"][0]["replicas"].as_array().unwrap().len(), 3);

    signal(cluster.process(3), Signal::KILL);
    let down = format!("node 3 ({}) cannot be reached", at(cluster.base + 2));
    let sentences = [
        "at risk",
        "the control group stops with the next failure of one of its members (node 3 is away)",
        "and 3 more like it: keyspace 'default', keyspace 'cache:', keyspace 'cart'",
        &down,
        "start node 3 (quorate server --config FILE on its machine)",
        "quorate node replace 3",
    ];
    until_it_says(&status, 1, &sentences);
    let (code, output) = run(&["status", "--addr", &first, "--json"]);
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &output["state"]), (1, &Value::from("at-risk")));
    let kinds: Vec<&str> =
        output["risks"].as_array().unwrap().iter().map(|risk| risk["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"node-down") && kinds.contains(&"one-failure-away"), "{kinds:?}");
    assert!(output["risks"][0]["do"].is_string() && output["nodes"][2]["error"].is_string(), "{output:#}");
    assert!(output["nodes"][2].get("memory").is_none());

    signal(cluster.process(2), Signal::KILL);
    let start = "start node 2 or 3: one is enough";
    let output =
        until_it_says(&status, 2, &["cannot serve", "nodes 2, 3 are down; no keyspace is served", start]);
    assert!(output.contains("recover.md") && output.contains("quorate recover"), "{output}");
    assert!(!output.to_lowercase().contains("replace"), "nobody can order a replacement: {output}");
    assert_eq!(output.matches(" -> ").count(), 1, "one thing to do: {output}");
    let refused = run(&["node", "replace", "--addr", &first, "2"]);
    assert_ne!(refused.0, 0, "then it may be advised: {refused:?}");
    // Asked through a node that is down, it reports only that.
    let output = until_it_says(&["status", "--addr", &second], 2, &["no node could be queried"]);
    assert!(output.contains(&format!("{second} cannot be queried: cannot connect to {second}")), "{output}");
    // Any node that answers is enough.
    let both = format!("{second},{first}");
    until_it_says(&["status", "--addr", &both], 2, &["nodes 2, 3 are down; no keyspace is served", start]);
}

#[test]
fn status_needs_the_password_of_a_node() {
    let server = Server::start("password = \"correct horse\"", "");
    let address = at(server.client_port);
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let file = folder.path().join(text.len().to_string());
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (code, output) = run(&["status", "--addr", &address]);
    assert!(
        code == 3 && output.contains("it wants a password: name its file with --password-file"),
        "{output}"
    );
    assert!(output.starts_with("the cluster: unknown: a password is needed\n"), "{output}");
    let (code, output) = run(&["status", "--addr", &address, "--password-file", &file("battery staple")]);
    assert!(code == 3 && output.starts_with("the cluster: unknown: the password is refused\n"), "{output}");
    assert!(!output.contains("battery"), "a password is shown: {output}");

    let output = until_it_says(
        &["status", "--addr", &address, "--password-file", &file("correct horse\n")],
        0,
        &["healthy", "survives no failure, as configured: 1 replica"],
    );
    assert!(output.contains("when its only replica has it"), "{output}");
    // A node's own file has address and password.
    let config = server.folder().join("quorate.toml");
    let config = config.to_str().unwrap();
    assert_eq!(run(&["status", "--config", config]).0, 0);
    assert_eq!(run(&["status", "--config", config, "--here"]), (0, "node 1 serves\n".into()));
}

#[test]
fn a_nodes_file_opens_its_cluster_to_all_tools() {
    let server = Server::start("password = \"for all\"\noperator_password = \"for few\"", "");
    let config = server.folder().join("quorate.toml");
    let export = server.folder().join("all.rdb");
    let all_tools_can = || {
        for tool in [
            &["status"][..],
            &["status", "--here"],
            &["top", "--count", "1"],
            &["keyspace", "list"],
            &["export", export.to_str().unwrap()],
        ] {
            let (code, output) = run(&[tool, &["--config", config.to_str().unwrap()]].concat());
            assert_eq!(code, 0, "{tool:?}: {output}");
            let _ = fs::remove_file(&export);
        }
    };
    until_it_says(&["status", "--config", config.to_str().unwrap()], 0, &["healthy"]);
    all_tools_can();
    let mut client = server.client();
    client.send(super::support::request(&[b"AUTH", b"for all"]));
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.ask("ACL SETUSER default resetpass >another"), "+OK");
    all_tools_can();
    // A node may have another password for its operator, or none: what looks needs none.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("for few", "of others").replace("for all", "another")).unwrap();
    let config = config.to_str().unwrap();
    assert_eq!(run(&["status", "--config", config]).0, 0);
    assert!(run(&["keyspace", "list", "--config", config]).1.contains("refuses the password"));
}

#[test]
fn one_node_is_asked_whether_it_serves() {
    let base = free_ports(6);
    let server = Server::start_one_of_two(1, base);
    let address = at(server.client_port);
    let (code, output) = run(&["status", "--addr", &address, "--here"]);
    assert!(
        code == 2 && output.starts_with("node 1 does not serve: the control group has not admitted"),
        "{output}"
    );
    let (code, output) = run(&["status", "--addr", &at(base + 3), "--here"]);
    assert!(code == 2 && output.contains("cannot be queried: cannot connect to"), "{output}");
    // The cluster has not begun, and status reports that too.
    let (code, output) = run(&["status", "--addr", &address]);
    assert!(code == 2 && output.contains("the cluster has not begun"), "{output}");
    let (code, output) = run(&["status", "--addr", "somewhere"]);
    assert!(code == 3 && output.contains("somewhere is not an address: write HOST:PORT"), "{output}");
    let (code, output) = run(&["status", "--password-file", "/nowhere/at/all"]);
    assert!(code == 3 && output.contains("cannot read /nowhere/at/all"), "{output}");
}

#[test]
fn what_the_caller_has_wrong_is_no_outage() {
    let server = Server::start("password = \"correct horse\"", "");
    let [address, http, peer] = [server.client_port, server.http_port, server.peer_port].map(at);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "correct horse").unwrap();
    let password = ["--password-file", file.to_str().unwrap()];
    let mut client = server.client();
    assert_eq!(
        client.ask("AUTH correct\\ horse"),
        "-WRONGPASS invalid username-password pair or user is disabled."
    );
    client.send(super::support::request(&[b"AUTH", b"correct horse"]));
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.ask("ACL SETUSER few on >word ~* +@read"), "+OK");
    let word = folder.path().join("word");
    fs::write(&word, "word").unwrap();
    let word = word.to_str().unwrap();

    let authority = folder.path().join("none.crt");
    fs::write(&authority, "").unwrap();
    let wrong: [(&[&str], &str); 7] = [
        (&["--addr", &address, "--user", "few", "--password-file", word], "this user may not see the state"),
        (&["--addr", &address, "--user", "nobody", "--password-file", word], "the password is refused"),
        (&["--addr", &http, password[0], password[1]], "not that of a node's port for Redis clients"),
        (&["--addr", &peer, password[0], password[1]], "not that of a node's port for Redis clients"),
        (&["--addr", &address, "--tls"], "no TLS connection comes about"),
        (&["--addr", "no-such-host.invalid:7000"], "the host is not known"),
        (&["--addr", &address, "--cacert", authority.to_str().unwrap()], "none.crt"),
    ];
    for (arguments, why) in wrong {
        for command in [&["status"][..], &["top", "--count", "1"]] {
            let (code, output) = run(&[command, arguments].concat());
            assert!(
                code == 3 && (command[0] == "top" || output.contains(why)),
                "{command:?} {arguments:?}: {code} {output}"
            );
        }
        let (_, json) = run(&[&["status", "--json"], arguments].concat());
        let unknown = serde_json::from_str::<Value>(&json).map(|json| json["state"] == "unknown");
        assert!(unknown.unwrap_or(json.contains("none.crt")), "{arguments:?}: {json}");
    }
    // A proxy whose node is down accepts connections and closes them: for its users, the node is down.
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address_of_proxy = at(proxy.local_addr().unwrap().port());
    std::thread::spawn(move || proxy.incoming().for_each(drop));
    for command in [&["status"][..], &["status", "--here"]] {
        let (code, output) = run(&[command, &["--addr", &address_of_proxy]].concat());
        assert!(code == 2 && output.contains("whose node is down"), "{code} {output}");
    }
    for usage in [&["status", "--adr", &address][..], &["top", "--count", "none"], &["status", "extra"]] {
        assert_eq!(run(usage).0, 3, "{usage:?}");
    }
    assert_eq!(run(&["keyspace", "nonsense"]).0, 2, "other commands keep the usual code");
    assert_eq!(run(&["status", "--help"]).0, 0);
    assert_eq!(run(&["status", "--addr", &address, password[0], password[1]]).0, 0);
    drop(server);
    assert_eq!(run(&["status", "--addr", &address, password[0], password[1]]).0, 2, "an outage");
}

#[test]
fn twenty_keyspaces_stay_readable() {
    let server = Server::start("", "");
    let address = at(server.client_port);
    let mut client = server.client();
    for at in 1..=20 {
        assert_eq!(client.ask(&format!("KEYSPACE CREATE app{at}:")), "+OK");
    }
    let status = ["status", "--addr", &address];
    let output =
        until_it_says(&status, 0, &["21 keyspaces, 0 keys, ", ": 'default', 'app1:', 'app2:', 'app3:'"]);
    assert!(output.lines().count() < 20, "{output}");
    let (risks, nodes) = (output.find("what to know").unwrap(), output.find("\nnodes").unwrap());
    assert!(risks < nodes && nodes < output.find("\nkeyspaces").unwrap(), "risks are first: {output}");
    assert!(output.contains("and 20 more like it: keyspace 'app1:'"), "{output}");
    assert_eq!(client.ask("SET app7:k v"), "+OK");
    let all =
        until_it_says(&[&status[..], &["--all"]].concat(), 0, &["'app7:', 1 key, ", "'app20:', 0 keys, "]);
    assert!(all.lines().count() > 80, "{all}");
}

#[test]
fn nodes_of_two_clusters_are_not_taken_for_one() {
    let one = Server::start("", "");
    let base = free_ports(3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quorate.toml");
    let text = configuration(base, 1, "", "").replace("cluster = \"test\"", "cluster = \"other\"");
    fs::write(&file, text).unwrap();
    let mut other = quorate().arg("server").arg("--config").arg(&file).stderr(Stdio::null()).spawn().unwrap();
    let (first, second) = (at(one.client_port), at(base));
    until_it_says(&["status", "--addr", &second], 0, &["other: healthy"]);
    until_it_says(
        &["status", "--addr", &first, "--addr", &second],
        1,
        &["it is a node of cluster 'other', and others asked are of cluster 'test'"],
    );
    signal(other.id(), Signal::TERM);
    assert_eq!(wait(&mut other), 0);
}

#[test]
fn top_shows_the_rates_of_nodes() {
    let server = Server::start("", "");
    let address = at(server.client_port);
    let mut top = quorate()
        .args(["top", "--addr", &address, "--interval", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap());
    let mut client = server.client();
    // The first update has no rates; a later one has the rates since the one before.
    let mut seen = Vec::new();
    until("rates are shown", || {
        assert_eq!(client.ask("SET key value"), "+OK");
        assert_eq!(client.ask("GET key"), "$5");
        client.line();
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it has ended: {seen:?}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |name: &str| -> f64 {
            let at = words.iter().position(|word| *word == name);
            at.map_or(0.0, |at| words[at + 1].parse().unwrap())
        };
        let is_seen = match words[0] {
            "node" => value("operations/s") > 0.0 && value("in_bytes/s") > 0.0,
            "keyspace" => value("records/s") > 0.0 && value("keys") == 1.0,
            _ => false,
        };
        if is_seen && !seen.contains(&words[0].to_owned()) {
            seen.push(words[0].to_owned());
        }
        seen.len() == 2
    });
    signal(top.id(), Signal::INT);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(wait(&mut top), 0);
    assert!(!rest.contains('\x1b'), "{rest:?}");

    let (code, output) = run(&["top", "--addr", &address, "--count", "2", "--interval", "1"]);
    let begins = |word: &str| output.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(
        (code, begins("cluster test state healthy"), begins("node 1 state up")),
        (0, 2, 2),
        "{output}"
    );
    let process = server.process();
    drop(server);
    assert!(!is_running(process));
    let (code, output) = run(&["top", "--addr", &address, "--count", "1"]);
    assert!(code == 2 && output.contains("risk unreachable no node could be queried"), "{output}");
}
