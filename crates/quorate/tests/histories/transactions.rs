//! Transactions over several shards and keyspaces, on real processes that are killed: all together, or not at all, and in one order
//! that respects time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use check::transactions::{Ending, Step, Transaction, Transactions};
use redis::{Connection, RedisResult, Value};

use super::started::Started;
use super::support::until;

/// The default keyspace has four shards.
const KEYSPACES: [&str; 2] =
    ["prefix= shards=4", "prefix=all: replication=leader-follower acks=all durability=fsync"];

const KEYS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "all:a", "all:b", "all:c"];

/// How long a client waits before it gives up a connection.
const READ_TIMEOUT: Duration = Duration::from_secs(6);

fn connect(port: u16) -> Option<Connection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let connection = client.get_connection_with_timeout(Duration::from_secs(1)).ok()?;
    connection.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    Some(connection)
}

/// How a transaction has ended that got this error.
fn ending(error: &redis::RedisError) -> Ending {
    match error.code() {
        None | Some("UNKNOWN") => Ending::Unknown,
        Some(_) => Ending::Failed,
    }
}

/// Running clients.
struct Clients {
    threads: Vec<JoinHandle<Vec<Transaction>>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    begun: Instant,
}

impl Clients {
    /// Each client sends transactions that append to some lists and read some. It moves to the next node when its own is down.
    fn start(ports: Vec<u16>, count: u64) -> Clients {
        let (stop, done, begun) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Instant::now());
        let threads = (0..count).map(|number| {
            let (stop, done, ports) = (Arc::clone(&stop), Arc::clone(&done), ports.clone());
            std::thread::spawn(move || work(number, &ports, begun, &stop, &done))
        });
        Clients { threads: threads.collect(), stop, done, begun }
    }

    fn wait_for(&self, more: u64) {
        let goal = self.done.load(Ordering::Relaxed) + more;
        until("transactions are done", || self.done.load(Ordering::Relaxed) >= goal);
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn stop(self) -> Transactions {
        self.stop.store(true, Ordering::Relaxed);
        Transactions { all: self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect() }
    }
}

