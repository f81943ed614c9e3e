//! A group in memory: replicas, the letters between them, links, crashes, and time that moves when told to.
//!
//! It decides nothing. The golden scripts drive it by hand, the random schedules by a seed.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

mod disk;
#[path = "../letters/mod.rs"]
mod letters;
pub mod show;
mod values;

use disk::Disk;
use kv::{Command, ReplyBuffer};
pub use letters::Letter;
use protocol::SpilledValues as _;
use protocol::contract::{Configuration, Effects, Input, NodeId, Now, Outcome, Progress, Trace, Wish};
use protocol::leader_follower::{Durability, Message, Options, Replica, Status, Timing};
use protocol::{Replica as _, Request, Ticket};
use std::collections::BTreeSet;
use values::Values;

impl Letter {
    pub fn message(&self) -> Message<'_> {
        Message::decode(&self.bytes).expect("replicas send what can be read")
    }
}

/// What one input led to.
#[derive(Debug, Default)]
pub struct Consequences {
    pub traces: Vec<Trace>,
    pub outcomes: Vec<(Outcome, Vec<u8>)>,
    pub letters: Vec<Letter>,
    /// What the replica records from now on, in order.
    pub records: Vec<Vec<u8>>,
    /// What it asks of the control group, each with the version of the map that it knew.
    pub wishes: Vec<(u64, Wish)>,
}

impl Consequences {
    fn and(mut self, mut later: Consequences) -> Consequences {
        self.traces.append(&mut later.traces);
        self.outcomes.append(&mut later.outcomes);
        self.letters.append(&mut later.letters);
        self.records.append(&mut later.records);
        self.wishes.append(&mut later.wishes);
        self
    }
}

/// A client's request, with what the node that takes it knows of the client.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub ticket: Ticket,
    pub follows: bool,
    pub seen: u64,
    pub deadline_us: u64,
}

struct Node {
    replica: Option<Replica>,
    disk: Disk,
    values: Values,
    /// Letters that wait for a position on the disk.
    waiting: Vec<(u64, Letter)>,
    /// Its clock runs so many parts in a million faster.
    drift_ppm: i64,
    /// The version of the map that it was last told.
    version: u64,
}

pub struct World {
    pub now: Now,
    /// What the control group says at present. Replicas know what they were last told.
    pub configuration: Configuration,
    /// Grows with every change of it.
    pub version: u64,
    /// Letters under way, in the order in which they were sent.
    pub network: Vec<Letter>,
    /// Whether whoever is configured gets a lease that never ends.
    pub leases_forever: bool,
    options: Options,
    timing: Timing,
    nodes: Vec<Node>,
    cut: BTreeSet<(NodeId, NodeId)>,
    replicas_made: u64,
    effects: Effects,
}

impl World {
    pub fn new(nodes: NodeId, options: Options, timing: Timing) -> World {
        let members: Vec<NodeId> = (1..=nodes).collect();
        let mut world = World {
            now: Now { monotonic_us: START_US, unix_ms: 1_000_000 },
            configuration: Configuration {
                epoch: 1,
                leader: 1,
                members: members.clone(),
                in_sync: members,
                is_given_up: false,
            },
            version: 1,
            network: Vec::new(),
            leases_forever: true,
            options,
            timing,
            nodes: Vec::new(),
            cut: BTreeSet::new(),
            replicas_made: 0,
            effects: Effects::default(),
        };
        for id in 1..=nodes {
            let (disk, values) = (Disk::default(), Values::new(options.planted));
            let waiting = Vec::new();
            world.nodes.push(Node { replica: None, disk, values, waiting, drift_ppm: 0, version: 0 });
            world.restart(id);
        }
        world
    }

    pub fn set_drift(&mut self, id: NodeId, ppm: i64) {
        self.nodes[id as usize - 1].drift_ppm = ppm;
    }

    /// What a node's clocks say.
    pub fn now(&self, id: NodeId) -> Now {
        let passed_us = (self.now.monotonic_us - START_US) as i64;
        let ahead_us = passed_us * self.nodes[id as usize - 1].drift_ppm / 1_000_000;
        Now { monotonic_us: (self.now.monotonic_us as i64 + ahead_us) as u64, ..self.now }
    }

    pub fn keeps_records(&self) -> bool {
        self.options.durability != Durability::None
    }

    pub fn members(&self) -> impl Iterator<Item = NodeId> + use<> {
        1..=self.nodes.len() as NodeId
    }

    pub fn alive(&self) -> Vec<NodeId> {
        self.members().filter(|id| self.is_alive(*id)).collect()
    }

    pub fn is_alive(&self, id: NodeId) -> bool {
        self.replica(id).is_some()
    }

    pub fn replica(&self, id: NodeId) -> Option<&Replica> {
        self.nodes.get(id as usize - 1)?.replica.as_ref()
    }

