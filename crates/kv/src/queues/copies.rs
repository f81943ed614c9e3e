//! Queues as bytes: the items of a snapshot. Each is self-contained, and their order has no meaning.

use super::{Origin, Queues, Served, Waiting};
use crate::Version;
use crate::codec::{Malformed, Reader, Writer};
use crate::command::{WaiterId, Wish};

const WAITING: u8 = 1;
const SERVED: u8 = 2;
const CLAIMED: u8 = 3;

impl Origin {
    /// The origin that is encoded as this number.
    pub(crate) fn numbered(number: u8) -> Result<Origin, Malformed> {
        let origins = [Origin::None, Origin::Front, Origin::End, Origin::Members];
        let origin = origins.get(usize::from(number)).copied();
        origin.ok_or(Malformed("an unknown origin of what was served"))
    }
}

impl Queues {
    /// Calls `take` with every item of a snapshot.
    pub(crate) fn for_each_item(&self, mut take: impl FnMut(&[u8])) {
        let mut item = Vec::new();
        for (place, Waiting { id, wish }) in &self.waiting {
            item.clear();
            item.put_u8(WAITING);
            item.put_u64(*place);
            id.put(&mut item);
            item.put_bytes(wish);
            take(&item);
        }
        for (id, Served { order: (version, number), is_claimed, origin, reply }) in &self.served {
            item.clear();
            item.put_u8(SERVED);
            id.put(&mut item);
            item.put_u64(*version);
            item.put_u32(*number);
            item.put_bool(*is_claimed);
            item.put_u8(*origin as u8);
            item.put_bytes(reply);
            take(&item);
        }
        if self.statistics.claimed > 0 {
            item.clear();
            item.put_u8(CLAIMED);
            item.put_u64(self.statistics.claimed);
            take(&item);
        }
    }

    /// Adds one item of a snapshot.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not an item, or one that is already present.
    pub(crate) fn take_item(&mut self, item: &[u8]) -> Result<(), Malformed> {
        const TWICE: Malformed = Malformed("an item that is there twice in a copy of queues");
        let mut reader = Reader::new(item);
        match reader.u8()? {
            WAITING => {
                let (place, id): (Version, _) = (reader.u64()?, WaiterId::take(&mut reader)?);
                let wish = Wish::of(reader.bytes()?)?;
                if self.waiting.contains_key(&place) || self.waits(id) || self.served.contains_key(&id) {
                    return Err(TWICE);
                }
                self.add(place, id, wish);
            }
            SERVED => {
                let id = WaiterId::take(&mut reader)?;
                let (order, is_claimed) = ((reader.u64()?, reader.u32()?), reader.bool()?);
                let origin = Origin::numbered(reader.u8()?)?;
                let reply = reader.bytes()?.into();
                if self.waits(id) || self.served.contains_key(&id) {
                    return Err(TWICE);
                }
                let statistics = self.statistics;
                self.keep(id, Served { order, is_claimed, origin, reply });
                self.statistics = statistics;
            }
            CLAIMED if self.statistics.claimed == 0 => self.statistics.claimed = reader.u64()?,
            CLAIMED => return Err(TWICE),
            _ => return Err(Malformed("an unknown item of a copy of queues")),
        }
        if reader.is_empty() { Ok(()) } else { Err(Malformed("bytes behind an item of a copy of queues")) }
    }
}
