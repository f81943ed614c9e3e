//! Clients that record their requests and the replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use check::{Action, Answer, History, Operation, Outcome};

/// How long a client waits before it gives up a connection: the outcomes of its open requests are then unknown.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// A client's request, before it is part of a history.
#[derive(Clone, Debug)]
enum Asked {
    Get,
    Set(String),
    Delete,
}

/// The reply.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Value(Option<String>),
    Done,
    /// An error that guarantees that nothing was done.
    Refused(String),
    /// An error, or the end of the connection, that leaves the outcome open.
    Unknown,
}

struct Record {
    client: u64,
    node: u16,
    key: usize,
    asked: Asked,
    start: u64,
    end: u64,
    reply: Reply,
}

/// Running clients.
pub(crate) struct Recorder {
    clients: Vec<JoinHandle<Vec<Record>>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    refusals: Arc<std::sync::Mutex<Vec<String>>>,
    keys: Vec<String>,
    begun: Instant,
}

/// Returns the longest time between two acknowledgements of writes, at least one of them at or after `from`, a time
/// from [`Recorder::now`]. This is how long an event at `from` stopped acknowledgements.
pub(crate) fn longest_silence(history: &History, from: u64) -> Duration {
    let is_write = |operation: &&Operation| !matches!(operation.action, Action::Get);
    let acknowledged = |operation: &&Operation| matches!(operation.outcome, Outcome::Ok(_));
    let writes = history.operations().iter().filter(is_write).filter(acknowledged);
    let mut ends: Vec<u64> = writes.filter_map(|write| write.end).filter(|end| *end >= from).collect();
    ends.push(from);
    ends.sort_unstable();
    Duration::from_nanos(ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX))
}

impl Recorder {
    /// Starts clients, each on the node with its number, that read, write and delete a few keys. A client whose node
    /// is down moves to the next node.
    pub(crate) fn start(ports: &[u16], clients: u64, keys: &[&str]) -> Recorder {
        Recorder::start_with(ports, clients, keys, 0)
    }

    /// The same, with `padding` more bytes in each value.
    pub(crate) fn start_with(ports: &[u16], clients: u64, keys: &[&str], padding: usize) -> Recorder {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let refusals = Arc::default();
        let (begun, keys): (_, Vec<String>) =
            (Instant::now(), keys.iter().map(|key| key.to_string()).collect());
        let clients = (0..clients).map(|number| {
            let client = Client {
                number,
                ports: ports.to_vec(),
                at: number as usize % ports.len(),
                connection: None,
                padding: "-".repeat(padding),
                begun,
                random: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            };
            let (stop, done, keys) = (Arc::clone(&stop), Arc::clone(&done), keys.clone());
            let refusals = Arc::clone(&refusals);
            std::thread::spawn(move || client.work(&keys, &stop, &done, &refusals))
        });
        Recorder { clients: clients.collect(), stop, done, refusals, keys, begun }
    }

    /// Returns the number of operations done so far, over all clients.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until `more` further operations are done.
    pub(crate) fn wait_for(&self, more: u64) {
        let goal = self.done() + more;
        super::support::until("operations are done", || self.done() >= goal);
    }

    /// Returns the refusals that clients have got so far.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.refusals.lock().unwrap().clone()
    }

    /// Returns the time on the clients' own clock, in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Stops the clients and returns what they have recorded.
    pub(crate) fn stop(self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        let records = self.clients.into_iter().flat_map(|client| client.join().unwrap());
        let mut history = History::new();
        let keys: Vec<_> = self.keys.iter().map(|key| history.key(key.as_bytes())).collect();
        for record in records {
            let action = match &record.asked {
                Asked::Get => Action::Get,
                Asked::Set(value) => Action::Set(history.value(value.as_bytes())),
                Asked::Delete => Action::Delete,
            };
            let (end, outcome) = match &record.reply {
                Reply::Value(value) => {
                    let value = value.as_ref().map(|value| history.value(value.as_bytes()));
                    (Some(record.end), Outcome::Ok(Answer::Value(value)))
                }
                Reply::Done => (Some(record.end), Outcome::Ok(Answer::Done)),
                Reply::Refused(_) => (Some(record.end), Outcome::Failed),
                Reply::Unknown => (None, Outcome::Unknown),
            };
            history.push(Operation {
                client: record.client,
                node: Some(record.node.into()),
                key: keys[record.key],
                action,
                start: record.start,
                end,
                outcome,
                version: None,
            });
        }
        history
    }
}

