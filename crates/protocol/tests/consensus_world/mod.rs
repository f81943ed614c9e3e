//! A group in one process: replicas, their disks, which lose what was not synced, their clocks, and the letters under
//! way. Nothing in it is random; who drives it decides what happens and when.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "a module of several test programs, which need different parts of it"
)]

#[path = "../letters/mod.rs"]
mod letters;
pub mod show;

use kv::{Command, Interpreter, NoInterpreter, ReplyBuffer};

pub use letters::Letter;
use protocol::consensus::{Change, Message, Options, Replica, Status, Timing, Voter};
use protocol::contract::{Configuration, Effects, Input, NodeId, Now, Outcome, Replica as _};
use protocol::{Notice, Progress, Request, Ticket, Trace};

impl Letter {
    pub fn message(&self) -> Message<'_> {
        Message::decode(&self.bytes).expect("replicas send what can be read")
    }
}

/// What followed from one input.
#[derive(Default)]
pub struct Consequences {
    pub traces: Vec<Trace>,
    pub outcomes: Vec<(Outcome, Vec<u8>)>,
    pub notices: Vec<Notice>,
    pub letters: Vec<Letter>,
}

impl Consequences {
    fn and(mut self, other: Consequences) -> Consequences {
        self.traces.extend(other.traces);
        self.outcomes.extend(other.outcomes);
        self.notices.extend(other.notices);
        self.letters.extend(other.letters);
        self
    }
}

/// A request without what is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub ticket: Ticket,
    pub follows: bool,
    pub seen: u64,
    pub deadline_us: u64,
}

/// A checkpoint and the records behind it. Positions count the records of all lives.
#[derive(Clone, Debug, Default)]
struct Disk {
    checkpoint: Vec<Vec<u8>>,
    /// The record that the checkpoint makes useless, and all before it.
    checkpoint_at: u64,
    records: Vec<(u64, Vec<u8>)>,
    written: u64,
    durable: u64,
    /// Where this life's records begin.
    life_at: u64,
    /// A checkpoint that is being written, and where it began.
    unfinished: Option<(u64, Vec<Vec<u8>>)>,
}

struct Node {
    replica: Option<Replica>,
    disk: Disk,
    /// Letters that wait for a position on the disk.
    waiting: Vec<(u64, Letter)>,
    /// The newest configuration that it was told.
    told: Option<Configuration>,
    /// What its disk held at some time.
    backup: Option<Disk>,
    /// This node's clock runs so many parts in a million faster.
    drift_ppm: i64,
    /// Its wall clock shows so much more.
    wall_ms: u64,
}

pub struct World {
    pub now_us: u64,
    /// Letters that were sent and are not delivered, for scripts.
    pub network: Vec<Letter>,
    nodes: Vec<Node>,
    options: Options,
    timing: Timing,
    made: u64,
    effects: Effects,
    /// What runs the scripts of nodes that start from now on.
    pub interpreter: &'static dyn Interpreter,
}

impl World {
    pub fn new(nodes: NodeId, options: Options, timing: Timing) -> World {
        World::with_spares(nodes, 0, options, timing)
    }

    /// A group of so many nodes, and so many nodes besides that are in no group yet.
    pub fn with_spares(members: NodeId, spares: NodeId, options: Options, timing: Timing) -> World {
        let nodes = members + spares;
        let first: Vec<NodeId> = (1..=members).collect();
        let first =
            Configuration { epoch: 1, leader: 0, members: first.clone(), in_sync: first, is_given_up: false };
        let mut world = World {
            now_us: 1_000_000,
            network: Vec::new(),
            nodes: Vec::new(),
            options,
            timing,
            made: 0,
            effects: Effects::default(),
            interpreter: &NoInterpreter,
        };
        for id in 1..=nodes {
            let disk = Disk::default();
            let node = Node {
                replica: None,
                disk,
                waiting: Vec::new(),
                told: (id <= members).then(|| first.clone()),
                backup: None,
                drift_ppm: 0,
                wall_ms: 0,
            };
            world.nodes.push(node);
        }
        world
    }

    pub fn members(&self) -> impl Iterator<Item = NodeId> + use<> {
        1..=self.nodes.len() as NodeId
    }

    pub fn alive(&self) -> Vec<NodeId> {
        self.members().filter(|id| self.replica(*id).is_some()).collect()
    }

