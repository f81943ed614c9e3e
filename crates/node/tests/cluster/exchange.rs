//! `SWAPDB`: two databases are exchanged at one moment for all clients.

use crate::databases::client_of;
use crate::support::{Client, Cluster, Draws, assert_error, seeded, setup};
use protocol::planted::{Fault, Planted};

const DATABASES: [&str; 3] = [
    "prefix= replication=consensus",
    "prefix=@1 replication=consensus shards=2",
    "prefix=@2 replication=leader-follower acks=majority durability=fsync",
];

#[test]
fn every_client_sees_the_exchanged_databases() {
    let mut cluster = setup(3, &DATABASES).start();
    let clients: Vec<(Client, u8)> = (1..=3)
        .flat_map(|node| (0..3).map(move |database| (node, database)))
        .map(|(node, database)| (client_of(&mut cluster, node, database), database))
        .collect();
    for (client, database) in &clients[..3] {
        for key in ["k", "a", "b", "c"] {
            assert_eq!(cluster.ask(*client, &format!("SET {key} {database}")), "OK");
        }
    }
    let mut holds = [0, 1, 2];
    for (turn, (one, other)) in [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (1, 0)].into_iter().enumerate() {
        let (asker, _) = clients[turn % clients.len()];
        assert_eq!(cluster.ask(asker, &format!("SWAPDB {one} {other}")), "OK");
        holds.swap(one, other);
        for (client, database) in &clients {
            let text = format!("\"{}\"", holds[usize::from(*database)]);
            assert_eq!(cluster.ask(*client, "GET k"), text, "{turn}: database {database}");
            assert_eq!(cluster.ask(*client, "EVAL return(redis.call('get',KEYS[1])) 1 a"), text);
            assert_eq!(cluster.pipeline(*client, &["MULTI", "GET b", "EXEC"])[2], format!("[{text}]"));
        }
        let (writer, _) = clients[(turn + 4) % clients.len()];
        assert_eq!(cluster.ask(writer, "INCR n").parse::<u64>().map(|count| count > 0), Ok(true));
        assert_eq!(cluster.ask(writer, "DEL n"), "1");
        assert_eq!(cluster.ask(writer, "DBSIZE"), "4");
    }
    let (first, _) = clients[0];
    let shards = cluster.ask(first, "KEYSPACE GET @1");
    let settings = cluster.ask(first, "KEYSPACE GET @2");
    assert!(shards.contains("consensus") || settings.contains("consensus"), "settings go with the keys");
}

#[test]
fn concurrent_exchanges_are_made_one_after_the_other() {
    let mut cluster = setup(3, &DATABASES).start();
    let [one, two, zero] = [1, 2, 0].map(|database| client_of(&mut cluster, 1, database));
    let all = [one, two, zero];
    for (client, text) in all.iter().zip(["one", "two", "zero"]) {
        assert_eq!(cluster.ask(*client, &format!("SET k {text}")), "OK");
    }
    let askers = [1, 2, 3].map(|node| cluster.client(node));
    askers.iter().for_each(|asker| cluster.send(*asker, "SWAPDB 1 2"));
    assert_eq!(askers.map(|asker| cluster.reply(asker)), ["OK"; 3]);
    assert_eq!(all.map(|client| cluster.ask(client, "GET k")), ["\"two\"", "\"one\"", "\"zero\""]);
    cluster.send(askers[0], "SWAPDB 1 2");
    cluster.send(askers[1], "SWAPDB 0 1");
    assert_eq!([askers[0], askers[1]].map(|asker| cluster.reply(asker)), ["OK"; 2]);
    let found = all.map(|client| cluster.ask(client, "GET k"));
    let either = [["\"zero\"", "\"two\"", "\"one\""], ["\"one\"", "\"zero\"", "\"two\""]];
    assert!(either.iter().any(|order| found == *order), "{found:?}");
}

