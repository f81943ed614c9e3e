//! What the cluster has lost at the moment, and whether the promises would survive further losses. The newest cluster
//! map says who the members of each group are.

use super::World;
use crate::events::Place;
use crate::faults::Class;
use crate::host::Host;
use crate::operation::{Key, Kind, QUEUES};
use crate::promise::{Durability, Space};
use crate::trace::id;
use cluster::control::{CONTROL_GROUP, ClusterMap, Group, GroupId};
use node::{KeyspaceHealth, Node, NodeId};
use std::rc::Rc;

/// Returns the place of a node.
pub(super) fn place_of(id: NodeId) -> Place {
    id.saturating_sub(1) as Place
}

impl World {
    // The cluster map.

    /// Takes over a node's cluster map at the end of its turn, if it is newer.
    #[inline]
    pub(super) fn learn_map(&mut self, node: &Node) {
        if node.cluster_map().version > self.map.version {
            self.take_map(Rc::clone(node.cluster_map()));
        }
    }

    pub(super) fn take_map(&mut self, map: Rc<ClusterMap>) {
        for (index, space) in self.scenario.spaces.iter().enumerate() {
            let before = groups_of(&self.map, space);
            let leads_anew = |(id, group): (GroupId, &Group)| {
                map.groups.get(&id).is_some_and(|now| now.epoch != group.epoch)
            };
            self.forgot[index] |= space.forgets_with_its_leader() && before.into_iter().any(leads_anew);
        }
        let control_nodes =
            |map: &ClusterMap| map.groups.get(&CONTROL_GROUP).map(|group| group.members.clone());
        if control_nodes(&self.map) != control_nodes(&map) {
            // A node that has not received anything from the others yet may become the leader.
            self.hosts.iter_mut().for_each(|host| host.was_durable = None);
        }
        self.map = map;
    }

    /// Returns the space of a group's keyspace.
    pub(super) fn space_of(&self, group: &Group) -> Option<&Space> {
        self.scenario.spaces.iter().find(|space| space.keyspace.prefix == group.keyspace)
    }

