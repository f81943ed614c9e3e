//! The control group: it holds the cluster map, and sees to it that every group has a leader that is alive.
//!
//! One [`Control`] per node. It takes inputs and leaves [`Effects`], as replicas do, and knows no clock and no socket.
//! On the first three nodes, or the first five of a larger cluster, it holds a replica of group 0 (`keeper`), whose table
//! is the list of maps: the map with version v is the value under `map:v`, written only if it is not there. Whoever leads
//! that group is the control leader (`leading`).
//!
//! ```text
//!  node 4                 control leader 1                          control nodes 2, 3
//!    | Renew 7, map 12 ------>|  (and to 2 and 3, which listen)            |
//!    |<-- Renewed 7, map 12 --|                                            |
//!    |  lease until the sending of Renew 7 + 300 ms                        |
//!    x dies                   |                                            |
//!                             | 330 ms later: SET map:13 .. NX ----------->|
//!                             |<---------------------------- decided ------|
//!    node 5 <-- Map 13 -------|  its groups have other leaders             |
//! ```
//!
//! # Promise
//!
//! * All nodes that have a map of some version have the same one. A node acts on a map only when it was agreed on.
//! * No two nodes hold, at the same moment, a lease under which they lead the same leader-follower group.
//! * A leader that dies is replaced by a member that lives, as soon as the dead one's lease is over; under `acks = all`
//!   only by one of the in-sync set, and so by one that holds everything that was acknowledged. A dead node that comes
//!   back follows: leadership is not given back by itself. In consensus groups leaders are the protocol's own matter.
//! * A node that comes back with less than it had is not let in as what it was.
//!
//! # Why no two nodes lead
//!
//! A node leads a group when the newest map that it has says so, and its lease lasts. The lease that `Renewed` brings
//! lasts from when the node *sent* the `Renew`, by its own clock, for at most `node_lease_ms` and for no longer than the
//! sender of `Renewed` said. It counts only if the node's map is at least as new as the sender's was.
//!
//! *The same control leader.* It grants leases while its replica is leased, that is, while nobody else can have got a
//! map agreed on; so the map that it names is the newest. From when it proposes a map by which a node leads less until
//! it knows what came of that, it grants that node nothing. And it proposes to take a group from its leader only when
//! it has granted that leader nothing for `node_lease_ms` and a margin, on its own clock: the lease began before it was
//! granted, so it is over. When the old leader is heard again, it gets a lease only with a map that does not let it
//! lead.
//!
//! *An older control leader A, and a newer one, B.* A granted only while its log lease lasted, which began at the
//! latest when it proposed the newest entry that it committed, at P; and what it granted ends no later than `grace_ms`
//! after that lease: `Renewed` says how long, and the node counts from an earlier moment. So by the clocks of A and of
//! the node everything that A ever granted is over at P + `lease_ms` + `grace_ms`. B appends nothing before R +
//! `lease_ms` + `lease_margin_ms`, where R is when the newest entry of the log that it took over came to it, and so
//! behind P: see `protocol::consensus`. B counts `grace_ms` and a margin from the first moment when it could append, and
//! only then takes any group from anybody. A itself, or whatever was between them in another ballot, is an older leader
//! just the same. The lease of the node on which the control leader runs follows the same rules: it renews as the others
//! do, without messages. A control group of one replica has no log lease, and grants the full `node_lease_ms`; when it
//! starts again it waits for all of that.
//!
//! *A map that A proposed and that is decided late.* B has in its log what will ever be decided of A's, and answers
//! nothing before that is applied. *A node that starts again* has no lease, and the process that had one is gone:
//! nobody waits for it when another start of the same storage is registered.
//!
//! *A node that is heard and does not hear.* Its renewals say which of them was answered last. One that was told of a
//! lease and does not say so for as long as a lease lasts is as good as dead. From then on it is answered with leases of
//! no length, so that its last real one runs out and another can lead, until it confirms one: then it hears again.
//!
//! Only durations are measured, each on one clock. Rates of clocks may differ by the margin, a tenth: 4 % each.
//!
//! # How long it takes
//!
//! Kill the node that is both control leader and leader of a group, at K. B's log was changed last at R <= K, so B may
//! append from R + 220 ms on, if it is elected by then: that takes two rounds of heartbeats until all miss the leader and
//! two more until all know it, 320 ms. At the later of these + 110 ms every lease that A granted is over, and A's node has
//! been silent for 330 ms, since every node renews at all control nodes. So the new map is proposed by K + 430 ms, and is
//! known to the new leader a round of the log and a message later. If only the group's leader dies, it is K + 330 ms and
//! what is left of a look at all groups, every 19 ms. The control group's log lease is shorter than that of other groups
//! for this, and it renews it by an empty entry every 100 ms. Without `grace_ms`, if leases were granted for their full
//! 300 ms to the end of the log lease, B would have to wait until K + 650 ms.
//!
//! # Caveats
//!
//! * A control node that finds its records votes in the control group before its start is accepted: else no cluster would
//!   come back from a loss of power. That its storage was put back to an earlier time only those can tell who heard it
//!   since. What they know is compared when it asks to be let in (`positions`), which every node does before it takes part
//!   in any other group, and then the control leader refuses it, or it refuses itself; what it voted for until then is the
//!   matter of `protocol::consensus`. Its votes are not ignored by those who know better: whoever restores all machines
//!   from backups of different times would have a control group without a leader, and nobody to tell why.
//! * What a node made durable after its last renewal that was heard, within 75 ms before its death, nobody can miss when an
//!   older disk comes back that lacks no more than that. Nor what was written and never synced: with `durability = "os"` a
//!   node whose disk is put back may have acknowledged more than any position told.
//! * A keyspace that is dropped is still served by its leader until the map reaches it, or its lease is over.
//! * The clock that comes with an input must have been read after the input had arrived.