#[test]
fn impossible_exchanges_are_refused() {
    let keyspaces =
        [DATABASES[0], "prefix=c: replication=consensus", DATABASES[1], "prefix=@3 replication=abd"];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(2);
    assert_eq!(cluster.ask(client, "SWAPDB x 1"), "-ERR invalid first DB index");
    assert_eq!(cluster.ask(client, "SWAPDB 1 x"), "-ERR invalid second DB index");
    assert_eq!(cluster.ask(client, "SWAPDB 1 16"), "-ERR DB index is out of range");
    assert!(cluster.ask(client, "SWAPDB 1 5").contains("no keyspace holds database 5"));
    assert_eq!(cluster.ask(client, "SWAPDB 1 1"), "OK");
    assert!(cluster.ask(client, "SWAPDB 1 3").contains("'@3' has registers"));
    assert!(cluster.ask(client, "SWAPDB 0 1").contains("keyspaces 'c:' are parts of it"));
    assert_eq!(cluster.ask(client, "MULTI"), "OK");
    assert_error(&cluster.ask(client, "SWAPDB 0 1"), "ERR");
}

#[test]
fn an_exchange_ends_waits_and_watches() {
    let mut cluster = setup(3, &DATABASES).start();
    let [waiter, watcher, pusher] = [1, 2, 3].map(|node| client_of(&mut cluster, node, 1));
    let other = client_of(&mut cluster, 1, 2);
    cluster.send(waiter, "BLPOP l 0");
    let locker = client_of(&mut cluster, 2, 1);
    assert!(!cluster.ask(pusher, "LOCK n a PX 60000").starts_with('-'));
    cluster.send(locker, "LOCK n b PX 60000 WAIT 60000");
    assert_eq!(cluster.ask(watcher, "SET k v"), "OK");
    assert_eq!(cluster.ask(other, "SET k v"), "OK");
    assert_eq!(cluster.ask(watcher, "WATCH k"), "OK");
    let keeper = client_of(&mut cluster, 3, 1);
    cluster.ask(keeper, "HELLO 3");
    assert_eq!(cluster.ask(keeper, "CLIENT TRACKING ON"), "OK");
    assert_eq!(cluster.ask(keeper, "GET k"), "\"v\"");
    assert_eq!(cluster.ask(pusher, "SWAPDB 2 1"), "OK");
    let answer = cluster.reply(keeper);
    assert!(answer.contains("invalidate"), "{answer}");
    assert_eq!([waiter, locker].map(|client| cluster.reply(client)), ["nil", "nil"]);
    assert_eq!(cluster.pipeline(watcher, &["MULTI", "SET k w", "EXEC"])[2], "nil");
    // No request waits in that database any more.
    assert_eq!(cluster.ask(other, "RPUSH l x"), "1");
    assert_eq!(cluster.ask(waiter, "BLPOP l 0.01"), "nil");
    assert_eq!(cluster.ask(other, "BLPOP l 0.01"), "[\"l\", \"x\"]");
    assert_eq!(cluster.ask(waiter, "LLEN l"), "0");
}

/// Elements that exist or arrive while a database with waiting clients is exchanged: none is lost.
#[test]
fn no_element_is_lost_when_databases_with_waiting_clients_are_exchanged() {
    for turns in 0..40 {
        let mut cluster = setup(3, &DATABASES).start();
        let [waiter, pusher] = [2, 3].map(|node| client_of(&mut cluster, node, 1));
        let [one, two] = [1, 2].map(|database| client_of(&mut cluster, 1, database));
        cluster.send(waiter, "BLPOP l 0");
        cluster.turns(10);
        cluster.send(one, "SWAPDB 1 2");
        cluster.turns(turns);
        cluster.send(pusher, "RPUSH l x");
        let pushed = cluster.reply(pusher);
        let popped = cluster.reply(waiter);
        assert_eq!(cluster.reply(one), "OK");
        cluster.settle();
        let found = [one, two].map(|client| cluster.ask(client, "LLEN l"));
        let count = found.iter().filter(|length| *length == "1").count() + usize::from(popped != "nil");
        let there = usize::from(!pushed.starts_with('-'));
        assert_eq!(count, there, "{turns} turns: {pushed}, {popped}, {found:?}");
        if pushed.starts_with('-') {
            assert_error(&pushed, "TRYAGAIN");
        }
    }
}

