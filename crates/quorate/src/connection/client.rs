//! A connection as a Redis client, with many requests in progress.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
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
        let stream = Stream::connect(address, tls, within)?;
        let mut client = Client { stream: BufReader::with_capacity(1 << 16, stream), out: Vec::new() };
        if !credentials.is_empty() {
            let words: Vec<&[u8]> =
                std::iter::once(&b"AUTH"[..]).chain(credentials.iter().map(String::as_bytes)).collect();
            if let Reply::Error(error) = client.greet(&words).with_context(|| address.to_owned())? {
                return Err(Refusal::or_failure(&error, format!("{address} refuses the password: {error}")));
            }
        }
        // What has answered AUTH is a server of this protocol.
        let answer = if credentials.is_empty() { client.greet(&[b"PING"]) } else { client.ask(&[b"PING"]) };
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

    /// Sends the first request: what answers it may be no server of this protocol.
    fn greet(&mut self, words: &[&[u8]]) -> Result<Reply> {
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
                // A node's port for other nodes does that.
                Some(
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe,
                ) => Refusal::new(
                    Refused::Protocol,
                    "it has closed the connection without an answer: is it a port for TLS or for other nodes, or a proxy whose server is down?",
                )
                .into(),
                _ => error,
            }
        })
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What a client says of a server that accepts its connection, reads this much of its request, answers and closes it.
    fn refused_by(read: usize, answer: &'static [u8]) -> Option<Refused> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.peek(&mut [0]).unwrap();
            socket.read_exact(&mut vec![0; read]).unwrap();
            socket.write_all(answer).unwrap();
        });
        let outcome = Client::connect(&address, &[], None, Duration::from_secs(10));
        server.join().unwrap();
        outcome.err().expect("it does not serve").downcast_ref::<Refusal>().map(|refusal| refusal.refused)
    }

    #[test]
    fn what_closes_a_connection_before_any_answer_is_no_port_for_clients() {
        let mut ping = Vec::new();
        put_request(&[b"PING"], &mut ping);
        assert_eq!(refused_by(4, b""), Some(Refused::Protocol), "what is left unread makes it a reset");
        assert_eq!(refused_by(ping.len(), b""), Some(Refused::Protocol));
        assert_eq!(refused_by(ping.len(), b"-LOADING a moment\r\n"), None, "a node has answered");
    }
}
