//! `BLPOP` and similar commands: clients that wait for elements of lists and sorted sets.

use super::Waits;
use super::wait::{KeptWish, Leaving, Progress, Question, Stage, Wait, Want, is_spread};
use crate::context::Context;
use crate::session::ClientId;
use crate::session::origin::{Asked, Origin};
use kv::command::WISH_BYTES_MAX;
use kv::locks::QUEUED;
use kv::queues::SERVED;
use kv::{Command, QueueCommand, Reply, ReplyBuffer, Version, Wish};
use protocol::{Request, Result as Outcome};

/// How long the numbers of requests to be settled are gathered, and how many at most.
const SETTLE_AFTER_US: u64 = 50_000;
const SETTLED_AT_ONCE: usize = 1000;

/// How long a request is kept whose records may still take effect: much longer than any of them is under way.
const LINGER_US: u64 = 60_000_000;

const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";
pub(super) const NOT_LOOKED: &[u8] =
    b"CLUSTERDOWN NOLEADER no leader has looked for an element in time; nothing was taken, try again";
const UNKNOWN_TAKE: &[u8] = b"UNKNOWN no leader has said in time whether an element was taken";

/// Whether an error shows that no leader can be asked now.
pub(super) fn is_temporary(error: &[u8]) -> bool {
    let codes: [&[u8]; 4] = [b"CLUSTERDOWN", b"TRYAGAIN", b"LOADING", b"NOREPLICAS"];
    codes.iter().any(|code| error.starts_with(code))
}

impl Waits {
    /// Has a client wait until a command is served, for `wait_us` microseconds at most. Returns false if the group of
    /// its keys has no leader: registers refuse the command, with the reason.
    pub(crate) fn wait_for_elements(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        command: &Command<'_>,
        wait_us: u64,
    ) -> bool {
        let mut scratch = Vec::new();
        let group = cx.group_of(client, command);
        if group.is_some_and(|group| !cx.groups[group].keyspace.has_leader()) {
            return false;
        }
        match (Wish::build(command, &mut scratch), group) {
            (Some(wish), Some(group)) => {
                self.wait(cx, client, group, Want::Elements(KeptWish::new(wish)), wait_us);
            }
            (Some(wish), None) => self.wait_over_groups(cx, client, wish, wait_us),
            (None, _) => cx.answer(client, |replies| {
                let most = WISH_BYTES_MAX;
                replies.error(&format!("ERR the keys of a command that waits may have at most {most} bytes"));
            }),
        }
        true
    }

    /// Takes a group's answer about a request whose client waits.
    pub(super) fn elements_answered(
        &mut self,
        cx: &mut Context,
        number: u64,
        question: Question,
        result: Outcome,
        reply: &[u8],
    ) {
        let Some(wait) = self.get_mut(number) else { return };
        let is_new = wait.is_new();
        let Some(waiting) = wait.waiting_mut() else { return };
        let is_ending = waiting.progress == Progress::Ending;
        match (result, Reply::first(reply)) {
            (Outcome::Done { .. }, Reply::Status(QUEUED)) if is_ending => {
                self.ask(cx, number, Question::Conclude, false);
            }
            (Outcome::Done { .. }, Reply::Status(QUEUED)) => {
                wait.was_queued = true;
                self.queued(cx, number, Question::Ask);
            }
            (Outcome::Done { .. }, Reply::Status(SERVED)) => self.ask(cx, number, Question::Ask, false),
            // The group does not know the request.
            (Outcome::Done { .. }, Reply::Null) if question == Question::Check => {
                waiting.progress = Progress::Asking;
                self.ask(cx, number, Question::Ask, false);
            }
            (Outcome::Done { .. }, Reply::NullArray) if question == Question::Read && !is_ending => {
                self.ask(cx, number, Question::Ask, false);
            }
            (Outcome::Done { .. }, _) => self.deliver(cx, number, (question, result), reply),
            // Nothing was done, and that will not change soon, for example for lack of memory.
            (Outcome::Refused, Reply::Error(error))
                if matches!(question, Question::Ask | Question::Read) && is_new && !is_temporary(error) =>
            {
                self.end(cx, number, |replies| replies.push(Reply::Error(error)));
            }
            (_, first) => self.try_again(cx, number, first),
        }
    }

    /// Answers the client with what it was served, or with nothing if there was nothing.
    fn deliver(
        &mut self,
        cx: &mut Context,
        number: u64,
        (question, result): (Question, Outcome),
        reply: &[u8],
    ) {
        let Some(wait) = self.remove(number) else { return };
        let Some(waiting) = wait.waiting() else { return };
        let is_nothing = matches!(Reply::first(reply), Reply::NullArray | Reply::Null);
        // A null reply reports that there was nothing, so the group must have looked.
        let has_looked = Reply::first(reply) != Reply::Null || wait.was_queued;
        let mut replies = ReplyBuffer::new();
        match is_nothing {
            true if waiting.ends_with_error => replies.push(Reply::Error(UNBLOCKED)),
            true if !has_looked => replies.push(Reply::Error(NOT_LOOKED)),
            true => replies.push(Reply::NullArray),
            false => replies.extend_encoded(reply),
        }
        // The group also keeps errors, for readers whose stream was deleted. It keeps nothing of what was read
        // without waiting.
        let is_kept = question != Question::Read && (wait.was_queued || !ReplyBuffer::is_error(reply));
        let (group, is_served) = (wait.group, !is_nothing && is_kept);
        self.answer(cx, waiting.ticket, group, result, replies);
        match wait.is_uncertain {
            true => {
                let stage = if is_served { Stage::Settling } else { Stage::Leaving(Leaving::default()) };
                self.put(number, Wait { stage, ..wait });
                self.linger(cx, number);
            }
            // The group also keeps that a request was concluded with nothing.
            false if is_served || question == Question::Conclude => self.settle(cx, group, number),
            false => {}
        }
    }

