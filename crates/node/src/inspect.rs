//! What a test or a simulator may inspect from outside. Nothing here changes anything.

use crate::control::{ClusterMap, GroupId};
use crate::envelope::Envelope;
use crate::node::Node;
use crate::report::KeyspaceHealth;
use std::rc::Rc;

/// Returns the group and the message of a frame's payload, if it is a message between replicas. Other payloads carry
/// requests and outcomes of clients, which rely on the order and on the end of their link. Messages between replicas do
/// not, nor do messages about fragments of values: see [`fragment_message`].
pub fn replica_message(payload: &[u8]) -> Option<(GroupId, &[u8])> {
    match Envelope::decode(payload) {
        Ok(Envelope::Group { group, message }) => Some((group, message)),
        _ => None,
    }
}

/// Describes another payload in words, for a trace.
pub fn payload_words(payload: &[u8]) -> &'static str {
    match Envelope::decode(payload) {
        Ok(Envelope::Requests(_)) => "requests of clients",
        Ok(Envelope::Outcomes(_)) => "outcomes of clients",
        Ok(Envelope::OutcomePart(_)) => "a part of an outcome",
        Ok(Envelope::PartsArrived { .. }) => "so much of an outcome has arrived",
        _ => "what is of no group",
    }
}

/// Returns the group and the message of a payload about fragments of large values: each message is independent.
pub fn fragment_message(payload: &[u8]) -> Option<(GroupId, &[u8])> {
    match Envelope::decode(payload) {
        Ok(Envelope::Fragments { group, message }) => Some((group, message)),
        _ => None,
    }
}

impl Node {
    /// What is wrong with the fragments of large values that a replica here keeps, if anything: how many it lacks, and
    /// whether it keeps any that nothing refers to.
    pub fn fragment_mismatch(&self, group: GroupId) -> Option<String> {
        let replica = self.groups.get(group)?.replica.as_ref()?;
        let fragments = replica.fragments()?;
        let (lacking, (kept, _)) = (fragments.fragments_lacking(), fragments.fragments_kept());
        let wanted = replica.table().references().count();
        let what = format!("{lacking} of {wanted} fragments are missing and {kept} are kept");
        (lacking > 0 || kept != wanted).then_some(what)
    }

    /// The newest map that this node knows. Before one was agreed on, the initial one, with version 0.
    pub fn cluster_map(&self) -> &Rc<ClusterMap> {
        self.control.map()
    }

    /// Whether the control group has admitted this node.
    pub fn is_admitted(&self) -> bool {
        self.control.is_admitted()
    }

    /// Why the control group does not admit this node, if it said so.
    pub fn refusal(&self) -> Option<&str> {
        self.control.refusal()
    }

    /// Where the log ended when it was found: by this the control group judges whether the disk is an older one.
    pub fn log_found(&self) -> u64 {
        self.control.found()
    }

    /// Up to where a node's log was durable, as far as this node knows, if this is a control node.
    pub fn known_durable(&self, node: protocol::NodeId) -> Option<u64> {
        self.control.known_durable(node)
    }

    /// Whether this node leads the control group, as far as it knows.
    pub fn leads_control(&self) -> bool {
        self.control.status(self.now).is_some_and(|status| status.role == "leader")
    }

    /// Bytes of log that a start would have to read, and bytes of the tables in memory: only a log with more is
    /// shortened.
    pub fn log_bytes(&self) -> (u64, u64) {
        let tables = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        let state_bytes = tables.map(|replica| replica.table().memory_bytes() as u64).sum();
        (self.journal.held_bytes(), state_bytes)
    }

    /// The state of a group here, if this node knows of it.
    pub fn group_health(&self, group: GroupId) -> Option<KeyspaceHealth> {
        self.groups.ids().contains(&group).then(|| self.keyspace_health(group))
    }

    /// The value of a replica's counter, by its name in the metrics; 0 if there is none.
    pub fn counted(&self, group: GroupId, name: &str) -> u64 {
        let replica = self.groups.get(group).and_then(|group| group.replica.as_ref());
        let counters = replica.map(|replica| replica.summary(self.now).counters).unwrap_or_default();
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }

    /// For each group with a replica here, a digest of the replica's contents. O(keys).
    pub fn digests(&self) -> Vec<(GroupId, u64)> {
        let digest = |(id, group): (GroupId, &crate::groups::Group)| {
            group.replica.as_ref().map(|replica| (id, replica.table().digest()))
        };
        self.groups.iter().filter_map(digest).collect()
    }

    /// Bytes of long replies on their way to other nodes, and of those that have not wholly arrived here.
    pub fn long_reply_bytes(&self) -> (usize, usize) {
        let sent = self.peers.iter().map(|peer| peer.long_replies.bytes()).sum();
        (sent, self.forwards.iter().map(|(_, entry)| entry.arrived.capacity()).sum())
    }

    /// The numbers of locks that are held, of requests that wait for one, and of sessions, in a replica here.
    pub fn locks_left(&self, group: GroupId) -> Option<(usize, usize, usize)> {
        let locks = self.groups.get(group)?.replica.as_ref()?.table().locks();
        Some((locks.len(), locks.waiters(), locks.sessions()))
    }
}
