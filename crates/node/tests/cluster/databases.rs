//! `SELECT` and `MOVE`: each database is a keyspace of its own.

use crate::support::{Client, Cluster, assert_error, seeded, setup};

const DATABASES: [&str; 3] = [
    "prefix= replication=consensus",
    "prefix=@1 replication=consensus shards=2",
    "prefix=@2 replication=leader-follower acks=majority",
];

/// A client of a node that has selected a database.
pub(crate) fn client_of(cluster: &mut Cluster, node: u16, database: u8) -> Client {
    let client = cluster.client(node);
    assert_eq!(cluster.ask(client, &format!("SELECT {database}")), "OK");
    client
}

#[test]
fn a_database_comes_into_being_with_its_first_use() {
    let mut cluster = setup(3, &["prefix= replication=consensus shards=2"]).start();
    let (client, other) = (cluster.client(2), cluster.client(3));
    for wrong in ["SELECT 16", "SELECT -1"] {
        assert_eq!(cluster.ask(client, wrong), "-ERR DB index is out of range");
    }
    assert_eq!(cluster.ask(client, "SELECT one"), "-ERR value is not an integer or out of range");
    assert_eq!(cluster.ask(client, "CONFIG GET databases"), "[\"databases\", \"16\"]");
    for client in [client, other] {
        assert_eq!(cluster.ask(client, "SELECT 4"), "OK");
    }
    // What concerns no keys creates nothing.
    for request in ["PING", "CLIENT INFO", "INFO keyspace", "SUBSCRIBE c", "UNSUBSCRIBE c", "DISCARD"] {
        cluster.ask(client, request);
    }
    cluster.turns(50);
    assert_eq!(cluster.ask(client, "KEYSPACE LIST"), "[\"\"]");
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    assert_eq!(cluster.ask(other, "GET k"), "\"v\"");
    assert!(cluster.ask(client, "CLIENT INFO").contains(" db=4 "));
    assert!(cluster.ask(client, "KEYSPACE GET @4").contains("\"shards\", \"2\""), "as database 0");
    assert_eq!(cluster.ask(client, "KEYSPACE DROP @4"), "OK");
    assert_eq!(cluster.ask(client, "GET k"), "nil", "it begins again, empty");
    assert_eq!(cluster.ask(client, "RESET"), "RESET");
    assert_eq!(cluster.ask(client, "GET k"), "nil");
}

/// Each of these is the first use of its database, and clients of all nodes use it at once.
#[test]
fn every_kind_of_command_waits_for_its_database() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let uses = [
        ("GET k", "nil"),
        ("EVAL return(redis.call('incr',KEYS[1])) 1 k", "1"),
        ("BLPOP l 0.01", "nil"),
        ("LOCK l me PX 1000 WAIT 10", ""),
        ("WATCH k", "OK"),
        ("MULTI", "OK"),
        ("DBSIZE", "0"),
        ("FLUSHDB", "OK"),
        ("OBJECT REFCOUNT k", "nil"),
        ("XREAD BLOCK 10 STREAMS s $", "nil"),
    ];
    for (database, (request, reply)) in uses.iter().enumerate() {
        let clients = [1, 2, 3].map(|node| client_of(&mut cluster, node, database as u8 + 1));
        let found = cluster.ask(clients[0], request);
        assert!(found == *reply || reply.is_empty() && !found.starts_with('-'), "{request}: {found}");
        for client in &clients[1..] {
            assert_eq!(
                cluster.ask(*client, "INCR m"),
                if *client == clients[1] { "1" } else { "2" },
                "{request}"
            );
        }
    }
    let client = client_of(&mut cluster, 1, 14);
    assert_eq!(cluster.ask(client, "MOVE k 13"), "0", "neither existed");
    let client = cluster.client(1);
    cluster.ask(client, "SET k v");
    assert_eq!(cluster.ask(client, "MOVE k 15"), "1", "the target comes into being, too");
    assert_eq!(cluster.ask(client, "SELECT 15"), "OK");
    assert_eq!(cluster.ask(client, "GET k"), "\"v\"");
}

