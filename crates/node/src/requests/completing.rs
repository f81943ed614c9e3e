//! Completing: replies and writes that lack the bytes of values get them. This is the only place that waits for
//! values.
//!
//! ```text
//!  client      its node                  leader's node         disk      members
//!    | GET k      |                          |                  |           |
//!    |----------->|------------------------->| a reference      |           |
//!    |            |                          |-- Get ---------->|           |  a value on the disk
//!    |            |<------- the value -------|<-----------------|           |
//!    |            |                          |                              |
//!    |            |<------ a reference ------|                              |  a value that is kept as fragments
//!    |            |-- Fetch ---------------------------------------------->|
//!    |<-- value --|<--------------------------------------------- pieces --|
//! ```
//!
//! A read is answered with references, and the values replace them later. A write that needs values has done nothing;
//! it is submitted again, supplied with them ([`kv::Command::Supplied`]), under the same ticket. If a value was
//! overwritten by then, the write reports again which values it needs.
//!
//! The place of the bytes decides which node completes. Only the node of the replica that answers has that replica's
//! disk, so it puts in the values that are there, and supplies a write whose values are there, in part or all.
//! References to fragments go on to the node that the client is connected to, or that coordinates a transaction, which fetches them:
//! the leader's link is not for that.
//!
//! A value on the disk that cannot be read is damaged, and is fetched from another replica (`values/repair.rs`).
//! Fragments may be missing because the value was overwritten long ago, or because its replicas have restarted since:
//! then the group is asked again, a later read within the same command.

use crate::coding::Coding;
use crate::collections::slab::{Handle, Slab};
use crate::context::{Call, Context};
use crate::requests::unfinished::{only_value, put_in, take_apart};
use crate::session::ClientId;
use crate::session::origin::{Asked, HOPS_MAX, Origin};
use crate::values::{Found, Values};
use kv::codec::Reader;
use kv::{Command, Reference, Reply, ReplyBuffer, SharedBytes, Supplied, ValueRef, View};
use protocol::coded::StoredPiece;
use protocol::{NodeId, Result as Outcome, Ticket};
use std::collections::BTreeMap;

/// A value of at least this length is not copied to the client that asked for it, but written from its place.
const SHARED_BYTES_MIN: usize = 256 << 10;

/// How long to wait before the group is asked again.
const PAUSE_US: u64 = 10_000;

const GONE: &str =
    "CLUSTERDOWN NOQUORUM too few fragments of a value can be reached; nothing was done, try again";
const UNFIT: &str = "ERR the values would take more than a reply may hold; nothing was done";
const OVERTAKEN: &str = "TRYAGAIN NOQUORUM a value was overwritten while it was read, by a later command of this client perhaps; try again";
const NOT_SERVED: &str =
    "CLUSTERDOWN NOLEADER the keyspace is not served by this node any more; nothing was done, try again";

/// A reply that lacks values, or a write that needs them.
#[derive(Debug)]
pub(crate) struct Lacking {
    pub(crate) ticket: Ticket,
    pub(crate) group: u16,
    pub(crate) result: Outcome,
    /// The command, encoded.
    command: Vec<u8>,
    what: What,
    /// The values that the request waits for; `None` until a value is here.
    values: BTreeMap<Reference, Option<SharedBytes>>,
    begun_us: u64,
    deadline_us: u64,
    /// When the group is asked again; `None` while values are awaited.
    asks_at_us: Option<u64>,
}