mod asking;
mod beginning;
mod change;
mod effects;
mod keeper;
mod leading;
mod lease;
mod map;
mod message;
mod moves;
mod positions;
mod quarantine;
mod record;

use asking::Asking;
use beginning::Beginning;
pub use change::{Change, GROUPS_MAX, NODES_MAX, SHARDS_MAX, Step};
pub use effects::{Answer, ChangeError, Effects, Event};
use keeper::Keeper;
use kv::codec::Malformed;
use leading::{Leading, Turn};
use lease::NodeLease;
pub use map::{
    CONTROL_GROUP, ClusterMap, Group, GroupId, KeyspaceEntry, Kind, MAP_BYTES_MAX, Node, NodeState, Rejoin,
    Slots, Start, control_members,
};
pub use message::Message;
use positions::Positions;
pub(crate) use positions::is_positions;
use protocol::consensus;
use protocol::contract::{Input, Replica as _};
use protocol::planted::Planted;
use protocol::{NodeId, Now, Progress};
pub use quarantine::{FatalRecord, Quarantine, SKIPPED_MAX, Step as QuarantineStep};
use record::Record;
use std::rc::Rc;

/// How long things take, in milliseconds. The same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A node renews its lease this often.
    pub renew_ms: u64,
    /// A node's lease lasts at most so long from when it asked for it.
    pub node_lease_ms: u64,
    /// A node's lease outlasts the log lease of the control leader that granted it by at most so much.
    pub grace_ms: u64,
    /// A change that is not answered in this time may or may not be made.
    pub answer_ms: u64,
    /// The control group's own.
    pub consensus: consensus::Timing,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            renew_ms: 75,
            node_lease_ms: 300,
            grace_ms: 100,
            answer_ms: 5000,
            consensus: consensus::Timing {
                lease_ms: 200,
                lease_margin_ms: 20,
                ..consensus::Timing::default()
            },
        }
    }
}

impl Timing {
    /// The same with all that is waited for `times` as long.
    pub fn slower(self, times: u64) -> Timing {
        Timing {
            renew_ms: self.renew_ms * times,
            node_lease_ms: self.node_lease_ms * times,
            grace_ms: self.grace_ms * times,
            answer_ms: self.answer_ms,
            consensus: self.consensus.slower(times),
        }
    }

    /// So long on one clock is over when so much has passed on another one: a tenth more, in microseconds.
    fn with_margin_us(&self, duration_ms: u64) -> u64 {
        duration_ms * 1100
    }
}

/// What a component is told when it is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node.
    pub id: NodeId,
    /// How it started.
    pub start: Start,
    /// Seeds the hash of the control group's table.
    pub seed: u64,
    /// What all nodes of a new cluster begin with, see [`ClusterMap::initial`].
    pub initial: ClusterMap,
    /// Times.
    pub timing: Timing,
    /// Whether the control group's members follow the cluster's nodes. That needs replicas that can change members.
    pub moves_control_group: bool,
    /// Most groups of which a node may hold a replica, when a keyspace is created.
    pub groups_max: usize,
    /// A fault to test the tests with.
    pub planted: Planted,
    /// Who is told which record ends the process.
    pub watch: Option<&'static dyn kv::Watch>,
}