/// No command relies on the database of its client to exist.
#[test]
fn every_command_can_be_the_first_in_its_database() {
    let mut cluster = setup(1, &["prefix= replication=consensus"]).start();
    let operator = cluster.client(1);
    let commands = cluster.ask(operator, "COMMAND LIST");
    let is_apart = |name: &str| {
        // They end the connection or the node's part in the cluster, or change what the next one meets.
        ["quit", "shutdown", "cluster|", "keyspace|", "acl|", "config|", "client|", "debug|", "monitor"]
            .iter()
            .any(|apart| name.starts_with(apart))
    };
    let names: Vec<String> = commands.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(names.len() > 250, "{}", names.len());
    let mut created = 0;
    for name in names.iter().filter(|name| !is_apart(name)) {
        let name = name.replace('|', " ");
        for arguments in ["", " k", " k 1", " k 1 1", " 1 k", " k 1 1 1 1"] {
            let client = client_of(&mut cluster, 1, 7);
            cluster.send(client, &format!("{name}{arguments}"));
            cluster.turns(10);
            cluster.close(client);
            if cluster.ask(operator, "KEYSPACE LIST").contains("@7") {
                created += 1;
                assert_eq!(cluster.ask(operator, "KEYSPACE DROP @7"), "OK", "{name}{arguments}");
            }
        }
    }
    assert!(created > 300, "{created}");
}

#[test]
fn a_database_that_cannot_be_created_is_refused_in_time() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let client = client_of(&mut cluster, 1, 3);
    cluster.cut_off(1);
    let took_ms = cluster.time(|cluster| assert_error(&cluster.ask(client, "SET k v"), "NOLEADER"));
    assert!(took_ms < 6000, "{took_ms} ms");
    cluster.reconnect(1);
    cluster.settle();
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
}

#[test]
fn a_database_that_may_not_be_created_is_refused_with_the_reason() {
    let groups = |configuration: &mut node::Configuration| configuration.groups_max = 2;
    let mut cluster = setup(3, &["prefix= replication=consensus shards=2"]).with(groups).start();
    let client = client_of(&mut cluster, 2, 3);
    for request in ["SET k v", "MULTI"] {
        let mut reply = String::new();
        let took_ms = cluster.time(|cluster| reply = cluster.ask(client, request));
        assert!(took_ms < 2000, "{took_ms} ms");
        assert!(
            reply.starts_with("-ERR database 3 cannot be created: ") && reply.contains("groups_max"),
            "{reply}"
        );
    }
    assert_eq!(cluster.ask(client, "SELECT 0"), "OK");
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
}

