//! HTTP at a node that does not lead.

use serde_json::json;

use crate::support::{Cluster, ask};

#[test]
fn values_are_put_read_and_deleted_at_every_node() {
    let cluster = Cluster::start(3, &[]);
    for id in 1..=3 {
        let body = json!({ "key": "k", "value": format!("v{id}") }).to_string();
        let (status, put) = cluster.http(id, "POST /put HTTP/1.1", &body);
        assert_eq!(status, 200, "{put}");
        for reader in 1..=3 {
            let (status, read) = cluster.http(reader, "GET /get/k HTTP/1.1", "");
            assert_eq!(
                (status, &read["value"], &read["version"]),
                (200, &json!(format!("v{id}")), &put["version"])
            );
        }
        assert_eq!(ask(&mut cluster.client(id), "GET k"), format!("\"v{id}\""));
        let (status, deleted) = cluster.http(id, "DELETE /k HTTP/1.1", "");
        assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
        let (status, deleted) = cluster.http(id, "DELETE /k HTTP/1.1", "");
        assert_eq!((status, &deleted["deleted"]), (200, &json!(false)));
        assert_eq!(cluster.http(id, "GET /get/k HTTP/1.1", "").0, 404);
    }
}

#[test]
fn invalid_requests_are_refused_each_with_its_status() {
    let cluster = Cluster::start_with(1, &[], "value_bytes_max = 100000");
    let status = |head: &str, body: &str| cluster.http(1, head, body).0;
    assert_eq!(status("GET /nosuch HTTP/1.1", ""), 404);
    assert_eq!(status("GET /get/nothing HTTP/1.1", ""), 404);
    assert_eq!(status("PUT /put HTTP/1.1", "{}"), 405);
    assert_eq!(status("POST /health HTTP/1.1", "{}"), 405);
    assert_eq!(status("POST /put HTTP/1.1", "not json"), 400);
    assert_eq!(status("POST /put HTTP/1.1", "{\"key\": \"k\"}"), 400);
    assert_eq!(status("POST /put HTTP/1.1", "{\"key\": \"k\", \"value\": \"v\", \"tll_ms\": 1}"), 400);
    let long = json!({ "key": "k", "value": "v".repeat(100_001) }).to_string();
    assert_eq!(status("POST /put HTTP/1.1", &long), 413, "a value over the limit");
    assert_eq!(status("POST /put HTTP/1.1", &"x".repeat(1_000_000)), 413, "a body over every limit");
    let record = json!({ "key": "k", "value": "v", "version": 7 }).to_string();
    assert_eq!(status("POST /replicate HTTP/1.1", &record), 401);
    assert_eq!(status("POST /replicate HTTP/1.1\r\nAuthorization: Bearer wrong", &record), 401);
    assert_eq!(cluster.http(1, "GET /health HTTP/1.1", "").0, 200, "and it goes on serving");
    assert_eq!(ask(&mut cluster.client(1), "DBSIZE"), "0");
}

#[test]
fn a_record_is_replicated_with_the_secret_and_only_if_it_is_newer() {
    let cluster = Cluster::start(3, &[]);
    let secret = cluster.configured(2, "secret");
    let head = format!("POST /replicate HTTP/1.1\r\nAuthorization: Bearer {secret}");
    let replicate = |value: &str, version: u64| {
        let body = json!({ "key": "k", "value": value, "version": version }).to_string();
        let (status, answer) = cluster.http(2, &head, &body);
        assert_eq!(status, 200, "{answer}");
        (answer["applied"].as_bool().unwrap(), answer["version"].as_u64().unwrap())
    };
    assert_eq!(replicate("new", 1000), (true, 1000));
    assert_eq!(replicate("old", 999), (false, 1000));
    assert_eq!(replicate("same", 1000), (false, 1000));
    assert_eq!(ask(&mut cluster.client(3), "GET k"), "\"new\"");
    assert_eq!(replicate("newer", 1001), (true, 1001));
    assert_eq!(ask(&mut cluster.client(3), "GET k"), "\"newer\"");
}

#[test]
fn health_and_metrics_describe_each_node() {
    let cluster = Cluster::start(3, &["prefix= replication=leader-follower acks=majority"]);
    assert_eq!(ask(&mut cluster.client(2), "SET k v"), "OK");
    cluster.wait_until_equal();
    for id in 1..=3 {
        let health = cluster.health(id);
        assert_eq!((&health["ready"], &health["node"]), (&json!(true), &json!(id)));
        let role = if id == 1 { "leader" } else { "follower" };
        assert_eq!(health["role"], role);
        assert_eq!(cluster.counter(id, "leader"), u64::from(id == 1));
        assert_eq!(cluster.counter(id, "keys"), 1);
        assert_eq!(cluster.counter(id, "lag_records"), 0);
    }
    let (status, text) = cluster.http(2, "GET /metrics HTTP/1.1", "");
    let forwarded =
        text.as_str().unwrap().lines().find_map(|line| line.strip_prefix("quorate_forwarded_total "));
    assert_eq!(status, 200);
    assert!(forwarded.unwrap().parse::<u64>().unwrap() >= 1);
}
