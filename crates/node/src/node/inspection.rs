//! Views into a node for simulators and tests. Nothing here changes the node.

use super::Node;
use super::report;
use crate::context::status::group_status;
use cluster::control::{CONTROL_GROUP, ClusterMap, GroupId};
use info::KeyspaceHealth;
use kv::{Version, WaiterId};
use std::rc::Rc;

/// What the replica of a group takes in memory, where that is bounded.
#[derive(Clone, Copy, Debug)]
pub struct BoundedMemory {
    /// The group.
    pub group: GroupId,
    /// How much of the bound the applied data takes, in bytes.
    pub bytes: u64,
    /// The bound, in bytes.
    pub bytes_max: u64,
    /// Keys evicted.
    pub evicted: u64,
}

impl Node {
    /// What is wrong with the fragments of large values that a replica here keeps, if anything: how many it lacks,
    /// and whether it keeps any that nothing refers to.
    pub fn fragment_mismatch(&self, group: GroupId) -> Option<String> {
        let replica = self.cx.groups.get(group)?.replica.as_ref()?;
        let fragments = replica.fragments()?;
        let (lacking, (kept, _)) = (fragments.fragments_lacking(), fragments.fragments_kept());
        let wanted = replica.table().references().count();
        let what = format!("{lacking} of {wanted} fragments are missing and {kept} are kept");
        (lacking > 0 || kept != wanted).then_some(what)
    }

    /// The newest map that this node knows. Before one was committed, the initial one, with version 0.
    pub fn cluster_map(&self) -> &Rc<ClusterMap> {
        self.cluster.control().map()
    }

    /// Whether the control group has admitted this node.
    pub fn is_admitted(&self) -> bool {
        self.cluster.control().is_admitted()
    }

    /// Why the control group does not admit this node, if it gave a reason.
    pub fn refusal(&self) -> Option<&str> {
        self.cluster.control().refusal()
    }

    /// Where the log ended when it was opened: by this the control group judges whether the disk is an older one.
    pub fn log_found(&self) -> u64 {
        self.cluster.control().found()
    }

    /// Up to where a node's log was durable, as far as this node knows, if this is a control node.
    pub fn known_durable(&self, node: protocol::NodeId) -> Option<u64> {
        self.cluster.control().known_durable(node)
    }

    /// What this node's replica of the control group has promised and holds: the number of a ballot, and how many entries
    /// its log has. `None` if this is not a control node.
    pub fn control_log(&self) -> Option<(u64, u64)> {
        let status = self.cluster.control().status(self.cx.now)?;
        Some((status.epoch, status.end_entries))
    }

    /// The groups with elected or appointed leaders that this node leads, as far as it knows, the control group included,
    /// with the number of each leadership.
    pub fn leaderships(&self) -> Vec<(GroupId, u64)> {
        let control = self.cluster.control().status(self.cx.now);
        let control = control.filter(|status| status.role == "leader");
        let led = |(id, group): (GroupId, &crate::groups::Group)| {
            let replica = group.replica.as_ref().filter(|replica| replica.is_leader())?;
            Some((id, replica.summary(self.cx.now).epoch))
        };
        let groups = self.cx.groups.iter().filter_map(led);
        control.map(|status| (CONTROL_GROUP, status.epoch)).into_iter().chain(groups).collect()
    }

    /// Whether this node leads the control group, as far as it knows.
    pub fn leads_control(&self) -> bool {
        self.cluster.control().status(self.cx.now).is_some_and(|status| status.role == "leader")
    }

    /// Bytes of log that a start would have to read, and bytes of the tables in memory: a log is shortened only if it
    /// is longer than these.
    pub fn log_bytes(&self) -> (u64, u64) {
        let tables = self.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        let state_bytes = tables.map(|replica| replica.table().memory_bytes() as u64).sum();
        (self.cx.journal.held_bytes(), state_bytes)
    }

    /// The state of a group here, if this node knows of it.
    pub fn group_health(&self, group: GroupId) -> Option<KeyspaceHealth> {
        let known = self.cx.groups.ids().contains(&group).then(|| &self.cx.groups[group])?;
        Some(report::keyspace_health(known, &group_status(&self.cx, group)))
    }

    /// The value of a replica's counter, by its name in the metrics; 0 if there is none.
    pub fn counted(&self, group: GroupId, name: &str) -> u64 {
        let replica = self.cx.groups.get(group).and_then(|group| group.replica.as_ref());
        let counters = replica.map(|replica| replica.summary(self.cx.now).counters).unwrap_or_default();
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }

