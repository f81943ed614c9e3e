//! The driver of golden scripts. A script states in prose what it shows, and holds every message, outcome and change that
//! follows. Scripts are in `src/<protocol>/golden`, one file per behaviour, and are the protocol's documentation by example.
//!
//! How to read a transcript: `1 → 2 …` is a message leaving, `1 * …` a change at node 1, `1 ! …` a notice, and `a: set k v:
//! …` the outcome of a request of client `a`. The protocol's module describes what else its transcripts hold.

pub(crate) use super::verbs::Verb;
use super::{Asked, Consequences, Letter, Protocol, World, show};
use kv::command::ExpiryUnit;
use kv::{Command, Condition, Deadline, Expiry, List, SetAnswer};
use protocol::contract::{NodeId, Notice, Outcome, Result as End};
use protocol::planted::{Fault, Planted};
use protocol::{Progress, Request, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

/// When the disks of a script's nodes are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncs {
    /// By the script's `sync` only.
    ByHand,
    /// By `stabilize`, when nothing else is left to do.
    WhenIdle,
    /// At the end of each turn.
    EachTurn,
}

/// What the driver has to know of a protocol.
pub(crate) trait Scripted: Protocol {
    /// The protocol's own verbs, `cluster` among them. The last one is `#[command(other)]` and goes to [`Script::say`].
    type Verb: for<'a> TryFrom<&'a goldenscript::Command, Error = Box<dyn Error>>;

    /// The state that its verbs keep.
    type State: Default;

    /// The folder of its scripts, in `src`.
    const FOLDER: &'static str;

    const SYNCS: Syncs;

    /// How long clients wait unless the script says otherwise.
    const TIMEOUT_MS: u64 = 5000;

    fn carry_out(script: &mut Script<Self>, verb: &Self::Verb) -> Done;

    /// Whether a letter that leaves is shown.
    fn is_shown(_script: &Script<Self>, _letter: &Letter) -> bool {
        true
    }

    /// Shows what a replica's table holds, entry by entry.
    fn entries(world: &mut World<Self>, id: NodeId) -> Vec<String>;

    /// Lets time pass.
    fn advance(script: &mut Script<Self>, microseconds: u64) -> Done {
        script.world()?.time_us += microseconds;
        script.each(None, World::tick)?;
        script.each(None, World::flush)
    }
}

/// A script that is being run.
pub(crate) struct Script<P: Scripted> {
    world: Option<World<P>>,
    clients: Clients,
    pub(crate) state: P::State,
    pub(crate) syncs: Syncs,
    /// Nodes that take nothing for a while.
    pub(crate) asleep: BTreeSet<NodeId>,
    pub(crate) transcript: String,
}

impl<P: Scripted> goldenscript::Runner for Script<P> {
    type Command = P::Verb;

    fn run(&mut self, verb: &P::Verb, _context: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        P::carry_out(self, verb)?;
        Ok(std::mem::take(&mut self.transcript))
    }
}

