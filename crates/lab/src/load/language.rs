//! How requests and replies are encoded: as RESP, HTTP, or the protocols of etcd or ZooKeeper.

use std::net::SocketAddr;

use super::etcd;
use super::http;
use super::options::{Login, Options, Transport};
use super::outcome::Expected;
use super::reply::{Malformed, Scanned};
use super::resp;
use super::value::Values;
use super::zookeeper;

/// How much larger than our values a reply may be; a larger one is refused instead of judged.
const REPLY_BYTES_EXTRA: usize = 1 << 20;

pub(crate) struct Language {
    kind: Kind,
    reply_bytes_max: usize,
}

enum Kind {
    Resp(resp::Requests),
    Http(http::Requests, http::Responses),
    Etcd(etcd::Requests),
    ZooKeeper(zookeeper::Requests),
}

/// The protocol's state of one connection.
#[derive(Default)]
pub(crate) struct Dialogue {
    /// The header fields of every request to this server.
    fields: Vec<u8>,
    /// For etcd.
    streams: etcd::Streams,
}

impl Language {
    pub(crate) fn new(options: &Options) -> Self {
        let kind = match options.transport {
            Transport::Resp => Kind::Resp(resp::Requests::new(options)),
            Transport::Http => Kind::Http(http::Requests::new(options), http::Responses::default()),
            Transport::Etcd => Kind::Etcd(etcd::Requests::new(options)),
            Transport::ZooKeeper => Kind::ZooKeeper(zookeeper::Requests::new(options)),
        };
        Self { kind, reply_bytes_max: options.value_bytes.max + REPLY_BYTES_EXTRA }
    }

    /// The initial state of a connection to this server.
    pub(crate) fn dialogue(&self, address: SocketAddr, login: Option<&Login>) -> Dialogue {
        let fields = match self.kind {
            Kind::Resp(_) | Kind::ZooKeeper(_) => Vec::new(),
            Kind::Http(..) => http::fields(address, login),
            Kind::Etcd(_) => etcd::fields(address),
        };
        Dialogue { fields, ..Dialogue::default() }
    }

    /// The greeting of a new connection, and its number of replies: a server that will refuse every request is detected
    /// at once. The replies are read as those to a PING.
    pub(crate) fn greeting(&self, dialogue: &mut Dialogue, login: Option<&Login>) -> (Vec<u8>, usize) {
        match self.kind {
            Kind::Resp(_) => resp::greeting(login),
            Kind::Http(..) => (http::health(&dialogue.fields), 1),
            Kind::Etcd(_) => (dialogue.streams.greeting(&dialogue.fields), 1),
            Kind::ZooKeeper(_) => (zookeeper::greeting(), 1),
        }
    }

    /// Appends a request; while keys are loaded, one of those that load.
    pub(crate) fn append(
        &self,
        asked: Expected,
        (values, is_loading): (&Values, bool),
        dialogue: &mut Dialogue,
        out: &mut Vec<u8>,
    ) {
        let Dialogue { fields, streams } = dialogue;
        match &self.kind {
            Kind::Resp(requests) => requests.append(asked, (values, is_loading), out),
            Kind::Http(requests, _) => requests.append(asked, values, fields, out),
            Kind::Etcd(requests) => requests.append(asked, values, (fields, streams), out),
            Kind::ZooKeeper(requests) => requests.append(asked, values, is_loading, out),
        }
    }

    /// Appends what follows the requests of a batch that has a SET.
    pub(crate) fn end_batch(&self, out: &mut Vec<u8>) {
        if let Kind::Resp(requests) = &self.kind {
            requests.end_batch(out);
        }
    }

    /// Reads the reply at the front of `input` to one of the unanswered requests, `asked`; `None` when it is
    /// incomplete, or no request is unanswered.
    pub(crate) fn scan<'a>(
        &'a mut self,
        dialogue: &'a mut Dialogue,
        asked: &[Expected],
        input: &'a [u8],
    ) -> Result<Option<Scanned<'a>>, Malformed> {
        let Some(Expected { operation, .. }) = asked.first().copied() else { return Ok(None) };
        match &mut self.kind {
            Kind::Resp(_) => {
                let scanned = resp::scan(input, self.reply_bytes_max)?;
                Ok(scanned.map(|(reply, bytes)| Scanned { reply, place: 0, bytes, closes: false }))
            }
            Kind::Http(_, responses) => responses.scan(operation, input, self.reply_bytes_max),
            Kind::Etcd(_) => dialogue.streams.scan(asked, input),
            Kind::ZooKeeper(_) => zookeeper::scan(operation, input, self.reply_bytes_max),
        }
    }

    /// Handles bytes that arrived although no reply is outstanding; returns how many are consumed. Fails if they can
    /// only be a reply, which could not be matched to a request.
    pub(crate) fn settle(&self, dialogue: &mut Dialogue, input: &[u8]) -> Result<usize, Malformed> {
        match self.kind {
            Kind::Etcd(_) => dialogue.streams.settle(input),
            _ if input.is_empty() => Ok(0),
            _ => Err(Malformed),
        }
    }
}
