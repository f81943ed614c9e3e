//! Locks: what a node does for clients that use them.
//!
//! A request about a lock is a command for the lock's group, like any other; only a `LOCK` that waits is more. The node
//! that its client is connected to is its *coordinator*. It gives the request a number and submits it to the group,
//! which puts the number into a queue that all replicas know. The record that frees the lock grants it to the first in
//! the queue. Then the leader notifies that request's coordinator, which answers the client: one record, and one
//! message. There is no polling.
//!
//! ```text
//!  client B     node 2            leader 1          client A
//!    | LOCK l WAIT |                  |                 |
//!    |------------>| Acquire, as 2/7  |                 |
//!    |             |----------------->| record: queued  |
//!    |             |<---- QUEUED -----|                 |
//!    |             |                  |<-- UNLOCK l ----|
//!    |             |                  | record: A's is released, 2/7 holds it
//!    |             |<- Told: granted -|----- 1 -------->|
//!    |<-- token ---|                  |                 |
//! ```
//!
//! # What can go wrong
//!
//! * **The message is lost**, because a leader or a link dies. A node with a replica of the group also learns it
//!   from that replica. When a link breaks, when a replica has skipped records, and every few seconds, the coordinator
//!   checks how the request stands: a read. If the group does not know the request, the coordinator submits it again
//!   under the same number.
//! * **This node was stopped or starved of time** when the message came. Then the lease may be over already, and
//!   another client may hold the lock: the coordinator checks before it answers the client.
//! * **The client stops waiting**: its connection is closed, or its time is over. The coordinator withdraws the
//!   request. If that crosses a grant, the record of the withdrawal passes the lock on. The withdrawal is submitted
//!   only when the outcome of everything submitted before is known, so that it does not overtake that.
//! * **A record may still grant what was withdrawn, or released**, because the outcome of a submission was not known:
//!   the number is remembered, with the token that the client got, and another grant of it is withdrawn. For all other
//!   numbers of this incarnation that are gone, the clients got their answers, so a message about them that comes late,
//!   or twice, is nothing new.
//! * **The node was restarted.** When a link to it comes up it sends its incarnation, and the leader orders that
//!   requests of its clients from other incarnations stop waiting. The leader also gives up a node that does not come
//!   back. But what was *granted* in an earlier incarnation may have reached a client, which still holds it, whatever
//!   became of the node: it ends by its lease, as with any holder that dies. Withdrawing it would free a lock that a
//!   client holds.

mod waits;

use crate::command::locks::{LockRequest, parse};
use crate::command::{LockVerb, named};
use crate::envelope::{Envelope, Told};
use crate::groups::Groups;
use crate::node::Node;
use crate::origin::Origin;
use crate::routing::Asked;
use crate::session::ClientId;
use crate::setting::{Protocol, Setting};
use kv::locks::{QUEUED, Word};
use kv::{Command, Hold, LockCommand, Reply, ReplyBuffer, Version};
use protocol::{NodeId, Notice, Request, Result as Outcome, Ticket};
pub(crate) use waits::Waits;
use waits::{Question, Stage, Wait};
use wire::frame;
use wire::resp::Arguments;

/// How often a queued request is checked, though nothing seems to be lost.
const CHECK_US: u64 = 5_000_000;

/// How long to wait before a refused request is submitted again.
const RETRY_US: u64 = 50_000;

/// The same when the leader seems not to reach this node.
const FORSAKEN_RETRY_US: u64 = 500_000;

/// How often a withdrawal is tried.
const WITHDRAWALS_MAX: u32 = 100;

/// The most requests that wait or leave. Beyond it, requests that leave are forgotten without a withdrawal.
const WAITS_MAX: usize = 100_000;

