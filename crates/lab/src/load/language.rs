//! How requests and replies are written: as RESP or as HTTP.

use std::net::SocketAddr;

use super::http;
use super::options::{Options, Transport};
use super::outcome::Operation;
use super::reply::{Malformed, Reply};
use super::resp;
use super::value::Values;
use super::workload::Expected;

/// How much larger than our values a reply may be before it is refused instead of judged.
const REPLY_BYTES_EXTRA: usize = 1 << 20;

pub(crate) struct Language {
    kind: Kind,
    reply_bytes_max: usize,
}

enum Kind {
    Resp(resp::Requests),
    Http(http::Requests, http::Responses),
}

/// A reply that is all there.
pub(crate) struct Scanned<'a> {
    pub(crate) reply: Reply<'a>,
    /// How many bytes it takes in the buffer.
    pub(crate) bytes: usize,
    /// Whether the server closes the connection after it.
    pub(crate) closes: bool,
}

impl Language {
    pub(crate) fn new(options: &Options) -> Self {
        let kind = match options.transport {
            Transport::Resp => Kind::Resp(resp::Requests::new(options)),
            Transport::Http => Kind::Http(http::Requests::new(options), http::Responses::default()),
        };
        Self { kind, reply_bytes_max: options.value_bytes.max + REPLY_BYTES_EXTRA }
    }

    /// What comes with every request to this server: in HTTP header fields, in RESP nothing.
    pub(crate) fn fields(&self, address: SocketAddr, password: Option<&str>) -> Vec<u8> {
        match self.kind {
            Kind::Resp(_) => Vec::new(),
            Kind::Http(..) => http::fields(address, password),
        }
    }

    /// What a new connection begins with, and how many replies that has: a server that will refuse every request is
    /// found out at once.
    pub(crate) fn greeting(&self, fields: &[u8], password: Option<&str>) -> (Vec<u8>, usize) {
        match self.kind {
            Kind::Resp(_) => resp::greeting(password),
            Kind::Http(..) => (http::health(fields), 1),
        }
    }

    /// Appends a request.
    pub(crate) fn append(&self, asked: Expected, values: &Values, fields: &[u8], out: &mut Vec<u8>) {
        match &self.kind {
            Kind::Resp(requests) => requests.append(asked, values, out),
            Kind::Http(requests, _) => requests.append(asked, values, fields, out),
        }
    }

    /// Reads the reply to `operation` at the front of `input`; `None` when it is not all there.
    pub(crate) fn scan<'a>(
        &'a mut self,
        operation: Operation,
        input: &'a [u8],
    ) -> Result<Option<Scanned<'a>>, Malformed> {
        match &mut self.kind {
            Kind::Resp(_) => {
                let scanned = resp::scan(input, self.reply_bytes_max)?;
                Ok(scanned.map(|(reply, bytes)| Scanned { reply, bytes, closes: false }))
            }
            Kind::Http(_, responses) => responses.scan(operation, input, self.reply_bytes_max),
        }
    }
}