#[test]
fn commands_in_one_database_do_not_affect_others() {
    let mut cluster = setup(3, &[&DATABASES[..], &["prefix=@x replication=consensus"]].concat()).start();
    let clients: Vec<Client> =
        (0..3).map(|number| client_of(&mut cluster, u16::from(number) + 1, number)).collect();
    for (number, client) in clients.iter().enumerate() {
        for key in ["k", "@1", "@xk", "c"] {
            assert_eq!(cluster.ask(*client, &format!("SET {key} {number}")), "OK");
        }
        assert_eq!(cluster.ask(*client, &format!("RPUSH list {number}")), "1");
    }
    let others = clients.clone();
    for (number, client) in others.iter().enumerate() {
        assert_eq!(cluster.ask(*client, "MGET k"), format!("[\"{number}\"]"));
        assert_eq!(cluster.ask(*client, "GET @1"), format!("\"{number}\""));
        assert_eq!(cluster.ask(*client, "DBSIZE"), "5");
        assert_eq!(cluster.ask(*client, "KEYS c*"), "[\"c\"]");
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = cluster.ask(*client, &format!("SCAN {cursor} COUNT 2"));
            let words: Vec<String> = reply
                .split(['[', ']', ',', '"', ' '])
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect();
            cursor.clone_from(&words[0]);
            found.extend_from_slice(&words[1..]);
            if cursor == "0" {
                break;
            }
        }
        found.sort_unstable();
        assert_eq!(found, ["@1", "@xk", "c", "k", "list"]);
        assert_eq!(
            cluster.ask(*client, "EVAL return(redis.call('get',KEYS[1])) 1 k"),
            format!("\"{number}\"")
        );
        assert_eq!(cluster.ask(*client, "BLPOP list 1"), format!("[\"list\", \"{number}\"]"));
        assert_eq!(cluster.ask(*client, "MULTI"), "OK");
        assert_eq!(cluster.ask(*client, "APPEND k +"), "QUEUED");
        assert_error(&cluster.ask(*client, &format!("SELECT {}", (number + 1) % 3)), "ERR");
        assert_error(&cluster.ask(*client, "EXEC"), "EXECABORT");
        assert_eq!(cluster.ask(*client, "WATCH k"), "OK");
        assert_error(&cluster.ask(*client, &format!("SELECT {}", (number + 1) % 3)), "ERR");
        assert_eq!(cluster.ask(*client, "MULTI"), "OK");
        assert_eq!(cluster.ask(*client, "APPEND k +"), "QUEUED");
        assert_eq!(cluster.ask(*client, "EXEC"), "[2]");
    }
    for client in &clients[..2] {
        let reply = cluster.ask(*client, "LOCK l o PX 1000");
        assert!(!reply.starts_with('-') && reply != "nil", "each has a lock of that name: {reply}");
    }
    let info = cluster.ask(clients[0], "INFO keyspace");
    assert!(info.contains("db0:keys=") && info.contains("db1:keys=") && info.contains("db2:keys="), "{info}");
    assert_eq!(cluster.ask(clients[1], "FLUSHDB"), "OK");
    assert_eq!([0, 1, 2].map(|number| cluster.ask(clients[number], "DBSIZE")), ["4", "0", "4"]);
    assert_eq!(cluster.ask(clients[1], "COPY k k DB 0"), "0", "it is gone there");
    assert_eq!(cluster.ask(clients[1], "SET k v"), "OK");
    assert_eq!(cluster.ask(clients[1], "FLUSHALL"), "OK");
    assert_eq!([0, 1, 2].map(|number| cluster.ask(clients[number], "DBSIZE")), ["0", "0", "0"]);
}

#[test]
fn notifications_name_the_database() {
    let mut cluster = setup(3, &DATABASES).start();
    let listener = cluster.client(3);
    assert_eq!(cluster.ask(listener, "CONFIG SET notify-keyspace-events KEA"), "OK");
    assert_eq!(cluster.ask(listener, "PSUBSCRIBE __key*@2__:*"), "[\"psubscribe\", \"__key*@2__:*\", 1]");
    let [zero, two] = [0, 2].map(|number| client_of(&mut cluster, 1, number));
    assert_eq!(cluster.ask(zero, "SET other v"), "OK");
    assert_eq!(cluster.ask(two, "SET k v"), "OK");
    assert_eq!(cluster.reply(listener), "[\"pmessage\", \"__key*@2__:*\", \"__keyspace@2__:k\", \"set\"]");
    assert_eq!(cluster.reply(listener), "[\"pmessage\", \"__key*@2__:*\", \"__keyevent@2__:set\", \"k\"]");
}

