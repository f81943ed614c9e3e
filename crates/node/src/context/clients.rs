//! The clients of this node: their sessions, their replies, and when they are closed.

use crate::collections::slab::Slab;
use crate::context::delays::Delays;
use crate::context::measuring::Measuring;
use crate::context::pause::Pause;
use crate::context::{Call, Context, memory};
use crate::diagnostics::log::{Level, Line};
use crate::session::{ClientId, ClientKind, Session, SessionReply, Standing};
use commands::statistics::CommandStatistics;
use commands::users::{DENIED_IN_SCRIPT, User};
use kv::{Reply, ReplyBuffer};
use protocol::{Result as Outcome, Ticket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The sessions of this node's clients.
pub(crate) struct Clients {
    pub(crate) sessions: Slab<Session>,
    /// How many sessions were opened so far.
    arrivals: u64,
    /// The clients with new output, and those whose session has ended.
    ready: Vec<ClientId>,
    /// Answers that are delayed.
    delays: Delays,
    /// The reply of a command that the node answers itself.
    replies: ReplyBuffer,
    /// Collects the answers while the commands of a transaction are carried out.
    captured: Option<ReplyBuffer>,
    pub(crate) statistics: CommandStatistics,
    pub(crate) measuring: Measuring,
    pub(crate) pause: Pause,
    /// The buffer that holds the requests that are being taken, if it may be kept.
    lent: Option<Arc<Vec<u8>>>,
    /// The clients that sent `MONITOR`, and some that have disconnected since.
    pub(crate) monitors: Vec<ClientId>,
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients {
            sessions: Slab::default(),
            arrivals: 0,
            ready: Vec::new(),
            delays: Delays::default(),
            replies: ReplyBuffer::new(),
            captured: None,
            statistics: CommandStatistics::new(),
            measuring: Measuring::default(),
            pause: Pause::default(),
            lent: None,
            monitors: Vec::new(),
        }
    }

    /// Takes the next answer whose delay is over.
    #[inline]
    pub(crate) fn take_delayed(&mut self, now_us: u64) -> Option<(Ticket, Vec<u8>)> {
        self.delays.take_due(now_us)
    }

    /// When the next delay is over, in microseconds of the monotonic clock.
    pub(crate) fn delayed_until_us(&self) -> u64 {
        self.delays.next_due_us()
    }

    /// Lends the buffer that holds the requests that are taken from now on, or ends the loan.
    pub(crate) fn lend(&mut self, buffer: Option<Arc<Vec<u8>>>) {
        self.lent = buffer;
    }

    /// The buffer that holds the requests that are being taken, if it may be kept.
    #[inline]
    pub(crate) fn lent(&self) -> Option<&Arc<Vec<u8>>> {
        self.lent.as_ref()
    }

    /// Opens a session.
    pub(crate) fn open(&mut self, kind: ClientKind, user: Option<Rc<User>>, now_us: u64) -> ClientId {
        self.arrivals += 1;
        self.sessions.insert(|id| {
            let mut session = Session::new(id, kind, user, now_us);
            session.number_arrival(self.arrivals);
            session
        })
    }

    /// Puts a client on the list of those with new output.
    pub(crate) fn list(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(client)
            && session.list()
        {
            self.ready.push(client);
        }
    }

    /// Moves the clients with new output, or whose session has ended, into `clients`.
    pub(crate) fn take_ready(&mut self, clients: &mut Vec<ClientId>) {
        for client in &self.ready {
            if let Some(session) = self.sessions.get_mut(*client) {
                session.unlist();
            }
        }
        clients.append(&mut self.ready);
    }

    /// Closes a client's connection once its replies are written.
    pub(crate) fn close_after_replies(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.close_after_replies();
            self.list(client);
        }
    }

    /// Checks each session, and that the clients with new output are listed once.
    fn check_invariants(&self) {
        let sessions = || self.sessions.iter().map(|(_, session)| session);
        sessions().for_each(Session::check_invariants);
        let mut listed = self.ready.iter().filter_map(|client| self.sessions.get(*client));
        assert!(listed.all(|session| session.is_listed()), "a client is in the list and does not know it");
        let count = self.ready.iter().filter(|client| self.sessions.get(**client).is_some()).count();
        assert_eq!(
            count,
            sessions().filter(|session| session.is_listed()).count(),
            "a client is listed once"
        );
        assert!(self.captured.is_none(), "a transaction ends in the turn in which it is carried out");
    }

    /// Collects all answers from now on in one reply, instead of sending them. Returns what was collected before.
    pub(crate) fn capture(&mut self, captured: Option<ReplyBuffer>) -> Option<ReplyBuffer> {
        std::mem::replace(&mut self.captured, captured)
    }

    /// Whether answers are collected: then each has to be given at once.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captured.is_some()
    }
}