/// One node's control component.
#[derive(Debug)]
pub struct Control {
    options: Options,
    /// The newest map that was agreed on; before there is one, the initial map with version 0.
    map: Rc<ClusterMap>,
    keeper: Option<Keeper>,
    beginning: Beginning,
    leading: Leading,
    asking: Asking,
    positions: Positions,
    lease: NodeLease,
    /// Who granted the last lease. 0: nobody has.
    leader_heard: NodeId,
    is_admitted: bool,
    refused: Option<String>,
    /// That is because the cluster has no such node. It has forgotten nothing, so it is let in as soon as there is one.
    is_unknown: bool,
    /// The epoch of the control group that its replica was told last.
    configured_epoch: u64,
    has_started: bool,
}

impl Control {
    /// A component that does nothing before [`Control::start`].
    pub fn new(options: Options) -> Control {
        let map = Rc::new(ClusterMap { version: 0, ..options.initial.clone() });
        Control {
            positions: Positions::new(options.id),
            options,
            map,
            keeper: None,
            beginning: Beginning::default(),
            leading: Leading::default(),
            asking: Asking::default(),
            lease: NodeLease::default(),
            leader_heard: 0,
            is_admitted: false,
            refused: None,
            is_unknown: false,
            configured_epoch: 0,
            has_started: false,
        }
    }

    // The beginning.

    /// Takes one record that an earlier life made, or that a checkpoint holds, in order.
    ///
    /// # Errors
    /// [`Malformed`] when it is no record: the node must not start with it.
    pub fn replay(&mut self, now: Now, record: &[u8]) -> Result<(), Malformed> {
        match Record::decode(record)? {
            Record::Begun(identities) => self.beginning.restore(identities),
            Record::Replica(record) => {
                let new = || Keeper::new(&self.options);
                self.keeper.get_or_insert_with(new).replica.replay(now, record)?;
            }
        }
        Ok(())
    }

    /// Takes the newest bytes of [`Effects::map_record`] that an earlier life left.
    ///
    /// # Errors
    /// A sentence when they are no map.
    pub fn restore_map(&mut self, bytes: &[u8]) -> Result<(), String> {
        let map = ClusterMap::decode(bytes)?;
        if map.version > self.map.version {
            self.map = Rc::new(map);
        }
        Ok(())
    }

    /// Takes the newest bytes of [`Effects::positions_record`] that an earlier life left.
    ///
    /// # Errors
    /// [`Malformed`] when they are something else.
    pub fn restore_positions(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.positions.restore(bytes)
    }

    /// Begins, with a log that ends at this position. The newest map that is known is told, if one was ever agreed on, so
    /// that the node knows its groups.
    pub fn start(&mut self, now: Now, log_end: u64, out: &mut Effects) {
        self.has_started = true;
        let (found, is_first) = self.positions.open(log_end);
        self.options.start.found = found;
        if is_first {
            self.keep_positions(now, out);
        }
        self.lease.renew_at_us = now.monotonic_us;
        if self.map.version > 0 {
            out.map = Some(Rc::clone(&self.map));
        }
        self.take_part(now, out);
    }

    // Inputs.