#[test]
fn a_key_moves_with_its_expiry_unless_the_other_database_has_it() {
    let mut cluster = setup(3, &DATABASES).start();
    for (node, from, to) in [(1, 0, 1), (2, 1, 2), (3, 2, 0)] {
        let (here, there) = (client_of(&mut cluster, node, from), client_of(&mut cluster, 1, to));
        assert_eq!(cluster.ask(here, &format!("MOVE k {to}")), "0", "it is not there");
        for fill in
            ["SET k v PX 100000", "RPUSH list a b", "ZADD z 1 a", "XADD s 1-1 a b", "HSET h a b", "SET n 7"]
        {
            cluster.ask(here, fill);
        }
        for key in ["k", "list", "z", "s", "h"] {
            assert_eq!(cluster.ask(here, &format!("MOVE {key} {to}")), "1");
        }
        assert_eq!(cluster.ask(here, "KEYS *"), "[\"n\"]");
        let left_ms: u64 = cluster.ask(there, "PTTL k").parse().unwrap();
        assert!((90_000..=100_000).contains(&left_ms), "{left_ms}");
        assert_eq!(cluster.ask(there, "LRANGE list 0 -1"), "[\"a\", \"b\"]");
        assert_eq!(cluster.ask(there, "XLEN s"), "1");
        assert_eq!(cluster.ask(there, "SET n 8"), "OK");
        assert_eq!(cluster.ask(here, &format!("MOVE n {to}")), "0", "the other one has it");
        assert_eq!([here, there].map(|client| cluster.ask(client, "GET n")), ["\"7\"", "\"8\""]);
        assert_eq!(cluster.ask(there, "FLUSHALL"), "OK");
        assert_error(&cluster.ask(there, &format!("MOVE k {to}")), "ERR");
        assert_error(&cluster.ask(there, "MOVE k 16"), "ERR");
        assert_error(&cluster.ask(there, "MOVE k x"), "ERR");
    }
    let mut cluster = setup(
        3,
        &[
            "prefix= replication=consensus",
            "prefix=@1 replication=abd",
            "prefix=@3 replication=leader-follower acks=none",
        ],
    )
    .start();
    let client = cluster.client(1);
    for (number, why) in [(1, "it has registers"), (3, "it has acks = \"none\"")] {
        for request in [format!("MOVE k {number}"), format!("COPY k k DB {number}")] {
            let refused = cluster.ask(client, &request);
            assert!(
                refused.contains(&format!("'@{number}' takes part")) && refused.contains(why),
                "{refused}"
            );
        }
    }
}

#[test]
fn a_value_on_the_disk_can_be_moved() {
    for replication in ["consensus", "leader-follower acks=majority"] {
        let disk = format!("prefix=@1 replication={replication} storage=disk storage_threshold=64");
        let mut cluster = setup(3, &["prefix= replication=consensus", &disk]).start();
        let text = "x".repeat(5000);
        for node in 1..=3 {
            let (zero, one) = (client_of(&mut cluster, node, 0), client_of(&mut cluster, node, 1));
            assert_eq!(cluster.ask(zero, &format!("SET k {text} PX 100000")), "OK");
            for (client, to) in [(zero, 1), (one, 0), (zero, 1)] {
                assert_eq!(cluster.ask(client, &format!("MOVE k {to}")), "1", "node {node}");
            }
            assert_eq!(cluster.ask(one, "GETDEL k"), format!("\"{text}\""));
        }
    }
}

/// A count arrives at each moment of a move: before it, while the key is locked, and after it. Nothing is lost or counted twice.
#[test]
fn a_key_is_counted_before_it_moves_or_after_it() {
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let mut cluster = setup(3, &DATABASES).start();
        let (mover, counter) = (client_of(&mut cluster, 2, from), client_of(&mut cluster, 1, from));
        let (here, there) = (client_of(&mut cluster, 3, from), client_of(&mut cluster, 3, to));
        for turns in 0..40 {
            let key = format!("k{turns}");
            assert_eq!(cluster.ask(counter, &format!("INCRBY {key} 10")), "10");
            cluster.send(mover, &format!("MOVE {key} {to}"));
            cluster.turns(turns);
            cluster.send(counter, &format!("INCR {key}"));
            assert_eq!(cluster.reply(mover), "1", "{turns} turns");
            let counted = cluster.reply(counter);
            let found = [here, there].map(|client| cluster.ask(client, &format!("GET {key}")));
            match counted.as_str() {
                "11" => assert_eq!(found, ["nil", "\"11\""], "{turns} turns"),
                // The key had moved away.
                "1" => assert_eq!(found, ["\"1\"", "\"10\""], "{turns} turns"),
                other => panic!("{turns} turns: {other}"),
            }
        }
    }
}

/// The replies that clients got about the keys of a run.
#[derive(Default)]
struct Tally {
    /// The numbers of acknowledged counts, and of counts with an unknown outcome.
    counted: [u64; 4],
    maybe: [u64; 4],
}

