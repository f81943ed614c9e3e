//! What operators look at, and what they pause: `MONITOR`, `CLIENT PAUSE`, `CLIENT LIST`, `OBJECT`, `MEMORY` and
//! commands about features that do not exist here.

use crate::support::{Cluster, assert_error, setup};
use node::DebugCommand;

fn three_nodes() -> Cluster {
    setup(3, &["prefix= replication=consensus"])
        .with(|configuration| configuration.enable_debug_command = DebugCommand::Yes)
        .start()
}

#[test]
fn a_monitor_sees_requests_of_its_node_without_secrets_until_it_resets() {
    let mut cluster = three_nodes();
    let (monitor, client, elsewhere) = (cluster.client(2), cluster.client(2), cluster.client(1));
    assert_eq!(cluster.ask(monitor, "MONITOR"), "OK");
    cluster.ask(elsewhere, "SET elsewhere 1");
    cluster.send_words(client, &[b"SET", b"k\"\r\x01", b"v"]);
    assert_eq!(cluster.reply(client), "OK");
    for request in ["AUTH someone secret", "CONFIG GET port", "MULTI", "GET k", "EXEC"] {
        cluster.ask(client, request);
    }
    let shown = [
        r#""SET" "k\"\r\x01" "v""#,
        r#""AUTH" "(redacted)" "(redacted)""#,
        r#""MULTI""#,
        r#""GET" "k""#,
        r#""EXEC""#,
    ];
    for request in shown {
        let line = cluster.reply(monitor);
        assert!(line.contains(" [0 ") && line.ends_with(&format!("] {request}")), "{line}");
    }
    assert_eq!(cluster.arrived(monitor), None);
    assert_eq!(cluster.ask(monitor, "RESET"), "RESET");
    cluster.ask(client, "PING");
    cluster.settle();
    assert_eq!(cluster.arrived(monitor), None);
}

#[test]
fn a_pause_of_writes_holds_only_writes() {
    let mut cluster = three_nodes();
    let (operator, writer, reader) = (cluster.client(2), cluster.client(2), cluster.client(2));
    let queued = cluster.client(2);
    cluster.pipeline(queued, &["MULTI", "SET q 1"]);
    assert_eq!(cluster.ask(operator, "CLIENT PAUSE 60000 WRITE"), "OK");
    cluster.send(writer, "SET k v");
    cluster.send(queued, "EXEC");
    let publisher = cluster.client(2);
    cluster.send(publisher, "PUBLISH c m");
    let script = cluster.client(2);
    cluster.send_words(script, &[b"EVAL", b"return 1", b"0"]);
    assert_eq!(
        cluster.pipeline(reader, &["GET k", "MULTI", "GET k", "EXEC"]),
        ["nil", "OK", "QUEUED", "[nil]"]
    );
    cluster.send_words(reader, &[b"EVAL", b"#!lua flags=no-writes\nreturn 2", b"0"]);
    assert_eq!(cluster.reply(reader), "2");
    let held = [writer, queued, publisher, script];
    held.iter().for_each(|client| assert_eq!(cluster.arrived(*client), None));
    assert!(cluster.ask(operator, "INFO clients").contains("blocked_clients:4"));
    let elsewhere = cluster.client(1);
    assert_eq!(cluster.ask(elsewhere, "SET other 1"), "OK", "other nodes do not pause");
    assert_eq!(cluster.ask(operator, "CLIENT UNPAUSE"), "OK");
    assert_eq!(held.map(|client| cluster.reply(client)), ["OK", "[OK]", "0", "1"]);
}

#[test]
fn requests_that_a_pause_has_held_are_taken_in_the_order_in_which_they_came() {
    let mut cluster = three_nodes();
    let (operator, first, second) = (cluster.client(2), cluster.client(2), cluster.client(2));
    assert_eq!(cluster.ask(operator, "CLIENT PAUSE 60000 WRITE"), "OK");
    for _ in 0..5 {
        let gone = cluster.client(2);
        cluster.send(gone, "APPEND k gone");
        cluster.turns(5);
        cluster.close(gone);
    }
    for (client, request) in [(second, "APPEND k 2"), (first, "APPEND k 1")] {
        cluster.send(client, request);
        cluster.turns(5);
    }
    assert_eq!(cluster.ask(operator, "CLIENT UNPAUSE"), "OK");
    assert_eq!([first, second].map(|client| cluster.reply(client)), ["2", "1"]);
    assert_eq!(cluster.ask(operator, "GET k"), "\"21\"");
}