    /// Takes a message from another node's component.
    ///
    /// # Errors
    /// [`Malformed`] when no component can have sent it.
    pub fn message(
        &mut self,
        now: Now,
        from: NodeId,
        bytes: &[u8],
        out: &mut Effects,
    ) -> Result<(), Malformed> {
        let Options { id, start, .. } = self.options;
        match Message::decode(bytes)? {
            Message::Replica { bytes } => {
                if let Some(keeper) = self.running() {
                    keeper.message(now, from, bytes, out)?;
                }
            }
            Message::Renew { start, sequence, map_version: map, answered, durable } => {
                self.positions.hear(&self.map, from, start, durable);
                let known = self.map.nodes.get(&from);
                let is_in = known.is_some_and(|known| known.start == start);
                if !is_in && self.is_control_node() && self.control_nodes().contains(&from) {
                    self.tell_positions(&[from], out);
                }
                // A storage that is empty knows what its configuration names. Who leads may have been added since, and then
                // neither can reach the other before this one has heard of it. A map that was agreed on may come from anybody.
                // Whoever was removed is told so in the same way.
                if !is_in && map < self.map.version && self.is_control_node() {
                    out.send([from], &Message::Map { bytes: &self.map.encode() });
                }
                self.leading.hear(now, &self.options.timing, from, start, (sequence, map, answered));
            }
            Message::Heard { bytes } => self.positions.told(&self.map, from, bytes)?,
            Message::Renewed { sequence, map_version, lasts_us } => {
                self.leader_heard = from;
                self.renewed(sequence, map_version, lasts_us, out);
            }
            Message::Map { bytes } => {
                let map = ClusterMap::decode(bytes).map_err(|_| Malformed("a map that cannot be"))?;
                self.adopt(now, map, out);
            }
            Message::Ask { run, id: number, change } => {
                self.leading.ask(id, from, (run, number), change, out);
            }
            Message::Answered { run, id: number, result } if run == start.run => {
                self.asking.answered(number, result, out);
            }
            Message::Refused { start: refused, map_version, why } if refused == start => {
                // It may have been said before a later map let this node in, and come after that map.
                if map_version >= self.map.version || !self.is_registered() {
                    self.refuse(why, out);
                }
            }
            Message::Answered { .. } | Message::Refused { .. } => {} // For an earlier process.
            Message::Hello { identity, has_begun, knows, is_question } => {
                let said = (identity, has_begun, knows);
                self.beginning.hello(from, said, start.identity, is_question, out);
            }
        }
        Ok(())
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now, out: &mut Effects) {
        if let Some(keeper) = self.running() {
            keeper.step(now, Input::Tick, out);
        }
    }

    /// The component's records up to this number are durable.
    pub fn durable(&mut self, now: Now, record: u64, out: &mut Effects) {
        if let Some(keeper) = self.running() {
            keeper.durable(now, record, out);
        }
    }

    /// The node's log is durable up to this position. To be told only when the record that says that this start was let in,
    /// see [`Effects::is_admitted`], is durable, too.
    pub fn log_is_durable(&mut self, position: u64) {
        self.positions.note_durable(position);
    }

    /// The link to another node came up or went down.
    pub fn link(&mut self, now: Now, peer: NodeId, up: bool, out: &mut Effects) {
        if !up {
            self.positions.hurry();
        }
        if let Some(keeper) = self.running() {
            keeper.step(now, Input::Link { peer, up }, out);
        }
    }

    /// Asks the control group for a change, a wish of a group's leader or a command of an operator. The answer comes with
    /// the number of the request.
    pub fn change(&mut self, now: Now, request: u64, change: &Change, out: &mut Effects) {
        self.asking.ask(now, &self.options.timing, request, change, out);
    }

    /// The turn ends. Wanted after inputs, and when [`Control::wakeup_us`] has come; it costs too much for every turn of a
    /// busy node.
    pub fn flush(&mut self, now: Now, out: &mut Effects) {
        if !self.has_started {
            return;
        }
        self.renew(now, out);
        self.ask(now, out);
        if self.refused.is_some() {
            return;
        }
        self.begin(now, out);
        self.keep(now, out);
        if self.lead(now, out) {
            self.keep(now, out);
        }
        self.hear_myself(out);
        if self.is_control_node() && self.positions.is_due(now.monotonic_us) {
            self.keep_positions(now, out);
            let to: Vec<NodeId> =
                self.control_nodes().iter().copied().filter(|id| *id != self.options.id).collect();
            self.tell_positions(&to, out);
        }
    }

    /// When the next [`Control::tick`] and [`Control::flush`] are wanted.
    pub fn wakeup_us(&self, now: Now) -> u64 {
        let asking_us = self.lease.renew_at_us.min(self.asking.wakeup_us());
        if self.refused.is_some() {
            return asking_us; // Nothing else is done: see `flush`.
        }
        let keeper = self.keeper.as_ref().filter(|_| self.beginning.has_begun());
        let keeper_us = keeper.map_or(u64::MAX, |keeper| keeper.replica.wakeup_us(now));
        let beginning_us = if self.is_control_node() { self.beginning.wakeup_us() } else { u64::MAX };
        keeper_us.min(beginning_us).min(self.leading.wakeup_us()).min(asking_us)
    }

    // Checkpoints, as those of a replica.

    /// See [`protocol::Replica::begin_checkpoint`].
    pub fn begin_checkpoint(&mut self) -> bool {
        self.beginning.has_begun() && self.running().is_some_and(|keeper| keeper.begin_checkpoint())
    }

