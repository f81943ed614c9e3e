//! Golden scripts of `blocking`: each says in prose what it shows, and holds every message, outcome and change that
//! follows.
//!
//! They live in `src/blocking/golden`, one file per behaviour, and are the protocol's documentation by example. To
//! write the transcripts anew after a change (the diff is what there is to review):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test golden_blocking
//! ```
//!
//! How to read a transcript: `1 → 2 …` is a message leaving, `1 * …` a change at node 1, and `a: set k v: …` the
//! outcome of a client's request. `#7` is an attempt, `grant 1.5` the fifth grant of a replica in its first life,
//! `3.1.1` a tag: counter 3, node 1, life 1. Messages of the upkeep (copies, repair) arrive and are not shown.

mod blocking_verbs;
mod golden_script;
mod registers_world;
#[path = "registers_world/show_blocking.rs"]
mod show;

use blocking_verbs::Verb;
use golden_script::{Clients, Done, Fits, Shown, link, microseconds, question, set, told};
use kv::{Command, List};
use protocol::blocking::{self as subject, Options, Retry, Timing};
use protocol::contract::NodeId;
use protocol::planted::{Fault, Planted};
use protocol::{Request, registers};
use registers_world::{Asked, Consequences, Letter, World};
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;

#[derive(Default)]
struct Script {
    world: Option<World>,
    clients: Clients,
    transcript: String,
}

