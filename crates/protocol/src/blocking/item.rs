//! The requests of coordinators to replicas, and the answers: the items that messages consist of.

use crate::registers::Tag;
use crate::registers::message::{take_key, take_register};
use kv::codec::{Malformed, Reader, Writer};
use kv::limits::VALUE_BYTES_MAX_CEILING;
use kv::{Register, UnixMs};

/// A coordinator's request to one replica about one key, for one of its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// Grant the lock, and report what the key holds.
    Lock {
        /// The coordinator's attempt.
        attempt: u64,
        /// The key.
        key: &'a [u8],
        /// Send the value if its write is newer than this one; `None`: never.
        newer_than: Option<Tag>,
    },
    /// Store this register under the named grant.
    Write {
        /// The coordinator's attempt.
        attempt: u64,
        /// The grant that the replica gave it.
        grant: u64,
        /// The key.
        key: &'a [u8],
        /// The generation in which the operation began.
        generation: u64,
        /// What the key should hold.
        register: Register<'a>,
    },
    /// Free the lock, and report whether the key holds this write or a newer one.
    Unlock {
        /// The coordinator's attempt.
        attempt: u64,
        /// The key.
        key: &'a [u8],
        /// The write; [`Tag::NONE`] when none was sent.
        tag: Tag,
    },
}

/// A replica's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The attempt has the lock. Reports what the key holds.
    Granted {
        /// The coordinator's attempt.
        attempt: u64,
        /// The key, so that a coordinator that has long forgotten the attempt can still release the lock.
        key: &'a [u8],
        /// The grant's number.
        grant: u64,
        /// The write that the key holds.
        tag: Tag,
        /// Its deadline.
        deadline: UnixMs,
        /// Its value, if that was requested and is newer than what the coordinator has.
        value: Option<&'a [u8]>,
    },
    /// The lock is not granted.
    Denied {
        /// The coordinator's attempt.
        attempt: u64,
    },
    /// The key holds the write, or a newer one.
    Stored {
        /// The coordinator's attempt.
        attempt: u64,
    },
    /// The key does not hold the write, and the grant has ended, so nothing sent under it will ever be accepted.
    Lost {
        /// The coordinator's attempt.
        attempt: u64,
        /// The grant.
        grant: u64,
    },
    /// The attempt no longer has the lock.
    Unlocked {
        /// The coordinator's attempt.
        attempt: u64,
        /// Whether it had the lock until now.
        freed: bool,
        /// Whether the key holds the write named in the request, or a newer one.
        holds: bool,
    },
}

const LOCK: u8 = 1;
const WRITE: u8 = 2;
const UNLOCK: u8 = 3;

const GRANTED: u8 = 1;
const DENIED: u8 = 2;
const STORED: u8 = 3;
const LOST: u8 = 4;
const UNLOCKED: u8 = 5;

impl Answer<'_> {
    /// The attempt that it answers.
    pub fn attempt(&self) -> u64 {
        match *self {
            Answer::Granted { attempt, .. }
            | Answer::Denied { attempt, .. }
            | Answer::Stored { attempt }
            | Answer::Lost { attempt, .. }
            | Answer::Unlocked { attempt, .. } => attempt,
        }
    }
}

/// An item of a message: it can be encoded, and decoded with everything checked.
pub trait Item<'a>: Copy {
    /// Appends the item's encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes one item from the front of `reader`.
    ///
    /// # Errors [`Malformed`] when the bytes end early or contain something that no replica sends.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed>;
}

impl<'a> Item<'a> for Ask<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, tag: u8, attempt: u64, key: &[u8]| {
            out.put_u8(tag);
            out.put_u64(attempt);
            out.put_bytes(key);
        };
        match *self {
            Ask::Lock { attempt, key, newer_than } => {
                head(out, LOCK, attempt, key);
                out.put_bool(newer_than.is_some());
                out.put_u64(newer_than.unwrap_or_default().version());
            }
            Ask::Write { attempt, grant, key, generation, register } => {
                out.reserve(49 + key.len() + register.value.len());
                head(out, WRITE, attempt, key);
                out.put_u64(grant);
                out.put_u64(generation);
                out.put_u64(register.version);
                out.put_u64(register.deadline);
                out.put_bytes(register.value);
            }
            Ask::Unlock { attempt, key, tag } => {
                head(out, UNLOCK, attempt, key);
                out.put_u64(tag.version());
            }
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Ask<'a>, Malformed> {
        let (tag, attempt, key) = (reader.u8()?, reader.u64()?, take_key(reader)?);
        Ok(match tag {
            LOCK => {
                let (wanted, newer_than) = (reader.bool()?, Tag::decode(reader)?);
                Ask::Lock { attempt, key, newer_than: wanted.then_some(newer_than) }
            }
            WRITE => {
                let (grant, generation, tag) = (reader.u64()?, reader.u64()?, Tag::decode(reader)?);
                if tag == Tag::NONE {
                    return Err(Malformed("a write without a tag"));
                }
                Ask::Write {
                    attempt,
                    grant,
                    key,
                    generation,
                    register: take_register(tag.version(), reader)?,
                }
            }
            UNLOCK => Ask::Unlock { attempt, key, tag: Tag::decode(reader)? },
            _ => return Err(Malformed("unknown kind of ask")),
        })
    }
}

impl<'a> Item<'a> for Answer<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, tag: u8, attempt: u64| {
            out.put_u8(tag);
            out.put_u64(attempt);
        };
        match *self {
            Answer::Granted { attempt, key, grant, tag, deadline, value } => {
                head(out, GRANTED, attempt);
                out.put_bytes(key);
                out.put_u64(grant);
                out.put_u64(tag.version());
                out.put_u64(deadline);
                out.put_bool(value.is_some());
                if let Some(value) = value {
                    out.put_bytes(value);
                }
            }
            Answer::Denied { attempt } => head(out, DENIED, attempt),
            Answer::Stored { attempt } => head(out, STORED, attempt),
            Answer::Lost { attempt, grant } => {
                head(out, LOST, attempt);
                out.put_u64(grant);
            }
            Answer::Unlocked { attempt, freed, holds } => {
                head(out, UNLOCKED, attempt);
                out.put_bool(freed);
                out.put_bool(holds);
            }
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Answer<'a>, Malformed> {
        let (tag, attempt) = (reader.u8()?, reader.u64()?);
        Ok(match tag {
            GRANTED => {
                let (key, grant) = (take_key(reader)?, reader.u64()?);
                let (tag, deadline) = (Tag::decode(reader)?, reader.u64()?);
                let value = if reader.bool()? { Some(take_value(reader)?) } else { None };
                Answer::Granted { attempt, key, grant, tag, deadline, value }
            }
            DENIED => Answer::Denied { attempt },
            STORED => Answer::Stored { attempt },
            LOST => Answer::Lost { attempt, grant: reader.u64()? },
            UNLOCKED => Answer::Unlocked { attempt, freed: reader.bool()?, holds: reader.bool()? },
            _ => return Err(Malformed("unknown kind of answer")),
        })
    }
}

fn take_value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let value = reader.bytes()?;
    if value.len() > VALUE_BYTES_MAX_CEILING { Err(Malformed("a value is too long")) } else { Ok(value) }
}
