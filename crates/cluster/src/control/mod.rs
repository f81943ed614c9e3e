//! The control group: it holds the cluster map and keeps a live leader in every group.
//!
//! One [`Control`] per node. It takes inputs and fills [`Effects`], as replicas do, and uses no clock and no socket. On
//! the first three nodes, or the first five of a larger cluster, it holds a replica of group 0 (`keeper`), whose table
//! is the list of maps: the map with version v is the value under `map:v`, written only if the key is absent. The
//! leader of that group is the control leader (`leading`).
//!
//! ```text
//!  node 4                 control leader 1                          control nodes 2, 3
//!    | Renew 7, map 12 ------>|  (and to 2 and 3, which listen)            |
//!    |<-- Renewed 7, map 12 --|                                            |
//!    |  lease until the sending of Renew 7 + 300 ms                        |
//!    x dies                   |                                            |
//!                             | 330 ms later: SET map:13 .. NX ----------->|
//!                             |<-------------------------- committed ------|
//!    node 5 <-- Map 13 -------|  its groups have other leaders             |
//! ```
//!
//! # Promise
//!
//! * All nodes that have a map of some version have the same one. A node acts on a map only once it is committed.
//! * No two nodes hold, at the same moment, a lease under which they lead the same leader-follower group.
//! * A leader that fails is replaced by a live member as soon as its lease is over; under `acks = all` only by a
//!   member of the in-sync set, and so by one that holds everything that was acknowledged. A node that returns is a
//!   follower: it does not regain its leaderships by itself. In consensus groups the protocol elects leaders.
//! * A node that returns with less than it had is not admitted as the same node.
//!
//! # Why no two nodes lead
//!
//! A node leads a group while its newest map names it as leader and its lease lasts. The lease that a `Renewed`
//! grants begins when the node *sent* the `Renew`, by its own clock. It lasts at most `node_lease_ms`, and no longer
//! than the duration in the `Renewed`. It counts only if the node's map is at least as new as the one that the
//! `Renewed` names.
//!
//! *The same control leader.* It grants leases only while its replica holds the log lease, that is, while no other
//! leader can have committed a map; so the map that it names is the newest. From the moment when it proposes a map
//! that takes leaderships from a node until it knows the outcome, it grants that node nothing. And it proposes to
//! take a group from its leader only when it has granted that leader nothing for `node_lease_ms` and a margin, on its
//! own clock: the last lease began before it was granted, so it is over. When the old leader's renewals arrive again,
//! its lease counts only with a map in which it no longer leads the group.
//!
//! *An older control leader A, and a newer one, B.* A granted leases only while its log lease lasted. The log lease
//! began no later than P, when A proposed the newest entry that it committed, and A's grants end no later than
//! `grace_ms` after the log lease: `Renewed` carries the duration, and the node counts it from an earlier moment. So
//! by the clocks of A and of the node every lease that A ever granted is over at P + `lease_ms` + `grace_ms`. B
//! appends nothing before R + `lease_ms` + `lease_margin_ms`, where R is when B received the newest entry of the log
//! that it took over, which is after P: see `protocol::consensus`. B counts `grace_ms` and a margin from the first
//! moment when it could append, and only then takes any group from its leader. The same holds when A is B itself in
//! an earlier ballot, and for any leader between the two. The lease of the control leader's own node follows the same
//! rules: that node renews as the others do, without messages. A control group of one replica has no log lease, and
//! grants the full `node_lease_ms`; after a restart it waits for all of that.
//!
//! *A map that A proposed and that is committed late.* B's log holds all of A's proposals that can still be
//! committed, and B answers nothing before they are applied. *A node that restarts* has no lease, and the process
//! that had one is dead: once another start of the same storage is registered, the control leader does not wait for
//! the old lease.
//!
//! *A node whose messages arrive, but which receives none.* Each renewal names the newest of the node's renewals that
//! was answered. A node that was granted a lease and does not confirm it within the duration of a lease counts as
//! dead. From then on the control leader grants it only leases of zero length, so that its last real one runs out and
//! another node can lead. This ends when the node confirms one of them: then it receives messages again.
//!
//! Only durations are measured, each on one clock. The rates of two clocks may differ by the margin, a tenth: 4 %
//! each.
//!
//! # How long it takes
//!
//! Suppose that the node that is both control leader and leader of a group is killed at K. B's log last changed at R
//! <= K, so B may append from R + 220 ms on, if it is elected by then: that takes two rounds of heartbeats until all
//! replicas miss the old leader and two more until all know the new one, 320 ms. 110 ms after the later of these
//! moments every lease that A granted is over, and A's node has been silent for 330 ms, since every node renews at
//! all control nodes. So the new map is proposed by K + 430 ms, and the group's new leader knows it a round of the
//! log and a message later. If only the group's leader dies, the map is proposed by K + 330 ms plus the rest of the
//! interval between checks of all groups, 20 ms. The control group's log lease is shorter than that of other groups
//! for this reason, and an empty entry renews it every 100 ms. Without `grace_ms`, if leases were granted for their
//! full 300 ms to the end of the log lease, B would have to wait until K + 650 ms.
//!
//! # Caveats
//!
//! * A control node that finds its records votes in the control group before its start is accepted: otherwise no
//!   cluster would recover from a loss of power. Only nodes that received its messages since can tell that its
//!   storage was put back to an earlier time. What they know is compared when the node asks for admission
//!   (`positions`), which every node does before it takes part in any other group; then the control leader refuses
//!   the node, or the node refuses to go on by itself. Its votes until then are up to `protocol::consensus`. Nodes
//!   that know about the older storage still count its votes: otherwise, after restoring all machines from backups of
//!   different times, the control group would have no leader, and no node could report why.
//! * If a node makes something durable after its last renewal that arrived, within 80 ms before its death, and
//!   returns with an older disk that lacks no more than that, no node notices. The same holds for what was written
//!   and never synced: with `durability = "os"` a node whose disk is put back may have acknowledged more than any
//!   position reported.
//! * A keyspace that is dropped is still served by its leader until the map reaches the leader, or its lease is over. The drop is
//!   answered after that.
//! * The clock value that comes with an input must have been read after the input arrived.