#[test]
fn a_pause_of_everything_ends_by_itself_and_can_only_be_extended() {
    let mut cluster = three_nodes();
    let (operator, client) = (cluster.client(2), cluster.client(2));
    for (request, error) in [
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 SOME", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
    ] {
        assert_eq!(cluster.ask(operator, request), error);
    }
    assert_eq!(cluster.ask(operator, "CLIENT PAUSE 100"), "OK");
    assert_eq!(cluster.ask(operator, "CLIENT PAUSE 1 WRITE"), "OK");
    cluster.send(client, "PING");
    cluster.turns(50);
    assert_eq!(cluster.arrived(client), None);
    let took_ms = cluster.time(|cluster| assert_eq!(cluster.reply(client), "PONG"));
    assert!((40..60).contains(&took_ms), "{took_ms}");
    cluster.ask(operator, "CLIENT PAUSE 100000000");
    cluster.send(client, "PING");
    cluster.turns(5);
    cluster.close(client);
    assert_eq!(cluster.ask(operator, "CLIENT UNPAUSE"), "OK", "while everything is held back");
    assert_eq!(cluster.ask(operator, "PING"), "PONG");
}

#[test]
fn keys_are_looked_at_before_arguments_that_redis_reads_later() {
    let mut cluster = three_nodes();
    for number in 1..=3 {
        // Through the leader and through others, alone and in a transaction.
        let client = cluster.client(number);
        cluster.ask(client, "SET string v");
        cluster.ask(client, "RPUSH list v");
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        for (request, reply) in [
            ("LINDEX nosuch x", "nil"),
            ("LINDEX string x", wrong),
            ("LINDEX list x", "-ERR value is not an integer or out of range"),
            ("LSET nosuch x v", "-ERR no such key"),
            ("GETEX nosuch EX 0", "nil"),
            ("HSCAN nosuch 0 FOO", "[\"0\", []]"),
            ("OBJECT REFCOUNT nosuch", "nil"),
            ("OBJECT REFCOUNT list", "1"),
        ] {
            assert_eq!(cluster.ask(client, request), reply, "{request}");
            for (request, reply) in [("MULTI", "OK"), (request, "QUEUED"), ("EXEC", &*format!("[{reply}]"))] {
                assert_eq!(cluster.ask(client, request), reply, "{request}");
            }
        }
        cluster.ask(client, "MULTI");
        let refusal = cluster.ask(client, "MOVE string 1");
        assert!(refusal.starts_with("-ERR MOVE is not allowed inside a transaction"), "{refusal}");
        assert_error(&cluster.ask(client, "EXEC"), "EXECABORT");
    }
}

