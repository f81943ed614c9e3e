//! Traces of sampled commands, in OpenTelemetry's terms: a trace has everything that one command of a client has
//! caused on all nodes, a span is a part of it with a beginning and an end.
//!
//! ```text
//! node 2  |-- SET (server) ----------------------------------------|
//!            |-- forward (client) -----------------------------|
//! node 1            |-- serve (server) --------------------|
//!                      |-- replicate (internal) -------|
//! ```
//!
//! The node that a client is connected to draws whether its command is traced. When it forwards the command to
//! another node, it announces the trace with a message before the request ([`Envelope::Traced`]). A node of an
//! earlier release gets no such message, and its part of the trace is missing. `replicate` lasts from when a replica has taken the
//! command to its outcome: for a write, until it is committed. Times are those of the turns in which things happened,
//! so a span of one turn takes no time.
//!
//! While tracing is off, a command costs a few more comparisons, and no other code of this module runs.
//!
//! [`Envelope::Traced`]: crate::messages::envelope::Envelope::Traced

use kv::{Reply, ReplyBuffer};
use protocol::{NodeId, Now, Ticket};
use std::collections::BTreeMap;

/// The most commands under way that are traced, and the most ended spans that wait to be taken. Further spans are
/// dropped, and counted.
const HELD: usize = 4096;

/// A command without an outcome after this long is not traced any more.
const GIVEN_UP_AFTER_US: u64 = 600_000_000;

/// By how much the wall clock may differ from the time by the monotonic clock before it counts as set.
const SET_AFTER_US: u64 = 2_000;

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace. Not 0.
    pub trace: u128,
    /// The span at this place, or the one that contains it. Not 0.
    pub span: u64,
}

/// Whether a request is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracing {
    /// If the node draws so.
    #[default]
    Drawn,
    /// As a part of this span, which the request's sender has begun.
    Within(SpanContext),
    /// Never: the request's sender has decided that.
    Never,
}

/// The kind of work that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A request that this node has taken, from a client or another node.
    Server,
    /// A request to another node.
    Client,
    /// Work within this node.
    Internal,
}

/// An ended span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace, and the span's own number.
    pub context: SpanContext,
    /// The span that contains it, perhaps of another node.
    pub parent: Option<u64>,
    /// The kind of work.
    pub kind: SpanKind,
    /// The command's name, or a name for what is done with it.
    pub name: &'static str,
    /// When it began, in microseconds of Unix time.
    pub begin_us: u64,
    /// When it ended, in microseconds of Unix time.
    pub end_us: u64,
    /// The keyspace and its shard, in the usual notation; empty if no group was involved.
    pub group: String,
    /// The node that a request came from, or went to.
    pub peer: Option<NodeId>,
    /// The error with which it ended.
    pub error: Option<String>,
}

/// A part of a command that is under way.
#[derive(Debug)]
struct Part {
    span: u64,
    kind: SpanKind,
    name: &'static str,
    begin_us: u64,
    peer: Option<NodeId>,
}

/// A command that is under way here.
#[derive(Debug)]
struct Open {
    whole: Part,
    trace: u128,
    parent: Option<u64>,
    group: String,
    /// The wait that has begun and not ended.
    inner: Option<Part>,
}

fn name_of(ticket: Ticket) -> (u64, u64) {
    (ticket.client, ticket.sequence)
}

/// The spans of this node.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    is_on: bool,
    /// How many of 2^32 commands are traced.
    share: u64,
    /// The decision for the next command.
    next: Tracing,
    seed: u64,
    drawn: u64,
    /// By the ticket's client and sequence.
    open: BTreeMap<(u64, u64), Open>,
    /// The places of requests that other nodes have announced, by their sender and number, and when they were
    /// announced.
    announced: BTreeMap<(NodeId, u64), (SpanContext, u64)>,
    ended: Vec<Span>,
    /// How many spans were dropped because too many were held.
    dropped: u64,
    /// The wall clock less the monotonic one, in microseconds.
    unix_ahead_us: u64,
}

