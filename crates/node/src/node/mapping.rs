//! How a node follows the cluster map: the groups that it takes part in, and its peers.

use super::Node;
use crate::context::peers;
use crate::control::{CONTROL_GROUP, ClusterMap, Rejoin};
use crate::groups::Group;
use crate::journal::Tail;
use crate::keyspace::Router;
use crate::replica::Replica;
use crate::setting::Protocol;
use protocol::Input;
use std::rc::Rc;

/// How much longer than the command timeout a group of a dropped keyspace is kept, so that waiting clients get an
/// answer.
const FAREWELL_MS: u64 = 1000;

impl Node {
    /// Adopts a map of the cluster.
    pub(crate) fn take_map(&mut self, map: &Rc<ClusterMap>) {
        self.cx.configuration.nodes = map.nodes.values().map(|node| node.address.clone()).collect();
        self.cx.configuration.keyspaces =
            map.keyspaces.values().map(|entry| entry.keyspace.clone()).collect();
        let last = map.nodes.keys().max().copied().unwrap_or_default();
        self.cx.peers.grow(last);
        let prefixes = map.keyspaces.iter();
        self.cx.router =
            Router::new(prefixes.map(|(prefix, entry)| (prefix.clone().into(), entry.groups.clone())));
        let gone: Vec<u16> =
            self.cx.groups.ids().iter().copied().filter(|id| !map.groups.contains_key(id)).collect();
        for id in gone {
            let patience_ms = self.cx.configuration.command_timeout_ms + FAREWELL_MS;
            self.cx.groups.dismiss(id, self.cx.now.monotonic_us + patience_ms * 1000);
        }
        let mut is_coding = self.coding.is_on;
        for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
            let Some(keyspace) = map.keyspaces.get(&entry.keyspace).map(|entry| &entry.keyspace) else {
                continue;
            };
            let group = self.cx.groups.entry(*id, || Group::new(keyspace.clone(), entry.shard));
            group.shard = entry.shard;
            group.members.clone_from(&entry.members);
            group.leader = entry.leader;
            group.coding = keyspace.coding();
            is_coding |= group.coding.is_some();
            self.values.is_on |= keyspace.spills();
            if group.keyspace != *keyspace {
                group.keyspace = keyspace.clone();
                self.cx.journal.set_durability(&mut group.tail, keyspace.durability());
                let planted = self.cx.configuration.planted;
                if let Some(replica) = &mut group.replica {
                    replica.set_keyspace(keyspace, planted);
                }
                // It may be above its bound on memory now.
                self.cx.groups.touch(*id);
            }
        }
        if is_coding && !self.coding.is_on {
            self.coding.begin(self.cx.now.monotonic_us);
        }
        if let Some(default) = map.keyspaces.get("") {
            self.cx.parameters.follow(&default.keyspace);
        }
        self.quarantine.follow(&mut self.cx, map);
        if self.cx.is_admitted {
            self.take_part(map);
        }
        self.cx.map = Rc::clone(map);
        self.clock.follow_map(&mut self.cx);
    }

    /// Makes replicas where this node is a member, configures all of them with their group's members, and drops those
    /// that are not needed any more.
    fn take_part(&mut self, map: &ClusterMap) {
        let own = self.cx.configuration.node;
        let taking_part: Vec<u16> = map.groups_of(own).map(|(id, _)| id).collect();
        for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
            let is_member = entry.members.contains(&own);
            let takes_part = is_member && taking_part.contains(id);
            let Some(group) = self.cx.groups.get_mut(*id) else { continue };
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
                        self.cx.journal.forget(*id);
                    }
                }
                continue;
            }
            if group.replica.is_none() {
                let mut replica = Replica::new(&group.keyspace, *id, &self.cx.configuration);
                // A member that starts again changes its groups in the map first.
                if entry.revision == 0 {
                    replica.begin_with_group();
                }
                self.quarantine.attach(*id, &mut replica);
                let (changes, misses) = self.following.noted;
                replica.follow_changes(changes, misses);
                group.replica = Some(replica);
                group.is_recorded = self.cx.journal.describe(*id, &mut group.tail, &group.keyspace);
                self.quarantine.resume(&mut self.cx, *id, map);
            }
            let Some(group) = self.cx.groups.get_mut(*id) else { continue };
            if group.holds.is_some() {
                continue; // It is configured when it goes on.
            }
            let rejoin = map.nodes.get(&own).and_then(|node| node.rejoins.get(id));
            if let (Some(replacement), Some(replica), None) =
                (rejoin.and_then(Rejoin::replacement), &mut group.replica, &group.configured)
            {
                replica.replaced(&replacement);
            }
            let configuration = entry.configuration_of(own, self.cx.configuration.life);
            if group.configured.as_ref() != Some(&configuration) {
                group.configured = Some(configuration.clone());
                self.step(*id, Input::Configure(&configuration));
                let until_us = self.cluster.control.lease_until_us();
                self.step(*id, Input::Lease { until_us });
                for peer in self.cx.peers.ids() {
                    if self.cx.peers.is_up(peer) {
                        self.step(*id, Input::Link { peer, up: true });
                        peers::set_reached(&mut self.cx, *id, peer);
                    }
                }
            }
        }
    }

    /// Drops a replica: all of its requests get outcomes with that.
    pub(crate) fn retire(&mut self, id: u16) {
        let group = &mut self.cx.groups[id];
        group.configured = None;
        let Some(mut replica) = group.replica.take() else { return };
        if let Some(values) = replica.spilled_values().filter(|_| group.keyspace.spills()) {
            self.values.let_go(id, values.spilled(), group.tail.is_durable());
        }
        // A later replica of the group numbers its records from the beginning.
        group.tail = Tail::new(group.keyspace.durability());
        let stepped = replica.step(self.cx.now, Input::Retire, &mut self.effects);
        assert_eq!(stepped, Ok(()), "only a message can be malformed");
        self.effects.keep_ends();
        self.settle(id);
    }

    /// Removes groups whose keyspace was dropped a while ago.
    pub(crate) fn forget_dismissed(&mut self) {
        while let Some(id) = self.cx.groups.next_dismissed(self.cx.now.monotonic_us) {
            self.retire(id);
            self.forwarding.end_forwards_for_good(
                &mut self.cx,
                |entry| entry.group == id,
                "had no answer before its keyspace was dropped",
            );
            self.forwarding.end_waiting(&mut self.cx, id);
            self.cx.groups.remove_dismissed(id);
            self.cx.journal.forget(id);
        }
    }
}
