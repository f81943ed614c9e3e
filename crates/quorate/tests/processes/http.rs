//! HTTP: every endpoint, and every kind of wrong request.

use std::io::{Read, Write};

use serde_json::json;

use super::support::{SECRET, Server, connect, until};

#[test]
fn values_are_put_read_and_deleted() {
    let server = Server::start("", "");
    let (status, put) = server.json("POST /put HTTP/1.1", r#"{"key": "greeting", "value": "hello"}"#);
    assert_eq!((status, &put["key"]), (200, &json!("greeting")));
    let version = put["version"].as_u64().unwrap();

    let (status, got) = server.json("GET /get/greeting HTTP/1.1", "");
    assert_eq!((status, got), (200, json!({ "key": "greeting", "value": "hello", "version": version })));
    assert_eq!(server.client().ask("GET greeting"), "$5", "it is the same store");

    let (_, put) = server.json("POST /put HTTP/1.1", r#"{"key": "greeting", "value": "again"}"#);
    assert!(put["version"].as_u64().unwrap() > version);

    let deleted = |deleted| (200, json!({ "key": "greeting", "deleted": deleted }));
    assert_eq!(server.json("DELETE /greeting HTTP/1.1", ""), deleted(true));
    assert_eq!(server.json("DELETE /greeting HTTP/1.1", ""), deleted(false));
    let (status, answer) = server.json("GET /get/greeting HTTP/1.1", "");
    assert_eq!((status, answer), (404, json!({ "error": "no such key", "code": "NOTFOUND" })));
}

#[test]
fn a_value_with_a_lifetime_is_returned_with_its_end() {
    let server = Server::start("", "");
    let (status, _) = server.json("POST /put HTTP/1.1", r#"{"key": "k", "value": "v", "ttl_ms": 60000}"#);
    assert_eq!(status, 200);
    let (_, got) = server.json("GET /get/k HTTP/1.1", "");
    let now_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let left = got["expires_at_ms"].as_u64().unwrap().saturating_sub(now_ms);
    assert!((1..=60_000).contains(&left), "{got}");
    let (status, answer) = server.json("POST /put HTTP/1.1", r#"{"key": "k", "value": "v", "ttl_ms": 0}"#);
    assert_eq!((status, answer["code"].as_str()), (400, Some("ERR")));
}

#[test]
fn keys_and_values_may_be_any_bytes() {
    let server = Server::start("", "");
    let (status, _) = server.json("POST /put HTTP/1.1", r#"{"key": "a/b c", "value_base64": "/wA="}"#);
    assert_eq!(status, 200);
    for path in ["/get/a/b%20c", "/get/a%2Fb%20c"] {
        let (status, got) = server.json(&format!("GET {path} HTTP/1.1"), "");
        assert_eq!((status, &got["key"], &got["value_base64"]), (200, &json!("a/b c"), &json!("/wA=")));
        assert_eq!(got.get("value"), None);
    }
    let (_, put) = server.json("POST /put HTTP/1.1", r#"{"key_base64": "/w==", "value": "v"}"#);
    assert_eq!(put["key_base64"], "/w==");
    assert_eq!(server.json("GET /get/%ff HTTP/1.1", "").1["value"], "v");
    // For a deletion, a path with a special meaning is still a key.
    server.json("POST /put HTTP/1.1", r#"{"key": "health", "value": "v"}"#);
    assert_eq!(server.json("DELETE /health HTTP/1.1", "").1["deleted"], true);
}

#[test]
fn a_request_may_name_the_database_of_its_keys() {
    let server = Server::start("", "");
    let mut client = server.client();
    until("databases can be made", || client.ask("KEYSPACE CREATE @3") == "+OK");
    let body = r#"{"key": "k", "value": "in three"}"#;
    assert_eq!(server.json("POST /put?database=3 HTTP/1.1", body).0, 200);
    assert_eq!(server.json("GET /get/k?database=3 HTTP/1.1", "").1["value"], "in three");
    assert_eq!(server.json("GET /get/k HTTP/1.1", "").0, 404, "the next request is on database 0 again");
    assert_eq!(server.json("GET /get/k?database=0 HTTP/1.1", "").0, 404);
    let command = "POST /command?database=3 HTTP/1.1\r\nX-Quorate: test";
    assert_eq!(server.json(command, r#"{"command": ["STRLEN", "k"]}"#).1["reply"], 8);
    assert_eq!(client.ask("SELECT 3"), "+OK");
    assert_eq!(client.ask("GET k"), "$8", "it is the same store");
    assert_eq!(client.line(), "in three");
    assert_eq!(server.json("DELETE /k?database=3 HTTP/1.1", "").1["deleted"], true);
    for (query, why) in [("database=4", "database 4 does not exist yet"), ("database=16", "from 0 to 15")] {
        let (status, answer) = server.json(&format!("GET /get/k?{query} HTTP/1.1"), "");
        assert!(status == 400 && answer["error"].as_str().unwrap().contains(why), "{answer}");
    }
    // A user who may not select a database cannot reach it in this way either.
    assert_eq!(client.ask("ACL SETUSER ann on >secret ~* +@all -select"), "+OK");
    let ann = "Authorization: Basic YW5uOnNlY3JldA==";
    assert_eq!(server.json(&format!("GET /get/k HTTP/1.1\r\n{ann}"), "").0, 404);
    let (status, answer) = server.json(&format!("GET /get/k?database=3 HTTP/1.1\r\n{ann}"), "");
    assert_eq!((status, &answer["code"]), (403, &json!("NOPERM")), "{answer}");
}

#[test]
fn invalid_requests_are_refused_in_json() {
    let server = Server::start("", "[limits]\nvalue_bytes_max = 1000\n");
    let long = format!(r#"{{"key": "k", "value": "{}"}}"#, "x".repeat(1001));
    let longer = "x".repeat(1_000_000);
    let cases: [(&str, &str, u16); 17] = [
        ("POST /put HTTP/1.1", "", 400),
        ("POST /put HTTP/1.1", "{", 400),
        ("POST /put HTTP/1.1", "[1]", 400),
        ("POST /put HTTP/1.1", r#"{"key": "k"}"#, 400),
        ("POST /put HTTP/1.1", r#"{"value": "v"}"#, 400),
        ("POST /put HTTP/1.1", r#"{"key": "k", "value": 5}"#, 400),
        ("POST /put HTTP/1.1", r#"{"key": "k", "value": "v", "ttl": 5}"#, 400),
        ("POST /put HTTP/1.1", r#"{"key": "k", "value": "v", "ttl_ms": -5}"#, 400),
        ("POST /put HTTP/1.1", &long, 413),
        ("POST /put HTTP/1.1", &longer, 413),
        ("GET /put HTTP/1.1", "", 405),
        ("POST /get/k HTTP/1.1", "", 405),
        ("PUT /health HTTP/1.1", "", 405),
        ("DELETE / HTTP/1.1", "", 405),
        ("GET /get/ HTTP/1.1", "", 400),
        ("GET /get/%zz HTTP/1.1", "", 400),
        ("GET /nowhere HTTP/1.1", "", 404),
    ];
    for (head, body, expected) in cases {
        let (status, answer) = server.json(head, body);
        let shown = &body[..body.len().min(80)];
        assert_eq!(status, expected, "{head} {shown}: {answer}");
        assert!(answer["error"].is_string() && answer["code"].is_string(), "{head} {shown}: {answer}");
    }
    assert_eq!(server.client().ask("PING"), "+PONG");
}

#[test]
fn records_are_replicated_with_the_secret_and_only_if_newer() {
    let server = Server::start("", "");
    let replicate = |authorization: &str, version: u64| {
        let body = format!(r#"{{"key": "k", "value": "v{version}", "version": {version}}}"#);
        server.json(&format!("POST /replicate HTTP/1.1{authorization}"), &body)
    };
    for wrong in ["", "\r\nAuthorization: Bearer wrong", "\r\nAuthorization: nonsense"] {
        let (status, answer) = replicate(wrong, 9);
        assert_eq!((status, &answer["code"]), (401, &json!("NOAUTH")), "{wrong}");
    }
    let right = format!("\r\nAuthorization: Bearer {SECRET}");
    let (status, answer) = replicate(&right, 1 << 40);
    assert_eq!((status, &answer["applied"], &answer["version"]), (200, &json!(true), &json!(1_u64 << 40)));
    let (status, answer) = replicate(&right, 7);
    assert_eq!((status, &answer["applied"], &answer["version"]), (200, &json!(false), &json!(1_u64 << 40)));
    assert_eq!(server.json("GET /get/k HTTP/1.1", "").1["value"], format!("v{}", 1_u64 << 40));
}

#[test]
fn a_password_protects_everything_except_health() {
    let server = Server::start("password = \"open sesame\"", "");
    assert_eq!(server.http("GET /health HTTP/1.1", "").0, 200);
    for head in [
        "GET / HTTP/1.1",
        "GET /metrics HTTP/1.1",
        "GET /get/k HTTP/1.1",
        "DELETE /k HTTP/1.1",
        "POST /put HTTP/1.1",
    ] {
        let (status, answer) = server.json(head, "");
        assert_eq!((status, &answer["code"]), (401, &json!("NOAUTH")), "{head}");
        assert_eq!(server.http(&format!("{head}\r\nAuthorization: Bearer open"), "").0, 401);
    }
    // The user name before the password is the default user's, or left out.
    for right in ["Bearer open sesame", "Basic ZGVmYXVsdDpvcGVuIHNlc2FtZQ==", "Basic Om9wZW4gc2VzYW1l"] {
        assert_eq!(server.http(&format!("GET / HTTP/1.1\r\nAuthorization: {right}"), "").0, 200);
    }
    let other = "GET / HTTP/1.1\r\nAuthorization: Basic dXNlcjpvcGVuIHNlc2FtZQ==";
    assert_eq!(server.http(other, "").0, 401, "there is no user 'user'");
    let put = "POST /put HTTP/1.1\r\nAuthorization: Bearer open sesame";
    assert_eq!(server.http(put, r#"{"key": "k", "value": "v"}"#).0, 200, "it needs no AUTH beside that");
}

#[test]
fn health_metrics_and_the_list_show_what_they_promise() {
    let server = Server::start("", "");
    let (status, health) = server.json("GET /health HTTP/1.1", "");
    assert_eq!((status, &health["ready"], &health["node"]), (200, &json!(true), &json!(1)));
    assert!(health["epoch"].as_u64().unwrap() >= 1, "{health}");
    let (status, list) = server.json("GET / HTTP/1.1", "");
    assert!(status == 200 && list["endpoints"]["POST /put"].is_string());
    server.client().ask("PING");
    assert!(server.metric("quorate_turn_seconds_count") > 0);
    assert!(server.metric("quorate_client_bytes_in_total") >= 6);
}

/// The buckets of a histogram: at most as many as its count, the last one exactly as many.
#[test]
fn histograms_count_commands_and_commits() {
    let server = Server::start("", "");
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.ask("SET k v"), "+OK");
    }
    client.ask("GET k");
    assert_eq!(server.metric("quorate_command_seconds_count{command=\"set\"}"), 3);
    assert_eq!(server.metric("quorate_command_seconds_bucket{command=\"set\",le=\"+Inf\"}"), 3);
    assert!(server.metric("quorate_command_seconds_bucket{command=\"set\",le=\"0.001024\"}") <= 3);
    assert_eq!(server.metric("quorate_keyspace_command_seconds_count{keyspace=\"default\"}"), 4);
    // One after the other: each of these writes is measured, but no read.
    assert_eq!(server.metric("quorate_keyspace_commit_seconds_count{keyspace=\"default\"}"), 3);
    assert!(server.metric("quorate_keyspace_apply_seconds_count{keyspace=\"default\"}") >= 3);
    // It is ready, so it has a lease.
    assert!(server.metric("quorate_lease_renewal_seconds_count") > 0);
    assert!(
        server.metric("quorate_lease_wait_seconds_bucket{le=\"+Inf\"}")
            == server.metric("quorate_lease_wait_seconds_count")
    );
}

#[test]
fn a_connection_serves_many_requests_and_head_has_no_body() {
    let server = Server::start("", "");
    let mut stream = connect(server.http_port);
    for _ in 0..3 {
        stream.write_all(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200 OK"));
    }
}
