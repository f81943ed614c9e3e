//! `CLIENT`: what a client may ask and set about connections.

use crate::channels::Listening;
use crate::command;
use crate::node::Node;
use crate::session::{ClientId, ClientKind, Session};
use crate::slab::Handle;
use crate::words::is_printable;
use kv::{Reply, ReplyBuffer};
use std::collections::BTreeSet;
use std::fmt::Write;
use wire::resp::Arguments;
use wire::resp::Protocol;

/// The approximate time to look at one client, and to describe one.
const LOOKED_AT_NS: u64 = 50;
const LISTED_NS: u64 = 1000;

const SYNTAX: &str = "ERR syntax error";

/// The longest name of a client, of its library or of the library's version, in bytes.
pub(crate) const CLIENT_NAME_BYTES_MAX: usize = 1024;
pub(crate) const NAME_TOO_LONG: &str = "ERR Client names and attributes cannot be longer than 1024 bytes.";

impl Session {
    /// The number that `CLIENT ID` returns: never reused while the node runs.
    pub(crate) fn number(&self) -> u64 {
        client_number(self.id)
    }

    /// Its address, as `CLIENT LIST` shows it.
    fn address(&self) -> &str {
        match &self.kind {
            ClientKind::Resp { address, .. } => address,
            ClientKind::Internal => "internal",
        }
    }

    /// One line of `CLIENT LIST`.
    fn describe(&self, now_us: u64, out: &mut String) {
        let (local_address, fd) = match &self.kind {
            ClientKind::Resp { local_address, fd, .. } => (local_address.as_str(), *fd),
            ClientKind::Internal => ("internal", -1),
        };
        let seconds = |since_us: u64| now_us.saturating_sub(since_us) / 1_000_000;
        let flags = match self.queued() {
            _ if self.closing => "c",
            _ if self.lock_wait.is_some() => "b",
            Some(_) => "x",
            None if self.subscriptions.is_some() => "P",
            None => "N",
        };
        let queued = self.queued().map_or(-1, |count| count as i64);
        let command = self.last_command.and_then(command::by_number).map_or("NULL", |spec| spec.name);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db=0 sub={} psub={} ssub={} multi={} \
             qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem={} events=r \
             cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={} tot-cmds={}",
            self.number(),
            self.address(),
            local_address,
            fd,
            text(&self.name),
            seconds(self.created_us),
            seconds(self.active_us),
            flags,
            self.subscribed(Listening::Channel),
            self.subscribed(Listening::Pattern),
            self.subscribed(Listening::Shard),
            queued,
            self.output_bytes(),
            self.output_bytes() + std::mem::size_of::<Session>(),
            command,
            if self.protocol == Protocol::Resp3 { 3 } else { 2 },
            text(&self.library_name),
            text(&self.library_version),
            self.requests,
        );
    }
}

/// A client's number: its handle with the index first, so that the first clients have small numbers.
fn client_number(id: Handle) -> u64 {
    (id.to_bits() >> 32) + ((id.index() as u64 + 1) << 30)
}

impl Node {
    pub(crate) fn client_id(&mut self, client: ClientId) {
        self.answer(client, |replies| replies.integer(client_number(client) as i64));
    }

    pub(crate) fn client_info(&mut self, client: ClientId) {
        let mut text = String::new();
        if let Some(session) = self.sessions.get(client) {
            session.describe(self.now.monotonic_us, &mut text);
        }
        self.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
    }