fn work(number: u64, ports: &[u16], begun: Instant, stop: &AtomicBool, done: &AtomicU64) -> Vec<Transaction> {
    let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let (mut at, mut connection, mut all) = (number as usize % ports.len(), None, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let Some(open) = connection.as_mut() else {
            connection = connect(ports[at]);
            at = (at + 1) % ports.len();
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let element = format!("{number}.{}", all.len());
        let mut pipe = redis::pipe();
        let mut steps: Vec<Step> = Vec::new();
        let count = 1 + below(4);
        if count > 1 {
            pipe.atomic();
        }
        for _ in 0..count {
            let key = KEYS[below(KEYS.len() as u64) as usize];
            let is_there = |step: &Step| match step {
                Step::Append { key: other, .. } | Step::Read { key: other, .. } => other == key.as_bytes(),
            };
            if steps.iter().any(is_there) {
                continue;
            }
            let key_bytes = key.as_bytes().to_vec();
            if below(2) == 0 {
                pipe.cmd("RPUSH").arg(key).arg(&element);
                steps.push(Step::Append { key: key_bytes, element: element.clone().into_bytes() });
            } else {
                pipe.cmd("LRANGE").arg(key).arg(0).arg(-1);
                steps.push(Step::Read { key: key_bytes, elements: Vec::new() });
            }
        }
        // It needs keys of two keyspaces at once, so all values of the transaction move.
        let moves_values = steps.len() > 1 && below(3) == 0;
        if moves_values {
            pipe.cmd("SUNION").arg("none").arg("all:none");
        }
        let start = begun.elapsed().as_nanos() as u64;
        let result: RedisResult<Vec<Value>> = pipe.query(open);
        let end = begun.elapsed().as_nanos() as u64;
        let ending = match result {
            Ok(values) => {
                let commands = steps.len() + usize::from(moves_values);
                assert_eq!(values.len(), commands, "one reply for each command");
                for (step, value) in steps.iter_mut().zip(values) {
                    if let Step::Read { elements, .. } = step {
                        *elements = redis::from_redis_value(value).unwrap();
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
                Ending::Ok
            }
            Err(error) => {
                connection = connection.filter(|_| error.code().is_some());
                ending(&error)
            }
        };
        let end = (ending != Ending::Unknown).then_some(end);
        all.push(Transaction { client: number, start, end, ending, steps });
    }
    all
}

/// The longest time without a transaction that was done, from a moment on.
fn longest_silence(history: &Transactions, from: u64) -> Duration {
    let done = history.all.iter().filter(|it| it.ending == Ending::Ok);
    let mut ends: Vec<u64> = done.filter_map(|it| it.end).filter(|end| *end >= from).collect();
    ends.push(from);
    ends.sort_unstable();
    Duration::from_nanos(ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX))
}

#[test]
fn transactions_over_shards_and_keyspaces_are_atomic_while_nodes_are_killed() {
    let started = Started::new(3, &KEYSPACES);
    let ports: Vec<u16> = (0..3).map(|node| started.cluster.base + node).collect();
    let clients = Clients::start(ports, 8);
    clients.wait_for(200);
    let mut silences = Vec::new();
    let mut restarted = Vec::new();
    for prefix in ["", "all:"] {
        let leader = started.leader(prefix);
        silences.push(clients.now());
        started.kill(leader);
        clients.wait_for(200);
        restarted.push(started.start_again(leader));
        clients.wait_for(100);
    }
    // No key is left locked.
    let mut open = connect(started.cluster.base + 1).unwrap();
    let mut pipe = redis::pipe();
    pipe.atomic();
    for key in KEYS {
        pipe.cmd("LRANGE").arg(key).arg(0).arg(-1);
    }
    let lists: Vec<Vec<Vec<u8>>> = pipe.query(&mut open).unwrap();
    assert!(lists.iter().all(|list| !list.is_empty()), "each key was appended to");
    let history = clients.stop();
    let counts = [Ending::Ok, Ending::Failed, Ending::Unknown]
        .map(|ending| history.all.iter().filter(|it| it.ending == ending).count());
    let silences: Vec<u128> =
        silences.iter().map(|from| longest_silence(&history, *from).as_millis()).collect();
    println!("done, refused, unknown: {counts:?}; longest silences after the kills: {silences:?} ms");
    if let Err(violation) = history.strictly_serializable() {
        panic!("{}", violation.words(&history));
    }
}

#[test]
fn clients_that_increment_the_same_keys_all_get_on() {
    const CLIENTS: u64 = 20;
    const EACH: u64 = 25;
    let started = Started::new(3, &KEYSPACES);
    let base = started.cluster.base;
    let increment = |number: u64| {
        let mut open = connect(base + (number % 3) as u16).unwrap();
        for round in 0..EACH {
            let mixed = (number * EACH + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let (first, second) =
                (KEYS[(mixed % 10) as usize], KEYS[((mixed / 10 % 9 + mixed % 10 + 1) % 10) as usize]);
            let mut pipe = redis::pipe();
            pipe.atomic().cmd("INCR").arg(first).cmd("INCR").arg(second);
            let _: Vec<i64> = pipe.query(&mut open).unwrap();
        }
    };
    let before = Instant::now();
    std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|number| drop(scope.spawn(move || increment(number))));
    });
    let rate = (CLIENTS * EACH) as f64 / before.elapsed().as_secs_f64();
    let mut open = connect(base).unwrap();
    let values: Vec<Option<u64>> = redis::cmd("MGET").arg(&KEYS[..]).query(&mut open).unwrap();
    assert_eq!(values.into_iter().flatten().sum::<u64>(), 2 * CLIENTS * EACH);
    println!("{CLIENTS} clients: {rate:.0} transactions per second");
}
