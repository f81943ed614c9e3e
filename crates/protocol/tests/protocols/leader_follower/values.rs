//! A node's store of spilled values: what is put into it, what may be removed, and what a crash leaves.
//!
//! It does what a node does, with no more guarantees than a node may rely on. A crash loses what was put, unless a
//! checkpoint has made it safe; what was removed is lost forever.

use super::LeaderFollower;
use crate::kit::Beside;
use kv::codec::Reader;
use kv::table::Spilled;
use kv::{Reference, Reply, ReplyBuffer, ValueRef};
use protocol::leader_follower::{Durability, Options, Replica};
use protocol::planted::{Fault, Planted};
use protocol::{Replica as _, SpilledValues as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Values {
    /// Whether records may refer to released values. Without records no start finds a table that refers to anything.
    keeps_records: bool,
    held: BTreeMap<Reference, Vec<u8>>,
    /// The values that a crash leaves.
    safe: BTreeSet<Reference>,
    /// Released since the last checkpoint began.
    released: BTreeSet<Reference>,
    /// Released before the checkpoint that is under way began.
    leaving: BTreeSet<Reference>,
    /// To be removed, unless something refers to them again.
    removals: BTreeSet<Reference>,
    /// Values for which snapshots wait.
    wanted: Vec<Reference>,
    /// The planted fault of the node.
    planted: Planted,
}

impl Values {
    /// Takes the values for which snapshots wait; all of them must exist.
    pub(crate) fn take_wanted(&mut self) -> Vec<(Reference, Vec<u8>)> {
        let value_of = |reference: &Reference| {
            self.held.get(reference).cloned().unwrap_or_else(|| panic!("{reference:?} of a snapshot is lost"))
        };
        std::mem::take(&mut self.wanted).into_iter().map(|wanted| (wanted, value_of(&wanted))).collect()
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Whether a value waits for a checkpoint to be removed. A value may be released, arrive again with a snapshot, and be
    /// released again while its first removal waits, for example until no snapshot is sent. Then a checkpoint that began in
    /// between may refer to it.
    fn is_released(&self, reference: &Reference) -> bool {
        self.released.contains(reference) || self.leaving.contains(reference)
    }

    /// Shows what it holds: version and number of each value.
    pub(crate) fn shown(&self) -> String {
        let name = |reference: &Reference| {
            let text = String::from_utf8_lossy(&self.held[reference]).into_owned();
            format!("{text} (version {})", reference.id.coordinator.life)
        };
        let names: Vec<String> = self.held.keys().map(name).collect();
        if names.is_empty() { "nothing".into() } else { names.join(", ") }
    }
}

impl Beside<LeaderFollower> for Values {
    fn new(options: &Options) -> Values {
        let keeps_records = options.durability != Durability::None;
        Values { keeps_records, planted: options.planted, ..Values::default() }
    }

    /// Takes over the values that a replica has spilled.
    fn follow(&mut self, replica: &mut Replica) {
        if let Some(Spilled { kept, released }) = replica.take_spilled() {
            let bytes = |value: Arc<Vec<u8>>| Arc::unwrap_or_clone(value);
            self.held.extend(kept.into_iter().map(|(name, value)| (name, bytes(value))));
            match self.keeps_records && !self.planted.has(Fault::ValueRemovedEarly) {
                true => self.released.extend(released),
                false => self.removals.extend(released),
            }
        }
        self.wanted.append(&mut replica.wanted_values());
        for reference in replica.spilled() {
            assert!(self.held.contains_key(&reference), "{reference:?} is lost");
        }
    }

    /// Removes values that are no longer needed.
    fn tidy(&mut self, replica: &mut Replica) {
        if !self.removals.is_empty() && !replica.sends_snapshots() {
            for reference in std::mem::take(&mut self.removals) {
                if self.wanted.contains(&reference) {
                    self.removals.insert(reference); // It is being read.
                } else if !replica.refers_to(&reference) && !self.is_released(&reference) {
                    self.held.remove(&reference);
                    self.safe.remove(&reference);
                }
            }
        }
    }

    /// Completes a replica's reply as its node does.
    fn complete(&self, reply: &[u8]) -> Vec<u8> {
        let mut reader = Reader::new(reply);
        if !matches!(Reply::decode(&mut reader), Ok(Reply::Unresolved(_))) {
            return reply.to_vec();
        }
        let mut whole = ReplyBuffer::new();
        while let Ok(part) = Reply::decode(&mut reader) {
            let Reply::Reference(told) = part else {
                whole.push(part);
                continue;
            };
            let ValueRef { reference, view } =
                ValueRef::decode(told).expect("replicas encode valid references");
            let value =
                self.held.get(&reference).unwrap_or_else(|| panic!("{reference:?} is in a reply and lost"));
            whole.bulk(view.of(value));
        }
        whole.as_bytes().to_vec()
    }

    /// When all records were taken: values that nothing refers to are left over from the crash.
    fn begin_incarnation(&mut self, replica: &mut Replica, _starts: u64) {
        let leftover = |reference: &&Reference| {
            !replica.table().refers_to(reference) && !self.released.contains(reference)
        };
        let leftovers: Vec<Reference> = self.held.keys().filter(leftover).copied().collect();
        self.removals.extend(leftovers);
    }

    fn crash(&mut self) {
        let Values { mut held, safe, keeps_records, planted, .. } = std::mem::take(self);
        held.retain(|reference, _| safe.contains(reference));
        *self = Values { held, safe, keeps_records, planted, ..Values::default() };
    }

    fn lose_disk(&mut self, _starts: u64) {
        let Values { keeps_records, planted, .. } = *self;
        *self = Values { keeps_records, planted, ..Values::default() };
    }

    /// When a checkpoint begins, all values that were put are made safe before it is written.
    fn begin_checkpoint(&mut self) {
        if !self.planted.has(Fault::CheckpointBeforeValues) {
            self.safe.extend(self.held.keys());
        }
        self.leaving = std::mem::take(&mut self.released);
    }

    fn end_checkpoint(&mut self, counts: bool) {
        let leaving = std::mem::take(&mut self.leaving);
        if counts { &mut self.removals } else { &mut self.released }.extend(leaving);
    }
}
