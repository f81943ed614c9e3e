//! `quorate recover`: a majority of the control nodes is lost, and the cluster continues with what is left.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::support::{Client, Cluster, free_ports, is_running, quorate, signal, try_http, until};

/// A node that was started separately. It ends with the test.
struct Node {
    child: Child,
    log: PathBuf,
}

impl Node {
    fn start(folder: &Path) -> Node {
        let log = folder.join("again.log");
        let errors = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = quorate();
        command.arg("server").arg("--config").arg(folder.join("quorate.toml")).stdout(Stdio::null());
        Node { child: command.stderr(errors).spawn().unwrap(), log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log());
        }
    }
}

/// Runs a command to its end. Returns its exit code, and its output.
fn run(words: &[&str]) -> (i32, String) {
    let output = quorate().args(words).output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), text)
}

#[track_caller]
fn done(words: &[&str]) -> String {
    let (code, text) = run(words);
    assert_eq!(code, 0, "{words:?}: {text}");
    text
}

#[track_caller]
fn refused(words: &[&str], why: &str) {
    let (code, text) = run(words);
    assert!(code == 1 && text.contains(why), "{words:?}: {code} {text}");
}

/// Sends a command until its reply is this one.
#[track_caller]
fn until_replied(port: u16, request: &str, reply: &str) {
    let mut last = String::new();
    until(&format!("{request} gets {reply}"), || {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            return false; // It is about to start.
        }
        let mut client = Client::connect(port);
        last = client.ask(request);
        if last.starts_with('$') && last != "$-1" {
            last = client.line();
        }
        last == reply
    });
}

/// Writes a key and waits until this many other replicas have it: a majority may consist of nodes that are about to
/// be lost.
#[track_caller]
fn write_everywhere(port: u16, key: &str, others: u16) {
    let mut last = String::new();
    until(&format!("{others} others have {key}"), || {
        let mut client = Client::connect(port);
        let set = client.ask(&format!("SET {key} before"));
        last = client.ask(&format!("WAIT {others} 5000"));
        set == "+OK" && last == format!(":{others}")
    });
}

/// Kills a cluster with all its nodes, at once.
fn kill(mut cluster: Cluster, nodes: u16) {
    let processes: Vec<u32> = (1..=nodes).map(|id| cluster.process(id)).collect();
    cluster.signal(Signal::STOP);
    processes.iter().for_each(|process| signal(*process, Signal::KILL));
    cluster.stop(Signal::KILL);
    until("the nodes end", || !processes.iter().any(|process| is_running(*process)));
}

