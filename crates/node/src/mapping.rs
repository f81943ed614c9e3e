//! How a node follows the cluster map: the groups that it takes part in, its peers, and the way to the control group
//! and back.

use crate::control::{self, CONTROL_GROUP, Change, ChangeError, ClusterMap, Effects, Event, Rejoin};
use crate::groups::Group;
use crate::journal::Tail;
use crate::keyspace::Router;
use crate::log::{Level, Line};
use crate::node::Node;
use crate::peers::Peer;
use crate::replica::Replica;
use crate::session::ClientId;
use crate::setting::Protocol;
use protocol::{Input, NodeId, Recipient, Result as Outcome, Ticket, Wish};
use std::rc::Rc;

/// The group number of the map's own records in the node's log.
pub(crate) const MAP_GROUP: u16 = u16::MAX;

/// How much longer than the command timeout a group of a dropped keyspace is kept, so that waiting clients get an
/// answer.
const FAREWELL_MS: u64 = 1000;

/// A client that waits for a change of the map.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    request: u64,
    ticket: Ticket,
    /// The version of the map that has it, once that is known: the client is answered when this node has that version,
    /// too.
    version: Option<u64>,
    /// The keyspace that it makes: the client is answered when that serves, or has had some time to.
    creates: Option<String>,
    until_us: u64,
}

impl Node {
    /// Begins to take part in the control group's work.
    pub(crate) fn start_control(&mut self) {
        let mut effects = std::mem::take(&mut self.control_effects);
        self.control.start(self.now, self.journal.durable(), &mut effects);
        self.settle_control(effects);
    }

    /// Gives an input to the control component, which then ends its turn with this one.
    pub(crate) fn control(
        &mut self,
        input: impl FnOnce(&mut crate::control::Control, protocol::Now, &mut Effects),
    ) {
        let mut effects = std::mem::take(&mut self.control_effects);
        input(&mut self.control, self.now, &mut effects);
        self.control_is_due = true;
        self.settle_control(effects);
    }

    /// Ends the control component's turn, if it took part in this one.
    pub(crate) fn flush_control(&mut self) {
        if std::mem::take(&mut self.control_is_due) {
            let mut effects = std::mem::take(&mut self.control_effects);
            if self.is_admitted && self.map_tail.may_leave(self.admission_record) {
                self.control.log_is_durable(self.journal.durable());
            }
            self.control.flush(self.now, &mut effects);
            self.settle_control(effects);
            self.control_wakeup_us = self.control.wakeup_us(self.now);
        }
    }

    /// Carries out the effects that the control component has left.
    fn settle_control(&mut self, mut effects: Effects) {
        // First, since the end of the log that it holds is from before this start had appended anything.
        if let Some(record) = effects.positions_record.take() {
            self.positions_record = effects.bytes[record].to_vec();
            self.journal.append(MAP_GROUP, &mut self.map_tail, [&self.positions_record, &[]]);
            if effects.is_admitted {
                self.admission_record = self.map_tail.recorded();
            }
        }
        for record in effects.records.drain(..) {
            self.journal.append(CONTROL_GROUP, &mut self.control_tail, [&effects.bytes[record], &[]]);
        }
        for message in effects.messages.drain(..) {
            let parts = message.bytes.parts(&effects.bytes);
            if self.control_tail.may_leave(message.after_record) {
                self.send(CONTROL_GROUP, message.to, Recipient::Replica, parts);
            } else {
                self.control_tail.hold(message.after_record, message.to, Recipient::Replica, parts);
            }
        }
        if let Some(record) = effects.map_record.take() {
            self.map_record = effects.bytes[record].to_vec();
            self.journal.append(MAP_GROUP, &mut self.map_tail, [&self.map_record, &[]]);
        }
        let map = effects.map.take();
        let is_admitted = std::mem::take(&mut effects.is_admitted);
        let lease = effects.lease_until_us.take();
        for answer in effects.answers.drain(..) {
            self.answered(answer.request, answer.result);
        }
        for event in effects.events.drain(..) {
            self.log.push(describe(&event));
        }
        for event in effects.trace.drain(..) {
            self.log.extend(crate::log::describe("control", &event));
        }
        let is_refused = effects.refused.is_some();
        self.is_removed |= effects.is_removed;
        effects.clear();
        self.control_effects = effects;
        self.is_admitted |= is_admitted;
        if is_refused {
            // Another start of this node was admitted, or it lost its storage: it must not take part in anything.
            self.is_admitted = false;
            self.for_each_group(Node::retire);
        }
        if map.is_some() || is_admitted {
            let map = map.unwrap_or_else(|| Rc::clone(self.control.map()));
            self.take_map(&map);
        }
        if let Some(until_us) = lease {
            self.groups.extend_leases(until_us);
            self.for_each_awake(|node, id| node.step(id, Input::Lease { until_us }));
        }
        self.end_wanted();
    }