/// The error of a script that was ended because its caller lacks rights.
#[cold]
fn denied_script(reply: &[u8]) -> Option<Vec<u8>> {
    match Reply::first(reply) {
        Reply::Error(error) if error.starts_with(DENIED_IN_SCRIPT.as_bytes()) => Some(error.to_vec()),
        _ => None,
    }
}

impl Context {
    /// A client's user and address, for the audit log.
    pub(crate) fn who(&self, client: ClientId) -> String {
        let Some(session) = self.clients.sessions.get(client) else { return "a client that is gone".into() };
        session.who()
    }

    /// Notes in the audit log what a client has done.
    #[cold]
    pub(crate) fn audit(&mut self, client: ClientId, what: &str) {
        let text = format!("{} {what}", self.who(client));
        self.log.push(Line { level: Level::Audit, text });
    }

    /// Answers a client's request at once, in its order.
    #[inline]
    pub(crate) fn answer(&mut self, client: ClientId, write: impl FnOnce(&mut ReplyBuffer)) {
        if let Some(captured) = &mut self.clients.captured {
            let before = captured.len();
            write(captured);
            let bytes = captured.len() - before;
            return self.spend_on_answer(bytes);
        }
        let mut replies = std::mem::take(&mut self.clients.replies);
        replies.clear();
        write(&mut replies);
        self.spend_on_answer(replies.len());
        if let Some(session) = self.clients.sessions.get_mut(client) {
            let ticket = session.begin(false);
            let done = Outcome::Done { version: 0, offset: 0 };
            self.count_error(replies.as_bytes());
            let reply = SessionReply::Encoded(replies.as_bytes());
            self.complete_session(client, ticket.sequence, 0, done, reply);
        }
        self.clients.replies = replies;
    }

    /// Answers a request after a delay. No further input of this client is taken before that.
    ///
    /// In a transaction, the answer comes at once.
    pub(crate) fn answer_later(
        &mut self,
        client: ClientId,
        after: Duration,
        write: impl FnOnce(&mut ReplyBuffer),
    ) {
        if self.clients.is_capturing() {
            return self.answer(client, write);
        }
        let Some(session) = self.clients.sessions.get_mut(client) else { return };
        session.close_gate();
        let ticket = session.begin(false);
        let mut reply = ReplyBuffer::new();
        write(&mut reply);
        let due_us = self.now.monotonic_us.saturating_add(after.as_micros() as u64);
        self.clients.delays.hold(due_us, ticket, reply.as_bytes().to_vec());
    }

    /// Counts a reply that is an error.
    #[inline]
    pub(crate) fn count_error(&mut self, reply: &[u8]) {
        if ReplyBuffer::is_error(reply)
            && let Reply::Error(error) = Reply::first(reply)
        {
            self.counters.errors += 1;
            self.clients.statistics.error(error);
        }
    }