    /// See [`protocol::Replica::checkpoint_record`].
    pub fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        let Some(identities) = self.beginning.identities().cloned() else { return Progress::Abandoned };
        match self.running() {
            Some(keeper) => keeper.checkpoint_record(bytes_max, &identities, record),
            None => Progress::Abandoned,
        }
    }

    /// See [`protocol::Replica::abandon_checkpoint`].
    pub fn abandon_checkpoint(&mut self) {
        if let Some(keeper) = self.running() {
            keeper.replica.abandon_checkpoint();
        }
    }

    // What is known.

    /// The newest map that was agreed on. Before there is one, the initial map with version 0.
    pub fn map(&self) -> &Rc<ClusterMap> {
        &self.map
    }

    /// Whether this node may take part in its groups.
    pub fn is_admitted(&self) -> bool {
        self.is_admitted && self.refused.is_none()
    }

    /// Why this node may not take part, if it was told so.
    pub fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// How the control group's replica stands, on a control node.
    pub fn status(&self, now: Now) -> Option<consensus::Status> {
        self.keeper.as_ref().map(|keeper| keeper.status(now))
    }

    /// Who leads the control group, as this node was last told by a lease that has not run out. 0: nobody is known to.
    pub fn leader(&self, now: Now) -> NodeId {
        if self.lease.until_us > now.monotonic_us { self.leader_heard } else { 0 }
    }

    /// Where the log of this node ended when it was found: see [`Start::found`].
    pub fn found(&self) -> u64 {
        self.options.start.found
    }

    /// Up to where a node's log was durable, as far as this one knows, if it is a control node.
    pub fn known_durable(&self, node: NodeId) -> Option<u64> {
        self.is_control_node().then(|| self.positions.known(&self.map, node))
    }

    /// Until when nobody else leads what this node leads by its newest map.
    pub fn lease_until_us(&self) -> u64 {
        self.lease.until_us
    }

    // The turn's end, step by step.

    fn running(&mut self) -> Option<&mut Keeper> {
        let runs = self.beginning.has_begun() && self.refused.is_none();
        self.keeper.as_mut().filter(|_| runs)
    }

    fn control_nodes(&self) -> &[NodeId] {
        self.map.groups.get(&CONTROL_GROUP).map(|group| group.members.as_slice()).unwrap_or_default()
    }

    fn is_control_node(&self) -> bool {
        self.map.groups_of(self.options.id).any(|(id, _)| id == CONTROL_GROUP)
    }

    /// On a control node that has never taken part: looks whether it may now.
    fn begin(&mut self, now: Now, out: &mut Effects) {
        if self.beginning.has_begun() || !self.is_control_node() {
            return;
        }
        let Options { id, start, .. } = self.options;
        let me = (id, start.identity);
        let begins = match self.map.version {
            0 => {
                self.beginning.ask(now, me, &self.map, out);
                self.beginning.begin_new_cluster(me, &self.map, out)
            }
            _ if self.map.nodes.get(&id).is_some_and(|node| node.start.identity == start.identity) => {
                self.beginning.begin_as_member(&self.map, out);
                true
            }
            _ => false,
        };
        if begins {
            let mut keeper = Keeper::new(&self.options);
            keeper.begins_after(1); // The record of having begun.
            self.keeper = Some(keeper);
            self.take_part(now, out);
        }
    }

    /// Tells the control group's replica who its members are.
    fn take_part(&mut self, now: Now, out: &mut Effects) {
        if !self.beginning.has_begun() || self.refused.is_some() {
            return;
        }
        let Some(group) = self.map.groups.get(&CONTROL_GROUP) else { return };
        if group.epoch <= self.configured_epoch {
            return;
        }
        let configuration = group.configuration();
        self.configured_epoch = group.epoch;
        // A node that stopped between beginning and its replica's first record has no replica yet.
        let new = || Keeper::new(&self.options);
        self.keeper.get_or_insert_with(new).configure(now, &configuration, out);
    }

    /// Sends the changes that are asked for here.
    fn ask(&mut self, now: Now, out: &mut Effects) {
        let Options { id, start, timing, .. } = &self.options;
        let others: Vec<NodeId> = self.control_nodes().iter().copied().filter(|node| node != id).collect();
        for (number, change) in self.asking.send(now, timing, start.run, &others, out) {
            self.leading.ask(*id, *id, (start.run, number), &change, out);
        }
    }

    /// Ends the replica's turn, and looks for maps that were agreed on in it.
    fn keep(&mut self, now: Now, out: &mut Effects) {
        let known = self.map.version;
        let Some(keeper) = self.running() else { return };
        keeper.step(now, Input::Flush, out);
        let Some(bytes) = keeper.newer_map(now, known) else { return };
        // Only what was encoded by a control leader is ever agreed on.
        if let Ok(map) = ClusterMap::decode(&bytes) {
            self.adopt(now, map, out);
            self.leading.spread(&self.map, out);
        }
    }

    fn lead(&mut self, now: Now, out: &mut Effects) -> bool {
        let are_positions_told = self.positions.are_told(self.control_nodes());
        let Options { id, timing, moves_control_group, groups_max, initial, planted, .. } = &self.options;
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.beginning.has_begun()) else { return false };
        let first = (self.map.version == 0).then(|| {
            let mut first = initial.clone();
            for (node, identity) in self.beginning.identities().into_iter().flatten() {
                if let Some(node) = first.nodes.get_mut(node) {
                    node.start = Start { identity: *identity, ..Start::default() };
                }
            }
            first
        });
        let turn = Turn {
            now,
            id: *id,
            timing,
            moves_control_group: *moves_control_group,
            groups_max: *groups_max,
            planted: *planted,
            map: &self.map,
            positions: &self.positions,
            are_positions_told,
            first,
        };
        self.leading.work(&turn, keeper, out)
    }

    /// What the control leader says to its own node.
    fn hear_myself(&mut self, out: &mut Effects) {
        let here = std::mem::take(&mut self.leading.here);
        if let Some((sequence, map_version, lasts_us)) = here.renewed {
            self.leader_heard = self.options.id;
            self.renewed(sequence, map_version, lasts_us, out);
        }
        if let Some(why) = here.refused {
            self.refuse(why, out);
        }
        here.answered.into_iter().for_each(|(number, result)| self.asking.answered(number, result, out));
    }

    /// Takes a map that was agreed on, if it is newer.
    fn adopt(&mut self, now: Now, map: ClusterMap, out: &mut Effects) {
        if map.version <= self.map.version {
            return;
        }
        let id = self.options.id;
        let is_removed =
            self.map.version > 0 && self.map.nodes.contains_key(&id) && !map.nodes.contains_key(&id);
        self.map = Rc::new(map);
        let start = out.bytes.len();
        out.bytes.extend_from_slice(&self.map.encode());
        out.map_record = Some(start..out.bytes.len());
        out.map = Some(Rc::clone(&self.map));
        let is_registered = self.is_registered();
        if is_registered && !self.is_admitted {
            self.positions.let_in();
            self.keep_positions(now, out);
            out.is_admitted = true;
            out.events.push(Event::Admitted);
        }
        self.is_admitted |= is_registered;
        // It was replaced, and enters anew. What it had promised before as a voter it may have forgotten all the same.
        if is_registered && (!self.beginning.has_begun() || self.is_unknown) {
            self.refused = None;
        }
        if is_removed {
            out.is_removed = true;
            out.events.push(Event::Removed { map_version: self.map.version });
            self.refuse_as(format!("the cluster has no node {id} any more"), out);
        }
        self.take_part(now, out);
    }

    /// Keeps what is known of positions, for the next start.
    fn keep_positions(&mut self, now: Now, out: &mut Effects) {
        let start = out.bytes.len();
        self.positions.keep(now.monotonic_us, &self.map, &mut out.bytes);
        out.positions_record = Some(start..out.bytes.len());
    }

    fn tell_positions(&self, to: &[NodeId], out: &mut Effects) {
        let mut bytes = Vec::new();
        self.positions.put_heard(&mut bytes);
        out.send(to.iter().copied(), &Message::Heard { bytes: &bytes });
    }

    /// Whether the map that this node holds has it as it runs now.
    fn is_registered(&self) -> bool {
        let Options { id, start, .. } = &self.options;
        self.map.nodes.get(id).is_some_and(|node| node.start == *start)
    }

    fn refuse(&mut self, why: String, out: &mut Effects) {
        if self.refused.is_none() {
            out.events.push(Event::Refused { why: why.clone() });
            self.refuse_as(why, out);
        }
    }

    fn refuse_as(&mut self, why: String, out: &mut Effects) {
        out.refused = Some(why.clone());
        self.refused = Some(why);
        self.is_unknown = !self.map.nodes.contains_key(&self.options.id);
        // If it is let in again, that is news.
        self.is_admitted = false;
    }
}
