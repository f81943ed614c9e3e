//! The golden scripts of leader-follower. To rewrite the transcripts after a change (then review the diff):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test protocols leader_follower::golden
//! ```
//!
//! How to read a transcript: see `kit::script`. `1 ⇒ …` is what node 1 records.

use super::{LeaderFollower, World, give_values, peek, show};
use crate::kit::script::{Done, Script, Scripted, Syncs, keeps_records, microseconds, nodes};
use crate::kit::show::elements;
use kv::{Command, List, ListCommand, QueueCommand, Reply, WaiterId, Wish};
use protocol::Progress;
use protocol::contract::NodeId;
use protocol::leader_follower::{Acks, Durability, Options, Timing};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::num::NonZeroU64;

/// The verbs that only these scripts have.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a group of `n` nodes, led by node 1 in epoch 1, and lets it settle, unless `fresh=true`.
    Cluster {
        #[arg(key)]
        n: NodeId,
        #[arg(key)]
        acks: String,
        #[arg(key)]
        reads: Option<String>,
        /// With `durability=fsync` replicas keep records, and a crash loses what is not synced.
        #[arg(key)]
        durability: Option<String>,
        /// With `lease=manual` no node has a lease before the script gives one.
        #[arg(key)]
        lease: Option<String>,
        /// Values of at least this many bytes are kept outside the tables, each node's in a store of its own.
        #[arg(key)]
        spill: Option<usize>,
        /// Bytes of history that each node keeps.
        #[arg(key)]
        backlog: Option<usize>,
        /// Bytes of history kept beyond that for a snapshot under way.
        #[arg(key)]
        transfer_backlog: Option<usize>,
        /// Bytes under way to a follower that catches up.
        #[arg(key)]
        catch_up: Option<usize>,
        /// Bytes of history that a node sends in a turn.
        #[arg(key)]
        turn: Option<usize>,
        /// Milliseconds between messages to a follower for which no request waits.
        #[arg(key)]
        lazy_send: Option<u64>,
        /// Bytes under way to a follower.
        #[arg(key)]
        window: Option<usize>,
        /// Bytes that wait for followers.
        #[arg(key)]
        uncommitted: Option<usize>,
        /// Bytes of a snapshot's chunk.
        #[arg(key)]
        chunk: Option<usize>,
        /// Chunks under way.
        #[arg(key)]
        chunks: Option<usize>,
        #[arg(key, optional)]
        fresh: bool,
    },
    /// A crashed node starts with what its disk holds; a leader needs a new epoch.
    ///
    /// With `distrusted=true` the replica treats its records as possibly incomplete.
    Restart {
        node: NodeId,
        #[arg(key, optional)]
        distrusted: bool,
        #[arg(key)]
        epoch: Option<u64>,
    },
    /// The control group sends a new configuration to all or to one node. Settings that are not named do not change.
    Configure {
        #[arg(key)]
        epoch: Option<u64>,
        #[arg(key)]
        leader: Option<NodeId>,
        #[arg(key)]
        in_sync: Option<String>,
        #[arg(key)]
        members: Option<String>,
        #[arg(key)]
        to: Option<NodeId>,
    },
    /// A node gets a lease of this length from now.
    Lease { node: NodeId, duration: String },
    /// A node writes a whole checkpoint, or with `n` that many records of it.
    Checkpoint {
        node: NodeId,
        #[arg(key)]
        n: Option<usize>,
        #[arg(key)]
        chunk: Option<usize>,
    },
    /// A node's store has read the values for which its snapshots wait.
    Values { node: NodeId },
    /// Shows what each node's store holds.
    Stored,
    /// Request `at` of node 1 waits for an element of a list.
    Blpop {
        node: NodeId,
        key: String,
        #[arg(key)]
        at: u64,
    },
    /// Request `at` of node 1 stops waiting.
    Withdraw {
        node: NodeId,
        #[arg(key)]
        at: u64,
    },
    #[command(other)]
    Shared(goldenscript::Command),
}

impl Scripted for LeaderFollower {
    type Verb = Verb;
    type State = ();

    const FOLDER: &'static str = "leader_follower";
    const SYNCS: Syncs = Syncs::ByHand;

