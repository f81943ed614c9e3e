//! Transactions as bytes: the items of a snapshot. Each is self-contained. What goes back to locked keys
//! does so in the order of its items; otherwise their order has no meaning.

use super::{Known, Locks, Over, Prepared, RETURNED_BYTES, Standing, TwoPhase, ValueOf};
use crate::codec::{Malformed, Reader, Writer};
use crate::coded::Reference;
use crate::command::{Header, Share};
use crate::queues::Origin;

const PREPARED: u8 = 1;
const COMMITTED: u8 = 2;
const REFUSED: u8 = 3;
const OVER: u8 = 4;
const RETURNED: u8 = 5;
const STALLED: u8 = 6;
const LOCKED: u8 = 7;
/// Prepared, after its keys were locked.
const PREPARED_LOCKED: u8 = 8;

impl TwoPhase {
    /// Calls `take` with every item of a snapshot.
    pub(crate) fn for_each_item(&self, mut take: impl FnMut(&[u8])) {
        let mut item = Vec::new();
        for Known { header, standing } in self.known.values() {
            item.clear();
            item.put_u8(match standing {
                Standing::Locked(_) => LOCKED,
                Standing::Prepared(prepared) if prepared.locks.is_some() => PREPARED_LOCKED,
                Standing::Prepared(_) => PREPARED,
                Standing::Committed => COMMITTED,
                Standing::Refused => REFUSED,
            });
            item.put_bytes(header);
            match standing {
                Standing::Locked(locks) => put_locks(locks, &mut item),
                Standing::Prepared(Prepared { share, locks, values, bound, version, time }) => {
                    item.put_bool(bound.is_some());
                    item.put_u64(bound.unwrap_or_default());
                    item.put_u64(*version);
                    item.put_u64(*time);
                    item.put_bytes(share);
                    item.put_u32(values.len() as u32);
                    for ValueOf { key, reference, value } in values {
                        item.put_bytes(key);
                        item.put_bytes(&reference.encoded());
                        item.put_bytes(value);
                    }
                    locks.iter().for_each(|locks| put_locks(locks, &mut item));
                }
                Standing::Committed | Standing::Refused => {}
            }
            take(&item);
        }
        for (origin, reply) in &self.returned {
            item.clear();
            item.put_u8(RETURNED);
            item.put_u8(*origin as u8);
            item.put_bytes(reply);
            take(&item);
        }
        if self.is_stalled {
            take(&[STALLED]);
        }
        for (node, Over { life, below }) in &self.over {
            item.clear();
            item.put_u8(OVER);
            item.put_u16(*node);
            item.put_u64(*life);
            item.put_u64(*below);
            take(&item);
        }
    }

    /// Adds one item of a snapshot.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not an item, or one that is already present.
    pub(crate) fn take_item(&mut self, item: &[u8]) -> Result<(), Malformed> {
        const TWICE: Malformed = Malformed("an item that is there twice in a copy of transactions");
        let mut reader = Reader::new(item);
        let kind = reader.u8()?;
        match kind {
            LOCKED | PREPARED | PREPARED_LOCKED | COMMITTED | REFUSED => {
                let header = Header::of(reader.bytes()?)?;
                if self.known.contains_key(&header.id()) {
                    return Err(TWICE);
                }
                let standing = match kind {
                    LOCKED => Standing::Locked(take_locks(&mut reader)?),
                    PREPARED | PREPARED_LOCKED => {
                        let (is_bounded, bound) = (reader.bool()?, reader.u64()?);
                        let bound = is_bounded.then_some(bound);
                        let (version, time) = (reader.u64()?, reader.u64()?);
                        let share = Share::of(reader.bytes()?)?.bytes().into();
                        let mut values = Vec::new();
                        for _ in 0..reader.u32()? {
                            let (key, reference) =
                                (reader.bytes()?.into(), Reference::decode(reader.bytes()?)?);
                            values.push(ValueOf { key, reference, value: reader.bytes()?.into() });
                        }
                        let locks = match kind {
                            PREPARED_LOCKED => Some(take_locks(&mut reader)?),
                            _ => None,
                        };
                        Standing::Prepared(Prepared { share, locks, values, bound, version, time })
                    }
                    COMMITTED => Standing::Committed,
                    _ => Standing::Refused,
                };
                match standing.holds() {
                    true if self.in_the_way(standing.locks_all(), &standing.locked_keys()).is_some() => {
                        return Err(Malformed("a key that two transactions have locked"));
                    }
                    true => self.hold(header, standing),
                    false => self.keep(header, standing),
                }
            }
            RETURNED => {
                let origin = Origin::numbered(reader.u8()?)?;
                let reply: Box<[u8]> = reader.bytes()?.into();
                self.bytes += RETURNED_BYTES + reply.len();
                self.returned.push((origin, reply));
            }
            STALLED => self.is_stalled = true,
            OVER => {
                let (node, life, below) = (reader.u16()?, reader.u64()?, reader.u64()?);
                if self.over.insert(node, Over { life, below }).is_some() {
                    return Err(TWICE);
                }
            }
            _ => return Err(Malformed("an unknown item of a copy of transactions")),
        }
        if reader.is_empty() {
            Ok(())
        } else {
            Err(Malformed("bytes behind an item of a copy of transactions"))
        }
    }
}

fn put_locks(Locks { share, version }: &Locks, item: &mut Vec<u8>) {
    item.put_u64(*version);
    item.put_bytes(share);
}

fn take_locks(reader: &mut Reader<'_>) -> Result<Locks, Malformed> {
    Ok(Locks { version: reader.u64()?, share: Share::of(reader.bytes()?)?.bytes().into() })
}
