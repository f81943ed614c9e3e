//! Requests that wait: for a lock, or for elements of a list or a sorted set.
//!
//! A request that waits is first a command for its group, like any other. The node that its client is connected to is
//! its *coordinator*. It gives the request a number and submits it to the group, which puts the number into a queue
//! that all replicas know. The record that frees the lock grants it to the first request in the queue, and the record
//! that adds an element serves the first. Then the leader notifies that request's coordinator, which answers the
//! client. There is no polling.
//!
//! ```text
//!  client B     node 2            leader 1          client A
//!    | LOCK l WAIT |                  |                 |
//!    |------------>| Acquire, as 2/7  |                 |
//!    |             |----------------->| record: queued  |
//!    |             |<---- QUEUED -----|                 |
//!    |             |                  |<-- UNLOCK l ----|
//!    |             |                  | record: A's is released, 2/7 holds it
//!    |             |<- LockNotified: granted -|----- 1 -------->|
//!    |<-- token ---|                  |                 |
//! ```
//!
//! A request for elements is served by the record that adds them, in the same way. But the coordinator asks once more
//! before it answers: the element belongs to its client only when the group has recorded that (`kv/queues`).
//!
//! ```text
//!  client B     node 2            leader 1          client A
//!    | BLPOP l 0   |                  |                 |
//!    |------------>| Ask, as 2/7      |                 |
//!    |             |----------------->| record: queued  |
//!    |             |<---- QUEUED -----|                 |
//!    |             |                  |<-- RPUSH l x ---|
//!    |             |                  | record: x is 2/7's
//!    |             |<- Notified ------|----- 1 -------->|
//!    |             | Ask, as 2/7      |                 |
//!    |             |----------------->| record: claimed |
//!    |<-- l, x ----|<---- l, x -------|                 |
//!    |             | Settle 2/7 ----->| record: forgotten, some time later
//! ```
//!
//! # What can go wrong
//!
//! * **The message is lost**, because a leader or a link dies. A node with a replica of the group also gets the
//!   notification from that replica. When a link breaks, when a replica has skipped records, and every few seconds,
//!   the coordinator checks the state of the request with a read. If the group does not know the request, the
//!   coordinator submits it again under the same number.
//! * **This node was stopped, or got no processor time,** when the message arrived. Then the lease may be over
//!   already, and another client may hold the lock: the coordinator checks before it answers the client.
//! * **The client stops waiting**: its connection is closed, or its time is over. The coordinator withdraws the
//!   request. If the withdrawal crosses a grant, the record of the withdrawal passes the lock on. The withdrawal is
//!   submitted only when the outcome of every earlier submission is known, so that it overtakes none of them.
//! * **A record may still grant what was withdrawn, or released**, because the outcome of a submission was not known:
//!   the request's number is remembered, with the token that the client got, and a later grant under that number is
//!   withdrawn. An earlier one is over, and only its notification is late: the withdrawal would free what the client
//!   holds. For all other numbers of this incarnation that were removed, the clients got their answers, so a
//!   message about them that arrives late, or twice, has no effect.
//! * **The node was restarted.** When a link to it comes up it sends its incarnation, and the leader orders that
//!   requests of its clients from other incarnations stop waiting. The leader also gives up a node that does not
//!   return. But what was *granted* in an earlier incarnation may have reached a client, which still holds it,
//!   whatever happened to the node: the grant ends by its lease, as with any holder that dies. Withdrawing it would
//!   free a lock that a client holds. Elements that were claimed in an earlier incarnation may have reached a client,
//!   too, and are forgotten; those that were not claimed go back to their list.
//! * **A leader of leader-follower dies with the record of a withdrawal.** The request is in the queue again, and no
//!   node would end it. So a new leader notifies the coordinators of all requests, and a coordinator withdraws, and
//!   settles, those that it does not know.
//! * **A record may still ask for elements** although the request has ended, because the outcome of a submission was
//!   not known. So such a request is kept for a while, by the group too if it was served: then the record finds it
//!   there and changes nothing. Finally it is settled, or withdrawn once more.

