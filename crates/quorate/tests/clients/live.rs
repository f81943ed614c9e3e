//! `quorate import redis://…`: a running Redis is imported while an application writes to it.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::Connection;

use crate::dump::{Draw, client_of, compare, fill, keys_of, run};
use crate::scripts::Redis;
use crate::support::{Cluster, as_text, free_ports, until};

/// A running import. It is killed with the test.
pub(crate) struct Import(Child);

impl Import {
    pub(crate) fn start(source: u16, cluster: &Cluster, more: &[&str]) -> Import {
        Import::start_from(&format!("redis://127.0.0.1:{source}"), cluster, more)
    }

    pub(crate) fn start_from(source: &str, cluster: &Cluster, more: &[&str]) -> Import {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["import", source]);
        command.args(["--addr", &format!("127.0.0.1:{}", cluster.client_port(1))]).args(more);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Import(piped.spawn().unwrap())
    }

    /// Presses Enter, and waits until it ends. Returns whether it succeeded, and its output.
    pub(crate) fn end(mut self) -> (bool, String) {
        // It has ended by itself already if there is an error.
        let _ = self.0.stdin.take().unwrap().write_all(b"\n");
        self.finish()
    }

    pub(crate) fn finish(&mut self) -> (bool, String) {
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.0.wait().unwrap().success(), text)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One command of an application, or a few.
pub(crate) fn step(client: &mut Connection, draw: &mut Draw) -> redis::RedisResult<redis::Value> {
    let mut key = |kind: &str| format!("{kind}{}", draw.below(20));
    let (number, list, set, text) = (key("n"), key("l"), key("s"), key("t"));
    let (hash, stream, other) = (key("h"), key("x"), key("l"));
    let mut ask = |text: &str| {
        let mut command = redis::Cmd::new();
        for word in text.split(' ') {
            command.arg(word);
        }
        command.query(client)
    };
    match draw.below(13) {
        0 => ask(&format!("INCR {number}")),
        1 => ask(&format!("RPUSH {list} a b")),
        2 => ask(&format!("LMOVE {list} {other} LEFT RIGHT")),
        // Deadlines that pass while the import is behind, and are put off.
        3 => ask(&format!("SET {text} v PX 400")),
        4 => ask(&format!("PEXPIRE {text} 100000")),
        5 => ask(&format!("APPEND {text} x")),
        6 => ask(&format!("SADD {set} {}", draw.below(50))),
        7 => ask(&format!("SPOP {set}")),
        8 => ask(&format!("HINCRBYFLOAT {hash} f 0.1")),
        9 => ask(&format!("XADD {stream} MAXLEN 20 * f v")),
        10 => {
            let script = "redis.call('incr', KEYS[1]) redis.call('rpush', KEYS[2], redis.call('time')[2])";
            redis::cmd("EVAL").arg(script).arg(2).arg(&number).arg(&list).query(client)
        }
        11 => redis::pipe().atomic().cmd("INCR").arg(&number).cmd("DEL").arg(&list).query(client),
        _ => ask(&format!("RENAME {text} {}", draw.below(20))),
    }
}

fn position(cluster: &Cluster) -> String {
    let value = redis::cmd("GET").arg("quorate:import:0:0:{0}").query(&mut cluster.client(2));
    value.map_or(String::new(), |value| as_text(&value))
}

#[test]
fn a_running_redis_is_imported_whatever_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let own = [
        "--dir",
        folder.path().to_str().unwrap(),
        "--appendonly",
        "yes",
        "--save",
        "",
        "--repl-diskless-sync-delay",
        "0",
        "--repl-backlog-size",
        "200mb",
    ];
    let Some(redis) = Redis::start_with(&own) else { return };
    let port = redis.1;
    fill(&mut client_of(port), &mut Draw(3));
    let library = |name: &str, number: u8| {
        let text =
            format!("#!lua name={name}\nredis.register_function('{name}', function() return {number} end)");
        run(&mut client_of(port), &[b"FUNCTION", b"LOAD", b"REPLACE", text.as_bytes()]);
    };
    library("before", 1);
    library("gone", 1);
    let mut cluster = Cluster::start(3, &[]);
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut redis = Some(redis);
    let (went_well, output) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, mut draw) = (None, Draw(5));
            while !is_over.load(Ordering::Relaxed) {
                if client.is_none() {
                    client = redis::Client::open(("127.0.0.1", port)).unwrap().get_connection().ok();
                }
                let Some(connection) = &mut client else { continue };
                match step(connection, &mut draw) {
                    Err(error) if error.is_io_error() || error.is_connection_dropped() => client = None,
                    // Some commands find no key.
                    _ => drop(written.fetch_add(1, Ordering::Relaxed)),
                }
            }
        });
        let more_is_written = |count: u64| {
            let most = written.load(Ordering::Relaxed) + count;
            until("the application writes", || written.load(Ordering::Relaxed) >= most);
        };
        let first = Import::start(port, &cluster, &["--compare", "whole"]);
        until("the import follows", || position(&cluster).contains(" at "));
        library("during", 1);
        run(&mut client_of(port), &[b"FUNCTION", b"DELETE", b"gone"]);
        more_is_written(1000);
        drop(first);
        library("during", 2);
        more_is_written(1000);
        let second = Import::start(port, &cluster, &["--compare", "whole"]);
        let before = position(&cluster);
        until("the import goes on", || position(&cluster) != before);
        let leader = cluster.leader();
        cluster.kill(leader);
        more_is_written(2000);
        cluster.restart(leader);
        cluster.wait_until_ready(leader);
        drop(redis.take());
        redis = Redis::start_at(port, &own);
        more_is_written(3000);
        is_over.store(true, Ordering::Relaxed);
        second.end()
    });
    assert!(went_well, "{output}");
    assert!(output.contains("continuing an interrupted import\n"), "{output}");
    // A restarted source has another history, which cannot be continued.
    assert_eq!(output.matches("starting again with a snapshot").count(), 1, "{output}");
    assert!(output.contains(" 0 differ"), "{output}");
    let (mut theirs, mut ours) = (client_of(port), cluster.client(1));
    let keys = keys_of(&mut theirs);
    assert!(keys.len() > 100);
    let call = |name: &str| redis::cmd("FCALL").arg(name).arg(0).query::<i64>(&mut cluster.client(2));
    assert_eq!([call("before").unwrap(), call("during").unwrap()], [1, 2]);
    assert!(call("gone").is_err());
    compare(&mut theirs, &mut ours, &keys);
    // Nothing of the import is left.
    assert_eq!(position(&cluster), "nil");
}