impl<P: Scripted> Script<P> {
    /// Runs all scripts of the protocol, each in a world of its own.
    pub(crate) fn run_all() -> std::io::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(P::FOLDER).join("golden");
        let mut scripts =
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        scripts.sort();
        assert!(!scripts.is_empty(), "{} has golden scripts", P::FOLDER);
        for path in scripts {
            println!("{}", path.display()); // The last name printed is that of the script that failed.
            let mut script: Script<P> = Script {
                world: None,
                clients: Clients::default(),
                state: P::State::default(),
                syncs: P::SYNCS,
                asleep: BTreeSet::new(),
                transcript: String::new(),
            };
            goldenscript::run(&mut script, &path)?;
        }
        Ok(())
    }

    /// Sets the world of this script, and starts its members with `start`.
    pub(crate) fn begin(&mut self, world: World<P>, start: impl Fn(&mut Script<P>, NodeId) -> Done) -> Done {
        let members = world.configuration.members.clone();
        self.world = Some(world);
        members.into_iter().try_for_each(|id| start(self, id))
    }

    /// Starts a node with what its disk holds.
    pub(crate) fn start(&mut self, id: NodeId) -> Done {
        self.each(Some(id), World::start)
    }

    /// Whether a letter cannot arrive.
    pub(crate) fn is_cut(&self, letter: &Letter) -> bool {
        self.world.as_ref().is_some_and(|world| world.is_cut(letter.from, letter.to))
    }

    pub(crate) fn world(&mut self) -> Done<&mut World<P>> {
        self.world.as_mut().ok_or_else(|| "a script begins with `cluster`".into())
    }

    /// Carries out a verb that all protocols have.
    pub(crate) fn say(&mut self, command: &goldenscript::Command) -> Done {
        let mut scratch = Vec::new();
        match &Verb::try_from(command)? {
            Verb::Set { node, key, value, client, expires, timeout } => {
                self.ask(*node, client, *timeout, set(key, value, *expires))?;
            }
            Verb::Get { node, key, client, timeout } => {
                self.ask(*node, client, *timeout, Command::Get { key: key.as_bytes() })?;
            }
            Verb::Mget { node, keys, client } => {
                let keys = List::build(&mut scratch, keys.iter().map(String::as_bytes));
                self.ask(*node, client, None, Command::MultiGet { keys })?;
            }
            Verb::Exists { node, keys } => {
                let keys = List::build(&mut scratch, keys.iter().map(String::as_bytes));
                self.ask(*node, &None, None, Command::Exists { keys })?;
            }
            Verb::Del { node, keys, client } => {
                let keys = List::build(&mut scratch, keys.iter().map(String::as_bytes));
                self.ask(*node, client, None, Command::Delete { keys })?;
            }
            Verb::Pttl { node, key } => {
                let unit = ExpiryUnit::MillisecondsLeft;
                self.ask(*node, &None, None, Command::TimeToLive { key: key.as_bytes(), unit })?;
            }
            Verb::Incr { node, key, client } => {
                self.ask(*node, client, None, Command::IncrementBy { key: key.as_bytes(), delta: 1 })?;
            }
            Verb::Flushall { node } => self.ask(*node, &None, None, Command::Clear {})?,
            Verb::Keys { node } => self.ask(*node, &None, None, Command::Keys { pattern: b"*" })?,
            Verb::Wait { node, count, client, timeout } => {
                let request = Request::Wait { offset: u64::MAX, count: count.unwrap_or(1) };
                self.request(*node, client, *timeout, request)?;
            }
            Verb::Flush { node } => {
                for id in self.which(*node)? {
                    self.flush(id)?;
                }
            }
            Verb::Tick { node } => {
                self.each(*node, World::tick)?;
                self.each(*node, World::flush)?;
            }
            Verb::Advance { duration } => P::advance(self, microseconds(duration)?)?,
            Verb::Clock { node, ahead } => self.world()?.clock_mut(*node).unix_ahead_ms = *ahead,
            Verb::Deliver { from, to, kind, n, order } => {
                let reverse = order.as_deref() == Some("reverse");
                self.deliver(&Fits::new(from, to, kind), *n, reverse)?;
            }
            Verb::Drop { from, to, kind, n } => {
                let lost = self.take(&Fits::new(from, to, kind), *n)?;
                self.tell_letters("lost", &lost);
            }
            Verb::Duplicate { from, to, kind } => {
                let copies = Fits::new(from, to, kind).copies::<P>(&self.world()?.network);
                self.tell_letters("twice", &copies);
                self.world()?.network.extend(copies);
            }
            Verb::Hold { from, to, kind, copies } => {
                let fits = Fits::new(from, to, kind);
                let network = &mut self.world()?.network;
                let held = fits.copies::<P>(network);
                if *copies {
                    network.extend(held.iter().cloned().map(|letter| Letter { held: true, ..letter }));
                } else {
                    network
                        .iter_mut()
                        .filter(|letter| fits.fit::<P>(letter))
                        .for_each(|letter| letter.held = true);
                }
                self.tell_letters("held", &held);
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
                let notifies = |one: NodeId, other| one != other && at.is_none_or(|at| at == one);
                for (one, other) in pairs.into_iter().filter(|(one, other)| notifies(*one, *other)) {
                    self.each(Some(one), |world, id| world.reach(id, other, state == "up"))?;
                }
            }
            Verb::Vouch { node } => {
                let others = self.which(None)?.into_iter().filter(|other| other != node);
                for other in others.collect::<Vec<_>>() {
                    self.each(Some(other), |world, id| world.vouch(id, *node))?;
                }
            }
            Verb::Crash { node, kept, silent } => {
                self.world()?.crash(*node, kept.unwrap_or(0));
                if !silent {
                    self.hint_all(*node, false)?;
                }
            }
            Verb::Restart { node, silent } => {
                self.start(*node)?;
                if !silent {
                    self.hint_all(*node, true)?;
                }
            }
            Verb::Sync { node } => self.each(*node, World::sync_all)?,
            Verb::Checkpoint { node } => loop {
                match self.world()?.checkpoint(*node, 1000) {
                    Some((Progress::More, _)) => {}
                    Some((Progress::Whole, _)) => {
                        break writeln!(self.transcript, "{node} has a checkpoint")?;
                    }
                    Some((Progress::Abandoned, _)) | None => {
                        return Err("there is no checkpoint now".into());
                    }
                }
            },
            Verb::Backup { node } => self.world()?.back_up(*node),
            Verb::Wipe { node } => self.world()?.wipe(*node),
            Verb::Rollback { node } => self.world()?.lose_disk(*node),
            Verb::Status { node } => {
                for id in self.which(*node)? {
                    let shown = self.world()?.status(id).map(|status| P::show_status(&status));
                    writeln!(self.transcript, "{id}: {}", shown.unwrap_or_else(|| "crashed".into()))?;
                }
            }
            Verb::Table => self.tables()?,
            Verb::Stabilize => self.stabilize()?,
        }
        Ok(())
    }

    /// Returns a node, or all.
    pub(crate) fn which(&mut self, node: Option<NodeId>) -> Done<Vec<NodeId>> {
        let asleep = self.asleep.clone();
        let awake = |id: &NodeId| !asleep.contains(id);
        Ok(node.map_or(self.world()?.members().filter(awake).collect(), |id| vec![id]))
    }

    /// Gives a node, or each node, an input.
    pub(crate) fn each(
        &mut self,
        node: Option<NodeId>,
        act: impl Fn(&mut World<P>, NodeId) -> Consequences,
    ) -> Done {
        for id in self.which(node)? {
            let consequences = act(self.world()?, id);
            self.note(id, consequences)?;
        }
        Ok(())
    }

    /// Writes down the consequences, and puts the letters on their way.
    fn note(&mut self, id: NodeId, consequences: Consequences) -> Done {
        for trace in &consequences.traces {
            writeln!(self.transcript, "{id} * {}", P::show_trace(trace))?;
        }
        for line in P::show_records(&consequences.records) {
            writeln!(self.transcript, "{id} {line}")?;
        }
        for (_, request) in &consequences.control_requests {
            writeln!(self.transcript, "{id} {}", show::request(request))?;
        }
        for notice in &consequences.notices {
            // `Notice::Skipped` is not shown: the installed snapshot is shown already.
            if let Notice::LockNotified { .. } = notice {
                writeln!(self.transcript, "{id} ! {}", show::notice(notice))?;
            }
        }
        for (outcome, reply) in &consequences.outcomes {
            let question = self.clients.answered(outcome);
            writeln!(self.transcript, "{question}: {}", show::outcome::<P>(&outcome.result, reply))?;
        }
        for letter in &consequences.letters {
            if P::is_shown(self, letter) {
                writeln!(self.transcript, "{}", show::letter::<P>(letter))?;
            }
        }
        self.world()?.post(consequences.letters);
        Ok(())
    }

    // Clients.

    pub(crate) fn ask(
        &mut self,
        node: NodeId,
        client: &Option<String>,
        timeout_ms: Option<u64>,
        command: Command<'_>,
    ) -> Done {
        self.request(node, client, timeout_ms, Request::Command(&command))
    }

    fn request(
        &mut self,
        node: NodeId,
        client: &Option<String>,
        timeout_ms: Option<u64>,
        request: Request<'_>,
    ) -> Done {
        let (ticket, follows, seen) = self.clients.ask(client, &show::question(&request));
        let deadline_us = self.world()?.now(node).monotonic_us + timeout_ms.unwrap_or(P::TIMEOUT_MS) * 1000;
        let consequences = self.world()?.request(node, Asked { ticket, follows, seen, deadline_us }, request);
        self.note(node, consequences)
    }

    // The network.

    /// Takes the letters that fit out of the network, at most `n`. Nodes that sleep get nothing.
    fn take(&mut self, fits: &Fits, n: Option<usize>) -> Done<Vec<Letter>> {
        let asleep = self.asleep.clone();
        let network = &mut self.world()?.network;
        let mut left = n.unwrap_or(usize::MAX);
        let (mut taken, mut stay) = (Vec::new(), Vec::new());
        for letter in std::mem::take(network) {
            if left > 0 && fits.fit::<P>(&letter) && !asleep.contains(&letter.to) {
                left -= 1;
                taken.push(letter);
            } else {
                stay.push(letter);
            }
        }
        *network = stay;
        Ok(taken)
    }

    pub(crate) fn deliver(&mut self, fits: &Fits, n: Option<usize>, reverse: bool) -> Done {
        let mut letters = self.take(fits, n)?;
        if reverse {
            letters.reverse();
        }
        let mut receivers = BTreeSet::new();
        for letter in letters {
            let consequences = self.world()?.deliver(&letter);
            self.note(letter.to, consequences)?;
            receivers.insert(letter.to);
        }
        receivers.into_iter().try_for_each(|id| self.flush(id))
    }

    /// Ends a node's turn. A sync may make another turn necessary.
    pub(crate) fn flush(&mut self, id: NodeId) -> Done {
        self.each(Some(id), World::flush)?;
        while self.syncs == Syncs::EachTurn && !self.world()?.is_synced(id) {
            self.each(Some(id), World::sync_all)?;
            self.each(Some(id), World::flush)?;
        }
        Ok(())
    }

    pub(crate) fn stabilize(&mut self) -> Done {
        const ROUNDS_MAX: usize = 1000;
        for id in self.which(None)? {
            self.flush(id)?;
        }
        for _ in 0..ROUNDS_MAX {
            if self.is_quiet()? && self.syncs == Syncs::WhenIdle {
                self.each(None, World::sync_all)?;
                self.each(None, World::flush)?;
            }
            if self.is_quiet()? {
                return Ok(());
            }
            self.deliver(&Fits::default(), None, false)?;
        }
        Err("the group never becomes quiet".into())
    }

    /// Whether nothing is under way.
    fn is_quiet(&mut self) -> Done<bool> {
        let asleep = self.asleep.clone();
        Ok(self.world()?.network.iter().all(|letter| letter.held || asleep.contains(&letter.to)))
    }

    /// Notifies a node and its peers that the links between them came up or went down.
    pub(crate) fn hint_all(&mut self, node: NodeId, up: bool) -> Done {
        for peer in self.which(None)? {
            if peer == node || self.world()?.is_cut(node, peer) {
                continue;
            }
            self.each(Some(node), |world, id| world.hint(id, peer, up))?;
            self.each(Some(peer), |world, id| world.hint(id, node, up))?;
        }
        Ok(())
    }

    // What is written down.

    fn tell_letters(&mut self, what: &str, letters: &[Letter]) {
        for letter in letters {
            self.transcript += &format!("{what}: {}\n", show::letter::<P>(letter));
        }
    }

    fn tables(&mut self) -> Done {
        let mut digests = BTreeSet::new();
        for id in self.world()?.alive() {
            digests.insert(self.world()?.table(id).map(kv::Table::digest));
            let entries = P::entries(self.world()?, id);
            let shown = if entries.is_empty() { "empty".into() } else { entries.join(", ") };
            writeln!(self.transcript, "{id}: {shown}")?;
        }
        writeln!(self.transcript, "{}", if digests.len() == 1 { "all equal" } else { "not equal" })?;
        Ok(())
    }
}

