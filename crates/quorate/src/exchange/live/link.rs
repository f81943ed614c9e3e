//! A connection to a Redis server as its replica.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::spool::Spool;
use crate::connection::{ANSWER_WITHIN, Client, Stream, Tls, put_request};

/// How often the replica acknowledges. The server disconnects one that is silent for a minute.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);

/// How long a server may be silent. It sends something every ten seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// The address of a server.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// HOST:PORT.
    pub(super) server: String,
    /// The arguments of AUTH, if there are any.
    pub(super) credentials: Vec<String>,
    pub(super) tls: Option<Tls>,
}

impl Address {
    /// Connects as a client.
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub(super) fn connect(&self) -> Result<Client> {
        Client::connect(&self.server, &self.credentials, self.tls.as_ref(), ANSWER_WITHIN)
    }
}

/// How the end of a snapshot is recognised.
pub(super) enum SnapshotEnd {
    Length(u64),
    Mark([u8; MARK_BYTES]),
}

const MARK_BYTES: usize = 40;

/// What the server sends.
pub(super) enum Sends {
    /// A snapshot, followed by commands.
    Snapshot(SnapshotEnd),
    /// The commands after the requested position.
    Commands,
}

/// The connection.
pub(super) struct Link {
    pub(super) spool: Arc<Spool>,
    pub(super) sends: Sends,
    /// The name of the server's history, and the position in it at which the commands begin.
    pub(super) history: String,
    pub(super) offset: u64,
    stream: Stream,
    shared: Arc<Shared>,
}

struct Shared {
    writer: Mutex<Stream>,
    /// The position up to which commands have taken effect.
    applied: AtomicU64,
    /// Whether the snapshot has arrived completely. Only then does the server accept acknowledgements.
    has_arrived: AtomicBool,
}

impl Shared {
    fn write(&self) -> std::io::Result<()> {
        let message = match self.has_arrived.load(Ordering::Acquire) {
            true => {
                let offset = self.applied.load(Ordering::Acquire).to_string();
                format!("*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n${}\r\n{offset}\r\n", offset.len())
            }
            false => "\n".to_owned(),
        };
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(message.as_bytes())
    }
}

impl Link {
    /// Connects as a replica. With a position it requests the commands after it, and gets a snapshot if the server does
    /// not have them any more.
    ///
    /// # Errors
    /// The server cannot be reached, or does not replicate.
    pub(super) fn open(address: &Address, position: Option<(&str, u64)>, spool: Spool) -> Result<Link> {
        let server = &address.server;
        let mut client = address.connect()?;
        // The server lists this port for its replica; no client connects to it.
        client.ask(&[b"REPLCONF", b"listening-port", b"1"])?;
        client.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
        let (history, from) = match position {
            Some((history, offset)) => (history.to_owned(), (offset + 1).to_string()),
            None => ("?".to_owned(), "-1".to_owned()),
        };
        let mut request = Vec::new();
        put_request(&[b"PSYNC", history.as_bytes(), from.as_bytes()], &mut request);
        client.send(&request)?;
        let answer = client.line()?;
        let words: Vec<&str> = answer.split_whitespace().collect();
        let (sends, history, offset) = match (words[..].first().copied(), position) {
            (Some("+CONTINUE"), Some((history, offset))) => {
                (Sends::Commands, words.get(1).unwrap_or(&history).to_string(), offset)
            }
            (Some("+FULLRESYNC"), _) if words.len() == 3 => {
                let offset = words[2].parse().with_context(|| format!("{server} answers {answer}"))?;
                let head = client.line()?;
                let end = match (head.strip_prefix("$EOF:"), head.strip_prefix('$')) {
                    (Some(mark), _) => SnapshotEnd::Mark(
                        mark.as_bytes().try_into().with_context(|| format!("{server} sends {head}"))?,
                    ),
                    (None, Some(length)) => {
                        SnapshotEnd::Length(length.parse().with_context(|| format!("{server} sends {head}"))?)
                    }
                    _ => bail!("{server} sends no snapshot but {head}"),
                };
                (Sends::Snapshot(end), words[1].to_owned(), offset)
            }
            _ => bail!("{server} does not replicate: {answer}"),
        };
        let (first, stream) = client.into_parts();
        stream.set_read_timeout(SILENCE)?;
        let shared = Arc::new(Shared {
            writer: Mutex::new(stream.try_clone()?),
            applied: AtomicU64::new(offset),
            has_arrived: AtomicBool::new(false),
        });
        let link = Link { spool: Arc::new(spool), sends, history, offset, stream, shared };
        link.start(first)?;
        Ok(link)
    }

