//! Leading: what the control leader does. It receives the nodes' renewals, grants leases, replaces dead leaders, and
//! makes changes. See the parent module for why that is safe.

use super::change::{Change, Step};
use super::heard::Heard;
use super::keeper::{Keeper, ProposalEnd};
use super::level::Feature;
use super::map::{CONTROL_GROUP, ClusterMap, Group, GroupId, KeyspaceEntry, Node, NodeState, Start};
use super::message::Message;
use super::positions::Positions;
use super::refusal::{Refusal, refuse};
use super::{Effects, Event, Timing};
use crate::setting::Protocol;
use protocol::consensus::FollowerStatus;
use protocol::leader_follower::Acks;
use protocol::planted::{Fault, Planted};
use protocol::vouch::{Vouch, Vouches};
use protocol::{NodeId, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use wire::release::Releases;

/// A change that a node requested.
#[derive(Clone, Debug)]
struct Asked {
    from: NodeId,
    run: u64,
    id: u64,
    change: Change,
    /// The groups that have to take note of it before it counts as made. Known when the change is made.
    yields: Vec<Yielding>,
}

/// A group that a change takes keys from, or drops, and that needs no lease of its nodes: a majority of its members can go on by an
/// older map.
#[derive(Clone, Debug)]
struct Yielding {
    members: Vec<NodeId>,
    /// Whether no other nodes can have a vote.
    is_settled: bool,
    /// Whether a member that has not taken note may answer reads for a while, which a majority allowed before it did.
    has_leases: bool,
}

impl Yielding {
    /// The groups that yield to a change of this map.
    fn of(map: &ClusterMap, change: &Change) -> Vec<Yielding> {
        let entries: Vec<&KeyspaceEntry> = match change {
            // Consensus groups that lose keys have floors in their logs, for which the node that asks cares.
            Change::CreateKeyspace(keyspace) => map
                .losing_keys(&keyspace.prefix)
                .filter(|entry| entry.keyspace.replication.has_registers())
                .collect(),
            Change::DropKeyspace(prefix) => map.keyspaces.get(prefix).into_iter().collect(),
            _ => Vec::new(),
        };
        let entries = entries.into_iter().filter(|it| it.keyspace.replication != Protocol::LeaderFollower);
        let groups = entries.flat_map(|entry| entry.groups.iter().filter_map(|id| map.groups.get(id)));
        let yielding = |group: &Group| Yielding {
            members: if group.settled { group.members.clone() } else { map.nodes.keys().copied().collect() },
            is_settled: group.settled,
            has_leases: group.leader > 0,
        };
        groups.map(yielding).collect()
    }

    /// Whether enough members are among those that have taken note, given whether leases from before that are over.
    fn has_yielded(&self, has_noted: impl Fn(&NodeId) -> bool, are_leases_over: bool) -> bool {
        let noted = self.members.iter().filter(|member| has_noted(member)).count();
        let is_majority = self.is_settled && 2 * noted > self.members.len();
        noted == self.members.len() || is_majority && (are_leases_over || !self.has_leases)
    }
}

/// A change that is made, and has no answer yet.
#[derive(Debug)]
struct Spreading {
    /// The version of its map.
    version: u64,
    asked: Asked,
    /// When it was made.
    made_us: u64,
    /// Since when majorities of all groups that yield have taken note.
    noted_us: Option<u64>,
}

/// A map that was proposed.
#[derive(Debug)]
struct InFlight {
    version: u64,
    /// The nodes that would lose leaderships with it: none of them gets a lease while it may become the map.
    deposed: BTreeSet<NodeId>,
    asked: Vec<Asked>,
    /// The outcome is unknown, and will not be reported.
    is_unknown: bool,
}

/// The control leader's state. Every control node keeps some of it, in case it leads.
#[derive(Debug, Default)]
pub(super) struct Leading {
    /// The ballot in which this node leads.
    ballot: Option<u64>,
    /// When this node could append for the first time in this ballot.
    appends_since_us: Option<u64>,
    heard: BTreeMap<NodeId, Heard>,
    /// The nodes that are alive and busy.
    vouches: Vouches,
    /// When each node last got a lease from this leader.
    granted: BTreeMap<NodeId, u64>,
    /// For each node that has not confirmed a lease since: its first renewal that was answered, and when.
    unconfirmed: BTreeMap<NodeId, (u64, u64)>,
    waiting: Vec<Asked>,
    /// The latest answers, in case one is lost.
    answered: VecDeque<(NodeId, u64, u64, Result<u64, Refusal>)>,
    in_flight: Option<InFlight>,
    /// Changes of libraries, users, keyspaces and databases that are made, with the versions of their maps. They are
    /// answered when no node with a lease has an older map, and the groups that yield to them cannot go on by one: see
    /// [`Leading::answer_spread`].
    spreading: Vec<Spreading>,
    read_at_us: u64,
    /// The outlook when this leader last looked for something to do and found nothing.
    looked: Option<Outlook>,
    /// This node leads at this moment, and no other node can have made a newer map than it has.
    is_leased: bool,
    pub(super) here: Here,
}

/// Everything that the leader's own proposals depend on: the map's version, whether a majority has reported
/// positions, and for each node whether it is alive, whether it is dead, and whether its leases are over.
type Outlook = (u64, bool, Vec<(NodeId, bool, bool, bool)>);

/// The control leader's messages to its own node.
#[derive(Debug, Default)]
pub(super) struct Here {
    /// A renewal's number, the map's version, and how long the lease lasts.
    pub(super) renewed: Option<(u64, u64, u64)>,
    pub(super) refused: Option<String>,
    pub(super) answered: Vec<(u64, Result<u64, Refusal>)>,
}

/// What leading depends on in one turn.
pub(super) struct Turn<'a> {
    pub(super) now: Now,
    pub(super) id: NodeId,
    pub(super) timing: &'a Timing,
    pub(super) moves_control_group: bool,
    /// The most groups of which a node may hold a replica.
    pub(super) groups_max: usize,
    pub(super) planted: Planted,
    /// The newest map; not committed if its version is 0.
    pub(super) map: &'a Rc<ClusterMap>,
    pub(super) positions: &'a Positions,
    /// Whether a majority of the control nodes has reported the positions that they know.
    pub(super) are_positions_reported: bool,
    /// The map to propose if none was ever committed.
    pub(super) first: Option<ClusterMap>,
}

