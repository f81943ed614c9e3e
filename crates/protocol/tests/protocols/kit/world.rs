//! A group in memory: replicas, their disks and clocks, the letters between them, links, crashes, and time that advances
//! on request. It decides nothing: golden scripts drive it by hand, random schedules by a seed.

use super::disk::Disk;
use super::{Beside, Letter, Message, Protocol, Start};
use kv::Table;
use protocol::contract::{
    Configuration, ControlRequest, Effects, Input, NodeId, Notice, Now, Outcome, Replica as _, Submission,
    Trace,
};
use protocol::vouch::Vouch;
use protocol::{Progress, Request, Ticket};
use std::collections::BTreeSet;

/// The consequences of one input.
#[derive(Debug, Default)]
pub(crate) struct Consequences {
    pub(crate) traces: Vec<Trace>,
    /// Each with its reply.
    pub(crate) outcomes: Vec<(Outcome, Vec<u8>)>,
    pub(crate) letters: Vec<Letter>,
    /// What the replica records with this input, in order.
    pub(crate) records: Vec<Vec<u8>>,
    /// Its requests to the control group, each with the version of the map that it knew.
    pub(crate) control_requests: Vec<(u64, ControlRequest)>,
    pub(crate) notices: Vec<Notice>,
}

impl Consequences {
    pub(crate) fn and(mut self, mut later: Consequences) -> Consequences {
        self.traces.append(&mut later.traces);
        self.outcomes.append(&mut later.outcomes);
        self.letters.append(&mut later.letters);
        self.records.append(&mut later.records);
        self.control_requests.append(&mut later.control_requests);
        self.notices.append(&mut later.notices);
        self
    }
}

/// A client's request without its content, with what the receiving node knows of the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    pub(crate) follows: bool,
    pub(crate) seen: u64,
    /// On the monotonic clock of the receiving node.
    pub(crate) deadline_us: u64,
}

/// A node's clocks: how much faster they run than the world's time, in parts per million, and how far ahead they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) drift_ppm: i64,
    pub(crate) ahead_us: u64,
    pub(crate) unix_ahead_ms: i64,
}

struct Node<P: Protocol> {
    replica: Option<P::Replica>,
    beside: P::Beside,
    disk: Disk,
    clock: Clock,
    /// How often it was started with this disk.
    starts: u64,
    /// Letters that wait until the disk is durable up to a position.
    waiting: Vec<(u64, Letter)>,
    /// An older copy of the disk, and how often the node had been started then.
    backup: Option<(Disk, u64)>,
    /// The newest configuration that it was sent, and the version of the map that had it.
    configured: Option<Configuration>,
    version_sent: u64,
}

pub(crate) struct World<P: Protocol> {
    /// The time of the world, in microseconds.
    pub(crate) time_us: u64,
    /// Letters under way, in the order in which they were sent.
    pub(crate) network: Vec<Letter>,
    /// The control group's current configuration. Replicas know the last one that they were sent.
    pub(crate) configuration: Configuration,
    /// Grows with every change of the configuration.
    pub(crate) version: u64,
    /// Whether each configured replica gets a lease that never ends.
    pub(crate) leases_forever: bool,
    /// Whether replicas receive impossible messages: then invariants are not checked.
    pub(crate) peers_lie: bool,
    options: P::Options,
    timing: P::Timing,
    nodes: Vec<Node<P>>,
    cut: BTreeSet<(NodeId, NodeId)>,
    seeds: u64,
    effects: Effects,
}

impl<P: Protocol> World<P> {
    /// Creates a world of nodes that have never been started.
    pub(crate) fn new(nodes: NodeId, options: P::Options, timing: P::Timing) -> World<P> {
        let members: Vec<NodeId> = (1..=nodes).collect();
        let in_sync = members.clone();
        let configuration =
            Configuration { epoch: 1, leader: P::FIRST_LEADER, members, in_sync, ..Configuration::default() };
        let mut world = World {
            time_us: 1_000_000,
            network: Vec::new(),
            configuration,
            version: 1,
            leases_forever: false,
            peers_lie: false,
            options,
            timing,
            nodes: Vec::new(),
            cut: BTreeSet::new(),
            seeds: 0,
            effects: Effects::default(),
        };
        for _ in 1..=nodes {
            world.add_node(Some(world.configuration.clone()));
        }
        world
    }