impl Tally {
    fn take(&mut self, moves: bool, key: usize, reply: &str) {
        if !moves {
            self.counted[key] += u64::from(!reply.starts_with('-'));
            self.maybe[key] += u64::from(reply.starts_with("-UNKNOWN"));
        }
    }
}

/// Four counters move between databases while clients count and nodes are cut off. Each acknowledged count is in exactly one of the
/// databases, also where the outcome of a move is not known.
#[test]
fn no_count_is_lost_while_keys_move() {
    for seed in 0..40 {
        let (_, mut draws) = seeded(DATABASES[0], seed, None);
        let mut cluster = setup(3, &DATABASES).start();
        let clients: Vec<(Client, u8)> = (0..9)
            .map(|place| {
                let database = (place % 3) as u8;
                (client_of(&mut cluster, 1 + place / 3, database), database)
            })
            .collect();
        let mut waiting: Vec<Option<(bool, usize)>> = vec![None; clients.len()];
        let mut tally = Tally::default();
        let mut cut: Option<u16> = None;
        for turn in 0..1500 {
            for (place, (client, database)) in clients.iter().enumerate() {
                if let Some((moves, key)) = waiting[place] {
                    let Some(reply) = cluster.arrived(*client) else { continue };
                    waiting[place] = None;
                    tally.take(moves, key, &reply);
                } else if turn < 1200 && draws.below(12) == 0 {
                    let key = draws.below(4) as usize;
                    let moves = draws.below(3) == 0;
                    let to = (u64::from(*database) + 1 + draws.below(2)) % 3;
                    waiting[place] = Some((moves, key));
                    match moves {
                        true => cluster.send(*client, &format!("MOVE k{key} {to}")),
                        false => cluster.send(*client, &format!("INCR k{key}")),
                    }
                }
            }
            if draws.below(150) == 0 {
                match cut.take() {
                    Some(node) => cluster.reconnect(node),
                    None => {
                        let node = 1 + draws.below(3) as u16;
                        cluster.cut_off(node);
                        cut = Some(node);
                    }
                }
            }
            cluster.turn();
        }
        if let Some(node) = cut {
            cluster.reconnect(node);
        }
        for (place, (client, _)) in clients.iter().enumerate() {
            if let Some((moves, key)) = waiting[place] {
                let reply = cluster.reply(*client);
                tally.take(moves, key, &reply);
            }
        }
        cluster.settle();
        for key in 0..4 {
            // A count in a database without the key begins at zero there, so all databases together hold the counts.
            let values: Vec<u64> = (0..3)
                .map(|database| {
                    let client = client_of(&mut cluster, 1, database);
                    let reply = cluster.ask(client, &format!("GET k{key}"));
                    reply.trim_matches('"').parse().unwrap_or(0)
                })
                .collect();
            let sum: u64 = values.iter().sum();
            let (least, most) = (tally.counted[key], tally.counted[key] + tally.maybe[key]);
            assert!(sum >= least, "seed {seed}, k{key}: {values:?} hold less than the {least} counts");
            assert!(sum <= most, "seed {seed}, k{key}: {values:?} hold more than {most} counts");
        }
    }
}