impl Turn<'_> {
    /// Checks whether a node may be admitted with this start, by everything known about the node.
    fn may_come_in(&self, map: &ClusterMap, node: NodeId, heard: &Heard) -> Result<(), String> {
        let start = heard.start;
        if let Some(why) = heard.releases.refusal(map.level) {
            return Err(format!("node {node}: {why}"));
        }
        let checked = match self.planted.has(Fault::OlderDiskAdmitted) {
            true => map.check_start(node, start, 0),
            false => self.positions.check(map, node, start),
        };
        checked.map_err(|why| match map.nodes.get(&node) {
            Some(known) if heard.is_contested(self.now.monotonic_us) => {
                let (host, port) = (&known.address.host, known.address.peer_port);
                format!(
                    "node {node} runs elsewhere: two processes say in turns that they are node {node}, which the cluster has at \
                     {host}:{port}. Stop this one, or make it another node (quorate join). If this is the right one, stop the \
                     other one: {why}"
                )
            }
            _ => why,
        })
    }
}

impl Leading {
    /// Takes a node's renewal. Control nodes do so whether they lead or not.
    pub(super) fn hear(
        &mut self,
        now: Now,
        timing: &Timing,
        from: NodeId,
        (start, releases): (Start, Releases),
        (sequence, map_version, answered): (u64, u64, u64),
    ) {
        let silence_us = timing.with_margin_us(timing.node_lease_ms);
        let is_late = self.heard.get(&from).is_some_and(|heard| {
            // A copy of the storage that was started by mistake, and often, may be in a later incarnation than the
            // right storage.
            let is_there = now.monotonic_us < heard.at_us + silence_us;
            heard.start == start && heard.sequence >= sequence
                || heard.start.identity == start.identity && heard.start.life > start.life && is_there
        });
        if !is_late {
            // A silent node could not confirm a lease either, and another process never got one.
            let goes_on = self
                .heard
                .get(&from)
                .is_some_and(|heard| heard.start == start && now.monotonic_us < heard.at_us + silence_us);
            if self.unconfirmed.get(&from).is_some_and(|(granted, _)| !goes_on || answered >= *granted) {
                self.unconfirmed.remove(&from);
            }
            let before = self.heard.get(&from);
            let heard = Heard::after(before, now.monotonic_us, (start, releases), (sequence, map_version));
            self.heard.insert(from, heard);
        }
    }

    /// A node vouches for itself. Control nodes note that whether they lead or not.
    pub(super) fn vouched(&mut self, node: NodeId, vouch: Vouch) {
        self.vouches.note(node, vouch);
    }

    /// Takes a node's request for a change. A control node that does not lead drops it: the request went to all control
    /// nodes.
    pub(super) fn ask(
        &mut self,
        own_id: NodeId,
        from: NodeId,
        (run, id): (u64, u64),
        change: &[u8],
        out: &mut Effects,
    ) {
        if !self.is_leased {
            return;
        }
        let is_it = |asked: &Asked| (asked.from, asked.run, asked.id) == (from, run, id);
        let in_flight = self.in_flight.iter().flat_map(|in_flight| &in_flight.asked);
        let spreading = self.spreading.iter().map(|spreading| &spreading.asked);
        if self.waiting.iter().chain(in_flight).chain(spreading).any(is_it) {
            return;
        }
        let before = self.answered.iter().find(|(node, r, i, _)| (*node, *r, *i) == (from, run, id));
        if let Some((_, _, _, result)) = before {
            let result = result.clone();
            return self.send_answer(own_id, from, (run, id), result, out);
        }
        const WAITING_MAX: usize = 10_000;
        if self.waiting.len() < WAITING_MAX
            && let Ok(change) = serde_json::from_slice::<Change>(change)
        {
            self.waiting.push(Asked { from, run, id, change, yields: Vec::new() });
        }
    }

