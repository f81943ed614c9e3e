//! Golden scripts: each says in prose what it shows, and holds every message, outcome and change that follows.
//!
//! They live in `src/leader_follower/golden`, one file per behaviour, and are the protocol's documentation by
//! example. To write the transcripts anew after a change (the diff is what there is to review):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-protocol --test golden
//! ```
//!
//! How to read a transcript: `1 → 2 …` is a message leaving, `1 * …` a change at node 1, and `a: set k v: …`
//! the outcome of a client's request. The verbs are in `verbs`.

mod golden_script;
mod verbs;
mod world;

use golden_script::{Clients, Done, Fits, Shown, link, microseconds, question, set, told};
use kv::codec::Reader;
use kv::{Command, Reply};
use protocol::Replica as _;
use protocol::contract::NodeId;
use protocol::leader_follower::{Acks, Durability, Options, Timing};
use protocol::{Progress, Request};
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use verbs::Verb;
use world::{Asked, Consequences, Letter, World, show};

#[derive(Default)]
struct Script {
    world: Option<World>,
    clients: Clients,
    transcript: String,
}

impl Shown for Letter {
    fn kinds(&self) -> Vec<&'static str> {
        vec![show::kind(&self.message())]
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
            Verb::Cluster { n, acks, fresh, lease, .. } => {
                let mut world = World::new(*n, options(verb, acks)?, timing(verb));
                world.leases_forever = lease.as_deref() != Some("manual");
                let consequences: Vec<_> = world.members().map(|id| (id, world.configure(id))).collect();
                self.world = Some(world);
                consequences.into_iter().for_each(|(id, consequence)| self.note(id, consequence));
                if !fresh {
                    for _ in 0..4 {
                        self.advance(100_000)?;
                        self.stabilize()?;
                        self.each(None, World::sync_all)?;
                        self.stabilize()?;
                    }
                    self.transcript.clear();
                }
            }
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
            Verb::Wait { node, count, client, timeout } => {
                self.ask(*node, client, *timeout, Request::Wait { offset: u64::MAX, count: *count })?;
            }
            Verb::Flush { node } => self.each(*node, World::flush)?,
            Verb::Tick { node } => {
                self.each(*node, World::tick)?;
                self.each(*node, World::flush)?;
            }
            Verb::Advance { duration } => self.advance(microseconds(duration)?)?,
            Verb::Deliver { from, to, kind, n, order } => {
                let reverse = order.as_deref() == Some("reverse");
                self.deliver(&Fits::new(from, to, kind), *n, reverse)?;
            }
            Verb::Drop { from, to, kind, n } => {
                let lost = Fits::new(from, to, kind).take(&mut self.world()?.network, *n);
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
                self.link(one, other, state == "up", hint.unwrap_or(true))?;
            }
            Verb::Reach { state, ends, at } => {
                let members = self.which(None)?;
                let pairs: Vec<(NodeId, NodeId)> = match ends {
                    Some(ends) => {
                        let (one, other) = link(ends)?;
                        vec![(one, other), (other, one)]
                    }
                    None => {
                        members.iter().flat_map(|one| members.iter().map(|other| (*one, *other))).collect()
                    }
                };
                let tells = |one: NodeId, other| one != other && at.is_none_or(|at| at == one);
                for (one, other) in pairs.into_iter().filter(|(one, other)| tells(*one, *other)) {
                    self.each(Some(one), |world, id| world.reach(id, other, state == "up"))?;
                }
            }
            Verb::Crash { node, kept, silent } => {
                self.world()?.crash(*node, kept.unwrap_or(0));
                if !silent {
                    self.hint_all(*node, false)?;
                }
            }
            Verb::Restart { node, distrusted, epoch } => {
                let world = self.world()?;
                world.configuration.epoch = epoch.unwrap_or(world.configuration.epoch);
                world.version += u64::from(epoch.is_some());
                world.restart(*node);
                if *distrusted {
                    world.distrust_records(*node);
                }
                self.each(Some(*node), World::configure)?;
                self.hint_all(*node, true)?;
            }
            Verb::Configure { epoch, leader, in_sync, members, to } => {
                self.world()?.version += 1;
                let configuration = &mut self.world()?.configuration;
                configuration.epoch = epoch.unwrap_or(configuration.epoch);
                configuration.leader = leader.unwrap_or(configuration.leader);
                if let Some(in_sync) = in_sync {
                    configuration.in_sync = nodes(in_sync)?;
                }
                if let Some(members) = members {
                    configuration.members = nodes(members)?;
                }
                self.each(*to, World::configure)?;
            }
            Verb::Lease { node, duration } => {
                let until_us = self.world()?.now.monotonic_us + microseconds(duration)?;
                self.each(Some(*node), |world, id| world.lease(id, until_us))?;
            }
            Verb::Sync { node } => self.each(*node, World::sync_all)?,
            Verb::Checkpoint { node, n, chunk } => self.checkpoint(*node, *n, chunk.unwrap_or(1 << 20))?,
            Verb::Values { node } => self.each(Some(*node), World::give_values)?,
            Verb::Stored => {
                for id in self.which(None)? {
                    let stored = self.world()?.stored(id);
                    writeln!(self.transcript, "{id}: {stored}")?;
                }
            }
            Verb::Wipe { node } => self.world()?.wipe(*node),
            Verb::Status { node } => {
                for id in self.which(*node)? {
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
        for record in &consequences.records {
            self.transcript += &format!("{id} ⇒ {}\n", show::record(record));
        }
        for (_, wish) in &consequences.wishes {
            self.transcript += &format!("{id} {}\n", show::wish(wish));
        }
        for (outcome, reply) in &consequences.outcomes {
            let question = self.clients.answered(outcome);
            self.transcript += &format!("{question}: {}\n", show::outcome(&outcome.result, reply));
        }
        for letter in &consequences.letters {
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
        const TIMEOUT_MS: u64 = 5000;
        let (ticket, follows, seen) = self.clients.ask(client, &question(&request, show::command));
        let world = self.world()?;
        let deadline_us = world.now.monotonic_us + timeout.unwrap_or(TIMEOUT_MS) * 1000;
        let consequences = world.request(node, Asked { ticket, follows, seen, deadline_us }, request);
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
                return Ok(());
            }
            self.deliver(&Fits::default(), None, false)?;
        }
        Err("the group never becomes quiet".into())
    }