#[test]
fn tokens_grow_and_readers_of_changes_must_start_again() {
    let keyspaces = [
        "prefix=@1 replication=consensus changes_bytes=1mb",
        "prefix=@2 replication=consensus changes_bytes=1mb",
    ];
    let mut cluster = setup(3, &keyspaces).start();
    let [one, two] = [1, 2].map(|database| client_of(&mut cluster, 1, database));
    for number in 0..20 {
        assert_eq!(cluster.ask(one, &format!("SET k{number} v")), "OK");
    }
    let changes = cluster.ask(one, "KEYSPACE CHANGES @1 FROM 0");
    let is_version = |word: &&str| {
        word.split_once('-')
            .is_some_and(|(group, version)| [group, version].iter().all(|it| it.parse::<u64>().is_ok()))
    };
    let read = changes.split('"').rfind(is_version).expect("a version").to_owned();
    let first: u64 = cluster.ask(one, "LOCK l a PX 60000").parse().expect("a token");
    assert_eq!(cluster.ask(one, "SWAPDB 1 2"), "OK");
    let second: u64 = cluster.ask(one, "LOCK l b PX 60000").parse().expect("a token");
    assert!(second > first, "{second} comes after {first}");
    let third: u64 = cluster.ask(two, "LOCK other b PX 60000").parse().expect("a token");
    assert!(third > first);
    // Versions of changes name their groups, and changes from before the exchange are not kept.
    let refused = cluster.ask(one, &format!("KEYSPACE CHANGES @1 FROM {read}"));
    assert!(refused.contains("no version of changes of keyspace '@1'"), "{refused}");
    let late = cluster.ask(one, &format!("KEYSPACE CHANGES @2 FROM {read}"));
    assert!(late.contains("BEHIND"), "{late}");
}

#[test]
fn an_exchange_that_cannot_finish_is_cancelled() {
    let keyspaces = [
        "prefix=@1 replication=consensus",
        "prefix=@2 replication=leader-follower replicas=1 leader=3 acks=none",
    ];
    let mut cluster = setup(3, &keyspaces).start();
    let (one, two) = (client_of(&mut cluster, 1, 1), client_of(&mut cluster, 2, 2));
    assert_eq!(cluster.ask(one, "SET k 1"), "OK");
    cluster.pause(3);
    cluster.send(two, "SWAPDB 1 2");
    cluster.turns(30);
    cluster.send(one, "GET k");
    let reply = cluster.reply(two);
    assert!(reply.starts_with("-ERR the databases were not exchanged"), "{reply}");
    assert_eq!(cluster.reply(one), "\"1\"", "it was held, and goes on");
    assert_eq!(cluster.ask(one, "SET k 2"), "OK");
    cluster.go_on(3);
    cluster.settle();
    assert_eq!(cluster.ask(two, "SET k 3"), "OK");
    assert_eq!(cluster.ask(one, "SWAPDB 1 2"), "OK");
    assert_eq!([one, two].map(|client| cluster.ask(client, "GET k")), ["\"3\"", "\"2\""]);
}

/// A client's write, or its read of a mark.
struct Operation {
    database: usize,
    invoked: u64,
    answered: u64,
    /// The keyspace in which it was executed: known from the mark that a read returned, or from where a write was found.
    keyspace: usize,
}

/// A fault of a node. There is one fault at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    CutOff(u16),
    Paused(u16),
    Dead(u16),
}

impl Trouble {
    fn draw(draws: &mut Draws) -> Trouble {
        let node = 1 + draws.below(3) as u16;
        [Trouble::CutOff(node), Trouble::Paused(node), Trouble::Dead(node)][draws.below(3) as usize]
    }

    fn begin(self, cluster: &mut Cluster) {
        match self {
            Trouble::CutOff(node) => cluster.cut_off(node),
            Trouble::Paused(node) => cluster.pause(node),
            Trouble::Dead(node) => cluster.kill(node),
        }
    }