#[derive(Default)]
struct Client {
    number: u64,
    asked: u64,
    waiting: BTreeSet<u64>,
    seen: u64,
}

/// The clients of a script, and their open requests.
#[derive(Default)]
struct Clients {
    clients: BTreeMap<String, Client>,
    questions: BTreeMap<Ticket, String>,
}

impl Clients {
    /// Adds a request of a client, which is `a` if it has no name. Returns its ticket, whether earlier requests of it are
    /// open, and the newest offset that the client has seen.
    fn ask(&mut self, name: &Option<String>, question: &str) -> (Ticket, bool, u64) {
        let name = name.clone().unwrap_or("a".into());
        let number = self.clients.len() as u64 + 1;
        let client =
            self.clients.entry(name.clone()).or_insert_with(|| Client { number, ..Client::default() });
        client.asked += 1;
        let ticket = Ticket { client: client.number, sequence: client.asked };
        let follows = !client.waiting.is_empty();
        client.waiting.insert(ticket.sequence);
        self.questions.insert(ticket, format!("{name}: {question}"));
        (ticket, follows, client.seen)
    }

    /// Takes an outcome. Returns the request's text.
    fn answered(&mut self, outcome: &Outcome) -> String {
        let Ticket { client, sequence } = outcome.ticket;
        for client in self.clients.values_mut().filter(|it| it.number == client) {
            client.waiting.remove(&sequence);
            if let End::Done { offset, .. } = outcome.result {
                client.seen = client.seen.max(offset);
            }
        }
        self.questions.remove(&outcome.ticket).unwrap_or("?".into())
    }
}