    fn advance(&mut self, microseconds: u64) -> Done {
        self.world()?.advance(microseconds / 1000);
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

    fn checkpoint(&mut self, id: NodeId, n: Option<usize>, chunk: usize) -> Done {
        for _ in 0..n.unwrap_or(usize::MAX) {
            let Some((progress, record)) = self.world()?.checkpoint(id, chunk) else {
                writeln!(self.transcript, "{id}: no checkpoint now")?;
                break;
            };
            let shown = if record.is_empty() { "nothing".into() } else { show::record(&record) };
            writeln!(
                self.transcript,
                "{id} checkpoint: {shown}{}",
                match progress {
                    Progress::More => "",
                    Progress::Whole => ", whole",
                    Progress::Abandoned => ", abandoned",
                }
            )?;
            if progress != Progress::More {
                break;
            }
        }
        Ok(())
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
            digests.insert(world.replica(id).map(|replica| replica.table().digest()));
            let keys = elements(&world.peek(id, &Command::Keys { pattern: b"*" }));
            let keys: BTreeSet<String> = keys.into_iter().skip(1).collect();
            let mut entries = Vec::new();
            for key in keys {
                // An array of three: value, version, deadline.
                let entry = elements(&world.peek(id, &Command::Fetch { key: key.as_bytes() }));
                let deadline = if entry[3] == "nothing" { "" } else { &format!(" until {}", entry[3]) };
                entries.push(format!("{key}={} v{}{deadline}", entry[1], entry[2]));
            }
            let shown = if entries.is_empty() { "empty".into() } else { entries.join(", ") };
            writeln!(self.transcript, "{id}: {shown}")?;
        }
        writeln!(self.transcript, "{}", if digests.len() == 1 { "all equal" } else { "not equal" })?;
        Ok(())
    }
}

/// The elements of a flat reply as text, its head included.
fn elements(encoded: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(encoded);
    let mut elements = Vec::new();
    while let Ok(reply) = Reply::decode(&mut reader) {
        elements.push(match reply {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Integer(integer) => integer.to_string(),
            Reply::Null => "nothing".into(),
            other => format!("{other:?}"),
        });
    }
    elements
}

fn nodes(list: &str) -> Result<Vec<NodeId>, Box<dyn Error>> {
    list.split(',').map(|id| Ok(id.trim().parse()?)).collect()
}

fn options(verb: &Verb, acks: &str) -> Result<Options, Box<dyn Error>> {
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
        durability: match durability.as_deref() {
            None | Some("none") => Durability::None,
            Some("fsync") => Durability::Fsync,
            Some(_) => return Err("durability is none or fsync".into()),
        },
        planted: Default::default(),
    })
}

fn timing(verb: &Verb) -> Timing {
    // Scripts show each message where it belongs; the one about sending at leisure says so.
    let mut timing = Timing { lazy_send_ms: 0, ..Timing::default() };
    if let Verb::Cluster { window, uncommitted, chunk, chunks, resync_backlog, lazy_send, .. } = verb {
        timing.lazy_send_ms = lazy_send.unwrap_or(0);
        timing.window_bytes = window.unwrap_or(timing.window_bytes);
        timing.uncommitted_bytes_max = uncommitted.unwrap_or(timing.uncommitted_bytes_max);
        timing.chunk_bytes = chunk.unwrap_or(timing.chunk_bytes);
        timing.chunk_window = chunks.unwrap_or(timing.chunk_window);
        timing.resync_backlog_bytes_max = resync_backlog.unwrap_or(timing.resync_backlog_bytes_max);
    }
    timing
}

#[test]
fn golden_scripts() -> std::io::Result<()> {
    golden_script::run_all::<Script>("leader_follower")
}
