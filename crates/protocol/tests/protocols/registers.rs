//! What the protocols of registers share in the test kit.

use crate::kit::history::Question;
use crate::kit::random::Random;
use crate::kit::schedule::{Check, Ending, Schedule, Scheduled};
use crate::kit::{Beside, Consequences, Protocol, World};
use kv::Register;
use protocol::contract::{Configuration, NodeId, Now, Replica as _, Result as Outcome};
use protocol::registers::Replacement;
use protocol::registers::message::Body;
use std::collections::BTreeSet;

/// A protocol of registers.
pub(crate) trait Registers: Protocol<Beside = Replaced> {
    fn keeps_records(options: &Self::Options) -> bool;

    fn has_memory(replica: &Self::Replica, now: Now) -> bool;
}

/// Whether a node was admitted as a replaced one, since it had lost its disk.
pub(crate) struct Replaced {
    keeps_records: bool,
    /// Its `since` is 0 until the node has started again.
    replacement: Option<Replacement>,
}

impl<P: Registers> Beside<P> for Replaced {
    fn new(options: &P::Options) -> Replaced {
        Replaced { keeps_records: P::keeps_records(options), replacement: None }
    }

    fn begin_incarnation(&mut self, replica: &mut P::Replica, starts: u64) {
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

/// Makes a protocol of registers known to the kit: the same for all of them except for how outcomes are shown.
macro_rules! in_the_kit {
    ($name:ident, $protocol:ident, $show_done:expr) => {
        pub(crate) struct $name;

        type World = crate::kit::World<$name>;

        impl crate::kit::Protocol for $name {
            type Replica = protocol::$protocol::Replica;
            type Options = protocol::$protocol::Options;
            type Timing = protocol::$protocol::Timing;
            type Status = protocol::$protocol::Status;
            type Beside = crate::registers::Replaced;

            fn make(start: crate::kit::Start<Self>, _: &Self::Beside) -> Self::Replica {
                const TABLE_SEED: u64 = 7;
                let crate::kit::Start { id, options, timing, starts, seed } = start;
                Self::Replica::new(id, options, timing, starts, seed, TABLE_SEED)
            }

            fn status(replica: &Self::Replica, now: protocol::contract::Now) -> Self::Status {
                replica.status(now)
            }

            fn kinds(message: &protocol::$protocol::Message<'_>) -> Vec<&'static str> {
                show::kinds(message)
            }

            fn show_message(message: &protocol::$protocol::Message<'_>) -> String {
                show::message(message)
            }

            fn show_status(status: &Self::Status) -> String {
                show::status(status)
            }

            fn show_done(version: kv::Version, _offset: kv::Version) -> String {
                let show_done: fn(Option<protocol::registers::Tag>) -> String = $show_done;
                show_done((version > 0).then(|| protocol::registers::Tag::of_version(version)))
            }

            /// Shows only that a step has recorded something.
            fn show_records(records: &[Vec<u8>]) -> Vec<String> {
                if records.is_empty() { Vec::new() } else { vec!["records".into()] }
            }
        }

        impl crate::registers::Registers for $name {
            fn keeps_records(options: &Self::Options) -> bool {
                options.keeps_records
            }

            fn has_memory(replica: &Self::Replica, now: protocol::contract::Now) -> bool {
                replica.status(now).role == "replica"
            }
        }
    };
}
pub(crate) use in_the_kit;

/// What a schedule knows of its replicas' memory. The promise is that a minority may be without it at one time.
pub(crate) struct Memory {
    keeps_records: bool,
    /// The percentage of crashes that lose the disk, among those after which a disk may be lost.
    pub(crate) lose_disk: u64,
    /// Nodes that do not hold yet what they must, since they have just begun or have lost it.
    damaged: BTreeSet<NodeId>,
    /// Nodes that have recorded that they vouch for what they hold.
    vouching: BTreeSet<NodeId>,
}

impl Memory {
    pub(crate) fn new<P: Registers>(world: &World<P>, keeps_records: bool, lose_disk: u64) -> Memory {
        Memory { keeps_records, lose_disk, damaged: world.members().collect(), vouching: BTreeSet::new() }
    }

    /// Notes that a node has ended its turn.
    pub(crate) fn flushed<P: Registers>(&mut self, world: &World<P>, id: NodeId) {
        if !self.vouching.contains(&id) && has_memory(world, id) {
            self.vouching.insert(id);
        }
    }

    /// Notes that a node has taken a step.
    pub(crate) fn look<P: Registers>(&mut self, world: &World<P>, id: NodeId) {
        // What it vouches for has to survive the next crash, or the node is as damaged as before.
        let is_safe = !self.keeps_records || self.vouching.contains(&id) && world.is_synced(id);
        if self.damaged.contains(&id) && is_safe && has_memory(world, id) {
            self.damaged.remove(&id);
        }
    }

    pub(crate) fn may_lose<P: Registers>(&self, world: &World<P>, id: NodeId) -> bool {
        let survives = (world.members().count() - 1) / 2;
        self.damaged.len() + usize::from(!self.damaged.contains(&id)) <= survives
    }

    /// Whether a node may crash: without records a crash takes the memory.
    pub(crate) fn may_crash<P: Registers>(&self, world: &World<P>, id: NodeId) -> bool {
        self.keeps_records || !world.is_alive(id) || self.may_lose(world, id)
    }

    /// Handles a crash. Perhaps the node loses its disk, too, or the disk is rolled back to the copy that was put
    /// aside.
    pub(crate) fn crash<P: Registers>(&mut self, world: &mut World<P>, random: &mut Random, id: NodeId) {
        self.vouching.remove(&id);
        let may_lose_disk = self.lose_disk > 0 && (!self.keeps_records || self.may_lose(world, id));
        let loses_disk = may_lose_disk && random.percent(self.lose_disk);
        if loses_disk {
            world.lose_disk(id);
        }
        if loses_disk || !self.keeps_records {
            self.damaged.insert(id);
        }
    }
}

/// Makes a node write a part of a checkpoint, which begins with the end of a turn.
pub(crate) fn checkpoint<P: Scheduled>(schedule: &mut Schedule<P>, id: NodeId) -> Check {
    if schedule.world.is_alive(id) && !schedule.is_paused(id) {
        schedule.flush(id)?;
        let chunk_bytes = [1, 1 << 20][schedule.random.below(2) as usize];
        schedule.world.checkpoint(id, chunk_bytes);
    }
    Ok(())
}

/// Checks that no read has an unknown outcome, unless its client lost the connection: it has no effect.
pub(crate) fn no_read_is_unknown(ending: &Ending<'_>) -> Check {
    match (ending.question, ending.result, ending.by) {
        (Question::Get { .. }, Outcome::Unknown, Some(_)) => Err("a read's outcome is unknown".into()),
        _ => Ok(()),
    }
}

/// Whether all replicas run and hold the same.
pub(crate) fn are_equal<P: Registers>(world: &World<P>) -> bool {
    let digests: BTreeSet<Option<u64>> =
        world.members().map(|id| world.table(id).map(kv::Table::digest)).collect();
    digests.len() == 1 && world.members().all(|id| has_memory(world, id))
}

/// An operator gives up what a replica has forgotten.
pub(crate) fn give_up<P: Registers>(world: &mut World<P>, id: NodeId) -> Consequences {
    let configuration = Configuration { is_given_up: true, ..world.configuration.clone() };
    world.configure_as(id, &configuration)
}

/// Returns what a replica holds of a key.
pub(crate) fn register<'w, P: Protocol>(world: &'w World<P>, id: NodeId, key: &str) -> Option<Register<'w>> {
    Some(world.table(id)?.register(key.as_bytes()))
}

/// Whether a replica holds again all that it ever acknowledged.
pub(crate) fn has_memory<P: Registers>(world: &World<P>, id: NodeId) -> bool {
    world.replica(id).is_some_and(|replica| P::has_memory(replica, world.now(id)))
}

/// The kind of a message of the upkeep.
pub(crate) fn kind(body: &Body<'_>) -> &'static str {
    match body {
        Body::Hello { .. } => "Hello",
        Body::Standing { .. } => "Standing",
        Body::Fetch { .. } => "Fetch",
        Body::SnapshotChunk { .. } => "SnapshotChunk",
        Body::Compare { .. } => "Compare",
        Body::Same { .. } => "Same",
        Body::Differ { .. } => "Differ",
        Body::Repair { .. } => "Repair",
        Body::Collect { .. } => "Collect",
        Body::Collected { .. } => "Collected",
    }
}