#[test]
fn commands_about_missing_features_get_true_replies() {
    let mut cluster = three_nodes();
    let client = cluster.client(2);
    cluster.ask(client, "SET k v");
    for (request, reply) in [
        ("OBJECT REFCOUNT k", "1"),
        ("OBJECT REFCOUNT nosuch", "nil"),
        ("OBJECT IDLETIME nosuch", "nil"),
        (
            "OBJECT IDLETIME k",
            "-ERR OBJECT IDLETIME is refused: times of access are kept where the keyspace's eviction is lru or volatile-lru",
        ),
        ("CLIENT GETREDIR", "-1"),
        ("CLIENT TRACKING OFF", "OK"),
        ("CLIENT TRACKINGINFO", "[\"flags\", [\"off\"], \"redirect\", -1, \"prefixes\", []]"),
        ("MEMORY PURGE", "OK"),
        ("MOVE k 16", "-ERR DB index is out of range"),
        ("DEBUG SET-ACTIVE-EXPIRE 1", "OK"),
        ("DEBUG QUICKLIST-PACKED-THRESHOLD 100b", "OK"),
        ("DEBUG RELOAD", "OK"),
        ("GET k", "\"v\""),
        ("DEBUG ERROR mine", "-mine"),
        ("DEBUG OBJECT nosuch", "-ERR no such key"),
        (
            "DEBUG OBJECT k",
            "Value at:0x0 refcount:1 encoding:embstr serializedlength:13 lru:0 lru_seconds_idle:0",
        ),
        ("MODULE LIST", "[]"),
        ("DEBUG PROTOCOL array", "[0, 1, 2]"),
        ("CONFIG GET cluster-enabled", "[\"cluster-enabled\", \"yes\"]"),
    ] {
        assert_eq!(cluster.ask(client, request), reply, "{request}");
    }
    for refused in [
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
        "SHUTDOWN",
        "CLIENT CACHING YES",
        "CLUSTER RESET",
        "CONFIG REWRITE",
        "SCRIPT DEBUG YES",
        "MODULE LOAD x",
    ] {
        assert_error(&cluster.ask(client, refused), "ERR");
    }
    assert_error(&cluster.ask(client, "CONFIG SET maxmemory-clients 1"), "ERR");
    assert!(cluster.ask(client, "MEMORY STATS").contains("\"keys.count\", 1"));
    assert!(cluster.ask(client, "MEMORY DOCTOR").contains("memory_max"));
    assert!(cluster.ask(client, "LOLWUT").contains("Quorate ver. "));
    // A program that saves before it copies a file must not copy an old one.
    for request in ["SAVE", "BGSAVE", "BGSAVE SCHEDULE"] {
        let error = cluster.ask(client, request);
        assert!(error.contains("quorate backup") && error.contains("redis-cli --rdb"), "{error}");
    }
    for request in ["REPLICAOF 10.0.0.3 6379", "slaveof 10.0.0.3 6379"] {
        let error = cluster.ask(client, request);
        assert!(error.contains("quorate import redis://10.0.0.3:6379 --addr "), "{error}");
    }
    assert_eq!(cluster.ask(client, "REPLICAOF NO ONE"), "OK", "it follows none");
    assert_eq!(cluster.ask(client, "ASKING"), "OK");
    let roles: Vec<String> = (1..=3)
        .map(|node| {
            let client = cluster.client(node);
            cluster.ask(client, "ROLE")
        })
        .collect();
    assert_eq!(roles.iter().filter(|role| role.starts_with("[\"master\", ")).count(), 1, "{roles:?}");
    assert_eq!(roles.iter().filter(|role| role.starts_with("[\"slave\", ")).count(), 2, "{roles:?}");
}

#[test]
fn the_last_save_is_the_last_checkpoint() {
    let mut cluster = setup(1, &["prefix= replication=consensus"])
        .with(|configuration| configuration.storage.checkpoint_bytes = 100_000)
        .start();
    let client = cluster.client(1);
    let saved = |cluster: &mut Cluster| {
        let saved = cluster.ask(client, "LASTSAVE");
        assert!(cluster.ask(client, "INFO persistence").contains(&format!("rdb_last_save_time:{saved}")));
        saved.parse::<u64>().expect("a time")
    };
    let at_start = saved(&mut cluster);
    assert!(at_start > 0 && at_start <= cluster.now.unix_ms / 1000, "{at_start}");
    cluster.turns(5000);
    assert_eq!(saved(&mut cluster), at_start, "there was none");
    let value = vec![b'x'; 50_000];
    for _ in 0..20 {
        cluster.send_words(client, &[b"SET", b"k", &value]);
        assert_eq!(cluster.reply(client), "OK");
    }
    cluster.until("a checkpoint", |cluster| saved(cluster) > at_start + 4);
}