mod asking;
mod backups;
mod beginning;
mod change;
mod effects;
mod heard;
mod keeper;
mod keyspaces;
mod leading;
mod lease;
mod level;
mod map;
mod message;
mod moves;
mod positions;
mod preferring;
mod quarantine;
mod record;
mod refusal;
mod shown;
mod takeover;

pub use crate::slots::SHARDS_MAX;
use asking::Asking;
use beginning::Beginning;
pub use change::{Change, GROUPS_MAX, NODES_MAX, Step};
pub use effects::{Answer, ChangeError, Effects, Event};
use keeper::Keeper;
use kv::codec::Malformed;
use leading::{Leading, Turn};
pub use lease::LeaseTimes;
use lease::NodeLease;
pub use level::Feature;
pub use map::{
    CONTROL_GROUP, ClusterMap, FatalRecord, Group, GroupId, KeyspaceEntry, MAP_BYTES_MAX, Node, NodeState,
    Quarantine, Rejoin, Saved, Slots, Start, control_members,
};
pub use map::{MAP_GROUP, level_refusal};
pub use message::Message;
use positions::Positions;
pub use positions::is_positions;
use protocol::consensus;
use protocol::contract::{Input, Replica as _};
use protocol::planted::Planted;
use protocol::vouch::Vouch;
use protocol::{NodeId, Now, Progress};
pub use quarantine::{SKIPPED_MAX, Step as QuarantineStep};
use record::Record;
pub use refusal::{Refusal, refuse};
use std::rc::Rc;
use wire::release::Releases;

/// Durations and intervals, in milliseconds. The same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often a node renews its lease.
    pub renew_ms: u64,
    /// The longest that a node's lease lasts, from when the node asked for it.
    pub node_lease_ms: u64,
    /// The longest that a node's lease outlasts the log lease of the control leader that granted it.
    pub grace_ms: u64,
    /// After this time without an answer the outcome of a change is unknown.
    pub answer_ms: u64,
    /// The timing of the control group's own consensus.
    pub consensus: consensus::Timing,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            renew_ms: 80,
            node_lease_ms: 300,
            grace_ms: 100,
            answer_ms: 5000,
            consensus: consensus::Timing {
                lease_ms: 200,
                lease_margin_ms: 20,
                rounds_in_step: true,
                ..consensus::Timing::default()
            },
        }
    }
}

