//! Golden scripts of `consensus`: each says in prose what it shows, and holds every message, outcome and change that
//! follows. They live in `src/consensus/golden`. To write the transcripts anew after a change:
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test golden_consensus
//! ```
//!
//! How to read a transcript: `1 → 2 …` is a message leaving, `1 * …` a change at node 1, `1 ! …` a notice, and `a: set k v: …` the
//! outcome of a client's request. A ballot is its number and its node (`2@3`); an entry is told by who proposed it and
//! which of its proposals it is (`3.7: set k v`); `#1.2` is the crate's number of a message to a follower. Heartbeats
//! are left out unless they matter. The verbs are in `consensus_verbs`.

mod consensus_verbs;
mod consensus_world;
mod golden_script;

use consensus_verbs::Verb;
use consensus_world::{Asked, Consequences, Letter, World, show};
use golden_script::{Clients, Done, Fits, Shown, link, microseconds, question, set, told};
use kv::{Command, Condition, Expiry, Hold, LockCommand, SetAnswer, WaiterId};
use protocol::Replica as _;
use protocol::Request;
use protocol::consensus::{Lease, Options, Timing};
use protocol::contract::{Configuration, NodeId};
use protocol::planted::{Fault, Planted};
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::num::NonZeroU64;

#[derive(Default)]
struct Script {
    world: Option<World>,
    clients: Clients,
    cut: BTreeSet<(NodeId, NodeId)>,
    asleep: BTreeSet<NodeId>,
    syncs_by_hand: bool,
    tells_heartbeats: bool,
    tells_positions: bool,
    is_quiet: bool,
    transcript: String,
}

impl Shown for Letter {
    fn kinds(&self) -> Vec<&'static str> {
        vec![self.message().body.kind()]
    }

    fn shown(&self) -> String {
        show::letter(self)
    }
}

impl goldenscript::Runner for Script {
    type Command = Verb;

    fn run(&mut self, verb: &Verb, _context: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        self.carry_out(verb)?;
        Ok(std::mem::take(&mut self.transcript))
    }
}

const ROUND_MS: u64 = 80;

