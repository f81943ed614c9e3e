//! Golden scripts of abd: each says in prose what it shows, and holds every message, outcome and change that follows.
//!
//! They live in `src/abd/golden`, one file per behaviour, and are the protocol's documentation by example. To write the
//! transcripts anew after a change (the diff is what there is to review):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test golden_abd
//! ```
//!
//! How to read a transcript: `1 → 2 …` is a message leaving, with all that the turn has for node 2; `#0` names the
//! coordinator's operation; a tag is counter.member.life; `1 * …` is a change at node 1, and `a: set k v: …` the
//! outcome of a client's request. The verbs are in `abd_verbs`.

mod abd_verbs;
mod golden_script;
mod registers_world;
#[path = "registers_world/show_abd.rs"]
mod show;

use abd_verbs::Verb;
use golden_script::{Clients, Done, Fits, Shown, link, microseconds, question, set, told};
use kv::command::ExpiryUnit;
use kv::{Command, List};
use protocol::Replica as _;
use protocol::abd::{self as subject, Options, Timing};
use protocol::contract::NodeId;
use protocol::planted::{Fault, Planted};
use protocol::registers::Tag;
use protocol::{Progress, Request};
use registers_world::{Asked, Clock, Consequences, Letter, World};
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
        match verb {
            Verb::Cluster { n, durability, planted, fresh, .. } => {
                let planted = planted.as_deref().map_or(Ok(Planted::default()), fault)?;
                let keeps_records = match durability.as_deref() {
                    None | Some("none") => false,
                    Some("fsync") => true,
                    Some(_) => return Err("durability is none or fsync".into()),
                };
                let mut world = World::new(*n, Options { keeps_records, planted }, timing(verb), 0);
                let consequences: Vec<_> = world.members().map(|id| (id, world.start(id))).collect();
                self.world = Some(world);
                consequences.into_iter().for_each(|(id, consequence)| self.note(id, consequence));
                if !fresh {
                    self.stabilize()?;
                    self.transcript.clear();
                }
            }
            Verb::Set { node, key, value, client, expires, timeout } => {
                self.ask(*node, client, *timeout, Request::Command(set(key, value, *expires)))?;
            }
            Verb::Get { node, key, client, timeout } => {
                self.ask(*node, client, *timeout, Request::Command(Command::Get { key: key.as_bytes() }))?;
            }
            Verb::Mget { node, keys } => {
                self.ask_several(*node, &None, keys, |keys| Command::MultiGet { keys })?
            }
            Verb::Exists { node, keys } => {
                self.ask_several(*node, &None, keys, |keys| Command::Exists { keys })?
            }
            Verb::Del { node, keys, client } => {
                self.ask_several(*node, client, keys, |keys| Command::Delete { keys })?;
            }
            Verb::Pttl { node, key } => {
                let unit = ExpiryUnit::MillisecondsLeft;
                let command = Command::TimeToLive { key: key.as_bytes(), unit };
                self.ask(*node, &None, None, Request::Command(command))?;
            }
            Verb::Incr { node, key } => {
                let command = Command::IncrementBy { key: key.as_bytes(), delta: 1 };
                self.ask(*node, &None, None, Request::Command(command))?;
            }
            Verb::Flushall { node } => self.ask(*node, &None, None, Request::Command(Command::Clear))?,
            Verb::Keys { node } => {
                self.ask(*node, &None, None, Request::Command(Command::Keys { pattern: b"*" }))?;
            }
            Verb::Wait { node } => {
                self.ask(*node, &None, None, Request::Wait { offset: u64::MAX, count: 1 })?;
            }
            Verb::Flush { node } => self.each(*node, World::flush)?,
            Verb::Advance { duration } => {
                self.world()?.advance_us(microseconds(duration)?);
                self.each(None, World::tick)?;
                self.each(None, World::flush)?;
            }
            Verb::Clock { node, ahead } => {
                let clock = Clock { unix_ahead_ms: *ahead, ..Clock::default() };
                self.world()?.set_clock(*node, clock);
            }
            Verb::Deliver { from, to, kind, order } => {
                let fits = Fits::new(from, to, kind);
                self.deliver(&fits, order.as_deref() == Some("reverse"))?;
            }
            Verb::Drop { from, to, kind } => {
                let lost = Fits::new(from, to, kind).take(&mut self.world()?.network, None);
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
            Verb::Link { ends, state, hint } => {
                let (one, other) = link(ends)?;
                let up = state == "up";
                self.world()?.set_link(one, other, up);
                if hint.unwrap_or(true) {
                    self.each(Some(one), |world, id| world.hint(id, other, up))?;
                    self.each(Some(other), |world, id| world.hint(id, one, up))?;
                }
            }
            Verb::Crash { node, kept, silent } => {
                self.world()?.crash(*node, kept.unwrap_or(0));
                if !silent {
                    self.hint_all(*node, false)?;
                }
            }
            Verb::Restart { node, lost_disk } => {
                let world = self.world()?;
                if *lost_disk {
                    world.lose_disk(*node);
                }
                world.restart(*node);
                self.each(Some(*node), World::configure)?;
                self.hint_all(*node, true)?;
            }
            Verb::Giveup { node } => self.each(Some(*node), World::give_up)?,
            Verb::Status { node } => {
                for id in self.which(*node)? {
                    let shown = self.world()?.status(id).map(|status| show::status(&status));
                    writeln!(self.transcript, "{id}: {}", shown.unwrap_or_else(|| "crashed".into()))?;
                }
            }
            Verb::Table => self.tables()?,
            Verb::Sync { node } => self.each(*node, World::sync_all)?,
            Verb::Checkpoint { node } => loop {
                match self.world()?.checkpoint(*node, 1 << 20) {
                    Some(Progress::More) => {}
                    Some(Progress::Whole) => break writeln!(self.transcript, "{node} has a checkpoint")?,
                    Some(Progress::Abandoned) | None => return Err("there is no checkpoint now".into()),
                }
            },
            Verb::Backup { node } => self.world()?.back_up(*node),
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
        for letter in &consequences.letters {
            self.transcript += &format!("{}\n", show::letter(letter));
        }
        if let Some(world) = &mut self.world {
            world.post(consequences.letters);
        }
    }

    fn ask_several(
        &mut self,
        node: NodeId,
        client: &Option<String>,
        keys: &str,
        command: impl for<'l> Fn(List<'l>) -> Command<'l>,
    ) -> Done {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, keys.split(',').map(str::as_bytes));
        self.ask(node, client, None, Request::Command(command(keys)))
    }

    fn ask(
        &mut self,
        node: NodeId,
        client: &Option<String>,
        timeout: Option<u64>,
        request: Request<'_>,
    ) -> Done {
        const TIMEOUT_MS: u64 = 5000;
        let (ticket, follows, _) = self.clients.ask(client, &question(&request, show::command));
        let world = self.world()?;
        let deadline_us = world.now(node).monotonic_us + timeout.unwrap_or(TIMEOUT_MS) * 1000;
        let consequences = world.request(node, Asked { ticket, follows, deadline_us }, request);
        self.note(node, consequences);
        Ok(())
    }

    fn deliver(&mut self, fits: &Fits, reverse: bool) -> Done {
        let mut letters = fits.take(&mut self.world()?.network, None);
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
            self.deliver(&Fits::default(), false)?;
        }
        Err("the group never becomes quiet".into())
    }

    /// Tells a node and its peers that the links between them came up or went down.
    fn hint_all(&mut self, node: NodeId, up: bool) -> Done {
        for peer in self.which(None)? {
            if peer == node || self.world()?.is_cut(node, peer) {
                continue;
            }
            self.each(Some(node), |world, id| world.hint(id, peer, up))?;
            self.each(Some(peer), |world, id| world.hint(id, node, up))?;
        }
        Ok(())
    }

    fn tables(&mut self) -> Done {
        let world = self.world.as_mut().ok_or("a script begins with `cluster`")?;
        let mut digests = BTreeSet::new();
        for id in world.alive() {
            let Some(table) = world.replica(id).map(|replica| replica.table()) else { continue };
            digests.insert(table.digest());
            let mut entries = Vec::new();
            table.walk_registers(0, usize::MAX, |key, register| {
                let tag = Tag::of_version(register.version);
                let value = if register.is_deleted() { "deleted".into() } else { show::text(register.value) };
                entries.push(format!("{}={value} [tag {tag}]", show::text(key)));
            });
            entries.sort();
            let shown = if entries.is_empty() { "empty".into() } else { entries.join(", ") };
            writeln!(self.transcript, "{id}: {shown}")?;
        }
        writeln!(self.transcript, "{}", if digests.len() == 1 { "all equal" } else { "not equal" })?;
        Ok(())
    }
}

fn fault(name: &str) -> Result<Planted, Box<dyn Error>> {
    let faults = [
        Fault::TagWithoutWriter,
        Fault::ReadWithoutWriteBack,
        Fault::FixedQuorum,
        Fault::AnswerWithoutRefill,
        Fault::StaleAcknowledgement,
        Fault::TombstoneForgottenEarly,
        Fault::UnknownToldAsRefused,
        Fault::RegisterToldBeforeDurable,
        Fault::TagReusedAfterRestart,
        Fault::RolledBackRegistersAnswer,
    ];
    let fault = faults.into_iter().find(|fault| format!("{fault:?}") == name);
    Ok(Planted::one(fault.ok_or("no such fault")?))
}

fn timing(verb: &Verb) -> Timing {
    let mut timing = Timing::default();
    // Scripts show each message where it belongs; those about repair and collection say so.
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
    golden_script::run_all::<Script>("abd")
}
