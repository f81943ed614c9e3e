//! Change streams: every committed change of a keyspace, in order and once, at any node and despite faults.

use crate::support::{Client, Cluster, seeded, setup};
use protocol::planted::Fault;
use std::collections::BTreeMap;

const CONSENSUS: &str = "prefix=p: replication=consensus changes_bytes=1mb";
const LEADER_FOLLOWER: &str = "prefix=p: replication=leader-follower acks=majority changes_bytes=1mb";

fn watching(cluster: &mut Cluster, node: u16, from: &str) -> Client {
    let client = cluster.client(node);
    cluster.ask(client, "HELLO 3");
    assert_eq!(cluster.ask(client, format!("KEYSPACE WATCH p: {from}").trim_end()), "OK");
    client
}

fn messages(cluster: &mut Cluster, client: Client) -> Vec<String> {
    cluster.turns(60);
    std::iter::from_fn(|| cluster.arrived(client)).collect()
}

/// The parts of a message in quotes.
fn words(message: &str) -> Vec<String> {
    message.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
fn every_reader_gets_every_change_at_every_node() {
    for keyspace in [CONSENSUS, LEADER_FOLLOWER] {
        // The third node has no replica.
        let mut cluster = setup(3, &[&format!("{keyspace} replicas=2")]).start();
        let writer = cluster.client(1);
        cluster.ask(writer, "SET p:before v");
        let readers = [1, 2, 3].map(|node| watching(&mut cluster, node, "FROM 0"));
        cluster.ask(writer, "SET p:k v PX 100000");
        for request in ["MULTI", "INCR p:n", "RPUSH p:l a", "EXEC"] {
            cluster.ask(writer, request);
        }
        cluster.ask(writer, "GET p:k");
        cluster.ask(writer, "DEL p:k");
        let all = messages(&mut cluster, readers[0]);
        for reader in &readers[1..] {
            assert_eq!(messages(&mut cluster, *reader), all, "{keyspace}");
        }
        let shown: Vec<String> = all.iter().map(|message| words(message).join(" ")).collect();
        let version = |place: usize| words(&all[place])[2].clone();
        assert_eq!(shown.len(), 5, "{shown:?}");
        assert_eq!(shown[0], format!("position p: {}", version(0)));
        assert_eq!(shown[1], format!("change p: {} p:before set SET p:before v", version(1)));
        assert!(
            shown[2].starts_with(&format!("change p: {} p:k set p:k expire SET p:k v PXAT ", version(2))),
            "{shown:?}"
        );
        assert_eq!(
            shown[3],
            format!("change p: {} p:n incrby p:l rpush INCRBY p:n 1 RPUSH p:l a", version(3))
        );
        assert_eq!(shown[4], format!("change p: {} p:k del DEL p:k", version(4)));
        // A reader can continue at any node with a version from any node.
        for node in [1, 2, 3] {
            let late = watching(&mut cluster, node, &format!("FROM {}", version(3)));
            assert_eq!(messages(&mut cluster, late)[1..], all[4..]);
            let asked = cluster.ask(late, &format!("KEYSPACE CHANGES p: FROM {} BYTES 1", version(3)));
            assert_eq!(words(&asked)[..2], [version(4), version(4)]);
            let asked = cluster.ask(late, &format!("KEYSPACE CHANGES p: FROM {}", version(4)));
            assert_eq!(asked, format!("[\"{}\", []]", version(4)));
        }
        // A reader without a version begins at the keyspace's current one.
        let now = watching(&mut cluster, 3, "");
        assert_eq!(messages(&mut cluster, now), [format!("[\"position\", \"p:\", \"{}\"]", version(4))]);
        assert_eq!(cluster.ask(now, "KEYSPACE UNWATCH p:"), "1");
        cluster.ask(writer, "SET p:k w");
        assert!(messages(&mut cluster, now).is_empty());
        assert_eq!(messages(&mut cluster, readers[2]).len(), 1);
    }
}

#[test]
fn the_version_of_a_keyspace_names_all_of_its_shards() {
    let mut cluster = setup(3, &[&format!("{CONSENSUS} shards=3 replicas=1")]).start();
    let reader = watching(&mut cluster, 2, "FROM 0");
    let writer = cluster.client(1);
    for number in 0..20 {
        cluster.ask(writer, &format!("SET p:k{number} v"));
    }
    let all = messages(&mut cluster, reader);
    assert_eq!(all.len(), 21);
    // From each version on, another node returns the same remaining changes, perhaps in another order between shards.
    for place in [1, 7, 19] {
        let version = words(&all[place])[2].clone();
        assert_eq!(version.matches(',').count(), 2);
        let late = watching(&mut cluster, 1, &format!("FROM {version}"));
        let keys = |messages: &[String]| -> Vec<String> {
            let mut keys: Vec<String> = messages.iter().map(|message| words(message)[3].clone()).collect();
            keys.sort();
            keys
        };
        assert_eq!(keys(&messages(&mut cluster, late)[1..]), keys(&all[place + 1..]));
        cluster.close(late);
    }
}

/// In one answer the versions at a record differ from those at the one before in its own shard alone, also where records have changed
/// nothing in between.
#[test]
fn the_versions_at_a_change_tell_its_shard() {
    let mut cluster = setup(3, &[&format!("{CONSENSUS} shards=3")]).start();
    let writer = cluster.client(1);
    for number in 0..20 {
        cluster.ask(writer, &format!("SET p:k{number} v"));
        // Nothing to change, in shards of which most come before that of the next change.
        (0..6).for_each(|key| drop(cluster.ask(writer, &format!("SREM p:none{key} m"))));
    }
    let versions = |word: &String| word.split(',').map(str::to_owned).collect::<Vec<_>>();
    for node in [1, 2, 3] {
        let reader = cluster.client(node);
        cluster.turns(60);
        let all = words(&cluster.ask(reader, "KEYSPACE CHANGES p: FROM 0"));
        let said: Vec<Vec<String>> =
            all[1..].iter().filter(|it| it.matches(',').count() == 2).map(versions).collect();
        assert_eq!(said.len(), 20);
        for two in said.windows(2) {
            let differ = two[0].iter().zip(&two[1]).filter(|(one, other)| one != other).count();
            assert_eq!(differ, 1, "node {node}: {two:?}");
        }
    }
}

#[test]
fn the_changes_of_a_transaction_name_it_in_each_shard() {
    let mut cluster = setup(3, &[&format!("{CONSENSUS} shards=3"), "prefix=q: changes_bytes=1mb"]).start();
    let writer = cluster.client(1);
    let reader = watching(&mut cluster, 2, "FROM 0");
    cluster.ask(writer, "SET p:alone 1");
    assert_eq!(cluster.ask(writer, "MSET p:a 1 p:b 2 p:c 3 p:d 4 p:e 5 p:f 6 q:a 7"), "OK");
    for request in ["MULTI", "INCR p:a", "GET q:a", "EXEC"] {
        cluster.ask(writer, request);
    }
    let all = messages(&mut cluster, reader);
    assert_eq!(all.len(), 6, "{all:?}");
    let named = |message: &String| {
        let last = message.rsplit_once('[').unwrap().1.trim_end_matches(']').replace('"', "");
        let parts: Vec<String> = last.split(", ").map(str::to_owned).collect();
        (parts[0].clone(), parts[1..].to_vec())
    };
    let (id, groups) = named(&all[2]);
    assert!(id.matches('-').count() == 2 && groups.len() == 4, "{all:?}");
    assert!(all[2..5].iter().all(|message| named(message) == (id.clone(), groups.clone())), "{all:?}");
    let (next, of_two) = named(&all[5]);
    assert!(next != id && of_two.len() == 2, "{all:?}");
    // The group in which nothing changed has a record, too.
    let asked = cluster.ask(writer, "KEYSPACE CHANGES q: FROM 0");
    assert!(asked.contains(&id) && asked.contains(&format!("[], [], [\"{next}\"")), "{asked}");
}

#[test]
fn a_late_reader_gets_the_oldest_version() {
    let mut cluster = setup(3, &["prefix=p: replication=consensus changes_bytes=1000 replicas=2"]).start();
    let writer = cluster.client(1);
    for number in 0..50 {
        cluster.ask(writer, &format!("SET p:k{number} v"));
    }
    for node in [1, 2, 3] {
        let late = watching(&mut cluster, node, "FROM 0");
        let ended = messages(&mut cluster, late).pop().unwrap();
        assert_eq!(words(&ended)[0], "ended");
        let text = words(&ended)[2].clone();
        assert!(text.starts_with("BEHIND "), "{text}");
        let oldest = text.rsplit(' ').next().unwrap().to_string();
        let reply = cluster.ask(late, "KEYSPACE CHANGES p: FROM 0");
        assert!(reply.contains("BEHIND") && reply.contains(&oldest), "{reply}");
        let reply = cluster.ask(late, &format!("KEYSPACE CHANGES p: FROM {oldest}"));
        assert!(words(&reply).iter().any(|word| word == "p:k49"), "{reply}");
    }
}

#[test]
fn a_shard_is_copied_by_its_leader_if_the_copy_can_show_one_moment() {
    let keyspaces = [
        &format!("{CONSENSUS} shards=2")[..],
        "prefix=lf: replication=leader-follower",
        "prefix=abd: replication=abd",
        "prefix=disk: storage=disk storage_threshold=64",
    ];
    let mut cluster = setup(3, &keyspaces).start();
    let writer = cluster.client(1);
    cluster.ask(writer, "SET p:k v");
    cluster.ask(writer, &format!("SET disk:k {}", "v".repeat(100)));
    for (prefix, shard) in [("p:", 0), ("p:", 1), ("lf:", 0)] {
        let mut copies = 0;
        for node in [1, 2, 3] {
            let client = cluster.client(node);
            let reply = cluster.ask(client, &format!("KEYSPACE COPY {prefix} {shard}"));
            match reply.starts_with("COPY ") {
                true => copies += 1,
                false => assert!(reply.contains("NOTLEADER"), "{reply}"),
            }
            cluster.close(client);
        }
        assert_eq!(copies, 1, "{prefix} {shard}");
    }
    for node in [1, 2, 3] {
        let client = cluster.client(node);
        for (request, reason) in [
            ("KEYSPACE COPY p: 2", "shards 0 to 1"),
            ("KEYSPACE COPY p: all", "shards 0 to 1"),
            ("KEYSPACE COPY nosuch: 0", "NOTFOUND"),
            ("KEYSPACE COPY abd: 0", "NOCOPY"),
        ] {
            let reply = cluster.ask(client, request);
            assert!(reply.contains(reason), "{request}: {reply}");
        }
        let reply = cluster.ask(client, "KEYSPACE COPY disk: 0");
        assert!(reply.contains("NOCOPY") || reply.contains("NOTLEADER"), "{reply}");
    }
    let before = cluster.ask(writer, "KEYSPACE CHANGES p: FROM 0");
    let with_times = cluster.ask(writer, "KEYSPACE CHANGES p: FROM 0 TIMES");
    assert_eq!(words(&before), words(&with_times));
    assert_eq!(
        with_times.matches(',').count(),
        before.matches(',').count() + 1,
        "a time for the only record"
    );
}

#[test]
fn copies_are_of_one_moment_while_all_keys_are_locked() {
    let mut cluster = setup(3, &["prefix= shards=2", "prefix=b:", "prefix=abd: replication=abd"]).start();
    let (locker, writer) = (cluster.client(1), cluster.client(2));
    let lock = "CLUSTER BACKUP LOCK 1 2 4";
    for (wrong, why) in [
        ("CLUSTER BACKUP LOCK 99", "no such group"),
        ("CLUSTER BACKUP LOCK 1 3", "registers"),
        ("CLUSTER BACKUP UNLOCK 1-1-1", "no keys are locked"),
        ("CLUSTER BACKUP UNLOCK x", "no keys are locked"),
        ("KEYSPACE COPY b: 0 LOCKED x", "behind LOCKED"),
        ("KEYSPACE COPY b: 0 MORE 1-1-1", "syntax"),
    ] {
        let reply = cluster.ask(locker, wrong);
        assert!(reply.contains(why), "{wrong}: {reply}");
    }
    let copy = |cluster: &mut Cluster, prefix: &str, shard: u16, id: &str| {
        let replies = [1, 2, 3].map(|node| {
            let client = cluster.client(node);
            let reply = cluster.ask(client, &format!("KEYSPACE COPY {prefix} {shard} LOCKED {id}"));
            cluster.close(client);
            reply
        });
        replies.into_iter().find(|reply| !reply.contains("NOTLEADER")).expect("one of them leads")
    };
    for id_is_held in [true, false] {
        let id = cluster.ask(locker, lock).trim_matches('"').to_owned();
        assert!(id.starts_with("1-"), "{id}");
        if id_is_held {
            cluster.send(writer, "SET b:k 1");
            cluster.turns(20);
            assert_eq!(cluster.arrived(writer), None, "it waits");
            for (prefix, shard) in [("", 0), ("", 1), ("b:", 0)] {
                let reply = copy(&mut cluster, prefix, shard, &id);
                assert!(reply.starts_with("COPY "), "{reply}");
            }
            assert_eq!(cluster.ask(locker, &format!("CLUSTER BACKUP UNLOCK {id}")), "OK");
        } else {
            // Nobody unlocks: that ends by itself.
            let waited_ms = cluster.time(|cluster| assert_eq!(cluster.ask(writer, "SET b:k 2"), "OK"));
            assert!((100..1000).contains(&waited_ms), "{waited_ms} ms");
        }
        if id_is_held {
            assert_eq!(cluster.reply(writer), "OK");
        }
        let reply = copy(&mut cluster, "b:", 0, &id);
        assert!(reply.contains("UNLOCKED"), "{reply}");
    }
}

/// A leader was paused, and another one leads by now. It does not know that yet, and what was acknowledged since would be
/// missing in its copy.
#[test]
fn a_deposed_leader_gives_no_copy() {
    let mut cluster = setup(3, &["prefix= replication=consensus leader=1"]).start();
    let (copies, writer) = (cluster.client(1), cluster.client(2));
    let leads = |cluster: &mut Cluster, id| cluster.keyspace(id, "default").role == "leader";
    cluster.until("node 1 leads", |cluster| leads(cluster, 1));
    assert_eq!(cluster.ask(writer, "SET k old"), "OK");
    // It hears the others' heartbeats at once, and gets their other messages late.
    [2, 3].into_iter().for_each(|peer| cluster.set_bandwidth(1, peer, Some(1)));
    cluster.pause(1);
    cluster.until("another node leads", |cluster| leads(cluster, 2) || leads(cluster, 3));
    cluster.until("it serves", |cluster| cluster.ask(writer, "SET k new") == "OK");
    cluster.go_on(1);
    cluster.turns(2);
    assert!(leads(&mut cluster, 1) && cluster.keyspace(1, "default").ready, "it believes that it leads");
    cluster.send(copies, "KEYSPACE COPY  0");
    let reply = cluster.reply(copies);
    assert!(reply.contains("NOTLEADER"), "{reply}");
}

#[test]
fn invalid_requests_for_changes_are_refused() {
    let keyspaces = &[CONSENSUS, "prefix=abd: replication=abd", "prefix=off: replication=consensus"];
    let mut cluster = setup(3, keyspaces).start();
    let client = cluster.client(1);
    for (request, reason) in [
        ("KEYSPACE WATCH p:", "need RESP3"),
        ("KEYSPACE CHANGES nosuch", "there is no keyspace 'nosuch'"),
        ("KEYSPACE CHANGES abd:", "registers"),
        ("KEYSPACE CHANGES off:", "changes_bytes"),
        ("KEYSPACE CHANGES p: FROM 77-1", "is no version of changes"),
        ("KEYSPACE CHANGES p: FROM 0 FROM 0", "syntax"),
        ("KEYSPACE CHANGES p: BYTES many", "number of bytes"),
        ("KEYSPACE CHANGES p: TIMES TIMES", "syntax"),
        ("KEYSPACE CREATE new: replication=abd changes_bytes=1mb", "no order"),
        ("KEYSPACE CREATE new: replication=leader-follower acks=none changes_bytes=1mb", "lost"),
        ("KEYSPACE CREATE new: coding=2 replicas=3 changes_bytes=1mb", "fragments"),
    ] {
        let reply = cluster.ask(client, request);
        assert!(reply.contains(reason), "{request}: {reply}");
    }
    // It can be switched on and off while the keyspace is in use.
    assert_eq!(cluster.ask(client, "KEYSPACE SET off: changes_bytes=64kb"), "OK");
    cluster.turns(50);
    let version = words(&cluster.ask(client, "KEYSPACE CHANGES off:"))[0].clone();
    cluster.ask(client, "SET off:k v");
    let reply = cluster.ask(client, &format!("KEYSPACE CHANGES off: FROM {version}"));
    assert!(reply.contains("off:k"), "{reply}");
    assert_eq!(cluster.ask(client, "KEYSPACE SET off: changes_bytes=0"), "OK");
    cluster.turns(50);
    assert!(cluster.ask(client, "KEYSPACE CHANGES off:").contains("keeps no changes"));
}

/// The number in the version of a keyspace with one shard.
fn number_of(version: &str) -> u64 {
    version.rsplit('-').next().and_then(|number| number.parse().ok()).expect("a version has a number")
}

/// A client that keeps the version of the change that it has read last, and continues from it at one node after the other.
struct Consumer {
    connection: Option<Client>,
    version: String,
    /// What it has received in one piece: a consumer that is too late begins a new piece.
    pieces: Vec<Vec<(u64, String)>>,
}

impl Consumer {
    fn read(&mut self, cluster: &mut Cluster) {
        let Some(client) = self.connection else { return };
        while let Some(message) = cluster.arrived(client) {
            let words = words(&message);
            match words.first().map(String::as_str) {
                Some("position") => self.version = words[2].clone(),
                Some("change") => {
                    let number = number_of(&words[2]);
                    self.version = words[2].clone();
                    self.pieces.last_mut().expect("there is one").push((number, words[3..].join(" ")));
                }
                Some("ended") => {
                    assert!(words[2].starts_with("BEHIND"), "{message}");
                    self.version = words[2].rsplit(' ').next().unwrap_or_default().to_string();
                    self.pieces.push(Vec::new());
                    self.connection = None;
                    return;
                }
                _ => assert!(
                    message == "OK" || message.starts_with('{') || message.starts_with("-"),
                    "{message}"
                ),
            }
        }
        if cluster.is_closed(client) {
            self.connection = None;
        }
    }
}

/// Runs a random schedule. Returns what is wrong with what consumers have received, if anything.
fn run(keyspace: &str, seed: u64, fault: Option<Fault>) -> Option<String> {
    let (mut cluster, mut draws) = seeded(keyspace, seed, fault);
    let mut consumers: Vec<Consumer> = (0..4)
        .map(|_| Consumer { connection: None, version: "0".into(), pieces: vec![Vec::new()] })
        .collect();
    let (mut writer, mut next) = (None, 0);
    let (mut trouble, mut heals_at): (Option<(u16, bool)>, u64) = (None, 0);
    for turn in 0..6_000 {
        let is_over = turn > 5_000;
        let dead = trouble.and_then(|(node, was_killed)| was_killed.then_some(node));
        let node = 1 + draws.below(3) as u16;
        if writer.is_none() && !is_over && Some(node) != dead {
            writer = cluster.try_client(node);
        }
        if let Some(client) = writer
            && !is_over
            && draws.below(8) == 0
        {
            next += 1;
            let key = draws.below(6);
            match draws.below(5) {
                0 => cluster.send(client, &format!("DEL p:k{key} p:k{}", draws.below(6))),
                1 => {
                    let script = "redis.call('set',KEYS[1],ARGV[1]) redis.call('rpush',KEYS[2],ARGV[1])";
                    let (key, next) = (format!("p:k{key}"), next.to_string());
                    let words = ["EVAL", script, "2", &key, "p:l", &next].map(str::as_bytes);
                    cluster.send_words(client, &words);
                }
                _ => cluster.send(client, &format!("SET p:k{key} {next}")),
            }
        }
        for consumer in &mut consumers {
            consumer.read(&mut cluster);
            match consumer.connection {
                Some(client) if draws.below(300) == 0 => {
                    cluster.close(client);
                    consumer.connection = None;
                }
                None if Some(node) != dead && (draws.below(20) == 0 || is_over) => {
                    consumer.connection = cluster.try_client(node);
                    if let Some(client) = consumer.connection {
                        cluster.send(client, "HELLO 3");
                        cluster.send(client, &format!("KEYSPACE WATCH p: FROM {}", consumer.version));
                    }
                }
                _ => {}
            }
        }
        match trouble {
            None if draws.below(300) == 0 && !is_over => {
                let node = 1 + draws.below(3) as u16;
                let kills = draws.below(2) == 0;
                if kills {
                    cluster.kill(node)
                } else {
                    cluster.cut_off(node)
                }
                trouble = Some((node, kills));
                heals_at = turn + 100 + draws.below(900);
                writer = None;
            }
            Some((node, was_killed)) if turn >= heals_at || is_over => {
                if was_killed {
                    cluster.restart(node)
                } else {
                    cluster.reconnect(node)
                }
                trouble = None;
                writer = None;
            }
            _ => {}
        }
        cluster.turn();
        if let Some(client) = writer {
            while cluster.arrived(client).is_some() {}
        }
    }
    for consumer in &mut consumers {
        consumer.read(&mut cluster);
    }
    let mut all: BTreeMap<u64, &String> = BTreeMap::new();
    let pieces = || consumers.iter().flat_map(|consumer| &consumer.pieces);
    for (version, change) in pieces().flatten() {
        if *all.entry(*version).or_insert(change) != change {
            return Some(format!("seed {seed}: version {version} is {change}, and {}", all[version]));
        }
    }
    for piece in pieces().filter(|piece| !piece.is_empty()) {
        let between: Vec<u64> =
            all.range(piece[0].0..=piece[piece.len() - 1].0).map(|(version, _)| *version).collect();
        let versions: Vec<u64> = piece.iter().map(|(version, _)| *version).collect();
        if versions != between {
            let at = versions.iter().zip(&between).position(|(one, other)| one != other);
            return Some(format!("seed {seed}: other versions from {at:?} on: {versions:?}"));
        }
    }
    let last = all.keys().next_back().copied().unwrap_or(0);
    let ends = consumers.iter().map(|consumer| number_of(&consumer.version));
    if fault.is_none() {
        assert!(all.len() > 100, "seed {seed}: {} changes", all.len());
        assert!(ends.clone().all(|end| end >= last), "seed {seed}: {:?}, {last:?}", ends.collect::<Vec<_>>());
    }
    None
}

#[test]
fn consumers_get_every_change_once_despite_faults() {
    for keyspace in [
        "prefix=p: replication=consensus changes_bytes=1mb backlog_bytes=3000",
        "prefix=p: replication=leader-follower acks=majority changes_bytes=1mb backlog_bytes=3000",
        "prefix=p: replication=leader-follower acks=all changes_bytes=20kb durability=os",
    ] {
        for seed in 1..=8 {
            assert_eq!(run(keyspace, seed, None), None, "{keyspace}");
        }
    }
}

#[test]
fn a_rule_that_is_left_out_is_found() {
    for fault in Fault::OF_CHANGES {
        let keyspace =
            "prefix=p: replication=leader-follower acks=majority changes_bytes=1mb backlog_bytes=3000";
        let found = (1..=20).find_map(|seed| run(keyspace, seed, Some(fault)));
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} makes no difference");
    }
}