    pub fn replica(&self, id: NodeId) -> Option<&Replica> {
        self.nodes.get(id as usize - 1)?.replica.as_ref()
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize - 1]
    }

    pub fn set_drift(&mut self, id: NodeId, ppm: i64) {
        self.node(id).drift_ppm = ppm;
    }

    /// A node's wall clock jumps to so much more than the right time.
    pub fn set_wall(&mut self, id: NodeId, more_ms: u64) {
        self.node(id).wall_ms = more_ms;
    }

    /// What a node's clocks say.
    pub fn now(&self, id: NodeId) -> Now {
        let drift = self.nodes[id as usize - 1].drift_ppm;
        let monotonic_us =
            (self.now_us as i64 + self.now_us as i64 * drift / 1_000_000) as u64 + u64::from(id) * 7_000_000;
        Now { monotonic_us, unix_ms: self.now_us / 1000 + 1_000_000 + self.nodes[id as usize - 1].wall_ms }
    }

    /// When, in the world's time, a node's clock will show a time.
    pub fn when(&self, id: NodeId, local_us: u64) -> u64 {
        let drift = self.nodes[id as usize - 1].drift_ppm;
        let own = local_us.saturating_sub(u64::from(id) * 7_000_000) as i64;
        (own - own * drift / 1_000_000).max(0) as u64 + 1
    }

    pub fn status(&self, id: NodeId) -> Option<Status> {
        Some(self.replica(id)?.status(self.now(id)))
    }

    pub fn wakeup_us(&self, id: NodeId) -> Option<u64> {
        Some(self.when(id, self.replica(id)?.wakeup_us(self.now(id))))
    }

    pub fn peek(&mut self, id: NodeId, command: &Command<'_>) -> Vec<u8> {
        let mut reply = ReplyBuffer::new();
        let now = self.now(id).unix_ms;
        if let Some(replica) = &mut self.node(id).replica {
            replica.peek(command, now, &mut reply);
        }
        reply.as_bytes().to_vec()
    }

    /// Gives a replica one input. A crashed one takes nothing.
    fn step(&mut self, id: NodeId, input: Input<'_, Message<'_>>) -> Consequences {
        let now = self.now(id);
        let node = &mut self.nodes[id as usize - 1];
        let Some(replica) = &mut node.replica else {
            return Consequences::default();
        };
        let effects = &mut self.effects;
        effects.clear();
        replica.step(now, input, effects);
        replica.check_invariants(now);
        for record in &effects.records {
            node.disk.written += 1;
            node.disk.records.push((node.disk.written, record.parts(&effects.bytes).concat()));
        }
        let mut letters = Vec::new();
        for message in &effects.messages {
            let bytes = message.bytes.parts(&effects.bytes).concat();
            let letter = Letter { from: id, to: message.to, bytes, held: false };
            let after = node.disk.life_at + message.after_record;
            if message.after_record == 0 || after <= node.disk.durable {
                letters.push(letter);
            } else {
                node.waiting.push((after, letter));
            }
        }
        let replies = effects.replies.as_bytes();
        let outcomes = effects.outcomes.iter().cloned().map(|outcome| {
            let reply = replies[outcome.reply.clone()].to_vec();
            (outcome, reply)
        });
        // Nobody asks another replica here: what is handed on reads like what is turned away at once.
        let handed_on = effects.handed_on.iter().map(|it| {
            let result = protocol::Result::Redirect { to: it.to };
            (Outcome { ticket: it.ticket, result, reply: 0..0 }, Vec::new())
        });
        let outcomes = outcomes.chain(handed_on).collect();
        Consequences { traces: effects.trace.clone(), outcomes, notices: effects.notices.clone(), letters }
    }

    pub fn request(&mut self, id: NodeId, asked: Asked, request: Request<'_>) -> Consequences {
        let Asked { ticket, follows, seen, deadline_us } = asked;
        self.step(id, Input::Request { ticket, request, follows, seen, deadline_us, fenced: false })
    }

    pub fn deliver(&mut self, letter: &Letter) -> Consequences {
        self.step(letter.to, Input::Message { from: letter.from, message: letter.message() })
    }

    pub fn flush(&mut self, id: NodeId) -> Consequences {
        self.step(id, Input::Flush)
    }

    pub fn tick(&mut self, id: NodeId) -> Consequences {
        self.step(id, Input::Tick)
    }

    /// Tells a replica that its link to a peer went down.
    pub fn hint(&mut self, id: NodeId, peer: NodeId) -> Consequences {
        self.step(id, Input::Link { peer, up: false })
    }

    // Disks.

    /// Where a node's disk has come to: what a sync that begins now makes durable.
    pub fn written(&self, id: NodeId) -> u64 {
        self.nodes[id as usize - 1].disk.written
    }

    /// Up to where it is durable.
    pub fn durable(&self, id: NodeId) -> u64 {
        self.nodes[id as usize - 1].disk.durable
    }

    pub fn is_synced(&self, id: NodeId) -> bool {
        let disk = &self.nodes[id as usize - 1].disk;
        disk.durable == disk.written
    }

    /// A sync is done: everything up to a position is durable, and what waited for it leaves.
    pub fn sync(&mut self, id: NodeId, position: u64) -> Consequences {
        let node = self.node(id);
        if node.replica.is_none() || position <= node.disk.durable {
            return Consequences::default();
        }
        node.disk.durable = position;
        let record = position - node.disk.life_at;
        let (leave, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut node.waiting).into_iter().partition(|(after, _)| *after <= position);
        node.waiting = stay;
        let letters = leave.into_iter().map(|(_, letter)| letter).collect();
        let released = Consequences { letters, ..Consequences::default() };
        released.and(self.step(id, Input::Durable { record }))
    }

    /// A node stops. Of the records that were not synced it keeps the first few.
    pub fn crash(&mut self, id: NodeId, kept: u64) {
        let node = self.node(id);
        node.replica = None;
        node.waiting.clear();
        let disk = &mut node.disk;
        disk.unfinished = None;
        let end = (disk.durable + kept).min(disk.written);
        disk.records.retain(|(position, _)| *position <= end);
        disk.written = end;
        disk.durable = end;
    }

    /// A node starts with what its disk holds.
    pub fn start(&mut self, id: NodeId) -> Consequences {
        self.made += 1; // Tables of different seeds must agree all the same.
        let (now, made) = (self.now(id), self.made);
        let (options, timing, interpreter) = (self.options, self.timing, self.interpreter);
        let node = self.node(id);
        let mut replica = Replica::new(id, options, timing, made, u64::from(id) * 1_000_000 + made);
        replica.set_interpreter(interpreter);
        let records = node.disk.checkpoint.iter().chain(node.disk.records.iter().map(|(_, record)| record));
        for record in records {
            replica.replay(now, record).expect("replicas write what can be read");
        }
        node.disk.life_at = node.disk.written;
        node.replica = Some(replica);
        let told = node.told.clone();
        told.map_or_else(Consequences::default, |told| self.step(id, Input::Configure(&told)))
    }

    /// The control group tells a node a configuration. It remembers the newest for its next start.
    pub fn configure(&mut self, id: NodeId, configuration: &Configuration) -> Consequences {
        let node = self.node(id);
        if node.told.as_ref().is_none_or(|told| told.epoch < configuration.epoch) {
            node.told = Some(configuration.clone());
        }
        self.step(id, Input::Configure(configuration))
    }

    /// Whether the disks of all these others hold, durably, who a node is, and that it has had so many lives.
    pub fn is_known(&self, id: NodeId, lives: u64, others: &[NodeId]) -> bool {
        let knows = |node: &Node| {
            let durable = node.disk.records.iter().filter(|(position, _)| *position <= node.disk.durable);
            let mut records = node.disk.checkpoint.iter().chain(durable.map(|(_, record)| record));
            records.any(|record| {
                let changes = Change::decode_all(record).expect("replicas write what can be read");
                let is_it = |voter: &Voter| voter.member.node == id && voter.identity.life >= lives;
                changes.iter().any(|change| matches!(change, Change::Peer(voter) if is_it(voter)))
            })
        };
        others.iter().all(|other| *other == id || knows(&self.nodes[*other as usize - 1]))
    }

    /// A crashed node's disk is lost; it gets a new one.
    pub fn wipe(&mut self, id: NodeId) {
        let node = self.node(id);
        node.disk = Disk::default();
        node.backup = None;
    }

    /// A node that was never told that it is in a group.
    pub fn is_unused(&self, id: NodeId) -> bool {
        self.nodes[id as usize - 1].told.is_none()
    }

    /// Keeps what a node's disk holds durably.
    pub fn back_up(&mut self, id: NodeId) {
        let disk = &mut self.node(id).disk;
        let mut backup = disk.clone();
        backup.unfinished = None;
        backup.records.retain(|(position, _)| *position <= disk.durable);
        backup.written = disk.durable;
        self.node(id).backup = Some(backup);
    }

    /// The lives of which a node's backup knows; none without one.
    pub fn lives_in_backup(&self, id: NodeId) -> Option<u64> {
        let backup = self.nodes[id as usize - 1].backup.as_ref()?;
        let records = backup.checkpoint.iter().chain(backup.records.iter().map(|(_, record)| record));
        let lives = records
            .flat_map(|record| Change::decode_all(record).expect("replicas write what can be read"))
            .filter_map(|change| if let Change::Life { life, .. } = change { Some(life) } else { None });
        lives.last()
    }

    /// A crashed node's disk holds again what it held when it was last backed up.
    pub fn roll_back(&mut self, id: NodeId) {
        let node = self.node(id);
        if let Some(backup) = node.backup.clone() {
            node.disk = backup;
        }
    }

    /// Writes one more record of a node's checkpoint, and begins one if none is under way. True when more are to come.
    pub fn checkpoint(&mut self, id: NodeId, chunk_bytes: usize) -> bool {
        let node = self.node(id);
        let Some(replica) = &mut node.replica else { return false };
        let disk = &mut node.disk;
        if disk.unfinished.is_none() {
            disk.unfinished = replica.begin_checkpoint().then(|| (disk.written, Vec::new()));
        }
        let Some((at, mut records)) = disk.unfinished.take() else { return false };
        let mut record = Vec::new();
        let progress = replica.checkpoint_record(chunk_bytes, &mut record);
        records.push(record);
        match progress {
            Progress::More => {
                disk.unfinished = Some((at, records));
                return true;
            }
            // It is durable before it takes the place of records that are.
            Progress::Whole if disk.durable >= at => {
                disk.checkpoint = records;
                disk.checkpoint_at = at;
                disk.records.retain(|(position, _)| *position > at);
            }
            Progress::Whole | Progress::Abandoned => {}
        }
        false
    }
}