struct Client {
    number: u64,
    ports: Vec<u16>,
    at: usize,
    connection: Option<BufReader<TcpStream>>,
    /// The end of each value.
    padding: String,
    begun: Instant,
    random: u64,
}

impl Client {
    fn work(
        mut self,
        keys: &[String],
        stop: &AtomicBool,
        done: &AtomicU64,
        refusals: &std::sync::Mutex<Vec<String>>,
    ) -> Vec<Record> {
        let mut records = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            if self.is_closed() {
                self.connection = None;
                self.at = (self.at + 1) % self.ports.len();
            }
            if self.connection.is_none() && !self.connect() {
                self.at = (self.at + 1) % self.ports.len();
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let key = self.draw(keys.len() as u64) as usize;
            let asked = match self.draw(10) {
                0..=4 => Asked::Get,
                5..=8 => Asked::Set(format!("{}-{}{}", self.number, records.len(), self.padding)),
                _ => Asked::Delete,
            };
            let (node, start) = (self.at as u16 + 1, self.nanoseconds());
            let reply = self.ask(&keys[key], &asked);
            let end = self.nanoseconds();
            match &reply {
                Reply::Refused(error) => {
                    refusals.lock().unwrap().push(error.clone());
                    // A pause between retries.
                    std::thread::sleep(Duration::from_millis(2));
                }
                Reply::Unknown => {
                    self.connection = None;
                    self.at = (self.at + 1) % self.ports.len();
                }
                Reply::Value(_) | Reply::Done => drop(done.fetch_add(1, Ordering::Relaxed)),
            }
            records.push(Record { client: self.number, node, key, asked, start, end, reply });
        }
        records
    }

    fn nanoseconds(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn connect(&mut self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[self.at]));
        let Ok(stream) = TcpStream::connect_timeout(&address, READ_TIMEOUT) else { return false };
        let ready = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(READ_TIMEOUT)));
        self.connection = ready.ok().map(|()| BufReader::new(stream));
        self.connection.is_some()
    }

    /// Whether the node has closed the connection while nothing was asked, as client libraries check before they use one.
    fn is_closed(&mut self) -> bool {
        let Some(connection) = &self.connection else { return false };
        let stream = connection.get_ref();
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        let _ = stream.set_nonblocking(false);
        matches!(peeked, Ok(0))
    }

    fn ask(&mut self, key: &str, asked: &Asked) -> Reply {
        let request = match asked {
            Asked::Get => format!("GET {key}\r\n"),
            Asked::Set(value) => format!("SET {key} {value}\r\n"),
            Asked::Delete => format!("DEL {key}\r\n"),
        };
        self.exchange(&request).unwrap_or(Reply::Unknown)
    }

    fn exchange(&mut self, request: &str) -> std::io::Result<Reply> {
        let Some(connection) = &mut self.connection else { return Ok(Reply::Unknown) };
        connection.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let Some((kind, rest)) = line.trim_end().split_at_checked(1) else { return Ok(Reply::Unknown) };
        Ok(match (kind, rest) {
            ("+", _) | (":", _) => Reply::Done,
            ("$", "-1") => Reply::Value(None),
            ("$", length) => {
                let mut bytes = vec![0; length.parse::<usize>().expect("a length") + 2];
                connection.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Value(Some(String::from_utf8(bytes).expect("text was written")))
            }
            ("-", error) if error.starts_with("UNKNOWN") => Reply::Unknown,
            ("-", error) => Reply::Refused(error.to_owned()),
            _ => panic!("no reply to such a request: {line}"),
        })
    }
}
