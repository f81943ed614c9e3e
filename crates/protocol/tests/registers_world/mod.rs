//! A group of registers in memory: replicas, letters between them, links, crashes, and time that moves when told to.
//!
//! It decides nothing. The golden scripts drive it by hand, the random schedules by a seed. Which protocol's replicas
//! these are, each test program says at its root: `use protocol::abd as subject;`.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

#[path = "../world/disk.rs"]
mod disk;
#[path = "../letters/mod.rs"]
mod letters;

use crate::subject::{Message, Options, Replica, Status, Timing};
use disk::Disk;
use kv::Register;
pub use letters::Letter;
use protocol::contract::{Configuration, Effects, HandedOn, Input, NodeId, Now, Outcome, Trace};
use protocol::registers::Replacement;
use protocol::{Progress, Replica as _, Request, Ticket};
use std::collections::BTreeSet;

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
    /// Records written.
    pub records: usize,
}

/// A client's request, with what the node that takes it knows of the client.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub ticket: Ticket,
    pub follows: bool,
    /// On the monotonic clock of the node that is asked.
    pub deadline_us: u64,
}

/// A node's clocks: how much faster they run than the world's, in parts per thousand, and how far off they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    pub fast_by: i64,
    pub ahead_us: u64,
    pub unix_ahead_ms: i64,
}

#[derive(Default)]
struct Node {
    replica: Option<Replica>,
    clock: Clock,
    starts: u64,
    disk: Disk,
    /// Letters that wait for a position on the disk.
    waiting: Vec<(u64, Letter)>,
    /// An older copy of the disk, and how often the node had been started then.
    backup: Option<(Disk, u64)>,
    /// It was replaced; as long as it has not started since, this does not say in which start that was.
    replacement: Option<Replacement>,
}

pub struct World {
    /// The time outside, in microseconds.
    pub time_us: u64,
    /// Letters under way, in the order in which they were sent.
    pub network: Vec<Letter>,
    /// Replicas are told what cannot be: then they may hold it.
    pub peers_lie: bool,
    configuration: Configuration,
    options: Options,
    timing: Timing,
    nodes: Vec<Node>,
    cut: BTreeSet<(NodeId, NodeId)>,
    seeds: u64,
    effects: Effects,
}