    /// Adds nodes that are in no group yet.
    pub(crate) fn with_spares(mut self, spares: NodeId) -> World<P> {
        (0..spares).for_each(|_| self.add_node(None));
        self
    }

    /// Changes the seed of the replicas' random choices.
    pub(crate) fn with_seed(mut self, seed: u64) -> World<P> {
        self.seeds = seed.wrapping_mul(1_000_003);
        self
    }

    fn add_node(&mut self, configured: Option<Configuration>) {
        self.nodes.push(Node {
            replica: None,
            beside: P::Beside::new(&self.options),
            disk: Disk::default(),
            clock: P::clock(self.nodes.len() as NodeId + 1),
            starts: 0,
            waiting: Vec::new(),
            backup: None,
            configured,
            version_sent: 0,
        });
    }

    // Nodes.

    /// All nodes, including spare ones.
    pub(crate) fn members(&self) -> impl Iterator<Item = NodeId> + use<P> {
        1..=self.nodes.len() as NodeId
    }

    pub(crate) fn alive(&self) -> Vec<NodeId> {
        self.members().filter(|id| self.is_alive(*id)).collect()
    }

    pub(crate) fn is_alive(&self, id: NodeId) -> bool {
        self.node(id).replica.is_some()
    }

    /// Whether a node was never sent a configuration.
    pub(crate) fn is_unused(&self, id: NodeId) -> bool {
        self.node(id).configured.is_none()
    }

    fn node(&self, id: NodeId) -> &Node<P> {
        &self.nodes[id as usize - 1]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<P> {
        &mut self.nodes[id as usize - 1]
    }

    pub(crate) fn replica(&self, id: NodeId) -> Option<&P::Replica> {
        self.node(id).replica.as_ref()
    }

    pub(crate) fn replica_mut(&mut self, id: NodeId) -> Option<&mut P::Replica> {
        self.node_mut(id).replica.as_mut()
    }

    pub(crate) fn beside(&self, id: NodeId) -> &P::Beside {
        &self.node(id).beside
    }

    pub(crate) fn beside_mut(&mut self, id: NodeId) -> &mut P::Beside {
        &mut self.node_mut(id).beside
    }

    pub(crate) fn table(&self, id: NodeId) -> Option<&Table> {
        Some(self.replica(id)?.table())
    }

    pub(crate) fn status(&self, id: NodeId) -> Option<P::Status> {
        Some(P::status(self.replica(id)?, self.now(id)))
    }

    /// The version of the map that a node was last sent.
    pub(crate) fn version_sent(&self, id: NodeId) -> u64 {
        self.node(id).version_sent
    }

    // Time.

    pub(crate) fn clock(&self, id: NodeId) -> Clock {
        self.node(id).clock
    }

    pub(crate) fn clock_mut(&mut self, id: NodeId) -> &mut Clock {
        &mut self.node_mut(id).clock
    }

    /// What a node's clocks show.
    pub(crate) fn now(&self, id: NodeId) -> Now {
        let Clock { drift_ppm, ahead_us, unix_ahead_ms } = self.node(id).clock;
        let gained_us = self.time_us as i64 * drift_ppm / 1_000_000;
        let monotonic_us = self.time_us.saturating_add_signed(gained_us) + ahead_us;
        Now { monotonic_us, unix_ms: (self.time_us / 1000).saturating_add_signed(unix_ahead_ms) }
    }

    /// When a replica wants its next tick, in the world's time: early rather than late, whatever its clock does.
    pub(crate) fn wakeup_us(&self, id: NodeId) -> Option<u64> {
        let wakeup_us = self.replica(id)?.wakeup_us(self.now(id));
        let Clock { drift_ppm, ahead_us, .. } = self.clock(id);
        let own_us = i128::from(wakeup_us.saturating_sub(ahead_us));
        let time_us = own_us - own_us * i128::from(drift_ppm) / 1_000_000;
        Some(u64::try_from(time_us).unwrap_or(u64::MAX).saturating_add(1))
    }

    // Inputs.

    /// Gives a replica one input. A crashed one takes nothing.
    fn step(&mut self, id: NodeId, input: Input<'_, Message<'_, P>>) -> Consequences {
        self.act(id, |replica, now, effects| replica.step(now, input, effects))
    }

    /// Runs an input of a replica, and returns its consequences.
    pub(crate) fn act(
        &mut self,
        id: NodeId,
        input: impl FnOnce(&mut P::Replica, Now, &mut Effects),
    ) -> Consequences {
        let now = self.now(id);
        let node = &mut self.nodes[id as usize - 1];
        let Some(replica) = &mut node.replica else { return Consequences::default() };
        let effects = &mut self.effects;
        effects.clear();
        input(replica, now, effects);
        if !self.peers_lie {
            replica.check_invariants(now);
        }
        node.beside.follow(replica);
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
            let reply = node.beside.complete(&replies[outcome.reply.clone()]);
            (outcome, reply)
        };
        // No node passes requests on to another replica here: a request that is handed on is shown like one that is
        // redirected at once.
        let handed_on = effects.handed_on.iter().map(|it| {
            let result = protocol::Result::Redirect { to: it.to };
            (Outcome { ticket: it.ticket, result, reply: 0..0 }, Vec::new())
        });
        let outcomes = effects.outcomes.iter().cloned().map(with_reply).chain(handed_on).collect();
        node.beside.tidy(replica);
        Consequences {
            traces: effects.trace.clone(),
            outcomes,
            letters,
            records,
            control_requests: effects
                .control_requests
                .iter()
                .cloned()
                .map(|request| (node.version_sent, request))
                .collect(),
            notices: effects.notices.clone(),
        }
    }