/// Selects letters for a verb: all that are not held, when nothing is named.
#[derive(Default)]
pub(crate) struct Fits {
    from: Option<NodeId>,
    to: Option<NodeId>,
    kind: Option<String>,
}

impl Fits {
    fn new(from: &Option<NodeId>, to: &Option<NodeId>, kind: &Option<String>) -> Fits {
        Fits { from: *from, to: *to, kind: kind.clone() }
    }

    pub(crate) fn of_kind(kind: &str) -> Fits {
        Fits { kind: Some(kind.into()), ..Fits::default() }
    }

    fn fit<P: Protocol>(&self, letter: &Letter) -> bool {
        !letter.held
            && self.from.is_none_or(|from| letter.from == from)
            && self.to.is_none_or(|to| letter.to == to)
            && self.kind.as_ref().is_none_or(|kind| letter.kinds::<P>().contains(&kind.as_str()))
    }

    fn copies<P: Protocol>(&self, network: &[Letter]) -> Vec<Letter> {
        network.iter().filter(|letter| self.fit::<P>(letter)).cloned().collect()
    }
}

/// A command that sets a key, for this many milliseconds if given.
pub(crate) fn set<'a>(key: &'a str, value: &'a str, expires: Option<i64>) -> Command<'a> {
    Command::Set {
        key: key.as_bytes(),
        value: value.as_bytes(),
        expiry: expires.map_or(Expiry::Clear, |ms| Expiry::Set(Deadline::In(ms))),
        condition: Condition::Always,
        answer: SetAnswer::Status,
    }
}