impl Node {
    /// Takes a client's request about a lock.
    pub(crate) fn lock_request(&mut self, client: ClientId, verb: LockVerb, arguments: Arguments<'_>) {
        let request = match parse(verb, arguments) {
            Ok(request) => request,
            Err(error) => {
                if let Ok(named) = named(arguments) {
                    self.statistics.failed(named.number);
                }
                return self.answer(client, |replies| replies.error(&error.to_string()));
            }
        };
        let group = self.router.group_of(request.key());
        if let Some(text) = self.refuses_locks("LOCK", group) {
            return self.answer(client, |replies| replies.error(&text));
        }
        if request.session().is_some_and(|session| session.group != group) {
            let text = "CROSSSLOT the session is of another group than the lock: open one with a key of the lock's keyspace \
                        and slot";
            return self.answer(client, |replies| replies.error(text));
        }
        let command = match request {
            LockRequest::Acquire { name, owner, hold, wait_ms, .. } if wait_ms > 0 => {
                return self.wait_for_lock(client, group, (name, owner), hold, wait_ms);
            }
            LockRequest::Acquire { name, owner, hold, .. } => {
                LockCommand::Acquire { name, owner, hold, waiter: None }
            }
            LockRequest::Renew { name, token, lease_ms } => LockCommand::Renew { name, token, lease_ms },
            LockRequest::Release { name, token } => LockCommand::Release { name, token },
            LockRequest::Describe { name } => {
                // Only the node that measures the lease knows what is left of it.
                let command = Command::Lock(LockCommand::Describe { name });
                return self.ask_afresh(client, group, Request::Command(command));
            }
            LockRequest::OpenSession { key, lease_ms } => LockCommand::OpenSession { key, group, lease_ms },
            LockRequest::RenewSession { key, session } => {
                LockCommand::RenewSession { key, session: session.number }
            }
            LockRequest::CloseSession { key, session } => {
                LockCommand::CloseSession { key, session: session.number }
            }
        };
        self.ask(client, group, false, Request::Command(Command::Lock(command)));
    }

    /// Why a group has no locks, if it has none.
    pub(crate) fn refuses_locks(&self, what: &str, group: u16) -> Option<String> {
        refusal(&self.groups, what, group)
    }