    /// Gives a client the reply of a request, in the order of its requests.
    #[inline]
    pub(crate) fn complete_session(
        &mut self,
        client: ClientId,
        sequence: u64,
        group: u16,
        result: Outcome,
        reply: SessionReply<'_>,
    ) {
        let Context { clients, memory, work, parameters, configuration, groups, now, .. } = self;
        let Clients { sessions, statistics, measuring, ready, .. } = clients;
        let Some(session) = sessions.get_mut(client) else { return };
        let mut known = None;
        if let Outcome::Done { version, offset } = result {
            known = Some(version);
            if offset > 0 {
                session.saw(group, offset);
            }
        }
        let (reply_bytes, is_error) = (reply.len(), reply.is_error());
        let denied = match &reply {
            SessionReply::Encoded(encoded) if is_error && session.standing() == Standing::Limited => {
                denied_script(encoded)
            }
            _ => None,
        };
        let took_us =
            measuring.time_of(session, (sequence, group), reply_bytes, *now, parameters.thresholds());
        let command = session.complete(sequence, known, reply);
        memory.follow(session);
        work.follow(session);
        if let Some(number) = command {
            if let Some(took_us) = took_us {
                statistics.took(number, took_us);
                if let Some(group) = groups.get_mut(group) {
                    group.latency.record(took_us);
                }
            }
            if is_error {
                statistics.failed(number);
                if !matches!(result, Outcome::Done { .. }) {
                    session.note_failure(now.monotonic_us);
                }
            }
        }
        if let Some(error) = denied {
            self.calls.push_back(Call::NoteDeniedScript { client, error });
        }
        if session.output_bytes() > configuration.output_bytes_max {
            return self.close_overflowing(client);
        }
        if session.list() {
            ready.push(client);
        }
        if memory.answered(reply_bytes) {
            memory::bound_sessions(self);
        }
    }

    /// Sends a client a message that is not a reply. A client that does not read is closed, as with replies.
    pub(crate) fn push(&mut self, client: ClientId, message: &[u8]) {
        let Some(session) = self.clients.sessions.get_mut(client) else { return };
        session.push(message);
        self.sent(client, message.len());
    }

    /// Sends a client bytes that are no message of its protocol, after all that was sent before. No request of the
    /// client may wait.
    pub(crate) fn send_raw(&mut self, client: ClientId, bytes: &[u8]) {
        let Some(session) = self.clients.sessions.get_mut(client) else { return };
        session.output().end().extend_from_slice(bytes);
        self.sent(client, bytes.len());
    }

    /// Notes that a client has new output.
    #[inline]
    fn sent(&mut self, client: ClientId, bytes: usize) {
        let Some(session) = self.clients.sessions.get_mut(client) else { return };
        if session.output_bytes() > self.configuration.output_bytes_max {
            return self.close_overflowing(client);
        }
        if session.list() {
            self.clients.ready.push(client);
        }
        if self.memory.answered(bytes) {
            memory::bound_sessions(self);
        }
    }

    /// Closes a client that has more output waiting than it may have.
    #[cold]
    fn close_overflowing(&mut self, client: ClientId) {
        self.counters.output_overflows += 1;
        let text = format!("client {} does not read its replies; it is closed", client.to_bits());
        self.log.push(Line { level: Level::Warning, text });
        self.kill(client);
    }

    /// Ends a client's session at once, and has its connection closed.
    pub(crate) fn kill(&mut self, client: ClientId) {
        self.end_session(client);
        self.clients.ready.push(client);
    }

    /// Checks tables, the sessions of clients, and that the sums over these are right. O(keys, clients and requests that wait).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self) {
        if !self.configuration.planted.has_invariants() {
            return;
        }
        let replicas = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        replicas.for_each(|replica| replica.table().check_invariants());
        self.clients.check_invariants();
        let sessions = || self.clients.sessions.iter().map(|(_, session)| session);
        let bytes: usize = sessions().map(|session| session.counted_bytes()).sum();
        assert_eq!(bytes, self.memory.request_bytes(), "bytes of requests under way");
        self.work.check_invariants(sessions().map(|session| session.counted_ns()).sum());
    }

    /// Ends a client's session. Its requests may still take effect; their outcomes go nowhere.
    pub(crate) fn end_session(&mut self, client: ClientId) {
        let Some(mut session) = self.clients.sessions.remove(client) else { return };
        self.memory.end(&session);
        self.work.end(&session);
        let (wait, subscriptions) = (session.wait, session.subscriptions.take());
        let tracks = session.tracking.is_some() || session.readers > 0;
        if wait.is_some() || subscriptions.is_some() || tracks {
            self.call(Call::EndSession { client, wait, subscriptions, tracks });
        }
    }
}