impl Shown for Letter {
    fn kinds(&self) -> Vec<&'static str> {
        show::kinds(&self.message())
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

impl Script {
    fn carry_out(&mut self, verb: &Verb) -> Done {
        let mut scratch = Vec::new();
        match verb {
            Verb::Cluster { n, durability, retry, planted, lease, sweep } => {
                let mut options = options(retry.as_deref(), planted.as_deref())?;
                options.keeps_records = match durability.as_deref() {
                    None | Some("none") => false,
                    Some("fsync") => true,
                    Some(_) => return Err("durability is none or fsync".into()),
                };
                let mut world = World::new(*n, options, timing(*lease, *sweep), 1);
                let started: Vec<_> = world.members().map(|id| (id, world.start(id))).collect();
                self.world = Some(world);
                started.into_iter().for_each(|(id, consequences)| self.note(id, consequences));
                self.settle()?;
                self.transcript.clear();
            }
            Verb::Set { node, key, value, client, expires, timeout } => {
                self.ask(*node, client, *timeout, Request::Command(set(key, value, *expires)))?;
            }
            Verb::Get { node, key, client, timeout } => {
                self.ask(*node, client, *timeout, Request::Command(Command::Get { key: key.as_bytes() }))?;
            }
            Verb::Del { node, keys, client } => {
                let keys = List::build(&mut scratch, keys.iter().map(String::as_bytes));
                self.ask(*node, client, None, Request::Command(Command::Delete { keys }))?;
            }
            Verb::Mget { node, keys, client } => {
                let keys = List::build(&mut scratch, keys.iter().map(String::as_bytes));
                self.ask(*node, client, None, Request::Command(Command::MultiGet { keys }))?;
            }
            Verb::Incr { node, key } => {
                let command = Command::IncrementBy { key: key.as_bytes(), delta: 1 };
                self.ask(*node, &None, None, Request::Command(command))?;
            }
            Verb::Wait { node } => {
                self.ask(*node, &None, None, Request::Wait { offset: u64::MAX, count: 1 })?;
            }
            Verb::Flush { node } => self.each(*node, World::flush)?,
            Verb::Advance { duration } => self.advance(microseconds(duration)?)?,
            Verb::Deliver { from, to, kind, n, order } => {
                let reverse = order.as_deref() == Some("reverse");
                self.deliver(&Fits::new(from, to, kind), *n, reverse)?;
            }
            Verb::Drop { from, to, kind } => {
                let lost = Fits::new(from, to, kind).take(&mut self.world()?.network, None);
                self.transcript += &told("lost", &lost);
            }
            Verb::Duplicate { from, to, kind } => {
                let copies = Fits::new(from, to, kind).duplicate(&mut self.world()?.network);
                self.transcript += &told("twice", &copies);
            }
            Verb::Hold { from, to, kind, copies } => {
                let fits = Fits::new(from, to, kind);
                let network = &mut self.world()?.network;
                let held = match copies {
                    Some(true) => {
                        let copies = fits.duplicate(network);
                        let first = network.len() - copies.len();
                        network[first..].iter_mut().for_each(|letter| letter.held = true);
                        copies
                    }
                    _ => fits.hold(network),
                };
                self.transcript += &told("held", &held);
            }
            Verb::Release => self.world()?.network.iter_mut().for_each(|letter| letter.held = false),
            Verb::Link { ends, state, hint } => {
                let (one, other) = link(ends)?;
                self.link(one, other, state == "up", hint.unwrap_or(true))?;
            }
            Verb::Crash { node, kept } => self.world()?.crash(*node, kept.unwrap_or(0)),
            Verb::Restart { node } => {
                let consequences = self.world()?.start(*node);
                self.note(*node, consequences);
            }
            Verb::Giveup { node } => {
                let consequences = self.world()?.give_up(*node);
                self.note(*node, consequences);
            }
            Verb::Status { node } => {
                for id in self.which(*node)? {
                    let shown = self.world()?.status(id).map(|status| show::status(&status));
                    writeln!(self.transcript, "{id}: {}", shown.unwrap_or_else(|| "crashed".into()))?;
                }
            }
            Verb::Table { keys } => {
                for id in self.world()?.alive() {
                    let world = self.world.as_ref().ok_or("no cluster")?;
                    let entry =
                        |key: &String| Some(format!("{key}={}", show::register(world.register(id, key)?)));
                    let entries: Vec<String> = keys.iter().filter_map(entry).collect();
                    writeln!(self.transcript, "{id}: {}", entries.join(", "))?;
                }
            }
            Verb::Locks => {
                for id in self.world()?.alive() {
                    let world = self.world.as_ref().ok_or("no cluster")?;
                    let (now_us, locks) = (world.now(id).monotonic_us, show::locks(world, id));
                    let locks: Vec<String> =
                        locks.iter().map(|(key, lock)| show::lock(key, lock, now_us)).collect();
                    let shown = if locks.is_empty() { "all free".into() } else { locks.join(", ") };
                    writeln!(self.transcript, "{id}: {shown}")?;
                }
            }
            Verb::Sync { node } => self.each(*node, World::sync_all)?,
            Verb::Stabilize => self.stabilize()?,
        }
        Ok(())
    }

    fn world(&mut self) -> Result<&mut World, Box<dyn Error>> {
        self.world.as_mut().ok_or_else(|| "a script begins with `cluster`".into())
    }

    fn which(&mut self, node: Option<NodeId>) -> Result<Vec<NodeId>, Box<dyn Error>> {
        Ok(node.map_or(self.world()?.members().collect(), |id| vec![id]))
    }

    fn each(&mut self, node: Option<NodeId>, act: impl Fn(&mut World, NodeId) -> Consequences) -> Done {
        for id in self.which(node)? {
            let consequences = act(self.world()?, id);
            self.note(id, consequences);
        }
        Ok(())
    }

    /// Writes down what followed, and puts the letters on their way.
    fn note(&mut self, id: NodeId, consequences: Consequences) {
        for trace in &consequences.traces {
            self.transcript += &format!("{id} * {}\n", show::trace(trace));
        }
        for (outcome, reply) in &consequences.outcomes {
            let question = self.clients.answered(outcome);
            self.transcript += &format!("{question}: {}\n", show::outcome(&outcome.result, reply));
        }
        if consequences.records > 0 {
            self.transcript += &format!("{id} records\n");
        }
        for letter in consequences.letters.iter().filter(|letter| !show::is_upkeep(letter)) {
            self.transcript += &format!("{}\n", show::letter(letter));
        }
        if let Some(world) = &mut self.world {
            world.post(consequences.letters);
        }
    }