/// A user has the rights of the database that its client has selected, in its requests, its transactions and its scripts.
#[test]
fn users_have_rights_to_databases() {
    let mut cluster = setup(3, &DATABASES).start();
    let operator = cluster.client(1);
    let rules = "on >p ~* &* +@all db=0,1 (db=2 ~* +get +select)";
    assert_eq!(cluster.ask(operator, &format!("ACL SETUSER u {rules}")), "OK");
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "AUTH u p"), "OK");
    let denied = |number: u8| format!("-NOPERM No permissions to access database {number}");
    for (request, expected) in [
        ("SET k v", "OK".to_owned()),
        ("SELECT 3", denied(3)),
        ("MOVE k 3", denied(3)),
        ("MOVE k 1", "1".into()),
        ("FLUSHALL", denied(2)),
        ("SELECT 1", "OK".into()),
        ("EVAL return(redis.call('get',KEYS[1])) 1 k", "\"v\"".into()),
        ("MULTI", "OK".into()),
        ("DEL k", "QUEUED".into()),
    ] {
        assert_eq!(cluster.ask(client, request), expected, "{request}");
    }
    // The right is taken away before the transaction is carried out.
    assert_eq!(cluster.ask(operator, "ACL SETUSER u db=0"), "OK");
    assert_error(&cluster.ask(client, "EXEC"), "NOPERM");
    assert_eq!(cluster.ask(client, "GET k"), denied(1), "the client stays where it is");
    assert_eq!(cluster.ask(client, "SELECT 2"), "OK");
    assert_eq!(cluster.ask(client, "GET k"), "nil");
    assert_eq!(cluster.ask(client, "SET k v"), "-NOPERM User u has no permissions to run the 'set' command");
    // The client's node has refused it.
    let beside = cluster.client(2);
    let log = cluster.ask(beside, "ACL LOG");
    assert!(log.contains("\"database\""), "{log}");
    let stats = cluster.ask(beside, "INFO stats");
    assert!(stats.contains("acl_access_denied_db:4") && stats.contains("acl_access_denied_cmd:2"), "{stats}");
    let shown = cluster.ask(operator, "ACL GETUSER u");
    assert!(
        shown.contains("\"databases\", \"db=0\"") && shown.contains("\"databases\", \"db=2\""),
        "{shown}"
    );
    let shown = cluster.ask(operator, "ACL GETUSER default");
    assert!(!shown.contains("databases"), "Redis's clients know no such field: {shown}");
    let tried = cluster.ask(operator, "ACL DRYRUN u COPY a b DB 1");
    assert_eq!(tried, "\"User u has no permissions to access database 1\"");
    // A script in another database has none of the rights to this one.
    assert_eq!(cluster.ask(operator, "ACL SETUSER u resetdbs (db=2 ~* +eval) (db=0 ~* +set)"), "OK");
    let refused = cluster.ask(client, "EVAL return(redis.call('set',KEYS[1],1)) 1 k");
    assert!(refused.contains("can't run this command or subcommand: 'set'"), "{refused}");
}

#[test]
fn a_copy_in_another_database_is_made_by_any_node_and_the_database_comes_into_being() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    for node in 1..=3 {
        let (here, there) = (cluster.client(node), cluster.client(node));
        let to = node + 3;
        cluster.ask(here, &format!("SET k v{node} PX 100000"));
        assert_eq!(cluster.ask(here, &format!("COPY nothing other DB {to}")), "0");
        assert_eq!(cluster.ask(here, &format!("COPY k k DB {to}")), "1");
        assert_eq!(cluster.ask(there, &format!("SELECT {to}")), "OK");
        assert_eq!(cluster.ask(there, "GET k"), format!("\"v{node}\""));
        let Ok(left_ms) = cluster.ask(there, "PTTL k").parse::<u64>() else { panic!("no deadline") };
        assert!((90_000..=100_000).contains(&left_ms), "{left_ms}");
        cluster.ask(here, "SET k w");
        assert_eq!(cluster.ask(here, &format!("COPY k k DB {to}")), "0", "it exists");
        assert_eq!(cluster.ask(here, &format!("COPY k k DB {to} REPLACE")), "1");
        assert_eq!([cluster.ask(there, "GET k"), cluster.ask(there, "PTTL k")], ["\"w\"", "-1"]);
        assert_eq!(cluster.ask(there, "COPY k copy REPLACE DB 0"), "1");
        assert_eq!(cluster.ask(here, "GET copy"), "\"w\"");
    }
    let client = cluster.client(1);
    assert_error(&cluster.ask(client, "COPY k k DB 16"), "ERR");
    assert_eq!(cluster.ask(client, "MULTI"), "OK");
    assert_eq!(cluster.ask(client, "COPY k k DB 4"), "QUEUED");
    let done = cluster.ask(client, "EXEC");
    assert!(done.contains("makes no copies in other databases here"), "{done}");
    let refused = cluster.ask(client, "EVAL return(redis.pcall('copy',KEYS[1],KEYS[1],'DB',4)) 1 k");
    assert!(refused.contains("makes no copies in other databases here"), "{refused}");
}
