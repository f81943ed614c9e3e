//! Users: the same on all nodes, at once and after failures, and restricted to their rights by every path.

use redis::{Connection, Value};

use super::support::{Cluster, ask, until};

const NO_KEY: &str = "-NOPERM No permissions to access a key";
const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel";

/// Logs a client in.
fn log_in(cluster: &Cluster, id: u16, user: &str, password: &str) -> Connection {
    let mut client = cluster.client(id);
    assert_eq!(ask(&mut client, &format!("AUTH {user} {password}")), "OK");
    client
}

fn eval(client: &mut Connection, script: &str, keys: &[&str]) -> String {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(keys.len()).arg(keys);
    match command.query::<Value>(client) {
        Ok(value) => super::support::as_text(&value),
        Err(error) => super::support::error_text(&error),
    }
}

#[test]
fn users_are_the_same_on_all_nodes_at_once_and_after_failures() {
    let mut cluster = Cluster::start(3, &[]);
    let mut operator = cluster.client(1);
    assert_eq!(ask(&mut operator, "ACL SETUSER app on >pw ~app:* &app:* +@all -@cluster -@dangerous"), "OK");
    let mut app = log_in(&cluster, 2, "app", "pw");
    assert_eq!(ask(&mut app, "ACL WHOAMI"), "\"app\"");
    assert_eq!(ask(&mut app, "SET app:1 v"), "OK");
    assert_eq!(ask(&mut app, "SET other v"), NO_KEY);
    assert!(ask(&mut app, "ACL SETUSER app +@all").starts_with("-NOPERM User app has no permissions to run"));
    let mut late = cluster.client(3);
    assert!(ask(&mut late, "AUTH app wrong").starts_with("-WRONGPASS"));
    let listed = ask(&mut operator, "ACL LIST");
    assert!(!listed.contains("pw") && listed.contains("user app on"), "{listed}");
    assert_eq!(ask(&mut late, "ACL LIST"), listed);

    // An acknowledged change applies on every node, for open connections too.
    assert_eq!(ask(&mut late, "ACL SETUSER app -get"), "OK");
    assert!(ask(&mut app, "GET app:1").starts_with("-NOPERM User app has no permissions to run the 'get'"));
    assert_eq!(ask(&mut operator, "ACL SETUSER app +get"), "OK");
    assert_eq!(ask(&mut app, "GET app:1"), "\"v\"");

    // The users survive the leader, and a restart of all nodes.
    let leader = cluster.leader();
    cluster.kill(leader);
    let other = leader % 3 + 1;
    until("users can be changed again", || {
        ask(&mut cluster.client(other), "ACL SETUSER second on nopass +ping") == "OK"
    });
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.kill(id);
    }
    (1..=3).for_each(|id| cluster.restart(id));
    (1..=3).for_each(|id| cluster.wait_until_ready(id));
    for id in 1..=3 {
        until("the node has the newest map", || ask(&mut cluster.client(id), "ACL USERS").contains("second"));
        assert_eq!(ask(&mut log_in(&cluster, id, "app", "pw"), "GET app:1"), "\"v\"");
        assert_eq!(ask(&mut log_in(&cluster, id, "second", "x"), "PING"), "PONG");
    }

    // A removed user can no longer log in.
    let mut app = log_in(&cluster, 2, "app", "pw");
    assert_eq!(ask(&mut cluster.client(1), "ACL DELUSER app nosuch"), "1");
    assert!(redis::cmd("PING").query::<Value>(&mut app).is_err(), "its connection is closed");
    assert!(ask(&mut cluster.client(3), "AUTH app pw").starts_with("-WRONGPASS"));
    assert_eq!(
        ask(&mut cluster.client(1), "ACL DELUSER default"),
        "-ERR The 'default' user cannot be removed"
    );
}

