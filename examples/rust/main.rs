//! Quorate with the `redis` crate: go on at another node, write once, hold a lock, take a job.

use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Client, Connection, RedisError, RedisResult, Value, cmd};

/// A connection to one of several nodes: to the next one when it breaks.
struct Quorate {
    nodes: Vec<String>,
    connection: Option<Connection>,
}

/// Whether to repeat after an error. `UNKNOWN`: it may have happened. `TRYAGAIN` and `CLUSTERDOWN`: it did not, and it may soon.
fn is_passing(error: &RedisError) -> bool {
    error.code().is_none_or(|code| matches!(code, "UNKNOWN" | "TRYAGAIN" | "CLUSTERDOWN"))
}

fn text(value: Value) -> Option<String> {
    redis::from_redis_value(value).ok().flatten()
}

impl Quorate {
    fn connection(&mut self) -> RedisResult<&mut Connection> {
        if self.connection.is_none() {
            let client = Client::open(format!("redis://{}/", self.nodes[0]))?;
            let connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
            // A node answers within command_timeout_ms (5 s). A client that waits for less makes definite answers unknown.
            connection.set_read_timeout(Some(Duration::from_secs(15)))?;
            self.connection = Some(connection);
        }
        Ok(self.connection.as_mut().expect("it was just made"))
    }

    /// Sends a command. If the connection breaks, its outcome is unknown.
    fn once(&mut self, words: &[&str]) -> RedisResult<Option<String>> {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        let answer = self.connection().and_then(|connection| command.query::<Value>(connection));
        if answer.as_ref().is_err_and(|error| error.code().is_none()) {
            self.connection = None;
            self.nodes.rotate_left(1);
        }
        answer.map(text)
    }

    /// Sends a command that may be sent twice, until its outcome is known.
    fn repeat(&mut self, words: &[&str]) -> RedisResult<Option<String>> {
        self.until_known(|quorate| quorate.once(words))
    }

    /// Repeats a step until its outcome is known.
    fn until_known(
        &mut self,
        mut step: impl FnMut(&mut Quorate) -> RedisResult<Option<String>>,
    ) -> RedisResult<Option<String>> {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            match step(self) {
                Err(error) if is_passing(&error) && Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                outcome => return outcome,
            }
        }
    }

    /// Moves a job to the worker's own list. One that is there already was moved by a command of unknown outcome.
    fn take(&mut self, queue: &str, own: &str) -> RedisResult<String> {
        loop {
            let taken = self.until_known(|quorate| match quorate.once(&["LINDEX", own, "-1"])? {
                None => quorate.once(&["BLMOVE", queue, own, "RIGHT", "LEFT", "10"]),
                job => Ok(job),
            })?;
            if let Some(job) = taken {
                return Ok(job); // Else there was none for ten seconds.
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut nodes: Vec<String> = std::env::args().skip(1).collect();
    if nodes.is_empty() {
        nodes = (7000..7003).map(|port| format!("127.0.0.1:{port}")).collect();
    }
    let mut quorate = Quorate { nodes, connection: None };
    let unique =
        format!("{}-{}", std::process::id(), SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos());
    let me = format!("worker-{unique}");

    // Write once. Whoever sets the order finds its own value there when it repeats.
    let order = format!("order:{unique}");
    let before = quorate.repeat(&["SET", &order, &me, "NX", "GET"])?;
    assert!(before.as_ref().is_none_or(|before| *before == me), "the order is another's");
    assert_eq!(quorate.repeat(&["GET", &order])?.as_ref(), Some(&me), "the order is not ours");
    println!("the order is ours");

    // A lock. To ask again with the same owner gives the same token.
    let (lock, state) = (format!("{{job:{unique}}}:lock"), format!("{{job:{unique}}}:state"));
    let ask = ["PX", "10000", "WAIT", "60000"];
    let token =
        quorate.repeat(&[&["LOCK", &lock, &me], &ask[..]].concat())?.ok_or("the lock is another's")?;
    quorate.repeat(&["SET", &state, "begun", "FENCE", &lock, &token])?;
    println!("written under the lock: {}", quorate.repeat(&["GET", &state])?.unwrap_or_default());
    quorate.repeat(&["UNLOCK", &lock, &token])?;
    let newer =
        quorate.repeat(&[&["LOCK", &lock, "another"], &ask[..]].concat())?.ok_or("the lock is another's")?;
    let refusal = quorate.repeat(&["SET", &state, "too late", "FENCE", &lock, &token]);
    let refusal = refusal.err().ok_or("a write with an old token was not refused")?;
    println!("a late write is refused: {}", refusal.code().unwrap_or_default());
    quorate.repeat(&["UNLOCK", &lock, &newer])?;

    // A queue. A job may be in it twice, since its LPUSH may have been repeated: what it does must bear that.
    let (queue, own) = (format!("{{queue:{me}}}"), format!("{{queue:{me}}}:own"));
    quorate.repeat(&["LPUSH", &queue, "job 1"])?;
    let job = quorate.take(&queue, &own)?;
    println!("taken: {job}");
    quorate.repeat(&["LREM", &own, "0", &job])?;
    quorate.repeat(&["DEL", &order, &state, &queue, &own])?;
    println!("done");
    Ok(())
}