    fn wait_for_lock(
        &mut self,
        client: ClientId,
        group: u16,
        names: (&[u8], &[u8]),
        hold: Hold,
        wait_ms: u64,
    ) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        session.wrote(group);
        let ticket = session.begin(false);
        let ends_us = self.now.monotonic_us.saturating_add(wait_ms.saturating_mul(1000));
        let number = self.lock_waits.add(Wait::new(Some(ticket), group, names, hold, ends_us));
        session.lock_wait = Some(number);
        self.lock_waits.look_at(number, ends_us);
        self.ask_for_wait(number, Question::Acquire, follows);
    }

    /// Submits a question to the group of a waiting request. Its outcome goes to [`Node::lock_outcome`].
    fn ask_for_wait(&mut self, number: u64, question: Question, follows: bool) {
        let Some(waiter) = self.lock_waits.waiter(number) else { return };
        let Some(wait) = self.lock_waits.get_mut(number) else { return };
        let (group, hold) = (wait.group, wait.hold);
        if self.groups.get(group).is_none() {
            return self.end_lock_wait(number, |replies| {
                replies.error(
                    "CLUSTERDOWN NOLEADER the keyspace of the lock was dropped; the request waits no longer",
                );
            });
        }
        wait.question = Some(question);
        let (name, owner) = (wait.name.clone(), wait.owner.clone());
        let (name, owner) = (&*name, &*owner);
        let command = match question {
            Question::Acquire => LockCommand::Acquire { name, owner, hold, waiter: Some(waiter) },
            Question::Check => LockCommand::Check { name, waiter },
            Question::Withdraw => LockCommand::Withdraw { name, waiter },
        };
        let ticket = Origin::LockWait.ticket(number);
        let deadline_us = self.now.monotonic_us + self.configuration.command_timeout_ms * 1000;
        // Only the newest state may answer a check.
        let asked = Asked { ticket, follows, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
        self.submit(group, asked, Request::Command(Command::Lock(command)));
    }

    /// Takes a group's answer to a wait's question.
    pub(crate) fn lock_outcome(&mut self, number: u64, result: Outcome, reply: &[u8]) {
        let now_us = self.now.monotonic_us;
        let Some(wait) = self.lock_waits.get_mut(number) else { return };
        let Some(question) = wait.question.take() else { return };
        let first = Reply::first(reply);
        wait.is_uncertain |= question == Question::Acquire && result == Outcome::Unknown;
        if question == Question::Withdraw {
            return match result {
                Outcome::Done { .. } if !std::mem::take(&mut wait.leaves_again) => {
                    self.forget_lock_wait(number)
                }
                Outcome::Done { .. } => self.ask_for_wait(number, Question::Withdraw, false),
                _ => {
                    wait.failures += 1;
                    match wait.failures < WITHDRAWALS_MAX {
                        true => self.lock_waits.look_at(number, now_us + RETRY_US),
                        false => {
                            wait.is_uncertain = true;
                            self.forget_lock_wait(number);
                        }
                    }
                }
            };
        }
        match (result, first) {
            (Outcome::Done { offset, .. }, Reply::Integer(token)) if wait.stage != Stage::Leaving => {
                self.grant_lock_wait(number, token as Version, offset);
            }
            (Outcome::Done { .. }, Reply::Status(QUEUED)) if wait.stage != Stage::Leaving => {
                wait.stage = Stage::Queued;
                let is_granted = std::mem::take(&mut wait.was_told);
                let due_us = wait.ends_us.min(now_us + CHECK_US);
                self.lock_waits.look_at(number, due_us);
                if is_granted {
                    self.ask_for_wait(number, Question::Check, false);
                }
            }
            // The group does not know the request.
            (Outcome::Done { .. }, Reply::Null) if wait.stage != Stage::Leaving => {
                wait.stage = Stage::Asking;
                self.ask_for_wait(number, Question::Acquire, false);
            }
            (Outcome::Done { .. }, Reply::Error(error)) if wait.stage != Stage::Leaving => {
                let error = error.to_vec();
                self.end_lock_wait(number, |replies| replies.push(Reply::Error(&error)));
            }
            (_, first) if wait.stage != Stage::Leaving => {
                if let Reply::Error(error) = first {
                    wait.error = error.to_vec();
                }
                let due_us = wait.ends_us.min(now_us + RETRY_US);
                self.lock_waits.look_at(number, due_us);
            }
            // It was never submitted, or refused for good: there is nothing to withdraw.
            (Outcome::Refused, _) | (Outcome::Done { .. }, Reply::Error(_))
                if question == Question::Acquire && !wait.is_uncertain && !wait.was_queued =>
            {
                self.forget_lock_wait(number);
            }
            _ => self.ask_for_wait(number, Question::Withdraw, false),
        }
    }

    /// The client of a wait holds the lock.
    fn grant_lock_wait(&mut self, number: u64, token: Version, offset: Version) {
        let Some(wait) = self.lock_waits.remove(number) else { return };
        if wait.is_uncertain {
            self.lock_waits.is_unsettled(number, Some(token));
        }
        let Some(ticket) = wait.ticket else { return };
        let mut replies = ReplyBuffer::new();
        replies.integer(token as i64);
        let done = Outcome::Done { version: token, offset };
        self.answer_lock_wait(ticket, wait.group, done, &replies);
    }

    /// Ends a wait without the lock, when it is certain that nothing of it is left.
    fn end_lock_wait(&mut self, number: u64, write: impl FnOnce(&mut ReplyBuffer)) {
        let Some(wait) = self.lock_waits.get_mut(number) else { return };
        let (ticket, group) = (wait.ticket.take(), wait.group);
        self.forget_lock_wait(number);
        if let Some(ticket) = ticket {
            let mut replies = ReplyBuffer::new();
            write(&mut replies);
            self.answer_lock_wait(ticket, group, Outcome::Done { version: 0, offset: 0 }, &replies);
        }
    }

    fn answer_lock_wait(&mut self, ticket: Ticket, group: u16, result: Outcome, replies: &ReplyBuffer) {
        if let Some(session) = self.sessions.get_mut(ClientId::from_bits(ticket.client)) {
            session.lock_wait = None;
        }
        self.complete(ticket, group, result, replies.as_bytes());
    }

    fn forget_lock_wait(&mut self, number: u64) {
        if let Some(wait) = self.lock_waits.remove(number)
            && wait.is_uncertain
        {
            self.lock_waits.is_unsettled(number, None);
        }
    }

    /// The client of a wait is gone: the wait leaves.
    pub(crate) fn leave_lock_wait(&mut self, number: u64) {
        let is_crowded = self.lock_waits.len() > WAITS_MAX;
        let Some(wait) = self.lock_waits.get_mut(number) else { return };
        wait.ticket = None;
        wait.was_queued |= wait.stage == Stage::Queued;
        wait.stage = Stage::Leaving;
        let is_nothing_left = wait.question.is_none() && !wait.is_uncertain && !wait.was_queued;
        if is_crowded || is_nothing_left {
            wait.is_uncertain |= !is_nothing_left;
            return self.forget_lock_wait(number);
        }
        // The outcome of the last question comes first. It does come: it has a deadline.
        let is_free = wait.question.is_none();
        self.lock_waits.look_at(number, u64::MAX);
        if is_free {
            self.ask_for_wait(number, Question::Withdraw, false);
        }
    }

    /// Whether a client waits for a lock, or listens to channels: then it is not idle.
    pub fn awaits_notification(&self, client: ClientId) -> bool {
        let session = self.sessions.get(client);
        session.is_some_and(|session| session.lock_wait.is_some() || session.subscriptions.is_some())
    }

    /// A client has closed its connection. Returns true if it was waiting for a lock.
    pub fn hang_up(&mut self, client: ClientId) -> bool {
        let waiting = self.sessions.get(client).and_then(|session| session.lock_wait);
        let Some(number) = waiting else { return false };
        self.give_up_lock_wait(number, &[]);
        // The commands that it sent after this one were meant for a client with the lock.
        self.close_after_replies(client);
        true
    }

    /// Ends a wait that has lasted long enough: answers the client, and withdraws the request.
    fn give_up_lock_wait(&mut self, number: u64, error: &[u8]) {
        let Some(wait) = self.lock_waits.get_mut(number) else { return };
        let (ticket, group) = (wait.ticket.take(), wait.group);
        self.leave_lock_wait(number);
        if let Some(ticket) = ticket {
            let mut replies = ReplyBuffer::new();
            match error {
                [] => replies.null(),
                error => replies.push(Reply::Error(error)),
            }
            self.answer_lock_wait(ticket, group, Outcome::Refused, &replies);
        }
    }

    /// Handles the waits that are due.
    pub(crate) fn tend_lock_waits(&mut self) {
        let now_us = self.now.monotonic_us;
        while let Some(number) = self.lock_waits.take_due(now_us) {
            let Some(wait) = self.lock_waits.get_mut(number) else { continue };
            let question = match wait.stage {
                Stage::Leaving => Question::Withdraw,
                _ if wait.ends_us <= now_us => {
                    // Null would say that another client holds the lock, which is not known.
                    let error = if wait.stage == Stage::Asking {
                        std::mem::take(&mut wait.error)
                    } else {
                        Vec::new()
                    };
                    self.give_up_lock_wait(number, &error);
                    continue;
                }
                Stage::Asking => Question::Acquire,
                Stage::Queued => Question::Check,
            };
            let (is_free, ends_us) = (wait.question.is_none(), wait.ends_us);
            if wait.stage != Stage::Leaving {
                self.lock_waits.look_at(number, ends_us);
            }
            if is_free {
                self.ask_for_wait(number, question, false);
            }
        }
    }

    /// A notification of a queued request may have been lost: checks how these requests stand.
    pub(crate) fn check_lock_waits(&mut self, concerns: impl Fn(u16) -> bool) {
        let now_us = self.now.monotonic_us;
        for number in self.lock_waits.numbers(|wait| wait.stage == Stage::Queued && concerns(wait.group)) {
            self.lock_waits.look_at(number, now_us);
        }
    }

    /// Passes on a replica's notice about waits.
    pub(crate) fn lock_notice(&mut self, group: u16, notice: Notice) {
        match notice {
            Notice::Skipped => self.check_lock_waits(|other| other == group),
            Notice::Told { waiter, name, word, offset } => {
                let (life, number) = (waiter.life, waiter.number.get());
                let told = Told { life, number, name: &name, word, offset };
                if waiter.node == self.configuration.node {
                    return self.lock_notified(group, told);
                }
                let peer = self.peers.get_mut(usize::from(waiter.node).wrapping_sub(1));
                if let Some(peer) = peer.filter(|peer| peer.up) {
                    frame::append(&mut peer.output, |out| Envelope::Told { group, told }.encode(out));
                }
            }
        }
    }

    /// Takes a notification from a record about a request that waits here, or did.
    pub(crate) fn lock_notified(&mut self, group: u16, told: Told<'_>) {
        let Told { life, number, name, word, offset } = told;
        if life != self.lock_waits.life() {
            return; // It may have been sent before that incarnation was over.
        }
        let now_us = self.now.monotonic_us;
        let hold = self.lock_waits.get_mut(number).map(|wait| wait.hold);
        let is_doubtful = hold.is_some_and(|hold| self.lock_waits.is_doubtful(hold, now_us));
        let Some(wait) = self.lock_waits.get_mut(number) else {
            if let Word::Granted(token) = word
                && self.lock_waits.is_for_nobody(number, token)
            {
                let wait = Wait::new(None, group, (name, b""), Hold::Lease(0), 0);
                self.lock_waits.put(number, wait);
                self.ask_for_wait(number, Question::Withdraw, false);
            }
            return;
        };
        match (word, wait.stage) {
            (Word::Granted(_), Stage::Leaving) => {
                wait.leaves_again |= wait.question == Some(Question::Withdraw)
            }
            // The outcome will also say that it is granted, or that it is over. If the client were answered now, it
            // could release the lock before the record is applied that asks for it once more.
            (Word::Granted(_), _) if wait.question == Some(Question::Acquire) => wait.was_told = true,
            (Word::Granted(_), _) if is_doubtful => {
                wait.stage = Stage::Queued;
                if wait.question.is_none() {
                    self.ask_for_wait(number, Question::Check, false);
                }
            }
            (Word::Granted(token), _) => self.grant_lock_wait(number, token, offset),
            (_, Stage::Leaving) => {}
            (Word::SessionOver, _) => self.end_lock_wait(number, |replies| {
                replies.error("NOSESSION the session is over; the request waits no longer");
            }),
            (Word::Superseded, _) => self.end_lock_wait(number, ReplyBuffer::null),
            (Word::Forsaken, _) => {
                wait.stage = Stage::Asking;
                let due_us = wait.ends_us.min(now_us + FORSAKEN_RETRY_US);
                self.lock_waits.look_at(number, due_us);
            }
        }
    }

    /// Where this node leads, ends the waits of clients that a node had in an earlier incarnation.
    pub(crate) fn drop_waiters_of_old_incarnations(&mut self) {
        let own = (self.configuration.node, self.lock_waits.life());
        let peers = (1..).zip(&self.peers).filter_map(|(id, peer)| Some((id, peer.life?)));
        let lives: Vec<(NodeId, u64)> = peers.chain([own]).collect();
        self.for_each_awake(|node, group| {
            let Some(replica) = node.groups[group].replica.as_ref().filter(|it| it.is_leader()) else {
                return;
            };
            let locks = replica.table().locks();
            if locks.waiters() == 0 {
                return;
            }
            let is_over = |(id, life): &&(NodeId, u64)| locks.has_waiters_of_other_lives(*id, *life);
            for (id, life) in lives.iter().filter(is_over).copied().collect::<Vec<_>>() {
                let command = Command::Lock(LockCommand::Forsake { node: id, spared: Some(life) });
                // The outcome is ignored: what is not done is tried again.
                let ticket = Origin::Nobody.ticket(0);
                let deadline_us = node.now.monotonic_us + node.configuration.command_timeout_ms * 1000;
                let asked = Asked { ticket, follows: false, seen: 0, deadline_us, hops: 0, leadership: 0 };
                node.submit(group, asked, Request::Command(command));
            }
        });
    }

    /// The node is about to stop: ends all its clients' waits.
    pub fn stop_lock_waits(&mut self) {
        let error = format!(
            "CLUSTERDOWN NOLEADER node {} is about to stop; the request waits no longer, try again elsewhere",
            self.configuration.node
        );
        for number in self.lock_waits.numbers(|wait| wait.ticket.is_some()) {
            self.give_up_lock_wait(number, error.as_bytes());
        }
    }

    /// Whether any request waits, or is being withdrawn.
    pub fn has_lock_waits(&self) -> bool {
        !self.lock_waits.is_empty()
    }
}

/// Why a group has no locks, if it has none.
pub(crate) fn refusal(groups: &Groups, what: &str, group: u16) -> Option<String> {
    let keyspace = &groups.get(group)?.keyspace;
    let (name, protocol) = (keyspace.name(), keyspace.replication.text());
    (keyspace.replication != Protocol::Consensus).then(|| {
        format!(
            "ERR {what} needs records that are never lost; keyspace '{name}' uses {protocol}: use one with \
                 replication=consensus"
        )
    })
}