    fn start(&self, first: Vec<u8>) -> Result<()> {
        let (spool, shared, stream) = (self.spool.clone(), self.shared.clone(), self.stream.try_clone()?);
        let mut arrival = match &self.sends {
            Sends::Commands => Arrival::Whole,
            Sends::Snapshot(SnapshotEnd::Length(length)) => Arrival::Length(*length),
            Sends::Snapshot(SnapshotEnd::Mark(mark)) => Arrival::Mark { mark: *mark, last: Vec::new() },
        };
        std::thread::spawn(move || {
            let outcome = receive(stream, first, &spool, |bytes| {
                if arrival.is_whole_with(bytes) && !shared.has_arrived.swap(true, Ordering::AcqRel) {
                    // A server that sends a snapshot without a file sends commands only after this acknowledgement.
                    let _ = shared.write();
                }
            });
            spool.end(&format!("the connection to the server is lost: {outcome}"));
        });
        let (spool, shared) = (self.spool.clone(), self.shared.clone());
        std::thread::spawn(move || {
            while !spool.has_ended() && shared.write().is_ok() {
                std::thread::sleep(ACKNOWLEDGE_EVERY);
            }
        });
        Ok(())
    }

    /// Records that commands up to this position have taken effect.
    pub(super) fn applied(&self, offset: u64) {
        self.shared.applied.store(offset, Ordering::Release);
    }

    /// Sends the server at once the position up to which commands have taken effect.
    pub(super) fn acknowledge(&self) {
        // If it cannot be written, reading fails too.
        let _ = self.shared.write();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.spool.end("it is not needed any more");
        self.stream.shutdown();
    }
}

/// Reads until that fails, and returns why.
fn receive(mut stream: Stream, first: Vec<u8>, spool: &Spool, mut note: impl FnMut(&[u8])) -> String {
    let mut bytes = vec![0; 256 << 10];
    let mut push = |bytes: &[u8]| {
        let pushed = spool.push(bytes);
        note(bytes);
        pushed
    };
    if let Err(error) = push(&first) {
        return error.to_string();
    }
    loop {
        let count = match stream.read(&mut bytes) {
            Ok(0) => return "it has closed it".to_owned(),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return error.to_string(),
        };
        if let Err(error) = push(&bytes[..count]) {
            return error.to_string();
        }
    }
}

/// How much of a snapshot is still to come.
enum Arrival {
    Length(u64),
    Mark { mark: [u8; MARK_BYTES], last: Vec<u8> },
    Whole,
}

impl Arrival {
    fn is_whole_with(&mut self, bytes: &[u8]) -> bool {
        let is_whole = match self {
            Arrival::Whole => return true,
            Arrival::Length(length) => {
                *length = length.saturating_sub(bytes.len() as u64);
                *length == 0
            }
            // The server sends nothing after the mark until the replica has acknowledged it.
            Arrival::Mark { mark, last } => {
                last.extend_from_slice(&bytes[bytes.len().saturating_sub(MARK_BYTES)..]);
                last.drain(..last.len().saturating_sub(MARK_BYTES));
                last[..] == mark[..]
            }
        };
        if is_whole {
            *self = Arrival::Whole;
        }
        is_whole
    }
}

/// Reads the mark at the end of a snapshot, or checks its length.
///
/// # Errors
/// It does not end there.
pub(super) fn check_end(end: &SnapshotEnd, bytes: u64, reader: &mut impl std::io::Read) -> Result<()> {
    match end {
        SnapshotEnd::Length(length) => {
            ensure!(*length == bytes, "the snapshot has {bytes} bytes and not {length}");
        }
        SnapshotEnd::Mark(mark) => {
            let mut read = [0; MARK_BYTES];
            reader.read_exact(&mut read)?;
            ensure!(read == *mark, "the snapshot does not end where it should");
        }
    }
    Ok(())
}
