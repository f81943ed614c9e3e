//! Keyspaces over HTTP, and the health and metrics of the cluster.

use serde_json::{Value, json};

use super::started::Started;
use super::support::{http, until};

fn ask(started: &Started, node: u16, head: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, body) = http(started.cluster.http_port(node), &format!("{head} HTTP/1.1"), &body);
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

#[test]
fn keyspaces_are_created_listed_changed_and_dropped_at_any_node() {
    let started = Started::new(3, &[]);
    let settings = json!({ "prefix": "a%b/", "replication": "leader-follower", "acks": "all", "shards": 2, "leader": 1 });
    let (status, made) = ask(&started, 2, "POST /keyspaces", &settings);
    assert_eq!((status, &made["acks"], &made["shards"]), (201, &json!("all"), &json!(2)), "{made}");

    let (status, listed) = ask(&started, 2, "GET /keyspaces", &Value::Null);
    let prefixes: Vec<&Value> =
        listed.as_array().unwrap().iter().map(|keyspace| &keyspace["prefix"]).collect();
    assert_eq!((status, prefixes), (200, vec![&json!(""), &json!("a%b/")]));
    let groups = listed[1]["groups"].as_array().unwrap();
    let slots: Vec<&Value> = groups.iter().map(|group| &group["slots"]).collect();
    assert_eq!(slots, [&json!({"first": 0, "last": 8191}), &json!({"first": 8192, "last": 16383})]);
    for (shard, group) in groups.iter().enumerate() {
        assert_eq!((&group["shard"], &group["members"]), (&json!(shard), &json!([1, 2, 3])), "{group}");
        assert_eq!(group["in_sync"], json!([1, 2, 3]), "{group}");
        assert_eq!(group["leader"], json!(shard + 1), "leaders are spread: {group}");
        assert!(group["id"].as_u64() > Some(0) && group["epoch"].as_u64() > Some(0), "{group}");
    }

    let (status, changed) = ask(&started, 3, "PATCH /keyspaces/a%25b/", &json!({ "acks": "majority" }));
    assert_eq!((status, &changed["acks"]), (200, &json!("majority")), "{changed}");
    let (status, dropped) = ask(&started, 1, "DELETE /keyspaces/a%25b/", &Value::Null);
    assert_eq!((status, dropped), (200, json!({ "prefix": "a%b/", "dropped": true })));
    until("all nodes know", || {
        (1..=3)
            .all(|node| ask(&started, node, "GET /keyspaces", &Value::Null).1.as_array().unwrap().len() == 1)
    });
}

#[test]
fn impossible_requests_are_refused_in_json_each_with_its_status() {
    let started = Started::new(1, &["prefix=x: replication=leader-follower"]);
    let no = Value::Null;
    let cases = [
        ("POST /keyspaces", json!({ "prefix": "x:" }), 409, "EXISTS", "it is there already"),
        ("POST /keyspaces", json!({ "replication": "abd" }), 400, "BADREQUEST", "needs a \"prefix\""),
        (
            "POST /keyspaces",
            json!({ "prefix": "y:", "colour": "red" }),
            400,
            "ERR",
            "there is no setting 'colour'",
        ),
        (
            "POST /keyspaces",
            json!({ "prefix": "y:", "shards": [1] }),
            400,
            "BADREQUEST",
            "string or a number",
        ),
        (
            "POST /keyspaces",
            json!({ "prefix": "y:", "durability": "none" }),
            400,
            "ERR",
            "forgets its promises",
        ),
        ("PATCH /keyspaces/y:", json!({ "acks": "all" }), 404, "NOTFOUND", "there is no keyspace 'y:'"),
        ("PATCH /keyspaces/x:", json!({}), 400, "BADREQUEST", "no setting"),
        ("PATCH /keyspaces/x:", json!({ "shards": 2 }), 400, "ERR", "shards cannot be changed"),
        ("DELETE /keyspaces/y:", no.clone(), 404, "NOTFOUND", "there is no keyspace 'y:'"),
        ("DELETE /keyspaces/", no.clone(), 400, "ERR", "the default keyspace cannot be dropped"),
        ("DELETE /keyspaces/x:?force", no.clone(), 400, "BADREQUEST", "takes no query"),
        ("PUT /keyspaces", no.clone(), 405, "METHOD", "GET, POST"),
        ("GET /keyspaces/x:", no, 405, "METHOD", "PATCH, DELETE"),
    ];
    for (head, body, status, code, text) in cases {
        let (actual, answer) = ask(&started, 1, head, &body);
        assert_eq!((actual, answer["code"].as_str().unwrap()), (status, code), "{head} {body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(text), "{head} {body}: {answer}");
    }
    // Percent-encoded, it is an ordinary key.
    let (status, deleted) = ask(&started, 1, "DELETE /keyspaces%2Fx:", &Value::Null);
    assert_eq!((status, &deleted["deleted"]), (200, &json!(false)));
}

#[test]
fn health_and_metrics_describe_the_map_its_leader_and_the_log() {
    let started = Started::new(3, &["prefix=s: shards=2 replication=leader-follower"]);
    let leaders = || (1..=3).map(|node| started.health(node)["control_leader"].clone()).collect::<Vec<_>>();
    until("all know the same control leader", || {
        let leaders = leaders();
        leaders[0] != json!(0) && leaders.iter().all(|leader| *leader == leaders[0])
    });
    let health = started.health(1);
    assert!(
        health["map_version"].as_u64() >= Some(1) && health["journal_bytes"].as_u64() > Some(0),
        "{health}"
    );
    assert_eq!(health["disk_full"], json!(false));

    let (_, text) = http(started.cluster.http_port(1), "GET /metrics HTTP/1.1", "");
    for name in ["map_version", "control_leader", "journal_bytes"] {
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("quorate_{name} ")));
        assert!(value.is_some_and(|value| value.parse::<u64>().unwrap() > 0), "{name} in\n{text}");
    }
    assert!(text.contains("\nquorate_disk_full 0\n"));
    let mut series: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|it| it.0)
        .collect();
    let count = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), count, "every series is reported once, those of shards too");
}