/// The ends of a link, which is named like 1-2.
fn link(ends: &str) -> Done<(NodeId, NodeId)> {
    let (one, other) = ends.split_once('-').ok_or("a link is named like 1-2")?;
    Ok((one.parse()?, other.parse()?))
}

/// Nodes, named like 1,2,3.
pub(crate) fn nodes(list: &str) -> Done<Vec<NodeId>> {
    list.split(',').map(|id| Ok(id.trim().parse()?)).collect()
}

/// The microseconds of a duration like `100ms` or `50us`.
pub(crate) fn microseconds(duration: &str) -> Done<u64> {
    match (duration.strip_suffix("ms"), duration.strip_suffix("us")) {
        (Some(number), _) => Ok(number.parse::<u64>()? * 1000),
        (None, Some(number)) => Ok(number.parse()?),
        (None, None) => Err(format!("{duration} is no duration like 100ms").into()),
    }
}

/// Whether replicas keep records: `none`, the default, or `fsync`.
pub(crate) fn keeps_records(durability: &Option<String>) -> Done<bool> {
    match durability.as_deref() {
        None | Some("none") => Ok(false),
        Some("fsync") => Ok(true),
        Some(_) => Err("durability is none or fsync".into()),
    }
}

/// The fault with this name; no fault if no name is given.
pub(crate) fn planted(faults: &[Fault], name: &Option<String>) -> Done<Planted> {
    let Some(name) = name else { return Ok(Planted::default()) };
    let fault = faults.iter().find(|fault| format!("{fault:?}") == *name);
    Ok(Planted::one(*fault.ok_or("no such fault")?))
}