    /// The version of the map that a node was last told.
    pub fn version_told(&self, id: NodeId) -> u64 {
        self.nodes[id as usize - 1].version
    }

    pub fn status(&self, id: NodeId) -> Option<Status> {
        Some(self.replica(id)?.status(self.now(id)))
    }

    /// When, on its own clock, a replica wants to be woken.
    pub fn wakeup_us(&self, id: NodeId) -> Option<u64> {
        Some(self.replica(id)?.wakeup_us(self.now(id)))
    }

    /// Reads what is applied at a replica, whatever its role.
    pub fn peek(&mut self, id: NodeId, command: &Command<'_>) -> Vec<u8> {
        let mut reply = ReplyBuffer::new();
        let now = self.now.unix_ms;
        if let Some(replica) = &mut self.nodes[id as usize - 1].replica {
            replica.peek(command, now, &mut reply);
        }
        self.nodes[id as usize - 1].values.complete(reply.as_bytes())
    }

    /// Gives a replica one input. A crashed one takes nothing.
    fn step(&mut self, id: NodeId, input: Input<'_, Message<'_>>) -> Consequences {
        self.act(id, |replica, now, effects| replica.step(now, input, effects))
    }

    /// What follows from something that a replica is told.
    fn act(&mut self, id: NodeId, tell: impl FnOnce(&mut Replica, Now, &mut Effects)) -> Consequences {
        let keeps_records = self.keeps_records();
        let now = self.now(id);
        let node = &mut self.nodes[id as usize - 1];
        let Some(replica) = &mut node.replica else {
            return Consequences::default();
        };
        let effects = &mut self.effects;
        effects.clear();
        tell(replica, now, effects);
        replica.check_invariants(now);
        node.values.follow(replica, keeps_records);
        let records: Vec<Vec<u8>> =
            effects.records.iter().map(|record| record.parts(&effects.bytes).concat()).collect();
        node.disk.write(&records);
        let mut letters = Vec::new();
        for message in &effects.messages {
            let bytes = message.bytes.parts(&effects.bytes).concat();
            let letter = Letter { from: id, to: message.to, bytes, held: false };
            match node.disk.position_of(message.after_record) {
                Some(position) if !node.disk.is_durable(position) => node.waiting.push((position, letter)),
                _ => letters.push(letter),
            }
        }
        let replies = effects.replies.as_bytes();
        let with_reply = |outcome: Outcome| {
            let reply = node.values.complete(&replies[outcome.reply.clone()]);
            (outcome, reply)
        };
        // Nobody asks another replica here: what is handed on reads like what is turned away at once.
        let handed_on = effects.handed_on.iter().map(|it| {
            let result = protocol::Result::Redirect { to: it.to };
            (Outcome { ticket: it.ticket, result, reply: 0..0 }, Vec::new())
        });
        let outcomes = effects.outcomes.iter().cloned().map(with_reply).chain(handed_on).collect();
        node.values.tidy(replica);
        Consequences {
            traces: effects.trace.clone(),
            outcomes,
            letters,
            records,
            wishes: effects.wishes.iter().cloned().map(|wish| (node.version, wish)).collect(),
        }
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

    /// Puts letters on their way; those on a cut link are lost.
    pub fn post(&mut self, letters: Vec<Letter>) {
        let cut = &self.cut;
        self.network
            .extend(letters.into_iter().filter(|letter| !cut.contains(&ends(letter.from, letter.to))));
    }

    pub fn advance(&mut self, milliseconds: u64) {
        self.now.monotonic_us += milliseconds * 1000;
        self.now.unix_ms += milliseconds;
    }

    /// Tells a replica what the control group says.
    pub fn configure(&mut self, id: NodeId) -> Consequences {
        let (configuration, version) = (self.configuration.clone(), self.version);
        self.nodes[id as usize - 1].version = version;
        let configured = self.step(id, Input::Configure(&configuration));
        match self.leases_forever {
            true => configured.and(self.lease(id, u64::MAX)),
            false => configured,
        }
    }

    /// Tells a replica until when, on its own clock, no other leader is appointed.
    pub fn lease(&mut self, id: NodeId, until_us: u64) -> Consequences {
        self.step(id, Input::Lease { until_us })
    }

    pub fn is_cut(&self, one: NodeId, other: NodeId) -> bool {
        self.cut.contains(&ends(one, other))
    }

    /// A link breaks, with all that is under way on it, or comes up again.
    pub fn set_link(&mut self, one: NodeId, other: NodeId, up: bool) {
        let link = ends(one, other);
        if up {
            self.cut.remove(&link);
        } else {
            self.cut.insert(link);
            self.network.retain(|letter| ends(letter.from, letter.to) != link);
        }
    }

    /// Tells a replica that its link to a peer came up or went down.
    pub fn hint(&mut self, id: NodeId, peer: NodeId, up: bool) -> Consequences {
        self.step(id, Input::Link { peer, up })
    }

    /// Tells a replica whether its node reaches a peer's.
    pub fn reach(&mut self, id: NodeId, peer: NodeId, is_reached: bool) -> Consequences {
        self.act(id, |replica, now, _| replica.set_reached(now, peer, is_reached))
    }

    /// A node stops. What is not on its disk is forgotten; of the records that were not synced it keeps the first few.
    pub fn crash(&mut self, id: NodeId, kept: u64) {
        let node = &mut self.nodes[id as usize - 1];
        node.replica = None;
        node.waiting.clear();
        node.disk.crash(kept);
        node.values.crash();
    }

    /// A crashed node's disk is lost; it gets a new one.
    pub fn wipe(&mut self, id: NodeId) {
        self.nodes[id as usize - 1].disk = Disk::default();
        self.nodes[id as usize - 1].values = Values::new(self.options.planted);
    }

    /// A node starts with what its disk holds.
    pub fn restart(&mut self, id: NodeId) {
        self.replicas_made += 1; // Tables of different seeds must agree all the same.
        let mut replica = Replica::new(id, self.options, self.timing, self.replicas_made);
        let (now, keeps_records) = (self.now(id), self.keeps_records());
        let Node { disk, values, .. } = &mut self.nodes[id as usize - 1];
        // A checkpoint refers to values that are safe, and what is in records behind it is put again.
        for record in disk.begin_life() {
            replica.replay(now, record).expect("replicas write what can be read");
            values.follow(&mut replica, keeps_records);
        }
        values.begin_life(&replica);
        self.nodes[id as usize - 1].replica = Some(replica);
    }

    /// A node that has just started knows that its disk may have lost something.
    pub fn distrust_records(&mut self, id: NodeId) {
        if let Some(replica) = &mut self.nodes[id as usize - 1].replica {
            replica.distrust_records();
        }
    }

    // Values.

    /// A node's store has read the values for which its copies wait.
    pub fn give_values(&mut self, id: NodeId) -> Consequences {
        let mut consequences = Consequences::default();
        let wanted = self.nodes[id as usize - 1].values.take_wanted();
        for (reference, value) in wanted {
            let given = self.act(id, |replica, now, effects| {
                replica.take_value(now, reference, Some(&value), effects);
            });
            consequences = consequences.and(given);
        }
        consequences
    }

    /// What a node's store holds, as text.
    pub fn stored(&self, id: NodeId) -> String {
        self.nodes[id as usize - 1].values.shown()
    }

    // Disks.

    /// Where a node's disk has come to: what a sync that begins now makes durable.
    pub fn written(&self, id: NodeId) -> u64 {
        self.nodes[id as usize - 1].disk.written()
    }

    /// Up to where it is durable.
    pub fn durable(&self, id: NodeId) -> u64 {
        self.nodes[id as usize - 1].disk.durable()
    }

    /// Everything written is durable.
    pub fn sync_all(&mut self, id: NodeId) -> Consequences {
        self.sync(id, self.written(id))
    }

    /// A sync is done: everything up to a position is durable, and what waited for it leaves.
    pub fn sync(&mut self, id: NodeId, position: u64) -> Consequences {
        let node = &mut self.nodes[id as usize - 1];
        if node.replica.is_none() || node.disk.is_durable(position) {
            return Consequences::default();
        }
        let record = node.disk.sync(position);
        let (leave, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut node.waiting).into_iter().partition(|(after, _)| *after <= position);
        node.waiting = stay;
        let letters = leave.into_iter().map(|(_, letter)| letter).collect();
        let released = Consequences { letters, ..Consequences::default() };
        released.and(self.step(id, Input::Durable { record }))
    }

    /// Writes one more record of a node's checkpoint, and begins one if none is under way. What became of it, and the
    /// record, if there is one.
    pub fn checkpoint(&mut self, id: NodeId, chunk_bytes: usize) -> Option<(Progress, Vec<u8>)> {
        let keeps_records = self.keeps_records();
        let node = &mut self.nodes[id as usize - 1];
        let replica = node.replica.as_mut().filter(|_| keeps_records)?;
        if !node.disk.is_checkpointing() {
            replica.begin_checkpoint().then(|| node.disk.begin_checkpoint())?;
            node.values.begin_checkpoint();
        }
        let mut record = Vec::new();
        let progress = replica.checkpoint_record(chunk_bytes, &mut record);
        let counts = node.disk.checkpoint_record(progress, record.clone());
        if progress != Progress::More {
            node.values.end_checkpoint(counts);
        }
        Some((progress, record))
    }
}

const START_US: u64 = 1_000_000;

/// A link's name: its two ends in ascending order.
fn ends(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}
