//! Transactions over several keyspaces and shards: what takes effect together, what is merged, and what is refused.

use crate::support::{Client, Cluster, assert_error, play, setup};

#[test]
fn keys_of_several_keyspaces_change_together() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus shards=3"];
    let mut cluster = setup(3, &keyspaces).start();
    for node in 1..=3 {
        let client = cluster.client(node);
        let script = "
            MSET a 1 b:a 2 b:b 3 b:c 4  -> OK
            MGET b:c a b:a none b:b     -> [\"4\", \"1\", \"2\", nil, \"3\"]
            EXISTS a b:a b:b none       -> 3
            MULTI                       -> OK
            INCR a                      -> QUEUED
            RPUSH b:l x y               -> QUEUED
            PING                        -> QUEUED
            DEL b:a b:b a               -> QUEUED
            INCR b:l                    -> QUEUED
            GET b:c                     -> QUEUED
            EXEC                        -> [2, 2, PONG, 3, -WRONGTYPE Operation against a key holding the wrong kind of value, \"4\"]
            LRANGE b:l 0 -1             -> [\"x\", \"y\"]
            UNLINK b:l b:c a            -> 2
            DBSIZE                      -> 0";
        play(&mut cluster, client, script);
    }
}

/// Sends requests as fast as the node takes them, as a driver does, and returns the replies.
fn flow(cluster: &mut Cluster, client: Client, lines: &[&str]) -> Vec<String> {
    for line in lines {
        cluster.until("input is wanted", |cluster| cluster.node(client.node).wants_input(client.id));
        cluster.send(client, line);
    }
    lines.iter().map(|_| cluster.reply(client)).collect()
}

/// A number in `INFO stats`.
fn counted(cluster: &mut Cluster, client: Client, name: &str) -> u64 {
    let info = cluster.ask(client, "INFO stats").replace("\\r\\n", "\n");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).expect("the field");
    line.trim().parse().expect("a number")
}

#[test]
fn what_waits_on_a_connection_is_one_transaction_and_each_request_has_its_reply() {
    let cached = "prefix=c: replication=leader-follower acks=none";
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus shards=3", cached];
    let mut cluster = setup(3, &keyspaces).start();
    for node in 1..=3 {
        let client = cluster.client(node);
        let before = counted(&mut cluster, client, "transactions_begun");
        let script = "
            MSET a 1 b:a 2          -> OK
            MULTI                   -> OK
            INCR a                  -> QUEUED
            INCR b:a                -> QUEUED
            GET a                   -> QUEUED
            EXEC                    -> [2, 3, \"2\"]
            MGET b:a a b:a          -> [\"3\", \"2\", \"3\"]
            GET a                   -> \"2\"
            INCR b:a                -> 4
            MSET a x b:a 5          -> OK
            MULTI                   -> OK
            INCR a                  -> QUEUED
            INCR b:a                -> QUEUED
            EXEC                    -> [-ERR value is not an integer or out of range, 6]
            MSET a 1 c:a 2          -> -CROSSSLOT
            EXISTS a b:a b:none     -> 2
            MULTI                   -> OK
            PING                    -> QUEUED
            SET b:a 1               -> QUEUED
            SET a 1                 -> QUEUED
            EXEC                    -> [PONG, OK, OK]
            MULTI                   -> OK
            GET a                   -> QUEUED
            EXEC                    -> [\"1\"]
            WATCH a                 -> OK
            MULTI                   -> OK
            MSET a 2 b:a 2          -> QUEUED
            EXEC                    -> [OK]
            CLIENT REPLY SKIP       -> none
            MSET a 3 b:a 3          -> none
            CLIENT REPLY SKIP       -> none
            DEL a b:a               -> none
            MGET a b:a              -> [nil, nil]";
        let script: Vec<(&str, &str)> =
            script.lines().filter_map(|line| line.trim().split_once("->")).collect();
        for (request, _) in &script {
            cluster.until("input is wanted", |cluster| cluster.node(node).wants_input(client.id));
            cluster.send(client, request.trim());
        }
        for (request, expected) in script.iter().filter(|(_, expected)| expected.trim() != "none") {
            let reply = cluster.reply(client);
            assert!(reply.starts_with(expected.trim()), "{request}: {reply}");
        }
        let begun = counted(&mut cluster, client, "transactions_begun") - before;
        // The last two may be one.
        assert!((5..=6).contains(&begun), "up to MGET, up to EXISTS with PING, then each by itself: {begun}");
    }
}

#[test]
fn what_a_group_refuses_of_merged_requests_is_refused_alone() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus memory_max=200kb"];
    let mut cluster = setup(3, &keyspaces).start();
    let (client, value) = (cluster.client(2), "v".repeat(300_000));
    let long = format!("MSET a 2 b:long {value}");
    let requests = ["MSET a 1 b:a 1", &long, "MSET c 3 b:c 3", "MGET a c"];
    let replies = flow(&mut cluster, client, &requests);
    assert_eq!([&replies[0], &replies[2], &replies[3]], ["OK", "OK", "[\"1\", \"3\"]"]);
    assert_error(&replies[1], "OOM");
}

#[test]
fn merged_requests_end_with_the_first_ones_deadline() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus"];
    let mut cluster = setup(3, &keyspaces).start();
    let other = cluster.client(1);
    assert_eq!(cluster.ask(other, "MSET a 0 b:a 0"), "OK");
    // A share is on its way to the leader.
    let client = cluster.client(2);
    cluster.send(client, "MSET a 1 b:a 1");
    cluster.turns(3);
    cluster.cut_off(2);
    let took = cluster.time(|cluster| {
        cluster.turns(1000);
        // It waits for the first, and begins too late.
        cluster.send(client, "MSET a 2 b:a 2");
        cluster.send(client, "GET a");
        assert!(!cluster.node(2).wants_input(client.id), "it waits");
        let reply = cluster.reply(client);
        assert!(reply.starts_with("-UNKNOWN") || reply.starts_with("-TRYAGAIN"), "{reply}");
    });
    assert!((4_500..5_500).contains(&took), "{took}");
    let took = cluster.time(|cluster| {
        let reply = cluster.reply(client);
        let is_refused = reply.starts_with("-TRYAGAIN") || reply.starts_with("-CLUSTERDOWN");
        assert!(reply.starts_with("-UNKNOWN") || is_refused, "{reply}");
    });
    assert!(took < 1_500, "{took}");
    cluster.reconnect(2);
    cluster.settle();
    let values = cluster.ask(other, "MGET a b:a");
    assert!(["0", "1", "2"].iter().any(|it| values == format!("[\"{it}\", \"{it}\"]")), "{values}");
}

#[test]
fn a_client_that_leaves_takes_nothing_back() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus"];
    let mut cluster = setup(3, &keyspaces).start();
    let (client, other) = (cluster.client(3), cluster.client(1));
    cluster.send(client, "MSET a 1 b:a 1");
    cluster.turn();
    cluster.send(client, "MSET a 2 b:a 2");
    cluster.send(client, "GET a");
    cluster.close(client);
    cluster.until("both are done", |cluster| cluster.ask(other, "MGET a b:a") == "[\"2\", \"2\"]");
}

#[test]
fn values_move_between_keyspaces() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus shards=3"];
    let mut cluster = setup(3, &keyspaces).start();
    for node in 1..=3 {
        let client = cluster.client(node);
        let script = "
            MSETNX a 1 b:a 2 b:b 3      -> 1
            MSETNX c 1 b:a 9            -> 0
            GET c                       -> nil
            PEXPIRE a 900000            -> 1
            RENAME a b:c                -> OK
            EXISTS a                    -> 0
            GET b:c                     -> \"1\"
            PERSIST b:c                 -> 1
            RENAMENX b:b b:c            -> 0
            COPY b:a a                  -> 1
            COPY b:b a                  -> 0
            GET a                       -> \"2\"
            RENAME none b:a             -> -ERR no such key
            DEL a b:a b:b b:c           -> 4
            RPUSH l x y z               -> 3
            LMOVE l b:l LEFT RIGHT      -> \"x\"
            RPOPLPUSH l b:l             -> \"z\"
            LRANGE b:l 0 -1             -> [\"z\", \"x\"]
            LMPOP 2 none b:l LEFT       -> [\"b:l\", [\"z\"]]
            SADD s m n                  -> 2
            SADD b:s n o                -> 2
            SINTER s b:s                -> [\"n\"]
            SINTERSTORE b:d s b:s       -> 1
            SMOVE s b:s m               -> 1
            SMOVE s b:s none            -> 0
            SCARD b:s                   -> 3
            PFADD h x                   -> 1
            PFMERGE b:h h               -> OK
            PFCOUNT b:h h               -> 1
            RENAME s b:s                -> OK
            SMEMBERS b:s                -> [\"n\"]
            MULTI                       -> OK
            SET c 5                     -> QUEUED
            BITOP NOT b:c c             -> QUEUED
            LMOVE b:l l LEFT LEFT       -> QUEUED
            INCR l                      -> QUEUED
            PING                        -> QUEUED
            EXEC                        -> [OK, 1, \"x\", -WRONGTYPE Operation against a key holding the wrong kind of value, PONG]
            STRLEN b:c                  -> 1
            SUNION s l                  -> -WRONGTYPE Operation against a key holding the wrong kind of value
            DEL c b:c l b:l s b:s b:d h b:h -> 7
            DBSIZE                      -> 0";
        play(&mut cluster, client, script);
    }
}

#[test]
fn scripts_use_declared_keys_of_several_keyspaces() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus shards=3"];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(2);
    let listener = cluster.client(3);
    cluster.ask(listener, "SUBSCRIBE news");
    let transfer = "local n = tonumber(ARGV[1])
        if tonumber(redis.call('GET', KEYS[1]) or 0) < n then return redis.error_reply('POOR') end
        redis.call('DECRBY', KEYS[1], n)
        redis.call('PUBLISH', 'news', 'moved')
        return redis.call('INCRBY', KEYS[2], n)";
    let run = |cluster: &mut Cluster, script: &str, arguments: &[&str]| {
        let words: Vec<&[u8]> =
            ["EVAL", script].iter().chain(arguments).map(|word| word.as_bytes()).collect();
        cluster.send_words(client, &words);
        cluster.reply(client)
    };
    assert_eq!(run(&mut cluster, transfer, &["2", "a", "b:a", "5"]), "-ERR POOR");
    assert_eq!(run(&mut cluster, "return redis.call('SET', KEYS[1], 7)", &["1", "a"]), "OK");
    assert_eq!(run(&mut cluster, transfer, &["2", "a", "b:a", "5"]), "5");
    let undeclared =
        run(&mut cluster, "redis.call('SET', KEYS[1], 1) return redis.call('GET', 'c')", &["2", "a", "b:a"]);
    assert!(undeclared.starts_with("-ERR") && undeclared.contains("'c'"), "{undeclared}");
    assert_eq!(cluster.reply(listener), "[\"message\", \"news\", \"moved\"]");
    assert_eq!(cluster.ask(client, "MGET a b:a"), "[\"1\", \"5\"]", "what it did before stays, as in Redis");
}

#[test]
fn a_watched_key_decides_about_values_that_move() {
    let mut cluster = setup(3, &["prefix= acks=majority", "prefix=b: replication=consensus"]).start();
    let (client, other) = (cluster.client(2), cluster.client(3));
    for (changed, expected) in [(false, "[OK]"), (true, "nil")] {
        assert_eq!(cluster.ask(client, "MSET a 1 w 1"), "OK");
        assert_eq!(cluster.pipeline(client, &["WATCH w", "MULTI", "RENAME a b:a"])[2], "QUEUED");
        if changed {
            assert_eq!(cluster.ask(other, "SET w 2"), "OK");
        }
        assert_eq!(cluster.ask(client, "EXEC"), expected);
    }
    assert_eq!(cluster.ask(client, "MGET a b:a"), "[\"1\", \"1\"]");
}

#[test]
fn a_long_share_is_sent_in_parts() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus shards=3"];
    let setup = setup(3, &keyspaces).with(|configuration| configuration.long_command_bytes = 400);
    let (mut cluster, long) = (setup.start(), "v".repeat(2_000));
    for node in 1..=3 {
        let client = cluster.client(node);
        assert_eq!(cluster.ask(client, &format!("MSET a {long} b:a {long} b:b {node} b:c {long}")), "OK");
        assert_eq!(cluster.ask(client, "RENAME a b:d"), "OK");
        assert_eq!(cluster.ask(client, "RENAME b:d a"), "OK");
        let all = format!("[\"{node}\", \"{long}\", \"{long}\"]");
        assert_eq!(cluster.ask(client, "MGET b:b a b:c"), all);
        cluster.pipeline(client, &["WATCH a", "MULTI", &format!("SET a {long}x"), "GET b:b"]);
        assert_eq!(cluster.ask(client, "EXEC"), format!("[OK, \"{node}\"]"));
    }
}

#[test]
fn values_on_the_disk_take_part() {
    for replication in ["consensus", "leader-follower acks=majority"] {
        let disk = format!("prefix=d: replication={replication} storage=disk storage_threshold=64 shards=2");
        let mut cluster = setup(3, &["prefix= replication=consensus", &disk]).start();
        let text = "x".repeat(1000);
        for node in 1..=3 {
            let client = cluster.client(node);
            assert_eq!(cluster.ask(client, &format!("MSET d:a {text} d:b {text} a {text} d:n {node}")), "OK");
            assert_eq!(
                cluster.ask(client, "MGET d:a a d:n"),
                format!("[\"{text}\", \"{text}\", \"{node}\"]")
            );
            assert_eq!(cluster.pipeline(client, &["MULTI", "APPEND d:a y", "APPEND d:b z"])[2], "QUEUED");
            cluster.send(client, "GETRANGE d:b 999 -1");
            assert_eq!(cluster.reply(client), "QUEUED");
            assert_eq!(cluster.pipeline(client, &["INCR a2", "GET d:a"]), ["QUEUED", "QUEUED"]);
            assert_eq!(cluster.ask(client, "EXEC"), format!("[1001, 1001, \"xz\", {node}, \"{text}y\"]"));
            for (from, to) in [("d:a", "k"), ("k", "d:k"), ("d:k", "d:c"), ("d:c", "d:a")] {
                assert_eq!(cluster.ask(client, &format!("RENAME {from} {to}")), "OK", "{from} {to}");
            }
            let script = "return(redis.call('append',KEYS[1],redis.call('getdel',KEYS[2])))";
            assert_eq!(cluster.ask(client, &format!("EVAL {script} 2 d:a d:b")), "2002");
            assert_eq!(cluster.ask(client, "GET d:a"), format!("\"{text}y{text}z\""));
            assert_eq!(cluster.ask(client, "EXISTS d:b k d:k d:c d:a"), "1");
        }
    }
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: replication=consensus"];
    let cached = ["prefix=c: replication=leader-follower acks=none", "prefix=r: replication=abd"];
    let mut cluster = setup(3, &[&keyspaces[..], &cached].concat()).start();
    let client = cluster.client(2);
    for (requests, code) in [
        (&["SET b:a 1", "SORT a BY w_*"][..], "CROSSSLOT"),
        (&["RENAME a b:a", "OBJECT FREQ a"], "CROSSSLOT"),
        (&["RENAME a b:a", "MSETNX a 1 c:a 2"], "CROSSSLOT"),
        (&["SET a 1", "SET c:a 1"], "CROSSSLOT"),
        (&["SET a 1", "GET r:a"], "CROSSSLOT"),
        (&["FLUSHALL"], "EXECABORT"),
        (&["DBSIZE"], "EXECABORT"),
        (&["SCAN 0"], "EXECABORT"),
    ] {
        cluster.ask(client, "MULTI");
        cluster.pipeline(client, requests);
        assert_error(&cluster.ask(client, "EXEC"), code);
    }
    assert_error(&cluster.ask(client, "MSET a 1 c:a 2"), "CROSSSLOT");
    assert_eq!(cluster.ask(client, "MGET a b:a"), "[nil, nil]", "nothing was done");
}

#[test]
fn keys_may_be_watched_in_several_keyspaces() {
    let mut cluster = setup(3, &["prefix= acks=majority", "prefix=b: replication=consensus"]).start();
    let client = cluster.client(2);
    cluster.kill(1); // So the two have leaders with unrelated epochs.
    let other = cluster.client(3);
    for key in ["a", "b:a"] {
        cluster.until("a node leads", |cluster| cluster.ask(client, &format!("SET {key} 1")) == "OK");
    }
    for (queued, expected) in [("GET a", "[\"1\"]"), ("PING", "[PONG]"), ("MSET a 2 b:a 2", "[OK]")] {
        let answer = cluster.pipeline(client, &["WATCH a", "WATCH b:a", "MULTI", queued]);
        assert_eq!(answer[..3], ["OK", "OK", "OK"]);
        assert_eq!(cluster.ask(client, "EXEC"), expected);
    }
    for changed in ["a", "b:a"] {
        assert_eq!(cluster.ask(client, "WATCH a b:a"), "OK");
        assert_eq!(cluster.ask(other, &format!("SET {changed} 3")), "OK");
        cluster.pipeline(client, &["MULTI", "MSET a 4 b:a 4"]);
        assert_eq!(cluster.ask(client, "EXEC"), "nil", "{changed} has changed");
        let requests = ["WATCH b:b a b:a b", "MULTI", &format!("INCR {changed}"), "GET b:b", "EXEC"];
        let replies = flow(&mut cluster, client, &requests);
        assert_eq!([&replies[0], &replies[4]], ["OK", "[4, nil]"], "one pipeline");
    }
    assert_eq!(cluster.ask(client, "MGET a b:a"), "[\"4\", \"4\"]");
}