    pub(crate) fn request(&mut self, id: NodeId, asked: Asked, request: Request<'_>) -> Consequences {
        let Asked { ticket, follows, seen, deadline_us } = asked;
        let submission = Submission { ticket, request: &request, follows, seen, deadline_us, fenced: false };
        self.step(id, Input::Request(&submission))
    }

    pub(crate) fn deliver(&mut self, letter: &Letter) -> Consequences {
        self.step(letter.to, Input::Message { from: letter.from, message: letter.message::<P>() })
    }

    pub(crate) fn flush(&mut self, id: NodeId) -> Consequences {
        self.step(id, Input::Flush)
    }

    pub(crate) fn tick(&mut self, id: NodeId) -> Consequences {
        self.step(id, Input::Tick)
    }

    /// Notifies a replica that its link to a peer came up or went down.
    pub(crate) fn hint(&mut self, id: NodeId, peer: NodeId, up: bool) -> Consequences {
        self.step(id, Input::Link { peer, up })
    }

    /// Notifies a replica whether its node reaches a peer's node.
    pub(crate) fn reach(&mut self, id: NodeId, peer: NodeId, is_reached: bool) -> Consequences {
        self.act(id, |replica, now, _| replica.set_reached(now, peer, is_reached))
    }

    /// Tells a replica that a peer's node vouches for itself.
    pub(crate) fn vouch(&mut self, id: NodeId, peer: NodeId) -> Consequences {
        self.act(id, |replica, now, _| replica.vouched(peer, Vouch::new(now, 1)))
    }

    /// Sends a replica the control group's current configuration.
    pub(crate) fn configure(&mut self, id: NodeId) -> Consequences {
        let configuration = self.configuration.clone();
        self.configure_as(id, &configuration)
    }

    /// Sends a replica a configuration. Its node remembers the newest for its next start.
    pub(crate) fn configure_as(&mut self, id: NodeId, configuration: &Configuration) -> Consequences {
        let version = self.version;
        let node = self.node_mut(id);
        node.version_sent = version;
        if node.configured.as_ref().is_none_or(|configured| configured.epoch < configuration.epoch) {
            node.configured = Some(configuration.clone());
        }
        let configured = self.step(id, Input::Configure(configuration));
        match self.leases_forever {
            true => configured.and(self.lease(id, u64::MAX)),
            false => configured,
        }
    }

    /// Sends a replica a lease: until then, on its own clock, no other leader is appointed.
    pub(crate) fn lease(&mut self, id: NodeId, until_us: u64) -> Consequences {
        self.step(id, Input::Lease { until_us })
    }

    // The network.

    /// Puts letters on their way; those on a cut link are lost.
    pub(crate) fn post(&mut self, letters: Vec<Letter>) {
        let cut = &self.cut;
        self.network.extend(letters.into_iter().filter(|letter| !cut.contains(&letter.ends())));
    }

    pub(crate) fn is_cut(&self, one: NodeId, other: NodeId) -> bool {
        self.cut.contains(&(one.min(other), one.max(other)))
    }

