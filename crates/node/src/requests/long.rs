//! Long commands: a write that is too long for one record goes to its group in parts.
//!
//! ```text
//!  client      this node                              leader
//!    | SET k     |                                       |
//!    |---------->| LongPart 0..256 KiB, 256..512, ...    |
//!    |           |-------------------------------------->|  ordinary commands: ordered, gathered by all replicas
//!    |           |<------------ gathered so far: n ------|
//!    |           |  ...                                  |
//!    |           | LongEnd                               |
//!    |           |-------------------------------------->|  the command takes effect
//!    |<-- OK ----|<----------------------------- Done ---|
//! ```
//!
//! A record goes through a node in one piece: one of 64 MiB keeps a node busy so long that its group elects another
//! leader, and the write is lost. Only a few parts are under way at a time, so heartbeats and small
//! commands go between them.
//!
//! Parts have no effect, so a part whose outcome is unknown is sent again: the group reports how many bytes it has
//! gathered, and the next part begins there. A command's time limit starts again with each part that is gathered. The
//! answer to its end is the command's answer; if anything fails before that, nothing was done.

use crate::collections::slab::{Handle, Slab};
use crate::context::routing::MOVED;
use crate::context::{CommandPart, Context};
use crate::messages::transfer::{Transfer, Window};
use crate::session::origin::Asked;
use crate::session::origin::Origin;
use cluster::configuration::{PARTS_UNDER_WAY, part_bytes};
use kv::SharedBytes;
use kv::codec::Reader;
use kv::{Command, Coordinator, Padded, Reply, Transaction, ValueId};
use protocol::{Request, Result as Outcome};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of long commands under way: more are refused.
const BYTES_MAX: usize = 512 << 20;

/// The time within which a part has its outcome: a deposed leader does not know it, and the part can be sent again.
/// Longer on a network that is configured as slow.
const PART_TIMEOUT_US: u64 = 1_000_000;

/// The pause before a refused part is sent again.
const PAUSE_US: u64 = 20_000;

/// A write that is under way in parts.
#[derive(Debug)]
struct Long {
    asked: Asked,
    group: u16,
    id: ValueId,
    /// See [`Command::LongEnd`].
    watched_in: Option<u64>,
    /// The version of the map by which the group was found.
    map_version: u64,
    /// The command; its arrived bytes are those that the group last reported as gathered.
    command: Transfer,
    /// The most bytes that the group ever reported.
    farthest: usize,
    /// Parts that have no outcome yet.
    awaited: usize,
    /// Set when a part was not gathered: once all parts have their outcomes, the next one begins where that one did,
    /// but not before this time.
    goes_back_us: Option<u64>,
    /// Why the last refused part was refused.
    refusal: Option<(Outcome, Vec<u8>)>,
    deadline_us: u64,
}

/// Encodes a command. A value at its end is not copied; `lent` is the buffer that holds the command, if it may be
/// kept.
fn encoded(command: &Command<'_>, lent: Option<&Arc<Vec<u8>>>) -> Transfer {
    let mut head = Vec::new();
    let value = lent.and_then(|buffer| SharedBytes::within(buffer, command.encode_before_value(&mut head)?));
    if value.is_none() {
        head = Vec::with_capacity(command.payload_bytes() + (1 << 10));
        command.encode(&mut head);
    }
    Transfer::new(head, value.unwrap_or_default())
}

/// A part under way: its command, and where it begins and ends.
#[derive(Clone, Copy, Debug)]
struct Part {
    of: Handle,
    begin: usize,
    end: usize,
}

/// The long commands that a node has under way.
#[derive(Debug)]
pub(crate) struct LongCommands {
    coordinator: Coordinator,
    /// The counter of the newest command.
    counter: u64,
    commands: Slab<Long>,
    /// The total length of `commands`.
    bytes: usize,
    /// The parts under way, by their numbers.
    parts: BTreeMap<u64, Part>,
    parts_sent: u64,
    window: Window,
    /// When the next work is due, on the monotonic clock.
    wakeup_us: u64,
}

impl LongCommands {
    /// `coordinator` is different at each start of each node.
    pub(crate) fn new(coordinator: Coordinator) -> LongCommands {
        LongCommands {
            coordinator,
            counter: 0,
            commands: Slab::default(),
            bytes: 0,
            parts: BTreeMap::new(),
            parts_sent: 0,
            window: Window::default(),
            wakeup_us: u64::MAX,
        }
    }

    /// When the next work is due, on the monotonic clock.
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.wakeup_us
    }

    fn wake_at(&mut self, at_us: u64) {
        self.wakeup_us = self.wakeup_us.min(at_us);
    }
}