    pub(crate) fn client_list(&mut self, client: ClientId, arguments: Arguments<'_>) {
        self.spend(self.sessions.len() as u64 * LISTED_NS);
        let mut ids = None;
        match arguments.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
            None => {}
            Some(b"type") if arguments.len() == 4 => {
                let kind = arguments[3].to_ascii_lowercase();
                match kind.as_slice() {
                    b"normal" | b"pubsub" => {
                        let listens = kind == b"pubsub";
                        let sessions = self.sessions.iter().map(|(_, session)| session);
                        let wanted = sessions.filter(|session| session.subscriptions.is_some() == listens);
                        ids = Some(wanted.map(Session::number).collect());
                    }
                    b"replica" | b"slave" | b"master" => ids = Some(BTreeSet::new()),
                    _ => {
                        let error = format!("ERR Unknown client type '{}'", kind.escape_ascii());
                        return self.answer(client, |replies| replies.error(&error));
                    }
                }
            }
            Some(b"id") if arguments.len() > 3 => {
                let parsed: Option<BTreeSet<u64>> =
                    arguments.iter().skip(3).map(|id| std::str::from_utf8(id).ok()?.parse().ok()).collect();
                let Some(parsed) = parsed else {
                    return self.answer(client, |replies| replies.error("ERR Invalid client ID"));
                };
                ids = Some(parsed);
            }
            Some(_) => return self.answer(client, |replies| replies.error(SYNTAX)),
        }
        let mut text = String::new();
        for (_, session) in self.sessions.iter().filter(|(_, session)| !session.is_internal()) {
            if ids.as_ref().is_none_or(|ids| ids.contains(&session.number())) {
                session.describe(self.now.monotonic_us, &mut text);
            }
        }
        self.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
    }

    pub(crate) fn client_set_name(&mut self, client: ClientId, name: &[u8]) {
        if name.len() > CLIENT_NAME_BYTES_MAX {
            return self.answer(client, |replies| replies.error(NAME_TOO_LONG));
        }
        if !is_printable(name) {
            let error = "ERR Client names cannot contain spaces, newlines or special characters.";
            return self.answer(client, |replies| replies.error(error));
        }
        if let Some(session) = self.sessions.get_mut(client) {
            session.name = name.to_vec();
        }
        self.answer(client, ReplyBuffer::ok);
    }

    pub(crate) fn client_get_name(&mut self, client: ClientId) {
        let name = self.sessions.get(client).map(|session| session.name.clone()).unwrap_or_default();
        self.answer(client, |replies| if name.is_empty() { replies.null() } else { replies.bulk(&name) });
    }

    pub(crate) fn client_set_info(&mut self, client: ClientId, attribute: &[u8], value: &[u8]) {
        if value.len() > CLIENT_NAME_BYTES_MAX || attribute.len() > CLIENT_NAME_BYTES_MAX {
            return self.answer(client, |replies| replies.error(NAME_TOO_LONG));
        }
        let attribute = attribute.to_ascii_lowercase();
        let Some(session) = self.sessions.get_mut(client) else { return };
        let place = match attribute.as_slice() {
            b"lib-name" => &mut session.library_name,
            b"lib-ver" => &mut session.library_version,
            _ => {
                let error = format!("ERR Unrecognized option '{}'", attribute.escape_ascii());
                return self.answer(client, |replies| replies.error(&error));
            }
        };
        if is_printable(value) {
            *place = value.to_vec();
            return self.answer(client, ReplyBuffer::ok);
        }
        let attribute = String::from_utf8_lossy(&attribute).into_owned();
        let error = format!("ERR {attribute} cannot contain spaces, newlines or special characters.");
        self.answer(client, |replies| replies.error(&error));
    }

    /// `CLIENT NO-EVICT` and `CLIENT NO-TOUCH`: kept for `CLIENT INFO`; nothing is evicted or touched here.
    pub(crate) fn client_switch(
        &mut self,
        client: ClientId,
        word: &[u8],
        place: impl Fn(&mut Session) -> &mut bool,
    ) {
        let on = match word.to_ascii_lowercase().as_slice() {
            b"on" => true,
            b"off" => false,
            _ => return self.answer(client, |replies| replies.error(SYNTAX)),
        };
        if let Some(session) = self.sessions.get_mut(client) {
            *place(session) = on;
        }
        self.answer(client, ReplyBuffer::ok);
    }

    pub(crate) fn client_kill(&mut self, client: ClientId, arguments: Arguments<'_>) {
        self.spend(self.sessions.len() as u64 * LOOKED_AT_NS);
        if arguments.len() == 3 {
            // The old form names one address, and the answer is an error if there is no such client.
            let address = String::from_utf8_lossy(&arguments[2]).into_owned();
            let victims = self.clients_that(|session| session.address() == address);
            if victims.is_empty() {
                return self.answer(client, |replies| replies.error("ERR No such client"));
            }
            self.answer(client, ReplyBuffer::ok);
            return self.kill_all(client, victims);
        }
        let filter = match KillFilter::parse(arguments, client_number(client)) {
            Ok(filter) => filter,
            Err(error) => return self.answer(client, |replies| replies.error(&error)),
        };
        let victims = self.clients_that(|session| filter.fits(session));
        self.answer(client, |replies| replies.integer(victims.len() as i64));
        self.kill_all(client, victims);
    }

    fn clients_that(&self, fits: impl Fn(&Session) -> bool) -> Vec<ClientId> {
        let sessions = self.sessions.iter().filter(|(_, session)| !session.is_internal() && fits(session));
        sessions.map(|(id, _)| id).collect()
    }

    /// Ends sessions. A client that kills itself still reads its answer.
    fn kill_all(&mut self, killer: ClientId, victims: Vec<ClientId>) {
        for victim in victims {
            if victim == killer {
                self.close_after_replies(victim);
            } else {
                self.kill(victim);
            }
        }
    }
}