    /// The groups of keyspaces, each with its space.
    pub(super) fn promised(&self) -> impl Iterator<Item = (GroupId, &Group, &Space)> {
        let groups = self.map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP);
        groups.filter_map(|(id, group)| Some((*id, group, self.space_of(group)?)))
    }

    pub(super) fn health_of(&self, member: NodeId, group: GroupId) -> Option<KeyspaceHealth> {
        self.hosts.get(usize::from(place_of(member)))?.node()?.group_health(group)
    }

    /// How many elements of a keyspace are with no client yet, and how many requests have claimed theirs. The former are
    /// kept unclaimed (they return to the list, or reach their clients, within a minute), or have returned to their lists
    /// since the observers looked.
    pub(crate) fn served_requests(&self, index: usize) -> (usize, u64) {
        let groups = self.promised().filter(|(.., space)| std::ptr::eq(*space, &self.scenario.spaces[index]));
        groups.fold((0, 0), |(kept, claimed), (group, _, space)| {
            let served = |host: &Host| host.node()?.requests_with_elements(group);
            let of_hosts = || self.hosts.iter().filter_map(served);
            let returned = |host: &Host| {
                let elements = (0..QUEUES).filter_map(|number| {
                    let mut key = Vec::new();
                    let class = Kind::Take.collection()?;
                    Key { space: index as u8, class, number }.write(&space.keyspace.prefix, &mut key);
                    host.node()?.elements_at(group, &key)
                });
                elements.sum::<u64>() as usize
            };
            let kept = kept + of_hosts().map(|(kept, _)| kept).max().unwrap_or(0);
            let kept = kept + self.hosts.iter().map(returned).max().unwrap_or(0);
            (kept, claimed + of_hosts().map(|(_, claimed)| claimed).max().unwrap_or(0))
        })
    }

    // Memory.

    /// Whether a member of a group is without its data, as far as the group's keyspace promises to keep it.
    pub(super) fn is_damaged(&self, space: &Space, member: NodeId) -> bool {
        let Some(host) = self.hosts.get(usize::from(place_of(member))) else { return true };
        has_lost_disk(host) || host.is_damaged && !space.is_durable() || has_rotten_values(host)
    }

    /// Whether the promises would survive the death of a process and, with `power`, its machine's loss of power.
    pub(super) fn may_crash(&mut self, place: Place, power: bool) -> bool {
        self.notice_repairs();
        self.promised().all(|(id, group, space)| {
            let member = self::id(place);
            if !group.members.contains(&member) {
                return true;
            }
            if space.durability == Durability::Os && power {
                return false;
            }
            if space.forgets_with_its_leader() && group.leader == member && !self.scenario.may_forget {
                return false;
            }
            if space.is_durable() {
                return true;
            }
            // Without records, a member that has not started together with the others is no better than one that has
            // lost its memory.
            let has_memory =
                |it: NodeId| self.health_of(it, id).is_some_and(|health| health.role == "replica");
            let has_begun = space.protocol.has_registers() && group.members.iter().any(|it| has_memory(*it));
            let is_damaged = |other: NodeId| {
                other == member || self.is_damaged(space, other) || has_begun && !has_memory(other)
            };
            // Where a machine never returns, some member must have a memory from which the others can begin.
            if group.members.iter().all(|it| is_damaged(*it)) && self.hosts.iter().any(has_lost_disk) {
                return false;
            }
            // The leader may not know yet that the in-sync set has changed.
            let believed = self.hosts.get(usize::from(place_of(group.leader))).and_then(|host| host.node());
            let believed = believed.and_then(|leader| leader.cluster_map().groups.get(&id));
            space.survives(group, is_damaged)
                && believed.is_none_or(|believed| space.survives(believed, is_damaged))
        })
    }

    /// Marks a damaged node as whole again when it has, in every keyspace, what the group has.
    pub(super) fn notice_repairs(&mut self) {
        for index in 0..self.hosts.len() {
            let host = &self.hosts[index];
            // A node whose disk has failed hears of it in a later turn.
            let is_doomed = host.doom.is_some() || host.is_refused || has_lost_disk(host);
            if has_lost_disk(host) {
                self.hosts[index].is_refilling = true;
            } else if host.is_damaged && !is_doomed && self.is_whole(host) {
                (self.hosts[index].is_damaged, self.hosts[index].is_refilling) = (false, false);
            }
        }
    }

    fn is_whole(&self, host: &Host) -> bool {
        let Some(node) = host.node() else { return false };
        let member = id(host.place);
        node.is_admitted()
            && self.promised().filter(|(_, group, _)| group.members.contains(&member)).all(
                |(id, group, space)| {
                    let held = node.group_health(id);
                    // A member that joins a group again counts once the group is settled; groups of registers keep
                    // their members.
                    let enters_anew = space.is_durable() && !space.protocol.has_registers();
                    enters_anew || held.is_some_and(|held| self.holds_all(&held, id, group, space))
                },
            )
    }

    /// Whether a replica without records holds everything that its group holds.
    fn holds_all(&self, held: &KeyspaceHealth, id: GroupId, group: &Group, space: &Space) -> bool {
        if space.protocol != crate::Protocol::LeaderFollower {
            return held.ready;
        }
        let Some(leads) = self.health_of(group.leader, id) else { return false };
        let follows = held.epoch == leads.epoch && held.offset >= leads.offset;
        held.ready && leads.ready && leads.role == "leader" && leads.epoch >= group.epoch && follows
    }

    // Disks.

    /// Whether a member of a group of registers runs without a memory: it has not begun, or refills itself.
    fn lacks_memory(&self, member: NodeId, group: GroupId, space: &Space) -> bool {
        let has_none = |health: KeyspaceHealth| health.role != "replica";
        let runs = self.hosts.get(usize::from(place_of(member))).is_some_and(Host::is_alive);
        // A node that does not know of the keyspace yet has not begun either.
        space.protocol.has_registers() && runs && self.health_of(member, group).is_none_or(has_none)
    }

    /// Whether a node leaves no memory of some group of registers on its disk.
    pub(super) fn leaves_no_memory(&self, place: Place) -> bool {
        let member = id(place);
        self.promised().any(|(id, group, space)| {
            group.members.contains(&member) && space.is_durable() && self.lacks_memory(member, id, space)
        })
    }

    /// Whether every group can do without this node forever, and every other node would recognise it if it returned
    /// with another identity. If not, counts a spared fault.
    pub(super) fn may_lose_disk(&mut self, place: Place) -> bool {
        self.notice_repairs();
        let member = id(place);
        if self.given.iter().any(|given| !given.is_over) {
            self.counts.add(Class::DiskSpared);
            return false; // One change of the cluster at a time.
        }
        let is_lost = |other: NodeId| {
            let is_lost = |host: &Host| has_lost_disk(host) || host.is_refilling || has_rotten_values(host);
            other == member || self.hosts.get(usize::from(place_of(other))).is_none_or(is_lost)
        };
        let lost = |group: &Group, is_lost: &dyn Fn(NodeId) -> bool| {
            group.members.iter().filter(|other| is_lost(**other)).count()
        };
        let is_control_spared = self
            .map
            .groups
            .get(&CONTROL_GROUP)
            .is_some_and(|group| group.settled && lost(group, &is_lost) <= (group.members.len() - 1) / 2);
        let is_spared = self.promised().filter(|(_, group, _)| group.members.contains(&member)).all(
            |(id, group, space)| {
                // A replaced member counts as empty until the group is settled, and known to hold everything.
                let is_settled = group.settled && group.members.iter().all(|it| group.in_sync.contains(it));
                let is_settled = is_settled || space.protocol.has_registers();
                let leads = self.health_of(group.leader, id);
                let is_led = group.leader == 0 || leads.is_some_and(|health| health.ready);
                let may_forget = !space.forgets_with_its_leader() || self.scenario.may_forget;
                let is_lost = |other: NodeId| is_lost(other) || self.lacks_memory(other, id, space);
                is_settled
                    && is_led
                    && may_forget
                    && lost(group, &is_lost) <= space.spares(group)
                    && space.survives(group, is_lost)
            },
        );
        let host = &self.hosts[usize::from(place)];
        // Enough messages that every node has some on its disk.
        const KNOWN: u32 = 100;
        let is_known = |other: &Host| {
            other.place == place || !other.is_alive() || other.received[usize::from(place)] >= KNOWN
        };
        let is_one = !has_lost_disk(host) && host.is_alive() && host.doom.is_none();
        let is_known = self.hosts.iter().all(is_known);
        let may = is_one && is_control_spared && is_spared && is_known && self.may_crash(place, false);
        if !may {
            self.counts.add(Class::DiskSpared);
        }
        may
    }
}

/// Whether values on a node's disk have changed and are not repaired, so that other replicas must have them.
fn has_rotten_values(host: &Host) -> bool {
    host.disk.rotten_and_repaired().0 > 0
}

pub(super) fn has_lost_disk(host: &Host) -> bool {
    host.is_lost || host.rotten.is_some()
}

/// Returns a keyspace's groups.
fn groups_of<'m>(map: &'m ClusterMap, space: &Space) -> Vec<(GroupId, &'m Group)> {
    let groups = map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP);
    groups.filter(|(_, group)| group.keyspace == space.keyspace.prefix).map(|(id, it)| (*id, it)).collect()
}