impl Timing {
    /// The same timing, `times` slower; only `answer_ms` stays.
    pub fn slower(self, times: u64) -> Timing {
        Timing {
            renew_ms: self.renew_ms * times,
            node_lease_ms: self.node_lease_ms * times,
            grace_ms: self.grace_ms * times,
            answer_ms: self.answer_ms,
            consensus: self.consensus.slower(times),
        }
    }

    /// How long to wait on one clock, in microseconds, until `duration_ms` is over on another: a tenth more.
    fn with_margin_us(&self, duration_ms: u64) -> u64 {
        duration_ms * 1100
    }
}

/// What a [`Control`] is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node's number.
    pub id: NodeId,
    /// This start of the node: its storage, incarnation and process.
    pub start: Start,
    /// The seed of the hash of the control group's table.
    pub seed: u64,
    /// The map that all nodes of a new cluster begin with, see [`ClusterMap::initial`].
    pub initial: ClusterMap,
    /// Durations and intervals; the same on all nodes.
    pub timing: Timing,
    /// Whether the control group's members follow the cluster's nodes. That needs replicas that can change members.
    pub moves_control_group: bool,
    /// The most groups of which a node may hold a replica, checked when a keyspace is created.
    pub groups_max: usize,
    /// What this program understands.
    pub releases: Releases,
    /// A planted fault, for tests.
    pub planted: Planted,
    /// Notes which record is being executed, where the note outlives the process.
    pub watch: Option<&'static dyn kv::Watch>,
}

/// One node's control component.
#[derive(Debug)]
pub struct Control {
    options: Options,
    /// The newest committed map; before there is one, the initial map with version 0.
    map: Rc<ClusterMap>,
    keeper: Option<Keeper>,
    beginning: Beginning,
    leading: Leading,
    asking: Asking,
    positions: Positions,
    lease: NodeLease,
    /// The node that granted the last lease. 0: no node has.
    leader_heard: NodeId,
    is_admitted: bool,
    refused: Option<String>,
    /// Refused because the cluster has no such node. This node has forgotten nothing, so it is admitted as soon as
    /// the cluster has one with its number.
    is_unknown: bool,
    /// The cluster was recovered without this node, which is never admitted again.
    is_left_behind: bool,
    /// The epoch that the control group's replica was last configured with.
    configured_epoch: u64,
    has_started: bool,
}

