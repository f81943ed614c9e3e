//! A client's session: its name and settings, and its replies in the order of its requests.

mod account;
pub(crate) mod gates;
mod holding;
mod listing;
pub(crate) mod origin;
pub(crate) mod output;
mod queued;
mod replica;
mod subscriptions;
mod tracking;

pub(crate) use crate::collections::slab::ClientId;
use crate::diagnostics::slow::{Kept, keep_arguments};
pub(crate) use account::Account;
pub(crate) use commands::Listening;
use commands::users::{DEFAULT, User};
use gates::{Gate, Gates};
use kv::SharedBytes;
use kv::{Reply, ReplyBuffer, Version};
pub(crate) use listing::client_number;
use output::Output;
use protocol::Ticket;
pub(crate) use queued::{Gathered, ITEM_BYTES, Item, Pending};
pub(crate) use replica::ReplicaWishes;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
pub(crate) use subscriptions::Subscriptions;
pub(crate) use tracking::{TrackingChoice, TrackingMode};
use wire::resp::reply::{Protocol, write_reply};
use wire::resp::{Arguments, ArgumentsBuffer};

/// The maximum number of requests of one client that may wait for their outcomes.
const PENDING_MAX: usize = 10_000;

/// The initial limit, before the size of this client's replies is known. Each reply raises it by one, so it doubles
/// with each round of replies.
const PENDING_FIRST: usize = 256;

/// The lowest limit, however large the replies are, so that large ones still come in batches.
const PENDING_MIN: usize = 16;

/// The most bytes that the replies of a client's waiting requests may have, estimated from its latest replies. The
/// reply of a waiting request cannot be refused when it comes: without this limit, ten thousand small GETs of large
/// values, an everyday load, bring gigabytes to a node that cannot know whether the client reads any of it. The limit
/// does not stop a hostile client: one that requests large values after thousands of small replies gets one window of
/// them.
const PENDING_BYTES: usize = 8 << 20;

/// The most bytes of one client's requests that may wait for their outcomes, though a single request may have more.
/// This slows down several clients that never stop writing: with twice as much, three of them reached the limit of what
/// may wait for a group, and were refused.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// The most work of one client's long requests that may wait for outcomes before no more are taken, in nanoseconds:
/// other clients are served in between.
const WAITING_NS_MAX: u64 = 5_000_000;

/// From this much work on, in nanoseconds as estimated, a request is worth a reading of the clock when it is done.
const LONG_NS: u64 = 100_000;

/// The most bytes of replies that may wait for one client before its next requests are read.
const OUTPUT_BYTES_SOFT: usize = 1 << 20;

/// What is at the other end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// A client that speaks RESP.
    Resp {
        /// The client's address and port.
        address: String,
        /// The address and port that the client connected to.
        local_address: String,
        /// The socket's descriptor, as `CLIENT LIST` shows it.
        fd: i32,
        /// What is known of it by TLS; `None` for a plain connection.
        tls: Option<TlsClient>,
    },
    /// A part of the server, such as HTTP: it gets replies in `kv`'s encoding.
    Internal,
}

/// A client that uses TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsClient {
    /// The common name in the client's certificate, which was issued by an authority of the node's configuration.
    /// `None` if the client has shown no certificate, or one without a name.
    pub certificate_name: Option<String>,
}

#[derive(Debug)]
pub(crate) enum SessionReply<'a> {
    /// In `kv`'s encoding.
    Encoded(&'a [u8]),
    /// In the same encoding, and so long that it is not copied as a whole.
    Long(SharedBytes),
    /// A byte string.
    Value(SharedBytes),
}

impl SessionReply<'_> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            SessionReply::Encoded(encoded) => encoded.len(),
            SessionReply::Long(bytes) | SessionReply::Value(bytes) => bytes.len(),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, SessionReply::Encoded(encoded) if ReplyBuffer::is_error(encoded))
    }

    /// Whether it confirms a subscription, and so is like a message.
    fn is_push(&self) -> bool {
        matches!(self, SessionReply::Encoded(encoded) if matches!(Reply::first(encoded), Reply::Push(_)))
    }
}

/// Which requests get their replies (`CLIENT REPLY`). What the client did not request, such as messages, is always
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    All,
    /// All but that of the request that begins next.
    AllButNext,
    None,
}

/// The place of one request's reply among those of the session. One is made for each request, so it is written field
/// by field, and read in the same way: a copy of what was just written in parts would wait for those writes.
#[derive(Debug)]
struct Slot {
    /// The reply, while it waits for an earlier one.
    kept: Option<Box<KeptReply>>,
    /// The reply is the version written instead of `OK`.
    wants_version: bool,
    /// The client does not want the reply.
    is_silent: bool,
    /// The number of the request's command.
    command: Option<usize>,
    begun_us: u64,
    /// The size of the request.
    bytes: usize,
    /// The work that the request takes, if that is long, in nanoseconds.
    work_ns: u64,
    /// How many bytes of `asked` are the request's arguments; 0: they are not kept.
    asked_bytes: u32,
}

