//! Values on the disk: what a replica needs from the store that keeps them.
//!
//! Each replica moves the values that it applies to its own disk ([`kv::table::Spilled`]), and the pieces of its fragments;
//! its checkpoints hold references. A snapshot for another replica holds the values themselves, after the entries that
//! refer to them: a chunk waits until they have been read. It holds no fragments.

use super::Replica;
use super::outbox::{Outbox, outbox};
use crate::contract::{Effects, Now, SpilledValues};
use kv::table::Spilled;
use kv::{Reference, Table};

impl SpilledValues for Replica {
    #[inline]
    fn take_spilled(&mut self) -> Option<Spilled> {
        let mut news = self.applied.take_spilled();
        if let Some(more) = self.incoming.table_mut().and_then(Table::take_spilled) {
            news.get_or_insert_default().append(more);
        }
        news
    }

    fn refers_to(&self, reference: &Reference) -> bool {
        self.applied.table().refers_to(reference)
            || self.incoming.table().is_some_and(|table| table.refers_to(reference))
            || self.applied.fragments().stored().contains(reference)
    }

    fn spilled(&self) -> Vec<Reference> {
        let tables = [Some(self.applied.table()), self.incoming.table()];
        let fragments = self.applied.fragments().stored().iter().copied();
        tables.into_iter().flatten().flat_map(Table::spilled).chain(fragments).collect()
    }

    fn sends_snapshots(&self) -> bool {
        self.transfers.are_sending()
    }

    fn wanted_values(&mut self) -> Vec<Reference> {
        self.transfers.wanted_values()
    }

    fn take_value(&mut self, now: Now, reference: Reference, value: Option<&[u8]>, effects: &mut Effects) {
        self.transfers.take_value(now, reference, value, self.applied.table_mut(), effects);
        let (members, applied) = (&self.members, &mut self.applied);
        self.transfers.advance(now, members, applied, &mut outbox!(self, effects));
    }
}
