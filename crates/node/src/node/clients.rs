//! The clients of a node: their sessions, what they may send, and their output.

use super::Node;
use crate::context::work::MUCH_NS;
use crate::diagnostics::spans::Tracing;
use crate::parameters::request_bytes_max;
use crate::requests::databases;
use crate::session::output::Output;
use crate::session::{ClientId, ClientKind, Session};
use protocol::Now;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use wire::resp::request::{Limits, ProtocolError};
use wire::resp::{Arguments, ArgumentsBuffer};

/// On whose behalf a part of the server makes a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker<'a> {
    /// The user's name, and the address from which the user asks. `None`: the request is the server's own, and may do
    /// everything.
    pub whom: Option<(&'a [u8], IpAddr)>,
    /// The number of the database that holds the request's keys.
    pub database: u8,
    /// Whether it is traced.
    pub tracing: Tracing,
}

/// How a user identifies that does not come over a client's connection.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: the user is the default user, if that needs no password.
    Nothing,
    /// A name and a password.
    Password {
        /// The user's name.
        user: Vec<u8>,
        /// The password.
        password: Vec<u8>,
    },
    /// One of the passwords of the default user, or a password that only one other user has.
    Token(Vec<u8>),
}

/// Why credentials do not identify a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKnown {
    /// There were none, and the default user needs a password.
    Nothing,
    /// They are wrong, or the user is off.
    Wrong,
}

const USER_IS_GONE: &str = "NOAUTH the user was removed";

impl Node {
    /// Connects a client. Returns `None` if there are too many already.
    pub fn connect(&mut self, kind: ClientKind) -> Option<ClientId> {
        if self.cx.clients.sessions.len() >= self.cx.parameters.connections_max()
            && !self.close_unauthenticated()
        {
            self.cx.counters.rejected_connections += 1;
            return None;
        }
        self.cx.counters.connections += u64::from(kind != ClientKind::Internal);
        let user = self.cx.first_user(&kind);
        let now_us = self.cx.now.monotonic_us;
        Some(self.cx.clients.open(kind, user, now_us))
    }

    /// The name of the user with these credentials, for users that do not come over a client's connection.
    ///
    /// # Errors
    /// [`NotKnown`] when no user has these credentials.
    pub fn user_of(&self, credentials: &Credentials) -> Result<Vec<u8>, NotKnown> {
        let users = self.cx.access.users();
        let found = match credentials {
            Credentials::Nothing => users.at_first().ok_or(NotKnown::Nothing)?,
            Credentials::Password { user, password } => {
                Rc::clone(users.log_in(user, password).ok_or(NotKnown::Wrong)?)
            }
            Credentials::Token(token) => Rc::clone(users.log_in_by_token(token).ok_or(NotKnown::Wrong)?),
        };
        Ok(found.name.clone())
    }

    /// Whether a user may give a command.
    ///
    /// # Errors
    /// The error that a client would get.
    pub fn may(&self, user: &[u8], arguments: Arguments<'_>) -> Result<(), String> {
        let user = self.cx.access.users().find(user).ok_or(USER_IS_GONE)?;
        let found = commands::find(arguments).map_err(|error| error.to_string())?;
        user.check(found, arguments, 0).map_err(|denial| denial.error(&user.name, found.spec))
    }

    /// Takes a request that a part of the server, which has the session `client`, makes on behalf of `asker`.
    pub fn request_for(&mut self, client: ClientId, asker: Asker<'_>, arguments: Arguments<'_>) {
        let Asker { whom, database, tracing } = asker;
        let chosen = if database == 0 { Ok(0) } else { self.database_for(whom, database) };
        let user = whom.map(|(name, _)| self.cx.access.users().find(name).cloned());
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        session.acts_for(whom.map(|(_, from)| from));
        match user {
            None => session.become_server(),
            // The user was removed a moment ago: the request runs as an unauthenticated client's.
            Some(user) => session.become_user(user),
        }
        match chosen {
            Ok(number) => {
                session.database = number;
                self.cx.spans.set_next(tracing);
                self.request(client, arguments);
                // The request may have been answered without a trace.
                self.cx.spans.set_next(Tracing::Drawn);
            }
            Err(error) => self.cx.answer(client, |replies| replies.error(&error)),
        }
    }

    /// The database of a request, if there is one with this number and the user may select it.
    #[cold]
    fn database_for(&self, whom: Option<(&[u8], IpAddr)>, database: u8) -> Result<u8, String> {
        let number = database.to_string();
        if let Some((user, _)) = whom {
            let select: ArgumentsBuffer = [&b"SELECT"[..], number.as_bytes()].into_iter().collect();
            self.may(user, select.as_arguments())?;
        }
        databases::existing(&self.cx, databases::named(&self.cx, number.as_bytes())?)
    }