    fn carry_out(script: &mut Script<LeaderFollower>, verb: &Verb) -> Done {
        match verb {
            Verb::Cluster { n, acks, fresh, lease, .. } => {
                let mut world = World::new(*n, options(verb, acks)?, timing(verb));
                world.leases_forever = lease.as_deref() != Some("manual");
                script.begin(world, Script::start)?;
                if !fresh {
                    for _ in 0..4 {
                        LeaderFollower::advance(script, 100_000)?;
                        script.stabilize()?;
                        script.each(None, World::sync_all)?;
                        script.stabilize()?;
                    }
                    script.transcript.clear();
                }
            }
            Verb::Restart { node, distrusted, epoch } => {
                let world = script.world()?;
                world.configuration.epoch = epoch.unwrap_or(world.configuration.epoch);
                world.version += u64::from(epoch.is_some());
                world.restart(*node);
                if let Some(replica) = world.replica_mut(*node).filter(|_| *distrusted) {
                    replica.distrust_records();
                }
                script.each(Some(*node), World::configure)?;
                script.hint_all(*node, true)?;
            }
            Verb::Configure { epoch, leader, in_sync, members, to } => {
                let world = script.world()?;
                world.version += 1;
                let configuration = &mut world.configuration;
                configuration.epoch = epoch.unwrap_or(configuration.epoch);
                configuration.leader = leader.unwrap_or(configuration.leader);
                if let Some(in_sync) = in_sync {
                    configuration.in_sync = nodes(in_sync)?;
                }
                if let Some(members) = members {
                    configuration.members = nodes(members)?;
                }
                script.each(*to, World::configure)?;
            }
            Verb::Lease { node, duration } => {
                let until_us = script.world()?.time_us + microseconds(duration)?;
                script.each(Some(*node), |world, id| world.lease(id, until_us))?;
            }
            Verb::Checkpoint { node, n, chunk } => {
                checkpoint(script, *node, n.unwrap_or(usize::MAX), chunk.unwrap_or(1 << 20))?;
            }
            Verb::Values { node } => script.each(Some(*node), give_values)?,
            Verb::Stored => {
                for id in script.which(None)? {
                    let stored = script.world()?.beside(id).shown();
                    writeln!(script.transcript, "{id}: {stored}")?;
                }
            }
            Verb::Blpop { node, key, at } => {
                let (mut keys, mut scratch) = (Vec::new(), Vec::new());
                let keys = List::build(&mut keys, [key.as_bytes()]);
                let pop = Command::OnList(ListCommand::PopAny { keys, at_front: true });
                let wish = Wish::build(&pop, &mut scratch).ok_or("BLPOP waits")?;
                let command = Command::Queue(QueueCommand::Ask { waiter: waiter(*at)?, wish });
                script.ask(*node, &None, None, command)?;
            }
            Verb::Withdraw { node, at } => {
                let command = QueueCommand::Withdraw { waiter: waiter(*at)?, only_unclaimed: false };
                script.ask(*node, &None, None, Command::Queue(command))?;
            }
            Verb::Shared(command) => script.say(command)?,
        }
        Ok(())
    }

    /// Shows entries with versions and deadlines.
    fn entries(world: &mut World, id: NodeId) -> Vec<String> {
        let listed = peek(world, id, &Command::Keys { pattern: b"*" });
        let keys: BTreeSet<String> = texts(&listed).into_iter().skip(1).collect();
        let mut entries = Vec::new();
        for key in keys {
            // An array of three: value, version, deadline.
            let entry = texts(&peek(world, id, &Command::Fetch { key: key.as_bytes() }));
            let deadline = if entry[3] == "nothing" { "" } else { &format!(" until {}", entry[3]) };
            entries.push(format!("{key}={} v{}{deadline}", entry[1], entry[2]));
        }
        entries
    }
}

fn waiter(number: u64) -> Done<WaiterId> {
    let number = NonZeroU64::new(number).ok_or("requests have numbers from 1 on")?;
    Ok(WaiterId { node: 1, life: 1, number })
}

/// The elements of a flat reply as text, its head included.
fn texts(encoded: &[u8]) -> Vec<String> {
    let text = |reply: &Reply<'_>| match reply {
        Reply::Bulk(bytes) => crate::kit::show::text(bytes),
        Reply::Integer(integer) => integer.to_string(),
        Reply::Null => "nothing".into(),
        other => format!("{other:?}"),
    };
    elements(encoded).iter().map(text).collect()
}

fn checkpoint(script: &mut Script<LeaderFollower>, id: NodeId, records: usize, chunk_bytes: usize) -> Done {
    for _ in 0..records {
        let Some((progress, record)) = script.world()?.checkpoint(id, chunk_bytes) else {
            writeln!(script.transcript, "{id}: no checkpoint now")?;
            break;
        };
        let shown = if record.is_empty() { "nothing".into() } else { show::record(&record) };
        let end = match progress {
            Progress::More => "",
            Progress::Whole => ", whole",
            Progress::Abandoned => ", abandoned",
        };
        writeln!(script.transcript, "{id} checkpoint: {shown}{end}")?;
        if progress != Progress::More {
            break;
        }
    }
    Ok(())
}

fn options(verb: &Verb, acks: &str) -> Done<Options> {
    let Verb::Cluster { reads, backlog, spill, durability, .. } = verb else {
        return Err("not a cluster".into());
    };
    Ok(Options {
        acks: match acks {
            "none" => Acks::None,
            "majority" => Acks::Majority,
            "all" => Acks::All,
            count => Acks::Count(count.parse()?),
        },
        reads_any: reads.as_deref() == Some("any"),
        backlog_bytes: backlog.unwrap_or(1 << 20),
        spill_bytes_min: spill.unwrap_or(usize::MAX),
        durability: if keeps_records(durability)? { Durability::Fsync } else { Durability::None },
        planted: Default::default(),
    })
}

fn timing(verb: &Verb) -> Timing {
    // Scripts show each message where it belongs; the script about lazy sending sets its time.
    let mut timing = Timing { lazy_send_ms: 0, ..Timing::default() };
    if let Verb::Cluster {
        window,
        uncommitted,
        chunk,
        chunks,
        transfer_backlog,
        catch_up,
        turn,
        lazy_send,
        ..
    } = verb
    {
        timing.catch_up_bytes = catch_up.unwrap_or(timing.catch_up_bytes);
        timing.turn_bytes = turn.unwrap_or(timing.turn_bytes);
        timing.lazy_send_ms = lazy_send.unwrap_or(0);
        timing.window_bytes = window.unwrap_or(timing.window_bytes);
        timing.uncommitted_bytes_max = uncommitted.unwrap_or(timing.uncommitted_bytes_max);
        timing.chunk_bytes = chunk.unwrap_or(timing.chunk_bytes);
        timing.chunk_window = chunks.unwrap_or(timing.chunk_window);
        timing.transfer_backlog_bytes_max = transfer_backlog.unwrap_or(timing.transfer_backlog_bytes_max);
    }
    timing
}

#[test]
fn golden_scripts() -> std::io::Result<()> {
    Script::<LeaderFollower>::run_all()
}