impl Slot {
    /// Whether the request has no outcome yet.
    fn is_waiting(&self) -> bool {
        self.kept.is_none()
    }
}

/// A reply that waits for an earlier one: see [`SessionReply`].
#[derive(Debug)]
enum KeptReply {
    Encoded(Vec<u8>),
    Long(SharedBytes),
    Value(SharedBytes),
}

impl KeptReply {
    fn len(&self) -> usize {
        match self {
            KeptReply::Encoded(encoded) => encoded.len(),
            KeptReply::Long(bytes) | KeptReply::Value(bytes) => bytes.len(),
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<KeptReply>()
            + match self {
                KeptReply::Encoded(encoded) => encoded.capacity(),
                KeptReply::Long(shared) | KeptReply::Value(shared) => shared.share_bytes(),
            }
    }
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The number of its command; `None` for requests that no client has sent.
    pub(crate) command: Option<usize>,
    /// When it was read, in microseconds of the monotonic clock.
    pub(crate) at_us: u64,
    /// Its own work takes long.
    pub(crate) is_long: bool,
}

/// How thoroughly a client's requests are checked before they are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The client may do everything.
    Free,
    /// The client may do what its user may.
    Limited,
    /// The client has to authenticate first.
    Unauthenticated,
}

#[derive(Debug)]
pub(crate) struct Session {
    id: ClientId,
    kind: ClientKind,
    name: Vec<u8>,
    library_name: Vec<u8>,
    library_version: Vec<u8>,
    protocol: Protocol,
    /// The number of the database that the client has selected.
    pub(crate) database: u8,
    replies: Replies,
    /// How thoroughly the client's requests are checked.
    standing: Standing,
    /// The client's user; `None` before authentication, and for parts of the server that act for no user.
    user: Option<Rc<User>>,
    /// The address of the client on whose behalf a part of the server acts.
    asked_from: Option<IpAddr>,
    created_us: u64,
    /// The session's number in the order of arrival among all sessions of this node: many arrive in one turn.
    arrival: u64,
    active_us: u64,
    requests: u64,
    /// The number of the client's latest command.
    last_command: Option<usize>,
    /// A name for the last command of a part of the server, which is not in the command table.
    internal_name: &'static str,
    no_evict: bool,
    no_touch: bool,
    output: Output,
    /// Groups that this client has written to, acknowledged or not, in ascending order, each with the newest write that
    /// was acknowledged, or 0.
    written: Vec<(u16, Version)>,
    slots: VecDeque<Slot>,
    /// The arguments of the requests in `slots`, in their order: those of slow requests are logged.
    asked: Kept,
    /// What this client has watched and queued; `None` for nearly all clients.
    pub(crate) transaction: Option<Box<Gathered>>,
    /// The number of the client's current transaction.
    generation: u64,
    /// Requests whose reply is made from their outcome, in order.
    pending: VecDeque<(u64, Pending)>,
    /// The request of this client that waits for a lock or for elements: no more requests are taken from it until that wait ends.
    pub(crate) wait: Option<u64>,
    /// A request that a pause holds: no more requests are taken from the client until the pause is over.
    held_back: Option<Box<ArgumentsBuffer>>,
    /// Bytes of the client's input that are not taken yet, and room for more, as the driver last reported.
    input_bytes: (usize, usize),
    /// The channels that the client subscribes to; `None` for nearly all clients.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// How the client caches what it reads; `None` for nearly all clients.
    pub(crate) tracking: Option<Box<TrackingChoice>>,
    /// How many readers of changes the client has.
    pub(crate) readers: u16,
    /// What the client has said of itself as a replica of Redis, and whether it is one.
    pub(crate) replica: ReplicaWishes,
    /// Channel messages stay after the replies of requests before this one.
    messages_held_until: u64,
    /// How many of `pending` request the versions of watched keys.
    versions_awaited: usize,
    /// The size of the request that is being taken.
    request_bytes: usize,
    /// The work of the request that is being taken, if that is long, and of those in `slots`, in nanoseconds.
    request_ns: u64,
    waiting_ns: u64,
    /// How much of `waiting_ns` the node has counted.
    counted_ns: u64,
    /// What the client has used of the node's time lately.
    account: Account,
    /// Bytes of the requests in `slots`, and how many of these bytes the node has counted.
    waiting_bytes: usize,
    counted_bytes: usize,
    /// Bytes of the replies in `slots` that wait for an earlier one.
    kept_bytes: usize,
    /// The number of the first request in `slots`.
    first: u64,
    /// How many requests may wait, as computed from the replies so far.
    window: usize,
    /// The size of this client's replies, in bytes: the largest of the recent ones.
    reply_bytes: usize,
    /// No more input is taken before this request has its reply.
    gate: u64,
    /// Whether the session is in the node's list of ready clients.
    listed: bool,
    closing: bool,
}

