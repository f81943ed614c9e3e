//! Finishing: the node that asked a group completes an answer that lacks the bytes of large values.
//!
//! A read is answered with references: the values are fetched and put in. If a value's fragments are gone, because it
//! was overwritten long ago or its replicas have restarted since, the group is asked again: a later read within the
//! same command.
//!
//! A write that needs bytes has done nothing. The values are fetched and put into the table, as far as the keys still
//! hold them, and the write is submitted again. Meanwhile the node takes no other command of its client.

use super::{Coding, Operation};
use crate::context::Context;
use crate::origin::Asked;
use crate::origin::Origin;
use crate::session::ClientId;
use crate::slab::Handle;
use crate::unfinished::{put_in, take_apart};
use kv::SharedBytes;
use kv::codec::Reader;
use kv::{Command, Reference, Reply, ReplyBuffer, ValueId, ValueRef, View};
use protocol::{Request, Result as Outcome, Ticket};
use std::collections::BTreeMap;

/// A value of at least this length is not copied to the clients that asked for it, but written from where it is.
const SHARED_BYTES_MIN: usize = 256 << 10;

/// How long to wait before the group is asked again.
const PAUSE_US: u64 = 10_000;

/// The steps of an operation, as its tickets name them.
const ASK_AGAIN: u64 = 1;
const INLINE: u64 = 2;

const GONE: &str =
    "CLUSTERDOWN NOQUORUM too few fragments of a value can be reached; nothing was done, try again";
const UNFIT: &str = "ERR the values would take more than a reply may hold; nothing was done";
const OVERTAKEN: &str = "TRYAGAIN NOQUORUM a value was overwritten while it was read, by a later command of this client perhaps; try again";

/// A reply that lacks values.
#[derive(Debug)]
pub(super) struct Finishing {
    client: Ticket,
    group: u16,
    /// The command to submit again.
    command: Vec<u8>,
    result: Outcome,
    unfinished: Unfinished,
    /// All values that it needs; None until a value is here.
    values: BTreeMap<ValueId, Option<SharedBytes>>,
    deadline_us: u64,
    /// When the group is asked again; None while something else is awaited.
    asks_at_us: Option<u64>,
}

#[derive(Debug)]
enum Unfinished {
    /// The reply of a read, with references in the place of values.
    Read(Vec<u8>),
    /// The keys whose values a write needs.
    Write(Vec<(Vec<u8>, Reference)>),
    /// The values are being put in the place of references: this many outcomes are awaited.
    Inlining(usize),
}

/// Returns a value that is here.
fn whole<'v>(values: &'v BTreeMap<ValueId, Option<SharedBytes>>, reference: &Reference) -> Option<&'v [u8]> {
    Some(values.get(&reference.id)?.as_ref()?)
}

impl Finishing {
    /// Begins with a group's answer, which must not expand to more than `bytes_max` bytes. Returns false if that answer
    /// cannot be finished.
    fn take(&mut self, result: Outcome, reply: &[u8], bytes_max: usize) -> bool {
        let Some(parts) = take_apart(reply, bytes_max) else { return false };
        self.command = parts.command.to_vec();
        self.result = result;
        self.values = parts.references.iter().map(|reference| (reference.id, None)).collect();
        self.unfinished = if parts.is_read {
            Unfinished::Read(parts.element.to_vec())
        } else if parts.keys.len() == parts.references.len() {
            let keys = parts.keys.iter().map(|key| key.to_vec());
            Unfinished::Write(keys.zip(parts.references).collect())
        } else {
            return false;
        };
        true
    }

    fn references(&self) -> Vec<Reference> {
        match &self.unfinished {
            Unfinished::Read(element) => {
                let mut reader = Reader::new(element);
                let mut references = BTreeMap::new();
                while let Ok(reply) = Reply::decode(&mut reader) {
                    if let Reply::Reference(value) = reply
                        && let Ok(ValueRef { reference, .. }) = ValueRef::decode(value)
                    {
                        references.insert(reference.id, reference);
                    }
                }
                references.into_values().collect()
            }
            Unfinished::Write(needs) => {
                let by_id: BTreeMap<ValueId, Reference> =
                    needs.iter().map(|(_, reference)| (reference.id, *reference)).collect();
                by_id.into_values().collect()
            }
            Unfinished::Inlining(_) => Vec::new(),
        }
    }
}

