//! The golden scripts of `blocking`. To rewrite the transcripts after a change (then review the diff):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test protocols blocking::golden
//! ```
//!
//! How to read a transcript: see `kit::script`. `#7` is an attempt, `grant 1.5` the fifth grant of a replica in its first
//! incarnation, `3.1.1` a tag: counter 3, node 1, incarnation 1. Messages of the upkeep (refills, repair) arrive and are
//! not shown.

use super::{Blocking, World, show};
use crate::kit::Letter;
use crate::kit::script::{Done, Script, Scripted, Syncs, keeps_records, planted};
use crate::registers::{give_up, register};
use protocol::blocking::{Message, Options, Retry, Timing};
use protocol::contract::NodeId;
use protocol::planted::Fault;
use protocol::registers;
use std::fmt::Write as _;

/// The verbs that only these scripts have.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a new group of `n` nodes.
    Cluster {
        #[arg(key)]
        n: NodeId,
        /// With `durability=fsync` replicas keep records, and a crash loses what is not synced.
        #[arg(key)]
        durability: Option<String>,
        /// `none`, or `backoff`, the default.
        #[arg(key)]
        retry: Option<String>,
        /// A fault by its name.
        #[arg(key)]
        planted: Option<String>,
        /// Milliseconds that a lock lasts.
        #[arg(key)]
        lease: Option<u64>,
        /// Milliseconds between the replicas' comparisons of their keys; by default there are none.
        #[arg(key)]
        sweep: Option<u64>,
    },
    /// An operator gives up what a node has forgotten and cannot recover.
    Giveup { node: NodeId },
    /// Shows what each node's table holds of some keys.
    Table { keys: Vec<String> },
    /// Shows the locks that each node has granted and that last.
    Locks,
    #[command(other)]
    Shared(goldenscript::Command),
}

impl Scripted for Blocking {
    type Verb = Verb;
    type State = ();

    const FOLDER: &'static str = "blocking";
    const SYNCS: Syncs = Syncs::WhenIdle;
    /// Longer than anything here takes.
    const TIMEOUT_MS: u64 = 30_000;

    fn carry_out(script: &mut Script<Blocking>, verb: &Verb) -> Done {
        match verb {
            Verb::Cluster { n, durability, retry, planted: fault, lease, sweep } => {
                let options = Options {
                    keeps_records: keeps_records(durability)?,
                    retry: match retry.as_deref() {
                        Some("none") => Retry::None,
                        None | Some("backoff") => Retry::Backoff,
                        Some(other) => return Err(format!("unknown retry {other}").into()),
                    },
                    planted: planted(&FAULTS, fault)?,
                };
                let world = World::new(*n, options, timing(*lease, *sweep)).with_seed(1);
                script.begin(world, Script::start)?;
                // Time passes until the group has begun.
                for _ in 0..20 {
                    script.stabilize()?;
                    Blocking::advance(script, 100_000)?;
                }
                script.stabilize()?;
                script.transcript.clear();
            }
            Verb::Giveup { node } => script.each(Some(*node), give_up)?,
            Verb::Table { keys } => {
                for id in script.world()?.alive() {
                    let world = script.world()?;
                    let entry =
                        |key: &String| Some(format!("{key}={}", show::register(register(world, id, key)?)));
                    let entries: Vec<String> = keys.iter().filter_map(entry).collect();
                    writeln!(script.transcript, "{id}: {}", entries.join(", "))?;
                }
            }
            Verb::Locks => {
                for id in script.world()?.alive() {
                    let locks = Blocking::entries(script.world()?, id);
                    let shown = if locks.is_empty() { "all free".into() } else { locks.join(", ") };
                    writeln!(script.transcript, "{id}: {shown}")?;
                }
            }
            Verb::Shared(command) => script.say(command)?,
        }
        Ok(())
    }

    /// Upkeep goes on all the time; the scripts of abd show it.
    fn is_shown(_script: &Script<Blocking>, letter: &Letter) -> bool {
        !matches!(letter.message::<Blocking>(), Message::Upkeep(_))
    }

    /// Shows the locks that the node has granted.
    fn entries(world: &mut World, id: NodeId) -> Vec<String> {
        let now_us = world.now(id).monotonic_us;
        show::locks(world, id).iter().map(|(key, lock)| show::lock(key, lock, now_us)).collect()
    }
}

const FAULTS: [Fault; 7] = [
    Fault::WriteWithoutLockCheck,
    Fault::ReadWithoutRepair,
    Fault::UnlockByNonOwner,
    Fault::SurplusLockKept,
    Fault::UnknownReportedAsRefused,
    Fault::RegisterAcknowledgedBeforeDurable,
    Fault::TagReusedAfterRestart,
];

fn timing(lease: Option<u64>, sweep: Option<u64>) -> Timing {
    const NEVER_MS: u64 = 1 << 40;
    let timing = Timing::default();
    // Replicas compare their keys only in scripts about that.
    let upkeep = registers::Timing {
        sweep_ms: sweep.unwrap_or(NEVER_MS),
        silence_ms: NEVER_MS,
        begin_grace_ms: 0,
        ..registers::Timing::default()
    };
    Timing { lease_ms: lease.unwrap_or(timing.lease_ms), upkeep, ..timing }
}

#[test]
fn golden_scripts() -> std::io::Result<()> {
    Script::<Blocking>::run_all()
}