impl Session {
    /// The session of a new client. A part of the server acts for no user, and may do everything.
    pub(crate) fn new(id: ClientId, kind: ClientKind, user: Option<Rc<User>>, now_us: u64) -> Session {
        let standing = if kind == ClientKind::Internal { Standing::Free } else { Standing::Unauthenticated };
        let mut session = Session {
            id,
            kind,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            protocol: Protocol::Resp2,
            database: 0,
            replies: Replies::All,
            standing,
            user: None,
            asked_from: None,
            created_us: now_us,
            arrival: 0,
            active_us: now_us,
            requests: 0,
            last_command: None,
            internal_name: "",
            no_evict: false,
            no_touch: false,
            output: Output::default(),
            written: Vec::new(),
            slots: VecDeque::new(),
            asked: Kept::default(),
            transaction: None,
            generation: 0,
            pending: VecDeque::new(),
            wait: None,
            held_back: None,
            input_bytes: (0, 0),
            subscriptions: None,
            tracking: None,
            readers: 0,
            replica: ReplicaWishes::default(),
            messages_held_until: 0,
            versions_awaited: 0,
            request_bytes: 0,
            request_ns: 0,
            waiting_ns: 0,
            counted_ns: 0,
            account: Account::default(),
            waiting_bytes: 0,
            counted_bytes: 0,
            kept_bytes: 0,
            first: 0,
            window: PENDING_FIRST,
            reply_bytes: 0,
            gate: 0,
            listed: false,
            closing: false,
        };
        if user.is_some() {
            session.become_user(user);
        }
        session
    }

    /// Sets the session's number in the order of arrival.
    pub(crate) fn number_arrival(&mut self, arrival: u64) {
        self.arrival = arrival;
    }