impl Coding {
    /// Holds back a client's later commands behind one that may need bytes of large values: it may be submitted twice,
    /// and they must not overtake it.
    pub(crate) fn hold_back_behind(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        group: u16,
        command: &Command<'_>,
    ) {
        let target = &cx.groups[group];
        if (target.coding.is_some() || target.keyspace.spills())
            && command.may_need_bytes()
            && let Some(session) = cx.clients.sessions.get_mut(client)
        {
            session.close_gate();
        }
    }

    /// Finishes a client's reply that lacks values.
    pub(crate) fn finish(
        &mut self,
        cx: &mut Context,
        client: Ticket,
        group: u16,
        result: Outcome,
        reply: &[u8],
    ) {
        let Origin::Session(id) = Origin::of(client) else { return };
        let Some(session) = cx.clients.sessions.get(id) else { return };
        let timeout_us = cx.configuration.command_timeout_ms * 1000;
        let deadline_us = session.begun_us(client.sequence).unwrap_or(cx.now.monotonic_us) + timeout_us;
        let mut finishing = Finishing {
            client,
            group,
            command: Vec::new(),
            result,
            unfinished: Unfinished::Inlining(0),
            values: BTreeMap::new(),
            deadline_us,
            asks_at_us: None,
        };
        if !finishing.take(result, reply, cx.memory.reply_max()) {
            return cx.complete_with_error(client, group, Outcome::Refused, UNFIT);
        }
        // Cached values need no operation.
        if let Unfinished::Read(element) = &finishing.unfinished {
            let is_whole = finishing.values.iter_mut().all(|(id, value)| {
                *value = self.cache.get(*id);
                value.is_some()
            });
            if is_whole {
                self.counters.cache_hits += 1;
                return self.complete_whole(cx, client, group, result, element, &finishing.values);
            }
        }
        self.counters.cache_misses += 1;
        let handle = self.operations.insert(|_| Operation::Finish(finishing));
        self.fetch_for(cx, handle);
    }

    /// Replies once all values are here. A reply that is just one large value is not copied.
    fn complete_whole(
        &mut self,
        cx: &mut Context,
        client: Ticket,
        group: u16,
        result: Outcome,
        element: &[u8],
        values: &BTreeMap<ValueId, Option<SharedBytes>>,
    ) {
        let mut reader = Reader::new(element);
        if let Ok(Reply::Reference(told)) = Reply::decode(&mut reader)
            && reader.is_empty()
            && let Ok(ValueRef { reference, view: View::Whole }) = ValueRef::decode(told)
            && let Some(Some(value)) = values.get(&reference.id)
            && value.len() >= SHARED_BYTES_MIN
        {
            return cx.complete_with_value(client, group, result, value.clone());
        }
        let replies = put_in(element, |reference| whole(values, reference), GONE);
        cx.complete_with(client, group, result, replies);
    }

    fn finishing(&mut self, handle: Handle) -> Option<&mut Finishing> {
        match self.operations.get_mut(handle) {
            Some(Operation::Finish(finishing)) => Some(finishing),
            _ => None,
        }
    }

    /// Fetches every value that an operation lacks.
    fn fetch_for(&mut self, cx: &mut Context, handle: Handle) {
        let Some(finishing) = self.finishing(handle) else { return };
        let (group, references) = (finishing.group, finishing.references());
        if references.is_empty() {
            return self.finishing_whole(cx, handle);
        }
        for reference in references {
            match self.cache.get(reference.id) {
                Some(value) => self.finishing_has(cx, handle, reference.id, Some(value)),
                None => self.fetch(cx, group, reference, handle, true),
            }
        }
    }

    /// A value is here, or (None) cannot be had.
    pub(super) fn finishing_has(
        &mut self,
        cx: &mut Context,
        handle: Handle,
        id: ValueId,
        value: Option<SharedBytes>,
    ) {
        let now_us = cx.now.monotonic_us;
        let Some(finishing) = self.finishing(handle) else { return };
        let Some(place) = finishing.values.get_mut(&id).filter(|place| place.is_none()) else { return };
        if value.is_none() {
            // Others of its values may still arrive; they are no longer needed.
            finishing.values.clear();
            finishing.asks_at_us = Some(now_us + PAUSE_US);
            return self.wake_at(now_us + PAUSE_US);
        }
        *place = value;
        if finishing.values.values().all(Option::is_some) {
            self.finishing_whole(cx, handle);
        }
    }