#[test]
fn info_counts_keys_by_their_sizes_when_that_is_asked_for() {
    let mut cluster =
        setup(1, &["prefix= replication=consensus shards=2", "prefix=@3 replication=consensus"]).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask_for(client, "INFO keysizes").text(), "# Keysizes\r\n");
    let long = "x".repeat(1500);
    for request in [
        "SET empty ''",
        "SET a 12345678",
        "APPEND b 123456789",
        &format!("SET c {long}"),
        "RPUSH l 1 2 3",
        "SADD s 1",
        "ZADD z 1 a 2 b",
        "HSET h1 f v",
        "HSET h2 f v g v h v i v",
        "XADD x * f v",
        "SELECT 3",
        "SET a 12",
        "SET gone x PX 1",
    ] {
        let words: Vec<&[u8]> =
            request.split(' ').map(|word| if word == "''" { &b""[..] } else { word.as_bytes() }).collect();
        cluster.send_words(client, &words);
        let reply = cluster.reply(client);
        assert!(!reply.starts_with('-'), "{request}: {reply}");
    }
    cluster.turns(3);
    let expected = "# Keysizes\r\ndb0_distrib_strings_sizes:0=1,8=2,1K=1\r\ndb0_distrib_lists_items:2=1\r\n\
                    db0_distrib_sets_items:1=1\r\ndb0_distrib_zsets_items:2=1\r\ndb0_distrib_hashes_items:1=1,4=1\r\n\
                    db3_distrib_strings_sizes:2=1\r\n";
    assert_eq!(cluster.ask_for(client, "INFO keysizes").text(), expected);
    assert!(!cluster.ask_for(client, "INFO everything").text().contains("distrib"));
    assert_eq!(cluster.ask(client, "CONFIG SET key-memory-histograms yes"), "OK");
    let with_memory = cluster.ask_for(client, "INFO keysizes").text();
    assert!(
        with_memory.contains("db0_distrib_hashes_items:1=1,4=1\r\ndb0_distrib_lists_sizes:"),
        "{with_memory}"
    );
    for kind in ["sets", "zsets", "hashes"] {
        assert!(with_memory.contains(&format!("\r\ndb0_distrib_{kind}_sizes:")), "{with_memory}");
    }
    assert_eq!(cluster.ask(client, "CONFIG SET key-memory-histograms no"), "OK");
    let both = cluster.ask_for(client, "INFO keysizes server").text();
    assert!(both.starts_with("# Server") && both.contains("\r\n\r\n# Keysizes\r\n"), "{both}");
}

#[test]
fn client_list_has_sizes_and_all_flags() {
    let mut cluster = three_nodes();
    let (client, other) = (cluster.client(2), cluster.client(2));
    let answer = cluster.ask(client, "CLIENT LIST");
    assert!(
        answer.contains("flags=N")
            && answer.contains("multi=-1 watch=0 qbuf=26 qbuf-free=0 argv-mem=10 multi-mem=0"),
        "{answer}"
    );
    cluster.ask(other, "MONITOR");
    cluster.ask(other, "CLIENT NO-EVICT ON");
    cluster.ask(client, "MULTI");
    cluster.reply(other);
    let answer = cluster.ask(other, "CLIENT LIST");
    assert!(answer.contains("flags=Oe") && answer.contains("flags=x"), "{answer}");
    assert_eq!(cluster.ask(other, "CLIENT KILL MAXAGE 1000"), "0");
}

#[test]
fn a_node_that_keeps_what_has_expired_removes_it_once_told_to() {
    let mut cluster = setup(1, &["prefix= replication=consensus"])
        .with(|configuration| configuration.enable_debug_command = DebugCommand::Yes)
        .start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "DEBUG SET-ACTIVE-EXPIRE 0"), "OK");
    assert_eq!(cluster.ask(client, "SET k v PX 1"), "OK");
    cluster.turns(500);
    assert_eq!(cluster.ask(client, "DBSIZE"), "1");
    assert!(cluster.ask(client, "INFO stats").contains("expired_keys_active:0"));
    assert_eq!(cluster.ask(client, "DEBUG SET-ACTIVE-EXPIRE 1"), "OK");
    cluster.turns(500);
    assert_eq!(cluster.ask(client, "DBSIZE"), "0");
    assert!(cluster.ask(client, "INFO stats").contains("expired_keys_active:1"));
    assert_eq!(cluster.ask(client, "CONFIG RESETSTAT"), "OK");
    assert!(cluster.ask(client, "INFO stats").contains("expired_keys:0"));
}