    fn send_answer(
        &mut self,
        own_id: NodeId,
        to: NodeId,
        (run, id): (u64, u64),
        result: Result<u64, Refusal>,
        out: &mut Effects,
    ) {
        match to == own_id {
            true => self.here.answered.push((id, result)),
            false => out.send([to], &Message::Answered { run, id, result }),
        }
    }

    /// Does what is due now. Returns true if this node leads, since the replica may then have more to send.
    pub(super) fn work(&mut self, turn: &Turn<'_>, keeper: &mut Keeper, out: &mut Effects) -> bool {
        let now_us = turn.now.monotonic_us;
        let status = keeper.status(turn.now);
        let ballot = (status.role == "leader").then_some(status.epoch);
        if ballot != self.ballot {
            if self.ballot.is_some() != ballot.is_some() {
                out.events.push(if ballot.is_some() { Event::Leads } else { Event::LeadsNoMore });
            }
            self.begin(ballot);
        }
        self.is_leased = status.leased && ballot.is_some();
        if ballot.is_none() {
            return false;
        }
        if status.writable && self.appends_since_us.is_none() {
            self.appends_since_us = Some(now_us);
        }
        let is_due = now_us >= self.read_at_us;
        if is_due {
            self.read_at_us = turn.now.next_beat_us(turn.timing.renew_ms * 250);
            keeper.keep_lease(turn.now, out);
        }
        self.settle(turn, keeper.take_end(), out);
        if !self.is_leased {
            return true; // The read must be sent.
        }
        self.grant(turn, keeper.replica.leased_until_us(turn.now), out);
        // Looking through all groups in every turn would cost too much: work that no node requested waits some
        // milliseconds, and is looked for only if anything has changed.
        if self.in_flight.is_none() && status.writable && (is_due || !self.waiting.is_empty()) {
            let outlook = self.outlook(turn, keeper);
            if !self.waiting.is_empty() || outlook.is_none() || outlook != self.looked {
                self.propose(turn, keeper, out);
                self.looked = outlook.filter(|_| self.in_flight.is_none());
            }
        }
        // Last, since a change that changes nothing is answered at once, too.
        self.answer_spread(turn, out);
        true
    }

    pub(super) fn wakeup_us(&self) -> u64 {
        if self.ballot.is_some() { self.read_at_us } else { u64::MAX }
    }

    /// What the leader sees now. None if there is work in any case.
    fn outlook(&self, turn: &Turn<'_>, keeper: &Keeper) -> Option<Outlook> {
        let map: &ClusterMap = turn.map;
        let has_started = |(id, node): (&NodeId, &Node)| {
            self.heard.get(id).is_some_and(|heard| {
                let silence_us = turn.timing.with_margin_us(turn.timing.node_lease_ms);
                heard.start != node.start && turn.now.monotonic_us < heard.at_us + silence_us
            })
        };
        if turn.first.is_some()
            || map.nodes.iter().any(has_started)
            || members_of_control(turn, keeper, map).is_some()
        {
            return None;
        }
        let standing = |id: &NodeId| {
            (*id, self.is_alive(turn, map, *id), self.is_dead(turn, map, *id), self.is_over(turn, *id))
        };
        Some((map.version, turn.are_positions_reported, map.nodes.keys().map(standing).collect()))
    }

    /// Begins another ballot: earlier proposals are committed in the log that was taken over, or never will be.
    fn begin(&mut self, ballot: Option<u64>) {
        self.ballot = ballot;
        self.appends_since_us = None;
        self.unconfirmed.clear();
        self.in_flight = None;
        self.spreading.clear();
        self.waiting.clear();
        self.answered.clear();
        self.looked = None;
        self.is_leased = false;
    }

    // Proposals.

    /// Takes the outcome of the proposal under way. `turn.map` is the newest map that is applied.
    fn settle(&mut self, turn: &Turn<'_>, end: Option<ProposalEnd>, out: &mut Effects) {
        let Some(in_flight) = &mut self.in_flight else { return };
        in_flight.is_unknown |= end == Some(ProposalEnd::Unknown);
        match end {
            Some(ProposalEnd::Won) => {
                let InFlight { version, asked, .. } = self.in_flight.take().expect("it was just there");
                asked.into_iter().for_each(|asked| self.answer_made(turn, version, asked, out));
            }
            Some(ProposalEnd::Lost) => {
                let asked = self.in_flight.take().expect("it was just there").asked;
                self.waiting.splice(0..0, asked);
            }
            // Some proposal made this version. If its proposer is not known, the nodes repeat their requests.
            _ if in_flight.is_unknown && turn.map.version >= in_flight.version => self.in_flight = None,
            _ => {}
        }
    }