impl World {
    /// So many nodes that have never been started. They are started by [`World::start`].
    pub fn new(nodes: NodeId, options: Options, timing: Timing, seed: u64) -> World {
        World {
            time_us: 1_000_000,
            network: Vec::new(),
            peers_lie: false,
            configuration: Configuration { members: (1..=nodes).collect(), ..Configuration::default() },
            options,
            timing,
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            cut: BTreeSet::new(),
            seeds: seed.wrapping_mul(1_000_003),
            effects: Effects::default(),
        }
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

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize - 1]
    }

    pub fn has_memory(&self, id: NodeId) -> bool {
        self.status(id).is_some_and(|status| status.role == "replica")
    }

    pub fn replica(&self, id: NodeId) -> Option<&Replica> {
        self.node(id).replica.as_ref()
    }

    pub fn set_clock(&mut self, id: NodeId, clock: Clock) {
        self.nodes[id as usize - 1].clock = clock;
    }

    /// The time as a node's clocks tell it.
    pub fn now(&self, id: NodeId) -> Now {
        let Clock { fast_by, ahead_us, unix_ahead_ms } = self.node(id).clock;
        let monotonic_us =
            self.time_us.saturating_add_signed(self.time_us as i64 * fast_by / 1000) + ahead_us;
        Now { monotonic_us, unix_ms: (self.time_us / 1000).saturating_add_signed(unix_ahead_ms) }
    }

    pub fn status(&self, id: NodeId) -> Option<Status> {
        Some(self.replica(id)?.status(self.now(id)))
    }

    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// What a replica holds of a key.
    pub fn register(&self, id: NodeId, key: &str) -> Option<Register<'_>> {
        Some(self.replica(id)?.table().register(key.as_bytes()))
    }

    fn step(&mut self, id: NodeId, input: Input<'_, Message<'_>>) -> Consequences {
        let now = self.now(id);
        let node = &mut self.nodes[id as usize - 1];
        let Some(replica) = &mut node.replica else { return Consequences::default() };
        let effects = &mut self.effects;
        effects.clear();
        replica.step(now, input, effects);
        if !self.peers_lie {
            replica.check_invariants(now);
        }
        let letters = node.write(id, effects);
        // Whoever asked is sent to the other node here, with what the replica has kept.
        for HandedOn { ticket, to, .. } in std::mem::take(&mut effects.handed_on) {
            effects.redirect(ticket, to);
        }
        let reply = |outcome: &Outcome| effects.replies.as_bytes()[outcome.reply.clone()].to_vec();
        Consequences {
            outcomes: effects.outcomes.iter().map(|outcome| (outcome.clone(), reply(outcome))).collect(),
            letters,
            records: effects.records.len(),
            traces: std::mem::take(&mut effects.trace),
        }
    }

    pub fn request(
        &mut self,
        id: NodeId,
        Asked { ticket, follows, deadline_us }: Asked,
        request: Request<'_>,
    ) -> Consequences {
        self.step(id, Input::Request { ticket, request, follows, seen: 0, deadline_us, fenced: false })
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

    /// When a replica wants its next tick, in the world's time.
    pub fn wakeup_us(&self, id: NodeId) -> Option<u64> {
        let now = self.now(id);
        let in_us = self.replica(id)?.wakeup_us(now).saturating_sub(now.monotonic_us);
        Some(self.time_us.saturating_add(in_us))
    }

    /// Puts letters on their way; those on a cut link are lost.
    pub fn post(&mut self, letters: Vec<Letter>) {
        let cut = &self.cut;
        let arrives = |letter: &Letter| !cut.contains(&ends(letter.from, letter.to));
        self.network.extend(letters.into_iter().filter(arrives));
    }

    pub fn advance_us(&mut self, microseconds: u64) {
        self.time_us += microseconds;
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
            self.network.retain(|letter| letter.held || ends(letter.from, letter.to) != link);
        }
    }

    /// Tells a replica that its link to a peer came up or went down.
    pub fn hint(&mut self, id: NodeId, peer: NodeId, up: bool) -> Consequences {
        self.step(id, Input::Link { peer, up })
    }

    /// A node stops. What is not on its disk is forgotten; of the records that were not synced it keeps the first few.
    pub fn crash(&mut self, id: NodeId, kept: u64) {
        let node = &mut self.nodes[id as usize - 1];
        node.replica = None;
        node.waiting.clear();
        node.disk.crash(kept);
    }

    /// A node starts with what its disk holds, and is told who makes up the group: with this its life begins.
    pub fn start(&mut self, id: NodeId) -> Consequences {
        self.restart(id);
        self.configure(id)
    }

    /// A node starts with what its disk holds. It has to be configured next.
    pub fn restart(&mut self, id: NodeId) {
        self.seeds += 1; // No two lives have the same seed.
        let (options, timing, now) = (self.options, self.timing, self.now(id));
        self.nodes[id as usize - 1].start(id, options, timing, (now, self.seeds));
    }

    /// Tells a replica who makes up the group.
    pub fn configure(&mut self, id: NodeId) -> Consequences {
        let configuration = self.configuration.clone();
        self.step(id, Input::Configure(&configuration))
    }

    /// An operator gives up what a replica has forgotten.
    pub fn give_up(&mut self, id: NodeId) -> Consequences {
        let configuration = Configuration { is_given_up: true, ..self.configuration.clone() };
        self.step(id, Input::Configure(&configuration))
    }

    // Disks.

    /// Where a node's disk has come to: what a sync that begins now makes durable.
    pub fn written(&self, id: NodeId) -> u64 {
        self.nodes[id as usize - 1].disk.written()
    }

    /// Up to where it is durable.
    pub fn durable(&self, id: NodeId) -> u64 {
        self.node(id).disk.durable()
    }

    /// True when all that was written is durable.
    pub fn is_synced(&self, id: NodeId) -> bool {
        self.nodes[id as usize - 1].disk.is_durable(self.written(id))
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
        let released: Vec<Letter> = leave.into_iter().map(|(_, letter)| letter).collect();
        let mut consequences = self.step(id, Input::Durable { record });
        consequences.letters.splice(0..0, released);
        consequences
    }

    /// Writes one more record of a node's checkpoint, and begins one if none is under way.
    pub fn checkpoint(&mut self, id: NodeId, chunk_bytes: usize) -> Option<Progress> {
        let node = &mut self.nodes[id as usize - 1];
        let replica = node.replica.as_mut()?;
        if !node.disk.is_checkpointing() {
            replica.begin_checkpoint().then(|| node.disk.begin_checkpoint())?;
        }
        let mut record = Vec::new();
        let progress = replica.checkpoint_record(chunk_bytes, &mut record);
        node.disk.checkpoint_record(progress, record);
        Some(progress)
    }

    /// A copy of a node's disk is put aside.
    pub fn back_up(&mut self, id: NodeId) {
        let node = &mut self.nodes[id as usize - 1];
        let mut disk = node.disk.clone();
        disk.crash(0);
        node.backup = Some((disk, node.starts));
    }

    /// A crashed node gets its disk back as it was when a copy was put aside, or an empty one. It is let in as one that
    /// was replaced.
    pub fn lose_disk(&mut self, id: NodeId) {
        let node = &mut self.nodes[id as usize - 1];
        let earlier = node.replacement.take().unwrap_or_default();
        let lives_before = earlier.lives_before + node.starts;
        node.replacement = Some(Replacement { lives_before, ..Replacement::default() });
        (node.disk, node.starts) = node.backup.clone().unwrap_or_default();
    }
}

impl Node {
    /// A replica that starts with what the disk holds.
    fn start(&mut self, id: NodeId, options: Options, timing: Timing, (now, seed): (Now, u64)) {
        self.starts += 1;
        let mut replica = Replica::new(id, options, timing, self.starts, seed, 7);
        for record in self.disk.begin_life() {
            replica.replay(now, record).expect("replicas write what can be read");
        }
        if let Some(replacement) = self.replacement.as_mut().filter(|_| options.keeps_records) {
            if replacement.since == 0 {
                replacement.since = self.starts;
            }
            replica.replaced(replacement);
        }
        self.replica = Some(replica);
    }

    /// Writes what a step has recorded, and keeps back the letters that have to wait for it.
    fn write(&mut self, id: NodeId, effects: &Effects) -> Vec<Letter> {
        let record = |record: &protocol::Encoded| record.parts(&effects.bytes).concat();
        self.disk.write(&effects.records.iter().map(record).collect::<Vec<_>>());
        let mut letters = Vec::new();
        for message in &effects.messages {
            let bytes = message.bytes.parts(&effects.bytes).concat();
            let letter = Letter { from: id, to: message.to, bytes, held: false };
            match self.disk.position_of(message.after_record) {
                Some(position) if !self.disk.is_durable(position) => self.waiting.push((position, letter)),
                _ => letters.push(letter),
            }
        }
        letters
    }
}

/// A link's name: its two ends in ascending order.
fn ends(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}
