//! A connection as a Redis client, with many requests in progress.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use server::status::Refused;
use wire::resp::client::{Reply, put_request};

use super::refusal::Refusal;
use super::stream::Stream;
use super::tls::Tls;

/// The length of the longest line that is not a reply, in bytes.
const LINE_BYTES: u64 = 1 << 16;

/// A connection.
pub(crate) struct Client {
    stream: BufReader<Stream>,
    out: Vec<u8>,
}

impl Client {
    /// Connects to a server that may be silent for no longer than `within`, and authenticates with these arguments of AUTH
    /// if there are any: a password, or a user and a password.
    pub(crate) fn connect(
        address: &str,
        credentials: &[String],
        tls: Option<&Tls>,
        within: Duration,
    ) -> Result<Client> {
        let begun = Instant::now();
        let stream = Stream::connect(address, tls, within)?;
        let mut client = Client { stream: BufReader::with_capacity(1 << 16, stream), out: Vec::new() };
        if !credentials.is_empty() {
            let words: Vec<&[u8]> =
                std::iter::once(&b"AUTH"[..]).chain(credentials.iter().map(String::as_bytes)).collect();
            let greeted = client.greet(&words, (address, begun)).with_context(|| address.to_owned());
            if let Reply::Error(error) = greeted? {
                return Err(Refusal::or_failure(&error, format!("{address} refuses the password: {error}")));
            }
        }
        // What has answered AUTH is a server of this protocol.
        let answer = match credentials.is_empty() {
            true => client.greet(&[b"PING"], (address, begun)),
            false => client.ask(&[b"PING"]),
        };
        match answer.with_context(|| address.to_owned())? {
            Reply::Error(error) if error.starts_with("NOAUTH ") => {
                Err(Refusal::new(Refused::NeedsPassword, "it wants a password"))
                    .with_context(|| address.to_owned())
            }
            // This user may do something else.
            Reply::Error(error) if error.starts_with("NOPERM ") => Ok(client),
            Reply::Error(error) => bail!("{address} does not serve: {error}"),
            _ => Ok(client),
        }
    }

    /// Sends the first request: what answers it may be no server of this protocol. The connection to `place` was begun at the
    /// given moment.
    fn greet(&mut self, words: &[&[u8]], place: (&str, Instant)) -> Result<Reply> {
        self.ask(words).map_err(|error| {
            let cause = error.root_cause().downcast_ref::<io::Error>();
            let of_tls = cause.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<Refusal>());
            if let Some(refusal) = of_tls {
                return refusal.clone().into();
            }
            match cause.map(io::Error::kind) {
                Some(io::ErrorKind::InvalidData) => Refusal::new(
                    Refused::Protocol,
                    "what answers there does not speak the Redis protocol without TLS: is it the port for HTTP, for other nodes, or \
                     for TLS?",
                )
                .into(),
                Some(
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe,
                ) => self.closed(place),
                _ => error,
            }
        })
    }

    /// What it means that a connection was closed before a byte of an answer. A port that expects something else, as a node's
    /// for other nodes, closes it for what it has read: that says nothing about the node. A proxy whose server is down also
    /// closes connections on which nothing was sent. So a second connection, on which nothing is sent, tells the two apart.
    fn closed(&self, (address, begun): (&str, Instant)) -> anyhow::Error {
        let is_plain = !self.stream.get_ref().is_tls();
        match is_plain && closes_unasked(address, begun.elapsed()) {
            true => anyhow!(
                "it accepts connections and closes them before anything is sent: a proxy or balancer whose node is down? If this \
                 address never worked, it may be that of something else"
            ),
            false => Refusal::new(
                Refused::Protocol,
                "it has closed the connection without an answer: is it a port for TLS or for other nodes, or a proxy whose node is \
                 down?",
            )
            .into(),
        }
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        put_request(words, &mut out);
        let sent = self.send(&out);
        self.out = out;
        sent?;
        self.reply()
    }

    /// Sends requests that the caller has encoded. Read their replies with [`Client::reply`].
    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(requests).context("the connection is lost")
    }

    /// Sets how long a server may be silent.
    pub(crate) fn set_read_timeout(&self, within: Duration) -> Result<()> {
        self.stream.get_ref().set_read_timeout(within).context("the connection is lost")
    }

    /// Reads the next reply.
    pub(crate) fn reply(&mut self) -> Result<Reply> {
        Reply::read(&mut self.stream).context("the connection is lost")
    }

    /// Reads a line that is not a reply, skipping the empty lines by which a server shows that it is alive.
    pub(crate) fn line(&mut self) -> Result<String> {
        loop {
            let mut line = Vec::new();
            (&mut self.stream).take(LINE_BYTES).read_until(b'\n', &mut line)?;
            match line.strip_suffix(b"\n") {
                Some(b"") => {}
                Some(text) => return Ok(String::from_utf8_lossy(text).trim_end().to_owned()),
                None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            }
        }
    }

    /// Returns the connection, and the bytes that were read from it already.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Stream) {
        (self.stream.buffer().to_vec(), self.stream.into_inner())
    }
}

/// Whether what listens at an address closes a connection on which nothing was sent, about as soon as it has closed the last
/// one. A node closes such a connection at a port for other nodes only after three seconds.
fn closes_unasked(address: &str, last_took: Duration) -> bool {
    let patience = (last_took + Duration::from_millis(500)).min(Duration::from_millis(2500));
    let Ok(mut stream) = Stream::connect(address, None, patience) else { return true };
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What a client says of a server that reads this much of its request, answers and closes the connection; or that closes
    /// each connection at once.
    fn outcome_of(reads: Option<usize>, answer: &'static [u8]) -> anyhow::Error {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // It ends with the test's process.
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                thread::spawn(move || {
                    let Some(reads) = reads else { return };
                    let read = socket.peek(&mut [0]).and_then(|_| socket.read_exact(&mut vec![0; reads]));
                    // The client has closed a connection on which it has sent nothing.
                    if read.is_ok() {
                        socket.write_all(answer).unwrap();
                    }
                });
            }
        });
        Client::connect(&address, &[], None, Duration::from_secs(10)).err().expect("it does not serve")
    }

    fn refused(error: &anyhow::Error) -> Option<Refused> {
        error.downcast_ref::<Refusal>().map(|refusal| refusal.refused)
    }

    #[test]
    fn what_closes_a_connection_for_what_was_sent_is_no_port_for_clients() {
        let mut ping = Vec::new();
        put_request(&[b"PING"], &mut ping);
        let reset = outcome_of(Some(4), b"");
        assert_eq!(refused(&reset), Some(Refused::Protocol), "what is left unread makes it a reset");
        assert_eq!(refused(&outcome_of(Some(ping.len()), b"")), Some(Refused::Protocol));
        let answered = outcome_of(Some(ping.len()), b"-LOADING a moment\r\n");
        assert_eq!(refused(&answered), None, "a node has answered");
    }

    #[test]
    fn what_closes_connections_unasked_is_a_proxy_whose_node_is_down() {
        let error = outcome_of(None, b"");
        assert_eq!(refused(&error), None, "nothing that this client can change is wrong");
        assert!(format!("{error:#}").contains("whose node is down"), "{error:#}");
    }
}