    /// All values are here.
    fn finishing_whole(&mut self, cx: &mut Context, handle: Handle) {
        let Some(finishing) = self.finishing(handle) else { return };
        let (group, deadline_us) = (finishing.group, finishing.deadline_us);
        match &mut finishing.unfinished {
            Unfinished::Read(element) => {
                let (element, values) = (std::mem::take(element), std::mem::take(&mut finishing.values));
                let (client, result) = (finishing.client, finishing.result);
                self.operations.remove(handle);
                self.complete_whole(cx, client, group, result, &element, &values);
            }
            Unfinished::Write(needs) => {
                let needs = std::mem::take(needs);
                let values = std::mem::take(&mut finishing.values);
                finishing.unfinished = Unfinished::Inlining(needs.len());
                if cx.groups.get(group).is_none() {
                    return self.end_finishing(cx, handle, GONE);
                }
                for (key, reference) in needs {
                    let Some(Some(value)) = values.get(&reference.id) else { continue };
                    let encoded = reference.encoded();
                    let command = Command::Inline { key: &key, reference: &encoded, value };
                    let ticket = Origin::Coding(handle).ticket(INLINE);
                    let asked =
                        Asked { ticket, follows: true, seen: u64::MAX, deadline_us, hops: 0, leadership: 0 };
                    cx.submit(group, asked, &Request::Command(command));
                }
            }
            Unfinished::Inlining(_) => {}
        }
    }

    /// The group has answered a step.
    pub(super) fn finishing_answered(
        &mut self,
        cx: &mut Context,
        handle: Handle,
        step: u64,
        result: Outcome,
        reply: &[u8],
    ) {
        let now_us = cx.now.monotonic_us;
        let bytes_max = cx.memory.reply_max();
        let Some(finishing) = self.finishing(handle) else { return };
        if step == INLINE {
            // Whatever the outcome: if something is still missing, the command will report it again.
            let Unfinished::Inlining(left) = &mut finishing.unfinished else { return };
            *left = left.saturating_sub(1);
            if *left == 0 {
                finishing.asks_at_us = Some(now_us);
                self.ask_group_again(cx, handle);
            }
            return;
        }
        if !ReplyBuffer::is_unfinished(reply) {
            let (client, group) = (finishing.client, finishing.group);
            self.operations.remove(handle);
            return cx.complete(client, group, result, reply);
        }
        match finishing.take(result, reply, bytes_max) {
            true => self.fetch_for(cx, handle),
            false => self.end_finishing(cx, handle, UNFIT),
        }
    }

    fn ask_group_again(&mut self, cx: &mut Context, handle: Handle) {
        let now_us = cx.now.monotonic_us;
        let Some(finishing) = self.finishing(handle) else { return };
        finishing.asks_at_us = None;
        let (client, group, deadline_us) = (finishing.client, finishing.group, finishing.deadline_us);
        let is_read = matches!(finishing.unfinished, Unfinished::Read(_));
        let command = finishing.command.clone();
        if deadline_us <= now_us || cx.groups.get(group).is_none() {
            return self.end_finishing(cx, handle, GONE);
        }
        // A later read would show this client the effects of commands that it sent after this one.
        if is_read
            && let Origin::Session(id) = Origin::of(client)
            && cx.clients.sessions.get(id).is_some_and(|session| session.has_later(client.sequence))
        {
            return self.end_finishing(cx, handle, OVERTAKEN);
        }
        let Ok(command) = Command::decode(&mut Reader::new(&command)) else {
            return self.end_finishing(cx, handle, UNFIT);
        };
        let ticket = Origin::Coding(handle).ticket(ASK_AGAIN);
        let asked = Asked { ticket, follows: true, seen: u64::MAX, deadline_us, hops: 0, leadership: 0 };
        cx.submit(group, asked, &Request::Command(command));
    }

    fn end_finishing(&mut self, cx: &mut Context, handle: Handle, error: &str) {
        if let Some(Operation::Finish(finishing)) = self.operations.remove(handle) {
            cx.complete_with_error(finishing.client, finishing.group, Outcome::Refused, error);
        }
    }

    /// Asks groups again for operations that are due.
    pub(super) fn finishings_due(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        let waiting = self.operations.iter().filter_map(|(handle, operation)| match operation {
            Operation::Finish(finishing) => Some((handle, finishing.asks_at_us?)),
            _ => None,
        });
        let waiting: Vec<(Handle, u64)> = waiting.collect();
        for (handle, at_us) in waiting {
            match at_us <= now_us {
                true => self.ask_group_again(cx, handle),
                false => self.wake_at(at_us),
            }
        }
    }
}
