//! Commands as bytes: the records of the log, and the requests that nodes forward to each other.

#[cfg(test)]
mod tests;

use super::declaration::Part;
use super::{
    Command, Condition, Deadline, EncodingLimits, ExpireCondition, Expiry, ExpiryUnit, FieldsCondition,
    FormerUse, RestoreOptions, SetAnswer, Usage,
};
use crate::codec::{Malformed, Reader, Writer};
use crate::coded::{Coordinator, REFERENCE_BYTES, Reference, ValueId};

/// Flags in the byte that says whether a restored value replaces another one: which information about its use follows.
const RESTORED_IDLE: u8 = 2;
const RESTORED_FREQUENCY: u8 = 4;
/// The plain `SET key value`: by far the most frequent record, so it has a short form.
const SET_PLAIN: u8 = 127;
/// Bytes of its encoding beside key and value.
pub(crate) const PLAIN_SET_BYTES: usize = 9;

// Tags of commands that are looked at before they are decoded.
pub(super) const SET: u8 = 64;
pub(super) const SET_IF: u8 = 80;
pub(super) const LIST: u8 = 94;
pub(super) const SORTED_WRITE: u8 = 96;
pub(super) const STREAM_READ: u8 = 28;
pub(super) const STREAM_WRITE: u8 = 100;

/// Whether a client can have put an encoded command behind a fence.
pub(super) fn may_be_fenced(encoded: &[u8]) -> bool {
    matches!(encoded.first(), Some(&(SET_PLAIN | SET | SET_IF)))
}

/// Whether an encoded command may be one that waits.
pub(super) fn may_wait(encoded: &[u8]) -> bool {
    matches!(encoded.first(), Some(&(LIST | SORTED_WRITE | STREAM_READ | STREAM_WRITE)))
}

impl<'a> Command<'a> {
    /// Appends the command's encoding.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Command::Set {
                key,
                value,
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            } => {
                out.reserve(PLAIN_SET_BYTES + key.len() + value.len());
                out.put_u8(SET_PLAIN);
                out.put_bytes(key);
                out.put_bytes(value);
            }
            _ => self.put_declared(out),
        }
    }

    /// Appends the encoding of a plain `SET` without its value, which comes last and is returned. For another command,
    /// appends nothing.
    pub fn encode_before_value(&self, out: &mut Vec<u8>) -> Option<&'a [u8]> {
        let Command::Set {
            key,
            value,
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        } = *self
        else {
            return None;
        };
        out.put_u8(SET_PLAIN);
        out.put_bytes(key);
        out.put_u32(value.len() as u32);
        Some(value)
    }

    /// Takes one command off the front of `reader`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early or contain something that no encoder writes.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>) -> Result<Command<'a>, Malformed> {
        match reader.u8()? {
            SET_PLAIN => Ok(Command::Set {
                key: reader.bytes()?,
                value: reader.bytes()?,
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            }),
            tag => match Self::take_declared(tag, reader)? {
                // It would need the bytes of the previous value.
                Command::SetCoded { answer: SetAnswer::Before, .. } => {
                    Err(Malformed("a coded value that asks for the one before"))
                }
                command => Ok(command),
            },
        }
    }
}

impl<'a> Part<'a> for &'a [u8; REFERENCE_BYTES] {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let bytes = reader.take(REFERENCE_BYTES)?;
        Reference::decode(bytes)?;
        bytes.try_into().map_err(|_| Malformed("ends early"))
    }
}

impl<'a> Part<'a> for Coordinator {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u16(self.node);
        out.put_u64(self.life);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Coordinator { node: reader.u16()?, life: reader.u64()? })
    }
}

impl<'a> Part<'a> for ValueId {
    fn put(self, out: &mut Vec<u8>) {
        ValueId::put(&self, out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        ValueId::take(reader)
    }
}

impl<'a> Part<'a> for EncodingLimits {
    fn put(self, out: &mut Vec<u8>) {
        let EncodingLimits { hash_fields, hash_item_bytes, intset_members, .. } = self;
        let EncodingLimits { sorted_members, sorted_member_bytes, .. } = self;
        let all = [hash_fields, hash_item_bytes, intset_members, sorted_members, sorted_member_bytes];
        all.into_iter().for_each(|limit| out.put_u32(limit));
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(EncodingLimits {
            hash_fields: reader.u32()?,
            hash_item_bytes: reader.u32()?,
            intset_members: reader.u32()?,
            sorted_members: reader.u32()?,
            sorted_member_bytes: reader.u32()?,
        })
    }
}

impl<'a> Part<'a> for Usage {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bool(self == Usage::Frequency);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(if reader.bool()? { Usage::Frequency } else { Usage::Idle })
    }
}

