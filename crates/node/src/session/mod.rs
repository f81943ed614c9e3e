//! A client's session: its name and settings, and its replies in the order of its requests.
//!
//! Reading order: this file (what a session is), [`replies`] (from a request's beginning to its reply),
//! [`window`] (when more requests are taken), [`rights`], [`writes`]; then what few clients have.

mod account;
pub(crate) mod gates;
mod holding;
mod listing;
pub(crate) mod origin;
pub(crate) mod output;
mod queued;
mod replica;
mod replies;
mod rights;
mod subscriptions;
mod tracking;
mod window;
mod writes;

pub(crate) use crate::collections::slab::ClientId;
use crate::diagnostics::slow::Kept;
pub(crate) use account::Account;
pub(crate) use commands::Listening;
use commands::users::User;
use gates::{Gate, Gates};
use kv::Version;
pub(crate) use listing::client_number;
use output::Output;
pub(crate) use queued::{Gathered, ITEM_BYTES, Item, Pending};
pub(crate) use replica::ReplicaWishes;
use replies::Slot;
pub(crate) use replies::{Begun, Replies, SessionReply};
pub(crate) use rights::Standing;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
pub(crate) use subscriptions::Subscriptions;
pub(crate) use tracking::{TrackingChoice, TrackingMode};
use window::PENDING_FIRST;
use wire::resp::ArgumentsBuffer;
use wire::resp::reply::Protocol;

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
    /// The common name in the client's certificate, which was issued by an authority of the node's
    /// configuration. `None` if the client has shown no certificate, or one without a name.
    pub certificate_name: Option<String>,
}

/// A client's session.
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
    /// Bytes that the client has sent, as the driver last reported.
    received_bytes: u64,
    /// The number of the client's latest command.
    last_command: Option<usize>,
    /// A name for the last command of a part of the server, which is not in the command table.
    internal_name: &'static str,
    no_evict: bool,
    no_touch: bool,
    read_only: bool,
    /// The client can be told to go to another node.
    understands_redirections: bool,
    output: Output,
    /// Groups that this client has written to, acknowledged or not, in ascending order, each with the newest
    /// write that was acknowledged, or 0.
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
    /// The request of this client that waits for a lock or for elements: no more requests are taken from it
    /// until that wait ends.
    pub(crate) wait: Option<u64>,
    /// Requests over several groups have no reply yet. Others wait for these, but for those that join them.
    pub(crate) divides: bool,
    /// A request that waits before it is taken: no more are taken from the client until then.
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
    /// How many messages had to wait for replies, and so have taken numbers of requests.
    messages: u64,
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
    /// Bytes that reads under way over several turns have taken so far.
    reading_bytes: usize,
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
    /// When the input that is being taken had arrived; `None`: just now.
    arrived_us: Option<u64>,
    /// When a request of this client last ended without being carried out, as far as is known.
    failed_us: u64,
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
            received_bytes: 0,
            last_command: None,
            internal_name: "",
            no_evict: false,
            no_touch: false,
            read_only: false,
            understands_redirections: false,
            output: Output::default(),
            written: Vec::new(),
            slots: VecDeque::new(),
            asked: Kept::default(),
            transaction: None,
            generation: 0,
            pending: VecDeque::new(),
            wait: None,
            divides: false,
            held_back: None,
            input_bytes: (0, 0),
            subscriptions: None,
            tracking: None,
            readers: 0,
            replica: ReplicaWishes::default(),
            messages: 0,
            messages_held_until: 0,
            versions_awaited: 0,
            request_bytes: 0,
            request_ns: 0,
            waiting_ns: 0,
            counted_ns: 0,
            account: Account::default(),
            waiting_bytes: 0,
            counted_bytes: 0,
            reading_bytes: 0,
            kept_bytes: 0,
            first: 0,
            window: PENDING_FIRST,
            reply_bytes: 0,
            gate: 0,
            arrived_us: None,
            failed_us: 0,
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

    /// Notes how many bytes the client has sent so far.
    #[inline]
    pub(crate) fn note_received(&mut self, bytes: u64) {
        self.received_bytes = bytes;
    }

    /// Notes a request that is being taken, and its size.
    #[inline]
    pub(crate) fn take_request(&mut self, bytes: usize, now_us: u64) {
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

    /// Whether the latest request was taken as a command of clients.
    pub(crate) fn has_taken_command(&self) -> bool {
        self.last_command.is_some() && !self.is_internal()
    }

    /// The latest command is one of a part of the server, which is not in the command table.
    pub(crate) fn set_internal_command(&mut self, name: &'static str) {
        (self.last_command, self.internal_name) = (None, name);
    }

    /// Whether the client has sent a request since a moment, and takes part in nothing that is to be ended
    /// first.
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

    /// Charges the client for what was done for it.
    pub(crate) fn charge(&mut self, used_ns: u64, now_us: u64) {
        self.account.charge(used_ns, now_us);
    }

    /// What the client has used of the node's time lately, in nanoseconds.
    pub(crate) fn used_ns(&self, now_us: u64) -> u64 {
        self.account.used_ns(now_us)
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
        self.read_only = false;
        self.end_transaction();
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

    #[inline]
    pub(crate) fn is_internal(&self) -> bool {
        self.kind == ClientKind::Internal
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

    /// The approximate memory of this session: replies, what it has queued and watches, subscriptions, and
    /// names. Memory that is shared with others counts by its share.
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
            + self.reading_bytes
            + gathered
            + subscriptions
            + names
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