#[test]
fn five_nodes_lose_three_and_the_other_two_continue() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(21);
    let keyspaces = [
        "prefix=three: replicas=3 leader=3",
        "prefix=lf: replication=leader-follower acks=all durability=fsync",
        "prefix=reg: replication=abd durability=fsync",
    ];
    let (cluster, _) = Cluster::start_spaced(folder.path(), base, 5, 7, &keyspaces);
    write_everywhere(base, "k", 4);
    for key in ["three:k", "lf:k", "reg:k"] {
        until_replied(base, &format!("SET {key} before"), "+OK");
    }
    let token = |port: u16, owner: &str| -> u64 {
        let reply = Client::connect(port).ask(&format!("LOCK job {owner} PX 100 WAIT 10000"));
        reply.trim_start_matches(':').parse().expect("a token")
    };
    let token_before = token(base, "ann");
    let nodes: Vec<PathBuf> = (0..=6).map(|id| cluster.node(id)).collect();
    let configs: Vec<String> =
        nodes.iter().map(|node| node.join("quorate.toml").display().to_string()).collect();
    kill(cluster, 5);

    // Only stopped nodes.
    let running = Node::start(&nodes[4]);
    until("the node holds its folder", || {
        nodes[4].join("quorate.pid").exists() && running.log().contains("started")
    });
    refused(&["recover", "--config", &configs[4]], "in use by process");
    drop(running);

    // Each folder on a machine of its own: what is found is exchanged as files.
    let facts: Vec<String> =
        (0..=5).map(|id| folder.path().join(format!("facts-{id}.json")).display().to_string()).collect();
    done(&["recover", "--config", &configs[4], "--save", &facts[4]]);
    done(&["recover", "--config", &configs[5], "--save", &facts[5]]);
    let output = done(&["recover", "--config", &configs[4], "--with", &facts[5]]);
    for sentence in [
        "changes of the map after version ",
        "'default' shard 0 of nodes [1, 2, 3, 4, 5] [4, 5] are left: goes on at node ",
        "a majority of its replicas is lost, so the latest acknowledged writes may be",
        "'three:' shard 0 of nodes [3, 4, 5] [4, 5] are left: goes on; nothing is lost",
        "'lf:' shard 0 of nodes [1, 2, 3, 4, 5] [4, 5] are left: goes on; nothing is lost",
        "'reg:' shard 0 of nodes [1, 2, 3, 4, 5] [4, 5] are left: stands still",
        "Nothing was changed.",
        "quorate node replace 1 --accept-loss",
        "quorate keyspace recover 'reg:' --accept-loss",
    ] {
        assert!(output.contains(sentence), "{sentence} in {output}");
    }
    let json = |own: usize, other: usize| -> Value {
        serde_json::from_str(&done(&[
            "recover",
            "--json",
            "--config",
            &configs[own],
            "--with",
            &facts[other],
        ]))
        .unwrap()
    };
    let (at_four, at_five) = (json(4, 5), json(5, 4));
    assert_eq!(at_four["recovery"], at_five["recovery"], "both machines make the same plan");
    assert_eq!((&at_four["lost"], &at_four["needed"]), (&serde_json::json!([1, 2, 3]), &Value::Bool(true)));
    // With a majority of the control nodes a recovery is not needed.
    refused(
        &[
            "recover",
            "--accept-loss",
            "--dir",
            nodes[1].to_str().unwrap(),
            "--config",
            &configs[3],
            "--config",
            &configs[4],
        ],
        "nothing has to be recovered",
    );

    let output = done(&["recover", "--accept-loss", "--config", &configs[4], "--with", &facts[5]]);
    let copy = nodes[4].join("quorate.before-recovery-1");
    assert!(output.contains(&format!("Its previous log: {}", copy.display())), "{output}");
    assert!(copy.join("storage/manifest").exists() && copy.join("facts.json").exists());
    // An interrupted recovery cannot be repeated with one half of the folders.
    refused(
        &["recover", "--config", &configs[4], "--config", &configs[5]],
        "different histories of the cluster",
    );
    done(&[
        "recover",
        "--accept-loss",
        "--config",
        &configs[5],
        "--with",
        &format!("{}/facts.json", copy.display()),
    ]);

    let (four, five) = (Node::start(&nodes[4]), Node::start(&nodes[5]));
    for key in ["k", "three:k", "lf:k"] {
        until_replied(base + 3, &format!("GET {key}"), "before");
        until_replied(base + 4, &format!("GET {key}"), "before");
        until_replied(base + 4, &format!("SET {key} after"), "+OK");
        until_replied(base + 3, &format!("GET {key}"), "after");
    }

    // The lost nodes may have granted the lock repeatedly.
    let token_after = token(base + 3, "bob");
    assert!(token_after > token_before + (1 << 40), "{token_before}, and then {token_after}");

    // The lost nodes return with their old folders, and are a majority of the old control group. They learn that they were
    // left behind, serve nothing, and do no harm.
    let old: Vec<Node> = (1..=3).map(|id| Node::start(&nodes[id])).collect();
    for (place, node) in old.iter().enumerate() {
        until("an old node learns that it was left behind", || {
            node.log().contains("the cluster was recovered without this node's folder")
        });
        until("it serves nothing", || {
            let health = try_http(base + 7 + place as u16, "GET /health HTTP/1.1", "");
            health.is_some_and(|(status, _)| status == 503)
        });
        let reply = Client::connect(base + place as u16).ask("SET k old");
        assert!(reply.starts_with('-'), "{reply}");
    }
    until("the others say why", || four.log().contains("was not part of the recovery"));
    drop(old);
    until_replied(base + 3, "GET k", "after");

    // A new node joins.
    let joined = nodes[6].to_str().unwrap();
    done(&["join", "--like", &configs[4], "--dir", joined, "--id", "6"]);
    let six = Node::start(&nodes[6]);
    until_replied(base + 5, "SET k from-six", "+OK");
    until_replied(base + 3, "GET k", "from-six");

    // Registers without a majority are given up by dropping their keyspace; then the lost nodes can be removed.
    let address = format!("127.0.0.1:{}", base + 3);
    // Nobody can tell that the lost nodes answer for it no more.
    refused(&["keyspace", "--addr", &address, "drop", "reg:", "--yes"], "UNKNOWN keyspace 'reg:' is dropped");
    for id in ["1", "2", "3"] {
        for verb in [&["replace", id, "--accept-loss"], &["remove", id, "--force"]] {
            until("the lost node is given up", || {
                run(&[&["node", "--addr", &address][..], verb].concat()).0 == 0
            });
        }
    }
    until("three nodes are left", || {
        let list = run(&["node", "--addr", &address, "--json", "list"]).1;
        serde_json::from_str::<Value>(&list)
            .is_ok_and(|list| list.as_array().is_some_and(|list| list.len() == 3))
    });
    until("the control group has its members again", || {
        let mut client = Client::connect(base + 3);
        client.send("CLUSTER MAP\r\n");
        let head = client.line();
        let length: usize = head.trim_start_matches('$').parse().unwrap_or(0);
        let map: Value = serde_json::from_slice(&client.bytes(length)).unwrap_or_default();
        map["groups"]["0"]["members"] == serde_json::json!([4, 5, 6])
    });
    // It survives the next failure like any cluster.
    drop(five);
    until_replied(base + 3, "SET k at-last", "+OK");
    until_replied(base + 5, "GET k", "at-last");
    drop(six);
}