impl Script {
    fn carry_out(&mut self, verb: &Verb) -> Done {
        match verb {
            Verb::Cluster { n, fresh, spares, .. } => {
                self.world = Some(World::with_spares(*n, *spares, options(verb)?, timing(verb)));
                for id in 1..=*n {
                    self.start(id)?;
                }
                if !fresh {
                    self.advance(10 * ROUND_MS, true)?;
                    self.transcript.clear();
                }
            }
            Verb::Disks { how } => self.syncs_by_hand = how == "manual",
            Verb::Heartbeats { how } => {
                self.tells_heartbeats = how == "on";
                self.tells_positions = how != "off";
            }
            Verb::Sync { node } => self.sync(*node)?,
            Verb::Set { node, key, value, client, expires, timeout } => {
                self.ask(*node, client, *timeout, Request::Command(set(key, value, *expires)))?;
            }
            Verb::Get { node, key, client, timeout } => {
                self.ask(*node, client, *timeout, Request::Command(Command::Get { key: key.as_bytes() }))?;
            }
            Verb::Incr { node, key, client } => {
                let command = Command::IncrementBy { key: key.as_bytes(), delta: 1 };
                self.ask(*node, client, None, Request::Command(command))?;
            }
            Verb::Acquire { node, name, owner, ms, wait, at, client } => {
                let number = wait.and_then(NonZeroU64::new);
                let waiter = number.map(|number| WaiterId { node: at.unwrap_or(*node), life: 1, number });
                let (name, owner) = (name.as_bytes(), owner.as_bytes());
                let hold = Hold::Lease(ms.unwrap_or(1000));
                let command = Command::Lock(LockCommand::Acquire { name, owner, hold, waiter });
                self.ask(*node, client, None, Request::Command(command))?;
            }
            Verb::Renew { node, name, token, ms } => {
                let (name, token, lease_ms) = (name.as_bytes(), *token, *ms);
                let command = Command::Lock(LockCommand::Renew { name, token, lease_ms });
                self.ask(*node, &None, None, Request::Command(command))?;
            }
            Verb::Unlock { node, name, token } => {
                let command = LockCommand::Release { name: name.as_bytes(), token: *token };
                self.ask(*node, &None, None, Request::Command(Command::Lock(command)))?;
            }
            Verb::Info { node, name } => {
                let command = Command::Lock(LockCommand::Describe { name: name.as_bytes() });
                self.ask(*node, &None, None, Request::Command(command))?;
            }
            Verb::Fenced { node, key, value, name, token } => {
                let command = Command::Set {
                    key: key.as_bytes(),
                    value: value.as_bytes(),
                    expiry: Expiry::Clear,
                    condition: Condition::Always,
                    answer: SetAnswer::Status,
                };
                let mut scratch = Vec::new();
                let fenced = kv::Fenced::build(name.as_bytes(), *token, &command, &mut scratch);
                let fenced = fenced.ok_or("a SET stands behind a fence")?;
                self.ask(*node, &None, None, Request::Command(Command::Fenced(fenced)))?;
            }
            Verb::Unlink { node, peer } => {
                let consequences = self.world()?.hint(*node, *peer);
                self.note(*node, consequences);
            }
            Verb::Fill { node, writes } => {
                let told = std::mem::take(&mut self.transcript);
                for number in 1..=*writes {
                    let (key, value) = ([b"a", b"b", b"c"][number as usize % 3], number.to_string());
                    let command = Command::Set {
                        key,
                        value: value.as_bytes(),
                        expiry: Expiry::Clear,
                        condition: Condition::Always,
                        answer: SetAnswer::Status,
                    };
                    self.ask(*node, &None, None, Request::Command(command))?;
                    self.stabilize()?;
                }
                self.transcript = told;
            }
            Verb::Wait { node, count, client, timeout } => {
                self.ask(*node, client, *timeout, Request::Wait { offset: u64::MAX, count: *count })?;
            }
            Verb::Flush { node } => {
                for id in node.map_or(self.awake()?, |id| vec![id]) {
                    self.flush(id)?;
                }
            }
            Verb::Deliver { from, to, kind, n } => {
                self.deliver(Fits::new(from, to, kind), *n)?;
            }
            Verb::Drop { from, to, kind, n } => {
                let lost = self.take(Fits::new(from, to, kind), *n)?;
                self.transcript += &told("lost", &lost);
            }
            Verb::Duplicate { from, to, kind } => {
                let copies = Fits::new(from, to, kind).duplicate(&mut self.world()?.network);
                self.transcript += &told("twice", &copies);
            }
            Verb::Hold { from, to, kind } => {
                let held = Fits::new(from, to, kind).hold(&mut self.world()?.network);
                self.transcript += &told("held", &held);
            }
            Verb::Release => self.world()?.network.iter_mut().for_each(|letter| letter.held = false),
            Verb::Advance { duration, quiet } => self.advance(microseconds(duration)? / 1000, *quiet)?,
            Verb::Sleep { node } => {
                self.asleep.insert(*node);
            }
            Verb::Awake { node } => {
                self.asleep.remove(node);
            }
            Verb::Link { ends, state } => {
                let (one, other) = link(ends)?;
                let link = (one.min(other), one.max(other));
                if state == "up" {
                    self.cut.remove(&link);
                } else {
                    self.cut.insert(link);
                    self.world()?.network.retain(|letter| letter.ends() != link);
                }
            }
            Verb::Crash { node, keeps } => {
                self.world()?.crash(*node, keeps.unwrap_or(0));
                self.world()?.network.retain(|letter| letter.held || letter.to != *node);
                for id in self.awake()? {
                    let consequences = self.world()?.hint(id, *node);
                    self.note(id, consequences);
                }
            }
            Verb::Start { node } => self.start(*node)?,
            Verb::Configure { node, epoch, members } => {
                let members: Result<Vec<NodeId>, _> = members.split(',').map(str::parse).collect();
                let members = members?;
                let (leader, in_sync) = (members[0], members.clone());
                let nodes = node.map_or_else(|| members.clone(), |node| vec![node]);
                let configuration =
                    Configuration { epoch: *epoch, leader, members, in_sync, is_given_up: false };
                let mut told: BTreeSet<NodeId> = nodes.into_iter().collect();
                if node.is_none() {
                    told.extend(self.world()?.alive());
                }
                for id in told {
                    let is_spare = self.world()?.is_unused(id);
                    let consequences = self.world()?.configure(id, &configuration);
                    self.note(id, consequences);
                    if is_spare {
                        self.start(id)?;
                    }
                    self.flush(id)?;
                }
            }
            Verb::Backup { node } => self.world()?.back_up(*node),
            Verb::Rollback { node } => self.world()?.roll_back(*node),
            Verb::Wipe { node } => self.world()?.wipe(*node),
            Verb::Checkpoint { node } => {
                let world = self.world()?;
                while world.checkpoint(*node, 1000) {}
            }
            Verb::Status { node } => {
                for id in node.map_or(self.world()?.members().collect(), |id| vec![id]) {
                    let shown = self.world()?.status(id).map(|status| show::status(&status));
                    writeln!(self.transcript, "{id}: {}", shown.unwrap_or_else(|| "crashed".into()))?;
                }
            }
            Verb::Table => self.tables()?,
            Verb::Stabilize => self.stabilize()?,
        }
        Ok(())
    }

