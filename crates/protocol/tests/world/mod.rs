//! A group in memory: replicas, the letters between them, links, crashes, and time that moves when told to.
//!
//! It decides nothing. The golden scripts drive it by hand, the random schedules by a seed.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod show;

use kv::{Command, ReplyBuffer};
use protocol::contract::{Configuration, Effects, Input, NodeId, Now, Outcome, Trace};
use protocol::leader_follower::{Message, Options, Replica, Status, Timing};
use protocol::{Replica as _, Request, Ticket};
use std::collections::BTreeSet;

/// A message under way.
#[derive(Clone, Debug)]
pub struct Letter {
    pub from: NodeId,
    pub to: NodeId,
    pub bytes: Vec<u8>,
    /// Kept back by the script until it is released.
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
    pub seen: u64,
    pub deadline_us: u64,
}

pub struct World {
    pub now: Now,
    /// What the control group says at present. Replicas know what they were last told.
    pub configuration: Configuration,
    /// Letters under way, in the order in which they were sent.
    pub network: Vec<Letter>,
    options: Options,
    timing: Timing,
    replicas: Vec<Option<Replica>>,
    cut: BTreeSet<(NodeId, NodeId)>,
    replicas_made: u64,
    effects: Effects,
}

impl World {
    pub fn new(nodes: NodeId, options: Options, timing: Timing) -> World {
        let members: Vec<NodeId> = (1..=nodes).collect();
        let mut world = World {
            now: Now { monotonic_us: 1_000_000, unix_ms: 1_000_000 },
            configuration: Configuration { epoch: 1, leader: 1, members: members.clone(), in_sync: members },
            network: Vec::new(),
            options,
            timing,
            replicas: Vec::new(),
            cut: BTreeSet::new(),
            replicas_made: 0,
            effects: Effects::default(),
        };
        for id in 1..=nodes {
            let replica = world.empty_replica(id);
            world.replicas.push(Some(replica));
        }
        world
    }

    fn empty_replica(&mut self, id: NodeId) -> Replica {
        self.replicas_made += 1; // Tables of different seeds must agree all the same.
        Replica::new(id, self.options, self.timing, self.replicas_made)
    }

    pub fn members(&self) -> impl Iterator<Item = NodeId> + use<> {
        1..=self.replicas.len() as NodeId
    }

    pub fn alive(&self) -> Vec<NodeId> {
        self.members().filter(|id| self.is_alive(*id)).collect()
    }

    pub fn is_alive(&self, id: NodeId) -> bool {
        self.replica(id).is_some()
    }

    pub fn replica(&self, id: NodeId) -> Option<&Replica> {
        self.replicas.get(id as usize - 1)?.as_ref()
    }

    pub fn status(&self, id: NodeId) -> Option<Status> {
        Some(self.replica(id)?.status(self.now))
    }

    /// Reads what is applied at a replica, whatever its role.
    pub fn peek(&mut self, id: NodeId, command: &Command<'_>) -> Vec<u8> {
        let mut reply = ReplyBuffer::new();
        let now = self.now.unix_ms;
        if let Some(replica) = &mut self.replicas[id as usize - 1] {
            replica.peek(command, now, &mut reply);
        }
        reply.as_bytes().to_vec()
    }

    /// Gives a replica one input. A crashed one takes nothing.
    fn step(&mut self, id: NodeId, input: Input<'_, Message<'_>>) -> Consequences {
        let Some(replica) = &mut self.replicas[id as usize - 1] else {
            return Consequences::default();
        };
        self.effects.clear();
        replica.step(self.now, input, &mut self.effects);
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
        let Asked { ticket, follows, seen, deadline_us } = asked;
        self.step(id, Input::Request { ticket, request, follows, seen, deadline_us })
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
            self.network.retain(|letter| ends(letter.from, letter.to) != link);
        }
    }

    /// Tells a replica that its link to a peer came up or went down.
    pub fn hint(&mut self, id: NodeId, peer: NodeId, up: bool) -> Consequences {
        self.step(id, Input::Link { peer, up })
    }

    /// A node stops and forgets everything.
    pub fn crash(&mut self, id: NodeId) {
        self.replicas[id as usize - 1] = None;
    }

    /// A node starts with nothing.
    pub fn restart(&mut self, id: NodeId) {
        let replica = self.empty_replica(id);
        self.replicas[id as usize - 1] = Some(replica);
    }
}

/// A link's name: its two ends in ascending order.
fn ends(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}