    /// Answers a change that the map with this version contains.
    fn answer_made(&mut self, turn: &Turn<'_>, version: u64, asked: Asked, out: &mut Effects) {
        match asked.change {
            Change::Libraries(_)
            | Change::Users(_)
            | Change::CreateKeyspace(_)
            | Change::DropKeyspace(_)
            | Change::RecoverKeyspace { .. }
            | Change::SetKeyspace { .. } => {
                let made_us = turn.now.monotonic_us;
                self.spreading.push(Spreading { version, asked, made_us, noted_us: None });
            }
            _ => self.answer(turn.id, asked, Ok(version), out),
        }
    }

    /// Answers the changes of libraries, users, keyspaces and databases that every node knows which may serve clients:
    /// each node has the map, or it has no lease any more and gets none before it has the map. Groups of registers and of
    /// consensus serve without leases: of each that yields to the change, a majority must have the map. A member that has reported
    /// it never again takes part by an older one: when it is started again, it takes part only with a map that knows that start.
    fn answer_spread(&mut self, turn: &Turn<'_>, out: &mut Effects) {
        if self.spreading.is_empty() {
            return;
        }
        let known = |node: NodeId| match self.heard.get(&node) {
            _ if node == turn.id => turn.map.version,
            _ if self.is_over(turn, node) => u64::MAX,
            heard => heard.map_or(0, |heard| heard.map_version),
        };
        // A node that was removed may still have a lease.
        let nodes = turn.map.nodes.keys().chain(self.granted.keys());
        let known = nodes.map(|node| known(*node)).min().unwrap_or(u64::MAX);
        let now_us = turn.now.monotonic_us;
        // No lease of a group lasts longer than one of a node.
        let lease_us = turn.timing.with_margin_us(turn.timing.node_lease_ms);
        for mut spreading in std::mem::take(&mut self.spreading) {
            let version = spreading.version;
            let has_noted = |node: &NodeId| self.has_map(turn, *node, version);
            let have_yielded = |are_leases_over| {
                spreading.asked.yields.iter().all(|group| group.has_yielded(has_noted, are_leases_over))
            };
            let noted_us = have_yielded(true).then(|| spreading.noted_us.unwrap_or(now_us));
            let are_leases_over = noted_us.is_some_and(|noted_us| now_us >= noted_us + lease_us);
            if version <= known && have_yielded(are_leases_over) {
                self.answer(turn.id, spreading.asked, Ok(version), out);
            } else if now_us < spreading.made_us + turn.timing.answer_ms * 1000 {
                spreading.noted_us = noted_us;
                self.spreading.push(spreading);
            } // Otherwise who asked has given up.
        }
    }

    /// Whether a node that takes part has reported a map that is no older than this version.
    fn has_map(&self, turn: &Turn<'_>, node: NodeId, version: u64) -> bool {
        let start = turn.map.nodes.get(&node).map(|known| known.start);
        let heard = self.heard.get(&node).filter(|heard| Some(heard.start) == start);
        node == turn.id || heard.is_some_and(|heard| heard.map_version >= version)
    }

    fn answer(&mut self, id: NodeId, asked: Asked, result: Result<u64, Refusal>, out: &mut Effects) {
        const KEPT: usize = 256;
        let Asked { from, run, id: number, .. } = asked;
        self.send_answer(id, from, (run, number), result.clone(), out);
        self.answered.push_back((from, run, number, result));
        if self.answered.len() > KEPT {
            self.answered.pop_front();
        }
    }

    fn propose(&mut self, turn: &Turn<'_>, keeper: &mut Keeper, out: &mut Effects) {
        if let Some(first) = &turn.first {
            return self.propose_map(turn, keeper, first, Vec::new(), out);
        }
        let before: &ClusterMap = turn.map;
        let mut next = before.clone();
        let silence_us = turn.timing.with_margin_us(turn.timing.node_lease_ms);
        for (node, heard) in &self.heard {
            // A node that is being replaced has been silent for that long: its last renewals must not admit it again,
            // or its successor, with other storage, would be refused.
            let is_there = turn.now.monotonic_us < heard.at_us + silence_us;
            if is_there
                && turn.are_positions_reported
                && next.nodes.get(node).is_some_and(|known| known.start != heard.start)
                && turn.may_come_in(&next, *node, heard).is_ok()
                && let Ok(map) = next.apply(&heard.as_change(*node))
            {
                next = map;
            }
        }
        let mut changed = Vec::new();
        for mut asked in std::mem::take(&mut self.waiting) {
            asked.yields = Yielding::of(&next, &asked.change);
            match self.make(turn, &next, &asked.change) {
                Ok(map) if map == next && next == *before => {
                    self.answer_made(turn, before.version, asked, out);
                }
                Ok(map) => {
                    next = map;
                    changed.push(asked);
                }
                Err(why) => self.answer(turn.id, asked, Err(why), out),
            }
        }
        // This comes after the starts, so that a node that is registered with an older program holds the level back.
        let level = next.next_level();
        if level > next.level
            && let Ok(map) = next.apply(&Change::RaiseLevel(level))
        {
            next = map;
        }
        if let Some(change) = members_of_control(turn, keeper, &next)
            && let Ok(map) = next.apply(&change)
        {
            next = map;
        }
        for change in next.next_moves(turn.moves_control_group, |node| self.is_alive(turn, &next, node)) {
            if let Ok(map) = next.apply(&change) {
                next = map;
            }
        }
        let leaders = self.replacements(turn, &next);
        for (group, leader) in &leaders {
            let instead_of = next.groups.get(group).map_or(0, |group| group.leader);
            out.events.push(Event::Appointed { group: *group, leader: *leader, instead_of });
        }
        if let Ok(map) = next.apply(&Change::AppointLeaders(leaders)) {
            next = map;
        }
        if next == *before {
            return;
        }
        next.set_version(before.version + 1);
        self.propose_map(turn, keeper, &next, changed, out);
    }

