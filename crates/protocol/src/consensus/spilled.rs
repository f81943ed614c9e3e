//! Spilled values: what a replica has whoever keeps them for it do.
//!
//! Each replica spills for itself what it applies ([`kv::table::Spilled`]), and its checkpoints hold references. A copy for
//! another replica holds the values themselves, behind the entries that refer to them: a chunk waits until they are there.

use super::Replica;
use crate::contract::{Effects, Now, SpilledValues};
use kv::table::Spilled;
use kv::{Reference, Table};

impl SpilledValues for Replica {
    #[inline]
    fn take_spilled(&mut self) -> Option<Spilled> {
        let mut news = self.table.take_spilled();
        if self.receiver.is_some() || self.replayed_copy.is_some() {
            let receiver = self.receiver.as_mut().map(|receiver| &mut receiver.table);
            let replayed = self.replayed_copy.as_mut().map(|copy| &mut copy.table);
            for table in receiver.into_iter().chain(replayed) {
                if let Some(more) = table.take_spilled() {
                    news.get_or_insert_default().append(more);
                }
            }
        }
        news
    }

    fn refers_to(&self, reference: &Reference) -> bool {
        self.tables().any(|table| table.refers_to(reference))
    }

    fn spilled(&self) -> Vec<Reference> {
        self.tables().flat_map(Table::spilled).collect()
    }

    fn sends_copies(&self) -> bool {
        self.senders.iter().any(|sender| !sender.is_delivered)
    }

    fn wanted_values(&mut self) -> Vec<Reference> {
        let mut wanted = Vec::new();
        for loading in self.senders.iter_mut().filter_map(|sender| sender.loading.as_mut()) {
            loading.take_wanted(&mut wanted);
        }
        wanted
    }

    fn take_value(&mut self, now: Now, reference: Reference, value: Option<&[u8]>, effects: &mut Effects) {
        let mut is_lost = false;
        for sender in &mut self.senders {
            let Some(loading) = &mut sender.loading else { continue };
            match value {
                Some(value) => loading.take(now.monotonic_us, reference, value),
                None => is_lost |= loading.lacks(&reference),
            }
        }
        if is_lost {
            let waits = |sender: &super::copying::Sender| {
                sender.loading.as_ref().is_some_and(|loading| loading.lacks(&reference))
            };
            self.abandon_copies(waits, effects);
        }
        self.advance_copies(now, effects);
    }
}

impl Replica {
    fn tables(&self) -> impl Iterator<Item = &Table> {
        let receiver = self.receiver.as_ref().map(|receiver| &receiver.table);
        let replayed = self.replayed_copy.as_ref().map(|copy| &copy.table);
        [Some(&self.table), receiver, replayed].into_iter().flatten()
    }
}