    fn world(&mut self) -> Result<&mut World, Box<dyn Error>> {
        self.world.as_mut().ok_or_else(|| "a script begins with `cluster`".into())
    }

    fn awake(&mut self) -> Result<Vec<NodeId>, Box<dyn Error>> {
        let alive = self.world()?.alive();
        Ok(alive.into_iter().filter(|id| !self.asleep.contains(id)).collect())
    }

    fn start(&mut self, id: NodeId) -> Done {
        let consequences = self.world()?.start(id);
        self.note(id, consequences);
        self.flush(id)
    }

    fn flush(&mut self, id: NodeId) -> Done {
        let consequences = self.world()?.flush(id);
        self.note(id, consequences);
        if !self.syncs_by_hand {
            self.sync(id)?;
        }
        Ok(())
    }

    /// What a sync lets happen may need another one.
    fn sync(&mut self, id: NodeId) -> Done {
        while !self.world()?.is_synced(id) {
            let world = self.world()?;
            let written = world.written(id);
            let consequences = world.sync(id, written);
            self.note(id, consequences);
            let consequences = self.world()?.flush(id);
            self.note(id, consequences);
            if self.syncs_by_hand {
                break;
            }
        }
        Ok(())
    }

    /// Writes down what followed, and puts the letters on their way.
    fn note(&mut self, id: NodeId, consequences: Consequences) {
        for trace in &consequences.traces {
            self.transcript += &format!("{id} * {}\n", show::trace(trace));
        }
        for told in consequences.notices.iter().filter_map(show::notice) {
            self.transcript += &format!("{id} ! {told}\n");
        }
        for (outcome, reply) in &consequences.outcomes {
            let question = self.clients.answered(outcome);
            self.transcript += &format!("{question}: {}\n", show::outcome(&outcome.result, reply));
        }
        for letter in consequences.letters {
            if self.cut.contains(&letter.ends()) {
                continue;
            }
            let is_told = match show::kind(&letter).as_str() {
                "HeartbeatRequest" | "HeartbeatReply" => self.tells_heartbeats,
                "Position" => self.tells_positions,
                // Each position is answered so.
                "Accepted" => !self.is_quiet,
                _ => true,
            };
            if is_told {
                self.transcript += &format!("{}\n", show::letter(&letter));
            }
            if let Some(world) = &mut self.world {
                world.network.push(letter);
            }
        }
    }

    fn ask(
        &mut self,
        node: NodeId,
        client: &Option<String>,
        timeout: Option<u64>,
        request: Request<'_>,
    ) -> Done {
        const TIMEOUT_MS: u64 = 5000;
        let (ticket, follows, seen) = self.clients.ask(client, &question(&request, show::command));
        let world = self.world()?;
        let deadline_us = world.now(node).monotonic_us + timeout.unwrap_or(TIMEOUT_MS) * 1000;
        let consequences = world.request(node, Asked { ticket, follows, seen, deadline_us }, request);
        self.note(node, consequences);
        Ok(())
    }