    fn propose_map(
        &mut self,
        turn: &Turn<'_>,
        keeper: &mut Keeper,
        next: &ClusterMap,
        asked: Vec<Asked>,
        out: &mut Effects,
    ) {
        let deposed = deposed(turn.map, next);
        self.in_flight = Some(InFlight { version: next.version, deposed, asked, is_unknown: false });
        keeper.propose(turn.now, next.version, &next.encode(), out);
    }

    /// Makes a change that a node requested, if it is also allowed by what the map alone does not show.
    fn make(&self, turn: &Turn<'_>, map: &ClusterMap, change: &Change) -> Result<ClusterMap, Refusal> {
        let is_fixed = |node: &NodeId| {
            let control = map.groups.get(&CONTROL_GROUP);
            !turn.moves_control_group && control.is_some_and(|group| group.members.contains(node))
        };
        match change {
            Change::NodeStarted { .. } => refuse!("a node itself reports that it started"),
            Change::RaiseLevel(_) => refuse!("the level rises by itself"),
            Change::HoldLevel(_) => {
                if !turn.planted.has(Fault::FeatureUsedEarly) {
                    map.require(Feature::LevelHeld)?;
                }
                map.apply(change)
            }
            Change::RemoveNode { id, .. } | Change::ReplaceNode { id, .. } if is_fixed(id) => {
                refuse!("node {id} is in the control group, whose members cannot be changed yet")
            }
            Change::Saved(_) => {
                map.require(Feature::Backups)?;
                map.apply(change)
            }
            Change::MoveMember { group: CONTROL_GROUP, .. } => {
                refuse!("the control group's members follow from which nodes there are")
            }
            Change::ReplaceNode { id, .. } if !self.is_dead(turn, map, *id) || !self.is_over(turn, *id) => {
                refuse!("node {id} is alive, or was until a moment ago; only a dead node can be replaced")
            }
            Change::AppointLeaders(leaders) => {
                let leads = |(group, _): &(GroupId, NodeId)| map.groups.get(group).map(|group| group.leader);
                let alive = leaders.iter().filter_map(leads).find(|leader| !self.is_over(turn, *leader));
                match alive {
                    Some(alive) => {
                        refuse!("node {alive} leads, and no other node may lead before its lease ends")
                    }
                    None => map.apply(change),
                }
            }
            Change::Resign { group, epoch, to } => {
                let Some(entry) = map.groups.get(group) else { return map.apply(change) };
                let may_lead =
                    |node: &NodeId| self.candidates(turn, map, *group, entry).any(|it| it == *node);
                let next =
                    Some(*to).filter(may_lead).or_else(|| self.successor(turn, map, *group, entry, |_| 0));
                let to = next.unwrap_or(entry.leader);
                map.apply(&Change::Resign { group: *group, epoch: *epoch, to })
            }
            Change::RemoveNode { id, .. } => {
                let next = map.apply(change)?;
                self.check_without(turn, map, *id)?;
                Ok(next)
            }
            Change::CreateKeyspace(keyspace) => {
                if keyspace.database() != 0 {
                    map.require(Feature::Databases)?;
                }
                map.require_eviction(keyspace)?;
                let is_alive = |node| self.is_alive(turn, map, node);
                let next = checked(map.apply_knowing(change, &is_alive)?, &keyspace.prefix)?;
                check_groups(map, &next, turn.groups_max)
                    .map_err(|why| format!("keyspace '{}': {why}", keyspace.name()))?;
                Ok(next)
            }
            Change::SetKeyspace { prefix, .. } => checked(map.apply(change)?, prefix),
            Change::MoveMember { step: Step::Add(_) | Step::Remove(_), .. }
            | Change::Quarantine { .. }
            | Change::Libraries(_)
            | Change::Users(_)
            | Change::DropKeyspace(_)
            | Change::RecoverKeyspace { .. }
            | Change::AddNode(_)
            | Change::ReplaceNode { .. }
            | Change::PreferLeader { .. }
            | Change::DrainNode { .. }
            | Change::InSync { .. } => map.apply(change),
        }
    }

