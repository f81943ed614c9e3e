//! The golden scripts of `consensus`. To rewrite the transcripts after a change (then review the diff):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test protocols consensus::golden
//! ```
//!
//! How to read a transcript: see `kit::script`. A ballot is its number and its node (`2@3`); an entry is shown by its
//! proposer and the number among the proposer's proposals (`3.7: set k v`); `#1.2` is the crate's number of a message to a
//! follower. Heartbeats are left out unless they matter.

use super::{Consensus, World, peek};
use crate::kit::Letter;
use crate::kit::script::{Done, Fits, Script, Scripted, Syncs, microseconds, nodes, set};
use crate::kit::show::{elements, text};
use kv::{Command, Hold, LockCommand, Reply, WaiterId};
use protocol::consensus::{Lease, Options, Timing};
use protocol::contract::{Configuration, NodeId};
use protocol::planted::{Fault, Planted};
use std::collections::BTreeSet;
use std::num::NonZeroU64;

/// The verbs that only these scripts have.
#[derive(goldenscript::Command)]
pub(crate) enum Verb {
    /// Makes a group of `n` nodes and lets it elect its leader, unless `fresh=true`: node 2 of three, node 4 of
    /// five.
    Cluster {
        #[arg(key)]
        n: NodeId,
        /// The number of further nodes, which are in no group yet and not started.
        #[arg(key, optional)]
        spares: NodeId,
        /// `log` or `off`.
        #[arg(key)]
        lease: Option<String>,
        #[arg(key)]
        reads: Option<String>,
        /// Bytes of log that each node keeps in memory.
        #[arg(key)]
        log: Option<usize>,
        /// Bytes of a snapshot's chunk.
        #[arg(key)]
        chunk: Option<usize>,
        /// Chunks and slices that are sent and not acknowledged.
        #[arg(key)]
        window: Option<usize>,
        /// Bytes of snapshots and slices that a node sends in one turn.
        #[arg(key)]
        turn: Option<usize>,
        /// Bytes that wait to be committed.
        #[arg(key)]
        uncommitted: Option<usize>,
        #[arg(key, optional)]
        fresh: bool,
        /// A fault to be shown.
        #[arg(key)]
        plant: Option<String>,
    },
    /// From now on disks are synced at the end of each turn (`auto`), or by the script's `sync` (`manual`).
    Disks { how: String },
    /// From now on heartbeats and positions are shown (`on`), or only `positions`, or neither (`off`). They are sent all the
    /// same, and heartbeats are delivered.
    Heartbeats { how: String },
    /// A client requests a lock; with `wait` it joins the queue, as that request of the node `at`.
    Acquire {
        node: NodeId,
        name: String,
        owner: String,
        #[arg(key)]
        ms: Option<u64>,
        #[arg(key)]
        wait: Option<u64>,
        #[arg(key)]
        at: Option<NodeId>,
        #[arg(key)]
        client: Option<String>,
    },
    /// A client renews a lease.
    Renew { node: NodeId, name: String, token: u64, ms: u64 },
    /// A client releases a lock.
    Unlock { node: NodeId, name: String, token: u64 },
    /// A client requests a lock's state.
    Info { node: NodeId, name: String },
    /// A client sets a key that a lock guards.
    Fenced { node: NodeId, key: String, value: String, name: String, token: u64 },
    /// A node's link to another one goes down, as far as it knows.
    Unlink { node: NodeId, peer: NodeId },
    /// A number of writes of the keys a, b and c, one after the other; nothing of this is shown.
    Fill { node: NodeId, writes: u64 },
    /// Time passes, in steps of a round of heartbeats: after each, every node that does not sleep has a turn. With
    /// `quiet=true` all is delivered too, and acknowledgements are not shown.
    Advance {
        duration: String,
        #[arg(key, optional)]
        quiet: bool,
    },
    /// A node is stopped for a while: it takes nothing and its timers stop.
    Sleep { node: NodeId },
    /// The node continues.
    Awake { node: NodeId },
    /// A node stops, and loses what was not synced, except for the given number of first records. Its peers notice that their
    /// links are down.
    Crash {
        node: NodeId,
        #[arg(key)]
        kept: Option<u64>,
    },
    /// A crashed node starts with what its disk holds.
    Start { node: NodeId },
    /// The control group sends a node, or all that run, a configuration: `members=1,2,3`. A spare node starts.
    Configure {
        #[arg(key)]
        node: Option<NodeId>,
        #[arg(key)]
        epoch: u64,
        #[arg(key)]
        members: String,
    },
    /// A node's disk is synced: messages that waited for that leave.
    Sync { node: NodeId },
    #[command(other)]
    Shared(goldenscript::Command),
}

