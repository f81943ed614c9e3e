//! Commands on the locks of a group.
//!
//! A lock is not a key: no command on keys sees it. Its name is routed like a key, so that a lock and the keys that it
//! guards can be placed in one group.

use super::Command;
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

/// A command on the locks of a group. The group's leader measures leases; records end them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are named after the terms in the variants' docs.
pub enum LockCommand<'a> {
    // Reads.
    /// The state of a lock: a map, or null when it is free (`LOCK.INFO`).
    Describe { name: &'a [u8] },
    /// The state of a waiting request: its token, `QUEUED`, or null if the request is unknown.
    Check { name: &'a [u8], waiter: WaiterId },

    // Writes.
    /// Requests a lock; returns a token, or null if another owner holds it and the request does not wait, or `QUEUED`
    /// (`LOCK`).
    Acquire { name: &'a [u8], owner: &'a [u8], hold: Hold, waiter: Option<WaiterId> },
    /// Renews a lease for `lease_ms` milliseconds from now; returns 1 or 0 (`LOCK.RENEW`).
    Renew { name: &'a [u8], token: Version, lease_ms: u64 },
    /// Releases a lock; returns 1 or 0 (`UNLOCK`).
    Release { name: &'a [u8], token: Version },
    /// Withdraws a waiting request. If it was granted the lock, the lock is passed on. Sent by its coordinator.
    Withdraw { name: &'a [u8], waiter: WaiterId },
    /// Gives up all waiting requests of a node, except those of the `spared` incarnation, if any. Locks already granted are
    /// kept. Sent by that node in a new incarnation, or by the leader when the node is lost.
    DropWaiters { node: u16, spared: Option<u64> },
    /// Ends a lease that has run out. Proposed by the leader.
    Expire { name: &'a [u8], token: Version, number: u64 },
    /// Opens a session, which can hold locks; returns its id: the group's number and the record's version
    /// (`LOCK.SESSION OPEN`). The key determines the group.
    OpenSession { key: &'a [u8], group: u16, lease_ms: u64 },
    /// Renews the session's lease; returns 1 or 0 (`LOCK.SESSION RENEW`).
    RenewSession { key: &'a [u8], session: Version },
    /// Ends a session: frees its locks and removes the requests that wait under it; returns 1 or 0 (`LOCK.SESSION
    /// CLOSE`).
    CloseSession { key: &'a [u8], session: Version },
    /// Ends a session whose lease has run out. Proposed by the leader.
    ExpireSession { session: Version, number: u64 },
}

// Tags behind the command's own tag. They are stored in logs: a tag is never reused for anything else.
const DESCRIBE: u8 = 1;
const CHECK: u8 = 2;
const ACQUIRE: u8 = 64;
const RENEW: u8 = 65;
const RELEASE: u8 = 66;
const WITHDRAW: u8 = 67;
const DROP_WAITERS: u8 = 68;
const EXPIRE: u8 = 69;
const OPEN_SESSION: u8 = 70;
const RENEW_SESSION: u8 = 71;
const CLOSE_SESSION: u8 = 72;
const EXPIRE_SESSION: u8 = 73;

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

impl<'a> LockCommand<'a> {
    /// Whether it must be ordered.
    pub fn is_write(&self) -> bool {
        !matches!(self, LockCommand::Describe { .. } | LockCommand::Check { .. })
    }

    /// The lock's name or the key that determines its group. `None` for a command that concerns only the group it is
    /// in.
    pub fn key(&self) -> Option<&'a [u8]> {
        use LockCommand::*;
        match *self {
            Describe { name } | Check { name, .. } | Acquire { name, .. } | Renew { name, .. } => Some(name),
            Release { name, .. } | Withdraw { name, .. } | Expire { name, .. } => Some(name),
            OpenSession { key, .. } | RenewSession { key, .. } | CloseSession { key, .. } => Some(key),
            DropWaiters { .. } | ExpireSession { .. } => None,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        use LockCommand::*;
        let named = |out: &mut Vec<u8>, tag: u8, name: &[u8]| {
            out.put_u8(tag);
            out.put_bytes(name);
        };
        match *self {
            Describe { name } => named(out, DESCRIBE, name),
            Check { name, waiter } => {
                named(out, CHECK, name);
                waiter.put(out);
            }
            Acquire { name, owner, hold, waiter } => {
                named(out, ACQUIRE, name);
                out.put_bytes(owner);
                hold.put(out);
                WaiterId::put_optional(waiter, out);
            }
            Renew { name, token, lease_ms } => {
                named(out, RENEW, name);
                out.put_u64(token);
                out.put_u64(lease_ms);
            }
            Release { name, token } => {
                named(out, RELEASE, name);
                out.put_u64(token);
            }
            Withdraw { name, waiter } => {
                named(out, WITHDRAW, name);
                waiter.put(out);
            }
            DropWaiters { node, spared } => {
                out.put_u8(DROP_WAITERS);
                out.put_u16(node);
                out.put_bool(spared.is_some());
                out.put_u64(spared.unwrap_or_default());
            }
            Expire { name, token, number } => {
                named(out, EXPIRE, name);
                out.put_u64(token);
                out.put_u64(number);
            }
            OpenSession { key, group, lease_ms } => {
                named(out, OPEN_SESSION, key);
                out.put_u16(group);
                out.put_u64(lease_ms);
            }
            RenewSession { key, session } => {
                named(out, RENEW_SESSION, key);
                out.put_u64(session);
            }
            CloseSession { key, session } => {
                named(out, CLOSE_SESSION, key);
                out.put_u64(session);
            }
            ExpireSession { session, number } => {
                out.put_u8(EXPIRE_SESSION);
                out.put_u64(session);
                out.put_u64(number);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'a>, writes: bool) -> Result<LockCommand<'a>, Malformed> {
        use LockCommand::*;
        let tag = reader.u8()?;
        let command = match tag {
            DESCRIBE => Describe { name: reader.bytes()? },
            CHECK => Check { name: reader.bytes()?, waiter: WaiterId::take(reader)? },
            ACQUIRE => Acquire {
                name: reader.bytes()?,
                owner: reader.bytes()?,
                hold: Hold::take(reader)?,
                waiter: WaiterId::take_optional(reader)?,
            },
            RENEW => Renew { name: reader.bytes()?, token: reader.u64()?, lease_ms: reader.u64()? },
            RELEASE => Release { name: reader.bytes()?, token: reader.u64()? },
            WITHDRAW => Withdraw { name: reader.bytes()?, waiter: WaiterId::take(reader)? },
            DROP_WAITERS => {
                let (node, is_spared, life) = (reader.u16()?, reader.bool()?, reader.u64()?);
                DropWaiters { node, spared: is_spared.then_some(life) }
            }
            EXPIRE => Expire { name: reader.bytes()?, token: reader.u64()?, number: reader.u64()? },
            OPEN_SESSION => {
                OpenSession { key: reader.bytes()?, group: reader.u16()?, lease_ms: reader.u64()? }
            }
            RENEW_SESSION => RenewSession { key: reader.bytes()?, session: reader.u64()? },
            CLOSE_SESSION => CloseSession { key: reader.bytes()?, session: reader.u64()? },
            EXPIRE_SESSION => ExpireSession { session: reader.u64()?, number: reader.u64()? },
            _ => return Err(Malformed("unknown tag of a lock's command")),
        };
        match command.is_write() == writes {
            true => Ok(command),
            false => Err(Malformed("a lock's command that is a read and a write")),
        }
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

    /// Bytes of the write.
    pub(super) fn bytes(&self) -> usize {
        self.command.len()
    }

    /// Decodes the write. Always succeeds, as the write was checked.
    pub fn command(&self) -> Option<Command<'a>> {
        Command::decode(&mut Reader::new(self.command)).ok()
    }

    // Dynamic, because commands visit the keys of fenced ones, too.
    pub(super) fn for_each_key(&self, visit: &mut dyn FnMut(&'a [u8])) {
        visit(self.name);
        if let Some(command) = self.command() {
            command.for_each_key(visit);
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.name);
        out.put_u64(self.token);
        out.put_bytes(self.command);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Fenced<'a>, Malformed> {
        let (name, token, command) = (reader.bytes()?, reader.u64()?, reader.bytes()?);
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
}