/// The clients that `CLIENT KILL` ends: those that meet every condition given.
#[derive(Debug, Default)]
struct KillFilter {
    id: Option<u64>,
    address: Option<String>,
    local_address: Option<String>,
    user: Option<Vec<u8>>,
    none_of_this_kind: bool,
    /// Whether it subscribes to channels.
    listens: Option<bool>,
    /// The client that is spared.
    spared: Option<u64>,
}

impl KillFilter {
    fn parse(arguments: Arguments<'_>, killer: u64) -> Result<KillFilter, String> {
        let mut filter = KillFilter { spared: Some(killer), ..KillFilter::default() };
        let mut at = 2;
        while at < arguments.len() {
            let (Some(word), Some(value)) = (arguments.get(at), arguments.get(at + 1)) else {
                return Err(SYNTAX.into());
            };
            let text = || String::from_utf8_lossy(value).into_owned();
            match word.to_ascii_lowercase().as_slice() {
                b"id" => match text().parse() {
                    Ok(id) if id > 0 => filter.id = Some(id),
                    _ => return Err("ERR client-id should be greater than 0".into()),
                },
                b"addr" => filter.address = Some(text()),
                b"laddr" => filter.local_address = Some(text()),
                b"user" if value == b"default" => filter.user = Some(value.to_vec()),
                b"user" => return Err(format!("ERR No such user '{}'", text())),
                b"type" => match value.to_ascii_lowercase().as_slice() {
                    b"normal" => filter.listens = Some(false),
                    b"pubsub" => filter.listens = Some(true),
                    b"replica" | b"slave" | b"master" => filter.none_of_this_kind = true,
                    _ => return Err(format!("ERR Unknown client type '{}'", text())),
                },
                b"skipme" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filter.spared = Some(killer),
                    b"no" => filter.spared = None,
                    _ => return Err(SYNTAX.into()),
                },
                _ => return Err(SYNTAX.into()),
            }
            at += 2;
        }
        Ok(filter)
    }

    fn fits(&self, session: &Session) -> bool {
        let local = match &session.kind {
            ClientKind::Resp { local_address, .. } => local_address.as_str(),
            ClientKind::Internal => "",
        };
        !self.none_of_this_kind
            && self.spared != Some(session.number())
            && self.listens.is_none_or(|listens| listens == session.subscriptions.is_some())
            && self.id.is_none_or(|id| id == session.number())
            && self.address.as_ref().is_none_or(|address| address == session.address())
            && self.local_address.as_ref().is_none_or(|address| address == local)
    }
}