/// What transcripts show from now on.
#[derive(Default)]
pub(crate) struct State {
    shows_heartbeats: bool,
    shows_positions: bool,
    /// Whether time passes quietly: then acknowledgements are not shown.
    is_quiet: bool,
}

const ROUND_US: u64 = 80_000;

impl Scripted for Consensus {
    type Verb = Verb;
    type State = State;

    const FOLDER: &'static str = "consensus";
    const SYNCS: Syncs = Syncs::EachTurn;

    fn carry_out(script: &mut Script<Consensus>, verb: &Verb) -> Done {
        match verb {
            Verb::Cluster { n, fresh, spares, .. } => {
                let world = World::new(*n, options(verb)?, timing(verb)).with_spares(*spares);
                script.begin(world, start)?;
                if !fresh {
                    quiet(script, 10 * ROUND_US)?;
                    script.transcript.clear();
                }
            }
            Verb::Disks { how } => {
                script.syncs = if how == "manual" { Syncs::ByHand } else { Syncs::EachTurn };
            }
            Verb::Heartbeats { how } => {
                script.state.shows_heartbeats = how == "on";
                script.state.shows_positions = how != "off";
            }
            Verb::Sync { node } => {
                script.each(Some(*node), World::sync_all)?;
                script.flush(*node)?;
            }
            Verb::Acquire { node, name, owner, ms, wait, at, client } => {
                let number = wait.and_then(NonZeroU64::new);
                let waiter = number.map(|number| WaiterId { node: at.unwrap_or(*node), life: 1, number });
                let (name, owner) = (name.as_bytes(), owner.as_bytes());
                let hold = Hold::Lease(ms.unwrap_or(1000));
                let command = Command::Lock(LockCommand::Acquire { name, owner, hold, waiter });
                script.ask(*node, client, None, command)?;
            }
            Verb::Renew { node, name, token, ms } => {
                let (name, token, lease_ms) = (name.as_bytes(), *token, *ms);
                let command = Command::Lock(LockCommand::Renew { name, token, lease_ms });
                script.ask(*node, &None, None, command)?;
            }
            Verb::Unlock { node, name, token } => {
                let command = LockCommand::Release { name: name.as_bytes(), token: *token };
                script.ask(*node, &None, None, Command::Lock(command))?;
            }
            Verb::Info { node, name } => {
                let command = Command::Lock(LockCommand::Describe { name: name.as_bytes() });
                script.ask(*node, &None, None, command)?;
            }
            Verb::Fenced { node, key, value, name, token } => {
                let command = set(key, value, None);
                let mut scratch = Vec::new();
                let fenced = kv::Fenced::build(name.as_bytes(), *token, &command, &mut scratch);
                let fenced = fenced.ok_or("a SET stands behind a fence")?;
                script.ask(*node, &None, None, Command::Fenced(fenced))?;
            }
            Verb::Unlink { node, peer } => {
                script.each(Some(*node), |world, id| world.hint(id, *peer, false))?;
            }
            Verb::Fill { node, writes } => {
                let transcript = std::mem::take(&mut script.transcript);
                for number in 1..=*writes {
                    let key = ["a", "b", "c"][number as usize % 3];
                    script.ask(*node, &None, None, set(key, &number.to_string(), None))?;
                    script.stabilize()?;
                }
                script.transcript = transcript;
            }
            Verb::Advance { duration, quiet: false } => advance(script, microseconds(duration)?, false)?,
            Verb::Advance { duration, quiet: true } => quiet(script, microseconds(duration)?)?,
            Verb::Sleep { node } => _ = script.asleep.insert(*node),
            Verb::Awake { node } => _ = script.asleep.remove(node),
            Verb::Crash { node, kept } => {
                let world = script.world()?;
                world.crash(*node, kept.unwrap_or(0));
                world.network.retain(|letter| letter.held || letter.to != *node);
                script.each(None, |world, id| world.hint(id, *node, false))?;
            }
            Verb::Start { node } => start(script, *node)?,
            Verb::Configure { node, epoch, members } => {
                let members = nodes(members)?;
                let (leader, in_sync) = (members[0], members.clone());
                let to = node.map_or_else(|| members.clone(), |node| vec![node]);
                let configuration =
                    Configuration { epoch: *epoch, leader, members, in_sync, is_given_up: false };
                let mut receivers: BTreeSet<NodeId> = to.into_iter().collect();
                if node.is_none() {
                    receivers.extend(script.world()?.alive());
                }
                for id in receivers {
                    let is_spare = script.world()?.is_unused(id);
                    script.each(Some(id), |world, id| world.configure_as(id, &configuration))?;
                    if is_spare {
                        start(script, id)?;
                    }
                    script.flush(id)?;
                }
            }
            Verb::Shared(command) => script.say(command)?,
        }
        Ok(())
    }