    /// Breaks a link, with all that is under way on it and not kept back, or repairs it.
    pub(crate) fn set_link(&mut self, one: NodeId, other: NodeId, up: bool) {
        let link = (one.min(other), one.max(other));
        if up {
            self.cut.remove(&link);
        } else {
            self.cut.insert(link);
            self.network.retain(|letter| letter.held || letter.ends() != link);
        }
    }

    // Incarnations.

    /// Stops a node. What is not on its disk is forgotten; of the records that were not synced it keeps the first `kept`.
    pub(crate) fn crash(&mut self, id: NodeId, kept: u64) {
        let node = self.node_mut(id);
        node.replica = None;
        node.waiting.clear();
        node.disk.crash(kept);
        node.beside.crash();
    }

    /// Starts a node with what its disk holds. It has to be configured next.
    pub(crate) fn restart(&mut self, id: NodeId) {
        self.seeds += 1; // Tables of different seeds must agree all the same.
        let (options, timing, seed, now) = (self.options, self.timing, self.seeds, self.now(id));
        let node = self.node_mut(id);
        node.starts += 1;
        let mut replica = P::make(Start { id, options, timing, starts: node.starts, seed }, &node.beside);
        for record in node.disk.begin_incarnation() {
            replica.replay(now, record).expect("replicas write what can be read");
            node.beside.follow(&mut replica);
        }
        node.beside.begin_incarnation(&mut replica, node.starts);
        node.replica = Some(replica);
    }

    /// Starts a node with what its disk holds, and sends it again the newest configuration that it was sent.
    pub(crate) fn start(&mut self, id: NodeId) -> Consequences {
        self.restart(id);
        let configured = self.node(id).configured.clone();
        configured.map_or_else(Consequences::default, |configured| self.configure_as(id, &configured))
    }

    // Disks.

    pub(crate) fn disk(&self, id: NodeId) -> &Disk {
        &self.node(id).disk
    }

    /// The end of what a node's disk has written: a sync that begins now makes everything up to it durable.
    pub(crate) fn written(&self, id: NodeId) -> u64 {
        self.disk(id).written()
    }

    /// The position up to which it is durable.
    pub(crate) fn durable(&self, id: NodeId) -> u64 {
        self.disk(id).durable()
    }

    pub(crate) fn is_synced(&self, id: NodeId) -> bool {
        self.written(id) == self.durable(id)
    }

    /// Makes everything written durable.
    pub(crate) fn sync_all(&mut self, id: NodeId) -> Consequences {
        self.sync(id, self.written(id))
    }

    /// Ends a sync: everything up to a position is durable, and what waited for it leaves.
    pub(crate) fn sync(&mut self, id: NodeId, position: u64) -> Consequences {
        let node = self.node_mut(id);
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

    /// Writes one more record of a node's checkpoint, and begins a checkpoint if none is under way. Returns the progress
    /// and the record; `None` when there can be no checkpoint now.
    pub(crate) fn checkpoint(&mut self, id: NodeId, chunk_bytes: usize) -> Option<(Progress, Vec<u8>)> {
        let node = self.node_mut(id);
        let replica = node.replica.as_mut()?;
        if !node.disk.is_checkpointing() {
            replica.begin_checkpoint().then(|| node.disk.begin_checkpoint())?;
            node.beside.begin_checkpoint();
        }
        let mut record = Vec::new();
        let progress = replica.checkpoint_record(chunk_bytes, &mut record);
        let counts = node.disk.checkpoint_record(progress, record.clone());
        if progress != Progress::More {
            node.beside.end_checkpoint(counts);
        }
        Some((progress, record))
    }

    /// Puts aside a copy of what a node's disk holds durably.
    pub(crate) fn back_up(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        let mut disk = node.disk.clone();
        disk.crash(0);
        node.backup = Some((disk, node.starts));
    }

    /// The copy that was put aside.
    pub(crate) fn backup(&self, id: NodeId) -> Option<&Disk> {
        self.node(id).backup.as_ref().map(|(disk, _)| disk)
    }

    /// Restores a crashed node's disk from the copy put aside, or empties it if there is none.
    pub(crate) fn lose_disk(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        node.beside.lose_disk(node.starts);
        (node.disk, node.starts) = node.backup.clone().unwrap_or_default();
    }

    /// Empties a crashed node's disk, whatever was put aside.
    pub(crate) fn wipe(&mut self, id: NodeId) {
        self.node_mut(id).backup = None;
        self.lose_disk(id);
    }
}