    /// Keeps a request that has ended, until no record that asks for it can be under way.
    pub(super) fn linger(&mut self, cx: &Context, number: u64) {
        let until_us = cx.now.monotonic_us + LINGER_US;
        let Some(wait) = self.get_mut(number) else { return };
        wait.is_uncertain = false;
        if let Stage::Leaving(leaving) = &mut wait.stage {
            leaving.lingers_until_us = Some(until_us);
        }
        self.look_at(number, until_us);
    }

    /// The time of a request is over. What it was served by then still belongs to its client.
    pub(super) fn end_of_time(&mut self, cx: &mut Context, number: u64) {
        let now_us = cx.now.monotonic_us;
        let most_us = cx.configuration.command_timeout_ms * 1000;
        let Some(wait) = self.get_mut(number) else { return };
        let is_free = wait.question.is_none();
        let (was_never_taken, only_reads) = (is_free && wait.is_new(), wait.only_reads());
        let Some(waiting) = wait.waiting_mut() else { return };
        let gives_up_us = waiting.ends_us.saturating_add(most_us);
        if was_never_taken || now_us >= gives_up_us {
            // A null reply would mean that nothing was taken. What was taken goes back, unless this node dies before.
            let may_have_taken = !was_never_taken && !only_reads;
            let error = match may_have_taken {
                true => UNKNOWN_TAKE.to_vec(),
                false if waiting.ends_with_error => UNBLOCKED.to_vec(),
                false => std::mem::take(&mut waiting.error),
            };
            return self.give_up(cx, number, &error);
        }
        waiting.progress = Progress::Ending;
        self.look_at(number, gives_up_us);
        if is_free {
            self.ask(cx, number, Question::Conclude, false);
        }
    }

    /// `CLIENT UNBLOCK`: ends a request, as if its time was over or with an error.
    pub(crate) fn unblock(&mut self, cx: &mut Context, number: u64, with_error: bool) {
        if is_spread(number) {
            return self.end_spread(cx, number, with_error.then_some(UNBLOCKED));
        }
        let now_us = cx.now.monotonic_us;
        let Some(wait) = self.get_mut(number) else { return };
        if !wait.is_for_elements() {
            return self.give_up(cx, number, if with_error { UNBLOCKED } else { b"" });
        }
        let Some(waiting) = wait.waiting_mut() else { return };
        waiting.ends_with_error = with_error;
        waiting.ends_us = waiting.ends_us.min(now_us);
        self.look_at(number, now_us);
    }

    /// Takes the notification that a request of this node was served.
    pub(super) fn served(&mut self, cx: &mut Context, group: u16, number: u64) {
        if is_spread(number) {
            return self.woken(cx, group, number);
        }
        let Some(wait) = self.get_mut(number) else {
            // The client has got another answer, or the elements that it has claimed. A withdrawal that is refused is
            // tried again.
            self.put(number, Wait::leaving(group, Want::Served));
            return self.ask(cx, number, Question::Withdraw, false);
        };
        match (&mut wait.stage, wait.question) {
            (Stage::Settling, _) => {}
            (Stage::Leaving(_), None) => self.ask(cx, number, Question::Withdraw, false),
            (Stage::Leaving(leaving), Some(_)) => leaving.again = true,
            (Stage::Waiting(_), None) => self.ask(cx, number, Question::Ask, false),
            // The awaited outcome may be from before the notification.
            (Stage::Waiting(waiting), Some(_)) => waiting.was_notified = true,
        }
    }

    // Settling.

    /// Has the group forget what a request was served, since its client has the answer.
    pub(super) fn settle(&mut self, cx: &Context, group: u16, number: u64) {
        let numbers = self.to_settle.entry(group).or_default();
        numbers.push(number);
        let is_enough = numbers.len() >= SETTLED_AT_ONCE;
        let due_us = if is_enough { 0 } else { cx.now.monotonic_us + SETTLE_AFTER_US };
        self.settle_us = self.settle_us.min(due_us);
    }

    /// Submits the settlements that are due.
    pub(super) fn settle_due(&mut self, cx: &mut Context) {
        if self.settle_us > cx.now.monotonic_us {
            return;
        }
        self.settle_us = u64::MAX;
        let (node, life) = (cx.configuration.node, self.life());
        for (group, numbers) in std::mem::take(&mut self.to_settle) {
            if cx.groups.get(group).is_none() {
                continue;
            }
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let batch = self.next_number();
            self.settling.insert(batch, (group, numbers));
            let command = QueueCommand::Settle { node, life, numbers: &bytes };
            let ticket = Origin::Wait.ticket(batch);
            let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
            let asked =
                Asked { ticket, follows: false, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
            cx.submit(group, asked, &Request::Command(&Command::Queue(command)));
        }
    }

    /// Takes the outcome of settling. Returns whether `batch` was a settlement.
    pub(super) fn settle_answered(&mut self, cx: &Context, batch: u64, result: Outcome) -> bool {
        let Some((group, numbers)) = self.settling.remove(&batch) else { return false };
        if !matches!(result, Outcome::Done { .. }) && cx.groups.get(group).is_some() {
            numbers.into_iter().for_each(|number| self.settle(cx, group, number));
        }
        true
    }
}
