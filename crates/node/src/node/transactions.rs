//! `MULTI`, `EXEC`, `WATCH` and their kin, as a client sends them: see [`crate::transactions`].

use super::Node;
use crate::command::{self, Found, Handler, TransactionCommand};
use crate::context::memory::OUT_OF_MEMORY;
use crate::session::ClientId;
use crate::session::{Gathered, Item, Pending};
use crate::transactions::{CROSSSLOT, NOT_ALLOWED, gather, has_key, watch};
use kv::codec::Reader;
use kv::{Command, Reply, ReplyBuffer};
use protocol::{Request, Result as Outcome, Ticket};
use wire::resp::Arguments;
use wire::resp::reply::element_end;

impl Node {
    pub(crate) fn transaction_command(
        &mut self,
        client: ClientId,
        command: TransactionCommand,
        arguments: Arguments<'_>,
    ) {
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        let is_open = session.is_gathering();
        let refusal = match command {
            TransactionCommand::Multi if is_open => "ERR MULTI calls can not be nested",
            TransactionCommand::Watch if is_open => "ERR WATCH inside MULTI is not allowed",
            TransactionCommand::Exec if !is_open => "ERR EXEC without MULTI",
            TransactionCommand::Discard if !is_open => "ERR DISCARD without MULTI",
            TransactionCommand::Multi => {
                session.transaction.get_or_insert_default().is_open = true;
                return self.cx.answer(client, ReplyBuffer::ok);
            }
            TransactionCommand::Discard | TransactionCommand::Unwatch => {
                session.end_transaction();
                return self.cx.answer(client, ReplyBuffer::ok);
            }
            TransactionCommand::Watch => return self.watch(client, arguments),
            TransactionCommand::Exec => return self.exec(client),
        };
        self.cx.answer(client, |replies| replies.error(refusal));
    }

    /// Queues a request after `MULTI`.
    pub(crate) fn queue(&mut self, client: ClientId, found: Found, arguments: Arguments<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let queued = gather(&mut self.cx, &mut self.scripts, client, found, arguments, &mut scratch);
        self.scratch = scratch;
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        match queued {
            Ok(()) => self.cx.answer(client, |replies| replies.push(Reply::Status(b"QUEUED"))),
            Err(error) => {
                session.break_transaction();
                self.cx.answer(client, |replies| replies.error(&error));
            }
        }
    }

    fn watch(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let mut scratch = Vec::new();
        if let Some((group, keys)) = watch(&mut self.cx, client, arguments, &mut scratch) {
            self.ask(client, group, false, &Request::Command(Command::Watch { keys }));
        }
    }