    /// Refuses to remove a node if too many of the others are dead: its groups would wait for them, and could not
    /// change any more.
    fn check_without(&self, turn: &Turn<'_>, map: &ClusterMap, id: NodeId) -> Result<(), String> {
        let is_alive = |node: &NodeId| self.is_alive(turn, map, *node);
        let staying: Vec<NodeId> = map.staying().into_iter().filter(|node| *node != id).collect();
        let own = usize::from(is_alive(&id));
        for (group_id, group) in map.groups.iter().filter(|(_, group)| group.members.contains(&id)) {
            let others: Vec<NodeId> = group.members.iter().copied().filter(|node| *node != id).collect();
            let alive = others.iter().copied().filter(is_alive).count();
            let free = staying.iter().copied().filter(|node| !others.contains(node)).filter(is_alive).count();
            let added = map.replicas_of(*group_id, staying.len()).saturating_sub(others.len()).min(free);
            let is_enough = match map.protocol(*group_id) {
                Protocol::Consensus => {
                    2 * (alive + own) > group.members.len() && 2 * (alive + added) > others.len() + added
                }
                Protocol::LeaderFollower if own == 0 && map.acks(*group_id) == Acks::All => {
                    group.in_sync.iter().any(|node| *node != id && is_alive(node))
                }
                Protocol::LeaderFollower => alive > 0 || own > 0 && added > 0,
                Protocol::Abd | Protocol::Blocking => true,
            };
            if !is_enough {
                let (name, count) = (map.name_of(*group_id), others.len());
                let silent = others.iter().filter(|node| !is_alive(node)).map(NodeId::to_string);
                let silent: Vec<String> = silent.collect();
                let why = match silent.is_empty() {
                    true => format!("it does not answer, and no other node holds what {name} holds"),
                    false => format!(
                        "without it {alive} of {count} replicas of {name} would be left that answer: node {} does not",
                        silent.join(" and node ")
                    ),
                };
                return Err(format!(
                    "node {id} cannot be removed now: {why}. Bring back the nodes that do not answer, or remove or replace \
                     those first"
                ));
            }
        }
        Ok(())
    }

    // Leases.

    /// Answers the open renewals.
    fn grant(&mut self, turn: &Turn<'_>, leased_until_us: u64, out: &mut Effects) {
        let now_us = turn.now.monotonic_us;
        let serve_on = self.leaving_without_successor(turn);
        for (node, heard) in &mut self.heard {
            // A renewal that could not be answered at once is not answered later: the node would look alive.
            heard.is_open &= now_us < heard.at_us + turn.timing.renew_ms * 1000;
            if !heard.is_open {
                continue;
            }
            let Some(known) = turn.map.nodes.get(node) else {
                if turn.map.version > 0 {
                    heard.is_open = false;
                    // A node that was in the cluster learns from the map that it was removed.
                    if turn.map.version > heard.map_version && *node != turn.id {
                        out.send([*node], &Message::Map { bytes: &turn.map.encode() });
                    }
                    let why = format!(
                        "the cluster has no node {node}; to let it in: quorate node add {node} HOST CLIENT-PORT HTTP-PORT PEER-PORT (CLUSTER ADD)"
                    );
                    refuse(turn, *node, heard.start, why, &mut self.here, out);
                }
                continue;
            };
            if turn.map.version > heard.map_version && *node != turn.id {
                out.send([*node], &Message::Map { bytes: &turn.map.encode() });
            }
            if known.start != heard.start {
                if turn.are_positions_reported
                    && let Err(why) = turn.may_come_in(turn.map, *node, heard)
                {
                    heard.is_open = false;
                    refuse(turn, *node, heard.start, why, &mut self.here, out);
                }
                continue;
            }
            let is_deposed = self.in_flight.as_ref().is_some_and(|it| it.deposed.contains(node));
            let is_to_stop = known.state == NodeState::Leaving && !serve_on.contains(node);
            if is_deposed || is_to_stop || turn.map.version == 0 {
                continue;
            }
            // A lease never outlasts this leader's own by much, so that the next leader need not wait long.
            let own_us = leased_until_us.saturating_add(turn.timing.grace_ms * 1000).saturating_sub(now_us);
            let lease_us = own_us.min(turn.timing.node_lease_ms * 1000);
            heard.is_open = false;
            let (sequence, map_version) = (heard.sequence, turn.map.version);
            let granted = *self.unconfirmed.entry(*node).or_insert((sequence, now_us));
            let lasts_us = if is_deaf(turn, granted) { 0 } else { lease_us };
            if lasts_us > 0 {
                self.granted.insert(*node, now_us);
            }
            match *node == turn.id {
                true => self.here.renewed = Some((sequence, map_version, lasts_us)),
                false => out.send([*node], &Message::Renewed { sequence, map_version, lasts_us }),
            }
        }
    }

