//! What the protocols of registers have in common in the test kit.

use crate::kit::{Beside, Consequences, Protocol, World};
use kv::Register;
use protocol::contract::{Configuration, NodeId, Now, Replica as _};
use protocol::registers::Replacement;
use protocol::registers::message::Body;

/// A protocol of registers.
pub(crate) trait Registers: Protocol<Beside = Replaced> {
    fn keeps_records(options: &Self::Options) -> bool;

    fn has_memory(replica: &Self::Replica, now: Now) -> bool;
}

/// Whether a node was let in as one that was replaced, since it had lost its disk.
pub(crate) struct Replaced {
    keeps_records: bool,
    /// As long as it has not started since, this does not say in which start that was.
    replacement: Option<Replacement>,
}

impl<P: Registers> Beside<P> for Replaced {
    fn new(options: &P::Options) -> Replaced {
        Replaced { keeps_records: P::keeps_records(options), replacement: None }
    }

    fn begin_life(&mut self, replica: &mut P::Replica, starts: u64) {
        if let Some(replacement) = self.replacement.as_mut().filter(|_| self.keeps_records) {
            if replacement.since == 0 {
                replacement.since = starts;
            }
            replica.replaced(replacement);
        }
    }

    fn lose_disk(&mut self, starts: u64) {
        let lives_before = self.replacement.take().unwrap_or_default().lives_before + starts;
        self.replacement = Some(Replacement { lives_before, ..Replacement::default() });
    }
}

/// An operator gives up what a replica has forgotten.
pub(crate) fn give_up<P: Registers>(world: &mut World<P>, id: NodeId) -> Consequences {
    let configuration = Configuration { is_given_up: true, ..world.configuration.clone() };
    world.configure_as(id, &configuration)
}

/// What a replica holds of a key.
pub(crate) fn register<'w, P: Protocol>(world: &'w World<P>, id: NodeId, key: &str) -> Option<Register<'w>> {
    Some(world.table(id)?.register(key.as_bytes()))
}

/// Whether a replica holds again all that it ever acknowledged.
pub(crate) fn has_memory<P: Registers>(world: &World<P>, id: NodeId) -> bool {
    world.replica(id).is_some_and(|replica| P::has_memory(replica, world.now(id)))
}

/// A step that has recorded something, no matter what.
pub(crate) fn show_records(records: &[Vec<u8>]) -> Vec<String> {
    if records.is_empty() { Vec::new() } else { vec!["records".into()] }
}

/// The kind of a message of the upkeep.
pub(crate) fn kind(body: &Body<'_>) -> &'static str {
    match body {
        Body::Hello { .. } => "Hello",
        Body::Standing { .. } => "Standing",
        Body::Fetch { .. } => "Fetch",
        Body::Chunk { .. } => "Chunk",
        Body::Compare { .. } => "Compare",
        Body::Same { .. } => "Same",
        Body::Differ { .. } => "Differ",
        Body::Repair { .. } => "Repair",
        Body::Collect { .. } => "Collect",
        Body::Collected { .. } => "Collected",
    }
}