impl<'a> Part<'a> for RestoreOptions {
    fn put(self, out: &mut Vec<u8>) {
        let replaces = u8::from(self.replaces);
        match self.used {
            None => out.put_u8(replaces),
            Some(FormerUse::Idle(seconds)) => {
                out.put_u8(RESTORED_IDLE | replaces);
                out.put_u32(seconds);
            }
            Some(FormerUse::Frequency(counter)) => {
                out.put_u8(RESTORED_FREQUENCY | replaces);
                out.put_u8(counter);
            }
        }
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let flags = reader.u8()?;
        let used = match flags & !1 {
            0 => None,
            RESTORED_IDLE => Some(FormerUse::Idle(reader.u32()?)),
            RESTORED_FREQUENCY => Some(FormerUse::Frequency(reader.u8()?)),
            _ => return Err(Malformed("unknown use of a restored value")),
        };
        Ok(RestoreOptions { replaces: flags & 1 != 0, used })
    }
}

fn put_expiry(out: &mut Vec<u8>, expiry: Expiry) {
    match expiry {
        Expiry::Clear => out.put_u8(0),
        Expiry::Keep => out.put_u8(1),
        Expiry::Set(Deadline::In(ms)) => {
            out.put_u8(2);
            out.put_i64(ms);
        }
        Expiry::Set(Deadline::At(ms)) => {
            out.put_u8(3);
            out.put_i64(ms);
        }
    }
}

fn take_expiry(reader: &mut Reader<'_>) -> Result<Expiry, Malformed> {
    Ok(match reader.u8()? {
        0 => Expiry::Clear,
        1 => Expiry::Keep,
        2 => Expiry::Set(Deadline::In(reader.i64()?)),
        3 => Expiry::Set(Deadline::At(reader.i64()?)),
        _ => return Err(Malformed("unknown kind of expiry")),
    })
}

impl<'a> Part<'a> for Expiry {
    fn put(self, out: &mut Vec<u8>) {
        put_expiry(out, self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        take_expiry(reader)
    }
}

impl<'a> Part<'a> for Deadline {
    fn put(self, out: &mut Vec<u8>) {
        put_expiry(out, Expiry::Set(self));
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        match take_expiry(reader)? {
            Expiry::Set(deadline) => Ok(deadline),
            _ => Err(Malformed("an expiry without a deadline")),
        }
    }
}

/// An option that is encoded as one byte.
macro_rules! one_byte {
    ($name:ident, $take:ident) => {
        impl<'a> Part<'a> for $name {
            fn put(self, out: &mut Vec<u8>) {
                out.put_u8(self as u8);
            }

            fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
                $take(reader.u8()?)
            }
        }
    };
}

one_byte!(Condition, condition);

/// One byte: without a condition for the key, the byte of that for the fields.
impl<'a> Part<'a> for FieldsCondition {
    fn put(self, out: &mut Vec<u8>) {
        out.push(self.key as u8 * CONDITIONS + self.fields as u8);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let byte = reader.u8()?;
        Ok(FieldsCondition { key: condition(byte / CONDITIONS)?, fields: condition(byte % CONDITIONS)? })
    }
}

one_byte!(SetAnswer, set_answer);
one_byte!(ExpiryUnit, expiry_unit);
one_byte!(ExpireCondition, expire_condition);

/// How many conditions there are.
const CONDITIONS: u8 = 3;

fn condition(tag: u8) -> Result<Condition, Malformed> {
    use Condition::*;
    let conditions: [Condition; CONDITIONS as usize] = [Always, IfAbsent, IfPresent];
    conditions.get(tag as usize).copied().ok_or(Malformed("unknown condition"))
}

fn set_answer(tag: u8) -> Result<SetAnswer, Malformed> {
    use SetAnswer::*;
    [Status, Integer, Before].get(tag as usize).copied().ok_or(Malformed("unknown kind of answer"))
}

fn expiry_unit(tag: u8) -> Result<ExpiryUnit, Malformed> {
    use ExpiryUnit::*;
    let units = [SecondsLeft, MillisecondsLeft, UnixSeconds, UnixMilliseconds];
    units.get(tag as usize).copied().ok_or(Malformed("unknown unit of expiry"))
}

fn expire_condition(tag: u8) -> Result<ExpireCondition, Malformed> {
    use ExpireCondition::*;
    let conditions = [Always, IfNone, IfSome, IfLater, IfEarlier, IfSomeAndLater, IfSomeAndEarlier];
    conditions.get(tag as usize).copied().ok_or(Malformed("unknown expire condition"))
}