    /// The nodes that are leaving but lead a group in which no other member can be appointed yet: the group is not
    /// settled, or the candidates are dead or not in sync. The group settles, and members get in sync, only while it
    /// has a leader that serves.
    fn leaving_without_successor(&self, turn: &Turn<'_>) -> BTreeSet<NodeId> {
        let is_leaving =
            |node: &NodeId| turn.map.nodes.get(node).is_some_and(|known| known.state == NodeState::Leaving);
        let lacks_successor = |(id, group): &(&GroupId, &Group)| {
            let has_candidate = || self.candidates(turn, turn.map, **id, group).next().is_some();
            turn.map.protocol(**id) == Protocol::LeaderFollower && !(group.settled && has_candidate())
        };
        let groups = turn.map.groups.iter().filter(|(_, group)| is_leaving(&group.leader));
        groups.filter(lacks_successor).map(|(_, group)| group.leader).collect()
    }

    /// Whether a node renewed lately, with the start that the map knows, and receives messages.
    fn is_alive(&self, turn: &Turn<'_>, map: &ClusterMap, id: NodeId) -> bool {
        let (Some(heard), Some(known)) = (self.heard.get(&id), map.nodes.get(&id)) else { return false };
        let silent_us = turn.now.monotonic_us.saturating_sub(heard.at_us);
        let renews = silent_us < turn.timing.with_margin_us(turn.timing.node_lease_ms)
            || self.vouches.excuse(id, turn.now, heard.at_us);
        heard.start == known.start && renews && !self.counts_as_deaf(turn, id)
    }

    /// Whether a node has received nothing for so long that it must be cut off. One that is busy only reads late.
    fn counts_as_deaf(&self, turn: &Turn<'_>, id: NodeId) -> bool {
        self.unconfirmed
            .get(&id)
            .is_some_and(|granted| is_deaf(turn, *granted) && !self.vouches.excuse(id, turn.now, granted.1))
    }

    /// Whether a node was silent, or has received nothing, for so long that it must be dead or cut off, and is not just
    /// busy. A node that never sent this leader anything may be about to start.
    fn is_dead(&self, turn: &Turn<'_>, map: &ClusterMap, id: NodeId) -> bool {
        let Some(since_us) = self.appends_since_us else { return false };
        let known = map.nodes.get(&id).map(|node| node.start);
        let heard = self.heard.get(&id).filter(|heard| Some(heard.start) == known);
        let last_us = heard.map_or(since_us, |heard| heard.at_us);
        let is_silent =
            turn.now.monotonic_us >= last_us + turn.timing.with_margin_us(turn.timing.node_lease_ms);
        // Another start of the node may be the one that is busy.
        let is_excused = heard.is_some() && self.vouches.excuse(id, turn.now, last_us);
        self.counts_as_deaf(turn, id) || is_silent && !is_excused
    }

    /// Whether every lease that a node ever got is over, whichever leader granted it.
    fn is_over(&self, turn: &Turn<'_>, id: NodeId) -> bool {
        let now_us = turn.now.monotonic_us;
        let Some(since_us) = self.appends_since_us else { return false };
        // A leader without other control nodes waited for no log lease before it appended.
        let is_alone = turn.map.groups.get(&CONTROL_GROUP).is_some_and(|group| group.members.len() == 1);
        let earlier_ms = if is_alone { turn.timing.node_lease_ms } else { turn.timing.grace_ms };
        let own_us = self.granted.get(&id).copied();
        let is_own_over = own_us.is_none_or(|granted_us| {
            now_us >= granted_us + turn.timing.with_margin_us(turn.timing.node_lease_ms)
        });
        is_own_over && now_us >= since_us + turn.timing.with_margin_us(earlier_ms)
    }

    /// The next leaders of groups whose leaders are dead or leave.
    fn replacements(&self, turn: &Turn<'_>, map: &ClusterMap) -> Vec<(GroupId, NodeId)> {
        let mut leads: BTreeMap<NodeId, usize> = BTreeMap::new();
        map.groups.values().for_each(|group| *leads.entry(group.leader).or_default() += 1);
        let mut replacements = Vec::new();
        let is_followed = |(id, _): &(&GroupId, &Group)| map.protocol(**id) == Protocol::LeaderFollower;
        for (id, group) in map.groups.iter().filter(is_followed) {
            // No node, the leader's own included, regards a stopped leader as leading until the map allows it to go
            // on.
            let is_stopped = map.quarantine.stands(*id, group.leader).is_some();
            let is_to_go = is_stopped
                || map.nodes.get(&group.leader).is_none_or(|node| node.state == NodeState::Leaving)
                || self.is_dead(turn, map, group.leader);
            if !is_to_go || !group.settled || !(is_stopped || self.is_over(turn, group.leader)) {
                continue;
            }
            let load = |node: &NodeId| leads.get(node).copied().unwrap_or(0);
            if let Some(chosen) = self.successor(turn, map, *id, group, load) {
                *leads.entry(chosen).or_default() += 1;
                replacements.push((*id, chosen));
            }
        }
        replacements
    }