#[test]
fn three_nodes_lose_two_and_one_continues_until_the_others_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(9);
    let keyspaces = ["prefix=reg: replication=abd durability=fsync", "prefix=mem: replication=abd"];
    let (cluster, _) = Cluster::start_with(folder.path(), base, 3, &keyspaces);
    write_everywhere(base, "k", 2);
    until_replied(base, "SET reg:k before", "+OK");
    let nodes: Vec<PathBuf> = (0..=3).map(|id| cluster.node(id)).collect();
    kill(cluster, 3);
    for id in [1, 2] {
        for name in ["storage", "quorate.home", "quorate.record"] {
            let path = nodes[id].join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
    let dir = nodes[3].to_str().unwrap();
    refused(&["recover", "--dir", nodes[1].to_str().unwrap()], "holds nothing of a node");
    refused(&["recover", "--dir", folder.path().to_str().unwrap()], "there is no quorate.toml");
    refused(&["recover"], "give the folders that are left");
    let output = done(&["recover", "--dir", dir]);
    assert!(output.contains("goes on at node 3 alone"), "{output}");
    let output: Value =
        serde_json::from_str(&done(&["recover", "--dir", dir, "--accept-loss", "--json"])).unwrap();
    let steps: Vec<&str> = output["next"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let commands: Vec<Vec<&str>> = steps
        .iter()
        .map(|step| step.split("   ").next().unwrap().strip_prefix("quorate ").unwrap())
        .map(|command| command.split(' ').map(|word| word.trim_matches('\'')).collect())
        .collect();
    assert_eq!(commands.len(), 5, "start, two to replace, two to recover: {steps:?}");
    assert_eq!(commands[0][0], "server");
    let _three = Node::start(&nodes[3]);
    until_replied(base + 2, "GET k", "before");
    until_replied(base + 2, "SET k after", "+OK");

    // The machines of the lost nodes return, with empty folders.
    let _others: Vec<Node> = [1, 2].into_iter().map(|id| Node::start(&nodes[id])).collect();
    for command in &commands[1..] {
        // A node is found dead, or has copied everything, after a moment.
        until(&format!("{command:?} works as it was printed"), || run(command).0 == 0);
    }
    until_replied(base, "GET k", "after");
    until_replied(base, "SET reg:k after", "+OK");
    until_replied(base + 1, "GET reg:k", "after");
    until_replied(base + 1, "SET mem:k after", "+OK");
    until_replied(base + 1, "SET k again", "+OK");
    until_replied(base + 2, "GET k", "again");
}