    fn ask(
        &mut self,
        node: NodeId,
        client: &Option<String>,
        timeout: Option<u64>,
        request: Request<'_>,
    ) -> Done {
        const TIMEOUT_MS: u64 = 30_000;
        let (ticket, follows, _) = self.clients.ask(client, &question(&request, show::command));
        let world = self.world()?;
        let deadline_us = world.now(node).monotonic_us + timeout.unwrap_or(TIMEOUT_MS) * 1000;
        let consequences = world.request(node, Asked { ticket, follows, deadline_us }, request);
        self.note(node, consequences);
        Ok(())
    }

    fn deliver(&mut self, fits: &Fits, n: Option<usize>, reverse: bool) -> Done {
        let mut letters = fits.take(&mut self.world()?.network, n);
        if reverse {
            letters.reverse();
        }
        let mut receivers = BTreeSet::new();
        for letter in letters {
            let consequences = self.world()?.deliver(&letter);
            self.note(letter.to, consequences);
            receivers.insert(letter.to);
        }
        for id in receivers {
            self.each(Some(id), World::flush)?;
        }
        Ok(())
    }

    fn stabilize(&mut self) -> Done {
        const ROUNDS_MAX: usize = 1000;
        self.each(None, World::flush)?;
        for _ in 0..ROUNDS_MAX {
            if self.world()?.network.iter().all(|letter| letter.held) {
                self.each(None, World::sync_all)?;
                self.each(None, World::flush)?;
            }
            let world = self.world()?;
            let is_synced = world.members().all(|id| world.is_synced(id));
            if is_synced && world.network.iter().all(|letter| letter.held) {
                return Ok(());
            }
            self.deliver(&Fits::default(), None, false)?;
        }
        Err("the group never becomes quiet".into())
    }

    /// Time passes until the group has begun.
    fn settle(&mut self) -> Done {
        for _ in 0..20 {
            self.stabilize()?;
            self.advance(100_000)?;
        }
        self.stabilize()
    }

    fn advance(&mut self, microseconds: u64) -> Done {
        self.world()?.advance_us(microseconds);
        self.each(None, World::tick)?;
        self.each(None, World::flush)
    }

    fn link(&mut self, one: NodeId, other: NodeId, up: bool, hint: bool) -> Done {
        self.world()?.set_link(one, other, up);
        if hint {
            self.each(Some(one), |world, id| world.hint(id, other, up))?;
            self.each(Some(other), |world, id| world.hint(id, one, up))?;
        }
        Ok(())
    }
}

fn options(retry: Option<&str>, planted: Option<&str>) -> Result<Options, Box<dyn Error>> {
    let faults = [
        Fault::WriteWithoutLockCheck,
        Fault::ReadWithoutRepair,
        Fault::UnlockByNonOwner,
        Fault::SurplusLockKept,
        Fault::UnknownToldAsRefused,
        Fault::RegisterToldBeforeDurable,
        Fault::TagReusedAfterRestart,
    ];
    let named = |name: &str| faults.into_iter().find(|fault| format!("{fault:?}") == name);
    Ok(Options {
        keeps_records: false,
        retry: match retry {
            Some("none") => Retry::None,
            None | Some("backoff") => Retry::Backoff,
            Some(other) => return Err(format!("unknown retry {other}").into()),
        },
        planted: match planted {
            None => Planted::default(),
            Some(name) => Planted::one(named(name).ok_or("unknown fault")?),
        },
    })
}

fn timing(lease: Option<u64>, sweep: Option<u64>) -> Timing {
    const NEVER_MS: u64 = 1 << 40;
    let timing = Timing::default();
    // Replicas look at each other's keys only where a script is about that.
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
    golden_script::run_all::<Script>("blocking")
}