impl Control {
    /// Creates a component that does nothing before [`Control::start`].
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
            is_left_behind: false,
            configured_epoch: 0,
            has_started: false,
        }
    }

    // Start.

    /// Takes one record of an earlier incarnation or of a checkpoint. Call it for each record, in order.
    ///
    /// # Errors
    /// [`Malformed`] when it is not a record: the node must not start with it.
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

    /// Restores the map from the newest bytes of [`Effects::map_record`] that an earlier incarnation left.
    ///
    /// # Errors
    /// A sentence when the bytes are not a map.
    pub fn restore_map(&mut self, bytes: &[u8]) -> Result<(), String> {
        let map = ClusterMap::decode(bytes, self.options.releases)?;
        if map.version > self.map.version {
            self.map = Rc::new(map);
        }
        Ok(())
    }

    /// Restores the positions from the newest bytes of [`Effects::positions_record`] that an earlier incarnation left.
    ///
    /// # Errors
    /// [`Malformed`] when they are something else.
    pub fn restore_positions(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.positions.restore(bytes)
    }

    /// Starts with a log that ends at `log_end`. If any map was ever committed, puts the newest known one into the
    /// effects, so that the node knows its groups.
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

    // Recovery, offline.

    /// What this node's replica of the control group holds, if there is one. Call it after its records were replayed.
    pub fn keeps(&self) -> Option<consensus::Found> {
        self.keeper.as_ref().map(Keeper::found)
    }

    /// For each node, the start that was admitted last and up to where its log was durable, as far as was reported to
    /// this node.
    pub fn heard(&self) -> impl Iterator<Item = (NodeId, Start, u64)> {
        self.positions.heard()
    }

    /// The records after which this node is the control group's only member, with this map.
    pub fn alone(&self, map: &ClusterMap) -> Vec<Vec<u8>> {
        let Options { id, start, .. } = &self.options;
        let epoch = map.groups.get(&CONTROL_GROUP).map_or(0, |group| group.epoch);
        let new = Keeper::new(&self.options);
        let keeper = self.keeper.as_ref().unwrap_or(&new);
        let (mut begun, mut replica) = (Vec::new(), Vec::new());
        record::put_begun(&mut begun, &[(*id, start.identity)].into());
        let epoch = u32::try_from(epoch).expect("a control group's epoch is the number of a configuration");
        record::put_replica(&mut replica, &keeper.alone(epoch, map.version, &map.encode()));
        vec![begun, replica]
    }

    // Inputs.

    /// Another node has proved that the cluster was recovered without this one: it must not take part in anything.
    pub fn left_behind(&mut self, why: &str, out: &mut Effects) {
        if !std::mem::replace(&mut self.is_left_behind, true) {
            out.events.push(Event::Refused { why: why.to_owned() });
            self.refuse_as(why.to_owned(), out);
        }
    }

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
            Message::Renew { start, sequence, map_version: map, answered, durable, releases } => {
                self.positions.hear(&self.map, from, start, durable);
                let known = self.map.nodes.get(&from);
                let is_in = known.is_some_and(|known| known.start == start);
                if !is_in && self.is_control_node() && self.control_nodes().contains(&from) {
                    self.send_positions(&[from], out);
                }
                // A node with an empty storage knows only the nodes of its configuration. If the leader was added
                // later, neither can reach the other before that node has got a map. A committed map may come from
                // any node. A removed node learns of its removal in the same way.
                if !is_in && map < self.map.version && self.is_control_node() {
                    out.send([from], &Message::Map { bytes: &self.map.encode() });
                }
                let asks = (start, releases);
                self.leading.hear(now, &self.options.timing, from, asks, (sequence, map, answered));
            }
            Message::Heard { bytes } => self.positions.take_report(&self.map, from, bytes)?,
            Message::Renewed { sequence, map_version, lasts_us } => {
                self.leader_heard = from;
                self.renewed(now, (sequence, map_version), lasts_us, out);
            }
            Message::Map { bytes } => {
                let releases = self.options.releases;
                if let Some(why) = level_refusal(bytes, releases) {
                    self.refuse(why, out);
                    return Ok(());
                }
                let map =
                    ClusterMap::decode(bytes, releases).map_err(|_| Malformed("a map that cannot be"))?;
                self.adopt(now, map, out);
            }
            Message::Ask { run, id: number, change } => {
                self.leading.ask(id, from, (run, number), change, out);
            }
            Message::Answered { run, id: number, result } if run == start.run => {
                self.asking.answered(number, result, out);
            }
            Message::Refused { start: refused, map_version, why } if refused == start => {
                // It may have been sent before a later map admitted this node, and arrive after that map.
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

    /// Runs what is due at `now`.
    pub fn tick(&mut self, now: Now, out: &mut Effects) {
        if let Some(keeper) = self.running() {
            keeper.step(now, Input::Tick, out);
        }
    }

    /// The component's records up to number `record` are durable.
    pub fn durable(&mut self, now: Now, record: u64, out: &mut Effects) {
        if let Some(keeper) = self.running() {
            keeper.durable(now, record, out);
        }
    }

    /// The node's log is durable up to `position`. Call this only when the record of this start's admission, see
    /// [`Effects::is_admitted`], is durable, too.
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

    /// Another node vouches for itself: it is alive and busy.
    pub fn vouched(&mut self, peer: NodeId, vouch: Vouch) {
        self.leading.vouched(peer, vouch);
        if let Some(keeper) = self.running() {
            keeper.replica.vouched(peer, vouch);
        }
    }

    /// Has another node lead the control group, if this node leads it: see [`protocol::Replica::hand_over`].
    pub fn hand_over(&mut self, now: Now, to: NodeId) -> bool {
        self.running().is_some_and(|keeper| keeper.replica.hand_over(now, Some(to)))
    }

    /// Requests a change from the control group, on behalf of a group's leader or an operator. The answer carries the
    /// number `request`.
    pub fn change(&mut self, now: Now, request: u64, change: &Change, out: &mut Effects) {
        self.asking.ask(now, &self.options.timing, request, change, out);
    }

    /// Ends the turn. Call it after inputs, and when [`Control::wakeup_us`] has come; it costs too much for every turn
    /// of a busy node.
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
        self.take_own_message(now, out);
        if self.is_control_node() && self.positions.is_due(now.monotonic_us) {
            self.keep_positions(now, out);
            let to: Vec<NodeId> =
                self.control_nodes().iter().copied().filter(|id| *id != self.options.id).collect();
            self.send_positions(&to, out);
        }
    }

    /// Returns when [`Control::tick`] and [`Control::flush`] are due next.
    pub fn wakeup_us(&self, now: Now) -> u64 {
        let asking_us = self.lease.renew_at_us.min(self.asking.wakeup_us());
        if self.refused.is_some() {
            return asking_us; // Nothing else is done: see `flush`.
        }
        let keeper = self.keeper.as_ref().filter(|_| self.beginning.has_begun());
        let keeper_us = keeper.map_or(u64::MAX, |keeper| keeper.replica.wakeup_us(now));
        // From version 1 on the map decides whether the node may begin.
        let may_ask = self.map.version == 0 && self.is_control_node();
        let beginning_us = if may_ask { self.beginning.wakeup_us() } else { u64::MAX };
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

    /// The newest committed map. Before there is one, the initial map with version 0.
    pub fn map(&self) -> &Rc<ClusterMap> {
        &self.map
    }

    /// Whether this node may take part in its groups.
    pub fn is_admitted(&self) -> bool {
        self.is_admitted && self.refused.is_none()
    }

    /// Why this node was refused admission, if it was.
    pub fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// See [`protocol::Replica::check_invariants`].
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self, now: Now) {
        self.keeper.iter().for_each(|keeper| keeper.replica.check_invariants(now));
    }

    /// The status of the control group's replica, on a control node.
    pub fn status(&self, now: Now) -> Option<consensus::Status> {
        self.keeper.as_ref().map(|keeper| keeper.status(now))
    }

    /// The control leader, which granted the last lease, while that lease lasts. 0: none is known.
    pub fn leader(&self, now: Now) -> NodeId {
        if self.lease.until_us > now.monotonic_us { self.leader_heard } else { 0 }
    }

    /// Where this node's log ended when it was opened: see [`Start::found`].
    pub fn found(&self) -> u64 {
        self.options.start.found
    }

    /// Up to where `node`'s log was durable, as far as this node knows. None if this is not a control node.
    pub fn known_durable(&self, node: NodeId) -> Option<u64> {
        self.is_control_node().then(|| self.positions.known(&self.map, node))
    }

    /// How long this node's renewals took, and how long it was without a lease.
    pub fn lease_times(&self) -> &LeaseTimes {
        &self.lease.times
    }

    /// Until when no other node leads the groups that this node leads by its newest map.
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

    /// Takes part in the control group for the first time, if this is a control node and may now.
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

    /// Configures the control group's replica with its members.
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
        // A node that stopped after `Begun` and before its replica's first record has no replica yet.
        let new = || Keeper::new(&self.options);
        self.keeper.get_or_insert_with(new).configure(now, &configuration, out);
    }

    /// Sends this node's requests for changes.
    fn ask(&mut self, now: Now, out: &mut Effects) {
        let Options { id, start, timing, .. } = &self.options;
        let others: Vec<NodeId> = self.control_nodes().iter().copied().filter(|node| node != id).collect();
        for (number, change) in self.asking.send(now, timing, start.run, &others, out) {
            self.leading.ask(*id, *id, (start.run, number), &change, out);
        }
    }

    /// Ends the replica's turn, and looks for maps that were committed in it.
    fn keep(&mut self, now: Now, out: &mut Effects) {
        let known = self.map.version;
        let Some(keeper) = self.running() else { return };
        keeper.step(now, Input::Flush, out);
        let Some(bytes) = keeper.newer_map(now, known) else { return };
        match ClusterMap::decode(&bytes, self.options.releases) {
            Ok(map) => {
                self.adopt(now, map, out);
                self.leading.spread(&self.map, out);
            }
            // Its level is not known to this program. A node that was admitted never gets such a map, since the level
            // rises only when its program knows the next; a voter that returned with an older program does.
            Err(why) => self.refuse(format!("the cluster's map cannot be read: {why}"), out),
        }
    }

    fn lead(&mut self, now: Now, out: &mut Effects) -> bool {
        let are_positions_reported = self.positions.are_reported(self.control_nodes());
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
            are_positions_reported,
            first,
        };
        self.leading.work(&turn, keeper, out)
    }

    /// Takes the control leader's messages to its own node.
    fn take_own_message(&mut self, now: Now, out: &mut Effects) {
        let here = std::mem::take(&mut self.leading.here);
        if let Some((sequence, map_version, lasts_us)) = here.renewed {
            self.leader_heard = self.options.id;
            self.renewed(now, (sequence, map_version), lasts_us, out);
        }
        if let Some(why) = here.refused {
            self.refuse(why, out);
        }
        here.answered.into_iter().for_each(|(number, result)| self.asking.answered(number, result, out));
    }

    /// Takes a committed map, if it is newer.
    fn adopt(&mut self, now: Now, map: ClusterMap, out: &mut Effects) {
        // From its first map on, the node belongs to one lineage of the cluster.
        let is_of_another = self.map.version > 0 && map.lineage != self.map.lineage;
        if map.version <= self.map.version || is_of_another || self.is_left_behind {
            return;
        }
        let id = self.options.id;
        let is_removed =
            self.map.version > 0 && self.map.nodes.contains_key(&id) && !map.nodes.contains_key(&id);
        if self.map.version > 0 && self.map.level < map.level {
            out.events.push(Event::LevelRaised { from: self.map.level, to: map.level });
        }
        self.map = Rc::new(map);
        let start = out.bytes.len();
        out.bytes.extend_from_slice(&self.map.encode());
        out.map_record = Some(start..out.bytes.len());
        out.map = Some(Rc::clone(&self.map));
        let is_registered = self.is_registered();
        if is_registered && !self.is_admitted {
            self.positions.admit();
            self.keep_positions(now, out);
            out.is_admitted = true;
            out.events.push(Event::Admitted);
        }
        self.is_admitted |= is_registered;
        // The node was replaced, and is admitted as a new one. A voter stays refused: it may have forgotten its
        // promises.
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

    /// Writes the known positions to the log, for the next start.
    fn keep_positions(&mut self, now: Now, out: &mut Effects) {
        let start = out.bytes.len();
        self.positions.keep(now.monotonic_us, &self.map, &mut out.bytes);
        out.positions_record = Some(start..out.bytes.len());
    }

    fn send_positions(&self, to: &[NodeId], out: &mut Effects) {
        let mut bytes = Vec::new();
        self.positions.put_heard(&mut bytes);
        out.send(to.iter().copied(), &Message::Heard { bytes: &bytes });
    }

    /// Whether this node's map names exactly this start of it.
    fn is_registered(&self) -> bool {
        let Options { id, start, .. } = &self.options;
        self.map.nodes.get(id).is_some_and(|node| node.start == *start)
    }

    /// The control leader does not admit this node. The latest reason counts: once the operator has removed one, another may be left.
    fn refuse(&mut self, why: String, out: &mut Effects) {
        if !self.is_left_behind && self.refused.as_ref() != Some(&why) {
            out.events.push(Event::Refused { why: why.clone() });
            self.refuse_as(why, out);
        }
    }

    fn refuse_as(&mut self, why: String, out: &mut Effects) {
        out.refused = Some(why.clone());
        self.refused = Some(why);
        self.is_unknown = !self.map.nodes.contains_key(&self.options.id);
        // A later admission is an event again.
        self.is_admitted = false;
    }
}