    fn exec(&mut self, client: ClientId) {
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        let has_versions = !session.is_awaiting_versions();
        let Some(gathered) = session.end_transaction() else { return };
        let Gathered { is_broken, is_lost, draft, items, origin, .. } = *gathered;
        if is_broken {
            let error = "EXECABORT Transaction discarded because of previous errors.";
            return self.cx.answer(client, |replies| replies.error(error));
        }
        let is_watching = draft.watched_len() > 0;
        let transaction = draft.transaction();
        let whole = Command::Transaction(transaction);
        // Scripts may have no keys.
        let group =
            if has_key(&whole) { self.cx.group_of(&whole) } else { Some(self.cx.router.default_group()) };
        // Check this first: a transaction that spans groups can never succeed, while an abort makes the client try
        // again.
        let Some(group) = group else {
            return self.cx.answer(client, |replies| replies.error(CROSSSLOT));
        };
        // The keys may have moved to another group since, which knows nothing of their versions.
        let has_moved = origin.is_some_and(|(watched_in, _)| group != watched_in);
        if is_lost || !has_versions || has_moved {
            return self.cx.answer(client, |replies| replies.push(Reply::NullArray));
        }
        if draft.is_empty() && !is_watching {
            let replies = self.exec_replies(client, &items, &[]);
            return self.cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
        }
        let single = transaction.commands().next().filter(|_| transaction.len() == 1 && !is_watching);
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            session.expect(Pending::Exec { items, alone: single.is_some() });
        }
        let request = Request::Command(single.unwrap_or(whole));
        if is_watching {
            self.ask_afresh(client, group, &request)
        } else {
            self.ask(client, group, false, &request)
        }
    }

    /// Handles the outcome of a request that is not simply its reply.
    pub(crate) fn complete_pending(
        &mut self,
        client: ClientId,
        pending: Pending,
        ticket: Ticket,
        group: u16,
        (result, reply): (Outcome, &[u8]),
    ) {
        let Outcome::Done { version, .. } = result else {
            // The keys are not watched, and the client may not have seen that when it sends EXEC.
            if let Pending::Watch { generation, .. } = pending
                && let Some(gathered) = self.gathered(client, generation)
            {
                gathered.is_lost = true;
            }
            if matches!(pending, Pending::Exec { .. }) && is_out_of_memory(reply) {
                let error = format!("EXECABORT Transaction discarded because of: {OUT_OF_MEMORY}");
                return self.complete_with_error(ticket, group, result, &error);
            }
            return self.complete(ticket, group, result, reply);
        };
        let mut replies = ReplyBuffer::new();
        match pending {
            Pending::Watch { generation, keys } => {
                if let Some(gathered) = self.gathered(client, generation)
                    && !gathered.take_versions((group, version), &keys, reply)
                {
                    gathered.is_lost = true;
                }
                replies.ok();
            }
            Pending::Instead(instead) => {
                let is_there = !matches!(Reply::first(reply), Reply::Null | Reply::Error(_));
                replies.extend_encoded(if is_there { &instead } else { reply });
            }
            Pending::Exec { items, alone: true } => replies = self.exec_replies(client, &items, reply),
            // Elements of the group alone: its reply is the client's.
            Pending::Exec { items, alone: false } if items.iter().all(|item| matches!(item, Item::Data)) => {
                return self.complete(ticket, group, result, reply);
            }
            Pending::Exec { items, alone: false } => {
                let mut elements = Reader::new(reply);
                match Reply::decode(&mut elements) {
                    Ok(Reply::Array(_)) => replies = self.exec_replies(client, &items, elements.rest()),
                    _ => replies.extend_encoded(reply),
                }
            }
        }
        self.complete_with(ticket, group, result, replies);
    }

    /// What the client has queued, if it is still the same transaction.
    fn gathered(&mut self, client: ClientId, generation: u64) -> Option<&mut Gathered> {
        let session =
            self.cx.clients.sessions.get_mut(client).filter(|session| session.generation == generation)?;
        session.transaction.as_deref_mut()
    }

    /// Makes the answer to `EXEC`: `elements` are the group's replies, one after the other. Each confirmation of `SUBSCRIBE`
    /// and its kin is an element, so there may be more than items.
    fn exec_replies(&mut self, client: ClientId, items: &[Item], mut elements: &[u8]) -> ReplyBuffer {
        let mut replies = ReplyBuffer::new();
        replies.array(items.len());
        let (head, mut further) = (replies.len(), 0);
        for item in items {
            match item {
                Item::Answered(reply) => replies.extend_encoded(reply),
                Item::Data => {
                    // A peer's reply was checked to be whole when it arrived.
                    let (element, rest) = elements.split_at(element_end(elements).unwrap_or(0));
                    replies.extend_encoded(element);
                    elements = rest;
                }
                Item::Node(arguments) => {
                    let before = self.cx.clients.capture(Some(ReplyBuffer::new()));
                    self.carry_out(client, arguments.as_arguments());
                    let captured = self.cx.clients.capture(before).unwrap_or_default();
                    match captured.is_empty() {
                        true => replies.error(NOT_ALLOWED),
                        false => {
                            further += count_of(captured.as_bytes()) - 1;
                            replies.extend_encoded(captured.as_bytes());
                        }
                    }
                }
            }
        }
        if further > 0 {
            let elements = replies.as_bytes()[head..].to_vec();
            replies.clear();
            replies.array(items.len() + further);
            replies.extend_encoded(&elements);
        }
        replies
    }

    fn carry_out(&mut self, client: ClientId, arguments: Arguments<'_>) {
        if let Ok(found) = command::find(arguments)
            && let Handler::Node(command) = found.spec.handler
        {
            self.node_request(client, command, found, arguments);
        }
    }
}

/// How many replies stand one behind the other.
fn count_of(mut replies: &[u8]) -> usize {
    let mut count = 0;
    while !replies.is_empty() {
        replies = &replies[element_end(replies).unwrap_or(replies.len())..];
        count += 1;
    }
    count
}

/// Whether a group had no room for a transaction.
fn is_out_of_memory(reply: &[u8]) -> bool {
    matches!(Reply::first(reply), Reply::Error(error) if error == OUT_OF_MEMORY.as_bytes())
}