    /// Takes the letters that fit out of the network, at most `n`. Nodes that sleep get nothing.
    fn take(&mut self, fits: Fits, n: Option<usize>) -> Done<Vec<Letter>> {
        let fits = Fits { except_to: self.asleep.clone(), ..fits };
        Ok(fits.take(&mut self.world()?.network, n))
    }

    fn deliver(&mut self, fits: Fits, n: Option<usize>) -> Done {
        let letters = self.take(fits, n)?;
        let mut receivers = BTreeSet::new();
        for letter in letters {
            let consequences = self.world()?.deliver(&letter);
            self.note(letter.to, consequences);
            receivers.insert(letter.to);
        }
        for id in receivers {
            self.flush(id)?;
        }
        Ok(())
    }

    fn stabilize(&mut self) -> Done {
        const ROUNDS_MAX: usize = 1000;
        for id in self.awake()? {
            self.flush(id)?;
        }
        for _ in 0..ROUNDS_MAX {
            let asleep = self.asleep.clone();
            if self.world()?.network.iter().all(|letter| letter.held || asleep.contains(&letter.to)) {
                return Ok(());
            }
            self.deliver(Fits::default(), None)?;
        }
        Err("the group never becomes quiet".into())
    }

    /// Heartbeats arrive in any case, or every round would be an election.
    fn advance(&mut self, mut milliseconds: u64, quiet: bool) -> Done {
        self.is_quiet = quiet;
        while milliseconds > 0 {
            let step = milliseconds.min(ROUND_MS);
            milliseconds -= step;
            self.world()?.now_us += step * 1000;
            for id in self.awake()? {
                let consequences = self.world()?.tick(id);
                self.note(id, consequences);
                self.flush(id)?;
            }
            if quiet {
                self.stabilize()?;
            } else {
                for kind in ["HeartbeatRequest", "HeartbeatReply"] {
                    self.deliver(Fits { kind: Some(kind.into()), ..Fits::default() }, None)?;
                }
            }
        }
        self.is_quiet = false;
        Ok(())
    }

    fn tables(&mut self) -> Done {
        let world = self.world.as_mut().ok_or("a script begins with `cluster`")?;
        let mut digests = BTreeSet::new();
        for id in world.alive() {
            digests.insert(world.replica(id).map(|replica| replica.table().digest()));
            let listed = show::fetched(&world.peek(id, &Command::Keys { pattern: b"*" }));
            let keys: BTreeSet<&str> = listed.split_whitespace().collect();
            let entry = |key: &&str| {
                format!(
                    "{key}={}",
                    show::fetched(&world.peek(id, &Command::Fetch { key: key.as_bytes() })).trim()
                )
            };
            let shown: Vec<String> = keys.iter().map(entry).collect();
            writeln!(
                self.transcript,
                "{id}: {}",
                if shown.is_empty() { "empty".into() } else { shown.join(", ") }
            )?;
        }
        writeln!(self.transcript, "{}", if digests.len() == 1 { "all equal" } else { "not equal" })?;
        Ok(())
    }
}

fn options(verb: &Verb) -> Result<Options, Box<dyn Error>> {
    let Verb::Cluster { lease, reads, log, plant, .. } = verb else { return Err("not a cluster".into()) };
    Ok(Options {
        lease: if lease.as_deref() == Some("off") { Lease::Off } else { Lease::Log },
        reads_any: reads.as_deref() == Some("any"),
        log_bytes: log.unwrap_or(1 << 20),
        spill_bytes_min: usize::MAX,
        planted: match plant.as_deref() {
            Some("fence_not_rechecked") => Planted::one(Fault::FenceNotRechecked),
            Some(other) => return Err(format!("no fault {other}").into()),
            None => Planted::default(),
        },
    })
}

fn timing(verb: &Verb) -> Timing {
    let default = Timing::default();
    let Verb::Cluster { chunk, uncommitted, .. } = verb else { return default };
    Timing {
        chunk_bytes: chunk.unwrap_or(default.chunk_bytes),
        uncommitted_bytes_max: uncommitted.unwrap_or(default.uncommitted_bytes_max),
        ..default
    }
}

#[test]
fn golden_scripts() -> std::io::Result<()> {
    golden_script::run_all::<Script>("consensus")
}
