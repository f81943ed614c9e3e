//! One moment for a backup: all keys of several groups are locked while a program has their leaders begin copies.
//!
//! `CLUSTER BACKUP LOCK` locks them, as the first half of a transaction whose values move, and names the transaction;
//! `KEYSPACE COPY … LOCKED` begins a copy only while the group's table says that the transaction still holds it; `CLUSTER BACKUP
//! UNLOCK` gives it up. `docs/design/transactions.md` says why all copies are then of one moment.

use super::TwoPhase;
use crate::context::Context;
use crate::session::ClientId;
use cluster::control::Feature;
use kv::{ReplyBuffer, TransactionId};
use protocol::two_phase::Evaluated;
use protocol::{Result as Outcome, Ticket};
use wire::resp::Arguments;

/// For how long all keys may be locked, with the wait for the locks. Shorter than the time after which leaders resolve what nobody
/// ends.
const MOMENT_US: u64 = 500_000;

const NOT_LOCKED: &str = "TRYAGAIN LOCKED not all shards could be locked in time: one has no leader, or holds a longer transaction; nothing was done, \
     try again";

/// Whether this word of `CLUSTER BACKUP` is one of a moment.
pub(crate) fn is_moment(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"LOCK") || word.eq_ignore_ascii_case(b"UNLOCK")
}

/// All keys of some groups, which are locked or about to be.
#[derive(Debug)]
pub(super) struct Moment {
    ticket: Ticket,
    group: u16,
    /// The transaction, once all keys are locked and the client knows it.
    id: Option<TransactionId>,
}

impl TwoPhase {
    /// `CLUSTER BACKUP LOCK group [group …]`, and `CLUSTER BACKUP UNLOCK id`.
    pub(crate) fn moment(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let done = match arguments[2].eq_ignore_ascii_case(b"UNLOCK") {
            true => self.unlock_all(cx, &arguments[3]).map(|()| cx.answer(client, ReplyBuffer::ok)),
            false => self.lock_all(cx, client, arguments),
        };
        if let Err(error) = done {
            cx.answer(client, |replies| replies.error(&error));
        }
    }

    fn lock_all(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        arguments: Arguments<'_>,
    ) -> Result<(), String> {
        cx.map.require(Feature::Transactions).map_err(|why| format!("ERR {why}"))?;
        let mut groups = Vec::new();
        for word in arguments.iter().skip(3) {
            let number = std::str::from_utf8(word).ok().and_then(|word| word.parse::<u16>().ok());
            let group = number.filter(|number| cx.groups.get(*number).is_some());
            groups.push(group.ok_or("ERR there is no such group of replicas")?);
        }
        groups.sort_unstable();
        groups.dedup();
        groups.iter().try_for_each(|group| super::takes_part(&cx.groups[*group]))?;
        if self.moment.is_some() {
            return Err("TRYAGAIN another backup has all keys locked through this node".to_owned());
        }
        self.coordinator_here(cx)?;
        let coordinator = self.coordinator.as_mut().ok_or("ERR this node coordinates nothing")?;
        let Some(session) = cx.clients.sessions.get_mut(client) else { return Ok(()) };
        self.newest_request += 1;
        let (ticket, number) = (session.begin(false), self.newest_request);
        self.moment = Some((number, Moment { ticket, group: groups[0], id: None }));
        let deadline_us = cx.now.monotonic_us + MOMENT_US;
        let mut actions = Vec::new();
        coordinator.lock_all((number, cx.now.unix_ms), &groups, deadline_us, &mut actions);
        self.carry_out(cx, None, actions);
        Ok(())
    }

    fn unlock_all(&mut self, cx: &mut Context, id: &[u8]) -> Result<(), String> {
        const OVER: &str = "ERR no keys are locked by this transaction: its time may be over";
        let id = std::str::from_utf8(id).ok().and_then(TransactionId::parse).ok_or(OVER)?;
        let is_held = self.moment.as_ref().is_some_and(|(_, moment)| moment.id == Some(id));
        let coordinator = self.coordinator.as_mut().filter(|_| is_held).ok_or(OVER)?;
        let mut actions = Vec::new();
        coordinator.evaluated(id, Evaluated::Nothing, &mut actions);
        self.carry_out(cx, None, actions);
        Ok(())
    }

    /// Whether a transaction under way locks all keys.
    pub(super) fn is_of_moment(&self, id: TransactionId) -> bool {
        let Some((number, _)) = &self.moment else { return false };
        self.coordinator.as_ref().and_then(|it| it.ticket_of(id)) == Some(*number)
    }

    /// All keys are locked: tells the client so. Returns whether it was for a backup.
    pub(super) fn begins_moment(&mut self, cx: &mut Context, request: u64, id: TransactionId) -> bool {
        let Some((_, moment)) = self.moment.as_mut().filter(|(number, _)| *number == request) else {
            return false;
        };
        moment.id = Some(id);
        let mut reply = ReplyBuffer::new();
        reply.bulk(id.to_string().as_bytes());
        let done = Outcome::Done { version: 0, offset: 0 };
        cx.complete_with(moment.ticket, moment.group, done, reply);
        true
    }

    /// All keys are unlocked, or never were locked. Returns whether it was for a backup.
    pub(super) fn ends_moment(&mut self, cx: &mut Context, request: u64) -> bool {
        let Some((_, moment)) = self.moment.take_if(|(number, _)| *number == request) else { return false };
        if moment.id.is_none() {
            cx.complete_with_error(moment.ticket, moment.group, Outcome::Refused, NOT_LOCKED);
        }
        true
    }
}