impl LongCommands {
    /// Sends a write to its group in parts.
    #[cold]
    pub(crate) fn begin(&mut self, cx: &mut Context, group: u16, asked: Asked, command: &Command<'_>) {
        let encoded = encoded(command, cx.clients.lent());
        let refusal = match u32::try_from(encoded.len()) {
            Err(_) => Some("ERR the command is too long; nothing was done"),
            Ok(_) if self.bytes + encoded.len() > BYTES_MAX => Some(
                "TRYAGAIN OVERLOADED too many bytes of long commands are on their way; nothing was done, try again",
            ),
            Ok(_) => None,
        };
        if let Some(error) = refusal {
            return cx.complete_with_error(asked.ticket, group, Outcome::Refused, error);
        }
        // Later requests of the client must not overtake this one.
        if let Origin::Session(client) = Origin::of(asked.ticket)
            && let Some(session) = cx.clients.sessions.get_mut(client)
        {
            session.close_gate_now();
        }
        let leadership =
            |transaction: &Transaction<'_>| transaction.is_watching().then(|| transaction.epoch());
        let watched_in = match command.unbounded(&mut None) {
            Command::Transaction(transaction) => leadership(transaction),
            Command::TwoPhase(command) => match command.share().map(|share| share.command()) {
                Some(Command::Transaction(transaction)) => leadership(&transaction),
                _ => None,
            },
            _ => None,
        };
        cx.counters.long_writes += 1;
        self.bytes += encoded.len();
        self.counter += 1;
        let long = Long {
            asked,
            group,
            id: ValueId { coordinator: self.coordinator, counter: self.counter },
            watched_in,
            map_version: cx.map.version,
            command: encoded,
            farthest: 0,
            awaited: 0,
            goes_back_us: None,
            refusal: None,
            deadline_us: asked.deadline_us,
        };
        self.commands.insert(|_| long);
        self.wake_at(cx.now.monotonic_us);
    }

    /// Sends parts as far as there is room.
    pub(crate) fn flush(&mut self, cx: &mut Context) {
        // Without a command nothing is due: the last one's part may have been answered after it ended.
        self.wakeup_us = u64::MAX;
        if self.commands.len() == 0 {
            return;
        }
        let handles: Vec<Handle> = self.commands.iter().map(|(handle, _)| handle).collect();
        let mut budget = part_bytes(&cx.configuration) * PARTS_UNDER_WAY;
        // One part of each command in turn, so that a short command does not wait for a long one.
        let mut waiting = handles;
        while !waiting.is_empty() {
            waiting.retain(|handle| self.send_part(cx, *handle, &mut budget));
        }
    }

    /// Sends the next part of a command, or its end. Returns false when the command has to wait, or has ended.
    fn send_part(&mut self, cx: &mut Context, handle: Handle, budget: &mut usize) -> bool {
        let (now_us, part_bytes) = (cx.now.monotonic_us, part_bytes(&cx.configuration));
        let Some(long) = self.commands.get_mut(handle) else { return false };
        let (group, ticket) = (long.group, long.asked.ticket);
        if long.deadline_us <= now_us || cx.groups.get(group).is_none() {
            self.give_up(cx, handle);
            return false;
        }
        // No client waits for the command any more.
        if let Origin::Session(client) = Origin::of(ticket)
            && cx.clients.sessions.get(client).is_none()
        {
            self.end(handle);
            return false;
        }
        let Some(long) = self.commands.get_mut(handle) else { return false };
        let (deadline_us, length) = (long.deadline_us, long.command.len());
        if let Some(at_us) = long.goes_back_us {
            if long.awaited > 0 || at_us > now_us {
                self.wake_at(if at_us > now_us { at_us } else { deadline_us });
                return false;
            }
            long.goes_back_us = None;
            long.command.go_back();
        }
        if long.command.is_sent() {
            match long.awaited {
                0 => self.order(cx, handle),
                _ => self.wake_at(deadline_us),
            }
            return false;
        }
        if *budget == 0 || self.window.under_way() >= part_bytes * PARTS_UNDER_WAY {
            // The outcome of a part ends the wait as well.
            self.wake_at(if *budget == 0 { now_us } else { deadline_us });
            return false;
        }
        let (begin, bytes) = long.command.next_part(part_bytes);
        let end = long.command.sent();
        *budget = budget.saturating_sub(bytes.len());
        long.awaited += 1;
        let part = CommandPart { id: long.id, offset: begin as u32, length: length as u32, bytes };
        self.window.sent(end - begin);
        self.parts_sent += 1;
        self.parts.insert(self.parts_sent, Part { of: handle, begin, end });
        self.wake_at(deadline_us);
        let ticket = Origin::LongPart.ticket(self.parts_sent);
        let deadline_us = deadline_us.min(now_us + PART_TIMEOUT_US * cx.configuration.patience);
        let asked = Asked { ticket, follows: true, seen: u64::MAX, deadline_us, hops: 0, leadership: 0 };
        cx.submit_part(group, asked, part);
        true
    }