    /// The session's number in the order of arrival.
    pub(crate) fn arrival(&self) -> u64 {
        self.arrival
    }

    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    pub(crate) fn kind(&self) -> &ClientKind {
        &self.kind
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Notes a request that is being taken, and its size.
    #[inline]
    pub(crate) fn take_request(&mut self, bytes: usize, now_us: u64) {
        self.requests += 1;
        self.request_bytes = bytes;
        self.active_us = now_us;
    }

    /// Notes the work of the request that is being taken, if that is long, in nanoseconds.
    #[inline]
    pub(crate) fn expect_work(&mut self, work_ns: u64) {
        self.request_ns = work_ns;
    }

    /// Sets the number of the client's latest command; `None`: it is no call, and has no time.
    #[inline]
    pub(crate) fn set_command(&mut self, number: Option<usize>) {
        self.last_command = number;
    }

    /// The latest command is one of a part of the server, which is not in the command table.
    pub(crate) fn set_internal_command(&mut self, name: &'static str) {
        (self.last_command, self.internal_name) = (None, name);
    }

    /// Whether the client has sent a request since a moment, and takes part in nothing that is to be ended first.
    pub(crate) fn may_be_closed(&self, active_since_us: u64) -> bool {
        self.active_us >= active_since_us && !self.closing && self.transaction.is_none()
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Notes that the session is in the node's list of ready clients. Returns whether it was not.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true)
    }

    /// The session is in the list no more.
    pub(crate) fn unlist(&mut self) {
        self.listed = false;
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    /// The bytes of requests without an outcome that the node has counted, and those that there are, which it counts now.
    #[inline]
    pub(crate) fn count_bytes(&mut self) -> (usize, usize) {
        (std::mem::replace(&mut self.counted_bytes, self.waiting_bytes), self.waiting_bytes)
    }

    /// The bytes of requests without an outcome that the node has counted.
    pub(crate) fn counted_bytes(&self) -> usize {
        self.counted_bytes
    }

    /// The work of requests without an outcome that the node has counted, and that which there is, which it counts now, in
    /// nanoseconds. `None`: it is the same.
    #[inline]
    pub(crate) fn count_work(&mut self) -> Option<(u64, u64)> {
        (self.waiting_ns != self.counted_ns)
            .then(|| (std::mem::replace(&mut self.counted_ns, self.waiting_ns), self.waiting_ns))
    }

    /// The work of requests without an outcome that the node has counted, in nanoseconds.
    pub(crate) fn counted_ns(&self) -> u64 {
        self.counted_ns
    }

    /// Charges the client for what was done for it.
    pub(crate) fn charge(&mut self, used_ns: u64, now_us: u64) {
        self.account.charge(used_ns, now_us);
    }

    /// What the client has used of the node's time lately, in nanoseconds.
    pub(crate) fn used_ns(&self, now_us: u64) -> u64 {
        self.account.used_ns(now_us)
    }

    /// The client's user; `None` before authentication, and for parts of the server that act for no user.
    pub(crate) fn user(&self) -> Option<&Rc<User>> {
        self.user.as_ref()
    }

    /// The name of the user. A client that has not authenticated has no user yet, and is shown as the default user, as in
    /// Redis.
    pub(crate) fn user_name(&self) -> &[u8] {
        self.user.as_ref().map_or(DEFAULT, |user| &user.name)
    }

    /// How thoroughly the client's requests are checked.
    #[inline]
    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    /// From now on the client is this user; `None`: it is unauthenticated.
    pub(crate) fn become_user(&mut self, user: Option<Rc<User>>) {
        self.standing = match &user {
            Some(user) if user.is_free() => Standing::Free,
            Some(_) => Standing::Limited,
            None => Standing::Unauthenticated,
        };
        self.user = user;
    }

    /// From now on a part of the server acts for no user, and may do everything.
    pub(crate) fn become_server(&mut self) {
        (self.standing, self.user) = (Standing::Free, None);
    }

    /// Whether the client need not authenticate.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.standing != Standing::Unauthenticated
    }

    /// Returns to the state of a new connection (`RESET`), except for what the client has written and seen.
    pub(crate) fn reset(&mut self, user: Option<Rc<User>>) {
        self.name.clear();
        self.protocol = Protocol::Resp2;
        self.database = 0;
        self.replies = Replies::All;
        self.become_user(user);
        self.no_evict = false;
        self.no_touch = false;
        self.end_transaction();
    }

    /// Chooses which requests get their replies from now on. Returns whether this one gets one.
    pub(crate) fn choose_replies(&mut self, replies: Replies) -> bool {
        let skips_nothing = (replies, self.replies) == (Replies::AllButNext, Replies::None);
        self.replies = if skips_nothing { Replies::None } else { replies };
        replies == Replies::All
    }

    /// The gates that the session closes for its requests.
    #[inline]
    pub(crate) fn gates(&self) -> Gates {
        let mut gates = Gates::default();
        gates.set(Gate::Rights, self.standing != Standing::Free);
        gates.set(Gate::Listening, self.subscriptions.is_some());
        gates.set(Gate::Database, self.database != 0);
        gates
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.kind == ClientKind::Internal
    }

    /// Takes no further requests, and closes the connection once the replies so far are written.
    pub(crate) fn close_after_replies(&mut self) {
        self.closing = true;
        self.output.close = self.slots.is_empty();
    }

    /// Whether earlier requests have no outcome yet.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether this request is the only one without a reply.
    pub(crate) fn waits_only_for(&self, sequence: u64) -> bool {
        self.slots.len() == 1 && self.first == sequence
    }

    /// Whether more of the client's input may be read.
    #[inline(always)]
    pub(crate) fn wants_input(&self) -> bool {
        !self.closing
            && self.slots.len() < self.pending_max()
            && self.output_bytes() < OUTPUT_BYTES_SOFT
            && self.waiting_bytes < WAITING_BYTES_MAX
            && self.waiting_ns < WAITING_NS_MAX
            && !self.is_awaiting_versions()
            && self.wait.is_none()
            && self.held_back.is_none()
            && self.first >= self.gate
    }

    /// Stops input after the request that begins next, until that request has its reply.
    pub(crate) fn close_gate(&mut self) {
        self.gate = self.first + self.slots.len() as u64 + 1;
    }

    /// Stops input until the requests that have begun have their replies.
    pub(crate) fn close_gate_now(&mut self) {
        self.gate = self.first + self.slots.len() as u64;
    }

    /// Whether requests have begun after this one.
    pub(crate) fn has_later(&self, sequence: u64) -> bool {
        self.first + self.slots.len() as u64 > sequence + 1
    }

    /// A request that waits for its reply.
    #[inline]
    pub(crate) fn begun(&self, sequence: u64) -> Option<Begun> {
        let slot = self.slots.get(sequence.checked_sub(self.first)? as usize)?;
        Some(Begun { command: slot.command, at_us: slot.begun_us, is_long: slot.work_ns >= LONG_NS })
    }

    #[inline]
    fn pending_max(&self) -> usize {
        if self.reply_bytes <= PENDING_BYTES / PENDING_MAX {
            self.window
        } else {
            self.window.min((PENDING_BYTES / self.reply_bytes).max(PENDING_MIN))
        }
    }

    /// Notes how the reply is made from the outcome of the request that begins next.
    pub(crate) fn expect(&mut self, pending: Pending) {
        self.versions_awaited += usize::from(matches!(pending, Pending::Watch { .. }));
        self.pending.push_back((self.first + self.slots.len() as u64, pending));
    }

    /// Takes out how the reply is made from the outcome of a request; `None`: the outcome has the reply.
    #[inline]
    pub(crate) fn take_pending(&mut self, sequence: u64) -> Option<Pending> {
        if self.pending.is_empty() {
            return None;
        }
        let place = self.pending.iter().position(|(expected, _)| *expected == sequence)?;
        let (_, pending) = self.pending.remove(place)?;
        self.versions_awaited -= usize::from(matches!(pending, Pending::Watch { .. }));
        Some(pending)
    }

    /// Whether the reply of any request has to be made from its outcome.
    #[inline]
    pub(crate) fn has_any_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the reply of a request has to be made from its outcome.
    pub(crate) fn has_pending(&self, sequence: u64) -> bool {
        self.pending.iter().any(|(expected, _)| *expected == sequence)
    }

    /// Whether the versions of watched keys have not arrived yet.
    pub(crate) fn is_awaiting_versions(&self) -> bool {
        self.versions_awaited > 0
    }

    /// The client's address; `None` for a part of the server.
    pub(crate) fn ip_address(&self) -> Option<IpAddr> {
        match &self.kind {
            ClientKind::Resp { address, .. } => address.parse().map(|address: SocketAddr| address.ip()).ok(),
            ClientKind::Internal => None,
        }
    }

    /// The name of the command that was taken last.
    pub(crate) fn command_name(&self) -> &'static str {
        self.last_command.and_then(commands::by_number).map_or(self.internal_name, |spec| spec.name)
    }