    fn end(self, cluster: &mut Cluster) {
        match self {
            Trouble::CutOff(node) => cluster.reconnect(node),
            Trouble::Paused(node) => cluster.go_on(node),
            Trouble::Dead(node) => cluster.restart(node),
        }
    }

    fn stops(self, node: u16) -> bool {
        matches!(self, Trouble::Paused(it) | Trouble::Dead(it) if it == node)
    }
}

/// A client that works on one database, and its request under way: when it was sent, and the number of the key that
/// it writes, if it is a write.
struct Worker {
    client: Client,
    database: usize,
    waiting: Option<(u64, Option<u64>)>,
}

impl Worker {
    fn connect(cluster: &mut Cluster, node: u16, database: usize) -> Worker {
        Worker { client: client_of(cluster, node, database as u8), database, waiting: None }
    }
}

/// Makes one exchange while clients at all nodes write and read, and nodes are cut off, paused and killed. There must be one
/// moment such that each answered request was executed either before it in the keyspace that had held the database, or after
/// it in the other one.
///
/// Each write creates its own key, and each read finds the mark of its keyspace. So it is known in which keyspace each was
/// executed, and thus on which side of the exchange.
fn exchange_at_one_moment(seed: u64, is_calm: bool, planted: Option<Fault>) -> Result<usize, String> {
    let (_, mut draws): (_, Draws) = seeded(DATABASES[0], seed, None);
    let planted = planted.map(Planted::one).unwrap_or_default();
    let mut cluster = setup(3, &DATABASES).with(|configuration| configuration.planted = planted).start();
    let mut workers: Vec<Worker> = (0..12)
        .map(|place: u16| Worker::connect(&mut cluster, 1 + place % 3, usize::from(place % 2) + 1))
        .collect();
    for Worker { client, database, .. } in &workers[..2] {
        assert_eq!(cluster.ask(*client, &format!("SET mark {database}")), "OK");
    }
    let begins = 300 + draws.below(300);
    let mut swapper = None;
    let (mut swapped, mut swap_reply) = (None, String::new());
    let (mut writes, mut done) = (Vec::new(), Vec::new());
    let (mut trouble, mut number, mut refused): (Option<Trouble>, u64, usize) = (None, 0, 0);
    for turn in 0..4000_u64 {
        let is_stopped = |node: u16| trouble.is_some_and(|it| it.stops(node));
        if turn >= begins && swapper.is_none() {
            let node = 1 + draws.below(3) as u16;
            if !is_stopped(node) {
                let client = cluster.client(node);
                cluster.send(client, "SWAPDB 1 2");
                swapper = Some(client);
            }
        }
        if let Some(client) = swapper.filter(|it| swapped.is_none() && !is_stopped(it.node))
            && let Some(reply) = cluster.arrived(client)
        {
            (swapped, swap_reply) = (Some(turn), reply);
        }
        for Worker { client, database, waiting } in &mut workers {
            if is_stopped(client.node) {
                continue;
            }
            match *waiting {
                Some((invoked, write)) => {
                    let Some(reply) = cluster.arrived(*client) else { continue };
                    *waiting = None;
                    let operation = Operation { database: *database, invoked, answered: turn, keyspace: 0 };
                    match write {
                        Some(number) if reply == "OK" => writes.push((number, operation)),
                        None if reply == "\"1\"" => done.push(Operation { keyspace: 1, ..operation }),
                        None if reply == "\"2\"" => done.push(Operation { keyspace: 2, ..operation }),
                        _ if reply.starts_with('-') => {
                            refused += usize::from(!reply.starts_with("-UNKNOWN"));
                        }
                        _ => return Err(format!("{reply} is no answer")),
                    }
                }
                None if turn < 3000 && draws.below(25) == 0 => {
                    let write = (draws.below(2) == 0).then_some(number + 1);
                    number = write.unwrap_or(number);
                    match write {
                        Some(number) => cluster.send(*client, &format!("SET w{number} v")),
                        None => cluster.send(*client, "GET mark"),
                    }
                    *waiting = Some((turn, write));
                }
                None => {}
            }
        }
        if !is_calm && draws.below(250) == 0 {
            trouble = match trouble.take() {
                Some(over) => {
                    over.end(&mut cluster);
                    if let Trouble::Dead(node) = over {
                        if swapper.is_some_and(|it| it.node == node && swapped.is_none()) {
                            (swapped, swap_reply) = (Some(u64::MAX), "its node died".into());
                        }
                        let lost = workers.iter_mut().filter(|worker| worker.client.node == node);
                        lost.for_each(|it| *it = Worker::connect(&mut cluster, node, it.database));
                    }
                    None
                }
                None => {
                    let trouble = Trouble::draw(&mut draws);
                    trouble.begin(&mut cluster);
                    Some(trouble)
                }
            };
        }
        cluster.turn();
    }
    if let Some(over) = trouble {
        over.end(&mut cluster);
        if let Trouble::Dead(node) = over {
            workers.retain(|worker| worker.client.node != node);
            swapper = swapper.filter(|it| it.node != node);
        }
    }
    cluster.settle();
    if let Some(client) = swapper.filter(|_| swapped.is_none()) {
        swap_reply = cluster.reply(client);
    }
    for Worker { client, waiting, .. } in &workers {
        if waiting.is_some() {
            cluster.reply(*client);
        }
    }
    if is_calm && (refused > 0 || swap_reply != "OK") {
        return Err(format!("{refused} commands were refused, and SWAPDB was answered by {swap_reply}"));
    }
    let readers = [1, 2].map(|database| client_of(&mut cluster, 1, database));
    let marks = readers.map(|client| cluster.ask(client, "GET mark"));
    let is_exchanged = marks == ["\"2\"", "\"1\""];
    if !is_exchanged && (marks != ["\"1\"", "\"2\""] || swap_reply == "OK") {
        return Err(format!("{marks:?} after {swap_reply}"));
    }
    for (number, operation) in writes {
        let found = readers.map(|client| cluster.ask(client, &format!("EXISTS w{number}")) == "1");
        let holder = match found {
            [true, false] => 0,
            [false, true] => 1,
            _ => return Err(format!("w{number} was acknowledged, and is there: {found:?}")),
        };
        let keyspace = if is_exchanged { 2 - holder } else { 1 + holder };
        done.push(Operation { keyspace, ..operation });
    }
    if !is_exchanged {
        let strayed = done.iter().find(|it| it.keyspace != it.database);
        return strayed.map_or(Ok(done.len()), |it| Err(format!("{} is not in its database", it.invoked)));
    }
    // There is such a moment unless a request after it was answered before one on the other side began.
    let (before, behind): (Vec<&Operation>, Vec<&Operation>) =
        done.iter().partition(|it| it.keyspace == it.database);
    let last = before.iter().map(|it| it.invoked).max().unwrap_or(0);
    let answered = behind.iter().map(|it| it.answered).min().unwrap_or(u64::MAX);
    let was_ok = swapped.filter(|_| swap_reply == "OK").unwrap_or(u64::MAX);
    match answered.min(was_ok) {
        first if first < last => Err(format!("behind the exchange at {first}, and before it at {last}")),
        first if first < begins => Err(format!("behind the exchange at {first}, which began at {begins}")),
        _ => Ok(done.len()),
    }
}

/// How many seeds a test tries: more in a search.
#[allow(clippy::disallowed_methods)]
fn seeds() -> u64 {
    std::env::var("QUORATE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

#[test]
fn there_is_one_moment_of_the_exchange_whatever_happens() {
    let mut operations = 0;
    for seed in 0..seeds() {
        let looked_at = exchange_at_one_moment(seed, false, None);
        operations += looked_at.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(operations > 10_000, "{operations} operations were looked at");
}

#[test]
fn healthy_nodes_refuse_nothing_during_an_exchange() {
    for seed in 0..5 {
        let looked_at = exchange_at_one_moment(seed, true, None);
        looked_at.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn commands_executed_on_the_wrong_side_are_found() {
    let found =
        (0..30).any(|seed| exchange_at_one_moment(seed, false, Some(Fault::RoutesNotChecked)).is_err());
    assert!(found, "the fault is not found");
}