    /// Closes the client that has been connected longest without authenticating, so that such clients do not keep
    /// others out. Returns false if all clients have authenticated, or there is no password.
    #[cold]
    pub fn close_unauthenticated(&mut self) -> bool {
        let strangers = self.cx.clients.sessions.iter().filter(|(_, session)| !session.is_authenticated());
        let Some((oldest, _)) = strangers.min_by_key(|(_, session)| session.arrival()) else { return false };
        self.cx.counters.unauthenticated_closed += 1;
        self.cx.kill(oldest);
        self.carry_out_calls();
        true
    }

    /// Removes a client that has disconnected. Its requests may still take effect; their outcomes go nowhere.
    pub fn disconnect(&mut self, client: ClientId) {
        self.cx.end_session(client);
        self.carry_out_calls();
    }

    /// Whether a client waits for a lock, for elements or for the end of a pause, or is subscribed to channels or
    /// monitors. Then it is not idle.
    pub fn awaits_notification(&self, client: ClientId) -> bool {
        let session = self.cx.clients.sessions.get(client);
        self.cx.clients.monitors.contains(&client)
            || session.is_some_and(|session| {
                session.wait.is_some() || session.is_held_back() || session.subscriptions.is_some()
            })
    }

    /// A client has closed its connection. Returns true if it was waiting for a lock, for elements or for the end of a pause.
    pub fn hang_up(&mut self, client: ClientId) -> bool {
        let Some(session) = self.cx.clients.sessions.get(client) else { return false };
        // What waits behind the client's own transactions has not long to wait, and was asked before the client left.
        if session.is_held_back() && !session.divides {
            self.disconnect(client);
            return true;
        }
        let Some(number) = session.wait else { return false };
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            // What is under way for it over several groups takes nothing any more.
            session.wait = None;
        }
        self.waits.give_up(&mut self.cx, number, &[]);
        // The commands that the client sent after this one assumed that the wait would end with success.
        self.cx.clients.close_after_replies(client);
        self.carry_out_calls();
        true
    }

    /// Notes how many bytes of a client's input are not taken yet, and how much room its buffer has for more, for
    /// `CLIENT LIST`.
    pub fn note_input(&mut self, client: ClientId, bytes: usize, room: usize) {
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            session.note_input(bytes, room);
        }
    }

    /// Ends the waits of all clients, before the node stops.
    pub fn stop_waits(&mut self) {
        self.waits.stop(&mut self.cx);
        self.carry_out_calls();
    }

    /// Whether any request waits, or is being withdrawn or settled.
    pub fn has_waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Whether any client waits for a reply.
    pub fn has_unanswered(&self) -> bool {
        self.cx.clients.sessions.iter().any(|(_, session)| session.is_waiting())
    }

    /// Closes the connections of clients that have sent a request since a moment of the monotonic clock, once that is answered: so
    /// they learn, with a reply, that they must go elsewhere. One in a transaction may end it first.
    pub fn close_active_since(&mut self, since_us: u64) {
        let sessions = self.cx.clients.sessions.iter();
        let active: Vec<ClientId> =
            sessions.filter(|(_, session)| session.may_be_closed(since_us)).map(|(id, _)| id).collect();
        active.into_iter().for_each(|client| self.close_after_replies(client));
    }

    /// Closes a client's connection once its replies are written.
    pub fn close_after_replies(&mut self, client: ClientId) {
        self.cx.clients.close_after_replies(client);
    }

    /// The limits of this client's requests.
    pub fn request_limits(&self, client: ClientId) -> Limits {
        self.limits(self.cx.clients.sessions.get(client).is_some_and(Session::is_authenticated))
    }

    fn limits(&self, authenticated: bool) -> Limits {
        let value_bytes_max = self.cx.parameters.value_bytes_max();
        Limits {
            bulk_bytes_max: value_bytes_max,
            request_bytes_max: request_bytes_max(value_bytes_max),
            authenticated,
            ..Limits::default()
        }
    }

    /// Begins to take requests of a client that has sent this many bytes so far, and returns what [`Node::request_limits`]
    /// returns.
    pub fn begin_input(&mut self, client: ClientId, received_bytes: u64) -> Limits {
        let session = self.cx.clients.sessions.get_mut(client);
        let authenticated = session.is_some_and(|session| {
            session.note_received(received_bytes);
            session.is_authenticated()
        });
        self.limits(authenticated)
    }

    /// The requests that follow come from input that had arrived at `arrived_us`, and that the node did not want then.
    /// `None`: those that follow have just arrived.
    #[cold]
    pub fn resume_input(&mut self, client: ClientId, arrived_us: Option<u64>) {
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            session.resume_input(arrived_us);
        }
    }

    /// When the requests that the client makes now had arrived, in microseconds of the monotonic clock.
    #[cold]
    pub fn arrived_us(&self, client: ClientId) -> u64 {
        let now_us = self.cx.now.monotonic_us;
        self.cx.clients.sessions.get(client).map_or(now_us, |session| session.arrived_us(now_us))
    }

    /// Lends the buffer that holds the requests that follow: a large value in them may be kept in place instead of
    /// being copied. `None` ends the loan.
    pub fn lend(&mut self, buffer: Option<Arc<Vec<u8>>>) {
        self.cx.clients.lend(buffer);
    }

    /// Whether to read more of a client's input. False while the client has too many requests without an outcome, or
    /// too many unread replies: leave its input alone until it is among the ready clients again, or has taken its
    /// output.
    #[inline]
    pub fn wants_input(&self, client: ClientId) -> bool {
        !self.cx.memory.is_overcrowded()
            && self
                .cx
                .clients
                .sessions
                .get(client)
                .is_some_and(|session| session.wants_input() && !self.cx.waits_for_others(session))
    }

    /// Whether a client has requests without an outcome, or replies that wait for those.
    pub fn has_requests(&self, client: ClientId) -> bool {
        self.cx.clients.sessions.get(client).is_some_and(Session::has_requests)
    }

    /// Whether a client is held back until [`Node::may_go_on`]: requests under way take too much memory, or it has used much lately,
    /// and so much is under way that everyone would wait for what it asks.
    pub fn is_held_back(&self, client: ClientId) -> bool {
        let session = || self.cx.clients.sessions.get(client);
        self.cx.memory.is_crowded() || session().is_some_and(|session| self.cx.waits_for_others(session))
    }

    /// Whether clients may go on that were held back, because requests under way took too much memory or would take too long.
    pub fn may_go_on(&self) -> bool {
        !self.cx.memory.is_crowded() && !self.cx.work.is_much_under_way()
    }

    /// Whether this turn has used up its time for requests: further requests of clients wait for the next turn.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.cx.is_turn_spent()
    }

    /// Begins to serve one of `clients` clients that want to be served in this turn: each gets a share of its time.
    #[inline]
    pub fn begin_share(&mut self, clients: usize) {
        self.cx.begin_share(clients);
    }

    /// Whether the client that is being served has used up its share, or the turn is used up.
    #[inline]
    pub fn is_share_spent(&self) -> bool {
        self.cx.is_share_spent()
    }

    /// Ends a client's share. `clock_us`, a reading of the monotonic clock, is taken only where much was done.
    #[inline]
    pub fn end_share(&mut self, client: ClientId, clock_us: impl FnOnce() -> u64) {
        if self.cx.is_share_long() {
            let (before, monotonic_us) = (self.cx.now, clock_us());
            self.cx.now = self.clock.advance(Now { monotonic_us, ..before });
            self.cx.charge_share(client, monotonic_us.saturating_sub(before.monotonic_us));
        }
    }

    /// What a client has used of the node's time lately, in nanoseconds.
    pub fn used_ns(&self, client: ClientId) -> u64 {
        let session = self.cx.clients.sessions.get(client);
        session.map_or(0, |session| session.used_ns(self.cx.now.monotonic_us))
    }

    /// Whether a client has used so much of this node's time lately that it is served behind all others.
    pub fn has_used_much(&self, client: ClientId) -> bool {
        self.used_ns(client) > MUCH_NS
    }

    /// Counts what is done for clients from now on anew: it has its own share of the turn.
    pub fn begin_requests(&mut self) {
        self.cx.work.begin_requests();
    }

    /// Whether it matters which client has used most: any has used much lately.
    #[inline]
    pub fn shares_by_use(&self) -> bool {
        self.cx.has_charged()
    }

    /// Whether a request of `request_bytes` may be taken now. If not, it has to wait until there is more room.
    #[inline]
    pub fn has_room_for(&self, request_bytes: usize) -> bool {
        const LARGE_BYTES: usize = 64 << 10;
        request_bytes < LARGE_BYTES || !self.cx.memory.is_crowded()
    }

    /// Answers input that is not a request with an error, behind the client's earlier replies, and closes the
    /// connection.
    pub fn protocol_error(&mut self, client: ClientId, error: &ProtocolError) {
        let text = error.to_string();
        self.cx.answer(client, |replies| replies.error(&text));
        self.close_after_replies(client);
    }

    /// Moves the clients with new output, or whose session has ended, into `clients`.
    pub fn ready_clients(&mut self, clients: &mut Vec<ClientId>) {
        self.cx.clients.take_ready(clients);
    }

    /// The output of a client. `None` if its session has ended and the connection should be closed.
    pub fn output(&mut self, client: ClientId) -> Option<&mut Output> {
        self.cx.clients.sessions.get_mut(client).map(|session| session.output().filled())
    }

    /// Like [`Node::output`], for callers that write large values from where they are.
    pub fn output_in_parts(&mut self, client: ClientId) -> Option<&mut Output> {
        self.cx.clients.sessions.get_mut(client).map(Session::output)
    }
}
