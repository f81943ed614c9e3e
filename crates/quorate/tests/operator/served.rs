//! One keyspace is not served, and all others are: nodes stay ready for clients, and what concerns all keys is answered, or
//! names what is missing.

use serde_json::Value;

use super::started::{Restarted, Started};
use super::support::{quorate, until};

/// A keyspace that keeps its data in memory, and one that does not.
pub(crate) const KEYSPACES: [&str; 2] =
    ["prefix=r: replication=abd", "prefix=cart: replication=leader-follower acks=majority"];

/// Starts three nodes of which two have forgotten what they held in `r:`, so that it waits for an operator.
pub(crate) fn without_registers() -> (Started, Vec<Restarted>) {
    let started = Started::new(3, &KEYSPACES);
    for key in ["k", "r:k", "cart:k"] {
        assert_eq!(started.ask(1, &format!("SET {key} 1")), "+OK");
    }
    started.kill_all(&[2, 3]);
    let nodes = [2, 3].map(|node| started.spawn(node)).into_iter().collect();
    for node in 1..=3 {
        until("it says that it stands still", || {
            let (status, health) = health(&started, node, "?keyspace=r:");
            status == 503 && health["keyspaces"][0]["explanation"].to_string().contains("KEYSPACE RECOVER")
        });
    }
    (started, nodes)
}

fn health(started: &Started, node: u16, query: &str) -> (u16, Value) {
    started.try_http(node, &format!("GET /health{query} HTTP/1.1"), "").unwrap_or_default()
}

/// Runs `quorate` at a node. Returns its exit code, and its output with its errors behind.
pub(crate) fn run(started: &Started, node: u16, arguments: &[&str]) -> (i32, String) {
    let address = format!("127.0.0.1:{}", started.cluster.base + node - 1);
    let output = quorate().args(arguments).args(["--addr", &address]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn nodes_are_ready_while_a_keyspace_waits_for_an_operator() {
    let (started, _nodes) = without_registers();
    for node in 1..=3 {
        until("clients may be sent to it", || health(&started, node, "").0 == 200);
        assert_eq!(health(&started, node, "").1["ready"], true);
        for (query, expected) in [
            ("?all", 503),
            ("?keyspace=cart:", 200),
            ("?keyspace=", 200),
            ("?keyspace=cart:&keyspace=r:", 503),
        ] {
            let (status, body) = health(&started, node, query);
            assert_eq!((status, body["ready"] == true), (expected, expected == 200), "{query}: {body}");
        }
        let (status, body) = health(&started, node, "?keyspace=nope:");
        assert!(status == 404 && body["error"].to_string().contains("no keyspace 'nope:'"), "{body}");
        assert_eq!(health(&started, node, "?keyspaces=r:").0, 400);

        let (code, text) = run(&started, node, &["status", "--here"]);
        assert_eq!(code, 0, "{text}");
        assert!(
            text.starts_with(&format!("node {node} serves, but not keyspace 'r:': nodes 2, 3,")),
            "{text}"
        );
        let (code, text) = run(&started, node, &["status", "--here", "--keyspace", "r:"]);
        assert!(
            code == 2 && text.starts_with(&format!("node {node} does not serve: keyspace 'r:'")),
            "{text}"
        );
        let (code, text) = run(&started, node, &["status", "--here", "--all"]);
        assert!(
            code == 2 && text.starts_with(&format!("node {node} does not serve: keyspace 'r:'")),
            "{text}"
        );
        let serves = (0, format!("node {node} serves\n"));
        assert_eq!(
            run(&started, node, &["status", "--here", "--keyspace", "cart:", "--keyspace", ""]),
            serves
        );
        let (code, text) = run(&started, node, &["status", "--here", "--keyspace", "nope:"]);
        assert!(code > 1 && text.contains("knows no keyspace 'nope:'"), "{text}");
    }
}

/// All keys of a walk, sorted; or the error that ended it.
fn scan(client: &mut redis::Connection, options: &[&str]) -> Result<Vec<String>, String> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let step = redis::cmd("SCAN").arg(&cursor).arg(options).query::<(String, Vec<String>)>(client);
        let (next, keys) = step.map_err(|error| error.to_string())?;
        found.extend(keys);
        if next == "0" {
            found.sort();
            return Ok(found);
        }
        cursor = next;
    }
}

#[test]
fn commands_on_all_keys_answer_without_a_keyspace_or_name_it() {
    let (started, _nodes) = without_registers();
    // Node 1 still holds what the registers were, and answers KEYS and the like with that.
    for node in [2, 3] {
        let url = format!("redis://127.0.0.1:{}", started.cluster.base + node - 1);
        let mut client = redis::Client::open(url).unwrap().get_connection().unwrap();
        let ask = |client: &mut redis::Connection, words: &[&str]| {
            redis::cmd(words[0])
                .arg(&words[1..])
                .query::<Vec<String>>(client)
                .map_err(|error| error.to_string())
        };
        assert_eq!(ask(&mut client, &["KEYS", "cart:*"]), Ok(vec!["cart:k".to_owned()]));
        assert_eq!(scan(&mut client, &["MATCH", "cart:*"]), Ok(vec!["cart:k".to_owned()]));
        assert_eq!(scan(&mut client, &["MATCH", "k"]), Ok(vec!["k".to_owned()]));
        let wholes = [
            ask(&mut client, &["DBSIZE"]).map(drop),
            ask(&mut client, &["KEYS", "*"]).map(drop),
            ask(&mut client, &["KEYS", "r:*"]).map(drop),
            scan(&mut client, &[]).map(drop),
        ];
        for error in wholes.map(Result::unwrap_err) {
            let has = |text: &str| error.contains(text);
            assert!(
                has("NOQUORUM") && has("keyspace 'r:' cannot answer") && has("KEYSPACE RECOVER"),
                "node {node}: {error}"
            );
        }
        let random: String = redis::cmd("RANDOMKEY").query(&mut client).unwrap();
        assert!(["k", "cart:k"].contains(&random.as_str()), "{random}");
    }
}

/// Consensus keyspaces only, since registers cannot be emptied at all. One of them has its two replicas on dead nodes.
#[test]
fn flushall_empties_what_is_served_and_names_the_rest() {
    let started = Started::new(5, &["prefix=far: replication=consensus replicas=1"]);
    let holder = started.group(1, "far:")["members"][0].as_u64().unwrap() as u16;
    let other = if holder == 1 { 2 } else { 1 };
    for key in ["k", "far:k"] {
        assert_eq!(started.ask(other, &format!("SET {key} 1")), "+OK");
    }
    started.kill(holder);
    until("it is noticed", || health(&started, other, "?keyspace=far:").0 == 503);
    until("the others go on", || started.ask(other, "SET k 1") == "+OK");
    let error = started.ask(other, "FLUSHALL");
    assert!(error.starts_with("-UNKNOWN not all keys were removed: keyspace 'far:' failed"), "{error}");
    assert_eq!(started.ask(other, "EXISTS k"), ":0");
    let error = started.ask(other, "DBSIZE");
    assert!(error.starts_with("-CLUSTERDOWN") && error.contains("keyspace 'far:' cannot answer"), "{error}");
}