impl Spans {
    /// How many spans were dropped because too many were held.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Traces this share of clients' commands, from 0 to 1, and the requests that other nodes announce. `None`: nothing.
    pub(crate) fn new(share: Option<f64>, seed: u64) -> Spans {
        let is_on = share.is_some();
        let share = (share.unwrap_or_default().clamp(0.0, 1.0) * (1_u64 << 32) as f64) as u64;
        Spans { is_on, share, seed, ..Spans::default() }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Decides whether the next command is traced.
    pub(crate) fn set_next(&mut self, tracing: Tracing) {
        self.next = tracing;
    }

    /// A client's command with this name begins: draws whether it is traced, unless that was decided.
    #[cold]
    pub(crate) fn begin(&mut self, now: Now, ticket: Ticket, name: &'static str) {
        match std::mem::take(&mut self.next) {
            Tracing::Never => {}
            Tracing::Within(SpanContext { trace, span }) => {
                self.add(now, ticket, (SpanKind::Server, name), (trace, Some(span), None));
            }
            Tracing::Drawn if self.draw() >> 32 >= self.share => {}
            Tracing::Drawn => {
                let trace = (u128::from(self.draw()) << 64 | u128::from(self.draw())).max(1);
                self.add(now, ticket, (SpanKind::Server, name), (trace, None, None));
            }
        }
    }

    /// Another node has announced a request.
    pub(crate) fn announced(&mut self, now: Now, from: NodeId, id: u64, context: SpanContext) {
        let is_valid = context.trace != 0 && context.span != 0;
        if self.is_on && is_valid && self.announced.len() < HELD {
            self.announced.insert((from, id), (context, now.monotonic_us));
        }
    }

    /// A request of another node begins: it is traced if it was announced.
    #[cold]
    pub(crate) fn begin_forwarded(&mut self, now: Now, ticket: Ticket, (from, id): (NodeId, u64)) {
        if let Some((SpanContext { trace, span }, _)) = self.announced.remove(&(from, id)) {
            self.add(now, ticket, (SpanKind::Server, "serve"), (trace, Some(span), Some(from)));
        }
    }

    /// A traced command is sent to several groups: one of these requests begins.
    #[cold]
    pub(crate) fn begin_part(&mut self, now: Now, ticket: Ticket, whole: Ticket) {
        if let Some(open) = self.open.get(&name_of(whole)) {
            let (trace, parent) = (open.trace, open.whole.span);
            self.add(now, ticket, (SpanKind::Internal, "part"), (trace, Some(parent), None));
        }
    }

    fn add(
        &mut self,
        now: Now,
        ticket: Ticket,
        (kind, name): (SpanKind, &'static str),
        (trace, parent, peer): (u128, Option<u64>, Option<NodeId>),
    ) {
        if self.open.len() >= HELD {
            self.dropped += 1;
            return;
        }
        self.follow_clock(now);
        let whole = self.part(now, kind, name, peer);
        self.open.insert(name_of(ticket), Open { whole, trace, parent, group: String::new(), inner: None });
    }

    /// A traced command begins to wait for its replica, or for the node `to`, which ends an earlier wait. Returns the
    /// place of the new span; `None` if the command is not traced.
    #[cold]
    pub(crate) fn begin_inner(
        &mut self,
        now: Now,
        ticket: Ticket,
        (name, to): (&'static str, Option<NodeId>),
        group: impl FnOnce() -> String,
    ) -> Option<SpanContext> {
        if !self.open.contains_key(&name_of(ticket)) {
            return None;
        }
        self.end_inner(now, ticket);
        let kind = if to.is_some() { SpanKind::Client } else { SpanKind::Internal };
        let inner = self.part(now, kind, name, to);
        let open = self.open.get_mut(&name_of(ticket))?;
        if open.group.is_empty() {
            open.group = group();
        }
        let context = SpanContext { trace: open.trace, span: inner.span };
        open.inner = Some(inner);
        Some(context)
    }

    /// The wait of a traced command has ended.
    #[cold]
    pub(crate) fn end_inner(&mut self, now: Now, ticket: Ticket) {
        self.end_inner_with(now, ticket, None);
    }

    fn end_inner_with(&mut self, now: Now, ticket: Ticket, error: Option<&str>) {
        let Some(open) = self.open.get_mut(&name_of(ticket)) else { return };
        let Some(inner) = open.inner.take() else { return };
        let (trace, parent, group) = (open.trace, Some(open.whole.span), open.group.clone());
        self.end_part(now, (trace, parent, group), inner, error);
    }

    /// The replica has not taken a traced command, which goes to another node: there was no wait.
    #[cold]
    pub(crate) fn abandon_inner(&mut self, ticket: Ticket) {
        if let Some(open) = self.open.get_mut(&name_of(ticket)) {
            open.inner = None;
        }
    }

    /// A command has its outcome, with this reply as the table encodes it.
    #[cold]
    pub(crate) fn end(&mut self, now: Now, ticket: Ticket, reply: &[u8]) {
        if !self.open.contains_key(&name_of(ticket)) {
            return;
        }
        let error = match Reply::first(reply) {
            Reply::Error(text) if ReplyBuffer::is_error(reply) => Some(String::from_utf8_lossy(text)),
            _ => None,
        };
        let error = error.as_deref();
        self.end_inner_with(now, ticket, error);
        if let Some(Open { whole, trace, parent, group, .. }) = self.open.remove(&name_of(ticket)) {
            self.end_part(now, (trace, parent, group), whole, error);
        }
    }

    fn end_part(
        &mut self,
        now: Now,
        (trace, parent, group): (u128, Option<u64>, String),
        part: Part,
        error: Option<&str>,
    ) {
        if self.ended.len() >= HELD {
            self.dropped += 1;
            return;
        }
        let Part { span, kind, name, begin_us, peer } = part;
        let end_us = (now.monotonic_us + self.unix_ahead_us).max(begin_us);
        let (context, error) = (SpanContext { trace, span }, error.map(str::to_owned));
        self.ended.push(Span { context, parent, kind, name, begin_us, end_us, group, peer, error });
    }

    fn part(&mut self, now: Now, kind: SpanKind, name: &'static str, peer: Option<NodeId>) -> Part {
        let begin_us = now.monotonic_us + self.unix_ahead_us;
        Part { span: self.draw().max(1), kind, name, begin_us, peer }
    }

    /// Forgets commands and announcements without an end.
    #[cold]
    pub(crate) fn tick(&mut self, now: Now) {
        let since_us = now.monotonic_us.saturating_sub(GIVEN_UP_AFTER_US);
        let ahead_us = self.unix_ahead_us;
        let before = self.open.len();
        self.open.retain(|_, open| open.whole.begin_us >= since_us + ahead_us);
        self.dropped += (before - self.open.len()) as u64;
        self.announced.retain(|_, (_, at_us)| *at_us >= since_us);
    }

    /// The spans that have ended since the last call.
    pub(crate) fn take(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.ended)
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    fn follow_clock(&mut self, now: Now) {
        let ahead_us = (now.unix_ms * 1000).saturating_sub(now.monotonic_us);
        if ahead_us.abs_diff(self.unix_ahead_us) > SET_AFTER_US {
            self.unix_ahead_us = ahead_us;
        }
    }

    /// The next number of a sequence that depends on the seed alone.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        kv::digest::digest_of(&[self.seed.to_le_bytes(), self.drawn.to_le_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Now {
        Now { monotonic_us: ms * 1000, unix_ms: 1_000_000 + ms }
    }

    fn ticket(sequence: u64) -> Ticket {
        Ticket { client: 1, sequence }
    }

    fn reply(write: impl Fn(&mut ReplyBuffer)) -> Vec<u8> {
        let mut replies = ReplyBuffer::new();
        write(&mut replies);
        replies.as_bytes().to_vec()
    }

    #[test]
    fn a_command_that_another_node_carries_out_is_one_trace_with_a_span_in_each() {
        let (mut asked, mut leader) = (Spans::new(Some(1.0), 1), Spans::new(Some(0.0), 2));
        asked.begin(at(1), ticket(1), "set");
        let context = asked.begin_inner(at(1), ticket(1), ("forward", Some(1)), || "default".into());
        let context = context.expect("it is traced");
        leader.announced(at(2), 2, 77, context);
        leader.begin_forwarded(at(2), ticket(9), (2, 77));
        assert!(leader.begin_inner(at(2), ticket(9), ("replicate", None), || "default".into()).is_some());
        leader.end_inner(at(5), ticket(9));
        leader.end(at(5), ticket(9), &reply(ReplyBuffer::ok));
        asked.end(at(6), ticket(1), &reply(|out| out.error("ERR no")));
        let (here, there) = (asked.take(), leader.take());
        let names = |spans: &[Span]| spans.iter().map(|span| span.name).collect::<Vec<_>>();
        assert_eq!([names(&here), names(&there)], [["forward", "set"], ["replicate", "serve"]]);
        let [forward, root] = &here[..] else { panic!("two spans") };
        let [replicate, forwarded] = &there[..] else { panic!("two spans") };
        assert!(here.iter().chain(&there).all(|span| span.context.trace == context.trace));
        assert_eq!([root.parent, forward.parent], [None, Some(root.context.span)]);
        assert_eq!([forwarded.parent, replicate.parent], [Some(context.span), Some(forwarded.context.span)]);
        assert_eq!([forward.peer, forwarded.peer], [Some(1), Some(2)]);
        assert_eq!((replicate.begin_us, replicate.end_us), (1_000_002_000, 1_000_005_000));
        assert_eq!((root.error.as_deref(), &*root.group), (Some("ERR no"), "default"));
    }

    #[test]
    fn commands_that_are_not_drawn_or_announced_leave_nothing() {
        let mut spans = Spans::new(Some(0.0), 1);
        spans.begin(at(1), ticket(1), "get");
        spans.begin_forwarded(at(1), ticket(2), (2, 5));
        assert_eq!(spans.begin_inner(at(1), ticket(1), ("replicate", None), String::new), None);
        spans.end(at(2), ticket(1), &reply(ReplyBuffer::ok));
        spans.end(at(2), ticket(2), &reply(ReplyBuffer::ok));
        assert_eq!((spans.take(), spans.dropped), (vec![], 0));
        let mut off = Spans::new(None, 1);
        off.announced(at(1), 2, 5, SpanContext { trace: 1, span: 1 });
        assert!(!off.is_on() && off.announced.is_empty());
    }

    #[test]
    fn a_sender_decides_whether_its_command_is_traced() {
        let (trace, span) = (7, 9);
        let (mut never, mut always) = (Spans::new(Some(0.0), 1), Spans::new(Some(1.0), 2));
        never.set_next(Tracing::Within(SpanContext { trace, span }));
        always.set_next(Tracing::Never);
        for sequence in 0..2 {
            for spans in [&mut never, &mut always] {
                spans.begin(at(1), ticket(sequence), "get");
                spans.end(at(1), ticket(sequence), &reply(ReplyBuffer::ok));
            }
        }
        let [within] = &never.take()[..] else { panic!("one command is a part of something") };
        assert_eq!((within.context.trace, within.parent, within.kind), (7, Some(9), SpanKind::Server));
        assert_eq!(always.take().len(), 1, "that was said of one command");
    }

    #[test]
    fn a_share_of_commands_is_traced() {
        let mut spans = Spans::new(Some(0.25), 3);
        for sequence in 0..4000 {
            spans.begin(at(1), ticket(sequence), "get");
            spans.end(at(1), ticket(sequence), &reply(ReplyBuffer::ok));
        }
        let traced = spans.take().len();
        assert!((900..1100).contains(&traced), "{traced} of 4000");
    }

    #[test]
    fn commands_without_an_end_are_given_up_and_counted() {
        let mut spans = Spans::new(Some(1.0), 3);
        (0..HELD as u64 + 5).for_each(|sequence| spans.begin(at(1), ticket(sequence), "get"));
        assert_eq!((spans.open.len(), spans.dropped), (HELD, 5));
        spans.tick(at(2 + GIVEN_UP_AFTER_US / 1000));
        assert_eq!((spans.open.len(), spans.dropped), (0, HELD as u64 + 5));
    }
}
