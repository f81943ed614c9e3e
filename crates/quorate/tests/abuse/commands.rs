//! Random commands with random arguments, sent to all nodes at once; afterwards all nodes hold the same data.

use std::time::Duration;

use redis::{Connection, Value};

use crate::bounded::{Cluster, rounds};
use crate::random::Random;
use crate::support::{PATIENCE, until};

const CLIENTS: u64 = 6;

/// One keyspace of each kind. Every replica answers reads itself where that is possible.
const KEYSPACES: &str = r#"
[[keyspace]]
prefix = ""
reads = "any"

[[keyspace]]
prefix = "lf:"
replication = "leader-follower"
acks = "all"
reads = "any"

[[keyspace]]
prefix = "reg:"
replication = "abd"

[[keyspace]]
prefix = "lock:"
replication = "blocking"
"#;

/// Commands that end a connection, change its state, wait, or are for operators; and commands that leave nothing
/// to compare.
const LEFT_OUT: [&str; 37] = [
    "acl",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "flushall",
    "flushdb",
    "auth",
    "client",
    "cluster",
    "config",
    "debug",
    "discard",
    "exec",
    "hello",
    "keyspace",
    "lock",
    "monitor",
    "multi",
    "psubscribe",
    "punsubscribe",
    "quit",
    "replicaof",
    "reset",
    "shutdown",
    "slaveof",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "wait",
    "watch",
    "unwatch",
];

/// Times of expiry are soon, or long after the test.
const ARGUMENTS: [&str; 34] = [
    "0",
    "1",
    "-1",
    "100000000",
    "9223372036854775807",
    "-9223372036854775808",
    "3.5",
    "nan",
    "",
    "value",
    "a longer value, with spaces and \r\n",
    "f1",
    "f2",
    "EX",
    "PX",
    "NX",
    "XX",
    "GET",
    "KEEPTTL",
    "PERSIST",
    "MATCH",
    "COUNT",
    "*",
    "k?",
    "[a-",
    "WITHVALUES",
    "FNX",
    "LT",
    "GT",
    "ifeq",
    "return 1",
    "return redis.call('set', KEYS[1], ARGV[1])",
    "return redis.call('incr', KEYS[1])",
    "\u{ff}",
];

fn keys() -> Vec<String> {
    let prefixes = ["", "{t}", "lf:", "lf:{t}", "reg:", "lock:"];
    prefixes.iter().flat_map(|prefix| (0..4).map(move |number| format!("{prefix}k{number}"))).collect()
}

fn connect(cluster: &Cluster, id: u16) -> Connection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", cluster.client_port(id))).unwrap();
    let connection = client.get_connection_with_timeout(PATIENCE).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection
}

/// A command's name, and its least number of arguments.
struct Known {
    name: String,
    arguments: usize,
    is_exact: bool,
}

/// Returns the commands that the cluster knows and that are not left out.
fn known(cluster: &Cluster) -> Vec<Known> {
    let mut connection = connect(cluster, 1);
    let names: Vec<String> = redis::cmd("COMMAND").arg("LIST").query(&mut connection).unwrap();
    let mut names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    names.retain(|name| !LEFT_OUT.contains(&name.as_str()));
    names.sort_unstable();
    let described: Vec<Vec<Value>> =
        redis::cmd("COMMAND").arg("INFO").arg(&names).query(&mut connection).unwrap();
    let arity = |described: &Vec<Value>| redis::from_redis_value::<i64>(described[1].clone()).unwrap();
    let arities = described.iter().map(arity);
    names
        .into_iter()
        .zip(arities)
        .map(|(name, arity)| Known {
            name,
            arguments: arity.unsigned_abs() as usize - 1,
            is_exact: arity > 0,
        })
        .collect()
}

/// Sends `count` commands. Any reply will do, as long as there is one.
fn send(cluster: &Cluster, names: &[Known], seed: u64, count: usize) -> usize {
    let (mut random, keys) = (Random::new(seed), keys());
    let mut connection = connect(cluster, seed as u16 % 3 + 1);
    let mut done = 0;
    for _ in 0..count {
        let Known { name, arguments, is_exact } = random.pick(names);
        let mut command = redis::cmd(name);
        if name.starts_with("eval") {
            command.arg(random.pick(&ARGUMENTS[30..])).arg(1);
        }
        // Most have the least number of arguments.
        let count = match random.below(10) {
            0 => random.below(6),
            1..=5 if !is_exact => arguments + random.below(4),
            _ => *arguments,
        };
        for at in 0..count {
            let is_key = if at == 0 { random.below(10) > 0 } else { random.below(4) == 0 };
            if is_key {
                command.arg(random.pick(&keys))
            } else {
                command.arg(random.pick(&ARGUMENTS))
            };
        }
        match command.query::<Value>(&mut connection) {
            Ok(_) => done += 1,
            Err(error) if error.code().is_some() => {}
            Err(error) => panic!("{name}: the connection has ended: {error}"),
        }
    }
    done
}

/// Returns everything that a node answers about the keys.
fn contents(connection: &mut Connection) -> Vec<String> {
    let mut ask = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(*word));
        format!(
            "{words:?}: {:?}",
            command.query::<Value>(connection).map_err(|error| error.code().map(str::to_owned))
        )
    };
    let mut replies = Vec::new();
    for key in keys() {
        for name in ["TYPE", "GET", "HGETALL", "PEXPIRETIME"] {
            replies.push(ask(&[name, &key]));
        }
    }
    replies
}

#[test]
fn random_commands_leave_all_nodes_alike() {
    let mut cluster = Cluster::start(3, KEYSPACES);
    let names = known(&cluster);
    assert!(names.len() > 60, "{}", names.len());
    let done: usize = std::thread::scope(|scope| {
        let (cluster, names) = (&cluster, &names);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| scope.spawn(move || send(cluster, names, seed, rounds(1500, 40_000))))
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert!(done > 1000, "only {done} commands made sense");
    // Keys with a lifetime of a second or less have expired by then.
    std::thread::sleep(Duration::from_millis(1200));
    let mut connections: Vec<Connection> = (1..=3).map(|id| connect(&cluster, id)).collect();
    let mut all = Vec::new();
    let mut are_alike = || {
        all = connections.iter_mut().map(contents).collect();
        all[0] == all[1] && all[0] == all[2]
    };
    let begun = std::time::Instant::now();
    while !are_alike() && begun.elapsed() < PATIENCE / 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
    for (first, others) in all[0].iter().zip(all[1].iter().zip(&all[2])) {
        assert_eq!((first, first), others, "nodes 2 and 3 beside node 1");
    }
    let held =
        all[0].iter().filter(|replies| replies.starts_with("[\"TYPE\"") && !replies.contains("none")).count();
    assert!(held >= 3, "only {held} keys are left to compare: {:?}", all[0]);
    until("all nodes answer", || (1..=3).all(|id| cluster.client(id).ask("PING") == "+PONG"));
    cluster.assert_takes_writes();
}
