//! Resolving: completes a local replica's answer that lacks the bytes of values, before it is reported.
//!
//! A read's references are looked up, and the values are put in. A write that needs values has done nothing; it is
//! submitted again, supplied with them ([`kv::Command::Supplied`]), under the same ticket. If a value was overwritten
//! meanwhile, the write reports again what it needs.

use super::{Value, Values, Waiter};
use crate::context::Context;
use crate::origin::{Asked, HOPS_MAX};
use crate::slab::Handle;
use crate::unfinished::{put_in, take_apart};
use kv::{Command, Reference, Supplied};
use protocol::{Request, Result as Outcome, Ticket};
use std::collections::BTreeMap;

const UNFIT: &str = "ERR the values would take more than a reply may hold; nothing was done";
const GONE: &str =
    "CLUSTERDOWN NOLEADER the keyspace is not served by this node any more; nothing was done, try again";

/// A reply that lacks values.
#[derive(Debug)]
pub(super) struct Resolving {
    ticket: Ticket,
    group: u16,
    result: Outcome,
    what: What,
    /// All values that it needs; None until a value is here.
    values: BTreeMap<Reference, Option<Value>>,
    deadline_us: u64,
}

#[derive(Debug)]
enum What {
    /// The reply of a read, with references in the place of values.
    Read(Vec<u8>),
    /// A write, encoded, and the keys whose values it needs.
    Write(Vec<u8>, Vec<(Vec<u8>, Reference)>),
}

impl Values {
    /// Completes a replica's reply that lacks values.
    pub(crate) fn resolve(
        &mut self,
        cx: &mut Context,
        ticket: Ticket,
        group: u16,
        result: Outcome,
        reply: &[u8],
    ) {
        let Some(parts) = take_apart(reply, cx.memory.reply_max()) else {
            return cx.complete_with_error(ticket, group, Outcome::Refused, UNFIT);
        };
        let what = match parts.is_read {
            true => What::Read(parts.element.to_vec()),
            false => {
                let keys = parts.keys.iter().map(|key| key.to_vec());
                What::Write(parts.command.to_vec(), keys.zip(parts.references.iter().copied()).collect())
            }
        };
        let values = parts.references.iter().map(|reference| (*reference, None)).collect();
        let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        let resolving = Resolving { ticket, group, result, what, values, deadline_us };
        let handle = self.resolving.insert(|_| resolving);
        for reference in parts.references {
            if let Some(value) = self.look_up(group, &reference, Waiter::Resolving(handle))
                && let Some(resolving) = self.resolving.get_mut(handle)
            {
                resolving.values.insert(reference, Some(value));
            }
        }
        self.resolve_whole(cx, handle);
    }

    /// A value is here, or (None) cannot be read.
    pub(super) fn resolving_has(
        &mut self,
        cx: &mut Context,
        handle: Handle,
        reference: Reference,
        value: Option<Value>,
    ) {
        let Some(resolving) = self.resolving.get_mut(handle) else { return };
        if value.is_some() {
            resolving.values.insert(reference, value);
            return self.resolve_whole(cx, handle);
        }
        let Some(Resolving { ticket, group, .. }) = self.resolving.remove(handle) else { return };
        let own = cx.configuration.node;
        let (version, folder) = (reference.id.coordinator.life, "values");
        let error = format!(
            "DAMAGED a value of version {version} cannot be read from the folder '{folder}' of node {own}; nothing was \
             done, and other replicas may have it"
        );
        cx.complete_with_error(ticket, group, Outcome::Refused, &error);
    }

    fn resolve_whole(&mut self, cx: &mut Context, handle: Handle) {
        let is_whole = |resolving: &Resolving| resolving.values.values().all(Option::is_some);
        if !self.resolving.get(handle).is_some_and(is_whole) {
            return;
        }
        let Some(resolving) = self.resolving.remove(handle) else { return };
        let Resolving { ticket, group, result, what, values, deadline_us } = resolving;
        let value_of =
            |reference: &Reference| values.get(reference).and_then(Option::as_deref).map(Vec::as_slice);
        match what {
            What::Read(element) => {
                let replies = put_in(&element, value_of, UNFIT);
                cx.complete_with(ticket, group, result, replies);
            }
            What::Write(command, needs) => {
                if cx.groups.get(group).is_none() {
                    return cx.complete_with_error(ticket, group, Outcome::Refused, GONE);
                }
                let items = needs
                    .iter()
                    .filter_map(|(key, reference)| Some((key.as_slice(), *reference, value_of(reference)?)));
                let mut scratch = Vec::new();
                let Some(supplied) = Supplied::build(items, &command, &mut scratch) else {
                    return cx.complete_with_error(ticket, group, Outcome::Refused, UNFIT);
                };
                let asked = Asked {
                    ticket,
                    follows: true,
                    seen: u64::MAX,
                    deadline_us,
                    hops: HOPS_MAX,
                    leadership: 0,
                };
                cx.submit(group, asked, &Request::Command(Command::Supplied(supplied)));
            }
        }
    }

    /// Ends operations that have waited for values for too long: a disk may hang.
    pub(crate) fn end_overdue_lookups(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        let all = self.resolving.iter();
        let overdue = all.filter(|(_, resolving)| resolving.deadline_us <= now_us);
        let overdue: Vec<Handle> = overdue.map(|(handle, _)| handle).collect();
        let own = cx.configuration.node;
        for handle in overdue {
            let Some(Resolving { ticket, group, .. }) = self.resolving.remove(handle) else {
                continue;
            };
            let error = format!(
                "TRYAGAIN OVERLOADED the disk of node {own} has not given a value in time; nothing was done"
            );
            cx.complete_with_error(ticket, group, Outcome::Refused, &error);
        }
    }
}