mod elements;
mod locks;
mod spread;
mod wait;

use crate::context::Context;
use crate::messages::envelope::{Envelope, LockNotified};
use crate::session::ClientId;
use crate::session::origin::{Asked, Origin};
use kv::locks::{LockNotification, QUEUED};
use kv::{Command, LockCommand, Padded, QueueCommand, Reply, ReplyBuffer, Version};
pub(crate) use locks::refusal;
use protocol::{NodeId, Notice, Request, Result as Outcome, Ticket};
pub(crate) use wait::Waits;
use wait::{Leaving, Progress, Question, Stage, Wait, Want, is_spread};

/// How often a queued request is checked when nothing seems to be lost.
const CHECK_US: u64 = 5_000_000;

/// How long to wait before a refused request is submitted again.
const RETRY_US: u64 = 50_000;

/// How long to wait before that when the leader seems not to reach this node.
const DROPPED_RETRY_US: u64 = 500_000;

/// A withdrawal is tried until it succeeds: after `RETRY_US` at first, later up to 2^this times as long.
const WITHDRAWAL_DOUBLINGS: u32 = 6;

/// The most requests that wait or leave. Beyond that, requests that leave are forgotten without a withdrawal.
const WAITS_MAX: usize = 100_000;

impl Waits {
    fn wait(&mut self, cx: &mut Context, client: ClientId, group: u16, want: Want, wait_us: u64) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        session.wrote(group);
        let ticket = session.begin(false);
        let ends_us = cx.now.monotonic_us.saturating_add(wait_us);
        let number = self.add(Wait::new(ticket, group, want, ends_us));
        session.wait = Some(number);
        self.look_at(number, ends_us);
        let question = self.get_mut(number).map_or(Question::Ask, |wait| wait.first_question());
        self.ask(cx, number, question, follows);
    }

    /// Submits a question to the group of a waiting request. Its outcome goes to [`Waits::answered`].
    fn ask(&mut self, cx: &mut Context, number: u64, question: Question, follows: bool) {
        let Some(waiter) = self.waiter(number) else { return };
        let Some(wait) = self.get_mut(number) else { return };
        let group = wait.group;
        if cx.groups.get(group).is_none() {
            return self.end(cx, number, |replies| {
                replies.error("CLUSTERDOWN NOLEADER the keyspace was dropped; the request waits no longer");
            });
        }
        wait.question = Some(question);
        let want = wait.want.clone();
        let command = match (&want, question) {
            (Want::Lock { name, owner, hold }, Question::Ask) => {
                Command::Lock(LockCommand::Acquire { name, owner, hold: *hold, waiter: Some(waiter) })
            }
            (Want::Lock { name, .. }, Question::Check) => Command::Lock(LockCommand::Check { name, waiter }),
            (Want::Lock { name, .. }, Question::Withdraw | Question::Conclude | Question::Read) => {
                Command::Lock(LockCommand::Withdraw { name, waiter })
            }
            (Want::Elements(wish), Question::Ask) => {
                Command::Queue(QueueCommand::Ask { waiter, wish: wish.as_wish() })
            }
            (Want::Elements(wish), Question::Read) => wish.as_wish().command(),
            (Want::Elements(_), Question::Check) => Command::Queue(QueueCommand::Check { waiter }),
            (Want::Elements(_), Question::Conclude) => Command::Queue(QueueCommand::Conclude { waiter }),
            (Want::Elements(_), Question::Withdraw) => {
                Command::Queue(QueueCommand::Withdraw { waiter, only_unclaimed: false })
            }
            (Want::Served, _) => Command::Queue(QueueCommand::Withdraw { waiter, only_unclaimed: true }),
        };
        let ticket = Origin::Wait.ticket(number);
        let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        // Only the newest state may answer a check.
        let asked = Asked { ticket, follows, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
        cx.submit(group, asked, &Request::Command(&command));
    }

    /// Takes a group's answer to a wait's question.
    pub(crate) fn answered(
        &mut self,
        cx: &mut Context,
        group: u16,
        number: u64,
        result: Outcome,
        reply: &[u8],
    ) {
        if is_spread(number) {
            return self.noted(cx, group, number, result, reply);
        }
        if self.settle_answered(cx, number, result) {
            return;
        }
        let Some(wait) = self.get_mut(number) else { return };
        let Some(question) = wait.question.take() else { return };
        wait.is_uncertain |= question == Question::Ask && result == Outcome::Unknown;
        let is_refused = match result {
            Outcome::Done { .. } => matches!(Reply::first(reply), Reply::Error(_)),
            result => result == Outcome::Refused,
        };
        match (&wait.stage, question) {
            (_, Question::Withdraw) => self.withdrawal_answered(cx, number, result),
            (Stage::Waiting(_), _) if wait.is_for_elements() => {
                self.elements_answered(cx, number, question, result, reply);
            }
            (Stage::Waiting(_), _) => self.lock_answered(cx, number, result, reply),
            // The request was never submitted, or refused for good: there is nothing to withdraw.
            (_, Question::Ask | Question::Read) if is_refused && !wait.is_uncertain && !wait.was_queued => {
                self.forget(number);
            }
            _ => self.ask(cx, number, Question::Withdraw, false),
        }
    }

    /// Takes a group's answer about a lock for which a client waits.
    fn lock_answered(&mut self, cx: &mut Context, number: u64, result: Outcome, reply: &[u8]) {
        let Some(waiting) = self.waiting_mut(number) else { return };
        match (result, Reply::first(reply)) {
            (Outcome::Done { offset, .. }, Reply::Integer(token)) => {
                self.grant(cx, number, token as Version, offset);
            }
            (Outcome::Done { .. }, Reply::Status(QUEUED)) => self.queued(cx, number, Question::Check),
            // The group does not know the request.
            (Outcome::Done { .. }, Reply::Null) => {
                waiting.progress = Progress::Asking;
                self.ask(cx, number, Question::Ask, false);
            }
            (Outcome::Done { .. }, Reply::Error(error)) => {
                self.end(cx, number, |replies| replies.push(Reply::Error(error)));
            }
            (_, first) => self.try_again(cx, number, first),
        }
    }

    /// A request is queued. If it was notified since it was submitted, its group is asked `again`.
    fn queued(&mut self, cx: &mut Context, number: u64, again: Question) {
        let check_us = self.get_mut(number).map_or(CHECK_US, |wait| wait.check_us());
        let Some(waiting) = self.waiting_mut(number) else { return };
        waiting.progress = Progress::Queued;
        let was_notified = std::mem::take(&mut waiting.was_notified);
        let due_us = waiting.ends_us.min(cx.now.monotonic_us + check_us);
        self.look_at(number, due_us);
        if was_notified {
            self.ask(cx, number, again, false);
        }
    }

    /// A question has no outcome, or was refused for now: it is asked again.
    fn try_again(&mut self, cx: &Context, number: u64, first: Reply<'_>) {
        let retry_us = cx.now.monotonic_us + RETRY_US;
        let Some(waiting) = self.waiting_mut(number) else { return };
        if let Reply::Error(error) = first {
            waiting.error = error.to_vec();
        }
        let due_us = match waiting.progress {
            Progress::Ending => retry_us,
            Progress::Asking | Progress::Queued => waiting.ends_us.min(retry_us),
        };
        self.look_at(number, due_us);
    }

    /// Takes a group's answer to a withdrawal.
    fn withdrawal_answered(&mut self, cx: &mut Context, number: u64, result: Outcome) {
        let now_us = cx.now.monotonic_us;
        let Some(wait) = self.get_mut(number) else { return };
        let (group, may_be_asked_for) = (wait.group, wait.is_uncertain && wait.is_for_elements());
        let is_unknown = matches!(wait.want, Want::Served);
        let Stage::Leaving(leaving) = &mut wait.stage else { return };
        match result {
            Outcome::Done { .. } if std::mem::take(&mut leaving.again) => {
                self.ask(cx, number, Question::Withdraw, false);
            }
            Outcome::Done { .. } if may_be_asked_for => self.linger(cx, number),
            // The awaited record may still be applied.
            Outcome::Done { .. }
                if let Some(until_us) = leaving.lingers_until_us.filter(|it| *it > now_us) =>
            {
                self.look_at(number, until_us);
            }
            Outcome::Done { .. } if is_unknown => {
                // The elements that it has claimed belong to its client.
                self.forget(number);
                self.settle(cx, group, number);
            }
            Outcome::Done { .. } => self.forget(number),
            // If the withdrawal were given up, a request without a client would stay in the queue: of elements
            // forever.
            _ => {
                let due_us = now_us + (RETRY_US << leaving.failures);
                leaving.failures = (leaving.failures + 1).min(WITHDRAWAL_DOUBLINGS);
                self.look_at(number, due_us);
            }
        }
    }

    /// The client of a wait has got the lock.
    fn grant(&mut self, cx: &mut Context, number: u64, token: Version, offset: Version) {
        let Some(wait) = self.remove(number) else { return };
        if wait.is_uncertain {
            self.remember_unsettled(number, Some(token));
        }
        let Some(waiting) = wait.waiting() else { return };
        let mut replies = ReplyBuffer::new();
        replies.integer(token as i64);
        let done = Outcome::Done { version: token, offset };
        self.answer(cx, waiting.ticket, wait.group, done, replies);
    }

    /// Ends a wait without the lock, when it is certain that the group has nothing of it left.
    fn end(&mut self, cx: &mut Context, number: u64, write: impl FnOnce(&mut ReplyBuffer)) {
        let Some(wait) = self.get_mut(number) else { return };
        let (ticket, group) = (wait.waiting().map(|waiting| waiting.ticket), wait.group);
        self.forget(number);
        if let Some(ticket) = ticket {
            let mut replies = ReplyBuffer::new();
            write(&mut replies);
            self.answer(cx, ticket, group, Outcome::Done { version: 0, offset: 0 }, replies);
        }
    }

    fn answer(&mut self, cx: &mut Context, ticket: Ticket, group: u16, result: Outcome, reply: ReplyBuffer) {
        if let Some(session) = cx.clients.sessions.get_mut(ClientId::from_bits(ticket.client)) {
            session.wait = None;
        }
        cx.complete_with(ticket, group, result, reply);
    }

    fn forget(&mut self, number: u64) {
        if let Some(wait) = self.remove(number)
            && wait.is_uncertain
        {
            self.remember_unsettled(number, None);
        }
    }

    /// The client of a wait has disconnected: the wait leaves.
    pub(crate) fn leave(&mut self, cx: &mut Context, number: u64) {
        if is_spread(number) {
            return self.leave_spread(cx, number);
        }
        let is_crowded = self.len() > WAITS_MAX;
        let Some(wait) = self.get_mut(number) else { return };
        wait.was_queued |= matches!(wait.progress(), Some(Progress::Queued | Progress::Ending));
        wait.stage = Stage::Leaving(Leaving::default());
        let is_nothing_left = wait.question.is_none() && !wait.is_uncertain && !wait.was_queued;
        if is_crowded || is_nothing_left {
            wait.is_uncertain |= !is_nothing_left;
            return self.forget(number);
        }
        // The outcome of the last question comes first. It always comes: the question has a deadline.
        let is_free = wait.question.is_none();
        self.look_at(number, u64::MAX);
        if is_free {
            self.ask(cx, number, Question::Withdraw, false);
        }
    }

    /// Ends a wait that has lasted long enough: answers the client, and withdraws the request.
    pub(crate) fn give_up(&mut self, cx: &mut Context, number: u64, error: &[u8]) {
        if is_spread(number) {
            return match error {
                [] => self.leave_spread(cx, number),
                error => self.end_spread(cx, number, Some(error)),
            };
        }
        let Some(wait) = self.get_mut(number) else { return };
        let ticket = wait.waiting().map(|waiting| waiting.ticket);
        let (group, is_for_elements) = (wait.group, wait.is_for_elements());
        self.leave(cx, number);
        if let Some(ticket) = ticket {
            let mut replies = ReplyBuffer::new();
            match error {
                [] if is_for_elements => replies.push(Reply::NullArray),
                [] => replies.null(),
                error => replies.push(Reply::Error(error)),
            }
            self.answer(cx, ticket, group, Outcome::Refused, replies);
        }
    }

    /// Handles the waits that are due.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        self.settle_due(cx);
        while let Some(number) = self.take_due(now_us) {
            if is_spread(number) {
                self.spread_due(cx, number);
                continue;
            }
            let Some(wait) = self.get_mut(number) else { continue };
            let (group, is_for_elements) = (wait.group, wait.is_for_elements());
            let (is_free, claims) = (wait.question.is_none(), wait.claims_after_us().is_some());
            let question = match &mut wait.stage {
                Stage::Leaving(_) => Question::Withdraw,
                Stage::Settling => {
                    self.remove(number);
                    self.settle(cx, group, number);
                    continue;
                }
                Stage::Waiting(waiting) if waiting.ends_us > now_us => {
                    let (ends_us, progress) = (waiting.ends_us, waiting.progress);
                    self.look_at(number, ends_us);
                    match progress {
                        Progress::Asking => Question::Ask,
                        // What it may claim becomes old without any record.
                        Progress::Queued if claims => Question::Ask,
                        Progress::Queued | Progress::Ending => Question::Check,
                    }
                }
                Stage::Waiting(_) if is_for_elements => {
                    self.end_of_time(cx, number);
                    continue;
                }
                Stage::Waiting(waiting) => {
                    // A null reply would mean that another client holds the lock, which is not known.
                    let is_asking = waiting.progress == Progress::Asking;
                    let error = if is_asking { std::mem::take(&mut waiting.error) } else { Vec::new() };
                    self.give_up(cx, number, &error);
                    continue;
                }
            };
            if is_free {
                self.ask(cx, number, question, false);
            }
        }
    }

    /// A notification of a queued request may have been lost: checks the state of these requests.
    pub(crate) fn check(&mut self, cx: &mut Context, concerns: impl Fn(u16) -> bool) {
        let now_us = cx.now.monotonic_us;
        for number in self.numbers(|wait| wait.progress() == Some(Progress::Queued) && concerns(wait.group)) {
            self.look_at(number, now_us);
        }
        self.check_spreads(cx, concerns);
    }

    /// Passes on a replica's notice about waits.
    pub(crate) fn notice(&mut self, cx: &mut Context, group: u16, notice: Notice) {
        match notice {
            Notice::Skipped => self.check(cx, |other| other == group),
            Notice::LockNotified { waiter, name, notification, offset } => {
                let (life, number) = (waiter.life, waiter.number.get());
                let notified = LockNotified { life, number, name: &name, notification, offset };
                if waiter.node == cx.configuration.node {
                    return self.notified(cx, group, notified);
                }
                cx.peers.send(waiter.node, &Envelope::LockNotified { group, notified });
            }
        }
    }

    /// Takes a notification from a record about a request that waits here, or did.
    pub(crate) fn notified(&mut self, cx: &mut Context, group: u16, notified: LockNotified<'_>) {
        let LockNotified { life, number, name, notification, offset } = notified;
        if life != self.life() {
            return; // It may have been sent before that incarnation ended.
        }
        let now_us = cx.now.monotonic_us;
        if notification == LockNotification::Served {
            return self.served(cx, group, number);
        }
        let hold = self.get_mut(number).and_then(|wait| wait.want.hold());
        let is_doubtful = hold.is_some_and(|hold| self.is_doubtful(hold, now_us));
        let Some(wait) = self.get_mut(number) else {
            if let LockNotification::Granted(token) = notification
                && self.is_unwanted_grant(number, token)
            {
                self.put(number, Wait::leaving(group, Want::without_client(name)));
                self.ask(cx, number, Question::Withdraw, false);
            }
            return;
        };
        match (notification, &mut wait.stage) {
            (LockNotification::Granted(_), Stage::Leaving(leaving)) => {
                leaving.again |= wait.question == Some(Question::Withdraw);
            }
            // The awaited answer will also report the grant, or the end of the request. If the client were answered
            // now, it could release the lock before the record is applied that asks for the lock once more.
            (LockNotification::Granted(_), Stage::Waiting(waiting)) if wait.question.is_some() => {
                waiting.was_notified = true;
            }
            // This grant may be over, and another client may hold the lock: the node may have read the notification
            // late, or the request was submitted more than once, and the notification may be of an earlier grant.
            (LockNotification::Granted(_), Stage::Waiting(waiting)) if is_doubtful || wait.is_uncertain => {
                waiting.progress = Progress::Queued;
                self.ask(cx, number, Question::Check, false);
            }
            (LockNotification::Granted(token), Stage::Waiting(_)) => self.grant(cx, number, token, offset),
            (_, Stage::Leaving(_) | Stage::Settling) | (LockNotification::Served, _) => {}
            (LockNotification::SessionOver, _) => self.end(cx, number, |replies| {
                replies.error("NOSESSION the session is over; the request waits no longer");
            }),
            (LockNotification::Superseded, _) => self.end(cx, number, ReplyBuffer::null),
            (LockNotification::Dropped, Stage::Waiting(waiting)) => {
                waiting.progress = Progress::Asking;
                let due_us = waiting.ends_us.min(now_us + DROPPED_RETRY_US);
                self.look_at(number, due_us);
            }
        }
    }

    /// Where this node leads, ends the waits of clients of a node's earlier incarnations.
    pub(crate) fn drop_waiters_of_old_incarnations(&mut self, cx: &mut Context) {
        let own = (cx.configuration.node, self.life());
        let peers = cx.peers.iter().filter_map(|(id, peer)| Some((id, peer.life()?)));
        let lives: Vec<(NodeId, u64)> = peers.chain([own]).collect();
        let mut place = 0;
        while let Some(group) = cx.groups.active_at(place) {
            place += 1;
            let Some(replica) = cx.groups[group].replica.as_ref().filter(|it| it.is_leader()) else {
                continue;
            };
            let (locks, queues) = (replica.table().locks(), replica.table().queues());
            if (locks.waiters(), queues.waiters(), queues.unsettled()) == (0, 0, 0) {
                continue;
            }
            let is_over = |(id, life): &&(NodeId, u64)| {
                locks.has_waiters_of_other_lives(*id, *life) || queues.has_requests_of_other_lives(*id, *life)
            };
            for (id, life) in lives.iter().filter(is_over).copied().collect::<Vec<_>>() {
                let command =
                    Command::Lock(LockCommand::DropWaiters { node: id, spared: Padded(Some(life)) });
                // The outcome is ignored: whatever was not done is tried again.
                let ticket = Origin::Unawaited.ticket(0);
                let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
                let asked = Asked { ticket, follows: false, seen: 0, deadline_us, hops: 0, leadership: 0 };
                cx.submit(group, asked, &Request::Command(&command));
            }
        }
    }

    /// Ends the waits of all clients, before the node stops.
    pub(crate) fn stop(&mut self, cx: &mut Context) {
        let error = format!(
            "CLUSTERDOWN NOLEADER node {} is about to stop; the request waits no longer, try again elsewhere",
            cx.configuration.node
        );
        let numbers = self.numbers(|wait| wait.waiting().is_some());
        for number in numbers.into_iter().chain(self.spreads.keys().copied().collect::<Vec<_>>()) {
            self.give_up(cx, number, error.as_bytes());
        }
    }
}