#[test]
fn a_user_is_held_to_its_rights_in_transactions_scripts_and_channels() {
    let cluster = Cluster::start(3, &["prefix=c: replication=consensus"]);
    let mut operator = cluster.client(1);
    let rules = "on >pw ~c:a* %R~c:r &c* +@all -@cluster -incr";
    assert_eq!(ask(&mut operator, &format!("ACL SETUSER u {rules}")), "OK");
    let mut user = log_in(&cluster, 3, "u", "pw");

    assert_eq!(ask(&mut user, "MULTI"), "OK");
    assert_eq!(ask(&mut user, "SET c:a 1"), "QUEUED");
    assert_eq!(ask(&mut user, "SET c:r 1"), NO_KEY);
    assert!(ask(&mut user, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(ask(&mut user, "MULTI"), "OK");
    assert_eq!(ask(&mut user, "SET c:a 1"), "QUEUED");
    assert_eq!(ask(&mut operator, "ACL SETUSER u -set"), "OK");
    let refused = ask(&mut user, "EXEC");
    assert!(refused.starts_with("-NOPERM ACLs rules changed") && refused.contains("'set'"), "{refused}");
    assert_eq!(ask(&mut operator, "EXISTS c:a"), "0");
    assert_eq!(ask(&mut operator, "ACL SETUSER u +set"), "OK");

    // A script runs on other nodes than this one, which take its caller's rights from its record.
    let call = |verb: &str, key: &str| format!("return redis.call('{verb}', '{key}', '1')");
    assert_eq!(eval(&mut user, &call("set", "c:a"), &["c:a"]), "OK");
    for (script, keys, reason) in [
        (
            call("set", "c:r"),
            vec!["c:a"],
            "NOPERM The user executing the script can't access at least one of the keys",
        ),
        (
            call("set", "c:other"),
            vec!["c:a"],
            "NOPERM The user executing the script can't access at least one of the keys",
        ),
        (
            "return redis.call('incr', KEYS[1])".into(),
            vec!["c:a"],
            "can't run this command or subcommand: 'incr'",
        ),
        (
            call("publish", "x"),
            vec!["c:a"],
            "NOPERM The user executing the script can't publish to the channel",
        ),
        (call("set", "c:a"), vec!["c:other"], NO_KEY),
    ] {
        let answer = eval(&mut user, &script, &keys);
        assert!(answer.contains(reason), "{script}: {answer}");
    }
    let asks = "return {redis.acl_check_cmd('set', 'c:a', 1), redis.acl_check_cmd('set', 'c:b', 1)}";
    assert_eq!(eval(&mut user, asks, &["c:a"]), "[1, nil]");
    assert_eq!(eval(&mut operator, asks, &["c:a"]), "[1, 1]");
    let library = "#!lua name=l\nredis.register_function('f', function(keys, args) return redis.call('incr', keys[1]) end)";
    let loaded = redis::cmd("FUNCTION").arg("LOAD").arg(library).query::<String>(&mut operator).unwrap();
    assert_eq!(loaded, "l");
    assert!(ask(&mut user, "FCALL f 1 c:a").contains("can't run this command or subcommand: 'incr'"));
    assert_eq!(ask(&mut operator, "FCALL f 1 c:a"), "2");

    assert_eq!(ask(&mut user, "PUBLISH d x"), NO_CHANNEL);
    assert_eq!(ask(&mut user, "PUBLISH c1 x"), "0");
    assert_eq!(
        ask(&mut user, "SORT c:a BY x_*"),
        "-ERR BY option of SORT denied due to insufficient ACL permissions."
    );
    assert_eq!(ask(&mut user, "KEYSPACE WATCH c:"), NO_KEY);
    assert_eq!(ask(&mut user, "LOCK c:x me PX 1000"), NO_KEY);
    assert!(ask(&mut user, "LOCK c:a me PX 1000").parse::<u64>().is_ok(), "a token");

    // A subscriber that may no longer listen to a channel is closed.
    let mut listener = log_in(&cluster, 2, "u", "pw");
    assert!(redis::cmd("SUBSCRIBE").arg("c1").query::<Value>(&mut listener).is_ok());
    assert_eq!(ask(&mut operator, "ACL SETUSER u resetchannels"), "OK");
    until("the subscriber is closed", || ask(&mut operator, "PUBSUB NUMSUB c1") == "[\"c1\", 0]");

    let log = ask(&mut user, "ACL LOG 100");
    for word in ["\"multi\"", "\"lua\"", "\"toplevel\"", "\"c:r\"", "\"incr\"", "\"channel\""] {
        assert!(log.contains(word), "{word} in {log}");
    }
    assert_eq!(ask(&mut user, "ACL LOG RESET"), "OK");
    assert_eq!(ask(&mut user, "ACL LOG"), "[]");
}

#[test]
fn users_over_http_are_the_same() {
    let cluster = Cluster::start(1, &["prefix=c: replication=consensus"]);
    let mut operator = cluster.client(1);
    assert_eq!(ask(&mut operator, "ACL SETUSER u on >pw %R~c:* ~l* +@all -@cluster -@dangerous"), "OK");
    assert_eq!(ask(&mut operator, "ACL SETUSER default on >root"), "OK");
    let http = |authorization: &str, head: &str, body: &str| {
        let (status, answer) = cluster.http(1, &format!("{head} HTTP/1.1{authorization}"), body);
        (status, answer["code"].as_str().unwrap_or_default().to_owned())
    };
    let put = |key: &str| format!("{{\"key\":\"{key}\",\"value\":\"v\"}}");
    let basic = "\r\nAuthorization: Basic dTpwdw=="; // u:pw
    let bearer = "\r\nAuthorization: Bearer pw";
    let root = "\r\nAuthorization: Bearer root";
    assert_eq!(http("", "GET /get/c:1", "").0, 401);
    assert_eq!(http("\r\nAuthorization: Bearer wrong", "GET /get/c:1", "").0, 401);
    assert_eq!(http(root, "POST /put", &put("c:1")).0, 200);
    for who in [basic, bearer] {
        assert_eq!(http(who, "GET /get/c:1", "").0, 200);
        assert_eq!(http(who, "POST /put", &put("c:1")), (403, "NOPERM".into()));
        assert_eq!(http(who, "DELETE /c:1", ""), (403, "NOPERM".into()));
        assert_eq!(http(who, "GET /get/d", ""), (403, "NOPERM".into()));
        assert_eq!(http(who, "POST /keyspaces", "{\"prefix\":\"d:\"}"), (403, "NOPERM".into()));
        assert_eq!(http(who, "GET /metrics", ""), (403, "NOPERM".into()), "INFO is dangerous");
        assert_eq!(http(who, "GET /keyspaces", "").0, 200);
        let lock = "{\"owner\":\"me\",\"ttl_ms\":1000}";
        assert_eq!(http(who, "POST /locks/c:1", lock), (403, "NOPERM".into()));
        assert_eq!(http(who, "GET /changes/", "").0, 403);
    }
    assert_eq!(http(root, "POST /keyspaces", "{\"prefix\":\"d:\"}").0, 201);
    assert_eq!(http("", "GET /health", "").0, 200);
}