#[test]
fn the_shards_of_a_redis_cluster_are_imported_into_several_keyspaces() {
    let own = [
        "--save",
        "",
        "--cluster-enabled",
        "yes",
        "--repl-diskless-sync-delay",
        "0",
        "--cluster-config-file",
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut servers = Vec::new();
    for number in 0..3 {
        let file = folder.path().join(number.to_string());
        let port = free_ports(1);
        // Nodes of a Redis cluster also use a port that is 10,000 higher.
        let bus = free_ports(1).to_string();
        let more = [&own[..], &[file.to_str().unwrap(), "--cluster-port", &bus]].concat();
        let Some(server) = Redis::start_at(port, &more) else { return };
        let mut client = client_of(port);
        let (first, last) = (number * 5462, ((number + 1) * 5462 - 1).min(16383));
        run(
            &mut client,
            &[b"CLUSTER", b"ADDSLOTSRANGE", first.to_string().as_bytes(), last.to_string().as_bytes()],
        );
        for (Redis(_, other), other_bus) in &servers {
            let words = [&b"CLUSTER"[..], b"MEET", b"127.0.0.1"];
            let (port, bus): (String, &String) = (other.to_string(), other_bus);
            run(&mut client, &[&words[..], &[port.as_bytes(), bus.as_bytes()]].concat());
        }
        servers.push((server, bus));
    }
    let mut clients: Vec<Connection> = servers.iter().map(|(server, _)| client_of(server.1)).collect();
    let is_ready =
        |client: &mut Connection| as_text(&run(client, &[b"CLUSTER", b"INFO"])).contains("cluster_state:ok");
    until("the cluster is ready", || clients.iter_mut().all(is_ready));
    let owner = |key: &str| usize::from(cluster::slots::slot_of(key.as_bytes()) / 5462);
    let keys: Vec<String> = (0..3000).map(|at| format!("{}{at}", ["", "a:", "b:"][at % 3])).collect();
    for key in &keys {
        run(&mut clients[owner(key)], &[b"SET", key.as_bytes(), b"1"]);
    }
    let cluster = Cluster::start(3, &["prefix=a: shards=2", "prefix=b: replication=leader-follower"]);
    let import = Import::start(servers[1].0.1, &cluster, &[]);
    // These keys arrive as commands, several keys in one of them.
    std::thread::sleep(Duration::from_millis(500));
    for key in &keys {
        run(&mut clients[owner(key)], &[b"INCRBY", key.as_bytes(), b"2"]);
    }
    let slot = cluster::slots::slot_of(b"a:1");
    assert_eq!(slot, cluster::slots::slot_of(b"{a:1}"));
    run(&mut clients[owner("a:1")], &[b"MSET", b"{a:1}", b"x", b"b:{a:1}", b"y"]);
    run(&mut clients[owner("a:1")], &[b"DEL", b"a:1", b"a:{a:1}", b"b:{a:1}"]);
    let (went_well, output) = import.end();
    assert!(went_well, "{output}");
    assert!(output.contains("a cluster of 3 servers"), "{output}");
    let mut ours = cluster.client(1);
    for key in keys.iter().filter(|key| *key != "a:1") {
        assert_eq!(as_text(&run(&mut ours, &[b"GET", key.as_bytes()])), "\"3\"", "{key}");
    }
    assert_eq!(as_text(&run(&mut ours, &[b"GET", b"{a:1}"])), "\"x\"");
    assert_eq!(as_text(&run(&mut ours, &[b"DBSIZE"])), keys.len().to_string());
}

#[test]
fn an_import_refuses_what_it_would_destroy() {
    let Some(redis) = Redis::start() else { return };
    let cluster = Cluster::start(1, &[]);
    run(&mut cluster.client(1), &[b"SET", b"ours", b"v"]);
    run(&mut client_of(redis.1), &[b"SET", b"theirs", b"v"]);
    let mut import = Import::start(redis.1, &cluster, &["--until", "caught-up"]);
    let (went_well, output) = import.finish();
    assert!(!went_well && output.contains("the cluster has 1 key"), "{output}");
    assert_eq!(keys_of(&mut cluster.client(1)), [b"ours"]);
}
