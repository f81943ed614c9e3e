//! Reads that are carried out over several turns: long ones of a collection, which would keep everyone else waiting.
//!
//! Such a read shows the moment at which it began: the table keeps a copy of the collection ([`kv::Table::go_on_reading`]).
//! In each turn one read goes on for some time: the one that has had least so far, and now and then the oldest, so that
//! none of them waits for ever. Meanwhile no further request of the same client is taken.

use crate::context::Context;
use crate::session::origin::Origin;
use cluster::{Configuration, LONG_COMMAND_BYTES};
use kv::{LongReadId, ReplyBuffer};
use protocol::{Result as Outcome, Ticket};

/// The most that a read may take in one step, as estimated, in nanoseconds.
const READ_NS_MAX: u64 = 5_000_000;

/// How long reads go on in one turn, as estimated, in nanoseconds.
const TURN_NS: u64 = 2_000_000;

/// In every so many turns the oldest read goes on.
const OLDEST_EACH: u64 = 4;

/// What a read may take in one step, in nanoseconds. Where short commands count as long ones, to test that, so do reads.
pub(crate) fn in_one_step_ns(configuration: &Configuration) -> u64 {
    share_of(READ_NS_MAX, configuration)
}

fn share_of(ns: u64, configuration: &Configuration) -> u64 {
    (ns * configuration.long_command_bytes as u64 / LONG_COMMAND_BYTES as u64).clamp(1, ns)
}

/// The reads under way, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct LongReads {
    reads: Vec<UnderWay>,
    turns: u64,
}

#[derive(Debug)]
struct UnderWay {
    group: u16,
    ticket: Ticket,
    result: Outcome,
    /// `None`: the table that has begun it is gone.
    id: Option<LongReadId>,
    /// How long it has gone on, as estimated.
    spent_ns: u64,
    /// Bytes of its reply so far, and of the names that it looks for.
    bytes: usize,
}

/// A read that is over.
pub(crate) struct Ended {
    pub(crate) group: u16,
    pub(crate) ticket: Ticket,
    pub(crate) result: Outcome,
    /// `None`: the table that has begun it is gone.
    pub(crate) reply: Option<ReplyBuffer>,
}

impl LongReads {
    /// Whether any read is under way.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        !self.reads.is_empty()
    }

    /// A group's table has begun a read. `result` is that of its request.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context,
        group: u16,
        (ticket, result): (Ticket, Outcome),
        id: LongReadId,
    ) {
        // The ids of a table ascend: earlier ones that do not are of a table that another replica of the group had.
        self.reads.iter_mut().filter(|read| read.group == group).for_each(|read| {
            read.id = read.id.filter(|earlier| *earlier < id);
        });
        self.reads.push(UnderWay { group, ticket, result, id: Some(id), spent_ns: 0, bytes: 0 });
        if let Origin::Session(client) = Origin::of(ticket)
            && let Some(session) = cx.clients.sessions.get_mut(client)
        {
            session.begin_long_read(ticket.sequence);
            cx.work.follow(session);
        }
    }

    /// Goes on with one of the reads. Returns it if it is over.
    pub(crate) fn go_on(&mut self, cx: &mut Context) -> Option<Ended> {
        while let Some(place) = self.reads.iter().position(|read| !is_awaited(cx, read.ticket)) {
            let UnderWay { group, id, .. } = self.reads.remove(place);
            cx.groups.touch(group);
            end(cx, group, id);
        }
        let place = self.next(cx.memory.replies_max())?;
        let (read, ns) = (&mut self.reads[place], share_of(TURN_NS, &cx.configuration));
        let progress = table_of(cx, read.group).and_then(|table| table.go_on_reading(read.id?, ns));
        read.spent_ns += ns;
        let before = std::mem::replace(&mut read.bytes, progress.map_or(0, |progress| progress.bytes));
        let is_over = progress.is_none_or(|progress| progress.is_complete);
        let bytes = if is_over { 0 } else { read.bytes };
        if let Origin::Session(client) = Origin::of(read.ticket)
            && let Some(session) = cx.clients.sessions.get_mut(client)
        {
            session.note_reading(before, bytes);
        }
        if !is_over {
            return None;
        }
        let UnderWay { group, ticket, result, id, .. } = self.reads.remove(place);
        Some(Ended { group, ticket, result, reply: end(cx, group, id) })
    }

    /// Checks that each client is charged for what its reads hold, and is asked for nothing more while they are under way.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self, cx: &Context) {
        for (client, session) in cx.clients.sessions.iter() {
            let own = self.reads.iter().filter(|read| Origin::of(read.ticket) == Origin::Session(client));
            let bytes: usize = own.clone().map(|read| read.bytes).sum();
            assert_eq!(session.reading_bytes(), bytes, "replies so far, and names that are looked for");
            assert!(own.count() == 0 || !session.wants_input(), "a client waits for its long read");
        }
    }

    /// Which of the reads goes on. If their replies so far take more than `bytes_max`, only the oldest one does.
    fn next(&mut self, bytes_max: usize) -> Option<usize> {
        self.turns += 1;
        let are_large = self.reads.iter().map(|read| read.bytes).sum::<usize>() > bytes_max;
        if are_large || self.turns.is_multiple_of(OLDEST_EACH) {
            return (!self.reads.is_empty()).then_some(0);
        }
        (0..self.reads.len()).min_by_key(|place| self.reads[*place].spent_ns)
    }
}

/// Whether anyone waits for the reply of a request.
fn is_awaited(cx: &Context, ticket: Ticket) -> bool {
    match Origin::of(ticket) {
        Origin::Session(client) => cx.clients.sessions.get(client).is_some(),
        Origin::Peer(from, link) => cx.peers[from].is_linked_by(link),
        _ => true,
    }
}

fn table_of(cx: &mut Context, group: u16) -> Option<&mut kv::Table> {
    cx.groups.get_mut(group)?.replica.as_mut()?.dumped()
}

fn end(cx: &mut Context, group: u16, id: Option<LongReadId>) -> Option<ReplyBuffer> {
    table_of(cx, group)?.end_reading(id?)
}