    /// For each group with a replica here, a digest of the replica's contents. O(keys).
    pub fn digests(&self) -> Vec<(GroupId, u64)> {
        let digest = |(id, group): (GroupId, &crate::groups::Group)| {
            group.replica.as_ref().map(|replica| (id, replica.table().digest()))
        };
        self.cx.groups.iter().filter_map(digest).collect()
    }

    /// For a keyspace with one shard and a replica here: the versions of the changes that this replica keeps, and the
    /// version after which it keeps all of them.
    pub fn kept_changes(&self, prefix: &str) -> Option<(Version, Vec<Version>)> {
        let [group] = self.cx.map.keyspaces.get(prefix)?.groups[..] else { return None };
        let table = self.cx.groups.get(group)?.replica.as_ref()?.table();
        let history = table.history()?;
        Some((history.since(table.version_floor()), history.versions().collect()))
    }

    /// For a keyspace with one shard and a replica here: the version up to which this replica has applied records.
    pub fn version_held(&self, prefix: &str) -> Option<Version> {
        let [group] = self.cx.map.keyspaces.get(prefix)?.groups[..] else { return None };
        Some(self.cx.groups.get(group)?.replica.as_ref()?.table().version_floor())
    }

    /// The keys of that replica, as a file in Redis's format ([`kv::Table::dump_all`]). `None` where keys are
    /// registers.
    pub fn keys_held(&mut self, prefix: &str) -> Option<Vec<u8>> {
        let [group] = self.cx.map.keyspaces.get(prefix)?.groups[..] else { return None };
        Some(self.cx.groups.get_mut(group)?.replica.as_mut()?.dumped()?.dump_all())
    }

    /// The memory of each group with a replica here and a bound.
    pub fn bounded_memory(&self) -> Vec<BoundedMemory> {
        let bounded = self.cx.groups.iter().filter(|(_, group)| group.keyspace.memory_max > 0);
        let memory = |(id, group): (GroupId, &crate::groups::Group)| {
            Some(BoundedMemory {
                group: id,
                bytes: group.bounded_bytes()? as u64,
                bytes_max: group.keyspace.shard_memory_max(),
                evicted: group.replica.as_ref()?.table().statistics().evicted,
            })
        };
        bounded.filter_map(memory).collect()
    }

    /// Bytes of long replies under way to other nodes, and of those that have arrived here only in part.
    pub fn long_reply_bytes(&self) -> (usize, usize) {
        let sent = self.cx.peers.long_reply_bytes();
        (sent, self.forwarding.arrived_bytes())
    }

    /// How many requests wait for elements in a replica here, how many were served and are not settled, and how many
    /// of the latter were claimed.
    pub fn queues_left(&self, group: GroupId) -> Option<(usize, usize, usize)> {
        let queues = self.cx.groups.get(group)?.replica.as_ref()?.table().queues();
        Some((queues.waiters(), queues.unsettled(), queues.unsettled() - queues.unclaimed().count()))
    }

    /// The requests that wait for elements in a replica here.
    pub fn waiting_requests(&self, group: GroupId) -> Vec<WaiterId> {
        let replica = self.cx.groups.get(group).and_then(|group| group.replica.as_ref());
        replica.map_or_else(Vec::new, |replica| replica.table().queues().requests().collect())
    }

    /// Whether a request of a client here has ended, but may still be queued by a record that arrives late. It will
    /// be withdrawn again.
    pub fn lingers(&self, waiter: WaiterId) -> bool {
        self.waits.lingers(waiter)
    }

    /// The state of a request that waits here, for a message to developers.
    pub fn progress_of(&self, waiter: WaiterId) -> String {
        self.waits.progress_of(waiter)
    }

    /// The number of requests for which a replica here keeps elements that are not claimed, and of those whose
    /// elements were claimed in the group's whole history.
    pub fn requests_with_elements(&self, group: GroupId) -> Option<(usize, u64)> {
        let queues = self.cx.groups.get(group)?.replica.as_ref()?.table().queues();
        Some((queues.kept(), queues.statistics().claimed))
    }

    /// The number of elements that a replica here has at a key.
    pub fn elements_at(&self, group: GroupId, key: &[u8]) -> Option<u64> {
        let replica = self.cx.groups.get(group)?.replica.as_ref()?;
        Some(kv::Known::size(replica.table(), key).items)
    }

    /// The numbers of locks that are held, of requests that wait for one, and of sessions, in a replica here.
    pub fn locks_left(&self, group: GroupId) -> Option<(usize, usize, usize)> {
        let locks = self.cx.groups.get(group)?.replica.as_ref()?.table().locks();
        Some((locks.len(), locks.waiters(), locks.sessions()))
    }
}