    /// Handles the outcome of a part.
    pub(crate) fn part_answered(&mut self, cx: &mut Context, number: u64, result: Outcome, reply: &[u8]) {
        let now_us = cx.now.monotonic_us;
        let timeout_us = cx.configuration.command_timeout_ms * 1000;
        let Some(Part { of, begin, end }) = self.parts.remove(&number) else { return };
        self.window.arrived(end - begin);
        self.wake_at(now_us);
        let Some(long) = self.commands.get_mut(of) else { return };
        long.awaited -= 1;
        if let (Outcome::Done { .. }, Reply::Integer(gathered)) = (result, Reply::first(reply)) {
            long.command.has(gathered.max(0) as usize);
            let gathered = long.command.arrived();
            if gathered > long.farthest {
                long.farthest = gathered;
                long.deadline_us = long.deadline_us.max(now_us + timeout_us);
            }
            if gathered < end {
                long.goes_back_us.get_or_insert(now_us);
            }
            return;
        }
        long.refusal = Some((result, reply.to_vec()));
        long.goes_back_us = Some(now_us + PAUSE_US);
        // A group that does not take the first part, or has no room, is not asked again, as with any other command.
        let is_full = matches!(Reply::first(reply), Reply::Error(error) if error.starts_with(b"NOSPACE") || error.starts_with(b"OOM"));
        if long.farthest == 0 || is_full {
            self.give_up(cx, of);
        }
    }

    /// Orders a command whose parts are all gathered.
    fn order(&mut self, cx: &mut Context, handle: Handle) {
        let Some(Long { asked, group, id, watched_in, map_version, command, deadline_us, .. }) =
            self.end(handle)
        else {
            return;
        };
        // The group's leader checks, too; its map may be the older one.
        if cx.map.version != map_version {
            let whole = command.whole();
            let command = Command::decode(&mut Reader::new(&whole)).expect("it was encoded here");
            if !cx.belongs(group, &command) {
                return cx.complete_with_error(asked.ticket, group, Outcome::Refused, MOVED);
            }
        }
        let asked = Asked { deadline_us, ..asked };
        cx.submit(group, asked, &Request::Command(&Command::LongEnd { id, watched_in: Padded(watched_in) }));
    }

    /// Gives up a command that its group has not taken in time, or has refused.
    fn give_up(&mut self, cx: &mut Context, handle: Handle) {
        let Some(Long { asked, group, refusal, .. }) = self.end(handle) else { return };
        match refusal {
            Some((Outcome::Refused, reply)) => cx.complete(asked.ticket, group, Outcome::Refused, &reply),
            // The outcome of a part may be unknown; that of the whole command is not.
            _ => {
                let error = "TRYAGAIN NOQUORUM the group has not taken all parts of the command in time; nothing was done, try again";
                cx.complete_with_error(asked.ticket, group, Outcome::Refused, error);
            }
        }
    }

    fn end(&mut self, handle: Handle) -> Option<Long> {
        let long = self.commands.remove(handle)?;
        self.bytes -= long.command.len();
        Some(long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Condition, Expiry, SetAnswer};

    #[test]
    fn a_value_that_is_in_a_buffer_is_sent_from_there() {
        let buffer = Arc::new(b"SET key 0123456789".to_vec());
        let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
        let set = |answer| Command::Set { key: b"key", value: &buffer[8..], expiry, condition, answer };
        for (command, is_shared) in [(set(answer), true), (set(SetAnswer::Before), false)] {
            let mut whole = Vec::new();
            command.encode(&mut whole);
            for lent in [Some(&buffer), None] {
                let mut transfer = encoded(&command, lent);
                let (_, head) = transfer.next_part(whole.len() - 10);
                let (_, value) = transfer.next_part(10);
                assert_eq!([&*head, &*value].concat(), whole);
                assert!(transfer.is_sent());
                assert_eq!(value.as_ptr() == buffer[8..].as_ptr(), is_shared && lent.is_some());
            }
        }
    }
}