/// How a request that lacked values continues.
pub(crate) enum Next<'a> {
    /// It is answered with a value, which need not be copied.
    Value(SharedBytes),
    /// It is answered.
    Reply(ReplyBuffer),
    /// It is submitted again, under its ticket.
    Submit(Asked, Command<'a>),
    /// It is refused, with an error.
    Refused(&'static str),
}

#[derive(Debug)]
enum What {
    /// The reply of a read, with references in the place of values.
    Read(Vec<u8>),
    /// The keys whose values a write needs.
    Write(Vec<(Vec<u8>, Reference)>),
}

impl Lacking {
    fn value(&self, reference: &Reference) -> Option<&SharedBytes> {
        self.values.get(reference)?.as_ref()
    }

    fn is_whole(&self) -> bool {
        self.values.values().all(Option::is_some)
    }

    fn awaits_disk(&self) -> bool {
        self.values.iter().any(|(reference, value)| reference.is_spilled() && value.is_none())
    }

    /// How the request continues, now that its values are here or the group is to be asked again.
    pub(crate) fn next<'a>(&'a self, cx: &Context, scratch: &'a mut Vec<u8>) -> Next<'a> {
        let needs = match &self.what {
            What::Read(element) if self.asks_at_us.is_none() => {
                let only = only_value(element).and_then(|reference| self.value(&reference));
                if let Some(value) = only.filter(|value| value.len() >= SHARED_BYTES_MIN) {
                    return Next::Value(value.clone());
                }
                let value = |reference: &Reference| self.value(reference).map(|value| &**value);
                return Next::Reply(put_in(&self.command, element, value));
            }
            What::Read(_) => &[][..],
            What::Write(needs) => needs,
        };
        if cx.groups.get(self.group).is_none() {
            return Next::Refused(NOT_SERVED);
        }
        if self.asks_at_us.is_some() {
            let asked = self.asked(self.begun_us + cx.configuration.command_timeout_ms * 1000);
            return match Command::decode(&mut Reader::new(&self.command)) {
                Ok(command) => Next::Submit(asked, command),
                Err(_) => Next::Refused(UNFIT),
            };
        }
        let items = needs
            .iter()
            .filter_map(|(key, reference)| Some((key.as_slice(), *reference, &**self.value(reference)?)));
        match Supplied::build(items, &self.command, scratch) {
            Some(supplied) => Next::Submit(self.asked(self.deadline_us), Command::Supplied(supplied)),
            None => Next::Refused(UNFIT),
        }
    }

    fn asked(&self, deadline_us: u64) -> Asked {
        let ticket = self.ticket;
        // Another node has forwarded its client's command to this one because this node leads.
        let hops =
            if matches!(Origin::of(ticket), Origin::Session(_) | Origin::TwoPhase) { 0 } else { HOPS_MAX };
        // Any leadership may order it, though its sender may have meant it for one: a command that needs values was
        // applied, so its record is in the log of that leadership, and no sender takes it for void
        // (`Replica::is_void`) and sends it again.
        Asked { ticket, follows: true, seen: u64::MAX, deadline_us, hops, leadership: 0 }
    }
}

/// A user of a value that waits for it.
#[derive(Debug)]
enum Waiter {
    /// A reply or a write.
    Lacking(Handle),
    /// The reply to a node whose own copy of the value is damaged.
    Peer(Handle),
    /// A node that has requested this piece of a fragment, which is on the disk here. It may be this node.
    Piece(NodeId, StoredPiece),
}

/// The replies, writes and nodes that wait for values.
#[derive(Debug)]
pub(crate) struct Completing {
    lacking: Slab<Lacking>,
    /// For each value of a group, its waiters.
    waiting: BTreeMap<(u16, Reference), Vec<Waiter>>,
    wakeup_us: u64,
}

impl Default for Completing {
    fn default() -> Completing {
        Completing { lacking: Slab::default(), waiting: BTreeMap::new(), wakeup_us: u64::MAX }
    }
}

impl Completing {
    /// When, on the monotonic clock, the next request is due.
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.wakeup_us
    }

    fn wake_at(&mut self, at_us: u64) {
        self.wakeup_us = self.wakeup_us.min(at_us);
    }

    /// Completes a reply that lacks values, at the node of the replica that has answered, or of the client. Returns
    /// false if the reply is to be sent unchanged: the node of the client fetches the missing values.
    #[cold]
    pub(crate) fn complete(
        &mut self,
        cx: &mut Context,
        (values_here, coding): (&mut Values, &mut Coding),
        ticket: Ticket,
        group: u16,
        result: Outcome,
        reply: &[u8],
    ) -> bool {
        let now_us = cx.now.monotonic_us;
        let (is_for_client, begun_us) = match Origin::of(ticket) {
            Origin::Session(client) => {
                let Some(session) = cx.clients.sessions.get(client) else { return true };
                (true, session.begun(ticket.sequence).map_or(now_us, |begun| begun.at_us))
            }
            Origin::TwoPhase => (true, now_us),
            _ => (false, now_us),
        };
        let Some(parts) = take_apart(reply, cx.memory.reply_max()) else {
            cx.complete_with_error(ticket, group, Outcome::Refused, UNFIT);
            return true;
        };
        let needs_disk = parts.references.iter().any(Reference::is_spilled);
        if !is_for_client && !needs_disk {
            return false;
        }
        let mut values = BTreeMap::new();
        for reference in parts.references.iter().copied() {
            let is_taken = is_for_client || !parts.is_read || reference.is_spilled();
            if is_taken && !values.contains_key(&reference) {
                values.insert(reference, look_up(cx, values_here, coding, group, reference));
            }
        }
        let what = match parts.is_read {
            true => What::Read(parts.element.to_vec()),
            false => {
                let keys = parts.keys.iter().map(|key| key.to_vec());
                What::Write(keys.zip(parts.references).collect())
            }
        };
        let deadline_us = now_us + cx.configuration.command_timeout_ms * 1000;
        let command = parts.command.to_vec();
        let asks_at_us = None;
        let lacking =
            Lacking { ticket, group, result, command, what, values, begun_us, deadline_us, asks_at_us };
        let awaited = lacking.values.iter().filter(|(_, value)| value.is_none());
        let awaited: Vec<Reference> = awaited.map(|(reference, _)| *reference).collect();
        let (is_whole, awaits_disk) = (lacking.is_whole(), lacking.awaits_disk());
        let handle = self.lacking.insert(|_| lacking);
        if is_whole {
            cx.call(Call::Supply(handle));
            return true;
        }
        for reference in awaited {
            self.waiting.entry((group, reference)).or_default().push(Waiter::Lacking(handle));
        }
        if awaits_disk {
            self.wake_at(deadline_us);
        }
        true
    }

    /// Takes a value for its waiters; `None`: it cannot be had.
    pub(crate) fn take_value(
        &mut self,
        cx: &mut Context,
        coding: &mut Coding,
        group: u16,
        reference: Reference,
        value: Option<&SharedBytes>,
    ) {
        for waiter in self.waiting.remove(&(group, reference)).unwrap_or_default() {
            let handle = match waiter {
                Waiter::Lacking(handle) | Waiter::Peer(handle) => handle,
                Waiter::Piece(to, piece) => {
                    piece_read(cx, coding, group, to, &piece, value);
                    continue;
                }
            };
            let Some(lacking) = self.lacking.get_mut(handle) else { continue };
            let Some(place @ None) = lacking.values.get_mut(&reference) else { continue };
            match value {
                None => self.value_is_gone(cx, handle, reference),
                Some(value) => {
                    *place = Some(value.clone());
                    if lacking.is_whole() {
                        cx.call(Call::Supply(handle));
                    }
                }
            }
        }
    }

    /// Reads a piece of this node's fragment for a node that has requested it.
    pub(crate) fn read_piece(
        &mut self,
        cx: &mut Context,
        (values, coding): (&mut Values, &mut Coding),
        group: u16,
        to: NodeId,
        piece: StoredPiece,
    ) {
        let name = piece.name();
        match look_up(cx, values, coding, group, name) {
            Some(bytes) => piece_read(cx, coding, group, to, &piece, Some(&bytes)),
            None => {
                self.waiting.entry((group, name)).or_default().push(Waiter::Piece(to, piece));
            }
        }
    }

    /// Reads a value for a node whose own copy is damaged.
    pub(crate) fn read_for_peer(
        &mut self,
        cx: &mut Context,
        values: &mut Values,
        ticket: Ticket,
        group: u16,
        reference: Reference,
    ) {
        let value = match values.look_up_for_peer(cx, group, &reference) {
            Found::Here(value) => Some(value),
            Found::Awaited => None,
            Found::Missing => {
                let own = cx.configuration.node;
                let error = format!("DAMAGED node {own} does not have that value");
                return cx.complete_with_error(ticket, group, Outcome::Refused, &error);
            }
        };
        let mut element = ReplyBuffer::new();
        element.push(Reply::Reference(&ValueRef { reference, view: View::Whole }.encoded()));
        let (begun_us, is_whole) = (cx.now.monotonic_us, value.is_some());
        let deadline_us = begun_us + cx.configuration.command_timeout_ms * 1000;
        let handle = self.lacking.insert(|_| Lacking {
            ticket,
            group,
            result: Outcome::Done { version: 0, offset: 0 },
            command: Vec::new(),
            what: What::Read(element.take()),
            values: BTreeMap::from([(reference, value)]),
            begun_us,
            deadline_us,
            asks_at_us: None,
        });
        if is_whole {
            return cx.call(Call::Supply(handle));
        }
        self.waiting.entry((group, reference)).or_default().push(Waiter::Peer(handle));
        self.wake_at(deadline_us);
    }

    /// Refuses the nodes that have asked for a value which is damaged here, too. Other waiters wait for the repair.
    pub(crate) fn refuse_peers(&mut self, cx: &mut Context, group: u16, reference: Reference) {
        let Some(waiters) = self.waiting.get_mut(&(group, reference)) else { return };
        let peers: Vec<Waiter> = waiters.extract_if(.., |waiter| matches!(waiter, Waiter::Peer(_))).collect();
        for waiter in peers {
            if let Waiter::Peer(handle) = waiter {
                self.value_is_gone(cx, handle, reference);
            }
        }
    }

    fn value_is_gone(&mut self, cx: &mut Context, handle: Handle, reference: Reference) {
        let Some(lacking) = self.lacking.get_mut(handle) else { return };
        if reference.is_spilled() {
            let own = cx.configuration.node;
            let (version, folder) = (reference.id.coordinator.life, "values");
            let error = format!(
                "DAMAGED a value of version {version} cannot be read from the folder '{folder}' of node {own}, and no other \
                 replica that can be reached has it; nothing was done"
            );
            return self.end(cx, handle, &error);
        }
        // Another node's client may have later commands under way, which only that node knows.
        if !matches!(Origin::of(lacking.ticket), Origin::Session(_)) {
            return self.end(cx, handle, GONE);
        }
        // More of the values may still arrive; they are no longer needed.
        lacking.values.clear();
        let at_us = cx.now.monotonic_us + PAUSE_US;
        lacking.asks_at_us = Some(at_us);
        self.wake_at(at_us);
    }

    /// The request whose values are here, unless it has ended since.
    pub(crate) fn take(&mut self, handle: Handle) -> Option<Lacking> {
        self.lacking.remove(handle)
    }

    fn end(&mut self, cx: &mut Context, handle: Handle, error: &str) {
        if let Some(lacking) = self.lacking.remove(handle) {
            cx.complete_with_error(lacking.ticket, lacking.group, Outcome::Refused, error);
        }
    }

    /// Asks groups again where that is due, and ends requests that have waited for the disk for too long: it may
    /// hang.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        if self.wakeup_us > now_us {
            return;
        }
        self.wakeup_us = u64::MAX;
        let handles: Vec<Handle> = self.lacking.iter().map(|(handle, _)| handle).collect();
        for handle in handles {
            let Some(lacking) = self.lacking.get(handle) else { continue };
            match lacking.asks_at_us {
                Some(at_us) if at_us <= now_us => self.ask_again(cx, handle),
                Some(at_us) => self.wake_at(at_us),
                None if !lacking.awaits_disk() => {}
                None if lacking.deadline_us > now_us => self.wake_at(lacking.deadline_us),
                None => {
                    let own = cx.configuration.node;
                    let error = format!(
                        "TRYAGAIN OVERLOADED the disk of node {own} has not given a value in time; nothing was done"
                    );
                    self.end(cx, handle, &error);
                }
            }
        }
    }

    /// Fragments of a value are missing: asks the group again, until the command's deadline.
    fn ask_again(&mut self, cx: &mut Context, handle: Handle) {
        let Some(lacking) = self.lacking.get(handle) else { return };
        let (sequence, origin) = (lacking.ticket.sequence, Origin::of(lacking.ticket));
        if lacking.begun_us + cx.configuration.command_timeout_ms * 1000 <= cx.now.monotonic_us {
            return self.end(cx, handle, GONE);
        }
        // A later read would show this client the effects of commands that it sent after this one.
        if matches!(lacking.what, What::Read(_))
            && let Origin::Session(client) = origin
            && cx.clients.sessions.get(client).is_some_and(|session| session.has_later(sequence))
        {
            return self.end(cx, handle, OVERTAKEN);
        }
        cx.call(Call::Supply(handle));
    }
}

/// Holds a client's later commands behind one that may need bytes of large values: that command may be submitted
/// twice, and they must not overtake it.
pub(crate) fn hold_back_behind(cx: &mut Context, client: ClientId, group: u16, command: &Command<'_>) {
    let target = &cx.groups[group];
    if (target.coding.is_some() || target.keyspace.spills())
        && command.may_need_bytes()
        && let Some(session) = cx.clients.sessions.get_mut(client)
    {
        session.close_gate();
    }
}

/// Returns a value that is in memory. Otherwise has it read or fetched; [`Completing::take_value`] takes the result.
fn look_up(
    cx: &mut Context,
    values: &mut Values,
    coding: &mut Coding,
    group: u16,
    reference: Reference,
) -> Option<SharedBytes> {
    match reference.is_spilled() {
        true => values.look_up(group, &reference),
        false => coding.look_up(cx, group, reference),
    }
}

fn piece_read(
    cx: &mut Context,
    coding: &mut Coding,
    group: u16,
    to: NodeId,
    piece: &StoredPiece,
    bytes: Option<&SharedBytes>,
) {
    coding.piece_read(cx, group, to, piece, bytes.map(|bytes| &**bytes));
}
