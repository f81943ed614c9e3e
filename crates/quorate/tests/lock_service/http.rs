//! Locks over HTTP.

use super::{Waiting, ask, cluster, connect, token, until_waiting};
use crate::started::Started;
use crate::support::{connect as open, http};
use serde_json::{Value, json};
use std::io::Write;

fn lock(started: &Started, head: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, body) = http(started.cluster.http_port(2), &format!("{head} HTTP/1.1"), &body);
    (status, serde_json::from_str(&body).unwrap())
}

#[test]
fn a_lock_is_acquired_renewed_shown_and_released() {
    let started = cluster();
    let acquire = |owner: &str| json!({ "owner": owner, "ttl_ms": 60_000 });
    let (status, taken) = lock(&started, "POST /locks/jobs%2F7", &acquire("ann"));
    assert_eq!((status, &taken["granted"], &taken["name"]), (200, &json!(true), &json!("jobs/7")), "{taken}");
    let held = taken["token"].as_u64().unwrap();
    let (status, refused) = lock(&started, "POST /locks/jobs/7", &acquire("bob"));
    assert_eq!((status, &refused["granted"], &refused["token"]), (200, &json!(false), &Value::Null));
    let renewal = json!({ "token": held, "ttl_ms": 50_000 });
    assert_eq!(lock(&started, "POST /locks/jobs%2F7/renew", &renewal).1["renewed"], true);
    let (status, seen) = lock(&started, "GET /locks/jobs%2F7", &Value::Null);
    assert_eq!((status, &seen["owner"], &seen["lease_ms"]), (200, &json!("ann"), &json!(50_000)), "{seen}");
    assert_eq!(seen["token"], held);
    let (status, why) = lock(&started, "DELETE /locks/jobs%2F7", &Value::Null);
    assert_eq!((status, &why["code"]), (400, &json!("BADREQUEST")), "it needs the token");
    let release = format!("DELETE /locks/jobs%2F7?token={held}");
    assert_eq!(lock(&started, &release, &Value::Null).1["released"], true);
    assert_eq!(lock(&started, &release, &Value::Null).1["released"], false);
    assert_eq!(lock(&started, "GET /locks/jobs%2F7", &Value::Null).0, 404);
    let (status, why) = lock(&started, "POST /locks/l", &json!({ "owner": "ann" }));
    assert_eq!((status, &why["code"]), (400, &json!("BADREQUEST")));
    let (status, why) = lock(&started, "POST /locks/l", &json!({ "owner": "ann", "session": "0-1" }));
    assert_eq!((status, &why["code"]), (400, &json!("CROSSSLOT")), "{why}");
}

#[test]
fn a_session_holds_locks_and_a_fence_guards_writes() {
    let started = cluster();
    let (status, opened) = lock(&started, "POST /sessions/%7Bjob%7D", &json!({ "ttl_ms": 60_000 }));
    assert_eq!((status, &opened["key"]), (200, &json!("{job}")), "{opened}");
    let session = opened["session"].as_str().unwrap().to_owned();
    let acquire = json!({ "owner": "ann", "session": session });
    let (_, taken) = lock(&started, "POST /locks/%7Bjob%7D", &acquire);
    assert_eq!(taken["granted"], true, "{taken}");
    let token = taken["token"].as_u64().unwrap();
    let renewed = lock(&started, "POST /sessions/%7Bjob%7D/renew", &json!({ "session": session })).1;
    assert_eq!(renewed["renewed"], true, "{renewed}");

    let put = |token: u64| {
        let fence = json!({ "lock": "{job}", "token": token });
        lock(&started, "POST /put", &json!({ "key": "{job}state", "value": "v", "fence": fence }))
    };
    let (status, written) = put(token);
    assert_eq!(status, 200, "{written}");
    assert!(written["version"].as_u64().is_some_and(|version| version > 0), "{written}");

    let close = format!("DELETE /sessions/%7Bjob%7D?session={session}");
    assert_eq!(lock(&started, &close, &Value::Null).1["closed"], true);
    assert_eq!(lock(&started, &close, &Value::Null).1["closed"], false);
    assert_eq!(lock(&started, "GET /locks/%7Bjob%7D", &Value::Null).0, 404);
    let (_, next) = lock(&started, "POST /locks/%7Bjob%7D", &json!({ "owner": "bob", "ttl_ms": 60_000 }));
    assert_eq!(next["granted"], true, "{next}");
    let (status, fenced) = put(token);
    assert_eq!((status, &fenced["code"]), (409, &json!("FENCED")), "{fenced}");
    assert_eq!(put(next["token"].as_u64().unwrap()).0, 200);
    let (status, late) = lock(&started, "POST /locks/%7Bjob%7Dl", &acquire);
    assert_eq!((status, &late["code"]), (410, &json!("NOSESSION")), "{late}");
    assert_eq!(lock(&started, "GET /sessions/k", &Value::Null).0, 405);
    assert_eq!(lock(&started, "DELETE /sessions/k", &Value::Null).0, 400);
}

#[test]
fn a_wait_ends_with_the_grant_or_with_the_connection() {
    let started = cluster();
    let mut ann = connect(&started, 1);
    let held = token(&mut ann, "LOCK l ann PX 60000");
    let body = json!({ "owner": "gone", "ttl_ms": 60_000, "wait_ms": 60_000 }).to_string();
    let mut gone = open(started.cluster.http_port(2));
    let head =
        "POST /locks/l HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length:";
    write!(gone, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
    until_waiting(&mut ann, "l", 1);
    let next = Waiting::begin(&started, 3, "LOCK l next PX 60000 WAIT 60000".into());
    until_waiting(&mut ann, "l", 2);
    drop(gone);
    until_waiting(&mut ann, "l", 1);
    assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {held}")).unwrap(), 1);
    let (held, _) = next.granted();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            lock(&started, "POST /locks/l", &json!({ "owner": "web", "ttl_ms": 1000, "wait_ms": 60_000 }))
        });
        until_waiting(&mut ann, "l", 1);
        assert_eq!(ask::<i64>(&mut ann, &format!("UNLOCK l {held}")).unwrap(), 1);
        let (status, granted) = waiting.join().unwrap();
        assert_eq!((status, &granted["granted"]), (200, &json!(true)), "{granted}");
    });
    let (_, late) = lock(&started, "POST /locks/l", &json!({ "owner": "x", "ttl_ms": 1000, "wait_ms": 10 }));
    assert_eq!(late["granted"], false);
}