    /// The node that leads a group next: one that need not fetch anything, if possible, and of those one that leads few.
    fn successor(
        &self,
        turn: &Turn<'_>,
        map: &ClusterMap,
        id: GroupId,
        group: &Group,
        load: impl Fn(&NodeId) -> usize,
    ) -> Option<NodeId> {
        let rank = |node: &NodeId| (!group.in_sync.contains(node), map.is_drained(*node), load(node), *node);
        self.candidates(turn, map, id, group).min_by_key(rank)
    }

    /// The nodes that may lead a group next, and can serve it.
    fn candidates(
        &self,
        turn: &Turn<'_>,
        map: &ClusterMap,
        id: GroupId,
        group: &Group,
    ) -> impl Iterator<Item = NodeId> {
        let eligible = if map.acks(id) == Acks::All { &group.in_sync } else { &group.members };
        let stays = |node: &NodeId| map.nodes.get(node).is_some_and(|node| node.state == NodeState::Member);
        eligible
            .iter()
            .copied()
            .filter(move |node| *node != group.leader && stays(node) && self.is_alive(turn, map, *node))
            .filter(move |node| map.quarantine.stands(id, *node).is_none())
    }

    /// Sends a new map to the nodes that have no replica of the control group.
    pub(super) fn spread(&self, map: &ClusterMap, out: &mut Effects) {
        if !self.is_leased {
            return;
        }
        let holds_log =
            |node: &NodeId| map.groups.get(&CONTROL_GROUP).is_some_and(|it| it.members.contains(node));
        // The node that was just removed gets it as well.
        let to = self.heard.keys().copied().filter(|node| !holds_log(node));
        out.send(to, &Message::Map { bytes: &map.encode() });
    }
}

/// Whether a node that was granted something at some time, and has not confirmed it, receives no messages.
fn is_deaf(turn: &Turn<'_>, (_, granted_us): (u64, u64)) -> bool {
    turn.now.monotonic_us >= granted_us + turn.timing.with_margin_us(turn.timing.node_lease_ms)
}

/// The nodes that lose leaderships of leader-follower groups with a change.
fn deposed(before: &ClusterMap, after: &ClusterMap) -> BTreeSet<NodeId> {
    let leads_no_more = |(id, group): &(&GroupId, &Group)| {
        before.protocol(**id) == Protocol::LeaderFollower
            && after.groups.get(id).is_none_or(|it| it.leader != group.leader)
    };
    before.groups.iter().filter(leads_no_more).map(|(_, group)| group.leader).collect()
}

/// Returns a change that names the nodes which take part in the control group's newest membership, if they are more
/// than the map names.
fn members_of_control(turn: &Turn<'_>, keeper: &Keeper, map: &ClusterMap) -> Option<Change> {
    let group = map.groups.get(&CONTROL_GROUP)?;
    let status = keeper.status(turn.now);
    if u64::from(status.configuration) != group.epoch {
        return None;
    }
    let holds_all = |it: &&FollowerStatus| it.live && it.accepted >= status.applied_entries;
    let followers = status.followers.iter().filter(holds_all).map(|follower| follower.id);
    let mut in_sync: Vec<NodeId> = followers.chain([turn.id]).collect();
    in_sync.retain(|node| group.members.contains(node));
    in_sync.sort_unstable();
    let is_news = in_sync != group.in_sync && (!group.settled || in_sync.len() > group.in_sync.len());
    let Group { epoch, revision, .. } = *group;
    is_news.then_some(Change::InSync { group: CONTROL_GROUP, epoch, revision, in_sync })
}

fn refuse(turn: &Turn<'_>, node: NodeId, start: Start, why: String, here: &mut Here, out: &mut Effects) {
    match node == turn.id {
        true => here.refused = Some(why),
        false => out.send([node], &Message::Refused { start, map_version: turn.map.version, why }),
    }
}

/// Refuses a map in which a node that gets more groups has too many.
fn check_groups(before: &ClusterMap, after: &ClusterMap, groups_max: usize) -> Result<(), String> {
    let count = |map: &ClusterMap, node: NodeId| {
        let groups = map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP);
        groups.filter(|(_, group)| group.members.contains(&node)).count()
    };
    for node in after.nodes.keys() {
        let (had, has) = (count(before, *node), count(after, *node));
        if has > had && has > groups_max {
            return Err(format!(
                "node {node} holds replicas of {had} groups (shards of keyspaces) and may hold {groups_max} \
                 (limits.groups_max): {} more are too many; use fewer shards or replicas, or drop a keyspace",
                has - had
            ));
        }
    }
    Ok(())
}

/// Refuses what this version of the program cannot keep.
fn checked(map: ClusterMap, prefix: &str) -> Result<ClusterMap, Refusal> {
    let nodes = map.nodes.len();
    if let Some(entry) = map.keyspaces.get(prefix) {
        let mut keyspace = entry.keyspace.clone();
        keyspace.leader = 1; // The leader was checked already; nodes' numbers may have gaps.
        keyspace.check(nodes)?;
    }
    Ok(map)
}
