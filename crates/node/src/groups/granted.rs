//! The bounds of a group's writes that have no outcome yet: see `context/grants`.

use protocol::Ticket;
use std::collections::BTreeMap;

/// The bounds of the writes that this node has ordered in a group.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    open: BTreeMap<Ticket, Open>,
    /// The sum of the bounds.
    bytes: u64,
    /// What the table here had charged when it was last looked at: see [`kv::Table::charged_bytes`].
    charged: u64,
}

#[derive(Debug)]
struct Open {
    bytes: u64,
    /// When it is forgotten, on the monotonic clock.
    until_us: u64,
}

impl Granted {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The sum of the bounds.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes the bound of a write.
    pub(crate) fn begin(&mut self, ticket: Ticket, bytes: u64, until_us: u64) {
        self.bytes += bytes;
        if let Some(before) = self.open.insert(ticket, Open { bytes, until_us }) {
            self.bytes -= before.bytes;
        }
    }

    /// Forgets the bound of a write and returns it, if it has one.
    pub(crate) fn end(&mut self, ticket: Ticket) -> Option<u64> {
        let bytes = self.open.remove(&ticket)?.bytes;
        assert!(bytes <= self.bytes, "a bound is a part of their sum");
        self.bytes -= bytes;
        Some(bytes)
    }

    /// Forgets the bounds of writes that have left without an outcome.
    pub(crate) fn forget(&mut self, now_us: u64) {
        self.open.retain(|_, open| open.until_us > now_us);
        self.bytes = self.open.values().map(|open| open.bytes).sum();
    }

    /// What the table has charged since the last look.
    pub(crate) fn look(&mut self, charged: u64) -> u64 {
        let before = std::mem::replace(&mut self.charged, charged);
        // Another table may have taken the place of the former one.
        charged.checked_sub(before).unwrap_or(charged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::origin::Origin;

    #[test]
    fn each_bound_ends_once_with_its_write_or_its_time() {
        let mut granted = Granted::default();
        let ticket = |number| Origin::LongPart.ticket(number);
        (0..3).for_each(|number| granted.begin(ticket(number), 10 + number, 100 * number));
        assert_eq!((granted.bytes(), granted.end(ticket(1)), granted.end(ticket(1))), (33, Some(11), None));
        granted.forget(150);
        assert_eq!((granted.bytes(), granted.is_empty()), (12, false));
    }

    #[test]
    fn charges_are_counted_once_and_those_of_another_table_from_its_beginning() {
        let mut granted = Granted::default();
        assert_eq!([granted.look(5), granted.look(5), granted.look(12), granted.look(3)], [5, 0, 7, 3]);
    }
}
