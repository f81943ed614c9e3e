//! Locks on clusters of real processes, over HTTP and through a Redis client without support for them: which
//! client is granted a lock when connections close, when processes are killed, and when all of them are restarted.

#![allow(clippy::unwrap_used, missing_docs)]

mod clients;
mod faults;
mod http;
#[path = "../histories/recorder.rs"]
#[allow(dead_code)]
mod recorder;
#[path = "../histories/started.rs"]
#[allow(dead_code)]
mod started;
#[path = "../processes/support.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod support;

use redis::{Connection, RedisResult, Value};
use started::Started;
use std::time::{Duration, Instant};
use support::{PATIENCE, until};

/// How much later than the theoretical time an event may be observed on a busy machine.
const LATE: Duration = Duration::from_secs(3);

fn cluster() -> Started {
    Started::new(3, &["prefix= replication=consensus"])
}

fn connect(started: &Started, node: u16) -> Connection {
    let address = format!("redis://127.0.0.1:{}/", started.cluster.base + node - 1);
    let connection = redis::Client::open(address).unwrap().get_connection_with_timeout(PATIENCE).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection
}

fn ask<T: redis::FromRedisValue>(connection: &mut Connection, request: &str) -> RedisResult<T> {
    let mut words = request.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    for word in words {
        command.arg(word);
    }
    command.query(connection)
}

/// Requests a lock that must be granted, and returns the token.
#[track_caller]
fn token(connection: &mut Connection, request: &str) -> u64 {
    ask(connection, request).unwrap()
}

/// Repeats a request until the group has a leader.
fn insist<T: redis::FromRedisValue>(connection: &mut Connection, request: &str) -> T {
    let by = Instant::now() + PATIENCE;
    loop {
        match ask(connection, request) {
            Ok(answer) => return answer,
            Err(error) => {
                let code = error.code().unwrap_or_default().to_owned();
                assert!(
                    ["CLUSTERDOWN", "UNKNOWN", "TRYAGAIN", "LOADING"].contains(&code.as_str()),
                    "{error}"
                );
                assert!(Instant::now() < by, "asked {} s in vain: {error}", PATIENCE.as_secs());
            }
        }
    }
}

/// Returns the number of requests that wait for a lock.
fn waiters(connection: &mut Connection, name: &str) -> i64 {
    let info: Value = insist(connection, &format!("LOCK.INFO {name}"));
    let Value::Array(fields) = info else { return 0 };
    let is_waiters = |value: &Value| *value == Value::BulkString(b"waiters".to_vec());
    let place = fields.iter().position(is_waiters).unwrap();
    match fields[place + 1] {
        Value::Int(count) => count,
        ref other => panic!("{other:?}"),
    }
}

fn until_waiting(connection: &mut Connection, name: &str, count: i64) {
    until("they wait", || waiters(connection, name) == count);
}

/// A waiting request in a separate thread, which returns when its answer arrived.
struct Waiting(std::thread::JoinHandle<(Option<u64>, Instant)>);

impl Waiting {
    fn begin(started: &Started, node: u16, request: String) -> Waiting {
        let mut connection = connect(started, node);
        Waiting(std::thread::spawn(move || {
            let token = ask(&mut connection, &request).unwrap();
            (token, Instant::now())
        }))
    }

    /// Returns the token and the moment of the grant.
    #[track_caller]
    fn granted(self) -> (u64, Instant) {
        let (token, at) = self.0.join().unwrap();
        (token.expect("the lock was granted"), at)
    }
}
