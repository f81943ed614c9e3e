//! A connection as a Redis client, with many requests in progress.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use wire::resp::client::{Reply, put_request};

use super::stream::Stream;
use super::tls::Tls;

/// The length of the longest line that is not a reply, in bytes.
const LINE_BYTES: u64 = 1 << 16;

/// The server requires a password, and none was given.
#[derive(Debug)]
pub(crate) struct WantsPassword;

impl std::fmt::Display for WantsPassword {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("it wants a password")
    }
}

impl std::error::Error for WantsPassword {}

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
            if let Reply::Error(error) = client.ask(&words).with_context(|| address.to_owned())? {
                bail!("{address} refuses the password: {error}");
            }
        }
        match client.ask(&[b"PING"]).with_context(|| address.to_owned())? {
            Reply::Error(error) if error.starts_with("NOAUTH ") => {
                Err(WantsPassword).with_context(|| address.to_owned())
            }
            Reply::Error(error) => bail!("{address} does not serve: {error}"),
            _ => Ok(client),
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