    fn is_shown(script: &Script<Consensus>, letter: &Letter) -> bool {
        let State { shows_heartbeats, shows_positions, is_quiet } = script.state;
        if script.is_cut(letter) {
            return false;
        }
        match letter.kinds::<Consensus>()[..] {
            ["HeartbeatRequest" | "HeartbeatReply"] => shows_heartbeats,
            ["Position"] => shows_positions,
            // Each position is answered with one of these.
            ["Accepted"] => !is_quiet,
            _ => true,
        }
    }

    /// Shows entries with versions and deadlines.
    fn entries(world: &mut World, id: NodeId) -> Vec<String> {
        let listed = texts(&peek(world, id, &Command::Keys { pattern: b"*" }));
        let keys: BTreeSet<&str> = listed.split_whitespace().collect();
        let mut fetched = |key: &&str| texts(&peek(world, id, &Command::Fetch { key: key.as_bytes() }));
        keys.iter().map(|key| format!("{key}={}", fetched(key).trim())).collect()
    }
}

/// The elements of a flat reply as text.
fn texts(encoded: &[u8]) -> String {
    let shown = |reply: &Reply<'_>| match reply {
        Reply::Bulk(bytes) => text(bytes),
        Reply::Integer(integer) => integer.to_string(),
        _ => String::new(),
    };
    elements(encoded).iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn start(script: &mut Script<Consensus>, id: NodeId) -> Done {
    script.start(id)?;
    script.flush(id)
}

/// Lets time pass and delivers all; acknowledgements are not shown.
fn quiet(script: &mut Script<Consensus>, microseconds: u64) -> Done {
    script.state.is_quiet = true;
    advance(script, microseconds, true)?;
    script.state.is_quiet = false;
    Ok(())
}

/// Heartbeats are always delivered, or every round would be an election.
fn advance(script: &mut Script<Consensus>, mut microseconds: u64, delivers_all: bool) -> Done {
    while microseconds > 0 {
        let step_us = microseconds.min(ROUND_US);
        microseconds -= step_us;
        script.world()?.time_us += step_us;
        for id in script.which(None)? {
            script.each(Some(id), World::tick)?;
            script.flush(id)?;
        }
        if delivers_all {
            script.stabilize()?;
        } else {
            for kind in ["HeartbeatRequest", "HeartbeatReply"] {
                script.deliver(&Fits::of_kind(kind), None, false)?;
            }
        }
    }
    Ok(())
}

fn options(verb: &Verb) -> Done<Options> {
    let Verb::Cluster { lease, reads, log, plant, .. } = verb else { return Err("not a cluster".into()) };
    Ok(Options {
        lease: if lease.as_deref() == Some("off") { Lease::Off } else { Lease::Log },
        reads_any: reads.as_deref() == Some("any"),
        log_bytes: log.unwrap_or(1 << 20),
        spill_bytes_min: usize::MAX,
        is_bounded: false,
        planted: match plant.as_deref() {
            Some("fence_not_rechecked") => Planted::one(Fault::FenceNotRechecked),
            Some(other) => return Err(format!("no fault {other}").into()),
            None => Planted::default(),
        },
    })
}

fn timing(verb: &Verb) -> Timing {
    let default = Timing::default();
    let Verb::Cluster { chunk, window, turn, uncommitted, .. } = verb else { return default };
    Timing {
        chunk_bytes: chunk.unwrap_or(default.chunk_bytes),
        chunk_window: window.unwrap_or(default.chunk_window),
        turn_bytes: turn.unwrap_or(default.turn_bytes),
        uncommitted_bytes_max: uncommitted.unwrap_or(default.uncommitted_bytes_max),
        ..default
    }
}

#[test]
fn golden_scripts() -> std::io::Result<()> {
    Script::<Consensus>::run_all()
}
