//! What a client is, as `CLIENT LIST`, `CLIENT KILL` and the log show it.

use super::{ClientId, ClientKind, Session, TrackingMode};
use cluster::words::one_line;
use commands::Listening;
use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;
use wire::resp::Arguments;
use wire::resp::reply::Protocol;

impl Session {
    /// The number that `CLIENT ID` returns: never reused while the node runs.
    pub(crate) fn number(&self) -> u64 {
        client_number(self.id)
    }

    /// Its address, as `CLIENT LIST` shows it.
    pub(crate) fn address(&self) -> &str {
        match &self.kind {
            ClientKind::Resp { address, .. } => address,
            ClientKind::Internal => "internal",
        }
    }

    /// The address that it has connected to, as `CLIENT LIST` shows it.
    pub(crate) fn local_address(&self) -> &str {
        match &self.kind {
            ClientKind::Resp { local_address, .. } => local_address,
            ClientKind::Internal => "internal",
        }
    }

    /// For how long it has sent no request, in microseconds.
    pub(crate) fn idle_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.active_us)
    }

    /// For how long it has been connected, in microseconds.
    pub(crate) fn age_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.created_us)
    }

    /// Its user and address, for the audit log.
    pub(crate) fn who(&self) -> String {
        let name = self.user.as_ref().map_or(Cow::Borrowed(""), |user| String::from_utf8_lossy(&user.name));
        let from = match (&self.kind, self.asked_from) {
            (ClientKind::Resp { address, .. }, _) => address.clone(),
            (ClientKind::Internal, Some(address)) => format!("{address} (HTTP)"),
            (ClientKind::Internal, None) => "this node".into(),
        };
        format!("user '{}' at {from}", one_line(&name))
    }

    /// The name that the client has given itself.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(crate) fn set_name(&mut self, name: &[u8]) {
        self.name = name.to_vec();
    }

    /// What the client says of its library and of that one's version, if it has said anything.
    pub(crate) fn library(&self) -> Option<(&[u8], &[u8])> {
        let says = !self.library_name.is_empty() || !self.library_version.is_empty();
        says.then_some((&self.library_name, &self.library_version))
    }

    /// What the client says of its library, by the word of `CLIENT SETINFO`.
    pub(crate) fn attribute_mut(&mut self, word: &[u8]) -> Option<&mut Vec<u8>> {
        match word {
            b"lib-name" => Some(&mut self.library_name),
            b"lib-ver" => Some(&mut self.library_version),
            _ => None,
        }
    }

    /// `CLIENT NO-EVICT`: kept for `CLIENT INFO`.
    pub(crate) fn set_no_evict(&mut self, is_on: bool) {
        self.no_evict = is_on;
    }

    /// `CLIENT NO-TOUCH`: kept for `CLIENT INFO`.
    pub(crate) fn set_no_touch(&mut self, is_on: bool) {
        self.no_touch = is_on;
    }

    /// `READONLY` and `READWRITE`: kept for `CLIENT INFO`.
    pub(crate) fn set_read_only(&mut self, is_on: bool) {
        self.read_only = is_on;
    }

    /// `CLIENT CAPA redirect`: kept for `CLIENT INFO`.
    pub(crate) fn understands_redirections(&mut self) {
        self.understands_redirections = true;
    }

    /// What the client says that it understands, as letters.
    pub(crate) fn capabilities(&self) -> &'static str {
        if self.understands_redirections { "r" } else { "" }
    }

    /// What the client is and does, as letters. `is_monitor`: it has sent `MONITOR`.
    pub(crate) fn flags(&self, is_monitor: bool) -> String {
        let is_blocked = self.wait.is_some() || self.held_back.is_some();
        let mut flags = String::new();
        for (holds, letter) in [
            (is_monitor, 'O'),
            (self.replica.is_one, 'S'),
            (self.subscriptions.is_some(), 'P'),
            (self.queued().is_some(), 'x'),
            (is_blocked, 'b'),
            (self.tracking.is_some(), 't'),
            (self.tracking.as_ref().is_some_and(|choice| choice.is_broken), 'R'),
            (self.tracking.as_ref().is_some_and(|choice| choice.mode == TrackingMode::Prefixes), 'B'),
            (self.closing, 'c'),
            (self.read_only, 'r'),
            (self.no_evict, 'e'),
            (self.no_touch, 'T'),
        ] {
            flags.extend(holds.then_some(letter));
        }
        if flags.is_empty() {
            flags.push('N');
        }
        flags
    }

    /// How many requests were answered. Messages that had to wait for a reply have taken numbers, too.
    fn answered(&self) -> u64 {
        self.first - self.messages
    }

    /// Notes how many bytes of the client's input are not taken yet, and how much room there is for more.
    pub(crate) fn note_input(&mut self, bytes: usize, room: usize) {
        self.input_bytes = (bytes, room);
    }

    /// Notes the address of the client on whose behalf a part of the server acts.
    pub(crate) fn acts_for(&mut self, address: Option<IpAddr>) {
        self.asked_from = address;
    }

    /// One line of `CLIENT LIST`.
    pub(crate) fn describe(
        &self,
        now_us: u64,
        is_monitor: bool,
        asked: Option<Arguments<'_>>,
        out: &mut String,
    ) {
        let fd = match &self.kind {
            ClientKind::Resp { fd, .. } => *fd,
            ClientKind::Internal => -1,
        };
        let seconds = |span_us: u64| span_us / 1_000_000;
        let queued = self.queued().map_or(-1, |count| count as i64);
        let command = self.last_command.and_then(commands::by_number).map_or("NULL", |spec| spec.name);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // The asking client's own request counts, too; of other clients, only input that is incomplete or not taken yet.
        let argument_bytes: usize = asked.map_or(0, |asked| asked.iter().map(<[u8]>::len).sum());
        let (input_bytes, input_room) = match asked {
            Some(asked) => (framed_bytes(asked), 0),
            None => self.input_bytes,
        };
        let queued_bytes = self.transaction.as_ref().map_or(0, |gathered| gathered.bytes());
        let redirect = self.tracking.as_ref();
        let redirect = redirect.map_or(-1, |choice| choice.redirect.map_or(0, |(number, _)| number as i64));
        let watched = self.transaction.as_ref().map_or(0, |gathered| gathered.watched.len());
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "id={} addr={} laddr={} fd={fd} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={queued} \
             watch={watched} qbuf={input_bytes} qbuf-free={input_room} argv-mem={argument_bytes} multi-mem={queued_bytes} rbs=0 \
             rbp=0 obl={} oll=0 omem=0 tot-mem={} events=r cmd={command} user={} redir={redirect} resp={} lib-name={} lib-ver={} \
             io-thread=0 tot-net-in={} tot-net-out={} tot-cmds={} capa={}",
            self.number(),
            self.address(),
            self.local_address(),
            text(&self.name),
            seconds(self.age_us(now_us)),
            seconds(self.idle_us(now_us)),
            self.flags(is_monitor),
            self.database,
            self.subscribed(Listening::Channel),
            self.subscribed(Listening::Pattern),
            self.subscribed(Listening::Shard),
            self.output_bytes(),
            self.memory_bytes() + input_bytes + input_room,
            text(self.user_name()),
            if self.protocol == Protocol::Resp3 { 3 } else { 2 },
            text(&self.library_name),
            text(&self.library_version),
            self.received_bytes,
            self.output.written_bytes(),
            self.answered(),
            self.capabilities(),
        );
    }
}

/// A client's number: its handle with the index first, so that the first clients have small numbers.
pub(crate) fn client_number(id: ClientId) -> u64 {
    (id.to_bits() >> 32) + ((id.index() as u64 + 1) << 30)
}

/// The length of a request as it arrives, in bytes.
fn framed_bytes(request: Arguments<'_>) -> usize {
    let number = |count: usize| count.to_string().len() + 3;
    let arguments: usize = request.iter().map(|argument| number(argument.len()) + argument.len() + 2).sum();
    number(request.len()) + arguments
}
