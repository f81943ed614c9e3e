//! An abd group in memory: replicas, the letters between them, links, crashes, and time that moves when told to.
//!
//! It decides nothing. The golden scripts drive it by hand, the random schedules by a seed.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod show;

use protocol::abd::{Message, Options, Replica, Status, Timing};
use protocol::contract::{Configuration, Effects, Input, NodeId, Now, Outcome, Trace};
use protocol::{Replica as _, Request, Ticket};
use std::collections::BTreeSet;

/// A message under way.
#[derive(Clone, Debug)]
pub struct Letter {
    pub from: NodeId,
    pub to: NodeId,
    pub bytes: Vec<u8>,
    /// Kept back until it is released.
    pub held: bool,
}

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
}

/// A client's request, with what the node that takes it knows of the client.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub ticket: Ticket,
    pub follows: bool,
    pub deadline_us: u64,
}

/// One node: its replica while it runs, and what survives a crash.
struct Node {
    replica: Option<Replica>,
    starts: u64,
    /// How far its wall clock is ahead of the others', in milliseconds.
    ahead_ms: i64,
}

pub struct World {
    pub now: Now,
    /// Letters under way, in the order in which they were sent.
    pub network: Vec<Letter>,
    configuration: Configuration,
    options: Options,
    timing: Timing,
    nodes: Vec<Node>,
    cut: BTreeSet<(NodeId, NodeId)>,
    lives: u64,
    effects: Effects,
}

impl World {
    /// So many nodes that were started for the first time and have not been told yet who they are.
    pub fn new(nodes: NodeId, options: Options, timing: Timing) -> World {
        let members: Vec<NodeId> = (1..=nodes).collect();
        let mut world = World {
            now: Now { monotonic_us: 1_000_000, unix_ms: 1_000_000 },
            network: Vec::new(),
            configuration: Configuration { epoch: 1, leader: 0, members: members.clone(), in_sync: members },
            options,
            timing,
            nodes: (0..nodes).map(|_| Node { replica: None, starts: 0, ahead_ms: 0 }).collect(),
            cut: BTreeSet::new(),
            lives: 0,
            effects: Effects::default(),
        };
        world.members().for_each(|id| world.restart(id));
        world
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

    pub fn is_ready(&self, id: NodeId) -> bool {
        self.replica(id).is_some_and(Replica::is_ready)
    }

    pub fn replica(&self, id: NodeId) -> Option<&Replica> {
        self.nodes.get(id as usize - 1)?.replica.as_ref()
    }

    pub fn status(&self, id: NodeId) -> Option<Status> {
        Some(self.replica(id)?.status(self.now_at(id)))
    }

    fn now_at(&self, id: NodeId) -> Now {
        let unix_ms = self.now.unix_ms.saturating_add_signed(self.nodes[id as usize - 1].ahead_ms);
        Now { unix_ms, ..self.now }
    }

    /// Sets a node's wall clock ahead of the others'.
    pub fn set_ahead(&mut self, id: NodeId, ahead_ms: i64) {
        self.nodes[id as usize - 1].ahead_ms = ahead_ms;
    }

    /// Gives a replica one input. A crashed one takes nothing.
    fn step(&mut self, id: NodeId, input: Input<'_, Message<'_>>) -> Consequences {
        let now = self.now_at(id);
        let Some(replica) = &mut self.nodes[id as usize - 1].replica else {
            return Consequences::default();
        };
        self.effects.clear();
        replica.step(now, input, &mut self.effects);
        let replies = self.effects.replies.as_bytes();
        let with_reply = |outcome: Outcome| {
            let reply = replies[outcome.reply.clone()].to_vec();
            (outcome, reply)
        };
        let letter = |message: &protocol::contract::Outgoing| Letter {
            from: id,
            to: message.to,
            bytes: self.effects.bytes[message.bytes.clone()].to_vec(),
            held: false,
        };
        Consequences {
            traces: self.effects.trace.clone(),
            outcomes: self.effects.outcomes.iter().cloned().map(with_reply).collect(),
            letters: self.effects.messages.iter().map(letter).collect(),
        }
    }

    pub fn request(&mut self, id: NodeId, asked: Asked, request: Request<'_>) -> Consequences {
        let Asked { ticket, follows, deadline_us } = asked;
        self.step(id, Input::Request { ticket, request, follows, seen: 0, deadline_us })
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

    /// Tells a replica who makes up the group: with this its life begins.
    pub fn configure(&mut self, id: NodeId) -> Consequences {
        let configuration = self.configuration.clone();
        self.step(id, Input::Configure(&configuration))
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

    /// A node stops and forgets everything but how often it was started.
    pub fn crash(&mut self, id: NodeId) {
        self.nodes[id as usize - 1].replica = None;
    }

    /// A node starts with nothing in memory. It has to be configured next.
    pub fn restart(&mut self, id: NodeId) {
        self.lives += 1; // No two lives have the same seed.
        let (options, timing, seed) = (self.options, self.timing, self.lives);
        let node = &mut self.nodes[id as usize - 1];
        node.starts += 1;
        node.replica = Some(Replica::new(id, options, timing, node.starts, seed));
    }

    /// A crashed node's disk is lost: it does not know that it was ever started.
    pub fn lose_disk(&mut self, id: NodeId) {
        self.nodes[id as usize - 1].starts = 0;
    }
}

/// A link's name: its two ends in ascending order.
fn ends(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}
