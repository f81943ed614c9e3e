//! Parsing of the commands on locks.

use kv::locks::{LEASE_MS_MAX, LOCK_NAME_BYTES_MAX, OWNER_BYTES_MAX, SessionId};
use kv::number::parse_integer;
use kv::{Hold, Version};
use wire::resp::Arguments;

use super::arguments::{at, is, key};
use super::{CommandError, LockVerb};

/// A request about locks, parsed and checked; its group is not decided yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the command of that name.
pub enum LockRequest<'a> {
    /// `LOCK`. With a session, the hold's number is that of the session in its group.
    Acquire {
        name: &'a [u8],
        owner: &'a [u8],
        hold: Hold,
        session: Option<SessionId>,
        wait_ms: u64,
    },
    Renew {
        name: &'a [u8],
        token: Version,
        lease_ms: u64,
    },
    Release {
        name: &'a [u8],
        token: Version,
    },
    Describe {
        name: &'a [u8],
    },
    OpenSession {
        key: &'a [u8],
        lease_ms: u64,
    },
    RenewSession {
        key: &'a [u8],
        session: SessionId,
    },
    CloseSession {
        key: &'a [u8],
        session: SessionId,
    },
}

impl<'a> LockRequest<'a> {
    /// The key that decides which group gets the request.
    pub fn key(&self) -> &'a [u8] {
        use LockRequest::*;
        match *self {
            Acquire { name, .. } | Renew { name, .. } | Release { name, .. } | Describe { name } => name,
            OpenSession { key, .. } | RenewSession { key, .. } | CloseSession { key, .. } => key,
        }
    }

    /// The session in the request, if any.
    pub fn session(&self) -> Option<SessionId> {
        match *self {
            LockRequest::Acquire { session, .. } => session,
            LockRequest::RenewSession { session, .. } | LockRequest::CloseSession { session, .. } => {
                Some(session)
            }
            _ => None,
        }
    }
}

/// Parses a request whose number of arguments was checked.
pub fn parse(verb: LockVerb, arguments: Arguments<'_>) -> Result<LockRequest<'_>, CommandError> {
    use LockRequest::*;
    Ok(match verb {
        LockVerb::Lock => acquire(arguments)?,
        LockVerb::Unlock => Release { name: name(arguments)?, token: token(at(arguments, 2))? },
        LockVerb::Renew => Renew {
            name: name(arguments)?,
            token: token(at(arguments, 2))?,
            lease_ms: lease(arguments, 3, "lock.renew")?,
        },
        LockVerb::Info => Describe { name: name(arguments)? },
        LockVerb::OpenSession => {
            OpenSession { key: key(arguments, 2)?, lease_ms: lease(arguments, 3, "lock.session|open")? }
        }
        LockVerb::RenewSession => {
            RenewSession { key: key(arguments, 2)?, session: session(at(arguments, 3))? }
        }
        LockVerb::CloseSession => {
            CloseSession { key: key(arguments, 2)?, session: session(at(arguments, 3))? }
        }
    })
}

fn acquire(arguments: Arguments<'_>) -> Result<LockRequest<'_>, CommandError> {
    let (name, owner) = (name(arguments)?, at(arguments, 2));
    if owner.is_empty() || owner.len() > OWNER_BYTES_MAX {
        return Err(CommandError::LockOwner(owner.len()));
    }
    let (mut hold, mut under, mut wait_ms) = (None, None, None);
    let mut index = 3;
    while let Some(option) = arguments.get(index) {
        if index + 1 >= arguments.len() {
            return Err(CommandError::Syntax);
        }
        if is(option, "PX") && hold.is_none() {
            hold = Some(Hold::Lease(lease(arguments, index, "lock")?));
        } else if is(option, "SESSION") && hold.is_none() {
            let id = session(at(arguments, index + 1))?;
            (hold, under) = (Some(Hold::Session(id.number)), Some(id));
        } else if is(option, "WAIT") && wait_ms.is_none() {
            wait_ms = Some(duration(at(arguments, index + 1), 0, CommandError::LockWait)?);
        } else {
            return Err(CommandError::Syntax);
        }
        index += 2;
    }
    let hold = hold.ok_or(CommandError::Syntax)?;
    Ok(LockRequest::Acquire { name, owner, hold, session: under, wait_ms: wait_ms.unwrap_or(0) })
}

/// Reads the lock's name.
fn name(arguments: Arguments<'_>) -> Result<&[u8], CommandError> {
    let name = at(arguments, 1);
    if name.len() > LOCK_NAME_BYTES_MAX { Err(CommandError::LockNameTooLong(name.len())) } else { Ok(name) }
}

/// Reads a fencing token: a positive integer.
pub(super) fn token(text: &[u8]) -> Result<Version, CommandError> {
    let token = parse_integer(text).ok_or(CommandError::NotAnInteger)?;
    u64::try_from(token).ok().filter(|token| *token > 0).ok_or(CommandError::NotAToken)
}

/// Reads `PX milliseconds`, from `index` on.
fn lease(arguments: Arguments<'_>, index: usize, command: &'static str) -> Result<u64, CommandError> {
    if !is(at(arguments, index), "PX") {
        return Err(CommandError::Syntax);
    }
    duration(at(arguments, index + 1), 1, CommandError::LockLease(command))
}

fn duration(text: &[u8], least: i64, error: CommandError) -> Result<u64, CommandError> {
    let ms = parse_integer(text).ok_or(CommandError::NotAnInteger)?;
    if ms < least || ms.unsigned_abs() > LEASE_MS_MAX { Err(error) } else { Ok(ms.unsigned_abs()) }
}

fn session(text: &[u8]) -> Result<SessionId, CommandError> {
    SessionId::parse(text).ok_or(CommandError::NotASession)
}
