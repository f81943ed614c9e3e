//! Commands on the locks of a group.
//!
//! A lock is not a key: no command on keys sees it. Its name is routed like a key, so that a lock and the keys that it
//! guards can be placed in one group.

use super::Command;
use super::declaration::{Adds, Effect, Inner, Needs, Padded, Part, family};
use super::encoding::may_be_fenced;
use crate::Version;
use crate::codec::{Malformed, Reader, Writer};
use std::num::NonZeroU64;
use std::ops::Range;

/// Identifies a request that waits for a lock, or for elements, uniquely for all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId {
    /// The node that the client is connected to, which is notified of the grant.
    pub node: u16,
    /// The incarnation of that node: a new number at each start, so that requests of different incarnations are not
    /// confused.
    pub life: u64,
    /// The number of the request, counted by that node from 1.
    pub number: NonZeroU64,
}

/// For how long a lock is held unless it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// This many milliseconds from the grant or the last renewal.
    Lease(u64),
    /// As long as the session of this number lasts.
    Session(Version),
}

family! {
    /// A command on the locks of a group. The group's leader measures leases; records end them.
    LockCommand needs(Needs::Order) {
        // Reads.
        /// The state of a lock: a map, or null when it is free (`LOCK.INFO`).
        Describe = 1 "LOCK.INFO" Reads { name: &'a [u8] };
        /// The state of a waiting request: its token, `QUEUED`, or null if the request is unknown.
        Check = 2 "LOCK" Reads { name: &'a [u8], waiter: WaiterId };

        // Writes.
        /// Requests a lock; returns a token, or null if another owner holds it and the request does not wait, or `QUEUED`
        /// (`LOCK`).
        Acquire = 64 "LOCK" Grows { name: &'a [u8], owner: &'a [u8], hold: Hold, waiter: Option<WaiterId> };
        /// Renews a lease for `lease_ms` milliseconds from now; returns 1 or 0 (`LOCK.RENEW`).
        Renew = 65 "LOCK.RENEW" Changes { name: &'a [u8], token: Version, lease_ms: u64 };
        /// Releases a lock; returns 1 or 0 (`UNLOCK`).
        Release = 66 "UNLOCK" Changes { name: &'a [u8], token: Version };
        /// Withdraws a waiting request. If it was granted the lock, the lock is passed on. Sent by its coordinator.
        Withdraw = 67 "LOCK" Changes { name: &'a [u8], waiter: WaiterId };
        /// Gives up all waiting requests of a node, except those of the `spared` incarnation, if any. Locks already granted
        /// are kept. Sent by that node in a new incarnation, or by the leader when the node is lost.
        DropWaiters = 68 "LOCK" Changes { node: u16, spared: Padded } keys();
        /// Ends a lease that has run out. Proposed by the leader.
        Expire = 69 "LOCK" Changes { name: &'a [u8], token: Version, number: u64 };
        /// Opens a session, which can hold locks; returns its id: the group's number and the record's version
        /// (`LOCK.SESSION OPEN`). The key determines the group.
        OpenSession = 70 "LOCK.SESSION" Grows { key: &'a [u8], group: u16, lease_ms: u64 };
        /// Renews the session's lease; returns 1 or 0 (`LOCK.SESSION RENEW`).
        RenewSession = 71 "LOCK.SESSION" Changes { key: &'a [u8], session: Version };
        /// Ends a session: frees its locks and removes the requests that wait under it; returns 1 or 0 (`LOCK.SESSION
        /// CLOSE`).
        CloseSession = 72 "LOCK.SESSION" Changes { key: &'a [u8], session: Version };
        /// Ends a session whose lease has run out. Proposed by the leader.
        ExpireSession = 73 "LOCK.SESSION" Changes { session: Version, number: u64 } keys();
    }
}

impl WaiterId {
    /// A request by its encoded number, as in [`QueueCommand::Settle`](super::QueueCommand::Settle).
    pub(crate) fn numbered(node: u16, life: u64, number: &[u8]) -> Option<WaiterId> {
        let number = NonZeroU64::new(u64::from_le_bytes(number.try_into().ok()?))?;
        Some(WaiterId { node, life, number })
    }

    /// All requests of a node, except those of the `spared` incarnation, if any: two ranges.
    pub(crate) fn of_node(node: u16, spared: Option<u64>) -> [Range<WaiterId>; 2] {
        let first = |life: u64| WaiterId { node, life, number: NonZeroU64::MIN };
        let last = WaiterId { node, life: u64::MAX, number: NonZeroU64::MAX };
        // If no incarnation is spared, the first range covers all.
        let (end, begin) = match spared {
            Some(life) => (first(life), life.checked_add(1).map_or(last, first)),
            None => (last, last),
        };
        [first(0)..end, begin..last]
    }

    /// The nodes of ordered requests, in ascending order, each found in one step: `first_from` returns the first request at
    /// or behind a given one.
    pub(crate) fn nodes(first_from: impl Fn(WaiterId) -> Option<WaiterId>) -> Vec<u16> {
        let mut nodes = Vec::new();
        let mut next = Some(0);
        while let Some(node) = next {
            let found = first_from(WaiterId { node, life: 0, number: NonZeroU64::MIN }).map(|id| id.node);
            nodes.extend(found);
            next = found.and_then(|node| node.checked_add(1));
        }
        nodes
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_u16(self.node);
        out.put_u64(self.life);
        out.put_u64(self.number.get());
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<WaiterId, Malformed> {
        let (node, life) = (reader.u16()?, reader.u64()?);
        let number = NonZeroU64::new(reader.u64()?).ok_or(Malformed("a waiter without a number"))?;
        Ok(WaiterId { node, life, number })
    }

    pub(crate) fn put_optional(waiter: Option<WaiterId>, out: &mut Vec<u8>) {
        out.put_bool(waiter.is_some());
        if let Some(waiter) = waiter {
            waiter.put(out);
        }
    }

    pub(crate) fn take_optional(reader: &mut Reader<'_>) -> Result<Option<WaiterId>, Malformed> {
        Ok(if reader.bool()? { Some(WaiterId::take(reader)?) } else { None })
    }
}

impl Hold {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        let (is_session, value) = match self {
            Hold::Lease(ms) => (false, ms),
            Hold::Session(session) => (true, session),
        };
        out.put_bool(is_session);
        out.put_u64(value);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Hold, Malformed> {
        let (is_session, value) = (reader.bool()?, reader.u64()?);
        Ok(if is_session { Hold::Session(value) } else { Hold::Lease(value) })
    }
}

impl<'a> Part<'a> for Hold {
    fn put(self, out: &mut Vec<u8>) {
        Hold::put(self, out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Hold::take(reader)
    }
}

/// A write that takes effect only if it carries the newest token of a lock (`SET … FENCE name token`).
///
/// This is decided when the record is applied, so nothing can come in between.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fenced<'a> {
    /// The lock that guards the write.
    pub name: &'a [u8],
    /// The token of the writer's grant.
    pub token: Version,
    /// The encoded write. Checked: it can be decoded.
    command: &'a [u8],
}

impl std::fmt::Debug for Fenced<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.escape_ascii();
        write!(formatter, "Fenced {{ \"{name}\" {}: {:?} }}", self.token, self.command())
    }
}

impl<'a> Fenced<'a> {
    /// A fenced write, encoded in `scratch`. `None` for a command that cannot be fenced.
    pub fn build(
        name: &'a [u8],
        token: Version,
        command: &Command<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Option<Fenced<'a>> {
        scratch.clear();
        command.encode(scratch);
        may_be_fenced(scratch).then_some(Fenced { name, token, command: scratch })
    }

    /// Decodes the write. Always succeeds, as the write was checked.
    pub fn command(&self) -> Option<Command<'a>> {
        Command::decode(&mut Reader::of_checked(self.command)).ok()
    }
}

impl<'a> Inner<'a> for Fenced<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.name);
        out.put_u64(self.token);
        out.put_bytes(self.command);
    }

    fn take(_: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (name, token, command) = (reader.bytes()?, reader.u64()?, reader.bytes()?);
        if reader.is_checked() {
            return Ok(Fenced { name, token, command });
        }
        if !may_be_fenced(command) {
            return Err(Malformed("a command that cannot stand behind a fence"));
        }
        let mut rest = Reader::new(command);
        Command::decode(&mut rest)?;
        match rest.is_empty() {
            true => Ok(Fenced { name, token, command }),
            false => Err(Malformed("bytes behind a fenced command")),
        }
    }

    fn is_write(&self) -> bool {
        true
    }

    fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
        visit(self.name);
        if let Some(command) = self.command() {
            command.for_each_key(visit as &mut dyn FnMut(&'a [u8]));
        }
    }

    fn bytes(&self) -> usize {
        self.command.len()
    }

    fn name(&self) -> &'static str {
        "SET"
    }

    fn effect(&self) -> Effect {
        Effect::Grows
    }

    fn adds(&self) -> Adds {
        Adds::Little
    }
}
