//! The golden scripts of abd. To rewrite the transcripts after a change (then review the diff):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test protocols abd::golden
//! ```
//!
//! How to read a transcript: see `kit::script`. A message is shown with all that the turn has for its receiver; `#0`
//! names the coordinator's operation; a tag is counter.member.incarnation.

use super::{Abd, World};
use crate::kit::script::{Done, Script, Scripted, Syncs, keeps_records, planted};
use crate::kit::show::text;
use crate::registers::give_up;
use protocol::abd::{Options, Timing};
use protocol::contract::NodeId;
use protocol::planted::Fault;
use protocol::registers::Tag;

/// The verbs that only these scripts have.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a group of `n` nodes and lets it settle, unless `fresh=true`.
    Cluster {
        #[arg(key)]
        n: NodeId,
        /// With `durability=fsync` replicas keep records, and a crash loses what is not synced.
        #[arg(key)]
        durability: Option<String>,
        /// Milliseconds between sweeps; without it there are no sweeps.
        #[arg(key)]
        sweep: Option<u64>,
        /// Bytes of a snapshot's chunk, and chunks under way.
        #[arg(key)]
        chunk: Option<usize>,
        #[arg(key)]
        chunks: Option<usize>,
        /// Bytes sent to a member that does not answer.
        #[arg(key)]
        window: Option<usize>,
        /// A fault of `protocol::planted::Fault`.
        #[arg(key)]
        planted: Option<String>,
        #[arg(key, optional)]
        fresh: bool,
    },
    /// Starts a crashed node with what is on its disk. With `lost_disk=true` the disk is lost, or rolled back to the copy
    /// if one was put aside.
    Restart {
        node: NodeId,
        #[arg(key, optional)]
        lost_disk: bool,
    },
    /// An operator gives up what a node has forgotten and cannot recover.
    Giveup { node: NodeId },
    #[command(other)]
    Shared(goldenscript::Command),
}

impl Scripted for Abd {
    type Verb = Verb;
    type State = ();

    const FOLDER: &'static str = "abd";
    const SYNCS: Syncs = Syncs::WhenIdle;

    fn carry_out(script: &mut Script<Abd>, verb: &Verb) -> Done {
        match verb {
            Verb::Cluster { n, durability, planted: fault, fresh, .. } => {
                let (keeps_records, planted) = (keeps_records(durability)?, planted(&FAULTS, fault)?);
                let world = World::new(*n, Options { keeps_records, planted }, timing(verb));
                script.begin(world, Script::start)?;
                if !fresh {
                    script.stabilize()?;
                    script.transcript.clear();
                }
            }
            Verb::Restart { node, lost_disk } => {
                if *lost_disk {
                    script.world()?.lose_disk(*node);
                }
                script.start(*node)?;
                script.hint_all(*node, true)?;
            }
            Verb::Giveup { node } => script.each(Some(*node), give_up)?,
            Verb::Shared(command) => script.say(command)?,
        }
        Ok(())
    }

    /// Shows entries with their tags.
    fn entries(world: &mut World, id: NodeId) -> Vec<String> {
        let mut entries = Vec::new();
        if let Some(table) = world.table(id) {
            table.walk_registers(0, usize::MAX, |key, register| {
                let tag = Tag::of_version(register.version);
                let value = if register.is_deleted() { "deleted".into() } else { text(register.value) };
                entries.push(format!("{}={value} [tag {tag}]", text(key)));
            });
        }
        entries.sort();
        entries
    }
}

const FAULTS: [Fault; 10] = [
    Fault::TagWithoutWriter,
    Fault::ReadWithoutWriteBack,
    Fault::FixedQuorum,
    Fault::AnswerWithoutRefill,
    Fault::StaleAcknowledgement,
    Fault::TombstoneForgottenEarly,
    Fault::UnknownReportedAsRefused,
    Fault::RegisterAcknowledgedBeforeDurable,
    Fault::TagReusedAfterRestart,
    Fault::RolledBackRegistersAnswer,
];

fn timing(verb: &Verb) -> Timing {
    let mut timing = Timing::default();
    // Scripts show each message where it belongs; scripts about repair and collection set a sweep.
    timing.upkeep.sweep_ms = u64::MAX / 2000;
    if let Verb::Cluster { sweep, chunk, chunks, window, .. } = verb {
        timing.upkeep.sweep_ms = sweep.unwrap_or(timing.upkeep.sweep_ms);
        timing.upkeep.chunk_bytes = chunk.unwrap_or(timing.upkeep.chunk_bytes);
        timing.upkeep.chunk_window = chunks.unwrap_or(timing.upkeep.chunk_window);
        timing.window_bytes = window.unwrap_or(timing.window_bytes);
    }
    timing
}

#[test]
fn golden_scripts() -> std::io::Result<()> {
    Script::<Abd>::run_all()
}