    // The map.

    /// Adopts a map of the cluster.
    pub(crate) fn take_map(&mut self, map: &ClusterMap) {
        self.configuration.nodes = map.nodes.values().map(|node| node.address.clone()).collect();
        self.configuration.keyspaces = map.keyspaces.values().map(|entry| entry.keyspace.clone()).collect();
        let last = map.nodes.keys().max().copied().unwrap_or_default();
        if self.peers.len() < usize::from(last) {
            self.peers.resize_with(usize::from(last), Peer::default);
        }
        let prefixes = map.keyspaces.iter();
        self.router =
            Router::new(prefixes.map(|(prefix, entry)| (prefix.clone().into(), entry.groups.clone())));
        let gone: Vec<u16> =
            self.groups.ids().iter().copied().filter(|id| !map.groups.contains_key(id)).collect();
        for id in gone {
            let patience_ms = self.configuration.command_timeout_ms + FAREWELL_MS;
            self.groups.dismiss(id, self.now.monotonic_us + patience_ms * 1000);
        }
        let mut is_coding = self.coding.is_on;
        for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
            let Some(keyspace) = map.keyspaces.get(&entry.keyspace).map(|entry| &entry.keyspace) else {
                continue;
            };
            let group = self.groups.entry(*id, || Group::new(keyspace.clone(), entry.shard));
            group.shard = entry.shard;
            group.members.clone_from(&entry.members);
            group.leader = entry.leader;
            group.coding = keyspace.coding();
            is_coding |= group.coding.is_some();
            self.values.is_on |= keyspace.spills();
            if group.keyspace != *keyspace {
                group.keyspace = keyspace.clone();
                self.journal.set_durability(&mut group.tail, keyspace.durability());
                let planted = self.configuration.planted;
                if let Some(replica) = &mut group.replica {
                    replica.set_keyspace(keyspace, planted);
                }
            }
        }
        if is_coding && !self.coding.is_on {
            self.coding.begin(self.now.monotonic_us);
        }
        self.quarantine_follows(map);
        if self.is_admitted {
            self.take_part(map);
        }
        self.map = Rc::clone(self.control.map());
        self.clock_follows_map();
    }

    /// Makes replicas where this node is a member, configures all of them with their group's members, and drops those
    /// that are not needed any more.
    fn take_part(&mut self, map: &ClusterMap) {
        let own = self.configuration.node;
        let taking_part: Vec<u16> = map.groups_of(own).map(|(id, _)| id).collect();
        for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
            let is_member = entry.members.contains(&own);
            let takes_part = is_member && taking_part.contains(id);
            let Some(group) = self.groups.get_mut(*id) else { continue };
            // A node that is to leave a consensus group may lead it, and its vote may be needed, until the others can
            // do without it: its replica has to know what is wanted of it. This does not hold for a node that lost its
            // storage.
            let has_lost = map.nodes.get(&own).is_some_and(|node| node.rejoins.contains_key(id));
            let is_elected = group.replica.is_some() && group.keyspace.replication == Protocol::Consensus;
            let is_leaving = !entry.settled && !has_lost && is_elected;
            if !takes_part && !is_leaving {
                // The data of a member that has to rejoin is of no use. A node that is no longer a member may still have
                // to give the new members what they lack.
                if is_member || entry.settled {
                    let was_recorded = std::mem::take(&mut group.is_recorded);
                    self.retire(*id);
                    if was_recorded {
                        self.journal.forget(*id);
                    }
                }
                continue;
            }
            if group.replica.is_none() {
                let mut replica = Replica::new(&group.keyspace, *id, &self.configuration);
                // A member that starts again changes its groups in the map first.
                if entry.revision == 0 {
                    replica.begin_with_group();
                }
                self.quarantine.attach(*id, &mut replica);
                group.replica = Some(replica);
                group.is_recorded = self.journal.describe(*id, &mut group.tail, &group.keyspace);
                self.resume_group(*id, map);
            }
            let Some(group) = self.groups.get_mut(*id) else { continue };
            if group.holds.is_some() {
                continue; // It is configured when it goes on.
            }
            let rejoin = map.nodes.get(&own).and_then(|node| node.rejoins.get(id));
            if let (Some(replacement), Some(replica), None) =
                (rejoin.and_then(Rejoin::replacement), &mut group.replica, &group.configured)
            {
                replica.replaced(&replacement);
            }
            let configuration = entry.configuration_of(own, self.configuration.life);
            if group.configured.as_ref() != Some(&configuration) {
                group.configured = Some(configuration.clone());
                self.step(*id, Input::Configure(&configuration));
                let until_us = self.control.lease_until_us();
                self.step(*id, Input::Lease { until_us });
                let up: Vec<NodeId> =
                    (1..=self.peers.len() as NodeId).filter(|id| self.peer_is_up(*id)).collect();
                for peer in up {
                    self.step(*id, Input::Link { peer, up: true });
                    self.set_reached(*id, peer);
                }
            }
        }
    }

    /// Drops a replica: all of its requests get outcomes with that.
    fn retire(&mut self, id: u16) {
        let group = &mut self.groups[id];
        group.configured = None;
        let Some(mut replica) = group.replica.take() else { return };
        if let Some(values) = replica.spilled_values().filter(|_| group.keyspace.spills()) {
            self.values.let_go(id, values.spilled(), group.tail.is_durable());
        }
        // A later replica of the group numbers its records from the beginning.
        group.tail = Tail::new(group.keyspace.durability());
        let stepped = replica.step(self.now, Input::Retire, &mut self.effects);
        assert_eq!(stepped, Ok(()), "only a message can be malformed");
        self.effects.keep_ends();
        self.settle(id);
    }

    /// Removes groups whose keyspace was dropped a while ago.
    pub(crate) fn forget_dismissed(&mut self) {
        while let Some(id) = self.groups.next_dismissed(self.now.monotonic_us) {
            self.retire(id);
            self.end_forwards_for_good(
                |entry| entry.group == id,
                "had no answer before its keyspace was dropped",
            );
            self.end_waiting(id);
            self.groups.remove_dismissed(id);
            self.journal.forget(id);
        }
    }

    /// Reports to the control group which nodes take part in a new membership of the consensus groups that this node
    /// leads.
    pub(crate) fn report_members(&mut self) {
        let map = Rc::clone(&self.map);
        let is_whole = |group: &control::Group| group.settled && group.in_sync.len() == group.members.len();
        for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
            if is_whole(entry) {
                continue;
            }
            let replica = self.groups.get(*id).and_then(|group| group.replica.as_ref());
            let Some(mut in_sync) = replica.and_then(|replica| replica.voters_of(self.now, entry.epoch))
            else {
                continue;
            };
            in_sync.retain(|node| {
                entry.members.contains(node) && self.has_its_fragments(*id, *node, entry.epoch)
            });
            if entry.in_sync != in_sync && (!entry.settled || in_sync.len() > entry.in_sync.len()) {
                self.wish(*id, Wish::InSync { epoch: entry.epoch, in_sync });
            }
        }
    }

    // Changes.

    /// Asks the control group for a change that a leader's replica needs.
    pub(crate) fn wish(&mut self, group: u16, wish: Wish) {
        let Wish::InSync { epoch, in_sync } = wish;
        let revision = self.map.groups.get(&group).map_or(0, |entry| entry.revision);
        let change = Change::InSync { group, epoch, revision, in_sync };
        self.requests += 1;
        let request = self.requests;
        self.control(|control, now, effects| control.change(now, request, &change, effects));
    }

    /// Asks the control group for a change that a client wants.
    pub(crate) fn change_for(&mut self, client: ClientId, change: &Change) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let ticket = session.begin(false);
        self.requests += 1;
        let request = self.requests;
        let creates = match change {
            Change::CreateKeyspace(keyspace) => Some(keyspace.prefix.clone()),
            _ => None,
        };
        const SERVES_MS: u64 = 2000;
        let until_us = self.now.monotonic_us + SERVES_MS * 1000;
        self.wanted.push(Wanted { request, ticket, version: None, creates, until_us });
        self.control(|control, now, effects| control.change(now, request, change, effects));
    }

    fn answered(&mut self, request: u64, result: Result<u64, ChangeError>) {
        let Some(at) = self.wanted.iter().position(|wanted| wanted.request == request) else { return };
        match result {
            Ok(version) => self.wanted[at].version = Some(version),
            Err(error) => {
                let Wanted { ticket, .. } = self.wanted.remove(at);
                self.complete_with_error(ticket, 0, error.outcome(), &error.to_string());
            }
        }
    }

    /// Answers the clients whose changes are in this node's map.
    pub(crate) fn end_wanted(&mut self) {
        while let Some(at) = self.wanted.iter().position(|wanted| self.is_done(wanted)) {
            let Wanted { ticket, .. } = self.wanted.remove(at);
            let mut replies = kv::ReplyBuffer::new();
            replies.ok();
            let done = Outcome::Done { version: 0, offset: 0 };
            self.complete(ticket, 0, done, replies.as_bytes());
        }
    }

    fn is_done(&self, wanted: &Wanted) -> bool {
        let Wanted { version, creates, until_us, .. } = wanted;
        version.is_some_and(|version| version <= self.map.version)
            && (self.now.monotonic_us >= *until_us
                || creates.as_ref().is_none_or(|prefix| self.serves(prefix)))
    }

    /// Whether all shards of a keyspace can be served from here.
    fn serves(&self, prefix: &str) -> bool {
        let groups = self.map.keyspaces.get(prefix).map(|entry| entry.groups.as_slice()).unwrap_or_default();
        groups.iter().all(|id| self.groups.get(*id).is_some() && self.group_status(*id).ready)
    }
}

fn describe(event: &Event) -> Line {
    let (level, text) = match event {
        Event::Leads => (Level::Info, "this node leads the control group".to_string()),
        Event::LeadsNoMore => (Level::Info, "this node leads the control group no more".to_string()),
        Event::Appointed { group, leader, instead_of } => {
            (Level::Warning, format!("group {group} is led by node {leader} instead of node {instead_of}"))
        }
        Event::Admitted => (Level::Info, "the control group has let this node in".to_string()),
        Event::Refused { why } => (Level::Error, format!("this node may not take part: {why}")),
        Event::Removed { map_version } => (
            Level::Warning,
            format!(
                "this node was removed from the cluster: the cluster has no node of this number in its map {map_version}. \
                 The process ends; CLUSTER ADD lets a node of this number in again"
            ),
        ),
        Event::WaitsFor { nodes } => {
            (Level::Info, format!("a new cluster begins when nodes {nodes:?} have started, too"))
        }
    };
    Line { level, text }
}