    /// Makes a place for the reply of a request that begins now.
    #[inline]
    pub(crate) fn begin(&mut self, wants_version: bool) -> Ticket {
        let ticket = Ticket { client: self.id.to_bits(), sequence: self.first + self.slots.len() as u64 };
        let bytes = std::mem::take(&mut self.request_bytes);
        let work_ns = std::mem::take(&mut self.request_ns);
        self.waiting_bytes += bytes;
        self.waiting_ns += work_ns;
        let (command, begun_us) = (self.last_command, self.active_us);
        let is_silent = self.replies != Replies::All;
        if self.replies == Replies::AllButNext {
            self.replies = Replies::All;
        }
        let (kept, asked_bytes) = (None, 0);
        self.slots.push_back(Slot {
            kept,
            wants_version,
            is_silent,
            command,
            begun_us,
            bytes,
            work_ns,
            asked_bytes,
        });
        ticket
    }

    /// Takes the reply of a request: writes it if it is the next in order, else keeps it until it is. Returns the
    /// number of the command.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        sequence: u64,
        version: Option<Version>,
        reply: SessionReply<'_>,
    ) -> Option<usize> {
        self.window = PENDING_MAX.min(self.window + 1);
        self.reply_bytes = reply.len().max(self.reply_bytes - self.reply_bytes / 64);
        let place = (sequence - self.first) as usize;
        let slot = &self.slots[place];
        assert!(slot.is_waiting(), "a request has one outcome");
        let command = slot.command;
        self.waiting_bytes -= slot.bytes;
        self.waiting_ns -= slot.work_ns;
        match reply {
            SessionReply::Encoded(encoded) if place == 0 && !slot.wants_version && !slot.is_silent => {
                self.pop_slot();
                self.write(encoded);
            }
            reply => self.complete_specially(place, version, reply),
        }
        while self.slots.front().is_some_and(|slot| !slot.is_waiting())
            && let Some(Some(reply)) = self.pop_slot()
        {
            self.kept_bytes -= reply.len();
            match *reply {
                KeptReply::Encoded(encoded) => self.write(&encoded),
                KeptReply::Long(encoded) => self.write_long(&encoded),
                KeptReply::Value(value) => self.output.push_value(value),
            }
        }
        self.output.close = self.closing && self.slots.is_empty();
        command
    }

    /// Takes the reply of the request at a place that is not the next one, or a reply that is not written unchanged.
    fn complete_specially(&mut self, place: usize, version: Option<Version>, reply: SessionReply<'_>) {
        let slot = &mut self.slots[place];
        let mut integer;
        let is_written = match &reply {
            SessionReply::Encoded(encoded) => slot.wants_version && Reply::first(encoded) == Reply::Ok,
            SessionReply::Long(_) | SessionReply::Value(_) => false,
        };
        let reply = match version {
            Some(version) if is_written => {
                integer = ReplyBuffer::new();
                integer.integer(version as i64);
                SessionReply::Encoded(integer.as_bytes())
            }
            _ if slot.is_silent && !reply.is_push() => SessionReply::Encoded(&[]),
            _ => reply,
        };
        if place > 0 {
            self.kept_bytes += reply.len();
            slot.kept = Some(Box::new(match reply {
                SessionReply::Encoded(encoded) => KeptReply::Encoded(encoded.to_vec()),
                SessionReply::Long(encoded) => KeptReply::Long(encoded),
                SessionReply::Value(value) => KeptReply::Value(value),
            }));
            return;
        }
        self.pop_slot();
        match reply {
            SessionReply::Encoded(encoded) => self.write(encoded),
            SessionReply::Long(encoded) => self.write_long(&encoded),
            SessionReply::Value(value) => self.output.push_value(value),
        }
    }

    /// Removes the first slot, and what is kept for it. Returns its reply if that waited; `None`: there is no slot.
    #[inline]
    fn pop_slot(&mut self) -> Option<Option<Box<KeptReply>>> {
        let Slot { kept, asked_bytes, .. } = self.slots.pop_front()?;
        self.first += 1;
        if asked_bytes > 0 {
            self.asked.remove(asked_bytes as usize);
        }
        Some(kept)
    }

    /// Keeps the arguments of the request that was taken last, if it waits for its outcome.
    #[inline]
    pub(crate) fn keep_arguments(
        &mut self,
        arguments: Arguments<'_>,
        is_secret: Option<&dyn Fn(usize) -> bool>,
    ) {
        if let Some(slot) = self.slots.back_mut()
            && slot.is_waiting()
            && slot.asked_bytes == 0
        {
            slot.asked_bytes = self.asked.push(|out| keep_arguments(arguments, is_secret, out)) as u32;
        }
    }

    /// The arguments of a request that waits for its reply; empty if they were not kept.
    pub(crate) fn asked(&self, sequence: u64) -> Vec<u8> {
        let Some(place) = sequence.checked_sub(self.first) else { return Vec::new() };
        let before: usize =
            self.slots.iter().take(place as usize).map(|slot| slot.asked_bytes as usize).sum();
        let bytes = self.slots.get(place as usize).map_or(0, |slot| slot.asked_bytes as usize);
        self.asked.part(before, bytes).to_vec()
    }

    /// Holds channel messages until the request that begins next is confirmed.
    pub(crate) fn hold_messages(&mut self) {
        self.messages_held_until = self.first + self.slots.len() as u64 + 1;
    }

    /// Writes a message that the client did not request, as early as possible: in RESP3 between any two replies, but
    /// after the confirmation of its subscription; in RESP2, where it would be taken for a reply, after all outstanding
    /// replies.
    pub(crate) fn push(&mut self, encoded: &[u8]) {
        let may_overtake = self.protocol == Protocol::Resp3 && self.first >= self.messages_held_until;
        if self.slots.is_empty() || may_overtake {
            return self.write(encoded);
        }
        self.slots.push_back(Slot {
            kept: Some(Box::new(KeptReply::Encoded(encoded.to_vec()))),
            wants_version: false,
            is_silent: false,
            command: None,
            begun_us: self.active_us,
            bytes: 0,
            work_ns: 0,
            asked_bytes: 0,
        });
        self.kept_bytes += encoded.len();
    }

    #[inline]
    fn write(&mut self, encoded: &[u8]) {
        if self.is_internal() {
            self.output.bytes.extend_from_slice(encoded);
        } else {
            write_reply(encoded, self.protocol, self.output.end())
                .expect("the node wrote this reply, or checked it when a peer sent it");
        }
    }

    /// Writes a long reply, which is translated as the client takes it.
    fn write_long(&mut self, reply: &SharedBytes) {
        if self.is_internal() {
            return self.write(reply);
        }
        self.output.push_encoded(reply.clone(), self.protocol);
    }

    /// The client's newest acknowledged write in a group; 0 if there is none.
    #[inline]
    pub(crate) fn seen(&self, group: u16) -> Version {
        match self.written.as_slice() {
            [] => 0,
            written => written.binary_search_by_key(&group, |(id, _)| *id).map_or(0, |at| written[at].1),
        }
    }

    /// Notes that a write of this client was acknowledged.
    #[inline]
    pub(crate) fn saw(&mut self, group: u16, offset: Version) {
        let seen = self.place_of(group);
        *seen = (*seen).max(offset);
    }

    /// Notes that this client writes to a group.
    #[inline]
    pub(crate) fn wrote(&mut self, group: u16) {
        self.place_of(group);
    }

    #[inline]
    fn place_of(&mut self, group: u16) -> &mut Version {
        // Most clients write to one group.
        let at = match self.written[..] {
            [(only, _)] if only == group => 0,
            _ => self.place_among_groups(group),
        };
        &mut self.written[at].1
    }

    fn place_among_groups(&mut self, group: u16) -> usize {
        match self.written.binary_search_by_key(&group, |(id, _)| *id) {
            Ok(at) => at,
            Err(at) => {
                self.written.insert(at, (group, 0));
                at
            }
        }
    }

    /// The groups that this client has written to.
    pub(crate) fn written(&self) -> impl Iterator<Item = u16> {
        self.written.iter().map(|(group, _)| *group)
    }

    /// The approximate memory of this session: replies, what it has queued and watches, subscriptions, and names.
    /// Memory that is shared with others counts by its share.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kept = |slot: &Slot| slot.kept.as_ref().map_or(0, |reply| reply.memory_bytes());
        let kept: usize = if self.kept_bytes == 0 { 0 } else { self.slots.iter().map(kept).sum() };
        let gathered = self.transaction.as_ref().map_or(0, |gathered| gathered.memory_bytes());
        let subscriptions =
            self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.memory_bytes());
        let names = self.name.len() + self.library_name.len() + self.library_version.len();
        let slots = self.slots.capacity() * size_of::<Slot>() + self.asked.memory_bytes();
        let held_back =
            self.held_back.as_ref().map_or(0, |held| held.as_arguments().iter().map(<[u8]>::len).sum());
        size_of::<Session>()
            + slots
            + held_back
            + self.output.memory_bytes()
            + kept
            + gathered
            + subscriptions
            + names
    }

    /// Bytes of the replies that this session holds.
    #[inline(always)]
    pub(crate) fn output_bytes(&self) -> usize {
        self.output.len() + self.kept_bytes
    }

    /// Checks that what the session counts is what it holds, between two turns. O(requests that wait).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self) {
        let waiting = || self.slots.iter().filter(|slot| slot.is_waiting());
        let bytes: usize = waiting().map(|slot| slot.bytes).sum();
        let work_ns: u64 = waiting().map(|slot| slot.work_ns).sum();
        assert_eq!((self.waiting_bytes, self.waiting_ns), (bytes, work_ns), "requests without an outcome");
        assert_eq!((self.counted_bytes, self.counted_ns), (bytes, work_ns), "the node counts what waits");
        let kept = self.slots.iter().filter_map(|slot| slot.kept.as_ref());
        let kept_bytes: usize = kept.map(|reply| reply.len()).sum();
        assert_eq!(self.kept_bytes, kept_bytes, "replies that wait for an earlier one");
        let asked: usize = self.slots.iter().map(|slot| slot.asked_bytes as usize).sum();
        assert_eq!(self.asked.len(), asked, "arguments are kept of requests that wait for their replies");
        assert!(
            self.slots.front().is_none_or(Slot::is_waiting),
            "the next reply is written when it is there"
        );
        let watches = self.pending.iter().filter(|(_, pending)| matches!(pending, Pending::Watch { .. }));
        assert_eq!(self.versions_awaited, watches.count(), "versions of watched keys are awaited");
        assert!(
            self.pending.iter().is_sorted_by_key(|(sequence, _)| sequence),
            "requests are in their order"
        );
        let begun = self.first..self.first + self.slots.len() as u64;
        assert!(
            self.pending.iter().all(|(sequence, _)| begun.contains(sequence)),
            "a reply is made for no request"
        );
        assert!(self.written.is_sorted_by_key(|(group, _)| group), "groups are looked up by halving");
        assert_eq!(self.output.close, self.closing && self.slots.is_empty(), "closed after the last reply");
        let is_free = self.user.as_ref().map(|user| user.is_free());
        let may = match self.standing {
            Standing::Free => is_free != Some(false),
            Standing::Limited => is_free == Some(false),
            Standing::Unauthenticated => is_free.is_none(),
        };
        assert!(may, "a client may do what its user may");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use output::OUTPUT_CHUNK_BYTES;
    /// Begins requests until the session wants no more, and returns how many.
    fn fill(session: &mut Session) -> usize {
        let before = session.slots.len();
        while session.wants_input() {
            session.begin(false);
        }
        session.slots.len() - before
    }

    /// Answers all waiting requests, and takes the replies like a client that reads them.
    fn answer_all(session: &mut Session, bytes: usize) {
        let mut reply = ReplyBuffer::default();
        reply.bulk(&vec![b'v'; bytes]);
        for _ in 0..session.slots.len() {
            session.complete(session.first, None, SessionReply::Encoded(reply.as_bytes()));
            session.output.bytes.clear();
        }
    }

    #[test]
    fn more_requests_may_wait_if_their_replies_are_small() {
        let id = ClientId::from_bits(0);
        let kind = ClientKind::Internal;
        let mut session = Session::new(id, kind, None, 0);
        let mut rounds = Vec::new();
        for bytes in [10, 10, 10, 100_000, 100_000, 10_000_000, 10_000_000] {
            rounds.push(fill(&mut session));
            answer_all(&mut session, bytes);
        }
        assert_eq!(
            rounds,
            [256, 512, 1024, 2048, 83, 83, PENDING_MIN],
            "it doubles, until replies are large"
        );
        for _ in 0..200 {
            fill(&mut session);
            answer_all(&mut session, 10);
        }
        assert_eq!(fill(&mut session), PENDING_MAX, "large replies of long ago do not count");
    }

    /// Reads all output like a client. Returns it, and the most that was ever available to the client at once.
    fn read_all(session: &mut Session) -> (Vec<u8>, usize) {
        let (mut read, mut most) = (Vec::new(), 0);
        loop {
            let output = session.output.filled();
            most = most.max(output.bytes.len());
            read.append(&mut output.bytes);
            if output.is_written() {
                return (read, most);
            }
        }
    }

    /// The same for a client whose socket takes `at_a_time` bytes at a time, and large values without a copy.
    fn read_in_parts(session: &mut Session, at_a_time: usize) -> Vec<u8> {
        let mut read = Vec::new();
        while !session.output.is_written() {
            let (bytes, behind) = session.output.parts();
            let of_bytes = at_a_time.min(bytes.len());
            read.extend(bytes.drain(..of_bytes));
            let rest = behind.unwrap_or_default().concat();
            let of_rest = (at_a_time - of_bytes).min(rest.len());
            read.extend_from_slice(&rest[..of_rest]);
            session.output.written_behind(of_rest);
        }
        read
    }

    #[test]
    fn a_large_value_is_written_piece_by_piece_in_its_place_among_the_replies() {
        let mut session = Session::new(ClientId::from_bits(0), ClientKind::Internal, None, 0);
        session.kind =
            ClientKind::Resp { address: String::new(), local_address: String::new(), fd: 0, tls: None };
        let mut ok = ReplyBuffer::default();
        ok.ok();
        let value = SharedBytes::from(vec![b'v'; 3 * OUTPUT_CHUNK_BYTES + 5]);
        let answer = |session: &mut Session, first: u64| {
            for _ in 0..5 {
                session.begin(false);
            }
            // The second and the fourth reply are large; a reply that is complete before its turn waits for it.
            for sequence in [1, 0, 2, 4, 3] {
                let reply = match sequence {
                    1 | 3 => SessionReply::Value(value.clone()),
                    _ => SessionReply::Encoded(ok.as_bytes()),
                };
                session.complete(first + sequence, None, reply);
            }
        };
        let bulk = [format!("${}\r\n", value.len()).as_bytes(), &value[..], b"\r\n"].concat();
        let expected = [b"+OK\r\n", &bulk[..], b"+OK\r\n", &bulk[..], b"+OK\r\n"].concat();
        for (times, at_a_time) in (0..).zip([1000, OUTPUT_CHUNK_BYTES - 1, OUTPUT_CHUNK_BYTES, usize::MAX]) {
            answer(&mut session, 5 * times);
            assert!(read_in_parts(&mut session, at_a_time) == expected, "{at_a_time} bytes at a time");
        }
        answer(&mut session, 20);
        assert!(!session.wants_input(), "replies wait to be read");
        session.close_after_replies();
        assert!(!session.output.is_over());
        let (read, most) = read_all(&mut session);
        assert!(read == expected);
        assert!(most <= 2 * OUTPUT_CHUNK_BYTES, "{most} bytes at once");
        assert!(session.output.is_over() && session.output_bytes() == 0);
    }

    #[test]
    fn a_long_reply_is_written_as_any_other_and_large_values_in_it_stay_where_they_are() {
        let mut reply = ReplyBuffer::default();
        let large = [vec![b'a'; OUTPUT_CHUNK_BYTES], vec![b'b'; 2 * OUTPUT_CHUNK_BYTES]];
        reply.map(2);
        reply.bulk(b"field");
        reply.bulk(&large[0]);
        reply.array(3);
        reply.null();
        reply.bulk(&large[1]);
        reply.integer(7);
        reply.ok();
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            for is_kept in [false, true] {
                let mut session = Session::new(ClientId::from_bits(0), ClientKind::Internal, None, 0);
                session.kind = ClientKind::Resp {
                    address: String::new(),
                    local_address: String::new(),
                    fd: 0,
                    tls: None,
                };
                session.protocol = protocol;
                let mut expected = Vec::new();
                write_reply(reply.as_bytes(), protocol, &mut expected).expect("a whole reply");
                let long = SharedBytes::from(reply.as_bytes().to_vec());
                let mut ok = ReplyBuffer::default();
                ok.ok();
                let ok = || SessionReply::Encoded(ok.as_bytes());
                (0..3).for_each(|_| _ = session.begin(false));
                let places = if is_kept { [1, 2, 0] } else { [0, 1, 2] };
                for place in places {
                    let is_long = place == 1;
                    session.complete(
                        place,
                        None,
                        if is_long { SessionReply::Long(long.clone()) } else { ok() },
                    );
                }
                assert!(session.output.bytes.len() < 100, "{} bytes were copied", session.output.bytes.len());
                let (read, most) = read_all(&mut session);
                assert!(read == [b"+OK\r\n", &expected[..], b"+OK\r\n"].concat(), "{protocol:?}");
                assert!(most <= 2 * OUTPUT_CHUNK_BYTES, "{most} bytes at once");
                assert_eq!(session.output_bytes(), 0);
            }
        }
    }
}
